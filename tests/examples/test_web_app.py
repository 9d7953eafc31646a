"""examples/web_app.py, as a client uses it: start, events, an answer given twice, events from where one was."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request

from donewhen import Agent
from donewhen.testing import ask_user, call, finish_step, submit_plan
from examples.web_app import create
from tests.kit.flows import steps
from tests.kit.runs import Outbox, scripted, sending, step

Json = dict[str, Any]


async def events(client: httpx.AsyncClient, thread: str, last: str = "") -> list[tuple[str, Json]]:
    """(id, event) up to the next question or the end."""
    answer = await client.get(f"/goals/{thread}/events", headers={"last-event-id": last} if last else {})
    lines = answer.text.splitlines()
    ids = [line[4:] for line in lines if line.startswith("id: ")]
    return list(zip(ids, (json.loads(line[6:]) for line in lines if line.startswith("data: ")), strict=True))


def user_of(request: Request) -> str:
    """Who sends a request, by a log-in of its own."""
    return request.headers["x-user"]


@asynccontextmanager
async def served(app: FastAPI, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The application at work, and a client of it."""
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app, **options), base_url="http://test")
    async with app.router.lifespan_context(app), client:
        yield client


async def test_below_a_path_the_location_is_where_a_client_finds_it(tmp_path: Path) -> None:
    """R04: a proxy that cuts off a path is named by `--root-path`."""
    app = create(Agent(sending(tools=["send"]), [Outbox().tool()], storage=tmp_path / "runs.db"))
    async with served(app, root_path="/office") as client:
        started = await client.post("/goals", json={"goal": "do it", "id": "t"})
        assert started.headers["location"] == "/office/goals/t"


async def test_a_run_over_http(tmp_path: Path) -> None:
    """R04, S01: one run and one effect of two clicks; the events go on where the client was."""
    outbox = Outbox()
    agent = Agent(sending(tools=["send"]), [outbox.tool()], storage=tmp_path / "runs.db")
    app = create(agent)
    async with served(app) as client:
        goal = {"goal": "do it", "id": "t"}
        started = await asyncio.gather(*(client.post("/goals", json=goal) for _ in range(2)))
        assert sorted(each.status_code for each in started) == [202, 202]
        assert [each.headers["location"] for each in started] == ["/goals/t"] * 2
        assert (await client.get(started[0].headers["location"])).json()["goal"] == "do it"
        taken = (await client.get("/openapi.json")).json()["paths"]["/goals"]["post"]["responses"]["202"]
        assert [*taken["headers"]] == ["Location"]
        told = await events(client, "t")
        last, waiting = told[-1]
        assert waiting["type"] == "waiting"
        body = {"id": waiting["pending"][0]["id"], "answer": "yes"}
        given = [await client.post("/goals/t/answers", json=body) for _ in range(2)]
        assert given[0].status_code == 202
        later = await events(client, "t", last)
        assert later[-1][1]["type"] == "outcome"
        assert not {(event["type"], event["seq"]) for _, event in told} & {(e["type"], e["seq"]) for _, e in later}
        again = await client.get("/goals/t/events", headers={"last-event-id": later[-1][0]})
        assert again.status_code == 204, "a browser comes back after anything else"
        assert (await client.get("/goals/t/events", headers={"last-event-id": "junk"})).status_code == 422
        assert (await client.post("/goals/t/answers", json={})).status_code == 422
        assert (await client.post("/goals", json=goal)).status_code == 202  # a retry, long after
        assert (await client.post("/goals", json={**goal, "goal": "do more"})).status_code == 422
        assert (await client.get("/goals/t")).json()["status"] == "completed"
        assert (await client.get("/goals/nobody")).status_code == 404
        assert (await client.post("/goals", json={"goal": " "})).status_code == 422
    assert len(outbox.sent) == 1


async def test_two_users_with_the_same_id(tmp_path: Path) -> None:
    """R04, S01: each has a run of their own, and neither reads, watches, continues nor answers the other's."""
    outbox = Outbox()
    plan = submit_plan([step("s1", tools=["send"])], title='Send "hello" to "ann"')
    work = [call("send", to="ann", text="hello"), finish_step("sent", evidence="s1.1")]
    agent = Agent(scripted([plan, plan], {"s1": work}), [outbox.tool()], storage=tmp_path / "runs.db")

    app = create(agent, user_of)
    async with served(app) as client:
        threads = {}
        for user in ("ann", "bob"):
            client.headers["x-user"] = user
            started = await client.post("/goals", json={"goal": f"do it for {user}", "id": "g1"})
            assert started.status_code == 202
            threads[user] = started.json()["thread"]
            waiting = (await events(client, threads[user]))[-1][1]
        body = {"id": waiting["pending"][0]["id"], "answer": "yes"}
        client.headers["x-user"] = "ann"
        other = threads["bob"]
        refused = [
            await client.get(f"/goals/{other}"),
            await client.get(f"/goals/{other}/events"),
            await client.post(f"/goals/{other}/answers", json=body),
            await client.post("/goals", json={"goal": "do more", "thread": other}),
        ]
        assert [each.status_code for each in refused] == [404, 404, 404, 422]
        assert not any("for bob" in each.text for each in refused)
        client.headers["x-user"] = "bob"
        assert (await client.post(f"/goals/{other}/answers", json=body)).status_code == 202
        assert (await events(client, other))[-1][1]["type"] == "outcome"
        receipt = (await agent.get(other)).receipt
        assert receipt is not None
        assert [row.get("name") for row in receipt["approvals"]] == ["bob"]
    assert len(outbox.sent) == 1


async def test_one_person_alone_approves_what_others_ask_for(tmp_path: Path) -> None:
    """S01: who is asked finds the question, reads its goal and answers; the asker and a third person cannot."""
    outbox = Outbox()
    settings: Any = {"answered_by": {"plan": "chef"}}
    agent = Agent(sending(tools=["send"]), [outbox.tool()], storage=tmp_path / "runs.db", settings=settings)
    app = create(agent, user_of)
    async with served(app) as client:
        users = {name: {"x-user": name} for name in ("ann", "bob", "chef:eva")}
        thread = (await client.post("/goals", json={"goal": "do it"}, headers=users["ann"])).json()["thread"]
        client.headers["x-user"] = "ann"
        question = (await events(client, thread))[-1][1]["pending"][0]
        found = {name: (await client.get("/questions", headers=each)).json() for name, each in users.items()}
        assert {name: len(each["questions"]) for name, each in found.items()} == {"ann": 0, "bob": 0, "chef:eva": 1}
        answer = {"id": found["chef:eva"]["questions"][0]["id"], "answer": "yes"}
        path = f"/goals/{thread}"
        codes = {name: (await client.get(path, headers=each)).status_code for name, each in users.items()}
        assert codes == {"ann": 200, "bob": 404, "chef:eva": 200}
        codes = {
            name: (await client.post(f"{path}/answers", json=answer, headers=each)).status_code
            for name, each in users.items()
        }
        assert codes == {"ann": 409, "bob": 404, "chef:eva": 202}
        assert (answer["id"], (await events(client, thread))[-1][1]["type"]) == (question["id"], "outcome")
        assert (await client.get(path, headers=users["chef:eva"])).status_code == 404, "it is answered"
        receipt = (await agent.get(thread)).receipt
        assert receipt is not None
        assert [row.get("name") for row in receipt["approvals"]] == ["chef:eva"]
    assert len(outbox.sent) == 1


@pytest.mark.parametrize("answer", ["approve", "reject"])
async def test_words_said_since_a_page_was_shown_make_its_approval_stale_but_no_rejection(
    tmp_path: Path, answer: str
) -> None:
    """S01, C04: an approval counts only with the words of others that its page has shown; a no needs none."""
    outbox = Outbox()
    settings: Any = {"answered_by": {"plan": "chef"}, "when_busy": "next_round"}
    agent = Agent(sending(tools=["send"]), [outbox.tool()], storage=tmp_path / "runs.db", settings=settings)
    app = create(agent, user_of)
    async with served(app) as client:
        client.headers["x-user"], chef = "ann", {"x-user": "chef:eva"}
        thread = (await client.post("/goals", json={"goal": "do it"})).json()["thread"]
        await events(client, thread)
        path = f"/goals/{thread}/answers"
        (question,) = (await client.get("/questions", headers=chef)).json()["questions"]
        page = {"id": question["id"], "meanwhile": question["meanwhile"]}
        words = {"id": question["id"], "answer": "Please do not send it"}
        assert (await client.post(path, json=words)).status_code == 202
        for stale in (page, {"id": question["id"]}):
            refused = await client.post(path, json={**stale, "answer": "approve"}, headers=chef)
            assert (refused.status_code, refused.json().get("error")) == (409, "StaleAnswer")
            assert "Please do not send it" in refused.json()["text"]
        if answer == "approve":
            (question,) = (await client.get("/questions", headers=chef)).json()["questions"]
            page["meanwhile"] = question["meanwhile"]
        assert (await client.post(path, json={**page, "answer": answer}, headers=chef)).status_code == 202
        await events(client, thread)
        assert len(outbox.sent) == (answer == "approve")


async def test_who_is_asked_one_question_answers_no_other_and_hears_that_theirs_is_answered(tmp_path: Path) -> None:
    """S01, C04: of two questions to them and one to the asker, in one run; what is sent twice is refused as such, and
    an id that none has answers nothing."""
    planned = [{"content": text, "tools": ["send"], "depends_on": []} for text in ("one", "two")]
    rounds = {id: [call("send", to="ann", text=id), finish_step("sent", f"{id}.1")] for id in ("s1", "s2")}
    rounds["s3"] = [ask_user("Which?"), finish_step("ok", "s3.1")]
    settings: Any = {"answered_by": {"tool": "chef"}, "confirm": "never", "approvals": "each", "max_parallel": 3}
    model = steps([*planned, {"content": "three", "depends_on": []}], rounds)
    agent = Agent(model, [Outbox().tool()], storage=tmp_path / "runs.db", settings=settings)
    app = create(agent, user_of)
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="http://test", headers={"x-user": "chef:eva"})
    async with agent, client:  # and no worker, which would go on meanwhile
        run = await agent.start("do it", owner="ann")
        path = f"/goals/{run.thread_id}"
        first, *_ = ids = [each["id"] for each in run.pending if each["kind"] == "tool"]
        (asked,) = {each["id"] for each in run.pending} - {*ids}
        sent = [(first, "approve"), (first, "approve"), (asked, "blue"), ("type", "approve"), ("s9.q1", "blue")]
        codes = list[int]()
        for id, said in sent:
            codes.append((await client.post(f"{path}/answers", json={"id": id, "answer": said})).status_code)
        assert codes == [202, 409, 404, 409, 409]
