"""The statuses of a step, and what may follow what: only `change_status` changes the status of a record.

A step is pending, at work (`running`; `ready`, if it goes on by itself; `waiting`, if it needs a person), or ended.
"""

from collections.abc import Mapping

from donewhen.state.records import StepRecord, StepStatus

AT_WORK: tuple[StepStatus, ...] = ("running", "waiting", "ready")
UNFINISHED: tuple[StepStatus, ...] = ("pending", *AT_WORK)
ENDED_BADLY: tuple[StepStatus, ...] = ("failed", "blocked", "skipped", "exhausted")
FINAL: tuple[StepStatus, ...] = ("done", *ENDED_BADLY)
_FROM_OUTSIDE: tuple[StepStatus, ...] = ("blocked", "skipped", "exhausted")
"""How a step ends that did not end itself: another one, the plan, the run or a limit ended it."""
FOLLOWS: Mapping[StepStatus, tuple[StepStatus, ...]] = {
    "pending": ("running", *_FROM_OUTSIDE),
    "running": ("ready", "waiting", "done", "failed", *_FROM_OUTSIDE),
    "waiting": ("ready", *_FROM_OUTSIDE),
    "ready": ("running", *_FROM_OUTSIDE),
    "done": ("stale",),
    "failed": ("pending",),
    "blocked": ("pending",),
    "exhausted": ("pending",),
    "skipped": (),
    "stale": (),
}
"""Status → those that may follow. A new attempt has a new record (`fresh_record`)."""


def change_status(record: StepRecord, change: StepRecord, at: str = "") -> StepRecord:
    """Return the change that gives a record its next status, with what follows from that; `at` is when.

    Only who waits has an open question, and only who ended has an end. Raises ValueError if the status may not follow.
    """
    before, after = record.get("status", "pending"), change["status"]
    if after not in FOLLOWS[before]:
        raise ValueError(f"a step that is {before} cannot become {after}; it can become: {', '.join(FOLLOWS[before])}")
    whole: StepRecord = {**change}
    if record.get("waiting") and after != "waiting":
        whole["waiting"] = None
    if after in FINAL and at:
        whole["ended"] = at
    elif record.get("ended") and after not in (*FINAL, "stale"):
        whole["ended"] = ""
    return whole
