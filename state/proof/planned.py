"""Steps that the calls of their plan show to be done, so that no model is asked to say it."""

from collections.abc import Iterable, Mapping
from typing import Any

from donewhen.state.language.texts import say
from donewhen.state.proof.journal import call_key, canonical_json, has_succeeded
from donewhen.state.records import JournalEntry, StepClaim
from donewhen.state.secrets import conceal_json

RESULT_CHARS = 2_000
"""The most characters of a result that code makes; a model has to put a longer one into words."""
ARGUMENTS_CHARS = 300


def shown_by_calls(step: Mapping[str, Any]) -> bool:
    """Return whether every criterion of a step has a check, or names a planned call whose success proves it."""
    criteria = step.get("done_when") or ()
    return bool(step.get("calls") and criteria) and all(each.get("check") or each.get("call") for each in criteria)


def claim_of_calls(step: Mapping[str, Any], entries: Iterable[JournalEntry], language: str) -> StepClaim | None:
    """Return the claim that a step is done, made of what its planned calls returned; None if a model has to make it.

    The result is the plan's `message`, which the judge compares with what the calls returned; without one, it is what
    they returned. All calls must have been made as planned and have succeeded, and the step must have observed nothing
    else. A model has to read a result of several thousand characters, or one with images.
    """
    calls, made = step["calls"], [entry for entry in entries if entry["step"] == step["id"]]
    wanted = [call_key(call["tool"], call["arguments"]) for call in calls]
    if wanted != [call_key(entry["tool"], entry["arguments"]) for entry in made]:
        return None
    if not all(map(has_succeeded, made)):
        return None
    returned = "\n".join([say(language, "call", "returned"), *map(_line, made)])
    if len(returned) > RESULT_CHARS or any(each.get("images") for each in made):
        return None
    result = step.get("message") or returned
    named = {n: each["call"] for n, each in enumerate(step["done_when"], 1) if each.get("call")}
    goal_check = [
        {"criterion": n, "met": True, "evidence": [{"observation": made[call - 1]["id"]}]} for n, call in named.items()
    ]
    return {"kind": "finish_step", "arguments": {"result": result, "goal_check": goal_check}, "id": "", "planned": True}


def _line(entry: JournalEntry) -> str:
    arguments = canonical_json(conceal_json(entry["arguments"]))
    short = arguments if len(arguments) <= ARGUMENTS_CHARS else f"{arguments[:ARGUMENTS_CHARS]}…"
    return f"- {entry['tool']} {short}: {entry['text'].strip() or 'ok'}"
