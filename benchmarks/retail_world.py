"""Recorded tasks of tau-bench's retail domain, replayed: what its real tools did and said, state by state.

A task holds `actions` (what solves it), `edges` `[node, action, next node, observation]`, `obs`, the database's hash at
each of `nodes`, and `goal_node`. The full set of 20 lies beside this repository, two of them in tests/data.
"""

import fcntl
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from donewhen.agent.testing.crash import midway, note, notes

Json = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "tests" / "data" / "retail_sample.json"
EVALS = ROOT.parent / "shared" / "evals"
FULL = EVALS / "data" / "tau1_retail_dev.jsonl.gz"


@cache
def tasks(full: bool) -> list[Json]:
    """The recorded tasks: all 20 (FileNotFoundError where they are not), or the two in tests/data."""
    if not full:
        return list(json.loads(SAMPLE.read_text("utf-8"))["tasks"])
    with gzip.open(FULL, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@cache
def descriptions(full: bool) -> list[Json]:
    """Return the domain's tools: `{name, description, parameters}`."""
    path = EVALS / "data" / "tools_tau1_retail.json" if full else SAMPLE
    return list(json.loads(path.read_text("utf-8"))["tools"])


class RetailWorld:
    """The world of one task; its state is a file, so it survives whoever uses it."""

    def __init__(self, task: Json, ledger: Path) -> None:
        self.task = task
        self.ledger = ledger
        self._actions = {_canonical(each["name"], each["args"]): n for n, each in enumerate(task["actions"])}
        self._edges = {(at, action): (to, seen) for at, action, to, seen in task["edges"]}

    @property
    def rows(self) -> list[Json]:
        """Every call that reached the world, oldest first."""
        return notes(self.ledger)

    def call(self, name: str, arguments: Mapping[str, Any], key: str | None = None) -> str:
        """Return the recorded result of a call. A known `key` returns the old result."""
        with self.ledger.with_name(self.ledger.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = self.rows
            if key and (before := next((row["res"] for row in rows if row.get("ik") == key), None)):
                return str(before)
            at = rows[-1]["to"] if rows else 0
            action = self._actions.get(_canonical(name, arguments))
            to, seen = self._edges.get((at, action if action is not None else -1), (at, None))
            said = "Error: this was never recorded" if seen is None else str(self.task["obs"][seen])
            row = {"n": len(rows) + 1, "name": name, "args": dict(arguments), "by": "assistant", "a": action}
            note(self.ledger, {**row, "at": at, "to": to, "off": seen is None, "ik": key, "res": said})
        midway()
        return said

    def happened(self, name: str, arguments: Mapping[str, Any]) -> bool:
        """Return whether this call ever reached the world."""
        wanted = _canonical(name, arguments)
        return any(_canonical(row["name"], row["args"]) == wanted for row in self.rows)

    def score(self) -> Json:
        """`goal_match`: the database's hash is the goal's. `dup_writes`, `missing`: calls too many and too few."""
        rows = self.rows
        wanted: Counter[int] = Counter(self.task["path"])
        got: Counter[int] = Counter(row["a"] for row in rows if row["a"] is not None)
        node = rows[-1]["to"] if rows else 0
        return {
            "goal_match": self.task["nodes"][node] == self.task["goal_hash"],
            "dup_writes": sum((got - wanted).values()),
            "missing": sum((wanted - got).values()),
            "off_graph": sum(row["off"] for row in rows),
        }


def _canonical(name: str, arguments: Mapping[str, Any]) -> str:
    return name + json.dumps(arguments, sort_keys=True)
