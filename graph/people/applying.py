"""What an answer changes in the run: one function per kind of pause."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.executors.relay import decision
from donewhen.graph.models.transcript import shown
from donewhen.graph.people.consent import decision_row
from donewhen.state.channels import merge_records
from donewhen.state.graph_state import PLANNING, Json
from donewhen.state.language.texts import option_key
from donewhen.state.ledger import add
from donewhen.state.people.answers import Answer
from donewhen.state.plan.planning import replanning
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import call_key, observation
from donewhen.state.records import FrozenCall, Pause, StepRecord
from donewhen.state.secrets import redact_json

NO_ANSWER = "(no answer was given; go on without it, or give up)"


def apply_answer(values: Mapping[str, Any], pending: Pause, answer: Answer, *, by: str = "user", at: str = "") -> Json:
    """The update of the run for an answer to `pending`. `by` says who answered: the user, or a policy."""
    row = decision_row(pending, answer.kind, answer.text, by, at)
    if pending["kind"] == "tool" and answer.kind == "edit":
        row["edited"] = redact_json(answer.arguments or {})
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
    # Planning numbers its observations by those that there are, a step by its own count.
    seen = sum(entry["step"] == PLANNING for entry in values.get("journal") or ())
    number = 1 + (rounds.get("observed", 0) if step else seen)
    text = answer.text or NO_ANSWER
    asked = {"question": pending["question"], "by": by, "asked": pending["id"]}
    entry = observation(
        f"{step or PLANNING}.{number}",
        step or PLANNING,
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
    record, why = _record(values, pending), answer.text or "no reason given"
    if pending.get("relayed"):
        said = decision(answer.kind, answer.text, pending["tool"], answer.arguments)
        return _goes_on(pending, calls=_relayed(record, said))
    first, *rest = record["calls"]
    batch = [row["position"] for row in pending.get("batch") or ()]
    change: FrozenCall = {"approved": by} if answer.kind == "approve" else {"refused": why}
    if answer.kind == "edit":
        batch, change = [], {"args": answer.arguments or {}, "approved": by, "edited": True}
    elif answer.kind == "respond":
        batch, change = [], {"response": answer.text}
    together = [call for call in rest if call.get("position") in batch]
    calls = [cast("FrozenCall", {**call, **change}) if call in (first, *together) else call for call in (first, *rest)]
    gone = {call_key(call["name"], call["args"]): why for call in calls if "refused" in call}
    return _goes_on(pending, calls=calls, **({"rejected": {**record.get("rejected", {}), **gone}} if gone else {}))


def _effect(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    first, *rest = _record(values, pending)["calls"]
    return _goes_on(pending, calls=[{**first, "known": answer.kind, "attempt": pending.get("attempt", "")}, *rest])


def _goes_on(pending: Pause, **change: Any) -> Json:
    return {"steps": {pending["step"]: {"status": "ready", "waiting": None, **change}}}


def _budget(values: Mapping[str, Any], pending: Pause, answer: Answer, by: str, at: str) -> Json:
    keys = pending["exhausted"] if isinstance(pending["exhausted"], list) else [pending["exhausted"]]
    step, why = pending["step"], f"the limit of {' and '.join(keys)} was reached"
    if answer.kind == "extend" and step:
        granted = add(_record(values, pending).get("granted"), answer.amounts)
        return {"steps": {step: {"status": "ready", "granted": granted}}}
    if answer.kind == "extend":
        return {"granted": answer.amounts}
    if answer.kind == "replan":
        steps: Json = {step: {"status": "exhausted", "reason": why, "handled": True}} if step else {}
        now = {**values, "steps": merge_records(values.get("steps") or {}, steps)}
        planning = replanning(now, f"{why}; find a cheaper way", answer.text or None)
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
