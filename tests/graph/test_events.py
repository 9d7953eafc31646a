"""What a run tells while it works: typed events, in order, exactly one terminal one at the end."""

import asyncio
import json
import sys
from datetime import date
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.types import Command, interrupt
from pydantic import TypeAdapter
from typer.testing import CliRunner

from donewhen import Agent, Limits, Settings
from donewhen.agent.cli.app import app
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.graph.build import build_graph
from donewhen.graph.events import PASSING
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, give_up, submit_plan
from donewhen.types import Event, event_schema
from tests.kit.flows import FREE, one_step, play, steps
from tests.kit.runs import config
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

SHAPE: TypeAdapter[Any] = TypeAdapter(Event)
TERMINAL = ("waiting", "outcome", "error")


def look(x: str = "") -> str:
    """Look."""
    return f"seen {x}"


def well_formed(events: list[dict[str, Any]], starts: int = 1) -> None:
    """Every event is of its type and dumps to JSON; each stream begins once and ends once."""
    for event in events:
        SHAPE.validate_python(event, strict=True, extra="forbid")
        assert json.loads(json.dumps(event)) == event
    assert [e["type"] for e in events].count("started") == starts
    assert len([e for e in events if e["type"] in TERMINAL]) == starts
    assert events[0]["type"] == "started"
    kept = 0
    for event, before in zip(events[1:], events, strict=False):
        kept = kept if before["type"] in (*PASSING, "started", *TERMINAL) else before["seq"]
        assert event["after"] == kept <= before["seq"] < event["seq"]
        assert (event["thread_id"], event["turn"]) == (before["thread_id"], 1)
    assert events[-1]["type"] in TERMINAL


PLAN = [{"content": "look", "tools": ["look"]}, {"content": "write", "tools": None}]


async def test_a_run_is_told_in_order() -> None:
    """S01, U6: events are typed and in the order in which things happened; the last one is the outcome. The todos told
    are those of the state, from pending to completed; the last one is the answer."""
    rounds = {
        "s1": ["Looking closely at it now.", call("look", x="there"), call("nothing"), finish_step("seen", "s1.1")],
        "s2": [finish_step("written", "s2.result")],
    }
    flow = await play(steps(PLAN, rounds), [look], effects={"look": "read"})
    well_formed(flow.events)
    kinds = [e["type"] for e in flow.events if e["type"] not in ("todos", "charged", "spent", "speech")]
    assert kinds == [
        *("started", "goal", "decision", "mode", "plan", "revision"),
        *("step_started", "decision", "decision", "tool_started", "observation", "correction", "decision", "verdicts"),
        *("step_finished", "step_started", "decision", "verdicts", "step_finished", "audit", "outcome"),
    ]
    assert [e["kind"] for e in flow.told("decision") if e["step"] == "s1"] == ["speak", "calls", "finish_step"]
    assert flow.told("tool_started")[0]["id"] == flow.told("observation")[0]["id"] == "s1.1"
    assert [v["verdict"] for v in flow.told("verdicts")[0]["verdicts"]] == ["cited"]
    assert [(e["step"], e["status"]) for e in flow.told("step_finished")] == [("s1", "done"), ("s2", "done")]
    assert (flow.events[-1]["status"], flow.events[-1]["text"]) == ("completed", "Done.")
    rows = [[todo["status"] for todo in event["todos"]] for event in flow.told("todos")]
    assert rows[0] == ["in_progress", "pending", "pending"]
    assert rows[-2:] == [["completed", "completed", "pending"], ["completed"] * 3]
    assert flow.told("todos")[-1]["todos"] == flow.values["todos"]


async def streamed(tool: Any, thread: str | None = None) -> tuple[list[Any], Any]:
    """What a run tells in which a step calls this tool, and the run."""
    name = tool.__name__
    model = one_step([call(name), finish_step("x", "s1.1")], tools=[name])
    agent = Agent(model, [tool], storage="memory:", effects={name: "read"}, settings=Settings(**FREE))
    async with agent.stream("go", thread_id=thread) as stream:
        told = [dict(event) async for event in stream]
    return told, stream.run


def test_events_have_a_schema() -> None:
    """A1, S01: one union told apart by `type`, for programs in any language."""
    schema = event_schema()
    assert json.loads(CliRunner().invoke(app, ["events"]).stdout) == schema
    for name in schema["discriminator"]["mapping"].values():
        assert {"thread_id", "turn", "seq", "after"} <= set(schema["$defs"][name.rpartition("/")[2]]["required"])
    assert schema["discriminator"]["propertyName"] == "type"
    assert {"started", "speech", "observation", "waiting", "outcome", "error"} <= set(
        schema["discriminator"]["mapping"]
    )


@pytest.mark.parametrize(
    ("written", "data"),
    [
        ("half of it", "half of it"),
        ({"type": "outcome", "status": "completed"}, {"type": "outcome", "status": "completed"}),
        ({1: date(2026, 11, 22), "who": {"ann"}}, {"1": "2026-11-22", "who": ["ann"]}),
    ],
    ids=str,
)
async def test_what_a_tool_writes_to_the_stream(written: Any, data: Any) -> None:
    """S01, X07: it comes as an event of its own, is none of ours, and the run goes on; it was cut off."""

    def look() -> str:
        """Look."""
        get_stream_writer()(written)
        return "seen"

    told, run = await streamed(look)
    assert [event["data"] for event in told if event["type"] == "custom"] == [data]
    assert (run.status, [event["type"] for event in told].count("outcome")) == ("completed", 1)
    json.dumps(told)


async def test_a_tool_that_passes_on_what_another_agent_tells() -> None:
    """S01: the end of the run inside, as its wait for an answer, is not the end of the run around."""

    async def ask_another() -> str:
        """Ask another agent."""
        write = get_stream_writer()
        async with Agent(ScriptedModel(roles={"triage": [ask_user("Which?")]}), storage="memory:") as other:
            async for event in other.stream("inside", thread_id="inside"):
                write(event)
        return "asked"

    told, run = await streamed(ask_another, "around")
    assert run.status == "completed"
    assert {event["thread_id"] for event in told} == {"around"}
    assert "waiting" in [event["data"]["type"] for event in told if event["type"] == "custom"]


async def test_events_of_a_graph_on_another_storage_go_on_in_another_process() -> None:
    """S01: on a server of LangGraph's, whoever goes on, `seq` grows; turns are counted."""
    graph = build_graph(one_step([ask_user("Which?"), finish_step("x", "s1.1")])).compile(checkpointer=InMemorySaver())
    code = "from donewhen.graph import events; print(events.log_of('t').number({})['seq'])"

    async def told(given: Any) -> list[dict[str, Any]]:
        parts = graph.astream(given, config("t"), context=Settings(**FREE), stream_mode="custom", subgraphs=True)
        return [event async for _, event in parts]

    first = await told({"messages": [("user", "go")]})
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    between, _ = await other.communicate()
    last = await told(Command(resume="this"))
    seqs = [event["seq"] for event in first + last]
    assert seqs == sorted(set(seqs))
    assert seqs[len(first) - 1] < int(between) < last[0]["seq"]
    assert {event["turn"] for event in first + last} == {1}
    question = next(event for event in first if event["type"] == "question")
    assert (question["question"], question["step"], question["kind"]) == ("Which?", "s1", "question")


async def test_an_id_is_of_one_call() -> None:
    """Q59: of reads that are made together, one asks a person; what began under an id is what was observed under it."""

    async def ask_it(x: str) -> str:
        """Ask."""
        return f"seen {x} and {interrupt('Which one?')}"

    calls = [
        call("look", x="1"),
        call("ask_it", x="2"),
        call("look", x="3"),
        call("ask_it", x="4"),
        call("look", x="5"),
    ]
    model = one_step([calls, finish_step("x", ("s1.1", "seen 1"))], tools=["look", "ask_it"])
    effects: Any = {"look": "read", "ask_it": "read"}
    flow = await play(model, [look, ask_it], effects=effects, answers=["this", "that"], settings=Settings(**FREE))
    assert flow.status == "completed"
    seen = [(event["id"], event["text"]) for event in flow.told("observation") if event["tool"] in effects]
    assert len(seen) == len({id for id, _ in seen}) == 5
    last = {event["id"]: event["arguments"]["x"] for event in flow.told("tool_started")}
    assert all(text.startswith(f"seen {last[id]}") for id, text in seen)


async def test_silence_is_told() -> None:
    """U1: a model that says nothing for a while is noticed, before its patience ends."""
    with WireServer([fault(hang=0.6, reply=answer("Hi."))]) as server:
        flow = await play(wired(server), settings=Settings(model_seconds=2.0))
    assert flow.told("stalled")[0]["seconds"] >= 0.4
    assert flow.run.answer == "Hi."


ENDS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "answered": (lambda: ScriptedModel([answer("Hi.")]), {}, "outcome"),
    "declined": (lambda: ScriptedModel([decline("r", "g")]), {}, "outcome"),
    "no plan": (lambda: ScriptedModel(["a", "b", "c"]), {}, "outcome"),
    "model error": (lambda: ScriptedModel([ModelError("no key", code="auth")]), {}, "outcome"),
    "step failed": (lambda: one_step([give_up("no")], deliver=[]), {"on_failure": "deliver"}, "outcome"),
    "out of budget": (
        lambda: one_step([], deliver=[]),
        {"limits": Limits(rounds=0), "on_exhausted": "stop"},
        "outcome",
    ),
    "asks": (lambda: ScriptedModel([ask_user("Which?")]), {}, "waiting"),
    "confirms": (lambda: ScriptedModel([submit_plan(["a"])]), {"confirm": "always"}, "waiting"),
    "storage fails": (lambda: one_step([[call("look")]]), {}, "error"),
}


@pytest.mark.parametrize("end", ENDS)
async def test_every_end_is_one_event(end: str) -> None:
    """S01: however a stream ends, failures included, exactly one terminal event is the last."""
    build, settings, last = ENDS[end]
    storage = crashing("memory:", Crash(12 if end == "storage fails" else None))
    agent = Agent(build(), [look], storage=storage, effects={"look": "read"}, settings=Settings(**{**FREE, **settings}))
    events = [dict(event) async for event in agent.stream("go")]
    well_formed(events)
    assert events[-1]["type"] == last


async def test_a_resumed_stream_begins_and_ends_too() -> None:
    """S01: each stream of a thread begins with `started` and has one terminal event; nothing is told twice."""
    model = one_step([ask_user("Which?"), finish_step("x", "s1.1")])
    flow = await play(model, settings=Settings(), answers=["approve", "this"])
    model.assert_exhausted()
    well_formed(flow.events, starts=3)
    assert [e["type"] for e in flow.events if e["type"] in TERMINAL] == ["waiting", "waiting", "outcome"]
    assert len(flow.told("plan")) == len(flow.told("step_started")) == len(flow.told("step_finished")) == 1


async def test_long_texts_are_cut_by_characters() -> None:
    """S03: what an event shows of a long result is cut between characters, never inside one."""

    def big() -> str:
        """Give much."""
        return "字😀" * 5000

    model = one_step([call("big"), finish_step("x" * 10, "s1.1")])
    flow = await play(model, [big], effects={"big": "read"})
    model.assert_exhausted()
    (event,) = flow.told("observation")
    assert event["text"] == ("字😀" * 5000)[:300]
    event["text"].encode()
