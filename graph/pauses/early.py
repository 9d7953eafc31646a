"""The pause after a step said that the goal is reached already."""

from collections.abc import Mapping
from typing import Any, ClassVar

from donewhen.graph.pauses.pause import OpenQuestion, ResolvedAnswer
from donewhen.state.channels import Json
from donewhen.state.language.texts import Unclear
from donewhen.state.people.answers import Answer, AnswerShape, read_ending
from donewhen.state.records import StepChange
from donewhen.state.settings import Settings


class EarlyPause(OpenQuestion):
    """The pause in which the run asks whether the rest of the plan is needed."""

    topic: ClassVar[str] = "early"

    about: str = "early"
    early: list[str] = []
    """The ids of the steps that say that the rest is not needed."""

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return an option."""
        text, key, rest = self.named_option(shape)
        if key and not rest:
            return Answer(key, text)
        return read_ending(text) or (self.choose_one(text) if text else None)

    def by_policy(self, settings: Settings) -> Answer:
        """Go on with the plan."""
        return Answer("declined", "nobody answered; the plan goes on")

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Leave the rest out, or go on with it."""
        change: StepChange = {"let_go": True} if decided.answer.kind == "leave_out" else {"finished_task": None}
        return {"steps": dict.fromkeys(self.early, change)}
