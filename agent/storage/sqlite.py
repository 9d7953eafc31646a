"""Storage in one SQLite file, with a lock file per thread beside it. For POSIX systems.

A process has one connection to the file, in one thread, shared by the sessions of all runs. Waiting calls are committed
together, so many concurrent runs need fewer commits. A queued write is made even if its waiting task is cancelled.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import random
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import Op, PutOp, Result
from langgraph.store.sqlite import SqliteStore

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.rounds import Rounds, Writes, follow_checkpoint
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.storage import (
    SaverAndRows,
    WaitForWork,
    causes,
    lock_holders,
    unique_version,
    wait_unnotified,
)
from donewhen.agent.storage.store import SQLITE_KINDS, SQLITE_ORDER, deletion_statements
from donewhen.agent.storage.table import MIGRATIONS, TABLE, RowStore, migration, missing_marks, version_of
from donewhen.graph.sync import finish
from donewhen.state.errors import StorageError, ThreadBusy

APPLICATION_ID = 0x446E5768
"""`DnWh`: identifies the file as ours, also for the `file` command."""

MOST_FREE = 0.25
"""The largest share of free pages that is kept when the last user closes the file."""
TOGETHER = 64
"""The most calls per commit."""
_SERDE = StrictSerializer()
Returned = TypeVar("Returned")
Statement = tuple[str, Sequence[Sequence[Any]]]
"""A writing SQL statement, with the rows of values to execute it with."""

_FAULTS = {
    "file is not a database": "is not a SQLite database (or it is encrypted by something else)",
    "malformed": "is damaged: restore a copy, or name another file",
    "unable to open database file": "cannot be opened: is its folder there, and may you write to it?",
    "readonly database": "cannot be written: no permission, or opened for reading only",
    "is locked": "is locked by another process",
    "disk is full": "cannot be written: the disk is full",
    "disk i/o error": "cannot be read or written: the disk is full or failing",
}
_OWN_FOLDERS = ("donewhen", ".donewhen")
GONE = (
    "was removed or replaced while this process used it: put it back, or start the process again to use what is there"
)
UNLOCKED = "lost the lock of the thread: it was removed from the folder of locks, which belongs to the database"


def _lock_file(fd: int, kind: int) -> bool:
    """Lock a file at once, exclusively or not, if that is possible; return whether it was."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class FileLock:
    """An exclusive lock, held from `take` until `release`; excludes other holders in this process too."""

    def __init__(self, folder: Path, name: str) -> None:
        # A hash: a name may be any text, a path may not.
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()[:32]
        self._fd = -1
        lock_holders.add(self)

    def fileno(self) -> int:
        """Return the lock's descriptor; -1 while it is not held."""
        return self._fd

    def take(self) -> bool:
        """Take the lock if it is free, and return whether it is ours now. Creates the folder; raises OSError if it
        cannot.
        """
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        while True:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if _lock_file(fd, fcntl.LOCK_EX):
                    if self._is_at_its_path(fd):
                        self._fd, fd = fd, -1
                        return True
                    continue  # the holder before us removed the file between our open and our lock
                if not _lock_file(fd, fcntl.LOCK_SH):
                    return False
            finally:
                if fd >= 0:
                    os.close(fd)
            time.sleep(random.uniform(0, 0.001))  # nobody holds it: somebody looked, or tries to take it too

    def is_held(self) -> bool:
        """Return whether anybody holds the lock."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _lock_file(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def release(self) -> None:
        """Free the lock and remove its file."""
        if self._fd >= 0:
            if self._is_at_its_path(self._fd):  # not that of who took it after somebody removed ours
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def check(self) -> None:
        """Raise if the file of the lock that is held was removed: then another process can hold it as well."""
        if not self._is_at_its_path(self._fd):
            raise _FileGone(UNLOCKED)

    def _is_at_its_path(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False


# The file's connection ---------------------------------------------------------------------------------------------


class _Connection(sqlite3.Connection):
    """A connection whose transactions belong to the file; those of LangGraph's saver and store are ignored."""

    def commit(self) -> None:
        return

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        return self.cursor() if sql in ("BEGIN", "COMMIT") else super().execute(sql, *arguments)

    def run(self, sql: str) -> None:
        """Execute one of the file's own statements."""
        super().execute(sql).close()


@dataclass(slots=True)
class _Call:
    """A call that uses the file, with its caller."""

    work: Callable[["SqliteFile"], Any]
    writes: bool
    alone: bool
    """True to run outside any transaction."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None

    def do(self, file: "SqliteFile") -> bool:
        """Do the work, and return whether it succeeded."""
        try:
            self.answer, self.error = self.work(file), None
        except BaseException as error:
            self.error = error
        return self.error is None


class _FileGone(sqlite3.OperationalError):
    """What was opened is not at its path any more: a write would be lost with it."""


Identity: TypeAlias = tuple[int, int]
"""The device and the number of a file, which another file at the same path has not."""


def identity_of(path: Path) -> Identity | None:
    """Return the identity of the file at a path; None if there is none."""
    with suppress(FileNotFoundError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


class SqliteFile:
    """The connection, its thread, and LangGraph's saver and store on it.

    The first user opens it, the last one closes it. `patience`: seconds to wait while another process writes.
    """

    def __init__(self, path: Path, identity: Identity, patience: float) -> None:
        self._path, self._identity = path, identity
        self.connection: _Connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False, factory=_Connection
        )
        self.saver: SqliteSaver = SqliteSaver(self.connection, serde=_SERDE)
        self.store: SqliteStore = SqliteStore(self.connection)
        self.users = 0
        self.fit: set[Any] = set()
        """Users for whom the file is known to be set up."""
        self._calls: SimpleQueue[_Call] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._work, name=f"donewhen {path.name}", daemon=True).start()

    def call(
        self, work: Callable[["SqliteFile"], Returned], *, writes: bool = True, alone: bool = False
    ) -> asyncio.Future[Returned]:
        """Queue a call; return the future of its result."""
        loop = asyncio.get_running_loop()
        call = _Call(work, writes, alone, loop, loop.create_future())
        self._calls.put(call)
        return call.future

    async def flush(self) -> None:
        """Wait until all queued calls are done."""
        await finish(self.call(lambda _: None, alone=True))

    async def close(self) -> None:
        """Close the connection after all queued calls, and wait for that."""
        await finish(self.call(SqliteFile._close, alone=True))

    def _work(self) -> None:
        while not self._closed:
            together, following = self._next_calls()
            if together:
                self._commit(together)
            if following:
                following.do(self)
                _pass_results([following])

    def _next_calls(self) -> tuple[list[_Call], _Call | None]:
        """Return the queued calls that can be committed together, and a later call that must run alone."""
        together: list[_Call] = []
        call = self._calls.get()
        while not call.alone:
            if call.writes or not call.future.cancelled():
                together.append(call)
            if len(together) == TOGETHER:
                return together, None
            try:
                call = self._calls.get_nowait()
            except Empty:
                return together, None
        return together, call

    def _commit(self, calls: list[_Call]) -> None:
        """Commit calls in one transaction or, if one of them fails, each in its own."""
        failed = False
        try:
            if identity_of(self._path) != self._identity:
                raise _FileGone(GONE)
            self.connection.run("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
            failed = not all(call.do(self) for call in calls)
            if not failed:
                self.connection.run("COMMIT")
        except BaseException as error:
            for call in calls:
                call.error = error
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.run("ROLLBACK")
        if failed and len(calls) > 1:
            for call in calls:
                self._commit([call])
        else:
            _pass_results(calls)

    def _close(self) -> None:
        self._closed = True
        with suppress(sqlite3.Error):
            self._give_back()
        with suppress(sqlite3.Error):
            self.connection.close()

    def _give_back(self) -> None:
        """Return free pages to the disk, if there are many and nobody else writes; never in a foreign file."""
        if not self.fit:
            return
        names = ("freelist_count", "page_count")
        free, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if free > pages * MOST_FREE:
            self.connection.run("PRAGMA busy_timeout = 0")
            self.connection.executescript("PRAGMA incremental_vacuum")


def _pass_results(calls: list[_Call]) -> None:
    """Pass results to their callers, whose loops may be closed by now."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_results, [call for call in calls if call.loop is loop])


def _set_results(calls: list[_Call]) -> None:
    """Pass results to those callers that still wait."""
    for call in calls:
        if call.future.done():
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.answer)


_files: dict[tuple[int, Path, Identity], SqliteFile] = {}
"""By process (a child must not use or close its parent's connection), path, and the current file."""
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@asynccontextmanager
async def open_shared(path: Path, identity: Identity, patience: float) -> AsyncIterator[SqliteFile]:
    """Share the file's connection in this process. At the end, all queued calls are done."""
    key = (os.getpid(), path, identity)
    with _lock:
        file = _files.get(key) or _files.setdefault(key, SqliteFile(path, identity, patience))
        file.users += 1
    try:
        yield file
    finally:
        with _lock:
            file.users -= 1
            last = not file.users
            if last:
                del _files[key]
        await (file.close() if last else file.flush())


# The checkpointer and the store of a session -------------------------------------------------------------------


class _Recorder(list[Statement]):
    """Records the statements of LangGraph's saver and store, to which it is the connection.

    They convert values to bytes at once, so a value that is changed later is stored as it was.
    """

    def cursor(self) -> "_Recorder":
        return self

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        if sql not in ("BEGIN", "COMMIT"):
            self.append((sql, [values]))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.append((sql, rows))

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing, because transactions and functions belong to the file."""

    commit = close = create_function = _ignore


class FileSaver(BaseCheckpointSaver[Any]):
    """The checkpointer of a session, with the writes of its store. A session that only `reads` refuses to write."""

    def __init__(
        self, file: SqliteFile, next_version: Callable[[Any], Any], *, reads: bool, lock: FileLock | None = None
    ) -> None:
        super().__init__(serde=_SERDE)
        self._lock = lock
        self.file = file
        self.rounds = Rounds()
        self.writes: Writes[Statement] = Writes(self._commit)
        self.recorder = _Recorder()
        self._next_version = next_version
        self._reads = reads
        connection: Any = self.recorder
        self._recording = SqliteSaver(connection, serde=_SERDE)
        self._recording.is_setup = True

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.rounds.is_new(config):
            return None
        return follow_checkpoint(await self._read(lambda file: file.saver.get_tuple(config)))

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self._read(lambda file: list(file.saver.list(config, **options))):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        can_wait, over = self.rounds.note_checkpoint(config, checkpoint, metadata)
        put = self._recording.put(config, checkpoint, metadata, versions)  # first: it may refuse its values
        gone = [(str(config["configurable"]["thread_id"]), namespace) for namespace in over]
        for table in ("checkpoints", "writes") if gone else ():
            self.recorder.executemany(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?", gone)
        await self.write_recorded(can_wait=can_wait)
        return put

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._recording.put_writes(config, writes, task_id, task_path)
        await self.write_recorded(can_wait=self.rounds.can_writes_wait(config, task_id, task_path))

    async def aget_delta_channel_history(self, *given: Any, **options: Any) -> Any:
        return await self._read(lambda file: file.saver.get_delta_channel_history(*given, **options))

    async def adelete_thread(self, thread_id: str) -> None:
        self._recording.delete_thread(thread_id)
        await self.write_recorded()

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)

    async def write_recorded(self, *, can_wait: bool = False) -> None:
        """Write the recorded statements, and forget them."""
        statements = [*self.recorder]
        self.recorder.clear()
        if self._reads:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        await self.writes.write(statements, can_wait=can_wait)

    async def _read(self, work: Callable[[SqliteFile], Returned]) -> Returned:
        """Read in the file's thread, including what is held."""
        return await self.writes.commit_with(lambda held: self._execute(held, work))

    async def _commit(self, statements: list[Statement]) -> None:
        await self._execute(statements, lambda _: None)

    def _execute(self, statements: list[Statement], work: Callable[[SqliteFile], Returned]) -> asyncio.Future[Returned]:
        """Queue one call that executes statements and then does the work."""

        def call(file: SqliteFile) -> Returned:
            if statements and self._lock:
                self._lock.check()
            for sql, rows in statements:
                file.connection.executemany(sql, rows)
            return work(file)

        return self.file.call(call, writes=bool(statements))


class FileStore(RowStore):
    """The store of a session; it writes through the session's saver."""

    def __init__(self, saver: FileSaver) -> None:
        self._saver = saver
        connection: Any = saver.recorder
        self._recording = SqliteStore(connection)
        self._recording.is_setup = True
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.supports_ttl, self.ttl_config = self._recording.supports_ttl, self._recording.ttl_config

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked, file = list(ops), self._saver.file
        puts = [op for op in asked if isinstance(op, PutOp)]
        gets = [op for op in asked if not isinstance(op, PutOp)]
        found = iter(await file.call(lambda _: file.store.batch(gets), writes=False) if gets else ())
        if puts:
            self._recording.batch(puts)
            await self._saver.write_recorded()
            self._saver.rounds.note_stored(puts)
        return [None if isinstance(op, PutOp) else next(found) for op in asked]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Serve sync tools, which run in threads. Raises RuntimeError in the session's own thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("in async code, use the store's async methods: aget, aput, …")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await self._saver.file.call(lambda file: file.connection.execute(sql, values).fetchall(), writes=False)

    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        self._saver.recorder.execute(sql, values)
        await self._saver.write_recorded()


def counted_version(current: Any) -> Any:
    """Return the next version of a channel as a whole number; threads with longer versions keep these."""
    return unique_version(current) if isinstance(current, str) else (current or 0) + 1


# The database --------------------------------------------------------------------------------------------------


class SqliteDatabase:
    """Checkpoints and store in one file: WAL, every commit on disk.

    `patience` is how many seconds to wait while another process writes. A missing folder is created if its name is
    `donewhen` or `.donewhen`.
    """

    at_once: int = sys.maxsize
    grace = 0.0

    def __init__(self, path: Path, cipher: Cipher | None = None, *, patience: float = 30.0) -> None:
        self.display: str = f"sqlite:///{path}"
        self._path = path
        self._cipher = cipher
        self._patience = patience
        self._identity: Identity | None = None
        """The file that was opened first: no other is used in its place."""
        self._locks = path.with_name(path.name + ".locks")
        # A seal names its value's version: with a key, no other value may have the same.
        self.next_version: Callable[[Any], Any] = unique_version if cipher else counted_version

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool, working: bool = False) -> AsyncIterator[SaverAndRows]:
        async with AsyncExitStack() as stack:
            file, lock = await self._prepare(stack), None
            if thread_id is not None:
                lock = FileLock(self._locks, thread_id)
                if not self._take(lock):
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker")
                stack.callback(lock.release)
            saver = FileSaver(file, self.next_version, reads=not writes, lock=lock)
            stack.push_async_callback(saver.writes.flush)
            yield saver, FileStore(saver)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[SaverAndRows, WaitForWork]]:
        async with self.open(None, writes=False) as opened:
            yield opened, wait_unnotified

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        return [each for each in thread_ids if not FileLock(self._locks, each).is_held()]

    async def delete(self, thread_ids: Sequence[str]) -> list[str]:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            locks = {thread_id: FileLock(self._locks, thread_id) for thread_id in thread_ids}
            free = [thread_id for thread_id, lock in locks.items() if self._take(lock)]
            for thread_id in free:
                stack.callback(locks[thread_id].release)
            await file.call(lambda _: _delete(file.connection, free))
            return [thread_id for thread_id in thread_ids if thread_id not in free]

    async def aclose(self) -> None:
        return

    async def check(self) -> str:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            answer = await file.call(
                lambda _: file.connection.execute("PRAGMA quick_check(1)").fetchone()[0], alone=True
            )
            if answer != "ok":
                raise StorageError(f"{self.display} is damaged ({answer}): restore a copy")
            note = "INSERT OR REPLACE INTO donewhen_meta VALUES ('checked', datetime('now'))"
            await file.call(lambda _: file.connection.execute(note))
            return ""

    def fault(self, error: BaseException) -> StorageError | None:
        for cause in causes(error):
            if isinstance(cause, _FileGone):
                return StorageError(f"{self.display} {cause}")
            if isinstance(cause, sqlite3.Error):
                text = str(cause)
                words = next((words for part, words in _FAULTS.items() if part in text.lower()), "failed")
                return StorageError(f"{self.display} {words} ({text})")
        return None

    def _prepare_place(self) -> Identity:
        folder = self._path.parent
        if self._identity and identity_of(self._path) != self._identity:
            raise StorageError(f"{self.display} {GONE}")
        try:
            if folder.name in _OWN_FOLDERS:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not folder.is_dir():
                raise StorageError(f"{self.display}: the folder {folder} does not exist; create it or name another")
            if self._path.is_dir():
                raise StorageError(f"{self.display} is a folder, not a file")
            if not self._path.exists():
                self._path.touch(mode=0o600)
            # Asked, not tried: closing a descriptor of this file would drop the locks of SQLite's own.
            if not os.access(self._path, os.R_OK | os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            found = os.stat(self._path)
        except OSError as error:
            raise self._unusable(error) from error
        self._identity = found.st_dev, found.st_ino
        return self._identity

    def _take(self, lock: FileLock) -> bool:
        try:
            return lock.take()
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StorageError:
        return StorageError(f"{self.display} cannot be used: {error.strerror or error}")

    async def _prepare(self, stack: AsyncExitStack) -> SqliteFile:
        """Open the file, and set it up if necessary."""
        file = await stack.enter_async_context(open_shared(self._path, self._prepare_place(), self._patience))
        if self._cipher not in file.fit:
            if not await file.call(self._configure, alone=True):
                await self._set_up(file)
            file.fit.add(self._cipher)
        return file

    async def _set_up(self, file: SqliteFile) -> None:
        lock = FileLock(self._locks, "\0set up")
        deadline = asyncio.get_running_loop().time() + self._patience
        while not self._take(lock):
            if asyncio.get_running_loop().time() > deadline:
                raise StorageError(f"{self.display} is locked: another process is setting it up")
            await asyncio.sleep(0.02)
        try:
            await finish(file.call(self._write_marks, alone=True))
        finally:
            lock.release()

    def _configure(self, file: SqliteFile) -> bool:
        """Configure the connection; return whether the file is set up."""
        file.connection.run("PRAGMA synchronous = FULL")
        if self._missing_marks(file) or _value(file.connection, "PRAGMA journal_mode") != "wal":
            return False
        file.saver.is_setup = file.store.is_setup = True
        return True

    def _write_marks(self, file: SqliteFile) -> None:
        connection = file.connection
        connection.run("PRAGMA auto_vacuum = INCREMENTAL")  # first: it counts only while there is no table
        connection.run(f"PRAGMA application_id = {APPLICATION_ID}")  # whoever is killed while tables are made
        connection.run("PRAGMA synchronous = NORMAL")  # the first commit of a run brings all of it to the disk
        try:
            file.saver.setup()
            file.store.setup()
            for statements in migration(_read_marks(connection, _tables(connection)), MIGRATIONS):
                for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
                    connection.run(statement)
            for statement in TABLE:
                connection.run(statement)
            connection.run("CREATE TABLE IF NOT EXISTS donewhen_meta (name TEXT PRIMARY KEY, value TEXT)")
            marks = self._missing_marks(file)
            for mark in marks.items():
                connection.execute("INSERT OR REPLACE INTO donewhen_meta VALUES (?, ?)", mark)
            if "version" in marks:
                connection.run(f"PRAGMA user_version = {int(marks['version'])}")
        finally:
            connection.run("PRAGMA synchronous = FULL")

    def _missing_marks(self, file: SqliteFile) -> dict[str, str]:
        connection = file.connection
        # In the reverse order of `_write_marks`: another process may be writing them.
        version = str(_value(connection, "PRAGMA user_version"))
        tables = _tables(connection)
        owner = _value(connection, "PRAGMA application_id")
        if owner != APPLICATION_ID and (owner or tables):
            holds = f", with tables such as {', '.join(map(repr, tables[:3]))}" if tables else ""
            raise StorageError(f"{self.display} is the database of another application{holds}: name another file")
        used = "checkpoints" in tables and bool(_value(connection, "SELECT EXISTS (SELECT 1 FROM checkpoints)"))
        return missing_marks(
            {**_read_marks(connection, tables), "version": version},
            library=version_of("langgraph-checkpoint-sqlite"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _read_marks(connection: sqlite3.Connection, tables: Sequence[str]) -> dict[str, str]:
    if "donewhen_meta" not in tables:
        return {}
    return dict(connection.execute("SELECT name, value FROM donewhen_meta").fetchall())


def _delete(connection: sqlite3.Connection, thread_ids: Sequence[str]) -> None:
    kinds = connection.execute(SQLITE_KINDS).fetchall()
    for statement, values in deletion_statements(thread_ids, ("checkpoints", "writes"), kinds, SQLITE_ORDER):
        connection.execute(statement, values)


def _value(connection: sqlite3.Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return row[0]
