"""What the user says while a run works: taken at the next round, or refused clearly; never lost, never doubled."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from donewhen import Agent, Settings
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.state.errors import GoalError, ResumeError, ThreadBusy, ThreadWaiting, UnknownThread
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, submit_plan
from donewhen.types import Event
from tests.kit.flows import requests

NEXT = Settings(confirm="never", when_busy="next_round")


class Speaker:
    """A tool during whose call the user says something to the run."""

    def __init__(self, settings: Settings = NEXT, *said: str) -> None:
        self.agent: Agent
        self.settings = settings
        self.said = list(said)
        self.refused: list[str] = []

    def run(self, model: ScriptedModel) -> Any:
        async def work(part: str) -> str:
            """Work."""
            if self.said:
                text = self.said.pop(0)
                try:
                    await self.agent.tell("t", text)
                except ThreadBusy as error:
                    self.refused.append(str(error))
            return f"did {part}"

        self.agent = Agent(model, [work], storage="memory:", settings=self.settings, effects={"work": "read"})
        return self.agent.start("Work", thread_id="t")


def model(plan: list[Any], **work: Any) -> ScriptedModel:
    return ScriptedModel(roles={"triage": [submit_plan(plan)], "execute": work, "deliver": lambda *_: "Done."})


PLAN = [{"content": "work", "tools": ["work"]}, {"content": "tell", "depends_on": ["s1"]}]
WORK: dict[str, Any] = {
    "s1": [call("work", part="a"), call("work", part="b"), finish_step("did b", "s1.2")],
    "s2": [finish_step("told", "s2.result")],
}


async def test_what_is_said_at_work_is_taken_at_the_next_round() -> None:
    """D04, M11: the step at work sees it in its next request, as the user's words, once; later steps and the receipt
    have it too."""
    scripted = model(PLAN, **WORK)
    run = await Speaker(NEXT, "In euros, please.").run(scripted)
    scripted.assert_exhausted()
    assert run.status == "completed"
    first, second, third = requests(scripted, "s1")
    assert "euros" not in first.text
    assert "<user_said>\n[said.1] In euros, please.\n</user_said>" in second.messages[-1].text
    assert third.text.count("In euros, please.") == 1
    assert "- [said.1] In euros, please." in requests(scripted, "s2")[0].messages[1].text
    assert run.receipt is not None
    assert [(row["text"], row["step"]) for row in run.receipt["heard"]] == [("In euros, please.", "s1")]
    assert run.receipt["questions"] == []


async def test_the_judge_knows_what_the_user_said_at_work() -> None:
    """V08, M11: the only step was told to count in euros; what it says is doubted by what the user wants by now."""
    scripted = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "work", "tools": ["work"]}])],
            "execute": [call("work", part="a"), finish_step("did a", "s1.1")],
            "judge": [audit()],
        }
    )
    await Speaker(NEXT, "In euros, please.").run(scripted)
    scripted.assert_exhausted()
    assert "<user_said>\n- [said.1] In euros, please.\n</user_said>" in scripted.requests[-1].text


async def test_by_default_a_message_at_work_is_refused_clearly() -> None:
    """D04: nothing is taken that nobody said may be; the error names the setting, the run goes on."""
    speaker = Speaker(Settings(confirm="never"), "In euros, please.")
    run = await speaker.run(model(PLAN, **WORK))
    assert run.status == "completed"
    assert len(speaker.refused) == 1
    assert 'when_busy="next_round"' in speaker.refused[0]


async def test_a_message_to_nobody_is_an_error() -> None:
    """D04: to an unknown thread, to one at which nothing works, and without words."""
    speaker = Speaker()
    run = await speaker.run(model(PLAN, **WORK))
    with pytest.raises(
        ResumeError, match=r"nothing works on thread 't', which has ended \(completed\): start\(goal, thr"
    ):
        await speaker.agent.tell(run.thread_id, "Hello?")
    with pytest.raises(UnknownThread):
        await speaker.agent.tell("nobody", "Hello?")
    with pytest.raises(GoalError):
        await speaker.agent.tell("t", " ")


async def test_words_to_a_thread_at_which_nothing_works_yet_say_what_it_does() -> None:
    """D04, M11: one that waits for an answer, one that is queued, one that was interrupted: what the error says to do
    works. A new goal is refused with the same words."""
    roles: Any = {"triage": [submit_plan(PLAN), answer("done")], "execute": WORK, "deliver": lambda *_: "Done."}

    async def work(part: str) -> str:
        """Work."""
        if part == "a":
            agent.drain()
        return part

    agent = Agent(ScriptedModel(roles=roles), [work], storage="memory:", effects={"work": "read"})
    waits = await agent.start("Work", thread_id="w")
    question = waits.pending[0]["id"]

    async def refused(thread: str) -> str:
        with pytest.raises(ResumeError) as told:
            await agent.tell(thread, "Hello?")
        for verb in (agent.start, agent.submit):
            with pytest.raises(ThreadWaiting) as begun:
                await verb("More", thread_id=thread)
            assert str(begun.value).removeprefix(f"thread {thread!r} ").removesuffix(
                "; restart=True begins anew"
            ) in str(told.value)
            assert begun.value.pending == told.value.pending
        return str(told.value)

    assert f"waits for an answer ({question}: Shall I go ahead" in (said := await refused("w"))
    assert "give it with resume('w', answer) or submit_answer('w', answer)" in said
    assert (await agent.resume("w", "yes")).status == "running"
    assert "its work was interrupted. resume('w') goes on, and with steer=" in await refused("w")
    assert (await agent.resume("w")).status == "completed"
    await agent.submit("Work", thread_id="q")
    assert "is queued for a worker. Wait for that, watch('q') follows it, or cancel('q')" in await refused("q")
    assert (await agent.cancel("q")).status == "cancelled"


async def test_words_to_a_run_that_does_not_work_yet_are_followed_when_it_does() -> None:
    """D04: to one that is queued, that waits, and that was interrupted; of two messages none is lost, none counts
    twice, none answers the question, and none reaches the next request."""

    async def work(part: str) -> str:
        """Work."""
        if part == "a":
            agent.drain()
        return f"did {part}"

    roles: Any = {"triage": [submit_plan(PLAN), answer("done")], "execute": WORK, "deliver": lambda *_: "Done."}
    scripted = ScriptedModel(roles=roles)
    settings = Settings(when_busy="next_round")
    agent = Agent(scripted, [work], storage="memory:", settings=settings, effects={"work": "read"})
    await agent.submit("Work", thread_id="t")
    await agent.tell("t", "In euros.")
    await agent.tell("t", "And in francs.")
    run = await agent.run_submitted("t")
    assert "In euros." in scripted.requests[0].text
    await agent.tell("t", "Yes, but briefly.")
    assert (await agent.get("t")).pending == run.pending
    assert (await agent.resume(run, "yes")).status == "queued"
    assert "Yes, but briefly." in requests(scripted, "s1")[0].text
    await agent.tell("t", "With a table.")
    run = await agent.resume("t")
    assert "With a table." in requests(scripted, "s1")[1].text
    assert run.receipt is not None
    heard = ["In euros.", "And in francs.", "Yes, but briefly.", "With a table."]
    assert ([row["text"] for row in run.receipt["heard"]], run.problem) == (heard, "")
    more = await agent.start("More", thread_id="t")
    assert more.receipt is not None
    assert more.receipt["heard"] == []


async def test_however_much_is_said_all_of_it_is_heard() -> None:
    """N24, D04: more messages than a store gives at once reach the next round and the receipt, in their order."""
    lines = [f"Line {n}." for n in range(520)]

    async def work() -> str:
        """Work."""
        for line in lines:
            await agent.tell("t", line)
        return "did it"

    plan = [{"content": "work", "tools": ["work"]}]
    scripted = model(plan, s1=[call("work"), finish_step("did it", "s1.1")])
    agent = Agent(scripted, [work], storage="memory:", settings=NEXT, effects={"work": "read"})
    run = await agent.start("Work", thread_id="t")
    assert run.receipt is not None
    assert [row["text"] for row in run.receipt["heard"]] == lines
    assert (
        "\n".join(f"[said.{n}] {line}" for n, line in enumerate(lines, 1))
        in requests(scripted, "s1")[1].messages[-1].text
    )


SHAPE: TypeAdapter[Any] = TypeAdapter(Event)


def heard(events: list[Any]) -> list[tuple[str, str | None]]:
    """What was heard, and where; each event is of its type."""
    found = [SHAPE.validate_python(each, strict=True, extra="forbid") for each in events if each["type"] == "heard"]
    return [(each["text"], each["step"]) for each in found]


async def test_what_was_heard_has_one_event_and_a_line_in_the_receipt() -> None:
    """S01, D04: by planning, by one of two steps side by side, by a planner that answers at once: told once, where."""
    sides = [{"content": f"work {n}", "tools": ["work"], "depends_on": []} for n in (1, 2)]
    pair = {id: [call("work", part=id), finish_step("did", f"{id}.1")] for id in ("s1", "s2")}
    planned = ScriptedModel(
        roles={
            "triage": [call("work", part="p"), submit_plan(["a"])],
            "execute": {"s1": [finish_step("x", "s1.result")]},
        }
    )
    answered = ScriptedModel(roles={"triage": [call("work", part="p"), answer("It is done.")]})
    cases = [(planned, {None}), (model(sides, **pair), {"s1", "s2"}), (answered, {None})]
    for scripted, places in cases:
        speaker = Speaker(NEXT, "In euros.")
        run = await speaker.run(scripted)
        events = [event async for event, _ in speaker.agent.watch("t")]
        assert run.receipt is not None
        assert [row["text"] for row in run.receipt["heard"]] == ["In euros."]
        assert heard(events) == [("In euros.", run.receipt["heard"][0]["step"])]
        assert run.receipt["heard"][0]["step"] in places
        assert (run.status, run.problem) == ("completed", "")


def by_what_is_there(messages: Any, _: Any) -> Any:
    """The next reply of the first step, however often it is asked."""
    said = "\n".join(str(message.text) for message in messages)
    if "did b" in said:
        return finish_step("did b", "s1.2")
    return call("work", part="b" if "did a" in said else "a")


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", ["store", "store.done", "put", "put_writes.done"])
async def test_what_was_heard_is_told_once_across_a_crash(point: str, nth: int, tmp_path: Path) -> None:
    """S01, R02: never twice, whatever is written when the process dies; who watches late has it, within its step, and
    so has who goes on from the error: nothing that is kept and was not sent is before it. Where the mark could not be
    stored, and the same process stored other things, both times stand in the log.
    """
    crash, said = Crash(None, only=[point]), ["In euros."]

    async def work(part: str) -> str:
        """Work."""
        if said:
            await agent.tell("t", said.pop())
            crash.at = len(crash.trace) + nth
        return f"did {part}"

    scripted = model(PLAN, **{**WORK, "s1": by_what_is_there})
    storage = crashing(f"sqlite:///{tmp_path}/runs.db", crash)
    agent = Agent(scripted, [work], storage=storage, settings=NEXT, effects={"work": "read"})
    told: list[Any] = [event async for event in agent.stream("Work", thread_id="t")]
    broken = told[-1]
    assert broken["type"] == "error"
    assert told[-2]["seq"] < broken["seq"]
    sent = heard(told)
    told += [event async for event in agent.stream_resume("t")]
    assert told[-1].get("status") == "completed", told[-1]["text"]
    missed = (point, nth) == ("store.done", 1)  # it died between the mark in the store and the event
    assert heard(told) == ([] if missed else [("In euros.", "s1")])
    late = [event async for event, _ in agent.watch("t")]
    assert sent + heard([event async for event, _ in agent.watch("t", after=broken["seq"])]) == heard(late)
    assert heard(late) == [("In euros.", "s1")] * (2 if (point, nth) == ("store", 1) else 1)
    kinds = [
        *dict.fromkeys(event["type"] for event in late if event["type"] in ("step_started", "heard", "step_finished"))
    ]
    assert kinds[:3] == ["step_started", "heard", "step_finished"]
