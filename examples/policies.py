"""An organisation's policies as hooks: what never happens, what a person must see, what is written down.

Runs without a key, with a scripted model. The same file for every agent and for the command:
DONEWHEN_HOOKS=policies.py:hooks donewhen run "…"
"""

import asyncio

from donewhen import Agent
from donewhen.hooks import Ask, Call, End, Hooks, Note, Refuse
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan


def house_only(made: Call) -> Refuse | None:
    """Refuse mail that leaves the house."""
    outside = made.tool == "send_mail" and not made.arguments["to"].endswith("@example.com")
    return Refuse("mail goes to example.com only") if outside else None


def large_sums(made: Call) -> Ask | None:
    """Have a person look at large payments, whatever the plan says."""
    return Ask("More than 1,000 EUR: is the invoice checked?") if made.arguments.get("amount", 0) > 1000 else None


async def ledger(made: Call) -> Note | None:
    """Observe what a payment did to the account; the model may cite it."""
    return Note(f"ledger: {made.arguments['amount']} EUR booked") if made.tool == "pay" and made.ok else None


def signed(end: End) -> Refuse | None:
    """Send back an answer that does not say who wrote it."""
    return None if "— the office" in end.text else Refuse("end with: — the office")


hooks = Hooks(before_call=[house_only, large_sums], after_call=[ledger], before_end=[signed])


def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


def pay(iban: str, amount: float) -> str:
    """Pay an amount in EUR."""
    return f"paid {amount} EUR"


def model() -> ScriptedModel:
    """A model that has to be told."""
    step = {"content": "pay the invoice and tell Mira", "tools": ["pay", "send_mail"]}
    paid = finish_step("Paid.", ("s1.2", "1200 EUR booked"))
    work = [
        call("pay", iban="DE02", amount=1200),
        call("send_mail", to="mira@elsewhere.org", text="Paid."),
        call("send_mail", to="mira@example.com", text="Paid."),
        paid,
        finish_step("Paid, and Mira knows.\n— the office", ("s1.2", "1200 EUR booked")),
    ]
    return ScriptedModel(roles={"triage": [submit_plan([step], title="Invoice")], "execute": work})


async def main() -> None:
    """Pay an invoice."""
    settings = {"confirm": "never", "approvals": "plan"}
    async with Agent(model(), [send_mail, pay], storage="memory:", settings=settings, hooks=hooks) as agent:
        run = await agent.start("Pay the invoice of 1,200 EUR and tell Mira")
        while run.status == "waiting":
            print("asked:", run.pending[0]["question"])
            run = await agent.resume(run, "approve")
        for row in run.receipt["steps"][0]["criteria"]:
            print("cited:", row["evidence"][0]["quote"])
        print(f"{run.status}: {run.answer}")


if __name__ == "__main__":
    asyncio.run(main())
