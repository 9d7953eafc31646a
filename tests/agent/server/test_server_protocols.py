"""What LangGraph's server makes of our graph besides its own API: A2A and MCP, driven by the protocols' own clients."""

from typing import Any
from uuid import uuid4

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, new_text_part
from a2a.types import CancelTaskRequest, GetTaskRequest, Message, Role, SendMessageRequest, Task, TaskState
from google.protobuf.json_format import MessageToDict
from langgraph_sdk import get_client
from mcp import Client as McpClient


async def test_a_run_over_a2a(server: str) -> None:
    """U10: over A2A a pause is input-required; plain texts approve the plan and answer the question; it completes."""
    async with get_client(url=server) as langgraph:
        assistant = (await langgraph.assistants.search())[0]["assistant_id"]
    async with httpx.AsyncClient(timeout=60) as http:
        card = f"/.well-known/agent-card.json?assistant_id={assistant}"
        config = ClientConfig(streaming=False, httpx_client=http)
        client = await create_client(server, config, relative_card_path=card)
        task: Any = None
        for text, state in (
            ("look around", TaskState.TASK_STATE_INPUT_REQUIRED),
            ("approve", TaskState.TASK_STATE_INPUT_REQUIRED),
            ("green", TaskState.TASK_STATE_COMPLETED),
        ):
            place = {"context_id": task.context_id, "task_id": task.id} if task else {}
            message = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=[new_text_part(text)], **place)
            async for event in client.send_message(SendMessageRequest(message=message)):
                if event.HasField("task"):
                    task = event.task
            assert task.status.state == state, text
            if text == "look around":
                asked = str([MessageToDict(artifact) for artifact in task.artifacts])
                assert "confirm_plan" in asked
                assert "Look around" in asked
    assert "There is one file, and the colour is green." in [get_artifact_text(each) for each in task.artifacts]


async def test_a_task_is_cancelled_over_a2a(server: str) -> None:
    """M5, U10: a task that waits for its plan is cancelled, and another one is worked on."""
    async with get_client(url=server) as langgraph:
        assistant = (await langgraph.assistants.search())[0]["assistant_id"]
    async with httpx.AsyncClient(timeout=60) as http:
        card = f"/.well-known/agent-card.json?assistant_id={assistant}"
        config = ClientConfig(streaming=False, httpx_client=http)
        client = await create_client(server, config, relative_card_path=card)
        asked = await sent(client, "look around")
        assert asked.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        gone = await client.cancel_task(CancelTaskRequest(id=asked.id))
        assert gone.status.state == TaskState.TASK_STATE_CANCELED
        found = await client.get_task(GetTaskRequest(id=asked.id))
        assert found.status.state == TaskState.TASK_STATE_CANCELED
        again = await sent(client, "hello")
        assert again.status.state == TaskState.TASK_STATE_COMPLETED


async def sent(client: Client, text: str, **place: str) -> Task:
    """The task that a message starts."""
    message = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=[new_text_part(text)], **place)
    (task,) = [event.task async for event in client.send_message(SendMessageRequest(message=message))]
    return task


async def test_a_question_over_the_servers_mcp(server: str) -> None:
    """U10: the server's own /mcp answers what needs no person; for the rest there is `donewhen mcp`."""
    async with McpClient(f"{server}/mcp") as session:
        (tool,) = (await session.list_tools()).tools
        assert set(tool.input_schema["properties"]) == {"messages"}
        result = await session.call_tool(tool.name, {"messages": "hello"})
        assert "Hello to you." in str(result.content)
