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
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import Op, Result
from langgraph.store.sqlite import SqliteStore
from typing_extensions import override

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.agent.storage.session import Session, SessionSaver, SessionStore, Statement
from donewhen.agent.storage.storage import (
    SaverAndRows,
    WaitForWork,
    causes,
    lock_holders,
    unique_version,
    wait_unnotified,
)
from donewhen.agent.storage.store import SQLITE_KINDS, SQLITE_ORDER, deletion_statements
from donewhen.agent.storage.table import MIGRATIONS, TABLE, migration, missing_marks, select_unchanged, version_of
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
_FORGETS = tuple(
    f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?" for table in ("checkpoints", "writes")
)

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
            time.sleep(random.uniform(0, 0.001))  # nobody holds it, but somebody checks it or tries to take it, too

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
            if self._is_at_its_path(self._fd):  # else somebody removed our file, and another holder made this one
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def check(self) -> None:
        """Raise if the file of this held lock was removed: then another process can hold the lock as well."""
        if not self._is_at_its_path(self._fd):
            raise _FileGone(UNLOCKED)

    def _is_at_its_path(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False


# The file's connection ---------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Work:
    """Statements to commit, and then work on the file, with their caller."""

    statements: Sequence[Statement]
    work: Callable[["SqliteFile"], Any]
    check: Callable[[], None] | None
    """Raises if the statements may not be executed any more."""
    always: bool
    """True for work that is also done after the file was removed."""
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    answer: Any = None
    error: BaseException | None = None

    def execute(self, connection: sqlite3.Connection) -> bool:
        """Execute the statements, and return whether that succeeded."""
        self.error = None
        try:
            if self.check:
                self.check()
            for sql, rows in self.statements:
                connection.executemany(sql, rows)
        except BaseException as error:
            self.error = error
        return self.error is None

    def do(self, file: "SqliteFile") -> None:
        """Do the work, outside any transaction; one that it leaves open is rolled back."""
        try:
            self.answer = self.work(file)
        except BaseException as error:
            self.error = error
        file.roll_back()


class _FileGone(sqlite3.OperationalError):
    """What was opened is not at its path any more: a write would be lost with it."""


Identity: TypeAlias = tuple[int, int]
"""The device and the number of a file, which another file at the same path has not."""


def identity_of(path: Path) -> Identity | None:
    """Return the identity of the file at a path; None if there is none."""
    with suppress(OSError):
        stat = os.stat(path)
        return stat.st_dev, stat.st_ino
    return None


class SqliteFile:
    """The connection, its thread, and LangGraph's saver and store on it.

    The first user opens it, the last one closes it. `patience`: seconds to wait while another process writes.
    """

    def __init__(self, path: Path, identity: Identity, patience: float) -> None:
        self._path, self._identity = path, identity
        self.connection: sqlite3.Connection = sqlite3.connect(
            path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        self.saver: SqliteSaver = SqliteSaver(self.connection, serde=_SERDE)
        self.store: SqliteStore = SqliteStore(self.connection)
        self.users = 0
        self.ready_for: set[Any] = set()
        """The ciphers (or None) for which the file was checked and set up."""
        self._calls: SimpleQueue[_Work] = SimpleQueue()
        self._closed = False
        threading.Thread(target=self._work, name=f"donewhen {path.name}", daemon=True).start()

    def call(
        self,
        work: Callable[["SqliteFile"], Returned],
        *,
        statements: Sequence[Statement] = (),
        check: Callable[[], None] | None = None,
        always: bool = False,
    ) -> asyncio.Future[Returned]:
        """Queue statements, which are committed with those of other calls, and work that follows; return its result."""
        loop = asyncio.get_running_loop()
        call = _Work(statements, work, check, always, loop, loop.create_future())
        self._calls.put(call)
        return call.future

    async def flush(self) -> None:
        """Wait until all queued calls are done."""
        await finish(self.call(lambda _: None, always=True))

    async def close(self) -> None:
        """Close the connection after all queued calls, and wait for that."""
        await finish(self.call(SqliteFile._close, always=True))

    def _work(self) -> None:
        while not self._closed:
            calls = self._next_calls()
            if identity_of(self._path) != self._identity:
                for call in calls:
                    call.error = None if call.always else _FileGone(GONE)
            if writing := [call for call in calls if call.statements and not call.error]:
                self._commit(writing)
            for call in calls:
                if not call.error:
                    call.do(self)
            _pass_results(calls)

    def _next_calls(self) -> list[_Work]:
        """Return the queued calls, without those that read for somebody who was cancelled; wait for the first."""
        calls = [self._calls.get()]
        with suppress(Empty):
            while len(calls) < TOGETHER:
                calls.append(self._calls.get_nowait())
        return [call for call in calls if call.statements or not call.future.cancelled()]

    def _commit(self, calls: list[_Work]) -> None:
        """Commit the statements of calls in one transaction or, if one of them fails, each in its own."""
        failed = False
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            failed = not all(call.execute(self.connection) for call in calls)
            if not failed:
                self.connection.execute("COMMIT")
        except BaseException as error:
            for call in calls:
                call.error = error
        self.roll_back()
        if failed and len(calls) > 1:
            for call in calls:
                self._commit([call])

    def snapshot(self, work: Callable[[SqliteSaver], Returned]) -> Returned:
        """Return what LangGraph's saver reads, all of it as of one moment."""
        self.connection.execute("BEGIN")
        return work(self.saver)

    def roll_back(self) -> None:
        """End a transaction that is open, without what it changed."""
        with suppress(sqlite3.Error):  # also where the connection is closed
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")

    def _close(self) -> None:
        self._closed = True
        with suppress(sqlite3.Error):
            self._give_back()
        with suppress(sqlite3.Error):
            self.connection.close()

    def _give_back(self) -> None:
        """Return free pages to the disk, if there are many and nobody else writes; never in a foreign file."""
        if not self.ready_for:
            return
        names = ("freelist_count", "page_count")
        free, pages = (self.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
        if free > pages * MOST_FREE:
            self.connection.execute("PRAGMA busy_timeout = 0")
            self.connection.executescript("PRAGMA incremental_vacuum")


def _pass_results(calls: list[_Work]) -> None:
    """Pass results to their callers, whose loops may be closed by now."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_set_results, [call for call in calls if call.loop is loop])


def _set_results(calls: list[_Work]) -> None:
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


class FileSession(Session):
    """A session on the file. One that only `reads` refuses to write."""

    def __init__(self, file: SqliteFile, *, reads: bool, lock: FileLock | None) -> None:
        super().__init__(self._commit)
        self.file = file
        self._reads = reads
        self._check = lock.check if lock else None

    async def read(self, work: Callable[[SqliteSaver], Returned]) -> Returned:
        """Return what LangGraph's saver reads, including pending writes."""
        return await self.writes.commit_with(lambda pending: self._call(pending, lambda file: file.snapshot(work)))

    async def _commit(self, statements: list[Statement]) -> None:
        await self._call(statements, lambda _: None)

    def _call(self, statements: list[Statement], work: Callable[[SqliteFile], Returned]) -> asyncio.Future[Returned]:
        if statements and self._reads:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return self.file.call(work, statements=statements, check=self._check)


class FileSaver(SessionSaver):
    """The checkpointer of a session on the file."""

    def __init__(self, session: FileSession, next_version: Callable[[Any], Any]) -> None:
        connection: Any = session.recorder
        recording = SqliteSaver(connection, serde=_SERDE)
        recording.is_setup = True
        super().__init__(session, recording, _FORGETS)
        self.read = session.read
        self._next_version = next_version

    @override
    async def read_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self.read(lambda saver: saver.get_tuple(config))

    @override
    async def read_list(self, config: RunnableConfig | None, **options: Any) -> Sequence[CheckpointTuple]:
        return await self.read(lambda saver: [*saver.list(config, **options)])

    @override
    async def aget_delta_channel_history(self, *args: Any, **options: Any) -> Any:
        return await self.read(lambda saver: saver.get_delta_channel_history(*args, **options))

    @override
    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)


class FileStore(SessionStore):
    """The store of a session on the file."""

    def __init__(self, session: FileSession) -> None:
        connection: Any = session.recorder
        recording = SqliteStore(connection)
        recording.is_setup = True
        super().__init__(session, recording)
        self._file = session.file

    @override
    async def find(self, ops: Sequence[Op]) -> list[Result]:
        return await self._file.call(lambda file: file.store.batch(ops))

    async def read_rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await self._file.call(lambda file: file.connection.execute(sql, values).fetchall())


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
    grace: float = 0.0

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
            session = FileSession(file, reads=not writes, lock=lock)
            stack.push_async_callback(session.writes.flush)
            yield FileSaver(session, self.next_version), FileStore(session)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[SaverAndRows, WaitForWork]]:
        async with self.open(None, writes=False) as opened:
            yield opened, wait_unnotified

    async def find_free(self, thread_ids: Sequence[str]) -> list[str]:
        return [each for each in thread_ids if not FileLock(self._locks, each).is_held()]

    async def delete(self, thread_ids: Sequence[str], still: tuple[str, str] | None = None) -> list[str]:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            locks = {thread_id: FileLock(self._locks, thread_id) for thread_id in thread_ids}
            free = [thread_id for thread_id, lock in locks.items() if self._take(lock)]
            for thread_id in free:
                stack.callback(locks[thread_id].release)
            if still:
                unchanged = select_unchanged(free, still)
                free = [id for (id,) in await file.call(lambda _: file.connection.execute(*unchanged).fetchall())]
            kinds = await file.call(lambda _: file.connection.execute(SQLITE_KINDS).fetchall())
            gone = deletion_statements(free, ("checkpoints", "writes"), kinds, SQLITE_ORDER)
            await file.call(lambda _: None, statements=[Statement(sql, [values]) for sql, values in gone])
            return [thread_id for thread_id in thread_ids if thread_id not in free]

    async def aclose(self) -> None:
        return

    async def check(self) -> str:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            answer = await file.call(lambda _: file.connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if answer != "ok":
                raise StorageError(f"{self.display} is damaged ({answer}): restore a copy")
            note = "INSERT OR REPLACE INTO donewhen_meta VALUES ('checked', datetime('now'))"
            await file.call(lambda _: None, statements=[Statement(note, [()])])
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
            stat = os.stat(self._path)
        except OSError as error:
            raise self._unusable(error) from error
        self._identity = stat.st_dev, stat.st_ino
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
        if self._cipher not in file.ready_for:
            if not await file.call(self._configure, always=True):
                await self._set_up(file)
            file.ready_for.add(self._cipher)
        return file

    async def _set_up(self, file: SqliteFile) -> None:
        lock = FileLock(self._locks, "\0set up")
        deadline = asyncio.get_running_loop().time() + self._patience
        while not self._take(lock):
            if asyncio.get_running_loop().time() > deadline:
                raise StorageError(f"{self.display} is locked: another process is setting it up")
            await asyncio.sleep(0.02)
        try:
            await finish(file.call(self._write_marks, always=True))
        finally:
            lock.release()

    def _configure(self, file: SqliteFile) -> bool:
        """Configure the connection; return whether the file is set up."""
        file.connection.execute("PRAGMA synchronous = FULL")
        if self._missing_marks(file) or _value(file.connection, "PRAGMA journal_mode") != "wal":
            return False
        file.saver.is_setup = file.store.is_setup = True
        return True

    def _write_marks(self, file: SqliteFile) -> None:
        connection = file.connection
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # first: it has an effect only before the first table
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")  # early: a process may be killed in between
        connection.execute("PRAGMA synchronous = NORMAL")  # the first commit of a run brings all of it to the disk
        try:
            file.saver.setup()
            file.store.setup()
            for statements in migration(_read_marks(connection, _tables(connection)), MIGRATIONS):
                for statement in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
                    connection.execute(statement)
            for statement in TABLE:
                connection.execute(statement)
            connection.execute("CREATE TABLE IF NOT EXISTS donewhen_meta (name TEXT PRIMARY KEY, value TEXT)")
            marks = self._missing_marks(file)
            for mark in marks.items():
                connection.execute("INSERT OR REPLACE INTO donewhen_meta VALUES (?, ?)", mark)
            if "version" in marks:
                connection.execute(f"PRAGMA user_version = {int(marks['version'])}")
        finally:
            file.roll_back()  # in an open transaction the next statement would fail, and hide the first error
            connection.execute("PRAGMA synchronous = FULL")

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


def _value(connection: sqlite3.Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return row[0]
