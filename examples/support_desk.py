"""A support desk: an agent looks an order up and pays back what was broken; a refund nobody named waits for a person.

Runs without a key, from a script. For real work, give `Agent` the name of a model in place of `model()`.
"""

import asyncio

from donewhen import Agent, Limits, Models, Settings
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

ORDERS = {"A-17": {"customer": "mira@example.com", "items": [{"name": "lamp", "price": 40.0, "state": "broken"}]}}
PAID: list[tuple[str, float]] = []


def find_order(order_id: str) -> dict[str, object]:
    """Return an order with its customer and items."""
    return ORDERS[order_id]


def refund(order_id: str, amount: float, idempotency_key: str) -> str:
    """Pay an amount back for an order."""
    PAID.append((order_id, amount))  # a real service takes the key, and pays once for it
    return f"refunded {amount:.2f} EUR for {order_id}"


def send_mail(to: str, text: str) -> str:
    """Send a mail to a customer."""
    return f"sent to {to}"


def model() -> ScriptedModel:
    """Plan two steps; try a voucher that nobody asked for, which a person declines."""
    plan = submit_plan(
        [
            {"content": "Find out what is broken in A-17", "done_when": "Item and price", "tools": ["find_order"]},
            {
                "content": "Refund 40.00 EUR for the broken lamp of A-17 and tell mira@example.com",
                "done_when": ["The price is refunded", "The customer is told"],
                "tools": ["refund", "send_mail"],
            },
        ],
        title="Refund a broken item",
    )
    look = [call("find_order", order_id="A-17"), finish_step("A lamp of 40.00 EUR", ("s1.1", "broken"))]
    work = [
        call("refund", order_id="A-17", amount=40.0),
        call("refund", order_id="A-17", amount=15.0),  # 15.00 stands nowhere: it asks
        call("send_mail", to="mira@example.com", text="We refunded 40.00 EUR for your lamp."),
        finish_step("40.00 EUR refunded, the customer told", [("s2.1", "refunded 40.00 EUR"), ("s2.3", "sent to")]),
    ]
    answer = "The broken lamp of order A-17 was refunded with 40.00 EUR, and mira@example.com was told."
    return ScriptedModel(roles={"triage": [plan], "execute": {"s1": look, "s2": work}, "deliver": [answer]})


async def main() -> None:
    """Approve the plan, and reject what was not asked for."""
    settings = Settings(limits=Limits(cost_usd=0.20, questions=5))
    tools, effects = [find_order, refund, send_mail], {"find_order": "read"}
    prices = {"scripted": {"input": 0, "output": 0}}
    async with Agent(
        Models(model(), prices=prices), tools, effects=effects, settings=settings, storage="memory:"
    ) as desk:
        run = await desk.start("The lamp of order A-17 arrived broken: pay it back and tell the customer")
        run = await desk.resume(run, "approve")
        while run.status == "waiting":
            print("asked:", run.pending[0]["question"].splitlines()[0])
            run = await desk.resume(run, {"type": "reject", "message": "only what was broken"})
        print(f"{run.status}: {run.answer}")
        print("paid:", PAID)


if __name__ == "__main__":
    asyncio.run(main())
