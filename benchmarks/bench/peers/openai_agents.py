"""The OpenAI Agents SDK: its Runner with a model of its own interface; on SQLite its session."""

import asyncio
import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
from common import GOAL, Prompts, look, main, put, rounds
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)
TOOLS = {"look": function_tool(look), "put": function_tool(put)}


class Fake(Model):
    """Calls the tool n - 1 times, and then answers."""

    def __init__(self, n: int, tool: str, prompts: Prompts | None = None) -> None:
        self._left, self._tool, self._prompts = n, tool, prompts

    async def get_response(self, *given: Any, **options: Any) -> ModelResponse:
        self._left -= 1
        if self._prompts:
            self._prompts.sent([given, options.get("system_instructions"), options.get("input")])
        said: Any = ResponseFunctionToolCall(
            arguments=json.dumps({"what": f"item {self._left}"}),
            call_id=f"c{self._left}",
            name=self._tool,
            type="function_call",
        )
        if not self._left:
            text = ResponseOutputText(annotations=[], text="The value is 12345.", type="output_text")
            said = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        usage = Usage(requests=1, input_tokens=100, output_tokens=20, total_tokens=120)
        return ModelResponse(output=[said], usage=usage, response_id=None)

    def stream_response(self, *given: Any, **options: Any) -> Any:
        raise NotImplementedError


def work_rounds(n: int, tool: str, file: str | None, prompts: Prompts | None = None) -> None:
    agent = Agent(name="a", model=Fake(n, tool, prompts), tools=[TOOLS[tool]])
    session = SQLiteSession("t", file) if file else None
    asyncio.run(Runner.run(agent, GOAL, max_turns=n + 1, session=session))
    if session:
        session.close()


if __name__ == "__main__":
    main(rounds(work_rounds))
