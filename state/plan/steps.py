"""Step records: new ones, what the next action takes of the budget, and whether a step stands still."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from donewhen.state.channels import Json, PlanningOutput, StepOutput
from donewhen.state.language.texts import say
from donewhen.state.ledger import ROUND, add
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import NOT_MADE, StepClaim, StepRecord, decision_on
from donewhen.state.statuses import fresh_record

SILENT_ROUNDS = 5
"""Rounds without anything new after which the model and the user are told."""


FOR_ROUNDS, FOR_WRITE = "promoted:rounds", "promoted:write"
GROWS = (FOR_ROUNDS, FOR_WRITE)
"""Codes with which the only step of a plan stops, at work, so that the plan can grow (Q74)."""
BLOCKED = "gave_up:blocked"
"""The code of a step whose model says that something blocks it."""
UNWANTED = "gave_up:replan"
"""The code of a step whose model says that the plan is wrong there, or no longer wanted."""
MALFORMED = "malformed"
"""The code of a step that failed only because its model could not put its end into the right form."""


def fresh_attempts(records: Mapping[str, StepRecord]) -> dict[str, StepRecord]:
    """Return new records for the steps that are tried once more, because only the form of their end was wrong (Q79)."""
    failed = {id: record for id, record in records.items() if record["status"] == "failed" and not record["handled"]}
    return {
        id: next_attempt(record)
        for id, record in failed.items()
        if record["code"] == MALFORMED and record["attempt"] == 1
    }


def next_attempt(record: StepRecord) -> StepRecord:
    """Return the record of a step's next attempt: what it wrote, handed over, spent and was granted still counts."""
    return {
        **fresh_record(record),
        "wrote": record["wrote"],
        "delegated": record["delegated"],
        "spent": record["spent"],
        "granted": record["granted"],
    }


def fresh_records(
    plan: Mapping[str, Any],
    records: Mapping[str, StepRecord],
    before: Mapping[str, Any] | None,
    stale: Collection[str] = (),
) -> dict[str, StepRecord]:
    """Return records for a newly approved plan; finished and unchanged steps keep theirs, except `stale` ones."""
    old = {step["id"]: step for step in (before or {}).get("steps", ())}
    fresh: dict[str, StepRecord] = {}
    for step in plan["steps"]:
        earlier = records.get(step["id"])
        status = earlier["status"] if earlier else None
        stays = status == "done" or (old.get(step["id"]) == step and status in ("waiting", "ready", "pending"))
        stays = stays or (status == "ready" and _work_of(old.get(step["id"])) == _work_of(step))
        if stays and step["id"] not in stale:
            continue
        record = fresh[step["id"]] = fresh_record(earlier)
        if step.get("calls") and not (earlier and (earlier["rounds"] or earlier["observed"])):
            record["calls"] = [  # the plan specifies them
                {
                    "id": "",
                    "name": call["tool"],
                    "args": call["arguments"],
                    "native": False,
                    "position": n,
                    "planned": True,
                }
                for n, call in enumerate(step["calls"])
            ]
    return fresh


def _work_of(step: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a step is to do. If only its tools or its needs change, work that has begun goes on."""
    return {key: value for key, value in (step or {}).items() if key not in ("tools", "depends_on")}


def account_for_work(record: StepRecord, wrote: Sequence[str], spent: Mapping[str, float] | None) -> StepRecord:
    """Return the record of a step that leaves, with what it wrote and spent since it was dispatched."""
    return {**record, "wrote": [*record["wrote"], *wrote], "spent": add(record["spent"], spent)}


def leave_interrupted(inside: Json) -> Json:
    """Return the update of the run with which interrupted planning, or an interrupted step, leaves to go on later.

    `inside` is its own state. One that has left already has the update there.
    """
    step = "planning" not in inside
    keys = (StepOutput if step else PlanningOutput).__annotations__
    update = {key: value for key, value in inside.items() if key in keys and value}
    if step and inside.get("record") and "steps" not in update:
        record = account_for_work(inside["record"], inside.get("wrote") or (), inside.get("spent"))
        if inside.get("decision"):
            record["claim"] = cast("StepClaim", {**inside["decision"], "needs": ROUND[-1]})
        update["steps"] = {inside["id"]: record}
        update["transcripts"] = {transcript_key(inside["id"], record): inside.get("transcript") or []}
    elif not step and "transcripts" not in update:
        update["transcripts"] = {inside["id"]: inside.get("transcript") or []}
    return update


def next_needs(record: StepRecord) -> tuple[str, ...]:
    """Return the amounts of which a step's next action takes one: for calls, for a claim, or for a round."""
    if calls := record["calls"]:
        free = calls[0]["name"] in LOOKUPS or decision_on(calls[0]) in NOT_MADE
        return () if free else ("tool_calls",)
    if claim := record["claim"]:
        return (claim["needs"],)
    return ROUND


def standstill_notice(record: StepRecord, language: str = "en") -> str:
    """Return a notice about a step whose last rounds brought nothing new; "" otherwise."""
    rounds = record["silent"]
    return say(language, "ask", "standstill", rounds=rounds) if rounds >= SILENT_ROUNDS else ""


def transcript_key(id: str, record: StepRecord) -> str:
    """Return the key of a step's stored rounds; each attempt has its own."""
    return id if record["attempt"] == 1 else f"{id}@{record['attempt']}"
