"""What words and decisions mean at each kind of pause: one grammar, in whatever language.

Only words that say nothing else decide; what is not understood is a reason why, and changes nothing.
“cancel” ends the run and “later” leaves the pause open everywhere; no “no” starts any work.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.language.texts import Unclear, chosen, option_key, unclear
from donewhen.state.language.words import begins_with_no, only_words, opening, plain, refuses, substance, word
from donewhen.state.people.amounts import read_amounts
from donewhen.state.people.edit import edit_plan, is_plan_text
from donewhen.state.people.payloads import action_name, options, shown_plan
from donewhen.state.people.shapes import Given, decode_json, looks_like_json, scalar_text
from donewhen.state.records import Pause

AnswerKind = Literal[
    "approve", "edit", "reject", "respond", "cancel", "later", "answer", "declined",
    "extend", "deliver", "replan", "retry", "stop", "happened", "not_happened", "skip", "go_on", "leave_out",
]  # fmt: skip
OWN_KEYS = ("type", "decision", "action", "id", "revision")
JUDGEMENT = "Approved without further words: use your own judgement."


@dataclass(frozen=True)
class Answer:
    """What a person decided. Which kinds are possible depends on what was asked; `cancel` and `later` always are."""

    kind: AnswerKind
    text: str = ""
    """The answer to a question, the feedback or reason of a rejection ("" if none was given), the response in place
    of a result."""
    plan: dict[str, Any] | None = None
    """kind `edit` of a plan: the whole edited plan, not yet validated, without a revision. kind `reject`: the plan as
    edited beside the feedback, if it was."""
    arguments: dict[str, Any] | None = None
    """kind `edit` of a tool call: the arguments to run it with."""
    amounts: dict[str, float] = field(default_factory=dict)
    """kind `extend`: how much more, by ledger key; all positive. kinds `edit` and `reject` of a plan: what each limit
    should be."""


Reader = Callable[[Given, Pause], Answer | Unclear | None]


def meaning(given: Given, pending: Pause) -> Answer | Unclear | None:
    """What was given means this to what was asked, or why it means nothing; None where there is nothing to say."""
    about = pending.get("about") or pending["kind"]
    if given.verb == "cancel" or given.verb == "later":
        return Answer(given.verb)
    if given.verb in ("reject", "ignore") and not given.text and about in REFUSED:
        return Answer(REFUSED[about])
    return READERS[about](given, pending)


def may_replan(pending: Pause) -> bool:
    """Whether a budget pause offers another plan: not while there is none yet."""
    return any(option_key(option) == "replan" for option in options(pending))


def _words(given: Given) -> str:
    return given.text or scalar_text(given.fields.get("answer"))


def _by_button(given: Given, pending: Pause, edited: Reader) -> Answer | Unclear | None:
    """What a button says of a plan or a call, with the words beside it; None where it leaves that to the words."""
    text, said = given.text, word(given.text)
    if given.verb == "approve" or (given.verb == "edit" and given.fields):
        if text and said != "yes":
            return unclear("yes_but", text)
        return edited(given, pending) if given.fields else Answer("approve")
    if given.verb in ("reject", "ignore"):
        if said == "yes":
            return unclear("no_but", text)
        return Answer("cancel") if said == "cancel" else Answer("reject", "" if said == "no" else text)
    return None


def _option(given: Given, pending: Pause, about: str) -> tuple[str, Any, str]:
    """The words, the option that they name or begin with, and what follows it; a button “approve” names none."""
    text = "" if given.verb == "approve" else _words(given)
    return (text, *chosen(_choose(text, options(pending)), about))


def _left(text: str) -> Answer | Unclear | None:
    """What is the same at every pause: words that end the run or leave the pause open, and texts that only begin so."""
    said = word(text)
    if said in ("cancel", "enough"):
        return Answer("cancel")
    if said == "later":
        return Answer("later")
    if (first := opening(text)) in ("cancel", "later"):
        return unclear(f"may_{first}", text)
    return None


def _undecided(text: str) -> Unclear | None:
    if not looks_like_json(text):
        return unclear("undecided", text) if text else None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return unclear("broken_json", error=error)
    return unclear("json")


def _read_plan(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, said = given.text, word(given.text)
    if decided := _by_button(given, pending, _edited_plan):
        return decided
    if given.verb not in ("text", "respond", "edit"):
        return None
    if left := _left(text):
        return left
    if said == "yes" and given.verb != "edit":
        return Answer("approve")
    if said == "no":
        return Answer("reject")
    if is_plan_text(text, pending.get("plan") or {}):
        return _edited_plan(Given("edit", fields={"plan": text}), pending)
    known = only_words(text) or plain(text) in ("edit", "edited", "respond")
    if known or looks_like_json(text) or not any(map(str.isalpha, text)):
        return _undecided(text)
    if given.verb == "text" and not substance(text):
        return unclear("too_little", text)
    return Answer("reject", text)


def _edited_plan(given: Given, pending: Pause) -> Answer | Unclear | None:
    if given.action not in (None, action_name("plan")):
        return unclear("not_the_plan", action=given.action)
    edit = edit_plan(given.fields, pending.get("plan") or {}, limits=pending.get("limits"), shown=shown_plan(pending))
    if edit is None:
        text = scalar_text(given.fields.get("plan"))
        return _read_plan(Given("respond", text), pending) if text else unclear("empty_plan")
    if isinstance(edit, Unclear):
        return edit
    if edit.feedback:
        return Answer("reject", edit.feedback, plan=edit.plan if edit.changed else None, amounts=edit.limits)
    changed = edit.changed or edit.limits
    return Answer("edit", plan=edit.plan, amounts=edit.limits) if changed else Answer("approve")


def _read_question(given: Given, pending: Pause) -> Answer | Unclear:
    if given.verb == "ignore" or plain(given.text) == "/skip":
        return Answer("declined")
    choices = options(pending)
    if given.verb == "list":
        return Answer("answer", ", ".join(_choose(scalar_text(item), choices) for item in given.items))
    text = _words(given)
    if text and given.verb != "other":
        choice = _alike(_choose(text, choices), choices)
        return Answer("answer", choice) if choice in choices else _free_answer(text, pending)
    if given.verb != "approve":
        return unclear("empty_answer")
    return Answer("answer", next((choice for choice in choices if word(choice) == "yes"), JUDGEMENT))


def _free_answer(text: str, pending: Pause) -> Answer | Unclear:
    """The words as the answer, unless they end the run or leave the question open; what may be either is asked."""
    said, asked = word(text), plain(str(pending.get("question") or ""))
    first = said or opening(text)
    if said in ("cancel", "later") and not text.startswith("/") and plain(text) in asked:
        return unclear(f"answer_or_{said}", text)
    if first == "cancel" and not said:
        return unclear("may_cancel", text)
    return Answer(said) if said == "cancel" or said == "later" else Answer("answer", text)


def _choose(text: str, choices: list[str]) -> str:
    """The option that `text` names by its words or its number; otherwise the text itself."""
    for choice in choices:
        if plain(choice) == plain(text):
            return choice
    number = plain(text).strip("()#")
    if number.isdecimal() and len(number) < 4 and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    return text


def _alike(text: str, choices: list[str]) -> str:
    """The only option that says yes or no as `text` does; otherwise the text itself."""
    said = word(text)
    alike = [choice for choice in choices if said in ("yes", "no") and (word(choice) or opening(choice)) == said]
    return alike[0] if len(alike) == 1 else text


def _read_tool(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, said = given.text, word(given.text)
    if decided := _by_button(given, pending, _edited_call):
        return decided
    if given.verb == "respond":
        return Answer("respond", text) if text else unclear("empty_response")
    if given.verb != "text":
        return None
    if left := _left(text):
        return left
    if said == "yes":
        return Answer("approve")
    if said == "no" or (begins_with_no(text) and not only_words(text)):
        return Answer("reject", "" if said == "no" else text)
    return unclear("not_run", reasons=[reason]) if (reason := _undecided(text)) else None


def _edited_call(given: Given, pending: Pause) -> Answer | Unclear:
    tool = str(pending.get("tool") or pending.get("name"))
    if given.action == tool and tool != action_name("tool"):
        arguments: Any = given.fields
    elif str(given.fields.get("tool", tool)) != tool:
        return unclear("other_tool", tool=tool)
    else:
        arguments = decode_json(given.fields.get("arguments"))
    if not isinstance(arguments, Mapping):
        broken = _undecided(arguments) if isinstance(arguments, str) and looks_like_json(arguments) else None
        return broken or unclear("no_arguments")
    changed = dict(arguments) != (pending.get("arguments") or {})
    return Answer("edit", arguments=dict(arguments)) if changed else Answer("approve")


def _read_budget(given: Given, pending: Pause) -> Answer | Unclear:
    text = _words(given)
    more = {key: item for key, item in given.fields.items() if key not in OWN_KEYS}
    if given.verb == "other" and plain(text) in ("", "extend") and more:
        return _extended(more.get("extend", more.get("amounts", more)), pending)
    key, rest = chosen(text, "budget")
    if key == "replan" and not may_replan(pending):
        return unclear("unplanned")
    if key == "replan" and given.verb != "approve":
        return Answer("replan", rest)
    if key in ("deliver", "stop") and not rest:
        return Answer(key)
    said = word(text)
    if said == "no":
        return Answer("stop")
    if left := _left(text):
        return left
    agreed = (given.verb == "approve" and not text) or said == "yes" or (key == "extend" and not rest)
    return _extended(True if agreed else rest if key == "extend" else text, pending)


def _extended(value: Any, pending: Pause) -> Answer | Unclear:
    amounts = read_amounts(value, pending)
    return Answer("extend", amounts=amounts) if isinstance(amounts, dict) else amounts


def _read_effect(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _option(given, pending, "effect")
    if key and not rest:
        return Answer(key)
    if left := _left(text):
        return left
    if word(text) == "yes":
        return Answer("happened")
    if word(text) == "no":
        return unclear("which_no", text)
    return unclear("happened", text) if text else None


def _read_failure(given: Given, pending: Pause) -> Answer | Unclear | None:
    """Only the options' own words, or words that say what to do, start work; whatever refuses anything does not."""
    text, key, rest = _option(given, pending, "failure")
    if key and not rest:
        return Answer(key, text)
    said = word(text)
    if said == "no":
        return Answer("stop", text)
    if left := _left(text):
        return left
    if said or not text or looks_like_json(text) or not substance(text):
        return _undecided(text)
    if refuses(text):
        return unclear("refuses", text)
    return Answer("replan", rest if key == "replan" else text)


def _read_early(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _option(given, pending, "early")
    if key and not rest:
        return Answer(key, text)
    return _left(text) or _undecided(text)


REFUSED: dict[str, AnswerKind] = {"question": "declined", "budget": "stop", "effect": "skip", "failure": "stop"}
"""What a button “reject” without words means."""
READERS: dict[str, Reader] = {
    "plan": _read_plan,
    "question": _read_question,
    "tool": _read_tool,
    "budget": _read_budget,
    "effect": _read_effect,
    "failure": _read_failure,
    "early": _read_early,
}
