"""The page on the wire: what it is told, what it may send, who may not, and what a page that comes later sees."""

import asyncio
import json
import re
import signal
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from donewhen import Agent
from donewhen.agent.cli.runs import page_command
from donewhen.agent.cli.storage_view import StorageView
from donewhen.agent.page import conversations
from donewhen.agent.page.conversations import DEMO_GOALS
from donewhen.agent.page.serving import Address
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.places import ROOT
from tests.kit.screens.pages import TOKEN, Gate, Json, served
from tests.kit.screens.terminal import Session, environment

READ = {"content": "Read the note", "done_when": ["it is read"], "tools": ["read_note"]}
READING = [call("read_note", path="a.txt"), finish_step("It says seven", "s1.1")]
NOTE = "seven\n" * 10_000


def read_note(path: str) -> str:
    """Read a note."""
    return NOTE


def edit_note(path: str, old_text: str, new_text: str) -> str:
    """Change a note."""
    return "changed"


def agent(storage: str = "memory:", **roles: Any) -> Agent:
    model = ScriptedModel(roles=roles)
    return Agent(model, [read_note, edit_note], storage=storage, effects={"read_note": "read", "edit_note": "write"})


def of(events: list[Json], kind: str) -> list[Json]:
    return [event for event in events if event["type"] == kind]


async def test_a_run_on_the_wire() -> None:
    """S01, C02, C07: plan, answer, calls with their arguments in words, receipt; the same from the start."""
    async with served(agent(triage=[submit_plan([READ])], execute=READING)) as page:
        thread = await page.start("read it")
        first = await page.told(thread)
        assert [event["n"] for event in first] == list(range(1, len(first) + 1))
        assert first[0]["type"] == "started"
        (asked,) = first[-1]["pending"]
        assert (asked["kind"], asked["plan"]["steps"][0]["content"]) == ("plan", "Read the note")
        assert "- id: s1\n  content: Read the note\n" in asked["written"]
        await page.answer(thread, asked["id"], {"type": "approve"})
        whole = await page.told(thread, ends=2)
        assert [{**each, "past": True} for each in first] == whole[: len(first)], "each says that others follow"
        assert "past" not in whole[-1]
        (made,) = of(whole, "tool_started")
        assert (made["shown"], made["changes"]) == ({"path": "a.txt"}, [])
        assert whole[-1]["run"]["receipt"]["steps"][0]["criteria"][0]["verdict"] == "cited"
        found = (await page.client.get(f"/api/threads/{thread}/observations/s1.1")).json()
        assert (found["tool"], found["text"]) == ("read_note", NOTE)
        assert (await page.client.get(f"/api/threads/{thread}/observations/s9.9")).status_code == 404
        (row,) = (await page.client.get("/api/threads")).json()["threads"]
        assert (row["thread_id"], row["status"], row["at_work"]) == (thread, "completed", False)


async def test_a_refused_edit_is_given_back_with_the_line_that_is_wrong() -> None:
    """U3, C03, C12: the pause stays, names the line, and its text is the one that was sent."""
    async with served(agent(triage=[submit_plan([READ])])) as page:
        thread = await page.start("read it")
        (asked,) = (await page.told(thread))[-1]["pending"]
        wrong = asked["written"].replace("  tools:", "  tool:")
        await page.answer(
            thread, asked["id"], {"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": wrong}}}
        )
        again = (await page.told(thread, ends=2))[-1]
        assert f"line {wrong.splitlines().index('  tool:') + 1}: step s1 has no field 'tool'" in again["problem"]
        assert (again["pending"][0]["draft"], again["pending"][0]["written"]) == (wrong, wrong)


async def test_a_plan_edited_in_place() -> None:
    """C02, C03, U3: steps, criteria and limits as JSON; what runs is what was sent."""
    execute = [call("read_note", path="a.txt"), finish_step("seven", ["s1.1", "s1.1"])]
    async with served(agent(triage=[submit_plan([READ])], execute=execute)) as page:
        thread = await page.start("read it")
        (asked,) = (await page.told(thread))[-1]["pending"]
        plan = asked["plan"]
        plan["steps"][0]["done_when"].append({"text": "the number is named"})
        sent = {"type": "edit", "plan": {**plan, "limits": {**asked["limits"], "rounds": 5}}}
        await page.answer(thread, asked["id"], sent)
        run = (await page.told(thread, ends=2))[-1]["run"]
        assert [row["text"] for row in run["receipt"]["steps"][0]["criteria"]] == ["it is read", "the number is named"]
        assert run["limits"]["rounds"] == 5


@pytest.mark.parametrize("replied", [answer("It is short."), submit_plan([READ])], ids=["answered", "same plan"])
async def test_words_that_leave_a_plan_as_it_was_say_so(replied: Any) -> None:
    """C04: as at the terminal, the question begins with it; a plan that is new does not."""
    other = submit_plan([{**READ, "content": "Read it all"}])
    async with served(agent(triage=[submit_plan([READ]), replied, other])) as page:
        thread = await page.start("read it")
        (asked,) = (await page.told(thread))[-1]["pending"]
        assert asked["question"] == "Shall I go ahead with this plan?"
        await page.answer(thread, asked["id"], "how long is it?")
        (again,) = (await page.told(thread, ends=2))[-1]["pending"]
        assert again["question"] == "The plan is unchanged. Shall I go ahead with this plan?"
        await page.answer(thread, again["id"], "read all of it")
        (new,) = (await page.told(thread, ends=3))[-1]["pending"]
        assert new["question"] == "Shall I go ahead with this plan?"


async def test_why_a_call_asks_and_what_it_changes() -> None:
    """Q10, X15: the frozen call with its difference; a rejection with its reason stays one."""
    made = call("edit_note", path="a.txt", old_text="one\ntwo", new_text="one\n2")
    plan = submit_plan([{**READ, "tools": []}])
    async with served(agent(triage=[plan], execute=[made, ask_user("And now?", ["stop", "go on"])])) as page:
        thread = await page.start("change it")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        (asked,) = (await page.told(thread, ends=2))[-1]["pending"]
        assert (asked["kind"], asked["shown"]) == ("tool", {"path": "a.txt"})
        assert "edit_note" in asked["question"]
        (change,) = asked["changes"]
        assert change["is_diff"]
        assert "-two\n+2" in change["text"]
        await page.answer(thread, asked["id"], {"type": "reject", "message": "not this file"})
        (question,) = (await page.told(thread, ends=3))[-1]["pending"]
        assert question["options"] == ["stop", "go on"]


async def test_an_answer_to_something_else_changes_nothing() -> None:
    """C04, C06: a stale id is a conflict; so is a second request while a question is open."""
    async with served(agent(triage=[submit_plan([READ])])) as page:
        thread = await page.start("read it")
        await page.told(thread)
        stale = await page.client.post(f"/api/threads/{thread}/answer", json={"id": "confirm.0", "answer": "approve"})
        assert (stale.status_code, stale.json()["error"]["kind"]) == (409, "StaleAnswer")
        busy = await page.client.post("/api/threads", json={"goal": "another", "thread": thread})
        assert (busy.status_code, busy.json()["error"]["kind"]) == (409, "ThreadWaiting")
        blank = await page.client.post("/api/threads", json={"goal": " "})
        assert (blank.status_code, blank.json()["error"]["kind"]) == (400, "GoalError")
        assert (await page.told(thread))[-1]["type"] == "waiting"


async def test_an_earlier_thread_is_drawn_as_it_stands_and_goes_on(tmp_path: Path) -> None:
    """C06, D04: another process sees the conversation, the plan and what was observed, and the next request follows."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(agent(storage, triage=[submit_plan([READ])], execute=READING)) as page:
        thread = await page.start("read it")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        await page.told(thread, ends=2)
    async with served(agent(storage, triage=[submit_plan([READ])])) as page:
        async with page.client.stream("GET", f"/api/threads/{thread}/events") as answer:
            picture = await anext(answer.aiter_lines())
        found = httpx.Response(200, text=picture).json()
        assert (found["type"], found["n"], found["run"]["status"]) == ("picture", 1, "completed")
        assert [each["by"] for each in found["messages"]] == ["user", "agent"]
        assert [(each["id"], each["shown"]) for each in found["journal"] if each["tool"] == "read_note"] == [
            ("s1.1", {"path": "a.txt"})
        ]
        await page.start("again", thread)
        events = await page.told(thread)
        assert [event["type"] for event in events[:2]] == ["picture", "started"]
        assert (events[0]["n"], events[0]["run"]) == (1, None)
        assert events[-1]["type"] == "waiting"


async def test_the_page_shows_the_work_of_the_last_twenty_requests(tmp_path: Path) -> None:
    """C06, M11: of 25 requests on a thread, so that opening it costs no more with its age. A conversation opens, and a
    request begins, before that is read; the newest comes first."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with agent(storage, triage=[answer(str(n)) for n in range(25)]) as own:
        for n in range(25):
            await own.start(f"question {n}", thread_id="t")
    async with served(agent(storage, triage=[answer("25")])) as page:
        opened = await page.told("t", ends=20, kinds=["earlier"])
        asked = {each["id"]: each["text"] for each in opened[0]["messages"] if each["by"] == "user"}
        assert (len(asked), opened[0]["type"]) == (25, "picture")
        expected = [f"question {n}" for n in range(23, 3, -1)]
        assert [asked[event["message"]] for event in of(opened, "earlier")] == expected
        await page.start("question 25", "t")
        begun = await page.told("t", ends=20, kinds=["earlier"])
        assert [event["type"] for event in begun[:2]] == ["picture", "started"]
        assert [asked[event["message"]] for event in of(begun, "earlier")] == ["question 24", *expected[:19]]
        work = {event["type"] for each in of(begun, "earlier") for event in each["done"]}
        assert work == {"spent"}
    with closing(sqlite3.connect(tmp_path / "runs.db")) as rows, rows:
        rows.execute("UPDATE donewhen_events SET event = '{' WHERE turn = 10")
    async with served(agent(storage)) as page:
        opened = await page.told("t", kinds=["note"])
        assert "damaged" in opened[-1]["text"], "what cannot be read is said, and closes no conversation"


async def test_requests_whose_place_was_taken_crowd_out_no_earlier_work() -> None:
    """M11, Q29: after more of them than the page shows, the answer before them has its work."""
    looks = [each for n in range(23) for each in (call("read_note", path="a"), answer(str(n)))]
    async with served(reading := agent(triage=looks)) as page:
        await reading.start("first", thread_id="t", request_id="m0")
        for n in range(22):
            await reading.start("second", thread_id="t", request_id=f"r{n}", instead_of=f"r{n - 1}" if n else None)
        (earlier,) = of(await page.told("t", kinds=["earlier"]), "earlier")
    assert (earlier["message"], earlier["cut"]) == ("m0", False)
    assert [each["tool"] for each in of(earlier["done"], "observation")] == ["read_note"]


async def test_of_an_earlier_request_with_many_events_the_latest_are_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M11: opening a conversation costs no more with the length of its requests; the plan is there, and what is left
    out is said."""
    monkeypatch.setattr(conversations, "EARLIER_EVENTS", 6)
    async with served(reading := agent(triage=[submit_plan([READ]), answer("Eight.")], execute=READING)) as page:
        await reading.resume(await reading.start("read it", thread_id="t"), "approve")
        await reading.start("and more?", thread_id="t")
        (earlier,) = of(await page.told("t", kinds=["earlier"]), "earlier")
    assert earlier["cut"]
    kinds = [event["type"] for event in earlier["done"]]
    assert (kinds[0], "spent" in kinds, len(kinds) <= 7) == ("plan", True, True)


async def test_a_known_secret_is_no_part_of_what_a_displaced_request_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """R08, Q29: neither in the picture nor in `Agent.conversation`, as in the note, the answer and the receipt."""
    monkeypatch.setenv("SHOP_API_KEY", secret := "zebra-lantern-42-quartz")

    def pay(to: str) -> str:
        """Pay."""
        return "paid"

    plan = submit_plan([{"content": "Pay it", "done_when": ["paid"], "tools": ["pay"]}])
    roles: Any = {"triage": [plan] * 2, "execute": [call("pay", to=f"R-17 {secret}"), finish_step("paid", "s1.1")]}
    paying = Agent(ScriptedModel(roles=roles), [pay], storage="memory:", settings={"approvals": "plan"})
    async with served(paying) as page:
        await paying.resume(await paying.start("pay", thread_id="t", request_id="m1"), "approve")
        await paying.start("pay", thread_id="t", request_id="m2", instead_of="m1")
        (picture,) = await page.told("t", kinds=["picture"])
        for line in (picture["displaced"], (await paying.conversation("t")).displaced):
            assert "R-17 [redacted]" in line
            assert secret not in line


async def test_stop_and_go_on() -> None:
    """R02, U4: stopped at a clean point; going on ends it, and nothing is asked again."""
    gate = Gate()
    waiting, model = gate.agent()
    async with served(waiting) as page:
        thread = await page.start("wait")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        await gate.entered.wait()
        assert (await page.client.get("/api/threads")).json()["threads"][0]["at_work"]
        await page.send(f"threads/{thread}/stop")
        gate.go.set()
        assert (await page.told(thread, ends=2))[-1]["status"] == "running"
        await page.send(f"threads/{thread}/go-on", steer="")
        assert (await page.told(thread, ends=3))[-1]["status"] == "completed"
    model.assert_exhausted()


@pytest.mark.timeout(30)
async def test_a_run_of_another_process_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C06, N48: at work there, it is so in the list; its steps and questions come, also after it went on there, and in
    two requests; it cannot be stopped from here."""
    monkeypatch.setattr(conversations, "CHECK_SECONDS", 1.0)
    gate = Gate()
    execute = [call("wait_here"), ask_user("Which year?", ["2022", "2023"]), finish_step("done", "s1.1")]
    triage = [submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}]), ask_user("Again?")]
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(agent(storage)) as page, gate.agent(storage, triage=triage, execute=execute)[0] as other:
        run = await other.start("wait")
        told = page.events(run.thread_id)  # one page that stays open all the time
        assert (await anext(told))["run"]["status"] == "waiting"
        work = asyncio.create_task(other.resume(run, "approve"))
        await gate.entered.wait()
        (row,) = (await page.client.get("/api/threads")).json()["threads"]
        assert row["at_work"]
        seen = [await anext(told)]
        while seen[-1]["type"] != "plan":
            seen.append(await anext(told))
        assert [event["type"] for event in seen[:2]] == ["picture", "started"]
        stopping = await page.client.post(f"/api/threads/{run.thread_id}/stop", json={})
        assert (stopping.status_code, stopping.json()["error"]["kind"]) == (409, "ThreadBusy")
        gate.go.set()
        await work
        while seen[-1]["type"] != "waiting":
            seen.append(await anext(told))
        assert of(seen, "observation")[0]["tool"] == "wait_here"
        assert seen[-1]["pending"][0]["question"] == "Which year?"
        assert (await other.resume(run.thread_id, "2022")).status == "completed"
        while (seen[-1].get("run") or {}).get("status") != "completed":
            seen.append(await anext(told))
        assert (await other.start("wait once more", thread_id=run.thread_id)).status == "waiting"
        while not (seen[-1].get("run") or {}).get("pending"):
            seen.append(await anext(told))
        assert seen[-1]["run"]["goal"] == "wait once more"
        await other.delete(run.thread_id)
        while seen[-1]["type"] != "gone":
            seen.append(await anext(told))


async def test_words_after_stop_steer() -> None:
    """U4: what is typed on a request that was stopped is planned by; what is finished stays, another is refused."""
    gate = Gate()
    plan = submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}])
    waiting, model = gate.agent(triage=[plan, submit_plan(["Only look"])], execute=[call("wait_here")])
    async with served(waiting) as page:
        thread = await page.start("wait")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        await gate.entered.wait()
        early = await page.client.post(f"/api/threads/{thread}/go-on", json={"steer": "x"})
        assert (early.status_code, early.json()["error"]["kind"]) == (409, "ThreadBusy")
        assert "from another tab" in early.json()["error"]["text"], "a person reads this, so it names no thread"
        await page.send(f"threads/{thread}/stop")
        gate.go.set()
        await page.told(thread, ends=2)
        await page.send(f"threads/{thread}/go-on", steer="only look at it")
        events = await page.told(thread, ends=3)
        assert of(events, "answered")[-1]["text"] == "only look at it"
        assert events[-1]["type"] == "waiting", (events[-1]["type"], events[-1].get("text"), events[-1].get("status"))
        assert events[-1]["pending"][0]["plan"]["steps"][-1]["content"] == "Only look"
        assert "only look at it" in str([message.content for message in model.requests[-1].messages])
        late = await page.client.post(f"/api/threads/{thread}/go-on", json={"steer": "x"})
        assert (late.status_code, late.json()["error"]["kind"]) == (409, "StaleAnswer")


async def test_who_may_not_speak() -> None:
    """U9: without the token, from a foreign host or page, nothing is answered; the page itself runs nothing foreign."""
    async with served(agent()) as page:
        for headers in (
            {"authorization": ""},
            {"authorization": "Bearer other"},
            {"host": "evil.example"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
        ):
            refused = await page.client.post("/api/threads", json={"goal": "x"}, headers=headers)
            assert refused.status_code == 403, headers
            german = await page.client.get("/api/about", headers={**headers, "accept-language": "de-AT,de;q=0.9"})
            assert "Seite" in german.text or "Link" in german.text, "it is said in the browser's language"
        proxied = {"origin": "http://office.example", "sec-fetch-site": "same-origin", "accept-language": "de"}
        assert (await page.client.get("/page.js", headers=proxied)).status_code == 200, "it says why below"
        begun = await page.client.post("/api/words", json={}, headers=proxied)
        assert (begun.status_code, begun.text) == (403, "Diese Seite antwortet nur diesem Rechner.")
        shown = await page.client.get("/", headers={"authorization": ""})
        assert shown.status_code == 200
        assert TOKEN not in shown.text
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert "<script>" not in shown.text
        assert (await page.client.get("/../web.py")).status_code == 404
        large = await page.client.post("/api/threads", content=b"x" * 1_100_000)
        assert large.status_code == 400


@pytest.mark.parametrize(("wanted", "language"), [("de-AT,en", "de"), ("zh-CN", "zh"), ("sv", "en"), ("", "en")])
async def test_the_page_speaks_the_browsers_language(wanted: str, language: str) -> None:
    """Q11."""
    async with served(agent()) as page:
        words = (await page.client.get("/api/words", params={"languages": wanted})).json()
        assert words["language"] == language
        assert words["run_it"]


async def test_the_list_is_searched_named_and_shortened(tmp_path: Path) -> None:
    """N76: by words of the name and of all requests, the first of which names it; a name survives the next request and
    goes with its thread. What takes the place of the first request names it."""
    triage = [answer(text) for text in ("Four.", "Six.", "Eight.", "Nine.", "Ten.")]
    async with served(agent(f"sqlite:///{tmp_path / 'runs.db'}", triage=triage)) as page:
        begun = []
        for goal in ("Two and two", "three and THREE", "four and four"):
            begun.append(await page.start(goal))
            await page.told(begun[-1])
        first = begun[0]

        async def listed(**asked: Any) -> list[str]:
            found = (await page.client.get("/api/threads", params=asked)).json()
            return [row["title"] or row["goals"][0] for row in found["threads"]] + ["…"] * found["more"]

        assert await listed(limit=2) == ["four and four", "three and THREE", "…"]
        assert len(await listed(limit="9" * 5000)) == 3, "more digits than Python converts"
        assert await listed(search="and three") == ["three and THREE"]
        await page.send(f"threads/{first}/title", title="  The\nfirst  ")
        assert await listed(search="FIRST") == ["The first"]
        await page.start("and again", first)
        await page.told(first)
        assert await listed(search="first") == ["The first"]
        await page.send(f"threads/{first}/title", title="")
        assert await listed(search="again two") == ["Two and two"], "last week's conversation keeps its name"
        message = next(row["id"] for row in (await page.told(first))[0]["messages"] if row["by"] == "user")
        await page.send("threads", goal="six and six", thread=first, instead_of=message)
        await page.told(first)
        assert (await listed(search="six"), await listed(search="again")) == (["six and six"], [])
        assert (await page.client.delete(f"/api/threads/{first}")).status_code == 200
        assert await listed() == ["four and four", "three and THREE"]
        for asked in ("GET events", "POST title", "DELETE "):
            method, _, what = asked.partition(" ")
            gone = await page.client.request(method, f"/api/threads/{first}/{what}".rstrip("/"), json={"title": "x"})
            assert (gone.status_code, gone.json()["error"]["kind"]) == (404, "UnknownThread"), asked


async def test_a_thread_at_work_is_told_things_and_not_deleted() -> None:
    """N76, D04: what is said at work, or at an open question, is told to all pages and read when the work goes on."""
    gate = Gate()
    waiting, model = gate.agent()
    async with served(waiting) as page:
        thread = await page.start("wait")
        (asked,) = (await page.told(thread))[-1]["pending"]
        await page.send(f"threads/{thread}/tell", text="with a rim")
        await page.answer(thread, asked["id"], "approve")
        await gate.entered.wait()
        busy = await page.client.delete(f"/api/threads/{thread}")
        assert (busy.status_code, busy.json()["error"]["kind"]) == (409, "ThreadBusy")
        await page.send(f"threads/{thread}/tell", text=" in blue ")
        gate.go.set()
        assert [event["text"] for event in of(await page.told(thread, ends=2), "told")] == ["with a rim", "in blue"]
        shown = str([message.content for message in model.requests[-1].messages])
        assert all(text in shown for text in ("in blue", "with a rim"))


@pytest.mark.parametrize("goal", DEMO_GOALS)
async def test_the_examples_of_the_demo_work(goal: str) -> None:
    """N76: what the empty page proposes is done, with what stands in a folder."""
    shop = ROOT / "examples" / "shop"
    demo = Agent("demo", workspace_tools(shop), storage="memory:", settings={"confirm": "never"})
    async with served(demo, dir=str(shop), model="demo") as page:
        assert goal in (await page.client.get("/api/about")).json()["examples"]
        assert (await page.told(await page.start(goal)))[-1]["status"] == "completed"


async def test_a_dropped_file_stays_in_the_folder(tmp_path: Path) -> None:
    """N76: under its own name or the next free one; what leads elsewhere, or is none, is refused."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "linked.txt").symlink_to(tmp_path / "outside.txt")
    async with served(agent(), dir=str(folder)) as page:

        async def drop(name: str, content: bytes = b"new") -> Any:
            return (await page.client.post("/api/files", params={"name": name}, content=content)).json()

        assert [(await drop(name))["name"] for name in ("a.csv", "a.csv", "../../b.csv", "C:\\x\\c.csv")] == [
            "a.csv", "a (2).csv", "b.csv", "c.csv",
        ]  # fmt: skip
        assert (await drop("linked.txt"))["name"] == "linked (2).txt"
        for name in ("", "..", "/", "a\0b", "x" * 300):
            assert (await drop(name))["error"]["kind"] == "DoneWhenError", name
        assert (await page.client.get("/api/about")).json()["folder"] == str(folder)
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))  # noqa: ASYNC240
    names = ["a (2).csv", "a.csv", "b.csv", "c.csv", "linked (2).txt", "linked.txt"]
    assert found == ["work", *(f"work/{name}" for name in names)]
    async with served(agent()) as page:
        assert (await page.client.post("/api/files", params={"name": "a"}, content=b"x")).status_code == 400


@pytest.mark.parametrize("kind", ["many", "large", "another model", "gone"])
async def test_pictures_that_are_not_taken_stop_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """N76: those that a request can have are seen, also when it is made again; how many are not is said."""
    names = [f"receipt{n}.png" for n in range(25 if kind == "many" else 2)]
    for name in names:
        (tmp_path / name).write_bytes(name.encode())
    if kind == "large":
        (tmp_path / names[0]).write_bytes(b"x" * 23_000_000)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    if kind == "gone":
        (tmp_path / names[0]).unlink()
    settings: Any = {"models": {"execute": "openai:gpt-3.5-turbo"}} if kind == "another model" else None
    model = ScriptedModel(roles={"triage": [answer("Five."), answer("Six.")]})
    async with served(Agent(model, storage="memory:", settings=settings), dir=str(tmp_path)) as page:
        first = await page.send("threads", goal=f"add up {' '.join(names)}", pictures=names)
        events = await page.told(thread := first["thread"])
        seen = {"many": 20, "large": 1, "another model": 0, "gone": 1}[kind]
        assert events[-1]["status"] == "answered", events[-1]["run"]["answer"]
        (told,) = of(events, "unseen")
        assert (told["unseen"], told["pictures"]) == (len(names) - seen, len(names))
        (goal,) = of(events, "goal")
        await page.send("threads", goal="again", thread=thread, instead_of=goal["message"])
        assert (await page.told(thread))[-1]["run"]["answer"] == "Six."
    shown = [json.dumps([message.content for message in request.messages]) for request in model.requests]
    assert [each.count('"base64"') for each in shown] == [seen, seen]


async def test_the_folder_of_a_conversation_is_its_real_one(tmp_path: Path) -> None:
    """R18: through a symbolic link it is the same folder, as an editor names it; what is no folder is of other code;
    another one is refused with what opens it, which each reader words."""
    (folder := tmp_path / "real").mkdir()
    (link := tmp_path / "link").symlink_to(folder)
    own = agent(triage=lambda *_: ask_user("Which?", ["a", "b"]))
    async with served(own, dir=str(folder)) as page:
        for number, where in enumerate((str(link), str(tmp_path), 5, None)):
            await own.start(f"goal {number}", thread_id=f"t{number}", metadata={"dir": where})
        listed = {row["thread_id"]: row["folder"] for row in (await page.client.get("/api/threads")).json()["threads"]}
        assert listed == {"t0": "", "t1": str(tmp_path), "t2": "", "t3": ""}
        places = [(await page.told(f"t{number}", kinds=["picture"]))[-1]["place"] for number in range(4)]
        other = {"folder": "", "command": ""}
        here = {"folder": str(tmp_path), "command": f"donewhen chat --dir {tmp_path}"}
        assert places == [None, here, other, other]
        refused = await page.client.post("/api/threads/t1/go-on", json={"steer": "x"})
        assert (refused.status_code, refused.json()["error"]["place"]) == (409, here)
        (asked,) = (await page.told("t0", kinds=["picture"]))[-1]["run"]["pending"]
        await page.answer("t0", asked["id"], "a")


def test_the_command_for_another_folder_has_no_password() -> None:
    """It goes to browsers, and not only to the terminal where the storage was named."""
    shown = page_command(StorageView("postgresql://me:s3cret@db/runs"), "/there")
    assert ("s3cret" in shown, "postgresql://me:***@db/runs" in shown) == (False, True)
    assert page_command(StorageView(None), "/there").endswith(" chat --dir /there")


ODD = {
    "no JSON": b"{",
    "no object": b"[]",
    "no text": b"\xff",
    "deep": b'{"goal": ' + b"[" * 200 + b"]" * 200 + b"}",
    "deeper": b'{"answer": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    "surrogates": b'{"goal": "\\ud800", "text": "\\ud800", "title": "\\ud800", "steer": "\\ud800"}',
    "nothing": b'{"goal": null, "thread": [], "id": {}, "answer": null, "text": null, "title": null}',
    "numbers": b'{"goal": NaN, "id": 1e999, "answer": -Infinity, "text": 1e400, "title": 1, "thread": 7}',
    "NUL": b'{"goal": "\\u0000", "text": "\\u0000", "title": "\\u0000", "thread": "\\u0000", "id": "\\u0000"}',
}


async def test_no_body_is_an_error_of_the_server(tmp_path: Path) -> None:
    """N75: whatever is sent, wherever, is taken or refused in words."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(agent(storage, triage=lambda *_: answer("Four."))) as page:
        thread = await page.start("two and two")
        await page.told(thread)
        verbs = ("answer", "go-on", "tell", "title", "plan-text", "undo")
        for name, body in ODD.items():
            for path in ("", *(f"/{thread}/{verb}" for verb in verbs), "/%00/answer"):
                answered = await page.client.post(f"/api/threads{path}", content=body)
                assert answered.status_code < 500, (name, path, answered.text)


def test_what_the_receipts_of_the_page_need_comes_with_it() -> None:
    """S01: who installs `donewhen[ui]` is never told, at the button, to install something else."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert "donewhen[receipts]" in extras["ui"]


def test_the_address_of_a_folder_is_kept(tmp_path: Path) -> None:
    """N75: the token of a start is that of the next, readable by this user only; another folder has another."""
    first = Address.read(tmp_path / "kept", "/a")
    first.write(4711)
    again = Address.read(tmp_path / "kept", "/a")
    assert (again.port, again.token) == (4711, first.token)
    assert Address.read(tmp_path / "kept", "/b").token != first.token
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    for spoilt in (
        lambda: kept.chmod(0o644),
        lambda: kept.write_text("[1]"),
        lambda: kept.write_text('{"token": "x"}'),
    ):
        first.write(4711)
        spoilt()
        assert Address.read(tmp_path / "kept", "/a").token != first.token


def linked(session: Session) -> tuple[str, str]:
    """The address and the token that the command prints."""
    link = re.search(r"http://(127\.0\.0\.1:\d+)/#token=(\S+)", session.expect("#token=") + session.expect("\n"))
    assert link
    return link[1], link[2]


def test_the_command_serves_it_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """N75: the printed link works, and is all that is needed; Ctrl-C is the usual end; started again it is the same."""
    found = []
    for _ in range(2):
        session = Session.start("chat", "--no-browser", "--approvals", "each", env=environment(tmp_path), cwd=tmp_path)
        address, token = linked(session)
        found.append((address, token))
        until = httpx.HTTPTransport(retries=5)
        with httpx.Client(transport=until, headers={"authorization": f"Bearer {token}"}) as client:
            assert client.get(f"http://{address}/api/threads").json()["threads"] == []
            about = client.get(f"http://{address}/api/about").json()
            assert (about["folder"], about["model"], about["approvals"]) == (str(tmp_path), "demo", "each")
            assert about["hears"]
        session.process.send_signal(signal.SIGINT)
        assert session.end()[0] == 0
    assert found[0] == found[1]


def test_the_command_takes_settings_for_the_page(tmp_path: Path) -> None:
    """R13: `--set`, `--profile` and DONEWHEN_SETTINGS hold for what is begun there, the options first."""
    (settings := tmp_path / "settings.json").write_text('{"max_parallel": 3, "approvals": "each", "max_refusals": 4}')
    (profile := tmp_path / "clerk.toml").write_text('role = "clerk"\ntone = "brief"\n')
    options = ["--set", "max_refusals=5", "--profile", str(profile), "--set", "profile.role=lawyer"]
    env = environment(tmp_path, DONEWHEN_SETTINGS=str(settings))
    session = Session.start("chat", "--no-browser", *options, env=env, cwd=tmp_path)
    address, token = linked(session)
    headers, until = {"authorization": f"Bearer {token}"}, httpx.HTTPTransport(retries=5)
    with httpx.Client(base_url=f"http://{address}/api", transport=until, headers=headers, timeout=60) as client:
        assert client.get("/about").json()["approvals"] == "each"
        client.post("/threads", json={"goal": "List the files in this folder"})
        (row,) = client.get("/threads").json()["threads"]
    session.process.send_signal(signal.SIGINT)
    assert session.end()[0] == 0
    chosen = row["metadata"]["settings"]
    assert [chosen[key] for key in ("max_parallel", "approvals", "max_refusals")] == [3, "each", 5]
    assert (chosen["profile"]["role"], chosen["profile"]["tone"]) == ("lawyer", "brief")


def test_no_tool_tells_a_model_the_token(tmp_path: Path) -> None:
    """N75: where the folder holds what the page keeps, its token is concealed: no run approves itself."""
    session = Session.start("chat", "--no-browser", "--confirm", "never", env=environment(tmp_path), cwd=tmp_path)
    address, token = linked(session)
    (kept,) = (tmp_path / "state" / "donewhen" / "pages").iterdir()
    headers, until = {"authorization": f"Bearer {token}"}, httpx.HTTPTransport(retries=5)
    with httpx.Client(base_url=f"http://{address}/api", transport=until, headers=headers, timeout=60) as client:
        goal = f"read {kept.relative_to(tmp_path)}"
        thread = client.post("/threads", json={"goal": goal}).json()["thread"]
        with client.stream("GET", f"/threads/{thread}/events") as answered:
            told = next(line for line in answered.iter_lines() if '"type": "outcome"' in line)
    session.process.send_signal(signal.SIGINT)
    assert session.end()[0] == 0
    assert '"status": "completed"' in told
    assert "[redacted]" in told, told
    assert token not in told
