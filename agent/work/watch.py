"""Watch a run from any process: events are made from its checkpoints, so none is missed if a worker dies.

These are speech, plan, steps, observations, interjections, questions and the outcome. Speech comes as one event per
message; its pieces and the meters are only in the run's own stream. Within one poll, a step's speech comes before its
observations.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.types import StateSnapshot

from donewhen.agent.run import Run
from donewhen.agent.stream import clean_event, end_event
from donewhen.graph.events import EventPlace, stamp_event
from donewhen.state.channels import SAID, TASK, Json
from donewhen.state.errors import ConfigError, StorageError
from donewhen.state.plan.order import ancestors
from donewhen.state.statuses import FINAL

POLL = 0.5
"""Seconds between two polls."""
PATIENCE = 60.0
"""Seconds to wait for a storage that could be read before: its server restarts, say."""
STARTED = ("running", "waiting", "ready", "done", "failed", "exhausted")
CURSOR: dict[str, type] = {
    "of": str,
    "turn": int,
    "plan": str,
    "said": str,
    "observed": dict,
    "steps": dict,
    "asked": str,
}
ReadRun = Callable[[], Awaitable[tuple[Run, StateSnapshot]]]


async def watch_run(
    read_run: ReadRun, cursor: str | None, poll: float = POLL, secrets: Sequence[str] = ()
) -> AsyncIterator[tuple[Json, str]]:
    """Yield (event, cursor after it) until the outcome, or until workers leave the run to a person.

    Raises ConfigError for an invalid cursor, or one of another thread; StorageError if the storage stays away.
    """
    seen, place, patient_until = _read_cursor(cursor), EventPlace(), 0.0
    while True:
        try:
            run, snapshot = await read_run()
        except StorageError:
            if time.monotonic() > patient_until:
                raise
            await asyncio.sleep(poll)
            continue
        patient_until = time.monotonic() + PATIENCE
        if (of := seen.get("of", run.thread_id)) != run.thread_id:
            raise ConfigError(
                f"the cursor is of thread {of!r}, not of {run.thread_id!r}: watch without one, or with its own"
            )
        for event in _new_events(run, snapshot, seen):
            place.turn = seen.get("turn", 1)
            stamped = stamp_event(run.thread_id, clean_event(event, secrets), place)
            yield stamped, json.dumps(seen, separators=(",", ":"))
            if event["type"] == "outcome":
                return
        if run.outcome is None and run.status == "running" and run.problem:
            stamped = stamp_event(run.thread_id, clean_event(end_event(run), secrets), place)
            yield stamped, json.dumps(seen, separators=(",", ":"))
            return
        await asyncio.sleep(poll)


def _read_cursor(cursor: str | None) -> Json:
    try:
        seen = json.loads(cursor) if cursor else {}
    except (ValueError, TypeError):
        seen = None
    if not isinstance(seen, dict) or (seen and {key: type(seen.get(key)) for key in CURSOR} != CURSOR):
        raise ConfigError(f"{str(cursor)[:60]!r} is no cursor of a watched run: pass one that came with an event")
    return seen


def _new_events(run: Run, snapshot: StateSnapshot, seen: Json) -> Iterator[Json]:
    """Yield the new events in the state; when one is yielded, the cursor `seen` already includes it."""
    values = snapshot.values
    turn = int(values.get("turn") or 0)
    if run.status == "queued" or not turn:
        return
    if seen.get("turn") != turn:
        seen.clear()
        seen.update(of=run.thread_id, turn=turn, plan="", said="", observed={}, steps={}, asked="")
        yield {"type": "started", "thread_id": run.thread_id, "goal": run.goal}
    plan = (values.get("approval") or {}).get("plan") or run.plan
    speech = _messages_by_step(snapshot, run, plan)
    for message in [message for step, message in speech if step is None]:
        yield from _speech_event(None, message, seen)
    if plan and seen["plan"] != plan["revision"]:
        seen["plan"] = plan["revision"]
        yield {"type": "plan", "plan": plan}
    steps = _Steps(run, plan or {}, speech, seen)
    for entry in _journal(snapshot):
        if entry.get("heard") and "at" not in entry["heard"]:
            continue  # it came too late, and is told with the end
        if entry.get("heard"):
            yield from steps.events_before({"step": entry["heard"].get("step") or "", "at": _moment(entry)})
            yield from _heard_event(entry, seen)
            continue
        name, _, number = str(entry["id"]).rpartition(".")
        if number.isdecimal() and int(number) > seen["observed"].get(name, 0):
            yield from steps.events_before(entry)
            seen["observed"][name] = int(number)
            yield _observation_event(entry)
    for id in run.steps:
        yield from steps.end_events(id)
    asked = "".join((run.pending[0]["id"], run.pending[0].get("reply", ""), run.problem or "")) if run.pending else ""
    if run.status == "waiting" and seen["asked"] != asked:
        seen["asked"] = asked
        yield dict(end_event(run))
    if run.outcome is not None:
        for row in run.receipt.get("late") or () if run.receipt else ():
            yield {"type": "late", "text": row["text"], "at": row["at"]}
        yield dict(end_event(run))


@dataclass(frozen=True)
class _Steps:
    """Yields the events of steps in the order in which they happened, even if several appear in one poll."""

    run: Run
    plan: Mapping[str, Any]
    speech: Sequence[tuple[str | None, AnyMessage]]
    seen: Json

    def events_before(self, entry: Mapping[str, Any]) -> Iterator[Json]:
        """Yield the events that come before an observation: the end of other steps, and the start of its own."""
        for id, record in self.run.steps.items():
            if (at := _second(record.get("ended"))) and at < _second(entry["at"]):
                yield from self.end_events(id)
        yield from self.start_events(entry["step"])

    def start_events(self, id: str) -> Iterator[Json]:
        """Yield the end of a step's dependencies, its start, and its speech, if they are new."""
        found = next((step for step in self.plan.get("steps", ()) if step["id"] == id), None)
        if found and id not in self.seen["steps"]:
            for other in ancestors(self.plan, id):
                yield from self.end_events(other)
            self.seen["steps"][id] = "running"
            yield {"type": "step_started", "step": id, "content": found["content"]}
        for message in [message for step, message in self.speech if step == id]:
            yield from _speech_event(id, message, self.seen)

    def end_events(self, id: str) -> Iterator[Json]:
        """Yield the start and the end of a step, if they happened and are new."""
        record = self.run.steps.get(id) or {}
        has_ended = record.get("status") in FINAL
        if has_ended and self.seen["steps"].get(id) == record["status"]:
            return
        if record.get("status") in STARTED:
            yield from self.start_events(id)
        if has_ended:
            self.seen["steps"][id] = record["status"]
            texts = {"result": record.get("result", ""), "reason": record.get("reason", "")}
            yield {"type": "step_finished", "step": id, "status": record["status"], **texts}


def _moment(entry: Mapping[str, Any]) -> str:
    """Return when something was observed, or when the run heard an interjection."""
    return _second((entry.get("heard") or {}).get("at") or entry["at"])


def _second(at: str | None) -> str:
    """Return a time cut to whole seconds, as records have it."""
    return (at or "")[:19]


def _speech_event(step: str | None, message: AnyMessage, seen: Json) -> Iterator[Json]:
    """Yield the event of a message, unless it was yielded before."""
    if _is_new(str(message.id), seen):
        yield {"type": "speech", "step": step, "text": f"{message.text.strip()}\n", "id": message.id}


def _heard_event(entry: Mapping[str, Any], seen: Json) -> Iterator[Json]:
    """Yield the event of an interjection that the run heard, unless it was yielded before."""
    heard = entry["heard"]
    if _is_new(heard["key"], seen):
        yield {"type": "heard", "step": heard.get("step"), "text": entry["text"], "at": entry["at"]}


def _is_new(id: str, seen: Json) -> bool:
    """Return whether this message is new, and add it to the cursor, which has eight characters of each id."""
    mark, known = id[-8:], seen.setdefault("said", "")
    if mark in (known[at : at + 8] for at in range(0, len(known), 8)):
        return False
    seen["said"] = known + mark
    return True


def _messages_by_step(
    snapshot: StateSnapshot, run: Run, plan: Mapping[str, Any] | None
) -> list[tuple[str | None, AnyMessage]]:
    """Return the messages since the request, each with its step (None for planning)."""
    messages = list(snapshot.values.get("messages") or ())
    asked = [at for at, each in enumerate(messages) if isinstance(each, HumanMessage) and each.text.strip() == run.goal]
    ids = [step["id"] for step in (plan or {}).get("steps", ())]
    cards: dict[str, str | None] = {}
    found: list[tuple[str | None, AnyMessage]] = []
    unassigned: list[AnyMessage] = []
    for message in messages[asked[-1] if asked else 0 :]:
        if isinstance(message, AIMessage):
            cards |= {
                str(call["id"]): _step_of_card(call["args"], ids) for call in message.tool_calls if call["name"] == TASK
            }
        if str(message.id).startswith(SAID):
            unassigned.append(message)
        if isinstance(message, ToolMessage) and message.tool_call_id in cards:
            step = cards.pop(message.tool_call_id)  # the speech of a step stands just before its result
            found += [(step, each) for each in unassigned]
            unassigned.clear()
        elif not cards:
            found += [(None, each) for each in unassigned]
            unassigned.clear()
    found += [(next(iter(cards.values())) if len(cards) == 1 else None, each) for each in unassigned]
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot):
            messages_of_step = task.state.values.get("messages") or ()
            step = task.state.values.get("id")
            found += [
                (step if step in ids else None, each) for each in messages_of_step if str(each.id).startswith(SAID)
            ]
    return found


def _step_of_card(card: Mapping[str, Any], ids: Sequence[str]) -> str | None:
    number = str(card.get("subagent_type") or "").rpartition(" ")[2]
    return ids[int(number) - 1] if number.isdecimal() and 0 < int(number) <= len(ids) else None


def _journal(snapshot: StateSnapshot) -> list[Json]:
    """Return all observations, including those of working steps, by time, and within a step by number."""
    entries = list(snapshot.values.get("journal") or ())
    records = [snapshot.values.get("planning") or {}, *(snapshot.values.get("steps") or {}).values()]
    for task in snapshot.tasks:
        if isinstance(task.state, StateSnapshot):
            entries += task.state.values.get("journal") or ()
            records += [task.state.values.get(key) or {} for key in ("planning", "record")]
    # What a round has heard enters the journal only at the end of its step or planning.
    entries += [
        {**row, "id": "said", "heard": {"key": row["key"], **row["heard"]}}
        for record in records
        for row in record.get("heard") or ()
    ]
    latest: dict[str, str] = {}

    def moment(entry: Json) -> str:
        """Return a time that is not before that of lower numbers: of parallel reads, a later one may end first."""
        name = str(entry["id"]).rpartition(".")[0]
        latest[name] = max(latest.get(name, ""), _moment(entry))
        return latest[name]

    return sorted(entries, key=moment)


def _observation_event(entry: Mapping[str, Any]) -> Json:
    fields = {key: entry[key] for key in ("id", "step", "tool", "ok", "seconds")}
    return {"type": "observation", **fields, "text": entry["text"][:300]}
