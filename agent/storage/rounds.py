"""A session's writes: which can wait for the next commit, and which rounds are deleted after their step."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple
from langgraph.constants import START
from langgraph.store.base import Op, PutOp

from donewhen.graph.clock import follow
from donewhen.graph.sync import finish
from donewhen.state.channels import REPLIES
from donewhen.state.private_langgraph import let_ids_follow

STEPS = ("plan:", "execute:")
"""The namespace prefixes of our subgraphs; each of their tasks has its own namespace."""
PURE = ("receive", "advance")
"""Nodes of the run that ask nobody."""
SOON = 0.05
"""The longest that a write waits, in seconds, because others read the thread."""
Write = TypeVar("Write")
Result = TypeVar("Result")


def follow_checkpoint(read: CheckpointTuple | None) -> CheckpointTuple | None:
    """Return a checkpoint that was read, after which everything has its place that is written from now on."""
    if read is not None:
        follow(let_ids_follow(read.checkpoint["id"]))
    return read


class Writes(Generic[Write]):
    """The writes of a session. One that can wait is held and becomes part of the next commit.

    `commit` makes writes lasting, all of them or none.
    """

    def __init__(self, commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        self._commit = commit
        self._held: list[Write] = []
        self._timer: asyncio.TimerHandle | None = None
        self._delayed: asyncio.Future[None] | None = None
        """The last delayed commit, in progress or done; the next one follows it."""
        self._in_progress: set[asyncio.Future[Any]] = set()

    async def write(self, writes: Sequence[Write], *, can_wait: bool = False) -> None:
        """Commit these writes after the held ones; or hold them, to be committed soon."""
        if can_wait:
            self._held += writes
            self._timer = self._timer or asyncio.get_running_loop().call_later(SOON, self._commit_delayed)
        else:
            await self.commit_with(lambda held: self._commit([*held, *writes]))

    async def commit_with(self, work: Callable[[list[Write]], Awaitable[Result]]) -> Result:
        """Pass the held writes to `work`, which commits them first; it ends even if the waiting task is cancelled.

        If it fails, they are held again and come before all later ones: nothing is stored without them.
        """
        return await asyncio.shield(self._begin(work))

    async def flush(self) -> None:
        """Commit what is held, at the end, and wait for all commits in progress."""
        await finish(asyncio.ensure_future(self._flush()))

    async def _flush(self) -> None:
        if self._in_progress:
            await asyncio.wait(self._in_progress)
        if self._held:
            await self.write(())

    def _commit_delayed(self) -> None:
        self._timer = None
        if self._held:
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
        held = [*self._held]
        self._held.clear()
        try:
            return await work(held)
        except BaseException:
            self._held[:0] = held
            raise


class Rounds:
    """Decides which writes of a run can wait for the next commit, and when the rounds of a step are deleted.

    A write can wait if it can be made again without calling a model or a tool: the input, the writes of nodes that ask
    no model, those of a round whose reply is in the store, the result of a subgraph (its own last checkpoint has it
    too), and a checkpoint, which LangGraph makes of the writes before it. The checkpoint of a round whose writes waited
    cannot wait: tools were called.

    The rounds of a planning or a step are deleted with the run's next checkpoint, which has their result.
    """

    def __init__(self) -> None:
        self._replied: set[str] = set()
        """Tasks whose reply is in the store."""
        self._deferred: set[str] = set()
        """Namespaces of rounds that wait for their checkpoint."""
        self._inside: dict[str, set[str]] = {}
        """This session's checkpoints of the run → namespaces of the plannings and steps that began there."""

    def note_checkpoint(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> tuple[bool, list[str]]:
        """Note a checkpoint; return whether it can wait, and the namespaces of rounds that are deleted with it."""
        place = config["configurable"]
        namespace, over = place.get("checkpoint_ns", ""), set[str]()
        if namespace.startswith(STEPS):
            self._inside.setdefault(metadata.get("parents", {}).get("", ""), set()).add(namespace)
        elif not namespace:
            over = self._inside.pop(str(place.get("checkpoint_id")), over)
            self._inside[checkpoint["id"]] = set()
        deferred = namespace in self._deferred
        self._deferred.discard(namespace)
        return not deferred and metadata.get("source") in ("input", "loop"), [*over]

    def can_writes_wait(self, config: RunnableConfig, task_id: str, task_path: str) -> bool:
        """Return whether the writes of a task can wait."""
        node, namespace = task_path.rpartition(", ")[2], config["configurable"].get("checkpoint_ns", "")
        if replied := task_id in self._replied:
            self._replied.discard(task_id)
            self._deferred.add(namespace)
        inside = {f"{step}{task_id}" for step in STEPS}
        return (
            replied
            or node == START
            or (node in PURE and not namespace)
            or any(inside & begun for begun in self._inside.values())
        )

    def is_new(self, config: RunnableConfig) -> bool:
        """Return whether a planning or step begins here, so that nothing of it is stored yet."""
        place = config["configurable"]
        namespace, at = place.get("checkpoint_ns", ""), (place.get("checkpoint_map") or {}).get("", "")
        return namespace.startswith(STEPS) and namespace not in self._inside.get(at, {namespace})

    def note_stored(self, ops: Iterable[Op]) -> None:
        """Note the replies among stored entries. Encrypted ones cannot be read."""
        replies = [op.value or {} for op in ops if isinstance(op, PutOp) and op.namespace[: len(REPLIES)] == REPLIES]
        self._replied.update(str(reply["round"]) for reply in replies if "round" in reply)
