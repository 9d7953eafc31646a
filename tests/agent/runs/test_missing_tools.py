"""An answer is not used up where the tool that asked, or its executor, is missing: it can be given again."""

import asyncio
import gc
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import ClientConfig, create_client
from a2a.helpers import get_message_text, new_text_part
from a2a.types import Message, Role, SendMessageRequest, TaskState
from langchain_core.tools import StructuredTool
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from donewhen import Agent, ConfigError, Executor
from donewhen.agent.a2a.server import a2a_app
from donewhen.errors import StaleAnswer, ThreadWaiting, ToolMissing
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, one_step
from tests.kit.forking import forks

EACH: dict[str, Any] = {"confirm": "never", "approvals": "each", "verification": "grounded"}


def take(what: str) -> str:
    """Take something."""
    return f"took {what}"


def choose(what: str) -> str:
    """Choose one."""
    return f"chose {interrupt(f'Which {what}?')}"


def taking() -> ScriptedModel:
    """Takes an apple."""
    rounds = [call("take", what="an apple"), finish_step("taken", ("s1.1", "took an apple"))]
    return one_step(rounds, content="take an apple", tools=["take"])


async def ask_to_take(storage: str) -> str:
    """Begin a run that waits for the approval of a call, in an agent with the tool; return its thread."""
    async with Agent(taking(), [take], storage=storage, settings=EACH) as agent:
        run = await agent.start("Take an apple")
        assert run.pending[0]["tool"] == "take"
        return str(run.thread_id)


async def finish(storage: str, thread: str) -> None:
    """Answer in an agent that has the tool."""
    rest = ScriptedModel(roles={"execute": {"s1": [finish_step("taken", ("s1.1", "took an apple"))]}})
    async with Agent(rest, [take], storage=storage) as agent:
        run = await agent.resume(thread, "approve")
        assert (run.status, run.answer) == ("completed", "taken")


WAYS: dict[str, Callable[[Agent, str], Any]] = {
    "resume": lambda agent, thread: agent.resume(thread, "approve"),
    "stream": lambda agent, thread: agent.stream_resume(thread, "approve").result(),
    "edited": lambda agent, thread: agent.resume(thread, {"type": "edit", "arguments": {"what": "two"}}),
    "graph": lambda agent, thread: agent.graph.ainvoke(
        Command(resume="approve"), {"configurable": {"thread_id": thread}}
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_is_refused_where_its_tool_is_missing(way: str, tmp_path: Path) -> None:
    """X15, C08: the error names the tool and what to do; the question stays open, and the answer is good later."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    thread = await ask_to_take(storage)
    async with Agent(ScriptedModel(), storage=storage) as agent:
        before = await agent.get(thread)
        with pytest.raises(
            ConfigError, match=r"needs take, which this agent does not have: give it the tool .* reject"
        ):
            await WAYS[way](agent, thread)
        assert (await agent.get(thread)).to_dict() == before.to_dict()
    await finish(storage, thread)


async def test_a_plan_is_not_approved_where_its_tools_are_missing(tmp_path: Path) -> None:
    """X15, C08: the plan stays open for an agent that has them; to reject it needs no tool."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    for thread in (threads := ["t", "u"]):
        async with Agent(taking(), [take], storage=storage) as agent:
            await agent.start("Take an apple", thread_id=thread)
    async with Agent(ScriptedModel(), storage=storage) as agent:
        before = await agent.get(threads[0])
        with pytest.raises(ToolMissing, match="needs take"):
            await agent.resume(threads[0], "approve")
        assert (await agent.get(threads[0])).to_dict() == before.to_dict()
        assert (await agent.resume(threads[1], "cancel")).status == "cancelled"
    async with Agent(taking(), [take], storage=storage) as agent:
        run = await agent.resume(threads[0], "approve")
        assert (run.status, run.answer) == ("completed", "taken")


class Source:
    """A server whose tools go and come."""

    def __init__(self, *tools: Any) -> None:
        self.tools = list(tools)
        self._changed: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def change(self, *tools: Any) -> None:
        """Have other tools."""
        self.tools = list(tools)
        for each in self._changed:
            each()


async def test_an_answer_over_a2a_waits_for_the_server_of_its_tool() -> None:
    """M5, N42: the task stays input-required and says why; when the server is back, the same answer is taken."""
    source = Source(tool := StructuredTool.from_function(take))
    agent = Agent(taking(), source, storage="memory:", settings=EACH)
    transport = httpx.ASGITransport(a2a_app(agent, "http://agent.test"))
    async with agent, httpx.AsyncClient(transport=transport) as http:
        client = await create_client("http://agent.test", ClientConfig(streaming=False, httpx_client=http))

        async def send(text: str, **place: str) -> Any:
            message = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=[new_text_part(text)], **place)
            return [event async for event in client.send_message(SendMessageRequest(message=message))][-1].task

        asked = await send("Take an apple")
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        place = {"context_id": asked.context_id, "task_id": asked.id}
        source.change()
        refused = await send("approve", **place)
        assert refused.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        assert "needs take" in get_message_text(refused.status.message)
        source.change(tool)
        assert (await send("approve", **place)).status.state == TaskState.TASK_STATE_COMPLETED


def answer_without_tool(storage: str, thread: str, pipe: Connection) -> None:
    """Be a process whose agent was made without tools."""

    async def main() -> str:
        async with Agent(ScriptedModel(), storage=storage) as agent:
            try:
                return (await agent.resume(thread, "approve")).status
            except ConfigError as error:
                return str(error)

    pipe.send(asyncio.run(main()))


async def test_another_process_without_the_tool_uses_nothing_up(tmp_path: Path) -> None:
    """R02: a script that makes its agent without `tools` cannot spoil a run."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    thread = await ask_to_take(storage)
    ours, theirs = forks.Pipe()
    process = forks.Process(target=answer_without_tool, args=(storage, thread, theirs))
    process.start()
    assert "needs take" in await asyncio.to_thread(ours.recv)
    process.join()
    await finish(storage, thread)


@pytest.mark.parametrize("said", ["reject", {"type": "respond", "message": "I took it"}, "cancel", "later"])
async def test_what_needs_no_tool_is_taken_without_it(said: Any, tmp_path: Path) -> None:
    """C02: to reject, to answer in the tool's place, to cancel and to put off needs no tool."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    thread = await ask_to_take(storage)
    rest = ScriptedModel(roles={"execute": {"s1": [finish_step("not taken", "s1.1")] * 3}, "deliver": ["No."] * 2})
    async with Agent(rest, storage=storage, settings={"limits": {"model_calls": 4}, "on_exhausted": "stop"}) as agent:
        run = await agent.resume(thread, said)
        assert run.problem == ""
        assert (run.status == "waiting") == (said == "later")


@pytest.mark.parametrize("asks", ["a tool", "an executor"])
async def test_a_question_of_what_is_missing_is_not_answered(asks: str, tmp_path: Path) -> None:
    """N42, M5: a question of a tool, or of an executor, is answered where that is."""
    storage, name = f"sqlite:///{tmp_path}/runs.db", {"a tool": "choose", "an executor": "market"}[asks]
    step: dict[str, Any] = {"tools": ["choose"]}
    here: dict[str, Any] = {"tools": [choose]}
    if asks == "an executor":
        step["executor"], here = "market", {"executors": {"market": Executor("Chooses", tools=[choose])}}
    model = one_step([call("choose", what="apple"), finish_step("chosen", ("s1.2", "chose the red one"))], **step)
    async with Agent(model, storage=storage, settings=FREE, **here) as agent:
        run = await agent.start("Choose an apple")
    assert run.pending[0]["question"] == "Which apple?"
    async with Agent(ScriptedModel(), storage=storage) as agent:
        with pytest.raises(ConfigError, match=f"needs {name}.* You may then also answer again, or reject what is ask"):
            await agent.resume(run, "the red one")
    async with Agent(model, storage=storage, **here) as agent:
        assert (await agent.resume(run, "the red one")).status == "completed"


async def test_a_worker_leaves_an_answer_to_one_that_has_the_tool(tmp_path: Path) -> None:
    """R02, X15: the answer stays in the queue, the problem says why, and a worker with the tool carries it out."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    thread = await ask_to_take(storage)
    async with Agent(ScriptedModel(), storage=storage) as lacking:
        left, worker = asyncio.Event(), lacking.worker()
        worker.report = lambda _, event: left.set() if "left to a worker" in event else None
        async with worker:
            await lacking.submit_answer(thread, "approve")
            await left.wait()
        info = await lacking.info(thread)
        assert (info.status, info.queue) == ("queued", "agents")
        assert "needs take" in info.problem
        assert info.problem.endswith("or cancel the run")
        with pytest.raises(StaleAnswer, match="was answered"):  # so the problem offers no other answer
            await lacking.submit_answer(thread, "reject")
    rest = ScriptedModel(roles={"execute": {"s1": [finish_step("taken", ("s1.1", "took an apple"))]}})
    async with Agent(rest, [take], storage=storage) as agent, agent.worker():
        *_, (event, _) = [each async for each in agent.watch(thread)]
        assert (event["type"], event["status"]) == ("outcome", "completed")
        assert (await agent.info(thread)).problem == ""


async def test_tools_of_one_run_are_forgotten_when_it_ends_or_is_deleted() -> None:
    """Q61: while it waits they are there for its answer; afterwards no graph with them is kept, nor the tools."""

    async def kept_by(runs: int) -> int:
        work = [
            reply for _ in range(runs) for reply in (call("take", what="an apple"), finish_step("t", ("s1.1", "took")))
        ]
        plan = submit_plan([{"content": "take", "tools": ["take"]}])
        script = ScriptedModel(roles={"triage": [plan] * runs, "execute": work}, strict=False)
        async with Agent(script, storage="memory:", settings=EACH) as agent:
            for number in range(runs):
                run = await agent.start("Take an apple", tools=[take])
                if number % 2:
                    assert (await agent.resume(run.thread_id, "approve")).status == "completed"
                else:
                    await agent.delete(run)
            gc.collect()
            assert not agent._tools_by_thread
            return sum(isinstance(each, CompiledStateGraph) for each in gc.get_objects())

    assert await kept_by(2) == await kept_by(12)


def taker(of: str, taken: dict[str, list[str]], server: str = "") -> StructuredTool:
    """A tool `take` of its own; of a server, if one is named."""

    def take(what: str) -> str:
        taken[of].append(what)
        return f"took {what}"

    metadata = {"server": server, "effect": "write"} if server else None
    return StructuredTool.from_function(take, description="Take something.", metadata=metadata)


ORDERS = [("shop", "market"), ("market", "shop"), ("shop", ""), ("", "shop")]
"""The server that provides `take` when people are asked, and when they answer; "": a function of the agent."""
SHOWN: dict[str, Any] = {"confirm": "writes", "approvals": "plan", "verification": "grounded"}
NOTHING: dict[str, list[str]] = {"shop": [], "market": [], "": []}


@pytest.mark.parametrize("said", ["approve", {"type": "edit", "arguments": {"what": "two"}}], ids=["yes", "edit"])
@pytest.mark.parametrize(("before", "after"), ORDERS)
async def test_an_approved_call_is_never_made_at_another_server(
    before: str, after: str, said: Any, tmp_path: Path
) -> None:
    """X15: the error names both servers; the answer is good where the tool is the one that was shown."""
    storage, taken = f"sqlite:///{tmp_path}/runs.db", {name: list[str]() for name in NOTHING}
    async with Agent(taking(), [taker(before, taken, before)], storage=storage, settings=EACH) as agent:
        run = await agent.start("Take an apple")
        assert (f"a tool of the server {before}" in run.pending[0]["text"]) == bool(before)
    names = f"now a tool of the server {after or 'none'}, before of {before or 'none'}"
    async with Agent(ScriptedModel(), [taker(after, taken, after)], storage=storage) as agent:
        with pytest.raises(ToolMissing, match=f"take is {names}; .* needs take as before"):
            await agent.resume(run, said)
    assert taken == NOTHING
    rest = ScriptedModel(roles={"execute": {"s1": [finish_step("taken", ("s1.1", "took an apple"))]}})
    async with Agent(rest, [taker(before, taken, before)], storage=storage) as agent:
        assert (await agent.resume(run, "approve")).status == "completed"
    assert taken == {**NOTHING, before: ["an apple"]}


@pytest.mark.parametrize("way", ["approve", "edit", "words"])
@pytest.mark.parametrize(("before", "after"), ORDERS[:2])
async def test_a_plan_is_approved_for_the_servers_that_it_was_shown_with(
    before: str, after: str, way: str, tmp_path: Path
) -> None:
    """C08: neither approved nor edited for another server; planned again in words it is shown with the new one."""
    storage, taken = f"sqlite:///{tmp_path}/runs.db", {name: list[str]() for name in NOTHING}
    async with Agent(taking(), [taker(before, taken, before)], storage=storage, settings=SHOWN) as agent:
        run = await agent.start("Take an apple")
        assert run.pending[0]["plan"]["providers"]["take"].startswith(f"{before} ")
        assert f"take ({before}, any arguments)" in run.pending[0]["text"]
    plan = submit_plan([{"content": "take an apple", "tools": ["take"]}])
    rounds = [call("take", what="an apple"), finish_step("taken", ("s1.1", "took an apple"))]
    again = ScriptedModel(roles={"triage": [plan], "draft": [plan], "execute": {"s1": rounds}}, strict=False)
    async with Agent(again, [taker(after, taken, after)], storage=storage) as agent:
        if way == "approve":
            with pytest.raises(ToolMissing, match=f"a tool of the server {after}, before of {before}"):
                await agent.resume(run, "approve")
        elif way == "edit":
            run = await agent.resume(run, {"type": "edit", "plan": {"steps": [{"id": "s1", "content": "take it"}]}})
            assert f"a tool of the server {after}, before of {before}" in run.pending[0]["problem"]
        else:
            run = await agent.resume(run, "Please think about it once more")
            assert run.status == "waiting"
            assert run.pending[0]["plan"]["providers"]["take"].startswith(f"{after} ")
            assert (await agent.resume(run, "approve")).status == "completed"
    assert taken == {**NOTHING, after: ["an apple"] if way == "words" else []}


TAKES_AN_APPLE = {
    "s1": [finish_step("the apple", ("s1.1", "the apple"))],
    "s2": [
        call("take", what="an apple"),
        give_up("the tool is not here"),
        call("take", what="an apple"),
        finish_step("taken", ("s2.1", "took an apple")),
    ],
}
"""The rest of a plan whose tool is another one now: the step gives up, is shown anew, and takes it then."""


@pytest.mark.parametrize(("before", "after"), ORDERS[:2])
async def test_an_approved_plan_goes_on_without_another_servers_tool(before: str, after: str, tmp_path: Path) -> None:
    """X15: where the server was replaced meanwhile, the step does not have the tool, and people are asked anew."""
    storage, taken = f"sqlite:///{tmp_path}/runs.db", {name: list[str]() for name in NOTHING}
    steps = [{"content": "choose one", "tools": []}, {"content": "take it", "tools": ["take"]}]
    asks = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": {"s1": [ask_user("Which?")]}})
    async with Agent(asks, [taker(before, taken, before)], storage=storage, settings=SHOWN) as agent:
        run = await agent.resume(await agent.start("Take something"), "approve")
        assert run.pending[0]["question"] == "Which?"
    replan = submit_plan([{"id": "s2", "tools": ["take"]}])
    rest = ScriptedModel(roles={"execute": TAKES_AN_APPLE, "draft": [replan]}, strict=False)
    async with Agent(rest, [taker(after, taken, after)], storage=storage) as agent:
        run = await agent.resume(run, "the apple")
        assert (run.status, taken) == ("waiting", NOTHING), run.answer
        if run.pending[0]["kind"] != "plan":
            run = await agent.resume(run, "replan")
        assert f"take is now a tool of the server {after}, before of {before}" in str(run)
        run = await agent.resume(run, "approve")
        assert taken == {**NOTHING, after: ["an apple"]}


def doer(effect: str, taken: list[str]) -> StructuredTool:
    """A tool `take` with this effect."""

    def take(what: str) -> str:
        taken.append(what)
        return f"took {what}"

    return StructuredTool.from_function(take, description="Take something.", metadata={"effect": effect})


GROWN = [("read", "write"), ("read", "idempotent"), ("idempotent", "write")]
FALLEN = [(after, before) for before, after in GROWN]


@pytest.mark.parametrize("way", ["approve", "edit", "words"])
@pytest.mark.parametrize(("before", "after"), GROWN)
async def test_a_plan_is_approved_for_no_greater_effect(before: str, after: str, way: str, tmp_path: Path) -> None:
    """Q104: a tool that changes more than when its plan was shown is another tool to the answer; planned again in
    words, the plan is shown with what it may change now.
    """
    storage, taken = f"sqlite:///{tmp_path}/runs.db", list[str]()
    settings = {**SHOWN, "confirm": "always"}
    async with Agent(taking(), [doer(before, taken)], storage=storage, settings=settings) as agent:
        run = await agent.start("Take an apple")
    plan = submit_plan([{"content": "take an apple", "tools": ["take"]}])
    rounds = [call("take", what="an apple"), finish_step("taken", ("s1.1", "took an apple"))]
    again = ScriptedModel(roles={"triage": [plan], "draft": [plan], "execute": {"s1": rounds}}, strict=False)
    told = f"take has a greater effect now: {after}, before {before}"
    async with Agent(again, [doer(after, taken)], storage=storage) as agent:
        if way == "approve":
            with pytest.raises(ToolMissing, match=told):
                await agent.resume(run, "approve")
        elif way == "edit":
            run = await agent.resume(run, {"type": "edit", "plan": {"steps": [{"id": "s1", "content": "take it"}]}})
            assert told in run.pending[0]["problem"]
        else:
            first, run = run, await agent.resume(run, "Please think about it once more")
            assert (run.status, run.pending[0]["effects"]) == ("waiting", {"take": after})
            assert run.pending[0]["id"] != first.pending[0]["id"]
            assert (await agent.resume(run, "approve")).status == "completed"
    assert taken == (["an apple"] if way == "words" else [])
    if way == "approve":
        async with Agent(taking(), [doer(before, taken)], storage=storage) as agent:
            assert (await agent.resume(run, "approve")).status == "completed"


@pytest.mark.parametrize(("before", "after"), [*GROWN, *FALLEN])
async def test_an_approved_plan_goes_on_without_a_greater_effect(before: str, after: str, tmp_path: Path) -> None:
    """Q104: where a tool grew meanwhile, its step lacks it, and people are asked anew; one that shrank stays."""
    storage, taken = f"sqlite:///{tmp_path}/runs.db", list[str]()
    steps = [{"content": "choose one", "tools": []}, {"content": "take it", "tools": ["take"]}]
    asks = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": {"s1": [ask_user("Which?")]}})
    settings = {**SHOWN, "confirm": "always"}
    async with Agent(asks, [doer(before, taken)], storage=storage, settings=settings) as agent:
        run = await agent.resume(await agent.start("Take something"), "approve")
        assert run.pending[0]["question"] == "Which?"
    work: dict[str, Any] = {**TAKES_AN_APPLE}
    if (before, after) in FALLEN:
        work["s2"] = [call("take", what="an apple"), finish_step("taken", ("s2.1", "took an apple"))]
    replan = submit_plan([{"id": "s2", "tools": ["take"]}])
    rest = ScriptedModel(roles={"execute": work, "draft": [replan], "deliver": ["Taken."]}, strict=False)
    async with Agent(rest, [doer(after, taken)], storage=storage) as agent:
        run = await agent.resume(run, "the apple")
        if (before, after) in FALLEN:
            assert (run.status, taken) == ("completed", ["an apple"])
            return
        assert (run.status, taken) == ("waiting", []), run.answer
        if run.pending[0]["kind"] != "plan":
            run = await agent.resume(run, "replan")
        assert f"take has a greater effect now: {after}, before {before}" in str(run)
        run = await agent.resume(run, "approve")
        assert taken == ["an apple"]


async def test_a_refused_start_does_not_change_the_tools_of_the_run_that_waits() -> None:
    """Q61: two runs wait; on each a start is refused, and a stream is not listened to; their own tools are called."""
    taken: dict[str, list[str]] = {"a": [], "b": [], "other": []}
    plan, end = submit_plan([{"content": "take", "tools": ["take"]}]), finish_step("t", ("s1.1", "took"))
    work = [call("take", what="an apple"), call("take", what="an apple"), end, end]
    script = ScriptedModel(roles={"triage": [plan] * 2, "execute": work}, strict=False)
    async with Agent(script, storage="memory:", settings=EACH) as agent:
        await asyncio.gather(*(agent.start("Take an apple", thread_id=id, tools=[taker(id, taken)]) for id in "ab"))
        for id in "ab":
            with pytest.raises(ThreadWaiting):
                await agent.start("Take a pear", thread_id=id, tools=[taker("other", taken)])
            agent.stream("Take a pear", thread_id=id, tools=[taker("other", taken)])
            agent.stream_resume(id, tools=[taker("other", taken)])
            agent.stream("Take a pear", tools=[taker("other", taken)])
        assert {*agent._tools_by_thread} == {"a", "b"}
        assert [(await agent.resume(id, "approve")).status for id in "ab"] == ["completed"] * 2
    assert taken == {"a": ["an apple"], "b": ["an apple"], "other": []}


@pytest.mark.parametrize("verb", ["start", "resume"])
async def test_an_option_of_streams_is_refused_where_nothing_streams(verb: str) -> None:
    """L1: `start` and `resume` wait for the run, so nobody can leave it."""
    async with Agent(ScriptedModel(roles={}), storage="memory:") as agent:
        with pytest.raises(TypeError, match="unexpected keyword argument 'on_leave'"):
            await getattr(agent, verb)("go", on_leave="continue")


async def test_two_runs_at_once_have_each_their_own_tools_and_one_graph() -> None:
    """Q61: their tools have one name; live objects stand beside the state, so nothing is compiled for a run."""
    taken: dict[str, list[str]] = {"a": [], "b": []}
    plan, end = submit_plan([{"content": "take", "tools": ["take"]}]), finish_step("t", ("s1.1", "took"))
    work = [call("take", what="an apple"), call("take", what="an apple"), end, end]
    script = ScriptedModel(roles={"triage": [plan] * 2, "execute": work}, strict=False)
    async with Agent(script, storage="memory:", settings=EACH) as agent:
        await asyncio.gather(*(agent.start("Take an apple", thread_id=id, tools=[taker(id, taken)]) for id in taken))
        assert agent._runner_for("a").graph is agent._runner_for("b").graph
        runs = await asyncio.gather(*(agent.resume(id, "approve") for id in taken))
        assert [run.status for run in runs] == ["completed", "completed"]
    assert taken == {"a": ["an apple"], "b": ["an apple"]}


@pytest.mark.parametrize("way", ["cancel", "restart", "submit", "elsewhere"])
async def test_tools_given_to_one_request_do_not_reach_the_next(way: str, tmp_path: Path) -> None:
    """C06: also if the first was cancelled or put away while it waited, here or by another process."""
    taken: list[str] = []
    plan = submit_plan([{"content": "take an apple", "tools": ["take"]}])
    model = ScriptedModel(roles={"triage": [plan, plan, answer("It is not here.")]}, strict=False)
    url = tmp_path / "runs.db"
    async with Agent(model, storage=url) as agent, Agent("demo", storage=url) as other:
        await agent.start("first", thread_id="t", request_id="1", tools=[taker("t", {"t": taken})])
        if way == "cancel":
            await agent.cancel("t")
        if way in ("cancel", "restart"):
            await agent.start("second", thread_id="t", restart=True)
        else:
            await (agent if way == "submit" else other).submit("second", thread_id="t", restart=True)
            await agent.run_submitted("t")
        assert (await agent.get("t")).answer.startswith("It is not here.")


async def test_a_request_that_is_sent_again_keeps_its_tools() -> None:
    """C06: the second delivery brings none, and begins nothing; the answer after it calls the tool of the first."""
    taken: dict[str, list[str]] = {"t": []}
    async with Agent(taking(), storage="memory:", settings=EACH) as agent:
        for tools in ([taker("t", taken)], []):
            run = await agent.start("Take an apple", request_id="t", tools=tools)
        assert (await agent.resume(run, "approve")).status == "completed"
        assert taken == {"t": ["an apple"]}


async def test_a_request_that_was_cut_off_before_its_first_node_keeps_its_tools() -> None:
    """C06: `resume` begins it with the tools that it was given."""
    taken: dict[str, list[str]] = {"t": []}
    async with Agent(taking(), storage="memory:", settings={**EACH, "approvals": "never"}) as agent:
        async with agent.stream("Take an apple", thread_id="t", tools=[taker("t", taken)]) as stream:
            async for _ in stream:
                break
        assert (await agent.resume("t")).status == "completed"
        assert taken == {"t": ["an apple"]}
