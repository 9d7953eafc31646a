"""The chat bot, when a platform sends again, people write at the same time, and its process dies."""

import asyncio
import importlib.util
from typing import Any

import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.places import ROOT


@pytest.fixture
def example() -> Any:
    """Return the example's module, with nothing said."""
    spec = importlib.util.spec_from_file_location("chat_bot", ROOT / "examples" / "chat_bot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def paying(example: Any, paid: list[float]) -> Agent:
    """Return an agent whose plan is followed by the question about an amount that nobody named."""

    def look(what: str) -> str:
        """Look."""
        return "a bill of 400"

    def pay(amount: float) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    plan = submit_plan([{"content": "Pay the bill", "done_when": "ok", "tools": ["look", "pay"]}], language="en")
    work = [call("look", what="bill"), call("pay", amount=400.0), finish_step("paid", ("s1.2", "paid"))]
    return Agent(
        ScriptedModel(roles={"triage": [plan], "execute": work}),
        [look, pay],
        effects={"look": "read"},
        storage="memory:",
        notify=example.on_news,
        settings={"when_busy": "next_round"},
    )


async def shown(example: Any, label: str) -> int:
    """Wait for a message with this button, the last of its buttons; return its number."""
    while (posted := await asyncio.wait_for(example.SHOWN.get(), 60))[1] != label:
        pass
    return int(posted[0])


@pytest.mark.parametrize("it_died", [False, True])
async def test_words_that_arrive_twice_answer_once(example: Any, it_died: bool) -> None:
    """ "yes" to the plan is no answer to the payment, also if the bot died before it knew what it had answered."""
    paid = list[float]()
    agent = paying(example, paid)
    bot = example.Bot(agent)
    async with agent, agent.worker():
        await asyncio.gather(*(bot.on_message("r", 0, "Pay the bill") for _ in range(2)))
        await shown(example, "cancel")
        said = next(example.NUMBERS)
        await asyncio.gather(*(bot.on_message("r", said, "yes") for _ in range(2)))
        asked = await shown(example, "reject")
        if it_died:
            example.HANDLED.clear()
        await bot.on_message("r", said, "yes")
        run = await agent.get("chat-r")
        assert (run.status, paid) == ("waiting", [])
        await bot.on_message("r", next(example.NUMBERS), "yes")
        assert await shown(example, "") > asked
        while not paid:  # what came again is answered, too
            await shown(example, "")
    assert paid == [400.0]


async def test_words_of_the_second_person_answer_what_they_had_read(example: Any) -> None:
    """Ann approves the plan; Ben's yes to it arrives when the payment is asked, and again at the end: it pays nothing,
    and is no request. His no is heard."""
    paid = list[float]()
    agent = paying(example, paid)
    bot = example.Bot(agent)
    async with agent, agent.worker():
        await bot.on_message("r", 0, "Pay the bill")
        plan = await shown(example, "cancel")
        bens = [next(example.NUMBERS) for _ in range(3)]
        await bot.on_button("r", plan, "approve")
        asked = await shown(example, "reject")
        await bot.on_message("r", bens[0], "yes")
        await bot.on_message("r", bens[1], "no")
        assert ((await agent.get("chat-r")).status, paid) == ("waiting", [])
        await bot.on_button("r", asked, "approve")
        while (await agent.get("chat-r")).status != "completed":
            await shown(example, "")
        await bot.on_message("r", bens[2], "yes please")
        run = await agent.get("chat-r")
    assert (run.status, run.goal, paid) == ("completed", "Pay the bill", [400.0])
    assert run.receipt
    assert [row["text"] for row in run.receipt["heard"]] == ["no"]


async def test_a_question_back_is_shown_and_answered_by_the_next_words(
    example: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "no" to a plan is asked back, each time, and the plan still waits above the words that follow."""
    agent = paying(example, [])
    bot = example.Bot(agent)
    async with agent, agent.worker():
        await bot.on_message("r", 0, "Pay the bill")
        await shown(example, "cancel")
        for _ in range(2):
            await bot.on_message("r", next(example.NUMBERS), "no")
            await shown(example, "")
        assert capsys.readouterr().out.count("What should be different?") == 2
        await bot.on_message("r", next(example.NUMBERS), "yes")
        await shown(example, "reject")
