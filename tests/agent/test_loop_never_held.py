"""The event loop of all runs goes on whatever one tool returns or one model says: forty hostile ones (Q57, Q108).

What counts is the work of this process between two beats of the loop, in any thread: a call of a library holds the
lock of the interpreter to its end. So other processes on the machine change nothing.
"""

import asyncio
import gc
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool
from pydantic import Field, PrivateAttr

from donewhen import Agent
from donewhen.testing import call, finish_step, submit_plan

MOST = 0.15
"""Seconds of work; one held up like this is noticed by no one. Before, most of these took between 0.2 and 6 seconds."""
USERS = 5_000
CSV = "id,mail,amount\n" + "\n".join(f"{n},user{n}@example.com,{n}.50" for n in range(USERS))
ROWS = {"rows": [{"id": n, "name": f"user {n}", "tags": ["a", "b"], "inner": {"total": n}} for n in range(5_000)]}
CITED = [{"observation": "s1.1", "quote": f"{n},user{n}@"} for n in range(30_000)]
CLAIMED = [{"criterion": n} for n in range(30_000)]
PARTS = {f"k{n}": {"a": [n, str(n)]} for n in range(20_000)}
DONE = finish_step("done", "s1.1")


def looped() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = list(range(5_000))
    value.append(value)
    return value


def long_result() -> list[dict[str, Any]]:
    return [{"type": "text", "text": f"paragraph {n} of the long text"} for n in range(30_000)]


RESULTS: dict[str, Callable[[], Any]] = {
    "a table": lambda: CSV,
    "JSON as text": lambda: json.dumps(ROWS),
    "rows as data": lambda: ROWS,
    "two million numbers": lambda: list(range(2_000_000)),
    "a list in a list in a list": lambda: [[[n] * 10 for n in range(100)] for _ in range(200)],
    "one item that is large": lambda: {"a": [1, {"b": list(range(300_000))}]},
    "100,000 keys": lambda: {f"key{n}": n for n in range(100_000)},
    "many keys, in order": lambda: OrderedDict((n, str(n)) for n in range(100_000)),
    "a list that holds itself": looped,
    "a set": lambda: set(range(300_000)),
    "50 MB of text": lambda: "abc " * 12_500_000,
    "50 MB of bytes": lambda: b"abc " * 12_500_000,
    "one word of 1 MB": lambda: "a" * 1_000_000,
    "Japanese": lambda: "日本語のテキスト。" * 110_000,
    "names of secrets": lambda: "password token key=1 " * 50_000,
    "addresses with passwords": lambda: "postgres://u:p@h/db " * 50_000,
    "backslashes": lambda: "\\" * 1_000_000,
    "numbers": lambda: " ".join(map(str, range(150_000))),
    "a table in Markdown": lambda: "\n".join(
        ["| a | b |", "|---|---|", *(f"| {n} | u{n}@x.org |" for n in range(40_000))]
    ),
    "blocks of content": long_result,
    "many files": lambda: ("files", {"files": {f"{n}.txt": "x" * 100 for n in range(50_000)}}),
    "a file of 50 MB": lambda: ("a file", {"files": {"a.bin": "x" * 50_000_000}}),
}
CHECKS: dict[str, tuple[Callable[[], Any], Any]] = {
    "a path that descends": (lambda: ROWS, {"path": "$..total", "op": "exists"}),
    "a path with a filter": (lambda: ROWS, {"path": "$.rows[?(@.id==4999)].inner.total", "op": "exists"}),
    "a pattern that backtracks": (lambda: "a" * 30 + "b", {"matches": "(a+)+$"}),
    "a pattern over 1 MB": (lambda: "aab" * 330_000, {"matches": "(a|aa)+c"}),
    "the same data": (lambda: ROWS, {"equals": ROWS}),
    "a text in it": (lambda: CSV, {"contains": "user4999"}),
    "a number in it": (lambda: "1 " * 500_000, {"number": 3}),
}
GROUNDED = {"verification": "grounded"}
REPLIES: dict[str, list[Any]] = {
    "a quote of 20,000 characters": [call("big"), finish_step("done", ("s1.1", CSV[:20_000]))],
    "a quote from the end": [call("big"), finish_step("done", ("s1.1", f"user{USERS - 1}@example.com"))],
    "a quote that is not there": [call("big"), finish_step("done", ("s1.1", "userX@example.com,7.50"))],
    "30,000 citations": [
        call("big"),
        call("finish_step", result="done", goal_check=[{"criterion": 1, "met": True, "evidence": CITED}]),
        DONE,
    ],
    "30,000 claims": [call("big"), call("finish_step", result="done", goal_check=CLAIMED), DONE],
    "an argument of 1 MB": [call("note", text="word a@b.c 12 " * 70_000), DONE],
    "an argument of many parts": [call("note", text="x", more=PARTS), DONE],
    "5 MB of prose": ["I think so. " * 400_000, call("big"), DONE],
    "printed JSON of 1 MB": ['{"a": [' + "1, " * 300_000 + "1]}", call("big"), DONE],
    "half a million brackets": ["{" * 500_000, call("big"), DONE],
    "10,000 printed calls": ['<tool_call>{"name": "big", ' * 10_000, call("big"), DONE],
    "2,000 calls": [[call("big") for _ in range(2_000)], call("big"), DONE],
}  # fmt: skip


class Prepared(BaseChatModel):
    """Gives replies that were made before, so that making them takes no time."""

    replies: dict[str, list[AIMessage]] = Field(repr=False)

    @property
    def _llm_type(self) -> str:
        return "prepared"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self.bind(tools=tools)

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        role = (run_manager.metadata or {}).get("donewhen_role")
        left = self.replies["execute" if role == "execute" else "plan"]
        return ChatResult(generations=[ChatGeneration(message=left.pop(0) if len(left) > 1 else left[0])])


class Streaming(Prepared):
    """Gives replies of one chunk each, whoever asks."""

    _left: list[AIMessageChunk] = PrivateAttr(default_factory=list)

    async def _astream(self, *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        yield ChatGenerationChunk(message=self._left.pop(0))


def prepared(plan: Any, *work: Any) -> Prepared:
    def message(number: int, said: Any) -> AIMessage:
        if isinstance(said, str):
            return AIMessage(said)
        calls = said if isinstance(said, list) else [said]
        return AIMessage("", tool_calls=[{**each, "id": f"c{number}.{n}"} for n, each in enumerate(calls)])

    return Prepared(
        replies={"plan": [message(0, plan)], "execute": [message(n, each) for n, each in enumerate(work, 1)]}
    )


@asynccontextmanager
async def beating() -> AsyncIterator[list[float]]:
    """Yield the work of this process between the beats of the event loop."""
    work: list[float] = []

    async def beat() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(0.002)
            now = time.process_time()
            work.append(now - last)
            last = now

    gc.collect()
    gc.disable()  # a collection holds the loop too, whenever it comes
    beats = asyncio.create_task(beat())
    try:
        await asyncio.sleep(0.01)
        yield work
    finally:
        beats.cancel()
        gc.enable()


async def longest(make: Callable[[], tuple[Prepared, list[Any]]], **settings: Any) -> tuple[float, Any]:
    """Return the longest work between two beats of a run, and the run; the better of two, because imports count too."""
    found: list[tuple[float, Any]] = []
    for _ in range(2):
        model, tools = make()
        options: dict[str, Any] = {"confirm": "never", "approvals": "never", "verification": "claimed", **settings}
        options["limits"] = {"rounds": 4}
        agent = Agent(model, tools, effects={"big": "read"}, storage="memory:", settings=options)
        async with agent, beating() as work:
            run = await agent.start("go")
        found.append((max(work), run))
        if found[-1][0] < MOST:
            break
    return min(found, key=lambda each: each[0])


def planned(check: Any = None) -> Any:
    criterion = {"text": "done", **({"check": {"tool": "big", "arguments": {}, "expect": check}} if check else {})}
    step = {
        "content": "work for user1@example.com",
        "done_when": [criterion],
        "tools": ["big"] if check else ["big", "note"],
    }
    return submit_plan([step], complexity="simple")


def tools_giving(value: Any, kind: str = "sync") -> list[Any]:
    """Return a tool `big` that returns the value, and a tool `note` that writes."""

    def big() -> Any:
        """Return much."""
        return value

    async def abig() -> Any:
        """Return much."""
        return value

    def note(text: str, more: dict[str, Any] | None = None) -> str:
        """Note something."""
        return "noted"

    artifact = isinstance(value, tuple)
    form: Any = "content_and_artifact" if artifact else "content"
    function: dict[str, Any] = {"func": big} if kind == "sync" else {"coroutine": abig}
    made = StructuredTool.from_function(**function, name="big", description="Return much.", response_format=form)
    return [made, StructuredTool.from_function(note)]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_holds_nothing_up(name: str, kind: str) -> None:
    """Q57, Q108: 22 results, of tools that are functions and of tools that are coroutines."""
    value = RESULTS[name]()
    held, run = await longest(lambda: (prepared(planned(), call("big"), DONE), tools_giving(value, kind)))
    assert held < MOST
    assert run.status == "completed"


@pytest.mark.parametrize("name", CHECKS)
async def test_a_check_of_a_large_result_holds_nothing_up(name: str) -> None:
    """Q57: seven checks, by which a plan of a model decides how much is done."""
    make, expect = CHECKS[name]
    value = make()
    settings = {"verification": "grounded"}
    held, run = await longest(lambda: (prepared(planned(expect), call("big"), DONE), tools_giving(value)), **settings)
    assert held < MOST
    assert run.status in ("completed", "waiting")


@pytest.mark.parametrize("name", REPLIES)
async def test_a_reply_holds_nothing_up(name: str) -> None:
    """Q57: twelve replies of models."""
    tools = tools_giving(CSV)
    settings = {"verification": "grounded", "approvals": "shown"}
    held, run = await longest(lambda: (prepared(planned(), *REPLIES[name]), tools), **settings)
    assert held < MOST
    assert run.status in ("completed", "partial", "waiting", "exhausted", "failed")


async def test_a_chunk_of_many_calls_holds_nothing_up() -> None:
    """Q57: 40,000 calls without arguments, which are few characters, come in one chunk."""
    pieces = [{"type": "tool_call_chunk", "name": "big", "args": "", "id": f"c{n}", "index": n} for n in range(40_000)]
    many = AIMessageChunk("", tool_call_chunks=pieces)

    def make() -> tuple[Prepared, list[Any]]:
        model = Streaming(replies={})
        asked = [planned(), call("big"), call("note", text="x"), DONE]
        plan, *work = (AIMessageChunk("", tool_calls=[{**each, "id": f"d{n}"}]) for n, each in enumerate(asked))
        model._left = [plan, many, *work]
        return model, tools_giving(CSV)

    held, run = await longest(make, verification="grounded")
    assert held < MOST
    assert run.status == "completed"


async def test_targets_of_a_large_result_hold_nothing_up() -> None:
    """Q57: whether a person knows the target of a write is looked up in megabytes of results."""
    work = [call("big"), call("note", text=f"user{USERS - 1}@example.com"), finish_step("done", "s1.2")]
    held, run = await longest(lambda: (prepared(planned(), *work), tools_giving(CSV)), approvals="shown")
    assert held < MOST
    assert run.status in ("completed", "waiting")
