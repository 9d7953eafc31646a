"""A room: an agent as an MCP server, for hosts that call tools. Needs the extra `mcp`.

A run that needs a person returns its question with a handle, and `resume` takes the answer; the command, the page
and other clients see the same thread. Without this room, `donewhen mcp` and `mcp_server` of `donewhen.servers` go.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from donewhen import ConfigError, DoneWhenError, Run, ThreadWaiting
from donewhen.clients import installed_version
from donewhen.types import RunStream

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context, MCPServer

    from donewhen import Agent

INSTRUCTIONS = (
    "Gives work to an agent that plans it, works on it with its own tools and proves each step. `run` starts; where "
    "the status is `waiting`, show `question` to the user and call `resume` with `thread_id`, `question_id` and their "
    "answer. Never answer for the user."
)


def describe_run(run: Run) -> dict[str, Any]:
    """Return a run for a host: its answer, or its question and the handle to answer it, which a run at work refuses."""
    row: dict[str, Any] = {"thread_id": run.thread_id, "status": run.status}
    if run.takes_answer:
        pause = run.pending[0]
        row |= {"question_id": pause["id"], "kind": pause["kind"], "question": pause["text"]}
        row |= {"options": list(pause.get("options") or ()), "problem": run.problem}
        return {**row, "next": "show the question to the user, then call resume with thread_id, question_id and answer"}
    return {**row, "answer": run.answer}


def mcp_server(agent: "Agent") -> "MCPServer[Any]":
    """Return the tools `run`, `resume` and `show` over this agent. Raises ConfigError without the extra `mcp`."""
    try:
        from mcp.server.mcpserver import Context, MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise ConfigError(f"an MCP server needs {error.name}: pip install 'donewhen[mcp]'") from None

    server: MCPServer[Any] = MCPServer(
        "donewhen", version=installed_version(), instructions=INSTRUCTIONS, log_level="WARNING"
    )
    reads, works = ToolAnnotations(read_only_hint=True), ToolAnnotations(read_only_hint=False, open_world_hint=True)

    async def run(goal: str, context: Context[Any, Any], thread_id: str = "") -> dict[str, Any]:
        """Start on a goal, or with `thread_id` on another request of that conversation; ends when it ends or asks."""
        with _errors_for_host():
            return await _work(agent.stream(goal, thread_id=thread_id or None), context)

    async def resume(thread_id: str, answer: str, context: Context[Any, Any], question_id: str = "") -> dict[str, Any]:
        """Give the user's answer to what a run asks: “approve”, an option, or any text; it goes on from there."""
        with _errors_for_host():
            return await _work(agent.stream_resume(thread_id, answer, question=question_id or None), context)

    async def show(thread_id: str) -> dict[str, Any]:
        """Return the state of a run: its answer, or its question."""
        with _errors_for_host():
            return describe_run(await agent.get(thread_id))

    server.add_tool(run, annotations=works)
    server.add_tool(resume, annotations=works)
    server.add_tool(show, annotations=reads)
    return server


async def _work(stream: RunStream, context: "Context[Any, Any]") -> dict[str, Any]:
    """Return the run once it ends or asks; report its steps as progress."""
    async for event in stream:
        if event["type"] == "todos":
            done = sum(row["status"] == "completed" for row in event["todos"])
            now = next((row["content"] for row in event["todos"] if row["status"] == "in_progress"), "")
            await context.report_progress(done, len(event["todos"]), now)
    if stream.run is None:
        raise stream.error or DoneWhenError("the run was cut off; resume it")
    return describe_run(stream.run)


@contextmanager
def _errors_for_host() -> Iterator[None]:
    """Raise DoneWhen's errors as errors that the host shows; others stay internal."""
    from mcp.server.mcpserver.exceptions import ToolError

    try:
        yield
    except ThreadWaiting as error:
        hint = "`show` says what it does, `resume` answers what it asks, and `run` without thread_id begins another one"
        raise ToolError(f"the last request of this thread has not ended: {hint}") from error
    except DoneWhenError as error:
        raise ToolError(str(error)) from error
