"""The nodes that wait for a person, `confirm` and `ask_user`: they read and check the answer and apply it to the run.

Neither does anything before its only interrupt, because it runs again from its beginning when the answer comes. An
answer is applied whole or not at all; `advance` continues from the new state.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import now
from donewhen.graph.executors.executor import Executors
from donewhen.graph.executors.relay import read_form, review_decision
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.llm.history import render_observation
from donewhen.graph.people.consent import approval_record, decision_row, plan_rules
from donewhen.graph.people.pauses import (
    close_pause,
    current_pause,
    keep_open,
    open_pauses,
    pause_message,
    typed_reply,
    wait_for_answer,
    with_fresh_call,
)
from donewhen.state.channels import PLANNING, Json, RunState, StateChange, merge_records
from donewhen.state.language.texts import amount_name, catalogue, option_key, say, say_why, translate_option
from donewhen.state.ledger import add
from donewhen.state.people.answers import (
    JUDGEMENT,
    Answer,
    answers_by_id,
    fills_form,
    is_own_interrupt,
    named_pauses,
    read_answer,
)
from donewhen.state.people.edit import add_line_number
from donewhen.state.people.payload import language_of
from donewhen.state.plan.plan import read_plan, revision_of
from donewhen.state.plan.planning import (
    OF_PROPOSAL,
    OF_REQUEST,
    fresh_planning,
    start_replanning,
    unfinished_steps,
)
from donewhen.state.plan.revise import difference
from donewhen.state.plan.schedule import next_moments
from donewhen.state.plan.steps import fresh_records, transcript_key
from donewhen.state.plan.text import moments_text, schedule_text
from donewhen.state.proof.journal import call_key, canonical_json, observation
from donewhen.state.records import NOT_MADE, Call, Decided, Known, Pause, StepRecord, decision_on
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings
from donewhen.state.statuses import change_status
from donewhen.state.values import json_problem, same_json

ASSUME = "Nobody answers; assume what is most likely, and say in {where} what was assumed."
NO_ANSWER = "(no answer was given; go on without it, or give up)"
OVERDUE = {"overdue": True}
"""Stands for the answer to a question that was open longer than `Settings.question_seconds`; the policy answers it."""
BY_POLICY = ("question", "budget")
"""Kinds of pauses that a policy may answer; plans, calls and effects are left to people."""
NEED_TOOLS = ("approve", "edit", "answer", "happened", "not_happened", "extend")
"""Kinds of answers after which steps make calls."""


@dataclass(frozen=True)
class ResolvedAnswer:
    """A valid answer, ready to be applied."""

    pause: Pause
    answer: Answer
    by: str = "user"
    """`user` or `policy`."""
    at: str = ""
    """ISO 8601."""

    @property
    def step(self) -> str:
        """The step that asked; "" for planning and the run."""
        return self.pause["step"] or ""


async def confirm(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Show the plan and apply the answer: approve, edit, cancel, or words, which the planner answers or plans with."""
    return await ask_user(state, runtime, deps=deps)


async def ask_user(state: RunState, runtime: Runtime[Settings], *, deps: Deps) -> RunState:
    """Apply the answer to the pending question, and any answers to other open questions sent with it."""
    settings, pauses = runtime.context, open_pauses(state)
    pending = pauses[0] = current_pause(pauses)
    typed = typed_reply(state["messages"])
    if typed is not None:
        return await with_typed_attachments(state, take_answer(state, pauses, typed, deps, settings), runtime)
    answered_at_once = pending["kind"] == "question" and settings.unattended
    value = OVERDUE if answered_at_once else wait_for_answer(pending)
    return take_answer(state, pauses, value, deps, settings)


def take_answer(state: RunState, pauses: Sequence[Pause], value: Any, deps: Deps, settings: Settings) -> RunState:
    """Return the update for an answer to the first of the open pauses, or for answers by id to any of them.

    If any of them is not understood, none is applied and the pause stays open. Unanswered questions stay open.
    """
    pending, at = pauses[0], now("milliseconds")
    by_id = {pause["id"]: pause for pause in pauses}
    answers = _split_answers(value, pending, by_id)
    if isinstance(answers, str):
        return keep_open(state, pending, answers, value)
    taken: list[ResolvedAnswer] = []
    problems: list[str] = []
    for id, given in answers.items():
        pause = by_id[id]
        by_policy = _is_by_policy(pause, given, settings)
        answer = _answer_by_policy(pause, settings) if by_policy else _read_answer(pause, given)
        if isinstance(answer, Answer):
            language = language_of(pause)
            missing = _missing_tools(state, pause, answer, deps.executors, by_policy=by_policy, language=language)
            answer = missing or answer
        if isinstance(answer, Answer) and not by_policy:
            answer = _check_answer(state, pause, answer, deps, settings)
        if isinstance(answer, str):
            problems.append(answer if len(answers) == 1 else f"{id}: {answer}")
        elif answer.kind != "later":
            taken.append(ResolvedAnswer(pause, answer, "policy" if by_policy else "user", at))
    if problems or not taken:
        return keep_open(state, pending, "; ".join(problems), answers.get(pending["id"]))
    change = StateChange(state)
    for each in taken:  # each on the state after the previous ones
        change.add(apply_answer(change.values, each))
    said = next((each for each in taken if each.pause["id"] == pending["id"]), None)
    return {**change.update, **_close_asked_pause(state, pending, said, ended="ending" in change.update)}


def missing_tools(
    values: Mapping[str, Any], pauses: Sequence[Pause], value: Any, executors: Executors, settings: Settings
) -> str:
    """Return which tools an answer to the first of these open questions, or answers by id, need and are not here.

    Such an answer would be used up, and the calls refused. To reject or to cancel needs no tool.
    """
    by_id = {pause["id"]: pause for pause in pauses}
    answers = _split_answers(value, pauses[0], by_id)
    if isinstance(answers, str):
        return ""
    found = []
    for id, given in answers.items():
        pause = by_id[id]
        by_policy = _is_by_policy(pause, given, settings)
        answer = _answer_by_policy(pause, settings) if by_policy else _read_answer(pause, given)
        if isinstance(answer, Answer):
            found.append(_missing_tools(values, pause, answer, executors, by_policy=by_policy))
    return "; ".join(filter(None, found))


def _missing_tools(
    values: Mapping[str, Any],
    pause: Pause,
    answer: Answer,
    executors: Executors,
    *,
    by_policy: bool,
    language: str = "en",
) -> str:
    """Return which tools the answer needs and are not here, in English for the error of a program."""
    if answer.kind not in ((*NEED_TOOLS, "declined") if by_policy else NEED_TOOLS):
        return ""
    found = (executors.missing(executor, tools) for executor, tools in _tools_after(values, pause, answer))
    if not (missing := dict.fromkeys(name for names in found for name in names)):
        return ""
    return say(language, "unclear", "lacks_tools", id=pause["id"], names=", ".join(missing))


def _tools_after(values: Mapping[str, Any], pause: Pause, answer: Answer) -> list[tuple[str | None, Sequence[str]]]:
    """Return the executor and the tools of each step that goes on with this answer.

    A step that asked needs the calls that it was about to make; the approval of a plan, what its steps list. An edited
    plan is checked by the rules for plans, and one with a schedule starts nothing now.
    """
    records = values.get("steps") or {}
    if pause["kind"] == "plan":
        plan = pause["plan"]
        if answer.kind != "approve" or plan.get("schedule"):
            return []
        left = (step for step in plan["steps"] if records.get(step["id"], {}).get("status") != "done")
        return [(step.get("executor"), step.get("tools") or ()) for step in left]
    steps = ((values.get("approval") or {}).get("plan") or {}).get("steps", ())
    calls = {id: record.get("calls") or () for id, record in records.items()}
    return [
        (
            step.get("executor"),
            [call["name"] for call in calls.get(step["id"], ()) if decision_on(call) not in NOT_MADE],
        )
        for step in steps
        if step["id"] == pause["step"]
    ]


def _split_answers(value: Any, pending: Pause, open_ids: Collection[str]) -> Json | str:
    """Return the answers in a value by the ids of their questions; one without ids is for `pending`."""
    if value == OVERDUE or fills_form(value, pending):
        return {pending["id"]: value}
    if is_own_interrupt(pending) and not named_pauses(value):
        return {pending["id"]: value}
    by_id = answers_by_id(value, open_ids)
    return by_id if isinstance(by_id, str) else by_id or {pending["id"]: value}


def _is_by_policy(pause: Pause, value: Any, settings: Settings) -> bool:
    """Return whether the settings answer this pause, and no person: at once, or because it was open for too long."""
    return value == OVERDUE and pause["kind"] in BY_POLICY and settings.on_question != "wait"


def _read_answer(pause: Pause, value: Any) -> Answer | str:
    """Return what a person's answer to this pause means, or why it cannot be understood."""
    return read_form(value, pause) if "schema" in pause else read_answer(value, pause)


def _check_answer(state: RunState, pause: Pause, answer: Answer, deps: Deps, settings: Settings) -> Answer | str:
    """Return the person's answer, with an edited plan as it will be carried out, or why it cannot be accepted."""
    last = (state.get("approvals") or [{}])[-1]
    approved = last.get("decision") == "approve" and last.get("by") == "user"
    if answer.text == JUDGEMENT and approved and not pause.get("problem"):
        language = language_of(pause)
        return say(language, "unclear", "again", said=translate_option("approve", "plan", language))
    if answer.plan is not None:
        plan = _validate_edited_plan(state, pause, answer, deps, settings)
        return plan if isinstance(plan, str) else replace(answer, plan=plan)
    if answer.kind == "edit" and pause["kind"] == "tool":
        return _find_problem(pause, answer.arguments or {}, deps) or answer
    return answer


def _answer_by_policy(pause: Pause, settings: Settings) -> Answer:
    """Return the answer that the settings give in place of a person."""
    if pause["kind"] == "budget":
        return Answer("deliver", "nobody answered")
    if pause.get("about") == "early":
        return Answer("declined", "nobody answered; the plan goes on")
    if settings.on_question == "abort" or pause.get("about"):
        return Answer("cancel", "nobody answered")
    if settings.on_question == "default" and settings.default_answer.strip():
        return Answer("answer", settings.default_answer, value=settings.default_answer)
    return Answer("declined", ASSUME.format(where="the result" if pause["step"] else "`speak`"))


def _find_problem(pause: Pause, arguments: Json, deps: Deps) -> str:
    """Return what is wrong with edited arguments, of a tool or of an executor's brief."""
    if unfit := json_problem(arguments):
        return f"the edited arguments cannot be stored: something {unfit}"
    if pause.get("relayed"):
        return ""
    if (name := pause["tool"]) in deps.executors.toolbox:
        tool = deps.executors.toolbox[name]
        if problems := tool.arguments.problems(arguments):
            return "; ".join(problems)
        read = tool.read(arguments)
        changed = {
            key: read.arguments[key] for key, value in arguments.items() if not same_json(read.arguments[key], value)
        }
        if changed and not read.problems:
            shown = canonical_json(changed)[:500]
            return say(language_of(pause), "unclear", "edited_call", tool=name, arguments=shown)
        return "; ".join(read.problems)
    fits = set(arguments) == {"brief"} and isinstance(arguments["brief"], str)
    return "" if fits else say(language_of(pause), "unclear", "one_brief", tool=name)


def _validate_edited_plan(
    state: RunState, pending: Pause, answer: Answer, deps: Deps, settings: Settings
) -> Json | str:
    """Return the edited plan if it keeps all rules for plans, else everything that is wrong with it.

    Finished steps must stay in the plan unchanged.
    """
    planning, language = state.get("planning") or {}, language_of(pending)
    finished = {id: row for id, row in (planning.get("finished") or {}).items() if id not in planning.get("stale", ())}
    done = {step["id"]: step for step in pending["plan"]["steps"] if step["id"] in finished}
    edited = dict(answer.plan or {})
    steps = edited.get("steps") if isinstance(edited.get("steps"), list) else []
    given = {step.get("id"): step for step in steps or () if isinstance(step, Mapping)}
    if touched := [str(id) for id, step in done.items() if id not in given or {**step, **given[id]} != step]:
        return say(language, "unclear", "finished_stay", steps=", ".join(touched))
    rules = plan_rules(deps, settings, finished, pending["plan"], unfinished_steps(state))
    most = max(settings.max_steps, len(pending["plan"]["steps"]))
    plan = read_plan(edited, replace(rules, max_steps=most, repeats=deps.repeats and not state.get("approval")))
    if isinstance(plan, list):
        reasons = "; ".join(add_line_number(each, answer.lines) for each in plan)
        return say(language, "unclear", "edited_plan", reasons=reasons)
    whole = {**plan, "steps": [done.get(step["id"], step) for step in plan["steps"]]}
    return {**whole, "revision": revision_of(whole)}


def _close_asked_pause(state: RunState, pending: Pause, said: ResolvedAnswer | None, *, ended: bool) -> RunState:
    """Close the current question; without an answer it stays open, or is asked again later."""
    messages, answer = state["messages"], said.answer if said else None
    if answer is not None or ended:
        text = (answer.text or answer.kind) if answer else "Ended."
        if answer and pending["kind"] == "plan":
            fixed = {"approve": "Approved.", "edit": "Approved with changes.", "cancel": "Cancelled."}
            verb = "Said" if answer.kind == "say" else "Rejected"
            text = fixed.get(answer.kind) or f"{verb}: {answer.text}".rstrip(": ")
        by_person = said is not None and said.by == "user"
        return {"pending": None, "messages": close_pause(messages, pending, text, answered=by_person)}
    if pending["step"] is not None or pending["kind"] == "budget":
        # Answered steps continue first; this question is asked again afterwards.
        return {"pending": None, "messages": close_pause(messages, pending, "Asked again later.")}
    kept = with_fresh_call(messages, {**pending, "problem": "", "draft": None})
    return {"pending": kept, "messages": [*close_pause(messages, pending, "Asked again."), pause_message(kept)]}


# --- what an answer changes, by the kind of pause


def apply_answer(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    """Return the run's update for an answer; an edited plan must have been validated."""
    pending, answer = taken.pause, taken.answer
    if pending["kind"] == "plan":
        return _apply_to_plan(values, taken)
    row = decision_row(pending, answer.kind, answer.text, taken.by, taken.at)
    if pending["kind"] == "tool" and answer.kind == "edit":
        row["edited"] = redact_json(answer.arguments or {})
    if answer.kind == "cancel":
        language = values.get("language", "en")
        unanswered = say_why(language, "unanswered", question=pending.get("question"))
        reason = unanswered if taken.by == "policy" else _cancel_reason(pending, language)
        return {
            "ending": {"code": "unanswered" if taken.by == "policy" else "cancelled", "reason": reason},
            "approvals": [row],
        }
    about = pending.get("about") or pending["kind"]
    update = _APPLY[about](values, taken)
    return update if about == "question" else {**update, "approvals": [row]}


def _cancel_reason(pending: Pause, language: str) -> str:
    if pending["kind"] in ("tool", "effect"):
        return say_why(language, "at_call", tool=pending.get("tool"))
    return say_why(language, "at_budget" if pending["kind"] == "budget" else "at_question")


def _apply_to_plan(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    pending, answer, approval = taken.pause, taken.answer, values.get("approval")
    row = decision_row(pending, answer.kind, answer.text, taken.by, taken.at)
    row["revision"] = pending["revision"]
    row |= {"limits": answer.amounts} if answer.amounts else {}
    row |= {"reply": pending["reply"]} if pending.get("reply") else {}
    granted = {key: amount - pending["limits"][key] for key, amount in answer.amounts.items()}
    if answer.kind in ("approve", "edit"):
        plan = pending["plan"] if answer.kind == "approve" else answer.plan
        assert plan is not None
        given = {
            **approval_record(plan, taken.by, pending.get("effects") or {}),
            "before": approval["plan"] if approval else None,
        }
        row |= {"approved_revision": plan["revision"]}
        row |= {"changes": difference(pending["plan"], plan)} if answer.kind == "edit" else {}
        ending = {"ending": _scheduled_ending(plan, values, taken.at)} if plan.get("schedule") else {}
        return {"approvals": [row], "plan": plan, "approval": given, "granted": granted, **ending}
    if answer.kind == "cancel" or not (approval or answer.text):
        # The receipt shows the previously approved plan, else the rejected one.
        kept = {"plan": approval["plan"]} if approval else {"steps": fresh_records(pending["plan"], {}, None)}
        return {
            "approvals": [row],
            "ending": {"code": "cancelled", "reason": say_why(values.get("language", "en"), "not_approved")},
            **kept,
        }
    planning = values["planning"]
    if not answer.text:
        refused = {**planning, "open": False}
        return {"approvals": [row], "plan": (approval or {})["plan"], "planning": refused}
    known = {key: planning[key] for key in OF_REQUEST if planning.get(key)}
    shown = {key: item for key, item in pending.items() if key not in ("others", "problem", "draft")}
    known |= {"shown": shown, "kept": {key: planning[key] for key in OF_PROPOSAL if key in planning}}
    again = fresh_planning(planning["number"] + 1, feedback=answer.text, proposal=pending["plan"], **known)
    if planning.get("failure") or planning.get("wants"):
        again["phase"] = "draft"
    plan = approval["plan"] if approval else None
    return {"approvals": [row], "planning": again, "plan": plan, "granted": granted}


def _scheduled_ending(plan: Mapping[str, Any], values: Mapping[str, Any], at: str) -> Json:
    """Return the ending of a request with a schedule: nothing runs now."""
    schedule, language = plan["schedule"], values.get("language", "en")
    times = moments_text(next_moments(schedule, datetime.fromisoformat(at)))
    when = schedule_text(schedule, catalogue(language)["plan"])
    said = say(language, "summary", "scheduled", when=when, times=times)
    return {"code": "scheduled", "reason": "", "text": f"{said}\n\n{say(language, 'summary', 'scheduled_by')}"}


def _apply_to_question(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    """Return the answer as an observation and as the result of the asking call; as a plain message if no call asked."""
    pending, answer, step = taken.pause, taken.answer, taken.step
    planning, record = values["planning"], _record(values, taken)
    # Planning counts its observations in the journal, a step in its record.
    seen = sum(entry["step"] == PLANNING for entry in values.get("journal") or ())
    number = 1 + (record.get("observed", 0) if step else seen)
    text, asked = answer.text or NO_ANSWER, {"question": pending["question"], "by": taken.by, "asked": pending["id"]}
    entry = observation(
        f"{step or PLANNING}.{number}",
        step or PLANNING,
        (record if step else planning).get("rounds", 0),
        "user",
        text,
        ok=answer.kind == "answer",
        arguments=asked | ({"options": pending["options"]} if pending["options"] else {}),
        at=taken.at,
    )
    told, call = render_observation(entry, 20_000), pending.get("call")
    message: BaseMessage = ToolMessage(told, tool_call_id=call) if call else HumanMessage(told)
    if not step:  # a person was asked, so planning has all its rounds again
        asked_again = {**planning, "since": planning["rounds"], "granted": {}}
        return {"planning": asked_again, "journal": [entry], "transcripts": {planning["transcript"]: [message]}}
    change = change_status(record, {"status": "ready", "observed": number})
    if answer.kind == "answer":
        change["silent"] = 0
    if pending.get("relayed"):
        change["calls"] = _relay(record, answer.arguments if "schema" in pending else answer.value)
        if not record["calls"][0].get("delegated"):  # the call's result will have it
            return {"journal": [entry], "steps": {step: change}}
    return {"journal": [entry], "steps": {step: change}, "transcripts": {transcript_key(step, record): [message]}}


def _apply_to_tool(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    pending, answer, record = taken.pause, taken.answer, _record(values, taken)
    why = answer.text or "no reason given"
    if pending.get("relayed"):
        said = review_decision(answer.kind, answer.text, pending["tool"], answer.arguments)
        return _continue_step(record, taken, {"calls": _relay(record, said)})
    first, *rest = record["calls"]
    batch = [row["position"] for row in pending.get("batch") or ()]
    decided: Decided = {"kind": "refused", "why": why}
    if answer.kind in ("approve", "edit"):
        decided = {"kind": "approved", "by": taken.by}
    if answer.kind == "edit":
        batch, first = [], {**first, "args": answer.arguments or {}, "edited": True}
        first.pop("given", None)  # they were the model's
    elif answer.kind == "respond":
        batch, decided = [], {"kind": "answered", "text": answer.text}
    calls: list[Call] = [{**first, "decided": decided}]
    for call in rest:
        calls.append({**call, "decided": decided} if call.get("position") in batch else call)
    gone = {call_key(call["name"], call["args"]): why for call in calls if decision_on(call) == "refused"}
    change: StepRecord = {"calls": calls}
    if gone:
        change["rejected"] = {**record.get("rejected", {}), **gone}
    return _continue_step(record, taken, change)


def _apply_to_effect(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    record = _record(values, taken)
    first, *rest = record["calls"]
    known: Known = {"kind": "known", "effect": taken.answer.kind, "attempt": taken.pause.get("attempt", "")}
    return _continue_step(record, taken, {"calls": [{**first, "decided": known}, *rest]})


def _apply_to_budget(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    pending, answer, step = taken.pause, taken.answer, taken.step
    keys = pending["exhausted"] if isinstance(pending["exhausted"], list) else [pending["exhausted"]]
    language = values.get("language", "en")
    reached = say_why(language, "limit", key=", ".join(amount_name(language, key) for key in keys))
    record = _record(values, taken)
    if answer.kind == "extend" and step:
        return {"steps": {step: {"granted": add(record.get("granted"), answer.amounts)}}}
    if answer.kind == "extend" and pending.get("of_planning"):
        own, rest = ({k: v for k, v in answer.amounts.items() if (k == "rounds") == mine} for mine in (True, False))
        planning = values["planning"]
        return {"planning": {**planning, "granted": add(planning.get("granted"), own)}, "granted": rest}
    if answer.kind == "extend":
        return {"granted": answer.amounts}
    if answer.kind == "replan":
        over: StepRecord = {"status": "exhausted", "reason": reached, "handled": True}
        steps: Json = {step: change_status(record, over, taken.at)} if step else {}
        records = {**values, "steps": merge_records(values.get("steps") or {}, steps)}
        planning = start_replanning(records, f"{reached}; find a cheaper way", answer.text or None)
        return {"planning": planning, "steps": steps, **_grant_replan(pending)}
    return {"ending": {"code": "out_of_budget" if answer.kind == "deliver" else "stopped", "reason": reached}}


def _apply_to_early(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    change = {"let_go": True} if taken.answer.kind == "leave_out" else {"finished_task": None}
    return {"steps": dict.fromkeys(taken.pause["early"], change)}


def _apply_to_failure(values: Mapping[str, Any], taken: ResolvedAnswer) -> Json:
    pending, answer = taken.pause, taken.answer
    if answer.kind == "retry":
        again: StepRecord = {"status": "pending", "handled": False, "reason": "", "code": ""}
        again |= {"corrections": 0, "refused": 0}
        unblocked: StepRecord = {"status": "pending", "reason": ""}
        records: Mapping[str, StepRecord] = values.get("steps") or {}
        changes = {id: unblocked for id, record in records.items() if record.get("status") == "blocked"}
        changes |= dict.fromkeys(pending["failed"], again)
        return {"steps": {id: change_status(records[id], change) for id, change in changes.items()}}
    failed, language = {id: {"handled": True} for id in pending["failed"]}, values.get("language", "en")
    if answer.kind == "replan":
        feedback = None if option_key(answer.text) else answer.text
        planning = start_replanning(values, pending["failure"], feedback)
        return {"steps": failed, "planning": planning, **_grant_replan(pending)}
    if answer.kind == "deliver":
        return {"steps": failed, "ending": {"code": "delivered_early", "reason": say_why(language, "delivered_early")}}
    return {"steps": failed, "ending": {"code": "cancelled", "reason": say_why(language, "stopped_failed")}}


def _record(values: Mapping[str, Any], taken: ResolvedAnswer) -> StepRecord:
    records: Mapping[str, StepRecord] = values.get("steps") or {}
    return records.get(taken.step, {})


def _continue_step(record: StepRecord, taken: ResolvedAnswer, change: StepRecord) -> Json:
    return {"steps": {taken.step: change_status(record, {**change, "status": "ready"})}}


def _relay(record: StepRecord, answer: Any) -> list[Call]:
    """Add an answer for the executor or tool that asked; it gets all of them once every question is answered."""
    first, *rest = record["calls"]
    return [{**first, "answers": [*(first.get("answers") or ()), answer]}, *rest]


def _grant_replan(pending: Pause) -> Json:
    """Count the replan that a person asked for, and grant the budget for it."""
    return {"spent": {"replans": 1}, "granted": pending.get("with_replan") or {}}


_APPLY: dict[str, Callable[[Mapping[str, Any], ResolvedAnswer], Json]] = {
    "question": _apply_to_question,
    "tool": _apply_to_tool,
    "effect": _apply_to_effect,
    "budget": _apply_to_budget,
    "failure": _apply_to_failure,
    "early": _apply_to_early,
}
"""By the kind of pause, or by the topic of one of the runtime's own questions."""
