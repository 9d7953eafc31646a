"""Who may work on a step. An executor is a profile with a model and tools, or an agent that works by itself."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool

from donewhen.graph.executors.leg import Leg, Report
from donewhen.graph.tools.toolbox import EffectKind, Toolbox
from donewhen.state.errors import ConfigError
from donewhen.state.reading.decisions import NAMES
from donewhen.state.settings import Profile
from donewhen.state.values import near, similar

NAME_CHARS = 100


@dataclass(frozen=True)
class Card:
    """What the planner reads of an executor."""

    description: str = ""
    skills: tuple[str, ...] = ()
    """What it is good at, one short text each."""


class Remote(Protocol):
    """An agent elsewhere."""

    async def card(self) -> Card | None:
        """What it says of itself, perhaps remembered; None while it cannot be reached."""

    async def work(self, leg: Leg) -> Report:
        """Work until it is done or asks. The same leg again finds what was begun, and is not sent twice.

        Raises Unfinished where it began, or may have, and cannot be followed to its end.
        """

    async def lookup(self, leg: Leg) -> Report | None:
        """Return what became of a leg from before, by its key; None if it never arrived or ended without success.

        Raises whatever there is to say where that is unknown.
        """


@dataclass(frozen=True)
class Executor:
    """Who works on a step: a profile, a model, tools; `None` means the default.

    Its `tools` are its only ones, and only its own unless the graph was given them too. The planner reads
    `description` and `skills`. One that is not `enabled` is hidden from plans and gets no work. With `passthrough`, a
    run that names this executor in `Settings.executor` skips planning.

    With `work`, `graph` or `remote` it works by itself: it gets a brief, its output becomes one observation, and the
    models it calls are charged to the run. A graph or a remote agent keeps its conversation on the thread, so that
    the next step for it builds on this one, and what it asks is asked in the run. Then `model` proves the step with
    its output; for `passthrough` no model does, the output is the result.
    Raises ConfigError if more than one of the three is given.
    """

    description: str = ""
    profile: str = ""
    model: BaseChatModel | None = None
    tools: tuple[BaseTool, ...] | None = None
    passthrough: bool = False
    work: Callable[[str], Awaitable[Any]] | None = None
    """An async function from the step's brief to its result. If that is an AIMessage, what its `usage_metadata`
    reports is charged."""
    graph: Runnable[Any, Any] | None = None
    """A compiled LangGraph graph with a `messages` key; gets the brief as a human message, runs apart from this one."""
    seconds: float | None = None
    """The longest that it may work by itself; None: as long as the step's `active_seconds` last."""
    skills: tuple[str, ...] = ()
    enabled: bool = True
    remote: Remote | None = None
    """An agent elsewhere; `"a2a:https://…"` in place of an Executor makes one."""

    def __post_init__(self) -> None:
        if sum(each is not None for each in (self.work, self.graph, self.remote)) > 1:
            raise ConfigError("an executor has one of work, graph and remote, not both or all")

    @property
    def works_alone(self) -> bool:
        """Whether it works by itself before a model proves the step."""
        return self.work is not None or self.graph is not None or self.remote is not None


ExecutorInput = Executor | Runnable[Any, Any] | str
"""An Executor, a compiled graph, or the address of a remote agent, such as `a2a:https://agents.example/research`."""
Connect = Callable[[str], Executor]
"""Makes an executor of an address; raises ConfigError for one that it does not know."""


class Executors(MutableMapping[str, Executor]):
    """The executors of an agent by their exact names; add, replace and remove them while it lives.

    What is set may be an Executor, a compiled graph, or an address. Raises ConfigError for what is none, ToolError for
    tools that cannot be offered; nothing has changed then.
    """

    def __init__(
        self,
        given: Mapping[str, ExecutorInput] | None = None,
        *,
        tools: Sequence[BaseTool] = (),
        effects: Mapping[str, EffectKind] | None = None,
        connect: Connect | None = None,
        elsewhere: Iterable[str] = (),
    ) -> None:
        self._common, self._connect = tuple(tools), connect
        self.elsewhere: frozenset[str] = frozenset(elsewhere)
        """Names of tools that a profile may forbid, though there are none of them here."""
        self._effects: dict[str, EffectKind] = {**(effects or {})}
        self._all: dict[str, Executor] = {}
        self._take({name: self._made(name, one) for name, one in (given or {}).items()}, self._effects)

    def __getitem__(self, name: str) -> Executor:
        return self._all[name]

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def __setitem__(self, name: str, one: ExecutorInput) -> None:
        self._change({**self._all, name: self._made(name, one)})

    def __delitem__(self, name: str) -> None:
        del (rest := dict(self._all))[name]
        self._change(rest)

    def enable(self, name: str, enabled: bool = True) -> None:
        """Show or hide an executor. KeyError if there is none of this name."""
        self[name] = replace(self._all[name], enabled=enabled)

    @property
    def active(self) -> Mapping[str, Executor]:
        """Those that get work."""
        return {name: one for name, one in self._all.items() if one.enabled}

    async def cards(self) -> dict[str, Card]:
        """What the planner reads of those that get work; a remote agent that cannot be reached now is left out."""
        found: dict[str, Card] = {}
        for name, one in self.active.items():
            said = await one.remote.card() if one.remote else Card()
            if said is not None:
                found[name] = Card(one.description or said.description, one.skills or said.skills)
        return found

    def with_tools(self, tools: Sequence[BaseTool]) -> "Executors":
        """The same executors, and more tools for all that have none of their own. Raises ToolError for a name twice."""
        more: Any = {"effects": self._effects, "connect": self._connect, "elsewhere": self.elsewhere}
        made = Executors(tools=[*self._common, *tools], **more)
        made._change(self._all)
        return made

    def _change(self, given: dict[str, Executor]) -> None:
        names = {tool.name for tool in [*self._common, *_own(given)]}
        self._take(given, {name: effect for name, effect in self._effects.items() if name in names})

    def _take(self, given: dict[str, Executor], effects: Mapping[str, EffectKind]) -> None:
        own, common = _own(given), {tool.name for tool in self._common}
        tools = {id(tool): tool for tool in [*self._common, *own]}.values()
        self.toolbox: Toolbox = Toolbox([*tools], effects=effects, reserved=NAMES)
        self.private: frozenset[str] = frozenset(tool.name for tool in own) - common
        """Names of tools that only executors were given."""
        self._all = given

    def _made(self, name: str, one: ExecutorInput) -> Executor:
        if not name.strip() or "\n" in name or len(name) > NAME_CHARS:
            raise ConfigError(f"{name!r} is no name for an executor: use a line of at most {NAME_CHARS} characters")
        if isinstance(one, Executor):
            return one
        if isinstance(one, str):
            return self._connected(name, one)
        if isinstance(one, Runnable):
            named = str(getattr(one, "name", "") or "")
            return Executor(description="" if named == "LangGraph" else named, graph=one)
        raise ConfigError(f"the executor {name!r} is {one!r}; give an Executor, a compiled graph, or 'a2a:https://…'")

    def _connected(self, name: str, address: str) -> Executor:
        if self._connect is None:
            raise ConfigError(
                f"the executor {name!r} is the address {address!r}, which build_graph cannot open: "
                "give it to Agent(executors=…), or give Executor(remote=RemoteAgent(…))"
            )
        return self._connect(address)


def _own(given: Mapping[str, Executor]) -> list[BaseTool]:
    return [tool for executor in given.values() for tool in executor.tools or ()]


def missing(name: str | None, executors: Executors) -> str | None:
    """Why an executor that is named gets no work, in words; None if it does, or if nobody is named."""
    if not name or name in executors.active:
        return None
    if name in executors:
        return f"The executor {name!r} is disabled."
    return f"There is no executor {name!r}{near(name, executors.active)}"


def unenforceable(profile: Profile, executors: Executors) -> str | None:
    """Return which hard constraint of a profile names nothing, in words; None if each can be enforced."""
    known = {*executors.toolbox.names, *executors.elsewhere}
    for name in profile.forbidden_tools:
        if name not in known:
            return f"profile.forbidden_tools names tools exactly: there is no tool {name!r}{near(name, known)}"
    for path in profile.allowed_paths:
        if "*" in path:
            return f"profile.allowed_paths names files and folders, not patterns: {path!r}"
    return None


def unlike(names: Iterable[str], tools: Iterable[BaseTool]) -> list[str]:
    """Return those of the names that no tool has, and that are no slip of the pen for one of these."""
    there = [tool.name for tool in tools]
    return [name for name in names if not similar(name, there)]
