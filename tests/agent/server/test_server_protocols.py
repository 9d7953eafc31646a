"""What LangGraph's server makes of our graph besides its own API: A2A and MCP, driven by the protocols' own clients."""

from uuid import uuid4

import httpx
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import new_text_part
from a2a.types import CancelTaskRequest, GetTaskRequest, Message, Role, SendMessageRequest, Task, TaskState
from langgraph_sdk import get_client
from mcp import Client as McpClient


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
