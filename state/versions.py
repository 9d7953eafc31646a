"""Versions of the stored state: an older thread is migrated when it is read or goes on, or is refused.

A migration takes the values of a run from its version to the next. What is older than the first release is refused.
Where no Agent stands before the graph, LangGraph takes a new message into the thread before any node can refuse it:
there it waits, and a version that can read the thread goes on with it as if it came then.
"""

from collections.abc import Callable, Mapping
from typing import Any

from donewhen.state.errors import StorageError
from donewhen.state.run import VERSION, Json

Migration = Callable[[Json], Json]
_VERDICTS = {"passed": "proven", "supported": "cited"}


def _from_2(values: Json) -> Json:
    """Migrate from 2, when a verdict was `passed` or `supported`: now what was only cited is not called proven.

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


MIGRATIONS: dict[int, Migration] = {2: _from_2}
"""Version → its migration to the next one. Never edited once released: threads live for years."""


def migrate(
    values: Mapping[str, Any], migrations: Mapping[int, Migration] = MIGRATIONS, current: int = VERSION
) -> Json:
    """Return the values as `current` has them; the very same object if they are so already.

    Raises StorageError, before anything is done, for a version that is newer or that nothing leads on from.
    """
    if "version" not in values and isinstance(values, dict) and not values.get("goal"):
        return values  # no request was ever received
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
