"""Every kind of run is recorded, saved, and replayed with the same end and no difference, with nothing but the file."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from donewhen import Agent, AgentOptions, Executor, McpServers, Models, Run, wait
from donewhen.hooks import Ask, Call, End, Hooks, Note, Refuse
from donewhen.testing import Recording, ScriptedModel, answer, audit, call, deliver, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.agent.mcp.test_mcp_asking import TODAY, shop

EFFECTS: Any = {"look": "read", "send": "write"}
ONCE: Any = {"confirm": "never"}
STEP = {"content": "Look", "done_when": "Known"}
LOOKED = [call("look", where="shop"), finish_step("3 lamps", ("s1.1", "3 lamps"))]
COUNTS = iter(range(10**6))


def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: 3 lamps, look {next(COUNTS)}"


def send(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@asynccontextmanager
async def agent(
    roles: Any, tools: Any = (look, send), *, prices: Any = None, memory: Any = None, **more: Any
) -> AsyncIterator[Agent]:
    more = {"effects": EFFECTS, "storage": "memory:", **more}
    with ScriptedModel(roles=roles) as model:
        given = Models(model, prices=prices or {})
        async with Agent(given, tools, options=AgentOptions(record=True, memory=memory), **more) as made:
            yield made


def script(*steps: Any, work: Any = LOOKED, **more: Any) -> Any:
    return {"triage": [submit_plan([*(steps or [STEP])])], "execute": work, **more}


async def told() -> tuple[Run, Recording]:
    """While two steps work, in the planning and in between, the user speaks."""
    looks, gates = iter(range(9)), [asyncio.Event() for _ in range(2)]

    async def slow(where: str) -> str:
        """Look somewhere, slowly."""
        if where == "home":
            await made.tell("t", "only blue ones")
            gates[0].set()
        elif where == "shop":
            await gates[0].wait()
        elif where == "inn":
            await made.tell("t", "and quickly")
        return f"{where}: 3 lamps, look {next(looks)}"

    steps = [{"content": "Look at home", "depends_on": []}, {"content": "Look in the shop", "depends_on": []}]
    steps += [{"content": "Look in the inn", "depends_on": ["s1", "s2"]}]
    work = {
        "s1": [call("slow", where="home"), call("slow", where="attic"), finish_step("3", "s1.1")],
        "s2": [call("slow", where="shop"), finish_step("3", "s2.1")],
        "s3": [call("slow", where="inn"), finish_step("9", "s3.1")],
    }
    roles = {**script(*steps, work=work), "deliver": ["9 lamps"]}
    options: Any = {"settings": {**ONCE, "when_busy": "next_round"}, "effects": {"slow": "read"}}
    async with agent(roles, [slow], **options) as made:
        run = await made.start("Count the lamps", thread_id="t")
        return run, await Recording.of(made, run)


async def template() -> tuple[Run, Recording]:
    """A saved plan with another value."""
    steps = [{**STEP, "content": "Look in the shop"}]
    roles = script(*steps, work=[*LOOKED, call("look", where="inn"), finish_step("3", "s1.1")])
    async with agent(roles, settings=ONCE) as made:
        run = await made.start("Count the lamps in the shop")
        await made.templates.save(run, "count", {"place": "shop"})
        run = await made.start(template="count", parameters={"place": "inn"})
        return run, await Recording.of(made, run)


async def scheduled() -> tuple[Run, Recording]:
    """A schedule's run by a worker."""
    return await _schedule(run_it=True)


async def schedule() -> tuple[Run, Recording]:
    """The run that makes a schedule."""
    return await _schedule(run_it=False)


async def _schedule(*, run_it: bool) -> tuple[Run, Recording]:
    plan = submit_plan([STEP], schedule={"at": "08:30", "timezone": "Europe/Berlin"})
    async with agent({"triage": [plan], "execute": LOOKED if run_it else []}) as made:
        run = await made.resume(await made.start("Look every day"), "approve")
        if run_it:
            (kept,) = await made.schedules.list()
            async with made.worker():
                thread_id = await made.schedules.run(kept.id)
                async for _ in made.watch(thread_id):
                    pass
            run = await made.get(thread_id)
        return run, await Recording.of(made, run)


async def same_name() -> tuple[Run, Recording]:
    """An executor has the agent's tool, and one of its own of that kind."""

    def peek(where: str) -> str:
        """Peek somewhere."""
        return f"{where}: 5 lamps"

    work = [call("look", where="shop"), call("peek", where="shop"), finish_step("8", ("s1.2", "5 lamps"))]
    roles = script({**STEP, "executor": "scout"}, work=work)
    scout = Executor("looks", profile="You are a scout.", tools=[look, peek])
    async with agent(roles, settings=ONCE, executors={"scout": scout}, effects={**EFFECTS, "peek": "read"}) as made:
        run = await made.start("Count the lamps")
        return run, await Recording.of(made, run)


async def executors() -> tuple[Run, Recording]:
    """A graph that asks, with a model of its own, and a function that fails: both as executors."""
    own = ScriptedModel(["I found 4."])

    async def ask(state: MessagesState) -> Any:
        said = interrupt({"question": "Which shelf?", "options": ["left", "right"]})
        found = await own.ainvoke(state["messages"])
        return {"messages": [AIMessage(f"{found.text} {said}")]}

    async def fail(brief: str) -> str:
        """Fail."""
        raise ValueError("it is closed")

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask").compile(name="asks")
    steps = [{**STEP, "executor": "asker"}, {**STEP, "executor": "failing", "depends_on": []}]
    work = {
        "s1": [finish_step("4 on the left", ("s1.2", "I found 4. left"))],
        "s2": [finish_step("closed", ("s2.1", "it is closed"))],
    }
    roles = {**script(*steps, work=work), "deliver": ["4"]}
    known = {"asker": graph, "failing": Executor(work=fail)}
    async with agent(roles, settings=ONCE, executors=known) as made:
        run = await made.resume(await made.start("Count the lamps"), "left")
        return run, await Recording.of(made, run)


async def tool_asks() -> tuple[Run, Recording]:
    """A tool asks twice, the second time with a form, as MCP servers do."""

    async def book(day: str) -> str:
        """Book a table."""
        name = interrupt("For whom?")
        form = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        filled = interrupt({"question": "How many?", "schema": form})
        return f"{day}: {name}, {filled['count']} people"

    work = [call("book", day="monday"), finish_step("Booked", ("s1.3", "Ann, 3 people"))]
    async with agent(
        script({**STEP, "tools": ["book"]}, work=work), [book], settings=ONCE, effects={"book": "write"}
    ) as made:
        run = await made.start("Book a table")
        run = await made.resume(await made.resume(run, "Ann"), {"count": 3})
        return run, await Recording.of(made, run)


async def server_asks() -> tuple[Run, Recording]:
    """An MCP server asks with a form."""
    work = [call("order", what="shirt"), finish_step("Ordered", ("s1.2", "1 shirt in L"))]
    with tempfile.TemporaryDirectory() as folder:
        async with McpServers(shop(TODAY, Path(folder))) as servers:
            settings = {**ONCE, "approvals": "never"}
            async with agent(script(work=work), servers, settings=settings, effects=None) as made:
                run = await made.resume(await made.start("Order a shirt"), "size: L")
                return run, await Recording.of(made, run)


async def budget() -> tuple[Run, Recording]:
    """Money is limited, and a person grants more."""
    settings = {**ONCE, "limits": {"cost_usd": 0.01}, "on_exhausted": "ask"}
    prices: Any = {"scripted": {"input": 5, "output": 5}}
    async with agent(script(), settings=settings, prices=prices) as made:
        run = await made.start("Count the lamps")
        assert run.status == "waiting"
        run = await made.resume(run, "extend")
        return run, await Recording.of(made, run)


async def conversation() -> tuple[Run, Recording]:
    """Three requests on a thread, and an audit in between."""
    roles = {
        "triage": [answer("Hello."), call("look", where="shop"), answer("3 lamps."), answer("As I said, 3.")],
        "judge": [audit()],
    }
    async with agent(roles, settings={"verification": "claimed"}) as made:
        for goal in ("Hi", "How many lamps?", "How many?"):
            run = await made.start(goal, thread_id="talk", request_id=goal)
            if goal == "How many lamps?":
                await made.audit(run)
        return run, await Recording.of(made, run)


async def undone() -> tuple[Run, Recording]:
    """What a request wrote is undone, and the next one is about that."""
    work = [call("write_file", path="a.txt", content="3 lamps"), finish_step("Written", "s1.1")]
    roles = {"triage": [submit_plan([{**STEP, "tools": ["write_file"]}]), answer("Undone.")], "execute": work}
    with tempfile.TemporaryDirectory() as folder:
        async with agent(roles, workspace_tools(folder), settings=ONCE, effects=None) as made:
            run = await made.start("Write it down", thread_id="undone")
            assert (await made.undo(run)).status == "undone"
            run = await made.start("What became of it?", thread_id="undone")
            return run, await Recording.of(made, run)


async def hooks() -> tuple[Run, Recording]:
    """Policies refuse, ask, add a note, and ask before the end."""

    def before(about: Call) -> Any:
        return {"cellar": Refuse("dark"), "attic": Ask("Really?")}.get(about.arguments.get("where", ""))

    def after(about: Call) -> Any:
        return Refuse("secret") if "attic" in about.text else Note("seen by the policy") if about.ok else None

    def end(about: End) -> Any:
        return Ask("May it end?")

    places = [call("look", where=where) for where in ("cellar", "attic", "shop")]
    done = finish_step("3 lamps", ("s1.3", "3 lamps"))
    async with agent(script(work=[places, done, done]), settings=ONCE, hooks=Hooks([before], [after], [end])) as made:
        run = await made.resume(await made.start("Count the lamps"), "approve")
        run = await made.resume(run, "approve")
        return run, await Recording.of(made, run)


async def parallel() -> tuple[Run, Recording]:
    """Parallel steps, and parallel calls, whose results depend on who comes first."""
    steps = [{**STEP, "depends_on": []}, {**STEP, "depends_on": []}]
    twice = [call("look", where="shop"), call("look", where="shop")]
    work = {f"s{n}": [twice, finish_step("3", (f"s{n}.2", "3 lamps"))] for n in (1, 2)}
    async with agent({**script(*steps, work=work), "deliver": ["3"]}, settings=ONCE) as made:
        run = await made.start("Count the lamps")
        return run, await Recording.of(made, run)


async def typed() -> tuple[Run, Recording]:
    """The caller has criteria, wants data, passes tools with the run, and has a memory."""
    done = [*LOOKED[:1], finish_step("3 lamps", [("s1.1", "3 lamps")] * 2)]
    roles = {
        **script({**STEP, "tools": ["look"]}, work=done),
        "deliver": [deliver("3 lamps", 3)],
        "judge": [audit(), audit()],
    }
    settings = {**ONCE, "done_when": ["The lamps are counted"]}
    async with agent(roles, [], effects=None, settings=settings, memory=lambda goal, id: "Ann likes lamps.") as made:
        run = await made.start("Count the lamps", tools=[look], output_type=int, request_id="r1")
        return run, await Recording.of(made, run)


async def steered() -> tuple[Run, Recording]:
    """A run is stopped, steered, stopped again and cancelled."""

    def stop(where: str) -> str:
        """Look, and stop."""
        made.drain()
        return f"{where}: 3 lamps"

    again = submit_plan([{**STEP, "content": "Look in the inn"}])
    roles = {"triage": [submit_plan([STEP]), again], "execute": [call("stop", where=w) for w in "ab"]}
    async with agent(roles, [stop], settings=ONCE, effects={"stop": "read"}) as made:
        run = await made.start("Count the lamps")
        run = await made.resume(run, steer="rather in the inn")
        run = await made.cancel(run.thread_id, "enough")
        return run, await Recording.of(made, run)


KINDS = [
    told,
    template,
    schedule,
    scheduled,
    same_name,
    executors,
    tool_asks,
    server_asks,
    budget,
    conversation,
    undone,
]
KINDS += [hooks, parallel, typed, steered]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run_replays(kind: Any, tmp_path: Path) -> None:
    """R02: with the file alone, whatever worked in parallel; status, answer and results are those recorded."""
    run, recording = wait(kind())
    recording.save(tmp_path / "kind.jsonl")
    again = wait(Recording.load(tmp_path / "kind.jsonl").replay())
    assert (again.status, again.answer, again.output) == (run.status, run.answer, run.output)
    assert [each["result"] for each in again.steps.values()] == [each["result"] for each in run.steps.values()]
