"""The routes: pure functions of state. They follow what nodes decided and decide nothing themselves."""

from typing import Literal

from langgraph.types import Send

from donewhen.graph.people.pauses import typed_reply
from donewhen.state.run import RunState


def after_start(state: RunState) -> Literal["receive", "confirm", "ask_user"]:
    """Route a reply typed into the chat to the open pause; anything else is a new request."""
    pending = state.get("pending")
    if pending and typed_reply(state.get("messages") or ()) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    return "receive"


def after_node(state: RunState) -> list[Send] | str:
    """Route to the end if there is one, to an open pause, to open planning, else to `advance`."""
    if state.get("ending"):
        return "deliver"
    if (pending := state.get("pending")) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    if state["planning"].get("open"):
        return [Send("plan", {"id": state["planning"]["transcript"]})]
    return "advance"


def after_advance(state: RunState) -> list[Send] | str:
    """Send every running step to `execute`; otherwise route to a pause, a replan or the end."""
    running = [id for id, record in (state.get("steps") or {}).items() if record.get("status") == "running"]
    if running and not state.get("ending") and not state.get("pending"):
        return [Send("execute", {"id": id}) for id in running]
    return after_node(state)


def after_execute(state: RunState) -> Literal["advance"]:
    """Go back to `advance`, which decides what runs next."""
    return "advance"


def after_deliver(state: RunState) -> Literal["__end__"]:
    """End the run."""
    return "__end__"
