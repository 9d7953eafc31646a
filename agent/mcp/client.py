"""Tools of MCP servers, with one open session per server (extra `mcp`)."""

import asyncio
import collections
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.config import McpServer, read_servers
from donewhen.agent.tools import described_tool
from donewhen.graph.sync import run_in_shared_loop
from donewhen.graph.tools.rendering import describe_error
from donewhen.state.errors import ConfigError
from donewhen.state.secrets import redact

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.types import CallToolResult, ContentBlock, Tool

STOP_SECONDS = 5.0
"""Seconds that a server has to stop before its task is cancelled and the SDK kills the process."""
END_SECONDS = 1.0
"""Seconds to wait for the error of a lost session."""
SESSION_OVER = 32600
"""The SDK's code for a session that a restarted remote server does not know."""
ENDED = "it ended without an answer"
SLOW_SECONDS = 2.0
"""Seconds after which people are told that a server is still starting."""
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


class ServerLost(Exception):
    """A server, or the connection to it, was lost during a call, so the outcome is unknown.

    Its cause may prove that the call was never sent.
    """


class _NotSent(Exception):
    """The session had ended before the call could be sent."""


class McpServers:
    """The MCP servers of a configuration: `async with McpServers(config) as servers: servers.tools`.

    `config` is the usual `{"mcpServers": {name: {command, args, env} | {url, headers, type}}}` or the path of a JSON
    file that holds it. `${NAME}` in it is taken from `environment`. A stdio server gets the variables of its `env`
    and the few that every program needs, nothing else. A tool whose name another server's tool has, or that is
    in `reserved`, is called `server_tool`. Raises ConfigError, naming the server, if one does not start within
    `start_seconds`; the others are stopped again; `slow` is told the name of one that takes longer than 2 seconds.
    Sessions live in the event loop of `wait`, so that their tools answer in any loop, also in one that is blocked by a
    `wait`. A server that dies later makes the calls at work fail, nothing else; the next call starts it again. That a
    tool only reads is believed of stdio servers, which have the user's rights anyway, and of remote ones with
    `"trust": true`.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path,
        *,
        environment: Mapping[str, str] | None = None,
        reserved: Collection[str] = (),
        start_seconds: float = 30.0,
        slow: Callable[[str], None] = lambda name: None,
    ) -> None:
        connections = read_servers(config, environment or {})
        self._servers = [_Server(name, connection, slow) for name, connection in connections.items()]
        self._reserved = frozenset(reserved)
        self._start_seconds = start_seconds
        self.tools: list[BaseTool] = []
        """The tools of all servers; empty outside `async with`."""

    async def __aenter__(self) -> Self:
        await run_in_shared_loop(self._open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all servers; their tools fail from now on."""
        self.tools = []
        await run_in_shared_loop(self._close())

    async def _open(self) -> None:
        try:
            starts = [server.start(self._start_seconds) for server in self._servers]
            problems = [problem for problem in await asyncio.gather(*starts) if problem]
            if problems:
                raise ConfigError("; ".join(problems))
            self.tools = self._name_tools()
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))

    def _name_tools(self) -> list[BaseTool]:
        listed = [(server, tool, _fit(tool.name)) for server in self._servers for tool in server.listed]
        count = collections.Counter(name for _, _, name in listed)
        return [
            server.tool(tool, _fit(f"{server.name}_{name}") if count[name] > 1 or name in self._reserved else name)
            for server, tool, name in listed
        ]


class _Server:
    """One server and its session, both owned by one task, because the SDK's scopes must be left where they were
    entered.
    """

    def __init__(self, name: str, connection: McpServer, slow: Callable[[str], None]) -> None:
        self.name = name
        self._slow = slow
        self.listed: list[Tool] = []
        self._trusted = "command" in connection or connection.get("trust") is True
        self._connection = {key: value for key, value in connection.items() if key != "trust"}
        self._starting = asyncio.Lock()
        self._seconds = 0.0
        self._lost = self._stopped = False
        self._session: ClientSession | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._problem = ""
        self._fault: BaseException | None = None
        """The error that ended the session."""
        self._under_way: list[_Call] = []

    async def start(self, seconds: float) -> str:
        """Wait until the server answers; return what went wrong, or ""."""
        self._seconds = seconds
        self._ready, self._stop, self._problem, self._fault = asyncio.Event(), asyncio.Event(), "", None
        self._owner = asyncio.create_task(self._own(), name=f"mcp {self.name}")
        waiting = asyncio.create_task(self._ready.wait())
        either, patience = {waiting, self._owner}, min(SLOW_SECONDS, seconds)
        if not (await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED))[0]:
            self._slow(self.name)
            await asyncio.wait(either, timeout=seconds - patience, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._session is not None:
            return ""
        if not self._owner.done():
            self._problem = f"no answer within {seconds:g} seconds"
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=STOP_SECONDS)
        return f"the MCP server {self.name!r} did not start: {self._problem}"

    async def _again(self) -> str:
        """Restart it after it was lost."""
        await self._end()
        problem = await self.start(self._seconds)
        self._lost = bool(problem)
        return problem

    async def stop(self) -> None:
        """End the session and the process for good."""
        self._stopped = True
        await self._end()

    async def _end(self) -> None:
        if self._owner is None:
            return
        self._stop.set()
        await asyncio.wait({self._owner}, timeout=STOP_SECONDS)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=STOP_SECONDS)

    async def _own(self) -> None:
        with _Tail() as errors:
            try:
                async with _session(self._connection, errors.file) as session:
                    await session.initialize()
                    self.listed = await _list(session)
                    self._session = session
                    self._ready.set()
                    await self._stop.wait()
            except BaseException as error:  # a task's end must not take the run along
                why = self._problem or (ENDED if _has_ended(error) else describe_error(error, 500))
                self._problem, self._fault = redact(why + errors.last_words()), error
            finally:
                self._session = None

    def tool(self, about: "Tool", name: str) -> BaseTool:
        """Return the LangChain tool for one of the server's tools."""
        said = {**about.model_dump(exclude_none=True), "effect": None}
        made = described_tool(about.name, said, self._call, name)
        made.response_format = "content_and_artifact"
        hints = dict(made.metadata or {})
        if not self._trusted:  # a hint may only make us more careful
            hints = {key: hints[key] for key in ("title", "openWorldHint") if hints.get(key)}
        made.metadata = {"server": self.name, **hints}
        return made

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        return await run_in_shared_loop(self._make_call(name, arguments))

    async def _make_call(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        """Call the tool, in a new session if this one ended while idle, such as during a pause."""
        for _ in range(2):
            try:
                return await self._call_once(name, arguments)
            except _NotSent:
                self._lost = True
        raise ToolException(self._describe_loss())

    async def _call_once(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        import anyio
        from mcp import McpError
        from mcp.types import CONNECTION_CLOSED

        async with self._starting:
            if self._lost and not self._stopped and (problem := await self._again()):
                raise ToolException(problem)
        session, owner = self._session, self._owner
        if session is None or owner is None or owner.done():
            raise ToolException(self._describe_loss())
        call = _Call(asyncio.create_task(_send(session, name, arguments)))
        self._begin(call)
        try:
            await asyncio.wait({call.task, owner}, return_when=asyncio.FIRST_COMPLETED)
            if call.task.done():
                return _answer(call.task.result())
        except (anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
            raise _NotSent from error
        except McpError as error:
            if error.error.code == SESSION_OVER:
                raise _NotSent from error
            if error.error.code != CONNECTION_CLOSED:
                raise ToolException(error.error.message) from error
        finally:
            self._under_way.remove(call)
            call.task.cancel()
        if "command" not in self._connection:
            await asyncio.wait({owner}, timeout=END_SECONDS)
        raise ServerLost(self._describe_loss()) from (self._fault if call.alone else None)

    def _begin(self, call: "_Call") -> None:
        """Register a call. Concurrent calls share the session, so its error may come from another one."""
        for other in self._under_way:
            call.alone = other.alone = False
        self._under_way.append(call)

    def _describe_loss(self) -> str:
        self._lost = True
        why = f" ({self._problem})" if self._problem else ""
        return f"the MCP server {self.name!r} is not there any more{why}"


def _has_ended(error: BaseException) -> bool:
    """Return whether an error only says that the other side is gone."""
    import anyio
    from mcp import McpError
    from mcp.types import CONNECTION_CLOSED

    if isinstance(error, BaseExceptionGroup):
        return all(map(_has_ended, error.exceptions))
    gone = isinstance(error, anyio.BrokenResourceError | anyio.ClosedResourceError | anyio.EndOfStream)
    return gone or (isinstance(error, McpError) and error.error.code == CONNECTION_CLOSED)


@dataclass(eq=False)
class _Call:
    """A call in progress."""

    task: "asyncio.Task[CallToolResult]"
    alone: bool = True
    """True if no other call was in progress at the same time."""


async def _send(session: "ClientSession", name: str, arguments: dict[str, Any]) -> "CallToolResult":
    """Call the tool and return its answer; `session.call_tool` would refuse an answer that does not fit its schema."""
    from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest

    request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
    return await session.send_request(ClientRequest(request), CallToolResult)


@asynccontextmanager
async def _session(connection: McpServer, errors: IO[str]) -> "AsyncIterator[ClientSession]":
    """Yield an open session. A local server's stderr goes to a file instead of the user's screen."""
    try:
        from langchain_mcp_adapters.sessions import create_session
        from mcp import ClientSession, StdioServerParameters
        from mcp.client.stdio import stdio_client
    except ImportError as error:
        raise ConfigError("MCP servers need the extra: pip install 'donewhen[mcp]'") from error
    if "command" not in connection:
        remote: Any = connection
        async with create_session(remote) as session:
            yield session
        return
    parameters = StdioServerParameters(**connection)
    async with stdio_client(parameters, errlog=errors) as (read, write), ClientSession(read, write) as session:  # type: ignore[arg-type]
        yield session


async def _list(session: "ClientSession") -> "list[Tool]":
    from mcp.types import PaginatedRequestParams

    tools: list[Tool] = []
    cursor: str | None = None
    for _ in range(100):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        tools += page.tools
        cursor = page.nextCursor
        if not cursor:
            break
    return tools


def _answer(result: "CallToolResult") -> tuple[Any, Any]:
    """Return content and artifact of a result; raise an error result."""
    content: Any = [_block(block) for block in result.content]
    if result.isError:
        texts = [block["text"] for block in content if block["type"] == "text"]
        raise ToolException("\n".join(texts) or "the tool failed and did not say why")
    if result.structuredContent is None:
        return content or "", None
    return content or result.structuredContent, {"structured_content": result.structuredContent}


def _block(block: "ContentBlock") -> dict[str, Any]:
    if block.type == "image" or block.type == "audio":
        return {"type": block.type, "base64": block.data, "mime_type": block.mimeType}
    if block.type != "resource":
        text = block.text if block.type == "text" else f"[resource {block.name}: {block.uri}]"
        return {"type": "text", "text": text}
    resource: Any = block.resource
    if hasattr(resource, "text"):
        return {"type": "text", "text": resource.text}
    return {"type": "file", "base64": resource.blob, "mime_type": resource.mimeType or ""}


def _fit(name: str) -> str:
    """Return the name in a form that models accept."""
    return _NOT_IN_NAMES.sub("_", name)[:64]


class _Tail:
    """A file that a server may write to without end; only its end is kept, in memory."""

    def __enter__(self) -> Self:
        self._end, write = os.pipe()
        os.set_blocking(self._end, False)
        self.file: IO[str] = os.fdopen(write, "w", encoding="utf-8")
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._end, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        self.file.close()
        os.close(self._end)

    def _read(self) -> bool:
        try:
            more = os.read(self._end, 65_536)
        except BlockingIOError:
            return False
        self._kept = (self._kept + more)[-2400:]
        return bool(more)

    def last_words(self) -> str:
        """Return the end of the output as a clause; "" if there is none."""
        while self._read():
            continue
        said = self._kept.decode("utf-8", "replace")[-600:].strip()
        return f"; it said: {said}" if said else ""
