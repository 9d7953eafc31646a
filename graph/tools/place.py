"""Where a run of ours stands on its thread: alone, as a node of a graph around it, or as the executor of another run.

Each such run has requests and steps of its own, so what one does is not what another does, in the same words or not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

WITHIN = "__donewhen_within"
"""In the configuration of an executor's run on the thread of another run: which executor it is."""
FURTHEST = 1000
"""Checkpoints that are walked back through, to find one of a graph around."""


@dataclass(frozen=True)
class Place:
    """Where a run of ours stands on its thread."""

    nodes: tuple[str, ...] = ()
    """Nodes of graphs around, by LangGraph's names of their runs, the outermost first; () for a run that is alone."""
    checkpoints: tuple[str, ...] = ()
    """From which checkpoint of its graph each of these nodes was run."""
    dispatch: str = ""
    """From which checkpoint of ours the node at work was run: the same after a crash, another one in another branch."""
    saver: BaseCheckpointSaver[Any] | None = None
    thread_id: str = ""

    @classmethod
    def of(cls, config: RunnableConfig, *, depth: int) -> "Place":
        """Return the place of a node that is `depth` levels inside of our graph, 1 for a node of the graph itself."""
        configurable = config.get("configurable") or {}
        path = str(configurable.get("checkpoint_ns", "")).split("|")[:-depth]
        ids: Mapping[str, str] = configurable.get("checkpoint_map") or {}
        *around, dispatch = (str(ids.get("|".join(path[:n]), "")) for n in range(len(path) + 1))
        within = configurable.get(WITHIN)
        saver = configurable.get("__pregel_checkpointer")
        return cls(
            (within, *path) if within else tuple(path),
            ("", *around) if within else tuple(around),
            dispatch,
            saver if isinstance(saver, BaseCheckpointSaver) else None,
            str(configurable.get("thread_id", "")),
        )

    @property
    def scope(self) -> str:
        """Names the run among those on the thread."""
        return "|".join(self.nodes)

    def is_beside(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> bool:
        """Return whether a run there belongs to the same step of a graph around both."""
        level = self._parting(nodes, checkpoints)
        return level < len(checkpoints) and checkpoints[level] == self.checkpoints[level] != ""

    async def follows(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> bool:
        """Return whether a run there was before this one or beside it, and not in another branch of the history."""
        level = self._parting(nodes, checkpoints)
        if level == len(checkpoints) or level == len(self.checkpoints) or checkpoints[level] == self.checkpoints[level]:
            return True
        return await self._descends("|".join(self.nodes[:level]), self.checkpoints[level], checkpoints[level])

    def _parting(self, nodes: Sequence[str], checkpoints: Sequence[str]) -> int:
        """Return the first level at which the ways to both runs differ."""
        ours, theirs = zip(self.nodes, self.checkpoints, strict=True), zip(nodes, checkpoints, strict=False)
        same = takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False))
        return sum(1 for _ in same)

    async def _descends(self, namespace: str, checkpoint: str, earlier: str) -> bool:
        """Return whether what was run from the earlier checkpoint led to this one. Their ids are ordered by time."""
        if self.saver is None or not earlier:
            return True  # nothing is kept of it, so it has no other branches
        current: RunnableConfig | None = _at(self.thread_id, namespace, checkpoint)
        for _ in range(FURTHEST):
            found = await self.saver.aget_tuple(current) if current else None
            current = found.parent_config if found else None
            id = str(current["configurable"]["checkpoint_id"]) if current else ""
            if id <= earlier:
                return found is not None and id == earlier and found.metadata.get("source") == "loop"
        return True


def _at(thread_id: str, namespace: str, checkpoint: str) -> RunnableConfig:
    place = {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return {"configurable": place}
