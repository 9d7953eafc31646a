"""A failed step is planned anew: what is finished stays, and what the failed step saw counts. Runs without a key."""

import asyncio

from langchain_core.tools import ToolException

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan

FIRST = submit_plan(
    [
        {
            "id": "s1",
            "content": "Find the price of the pump",
            "tools": ["look_up"],
            "done_when": ["the price is stated"],
        },
        {"id": "s2", "content": "Order it from the cheap shop", "depends_on": ["s1"], "tools": ["order"]},
    ],
    title="Buy a pump",
)
SECOND = submit_plan(
    [{"id": "s3", "content": "Order it from the other shop", "depends_on": ["s1"], "tools": ["order"]}],
    title="Buy a pump",
)


def look_up(what: str) -> str:
    """Look something up."""
    return f"{what}: 49.90 EUR"


def order(shop: str) -> str:
    """Order the pump."""
    if shop == "cheap":
        raise ToolException("sold out until March; the other shop has 3")
    return f"ordered at the {shop} shop"


def model() -> ScriptedModel:
    """Finds the price, fails to order, and orders elsewhere."""
    return ScriptedModel(
        roles={
            "triage": [FIRST],
            "draft": [SECOND],
            "execute": {
                "s1": [call("look_up", what="pump"), finish_step("49.90 EUR", [("s1.1", "49.90 EUR")])],
                "s2": [call("order", shop="cheap"), give_up("sold out", "replan")],
                "s3": [call("order", shop="other"), finish_step("Ordered at the other shop.", "s3.1")],
            },
            "deliver": lambda *_: "The pump is ordered at the other shop for 49.90 EUR; the cheap one is sold out.",
        }
    )


async def main() -> None:
    """Run it, approve the plan and then the difference, and print what became of every step."""
    async with Agent(
        model(), [look_up, order], effects={"look_up": "read", "order": "write"}, storage="memory:"
    ) as agent:
        run = await agent.start("Buy a pump", settings={"approvals": "plan"})
        while run.status == "waiting":
            print("Asked:", "; ".join(run.pending[0].get("changes") or ["may this plan start?"]))
            run = await agent.resume(run.thread_id, "approve")
        print(run.answer)
        for row in (run.receipt or {})["steps"]:
            print(f"{row['id']} {row['status']}: {row['result']}")
        for gone in (run.receipt or {})["replaced"]:
            print(f"{gone['id']} {gone['status']}: {gone['reason']}; instead: {', '.join(gone['instead'])}")


if __name__ == "__main__":
    asyncio.run(main())
