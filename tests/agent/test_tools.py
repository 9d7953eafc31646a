"""Tools as people have them become LangChain tools."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.tools import ToolException, tool
from mcp.types import Tool

from donewhen import ToolError
from donewhen.agent.tools import as_tools
from donewhen.graph.tools.call import ToolCall, call_tool
from donewhen.graph.tools.toolbox import Toolbox

SEARCH = {"description": "Search the web.", "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}}}
OPENAI = {"description": SEARCH["description"], "parameters": SEARCH["input_schema"]}


def add(first: int, second: int = 2) -> int:
    """Add two numbers.

    Args:
        first: the one
        second: the other
    """
    return first + second


async def shout(text: str) -> str:
    """Shout a text."""
    return text.upper()


class Shop:
    """Sells things."""

    def __init__(self) -> None:
        self.prices = {"tea": 3}

    def price(self, thing: str) -> int:
        """Look up a price."""
        return self.prices[thing]


@tool
def ready() -> str:
    """Be ready."""
    return "ready"


def echo(name: str, arguments: dict[str, Any]) -> Any:
    return {"name": name, **arguments}


async def echo_later(name: str, arguments: dict[str, Any]) -> Any:
    return {"name": name, **arguments}


async def test_functions_become_tools_by_signature_and_docstring() -> None:
    """Synchronous, asynchronous and bound functions; descriptions of arguments from the docstring."""
    tools = as_tools([add, shout, Shop().price, ready])
    box = Toolbox(tools)
    assert tuple(box) == ("add", "shout", "price", "ready")
    assert box["ready"].tool is ready
    assert box["add"].schema["properties"]["first"] == {"title": "First", "type": "integer", "description": "the one"}
    assert box["add"].arguments.problems({"first": "x"}) == ["first: 'x' is not of type 'integer'"]
    assert box["add"].one_line == "Add two numbers."
    given = [{"first": 1}, {"text": "a"}, {"thing": "tea"}, {}]
    results = [
        await call_tool(ToolCall(each, arguments, timeout=5)) for each, arguments in zip(tools, given, strict=True)
    ]
    assert [result.text for result in results] == ["3", "A", "3", "ready"]


@pytest.mark.parametrize("caller", [echo, echo_later, functools.partial(echo_later)])
@pytest.mark.parametrize(
    "given",
    [
        {"search": SEARCH},
        [{"search": SEARCH}],
        [{"search": {"description": SEARCH["description"], "inputSchema": SEARCH["input_schema"]}}],
        [{"name": "search", "description": SEARCH["description"], "inputSchema": SEARCH["input_schema"]}],
        [{"type": "function", "function": {"name": "search", **OPENAI}}],
        [{"type": "function", "name": "search", **OPENAI}],
        [Tool(name="search", description=SEARCH["description"], input_schema=SEARCH["input_schema"])],
    ],
)
async def test_descriptions_become_tools_that_the_caller_carries_out(given: Any, caller: Callable[..., Any]) -> None:
    """MCP-style and OpenAI-style descriptions mean the same tool."""
    (made,) = as_tools(given, caller=caller)
    box = Toolbox([made])
    assert box["search"].one_line == "Search the web."
    assert box["search"].arguments.problems({"q": 3}) != []
    assert (await call_tool(ToolCall(made, {"q": "tea"}, timeout=5))).text == '{"name": "search", "q": "tea"}'


async def test_mixtures_keep_their_order() -> None:
    tools = as_tools([ready, {"a": SEARCH, "b": SEARCH}, add], caller=echo)
    assert [each.name for each in tools] == ["ready", "a", "b", "add"]


async def test_annotations_and_effect_become_metadata() -> None:
    """What a description says about its effect is known to the toolbox."""
    tools = as_tools(
        {
            "look": {**SEARCH, "annotations": {"readOnlyHint": True}},
            "put": {**SEARCH, "annotations": {"idempotentHint": True, "readOnlyHint": False}},
            "own": {**SEARCH, "effect": "read"},
            "send": SEARCH,
        },
        caller=echo,
    )
    box = Toolbox(tools)
    assert [box.effect(name) for name in box] == ["read", "idempotent", "read", "write"]


def give_back(_: str, given: dict[str, Any]) -> Any:
    return given


async def give_back_later(_: str, given: dict[str, Any]) -> Any:
    return given


@pytest.mark.parametrize("caller", [give_back, give_back_later])
async def test_any_argument_name_reaches_the_caller(caller: Callable[..., Any]) -> None:
    """LangChain's own StructuredTool loses arguments called `config` and `run_manager` and fails on `self`."""
    names = ["config", "run_manager", "callbacks", "runtime", "self", "args", "kwargs", "name", "caller", "tool_input"]
    schema = {"type": "object", "properties": {name: {} for name in names}}
    (made,) = as_tools({"t": {"description": "d", "input_schema": schema}}, caller=caller)
    result = await call_tool(ToolCall(made, {name: name for name in names}, timeout=5))
    assert result.ok
    assert all(f'"{name}": "{name}"' in result.text for name in names)


async def test_a_caller_that_fails_is_a_result() -> None:
    """X07: errors of the caller are observations that are not ok."""

    def failing(name: str, arguments: dict[str, Any]) -> Any:
        raise ToolException("the service is down")

    (made,) = as_tools({"search": SEARCH}, caller=failing)
    result = await call_tool(ToolCall(made, {}, timeout=5))
    assert (result.ok, result.text) == (False, "the service is down")


def no_docstring(x: int) -> int:
    return x


def deploy(config: str) -> str:
    """Deploy."""
    return config


def unresolvable(x: "Nowhere") -> int:  # type: ignore[name-defined]  # noqa: F821
    """Take a type that does not exist."""
    return 0


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([no_docstring], "'no_docstring' needs a docstring"),
        ([lambda x: x], "has no name"),
        ([deploy], "'deploy' has a parameter 'config', which LangChain fills: rename it"),
        ([max], "'max' cannot be used as a tool: no signature found"),
        ([unresolvable], "'unresolvable' cannot be used as a tool"),
        ([Shop], "cannot be used as a tool"),
        ([3], "'3' cannot be used as a tool"),
        ("search", "tools must be a list"),
        (None, "tools must be a list"),
        ([{"search": SEARCH}], "pass caller="),
        ([{"search": 3}], "described by int"),
        ([{"search": {"description": "d"}}], "'search' has no input_schema"),
        ([{"search": {"description": "d", "input_schema": "string"}}], "'search' has no input_schema"),
    ],
)
def test_what_cannot_be_a_tool_is_a_clear_error(tools: Any, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        as_tools(tools)
