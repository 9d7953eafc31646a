"""Pauses: what is open in a run, under which ids, and what stands in the conversation while a person is asked. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.people.tasks import closed
from donewhen.state.graph_state import RunState
from donewhen.state.pattern import pattern
from donewhen.state.people.answers import draft_of, said_in
from donewhen.state.people.payloads import OTHER_KEYS, action_name, message_text, short_arguments
from donewhen.state.proof.questions import same_question
from donewhen.state.records import Pause, PauseKind

_NAME = pattern(r"\A(?:\d+:)?(.*?)(?:~\d+)?", re.DOTALL)
PAUSE_ID = pattern(
    r"\A(?:\d+:)?(?:confirm\.[0-9a-f]+|(?:budget|failure|early)\.\S+"
    r"|[A-Za-z][\w-]*(?:@\d+)?\.(?:q\d+|(?:call|effect)\d+\.[0-9a-f]{8}(?:\.\d+)?))(?:~\d+)?"
)
"""What every id of a pause looks like: `s2.q1`; in the thread's third request `3:s2.q1`; asked once more `s2.q1~2`."""

PURPOSE_CHARS = 200
PUT_AWAY = "Put away for another request."


def call_id() -> str:
    """A fresh id for the tool call that stands for a pause in the conversation."""
    return f"pause_{uuid4().hex[:16]}"


def pause(
    kind: PauseKind,
    id: str,
    question: str,
    *,
    step: str | None = None,
    options: Sequence[str] = (),
    language: str = "en",
    **more: Any,
) -> Pause:
    """A pause to be asked, under the name of its action, with a tool call of its own; `more`: what its kind has."""
    asked = {"id": id, "kind": kind, "name": action_name(kind), "tool_call_id": call_id(), "question": question}
    return cast("Pause", {**asked, "options": list(options), "step": step, **more, **spoken_in(language)})


def opening(pending: Pause) -> AIMessage:
    """The message right before a pause: text, and a tool call named like the action (clients draw it there)."""
    name, arguments = action_name(pending["kind"]), short_arguments(pending)
    call = {"name": name, "args": arguments, "id": pending["tool_call_id"]}
    return AIMessage(message_text(pending), id=pending.get("message_id"), tool_calls=[{**call, "type": "tool_call"}])


def closing(messages: Sequence[BaseMessage], pending: Pause, text: str) -> list[AnyMessage]:
    """The answer as the result of that tool call, unless a client has written one already."""
    call = pending["tool_call_id"]
    answered = any(isinstance(message, ToolMessage) and message.tool_call_id == call for message in messages)
    return [] if answered else [ToolMessage(text, tool_call_id=call, name=action_name(pending["kind"]))]


def reopened(messages: Sequence[BaseMessage], pending: Pause) -> Pause:
    """The pause with a tool call of its own: the one it has may be answered in the conversation already."""
    used = any(
        call["id"] == pending["tool_call_id"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )
    return {**pending, **_anew()} if used else pending


def _anew() -> Pause:
    """What makes the message of a pause another one than before."""
    return {"tool_call_id": call_id(), "message_id": None}


def typed_reply(messages: Sequence[BaseMessage]) -> str | None:
    """What the user typed into the chat instead of answering the pause; None if nothing."""
    last = messages[-1] if messages else None
    return last.text if isinstance(last, HumanMessage) else None


def asked_again(values: Mapping[str, Any], pending: Pause, problem: str, value: Any = None) -> RunState:
    """The pause stays, and says why the answer was not taken; "" where the person wants to answer later.

    It keeps what was said in `value`: the words, and the text of an edit, given back to be mended.
    """
    draft = draft_of(value) or pending.get("draft")
    again: Pause = {**pending, "problem": problem, "draft": draft, "said": said_in(value)}
    messages = values["messages"]
    if typed_reply(messages) is None and not problem:
        return {"pending": again}
    closed = closing(messages, pending, "Not understood." if problem else "Left open.")
    again = {**again, **_anew()}
    return {"pending": again, "messages": [*closed, opening(again)]}


def open_pauses(values: Mapping[str, Any]) -> list[Pause]:
    """Every open question of a run: the one asked now first, then those of steps that wait."""
    current, waiting = values.get("pending"), _waiting(values)
    pauses = [named(values, pause) for pause in ([current] if current else []) + list(waiting)]
    return [pause for n, pause in enumerate(pauses) if all(pause["id"] != other["id"] for other in pauses[:n])]


def asked_now(values: Mapping[str, Any]) -> Pause:
    """The pause that is asked now, with short forms of the other open ones."""
    first, *rest = open_pauses(values)
    others = [cast("Pause", {key: pause.get(key) for key in OTHER_KEYS}) for pause in rest]
    return {**first, "others": others}


def _waiting(values: Mapping[str, Any]) -> Iterator[Pause]:
    """What the steps of the plan that is worked on wait for, in plan order."""
    plan, records = (values.get("approval") or {}).get("plan") or {}, values.get("steps") or {}
    for step in plan.get("steps", ()):
        record = records.get(step["id"], {})
        if record.get("status") == "waiting" and record.get("waiting"):
            yield record["waiting"]


def named(values: Mapping[str, Any], pause: Pause) -> Pause:
    """The pause under an id that no other pause of the thread has or had, so that a late answer hits nothing else.

    The id a node gave tells what is asked; the same may be asked again in this request or in a later one.
    """
    name, turn = _bare(pause["id"]), values.get("turn", 1)
    decided = [row["id"] for row in values.get("approvals") or ()]
    decided += [entry["arguments"].get("asked") for entry in values.get("journal") or () if entry["source"] == "user"]
    times = sum(_bare(id or "") == name for id in decided)
    id = (f"{turn}:" if turn > 1 else "") + name + (f"~{times + 1}" if times else "")
    spoken = {} if pause.get("language") else spoken_in(values.get("language", "en"))
    return {**pause, "id": id, **_purpose(values, pause), **spoken}


def _purpose(values: Mapping[str, Any], pause: Pause) -> Pause:
    """What the step is for, where another step asks or asked in the same words: people must see who asks (X26)."""
    if pause.get("kind") != "question" or not pause.get("step"):
        return {}
    waiting = [row["waiting"] for row in (values.get("steps") or {}).values() if row.get("waiting")]
    asked = [(each.get("step"), each.get("question")) for each in waiting]
    answers = [entry for entry in values.get("journal") or () if entry["source"] == "user"]
    asked += [(entry["step"], entry["arguments"].get("question")) for entry in answers]
    if not any(id != pause["step"] and same_question(str(other or ""), pause["question"]) for id, other in asked):
        return {}
    steps = ((values.get("approval") or {}).get("plan") or {}).get("steps", ())
    content = next((" ".join(str(step["content"]).split()) for step in steps if step["id"] == pause["step"]), "")
    return {"purpose": content[:PURPOSE_CHARS]}


def spoken_in(language: str) -> Pause:
    """What a pause says of the language it is shown in; nothing for English."""
    return {} if language == "en" else {"language": language}


def _bare(id: str) -> str:
    match = _NAME.fullmatch(id)
    return match[1] if match else id


def put_away(values: Mapping[str, Any]) -> RunState:
    """The update that closes what is asked because another request takes its place."""
    pending, messages = values.get("pending"), values.get("messages") or ()
    results, shut = closed(values.get("steps") or {}, str(values.get("language") or "en"), PUT_AWAY)
    shown = closing(messages, pending, PUT_AWAY) if pending else []
    return {"pending": None, "messages": [*results, *shown], "steps": shut, "goal": ""}
