"""A write that began and gave no normal result is unknown, unless its error says for certain that nothing happened.

Both sides, through real sockets where there is one: lost answers ask before the same is done again; honest failures
are plain failures, and nobody is asked about them.
"""

import asyncio
import gc
import json
import smtplib
import socket
import sqlite3
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from typing import Annotated, Any

import grpc
import httpx
import pytest
import requests
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException
from mcp.shared.exceptions import MCPError
from mcp.types import CONNECTION_CLOSED
from pydantic import BaseModel

from donewhen import Agent
from donewhen.graph.events import moment
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, Flow, one_step, play, steps
from tests.kit.runs import last_seen, step

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The clients leave sockets to the garbage collector when they raise."""
PAY = call("pay", order="A1")


@pytest.fixture(autouse=True, scope="module")
def _sockets_left() -> Iterator[None]:
    """Collect them here: in a test of another file they would be an error."""
    yield
    gc.collect()


async def paid_by(tool: StructuredTool) -> Flow:
    """A model that calls a tool until it works. Who is asked says “it happened”."""

    def decide(messages: Any, _: Any) -> Any:
        seen = [message.text for message in messages if message.type == "tool"]
        return finish_step("paid", last_seen(messages)) if seen and "] pay ok" in seen[-1] else PAY

    return await play(one_step(decide, tools=["pay"]), [tool], answers=["it happened"], settings=FREE)


async def tried(body: Callable[[int], Any], **metadata: Any) -> tuple[Flow, int]:
    """A tool that pays; `body` gets the number of the call, and what it returns is the result, if anything."""
    calls: list[int] = []

    def pay(order: str) -> Any:
        """Pay an order."""
        calls.append(len(calls) + 1)
        return body(calls[-1]) or "paid"

    tool = StructuredTool.from_function(pay, name="pay", metadata={"effect": "write", **metadata})
    return await paid_by(tool), len(calls)


def first(error: Callable[[], Any]) -> Callable[[int], Any]:
    """Raises in the first call: after the effect, as the answer is lost, or before it, as it is refused."""

    def body(number: int) -> None:
        if number == 1:
            error()

    return body


# A server that does as it is told -------------------------------------------------------------------------------------


@contextmanager
def server(reply: bytes | None) -> Iterator[str]:
    """An HTTP server whose work is done when it has read the request; it answers so, or hangs up without a word."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.recv(65_536)
                if reply:
                    connection.sendall(reply)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/charge"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def answering(status: str, text: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n{text}".encode()


def with_httpx(url: str) -> Any:
    return httpx.post(url, timeout=2).raise_for_status().json()


def with_requests(url: str) -> Any:
    reply = requests.post(url, timeout=2)
    reply.raise_for_status()
    return reply.json()


def with_urllib(url: str) -> Any:
    with urllib.request.urlopen(url, data=b"{}", timeout=2) as reply:
        return json.load(reply)


CLIENTS = {"httpx": with_httpx, "requests": with_requests, "urllib": with_urllib}
LOST = {
    "it hangs up": None,
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "no HTTP": b"what?\r\n\r\n",
    "500": answering("500 Internal Server Error"),
    "503": answering("503 Service Unavailable"),
    "408": answering("408 Request Timeout"),
    "no JSON": answering("200 OK", "<html>ok</html>"),
}
REFUSED = ["400 Bad Request", "402 Payment Required", "429 Too Many Requests"]


@pytest.mark.parametrize(("reply", "client"), list(zip(LOST, cycle(CLIENTS), strict=False)))
async def test_an_answer_that_is_lost_on_the_way(reply: str, client: str) -> None:
    """N13, X24: the server did its work; the client that read its reply, or none, raised whatever it raises."""
    with server(LOST[reply]) as url:
        flow, calls = await tried(first(lambda: CLIENTS[client](url)))
    assert (flow.status, [pause["kind"] for pause in flow.pauses], calls) == ("completed", ["effect"], 1)


@pytest.mark.parametrize(("status", "client"), list(zip(REFUSED, cycle(CLIENTS), strict=False)))
async def test_an_answer_that_refuses(status: str, client: str) -> None:
    """N13, X24, honest: a 4xx is an answer; nobody is asked whether it happened."""
    with server(answering(status)) as url:
        flow, calls = await tried(first(lambda: CLIENTS[client](url)))
    assert (flow.status, flow.pauses, calls) == ("completed", [], 2)


WRAPS = ["", "from", "exception of the tool", "exception of the tool instead"]


@pytest.mark.parametrize(("wrap", "client"), list(zip(WRAPS, cycle(CLIENTS), strict=False)))
async def test_a_connection_that_was_never_made(client: str, wrap: str) -> None:
    """N13, X07, honest: refused by the port, also where the tool has its own name for it."""
    with server(None) as gone:
        pass

    def pay() -> None:
        try:
            CLIENTS[client](gone)
        except Exception as error:
            if wrap == "from":
                raise RuntimeError("the bank is closed") from error
            if wrap.endswith("instead"):
                raise ToolException("the bank is closed")  # noqa: B904
            if wrap:
                raise ToolException("the bank is closed") from error
            raise

    flow, calls = await tried(first(pay))
    assert (flow.status, flow.pauses, calls) == ("completed", [], 2)


# Errors of any library ------------------------------------------------------------------------------------------------


class Vendor(Exception):
    """An error of somebody's own, of which nobody knows anything."""


class Reply(BaseModel):
    id: int


def raising(error: BaseException) -> Callable[[], None]:
    def raises() -> None:
        raise error

    return raises


def chained(outer: Exception, inner: Exception, *, caught: bool = False) -> Callable[[], None]:
    """One error raised from another, or while another was handled elsewhere."""

    def raises() -> None:
        try:
            raise inner
        except Exception as error:
            if caught:
                raising(outer)()
            raise outer from error

    return raises


class Call(grpc.RpcError):
    """As grpc raises it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


Call.__module__ = "grpc._channel"
UNKNOWN: dict[str, Callable[[], Any]] = {
    "vendor": raising(Vendor("declined?")),
    "plain": raising(Exception("boom")),
    "runtime": raising(RuntimeError("boom")),
    "os": raising(OSError(5, "Input/output error")),
    "reset": raising(ConnectionResetError()),
    "pipe": raising(BrokenPipeError()),
    "timeout": raising(TimeoutError()),
    "ssl": raising(ssl.SSLError("bad record mac")),
    "eof": raising(EOFError()),
    "smtp": raising(smtplib.SMTPServerDisconnected("Connection unexpectedly closed")),
    "grpc": raising(Call(grpc.StatusCode.DEADLINE_EXCEEDED)),
    "mcp closed": raising(MCPError(code=CONNECTION_CLOSED, message="Connection closed")),
    "mcp internal": raising(MCPError(code=-32603, message="oops")),
    "mcp unreadable": raising(MCPError(code=-32700, message="Failed to parse JSON response")),
    "mcp 202": raising(MCPError(code=-32600, message="server answered a request with 202 Accepted")),
    "sqlite": raising(sqlite3.OperationalError("disk I/O error")),
    "exit": raising(SystemExit(1)),
    "cancelled": raising(asyncio.CancelledError()),
    "json": lambda: json.loads("<html>"),
    "model": lambda: Reply.model_validate_json("{}"),
    "asserted": lambda: (_ for _ in ()).throw(AssertionError("status 500")),
    "value": raising(ValueError("not an amount")),
    "not yet": raising(NotImplementedError("refunds")),
    "file": lambda: open("/nowhere/at/all"),  # noqa: SIM115
    "permission": raising(PermissionError(13, "Permission denied")),
    "value error of a lookup": chained(ValueError("no such customer"), KeyError("ann"), caught=True),
    "renamed": chained(RuntimeError("closed"), httpx.ConnectError("refused"), caught=True),
    "tool error from": chained(ToolException("no answer"), httpx.ReadTimeout("")),
    "tool error instead": chained(ToolException("no answer"), json.JSONDecodeError("no JSON", "<", 0), caught=True),
    "value error from": chained(ValueError("no answer"), httpx.ReadError("")),
    "tried again": chained(httpx.ConnectError("refused"), httpx.ReadTimeout(""), caught=True),
    "value error later": chained(ValueError("no"), Vendor("?"), caught=True),
    "group": raising(ExceptionGroup("both", [ValueError("no"), Vendor("?")])),
}
CERTAIN: dict[str, Callable[[], Any]] = {
    "tool": raising(ToolException("no such customer")),
    "refused": raising(ConnectionRefusedError()),
    "no such host": raising(socket.gaierror(-2, "Name or service not known")),
    "certificate": raising(ssl.SSLCertVerificationError("self-signed certificate")),
    "pool": raising(httpx.PoolTimeout("")),
    "smtp": raising(smtplib.SMTPRecipientsRefused({"x": (550, b"no such user")})),
    "smtp data": raising(smtplib.SMTPDataError(554, b"rejected")),
    "grpc": raising(Call(grpc.StatusCode.NOT_FOUND)),
    "mcp": raising(MCPError(code=-32602, message="Unknown tool")),
    "sqlite": raising(sqlite3.IntegrityError("UNIQUE constraint failed")),
    "tool error from": chained(ToolException("no such customer"), KeyError("ann")),
    "tool error instead": chained(ToolException("no such customer"), KeyError("ann"), caught=True),
    "tool error for a file": chained(ToolException("no such file"), FileNotFoundError(2, "gone")),
    "group": raising(ExceptionGroup("both", [ToolException("no"), ConnectionRefusedError()])),
}


@pytest.mark.parametrize("kind", UNKNOWN)
async def test_what_says_nothing_for_certain(kind: str) -> None:
    """N13, X24: whatever it is called; the money may be gone, so a person is asked before it is paid again."""
    flow, calls = await tried(first(UNKNOWN[kind]))
    assert (flow.status, [pause["kind"] for pause in flow.pauses], calls) == ("completed", ["effect"], 1)
    assert "It is unknown whether this took effect" in flow.journal[0]["text"]
    (row,) = (flow.run.receipt or {})["effects"]
    assert (row["ok"], row["result"], row["by"], row["settled"], "unknown" in row) == (
        True,
        "done",
        "user",
        ["s1.2"],
        False,
    )


LEDGER = {"ann": 0}


def mistaken(kind: str) -> Callable[[int], Any]:
    """A tool with a mistake in its code in the first call, after an effect that no call made, or before any."""

    def added(number: int) -> Any:
        LEDGER["ann"] += 1
        return {}["rate"] if number == 1 else "paid"

    def set_on_an_object(number: int) -> Any:
        mistaken.paid = number  # type: ignore[attr-defined]
        return int("EUR") if number == 1 else "paid"

    def deleted(number: int) -> Any:
        if number == 1:
            del LEDGER["ann"]
            raise ValueError("no such currency")
        return "paid"

    def only_looked_up(number: int) -> Any:
        return {"B2": "paid"}["A1"] if number == 1 else "paid"

    tools = {"added": added, "set": set_on_an_object, "deleted": deleted, "looked up": only_looked_up}
    return tools[kind]


@pytest.mark.parametrize("kind", ["added", "set", "deleted", "looked up"])
async def test_a_mistake_of_the_tool_proves_nothing(kind: str) -> None:
    """Q04, X24: code that failed may have acted before, in ways that no reading of it finds; so a person is asked."""
    LEDGER["ann"] = 0
    flow, calls = await tried(mistaken(kind))
    assert (flow.status, [pause["kind"] for pause in flow.pauses], calls) == ("completed", ["effect"], 1)


async def test_two_mistakes_at_once_are_asked_about_one_by_one() -> None:
    """Q04, X24: of two steps side by side; what a person says of one call says nothing of the other."""
    paid, tried_before = list[str](), set[str]()

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if order not in tried_before:
            tried_before.add(order)
            raise KeyError("receipt")
        return "paid"

    def work(id: str) -> Callable[[Any, Any], Any]:
        def decide(messages: Any, _: Any) -> Any:
            seen = [message.text for message in messages if message.type == "tool"]
            return (
                finish_step("paid", last_seen(messages)) if seen and "] pay ok" in seen[-1] else call("pay", order=id)
            )

        return decide

    def say(pause: Any) -> str:
        return "it happened" if pause["arguments"]["order"] == "s1" else "it did not"

    model = steps(
        [step(id, tools=["pay"], depends_on=[]) for id in ("s1", "s2")], {id: work(id) for id in ("s1", "s2")}
    )
    flow = await play(model, [StructuredTool.from_function(pay)], answers=[say] * 2, settings=FREE)
    assert (flow.status, [pause["kind"] for pause in flow.pauses]) == ("completed", ["effect", "effect"])
    assert sorted(paid) == ["s1", "s2", "s2"]


@pytest.mark.parametrize("kind", CERTAIN)
async def test_what_certainly_did_not_happen(kind: str) -> None:
    """N13, X07, honest: the tool's own error or a refusal: it may be tried again at once."""
    flow, calls = await tried(first(CERTAIN[kind]))
    assert (flow.status, flow.pauses, calls) == ("completed", [], 2)
    assert "unknown" not in flow.journal[0]["text"]


@pytest.mark.parametrize("declared", [(Vendor,), Vendor, ["Vendor"], f"{__name__}.Vendor"], ids=str)
async def test_what_a_tool_declares_to_be_certain(declared: Any) -> None:
    """N13, X24: `certain_errors` names classes, or their names; what it does not name is as unknown as ever."""
    flow, calls = await tried(first(raising(Vendor("declined"))), certain_errors=declared)
    assert (flow.status, flow.pauses, calls) == ("completed", [], 2)
    flow, calls = await tried(first(raising(RuntimeError("boom"))), certain_errors=declared)
    assert (flow.status, len(flow.pauses), calls) == ("completed", 1, 1)


async def test_a_tool_may_say_that_an_error_before_does_not_matter() -> None:
    """N13: `from None` is how an author says so."""

    def pay() -> None:
        try:
            raise httpx.ReadTimeout("")
        except httpx.ReadTimeout:
            raise ToolException("the quote was not read; nothing was paid") from None

    flow, calls = await tried(first(pay))
    assert (flow.status, flow.pauses, calls) == ("completed", [], 2)


async def test_a_failure_by_its_own_status_and_a_failed_reading_are_certain() -> None:
    """N19, X07, honest: it may be tried again at once; nobody is asked, and nothing is said of effects."""
    made: list[str] = []

    def pay(order: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Pay an order."""
        made.append("pay")
        return ToolMessage("no funds", tool_call_id=tool_call_id, status="error") if len(made) == 1 else "paid"

    def look() -> str:
        """Look."""
        made.append("look")
        if len(made) == 3:
            raise Vendor("later")
        return "seen"

    model = one_step([PAY, PAY, call("look"), call("look"), finish_step("paid", "s1.2")], tools=["pay"])
    flow = await play(model, [pay, look], effects={"pay": "write", "look": "read"}, settings=FREE)
    assert (flow.status, flow.pauses, made) == ("completed", [], ["pay", "pay", "look", "look"])
    assert flow.journal[2]["text"] == "Vendor: later"


async def test_a_result_that_langchain_cannot_take_was_a_result() -> None:
    """N13: the effect had happened when what came of it did not fit what the tool had promised."""
    paid: list[str] = []

    def pay(order: str) -> Any:
        """Pay an order."""
        paid.append(order)
        return "no artifact" if len(paid) == 1 else ("paid", None)

    promised: Any = {"metadata": {"effect": "write"}, "response_format": "content_and_artifact"}
    flow = await paid_by(StructuredTool.from_function(pay, name="pay", **promised))
    assert (flow.status, len(flow.pauses), paid) == ("completed", 1, ["A1"])


@pytest.mark.parametrize("handled", [True, "failed", lambda error: "failed"], ids=["its text", "a text", "a function"])
@pytest.mark.parametrize("known", [True, False])
async def test_an_error_that_langchain_makes_a_result_of(handled: Any, known: bool) -> None:
    """N13, N14: `handle_tool_error` makes a message of the tool's error, which keeps where it came from."""
    paid: list[str] = []

    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if len(paid) > 1:
            return "paid"
        try:
            raise KeyError("ann") if known else httpx.ReadTimeout("")
        except Exception as error:
            raise ToolException("it did not work") from error

    tool = StructuredTool.from_function(
        coroutine=pay, name="pay", metadata={"effect": "write"}, handle_tool_error=handled
    )
    flow = await paid_by(tool)
    assert (flow.status, len(flow.pauses), len(paid)) == (("completed", 0, 2) if known else ("completed", 1, 1))


async def test_a_third_call_after_it_happened_asks_once_more() -> None:
    """N79, X24: a person said that it happened, and the model wants the very same again."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        if len(paid) == 1:
            raise Vendor("?")
        return "paid"

    model = one_step([PAY, PAY, PAY, PAY, finish_step("paid", "s1.2")], tools=["pay"])
    flow = await play(model, [pay], effects={"pay": "write"}, settings=FREE, answers=["it happened"] * 3)
    assert (flow.status, [pause["kind"] for pause in flow.pauses], len(paid)) == ("completed", ["effect"] * 3, 1)
    assert flow.pauses[1]["question"].startswith('You said that the call pay({"order":"A1"}) of step s1 happened')
    flow = await play(
        one_step([PAY, PAY, PAY, PAY, finish_step("paid", "s1.3")], tools=["pay"]),
        [pay],
        effects={"pay": "write"},
        settings=FREE,
        answers=["it happened", "it did not"],
    )
    assert (flow.status, flow.pauses) == ("completed", [])  # it works by now: equal writes that go well ask nobody


async def test_a_write_that_happened_stays_so_when_it_is_made_once_more() -> None:
    """N79, X24: “once more” takes back nothing that a person said before, whatever becomes of the next call."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        raise Vendor("?")

    other = call("pay", order="B2")
    replies = [*[PAY] * 3, *[other] * 3, give_up("the bank does not answer")]
    flow = await play(
        one_step(replies, tools=["pay"]),
        [pay],
        effects={"pay": "write"},
        settings={**FREE, "on_failure": "deliver", "verification": "grounded"},
        answers=["it happened", "once more", "it happened", "do it again"],
    )
    assert (paid, [pause["options"][0] for pause in flow.pauses]) == (
        ["A1", "A1", "B2", "B2"],
        ["it happened", "not once more"] * 2,
    )
    assert flow.pauses[1]["question"].endswith("Shall it be done once more?")
    receipt = flow.run.receipt or {}
    assert [(row["result"], row.get("by")) for row in receipt["effects"]] == [("done", "user"), ("unknown", None)] * 2
    assert [row.get("again") for row in receipt["approvals"] if row["kind"] == "effect"] == [None, True] * 2


async def test_a_write_of_an_earlier_request_that_is_not_made_once_more_is_told_as_it_was() -> None:
    """N79, F08: the receipt has the time of the call that was made; no person vouches for what is recorded."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    plan = submit_plan([{"content": "Pay A1", "done_when": "It is paid", "tools": ["pay"]}])
    work = [PAY, give_up("enough for today"), PAY, finish_step("paid", ("s1.1", "paid"))]
    model = ScriptedModel(roles={"triage": [plan] * 2, "execute": work})
    settings = {**FREE, "approvals": "plan", "on_failure": "deliver", "verification": "grounded"}
    async with Agent(model, [pay], storage="memory:", effects={"pay": "write"}, settings=settings) as agent:
        await agent.start("Pay A1", thread_id="t")
        between = moment()
        run = await agent.start("Pay A1", thread_id="t")
        while run.status == "waiting":
            run = await agent.resume(run, "not once more")
    rows = [(row["result"], row["at"] <= between, row.get("by")) for row in (run.receipt or {})["effects"]]
    assert (paid, rows) == (["A1"], [("done", True, None)])


async def test_an_unknown_write_stands_in_the_receipt() -> None:
    """N21, X24: given up on after an answer was lost: whoever reads the run reads that nobody knows."""

    def pay(order: str) -> str:
        """Pay an order."""
        raise Vendor("?")

    model = one_step([PAY, give_up("the bank does not answer")], tools=["pay"])
    flow = await play(model, [pay], effects={"pay": "write"}, settings={**FREE, "on_failure": "deliver"})
    assert [row.get("unknown") for row in (flow.run.receipt or {})["effects"]] == [True]
    assert 'It is not known whether this took effect: pay(order="A1")' in flow.run.answer
