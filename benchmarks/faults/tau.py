"""Tasks of tau-bench's retail domain as worlds: recorded transitions of the real tools, each change counted."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.faults.world import World
from benchmarks.retail_world import FULL, RetailWorld, descriptions, tasks

READS = ("get_", "find_", "list_", "calculate", "think", "transfer")


@dataclass
class TauWorld(World):
    """One task; `right`, `wrong` and `doubled` are the recording's own count."""

    inner: RetailWorld = field(default=None, repr=False)  # type: ignore[assignment]

    def call(self, name: str, arguments: dict[str, Any]) -> str:
        self.made.append((name, dict(arguments)))
        return self.inner.call(name, arguments)

    @property
    def left(self) -> list[range]:
        return [range(n, n + 1) for n, action in enumerate(self.actions) if action not in self.made]

    @property
    def tools(self) -> dict[str, Any]:
        about = descriptions(FULL.exists())
        return {
            each["name"]: {"description": each["description"], "input_schema": each["parameters"]} for each in about
        }

    @property
    def effects(self) -> dict[str, Any]:
        return {name: "read" if name.startswith(READS) else "write" for name in self.tools}

    @property
    def right(self) -> bool:
        return bool(self.inner.score()["goal_match"])

    @property
    def wrong(self) -> int:
        return int(self.inner.score()["off_graph"])

    @property
    def doubled(self) -> int:
        return int(self.inner.score()["dup_writes"])


def tau_worlds(folder: Path) -> list[TauWorld]:
    """The recorded tasks that change something (two of them where the others are not beside this repository)."""
    found = [task for task in tasks(FULL.exists()) if task["actions"]]
    return [_world(task, folder / f"{number}.jsonl") for number, task in enumerate(found)]


def _world(task: dict[str, Any], ledger: Path) -> TauWorld:
    actions = [(action["name"], action["args"]) for action in task["actions"]]
    return TauWorld(task["instruction"], actions, inner=RetailWorld(task, ledger))
