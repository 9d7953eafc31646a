"""The pause after steps failed, once nothing else of the plan can go on."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import SkipValidation

from donewhen.graph.pauses.pause import OpenQuestion, ResolvedAnswer, grant_replan
from donewhen.state.channels import Json
from donewhen.state.language.short_replies import read_word
from donewhen.state.language.texts import Unclear, option_key, say_why
from donewhen.state.ledger import Amounts
from donewhen.state.people.answers import (
    Answer,
    AnswerKind,
    AnswerShape,
    read_broken_json,
    read_ending,
    read_words,
)
from donewhen.state.plan.planning import plan_after_failure
from donewhen.state.plan.steps import next_attempt
from donewhen.state.records import StepChange, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import change_status


class FailurePause(OpenQuestion):
    """The pause in which the run asks what to do about failed steps."""

    topic: ClassVar[str] = "failure"
    refusal: ClassVar[AnswerKind | None] = "stop"

    about: str = "failure"
    failed: list[str] = []
    """The ids of the failed steps."""
    failure: str = ""
    """Why they failed, for the planner."""
    with_replan: SkipValidation[Amounts] = {}
    """The grants that come with a replan."""

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return an option, also with words; other words, and those with a retry, say what to do instead.

        A plain yes does not say what to do.
        """
        text, key, rest = self.named_option(shape)
        if key and (not rest or key != "retry"):  # another try would not know the words, a planner does
            return Answer(key, rest or text)
        if (word := read_word(text)) == "no":
            return Answer("stop", text)
        if word == "yes":
            return self.choose_one(text)
        return read_ending(text) or read_broken_json(text) or read_words("replan", text)

    def by_policy(self, settings: Settings) -> Answer:
        """End the run."""
        return Answer("cancel", "nobody answered")

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Try the steps again, plan again, deliver what there is, or stop."""
        answer, language = decided.answer, values.get("language", "en")
        if answer.kind == "retry":
            again: StepChange = {"status": "pending", "handled": False, "reason": "", "code": ""}
            again |= {"corrections": 0, "refused": 0}
            unblocked: StepChange = {"status": "pending", "reason": ""}
            records: Mapping[str, StepRecord] = values.get("steps") or {}
            planned = (step["id"] for step in (values.get("plan") or {}).get("steps", ()))
            changes = {id: unblocked for id in planned if records[id]["status"] == "blocked"}
            changes |= dict.fromkeys(self.failed, again)
            # A step is handed over anew: otherwise only the model that proves it would be asked again.
            anew = {
                id: {**next_attempt(records[id]), "delegated": False} for id in self.failed if records[id]["delegated"]
            }
            return {"steps": {id: change_status(records[id], change) for id, change in changes.items()} | anew}
        failed = {id: {"handled": True} for id in self.failed}
        if answer.kind == "replan":
            feedback = None if option_key(answer.text) else answer.text
            planning = plan_after_failure(values, self.failure, feedback, decided.name)
            return {"steps": failed, "planning": planning, **grant_replan(self.with_replan)}
        if answer.kind == "deliver":
            reason = say_why(language, "delivered_early")
            return {"steps": failed, "ending": {"code": "delivered_early", "reason": reason}}
        return {"steps": failed, "ending": {"code": "cancelled", "reason": say_why(language, "stopped_failed")}}
