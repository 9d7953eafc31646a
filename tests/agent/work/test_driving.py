"""Whoever drives a thread, it is cancelled, watched, recorded and told of in the same way, and nothing hangs it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph

from donewhen import Agent, AgentOptions, Executor, StorageError, ThreadWaiting
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.work.thread_rows import INTERRUPTED
from donewhen.hooks import Hooks
from donewhen.testing import Recording, ScriptedModel, answer, ask_user, call, finish_step, give_up, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.storage.cases import fresh_url

FREE = {"confirm": "never", "on_failure": "deliver"}
GOAL = {"messages": [("user", "go")]}


async def never(*_: Any) -> str:
    """Look at the sky, for ever."""
    entered().append("never")
    await asyncio.Event().wait()
    return ""


def blocks(*_: Any) -> str:
    """Look at the sky, for as long as the test lasts."""
    entered().append("blocks")
    RELEASED.wait()
    return ""


async def stubborn(*_: Any) -> str:
    """Look at the sky, and do not end when that is cancelled."""
    entered().append("stubborn")
    while not RELEASED.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return ""


RELEASED = threading.Event()
ENTERED: list[str] = []
OWN_ENTERED: ContextVar[list[str]] = ContextVar("entered")
"""In place of ENTERED, for each of several cases at once."""


def entered() -> list[str]:
    """What this case has entered of code of others."""
    return OWN_ENTERED.get(ENTERED)


async def until(condition: Callable[[], Any]) -> None:
    """Wait for something that another task or thread does."""
    async with asyncio.timeout(20):
        for _ in count():
            if condition():
                return
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
async def released() -> Any:
    """Release what blocks before the test's loop is closed."""
    RELEASED.clear()
    ENTERED.clear()
    yield
    RELEASED.set()


def model(*work: Any, **step: Any) -> ScriptedModel:
    steps = [{"content": "look", **(step or {"tools": ["look"]})}]
    return ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": [*work, give_up("no")]}, strict=False)


def tool(body: Callable[..., Any], effect: str = "read") -> StructuredTool:
    kind = "coroutine" if asyncio.iscoroutinefunction(body) else "func"
    return StructuredTool.from_function(**{kind: body}, name="look", description="Look.", metadata={"effect": effect})


async def started(agent: Agent) -> Any:
    return await agent.start("go", thread_id="t")


async def driven(agent: Agent) -> Any:
    return await agent.graph.ainvoke(GOAL, {"configurable": {"thread_id": "t"}})


async def worked(agent: Agent) -> Any:
    await agent.submit("go", thread_id="t")
    async with agent.worker():
        return [event async for event, _ in agent.watch("t")]


async def quiet(agent: Agent) -> Any:
    """A listener who reads one event and then no more."""
    async with agent.stream("go", thread_id="t", on_leave="continue") as stream:
        await anext(stream)
        entered().append("quiet")
        await asyncio.Event().wait()


WAYS = {"start": started, "graph": driven, "worker": worked}
GRAPH = StateGraph(MessagesState).add_node("n", never).add_edge(START, "n").add_edge("n", END).compile()
EXECUTORS: dict[str, dict[str, Any]] = {
    "work": {"work": never},
    "sync work": {"work": blocks},
    "a graph": {"graph": GRAPH},
}
CODE: dict[str, dict[str, Any]] = {
    "an async tool": {"tools": [tool(never)]},
    "a sync tool": {"tools": [tool(blocks)]},
    "a stubborn tool": {"tools": [tool(stubborn)]},
    "memory": {"options": AgentOptions(memory=never)},
    "context, sync": {"options": AgentOptions(context=blocks)},
    "a hook, sync": {"tools": [tool(never)], "hooks": Hooks(before_call=[blocks])},
}


async def cancelled(agent: Agent, drive: Callable[[Agent], Awaitable[Any]], other: Agent) -> float:
    """Drive a run until it waits for code of others, cancel it elsewhere, and return how long that took."""
    own = list[str]()
    OWN_ENTERED.set(own)
    driving = asyncio.create_task(drive(agent))
    await until(lambda: own)
    before = time.monotonic()
    run = await asyncio.wait_for(other.cancel("t", "enough"), 30)
    took = time.monotonic() - before
    assert (run.status, run.outcome and run.outcome["code"]) == ("cancelled", "cancelled")
    if drive is not quiet:
        await asyncio.wait_for(driving, 10)
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    assert [info.status for info in await other.threads()] == ["cancelled"]
    return took


async def case(folder: Path, drive: Callable[[Agent], Awaitable[Any]], script: ScriptedModel, **given: Any) -> float:
    """Return how long a run took to end after it was cancelled by another agent on the same database."""
    folder.mkdir()  # noqa: ASYNC240
    url, settings = fresh_url("sqlite", folder), {**FREE, "tool_seconds": 600}
    async with Agent("demo", storage=url) as other, Agent(script, storage=url, settings=settings, **given) as agent:
        return await cancelled(agent, drive, other)


@pytest.mark.parametrize("way", WAYS)
async def test_every_run_ends_when_it_is_cancelled_elsewhere(way: str, tmp_path: Path) -> None:
    """Q60, Q102, R19: within seconds, by whomever it is driven and whatever code of others it waits for; also an
    executor, whose handoff is an effect and gets five seconds to be known.
    """
    cases = {name: (model(call("look")), {"tools": [tool(never)], **given}) for name, given in CODE.items()}
    if way == "start":
        for name, given in EXECUTORS.items():
            cases[name] = model(executor="x"), {"executors": {"x": Executor("It works.", **given)}}
    took = await asyncio.gather(
        *(case(tmp_path / name, WAYS[way], script, **given) for name, (script, given) in cases.items())
    )
    slow = {name: seconds for name, seconds in zip(cases, took, strict=True) if seconds > (7 if name in CODE else 12)}
    assert not slow


async def test_an_executor_has_a_limit() -> None:
    """Q102: what an executor does on its own ends by `executor_seconds`."""
    settings = {**FREE, "executor_seconds": 0.2}
    for given in EXECUTORS.values():
        executors = {"x": Executor("It works.", **given)}
        async with Agent(model(executor="x"), storage="memory:", settings=settings, executors=executors) as agent:
            assert (await asyncio.wait_for(agent.start("go"), 20)).status == "failed"


async def test_background_has_a_limit(tmp_path: Path) -> None:
    """Q102: `context`, `memory` and AGENTS.md that never return, or end when they are cancelled: the run goes on."""
    notes = list[str]()
    sources = AgentOptions(context=blocks, memory=stubborn)
    script = ScriptedModel(roles={"triage": [answer("done")]})
    async with Agent(script, storage="memory:", settings={"tool_seconds": 0.2}, options=sources) as agent:
        async with asyncio.timeout(20), agent.stream("go") as stream:
            notes = [event["text"] async for event in stream if event["type"] == "note"]
        assert stream.run
        assert stream.run.answer == "done"
    assert [note.partition(":")[0] for note in notes] == ["Going on without the context", "Going on without the memory"]
    assert all("longer than 0.2 seconds" in note for note in notes)


async def test_a_listener_who_stops_reading_does_not_keep_a_run_from_ending(tmp_path: Path) -> None:
    """Q102: a page that hangs, say."""
    assert await case(tmp_path / "quiet", quiet, model(call("look")), tools=[tool(never)]) < 6


async def test_two_runs_of_a_graph_and_one_is_cancelled(tmp_path: Path) -> None:
    """Q60: the other one goes on, in the same process."""
    url, gone = fresh_url("sqlite", tmp_path), asyncio.Event()

    async def look() -> str:
        entered().append("look")
        await gone.wait()
        return "seen"

    replies = [call("look"), call("look"), finish_step("seen", ("s1.1", "seen"))]
    plan = submit_plan([{"content": "look", "tools": ["look"], "done_when": ["seen"]}])
    script = ScriptedModel(roles={"triage": [plan, plan], "execute": replies, "deliver": ["ok"]}, strict=False)
    async with Agent("demo", storage=url) as other, Agent(script, [tool(look)], storage=url, settings=FREE) as agent:
        runs = [
            asyncio.create_task(agent.graph.ainvoke(GOAL, {"configurable": {"thread_id": id}})) for id in ("a", "b")
        ]
        await until(lambda: len(ENTERED) == 2)
        assert (await other.cancel("a")).status == "cancelled"
        gone.set()
        ended, finished = await asyncio.gather(*runs)
        assert (ended["outcome"]["status"], finished["outcome"]["status"]) == ("cancelled", "completed")


async def test_a_run_of_the_graph_is_watched_recorded_and_told(tmp_path: Path) -> None:
    """Q60, R19: its goal is in the list while it works; watchers have its events; the notifier has its news; and its
    recording is that of any other run.
    """
    told = list[dict[str, Any]]()
    look, config = tool(lambda: "seen"), {"configurable": {"thread_id": "t"}}
    script = model(call("look"), finish_step("seen", ("s1.1", "seen")))
    more: Any = {"settings": {"verification": "grounded"}, "options": AgentOptions(record=True)}
    async with Agent(script, [look], storage=fresh_url("sqlite", tmp_path), notify=told.append, **more) as agent:
        asked = await agent.graph.ainvoke(GOAL, config)
        assert (await agent.info("t")).goal == "go"
        kinds = list[str]()
        watching = asyncio.create_task(_watch(agent, kinds))
        await until(lambda: "waiting" in kinds)
        await agent.graph.ainvoke({"messages": [("user", "approve")]}, config)
        await asyncio.wait_for(watching, 10)
        assert kinds[-1] == "outcome"
        assert asked["__interrupt__"]
        run = await agent.get("t")
        recording = await Recording.of(agent, "t")
    assert [each["type"].rpartition(".")[2] for each in told] == ["waiting", "finished"]
    assert (await recording.replay(tools=[look])).answer == run.answer


async def _watch(agent: Agent, kinds: list[str]) -> None:
    async for event, _ in agent.watch("t"):
        kinds.append(event["type"])


@pytest.mark.parametrize("way", ["start", "graph"])
async def test_a_run_that_nobody_works_on_says_so(way: str, tmp_path: Path) -> None:
    """Q60 (watch_a_dead_run): in its problem, in the list, in the counts, and to watchers, whose events end."""
    url = fresh_url("sqlite", tmp_path)
    async with (
        Agent("demo", storage=url) as other,
        Agent(model(call("look")), [tool(never)], storage=url, settings=FREE) as agent,
    ):
        driving = asyncio.create_task(WAYS[way](agent))
        await until(lambda: ENTERED)
        assert (await other.get("t")).problem == ""
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)
        run = await other.get("t")
        assert (run.status, run.problem) == ("running", INTERRUPTED)
        assert (await other.info("t")).problem == INTERRUPTED
        assert (await other.status())["threads"] == {"interrupted": 1}
        async with asyncio.timeout(5):
            last = [event async for event, _ in other.watch("t")][-1]
        assert (last["type"], last["code"], last["text"]) == ("outcome", "interrupted", INTERRUPTED)
        assert (await other.cancel("t")).status == "cancelled"
        assert (await other.get("t")).problem == ""


async def test_the_graph_does_not_take_the_place_of_submitted_work() -> None:
    """Q60, Q90: a request on a thread with submitted work is refused, and None carries that out, as `resume` does."""
    config = {"configurable": {"thread_id": "t"}}
    async with Agent(ScriptedModel(roles={"triage": [answer("first done")]}), storage="memory:") as agent:
        await agent.submit("first", thread_id="t")
        with pytest.raises(ThreadWaiting):
            await agent.graph.ainvoke(GOAL, config)
        assert (await agent.info("t")).status == "queued"
        ended = await agent.graph.ainvoke(None, config)
        assert ended["outcome"]["text"] == "first done"
        assert (await agent.info("t")).status == "answered"


async def begun(agent: Agent, settings: Any) -> None:
    await agent.graph.ainvoke(GOAL, {"configurable": {"thread_id": "t"}}, context=settings)


async def gone_on(agent: Agent, settings: Any) -> None:
    async with Agent(agent.models("triage", None), [look], storage=agent.storage, settings=FREE) as before:
        await before.graph.ainvoke(GOAL, {"configurable": {"thread_id": "t"}}, context={"confirm": "always"})
    await agent.graph.ainvoke({"messages": "approve"}, {"configurable": {"thread_id": "t"}}, context=settings)


look = tool(lambda: entered().append("looked") or "seen")


@pytest.mark.parametrize("way", [begun, gone_on])
@pytest.mark.parametrize("settings", [None, {"confirm": "never"}, {"profile": {"role": "astronomer"}}])
async def test_what_an_agent_forbids_now_is_forbidden_to_its_graph(way: Any, settings: Any) -> None:
    """Q34: whatever `context` a run of the graph is given, and under whatever agent it began."""
    script = model(call("look"), finish_step("seen", ("s1.1", "seen")))
    now = {**FREE, "profile": {"forbidden_tools": ["look"]}}
    async with Agent(script, [look], storage="memory:", settings=now) as agent:
        await way(agent, settings)
        assert (await agent.get("t")).status == "failed"
    assert ENTERED == []


async def test_the_graph_lets_the_policy_answer_what_nobody_did() -> None:
    """Q60: None continues a run whose question was open too long, as `resume` and workers do; two of them at once."""
    script = ScriptedModel(roles={"triage": [ask_user("Which?"), ask_user("Which?"), answer("ok"), answer("ok")]})
    policy = {"on_question": "default", "default_answer": "red", "question_seconds": 0.0}
    async with Agent(script, storage="memory:", settings=policy) as agent:
        for id in "ab":
            await agent.start("go", thread_id=id)
        configs = [{"configurable": {"thread_id": id}} for id in "ab"]
        await asyncio.gather(*(agent.graph.ainvoke(None, config) for config in configs))
        assert [(await agent.get(id)).status for id in "ab"] == ["answered", "answered"]


@pytest.mark.parametrize("way", ["ainvoke", "invoke", "astream", "stream"])
async def test_a_run_of_the_graph_stores_a_checkpoint_before_it_goes_on(way: str, tmp_path: Path) -> None:
    """Q60: whichever verb of the graph is called; so a run whose goal could not be stored asks no model."""
    url, script, config = fresh_url("sqlite", tmp_path), model(call("look")), {"configurable": {"thread_id": "t"}}
    async with Agent(script, [look], storage=crashing(url, Crash(1, only=("put",))), settings=FREE) as agent:
        calls: dict[str, Callable[[], Any]] = {
            "ainvoke": lambda: agent.graph.ainvoke(GOAL, config),
            "invoke": lambda: asyncio.to_thread(agent.graph.invoke, GOAL, config),
            "astream": lambda: anext(agent.graph.astream(GOAL, config, stream_mode="updates")),
            "stream": lambda: asyncio.to_thread(list, agent.graph.stream(GOAL, config)),
        }
        with pytest.raises(StorageError):
            await calls[way]()
    assert script.requests == []


KEYLESS: Any = {"models": {"triage": "openai:gpt-5"}}


async def left_to_a_person(agent: Agent, goal: str, **more: Any) -> None:
    """Submit a goal on the thread t on which workers give up before it begins: its model has no key."""
    await agent.submit(goal, thread_id="t", settings=KEYLESS, **more)
    async with agent.worker():
        async for _ in agent.watch("t"):
            pass


UNBEGUN: dict[str, Callable[[Agent], Awaitable[Any]]] = {
    "start": lambda agent: agent.start("third", thread_id="t"),
    "submit": lambda agent: agent.submit("third", thread_id="t"),
    "audit": lambda agent: agent.audit("t"),
    "undo": lambda agent: agent.undo("t"),
    "invoke": lambda agent: agent.graph.ainvoke({"messages": "third"}, on("t")),
    "go back": lambda agent: invoke_first(agent),
    "update": lambda agent: agent.graph.aupdate_state(on("t"), {"language": "de"}),
}


def on(thread: str) -> Any:
    """The configuration of a thread for its graph."""
    return {"configurable": {"thread_id": thread}}


async def invoke_first(agent: Agent) -> None:
    """Go on from the first checkpoint of a thread."""
    *_, first = [snapshot async for snapshot in agent.graph.aget_state_history(on("t"))]
    await agent.graph.ainvoke(None, first.config)


@pytest.mark.parametrize("state", ["left", "queued"])
@pytest.mark.parametrize("verb", UNBEGUN)
async def test_a_request_that_has_not_begun_is_displaced_by_nothing(verb: str, state: str, tmp_path: Path) -> None:
    """R04, C06: whatever is wanted of the thread before `resume` or `cancel`, the request stays as it was, be it
    queued or left to a person; nothing says that the one before is the last."""
    (work := tmp_path / "work").mkdir()
    plan = submit_plan([{"content": "write", "tools": ["write_file"]}])
    steps = [call("write_file", path="a.md", content="new"), finish_step("written", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "execute": steps}, strict=False)
    free: Any = {**FREE, "approvals": "never"}
    async with Agent(model, workspace_tools(work), storage=tmp_path / "runs.db", settings=free) as agent:
        await agent.start("first", thread_id="t")
        if state == "left":
            await left_to_a_person(agent, "second")
        else:
            await agent.submit("second", thread_id="t")
        before = await agent.info("t")
        with pytest.raises(ThreadWaiting, match=r"^thread 't' is not finished: ") as refused:
            await UNBEGUN[verb](agent)
        assert "KEY" in str(refused.value) or state == "queued"
        assert (await agent.info("t"), (await agent.get("t")).goal) == (before, "second")
        assert (work / "a.md").read_text() == "new"
        assert (await agent.cancel("t")).goal == "second"


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
async def test_a_request_cut_off_before_its_first_node_stays(url: str, tmp_path: Path) -> None:
    """C06: whose task is cancelled at `started`; another request is refused, `resume` begins it."""
    model = ScriptedModel(roles={"triage": [answer("one")]})
    async with Agent(model, storage=url if ":" in url else tmp_path / "runs.db") as agent:
        begun = asyncio.Event()

        async def leave() -> None:
            async with agent.stream("first", thread_id="t") as stream:
                async for _ in stream:
                    begun.set()
                    await asyncio.Event().wait()

        task = asyncio.create_task(leave())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        with pytest.raises(ThreadWaiting):
            await agent.start("second", thread_id="t")
        assert (await agent.resume("t")).goal == "first"
