"""The storage that a command names: read it with an agent that starts nothing, and print the result."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from donewhen import Agent, AgentOptions, ConfigError, UnknownThread
from donewhen.agent.cli.exits import Exit, print_row
from donewhen.agent.cli.result import MEMORY
from donewhen.agent.config import Config, read_config
from donewhen.agent.logs import set_up
from donewhen.agent.storage import open_storage, parse_url
from donewhen.agent.storage.engines import Location
from donewhen.agent.work.thread_rows import list_threads, read_info
from donewhen.clients import DEMO, moments_text
from donewhen.types import ThreadInfo

Result = TypeVar("Result")
QUEUE = "command"
"""The queue of runs that the command detaches and schedules; `donewhen worker` serves it."""
MOST_MATCHES = 6
"""The most threads that are listed if an id prefix is ambiguous."""


def agent_without_tools(
    config: Config,
    model: str = DEMO,
    *,
    queue: str = QUEUE,
    settings: Mapping[str, Any] | None = None,
    tells: bool = False,
) -> Agent:
    """Return the agent with which the command reads, changes and submits, for a queue of any program.

    Only if it `tells`, it delivers that queue's news, to the address of the environment.
    """
    config = config if tells else replace(config, notify="")
    return Agent(model, storage=config.storage, settings=settings, options=AgentOptions(queue=queue, config=config))


@dataclass(frozen=True)
class StorageView:
    """The storage of `--storage`, read as text or as `--json`."""

    storage: str | None
    """As given on the command line."""
    json: bool = False

    @cached_property
    def config(self) -> Config:
        """Return the configuration with this storage."""
        config = read_config()
        set_up(config.log)
        return replace(config, storage=self.storage) if self.storage else config

    @cached_property
    def location(self) -> Location:
        """Return the parsed URL of this storage."""
        return parse_url(self.config.storage)

    def time(self, moment: str, *, own: bool = False, exact: bool = False) -> str:
        """Return a moment for people, in the user's time zone: `2026-11-23 08:30 +01:00`; "" for none.

        The zone is DONEWHEN_TIMEZONE, else the computer's, or the moment's `own`. Seconds are left out unless it has
        to be `exact`.
        """
        if not moment:
            return ""
        at, zone = datetime.fromisoformat(moment), self.config.timezone
        try:
            at = at if own and not zone else at.astimezone(ZoneInfo(zone) if zone else None)
        except (KeyError, ValueError, OSError):
            raise ConfigError(f"DONEWHEN_TIMEZONE {zone!r} is not a time zone such as Europe/Berlin") from None
        return moments_text([(at if own or exact else at.replace(second=0)).isoformat()])

    @property
    def storage_option(self) -> str | None:
        """Return the storage to name in a command that continues a run; memory if none can."""
        return self.storage if self.location.engine.shared else MEMORY

    def ask(self, question: Callable[[Agent], Coroutine[Any, Any, Result]], *, tells: bool = False) -> Result:
        """Return the result of a question to an agent without tools, whose model is never called.

        `tells`: it delivers the news of the command's runs.
        """

        async def open_and_ask() -> Result:
            async with agent_without_tools(self.config, tells=tells) as agent:
                return await question(agent)

        return asyncio.run(open_and_ask())

    def look(self, question: Callable[[Agent], Coroutine[Any, Any, Result]]) -> Result | None:
        """Do the same as `ask`, but return None if there is no database yet: reading must not create one."""
        return self.ask(question) if self.readable() else None

    def exists(self) -> bool:
        """Return whether there is a database."""
        return self.location.exists()

    def readable(self) -> bool:
        """Return whether there is anything to read. Raises ConfigError if a named database is missing."""
        if self.storage and not self.exists():
            raise ConfigError(f"there is no database {self.location.display}")
        return self.exists()

    def thread(self, thread: str | None, states: Collection[str] = ()) -> ThreadInfo:
        """Return the thread with this id or id prefix; without one the latest in these states."""
        if thread is not None and not thread.strip():
            raise UnknownThread("the thread id is empty; `donewhen threads` lists all")

        async def find() -> list[ThreadInfo]:
            storage = open_storage(self.config.storage, key=self.config.key)
            found = await list_threads(storage, MOST_MATCHES if thread else 1, status=states, prefix=thread or "")
            if thread and found.cursor:  # the one with this id may be among those that were left out
                async with storage.reader() as (_, store):
                    row = await store.threads.get(thread)
                return [read_info(thread, row)] if row else found
            return found

        if not self.readable():
            named = f"there is no thread {thread!r}: " if thread else ""
            raise UnknownThread(f"{named}nothing was run yet")
        threads = asyncio.run(find())
        if exact := [info for info in threads if info.thread_id == thread] or threads[: not thread]:
            return exact[0]
        if len(threads) > 1:
            raise UnknownThread(f"several threads begin with {thread!r}: {', '.join(i.thread_id for i in threads[:5])}")
        if not threads:
            problem = "no run waits or was cut off" if states else "nothing was run yet"
            problem = f"there is no thread {thread!r}" if thread else problem
            raise UnknownThread(f"{problem}; `donewhen threads` lists all")
        return threads[0]

    def finish(self, row: Mapping[str, Any], lines: Iterable[str] = (), nothing: str = "") -> Exit:
        """Print an object with `--json`, else the lines; if there are none, `nothing` on stderr."""
        return print_row(row, lines, nothing, json=self.json)
