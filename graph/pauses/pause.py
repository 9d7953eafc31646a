"""A pause that waits for a person. Each kind of pause is one class, which holds all that is special about it.

A class has the fields that only its kind has, its texts and the value for clients, the reading of an answer, the answer
of a policy, and what an answer changes. Checkpoints keep a pause as JSON: `load_pause` reads it, and `dump` writes it.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, cast
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from donewhen.graph.context import Deps
from donewhen.graph.executors.executor import NamedTools
from donewhen.state.channels import Json
from donewhen.state.language.short_replies import ending_words, read_word
from donewhen.state.language.texts import (
    Unclear,
    match_option,
    option_texts,
    say,
    say_why,
    translate_option,
    unclear,
)
from donewhen.state.language.words import fold_words
from donewhen.state.people.answers import (
    JUDGEMENT,
    Answer,
    AnswerKind,
    AnswerShape,
    answers_by_id,
    decode_json,
    is_message,
    match_choice,
    may_answer,
    read_broken_json,
    read_shape,
    read_words,
    why_not_for,
    words_of,
)
from donewhen.state.plan.revise import ShownTool, shown_tools
from donewhen.state.records import NOT_MADE, Pause, StepChange, StepRecord, decision_on
from donewhen.state.settings import Settings
from donewhen.state.statuses import change_status, record_of

OTHER_KEYS = ("id", "kind", "question", "options", "step")
"""The keys of a pause's short form, beside another one."""
NEED_TOOLS = ("approve", "edit", "answer", "happened", "not_happened", "extend")
"""Kinds of answers after which steps make calls."""
MEANWHILE_CHARS = 1_000
"""The most characters of what others said that a pause shows."""
STEP_ID = r"[A-Za-z][\w-]*(?:@\d+)?"
APPROVE, CANCEL, LATER = {"type": "approve"}, {"type": "cancel"}, {"type": "later"}

KINDS: dict[str, type["OpenPause"]] = {}
"""The class of each topic; a class enters itself when it is defined."""


def load_pause(stored: Mapping[str, Any]) -> "OpenPause":
    """Return the pause that a checkpoint, a run or a client has as JSON."""
    return KINDS[stored.get("about") or stored["kind"]].variant(stored).model_validate(stored)


def is_pause_id(text: Any) -> bool:
    """Return whether a text has the form of a pause's id: `s2.q1`; in the third request `3:s2.q1`; again `s2.q1~2`."""
    forms = (cls.ids or rf"{cls.topic}\.\S+" for cls in KINDS.values())
    return isinstance(text, str) and any(re.fullmatch(rf"(?:\d+:)?(?:{form})(?:~\d+)?", text) for form in forms)


def named_pauses(value: Any) -> set[str]:
    """Return the ids of pauses that an answer names; ids of any other form belong to the answer."""
    decoded = decode_json(value)
    answers = decoded.get("answers") if isinstance(decoded, Mapping) and set(decoded) == {"answers"} else {}
    ids = [*answers] if isinstance(answers, Mapping) else []
    ids += [decoded.get("id")] if isinstance(decoded, Mapping) and not isinstance(value, str) else []
    return {id for id in ids if is_pause_id(id)}


def new_call_id() -> str:
    """Return a new id for the tool call that shows a pause in the conversation."""
    return f"pause_{uuid4().hex[:16]}"


@dataclass(frozen=True)
class ResolvedAnswer:
    """A valid answer, ready to be applied."""

    answer: Answer
    by: str = "user"
    """`user` or `policy`."""
    at: str = ""
    """ISO 8601."""
    name: str = ""
    """Which person, if they are known."""

    def row(self, kind: str, id: str) -> Json:
        """Return the receipt's row on the answer: the pause, the decision, who decided, and when."""
        decided = {"decision": self.answer.kind, "text": self.answer.text, "by": self.by, "at": self.at}
        return {"kind": kind, "id": id, **decided, **self.named}

    @property
    def named(self) -> Json:
        """The field with the name of the person, if they are known."""
        return {"name": self.name} if self.name else {}


class OpenPause(BaseModel):
    """A question to a person, with what all kinds have."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, defer_build=True)

    topic: ClassVar[str]
    """Its kind, or what a question of the run itself is about; also the section of its options in the catalogues."""
    action: ClassVar[str] = "ask_user"
    """The name of its action for clients, which is also the name of its tool call."""
    decisions: ClassVar[tuple[str, ...]] = ("edit", "respond", "reject")
    """What clients may offer, in LangChain's words."""
    shown: ClassVar[tuple[str, ...]] = ("draft",)
    """The fields that clients get as they are, if they are set."""
    ids: ClassVar[str] = ""
    """The form of its ids, as a regular expression; by default the topic, a point and anything."""
    node: ClassVar[Literal["confirm", "ask_user"]] = "ask_user"
    approves: ClassVar[bool] = False
    """True if it asks for permission, so that “approve” is an answer."""
    of_run: ClassVar[bool] = True
    """True if the run itself asks, and no model, tool or executor."""
    counted: ClassVar[bool] = False
    """True if it counts as one of the questions that the limits allow."""
    to_people: ClassVar[bool] = True
    """True if only people may answer it, and no policy."""
    recorded: ClassVar[bool] = True
    """True if the receipt has a row on its answer; else the journal has it."""
    numbered: ClassVar[bool] = True
    """True if its options are shown with numbers, which are then answers."""
    refusal: ClassVar[AnswerKind | None] = None
    """The meaning of a button “reject” without words; None if that is read like any other answer."""
    keys: ClassVar[Mapping[str, Any]] = {"l": LATER}
    """Answers by the key that is pressed for them at the terminal."""
    cancelled_at: ClassVar[str] = "at_question"
    """The reason for the end of a run that is cancelled here."""

    id: str = ""
    kind: str
    question: str = ""
    options: list[str] = []
    """As they were given; `choices` are those that people are shown."""
    step: str | None = None
    name: str = ""
    tool_call_id: str | None = None
    asked_at: str | None = None
    answered_by: str = ""
    """Who alone may answer; "" for anybody."""
    meanwhile: list[Json] = []
    """What others have said since, as `Meanwhile`s, for who is asked."""
    message_id: str | None = None
    problem: str | None = None
    draft: str | None = None
    language: str = ""
    """The language of the pause; that of the run, or English, if none is set."""
    others: list[Json] = []

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        """Enter a class that has a topic of its own into `KINDS`."""
        super().__pydantic_init_subclass__(**more)
        if "topic" in vars(cls):
            KINDS[cls.topic] = cls

    @classmethod
    def variant(cls, stored: Mapping[str, Any]) -> type["OpenPause"]:
        """Return the class for this stored pause of the topic."""
        return cls

    @classmethod
    def ask(
        cls,
        id: str,
        question: str,
        *,
        step: str | None = None,
        options: Sequence[str] = (),
        language: str = "en",
        **more: Any,
    ) -> Self:
        """Return a new pause with its own tool call; `more` are the fields of its kind."""
        fixed: Json = {key: cls.model_fields[key].default for key in ("kind", "about") if key in cls.model_fields}
        fixed |= {"id": id, "name": cls.action, "tool_call_id": new_call_id(), "question": question}
        return cls(**fixed, options=list(options), step=step, **more, **language_field(language))

    def but(self, **change: Any) -> Self:
        """Return the pause with other values of these fields."""
        return self.model_copy(update=change)

    def dump(self) -> Pause:
        """Return the pause as JSON, with the fields that are set."""
        fields = type(self).model_fields.items()  # their values are JSON: a long plan need not be copied
        return cast(
            "Pause", {f.alias or name: getattr(self, name) for name, f in fields if name in self.model_fields_set}
        )

    def short_form(self) -> Json:
        """Return the fields that a list of the other open pauses needs."""
        given = [key for key in ("problem", "answered_by") if getattr(self, key)]
        return {key: getattr(self, key) for key in (*OTHER_KEYS, *given)}

    # --- its texts

    @property
    def spoken(self) -> str:
        """The language of its texts."""
        return self.language or "en"

    @property
    def legend(self) -> str:
        """The text of the terminal about the keys that answer it."""
        return "keys_question" if "/skip" in self.keys else "keys_effect"

    def choices(self) -> list[str]:
        """Return the options as people are shown them; those of the run's own questions are in their language."""
        return [translate_option(each, self.topic, self.spoken) for each in self.options]

    def wording(self) -> str:
        """Return the question alone: what was asked, or the usual words."""
        return self.question.strip() or say(self.spoken, "ask", self.kind, tool=self.name)

    def details(self) -> list[str]:
        """Return what belongs to the question, as Markdown: a plan, a call."""
        return []

    def ways_to_answer(self) -> list[str]:
        """Return the options as Markdown, for somebody who does not draw them."""
        marks = [f"{number}." if self.numbered else "-" for number in range(1, len(self.choices()) + 1)]
        lines = (" ".join(option.split()) for option in self.choices())
        return ["\n".join(f"{mark} {text}" for mark, text in zip(marks, lines, strict=True))] if marks else []

    def hint(self) -> str:
        """Return what an answer without further words means; "" if that is clear."""
        return ""

    def question_text(self, *, choices: bool = True) -> str:
        """Return the full question as Markdown, and with `choices` the options."""
        ways = self.ways_to_answer() if choices else []
        return "\n\n".join(filter(None, (self.wording(), *self.details(), *ways, self.hint())))

    def message_text(self, *, choices: bool = True) -> str:
        """Return the text of the pause's message in the conversation.

        Without `choices`, the options and the fields of a form are left out, for somebody who draws them.
        """
        return self.with_problem(self.question_text(choices=choices))

    def text(self, *, whole: bool = False) -> str:
        """Return all that a person needs to answer, as Markdown in their language; `whole`: also what they know."""
        return self.message_text()

    def with_problem(self, text: str) -> str:
        """Return a text between what is wrong with the last answer, or who is asked, and the other open questions.

        Those that are for somebody else are left out: whoever reads this cannot answer them.
        """
        parts = [f"> {self.notice}" if self.notice else "", text]
        if others := [other for other in self.others if other.get("answered_by") in (None, "", self.answered_by)]:
            lines = [f"- `{other.get('id')}`: {other.get('question') or other.get('kind')}" for other in others]
            wrong = [f" ({each['problem']})" if each.get("problem") else "" for each in others]
            lines = [line + problem for line, problem in zip(lines, wrong, strict=True)]
            parts.append(say(self.spoken, "ask", "others") + "\n\n" + "\n".join(lines))
        return "\n\n".join(filter(None, parts))

    @property
    def notice(self) -> str:
        """What is wrong with the last answer, or who alone is asked, and what others have said; "" if nothing."""
        asked = self.for_others()
        wrong = "" if asked and (self.problem or "").startswith(asked) else self.problem  # those who read it know
        return " ".join(filter(None, (wrong or asked, meanwhile_text(self.meanwhile, self.spoken))))

    def for_others(self) -> str:
        """Return who alone is asked, for everybody else; "" if anybody may answer."""
        return say(self.spoken, "unclear", "for_others", who=self.answered_by) if self.answered_by else ""

    def description(self) -> str:
        """Return the text that clients show beside the action, and in lists."""
        return self.with_problem(self.question_text())

    def action_arguments(self) -> dict[str, str]:
        """Return the arguments of the action, which clients let people edit."""
        return {"question": self.question_text(), "answer": ""}

    def short_arguments(self) -> dict[str, str]:
        """Return the arguments of the tool call that shows the pause in the conversation."""
        return self.action_arguments()

    def payload(self) -> Json:
        """Return the interrupt value, which every known client can draw: JSON with one action and string arguments.

        `args` and `arguments` are equal, because clients read one or the other. `reason`, `message`, `tool_call_id` and
        `response_schema` are for AG-UI. The other keys (`id`, `kind`, `options`, `plan` …) are ours.
        """
        arguments, message, own = self.action_arguments(), self.wording(), cast("Json", self.dump())
        shown = {"args": arguments, "arguments": dict(arguments), "description": self.description()}
        value = {
            "action_requests": [{"name": self.action, **shown}],
            "review_configs": [{"action_name": self.action, "allowed_decisions": list(self.decisions)}],
            "reason": "tool_call" if self.approves else "input_required",
            "message": message,
            "tool_call_id": self.tool_call_id,
            "response_schema": _response_schema(self.action, self.decisions, arguments),
            "id": self.id,
            "kind": self.kind,
            "question": message,
            "text": self.text(),
            "options": self.choices(),
            "step": self.step,
            "revision": None,
            "problem": self.problem,
            **self.asked_of,
            "others": [{key: other.get(key) for key in OTHER_KEYS} for other in self.others],
        }
        return {**value, **{key: own[key] for key in self.shown if own.get(key) is not None}}

    # --- an answer to it

    def takes_as_is(self, value: Any) -> bool:
        """Return whether a value answers this pause whatever ids it seems to name."""
        return False

    def split(self, value: Any, open_ids: Collection[str]) -> Json | str:
        """Return the answers in a value by the ids of their questions; one without ids is for this pause."""
        if self.takes_as_is(value):
            return {self.id: value}
        by_id = answers_by_id(value, open_ids)
        return by_id if isinstance(by_id, str) else by_id or {self.id: value}

    def stale_reason(self, value: Any, open_ids: Sequence[str]) -> str | None:
        """Return why an answer is for a question that is not open, or for another revision of the plan; else None."""
        if self.takes_as_is(value):
            return None
        if by_id := answers_by_id(value, open_ids):
            return by_id if isinstance(by_id, str) else None
        shape = self.read_shape(value)
        return self.find_stale(shape) if isinstance(shape, AnswerShape) else None

    def read(self, value: Any) -> Answer | str:
        """Return what an answer means, or a sentence for the person: what is missing, or wrong.

        Never raises. The text is in the pause's language; problems of a client's JSON are in English. A text that
        starts with "stale" means that the answer names another question or revision.
        """
        if isinstance(value, Mapping) and set(value) == {"unreadable"}:
            return f"The answer cannot be stored: it {value['unreadable']}."
        shape = self.read_shape(value)
        if isinstance(shape, str):
            return shape
        if stale := self.find_stale(shape):
            return stale
        if shape.verb == "cancel" or shape.verb == "later":
            return Answer(shape.verb, shape.text if shape.verb == "cancel" else "")
        if shape.verb in ("reject", "ignore") and not shape.text and self.refusal:
            return Answer(self.refusal)
        read = self.understand(shape)
        if not isinstance(read, Answer) and is_message(value) and not shape.text:
            read = unclear("no_words")
        return read if isinstance(read, Answer) else (read or self._no_answer(value)).text(self.spoken)

    def counts(self, answer: Answer | str, by: str) -> bool:
        """Return whether an answer counts from this person: who is asked decides; to cancel, anybody may."""
        return may_answer(self.answered_by, by) or (isinstance(answer, Answer) and answer.kind == "cancel")

    def _no_answer(self, value: Any) -> Unclear:
        """Name what came, and what would be an answer."""
        given = json.dumps(value, ensure_ascii=False, default=str)
        given = f"{given[:80]}…" if len(given) > 80 else given
        return unclear("no_answer", given=given, types=", ".join((*self.decisions, "cancel", "later")))

    def read_shape(self, value: Any) -> AnswerShape | str:
        """Return the shape of an answer, or why it has none."""
        return read_shape(value)

    def find_stale(self, shape: AnswerShape) -> str | None:
        """Return why the answer names another question; None if it does not."""
        return why_not_for(shape.ids, self.id, self.tool_call_id)

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return the meaning of an answer in this shape; None if there is nothing to say about it."""
        raise NotImplementedError

    def named_option(self, shape: AnswerShape) -> tuple[str, Any, str]:
        """Return the words, the option that they name, and the text after it; a button “approve” names none."""
        text = "" if shape.verb == "approve" else match_choice(words_of(shape), self.choices())
        return (text, *match_option(text, self.topic))

    def choose_one(self, text: str) -> Unclear:
        """Ask back, because the words name none of the options."""
        return unclear("choose", text, options=" / ".join(self.choices()))

    def by_policy(self, settings: Settings) -> Answer:
        """Return the answer that the settings give in place of a person, if it is not only `to_people`."""
        raise NotImplementedError

    def check(self, values: Mapping[str, Any], answer: Answer, deps: Deps, settings: Settings) -> Answer | str:
        """Return a person's answer as it will be carried out, or why it cannot be accepted."""
        last = (values.get("approvals") or [{}])[-1]
        approved = last.get("decision") == "approve" and last.get("by") == "user"
        if answer.text == JUDGEMENT and approved and not self.problem:
            return say(self.spoken, "unclear", "again", said=translate_option("approve", "plan", self.spoken))
        return answer

    def tools_after(self, values: Mapping[str, Any], answer: Answer) -> list[tuple[str | None, NamedTools]]:
        """Return, for each step that goes on with this answer, the executor and the tools that it was to call."""
        plan = (values.get("approval") or {}).get("plan") or {}
        left = self._calls_left(values, shown_tools(plan))
        return [(step.get("executor"), left) for step in plan.get("steps", ()) if step["id"] == self.step]

    def _calls_left(self, values: Mapping[str, Any], shown: NamedTools) -> NamedTools:
        calls = (call for call in self.record(values)["calls"] if decision_on(call) not in NOT_MADE)
        of_plan = ((call, shown.get(call["name"], ShownTool())) for call in calls)
        return {call["name"]: replace(one, provider=call.get("provider", one.provider)) for call, one in of_plan}

    # --- what an answer changes

    @property
    def comes_back(self) -> bool:
        """Whether it is asked again later if other questions were answered instead."""
        return self.step is not None

    def closing(self, answer: Answer) -> str:
        """Return the result of the tool call that showed the pause."""
        return f"cancel: {answer.text}".rstrip(": ") if answer.kind == "cancel" else answer.text or answer.kind

    def row(self, decided: ResolvedAnswer) -> Json:
        """Return the receipt's row on the answer."""
        return {**decided.row(self.kind, self.id), **self.asked_of}

    @property
    def asked_of(self) -> Json:
        """The field with who alone was asked."""
        return {"answered_by": self.answered_by} if self.answered_by else {}

    def cancel_reason(self, language: str) -> str:
        """Return why a run ended that was cancelled here."""
        return say_why(language, self.cancelled_at)

    def apply(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Return the run's update for a checked answer."""
        if decided.answer.kind != "cancel":
            rows = {"approvals": [self.row(decided)]} if self.recorded else {}
            return {**self.change(values, decided), **rows}
        language, code, reason = values.get("language", "en"), "cancelled", decided.answer.text
        if decided.by == "policy":
            code, reason = "unanswered", say_why(language, "unanswered", question=self.question)
        ending = {"code": code, "reason": reason or self.cancel_reason(language)}
        return {"ending": ending, "approvals": [self.row(decided)]}

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Return what an answer other than to cancel changes."""
        raise NotImplementedError

    def record(self, values: Mapping[str, Any]) -> StepRecord:
        """Return the record of the step that asks."""
        records: Mapping[str, StepRecord] = values.get("steps") or {}
        return record_of(records, self.step or "")

    def continue_step(self, values: Mapping[str, Any], change: StepChange) -> Json:
        """Return the update with which the step that asks goes on."""
        return {"steps": {self.step: change_status(self.record(values), {**change, "status": "ready"})}}


class OpenQuestion(OpenPause):
    """A pause that is answered in words."""

    to_people: ClassVar[bool] = False
    keys: ClassVar[Mapping[str, Any]] = {}

    kind: str = "question"

    def read_shape(self, value: Any) -> AnswerShape | str:
        """Return the shape of an answer. Typed JSON that is no decision is plain text."""
        shape = super().read_shape(value)
        if not isinstance(value, str):
            return shape
        decides = isinstance(shape, AnswerShape) and shape.verb not in ("text", "list", "other")
        return shape if decides else AnswerShape("text", value.strip())


class PermissionPause(OpenPause):
    """A pause that asks to approve something, which can also be edited."""

    approves: ClassVar[bool] = True
    words_are: ClassVar[AnswerKind]
    """What words mean that are neither an option nor a short reply."""
    edit_shape: ClassVar[str]
    """How programs write an edit."""
    edit_has_words: ClassVar[bool] = False
    """True if words may come with an edit, because a model reads them with what was edited."""
    keys: ClassVar[Mapping[str, Any]] = {"a": APPROVE, "y": APPROVE, "c": CANCEL, "l": LATER}

    @property
    def legend(self) -> str:
        """The text of the terminal about the keys that answer it."""
        return f"keys_{self.kind}"

    def choices(self) -> list[str]:
        """Return the options as people are shown them."""
        return [translate_option(each, "plan", self.spoken) for each in self.options]

    def ways_to_answer(self) -> list[str]:
        """Leave the options out: clients draw the decisions."""
        return []

    def read_edit(self, shape: AnswerShape) -> Answer | Unclear:
        """Return the edit in these fields."""
        raise NotImplementedError

    def read_text(self, text: str) -> Answer | Unclear | None:
        """Return the meaning of typed words."""
        return self.read_short_reply(text) or read_broken_json(text) or read_words(self.words_are, text)

    def read_button(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return the decision of a button. Words with “approve” may be a condition: ask back, except at a plan."""
        text, word = shape.text, read_word(shape.text)
        if shape.verb == "edit" and not shape.fields:
            return unclear("edit_alone", text or "edit", shape=self.edit_shape)
        if shape.verb in ("approve", "edit"):
            decided = self.read_edit(shape) if shape.fields else Answer("approve")
            if not text or word == "yes" or isinstance(decided, Unclear):
                return decided
            if not shape.fields and self.words_are == "say":
                return Answer("say", text)
            takes_words = self.edit_has_words and shape.verb == "edit" and decided.kind == "edit"
            alone = self.edit_shape if shape.fields else json.dumps(APPROVE)
            return replace(decided, text=text) if takes_words else unclear("yes_but", text, shape=alone)
        if shape.verb in ("reject", "ignore"):
            return Answer(word) if word in ("cancel", "later") else Answer("reject", "" if word == "no" else text)
        return None

    def read_short_reply(self, text: str) -> Answer | Unclear | None:
        """Return the decision of a text that is exactly an option or a short reply; ask back if it is unclear."""
        option, rest = match_option(text, "plan")
        word = option if option and not rest else read_word(text)
        if word == "edit":
            return unclear("what_instead")
        if word == "no":
            return self.says_no()
        if word == "cancel" and self._is_planned(text):
            return unclear("carry_out_or_cancel", text)
        return Answer("approve" if word == "yes" else word) if word else None

    def says_no(self) -> Answer | Unclear:
        """Return the meaning of a “no” alone."""
        return Answer("reject")

    def planned_words(self) -> Sequence[str]:
        """Return the words in which the plan or the call says what it does."""
        raise NotImplementedError

    def _is_planned(self, text: str) -> bool:
        """Return whether the word for the end stands in the plan or the call as well: “cancel” at “Cancel order 17”."""
        shown = fold_words(" ".join(self.planned_words()))
        return not text.startswith("/") and any(word in shown for word in ending_words(text))


def meanwhile_text(rows: Sequence[Mapping[str, Any]], language: str) -> str:
    """Return what others have said since a question was asked, the last 1,000 characters; "" if nothing."""
    texts = [(row.get("by") or "", " ".join(row["text"].split())) for row in rows]
    text = " ".join(say(language, "ask", "wrote" if by else "written", who=by, text=said) for by, said in texts)
    return text if len(text) <= MEANWHILE_CHARS else f"…{text[1 - MEANWHILE_CHARS :]}"


def all_options(options: Sequence[str], topic: str, language: str) -> list[str]:
    """Return these options of a topic in a language, or all that there are if none are given."""
    return [translate_option(each, topic, language) for each in options or option_texts(language, topic)]


def language_field(language: str) -> Json:
    """Return the field for the language of a pause; {} for English."""
    return {} if language == "en" else {"language": language}


def grant_replan(granted: Mapping[str, float]) -> Json:
    """Return the update that counts the replan a person asked for, and grants the budget for it."""
    return {"spent": {"replans": 1}, "granted": granted}


def _response_schema(name: str, allowed: Sequence[str], arguments: Mapping[str, str]) -> Json:
    edited = {
        "name": {"const": name},
        "args": {"type": "object", "properties": {key: {"type": "string"} for key in arguments}},
    }
    decision = {
        "type": "object",
        "required": ["type"],
        "properties": {
            "type": {"enum": list(allowed)},
            "message": {"type": "string"},
            "edited_action": {"type": "object", "required": ["name", "args"], "properties": edited},
        },
    }
    decisions = {"type": "array", "minItems": 1, "maxItems": 1, "items": decision}
    return {"type": "object", "required": ["decisions"], "properties": {"decisions": decisions}}
