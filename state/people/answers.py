"""What an answer means, whatever client it comes from: its shape, the pause it is for, then the grammar.

Fails closed: what is not understood is an error text that says what is accepted, and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from donewhen.state.language.texts import say, unclear
from donewhen.state.people.grammar import Answer as Answer
from donewhen.state.people.grammar import may_replan, meaning
from donewhen.state.people.payloads import language_of
from donewhen.state.people.shapes import Given, decode_json, read_shape
from donewhen.state.records import Pause


@dataclass(frozen=True)
class Bundle:
    """Answers to several open questions: id → answer, each still to be read against its own pending."""

    answers: dict[str, Any]


def read_answer(value: Any, pending: Pause) -> Answer | Bundle | str:
    """What `value` means as an answer to `pending`, or a text: what was not understood, what is accepted.

    Never raises. The text is in the language of the pause; what is wrong with a client's JSON is said in English.
    A text that starts with "stale" means that the answer names another question or revision.
    """
    bundle = _bundle(decode_json(value), pending)
    if bundle is not None:
        return bundle
    given = read_shape(value)
    if pending["kind"] == "question" and isinstance(value, str) and not _is_decision(given):
        given = Given("text", value.strip())
    if isinstance(given, Given):
        if stale := _stale(given, pending):
            return stale
        read = meaning(given, pending)
        if isinstance(read, Answer):
            return read
        given = (read or unclear("no_answer")).said(language_of(pending))
    return say(language_of(pending), "accepted", "instead", problem=given, accepted=accepted(pending))


def accepted(pending: Pause) -> str:
    """What is accepted as an answer to this pause, in words of its language."""
    about, language = pending.get("about") or pending["kind"], language_of(pending)
    unplanned = about == "budget" and not may_replan(pending)
    said = say(language, "accepted", "unplanned" if unplanned else about)
    return said if about == "plan" else f"{said}{say(language, 'accepted', 'always')}"


def draft_of(value: Any) -> str:
    """The text of a plan or of arguments that a person edited, to be given back where it could not be taken; or ""."""
    given = read_shape(value)
    fields = given.fields if isinstance(given, Given) else {}
    drafts = [fields.get(key) for key in ("plan", "arguments")]
    return next((draft for draft in drafts if isinstance(draft, str) and draft.strip()), "")


def said_in(value: Any) -> str:
    """Return the words of an answer that is nothing but words; "" of any other."""
    given = read_shape(value)
    return given.text if isinstance(given, Given) and given.verb in ("text", "respond") else ""


def _bundle(value: Any, pending: Pause) -> Bundle | str | None:
    """Answers by id: `{"answers": {…}}`, or a dict whose keys are all ids of open questions."""
    if not isinstance(value, Mapping) or not value:
        return None
    known = {str(pending.get("id"))} | {str(other.get("id")) for other in pending.get("others") or []}
    answers = value.get("answers") if set(value) == {"answers"} else value
    if not isinstance(answers, Mapping) or not answers:
        return None
    if set(answers) <= known:
        return Bundle(dict(answers))
    if answers is value:
        return None
    unknown = ", ".join(sorted(str(name) for name in set(answers) - known))
    seen = "stale: that is answered already, perhaps in another window"
    return f"{seen}: nothing waits under {unknown}; open: {', '.join(sorted(known))}."


def _is_decision(given: Given | str) -> bool:
    """Whether a typed text is one of the shapes of a client, and not just words that hold JSON."""
    return isinstance(given, Given) and given.verb not in ("text", "list", "other")


def _stale(given: Given, pending: Pause) -> str | None:
    ids = {str(pending[key]) for key in ("id", "tool_call_id") if pending.get(key)}
    if given.ids - ids:
        return f"stale: {', '.join(sorted(given.ids - ids))} does not wait; {pending.get('id')} does."
    revision = pending.get("revision") or (pending.get("plan") or {}).get("revision")
    edited = decode_json(given.fields.get("plan"))
    named = {str(edited["revision"])} if isinstance(edited, Mapping) and edited.get("revision") else set()
    if revision is not None and (given.revisions | named) - {str(revision)}:
        return f"stale: the answer is for another revision of the plan; revision {revision} waits."
    return None
