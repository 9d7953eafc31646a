"""A run that changes its model in the middle of a step: what one provider wrote is fit for every other."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent
from tests.kit.providers.forms import (
    FORMS,
    SIGNATURE,
    STRICTER,
    Said,
    chat_call,
    chat_chunk,
    event,
    names_in,
    own_chat_model,
    told,
    write_chat,
)
from tests.kit.providers.server import Answer, ProviderServer

STEP = {
    "content": "Look, ask how many, and order",
    "done_when": ["they are ordered"],
    "tools": ["look", "photo", "order"],
}
SHOWN = {"sentences": [{"n": 1, "shown": "yes", "by": ["s1.result"]}], "goal": {"met": "yes", "missing": []}}
SETTINGS = {"model_retries": 0}
SIGNING = ("OpenAI Responses", "Anthropic", "Google", "OpenRouter")


def look(item: str) -> str:
    """Return the stock of an item."""
    return f"{item}: 12 in stock 😀"


def order(item: str, count: int) -> str:
    """Order an item."""
    return f"ordered {count} {item}, order A-17"


def think(body: Mapping[str, Any]) -> Said:
    """Look twice at once, ask a person, order, and finish."""
    names, seen = names_in(body), told(body)
    if "audit" in names:
        return Said(calls=[("audit", SHOWN)])
    if "submit_plan" in names:
        return Said(calls=[("submit_plan", {"title": "Order", "steps": [STEP]})])
    if "finish_step" not in names:
        return Said("3 lamps were ordered.")
    if made := re.search(r"\[(s1\.\d+)\] order ok", seen):
        evidence = [{"observation": made[1], "quote": "ordered 3 lamp"}]
        proof = {"criterion": 1, "met": True, "evidence": evidence}
        return Said(calls=[("finish_step", {"result": "3 lamps were ordered.", "goal_check": [proof]})])
    if "three please" in seen:
        return Said("Well then.", [("order", {"item": "lamp", "count": 3}), ("look", {"item": "lamp"})])
    if "12 in stock" in seen:
        return Said("One question.", [("ask_user", {"question": "How many lamps?"})])
    return Said("I look.", [("look", {"item": "lamp"}), ("look", {"item": "desk"})])


@pytest.mark.parametrize("after", FORMS)
@pytest.mark.parametrize("before", FORMS)
async def test_another_model_goes_on_in_the_middle_of_a_step(before: str, after: str, tmp_path: Path) -> None:
    """R14 (Q42, Q43): calls, results, ids, thoughts and signatures of one provider never spoil the request to another;
    to the same model its own are given back, as it demands them."""
    first, second, tools = FORMS[before], FORMS[after], [look, photo, order]
    more = {
        "effects": {"look": "read", "photo": "read", "order": "write"},
        "settings": SETTINGS,
        "storage": f"sqlite:///{tmp_path}/runs",
    }
    with ProviderServer(first.serve(think)) as one, ProviderServer(second.serve(think)) as other:
        async with Agent(first.model(one.url), tools, **more) as agent:  # type: ignore[arg-type]
            run = await agent.resume(await agent.start("Order lamps"), "approve")
            assert run.pending, run.answer
            assert run.pending[0]["question"] == "How many lamps?"
        async with Agent(second.model(other.url), tools, **more) as agent:  # type: ignore[arg-type]
            run = await agent.resume(run, "three please")
            if run.status == "waiting":  # the count was not in the plan
                run = await agent.resume(run, "approve")
    assert (SIGNATURE in json.dumps(one.bodies)) == (before in SIGNING)
    assert SIGNATURE not in json.dumps(other.bodies[0])
    assert run.answer == "3 lamps were ordered."
    assert run.status == "completed"


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def photo(item: str) -> list[dict[str, Any]]:
    """Return a photo of an item."""
    return [
        {"type": "text", "text": f"a photo of a {item}"},
        {"type": "image", "base64": PIXEL, "mime_type": "image/png"},
    ]


def slip(body: Mapping[str, Any]) -> Answer:
    """Reply as careless servers and models do: one id for all, odd names and arguments, thoughts, calls in text."""
    seen = told(body)

    def reply(*deltas: Mapping[str, Any]) -> Answer:
        chunks = [*map(chat_chunk, deltas), chat_chunk({}, "tool_calls")]
        return Answer([*map(event, chunks), event("[DONE]")])

    if "finish_step" not in names_in(body):
        return write_chat(think(body))
    if "12 in stock" not in seen:
        odd = chat_call(0, "functions.look", "{'item': 'lamp'}", "call_0")
        return reply({"reasoning_content": "I wonder.", "content": "I look \ud83d"}, odd)
    if "a photo" not in seen:
        return reply(chat_call(0, "photo<|channel|>commentary", '```json\n{"item": "lamp"}\n```', "call_0"))
    if "was not made" not in seen:
        return reply({"content": 'Look: <tool_call>{"name": "look", "arguments": {"item": "chair"}}</tool_call>'})
    return reply(chat_call(0, "ask_user", '{"question": "How many lamps?"}', "call_0"))


@pytest.mark.parametrize("after", [*FORMS, *STRICTER])
async def test_a_model_goes_on_where_another_one_slipped(after: str, tmp_path: Path) -> None:
    """R14 (Q38, Q42, Q43, Q44): a history with one id for all calls, mended names and arguments, half a character,
    thoughts, a call printed in a text and an image is fit for every provider, the strictest too."""
    second: Any = {**FORMS, **STRICTER}[after]
    more: Any = {"effects": {"look": "read", "photo": "read", "order": "write"}, "settings": SETTINGS}
    more |= {"tools": [look, photo, order], "storage": f"sqlite:///{tmp_path}/runs"}
    with ProviderServer(slip) as one, ProviderServer(second.serve(think)) as other:
        async with Agent(own_chat_model(one.url), **more) as agent:
            run = await agent.resume(await agent.start("Order lamps"), "approve")
            assert run.pending, run.answer
            assert run.pending[0]["question"] == "How many lamps?"
        async with Agent(second.model(other.url), **more) as agent:
            run = await agent.resume(run, "three please")
            if run.status == "waiting":  # the count was not in the plan
                run = await agent.resume(run, "approve")
    sent = json.dumps(other.bodies, ensure_ascii=False)
    assert sent.encode(), "no half of a character"
    assert (run.status, run.answer) == ("completed", "3 lamps were ordered."), run.answer
    raw = ("functions.look", "<|channel|>", "I wonder.", "{'item'")
    assert [each for each in raw if each in sent] == []
