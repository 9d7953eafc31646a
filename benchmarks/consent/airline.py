"""X25: which of the writes that a real model made would ask first, in 200 recorded dialogues about flights.

Its writes were made without a plan. They are counted twice: as they are, where what the agent writes is a question and
the customer's next words are its answer, and as a run that shows what it is about to do: what the agent wrote and the
customer answered, other than with a no, counts as a plan that was shown. A person says yes to what is asked; calls of
one reply stand alone in these dialogues.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import table
from donewhen.state.consent import Source, Sources, new_values
from donewhen.state.language.short_replies import read_word
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
    """The writes that ask: the tool, and which values are new."""


def recorded() -> tuple[Json, list[Json]]:
    """Return the file's header, and the dialogues."""
    head, *dialogues = (json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).splitlines())
    return head, dialogues


def play_one(dialogue: Mapping[str, Any], schemas: Mapping[str, Any], *, planned: bool) -> Played:
    """Go through a dialogue as the runtime would."""
    known, question, writes = Sources(), "", 0
    asked: list[tuple[str, tuple[str, ...]]] = []
    for number, turn in enumerate(dialogue["turns"]):
        if "agent" in turn:
            question = turn["agent"]
        elif "user" in turn:
            if not question:
                known.add_text(turn["user"])
            elif planned and read_word(turn["user"].split(",")[0].split(".")[0]) != "no":
                known.add_text(question, Source("plan"))
                known.add_reply(turn["user"])
            else:
                about = {"question": question, "by": "user"}
                known.add_observation(observation(f"s1.{number}", "s1", 0, "user", turn["user"], arguments=about))
        else:
            name, arguments, result = turn["tool"], turn["arguments"], turn["result"]
            effect = "write" if name in schemas else "read"
            if effect == "write":
                writes += 1
                if new := new_values(known.trace(arguments, schemas[name])):
                    asked.append((name, tuple(new)))
                    known.add_decision({"kind": "tool", "decision": "approve", "text": "", "arguments": arguments})
            ok = not result.startswith("Error")
            more: Json = {"ok": ok, "tool": name, "arguments": arguments, "effect": effect}
            known.add_observation(observation(f"s1.{number}", "s1", 0, "tool", result, **more))
    return Played(f"{dialogue['task']}/{dialogue['trial']}", dialogue["right"], writes, tuple(asked))


def measure(*, planned: bool) -> list[Played]:
    """All dialogues."""
    head, dialogues = recorded()
    return [play_one(dialogue, head["writes"], planned=planned) for dialogue in dialogues]


def section() -> str:
    """The table, and every question of the runs that show what they are about to do."""
    rows, results = [], list[Played]()
    for planned in (False, True):
        results = measure(planned=planned)
        for name, some in (("right", [r for r in results if r.right]), ("wrong", [r for r in results if not r.right]),
                           ("all", results)):  # fmt: skip
            questions = sum(len(r.asked) for r in some)
            what = "what was shown counts" if planned else "only questions"
            rows.append([what, name, len(some), sum(r.writes for r in some), questions,
                         f"{10 * questions / len(some):.1f}"])  # fmt: skip
    head = ["airline", "dialogues that went", "n", "writes", "ask", "in ten"]
    return f"{table(head, rows)}\n\n" + "\n".join(_lines(results))


def _lines(results: list[Played]) -> Iterator[str]:
    for each in results:
        for tool, new in each.asked:
            yield f"- task {each.task}, {'right' if each.right else 'wrong'}: {tool}, new: {', '.join(new)}"
