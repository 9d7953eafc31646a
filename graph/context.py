"""What nodes need and do not own: models, tools, executors, prices. Built once by `build_graph`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langgraph.runtime import Runtime

from graph.toolbox import Toolbox
from state.errors import ConfigError
from state.settings import Settings

ModelSource = Callable[[str, str | None], BaseChatModel]
"""(role, name from the settings or None) → the model for that role; may raise ConfigError."""
Pricing = Callable[[str, Mapping[str, float]], float | None]
"""(model name, usage) → US dollars, or None if the price is unknown."""


@dataclass(frozen=True)
class Executor:
    """Who works on a step: a profile, a model, tools; `None` means the default.

    With `passthrough`, a run that names this executor in `Settings.executor` skips planning.

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
    """An async function from the step's brief to its result, for instance of a remote agent."""
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

    models: ModelSource
    toolbox: Toolbox
    executors: Mapping[str, Executor] = field(default_factory=dict)
    pricing: Pricing | None = None
    mute: set[str] = field(default_factory=set)
    """Names of models whose servers refuse to report what a streamed reply used."""

    def tools_for(self, executor: str | None, settings: Settings) -> Toolbox:
        """The tools an executor may use: its own or all, less what the profile forbids."""
        toolbox = self.toolbox
        named = self.executors.get(executor or "")
        if named and named.tools is not None:
            toolbox = toolbox.subset([tool.name for tool in named.tools])
        forbidden = settings.profile.forbidden_tools
        return toolbox.subset([name for name in toolbox.names if name not in forbidden]) if forbidden else toolbox

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
