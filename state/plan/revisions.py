"""What changed between an approved plan and a new one, as far as it needs consent: one line per difference."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from donewhen.state.plan.plan import depends
from donewhen.state.proof.claims import criteria_of


def difference(approved: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Lines for what is new, gone, weaker, granted or in another order; [] if nothing needs consent.

    Needs none: words of title and speech, the order of tools, a tool less, a criterion more.
    """
    old = {step["id"]: step for step in approved["steps"]}
    new = {step["id"]: step for step in plan["steps"]}
    lines = [f"the goal {line}" for line in _unproven(approved.get("done_when") or (), plan.get("done_when") or ())]
    for id, step in new.items():
        lines += _changed(old[id], step) if id in old else [_added(step)]
    lines += [f"step {id} is dropped: {step['content']}" for id, step in old.items() if id not in new]
    lines += _reordered(approved, plan, old.keys() & new.keys())
    if plan.get("schedule") != approved.get("schedule"):
        lines.append(f"schedule: {approved.get('schedule') or 'none'} → {plan.get('schedule') or 'none'}")
    return lines


def _added(step: Mapping[str, Any]) -> str:
    tools = f" (tools: {', '.join(step['tools'])})" if step.get("tools") else ""
    return f"new step {step['id']}: {step['content']}{tools}"


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    name = after["id"]
    if before["content"] != after["content"]:
        yield f"step {name} now says: {after['content']}"
    if more := [tool for tool in after.get("tools") or () if tool not in (before.get("tools") or ())]:
        yield f"step {name} also needs: {', '.join(more)}"
    if before.get("executor") != after.get("executor"):
        yield f"step {name} runs with {after.get('executor') or 'the default executor'}"
    if _declared(before) != _declared(after):
        yield f"step {name} depends on: {_needs(after)}"
    yield from (f"step {name} {line}" for line in _unproven(criteria_of(before), criteria_of(after)))


def _unproven(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What had to be proven and has not any more."""
    kept = [(criterion["text"], criterion.get("check")) for criterion in after]
    judged = [criterion["text"] for criterion in after if criterion.get("judge")]
    for criterion in before:
        if (criterion["text"], criterion.get("check")) not in kept:
            yield f"no longer has to prove: {criterion['text']}"
        elif criterion.get("judge") and criterion["text"] not in judged:
            yield f"is no longer judged on: {criterion['text']}"


def _declared(step: Mapping[str, Any]) -> set[str] | None:
    return None if step.get("depends_on") is None else set(step["depends_on"])


def _needs(step: Mapping[str, Any]) -> str:
    declared = step.get("depends_on")
    return "all earlier steps" if declared is None else ", ".join(declared) or "nothing"


def _reordered(approved: Mapping[str, Any], plan: Mapping[str, Any], both: set[str]) -> Iterator[str]:
    """Steps that declare nothing wait for all before them: another order is another plan."""
    for step in plan["steps"]:
        if step["id"] in both and step.get("depends_on") is None:
            now = set(depends(plan, step["id"]))
            if lost := [id for id in depends(approved, step["id"]) if id in both and id not in now]:
                yield f"step {step['id']} no longer waits for {', '.join(lost)}"
