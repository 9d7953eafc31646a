"""People: what a pause shows them and what their answer means, the one parser of every shape a client sends.

Fails closed: what is not understood is an error text that says what is accepted, and changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from donewhen.state.people.answers import READERS, Answer, accepted, may_replan
from donewhen.state.people.payloads import action_name, options, payload, question_text
from donewhen.state.people.reply import Reply, decode_json, read_reply
from donewhen.state.plan.text import plan_text

__all__ = [
    "Answer",
    "Bundle",
    "action_name",
    "may_replan",
    "options",
    "payload",
    "plan_text",
    "question_text",
    "read_answer",
]


@dataclass(frozen=True)
class Bundle:
    """Answers to several open questions: id → answer, each still to be read against its own pending."""

    answers: dict[str, Any]


def read_answer(value: Any, pending: Mapping[str, Any]) -> Answer | Bundle | str:
    """What `value` means as an answer to `pending`, or a text: what was not understood, what is accepted.

    Never raises. A text that starts with "stale" means that the answer names another question or revision.
    """
    kind = pending["kind"]
    bundle = _bundle(decode_json(value), pending)
    if bundle is not None:
        return bundle
    reply = read_reply(value)
    if kind == "question" and isinstance(value, str) and not _is_decision(reply):
        reply = Reply("text", value.strip())
    meaning: Answer | str = reply if isinstance(reply, str) else ""
    if isinstance(reply, Reply):
        meaning = _stale(reply, pending) or READERS[kind](reply, pending)
    if isinstance(meaning, Answer) or meaning.startswith("stale"):
        return meaning
    return f"{meaning or 'this is no answer to what was asked'}. Accepted: {accepted(pending)}."


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


def _is_decision(reply: Reply | str) -> bool:
    """Whether a typed text is one of the shapes of a client, and not just words that hold JSON."""
    return isinstance(reply, Reply) and reply.verb not in ("text", "list", "other")


def _stale(reply: Reply, pending: Mapping[str, Any]) -> str | None:
    ids = {str(pending[key]) for key in ("id", "tool_call_id") if pending.get(key)}
    if reply.ids - ids:
        return f"stale: {', '.join(sorted(reply.ids - ids))} does not wait; {pending.get('id')} does."
    revision = pending.get("revision") or (pending.get("plan") or {}).get("revision")
    if revision is not None and reply.revisions - {str(revision)}:
        return f"stale: the answer is for another revision of the plan; revision {revision} waits."
    return None
