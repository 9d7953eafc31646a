"""An agent in an editor (Zed, JetBrains …) over the Agent Client Protocol. Needs the extra `acp`.

A session is a thread, which any process can load, list and go on with, also after the editor was closed. The editor
shows the plan, each call with its arguments, its result and what it changes in files, and gives permission in its own
way. A question is a form in editors that have forms; in the others it ends the turn, and what is typed next is the
answer. Stop stops at a clean point; “continue” goes on.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import acp
from acp.exceptions import RequestError
from acp.helpers import update_current_mode
from acp.schema import (
    AgentCapabilities,
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    Implementation,
    McpCapabilities,
    PermissionOption,
    PromptCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    ToolCallLocation,
    ToolCallUpdate,
)
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from pydantic import ValidationError

from donewhen.agent.agent import Agent
from donewhen.agent.mcp.client import McpServers
from donewhen.agent.stream import RunStream
from donewhen.agent.work.queue import ThreadInfo
from donewhen.graph.people.tasks import TASK
from donewhen.prompts import framed
from donewhen.state.errors import DoneWhenError, UnknownThread
from donewhen.state.people.payload import message_text, question_of
from donewhen.state.run import Json

WHAT_INSTEAD = "What should be different?"
MOST_UNCLEAR = 3
"""Answers in a row that are not understood, before the question waits for the next prompt."""
MODES = {
    "ask": ("Ask", "Plans, and changes that you have not seen, wait for you."),
    "auto": ("Auto", "Nothing waits for you but questions."),
}
"""What an editor may choose: when a session asks for permission."""
UNASKED: Json = {"confirm": "never", "approvals": "never"}
"""The settings of the mode `auto`."""
PAGE = 50
"""The most sessions in one answer to `session/list`."""
MOST_LISTED = 10_000
TITLE = 100
"""The most characters of a session's title."""
INVALID, UNKNOWN, INTERNAL = -32602, -32002, -32603
"""JSON-RPC's code of wrong parameters, ACP's of an unknown resource, JSON-RPC's of an error in here."""


@dataclass
class Session:
    """A conversation of the editor: a thread of an agent that works in one folder."""

    id: str
    folder: str
    agent: Agent
    servers: McpServers | None = None
    """Those that the editor has configured."""
    mode: str = "ask"
    stream: RunStream | None = None
    busy: bool = False
    cancelled: bool = False
    """Whether Stop was pressed in this turn."""
    answer: str = ""
    """What was shown of the answer as it was written."""
    rejects: bool = False
    """Whether what is typed next says what should be different in the plan."""
    calls: dict[str, Any] = field(default_factory=dict)
    """Calls at work, as `tool_started` tells of them."""

    def settings(self) -> Json:
        """Return the settings of the mode, over those of the agent."""
        usual = self.agent.settings
        return UNASKED if self.mode == "auto" else {"confirm": usual.confirm, "approvals": usual.approvals}

    async def start(self, given: Sequence[Any]) -> None:
        """Start the editor's MCP servers, and give the agent their tools."""
        if connections := {server.name: _connection(server, self.folder) for server in given}:
            reserved = [tool.name for tool in self.agent.tools]
            self.servers = McpServers(connections, reserved=reserved, optional=True)
            await self.servers.__aenter__()
            self.agent.tools.add(self.servers)

    async def aclose(self) -> None:
        """Stop what is at work at a clean point, and end the servers."""
        self.cancelled = True
        await self.agent.aclose()
        if self.servers:
            await self.servers.aclose()


class AcpAgent:
    """An ACP server; `make` opens an agent of its own for each session, in a folder.

    `metadata` returns what a thread keeps of the folder: `dir`, by which it is listed, and what else its readers need.
    """

    _editor: acp.Client

    def __init__(
        self,
        make: Callable[[str], Awaitable[Agent]],
        metadata: Callable[[str], Json] = lambda folder: {"dir": folder},
    ) -> None:
        self._make, self._metadata = make, metadata
        self._sessions: dict[str, Session] = {}
        self._forms = False
        self._reader: Agent | None = None

    def on_connect(self, conn: acp.Client) -> None:
        """Remember the editor."""
        self._editor = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, *_: Any, **__: Any) -> Any:
        """Say what can be done; remember whether the editor has forms."""
        offered = client_capabilities and client_capabilities.elicitation
        self._forms = bool(offered and offered.form is not None)
        return acp.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_info=Implementation(name="donewhen", title="DoneWhen", version=_version()),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    # --- sessions

    async def new_session(self, cwd: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Any:
        """Begin a conversation in this folder, with the MCP servers that the editor has."""
        session = await self._open(uuid4().hex, cwd, mcp_servers)
        return acp.NewSessionResponse(session_id=session.id, modes=_modes(session))

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Any:
        """Open a conversation of before, and show all of it again."""
        session = await self._reopen(session_id, cwd, mcp_servers)
        await self._replay(session)
        return acp.LoadSessionResponse(modes=_modes(session))

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> Any:
        """Open a conversation of before for an editor that still shows it."""
        return acp.schema.ResumeSessionResponse(modes=_modes(await self._reopen(session_id, cwd, mcp_servers)))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Any:
        """Return the conversations of all folders or of one, the latest first."""
        if cursor is not None and not cursor.isdecimal():
            raise RequestError(INVALID, f"{cursor!r} is no cursor of this list")
        with _errors_for_editor():
            infos = await (await self._any_agent()).threads(MOST_LISTED)
        first = int(cursor or 0)
        all = [info for info in infos if (there := info.metadata.get("dir")) and cwd in (None, there)]
        rows = [_session_info(info) for info in all[first : first + PAGE]]
        more = str(first + PAGE) if len(all) > first + PAGE else None
        return acp.schema.ListSessionsResponse(sessions=rows, next_cursor=more)

    async def close_session(self, session_id: str, **_: Any) -> Any:
        """Stop what is at work in a session and end its servers; it can be loaded again."""
        session = self._find(session_id)
        del self._sessions[session_id]
        await session.aclose()
        return acp.schema.CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
        """Choose when the session asks for permission, from the next request or answer on."""
        if mode_id not in MODES:
            raise RequestError(INVALID, f"there is no mode {mode_id!r}; there are {', '.join(MODES)}")
        self._find(session_id).mode = mode_id
        return acp.schema.SetSessionModeResponse()

    async def aclose(self) -> None:
        """Stop all sessions at clean points."""
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(session.aclose() for session in sessions.values()))
        if self._reader:
            await self._reader.aclose()

    def _find(self, id: str) -> Session:
        if id not in self._sessions:
            raise RequestError(UNKNOWN, f"no session {id!r} is open: load it with session/load, or begin a new one")
        return self._sessions[id]

    async def _any_agent(self) -> Agent:
        """Return an agent that can read the threads."""
        if self._reader is None:
            self._reader = await self._make(os.getcwd())
        return self._reader

    async def _open(self, id: str, folder: str, given: Sequence[Any] | None) -> Session:
        _check_folder(folder)
        with _errors_for_editor():
            session = Session(id, folder, await self._make(folder))
            try:
                await session.start(given or ())
            except BaseException:
                await session.aclose()
                raise
        self._sessions[id] = session
        return session

    async def _reopen(self, id: str, folder: str, given: Sequence[Any] | None) -> Session:
        if id in self._sessions:
            await self.close_session(id)
        await self._info(id)
        return await self._open(id, folder, given)

    async def _info(self, id: str) -> ThreadInfo:
        try:
            info = await (await self._any_agent()).info(id)
        except UnknownThread:
            info = None
        if info is None or not info.metadata.get("dir"):
            raise RequestError(UNKNOWN, f"there is no session {id!r}; session/list has those that there are")
        return info

    async def _replay(self, session: Session) -> None:
        """Show the conversation, the steps with their results, the plan, and what is still asked."""
        values = (await session.agent.graph.aget_state({"configurable": {"thread_id": session.id}})).values
        for message in values.get("messages") or ():
            for update in _updates_of(message):
                await self._editor.session_update(session.id, update)
        await self._show_plan(values.get("todos") or (), session.id)

    # --- a turn

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        """Take a request, an answer, or, after Stop, how to go on; work to the end or the next question."""
        session = self._find(session_id)
        if session.busy:
            raise RequestError(INVALID, f"session {session_id!r} is at work on another prompt: cancel it, or wait")
        session.busy, session.cancelled = True, False
        try:
            with _errors_for_editor():
                return acp.PromptResponse(stop_reason=await self._work(session, prompt))
        except ConnectionError:  # the editor is gone; what was asked stays asked
            return acp.PromptResponse(stop_reason="cancelled")
        finally:
            session.busy, session.stream = False, None

    async def _work(self, session: Session, prompt: Any) -> Any:
        """Work on a prompt; return why the turn ended."""
        if session.servers:
            for problem in session.servers.missing:
                await self._say(session.id, f"{problem}\n\n")
            session.servers.missing.clear()
        given: Any = await self._begin(session, prompt)
        session.rejects, unclear = False, 0
        while given is not None:
            session.stream, session.answer = given, ""
            async for event in given:
                await self._show(event, session)
            run = given.run
            unclear = unclear + 1 if run and run.pending and run.problem else 0
            if unclear > MOST_UNCLEAR:  # the next prompt is the answer
                await self._say(session.id, f"\n\n{run.problem}\n\n{message_text(run.pending[0])}")
                break
            answer = await self._answer(run.pending[0], session) if run and run.pending else None
            given = None
            if answer is not None and not session.cancelled:
                given = session.agent.stream_resume(run, answer, settings=session.settings())
        stopped = session.cancelled or (run is not None and run.status == "running")
        return "cancelled" if stopped else "end_turn"

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop at the next clean point."""
        if session := self._sessions.get(session_id):
            session.cancelled = session.busy
            if session.stream:
                session.stream.drain()

    async def _begin(self, session: Session, prompt: Any) -> RunStream:
        agent, id, settings = session.agent, session.id, session.settings()
        blocks = [_block(block, session.folder) for block in prompt]
        text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
        try:
            run = await agent.get(id)
        except UnknownThread:
            run = None
        if run and run.status == "running":
            return agent.stream_resume(id, steer=text, settings=settings)
        if run and run.pending:
            given: Any = {"type": "reject", "message": text} if session.rejects else text
            return agent.stream_resume(run, given, settings=settings)
        goal: Any = blocks if any(block["type"] != "text" for block in blocks) else text
        return agent.stream(goal, thread_id=id, settings=settings, metadata=self._metadata(session.folder))

    # --- what the editor is shown

    async def _show(self, event: Any, session: Session) -> None:
        id, kind, call = session.id, event["type"], f"{event['turn']}.{event.get('id')}"
        if kind == "todos":
            await self._show_plan(event["todos"], id)
        elif kind == "speech" and (event.get("answer") or not event.get("argument")):
            session.answer += event["text"] if event.get("answer") else ""
            await self._say(id, event["text"])
        elif kind == "speech_restarted" and event.get("argument") in (None, "answer.text"):
            session.answer = ""
            await self._say(id, "\n\n")
        elif kind == "thinking":
            await self._editor.session_update(id, acp.update_agent_thought_text(event["text"]))
        elif kind == "tool_started":
            session.calls[call] = event
            shown = {"content": list(edits(event, session.folder)), "raw_input": event["arguments"]}
            about: Any = {"kind": kind_of(event, session.agent), "locations": locations(event, session.folder)}
            start = acp.start_tool_call(call, title(event), status="in_progress", **about, **shown)
            await self._editor.session_update(id, start)
        elif kind == "observation" and (started := session.calls.pop(call, None)):
            content = [*edits(started, session.folder), acp.tool_content(acp.text_block(event["text"]))]
            status: Any = "completed" if event["ok"] else "failed"
            await self._editor.session_update(id, acp.update_tool_call(call, status=status, content=content))
        elif kind in ("outcome", "error") and event.get("code") != "interrupted":
            text = event["text"]
            await self._say(id, text[len(session.answer) :] if text.startswith(session.answer) else f"\n\n{text}")

    async def _say(self, id: str, text: str) -> None:
        if text:
            await self._editor.session_update(id, acp.update_agent_message_text(text))

    async def _show_plan(self, todos: Sequence[Any], id: str) -> None:
        rows = [acp.plan_entry(row["content"], status=row["status"]) for row in todos]
        if rows:
            await self._editor.session_update(id, acp.update_plan(rows))

    # --- what a person is asked

    async def _answer(self, pause: Any, session: Session) -> Any:
        """Return the answer to a pause; None where it is typed as the next prompt."""
        if pause["kind"] not in ("plan", "tool"):
            return await self._typed(session.id, message_text(pause), pause.get("schema"))
        if pause["kind"] == "plan":
            await self._say(session.id, message_text(pause))
        call = ToolCallUpdate(
            tool_call_id=pause["tool_call_id"],
            title=question_of(pause),
            kind=kind_of(pause, session.agent),
            content=list(edits(pause, session.folder)),
            locations=locations(pause, session.folder),
            raw_input=pause.get("arguments"),
        )
        options = [
            PermissionOption(option_id="approve", name="Approve", kind="allow_once"),
            PermissionOption(option_id="auto", name="Approve, and do not ask again here", kind="allow_always"),
            PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
        ]
        reply = await self._editor.request_permission(session.id, call, options)
        if reply.outcome.outcome != "selected":
            return None
        chosen = reply.outcome.option_id
        if chosen == "auto":
            session.mode = chosen
            await self._editor.session_update(session.id, update_current_mode(chosen))
        if chosen == "reject" and pause["kind"] == "plan":
            why = await self._typed(session.id, WHAT_INSTEAD)
            session.rejects = why is None
            return {"type": "reject", "message": why} if why else None
        return {"type": "reject" if chosen == "reject" else "approve"}

    async def _typed(self, id: str, question: str, schema: Mapping[str, Any] | None = None) -> Any:
        """Return the answer of a form; without forms say the question, and the next prompt is the answer.

        `schema` is the form of the question itself; other questions have a field for the answer.
        """
        if self._forms and (form := _form(schema)):
            mode = ElicitationFormSessionMode(session_id=id, requested_schema=form)
            reply = await self._editor.create_elicitation(question, mode)
            if reply.action == "accept" and schema:
                return dict(reply.content or {})
            if reply.action == "accept":
                return str((reply.content or {}).get("answer") or "") or None
            if reply.action == "decline" and schema:
                return {"type": "ignore"}
        await self._say(id, f"\n\n{question}")
        return None


async def serve(
    make: Callable[[str], Awaitable[Agent]], metadata: Callable[[str], Json] = lambda folder: {"dir": folder}
) -> None:
    """Serve on stdin and stdout until the editor closes them. `make` returns a new agent for a folder."""
    server: Any = AcpAgent(make, metadata)  # the editor is told of what it leaves out that it is not there
    try:
        await acp.run_agent(server, use_unstable_protocol=True)
    finally:
        await server.aclose()


@contextmanager
def _errors_for_editor() -> Iterator[None]:
    """Raise errors that are written to be read as errors that the editor shows."""
    try:
        yield
    except DoneWhenError as error:
        raise RequestError(INTERNAL, str(error)) from error


def _version() -> str:
    try:
        return version("donewhen")
    except PackageNotFoundError:
        return "0"


def _session_info(info: ThreadInfo) -> SessionInfo:
    title = " ".join(info.goal.split())[:TITLE]
    return SessionInfo(session_id=info.thread_id, cwd=info.metadata["dir"], title=title, updated_at=info.updated)


def _check_folder(folder: str) -> None:
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise RequestError(INVALID, f"cwd is {folder!r}; it must be the absolute path of a folder")


def _modes(session: Session) -> SessionModeState:
    rows = [SessionMode(id=id, name=name, description=about) for id, (name, about) in MODES.items()]
    return SessionModeState(current_mode_id=session.mode, available_modes=rows)


def _connection(server: Any, folder: str) -> Json:
    """Return what the editor says of an MCP server as an entry of `mcpServers`."""
    if hasattr(server, "command"):
        environment = {each.name: each.value for each in server.env or ()}
        return {"command": server.command, "args": list(server.args or ()), "env": environment, "cwd": folder}
    if not hasattr(server, "url"):
        raise RequestError(INVALID, f"the MCP server {server.name!r} is neither a program nor at a url")
    headers = {each.name: each.value for each in server.headers or ()}
    return {"url": server.url, "headers": headers, "type": server.type}


def _block(block: Any, folder: str) -> Json:
    """Return a block of a prompt as one of a goal. What is linked or embedded is named by its path in the folder."""
    if block.type == "text":
        return {"type": "text", "text": block.text}
    if block.type in ("image", "audio"):
        return {"type": block.type, "base64": block.data, "mime_type": block.mime_type}
    if block.type == "resource_link":
        return {"type": "text", "text": f"[{block.name}]({_place(block.uri, folder)})"}
    resource = block.resource
    place = _place(resource.uri, folder)
    if hasattr(resource, "text"):
        # A frame: what stands in a file or a page is not what the user said.
        name = " ".join(place.replace('"', "'").split())
        return {"type": "text", "text": framed("embedded", resource.text, token_hex(3), name=name)}
    return {"type": "file", "base64": resource.blob, "mime_type": resource.mime_type or "", "filename": place}


def _place(uri: Any, folder: str) -> str:
    """Return the path in the folder that a `file:` address means; any other address as it is."""
    parts = urlsplit(str(uri))
    if parts.scheme != "file":
        return str(uri)
    path = unquote(parts.path)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else path


def _form(schema: Mapping[str, Any] | None) -> ElicitationSchema | None:
    """Return a form as the protocol has it; None if it cannot have this one."""
    if schema is None:
        answer = ElicitationStringPropertySchema(type="string", title="Answer")
        return ElicitationSchema(type="object", properties={"answer": answer}, required=["answer"])
    try:
        return ElicitationSchema.model_validate(dict(schema))
    except ValidationError:
        return None


def _updates_of(message: AnyMessage) -> Iterator[Any]:
    """Yield a message of the conversation as the editor would have been shown it."""
    if isinstance(message, HumanMessage):
        yield acp.update_user_message_text(message.text)
    elif isinstance(message, ToolMessage) and message.name == TASK:
        content = [acp.tool_content(acp.text_block(message.text))]
        yield acp.update_tool_call(message.tool_call_id, status="completed", content=content)
    elif isinstance(message, ToolMessage):
        yield acp.update_user_message_text(message.text)
    elif isinstance(message, AIMessage):
        if message.text:
            yield acp.update_agent_message_text(f"{message.text}\n\n")
        for call in message.tool_calls:
            if call["name"] == TASK:
                title = f"{call['args'].get('subagent_type')}: {call['args'].get('description')}"
                yield acp.start_tool_call(str(call["id"]), title, kind="other", status="in_progress")


def locations(call: Any, folder: str) -> list[ToolCallLocation]:
    """Return the file that a call is about, so that the editor can follow along."""
    path = (call.get("arguments") or {}).get("path")
    return [ToolCallLocation(path=os.path.join(folder, path))] if isinstance(path, str) and path else []


def title(call: Any) -> str:
    """Return a call in a few words."""
    texts = [value for value in call["arguments"].values() if isinstance(value, str)]
    about = call["arguments"].get("path") or next(iter(texts), "")
    return f"{call['tool']} {' '.join(str(about).split())[:60]}".strip()


def kind_of(call: Any, agent: Agent) -> Any:
    """Return the kind that the editor draws it as, and by which its own policies may decide."""
    if any(edits(call, "")):
        return "edit"
    return "read" if agent.executors.toolbox.effect(str(call.get("tool"))) == "read" else "other"


def edits(call: Any, folder: str) -> Iterator[Any]:
    """Yield what a call changes in a file: the passages that differ, the replaced one, or all of a new file."""
    given = call.get("arguments") or {}
    path = os.path.join(folder, str(given.get("path")))
    hunks = [hunk for diff in (call.get("diffs") or {}).values() for hunk in re.split(r"(?m)^@@.*@@\n", diff)[1:]]
    for hunk in hunks:
        lines = hunk.rstrip("\n").split("\n")
        old, new = ("\n".join(line[1:] for line in lines if line[:1] in kept) for kept in (" -", " +"))
        yield acp.tool_diff_content(path, new, old)
    if hunks or "path" not in given:
        return
    if "old" in given and "new" in given:
        yield acp.tool_diff_content(path, str(given["new"]), str(given["old"]))
    elif "content" in given:
        yield acp.tool_diff_content(path, str(given["content"]))
