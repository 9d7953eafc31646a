"""The act node: runs the calls of one decision, in order, behind the gates of approval, repetition and effects."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from graph.calling import CallResult, call_tool
from graph.context import Deps, settings_of
from graph.effects import Effect, Ledger, effect_key, files_of, perform
from graph.events import emit, observed
from graph.leaving import leave, left_of, seen_before
from graph.observing import keep, noted, thread_of, whole
from graph.pauses import call_id
from graph.toolbox import Toolbox
from graph.transcript import shown
from state.journal import call_key, canonical, repetitions
from state.marking import mark
from state.run import Json, Step
from state.settings import Settings

POINTED_OUT, REFUSED = 2, 4
"""The same call with the same result: at the 2nd it is said, the 4th is not made."""


@dataclass
class Work:
    """What one entry of the node has done so far."""

    state: Step
    number: int
    entries: list[Json] = field(default_factory=list)
    messages: list[tuple[Json, str]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    made: int = 0
    seconds: float = 0.0


async def act(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Run the calls; stop at the first that needs a person or that the budget does not allow."""
    record = state["record"]
    calls: list[Json] = list(record["calls"])
    work = Work(state, record["observed"])
    toolbox = deps.tools_for(state["step"].get("executor"), settings_of(runtime))
    done = 0
    while done < len(calls):
        group = _group(calls[done:], toolbox)
        stop = _stop(group[0], work, toolbox, runtime)
        if stop is not None:
            return _halted(work, calls[done:], stop, runtime)
        left = left_of(state).get("tool_calls")
        room = len(group) if left is None else max(1, min(len(group), int(left) - work.made))
        results = await asyncio.gather(
            *(_one(call, done + n, work, toolbox, runtime, config) for n, call in enumerate(group[:room]))
        )
        for call, result in zip(group[:room], results, strict=True):
            if result is None:
                return _halted(work, calls[done:], _unknown(call, state), runtime)
            await _note(call, result, work, toolbox, runtime)
            done += 1
    update = _update(work)
    return {**update, "record": {**record, "calls": [], "observed": work.number, "corrections": 0, "silent": 0}}


def _group(calls: Sequence[Json], toolbox: Toolbox) -> Sequence[Json]:
    """Calls that may run at the same time: a row of reads, or one of anything else."""
    reads = 0
    while reads < len(calls) and toolbox.effect(calls[reads]["name"]) == "read":
        reads += 1
    return calls[: max(reads, 1)]


def _stop(call: Json, work: Work, toolbox: Toolbox, runtime: Runtime[Settings]) -> Json | None:
    """Why the call may not be made now: the record's change with which the step leaves."""
    left = left_of(work.state)
    if call["name"] != "recall" and left.get("tool_calls", 1) - work.made < 1:
        return {"status": "ready", "code": "allowance:tool_calls"}
    if any(key in call for key in ("approved", "refused", "response", "known")) or _refused_before(call, work.state):
        return None
    if not needs_approval(call, work.state, toolbox, settings_of(runtime)):
        return None
    return {"status": "waiting", "waiting": _approval_pause(call, work.state), "corrections": 0}


def needs_approval(call: Mapping[str, Any], state: Step, toolbox: Toolbox, settings: Settings) -> bool:
    """Whether a person must approve this very call: it changes something, and nobody approved its tool for this step."""
    if call["name"] == "recall" or toolbox.effect(call["name"]) == "read" or settings.approvals == "never":
        return False
    return settings.approvals == "each" or call["name"] not in state.get("granted_tools", ())


def _refused_before(call: Json, state: Step) -> bool:
    return call_key(call["name"], call["args"]) in state["record"].get("rejected", ())


def _approval_pause(call: Json, state: Step) -> Json:
    id = state["step"]["id"]
    digest = call_key(call["name"], call["args"])[:8]
    return {
        "id": f"{id}.call{state['record']['rounds']}.{digest}",
        "kind": "tool",
        "name": "approve_tool",
        "tool_call_id": call_id(),
        "question": f"May step {id} call {call['name']}?",
        "options": ["approve", "edit", "reject"],
        "step": id,
        "tool": call["name"],
        "arguments": call["args"],
    }


def _unknown(call: Json, state: Step) -> Json:
    id = state["step"]["id"]
    waiting = {
        "id": f"{id}.effect{state['record']['rounds']}.{call_key(call['name'], call['args'])[:8]}",
        "kind": "effect",
        "name": "resolve_effect",
        "tool_call_id": call_id(),
        "question": f"The call {call['name']}({canonical(call['args'])[:500]}) was interrupted; it may have taken effect. Did it happen?",
        "options": ["it happened", "it did not", "skip"],
        "step": id,
        "tool": call["name"],
        "arguments": call["args"],
    }
    return {"status": "waiting", "waiting": waiting}


async def _one(
    call: Json, position: int, work: Work, toolbox: Toolbox, runtime: Runtime[Settings], config: RunnableConfig
) -> CallResult | None:
    """Make one call, or say without making it why not. None: its effect is unknown."""
    state, settings, name = work.state, settings_of(runtime), call["name"]
    if "refused" in call or ("approved" not in call and _refused_before(call, state)):
        reason = call.get("refused", "this very call was rejected before")
        return CallResult(ok=False, text=f"Not run: the user rejected this call: {reason}", seconds=0.0)
    if "response" in call:
        return CallResult(ok=True, text=f"Not run; the user answered instead: {call['response']}", seconds=0.0)
    if name == "recall":
        return await _recall(call, work, runtime)
    if repetitions(seen_before(state), name, call["args"]) >= REFUSED - 1:
        text = f"Not run: {name} with these arguments gave the same result {REFUSED - 1} times. Do something else."
        return CallResult(ok=False, text=text, seconds=0.0)
    if (problem := _path_problem(name, call["args"], toolbox, settings)) is not None:
        return CallResult(ok=False, text=problem, seconds=0.0)
    tool, id = toolbox.get(name), state["step"]["id"]
    assert tool is not None
    record, thread = state["record"], thread_of(runtime)
    key = effect_key(
        thread,
        state.get("turn", 1),
        id,
        record["attempt"],
        record["rounds"],
        call.get("position", position),
        name,
        call["args"],
    )
    emit(runtime, "tool_started", step=id, tool=name, arguments=call["args"])
    effect = Effect(key, tool, call["args"], toolbox.effect(name), call.get("known"))
    tagged = {**config, "metadata": {**(config.get("metadata") or {}), "step": id, "attempt": record["attempt"]}}
    return await perform(
        Ledger(runtime.store, thread, branch_of(config)),
        effect,
        lambda: call_tool(
            tool, call["args"], timeout=settings.tool_seconds, config=tagged, idempotency_key=key, call_id=call["id"]
        ),  # type: ignore[arg-type]
    )


def branch_of(config: RunnableConfig) -> str:
    """Names this dispatch of the step: a crash re-enters it, a fork of the thread's history makes another."""
    return str((config.get("configurable") or {}).get("checkpoint_ns", "")).split("|")[0]


def _path_problem(name: str, args: Mapping[str, Any], toolbox: Toolbox, settings: Settings) -> str | None:
    allowed = settings.profile.allowed_paths
    if not allowed:
        return None
    outside = [
        target
        for target in toolbox.targets(name, args)
        if not any(target == path.rstrip("/") or target.startswith(path.rstrip("/") + "/") for path in allowed)
    ]
    return f"Not run: {', '.join(outside)} lies outside of {', '.join(allowed)}." if outside else None


async def _recall(call: Json, work: Work, runtime: Runtime[Settings]) -> CallResult:
    wanted = str(call["args"]["observation"]).strip().strip("[]")
    offset = call["args"].get("offset") or 0
    entry = next((e for e in seen_before(work.state) if e["id"] == wanted), None)
    if entry is None:
        known = ", ".join(e["id"] for e in seen_before(work.state)[-15:])
        return CallResult(
            ok=False, text=f"There is no observation {wanted[:40]!r}; there are: {known or 'none'}.", seconds=0.0
        )
    full = await whole(runtime.store, thread_of(runtime), work.state.get("turn", 1), entry)
    piece = full["text"][offset : offset + settings_of(runtime).observation_chars - 200]
    return CallResult(
        ok=True,
        text=f"({wanted}, characters {offset} to {offset + len(piece)} of {entry['length']})\n{piece}",
        seconds=0.0,
    )


async def _note(call: Json, result: CallResult, work: Work, toolbox: Toolbox, runtime: Runtime[Settings]) -> None:
    """Record the observation and what the model will see of it."""
    state, settings, name = work.state, settings_of(runtime), call["name"]
    limit = settings.observation_chars
    if name == "recall":
        head = f"recall {'ok' if result.ok else 'error'}"
        work.messages.append((call, f"{head}\n<tool_output>\n{mark(result.text)}\n</tool_output>"))
        return
    work.number += 1
    work.made += 1
    work.seconds += result.seconds
    entry = noted(state, work.number, call, result, toolbox.effect(name), toolbox.targets(name, call["args"]))
    hint = _repeated([*seen_before(state), *work.entries, entry], call)
    if call.get("edited"):
        hint = f"Note: the user changed the arguments to {canonical(call['args'])[:500]}. {hint}"
    work.messages.append((call, shown(entry, limit, hint)))
    work.entries.append(await keep(runtime.store, thread_of(runtime), state.get("turn", 1), entry))
    work.files.update((files_of(result) or {}).get("files", {}))
    observed(runtime, entry)


def _repeated(journal: Sequence[Json], call: Json) -> str:
    count = repetitions(journal, call["name"], call["args"])
    if count < POINTED_OUT:
        return ""
    return f"Note: this call gave the same result {count} times; the {REFUSED}th time it will be refused. Do something else."


def _messages(work: Work) -> list[AnyMessage]:
    """The results as the model gets them: one per native call, or all in one message."""
    native = [ToolMessage(text, tool_call_id=call["id"]) for call, text in work.messages if call.get("native")]
    printed = [text for call, text in work.messages if not call.get("native")]
    return [*native, *([HumanMessage("\n\n".join(printed))] if printed else [])]


def _update(work: Work) -> Step:
    spent = {"tool_calls": work.made, "active_seconds": work.seconds}
    return {"journal": work.entries, "transcript": _messages(work), "spent": spent, "files": work.files}


def _halted(work: Work, rest: Sequence[Json], change: Json, runtime: Runtime[Settings]) -> Step:
    """Leave before `rest` is run: what was run stays, the rest is frozen as it will run."""
    update = _update(work)
    position = len(work.state["record"]["calls"]) - len(rest)
    frozen = [{"position": call.get("position", position + n), **call} for n, call in enumerate(rest)]
    waiting = change.get("waiting")
    if waiting and waiting["kind"] in ("tool", "effect"):
        waiting = {**waiting, "questions": 1}
    left = leave(
        work.state, runtime, {**change, "calls": frozen, "observed": work.number}, update["transcript"], update["spent"]
    )
    return {**update, **left}
