"""What happens next in a run that has a plan: one pure decision over the steps' records.

Statuses: pending → running → done | failed | blocked | skipped | exhausted; on the way a step may be `waiting`
(for a person) or `ready` (to go on where it was).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.ledger import Amounts, add, exhausted, flying, remaining, share, tightest
from donewhen.state.plan.order import needs_of
from donewhen.state.plan.steps import next_needs
from donewhen.state.proof.outcome import FINAL
from donewhen.state.records import StepRecord
from donewhen.state.settings import Settings

Records = Mapping[str, StepRecord]
RESERVE: Amounts = {"model_calls": 1}
"""Kept back for the delivery."""
ENDED_BADLY = ("failed", "blocked", "exhausted", "skipped")
OPEN = ("pending", "ready", "waiting")


@dataclass(frozen=True)
class Move:
    """The decision: what to do, with which steps, and which records change on the way."""

    kind: Literal["dispatch", "ask", "early", "failed", "budget", "end"]
    steps: tuple[str, ...] = ()
    allowances: tuple[Amounts, ...] = ()
    key: str = ""
    """The limit that is reached (`budget`) or the code of the end (`end`)."""
    scope: str = ""
    """For `budget`: the step's id, or "" for the whole run."""
    changes: dict[str, StepRecord] = field(default_factory=dict)


def next_move(
    plan: Mapping[str, Any],
    records: Records,
    *,
    settings: Settings,
    spent: Mapping[str, float],
    granted: Mapping[str, float],
    writers: Collection[str] = (),
    late: bool = False,
    bound: bool = False,
) -> Move:
    """Decide. `writers`: ids of steps that may change something; `late`: the deadline has passed.

    `bound`: only a person lets steps of the plan go.
    """
    changes = settle(plan, records)
    now: dict[str, StepRecord] = {
        step["id"]: {**records.get(step["id"], {}), **changes.get(step["id"], {})} for step in plan["steps"]
    }
    if early := [id for id, record in now.items() if record.get("finished_task")]:
        if bound and not late and _left(now) and not any(now[id].get("let_go") for id in early):
            return Move("early", tuple(early), changes=changes)
        return Move("end", key="finished_early" if _left(now) else "worked", changes={**changes, **_skip(now)})
    if ready := _runnable(plan, now):
        account = (remaining(settings.limits, granted, spent), spent)
        return _dispatch(plan, ready, now, settings, account, writers, late, changes)
    if waiting := [id for id, record in now.items() if record.get("status") == "waiting"]:
        # After the deadline no answer could be used any more.
        return Move("budget" if late else "ask", tuple(waiting), key="deadline" if late else "", changes=changes)
    failed = [id for id, record in now.items() if failed_itself(record) and not record.get("handled")]
    if failed:
        return Move("failed", tuple(failed), changes=changes)
    return Move("end", key="worked", changes=changes)


def failed_itself(record: StepRecord) -> bool:
    """Return whether a step ended badly of itself; not one that only waits for such a step."""
    ended = record.get("status") in ("failed", "exhausted") or record.get("code") == "gave_up:blocked"
    return ended and record.get("status") in ENDED_BADLY


def settle(plan: Mapping[str, Any], records: Records) -> dict[str, StepRecord]:
    """Block what can never run: a step whose needs ended badly, do not exist or go in a circle, and its dependants."""
    needs = needs_of(plan)
    status = {id: records.get(id, {}).get("status", "pending") for id in needs}
    possible = {id for id in needs if status[id] not in (*OPEN, *ENDED_BADLY)}
    more = True
    while more:
        before = len(possible)
        for id in needs:  # in plan order, so that a chain takes one pass
            if status[id] in OPEN and id not in possible and possible.issuperset(needs[id]):
                possible.add(id)
        more = len(possible) > before
    return {
        id: {"status": "blocked", "reason": _why(needs[id], status, possible)}
        for id in needs
        if status[id] in OPEN and id not in possible
    }


def _why(needs: Sequence[str], status: Mapping[str, str], possible: Collection[str]) -> str:
    other = next(id for id in needs if id not in possible)
    said = status.get(other, "not in the plan")
    return f"needs {other}, which is {'blocked' if said in OPEN else said}"


def _left(records: Records) -> bool:
    return any(record.get("status") not in FINAL for record in records.values())


def _skip(records: Records) -> dict[str, StepRecord]:
    reason = next(said for record in records.values() if (said := record.get("finished_task")))
    return {id: {"status": "skipped", "reason": reason} for id, r in records.items() if r.get("status") not in FINAL}


def _runnable(plan: Mapping[str, Any], records: Records) -> list[str]:
    return [
        id
        for id, needed in needs_of(plan).items()
        if records[id].get("status", "pending") in ("pending", "ready")
        and all(records.get(other, {}).get("status") == "done" for other in needed)
    ]


def _dispatch(
    plan: Mapping[str, Any],
    ready: Sequence[str],
    records: Records,
    settings: Settings,
    account: tuple[Amounts, Mapping[str, float]],
    writers: Collection[str],
    late: bool,
    changes: dict[str, StepRecord],
) -> Move:
    left, spent = account
    needs = {id: next_needs(records[id]) for id in ready}
    free = share(left, 1, RESERVE)[0]
    if late or all(exhausted(free, needs[id]) for id in ready):
        key = "deadline" if late else exhausted(free, needs[ready[0]]) or ""
        return Move("budget", tuple(ready), key=key, changes=changes)
    own = {id: remaining(settings.step_limits, records[id].get("granted"), records[id].get("spent")) for id in ready}
    able = [id for id in ready if not exhausted(own[id], needs[id]) and not exhausted(free, needs[id])]
    if not able:
        short = next(id for id in ready if exhausted(own[id], needs[id]))
        return Move("budget", (short,), key=exhausted(own[short], needs[short]) or "", scope=short, changes=changes)
    chosen = _together(plan, able, writers)[: settings.max_parallel]
    while len(chosen) > 1 and any(exhausted(part, needs[id]) for part, id in _shared(left, spent, chosen)):
        chosen = chosen[:-1]
    allowances = tuple(tightest(part, own[id]) for part, id in _shared(left, spent, chosen))
    return Move("dispatch", tuple(chosen), allowances, changes=changes)


def _shared(left: Amounts, spent: Mapping[str, float], chosen: Sequence[str]) -> list[tuple[Amounts, str]]:
    """What each may spend: each may exceed its share by the call in flight, all together by no more than one call."""
    reserve = add(RESERVE, flying(spent, len(chosen) - 1))
    return list(zip(share(left, len(chosen), reserve), chosen, strict=True))


def _together(plan: Mapping[str, Any], ready: Sequence[str], writers: Collection[str]) -> list[str]:
    """Steps that may run at once: a step that may write and did not declare its dependencies runs alone."""
    declared = {step["id"] for step in plan["steps"] if step.get("depends_on") is not None}
    alone = [id for id in ready if id in writers and id not in declared]
    if alone and alone[0] == ready[0]:
        return [alone[0]]
    return [id for id in ready if id not in alone]
