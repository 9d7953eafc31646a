"""A handoff to an executor that works on its own: it gets a brief or answers, and returns an output or questions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.store.base import BaseStore

from donewhen.state.run import Json

CANCEL = "cancel"
"""The reason of a drain because the run is cancelled; any other leaves the work to the next process."""

ROWS, ROW_CHARS = 40, 500
"""The most messages of a transcript, counted from the end, and the most characters of each."""


@dataclass(frozen=True)
class Handoff:
    """The input of an executor that works on its own."""

    brief: str
    key: str
    """Identifies this handoff: the same after a crash, different for every other one."""
    first: str
    """The key of the handoff that brought the brief."""
    name: str
    thread_id: str
    """The run's thread."""
    conversation: str
    """The executor's conversation on this thread; "" is the one that continues across requests."""
    attached: Sequence[Any] = ()
    """Content blocks of images and files in the request; only graphs see them."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """The answers by question id; {} for the first handoff."""
    config: RunnableConfig = field(default_factory=lambda: RunnableConfig())
    """The run's callbacks, and nothing else of the run."""
    saver: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    tell: Callable[[str], None] = lambda text: None
    """Shows people what the executor says while it works."""
    is_cancelled: Callable[[], bool] = lambda: False
    """Returns whether the run is being cancelled."""

    @property
    def message(self) -> HumanMessage:
        """The brief with its attachments, as a message."""
        content: Any = [{"type": "text", "text": self.brief}, *self.attached] if self.attached else self.brief
        return HumanMessage(content, id=self.first or None)


@dataclass(frozen=True)
class Report:
    """The result of a handoff."""

    output: Any = None
    """The output, of any type; its text becomes the observation."""
    asks: Sequence[tuple[str, Any]] = ()
    """Id and value of each question, if the executor cannot continue without answers."""
    said: Sequence[BaseMessage] = ()
    """The executor's messages since the brief."""
    failed: str = ""
    """Why it failed: the executor reported a failure, or the work never reached it."""
    unreached: str = ""
    """Why answers did not reach the executor; they are sent again."""


class Unfinished(Exception):
    """An agent began to work and its result is unknown: the connection was lost, or the agent crashed."""


def transcript(said: Sequence[BaseMessage]) -> list[Json]:
    """Return messages in short form for the receipt: author, text and tool calls."""
    rows: list[Json] = []
    for message in said[-ROWS:]:
        calls = [call["name"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        by = "user" if isinstance(message, HumanMessage) else message.name or message.type
        rows.append({"by": by, "text": message.text[:ROW_CHARS], **({"calls": calls} if calls else {})})
    return rows
