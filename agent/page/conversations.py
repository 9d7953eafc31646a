"""Threads for the page, as events that it draws.

A page that opens a thread gets a snapshot made of its state, then new events, and beside them what some of the earlier
requests did.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, Protocol

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from donewhen import Agent, DoneWhenError, ResumeError, StaleAnswer, ThreadBusy, UnknownThread
from donewhen.agent.page.dropping import read_picture
from donewhen.clients import (
    DEMO,
    ROLES,
    STEER,
    CallPause,
    FormPause,
    Json,
    PlanPause,
    blocks_of,
    catalogue,
    chosen_limits,
    decode_json,
    filled_lines,
    fitting_blocks,
    form_fields,
    hide_known,
    is_failure,
    load_pause,
    may_change,
    shown_arguments,
    store_label,
    text_changes,
)
from donewhen.types import Conversation, Pause, RunStream

CALL_CHARS = 300
"""The most characters of a call's result; the page requests the rest."""
CHECK_SECONDS = 3.0
"""Seconds between two checks of whether another process continued an open thread."""
EARLIER_REQUESTS = 20
"""The number of earlier requests whose work the page shows, however many the thread had."""
EARLIER_EVENTS = 2000
"""The most events of an earlier request that are read, the latest ones."""
WORK = ("plan", "revision", "step_started", "step_finished", "verdicts", "tool_started", "observation")
"""The events of an earlier request that tell what was done."""
MOST_SEARCHED = 5000
"""The most threads, latest first, that a search examines."""
TITLE_CHARS = 200
DEMO_GOALS = ("List the files in this folder", "Count the Python files", "Search for TODO")
"""Example goals that the demo model can handle in any folder; other models have examples in the person's language."""
_TITLES = ("donewhen", "title")
"""Store namespace of the names that a person gave to threads; deleting a thread deletes its name."""


class BegunElsewhere(ResumeError):
    """A conversation has other tools than those here; `place` says which."""

    def __init__(self, place: Json) -> None:
        super().__init__(catalogue("en")["page"]["elsewhere" if place["folder"] else "by_code"].format(**place))
        self.place: Json = place


class Receipts(Protocol):
    """Receipts as files, which are a room of their own."""

    async def export(self, agent: Agent, thread_id: str) -> str:
        """Return the receipt of a thread. Raises DoneWhenError before the request ends."""

    def verify(self, text: str | bytes) -> Json:
        """Check a receipt; return the verification."""


@dataclass
class FollowedThread:
    """One thread: a snapshot of it and the events since, some of earlier requests, and the stream of new ones."""

    events: list[Json] = field(default_factory=list)
    stream: RunStream | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    elsewhere: bool = False
    """True if another process works on it; its events are read from the storage."""
    updated: str | None = None
    """The time of the thread's last change here; if the stored one differs, it was continued elsewhere."""

    def add(self, event: Mapping[str, Any]) -> None:
        """Add an event and wake the followers."""
        self.events.append(dict(event))
        self.changed.set()
        self.changed = asyncio.Event()


class Conversations:
    """All threads of an agent, for pages. Threads started here get `metadata`; dropped files go into its `dir`.

    Those begun in another folder, or by other code, are shown, and go on there alone: the tools here are not theirs.

    `receipts` writes and checks receipts as files. `also` names models that a request may have besides the agent's.
    `opener` returns the command that opens the page of another folder.
    """

    def __init__(
        self,
        agent: Agent,
        metadata: Json,
        receipts: Receipts | None = None,
        also: Sequence[str] = (),
        opener: Callable[[str], str] = "donewhen chat --dir {}".format,
    ) -> None:
        self._agent, self._metadata, self._receipts, self._also = agent, metadata, receipts, also
        self._opener = opener
        self._open: dict[str, FollowedThread] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def folder(self) -> str | None:
        """Return the folder of the tools; None if the agent has none."""
        return self._metadata.get("dir")

    def about(self) -> Json:
        """Return the facts a person needs before asking: folder, model, tools, and when the agent asks."""
        toolbox, settings = self._agent.executors.toolbox, self._agent.settings
        tools = [
            {"name": name, "about": toolbox[name].one_line, "writes": toolbox.effect(name) != "read"}
            for name in toolbox
            if not toolbox[name].is_check
        ]
        return {
            "folder": self.folder,
            "model": self._metadata.get("model"),
            "also": [*self._also],
            "examples": DEMO_GOALS if self._metadata.get("model") == DEMO else (),
            "tools": tools,
            "confirm": settings.confirm,
            "approvals": settings.approvals,
            "hears": settings.when_busy != "refuse",
        }

    async def threads(self, search: str = "", limit: int = 100) -> Json:
        """Return the `threads` that match `search`, latest first, and whether there are `more`.

        Working threads are marked; `title` is a person's name for the thread, `folder` where it was begun, if not here.
        Its requests are searched as far as `ThreadInfo.goals` has them.
        """
        words = search.casefold().split()
        infos = await self._agent.threads(MOST_SEARCHED if words else limit + 1)
        async with self._agent.storage.reader() as (_, store):
            titles = await _titles(store)
        rows = [{**info.to_dict(), "title": titles.get(store_label(info.thread_id), "")} for info in infos]
        rows = [
            row
            for row in rows
            if _contains_all(" ".join([row["title"], *row["goals"], row["goal"], row["thread_id"]]), words)
        ]
        here = {row["thread_id"] for row in rows[:limit] if self._is_at_work(row["thread_id"])}
        elsewhere = [row["thread_id"] for row in rows[:limit] if row["status"] == "running"]
        at_work = here | {*elsewhere} - {*await self._agent.storage.find_free(elsewhere)}
        shown = [
            {**row, "at_work": row["thread_id"] in at_work, "folder": self._other_folder(row["metadata"]) or ""}
            for row in rows[:limit]
        ]
        return {"threads": shown, "more": len(rows) > limit}

    async def rename(self, thread_id: str, title: str) -> None:
        """Name a thread; "" removes the name. Raises UnknownThread."""
        await self._agent.info(thread_id)
        namespace, name = (*_TITLES, store_label(thread_id)), " ".join(title.split())[:TITLE_CHARS]
        async with self._agent.storage.writer() as (_, store):
            if name:
                await store.aput(namespace, "title", {"text": name}, index=False)
            else:
                await store.adelete(namespace, "title")

    async def delete(self, thread_id: str) -> None:
        """Delete a thread with all its data. Raises UnknownThread, and ThreadBusy while it is at work."""
        await self._agent.delete(thread_id)
        if followed := self._open.pop(thread_id, None):
            followed.add({"type": "gone"})

    async def start(
        self,
        goal: str,
        thread_id: str | None,
        instead_of: str | None = None,
        model: str | None = None,
        pictures: Sequence[str] = (),
    ) -> str:
        """Start a request on a new thread or this one, there also instead of an earlier one, by its message's id.

        `model`: one of the others; None is the agent's. `pictures` of the folder go with it, as do those of an earlier
        one; the page says how many do not, because they are not taken. Raises the error if it cannot start.
        """
        if model and model not in self._also:
            raise DoneWhenError(f"the model {model!r} is none of this page: {', '.join(self._also) or 'it has one'}")
        chosen = {"models": dict.fromkeys(ROLES, model)} if model else None
        metadata = {**self._metadata, "model": model} if model else self._metadata
        if thread_id:
            await self._check_place(thread_id)
        conversation = await self._agent.conversation(thread_id) if thread_id else None
        found = [await asyncio.to_thread(read_picture, self.folder, name) for name in pictures if self.folder]
        if conversation and instead_of:
            found += [block for each in conversation.messages if each.id == instead_of for block in blocks_of(each)]
        readable, model_of = [block for block in found if block], partial(self._model_of, model)
        blocks = await asyncio.to_thread(fitting_blocks, readable, model_of)
        content: Any = [{"type": "text", "text": goal}, *blocks] if blocks else goal
        snapshot = await self._snapshot(conversation) if conversation else None
        run = snapshot["run"] if snapshot else {}
        if snapshot and instead_of:
            snapshot["messages"] = _before(instead_of, snapshot["messages"])
        stream = self._agent.stream(
            content,
            thread_id=thread_id,
            metadata=metadata,
            settings=chosen,
            on_leave="continue",
            instead_of=instead_of,
            restart=bool(run and run["status"] == "running" and run["answer"]),  # only its audit was cut off
        )
        followed = FollowedThread([_without_run(snapshot)] if snapshot else [])
        await self._begin(stream, followed)
        if snapshot:
            self._spawn(self._add_earlier(followed, snapshot, snapshot["turn"] + 1), stream.thread_id)
        if unseen := len(found) - len(blocks):
            followed.add({"type": "unseen", "unseen": unseen, "pictures": len(found)})
        return stream.thread_id

    def _model_of(self, chosen: str | None, role: str) -> BaseChatModel:
        """Return the model of a role in a request, for which one may be chosen."""
        return self._agent.models(role, chosen or self._agent.settings.models.get(role))

    async def plan_text(self, thread_id: str, id: str, edited: Json) -> Json:
        """Return the pending plan `id`, with the edits so far, as text for further editing.

        Raises StaleAnswer if it is not pending, and DoneWhenError if `edited` is not a plan.
        """
        pauses = _pending((await self._followed(thread_id)).events)
        pause: Any = next((each for each in pauses if each["id"] == id and each["kind"] == "plan"), None)
        if pause is None:
            raise StaleAnswer(f"no plan waits under the id {id!r}: reload the conversation")
        try:
            return {"text": load_pause({**pause, "draft": None, **edited}).action_arguments()["plan"]}
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DoneWhenError("the edited plan cannot be read: send `plan` as it was shown, with changes") from None

    async def answer(self, thread_id: str, id: str, value: Any) -> None:
        """Answer the question `id`. Raises StaleAnswer if it is not pending."""
        followed = await self._followed_here(thread_id)
        stream = self._agent.stream_resume(thread_id, {id: value}, on_leave="continue")
        await self._begin(stream, followed, _answer_event(followed.events, id, value))

    async def go_on(self, thread_id: str, steer: str) -> None:
        """Continue a stopped or interrupted request; with `steer`, the person's words, it is planned again."""
        followed = await self._followed_here(thread_id)
        stream = self._agent.stream_resume(thread_id, steer=steer, on_leave="continue")
        words = {"type": "answered", "question": "", "text": steer} if steer else None
        await self._begin(stream, followed, words)

    async def tell(self, thread_id: str, text: str) -> None:
        """Send a message to a working run. Raises ResumeError if none works, ThreadBusy if it takes no messages."""
        followed = await self._followed(thread_id)
        await self._agent.tell(thread_id, text)
        followed.add({"type": "told", "text": text.strip()})

    async def undo(self, thread_id: str, step: str | None, *, dry_run: bool) -> Json:
        """Undo the thread's changes, or those of a step or a call. Raises ThreadWaiting before the request ends."""
        followed = await self._followed_here(thread_id)
        report = await self._agent.undo(thread_id, step, dry_run=dry_run)
        if report.status == "undone" and not dry_run:
            run = await self._agent.get(thread_id)
            followed.updated = (await self._agent.info(thread_id)).updated
            followed.add({"type": "undone", "run": {**run.to_dict(), "pending": []}})
        return report.to_dict()

    async def receipt(self, thread_id: str) -> Json:
        """Return the receipt as a file, with its verification. Raises DoneWhenError before the request ends."""
        text = await self._receipt_files().export(self._agent, thread_id)
        return {"text": text, **await self.verify(text)}

    async def verify(self, text: str | bytes) -> Json:
        """Check a receipt; return the verification."""
        return await asyncio.to_thread(self._receipt_files().verify, text)

    def _receipt_files(self) -> Receipts:
        if self._receipts is None:
            raise DoneWhenError("this page writes and checks no receipts: use `donewhen receipt` and `donewhen verify`")
        return self._receipts

    def stop(self, thread_id: str) -> None:
        """Ask the thread to stop at its next clean point. Raises ThreadBusy if another process works on it."""
        followed = self._open.get(thread_id)
        if followed and followed.elsewhere:
            raise ThreadBusy("another process works on this conversation: stop it there")
        if followed and followed.stream:
            followed.stream.drain()
            followed.add({"type": "stopping"})

    async def follow(self, thread_id: str) -> AsyncIterator[tuple[int, Json]]:
        """Yield all past and future events of the followed thread, numbered, also those about earlier requests.

        Numbers start again at 1 with another request, and after another process continued the thread. `past` marks an
        event that others follow already, but for the one that says how the thread stands now.
        """
        followed, number = await self._followed(thread_id), 0
        while True:
            if (current := self._open.get(thread_id, followed)) is not followed:
                followed, number = current, 0
            if number == len(followed.events):
                try:
                    await asyncio.wait_for(followed.changed.wait(), CHECK_SECONDS)
                except TimeoutError:
                    await self._check_elsewhere(thread_id, followed)
                continue
            events, event, number = followed.events, followed.events[number], number + 1
            goes_on = followed.stream or followed.elsewhere or not event.get("run")
            is_past = number < len(events) and (goes_on or any(each.get("run") for each in events[number:]))
            yield number, {**event, "past": True} if is_past else event
            if event["type"] == "gone":
                return

    async def observation(self, thread_id: str, id: str) -> Json:
        """Return the full result of a call. Raises UnknownThread if there is no such observation."""
        entry = await self._agent.observation(thread_id, id)
        fields = {key: entry.get(key) for key in ("id", "step", "tool", "text", "at", "sources")}
        return {**fields, "ok": not is_failure(entry), **_arguments(entry)}

    async def aclose(self) -> None:
        """Stop following; the agent, closed next, stops its runs at a clean point."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _is_at_work(self, thread_id: str) -> bool:
        return (followed := self._open.get(thread_id)) is not None and followed.stream is not None

    async def _followed(self, thread_id: str) -> FollowedThread:
        """Return the followed thread; its first event is a snapshot of its current state."""
        if thread_id not in self._open:
            opened = await self._open_thread(thread_id)
            self._open.setdefault(thread_id, opened)
        return self._open[thread_id]

    async def _followed_here(self, thread_id: str) -> FollowedThread:
        """Return the followed thread, for work with the tools here. Raises BegunElsewhere."""
        await self._check_place(thread_id)
        return await self._followed(thread_id)

    async def _check_place(self, thread_id: str) -> None:
        if place := await self._other_place(thread_id):
            raise BegunElsewhere(place)

    async def _other_place(self, thread_id: str) -> Json | None:
        """Return the `folder` of a thread that has other tools than those here, and the `command` that opens it there.

        Both are "" if other code began it.
        """
        folder = self._other_folder((await self._agent.info(thread_id)).metadata)
        return None if folder is None else {"folder": folder, "command": self._opener(folder) if folder else ""}

    def _other_folder(self, metadata: Mapping[str, Any]) -> str | None:
        """Return the folder of a thread that was not begun in the one here, "" if other code began it; else None."""
        folder = named if isinstance(named := metadata.get("dir"), str) else ""
        return None if _real_path(folder) == _real_path(self.folder or "") else folder

    async def _open_thread(self, thread_id: str) -> FollowedThread:
        """Return a thread to follow; if another process works on it, its events from now on are added."""
        updated = (await self._agent.info(thread_id)).updated
        snapshot = await self._snapshot(await self._agent.conversation(thread_id))
        if snapshot["run"]["status"] != "running" or await self._agent.storage.find_free([thread_id]):
            followed = FollowedThread([snapshot], updated=updated)
            self._spawn(self._add_earlier(followed, snapshot, snapshot["turn"]), thread_id)
            return followed
        messages = _before(snapshot["request"], snapshot["messages"])  # the goal has an event of its own
        first = {**_without_run(snapshot), "messages": messages}
        followed = FollowedThread([first], elsewhere=True, updated=updated)
        self._spawn(self._add_earlier(followed, snapshot, snapshot["turn"]), thread_id)
        self._spawn(self._watch(thread_id, followed), thread_id)
        return followed

    async def _watch(self, thread_id: str, followed: FollowedThread) -> None:
        """Add the events of another process, until the run waits or ends, or no process works on it."""
        events = self._agent.watch(thread_id)
        coming = asyncio.ensure_future(anext(events))
        try:
            while followed.elsewhere:
                if (await asyncio.wait({coming}, timeout=CHECK_SECONDS))[0]:
                    event, _ = coming.result()
                    followed.elsewhere = event["type"] not in ("waiting", "outcome")
                    followed.add(event_view(event))
                    if followed.elsewhere:
                        coming = asyncio.ensure_future(anext(events))
                elif await self._agent.storage.find_free([thread_id]):
                    followed.elsewhere = False
                    await self._reload(thread_id, followed)
        finally:
            coming.cancel()
            followed.elsewhere = False

    async def _check_elsewhere(self, thread_id: str, followed: FollowedThread) -> None:
        """Reload a thread that another process continued since its last change here."""
        if followed.stream or followed.elsewhere or self._open.get(thread_id) is not followed:
            return
        try:
            updated = (await self._agent.info(thread_id)).updated
        except UnknownThread:
            self._open.pop(thread_id, None)
            followed.add({"type": "gone"})
            return
        if followed.updated not in (None, updated):
            await self._reload(thread_id, followed)

    async def _reload(self, thread_id: str, followed: FollowedThread) -> None:
        reloaded = await self._open_thread(thread_id)
        if self._open.get(thread_id) is followed and followed.stream is None:
            self._open[thread_id] = reloaded
            followed.changed.set()

    async def _begin(self, stream: RunStream, followed: FollowedThread, words: Json | None = None) -> None:
        """Start the stream and follow it. If it cannot start, its error is raised and nothing changes.

        `words` is an event with the person's answer or words; it comes first.
        """
        if self._is_at_work(stream.thread_id):
            raise ThreadBusy("this conversation is at work already, perhaps from another tab: this was not taken")
        first = await anext(stream)
        before = self._open.get(stream.thread_id)
        followed.stream, followed.updated = stream, None
        self._open[stream.thread_id] = followed
        if words:
            followed.add(words)
        followed.add(event_view(first))
        if before is not None and before is not followed:
            before.changed.set()
        self._spawn(self._relay(stream, followed), stream.thread_id)

    def _spawn(self, work: Coroutine[Any, Any, None], thread_id: str) -> None:
        task = asyncio.create_task(work, name=f"page {thread_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, stream: RunStream, followed: FollowedThread) -> None:
        try:
            with suppress(DoneWhenError):  # an event has reported it already
                async for event in stream:
                    if event["type"] in ("waiting", "outcome", "error"):
                        followed.stream = None
                    followed.add(event_view(event))
            with suppress(DoneWhenError):
                followed.updated = (await self._agent.info(stream.thread_id)).updated
        finally:
            followed.stream = None

    async def _snapshot(self, conversation: Conversation) -> Json:
        """Return the current state of a thread as one event: the conversation, the run, and its observations."""
        run, observations = conversation.run, conversation.observations
        return {
            "type": "picture",
            "thread_id": run.thread_id,
            "place": await self._other_place(run.thread_id),
            "turn": conversation.request,
            "request": conversation.message_id,
            "displaced": "" if run.receipt else conversation.displaced,
            "messages": [_message(message) for message in conversation.messages if _is_conversational(message)],
            "run": {**run.to_dict(), "pending": [pause_view(pause) for pause in run.pending]},
            "journal": [observation_view(entry) for entry in observations if entry["tool"]],
            "said": [_statement(entry) for entry in observations if entry["source"] == "user"],
        }

    async def _add_earlier(self, followed: FollowedThread, snapshot: Json, turn: int) -> None:
        """Add what each of the last requests before this one did and cost, the latest first: the talk is shown first.

        Only requests count whose message is in the snapshot: not those whose place another one took. The events name
        the message that began the request; `cut`: it has earlier events that are left out.
        """
        thread_id, talk = snapshot["thread_id"], {message["id"] for message in snapshot["messages"]}
        shown = 0
        try:
            async with self._agent.storage.reader() as (_, store):
                last, begins = await store.events.last(thread_id), await store.events.beginnings(thread_id)
            ends = dict(zip(begins, [*[*begins.values()][1:], last + 1], strict=True))
            for each in sorted((each for each in begins if each < turn), reverse=True):
                async with self._agent.storage.reader() as (_, store):
                    (goal,) = await store.events.read(thread_id, after=begins[each] - 1, most=1)
                    if goal["type"] != "goal" or goal.get("message") not in talk:
                        continue
                    done = await self._work_of(store.events, thread_id, range(begins[each], ends[each]))
                if done:
                    cut = ends[each] - begins[each] > EARLIER_EVENTS
                    followed.add({"type": "earlier", "message": goal["message"], "done": done, "cut": cut})
                shown += 1
                if shown == EARLIER_REQUESTS:
                    return
        except DoneWhenError as error:
            followed.add({"type": "note", "text": str(error)})

    async def _work_of(self, table: Any, thread_id: str, numbers: range) -> list[Json]:
        """Return what the latest of these events, of one request, tell of its work.

        The plan is there if it is among the first of them, too.
        """
        latest = numbers[-EARLIER_EVENTS:]
        events: list[Json] = []
        while latest and (read := await table.read_back(thread_id, latest)):
            events += read
            latest = range(latest.start, read[-1]["seq"])
        if len(numbers) > EARLIER_EVENTS and not any(event["type"] in ("plan", "revision") for event in events):
            first = await table.read(thread_id, after=numbers.start - 1)
            events += [event for event in first if event["type"] == "plan" and event["seq"] in numbers][-1:]
        spent = next((event for event in events if event["type"] == "spent"), None)
        work = [event for event in events if event["type"] in WORK or event is spent]
        return [event_view(hide_known(event, self._agent.secrets)) for event in reversed(work)]


def _real_path(folder: str) -> str:
    """Return a folder without symbolic links, so that the same folder is always the same text."""
    try:
        return os.path.realpath(folder) if folder else ""
    except (OSError, ValueError):
        return folder


def _without_run(snapshot: Json) -> Json:
    """Return a snapshot with the conversation alone: the events that follow show the run."""
    return {**snapshot, "run": None, "journal": [], "said": []}


async def _titles(store: Any) -> dict[str, str]:
    """Return the names of threads, by label."""
    return {item.namespace[-1]: str(item.value.get("text") or "") for item in (await store.read_each(_TITLES))[0]}


def _contains_all(text: str, words: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)


def _statement(entry: Mapping[str, Any]) -> Json:
    """Return a person's statement in the request: an answer to a question, or an interjection."""
    question = (entry.get("arguments") or {}).get("question") or ""
    text = str(entry.get("text") or "")
    filled = decode_json(text)  # a form is kept as JSON
    return {"question": str(question), "text": filled_lines(filled) if isinstance(filled, dict) else text}


def _is_conversational(message: BaseMessage) -> bool:
    """Return whether a message belongs to the conversation: a person's words or an answer, not a pause or a step."""
    is_spoken = isinstance(message, HumanMessage) or (isinstance(message, AIMessage) and not message.tool_calls)
    return is_spoken and bool(str(message.text).strip())


def _message(message: BaseMessage) -> Json:
    """Return a message in the page's form; `steers`: it was for a stopped run, and is no request."""
    by = "user" if isinstance(message, HumanMessage) else "agent"
    steers = bool(message.additional_kwargs.get(STEER))
    return {"by": by, "text": str(message.text), "id": message.id, "steers": steers}


def _before(id: str, messages: list[Json]) -> list[Json]:
    """Return the messages before the one of this id; all if there is none."""
    return [*takewhile(lambda message: message["id"] != id, messages)]


def _pending(events: list[Json]) -> list[Json]:
    """Return the open questions."""
    waiting = next((event for event in reversed(events) if event["type"] in ("waiting", "picture")), {})
    return list(waiting.get("pending") or (waiting.get("run") or {}).get("pending") or ())


def _answer_event(events: list[Json], id: str, value: Any) -> Json:
    """Return the event of an answer to the question `id`, with a person's words; the `text` of a button is ""."""
    pauses = [load_pause(pause) for pause in _pending(events) if pause["id"] == id and pause["kind"] != "plan"]
    if pauses and isinstance(value, dict) and isinstance(pauses[0], FormPause) and pauses[0].takes_as_is(value):
        text: Any = filled_lines(value) or "–"
    else:
        text = value if isinstance(value, str) else value.get("message") if isinstance(value, dict) else None
    return {"type": "answered", "id": id, "question": pauses[0].question if pauses else "", "text": text or ""}


def event_view(event: Mapping[str, Any]) -> Json:
    """Return an event in the page's form: a call's arguments in words, a pause as shown."""
    if event["type"] == "tool_started":
        return {**event, **_arguments(event)}
    if event["type"] == "waiting":
        return {**event, "pending": [pause_view(pause) for pause in event.get("pending") or ()]}
    return dict(event)


def observation_view(entry: Mapping[str, Any]) -> Json:
    """Return an observation in the page's form."""
    fields = {key: entry.get(key) for key in ("id", "step", "tool", "seconds", "sources")}
    return {
        **fields,
        "ok": not is_failure(entry),
        **_arguments(entry),
        "text": str(entry.get("text") or "")[:CALL_CHARS],
    }


def pause_view(pending: Pause) -> Json:
    """Return a pause with its texts: the question, the options, the plan as text, a call's arguments."""
    pause = load_pause(pending)
    more: Json = {"question": pause.wording(), "options": pause.choices()}
    if isinstance(pause, PlanPause):
        words = catalogue(pending.get("language") or "en")["plan"]
        if pause.reply or (pause.before and pause.before.get("revision") == pause.revision):
            more["question"] = f"{words['unchanged']} {more['question']}"
        more |= {"written": pause.editable_plan(), "chosen": [*chosen_limits(pending)]}
        more["may_change"] = may_change(pending, words)
    if isinstance(pause, FormPause):
        more["fields"] = form_fields(pause.form)
    if hint := pause.hint():
        more["hint"] = hint
    if notice := pause.notice:
        more["notice"] = notice
    if isinstance(pause, CallPause):
        more |= _arguments(pause.call())
    return {**pending, **more}


def _arguments(call: Mapping[str, Any]) -> Json:
    return {"shown": shown_arguments(call), "changes": [asdict(change) for change in text_changes(call)]}
