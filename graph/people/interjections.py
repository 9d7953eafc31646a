"""Interjections: messages of the user to a working run, stored beside the thread and read in the next round."""

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime
from langgraph.store.base import BaseStore, PutOp

from donewhen.graph.clock import current_clock
from donewhen.graph.events import moment, place_event, send, thread_of, without_secrets
from donewhen.graph.tools.effects import read_all
from donewhen.state.channels import Json, Step
from donewhen.state.proof.journal import digest, observation, words_of_entry
from donewhen.state.records import JournalEntry, StepRecord
from donewhen.state.settings import Settings
from donewhen.state.values import storable, store_label

FOLLOW_IN_STEP = (
    "The user says this while you work. Follow it from now on; if it makes the plan or finished work wrong, "
    "give_up with kind replan."
)


hearing: ContextVar[Callable[[str, list[Json]], Awaitable[list[Json]]] | None] = ContextVar("hearing", default=None)
"""Called with the reader's place and the interjections found; returns those to use. For recording and replaying."""
RUN, IN_PLANNING = "run", "planning"
"""The places that read interjections, besides the steps, which are called by their ids."""


def _namespace(thread_id: str) -> tuple[str, ...]:
    return ("donewhen", "interjections", store_label(thread_id))


def interjection_lock(thread_id: str) -> str:
    """Return the name of the lock that is held while an interjection to a thread is stored."""
    return f"words to {hashlib.sha256(thread_id.encode()).hexdigest()[:32]}"


def name_of_words(request: str, questions: Iterable[str], by: str, words: str) -> str:
    """Return the name of what somebody says at questions that are for others: bots deliver some answers twice.

    It is for `new_interjection` with `repeats`: the same words may be said again after others.
    """
    return digest(f"{request} {sorted(questions)} {by} {words}")


async def new_interjection(
    store: BaseStore, thread_id: str, text: str, name: str = "", *, repeats: bool = False, **more: str
) -> tuple[Json, PutOp] | None:
    """Return what a person says, as `read_interjections` will, and what stores it; None if these words are there.

    `name` names the words, so that they are stored once; "" for words that come once. If the name `repeats`, they are
    there if this person said nothing else since. `more` has who says it as `by`, and the `request` for which it waits.
    Keys are in order if the caller holds the `interjection_lock`.
    """
    rows, source = await read_all(store, _namespace(thread_id)), f"told {name or uuid4().hex}"
    told = sorted(rows, key=lambda item: item.key)
    if repeats:
        told = [item for item in told if item.value.get("by", "") == more.get("by", "")][-1:]
    if any(item.value.get("source") == source for item in told):
        return None
    last = max([int(item.key) for item in rows], default=0)
    more = {name: storable(value) for name, value in more.items() if value}
    value: Json = {"text": storable(text), "at": moment(), "source": source, **more}
    key = f"{max(last + 1, current_clock().tick()):020}"
    return {"key": key, "n": len(rows) + 1, **value}, PutOp(_namespace(thread_id), key, value, index=False)


async def was_told(store: BaseStore, thread_id: str, name: str) -> bool:
    """Return whether the words of this name were stored."""
    return any(item.value.get("source") == f"told {name}" for item in await read_all(store, _namespace(thread_id)))


async def read_interjections(store: BaseStore, thread_id: str, cursor: str) -> list[Json]:
    """Return `{key, n, text, at, by?}` of everything said after `cursor`, in order; `n` counts all of the request."""
    items = sorted(await read_all(store, _namespace(thread_id)), key=lambda item: item.key)
    return [{"key": item.key, "n": n, **item.value} for n, item in enumerate(items, 1) if item.key > cursor]


_being_marked: set[tuple[str, str]] = set()
"""Interjections that a round of this process is marking as heard right now, by thread and key."""


async def mark_heard(runtime: Runtime[Settings], rows: Sequence[Json], step: str | None) -> list[Json]:
    """Mark interjections as heard, emit those that nobody heard before, and return all; `step` as in the event.

    Parallel steps hear the same words, and so does a round that is repeated after a crash; only the first emits the
    event. The mark and the event are stored together, and before it is sent: it is never sent twice, and watchers have
    it once.
    """
    store, thread, marked = runtime.store, thread_of(runtime), [*rows]
    for n, row in enumerate(rows):
        place = thread, str(row["key"])
        if store is None or row.get("heard") or place in _being_marked:
            continue
        _being_marked.add(place)
        try:
            item = await store.aget(_namespace(thread), place[1])
            stored = item.value if item else {"text": row["text"], "at": row["at"]}  # what is replayed is not there
            if stored.get("heard"):
                continue
            mark = {"step": step, "at": moment()}
            fields = {"type": "heard", "step": step, "text": row["text"], "at": row["at"], **name_of(row)}
            event = place_event(runtime, without_secrets(runtime, fields))
            await store.aput(_namespace(thread), place[1], {**stored, "heard": mark}, index=False)
        finally:
            _being_marked.discard(place)
        send(runtime, event)
        marked[n] = {**row, "heard": mark}
    return marked


def name_of(row: Mapping[str, Any]) -> Json:
    """Return the field with the name of who said this; {} if nobody knows."""
    return {"name": row["by"]} if row.get("by") else {}


async def heard_interjections(runtime: Runtime[Settings], rows: Sequence[Json]) -> list[Json]:
    """Return those of these interjections that some round has heard, each with when and where."""
    if runtime.store is None or not rows:
        return []
    stored = {row["key"]: row for row in await read_interjections(runtime.store, thread_of(runtime), "")}
    return [stored[row["key"]] for row in rows if stored.get(row["key"], {}).get("heard")]


async def delete_interjection(store: BaseStore, thread_id: str, key: str) -> None:
    """Delete one message, because nothing is running that would read it."""
    await store.adelete(_namespace(thread_id), key)


async def new_interjections(runtime: Runtime[Settings], cursor: str, place: str) -> list[Json]:
    """Return `{key, n, text, at, by?}` of everything said after `cursor`, in order; [] if the settings refuse it.

    `place` is the reader: the id of a step, RUN or IN_PLANNING.
    """
    if runtime.store is None or runtime.context.when_busy != "next_round":
        return []
    rows = await read_interjections(runtime.store, thread_of(runtime), cursor)
    if replaced := hearing.get():
        rows = await replaced(place, rows)
    return [row for row in rows if row["key"] > cursor]


async def delete_interjections(store: BaseStore, thread_id: str, request: str) -> None:
    """Delete the interjections of previous requests; those to this one may have come before it began."""
    for item in await read_all(store, _namespace(thread_id)):
        if not request or item.value.get("request") != request:
            await store.adelete(item.namespace, item.key)


@dataclass(frozen=True)
class NewWords:
    """What the user said since a round looked last."""

    message: HumanMessage
    """The words, with what to do about them."""
    cursor: str
    """The key of the last interjection."""
    rows: list[Json]
    """All of them."""


async def hear(runtime: Runtime[Settings], cursor: str, step: str | None, instruction: str) -> NewWords | None:
    """Return what the user said since `cursor`, for a round of a step, or of planning; None if there is nothing.

    `instruction` tells the model what to do about it.
    """
    if not (rows := await new_interjections(runtime, cursor, step or IN_PLANNING)):
        return None
    words = "\n".join(f"[{each['id']}] {words_of_entry(each)}" for each in interjection_entries(rows, ()))
    message = HumanMessage(f"<user_said>\n{words}\n</user_said>\n{instruction}")
    await mark_heard(runtime, rows, step)
    return NewWords(message, rows[-1]["key"], rows)


async def with_interjections(state: Step, cursor: str, runtime: Runtime[Settings]) -> tuple[Step, list[AnyMessage]]:
    """Return a step's state with the user's interjections since `cursor`, and the message that was added, if any."""
    if not (new := await hear(runtime, cursor, state["step"]["id"], FOLLOW_IN_STEP)):
        return state, []
    record: StepRecord = {
        **state["record"],
        "interjection_cursor": new.cursor,
        "heard": [*state["record"]["heard"], *new.rows],
    }
    return {**state, "record": record, "transcript": [*state.get("transcript", ()), new.message]}, [new.message]


def _id_of(row: Mapping[str, Any], n: int) -> str:
    """Return the id by which an interjection is cited; recordings of older versions do not count them."""
    return f"said.{row.get('n', n)}"


async def heard_entries(runtime: Runtime[Settings], place: str, after: str, until: str) -> list[JournalEntry]:
    """Return, as observations, what the rounds of a step or planning have heard since its brief was written."""
    rows = await new_interjections(runtime, after, place) if until > after else []
    return interjection_entries([row for row in rows if row["key"] <= until], ())


def interjection_entries(
    interjections: Sequence[Mapping[str, Any]], journal: Iterable[JournalEntry]
) -> list[JournalEntry]:
    """Return interjections as journal entries, for all later work.

    Each has the time and the step at which it was heard; one that came too late has neither.
    """
    first = 1 + sum(entry["id"].startswith("said.") for entry in journal)
    entries = list[JournalEntry]()
    for n, row in enumerate(interjections, first):
        arguments = {"question": "", "by": "user", **name_of(row)}
        entry = observation(_id_of(row, n), "plan", 0, "user", row["text"], arguments=arguments, at=row["at"])
        entries.append({**entry, "heard": {"key": row["key"], **(row.get("heard") or {})}})
    return entries
