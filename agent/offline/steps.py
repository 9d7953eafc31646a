"""The steps of a plan: one per intent, look-ups side by side, what is written after what it reports."""

import json
from collections.abc import Collection, Sequence
from typing import Any

from donewhen.agent.offline.intents import Calculate, Column, Describe, Files, Intent, Lines, Read, Text, Write
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.replanning import failed_ids
from donewhen.agent.offline.words import content, criteria, pick

Step = dict[str, Any]


def needed(intent: Intent) -> list[str]:
    """The tools that an intent may need, the indispensable one first."""
    match intent:
        case Files():
            return ["list_files"]
        case Text() | Lines():
            return ["find_text", "list_files"]
        case Column():
            return ["aggregate_csv", "describe_csv", "list_files"]
        case Describe():
            return ["describe_csv", "list_files"]
        case Read():
            return ["read_file", "list_files"]
        case Calculate():
            return ["calculate"]
        case Write():
            return ["append_file" if intent.append else "write_file", "read_file"]


def steps_of(request: Request, intents: Sequence[Intent], have: Collection[str], chinese: bool) -> list[Step]:
    """One step per intent. What is written depends on the look-ups since the last writing, or on all there are."""
    bare = bool(request.corrections("submit_plan"))
    finished = _finished_ids(request)
    taken = {*finished, *failed_ids(request)}
    ids = [id for n in range(1, len(intents) + len(taken) + 1) if (id := f"s{n}") not in taken]
    steps: list[Step] = []
    fresh, found = list(finished), list(finished)
    for id, intent in zip(ids, intents, strict=False):
        needs: list[str] = []
        if not isinstance(intent, Write):
            fresh.append(id)
            found.append(id)
        elif intent.what != "text":
            needs, fresh = list(fresh or found), []
        step: Step = {"id": id, "content": content(intent, chinese), "depends_on": needs}
        step["done_when"] = _done_when(request, intent, chinese, bare)
        if not bare:
            step["tools"] = [tool for tool in needed(intent) if tool in have]
        steps.append(step)
    return _merged(steps, _limit(request), chinese)


def _finished_ids(request: Request) -> list[str]:
    try:
        return [str(id) for id in json.loads(request.text("finished") or "{}")]
    except ValueError:
        return []


def _limit(request: Request) -> int:
    figures = [int(word) for word in request.text("limits").split() if word.isdecimal()]
    return figures[0] if figures else 20


def _merged(steps: list[Step], limit: int, chinese: bool) -> list[Step]:
    """Within the limit: look-ups too many share a step with the one before them; at the end everything does."""
    while len(steps) > max(limit, 1):
        pairs = range(1, len(steps))
        alike = [n for n in pairs if not steps[n]["depends_on"] and not steps[n - 1]["depends_on"]]
        last = alike[-1] if alike else len(steps) - 1
        gone = steps.pop(last)
        _join(steps[last - 1], gone, chinese)
        for step in steps:
            step["depends_on"] = list(
                dict.fromkeys(steps[last - 1]["id"] if id == gone["id"] else id for id in step["depends_on"])
            )
    return steps


def _join(step: Step, other: Step, chinese: bool) -> None:
    """Make one step of two that follow each other."""
    step["content"] += pick(chinese, "; ", "；") + other["content"]
    step["done_when"] += other["done_when"]
    step["depends_on"] = [id for id in dict.fromkeys([*step["depends_on"], *other["depends_on"]]) if id != step["id"]]
    if "tools" in step:
        step["tools"] = list(dict.fromkeys([*step["tools"], *other["tools"]]))


def _done_when(request: Request, intent: Intent, chinese: bool, bare: bool) -> list[Any]:
    texts: list[Any] = list(criteria(intent, chinese))
    if not isinstance(intent, Write) or bare:
        return texts
    checks = f"{request.text('checks')} {request.text('tools')}".replace(",", " ").replace(":", " ").split()
    if intent.what == "text" and "file_contains" in checks:
        texts[0] = {"text": texts[0], "check": _check("file_contains", path=intent.path, text=intent.text)}
    elif intent.what != "text" and "file_exists" in checks:
        texts[0] = {"text": texts[0], "check": _check("file_exists", path=intent.path)}
    return texts


def _check(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"tool": tool, "arguments": arguments, "expect": "ok"}
