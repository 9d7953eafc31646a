"""The public names as a user writes them. mypy and pyright read this file (`make typecheck`); nobody runs it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import assert_type

from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from donewhen import (
    Agent,
    AgentOptions,
    ConfigError,
    Executor,
    Limits,
    McpServers,
    Profile,
    Run,
    Settings,
    StaleAnswer,
    build_graph,
    wait,
)
from donewhen.executors import Executors, RemoteAgent
from donewhen.hooks import Ask, Call, End, Hooks, Note, Question, Refuse
from donewhen.plans import PlanStore, plan_tools
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from donewhen.types import Outcome, Page, Pause, PlanJson, Receipt, ThreadInfo


@tool
def search(query: str) -> str:
    """Search the catalogue."""
    return query


def look(path: str) -> str:
    """Look at a file."""
    return path


def policy(made: Call) -> Refuse | Ask | None:
    return Refuse("no") if made.effect == "write" else Ask("yes?")


async def observe(made: Call) -> Note:
    return Note(made.text)


def at_the_end(end: End) -> None:
    """Agree."""


def to_people(asked: Question) -> Refuse | None:
    return Refuse("no") if asked.kind == "plan" else None


HOOKS = Hooks(before_call=[policy], after_call=[observe], before_end=[at_the_end], before_question=[to_people])


async def life_of_a_run() -> None:
    settings = Settings(confirm="never", limits=Limits(rounds=60, cost_usd=0.5), profile=Profile(role="clerk"))
    async with McpServers("servers.json", environment={"TOKEN": "t"}) as servers:
        assert_type(servers.unusable, dict[str, str])
        clerk = Agent("openai:gpt-5.4-mini", [servers, search])
        clerk.tools.add(look, effects={"look": "read"})
        clerk.tools.remove("look", servers)
        assert_type([tool.name for tool in clerk.tools], list[str])
    async with Agent("openai:gpt-5.4-mini", [search, look], effects={"look": "read"}, settings=settings) as agent:
        run = await agent.start("find offers", thread_id="t", settings={"verification": "judged"})
        assert_type(run, Run)
        assert_type(run.spent, Mapping[str, float])
        assert_type(run.plan, PlanJson | None)
        assert_type(run.pending, tuple[Pause, ...])
        assert_type(run.outcome, Outcome | None)
        assert_type(run.receipt, Receipt | None)
        run = await agent.start("find offers", output_type=Limits)
        try:
            run = await agent.resume(run, "approve")
        except StaleAnswer as error:
            assert_type(error.pending, list[str])
        assert_type(await agent.threads(), Page[ThreadInfo])
        run = await agent.get(run.thread_id)
    agent.graph.get_graph()


def scripts() -> None:
    model = ScriptedModel([submit_plan(["look"]), call("look", path="a"), finish_step("seen"), answer("Done.")])
    try:
        run = wait(Agent(model, storage="memory:").start("look"))
        assert_type(run, Run)
    except ConfigError:
        return


def embedded() -> None:
    builder = build_graph(ScriptedModel([]), [search], effects={"search": "read"})
    builder.compile(checkpointer=InMemorySaver())


def executors() -> None:
    far = RemoteAgent("https://agents.example/far", headers={"Authorization": "Bearer …"})
    agent = Agent(
        "openai:x",
        executors={"writer": Executor("writes"), "far": Executor(remote=far), "lib": "a2a:https://a.example"},
        options=AgentOptions(context="in Berlin", memory=lambda goal, thread_id: goal),
    )
    assert_type(agent.executors, Executors)
    agent.executors["late"] = Executor(passthrough=True)
    agent.executors.enable("far", enabled=False)
    del agent.executors["late"]


async def in_the_background() -> None:
    store = PlanStore("sqlite:///runs.db")
    async with Agent(
        "openai:x", plan_tools(store), storage="sqlite:///runs.db", options=AgentOptions(queue="reports")
    ) as agent:
        thread = await agent.submit("report", owner="ann")
        assert_type(thread, str)
        async with agent.worker(concurrency=2):
            async for event, cursor in agent.watch(thread):
                print(event["type"], cursor)
        run = await agent.start(template="report", parameters={"year": 2026}, tools=[look])
        run = await agent.cancel(run.thread_id)
        for schedule in await agent.schedules.list():
            print(schedule.next_runs, (await agent.schedules.pause(schedule.id)).status)
        await agent.templates.save(run, "report", {"year": "2026"})
        print(await agent.pending(owner="ann"), await agent.prune(timedelta(days=30)))
        print((await store.mark_step(1, "completed")).text)
