"""Render what people and the agent said in earlier requests of a thread: goals, questions, answers, plans, results.

It is read from the conversation, so it is the same for a request that ended, was rejected, cancelled or interrupted.
What was observed is not in it: see `earlier_index`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from donewhen.prompts import brief, section
from donewhen.state.channels import ANSWERED_BY, OWN_WORDS, SPEECH_PREFIX, TASK
from donewhen.state.records import ACTIONS, PLAN_ACTION
from donewhen.state.values import with_name

ROOM = 8_000
"""The most characters of a dialogue in a prompt, so that its cost does not grow with the age of the thread."""
BLOCK = 16
"""A dialogue that is too long begins at a multiple of so many messages: the beginning of a prompt seldom changes."""
SAID_CHARS, QUESTION_CHARS, PLAN_CHARS, RESULT_CHARS = 2_000, 1_000, 600, 300
"""The most characters of a goal or an answer, of a question, of a plan, and of the result of one of several steps."""


@dataclass(frozen=True)
class Saying:
    """A part of the dialogue, and who said it; `system` is the application around the agent, its tools, or a client."""

    by: Literal["user", "assistant", "system"]
    text: str


def dialogue(messages: Sequence[BaseMessage]) -> list[Saying]:
    """Return the newest of what was said, in at most `ROOM` characters."""
    sayings: list[tuple[int, Saying]] = []
    asked = set[str]()
    room = ROOM
    for place in range(len(messages) - 1, -1, -1):
        if (saying := _saying(messages, place, asked)) is None:
            continue
        if (room := room - len(saying.text)) < 0:
            start = -(-(place + 1) // BLOCK) * BLOCK
            shown = [(at, each) for at, each in sayings if at >= start] or sayings
            return [each for _, each in reversed(shown)]
        sayings.append((place, saying))
    return [each for _, each in reversed(sayings)]


def dialogue_text(messages: Sequence[BaseMessage], fence: str = "") -> str:
    """Render the dialogue in tags; only what people said is not framed as data."""
    return brief(
        *(section(saying.by, saying.text, "" if saying.by == "user" else fence) for saying in dialogue(messages))
    )


def _saying(messages: Sequence[BaseMessage], place: int, asked: set[str]) -> Saying | None:
    """Return what a message says in the dialogue; None for progress, and for words of the runtime.

    `asked` are the questions of later messages; a question that was asked again is shown once, with its answer.
    """
    message = messages[place]
    text = message.text.strip()
    if isinstance(message, HumanMessage):
        return Saying("user", with_name(message.name, _cut(text, SAID_CHARS)))
    if isinstance(message, SystemMessage):
        return Saying("system", _cut(text, SAID_CHARS)) if text else None
    if isinstance(message, ToolMessage):
        if message.additional_kwargs.get(OWN_WORDS) or not text:
            return None
        if message.name == TASK:
            return Saying("assistant", f"(a step) {_cut(text, RESULT_CHARS)}")
        if not {message.name, _asked_by(messages, place)} & {*ACTIONS}:  # of another node's tool, and no person's word
            return Saying("system", _cut(text, SAID_CHARS))
        beside = (*messages[max(place - 1, 0) : place], *messages[place + 1 : place + 2])
        typed = any(isinstance(each, HumanMessage) for each in beside)  # it says the same, or is a client's own word
        by = message.additional_kwargs.get(ANSWERED_BY)
        return None if typed else Saying("user", with_name(by, _cut(text, SAID_CHARS)))
    if not isinstance(message, AIMessage) or str(message.id).startswith(SPEECH_PREFIX):
        return None
    if not message.tool_calls:
        return Saying("assistant", _cut(text, SAID_CHARS)) if text else None
    name = message.tool_calls[0]["name"]
    if name == TASK or text in asked:
        return None
    asked.add(text)
    plan = f"(a plan) {_cut(' '.join(text.split()), PLAN_CHARS)}" if name == PLAN_ACTION else ""
    return Saying("assistant", plan or _cut(text, QUESTION_CHARS))


def _asked_by(messages: Sequence[BaseMessage], place: int) -> str:
    """Return the name of the call to which a tool message belongs; "" if that is not there."""
    id = getattr(messages[place], "tool_call_id", "")
    for at in reversed(range(place)):
        for call in getattr(messages[at], "tool_calls", ()):
            if call["id"] == id:
                return str(call["name"])
    return ""


def _cut(text: str, most: int) -> str:
    """Return at most the first `most` characters; the cut is marked."""
    return text if len(text) <= most else f"{text[: most - 2]} …"
