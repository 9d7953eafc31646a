"""LangGraph's own server with our graph, driven over HTTP by `langgraph-sdk`, as Studio and chat clients drive it."""

import asyncio
import json
import os
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest
from langgraph.store.memory import InMemoryStore
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError

from donewhen.executors import RemoteAgent
from donewhen.graph.executors.executor import Handoff
from donewhen.testing import finish_step
from tests.kit.flows import one_step, play
from tests.kit.serving import Shared, as_user


async def test_the_graph_is_drawn_with_every_edge(client: LangGraphClient) -> None:
    """P19: Studio draws both phases, the rounds of a step, and every way between the nodes."""
    drawn = await client.assistants.get_graph("agent", xray=True)
    edges = {(edge["source"], edge["target"]) for edge in drawn["edges"]}
    assert {
        ("__start__", "receive"),
        ("__start__", "confirm"),
        ("__start__", "ask_user"),
        ("confirm", "advance"),
        ("ask_user", "advance"),
        ("advance", "ask_user"),
        ("advance", "deliver"),
        ("plan:triage", "plan:draft"),
        ("execute:decide", "execute:act"),
        ("execute:act", "execute:decide"),
        ("execute:decide", "execute:goal_check"),
        ("deliver", "__end__"),
    } <= edges


async def test_schemas_are_what_clients_need(client: LangGraphClient) -> None:
    """The input is `messages` alone, and the settings form has its descriptions."""
    assistant = (await client.assistants.search(graph_id="agent"))[0]
    schemas = await client.assistants.get_schemas(assistant["assistant_id"])
    assert set(schemas["input_schema"]["properties"]) == {"messages"}
    assert {"messages", "todos", "files", "plan", "outcome"} == set(schemas["output_schema"]["properties"])
    settings = schemas["context_schema"]["properties"]
    assert settings["confirm"]["enum"] == ["always", "writes", "complex", "never"]
    assert "description" in settings["verification"]


async def test_a_thread_is_edited_asked_answered_and_completed(client: LangGraphClient) -> None:
    """C01, C02, C06, X16, D01: confirm, edit, question and answer over the server's API."""
    thread = await client.threads.create()
    id = thread["thread_id"]
    await client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "look around"}]})
    state = await client.threads.get_state(id)
    pause = state["interrupts"][0]["value"]
    assert pause["action_requests"][0]["name"] == "confirm_plan"
    last = state["values"]["messages"][-1]
    assert last["type"] == "ai"
    assert last["content"]
    assert last["tool_calls"][0]["name"] == "confirm_plan"
    plan = pause["plan"]
    plan["steps"][0]["content"] = "list all files"
    edited = {
        "decisions": [{"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": json.dumps(plan)}}}]
    }
    await client.runs.wait(id, "agent", command={"resume": edited})
    state = await client.threads.get_state(id)
    assert state["values"]["plan"]["steps"][0]["content"] == "list all files"
    assert state["values"]["todos"][0] == {"id": "s1", "content": "list all files", "status": "completed"}
    asked = state["interrupts"][0]["value"]["action_requests"][0]["args"]
    assert asked == {"question": "Which colour?\n\n1. red\n2. green", "answer": ""}
    await client.runs.wait(id, "agent", command={"resume": {"decisions": [{"type": "respond", "message": "green"}]}})
    values = (await client.threads.get_state(id))["values"]
    assert values["outcome"]["status"] == "completed"
    assert values["messages"][-1]["content"] == "There is one file, and the colour is green."


async def test_a_typed_reply_answers_the_pause(client: LangGraphClient) -> None:
    """C08: what is typed into a chat box while a plan waits is the answer, not a new request."""
    id = (await client.threads.create())["thread_id"]
    await client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "look around"}]})
    typed = [{"role": "user", "content": [{"type": "text", "text": "yes"}]}]
    await client.runs.wait(id, "agent", input={"messages": typed})
    state = await client.threads.get_state(id)
    assert state["interrupts"][0]["value"]["kind"] == "question"
    await client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "2"}]})
    assert (await client.threads.get_state(id))["values"]["outcome"]["status"] == "completed"


async def test_speech_streams_to_stock_clients(client: LangGraphClient) -> None:
    """U1, S02, S05: through a whole conversation, `messages-tuple` gives what stays, in pieces, and nothing else.

    The pieces join by id to the messages of the thread's state; `custom` tells the same texts.
    """
    id = (await client.threads.create())["thread_id"]
    for given in (
        {"input": {"messages": [{"role": "user", "content": "look around"}]}},
        {"command": {"resume": "approve"}},
        {"command": {"resume": "green"}},
    ):
        texts: dict[str, str] = {}
        pieces: dict[str, int] = {}
        spoken: dict[str, str] = {}
        modes: Any = ["messages-tuple", "custom", "values"]
        async for part in client.runs.stream(id, "agent", stream_mode=modes, stream_subgraphs=True, **given):  # type: ignore[arg-type]
            if part.event.startswith("messages"):
                message = part.data[0]
                texts[message["id"]] = texts.get(message["id"], "") + message["content"]
                pieces[message["id"]] = pieces.get(message["id"], 0) + 1
            elif part.event.startswith("custom") and part.data["type"] == "speech":
                spoken[part.data["id"]] = spoken.get(part.data["id"], "") + part.data["text"]
        kept = {m["id"]: m["content"] for m in (await client.threads.get_state(id))["values"]["messages"]}
        assert texts == {each: kept.get(each) for each in texts}
        assert all(text.startswith(spoken[each].strip()) for each, text in texts.items() if each in spoken)
        assert max(pieces.values()) > 3
        assert "tool_output" not in str(texts)
        assert "Accepted" not in str(texts)
    streamed = [each for each, text in texts.items() if text == "There is one file, and the colour is green."]
    assert [pieces[each] > 3 for each in streamed] == [True]


async def test_an_agent_on_the_server_works_for_a_run_elsewhere(server: str, client: LangGraphClient) -> None:
    """M5, U10: over the server's A2A endpoint: its plan and its question are asked there, its answer comes back; the
    same handoff again finds what came of it."""
    assistant = (await client.assistants.search(graph_id="agent"))[0]["assistant_id"]
    address = f"a2a:{server}/a2a/{assistant}"
    model = one_step([finish_step("The colour is green.", ("s1.3", "green"))], executor="far")
    flow = await play(model, executors={"far": address}, goal="look around", answers=["approve", "2"])
    assert flow.status == "completed"
    assert "Look around" in flow.pauses[0]["question"]
    assert "Which colour?" in flow.pauses[1]["question"]
    assert flow.journal[2]["text"] == "There is one file, and the colour is green."
    assert "- far: agent: Plans a goal" in model.requests[0].messages[1].text
    remote, store = RemoteAgent(address, poll=0.1), InMemoryStore()
    handoff = Handoff("hello", "k1", "k1", "far", "t", "", store=store, tell=str)
    first = await remote.work(handoff)
    assert first.output == "Hello to you."
    for forgotten in (False, True):  # and where the crash came before the task's id was known
        if forgotten:
            await store.aput(("donewhen", "remote", "t"), "k1", {"task": "", "answered": False})
        assert (await remote.work(handoff)).output == "Hello to you."
    thread = max(await client.threads.search(), key=lambda each: each["created_at"])
    said = [message["type"] for message in thread["values"]["messages"]]
    assert said == ["human", "ai"]


async def test_a_failed_run_is_a_failed_task_over_a2a(server: str, client: LangGraphClient) -> None:
    """N40, U10: the endpoint says failed, a remote agent reads why, and the conversation goes on."""
    assistant = (await client.assistants.search(graph_id="agent"))[0]["assistant_id"]
    remote, store = RemoteAgent(f"a2a:{server}/a2a/{assistant}", poll=0.1), InMemoryStore()
    failed = await remote.work(Handoff("x" * 100_001, "k1", "k1", "far", "failed", "", store=store, tell=str))
    assert "ended the task as failed: The goal has 100,001 characters" in failed.failure
    again = await remote.work(Handoff("hello", "k2", "k2", "far", "failed", "", store=store, tell=str))
    assert again.output == "Hello to you."


HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LOOK = {"messages": [{"role": "user", "content": "look around"}]}
LOOSE = {"confirm": "never", "approvals": "never", "limits": {"rounds": 9999}, "models": {"plan": "openai:dear"}}


async def test_every_route_wants_a_token(shared: Shared) -> None:
    """S1: without a token, with a wrong scheme, or as Studio, no route but health and schema is answered."""
    url = shared.url
    id = str(UUID(int=0))
    async with httpx.AsyncClient(base_url=url) as stranger:
        paths = (await stranger.get("/openapi.json")).json()["paths"]
        seen = 0
        for path, verbs in paths.items():
            if path in ("/ok", "/info", "/metrics", "/docs", "/openapi.json", "/"):
                continue
            filled = re.sub(r"{\w+}", id, path)
            for verb in set(verbs) & {"get", "post", "put", "patch", "delete"}:
                for headers in ({}, {"x-auth-scheme": "langsmith"}, {"authorization": "token-of-ann"}):
                    answer = await stranger.request(verb.upper(), filled, headers=headers, json={})
                    assert answer.status_code in (401, 403), (verb, path, headers, answer.text)
                    assert "token-of" not in answer.text
                    seen += 1
        assert seen > 100
        for scheme in ("Bearer", "bearer", "BEARER"):
            found = await stranger.post("/threads/search", json={}, headers={"authorization": f"{scheme} token-of-ann"})
            assert found.status_code == 200
        wrong = await stranger.post("/threads/search", json={}, headers={"authorization": "Basic token-of-ann"})
        assert wrong.status_code == 401


async def test_nobody_reaches_what_is_anothers(shared: Shared) -> None:
    """U8, S1: threads, runs, state, crons, assistants and the store of one user are not there for another."""
    url = shared.url
    async with as_user(url, "token-of-ann") as ann, as_user(url, "token-of-bob") as bob:
        id = (await ann.threads.create())["thread_id"]
        await ann.runs.wait(id, "agent", input=HELLO)
        assert (await ann.threads.get_state(id))["values"]["outcome"]["status"] == "answered"
        own = await ann.assistants.create("agent", name="mine", metadata={"created_by": "system"}, context=LOOSE)
        await ann.store.put_item(("notes",), "a", {"secret": "of ann"})
        for attempt in (
            bob.threads.get_state(id),
            bob.threads.get(id),
            bob.runs.wait(id, "agent", input=HELLO),
            bob.threads.update_state(id, {"language": "en"}),
            bob.assistants.get(own["assistant_id"]),
            bob.assistants.update(own["assistant_id"], name="his"),
            bob.runs.wait(None, own["assistant_id"], input=HELLO),
        ):
            with pytest.raises((APIStatusError, httpx.HTTPStatusError)) as refused:
                await attempt
            assert refused.value.response.status_code in (403, 404)
        assert await bob.threads.search() == []
        assert await bob.crons.search() == []
        assert (await bob.store.search_items(("notes",)))["items"] == []
        assert [each["name"] for each in await bob.assistants.search()] == ["agent"]
        assert await bob.assistants.search(metadata={"owner": "ann"}) == []
        assert [each["name"] for each in await ann.assistants.search(metadata={"owner": "ann"})] == ["mine"]


async def test_a_users_name_is_none_of_ours(shared: Shared) -> None:
    """Q111, U8: users called like our namespaces, or like the server itself, have what they made and nothing else."""
    async with as_user(shared.url, "token-of-ida") as ida:
        thread = (await ida.threads.create())["thread_id"]
        await ida.runs.wait(thread, "agent", input={"messages": [{"role": "user", "content": "look around"}]})
        await ida.runs.wait(thread, "agent", command={"resume": "approve"})
        await ida.store.put_item(("notes",), "a", {"secret": "of ida"})
    for name in ("donewhen", "system", "users"):
        async with as_user(shared.url, f"token-of-{name}") as odd:
            assert (await odd.store.list_namespaces(prefix=[]))["namespaces"] == []
            assert (await odd.store.search_items(()))["items"] == []
            await odd.store.put_item(("effects",), "a", {"mine": name})
            assert [each["value"] for each in (await odd.store.search_items(()))["items"]] == [{"mine": name}]
            await odd.assistants.create("agent", name=f"of {name}", metadata={"created_by": "system"})
            assert [each["name"] for each in await odd.assistants.search(metadata={"owner": name})] == [f"of {name}"]
    async with as_user(shared.url, "token-of-ida") as ida:
        assert [each["name"] for each in await ida.assistants.search()] == ["agent"]
        assert (await ida.store.list_namespaces(prefix=[]))["namespaces"] == [["users", "ida", "notes"]]


async def test_no_client_widens_what_the_operator_pinned(shared: Shared) -> None:
    """U8: by context, by configurable, by an assistant: confirm, approvals, limits and models stay; less is granted."""
    url = shared.url
    async with as_user(url, "token-of-cem") as cem:
        loose = await cem.assistants.create("agent", context=LOOSE)
        strange = {"no_such": 1, **LOOSE}
        for assistant, asked in (
            ("agent", {"context": LOOSE}),
            ("agent", {"context": strange}),
            ("agent", {"config": {"configurable": LOOSE}}),
            (loose["assistant_id"], {}),
            (loose["assistant_id"], {"context": strange}),
        ):
            id = (await cem.threads.create())["thread_id"]
            await cem.runs.wait(id, assistant, input=LOOK, **asked)  # type: ignore[arg-type]
            pause = (await cem.threads.get_state(id))["interrupts"][0]["value"]
            assert (pause["kind"], pause["limits"]["rounds"]) == ("plan", 7)
        id = (await cem.threads.create())["thread_id"]
        other = (await cem.threads.create())["thread_id"]
        parts = [
            part async for part in cem.runs.stream(other, "agent", input=LOOK, context=strange, stream_mode="custom")
        ]
        told = [part.data["text"] for part in parts if part.event == "custom" and part.data["type"] == "note"]
        assert any("Not taken over from the client: " in text and "confirm" in text for text in told)
        await cem.runs.wait(id, "agent", input=LOOK, context={"limits": {"rounds": 3}})
        assert (await cem.threads.get_state(id))["interrupts"][0]["value"]["limits"]["rounds"] == 3
        await cem.runs.wait(id, "agent", command={"resume": "approve"})
    assert "cem" in os.listdir(shared.folder / "work")


async def test_what_runs_by_the_clock_runs_and_keeps_to_the_settings(shared: Shared) -> None:
    """N39, N75, U8: settings given in either place, at once or by a PATCH: the runs begin, under what the operator
    pinned, as whoever made them; what is stored may be."""
    url = shared.url
    as_eve = {"langgraph_auth_user": {"identity": "eve"}, "langgraph_auth_user_id": "eve", "thread_id": "x"}
    forged = {"configurable": {**LOOSE, **as_eve}, "recursion_limit": 3}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {}),
        ({"context": LOOSE}, {}),
        ({"config": forged}, {}),
        ({"config": {"configurable": {"limits": {"rounds": 3}}}}, {"context": LOOSE}),
        ({"context": {"limits": {"rounds": 3}}}, {}),
        ({"context": {"limits": {"rounds": 3}}}, {"config": forged, "metadata": {"owner": "eve"}}),
    ]
    headers = {"authorization": "Bearer token-of-dora"}
    async with as_user(url, "token-of-dora") as dora, httpx.AsyncClient(base_url=url, headers=headers) as plain:
        begun: list[tuple[str, str, int]] = []
        for given, change in cases:
            thread = (await dora.threads.create())["thread_id"]
            body: dict[str, Any] = {"assistant_id": "agent", "schedule": "0 0 1 1 *", "input": LOOK, **given}
            cron = (await plain.post(f"/threads/{thread}/runs/crons", json=body)).json()
            soon = f"* * * * * {(datetime.now(UTC) + timedelta(seconds=3)).second}"  # once a minute
            patch = await plain.patch(f"/runs/crons/{cron['cron_id']}", json={**change, "schedule": soon})
            stored = patch.json()["payload"]
            assert set(stored["config"]["configurable"]) <= {"cron_id", "confirm", "approvals", "limits"}
            assert not stored.get("context")
            assert "eve" not in patch.text
            limited = 3 if stored["config"]["configurable"].get("limits") == {"rounds": 3} else 7
            begun.append((thread, cron["cron_id"], limited))
        assert {limited for _, _, limited in begun} == {3, 7}
        for thread, cron_id, limited in begun:
            for _ in range(300):
                state = await dora.threads.get_state(thread)
                if state["interrupts"]:
                    break
                await asyncio.sleep(0.2)
            await dora.crons.delete(cron_id)
            (pause,) = state["interrupts"]
            assert (pause["value"]["kind"], pause["value"]["limits"]["rounds"]) == ("plan", limited)
        bad = await plain.post("/runs/crons", json={**body, "config": {"configurable": {"confirm": "perhaps"}}})
        assert (bad.status_code, "confirm" in bad.text) == (422, True)
        command = {"command": {"update": {"approval": {}}}}
        assert (await plain.post("/runs/crons", json={**body, **command})).status_code in (403, 422)
        cron = (await plain.post("/runs/crons", json=body)).json()
        place = f"/runs/crons/{cron['cron_id']}"
        for no in (command, {"context": {"confirm": "perhaps"}}, {"config": {"configurable": {"limits": 3}}}):
            assert (await plain.patch(place, json=no)).status_code in (403, 422), no
        async with as_user(url, "token-of-eve") as eve:
            with pytest.raises(APIStatusError):
                await eve.crons.update(cron["cron_id"], schedule="* * * * *")
        assert (await plain.get(place)).json() in (cron, {"detail": "Method Not Allowed"})
        assert await dora.crons.search() == [cron]
        await dora.crons.delete(cron["cron_id"])
    async with as_user(url, "token-of-eve") as eve:
        assert await eve.crons.search() == []


async def test_no_setting_is_an_error_of_the_server(shared: Shared) -> None:
    """N30: whatever a client sends is taken, taken as more care, or refused with what is wrong."""
    url = shared.url
    async with httpx.AsyncClient(base_url=url, headers={"authorization": "Bearer token-of-ann"}, timeout=60) as ann:
        for asked, status in (
            ({"confirm": "writes", "approvals": "each", "verification": "judged"}, 200),
            ({"confirm": ["never"]}, 422),
            ({"confrim": "never"}, 422),
            ({"theme": "dark"}, 200),
            ({"limits": {"rounds": "5x"}}, 422),
            ({"profile": {"forbidden_tools": ["write_*"]}}, 422),
            ({"profile": {"forbidden_tools": ["write_file"]}}, 200),
        ):
            said = await ann.post("/runs/wait", json={"assistant_id": "agent", "input": HELLO, "context": asked})
            assert said.status_code == status, said.text
            if status == 422:
                made = await ann.post("/assistants", json={"graph_id": "agent", "context": asked})
                assert made.status_code == 422, made.text


async def test_pages_of_elsewhere_are_not_answered(server: str) -> None:
    """U9: without tokens: programs, this machine and Studio; no foreign page, no name that somebody else may own."""
    body = {"assistant_id": "agent", "input": LOOK, "context": LOOSE}
    async with httpx.AsyncClient(base_url=server, timeout=60) as page:
        for origin in (
            "https://evil.example",
            "http://localhost.evil.example",
            "https://xsmith.langchain.com",
            "null",
        ):
            answer = await page.post("/runs/wait", json=body, headers={"origin": origin})
            assert answer.status_code == 403
            assert answer.headers.get("access-control-allow-origin") is None
        assert (await page.post("/threads/search", json={}, headers={"host": "evil.example"})).status_code == 403
        for origin in (server, "http://localhost:3000", "http://127.0.0.1:8123", "https://smith.langchain.com"):
            answer = await page.post("/threads/search", json={}, headers={"origin": origin})
            assert answer.status_code == 200
            assert answer.headers["access-control-allow-origin"] == origin
        thread = (await page.post("/threads", json={})).json()["thread_id"]
        await page.post(f"/threads/{thread}/runs/wait", json=body)
        state = (await page.get(f"/threads/{thread}/state")).json()
        assert state["interrupts"][0]["value"]["kind"] == "plan"


async def test_a_step_is_handed_over_to_a_remote_agent(client: LangGraphClient) -> None:
    """M5, P21: `langgraph dev` with DONEWHEN_EXECUTORS; what the remote agent asks is a pause, answered there."""
    id = (await client.threads.create())["thread_id"]
    await client.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": "find papers"}]})
    await client.runs.wait(id, "agent", command={"resume": {"decisions": [{"type": "approve"}]}})
    (pause,) = (await client.threads.get_state(id))["interrupts"]
    assert "Which field?" in pause["value"]["message"]
    await client.runs.wait(id, "agent", command={"resume": "physics"})
    values = (await client.threads.get_state(id))["values"]
    assert (values["outcome"]["status"], values["messages"][-1]["content"]) == ("completed", "three papers on physics")
    assert [(row["mode"], row["by"], row["reason"]) for row in values["modes"]] == [("step", "triage", "one thing")]
