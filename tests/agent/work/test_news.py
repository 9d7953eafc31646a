"""News for who is away: at least once, signed, without secrets, whatever crashes between the event and the post."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from donewhen import Agent, ConfigError, StorageError, ThreadWaiting, Webhook
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.agent.work import news
from donewhen.agent.work.news import Notifier
from donewhen.agent.work.thread_rows import DUE_FIRST, DUE_NOW, QUEUE, TRIES, write_crash
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, submit_plan
from tests.agent.work.test_workers import worker_of
from tests.kit.screens.shell import scripted, user_in
from tests.kit.storage.cases import Storage, fresh_url, key_of, open_storage

Json = dict[str, Any]


class Post(HTTPServer):
    """Takes what is posted to it; refuses the first `busy` posts."""

    def __init__(self, busy: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.busy = busy
        self.got: list[tuple[Any, bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/hook"

    @property
    def subjects(self) -> list[str]:
        """The threads told of, each once: a notification comes once at least."""
        return list(dict.fromkeys(json.loads(body)["subject"] for _, body in self.got))


class _Handler(BaseHTTPRequestHandler):
    server: Post

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.headers, body))
        self.send_response(503 if len(self.server.got) <= self.server.busy else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def post() -> Iterator[Post]:
    server = Post(busy=1)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def asking(question: str = "Which colour?") -> ScriptedModel:
    """A model that asks and then answers."""
    return ScriptedModel(roles={"triage": [ask_user(question), answer("Blue it is.")]})


def kinds(events: list[Json]) -> list[str]:
    """What happened, each once."""
    return [event["type"].rpartition(".")[2] for event in {event["id"]: event for event in events}.values()]


async def test_a_function_hears_of_each_pause_and_of_the_end() -> None:
    """S01, R02: CloudEvents 1.0: the question with its id, then the outcome; one id for each; no credentials."""
    heard: list[Json] = []
    async with Agent(asking("Is password=Tr0ub4dor-3-horse right?"), storage="memory:", notify=heard.append) as agent:
        run = await agent.start("Paint it", thread_id="t 1")
        await agent.resume(run, "blue")
    assert kinds(heard) == ["waiting", "finished"]
    first, last = heard[0], heard[-1]
    assert (first["specversion"], first["subject"], first["type"]) == ("1.0", "t 1", "donewhen.run.waiting")
    assert "[redacted]" in first["data"]["questions"][0]["question"]
    assert "Tr0ub4dor" not in json.dumps(heard)
    assert first["data"]["questions"][0]["id"] == run.pending[0]["id"]
    assert (last["data"]["status"], last["data"]["answer"]) == ("answered", "Blue it is.")


async def test_a_webhook_is_signed_and_tried_again(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """R01: it refuses once; before the process ends the same id comes again, with a link, signed over the whole."""
    monkeypatch.setattr(news, "LONGEST_PAUSE", 0.0)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    hook = Webhook(post.url, secret, link="https://desk.example/run/{thread_id}")
    async with Agent(ScriptedModel(roles={"triage": [answer("Hi.")]}), storage="memory:", notify=hook) as agent:
        await agent.start("Hello", thread_id="a b")
    (_, first), (headers, body) = post.got
    assert json.loads(first)["id"] == json.loads(body)["id"] == headers["webhook-id"]
    assert json.loads(body)["data"]["link"] == "https://desk.example/run/a%20b"
    assert headers["content-type"].startswith("application/cloudevents+json")
    assert standardwebhooks.Webhook(secret).verify(body, dict(headers)) == json.loads(body)
    assert secret not in repr(hook)


def test_what_is_no_address_and_no_key_is_refused() -> None:
    """R01, P19: before anything starts; nobody could verify what such a key signs; the error says how to get one."""
    for secret in ("whsec_hello!", "whsec_", "hush hush", "whsec_a"):
        with pytest.raises(ConfigError, match="before it, and this is not; this prints a new one: py"):
            Webhook("https://desk.example/hook", secret)
    for address, said in (("ftp://there", "begins with https"), (1, "not int")):
        with pytest.raises(ConfigError, match=said):
            Agent("demo", storage="memory:", notify=address)  # type: ignore[arg-type]


def test_a_plan_that_the_command_approves_itself_is_no_news(post: Post, tmp_path: Path) -> None:
    """S01: with --yes nobody is needed for the plan; without it they are."""
    post.busy, shell = 0, user_in(tmp_path)
    step = {"content": "Count the files", "done_when": ["there is a count"], "tools": ["list_files"]}
    counting = [call("list_files"), finish_step("3 files", "s1.1")]
    for options, expected in ((("--yes",), ["finished"]), ((), ["waiting"])):
        with scripted(shell, strict=False, triage=[submit_plan([step])], execute=counting):
            said = shell.run(*options, DONEWHEN_NOTIFY=post.url)
        assert kinds([json.loads(body) for _, body in post.got]) == expected, said.stderr
        post.got.clear()


def test_the_command_delivers_no_news_of_other_programs(post: Post, tmp_path: Path) -> None:
    """S01: whoever reads, answers and works with the command; its address gets the news of its own runs."""
    post.busy, shell = 0, user_in(tmp_path)
    url = f"sqlite:///{tmp_path}/state/donewhen/runs.db"

    async def begin_elsewhere() -> None:
        def broken(event: Json) -> None:
            raise OSError("the program's own chat is down")

        async with Agent(asking(), storage=url, notify=broken) as program:
            await program.run_submitted(await program.submit("Paint it", thread_id="theirs"))
            await program.aclose(patience=0.1)
        await _make_due(program.storage)

    own = {"DONEWHEN_NOTIFY": post.url, "DONEWHEN_MODEL": "demo"}
    asyncio.run(begin_elsewhere())
    thread = shell.run("--detach", "--yes", **own).stdout.strip()
    for words in (["threads"], ["resume", "theirs", "--answer", "blue"]):
        assert "theirs" in shell(*words, **own).stdout
    with worker_of(shell, **own) as (worker, told):
        assert any(line.strip() == f"{thread}: completed" for line in told)
        worker.send_signal(signal.SIGTERM)
        told.read()
    assert post.subjects == [thread]

    shown = shell.run("--detach", "--yes", **own).stdout.strip()
    assert shell("cancel", shown, **own).stdout.strip() == "cancelled"
    assert post.subjects == [thread, shown], "who cancels it tells it"


def test_what_the_command_tells_at_a_question_for_somebody_named_is_news(post: Post, tmp_path: Path) -> None:
    """S01, H13: each time, at once: who is asked reads what others say, without another command."""
    post.busy, shell = 0, user_in(tmp_path)
    own = {"DONEWHEN_NOTIFY": post.url, "DONEWHEN_MODEL": "demo"}
    options = ("--set", 'answered_by={"plan": "boss"}', "--when-busy", "next_round", "--confirm", "always")
    shell.run(*options, **own)
    for words in ("in German please", "and short"):
        shell("tell", shell.waiting(), words, "--by", "bob", **own)
    texts = [json.loads(body)["data"]["questions"][0]["text"] for _, body in post.got]
    said = [[words in text for words in ("in German please", "and short")] for text in texts]
    assert said == [[False, False], [True, False], [True, True]]


async def test_words_told_while_an_answer_is_asked_back_are_news_once() -> None:
    """S01, H13: the question for somebody named stays the same, and they read of it what was said meanwhile."""
    heard: list[Json] = []
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "a", "tools": ["look"]}])]})

    def look(x: str) -> str:
        """Look."""
        return x

    settings = {"confirm": "always", "answered_by": {"plan": "boss"}, "when_busy": "next_round"}
    async with Agent(model, [look], storage="memory:", settings=settings, notify=heard.append) as agent:
        run = await agent.start("Do it", thread_id="t")
        async with agent.stream_resume(run, "no", by="boss") as events:
            async for event in events:
                if event["type"] == "started":
                    await agent.tell("t", "in German please", by="bob")
        await agent.tell("t", "and short", by="bob")
        assert (await agent.resume("t", "no", by="boss")).problem
    texts = [event["data"]["questions"][0]["text"] for event in heard]
    said = [[words in text for words in ("in German please", "and short")] for text in texts]
    assert said == [[False, False], [True, False], [True, True]]
    assert len({event["id"] for event in heard}) == 3


async def test_what_is_tried_again_comes_before_what_follows_it() -> None:
    """S01: nobody reads of a question after they read how the run ended."""
    heard: list[Json] = []

    def refuse_once(event: Json) -> None:
        heard.append(event)
        if len(heard) == 1:
            raise OSError("busy")

    async with Agent(asking(), storage="memory:", notify=refuse_once) as agent:
        run = await agent.start("Paint it")
        await agent.resume(run, "blue")
    assert [event["data"]["status"] for event in heard] == ["waiting", "waiting", "answered"]


async def test_a_function_that_hangs_keeps_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """S01, X07: it has failed after some time, and is tried again; other threads' notifications are delivered."""
    monkeypatch.setattr(news, "LEASE", 0.05)
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hang(event: Json) -> None:
        if event["subject"] == "first":
            await asyncio.Event().wait()
        heard.put_nowait(event["subject"])

    model = ScriptedModel(roles={"triage": [answer("Hi."), answer("Hi.")]})
    async with Agent(model, storage="memory:", notify=hang) as agent:
        await agent.start("Hello", thread_id="first")
        await agent.start("Hello", thread_id="second")
        assert await asyncio.wait_for(heard.get(), 30) == "second"
        await agent.aclose(patience=0)


async def test_an_answer_that_is_asked_back_is_no_news_and_the_planners_answer_is() -> None:
    """C11, C13: who asked by mail about a plan reads the answer in a mail, with the whole plan behind it."""
    heard: list[Json] = []
    asked = [submit_plan([{"content": "a", "tools": ["look"]}]), answer("It takes a day.")]
    plan = ScriptedModel(roles={"triage": asked})

    def look(x: str) -> str:
        """Look."""
        return x

    async with Agent(plan, [look], storage="memory:", notify=heard.append) as agent:
        run = await agent.start("Do it")
        again = await agent.resume(run, "no")
        assert again.problem
        await agent.resume(run, "How long does it take?")
    assert kinds(heard) == ["waiting", "waiting"]
    text = heard[-1]["data"]["questions"][0]["text"]
    assert text.startswith("It takes a day.")
    assert "The plan is unchanged." in text


@pytest.mark.parametrize("works", [True, False])
async def test_what_one_process_could_not_deliver_another_does(works: bool) -> None:
    """R02: the function of the first failed, and the process ended; the second delivers it, idle as it is."""
    storage, heard, there = open_storage("memory:"), list[Json](), asyncio.Event()

    def broken(event: Json) -> None:
        raise OSError("no network")

    async with Agent(asking(), storage=storage, notify=broken) as agent:
        await agent.start("Paint it")
        await agent.aclose(patience=1)
    await _make_due(storage)

    async def take(event: Json) -> None:
        heard.append(event)
        there.set()

    async with Agent(asking(), storage=storage, notify=take) as agent, agent.worker() if works else nullcontext():
        await asyncio.wait_for(there.wait(), 60)
    assert kinds(heard) == ["waiting"]


@pytest.mark.parametrize("by", ["delete", "prune"])
@pytest.mark.parametrize("kind", ["memory", "sqlite-sealed", "postgres"])
async def test_news_of_a_deleted_thread_are_deleted(kind: str, by: str, tmp_path: Path) -> None:
    """R02, S04: what was not delivered goes with its thread, also while it is being sent; others' news stay."""
    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    model, sending = ScriptedModel(roles={"triage": [answer("Done.")] * 3}), asyncio.Event()

    async def broken(event: Json) -> None:
        if event["subject"] == "gone" and sending.is_set():
            await agent.delete("gone") if by == "delete" else await agent.prune(timedelta(0), owner="ann")
        raise OSError("no network")

    async with Agent(model, storage=storage, notify=broken) as agent:
        for name, owner in (("gone", "ann"), ("gone.2", "ann"), ("other", "bob")):
            await agent.start("Paint it", thread_id=name, owner=owner)
        await agent.aclose(patience=0.1)
        if by == "delete":
            await agent.delete("gone.2")
        sending.set()
        await _make_due(storage)
        await Notifier(storage, QUEUE, broken).deliver()
        async with storage.reader() as (_, store):
            assert [item.value["event"]["subject"] for item in await store.asearch(news.SPACE)] == ["other"]


async def _make_due(storage: Storage) -> None:
    """Let the time pass after which it is tried again."""
    async with storage.writer() as (_, store):
        for item in await store.asearch(news.SPACE):
            await store.aput(item.namespace, item.key, {**item.value, "due": ""}, index=False)


async def test_killed_anywhere_its_news_arrive() -> None:
    """R02: a crash at a boundary of the storage, then somebody goes on: the pause and the end are both told."""
    for at in range(1, 10_000, EVERY):
        storage, heard = open_storage("memory:"), list[Json]()
        crash = Crash(at)
        try:
            async with Agent(asking(), storage=crashing(storage, crash), notify=heard.append) as agent:
                run = await agent.start("Paint it", thread_id="t")
                await agent.resume(run, "blue")
        except StorageError:
            pass
        whole = len(crash.trace) < at
        async with Agent(_any_time(), storage=storage, notify=heard.append) as agent:
            try:
                run = await agent.start("Paint it", thread_id="t")
            except ThreadWaiting:
                run = await agent.resume("t")
            if run.status == "waiting":
                run = await agent.resume(run, "blue")
            assert run.status == "answered"
            await _make_due(storage)
        assert {"waiting", "finished"} <= set(kinds(heard)), at
        if whole:
            break
    assert at > 20


EVERY = int(os.environ.get("EVERY", "4"))
"""`make fuzz` tries all of the boundaries, the suite each fourth."""


def _any_time() -> ScriptedModel:
    """A model that goes on wherever the run stands."""

    def reply(messages: list[Any], tools: list[Json]) -> Any:
        return answer("Blue it is.") if "blue" in str(messages[-1].text) else ask_user("Which colour?")

    return ScriptedModel(reply)


@pytest.mark.parametrize("it", ["waits", "has an answer", "has not begun"])
async def test_a_run_that_somebody_cancels_is_told_as_finished(it: str) -> None:
    """S01: it waits, has an answer in the queue, or has not begun; nothing else has to happen until it is told."""
    storage, heard = open_storage("memory:"), list[Json]()
    async with Agent(asking(), storage=storage, notify=print) as agent:
        if it == "has not begun":
            await agent.submit("Paint it", thread_id="t")
        else:
            await agent.start("Paint it", thread_id="t")
    idle = Agent(ScriptedModel([]), storage=storage, notify=heard.append)
    if it == "has an answer":
        await idle.submit_answer("t", "blue")
    await idle.cancel("t")
    await idle.aclose()
    assert kinds(heard) == ["finished"]


@pytest.mark.parametrize(
    ("model", "told"), [(asking(), "waiting"), (ScriptedModel(roles={"triage": [answer("Hi.")]}), "finished")]
)
async def test_what_a_dead_worker_left_is_told_once_somebody_looks(model: ScriptedModel, told: str) -> None:
    """R02: a list completes its pause or its end, and nothing has to run until that is told."""
    storage, heard = open_storage("memory:"), list[Json]()
    async with Agent(model, storage=storage) as agent:
        await agent.start("Paint it", thread_id="t")
    idle = Agent(ScriptedModel([]), storage=storage, notify=heard.append)
    async with storage.writer() as (_, store):
        row = await store.threads.get("t") or {}
        await store.threads.put("t", {**row, "status": "running", "due": DUE_NOW, "notify": idle.queue})
    await idle.threads()
    await idle.aclose()
    assert kinds(heard) == [told]


async def test_a_question_that_no_worker_can_answer_by_its_policy_is_told_as_failed() -> None:
    """R04, P18: whoever counts on the answer by default hears that it does not come; the retries are no news."""
    policy: Any = {"on_question": "default", "default_answer": "June", "question_seconds": 0}
    heard = list[Json]()
    storage = open_storage("memory:")
    async with Agent(asking(), storage=storage, settings=policy) as agent:
        thread = (await agent.run_submitted(await agent.submit("Paint it"))).thread_id
        keyless = Agent("openai:gpt-5", storage=storage, settings=policy, notify=heard.append)
        worker = keyless.worker()
        for tries in (0, TRIES - 1, TRIES):
            async with storage.writer() as (_, store):
                row = {**(await store.threads.get(thread) or {}), "tries": tries, "due": DUE_FIRST}
                await store.threads.put(thread, row)
            await worker._continue_thread(thread, row)
        await keyless.aclose()
        assert ((await agent.info(thread)).status, len(await agent.pending())) == ("waiting", 1)
    assert [(each["type"], each["data"]["status"]) for each in heard] == [("donewhen.run.failed", "waiting")]
    assert "OPENAI_API_KEY" in heard[0]["data"]["problem"]


async def test_a_run_that_dead_workers_leave_to_a_person_is_told_as_failed() -> None:
    """R04: its worker died once more than is retried; of two, the one that is retried is no news."""
    storage, heard, told = open_storage("memory:"), list[Json](), asyncio.Event()

    async def take(event: Json) -> None:
        if event["type"] == "donewhen.run.failed":
            heard.append(event)
            told.set()

    async with Agent(asking(), storage=storage, notify=take) as agent:
        for name, tries in (("again", 4), ("left", 5)):
            await agent.start("Paint it", thread_id=name)
            async with storage.session(name) as (_, store):
                row = await store.threads.get(name) or {}
                await write_crash(store, name, {**row, "queue": QUEUE, "tries": tries})
    async with Agent(asking(), storage=storage, notify=take):
        await asyncio.wait_for(told.wait(), 60)
    assert [(event["subject"], event["data"]["problem"]) for event in heard] == [("left", "its worker died 6 times")]


async def test_a_run_that_failed_is_told_as_failed() -> None:
    """D01: `failed` is a type of its own, so that who watches need not read."""
    heard: list[Json] = []
    model = ScriptedModel(roles={"triage": [decline("no tool for it", "Ask the bank.")]})
    async with Agent(model, storage="memory:", notify=heard.append) as agent:
        assert (await agent.start("Do it")).status == "failed"
    assert kinds(heard) == ["failed"]
    assert heard[0]["data"]["code"]


@pytest.mark.parametrize("cause", ["no key", "dead workers", "both"])
async def test_a_request_that_is_left_to_a_person_before_it_began_is_told_as_failed(cause: str) -> None:
    """R04: the worker that gives up tells it, because nothing of the run is known yet."""
    storage, heard, told = open_storage("memory:"), list[Json](), asyncio.Event()
    wanted = {"no key": ["keyless"], "dead workers": ["died"], "both": ["died", "keyless"]}[cause]

    def take(event: Json) -> None:
        heard.append(event)
        if len(heard) == len(wanted):
            told.set()

    async with Agent(asking(), storage=storage, notify=take) as agent:
        if "keyless" in wanted:
            await agent.submit("Paint it", thread_id="keyless", settings={"models": {"triage": "openai:gpt-5"}})
        if "died" in wanted:
            await agent.submit("Paint it", thread_id="died")
            async with storage.session("died") as (_, store):
                row = await store.threads.get("died") or {}
                await store.threads.put("died", {**row, "status": "running", "due": DUE_NOW, "tries": 5})
        async with agent.worker():
            await asyncio.wait_for(told.wait(), 20)
    assert sorted(event["subject"] for event in heard) == wanted
    assert kinds(heard) == ["failed"] * len(wanted)
    assert all(event["data"]["problem"] for event in heard)


async def test_news_of_a_schedules_run_names_its_owner_and_its_schedule() -> None:
    """P18, S01: its thread is its own, so that its news say for whom it is; of two schedules, each for its own."""
    step = {"content": "Look", "done_when": "ok", "tools": ["look"]}
    plan = submit_plan([step], language="en", schedule={"every_minutes": 60})
    work = [call("look", x="1"), finish_step("seen", ("s1.1", "1"))]

    def look(x: str) -> str:
        """Look."""
        return x

    heard, model = list[Json](), ScriptedModel(roles={"triage": [plan] * 2, "execute": work * 2})
    async with Agent(model, [look], effects={"look": "read"}, storage="memory:", notify=heard.append) as agent:
        for owner in ("ann", "ben"):
            await agent.resume(await agent.start("Look each hour", thread_id=f"of {owner}", owner=owner), "approve")
        for schedule in await agent.schedules.list():
            await agent.run_submitted(await agent.schedules.run(schedule.id))
        expected = {(row.owner, row.schedule) for row in await agent.threads()}
    of_threads = {(event["data"]["owner"], event["data"].get("schedule", "")) for event in heard}
    assert len(expected) == 4
    assert of_threads == expected


async def test_the_planners_answer_is_news_each_time_also_in_the_same_words() -> None:
    """C13: who asks twice about a plan is answered twice; an answer that is asked back between them is no news."""
    heard: list[Json] = []
    asked = [submit_plan([{"content": "a", "tools": ["look"]}]), *[answer("It takes a day.")] * 3]

    def look(x: str) -> str:
        """Look."""
        return x

    async with Agent(ScriptedModel(roles={"triage": asked}), [look], storage="memory:", notify=heard.append) as agent:
        run = await agent.start("Do it", thread_id="t")
        for words in ("How long?", "no", "How long?", "later", "And at worst?"):
            run = await agent.resume(run, words)
    assert kinds(heard) == ["waiting"] * 4


async def test_what_a_receiver_fails_with_is_logged_without_credentials(caplog: pytest.LogCaptureFixture) -> None:
    """U11, R18: errors of webhooks often carry their address."""
    token, calls, came_again = "ghp_abcdefghijklmnopqrstuvwxyz0123456789", list[Json](), asyncio.Event()

    def notify(event: Json) -> None:
        calls.append(event)
        if len(calls) == 1:
            raise RuntimeError(f"cannot post with {token}")
        came_again.set()

    async with Agent(ScriptedModel([answer("ok")]), storage="memory:", notify=notify) as agent, agent.worker():
        await agent.submit("report", thread_id="t")
        await asyncio.wait_for(came_again.wait(), 60)
    assert "cannot post with [redacted]" in caplog.text
    assert token not in caplog.text
