"""Leave a step: the updates with which it ends or waits, and the corrections of unusable replies."""

from collections.abc import Mapping, Sequence

from langchain_core.messages import AnyMessage
from langgraph.runtime import Runtime

from donewhen.graph.events import emit, now
from donewhen.state.ledger import add
from donewhen.state.people.amounts import format_count
from donewhen.state.plan.steps import transcript_key
from donewhen.state.records import FINAL, StepRecord
from donewhen.state.run import Step
from donewhen.state.secrets import redact
from donewhen.state.settings import Settings

STAYS = ("waiting", "ready", "failed")
"""Statuses of steps that may continue later, a failed one if a person says so; their rounds are kept in the run."""


def leave(
    state: Step,
    runtime: Runtime[Settings],
    change: StepRecord,
    new: Sequence[AnyMessage] = (),
    spent: Mapping[str, float] | None = None,
    wrote: Sequence[str] = (),
) -> Step:
    """Return the update with which a step ends or waits: its record, and its new rounds if it may continue.

    `spent` and `wrote` are what this node spent and wrote, which it returns besides this update. The writes of a
    finished step are accounted for by the run; other writes stay with their attempt.
    """
    record: StepRecord = {**state["record"], **change}
    wrote_so_far = [*record.get("wrote", ()), *state.get("wrote", ()), *wrote]
    record["wrote"] = wrote_so_far
    record["spent"] = add(record.get("spent"), add(state.get("spent"), spent))
    id = state["step"]["id"]
    update: Step = {"record": record, "steps": {id: record}}
    if record["status"] in STAYS:
        update["transcripts"] = {transcript_key(id, record): [*state.get("transcript", ()), *new]}
    if new:
        update["transcript"] = list(new)
    if record["status"] == "done":
        update["settled_writes"] = wrote_so_far
    if record["status"] in FINAL:
        record["ended"] = now()
        told = {key: record[key] for key in ("status", "result", "reason")}
        emit(runtime, "step_finished", step=id, **told)
    return update


def send_correction(
    state: Step,
    runtime: Runtime[Settings],
    said: str,
    messages: Sequence[AnyMessage],
    spent: Mapping[str, float],
    change: StepRecord | None = None,
) -> Step:
    """Tell the model what was wrong; too many corrections in a row fail the step (X05).

    `said` is for people, `messages` are for the model, `change` is merged into the record.
    """
    record: StepRecord = {**state["record"], **(change or {}), "corrections": state["record"]["corrections"] + 1}
    said = redact(said[:1000])
    emit(runtime, "correction", step=state["step"]["id"], text=said[:500])
    count = record["corrections"]
    if count >= runtime.context.max_corrections:
        reason = f"{format_count(count, 'unusable reply')} in a row; the last: {said[:600]}"
        failed: StepRecord = {**record, "status": "failed", "code": "unusable", "reason": reason}
        return leave(state, runtime, failed, messages, spent)
    return {"record": record, "transcript": list(messages), "decision": None}
