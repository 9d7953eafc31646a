"""Make LangChain tools of functions and of MCP-style and OpenAI-style descriptions; hold the tools of an agent."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from threading import RLock
from typing import Any, ClassVar, Protocol, runtime_checkable

from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field

from donewhen.graph.executors.executor import Executors
from donewhen.graph.sync import is_async
from donewhen.graph.tools.toolbox import EffectKind, check_effects, from_function, legal_name
from donewhen.state.errors import ToolError

Caller = Callable[[str, dict[str, Any]], Any]
"""Carries out a described tool: `(name, arguments)` → result, sync or async."""


@runtime_checkable
class ToolSource(Protocol):
    """A source whose tools may change, such as `McpServers`."""

    tools: list[BaseTool]

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function, from any thread, whenever `tools` has changed."""


Tools = Sequence[Any] | Mapping[str, Any] | ToolSource
"""The tools that `as_tools` accepts."""

log: logging.Logger = logging.getLogger("donewhen.tools")
HINTS = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""MCP's annotations. A server cannot declare `effect`, `check`, `secrets` or `probe`."""
_SCHEMA_KEYS = ("input_schema", "inputSchema", "parameters")
_WHAT_TO_PASS = (
    "pass a LangChain tool, a function with a docstring, or a dict {name: {description, input_schema}} with a caller"
)


def split_sources(tools: Tools) -> tuple[Tools, list[ToolSource]]:
    """Return the tools that do not change, and the sources of those that may."""
    if isinstance(tools, ToolSource):
        return [], [tools]
    if isinstance(tools, (str, bytes, Mapping)) or not isinstance(tools, Sequence):
        return tools, []
    sources = [each for each in tools if isinstance(each, ToolSource)]
    return [each for each in tools if not isinstance(each, ToolSource)], sources


class AgentTools(Collection[BaseTool]):
    """The tools of an agent that executors share. Add and remove them while it is in use, from any thread.

    Running calls are not affected; the next request to a model offers the new tools. Runs that were started with tools
    of their own keep those.
    """

    def __init__(
        self,
        executors: Executors,
        fixed: Sequence[BaseTool],
        sources: Sequence[ToolSource],
        effects: Mapping[str, EffectKind] | None = None,
    ) -> None:
        self._executors, self._lock = executors, RLock()
        self._unchecked: dict[str, EffectKind] = {}
        """Effects that may belong to tools of sources which are not open yet."""
        self._fixed: list[BaseTool] = list(fixed)
        self._sources: list[ToolSource] = list(sources)
        self._check_effects(effects or {}, executors.toolbox, sources)
        for source in sources:
            source.subscribe(self._refresh)

    def __iter__(self) -> Iterator[BaseTool]:
        return iter(self._all(self._fixed, self._sources))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def is_complete(self) -> bool:
        """Return whether the agent was given tools, and those of all `McpServers` have been read."""
        return bool(self._fixed or self._sources) and all(source.tools for source in self._sources)

    def __contains__(self, tool: object) -> bool:
        """Return whether a tool, or a tool with this name, is there."""
        return any(tool in (each, each.name, legal_name(each.name)) for each in self)

    def add(self, *tools: Any, caller: Caller | None = None, effects: Mapping[str, EffectKind] | None = None) -> None:
        """Add tools as `Agent(tools=…)` takes them. What `McpServers` offer later is added too.

        Raises ToolError, changing nothing, for a tool that cannot be offered or whose name is taken, and ConfigError
        for an effect that belongs to no tool.
        """
        fixed, sources = split_sources(tools)
        new_tools = as_tools(fixed, caller=caller)
        with self._lock:
            names = {*self._executors.toolbox, *(tool.name for tool in [*new_tools, *as_tools(sources)])}
            self._check_effects(effects or {}, names, [*self._sources, *sources])
            self._set([*self._fixed, *new_tools], [*self._sources, *sources], effects)
        for source in sources:
            source.subscribe(self._refresh)

    def remove(self, *tools: Any) -> None:
        """Remove tools, given as objects or by name, and `McpServers`. Raises ToolError for one that is not there."""
        with self._lock:
            names = [getattr(each, "name", each) for each in tools if not isinstance(each, ToolSource)]
            own_names = {name for tool in self._fixed for name in (tool.name, legal_name(tool.name))}
            sources = [each for each in tools if isinstance(each, ToolSource)]
            missing = [name for name in names if name not in own_names]
            missing += [each for each in sources if each not in self._sources]
            if missing:
                raise ToolError(
                    f"the agent was not given {missing[0]!r}; it has {', '.join(sorted(own_names)) or 'none'}"
                )
            self._set(
                [tool for tool in self._fixed if not {tool.name, legal_name(tool.name)} & {*names}],
                [source for source in self._sources if source not in sources],
            )

    def _refresh(self) -> None:
        """Take the current tools of the sources; keep the earlier ones if these cannot be offered.

        Raises ConfigError if all sources are open now and one of the unchecked effects fits no tool.
        """
        with self._lock:
            try:
                self._set(self._fixed, self._sources, by_owner=False)
            except ToolError as error:
                log.warning("changed tools are not used: %s", error)
            self._check_effects({}, self._executors.toolbox, self._sources)

    def _check_effects(
        self, more: Mapping[str, EffectKind], names: Collection[str], sources: Sequence[ToolSource]
    ) -> None:
        """Check these effects and the unchecked ones, unless a source has no tools yet: then keep them for later."""
        effects = {**self._unchecked, **more}
        is_complete = all(source.tools for source in sources)
        if is_complete:
            check_effects(effects, names)
        self._unchecked = {} if is_complete else effects

    def _set(
        self,
        fixed: list[BaseTool],
        sources: list[ToolSource],
        effects: Mapping[str, EffectKind] | None = None,
        *,
        by_owner: bool = True,
    ) -> None:
        """Replace the tools; `by_owner` is False if no one asked for it, because a source has other tools now."""
        self._executors.set_tools(self._all(fixed, sources), effects, by_owner=by_owner)
        self._fixed, self._sources = fixed, sources

    @staticmethod
    def _all(fixed: Sequence[BaseTool], sources: Sequence[ToolSource]) -> list[BaseTool]:
        return [*fixed, *(tool for source in sources for tool in source.tools)]


class DescribedTool(BaseTool):
    """A tool with only a JSON Schema; a caller carries it out. Any argument name is allowed, even `config`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)

    caller: Caller = Field(exclude=True)
    original_name: str
    """The caller's name for the tool."""

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        return self.caller(self.original_name, arguments)


class AsyncDescribedTool(DescribedTool):
    """A described tool whose caller is asynchronous."""

    def _run(self, /, *_: Any, **arguments: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(self, /, *_: Any, **arguments: Any) -> Any:
        return await self.caller(self.original_name, arguments)


def as_tools(tools: Tools, *, caller: Caller | None = None) -> list[BaseTool]:
    """Return LangChain tools for any mixture of inputs; a function that is given twice becomes one tool.

    LangChain tools are kept. Functions, sync or async, get their schema from signature and docstring. Dicts `{name:
    {description, input_schema, annotations?}}`, items of an MCP tool list and OpenAI-style function dicts are carried
    out by `caller(name, arguments)`. `McpServers` are replaced by their current tools.
    Raises ToolError, with what to do, for anything else.
    """
    if isinstance(tools, ToolSource):
        return list(tools.tools)
    if isinstance(tools, (str, bytes)) or not isinstance(tools, (Sequence, Mapping)):
        raise ToolError(f"tools must be a list, not {type(tools).__name__}: {_WHAT_TO_PASS}")
    result, functions = list[BaseTool](), list[Any]()
    for entry in [tools] if isinstance(tools, Mapping) else tools:
        if isinstance(entry, BaseTool):
            result.append(entry)
        elif isinstance(entry, ToolSource):
            result.extend(entry.tools)
        elif isinstance(entry, Mapping) or hasattr(entry, "input_schema") or hasattr(entry, "inputSchema"):
            result.extend(described_tool(name, about, caller) for name, about in _descriptions(entry))
        elif callable(entry) and not isinstance(entry, type):
            if not any(entry is earlier for earlier in functions):
                result.append(from_function(entry))
            functions.append(entry)
        else:
            raise ToolError(f"{str(entry)[:80]!r} cannot be used as a tool: {_WHAT_TO_PASS}")
    return result


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
    annotations = about.get("annotations")
    metadata = (
        {hint: annotations[hint] for hint in HINTS if hint in annotations} if isinstance(annotations, Mapping) else {}
    )
    if about.get("effect") is not None:
        metadata["effect"] = about["effect"]
    if isinstance(output := about.get("outputSchema", about.get("output_schema")), Mapping):
        metadata["output_schema"] = dict(output)
    kind = AsyncDescribedTool if is_async(caller) else DescribedTool
    return kind(
        name=shown_as or name,
        description=str(about.get("description") or ""),
        args_schema=dict(schema),
        metadata=metadata or None,
        caller=caller,
        original_name=name,
        handle_tool_error=True,
    )


def _descriptions(entry: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and descriptions that an entry of a tool list holds."""
    if not isinstance(entry, Mapping):
        # An item of an MCP tool list. A server cannot declare an effect.
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
