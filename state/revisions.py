"""What changed between an approved plan and a new one, as far as it needs consent: one line per difference."""

from collections.abc import Mapping
from typing import Any


def difference(approved: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """Lines for added and changed steps, new tools, weaker criteria, another schedule; [] if nothing needs consent.

    Words of title and speech, removed steps and the order of tools need none.
    """
    old = {step["id"]: step for step in approved["steps"]}
    lines: list[str] = []
    for step in plan["steps"]:
        before = old.get(step["id"])
        lines += _added(step) if before is None else _changed(before, step)
    if plan.get("schedule") != approved.get("schedule"):
        lines.append(f"schedule: {approved.get('schedule') or 'none'} → {plan.get('schedule') or 'none'}")
    return lines


def _added(step: Mapping[str, Any]) -> list[str]:
    tools = f" (tools: {', '.join(step['tools'])})" if step.get("tools") else ""
    return [f"new step {step['id']}: {step['content']}{tools}"]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    name, lines = after["id"], []
    if before["content"] != after["content"]:
        lines.append(f"step {name} now says: {after['content']}")
    if more := [tool for tool in after.get("tools") or () if tool not in (before.get("tools") or ())]:
        lines.append(f"step {name} also needs: {', '.join(more)}")
    if before.get("executor") != after.get("executor"):
        lines.append(f"step {name} runs with {after.get('executor') or 'the default executor'}")
    if before.get("depends_on") != after.get("depends_on"):
        lines.append(f"step {name} depends on: {_needs(after)}")
    kept = [(criterion["text"], criterion.get("check")) for criterion in after["done_when"]]
    for criterion in before["done_when"]:
        if (criterion["text"], criterion.get("check")) not in kept:
            lines.append(f"step {name} no longer has to prove: {criterion['text']}")
    return lines


def _needs(step: Mapping[str, Any]) -> str:
    declared = step.get("depends_on")
    return "all earlier steps" if declared is None else ", ".join(declared) or "nothing"
