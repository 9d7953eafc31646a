"""A new kind of pause is one class: defined here, it is shown, asked, answered, carried out and left to a policy."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pytest

from donewhen import Agent, Run
from donewhen.agent.cli.screen.asking import Person
from donewhen.agent.page.conversations import pause_view
from donewhen.graph.pauses.pause import KINDS, OpenPause, OpenQuestion, ResolvedAnswer
from donewhen.graph.people.pauses import pause_message
from donewhen.state.language.texts import Unclear
from donewhen.state.people.answers import Answer, AnswerShape, match_choice
from donewhen.state.settings import Settings
from donewhen.testing import ScriptedModel, submit_plan
from tests.kit.runs import config, step
from tests.kit.screens.terminal import screen, written


@pytest.fixture
def paint() -> Iterator[type[OpenPause]]:
    """A kind of pause that nothing else knows."""

    class PaintPause(OpenPause):
        topic: ClassVar[str] = "paint"
        to_people: ClassVar[bool] = False
        shown: ClassVar[tuple[str, ...]] = ("colours",)

        kind: str = "paint"
        colours: list[str]

        def choices(self) -> list[str]:
            return self.colours

        def understand(self, given: AnswerShape) -> Answer | Unclear:
            colour = match_choice(given.text, self.colours)
            return Answer("answer", colour) if colour in self.colours else self.choose_one(given.text)

        def by_policy(self, settings: Settings) -> Answer:
            return Answer("answer", self.colours[-1])

        def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> dict[str, Any]:
            return {"ending": {"code": "cancelled", "reason": f"It is {decided.answer.text} now."}}

    yield PaintPause
    del KINDS["paint"]


def agent_of(**settings: Any) -> Agent:
    """An agent whose plan waits for approval."""
    model = ScriptedModel(roles={"triage": lambda *_: submit_plan([step("s1")], title="One")})
    return Agent(model, storage="memory:", settings={"confirm": "always", **settings})


async def ask(agent: Agent, kind: type[OpenPause], thread: str) -> Run:
    """A run that waits at the new pause, in place of its plan."""
    await agent.start("paint it", thread_id=thread)
    pause = kind.ask("paint.1", "Which one?", colours=["red", "blue"])
    asked = {"pending": pause.dump(), "messages": [pause_message(pause)]}
    await agent.graph.aupdate_state(config(thread), asked, as_node="advance")
    return await agent.resume(thread)


async def test_a_question_for_people_alone_is_due_for_no_worker() -> None:
    """Q87, M11: a policy does not answer it, so no worker takes it up again and again; an ordinary question is due."""

    class SafetyPause(OpenQuestion):
        topic: ClassVar[str] = "safety"
        to_people: ClassVar[bool] = True

        about: str = "safety"  # type: ignore[assignment]

    try:
        async with agent_of(on_question="default", default_answer="yes", question_seconds=0.0) as agent:
            for thread, kind in (("safe", SafetyPause), ("plain", KINDS["question"])):
                await agent.start("paint it", thread_id=thread)
                pause = kind.ask(f"{kind.topic}.1", "May it?", asked_at="2026-01-01T00:00:00+00:00")
                asked = {"pending": pause.dump(), "messages": [pause_message(pause)]}
                await agent.graph.aupdate_state(config(thread), asked, as_node="advance")
                run = await agent.resume(thread)
                assert (kind, run.status) == (kind, "waiting")
            assert [bool((await agent.info(thread)).due) for thread in ("safe", "plain")] == [False, True]
    finally:
        del KINDS["safety"]


async def test_a_new_kind_of_pause_is_one_class(paint: type[OpenPause]) -> None:
    """Q87: clients, the page and the terminal show it, both threads are asked back and answered, each for itself."""
    async with agent_of() as agent:
        for thread in ("one", "two"):
            run = await ask(agent, paint, thread)
            assert (run.status, [pause["kind"] for pause in run.pending]) == ("waiting", ["paint"])
            run = await agent.resume(run, "green")
        (asked,) = (await agent.graph.aget_state(config("two"))).interrupts
        assert (asked.value["colours"], asked.value["options"]) == (["red", "blue"], ["red", "blue"])
        assert pause_view(run.pending[0])["options"] == ["red", "blue"]
        where, typed = screen(), iter(["nothing", "2"])
        value = Person(where, lambda _: next(typed)).ask(run.pending[0])
        assert "1. red\n2. blue" in written(where)
        ends = [await agent.resume("one", "red"), await agent.resume(run, value)]
    assert [run.outcome and run.outcome["reason"] for run in ends] == ["It is red now.", "It is blue now."]
    assert [row["kind"] for row in (ends[1].receipt or {})["approvals"]] == ["paint"]


async def test_a_policy_answers_a_new_kind_of_pause(paint: type[OpenPause]) -> None:
    """Q87, H13: what the class lets a policy answer is answered when it was open for too long."""
    async with agent_of(on_question="assume", question_seconds=0) as agent:
        await ask(agent, paint, "one")
        run = await agent.resume("one")
    assert (run.outcome or {})["reason"] == "It is blue now."
