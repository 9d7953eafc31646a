"""Where a request enters: the goal is read from the conversation, and everything about the last request is put away."""

import inspect
import secrets
from collections.abc import Sequence
from dataclasses import replace

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from donewhen.graph.calls.attached import attach, attachment_problem, blocks_of
from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import at_turn, emit, mode_chosen, thread_of
from donewhen.graph.executors.executor import missing, unenforceable
from donewhen.graph.models.briefs import conversation
from donewhen.graph.models.cost import unpriced
from donewhen.graph.models.output import schema_form
from donewhen.graph.people.consent import consent, plan_rules, propose
from donewhen.graph.people.pauses import PUT_AWAY, typed_reply
from donewhen.graph.people.tasks import closed
from donewhen.graph.people.told import forget
from donewhen.graph.tools.effects import label
from donewhen.state.errors import ConfigError
from donewhen.state.graph_state import VERSION, Json, RunState
from donewhen.state.language.texts import goes_on, known_language, say
from donewhen.state.ledger import meter
from donewhen.state.plan.modes import mode_row
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.planning import fresh_planning, replanning
from donewhen.state.proof.journal import earlier_requests
from donewhen.state.settings import Settings
from donewhen.state.values import whole

GOAL_CHARS = 100_000
BACKGROUND_CHARS = 8_000
"""Of the context, and of the memory, that a request is given."""
GIVEN = "donewhen_plan_given"
"""In the `additional_kwargs` of a message that comes with a plan."""
FENCE_BYTES = 3
"""Of the word that frames foreign text: to be sure of a hit, a text would need to hold 16 million guesses."""


async def receive(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Json:
    """Start on a new request: fresh plan, fresh budgets; the conversation stays."""
    settings, messages = settings_of(runtime), request_last(state)
    goal = whole((typed_reply(messages) or "").strip())
    if cut_off(state) and goal:
        return _going_on(state, goal, runtime)
    update = _fresh(state, settings, goal[:GOAL_CHARS], messages)
    problem = goal_problem(goal) or missing(settings.executor, deps.executors) or _form_problem(settings)
    problem = problem or unenforceable(settings.profile, deps.executors)
    if problem := problem or attachment_problem(blocks_of(messages[-1]) if messages else [], deps, settings):
        return {**update, "output_schema": None, "ending": {"code": "bad_goal", "reason": problem, "text": problem}}
    if problem := unpriced(deps, settings):
        return {**update, "ending": {"code": "model_error", "reason": problem}}
    if runtime.store is not None:
        await forget(runtime.store, thread_of(runtime))
    update["attachments"] = await attach(messages, runtime)
    update["background"] = await _background(goal, runtime, deps)
    named = deps.executors.active.get(settings.executor or "")
    emit(runtime, "goal", text=goal[:2000])
    emit(runtime, "spent", meter=meter({}, settings.limits, {}))
    if (saved := await _given(state, runtime, config)) is not None:
        mode_chosen(runtime, row := mode_row("plan", "settings", say(update["language"], "mode", "given")))
        update["modes"] = Overwrite([dict(row)])
        return {**update, **_as_given(saved, goal, runtime, deps)}
    if named and named.passthrough:
        reason = say(update["language"], "mode", "whole", name=settings.executor)
        mode_chosen(runtime, row := mode_row("step", "executor", reason))
        update["modes"] = Overwrite([dict(row)])
        return {**update, **_whole(goal, settings, deps)}
    return update


def received_to_end(state: RunState, settings: Settings, request: Sequence[AnyMessage], code: str, reason: str) -> Json:
    """Return the update by which a request is received and ends at once: nothing is done or asked for it."""
    messages = [*(state.get("messages") or ()), *request]
    goal = whole(messages[-1].text.strip())[:GOAL_CHARS]
    update = _fresh(state, settings, goal, messages)
    return {**update, "messages": [*request, *update["messages"]], "ending": {"code": code, "reason": reason}}


async def _background(goal: str, runtime: Runtime[Settings], deps: Deps) -> Json:
    """What the application hands in for this request. One that fails is gone without, and people are told."""
    found: Json = {}
    for name, given in deps.background.items():
        try:
            text = given if isinstance(given, str) else given(goal, thread_of(runtime))
            text = await text if inspect.isawaitable(text) else text
        except Exception as error:
            emit(runtime, "note", text=f"Going on without the {name}: {type(error).__name__}: {error}"[:500])
            continue
        if shown := whole(str(text or "")).strip():
            found[name] = shown if len(shown) <= BACKGROUND_CHARS else f"{shown[:BACKGROUND_CHARS]} …"
    return found


def given_space(thread_id: str) -> tuple[str, ...]:
    """Where in the store a plan lies that a request is started with, under the id of its message."""
    return ("donewhen", "given", label(thread_id))


async def _given(state: RunState, runtime: Runtime[Settings], config: RunnableConfig) -> Json | None:
    """The plan this request is started with. It lies in the store, for clients can write any message."""
    messages = state.get("messages") or []
    if runtime.store is None or not messages or not messages[-1].additional_kwargs.get(GIVEN):
        return None
    item = await runtime.store.aget(given_space(str(config["configurable"]["thread_id"])), str(messages[-1].id))
    return dict(item.value) if item else None


def _as_given(saved: Json, goal: str, runtime: Runtime[Settings], deps: Deps) -> Json:
    """The saved plan under today's rules: to work with the approval it was given, else shown as any plan is."""
    settings = settings_of(runtime)
    rules = replace(plan_rules(deps, settings), repeats=False)
    plan = read_plan({key: item for key, item in saved["plan"].items() if key != "revision"}, rules)
    if isinstance(plan, list):
        return {"ending": {"code": "no_plan", "reason": "the saved plan cannot be used: " + "; ".join(plan)}}
    emit(runtime, "plan", plan=plan)
    planned: Json = {"planning": fresh_planning(1, open=False)}
    if saved.get("approved") == plan["revision"]:
        return {**planned, "plan": plan, "approval": consent(plan, "user")}
    return {**planned, **propose(plan, None, settings, deps, known_language(settings.speaks))}


def cut_off(state: RunState) -> bool:
    """Whether the last request is neither at its end nor put away: somebody pressed Stop, or the process died."""
    return bool(state.get("goal") and state.get("planning") and not state.get("outcome") and not state.get("ending"))


def _going_on(state: RunState, said: str, runtime: Runtime[Settings]) -> Json:
    """“continue” goes on as it was; anything else steers: it is planned anew, and what is finished stays (U4)."""
    at_turn(thread_of(runtime), state.get("turn", 1))
    if goes_on(said):
        return {"pending": None}
    emit(runtime, "note", text="Planning anew with what you say; what is finished stays.")
    planning = replanning(state, "", said)
    return {"planning": planning, "feedback": said, "pending": None}


def request_last(state: RunState) -> list[AnyMessage]:
    """The conversation with the request at its end: the user's last message, if it was not worked on before.

    In a graph around this one others may have spoken since: who routes, or an agent whose work is to be gone on with.
    """
    messages = list(state.get("messages") or ())
    at = max((at for at, each in enumerate(messages) if isinstance(each, HumanMessage)), default=None)
    if at is None or at + 1 == len(messages):
        return messages
    known = (state.get("goal"), state.get("request") or str(messages[at].id or ""))  # older threads have no id of it
    if (whole(messages[at].text.strip())[:GOAL_CHARS], str(messages[at].id or "")) == known:
        return messages
    return [*messages[:at], *messages[at + 1 :], messages[at]]


def _fresh(state: RunState, settings: Settings, goal: str, messages: Sequence[AnyMessage]) -> Json:
    nothing: Json = {"plan": None, "pending": None, "approval": None, "feedback": None, "ending": None, "outcome": None}
    nothing["heard"] = ""
    lists: Json = {key: Overwrite([]) for key in ("journal", "approvals", "modes", "todos")} | {"attachments": []}
    lists["background"] = {}
    maps: Json = {key: Overwrite({}) for key in ("steps", "transcripts", "spent", "granted", "files")}
    turn = state.get("turn", 0) + 1
    fence = state.get("fence") or secrets.token_hex(FENCE_BYTES)
    before = conversation(messages, fence)
    language = known_language(settings.speaks, state.get("language"))
    known: Json = {
        "messages": closed(state.get("steps") or {}, language, PUT_AWAY)[0],
        "fence": fence,
        "goal": goal,
        "request": str(messages[-1].id or "") if messages else "",
        "output_schema": settings.output_schema,
        "language": language,
        "conversation": before,
        "before": earlier_requests(state),
        "version": VERSION,
        "turn": turn,
        "planning": fresh_planning(1),
    }
    return {**nothing, **lists, **maps, **known}


def goal_problem(goal: str) -> str | None:
    """Why nobody could work on this goal, in words for the user; None if somebody could."""
    if not goal:
        return "The goal is empty. Say what you want done."
    if len(goal) > GOAL_CHARS:
        return (
            f"The goal has {len(goal):,} characters; at most {GOAL_CHARS:,} are read. "
            "Put long material into a file and name it in the goal."
        )
    return None


def _form_problem(settings: Settings) -> str | None:
    try:
        if settings.output_schema is not None:
            schema_form(settings.output_schema)
    except ConfigError as error:
        return str(error)
    return None


def _whole(goal: str, settings: Settings, deps: Deps) -> Json:
    """The goal unchanged as a one-step plan for an executor that wants no planning (P16)."""
    step = {"content": goal, "executor": settings.executor, "tools": None}
    rules = replace(plan_rules(deps, settings), content_chars=GOAL_CHARS)
    plan = read_plan({"complexity": "simple", "steps": [step]}, rules)
    assert isinstance(plan, dict), plan
    return {
        **propose(plan, None, settings, deps, known_language(settings.speaks)),
        "planning": fresh_planning(1, open=False),
    }
