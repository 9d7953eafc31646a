"""The tools of a run: their schemas and effects, the paths and targets of their calls, and which fit a query."""

import asyncio
import copy
import functools
import hashlib
import inspect
import logging
import math
import mimetypes
import posixpath
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints
from urllib.parse import unquote, urlsplit

from langchain_core.embeddings import Embeddings
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel

from donewhen.graph.sync import is_async
from donewhen.graph.tools.call import Callee, check_parameters
from donewhen.graph.tools.rendering import MOST_ITEMS
from donewhen.graph.tools.schema import RUNTIME_ARGUMENT, Schema, close_schema, parameters_of, schema_for_model
from donewhen.graph.tools.validation import ArgumentsModel, ReadArguments
from donewhen.state.consent import Argument, Sources
from donewhen.state.errors import ConfigError, ToolError
from donewhen.state.identity import schema_fields
from donewhen.state.language.selection import scores, terms
from donewhen.state.language.texts import say
from donewhen.state.pattern import pattern
from donewhen.state.plan.revise import ShownTool, shown_tools
from donewhen.state.proof.journal import canonical_json
from donewhen.state.settings import Settings
from donewhen.state.values import Json, same_json

if TYPE_CHECKING:
    from donewhen.graph.tools.arguments import Arguments

EffectKind = Literal["read", "idempotent", "write"]
"""The effect of a call on the world: none, the same each time, or another one each time."""
Approval = Literal["ask", "free", "by_targets", "allowed"]
"""When a call in an approved plan must be approved by itself: always, never, or if a target is new to people. An
`allowed` call needs no plan either: a person allowed exactly it before the run."""

USERS_TEXT = object()
"""Key of `metadata` for a tool whose results are the user's own words, such as skills. A server's JSON
cannot set it.
"""
SEARCHED_CHARS = 600
"""The most characters of a description that are indexed for search."""
LINE_CHARS = 120
"""The most characters of a tool's line in a list."""
WARNING_CHARS = 300
"""The most characters of each of two sentences about a tool that changes something: they may hold a warning."""
FUSE = 60
"""The constant of reciprocal rank fusion: the higher it is, the less the first ranks count."""
EMBEDDING_SECONDS = 20.0
"""Seconds that embeddings have for one search; then words alone decide."""
REMEMBERED = 256
"""The number of query vectors kept."""
_NAME = pattern(r"[a-zA-Z0-9_-]{1,64}", re.ASCII)
_NOT_IN_NAMES = pattern(r"[^a-zA-Z0-9_-]")
_NOT_IN_PATTERNS = pattern(r"[^a-zA-Z0-9_*?!\[\]-]")
_LANGCHAINS = ("self", "config", "run_manager")
"""Parameter names that LangChain fills, so that no model could."""
_SENTENCE_END = pattern(r"(?<=[.!?])\s|(?<=[。！？])|\n\s*\n")
_PARAGRAPH_END = pattern(r"\n\s*\n")
_log = logging.getLogger("donewhen.tools")


class Toolbox(dict[str, "KnownTool"]):
    """The tools that may be used, by name; it never changes.

    `effects` overrides the tools' own declarations, by name or pattern (`get_*`). `reserved` are the control tools'
    names, which no tool may have. `known` tools are used again if their effect is the same.
    Raises ToolError for a tool that cannot be offered to a model, ConfigError for an effect that belongs to no tool.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool],
        effects: Mapping[str, EffectKind] | None = None,
        reserved: Collection[str] = (),
        earlier: Mapping[str, "KnownTool"] | None = None,
    ) -> None:
        super().__init__()
        for tool in tools:
            if not isinstance(tool, BaseTool):
                raise ToolError(f"{tool!r} cannot be used as a tool: pass a LangChain tool or a function")
            _check_name(tool.name, self, reserved)
            effect, before = _find_effect(effects or {}, tool.name), (earlier or {}).get(tool.name)
            is_same = (
                before and before.tool is tool and before.effect == _effect(tool.name, effect, tool.metadata or {})
            )
            self[tool.name] = before if before and is_same else KnownTool(tool, effect)
        check_effects(effects or {}, self)

    def effect(self, name: str) -> EffectKind:
        """Return the tool's effect on the world; an unknown tool counts as `write`."""
        return self[name].effect if name in self else "write"

    def definitions(self, names: Iterable[str] | None = None) -> list[dict[str, Any]]:
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

    def usable(self, settings: Settings) -> "Toolbox":
        """Return a toolbox without the tools that the profile forbids, and without those that do the work of one.

        If each call is approved, none does the work of another: a check asks nobody.
        """
        forbidden, asks_always = settings.profile.forbidden_tools, settings.approvals == "each"
        others = [name for name, tool in self.items() if tool.acts_as and (asks_always or tool.acts_as in forbidden)]
        return self.without({*forbidden, *others})

    def of_plan(self, plan: Mapping[str, Any] | None) -> "Toolbox":
        """Return a toolbox without the tools that are other ones here than those that the plan is approved for."""
        shown = shown_tools(plan).items()
        return self.without([name for name, one in shown if name in self and not one.covers(self[name].now)])

    def at_least(self, effects: Mapping[str, EffectKind]) -> "Toolbox":
        """Return a toolbox in which these tools have at least these effects, whatever they declare now."""
        order = get_args(EffectKind)
        strengthened = {
            name: KnownTool(self[name].tool, effect)
            for name, effect in effects.items()
            if name in self and order.index(effect) > order.index(self[name].effect)
        }
        if not strengthened:
            return self
        chosen = Toolbox(())
        chosen.update({**self, **strengthened})
        return chosen


WORDS, VALUES = frozenset(("description", "title", "examples", "$comment")), frozenset(("default", "const", "enum"))
"""The keys of a schema with what it only says, in words, and with values of its arguments."""


NAMES_INSIDE = frozenset(("properties", "$defs", "definitions"))
"""Those whose keys are names."""


def _without_words(schema: Any, *, names: bool = False) -> Any:
    """Return a schema without its words. `names`: the keys are names of arguments, which may be called so, too."""
    if isinstance(schema, Mapping):
        return {
            key: each if key in VALUES and not names else _without_words(each, names=not names and key in NAMES_INSIDE)
            for key, each in schema.items()
            if names or key not in WORDS
        }
    return [_without_words(each) for each in schema] if isinstance(schema, list) else schema


class KnownTool:
    """One tool, with everything about it that is computed once. It calls nothing.

    A schema that is data is read at once, because it may be wrong. That of a function is made when it is first used:
    LangChain takes a millisecond for it.
    """

    def __init__(self, tool: BaseTool, effect: EffectKind | None = None) -> None:
        self.tool = tool
        metadata = tool.metadata or {}
        for name in ("probe", "replaces", "conditions", "allowed"):
            if metadata.get(name) is not None and not callable(metadata[name]):
                raise ToolError(f"the {name} of {tool.name!r} is {metadata[name]!r}; it must be a function")
        self.effect: EffectKind = _effect(tool.name, effect, metadata)
        self._asks: bool | Callable[[Json], bool | None] | None = metadata.get("asks")
        if not (self._asks is None or isinstance(self._asks, bool) or callable(self._asks)):
            raise ToolError(f"asks of {tool.name!r} is {self._asks!r}; it must be a bool or a function")
        self.server: str = str(metadata.get("server") or "")
        """The name of the server that provides the tool; "" if none does."""
        self.is_check: bool = bool(metadata.get("check"))
        """True if the tool is only for checks of criteria, not for work."""
        self.acts_as: str = str(metadata.get("acts_as") or "")
        """The tool whose work a check does, so that what forbids that one forbids it too; "" if none."""
        self.repeatable: bool = self.effect != "write" or metadata.get("repeatable") is True
        """True if an equal call that succeeded may be made again without a question."""
        self.reads: tuple[str, ...] = _declared_names(tool.name, "read", metadata.get("reads")) or ()
        """What the result of a call with effects also depends on, such as "." for all files."""
        self.users_text: bool = metadata.get("users_text") is USERS_TEXT
        """True if what it returns are words of the user, which are not framed as foreign."""
        self.one_line: str = _first_sentences(tool.description, 1)
        """The first sentence of the description, shortened."""
        self.summary: str = (
            self.one_line if self.effect == "read" else _first_sentences(tool.description, 2, WARNING_CHARS)
        )
        """What a planner reads: of a tool that changes something two sentences, such as what cannot be undone."""
        self._targets = _declared_names(tool.name, "target", metadata.get("targets", metadata.get("target")))
        identity = metadata.get("identity")
        self._identity = identity if callable(identity) else _declared_names(tool.name, "identity", identity)
        with _naming(tool):
            check_parameters(tool)
        if isinstance(tool.args_schema, dict):
            _ = self.closed, self.parameters

    @functools.cached_property
    def provider(self) -> str:
        """What an approval is for: the server's name, and a digest of the arguments that its tool takes.

        "" if no server provides the tool. The descriptions do not count, because servers improve theirs. The request
        that a call of the tool becomes counts, too, where `metadata["sent_as"]` says it.
        """
        if not self.server:
            return ""
        sent_as = (self.tool.metadata or {}).get("sent_as")
        parameters = _without_words(self.parameters)
        takes = canonical_json([parameters, sent_as] if sent_as else parameters)
        return f"{self.server} {hashlib.sha256(takes.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"

    @property
    def request(self) -> str:
        """The method and path of an operation of an HTTP API; "" for any other tool."""
        sent_as = (self.tool.metadata or {}).get("sent_as")
        return f"{str(sent_as['method']).upper()} {sent_as['path']}" if sent_as else ""

    @property
    def now(self) -> ShownTool:
        """What the tool is now, to compare it with what an approval says."""
        return ShownTool(self.provider, self.effect)

    def approval(self, arguments: Mapping[str, Any] | None = None) -> Approval:
        """Return whether a call that an approved plan covers must be approved by itself, or needs no plan.

        `metadata["allowed"]` is a function of the arguments that returns True for calls that a person allowed.
        `metadata["asks"]` is True (`ask`), False (`free`), or a function of the arguments that returns one of them or
        None (`by_targets`); if it raises, the call must be approved. Without `arguments`, the answer is for all calls.
        """
        asks, allowed = self._asks, (self.tool.metadata or {}).get("allowed")
        if callable(asks) or allowed:
            if arguments is None:
                return "by_targets"
            try:
                if allowed and allowed(copy.deepcopy(dict(arguments))) is True:
                    return "allowed"
                asks = asks(copy.deepcopy(dict(arguments))) if callable(asks) else asks
            except Exception:
                return "ask"
        if asks is None:
            return "by_targets"
        return "ask" if asks else "free"

    def conditions(self, language: str, arguments: Mapping[str, Any]) -> str:
        """Return what people should know about a call of the tool, such as what it can reach; "" if nothing.

        `metadata["conditions"]` is a function of the language, and of `arguments` if it accepts them, that returns it.
        One that raises says nothing.
        """
        describe, described = (self.tool.metadata or {}).get("conditions"), ""
        with suppress(Exception):
            takes = describe and "arguments" in inspect.signature(describe).parameters
            more = {"arguments": copy.deepcopy(dict(arguments))} if takes else {}
            described = str(describe(language, **more)) if describe else ""
        server = say(language, "call", "server", server=self.server) if self.server else ""
        return " ".join(filter(None, (described, server)))

    def targets(self, arguments: Mapping[str, Any]) -> set[str]:
        """Return the targets of a call. Paths are normalised, so `./a` equals `a`; omitted arguments have their
        defaults.

        `metadata["targets"]` names the arguments that hold them; without it, those that are paths do. Ids are never
        guessed, because two calls with one id may be about different things.
        """
        if self._targets == ():
            return set()
        values = {**self.defaults, **arguments}
        if self._targets is None:
            return {posixpath.normpath(path) for path in self.paths(values) if path}
        return set(_values(values[name] for name in self._targets if name in values))

    def trace(self, arguments: Mapping[str, Any], sources: Sources) -> list[Argument]:
        """Return the arguments that need a source, each with its source. A value that is the default needs none."""
        named = {name: each for name, each in arguments.items() if not self._is_default(name, each)}
        return sources.trace(named, self.parameters, self.tool.name)

    def _is_default(self, name: str, value: Any) -> bool:
        return name in self.defaults and same_json(value, self.defaults[name])

    def origin(self, arguments: Mapping[str, Any]) -> Json:
        """Return what an observation keeps of a call's result: which of its fields name something, if that is known.

        `metadata["identity"]` names them, or is a function of the arguments; with an empty list, or if it raises, the
        result makes nothing known. If it is or returns None, the output schema says it by its formats, else the names
        do. `metadata["column"]` is a function of the arguments that returns the name of a table's only column.
        `metadata["calculates"]` is for tools that only calculate with their arguments.
        """
        metadata, column = self.tool.metadata or {}, ""
        names = self._identity
        try:
            if callable(names):
                names = _declared_names(self.tool.name, "identity", names(copy.deepcopy(dict(arguments))))
            if "column" in metadata:
                column = str(metadata["column"](copy.deepcopy(dict(arguments))))
        except Exception:
            names = ()
        if names is None:
            names = [*schema_fields(metadata.get("output_schema"))] or None
        origin: Json = {} if names is None else {"identity": [*names]}
        if column:
            origin["column"] = column
        return {**origin, "calculated": True} if metadata.get("calculates") else origin

    def path_problem(self, arguments: Mapping[str, Any], allowed: Sequence[str]) -> str | None:
        """Return why a call with these arguments breaks `Profile.allowed_paths`; None if it does not.

        The paths are compared as written, with `..` resolved; the tool must confine where they really lead.
        """
        if not allowed:
            return None
        roots = [posixpath.normpath(path) for path in allowed]
        outside = [path for path in self.paths(arguments) if not any(_is_under(path, root) for root in roots)]
        return f"{', '.join(outside)[:200]} lies outside of {', '.join(allowed)}" if outside else None

    def paths(self, arguments: Mapping[str, Any]) -> Iterator[str]:
        """Yield the paths among a call's arguments, at any depth, as written; for `file:` URIs, their path.

        Tools declare them in `metadata["paths"]` as names of arguments, nested ones as `edits.path`; an empty list
        means there are none. Otherwise the schema's `format` decides (`path`, `file-path`, `uri`), else the name
        (`out_dir`, `filePath`, `source`).
        """
        declared = (self.tool.metadata or {}).get("paths")
        if declared is None:
            about_files = any(word in PATH for word in _words(self.tool.name))
            yield from _find_paths(arguments, self.parameters, about_files, 0)
            return
        for name in [declared] if isinstance(declared, str) else declared:
            yield from map(_without_scheme, _texts(_values_under(arguments, name.replace("[]", "").split("."))))

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
    def numbers(self) -> list[str]:
        """The arguments that are amounts: numbers that need not be whole, as ids are."""
        properties = self.schema.get("properties", {})
        return [name for name, rule in properties.items() if isinstance(rule, Mapping) and rule.get("type") == "number"]

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
    def search_text(self) -> str:
        """The text that finds the tool: its name, description and argument names."""
        names = " ".join(self.schema.get("properties", {}))
        return f"{self.tool.name} {self.tool.description[:SEARCHED_CHARS]} {names}"

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

    def read(self, arguments: Any) -> ReadArguments:
        """Return the arguments as the tool will get them: coerced to its schema, and validated by its model.

        Those of a call with effects include the model's defaults, which are part of what people agree to.
        """
        arguments, problems = self.arguments.read(arguments)
        if problems or self.model is None:
            return ReadArguments(arguments, problems)
        return self.model.read(arguments, defaults=self.effect != "read")

    @functools.cached_property
    def model(self) -> ArgumentsModel | None:
        """The tool's own model of its arguments; None if its schema is data."""
        schema: Any = self.tool.args_schema
        if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            return None
        try:
            return ArgumentsModel(schema, {*self.callee.injected, RUNTIME_ARGUMENT})
        except Exception:  # a model that cannot be derived from validates when it is called
            return None

    @functools.cached_property
    def callee(self) -> Callee:
        """The facts that every call of the tool needs."""
        return Callee.of(self.tool)

    @functools.cached_property
    def keyed(self) -> bool:
        """True if a second call with the same key has no second effect: the tool takes the key, or declares it."""
        return self.callee.takes_key or bool((self.tool.metadata or {}).get("keyed"))

    @functools.cached_property
    def terms(self) -> Counter[str]:
        """The words of the search text."""
        return Counter(terms(self.search_text))


@contextmanager
def _naming(tool: BaseTool) -> Iterator[None]:
    """Raise ToolError, with the tool's name, for a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ToolError(f"the tool {tool.name!r} cannot be used: {error}") from error


def check_effects(effects: Mapping[str, EffectKind], names: Collection[str]) -> None:
    """Raise ConfigError for a name, or a pattern, that fits no tool."""
    if unknown := [str(each) for each in effects if not fits_any(each, names)]:
        listing = ", ".join(names) or "none"
        raise ConfigError(f"effects names a tool that does not exist: {', '.join(unknown)}; there are: {listing}")


def fits_any(pattern: str, names: Collection[str]) -> bool:
    """Return whether a name, or a pattern with `*`, `?` and `[…]`, fits one of the names."""
    return pattern in names or any(_fits(str(pattern), name) for name in names)


def _find_effect(effects: Mapping[str, EffectKind], name: str) -> EffectKind | None:
    """Return the effect that is declared for a tool: by its name, or else by the first pattern that fits."""
    if name in effects:
        return effects[name]
    return next((effect for pattern, effect in effects.items() if _fits(str(pattern), name)), None)


def _fits(pattern: str, name: str) -> bool:
    """Return whether a pattern fits a name. A tool's original name also fits the legal name that models see."""
    return name == legal_name(pattern) or any(
        fnmatchcase(name, each) for each in {pattern, _NOT_IN_PATTERNS.sub("_", pattern)}
    )


def legal_name(name: str, *, distinct: bool | None = None) -> str:
    """Return a name in a form that models accept, always the same.

    With `distinct`, a name that had to change ends in a hash; by default it does if letters or digits were lost.
    """
    made = _NOT_IN_NAMES.sub("_", name)[:64]
    if distinct is None:
        distinct = sum(map(str.isalnum, name)) != sum(map(str.isalnum, made))
    if made == name or not distinct:
        return made
    return f"{made[:57]}_{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def _check_name(name: str, taken: Collection[str], reserved: Collection[str]) -> None:
    if not _NAME.fullmatch(name):
        raise ToolError(f"{name[:80]!r} is no name for a tool: use 1 to 64 letters, digits, underscores or hyphens")
    if name in taken:
        raise ToolError(f"two tools are called {name!r}: give one of them another name (`tool.name = …`)")
    if name in reserved:
        raise ToolError(f"the name {name!r} belongs to the runtime: rename the tool")


def _effect(name: str, override: Any, metadata: Mapping[str, Any]) -> EffectKind:
    value = override if override is not None else metadata.get("effect")
    kinds: dict[Any, EffectKind] = {"read": "read", "idempotent": "idempotent", "write": "write"}
    if value is None and metadata.get("readOnlyHint") is True:
        return "read"
    if value is None:
        return "idempotent" if metadata.get("idempotentHint") is True else "write"
    if not isinstance(value, str) or value not in kinds:
        raise ToolError(f"the effect of {name!r} is {value!r}; it must be 'read', 'idempotent' or 'write'")
    return kinds[value]


def _declared_names(name: str, what: str, declared: Any) -> tuple[str, ...] | None:
    names = [declared] if isinstance(declared, str) else declared
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not all(isinstance(each, str) for each in names):
        raise ToolError(f"the {what} of {name!r} is {declared!r}; it must be a name, or a list of them")
    return tuple(names)


def _first_sentences(description: str, count: int, chars: int = LINE_CHARS) -> str:
    """Return so many sentences of a description on one line, each shortened."""
    paragraph = _PARAGRAPH_END.split(description.strip()[:2_000], maxsplit=1)[0]
    sentences = [" ".join(each.split()) for each in _SENTENCE_END.split(paragraph, maxsplit=count)[:count]]
    return " ".join(s if len(s) <= chars else s[: chars - 1].rstrip() + "…" for s in sentences if s)


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
    function = _with_named_parameters(function)
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


def _with_named_parameters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with parameters that a call can name: `*args` becomes a list, and `**kwargs` stays empty.

    Raises ToolError for a parameter whose name no argument of a tool can have.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function
    parameters = signature.parameters
    if hidden := [name for name in parameters if name.startswith("_")]:
        raise ToolError(
            f"the function {getattr(function, '__name__', '')!r} cannot be used as a tool: its parameter {hidden[0]!r} "
            "begins with an underscore, which no argument of a tool may; rename it"
        )
    odd = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if all(each.kind not in odd for each in parameters.values()):
        return function
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # LangChain says what is wrong with them
        hints = dict(getattr(function, "__annotations__", {}))
    stars = [name for name, each in parameters.items() if each.kind is each.VAR_POSITIONAL]
    lists = {name: list[hints.get(name, Any)] for name in stars}  # type: ignore[misc]
    nameable = [each for each in parameters.values() if each.kind is not each.VAR_KEYWORD]

    def bind(arguments: Mapping[str, Any]) -> inspect.BoundArguments:
        values = {
            name: tuple(arguments[name] or ()) if name in stars else arguments[name]
            for name in parameters
            if name in arguments
        }
        bound = inspect.BoundArguments(signature, OrderedDict(values))
        bound.apply_defaults()
        return bound

    if is_async(function):

        @functools.wraps(function)
        async def call_by_name(**arguments: Any) -> Any:
            bound = bind(arguments)
            return await function(*bound.args, **bound.kwargs)
    else:

        @functools.wraps(function)
        def call_by_name(**arguments: Any) -> Any:
            bound = bind(arguments)
            return function(*bound.args, **bound.kwargs)

    plain = [
        each.replace(
            kind=each.KEYWORD_ONLY,
            default=[] if each.name in stars else each.default,
            annotation=lists.get(each.name, hints.get(each.name, each.annotation)),
        )
        for each in nameable
    ]
    call_by_name.__signature__ = signature.replace(parameters=plain)  # type: ignore[attr-defined]
    call_by_name.__annotations__ = {
        **{name: hints[name] for name in hints if name in [p.name for p in nameable]},
        **lists,
    }
    return call_by_name


def _collect_items(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an async generator as a function that returns all its items."""

    @functools.wraps(function)
    async def collect_items(*args: Any, **kwargs: Any) -> Iterator[Any]:
        items: list[Any] = []
        async for item in function(*args, **kwargs):
            items.append(item)
            if len(items) > MOST_ITEMS:  # rendering says so
                break
        return iter(items)

    return collect_items


# The paths among the arguments of a call

_FILE = ("path", "file", "filename", "filepath", "dir", "directory", "folder")
PATH = frozenset((*_FILE, *(f"{word}s" for word in _FILE), "directories", "cwd"))
"""Last words of argument names that always mean a path."""
MAYBE = frozenset(("source", "src", "destination", "dest", "dst", "root", "from", "to", "target", "output"))
"""Last words of argument names that mean a path if the value looks like one, or the tool is about files."""
LINK = frozenset(("uri", "uris", "url", "urls", "href", "link", "links"))
"""Last words of argument names that mean a path if the value is a `file:` URI."""
OTHER_PATHS = frozenset(
    ("json", "x", "xml", "key", "css", "class", "object", "property", "url", "http", "api", "route")
)
"""Words that make a following `path` another kind of path."""
FORMATS = frozenset(("path", "file-path", "directory-path"))
_WORD = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SCHEME = pattern(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]{1,60}://")
_ENDINGS = {*mimetypes.MimeTypes().types_map[True], ".md", ".yaml", ".yml", ".toml", ".log", ".ini", ".jsonl", ".env"}
_MOST_NESTED = 30


def _find_paths(value: Any, schema: Any, about_files: bool, depth: int) -> Iterator[str]:
    """Yield the paths in the properties of an object, or of the objects in a list."""
    if depth > _MOST_NESTED:
        return
    if isinstance(value, list):
        for each in value:
            yield from _find_paths(each, _part(schema, "items"), about_files, depth + 1)
    if not isinstance(value, Mapping):
        return
    for name, inner in value.items():
        part = _part(_part(schema, "properties"), str(name))
        is_path = _path_test(str(name), part, about_files)
        yield from (_without_scheme(text) for text in _texts(inner) if is_path(text))
        if isinstance(inner, Mapping) and str(name).lower() in ("files", "paths"):
            yield from (str(key) for key in inner if _looks_like(str(key)))
        if isinstance(inner, Mapping) and str(name).lower() == "paths":  # the values are paths; of "files", contents
            yield from (
                _without_scheme(text) for below in inner.values() for text in _texts(below) if _looks_like(text)
            )
        yield from _find_paths(inner, part, about_files, depth + 1)


def _path_test(name: str, schema: Any, about_files: bool) -> Any:
    """Return a predicate for whether a text under this name is a path."""
    words = _words(name)
    last, before = (words or [""])[-1], (words or [""])[:-1][-1:]
    form = _part(schema, "format") or _part(_part(schema, "items"), "format")
    if form in FORMATS:
        return lambda text: True
    if last in LINK or form in ("uri", "uri-reference"):
        return lambda text: text.lower().startswith("file:")
    if last in PATH and not (last in ("path", "paths") and OTHER_PATHS.intersection(before)):
        return lambda text: not text.startswith(("$.", "$["))
    if last in MAYBE:
        return lambda text: about_files or (_looks_like(text) and not _SCHEME.match(text))
    return lambda text: False


def _looks_like(text: str) -> bool:
    return "/" in text or "\\" in text or text.startswith((".", "~")) or posixpath.splitext(text)[1] in _ENDINGS


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the text, or the texts in a list, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MOST_NESTED:
        for each in value:
            yield from _texts(each, depth + 1)


def _values_under(value: Any, names: Sequence[str]) -> Any:
    """Return the value at a path of names; lists on the way are expanded."""
    if isinstance(value, list):
        items = [_values_under(each, names) for each in value]
        return [one for each in items for one in (each if isinstance(each, list) else [each])]
    if not names:
        return value
    return _values_under(value[names[0]], names[1:]) if isinstance(value, Mapping) and names[0] in value else None


def _part(schema: Any, name: str) -> Any:
    """Return a part of a schema, also from the alternatives of an optional argument, or None."""
    if not isinstance(schema, Mapping):
        return None
    if name in schema:
        return schema[name]
    kinds = [each for key in ("anyOf", "oneOf", "allOf") for each in schema.get(key, ())]
    return next((part for each in kinds if (part := _part(each, name)) is not None), None)


def _without_scheme(path: str) -> str:
    """Return the path of a `file:` URI; any other text unchanged."""
    return unquote(urlsplit(path).path) if path.lower().startswith("file:") else path


def _is_under(path: str, root: str) -> bool:
    """Return whether a path is under the root, even if the tool reads `\\` as `/`."""
    return "\0" not in path and all(_is_under_exactly(form, root) for form in {path, path.replace("\\", "/")})


def _is_under_exactly(path: str, root: str) -> bool:
    plain = posixpath.normpath(path)
    if root == ".":
        return not plain.startswith(("/", "..", "~"))
    return plain == root or plain.startswith(root.rstrip("/") + "/")


# Which tools fit a query


class ToolFinder:
    """Rank tools by BM25, and with `embeddings` (LangChain) by the fusion of both rankings.

    Each text is embedded once per process. If embedding fails, BM25 alone is used and the failure is logged.
    Embeddings report no usage, so their cost is not in the ledger.
    """

    def __init__(self, embeddings: Embeddings | None = None) -> None:
        self._embeddings = embeddings
        self._texts: dict[str, Sequence[float]] = {}
        self._queries: dict[str, Sequence[float]] = {}

    async def best(self, query: str, toolbox: Toolbox) -> list[str]:
        """Return the names of all tools of the toolbox, best first; ties go to the earlier."""
        fit = scores(query, {name: toolbox[name].terms for name in toolbox})
        by_words = sorted(fit, key=lambda name: -fit[name])
        if self._embeddings is None or not query.strip():
            return by_words
        try:
            async with asyncio.timeout(EMBEDDING_SECONDS):
                similar = await self._similarities(self._embeddings, query, toolbox)
        except Exception as error:
            _log.warning("tools are found by words alone: %s: %s", type(error).__name__, error)
            return by_words
        by_meaning = sorted(by_words, key=lambda name: -similar[name])
        orders = ([name for name in by_words if fit[name] > 0], by_meaning)
        places = [{name: place for place, name in enumerate(order)} for order in orders]
        fused = {name: sum(1 / (FUSE + place[name]) for place in places if name in place) for name in fit}
        return sorted(by_words, key=lambda name: -fused[name])

    async def _similarities(self, embeddings: Embeddings, query: str, toolbox: Toolbox) -> dict[str, float]:
        texts = {name: toolbox[name].search_text for name in toolbox}
        if new := [text for text in dict.fromkeys(texts.values()) if text not in self._texts]:
            self._texts |= zip(new, await embeddings.aembed_documents(new), strict=True)
        if query not in self._queries:
            self._queries[query] = await embeddings.aembed_query(query)
            while len(self._queries) > REMEMBERED:
                del self._queries[next(iter(self._queries))]
        wanted = self._queries[query]
        return {name: _cosine(wanted, self._texts[text]) for name, text in texts.items()}

    async def choose(
        self, query: str, toolbox: Toolbox, top: int, always: Collection[str] = (), most: int | None = None
    ) -> list[str]:
        """Return the `top` best names, in the toolbox's order; all if there are no more.

        Those in `always` are chosen before any other. `most` limits the whole choice, also those in `always`.
        """
        top = top if most is None else min(top, most)
        if len(toolbox) <= top:
            return list(toolbox)
        order = await self.best(query, toolbox)
        first = [name for name in order if name in always][:most]
        best = {*first, *[name for name in order if name not in always][: max(top - len(first), 0)]}
        return [name for name in toolbox if name in best]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.sqrt(sum(x * x for x in one) * sum(y * y for y in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0
