"""`python -m benchmarks.money [NAME …]`: what everyday jobs cost, by the runtime and by a bare loop of the same calls.

Both sides are scripted and send what LangChain's Anthropic client would send, so the figures depend on prompts alone.
A token is taken as four characters, for every model. Needs no key and no network. Prints the tables that
docs/real_model.md sums up.
"""

import asyncio
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Any, cast

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from benchmarks.jobs.__main__ import ours
from benchmarks.jobs.everyday import EVERYDAY
from benchmarks.jobs.jobs import Job
from benchmarks.jobs.perfect import bare_replies, script_of
from benchmarks.report import table
from donewhen import Settings
from donewhen.agent.prices import Prices
from donewhen.agent.tools import as_tools
from donewhen.state.ledger import CACHE_WRITES
from donewhen.testing import ScriptedModel
from tests.kit.anthropic_server import AnthropicServer, blocks_of

Usage = Mapping[str, int]
"""Tokens of a play, in the keys of the ledger."""
CLAUDE, GPT, GEMINI = "claude-sonnet-5-5", "gpt-6.1-terra", "gemini-3.8-flash"
LEAST_GPT, LEAST_GEMINI = 1024, 4096
"""Tokens of the shortest prompt that is cached."""
SYSTEM = "You are a helpful agent. Use the tools to do what the user asks."


@dataclass
class Sent:
    """The requests of a play, and the tokens of all replies."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    output: int = 0


class PlayedAnthropic(ChatAnthropic):
    """Answers from a script, and keeps the requests that Anthropic would get."""

    script: ScriptedModel = Field(exclude=True)
    sent: Sent = Field(exclude=True)

    async def _agenerate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.sent.bodies.append(self._get_request_payload(messages, stop=stop, **kwargs))
        tools = [convert_to_openai_tool(tool) for tool in kwargs.get("tools", ())]
        result = await self.script._agenerate(messages, stop, tools=tools)
        message = cast(AIMessage, result.generations[0].message)
        message.response_metadata = {"stop_reason": "tool_use" if message.tool_calls else "end_turn"}
        self.sent.output += message.usage_metadata["output_tokens"] if message.usage_metadata else 0
        return result


def play(script: ScriptedModel) -> PlayedAnthropic:
    """Return a model that plays a script as Claude."""
    return PlayedAnthropic(model=CLAUDE, api_key="none", script=script, sent=Sent(), disable_streaming=True)  # type: ignore[call-arg,arg-type]


async def play_bare(job: Job, folder: Path, replies: Sequence[Any]) -> Sent:
    """Play a job by LangChain's own loop, with its own middleware for caching."""
    turn = asyncio.Lock()

    @wrap_tool_call
    async def in_order(request: Any, handler: Any) -> Any:
        async with turn:  # calls of one reply may change the same file
            return await handler(request)

    model, caching = play(ScriptedModel(replies)), AnthropicPromptCachingMiddleware()
    agent = create_agent(model, as_tools(job.tools(folder)), system_prompt=SYSTEM, middleware=[caching, in_order])
    result = await agent.ainvoke({"messages": [HumanMessage(job.goal)]})
    check(job, folder, result["messages"][-1].text)
    model.script.assert_exhausted()
    return model.sent


def check(job: Job, folder: Path, answer: str) -> None:
    """Raise RuntimeError if a job was not done right."""
    if wrong := job.right(folder, answer):
        raise RuntimeError(f"{job.goal}: {wrong}")


async def play_both(name: str) -> tuple[Sent, Sent]:
    """Play a job by the runtime and by the bare loop; return what each sent."""
    job = EVERYDAY[name]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        job.make(Path(first))
        job.make(Path(second))
        script = script_of(name, Path(first))
        model = play(ScriptedModel(roles=script))
        row = await ours(job, Path(first), Settings(), model)
        check(job, Path(first), row["answer"])
        return model.sent, await play_bare(job, Path(second), bare_replies(job, script, row["answer"]))


def count_claude(sent: Sent) -> Usage:
    """Return the tokens of a play as Anthropic counts them, by the marks of its requests."""
    server, used = AnthropicServer(dict), Counter[str]()
    for body in sent.bodies:
        used.update(server.count(body))
    read, written = used["cache_read_input_tokens"], used["cache_creation_input_tokens"]
    return _usage(used["input_tokens"] + read + written, read, written, sent.output)


def count_gpt(sent: Sent) -> Usage:
    """Return the tokens of a play as OpenAI counts them since GPT-5.6.

    The end of each request is written to the cache; one that continues a whole earlier request reads it.
    """
    prompts = _prompts(sent)
    read = [
        max((len(old) for old in prompts[:place] if prompt.startswith(old) and len(old) >= 4 * LEAST_GPT), default=0)
        for place, prompt in enumerate(prompts)
    ]
    kept = [len(prompt) if len(prompt) >= 4 * LEAST_GPT else 0 for prompt in prompts]
    return _usage(sum(map(len, prompts)) // 4, sum(read) // 4, (sum(kept) - sum(read)) // 4, sent.output)


def count_gemini(sent: Sent) -> Usage:
    """Return the tokens of a play as Google counts them at best: all that an earlier request began with is read."""
    prompts = _prompts(sent)
    shared = [
        max((len(os.path.commonprefix([old, prompt])) for old in prompts[:place]), default=0)  # noqa: RUF071 (no paths)
        for place, prompt in enumerate(prompts)
    ]
    read = sum(length for length in shared if length >= 4 * LEAST_GEMINI)
    return _usage(sum(map(len, prompts)) // 4, read // 4, 0, sent.output)


COUNTS: Mapping[str, Callable[[Sent], Usage]] = {CLAUDE: count_claude, GPT: count_gpt, GEMINI: count_gemini}


def _prompts(sent: Sent) -> list[str]:
    """Return each request as one text: tools, instructions, messages, without marks."""
    plain = [
        [{key: block[key] for key in block if key != "cache_control"} for block in blocks_of(b)] for b in sent.bodies
    ]
    return ["".join(dumps(block) for block in blocks) for blocks in plain]


def _usage(total: int, read: int, written: int, output: int) -> Usage:
    return {"input_tokens": total, "cached_tokens": read, CACHE_WRITES: written, "output_tokens": output}


def cents(model: str, usage: Usage, *, cached: bool) -> float:
    """Return what a play costs in US cents, with the cache or without one."""
    plain = {key: usage[key] for key in ("input_tokens", "output_tokens")}
    cost = Prices().cost(model, usage if cached else plain)
    if cost is None:
        raise RuntimeError(f"no price of {model} is known")
    return 100 * cost


def tables(plays: Mapping[str, tuple[Sent, Sent]]) -> str:
    """Return the tables of tokens and of money."""
    tokens, money = [], []
    for name, both in plays.items():
        for side, sent in zip(("DoneWhen", "bare loop"), both, strict=True):
            given, read, written, output = count_claude(sent).values()
            fresh = given - read - written
            tokens.append(
                (f"{name}, {side}", len(sent.bodies), *(f"{n:,}" for n in (given, fresh, read, written, output)))
            )
    for name, pairs in [*((name, [both]) for name, both in plays.items()), ("all", list(plays.values()))]:
        for model, count in COUNTS.items():
            cells = []
            for cached in (False, True):
                mine, bare = (sum(cents(model, count(pair[side]), cached=cached) for pair in pairs) for side in (0, 1))
                cells += [f"{mine:.2f}", f"{bare:.2f}", f"{mine / bare:.1f}"]
            money.append((f"{name}, {model}", *cells))
    said = ("job, side", "calls", "input tokens", "uncached", "cache read", "cache write", "output tokens")
    cost = ("job, model", "not cached", "bare", "times", "cached", "bare", "times")
    return f"{table(said, tokens)}\n\n{table(cost, money)}"


async def main() -> None:
    """Print the tables of the named jobs, or of all."""
    print(tables({name: await play_both(name) for name in sys.argv[1:] or EVERYDAY}))


if __name__ == "__main__":
    asyncio.run(main())
