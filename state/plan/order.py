"""Dependencies between the steps of a plan: as declared, otherwise on all earlier steps."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any


def needs_of(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the ids that each step depends on, in plan order."""
    needs: dict[str, list[str]] = {}
    for step in plan.get("steps", ()):
        declared = step.get("depends_on")
        needs[step["id"]] = list(needs) if declared is None else list(declared)
    return needs


def steps_after(plan: Mapping[str, Any], done: Collection[str]) -> Iterator[str]:
    """Yield the steps all of whose needs are in `done`, in plan order. `done` may grow meanwhile."""
    all_before = True
    for step in plan["steps"]:
        declared = step.get("depends_on")
        if all_before if declared is None else all(need in done for need in declared):
            yield step["id"]
        all_before = all_before and step["id"] in done


def _reach(start: Iterable[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    """Return everything reachable along the edges from any of these."""
    reached, stack = set[str](), list(start)
    while stack:
        more = [id for id in edges.get(stack.pop(), ()) if id not in reached]
        reached.update(more)
        stack += more
    return reached


def ancestors(plan: Mapping[str, Any], step_id: str) -> list[str]:
    """Return all direct and indirect dependencies of a step, in plan order."""
    steps = plan["steps"]
    place = {step["id"]: at for at, step in enumerate(steps)}
    needed, whole, stack = set[str](), 0, [step_id]
    while stack:
        if (at := place.get(stack.pop())) is None:
            continue
        needs = steps[at].get("depends_on")
        if needs is None:  # it needs all before it; the first `whole` are looked at already
            needs = [step["id"] for step in steps[whole:at]]
            whole = max(whole, at)
        more = [id for id in needs if id not in needed]
        needed.update(more)
        stack += more
    return [step["id"] for step in steps if step["id"] in needed]


def dependants(plan: Mapping[str, Any], ids: Iterable[str]) -> list[str]:
    """Return the steps that directly or indirectly depend on any of these, in plan order, without these themselves."""
    start, needs = set(ids), needs_of(plan)
    users: dict[str, list[str]] = {}
    for id, needed in needs.items():
        for need in needed:
            users.setdefault(need, []).append(id)
    reached = _reach(start, users) - start
    return [id for id in needs if id in reached]


def find_circle(steps: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ids of a circular dependency, first and last equal; [] if there is none."""
    try:
        TopologicalSorter(needs_of({"steps": steps})).prepare()
    except CycleError as error:
        return [*reversed(error.args[1])]
    return []


def avoid_circles(steps: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps without circles that nobody wrote.

    A step without declared dependencies comes after all earlier steps. If an earlier step needs it, this would be a
    circle, so the step gets explicit dependencies.
    """
    place = {step["id"]: number for number, step in enumerate(steps)}
    needs = {step["id"]: list(step["depends_on"] or ()) for step in steps}
    if all(place.get(need, -1) < place[id] for id, named in needs.items() for need in named):
        return list(steps)
    ordered: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        declared = step["depends_on"]
        if declared is None:
            earlier = [other["id"] for other in steps[:number]]
            needs[step["id"]] = [id for id in earlier if step["id"] not in _reach([id], needs)]
            declared = needs[step["id"]] if len(needs[step["id"]]) < len(earlier) else None
        ordered.append({**step, "depends_on": declared})
    return ordered


def conversation_of(plan: Mapping[str, Any], step_id: str, turn: int) -> str:
    """Return the conversation with its executor that a step continues.

    It is that of the last step for this executor on which the step depends. The first step for an executor continues
    the thread's conversation, ""; a step parallel to it gets one of its own.
    """
    name = next(step.get("executor") for step in plan["steps"] if step["id"] == step_id)
    if name is None:
        return ""
    heads: dict[str, str] = {}
    own = [step["id"] for step in plan["steps"] if step.get("executor") == name]
    for id in own[: own.index(step_id) + 1]:
        built_on = set(ancestors(plan, id))
        before = [other for other in own if other in built_on]
        in_threads = [other for other, head in heads.items() if head == ""]
        heads[id] = "" if not in_threads or (before and before[-1] == in_threads[-1]) else f"{turn}.{id}"
    return heads[step_id]
