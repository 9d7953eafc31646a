"""A dialogue of a support desk: a customer asks, changes the plan in their own words, and agrees.

Runs without a key, from a script. For real work, give `Agent` the name of a model in place of `model()`.
"""

import asyncio
from typing import Any

from donewhen import Agent, Run
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan

ORDERS = {"A-17": {"customer": "mira", "lamp": 40.0, "cable": 5.0}}
PAID: list[tuple[str, float]] = []


def find_order(order_id: str) -> dict[str, object]:
    """Look up an order."""
    return {"order_id": order_id, **ORDERS[order_id]}


def refund(order_id: str, amount: float) -> str:
    """Pay an amount back for an order."""
    PAID.append((order_id, amount))
    return f"refunded {amount:.2f} EUR"


def plan(what: str, amount: float) -> Any:
    """Propose a refund, in words for the customer."""
    step = {
        "content": f"Refund {amount:.2f} EUR for the {what} of order A-17",
        "done_when": "The refund is confirmed",
        "tools": ["refund"],
    }
    return submit_plan([step], speak=f"I would refund {amount:.2f} EUR for the {what}. Is that right?", language="en")


def model() -> ScriptedModel:
    """Propose a refund, answer a question, propose the smaller one, and pay it."""
    planning = [
        call("find_order", order_id="A-17"),
        plan("lamp and the cable", 45.0),
        answer("It takes three to five days."),
        plan("lamp", 40.0),
    ]
    work = [
        call("refund", order_id="A-17", amount=40.0),
        finish_step("40.00 EUR are refunded.", ("s1.1", "refunded 40.00 EUR")),
    ]
    return ScriptedModel(roles={"triage": planning, "execute": work})


async def main() -> None:
    """Pass on what the customer writes, and print what they read."""
    desk = Agent(
        model(),
        [find_order, refund],
        effects={"find_order": "read"},
        instructions="You are the desk of a lamp shop. Refund only what arrived broken.",
        storage="memory:",
        settings={"confirm": "writes", "on_failure": "deliver", "verification": "grounded"},
    )
    run: Run | None = None
    for words in (
        "My order A-17 arrived broken",
        "How long does it take?",
        "only the lamp, the cable is fine",
        "ok, go ahead please",
    ):
        if run is not None and run.status == "waiting":
            run = await desk.resume(run, words)
        else:
            run = await desk.start(words, owner="mira")
        print(f"> {words}\n{run}\n")
    print("paid:", PAID)


if __name__ == "__main__":
    asyncio.run(main())
