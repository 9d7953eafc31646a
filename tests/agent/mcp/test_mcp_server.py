"""An agent as an MCP server, driven by MCP's own client: over stdio as hosts start it, and in memory."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from donewhen import Agent
from donewhen.servers import mcp_server
from donewhen.testing import ScriptedModel, ask_user, finish_step, submit_plan
from tests.kit.painting import Painting


def model() -> ScriptedModel:
    """A plan to approve, a question to answer, an answer."""
    asked = [ask_user("Which colour?", ["red", "green"]), finish_step("It is green.", "s1.1")]
    return ScriptedModel(roles={"triage": [submit_plan(["ask"], title="Colours")], "execute": {"s1": asked}})


async def called(session: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool gives, as structured content."""
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content or {})


async def test_a_run_that_needs_a_person_returns_a_handle() -> None:
    """U10: the plan, the question and the way to answer; `resume` goes on, `show` tells how it stands."""
    progress: list[tuple[float, float | None]] = []

    async def on_progress(done: float, total: float | None, _: str | None) -> None:
        progress.append((done, total))

    async with Agent(model(), storage="memory:") as agent, Client(mcp_server(agent)) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) == {"run", "resume", "show"}
        assert set(tools["run"].input_schema["properties"]) == {"goal", "thread_id"}
        first = await called(session, "run", goal="Ask for the colour")
        assert (first["status"], first["kind"]) == ("waiting", "plan")
        assert first["question"].startswith("# Colours")
        handle = {key: first[key] for key in ("thread_id", "question_id")}
        other = await session.call_tool("run", {"goal": "Ask for the size", "thread_id": first["thread_id"]})
        assert other.is_error
        said = other.content[0].text  # type: ignore[union-attr]
        assert ("`resume` answers what it asks" in said, "restart" in said) == (True, False)
        second = await called(session, "resume", **handle, answer="approve")
        assert second["question"] == "Which colour?\n\n1. red\n2. green"
        stale = await session.call_tool("resume", {**handle, "answer": "approve"})
        assert stale.is_error
        assert f"decided on {first['question_id']}: approve" in stale.content[0].text  # type: ignore[union-attr]
        unknown = await session.call_tool("resume", {**handle, "question_id": "q7", "answer": "2"})
        assert unknown.is_error
        arguments = {"thread_id": first["thread_id"], "question_id": second["question_id"], "answer": "2"}
        result = await session.call_tool("resume", arguments, progress_callback=on_progress)
        assert result.structured_content == {
            "thread_id": first["thread_id"],
            "status": "answered",
            "answer": "It is green.",
        }
        assert progress[-1] == (2.0, 2.0)
        assert await called(session, "show", thread_id=first["thread_id"]) == result.structured_content


async def test_what_cannot_be_carried_out_is_said_in_its_own_words() -> None:
    """P19: a goal that is empty, and a thread that is not there."""
    async with Agent(ScriptedModel([]), storage="memory:") as agent, Client(mcp_server(agent)) as session:
        for name, arguments, said in (
            ("run", {"goal": " "}, "The goal is empty"),
            ("run", {"goal": "Go on", "thread_id": "x" * 300}, "255 are allowed"),
            ("resume", {"thread_id": "none", "answer": "approve"}, "there is no thread 'none'"),
            ("show", {"thread_id": "none"}, "there is no thread 'none'"),
        ):
            result = await session.call_tool(name, arguments)
            assert result.is_error
            assert said in result.content[0].text  # type: ignore[union-attr]


async def test_the_command_is_a_server_on_stdio(tmp_path: Path) -> None:
    """U10, N41: `donewhen mcp` speaks the protocol on stdout and nothing else; what a run tells is no line of a log."""
    (tmp_path / "a.txt").write_text("one\n")
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    start = "from donewhen.agent.cli import main; main()"
    arguments = ["-c", start, "mcp", "--dir", str(tmp_path), "--model", "demo", "--storage", storage]
    command = StdioServerParameters(command=sys.executable, args=arguments, env={"HOME": str(tmp_path)})
    said = tmp_path / "stderr.txt"
    with said.open("w") as errors:
        async with Client(stdio_client(command, errlog=errors)) as session:
            told = await called(session, "run", goal="count the files")
            assert told["thread_id"]
            assert told["status"] in ("waiting", "completed", "answered")
    assert said.read_text() == ""


async def test_a_question_is_shown_while_resume_takes_its_answer() -> None:
    """U10: not while the run works on the answer to another one, but while that is queued."""
    painting = Painting()
    async with painting.agent("memory:") as agent, Client(mcp_server(agent)) as session:
        await agent.start("hang the picture", thread_id="t")
        await agent.submit_answer("t", "blue")
        queued = await called(session, "show", thread_id="t")
        assert (queued["status"], queued["question"]) == ("queued", "Which wood?")
        leg = asyncio.create_task(agent.run_submitted("t"))
        await painting.begun.wait()
        assert await called(session, "show", thread_id="t") == {"thread_id": "t", "status": "running", "answer": ""}
        painting.go_on.set()
        asked = await leg
        handle = {"thread_id": "t", "question_id": asked.pending[0]["id"]}
        assert (await called(session, "resume", **handle, answer="oak"))["status"] == "answered"
