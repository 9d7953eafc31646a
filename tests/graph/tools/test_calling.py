"""One call of one tool: whatever the tool does, the run goes on and the model learns what happened (X07, X12, F8)."""

import asyncio
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import subprocess
import sys
import threading
import time
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, ToolException
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedStore, ToolRuntime
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from donewhen.graph.llm.history import shorten
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool
from donewhen.graph.tools.images import NOT_KEPT
from donewhen.graph.tools.rendering import render_value
from donewhen.graph.tools.toolbox import from_function
from tests.kit.places import ROOT

SECRET = "sk-live_4fJ9xQ2mZ8vB1nT6"

NOT_SHOWN = f"\n({NOT_KEPT.format(count=1)})"


async def called(body: Any, arguments: Any = None, *, seconds: float | None = 5, **options: Any) -> CallOutcome:
    """Call a function as a tool."""
    coroutine = asyncio.iscoroutinefunction(body)
    made = StructuredTool.from_function(**{"coroutine" if coroutine else "func": body}, name="t", description="d")
    return await call_tool(ToolCall(made, arguments or {}, timeout=seconds, **options))


class Unprintable(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("no")

    __repr__ = __str__


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date


class Model(BaseModel):
    price: decimal.Decimal


def cycle() -> list[Any]:
    one: list[Any] = [1]
    one.append({"again": one})
    return one


def deep() -> list[Any]:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    return nested


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (math.nan, "NaN"),
        ({"n": math.inf}, '{"n": Infinity}'),
        ([10**5_000], "<list that cannot be printed: ValueError>"),
        (b"bytes", "bytes"),
        (b"\xff\xfe\x00", "(3 bytes that are not text, beginning ff fe 00)"),
        ({"b"}, '["b"]'),
        ({"raw": b"\xff"}, '{"raw": "_w=="}'),
        ({"when": datetime.date(2026, 1, 2), "d": decimal.Decimal("1.10")}, '{"when": "2026-01-02", "d": "1.10"}'),
        ({1: "a", None: 0}, '{"1": "a", "None": 0}'),
        (Point(1, datetime.date(2026, 1, 2)), '{"x": 1, "when": "2026-01-02"}'),
        (Model(price=decimal.Decimal("9.99")), '{"price": "9.99"}'),
        ([Colour.RED, collections.deque([1])], '["red", [1]]'),
        (cycle(), "[1, {'again': [...]}]"),
        ({"x": Unshowable()}, '{"x": "<Unshowable that cannot be printed: ValueError>"}'),
        (["a", "b"], '["a", "b"]'),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "one\ntwo"),
        ([{"type": "image", "base64": "AAAA", "mime_type": "image/png"}], f"[image, image/png, 3 bytes]{NOT_SHOWN}"),
        ([{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}], f"[image, https://x.org/a.png]{NOT_SHOWN}"),
        ([{"type": "file", "path": "a.txt"}], '[{"type": "file", "path": "a.txt"}]'),
        ("a\ud83d\ude00b\ud800c\0", "a😀b�c␀"),
        (AIMessage("said"), "said"),
        (ToolMessage("fine", tool_call_id="1"), "fine"),
    ],
)  # fmt: skip
async def test_every_value_becomes_text(kind: str, value: Any, text: str) -> None:
    """X07, F8: whatever a tool returns is text that every database takes; data is JSON."""

    def plain() -> Any:
        return value

    async def awaited() -> Any:
        return value

    result = await called(plain if kind == "sync" else awaited)
    assert (result.ok, result.text, result.error) == (True, text, None)
    result.text.encode()


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad input"), "ValueError: bad input"),
        (ValueError(), "ValueError"),
        (ToolException("no such file"), "no such file"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (BaseException("base"), "BaseException: base"),
        (Unprintable(), "Unprintable: <Unprintable that cannot be printed: SystemExit>"),
        (ExceptionGroup("g", [ValueError("a"), OSError("b")]), "ValueError: a; OSError: b"),
        (RuntimeError(f"401 for key {SECRET}"), "RuntimeError: 401 for key [redacted]"),
        (asyncio.CancelledError(), "the call was cancelled from within the tool"),
        (StopIteration("x"), "RuntimeError: "),
    ],
)  # fmt: skip
async def test_every_exception_becomes_a_result(kind: str, error: BaseException, text: str) -> None:
    """X07, F8: a tool that raises anything is an observation that is not ok, without secrets; the loop lives on."""

    def plain() -> None:
        raise error

    async def awaited() -> None:
        raise error

    result = await called(plain if kind == "sync" else awaited)
    assert not result.ok
    assert result.error is not None
    assert result.text.startswith(text)
    assert SECRET not in result.text


def giving(value: Any) -> Any:
    return lambda: value


async def test_results_of_any_size_are_bounded_in_bounded_time() -> None:
    """F8: 10 MB, a million items, 100,000 levels: at most the limit, quickly, saying so."""
    assert (await called(giving(deep()))).text.startswith("[[[[")
    assert (await called(giving(range(10**12)))).text == "range(0, 1000000000000)"
    values = ["x" * 10_000_000, list(range(3_000_000)), {"rows": [{"v": "y" * 50}] * 500_000}]
    for value in values:
        started = time.process_time()
        result = await called(giving(value))
        assert time.process_time() - started < 3
        assert result.ok
        assert len(result.text) <= 1_000_000
        assert "the rest was not kept" in result.text[-200:]
    assert "10,000,000 characters" in (await called(lambda: "x" * 10_000_000)).text[-200:]
    assert len((await called(lambda: "x" * 500, limit=200)).text) == 200


async def test_files_are_texts_and_bounded_together() -> None:
    """F8: what clients are shown of a call's files has its limit, too, and the result says what is left out."""
    files = {"a": "x" * 60, "b": None, "c": "y" * 600, "d": "z"}
    tool = StructuredTool.from_function(
        lambda: ("made", {"files": files}), name="make", description="Make.", response_format="content_and_artifact"
    )
    result = await call_tool(ToolCall(tool, {}, None, limit=200))
    shown = result.artifact["files"]
    assert (shown["a"], shown["b"], [*shown]) == ("x" * 60, "null", ["a", "b", "c"])
    assert sum(map(len, shown.values())) <= 200
    assert "more than is kept for display" in result.text


class Unequal:
    """Cannot be compared, as an array of several values."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")


async def test_a_file_that_cannot_be_compared_ends_no_run() -> None:
    """X07: the content of a file is a value like any other."""
    made = ("made", {"files": {"a": Unequal()}})
    form: Any = {"response_format": "content_and_artifact"}
    tool = StructuredTool.from_function(lambda: made, name="make", description="Make.", **form)
    result = await call_tool(ToolCall(tool, {}, None))
    assert "Unequal" in result.artifact["files"]["a"]


def endless() -> Any:
    while True:
        yield 1


async def test_generators_are_read_to_a_bound() -> None:
    result = await called(endless)
    assert result.text.startswith("[1, 1")
    assert result.text.endswith("more than 200,000 items; the rest was not kept")

    def failing() -> Any:
        yield 1
        raise ValueError("midway")

    assert (await called(failing)).error == "ValueError"


async def test_a_tool_that_hangs_is_given_up() -> None:
    """X07, X13, F8: a timeout is an observation with its duration; it says if a thread works on."""
    release = threading.Event()

    async def waits() -> None:
        await asyncio.Event().wait()

    for body, said in ((release.wait, "thread that cannot be stopped"), (waits, "was cancelled")):
        result = await called(body if body is waits else lambda: release.wait() and None, seconds=0.05)
        assert (result.ok, result.error) == (False, "timeout")
        assert 0.05 <= result.seconds < 20
        assert result.text.startswith("no result after 0.05 seconds")
        assert said in result.text
    release.set()


async def test_a_tool_that_will_not_be_cancelled_is_left_behind() -> None:
    """F8: a tool that swallows its cancellation delays the run by half a second, not for ever."""
    end = asyncio.Event()

    async def stubborn() -> None:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    started = time.perf_counter()
    assert (await called(stubborn, seconds=0.05)).error == "timeout"
    assert time.perf_counter() - started < 20
    end.set()


async def test_many_hanging_tools_do_not_block_the_next() -> None:
    """F8: synchronous tools have threads of their own, so fifty that hang leave room for one that works."""
    release = threading.Event()
    hanging = [called(lambda: release.wait() and None, seconds=0.2) for _ in range(50)]
    assert {result.error for result in await asyncio.gather(*hanging)} == {"timeout"}
    assert (await called(lambda: "works", seconds=1)).text == "works"
    release.set()


def test_a_hanging_tool_does_not_keep_the_process_alive() -> None:
    """F8: the process ends although a synchronous tool never returns."""
    script = """
import asyncio, threading
from langchain_core.tools import tool
from donewhen.graph.tools.call import ToolCall, call_tool
@tool
def hangs() -> str:
    "Hang."
    threading.Event().wait()
    return ""
print(asyncio.run(call_tool(ToolCall(hangs, {}, timeout=0.1))).error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.strip() == "timeout"


async def test_cancelling_the_run_cancels_the_tool() -> None:
    """Only the caller's own cancellation leaves call_tool, and the tool learns of it."""
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    task = asyncio.create_task(called(waits, seconds=None))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()


async def test_messages_are_read_and_commands_are_data() -> None:
    """X07: a message's status decides; what a command would do to a graph is shown, not done."""
    failed = await called(lambda: ToolMessage("broken", tool_call_id="1", status="error"))
    assert (failed.ok, failed.text, failed.error) == (False, "broken", "error")
    moved = await called(lambda: Command(update={"plan": {"steps": []}}, goto="deliver"))
    assert moved.ok
    assert '"goto": "deliver"' in moved.text
    assert (await called(lambda: ValueError("returned"))).error == "ValueError"


class Counting(BaseTool):
    name: str = "counting"
    description: str = "Counts its calls."
    calls: int = 0

    def _run(self, step: int = 1) -> Any:
        self.calls += step
        return {"calls": self.calls}


class Native(BaseTool):
    name: str = "native"
    description: str = "Is asynchronous."
    does: Any = None

    def _run(self) -> Any:
        raise NotImplementedError

    async def _arun(self) -> Any:
        return self.does()


def exits() -> None:
    raise SystemExit(3)


async def test_tool_classes_keep_their_state_and_are_guarded_like_functions() -> None:
    """F8: a tool that is a class is called with its own state; what it returns or raises is as harmless."""
    counting = Counting()
    await call_tool(ToolCall(counting, {}, timeout=5))
    assert (await call_tool(ToolCall(counting, {"step": 2}, timeout=5))).text == '{"calls": 3}'
    assert counting.calls == 3
    assert (await call_tool(ToolCall(Native(does=lambda: {2}), {}, timeout=5))).text == "[2]"
    assert (await call_tool(ToolCall(Native(does=deep), {}, timeout=5))).ok
    assert (await call_tool(ToolCall(Native(does=exits), {}, timeout=5))).error == "SystemExit"


class Table:
    """Prints itself as pandas does: rows and digits are left out."""

    __module__ = "pandas.core.frame"
    size = 3

    def __str__(self) -> str:
        return "0  1.23\n..  ...\n9  4.56"

    def to_csv(self) -> str:
        return "region,sum\nN,1.23456789\n"

    def tolist(self) -> list[float]:
        return [1.23456789]


async def test_a_table_is_whole() -> None:
    """X07, B4: of a DataFrame no row and no digit is left out, of a Series not what its values belong to."""
    assert (await called(Table)).text == "region,sum\nN,1.23456789\n"
    assert json.loads((await called(lambda: {"sums": Table()})).text) == {"sums": "region,sum\nN,1.23456789\n"}


class Report:
    """An object of somebody's own that writes files."""

    def to_csv(self, path: str = "report.csv") -> None:
        raise AssertionError(path)

    def __str__(self) -> str:
        return "report of October"


async def test_what_is_no_table_writes_no_file() -> None:
    """X07: `to_csv` of an object that is no table is not called: it would write a file where nobody asked for one."""
    assert (await called(Report)).text == "report of October"
    assert json.loads((await called(lambda: {"made": Report()})).text) == {"made": "report of October"}


async def test_async_generators_are_lists() -> None:
    """X07: their items are the result; it was `<async_generator object …>`."""

    async def lines(count: int) -> Any:
        """Lines."""
        for number in range(count):
            yield f"line {number}"

    result = await call_tool(ToolCall(from_function(lines), {"count": 2}, timeout=5))
    assert json.loads(result.text) == ["line 0", "line 1"]
    refused = await called(lambda: lines(2))
    assert (refused.ok, refused.text) == (
        False, "TypeError: the tool returned an async generator; return its items as a list"
    )  # fmt: skip


async def test_the_idempotency_key_reaches_tools_that_ask_for_it() -> None:
    """F1: a tool that declares `idempotency_key` gets the runtime's, whatever the model wrote there."""

    def pays(amount: int, idempotency_key: str) -> str:
        return f"{amount} {idempotency_key}"

    def hidden(amount: int, idempotency_key: Annotated[str, InjectedToolArg] = "") -> str:
        return f"{amount} {idempotency_key}"

    for body in (pays, hidden):
        assert (await called(body, {"amount": 5}, idempotency_key="k1")).text == "5 k1"
        assert (await called(body, {"amount": 5, "idempotency_key": "forged"}, idempotency_key="k1")).text == "5 k1"
    schema = {"type": "object", "properties": {"idempotency_key": {}}}
    raw = StructuredTool(name="raw", description="", args_schema=schema, func=lambda **given: given)
    assert (await call_tool(ToolCall(raw, {}, timeout=5, idempotency_key="k1"))).text == '{"idempotency_key": "k1"}'
    assert (await called(lambda: "none", idempotency_key="k1")).text == "none"


async def test_injected_arguments_are_given_or_the_call_is_refused() -> None:
    """Runtime, store and call id are there, and no model can set any of them."""

    def wants(runtime: ToolRuntime, call: Annotated[str, InjectedToolCallId]) -> Any:
        return [runtime.tool_call_id, call, runtime.state]

    result = await called(wants, {"runtime": "forged", "call": "forged"}, call_id="call_7")
    assert json.loads(result.text) == ["call_7", "call_7", {}]

    def stores(store: Annotated[Any, InjectedStore()]) -> str:
        return type(store).__name__

    refused = await called(stores)
    assert (refused.ok, refused.error) == (False, "refused")
    assert "wants a store in 'store', and this run has none" in refused.text

    class State(TypedDict):
        said: str

    async def node(state: State) -> dict[str, str]:
        return {"said": (await called(stores)).text}

    compiled = StateGraph(State).add_node("node", node).add_edge(START, "node").compile(store=InMemoryStore())
    assert (await compiled.ainvoke({"said": ""}))["said"] == "InMemoryStore"


TEXT = st.text(st.sampled_from("ab \n中é\u0301\u200d\ufe0f\r😀👍🏽👩🚀🇩🇪"), min_size=0, max_size=2_000) | st.text(
    max_size=600
)


@given(TEXT, st.integers(200, 900))
def test_bounded_text_keeps_head_and_tail_and_says_how_to_read_the_rest(text: str, limit: int) -> None:
    """X12: within the limit, head and tail verbatim, the number left out exact, the offset where the head ends."""
    cut = shorten(text, limit, "s2.3")
    if len(text) <= limit:
        assert cut == text
        return
    assert len(cut) <= limit
    head, note, tail = cut.partition("\n… ")
    count = int(note and tail.split(" characters left out;")[0].replace(",", ""))
    offset = int(tail.split("offset=")[1].split(")")[0])
    rest = tail.split(" reads them …\n", 1)[1]
    assert text.startswith(head)
    assert text.endswith(rest)
    assert len(head) == offset
    assert len(head) + count + len(rest) == len(text)


def test_bounded_text_is_cut_between_what_is_read_as_one() -> None:
    """X12, S03: no emoji, accent, flag or line end is torn apart."""
    for one in ("e\u0301", "👩\u200d🚀", "👍🏽", "🇩🇪", "❤\ufe0f", "\r\n"):
        text = one * 600
        for limit in range(300, 312):
            cut = shorten(text, limit, "s1.1")
            head, rest = cut.split("\n… ")[0], cut.split(" …\n")[1]
            assert len(head) % len(one) == 0
            assert len(rest) % len(one) == 0
    note = shorten("x" * 20_000, 8_000, "s2.3").split("\n")[1]
    assert note == '… 12,085 characters left out; recall(observation="s2.3", offset=7123) reads them …'


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=4)


def structures(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.text(max_size=3) | st.integers()
    sets = st.frozensets(keys, max_size=3)
    return st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4) | sets | st.tuples(inner, inner)


@given(structures(st.recursive(SCALARS, structures, max_leaves=20)))
def test_structures_become_valid_json(value: Any) -> None:
    """Data is JSON whatever is in it, so that checks can read paths in it."""
    json.loads(render_value(value, 100_000))
