"""What words and decisions mean at each kind of pause: one grammar, in whatever language.

Only words that say nothing else decide; what is not understood is a sentence that says why, and changes nothing.
“cancel” ends the run and “later” leaves the pause open everywhere; no “no” starts any work.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.language.texts import chosen, option_key
from donewhen.state.language.words import begins_with_no, only_words, opening, plain, refuses, substance, word
from donewhen.state.people.amounts import read_amounts
from donewhen.state.people.edit import edit_plan, is_plan_text
from donewhen.state.people.payloads import action_name, options, shown_plan
from donewhen.state.people.shapes import Given, decode_json, looks_like_json, scalar_text

AnswerKind = Literal[
    "approve", "edit", "reject", "respond", "cancel", "later", "answer", "declined",
    "extend", "deliver", "replan", "retry", "stop", "happened", "not_happened", "skip", "go_on", "leave_out",
]  # fmt: skip
OWN_KEYS = ("type", "decision", "action", "id", "revision")
END = {"cancel": "end the run", "later": "leave this open"}
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
    """kind `extend`: how much more, by ledger key; all positive. kind `edit` of a plan: what each limit should be."""


def meaning(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    """What was given means this to what was asked, or a sentence that says why it means nothing."""
    if given.verb in ("cancel", "later"):
        return Answer("cancel" if given.verb == "cancel" else "later")
    return READERS[pending.get("about") or pending["kind"]](given, pending)


def may_replan(pending: Mapping[str, Any]) -> bool:
    """Whether a budget pause offers another plan: not while there is none yet."""
    return any(option_key(option) == "replan" for option in options(pending))


def _words(given: Given) -> str:
    return given.text or scalar_text(given.fields.get("answer"))


def _left(text: str) -> Answer | str | None:
    """What is the same at every pause: words that end the run or leave the pause open, and texts that only begin so."""
    said = word(text)
    if said in ("cancel", "enough"):
        return Answer("cancel")
    if said == "later":
        return Answer("later")
    if (first := opening(text)) in ("cancel", "later"):
        return f"“{text[:80]}” begins with a word that may {END[first]}, and goes on: say only that, or leave it out"
    return None


def _unclear(text: str) -> str:
    if not looks_like_json(text):
        return f"“{text[:80]}” decides nothing" if text else ""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"the JSON cannot be read: {error}"
    return "this JSON is no answer"


def _yes_but(text: str) -> str:
    return f"approved, but with the words “{text[:80]}”: approve without words, or reject with them"


def _read_plan(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    text, said = given.text, word(given.text)
    if given.verb in ("approve", "edit") and given.fields:
        return _edited_plan(given, pending)
    if given.verb == "approve":
        return Answer("approve") if not text or said == "yes" else _yes_but(text)
    if given.verb in ("reject", "ignore"):
        if said == "yes":
            return f"rejected, but with the words “{text[:80]}”"
        return Answer("cancel") if said == "cancel" else Answer("reject", "" if said == "no" else text)
    if given.verb not in ("text", "respond", "edit"):
        return ""
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
        return _unclear(text)
    if given.verb == "text" and not substance(text):
        return f"“{text[:80]}” is neither a decision nor enough to plan by: say what should be different"
    return Answer("reject", text)


def _edited_plan(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    if given.action not in (None, action_name("plan")):
        return f"the edit is of {given.action}, not of the plan"
    edit = edit_plan(given.fields, pending.get("plan") or {}, limits=pending.get("limits"), shown=shown_plan(pending))
    if edit is None:
        text = scalar_text(given.fields.get("plan"))
        return _read_plan(Given("respond", text), pending) if text else "the edited plan is empty"
    if isinstance(edit, str):
        return edit
    if given.text and word(given.text) != "yes":
        return _yes_but(given.text)
    if edit.feedback:
        return Answer("reject", edit.feedback, plan=edit.plan if edit.changed else None)
    changed = edit.changed or edit.limits
    return Answer("edit", plan=edit.plan, amounts=edit.limits) if changed else Answer("approve")


def _read_question(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    if given.verb == "ignore" or (given.verb == "reject" and not given.text) or plain(given.text) == "/skip":
        return Answer("declined")
    choices = options(pending)
    if given.verb == "list":
        return Answer("answer", ", ".join(_choose(scalar_text(item), choices) for item in given.items))
    text = _words(given)
    if text and given.verb != "other":
        choice = _alike(_choose(text, choices), choices)
        return Answer("answer", choice) if choice in choices else _free_answer(text, pending)
    if given.verb != "approve":
        return "the answer is empty"
    return Answer("answer", next((choice for choice in choices if word(choice) == "yes"), JUDGEMENT))


def _free_answer(text: str, pending: Mapping[str, Any]) -> Answer | str:
    """The words as the answer, unless they end the run or leave the question open; what may be either is asked."""
    said, asked = word(text), plain(str(pending.get("question") or ""))
    first = said or opening(text)
    if said in ("cancel", "later") and not text.startswith("/") and plain(text) in asked:
        return f"“{text[:80]}” may be the answer, or {END[said]}: answer in more words, or say /{said}"
    if first == "cancel" and not said:
        return f"“{text[:80]}” begins with a word that may {END[first]}, and goes on: say only that, or leave it out"
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


def _read_tool(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    text, said = given.text, word(given.text)
    if given.verb in ("approve", "edit") and given.fields:
        return _edited_call(given, pending)
    if given.verb == "approve":
        return Answer("approve") if not text or said == "yes" else _yes_but(text)
    if given.verb in ("reject", "ignore"):
        return Answer("cancel") if said == "cancel" else Answer("reject", "" if said == "no" else text)
    if given.verb == "respond":
        return Answer("respond", text) if text else "the response is empty"
    if given.verb != "text":
        return ""
    if left := _left(text):
        return left
    if said == "yes":
        return Answer("approve")
    if said == "no" or (begins_with_no(text) and not only_words(text)):
        return Answer("reject", "" if said == "no" else text)
    return f"{_unclear(text)}; nothing was run" if text else ""


def _edited_call(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    tool = str(pending.get("tool") or pending.get("name"))
    if given.action == tool and tool != action_name("tool"):
        arguments: Any = given.fields
    elif str(given.fields.get("tool", tool)) != tool:
        return f"the call is of {tool}; another tool cannot be put in its place"
    else:
        arguments = decode_json(given.fields.get("arguments"))
    if not isinstance(arguments, Mapping):
        broken = _unclear(arguments) if isinstance(arguments, str) and looks_like_json(arguments) else ""
        return broken or "the edited arguments are not a JSON object"
    if given.text and word(given.text) != "yes":
        return _yes_but(given.text)
    changed = dict(arguments) != (pending.get("arguments") or {})
    return Answer("edit", arguments=dict(arguments)) if changed else Answer("approve")


def _read_budget(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    if given.verb in ("reject", "ignore") and not given.text:
        return Answer("stop")
    text = _words(given)
    more = {key: item for key, item in given.fields.items() if key not in OWN_KEYS}
    if given.verb == "other" and plain(text) in ("", "extend") and more:
        return _extended(more.get("extend", more.get("amounts", more)), pending)
    key, rest = chosen(text, "budget")
    if key == "replan" and not may_replan(pending):
        return "nothing is planned yet, so nothing can be planned anew"
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


def _extended(value: Any, pending: Mapping[str, Any]) -> Answer | str:
    amounts = read_amounts(value, pending)
    return Answer("extend", amounts=amounts) if isinstance(amounts, dict) else amounts


def _read_effect(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    if given.verb == "ignore" or (given.verb == "reject" and not given.text):
        return Answer("skip")
    # A button "approve" does not say whether the effect happened; the words do.
    text = "" if given.verb == "approve" else _words(given)
    key, rest = chosen(_choose(text, options(pending)), "effect")
    if key and not rest:
        return Answer(key)
    if left := _left(text):
        return left
    if word(text) == "yes":
        return Answer("happened")
    if word(text) == "no":
        return "“no” may mean that it did not happen, so that it is done now, or that it should not be: say which"
    return f"“{text[:80]}” does not say whether it happened" if text else ""


def _read_failure(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    """Only the options' own words, or words that say what to do, start work; whatever refuses anything does not."""
    if given.verb in ("reject", "ignore") and not given.text:
        return Answer("stop")
    text = "" if given.verb == "approve" else _words(given)
    key, rest = chosen(_choose(text, options(pending)), "failure")
    if key and not rest:
        return Answer(key, text)
    said = word(text)
    if said == "no":
        return Answer("stop", text)
    if left := _left(text):
        return left
    if said or not text or looks_like_json(text) or not substance(text):
        return _unclear(text)
    if refuses(text):
        return f"“{text[:80]}” may mean that nothing more should be done: say “stop”, or only what should be done"
    return Answer("replan", rest if key == "replan" else text)


def _read_early(given: Given, pending: Mapping[str, Any]) -> Answer | str:
    text = "" if given.verb == "approve" else _words(given)
    key, rest = chosen(_choose(text, options(pending)), "early")
    if key and not rest:
        return Answer(key, text)
    return _left(text) or _unclear(text)


READERS: dict[str, Callable[[Given, Mapping[str, Any]], Answer | str]] = {
    "plan": _read_plan,
    "question": _read_question,
    "tool": _read_tool,
    "budget": _read_budget,
    "effect": _read_effect,
    "failure": _read_failure,
    "early": _read_early,
}
