"""One question to a model: what is repeated and what is not, how long is waited, what it costs, and what is refused."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.rate_limiters import BaseRateLimiter
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import RunControl

from donewhen import Agent
from donewhen.agent.prices import Prices
from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask, join_chunks
from donewhen.state.reading.decisions import TRIAGE, control_tools
from donewhen.state.settings import Settings
from donewhen.testing import ScriptedModel, answer, call, finish_step, reply, submit_plan
from tests.kit.flows import FREE
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

NOW = {"Retry-After": "0"}
PROMPT = [HumanMessage("What is 6 times 7?")]


async def asked(
    model: Any, *, settings: Settings | None = None, prices: Any = None, longest: int = 1_000_000, **more: Any
) -> ModelReply:
    """The reply to one question, without the seconds between attempts."""
    deps = Deps(lambda *_: model, prices=Prices(prices).cost, adapter=Adapter(first_wait=0, longest_reply=longest))
    return await ask(deps, settings or Settings(model_seconds=5), ModelRequest("triage", PROMPT, **more))


async def over_the_wire(*script: Any, **more: Any) -> tuple[ModelReply, int]:
    """The reply of a server with this script, and how many requests it got."""
    with WireServer(list(script)) as server:
        got = await asked(wired(server), **more)
        return got, len(server.requests)


TRANSIENT = {
    "rate limit": fault(status=429, headers=NOW),
    "gateway": fault(status=502, body="<html>Bad gateway</html>"),
    "reset": fault(reset=True),
    "reset in the middle": fault(reset_after=2, reply="This is only half"),
    "stall": fault(stall_after=2, reply="This stops here"),
    "hang": fault(hang=3),
    "no stream": fault(garbage=b""),
}


@pytest.mark.parametrize("kind", TRANSIENT)
async def test_what_passes_is_asked_again(kind: str) -> None:
    """R01, F7: 429, 5xx, timeouts, stalls and connections that break are repeated, each attempt charged."""
    settings = Settings(model_seconds=0.4)
    got, requests = await over_the_wire(TRANSIENT[kind], "It is 42.", settings=settings)
    assert got.error is None
    assert got.message is not None
    assert got.message.text == "It is 42."
    assert got.spent["model_calls"] == requests == 2


LASTING = {
    "auth": (fault(status=401), "auth", "Set a valid key"),
    "forbidden": (fault(status=403), "auth", "credentials"),
    "bad request": (fault(status=400), "bad_request", "rejected the request"),
    "unknown model": (
        fault(status=404, body={"error": {"message": "The model `x` does not exist"}}),
        "model_not_found",
        "Set DONEWHEN_MODEL",
    ),
    "wrong path": (fault(status=404), "wrong_path", "/v1/chat/completions"),
    "no credit": (
        fault(status=429, body={"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}),
        "quota",
        "no credit",
    ),
}


@pytest.mark.parametrize("kind", LASTING)
async def test_what_stays_is_never_asked_again(kind: str) -> None:
    """R01, F7: auth, bad request, unknown model, context too long are not repeated; the message says what to do."""
    given, code, words = LASTING[kind]
    got, requests = await over_the_wire(given)
    assert requests == 1
    assert got.message is None
    assert got.error is not None
    assert (got.error.code, got.error.retryable) == (code, False)
    assert words in str(got.error)


async def test_retries_are_counted_and_end() -> None:
    """R01: after `model_retries` repetitions the error is the answer; a limit of model calls ends them sooner."""
    busy = [fault(status=503, headers=NOW)] * 5
    got, requests = await over_the_wire(*busy)
    assert (requests, got.spent["model_calls"]) == (5, 5)
    assert got.error is not None
    assert got.error.code == "overloaded"
    got, requests = await over_the_wire(*busy[:2], allowance={"model_calls": 2})
    assert (requests, got.spent["model_calls"]) == (2, 2)
    got, requests = await over_the_wire(busy[0], settings=Settings(model_retries=0))
    assert requests == 1


async def test_retry_after_is_obeyed() -> None:
    """R01: as long as the provider asks for is waited, not less; what is more than two minutes is passed on at once."""
    began = monotonic()
    got, _ = await over_the_wire(fault(status=429, headers={"Retry-After": "0.5"}), "Now.")
    assert got.message is not None
    assert 0.5 <= monotonic() - began < 20
    assert got.spent["active_seconds"] >= 0.5
    got, requests = await over_the_wire(fault(status=429, headers={"Retry-After": "3600"}))
    assert (requests, monotonic() - began < 20) == (1, True)
    assert got.error is not None
    assert "It asks to wait 3600 seconds." in str(got.error)


async def test_an_outage_is_waited_out() -> None:
    """R01: with `outage_seconds`, a model that is away longer than all retries last is asked until it is back; those
    attempts cost no call and no second of work."""
    away, waits = [fault(status=503)] * 9, Settings(model_retries=2, outage_seconds=60)
    got, requests = await over_the_wire(*away, "I am back.", settings=waits, allowance={"model_calls": 5})
    assert got.message is not None
    assert (got.message.text, requests, got.spent["model_calls"]) == ("I am back.", 10, 3)


async def test_an_outage_may_be_too_long() -> None:
    """R01: after `outage_seconds` the error is the answer, as with a provider that asks to wait longer than they last;
    what no retry mends is not waited for."""
    away, tries = fault(status=503), count()

    def never_there(*_: Any) -> Exception:
        next(tries)
        return ConnectionRefusedError("nobody listens")

    got = await asked(ScriptedModel(never_there), settings=Settings(model_retries=0, outage_seconds=0.3))
    assert got.error is not None
    assert (got.error.code, next(tries) > 1) == ("connection", True)
    waits = Settings(model_retries=0, outage_seconds=600)
    for lasting in (fault(status=429, headers={"Retry-After": "3600"}), fault(status=401)):
        got, requests = await over_the_wire(away, lasting, settings=waits)
        assert got.error is not None
        assert requests == 2


async def after_the_first(*script: Any, seconds: float = 600, first_wait: float = 0, **more: Any) -> tuple[Any, int]:
    """The reply of a model that is away, then does this, and how often it was asked, in an outage of these seconds."""
    waits = Settings(model_retries=0, outage_seconds=seconds, **more)
    with WireServer([fault(status=503, headers=NOW), *script]) as server:
        deps = Deps(lambda *_: wired(server), prices=Prices().cost, adapter=Adapter(first_wait=first_wait))
        return await ask(deps, waits, ModelRequest("triage", PROMPT)), len(server.requests)


async def test_a_model_that_is_away_is_asked_once_a_minute() -> None:
    """R01: also if its provider asks for a shorter pause; one that asks for more than is left is not waited for."""
    began = monotonic()
    got, requests = await after_the_first(fault(status=503, headers=NOW), "I am back.", first_wait=0.002)
    assert (got.message.text, requests) == ("I am back.", 3)
    assert monotonic() - began >= 0.48  # two pauses of 120 times the first wait
    got, requests = await after_the_first(fault(status=503, headers={"Retry-After": "100"}), seconds=50)
    assert (requests, got.error.code) == (2, "overloaded")
    assert "It asks to wait 100 seconds." in str(got.error)


@pytest.mark.parametrize("waits", [{"model_retries": 2}, {"model_retries": 0, "outage_seconds": 600}])
async def test_no_wait_ends_after_the_deadline(waits: dict[str, Any]) -> None:
    """R01, X08: the error is the answer at once, in the retries as in an outage."""
    busy, began = fault(status=503, headers={"Retry-After": "100"}), monotonic()
    settings = Settings(deadline=(datetime.now(UTC) + timedelta(seconds=60)).isoformat(), **waits)
    got, requests = await over_the_wire(busy, settings=settings)
    assert (requests, got.message, monotonic() - began < 50) == (1, None, True)
    assert got.error is not None
    assert got.error.code == "overloaded"


async def test_attempts_in_an_outage_are_no_work() -> None:
    """R01: neither the waits nor the time of attempts that hang; what a broken reply wrote is charged."""
    hang = fault(hang=3)
    got, requests = await after_the_first(hang, hang, "I am back.", model_seconds=0.4)
    assert (got.message.text, requests, got.spent["model_calls"]) == ("I am back.", 4, 1)
    assert got.spent["active_seconds"] < 0.4
    got, requests = await after_the_first(*[hang] * 2, seconds=0.5, model_seconds=0.4)
    assert (got.error.code, requests, got.spent["active_seconds"] < 0.4) == ("timeout", 3, True)
    broken = fault(reset_after=2, reply="This is only half")
    got, _ = await after_the_first(broken, "I am back.")
    assert got.spent["model_calls"] == 2
    assert got.spent["output_tokens"] > 3


def away(*_: Any) -> Exception:
    return ConnectionRefusedError("nobody listens")


IN_OUTAGE = {"model_retries": 0, "outage_seconds": 3600, **FREE}


async def test_people_read_that_a_model_is_away() -> None:
    """R01, L03: once, in the run's language, with the time that is waited at most."""
    agent = Agent(ScriptedModel(roles={"triage": [away]}), storage="memory:", settings={**IN_OUTAGE, "language": "de"})
    notes = list[str]()
    async for event in agent.stream("Wie viel ist 6 mal 7?", thread_id="t"):
        if event["type"] == "note":
            notes.append(event["text"])
            agent.drain()
    assert len(notes) == 1
    assert "bis zu 60 min lang" in notes[0]


async def test_a_drain_ends_the_wait(tmp_path: Path) -> None:
    """R01, R02: the worker gives the run back at once, nothing fails, and the next one goes on."""
    asked_it, began, storage = asyncio.Event(), monotonic(), f"sqlite:///{tmp_path}/runs.db"

    def away_now(*_: Any) -> Exception:
        asked_it.set()
        return away()

    async with Agent(ScriptedModel(roles={"triage": [away_now]}), storage=storage, settings=IN_OUTAGE) as agent:
        thread = await agent.submit("How much is 6 times 7?")
        async with agent.worker():
            await asked_it.wait()
        info = await agent.info(thread)
        assert (info.status, info.problem, monotonic() - began < 20) == ("queued", "", True)
    async with Agent(ScriptedModel(roles={"triage": [answer("42")]}), storage=storage) as agent:
        assert (await agent.run_submitted(thread)).answer == "42"


async def test_a_step_beside_one_that_waits_ends_its_call() -> None:
    """R01, R02: drained, it writes once; the run goes on with both steps."""
    is_away, sent = asyncio.Event(), list[str]()

    async def send(text: str) -> str:
        """Send."""
        await is_away.wait()
        sent.append(text)
        return "sent"

    plan = [{"id": id, "content": id, "tools": ["send"], "depends_on": []} for id in ("s1", "s2")]
    work = {
        "s1": [away, call("send", text="ho"), finish_step("sent", "s1.1")],
        "s2": [call("send", text="hi"), finish_step("sent", "s2.1")],
    }
    roles: dict[str, Any] = {"triage": [submit_plan(plan)], "execute": work, "deliver": ["Done."]}
    agent = Agent(
        ScriptedModel(roles=roles, strict=False),
        [send],
        storage="memory:",
        settings={**IN_OUTAGE, "approvals": "never"},
    )
    async for event in agent.stream("Send hi", thread_id="t"):
        if event["type"] == "note":
            agent.drain()
            is_away.set()
    run = await agent.get("t")
    assert (run.status, sent) == ("running", ["hi"])
    run = await agent.resume("t")
    assert (run.status, sent) == ("completed", ["hi", "ho"])


async def test_a_drain_of_an_outer_graph_ends_the_wait() -> None:
    """R01, R02: and the outer graph goes on where it was."""
    control = RunControl()

    def away_now(*_: Any) -> Exception:
        control.request_drain("leaving")
        return away()

    agent = Agent(ScriptedModel(roles={"triage": [away_now, answer("42")]}), settings=IN_OUTAGE)
    outer = StateGraph(MessagesState)
    outer.add_node("agent", agent.graph)
    outer.add_edge(START, "agent")
    graph, place = outer.compile(InMemorySaver()), {"configurable": {"thread_id": "t"}}
    with pytest.raises(GraphDrained, match="leaving"):
        await graph.ainvoke({"messages": PROMPT}, place, control=control)
    assert (await graph.ainvoke(None, place))["messages"][-1].text == "42"


class Silent(ScriptedModel):
    """A model that does not say what it used."""

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        async for chunk in super()._astream(*args, **kwargs):
            chunk.message.usage_metadata = None
            yield chunk


async def test_tokens_nobody_reported_are_estimated() -> None:
    """R05: without a report tokens are estimated from the text, tools included, and marked as estimated; a Chinese
    character counts as a token."""
    tools = control_tools(TRIAGE)
    got = await asked(Silent(["是" * 100]), tools=tools)
    assert got.spent["estimated_calls"] == 1
    assert got.spent["output_tokens"] == 100
    assert got.spent["input_tokens"] == pytest.approx(len(json.dumps(tools)) / 4, rel=0.1)


async def test_what_was_written_before_it_broke_off_is_charged() -> None:
    """R05: an answer that breaks off was paid for as far as it came; it is estimated."""
    got, requests = await over_the_wire(
        fault(reset_after=6, reply="word " * 100), reply("42", usage={"input_tokens": 7})
    )
    assert requests == 2
    assert got.spent["estimated_calls"] == 1
    assert got.spent["output_tokens"] > 0
    assert got.spent["input_tokens"] > 7


def _chunks(*arguments: str) -> list[AIMessageChunk]:
    first = tool_call_chunk(name="write", args="", id="c1", index=0)
    rest = [AIMessageChunk("", tool_call_chunks=[tool_call_chunk(args=part, index=0)]) for part in arguments]
    return [AIMessageChunk("", tool_call_chunks=[first]), *rest]


def test_half_a_call_is_not_completed() -> None:
    """X06: arguments that end early stay text; LangChain would have closed their brackets and called the tool."""
    whole = join_chunks(_chunks('{"path": ', '"a", "content": "b"}'))
    assert whole.tool_calls[0]["args"] == {"path": "a", "content": "b"}
    half = join_chunks(_chunks('{"path": ', '"a", "content": "b'))
    assert half.tool_calls == []
    assert half.invalid_tool_calls[0]["args"] == '{"path": "a", "content": "b'


def test_calls_without_ids_get_them() -> None:
    """X14: a server that gives no ids, or one for all, still has its calls answered one by one."""
    ids = (None, "x", "x", "")
    calls = [{"name": "a", "args": {"n": n}, "id": id, "type": "tool_call"} for n, id in enumerate(ids)]
    made = join_chunks([AIMessage("", tool_calls=calls)]).tool_calls  # type: ignore[arg-type]
    assert len({c["id"] for c in made}) == 4
    assert all(c["id"] for c in made)
    assert made[1]["id"] == "x"


PAY = {"to": "ann", "amount": 10}


def sent(how: str, *calls: tuple[str | None, Any]) -> list[Any]:
    """Calls of `pay` with these ids and arguments, as one reply: streamed at an index each, whole, or as blocks."""
    if how == "streamed":
        raw = [(id, args if isinstance(args, str) else json.dumps(args)) for id, args in calls]
        parts = [tool_call_chunk(name="pay", args=args, id=id, index=n) for n, (id, args) in enumerate(raw)]
        return [AIMessageChunk("", tool_call_chunks=[part]) for part in parts]
    made = [{"name": "pay", "args": args, "id": id, "type": "tool_call"} for id, args in calls]
    blocks = [
        {"type": "tool_use", "id": id, "name": "pay", "input": args, "index": n} for n, (id, args) in enumerate(calls)
    ]
    text = [{"type": "text", "text": "Paying."}]
    return [AIMessage([*text, *text, *blocks] if how == "blocks" else "", tool_calls=made)]  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["streamed", "whole", "blocks"])
@pytest.mark.parametrize(
    ("calls", "made"),
    [
        ((("a", PAY), ("a", PAY)), 1),
        ((("a", PAY), ("b", {"to": "bob"}), ("a", dict(reversed(PAY.items()))), ("a", PAY)), 2),
        ((("a", PAY), ("b", PAY)), 2),
        ((("a", PAY), ("a", {**PAY, "amount": 11})), 2),
        ((("a", {"to": 1}), ("a", {"to": True})), 2),
        (((None, PAY), (None, PAY)), 2),
    ],
    ids=["twice", "thrice, beside another", "other ids", "other arguments", "another type", "no ids"],
)  # fmt: skip
def test_a_call_that_is_sent_twice_is_one_call(how: str, calls: Any, made: int) -> None:
    """Q06, X30: one id with the same arguments is one call; all else are calls of their own, each with its own id."""
    message = join_chunks(sent(how, *calls))
    assert len({call["id"] for call in message.tool_calls}) == len(message.tool_calls) == made
    if how == "blocks" and made < len(calls):
        types = [block["type"] for block in message.content if isinstance(block, dict)]
        assert types == ["text", "text", *["tool_use"] * made]


def test_half_a_call_that_is_sent_twice_is_one() -> None:
    """Q06, X30: so for calls that cannot be read."""
    message = join_chunks(sent("streamed", ("a", '{"to": '), ("a", '{"to": '), ("a", '{"to": "b')))
    assert [call["args"] for call in message.invalid_tool_calls] == ['{"to": ', '{"to": "b']


async def test_a_model_that_runs_on_is_stopped() -> None:
    """F8: an endless reply is cut and counts as cut off, so nothing in it is acted on."""
    got = await asked(ScriptedModel([reply("word " * 1_000, [answer("42")])]), longest=1_000)
    assert got.message is not None
    assert got.message.response_metadata["finish_reason"] == "length"
    assert 1_000 <= len(got.message.text) < 1_100


def _reached(server: WireServer) -> None:
    while not server.requests:
        sleep(0.01)


async def test_cancelling_ends_the_call() -> None:
    """R01: a cancelled question neither hangs nor is repeated."""
    with WireServer([fault(hang=60)]) as server:
        asking = asyncio.create_task(asked(wired(server)))
        await asyncio.to_thread(_reached, server)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert len(server.requests) == 1


class Limiter(BaseRateLimiter):
    """Counts who waits for it."""

    def __init__(self) -> None:
        self.waits = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        raise NotImplementedError

    async def aacquire(self, *, blocking: bool = True) -> bool:
        self.waits += 1
        return True


class Whole(ScriptedModel):
    """Counts the replies that it gave in one piece."""

    pieces: int = 0

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        self.pieces += 1
        return await super()._agenerate(*args, **kwargs)


@pytest.mark.parametrize("disabled", [False, True, "tool_calling"], ids=str)
async def test_a_model_is_asked_as_it_can_and_may_be(disabled: Any) -> None:
    """R01: as LangChain does for every model: in one piece where its owner said so, and at its rate limiter's pace."""
    limiter, model = Limiter(), Whole(["Here."])
    model.rate_limiter, model.disable_streaming = limiter, disabled
    got = await asked(model, tools=control_tools(TRIAGE))
    assert got.message is not None
    assert (got.message.text, limiter.waits, model.pieces) == ("Here.", 1, int(bool(disabled)))
