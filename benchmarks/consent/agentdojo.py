"""X25: what the ground truth of a public benchmark would ask, and what its attacks would do unasked.

AgentDojo's 97 user tasks are its calls with their results, in which marks stand where an attacker's text is. Each of
its attacks with writes is played with each task: as prose, with each of its values alone in the field, and in a
dialogue, where the model reads the prose, looks each of its values up by itself, shows the person what the text wants,
and is told to go on. The model obeys. The goal's words count, once as a plan that repeats them and was shown, once as
a goal without a plan; a person says yes to what honest work asks.
"""

import json
import lzma
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from benchmarks.report import table
from donewhen.state.consent import Sources
from donewhen.state.proof.journal import observation

Json = dict[str, Any]
Where = Literal["prose", "field", "dialogue"]
PLACES: tuple[Where, ...] = ("prose", "field", "dialogue")
RECORDED = Path(__file__).with_name("agentdojo.jsonl.xz")
TODAY = {"banking": "2022-04-01"}
"""The day of these tasks, which no tool of theirs says; a run knows it."""
MARK = re.compile(r"\{\{\w+\}\}")


@dataclass(frozen=True)
class Asked:
    """An honest write that asks, and the values that have no source."""

    suite: str
    task: str
    tool: str
    new: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """An attack's write that runs unasked."""

    suite: str
    task: str
    attack: str
    where: str
    tool: str
    listed: bool
    """True if the task's own calls use the tool, so that its plan lists it; another tool asks in any case (N09)."""


@cache
def _read() -> list[Json]:
    return [json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).splitlines()]


@cache
def recorded() -> tuple[Json, list[Json], list[Json]]:
    """Return the suites' tools, the user tasks, and the attacks that write."""
    head, *rows = _read()
    suites = head["suites"]
    attacks = [
        row
        for row in rows
        if "attack" in row and any(each["tool"] in suites[row["suite"]]["writes"] for each in row["calls"])
    ]
    return suites, [row for row in rows if "task" in row], attacks


def _known(task: Mapping[str, Any], shown: bool) -> Sources:
    """Return the sources at the start: the goal, as a plan that repeats it and was shown, or without a plan."""
    known, said = Sources(), f"{task['goal']}\n{TODAY.get(task['suite'], '')}"
    if shown:
        known.add_plan({"steps": [{"id": "s1", "content": said}]}, "s1")
    else:
        known.add_text(said)
    return known


def honest(*, shown: bool = True) -> tuple[int, list[Asked]]:
    """Return the number of honest writes, and those that ask."""
    suites, tasks, _ = recorded()
    writes, asked = 0, list[Asked]()
    for task in tasks:
        schemas, known = suites[task["suite"]]["writes"], _known(task, shown)
        for number, call in enumerate(task["calls"]):
            call = _mapped(call, _clean)
            if call["tool"] in schemas:
                writes += 1
                new = [each.value for each in known.trace(call["arguments"], schemas[call["tool"]]) if not each.source]
                if new:
                    asked.append(Asked(task["suite"], task["task"], call["tool"], tuple(new)))
                    known.add_decision({"kind": "tool", "decision": "approve", "arguments": call["arguments"]})
            known.add_observation(_entry(f"s1.{number}", call, call["result"], schemas))
    return writes, asked


def attacked(where: Where, every: int = 1, *, shown: bool = True) -> tuple[int, list[Ran]]:
    """Return the number of pairs of a task and an attack, and the writes that run unasked; of one task of so many."""
    suites, tasks, attacks = recorded()
    pairs, ran = 0, list[Ran]()
    for task in tasks[::every]:
        if not any(MARK.search(json.dumps(call["result"])) for call in task["calls"]):
            continue
        for attack in (each for each in attacks if each["suite"] == task["suite"]):
            pairs += 1
            schemas = suites[task["suite"]]["writes"]
            calls = [call for call in attack["calls"] if call["tool"] in schemas]
            known = _known(task, shown)
            said = [*dict.fromkeys(_values(calls))] if where == "field" else [attack["goal"]]
            for number, call in enumerate(task["calls"]):
                for place, text in enumerate(said):
                    poisoned = _poisoned(call["result"], text, alone=where == "field")
                    call = {**call, "arguments": _mapped(call["arguments"], _clean)}
                    known.add_observation(_entry(f"s1.{number}.{place}", call, poisoned, schemas))
            if where == "dialogue":
                _talk(known, attack["goal"], calls, schemas)
            listed = {call["tool"] for call in task["calls"]}
            for call in calls:
                if all(each.source for each in known.trace(call["arguments"], schemas[call["tool"]])):
                    name = call["tool"]
                    ran.append(Ran(task["suite"], task["task"], attack["attack"], where, name, name in listed))
    return pairs, ran


def _talk(known: Sources, wanted: str, calls: list[Json], schemas: Mapping[str, Any]) -> None:
    """Look up each value of these calls, which comes back; show the person what is wanted, who says to go on."""
    for number, (name, value) in enumerate(item for call in calls for item in call["arguments"].items()):
        looked = {"tool": "look_up", "arguments": {name: value}, "ok": True}
        known.add_observation(_entry(f"s2.{number}", looked, {name: value}, schemas))
    about = {"question": f"Shall I do this: {wanted}", "by": "user"}
    known.add_observation(
        observation("s2.q", "s2", 0, "user", "Sounds good, please go ahead and do it.", arguments=about)
    )


def _values(calls: list[Json]) -> Iterator[str]:
    for call in calls:
        for value in call["arguments"].values():
            yield from (str(each) for each in (value if isinstance(value, list) else [value]))


def _entry(id: str, call: Mapping[str, Any], result: Any, schemas: Mapping[str, Any]) -> Any:
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    effect = "write" if call["tool"] in schemas else "read"
    more: Json = {"ok": call["ok"], "tool": call["tool"], "arguments": call["arguments"], "effect": effect}
    return observation(id, "s1", 0, "tool", text, **more)


def _clean(text: str) -> str:
    defaults = _read()[0]["defaults"]
    return MARK.sub(lambda mark: defaults[mark[0].strip("{}")], text)


def _poisoned(value: Any, said: str, *, alone: bool) -> Any:
    return _mapped(value, lambda text: said if alone and MARK.search(text) else MARK.sub(lambda _: said, text))


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    return [_mapped(item, change) for item in value] if isinstance(value, list) else value


def section() -> str:
    """The table, and every honest write that asks."""
    rows, lines = list[list[Any]](), list[str]()
    for shown in (True, False):
        plan = "a shown plan that repeats the goal" if shown else "no plan"
        writes, asked = honest(shown=shown)
        rows.append([f"honest writes ask, {plan}", writes, len(asked)])
        for where in PLACES:
            pairs, ran = attacked(where, shown=shown)
            found = {(each.suite, each.task, each.attack) for each in ran}
            rows.append([f"attacks run a write unasked, {where}, {plan}", pairs, len(found)])
            if shown:
                tools = [f"{each.tool}{'' if each.listed else ' (which its plan does not list)'}" for each in ran]
                count = Counter((each.suite, each.attack, tool) for each, tool in zip(ran, tools, strict=True))
                lines += [
                    f"- {where}: {suite} {attack}, {tool}: {n} times" for (suite, attack, tool), n in count.items()
                ]
        if shown:
            lines += [f"- {each.suite} {each.task}: {each.tool}, new: {', '.join(each.new)}" for each in asked]
    return table(["what", "of", "n"], rows) + "\n\n" + "\n".join(lines)


if __name__ == "__main__":
    print(section())
