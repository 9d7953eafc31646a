"""What words and decisions mean at each kind of pause: one grammar, in whatever language.

Buttons, options and the few words that can mean only one thing decide. A sentence says what should be different where
it cannot be meant as consent or refusal; else it is asked back, and changes nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.language.texts import Unclear, chosen, option_key, unclear
from donewhen.state.language.words import FEW, may_decide, plain, word
from donewhen.state.people.amounts import read_amounts
from donewhen.state.people.edit import edit_plan
from donewhen.state.people.payloads import action_name, options
from donewhen.state.people.shapes import Given, decode_json, looks_like_json, scalar_text
from donewhen.state.plan.document import is_plan_text
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
    """kind `edit` of a plan: the whole edited plan, not yet validated, without a revision."""
    arguments: dict[str, Any] | None = None
    """kind `edit` of a tool call: the arguments to run it with."""
    amounts: dict[str, float] = field(default_factory=dict)
    """kind `extend`: how much more, by ledger key; all positive. kind `edit` of a plan: what each limit should be."""
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """kind `edit` of a plan that was written as text: the line on which each of its parts begins."""


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
        return Answer(said) if said in ("cancel", "later") else Answer("reject", "" if said == "no" else text)
    return None


def _option(given: Given, pending: Pause, about: str) -> tuple[str, Any, str]:
    """The words, the option that they name, and what follows it; a button “approve” names none."""
    text = "" if given.verb == "approve" else _words(given)
    return (text, *chosen(_choose(text, options(pending)), about))


def _decision(text: str) -> Answer | None:
    """What a text says of a plan or a call if it is one of their options, or one of the few words, and nothing else."""
    key, rest = chosen(text, "plan")
    said = word(text) or (key if key != "edit" and not rest else None)
    kinds: dict[str | None, AnswerKind] = {"yes": "approve", "no": "reject"}
    return Answer(kinds.get(said) or said) if said else None  # type: ignore[arg-type]


def _ends(text: str) -> Answer | None:
    """What is the same at every pause: words that end the run or leave the pause open."""
    said = word(text)
    return Answer(said) if said == "cancel" or said == "later" else None


def _changed(text: str, pending: Pause) -> str:
    """What should be different, where a text says that it is that: “change: …”, or “change” of what was said before."""
    key, rest = chosen(text, "meant")
    return (rest or str(pending.get("said") or "")) if key else ""


def _undecided(text: str) -> Unclear | None:
    """Why a text that is no sentence decides nothing."""
    if not looks_like_json(text):
        return unclear("undecided", text) if text else None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return unclear("broken_json", error=error)
    return unclear("json")


def _is_sentence(text: str) -> bool:
    return any(map(str.isalpha, text)) and not looks_like_json(text)


def _read_plan(given: Given, pending: Pause) -> Answer | Unclear | None:
    text = given.text
    if decided := _by_button(given, pending, _edited_plan):
        return decided
    if given.verb not in ("text", "respond"):
        return None
    if is_plan_text(text):
        return _edited_plan(Given("edit", fields={"plan": text}), pending)
    if decided := _decision(text):
        return decided
    if change := _changed(text, pending):
        return Answer("reject", change)
    if not _is_sentence(text):
        return _undecided(text)
    few = 0 if given.verb == "respond" else FEW  # who chose to respond did not choose to approve
    return unclear("meant", text) if may_decide(text, few) else Answer("reject", text)


def _edited_plan(given: Given, pending: Pause) -> Answer | Unclear:
    if given.action not in (None, action_name("plan")):
        return unclear("not_the_plan", action=given.action)
    edit = edit_plan(given.fields, pending.get("plan") or {}, pending.get("limits"))
    if isinstance(edit, Unclear):
        return edit
    changed = edit.changed or edit.limits
    return Answer("edit", plan=edit.plan, amounts=edit.limits, lines=edit.lines) if changed else Answer("approve")


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
    if said in ("cancel", "later") and not text.startswith("/") and plain(text) in asked:
        return unclear(f"answer_or_{said}", text)
    return _ends(text) or Answer("answer", text)


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
    alike = [choice for choice in choices if said in ("yes", "no") and word(choice) == said]
    return alike[0] if len(alike) == 1 else text


def _read_tool(given: Given, pending: Pause) -> Answer | Unclear | None:
    text = given.text
    if decided := _by_button(given, pending, _edited_call):
        return decided
    if given.verb == "respond":
        return Answer("respond", text) if text else unclear("empty_response")
    if given.verb != "text":
        return None
    if decided := _decision(text):
        return decided
    if change := _changed(text, pending):
        return Answer("reject", change)
    return unclear("meant", text) if _is_sentence(text) else _undecided(text)


def _edited_call(given: Given, pending: Pause) -> Answer | Unclear:
    """The call with the arguments that were given; those that are not named stay."""
    tool, before = str(pending.get("tool") or pending.get("name")), pending.get("arguments") or {}
    if given.action == tool and tool != action_name("tool"):
        arguments: Any = given.fields
    elif str(given.fields.get("tool", tool)) != tool:
        return unclear("other_tool", tool=tool)
    else:
        arguments = decode_json(given.fields.get("arguments"))
    if not isinstance(arguments, Mapping):
        broken = _undecided(arguments) if isinstance(arguments, str) and looks_like_json(arguments) else None
        return broken or unclear("no_arguments")
    edited = {**before, **arguments}
    return Answer("edit", arguments=edited) if edited != before else Answer("approve")


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
    if ends := _ends(text):
        return ends
    agreed = (given.verb == "approve" and not text) or said == "yes" or (key == "extend" and not rest)
    return _extended(True if agreed else rest if key == "extend" else text, pending)


def _extended(value: Any, pending: Pause) -> Answer | Unclear:
    amounts = read_amounts(value, pending)
    return Answer("extend", amounts=amounts) if isinstance(amounts, dict) else amounts


def _read_effect(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _option(given, pending, "effect")
    if key and not rest:
        return Answer(key)
    if word(text) == "yes":
        return Answer("happened")
    if word(text) == "no":
        return unclear("which_no", text)
    return _ends(text) or (unclear("happened", text) if text else None)


def _read_failure(given: Given, pending: Pause) -> Answer | Unclear | None:
    """Only the options, or a sentence that says what to do, start work."""
    text, key, rest = _option(given, pending, "failure")
    if key and (not rest or key == "replan"):
        return Answer(key, rest or text)
    if word(text) == "no":
        return Answer("stop", text)
    if ends := _ends(text):
        return ends
    if change := _changed(text, pending):
        return Answer("replan", change)
    if word(text) or not _is_sentence(text):
        return _undecided(text)
    return unclear("meant", text) if may_decide(text) else Answer("replan", text)


def _read_early(given: Given, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _option(given, pending, "early")
    if key and not rest:
        return Answer(key, text)
    return _ends(text) or _undecided(text)


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
