"""A session on LangGraph's own saver and store: what they write is recorded, and committed together."""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.store.base import BaseStore, Op, PutOp, Result, TTLConfig
from typing_extensions import override

from donewhen.agent.storage.rounds import Rounds, Writes, follow_checkpoint
from donewhen.agent.storage.table import RowStore
from donewhen.graph.binding import TaskSaver


class Statement(NamedTuple):
    """A writing SQL statement, with the rows of values to execute it with."""

    sql: str
    rows: Sequence[Sequence[Any]]


class StatementRecorder:
    """A connection that executes nothing: it records what LangGraph's saver and store execute on its cursors.

    They convert values to bytes at once, so a value that is changed later is stored as it was. Transactions belong to
    the session, so those of the connection itself are ignored.
    """

    def __init__(self) -> None:
        self.recorded: list[Statement] = []

    def record(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Record a statement with rows of values."""
        self.recorded.append(Statement(sql, [*rows]))

    def cursor(self, **_: Any) -> "_RecordingCursor":
        return _RecordingCursor(self)

    def pipeline(self) -> AbstractContextManager[None]:
        return nullcontext()

    transaction = pipeline

    def _ignore(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    execute = _ignore
    commit = _ignore
    create_function = _ignore


class _RecordingCursor(nullcontext["_RecordingCursor"]):
    def __init__(self, recorder: StatementRecorder) -> None:
        super().__init__(self)
        self._recorder = recorder

    def execute(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._recorder.record(sql, [values])

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._recorder.record(sql, rows)

    def close(self) -> None:
        return


class Session:
    """What the saver and the store of a session share."""

    def __init__(
        self, commit: Callable[[list[Statement]], Awaitable[None]], recorder: StatementRecorder | None = None
    ) -> None:
        self.recorder: StatementRecorder = recorder or StatementRecorder()
        self.writes: Writes[Statement] = Writes(commit)
        self.rounds: Rounds = Rounds()

    async def write_recorded(self, *, can_wait: bool = False) -> None:
        """Write the recorded statements, and forget them."""
        statements = [*self.recorder.recorded]
        self.recorder.recorded.clear()
        await self.writes.write(statements, can_wait=can_wait)


class SessionSaver(TaskSaver):
    """The checkpointer of a session. `recording` is LangGraph's, on the session's recorder.

    `forgets`: the statements that delete the checkpoints of a thread's namespace.
    """

    def __init__(self, session: Session, recording: BaseCheckpointSaver[Any], forgets: Sequence[str]) -> None:
        super().__init__(serde=recording.serde)
        self.session = session
        self._recording = recording
        self._forgets = forgets

    @override
    def let_wait(self, task_id: str, *, checkpoint: bool) -> None:
        self.session.rounds.let_wait(task_id, checkpoint=checkpoint)

    @override
    def let_go(self, namespace: str) -> None:
        self.session.rounds.let_go(namespace)

    @override
    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        if self.session.rounds.is_new(config):
            return None
        return follow_checkpoint(await self.read_tuple(config))

    @override
    async def alist(self, config: RunnableConfig | None, **options: Any) -> AsyncIterator[CheckpointTuple]:
        for checkpoint in await self.read_list(config, **options):
            yield checkpoint

    @abstractmethod
    async def read_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return what LangGraph's saver reads, including pending writes."""

    @abstractmethod
    async def read_list(self, config: RunnableConfig | None, **options: Any) -> Sequence[CheckpointTuple]:
        """Return what LangGraph's saver lists, including pending writes."""

    @override
    async def aput(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata, versions: ChannelVersions
    ) -> RunnableConfig:
        can_wait, over = self.session.rounds.note_checkpoint(config, checkpoint, metadata)
        put = self._recording.put(config, checkpoint, metadata, versions)  # first: it may refuse its values
        gone = [(str(config["configurable"]["thread_id"]), namespace) for namespace in over]
        self.session.recorder.recorded += [Statement(sql, gone) for sql in self._forgets if gone]
        await self.session.write_recorded(can_wait=can_wait)
        return put

    @override
    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._recording.put_writes(config, writes, task_id, task_path)
        special = all(channel in WRITES_IDX_MAP for channel, _ in writes)  # answers of a person, errors and questions
        can_wait = not special and self.session.rounds.can_writes_wait(config, task_id, task_path)
        await self.session.write_recorded(can_wait=can_wait)

    @override
    async def adelete_thread(self, thread_id: str) -> None:
        self._recording.delete_thread(thread_id)
        await self.session.write_recorded()


class SessionStore(RowStore):
    """The store of a session. `recording` is LangGraph's, on the session's recorder."""

    def __init__(self, session: Session, recording: BaseStore) -> None:
        self.session = session
        self._recording = recording
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.supports_ttl: bool = recording.supports_ttl
        self.ttl_config: TTLConfig | None = recording.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Serve sync tools, which run in threads. Raises RuntimeError in the session's own thread."""
        if threading.get_ident() == self._thread:
            raise RuntimeError("in async code, use the store's async methods: aget, aput, …")
        return asyncio.run_coroutine_threadsafe(self.abatch(ops), self._loop).result()

    @override
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        asked = list(ops)
        puts = [op for op in asked if isinstance(op, PutOp)]
        others = [op for op in asked if not isinstance(op, PutOp)]
        results: Iterator[Result] = iter(await self.find(others) if others else ())
        if puts:
            self._recording.batch(puts)
            await self.session.write_recorded()
        return [None if isinstance(op, PutOp) else next(results) for op in asked]

    @abstractmethod
    async def find(self, ops: Sequence[Op]) -> list[Result]:
        """Return the results of operations that read."""

    @override
    async def put_row(
        self, sql: str, values: Sequence[Any], *, queued: bool = False, claims: bool | None = None
    ) -> None:
        await self.session.writes.write([Statement(sql, [values])])

    @override
    def put_with_next(self, sql: str, values: Sequence[Any]) -> None:
        self.session.writes.write_with_next(Statement(sql, [values]))
