"""What of a step at work can wait, and what goes when it is over; the same for every database."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.store.base import Op, PutOp

from donewhen.graph.calls.replies import NAMESPACE as REPLIES

STEPS = ("plan:", "execute:")
"""How the namespaces of our subgraphs begin; each task of theirs has one of its own."""
Write = TypeVar("Write")


class Rounds(Generic[Write]):
    """What a session knows of the rounds that it writes.

    What can be had again without asking anybody is committed with what comes next: an input, and a round whose reply is
    in the store. With the run's checkpoint after a planning or a step go its rounds: all that it came to is in the run.
    """

    def __init__(self) -> None:
        self.held: list[Write] = []
        """What waits for what comes next."""
        self._safe: set[str] = set()
        """Checkpoints that are only an input, and tasks whose reply is in the store."""
        self._inside: dict[str, set[str]] = {}
        """Checkpoints of the run → namespaces of the plannings and steps that began there."""

    def take(self) -> list[Write]:
        """All that is held; from now on it is not."""
        held = [*self.held]
        self.held.clear()
        return held

    def put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> tuple[bool, list[str]]:
        """Of a checkpoint: whether it can wait, and the namespaces that go with it."""
        place = config["configurable"]
        if (namespace := place.get("checkpoint_ns", "")).startswith(STEPS):
            self._inside.setdefault(metadata.get("parents", {}).get("", ""), set()).add(namespace)
        if waits := metadata.get("source") == "input":
            self._safe.add(checkpoint["id"])
        return waits, [] if namespace else [*self._inside.pop(str(place.get("checkpoint_id")), ())]

    def can_wait(self, config: RunnableConfig, task_id: str) -> bool:
        """Of what a task wrote."""
        safe = bool(self._safe & {task_id, config["configurable"]["checkpoint_id"]})
        self._safe.discard(task_id)
        return safe

    def stored(self, ops: Iterable[Op]) -> None:
        """Replies among what is now in the store; not to be read where sealed."""
        replies = [op.value or {} for op in ops if isinstance(op, PutOp) and op.namespace[: len(REPLIES)] == REPLIES]
        self._safe.update(str(reply["round"]) for reply in replies if "round" in reply)
