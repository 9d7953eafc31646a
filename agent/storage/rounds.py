"""A session's writes: which can wait for the next commit, and which rounds are deleted after their step."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.constants import START

from donewhen.graph.clock import follow
from donewhen.graph.sync import finish
from donewhen.state.private_langgraph import let_ids_follow

SOON = 0.05
"""The longest that a write waits, in seconds, because others read the thread."""
Write = TypeVar("Write")
Result = TypeVar("Result")


def follow_checkpoint(read: CheckpointTuple | None) -> CheckpointTuple | None:
    """Return a checkpoint that was read; ids and times that are made from now on sort after it."""
    if read is not None:
        follow(let_ids_follow(read.checkpoint["id"]))
    return read


class Writes(Generic[Write]):
    """The writes of a session. One that can wait stays pending and becomes part of the next commit.

    `commit` stores all of the writes that it gets, or none.
    """

    def __init__(self, commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        self._commit = commit
        self._pending: list[Write] = []
        self._with_next: list[Write] = []
        """Writes that come before the next one."""
        self._timer: asyncio.TimerHandle | None = None
        self._delayed: asyncio.Future[None] | None = None
        """The last delayed commit, in progress or done; the next one follows it."""
        self._in_progress: set[asyncio.Future[Any]] = set()

    async def write(self, writes: Sequence[Write], *, can_wait: bool = False) -> None:
        """Commit these writes after the pending ones; if they can wait, make them pending, to be committed soon."""
        if writes:
            self._pending += self._with_next
            self._with_next.clear()
        if can_wait:
            self._pending += writes
            self._timer = self._timer or asyncio.get_running_loop().call_later(SOON, self._commit_delayed)
        else:
            await self.commit_with(lambda pending: self._commit([*pending, *writes]))

    def write_with_next(self, write: Write) -> None:
        """Keep a write until the next one, with which it is committed. If nothing else is written, it never is."""
        self._with_next.append(write)

    async def commit_with(self, work: Callable[[list[Write]], Awaitable[Result]]) -> Result:
        """Pass the pending writes to `work`, which commits them first; it ends even if the waiting task is cancelled.

        If it fails, they are pending again, before all later ones: nothing is stored without them.
        """
        return await asyncio.shield(self._begin(work))

    async def flush(self) -> None:
        """Commit the pending writes at the end of the session, and wait for all commits in progress."""
        await finish(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        if self._in_progress:
            await asyncio.wait(self._in_progress)
        if self._pending:
            await self.write(())

    def _commit_delayed(self) -> None:
        self._timer = None
        if self._pending:
            self._delayed = self._begin(self._commit)

    def _begin(self, work: Callable[[list[Write]], Awaitable[Result]]) -> asyncio.Future[Result]:
        begun = asyncio.ensure_future(self._pass_held(self._delayed, work))
        self._in_progress.add(begun)
        begun.add_done_callback(self._end)
        return begun

    def _end(self, commit: asyncio.Future[Any]) -> None:
        self._in_progress.discard(commit)
        if not commit.cancelled():
            commit.exception()  # nobody else asks a delayed one for it

    async def _pass_held(
        self, before: asyncio.Future[Any] | None, work: Callable[[list[Write]], Awaitable[Result]]
    ) -> Result:
        if before and not before.done():
            await asyncio.wait({before})
        pending = [*self._pending]
        self._pending.clear()
        try:
            return await work(pending)
        except BaseException:
            self._pending[:0] = pending
            raise


class Rounds:
    """Decides which writes of a run wait for the next commit, and when the rounds of a subgraph are deleted.

    Writes wait if the graph says so (`TaskSaver`), or if LangGraph can make them again: the input, the result of a
    subgraph (its own last checkpoint has it too), and a checkpoint, which is made of the writes before it. If a task
    let its writes wait, but not its checkpoint, tools were called, and the checkpoint is committed at once.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, bool] = {}
        """Tasks whose writes may wait → whether their checkpoint may, too."""
        self._deferred: set[str] = set()
        """Namespaces whose next checkpoint cannot wait."""
        self._passing: set[str] = set()
        """Namespaces of subgraphs whose checkpoints are deleted when the run has their result."""
        self._results: set[str] = set()
        """Tasks whose writes are the result of such a subgraph."""
        self._inside: dict[str, set[str]] = {}
        """Checkpoints of the run → passing namespaces whose checkpoints this session put there."""
        self._own: str | None = None
        """The last checkpoint of the run that this session put: no other session wrote what begins there."""

    def let_wait(self, task_id: str, *, checkpoint: bool) -> None:
        """Let the writes of a task wait, as `TaskSaver` says."""
        self._waiting[task_id] = checkpoint

    def let_go(self, namespace: str) -> None:
        """Delete the rounds of a subgraph with the next checkpoint of the run."""
        self._passing.add(namespace)
        self._results.add(namespace.rpartition(":")[2])

    def note_checkpoint(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> tuple[bool, list[str]]:
        """Note a checkpoint; return whether it can wait, and the namespaces that are deleted with it."""
        place = config["configurable"]
        namespace, over = place.get("checkpoint_ns", ""), set[str]()
        if self._passes(namespace):
            self._inside.setdefault(metadata.get("parents", {}).get("", ""), set()).add(namespace)
        elif not namespace:
            over = self._inside.pop(str(place.get("checkpoint_id")), over)
            self._own = checkpoint["id"]
        deferred = namespace in self._deferred
        self._deferred.discard(namespace)
        return not deferred and metadata.get("source") in ("input", "loop"), [*over]

    def can_writes_wait(self, config: RunnableConfig, task_id: str, task_path: str) -> bool:
        """Return whether the writes of a task can wait."""
        if (checkpoint_too := self._waiting.pop(task_id, None)) is not None:
            if not checkpoint_too:
                self._deferred.add(config["configurable"].get("checkpoint_ns", ""))
            return True
        return task_path.rpartition(", ")[2] == START or task_id in self._results

    def is_new(self, config: RunnableConfig) -> bool:
        """Return whether a subgraph begins here, so that nothing of it is stored yet."""
        place = config["configurable"]
        namespace, at = place.get("checkpoint_ns", ""), (place.get("checkpoint_map") or {}).get("", "")
        return self._passes(namespace) and at == self._own and namespace not in self._inside.get(at, ())

    def _passes(self, namespace: str) -> bool:
        return namespace.partition("|")[0] in self._passing
