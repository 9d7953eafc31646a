"""Read a person's answer: first its shape, which depends on the client, then its meaning for the pause.

Shapes: strings, booleans and numbers; JSON in a string or a fenced block; `{"decisions": [one]}` and a bare decision
(LangChain, agent-chat-ui, deep-agents-ui, ACP); `[{"type", "args"}]` (agent-inbox); `{"approved": bool}` and
`{"__agui_cancelled__": true}` (AG-UI); `{"resume": any}` (A2A); content blocks; and
`{"type" | "decision" | "action": word}`.

Buttons, options and short replies (`state/language/short_replies.py`) decide. All other words are said to the planner
at a plan, and to the model at its question or its call. Where words could cost money, at a limit or an unknown effect,
one question asks for what is missing.
"""

import json
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from donewhen.state.language.short_replies import ending_words, read_word, says_plain_yes
from donewhen.state.language.texts import Unclear, match_option, option_key, translate_option, unclear
from donewhen.state.language.words import fold_words
from donewhen.state.pattern import pattern
from donewhen.state.people.amounts import example_amount, exhausted_limits, format_amount, lifts_limit, read_amounts
from donewhen.state.people.edit import edit_plan, is_plan_text, strip_fence
from donewhen.state.people.payload import action_name, language_of, options
from donewhen.state.records import Pause
from donewhen.state.values import clean_text, json_problem

AnswerKind = Literal[
    "approve", "edit", "reject", "say", "respond", "cancel", "later", "answer", "declined",
    "extend", "deliver", "replan", "retry", "stop", "happened", "not_happened", "skip", "go_on", "leave_out",
]  # fmt: skip
Verb = Literal["approve", "edit", "reject", "respond", "ignore", "cancel", "later", "text", "list", "other"]
VERBS: dict[str, Verb] = {
    "approve": "approve", "approved": "approve", "accept": "approve", "accepted": "approve",
    "edit": "edit", "edited": "edit",
    "reject": "reject", "rejected": "reject", "deny": "reject", "denied": "reject",
    "respond": "respond", "response": "respond", "answer": "respond",
    "ignore": "ignore",
    "cancel": "cancel", "cancelled": "cancel", "canceled": "cancel", "abort": "cancel",
    "later": "later", "postpone": "later",
}  # fmt: skip
TEXT_KEYS = ("message", "feedback", "reason", "text", "answer", "response")
EDIT_KEYS = ("plan", "steps", "arguments")
EDIT_SHAPES = {
    "plan": '{"type": "edit", "plan": {"steps": […], …}}',
    "tool": '{"type": "edit", "arguments": {…}}',
}
AROUND_KEYS = ("type", "decision", "action", "id")
OWN_KEYS = (*AROUND_KEYS, "revision")
MOST_NESTED = 4
PAUSE_ID = pattern(
    r"\A(?:\d+:)?(?:confirm\.[0-9a-f]+|(?:budget|failure|early)\.\S+"
    r"|[A-Za-z][\w-]*(?:@\d+)?\.(?:q\d+|(?:call|effect)\d+\.[0-9a-f]{8}(?:\.\d+)?))(?:~\d+)?"
)
"""The form of all pause ids: `s2.q1`; in the thread's third request `3:s2.q1`; asked again `s2.q1~2`."""
JUDGEMENT = "Approved without further words: use your own judgement."


@dataclass(frozen=True)
class Answer:
    """A person's decision. The possible kinds depend on the question; `cancel` and `later` are always possible."""

    kind: AnswerKind
    text: str = ""
    """The answer to a question, the reason of a rejection ("" if none), what was said about a plan, or the response in
    place of a result."""
    plan: dict[str, Any] | None = None
    """For the `edit` of a plan: the whole edited plan, not yet validated, without a revision."""
    arguments: dict[str, Any] | None = None
    """For the `edit` of a tool call: the arguments to run it with."""
    amounts: dict[str, float] = field(default_factory=dict)
    """For `extend`: the increase by ledger key, all positive. For the `edit` of a plan: the new limits."""
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """For the `edit` of a plan as text: the line on which each of its parts begins."""
    value: Any = None
    """What the `interrupt` of a graph or tool returns, if the question is its own."""


@dataclass(frozen=True)
class AnswerShape:
    """An answer in one common shape, whatever client sent it."""

    verb: Verb
    """The button that was pressed; `text` for typed text, `list` for several values, `other` for unknown keys."""
    text: str = ""
    """The words sent with it, or the word of an unknown verb."""
    fields: dict[str, Any] = field(default_factory=dict)
    """The edited arguments, or all keys of a dict in no known shape."""
    action: str | None = None
    """The action or tool name that an edit is for."""
    items: list[Any] = field(default_factory=list)
    ids: frozenset[str] = frozenset()
    """The ids of questions that the answer names."""
    revisions: frozenset[str] = frozenset()


def answers_by_id(value: Any, open_ids: Collection[str]) -> dict[str, Any] | str:
    """Return the answers in `value` by question id, {} if it names none, or a text that says which one is stale.

    Answers by id are `{"answers": {…}}`, or a mapping whose keys are all ids of open questions.
    """
    given = decode_json(value)
    if not isinstance(given, Mapping):
        return {}
    answers = given.get("answers") if set(given) == {"answers"} else given
    if not isinstance(answers, Mapping):
        return {}
    if unknown := sorted(str(id) for id in answers if id not in open_ids):
        seen = "stale: that is answered already, perhaps in another window"
        said = f"{seen}: nothing waits under {', '.join(unknown)}; open: {', '.join(sorted(open_ids))}."
        return {} if answers is given else said
    return dict(answers)


def read_answer(value: Any, pending: Pause) -> Answer | str:
    """Return the meaning of `value` as an answer to `pending`, or a sentence for the person: what is missing, or wrong.

    Never raises. The text is in the pause's language; problems of a client's JSON are in English. A text that starts
    with "stale" means that the answer names another question or revision.
    """
    if is_own_interrupt(pending):
        return _read_for_interrupt(value, pending)
    given = _read_shape_for(value, pending)
    if isinstance(given, AnswerShape):
        if stale := _find_stale(given, pending):
            return stale
        about = pending.get("about") or pending["kind"]
        read: Answer | Unclear | None
        if given.verb == "cancel" or given.verb == "later":
            read = Answer(given.verb)
        elif given.verb in ("reject", "ignore") and not given.text and about in REFUSED:
            read = Answer(REFUSED[about])
        else:
            read = READERS[about](given, pending)
        if isinstance(read, Answer):
            return read
        given = (read or unclear("no_answer")).text(language_of(pending))
    return given


def fills_form(value: Any, pending: Pause) -> bool:
    """Return whether an answer is an object of the form's fields, and not a lone decision such as to cancel."""
    filled, fields = decode_json(value), set((pending.get("schema") or {}).get("properties") or ())
    if not fields or not isinstance(filled, Mapping) or not set(filled) <= fields:
        return False
    given = read_shape(filled) if len(filled) == 1 and isinstance(value, Mapping) else None
    return not (isinstance(given, AnswerShape) and given.verb in ("cancel", "ignore", "later", "reject"))


def is_own_interrupt(pending: Pause) -> bool:
    """Return whether a graph or tool asks by an `interrupt` of its own, which gets any value as it was given."""
    return bool(pending.get("relayed")) and pending["kind"] == "question" and "schema" not in pending


def stale_reason(value: Any, pending: Pause) -> str | None:
    """Return why an answer is for another question, or another revision of the plan; None if it names neither."""
    if fills_form(value, pending) or (is_own_interrupt(pending) and not named_pauses(value)):
        return None
    open_ids = [str(pending["id"]), *(str(other["id"]) for other in pending.get("others") or ())]
    if by_id := answers_by_id(value, open_ids):
        return by_id if isinstance(by_id, str) else None
    given = _read_shape_for(value, pending)
    return _find_stale(given, pending) if isinstance(given, AnswerShape) else None


def may_replan(pending: Pause) -> bool:
    """Return whether a budget pause offers a replan, which needs an existing plan."""
    return any(option_key(option) == "replan" for option in options(pending))


def edited_draft(value: Any) -> str:
    """Return the text of an edit, to be shown again if it was not accepted; "" for any other answer."""
    given = read_shape(value)
    fields = given.fields if isinstance(given, AnswerShape) else {}
    drafts = [fields.get(key) for key in ("plan", "arguments")]
    return next((draft for draft in drafts if isinstance(draft, str) and draft.strip()), "")


def _read_shape_for(value: Any, pending: Pause) -> AnswerShape | str:
    """Read the shape of an answer. For a question, typed JSON that is no decision is plain text."""
    given = read_shape(value)
    if pending["kind"] != "question" or not isinstance(value, str):
        return given
    decides = isinstance(given, AnswerShape) and given.verb not in ("text", "list", "other")
    return given if decides else AnswerShape("text", value.strip())


def _find_stale(given: AnswerShape, pending: Pause) -> str | None:
    ids = {str(pending[key]) for key in ("id", "tool_call_id") if pending.get(key)}
    if given.ids - ids:
        return f"stale: {', '.join(sorted(given.ids - ids))} does not wait; {pending.get('id')} does."
    revision = pending.get("revision") or (pending.get("plan") or {}).get("revision")
    edited = decode_json(given.fields.get("plan"))
    named = {str(edited["revision"])} if isinstance(edited, Mapping) and edited.get("revision") else set()
    if revision is not None and (given.revisions | named) - {str(revision)}:
        return f"stale: the answer is for another revision of the plan; revision {revision} waits."
    return None


# --- shapes


def decode_json(value: Any) -> Any:
    """Return the value of a string that holds JSON, bare or in a fenced block; anything else unchanged."""
    if not isinstance(value, str):
        return value
    text = strip_fence(value).strip()
    if not text.startswith(("{", "[", '"')):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return value


def read_shape(value: Any, nesting: int = 0) -> AnswerShape | str:
    """Return the answer in one common shape, or a sentence that says why that is not possible."""
    if nesting > MOST_NESTED:
        return "the answer is wrapped too often"
    if value is None:
        return "nothing was answered"
    if isinstance(value, bool | int | float):
        words = scalar_text(value)
        return AnswerShape("text", words) if words else f"{value} is no answer"
    if isinstance(value, str):
        decoded = decode_json(value)
        return AnswerShape("text", value.strip()) if decoded is value else read_shape(decoded, nesting + 1)
    if isinstance(value, list | tuple):
        return _read_list(list(value), nesting)
    if isinstance(value, Mapping):
        return _read_mapping({str(key): item for key, item in value.items()}, nesting)
    return f"a {type(value).__name__} is no answer"


def _read_list(items: list[Any], nesting: int) -> AnswerShape | str:
    if not items:
        return "the list is empty"
    if all(isinstance(item, Mapping) for item in items):
        if all("op" in item for item in items):
            return "a JSON Patch is no answer; send the whole plan, or its edited text"
        if all(item.get("type") == "text" and isinstance(item.get("text"), str) for item in items):
            return read_shape("\n".join(item["text"] for item in items), nesting + 1)
        if len(items) > 1:
            return f"{len(items)} decisions came for one question"
        return read_shape(items[0], nesting + 1)
    if all(isinstance(item, str | int | float) for item in items):
        return AnswerShape("list", items=items)
    return "the list holds no decision"


def _read_mapping(value: dict[str, Any], nesting: int) -> AnswerShape | str:
    if value.get("__agui_cancelled__"):
        return AnswerShape("cancel")
    if set(value) == {"resume"}:
        return read_shape(value["resume"], nesting + 1)
    if "decisions" in value:
        decisions = decode_json(value["decisions"])
        given = _read_list(decisions, nesting + 1) if isinstance(decisions, list) else "`decisions` must be a list"
        if isinstance(given, AnswerShape) and given.verb not in VERBS.values():
            return "the decision has no known `type`"
    else:
        given = _read_decision(value)
    if isinstance(given, str):
        return given
    ids, revisions = ({str(value[key])} if value.get(key) is not None else set() for key in ("id", "revision"))
    return replace(given, ids=given.ids | ids, revisions=given.revisions | revisions)


def _read_decision(value: dict[str, Any]) -> AnswerShape | str:
    words = [fold_words(value[key]) for key in ("type", "decision", "action") if isinstance(value.get(key), str)]
    verbs = {VERBS[word] for word in words if word in VERBS}
    for key, verb in VERBS.items():  # `{"approved": true}` and its relatives; only real booleans count
        if verb in ("approve", "reject", "cancel") and isinstance(value.get(key), bool):
            verbs |= {verb} if value[key] else {"reject"} if verb == "approve" else set()
    if len(verbs) > 1:
        return f"the answer contradicts itself: {', '.join(sorted(verbs))}"
    text = next((said for key in (*TEXT_KEYS, "args") if (said := scalar_text(value.get(key)))), "")
    action, fields = _read_edit(value)
    if verbs:
        return AnswerShape(verbs.pop(), text, fields, action)
    if words:
        return AnswerShape("other", words[0], value)
    if fields:
        return AnswerShape("edit", text, fields, action)
    if text and set(value) - {"id", "revision"} <= set(TEXT_KEYS):
        return AnswerShape("reject" if "feedback" in value else "text", text)
    return AnswerShape("other", "", value)


def _read_edit(value: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the action or tool that an edit names, and its edited arguments."""
    edited = decode_json(value.get("edited_action") or value.get("editedAction") or value.get("args"))
    if isinstance(edited, Mapping):
        name = edited.get("name") or edited.get("action")
        arguments = decode_json(edited.get("args", edited.get("arguments")))
        if isinstance(arguments, Mapping):
            return (name if isinstance(name, str) else None), dict(arguments)
        return None, dict(edited)
    if isinstance(value.get("steps"), list) and "plan" not in value:
        return None, {"plan": {key: item for key, item in value.items() if key not in (*AROUND_KEYS, *TEXT_KEYS)}}
    return None, {key: value[key] for key in EDIT_KEYS if key in value}


def scalar_text(value: Any) -> str:
    """Return a string, boolean or finite number as a person would type it; "" for anything else."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return repr(value)
    return value.strip() if isinstance(value, str) else ""


# --- values for the own interrupt of a graph or a tool


def _read_for_interrupt(value: Any, pending: Pause) -> Answer | str:
    """Return the answer to an own interrupt: it gets the value as LangGraph would hand it over, whatever it is.

    Three things are not for it: what ends the run or postpones the question, the envelope in which a client sends the
    words that were typed into the field of our payload, and the number of an option that we showed.
    """
    problem = json_problem(value) if not isinstance(value, str) else None
    if isinstance(value, Mapping) and set(value) == {"unreadable"}:
        problem = str(value["unreadable"])
    if problem:
        return f"The answer cannot be stored: it {problem}."
    if (named := named_pauses(value)) - {str(pending["id"])}:
        return f"stale: {', '.join(sorted(named))} does not wait; {pending['id']} does."
    if isinstance(value, Mapping) and (verb := _run_verb(value)):
        return Answer(verb)
    value = clean_text(value) if isinstance(value, str) else _typed_words(value)
    if isinstance(value, str):
        if fold_words(value) == "/skip":
            return Answer("declined")
        choices = options(pending)
        if (choice := _match_choice(value, choices)) in choices:
            return Answer("answer", choice, value=choice)
        read = _read_free_answer(value, pending)
        if not isinstance(read, Answer):
            return read.text(language_of(pending))
        return read if read.kind != "answer" else replace(read, value=value)
    return Answer("answer", scalar_text(value) or json.dumps(value, ensure_ascii=False), value=value)


def named_pauses(value: Any) -> set[str]:
    """Return the ids of pauses that an answer names; ids of any other form belong to the answer."""
    given = decode_json(value)
    answers = given.get("answers") if isinstance(given, Mapping) and set(given) == {"answers"} else {}
    ids = [*answers] if isinstance(answers, Mapping) else []
    ids += [given.get("id")] if isinstance(given, Mapping) and not isinstance(value, str) else []
    return {id for id in ids if isinstance(id, str) and PAUSE_ID.fullmatch(id)}


def _run_verb(value: Mapping[str, Any]) -> Literal["cancel", "later"] | None:
    """Return what a client's button says of the run and of no question: `{"type": "cancel"}`, and that of AG-UI."""
    if value.get("__agui_cancelled__"):
        return "cancel"
    said = value.get("type") if set(value) <= {"type", "id", "interrupt_id"} else None
    return "cancel" if said == "cancel" else "later" if said == "later" else None


def _typed_words(value: Any) -> Any:
    """Return the words that were typed into the field of our payload; any other value unchanged.

    The clients of LangChain's middleware send them in a decision, agent-inbox as an edit of our action.
    """
    decisions = value.get("decisions") if isinstance(value, Mapping) and set(value) == {"decisions"} else value
    one = decisions[0] if isinstance(decisions, list) and len(decisions) == 1 else None
    if not isinstance(one, Mapping):
        return value
    action, fields = _read_edit(dict(one))
    if action == action_name("question") and isinstance(answer := fields.get("answer"), str):
        return answer
    said = one.get("message") if decisions is not value and one.get("type") in ("respond", "reject") else None
    return said if isinstance(said, str) and said.strip() else value


# --- meanings, one reader per kind of pause. A reader returns None where there is nothing to say about an answer.


def _read_plan_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear | None:
    text = given.text
    if decided := _read_button(given, pending, _read_edited_plan):
        return decided
    if given.verb not in ("text", "respond"):
        return None
    if is_plan_text(text):
        return _read_edited_plan(AnswerShape("edit", fields={"plan": text}), pending)
    return _read_short_reply(text, pending) or _read_broken_json(text) or _read_words("say", text)


def _read_edited_plan(given: AnswerShape, pending: Pause) -> Answer | Unclear:
    if given.action not in (None, action_name("plan")):
        return unclear("not_the_plan", action=given.action)
    edit = edit_plan(given.fields, pending.get("plan") or {}, pending.get("limits"))
    if isinstance(edit, Unclear):
        return edit
    changed = edit.changed or edit.limits
    return Answer("edit", plan=edit.plan, amounts=edit.limits, lines=edit.lines) if changed else Answer("approve")


def _read_tool_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear | None:
    text = given.text
    if decided := _read_button(given, pending, _read_edited_call):
        return decided
    if given.verb == "respond":
        return Answer("respond", text) if text else unclear("empty_response")
    if given.verb != "text":
        return None
    return _read_short_reply(text, pending) or _read_broken_json(text) or _read_words("reject", text)


def _read_edited_call(given: AnswerShape, pending: Pause) -> Answer | Unclear:
    """Return the call with the edited arguments; arguments that are not named are kept."""
    tool, before = str(pending.get("tool") or pending.get("name")), pending.get("arguments") or {}
    if given.action == tool and tool != action_name("tool"):
        arguments: Any = given.fields
    elif str(given.fields.get("tool", tool)) != tool:
        return unclear("other_tool", tool=tool)
    elif given.action is None and "arguments" not in given.fields and set(before) & set(given.fields):
        arguments = given.fields
    else:
        arguments = decode_json(given.fields.get("arguments"))
    if not isinstance(arguments, Mapping):
        return (_read_broken_json(arguments) if isinstance(arguments, str) else None) or unclear("no_arguments")
    edited = {**before, **arguments}
    return Answer("edit", arguments=edited) if edited != before else Answer("approve")


def _read_question_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear:
    if given.verb == "ignore" or fold_words(given.text) == "/skip":
        return Answer("declined")
    choices = options(pending)
    if given.verb == "list":
        return Answer("answer", ", ".join(_match_choice(scalar_text(item), choices) for item in given.items))
    text = _words_of(given)
    if text and given.verb != "other":
        choice, word = _match_choice(text, choices), read_word(text)
        alike = [each for each in choices if word in ("yes", "no") and read_word(each) == word]
        if choice not in choices and len(alike) == 1:
            choice = alike[0]
        return Answer("answer", choice) if choice in choices else _read_free_answer(text, pending)
    if given.verb != "approve":
        return unclear("empty_answer")
    return Answer("answer", next((choice for choice in choices if read_word(choice) == "yes"), JUDGEMENT))


def _read_free_answer(text: str, pending: Pause) -> Answer | Unclear:
    """Return the words as the answer. A single word may also end the run or postpone the question; ask if unclear."""
    ending, words = _read_ending(text), fold_words(text)
    if ending is None or " " in words:
        return Answer("answer", text)
    asked = words in fold_words(str(pending.get("question") or "")) and not text.startswith("/")
    return unclear(f"answer_or_{ending.kind}", text) if asked else ending


def _read_budget_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear:
    text = _words_of(given)
    more = {key: item for key, item in given.fields.items() if key not in OWN_KEYS}
    if given.verb == "other" and fold_words(text) in ("", "extend") and more:
        return _read_extension(more.get("extend", more.get("amounts", more)), pending)
    key, rest = match_option(text, "budget")
    if key == "replan" and not may_replan(pending):
        return unclear("unplanned")
    if key == "replan" and given.verb != "approve":
        return Answer("replan", rest)
    if key in ("deliver", "stop") and not rest:
        return Answer(key)
    said = read_word(text)
    if said == "no":
        return Answer("stop")
    if ending := _read_ending(text):
        return ending
    agreed = (given.verb == "approve" and not text) or said == "yes" or (key == "extend" and not rest)
    return _read_extension(True if agreed else rest if key == "extend" else text, pending)


def _read_extension(value: Any, pending: Pause) -> Answer | Unclear:
    amounts = read_amounts(value, pending)
    if not isinstance(amounts, dict):
        return amounts
    return Answer("extend", amounts=amounts) if lifts_limit(amounts, pending) else _say_not_lifted(amounts, pending)


def _say_not_lifted(amounts: Mapping[str, float], pending: Pause) -> Unclear:
    language, keys = language_of(pending), exhausted_limits(pending)
    spent = {row["key"]: row["spent"] for row in pending.get("meter") or ()}
    suggested = (pending.get("suggested") or {}).get(keys[0], 1)
    return unclear(
        "not_lifted",
        amounts=", ".join(format_amount(key, amount, language) for key, amount in amounts.items()),
        used=", ".join(format_amount(key, spent.get(key, 0), language) for key in keys),
        extend=translate_option("extend", "budget", language),
        example=example_amount(keys[0], suggested, language),
    )


def _read_effect_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _read_option(given, pending, "effect")
    if key and not rest:
        return Answer(key)
    if says_plain_yes(text):  # “go ahead” is a yes too, but not to whether it happened
        return Answer("happened")
    if read_word(text) == "no":
        return unclear("which_no", text)
    return _read_ending(text) or (unclear("happened", text) if text else None)


def _read_failure_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear | None:
    """Read an option; other words say what to do instead, and a plain yes does not say what to do."""
    text, key, rest = _read_option(given, pending, "failure")
    if key and (not rest or key == "replan"):
        return Answer(key, rest or text)
    if (said := read_word(text)) == "no":
        return Answer("stop", text)
    if said == "yes":
        return _choose_one(text, pending)
    return _read_ending(text) or _read_broken_json(text) or _read_words("replan", text)


def _read_early_answer(given: AnswerShape, pending: Pause) -> Answer | Unclear | None:
    text, key, rest = _read_option(given, pending, "early")
    if key and not rest:
        return Answer(key, text)
    return _read_ending(text) or (_choose_one(text, pending) if text else None)


def _choose_one(text: str, pending: Pause) -> Unclear:
    return unclear("choose", text, options=" / ".join(options(pending)))


Reader = Callable[[AnswerShape, Pause], Answer | Unclear | None]
READERS: dict[str, Reader] = {
    "plan": _read_plan_answer,
    "question": _read_question_answer,
    "tool": _read_tool_answer,
    "budget": _read_budget_answer,
    "effect": _read_effect_answer,
    "failure": _read_failure_answer,
    "early": _read_early_answer,
}
REFUSED: dict[str, AnswerKind] = {"question": "declined", "budget": "stop", "effect": "skip", "failure": "stop"}
"""The meaning of a button “reject” without words."""


def _words_of(given: AnswerShape) -> str:
    return given.text or scalar_text(given.fields.get("answer"))


def _read_button(given: AnswerShape, pending: Pause, read_edit: Reader) -> Answer | Unclear | None:
    """Return a button's decision on a plan or a call; words with it that do not agree are only said."""
    text, said = given.text, read_word(given.text)
    if given.verb == "edit" and not given.fields:
        shape = EDIT_SHAPES["plan" if pending["kind"] == "plan" else "tool"]
        return unclear("edit_alone", text or "edit", shape=shape)
    if given.verb in ("approve", "edit"):
        if text and said != "yes":
            words: AnswerKind = "say" if pending["kind"] == "plan" else "reject"
            return unclear("yes_but", text) if given.fields else Answer(words, text)
        return read_edit(given, pending) if given.fields else Answer("approve")
    if given.verb in ("reject", "ignore"):
        return Answer(said) if said in ("cancel", "later") else Answer("reject", "" if said == "no" else text)
    return None


def _read_option(given: AnswerShape, pending: Pause, about: str) -> tuple[str, Any, str]:
    """Return the words, the option that they name, and the text after it; a button “approve” names none."""
    text = "" if given.verb == "approve" else _match_choice(_words_of(given), options(pending))
    return (text, *match_option(text, about))


def _read_short_reply(text: str, pending: Pause) -> Answer | Unclear | None:
    """Read a text that is exactly an option of a plan or a call, or a short reply; at a plan, a “no” asks back."""
    option, rest = match_option(text, "plan")
    said = option if option and not rest else read_word(text)
    if said == "edit" or (said == "no" and pending["kind"] == "plan"):
        return unclear("what_instead")
    if said == "cancel" and _is_planned(text, pending):
        return unclear("carry_out_or_cancel", text)
    kinds: dict[str | None, AnswerKind] = {"yes": "approve", "no": "reject"}
    return Answer(kinds.get(said) or said) if said else None  # type: ignore[arg-type]


def _is_planned(text: str, pending: Pause) -> bool:
    """Return whether the word for the end stands in the plan or the call as well: “cancel” at “Cancel order 17”."""
    plan = pending.get("plan") or {}
    steps = [str(step.get("content")) for step in plan.get("steps") or ()]
    shown = fold_words(" ".join([str(plan.get("title") or ""), *steps, str(pending.get("tool") or "")]))
    return not text.startswith("/") and any(word in shown for word in ending_words(text))


def _read_ending(text: str) -> Answer | None:
    """Read words that end the run or postpone the question; they are the same at every pause."""
    said = read_word(text)
    return Answer(said) if said == "cancel" or said == "later" else None


def _read_words(kind: AnswerKind, text: str) -> Answer | None:
    return Answer(kind, text) if text.strip("\ufffd \n") else None


def _read_broken_json(text: str) -> Unclear | None:
    """Return why a text that was meant as JSON is no answer; None for all other texts."""
    if not strip_fence(text).lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        return unclear("broken_json", error=error)
    return unclear("json")


def _match_choice(text: str, choices: list[str]) -> str:
    """Return the option that `text` names by its words or number; otherwise the text itself."""
    for choice in choices:
        if fold_words(choice) == fold_words(text):
            return choice
    number = fold_words(text).strip("()#")
    if number.isdecimal() and len(number) < 4 and 1 <= int(number) <= len(choices):
        return choices[int(number) - 1]
    return text
