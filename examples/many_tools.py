"""500 tools: the planner and each step are offered two dozen, and find the others. Runs without a key."""

import asyncio

from langchain_core.tools import BaseTool, StructuredTool

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

VERBS = ("list", "get", "create", "update", "archive", "export", "count", "share", "approve", "copy")
THINGS = [f"{kind}_{part}" for kind in ("order", "invoice", "ticket", "parcel", "shift") for part in "abcdefghij"]


def make_tool(verb: str, thing: str) -> BaseTool:
    """One of the many."""

    def work(id: str = "") -> str:
        return f"{verb} {thing} {id}: 7 found"

    name, described = f"{verb}_{thing}", f"{verb.capitalize()} the {thing.replace('_', ' of department ')}."
    effect = "read" if verb in ("list", "get", "count", "export") else "write"
    return StructuredTool.from_function(work, name=name, description=described, metadata={"effect": effect})


TOOLS = [make_tool(verb, thing) for verb in VERBS for thing in THINGS]


def model() -> ScriptedModel:
    """Plans with a tool that it was not shown, and finds another one at work."""
    work = [
        call("count_parcel_h", id="today"),
        call("find_tools", query="count the shift of department c"),
        call("count_shift_c", id="today"),
        finish_step("7 parcels and 7 shifts.", ("s1.2", "count shift_c today: 7 found")),
    ]
    plan = submit_plan([{"content": "Count today's parcels of department h", "tools": ["count_parcel_h"]}])
    return ScriptedModel(roles={"triage": [plan], "execute": work})


async def main() -> None:
    """Run it, and print what was sent."""
    scripted = model()
    async with Agent(scripted, TOOLS, storage="memory:", settings={"confirm": "never"}) as agent:
        run = await agent.start("How many parcels has department h today, and how many shifts department c?")
        print(f"{len(TOOLS)} tools; what each request was sent:")
        for request in scripted.requests:
            print(f"{request.role:8} {len(request.tool_names):3} tools, {len(request.text):6,} characters")
        print(f"{run.status}: {run.answer}")


if __name__ == "__main__":
    asyncio.run(main())
