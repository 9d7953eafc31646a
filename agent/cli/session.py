"""What a run was started with, and the agent made from it. The thread keeps it, so that resuming needs only the id."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from donewhen.agent.agent import Agent
from donewhen.agent.config import DEMO, Config
from donewhen.agent.run import ThreadInfo
from donewhen.agent.workspace import workspace_tools
from donewhen.state.errors import ConfigError, UnknownThread


@dataclass(frozen=True)
class Choices:
    """Everything `donewhen run` was told that a later `resume` must know. JSON."""

    dir: str
    """Absolute: the folder the tools may touch."""
    model: str = DEMO
    allow_commands: list[str] = field(default_factory=list)
    mcp: str | None = None
    """Absolute path of a file with `mcpServers`."""
    settings: dict[str, Any] = field(default_factory=dict)

    def kept(self) -> dict[str, Any]:
        """As it is stored with the thread."""
        return asdict(self)

    @classmethod
    def read(cls, kept: Mapping[str, Any]) -> "Choices":
        """From what a thread keeps; raises ConfigError for a thread that was not started by the command."""
        if not isinstance(kept.get("dir"), str):
            raise ConfigError("this thread was not started by the command; resume it from the code that started it")
        return cls(**{key: kept[key] for key in cls.__dataclass_fields__ if key in kept})


def reader(config: Config) -> Agent:
    """An agent to read threads with: no tools, and a model that is never asked."""
    return Agent(DEMO, storage=config.storage, config=config)


def remembered(thread: str, config: Config) -> ThreadInfo:
    """What is remembered of a thread; without an id, of the latest that waits. Raises UnknownThread."""

    async def find() -> ThreadInfo:
        async with reader(config) as agent:
            if thread:
                return await agent.info(thread)
            waiting = [info for info in await agent.threads() if info.status == "waiting"]
        if not waiting:
            raise UnknownThread("no run waits for an answer; `donewhen threads` lists all runs")
        return waiting[0]

    return asyncio.run(find())


@dataclass(frozen=True)
class Opened:
    """An agent ready to work, and the tools of it that cannot leave the folder."""

    agent: Agent
    confined: frozenset[str]


async def open_agent(stack: AsyncExitStack, choices: Choices, config: Config) -> Opened:
    """The agent for these choices; MCP servers stay up until `stack` closes."""
    tools = workspace_tools(choices.dir, commands=choices.allow_commands)
    confined = frozenset(tool.name for tool in tools if tool.name != "run_command")
    if choices.mcp is not None:
        from donewhen.agent.mcp import McpServers

        names = [tool.name for tool in tools]
        servers = McpServers(choices.mcp, environment=config.variables, reserved=names)
        tools = [*tools, *(await stack.enter_async_context(servers)).tools]
    agent = Agent(choices.model, tools, storage=config.storage, settings=choices.settings, config=config)
    return Opened(await stack.enter_async_context(agent), confined)
