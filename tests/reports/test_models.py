"""Reports about adapters of models, each played as a whole run: plan, a look, a question, an order, the answer.

Every row is a public report of another project, tried here on a server that speaks as reported.
"""

import json
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent
from tests.kit.providers.forms import (
    USAGE,
    RefusedRequest,
    Said,
    check_chat,
    event,
    names_in,
    own_chat_model,
    refuse_chat,
    told,
    write_chat,
)
from tests.kit.providers.server import Answer, Handler, ProviderServer

STEP = {"content": "Look, ask how many, and order", "done_when": ["they are ordered"], "tools": ["look", "order"]}
SHOWN = {"sentences": [{"n": 1, "shown": "yes", "by": ["s1.result"]}], "goal": {"met": "yes", "missing": []}}
SETTINGS = {"confirm": "never", "approvals": "plan", "when_busy": "next_round"}
ORDERS: list[tuple[str, int]] = []


TOLD: dict[str, Any] = {}


async def look(item: str) -> str:
    """Return the stock of an item."""
    if agent := TOLD.pop("agent", None):  # what a person says while it works stands behind the results
        await agent.tell("t", "Take the cheap ones.")
    return f"{item}: 12 in stock"


def order(item: str, count: int) -> str:
    """Order an item."""
    ORDERS.append((item, count))
    return f"ordered {count} {item}, order A-17"


def think(body: Mapping[str, Any]) -> Said:
    """Look before the plan, look twice at once, ask a person, order, and finish."""
    names, seen = names_in(body), told(body)
    if "audit" in names:
        return Said(calls=[("audit", SHOWN)])
    if "submit_plan" in names:
        return Said(calls=[("submit_plan", {"title": "Order", "steps": [STEP]})])
    if "finish_step" not in names:
        return Said("3 lamps were ordered.")
    if made := re.search(r"\[(s1\.\d+)\] order ok", seen):
        proof = {"criterion": 1, "met": True, "evidence": [{"observation": made[1], "quote": "ordered 3 lamp"}]}
        return Said(calls=[("finish_step", {"result": "3 lamps were ordered.", "goal_check": [proof]})])
    if "three please" in seen:
        return Said("Well then.", [("order", {"item": "lamp", "count": 3})])
    if "12 in stock" in seen:
        return Said("One question.", [("ask_user", {"question": "How many lamps?"})])
    return Said("I look.", [("look", {"item": "lamp"}), ("look", {"item": "desk"})])


def printed(said: Said) -> Answer:
    """The reply of a model that cannot call tools: its calls stand in its text."""
    calls = "\n".join(json.dumps({"action": name, "arguments": given}) for name, given in said.calls)
    return write_chat(Said(f"{said.text}\n{calls}".strip()))


def refusing(why: Callable[[Mapping[str, Any]], str | None], status: int = 400) -> Handler:
    """A server of OpenAI's protocol that refuses what `why` names."""

    def handle(body: Mapping[str, Any]) -> Answer:
        try:
            check_chat(body)
        except RefusedRequest as refused:
            return refuse_chat(str(refused))
        if problem := why(body):
            said = {"message": problem, "type": "invalid_request_error", "code": None}
            return Answer.of_json({"error": said}, status)
        said = think(body)
        if not body.get("stream"):
            return whole(said)
        return write_chat(said) if body.get("tools") or not said.calls else printed(said)

    return handle


def whole(said: Said) -> Answer:
    """A reply that is not streamed."""
    calls = [
        {"id": f"w{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for n, (name, given) in enumerate(said.calls)
    ]
    message = {"role": "assistant", "content": said.text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
    return Answer.of_json({"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


def roles(body: Mapping[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def after(body: Mapping[str, Any], second: str, first: str) -> bool:
    """Whether a role stands directly behind another one."""
    found = roles(body)
    return (first, second) in pairwise(found)


def mistral(body: Mapping[str, Any]) -> str | None:
    return "Unexpected role 'user' after role 'tool'" if after(body, "user", "tool") else None


def successive(body: Mapping[str, Any]) -> str | None:
    many = after(body, "user", "user") or after(body, "assistant", "assistant")
    return "m does not support successive user or assistant messages (messages[1] and messages[2])" if many else None


def template(body: Mapping[str, Any]) -> str | None:
    """As the templates of Gemma and older models of Mistral, which llama.cpp, vLLM and LM Studio fill."""
    turns = [role for role in roles(body) if role != "system"]
    broken = [a for a, b in pairwise(turns) if a == b and a != "tool"]
    broken = broken or ["tool"] * after(body, "user", "tool")
    said = "Jinja Exception: After the optional system message, conversation roles must alternate user/assistant/…"
    return said if broken else None


def no_system(body: Mapping[str, Any]) -> str | None:
    return "System role not supported" if "system" in roles(body) else None


def no_system_of_o1(body: Mapping[str, Any]) -> str | None:
    said = "Unsupported value: 'messages[0].role' does not support 'system' with this model."
    return said if "system" in roles(body) else None


def two_roles(body: Mapping[str, Any]) -> str | None:
    other = {*roles(body)} - {"user", "assistant"} or body.get("tools")
    return "Only user and assistant roles are supported!" if other else None


def unverified(body: Mapping[str, Any]) -> str | None:
    said = "Your organization must be verified to stream this model. Please go to: https://platform.openai.com/settings"
    return said if body.get("stream") else None


def no_tools_in_streams(body: Mapping[str, Any]) -> str | None:
    said = "This model doesn't support tool use in streaming mode."
    return said if body.get("stream") and body.get("tools") else None


def groq(written: str) -> Handler:
    """A server that refuses what its model wrote for a call, once in each round."""

    def handle(body: Mapping[str, Any]) -> Answer:
        said = think(body)
        if body.get("tools") and said.calls:
            name, given = said.calls[0]
            wrote = written.format(name=name, given=json.dumps(given))
            about = "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details."
            error = {"message": about, "type": "invalid_request_error", "code": "tool_use_failed"}
            return Answer.of_json({"error": {**error, "failed_generation": wrote}}, 400)
        return write_chat(said) if not said.calls else printed(said)

    return handle


def groq_once(wrote: str) -> Handler:
    """A server that refuses what its model wrote in a step, which is no call, once."""
    refused = list[str]()

    def handle(body: Mapping[str, Any]) -> Answer:
        if "finish_step" in names_in(body) and not refused:
            refused.append("once")
            error = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": wrote}
            return Answer.of_json({"error": error}, 400)
        return write_chat(think(body))

    return handle


def takes_turns(body: Mapping[str, Any]) -> str | None:
    """As the template of Devstral: calls and results are not counted."""
    counted = [m["role"] for m in body["messages"] if m["role"] not in ("system", "tool") and not m.get("tool_calls")]
    said = "Jinja Exception: After the optional system message, conversation roles must alternate user and assistant"
    return f"{said} roles except for tool calls and results." if any(a == b for a, b in pairwise(counted)) else None


def strictly_in_turns(body: Mapping[str, Any]) -> str | None:
    """As the templates of Gemma and of the first Mistral, which count every message, whatever its role."""
    expected = ["assistant" if place % 2 else "user" for place in range(len(body["messages"]))]
    said = "Conversation roles must alternate user/assistant/user/assistant/..."
    return said if roles(body) != expected else None


def in_turns_behind_a_system_message(body: Mapping[str, Any]) -> str | None:
    found = {**body, "messages": [m for m in body["messages"] if m["role"] != "system"]}
    said = strictly_in_turns(found)
    return f"Template error: syntax error: {said}" if said else None


def no_choice_without_tools(body: Mapping[str, Any]) -> str | None:
    said = "Invalid request content: A tool_choice was set on the request but no tools were specified."
    return said if body.get("tool_choice") and not body.get("tools") else None


def few_tools(body: Mapping[str, Any]) -> str | None:
    tools = body.get("tools") or ()
    said = f"Invalid 'tools': array too long. Expected an array with maximum length 128, but got {len(tools)} instead."
    return said if len(tools) > 128 else None


def through_a_router(why: Callable[[Mapping[str, Any]], str | None]) -> Handler:
    """The same refusal, as OpenRouter hands it on."""

    def handle(body: Mapping[str, Any]) -> Answer:
        if problem := why(body):
            raw = json.dumps({"error": {"message": problem, "param": "stream", "code": "unsupported_value"}})
            error = {"message": "Provider returned error", "code": 400, "metadata": {"raw": raw}}
            return Answer.of_json({"error": error}, 400)
        return whole(think(body))

    return handle


def streamed(change: Callable[[list[Any]], list[Any]]) -> Handler:
    """A server whose stream is as `change` makes it of the chunks of OpenAI's."""

    def handle(body: Mapping[str, Any]) -> Answer:
        chunks = [each for each in b"".join(write_chat(think(body)).pieces).decode().split("\n\n") if each]
        known = [json.loads(each.removeprefix("data: ")) for each in chunks if each != "data: [DONE]"]
        return Answer([event(each) for each in [*change(known), "[DONE]"]])

    return handle


def with_choices(chunks: list[Any], make: Callable[[Any], Any]) -> list[Any]:
    return [{**each, "choices": [make(choice) for choice in each["choices"]]} for each in chunks]


def stops(choice: Any) -> Any:
    return {**choice, "finish_reason": choice["finish_reason"] and "stop"}


def never_ends(choice: Any) -> Any:
    return {**choice, "finish_reason": None}


def ends_without_delta(choice: Any) -> Any:
    return {**choice, "delta": None} if choice["finish_reason"] else choice


EMPTY: Any = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": []}
NO_CHOICES: Any = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": USAGE}
GROQ_LIST = """```
{{"tool_calls": [{{"id": "x", "type": "function", "function": {{"name": "{name}"}}, "parameters": {given}}}]}}
```"""
REPORTS: dict[str, Handler] = {
    "aaif-goose/goose#5998": refusing(mistral),
    "zed-industries/zed#37021": refusing(mistral, 422),
    "NousResearch/hermes-agent#20154": refusing(mistral),
    "SWE-agent/mini-swe-agent#759": refusing(takes_turns, 500),
    "huggingface/text-generation-inference#3198": refusing(in_turns_behind_a_system_message, 422),
    "microsoft/autogen#1037": refusing(strictly_in_turns),
    "sgl-project/sglang#1342": refusing(no_system, 500),
    "huggingface/chat-ui#1386": refusing(no_system),
    "continuedev/continue#7129": refusing(unverified),
    "BeehiveInnovations/pal-mcp-server#134": through_a_router(unverified),
    "huggingface/smolagents#1119": groq("{name}{given}</function>"),
    "tashfeenahmed/freellmapi#291": groq("<function={name}={given}</function>"),
    "groq/groq-typescript#28": groq(GROQ_LIST),
    "agno-agi/agno#4090": groq_once("### Lamps\nHere is what I would do next."),
    "livekit/agents#3114": refusing(no_choice_without_tools),
    "anomalyco/opencode#4909": refusing(few_tools),
    "googleapis/python-genai#2868": streamed(lambda chunks: with_choices(chunks, stops)),
    "openclaw/openclaw#98575": streamed(lambda chunks: with_choices(chunks, never_ends)),
    "BerriAI/litellm#27968": streamed(lambda chunks: [EMPTY, EMPTY, *chunks]),
    "pixeltable/pixeltable#1234": streamed(lambda chunks: [*chunks, {**EMPTY, "usage": USAGE}]),
    "agentuniverse-ai/agentUniverse#772": streamed(
        lambda chunks: [*with_choices(chunks, ends_without_delta), NO_CHOICES]
    ),
}
ALSO: dict[str, Handler] = {
    "a reasoner of DeepSeek": refusing(successive),
    "a template that counts every turn": refusing(template, 500),
    "o1": refusing(no_system_of_o1),
    "two roles": refusing(two_roles),
    "Bedrock without streams of calls": refusing(no_tools_in_streams),
    "nothing of Groq": groq_once(""),
    "one object of Groq": groq('{{"name": "{name}", "arguments": {given}}}'),
}


def many_tools() -> list[Any]:
    """As many tools as a few MCP servers have together."""
    return [StructuredTool.from_function(lambda: "", name=f"tool_{n}", description="Does it.") for n in range(150)]


@pytest.mark.parametrize("report", [*REPORTS, *ALSO])
async def test_a_report_about_a_model_holds(report: str) -> None:
    """R13, R14: the run is carried out as if the server took everything, and each order is made once."""
    ORDERS.clear()
    with ProviderServer({**REPORTS, **ALSO}[report]) as server:
        more: Any = {"effects": {"look": "read", "order": "write"}, "settings": SETTINGS, "storage": "memory:"}
        tools = [look, order, *(many_tools() if "opencode" in report else ())]
        async with Agent(own_chat_model(server.url), tools, **more) as agent:
            TOLD["agent"] = agent
            run = await agent.start("Order lamps", thread_id="t")
            assert run.pending, run.answer
            assert run.pending[0]["question"] == "How many lamps?", run.pending
            run = await agent.resume(run, "three please")
            if run.status == "waiting":
                run = await agent.resume(run, "approve")
    assert (run.status, run.answer, ORDERS) == ("completed", "3 lamps were ordered.", [("lamp", 3)])
    assert len(server.bodies) < 16
    assert "Take the cheap ones." in json.dumps(server.bodies)
