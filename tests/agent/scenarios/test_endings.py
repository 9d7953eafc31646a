"""Every thread can end, whatever was killed before, and its end says what happened: also a write that nobody saw."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Run
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.testing.replies import Call
from donewhen.agent.work.thread_rows import ENDED
from donewhen.hooks import Hooks, Refuse
from donewhen.state.statuses import fresh_record
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from tests.kit.everywhere import run_forked
from tests.kit.runs import config, said, step
from tests.kit.storage.cases import DATABASES, fresh_url

ONE = submit_plan([step("s1"), step("s2")])
OTHER = submit_plan([step("n1", replaces=["s1", "s2"])])
PAY = submit_plan([{"content": "pay ann", "done_when": ["ann is paid"], "tools": ["pay"]}])


def agent_of(url: str, *triage: Call, dies: bool = False, hooks: Hooks | None = None, **execute: Any) -> Agent:
    """An agent that plans what it is told, asks nobody, and can pay; `dies`: its process is killed while it does."""

    def pay(amount: int) -> str:
        """Pay."""
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    roles: dict[str, Any] = {"triage": list(triage), "execute": execute, "deliver": lambda *_: "Done."}
    model = ScriptedModel(roles=roles, strict=False)
    settings = {"confirm": "never", "approvals": "never", "on_failure": "deliver"}
    return Agent(model, [pay], storage=url, settings=settings, hooks=hooks)


async def pay_and_die(url: str) -> None:
    """In a process of its own."""
    await agent_of(url, PAY, dies=True, s1=[call("pay", amount=5)]).start("Pay ann 5", thread_id="t")


async def asking(url: str, thread: str) -> None:
    """A thread that asks something, with another request behind it."""
    async with Agent(ScriptedModel(roles={"triage": [answer("Hello."), ask_user("Which?")]}), storage=url) as agent:
        await agent.start("Say hello", thread_id=thread)
        await agent.start("Do it", thread_id=thread)


async def killed(url: str, thread: str, verb: str, at: int) -> None:
    """In a process of its own: what is done to the thread, killed at a boundary of its storage."""
    model = ScriptedModel(roles={"triage": [answer("It is the first.")] * 2}, strict=False)
    agent = Agent(model, storage=crashing(url, Crash(at, mode="kill")))
    if verb == "cancel":
        await agent.cancel(thread)
    elif verb == "answer":
        await agent.resume(thread, "the first")
    elif verb == "restart":
        await agent.start("Something else", thread_id=thread, restart=True)
    else:
        await agent.submit("Something else", thread_id=thread, restart=True)
        await agent.cancel(thread)


async def agreed(agent: Agent, thread: str) -> Run:
    """The run, of which its row, the lists and what is pending say the same."""
    run = await agent.get(thread)
    assert (await agent.info(thread)).status == run.status
    assert [info.status for info in await agent.threads() if info.thread_id == thread] == [run.status]
    open_ids = [row["id"] for row in await agent.pending() if row["thread_id"] == thread]
    assert open_ids == ([pause["id"] for pause in run.pending] if run.status == "waiting" else [])
    assert bool(run.outcome and run.receipt) == (run.status in ENDED)
    return run


async def stopped(agent: Agent) -> None:
    """The thread `t`, whose plan was approved and not set to work, as a kill there leaves it."""
    await agent.graph.ainvoke({"messages": [("user", "Do it")]}, config("t"), interrupt_before=["advance"])


@pytest.mark.parametrize("then", ["resume", "cancel"])
async def test_a_plan_that_was_never_at_work_gives_way_to_another(then: str) -> None:
    """N20: approved, killed before its first step, steered to other steps: it goes on, and both are in the receipt."""
    async with agent_of("memory:", ONE, OTHER, n1=[said("n1")]) as agent:
        await stopped(agent)
        run = await agent.resume("t", steer="another way")
        assert run.status == "answered", run.outcome
        assert run.receipt is not None
        assert [row["id"] for row in run.receipt["steps"]] == ["n1"]
        left = [(row["id"], row["status"], row["instead"]) for row in run.receipt["replaced"]]
        assert left == [("s1", "skipped", ["n1"]), ("s2", "skipped", ["n1"])]
        assert (await (agent.resume("t") if then == "resume" else agent.cancel("t"))).status == "answered"


async def test_an_answer_in_place_of_the_approved_plan_completes_nothing() -> None:
    """N78, D07: steered, the planner answers; of the approved plan nothing is done, and the outcome says so."""
    async with agent_of("memory:", ONE, answer("There is nothing to do.")) as agent:
        await stopped(agent)
        run = await agent.resume("t", steer="do it the other way")
        assert (run.status, run.answer.split("\n")[0]) == ("partial", "There is nothing to do.")
        assert "0 of 2 steps done" in run.answer


async def test_a_question_in_place_of_a_plan_that_nobody_saw_is_answered() -> None:
    """N78, Q15, honest: stopped before the plan was shown; what the user then asks is answered, and that plan is gone:
    nobody can approve what they were not shown."""
    async with agent_of("memory:", ONE, answer("It is four.")) as agent:
        asked = {"messages": [("user", "Do it")]}
        await agent.graph.ainvoke(asked, config("t"), context={"confirm": "always"}, interrupt_before=["confirm"])
        run = await agent.resume("t", steer="never mind; what is 2 + 2?")
        assert (run.status, run.answer) == ("answered", "It is four.")


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_payment_that_was_cut_off_stands_in_the_receipt(kind: str, folder: Path) -> None:
    """N21, R03: killed inside a write, then cancelled: receipt and answer name the call, and the next request asks."""
    url = fresh_url(kind, folder)
    ended = run_forked("tests.agent.scenarios.test_endings:pay_and_die", {"url": url}, folder)
    assert ended.code == -signal.SIGKILL
    async with agent_of(url, PAY, s1=[call("pay", amount=5), finish_step("paid", "s1.1")]) as agent:
        run: Run = await agent.cancel("t")
        assert run.status == "cancelled"
        assert run.receipt is not None
        (row,) = run.receipt["effects"]
        assert (row["tool"], row["arguments"], row["unknown"]) == ("pay", {"amount": 5}, True)
        assert "pay(amount=5)" in run.answer
        run = await agent.start("Pay ann 5", thread_id="t")
        assert [pause["kind"] for pause in run.pending] == ["effect"]
        run = await agent.resume(run, "it happened")
        assert run.receipt is not None
        assert [row.get("unknown", False) for row in run.receipt["effects"]] == [False]


@pytest.mark.parametrize("then", ["steered", "nobody is asked"])
async def test_a_payment_that_was_cut_off_stands_in_the_receipt_of_a_step_that_ended(then: str, folder: Path) -> None:
    """N21, R03: killed inside a write; its step is done in another way, or fails because hooks let nobody be asked."""
    url = fresh_url("sqlite", folder)
    ended = run_forked("tests.agent.scenarios.test_endings:pay_and_die", {"url": url}, folder)
    assert ended.code == -signal.SIGKILL
    refusing = Hooks(before_question=[lambda asked: Refuse("not now") if asked.kind == "effect" else None])
    if then == "steered":
        async with agent_of(url, PAY, s1=[call("pay", amount=6), finish_step("paid", "s1.1")]) as agent:
            run = await agent.resume("t", steer="six, not five")
    else:
        async with agent_of(url, hooks=refusing, s1=[call("pay", amount=5), finish_step("paid", "s1.1")]) as agent:
            run = await agent.resume("t")
    assert run.receipt is not None
    assert run.outcome is not None
    assert run.receipt["steps"][0]["status"] == ("done" if then == "steered" else "failed")
    rows = {row["arguments"]["amount"]: row.get("unknown", False) for row in run.receipt["effects"]}
    assert rows == ({6: False, 5: True} if then == "steered" else {5: True})
    assert run.outcome["changed"]


EVERY = int(os.environ.get("EVERY", "6"))
"""`make fuzz` tries all of the boundaries, the suite each sixth."""
KILLS = {"cancel": range(1, 26, EVERY), "answer": range(1, 26, EVERY), "restart": range(2, 26, EVERY)}
KILLS["submit"] = range(2, 34, EVERY)
"""Verb → boundaries of the storage at which its process is killed."""


@pytest.mark.parametrize(("kind", "verb"), [*(("sqlite", verb) for verb in KILLS), ("postgres", "answer")])
async def test_killed_anywhere_all_views_of_a_thread_agree_and_it_ends(kind: str, verb: str, folder: Path) -> None:
    """N21, N77, Q99, R02: `get`, `info`, `threads` and `pending` say the same right after the kill and after going on,
    and a run that they do not call ended can be cancelled, with an outcome and a receipt."""
    url, target = fresh_url(kind, folder), "tests.agent.scenarios.test_endings:killed"
    points = [*KILLS[verb]] if kind == "sqlite" else [*KILLS[verb]][::2]
    died = 0
    for at in points:
        await asking(url, thread := f"t{at}")
        ended = run_forked(target, {"url": url, "thread": thread, "verb": verb, "at": at}, folder)
        died += ended.code == -signal.SIGKILL
        model = ScriptedModel(roles={"triage": [answer("It is the first.")]}, strict=False)
        async with Agent(model, storage=url) as agent:
            run = await agreed(agent, thread)
            if at % 2:
                await agent.resume(thread)
                run = await agreed(agent, thread)
            await agent.cancel(thread)
            end = await agreed(agent, thread)
            assert end.status == (run.status if run.status in ENDED else "cancelled")
    assert died >= len(points) // 2


@pytest.mark.parametrize("kind", DATABASES)
async def test_an_answer_whose_task_is_dropped_leaves_no_thread_behind(kind: str, folder: Path) -> None:
    """N77: a web request goes away while its answer is taken; the thread works no more, and all views say how it is."""
    url = fresh_url(kind, folder)
    for number in range(0, 12, 1 if kind == "sqlite" else 3):
        await asking(url, thread := f"t{number}")
        async with Agent(ScriptedModel(roles={"triage": [answer("It is 4.")]}, strict=False), storage=url) as agent:
            task = asyncio.ensure_future(agent.resume(thread, "the first"))
            await asyncio.wait({task}, timeout=0.002 * number)
            task.cancel()
            await asyncio.wait({task})
            run = await agreed(agent, thread)
            assert run.status in ("waiting", "running", "answered")
            if run.status != "answered":
                run = await agent.resume(thread, "the first") if run.status == "waiting" else await agent.resume(thread)
            assert (await agreed(agent, thread)).answer == "It is 4."


async def test_a_run_of_which_no_receipt_can_be_made_can_be_cancelled() -> None:
    """N20: a person can end a run whose state has what no receipt can show."""
    async with agent_of("memory:", ask_user("Which?")) as agent:
        await agent.start("Do it", thread_id="t")
        record = {**fresh_record(), "replaced": {"content": "a step of which nobody knows who replaced it"}}
        await agent.graph.aupdate_state(config("t"), {"steps": {"s9": record}}, as_node="advance")
        run = await agent.cancel("t", "enough")
        assert (run.status, run.answer) == ("cancelled", "Cancelled: enough")
        assert await agreed(agent, "t")
