"""The pause at a limit, which asks for more budget."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import SkipValidation

from donewhen.graph.pauses.pause import LATER, OpenPause, ResolvedAnswer, all_options, grant_replan
from donewhen.state.channels import Json, merge_records
from donewhen.state.language.short_replies import read_word
from donewhen.state.language.texts import (
    Unclear,
    amount_name,
    match_option,
    option_key,
    say,
    say_why,
    translate_option,
    unclear,
)
from donewhen.state.ledger import Amounts, MeterRow, add
from donewhen.state.people.amounts import example_amount, format_amount, lifts_limit, read_amounts
from donewhen.state.people.answers import OWN_KEYS, TEXT_KEYS, Answer, AnswerKind, AnswerShape, read_ending, words_of
from donewhen.state.plan.planning import plan_after_failure
from donewhen.state.records import StepChange
from donewhen.state.settings import Settings
from donewhen.state.statuses import change_status


class BudgetPause(OpenPause):
    """The pause at a limit of the run, a step or planning."""

    topic: ClassVar[str] = "budget"
    action: ClassVar[str] = "extend_budget"
    shown: ClassVar[tuple[str, ...]] = ("draft", "exhausted", "suggested", "done", "left", "meter")
    to_people: ClassVar[bool] = False
    numbered: ClassVar[bool] = False  # the answer “2” means two more
    refusal: ClassVar[AnswerKind | None] = "stop"
    cancelled_at: ClassVar[str] = "at_budget"
    keys: ClassVar[Mapping[str, Any]] = {"e": "extend", "d": "deliver", "r": "replan", "s": "stop", "l": LATER}

    kind: str = "budget"
    exhausted: str | list[str] = []
    of_planning: bool = False
    """True if the rounds of planning are used up, which `plan_rounds` limits."""
    at_end: bool = False
    """True if all steps are done, and the answer could not be proven."""
    of_day: str = ""
    """`owner:` or `queue:` and the date, if the budget of a day is used up, which other runs share."""
    suggested: SkipValidation[Amounts] = {}  # a whole number stays one
    with_replan: SkipValidation[Amounts] = {}
    """The grants that come with a replan."""
    reserve: SkipValidation[Amounts] = {}
    """What is kept for the answer; an extension has to be for more."""
    done: list[str] = []
    left: list[str] = []
    meter: SkipValidation[list[MeterRow]] = []

    @property
    def limits(self) -> list[str]:
        """The ledger keys of the limits that it is about."""
        return [self.exhausted] if isinstance(self.exhausted, str) else self.exhausted

    @property
    def may_replan(self) -> bool:
        """Whether it offers a replan, which needs an existing plan."""
        return any(option_key(option) == "replan" for option in self.choices())

    @property
    def legend(self) -> str:
        """The text of the terminal about the keys that answer it."""
        return "keys_budget" if self.may_replan else "keys_budget_no_replan"

    @property
    def comes_back(self) -> bool:
        """Whether it is asked again later: always, because answers to others may need the budget."""
        return True

    def choices(self) -> list[str]:
        """Return all options, if not only some were given."""
        return all_options(self.options, self.topic, self.spoken)

    def hint(self) -> str:
        """Return what “extend” alone means."""
        if not self.suggested:
            return ""
        extend = translate_option("extend", "budget", self.spoken)
        amounts = ", ".join(format_amount(key, amount, self.spoken) for key, amount in self.suggested.items())
        example = example_amount(*next(iter(self.suggested.items())), self.spoken)
        return say(self.spoken, "ask", "extend_means", extend=extend, amounts=amounts, example=example)

    def understand(self, shape: AnswerShape) -> Answer | Unclear:
        """Return an extension, another option, or a question for what is missing: words could cost money."""
        text = words_of(shape)
        more = {key: item for key, item in shape.fields.items() if key not in (*OWN_KEYS, *TEXT_KEYS)}
        key, rest = match_option(text, "budget")
        if shape.verb == "other" and (key == "extend" or not text) and more:
            return self._read_extension(more.get("extend", more.get("amounts", more)))
        if key == "replan" and not self.may_replan:
            return unclear("unplanned")
        if key == "replan" and shape.verb != "approve":
            return Answer("replan", rest)
        if key in ("deliver", "stop"):
            return Answer(key, rest)
        word = read_word(text)
        if word == "no":
            return Answer("stop")
        if ending := read_ending(text):
            return ending
        if shape.verb in ("reject", "ignore"):  # what is said with it, such as “5”, grants nothing
            return self.choose_one(text)
        agreed = (shape.verb == "approve" and not text) or word == "yes" or (key == "extend" and not rest)
        return self._read_extension(True if agreed else rest if key == "extend" else text)

    def _read_extension(self, value: Any) -> Answer | Unclear:
        amounts = read_amounts(value, self.suggested, self.limits)
        if isinstance(amounts, Unclear) or lifts_limit(amounts, self.meter, self.limits, self.reserve):
            return amounts if isinstance(amounts, Unclear) else Answer("extend", amounts=amounts)
        language, spent = self.spoken, {row["key"]: row["spent"] for row in self.meter}
        return unclear(
            "not_lifted",
            amounts=", ".join(format_amount(key, amount, language) for key, amount in amounts.items()),
            used=", ".join(format_amount(key, spent.get(key, 0), language) for key in self.limits),
            extend=translate_option("extend", "budget", language),
            example=example_amount(self.limits[0], self.suggested.get(self.limits[0], 1), language),
        )

    def by_policy(self, settings: Settings) -> Answer:
        """Deliver what there is."""
        return Answer("deliver", "nobody answered")

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Grant the amounts to the run, the step or planning; or plan again, or end the run."""
        answer, step, language = decided.answer, self.step, values.get("language", "en")
        reached = say_why(language, "limit", key=", ".join(amount_name(language, key) for key in self.limits))
        if answer.kind == "extend" and self.of_day:
            return {"granted": {f"{self.of_day}:{key}": amount for key, amount in answer.amounts.items()}}
        if answer.kind == "extend" and step:
            return {"steps": {step: {"granted": add(self.record(values)["granted"], answer.amounts)}}}
        if answer.kind == "extend" and self.of_planning:
            rest = {key: amount for key, amount in answer.amounts.items() if key != "rounds"}
            planning, work = values["planning"], values["planning"]["work"]
            work = {**work, "rounds_granted": work["rounds_granted"] + int(answer.amounts.get("rounds", 0))}
            return {"planning": {**planning, "work": work}, "granted": rest}
        if answer.kind == "extend":
            return {"granted": answer.amounts}
        if answer.kind == "replan":
            over: StepChange = {"status": "exhausted", "reason": reached, "handled": True}
            steps: Json = {step: change_status(self.record(values), over, decided.at)} if step else {}
            records = {**values, "steps": merge_records(values.get("steps") or {}, [steps])}
            planning = plan_after_failure(records, f"{reached}; find a cheaper way", answer.text or None, decided.name)
            return {"planning": planning, "steps": steps, **grant_replan(self.with_replan)}
        if answer.kind == "deliver" and self.at_end:
            return {"ending": {"code": "worked", "reason": ""}}
        return {"ending": {"code": "out_of_budget" if answer.kind == "deliver" else "stopped", "reason": reached}}
