"""The methods of a PlanStore as tools for agents."""

from collections.abc import Callable
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from donewhen.agent.plans.store import PlanStore


def plan_tools(store: PlanStore) -> list[BaseTool]:
    """Return tools by which an agent keeps plans; each returns the plan with its marks and progress."""

    async def create_plan(plan_id: str, title: str, steps: list[str]) -> str:
        """Keep a new plan: a title and its steps. It becomes the active one if there is none."""
        return (await store.create(plan_id, title, steps)).text

    async def update_plan(plan_id: str | None = None, title: str | None = None, steps: list[str] | None = None) -> str:
        """Change a plan's title or steps; steps that stay keep status and notes. Without plan_id: the active one."""
        return (await store.update(plan_id, title=title, steps=steps)).text

    async def list_plans() -> str:
        """List the plans that are kept."""
        return "\n".join(plan.text.split("\n")[0] for plan in await store.list()) or "No plans are kept."

    async def get_plan(plan_id: str | None = None) -> str:
        """Show a plan with the status of its steps. Without plan_id: the active one."""
        return (await store.get(plan_id)).text

    async def set_active_plan(plan_id: str) -> str:
        """Make a plan the active one."""
        return (await store.set_active(plan_id)).text

    async def mark_plan_step(
        step: str, status: str | None = None, notes: str | None = None, plan_id: str | None = None
    ) -> str:
        """Set a step's status (not_started, in_progress, completed, blocked) or its notes. `step`: number or id."""
        return (await store.mark_step(step, status, notes, id=plan_id)).text

    async def delete_plan(plan_id: str) -> str:
        """Delete a plan."""
        await store.delete(plan_id)
        return f"deleted {plan_id}"

    reads = (list_plans, get_plan)
    verbs = (create_plan, update_plan, set_active_plan, mark_plan_step, delete_plan)
    return [*(_tool(verb, "read") for verb in reads), *(_tool(verb, "idempotent") for verb in verbs)]


def _tool(verb: Callable[..., Any], effect: str) -> BaseTool:
    """Return a method as a tool; the model reads its errors, and a call that raises one counts as not made."""
    return StructuredTool.from_function(coroutine=verb, metadata={"effect": effect})
