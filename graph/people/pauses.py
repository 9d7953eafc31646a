"""Pauses: which are open, their ids, and the messages that show them in the conversation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from donewhen.graph.events import now
from donewhen.graph.llm.speech import push_rest
from donewhen.graph.people.tasks import close_tasks
from donewhen.state.channels import OWN_WORDS, Json, RunState
from donewhen.state.pattern import pattern
from donewhen.state.people.answers import edited_draft
from donewhen.state.people.payload import OTHER_KEYS, action_name, message_text, payload, short_arguments
from donewhen.state.proof.journal import same_question
from donewhen.state.records import JournalEntry, Pause, PauseKind

_NAME = pattern(r"\A(?:\d+:)?(.*?)(?:~\d+)?", re.DOTALL)
PURPOSE_CHARS = 200
PUT_AWAY = "Put away for another request."


def new_call_id() -> str:
    """Return a new id for the tool call that shows a pause in the conversation."""
    return f"pause_{uuid4().hex[:16]}"


def make_pause(
    kind: PauseKind,
    id: str,
    question: str,
    *,
    step: str | None = None,
    options: Sequence[str] = (),
    language: str = "en",
    **more: Any,
) -> Pause:
    """Return a new pause with its own tool call; `more` are the fields of its kind."""
    asked = {"id": id, "kind": kind, "name": action_name(kind), "tool_call_id": new_call_id(), "question": question}
    return cast("Pause", {**asked, "options": list(options), "step": step, **more, **language_field(language)})


def pause_message(pending: Pause) -> AIMessage:
    """Return the message that shows a pause: its text, and a tool call named like the action for clients to draw."""
    name, arguments = action_name(pending["kind"]), short_arguments(pending)
    call = {"name": name, "args": arguments, "id": pending["tool_call_id"]}
    return AIMessage(message_text(pending), id=pending.get("message_id"), tool_calls=[{**call, "type": "tool_call"}])


def close_pause(
    messages: Sequence[BaseMessage], pending: Pause, text: str, *, answered: bool = False
) -> list[AnyMessage]:
    """Return the result of the pause's tool call, unless a client has written one already.

    `answered`: the text is what a person said; otherwise it is the runtime's own word, and marked as such.
    """
    call = pending["tool_call_id"]
    known = any(isinstance(message, ToolMessage) and message.tool_call_id == call for message in messages)
    own: Json = {} if answered else {OWN_WORDS: True}
    name = action_name(pending["kind"])
    return [] if known else [ToolMessage(text, tool_call_id=call, name=name, additional_kwargs=own)]


def with_fresh_call(messages: Sequence[BaseMessage], pending: Pause) -> Pause:
    """Return the pause with a new tool call, if the conversation has its current one already."""
    used = any(
        call["id"] == pending["tool_call_id"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )
    return {**pending, **_fresh_call()} if used else pending


def _fresh_call() -> Pause:
    """Return the fields that make a new message for a pause."""
    return {"tool_call_id": new_call_id(), "message_id": None}


def typed_reply(messages: Sequence[BaseMessage]) -> str | None:
    """Return what the user typed into the chat instead of answering the pause; None if nothing."""
    last = messages[-1] if messages else None
    return last.text if isinstance(last, HumanMessage) else None


def wait_for_answer(pending: Pause) -> Any:
    """Return what the run is resumed with; pause it if there is no answer yet.

    LangGraph runs the node again when an answer comes, so the question is rendered only if there is none yet.
    """
    try:
        return interrupt(None)
    except GraphInterrupt as unanswered:
        shown = payload(pending)
        raise GraphInterrupt([replace(each, value=shown) for each in unanswered.args[0]]) from None


def keep_open(values: Mapping[str, Any], pending: Pause, problem: str, value: Any = None) -> RunState:
    """Return the update that keeps the pause open, with what is missing in the answer; "" if the person answers later.

    The pause keeps the text of an edit, so that the person can correct it.
    """
    draft = edited_draft(value) or pending.get("draft")
    again: Pause = {**pending, "problem": problem, "draft": draft}
    messages = values["messages"]
    if typed_reply(messages) is None and not problem:
        return {"pending": again}
    closed = close_pause(messages, pending, "Asked back." if problem else "Left open.")
    again = {**again, **_fresh_call()}
    return {"pending": again, "messages": [*closed, pause_message(again)]}


def open_pauses(values: Mapping[str, Any]) -> list[Pause]:
    """Return all open questions: the current one first, then those of waiting steps in plan order."""
    found = [values["pending"]] if values.get("pending") else []
    records = values.get("steps") or {}
    for step in ((values.get("approval") or {}).get("plan") or {}).get("steps", ()):
        record = records.get(step["id"], {})
        if record.get("status") == "waiting" and record.get("waiting"):
            found.append(record["waiting"])
    pauses = [with_id(values, pause) for pause in found]
    return [pause for n, pause in enumerate(pauses) if all(pause["id"] != other["id"] for other in pauses[:n])]


def current_pause(pauses: Sequence[Pause]) -> Pause:
    """Return the first of the open pauses, with short forms of the others."""
    first, *rest = pauses
    others = [cast("Pause", {key: pause.get(key) for key in OTHER_KEYS}) for pause in rest]
    return {**first, "others": others}


def with_id(values: Mapping[str, Any], pause: Pause) -> Pause:
    """Return the pause with an id that is unique in the thread, so that a late answer cannot reach another pause.

    The node's id says what is asked; the same may be asked again in this request or a later one.
    """
    name, turn = _bare_id(pause["id"]), values.get("turn", 1)
    decided = [row["id"] for row in values.get("approvals") or () if row["decision"] != "say"]  # words decide nothing
    decided += [entry["arguments"].get("asked") for entry in values.get("journal") or () if entry["source"] == "user"]
    times = sum(_bare_id(id or "") == name for id in decided)
    id = (f"{turn}:" if turn > 1 else "") + name + (f"~{times + 1}" if times else "")
    spoken = {} if pause.get("language") else language_field(values.get("language", "en"))
    return {**pause, "id": id, **_purpose(values, pause), **spoken}


def _purpose(values: Mapping[str, Any], pause: Pause) -> Pause:
    """Add the step's content if another step asks the same words, so that people see which one asks (X26)."""
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


def language_field(language: str) -> Pause:
    """Return the field for the language of a pause; {} for English."""
    return {} if language == "en" else {"language": language}


def _bare_id(id: str) -> str:
    match = _NAME.fullmatch(id)
    return match[1] if match else id


def close_for_new_request(values: Mapping[str, Any], observed: Sequence[JournalEntry] = ()) -> RunState:
    """Return the update that closes the open question because a new request takes its place.

    `observed` is what an interrupted planning or step observed, which the next request can recall.
    """
    pending, messages = values.get("pending"), values.get("messages") or ()
    results, shut = close_tasks(values.get("steps") or {}, str(values.get("language") or "en"), PUT_AWAY)
    shown = close_pause(messages, pending, PUT_AWAY) if pending else []
    return {"pending": None, "messages": [*results, *shown], "steps": shut, "goal": "", "journal": list(observed)}


def ask_person(values: Json, pending: Pause) -> Json:
    """Return the update that makes the run wait for this answer, and stream the question."""
    pending = with_fresh_call(values["messages"], {"asked_at": now(), **with_id(values, pending)})
    asked = pause_message(pending)
    push_rest(asked, str(pending.get("question") or ""), inside=False)
    return {"pending": pending, "messages": [asked]}
