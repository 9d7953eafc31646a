"""One leg of an executor's work: from a brief, or from answers, to its output or to what it asks. Plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from donewhen.state.plan.order import ancestors
from donewhen.state.plan.plan import find_step
from donewhen.state.run import Json

ROWS, ROW_CHARS = 40, 500
"""Of a transcript: messages, the last ones, and characters of each."""


@dataclass(frozen=True)
class Leg:
    """What an executor gets."""

    brief: str
    key: str
    """Names this leg: the same after a crash, another one for every other leg."""
    first: str
    """The key of the leg that the brief was handed over with."""
    name: str
    thread_id: str
    """Of the run."""
    conversation: str
    """Which conversation of the executor's on this thread; "" is the one that goes on from request to request."""
    attached: Sequence[Any] = ()
    """Content blocks: images and files of the request, which only a graph is shown."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """Id of what was asked → the answer; {} for a first leg."""
    config: RunnableConfig = field(default_factory=lambda: RunnableConfig())
    """With the run's callbacks, and nothing else of the run."""
    saver: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    tell: Callable[[str], None] = lambda text: None
    """Shows people what it says while it works."""

    @property
    def message(self) -> HumanMessage:
        """The brief, with what is attached."""
        content: Any = [{"type": "text", "text": self.brief}, *self.attached] if self.attached else self.brief
        return HumanMessage(content, id=self.first or None)


@dataclass(frozen=True)
class Report:
    """What a leg came to."""

    output: Any = None
    """Of any kind; its text becomes the observation."""
    asks: Sequence[tuple[str, Any]] = ()
    """Id and value of what it asks, if it cannot go on without answers."""
    said: Sequence[BaseMessage] = ()
    """What it said since the brief."""
    failed: str = ""
    """Why it failed, in words: it said so, or the work never reached it."""
    unreached: str = ""
    """Why the answers of a later leg could not be brought to it: they are asked for again."""


class Unfinished(Exception):
    """An agent began to work, and nobody knows what it has done: the line to it was lost, or it broke off."""


def conversation_of(plan: Mapping[str, Any], step_id: str, turn: int) -> str:
    """Which conversation a step goes on with: that of the last step for the same executor that it builds on.

    The first step for an executor goes on with the one of the thread, ""; a step beside others has one of its own.
    """
    name = find_step(plan, step_id).get("executor")
    if name is None:
        return ""
    heads: dict[str, str] = {}
    own = [step["id"] for step in plan["steps"] if step.get("executor") == name]
    for id in own[: own.index(step_id) + 1]:
        built_on = set(ancestors(plan, id))
        before = [other for other in own if other in built_on]
        gone_on = [other for other, head in heads.items() if head == ""]
        heads[id] = "" if not gone_on or (before and before[-1] == gone_on[-1]) else f"{turn}.{id}"
    return heads[step_id]


def transcript(said: Sequence[BaseMessage]) -> list[Json]:
    """The messages in short form, for the receipt: who said it, the text, and the tools that were called."""
    rows: list[Json] = []
    for message in said[-ROWS:]:
        calls = [call["name"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        by = "user" if isinstance(message, HumanMessage) else message.name or message.type
        rows.append({"by": by, "text": message.text[:ROW_CHARS], **({"calls": calls} if calls else {})})
    return rows
