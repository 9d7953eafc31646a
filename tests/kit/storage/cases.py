"""Every kind of storage once, and a graph that uses all that a saver has to do."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Send, interrupt
from typing_extensions import TypedDict

from donewhen.agent.storage import Storage as Storage  # tests take it from here, so that it can move
from donewhen.agent.storage import open_storage as open_storage
from tests.kit.storage.servers import fresh_postgres_url, pooled

KEY = bytes(range(32))
DATABASES = ["sqlite", "postgres"]
URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory:",
    "sqlite": lambda folder: f"sqlite:///{folder}/runs.db",
    "postgres": lambda _: fresh_postgres_url(),
    "postgres-C": lambda _: fresh_postgres_url("C"),
    "postgres-pooled": lambda _: pooled(fresh_postgres_url()),
    "sqlite-sealed": lambda folder: f"sqlite:///{folder}/runs.db",
    "postgres-sealed": lambda _: fresh_postgres_url(),
}
"""PostgreSQL with the locale en_US.UTF-8, as its image makes it; with C; and through a pooler in transaction mode."""
STORAGES = [*URLS]
OWN_SAVERS = [kind for kind in STORAGES if kind != "memory"]
"""Those whose saver writes what can wait together, and removes the rounds of finished steps; memory has LangGraph's."""


def fresh_url(kind: str, folder: Path) -> str:
    """The URL of a new, empty storage of the kind; raises KeyError for an unknown one."""
    return URLS[kind](folder)


def key_of(kind: str) -> bytes | None:
    return KEY if kind.endswith("sealed") else None


def _append(state: Sequence[str] | None, writes: Sequence[Sequence[str]]) -> list[str]:
    return [*(state or []), *(item for write in writes for item in write)]


class Work(TypedDict, total=False):
    goal: str
    rounds: int
    messages: Annotated[list[AnyMessage], add_messages]
    journal: Annotated[list[str], DeltaChannel(_append, snapshot_frequency=3)]


class Step(TypedDict, total=False):
    number: int
    journal: Annotated[list[str], DeltaChannel(_append, snapshot_frequency=3)]


def _plan(state: Work) -> Work:
    rounds = state.get("rounds", 0) + 1
    return {"rounds": rounds, "journal": [f"plan {rounds}"], "messages": [HumanMessage(f"round {rounds}")]}


def _next(state: Work) -> Any:
    return [Send("step", {"number": number}) for number in range(3)] if state["rounds"] < 3 else "ask"


def _work(state: Step) -> Step:
    return {"journal": [f"step {state['number']}"]}


def _ask(state: Work) -> Work:
    answer = interrupt({"question": "go on?"})
    return {"journal": [f"answer {answer}"]}


def graph() -> StateGraph[Any, Any, Any, Any]:
    """Rounds of parallel subgraphs with delta channels, then a question."""
    step = StateGraph(Step)
    step.add_node("work", _work)
    step.add_edge(START, "work")
    builder = StateGraph(Work)
    builder.add_node("plan", _plan)
    builder.add_node("step", step.compile())
    builder.add_node("ask", _ask)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", _next, ["step", "ask"])
    builder.add_edge("step", "plan")
    builder.add_edge("ask", END)
    return builder


JOURNAL = [line for n in range(1, 3) for line in (f"plan {n}", "step 0", "step 1", "step 2")] + ["plan 3"]
"""What the graph has written when it asks."""


def config(thread_id: str) -> Any:
    return {"configurable": {"thread_id": thread_id}}
