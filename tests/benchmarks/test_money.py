"""`make money` compares the same work, and counts what providers would charge."""

from typing import Any

from benchmarks.money import (
    CLAUDE,
    COUNTS,
    GEMINI,
    GPT,
    Sent,
    cents,
    count_claude,
    count_gemini,
    count_gpt,
    play_both,
    tables,
)
from donewhen.state.ledger import CACHE_WRITES


def calls_of(sent: Sent) -> list[tuple[str, Any]]:
    """Return the calls of the job's own tools that stand in the requests, each once."""
    blocks = [
        block
        for body in sent.bodies
        for message in body["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_use" and block["name"] in ("look_up", "add", "send")
    ]
    return sorted({(block["name"], str(block["input"])) for block in blocks})


async def test_both_sides_make_the_same_calls_and_are_priced() -> None:
    """The bare loop makes the calls of the runtime; each side has a price with a cache and without one."""
    mine, bare = await play_both("tiny")
    assert len(bare.bodies) == 4
    assert {name for name, _ in calls_of(bare)} == {"look_up", "add", "send"}
    assert set(calls_of(mine)) <= set(calls_of(bare))
    assert 0 < bare.output < mine.output
    for model, count in COUNTS.items():
        assert 0 < cents(model, count(bare), cached=False) < cents(model, count(mine), cached=False)
    assert cents(CLAUDE, count_claude(mine), cached=True) < cents(CLAUDE, count_claude(mine), cached=False)
    assert count_claude(bare)["cached_tokens"] == 0  # no request is long enough to be cached
    shown = tables({"tiny": (mine, bare)})
    assert all(f"| tiny, {model} |" in shown and f"| all, {model} |" in shown for model in (CLAUDE, GPT, GEMINI))


def test_a_request_reads_what_an_earlier_one_wrote() -> None:
    """OpenAI reads whole earlier requests; Google reads any shared beginning that is long enough."""
    first, second, other = ({"role": "user", "content": letter * 20_000} for letter in "abc")
    begun, longer, changed = ({"messages": messages} for messages in ([first], [first, second], [first, other]))
    grown = count_gpt(Sent([begun, longer]))
    assert grown["cached_tokens"] == count_gpt(Sent([begun]))["input_tokens"]
    assert grown["cached_tokens"] + grown[CACHE_WRITES] == grown["input_tokens"]
    assert count_gpt(Sent([longer, changed]))["cached_tokens"] == 0
    assert count_gemini(Sent([longer, changed]))["cached_tokens"] > 5_000
