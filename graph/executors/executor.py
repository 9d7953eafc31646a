"""Executors of steps. An executor is a profile with a model and tools, or an agent that works on its own.

One that works on its own is handed a brief or answers, and reports an output or questions.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore

from donewhen.graph.tools.toolbox import EffectKind, Toolbox, check_effects, fits_any, from_function, legal_name
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, ToolError
from donewhen.state.plan.revise import ShownTool
from donewhen.state.reading.decisions import LOOKUPS, NAMES, PROGRAM
from donewhen.state.settings import Settings
from donewhen.state.values import name_hint, similar

NAME_CHARS = 100
CANCEL = "cancel"
"""The reason of a drain because the run is cancelled; any other leaves the work to the next process."""

ROWS, ROW_CHARS = 40, 500
"""The most messages of a transcript, counted from the end, and the most characters of each."""


@dataclass(frozen=True)
class Handoff:
    """The input of an executor that works on its own."""

    brief: str
    key: str
    """Identifies this handoff: the same after a crash, different for every other one."""
    first: str
    """The key of the handoff that brought the brief."""
    name: str
    thread_id: str
    """The run's thread."""
    conversation: str
    """The executor's conversation on this thread; "" is the one that continues across requests."""
    attached: Sequence[Any] = ()
    """Content blocks of images and files in the request; only graphs see them."""
    answers: Mapping[str, Any] = field(default_factory=dict)
    """The answers by question id; {} for the first handoff."""
    config: RunnableConfig = field(default_factory=lambda: RunnableConfig())
    """A configuration with only the run's callbacks."""
    context: Mapping[str, Any] | None = None
    """The context of the run's tools, which graphs of this process get as their own."""
    saver: BaseCheckpointSaver[Any] | None = None
    store: BaseStore | None = None
    tell: Callable[[str], None] = lambda text: None
    """Shows people what the executor says while it works."""
    control: RunControl = field(default_factory=RunControl)
    """The run's control, by which it is drained; with it drains a graph of this process that keeps checkpoints."""

    @property
    def is_cancelled(self) -> bool:
        """Return whether the run is being cancelled."""
        return self.control.drain_reason == CANCEL

    @property
    def message(self) -> HumanMessage:
        """The brief with its attachments, as a message."""
        content: Any = [{"type": "text", "text": self.brief}, *self.attached] if self.attached else self.brief
        return HumanMessage(content, id=self.first or None)


@dataclass(frozen=True)
class Report:
    """The result of a handoff."""

    output: Any = None
    """The output, of any type; its text becomes the observation."""
    asks: Sequence[tuple[str, Any]] = ()
    """Id and value of each question, if the executor cannot continue without answers."""
    messages: Sequence[BaseMessage] = ()
    """The executor's messages since the brief."""
    failure: str = ""
    """Why it failed: the executor reported a failure, or the work never reached it."""
    unreached: str = ""
    """Why answers did not reach the executor; they are sent again."""


class Unfinished(Exception):
    """An agent began to work and its result is unknown: the connection was lost, or the agent crashed."""


@dataclass(frozen=True)
class Card:
    """An executor's description for the planner."""

    description: str = ""
    skills: tuple[str, ...] = ()
    """Its skills, one short text each."""


class Remote(Protocol):
    """A remote agent."""

    async def card(self) -> Card | None:
        """Return the agent's description, possibly cached; None while it cannot be reached."""

    async def work(self, handoff: Handoff) -> Report:
        """Work until the agent finishes or asks. Repeating a handoff continues it; nothing is sent twice.

        Raises Unfinished if work began, or may have begun, and its end cannot be observed.
        """

    async def lookup(self, handoff: Handoff) -> Report | None:
        """Return the report of an earlier handoff by its key; None if it never arrived or ended without success.

        Raises if that is unknown.
        """


@dataclass(frozen=True)
class Executor:
    """A profile, a model and tools that work on steps; `None` means the default.

    With `tools` it has only these, and other executors do not have them unless the graph was given them too. The
    planner reads `description` and `skills`. An executor that is not `enabled` is hidden from plans and gets no work.
    With `passthrough`, a run that names this executor in `Settings.executor` skips planning.

    With `work`, `graph` or `remote` it works on its own: it gets a brief, its output becomes one observation, and its
    model calls are charged to the run. A graph or remote agent keeps its conversation on the thread, so its next step
    continues from this one, and its questions become questions of the run. Then `model` proves the step from the
    output; with `passthrough` the output is the result, unproven.
    Raises ConfigError if more than one of the three is given.
    """

    description: str = ""
    profile: str = ""
    model: BaseChatModel | str | None = None
    """A chat model, or its name as in `Agent(model)`."""
    tools: Sequence[BaseTool | Callable[..., Any]] | None = None
    """LangChain tools or functions."""
    passthrough: bool = False
    work: Callable[[str], Awaitable[Any]] | None = None
    """An async function from the step's brief to its result. If it returns an AIMessage, the reported usage is charged.
    """
    graph: Runnable[Any, Any] | None = None
    """A compiled LangGraph graph with a `messages` key. It gets the brief as a human message and runs separately."""
    seconds: float | None = None
    """The longest time of its work; None: `Settings.executor_seconds`, or the step's `active_seconds` if less."""
    skills: tuple[str, ...] = ()
    enabled: bool = True
    remote: Remote | None = None
    """A remote agent; `"a2a:https://…"` in place of an Executor creates one."""

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.work, self.graph, self.remote)) > 1:
            raise ConfigError("an executor has one of work, graph and remote, not both or all")

    @property
    def works_alone(self) -> bool:
        """True if it works on its own before a model proves the step."""
        return self.work is not None or self.graph is not None or self.remote is not None


ExecutorInput = Executor | Runnable[Any, Any] | str
"""An Executor, a compiled graph, or the address of a remote agent, such as `a2a:https://agents.example/research`."""
Connect = Callable[[str], Executor]
"""Returns the executor for an address; raises ConfigError for an unknown kind of address."""


NamedTools = Mapping[str, ShownTool]
"""Tools that people were asked about, each as it was then."""


class Executors(MutableMapping[str, Executor]):
    """The executors of an agent by name. Add, replace or remove them while the agent is in use.

    A value may be an Executor, a compiled graph, or an address. Raises ConfigError for anything else and ToolError
    for tools that cannot be offered; nothing has changed then.
    """

    def __init__(
        self,
        executors: Mapping[str, ExecutorInput] | None = None,
        *,
        tools: Sequence[BaseTool] = (),
        effects: Mapping[str, EffectKind] | None = None,
        connect: Connect | None = None,
        elsewhere: Iterable[str] = (),
        complete: bool = True,
        known: Toolbox | None = None,
    ) -> None:
        """`complete`: all tools are there, so each of `effects` has to fit one. `known`: tools read before."""
        self._known = known
        self._renamed: dict[int, tuple[BaseTool, BaseTool]] = {}
        """By id, tools whose names no model accepts, and their copies with one that models do."""
        self._common, self._connect = tuple(map(self._with_legal_name, tools)), connect
        self._removed: frozenset[str] = frozenset()
        """Names of tools and executors that the owner of the agent took away."""
        self.elsewhere: frozenset[str] = frozenset(elsewhere)
        """Names of tools that a profile may forbid although they are not here."""
        self._effects: dict[str, EffectKind] = {**(effects or {})}
        self._all: dict[str, Executor] = {}
        self._made: dict[Callable[..., Any], BaseTool] = {}
        """Tools by the functions that they were made of."""
        self._take({name: self._as_executor(name, one) for name, one in (executors or {}).items()})
        if complete:
            check_effects(self._effects, self.toolbox)

    def __getitem__(self, name: str) -> Executor:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __setitem__(self, name: str, one: ExecutorInput) -> None:
        self._change({**self._all, name: self._as_executor(name, one)})

    def __delitem__(self, name: str) -> None:
        del (rest := dict(self._all))[name]
        self._change(rest)

    def enable(self, name: str, enabled: bool = True) -> None:
        """Show or hide an executor. Raises KeyError for an unknown name."""
        self[name] = replace(self._all[name], enabled=enabled)

    @property
    def active(self) -> Mapping[str, Executor]:
        """The enabled executors."""
        return {name: one for name, one in self._all.items() if one.enabled}

    async def cards(self) -> dict[str, Card]:
        """Return the planner's descriptions of the enabled executors; unreachable remote agents are left out."""
        cards: dict[str, Card] = {}
        for name, one in self.active.items():
            card = await one.remote.card() if one.remote else Card(_own_words(one))
            if card is not None:
                cards[name] = Card(one.description or card.description, one.skills or card.skills)
        return cards

    def with_tools(self, tools: Sequence[BaseTool]) -> "Executors":
        """Return a copy with more tools for all executors without their own, such as `tools=` of a run.

        Raises ToolError for a duplicate name.
        """
        added, own = [*map(self._with_legal_name, tools)], [*self._common, *_own_tools(self._all)]
        if twice := {each.name for tool in added for each in own if each.name == tool.name and each is not tool}:
            name = min(twice)
            owner = next(
                (f"executor {of!r}" for of, one in self._all.items() if name in {tool.name for tool in own_tools(one)}),
                "the agent",
            )
            advice = "give one of them another name, or make the agent without it, as in Agent(model, [])"
            raise ToolError(
                f"two tools are called {name!r}, one of {owner} and one in tools= of this run, which are added to all "
                f"that are there: {advice if owner == 'the agent' else 'give one of them another name'}"
            )
        more: Any = {"effects": self._effects, "connect": self._connect, "elsewhere": self.elsewhere, "complete": False}
        more["known"] = self.toolbox
        made = Executors(tools=[*self._common, *added], **more)
        made._change(self._all)
        made._removed = self._removed
        return made

    def tools_of(self, name: str | None) -> Toolbox:
        """Return the tools of an executor: its own, or those that all without their own share."""
        named = self._all.get(name or "")
        if named and named.tools is not None:
            return self.toolbox.subset(tool.name for tool in own_tools(named))
        return self.shared

    def missing(self, executor: str | None, tools: NamedTools) -> list[str]:
        """Return the names of the executor and of these tools that are missing here, unless the owner removed them.

        A tool that is another one now is missing, too: see `ShownTool.covers`.
        """
        if executor and executor not in self._all:
            return [] if executor in self._removed else [executor]
        here = {*self.tools_of(executor), *self._removed, *LOOKUPS, PROGRAM, executor}
        return [name for name, one in tools.items() if name not in here or not one.covers(self.tool_now(name))]

    def tool_now(self, name: str) -> ShownTool:
        """Return what a tool is now; nothing is known of one that is not here."""
        return self.toolbox[name].now if name in self.toolbox else ShownTool()

    def names_at_servers(self, name: str) -> list[str]:
        """Return what the tools are called here whose servers call them by this name, if that is another name."""
        known = ((each, getattr(known.tool, "original_name", None)) for each, known in self.toolbox.items())
        return [each for each, original in known if original == name != each]

    def set_tools(
        self, tools: Sequence[BaseTool], effects: Mapping[str, EffectKind] | None = None, *, by_owner: bool = True
    ) -> None:
        """Replace the tools of all executors without their own. Raises ToolError like the constructor, and then changes
        nothing.

        `by_owner`: True if the agent's owner asked for it; False if a server's list of tools changed.
        """
        before = self._common, self._effects
        self._common = tuple(map(self._with_legal_name, tools))
        self._effects = {**self._effects, **(effects or {})}
        try:
            self._change(self._all, by_owner=by_owner)
        except Exception:
            self._common, self._effects = before
            raise
        self.elsewhere |= {tool.name for tool in before[0]}  # a tool that a profile forbids may be removed

    def _change(self, executors: dict[str, Executor], *, by_owner: bool = True) -> None:
        names = {tool.name for tool in [*self._common, *_own_tools(executors)]}
        before = {*self.toolbox, *self._all} if by_owner else {}
        self._take(executors)
        self._removed = self._removed.union(before).difference(names, executors)

    def _take(self, executors: dict[str, Executor]) -> None:
        own, common = _own_tools(executors), {tool.name for tool in self._common}
        tools = {id(tool): tool for tool in [*self._common, *own]}.values()
        names = {tool.name for tool in tools}
        effects = {each: effect for each, effect in self._effects.items() if fits_any(each, names)}
        self.toolbox: Toolbox = Toolbox([*tools], effects=effects, reserved=NAMES, earlier=self._known)
        self.private: frozenset[str] = frozenset(tool.name for tool in own) - common
        """Names of tools that only executors have."""
        self.shared: Toolbox = self.toolbox.without(self.private)
        """The tools of all executors without their own."""
        self._all = executors

    def _as_executor(self, name: str, one: ExecutorInput) -> Executor:
        if not name.strip() or "\n" in name or len(name) > NAME_CHARS:
            raise ConfigError(f"{name!r} is no name for an executor: use a line of at most {NAME_CHARS} characters")
        if isinstance(one, Executor):
            return one if one.tools is None else replace(one, tools=tuple(self._as_tool(each) for each in one.tools))
        if isinstance(one, str):
            return self._open_address(name, one)
        if isinstance(one, Runnable):
            named, made = str(getattr(one, "name", "") or ""), Executor(graph=one)
            return replace(made, description=_own_words(made) or ("" if named == "LangGraph" else named))
        raise ConfigError(f"the executor {name!r} is {one!r}; give an Executor, a compiled graph, or 'a2a:https://…'")

    def _as_tool(self, tool: BaseTool | Callable[..., Any]) -> BaseTool:
        """Return a function as a tool: the common one if that was made of it."""
        if isinstance(tool, BaseTool):
            return self._with_legal_name(tool)
        if not callable(tool):
            raise ToolError(f"{tool!r} cannot be used as a tool: pass a LangChain tool or a function")
        if tool not in self._made:
            parts = ("func", "coroutine")
            same = (each for each in self._common if tool in (getattr(each, key, None) for key in parts))
            self._made[tool] = next(same, None) or self._with_legal_name(from_function(tool))
        return self._made[tool]

    def _with_legal_name(self, tool: BaseTool) -> BaseTool:
        """Return the tool, or a copy of it if no model accepts its name, such as one with spaces."""
        if (name := legal_name(tool.name)) == tool.name:
            return tool
        if id(tool) not in self._renamed:
            self._renamed[id(tool)] = tool, tool.model_copy(update={"name": name})
        return self._renamed[id(tool)][1]

    def _open_address(self, name: str, address: str) -> Executor:
        if self._connect is None:
            raise ConfigError(
                f"the executor {name!r} is the address {address!r}, which build_graph cannot open: "
                "give it to Agent(executors=…), or give Executor(remote=RemoteAgent(…))"
            )
        return self._connect(address)


def _own_tools(executors: Mapping[str, Executor]) -> list[BaseTool]:
    return [tool for executor in executors.values() for tool in own_tools(executor)]


def own_tools(executor: Executor) -> list[BaseTool]:
    """Return the own tools of an executor that `Executors` holds, where its functions are tools."""
    return [cast("BaseTool", tool) for tool in executor.tools or ()]


def executor_problem(name: str | None, executors: Executors) -> str | None:
    """Return why a named executor gets no work; None if it does, or if no name is given."""
    if not name or name in executors.active:
        return None
    if name in executors:
        return f"The executor {name!r} is disabled."
    return f"There is no executor {name!r}{name_hint(name, executors.active)}"


def constraint_problem(settings: Settings, executors: Executors) -> str | None:
    """Return which hard constraint of the settings cannot be enforced, because it names nothing; None if all can."""
    names = {*executors.toolbox, *executors.elsewhere}
    named = [("profile.forbidden_tools", name) for name in settings.profile.forbidden_tools]
    for where, name in [*named, *(("approvers", name) for name in settings.approvers)]:
        if name not in names:
            return f"{where} names tools exactly: there is no tool {name!r}{name_hint(name, names)}"
    for name in settings.approvers:
        if name in executors.toolbox and executors.toolbox.effect(name) == "read":
            return f"approvers names tools that change something: {name!r} only reads, and nobody is asked about that"
    for path in settings.profile.allowed_paths:
        if "*" in path:
            return f"profile.allowed_paths names files and folders, not patterns: {path!r}"
    return None


def unknown_names(names: Iterable[str], tools: Iterable[BaseTool]) -> list[str]:
    """Return the names that resemble no tool's name; a similar name is taken for a misspelling."""
    there = [tool.name for tool in tools]
    return [name for name in names if not similar(name, there)]


def _own_words(one: Executor) -> str:
    """Return the docstring of an executor's function, or of the state of its graph; "" if it has none of its own."""
    about: Any = one.work or getattr(getattr(one.graph, "builder", None), "state_schema", None)
    docstring = vars(about).get("__doc__") if isinstance(about, type) else getattr(about, "__doc__", None)
    is_library = str(getattr(about, "__module__", "")).partition(".")[0] in ("langchain", "langchain_core", "langgraph")
    return "" if is_library or docstring == dict.__doc__ else inspect.cleandoc(docstring or "").partition("\n\n")[0]


def transcript(messages: Sequence[BaseMessage]) -> list[Json]:
    """Return messages in short form for the receipt: author, text and tool calls."""
    rows: list[Json] = []
    for message in messages[-ROWS:]:
        calls = [call["name"] for call in message.tool_calls] if isinstance(message, AIMessage) else []
        by = "user" if isinstance(message, HumanMessage) else message.name or message.type
        rows.append({"by": by, "text": message.text[:ROW_CHARS], **({"calls": calls} if calls else {})})
    return rows
