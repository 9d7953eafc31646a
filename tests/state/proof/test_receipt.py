"""The receipt: typed JSON of what was planned, done, claimed and verified; it cannot say more than is proven."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from donewhen import Agent
from donewhen.agent.run import Run
from donewhen.agent.workspace import workspace_tools
from donewhen.state.criteria import criteria_of
from donewhen.state.proof.journal import observation
from donewhen.state.proof.outcome import CODES, status_of, summary, unfinished_lines
from donewhen.state.proof.quotes import SearchedText
from donewhen.state.proof.receipt import Receipt, effect_rows, receipt
from donewhen.state.settings import Settings
from donewhen.state.statuses import FINAL, UNFINISHED, fresh_record
from donewhen.testing import ScriptedModel, ask_user, call, criterion, finish_step, give_up, submit_plan
from tests.kit.flows import play, steps
from tests.kit.runs import Outbox, values

Json = dict[str, Any]
SHAPE = TypeAdapter(Receipt)
CHECK = {"tool": "file_contains", "arguments": {"path": "out.txt", "text": "42"}, "expect": "ok"}
PLAN: list[Json] = [
    {"content": "Read the orders", "done_when": ["the total is known"], "tools": ["read_file"]},
    {
        "content": "Write the total, tell Ann",
        "done_when": [{"text": "it is written", "check": CHECK}, "she was told"],
        "tools": ["write_file"],
    },
    {"content": "Sign it", "done_when": ["signed"], "tools": ["read_file"]},
]
ROUNDS: dict[str, list[Any]] = {
    "s1": [call("read_file", path="orders.txt"), finish_step("It is 42", ("s1.1", "total: 42"))],
    "s2": [
        ask_user("Which colour?"),
        call("write_file", path="out.txt", content="42"),
        call("send", to="ann", text="42"),
        call("send", to="bob", text="42"),
        finish_step("Done", goal_check=[criterion(1), criterion(2, ("s2.3", "sent to ann"))]),
    ],
    "s3": [call("read_file", path="pen.txt"), finish_step("Signed", ("s3.1", "signed")), give_up("there is no pen")],
}
ANSWERS: list[Any] = ["approve", "blue", "approve", "no, not Bob"]


def model() -> ScriptedModel:
    deliver = ["Everything is done and signed."]
    return ScriptedModel(roles={"triage": [submit_plan(PLAN)], "execute": ROUNDS, "deliver": deliver}, strict=False)


def agent_on(folder: Path, outbox: Outbox, model: ScriptedModel) -> Agent:
    settings = {"on_failure": "deliver"}
    storage = f"sqlite:///{folder.parent / 'runs.db'}"
    return Agent(model, [*workspace_tools(folder), outbox.tool()], storage=storage, settings=settings)


WholeRun = tuple[Run, Outbox, Json, Path]


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """A run with a bit of everything, each answer given by a new Agent: run, what was sent, state, folder."""
    folder = tmp_path_factory.mktemp("receipt") / "work"
    folder.mkdir()
    (folder / "orders.txt").write_text("total: 42\n")
    return asyncio.run(play_whole_run(folder))


async def play_whole_run(folder: Path) -> WholeRun:
    outbox, scripted = Outbox(), model()
    async with agent_on(folder, outbox, scripted) as agent:
        run = await agent.start("Total the orders")
    for answer in ANSWERS:
        async with agent_on(folder, outbox, scripted) as agent:
            assert await agent.receipt(run.thread_id) is None, "there is none while it is not finished"
            run = await agent.resume(run.thread_id, answer)
    async with agent_on(folder, outbox, scripted) as agent:
        return run, outbox, await values(agent, run.thread_id), folder


async def test_a_receipt_is_typed_json_and_survives_every_agent(whole_run: WholeRun) -> None:
    """DESIGN 5, C06: the shape of `state/receipt.py`, nothing more, nothing less; another process reads the same."""
    run, outbox, _, folder = whole_run
    assert run.receipt is not None
    assert json.loads(json.dumps(run.receipt)) == run.receipt
    SHAPE.validate_python(run.receipt, strict=True, extra="forbid")
    async with agent_on(folder, outbox, model()) as agent:
        assert await agent.receipt(run.thread_id) == run.receipt == (await agent.get(run.thread_id)).receipt
        assert (await values(agent, run.thread_id))["outcome"]["receipt"] == run.receipt


def test_a_receipt_holds_what_happened(whole_run: WholeRun) -> None:
    """DESIGN 5: planned, executed, claimed, verified with quotes; approvals, questions, effects, spend."""
    run, outbox, state, _ = whole_run
    kept = run.receipt or {}
    assert (kept["status"], kept["verification"]) == ("partial", "audited")
    assert [(row["id"], row["status"]) for row in kept["steps"]] == [("s1", "done"), ("s2", "done"), ("s3", "failed")]
    (total,), (written, told), (signed,) = (row["criteria"] for row in kept["steps"])
    assert (total["claimed"], total["verdict"]) == (True, "cited")
    assert total["evidence"] == [{"observation": "s1.1", "quote": "total: 42"}]
    assert (written["check"], written["verdict"]) == (CHECK, "proven")
    assert written["evidence"][0]["observation"] == "s2.5"
    assert told["evidence"] == [{"observation": "s2.3", "quote": "sent to ann"}]
    assert (signed["claimed"], signed["verdict"], signed["evidence"]) == (True, "unverified", [])
    assert "failed, so it proves nothing" in signed["note"]
    plan, ann, bob = kept["approvals"]
    assert plan["revision"] == plan["approved_revision"] == kept["plan"]["revision"] == (run.plan or {})["revision"]
    assert (ann["decision"], ann["arguments"]) == ("approve", {"to": "ann", "text": "42"})
    assert (bob["decision"], bob["text"]) == ("reject", "no, not Bob")
    assert [(q["question"], q["answer"], q["by"]) for q in kept["questions"]] == [("Which colour?", "blue", "user")]
    assert [(e["tool"], e["arguments"].get("to"), e["ok"]) for e in kept["effects"]] == [
        ("write_file", None, True),
        ("send", "ann", True),
    ], "what was rejected had no effect"
    assert outbox.sent == [{"to": "ann", "text": "42"}]
    assert kept["spent"] == state["spent"]
    assert {row["key"]: row["spent"] for row in kept["meter"]}["tool_calls"] == 5


def test_every_proof_in_a_receipt_can_be_looked_up(whole_run: WholeRun) -> None:
    """DESIGN 5: the observation is in the journal, was ok, and says what is quoted."""
    run, _, state, _ = whole_run
    journal = {entry["id"]: entry for entry in state["journal"]}
    proofs = [
        (row["verdict"], item)
        for step in (run.receipt or {})["steps"]
        for row in step["criteria"]
        for item in row["evidence"]
    ]
    assert len(proofs) == 3
    for verdict, item in proofs:
        assert verdict in ("cited", "proven")
        assert journal[item["observation"]]["ok"]
        assert SearchedText(journal[item["observation"]]["text"]).says(item["quote"])


def test_the_delivery_cannot_claim_what_is_not_done(whole_run: WholeRun) -> None:
    """X04, D02: the model says that everything is done; what is not stands below it all the same."""
    run, _, _, _ = whole_run
    assert run.answer.startswith("Everything is done and signed.")
    assert "- Not done (failed): Sign it — there is no pen" in run.answer


# A step that is gone from the plan ----------------------------------------------------------------------------------

FIRST: Json = {"id": "s1", "content": "Look", "done_when": ["looked"], "tools": ["look"]}
FAILS: Json = {"id": "s2", "content": "Write the report", "done_when": ["written"]}
NO_PAPER = [{"what": "s2", "why": "there is no paper"}]
LOOKED = [call("look"), finish_step("looked", "s1.1")]


def look() -> str:
    """Look."""
    return "all is there"


SAY: Json = {"id": "s3", "content": "Say it", "done_when": ["said"], "tools": []}
ASKED = "- Not done (failed, then taken out of the plan): Write the report — no paper"


@pytest.mark.parametrize(
    ("plan", "drop", "confirm", "status", "replaced", "named"),
    [
        ([FIRST], NO_PAPER, "never", "partial", [("s2", "failed", "no paper", "policy", [])], ASKED),
        ([FIRST], NO_PAPER, "always", "completed", [("s2", "failed", "no paper", "user", [])], "Write the report"),
        ([FIRST, SAY], [], "never", "completed", [("s2", "failed", "no paper", "policy", ["s3"])], ""),
        ([FIRST, FAILS], [], "never", "partial", [], "- Not done (failed): Write the report — no paper"),
    ],
    ids=["nobody agreed to drop it", "a person dropped it", "another took its place", "it was planned again"],
)
async def test_a_step_that_a_replan_leaves_out_is_named(
    plan: list[Json], drop: Sequence[Json], confirm: str, status: str, replaced: list[Any], named: str
) -> None:
    """F9, P17, C04, D02: a planner completes nothing by leaving out what it could not do; a person may drop it."""
    rounds = {"s1": LOOKED, "s2": [give_up("no paper")], "s3": [finish_step("a text", "s3.result")]}
    again = submit_plan(plan, drop=drop)
    scripted = steps([FIRST, FAILS], rounds, deliver=["All done, the report is written."], plan=[again])
    scripted.script.strict = False
    settings = {"confirm": confirm, "on_question": "abort"}
    flow = await play(
        scripted, [look], effects={"look": "read"}, answers=["approve"] * 2 * (confirm == "always"), settings=settings
    )
    kept = flow.run.receipt or {}
    SHAPE.validate_python(kept, strict=True, extra="forbid")
    assert flow.run.status == status
    assert [
        (row["id"], row["status"], row["reason"], row["by"], row["instead"]) for row in kept["replaced"]
    ] == replaced
    assert {row["content"] for row in kept["replaced"]} <= {"Write the report"}
    assert named in flow.run.answer


# Whatever the records say -------------------------------------------------------------------------------------------

VERDICTS = st.sampled_from(["proven", "cited", "unverified", "failed"])
CRITERION = st.fixed_dictionaries(
    {"text": st.just("it is so"), "check": st.sampled_from([None, CHECK]), "judge": st.booleans()}
)
STATUSES = st.sampled_from([*FINAL, *UNFINISHED])
RECORD = st.fixed_dictionaries(
    {
        "status": STATUSES,
        "reason": st.just("because"),
        "result": st.sampled_from(["", "a result"]),
        "verdicts": st.lists(st.fixed_dictionaries({"criterion": st.integers(0, 4), "verdict": VERDICTS}), max_size=4),
    }
).map(lambda fields: {**fresh_record(), **fields})
GOOD: Mapping[str, set[str]] = {
    "claimed": {"unverified", "cited", "proven"},
    "grounded": {"cited", "proven"},
    "audited": {"cited", "proven"},
    "judged": {"proven"},
}


@given(
    st.lists(st.tuples(st.lists(CRITERION, max_size=3), RECORD), min_size=1, max_size=4),
    st.sampled_from(sorted(CODES)),
    st.sampled_from(["claimed", "grounded", "audited", "judged"]),
)
def test_completed_is_impossible_while_anything_required_is_unproven(
    written: list[tuple[list[Json], Json]], code: str, level: Any
) -> None:
    """DESIGN 5, D01: whatever the records, `completed` means that every criterion of every step is good enough."""
    plan_steps = [{"id": f"s{n}", "content": f"step {n}", "done_when": c} for n, (c, _) in enumerate(written)]
    plan = {"title": "t", "revision": "r", "steps": plan_steps}
    records = {f"s{n}": record for n, (_, record) in enumerate(written)}
    settings = Settings(verification=level)
    status = status_of(code, plan, records, settings)
    kept = receipt({"goal": "g", "plan": plan, "steps": records}, settings, status, code)
    SHAPE.validate_python(kept, strict=True, extra="forbid")
    if status == "completed" and code != "answered":
        for step in plan_steps:
            assert records[step["id"]]["status"] == "done"
            last = {v["criterion"]: v["verdict"] for v in records[step["id"]]["verdicts"]}
            for number, one in enumerate(criteria_of(step), 1):
                judged = one["check"] or (one["judge"] and level != "claimed")
                assert last[number] in (GOOD["judged"] if judged else GOOD[level])
    listed = "\n".join(unfinished_lines(kept, "en"))
    for row in kept["steps"]:
        assert (f": {row['content']}" in listed) == (row["status"] != "done")
        assert row["content"] in summary(kept, "", "en")


def test_a_call_that_began_and_is_skipped_is_no_part_of_an_equal_one() -> None:
    """D02: two equal payments were planned; nobody knows what the second did, which began when it did."""
    paid, skipped = (
        observation(f"s1.{n}", "s1", 1, "tool", "paid", tool="pay", effect="write", at="Friday") for n in (1, 2)
    )
    rows = effect_rows({"journal": [paid, {**skipped, "ok": False, "unknown": True, "made_at": "Monday"}]})
    assert [(row["result"], row["at"]) for row in rows] == [("done", "Friday"), ("unknown", "Monday")]
