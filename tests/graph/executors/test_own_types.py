"""Executors whose state holds objects: what comes back after a question, from every storage."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.channels import DeltaChannel
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from donewhen import Agent
from donewhen.testing import finish_step
from tests.kit.flows import FREE, one_step
from tests.kit.storage.cases import fresh_url, key_of, open_storage


class Phase(Enum):
    QUERY = "query"


class Vase(BaseModel):
    name: str
    phase: Phase


@dataclass
class Row:
    n: int


@dataclass
class Inner:
    n: int


@dataclass
class Unnamed:
    """Of a type that no schema names: anybody who can write to the database could have put it there."""

    n: int


def _append(state: Sequence[Row] | None, writes: Sequence[Sequence[Row]]) -> list[Row]:
    return [*(state or []), *(row for write in writes for row in write)]


class Work(MessagesState):
    vase: Vase
    phase: Phase
    rows: Annotated[list[Row], operator.add]
    kept: Annotated[list[Row], DeltaChannel(_append, snapshot_frequency=2)]
    anything: Any
    like_ours: Any


class Part(TypedDict):
    inner: Inner


class Sent(TypedDict):
    row: Row


LIKE_OURS = {"donewhen_packed": ["msgpack", b"\x01"]}
SEEN: dict[str, Any] = {}


def make(state: Work) -> dict[str, Any]:
    row = Row(1)
    return {"vase": Vase(name="vase", phase=Phase.QUERY), "phase": Phase.QUERY, "rows": [row], "kept": [row]}


def send(state: Work) -> list[Send]:
    return [Send("take", {"row": Row(n)}) for n in (2, 3)]


def take(sent: Sent) -> dict[str, Any]:
    interrupt(f"Take {sent['row'].n}?")
    return {"rows": [sent["row"]], "kept": [sent["row"]]}


def ask_within(state: Part) -> dict[str, Any]:
    interrupt("Within?")
    SEEN["inner"] = state["inner"]
    return {}


def ask(state: Work) -> dict[str, Any]:
    colour = interrupt("Which colour?")
    SEEN.update(state)
    return {"messages": [("ai", f"The vase is {colour}")]}


def graph() -> Any:
    within = StateGraph(Part).add_node("make", lambda _: {"inner": Inner(4)}).add_node("ask", ask_within)
    within.add_edge(START, "make").add_edge("make", "ask").add_edge("ask", END)
    part: Any = within.compile()
    whole = StateGraph(Work).add_node("make", make).add_node("take", take).add_node("part", part).add_node("ask", ask)
    whole.add_node("odd", lambda _: {"anything": [Unnamed(5)], "like_ours": LIKE_OURS})
    whole.add_edge(START, "make").add_conditional_edges("make", send, ["take"]).add_edge("take", "part")
    return whole.add_edge("part", "odd").add_edge("odd", "ask").compile()


@pytest.mark.parametrize("kind", ["memory", "sqlite", "sqlite-sealed", "postgres"])
async def test_objects_of_the_types_that_its_schemas_name_come_back(kind: str, tmp_path: Path) -> None:
    """Q53, M5, X16: an enum, a Pydantic model and dataclasses, also in lists, in deltas, in a message to a node, in a
    graph within, over several questions; as with LangGraph alone. What no schema names stays data, as written."""
    SEEN.clear()
    model = one_step([finish_step("red", "s1.result")] * 4, executor="agent")
    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    async with Agent(model, executors={"agent": graph()}, storage=storage, settings=FREE) as agent:
        run = await agent.start("Paint the vase")
        for answer in ("yes", "yes", "yes", "red"):
            assert run.pending, run.problem
            run = await agent.resume(run, answer)
    assert SEEN["inner"] == Inner(4)
    assert (SEEN["phase"], SEEN["vase"]) == (Phase.QUERY, Vase(name="vase", phase=Phase.QUERY))
    assert SEEN["rows"] == SEEN["kept"] == [Row(1), Row(2), Row(3)]
    assert (SEEN["anything"], SEEN["like_ours"]) == ([{"n": 5}], LIKE_OURS)
