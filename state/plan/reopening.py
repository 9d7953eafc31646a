"""What a new plan takes back of finished work: steps that it does again, and exactly what was built on these. Pure."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from donewhen.state.graph_state import Json
from donewhen.state.plan.order import built_on, circle_of
from donewhen.state.plan.plan import revision
from donewhen.state.plan.rules import folded


def joined(
    plan: Mapping[str, Any], before: Mapping[str, Any] | None, finished: Mapping[str, Json]
) -> tuple[Json, list[str]] | list[str]:
    """A new plan with what is finished in front, as it was, and the ids of what is to be done again; or what is wrong.

    `plan["replaces"]` (new id → finished ids) says what is done again in another way. What was built on that is done
    again as it is, unless the new plan has a step for it: nothing else of what is finished runs again (P17).
    """
    replaces: Mapping[str, Sequence[str]] = plan.get("replaces") or {}
    instead: dict[str, list[str]] = {}
    for name, olds in replaces.items():
        for old in olds:
            instead.setdefault(old, []).append(name)
    stale = [*instead, *built_on(before or {}, instead)] if instead else []
    kept = [step for id, step in finished.items() if id not in stale]
    new = [step for step in plan["steps"] if step["id"] not in {each["id"] for each in kept}]
    listed = {step["id"] for step in new}
    again = [step for id, step in finished.items() if id in stale and id not in instead and id not in listed]
    place = max((number for number, step in enumerate(new, 1) if step["id"] in replaces), default=0)
    steps = [*kept, *(_upon(step, instead) for step in [*new[:place], *again, *new[place:]])]
    if circle := circle_of(steps):
        said = f"the steps {' → '.join(circle)} wait for each other"
        return [f"{said}; what was built on a step that is replaced is done after it"]
    whole = {**{key: value for key, value in plan.items() if key != "replaces"}, "steps": steps}
    return {**whole, "revision": revision(whole)}, stale


def _upon(step: Json, instead: Mapping[str, Sequence[str]]) -> Json:
    """The step, built on what takes the place of what it was built on."""
    if not (declared := step.get("depends_on")) or instead.keys().isdisjoint(declared):
        return step
    needs = [new for id in declared for new in instead.get(id, [id]) if new != step["id"]]
    return {**step, "depends_on": list(dict.fromkeys(needs))}


def work_of(plan: Mapping[str, Any], finished: Collection[str]) -> str:
    """Names what a plan does beside what is finished, whatever its steps are called: the same work, the same name."""
    steps = [step for step in plan["steps"] if step["id"] not in finished]
    place = {step["id"]: number for number, step in enumerate(steps)}
    rows = [_named(step, place) for step in steps]
    return hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _named(step: Mapping[str, Any], place: Mapping[str, int]) -> list[Any]:
    """What a step does and after what, its own id and those of steps beside it left out."""
    needs = step.get("depends_on")
    after = None if needs is None else sorted(str(place.get(need, need)) for need in needs)
    return [folded(step["content"]), sorted(step.get("tools") or ()), step.get("executor"), after]
