"""An agent in an editor (Zed, JetBrains …) over the Agent Client Protocol. Needs the extra `acp`.

The editor shows the plan, each call with its arguments, its result and what it changes in
files, and gives permission in its own way. A question is a form in editors that have forms; in the others it ends the
turn, and what is typed next is the answer. Stop stops at a clean point; “continue” goes on.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import acp
from acp.schema import (
    ElicitationFormSessionMode,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)

from donewhen.agent.agent import Agent
from donewhen.agent.stream import RunStream
from donewhen.state.errors import UnknownThread
from donewhen.state.people.payload import message_text, question_of

WHAT_INSTEAD = "What should be different?"


@dataclass
class Session:
    """A conversation of the editor: a thread of an agent that works in one folder."""

    agent: Agent
    folder: str
    stream: RunStream | None = None
    answer: str = ""
    """What was shown of the answer as it was written."""
    rejects: bool = False
    """Whether what is typed next says what should be different in the plan."""
    calls: dict[str, Any] = field(default_factory=dict)
    """Calls at work, as `tool_started` tells of them."""


class AcpAgent(acp.Agent):
    """An ACP server; `make` opens the agent for a folder."""

    _editor: acp.Client

    def __init__(self, make: Callable[[str], Awaitable[Agent]]) -> None:
        self._make = make
        self._sessions: dict[str, Session] = {}
        self._forms = False

    def on_connect(self, conn: acp.Client) -> None:
        """Remember the editor."""
        self._editor = conn

    async def initialize(self, protocol_version: int, client_capabilities: Any = None, *_: Any, **__: Any) -> Any:
        """Say what can be done; remember whether the editor has forms."""
        offered = client_capabilities and client_capabilities.elicitation
        self._forms = bool(offered and offered.form is not None)
        return acp.InitializeResponse(protocol_version=acp.PROTOCOL_VERSION)

    async def new_session(self, cwd: str, *_: Any, **__: Any) -> Any:
        """Begin a conversation in this folder."""
        id = uuid4().hex
        self._sessions[id] = Session(await self._make(cwd), cwd)
        return acp.NewSessionResponse(session_id=id)

    async def prompt(self, session_id: str, prompt: Any, **_: Any) -> Any:
        """Take a request, an answer, or, after Stop, how to go on; work to the end or the next question."""
        session = self._sessions[session_id]
        text = "\n\n".join(block.text for block in prompt if block.type == "text")
        given: Any = await self._begin(session, session_id, text)
        session.rejects = False
        while given is not None:
            session.stream, session.answer = given, ""
            async for event in given:
                await self._show(event, session, session_id)
            run = given.run
            answer = await self._answer(run.pending[0], session, session_id) if run and run.pending else None
            given = session.agent.stream_resume(run, answer) if answer is not None else None
        stopped = run is not None and run.status == "running"
        return acp.PromptResponse(stop_reason="cancelled" if stopped else "end_turn")

    async def cancel(self, session_id: str, **_: Any) -> None:
        """Stop at the next clean point."""
        if stream := self._sessions[session_id].stream:
            stream.drain()

    async def _begin(self, session: Session, id: str, text: str) -> RunStream:
        try:
            run = await session.agent.get(id)
        except UnknownThread:
            return session.agent.stream(text, thread_id=id)
        if run.status == "running":
            return session.agent.stream_resume(id, steer=text)
        if not run.pending:
            return session.agent.stream(text, thread_id=id)
        return session.agent.stream_resume(run, {"type": "reject", "message": text} if session.rejects else text)

    # --- what the editor is shown

    async def _show(self, event: Any, session: Session, id: str) -> None:
        kind, call = event["type"], f"{event['turn']}.{event.get('id')}"
        if kind == "todos":
            rows = [acp.plan_entry(row["content"], status=row["status"]) for row in event["todos"]]
            await self._editor.session_update(id, acp.update_plan(rows))
        elif kind == "speech" and (event.get("answer") or not event.get("argument")):
            session.answer += event["text"] if event.get("answer") else ""
            await self._say(id, event["text"])
        elif kind == "speech_restarted" and event.get("argument") in (None, "answer.text"):
            session.answer = ""
            await self._say(id, "\n\n")
        elif kind == "tool_started":
            session.calls[call] = event
            shown = {"content": list(edits(event, session.folder)), "raw_input": event["arguments"]}
            start = acp.start_tool_call(call, title(event), kind=kind_of(event), status="in_progress", **shown)
            await self._editor.session_update(id, start)
        elif kind == "observation" and (started := session.calls.pop(call, None)):
            content = [*edits(started, session.folder), acp.tool_content(acp.text_block(event["text"]))]
            status: Any = "completed" if event["ok"] else "failed"
            await self._editor.session_update(id, acp.update_tool_call(call, status=status, content=content))
        elif kind in ("outcome", "error") and event.get("code") != "interrupted":
            text = event["text"]
            await self._say(id, text[len(session.answer) :] if text.startswith(session.answer) else f"\n\n{text}")

    async def _say(self, id: str, text: str) -> None:
        await self._editor.session_update(id, acp.update_agent_message_text(text))

    # --- what a person is asked

    async def _answer(self, pause: Any, session: Session, id: str) -> Any:
        """Return the answer to a pause; None where it is typed as the next prompt."""
        if pause["kind"] not in ("plan", "tool"):
            return await self._typed(id, message_text(pause))
        if pause["kind"] == "plan":
            await self._say(id, message_text(pause))
        call = ToolCallUpdate(
            tool_call_id=pause["tool_call_id"],
            title=question_of(pause),
            kind=kind_of(pause),
            content=list(edits(pause, session.folder)),
            raw_input=pause.get("arguments"),
        )
        options = [
            PermissionOption(option_id="approve", name="Approve", kind="allow_once"),
            PermissionOption(option_id="reject", name="Reject", kind="reject_once"),
        ]
        reply = await self._editor.request_permission(id, call, options)
        if reply.outcome.outcome != "selected":
            return None
        if reply.outcome.option_id == "reject" and pause["kind"] == "plan":
            why = await self._typed(id, WHAT_INSTEAD)
            session.rejects = why is None
            return {"type": "reject", "message": why} if why else None
        return {"type": reply.outcome.option_id}

    async def _typed(self, id: str, question: str) -> str | None:
        """Return the answer of a form; without forms say the question, and the next prompt is the answer."""
        if self._forms:
            form = ElicitationSchema(
                type="object",
                properties={"answer": ElicitationStringPropertySchema(type="string", title="Answer")},
                required=["answer"],
            )
            mode = ElicitationFormSessionMode(session_id=id, requested_schema=form)
            reply = await self._editor.create_elicitation(question, mode)
            if reply.action == "accept":
                return str((reply.content or {}).get("answer") or "") or None
        await self._say(id, f"\n\n{question}")
        return None


async def serve(make: Callable[[str], Awaitable[Agent]]) -> None:
    """Serve on stdin and stdout until the editor closes them."""
    server: type[Any] = AcpAgent  # it leaves out what editors need not have
    await acp.run_agent(server(make), use_unstable_protocol=True)


def title(call: Any) -> str:
    """Return a call in a few words."""
    about = call["arguments"].get("path") or next(iter(call["arguments"].values()), "")
    return f"{call['tool']} {' '.join(str(about).split())[:60]}".strip()


def kind_of(call: Any) -> Any:
    """Return the kind that the editor draws it as."""
    return "edit" if any(edits(call, "")) else "other"


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
