"""500 tools: what the planner and a step are offered of them, and how they find the others."""

import json
import logging
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.tools import BaseTool, StructuredTool

from donewhen import AgentOptions, Settings
from donewhen.testing import Request, ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.flows import FREE, one_step, play, requests, unfenced

MADE: list[str] = []
XS = {"type": "object", "properties": {"x": {"type": "string"}}}


def tool(name: str, description: str, effect: str = "read") -> BaseTool:
    """A tool that writes down that it was called."""

    def work(x: str = "") -> str:
        MADE.append(name)
        return f"{name} says {x}"

    return StructuredTool.from_function(
        work, name=name, description=description, args_schema=XS, metadata={"effect": effect}
    )


def tools(count: int) -> list[BaseTool]:
    """Half of them read."""
    return [
        tool(f"thing_{n:03}", f"Do the thing of number {n:03}.", "read" if n % 2 else "write") for n in range(count)
    ]


WEATHER = tool("forecast", "Tell the weather of a city.")
MAIL = tool("post", "Send a letter to somebody.", "write")


def size(request: Request) -> int:
    """Of everything that is sent."""
    return len(json.dumps(request.tools)) + len(request.text)


async def test_five_hundred_cost_the_planner_no_more_than_two_dozen() -> None:
    """P13, M6: not a byte more, and it is told that there are more."""
    sizes, prompts = [], []
    for count in (24, 500):
        model = ScriptedModel(roles={"triage": [answer("no")]})
        await play(model, tools(count), settings=Settings(), goal="Say no to number 007")
        sizes.append(size(model.requests[0]))
        prompts.append(model.requests[0])
    assert sizes[1] <= sizes[0], sizes
    assert "find_tools" not in prompts[0].text
    assert "(478 more tools, less likely to fit; find_tools finds them)" in prompts[1].text
    assert "thing_007" in prompts[1].tool_names


async def test_a_step_is_offered_its_tools_the_likely_reads_and_the_rest_by_search() -> None:
    """P13, M6: never more than the selection; what the plan names is never hidden; what is found is bound from then on,
    behind the others; a search is no observation and no call."""
    MADE.clear()
    replies = [
        call("find_tools", query="weather in a city"),
        [call("forecast", x="Oslo"), call("find_tools", query="weather in a city")],
        finish_step("forecast says Oslo", ("s1.1", "Oslo"), unchanged="only a look was needed"),
    ]
    model = one_step(replies, content="do the thing of number 321", tools=["post", "thing_111"])
    flow = await play(model, [*tools(500), WEATHER, MAIL])
    model.assert_exhausted()
    assert flow.status == "completed"
    first, second, third = requests(model, "s1")
    names = [name for name in first.tool_names if name.startswith(("thing", "post", "forecast"))]
    assert len(names) == 23
    assert {"post", "thing_111", "thing_321"} <= set(names)
    assert "forecast" not in names
    assert "find_tools" in first.tool_names
    assert second.tool_names[: len(first.tool_names)] == first.tool_names
    assert "forecast" in second.tool_names
    said = unfenced(second.messages[-1].text)
    assert said.startswith(
        "find_tools ok: These are offered to you from now on.\n<tool_output>\n- forecast (read): Tell"
    )
    assert third.tool_names[: len(second.tool_names)] == second.tool_names
    assert MADE == ["forecast"]
    assert [entry["tool"] for entry in flow.journal if entry["tool"]] == ["forecast"]
    assert flow.run.spent["tool_calls"] == 1


async def test_the_planner_finds_tools_too() -> None:
    """P13, M6: beside its looks; what it found and may only be planned stands in the answer."""
    MADE.clear()
    model = ScriptedModel(
        roles={
            "triage": [
                [call("find_tools", query="send a letter"), call("find_tools", query="weather"), call("thing_001")],
                call("forecast", x="Oslo"),
                submit_plan([{"content": "post it", "tools": ["post"]}]),
            ],
            "execute": {"s1": [call("post", x="hello"), finish_step("posted", "s1.1")]},
        }
    )
    flow = await play(model, [*tools(500), WEATHER, MAIL], goal="do the thing of number 001")
    model.assert_exhausted()
    assert flow.status == "completed"
    letters, weather, looked = (unfenced(message.text) for message in model.requests[1].messages[-3:])
    assert "- post (write): Send a letter to somebody." in letters
    assert "- forecast (read)" in weather
    assert looked.startswith("[p.1] thing_001 ok")
    assert "forecast" not in model.requests[0].tool_names
    assert "forecast" in model.requests[1].tool_names
    assert MADE == ["thing_001", "forecast", "post"]


async def test_a_step_without_tools_sees_a_line_of_those_that_change_something() -> None:
    """N70, P13: it is offered what reads; any other tool is found first, and is then offered behind all others."""
    MADE.clear()
    replies = [call("find_tools", query="send a letter"), call("post", x="hello"), finish_step("posted", "s1.1")]
    model = one_step(replies, tools=None)
    flow = await play(model, [WEATHER, MAIL], settings={**FREE, "approvals": "never"})
    assert flow.status == "completed"
    assert MADE == ["post"]
    first, second, third = requests(model, "s1")
    assert "forecast" in first.tool_names
    assert "post" not in first.tool_names
    found = next(tool for tool in first.tools if tool["function"]["name"] == "find_tools")
    assert "\n- post: Send a letter to somebody." in found["function"]["description"]
    assert second.tools == third.tools == [*first.tools, second.tools[-1]]
    assert second.tool_names[-1] == "post"


class Meanings(Embeddings):
    """A stand-in that knows one meaning in two languages; it says nothing about real embeddings."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.asked.append(texts)
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        known = "weather" in text or "天气" in text
        return [1.0, 0.0] if known else [0.0, 1.0]


class Down(Embeddings):
    """A service that is down."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise OSError("no route")

    def embed_query(self, text: str) -> list[float]:
        raise OSError("no route")


async def test_embeddings_find_across_languages(caplog: pytest.LogCaptureFixture) -> None:
    """P13, M6: any of LangChain's; each text once; where they fail, words decide, and it is logged."""

    async def shown(embeddings: Any) -> str:
        model = ScriptedModel(roles={"triage": [answer("no"), answer("no")]})
        await play(
            model,
            [*tools(100), WEATHER],
            settings=Settings(),
            goal="明天天气怎么样",
            options=AgentOptions(embeddings=embeddings),
        )
        return ",".join(model.requests[0].tool_names)

    meanings = Meanings()
    assert "forecast" in await shown(meanings)
    assert sum(map(len, meanings.asked)) == 101
    assert "forecast" not in await shown(None)
    with caplog.at_level(logging.WARNING):
        assert "forecast" not in await shown(Down())
    assert "words alone: OSError: no route" in caplog.text
