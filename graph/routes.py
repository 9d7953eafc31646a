"""Where the run goes next: pure functions of state. They read what nodes decided and decide nothing themselves."""

from typing import Literal

from langgraph.types import Send

from donewhen.graph.people.pauses import typed_reply
from donewhen.state.graph_state import RunState


def after_start(state: RunState) -> Literal["receive", "confirm", "ask_user"]:
    """A reply typed into the chat while something is pending answers that; anything else is a new request."""
    pending = state.get("pending")
    if pending and typed_reply(state.get("messages") or ()) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    return "receive"


def after_node(state: RunState) -> list[Send] | str:
    """To the end, if there is one; to the person who is asked; to planning, while it is open; else on."""
    if state.get("ending"):
        return "deliver"
    if (pending := state.get("pending")) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    if state["planning"].get("open"):
        return [Send("plan", {"id": state["planning"]["transcript"]})]
    return "advance"


def after_advance(state: RunState) -> list[Send] | str:
    """Every step set to run is sent off by itself; else a pause, a replan, the end, or one more look."""
    running = [id for id, record in (state.get("steps") or {}).items() if record.get("status") == "running"]
    if running and not state.get("ending") and not state.get("pending"):
        return [Send("execute", {"id": id}) for id in running]
    return after_node(state)


def after_execute(state: RunState) -> Literal["advance"]:
    """However a step left, what runs next is decided there."""
    return "advance"


def after_deliver(state: RunState) -> Literal["__end__"]:
    """Only delivery ends a run."""
    return "__end__"
