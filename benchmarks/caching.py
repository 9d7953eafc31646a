"""`python -m benchmarks.caching`: how much of a run's prompts a provider reads from its cache, and what that saves.

A run of 20 rounds with Anthropic's own client, on a server on loopback that caches and counts as Anthropic does. The
model is scripted, so the figures depend on prompts and marks alone. Needs no key and no network.
"""

import asyncio
import sys
from collections.abc import Mapping
from typing import Any

from langchain_anthropic import ChatAnthropic

from donewhen import Agent, Settings
from donewhen.agent.prices import Prices
from tests.kit.anthropic_server import AnthropicServer, tool_use

ROUNDS = 20
RESULT_CHARS = 1_000
MODEL = "claude-sonnet-4-6"


def look(page: str) -> str:
    """Return a page of the manual."""
    return f"page {page}: " + f"The value on page {page} is {int(page) * 7}. " * (RESULT_CHARS // 32)


def play(body: Mapping[str, Any]) -> dict[str, Any]:
    """Reply as a model that plans one step, reads a page a round, and finishes."""
    names = {tool["name"] for tool in body.get("tools", ())}
    number = len(body["messages"]) // 2
    if "submit_plan" in names:
        step = {"content": "Read all pages", "tools": ["look"], "done_when": ["the value on page 1 is known"]}
        plan = {"title": "Read", "steps": [step], "complexity": "moderate", "need_thinking": False}
        return tool_use("plan", "submit_plan", plan)
    if "audit" in names:
        sentence = {"n": 1, "shown": "yes", "by": ["s1.1"], "why": "the page says so"}
        return tool_use("audit", "audit", {"sentences": [sentence], "goal": {"met": "yes", "missing": []}})
    if number < ROUNDS - 1:
        return tool_use(f"call_{number}", "look", {"page": str(number + 1)})
    evidence = [{"observation": "s1.1", "quote": "The value on page 1 is 7"}]
    check = [{"criterion": 1, "met": True, "evidence": evidence}]
    return tool_use("finish", "finish_step", {"result": "The value on page 1 is 7.", "goal_check": check})


def is_step(body: Mapping[str, Any]) -> bool:
    """Return True for a request of a step."""
    return any(tool["name"] == "finish_step" for tool in body.get("tools", ()))


async def run(server: AnthropicServer) -> Mapping[str, float]:
    """Run the 20 rounds against the server; return what the ledger says was spent."""
    model = ChatAnthropic(model=MODEL, base_url=server.base_url, api_key="test", max_tokens=4_000)  # type: ignore[call-arg,arg-type]
    settings = Settings(confirm="never")
    async with Agent(model, tools=[look], effects={"look": "read"}, storage="memory:", settings=settings) as agent:
        result = await agent.start("Read the manual and tell me the value on page 1")
    if result.status != "completed":
        raise RuntimeError(f"the run ended as {result.status}: {result.outcome}")
    return {row["key"]: row["spent"] for row in result.receipt["meter"]} if result.receipt else {}


async def main() -> int:
    """Print the figures; return 1 if less than 85 % of the input of the rounds is read from the cache."""
    with AnthropicServer(play) as server:
        spent = await run(server)
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    total, read, written = (sum(usage[key] for usage in server.usages) for key in keys)
    total += read + written
    uncached = Prices().cost(MODEL, {"input_tokens": total, "output_tokens": spent["output_tokens"]}) or 0.0
    print(f"requests {len(server.bodies)}, of them {sum(map(is_step, server.bodies))} rounds of the step")
    print(f"input tokens {total:,}: read from cache {read / total:.1%}, written to it {written / total:.1%}")
    print(f"of the rounds alone: read from cache {(share := server.share_read(of=is_step)):.1%}")
    print(f"cost of the run, {MODEL}: ${spent['cost_usd']:.4f}, without a cache ${uncached:.4f}")
    return 0 if share >= 0.85 and server.share_read() >= 0.85 else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
