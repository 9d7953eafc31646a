"""The next move of a run with a plan: one pure decision based on the records of its steps.

`state/statuses.py` has the statuses of steps.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.language.texts import catalogue, say_why
from donewhen.state.ledger import (
    Amounts,
    DayAccount,
    add,
    estimate_in_flight,
    first_exhausted,
    remaining,
    share,
    tightest,
)
from donewhen.state.plan.order import needs_of, steps_after
from donewhen.state.plan.steps import BLOCKED, GROWS, next_needs
from donewhen.state.records import StepChange, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import ENDED_BADLY, FINAL, UNFINISHED

NAME_CHARS = 80
"""The most characters of a step in the reason of another one."""

Records = Mapping[str, StepRecord]
RESERVE: Amounts = {"model_calls": 1}
"""Reserved for the delivery."""
MoveKind = Literal["dispatch", "promote", "ask", "early", "failed", "budget", "end"]


@dataclass(frozen=True)
class Move:
    """The decision: what to do, with which steps, and which records change."""

    kind: MoveKind
    steps: tuple[str, ...] = ()
    allowances: dict[str, Amounts] = field(default_factory=dict)
    """For `dispatch`: what each step may spend, by its id."""
    key: str = ""
    """The limit that was reached (`budget`) or the code of the ending (`end`)."""
    scope: str = ""
    """For `budget`: the id of the step, or "" for the whole run."""
    day: DayAccount | None = None
    """For `budget`: the account of the day that is used up, if it is that and not the run's."""
    changes: dict[str, StepChange] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """A run at the moment of a decision; its records include `changes`."""

    plan: Mapping[str, Any]
    records: Records
    settings: Settings
    left: Amounts
    """What is left of the run's limits, and of those of the day."""
    days: Sequence[DayAccount]
    spent: Mapping[str, float]
    writers: Collection[str]
    """Ids of steps that may write."""
    changes: dict[str, StepChange]

    def move(self, kind: MoveKind, steps: Sequence[str] = (), **more: Any) -> Move:
        """Return a decision together with the record changes so far."""
        return Move(kind, tuple(steps), **{"changes": self.changes, **more})


def next_move(
    values: Mapping[str, Any],
    settings: Settings,
    writers: Collection[str] = (),
    days: Sequence[DayAccount] = (),
) -> Move:
    """Decide the next move of a run. `writers` are the ids of steps that may write, `days` accounts of today."""
    plan, late = values["plan"], settings.is_late()
    stored: Records = values["steps"]
    changes = block_unreachable(plan, stored, values.get("language", "en"))
    records: dict[str, StepRecord] = {
        step["id"]: {**stored[step["id"]], **changes.get(step["id"], StepChange())} for step in plan["steps"]
    }
    spent = values.get("spent") or {}
    left = tightest(remaining(settings.limits, values.get("granted"), spent), *(day.left for day in days))
    situation = Situation(plan, records, settings, left, days, spent, writers, changes)
    if early := [id for id, record in records.items() if record["finished_task"]]:
        # Only a person may drop steps of a plan that a person approved.
        bound = settings.approvals == "each" and (values.get("approval") or {}).get("by") == "user"
        open_steps = any(record["status"] not in FINAL for record in records.values())
        if bound and not late and open_steps and not any(records[id]["let_go"] for id in early):
            return situation.move("early", early)
        key = "finished_early" if open_steps else "worked"
        return situation.move("end", key=key, changes={**changes, **_skip_open_steps(records)})
    if growing := [id for id, record in records.items() if record["status"] == "ready" and record["code"] in GROWS]:
        return situation.move("promote", growing)
    done = {id for id, record in records.items() if record["status"] == "done"}
    if ready := [id for id in steps_after(plan, done) if records[id]["status"] in ("pending", "ready")]:
        return _dispatch(situation, ready, late)
    if waiting := [id for id, record in records.items() if record["status"] == "waiting"]:
        # No answer helps after the deadline.
        return situation.move("budget", waiting, key="deadline") if late else situation.move("ask", waiting)
    if failed := [id for id, record in records.items() if has_failed(record) and not record["handled"]]:
        return situation.move("failed", failed)
    return situation.move("end", key="worked")


def has_failed(record: StepRecord) -> bool:
    """Return whether a step failed by itself; a step that another one blocked did not."""
    status, says_blocked = record["status"], record["code"] == BLOCKED
    return status in ("failed", "exhausted") or (status in ENDED_BADLY and says_blocked)


def block_unreachable(plan: Mapping[str, Any], records: Records, language: str = "en") -> dict[str, StepChange]:
    """Block the steps whose needs ended badly, are missing or are circular, and all that depend on those steps."""
    status = {step["id"]: records[step["id"]]["status"] for step in plan["steps"]}
    possible = {id for id in status if status[id] not in (*UNFINISHED, *ENDED_BADLY)}
    more = True
    while more:
        before = len(possible)
        for id in steps_after(plan, possible):  # in plan order, so that a chain takes one pass
            if status[id] in UNFINISHED:
                possible.add(id)
        more = len(possible) > before
    blocked = [id for id in status if status[id] in UNFINISHED and id not in possible]
    needs = needs_of(plan) if blocked else {}
    names = {step["id"]: " ".join(step["content"].split())[:NAME_CHARS] for step in plan["steps"]}
    return {
        id: {"status": "blocked", "reason": _why_blocked(needs[id], status, possible, names, language)}
        for id in blocked
    }


def _why_blocked(
    needs: Sequence[str],
    status: Mapping[str, str],
    possible: Collection[str],
    names: Mapping[str, str],
    language: str,
) -> str:
    """Return which need cannot be met, in its words: its number may be another step's when this is read."""
    other = next(id for id in needs if id not in possible)
    if other not in status:
        return say_why(language, "needs_missing", step=other)
    words = catalogue(language)["summary"]["blocked" if status[other] in UNFINISHED else status[other]]
    return say_why(language, "needs", step=names[other], status=words)


def _skip_open_steps(records: Records) -> dict[str, StepChange]:
    reason = next(reason_text for record in records.values() if (reason_text := record["finished_task"]))
    return {id: {"status": "skipped", "reason": reason} for id, r in records.items() if r["status"] not in FINAL}


def _dispatch(situation: Situation, ready: Sequence[str], late: bool) -> Move:
    """Dispatch ready steps as far as the limits allow; otherwise return the limit that is reached."""
    records, limits = situation.records, situation.settings.step_limits
    needs = {id: next_needs(records[id]) for id in ready}
    free = share(situation.left, 1, RESERVE)[0]
    if late or all(first_exhausted(free, needs[id]) for id in ready):
        key = "deadline" if late else first_exhausted(free, needs[ready[0]]) or ""
        used_up = (day for day in situation.days if day.left.get(key, math.inf) <= RESERVE.get(key, 0))
        return situation.move("budget", ready, key=key, day=next(used_up, None))
    own = {id: remaining(limits, records[id]["granted"], records[id]["spent"]) for id in ready}
    able = [id for id in ready if not first_exhausted(own[id], needs[id]) and not first_exhausted(free, needs[id])]
    if not able:
        short = next(id for id in ready if first_exhausted(own[id], needs[id]))
        return situation.move("budget", [short], key=first_exhausted(own[short], needs[short]) or "", scope=short)
    # A step that may write and declares no dependencies runs alone.
    declared = {step["id"] for step in situation.plan["steps"] if step.get("depends_on") is not None}
    alone = [id for id in able if id in situation.writers and id not in declared]
    chosen = alone[:1] if alone[:1] == able[:1] else [id for id in able if id not in alone]
    chosen = chosen[: situation.settings.max_parallel]
    while True:
        # Each may exceed its share by the call in flight, all together by no more than one call.
        reserve = add(RESERVE, estimate_in_flight(situation.spent, len(chosen) - 1))
        parts = dict(zip(chosen, share(situation.left, len(chosen), reserve), strict=True))
        if len(chosen) == 1 or not any(first_exhausted(part, needs[id]) for id, part in parts.items()):
            break
        chosen = chosen[:-1]
    allowances = {id: tightest(part, own[id]) for id, part in parts.items()}
    return situation.move("dispatch", chosen, allowances=allowances)
