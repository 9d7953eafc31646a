"""Where the run goes next: pure functions of state. They read what nodes decided and decide nothing themselves."""

from typing import Literal

from langgraph.types import Send

from donewhen.graph.people.pauses import typed_reply
from donewhen.state.run import RunState


def after_start(state: RunState) -> Literal["receive", "confirm", "ask_user"]:
    """Take a reply typed into the chat to the pause that is open; anything else is a new request."""
    pending = state.get("pending")
    if pending and typed_reply(state.get("messages") or ()) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    return "receive"


def after_node(state: RunState) -> list[Send] | str:
    """Go to the end, if there is one; to the person who is asked; to planning, while it is open; else on."""
    if state.get("ending"):
        return "deliver"
    if (pending := state.get("pending")) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    if state["planning"].get("open"):
        return [Send("plan", {"id": state["planning"]["transcript"]})]
    return "advance"


def after_advance(state: RunState) -> list[Send] | str:
    """Send off every step that is set to run; else go to a pause, a replan, the end, or look once more."""
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
