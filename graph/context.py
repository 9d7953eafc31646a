"""The dependencies of nodes: models, tools, executors, prices. `build_graph` creates them once."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.language_models import BaseChatModel
from langgraph.runtime import Runtime

from donewhen.graph.executors.executor import Executors
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.tools.hooks import Policies
from donewhen.graph.tools.toolbox import Toolbox, ToolFinder
from donewhen.state.settings import Settings, merge_settings, stored_settings

ModelOf = Callable[[str, str | None], BaseChatModel]
"""(role, name from the settings or None) → the model for that role; may raise ConfigError."""
PriceOf = Callable[[str, Mapping[str, float]], float | None]
"""(model name, usage) → US dollars, or None if the price is unknown."""


Background = str | Callable[[str, str], str | Awaitable[str]]
"""A text, or a function of the goal and the thread id, async or not, that returns one."""


_of_run: ContextVar[tuple[Executors, Executors, Settings | None] | None] = ContextVar("of_run", default=None)
"""The executors of a graph, and the executors and default settings that replace its own in the run of this context."""


def use_executors(graphs: Executors, own: Executors, settings: Settings | None = None) -> None:
    """Replace the executors and tools of a graph, and its default settings, for the run that works in this context.

    So one compiled graph serves all runs, live objects stay out of the state, and a nested graph keeps its own.
    """
    _of_run.set((graphs, own, settings))


@dataclass(frozen=True)
class Deps:
    """The dependencies of all nodes."""

    models: ModelOf | BaseChatModel
    """A model for all roles, or a function that returns one."""
    executors: Executors = field(default_factory=Executors)
    """Executors by name, and all tools."""
    prices: PriceOf | None = None
    repeats: bool = False
    """True if the caller runs schedules."""
    finder: ToolFinder = field(default_factory=ToolFinder)
    """Ranks tools by a query."""
    adapter: Adapter = field(default_factory=Adapter)
    """Prepares models and remembers their quirks."""
    background: Mapping[str, Background] = field(default_factory=dict)
    """The sources of `agents_md`, `context` and `memory`, which are added to every request."""
    own_models: Mapping[str, BaseChatModel] = field(default_factory=dict)
    """Other models, by role or by a name that the settings use."""
    settings: Settings = field(default_factory=Settings)
    """The graph's default settings; those of a run override them."""
    policies: Policies = field(default_factory=Policies)
    """The hooks that calls, questions and ends have to pass, and the secrets."""

    def of_run(self) -> "Deps":
        """Return these dependencies, with the executors and settings of the run that works in this context."""
        graphs, own, settings = _of_run.get() or (None, self.executors, None)
        if graphs is not self.executors or (own is self.executors and settings is None):
            return self
        return replace(self, executors=own, settings=settings or self.settings)

    @property
    def secrets(self) -> Sequence[str]:
        """Values that are removed from every result, besides recognized credentials."""
        return self.policies.secrets

    def tools_for(self, executor: str | None, settings: Settings) -> Toolbox:
        """Return the tools an executor may use: its own or the shared ones, without those the profile forbids."""
        tools = self.executors.tools_of(executor) if executor else self.executors.shared
        return tools.usable(settings)

    def step_tools(self, settings: Settings, state: Mapping[str, Any]) -> Toolbox:
        """Return the tools of a step; each as its plan showed it, with at least that effect."""
        tools = self.tools_for(state["step"].get("executor"), settings).of_plan(state["run"].get("plan"))
        return tools.at_least(state.get("approved_effects") or {})

    def reads(self, settings: Settings, approval: Mapping[str, Any] | None = None) -> Toolbox:
        """Return the tools that planning may call: those without an executor that only read and are not checks.

        A tool that did more than read when a plan was approved is left out.
        """
        tools = self.tools_for(None, settings).at_least((approval or {}).get("effects") or {})
        return tools.subset([name for name, tool in tools.items() if tool.effect == "read" and not tool.is_check])

    def all_tools(self, settings: Settings, plan: Mapping[str, Any] | None = None) -> Toolbox:
        """Return the tools that a plan and its checks may name: of all executors, without those the profile forbids.

        With a `plan` there are none that are provided otherwise than when it was made.
        """
        return self.executors.toolbox.usable(settings).of_plan(plan)

    def missing_tools(self, plan: Mapping[str, Any], step: Mapping[str, Any]) -> list[str]:
        """Return the tools that the plan names for a step and that are not there: removed, or of another process."""
        here = self.executors.toolbox.of_plan(plan)
        return [name for name in step.get("tools") or () if name not in here]

    def model(self, role: str, settings: Settings, executor: str | None = None) -> BaseChatModel:
        """Return the model for a role; an executor's own model comes first."""
        named = self.executors.get(executor) if executor else None
        own = named.model if named else None
        if isinstance(own, BaseChatModel):
            return own
        name = own or settings.models.get(role)
        if chosen := self.own_models.get(role if name is None else name):
            return chosen
        return self.models if isinstance(self.models, BaseChatModel) else self.models(role, name)

    def most_tools(self, count: int, role: str, settings: Settings, executor: str | None = None) -> int | None:
        """Return how many of `count` tools a request of a role may have; None: all of them.

        The model is only looked up if they might be too many.
        """
        if count <= self.adapter.fewest_tools:
            return None
        try:
            most = self.adapter.most_tools(self.model(role, settings, executor))
        except Exception:  # the request to the model will report it
            return None
        return None if most is None or count <= most else most

    def chosen(self, role: str, settings: Settings) -> object:
        """Return what is set for a role, a name or a model, without making it: equal for roles with the same model."""
        name = settings.models.get(role)
        source = getattr(self.models, "chosen", None)
        return self.own_models.get(role if name is None else name) or (
            source(role, name) if source else self.model(role, settings)
        )


def settings_given(context: Any) -> dict[str, Any]:
    """Return the settings that a graph was given as context, as JSON without defaults; {} if it is something else."""
    is_ours = isinstance(context, Settings)
    return context.model_dump(mode="json", exclude_unset=True, exclude={"tool_context"}) if is_ours else {}


def with_settings(
    runtime: Runtime[Any], deps: Deps, kept: Mapping[str, Any], approvers: Mapping[str, str]
) -> Runtime[Settings]:
    """Return the runtime with the merged settings of graph and run as its context.

    A graph around this one may have a context of any kind; only an instance of Settings is ours. LangGraph builds
    one from the dict that a run of this graph is given, and keeps none: what it leaves out is as the state has `kept`
    it of the request's begin. What it had then as `approvers`, an answer may add to, and not change.
    """
    given = runtime.context if isinstance(runtime.context, Settings) else None
    is_kept_anew = bool(kept) and kept != settings_given(given)  # most steps see the context of the request itself
    base = merge_settings(deps.settings, stored_settings(kept)) if is_kept_anew else deps.settings
    settings = merge_settings(base, given)
    if approvers and (whole := {**settings.approvers, **approvers}) != settings.approvers:
        settings = settings.model_copy(update={"approvers": whole})
    return runtime if settings is runtime.context else runtime.override(context=settings)
