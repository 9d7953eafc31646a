"""What a reply of a remote agent means for the message that was sent: a table, on a server written by hand."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from donewhen import Agent, Executor
from donewhen.executors import RemoteAgent
from donewhen.testing import ScriptedModel, finish_step, give_up, submit_plan
from tests.kit.runs import last_seen

JSON = "application/json"
ERRORS = {"invalid params": -32602, "unsupported": -32004, "internal error": -32603, "agent's answer": -32006}
REPLIES: dict[str, tuple[int, str, str]] = {
    "HTML": (200, "text/html", "<html>ok</html>"),
    "empty": (200, JSON, ""),
    "202": (202, JSON, ""),
    "cut": (200, JSON, '{"jsonrpc": "2.0", "id": "1", "result": {"message": {"par'),
    "no object": (200, JSON, '"paid"'),
    "half an emoji": (
        200,
        JSON,
        '{"jsonrpc": "2.0", "id": "1", "result": {"message": {"parts": [{"text": "\\ud83d"}]}}}',
    ),
    "no such field": (200, JSON, '{"jsonrpc": "2.0", "id": "1", "result": {"paid": true}}'),
    "302": (302, "text/plain", ""),
    "402": (402, "text/plain", "no"),
    "500": (500, "text/plain", "oops"),
}
OUTCOMES = {
    **dict.fromkeys(REPLIES, "unknown"),
    **dict.fromkeys(["402", "invalid params", "unsupported"], "refused"),
    **dict.fromkeys(["internal error", "agent's answer", "hangs up"], "unknown"),
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    how = ""
    arrived: list[str]

    def do_GET(self) -> None:
        address = f"http://127.0.0.1:{self.server.server_address[1]}/"  # type: ignore[attr-defined]
        interface = {"url": address, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        skills = [{"id": "pay", "name": "pay", "description": "pays", "tags": []}]
        card = {"name": "Bank", "description": "Pays.", "version": "1", "supportedInterfaces": [interface]}
        modes = {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        self._reply(200, JSON, json.dumps({**card, **modes, "skills": skills, "capabilities": {"streaming": False}}))

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if message["method"] != "SendMessage":
            self._say_error(message["id"], -32004)
            return
        self.arrived.append(message["method"])
        if self.how == "hangs up":
            self.close_connection = True
        elif self.how in ERRORS:
            self._say_error(message["id"], ERRORS[self.how])
        else:
            self._reply(*REPLIES[self.how])

    def _say_error(self, id: Any, code: int) -> None:
        error = {"code": code, "message": "because"}
        self._reply(200, JSON, json.dumps({"jsonrpc": "2.0", "id": id, "error": error}))

    def _reply(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def bank(how: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of an agent that takes every message and answers so, and the messages that it got."""
    handler = type("Handler", (_Handler,), {"how": how, "arrived": (arrived := list[str]())})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", arrived
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("how", OUTCOMES)
async def test_only_the_agents_own_words_say_that_nothing_was_done(how: str) -> None:
    """Q03, X24: a reply that cannot be read says nothing about what was done; a person is asked before it is resent."""

    def prove(messages: Any, _: Any) -> Any:
        worked = "far ok" in "".join(message.text for message in messages[2:])
        return finish_step("done", last_seen(messages)) if worked else give_up("it did not answer")

    plans = [submit_plan([{"content": each, "executor": "far"}]) for each in ("pay Bo", "pay Bo again")]
    model = ScriptedModel(
        roles={"triage": plans[:1], "plan": plans[1:], "execute": prove, "deliver": lambda *_: "Done."}, strict=False
    )
    with bank(how) as (address, arrived):
        far = Executor(remote=RemoteAgent(address, poll=0.01, patience=0))
        settings = {"confirm": "never", "on_failure": "replan"}
        async with Agent(model, [], executors={"far": far}, storage="memory:", settings=settings) as agent:
            run = await agent.start("Pay")
    asked = "effect" in [pause["kind"] for pause in run.pending]
    assert ("unknown" if asked else "refused", len(arrived)) == (OUTCOMES[how], 1 if asked else 2)
