"""An answer on its way into the run: read for every pause it names, all of it or nothing, and what it changes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.context import Deps
from donewhen.graph.executors.relay import decision
from donewhen.graph.models.transcript import shown
from donewhen.graph.people.consent import decide_plan, decision_row, edited_plan
from donewhen.graph.people.pauses import asked_again, closing, open_pauses, opening, reopened
from donewhen.state.graph_state import Json, RunState
from donewhen.state.language.texts import option_key
from donewhen.state.ledger import add
from donewhen.state.people.answers import Answer, Bundle, draft_of, read_answer
from donewhen.state.people.grammar import JUDGEMENT
from donewhen.state.plan.planning import replanning
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import call_key, observation
from donewhen.state.proof.questions import is_leave, same_question
from donewhen.state.records import FrozenCall, Pause, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.updates import applied, together
from donewhen.state.values import flaw

NO_ANSWER = "(no answer was given; go on without it, or give up)"
AGAIN = (
    "“approve” is what was said to the pause before; from a second window it would be no answer to this question. "
    "Answer it, or approve once more to leave it to the agent's judgement"
)
ASSUME = "Nobody answers; assume what is most likely, and say in {where} what was assumed."
OVERDUE = {"overdue": True}
"""In place of an answer to what is open longer than `Settings.question_seconds`: the policy answers it."""
BY_POLICY = ("question", "budget")
"""What a policy may answer; plans, calls and effects are for people."""
Taken = tuple[Pause, Answer, str]
"""What was asked, the answer, and by whom it is."""


def take(state: RunState, pending: Pause, value: Any, deps: Deps, settings: Settings) -> RunState:
    """The update for what came as the answer to `pending`: an answer, or answers by id to any of the open questions.

    If any of it is not understood, nothing is taken and the pause stays. Questions not answered stay open.
    """
    read = None if value == OVERDUE else read_answer(value, pending)
    answers = read.answers if isinstance(read, Bundle) else {pending["id"]: value}
    pauses = {pause["id"]: pause for pause in open_pauses(state)}
    taken: list[Taken] = []
    problems = []
    for id, given in answers.items():
        one = _one(state, pauses.get(id), given, deps, settings)
        if isinstance(one, str):
            problems.append(one if len(answers) == 1 else f"{id}: {one}")
        else:
            taken.append(one)
    now = [one for one in taken if one[1].kind != "later"]
    if problems or not now:
        return asked_again(state, pending, "; ".join(problems), draft_of(answers.get(pending["id"])))
    return _update(state, pending, [*now, *_same(now, pauses, answers)])


def _same(taken: Sequence[Taken], pauses: Mapping[str, Pause], answers: Mapping[str, Any]) -> list[Taken]:
    """The same question of another step has the same answer; a yes or no, which is leave for one thing, has not."""
    questions = [pause for id, pause in pauses.items() if pause["kind"] == "question" and id not in answers]
    return [
        (other, answer, by)
        for pause, answer, by in taken
        for other in questions
        if pause["kind"] == "question"
        and not is_leave(answer.text)
        and same_question(pause["question"], other["question"], pause["options"], other["options"])
    ]


def answered_by_policy(pending: Pause, settings: Settings) -> bool:
    """Whether nobody is asked at all: the settings answer questions, and give nobody time to."""
    return pending["kind"] == "question" and settings.alone


def _one(state: RunState, pause: Pause | None, value: Any, deps: Deps, settings: Settings) -> Taken | str:
    if pause is None:
        return "stale: nothing waits under this id"
    if value == OVERDUE and pause["kind"] in BY_POLICY and settings.on_question != "wait":
        return pause, _policy(pause, settings), "policy"
    answer = read_answer(value, pause)
    if isinstance(answer, Bundle):
        answer = read_answer(answer.answers.get(pause["id"]), pause)
    if not isinstance(answer, Answer):
        return str(answer)
    if answer.text == JUDGEMENT and _approved_last(state) and not pause.get("problem"):
        return AGAIN
    if answer.kind == "edit" and pause["kind"] == "tool":
        if unfit := flaw(answer.arguments):
            return f"the edited arguments cannot be stored: something {unfit}"
        wrong = [] if pause.get("relayed") else _edited_problems(pause["tool"], answer.arguments or {}, deps)
        return "; ".join(wrong) if wrong else (pause, answer, "user")
    if answer.plan is not None:
        plan = edited_plan(state, pause, answer, deps, settings)
        return plan if isinstance(plan, str) else (pause, replace(answer, plan=plan), "user")
    return pause, answer, "user"


def _approved_last(state: RunState) -> bool:
    rows = state.get("approvals") or [{}]
    return bool(rows[-1].get("decision") == "approve" and rows[-1].get("by") == "user")


def _edited_problems(name: str, arguments: Json, deps: Deps) -> list[str]:
    """What is wrong with edited arguments: of a tool, or of an executor that works by itself, which takes a brief."""
    if name in deps.toolbox:
        return deps.toolbox.problems(name, arguments)
    fits = set(arguments) == {"brief"} and isinstance(arguments["brief"], str)
    return [] if fits else [f"{name} takes one argument, brief, a text"]


def _policy(pause: Pause, settings: Settings) -> Answer:
    if pause["kind"] == "budget":
        return Answer("deliver", "nobody answered")
    if pause.get("about") == "early":
        return Answer("declined", "nobody answered; the plan goes on")
    if settings.on_question == "abort" or pause.get("about"):
        return Answer("cancel", "nobody answered")
    if settings.on_question == "default" and settings.default_answer.strip():
        return Answer("answer", settings.default_answer)
    return Answer("declined", ASSUME.format(where="the result" if pause["step"] else "`speak`"))


def _update(state: RunState, pending: Pause, taken: list[Taken]) -> RunState:
    """All answers as one update, each made from the state in which the ones before it are applied."""
    values: Json = dict(state)
    update: Json = {}
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    for pause, answer, by in taken:
        decide = decide_plan if pause["kind"] == "plan" else apply_answer
        change = decide(values, pause, answer, by=by, at=at)
        values, update = applied(values, change), together(update, change)
    said = next((answer for pause, answer, _ in taken if pause["id"] == pending["id"]), None)
    return {**update, **_asking(state, pending, said, ended="ending" in update)}  # type: ignore[typeddict-item]


def _asking(state: RunState, pending: Pause, said: Answer | None, *, ended: bool) -> RunState:
    """What becomes of the question asked now."""
    messages = state["messages"]
    if said is not None or ended:
        return {"pending": None, "messages": closing(messages, pending, _words(pending, said))}
    if pending["step"] is not None or pending["kind"] == "budget":
        # Those who were answered go on first; this one is asked again afterwards.
        return {"pending": None, "messages": closing(messages, pending, "Asked again later.")}
    kept = reopened(messages, {**pending, "problem": "", "draft": None})
    return {"pending": kept, "messages": [*closing(messages, pending, "Asked again."), opening(kept)]}


def _words(pending: Pause, answer: Answer | None) -> str:
    if answer is None:
        return "Ended."
    if pending["kind"] == "plan":
        fixed = {"approve": "Approved.", "edit": "Approved with changes.", "cancel": "Cancelled."}
        return fixed.get(answer.kind) or f"Rejected: {answer.text}".rstrip(": ")
    return answer.text or answer.kind


def apply_answer(values: Mapping[str, Any], pending: Pause, answer: Answer, *, by: str = "user", at: str = "") -> Json:
    """The update of the run for an answer to `pending`. `by` says who answered: the user, or a policy."""
    row = decision_row(pending, answer.kind, answer.text, by, at)
    if answer.kind == "cancel":
        nobody = {"code": "unanswered", "reason": f"nobody answered: {pending.get('question')}"}
        ending = nobody if by == "policy" else {"code": "cancelled", "reason": _cancelled_at(pending)}
        return {"ending": ending, "approvals": [row]}
    if about := pending.get("about"):
        return {**_ABOUT[about](values, pending, answer), "approvals": [row]}
    update = _APPLY[pending["kind"]](values, pending, answer, by, at)
    return update if pending["kind"] == "question" else {**update, "approvals": [row]}


def _cancelled_at(pending: Pause) -> str:
    """Where a person ended the run, in words: an id of ours tells nobody anything."""
    step = f" in step {pending['step']}" if pending.get("step") else ""
    if pending["kind"] in ("tool", "effect"):
        return f"cancelled when asked about {pending.get('tool')}{step}"
    return f"cancelled when {'the budget was used up' if pending['kind'] == 'budget' else 'asked a question'}{step}"


def _record(values: Mapping[str, Any], pending: Pause) -> StepRecord:
    records: Mapping[Any, StepRecord] = values.get("steps") or {}
    return records.get(pending["step"], {})


def _question(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    step = pending["step"]
    planning, record = values["planning"], _record(values, pending)
    rounds = record if step else planning
    number = rounds.get("observed", 0) + 1
    text = answer.text or NO_ANSWER
    asked = {"question": pending["question"], "by": by, "asked": pending["id"]}
    entry = observation(
        f"{step or planning['transcript']}.{number}",
        step or "plan",
        rounds.get("rounds", 0),
        "user",
        text,
        ok=answer.kind == "answer",
        arguments=asked | ({"options": pending["options"]} if pending["options"] else {}),
        at=at,
    )
    said = _to_model(pending, shown(entry, 20_000))
    if step is None:
        return {
            "journal": [entry],
            "planning": {**planning, "observed": number},
            "transcripts": {planning["transcript"]: [said]},
        }
    change: StepRecord = {"status": "ready", "waiting": None, "observed": number}
    if pending.get("relayed"):
        change["calls"] = _relayed(record, text)
    if answer.kind == "answer":
        change["silent"] = 0
    return {"journal": [entry], "steps": {step: change}, "transcripts": {transcript_key(step, record): [said]}}


def _relayed(record: StepRecord, answer: Any) -> list[FrozenCall]:
    """The frozen calls with an answer for the executor that asked; it gets them when all it asked is answered."""
    first, *rest = record["calls"]
    return [{**first, "answers": [*(first.get("answers") or ()), answer]}, *rest]


def _to_model(pending: Pause, text: str) -> BaseMessage:
    """The result of the call that asked; a plain message if the question stood in the model's text."""
    return ToolMessage(text, tool_call_id=pending["call"]) if pending.get("call") else HumanMessage(text)


def _tool(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    record = _record(values, pending)
    first, *rest = record["calls"]
    if pending.get("relayed"):
        said = decision(answer.kind, answer.text, pending["tool"], answer.arguments)
        return {"steps": {pending["step"]: {"status": "ready", "waiting": None, "calls": _relayed(record, said)}}}
    batch = [row["position"] for row in pending.get("batch") or ()]
    if answer.kind == "approve":
        first = {**first, "approved": by}
        rest = [{**call, "approved": by} if call.get("position") in batch else call for call in rest]
    elif answer.kind == "edit":
        first = {**first, "args": answer.arguments or {}, "approved": by, "edited": True}
    elif answer.kind == "respond":
        first = {**first, "response": answer.text}
    else:
        why = answer.text or "no reason given"
        first = {**first, "refused": why}
        rest = [{**call, "refused": why} if call.get("position") in batch else call for call in rest]
        gone = [call for call in (first, *rest) if "refused" in call]
        refused = {**record.get("rejected", {}), **{call_key(each["name"], each["args"]): why for each in gone}}
        return {
            "steps": {
                pending["step"]: {"status": "ready", "waiting": None, "calls": [first, *rest], "rejected": refused}
            }
        }
    return {"steps": {pending["step"]: {"status": "ready", "waiting": None, "calls": [first, *rest]}}}


def _effect(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    first, *rest = _record(values, pending)["calls"]
    calls = [{**first, "known": answer.kind, "attempt": pending.get("attempt", "")}, *rest]
    return {"steps": {pending["step"]: {"status": "ready", "waiting": None, "calls": calls}}}


def _budget(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    keys = pending["exhausted"] if isinstance(pending["exhausted"], list) else [pending["exhausted"]]
    step, why = pending["step"], f"the limit of {' and '.join(keys)} was reached"
    if answer.kind == "extend" and step:
        granted = add(_record(values, pending).get("granted"), answer.amounts)
        return {"steps": {step: {"status": "ready", "granted": granted}}}
    if answer.kind == "extend":
        return {"granted": answer.amounts}
    if answer.kind == "replan":
        steps = {step: {"status": "exhausted", "reason": why, "handled": True}} if step else {}
        planning = replanning(values, f"{why}; find a cheaper way", answer.text or None)
        return {"planning": planning, "steps": steps, **_replans(pending)}
    return {"ending": {"code": "out_of_budget" if answer.kind == "deliver" else "stopped", "reason": why}}


def _after_early(values: Mapping[str, Any], pending: Pause, answer: Answer) -> Json:
    change = {"let_go": True} if answer.kind == "leave_out" else {"finished_task": None}
    return {"steps": dict.fromkeys(pending["early"], change)}


def _after_failure(values: Mapping[str, Any], pending: Pause, answer: Answer) -> Json:
    failed = {id: {"handled": True} for id in pending["failed"]}
    if answer.kind == "retry":
        again = {"status": "pending", "handled": False, "reason": "", "code": "", "corrections": 0, "refused": 0}
        return {"steps": {**dict.fromkeys(pending["failed"], again), **_unblocked(values)}}
    if answer.kind == "deliver":
        return {"steps": failed, "ending": {"code": "delivered_early", "reason": "delivered after a failed step"}}
    if answer.kind != "replan":
        return {"steps": failed, "ending": {"code": "cancelled", "reason": "stopped after a failed step"}}
    return {
        "steps": failed,
        "planning": replanning(values, pending["failure"], None if option_key(answer.text) else answer.text),
        **_replans(pending),
    }


def _replans(pending: Pause) -> Json:
    """A replan that a person asks for is counted, and granted with all that it takes."""
    return {"spent": {"replans": 1}, "granted": pending.get("with_replan") or {}}


def _unblocked(values: Mapping[str, Any]) -> Json:
    records = values.get("steps") or {}
    return {
        id: {"status": "pending", "reason": ""} for id, record in records.items() if record.get("status") == "blocked"
    }


_ABOUT: dict[str, Callable[[Mapping[str, Any], Pause, Answer], Json]] = {
    "failure": _after_failure,
    "early": _after_early,
}
"""The runtime's own questions."""
_APPLY: dict[str, Callable[[Mapping[str, Any], Pause, Answer, str, str], Json]] = {
    "question": _question,
    "tool": _tool,
    "effect": _effect,
    "budget": _budget,
}
