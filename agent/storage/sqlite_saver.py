"""LangGraph's saver and store on the one connection of a SQLite file."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
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
from langgraph.store.base import BaseStore, Op, PutOp, Result
from langgraph.store.sqlite import SqliteStore

from donewhen.agent.storage.cipher import StrictSerializer
from donewhen.agent.storage.rounds import Rounds
from donewhen.agent.storage.sqlite_file import SqliteFile, Statement

Returned = TypeVar("Returned")


class FileSession:
    """What saver and store of one opening share. With `reads` it is a reader's, whose writes are refused."""

    def __init__(self, file: SqliteFile, reads: bool) -> None:
        self.file = file
        self._reads = reads
        self.rounds = Rounds[Statement]()
        self.taken = _Taken()
        """Where LangGraph's saver and store are told to write: values become bytes here, where they are at hand."""
        connection: Any = self.taken
        self.saver, self.store = SqliteSaver(connection, serde=StrictSerializer()), SqliteStore(connection)
        self.saver.is_setup = self.store.is_setup = True

    async def read(self, work: Callable[[SqliteFile], Returned]) -> Returned:
        """Read in the file's thread, what is held too."""

        def done(file: SqliteFile, held: list[Statement]) -> Returned:
            file.say(held)
            return work(file)

        return await self.rounds.commit(lambda held: self.file.call(lambda file: done(file, held), writes=bool(held)))

    async def say(self, *, waits: bool = False) -> None:
        """Commit what was taken down, with what is held; or hold it too."""
        said = self.taken.out()
        if self._reads:
            raise sqlite3.OperationalError("attempt to write a readonly database")
        if waits:
            self.rounds.hold(said, self._commit)
        else:
            await self.rounds.commit(lambda held: self._commit([*held, *said]))

    async def settled(self) -> None:
        """Commit what is held."""
        await self.rounds.settled(self._commit)

    async def _commit(self, statements: list[Statement]) -> None:
        await self.file.call(lambda file: file.say(statements))


class _Taken(list[Statement]):
    """Stands for a connection: takes down what is to be said."""

    def cursor(self) -> "_Taken":
        return self

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        if sql not in ("BEGIN", "COMMIT"):
            self.append((sql, [values]))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        self.append((sql, rows))

    def out(self) -> list[Statement]:
        """All that was taken down."""
        taken = [*self]
        self.clear()
        return taken

    def _ignored(self, *_: Any, **__: Any) -> None:
        """Transactions and functions are the file's own business."""

    commit = close = create_function = _ignored


class FileSaver(BaseCheckpointSaver[Any]):
    """The checkpointer."""

    def __init__(self, session: FileSession, next_version: Callable[[Any], Any]) -> None:
        super().__init__(serde=StrictSerializer())
        self.session = session
        self._next_version = next_version

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.session.rounds.begins(config):
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
            session.taken.executemany(f"DELETE FROM {table} WHERE thread_id = ? AND checkpoint_ns = ?", gone)
        await session.say(waits=waits)
        return put

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.session.saver.put_writes(config, writes, task_id, task_path)
        await self.session.say(waits=self.session.rounds.can_wait(config, task_id, task_path))

    async def aget_delta_channel_history(self, *given: Any, **options: Any) -> Any:
        return await self.session.read(lambda file: file.saver.get_delta_channel_history(*given, **options))

    async def adelete_thread(self, thread_id: str) -> None:
        self.session.saver.delete_thread(thread_id)
        await self.session.say()

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._next_version(current)


class FileStore(BaseStore):
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
            await session.say()
            session.rounds.stored(puts)
        return [None if isinstance(op, PutOp) else next(found) for op in asked]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """For synchronous tools, which run in threads. Raises RuntimeError in the thread that it would wait for."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("in async code, use the store's async methods: aget, aput, …")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    async def rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """One statement on the table of threads."""
        if sql.startswith("INSERT"):
            self.session.taken.execute(sql, values)
            await self.session.say()
            return []
        return await self.session.file.call(lambda file: file.connection.execute(sql, values).fetchall(), writes=False)
