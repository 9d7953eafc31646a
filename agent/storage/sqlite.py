"""Storage in one SQLite file, with a lock file per thread beside it. For POSIX systems."""

import asyncio
import errno
import fcntl
import hashlib
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.rounds import finish
from donewhen.agent.storage.session_sqlite import FileSaver, FileSession, FileStore, SqliteFile, open_shared
from donewhen.agent.storage.storage import Hear, Opened, causes, counted_version, locks, unique_version, wait_unnotified
from donewhen.agent.storage.store import SQLITE_KINDS, deletion_statements
from donewhen.agent.storage.table import MIGRATIONS, TABLE, migration, missing_marks, version_of
from donewhen.state.errors import StorageError, ThreadBusy

APPLICATION_ID = 0x446E5768
"""`DnWh`: identifies the file as ours, also for the `file` command."""

_SQLITE = {
    "file is not a database": "is not a SQLite database (or it is encrypted by something else)",
    "malformed": "is damaged: restore a copy, or name another file",
    "unable to open database file": "cannot be opened: is its folder there, and may you write to it?",
    "readonly database": "cannot be written: no permission, or opened for reading only",
    "is locked": "is locked by another process",
    "disk is full": "cannot be written: the disk is full",
    "disk i/o error": "cannot be read or written: the disk is full or failing",
}
_OWN_FOLDERS = ("donewhen", ".donewhen")


class FileLock:
    """An exclusive lock, held from `take` until `release`; excludes other holders in this process too."""

    def __init__(self, folder: Path, name: str) -> None:
        # A hash: a name may be any text, a path may not.
        self._path = folder / hashlib.sha256(name.encode()).hexdigest()[:32]
        self._fd = -1
        locks.add(self)

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
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                if isinstance(error, BlockingIOError):
                    return False
                raise
            if self._is_at_its_path(fd):
                self._fd = fd
                return True
            os.close(fd)  # the holder before us removed the file between our open and our lock

    def is_held(self) -> bool:
        """Return whether anybody holds the lock."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def release(self) -> None:
        """Free the lock and remove its file."""
        if self._fd >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1

    def _is_at_its_path(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False


class SqliteDatabase:
    """Checkpoints and store in one file: WAL, every commit on disk.

    `patience` is how many seconds to wait while another process writes. A missing folder is created if its name is
    `donewhen` or `.donewhen`.
    """

    at_once: int = sys.maxsize

    def __init__(self, path: Path, cipher: Cipher | None = None, *, patience: float = 30.0) -> None:
        self.display: str = f"sqlite:///{path}"
        self._path = path
        self._cipher = cipher
        self._patience = patience
        self._locks = path.with_name(path.name + ".locks")

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            if thread_id is not None:
                lock = FileLock(self._locks, thread_id)
                if not self._take(lock):
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker")
                stack.callback(lock.release)
            session = FileSession(file, not writes)
            stack.push_async_callback(session.flush)
            yield FileSaver(session, self.next_version), FileStore(session)

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[tuple[Opened, Hear]]:
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
            await file.call(lambda file: _delete(file.connection, free))
            return [thread_id for thread_id in thread_ids if thread_id not in free]

    async def aclose(self) -> None:
        return

    async def check(self) -> str:
        async with AsyncExitStack() as stack:
            file = await self._prepare(stack)
            answer = await file.call(
                lambda file: file.connection.execute("PRAGMA quick_check(1)").fetchone()[0], alone=True
            )
            if answer != "ok":
                raise StorageError(f"{self.display} is damaged ({answer}): restore a copy")
            note = "INSERT OR REPLACE INTO donewhen_meta VALUES ('checked', datetime('now'))"
            await file.call(lambda file: file.connection.execute(note))
            return ""

    def fault(self, error: BaseException) -> StorageError | None:
        return sqlite_fault(error, self.display)

    def next_version(self, current: Any) -> Any:
        # A seal names its value's version: with a key, no other value may have the same.
        return unique_version(current) if self._cipher else counted_version(current)

    def _prepare_place(self) -> None:
        folder = self._path.parent
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
        except OSError as error:
            raise self._unusable(error) from error

    def _take(self, lock: FileLock) -> bool:
        try:
            return lock.take()
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> StorageError:
        return StorageError(f"{self.display} cannot be used: {error.strerror or error}")

    async def _prepare(self, stack: AsyncExitStack) -> SqliteFile:
        """Open the file, and set it up if necessary."""
        self._prepare_place()
        file = await stack.enter_async_context(open_shared(self._path, self._patience))
        if self._cipher not in file.fit:
            if not await file.call(self._is_set_up, alone=True):
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

    def _is_set_up(self, file: SqliteFile) -> bool:
        """Configure the connection, and return whether the file is set up."""
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
            for statements in migration(_read_marks(connection), MIGRATIONS):
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
        owner = _value(connection, "PRAGMA application_id")
        tables = _tables(connection)
        if owner != APPLICATION_ID and (owner or tables):
            holds = f", with tables such as {', '.join(map(repr, tables[:3]))}" if tables else ""
            raise StorageError(f"{self.display} is the database of another application{holds}: name another file")
        used = "checkpoints" in tables and bool(_value(connection, "SELECT EXISTS (SELECT 1 FROM checkpoints)"))
        return missing_marks(
            _read_marks(connection),
            library=version_of("langgraph-checkpoint-sqlite"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _read_marks(connection: sqlite3.Connection) -> dict[str, str]:
    found = dict[str, str]()
    if "donewhen_meta" in _tables(connection):
        found = dict(connection.execute("SELECT name, value FROM donewhen_meta").fetchall())
    return found | {"version": str(_value(connection, "PRAGMA user_version"))}


def _delete(connection: sqlite3.Connection, thread_ids: Sequence[str]) -> None:
    kinds = connection.execute(SQLITE_KINDS).fetchall()
    for statement, values in deletion_statements(thread_ids, ("checkpoints", "writes"), kinds):
        connection.execute(statement, values)


def _value(connection: sqlite3.Connection, query: str) -> Any:
    row = connection.execute(query).fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return row[0]


def sqlite_fault(error: BaseException, display: str) -> StorageError | None:
    """Return a StorageError if SQLite caused `error`, else None."""
    for cause in causes(error):
        if isinstance(cause, sqlite3.Error):
            text = str(cause)
            words = next((words for part, words in _SQLITE.items() if part in text.lower()), "failed")
            return StorageError(f"{display} {words} ({text})")
    return None
