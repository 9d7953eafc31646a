"""Stored state has a version: older threads are migrated when they are read or go on, newer ones are left alone."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, Overwrite
from pydantic import TypeAdapter

from donewhen import Agent, Settings, StorageError, build_graph
from donewhen.state.channels import VERSION
from donewhen.state.plan.planning import plan_request
from donewhen.state.proof.journal import observation
from donewhen.state.proof.receipt import Outcome, receipt
from donewhen.state.statuses import fresh_record
from donewhen.state.versions import MIGRATIONS, migrate, migrate_inside
from donewhen.testing import ask_user, submit_plan
from tests.kit.runs import config, drawn, one_step, said, scripted, step, two_questions

ALONE = Settings(confirm="never")


def test_every_version_leads_to_this_one() -> None:
    """R06: the table has no gap from the first release on; a thread without a request needs no migration."""
    assert set(MIGRATIONS) == set(range(min(MIGRATIONS), VERSION))
    assert migrate({"goal": "x", "version": min(MIGRATIONS)})["version"] == VERSION
    assert migrate({"messages": []}) == {"messages": []}


def test_the_present_version_is_not_touched() -> None:
    """R06: no copy, no change."""
    values = {"version": VERSION, "steps": {"s1": {"odd": 1}}}
    assert migrate(values) is values


def test_a_chain_of_migrations() -> None:
    """R06: one after the other, each told only of its own version."""
    table = {
        1: lambda values: {**values, "seen": [*values.get("seen", ()), 1]},
        2: lambda values: {**values, "seen": [*values.get("seen", ()), 2]},
    }
    assert migrate({"version": 1}, table, 3) == {"version": 3, "seen": [1, 2]}
    assert migrate({"version": 2}, table, 3) == {"version": 3, "seen": [2]}


@pytest.mark.parametrize("version", [VERSION + 1, 99, -1, "1", None, True, 1.0, [1], 0, 1])
def test_what_nobody_can_read_is_refused(version: Any) -> None:
    """R06, F11: in words that say what to do, never by guessing."""
    with pytest.raises(StorageError):
        migrate({"version": version})


def test_a_version_that_nothing_leads_on_from() -> None:
    """R06: a table may forget the oldest versions; their threads are refused, not broken."""
    with pytest.raises(StorageError, match="old version"):
        migrate({"version": 1}, {2: dict}, 3)


def test_a_planning_that_went_on_in_this_version_is_left_as_it_is() -> None:
    """R06: it hands its record to a run of an older version, which the next node migrates."""
    values = {"version": 4, "planning": plan_request()}
    assert migrate(values) == {**values, "version": VERSION}
    assert migrate_inside({"planning": plan_request()}, 4) == {"planning": plan_request()}


OLD_VERDICTS = [
    {"criterion": 1, "text": "a", "claimed": True, "verdict": "supported", "evidence": [], "note": ""},
    {"criterion": 2, "text": "b", "claimed": True, "verdict": "passed", "evidence": [], "note": ""},
    {"criterion": 3, "text": "c", "claimed": False, "verdict": "failed", "evidence": [], "note": "no"},
]


def test_what_was_supported_is_called_cited_and_never_proven() -> None:
    """R06, V09: in records, in a proof that was cut off, and in the receipt, which has the shape of today."""
    now = ["cited", "proven", "failed"]
    decided = {str(row["criterion"]): row for row in OLD_VERDICTS}
    record = {**fresh_record(), "verdicts": OLD_VERDICTS, "claim": {"kind": "finish_step", "decided": decided}}
    again = migrate({"version": 2, "steps": {"s1": record}, "record": record})
    for kept in (again["steps"]["s1"], again["record"]):
        assert [row["verdict"] for row in kept["verdicts"]] == now
        assert [row["verdict"] for row in kept["claim"]["decided"].values()] == now
    assert OLD_VERDICTS[0]["verdict"] == "supported", "what was stored is not changed in place"


def test_a_receipt_of_before_has_the_shape_of_today() -> None:
    """R06: nobody audited it, and it says what was looked at and changed."""
    plan = {"title": "t", "revision": "r", "steps": [{"id": "s1", "content": "do", "done_when": [{"text": "a"}]}]}
    journal = [
        observation("s1.1", "s1", 1, "tool", "5", tool="look", effect="read"),
        observation("s1.2", "s1", 2, "tool", "ok", tool="send", effect="write"),
    ]
    values = {"goal": "g", "plan": plan, "steps": {}, "journal": journal}
    old: Any = receipt(values, Settings(verification="grounded"), "completed", "worked")
    for key in ("audit", "looked", "changed"):
        del old[key]
    criteria = [{**row, "check": None, "verdict": "supported"} for row in OLD_VERDICTS[:1]]
    step = {key: value for key, value in old["steps"][0].items() if key != "unchanged"}
    old |= {"criteria": criteria, "steps": [{**step, "unconfirmed": ["42"], "criteria": criteria}]}
    old["output"] = {"problem": "", "more": 0, "fields": [{"path": "a", "evidence": [], "unconfirmed": True}]}
    outcome = {"status": "completed", "code": "worked", "text": "42", "reason": "", "receipt": old}
    again = migrate({"version": 2, "journal": journal, "outcome": outcome})["outcome"]
    TypeAdapter(Outcome).validate_python(again, strict=True, extra="forbid")
    assert (again["looked"], again["changed"], again["missing"], again["receipt"]["audit"]) == (True, True, [], None)
    assert again["receipt"]["steps"][0]["criteria"][0]["verdict"] == "cited"


async def aged(agent: Agent, thread: str, version: int) -> None:
    """Make a thread look as an older or a newer version would have written it."""
    values = (await agent.graph.aget_state(config(thread))).values
    node = "advance" if values["pending"]["step"] else "plan"
    await agent.graph.aupdate_state(config(thread), {"version": version}, as_node=node)


async def test_an_old_thread_goes_on() -> None:
    """R06, C06: read as this version has it, and from its next node on stored so."""
    model = scripted(submit_plan([step("s1")]), {"s1": [ask_user("Which?"), said("s1")]})
    agent = Agent(model, storage="memory:", settings=ALONE)
    await agent.start("do it", thread_id="t")
    await aged(agent, "t", 2)
    assert (await agent.get("t")).goal == "do it"
    run = await agent.resume("t")
    assert run.pending[0]["id"] == "s1.q1"
    await drawn(agent, run)
    ended = await agent.resume("t", "this")
    assert ended.status == "answered"
    assert (await agent.graph.aget_state(config("t"))).values["version"] == VERSION
    model.assert_exhausted()


async def test_what_a_migration_fills_in_is_stored_with_what_the_node_does() -> None:
    """R06: a record with a verdict of before gets today's, and the node's own update of it is not lost."""
    model = two_questions()
    graph = build_graph(model).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"messages": "do it"}, config("t"), context=ALONE)
    records = (await graph.aget_state(config("t"))).values["steps"]
    old = {id: {**record, "verdicts": OLD_VERDICTS[:1]} for id, record in records.items()}
    await graph.aupdate_state(config("t"), {"version": 2, "steps": Overwrite(old)}, as_node="advance")
    await graph.ainvoke(None, config("t"), context=ALONE)
    await graph.ainvoke(Command(resume="red"), config("t"), context=ALONE)
    values = (await graph.aget_state(config("t"))).values
    assert values["version"] == VERSION
    assert values["steps"].keys() == {"s1", "s2"}
    assert {record["verdicts"][0]["verdict"] for record in values["steps"].values()} == {"cited"}
    out = await graph.ainvoke(Command(resume="large"), config("t"), context=ALONE)
    assert out["outcome"]["status"] == "answered"


async def test_a_newer_thread_is_refused_and_left_as_it_is() -> None:
    """R06, F11: by the Agent and by the graph itself, whoever drives it: reading, resuming and a new goal."""
    agent = Agent(one_step(), storage="memory:")
    await agent.start("do it", thread_id="t")
    await aged(agent, "t", VERSION + 1)
    before = await agent.graph.aget_state(config("t"))
    for attempt in (
        agent.get("t"),
        agent.resume("t"),
        agent.resume("t", "approve"),
        agent.start("again", thread_id="t"),
        agent.start("again", thread_id="t", restart=True),
        agent.graph.ainvoke(None, config("t")),
        agent.graph.ainvoke(Command(resume="approve"), config("t")),
        agent.graph.ainvoke({"messages": "approve"}, config("t")),
        agent.graph.aupdate_state(config("t"), {"language": "en"}, as_node="plan"),
    ):
        with pytest.raises(StorageError, match="newer version"):
            await attempt
    assert (await agent.graph.aget_state(config("t"))).config == before.config


async def test_a_newer_thread_is_refused_without_the_agent() -> None:
    """R06: LangGraph's server has no Agent in front; the nodes refuse, and what is open stays open."""
    saver = InMemorySaver()
    graph = build_graph(one_step()).compile(checkpointer=saver)
    await graph.ainvoke({"messages": "do it"}, config("t"))
    await graph.aupdate_state(config("t"), {"version": VERSION + 1}, as_node="plan")
    for given in (None, {"messages": "something new"}):
        with pytest.raises(StorageError, match="newer version"):
            await graph.ainvoke(given, config("t"))
    values = (await graph.aget_state(config("t"))).values
    assert values["pending"]["kind"] == "plan"
    assert values["version"] == VERSION + 1


class Newer(InMemorySaver):
    """Shows threads as written by the version `ahead["by"]` after this one; LangGraph works with copies of it."""

    def __init__(self, ahead: dict[str, int]) -> None:
        super().__init__()
        self.ahead = ahead

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint, of a version ahead."""
        if found := await super().aget_tuple(config):
            found.checkpoint["channel_values"]["version"] = VERSION + self.ahead["by"]
        return found


async def test_what_was_said_to_a_newer_thread_is_not_lost() -> None:
    """R06, C08: a message that LangGraph took before it was refused answers the pause once the version fits."""
    ahead = {"by": 0}
    graph = build_graph(one_step()).compile(checkpointer=Newer(ahead))
    await graph.ainvoke({"messages": "do it"}, config("t"))
    ahead["by"] = 1
    with pytest.raises(StorageError, match="newer version"):
        await graph.ainvoke({"messages": "approve"}, config("t"))
    ahead["by"] = 0
    out = await graph.ainvoke(None, config("t"))
    assert out["outcome"]["status"] == "answered"
