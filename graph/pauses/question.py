"""The pauses in which a model, a tool or an executor asks: a question, a form, and the own `interrupt` of a graph."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from pydantic import Field

from donewhen.graph.executors.relay import read_form, relayed_answer
from donewhen.graph.llm.history import render_observation
from donewhen.graph.pauses.pause import STEP_ID, OpenPause, OpenQuestion, ResolvedAnswer, named_pauses
from donewhen.state.channels import PLANNING, Json
from donewhen.state.language.short_replies import read_word
from donewhen.state.language.texts import Unclear, unclear
from donewhen.state.language.words import fold_words
from donewhen.state.people.answers import (
    JUDGEMENT,
    Answer,
    AnswerKind,
    AnswerShape,
    fills_form,
    match_choice,
    named_choices,
    read_edit,
    read_ending,
    scalar_text,
    why_not_for,
    words_of,
)
from donewhen.state.people.payload import form_text
from donewhen.state.plan.steps import transcript_key
from donewhen.state.proof.journal import observation
from donewhen.state.settings import Settings
from donewhen.state.statuses import change_status
from donewhen.state.values import clean_text, json_problem

ASSUME = "Nobody answers; assume what is most likely, and say in {where} what was assumed."
NO_ANSWER = "(no answer was given; go on without it, or give up)"


class QuestionPause(OpenQuestion):
    """The pause in which a model asks a question, or the runtime in place of the planner."""

    topic: ClassVar[str] = "question"
    ids: ClassVar[str] = rf"{STEP_ID}\.q\d+"
    of_run: ClassVar[bool] = False
    counted: ClassVar[bool] = True
    recorded: ClassVar[bool] = False
    refusal: ClassVar[AnswerKind | None] = "declined"
    keys: ClassVar[Mapping[str, Any]] = {"/skip": {"type": "reject"}}

    purpose: str = ""
    call: str | None = None
    """The model's tool call that asked."""
    relayed: bool = False
    """True if an executor or a tool asks."""

    @classmethod
    def variant(cls, stored: Mapping[str, Any]) -> type[OpenPause]:
        """Return the class for a form, for the own interrupt of a graph or a tool, or for a model's question."""
        return FormPause if "schema" in stored else InterruptPause if stored.get("relayed") else QuestionPause

    def choices(self) -> list[str]:
        """Return the options as they were given."""
        return self.options

    def wording(self) -> str:
        """Return the question, with the purpose of its step if another step asks the same."""
        return f"{self.purpose} ({self.step}): {super().wording()}" if self.purpose else super().wording()

    def understand(self, shape: AnswerShape) -> Answer | Unclear:
        """Return an option by its words or number, or the words as the answer."""
        if shape.verb == "ignore" or fold_words(shape.text) == "/skip":
            return Answer("declined")
        choices = self.choices()
        texts = [scalar_text(item) for item in shape.items] if shape.verb == "list" else [text := words_of(shape)]
        for each in texts:
            if len(named := named_choices(each, choices)) > 1:
                return unclear("which_option", each, options=" / ".join(named))
        if shape.verb == "list":
            return Answer("answer", ", ".join(match_choice(each, choices) for each in texts))
        if text and shape.verb != "other":
            choice, word = match_choice(text, choices), read_word(text)
            alike = [each for each in choices if word in ("yes", "no") and read_word(each) == word]
            if choice not in choices and len(alike) == 1:
                choice = alike[0]
            return Answer("answer", choice) if choice in choices else self.read_words(text)
        if shape.verb != "approve":
            return unclear("empty_answer")
        return Answer("answer", next((choice for choice in choices if read_word(choice) == "yes"), JUDGEMENT))

    def read_words(self, text: str) -> Answer | Unclear:
        """Return the words as the answer. A single word may also end the run or postpone it; ask if unclear."""
        ending, words = read_ending(text), fold_words(text)
        if ending is None or " " in words:
            return Answer("answer", text)
        asked = words in fold_words(self.question) and not text.startswith("/")
        return unclear(f"answer_or_{ending.kind}", text) if asked else ending

    def by_policy(self, settings: Settings) -> Answer:
        """Return the answer of the settings, that nobody answers, or the end of the run."""
        if settings.on_question == "abort":
            return Answer("cancel", "nobody answered")
        if settings.on_question == "default" and settings.default_answer.strip():
            return Answer("answer", settings.default_answer, value=settings.default_answer)
        return self.decline()

    def decline(self) -> Answer:
        """Return that nobody answered, and what the model is to do then."""
        return Answer("declined", ASSUME.format(where="the result" if self.step else "`speak`"))

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Return the answer as an observation and as the result of the asking call, or as a message if none asked."""
        answer, planning, record, step = decided.answer, values["planning"], self.record(values), self.step or PLANNING
        # Planning counts its observations in the journal, a step in its record.
        seen = sum(entry["step"] == PLANNING for entry in values.get("journal") or ())
        number = 1 + (record["observed"] if self.step else seen)
        asked = {"question": self.question, "by": decided.by, "asked": self.id, **decided.named, **self.asked_of}
        entry = observation(
            f"{step}.{number}",
            step,
            record["rounds"] if self.step else planning["work"]["rounds"],
            "user",
            answer.text or NO_ANSWER,
            ok=answer.kind == "answer",
            arguments=asked | ({"options": self.options} if self.options else {}),
            at=decided.at,
        )
        text = render_observation(entry, 20_000)
        message: BaseMessage = ToolMessage(text, tool_call_id=self.call) if self.call else HumanMessage(text)
        if not self.step:  # a person was asked, so planning has all its rounds again
            work = {**planning["work"], "rounds_when_asked": planning["work"]["rounds"], "rounds_granted": 0}
            messages = {planning["transcript"]: [message]}
            return {"planning": {**planning, "work": work}, "journal": [entry], "transcripts": messages}
        change = change_status(record, {"status": "ready", "observed": number})
        if answer.kind == "answer":
            change["silent"] = 0
        if self.relayed:
            change["calls"] = relayed_answer(record["calls"], self.value_of(answer))
            if not record["calls"][0].get("delegated"):  # the call's result will have it
                return {"journal": [entry], "steps": {step: change}}
        messages = {transcript_key(step, record): [message]}
        return {"journal": [entry], "steps": {step: change}, "transcripts": messages}

    def value_of(self, answer: Answer) -> Any:
        """Return what the executor or tool that asked gets."""
        return answer.value


class FormPause(QuestionPause):
    """The pause in which an executor or a tool asks for the fields of a form."""

    shown: ClassVar[tuple[str, ...]] = ("draft", "schema")

    form: Json = Field(alias="schema")
    """Its JSON Schema; the answer is an object that fits it."""

    def ways_to_answer(self) -> list[str]:
        """Return the fields, and options if there are any."""
        return [form_text(self.form, self.spoken), *super().ways_to_answer()]

    def takes_as_is(self, value: Any) -> bool:
        """Return whether the value is an object of the form's fields."""
        return fills_form(value, self.form)

    def read(self, value: Any) -> Answer | str:
        """Return the filled form as `arguments` of an answer, or its problems."""
        return read_form(value, self.form, super().read)

    def by_policy(self, settings: Settings) -> Answer:
        """Return the default answer, if it fills the form."""
        answer = super().by_policy(settings)
        if answer.kind != "answer":
            return answer
        filled = self.read(answer.text)
        return filled if isinstance(filled, Answer) and filled.kind == "answer" else self.decline()

    def value_of(self, answer: Answer) -> Any:
        """Return the filled form."""
        return answer.arguments


class InterruptPause(QuestionPause):
    """The pause of an own `interrupt` of a graph or tool, which gets any value as it was given."""

    def takes_as_is(self, value: Any) -> bool:
        """Return whether the value names no pause."""
        return not named_pauses(value)

    def read(self, value: Any) -> Answer | str:
        """Return the value as LangGraph would hand it over, whatever it is.

        Three things are not for it: what ends the run or postpones the question, the envelope in which a client sends
        the words that were typed into the field of our payload, and the number of an option that we showed.
        """
        problem = json_problem(value) if not isinstance(value, str) else None
        if isinstance(value, Mapping) and set(value) == {"unreadable"}:
            problem = str(value["unreadable"])
        if problem:
            return f"The answer cannot be stored: it {problem}."
        if stale := why_not_for(named_pauses(value), self.id):
            return stale
        if isinstance(value, Mapping) and (verb := _run_verb(value)):
            return Answer(verb)
        value = clean_text(value) if isinstance(value, str) else self._typed_words(value)
        if not isinstance(value, str):
            return Answer("answer", scalar_text(value) or json.dumps(value, ensure_ascii=False), value=value)
        if fold_words(value) == "/skip":
            return Answer("declined")
        if len(named := named_choices(value, self.choices())) > 1:
            return unclear("which_option", value, options=" / ".join(named)).text(self.spoken)
        if (choice := match_choice(value, self.choices())) in self.choices():
            return Answer("answer", choice, value=choice)
        read = self.read_words(value)
        if not isinstance(read, Answer):
            return read.text(self.spoken)
        return read if read.kind != "answer" else replace(read, value=value)

    def _typed_words(self, value: Any) -> Any:
        """Return the words that were typed into the field of our payload; any other value unchanged.

        The clients of LangChain's middleware send them in a decision, agent-inbox as an edit of our action.
        """
        decisions = value.get("decisions") if isinstance(value, Mapping) and set(value) == {"decisions"} else value
        one = decisions[0] if isinstance(decisions, list) and len(decisions) == 1 else None
        if not isinstance(one, Mapping):
            return value
        action, fields = read_edit(dict(one))
        if action == self.action and isinstance(answer := fields.get("answer"), str):
            return answer
        message = one.get("message") if decisions is not value and one.get("type") in ("respond", "reject") else None
        return message if isinstance(message, str) and message.strip() else value


def _run_verb(value: Mapping[str, Any]) -> Literal["cancel", "later"] | None:
    """Return the decision of a client's button about the whole run: `{"type": "cancel"}`, or that of AG-UI."""
    if value.get("__agui_cancelled__"):
        return "cancel"
    verb = value.get("type") if set(value) <= {"type", "id", "interrupt_id"} else None
    return "cancel" if verb == "cancel" else "later" if verb == "later" else None
