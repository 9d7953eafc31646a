"""A chat bot, as for Slack or Telegram: a chat is a thread, a question is a message with buttons, words are passed on.

Runs without a key, from a script, and prints what a platform would show. For a real bot, let its webhook call
`on_message` and `on_button`, and let `show` call the platform. For real work, give `Agent` the name of a model.
"""

import asyncio
from typing import Any

from donewhen import Agent, ResumeError, StaleAnswer, ThreadBusy, ThreadWaiting
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

SHOWN: asyncio.Queue[str] = asyncio.Queue()
PAYING, SAID = asyncio.Event(), asyncio.Event()


async def refund(order_id: str, amount: float) -> str:
    """Pay an amount back for an order."""
    PAYING.set()
    await SAID.wait()  # a slow bank; meanwhile the customer writes again
    return f"refunded {amount:.2f} EUR"


async def show(chat: str, text: str, buttons: list[tuple[str, str]] | None = None) -> None:
    """Send a message to a chat; a button has a label and what comes back when it is pressed."""
    print(f"[{chat}] {text}", *(f"  ({label})" for label, _ in buttons or ()), "", sep="\n")
    for _, data in buttons or [("", "")]:
        SHOWN.put_nowait(data)


async def on_news(event: dict[str, Any]) -> None:
    """Show what a run asks or answers. If this raises, it is called again, with the same `event["id"]`."""
    data = event["data"]
    chat = data["thread_id"].removeprefix("chat-")
    for asked in data.get("questions", ()):
        choices = [option for option in asked["options"] if option != "edit"]
        await show(chat, asked["text"], [(option, f"{asked['id']} {option}") for option in choices])
    if "questions" not in data:
        await show(chat, data.get("answer") or data["problem"])


class Bot:
    """Passes on what people write and press. Any number of processes may do so, on one storage."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.handled: set[tuple[str, str]] = set()  # in your database, because platforms send again

    async def on_message(self, chat: str, message_id: str, text: str) -> None:
        """Begin a request, or pass the words on to the one that waits or works."""
        thread = f"chat-{chat}"
        if (chat, message_id) in self.handled:
            return
        try:
            await self.agent.submit(text, thread_id=thread, request_id=message_id, owner=chat)
        except (ThreadWaiting, ThreadBusy):
            await self.pass_on(chat, text)
        self.handled.add((chat, message_id))

    async def pass_on(self, chat: str, text: str) -> None:
        """Answer the question that is open, or tell the run at work, which follows it from its next round on."""
        thread = f"chat-{chat}"
        try:
            if asked := (await self.agent.info(thread)).pending:
                await self.agent.submit_answer(thread, text, question=asked[0]["id"])
            else:
                await self.agent.tell(thread, text)
        except ResumeError:  # it has not begun yet, or just went on
            await show(chat, "One moment. Please say that again.")

    async def on_button(self, chat: str, data: str) -> None:
        """Answer the question whose button was pressed, and no other one."""
        question, _, choice = data.partition(" ")
        try:
            await self.agent.submit_answer(f"chat-{chat}", choice, question=question)
        except StaleAnswer:
            await show(chat, "That is answered already.")


def model() -> ScriptedModel:
    """Propose a refund, and pay it."""
    step = {"content": "Refund 40.00 EUR for order A-17", "done_when": "It is refunded", "tools": ["refund"]}
    work = [
        call("refund", order_id="A-17", amount=40.0),
        finish_step("40.00 EUR are on their way to your card.", ("s1.1", "refunded 40.00 EUR")),
    ]
    return ScriptedModel(roles={"triage": [submit_plan([step], language="en")], "execute": work})


async def main() -> None:
    """Play a customer: a message that arrives twice, a button that is pressed twice, words while it works."""
    agent = Agent(model(), [refund], storage="memory:", notify=on_news, settings={"when_busy": "next_round"})
    bot = Bot(agent)
    async with agent, agent.worker():
        for _ in range(2):
            await bot.on_message("mira", "m1", "My lamp of order A-17 arrived broken")
        pressed = await SHOWN.get()
        await bot.on_button("mira", pressed)
        await PAYING.wait()
        await bot.on_message("mira", "m2", "Please tell me how long it takes")
        SAID.set()
        while await SHOWN.get():  # the other buttons, then the answer
            pass
        await bot.on_button("mira", pressed)
    run = await agent.get("chat-mira")
    if run.receipt:
        print("heard while it worked:", *(each["text"] for each in run.receipt["heard"]))


if __name__ == "__main__":
    asyncio.run(main())
