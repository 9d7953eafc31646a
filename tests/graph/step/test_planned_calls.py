"""Steps that the calls of their plan show to be done, without a model that says so."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException

from donewhen import Agent, StorageError
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.work.thread_rows import QUEUE
from donewhen.testing import audit, call, criterion, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, play, requests, steps
from tests.kit.runs import step
from tests.kit.storage.cases import fresh_url

ANN = {"tool": "send", "arguments": {"to": "ann", "text": "hi"}}
BOB = {"tool": "send", "arguments": {"to": "bob", "text": "hi"}}
SENT: dict[str, Any] = {"text": "Ann has it", "call": 1}
LISTED: dict[str, Any] = {
    "text": "it is in the list of what was sent",
    "check": {"tool": "list_sent", "arguments": {}, "expect": {"contains": "ann"}},
}


class World:
    """A mailbox that can be read; what is sent to `refusing` fails."""

    def __init__(self, refusing: str = "", said: str = "sent to {to}", meanwhile: Callable[[], Any] = list) -> None:
        self.sent: list[str] = []
        self.refusing, self.said, self.meanwhile = refusing, said, meanwhile

    def tools(self) -> list[Any]:
        """Its tools: one that writes, one that reads."""

        async def send(to: str, text: str) -> str:
            """Send a text to somebody, who gets it at once."""
            if to == self.refusing:
                raise ToolException("no such person")
            self.sent.append(to)
            if isawaitable(told := self.meanwhile()):
                await told
            return self.said.format(to=to)

        def list_sent() -> str:
            """List to whom something was sent, by name."""
            return ", ".join(self.sent) or "nobody"

        return [send, list_sent]


EFFECTS = {"send": "write", "list_sent": "read"}
HEARING = {**FREE, "when_busy": "next_round"}


def lose() -> None:
    """Lose the answer."""
    raise TimeoutError("no answer")


def plan_of(done_when: list[Any], calls: list[Any], message: str = "", **more: Any) -> Any:
    """A plan of one step that begins with these calls."""
    told = {"message": message} if message else {}
    return submit_plan([step("s1", "Write to Ann", tools=["send"], calls=calls, done_when=done_when, **told)], **more)


async def test_a_step_is_done_by_the_calls_of_its_plan_and_by_its_checks() -> None:
    """Q73: nobody is asked to say what a call and a check show; the judge reads the answer, in the run's language."""
    world = World()
    model = steps([], {"s1": []}, triage=[plan_of([SENT, LISTED], [ANN], language="de")], judge=[audit()])
    flow = await play(model, world.tools(), effects=EFFECTS)
    assert (flow.status, world.sent) == ("completed", ["ann"])
    assert flow.run.answer.splitlines()[1:] == ['- send {"text":"hi","to":"ann"}: sent to ann']
    assert flow.run.answer.startswith("Ausgeführt")
    assert [(v["verdict"], v["evidence"][0]["observation"]) for v in flow.step("s1")["verdicts"]] == [
        ("cited", "s1.1"),
        ("proven", "s1.2"),
    ]
    assert [request.role for request in model.requests] == ["triage", "judge"]
    assert "sent to ann" in model.requests[-1].text


async def test_the_user_reads_what_the_plan_says_for_this_case() -> None:
    """Q73: the message is worded with the plan and delivered only if the calls succeeded, which the judge sees."""
    world = World()
    model = steps([], {"s1": []}, triage=[plan_of([SENT], [ANN], "Ann has your “hi”.")], judge=[audit()])
    flow = await play(model, world.tools(), effects=EFFECTS)
    assert (flow.status, flow.run.answer) == ("completed", "Ann has your “hi”.")
    assert [request.role for request in model.requests] == ["triage", "judge"]
    assert "sent to ann" in model.requests[-1].text


async def test_an_answer_that_the_calls_do_not_bear_out_is_worded_by_who_works_on_it() -> None:
    """V02, Q73: a judge doubts a planned answer like any other, and then a model works on the step."""
    world, doubt = World(), audit((1, "no", "nothing was sent to Bob"), missing=["the mail to Bob"])
    told = "Ann and Bob have it."
    then = [finish_step("Ann has it.", goal_check=[criterion(1, "s1.1")])]
    model = steps([], {"s1": then}, triage=[plan_of([SENT], [ANN], told)], judge=[doubt, audit()])
    flow = await play(model, world.tools(), effects=EFFECTS)
    assert (flow.run.answer, world.sent) == ("Ann has it.", ["ann"])
    assert "nothing was sent to Bob" in requests(model, "s1")[0].text


async def test_an_answer_goes_with_the_calls_that_a_person_changes() -> None:
    """P06, Q73: what was worded for other calls is not said of the changed ones; a plan without calls has none."""
    world = World()
    edited = {"steps": [{"id": "s1", "calls": [BOB]}]}
    then = [finish_step("Bob has it.", goal_check=[criterion(1, "s1.1")])]
    alone = submit_plan([step("s1", "Write to Ann", tools=["send"], message="Done.")])
    planned = plan_of([SENT], [ANN], "Ann has it.")
    model = steps([], {"s1": then}, triage=[alone, planned], judge=[audit()])
    flow = await play(model, world.tools(), effects=EFFECTS, settings={}, answers=[{"type": "edit", "plan": edited}])
    assert (flow.run.answer, world.sent) == ("Bob has it.", ["bob"])
    assert "a `message` and no `calls`" in model.requests[1].text


UNPROVEN: dict[str, Any] = {"text": "Ann is content"}
UNLISTED: dict[str, Any] = {**LISTED, "check": {**LISTED["check"], "expect": {"contains": "carl"}}}
ASKED: dict[str, dict[str, Any]] = {
    "a criterion that nothing shows": {"done_when": [SENT, UNPROVEN]},
    "no criterion": {"done_when": []},
    "a check that fails": {"done_when": [SENT, UNLISTED], "told": "does not contain 'carl'"},
    "a call that failed": {"refusing": "ann", "sent": []},
    "the second of two failed, and the check passes": {"calls": [ANN, BOB], "refusing": "bob", "done_when": [LISTED]},
    "the first of two failed": {"calls": [BOB, ANN], "refusing": "bob"},
    "what became of it is unknown": {"meanwhile": lose, "done_when": [LISTED]},
    "a person refused it": {"settings": {"approvals": "each"}, "answers": ["reject"], "sent": []},
    "a person changed it": {
        "settings": {"approvals": "each"},
        "answers": [{"type": "edit", "args": {"to": "bob", "text": "hi"}}],
        "sent": ["bob"],
    },
    "no judge reads it": {"settings": {"verification": "grounded"}, "done_when": [LISTED]},
    "much came back": {"said": "sent to {to} " + "x" * 2_000},
    "data is asked for": {"settings": {"output_schema": {"type": "object", "properties": {"to": {"type": "string"}}}}},
}


@pytest.mark.parametrize("case", ASKED)
async def test_what_calls_do_not_show_is_left_to_whoever_works_on_the_step(case: str) -> None:
    """Q73, E05: a step whose calls failed, were refused or changed, or show too little, is not done by them."""
    given = ASKED[case]
    world = World(given.get("refusing", ""), given.get("said", "sent to {to}"), given.get("meanwhile", list))
    plan = plan_of(given.get("done_when", [SENT]), given.get("calls", [ANN]))
    model = steps([], {"s1": [give_up("it does not show")]}, triage=[plan], judge=[audit(), audit()])
    model.script.strict = False
    settings = {**FREE, "on_failure": "deliver", **given.get("settings", {})}
    flow = await play(model, world.tools(), effects=EFFECTS, settings=settings, answers=given.get("answers", ()))
    assert flow.step("s1")["status"] == "failed"
    assert world.sent == given.get("sent", ["ann"])
    assert given.get("told", "") in requests(model, "s1")[0].text


async def test_a_criterion_names_a_call_of_its_step_and_goes_with_it() -> None:
    """P07, Q73: a call that is not planned cannot show a criterion, nor one that a person put in its place."""
    world, third = World(), {**SENT, "call": 3}
    plans = [plan_of([third], [ANN, BOB]), plan_of([SENT], [ANN, BOB])]
    model = steps([], {"s1": [give_up("Carl has it")]}, triage=plans)
    agent = Agent(model, world.tools(), storage="memory:", effects=EFFECTS, settings={"on_failure": "deliver"})
    run = await agent.start("Write to Ann")
    assert "names call 3; 2 calls are planned there" in model.requests[1].text
    changed = {"steps": [{"id": "s1", "calls": [{**ANN, "arguments": {"to": "carl", "text": "hi"}}]}]}
    run = await agent.resume(run, {"type": "edit", "plan": changed})
    assert (run.status, world.sent) == ("failed", ["carl"])
    assert (run.plan or {})["steps"][0]["done_when"][0].keys() == {"text", "check", "judge"}


async def test_of_two_steps_each_is_done_by_its_own_calls() -> None:
    """Q73: two at once, each with its own observations; a person who approves a call does not bring a model in."""
    world = World()
    planned = [
        step(
            id,
            f"Write to {to}",
            tools=["send"],
            depends_on=[],
            calls=[call],
            done_when=[{**SENT, "text": f"{to} has it"}],
        )
        for id, to, call in (("s1", "Ann", ANN), ("s2", "Bob", BOB))
    ]
    model = steps(planned, {}, deliver=["Ann and Bob have it."], judge=[audit()])
    flow = await play(model, world.tools(), effects=EFFECTS, settings={"approvals": "each"}, answers=["approve"] * 3)
    assert (flow.status, sorted(world.sent)) == ("completed", ["ann", "bob"])
    assert [flow.step(id)["verdicts"][0]["evidence"][0]["observation"] for id in ("s1", "s2")] == ["s1.1", "s2.1"]
    assert [request.role for request in model.requests] == ["triage", "deliver", "judge"]


async def test_each_run_of_a_schedule_is_done_by_its_own_calls() -> None:
    """P18, Q73: what was approved once is called at each moment, and each answer is what came back then."""
    world = World()
    model = steps([], {"s1": []}, triage=[plan_of([SENT], [ANN], schedule={"every_minutes": 60})], judge=[audit()] * 2)
    async with Agent(model, world.tools(), storage="memory:", effects=EFFECTS, settings=FREE) as agent:
        run = await agent.start("Write to Ann each hour", settings={"confirm": "always"})
        await agent.resume(run, "approve")
        assert world.sent == []
        for number in (1, 2):
            later = datetime.now(UTC) + timedelta(hours=number + 0.01)
            (thread,) = await agent.schedules.start_due(QUEUE, later)
            run = await agent.run_submitted(thread)
            assert (run.status, world.sent) == ("completed", ["ann"] * number), run
            assert run.answer.endswith(": sent to ann")
    assert [request.role for request in model.requests] == ["triage", "judge", "judge"]


async def test_a_judge_doubts_what_calls_returned_before_the_step_is_done() -> None:
    """V02, Q73: a status says that a call succeeded, and the judge reads what it said; then a model works on."""
    world = World(said="accepted for {to}: will be retried, mailbox unavailable")
    doubt = audit((2, "no", "it was only queued"), missing=["the mail to Ann"])
    model = steps([], {"s1": [give_up("it is only queued", "blocked")]}, triage=[plan_of([SENT], [ANN])], judge=[doubt])
    model.script.strict = False
    flow = await play(model, world.tools(), effects=EFFECTS, settings={**FREE, "on_failure": "deliver"})
    assert (flow.step("s1")["status"], flow.status) == ("blocked", "failed")
    assert "it was only queued" in requests(model, "s1")[0].text


async def test_whoever_speaks_while_the_calls_are_made_is_heard() -> None:
    """S01, Q73: what the user says during a planned call reaches a model before the step is done."""
    said = ["To Bob as well"]
    world = World(meanwhile=lambda: agent.tell("t", said.pop()) if said else None)
    more = [call("send", to="bob", text="hi"), finish_step("Both have it.", goal_check=[criterion(1, "s1.1", "s1.2")])]
    model = steps([], {"s1": more}, triage=[plan_of([SENT], [ANN])], judge=[audit(), audit()])
    model.script.strict = False
    async with Agent(model, world.tools(), storage="memory:", effects=EFFECTS, settings=HEARING) as agent:
        run = await agent.start("Write to Ann", thread_id="t")
    assert (run.status, run.answer, world.sent) == ("completed", "Both have it.", ["ann", "bob"])
    assert "To Bob as well" in requests(model, "s1")[0].text


def _crash_soon(crash: Crash, nth: int) -> None:
    crash.at = crash.at or len(crash.trace) + nth


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_a_crash_after_the_calls_makes_none_again_and_asks_no_model(kind: str, tmp_path: Path) -> None:
    """R02, Q73: wherever the process dies after a call, the next one ends the step with what the call returned.

    Where that was not stored yet, a person says what became of it, and the answer says that they did.
    """
    ends = []
    for nth in (1, 2):
        (folder := tmp_path / str(nth)).mkdir()
        storage, crash = open_storage(fresh_url(kind, folder)), Crash(only=["put", "put_writes", "store"])
        world = World(meanwhile=partial(_crash_soon, crash, nth))
        model = steps([], {"s1": []}, triage=[plan_of([SENT, LISTED], [ANN])], judge=[audit()] * 2)
        model.script.strict = False
        given: dict[str, Any] = {"effects": EFFECTS, "settings": FREE}
        with pytest.raises(StorageError, match="simulated"):
            await Agent(model, world.tools(), storage=crashing(storage, crash), **given).start("Write", thread_id="t")
        async with Agent(model, world.tools(), storage=storage, **given) as agent:
            run = await agent.resume("t")
            if run.pending:
                assert run.pending[0]["kind"] == "effect"
                run = await agent.resume(run, "happened")
        assert (run.status, world.sent, requests(model, "s1")) == ("completed", ["ann"], [])
        ends.append(run.answer.rpartition(": ")[2])
    assert ends == ["A person confirmed that this call took effect; its output was lost.", "sent to ann"]
