"""Where the run goes next: pure functions of state. They read what nodes decided and decide nothing themselves."""

from collections.abc import Mapping
from typing import Literal

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Send

from donewhen.graph.context import settings_of
from donewhen.graph.executors.leg import conversation_of
from donewhen.graph.models.briefs import index_of, step_brief
from donewhen.graph.people.pauses import typed_reply
from donewhen.state.graph_state import PLANNING, Json, RunState
from donewhen.state.plan.modes import promotable
from donewhen.state.plan.plan import ancestors, step_of
from donewhen.state.plan.planning import planning_input
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import KNOWN_CHARS, visible_to
from donewhen.state.settings import Settings


def _runtime(config: RunnableConfig) -> Runtime[Settings] | None:
    """None where LangGraph routes without running anything: in `update_state`."""
    found: Runtime[Settings] | None = (config.get("configurable") or {}).get("__pregel_runtime")
    return found


def after_start(state: RunState) -> Literal["receive", "confirm", "ask_user"]:
    """A reply typed into the chat while something is pending answers that; anything else is a new request."""
    pending = state.get("pending")
    if pending and typed_reply(state.get("messages") or ()) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    return "receive"


def _on(state: RunState, config: RunnableConfig) -> list[Send] | str:
    if state.get("ending"):
        return "deliver"
    if (pending := state.get("pending")) is not None:
        return "confirm" if pending["kind"] == "plan" else "ask_user"
    if state["planning"].get("open"):
        settings = settings_of(runtime) if (runtime := _runtime(config)) else Settings()
        return [Send("plan", {**_planning(state, settings), "version": state.get("version", 0)})]
    return "advance"


def _planning(state: RunState, settings: Settings) -> Json:
    """What planning starts from. A later planning learns what was seen before it, and what the user said."""
    given = planning_input(state, settings)
    if state["planning"]["number"] > 1:
        seen = index_of(state.get("journal") or (), {PLANNING, *(state.get("steps") or {})})
        given["brief"]["seen"] = seen
    return given


def after_receive(state: RunState, config: RunnableConfig) -> list[Send] | str:
    """To planning; straight to consent where an executor takes the goal whole; to the end if the goal is none."""
    return _on(state, config)


def after_plan(state: RunState, config: RunnableConfig) -> list[Send] | str:
    """A plan to confirm, a question, an end; or on, if no consent is needed."""
    return _on(state, config)


def after_confirm(state: RunState, config: RunnableConfig) -> list[Send] | str:
    """Approved: on. Rejected: back to planning. Cancelled: to the end. Not understood: the pause stays."""
    return _on(state, config)


def after_ask_user(state: RunState, config: RunnableConfig) -> list[Send] | str:
    """Back to who asked: planning or the steps; to the end if the person ended the run."""
    return _on(state, config)


def after_advance(state: RunState, config: RunnableConfig) -> list[Send] | str:
    """Every step set to run is sent off by itself; else a pause, a replan, the end, or one more look."""
    running = [id for id, record in (state.get("steps") or {}).items() if record.get("status") == "running"]
    if running and not state.get("ending") and not state.get("pending"):
        whole = (runtime := _runtime(config)) is None or runtime.store is None
        settings = settings_of(runtime) if runtime else Settings()
        sent = {id: step_input(state, id, settings.today, whole=whole) for id in running}
        return [Send("execute", {**given, "promotable": promotable(state, id, settings)}) for id, given in sent.items()]
    return _on(state, config)


def step_input(state: RunState, id: str, today: str = "", *, whole: bool = False) -> Json:
    """All that `execute` gets to work on a step: nothing of what other steps did but results and citable observations.

    Those are the observations of planning, of the steps it builds on, and of steps that a later plan replaced.

    `whole`: there is no store to read long observations from, so they go along.
    """
    plan, records = state["plan"] or {}, state.get("steps") or {}
    record = records[id]
    step = step_of(plan, id)
    gone = records.keys() - {each["id"] for each in plan["steps"]}
    scope = {id, PLANNING, *ancestors(plan, id), *gone}
    transcript = list((state.get("transcripts") or {}).get(transcript_key(id, record), ()))
    return {
        "version": state.get("version", 0),
        "fence": state.get("fence", ""),
        "step": step,
        "conversation": conversation_of(plan, id, state.get("turn", 1)),
        "goal": state["goal"],
        "turn": state.get("turn", 1),
        "language": state.get("language", "en"),
        "granted_tools": ((state.get("approval") or {}).get("tools") or {}).get(id, []),
        "brief": step_brief(state, step, today),
        "attachments": list(state.get("attachments") or ()),
        "known": visible_to(state.get("journal") or (), scope, None if whole else KNOWN_CHARS),
        "asked": [e for e in state.get("journal") or () if e["source"] == "user"],
        "rejected": {key: why for each in records.values() for key, why in (each.get("rejected") or {}).items()},
        "claimed": [*(state.get("claims") or ()), *_of_others_at_work(records, id)],
        "transcript": transcript,
        "kept": len(transcript),
        "allowance": record.get("allowance") or {},
        "record": {**record, "spent_before": record.get("spent") or {}},
    }


def _of_others_at_work(records: Mapping[str, Json], id: str) -> list[str]:
    """Claims of the writes of other steps that are at work or wait: their attempts may still end well."""
    at_work = ("running", "waiting", "ready")
    others = (record for other, record in records.items() if other != id and record.get("status") in at_work)
    return [claim for record in others for claim in record.get("wrote") or ()]
