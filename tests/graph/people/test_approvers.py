"""Who alone approves what a tool changes: the plan that lists it, or else each of its calls."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from langgraph.types import interrupt

from donewhen import Agent, AgentOptions
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.clients import load_pause
from donewhen.hooks import Ask, Hooks
from donewhen.state.errors import ConfigError, ScheduleError, StorageError
from donewhen.testing import Recording, ScriptedModel, answer, call, finish_step, give_up, submit_plan

CLOSE = {"content": "Close tickets 1 and 2", "done_when": "They are closed", "tools": ["close"]}
CHECK = {"content": "Note what was done", "done_when": "It is noted", "tools": ["note"]}
CLOSES = [[call("close", ticket="1"), call("close", ticket="2")], finish_step("closed", "s1.1")]
NAMED = {"confirm": "writes", "approvers": {"close": "lead"}, "when_busy": "next_round"}


class Tickets:
    """Tickets that can be closed and refunded, and notes."""

    def __init__(
        self,
        steps: list[Any],
        *work: Any,
        schedule: Any = None,
        more: Any = (),
        storage: Any = "memory:",
        hooks: Any = None,
        options: Any = None,
        work_of: Any = None,
        plans: Any = (),
        **settings: Any,
    ) -> None:
        self.made = list[str]()
        self.crash: Crash | None = None

        def close(ticket: str) -> str:
            """Close a ticket."""
            self.made.append(f"close {ticket}")
            if self.crash and self.crash.at is None:
                self.crash.at = len(self.crash.trace) + 1
            return "closed"

        def refund(ticket: str) -> str:
            """Pay back what a ticket is about."""
            self.made.append(f"refund {ticket}")
            return "paid"

        def note(text: str) -> str:
            """Write a note."""
            self.made.append(f"note {text}")
            return "noted"

        def look(ticket: str) -> str:
            """Read a ticket."""
            return "open"

        plan = submit_plan(steps, schedule=schedule, language="en")
        self.model = ScriptedModel(
            roles={
                "triage": [plan],
                "plan": list(plans),
                "execute": work_of or list(work),
                "deliver": [answer("Done.")],
            },
            strict=False,
        )
        effects: Any = {
            "look": "read",
            **dict.fromkeys((each.__name__ for each in more), "read"),
            "close": "write",
            "refund": "write",
            "note": "write",
        }
        wanted = {**NAMED, "verification": "grounded", **settings}
        tools = [close, refund, note, look, *more]
        self.agent = Agent(
            self.model, tools, effects=effects, storage=storage, hooks=hooks, options=options, settings=wanted
        )


async def test_a_plan_is_for_who_approves_what_it_changes() -> None:
    """H13: a plan that lists the tool is for who is named for it, who then is asked about no call; nobody else."""
    tickets = Tickets([CLOSE], *CLOSES)
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    assert run.pending[0]["kind"] == "plan"
    assert run.pending[0]["answered_by"] == "lead"
    run = await tickets.agent.resume(run, "yes", by="bob")
    assert (run.status, tickets.made) == ("waiting", [])
    run = await tickets.agent.resume(run, "yes", by="lead:anna")
    assert (run.status, tickets.made) == ("completed", ["close 1", "close 2"])
    assert run.receipt
    assert [(row["name"], row["decision"]) for row in run.receipt["approvals"]] == [("lead:anna", "approve")]


async def test_who_is_asked_reads_the_whole_plan_after_others_answered() -> None:
    """H13, R05: the text for somebody named has all of it, whoever read the one before; a list's row has its own."""
    tickets = Tickets([CLOSE], *CLOSES)
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, "approve", by="bob")
    assert "1. Close tickets 1 and 2" in run.pending[0]["text"]
    (row,) = await tickets.agent.pending()
    assert "1. Close tickets 1 and 2" in row["text"]
    with pytest.raises(ConfigError, match="read its `text`"):
        load_pause(row).text()
    assert load_pause(row).choices()


async def test_a_plan_without_the_tool_is_for_anybody() -> None:
    """H13: who approves depends on what the plan changes."""
    tickets = Tickets([CHECK], call("note", text="Close 1 and 2"), finish_step("noted", "s1.1"))
    run = await tickets.agent.start("Note: Close 1 and 2", thread_id="t")
    assert not run.pending[0].get("answered_by")
    assert (await tickets.agent.resume(run, "yes", by="bob")).status == "completed"


@pytest.mark.parametrize("approvals", ["plan", "shown", "never"])
async def test_where_somebody_else_approved_the_plan_the_calls_are_asked_about_once(approvals: str) -> None:
    """H13: a plan that anybody approves, or the settings, allows no call of a tool that somebody else approves; those
    of one round are one question."""
    tickets = Tickets([CLOSE], *CLOSES, confirm="never", approvals=approvals)
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    asked = [(each["kind"], each["answered_by"], len(each["batch"])) for each in run.pending]
    assert (asked, tickets.made) == ([("tool", "lead", 1)], [])
    run = await tickets.agent.resume(run, "yes", by="bob")
    assert tickets.made == []
    run = await tickets.agent.resume(run, "yes", by="lead")
    assert (run.status, tickets.made) == ("completed", ["close 1", "close 2"])


async def test_an_edit_of_somebody_else_gives_no_leave() -> None:
    """H13, C13: who adds the tool to a plan that anybody approves does not approve its calls."""
    tickets = Tickets([CHECK], *CLOSES)
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, {"type": "edit", "plan": {"steps": [CLOSE]}}, by="bob")
    assert [(each["kind"], each["answered_by"]) for each in run.pending] == [("tool", "lead")]
    assert tickets.made == []


async def test_two_approvers_each_decide_about_their_own() -> None:
    """H13: a plan with two tools is for the first who is named; the other is asked about the calls of theirs."""
    both = {**CLOSE, "tools": ["close", "refund"]}
    calls = [call("close", ticket="1"), call("refund", ticket="1"), call("close", ticket="2")]
    named = {"close": "lead", "refund": "finance"}
    tickets = Tickets([both], calls, finish_step("done", "s1.1"), approvers=named)
    run = await tickets.agent.start("Close 1 and 2, refund 1", thread_id="t")
    assert run.pending[0]["writes_known"] == ["close"]
    run = await tickets.agent.resume(run, "yes", by="lead")
    assert tickets.made == ["close 1"]
    asked = [(each["tool"], each["answered_by"], each.get("batch")) for each in run.pending]
    assert asked == [("refund", "finance", None)]
    run = await tickets.agent.resume(run, "yes", by="lead")
    assert tickets.made == ["close 1"]
    run = await tickets.agent.resume(run, "yes", by="finance:zoe")
    assert (run.status, tickets.made) == ("completed", ["close 1", "refund 1", "close 2"])


async def test_who_answers_plans_stays_who_is_named_for_plans() -> None:
    """H13: `answered_by` for plans goes first; then the approver is asked about the calls."""
    tickets = Tickets([CLOSE], *CLOSES, answered_by={"plan": "mira"})
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, "yes", by="mira")
    assert [(each["kind"], each["answered_by"]) for each in run.pending] == [("tool", "lead")]
    assert (await tickets.agent.resume(run, "yes", by="lead")).status == "completed"


async def test_a_rejected_call_of_theirs_is_not_made() -> None:
    """H13: the approver's no counts as every no."""
    work = [CLOSES[0], give_up("not allowed", "failed")]
    tickets = Tickets([CLOSE], *work, confirm="never", on_failure="deliver")
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, {"type": "reject", "message": "not today"}, by="lead")
    assert tickets.made == []
    assert "lead rejected this call: not today" in str(tickets.model.requests[-1])


async def test_a_hook_that_names_somebody_asks_besides() -> None:
    """H13: its question is for whom it names; the approver is asked as well, once, also about calls beside it."""

    def ask(made: Any) -> Ask | None:
        return Ask("Sure?", answered_by="owner") if made.arguments["ticket"] == "1" else None

    tickets = Tickets([CLOSE], *CLOSES, confirm="never", hooks=Hooks(before_call=[ask]))
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    asked = list[Any]()
    while run.status == "waiting":
        asked.append((run.pending[0]["answered_by"], run.pending[0]["arguments"]["ticket"], [*tickets.made]))
        run = await tickets.agent.resume(run, "yes", by=run.pending[0]["answered_by"])
    assert asked == [("owner", "1", []), ("lead", "1", [])]
    assert (run.status, tickets.made) == ("completed", ["close 1", "close 2"])


async def test_what_a_hooks_person_edits_the_approver_reads() -> None:
    """H13: an edit of somebody else is no agreement of theirs."""

    def ask(made: Any) -> Ask:
        return Ask("Sure?", answered_by="owner")

    tickets = Tickets([CLOSE], CLOSES[0][0], CLOSES[1], confirm="never", hooks=Hooks(before_call=[ask]))
    run = await tickets.agent.start("Close 1", thread_id="t")
    edit = {"type": "edit", "arguments": {"ticket": "9"}}
    run = await tickets.agent.resume(run, edit, by="owner")
    assert tickets.made == []
    answers = 0
    while run.status == "waiting" and (answers := answers + 1) < 5:
        run = await tickets.agent.resume(run, "yes", by=run.pending[0]["answered_by"])
    assert (run.status, tickets.made) == ("completed", ["close 9"])


async def test_what_is_finished_or_was_approved_needs_nobody_again() -> None:
    """H13, C13: a change of the plan is for who approves what it changes; steps that stay as they are keep who
    approved them."""
    refund = {"content": "Refund 1", "done_when": "It is paid", "tools": ["refund"], "depends_on": []}
    fails = call("give_up", kind="failed", reason="the till is closed")
    changed = submit_plan([{**refund, "content": "Refund 1 tomorrow"}], language="en")
    work = {"s1": CLOSES, "s2": [fails], "s2-2": [call("refund", ticket="1"), finish_step("paid", "s2-2.1")]}
    tickets = Tickets([CLOSE, refund], approvers={"close": "lead", "refund": "finance"}, work_of=work, plans=[changed])
    run = await tickets.agent.start("Close 1 and 2, refund 1", thread_id="t")
    assert run.pending[0]["answered_by"] == "lead"
    run = await tickets.agent.resume(run, "yes", by="lead")
    assert tickets.made == ["close 1", "close 2"]
    assert (run.pending[0]["kind"], run.pending[0]["answered_by"]) == ("plan", "finance")


async def test_a_step_that_stays_keeps_who_approved_it() -> None:
    """H13: after finance approves what changed, nobody asks the lead again about the step that they approved before,
    although it waits for another one now."""
    refund = {"content": "Refund 1", "done_when": "It is paid", "tools": ["refund"]}
    fails = call("give_up", kind="failed", reason="the till is closed")
    changed = submit_plan([{**refund, "content": "Refund 1 tomorrow"}], language="en")
    closing = {**CLOSE, "depends_on": ["s1"]}
    work = {"s1": [fails], "s3": [call("refund", ticket="1"), finish_step("paid", "s3.1")]}
    work["s2"] = [CLOSES[0], finish_step("closed", "s2.1")]
    named = {"close": "lead", "refund": "finance"}
    tickets = Tickets([refund, closing], approvers=named, work_of=work, plans=[changed])
    run = await tickets.agent.start("Refund 1, then close 1 and 2", thread_id="t")
    asked = list[Any]()
    while run.status == "waiting" and len(asked) < 9:
        asked.append((run.pending[0]["kind"], run.pending[0]["answered_by"]))
        run = await tickets.agent.resume(run, "yes", by=asked[-1][1])
    assert asked == [("plan", "lead"), ("plan", "finance")]
    assert (run.status, tickets.made) == ("completed", ["refund 1", "close 1", "close 2"])


async def test_nobody_loosens_who_approves() -> None:
    """R05, H13: settings that come with an answer may name more approvers, and no other ones."""
    tickets = Tickets([CLOSE], *CLOSES, answered_by={"plan": "bob"})
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, "yes", by="bob", settings={"approvers": {"close": "bob"}})
    assert [(each["kind"], each["answered_by"]) for each in run.pending] == [("tool", "lead")]


@pytest.mark.parametrize(
    ("name", "why"), [("clse", "did you mean close"), ("look", "only reads"), ("close", "at least 1")]
)
async def test_an_approver_of_nothing_is_refused(name: str, why: str) -> None:
    """X13: a name that is no tool's, and a tool that changes nothing, are a ConfigError: nobody would be asked."""
    with pytest.raises(ConfigError, match=why):
        await Tickets([CLOSE], approvers={name: "" if name == "close" else "lead"}).agent.start("Close 1 and 2")


async def test_a_schedule_keeps_who_approved_it() -> None:
    """P18, H13: the runs of a schedule that the approver approved ask nobody; its settings drop no approver."""
    tickets = Tickets([CLOSE], *CLOSES, schedule={"every_minutes": 60})
    run = await tickets.agent.start("Close 1 and 2 each hour", thread_id="t")
    assert run.pending[0]["answered_by"] == "lead"
    await tickets.agent.resume(run, "approve", by="lead")
    (schedule,) = await tickets.agent.schedules.list()
    with pytest.raises(ScheduleError, match="approvers"):
        await tickets.agent.schedules.change(schedule.id, settings={"approvers": {"close": "bob"}})
    (thread,) = await tickets.agent.schedules.start_due(QUEUE, datetime.now(UTC) + timedelta(hours=1.01))
    run = await tickets.agent.run_submitted(thread)
    assert (run.status, tickets.made) == ("completed", ["close 1", "close 2"])


async def test_named_approvals_are_replayed() -> None:
    """X29: a recorded run with approvers is replayed without a difference."""
    tickets = Tickets([CLOSE], *CLOSES, confirm="never", options=AgentOptions(record=True))
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    run = await tickets.agent.resume(run, "yes", by="lead:anna")
    replayed = await (await Recording.of(tickets.agent, "t")).replay()
    assert run.receipt
    assert replayed.receipt
    assert [row.get("name") for row in replayed.receipt["approvals"]] == [None, "lead:anna"]


async def test_a_program_asks_each_approver_for_their_own() -> None:
    """X31, H13: of the changes that a program makes, each is decided by who is named for its tool."""
    pytest.importorskip("pydantic_monty")
    code = "for ticket in ('1', '2'):\n    close(ticket)\n    refund(ticket)\n"
    step, work = {**CLOSE, "tools": ["close", "refund"]}, [call("run_program", code=code), finish_step("done", "s1.1")]
    named = {"close": "lead", "refund": "finance"}
    tickets = Tickets([step], *work, approvers=named, confirm="never", programs=True)
    run = await tickets.agent.start("Close and refund 1 and 2", thread_id="t")
    asked = list[Any]()
    while run.status == "waiting":
        (pause,) = run.pending
        asked.append((pause["tool"], pause["answered_by"], len(pause.get("batch", ())), [*tickets.made]))
        run = await tickets.agent.resume(run, "yes", by=pause["answered_by"])
    assert asked == [("close", "lead", 1, []), ("refund", "finance", 1, ["close 1"])]
    assert tickets.made == ["close 1", "refund 1", "close 2", "refund 2"]


async def test_an_outcome_that_nobody_knows_is_for_the_approver() -> None:
    """X10, H13: whoever answers whether it happened may have it made again, so it is who approves such calls."""
    crash = Crash(None, only=["store"])
    tickets = Tickets([CLOSE], *CLOSES, storage=crashing("memory:", crash))
    tickets.crash = crash
    run = await tickets.agent.start("Close 1 and 2", thread_id="t")
    with pytest.raises(StorageError):
        await tickets.agent.resume(run, "yes", by="lead")
    run = await tickets.agent.resume("t")
    assert [(each["kind"], each["answered_by"]) for each in run.pending] == [("effect", "lead")]


async def test_a_sub_agent_that_asks_about_their_tool_asks_them() -> None:
    """X09, H13: a call that an executor wants approved is for who is named for a tool of that name."""

    def worker(task: str) -> str:
        """Do a task."""
        request = {"action_requests": [{"name": "close", "args": {"ticket": "1"}}], "review_configs": []}
        return str(interrupt(request)["decisions"][0]["type"])

    tickets = Tickets([{**CLOSE, "tools": ["worker"]}], call("worker", task="close 1"), more=[worker])
    run = await tickets.agent.start("Close 1", thread_id="t")
    run = await tickets.agent.resume(run, "yes", by="bob")
    assert [(each["kind"], each["tool"], each["answered_by"]) for each in run.pending] == [("tool", "close", "lead")]
