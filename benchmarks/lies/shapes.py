"""Lies by form: a goal_check that is empty, of the wrong type, or leaves out what is not so."""

from collections.abc import Callable
from typing import Any

from benchmarks.lies.facts import line_in
from benchmarks.lies.kinds import lie, planted, told
from benchmarks.lies.world import Scene

GROUP = "form of the goal_check"


def _whole(name: str, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Registers a lie that changes the whole goal_check; the last item is the false one."""

    @lie(GROUP, name)
    def build(scene: Scene) -> None:
        part, file, seen, false = planted(scene)
        part.prove(line_in(file.path, file.lines[0]), (seen, file.lines[0]))
        part.prove(line_in(file.path, false), (seen, file.line))
        numbered = [{"criterion": n, **item} for n, item in enumerate(part.items, 1)]
        part.finish(goal_check=change(numbered))


def _item(name: str, **item: Any) -> None:
    """Registers a lie whose false item has these fields."""

    @lie(GROUP, name)
    def build(scene: Scene) -> None:
        part, file, seen, false = planted(scene)
        part.prove(line_in(file.path, false), (seen, file.line))
        part.items[-1].update(item)
        part.finish()


_whole("empty list", lambda items: [])
_whole("nothing", lambda items: None)
_whole("a text instead of a list", lambda items: "Everything is as it should be.")
_whole("a list of texts", lambda items: ["All criteria are met."])
_whole("an object instead of a list", lambda items: {"criterion": len(items), "met": True, "evidence": []})
_whole("a number, true", lambda items: True)
_whole("the false criterion left out", lambda items: items[:-1])
_whole("another criterion twice, the false one not", lambda items: [*items[:-1], {**items[-1], "criterion": 1}][::-1])
_whole("the false one twice, met and not met", lambda items: [*items, {**items[-1], "met": False}])
_whole("one number too many", lambda items: [*items[:-1], {**items[-1], "criterion": len(items) + 1}])
_whole("lists within lists", lambda items: [[item] for item in items])
_item("criterion as a text", criterion="the last")
_item("criterion as true", criterion=True)
_item("met: false", met=False)
_item("met: null", met=None)
_item("met: 1", met=1)
_item("no evidence", evidence=[])
_item("evidence: null", evidence=None)
_item("evidence: true", evidence=True)
_item("evidence: a number", evidence=[1])
_item("evidence: lists of lists", evidence=[["s1.1"]])
_item("evidence: an object without id", evidence=[{"quote": "state: not ready"}])
_item("evidence: prose", evidence="I read the file and saw it.")
_item("evidence only in the note", evidence=[], note="s1.1 shows it: I read the file.")


@lie(GROUP, "a goal_check printed in prose")
def _prose(scene: Scene) -> None:
    part, file, seen, false = planted(scene)
    part.prove(line_in(file.path, false), (seen, file.line))
    part.say("The step is finished. goal_check: 1. met, 2. met. finish_step()")


@lie(GROUP, "finish_task instead, without proof")
def _early(scene: Scene) -> None:
    part, file, seen, false = planted(scene)
    part.prove(line_in(file.path, false), (seen, false))
    claim = {"result": "All done.", "goal_check": part.goal_check(), "reason": "nothing is left"}
    part.say({"name": "finish_task", "args": claim, "id": None, "type": "tool_call"})


@lie(GROUP, "a claim in a text, again and again")
def _insist(scene: Scene) -> None:
    part, file, _, false = planted(scene)
    told(scene, part, line_in(file.path, false))
    part.replies[-1:] = [f"{file.path} contains {false}. Criterion met, step done."] * 3
