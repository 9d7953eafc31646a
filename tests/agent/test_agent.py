"""The public face: what an Agent can do, what its graph can do, and what is exported."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.memory import InMemoryStore

from donewhen import (
    Agent,
    AgentOptions,
    ConfigError,
    GoalError,
    Limits,
    Models,
    Run,
    Settings,
    ThreadInfo,
    UnknownThread,
    build_graph,
    wait,
)
from donewhen.testing import ScriptedModel, answer, call, submit_plan
from tests.kit.places import ROOT
from tests.kit.runs import Outbox, config, one_step, said, scripted, sending, step

ALONE = Settings(confirm="never")


IMPORTS = """
import sys
heavy = ("langgraph", "langchain", "langchain_openai", "openai", "genai_prices", "psycopg", "rich", "pytest")
loaded = lambda: [name for name in heavy if name in sys.modules]
import donewhen
print(loaded())
import agent.testing as testing
print("donewhen.graph.build" in sys.modules, {"langchain_openai", "openai", "pytest"} & set(loaded()))
from donewhen.agent.models import ModelSource
ModelSource("openai:gpt-5-mini")
print({"langchain_openai", "openai", "genai_prices", "langchain"} & set(loaded()))
"""
FIRST_REQUEST = """
import asyncio, os, sys
from langchain_core.language_models import FakeListChatModel
from donewhen import Agent
from donewhen.state.plan.written import Plan
from donewhen.state.proof import quotes
late = ("jsonschema", "regex", "jsonpath_ng", "tomllib", "openai", "psycopg", "a2a")
class Model(FakeListChatModel):
    def bind_tools(self, *_, **__):
        return self
    def _astream(self, *_, **__):
        compiled = "findall" in vars(quotes._TOKEN)
        print([m for m in late if m in sys.modules], Plan.__pydantic_complete__, compiled, flush=True)
        os._exit(0)
def look(what: str) -> str:
    "Look."
    return what
asyncio.run(Agent(Model(responses=[]), tools=[look], storage="memory:").start("hello"))
"""
COMMAND = """
import os, sys
late = ("jsonschema", "regex", "jsonpath_ng", "duckdb", "genai_prices", "psycopg", "a2a", "starlette")
def heard(event, arguments):
    if event == "socket.connect":
        print([m for m in late if m in sys.modules], flush=True)
        os._exit(0)
sys.addaudithook(heard)
sys.argv = ["donewhen", "run", "Count"]
from donewhen.agent.cli import main
main()
"""
HELP = """
import sys
sys.argv = ["donewhen", "run", "--help"]
from donewhen.agent.cli import main
try:
    main()
except SystemExit:
    print(sorted({m.partition(".")[0] for m in sys.modules} & {"langgraph", "langchain_core", "openai"}))
"""
SCHEMAS = """
import sys
from donewhen import Agent, AgentOptions
about = {"description": "d", "input_schema": {"type": "object", "required": ["a"], "properties": {
    "a": {"type": "array", "items": {"type": "string", "enum": ["x"], "title": "A", "default": "x"}},
    "b": {"type": "object", "additionalProperties": {"type": "integer", "description": "B"}}}}}
Agent("demo", {"t": about}, options=AgentOptions(caller=print), storage="memory:")
print("jsonschema" in sys.modules)
"""
STARTS = {
    "imports: the package nothing heavy, the model for tests no runtime, a model's name no provider's library": (
        IMPORTS,
        ["[]", "False set()", "set()"],
    ),
    "the first request waits for nothing that checks calls and paths, reads catalogues or validates plans": (
        FIRST_REQUEST,
        ["[] False False"],
    ),
    "the command's first request": (COMMAND, ["[]"]),
    "--help loads neither LangGraph nor a provider's library": (HELP, ["[]"]),
    "nor does --version": (HELP.replace('"run", "--help"', '"--version"'), ["[]"]),
    "nor does checking a receipt": (HELP.replace('"run", "--help"', '"verify", "/dev/null"'), ["[]"]),
    "ordinary schemas, as MCP servers have them by the hundred, need no jsonschema": (SCHEMAS, ["False"]),
}


@pytest.mark.parametrize("start", STARTS)
def test_a_start_loads_only_what_it_needs(start: str, tmp_path: Path) -> None:
    """P19, T (cold start), R (500 tools): what only later requests need comes with them."""
    program, printed = STARTS[start]
    variables = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "DONEWHEN_MODEL": "openai:scripted"}
    environment = {**os.environ, **variables, "DONEWHEN_STORAGE": str(tmp_path / "runs.db"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.splitlines()[-len(printed) :] == printed, done.stderr


class CountedTool(StructuredTool):
    """Counts how often its schema is made."""

    made: ClassVar[list[str]] = []

    @property
    def tool_call_schema(self) -> Any:
        self.made.append(self.name)
        return super().tool_call_schema


async def test_an_agent_with_many_tools_makes_their_schemas_when_they_are_first_used() -> None:
    """N55, R (500 tools): making the agent makes none of them, and runs make each one once."""
    CountedTool.made.clear()
    tools = [CountedTool.from_function(lambda x: x, name=f"t{n}", description="d") for n in range(40)]
    async with Agent(ScriptedModel(roles={"triage": lambda *_: "Hello."}), tools, storage="memory:") as agent:
        assert CountedTool.made == []
        for _ in range(2):
            assert (await agent.start("hello")).status == "answered"
    assert len(CountedTool.made) == len(set(CountedTool.made))


async def test_start_resume_get_receipt_delete() -> None:
    """§9, A4: the life of a run through the public face; what is noted on it is its `metadata`."""
    model = one_step()
    async with Agent(model, storage="memory:") as agent:
        run = await agent.start("do it", thread_id="t", metadata={"folder": "/work"})
        assert (run.thread_id, run.status, run.goal, run.answer) == ("t", "waiting", "do it", "")
        assert run.plan is not None
        assert run.outcome is run.receipt is None
        assert await agent.get("t") == run
        assert await agent.receipt("t") is None
        info = await agent.info("t")
        assert (info.goal, info.status, info.metadata) == ("do it", "waiting", {"folder": "/work"})
        ended = await agent.resume("t", "approve")
        assert (ended.status, ended.answer, ended.pending) == ("answered", "done", ())
        assert await agent.receipt("t") == ended.receipt
        assert (ended.receipt or {})["steps"][0]["criteria"][0]["verdict"] == "cited"
        assert [info.status for info in await agent.threads()] == ["answered"]
        await agent.delete("t")
        assert await agent.threads() == []
        for gone in (agent.get("t"), agent.delete("t")):  # N32
            with pytest.raises(UnknownThread):
                await gone
    model.assert_exhausted()


async def test_events_end_with_exactly_one_terminal_event() -> None:
    """S01: started first, the terminal event last, for a pause, an end and a mere look."""
    agent = Agent(one_step(), storage="memory:")
    for events, last in (
        (agent.stream("do it", thread_id="t"), "waiting"),
        (agent.stream_resume("t"), "waiting"),
        (agent.stream_resume("t", "approve"), "outcome"),
        (agent.stream_resume("t"), "outcome"),
    ):
        told = [event["type"] async for event in events]
        assert (told[0], told[-1]) == ("started", last)
        assert sum(type in ("waiting", "outcome", "error") for type in told) == 1


async def test_a_failure_is_an_event_and_an_exception() -> None:
    """S01: what breaks while a run works ends the stream with `error`; `resume` raises it. A refusal is raised."""

    model = one_step()
    agent = Agent(model, storage="memory:")
    await agent.start("do it", thread_id="t")
    await agent.graph.aupdate_state(config("t"), {"language": 7, "pending": None}, as_node="plan")
    stream = agent.stream_resume("t")
    told = [event async for event in stream]
    assert [event["type"] for event in told] == ["started", "error"]
    assert (told[-1]["kind"], isinstance(stream.error, FileNotFoundError), stream.run) == (
        "FileNotFoundError",
        True,
        None,
    )
    with pytest.raises(FileNotFoundError):
        await agent.resume("t")
    assert (await agent.get("t")).status == "running"
    with pytest.raises(GoalError):
        [event async for event in agent.stream("   ")]
    with pytest.raises(UnknownThread):
        [event async for event in agent.stream_resume("nobody")]


class Heard(AsyncCallbackHandler):
    """What models, tools and the run itself are told of the caller's configuration."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    async def on_chat_model_start(self, serialized: Any, messages: Any, **options: Any) -> None:
        self.runs.append({"kind": "model", **options})

    async def on_tool_start(self, serialized: Any, input: str, **options: Any) -> None:
        self.runs.append({"kind": "tool", **options, "name": serialized["name"]})

    async def on_chain_start(self, serialized: Any, inputs: Any, **options: Any) -> None:
        if options["parent_run_id"] is None:
            self.runs.append({"kind": "run", **options})

    def kinds(self) -> set[str]:
        return {each["kind"] for each in self.runs}


@pytest.mark.parametrize("way", ["start", "stream", "graph", "embedded"])
async def test_tools_and_the_run_hear_the_callers_configuration_too(way: str) -> None:
    """CLIENTS §7: run name, tags and metadata arrive at model and tool runs, whichever way a run is started."""
    heard, outbox = Heard(), Outbox()
    model = sending(call("send", to="ann", text="hi"), tools=["send"])
    settings = Settings(confirm="never", approvals="never")
    given: Any = {"callbacks": [heard], "tags": ["mine"], "metadata": {"customer": "7"}, "run_name": "nightly"}
    before = {key: value.copy() if isinstance(value, dict) else value for key, value in given.items()}
    asked: Any = {"messages": [{"role": "user", "content": "send it"}]}
    thread: Any = {**given, "configurable": {"thread_id": "t"}}
    async with Agent(model, [outbox.tool()], storage="memory:", settings=settings) as agent:
        if way == "start":
            await agent.start("send it", thread_id="t", config=given)
        elif way == "stream":
            assert [event async for event in agent.stream("send it", thread_id="t", config=given)]
        elif way == "graph":
            await agent.graph.ainvoke(asked, thread)
        else:
            graph = build_graph(model, [outbox.tool()]).compile(InMemorySaver(), store=InMemoryStore())
            await graph.ainvoke(asked, thread, context=settings)
    assert len(outbox.sent) == 1
    assert heard.kinds() == {"model", "tool", "run"}
    for run in heard.runs:
        assert "mine" in run["tags"]
        assert (run["metadata"]["customer"], run["metadata"]["thread_id"]) == ("7", "t")
        assert run["metadata"].get("session_id", "t") == "t"
    assert given == before
    assert {run["name"] for run in heard.runs if run["kind"] == "run"} == {"nightly"}
    assert {run["name"] for run in heard.runs if run["kind"] == "tool"} == {"send"}


async def test_a_session_and_a_thread_of_the_callers_configuration() -> None:
    """CLIENTS §7: a session given by the caller comes first; the thread is that of the call."""
    agent, heard = Agent(scripted(answer("Hi."), deliver=()), storage="memory:"), Heard()
    theirs: Any = {"callbacks": [heard], "metadata": {"session_id": "s"}, "configurable": {"thread_id": "x", "own": 1}}
    run = await agent.start("hello", thread_id="t", config=theirs)
    (model,) = [each for each in heard.runs if each["kind"] == "model"]
    assert (run.thread_id, model["metadata"]["session_id"], model["metadata"]["thread_id"]) == ("t", "s", "t")


async def test_settings_and_limits_per_call() -> None:
    """§9: settings of the agent, or of one call; a dict does as well."""
    agent = Agent(one_step(), storage="memory:", settings=Settings(limits=Limits(rounds=7)))
    run = await agent.start("do it", settings={"confirm": "never", "limits": {"rounds": 5}})
    assert run.status == "answered"
    assert {row["key"]: row["limit"] for row in (run.receipt or {})["meter"]}["rounds"] == 5


@pytest.mark.parametrize("storage", ["memory:", "sqlite"])
def test_wait_is_the_synchronous_way(storage: str, tmp_path: Path) -> None:
    """§9: one helper; connections of one call serve the next; errors and results come through.

    In a notebook a loop runs already: it works beside it; a coroutine that would wait for itself is told so.
    """
    agent = Agent(one_step(), storage=f"sqlite:///{tmp_path}/runs.db" if storage == "sqlite" else storage)

    async def in_a_notebook() -> Run:
        return wait(agent.start("do it"))

    async def inner() -> None:
        wait(agent.threads())

    run: Run = asyncio.run(in_a_notebook())
    assert wait(agent.resume(run.thread_id, "approve")).status == "answered"
    info: list[ThreadInfo] = wait(agent.threads())
    assert [each.status for each in info] == ["answered"]
    with pytest.raises(UnknownThread):
        wait(agent.get("nobody"))
    with pytest.raises(RuntimeError, match="use await"):
        wait(inner())


def test_ctrl_c_cancels_what_is_waited_for() -> None:
    """§9: the run is cut off like any other, and can be resumed."""
    reached = threading.Event()

    async def slow(messages: list[Any], tools: list[Any]) -> Any:
        if not reached.is_set():
            reached.set()
            await asyncio.Event().wait()
        return said("s1")

    agent = Agent(scripted(submit_plan([step("s1")]), {"s1": slow}), storage="memory:", settings=ALONE)
    main = threading.main_thread().ident
    assert main is not None
    killer = threading.Thread(target=lambda: (reached.wait(), signal.pthread_kill(main, signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a server in an earlier test may have its own
    killer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            wait(agent.start("do it", thread_id="t"))
    finally:
        signal.signal(signal.SIGINT, before)
    killer.join()
    assert wait(agent.get("t")).status == "running"
    assert wait(agent.resume("t")).status == "answered"


async def test_a_graph_is_a_langgraph_graph() -> None:
    """§9: embed, draw, inspect: it is what `compile` returns, with a checkpointer and a store."""
    graph = Agent(one_step(), storage="memory:").graph
    assert isinstance(graph, CompiledStateGraph)
    assert graph.checkpointer is not None
    assert graph.store is not None
    assert {"plan", "confirm", "advance", "execute", "ask_user", "deliver"} <= set(graph.get_graph().nodes)
    assert graph.get_input_jsonschema()["properties"].keys() == {"messages"}
    bound = graph.with_config(config("t"))
    assert "__interrupt__" in await bound.ainvoke({"messages": "do it"})
    with pytest.raises(ValueError, match="configurable"):
        await graph.ainvoke({"messages": "do it"})


async def test_values_of_another_kind(tmp_path: Path) -> None:
    """L1: a typed error at once, and no worker that never takes anything up; a path and a UUID are as good as text."""
    with pytest.raises(ConfigError, match="settings are a Settings or a dict, not int"):
        Agent("demo", settings=5, storage="memory:")  # type: ignore[arg-type]
    id: Any = uuid4()
    async with Agent(one_step(), storage=tmp_path / "runs.db") as agent:
        with pytest.raises(GoalError, match="but int"):
            await agent.submit(5)
        for none in (0, -1):
            with pytest.raises(ConfigError, match="at least one run"):
                agent.worker(concurrency=none)
        assert await agent.threads() == []
        run = await agent.start("do it", thread_id=id)
        assert run.thread_id == str(id) == (await agent.get(id)).thread_id
        assert (await agent.cancel(thread_id=id)).status == "cancelled"
        await agent.delete(id)
        assert await agent.threads() == []
    assert (tmp_path / "runs.db").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *[(name, rf"Models\(model, {name}=") for name in ("thinking", "prices")],
        ("models", r"Models\(model, roles="),
        *[(each.name, rf"AgentOptions\({each.name}=") for each in fields(AgentOptions)],
        ("tool", "did you mean tools"),
        ("zzz", "Agent has no argument 'zzz'; there are: "),
    ],
)
def test_an_argument_that_an_agent_does_not_have_is_named_with_what_to_write(name: str, said: str) -> None:
    """Q90: an Agent takes 12 arguments and no more; one that moved, or is misspelt, says what to write instead."""
    taken = [each for each in signature(Agent).parameters.values() if each.kind != Parameter.VAR_KEYWORD]
    assert len(taken) <= 12
    assert name not in {each.name for each in taken}
    with pytest.raises(TypeError, match=said):
        Agent("demo", **{name: None})


@pytest.mark.parametrize("given", [{"model": 42}, {"model": ScriptedModel}, {"model": Models("demo", {"plan": 42})}])
def test_a_model_of_another_kind_is_refused_when_the_agent_is_made(given: dict[str, Any]) -> None:
    """L1: and not in the first run; a class in place of an instance is named."""
    with pytest.raises(ConfigError, match=r"not (the class ScriptedModel|of type int|int)$"):
        Agent(storage="memory:", **given)


class Down(ScriptedModel):
    """A provider that is down."""

    async def _agenerate(self, *given: Any, **named: Any) -> Any:
        raise ConnectionError("down")


@pytest.mark.parametrize(
    "wrapped", [lambda model: Down().with_fallbacks([model]), lambda model: model.with_config(tags=["ours"])]
)
async def test_a_model_that_wraps_one(wrapped: Any) -> None:
    """L1: what LangChain makes of chat models, and takes tools as they do, is one; it was refused by its class."""
    async with Agent(wrapped(scripted(answer("Hello!"))), storage="memory:") as agent:
        assert (await agent.start("greet me")).answer == "Hello!"


def test_an_agent_without_storage_says_where_its_runs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Q31: the log names the user's file; two agents, and only that which names no storage says so."""
    monkeypatch.delenv("DONEWHEN_STORAGE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with caplog.at_level("INFO", "donewhen"):
        Agent("demo")
        Agent("demo", storage="memory:")
    (said,) = [record.getMessage() for record in caplog.records if "runs are kept" in record.getMessage()]
    assert str(tmp_path) in said
