"""The tools of a run: their schemas, their effects, and the checks a call passes before it may act."""

import copy
import functools
import inspect
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.tools import BaseTool, StructuredTool

from donewhen.graph.tools.call import Callee, check_injection
from donewhen.graph.tools.paths import path_problem, paths_of
from donewhen.graph.tools.schema import Schema, close_schema, parameters_of, schema_for_model
from donewhen.state.consent import KnownTargets
from donewhen.state.errors import ConfigError, ToolError
from donewhen.state.language.selection import terms
from donewhen.state.pattern import pattern
from donewhen.state.values import Json

if TYPE_CHECKING:
    from donewhen.graph.tools.arguments import Arguments

EffectKind = Literal["read", "idempotent", "write"]
"""The effect of a call on the world: none, the same each time, or another one each time."""

USERS_TEXT = object()
"""Key of `metadata` for a tool whose results are the user's own words, such as skills. A server's JSON
cannot set it.
"""
FOUND_BY_CHARS = 600
"""The most characters of a description that are indexed for search."""
_NAME = pattern(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_LANGCHAINS = ("self", "config", "run_manager")
"""Parameter names that LangChain fills, so that no model could."""
_SENTENCE_END = pattern(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n")


class Toolbox(dict[str, "KnownTool"]):
    """The tools that may be used, by name; it never changes.

    `effects` overrides the tools' own declarations. `reserved` are the control tools' names, which no tool may have.
    Raises ToolError for a tool that cannot be offered to a model, ConfigError for an effect of none.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        effects: Mapping[str, EffectKind] | None = None,
        reserved: Collection[str] = (),
    ) -> None:
        super().__init__()
        for tool in tools:
            if not isinstance(tool, BaseTool):
                raise ToolError(f"{tool!r} cannot be used as a tool: pass a LangChain tool or a function")
            _check_name(tool.name, self, reserved)
            self[tool.name] = KnownTool(tool, (effects or {}).get(tool.name))
        if unknown := [str(name) for name in effects or () if name not in self]:
            known = ", ".join(self) or "none"
            raise ConfigError(f"effects names a tool that does not exist: {', '.join(unknown)}; there are: {known}")

    def effect(self, name: str) -> EffectKind:
        """Return the tool's effect on the world; an unknown tool counts as `write`."""
        return self[name].effect if name in self else "write"

    def openai(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """Return the definitions of the named tools (default: all); the same objects each time, do not change them."""
        return [self[name].definition for name in (self if names is None else names)]

    def subset(self, names: Iterable[str]) -> "Toolbox":
        """Return a toolbox with only these tools, in its own order. Raises ToolError for an unknown one."""
        wanted = set(names)
        if unknown := sorted(wanted - self.keys()):
            raise ToolError(f"no such tool: {', '.join(unknown)}; there are {', '.join(self) or 'none'}")
        return self.without(self.keys() - wanted)

    def without(self, names: Collection[str]) -> "Toolbox":
        """Return a toolbox without the tools of these names."""
        if self.keys().isdisjoint(names):
            return self
        chosen = Toolbox(())
        chosen.update((name, tool) for name, tool in self.items() if name not in names)
        return chosen


class KnownTool:
    """One tool, with everything about it that is computed once. It calls nothing.

    A schema that is data is read at once, because it may be wrong. That of a function is made when it is first used:
    LangChain takes a millisecond for it.
    """

    def __init__(self, tool: BaseTool, effect: EffectKind | None = None) -> None:
        self.tool = tool
        metadata = tool.metadata or {}
        for name in ("probe", "replaces"):
            if metadata.get(name) is not None and not callable(metadata[name]):
                raise ToolError(f"the {name} of {tool.name!r} is {metadata[name]!r}; it must be a function")
        self.effect: EffectKind = _effect(tool.name, effect, metadata)
        self._asks: bool | Callable[[Json], bool | None] | None = metadata.get("asks")
        if not (self._asks is None or isinstance(self._asks, bool) or callable(self._asks)):
            raise ToolError(f"asks of {tool.name!r} is {self._asks!r}; it must be a bool or a function")
        self.is_check: bool = bool(metadata.get("check"))
        """True if the tool is only for checks of criteria, not for work."""
        self.users_text: bool = metadata.get("users_text") is USERS_TEXT
        """True if what it returns are words of the user, which are not framed as foreign."""
        self.one_line: str = _first_sentence(tool.description)
        """The first sentence of the description, at most 120 characters."""
        self._targets = _declared_targets(tool.name, metadata.get("targets", metadata.get("target")))
        with _naming(tool):
            check_injection(tool)
        if isinstance(tool.args_schema, dict):
            _ = self.closed, self.parameters

    def asks(self, arguments: Mapping[str, Any] | None = None) -> bool | None:
        """Return whether a call must be approved (True), or needs no approval under an approved plan (False).

        `metadata["asks"]` is True, False, or a function of the arguments that returns one of them or None; if it
        raises, the call must be approved. None means that the call's targets decide. Without `arguments`, the answer is
        for all calls.
        """
        if not callable(self._asks):
            return self._asks
        if arguments is None:
            return None
        try:
            answer = self._asks(copy.deepcopy(dict(arguments)))
        except Exception:
            return True
        return None if answer is None else bool(answer)

    def targets(self, arguments: Mapping[str, Any]) -> set[str]:
        """Return the targets of a call. Paths are normalised, so `./a` equals `a`; omitted arguments have their
        defaults.

        `metadata["targets"]` names the arguments that hold them; without it, those that are paths do. Ids are never
        guessed, because two calls with one id may be about different things.
        """
        if self._targets == ():
            return set()
        given = {**self.defaults, **arguments}
        if self._targets is None:
            return {posixpath.normpath(path) for path in paths_of(given, self.tool, self.parameters) if path}
        return set(_values(given[name] for name in self._targets if name in given))

    def new_targets(self, arguments: Mapping[str, Any], known: KnownTargets) -> list[str]:
        """Return the call's targets that no person knows of."""
        return known.new(arguments, self.parameters)

    def path_problem(self, arguments: Mapping[str, Any], allowed: Sequence[str]) -> str | None:
        """Return why a call with these arguments breaks `Profile.allowed_paths`; None if it does not."""
        return path_problem(arguments, allowed, self.tool, self.parameters) if allowed else None

    @functools.cached_property
    def schema(self) -> Schema:
        """The JSON Schema of the arguments. Raises ToolError if there can be none."""
        with _naming(self.tool):
            return parameters_of(self.tool)

    @functools.cached_property
    def parameters(self) -> Schema:
        """The schema as models are shown it."""
        with _naming(self.tool):
            return schema_for_model(self.schema)

    @functools.cached_property
    def closed(self) -> Schema:
        """The schema as calls are checked against it."""
        with _naming(self.tool):
            return close_schema(self.schema)

    @functools.cached_property
    def definition(self) -> dict[str, Any]:
        """The tool as models bind it."""
        described = {"name": self.tool.name, "description": self.tool.description, "parameters": self.parameters}
        return {"type": "function", "function": described}

    @functools.cached_property
    def description(self) -> str:
        """Name, description and names of the arguments in one text."""
        names = " ".join(self.schema.get("properties", {}))
        return f"{self.tool.name} {self.tool.description[:FOUND_BY_CHARS]} {names}"

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """The defaults of arguments that a call omits."""
        properties = self.schema.get("properties", {})
        return {name: rule["default"] for name, rule in properties.items() if "default" in rule}

    @functools.cached_property
    def arguments(self) -> "Arguments":
        """The reader of arguments, made on first use: importing jsonschema takes 30 ms."""
        from donewhen.graph.tools.arguments import Arguments

        return Arguments(self.closed, closed=False)

    @functools.cached_property
    def callee(self) -> Callee:
        """What every call of the tool needs."""
        return Callee.of(self.tool)

    @functools.cached_property
    def terms(self) -> Counter[str]:
        """The words that find the tool: of its name, its description and its argument names."""
        return Counter(terms(self.description))


@contextmanager
def _naming(tool: BaseTool) -> Iterator[None]:
    """Raise ToolError, with the tool's name, for a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ToolError(f"the tool {tool.name!r} cannot be used: {error}") from error


def _check_name(name: str, taken: Collection[str], reserved: Collection[str]) -> None:
    if not _NAME.fullmatch(name):
        raise ToolError(f"{name[:80]!r} is no name for a tool: use 1 to 64 letters, digits, underscores or hyphens")
    if name in taken:
        raise ToolError(f"two tools are called {name!r}: rename one of them")
    if name in reserved:
        raise ToolError(f"the name {name!r} belongs to the runtime: rename the tool")


def _effect(name: str, given: Any, metadata: Mapping[str, Any]) -> EffectKind:
    said = given if given is not None else metadata.get("effect")
    known: dict[Any, EffectKind] = {"read": "read", "idempotent": "idempotent", "write": "write"}
    if said is None and metadata.get("readOnlyHint") is True:
        return "read"
    if said is None:
        return "idempotent" if metadata.get("idempotentHint") is True else "write"
    if not isinstance(said, str) or said not in known:
        raise ToolError(f"the effect of {name!r} is {said!r}; it must be 'read', 'idempotent' or 'write'")
    return known[said]


def _declared_targets(name: str, declared: Any) -> tuple[str, ...] | None:
    names = [declared] if isinstance(declared, str) else declared
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not all(isinstance(each, str) for each in names):
        raise ToolError(f"the target of {name!r} is {declared!r}; it must be an argument's name, or a list of them")
    return tuple(names)


def _first_sentence(description: str, most: int = 120) -> str:
    sentence = " ".join(_SENTENCE_END.split(description.strip()[:2_000], maxsplit=1)[0].split())
    return sentence if len(sentence) <= most else sentence[: most - 1].rstrip() + "…"


def _values(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and each:
                yield each if "://" in each else posixpath.normpath(each)
            elif isinstance(each, int) and not isinstance(each, bool):
                yield str(each)


def from_function(function: Callable[..., Any]) -> BaseTool:
    """Return the function as a tool, described by signature and docstring. Raises ToolError if they say too little."""
    name = getattr(function, "__name__", "<nameless>")
    if name.startswith("<"):
        raise ToolError(f"{function!r} has no name: define it with `def`, or use StructuredTool.from_function")
    if not (text := inspect.getdoc(function)):
        raise ToolError(f"the function {name!r} needs a docstring: it tells the model what the tool is for")
    if inspect.isasyncgenfunction(function):
        function = _collect_items(function)
    body: dict[str, Any] = {"coroutine" if is_async(function) else "func": function}
    try:
        tool = StructuredTool.from_function(name=name, parse_docstring=True, **body)
    except Exception as error:
        raise ToolError(f"the function {name!r} cannot be used as a tool: {error}; annotate its parameters") from error
    for each in inspect.signature(function).parameters.values():
        if each.name in _LANGCHAINS and not re.search("RunnableConfig|CallbackManager", str(each.annotation)):
            raise ToolError(f"the function {name!r} has a parameter {each.name!r}, which LangChain fills: rename it")
    if not tool.description.strip():
        tool.description = text
    return tool


def _collect_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async generator as a function that returns all its items."""

    @functools.wraps(function)
    async def collect_items(*args: Any, **kwargs: Any) -> list[Any]:
        return [item async for item in function(*args, **kwargs)]

    return collect_items


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calls must be awaited, also behind `functools.partial` or `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
