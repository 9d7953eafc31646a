"""Runs that are cut off at any moment: nothing is lost, nothing is done twice, nothing ends silently."""

import asyncio
from typing import Any

import pytest

from donewhen import Agent, Settings, UnknownThread
from donewhen.hooks import Hooks
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.runs import Outbox, config, last_seen, said, step

ALONE = Settings(confirm="never")


def working() -> ScriptedModel:
    """Two steps side by side, one of which sends, and a third; answers by what it sees, however often it is asked."""

    def execute(messages: list[Any], tools: list[Any]) -> Any:
        brief = messages[1].text
        if '<step id="s2">' not in brief:
            return said("s1" if '<step id="s1">' in brief else "s3")
        if any(message.text.startswith("[") for message in messages):
            return finish_step("sent", evidence=last_seen(messages))
        return call("send", to="ann", text="hi")

    steps = [step("s1", depends_on=[]), step("s2", depends_on=[], tools=["send"]), step("s3", depends_on=["s1", "s2"])]
    roles = {"triage": lambda *_: submit_plan(steps), "execute": execute, "deliver": lambda *_: "Done."}
    return ScriptedModel(roles=roles)


async def cut_off(turns: int) -> tuple[Agent, Outbox] | None:
    """A run cancelled after so many turns of the event loop; None if it was over by then."""
    outbox = Outbox()
    agent = Agent(working(), [outbox.tool()], storage="memory:", settings=ALONE)
    task = asyncio.create_task(agent.start("Mail ann", thread_id="t"))
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        return None
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return agent, outbox


async def test_whenever_it_is_cancelled_it_goes_on() -> None:
    """C06, R02, R03: resuming completes the run with one effect, or asks about the one that nobody can know of."""
    moments = 0
    for turns in range(1, 10_000, 31):
        if (cut := await cut_off(turns)) is None:
            break
        agent, outbox = cut
        moments += 1
        try:
            run = await agent.resume("t")
        except UnknownThread:  # cancelled before anything was stored
            continue
        if run.status == "waiting":
            assert run.pending[0]["kind"] == "effect"
            run = await agent.resume("t", "it happened" if outbox.sent else "it did not")
        assert (run.status, len(outbox.sent)) == ("completed", 1), f"cancelled after {turns} turns"
    assert moments > 7


async def test_what_was_sent_is_in_the_receipt_whenever_it_is_cancelled() -> None:
    """C06, O04: who cancels a run that was cut off reads each call that took effect, once, and its open step.
    Two steps send at the same time."""
    steps = [step("s1", depends_on=[], tools=["send"]), step("s2", depends_on=[], tools=["send"])]
    seen = set[tuple[int, int]]()
    for turns in range(1, 10_000, 13):
        outbox = Outbox()
        roles = {"s1": [call("send", to="ann", text="hi")], "s2": [call("send", to="bob", text="hi")]}
        ends = {id: [*calls, finish_step("sent", evidence=f"{id}.1")] for id, calls in roles.items()}
        model = ScriptedModel(
            roles={"triage": [submit_plan(steps)], "execute": ends, "deliver": ["Sent."]}, strict=False
        )
        agent = Agent(model, [outbox.tool()], storage="memory:", settings=ALONE)
        task = asyncio.create_task(agent.start("Mail ann and bob", thread_id="t"))
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.done():
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        try:
            run = await agent.cancel("t")
        except UnknownThread:
            continue
        assert run.outcome is not None
        effects = run.outcome["receipt"]["effects"]
        assert sorted(row["arguments"]["to"] for row in effects if row["ok"]) == sorted(
            each["to"] for each in outbox.sent
        )
        assert run.outcome["changed"] == bool(effects)
        for row in effects:
            record = run.steps[row["id"].partition(".")[0]]
            assert record["status"] == "done" or row["arguments"]["to"] in run.answer
        seen.add((len(outbox.sent), sum(record["status"] == "done" for record in run.steps.values())))
    assert (2, 0) in seen, seen


@pytest.mark.parametrize("end", ["cancel", "stop"])
async def test_writes_of_a_plan_that_was_replaced_stand_in_the_receipt_once(end: str) -> None:
    """C06, O04: of the step that was cut off and replaced, and of the one in its place, which is cut off as well."""
    outbox = Outbox()
    work = {"s1": [call("send", to="ann", text="hi")], "s2": [call("send", to="bob", text="hi")]}
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([step("s1", depends_on=[], tools=["send"])])],
            "plan": [submit_plan([step("s2", depends_on=[], tools=["send"], done_when="work on s1: done")])],
            "execute": work,
        }
    )
    one_round = Settings(confirm="never", step_limits={"rounds": 1})
    agent = Agent(model, [outbox.tool()], storage="memory:", settings=one_round)
    run = await agent.start("Mail ann and bob", thread_id="t")
    run = await agent.resume(run, "replan")
    assert (run.status, [each["to"] for each in outbox.sent]) == ("waiting", ["ann", "bob"])
    run = await (agent.cancel("t") if end == "cancel" else agent.resume(run, "stop"))
    assert [(row["id"], row["arguments"]["to"], row["ok"]) for row in (run.receipt or {})["effects"]] == [
        ("s1.1", "ann", True),
        ("s2.1", "bob", True),
    ]


async def test_a_run_between_two_nodes_is_put_back_on_its_way() -> None:
    """R02: an update that was stored without the route after it, as a Ctrl-C can leave it, is not the end."""
    for verb in ("resume", "ainvoke"):
        outbox = Outbox()
        agent = Agent(working(), [outbox.tool()], storage="memory:", settings=ALONE)
        async for event in agent.stream("Mail ann", thread_id="t"):
            if event["type"] == "plan":
                agent.drain()
        graph = agent.graph
        while (state := await graph.aget_state(config("t"))).next:
            await graph.aupdate_state(config("t"), None, as_node="__end__")  # drops what is next
        assert state.values.get("outcome") is None
        if verb == "resume":
            await agent.resume("t")
        else:
            await graph.ainvoke(None, config("t"), context=ALONE)
        assert ((await agent.get("t")).status, len(outbox.sent)) == ("completed", 1)


@pytest.mark.parametrize("drains", [False, True])
async def test_a_cancellation_reaches_a_run_that_gives_its_answer(drains: bool) -> None:
    """M11, R03: also one whose process is stopped meanwhile, which still gives the answer that is there."""
    entered, checked = asyncio.Event(), list[Any]()

    async def check(end: Any) -> None:
        checked.append(end)
        if len(checked) == 1 + drains:
            entered.set()
            await asyncio.Event().wait()

    def reply(*_: Any) -> Any:
        if drains:
            agent.drain()
        return answer("The Rhine.")

    agent = Agent(ScriptedModel(roles={"triage": reply}), storage="memory:", hooks=Hooks(before_end=[check]))
    begun = asyncio.create_task(agent.start("Which river?", thread_id="t"))
    await entered.wait()
    run = await asyncio.wait_for(agent.cancel("t"), 20)
    assert (run.status, (await begun).status) == ("cancelled", "cancelled")


@pytest.mark.parametrize("record", [{}, {"result": "seen"}])
async def test_a_run_whose_records_somebody_began_can_be_cancelled(record: dict[str, Any]) -> None:
    """R06: records that a client wrote in part are whole, of a step of the plan and of one that there is not."""
    agent = Agent(working(), [Outbox().tool()], storage="memory:")
    await agent.start("Mail ann", thread_id="t")
    await agent.graph.aupdate_state(config("t"), {"steps": {"s1": record, "s9": record}})
    run = await agent.get("t")
    assert {run.steps[id]["status"] for id in ("s1", "s9")} == {"pending"}
    await agent.graph.aupdate_state(config("t"), {"steps": {"s1": {"reason": "later"}}})
    run = await agent.cancel("t")
    assert (run.status, run.steps["s1"]["result"]) == ("cancelled", record.get("result", ""))
