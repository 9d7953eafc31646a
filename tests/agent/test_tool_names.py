"""Tools whose names no provider accepts, and tools that share a name: of an agent, of a run, of an executor."""

import re
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent, ConfigError, Executor, ToolError
from donewhen.graph.tools.toolbox import legal_name
from donewhen.testing import call, finish_step
from tests.kit.flows import FREE, one_step
from tests.kit.runs import last_seen

CALLED: list[str] = []


def tool(name: str) -> StructuredTool:
    """A tool of somebody else, with a name as toolkits and adapters give them."""

    def work(text: str = "") -> str:
        CALLED.append(name)
        return f"found by {name}"

    return StructuredTool.from_function(work, name=name, description=f"Finds {name}.")


def größe(text: str) -> str:
    """Return the size of a text."""
    CALLED.append("größe")
    return str(len(text))


NAMES = {
    "look": "look",
    "Google Search": "Google_Search",
    "notion.pages/search": "notion_pages_search",
    "größe": "gr__e_39a1ce",
    "搜索": "__",
    "天气": "__",
    "x" * 70: "x" * 57,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_models_accept_is_always_the_same(name: str) -> None:
    """Q48: it is made of the tool's name alone; what lost letters is told apart by a hash."""
    made = legal_name(name)
    assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", made)
    assert made.startswith(NAMES[name][:4])
    assert (made == name) == (name == "look")
    assert len({legal_name(each) for each in NAMES}) == len(NAMES)


@pytest.mark.parametrize("given", ["to the agent", "to the run", "to an executor"])
async def test_a_tool_with_a_name_of_its_makers_is_used(given: str) -> None:
    """Q48, R17: models see a legal name, the tool is called, and effects are declared by the name it was given."""
    CALLED.clear()
    tools = [tool("Google Search"), tool("notion.pages/search"), größe, tool("搜索"), tool("天气")]
    legal = [legal_name(each) for each in ("Google Search", "notion.pages/search", "größe", "搜索", "天气")]
    effects: Any = {"Google Search": "read", "notion.*": "read", "größe": "read", "搜索": "read", "天气": "read"}
    more: dict[str, Any] = {"tools": tools, "effects": effects}
    if given == "to an executor":
        more = {"executors": {"finder": Executor("finds", tools=tools)}, "effects": effects}
    if given == "to the run":
        more = {}
    asks = [call(legal[0], text="x"), call(legal[1]), call(legal[2], text="abc"), call(legal[4])]
    script = [*asks, lambda messages, _: finish_step("found", last_seen(messages))]
    model = one_step(script, **({"executor": "finder"} if given == "to an executor" else {"tools": legal}))
    async with Agent(model, settings=FREE, storage="memory:", **more) as agent:
        run = await agent.start("Find it", **({"tools": tools} if given == "to the run" else {}))
    assert run.status == "completed", run.answer
    assert CALLED == ["Google Search", "notion.pages/search", "größe", "天气"]
    assert bool(run.receipt["effects"]) == (given == "to the run")


async def test_tools_of_such_names_are_added_and_removed() -> None:
    """Q48: by either name; the same function twice is one tool."""
    async with Agent(one_step([]), [größe, größe], storage="memory:") as agent:
        agent.tools.add(tool("Google Search"), effects={"Google Search": "read"})
        assert "Google Search" in agent.tools
        assert "Google_Search" in agent.tools
        agent.tools.remove("Google_Search", größe.__name__)
        assert len(agent.tools) == 0


@pytest.mark.parametrize(
    ("tools", "effects", "said"),
    [
        ([tool("look"), tool("look")], {}, "two tools are called 'look': give one of them another name"),
        ([tool("a b"), tool("a.b")], {}, "two tools are called 'a_b': give one of them another name"),
        ([tool("finish_step")], {}, "'finish_step' belongs to the runtime"),
        ([tool("finish step")], {}, "'finish_step' belongs to the runtime"),
        ([tool("a b")], {"a c": "read"}, "effects names a tool that does not exist: a c; there are: a_b"),
    ],
)
def test_two_tools_of_one_name_are_a_mistake_that_is_told(tools: Any, effects: Any, said: str) -> None:
    """Q48: LangGraph would take the last one in silence; what was approved for the one could be done by the other."""
    with pytest.raises((ToolError, ConfigError), match=re.escape(said)):
        Agent(one_step([]), tools, effects=effects, storage="memory:")


@pytest.mark.parametrize("name", ["look", "a b"])
async def test_a_tool_of_a_run_with_the_name_of_one_of_the_agents_says_what_to_do(name: str) -> None:
    """Q48: tools of a run are added to the agent's; the very same tool is no second one."""
    own = tool(name)
    async with Agent(one_step([]), [own], storage="memory:") as agent:
        for begin in (agent.start("Go", tools=[tool(name)]), agent.start("Go", tools=[tool("other"), tool(name)])):
            with pytest.raises(ToolError, match=r"in tools= of this run.* as in Agent\(model, \[\]\)"):
                await begin
        assert (await agent.start("Go", tools=[own])).status == "waiting"
    async with Agent(one_step([]), executors={"finder": Executor("finds", tools=[own])}, storage="memory:") as agent:
        with pytest.raises(ToolError, match=r"one of executor 'finder' and one in tools= .*: give one of them another"):
            await agent.start("Go", tools=[tool(name)])
