"""The AG-UI endpoint of examples/agui_server.py, driven as AG-UI clients do: RunAgentInput in, events out."""

import json
from typing import Any

import httpx
import pytest
from ag_ui.core import PROTOCOL_VERSION, Event, RunAgentInput, UserMessage
from pydantic import TypeAdapter

from donewhen import Agent
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, give_up, reply, submit_plan
from examples.agui_server import serve

Json = dict[str, Any]
EVENTS: TypeAdapter[Any] = TypeAdapter(Event)
"""The protocol's own models of its events, which take no field that they do not know."""


NO_RETRY = {"on_failure": "deliver"}


def look() -> str:
    """Look."""
    return "one"


def model() -> ScriptedModel:
    """A plan of two steps; the first one speaks, looks and finishes."""
    rounds = {
        "s1": [reply("Let me look at it now.", [call("look")]), finish_step("one thing", "s1.1")],
        "s2": [finish_step("told", "s2.result")],
    }
    plan = submit_plan(["look", "tell"], speak="I will look first.")
    return ScriptedModel(roles={"triage": [plan], "execute": rounds, "deliver": ["There is one thing."]})


async def told(client: httpx.AsyncClient, **more: Any) -> list[Json]:
    """The events of one run of the thread."""
    asked = UserMessage(id="u1", role="user", content="look around")
    given: Json = {"state": {}, "tools": [], "context": [], "forwarded_props": {}, "messages": [asked], **more}
    body = RunAgentInput(thread_id="t1", run_id="r1", **given).model_dump(mode="json", by_alias=True)
    answer = await client.post("/agent", json=body, headers={"accept": "text/event-stream"})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    for event in events:
        EVENTS.validate_python(event)
    return events


def spoken(events: list[Json]) -> dict[str, str]:
    """What was said, by message; each is begun and ended once."""
    texts: dict[str, str] = {}
    for event in events:
        if event["type"] == "TEXT_MESSAGE_START":
            assert event["messageId"] not in texts
            texts[event["messageId"]] = ""
        elif event["type"] == "TEXT_MESSAGE_CONTENT":
            texts[event["messageId"]] += event["delta"]
    ended = [event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_END"]
    assert sorted(ended) == sorted(texts)
    return texts


@pytest.mark.filterwarnings("ignore:.*get_config_jsonschema")
async def test_a_run_pauses_and_is_resumed_over_agui() -> None:
    """U1, U10: the pause is an interrupt to draw, its answer goes on; all that is said streams, calls do not."""
    agent = Agent(model(), [look], storage="memory:", effects={"look": "read"})
    transport = httpx.ASGITransport(app=serve(agent))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        first = await told(client)
        (interrupt,) = first[-1]["outcome"]["interrupts"]
        assert interrupt["message"] == "Shall I go ahead with this plan?"
        assert interrupt["responseSchema"]["required"] == ["decisions"]
        approve = {"decisions": [{"type": "approve"}]}
        resume = [{"interruptId": interrupt["id"], "status": "resolved", "payload": approve}]
        events = await told(client, resume=resume)
    kinds = [event["type"] for event in (*first, *events)]
    assert "RUN_ERROR" not in kinds
    assert not {"TOOL_CALL_START", "TOOL_CALL_ARGS"} & set(kinds)
    assert list(spoken(first).values()) == ["I will look first."]
    assert list(spoken(events).values()) == ["Let me look at it now.", "There is one thing."]
    messages = [event for event in events if event["type"] == "MESSAGES_SNAPSHOT"][-1]["messages"]
    stays = {message["id"]: message["content"] for message in messages}
    assert stays.items() >= {**spoken(first), **spoken(events)}.items(), "said twice, or under another id"
    assert messages[-1]["content"] == "There is one thing."
    assert [heard[0]["protocolVersion"] for heard in (first, events)] == [PROTOCOL_VERSION] * 2
    assert events[-1]["type"] == "RUN_FINISHED"
    assert events[-1]["outcome"]["type"] == "success"
    assert events[-1]["result"] == {"status": "completed", "code": "worked"}
    used = [one for heard in (first, events) for one in heard[-1]["usage"]]
    spent = (await agent.get("t1")).spent
    assert sum(one["inputTokens"] for one in used) == spent["input_tokens"]
    assert sum(one["outputTokens"] for one in used) == spent["output_tokens"]
    told_of = [event["name"] for event in (*first, *events) if event["type"] == "CUSTOM"]
    assert {"donewhen.plan", "donewhen.todos", "donewhen.tool_started", "donewhen.outcome"} <= set(told_of)


@pytest.mark.filterwarnings("ignore:.*get_config_jsonschema")
async def test_an_answer_is_only_for_the_interrupt_that_it_names_over_agui() -> None:
    """U10: an answer to another interrupt, and one that comes again, are refused in words; nothing is done twice."""
    agent = Agent(model(), [look], storage="memory:", effects={"look": "read"})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=serve(agent)), base_url="http://test") as client:
        (interrupt,) = (await told(client))[-1]["outcome"]["interrupts"]
        approve = {"status": "resolved", "payload": {"approved": True}}
        other = (await told(client, resume=[{"interruptId": "0" * 32, **approve}]))[-1]
        assert (other["type"], (await agent.get("t1")).status) == ("RUN_ERROR", "waiting")
        assert "nothing waits under" in other["message"]
        resume = [{"interruptId": interrupt["id"], **approve}]
        assert (await told(client, resume=resume))[-1]["outcome"]["type"] == "success"
        again = (await told(client, resume=resume))[-1]
        assert "waits for no answer" in again["message"]


@pytest.mark.filterwarnings("ignore:.*get_config_jsonschema")
async def test_text_inside_decisions_streams_as_messages_over_agui() -> None:
    """U1: a question and an answer stand in arguments of decisions; they come piece by piece, once, under their ids."""
    words = "Which of the two kinds do you mean?"
    talks = ScriptedModel(roles={"triage": [ask_user(words), call("answer", text="The first one, then.")]})
    agent = Agent(talks, storage="memory:")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=serve(agent)), base_url="http://test") as client:
        first = await told(client)
        (interrupt,) = first[-1]["outcome"]["interrupts"]
        events = await told(client, resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": "one"}])
    assert list(spoken(first).values()) == [words]
    assert list(spoken(events).values()) == ["The first one, then."]
    for heard in (first, events):
        assert sum(event["type"] == "TEXT_MESSAGE_CONTENT" for event in heard) > 1
        messages = [event for event in heard if event["type"] == "MESSAGES_SNAPSHOT"][-1]["messages"]
        assert set(spoken(heard)) <= {message["id"] for message in messages}
        assert len({message["id"] for message in messages}) == len(messages)


async def test_a_stream_of_events_runs_the_subgraphs() -> None:
    """U10, U11: `astream_events`, which such clients use, does the same work as any other verb."""
    agent = Agent(model(), [look], storage="memory:", effects={"look": "read"}, settings={"confirm": "never"})
    config: Any = {"configurable": {"thread_id": "t"}}
    names = [
        event["name"]
        async for event in agent.graph.astream_events({"messages": [("user", "look")]}, config, version="v2")
        if event["event"] == "on_tool_end"
    ]
    assert names == ["look"]
    assert (await agent.get("t")).answer == "There is one thing."


@pytest.mark.filterwarnings("ignore:.*get_config_jsonschema")
@pytest.mark.parametrize("how", ["cancelled", "failed"])
async def test_an_end_without_success_is_said_over_agui(how: str) -> None:
    """U10: AG-UI 1.0: who abandons the interrupt cancels the run; a run that failed ends with RUN_ERROR."""
    plan, worked = submit_plan(["look"], speak="I will look."), [give_up("nothing there")]
    agent = Agent(ScriptedModel(roles={"triage": [plan], "execute": worked}), storage="memory:", settings=NO_RETRY)
    if how == "cancelled":
        agent = Agent(ScriptedModel(roles={"triage": [plan]}), storage="memory:")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=serve(agent)), base_url="http://test") as client:
        (interrupt,) = (await told(client))[-1]["outcome"]["interrupts"]
        answered = {"status": "cancelled"} if how == "cancelled" else {"status": "resolved", "payload": "approve"}
        events = await told(client, resume=[{"interruptId": interrupt["id"], **answered}])
    spoken(events)
    end = events[-1]
    assert (await agent.get("t1")).status == how
    if how == "cancelled":
        assert (end["type"], end["outcome"]) == ("RUN_FINISHED", {"type": "cancelled"})
    else:
        assert (end["type"], end["code"]) == ("RUN_ERROR", (await agent.get("t1")).outcome["code"])
        assert "nothing there" in end["message"]
        assert end["usage"][0]["inputTokens"] > 0
