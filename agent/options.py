"""What few agents need, and the options of a run, declared once for every verb that begins or continues one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig

from donewhen.agent.config import Config
from donewhen.agent.tools import Caller, Tools
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.graph.context import Background
from donewhen.state.channels import Json
from donewhen.state.ledger import Budgets
from donewhen.state.settings import SettingsLike
from donewhen.state.values import name_hint

if TYPE_CHECKING:
    from donewhen.agent.tracing import Tracing


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """What few agents need: `Agent(…, options=AgentOptions(queue="reports"))`.

    `budgets={"owner": Limits(cost_usd=5)}` limits the day of each owner, `"queue"` that of each queue, and `"owners":
    {"it": Limits(cost_usd=20)}`, `"queues"` those of these names instead; with `"period": "month"`, the month. Runs
    without an owner share one, in whatever queue: that is one budget over all queues if no run has an owner.
    """

    queue: str = QUEUE
    """Whose workers carry out submitted and scheduled runs."""
    context: Background | None = None
    """Text that every request has as data, up to 8,000 characters; or a function of the goal and the thread's id, which
    is called once per request.
    """
    memory: Background | None = None
    """Like `context`, for what is remembered about the user."""
    caller: Caller | None = None
    """Carries out the tools that are only described: a function of name and arguments."""
    budgets: Budgets | Mapping[str, Any] | None = None
    """What all runs of an owner, and all of a queue, may spend in a day or a month: `{"owner": Limits(cost_usd=5),
    "owners": {"it": Limits(cost_usd=20)}}`. `tool_calls` are counted, and cannot be limited. None: as the environment
    says.
    """
    embeddings: Embeddings | None = None
    """Rank the tools of large tool sets by meaning too."""
    record: bool | None = None
    """Record runs, so that they can be replayed as tests. None: as the environment says."""
    trace: "Tracing | bool | None" = None
    """Trace runs with OpenTelemetry, see `Tracing`. None: as the environment says."""
    config: Config | None = None
    """The environment's configuration; None reads it."""


class Options(TypedDict, total=False):
    """The options of every verb that begins or continues a run."""

    settings: SettingsLike
    """Settings that override the agent's, field by field; on resuming, they hold for the rest of the run. Whatever the
    agent's profile forbids stays forbidden.
    """
    output_type: Any
    """A JSON Schema, or a Python type for which Pydantic makes one (a model, a dataclass, `list[Offer]`). `Run.output`
    has the result in this form, and the receipt has the source of every value; a run without such a result is `partial`
    at best. Pass `resume` the same type as `start`: then `Run.output` is an instance of it in this process too.
    """
    tools: Tools
    """Tools for this run, such as those with a user's key. They are added to the agent's, which must have none of these
    names: `Agent(model, [])`; else ToolError is raised. They are not stored: another process that
    continues it passes them again to `resume`. Without them an answer that leads to their call raises `ToolMissing`,
    and a run that goes on without an answer lacks them in its steps.
    """
    config: RunnableConfig | None
    """LangGraph's configuration, such as callbacks and tags."""


class StartOptions(Options, total=False):
    """The options of every verb that begins a run, `Options` included; `help(Agent.start)` has each in a few words."""

    template: str | None
    """The name of a saved plan to use instead of planning. It is confirmed like any plan. Without a `goal`, the saved
    goal is used.
    """
    parameters: Mapping[str, Any] | None
    """The values for the template, by the names under which they were saved. Any number of runs may use a template."""
    thread_id: str | None
    """The thread; None begins a new one."""
    request_id: str | None
    """Your id of the request, for clients that send twice: if the thread has a request with this id, nothing begins and
    its run is returned; if that has another goal, ConfigError is raised. Without a `thread_id` it names the thread too.
    None: it has no id; an empty one is refused.
    """
    restart: bool
    """Close the request of the thread that has not ended, if there is one, and begin this one: what it did stays done,
    and its questions are closed. By default, ThreadWaiting is raised.
    """
    instead_of: str | None
    """The id of an earlier request's message in the conversation: the thread goes back to before it. That request and
    the later ones leave the conversation; what they did stays done, and before an equal write a person is asked. None:
    the request comes after all others.
    """
    metadata: Json | None
    """Your own data, returned by `info` and `threads`; never secrets."""
    owner: str
    """The owner of the thread. A thread that has one keeps it: another one is a ConfigError."""
    context: Any
    """What the tools of this run read as `ToolRuntime.context`, such as who the customer is. No model sees it. It is
    stored with the run, for the process that continues it, so it has to be JSON (a dict, a dataclass or a Pydantic
    model of plain values); never secrets.
    """


def check_options(kind: type, options: Mapping[str, Any]) -> None:
    """Raise TypeError, as Python does for an argument, for an option that a verb does not have."""
    for name in options:
        if name not in kind.__annotations__:
            raise TypeError(f"unexpected keyword argument {name!r}{name_hint(name, kind.__annotations__)}")
