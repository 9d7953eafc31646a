"""An agent in an editor (Zed, JetBrains …) over the Agent Client Protocol. Needs the extra `acp`.

A session is a thread, which any process can load, list and continue, even after the editor was closed. The editor
shows the plan and each call with its arguments, its result and its changes of files, and asks for permission in its own
way. A question is a form in editors that support forms; in others it ends the turn, and the next prompt is the answer.
Stop ends a turn at a clean point, and “continue” goes on from there.
"""

import asyncio
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import acp
from acp.exceptions import RequestError
from acp.helpers import update_current_mode
from acp.schema import (
    AgentCapabilities,
    ElicitationFormSessionMode,
    ElicitationSchema,
    Implementation,
    McpCapabilities,
    PromptCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
)
from pydantic import ValidationError

from donewhen import Agent, ConfigError, DoneWhenError, GoalError, McpServers, Run, UnknownThread
from donewhen.agent.acp.asking import (
    TEXT_FORM,
    answer_form,
    answer_in,
    change_question,
    chosen_answer,
    only_says_continue,
    permission_call,
    permission_options,
    read_change,
)
from donewhen.agent.acp.content import edits, goal_block, kind_of, locations, message_updates, title
from donewhen.agent.acp.lines import INVALID_PARAMS, EditorLines
from donewhen.clients import Json, installed_version, load_pause, read_all, store_label
from donewhen.types import RunStream, ThreadInfo

MOST_UNCLEAR = 3
"""Answers in a row that are not understood, before the question waits for the next prompt."""
MODES = {
    "ask": ("Ask", "Plans, and changes that you have not seen, wait for you."),
    "auto": ("Auto", "Nothing waits for you but questions."),
}
"""The modes of a session, which say when it asks for permission."""
AUTO_SETTINGS: Json = {"confirm": "never", "approvals": "never"}
"""The settings of the mode `auto`."""
PAGE = 50
"""The most sessions in one answer to `session/list`."""
MOST_LISTED = 10_000
READ_AHEAD = 2**20
"""The bytes that are buffered; a line may be longer."""
CALL_KEYS = ("step", "tool", "arguments")
"""The fields of a call that stay the same if it is made again after its question."""
TITLE = 100
"""The most characters of a session's title."""
UNPROMPTED = ("donewhen", "acp")
"""The store namespace of sessions without a prompt, which are not threads yet."""
MOST_UNPROMPTED = 10
"""The most sessions without a prompt that are stored."""
STOPPED = "\n\nThis is not finished: “continue” goes on with it, and any other words make a new plan."
ANSWERED = "\n\nWhat was asked here is answered already, perhaps in another window; your message was not used.\n\n"
ONLY_WORDS = "\n\nOnly the words of your message were used: pictures and files go with a request.\n\n"
RESOURCE_NOT_FOUND, INTERNAL_ERROR = -32002, -32603
"""ACP's code of an unknown resource, and JSON-RPC's of an error in here."""


@dataclass
class PromptTurn:
    """The work on one prompt, or on the answer to the question of an opened session."""

    prompted: bool = True
    shown: bool = False
    """True if its first question was shown when the session was opened."""
    cancelled: bool = False
    """True if Stop was pressed, or another prompt was sent."""
    stream: RunStream | None = None
    question: "asyncio.Future[Any] | None" = None
    """The open question to the editor."""
    answer: str = ""
    """The part of the answer that was shown while it was written."""

    def stop(self) -> None:
        """Stop at the next clean point, without waiting for an answer."""
        self.cancelled = True
        if self.stream:
            self.stream.drain()
        if self.question:
            self.question.cancel()


@dataclass
class EditorSession:
    """A conversation of the editor: a thread of an agent that works in one folder."""

    id: str
    folder: str
    agent: Agent
    servers: McpServers | None = None
    """The editor's own MCP servers."""
    mode: str = "ask"
    turn: PromptTurn | None = None
    opening: "asyncio.Task[None] | None" = None
    """The task that shows the session's question when it is opened, and works on the answer."""
    shown_question: str = ""
    """The id of the question that was shown last; "" if none was."""
    answered_question: str = ""
    """The same id, once that question was answered."""
    last_answer: Any = None
    """The last answer. A run that was stopped at that moment did not get it, and gets it with “continue”."""
    rejected_plan: str = ""
    """The id of the pause whose plan was rejected: the next prompt says what should be different."""
    calls: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Running calls: the id under which the editor shows each, and its `tool_started` event."""
    paused_calls: dict[str, Any] = field(default_factory=dict)
    """Calls that stopped, such as at a question, and go on with the run, by the id that the editor shows."""
    decided_calls: set[tuple[Any, Any]] = field(default_factory=set)
    """Step and tool of calls that a person decided about here, and that have not begun: they have a card already."""
    cards: dict[str, str] = field(default_factory=dict)
    """The ids under which an opened session shows working steps, by step."""

    def settings(self) -> Json:
        """Return the settings of the mode, over those of the agent."""
        usual = self.agent.settings
        return AUTO_SETTINGS if self.mode == "auto" else {"confirm": usual.confirm, "approvals": usual.approvals}

    async def start(self, configs: Sequence[Any]) -> None:
        """Start the editor's MCP servers, and give the agent their tools."""
        if connections := {server.name: _server_config(server, self.folder) for server in configs}:
            reserved = [tool.name for tool in self.agent.tools]
            self.servers = McpServers(connections, environment={}, reserved=reserved, optional=True)
            await self.servers.__aenter__()
            self.agent.tools.add(self.servers)

    async def aclose(self) -> None:
        """Stop at a clean point, and stop the servers."""
        await self.leave_opened(self.turn)
        await self.agent.aclose()
        if self.servers:
            await self.servers.aclose()

    async def leave_opened(self, turn: PromptTurn | None) -> None:
        """Stop a turn, and wait for the task of the opened session."""
        if turn:
            turn.stop()
        if self.opening:
            await asyncio.wait({self.opening})


class AcpAgent:
    """An ACP server; `make` opens an agent of its own for each session, in a folder.

    `metadata` returns a thread's metadata for a folder: `dir`, by which it is listed, and whatever its readers need.
    """

    _editor: acp.Client

    def __init__(
        self,
        make: Callable[[str], Awaitable[Agent]],
        metadata: Callable[[str], Json] = lambda folder: {"dir": folder},
    ) -> None:
        self._make, self._metadata = make, metadata
        self._sessions: dict[str, EditorSession] = {}
        self._forms = False
        self._reader: Agent | None = None

    def on_connect(self, conn: acp.Client) -> None:
        """Remember the connection to the editor."""
        self._editor = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, *_: Any, **__: Any) -> Any:
        """Return the capabilities; remember whether the editor supports forms."""
        offered = client_capabilities and client_capabilities.elicitation
        self._forms = bool(offered and offered.form is not None)
        return acp.InitializeResponse(
            protocol_version=min(protocol_version, acp.PROTOCOL_VERSION),
            agent_info=Implementation(name="donewhen", title="DoneWhen", version=installed_version()),
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
        """Begin a conversation in this folder, with the editor's MCP servers."""
        session = await self._open(uuid4().hex, cwd, mcp_servers)
        with _errors_for_editor():
            await _store_unprompted(session)
        return acp.NewSessionResponse(session_id=session.id, modes=_mode_state(session))

    async def load_session(self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any) -> Any:
        """Open an earlier conversation, and show all of it again."""
        session = await self._reopen(session_id, cwd, mcp_servers)
        await self._replay(session)
        self._start_asking(session, replayed=True)
        return acp.LoadSessionResponse(modes=_mode_state(session))

    async def resume_session(
        self, cwd: str, session_id: str, mcp_servers: Sequence[Any] | None = None, **_: Any
    ) -> Any:
        """Open an earlier conversation for an editor that still shows it."""
        session = await self._reopen(session_id, cwd, mcp_servers)
        self._start_asking(session, replayed=False)
        return acp.schema.ResumeSessionResponse(modes=_mode_state(session))

    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None, **_: Any) -> Any:
        """Return the conversations of all folders or of one, the latest first."""
        if cursor is not None and not (cursor.isdecimal() and len(cursor) < 10):
            raise RequestError(INVALID_PARAMS, f"{cursor[:60]!r} is no cursor of this list")
        with _errors_for_editor():
            agent = await self._any_agent()
            infos, unprompted = await agent.threads(MOST_LISTED), await _read_unprompted(agent)
        threads = [_session_info(info) for info in infos if info.metadata.get("dir")]
        stored_ids = {info.thread_id for info in infos}
        rows = [*threads, *(row for row in unprompted if row.session_id not in stored_ids)]
        sessions = sorted(
            (row for row in rows if cwd in (None, row.cwd)), key=lambda row: row.updated_at or "", reverse=True
        )
        first = min(int(cursor or 0), MOST_LISTED)
        more = str(first + PAGE) if len(sessions) > first + PAGE else None
        return acp.schema.ListSessionsResponse(sessions=sessions[first : first + PAGE], next_cursor=more)

    async def close_session(self, session_id: str, **_: Any) -> Any:
        """Stop a session and its servers; it can be loaded again."""
        session = self._find_session(session_id)
        del self._sessions[session_id]
        await session.aclose()
        return acp.schema.CloseSessionResponse()

    async def set_session_mode(self, session_id: str, mode_id: str, **_: Any) -> Any:
        """Choose when the session asks for permission, from the next request or answer on."""
        if mode_id not in MODES:
            raise RequestError(INVALID_PARAMS, f"there is no mode {mode_id!r}; there are {', '.join(MODES)}")
        self._find_session(session_id).mode = mode_id
        return acp.schema.SetSessionModeResponse()

    async def aclose(self) -> None:
        """Stop all sessions at clean points."""
        sessions, self._sessions = self._sessions, {}
        await asyncio.gather(*(session.aclose() for session in sessions.values()))
        if self._reader:
            await self._reader.aclose()

    def _find_session(self, id: str) -> EditorSession:
        if id not in self._sessions:
            raise RequestError(
                RESOURCE_NOT_FOUND, f"no session {id!r} is open: load it with session/load, or begin a new one"
            )
        return self._sessions[id]

    async def _any_agent(self) -> Agent:
        """Return an agent that can read the threads."""
        if self._reader is None:
            self._reader = await self._make(os.getcwd())
        return self._reader

    async def _open(self, id: str, folder: str, configs: Sequence[Any] | None) -> EditorSession:
        _check_folder(folder)
        with _errors_for_editor():
            session = EditorSession(id, folder, await self._make(folder))
            try:
                await session.start(configs or ())
            except BaseException:
                await session.aclose()
                raise
        self._sessions[id] = session
        return session

    async def _reopen(self, id: str, folder: str, configs: Sequence[Any] | None) -> EditorSession:
        _check_folder(folder)
        with _errors_for_editor():
            await self._check_known(id)
        if id in self._sessions:
            await self.close_session(id)
        return await self._open(id, folder, configs)

    async def _check_known(self, id: str) -> None:
        agent = await self._any_agent()
        try:
            is_ours = bool((await agent.info(id)).metadata.get("dir"))
        except UnknownThread:
            is_ours = any(row.session_id == id for row in await _read_unprompted(agent))
        if not is_ours:
            raise RequestError(RESOURCE_NOT_FOUND, f"there is no session {id!r}; session/list has those that there are")

    async def _replay(self, session: EditorSession) -> None:
        """Show the conversation, the steps with their results, and the plan."""
        try:
            conversation = await session.agent.conversation(session.id)
        except UnknownThread:  # nobody has asked for anything yet
            return
        for message in conversation.messages:
            for update in message_updates(message):
                await self._editor.session_update(session.id, update)
        session.cards = {id: task for id, row in conversation.run.steps.items() if (task := row["task"])}
        await self._show_plan(conversation.todos, session.id)

    # --- a turn

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        """Take a request, an answer, or, after Stop, how to continue; work to the end or the next question."""
        session = self._find_session(session_id)
        if session.turn and session.turn.prompted:
            raise RequestError(
                INVALID_PARAMS, f"session {session_id!r} is at work on another prompt: cancel it, or wait"
            )
        opened, turn = session.turn, PromptTurn()
        session.turn = turn
        try:
            await session.leave_opened(opened)
            with _errors_for_editor():
                return acp.PromptResponse(stop_reason=await self._work_on_prompt(session, turn, prompt))
        except ConnectionError:  # the editor is gone; the question stays open
            return acp.PromptResponse(stop_reason="cancelled")
        finally:
            session.turn = None

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop at the next clean point, without waiting for an answer."""
        if (session := self._sessions.get(session_id)) and session.turn:
            session.turn.stop()

    def _start_asking(self, session: EditorSession, *, replayed: bool) -> None:
        """Start to show a session's question, after the editor has got the reply that it is open."""
        session.turn = PromptTurn(prompted=False, shown=True)
        session.opening = asyncio.create_task(self._ask_when_opened(session, session.turn, replayed))

    async def _ask_when_opened(self, session: EditorSession, turn: PromptTurn, replayed: bool) -> None:
        """Ask an opened session's question and work on the answer; say how to continue if the run was stopped.

        An editor that still shows the conversation gets only the text of the question: it may be about to prompt.
        """
        try:
            run = await session.agent.get(session.id)
            if run.takes_answer and replayed:
                await self._carry_on(session, turn, run)
            elif run.takes_answer:
                session.shown_question = run.pending[0]["id"]
                await self._say(session.id, run.pending[0]["text"])
            elif run.status == "running":
                await self._say(session.id, STOPPED)
        except UnknownThread:
            pass
        except DoneWhenError as error:
            await self._say(session.id, f"\n\n{error}")
        except ConnectionError:  # the editor is gone; the question stays open
            pass
        finally:
            session.turn = None if session.turn is turn else session.turn

    async def _work_on_prompt(self, session: EditorSession, turn: PromptTurn, prompt: Any) -> Any:
        """Work on a prompt; return why the turn ended."""
        if session.servers:
            for problem in session.servers.missing:
                await self._say(session.id, f"{problem}\n\n")
            session.servers.missing.clear()
        return await self._carry_on(session, turn, await self._start_work(session, prompt))

    async def _carry_on(self, session: EditorSession, turn: PromptTurn, work: RunStream | Run) -> Any:
        """Follow a run and ask its questions, until it ends or the next prompt has to be the answer."""
        run: Run | None = None
        unclear, session.rejected_plan = 0, ""
        while not turn.cancelled:
            run = work if isinstance(work, Run) else await self._follow(work, session, turn)
            if run is None or not run.takes_answer:
                break
            pause = run.pending[0]
            if turn.cancelled and session.answered_question == pause["id"]:  # the next prompt sends its answer
                break
            session.shown_question, session.answered_question = pause["id"], ""
            unclear = unclear + 1 if pause.get("problem") else 0
            if unclear > MOST_UNCLEAR:  # the next prompt is the answer
                await self._say(session.id, f"\n\n{pause['text']}")
                break
            answer = await self._ask_person(pause, session, turn)
            if answer is None:
                break
            turn.shown, session.answered_question, session.last_answer = False, pause["id"], answer
            work = session.agent.stream_resume(run, answer, settings=session.settings())
        stopped = turn.cancelled or (run is not None and run.status == "running")
        return "cancelled" if stopped else "end_turn"

    async def _follow(self, stream: RunStream, session: EditorSession, turn: PromptTurn) -> Run | None:
        """Show a run until it ends or waits; return it."""
        turn.stream, turn.answer = stream, ""
        try:
            async for event in stream:
                await self._show(event, session, turn)
                if turn.cancelled:  # perhaps before the run had started
                    stream.drain()
        finally:
            turn.stream = None
        await self._close_calls(session, stream.run)
        return stream.run

    async def _close_calls(self, session: EditorSession, run: Run | None) -> None:
        """Show calls without a result as pending, or as failed if the run has ended."""
        session.paused_calls |= dict(session.calls.values())
        unfinished = [shown for shown, _ in session.calls.values()]
        session.calls.clear()
        status: Any = "pending"
        if run and not run.pending and run.status != "running":
            status, unfinished = "failed", [*session.paused_calls, *session.cards.values()]
            session.paused_calls, session.cards = {}, {}
        for id in unfinished:
            await self._editor.session_update(session.id, acp.update_tool_call(id, status=status))

    async def _start_work(self, session: EditorSession, prompt: Any) -> RunStream | Run:
        """Return the stream of the run that works on a prompt, or a run whose question has to be asked again."""
        agent, id, settings = session.agent, session.id, session.settings()
        blocks = [goal_block(block, session.folder) for block in prompt]
        text = "\n\n".join(block["text"] for block in blocks if block["type"] == "text")
        has_media = any(block["type"] != "text" for block in blocks)
        try:
            run = await agent.get(id)
        except UnknownThread:
            run = None
        if run and not run.takes_answer and session.shown_question != session.answered_question:
            session.answered_question = session.shown_question
            await self._say(id, f"{ANSWERED}{STOPPED if run.status == 'running' else run.answer}")
            return run
        if run and (run.pending or run.status == "running"):
            if has_media:
                await self._say(id, ONLY_WORDS)
            if run.status == "running":
                return agent.stream_resume(id, steer=text, settings=settings)
            return await self._take_answer(session, run, text)
        goal: Any = blocks if has_media else text
        return agent.stream(goal, thread_id=id, settings=settings, metadata=self._metadata(session.folder))

    async def _take_answer(self, session: EditorSession, run: Run, text: str) -> RunStream | Run:
        """Return the stream that answers the open question, or the run if another question was shown than is open."""
        pause = run.pending[0]
        if session.shown_question not in ("", pause["id"]):
            await self._say(session.id, ANSWERED)
            return run
        if only_says_continue(text, pause):
            if session.answered_question != pause["id"]:
                return run
        else:
            session.last_answer = read_change(text) if session.rejected_plan == pause["id"] else text
        session.shown_question = session.answered_question = pause["id"]
        return session.agent.stream_resume(run, session.last_answer, settings=session.settings())

    # --- what the editor shows

    async def _show(self, event: Any, session: EditorSession, turn: PromptTurn) -> None:
        id, kind, call = session.id, event["type"], f"{event['turn']}.{event.get('id')}"
        if kind == "todos":
            await self._show_plan(event["todos"], id)
        elif kind == "speech" and (event.get("answer") or not event.get("argument")):
            turn.answer += event["text"] if event.get("answer") else ""
            await self._say(id, event["text"])
        elif kind == "speech_restarted" and event.get("argument") in (None, "answer.text"):
            turn.answer = ""
            await self._say(id, "\n\n")
        elif kind == "heard":
            await self._editor.session_update(id, acp.update_user_message_text(event["text"]))
        elif kind == "thinking":
            await self._editor.session_update(id, acp.update_agent_thought_text(event["text"]))
        elif kind == "tool_started":
            await self._show_call(event, session, call)
        elif kind == "observation":
            await self._show_result(event, session, call)
        elif kind == "step_finished" and (card := session.cards.pop(event["step"], "")):
            status: Any = "completed" if event["status"] == "done" else "failed"
            await self._editor.session_update(id, acp.update_tool_call(card, status=status))
        elif kind in ("outcome", "error") and event.get("code") != "interrupted":
            text = event["text"]
            await self._say(id, text[len(turn.answer) :] if text.startswith(turn.answer) else f"\n\n{text}")

    async def _show_call(self, event: Any, session: EditorSession, call: str) -> None:
        """Show that a call starts, or continues after its question."""
        paused = session.paused_calls.items()
        same = [shown for shown, each in paused if all(each[key] == event[key] for key in CALL_KEYS)]
        shown = same[0] if same else call
        session.calls[call] = shown, event
        session.decided_calls.discard((event["step"], event["tool"]))
        session.paused_calls.pop(shown, None)
        if same:
            update: Any = acp.update_tool_call(shown, status="in_progress")
        else:
            about: Any = {"kind": kind_of(event, session.agent), "locations": locations(event, session.folder)}
            about |= {"content": list(edits(event, session.folder)), "raw_input": event["arguments"]}
            update = acp.start_tool_call(call, title(event), status="in_progress", **about)
        await self._editor.session_update(session.id, update)

    async def _show_result(self, event: Any, session: EditorSession, call: str) -> None:
        """Show what came of a call; one that was refused has not begun, so this is the first of it that is shown."""
        started, said = session.calls.pop(call, None), [acp.tool_content(acp.text_block(event["text"]))]
        status: Any = "completed" if event["ok"] else "failed"
        if started:
            content = [*edits(started[1], session.folder), *said]
            update: Any = acp.update_tool_call(started[0], status=status, content=content)
            await self._editor.session_update(session.id, update)
        elif event.get("made") is False and (event["step"], event["tool"]) not in session.decided_calls:
            await self._editor.session_update(
                session.id, acp.start_tool_call(call, event["tool"], status=status, content=said)
            )
        session.decided_calls.discard((event["step"], event["tool"]))

    async def _say(self, id: str, text: str) -> None:
        if text:
            await self._editor.session_update(id, acp.update_agent_message_text(text))

    async def _show_plan(self, todos: Sequence[Any], id: str) -> None:
        rows = [acp.plan_entry(row["content"], status=row["status"]) for row in todos]
        if rows:
            await self._editor.session_update(id, acp.update_plan(rows))

    # --- questions to a person

    async def _ask_person(self, pause: Any, session: EditorSession, turn: PromptTurn) -> Any:
        """Ask a pause's question and return the answer; None if the next prompt is the answer."""
        if pause["kind"] == "plan" and not turn.shown:
            await self._say(session.id, pause["text"])
        if load_pause(pause).approves:
            return await self._ask_permission(pause, session, turn)
        if self._forms and (form := answer_form(pause)):
            return await self._ask_form(pause, session, turn, form)
        if not turn.shown:
            await self._say(session.id, f"\n\n{pause['text']}")
        if pause.get("schema") or not load_pause(pause).choices():
            return None
        return chosen_answer(pause, await self._choose(pause, session, turn))

    async def _ask_permission(self, pause: Any, session: EditorSession, turn: PromptTurn) -> Any:
        """Ask for permission and return the decision; only the options that approve count as approval."""
        chosen = await self._choose(pause, session, turn)
        if chosen == "auto":
            session.mode = chosen
            await self._editor.session_update(session.id, update_current_mode(chosen))
        if chosen in ("approve", "auto"):
            return {"type": "approve"}
        if chosen == "reject" and pause["kind"] == "tool":
            return {"type": "reject"}
        if chosen == "reject":
            return await self._ask_change(pause, session, turn)
        if pause["kind"] == "tool" and not turn.shown and not turn.cancelled:
            await self._say(session.id, f"\n\n{pause['text']}")
        return None

    async def _ask_change(self, pause: Any, session: EditorSession, turn: PromptTurn) -> Any:
        """Ask what should be different in a plan and return the answer; None if the next prompt is the answer."""
        question = change_question(pause)
        if self._forms:
            reply = await self._request_form(session, turn, question, TEXT_FORM)
            if reply and reply.action == "accept" and (words := answer_in(reply.content)):
                return read_change(words)
        if not turn.cancelled:
            await self._say(session.id, f"\n\n{question}")
        session.rejected_plan = pause["id"]
        return None

    async def _ask_form(self, pause: Any, session: EditorSession, turn: PromptTurn, form: ElicitationSchema) -> Any:
        """Ask with a form and return the answer; None if it was cancelled and the next prompt is the answer."""
        reply = await self._request_form(session, turn, pause["text"], form)
        if reply and reply.action == "accept" and pause.get("schema"):
            return dict(reply.content or {})
        if reply and reply.action == "accept" and (words := answer_in(reply.content)):
            return words
        if reply and reply.action == "decline" and pause.get("schema"):
            return {"type": "ignore"}
        if not turn.shown and not turn.cancelled:
            await self._say(session.id, f"\n\n{pause['text']}")
        return None

    async def _choose(self, pause: Any, session: EditorSession, turn: PromptTurn) -> str:
        """Ask with options and return the id of the chosen one; "" if none was chosen."""
        offered = permission_options(pause, opened=turn.shown)
        call = permission_call(pause, session.agent, session.folder, opened=turn.shown)
        reply = await self._request(turn, self._editor.request_permission(session.id, call, offered))
        chosen = reply.outcome.option_id if reply and reply.outcome.outcome == "selected" else ""
        if chosen not in [option.option_id for option in offered]:
            chosen = ""
        if chosen:
            session.decided_calls.add((pause.get("step"), pause.get("tool")))
        status: Any = "failed" if chosen in ("", "reject") else "completed"
        await self._editor.session_update(session.id, acp.update_tool_call(call.tool_call_id, status=status))
        return chosen

    async def _request_form(
        self, session: EditorSession, turn: PromptTurn, question: str, form: ElicitationSchema
    ) -> Any:
        """Send a form to the editor and return the reply; None if there is none."""
        mode = ElicitationFormSessionMode(session_id=session.id, requested_schema=form)
        return await self._request(turn, self._editor.create_elicitation(question, mode))

    async def _request(self, turn: PromptTurn, request: Awaitable[Any]) -> Any:
        """Return the editor's reply; None if it cannot do that, its reply is invalid, or Stop was pressed."""
        turn.question = asyncio.ensure_future(request)
        try:
            return await turn.question
        except (RequestError, ValidationError):
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not turn.cancelled or (task and task.cancelling()):
                raise
            return None
        finally:
            turn.question = None


async def serve(
    make: Callable[[str], Awaitable[Agent]], metadata: Callable[[str], Json] = lambda folder: {"dir": folder}
) -> None:
    """Serve on stdin and stdout until the editor closes them. `make` returns a new agent for a folder.

    Raises ConfigError if one of them is no pipe, socket or terminal.
    """
    _check_pipes()
    server: Any = AcpAgent(make, metadata)  # methods that it lacks are refused by the library
    try:
        reader, writer = await acp.stdio_streams(READ_AHEAD)
        await acp.run_agent(server, EditorLines(reader, writer), use_unstable_protocol=True)
    finally:
        await server.aclose()


def _check_pipes() -> None:
    """Raise ConfigError unless stdin and stdout are pipes, sockets or terminals: a loop cannot wait for files."""
    for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout)):
        mode = os.fstat(stream.fileno()).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stream.isatty()):
            raise ConfigError(
                f"{name} is neither a pipe nor a terminal: an editor starts an ACP server and talks to it over pipes"
            )


@contextmanager
def _errors_for_editor() -> Iterator[None]:
    """Raise DoneWhen's errors as errors that the editor shows."""
    try:
        yield
    except DoneWhenError as error:
        raise RequestError(INVALID_PARAMS if isinstance(error, GoalError) else INTERNAL_ERROR, str(error)) from error


async def _store_unprompted(session: EditorSession) -> None:
    """Store a session without a prompt, so that it can be loaded after a restart; delete the oldest ones."""
    async with session.agent.storage.writer() as (_, store):
        row = {"dir": session.folder, "at": store.threads.now()}
        await store.aput((*UNPROMPTED, store_label(session.id)), session.id, row, index=False)
        items = sorted(await read_all(store, UNPROMPTED), key=lambda item: str(item.value["at"]), reverse=True)
        for item in items[MOST_UNPROMPTED:]:
            await store.adelete((*UNPROMPTED, store_label(item.key)), item.key)


async def _read_unprompted(agent: Agent) -> list[SessionInfo]:
    """Return the stored sessions without a prompt; some may have become threads since."""
    async with agent.storage.reader() as (_, store):
        items = await read_all(store, UNPROMPTED)
    return [SessionInfo(session_id=item.key, cwd=item.value["dir"], updated_at=item.value["at"]) for item in items]


def _session_info(info: ThreadInfo) -> SessionInfo:
    title = " ".join(info.goal.split())[:TITLE]
    return SessionInfo(session_id=info.thread_id, cwd=info.metadata["dir"], title=title, updated_at=info.updated)


def _check_folder(folder: str) -> None:
    if not os.path.isabs(folder) or not os.path.isdir(folder):
        raise RequestError(INVALID_PARAMS, f"cwd is {folder!r}; it must be the absolute path of a folder")


def _mode_state(session: EditorSession) -> SessionModeState:
    rows = [SessionMode(id=id, name=name, description=about) for id, (name, about) in MODES.items()]
    return SessionModeState(current_mode_id=session.mode, available_modes=rows)


def _server_config(server: Any, folder: str) -> Json:
    """Return the editor's MCP server as an entry of `mcpServers`."""
    if hasattr(server, "command"):
        environment = {each.name: each.value for each in server.env or ()}
        return {"command": server.command, "args": list(server.args or ()), "env": environment, "cwd": folder}
    if not hasattr(server, "url"):
        raise RequestError(INVALID_PARAMS, f"the MCP server {server.name!r} is neither a program nor at a url")
    headers = {each.name: each.value for each in server.headers or ()}
    return {"url": server.url, "headers": headers, "type": server.type}
