"""`agent.audit`: a finished run is audited later, where nobody did or once more, by whichever judge there is now."""

import asyncio
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage

from donewhen import Agent, Run
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, recall, submit_plan
from tests.kit.runs import values

LOOK = {"look": "read", "send": "write"}
STEP = {"content": "Tell Ann the total", "done_when": ["she was told"], "tools": ["look", "send"]}
RESULT = "The total is 5. Ann was told so by mail."
DOUBT = audit((2, "no", "nothing says that it was by mail"), count=2)


def look() -> str:
    """Look."""
    return "total: 5"


def send(text: str) -> str:
    """Send."""
    return f"sent: {text}"


def model(*judged: Any, **roles: Any) -> ScriptedModel:
    """A run of one step that looks, sends and says so; `judged`: what the judge says, one reply after the other."""
    rounds = [call("look"), call("send", text="5"), finish_step(RESULT, [("s1.2", "sent: 5")])]
    script = {"triage": [submit_plan([STEP])], "execute": rounds, "deliver": lambda *_: "Done."} | roles
    return ScriptedModel(roles={**script, **({"judge": list(judged)} if judged else {})}, strict=False)


def agent_of(folder: Path, model: ScriptedModel, **settings: Any) -> Agent:
    wanted = {"confirm": "never", "approvals": "never", **settings}
    return Agent(model, [look, send], effects=LOOK, storage=f"sqlite:///{folder / 'runs.db'}", settings=wanted)


async def run_then_audit(folder: Path, first: ScriptedModel, *later: Any, **settings: Any) -> tuple[Run, list[Run]]:
    """A run by one process, and its audits, each by another process whose judge says one of `later`."""
    async with agent_of(folder, first, **settings) as agent:
        run = await agent.start("Tell Ann the total", thread_id="t")
    audits = []
    for said in later:
        judge = model(*(said if isinstance(said, list) else [said]))
        async with agent_of(folder, judge) as agent:
            audits.append(await agent.audit("t"))
            assert (await agent.get("t")).outcome == audits[-1].outcome, "another reader sees the same"
    return run, audits


async def test_what_nobody_audited_is_audited_later(tmp_path: Path) -> None:
    """V07, DESIGN 5: a dead judge never completes a run; a judge who finds all shown does, and the note goes."""
    run, (later,) = await run_then_audit(tmp_path, model(RuntimeError("dead")), audit(count=2), model_retries=0)
    assert (run.status, run.outcome["code"]) == ("partial", "unaudited")
    assert RESULT in run.answer
    assert run.answer != RESULT
    assert (later.status, later.outcome["code"], later.answer) == ("completed", "worked", RESULT)
    assert later.receipt["audit"]["problem"] == ""
    assert [row["shown"] for row in later.receipt["audit"]["sentences"]] == ["yes", "yes"]
    assert (later.receipt["status"], later.receipt["code"]) == ("completed", "worked")
    assert later.problem == ""


async def test_what_ended_at_a_lower_level_is_audited_when_it_is_asked_for(tmp_path: Path) -> None:
    """V07, D07: doubted sentences stand below the answer, in its place under the same id, and the run is partial."""
    run, (later,) = await run_then_audit(tmp_path, model(), DOUBT, verification="grounded")
    assert (run.status, run.answer, run.receipt["audit"]) == ("completed", RESULT, None)
    assert (later.status, later.outcome["code"]) == ("partial", "not_shown")
    assert "nothing says that it was by mail" in later.outcome["reason"]
    assert later.answer.startswith(RESULT)
    assert "Ann was told so by mail" in later.answer.removeprefix(RESULT)
    assert later.receipt["verification"] == "audited"
    async with agent_of(tmp_path, model()) as agent:
        state = await values(agent, "t")
        said = [message for message in state["messages"] if isinstance(message, AIMessage) and message.text]
        assert [message.text for message in said if RESULT in message.text] == [later.answer], "said once"
        assert (await agent.info("t")).status == "partial"


async def test_an_audit_may_be_made_again_and_the_last_one_holds(tmp_path: Path) -> None:
    """V07: what one judge doubted another may find shown; only what judges say changes, and each is paid for."""
    missing = audit(count=2, missing=["the date"])
    run, audits = await run_then_audit(tmp_path, model(), DOUBT, DOUBT, audit(count=2), missing)
    assert [each.outcome["code"] for each in audits] == ["not_shown", "not_shown", "worked", "goal_not_met"]
    assert [each.outcome["missing"] for each in audits] == [[], [], [], ["the date"]]
    assert audits[0].answer == audits[1].answer, "the same said again changes nothing"
    assert audits[2].answer == RESULT == run.answer
    assert audits[3].answer.count("the date") == 1
    calls = [each.spent["model_calls"] for each in (run, *audits)]
    assert calls == [*range(calls[0], calls[0] + 5)]
    assert all(each.receipt["spent"] == dict(each.spent) for each in audits)


async def test_without_a_judge_all_stays_as_it_was(tmp_path: Path) -> None:
    """V07: fails closed both ways: nothing gets better, and a good audit of before is not lost."""
    dead = RuntimeError("no such model")
    run, audits = await run_then_audit(tmp_path, model(), DOUBT, [dead] * 9, ["I find it good."] * 9)
    for later in audits[1:]:
        assert later.outcome["code"] == "not_shown"
        assert later.answer == audits[0].answer
        assert later.receipt["audit"] == audits[0].receipt["audit"]
        assert later.problem
    assert run.problem == audits[0].problem == ""


async def test_an_audit_never_makes_a_run_better_than_its_steps(tmp_path: Path) -> None:
    """D07: a judge only doubts; what failed stays failed."""
    failing = model(execute=[call("look"), *[finish_step("Ann was told", "s9.9")] * 6])
    run, (later,) = await run_then_audit(tmp_path, failing, audit(count=3), on_failure="deliver")
    assert run.status == "failed"
    assert (later.status, later.outcome["code"], later.answer) == (run.status, run.outcome["code"], run.answer)
    assert later.receipt["audit"]["met"] == "yes"


async def test_the_judge_looks_for_itself_and_that_is_written_down(tmp_path: Path) -> None:
    """V08: by recall and by the tools that only read; its readings are observations of the goal."""
    judge = model([recall("s1.2"), call("look")], audit(count=2))
    async with agent_of(tmp_path, model(), verification="grounded") as agent:
        await agent.start("Tell Ann the total", thread_id="t")
    async with agent_of(tmp_path, judge) as agent:
        later = await agent.audit("t")
        journal = (await values(agent, "t"))["journal"]
    assert later.status == "completed"
    assert [(entry["id"], entry["text"]) for entry in journal if entry["step"] == "goal"] == [("goal.1", "total: 5")]
    asked = judge.requests[0].text
    assert "Tell Ann the total" in asked
    assert '"text": "5"' in asked, "every change with its arguments"
    assert "1. The total is 5." in asked
    assert "2. Ann was told so by mail." in asked


async def test_an_answer_without_a_plan_is_audited_when_it_is_asked_for(tmp_path: Path) -> None:
    """D07, N02: "I deleted old.log" without a call is doubted as soon as somebody asks for it."""
    claimed = model(triage=[answer("I deleted old.log.")])
    run, (later,) = await run_then_audit(tmp_path, claimed, audit((1, "no", "nothing was changed"), count=1, met="no"))
    assert (run.outcome["code"], run.outcome["looked"], run.outcome["changed"]) == ("answered", False, False)
    assert (later.status, later.outcome["code"]) == ("partial", "goal_not_met")


async def test_a_goal_of_its_own_is_decided_by_the_later_judge(tmp_path: Path) -> None:
    """D06: at `judged` a goal's criterion that no judge decided is decided later, to either side."""
    plan = submit_plan(
        [{**STEP, "done_when": ["she was told"]}, {"content": "Sum up", "done_when": ["said"], "tools": []}],
        done_when=[{"text": "Ann knows the total", "judge": True}],
    )
    rounds = {
        "s1": [call("look"), call("send", text="5"), finish_step("told", [("s1.2", "sent: 5")])],
        "s2": [finish_step("She knows.", "s2.result")],
    }
    said = call(
        "deliver", text=RESULT, goal_check=[{"criterion": 1, "met": True, "evidence": [{"observation": "s1.2"}]}]
    )
    dead = model(*[RuntimeError("dead")] * 9, triage=[plan], execute=rounds, deliver=[said] * 3)
    judges = [audit(count=2), DOUBT, audit(count=2), audit(count=2, met="part")]
    run, audits = await run_then_audit(tmp_path, dead, *judges, model_retries=0)
    assert run.status == "partial"
    assert [each.status for each in audits] == ["completed", "partial", "completed", "partial"]
    verdicts = [each.receipt["criteria"][0]["verdict"] for each in audits]
    assert verdicts == ["proven", "unverified", "proven", "unverified"]
    assert audits[-1].receipt["criteria"][0]["note"] == "part of the goal is not met"


async def test_an_audit_that_is_cut_off_hides_nothing(tmp_path: Path) -> None:
    """R02, V07: until it goes on, the run has the answer and the receipt that it had; both ways on lead to its end."""
    begun = asyncio.Event()

    async def hangs(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    for goes_on in (True, False):
        folder = tmp_path / str(goes_on)
        folder.mkdir()
        begun.clear()
        async with agent_of(folder, model(audit(count=2), hangs, DOUBT)) as agent:
            before = await agent.start("Tell Ann the total", thread_id="t")
            task = asyncio.create_task(agent.audit("t"))
            await begun.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            cut = await agent.get("t")
            assert (cut.status, cut.answer, cut.receipt) == ("running", before.answer, before.receipt)
            after = await agent.resume("t") if goes_on else await agent.cancel("t")
            assert (after.status, RESULT in after.answer) == ("partial" if goes_on else "completed", True)
