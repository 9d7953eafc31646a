"""Versions of the stored state: an older thread is migrated when it is read or goes on, or is refused.

A migration takes the values of a run (or of one step or planning that is under way) from its version to the next.
Where no Agent stands before the graph, LangGraph takes a new message into the thread before any node can refuse it:
there it waits, and a version that can read the thread goes on with it as if it came then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from donewhen.state.errors import StorageError
from donewhen.state.graph_state import VERSION, Json
from donewhen.state.plan.steps import fresh_record

Migration = Callable[[Json], Json]


def _counted(values: Json) -> Json:
    """0, before versions were counted: records lacked fields that came later, and requests were not numbered."""
    filled = dict(values)
    if values.get("steps"):
        filled["steps"] = {id: {**fresh_record(), **record} for id, record in (values["steps"] or {}).items()}
    if values.get("record"):
        filled["record"] = {**fresh_record(), **(values["record"] or {})}
    if values.get("goal"):
        filled.setdefault("turn", 1)
    return filled


def _given(values: Json) -> Json:
    """1, when a step or planning under way held all that it was given: now that is read from the run."""
    filled = dict(values)
    if kept := values.get("kept"):
        filled |= {"transcript": values["transcript"][kept:], "kept": 0}
    if "spent_before" in (values.get("record") or {}):
        filled["record"] = {key: value for key, value in values["record"].items() if key != "spent_before"}
    return filled


_VERDICTS = {"passed": "proven", "supported": "cited"}


def _renamed(values: Json) -> Json:
    """2, when a verdict was `passed` or `supported`: now what was only cited is not called proven.

    Nobody audited what ended then, and its outcome did not say whether anything was looked at or changed.
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
        steps = [_without_unconfirmed(row) for row in before.get("steps") or ()]
        receipt = {**before, **seen, "criteria": _verdicts(before.get("criteria")), "steps": steps, "audit": None}
        if output := before.get("output"):
            fields = [{"path": row["path"], "evidence": row["evidence"]} for row in output["fields"]]
            receipt["output"] = {**output, "fields": fields}
        filled["outcome"] = {**values["outcome"], "missing": [], **seen, "receipt": receipt}
    return filled


def _without_unconfirmed(row: Json) -> Json:
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


MIGRATIONS: dict[int, Migration] = {0: _counted, 1: _given, 2: _renamed}
"""Version → what makes the next version of it. Never edited once released: threads live for years."""


def migrated(
    values: Mapping[str, Any], migrations: Mapping[int, Migration] = MIGRATIONS, current: int = VERSION
) -> Json:
    """The values as `current` has them; the very same object if they are so already.

    Raises StorageError, before anything is done, for a version that is newer or that nothing leads on from.
    """
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
