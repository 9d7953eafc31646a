"""Pauses as messages: what stands in the conversation while a person is asked, and what closes it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage

from state.human import action_name, payload
from state.payloads import OTHER_KEYS
from state.run import Json, Run


def call_id() -> str:
    """A fresh id for the tool call that stands for a pause in the conversation."""
    return f"pause_{uuid4().hex[:16]}"


def opening(pending: Mapping[str, Any]) -> AIMessage:
    """The message right before a pause: text, and a tool call named like the action (clients draw it there)."""
    action = payload(pending)["action_requests"][0]
    call = {"name": action_name(pending["kind"]), "args": action["args"], "id": pending["tool_call_id"]}
    return AIMessage(action["description"], tool_calls=[{**call, "type": "tool_call"}])


def closing(messages: Sequence[BaseMessage], pending: Mapping[str, Any], text: str) -> list[AnyMessage]:
    """The answer as the result of that tool call, unless a client has written one already."""
    call = pending["tool_call_id"]
    answered = any(isinstance(message, ToolMessage) and message.tool_call_id == call for message in messages)
    return [] if answered else [ToolMessage(text, tool_call_id=call, name=action_name(pending["kind"]))]


def typed_reply(messages: Sequence[BaseMessage]) -> str | None:
    """What the user typed into the chat instead of answering the pause; None if nothing."""
    last = messages[-1] if messages else None
    return last.text if isinstance(last, HumanMessage) else None


def asked_again(state: Run, problem: str) -> Run:
    """The pause stays, and says why the answer was not taken."""
    pending = {**(state["pending"] or {}), "problem": problem}
    if typed_reply(state["messages"]) is None:
        return {"pending": pending}
    pending["tool_call_id"] = call_id()
    closed = closing(state["messages"], state["pending"] or {}, f"Not understood: {problem}")
    return {"pending": pending, "messages": [*closed, opening(pending)]}


def open_pauses(state: Mapping[str, Any]) -> list[Json]:
    """Every open question of a run: the one asked now first, then those of steps that wait."""
    current = state.get("pending")
    waiting = [
        r["waiting"] for r in (state.get("steps") or {}).values() if r.get("status") == "waiting" and r.get("waiting")
    ]
    rest = [pause for pause in waiting if not current or pause["id"] != current["id"]]
    return [*([current] if current else []), *rest]


def with_others(pending: Json, pauses: Sequence[Mapping[str, Any]]) -> Json:
    """The pending with short forms of the other open questions."""
    others = [{key: pause.get(key) for key in OTHER_KEYS} for pause in pauses if pause["id"] != pending["id"]]
    return {**pending, "others": others}
