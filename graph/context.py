"""What nodes need and do not own: models, tools, executors, prices. Built once by `build_graph`."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime

from donewhen.graph.adapter import Adapter
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings

ModelOf = Callable[[str, str | None], BaseChatModel]
"""(role, name from the settings or None) → the model for that role; may raise ConfigError."""
PriceOf = Callable[[str, Mapping[str, float]], float | None]
"""(model name, usage) → US dollars, or None if the price is unknown."""


@dataclass(frozen=True)
class Executor:
    """Who works on a step: a profile, a model, tools; `None` means the default.

    Its `tools` are its only ones, and only its own unless the graph was given them too. With `passthrough`, a run that
    names this executor in `Settings.executor` skips planning.

    With `work` or `graph` it works by itself first: its whole output becomes one observation, made once like any
    write, and the models it calls are charged to the run. Then `model` goes on and proves the step with it.
    Raises ConfigError if both are given.
    """

    description: str = ""
    profile: str = ""
    model: BaseChatModel | None = None
    tools: tuple[BaseTool, ...] | None = None
    passthrough: bool = False
    work: Callable[[str], Awaitable[Any]] | None = None
    """An async function from the step's brief to its result, for instance of a remote agent. If that is an AIMessage,
    what its `usage_metadata` reports is charged."""
    graph: Runnable[Any, Any] | None = None
    """A compiled LangGraph graph with a `messages` key; gets the brief as a human message, runs apart from this one."""
    seconds: float | None = None
    """The longest that `work` or `graph` may take; None: as long as the step's `active_seconds` last."""

    def __post_init__(self) -> None:
        if self.work is not None and self.graph is not None:
            raise ConfigError("an executor has either work or graph, not both")

    @property
    def works_alone(self) -> bool:
        """Whether it works by itself before a model proves the step."""
        return self.work is not None or self.graph is not None


@dataclass(frozen=True)
class Deps:
    """The dependencies of all nodes."""

    models: ModelOf
    toolbox: Toolbox
    executors: Mapping[str, Executor] = field(default_factory=dict)
    private: Collection[str] = frozenset()
    """Names of tools that only executors were given."""
    prices: PriceOf | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What no result may hold, beside what certainly is a credential."""
    adapter: Adapter = field(default_factory=Adapter)
    """How models are asked, and what was learnt about them."""

    def tools_for(self, executor: str | None, settings: Settings) -> Toolbox:
        """The tools an executor may use: its own, else those that are everybody's; less what the profile forbids."""
        named = self.executors.get(executor or "")
        if named and named.tools is not None:
            return self._allowed([tool.name for tool in named.tools], settings)
        return self._allowed([name for name in self.toolbox.names if name not in self.private], settings)

    def reads(self, settings: Settings) -> Toolbox:
        """The tools with which planning may look: everybody's that only read, less those made for checks."""
        tools = self.tools_for(None, settings)
        return tools.subset([n for n in tools.names if tools.effect(n) == "read" and not tools.checks(n)])

    def all_tools(self, settings: Settings) -> Toolbox:
        """What a plan and its checks may refer to: the tools of all executors, less what the profile forbids."""
        return self._allowed(self.toolbox.names, settings)

    def _allowed(self, names: Sequence[str], settings: Settings) -> Toolbox:
        return self.toolbox.subset([name for name in names if name not in settings.profile.forbidden_tools])

    def model(self, role: str, settings: Settings, executor: str | None = None) -> BaseChatModel:
        """The model for a role; an executor's own model comes first."""
        named = self.executors.get(executor or "")
        if named and named.model is not None:
            return named.model
        return self.models(role, settings.models.get(role))


def settings_of(runtime: Runtime[Settings]) -> Settings:
    """The run's settings; LangGraph passes None where nothing was given."""
    given: Settings | None = runtime.context
    return Settings() if given is None else given
