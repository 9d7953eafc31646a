"""`donewhen worker`: carry out detached and scheduled runs, each with an agent made of its thread's choices."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from json import dumps
from typing import Self

from donewhen import Agent, ConfigError
from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.options import Choices
from donewhen.agent.cli.runs import open_agent
from donewhen.agent.cli.screen.terminal import open_terminal
from donewhen.agent.cli.storage_view import StorageView, agent_without_tools
from donewhen.agent.config import Config
from donewhen.agent.work.worker import Worker
from donewhen.types import ThreadInfo

IDLE_AGENTS = 4
"""The most idle agents that a worker keeps open with their MCP servers."""


def run_worker(view: StorageView, *, concurrency: int) -> Exit:
    """Work until a signal; current work then stops at a clean point, and the next worker continues it."""
    config = view.config
    terminal = open_terminal(plain=config.plain, may_ask=False)
    if not view.location.engine.shared:
        raise ConfigError("a worker needs a storage that others can reach: --storage sqlite:///… or postgresql://…")

    async def work() -> Worker:
        async with _Agents(config) as agents, agent_without_tools(config, tells=True) as own:
            worker = own.worker(concurrency=concurrency, open_agent=agents.of)
            worker.report = lambda thread, event: terminal.line(f"{thread}: {event}")
            loop, signals = asyncio.get_running_loop(), list[int]()
            task = asyncio.ensure_future(worker.run())

            def stop(number: int) -> None:
                signals.append(number)
                if len(signals) == 1:
                    terminal.line("Draining; once more stops at once.", "yellow")
                    worker.drain()
                else:
                    task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, stop, number)
            at_once = f"{worker.concurrency} runs at once"
            terminal.line(f"Worker {worker.id} on {worker.storage.url_for_display}, {at_once}.", "dim")
            await task
            return worker

    try:
        asyncio.run(work())
    except asyncio.CancelledError:
        return Exit.TERMINATED
    return Exit.COMPLETED


class _Agents:
    """One agent, with its MCP servers, for all threads with the same choices; idle agents stay open for a while."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._open: dict[str, tuple[Agent, AsyncExitStack]] = {}
        """By choices, the most recently used last."""
        self._at_work: Counter[str] = Counter()
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_idle(0)

    @asynccontextmanager
    async def of(self, info: ThreadInfo) -> AsyncIterator[Agent]:
        choices = Choices.read(info.metadata)
        key = dumps(vars(choices), sort_keys=True)
        async with self._lock:
            if key not in self._open:
                async with AsyncExitStack() as stack:
                    agent = await open_agent(stack, choices, self._config)
                    self._open[key] = (agent, stack.pop_all())
            self._open[key] = self._open.pop(key)
            self._at_work[key] += 1
        try:
            yield self._open[key][0]
        finally:
            self._at_work[key] -= 1
            await self._close_idle(IDLE_AGENTS)

    async def _close_idle(self, keep: int) -> None:
        """Close idle agents except the most recently used ones."""
        async with self._lock:
            idle = [key for key in self._open if not self._at_work[key]]
            for key in idle[: max(len(idle) - keep, 0)]:
                await self._open.pop(key)[1].aclose()
