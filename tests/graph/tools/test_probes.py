"""Probes: what a tool can tell of a call that was cut off. What it does not clearly say, a person is asked."""

import asyncio
import subprocess
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
import requests
from langchain_core.tools import StructuredTool
from mcp.shared.exceptions import MCPError

from donewhen import Agent, StorageError
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.graph.tools import effects
from donewhen.graph.tools.certain import Unanswered
from donewhen.graph.tools.effects import ask_probe
from donewhen.state.errors import ToolError
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.runs import Outbox, scripted, sending, step, values


class Undecided:
    """Neither yes nor no, as an array of several values is."""

    def __bool__(self) -> bool:
        raise ValueError("both")


def at_once(found: Any) -> Callable[..., Any]:
    return lambda arguments: found


def later(found: Any) -> Callable[..., Any]:
    async def probe(arguments: Any) -> Any:
        await asyncio.sleep(0)
        return found

    return probe


def raising(error: BaseException) -> Callable[..., Any]:
    def probe(arguments: Any) -> Any:
        raise error

    return probe


async def cut_off(outbox: Outbox, thread: str = "t", model: ScriptedModel | None = None, **metadata: Any) -> Agent:
    """An agent whose run on the thread died after its one effect, before anybody wrote down that it happened."""
    crash = Crash(None, only=["store"])

    async def send(**arguments: Any) -> str:
        outbox.sent.append(arguments)
        if crash.at is None:
            crash.at = len(crash.trace) + 1
        return "sent"

    tool = outbox.tool(**metadata).model_copy(update={"coroutine": send})
    storage = crashing("memory:", crash)
    model = model or sending(tools=["send"])
    agent = Agent(model, [tool], storage=storage, settings={"confirm": "never"})
    with pytest.raises(StorageError):
        await agent.start("Mail ann", thread_id=thread)
    assert len(outbox.sent) == 1
    return agent


@pytest.mark.parametrize("form", [at_once, later])
@pytest.mark.parametrize(("found", "text"), [(True, "took effect"), ("mail 7", "mail 7"), ({"id": 7}, '"id": 7')])
async def test_a_probe_that_knows_the_call_happened(form: Any, found: Any, text: str) -> None:
    """R03: what it says is the call's result; nobody is asked, nothing is sent again."""
    outbox = Outbox()
    agent = await cut_off(outbox, probe=form(found))
    run = await agent.resume("t")
    assert (run.status, len(outbox.sent)) == ("completed", 1)
    journal = (await values(agent, "t"))["journal"]
    assert text in journal[0]["text"]


@pytest.mark.parametrize("form", [at_once, later])
async def test_a_probe_that_knows_it_did_not(form: Any) -> None:
    """R03: the call is made; here it does happen twice, since the probe lied."""
    outbox = Outbox()
    agent = await cut_off(outbox, probe=form(False))
    run = await agent.resume("t")
    assert (run.status, len(outbox.sent)) == ("completed", 2)


@pytest.mark.parametrize(
    "probe",
    [
        *(at_once(found) for found in (None, "", 0, [], {}, b"", "  ", Undecided())),
        later(None),
        *(raising(error) for error in (ValueError("no"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError())),
        lambda: True,
        lambda arguments, more: True,
    ],
)
async def test_a_probe_that_does_not_know(probe: Any) -> None:
    """R03: it raises, takes other arguments, or gives back nothing to go by: a person is asked."""
    outbox = Outbox()
    agent = await cut_off(outbox, probe=probe)
    run = await agent.resume("t")
    assert [pause["kind"] for pause in run.pending] == ["effect"]
    run = await agent.resume("t", {run.pending[0]["id"]: "it happened"})
    assert (run.status, len(outbox.sent)) == ("completed", 1)


@pytest.mark.parametrize(("again", "result"), [("it happened", "done"), ("skip", "unknown"), ("", "unknown")])
async def test_who_skips_a_call_does_not_say_that_it_never_happened(again: str, result: str) -> None:
    """R03, X20, X24: it is one change of unknown outcome; the same call again asks, and what is said then counts."""
    outbox, sends = Outbox(), [call("send", to="ann", text="hello")] * (2 if again else 1)
    plan, end = submit_plan([step("s1", tools=["send"])]), finish_step("left so", ("s1.1", "Skipped"))
    agent = await cut_off(outbox, model=scripted(plan, {"s1": [*sends, end]}))
    run = await agent.resume("t")
    for answer in filter(None, ("skip", again)):
        assert [pause["kind"] for pause in run.pending] == ["effect"]
        run = await agent.resume("t", answer)
    assert (run.status, len(outbox.sent)) == ("completed", 1)
    assert (run.outcome or {})["changed"] is True
    first, *others = (run.receipt or {})["effects"]
    assert (first["id"], first["result"]) == ("s1.1", result)
    assert [row["result"] for row in others] == (["refused"] if again == "skip" else [])
    assert (run.receipt or {})["steps"][0]["spent"]["tool_calls"] == (2 if again == "it happened" else 1)


@pytest.mark.parametrize("thread", ["a.b", "50%", "*", "..", "ä b/c"])
async def test_whatever_a_thread_is_called_its_calls_are_known_again(thread: str) -> None:
    """R03: a dot is nothing that a store takes in a namespace; the intent is found all the same."""
    outbox = Outbox()
    agent = await cut_off(outbox, thread)
    run = await agent.resume(thread)
    assert [pause["kind"] for pause in run.pending] == ["effect"]
    assert len(outbox.sent) == 1


async def test_a_probe_is_told_the_arguments_and_the_key() -> None:
    """R03: the very key with which the service was called, if the probe takes one."""
    told: list[Any] = []

    def probe(arguments: Any, idempotency_key: str) -> bool:
        told.append((arguments, idempotency_key))
        return True

    agent = await cut_off(Outbox(), probe=probe)
    assert (await agent.resume("t")).status == "completed"
    ((arguments, key),) = told
    assert arguments == {"to": "ann", "text": "hello"}
    assert len(key) == 40


@pytest.mark.parametrize("waits", ["in a thread", "in the loop"])
async def test_a_probe_that_hangs_knows_nothing(waits: str) -> None:
    """R03, F2: the run does not hang with it."""
    over = threading.Event()

    async def slow(arguments: Any) -> bool:
        await asyncio.Event().wait()
        return True

    probe = slow if waits == "in the loop" else lambda arguments: over.wait()
    tool = Outbox().tool(probe=probe)
    assert await ask_probe(tool, {}, "key", seconds=0.05) is None
    over.set()


def test_a_probe_is_a_function() -> None:
    """R03: said when the agent is made, not after a crash."""
    with pytest.raises(ToolError, match="must be a function"):
        Agent(sending(), [Outbox().tool(probe="yes")], storage="memory:")


class Slow:
    """A service that carries out what it was sent, but later than anybody waits."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.asked, self.done = error, 0, False

    async def send(self, to: str, text: str) -> str:
        """Send a mail."""
        self.asked += 1
        raise self.error

    def probe(self, arguments: Any) -> bool:
        return self.done

    async def run(self, again: Callable[[], Any]) -> Any:
        """The run in which the model makes the call, does this, and makes it again."""
        sends = [call("send", to="ann", text="hello")] * 2

        def second(*_: Any) -> Any:
            again()
            return sends[1]

        end = finish_step("sent", ("s1.2", "took effect"))
        tool = StructuredTool.from_function(coroutine=self.send, metadata={"effect": "write", "probe": self.probe})
        roles = {"triage": [submit_plan([step("s1", tools=["send"])])], "execute": {"s1": [sends[0], second, end]}}
        model = ScriptedModel(roles=roles, strict=False)
        self.agent = Agent(model, [tool], storage="memory:", settings={"confirm": "never", "on_failure": "deliver"})
        return await self.agent.start("Mail ann", thread_id="t")


def answered(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://mail")
    return httpx.HTTPStatusError(str(status), request=request, response=httpx.Response(status, request=request))


def of_grpc(status: str) -> BaseException:
    """An error as `grpc` raises it, which says its status when it is called."""
    error = type("RpcError", (Exception,), {"__module__": "grpc", "code": lambda self: SimpleNamespace(name=status)})
    return cast(BaseException, error(status))


ENDED = [
    *(answered(status) for status in (500, 502, 503)),
    *(ConnectionResetError("cut"), httpx.ReadError("cut"), ValueError("a bug")),
    *(of_grpc("INTERNAL"), MCPError(-32603, "a bug")),
]
LATE = [
    *(TimeoutError("late"), httpx.ReadTimeout("late"), Unanswered("late"), requests.ReadTimeout("late")),
    *(answered(status) for status in (408, 499, 504, 524, 598)),
    *(of_grpc("DEADLINE_EXCEEDED"), of_grpc("CANCELLED")),
    *(MCPError(-32001, "late"), MCPError(408, "late")),
    subprocess.TimeoutExpired("mail", 5),
]


@pytest.mark.parametrize("error", LATE, ids=repr)
async def test_what_is_not_there_yet_may_still_come(error: BaseException) -> None:
    """R03, X24: where somebody stopped waiting, a probe that finds nothing proves nothing: the outcome is unknown, and
    a person is asked before the call is made again."""
    service = Slow(error)
    run = await service.run(lambda: None)
    assert ([pause["kind"] for pause in run.pending], service.asked) == (["effect"], 1)
    run = await service.agent.resume(run, "skip")
    assert [row["result"] for row in run.receipt["effects"]] == ["unknown", "refused"]


async def test_what_came_meanwhile_is_found_before_the_call_is_made_again() -> None:
    """R03: nobody is asked, and nothing is sent again."""
    service = Slow(TimeoutError("no answer"))
    run = await service.run(lambda: setattr(service, "done", True))
    assert (run.status, run.pending, service.asked) == ("completed", (), 1)


@pytest.mark.parametrize("error", ENDED, ids=str)
async def test_who_has_ended_the_call_is_believed(error: BaseException) -> None:
    """R03: where the service answered or cut the line, or the tool ended by itself, a probe that finds nothing proves
    that nothing happened; the model may try again."""
    service = Slow(error)
    run = await service.run(lambda: None)
    assert (run.pending, service.asked) == ((), 2)
    assert {row["result"] for row in run.receipt["effects"]} == {"failed"}


@pytest.mark.parametrize(
    ("effect", "comes", "asks", "sent"),
    [("write", False, True, 1), ("write", True, False, 1), ("idempotent", False, False, 2)],
)
async def test_a_call_that_a_stop_cut_off_may_still_be_at_work(
    monkeypatch: pytest.MonkeyPatch, effect: str, comes: bool, asks: bool, sent: int
) -> None:
    """R03, X24: who stopped the run stopped waiting. A person is asked before a write is made again, unless its probe
    finds it; a call that may be made twice is made."""
    monkeypatch.setattr(effects, "EFFECT_PATIENCE", 0.05)
    outbox, began, done = Outbox(), asyncio.Event(), False

    async def send(**arguments: Any) -> str:
        outbox.sent.append(arguments)
        began.set()
        if len(outbox.sent) == 1:
            await asyncio.Event().wait()
        return "sent"

    tool = outbox.tool(effect=effect, probe=lambda arguments: done).model_copy(update={"coroutine": send})
    agent = Agent(sending(tools=["send"]), [tool], storage="memory:", settings={"confirm": "never"})
    begun = asyncio.create_task(agent.start("Mail ann", thread_id="t"))
    await began.wait()
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    done = comes
    run = await agent.resume("t", steer="continue")
    assert ([pause["kind"] for pause in run.pending], len(outbox.sent)) == (["effect"] * asks, sent)
    if asks:
        run = await agent.resume(run, "it did not")
        assert len(outbox.sent) == 2
    assert run.status == "completed"


async def test_a_probe_goes_before_the_key() -> None:
    """R03: services forget keys, so a call that a crash cut off is not made again if its probe finds it."""
    sent, crash = list[str](), Crash(None, only=["store"])

    def send(to: str, text: str, idempotency_key: str) -> str:
        """Send a mail."""
        sent.append(idempotency_key)
        crash.at = crash.at or len(crash.trace) + 1
        return "sent"

    tool = StructuredTool.from_function(send, metadata={"effect": "write", "probe": lambda arguments: sent != []})
    agent = Agent(sending(tools=["send"]), [tool], storage=crashing("memory:", crash), settings={"confirm": "never"})
    with pytest.raises(StorageError):
        await agent.start("Mail ann", thread_id="t")
    run = await agent.resume("t")
    assert (run.status, len(sent)) == ("completed", 1)
