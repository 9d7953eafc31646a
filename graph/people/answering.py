"""What an answer changes: one pure function from the answer to the update of the run, whoever gave it."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage

from donewhen.graph.models.transcript import shown
from donewhen.state.ledger import add
from donewhen.state.people.answers import Answer
from donewhen.state.people.texts import option_key
from donewhen.state.plan.planning import replanning
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import call_key, observation
from donewhen.state.run import Json
from donewhen.state.secrets import redact_json

NO_ANSWER = "(no answer was given; go on without it, or give up)"


def apply_answer(values: Mapping[str, Any], pending: Json, answer: Answer, *, by: str = "user", at: str = "") -> Json:
    """The update of the run for an answer to `pending`. `by` says who answered: the user, or a policy."""
    row = decision_row(pending, answer.kind, answer.text, by, at)
    if answer.kind == "cancel":
        nobody = {"code": "unanswered", "reason": f"nobody answered: {pending.get('question')}"}
        ending = nobody if by == "policy" else {"code": "cancelled", "reason": f"cancelled at {pending['id']}"}
        return {"ending": ending, "approvals": [row]}
    if about := pending.get("about"):
        return {**_ABOUT[about](values, pending, answer), "approvals": [row]}
    update = _APPLY[pending["kind"]](values, pending, answer, by, at)
    return update if pending["kind"] == "question" else {**update, "approvals": [row]}


def decision_row(pending: Mapping[str, Any], decision: str, text: str, by: str, at: str) -> Json:
    """What the receipt says of an answer: to what, what was decided, by whom, when."""
    row = {"kind": pending["kind"], "id": pending["id"], "decision": decision, "text": text, "by": by, "at": at}
    if pending["kind"] in ("tool", "effect"):
        row |= {"step": pending["step"], "tool": pending["tool"], "arguments": redact_json(pending["arguments"])}
        row |= {"batch": redact_json(pending["batch"])} if pending.get("batch") else {}
    return row


def _record(values: Mapping[str, Any], pending: Json) -> Json:
    return dict((values.get("steps") or {}).get(pending["step"]) or {})


def _question(values: Mapping[str, Any], pending: Json, answer: Answer, by: str, at: str) -> Json:
    step = pending["step"]
    record = _record(values, pending) if step else dict(values["planning"])
    number = record.get("observed", 0) + 1
    text = answer.text or NO_ANSWER
    asked = {"question": pending["question"], "by": by, "asked": pending["id"]}
    entry = observation(
        f"{step or record['transcript']}.{number}",
        step or "plan",
        record.get("rounds", 0),
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
            "planning": {**record, "observed": number},
            "transcripts": {record["transcript"]: [said]},
        }
    change = {"status": "ready", "waiting": None, "observed": number}
    if answer.kind == "answer":
        change["silent"] = 0
    return {"journal": [entry], "steps": {step: change}, "transcripts": {transcript_key(step, record): [said]}}


def _to_model(pending: Json, text: str) -> BaseMessage:
    """The result of the call that asked; a plain message if the question stood in the model's text."""
    return ToolMessage(text, tool_call_id=pending["call"]) if pending.get("call") else HumanMessage(text)


def _tool(values: Mapping[str, Any], pending: Json, answer: Answer, by: str, at: str) -> Json:
    record = _record(values, pending)
    first, *rest = record["calls"]
    batch = [row["position"] for row in pending.get("batch") or ()]
    if answer.kind == "approve":
        first = {**first, "approved": by}
        rest = [{**call, "approved": by} if call.get("position") in batch else call for call in rest]
    elif answer.kind == "edit":
        first = {**first, "args": answer.arguments, "approved": by, "edited": True}
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


def _effect(values: Mapping[str, Any], pending: Json, answer: Answer, by: str, at: str) -> Json:
    first, *rest = _record(values, pending)["calls"]
    calls = [{**first, "known": answer.kind, "attempt": pending.get("attempt", "")}, *rest]
    return {"steps": {pending["step"]: {"status": "ready", "waiting": None, "calls": calls}}}


def _budget(values: Mapping[str, Any], pending: Json, answer: Answer, by: str, at: str) -> Json:
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


def _after_early(values: Mapping[str, Any], pending: Json, answer: Answer) -> Json:
    change = {"let_go": True} if answer.kind == "leave_out" else {"finished_task": None}
    return {"steps": dict.fromkeys(pending["early"], change)}


def _after_failure(values: Mapping[str, Any], pending: Json, answer: Answer) -> Json:
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


def _replans(pending: Json) -> Json:
    """A replan that a person asks for is counted, and granted with all that it takes."""
    return {"spent": {"replans": 1}, "granted": pending.get("with_replan") or {}}


def _unblocked(values: Mapping[str, Any]) -> Json:
    records = values.get("steps") or {}
    return {
        id: {"status": "pending", "reason": ""} for id, record in records.items() if record.get("status") == "blocked"
    }


_ABOUT: dict[str, Callable[[Mapping[str, Any], Json, Answer], Json]] = {
    "failure": _after_failure,
    "early": _after_early,
}
"""The runtime's own questions."""
_APPLY: dict[str, Callable[[Mapping[str, Any], Json, Answer, str, str], Json]] = {
    "question": _question,
    "tool": _tool,
    "effect": _effect,
    "budget": _budget,
}
