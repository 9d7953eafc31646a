"""The advance node: the only place that decides what runs next. Ready steps, a question, a replan, or the end."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import Overwrite

from donewhen.graph.context import Deps
from donewhen.graph.day_budget import accounts_today
from donewhen.graph.events import emit, emit_note, emit_step_finished, moment, now
from donewhen.graph.pauses.early import EarlyPause
from donewhen.graph.pauses.failure import FailurePause
from donewhen.graph.pauses.pause import OpenPause, ResolvedAnswer, load_pause
from donewhen.graph.people.budget import (
    budget_pause,
    excess_questions,
    has_left,
    run_account,
    step_account,
    step_remaining,
)
from donewhen.graph.people.consent import activate_plan, check_for_changes
from donewhen.graph.people.interjections import RUN, interjection_entries, mark_heard, new_interjections
from donewhen.graph.people.pauses import ask_person, current_pause, open_pauses
from donewhen.graph.people.tasks import checklist, close_tasks, open_tasks
from donewhen.graph.step.audit import can_judge, is_audit_due
from donewhen.state.channels import Json, RunState, apply_update, difference, merge_records
from donewhen.state.language.texts import amount_name, catalogue, option_texts, say, say_why
from donewhen.state.ledger import Amounts, DayAccount, add, first_exhausted, meter
from donewhen.state.people.answers import Answer
from donewhen.state.plan.next import Move, next_move
from donewhen.state.plan.plan import answering_step, find_step
from donewhen.state.plan.planning import mode_row, plan_after_failure, plan_growth, promotion_reasons
from donewhen.state.plan.steps import BLOCKED, UNWANTED, fresh_attempts, next_needs, standstill_notice
from donewhen.state.plan.text import step_numbers
from donewhen.state.proof.journal import user_statements
from donewhen.state.records import StepChange, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import FINAL, change_status

NO_QUESTIONS = (
    "No question was asked: the limit of questions is reached. Go on without the answer: take what is most likely "
    "and say so in the result, or give_up."
)
FINAL_CODES = ("model_error", "refused")
"""Codes of a failed step that become the run's, because another plan would not help."""


async def advance(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Decide what runs next and leave it in state; the route after this node only reads it."""
    settings = runtime.context
    if state.get("ending") or state["planning"]["open"]:
        return {}
    values: Json = dict(state)
    if changed := check_for_changes(values, deps, settings):
        values = apply_update(values, changed)
        if "approval" not in changed:
            emit_note(runtime, values.get("language", "en"), "other_plan")
            return difference(state, values)
    values = apply_update(values, activated := activate_plan(values, now()))
    if approval := activated.get("approval"):
        emit(runtime, "revision", **{key: approval[key] for key in ("revision", "by", "plan")})
        edits = [row for row in values["approvals"] if row.get("approved_revision") == approval["revision"]]
        if changes := [line for row in edits[-1:] for line in row.get("changes") or ()]:
            note = say(values.get("language", "en"), "changed", "edited", changes="; ".join(changes))
            emit(runtime, "note", text=note[:2000])
    # No step works while this node runs, so a running step was interrupted and starts again.
    interrupted = [id for id, record in values["steps"].items() if record["status"] == "running"]
    restarted = {id: change_status(values["steps"][id], {"status": "ready"}) for id in interrupted}
    values = apply_update(values, {"steps": restarted})
    new_attempts = fresh_attempts(values["steps"])
    for id in new_attempts:
        emit_note(runtime, values.get("language", "en"), "tried_again", step=id)
    values = apply_update(values, {"steps": new_attempts})
    plan, language = values["plan"], values.get("language", "en")
    spent, granted = values.get("spent") or {}, values.get("granted") or {}
    days = await accounts_today()
    move = next_move(values, settings, _writers(plan, deps, settings), days)
    if move.kind == "dispatch":  # only now: the briefs of the dispatched steps include the words
        values = apply_update(values, await _hear(values, runtime))
    values = apply_update(values, {"steps": _changed(values, move.changes)})
    for id, record in move.changes.items():
        emit_step_finished(runtime, id, record)
    is_end = move.kind == "end" and move.key == "worked"
    update = _ask_before_end(values, settings, deps, days) if is_end else {}
    update = update or _MAKE[move.kind](values, move, settings, runtime, deps)
    messages = update.pop("messages", [])
    values = apply_update(values, update)
    for id in move.steps if move.kind == "dispatch" else ():
        if missing := deps.missing_tools(plan, find_step(plan, id)):
            emit_note(runtime, language, "missing_tools", step=id, names=", ".join(missing))
    results, closed = close_tasks(values["steps"], language)
    rows = checklist(plan, values["steps"], language, answered=False)
    emit(runtime, "todos", todos=rows)
    emit(runtime, "spent", meter=meter(spent, settings.limits, granted))
    values = apply_update(values, {"steps": closed, "todos": Overwrite(rows), "messages": [*results, *messages]})
    return difference(state, values)


async def _hear(values: Mapping[str, Any], runtime: Runtime[Settings]) -> Json:
    """Return the update with the user's words to the run since steps were dispatched last."""
    if not (rows := await new_interjections(runtime, values.get("interjection_cursor") or "", RUN)):
        return {}
    rows = await mark_heard(runtime, rows, None)
    return {
        "journal": interjection_entries(rows, values.get("journal") or ()),
        "interjection_cursor": rows[-1]["key"],
    }


def _changed(values: Mapping[str, Any], changes: Mapping[str, StepChange]) -> dict[str, StepChange]:
    """Return these changes of records, each with what follows from its new status."""
    return {id: change_status(values["steps"][id], change, now()) for id, change in changes.items()}


def _writers(plan: Mapping[str, Any], deps: Deps, settings: Settings) -> set[str]:
    """Return the steps that may write, by the tools they list or, without a list, by their executor's tools."""

    @cache
    def may_write(name: str | None, tools: tuple[str, ...] | None) -> bool:
        toolbox, executor = deps.tools_for(name, settings), deps.executors.get(name) if name else None
        if executor is not None and executor.works_alone:
            return True
        return any(toolbox.effect(tool) != "read" for tool in toolbox if tools is None or tool in tools)

    steps = ((step["id"], step.get("executor"), step.get("tools")) for step in plan["steps"])
    return {id for id, name, tools in steps if may_write(name, None if tools is None else tuple(tools))}


def _dispatch(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    changes: dict[str, StepChange] = {}
    answer = answering_step(values["plan"])
    messages, records = open_tasks(values["plan"], [id for id in move.steps if not values["steps"][id]["task"]])
    for id, allowance in move.allowances.items():
        record: StepRecord = values["steps"][id]
        if record["status"] == "pending":
            emit(runtime, "step_started", step=id, content=find_step(values["plan"], id)["content"])
        change: StepChange = {"status": "running", "allowance": allowance, "answers": id == answer}
        change |= {"today": settings.today_text, "started": record["started"] or now()}
        changes[id] = change_status(record, change)
    return {"steps": merge_records(changes, [records]), "messages": messages}


def _ask(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Ask the first waiting step's question.

    For every waiting question the time to answer begins, and the question is counted, when it is first listed. At the
    limit of questions, a larger limit is asked for, or the policy answers (H13, Q7).
    """
    waiting = {id: values["steps"][id]["waiting"] for id in move.steps}
    new = [id for id, pause in waiting.items() if load_pause(pause).counted and "asked_at" not in pause]
    over = excess_questions(values, settings, new)
    listed = [id for id in move.steps if id not in over]
    if not listed:
        return _ask_for_more_questions(values, over[0], settings)
    asked_at = moment()
    stamped: Json = {id: {"waiting": {"asked_at": asked_at, **waiting[id]}} for id in listed}
    for id in set(new) - set(over):
        stamped[id]["spent"] = add(values["steps"][id]["spent"], {"questions": 1})
    steps = merge_records({id: values["steps"][id] for id in values["steps"] if id not in over}, [stamped])
    pauses = open_pauses({**values, "steps": steps, "pending": None})
    update = ask_person(values, current_pause(pauses))
    return {**update, "steps": stamped, "spent": {"questions": len(new) - len(over)} if len(new) > len(over) else {}}


def _ask_for_more_questions(values: Json, id: str, settings: Settings) -> Json:
    """Ask whether more questions are allowed; if limits are not asked about, continue without an answer."""
    pause = values["steps"][id]["waiting"]
    if settings.at_limit != "ask":
        return load_pause(pause).apply(values, ResolvedAnswer(Answer("declined", NO_QUESTIONS), "policy", moment()))
    needs = ("questions",)
    is_of_step = first_exhausted(step_remaining(values, settings, id), needs) == "questions"
    account = step_account(values, settings, id, needs) if is_of_step else run_account(values, settings, needs=needs)
    name = f"budget.{id if is_of_step else 'run'}.questions.{account.total('questions'):g}"
    limit_pause = budget_pause(account, "questions", name, replans_left=has_left(values, settings, "replans"))
    wants = say(account.language, "ask", "wants", step=id, question=_indent(str(pause["question"])))
    return ask_person(values, limit_pause.but(question=f"{limit_pause.question}\n\n{wants}"))


def _handle_failure(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Answer a failed step with another plan, a question, or an honest partial delivery."""
    language, codes = values.get("language", "en"), {values["steps"][id]["code"] for id in move.steps}
    handled = {id: {"handled": True} for id in move.steps}
    if _failed_twice(values, move, settings):
        why = say(language, "note", "failed_twice", why=values["steps"][move.steps[0]]["reason"])
        row = mode_row("plan", "promotion", say(language, "mode", "promoted", said=why))
        emit(runtime, "mode", **row)
        planning = plan_after_failure(values, _describe_failure(values, move.steps[0]), twice=True)
        return {"steps": handled, "planning": planning, "modes": [dict(row)], "spent": {"replans": 1}}
    failure = "\n".join(_describe_failure(values, id) for id in move.steps)
    replans = settings.on_failure == "replan" or any(_is_unwanted(values, id) for id in move.steps)
    may_replan = has_left(values, settings, "replans")
    # Another plan helps neither a step that is blocked nor one whose claim could not be judged.
    waits = BLOCKED in codes or any(values["steps"][id]["claim"] for id in move.steps)
    asks = settings.on_failure == "ask" or (waits and replans and not settings.unattended)
    asks = asks and has_left(values, settings, "questions")
    if replans and may_replan and not asks and codes.isdisjoint((*FINAL_CODES, "executor_failed")):
        emit_note(runtime, language, "another_way")
        return {"steps": handled, "planning": plan_after_failure(values, failure), "spent": {"replans": 1}}
    descriptions = {id: _describe_failure(values, id, language, numbered=True) for id in move.steps}
    if asks:
        lines = "\n".join(text + _last_seen(values, id) for id, text in descriptions.items())
        question = f"{lines}\n\n{say(language, 'ask', 'failure')}"
        granted = {} if may_replan else {"replans": 1}
        return _ask_about(
            values, move, FailurePause, question, failed=list(move.steps), failure=failure, with_replan=granted
        )
    code = next((code for code in FINAL_CODES if code in codes), "worked")
    return {"steps": handled, "ending": {"code": code, "reason": "\n".join(descriptions.values())}}


def _is_unwanted(values: Json, id: str) -> bool:
    """Return whether a step ended because of what a person said since the plan was approved: that is no failure."""
    record = values["steps"][id]
    if record["code"] != UNWANTED:
        return False
    approved = max((row["at"] for row in values["approvals"] if "approved_revision" in row), default="")
    return any(each["at"] > approved for each in (*record["heard"], *user_statements(values)))


def _failed_twice(values: Json, move: Move, settings: Settings) -> bool:
    """Return whether the run's only step failed again, so that several steps are planned in its place."""
    is_replanned = values["planning"]["why"]["kind"] == "failure" and settings.on_failure == "replan"
    may_go_on = values["steps"][move.steps[0]]["code"] not in FINAL_CODES
    return is_replanned and may_go_on and "rounds" in promotion_reasons(values, move.steps[0], settings)


def _promote(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Start planning more steps behind the run's only step, which continues meanwhile."""
    (id,) = move.steps
    code, why = values["steps"][id]["code"], str(values["steps"][id]["reason"])
    emit_note(runtime, values.get("language", "en"), "larger_plan", step=id, why=why)
    planning = plan_growth(values, code, f"{id}: {why}")
    return {"steps": {id: {"code": "", "reason": ""}}, "planning": planning, "spent": {"replans": 1}}


def _handle_early_end(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Ask the person who approved the plan whether to skip the rest, if a step says it is not needed (C04)."""
    records = values["steps"]
    if not has_left(values, settings, "questions"):
        emit_note(runtime, values.get("language", "en"), "rest_goes_on")
        return {"steps": {id: {"finished_task": None} for id in move.steps}}
    speak = partial(say, values.get("language", "en"), "ask")
    open_steps = [step for step in values["plan"]["steps"] if records[step["id"]]["status"] not in FINAL]
    why = "; ".join(str(records[id]["finished_task"]) for id in move.steps)[:500]
    lines = "\n".join(f"- {step['id']}: {step['content']}" for step in open_steps)
    reached = speak("early", steps=", ".join(move.steps), said=_indent(why))
    question = f"{reached}\n\n{speak('early_rest')}\n\n{lines}"
    return _ask_about(values, move, EarlyPause, question, early=list(move.steps))


def _ask_about(values: Json, move: Move, kind: type[OpenPause], question: str, **more: Any) -> Json:
    """Ask one of the runtime's own questions about these attempts of steps."""
    attempts = sum(values["steps"][id]["attempt"] for id in move.steps)
    id, options = f"{kind.topic}.{'-'.join(move.steps)}.{attempts}", option_texts("en", kind.topic)
    return {**ask_person(values, kind.ask(id, question, options=options, **more)), "spent": {"questions": 1}}


def _describe_failure(values: Json, id: str, language: str = "en", *, numbered: bool = False) -> str:
    """Return what failed and why: in English with the step's id for models, in their language by number for people."""
    record = values["steps"][id]
    content = find_step(values["plan"], id)["content"][:200]
    status = catalogue(language)["summary"].get(record["status"], record["status"])
    why = _indent("; ".join(filter(None, (record["reason"], standstill_notice(record, language)))))
    step = step_numbers(values["plan"])[id] if numbered else id
    return say(language, "ask", "failed", step=step, content=content, status=status, why=why)


def _last_seen(values: Json, id: str) -> str:
    """List the last observations of a step, for a person; the planner has them all."""
    latest = [e for e in values.get("journal") or () if e["step"] == id][-3:]
    label = say(values.get("language", "en"), "ask", "seen")
    return "".join(f"\n- {label}: {e['tool'] or e['source']}: {_indent(e['text'][:300])}" for e in latest)


def _handle_limit(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """Ask for more budget at a limit, or end these steps.

    The run ends with them, unless the limit is a step's own and `at_limit` is `deliver`. Nobody is asked about a
    deadline.
    """
    scope = move.scope
    language = values.get("language", "en")
    if move.key == "deadline":
        reason = say_why(language, "deadline", deadline=settings.deadline)
    else:
        limit = "limit_of_step" if scope else "limit_of_day" if move.day else "limit_of_run"
        reason = say_why(language, limit, key=amount_name(language, move.key))
    if settings.at_limit == "ask" and move.key != "deadline":
        needs = next_needs(values["steps"][move.steps[0]])
        if scope:
            account = step_account(values, settings, scope, needs)
        else:
            account = run_account(values, settings, needs=needs, to_prove=_amounts_to_prove(values, settings, deps))
        account = account.of_day(move.day)
        whose = move.day.scope if move.day else scope or "run"
        id = f"budget.{whose}.{move.key}.{account.total(move.key):g}"
        pause = budget_pause(account, move.key, id, replans_left=has_left(values, settings, "replans"))
        return ask_person(values, pause)
    emit_note(runtime, language, "out_of_budget", why=reason)
    reasons = {
        id: "; ".join(filter(None, (reason, standstill_notice(values["steps"][id], language)))) for id in move.steps
    }
    ended = _changed(values, {id: {"status": "exhausted", "reason": reasons[id], "handled": True} for id in move.steps})
    for id, record in ended.items():
        emit_step_finished(runtime, id, record)
    if scope and settings.at_limit != "stop":
        return {"steps": ended}
    code = "stopped" if settings.at_limit == "stop" else "out_of_budget"
    return {"steps": ended, "ending": {"code": code, "reason": reason}}


def _amounts_to_prove(values: Json, settings: Settings, deps: Deps) -> Amounts:
    """Return what it takes to write, check and audit the answer when all steps are done, without what takes nothing."""
    plan = values["plan"]
    if id := answering_step(plan):  # its proof is made, and perhaps its audit
        lacks = (values["steps"][id]["audit"] or {}).get("lacks")
        return {"model_calls": 1} if lacks else {}
    goal = plan.get("done_when") or ()
    checks = sum(bool(criterion.get("check")) for criterion in goal)
    is_audited = is_audit_due(settings, values) and can_judge(deps, settings)
    requests = 1 + is_audited if is_audited or goal else 0
    return {key: amount for key, amount in (("model_calls", requests), ("tool_calls", checks)) if amount}


def _ask_before_end(values: Json, settings: Settings, deps: Deps, days: Sequence[DayAccount]) -> Json:
    """Ask for more budget if all steps are done, and nothing is left to prove their answer; {} otherwise."""
    plan, records = values["plan"], values["steps"]
    may_ask = settings.at_limit == "ask" and not settings.is_late()
    if not may_ask or any(records[step["id"]]["status"] != "done" for step in plan["steps"]):
        return {}
    takes = _amounts_to_prove(values, settings, deps)
    run = run_account(values, settings, needs=(*takes,), at_end={key: n - 1 for key, n in takes.items() if n > 1})
    accounts = [run, *(run.of_day(day) for day in days)]
    account = next((each for each in accounts if each.keys), None) if takes else None
    if account is None:
        return {}
    id = f"budget.end.{account.keys[0]}.{account.total(account.keys[0]):g}"
    return ask_person(values, budget_pause(account, account.keys[0], id))


def _end(values: Json, move: Move, settings: Settings, runtime: Runtime[Settings], deps: Deps) -> Json:
    """End the run with the reasons that the current plan's steps give; steps of earlier plans no longer count."""
    current = (values["steps"][step["id"]] for step in values["plan"]["steps"])
    reasons = (
        record["finished_task"] or record["reason"]
        for record in current
        if record["status"] != "done" or record["finished_task"]
    )
    return {"ending": {"code": move.key, "reason": "; ".join(dict.fromkeys(filter(None, reasons)))[:1000]}}


def _indent(text: str) -> str:
    """Indent all lines but the first, so that none can pass for a line of the runtime."""
    return "\n    ".join(text.splitlines())


_MAKE: Mapping[str, Callable[[Json, Move, Settings, Runtime[Settings], Deps], Json]] = {
    "dispatch": _dispatch,
    "promote": _promote,
    "ask": _ask,
    "early": _handle_early_end,
    "failed": _handle_failure,
    "budget": _handle_limit,
    "end": _end,
}
"""The function that makes the update for each kind of move."""
