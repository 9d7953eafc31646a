"""What an answer means, whatever client it comes from: its shape, the pause it is for, then the grammar.

Fails closed: what is not understood is an error text that says what is accepted, and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from donewhen.state.people.grammar import Answer as Answer
from donewhen.state.people.grammar import may_replan, meaning
from donewhen.state.people.shapes import Given, decode_json, read_shape

ACCEPTED = {
    "plan": "approve, an edited plan, reject with what should be different, or cancel",
    "question": "the answer as text, or the number of an option",
    "tool": "approve, edited arguments, “no” and why, or a response to use instead of running it",
    "budget": "extend (with amounts, like “extend rounds 5”), deliver, replan, or stop",
    "effect": "“it happened”, “it did not”, or “skip”",
    "failure": "“replan”, “retry”, “deliver what there is”, “stop”, or what should be done instead",
    "early": "“go on” or “leave it out”",
}


@dataclass(frozen=True)
class Bundle:
    """Answers to several open questions: id → answer, each still to be read against its own pending."""

    answers: dict[str, Any]


def read_answer(value: Any, pending: Mapping[str, Any]) -> Answer | Bundle | str:
    """What `value` means as an answer to `pending`, or a text: what was not understood, what is accepted.

    Never raises. A text that starts with "stale" means that the answer names another question or revision.
    """
    bundle = _bundle(decode_json(value), pending)
    if bundle is not None:
        return bundle
    given = read_shape(value)
    if pending["kind"] == "question" and isinstance(value, str) and not _is_decision(given):
        given = Given("text", value.strip())
    read: Answer | str = given if isinstance(given, str) else ""
    if isinstance(given, Given):
        read = _stale(given, pending) or meaning(given, pending)
    if isinstance(read, Answer) or read.startswith("stale"):
        return read
    return f"{read or 'this is no answer to what was asked'}. Accepted: {accepted(pending)}."


def accepted(pending: Mapping[str, Any]) -> str:
    """What is accepted as an answer to this pause, in words."""
    said = ACCEPTED[pending.get("about") or pending["kind"]]
    said = said if pending["kind"] != "budget" or may_replan(pending) else said.replace("replan, ", "")
    return said if "cancel" in said else f"{said}; “cancel” ends the run, “later” leaves this open"


def draft_of(value: Any) -> str:
    """The text of a plan or of arguments that a person edited, to be given back where it could not be taken; or ""."""
    given = read_shape(value)
    fields = given.fields if isinstance(given, Given) else {}
    drafts = [fields.get(key) for key in ("plan", "arguments")]
    return next((draft for draft in drafts if isinstance(draft, str) and draft.strip()), "")


def _bundle(value: Any, pending: Mapping[str, Any]) -> Bundle | str | None:
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
    return f"stale: nothing waits under {unknown}; open: {', '.join(sorted(known))}."


def _is_decision(given: Given | str) -> bool:
    """Whether a typed text is one of the shapes of a client, and not just words that hold JSON."""
    return isinstance(given, Given) and given.verb not in ("text", "list", "other")


def _stale(given: Given, pending: Mapping[str, Any]) -> str | None:
    ids = {str(pending[key]) for key in ("id", "tool_call_id") if pending.get(key)}
    if given.ids - ids:
        return f"stale: {', '.join(sorted(given.ids - ids))} does not wait; {pending.get('id')} does."
    revision = pending.get("revision") or (pending.get("plan") or {}).get("revision")
    if revision is not None and given.revisions - {str(revision)}:
        return f"stale: the answer is for another revision of the plan; revision {revision} waits."
    return None
