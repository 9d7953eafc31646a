"""The graph: all nodes, edges and routes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.tools import BaseTool
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from donewhen.graph.advance import advance
from donewhen.graph.binding import Node, add_route
from donewhen.graph.context import Background, Deps, ModelOf, PriceOf
from donewhen.graph.deliver import deliver
from donewhen.graph.executors.executor import ExecutorInput, Executors
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.people.answers import ask_user, confirm
from donewhen.graph.planning.graph import build_plan
from donewhen.graph.receive import read_typed, receive
from donewhen.graph.step.graph import build_execute
from donewhen.graph.tools.hooks import Hooks, Policies
from donewhen.graph.tools.toolbox import EffectKind, ToolFinder, from_function
from donewhen.state.channels import RunInput, RunOutput, RunState
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings, SettingsLike, read_settings


def build_graph(
    model: BaseChatModel | ModelOf,
    tools: Sequence[BaseTool | Callable[..., Any]] = (),
    *,
    models: Mapping[str, BaseChatModel] | None = None,
    executors: Mapping[str, ExecutorInput] | None = None,
    effects: Mapping[str, EffectKind] | None = None,
    prices: PriceOf | None = None,
    secrets: Sequence[str] = (),
    repeats: bool = False,
    context: Background | None = None,
    memory: Background | None = None,
    agents_md: Background | None = None,
    embeddings: Embeddings | None = None,
    settings: SettingsLike = None,
    hooks: Hooks | None = None,
) -> StateGraph[RunState, Settings, RunInput, RunOutput]:
    """Build the runtime as an uncompiled StateGraph: embed it, or compile it with your checkpointer and store.

    Input: `{"messages": [...]}`; context: `Settings`. Without a store (`compile(store=…)`) a write that a crash
    interrupted cannot be recognised on resume.

    Args:
        model: The model of every role.
        tools: The tools of the agent.
        models: Other models, by role (triage, plan, execute, judge, deliver) or by a name that `Settings.models` uses.
        executors: Names mapped to an Executor or a compiled graph. Pass an `Executors`, created with `tools` and
            `effects`, to change it while the graph is in use.
        effects: What each tool does: read | idempotent | write. A tool with an unknown effect counts as write.
        prices: A function of model name and usage that returns US dollars, or None if the price is unknown.
        secrets: Texts to replace by `[redacted]` in tool results; recognised credentials are redacted anyway.
        repeats: True if the caller runs the schedules of finished runs; otherwise plans cannot have schedules.
        context: Text to add to every request as data, up to 8,000 characters: a text, or a function of the goal and
            the thread id, async or not. If it fails or returns nothing, it is left out.
        memory: Like `context`, for what is remembered about the user.
        agents_md: Like `context`, but with instructions of the user, which the agent follows.
        embeddings: LangChain embeddings that help to find tools if there are more than `Settings.tool_selection`.
        settings: The defaults of every run; `context=` of a run overrides them. Inside a graph with its own context,
            only these settings apply, and tools see that graph's context in `ToolRuntime`.
        hooks: Policies that every call, and every end, must pass.

    Raises ToolError for a tool that cannot be offered to a model, and ConfigError for a model that is none, invalid
    settings or `effects` of unknown tools.
    """
    _check_model("model", model, or_function=True)
    for name, each in (models or {}).items():
        _check_model(f"models[{name!r}]", each, or_function=False)
    if not isinstance(executors, Executors):
        executors = Executors(executors, tools=as_tools(tools), effects=effects)
    sources = {"agents_md": agents_md, "context": context, "memory": memory}
    deps = Deps(
        model,
        executors,
        prices=prices,
        repeats=repeats,
        finder=ToolFinder(embeddings),
        own_models=models or {},
        background={name: source for name, source in sources.items() if source},
        settings=read_settings(settings),
        policies=Policies(hooks or Hooks(), tuple(secrets)),
    )
    graph = StateGraph(RunState, context_schema=Settings, input_schema=RunInput, output_schema=RunOutput)
    graph.add_node("receive", Node(receive, deps))
    graph.add_node("plan", build_plan(deps))
    graph.add_node("confirm", Node(confirm, deps, asks=True))
    graph.add_node("advance", Node(advance, deps))
    graph.add_node("execute", build_execute(deps))
    graph.add_node("ask_user", Node(ask_user, deps, asks=True))
    graph.add_node("deliver", Node(deliver, deps))
    add_route(
        graph, START, after_start,
        {"receive": "a request", "confirm": "a typed answer about the plan", "ask_user": "a typed answer"},
    )  # fmt: skip
    add_route(
        graph, "receive", after_node,
        {
            "plan": "plan it", "confirm": "it comes with a plan", "ask_user": "a question is open", "advance": "go on",
            "deliver": "no request",
        },
    )  # fmt: skip
    add_route(
        graph, "plan", after_node,
        {"confirm": "a plan", "ask_user": "a question", "advance": "approved by policy", "deliver": "an answer"},
    )  # fmt: skip
    add_route(
        graph, "confirm", after_node,
        {
            "advance": "approved", "plan": "rejected", "confirm": "not understood", "ask_user": "a question is open",
            "deliver": "cancelled",
        },
    )  # fmt: skip
    add_route(
        graph, "advance", after_advance,
        {
            "execute": "ready steps", "ask_user": "a person is needed", "confirm": "the plan changed",
            "plan": "plan anew", "advance": "look again", "deliver": "all is done, or cannot go on",
        },
    )  # fmt: skip
    add_route(graph, "execute", after_execute, {"advance": "ended, or waits"})
    add_route(
        graph, "ask_user", after_node,
        {
            "advance": "a step goes on", "plan": "planning goes on", "ask_user": "not understood",
            "confirm": "a plan is open", "deliver": "ended",
        },
    )  # fmt: skip
    add_route(graph, "deliver", after_deliver, {END: "one outcome"})
    return graph


# The routes follow what nodes decided and decide nothing themselves: pure functions of state. Each leads to every kind
# of pause, because for `update_state` without `as_node` LangGraph takes the route of the last node other than `plan`
# and `execute`.


def after_start(state: RunState, messages: Sequence[AnyMessage]) -> Literal["receive", "confirm", "ask_user"]:
    """Route a reply typed into the chat to the open pause, which also stays open if nothing is said; anything else is
    for a stopped run, or a new request.

    `messages`: the state's with those that were given.
    """
    if not (pending := state.get("pending")):
        return "receive"
    known = {message.id for message in state.get("messages") or ()}
    is_silent = not any(isinstance(each, HumanMessage) and each.id not in known for each in messages)
    is_answered = is_silent or read_typed({**state, "messages": [*messages]}) == "answer"
    return load_pause(pending).node if is_answered else "receive"


def after_node(state: RunState) -> list[Send] | str:
    """Route to the end if there is one, to an open pause, to open planning, else to `advance`."""
    if state.get("ending"):
        return "deliver"
    if (pending := state.get("pending")) is not None:
        return load_pause(pending).node
    if state["planning"]["open"]:
        return [Send("plan", {"id": state["planning"]["transcript"]})]
    return "advance"


def after_advance(state: RunState) -> list[Send] | str:
    """Send every running step to `execute`; otherwise route to a pause, a replan or the end."""
    running = [id for id, record in (state.get("steps") or {}).items() if record["status"] == "running"]
    if running and not state.get("ending") and not state.get("pending"):
        return [Send("execute", {"id": id}) for id in running]
    return after_node(state)


def after_execute(state: RunState) -> Literal["advance"]:
    """Go back to `advance`, which decides what runs next."""
    return "advance"


def after_deliver(state: RunState) -> Literal["__end__"]:
    """End the run."""
    return "__end__"


def _check_model(where: str, model: object, *, or_function: bool) -> None:
    """Raise ConfigError for what is no chat model, and no function of role and name where that is allowed."""
    accepted = callable(model) if or_function else hasattr(model, "bind_tools")  # such as a model with fallbacks
    if isinstance(model, type) or not (accepted or isinstance(model, BaseChatModel)):
        given = f"the name {model!r}" if isinstance(model, str) else f"{model!r:.80}"
        hint = "LangChain's init_chat_model('provider:model') makes one"
        raise ConfigError(f"build_graph: {where} is a LangChain chat model, not {given}; {hint}")


def as_tools(tools: Sequence[BaseTool | Callable[..., Any]]) -> list[BaseTool]:
    """Return functions as tools. Raises ToolError if a signature or docstring is missing."""
    return [tool if isinstance(tool, BaseTool) else from_function(tool) for tool in tools]
