"""A chat bot, as for Slack or Telegram: a chat is a thread, a question is a message with buttons, words are passed on.

Runs without a key, from a script, and prints what a platform would show. For a real bot, let its webhook call
`on_message` and `on_button`, and let `show` call the platform. For real work, give `Agent` the name of a model.
"""

import asyncio
from itertools import count
from typing import Any

from donewhen import Agent, ResumeError, StaleAnswer, ThreadBusy, ThreadWaiting
from donewhen.clients import read_word
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

NUMBERS = count(1)  # a platform numbers the messages of a chat in order: Slack's `ts`, Telegram's `message_id`
POSTED: dict[str, dict[int, tuple[str, str] | None]] = {}
"""By chat and message: the thread and the id of the question that the bot asked there. In your database."""
HANDLED: set[tuple[str, int]] = set()
"""The messages that somebody acts on, because platforms send again. In your database."""
SHOWN: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
PAYING, SAID = asyncio.Event(), asyncio.Event()


async def refund(order_id: str, amount: float) -> str:
    """Pay an amount back for an order."""
    PAYING.set()
    await SAID.wait()  # a slow bank; meanwhile the customer writes again
    return f"refunded {amount:.2f} EUR"


async def show(chat: str, text: str, buttons: list[str] | None = None) -> int:
    """Send a message to a chat; return its number."""
    print(f"[{chat}] {text}", *(f"  ({label})" for label in buttons or ()), "", sep="\n")
    number = next(NUMBERS)
    for label in buttons or [""]:
        SHOWN.put_nowait((number, label))
    return number


async def on_news(event: dict[str, Any]) -> None:
    """Show what a run asks or answers. If this raises, it is called again, with the same `event["id"]`."""
    data = event["data"]
    chat = data["owner"]  # a schedule's run has a thread of its own, and the same owner
    posted = POSTED.setdefault(chat, {})
    for asked in data.get("questions", ()):
        choices = [option for option in asked["options"] if option != "edit"]
        number = await show(chat, asked["text"], choices)
        posted[number] = (data["thread_id"], asked["id"])
    if "questions" not in data:
        posted[await show(chat, data.get("answer") or data["problem"])] = None


def asked_above(chat: str, message: int) -> tuple[str, str] | None:
    """Return the thread and the id of the question that was shown last when a message was written, if it was one."""
    posted = POSTED.get(chat, {})
    return posted.get(max((number for number in posted if number < message), default=0))


class Bot:
    """Passes on what people write and press. Any number of processes may do so, on one storage."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def on_message(self, chat: str, message: int, text: str) -> None:
        """Act on a message once: it is claimed before, and free again if that fails."""
        if (chat, message) in HANDLED:
            return
        HANDLED.add((chat, message))
        try:
            if not await self.answer(chat, message, text):
                await self.ask(chat, message, text)
        except BaseException:
            HANDLED.discard((chat, message))
            raise

    async def answer(self, chat: str, message: int, text: str) -> bool:
        """Answer the question above the message, and no other one; return False if none is open there."""
        if (asked := asked_above(chat, message)) is None:
            return False
        try:
            await self.agent.submit_answer(asked[0], text, question=asked[1])
        except StaleAnswer:
            if read_word(text) != "yes":  # a late yes is neither a request nor news for the model
                return False
            await show(chat, "That is answered already.")
        except ThreadBusy:
            return False
        except ResumeError as error:  # a question back, such as "What should be different?"
            await show(chat, str(error))
        return True

    async def ask(self, chat: str, message: int, text: str) -> None:
        """Begin a request, or end the run that is not finished, or tell it; it follows that from its next round on."""
        thread = f"chat-{chat}"
        try:
            await self.agent.submit(text, thread_id=thread, request_id=str(message), owner=chat)
        except (ThreadWaiting, ThreadBusy):
            if read_word(text) == "cancel":  # “Stop!”, in any of the languages that DoneWhen reads
                await self.agent.cancel(thread)
                return
            try:
                await self.agent.tell(thread, text, request_id=str(message))
            except ResumeError:  # it just ended
                await show(chat, "One moment. Please say that again.")

    async def on_button(self, chat: str, message: int, choice: str) -> None:
        """Answer the question below which the button was pressed, and no other one."""
        if asked := POSTED[chat][message]:
            try:
                await self.agent.submit_answer(asked[0], choice, question=asked[1])
            except StaleAnswer:
                await show(chat, "That is answered already.")
            except ResumeError as error:  # such as: it waits for somebody else
                await show(chat, str(error))


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
    bot, said = Bot(agent), next(NUMBERS)
    async with agent, agent.worker():
        for _ in range(2):
            await bot.on_message("mira", said, "My lamp of order A-17 arrived broken")
        pressed = await SHOWN.get()
        await bot.on_button("mira", *pressed)
        await PAYING.wait()
        await bot.on_message("mira", next(NUMBERS), "Please tell me how long it takes")
        SAID.set()
        while (await SHOWN.get())[1]:  # the other buttons, then the answer
            pass
        await bot.on_button("mira", *pressed)
    run = await agent.get("chat-mira")
    if run.receipt:
        print("heard while it worked:", *(each["text"] for each in run.receipt["heard"]))


if __name__ == "__main__":
    asyncio.run(main())
