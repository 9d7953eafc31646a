"""Notifications of runs that wait, finished or failed: CloudEvents 1.0, by a signed webhook or a function.

A notification is stored before the thread's row gets its status. After a crash before that, the process that settles
the thread stores it, so none is lost. It is deleted once it was delivered.
"""

import asyncio
import base64
import hashlib
import hmac
import inspect
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias
from urllib.parse import quote, urlsplit

from langgraph.store.base import PutOp

from donewhen.agent.config import Config
from donewhen.agent.run import Run
from donewhen.agent.storage import Storage
from donewhen.agent.storage.store import NEWS, ThreadStore, news_key
from donewhen.graph.sync import is_async, run_in_thread
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, StorageError
from donewhen.state.secrets import conceal, hide_known, redact_json
from donewhen.state.values import map_texts

SPACE = ("donewhen", NEWS)
SECONDS = 10.0
"""Seconds that a webhook has to answer."""
LEASE = 30.0
"""Seconds that a delivery may take; meanwhile other processes skip the notification."""
DELAYING_TRIES = 4
"""The number of attempts, over half a minute, during which a notification delays later ones of its thread."""
LONGEST_PAUSE, GIVE_UP = 3600.0, timedelta(days=3)
"""The longest pause between two attempts, in seconds; and the age at which a notification is dropped and logged."""
MOST_QUESTIONS, MOST_CHARS, MOST_TEXT = 100, 2_000, 20_000
"""The most questions, and the most characters of a text, in a notification."""
_NO_KEY = (
    "notify: the secret of a webhook (DONEWHEN_NOTIFY_SECRET) is a key in base64, with or without whsec_ before it, "
    "and this is not; this prints a new one: python -c "
    "\"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\""
)
_log = logging.getLogger("donewhen.news")


@dataclass(frozen=True)
class Webhook:
    """A URL that gets notifications, signed according to standardwebhooks.com if there is a `secret`.

    The secret is a key in base64, with or without `whsec_` before it. `link` is the page for the person, with
    `{thread_id}` in it. Raises ConfigError for an invalid http address, or for a secret that is not base64.
    """

    url: str
    secret: str = field(default="", repr=False)
    link: str = ""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise ConfigError("notify: a webhook is an address that begins with https:// or http://")
        self._key()

    def _key(self) -> bytes:
        """Return the key in the secret. Raises ConfigError if it is not base64."""
        text = self.secret.removeprefix("whsec_")
        try:
            key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
        except ValueError:
            raise ConfigError(_NO_KEY) from None
        if self.secret and not key:
            raise ConfigError(_NO_KEY)
        return key

    async def __call__(self, event: Json) -> None:
        """Post the event. Raises OSError unless it was accepted."""
        link = {"link": self.link.replace("{thread_id}", quote(event["subject"], safe=""))} if self.link else {}
        body = json.dumps({**event, "data": {**event["data"], **link}}, ensure_ascii=False).encode()
        headers = {"content-type": "application/cloudevents+json; charset=utf-8", "webhook-id": event["id"]}
        headers["webhook-timestamp"] = sent = str(int(time.time()))
        if self.secret:
            signed = hmac.digest(self._key(), f"{event['id']}.{sent}.".encode() + body, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
        await run_in_thread(partial(_post, urllib.request.Request(self.url, body, headers, method="POST")))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because the notification is only for the configured URL."""

    def redirect_request(self, *_: object) -> None:
        """Return None, so that the redirect is not followed."""


def _post(request: urllib.request.Request) -> None:
    try:
        urllib.request.build_opener(_NoRedirect).open(request, timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        raise


Notify: TypeAlias = str | Webhook | Callable[[Json], Awaitable[None] | None]
"""A URL, a `Webhook`, or a function that takes a CloudEvent, async or not; an exception causes a retry."""


def notify_of(config: Config) -> Webhook | None:
    """Return the webhook that the environment names; None if it names none."""
    return Webhook(config.notify, config.notify_secret, config.link) if config.notify else None


async def store_notification(
    store: ThreadStore, run: Run, row: Mapping[str, object], values: Json, words: str = "", *also: PutOp
) -> str | None:
    """Store the notification of a run's current state, if it has any; return the state's id. `values` are its state.

    `words`: the keys of words that its question shows since now. `also` is stored in the same moment.
    """
    if not row.get("notify") or run.status in ("running", "queued"):
        return None
    replies = [pause["reply"] for pause in run.pending if pause.get("reply")]
    about = [run.thread_id, int(values.get("turn") or 1), run.status, [pause["id"] for pause in run.pending], *replies]
    if said := sum(row["decision"] == "say" for row in values.get("approvals") or ()):
        about.append(said)  # what is shown answers these words, also if it is the same again
    state = _id_of(about)
    if row.get("news") == state and not words:  # an answer was not accepted, and the same question is still open
        return None
    data: Json = {"thread_id": run.thread_id, "request": run.request, "status": run.status}
    data["goal"] = run.goal[:MOST_CHARS]
    if run.pending:
        keys = ("id", "kind", "step", "question", "options")
        data["questions"] = [
            {
                **{key: pause.get(key) for key in keys},
                **{key: pause[key] for key in ("answered_by", "language", "meanwhile") if key in pause},
                "text": pause["text"][:MOST_TEXT],
            }
            for pause in run.pending[:MOST_QUESTIONS]
        ]
    elif run.outcome:
        data |= {"code": run.outcome["code"], "answer": run.answer[:MOST_CHARS]}
    kind = "waiting" if run.pending else "failed" if run.status == "failed" else "finished"
    await _store_event(store, row, _id_of([*about, {"words": words}]) if words else state, kind, data, *also)
    return state


def _id_of(about: Sequence[object]) -> str:
    """Return the id of a notification about this."""
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:32]


def queue_of_news(row: Mapping[str, object], notifier: "Notifier | None") -> str | None:
    """Return the queue whose notifications tell of a run; of one that has not begun, that of who ends it."""
    return str(row.get("notify") or (notifier.queue if notifier else "")) or None


async def store_failure(
    store: ThreadStore, thread_id: str, row: Mapping[str, object], problem: str, notifier: "Notifier | None"
) -> None:
    """Store the notification that workers gave up on a run and left it to a person."""
    if notify := queue_of_news(row, notifier):
        id = hashlib.sha256(f"{thread_id}\n{row.get('updated')}\n{problem}".encode()).hexdigest()[:32]
        status = "waiting" if row.get("status") == "waiting" else "running"  # the policy could not answer its question
        data = {"thread_id": thread_id, "status": status, "goal": str(row.get("goal") or ""), "problem": problem}
        await _store_event(store, {**row, "notify": notify}, id, "failed", data)


async def _store_event(
    store: ThreadStore, row: Mapping[str, object], id: str, kind: str, data: Json, *also: PutOp
) -> None:
    schedule = str(row.get("schedule") or "").partition(" ")[0]
    of_whom = {"owner": str(row.get("owner") or ""), **({"schedule": schedule} if schedule else {})}
    event = {
        "specversion": "1.0",
        "id": id,
        "source": "/donewhen",
        "type": f"donewhen.run.{kind}",
        "subject": data["thread_id"],
        "time": max(store.threads.now(), str(row.get("updated") or "")),
        "datacontenttype": "application/json",
        "data": redact_json({**data, **of_whom}),
    }
    key = news_key(id, data["thread_id"])
    record = {"event": event, "tries": 0, "due": ""}
    await store.abatch([PutOp((*SPACE, str(row["notify"])), key, record, index=False), *also])


class Notifier:
    """Delivers a queue's notifications in the background, until there are none left."""

    def __init__(self, storage: Storage, queue: str, notify: Notify, secrets: Sequence[str] = ()) -> None:
        self.queue = queue
        self._storage, self._secrets = storage, secrets
        self._notify = Webhook(notify) if isinstance(notify, str) else notify
        if not callable(self._notify):
            raise ConfigError(f"notify: an address, a Webhook or a function, not {type(notify).__name__}")
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._has_news = False
        """True if a run ended or paused here; `aclose` does not wait for notifications that other processes left."""
        self._lock = asyncio.Lock()
        self._time: Callable[..., str]
        """The time of the database, so many seconds from now."""

    def wake(self, *, left: bool = False) -> None:
        """Deliver now, in the background. `left`: only what an earlier process may have left; nothing is new here."""
        self._again, self._has_news = True, self._has_news or not left
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="donewhen news")

    async def aclose(self, patience: float) -> None:
        """Deliver what can be delivered within `patience` seconds, with retries; leave the rest to the next process."""
        if self._task is not None and not self._task.done():
            patience = patience if self._has_news else 0.0
            ends = asyncio.get_running_loop().time() + patience
            with suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(patience):
                    while (pause := await self.deliver()) is not None:
                        if asyncio.get_running_loop().time() + pause > ends:
                            break
                        await asyncio.sleep(pause)
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _work(self) -> None:
        while True:
            self._again = False
            try:
                pause = await self.deliver()
            except StorageError as error:
                _log.warning("notifications cannot be read: %s", error)
                pause = LEASE
            if pause is None and not self._again:
                return
            await asyncio.sleep(0 if self._again else pause or 0)

    async def deliver(self) -> float | None:
        """Deliver what is due, oldest first; return the seconds until the next, or None if there is none."""
        async with self._lock:
            return await self._deliver_due()

    async def _deliver_due(self) -> float | None:
        async with self._storage.reader() as (_, store):
            items, self._time = await store.asearch((*SPACE, self.queue), limit=1_000), store.threads.now
        now, dues, delayed = self._time(), list[str](), set[str]()
        for item in sorted(items, key=lambda item: str(item.value["event"]["time"])):
            if (thread_id := item.value["event"]["subject"]) in delayed:
                continue
            due = item.value["due"] if item.value["due"] > now else await self._deliver(item.key, item.value)
            if due:
                dues.append(due)
            if due and item.value["tries"] < DELAYING_TRIES:
                delayed.add(thread_id)
        if not dues:
            return None
        return max((datetime.fromisoformat(min(dues)) - datetime.fromisoformat(self._time())).total_seconds(), 0.0)

    async def _deliver(self, key: str, record: Json) -> str | None:
        """Deliver one; return when to retry, or None if it is done, or was deleted with its thread."""
        if not await self._change(key, {**record, "due": self._time(LEASE)}):
            return None
        event = map_texts(hide_known(record["event"], self._secrets), lambda text: conceal(text, self._secrets))
        try:
            async with asyncio.timeout(LEASE):
                result = (
                    self._notify(event) if is_async(self._notify) else await run_in_thread(partial(self._notify, event))
                )
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            age = datetime.fromisoformat(self._time()) - datetime.fromisoformat(event["time"])
            is_gone = isinstance(error, urllib.error.HTTPError) and error.code == 410
            if not is_gone and age < GIVE_UP:
                tries = int(record["tries"]) + 1
                _log.warning(
                    "notification %s of thread %s failed and is retried: %s: %s",
                    event["id"],
                    event["subject"],
                    type(error).__name__,
                    conceal(str(error)),
                )
                due = self._time(min(2.0**tries, LONGEST_PAUSE))
                return due if await self._change(key, {**record, "tries": tries, "due": due}) else None
            _log.error(
                "notification %s of thread %s is dropped: %s: %s",
                event["id"],
                event["subject"],
                type(error).__name__,
                conceal(str(error)),
            )
        await self._change(key, None)
        return None

    async def _change(self, key: str, record: Json | None) -> bool:
        """Write or delete a notification; return False if it is not there any more."""
        async with self._storage.writer() as (_, store):
            if await store.aget((*SPACE, self.queue), key) is None:
                return False
            if record is None:
                await store.adelete((*SPACE, self.queue), key)
            else:
                await store.aput((*SPACE, self.queue), key, record, index=False)
            return True
