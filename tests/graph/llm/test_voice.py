"""What chat clients hear on LangGraph's `messages` stream: every text that stays, as it is written; nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langgraph.graph import START, MessagesState, StateGraph

from donewhen import Agent, Executor, Settings
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, reply, submit_plan
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

Json = dict[str, Any]
GOAL: Json = {"messages": [("user", "look around")]}
FREE = Settings(confirm="never")


class Client:
    """A chat client: it joins what it hears by id, as LangGraph's own clients do, and remembers in how many pieces."""

    def __init__(self, model: Any, tools: Sequence[Any] = (), settings: Settings = FREE) -> None:
        self.agent = Agent(model, tools, storage="memory:", effects={"look": "read"} if tools else None)
        self.settings = settings
        self.heard: dict[str, BaseMessage] = {}
        self.pieces: dict[str, int] = {}
        self.custom: list[Json] = []
        self.values: Json = {}

    async def run(self, given: Any, *, subgraphs: bool = True) -> None:
        """One run of the thread, streamed."""
        config: Any = {"configurable": {"thread_id": "t"}}
        modes: Any = {"stream_mode": ["messages", "custom", "values"], "subgraphs": subgraphs}
        async for part in self.agent.graph.astream(given, config, context=self.settings, **modes):
            namespace, mode, data = part if subgraphs else ((), *part)
            if mode == "messages":
                message, metadata = data
                assert metadata["langgraph_node"]
                known = self.heard.get(message.id)
                self.heard[message.id] = message if known is None else known + message  # type: ignore[assignment]
                self.pieces[message.id] = self.pieces.get(message.id, 0) + 1
            elif mode == "custom":
                self.custom.append(data)
            elif not namespace:
                self.values = data

    def joined(self) -> list[tuple[str, str]]:
        """Kind and text of what was heard."""
        return [(message.type.removesuffix("MessageChunk").lower(), message.text) for message in self.heard.values()]

    def kept(self) -> dict[str, str]:
        """What stays in the conversation: id → text."""
        return {message.id: message.text for message in self.values["messages"]}


def look() -> str:
    """Look."""
    return "one file, a.txt"


ANSWER = "There is one file here, and it is called a.txt."
RESULT = "One file was found, its name is a.txt."
PLAN = submit_plan(["look", "tell"], speak="I will look at the files first, then tell you.")
ROUNDS: Json = {
    "s1": [reply("Let me have a look at it now.", [call("look")]), finish_step(RESULT, "s1.1")],
    "s2": [finish_step("It is told.", "s2.result")],
}


@pytest.mark.parametrize("subgraphs", [True, False])
async def test_all_that_is_said_streams_and_nothing_else(subgraphs: bool) -> None:
    """U1, S02, S05: prose, speak, results and the answer in many pieces, under the ids of the state; no transcripts."""
    model = ScriptedModel(roles={"triage": [PLAN], "execute": ROUNDS, "deliver": [[call("deliver", text=ANSWER)]]})
    client = Client(model, [look])
    await client.run(GOAL, subgraphs=subgraphs)
    model.assert_exhausted()
    kept = client.kept()
    assert client.values["outcome"]["text"] == ANSWER
    heard = {id: message.text for id, message in client.heard.items()}
    human = client.values["messages"][0].id
    assert heard == {id: text for id, text in kept.items() if id != human}
    assert list(kept.values()).count(ANSWER) == list(kept.values()).count(RESULT) == 1
    for text in (ANSWER, RESULT, "I will look at the files first, then tell you.", "Let me have a look at it now."):
        (id,) = [id for id, each in heard.items() if each == text]
        assert client.pieces[id] > 3, text
        told = "".join(e["text"] for e in client.custom if e["type"] == "speech" and e["id"] == id)
        assert told == text or not subgraphs
    assert "tool_output" not in str(heard)
    assert "Accepted" not in str(heard)


@pytest.mark.parametrize("kind", ["tool", "executor"])
async def test_models_of_tools_and_executors_are_not_heard(kind: str) -> None:
    """U1: what a tool or a graph asks a model of its own is its business; what comes of it is an observation."""
    inner = ScriptedModel(["The inner talk of somebody else."] * 2)

    async def look() -> str:
        """Look."""
        return (await inner.ainvoke("what is there?")).text

    async def chat(state: MessagesState) -> Json:
        return {"messages": [await inner.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("chat", chat).add_edge(START, "chat").compile()
    planned: Json = {"content": "a", "tools": ["look"]} if kind == "tool" else {"content": "a", "executor": "w"}
    rounds = [*([call("look")] if kind == "tool" else []), finish_step("It is done.", "s1.1")]
    model = ScriptedModel(roles={"triage": [submit_plan([planned])], "execute": {"s1": rounds}})
    client = Client(model, [look] if kind == "tool" else [], Settings(confirm="never", approvals="never"))
    if kind == "executor":
        client.agent.executors["w"] = Executor(description="works", graph=graph)
    await client.run(GOAL)
    assert client.values["outcome"]["text"] == "It is done."
    assert "inner talk" not in str(client.heard)
    assert set(client.heard) <= set(client.kept())


@pytest.mark.parametrize("asker", ["planner", "step"])
async def test_a_question_streams_and_its_message_is_whole(asker: str) -> None:
    """U1: the question as it is written, then the options and the tool call that clients draw the pause at."""
    question = "Which of the two colours do you like better?"
    asked = ask_user(question, ["red", "green"])
    done: Json = {"s1": [[finish_step("green", "s1.result")]]}
    if asker == "planner":
        model = ScriptedModel(roles={"triage": [[asked], PLAN], "execute": ROUNDS, "deliver": ["Done."]})
    else:
        model = ScriptedModel(roles={"triage": [submit_plan(["a"])], "execute": {"s1": [[asked], *done["s1"]]}})
    client = Client(model, [look])
    await client.run(GOAL)
    last = client.values["messages"][-1]
    heard: Any = client.heard[last.id]
    assert heard.text == last.text == f"{question}\n\n1. red\n2. green"
    assert client.pieces[last.id] > 3
    assert heard.tool_calls == last.tool_calls
    assert list(client.kept().values()).count(last.text) == 1


async def test_a_reply_that_breaks_off_is_not_said_twice() -> None:
    """U1, R01: what comes again has another id; on `custom` the first is taken back by its id."""
    with WireServer([fault(reset_after=6, reply=answer(ANSWER)), answer(ANSWER)]) as server:
        client = Client(wired(server))
        await client.run(GOAL)
    last = client.values["messages"][-1]
    assert client.heard[last.id].text == last.text == ANSWER
    (void,) = [event["id"] for event in client.custom if event["type"] == "speech_restarted"]
    assert void != last.id
    assert ANSWER.startswith(client.heard[void].text)


@pytest.mark.filterwarnings("ignore:The v3 streaming protocol")
async def test_the_event_protocol_hears_it_too() -> None:
    """U1, S05: `@langchain/react` and `astream_events(version="v3")` hear prose and the answer in pieces, each once."""
    steps = [{"content": name, "done_when": ["seen"], "tools": ["look"]} for name in "ab"]
    said, told = "I will look at it twice and then tell you.", "There is one file, and it was looked at twice."
    execute = [call("look"), finish_step("a", "s1.1"), call("look"), finish_step("b", "s2.1")]
    plan = submit_plan(steps, speak=said)
    model = ScriptedModel(roles={"triage": [plan], "execute": execute, "deliver": [told]})
    agent = Agent(model, [look], storage="memory:", effects={"look": "read"}, settings=FREE)
    config: Any = {"configurable": {"thread_id": "t"}}
    heard: list[list[str]] = []
    stream: Any = await agent.graph.astream_events(GOAL, config, version="v3")  # type: ignore[call-overload]
    async for message in stream.messages:
        heard.append([piece async for piece in message.text])
    assert ["".join(pieces) for pieces in heard if pieces] == [said, told]
    assert all(len(pieces) > 3 for pieces in heard if pieces)
