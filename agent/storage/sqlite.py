"""Runs kept in one SQLite file, with a lock file per thread beside it. For POSIX systems."""

import asyncio
import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import aiosqlite
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.store.sqlite.aio import AsyncSqliteStore

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.file_lock import FileLock
from donewhen.agent.storage.marks import missing_marks
from donewhen.agent.storage.serde import StrictSerializer
from donewhen.agent.storage.storage import Opened
from donewhen.agent.storage.thread_store import stop_batching
from donewhen.agent.storage.words import sqlite_fault
from donewhen.state.errors import StorageError, ThreadBusy

APPLICATION_ID = 0x446E5768
"""`DnWh`: marks the file as ours, for us and for the `file` command."""

_OWN_FOLDERS = ("donewhen", ".donewhen")


class SqliteDatabase:
    """Checkpoints and store in one file: WAL, every commit on disk.

    `patience` is how many seconds to wait while another process writes. A folder named `donewhen` or
    `.donewhen` is created when it is missing, any other has to exist.
    """

    def __init__(self, path: Path, cipher: Cipher | None = None, *, patience: float = 5.0) -> None:
        self.display = f"sqlite:///{path}"
        self._path = path
        self._cipher = cipher
        self._patience = patience
        self._locks = path.with_name(path.name + ".locks")

    @asynccontextmanager
    async def open(self, thread_id: str | None, *, writes: bool) -> AsyncIterator[Opened]:
        async with AsyncExitStack() as stack:
            self._prepare_place()
            if thread_id is not None:
                lock = FileLock(self._locks, thread_id)
                if not self._take(lock):
                    raise ThreadBusy(f"thread {thread_id!r} is being worked on by another worker")
                stack.callback(lock.release)
            saver, store = await self._connect(stack)
            if not writes:
                for connection in (saver.conn, store.conn):
                    await connection.execute("PRAGMA query_only = ON")
            yield saver, store

    async def thread_ids(self, limit: int) -> list[str]:
        query = (
            "SELECT thread_id FROM checkpoints WHERE checkpoint_ns = ''"
            " GROUP BY thread_id ORDER BY max(checkpoint_id) DESC LIMIT ?"
        )
        async with AsyncExitStack() as stack:
            self._prepare_place()
            saver, _ = await self._connect(stack)
            return [row[0] for row in await saver.conn.execute_fetchall(query, (limit,))]

    async def check(self) -> None:
        async with AsyncExitStack() as stack:
            self._prepare_place()
            saver, _ = await self._connect(stack)
            answer = await saver.conn.execute_fetchall("PRAGMA quick_check(1)")
            if [tuple(row) for row in answer] != [("ok",)]:
                raise StorageError(f"{self.display} is damaged ({next(iter(answer))[0]}): restore a copy")
            await saver.conn.execute("INSERT OR REPLACE INTO donewhen_meta VALUES ('checked', datetime('now'))")
            await saver.conn.commit()

    def fault(self, error: BaseException) -> StorageError | None:
        return sqlite_fault(error, self.display)

    def _prepare_place(self) -> None:
        folder = self._path.parent
        try:
            if folder.name in _OWN_FOLDERS:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not folder.is_dir():
                raise StorageError(f"{self.display}: the folder {folder} does not exist")
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

    async def _connect(self, stack: AsyncExitStack) -> tuple[AsyncSqliteSaver, AsyncSqliteStore]:
        # Two connections: each library runs transactions of its own, which do not nest.
        connections = [
            await stack.enter_async_context(
                aiosqlite.connect(self._path, timeout=self._patience, isolation_level=level)
            )
            for level in ("DEFERRED", None)
        ]
        for connection in connections:
            await connection.execute("PRAGMA synchronous = FULL")
        saver = AsyncSqliteSaver(connections[0], serde=StrictSerializer())
        store = AsyncSqliteStore(connections[1])
        await stop_batching(store)
        for each in (saver, store):
            stack.push_async_callback(_end, each)
        if await self._missing_marks(connections[0]):
            await self._set_up(saver, store)
        await saver.setup()
        await store.setup()
        return saver, store

    async def _set_up(self, saver: AsyncSqliteSaver, store: AsyncSqliteStore) -> None:
        lock = FileLock(self._locks, "\0set up")
        deadline = asyncio.get_running_loop().time() + self._patience
        while not self._take(lock):
            if asyncio.get_running_loop().time() > deadline:
                raise StorageError(f"{self.display} is locked: another process is setting it up")
            await asyncio.sleep(0.02)
        try:
            await saver.setup()
            await store.setup()
            connection = saver.conn
            await connection.execute("CREATE TABLE IF NOT EXISTS donewhen_meta (name TEXT PRIMARY KEY, value TEXT)")
            marks = await self._missing_marks(connection)
            await connection.executemany("INSERT OR REPLACE INTO donewhen_meta VALUES (?, ?)", marks.items())
            await connection.commit()
            if "version" in marks:
                await connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                await connection.execute(f"PRAGMA user_version = {int(marks['version'])}")
        finally:
            lock.release()

    async def _missing_marks(self, connection: aiosqlite.Connection) -> dict[str, str]:
        owner = await _number(connection, "PRAGMA application_id")
        if owner not in (0, APPLICATION_ID):
            raise StorageError(f"{self.display} is the database of another application")
        tables = {row[0] for row in await connection.execute_fetchall("SELECT name FROM sqlite_master")}
        found = {"version": str(await _number(connection, "PRAGMA user_version"))}
        if "donewhen_meta" in tables:
            rows = await connection.execute_fetchall("SELECT name, value FROM donewhen_meta")
            found = dict(map(tuple, rows)) | found
        used = "checkpoints" in tables and bool(await _number(connection, "SELECT EXISTS (SELECT 1 FROM checkpoints)"))
        return missing_marks(
            found,
            library=version("langgraph-checkpoint-sqlite"),
            cipher=self._cipher,
            used=used,
            name=self.display,
        )


async def _end(user: AsyncSqliteSaver | AsyncSqliteStore) -> None:
    """Close a connection after what is under way on it, and with nothing left open by what was cancelled.

    A connection that is merely closed goes on holding its locks for as long as somebody holds a cursor.
    """
    async with user.lock:
        with suppress(sqlite3.Error, ValueError):
            await user.conn.rollback()
        await user.conn.close()


async def _number(connection: aiosqlite.Connection, query: str) -> int:
    async with connection.execute(query) as cursor:
        row = await cursor.fetchone()
    if row is None:
        raise sqlite3.DatabaseError(f"no answer to {query}")
    return int(row[0])
