"""Versions of the stored state: an older thread is migrated when it is read or continues, or is refused.

A migration converts the values of a run to the next version. Versions older than the first release are refused. Without
an Agent in front of the graph, LangGraph adds a new message to the thread before any node can refuse it; the message
waits there for a version that can read the thread.

A subgraph stores no version: its state has the version of its run, until the run goes on. What it then hands to the
run may have today's shape already, so a migration does not change what has the new shape.
"""

from collections.abc import Callable, Mapping
from typing import Any

from donewhen.state.channels import VERSION, Json
from donewhen.state.errors import StorageError
from donewhen.state.statuses import fresh_record

Migration = Callable[[Json], Json]
_DECIDED = ("approved", "refused", "response", "known", "attempt")
_VERDICTS = {"passed": "proven", "supported": "cited"}


def _from_2(values: Json) -> Json:
    """Migrate from version 2, in which verdicts were `passed` or `supported`; cited criteria no longer count as proven.

    Runs of that version were not audited, and their outcomes do not say whether anything was read or changed.
    """
    filled = dict(values)
    if values.get("steps"):
        filled["steps"] = {id: _with_verdicts(record or {}) for id, record in values["steps"].items()}
    if values.get("record"):
        filled["record"] = _with_verdicts(values["record"])
    if (values.get("outcome") or {}).get("receipt"):
        before, journal = values["outcome"]["receipt"], values.get("journal") or ()
        looked = any(entry["source"] == "tool" and entry.get("effect") == "read" for entry in journal)
        changed = any(row["ok"] or row.get("unknown") for row in before.get("effects") or ())
        seen = {"looked": looked, "changed": changed}
        steps = [_remove_unconfirmed(row) for row in before.get("steps") or ()]
        receipt = {**before, **seen, "criteria": _verdicts(before.get("criteria")), "steps": steps, "audit": None}
        if output := before.get("output"):
            fields = [{"path": row["path"], "evidence": row["evidence"]} for row in output["fields"]]
            receipt["output"] = {**output, "fields": fields}
        filled["outcome"] = {**values["outcome"], "missing": [], **seen, "receipt": receipt}
    return filled


def _remove_unconfirmed(row: Json) -> Json:
    kept = {key: value for key, value in row.items() if key != "unconfirmed"}
    return {**kept, "unchanged": "", "criteria": _verdicts(row.get("criteria"))}


def _with_verdicts(record: Json) -> Json:
    claim = record.get("claim") or {}
    if decided := claim.get("decided"):
        claim = {**claim, "decided": {number: _verdicts([verdict])[0] for number, verdict in decided.items()}}
        record = {**record, "claim": claim}
    return {**record, "verdicts": _verdicts(record["verdicts"])} if record.get("verdicts") else record


def _verdicts(rows: list[Json] | None) -> list[Json]:
    return [{**row, "verdict": _VERDICTS.get(row.get("verdict", ""), row.get("verdict"))} for row in rows or ()]


def _from_3(values: Json) -> Json:
    """Migrate from version 3, in which the keys of a call said what a person decided about it.

    What was handed to an executor was known by its only argument.
    """
    filled = dict(values)
    if values.get("steps"):
        filled["steps"] = {id: _with_decisions(record or {}) for id, record in values["steps"].items()}
    if receipt := (values.get("outcome") or {}).get("receipt"):
        effects = [
            {**row, "delegated": True} if {*row["arguments"]} == {"brief"} else row
            for row in receipt.get("effects") or ()
        ]
        filled["outcome"] = {**values["outcome"], "receipt": {**receipt, "effects": effects}}
    return filled


def _with_decisions(record: Json) -> Json:
    if not record.get("calls"):
        return record
    return {**record, "calls": [_with_decision(call) for call in record["calls"]]}


def _with_decision(call: Json) -> Json:
    kept = {key: value for key, value in call.items() if key not in _DECIDED}
    if "known" in call:
        return {**kept, "decided": {"kind": "known", "effect": call["known"], "attempt": call.get("attempt", "")}}
    if "response" in call:
        return {**kept, "decided": {"kind": "answered", "text": call["response"]}}
    if "refused" in call:
        return {**kept, "decided": {"kind": "refused", "why": call["refused"]}}
    return {**kept, "decided": {"kind": "approved", "by": call["approved"]}} if "approved" in call else kept


def _from_4(values: Json) -> Json:
    """Migrate from version 4, in which a planning had one field for each thing that any of them may need.

    A step's record had only the fields that were written.
    """
    filled = _with_whole_records(values)
    if values.get("planning"):
        filled["planning"] = _nested_planning(values["planning"])
    return filled


def _with_whole_records(values: Json) -> Json:
    """Fill in the fields that the records of steps have today; from version 5, `asked_often`."""
    filled = dict(values)
    if values.get("steps"):
        filled["steps"] = {id: {**fresh_record(), **record} for id, record in values["steps"].items()}
    if values.get("record"):
        filled["record"] = {**fresh_record(), **values["record"]}
    return filled


def _nested_planning(old: Json) -> Json:
    if "work" in old:
        return old
    why: Json = {"kind": "request"}
    if old.get("promoted") in ("promoted:rounds", "promoted:write"):
        why = {"kind": "growth", "code": old["promoted"], "wants": old.get("wants", "")}
    elif old.get("failure"):
        twice = old.get("promoted") == "promoted:failed"
        why = {"kind": "failure", "failure": old["failure"], "tried": old.get("tried") or [], "twice": twice}
    about, feedback, sketch = None, None, None
    if shown := old.get("shown"):
        about = {"pause": shown, "change": _change_of(old.get("kept") or {}), "language": ""}
    if old.get("feedback"):
        feedback = {"text": old["feedback"], "about": about}
    if old.get("sketched"):
        sketch = {"plan": old["proposal"], "reason": old.get("reason", ""), "change": _change_of(old)}
    corrections = ("answer", "repeat", "lost", "language", "consent")
    return {
        **{key: old[key] for key in ("number", "transcript", "phase", "open")},
        "why": why,
        "finished": old.get("finished") or {},
        "failed": old.get("failed") or [],
        "feedback": feedback,
        "sketch": sketch,
        "change": _change_of(old),
        "language": old.get("declared", ""),
        "work": {
            "rounds": old["rounds"],
            "rounds_when_asked": old.get("since", 0),
            "rounds_granted": int((old.get("granted") or {}).get("rounds", 0)),
            "corrections": old["corrections"],
            "texts": old.get("texts", 0),
            "questions": old["questions"],
            "corrected": [each for each in corrections if old.get(f"{each}_told")],
            "by_planner": old.get("stand_in", False),
            "calls": old.get("calls") or [],
            "call_answers": old.get("held") or [],
            "sent_plan": old.get("then"),
            "found_tools": old.get("found") or [],
            "recalled": old.get("recalled") or [],
            "interjection_cursor": old.get("interjection_cursor", ""),
            "last_audit": old.get("judged"),
        },
    }


def _change_of(old: Json) -> Json:
    return {
        "stale": old.get("stale") or [],
        "instead": old.get("instead") or {},
        "dropped": old.get("dropped") or {},
        "drops_criterion": old.get("let_go", False),
        "unmentioned": old.get("came_back") or [],
    }


MIGRATIONS: dict[int, Migration] = {2: _from_2, 3: _from_3, 4: _from_4, 5: _with_whole_records}
"""Version → its migration to the next one. Never edit one after its release: threads live for years."""


def migrate(
    values: Mapping[str, Any], migrations: Mapping[int, Migration] = MIGRATIONS, current: int = VERSION
) -> Json:
    """Return the values in version `current`; the same object if they have it already.

    Raises StorageError, before anything is done, for a newer version or one without a migration.
    """
    if "version" not in values and isinstance(values, dict) and not values.get("goal"):
        return values  # the thread has no request
    version = values.get("version", 0)
    if type(version) is not int or version < 0:
        raise StorageError(f"the state of this thread has no version that could be read: {version!r}")
    if version == current and isinstance(values, dict):
        return values
    if version > current:
        raise StorageError(
            f"this thread was written by a newer version of DoneWhen (state {version}, this one reads up to "
            f"{current}); update DoneWhen to go on with it. Nothing was done."
        )
    result: Json = dict(values)
    for step in range(version, current):
        if step not in migrations:
            raise StorageError(
                f"this thread was written by an old version of DoneWhen (state {version}) that this one cannot read; "
                "start anew on another thread. Nothing was done."
            )
        result = {**migrations[step](result), "version": step + 1}
    return result


def migrate_inside(values: Json, version: int) -> Json:
    """Return the values of a subgraph whose run is stored in an older version."""
    return {key: value for key, value in migrate({**values, "version": version}).items() if key != "version"}
