"""DoneWhen: planned, confirmed by policy, executed, proven, with a receipt; every write on disk before the next."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from typing import Any

from common import (
    ASKED,
    GOAL,
    SAID,
    Prompts,
    cold,
    cpu,
    in_folder,
    look,
    main,
    of_turns,
    per_round,
    put,
    rounds,
    settled,
    stored,
)
from fake_chat import FakeChat
from langchain_core.tools import tool

from donewhen import Agent, Limits, Settings

FREE = Limits(rounds=None, model_calls=None, tool_calls=None, active_seconds=None)
SETTINGS = Settings(
    confirm="never",
    approvals="never",
    verification="grounded",
    limits=FREE,
    step_limits=FREE,
    max_steps=200,
    max_parallel=16,
    mode="plan",
)
"""Without the audit, which is one more call of a model; peers have none."""
TOOLS = [tool(look), tool(put)]
"""Made once, as those of the peers."""
EFFECTS: Any = {"look": "read", "put": "write"}


def script(steps: int, each: int, tool: str, **more: Any) -> list[Any]:
    """A plan of so many chained steps, each of so many model calls, the last of which proves it."""
    planned = [{"content": f"Look at part {s}", "done_when": ["it was seen"], **more} for s in range(1, steps + 1)]
    replies: list[Any] = [("submit_plan", {"title": "T", "steps": planned})]
    for s in range(1, steps + 1):
        replies += [(tool, {"what": f"item {s}-{k}"}) for k in range(each - 1)]
        proof = {"criterion": 1, "met": True, "evidence": [{"observation": f"s{s}.1"}]}
        replies.append(("finish_step", {"result": "The value is 12345.", "goal_check": [proof]}))
    return [*replies, *([("deliver", {"text": "The value is 12345.", "goal_check": []})] if steps > 1 else [])]


async def work_rounds(replies: list[Any], storage: str, **options: Any) -> None:
    async with Agent(
        FakeChat(replies=replies, **options), tools=TOOLS, effects=EFFECTS, storage=storage, settings=SETTINGS
    ) as agent:
        run = await agent.start(GOAL)
    assert run.status == "completed", run.outcome


def run(n: int, tool: str, file: str | None, **options: Any) -> None:
    asyncio.run(work_rounds(script(1, n, tool), f"sqlite:///{file}" if file else "memory:", **options))


def steps(n: int) -> dict[str, Any]:
    """N rounds in steps of ten: stored, and sent."""
    prompts = Prompts()

    def one(folder: str) -> dict[str, Any]:
        replies = script(n // 10, 10, "look")
        ms = cpu(lambda: asyncio.run(work_rounds(replies, f"sqlite:///{folder}/x.db", prompts=prompts))) / n
        return {"ms": ms, "mb": stored(folder)}

    return {**in_folder(one), "prompts_mb": prompts.bytes / 1e6, "same": prompts.same / prompts.bytes}


def sides(count: int) -> dict[str, Any]:
    """So many steps that need nothing of each other: two model calls of 0.2 s each, after one that plans."""

    def replies(moment: list[float]) -> list[Any]:
        plan = script(count, 2, "look", depends_on=[])[0]

        def planned(_: Any) -> Any:
            moment.append(time.perf_counter())
            return plan

        def work(messages: Any) -> Any:
            if '<step id="' not in str(messages[1].content):
                moment.append(time.perf_counter())
                return (None, "The value is 12345.")
            id = str(messages[1].content).split('<step id="')[1].split('"')[0]
            if not any(message.type == "tool" for message in messages):
                return ("look", {"what": id})
            proof = {"criterion": 1, "met": True, "evidence": [{"observation": f"{id}.1"}]}
            return ("finish_step", {"result": "12345", "goal_check": [proof]})

        return [planned, *[work] * (2 * count + 3)]

    moment: list[float] = []
    asyncio.run(work_rounds(script(1, 2, "look"), "memory:"))
    asyncio.run(work_rounds(replies(moment), "memory:", seconds=0.2))
    return {"s": moment[1] - moment[0] - 0.2}


def resumed(n: int) -> dict[str, Any]:
    """From opening the file to the first request, after so many rounds that were broken off."""

    def one(folder: str) -> dict[str, Any]:
        file, found = f"sqlite:///{folder}/x.db", list[float]()

        class Stopped(BaseException):
            pass

        def stop(_: Any) -> Any:
            raise Stopped

        async def begin() -> None:
            model = FakeChat(replies=[*script(1, n + 2, "look")[:-1], stop])
            async with Agent(model, tools=TOOLS, effects=EFFECTS, storage=file, settings=SETTINGS) as agent:
                await agent.start(GOAL, thread_id="t")

        async def go_on() -> None:
            model = FakeChat(replies=script(1, 2, "look")[-1:], first=lambda: found.append(time.process_time()))
            async with Agent(model, tools=TOOLS, effects=EFFECTS, storage=file, settings=SETTINGS) as agent:
                await agent.resume("t")

        with suppress(BaseException):
            asyncio.run(begin())
        settled()
        started = time.process_time()
        asyncio.run(go_on())
        return {"ms": 1000 * (found[0] - started)}

    return in_folder(one)


def token(_: int) -> dict[str, Any]:
    """Return the delay of the first word after the model, in ms: of a text, and of a call's argument.

    It is timed in the second reply: before the first, nobody knows whether the model prints its calls.
    """
    words = " ".join(f"word{k}" for k in range(40))

    async def delay(reply: Any) -> float:
        given: list[Any] = []

        def second(_: Any) -> Any:
            given.clear()
            return reply

        model = FakeChat(replies=[("look", {"what": "x"}), second], pieces=60, moments=given)
        async with (
            Agent(model, tools=TOOLS, effects=EFFECTS, storage="memory:") as agent,
            agent.stream(GOAL, settings=Settings(confirm="never", verification="grounded")) as stream,
        ):
            async for event in stream:
                if event["type"] == "speech":
                    first = next(at for part, at in given if "w" in part)
                    return 1000 * (time.perf_counter() - first)
        return float("nan")

    argument = ("answer", {"text": words, "evidence": [{"observation": "p.1"}]})
    return {"plain": asyncio.run(delay((None, words))), "argument": asyncio.run(delay(argument))}


def writes(n: int) -> dict[str, Any]:
    """N rounds of a tool that writes, durably on SQLite."""

    in_folder(lambda folder: {"warm": run(3, "put", f"{folder}/x.db")})
    return per_round(lambda folder: run(n, "put", f"{folder}/x.db"), n)


def talk(turns: int, *, memory: bool = False) -> dict[str, Any]:
    """So many questions on one thread, each answered at once, durably on SQLite or in memory."""

    async def go(file: str) -> list[float]:
        costs = []
        model = FakeChat(replies=[("answer", {"text": SAID})] * turns)
        storage = "memory:" if memory else f"sqlite:///{file}"
        async with Agent(model, tools=TOOLS, effects=EFFECTS, storage=storage) as agent:
            for k in range(turns):
                started = time.process_time()
                said = await agent.start(f"{k}: {ASKED}", thread_id="t", settings=Settings(confirm="never"))
                costs.append(1000 * (time.process_time() - started))
                assert said.status == "answered", said.outcome
        return costs

    return in_folder(lambda folder: of_turns(asyncio.run(go(f"{folder}/x.db")), folder))


if __name__ == "__main__":
    more = {"steps": steps, "cold": cold(run), "sides": sides, "resumed": resumed, "token": token}
    more |= {"durable_writes": writes, "talk": talk, "talk_memory": partial(talk, memory=True)}
    ordinary = rounds(run)  # it always saves, and on SQLite durably
    main({**ordinary, **more, "unsaved": ordinary["rounds"], "durable": ordinary["sqlite"]})
