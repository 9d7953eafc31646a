"""An agent behind our A2A endpoint, in a process of its own, for tests.

“hello” is answered, “paint” asks for a colour (and then, with “shade”, for one), “hang” asks twice at once, “shirt”
calls a tool that asks with a form, “work” calls a tool that takes until the file `go` is there, “refuse” is
declined. FOLDER has the database, `begun`, a line for every call of that tool, and `ordered`, the last form. Users are
the bearer tokens.
"""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import uvicorn
from langgraph.types import interrupt
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.requests import HTTPConnection

from donewhen import Agent
from donewhen.agent.a2a.server import PushNotifications, a2a_app
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, submit_plan
from tests.kit.flows import FREE

SIZES = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "string", "enum": ["S", "M", "L"]},
        "count": {"type": "integer", "default": 1, "minimum": 1},
    },
}


def decide(messages: list[Any], tools: list[Any]) -> Any:
    """Decide by the goal and by what was said so far."""
    text = "\n".join(message.text for message in messages[1:])
    goal = messages[1].text.partition("</goal>")[0]
    if messages[0].text.startswith("You are the triage"):
        if "paint" in goal:
            if "shade" in goal and "green" in text and "dark" not in text:
                return ask_user("Which shade?", ["dark", "light"])
            return answer("It is green now.") if "green" in text else ask_user("Which colour?", ["red", "green"])
        if "work" in goal:
            return submit_plan([{"content": "work", "done_when": ["it is worked"], "tools": ["work"]}])
        if "hang" in goal:
            return submit_plan([{"content": text, "tools": [], "depends_on": []} for text in ("paint", "frame")])
        if "shirt" in goal:
            return submit_plan([{"content": "order", "done_when": ["it is ordered"], "tools": ["order"]}])
        return decline("no", "ask a painter") if "refuse" in goal else answer("Hello to you.")
    if "shirt" in goal:
        return finish_step("Ordered.", ("s1.2", "ordered")) if "[s1.2]" in text else call("order")
    if "hang" in goal:
        said = next((id for id in ("s1.1", "s2.1") if f"[{id}]" in text), "")
        return finish_step("hung", (said, "green")) if said else ask_user("Which colour?")
    return finish_step("worked", ("s1.1", "worked")) if "[s1.1]" in text else call("work")


class Tokens(AuthenticationBackend):
    """Every bearer token is its user's name."""

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser] | None:
        """Return the user of the request."""
        user = conn.headers.get("authorization", "").removeprefix("Bearer ")
        return (AuthCredentials(["authenticated"]), SimpleUser(user)) if user else None


def serve(door: socket.socket, folder: str) -> None:
    """Serve at this door until the process is ended."""
    place, url = Path(folder), f"http://127.0.0.1:{door.getsockname()[1]}/a2a"

    async def work() -> str:
        """Work until somebody says so."""
        with (place / "begun").open("a") as begun:
            begun.write("begun\n")
        while not (place / "go").exists():  # noqa: ASYNC110 - the test is another process
            await asyncio.sleep(0.02)
        return "worked"

    def order() -> str:
        """Order something to wear."""
        filled = interrupt("Which size?", response_schema=SIZES)
        (place / "ordered").write_text(json.dumps(filled))
        return "ordered"

    push = PushNotifications(inside=True)
    storage = f"sqlite:///{place}/runs.db"
    effects: Any = {"work": "read", "order": "idempotent"}
    agent = Agent(ScriptedModel(decide), [work, order], effects=effects, storage=storage, settings=FREE, notify=push)
    app = a2a_app(agent, url, push=push, skills={"paint": "paints things"})
    app.add_middleware(AuthenticationMiddleware, backend=Tokens())
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run([door])
