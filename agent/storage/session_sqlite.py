"""Sessions on a SQLite file: one connection in one thread, shared by the savers and stores of all runs.

Waiting calls are committed together, so many concurrent runs need fewer commits. A queued write is made even if its
waiting task is cancelled.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

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

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.rounds import Rounds, finish
from donewhen.agent.storage.store import RowStore

MOST_FREE = 0.25
"""The largest share of free pages that is kept when the last user closes the file."""
TOGETHER = 64
"""The most calls per commit."""
_SERDE = StrictSerializer()
Returned = TypeVar("Returned")
Statement = tuple[str, Sequence[Sequence[Any]]]
"""A writing SQL statement, with the rows of values to execute it with."""


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


class SqliteFile:
    """The connection, its thread, and LangGraph's saver and store on it.

    The first user opens it, the last one closes it. `patience`: seconds to wait while another process writes.
    """

    def __init__(self, path: Path, patience: float) -> None:
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
        threading.Thread(target=self._live, name=f"donewhen {path.name}", daemon=True).start()

    def call(
        self, work: Callable[["SqliteFile"], Returned], *, writes: bool = True, alone: bool = False
    ) -> asyncio.Future[Returned]:
        """Queue a call and wait for its result."""
        loop = asyncio.get_running_loop()
        call = _Call(work, writes, alone, loop, loop.create_future())
        self._calls.put(call)
        return call.future

    def execute_all(self, statements: Iterable[Statement]) -> None:
        """Execute statements, in a call."""
        for sql, rows in statements:
            self.connection.executemany(sql, rows)

    async def flush(self) -> None:
        """Wait until all queued calls are done."""
        await finish(self.call(lambda _: None, alone=True))

    async def close(self) -> None:
        """Close the connection after all queued calls, and wait for that."""
        await finish(self.call(SqliteFile._close, alone=True))

    def _live(self) -> None:
        while not self._closed:
            together, following = self._in_line()
            if together:
                self._commit(together)
            if following:
                following.do(self)
                _answer([following])

    def _in_line(self) -> tuple[list[_Call], _Call | None]:
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
            _answer(calls)

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


def _answer(calls: list[_Call]) -> None:
    """Pass results to their callers, whose loops may be closed by now."""
    for loop in {call.loop for call in calls}:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_tell, [call for call in calls if call.loop is loop])


def _tell(calls: list[_Call]) -> None:
    """Pass results to those callers that still wait."""
    for call in calls:
        if call.future.done():
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.answer)


_files: dict[tuple[int, Path, int], SqliteFile] = {}
"""By process (a child must not use or close its parent's connection), path, and the current file."""
_lock = threading.Lock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@asynccontextmanager
async def open_shared(path: Path, patience: float) -> AsyncIterator[SqliteFile]:
    """Share the file's connection in this process. At the end, all queued calls are done."""
    key = (os.getpid(), path, os.stat(path).st_ino)
    with _lock:
        file = _files.get(key) or _files.setdefault(key, SqliteFile(path, patience))
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


class FileSession:
    """The state shared by a session's saver and store. With `reads`, writes are refused."""

    def __init__(self, file: SqliteFile, reads: bool) -> None:
        self.file = file
        self._reads = reads
        self.rounds: Rounds[Statement] = Rounds()
        self.recorder = _Recorder()
        """LangGraph's saver and store write here, where values are converted to bytes at once."""
        connection: Any = self.recorder
        self.saver: SqliteSaver = SqliteSaver(connection, serde=_SERDE)
        self.store: SqliteStore = SqliteStore(connection)
        self.saver.is_setup = self.store.is_setup = True

    async def read(self, work: Callable[[SqliteFile], Returned]) -> Returned:
        """Read in the file's thread, including what is held."""

        def done(file: SqliteFile, held: list[Statement]) -> Returned:
            file.execute_all(held)
            return work(file)

        return await self.rounds.commit(lambda held: self.file.call(lambda file: done(file, held), writes=bool(held)))

    async def commit(self, *, waits: bool = False) -> None:
        """Commit the recorded statements with what is held; or hold them too."""
        said = self.recorder.pop_all()
        if self._reads:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        if waits:
            self.rounds.hold(said, self._commit)
        else:
            await self.rounds.commit(lambda held: self._commit([*held, *said]))

    async def flush(self) -> None:
        """Commit what is held."""
        await self.rounds.flush(self._commit)

    async def _commit(self, statements: list[Statement]) -> None:
        await self.file.call(lambda file: file.execute_all(statements))


class _Recorder(list[Statement]):
    """Replaces a connection, and records the statements."""

    def cursor(self) -> "_Recorder":
        return self

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        if sql not in ("BEGIN", "COMMIT"):
            self.append((sql, [values]))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.append((sql, rows))

    def pop_all(self) -> list[Statement]:
        """Return and forget the recorded statements."""
        taken = [*self]
        self.clear()
        return taken

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing, because transactions and functions belong to the file."""

    commit = close = create_function = _ignore


class FileSaver(BaseCheckpointSaver[Any]):
    """The checkpointer."""

    def __init__(self, session: FileSession, next_version: Callable[[Any], Any]) -> None:
        super().__init__(serde=_SERDE)
        self.session = session
        self._next_version = next_version

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.session.rounds.is_new(config):
            return None
        return await self.session.read(lambda file: file.saver.get_tuple(config))

    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self.session.read(lambda file: list(file.saver.list(config, **options))):
            yield found

    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        session, place = self.session, config["configurable"]
        waits, over = session.rounds.put(config, checkpoint, metadata)
        put = session.saver.put(config, checkpoint, metadata, versions)  # first: it may refuse its values
        gone = [(str(place["thread_id"]), namespace) for namespace in over]
        for table in ("checkpoints", "writes") if gone else ():
            session.recorder.executemany(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?", gone)
        await session.commit(waits=waits)
        return put

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.session.saver.put_writes(config, writes, task_id, task_path)
        await self.session.commit(waits=self.session.rounds.can_wait(config, task_id, task_path))

    async def aget_delta_channel_history(self, *given: Any, **options: Any) -> Any:
        return await self.session.read(lambda file: file.saver.get_delta_channel_history(*given, **options))

    async def adelete_thread(self, thread_id: str) -> None:
        self.session.saver.delete_thread(thread_id)
        await self.session.commit()

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)


class FileStore(RowStore):
    """The store beside it."""

    def __init__(self, session: FileSession) -> None:
        self.session = session
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.supports_ttl, self.ttl_config = session.store.supports_ttl, session.store.ttl_config

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked, session = list(ops), self.session
        puts = [op for op in asked if isinstance(op, PutOp)]
        gets = [op for op in asked if not isinstance(op, PutOp)]
        found = iter(await session.file.call(lambda file: file.store.batch(gets), writes=False) if gets else ())
        if puts:
            session.store.batch(puts)
            await session.commit()
            session.rounds.note_stored(puts)
        return [None if isinstance(op, PutOp) else next(found) for op in asked]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Serve sync tools, which run in threads. Raises RuntimeError in the session's own thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("in async code, use the store's async methods: aget, aput, …")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if sql.startswith("INSERT"):
            self.session.recorder.execute(sql, values)
            await self.session.commit()
            return []
        return await self.session.file.call(lambda file: file.connection.execute(sql, values).fetchall(), writes=False)
