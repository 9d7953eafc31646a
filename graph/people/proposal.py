"""A plan on its way to consent: the rules it must keep, what a replan keeps of the old one, whether it asks. Pure."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from donewhen.graph.context import Deps
from donewhen.graph.people.pauses import call_id, opening, spoken_in
from donewhen.graph.tools.paths import path_problem
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.people.texts import say, shown_options
from donewhen.state.plan.plan import Rules, revision
from donewhen.state.plan.revisions import difference
from donewhen.state.run import Json
from donewhen.state.settings import Settings


def plan_rules(
    deps: Deps, settings: Settings, finished: Mapping[str, Any] | None = None, before: Json | None = None
) -> Rules:
    """What a plan may refer to in this run, whoever proposes it. `before` is the plan that it takes the place of."""
    toolbox = deps.all_tools(settings)
    paths = settings.profile.allowed_paths
    checks = {n: partial(_check_problems, toolbox, n, paths) for n in toolbox.names if toolbox.effect(n) == "read"}
    return Rules(
        tools=frozenset(deps.toolbox.names),
        executors=deps.executors,
        executor_tools={name: deps.tools_for(name, settings).names for name in ("", *deps.executors)},
        executor=settings.executor,
        checks=checks,
        max_steps=settings.max_steps,
        forbidden=settings.profile.forbidden_tools,
        finished=finished or {},
        used=frozenset(step["id"] for step in (before or {}).get("steps", ())),
    )


def _check_problems(toolbox: Toolbox, name: str, paths: Sequence[str], arguments: Any) -> list[str]:
    outside = path_problem(arguments, paths, toolbox.get(name)) if isinstance(arguments, Mapping) else None
    return [*toolbox.problems(name, arguments), *([outside] if outside else [])]


def with_finished(plan: Json, finished: Mapping[str, Json]) -> Json:
    """A replan with the finished steps in front, as they were: nothing finished runs again."""
    if not finished:
        return plan
    steps = [*finished.values(), *(step for step in plan["steps"] if step["id"] not in finished)]
    whole = {**plan, "steps": steps}
    return {**whole, "revision": revision(whole)}


def consent(plan: Json, by: str) -> Json:
    """The record that a plan was approved: its revision and the tools granted per step."""
    tools = {step["id"]: list(step.get("tools") or ()) for step in plan["steps"]}
    return {"revision": plan["revision"], "by": by, "tools": tools, "plan": plan}


def changing(plan: Json, deps: Deps, settings: Settings) -> Json:
    """What of a plan changes something: `tools` that it lists, and whether an executor `works_alone`."""
    toolbox = deps.all_tools(settings)
    listed = {name for step in plan["steps"] for name in step.get("tools") or () if name in toolbox.names}
    found = [deps.executors.get(step.get("executor") or "") for step in plan["steps"]]
    alone = any(executor is not None and executor.works_alone for executor in found)
    free = settings.approvals in ("plan", "never")
    writes = {name: free or not toolbox.outside(name) for name in listed if toolbox.effect(name) != "read"}
    return {"writes": writes, "works_alone": alone}


def propose(plan: Json, approval: Json | None, settings: Settings, deps: Deps, language: str = "en") -> Json:
    """What planning leaves behind: a pause that shows the plan whole, or the consent that makes none necessary.

    Against an approved plan only the difference needs consent; without a difference nobody is asked. A schedule
    always is: only a person can say that the time is the one that was meant (P18).
    """
    changes = difference(approval["plan"], plan) if approval else None
    changed = changing(plan, deps, settings)
    by = "policy" if _waived(plan, approval, settings, changed) else None
    if approval and not changes:
        by = str(approval.get("by"))
    if by is not None:
        before = approval["plan"] if approval else None
        return {"plan": plan, "approval": {**consent(plan, by), "before": before}, "pending": None}
    pending = {
        "id": f"confirm.{plan['revision']}",
        "kind": "plan",
        "name": "confirm_plan",
        "tool_call_id": call_id(),
        "question": _question(changes, language),
        "options": shown_options("en", "plan"),
        "step": None,
        "plan": plan,
        "revision": plan["revision"],
        "limits": settings.limits.model_dump(exclude_none=True),
        "writes": sorted(name for name, free in changed["writes"].items() if free),
        **({"changes": changes} if changes else {}),
        **spoken_in(language),
    }
    return {"plan": plan, "pending": pending, "messages": [opening(pending)]}


def _waived(plan: Json, approval: Json | None, settings: Settings, changes: Json) -> bool:
    """Whether the policy approves in place of a person; what a person approved, only `never` changes without one."""
    if plan.get("schedule"):
        return False
    if settings.confirm == "never" or (approval or {}).get("by") == "user":
        return settings.confirm == "never"
    if settings.confirm == "writes":
        return not changes["writes"] and not changes["works_alone"]
    return settings.confirm == "complex" and bool(plan["complexity"] != "complex")


def _question(changes: list[str] | None, language: str) -> str:
    if not changes:
        return say(language, "ask", "plan")
    return f"{say(language, 'ask', 'changed')}\n" + "\n".join(f"- {line}" for line in changes)
