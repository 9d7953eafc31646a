"""Make LangChain tools of functions, MCP-style and OpenAI-style descriptions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field

from donewhen.graph.tools.toolbox import from_function, is_async
from donewhen.state.errors import ToolError

Caller = Callable[[str, dict[str, Any]], Any]
"""Carries out a described tool: `(name, arguments)` → result, sync or async."""

Tools = Sequence[Any] | Mapping[str, Any]
"""The tools that `as_tools` accepts."""

HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""MCP's annotations. A server cannot declare `effect`, `check`, `secrets` or `probe`."""
_SCHEMA_KEYS = ("input_schema", "inputSchema", "parameters")
_WHAT_TO_PASS = (
    "pass a LangChain tool, a function with a docstring, or a dict {name: {description, input_schema}} with a caller"
)


class DescribedTool(BaseTool):
    """A tool with only a JSON Schema; a caller carries it out. Any argument name is allowed, even `config`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    caller: Caller = Field(exclude=True)
    calls: str
    """The caller's name for the tool."""

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        return self.caller(self.calls, arguments)


class AsyncDescribedTool(DescribedTool):
    """A described tool whose caller is asynchronous."""

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(self, /, *_: Any, **arguments: Any) -> Any:
        return await self.caller(self.calls, arguments)


def as_tools(tools: Tools, *, caller: Caller | None = None) -> list[BaseTool]:
    """Return LangChain tools for any mixture of inputs.

    LangChain tools are kept. Functions, sync or async, get their schema from signature and docstring. Dicts `{name:
    {description, input_schema, annotations?}}`, items of an MCP tool list and OpenAI-style function dicts are carried
    out by `caller(name, arguments)`. Raises ToolError, with what to do, for anything else.
    """
    if isinstance(tools, (str, bytes)) or not isinstance(tools, (Sequence, Mapping)):
        raise ToolError(f"tools must be a list, not {type(tools).__name__}: {_WHAT_TO_PASS}")
    made: list[BaseTool] = []
    for entry in [tools] if isinstance(tools, Mapping) else tools:
        if isinstance(entry, BaseTool):
            made.append(entry)
        elif isinstance(entry, Mapping) or hasattr(entry, "input_schema") or hasattr(entry, "inputSchema"):
            made.extend(described_tool(name, about, caller) for name, about in _descriptions(entry))
        elif callable(entry) and not isinstance(entry, type):
            made.append(from_function(entry))
        else:
            raise ToolError(f"{str(entry)[:80]!r} cannot be used as a tool: {_WHAT_TO_PASS}")
    return made


def described_tool(
    name: str, about: Mapping[str, Any], caller: Caller | None, shown_as: str | None = None
) -> DescribedTool:
    """Return a tool from an MCP or OpenAI description and a caller; models see it as `shown_as`.

    MCP's hints and an `effect` become metadata.
    """
    schema = next((about[key] for key in _SCHEMA_KEYS if about.get(key) is not None), None)
    if not isinstance(schema, Mapping):
        raise ToolError(
            f"the tool {name!r} has no input_schema; for a tool without arguments give "
            '{"type": "object", "properties": {}}'
        )
    if caller is None:
        raise ToolError(f"the tool {name!r} is only a description: pass caller=, a function (name, arguments) → result")
    said = about.get("annotations")
    metadata = {hint: said[hint] for hint in HINTS if hint in said} if isinstance(said, Mapping) else {}
    if about.get("effect") is not None:
        metadata["effect"] = about["effect"]
    kind = AsyncDescribedTool if is_async(caller) else DescribedTool
    return kind(
        name=shown_as or name,
        description=str(about.get("description") or ""),
        args_schema=dict(schema),
        metadata=metadata or None,
        caller=caller,
        calls=name,
        handle_tool_error=True,
    )


def _descriptions(entry: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not isinstance(entry, Mapping):
        # An item of an MCP tool list: a server's words.
        entry = {**entry.model_dump(exclude_none=True, by_alias=True), "effect": None}
    if isinstance(entry.get("function"), Mapping) and entry.get("type") == "function":
        entry = entry["function"]
    if isinstance(name := entry.get("name"), str):
        yield name, entry
        return
    for name, about in entry.items():
        if not isinstance(about, Mapping):
            raise ToolError(f"{name!r} is described by {type(about).__name__}, not by a dict: {_WHAT_TO_PASS}")
        yield str(name), about
