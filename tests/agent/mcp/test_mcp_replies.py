"""What a reply of an MCP server means for the call: a table of replies and transports, on servers written by hand."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from donewhen import McpServers
from donewhen.graph.tools.call import CallOutcome, ToolCall, call_tool
from donewhen.testing import call, finish_step
from tests.kit.flows import FREE, one_step, play
from tests.kit.mcp_replies import over_http, over_stdio
from tests.kit.runs import last_seen

Transport = Callable[[Path], AbstractContextManager[dict[str, Any]]]
TRANSPORTS: dict[str, Transport] = {
    "stdio": over_stdio,
    "json": partial(over_http, streams=False),
    "events": partial(over_http, streams=True),
}
IN_BATCHES: dict[str, Transport] = {
    "stdio": partial(over_stdio, batches=True),
    "json": partial(over_http, streams=False, batches=True),
    "events": partial(over_http, streams=True, batches=True),
}
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
EVERYWHERE = {
    "paid": DONE,
    "invalid params": REFUSED,
    "invalid request": REFUSED,
    "no money": REFUSED,
    "refused": REFUSED,
    "refused in data": REFUSED,
    "internal error": UNKNOWN,
    "server error": UNKNOWN,
    "crashed": UNKNOWN,
    "no content": UNKNOWN,
    "unknown content": UNKNOWN,
    "text as content": UNKNOWN,
    "no object": UNKNOWN,
    "cut": UNKNOWN,
    "half an emoji": DONE,
    "a code as text": REFUSED,
    "a code in words": UNKNOWN,
    "an error as text": UNKNOWN,
    "a code with a point": REFUSED,
    "alone in a batch": DONE,
    "a batch": DONE,
    "a refusal in a batch": REFUSED,
}
OVER_HTTP = {
    "parse error": UNKNOWN,  # the SDK says the same of a reply that it cannot read
    "empty": UNKNOWN,
    "an empty batch": UNKNOWN,
    "202": UNKNOWN,
    "302": UNKNOWN,
    "400": REFUSED,
    "402": REFUSED,
    "408": UNKNOWN,
    "500": UNKNOWN,
    "503": UNKNOWN,
    "HTML": UNKNOWN,
    "bytes": UNKNOWN,
    "no type": UNKNOWN,
    "hangs up": UNKNOWN,
}
OUTCOMES = {
    "stdio": {**EVERYWHERE, "parse error": REFUSED},
    "json": {**EVERYWHERE, **OVER_HTTP},
    "events": {**EVERYWHERE, **OVER_HTTP},
}


def outcome_of(result: CallOutcome) -> str:
    return DONE if result.ok else UNKNOWN if result.unknown else REFUSED


async def paid(servers: McpServers, how: str) -> CallOutcome:
    return await call_tool(ToolCall(servers.tools[0], {"how": how}, timeout=20))


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_only_the_servers_own_words_say_that_nothing_was_done(transport: str, tmp_path: Path) -> None:
    """Q03, X24: whatever our client raises while it reads a reply, the money may be gone; it is sent once."""
    ledger = tmp_path / "ledger"
    with TRANSPORTS[transport](ledger) as connection:
        async with McpServers({"mcpServers": {"bank": connection}}) as servers:
            expected = OUTCOMES[transport]
            found = {how: outcome_of(await paid(servers, how)) for how in expected}
    assert found == expected
    assert ledger.read_text().splitlines() == [*expected]


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_two_calls_at_once_have_an_outcome_each(transport: str, tmp_path: Path) -> None:
    """Q03, X24: of two calls in one session, the lost answer of one says nothing about the other."""
    with TRANSPORTS[transport](tmp_path / "ledger") as connection:
        async with McpServers({"mcpServers": {"bank": connection}}) as servers:
            hows = ["cut", "paid", "no money", "cut", "server error"]
            results = await asyncio.gather(*(paid(servers, how) for how in hows))
            assert outcome_of(await paid(servers, "paid")) == DONE
    assert [outcome_of(each) for each in results] == [UNKNOWN, DONE, REFUSED, UNKNOWN, UNKNOWN]
    assert results[2].text == "no money left"
    assert "upstream exploded" in results[4].text


@pytest.mark.parametrize("transport", IN_BATCHES)
async def test_everything_may_come_in_lists(transport: str, tmp_path: Path) -> None:
    """Q49: servers of the protocol of March 2025 send lists of messages, at the start and for two calls at once; an
    error is read in its own words, whatever its code."""
    with IN_BATCHES[transport](tmp_path / "ledger") as connection:
        async with McpServers({"mcpServers": {"bank": connection}}) as servers:
            first = await asyncio.gather(*(paid(servers, how) for how in ("paid", "a code as text")))
            second = await asyncio.gather(*(paid(servers, how) for how in ("a code in words", "a code with a point")))
    assert [outcome_of(each) for each in (*first, *second)] == [DONE, REFUSED, UNKNOWN, REFUSED]
    assert [first[1].text, second[1].text] == ["amount is missing", '{"reason": "no money left"}']
    assert "NO_MONEY: no money left" in second[0].text


@pytest.mark.parametrize(("transport", "how"), [("stdio", "no content"), ("json", "empty"), ("events", "cut")])
async def test_a_person_is_asked_before_it_is_paid_again(transport: str, how: str, tmp_path: Path) -> None:
    """Q03, X24: the model reads that the answer was unreadable, and never that its arguments were refused."""

    def decide(messages: Any, _: Any) -> Any:
        seen = [message.text for message in messages if message.type == "tool"]
        return finish_step("paid", last_seen(messages)) if seen and "] pay ok" in seen[-1] else call("pay", how=how)

    ledger = tmp_path / "ledger"
    with TRANSPORTS[transport](ledger) as connection:
        async with McpServers({"mcpServers": {"bank": connection}}) as servers:
            model = one_step(decide, tools=["pay"])
            flow = await play(model, servers.tools, answers=["it happened"], settings=FREE)
    assert [pause["kind"] for pause in flow.pauses] == ["effect"]
    assert ledger.read_text().split("\n") == [how, ""]
    assert "arguments" not in flow.journal[0]["text"].partition("It is unknown")[0]
