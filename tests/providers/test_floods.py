"""Replies that are far too much: thousands of calls, a hundred thousand citations."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk

from donewhen import Agent
from donewhen.graph.llm.ask import MOST_BEGUN
from donewhen.graph.llm.joining import join_chunks
from tests.kit.providers.forms import FORMS, Said, names_in
from tests.kit.providers.server import ProviderServer

STEP = {"content": "Look at the lamps", "done_when": ["the stock is known"], "tools": ["look"]}
CITED = {"observation": "s1.1", "quote": "12"}


def look(item: str) -> str:
    """Return the stock of an item."""
    return "12"


def calls(count: int) -> list[AIMessageChunk]:
    """A reply of so many calls, each in three pieces."""
    made = []
    for n in range(count):
        for part in (tool_call_chunk(name="look", args="", id=f"c{n}", index=n), *_pieces('{"item": "lamp"}', n)):
            made.append(AIMessageChunk("", tool_call_chunks=[part]))
    return made


def blocks(count: int) -> list[AIMessageChunk]:
    """The same as blocks of content, as Anthropic's package has them."""
    made = []
    for n in range(count):
        begun = {"type": "tool_use", "id": f"c{n}", "name": "look", "input": {}, "index": n}
        written = [{"type": "input_json_delta", "partial_json": p["args"], "index": n} for p in _pieces("{}", n)]
        made += [AIMessageChunk([block]) for block in (begun, *written)]
    return made


def citations(count: int) -> list[AIMessageChunk]:
    """One text with so many citations, each in a chunk."""
    block = {"type": "text", "text": "12 ", "citations": [CITED], "index": 0}
    return [AIMessageChunk([dict(block)]) for _ in range(count)]


def same_ids(count: int) -> list[AIMessageChunk]:
    """Calls that all have one id."""
    return [
        AIMessageChunk("", tool_call_chunks=[tool_call_chunk(name="look", args=json.dumps({"n": n}), id="c", index=n)])
        for n in range(count)
    ]


def _pieces(text: str, n: int) -> list[Any]:
    half = len(text) // 2
    return [tool_call_chunk(args=piece, index=n) for piece in (text[:half], text[half:])]


@pytest.mark.parametrize("make", [calls, blocks, citations, same_ids])
def test_chunks_are_joined_in_time_that_grows_with_their_number(make: Callable[[int], list[AIMessageChunk]]) -> None:
    """Q114: eight times as many take about eight times as long, and not sixty-four times."""
    few, many = make(250), make(2_000)

    def seconds(chunks: list[AIMessageChunk]) -> float:
        best = float("inf")
        for _ in range(2):
            began = time.thread_time()
            join_chunks(chunks)
            best = min(best, time.thread_time() - began)
        return best

    seconds(few)
    assert seconds(many) < 24 * seconds(few)


@pytest.mark.parametrize("name", ["OpenAI chat", "Anthropic", "Ollama"])
async def test_a_flood_is_refused_and_the_step_goes_on(name: str) -> None:
    """Q114: of 2,000 calls none is made, and the model is told how many it may make; 8,000 citations are too long.
    Neither is sent back to the model, and a reply that is streamed is not even read to its end."""
    flood = [("look", {"item": f"lamp {n}"}) for n in range(2_000)]
    proof = {"criterion": 1, "met": True, "evidence": [CITED]}
    replies = iter(
        [
            Said(calls=flood),
            Said(calls=[("look", {"item": "lamp"})]),
            Said(calls=[("finish_step", {"result": "12", "goal_check": [{**proof, "evidence": [CITED] * 8_000}]})]),
            Said(calls=[("finish_step", {"result": "12", "goal_check": [proof]})]),
        ]
    )

    def think(body: Any) -> Said:
        names = names_in(body)
        if "submit_plan" in names:
            return Said(calls=[("submit_plan", {"title": "Look", "steps": [STEP]})])
        return next(replies) if "finish_step" in names else Said("12")

    settings = {"verification": "grounded", "confirm": "never"}
    form = FORMS[name]
    with ProviderServer(form.serve(think)) as server:
        model = form.model(server.url)
        async with Agent(model, [look], effects={"look": "read"}, storage="memory:", settings=settings) as agent:  # type: ignore[arg-type]
            run = await agent.start("How many lamps?")
    assert (run.status, run.answer) == ("completed", "12")
    told = json.dumps(server.bodies[2])
    made = 2_000 if name == "Ollama" else MOST_BEGUN + 1  # Ollama sends all calls in one line
    assert f"{made} calls in one reply; at most 32" in told
    assert max(len(json.dumps(body)) for body in server.bodies) < 50_000
