"""A form filled in from a chat: a host calls the agent over MCP, and passes on what it asks. Needs the extra `mcp`.

Hosts start `donewhen mcp --dir FOLDER` and speak with it on stdin and stdout; here both ends are in one process.
"""

import asyncio
from typing import Any

from mcp import Client

from donewhen import Agent
from donewhen.servers import mcp_server
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan

FORM: dict[str, str] = {}


def fill_in(field: str, value: str) -> str:
    """Fill in a field of the form."""
    FORM[field] = value
    return f"{field} = {value}"


def model() -> ScriptedModel:
    """Ask for what the goal does not say, then fill the form in."""
    step = {"content": "Fill in the name Mira, and the size", "done_when": "Both are filled in", "tools": ["fill_in"]}
    plan = submit_plan([step])
    work = [
        ask_user("Which size?", ["S", "M", "L"]),
        [call("fill_in", field="name", value="Mira"), call("fill_in", field="size", value="M")],
        finish_step("The form has name Mira and size M.", ("s1.3", "size = M")),
    ]
    return ScriptedModel(roles={"triage": [plan], "execute": work})


async def main() -> None:
    """Play the host: call `run`, answer what is asked with `resume`."""
    answers = ["approve", "M"]
    async with (
        Agent(model(), [fill_in], effects={"fill_in": "idempotent"}, storage="memory:") as agent,
        Client(mcp_server(agent)) as host,
    ):
        told = await tool(host, "run", goal="Order a shirt for Mira")
        while told["status"] == "waiting":
            answer = answers.pop(0)
            print(f"{told['question'].splitlines()[0]} → {answer}")
            handle = {key: told[key] for key in ("thread_id", "question_id")}
            told = await tool(host, "resume", **handle, answer=answer)
        print(f"{told['status']}: {told['answer']}", FORM)


async def tool(host: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool of the agent, and return what it gives."""
    result = await host.call_tool(name, arguments)
    return dict(result.structured_content)


if __name__ == "__main__":
    asyncio.run(main())
