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
    """A step not started. A step that takes the place of an older one of the same id counts on from it,
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
    """Records for a plan just approved: finished steps and steps that did not change keep theirs, but for `stale`."""
    old = {step["id"]: step for step in (before or {}).get("steps", ())}

    def stays(step: Mapping[str, Any]) -> bool:
        status = records.get(step["id"], {}).get("status")
        return status == "done" or (old.get(step["id"]) == step and status in ("waiting", "ready", "pending"))

    return {
        step["id"]: _begun_with(step, records.get(step["id"]))
        for step in plan["steps"]
        if step["id"] in stale or not stays(step)
    }


def _begun_with(step: Mapping[str, Any], before: Mapping[str, Any] | None) -> StepRecord:
    """The record of a step to be begun, with the calls that its plan made out already; not once it was begun."""
    record = fresh_record(before)
    if not step.get("calls") or (before and (before["rounds"] or before["observed"])):
        return record
    calls: list[FrozenCall] = [
        {"id": "", "name": call["tool"], "args": call["arguments"], "native": False, "position": n, "planned": True}
        for n, call in enumerate(step["calls"])
    ]
    return {**record, "calls": calls}


def next_needs(record: StepRecord) -> tuple[str, ...]:
    """Of what the next action of a step takes one: frozen calls, a claim whose proof was cut off, or a round."""
    if calls := record.get("calls"):
        return () if settled(calls[0]) else ("tool_calls",)
    if claim := record.get("claim"):
        return (claim["needs"],)
    return ROUND


def silent(record: StepRecord, new: bool) -> StepRecord:
    """The record's change after a round: how many in a row brought nothing new, and how many that were at most."""
    rounds = 0 if new else record.get("silent", 0) + 1
    return {"silent": rounds, "silent_most": max(rounds, record.get("silent_most", 0))}


def standstill(record: StepRecord) -> str:
    """What is to be said of a step whose last rounds brought nothing new; "" while it gets on."""
    rounds = record.get("silent", 0)
    return f"nothing new in its last {rounds} rounds" if rounds >= SILENT_ROUNDS else ""


def settled(call: FrozenCall) -> bool:
    """Whether a frozen call comes to something without being made: a person refused it or answered in its place."""
    return call["name"] in LOOKUPS or "refused" in call or "response" in call


def transcript_key(id: str, record: StepRecord) -> str:
    """Where the rounds of a step are kept while it waits; a new attempt starts a new transcript."""
    return id if record.get("attempt", 1) == 1 else f"{id}@{record['attempt']}"
