"""F14: replies of real models, read as they were recorded."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool

from benchmarks.faults.figures import Measured, counted, of
from benchmarks.report import table
from benchmarks.retail_world import EVALS, ROOT
from donewhen.graph.llm.reply import Decision, UnusableReply, read_reply
from donewhen.graph.tools.toolbox import KnownTool, Toolbox

RECORDED = EVALS / "data" / "model_outputs.jsonl"
SAMPLE = ROOT / "tests" / "data" / "model_outputs_sample.jsonl"


class Names(Toolbox):
    """Tools of which only the names were recorded, whatever they are: they take any arguments."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__([])
        schema = {"type": "object", "additionalProperties": True}
        known = KnownTool(StructuredTool(name="recorded", description="Recorded.", args_schema=schema, func=print))
        self.update(dict.fromkeys(names, known))


def recorded(path: Path = RECORDED) -> list[dict[str, Any]]:
    """The recorded replies in which a decision was asked for; the sample in the tests where they are missing."""
    lines = (path if path.exists() else SAMPLE).read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["task"] == "decision"]


def as_recorded(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Ids of the replies that were read as recorded, and of the others."""
    accepted = {row["id"]: [_listed(each) for each in row.get("accept") or ()] for row in rows}
    names = {action["action"] for each in accepted.values() for actions in each for action in actions}
    toolbox = Names(sorted(names - {"Final Answer"}))
    right, wrong = [], []
    for row in rows:
        found = read_reply(AIMessage(row["raw"]), ("answer", "ask_user"), toolbox)
        (right if _fits(row, accepted[row["id"]], found) else wrong).append(row["id"])
    return right, wrong


def _listed(accepted: Any) -> list[Any]:
    return accepted if isinstance(accepted, list) else [accepted]


def _fits(row: dict[str, Any], accepted: list[list[Any]], found: Decision | UnusableReply) -> bool:
    """Return whether a reading equals the recorded one. A text in place of arguments is read, and refused by name."""
    if row["expect"] == "reject":
        return isinstance(found, UnusableReply) or found.kind == "speak"
    wanted = [[(action["action"], action["action_input"]) for action in actions] for actions in accepted]
    if isinstance(found, UnusableReply):
        texts = [name for each in wanted for name, given in each if isinstance(given, str)]
        return any(f"the arguments of {name} are not a JSON object" in found.problems for name in texts)
    if found.kind == "answer":
        return [("Final Answer", found.arguments["text"])] in wanted
    return [(call["name"], call["args"]) for call in found.calls] in wanted


async def collect(folder: Path) -> Measured:
    """F14."""
    rows = recorded()
    right, wrong = as_recorded(rows)
    n = len(rows)
    refused = sum(row["expect"] == "reject" for row in rows)
    taken = [row for row in rows if row["expect"] == "reject" and row["id"] in wrong]
    missed = [row for row in rows if row["expect"] != "reject" and row["id"] in wrong]
    projects = Counter(source["repo"] for row in rows for source in row.get("sources", ())[:1])
    figures = [of("F14", "recorded decisions of real models, read as recorded", n, len(right), 0.99)]
    cells = [
        ("a decision", n - refused, n - refused - len(missed), len(missed)),
        ("no decision, or none that may be taken", refused, refused - len(taken), len(taken)),
    ]
    origin = f"From {counted(projects)}." if len(projects) < 12 else f"From {len(projects)} projects."
    return Measured(figures, f"{table(['recorded', 'n', 'read as recorded', 'otherwise'], cells)}\n\n{origin}")
