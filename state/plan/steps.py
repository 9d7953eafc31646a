"""Records of steps: what became of each. A record is plain JSON; here is what a new one holds."""

from collections.abc import Collection, Mapping
from typing import Any

from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import FrozenCall, StepRecord

ROUND = ("rounds", "model_calls")
"""What one more round takes one of."""


SILENT_ROUNDS = 5
"""Rounds that brought nothing new after which the model and the user are told so."""


def fresh_record(before: Mapping[str, Any] | None = None) -> StepRecord:
    """Return the record of a step not started. A step that replaces an older one of the same id counts on from it,
    so that no observation id and no effect key is ever used twice, and what was rejected stays so."""
    earlier = before or {}
    return {
        "status": "pending",
        "attempt": earlier.get("attempt", 0) + 1,
        "observed": earlier.get("observed", 0),
        "rounds": 0,
        "corrections": 0,
        "refused": 0,
        "silent": 0,
        "silent_most": 0,
        "questions": 0,
        "result": "",
        "reason": "",
        "code": "",
        "verdicts": [],
        "standing": {},
        "draft": "",
        "imprecise": {},
        "spent": {},
        "granted": {},
        "calls": [],
        "held": [],
        "claim": None,
        "delegated": False,
        "waiting": None,
        "handled": False,
        "finished_task": None,
        "let_go": False,
        "wrote": [],
        "rejected": dict(earlier.get("rejected") or {}),
    }


def fresh_records(
    plan: Mapping[str, Any],
    records: Mapping[str, Any],
    before: Mapping[str, Any] | None,
    stale: Collection[str] = (),
) -> dict[str, StepRecord]:
    """Return records for a plan just approved; finished and unchanged steps keep theirs, but for `stale`."""
    old = {step["id"]: step for step in (before or {}).get("steps", ())}

    def stays(step: Mapping[str, Any]) -> bool:
        status = records.get(step["id"], {}).get("status")
        return status == "done" or (old.get(step["id"]) == step and status in ("waiting", "ready", "pending"))

    return {
        step["id"]: _record_with_calls(step, records.get(step["id"]))
        for step in plan["steps"]
        if step["id"] in stale or not stays(step)
    }


def _record_with_calls(step: Mapping[str, Any], before: Mapping[str, Any] | None) -> StepRecord:
    """Return the record of a step to be begun, with the calls that its plan made out; not once it was begun."""
    record = fresh_record(before)
    if not step.get("calls") or (before and (before["rounds"] or before["observed"])):
        return record
    calls: list[FrozenCall] = [
        {"id": "", "name": call["tool"], "args": call["arguments"], "native": False, "position": n, "planned": True}
        for n, call in enumerate(step["calls"])
    ]
    return {**record, "calls": calls}


def next_needs(record: StepRecord) -> tuple[str, ...]:
    """Return what a step's next action takes one of: of frozen calls, of a claim to be proven, or of a round."""
    if calls := record.get("calls"):
        return () if needs_no_call(calls[0]) else ("tool_calls",)
    if claim := record.get("claim"):
        return (claim["needs"],)
    return ROUND


def count_silence(record: StepRecord, new: bool) -> StepRecord:
    """Return the record's change after a round: how many in a row brought nothing new, and the longest row."""
    rounds = 0 if new else record.get("silent", 0) + 1
    return {"silent": rounds, "silent_most": max(rounds, record.get("silent_most", 0))}


def standstill(record: StepRecord) -> str:
    """Return what to say of a step whose last rounds brought nothing new; "" while it gets on."""
    rounds = record.get("silent", 0)
    return f"nothing new in its last {rounds} rounds" if rounds >= SILENT_ROUNDS else ""


def needs_no_call(call: FrozenCall) -> bool:
    """Return whether a frozen call is settled without being made: a person refused it or answered in its place."""
    return call["name"] in LOOKUPS or "refused" in call or "response" in call


def transcript_key(id: str, record: StepRecord) -> str:
    """Return the key of a step's rounds while it waits; a new attempt starts a new transcript."""
    return id if record.get("attempt", 1) == 1 else f"{id}@{record['attempt']}"
