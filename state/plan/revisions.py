"""What changed between an approved plan and a new one, as far as it needs consent: one line per difference."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from donewhen.state.language.texts import say
from donewhen.state.plan.order import needs_of
from donewhen.state.proof.claims import criteria_of

Speak = Callable[..., str]
"""A text of the catalogue's section `changed`, by its key."""


def difference(approved: Mapping[str, Any], plan: Mapping[str, Any], language: str = "en") -> list[str]:
    """Lines for what is new, gone, weaker, granted or in another order; [] if nothing needs consent.

    Needs none: words of title and speech, the order of tools, a tool less, a criterion more.
    """
    speak: Speak = partial(say, language, "changed")
    old = {step["id"]: step for step in approved["steps"]}
    new = {step["id"]: step for step in plan["steps"]}
    lines = [
        *_unproven(approved.get("done_when") or (), plan.get("done_when") or (), partial(speak, whose=speak("goal")))
    ]
    for id, step in new.items():
        lines += _changed(old[id], step, partial(speak, id=id)) if id in old else [_added(step, speak)]
    lines += [speak("dropped", id=id, content=step["content"]) for id, step in old.items() if id not in new]
    lines += _reordered(approved, plan, old.keys() & new.keys(), speak)
    if plan.get("schedule") != approved.get("schedule"):
        none = speak("none")
        lines.append(speak("schedule", before=approved.get("schedule") or none, after=plan.get("schedule") or none))
    return lines


def _added(step: Mapping[str, Any], speak: Speak) -> str:
    tools = speak("with", tools=", ".join(step["tools"])) if step.get("tools") else ""
    return speak("added", id=step["id"], content=step["content"]) + tools


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], speak: Speak) -> Iterator[str]:
    if before["content"] != after["content"]:
        yield speak("says", content=after["content"])
    if more := [tool for tool in after.get("tools") or () if tool not in (before.get("tools") or ())]:
        yield speak("needs", tools=", ".join(more))
    if before.get("executor") != after.get("executor"):
        yield speak("executor", name=after.get("executor") or speak("default"))
    if _declared(before) != _declared(after):
        needs = after.get("depends_on")
        yield speak("depends", steps=speak("all") if needs is None else ", ".join(needs) or speak("nothing"))
    yield from _unproven(criteria_of(before), criteria_of(after), partial(speak, whose=speak("step")))


def _unproven(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], speak: Speak) -> Iterator[str]:
    """What had to be proven and has not any more."""
    kept = [(criterion["text"], criterion.get("check")) for criterion in after]
    judged = [criterion["text"] for criterion in after if criterion.get("judge")]
    for criterion in before:
        if (criterion["text"], criterion.get("check")) not in kept:
            yield speak("unproven", text=criterion["text"])
        elif criterion.get("judge") and criterion["text"] not in judged:
            yield speak("unjudged", text=criterion["text"])


def _declared(step: Mapping[str, Any]) -> set[str] | None:
    return None if step.get("depends_on") is None else set(step["depends_on"])


def _reordered(approved: Mapping[str, Any], plan: Mapping[str, Any], both: set[str], speak: Speak) -> Iterator[str]:
    """Steps that declare nothing wait for all before them: another order is another plan."""
    needs, needed = needs_of(plan), needs_of(approved)
    for step in plan["steps"]:
        if step["id"] in both and step.get("depends_on") is None:
            now = set(needs[step["id"]])
            if lost := [id for id in needed[step["id"]] if id in both and id not in now]:
                yield speak("order", id=step["id"], steps=", ".join(lost))
