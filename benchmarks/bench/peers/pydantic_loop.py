"""pydantic-ai with its FunctionModel; it stores nothing by itself."""

from typing import Any

from common import GOAL, Prompts, look, main, put, rounds
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits


def work_rounds(n: int, tool: str, file: str | None, prompts: Prompts | None = None) -> None:
    left = [n]

    def reply(messages: Any, info: Any) -> ModelResponse:
        left[0] -= 1
        if prompts:
            prompts.sent(ModelMessagesTypeAdapter.dump_python(messages, mode="json"))
        if not left[0]:
            return ModelResponse(parts=[TextPart("The value is 12345.")])
        return ModelResponse(parts=[ToolCallPart(tool, {"what": f"item {left[0]}"}, f"c{left[0]}")])

    agent = Agent(FunctionModel(reply), tools=[look, put])
    agent.run_sync(GOAL, usage_limits=UsageLimits(request_limit=None))


if __name__ == "__main__":
    main(rounds(work_rounds, stores=False))
