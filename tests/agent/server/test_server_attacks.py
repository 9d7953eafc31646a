"""The server against a user who wants what is another's, or more than the operator grants: every route and socket."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from langgraph_sdk.errors import APIStatusError
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from donewhen.testing import ScriptedModel, WireServer, answer, call, finish_step, submit_plan
from tests.kit.serving import as_user, started, stopped

MARK, KEY = "marker-of-ann-7391", "sk-verysecretkey1234567890abcd"
TOKENS = "ann:token-of-ann,bob:token-of-bob"
BOB = {"authorization": "Bearer token-of-bob", "accept": "application/json, text/event-stream"}
PLAN = submit_plan([{"content": "write it", "done_when": ["it is written"], "tools": ["write_file"]}], title="Write")


def script(messages: list[Any], tools: list[Any]) -> Any:
    """Plans to write a file, and writes it."""
    if messages[0].text.startswith("You are the triage"):
        return answer("Hello.") if "hello" in messages[1].text else PLAN
    if "[s1.1]" in messages[-1].text:
        return finish_step("done", evidence=("s1.1", "forged.txt"))
    return call("write_file", path="forged.txt", content="x")


@dataclass
class Served:
    """A server of two users, whose operator pins settings."""

    url: str
    folder: Path

    @property
    def written(self) -> bool:
        """Whether bob's file was written, which nobody approved."""
        return (self.folder / "work" / "bob" / "forged.txt").exists()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("attacked")
    (folder / "settings.json").write_text(json.dumps({"limits": {"rounds": 7}}))
    more = {"DONEWHEN_TOKENS": TOKENS, "DONEWHEN_SETTINGS": str(folder / "settings.json"), "OPENAI_API_KEY": KEY}
    with WireServer(ScriptedModel(script)) as wire:
        process, url = started(folder, wire.base_url, **more)
        yield Served(url, folder)
        stopped(process)
    log = (folder / "log").read_text()
    assert KEY not in log
    assert "token-of" not in log


async def waiting(user: LangGraphClient) -> tuple[str, dict[str, Any]]:
    """A thread of this user that waits for its plan to be approved."""
    id = (await user.threads.create())["thread_id"]
    await user.runs.wait(id, "agent", input={"messages": [{"role": "user", "content": f"write it: {MARK}"}]})
    return id, dict((await user.threads.get_state(id))["values"])


async def owned(ann: LangGraphClient) -> dict[str, str]:
    """One of everything that a user can have, by the name of its place in a path."""
    thread, _ = await waiting(ann)
    (run,) = await ann.runs.list(thread)
    assistant = await ann.assistants.create("agent", name=MARK)
    await ann.store.put_item(("notes",), "a", {"secret": MARK})
    cron: Any = await ann.crons.create("agent", schedule="0 0 1 1 *", input={"messages": [MARK]})
    checkpoint = (await ann.threads.get_state(thread))["checkpoint"]["checkpoint_id"]
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
        {"metadata": {"owner": "ann"}},
        {"namespace": ["ann", "notes"], "key": "a", "value": {"x": 1}, "namespace_prefix": ["ann"], "prefix": ["ann"]},
        {"values": {"feedback": "x"}, "as_node": "advance"},
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


async def test_no_route_gives_or_changes_what_is_anothers(served: Served) -> None:
    """S1, U8: with every id known, each route of the server, with a dozen bodies, streams and sockets: nothing."""
    async with as_user(served.url, "token-of-ann") as ann:
        ids = await owned(ann)
        thread = ids["thread_id"]
        before = await ann.threads.get_state(thread)
        asked = before["interrupts"][0]["id"]
        async with httpx.AsyncClient(base_url=served.url, headers=BOB, timeout=15) as bob:
            paths = (await bob.get("/openapi.json")).json()["paths"]
            answers = [
                reply
                for path, verbs in paths.items()
                for verb in sorted(set(verbs) & {"get", "post", "put", "patch", "delete"})
                for body in (bodies(ids) if verb != "get" else [None])
                if (
                    reply := await sent(
                        bob, verb, re.sub(r"{(\w+)}", lambda place: ids.get(place[1], thread), path), body
                    )
                )
            ]
        assert len(answers) > 300
        leaks = [(each.request.method, each.url.path) for each in answers if MARK in each.text or KEY in each.text]
        assert leaks == []
        heard = await listened(served.url, thread, asked, {"Authorization": "Bearer token-of-bob"})
        assert MARK not in heard
        with pytest.raises(InvalidStatus):
            await listened(served.url, thread, asked, {})
        assert await ann.threads.get_state(thread) == before
        assert len(await ann.runs.list(thread)) == 1
        assert (await ann.assistants.get(ids["assistant_id"]))["name"] == MARK
        assert (await ann.store.get_item(("notes",), "a"))["value"] == {"secret": MARK}
        assert len(await ann.crons.search()) == 1


def filled(path: str, ids: dict[str, str]) -> str:
    """A path of the server with these ids in its places."""
    return re.sub(r"{(\w+)}", lambda place: ids.get(place[1], ids["thread_id"]), path)


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


async def test_an_approval_cannot_be_written(served: Served) -> None:
    """U8: by a command, by the thread's state, by a thread made with one, by the input: nobody gets past consent."""
    async with as_user(served.url, "token-of-bob") as bob:
        thread, state = await waiting(bob)
        for command in forgeries(state):
            with pytest.raises((APIStatusError, httpx.HTTPStatusError)) as refused:
                await bob.runs.wait(thread, "agent", command=command)  # type: ignore[arg-type]
            assert refused.value.response.status_code == 403
        forged = forgeries(state)[0]["update"]
        with pytest.raises((APIStatusError, httpx.HTTPStatusError), match="written by its runs"):
            await bob.threads.update_state(thread, forged, as_node="confirm")
        update = {"values": {**state, **forged}, "as_node": "confirm"}
        made = await bob.threads.create(supersteps=[{"updates": [update]}])
        assert "written by its runs" in str(made)
        other = (await bob.threads.create())["thread_id"]
        asked: Any = {"messages": [{"role": "user", "content": "write it"}], **forged, "granted": {"rounds": 1e9}}
        await bob.runs.wait(other, "agent", input=asked)
        (pause,) = (await bob.threads.get_state(other))["interrupts"]
        assert (pause["value"]["kind"], pause["value"]["limits"]["rounds"]) == ("plan", 7)
        assert not served.written
        await bob.runs.wait(thread, "agent", command={"goto": "__end__"})  # what chat clients send to put a thread away
        await bob.runs.wait(other, "agent", command={"resume": "approve"})
        assert served.written


async def test_a_run_works_in_nobody_elses_folder(served: Served) -> None:
    """U8: whose folder it is says the token, not the configuration of the run."""
    async with as_user(served.url, "token-of-ann") as ann:
        passing = {"configurable": {"langgraph_auth_user_id": "bob", "langgraph_auth_user": {"identity": "bob"}}}
        before = sorted(path.name for path in (served.folder / "work" / "bob").iterdir())
        thread = (await ann.threads.create())["thread_id"]
        look: Any = {"messages": [{"role": "user", "content": "write it"}]}
        await ann.runs.wait(thread, "agent", input=look, config=passing)
        await ann.runs.wait(thread, "agent", command={"resume": "approve"}, config=passing)
        assert (served.folder / "work" / "ann" / "forged.txt").exists()
        assert sorted(path.name for path in (served.folder / "work" / "bob").iterdir()) == before
