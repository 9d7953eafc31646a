"""The record of a step, its statuses, and what may follow what: only `change_status` changes the status of a record.

A step is pending, at work (`running`; `ready`, if it goes on by itself; `waiting`, if it needs a person), or ended.
"""

from collections.abc import Mapping

from donewhen.state.records import StepChange, StepRecord, StepStatus

AT_WORK: tuple[StepStatus, ...] = ("running", "waiting", "ready")
UNFINISHED: tuple[StepStatus, ...] = ("pending", *AT_WORK)
ENDED_BADLY: tuple[StepStatus, ...] = ("failed", "blocked", "skipped", "exhausted")
FINAL: tuple[StepStatus, ...] = ("done", *ENDED_BADLY)
_FROM_OUTSIDE: tuple[StepStatus, ...] = ("blocked", "skipped", "exhausted")
"""The ends that come from outside: another step, the plan, the run or a limit ended the step."""
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


def fresh_record(before: StepRecord | None = None) -> StepRecord:
    """Return the record of a step that has not started.

    If it replaces the record `before` of the same id, these continue: `attempt` and `observed`, so that no observation
    id or effect key is used twice; the calls that were rejected or often asked about; and the interjections that were
    heard. All else starts afresh.
    """
    fresh: StepRecord = {
        "status": "pending",
        "started": "",
        "ended": "",
        "today": "",
        "attempt": 1,
        "observed": 0,
        "before": 0,
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
        "unchanged": "",
        "language_told": False,
        "judged": None,
        "doubted": False,
        "audit": None,
        "said": None,
        "found": [],
        "recalled": {},
        "spent": {},
        "granted": {},
        "allowance": {},
        "calls": [],
        "programs": [],
        "held": [],
        "claim": None,
        "then": None,
        "delegated": False,
        "waiting": None,
        "task": None,
        "answers": False,
        "interjection_cursor": "",
        "heard": [],
        "handled": False,
        "finished_task": None,
        "let_go": False,
        "wrote": [],
        "rejected": {},
        "asked_often": {},
        "replaced": None,
    }
    if before is None:
        return fresh
    return {
        **fresh,
        "started": before["started"],
        "attempt": before["attempt"] + 1,
        "observed": before["observed"],
        "before": before["observed"],
        "task": before["task"],
        "interjection_cursor": before["interjection_cursor"],
        "heard": before["heard"],
        "rejected": before["rejected"],
        "asked_often": before["asked_often"],
        "replaced": before["replaced"],
    }


def record_of(records: Mapping[str, StepRecord], id: str) -> StepRecord:
    """Return the record of a step; a fresh one if its plan has not begun, and no step has a record."""
    return records[id] if id in records else fresh_record()


def change_status(record: StepRecord, change: StepChange, at: str = "") -> StepChange:
    """Return the change that gives a record its next status, and what follows from it; `at` is the time.

    Only a step that waits has an open question, and only one that ended has a time of its end. Raises ValueError if the
    status may not follow.
    """
    before, after = record["status"], change["status"]
    if after not in FOLLOWS[before]:
        raise ValueError(f"a step that is {before} cannot become {after}; it can become: {', '.join(FOLLOWS[before])}")
    whole: StepChange = {**change}
    if record["waiting"] and after != "waiting":
        whole["waiting"] = None
    if after in FINAL and at:
        whole["ended"] = at
    elif record["ended"] and after not in (*FINAL, "stale"):
        whole["ended"] = ""
    return whole
