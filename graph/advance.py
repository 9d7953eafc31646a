"""The advance node: the only place that decides what runs next. Ready steps, a question, a replan, or the end."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from langgraph.runtime import Runtime

from donewhen.graph.context import Deps, settings_of
from donewhen.graph.events import emit, mode_chosen, now
from donewhen.graph.people.budget import budget_pause, one_left, run_account, step_account
from donewhen.graph.people.consent import changed_since, put_to_work
from donewhen.graph.people.pauses import pause
from donewhen.graph.people.posing import ask_waiting, inset, posed
from donewhen.graph.people.tasks import checklist, closed, opened
from donewhen.graph.people.told import as_entries, told_since
from donewhen.state.channels import merge_records
from donewhen.state.graph_state import Json, RunState, changed_todos
from donewhen.state.language.texts import say, shown_options
from donewhen.state.ledger import meter
from donewhen.state.plan.modes import PROMOTED, mode_row, promotable
from donewhen.state.plan.plan import step_of
from donewhen.state.plan.planning import replanning
from donewhen.state.plan.progress import Move, next_move
from donewhen.state.plan.steps import next_needs, standstill
from donewhen.state.proof.outcome import FINAL
from donewhen.state.records import Pause
from donewhen.state.settings import Settings
from donewhen.state.updates import applied, together


async def advance(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Decide what runs next and leave it in state; the route after this node only reads it."""
    settings = settings_of(runtime)
    if state.get("ending") or state["planning"].get("open"):
        return {}
    told = await told_since(runtime, settings, state.get("heard") or "")
    if told:
        number = 1 + sum(entry["id"].startswith("said.") for entry in state.get("journal") or ())
        heard: Json = {"journal": as_entries(told, number), "heard": told[-1]["key"]}
        update = await _advanced(applied(state, heard), runtime, settings, deps)  # type: ignore[arg-type]
        return together(heard, update)  # type: ignore[return-value]
    return await _advanced(state, runtime, settings, deps)


async def _advanced(state: RunState, runtime: Runtime[Settings], settings: Settings, deps: Deps) -> RunState:
    changed = changed_since(state, deps, settings)
    if changed is not None and "approval" not in changed:
        emit(runtime, "note", text="The plan is not the one that was approved; nothing of it runs before it is.")
        return changed  # type: ignore[return-value]
    fresh = put_to_work(applied(state, changed or {}), now())
    if approval := fresh.get("approval"):
        emit(runtime, "revision", **{key: approval[key] for key in ("revision", "by", "plan")})
    start = together(changed or {}, fresh)
    values = applied(applied(state, start), {"steps": _cut_off(state)})
    update = {**start, **_moved(values, settings, runtime, deps)}
    return {**update, "steps": _changes(state.get("steps") or {}, update["steps"])}  # type: ignore[typeddict-item]


def _changes(before: Mapping[str, Json], records: Mapping[str, Json]) -> Json:
    """What is new in the records, field by field: all of them in every checkpoint would grow with the square."""
    changed = {
        id: {key: value for key, value in record.items() if key not in old or old[key] != value}
        for id, record in records.items()
        for old in (before.get(id, {}),)
    }
    return {id: fields for id, fields in changed.items() if fields}


def _cut_off(state: RunState) -> Json:
    """Nothing is at work while this node is: a step that seems to be lost its end, and goes on from its beginning."""
    records = state.get("steps") or {}
    return {id: {"status": "ready"} for id, record in records.items() if record.get("status") == "running"}


def _moved(values: Json, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """The update that makes the next move; it holds the records of all steps."""
    plan, spent, granted = values["plan"], values.get("spent") or {}, values.get("granted") or {}
    move = next_move(
        plan,
        values["steps"],
        settings=settings,
        spent=spent,
        granted=granted,
        writers=_writers(plan, deps, settings),
        late=settings.late(),
        bound=settings.approvals == "each" and (values.get("approval") or {}).get("by") == "user",
    )
    records = merge_records(values["steps"], _ends(move.changes))
    for id, change in move.changes.items():
        emit(runtime, "step_finished", step=id, status=change["status"], result="", reason=change.get("reason", ""))
    update = _DO[move.kind]({**values, "steps": records}, move, settings, runtime)
    steps, language = merge_records(records, update.get("steps")), values.get("language", "en")
    results, shut = closed(steps, language)
    rows = checklist(plan, steps, language, answered=False)
    emit(runtime, "todos", todos=rows)
    emit(runtime, "spent", meter=meter(spent, settings.limits, granted))
    said = [*results, *update.get("messages", ())]
    written = changed_todos(values.get("todos") or (), rows)
    return {**update, "steps": merge_records(steps, shut), "todos": written, "messages": said}


def _ends(changes: Json) -> Json:
    """Changes of records, with the time for those that end."""
    ended = {"ended": now()}
    return {id: {**change, **(ended if change.get("status") in FINAL else {})} for id, change in changes.items()}


def _writers(plan: Mapping[str, Any], deps: Deps, settings: Settings) -> set[str]:
    """Steps that may change something: by the tools they list, else by all tools their executor has."""
    found = set()
    for step in plan["steps"]:
        toolbox = deps.tools_for(step.get("executor"), settings)
        names = toolbox.names if step.get("tools") is None else step["tools"]
        executor = deps.executors.get(step.get("executor") or "")
        alone = executor is not None and executor.works_alone
        if alone or any(toolbox.effect(name) != "read" for name in names if name in toolbox.names):
            found.add(step["id"])
    return found


def _dispatch(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    changes = {}
    shown, records = opened(values["plan"], [id for id in move.steps if not values["steps"][id].get("task")])
    for id, allowance in zip(move.steps, move.allowances, strict=True):
        if values["steps"][id].get("status", "pending") == "pending":
            emit(runtime, "step_started", step=id, content=step_of(values["plan"], id)["content"])
        changes[id] = {"status": "running", "allowance": allowance, "today": settings.today}
        if not values["steps"][id].get("started"):
            changes[id]["started"] = now()
        if values["steps"][id].get("ended"):
            changes[id]["ended"] = ""
    return {"steps": merge_records(changes, records), "messages": shown}


def _failed(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    """A step failed: another plan, a question, or an honest partial delivery."""
    codes = {values["steps"][id].get("code") for id in move.steps}
    handled = {id: {"handled": True} for id in move.steps}
    if promoted := _promoted(values, move, settings):
        return {"steps": handled, **_promotion(values, move, promoted, runtime)}
    failure, replans = "\n".join(_failure(values, id) for id in move.steps), settings.on_failure == "replan"
    free = one_left(values, settings, "replans")
    asks = settings.on_failure == "ask" or ("gave_up:blocked" in codes and replans and not settings.alone)
    asks = asks and one_left(values, settings, "questions")
    if replans and free and not asks and codes.isdisjoint(("model_error", "executor_failed")):
        emit(runtime, "note", text="A step failed; looking for another way.")
        return {"steps": handled, "planning": replanning(values, failure), "spent": {"replans": 1}}
    if asks:
        question = f"{failure}\n\n{say(values.get('language', 'en'), 'ask', 'failure')}"
        granted = {} if free else {"replans": 1}
        return _asked(values, move, "failure", question, failed=list(move.steps), failure=failure, with_replan=granted)
    code = "model_error" if "model_error" in codes else "worked"
    return {"steps": handled, "ending": {"code": code, "reason": failure}}


def _promoted(values: Json, move: Move, settings: Settings) -> str:
    """The code with which the only step of a run left because the run takes a plan, or failed again; else ""."""
    (first, *_), records = move.steps, values["steps"]
    code = str(records[first].get("code", ""))
    if code.startswith(PROMOTED):
        return code
    again = bool(values["planning"].get("failure")) and settings.on_failure == "replan" and code != "model_error"
    return f"{PROMOTED}failed" if again and "rounds" in promotable(values, first, settings) else ""


def _promotion(values: Json, move: Move, code: str, runtime: Runtime[Settings]) -> Json:
    """One step was too little: a plan of several, by a planner that knows what was seen."""
    (id, *_), record = move.steps, values["steps"][move.steps[0]]
    said = f"it failed twice: {record.get('reason', '')}" if code.endswith("failed") else str(record.get("reason", ""))
    row = mode_row("plan", "promotion", say(values.get("language", "en"), "mode", "promoted", said=said))
    mode_chosen(runtime, row)
    planning = replanning(values, _failure(values, id), promoted=code)
    return {"planning": planning, "modes": [dict(row)], "spent": {"replans": 1}}


def _early(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    """A step says that the rest of what a person approved is not needed: that is for the person to say (C04)."""
    records = values["steps"]
    if not one_left(values, settings, "questions"):
        emit(runtime, "note", text="The plan goes on: nobody can be asked whether the rest of it is needed.")
        return {"steps": {id: {"finished_task": None} for id in move.steps}}
    speak = partial(say, values.get("language", "en"), "ask")
    left = [step for step in values["plan"]["steps"] if records[step["id"]].get("status") not in FINAL]
    said = "; ".join(str(records[id]["finished_task"]) for id in move.steps)[:500]
    lines = "\n".join(f"- {step['id']}: {step['content']}" for step in left)
    reached = speak("early", steps=", ".join(move.steps), said=inset(said))
    question = f"{reached}\n\n{speak('early_rest')}\n\n{lines}"
    return _asked(values, move, "early", question, early=list(move.steps))


def _asked(values: Json, move: Move, about: Literal["failure", "early"], question: str, **more: Any) -> Json:
    """A question of the runtime's own, about these attempts of steps."""
    attempts = sum(values["steps"][id].get("attempt", 1) for id in move.steps)
    id, options = f"{about}.{'-'.join(move.steps)}.{attempts}", shown_options("en", about)
    asked = posed(values, pause("question", id, question, options=options, about=about, **more))
    return {**asked, "spent": {"questions": 1}}


def _failure(values: Json, id: str) -> str:
    record = values["steps"][id]
    seen = [e for e in values.get("journal") or () if e["step"] == id][-3:]
    tail = "".join(f"\n- seen: {e['tool'] or e['source']}: {inset(e['text'][:300])}" for e in seen)
    content = step_of(values["plan"], id)["content"][:200]
    why = "; ".join(filter(None, (record.get("reason"), standstill(record))))
    return f"Step {id} ({content}) {record['status']}: {inset(why)}{tail}"


def _budget(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    """A limit is reached, or the deadline: ask for more, or end honestly."""
    scope = move.scope
    reason = f"the limit of {move.key} for {f'step {scope}' if scope else 'the run'} was reached"
    if move.key == "deadline":
        reason = f"the deadline, {settings.deadline}, has passed"
    if settings.at_limit == "ask" and move.key != "deadline":
        return posed(values, _budget_pause(values, move, settings))
    emit(runtime, "note", text=f"Out of budget: {reason}.")
    why = {id: "; ".join(filter(None, (reason, standstill(values["steps"][id])))) for id in move.steps}
    ended = _ends({id: {"status": "exhausted", "reason": why[id], "handled": True} for id in move.steps})
    for id in move.steps:
        emit(runtime, "step_finished", step=id, status="exhausted", result="", reason=why[id])
    if scope and settings.at_limit != "stop":
        return {"steps": ended}
    code = "stopped" if settings.at_limit == "stop" else "out_of_budget"
    return {"steps": ended, "ending": {"code": code, "reason": reason}}


def _budget_pause(values: Json, move: Move, settings: Settings) -> Pause:
    needs = next_needs(values["steps"][move.steps[0]])
    if move.scope:
        account = step_account(values, settings, move.scope, needs)
    else:
        account = run_account(values, settings, needs=needs)
    id = f"budget.{move.scope or 'run'}.{move.key}.{account.total(move.key):g}"
    return budget_pause(account, move.key, id, replans_left=one_left(values, settings, "replans"))


def _end(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings]) -> Json:
    return {"ending": {"code": move.key, "reason": _reason(values["plan"], values["steps"])}}


def _reason(plan: Mapping[str, Any], records: Mapping[str, Mapping[str, Any]]) -> str:
    """What the steps of the plan say themselves; those of a plan before it no longer count."""
    present = (records.get(step["id"], {}) for step in plan["steps"])
    said = (
        record.get("finished_task") or record.get("reason")
        for record in present
        if record.get("status") != "done" or record.get("finished_task")
    )
    return "; ".join(dict.fromkeys(text for text in said if text))[:1000]


_DO = {"dispatch": _dispatch, "ask": ask_waiting, "early": _early, "failed": _failed, "budget": _budget, "end": _end}
