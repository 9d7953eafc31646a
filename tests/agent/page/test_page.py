"""The page on the wire: what it is told, what it may send, who may not, and what a page that comes later sees."""

import asyncio
import re
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.screens.pages import TOKEN, Json, served
from tests.kit.screens.terminal import Session, environment

READ = {"content": "Read the note", "done_when": ["it is read"], "tools": ["read_note"]}
READING = [call("read_note", path="a.txt"), finish_step("It says seven", "s1.1")]
NOTE = "seven\n" * 100


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
        assert "1. [s1] Read the note" in asked["text"]
        await page.answer(thread, asked["id"], {"type": "approve"})
        whole = await page.told(thread, ends=2)
        assert whole[: len(first)] == first
        (made,) = of(whole, "tool_started")
        assert (made["shown"], made["changes"]) == ({"path": "a.txt"}, [])
        assert whole[-1]["run"]["receipt"]["steps"][0]["criteria"][0]["verdict"] == "supported"
        found = (await page.client.get(f"/api/threads/{thread}/observations/s1.1")).json()
        assert (found["tool"], found["text"]) == ("read_note", NOTE)
        assert (await page.client.get(f"/api/threads/{thread}/observations/s9.9")).status_code == 404
        (row,) = (await page.client.get("/api/threads")).json()
        assert (row["thread_id"], row["status"], row["at_work"]) == (thread, "completed", False)


async def test_a_refused_edit_is_given_back_with_the_line_that_is_wrong() -> None:
    """U3, C03: the pause stays, names the line, and its text is the one that was sent."""
    async with served(agent(triage=[submit_plan([READ])])) as page:
        thread = await page.start("read it")
        (asked,) = (await page.told(thread))[-1]["pending"]
        wrong = asked["text"].replace("   - tools: read_note", "   - tool read_note")
        await page.answer(
            thread, asked["id"], {"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": wrong}}}
        )
        again = (await page.told(thread, ends=2))[-1]
        assert "“- tool read_note”" in again["problem"]
        assert (again["pending"][0]["draft"], again["pending"][0]["text"]) == (wrong, wrong)


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


async def test_stop_and_go_on() -> None:
    """R02, U4: stopped at a clean point; going on ends it, and nothing is asked again."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def wait_here() -> str:
        """Wait."""
        entered.set()
        await go.wait()
        return "waited"

    plan = submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("wait_here"), finish_step("done", "s1.1")]})
    async with served(Agent(model, [wait_here], storage="memory:", effects={"wait_here": "read"})) as page:
        thread = await page.start("wait")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        await entered.wait()
        assert (await page.client.get("/api/threads")).json()[0]["at_work"]
        await page.send(f"threads/{thread}/stop")
        go.set()
        assert (await page.told(thread, ends=2))[-1]["status"] == "running"
        await page.send(f"threads/{thread}/go-on", steer="")
        assert (await page.told(thread, ends=3))[-1]["status"] == "completed"
    model.assert_exhausted()


async def test_words_after_stop_steer() -> None:
    """U4: what is typed on a request that was stopped is planned by; what is finished stays, another is refused."""
    entered, go = asyncio.Event(), asyncio.Event()

    async def wait_here() -> str:
        """Wait."""
        entered.set()
        await go.wait()
        return "waited"

    plan = submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}])
    model = ScriptedModel(roles={"triage": [plan, submit_plan(["Only look"])], "execute": [call("wait_here")]})
    async with served(Agent(model, [wait_here], storage="memory:", effects={"wait_here": "read"})) as page:
        thread = await page.start("wait")
        await page.answer(thread, (await page.told(thread))[-1]["pending"][0]["id"], "approve")
        await entered.wait()
        early = await page.client.post(f"/api/threads/{thread}/go-on", json={"steer": "x"})
        assert (early.status_code, early.json()["error"]["kind"]) == (409, "ThreadBusy")
        await page.send(f"threads/{thread}/stop")
        go.set()
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
        shown = await page.client.get("/", headers={"authorization": ""})
        assert shown.status_code == 200
        assert TOKEN not in shown.text
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
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


def test_the_command_serves_it_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """The printed link works, and is all that is needed; Ctrl-C is the usual end."""
    session = Session.start("chat", "--no-browser", env=environment(tmp_path), cwd=tmp_path)
    link = re.search(r"http://(127\.0\.0\.1:\d+)/#token=(\S+)", session.expect("#token=") + session.expect("\n"))
    assert link
    until = httpx.HTTPTransport(retries=5)
    with httpx.Client(transport=until, headers={"authorization": f"Bearer {link[2]}"}) as client:
        assert client.get(f"http://{link[1]}/api/threads").json() == []
    session.process.send_signal(signal.SIGINT)
    assert session.end()[0] == 0
