"""X25: which of the writes that a real model made would ask first, in 200 recorded dialogues about flights.

`python -m benchmarks.consent` prints the figures and every question. What the customer says are the user's words; a
question of the agent and the next words of the customer are a question and its answer; no plan makes anything known.
A person says yes to what is asked; calls of one reply stand alone in these dialogues.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import table
from donewhen.state.consent import KnownTargets
from donewhen.state.proof.journal import observation

Json = dict[str, Any]
RECORDED = Path(__file__).with_name("airline.jsonl.xz")


@dataclass(frozen=True)
class Played:
    """One dialogue."""

    task: str
    right: bool
    """True if the database is as the task requires."""
    writes: int
    asked: tuple[tuple[str, tuple[str, ...]], ...]
    """The writes that ask: the tool, and which targets are new."""


def recorded() -> tuple[Json, list[Json]]:
    """Return the file's header, and the dialogues."""
    head, *dialogues = (json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).splitlines())
    return head, dialogues


def play_one(dialogue: Mapping[str, Any], schemas: Mapping[str, Any]) -> Played:
    """Go through a dialogue as the runtime would."""
    known, question, writes = KnownTargets(), "", 0
    asked: list[tuple[str, tuple[str, ...]]] = []
    for number, turn in enumerate(dialogue["turns"]):
        if "agent" in turn:
            question = turn["agent"]
        elif "user" in turn:
            if question:
                about = {"question": question, "by": "user"}
                known.observe(observation(f"s1.{number}", "s1", 0, "user", turn["user"], arguments=about))
            else:
                known.say(turn["user"])
        else:
            name, arguments, result = turn["tool"], turn["arguments"], turn["result"]
            effect = "write" if name in schemas else "read"
            if effect == "write":
                writes += 1
                if new := known.new(arguments, schemas[name]):
                    asked.append((name, tuple(new)))
                    known.decide({"kind": "tool", "decision": "approve", "text": "", "arguments": arguments})
            ok = not result.startswith("Error")
            more: Json = {"ok": ok, "tool": name, "arguments": arguments, "effect": effect}
            known.observe(observation(f"s1.{number}", "s1", 0, "tool", result, **more))
    return Played(f"{dialogue['task']}/{dialogue['trial']}", dialogue["right"], writes, tuple(asked))


def measure() -> list[Played]:
    """All dialogues."""
    head, dialogues = recorded()
    return [play_one(dialogue, head["writes"]) for dialogue in dialogues]


def section(results: list[Played]) -> str:
    """The table, and every question."""
    rows = []
    for name, some in (("that went right", [r for r in results if r.right]),
                       ("that went wrong", [r for r in results if not r.right]), ("all", results)):  # fmt: skip
        asked = [r for r in some if r.asked]
        questions = sum(len(r.asked) for r in some)
        rows.append([name, len(some), sum(r.writes for r in some), questions, len(asked),
                     f"{10 * questions / len(some):.1f}"])  # fmt: skip
    head = ["dialogues", "n", "writes", "ask", "in dialogues", "questions in ten"]
    return f"{table(head, rows)}\n\n" + "\n".join(_lines(results))


def _lines(results: list[Played]) -> Iterator[str]:
    for each in results:
        for tool, new in each.asked:
            yield f"- task {each.task}, {'right' if each.right else 'wrong'}: {tool}, new: {', '.join(new)}"


if __name__ == "__main__":
    print(section(measure()))
