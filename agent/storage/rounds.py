"""The rounds of working steps: which writes can wait for the next commit, and which are dropped after the step."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.constants import START
from langgraph.store.base import Op, PutOp

from donewhen.state.run import REPLIES

STEPS = ("plan:", "execute:")
"""The namespace prefixes of our subgraphs; each of their tasks has its own namespace."""
PURE = ("receive", "advance")
"""Nodes of the run that ask nobody."""
SOON = 0.05
"""The longest that a write waits, in seconds, because others read the thread."""
Write = TypeVar("Write")
Came = TypeVar("Came")


class Rounds(Generic[Write]):
    """The rounds that a session writes, and which writes can wait.

    What can be had again without asking anybody is committed with what comes next: an input, what nodes wrote that ask
    no model, a round whose reply is in the store, what a subgraph came to, which stands in its own last checkpoint, and
    a checkpoint, which LangGraph makes again of what the nodes before it wrote. But not the checkpoint of a round that
    waited for it: tools were asked. With the run's checkpoint after a planning or a step go its rounds: all that it
    came to is in the run.
    """

    def __init__(self) -> None:
        self.held: list[Write] = []
        """Writes waiting for the next commit."""
        self._soon: asyncio.TimerHandle | None = None
        self._late: asyncio.Future[None] | None = None
        """The last delayed commit, in progress or done; the next one follows it."""
        self._going: set[asyncio.Future[Any]] = set()
        """All commits in progress."""
        self._replied: set[str] = set()
        """Tasks whose reply is in the store."""
        self._made: set[str] = set()
        """Namespaces of rounds that wait for their checkpoint."""
        self._inside: dict[str, set[str]] = {}
        """This session's checkpoints of the run → namespaces of the plannings and steps that began there."""

    def hold(self, writes: Iterable[Write], commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        """Keep writes for the next commit; without one, they are committed soon."""
        self.held += writes
        self._soon = self._soon or asyncio.get_running_loop().call_later(SOON, self._now, commit)

    def _now(self, commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        self._soon = None
        if self.held:
            self._late = self._begin(commit)

    async def commit(self, commit: Callable[[list[Write]], Awaitable[Came]]) -> Came:
        """Commit what is held and what `commit` writes, even if the waiting task is cancelled.

        If that fails, the writes are held again and come before all later ones: nothing is stored without them.
        """
        return await asyncio.shield(self._begin(commit))

    async def flush(self, commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        """Commit what is held, at the end, and wait for all commits in progress."""
        await finish(asyncio.ensure_future(self._flush(commit)))

    async def _flush(self, commit: Callable[[list[Write]], Awaitable[None]]) -> None:
        if self._going:
            await asyncio.wait(self._going)
        if self.held:
            await self.commit(commit)

    def _begin(self, commit: Callable[[list[Write]], Awaitable[Came]]) -> asyncio.Future[Came]:
        going = asyncio.ensure_future(self._follow(self._late, commit))
        self._going.add(going)
        going.add_done_callback(self._forget)
        return going

    def _forget(self, going: asyncio.Future[Any]) -> None:
        self._going.discard(going)
        if not going.cancelled():
            going.exception()  # of what was late nobody else may ask

    async def _follow(
        self, before: asyncio.Future[Any] | None, commit: Callable[[list[Write]], Awaitable[Came]]
    ) -> Came:
        if before and not before.done():
            await asyncio.wait({before})
        held = [*self.held]
        self.held.clear()
        try:
            return await commit(held)
        except BaseException:
            self.held[:0] = held
            raise

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> tuple[bool, list[str]]:
        """Return whether a checkpoint can wait, and the namespaces that are deleted with it."""
        place = config["configurable"]
        namespace, over = place.get("checkpoint_ns", ""), set[str]()
        if namespace.startswith(STEPS):
            self._inside.setdefault(metadata.get("parents", {}).get("", ""), set()).add(namespace)
        elif not namespace:
            over = self._inside.pop(str(place.get("checkpoint_id")), over)
            self._inside[checkpoint["id"]] = set()
        made = namespace in self._made
        self._made.discard(namespace)
        return not made and metadata.get("source") in ("input", "loop"), [*over]

    def can_wait(self, config: RunnableConfig, task_id: str, task_path: str) -> bool:
        """Return whether the writes of a task can wait."""
        node, namespace = task_path.rpartition(", ")[2], config["configurable"].get("checkpoint_ns", "")
        if replied := task_id in self._replied:
            self._replied.discard(task_id)
            self._made.add(namespace)
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


async def finish(future: asyncio.Future[Any]) -> None:
    """Wait for a future even if the waiting task is cancelled meanwhile. Raises its error, or CancelledError."""
    cancelled = False
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError:
            cancelled = True
    if (failed := future.exception()) or cancelled:
        raise failed or asyncio.CancelledError
