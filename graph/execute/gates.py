"""What stands before a call, in this order: refusals by code, the budget, a person's approval. Pure."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

from langchain_core.tools import BaseTool

from donewhen.graph.executors.relay import open_ask
from donewhen.graph.people.pauses import pause
from donewhen.graph.tools.effects import UnknownEffect
from donewhen.graph.tools.paths import path_problem
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.consent import KnownTargets
from donewhen.state.graph_state import Json, Step
from donewhen.state.language.texts import say, shown_options
from donewhen.state.ledger import Amounts, exhausted
from donewhen.state.people.payloads import visible
from donewhen.state.plan.modes import PROMOTED
from donewhen.state.plan.steps import settled, transcript_key
from donewhen.state.proof.journal import call_key, canonical
from donewhen.state.reading.decisions import LOOKUPS
from donewhen.state.records import FrozenCall, Pause, StepRecord
from donewhen.state.secrets import conceal_json
from donewhen.state.settings import Settings

Why = Literal["each", "unlisted", "asks", "new"]
"""Why a person must approve a call: texts of the catalogues."""
New = Mapping[int, Sequence[str]]
"""Targets of calls that no person knows of, by the position of the call in its reply."""

MOST_SHOWN = 10
"""New targets of one call that its question names; the call itself is shown whole."""


class StepTools(Protocol):
    """What running calls needs to know of tools; a Toolbox, or an executor that works by itself."""

    def get(self, name: str) -> BaseTool | None:
        """The tool of this name, or None."""

    def effect(self, name: str) -> EffectKind:
        """What it does to the world."""

    def asks(self, name: str, arguments: Mapping[str, Any] | None = None) -> bool | None:
        """Whether the tool says that such a call asks, or that it does not; None: neither."""

    def new_targets(self, name: str, arguments: Mapping[str, Any], known: KnownTargets) -> list[str]:
        """The targets of a call that a person does not know of."""

    def targets(self, name: str, arguments: Mapping[str, Any]) -> set[str]:
        """What the call is about: files, addresses, ids."""


def refusal(call: FrozenCall, state: Step, settings: Settings, tool: BaseTool | None = None) -> str | None:
    """Why the call is not made at all, in words for the model; None if it may be. What a person approved is made."""
    if call["name"] in LOOKUPS or "response" in call:
        return None
    if "refused" in call:
        return f"the user rejected this call: {call['refused']}"
    if outside := path_problem(call["args"], settings.profile.allowed_paths, tool):
        return outside
    if "approved" in call or "known" in call:
        return None
    rejected = {**state.get("rejected", {}), **state["record"].get("rejected", {})}
    if why := rejected.get(call_key(call["name"], call["args"])):
        return f"the user rejected this very call before: {why}"
    return None


def stop(
    calls: Sequence[FrozenCall], state: Step, left: Amounts, tools: StepTools, settings: Settings, new: New
) -> StepRecord | None:
    """Why the first of these calls must wait: the record's change with which the step leaves. None: make it now."""
    call = calls[0]
    if settled(call):
        return None
    if key := exhausted(left, ("tool_calls",)):
        return {"status": "ready", "code": f"allowance:{key}"}
    if "approved" in call or "known" in call:
        return None
    if why := why_asked(call, state, tools, settings, new):
        if why == "unlisted" and "write" in state.get("promotable", ()):
            wanted = f"{call['name']}({canonical(conceal_json(call['args']))[:500]})"
            reason = f"it takes {wanted}, which its plan, that nobody was shown, does not list"
            return {"status": "failed", "code": f"{PROMOTED}write", "reason": reason, "calls": []}
        return {"status": "waiting", "waiting": _approval_pause(calls, state, tools, settings, why, new)}
    return None


def why_asked(call: FrozenCall, state: Step, tools: StepTools, settings: Settings, new: New) -> Why | None:
    """Why a person must approve this very call; None if nobody has to."""
    if settings.approvals == "each" and (call.get("delegated") or tools.effect(call["name"]) != "read"):
        return "each"
    if call.get("delegated") or settings.approvals == "never" or tools.effect(call["name"]) == "read":
        return None  # The plan that was approved names the executor.
    if call["name"] not in state.get("granted_tools", ()):
        return "unlisted"
    if settings.approvals != "shown" or (asks := tools.asks(call["name"], call["args"])) is False:
        return None
    return "asks" if asks else "new" if new.get(call.get("position", 0)) else None


def by_targets(call: FrozenCall, state: Step, tools: StepTools, settings: Settings) -> bool:
    """Whether it is the targets of a call that decide whether a person must approve it."""
    return (
        settings.approvals == "shown"
        and not call.get("delegated")
        and call["name"] not in LOOKUPS
        and not settled(call)
        and not {"approved", "known"} & call.keys()
        and tools.effect(call["name"]) != "read"
        and call["name"] in state.get("granted_tools", ())
        and tools.asks(call["name"], call["args"]) is None
    )


def _approval_pause(
    calls: Sequence[FrozenCall], state: Step, tools: StepTools, settings: Settings, why: Why, new: New
) -> Pause:
    """Asks about the first call, and with it about all others of the same reply that its plan covers and that ask."""
    call, together = calls[0], ("asks", "new")
    batch = [other for other in calls[1:] if why in together and not {"approved", "known"} & other.keys()]
    batch = [other for other in batch if why_asked(other, state, tools, settings, new) in together]
    batch = [other for other in batch if not settled(other)]
    speak = partial(say, state.get("language", "en"), "call")
    unknown = list(new.get(call.get("position", 0), ())) if why == "new" else []
    question = f"{_may(call['name'], state)} {speak(why, new=_listed(unknown))}"
    if batch:
        lines = "\n".join(f"- {_line(other, new, state)}" for other in batch)
        question = f"{question}\n{speak('batch')}\n{lines}"
    unknown += [each for other in batch for each in new.get(other.get("position", 0), ())]
    more: Json = {"batch": [_short(other) for other in batch]} if batch else {}
    more |= {"new": list(dict.fromkeys(unknown))} if unknown else {}
    return _pause("tool", call, state, question, options=["approve", "edit", "reject"], **more)


def _line(call: FrozenCall, new: New, state: Step) -> str:
    said, unknown = f"{call['name']} {canonical(call['args'])}", new.get(call.get("position", 0))
    return f"{said} {say(state.get('language', 'en'), 'call', 'new', new=_listed(unknown))}" if unknown else said


def _listed(targets: Sequence[str]) -> str:
    """Targets as they are shown: what cannot be seen in them is written as an escape."""
    return ", ".join(f"`{visible(target)[:200]}`" for target in targets[:MOST_SHOWN])


def _may(tool: str, state: Step) -> str:
    """Whether the step may call the tool, and what the step is for."""
    purpose = " ".join(str(state["step"].get("content") or "").split())[:200]
    return say(state.get("language", "en"), "call", "may", step=state["step"]["id"], purpose=purpose, tool=tool)


def _short(call: FrozenCall) -> Json:
    return {"position": call.get("position", 0), "tool": call["name"], "arguments": call["args"]}


def relayed(call: FrozenCall, state: Step) -> StepRecord:
    """The record's change for an executor that asks: its question or its own call is put to the person as ours are."""
    ask, record, id = open_ask(call), state["record"], state["step"]["id"]
    assert ask is not None
    number = record.get("questions", 0) + 1
    if ask["kind"] == "tool":
        position = 100 * call.get("position", 0) + len(call.get("answers") or ())
        its: FrozenCall = {"name": ask["tool"], "args": ask["arguments"], "position": position}
        question = f"{call['name']}: {_may(ask['tool'], state)} {ask['question']}".strip()
        question = _once_more(call, question, state)
        waits: Pause = {**ask, **_pause("tool", its, state, question, options=ask["options"], relayed=True)}
        return {"status": "waiting", "waiting": waits, "calls": [call]}
    name, options = f"{transcript_key(id, record)}.q{number}", ask["options"]
    question = _once_more(call, ask["question"], state)
    waits = {**ask, **pause("question", name, question, step=id, options=options, relayed=True)}
    return {"status": "waiting", "waiting": waits, "calls": [call], "questions": number}


def _once_more(call: FrozenCall, question: str, state: Step) -> str:
    """The question, and why it is asked again if the answer could not be brought to who asked."""
    ask = open_ask(call)
    if not ask or not (why := ask.get("unreached")):
        return question
    return f"{question}\n\n{say(state.get('language', 'en'), 'call', 'unreached', name=call['name'], why=why)}"


def unknown_effect(call: FrozenCall, state: Step, unknown: UnknownEffect) -> StepRecord:
    """The record's change for a write whose like may have happened, or happened where nobody accounts for it."""
    language, about = state.get("language", "en"), conceal_json(unknown.arguments or call["args"])
    happened, not_happened, _ = shown_options(language, "effect")
    said = {"call": f"{call['name']}({canonical(about)[:500]})", "step": unknown.step or "?"}
    question = say(language, "call", unknown.why, **said, happened=happened, not_happened=not_happened)
    waiting = _pause("effect", call, state, question, options=shown_options("en", "effect"), attempt=unknown.attempt)
    return {"status": "waiting", "waiting": {**waiting, "arguments": conceal_json(call["args"])}}


def _pause(kind: Literal["tool", "effect"], call: FrozenCall, state: Step, question: str, **more: Any) -> Pause:
    """A pause about a call. The id names attempt, round, content and position of the call."""
    step, record, what = state["step"]["id"], state["record"], "call" if kind == "tool" else kind
    digest, position = call_key(call["name"], call["args"])[:8], call.get("position", 0)
    id = f"{transcript_key(step, record)}.{what}{record['rounds']}.{digest}" + (f".{position}" if position else "")
    return pause(kind, id, question, step=step, tool=call["name"], arguments=call["args"], **more)
