"""The receive node reads the goal from the conversation and clears the state of the last request."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import Runtime, get_runtime
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore
from langgraph.types import Overwrite

from donewhen.graph.binding import saver_of_task
from donewhen.graph.context import Deps, settings_given
from donewhen.graph.events import emit, emit_note, log_of, thread_of, without_secrets
from donewhen.graph.executors.executor import constraint_problem, executor_problem
from donewhen.graph.llm.attachments import attach, attachment_problem, blocks_of
from donewhen.graph.llm.cost import find_unpriced
from donewhen.graph.llm.output import schema_form
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.pauses.plan import approval_record, criteria_problem, plan_effects, plan_rules
from donewhen.graph.people.consent import Proposal, propose_plan
from donewhen.graph.people.interjections import delete_interjections
from donewhen.graph.people.pauses import PUT_AWAY, ask_person, close_pause, typed_reply, with_reply_last
from donewhen.graph.people.tasks import close_tasks
from donewhen.graph.step.texts import Texts
from donewhen.graph.sync import call_in_time, load_jsonschema
from donewhen.graph.tools.changes import calls_of_requests
from donewhen.graph.tools.effects import Place, writes_of_request
from donewhen.graph.tools.program import programs_problem
from donewhen.state.channels import VERSION, Json, RunState
from donewhen.state.errors import ConfigError
from donewhen.state.language.texts import known_language, say, say_why, says_continue
from donewhen.state.ledger import meter
from donewhen.state.plan.plan import read_plan, revision_of
from donewhen.state.plan.planning import mode_row, plan_anew, plan_request
from donewhen.state.plan.text import template_lines
from donewhen.state.private_langgraph import CHECKPOINTER_KEY
from donewhen.state.proof.journal import entries_for_next_request
from donewhen.state.proof.outcome import displaced_line
from donewhen.state.records import EFFECTS
from donewhen.state.settings import Settings
from donewhen.state.values import FENCE_BYTES, clean_text, storable, store_label

GOAL_CHARS = 100_000
BACKGROUND_CHARS = 8_000
"""The most characters of `context`, and of `memory`."""
COMPACT_EVERY = 20
"""The number of requests after which deltas are stored in full again, so that older requests need not be read."""
GIVEN = "donewhen_plan_given"
"""Marks, in `additional_kwargs`, a message that comes with a plan."""
STEER = "donewhen_steer"
"""Marks, in `additional_kwargs`, a message for a run that was stopped."""
NOT_TAKEN = "donewhen_not_taken"
"""The key of `configurable` with the names of settings that a client of a server asked for and did not get."""


_log = logging.getLogger("donewhen")
_warned = set[str]()
"""The warnings of `_warn_of_short_store` that this process has logged."""


async def receive(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Json:
    """Start a new request with a fresh plan and fresh budgets; the conversation is kept.

    Raises ConfigError inside an outer graph that gave it no message: nobody would see an answer.
    """
    _warn_of_short_store(runtime, config, deps)
    settings, given = runtime.context, with_request_last(state)
    if not given and Place.of(config, depth=1).nodes:
        raise ConfigError(
            "the graph around DoneWhen gave it no message: its state needs the key `messages` (as LangGraph's "
            "MessagesState has), with the request in it"
        )
    messages = _cleaned(given, state.get("request"))
    goal = clean_text((typed_reply(messages) or "").strip())
    if read_typed(state) == "steer":
        return _go_on(state, goal, runtime)
    if settings.output_schema is not None:
        await load_jsonschema()
    update = _fresh_request(state, settings, goal[:GOAL_CHARS], messages)
    texts = Texts.of(runtime.store, thread_of(runtime), state)
    if Place.of(config, depth=1).nodes:
        update["request_mark"] = 10**9 + secrets.randbelow(9 * 10**9)
    elif was_cut_off(state):
        update |= await take_place(state, runtime.store, thread_of(runtime), update["turn"])
    if saver_of_task() is None:  # LangGraph keeps no context; an Agent keeps settings in the thread's row
        update["given_settings"] = settings_given(get_runtime().context)
    update["before"] = await texts.shorten_earlier(update["before"])
    changed = [new for new, before in zip(messages, given, strict=True) if new is not before]
    update["messages"] = [*changed, *update["messages"]]
    emit(runtime, "goal", text=goal[:2000], message=update["request"])
    files = blocks_of(messages[-1]) if messages else []
    unsaid = say_why(update["language"], "no_request") if messages and typed_reply(messages) is None else None
    problem = (
        unsaid
        or goal_problem(goal, with_files=bool(files))
        or executor_problem(settings.executor, deps.executors)
        or _schema_problem(settings)
    )
    problem = problem or constraint_problem(settings, deps.executors) or programs_problem(settings)
    problem = problem or await criteria_problem(settings, deps.executors)
    if problem := problem or attachment_problem(files, lambda role: deps.model(role, settings)):
        return {**update, "output_schema": None, "ending": {"code": "bad_goal", "reason": problem, "text": problem}}
    if problem := find_unpriced(deps, settings):
        return {**update, "ending": {"code": "model_error", "reason": problem}}
    if runtime.store is not None:
        await delete_interjections(runtime.store, thread_of(runtime), update["request"])
    update["attachments"] = await attach(messages, runtime)
    update["background"] = await _read_background(goal, update["language"], runtime, deps)
    named = deps.executors.active.get(settings.executor or "")
    if not_taken := config["configurable"].get(NOT_TAKEN):
        emit_note(runtime, update["language"], "not_taken", names=", ".join(sorted(not_taken)))
    if line := displaced_line({**state, **update}):
        emit(runtime, "note", text=without_secrets(runtime, {"text": line})["text"][:500])
    emit(runtime, "spent", meter=meter({}, settings.limits, {}))
    if (saved := await _load_given_plan(state, runtime, config)) is not None:
        emit(runtime, "mode", **(row := mode_row("plan", "settings", say(update["language"], "mode", "given"))))
        update["modes"] = Overwrite([dict(row)])
        return {**update, **_use_given_plan(saved, runtime, deps)}
    if named and named.passthrough:
        reason = say(update["language"], "mode", "whole", name=settings.executor)
        emit(runtime, "mode", **(row := mode_row("step", "executor", reason)))
        update["modes"] = Overwrite([dict(row)])
        return {**update, **_whole_goal_plan(goal, settings, deps)}
    return update


def _warn_of_short_store(runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> None:
    """Warn, once for each kind, that writes may be made twice: there is no store, or it ends before the saver does."""
    saver, store = config["configurable"].get(CHECKPOINTER_KEY), runtime.store
    kept = isinstance(saver, BaseCheckpointSaver)
    is_short = store is None or (isinstance(store, InMemoryStore) and not isinstance(saver, InMemorySaver))
    toolbox = deps.executors.toolbox
    writes = bool(deps.executors.active) or any(toolbox.effect(name) != "read" for name in toolbox)
    if not (kept and writes and is_short):
        return
    warning = (
        "Writes may be made twice, after a crash or in a fork of the thread: what says which were made is not kept as "
        f"long as the checkpoints of {type(saver).__name__} (store: {type(store).__name__ if store else 'none'}). "
        "Compile the graph with a store in the same place, such as AsyncPostgresStore or InMemoryStore"
    )
    if warning not in _warned:
        _warned.add(warning)
        _log.warning(warning)


def end_at_once(
    state: RunState, settings: Settings, request: Sequence[AnyMessage], approvals: Sequence[Json], reason: str
) -> Json:
    """Return the update that receives a request and cancels it at once, without work or questions."""
    messages = [*(state.get("messages") or ()), *request]
    goal = clean_text(messages[-1].text.strip())[:GOAL_CHARS]
    update = _fresh_request(state, settings, goal, messages)
    ended = {"ending": {"code": "cancelled", "reason": reason}, "approvals": Overwrite([*approvals])}
    return {**update, "messages": [*request, *update["messages"]], **ended}


async def _read_background(goal: str, language: str, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Read `context` and `memory` for this request. A source that fails is left out, with a note."""
    found: Json = {}
    for name, given in deps.background.items():
        try:
            asked = thread_of(runtime)
            text: Any = given
            if callable(given):
                text = await call_in_time(given, goal, asked, seconds=runtime.context.tool_seconds)
        except (Exception, SystemExit) as error:
            emit_note(runtime, language, "without", name=name, error=f"{type(error).__name__}: {error}")
            continue
        if shown := clean_text(str(text or "")).strip():
            found[name] = shown if len(shown) <= BACKGROUND_CHARS else f"{shown[:BACKGROUND_CHARS]} …"
    return found


def plan_key(thread_id: str) -> tuple[str, ...]:
    """Return the store namespace of plans that requests start with, each under its message's id."""
    return ("donewhen", "given", store_label(thread_id))


async def _load_given_plan(state: RunState, runtime: Runtime[Settings], config: RunnableConfig) -> Json | None:
    """Load the plan this request starts with. It is kept in the store, because clients can write any message."""
    messages = state.get("messages") or []
    if runtime.store is None or not messages or not messages[-1].additional_kwargs.get(GIVEN):
        return None
    item = await runtime.store.aget(plan_key(str(config["configurable"]["thread_id"])), str(messages[-1].id))
    return dict(item.value) if item else None


def _use_given_plan(saved: Json, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Validate a saved plan against today's rules. It keeps its approval, or is shown like any other plan."""
    settings = runtime.context
    rules = replace(plan_rules(deps, settings), repeats=False)
    plan = read_plan({key: item for key, item in saved["plan"].items() if key != "revision"}, rules)
    if isinstance(plan, list):
        return {"ending": {"code": "no_plan", "reason": "the saved plan cannot be used: " + "; ".join(plan)}}
    if (shown := saved["plan"].get("effects")) is None:  # an earlier version kept it, and is asked about nothing more
        same = {key: item for key, item in plan.items() if key != "effects"}
    else:
        same = plan = _with_effects_as_shown(plan, shown)
    emit(runtime, "plan", plan=plan)
    planned: Json = {"planning": plan_request(open=False)}
    if saved.get("approved") == revision_of(same):
        effects = {**plan_effects(plan, deps, settings).kinds, **(shown or {})}
        given = saved.get("approval") or {}
        record = approval_record(plan, "user", effects, given.get("name", ""))
        return {**planned, "plan": plan, "approval": {**record, "given": given}}
    language, template = known_language(settings.speaks), saved.get("template")
    proposed = propose_plan(Proposal(plan, language, template=template), settings, deps)
    if template and not proposed["pending"]:
        emit(runtime, "note", text="\n".join(template_lines(template, language)))
    return {**planned, **proposed}


def _with_effects_as_shown(plan: Json, shown: Mapping[str, str]) -> Json:
    """Return a saved plan in which no tool has a lesser effect than when it was shown."""
    now = plan.get("effects") or {}
    more = {name: each for name, each in shown.items() if EFFECTS.index(each) > EFFECTS.index(now.get(name, "read"))}
    whole = {**plan, "effects": {**now, **more}}
    return {**whole, "revision": revision_of(whole)}


def read_typed(state: RunState) -> Literal["answer", "steer", "request"]:
    """Return what the user's latest message is: an answer to the open question, words to a stopped run, or a request.

    Words that are marked as being for a stopped run never answer its question, which nobody was shown. Unmarked words
    to a run that was stopped at its end, without a plan, are a new request.
    """
    messages = with_reply_last(state)
    is_marked = bool(messages) and bool(messages[-1].additional_kwargs.get(STEER))
    if state.get("pending") and not is_marked and typed_reply(messages) is not None:
        return "answer"
    words = clean_text((typed_reply(with_request_last(state)) or "").strip())
    has_plan = state.get("approval") or not state.get("ending")
    goes_on = words and was_cut_off(state) and (is_marked or has_plan or says_continue(words))
    return "steer" if goes_on else "request"


def was_cut_off(state: Mapping[str, Any]) -> bool:
    """Return whether the last request neither ended nor was closed: a client pressed Stop, or the process died.

    It may have been stopped while its answer was written.
    """
    return bool(state.get("goal") and state.get("planning") and not state.get("outcome"))


async def take_place(state: Mapping[str, Any], store: BaseStore | None, thread_id: str, turn: int) -> Json:
    """Return the update by which request `turn` takes the place of all after this state's last one, and of that too if
    it is open.

    A person decides before a write of theirs is made again, and the receipt of `turn` names what they did.
    """
    last, keys = state.get("turn", 0), state.get("settled_writes") or ()
    if store is None:
        return {}
    update: Json = {}
    if was_cut_off(state):
        own = await writes_of_request(store, thread_id, last)
        update["settled_writes"] = Overwrite([key for key in keys if key not in own])
        last -= 1
    before = [{**call, "by": turn if call["by"] > last else call["by"]} for call in state.get("displaced") or ()]
    update["displaced"] = before + await calls_of_requests(store, thread_id, range(last + 1, turn), turn)
    return update


def _go_on(state: RunState, said: str, runtime: Runtime[Settings]) -> Json:
    """Continue an interrupted request: as it was on “continue”, else with a new plan that keeps finished steps (U4).

    Work that was at its end gets its answer on “continue”. A question that nobody was shown is asked then; otherwise it
    is closed.
    """
    log_of(thread_of(runtime)).turn = state.get("turn", 1)
    pending = load_pause(stored) if (stored := state.get("pending")) else None
    again = says_continue(said)
    closed = close_pause(state["messages"], pending, "Asked again." if again else "Planned anew.") if pending else []
    if again:
        asked: Json = ask_person({**state}, pending) if pending else {"messages": []}
        return {**asked, "messages": [*closed, *asked["messages"]]}
    emit_note(runtime, known_language(state.get("language")), "anew")
    return {"planning": plan_anew(state, said), "pending": None, "ending": None, "messages": closed}


def with_request_last(state: RunState) -> list[AnyMessage]:
    """Return the conversation with the user's latest message at its end, if it is a new one.

    In an outer graph others may have spoken since, such as a router or another agent.
    """
    messages = list(state.get("messages") or ())
    at = next((at for at in reversed(range(len(messages))) if isinstance(messages[at], HumanMessage)), None)
    old = max(_place_of(state.get(key), messages) for key in ("request", "last_answer"))
    if at is None or at + 1 == len(messages) or at < old:
        return messages
    known = (state.get("goal"), state.get("request") or str(messages[at].id or ""))  # older threads lack the id
    if (clean_text(messages[at].text.strip())[:GOAL_CHARS], str(messages[at].id or "")) == known:
        return messages
    return [*messages[:at], *messages[at + 1 :], messages[at]]


def _cleaned(messages: Sequence[AnyMessage], received: str | None) -> list[AnyMessage]:
    """Clean the messages that came since the request before, whose id is `received`: those until it were clean then."""
    at = _place_of(received, messages)
    return [*messages[: at + 1], *map(clean_message, messages[at + 1 :])]


def _place_of(id: Any, messages: Sequence[AnyMessage]) -> int:
    """Return the place of the message with this id; -1 if there is none."""
    return next((at for at in reversed(range(len(messages))) if id and messages[at].id == id), -1)


def clean_message(message: AnyMessage) -> AnyMessage:
    """Return a message of a client with what cannot be stored or sent replaced, such as half a character."""
    fields = {name: value for name, value in message if isinstance(value, str | list | dict)}
    changed = {name: new for name, value in fields.items() if (new := storable(value)) != value}
    return message.model_copy(update=changed) if changed else message


def _fresh_request(state: RunState, settings: Settings, goal: str, messages: Sequence[AnyMessage]) -> Json:
    """Return the update that begins a request: all keys of the last one are reset, and those of this one set.

    The conversation goes on, and the last requests' observations stay readable.
    """
    nothing: Json = dict.fromkeys(("plan", "pending", "put_off", "approval", "ending", "outcome"))
    nothing["interjection_cursor"] = ""
    lists: Json = {key: Overwrite([]) for key in ("journal", "approvals", "modes", "todos")} | {"attachments": []}
    lists["background"] = {}
    maps: Json = {key: Overwrite({}) for key in ("steps", "transcripts", "spent", "granted", "files")}
    turn = state.get("turn", 0) + 1
    scope = state.get("scope") or state.get("fence") or secrets.token_hex(FENCE_BYTES)  # once it was one word
    request, last = (str(each[-1].id or "") if each else "" for each in (messages, state.get("messages") or ()))
    language = known_language(settings.speaks, state.get("language"))
    known: Json = {
        "messages": close_tasks(state.get("steps") or {}, language, PUT_AWAY)[0],
        "fence": secrets.token_hex(FENCE_BYTES),
        "scope": Overwrite(scope),  # stored again, as `before` is, so that no older turn is read
        "goal": goal,
        "request": request,
        "output_schema": settings.output_schema,
        "language": language,
        "conversation_end": last if last != request else "",
        "before": entries_for_next_request(state),
        "version": VERSION,
        "turn": turn,
        "planning": plan_request(),
    }
    for key in ("answered_by", "approvers"):
        if (named := getattr(settings, key)) != (state.get(key) or {}):
            known[key] = named
    if (keys := state.get("settled_writes")) and turn % COMPACT_EVERY == 0:
        known["settled_writes"] = Overwrite(keys)
    return {**nothing, **lists, **maps, **known}


def goal_problem(goal: str, *, with_files: bool = False) -> str | None:
    """Return why this goal cannot be worked on, in words for the user; None if it can."""
    if not goal and with_files:
        return "A picture or file alone is no goal. Say in words what you want done with it, and send both again."
    if not goal:
        return "The goal is empty. Say what you want done."
    if len(goal) > GOAL_CHARS:
        return (
            f"The goal has {len(goal):,} characters; at most {GOAL_CHARS:,} are read. "
            "Put long material into a file and name it in the goal."
        )
    return None


def _schema_problem(settings: Settings) -> str | None:
    try:
        if settings.output_schema is not None:
            schema_form(settings.output_schema)
    except ConfigError as error:
        return str(error)
    return None


def _whole_goal_plan(goal: str, settings: Settings, deps: Deps) -> Json:
    """Return a one-step plan with the unchanged goal, for an executor that skips planning (P16)."""
    step = {"content": goal, "executor": settings.executor, "tools": None}
    rules = replace(plan_rules(deps, settings), content_chars=GOAL_CHARS)
    plan = read_plan({"complexity": "simple", "steps": [step]}, rules)
    assert isinstance(plan, dict), plan
    return {
        **propose_plan(Proposal(plan, known_language(settings.speaks)), settings, deps),
        "planning": plan_request(open=False),
    }
