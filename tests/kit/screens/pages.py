"""A page served on loopback for tests: the server in this process, an agent with a scripted model behind it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn

from donewhen import Agent
from donewhen.agent.cli.runs import ReceiptFiles
from donewhen.agent.page.conversations import Conversations
from donewhen.agent.page.serving import HOST, listen
from donewhen.agent.page.web import page
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

Json = dict[str, Any]
TOKEN = "a-token"
ENDS = ("waiting", "outcome", "error")


class Gate:
    """A tool that waits until it is let go, and an agent whose plan is to call it."""

    def __init__(self) -> None:
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def wait_here(self) -> str:
        """Wait."""
        self.entered.set()
        await self.go.wait()
        return "waited"

    def agent(self, storage: str = "memory:", **roles: Any) -> tuple[Agent, ScriptedModel]:
        plan = submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}])
        script = {"triage": [plan], "execute": [call("wait_here"), finish_step("done", "s1.1")], **roles}
        model, effects = ScriptedModel(roles=script), {"wait_here": "read"}
        settings = {"when_busy": "next_round"}
        return Agent(model, [self.wait_here], storage=storage, effects=effects, settings=settings), model  # type: ignore[arg-type]


@dataclass
class Page:
    """The wire as the page uses it."""

    address: str
    client: httpx.AsyncClient
    stop: Callable[[], Awaitable[None]]
    """Ends the server before its time, as Ctrl-C does."""

    @property
    def link(self) -> str:
        """What the command prints."""
        return f"http://{self.address}/#token={TOKEN}"

    async def send(self, path: str, **body: Any) -> Json:
        """POST to the API; what it answers."""
        answer = await self.client.post(f"/api/{path}", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def start(self, goal: str, thread: str | None = None) -> str:
        return str((await self.send("threads", goal=goal, thread=thread))["thread"])

    async def answer(self, thread: str, id: str, answer: Any) -> None:
        await self.send(f"threads/{thread}/answer", id=id, answer=answer)

    async def told(self, thread: str, *, ends: int = 1, kinds: Collection[str] = ENDS) -> list[Json]:
        """Events from the first on, up to where there were so many of these kinds."""
        found: list[Json] = []
        async for event in self.events(thread):
            found.append(event)
            if sum(event["type"] in kinds for event in found) == ends:
                break
        return found

    async def events(self, thread: str) -> AsyncIterator[Json]:
        """All events, as they come."""
        async with self.client.stream("GET", f"/api/threads/{thread}/events") as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if line.strip():
                    yield json.loads(line)


@asynccontextmanager
async def served(
    agent: Agent, *, port: int = 0, receipt_key: str = "", also: Sequence[str] = (), below: str = "", **metadata: Any
) -> AsyncIterator[Page]:
    """The page of an agent; the agent is closed with it. `below`: a path that is cut off before, as a proxy does."""
    listening = listen(port)
    address = f"{HOST}:{listening.getsockname()[1]}"
    app = page(Conversations(agent, metadata, ReceiptFiles(receipt_key), also), TOKEN, frozenset([address]))

    async def cut(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(f"{below}/"), scope["path"]
            scope = {**scope, "path": scope["path"].removeprefix(below)}
        await app(scope, receive, send)

    server = uvicorn.Server(uvicorn.Config(cut, log_level="error", timeout_graceful_shutdown=1, ws="none"))
    task = asyncio.create_task(server.serve(sockets=[listening]))
    headers = {"authorization": f"Bearer {TOKEN}"}

    async def stop() -> None:
        server.should_exit = True
        await task

    try:
        async with httpx.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=60) as client, agent:
            yield Page(f"{address}{below}", client, stop)
    finally:
        await stop()
