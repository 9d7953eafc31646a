"""The ACP server (`donewhen acp`, examples/acp_agent.py), driven by the protocol's connection, as an editor does."""

import asyncio
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import acp
import pytest
from acp.agent.connection import AgentSideConnection
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    RequestPermissionResponse,
)
from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.agent.acp.lines import EditorLines
from donewhen.agent.acp.server import AcpAgent
from donewhen.hooks import Hooks
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools


class Editor(acp.Client):
    """What an editor is told; it permits what it is told to, and answers forms."""

    connection: Any
    session = folder = ""

    def __init__(self, choices: list[str], forms: list[str]) -> None:
        self.choices, self.forms = choices, forms
        self.plans: list[list[tuple[str, str]]] = []
        self.text = ""
        self.said: list[str] = []
        self.modes: list[str] = []
        self.initialized: Any = None
        self.asked: list[Any] = []
        self.decided: list[str] = []
        self.offered: list[list[str]] = []
        self.questions: list[str] = []
        self.shapes: list[Any] = []
        self.calls: dict[str, list[Any]] = {}
        self.at_work = asyncio.Event()
        self.permission = asyncio.Event()
        self.decision = asyncio.Event()
        self.form = asyncio.Event()
        self.heard = asyncio.Condition()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Remember the plan, calls, and what is said."""
        if update.session_update == "plan":
            self.plans.append([(entry.content, entry.status) for entry in update.entries])
        elif update.session_update == "user_message_chunk":
            self.said.append(update.content.text)
        elif update.session_update == "current_mode_update":
            self.modes.append(update.current_mode_id)
        elif update.session_update == "agent_message_chunk":
            async with self.heard:
                self.text += update.content.text
                self.heard.notify_all()
        elif update.tool_call_id in [call.tool_call_id for call in self.asked]:
            self.decided.append(update.status)
            self.decision.set()
        elif update.session_update in ("tool_call", "tool_call_update"):
            self.calls.setdefault(update.tool_call_id, []).append(update)
            self.at_work.set()

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        """Choose as told; without a choice never."""
        self.asked.append(tool_call)
        self.offered.append([option.name for option in options])
        self.permission.set()
        if not self.choices:
            await asyncio.Event().wait()
        choice = self.choices.pop(0)
        if choice == "refuse":
            raise acp.RequestError.method_not_found("session/request_permission")
        if choice == "nonsense":
            return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=choice))
        if choice == "cancel":
            await self.connection.cancel(session_id=session_id)
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        chosen = next(option.option_id for option in options if option.option_id == choice)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        """Fill in the form."""
        self.questions.append(message)
        self.form.set()
        self.shapes.append(mode.requested_schema)
        filled = self.forms.pop(0)
        if isinstance(filled, str):
            assert mode.requested_schema.required == ["answer"]
            filled = {"answer": filled}
        return AcceptElicitationResponse(action="accept", content=filled)

    async def finished(self, words: str) -> None:
        """Wait until these words were said last."""
        async with self.heard:
            await self.heard.wait_for(lambda: words in self.text[-200:])

    async def types(self, text: str, *more: Any) -> str:
        """Send a prompt, and say how the turn ended."""
        done = await self.connection.prompt(session_id=self.session, prompt=[acp.text_block(text), *more])
        return str(done.stop_reason)


@asynccontextmanager
async def editor(
    model: ScriptedModel,
    folder: Path,
    choices: list[str],
    forms: list[Any] | None = None,
    stopped: Any = None,
    hooks: Hooks | None = None,
) -> AsyncIterator[Editor]:
    """An editor at the server, which works in this folder; `forms`: it has forms, and what they are answered.

    `stopped` is an event that is set when the server has heard Stop; until then the tool `wait` waits.
    """

    storage = f"sqlite:///{folder}.db"

    async def wait() -> str:
        """Wait."""
        await stopped.wait()
        return "waited"

    class Server(AcpAgent):
        async def cancel(self, session_id: str, **more: Any) -> None:
            await super().cancel(session_id, **more)
            stopped.set()

    def send(to: str) -> str:
        """Send it."""
        return f"sent to {to}"

    async def make(opened: str) -> Agent:
        tools = [*workspace_tools(opened), wait, StructuredTool.from_function(send, metadata={"targets": ["to"]})]
        return Agent(model, tools, storage=storage, effects={"wait": "read"}, hooks=hooks)

    pair, ends = socket.socketpair(), []
    for end in pair:
        end.setblocking(False)
        ends.append(await asyncio.open_connection(sock=end))
    (read, write), (their_read, their_write) = ends
    agent: Any = Server(make)
    lines = EditorLines(their_read, their_write)
    server = AgentSideConnection(agent, lines, use_unstable_protocol=True)
    told = Editor(choices, forms or [])
    told.connection = acp.connect_to_agent(told, write, read, use_unstable_protocol=True)
    form = ElicitationCapabilities(form=ElicitationFormCapabilities()) if forms else None
    told.initialized = await told.connection.initialize(
        protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(elicitation=form)
    )
    told.folder = str(folder)
    told.session = (await told.connection.new_session(cwd=told.folder, mcp_servers=[])).session_id
    try:
        yield told
    finally:
        await agent.aclose()
        for each in (told.connection, server):
            await each.close()
        for _, writer in ends:
            writer.close()


def texts(update: Any) -> list[str]:
    """The texts of a call's contents."""
    return [part.content.text for part in update.content if part.type == "content"]


async def test_an_editor_shows_the_plan_the_calls_and_what_they_change(tmp_path: Path) -> None:
    """U10: the checklist is its plan; permission is asked once a pause; calls have arguments, results, differences."""
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    write = call("write_file", path="a.txt", content="one\n2\n")
    rounds = {"s1": [[call("read_file", path="a.txt")], [write], finish_step("changed", "s1.2")]}
    rounds["s2"] = [finish_step("noted", "s2.result")]
    plan = submit_plan([{"content": "change", "tools": ["read_file"]}, {"content": "note", "tools": None}])
    model = ScriptedModel(roles={"triage": [plan], "execute": rounds, "deliver": ["It is *changed*."]})
    async with editor(model, tmp_path, ["approve", "approve"]) as told:
        assert await told.types("Change it") == "end_turn"
    asked_plan, asked_write = told.asked
    assert "Shall I go ahead" in asked_plan.title
    assert asked_write.raw_input == {"path": "a.txt", "content": "one\n2\n"}
    (diff,) = asked_write.content
    assert (diff.path, diff.old_text, diff.new_text) == (str(tmp_path / "a.txt"), "one\ntwo", "one\n2")
    (started, read), (writing, written) = told.calls.values()
    assert (started.title, started.kind, started.raw_input) == ("read_file a.txt", "read", {"path": "a.txt"})
    assert started.locations[0].path == str(tmp_path / "a.txt")
    assert (read.status, texts(read)) == ("completed", ["one\ntwo\n"])
    assert (writing.kind, written.content[0].new_text) == ("edit", "one\n2")
    assert "1. change" in told.text
    assert told.text.endswith("It is *changed*.")
    assert told.text.count("It is *changed*.") == 1
    assert [content for content, _ in told.plans[-1]] == ["change", "note", "Write the answer"]
    assert {status for _, status in told.plans[-1]} == {"completed"}


@pytest.mark.parametrize("forms", [["shorter", {"answer": "text"}], None], ids=["forms", "no forms"])
async def test_questions_are_answered_in_the_editors_own_way(tmp_path: Path, forms: list[Any] | None) -> None:
    """U10: what should be different is a form, else what is said next; options are a choice in a form or a request."""
    plans = [submit_plan(["first", "second"]), submit_plan(["only"])]
    rounds = {"s1": [ask_user("Which kind?", ["all", "text"]), finish_step("Text it is.", "s1.result")]}
    model = ScriptedModel(roles={"triage": plans, "execute": rounds})
    async with editor(model, tmp_path, ["reject", "approve", "option 2"], forms) as told:
        assert await told.types("Look") == "end_turn"
        if forms is None:
            assert "What should be different?" in told.text
            assert "steps:\n- id: s1\n  content: first" in told.text
            await told.types("shorter")
            assert "Which kind?\n\n1. all\n2. text" in told.text
            assert told.offered[-1] == ["I type the answer", "all", "text"]
    if forms is not None:
        assert [question.splitlines()[0] for question in told.questions] == [
            "What should be different? Say it in words, or send this plan as you want it:",
            "Which kind?",
        ]
        assert told.shapes[1].properties["answer"].enum == ["all", "text"]
    assert told.text.endswith("Text it is.")


async def test_stop_and_continue(tmp_path: Path) -> None:
    """U4, U10: the editor's Stop ends the turn as cancelled; “continue” goes on with the approved plan."""
    model = ScriptedModel(
        roles={"triage": [submit_plan(["look"])], "execute": {"s1": [[call("wait")], finish_step("Done.", "s1.1")]}}
    )
    async with editor(model, tmp_path, ["approve"], stopped=asyncio.Event()) as told:
        turn = asyncio.ensure_future(told.types("Look"))
        await told.at_work.wait()
        await told.connection.cancel(session_id=told.session)
        assert await turn == "cancelled"
        assert await told.types("continue") == "end_turn"
    assert told.text.endswith("Done.")


@asynccontextmanager
async def command_in(folder: Path, choices: list[str]) -> AsyncIterator[tuple[Editor, asyncio.subprocess.Process]]:
    """An editor at `donewhen acp`, started as editors do."""
    start = ["-c", "from donewhen.agent.cli import main; main()", "acp", "--model", "demo"]
    storage = ["--storage", f"sqlite:///{folder / 'runs.db'}"]
    command = await asyncio.create_subprocess_exec(
        sys.executable, *start, *storage, stdin=PIPE, stdout=PIPE, stderr=PIPE, env={"HOME": str(folder)}, cwd=folder
    )
    told = Editor(choices, [])
    told.connection = acp.connect_to_agent(told, command.stdin, command.stdout, use_unstable_protocol=True)
    told.initialized = await told.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
    yield told, command
    await told.connection.close()


async def test_the_command_is_an_agent_on_stdio(tmp_path: Path) -> None:
    """U10, N44: `donewhen acp` works in the folder that the editor opens; it is killed, and the next one goes on."""
    (tmp_path / "a.py").write_text("one = 1\n")
    async with command_in(tmp_path, []) as (told, command):
        told.session = (await told.connection.new_session(cwd=str(tmp_path), mcp_servers=[])).session_id
        asking = asyncio.ensure_future(told.types("count the Python files, then write a report to report.md"))
        await told.permission.wait()
        command.kill()
        await command.wait()
        asking.cancel()
    async with command_in(tmp_path, []) as (again, command):
        (listed,) = (await again.connection.list_sessions(cwd=str(tmp_path))).sessions
        assert listed.session_id == told.session
        assert "count the Python files" in listed.title
        again.session = listed.session_id
        await again.connection.load_session(cwd=str(tmp_path), session_id=listed.session_id, mcp_servers=[])
        assert again.said[0].startswith("count the Python files")
        assert "report.md" in again.text
        assert await again.types("yes") == "end_turn"
        assert (tmp_path / "report.md").exists()
        assert command.stdin
        command.stdin.close()
        assert await command.wait() == 0


async def test_without_an_editor_the_command_says_so(tmp_path: Path) -> None:
    """U10: a file in place of a pipe, as `</dev/null` gives it, is one line and no server that hangs."""
    start = ["-c", "from donewhen.agent.cli import main; main()", "acp", "--model", "demo"]
    command = await asyncio.create_subprocess_exec(
        sys.executable, *start, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={"HOME": str(tmp_path)}, cwd=tmp_path
    )
    _, stderr = await command.communicate()
    said = (
        "donewhen: stdin is neither a pipe nor a terminal: an editor starts an ACP server and talks to it over pipes\n"
    )
    assert (command.returncode, stderr.decode()) == (2, said)
