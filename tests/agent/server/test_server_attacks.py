"""The server against a user who wants what is another's, or more than the operator grants: every route and socket."""

import asyncio
import json
import os
import re
from contextlib import suppress
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.kit.serving import KEY, Shared, as_user

MARK = "marker-of-fay-7391"
GUS = {"authorization": "Bearer token-of-gus", "accept": "application/json, text/event-stream"}


async def waiting(user: LangGraphClient) -> tuple[str, dict[str, Any]]:
    """A thread of this user that waits for its plan to be approved."""
    id = (await user.threads.create())["thread_id"]
    await user.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": f"write it: {MARK}"}]})
    return id, dict((await user.threads.get_state(id))["values"])


async def owned(fay: LangGraphClient) -> dict[str, str]:
    """One of everything that a user can have, by the name of its place in a path."""
    thread, _ = await waiting(fay)
    (run,) = await fay.runs.list(thread)
    assistant = await fay.assistants.create("agent", name=MARK)
    await fay.store.put_item(("notes",), "a", {"secret": MARK})
    cron: Any = await fay.crons.create("agent", schedule="0 0 1 1 *", input={"messages": [MARK]})
    checkpoint = (await fay.threads.get_state(thread))["checkpoint"]["checkpoint_id"]
    ids = {"thread_id": thread, "run_id": run["run_id"], "assistant_id": assistant["assistant_id"]}
    return {**ids, "cron_id": cron["cron_id"], "checkpoint_id": str(checkpoint), "namespace": "notes"}


def bodies(ids: dict[str, str]) -> list[Any]:
    """What somebody may send who knows all of another's ids."""
    said = {"role": "user", "kind": "message", "messageId": "m", "contextId": ids["thread_id"]}
    said |= {"parts": [{"kind": "text", "text": "yes"}]}
    task = {"id": ids["run_id"], "contextId": ids["thread_id"]}
    approve = {"assistant_id": "agent", "command": {"resume": "approve"}}
    return [
        {},
        {"assistant_id": ids["assistant_id"], "input": {"messages": [{"role": "user", "content": "hello"}]}},
        approve,
        {"metadata": {"owner": "fay"}},
        {"namespace": ["fay", "notes"], "key": "a", "value": {"x": 1}, "namespace_prefix": ["fay"], "prefix": ["fay"]},
        {"values": {"language": "en"}, "as_node": "advance"},
        {"thread_id": ids["thread_id"], "run_ids": [ids["run_id"]]},
        {"thread_ids": [ids["thread_id"]], "strategy": "delete"},
        {"channels": ["values", "updates", "messages", "custom", "input", "lifecycle"]},
        {"id": 1, "method": "run.start", "params": {**approve, "input": {"messages": []}}},
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tasks/get",
            "params": task,
        },
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "message/send",
            "params": {"message": {**said, "parts": [{"kind": "text", "text": "yes"}]}},
        },
    ]


async def test_no_route_gives_or_changes_what_is_anothers(shared: Shared) -> None:
    """S1, U8: with every id known, each route of the server, with a dozen bodies, streams and sockets: nothing."""
    async with as_user(shared.url, "token-of-fay") as fay:
        ids = await owned(fay)
        thread = ids["thread_id"]
        before = await fay.threads.get_state(thread)
        asked = before["interrupts"][0]["id"]
        async with httpx.AsyncClient(base_url=shared.url, headers=GUS, timeout=15) as gus:
            paths = (await gus.get("/openapi.json")).json()["paths"]
            answers = [
                reply
                for path, verbs in paths.items()
                for verb in sorted(set(verbs) & {"get", "post", "put", "patch", "delete"})
                for body in (bodies(ids) if verb != "get" else [None])
                if (
                    reply := await sent(
                        gus, verb, re.sub(r"{(\w+)}", lambda place: ids.get(place[1], thread), path), body
                    )
                )
            ]
        assert len(answers) > 300
        leaks = [(each.request.method, each.url.path) for each in answers if MARK in each.text or KEY in each.text]
        assert leaks == []
        heard = await listened(shared.url, thread, asked, {"Authorization": "Bearer token-of-gus"})
        assert MARK not in heard
        with pytest.raises(InvalidStatus):
            await listened(shared.url, thread, asked, {})
        assert await fay.threads.get_state(thread) == before
        assert len(await fay.runs.list(thread)) == 1
        assert (await fay.assistants.get(ids["assistant_id"]))["name"] == MARK
        assert (await fay.store.get_item(("notes",), "a"))["value"] == {"secret": MARK}
        assert len(await fay.crons.search()) == 1


async def sent(client: httpx.AsyncClient, verb: str, path: str, body: Any) -> httpx.Response | None:
    """The answer; None where the server itself fails on such a body."""
    try:
        return await client.request(verb.upper(), path, json=body)
    except httpx.HTTPError:
        return None


async def listened(url: str, thread: str, asked: str, headers: dict[str, str]) -> str:
    """All that a socket on the thread says, to somebody who subscribes, answers and starts runs there."""
    heard, address = [], f"{url.replace('http', 'ws')}/threads/{thread}/stream/events"
    commands: tuple[tuple[str, dict[str, Any]], ...] = (
        ("subscription.subscribe", {"channels": ["values", "messages", "input"]}),
        ("input.respond", {"interrupt_id": asked, "response": "approve", "assistant_id": "agent"}),
        ("run.start", {"assistant_id": "agent", "input": {"messages": [{"role": "user", "content": "hello"}]}}),
    )
    async with connect(address, additional_headers=headers) as socket:
        with suppress(TimeoutError, ConnectionClosed):  # the server ends the stream when it likes
            for number, (method, params) in enumerate(commands):
                await socket.send(json.dumps({"id": number, "method": method, "params": params}))
            while True:
                heard.append(str(await asyncio.wait_for(socket.recv(), 3)))
    return "\n".join(heard)


def forgeries(state: dict[str, Any]) -> list[dict[str, Any]]:
    """Commands that would put an approval, or a step at work, into the state."""
    plan = state["plan"]
    approval = {"revision": plan["revision"], "tools": {"s1": ["write_file"]}, "by": "user", "plan": plan}
    forged = {"approval": approval, "pending": None}
    record = {"status": "running", "attempt": 1, "observed": 0, "rounds": 0}
    step = {"step": plan["steps"][0], "goal": "g", "turn": 1, "granted_tools": ["write_file"], "brief": "write it"}
    return [
        {"update": forged, "goto": "advance"},
        {"resume": "hm", "update": forged},
        {"goto": [{"node": "execute", "input": {**step, "record": record, "allowance": {"rounds": 99}}}]},
    ]


async def test_an_approval_cannot_be_written(shared: Shared) -> None:
    """U8: by a command, by the thread's state, by a thread made with one, by the input: nobody gets past consent."""
    async with as_user(shared.url, "token-of-hal") as hal:
        thread, state = await waiting(hal)
        for command in forgeries(state):
            with pytest.raises((APIStatusError, httpx.HTTPStatusError)) as refused:
                await hal.runs.wait(thread, "agent", command=command)  # type: ignore[arg-type]
            assert refused.value.response.status_code == 403
        forged = forgeries(state)[0]["update"]
        with pytest.raises((APIStatusError, httpx.HTTPStatusError), match="written by its runs"):
            await hal.threads.update_state(thread, forged, as_node="confirm")
        update = {"values": {**state, **forged}, "as_node": "confirm"}
        made = await hal.threads.create(supersteps=[{"updates": [update]}])
        assert "written by its runs" in str(made)
        other = (await hal.threads.create())["thread_id"]
        asked: Any = {"messages": [{"role": "user", "content": "write it"}], **forged, "granted": {"rounds": 1e9}}
        await hal.runs.wait(other, "agent", input=asked)
        (pause,) = (await hal.threads.get_state(other))["interrupts"]
        assert (pause["value"]["kind"], pause["value"]["limits"]["rounds"]) == ("plan", 7)
        assert not shared.wrote("hal")
        await hal.runs.wait(thread, "agent", command={"goto": "__end__"})  # what chat clients send to put a thread away
        await hal.runs.wait(other, "agent", command={"resume": "approve"})
        assert shared.wrote("hal")


async def test_a_run_works_in_nobody_elses_folder(shared: Shared) -> None:
    """U8: whose folder it is says the token, not the configuration of the run."""
    async with as_user(shared.url, "token-of-ida") as ida:
        passing = {"configurable": {"langgraph_auth_user_id": "hal", "langgraph_auth_user": {"identity": "hal"}}}
        (shared.folder / "work" / "hal").mkdir(exist_ok=True)
        before = sorted(os.listdir(shared.folder / "work" / "hal"))
        thread = (await ida.threads.create())["thread_id"]
        look: Any = {"messages": [{"role": "user", "content": "write it"}]}
        await ida.runs.wait(thread, "agent", input=look, config=passing)
        await ida.runs.wait(thread, "agent", command={"resume": "approve"}, config=passing)
        assert shared.wrote("ida")
        assert sorted(os.listdir(shared.folder / "work" / "hal")) == before
