"""Leave a step: the updates with which it ends, waits or goes on, and the questions it waits for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from langchain_core.messages import AnyMessage
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit_step_finished, now
from donewhen.graph.pauses.call import EffectPause, ToolPause
from donewhen.graph.pauses.pause import load_pause
from donewhen.graph.pauses.question import FormPause, QuestionPause
from donewhen.graph.round import Work
from donewhen.graph.tools.effects import UnknownEffect
from donewhen.state.channels import Json, Step
from donewhen.state.consent import Argument, new_values
from donewhen.state.errors import ModelError
from donewhen.state.language.texts import option_texts, say
from donewhen.state.ledger import Amounts, add
from donewhen.state.people.payload import escape_unseen, sources_text
from donewhen.state.plan.steps import account_for_work, transcript_key
from donewhen.state.proof.journal import call_key, canonical_json
from donewhen.state.records import Ask, Call, StepChange, StepRecord
from donewhen.state.secrets import conceal_json
from donewhen.state.settings import Settings
from donewhen.state.statuses import FINAL, change_status

STAYS = ("waiting", "ready", "failed")
"""Statuses of steps that may continue later, a failed one if a person says so; their rounds are kept in the run."""
ApprovalReason = Literal[
    "each", "unlisted", "by_tool", "new", "again", "alike", "rejected", "differs", "hook", "approver"
]
"""Why a person must approve the call; keys of texts in the catalogues, but for the last two."""
Traces = Mapping[int, Sequence[Argument]]
"""The arguments of the call that is asked about, and of others that have one without a source, by position."""

MOST_SHOWN = 10
"""The most arguments whose sources a question lists; the call itself is shown in full."""


def leave(
    state: Step,
    runtime: Runtime[Settings],
    change: StepChange,
    messages: Sequence[AnyMessage] = (),
    spent: Mapping[str, float] | None = None,
    new_writes: Sequence[str] = (),
) -> Step:
    """Return the update with which a step ends or waits: its record, and its new rounds if it may continue.

    `messages`, `spent` and `new_writes` are those of this node, which returns the last two besides this update. When
    the step is done, the run accounts for its writes; until then, the step itself.
    """
    record: StepRecord = {**state["record"], **change_status(state["record"], change, now())}
    record = account_for_work(record, [*state.get("wrote", ()), *new_writes], add(state.get("spent"), spent))
    if (waiting := change.get("waiting")) and load_pause(waiting).counted:
        record["questions"] = record["questions"] + 1
    id = state["step"]["id"]
    update: Step = {"record": record, "steps": {id: record}}
    if record["status"] in STAYS:
        update["transcripts"] = {transcript_key(id, record): [*state.get("transcript", ()), *messages]}
    if messages:
        update["transcript"] = list(messages)
    if record["status"] == "done":
        update["settled_writes"] = record["wrote"]
    if record["status"] in FINAL:
        emit_step_finished(runtime, id, record)
    return update


@dataclass
class StepWork(Work[Step]):
    """The work of a step, as far as it has come in this node."""

    cleared: ClassVar = {"decision": None}
    state: Step
    runtime: Runtime[Settings]
    deps: Deps
    spent: Amounts = field(default_factory=dict)
    """What this node spent."""

    @property
    def place(self) -> str:
        """The step, in events."""
        return str(self.state["step"]["id"])

    @property
    def language(self) -> str:
        """The language of the runtime's texts."""
        return self.state["language"]

    def leave(self, obstacle: str) -> Step:
        """Leave to go on with more budget or time."""
        return leave(self.state, self.runtime, {"status": "ready", "code": ""}, spent=self.spent)

    def fail(self, error: ModelError) -> Step:
        """End the step, because its model gives no reply."""
        change: StepChange = {"status": "failed", "code": "model_error", "reason": str(error)}
        return leave(self.state, self.runtime, change, spent=self.spent)

    def give_up(self, reason: str, messages: Sequence[AnyMessage], code: str) -> Step:
        """End the step after too many corrections; `code` says what was wrong with the last reply, if that matters."""
        failed: StepChange = {"status": "failed", "code": code or "unusable", "reason": reason}
        return leave(self.state, self.runtime, failed, messages, self.spent)


def approval_pause(
    calls: Sequence[Call],
    state: Step,
    reason: ApprovalReason,
    traces: Traces,
    hook_question: str = "",
    conditions: str = "",
    numbers: Mapping[str, Sequence[str]] = MappingProxyType({}),
    failed: str = "",
) -> ToolPause:
    """Return the pause that asks to approve the first call together with the others.

    `hook_question` is what a hook asks about it, `conditions` what its tool says about it. `numbers` names,
    by tool, the arguments whose sums are shown above the list of a program's calls. `failed` says that an equal
    call was made before and failed.
    """
    call, *others = calls
    speak = partial(say, state["language"], "call")
    traced = traces.get(call.get("position", 0), ())
    why = "" if reason in ("hook", "approver") else speak(reason, new=_targets_text(new_values(traced)))
    if traced:
        why += f"\n{_sources_text(traced, state)}"
    asked = ((_permission_question(call["name"], state), why), (hook_question,), (conditions, failed))
    parts = (" ".join(filter(None, each)) for each in asked)
    question = ("\n" if hook_question else " ").join(filter(None, parts))
    if others:
        lines = "\n".join(f"- {_describe_call(other, traces, state)}" for other in others)
        heading = speak("batch")
        if "program" in call:
            heading = speak("program", line=call["program"]["line"], calls=_sums_text(calls, numbers))
        question = f"{question}\n{heading}\n{lines}"
    batch = [_row_of(each, traces.get(each.get("position", 0), ())) for each in others]
    more: Json = {"options": ["approve", "edit", "reject"]} | ({"batch": batch} if batch else {})
    more |= {"hook": hook_question} if hook_question else {}
    all_traced = [*traced, *(each for other in others for each in traces.get(other.get("position", 0), ()))]
    more |= {"new": new} if (new := new_values(all_traced)) else {}
    more |= {"sources": [each.row() for each in traced]} if traced else {}
    return ToolPause.ask(_pause_id("call", call, state), question, **_call_fields(call, state), **more)


def question_pause(state: Step, question: str, options: Sequence[str], **more: Any) -> QuestionPause:
    """Return the pause that asks people a question of the step; its id has a number, because `leave` counts them."""
    record, id = state["record"], state["step"]["id"]
    name = f"{transcript_key(id, record)}.q{record['questions'] + 1}"
    kind = FormPause if "schema" in more else QuestionPause
    return kind.ask(name, question, step=id, options=options, **more)


def relay_pause(call: Call, ask: Ask, state: Step, settings: Settings) -> ToolPause | QuestionPause:
    """Return the pause that asks people what the executor or tool of this call asks, in its words."""
    question = ask["question"]
    if ask["kind"] == "tool":
        question = f"{call['name']}: {_permission_question(ask['tool'], state)} {question}".strip()
    if why := ask.get("unreached"):
        question += f"\n\n{say(state['language'], 'call', 'unreached', name=call['name'], why=why)}"
    if ask["kind"] == "tool":
        position = 100 * call.get("position", 0) + len(call.get("answers") or ())
        inner_call: Call = {"name": ask["tool"], "args": ask["arguments"], "position": position}
        more: Json = {**_call_fields(inner_call, state), "options": ask["options"], "relayed": True}
        more |= {"answered_by": who} if (who := settings.approvers.get(ask["tool"])) else {}
        return ToolPause.ask(_pause_id("call", inner_call, state), question, **more)
    form: Json = {"schema": ask["schema"]} if "schema" in ask else {}
    return question_pause(state, question, ask["options"], relayed=True, **form)


def unknown_effect_pause(call: Call, state: Step, unknown: UnknownEffect, settings: Settings) -> EffectPause:
    """Return the pause that asks people whether a write took effect.

    Their answer may let the call be made again. So it is for whom a hook asked about the call, else for whom the
    settings name for these questions, or at least for this tool or for calls.
    """
    language, arguments = state["language"], conceal_json(unknown.arguments or call["args"])
    labels = "effect" if unknown.why == "unsure" else "once_more"
    happened, not_happened, _ = option_texts(language, labels)
    parts = {"call": f"{call['name']}({canonical_json(arguments)[:500]})", "step": unknown.step or "?"}
    question = say(language, "call", unknown.why, **parts, happened=happened, not_happened=not_happened)
    fields: Json = {**_call_fields(call, state), "arguments": conceal_json(call["args"]), "attempt": unknown.attempt}
    options, named = option_texts("en", labels), settings.answered_by
    audience = call.get("agreed", {}).get("answered_by") or named.get("effect")
    audience = audience or settings.approvers.get(call["name"]) or named.get("tool")
    fields |= {"answered_by": audience} if audience else {}
    return EffectPause.ask(_pause_id("effect", call, state), question, options=options, **fields)


def _call_fields(call: Call, state: Step) -> Json:
    """Return the fields that every pause about a call has."""
    return {"step": state["step"]["id"], "tool": call["name"], "arguments": call["args"]}


def _pause_id(what: Literal["call", "effect"], call: Call, state: Step) -> str:
    """Return the id of a pause about a call, made of the attempt, round, content and position of the call."""
    record, digest, position = state["record"], call_key(call["name"], call["args"])[:8], call.get("position", 0)
    name = f"{transcript_key(state['step']['id'], record)}.{what}{record['rounds']}.{digest}"
    return name + (f".{position}" if position else "")


def _permission_question(tool: str, state: Step) -> str:
    """Return the question whether the step may call the tool, with what the step is for."""
    purpose = " ".join(str(state["step"].get("content") or "").split())[:200]
    return say(state["language"], "call", "may", step=state["step"]["id"], purpose=purpose, tool=tool)


def _sums_text(calls: Sequence[Call], numbers: Mapping[str, Sequence[str]]) -> str:
    """Return how often each tool is called, and the sums of its amounts: `64 × refund (amount: 2,096.88)`."""
    parts = []
    for tool in dict.fromkeys(call["name"] for call in calls):
        arguments = [call["args"] for call in calls if call["name"] == tool]
        sums = (f"{name}: {sum(each.get(name) or 0 for each in arguments):,.2f}" for name in numbers.get(tool, ()))
        sums_text = ", ".join(sums)
        parts.append(f"{len(arguments)} × {tool}{f' ({sums_text})' if sums_text else ''}")
    return ", ".join(parts)


def _row_of(call: Call, traced: Sequence[Argument]) -> Json:
    row = {"position": call.get("position", 0), "tool": call["name"], "arguments": call["args"]}
    return {**row, "sources": [each.row() for each in traced]} if traced else row


def _describe_call(call: Call, traces: Traces, state: Step) -> str:
    text, traced = f"{call['name']} {canonical_json(call['args'])}", traces.get(call.get("position", 0))
    if not traced:
        return text
    new = say(state["language"], "call", "new", new=_targets_text(new_values(traced)))
    return f"{text} {new} {_sources_text(traced, state)}".rstrip()


def _sources_text(traced: Sequence[Argument], state: Step) -> str:
    return sources_text([each.row() for each in traced[:MOST_SHOWN]], state["language"]) + "."


def _targets_text(targets: Sequence[str]) -> str:
    """Return targets as text, with invisible characters escaped."""
    return ", ".join(f"`{escape_unseen(target)[:200]}`" for target in targets[:MOST_SHOWN])
