"""What nodes need and do not own: models, tools, executors, prices. Built once by `build_graph`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.runtime import Runtime

from donewhen.graph.executors.executor import Executors
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.tools.finder import ToolFinder
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.settings import Settings
from donewhen.state.settings.merging import merge_settings

ModelOf = Callable[[str, str | None], BaseChatModel]
"""(role, name from the settings or None) → the model for that role; may raise ConfigError."""
PriceOf = Callable[[str, Mapping[str, float]], float | None]
"""(model name, usage) → US dollars, or None if the price is unknown."""


Background = str | Callable[[str, str], str | Awaitable[str]]
"""A text, or a function, async or not, of the goal and the thread's id that gives one."""


@dataclass(frozen=True)
class Deps:
    """The dependencies of all nodes."""

    models: ModelOf
    executors: Executors = field(default_factory=Executors)
    """Who works on steps, and all tools that there are."""
    prices: PriceOf | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What no result may hold, beside what certainly is a credential."""
    repeats: bool = False
    """Whether whoever runs the graph carries out schedules."""
    finder: ToolFinder = field(default_factory=ToolFinder)
    """Finds tools among many."""
    adapter: Adapter = field(default_factory=Adapter)
    """How models are asked, and what was learnt about them."""
    background: Mapping[str, Background] = field(default_factory=dict)
    """`context` and `memory`: what every request is given beside the goal."""
    settings: Settings = field(default_factory=Settings)
    """Those of the graph, under those that a run is given."""

    @property
    def toolbox(self) -> Toolbox:
        """All tools that there are now, those of executors among them."""
        return self.executors.toolbox

    def tools_for(self, executor: str | None, settings: Settings) -> Toolbox:
        """Return the tools an executor may use: its own, else everybody's; less what the profile forbids."""
        named = self.executors.get(executor or "")
        if named and named.tools is not None:
            return self._allowed([tool.name for tool in named.tools], settings)
        return self._allowed([name for name in self.toolbox.names if name not in self.executors.private], settings)

    def reads(self, settings: Settings) -> Toolbox:
        """Return the tools with which planning may look: everybody's that only read, less those made for checks."""
        tools = self.tools_for(None, settings)
        return tools.subset([n for n in tools.names if tools.effect(n) == "read" and not tools.checks(n)])

    def all_tools(self, settings: Settings) -> Toolbox:
        """Return the tools that a plan and its checks may refer to: of all executors, less what the profile forbids."""
        return self._allowed(self.toolbox.names, settings)

    def _allowed(self, names: Sequence[str], settings: Settings) -> Toolbox:
        return self.toolbox.subset([name for name in names if name not in settings.profile.forbidden_tools])

    def model(self, role: str, settings: Settings, executor: str | None = None) -> BaseChatModel:
        """Return the model for a role; an executor's own model comes first."""
        named = self.executors.get(executor or "")
        if named and named.model is not None:
            return named.model
        return self.models(role, settings.models.get(role))


def with_settings(runtime: Runtime[Any], deps: Deps) -> Runtime[Settings]:
    """Return the runtime with the settings of the run over those of the graph, as its context.

    A graph around this one may have a context of its own, of any kind; only an instance of Settings is ours. LangGraph
    makes one of the dict that a run of this graph itself is given.
    """
    given = runtime.context if isinstance(runtime.context, Settings) else None
    settings = merge_settings(deps.settings, given)
    return runtime if settings is runtime.context else runtime.override(context=settings)


def settings_of(runtime: Runtime[Settings]) -> Settings:
    """Return the run's settings; LangGraph passes None where nothing was given."""
    given: Settings | None = runtime.context
    return Settings() if given is None else given
