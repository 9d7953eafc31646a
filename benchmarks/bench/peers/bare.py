"""A bare loop over the OpenAI client, whose transport answers in this process: no socket, no storage."""

import json
from typing import Any

import httpx
from common import GOAL, USAGE, Prompts, look, main, put, rounds
from openai import OpenAI

TOOLS = {"look": look, "put": put}
SCHEMA = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
OFFERED: Any = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in TOOLS]


def work_rounds(n: int, tool: str, file: str | None, prompts: Prompts | None = None) -> None:
    left = [n]

    def answer(request: httpx.Request) -> httpx.Response:
        left[0] -= 1
        if prompts:
            prompts.sent(json.loads(request.content)["messages"])
        call = {"name": tool, "arguments": json.dumps({"what": f"item {left[0]}"})}
        said: Any = {"role": "assistant", "content": "The value is 12345."}
        if left[0]:
            calls = [{"id": f"c{left[0]}", "type": "function", "function": call}]
            said = {"role": "assistant", "content": None, "tool_calls": calls}
        usage = {"prompt_tokens": USAGE["input_tokens"], "completion_tokens": 20, "total_tokens": 120}
        choice = {"index": 0, "message": said, "finish_reason": "stop"}
        body = {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        return httpx.Response(200, json=body)

    client = OpenAI(api_key="none", http_client=httpx.Client(transport=httpx.MockTransport(answer)))
    messages: list[Any] = [{"role": "user", "content": GOAL}]
    while True:
        message = client.chat.completions.create(model="m", messages=messages, tools=OFFERED).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return
        for call in message.tool_calls:
            text = TOOLS[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


if __name__ == "__main__":
    main(rounds(work_rounds, stores=False))
