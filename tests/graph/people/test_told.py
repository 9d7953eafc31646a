"""What the user says while a run works: taken at the next round, or refused clearly; never lost, never doubled."""

import asyncio
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.state.errors import GoalError, ResumeError, ThreadBusy, UnknownThread
from donewhen.testing import ScriptedModel, audit, call, finish_step, submit_plan
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
    assert "<user_said>\nIn euros, please.\n</user_said>" in second.messages[-1].text
    assert third.text.count("In euros, please.") == 1
    assert "- In euros, please." in requests(scripted, "s2")[0].messages[1].text
    assert run.receipt is not None
    assert [(row["answer"], row["by"]) for row in run.receipt["questions"]] == [("In euros, please.", "user")]


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
    assert "<user_said>\n- In euros, please.\n</user_said>" in scripted.requests[-1].text


async def test_two_messages_reach_steps_side_by_side_once_each() -> None:
    """D04: in their order, to everybody who is at work, and once in the journal."""
    plan = [{"content": f"work {n}", "tools": ["work"], "depends_on": []} for n in (1, 2)]
    work = {
        id: [call("work", part=id), call("work", part=f"{id}b"), finish_step("did", f"{id}.2")] for id in ("s1", "s2")
    }
    scripted = model(plan, **work)
    run = await Speaker(NEXT, "First.", "Second.").run(scripted)
    assert run.status == "completed"
    for id in ("s1", "s2"):
        assert requests(scripted, id)[-1].text.count("First.") == 1
        assert requests(scripted, id)[-1].text.count("Second.") == 1
    assert run.receipt is not None
    assert [row["answer"] for row in run.receipt["questions"]] == ["First.", "Second."]


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
    with pytest.raises(ResumeError, match="nothing works on thread 't'"):
        await speaker.agent.tell(run.thread_id, "Hello?")
    with pytest.raises(UnknownThread):
        await speaker.agent.tell("nobody", "Hello?")
    with pytest.raises(GoalError):
        await speaker.agent.tell("t", " ")


async def test_planning_hears_it_too() -> None:
    """D04: said while the planner looks, it is in its next round, and in the briefs of the steps."""
    heard = asyncio.Event()

    def plan(messages: Any, _: Any) -> Any:
        if "Only two." in messages[-1].text:
            heard.set()
        return submit_plan(["a"])

    scripted = ScriptedModel(
        roles={"triage": [call("work", part="a"), plan], "execute": {"s1": [finish_step("x", "s1.result")]}}
    )
    run = await Speaker(NEXT, "Only two.").run(scripted)
    assert heard.is_set()
    assert run.status == "completed"
    assert "Only two." in requests(scripted, "s1")[0].messages[1].text


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
    assert [row["answer"] for row in run.receipt["questions"]] == lines
    assert "\n".join(lines) in requests(scripted, "s1")[1].messages[-1].text
