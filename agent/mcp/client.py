"""Tools of MCP servers, with one open session per server (extra `mcp`)."""

import asyncio
import collections
import functools
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from langchain_core.tools import BaseTool, ToolException
from langgraph.types import interrupt

from donewhen.agent.config import McpServer, read_servers
from donewhen.agent.mcp.line import Exchange, Line, current
from donewhen.agent.tools import described_tool
from donewhen.graph.executors.relay import ask_again, is_form
from donewhen.graph.sync import run_in_shared_loop
from donewhen.graph.tools.certain import Unanswered, was_never_sent
from donewhen.graph.tools.rendering import describe_error
from donewhen.graph.tools.toolbox import Toolbox, fits_any, legal_name
from donewhen.state.errors import ConfigError, DoneWhenError, ToolError
from donewhen.state.reading.decisions import NAMES
from donewhen.state.secrets import redact

if TYPE_CHECKING:
    import httpx2
    from mcp import Client, MCPError
    from mcp.client import ClientRequestContext
    from mcp.types import CallToolResult, ContentBlock, ElicitRequestParams, ElicitResult, ErrorData, Tool

STOP_SECONDS = 5.0
"""Seconds that a server has to stop before its task is cancelled and the SDK kills the process."""
END_SECONDS = 1.0
"""Seconds to wait for the error of a lost session."""
READ_SECONDS = 300.0
"""Seconds for which a remote server may be silent while a call is under way."""
YES = "yes"
"""The option by which a person accepts a question that has no form."""
ENDED = "it ended without an answer"
REFUSED = "; it demands a login ({}): give a token in headers, or auth"
REJECTED = "; it rejects the login that it was given ({}): check the token in headers, or auth"
SLOW_SECONDS = 2.0
"""Seconds after which people are told that a server is still starting."""
MOST_PAGES = 100
"""The most pages of a list of tools."""
log: logging.Logger = logging.getLogger("donewhen.tools")
MOST_BESIDE = 500
"""The most characters of the data beside an error."""
_plain_name = functools.partial(legal_name, distinct=False)


class ServerLost(Unanswered):
    """A server, or the connection to it, was lost during a call."""


class _NotSent(Exception):
    """The session had ended before the call could be sent."""


class McpServers:
    """The MCP servers of a configuration: `async with McpServers(config) as servers: servers.tools`.

    `config` is the usual `{"mcpServers": {name: {command, args, env} | {url, headers, type}}}` or the path of a JSON
    file that holds it. `${NAME}` in it is taken from `environment`, by default the process's. A stdio server gets the
    variables of its `env` and the few that every program needs, nothing else. A tool whose name another server's tool
    has, or that is in `reserved`, is called `server_tool`. `arguments`: by tool, or pattern such as `put_*`, arguments
    that models do not see: `{"put_item": {"state_key": "s1"}}`; None leaves one out of every call.

    Raises ConfigError, naming the server, if one does not start within `start_seconds`, and stops the others; with
    `optional`, `missing` says which did not start, and why. `slow` is called with the name of a server that takes
    longer than 2 seconds. `auth`: by server, how to log in, such as the MCP SDK's `OAuthClientProvider`, which keeps
    the tokens. Pass the object itself to `Agent` or `agent.tools.add`, and the agent always has the current tools of
    the servers.

    Sessions live in the event loop of `wait`, so their tools work in any loop, even in one that a `wait` blocks. If a
    server dies later, only its running calls fail; the next call starts it again. The hint that a tool only reads
    counts from stdio servers, which have the user's rights anyway, and from remote ones with `"trust": true`. A
    question in the middle of a call (elicitation) becomes a question of the run, by LangGraph's `interrupt`. Sampling
    and roots are not offered.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | str | Path,
        *,
        environment: Mapping[str, str] | None = None,
        reserved: Collection[str] = (),
        start_seconds: float = 30.0,
        slow: Callable[[str], None] = lambda name: None,
        optional: bool = False,
        auth: "Mapping[str, httpx2.Auth] | None" = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        connections = read_servers(config, environment)
        for name, login in (auth or {}).items():
            if "url" not in connections.get(name, {}):
                raise ConfigError(f"auth names {name!r}, which is no remote MCP server of the configuration")
            connections[name]["auth"] = login
        self._arguments = {**(arguments or {})}
        self._servers = [_Server(name, each, slow, self._refresh) for name, each in connections.items()]
        self._subscribers: list[Callable[[], None]] = []
        self._optional = optional
        self._reserved = frozenset(reserved) | NAMES
        self._start_seconds = start_seconds
        self.tools: list[BaseTool] = []
        """The tools of all servers; empty outside `async with`."""
        self.unusable: dict[str, str] = {}
        """Tools that no model can be offered, such as those with a broken schema, with the reason."""
        self.missing: list[str] = []
        """Why servers did not start, with `optional`."""

    async def __aenter__(self) -> Self:
        _check_extra()
        await run_in_shared_loop(self._open())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop all servers; calls of their tools fail afterwards."""
        await run_in_shared_loop(self._close())
        self.tools = []
        self._notify()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function whenever `tools` has changed, from a thread of DoneWhen. `Agent(tools=[servers])` does."""
        self._subscribers.append(changed)

    async def _open(self) -> None:
        try:
            starts = [server.start(self._start_seconds, again=True) for server in self._servers]
            self.missing = [problem for problem in await asyncio.gather(*starts) if problem]
            if self.missing and not self._optional:
                raise ConfigError("; ".join(self.missing))
            self._take_tools()
        except BaseException:
            await self._close()
            raise

    def _take_tools(self) -> None:
        self.tools = self._name_tools()
        self._notify()

    def _refresh(self) -> None:
        """Take the tools of a server that changed them while it is in use."""
        try:
            self._take_tools()
        except DoneWhenError as error:
            log.warning("%s", error)

    def _notify(self) -> None:
        for changed in self._subscribers:
            changed()

    async def _close(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))

    def _name_tools(self) -> list[BaseTool]:
        """Return the tools of all servers under names that models accept and that differ; `unusable` has the others.

        Raises ConfigError for fixed arguments of no tool, or that their tool does not have.
        """
        for server in self._servers:
            server.fix_arguments(self._arguments)
        if not self.missing:
            names = {tool.name for server in self._servers for tool in server.listed}
            if unknown := [each for each in self._arguments if not fits_any(each, names)]:
                names_text = ", ".join(sorted(names)) or "none"
                raise ConfigError(
                    f"arguments names a tool that no MCP server has: {unknown[0]}; there are: {names_text}"
                )
        tools: list[BaseTool] = []
        self.unusable = {name: why for server in self._servers for name, why in server.left_out.items()}
        for server, about, name in self._choose_names():
            try:
                tool = server.tool(about, name)
                Toolbox([tool])
            except ToolError as error:
                self.unusable[name] = str(error)
                log.warning("the MCP server %r: %s", server.name, error)
            else:
                tools.append(tool)
        return tools

    def _choose_names(self) -> "list[tuple[_Server, Tool, str]]":
        """Return each tool with its name for models; where changed names clash, they get a hash."""
        listed = [(server, tool) for server in self._servers for tool in server.listed]
        plain = {(server.name, _plain_name(tool.name)) for server, tool in listed}
        servers_with = collections.Counter(name for _, name in plain)
        wanted = []
        for server, tool in listed:
            name = _plain_name(tool.name)
            long = servers_with[name] > 1 or name in self._reserved
            wanted.append(f"{server.name}_{tool.name}" if long else tool.name)
        count = collections.Counter(map(_plain_name, wanted))
        return [
            (server, tool, legal_name(name, distinct=count[_plain_name(name)] > 1))
            for (server, tool), name in zip(listed, wanted, strict=True)
        ]


class _Server:
    """One server and its session, owned by one task, because the SDK's scopes must be left where they were entered."""

    def __init__(
        self, name: str, connection: McpServer, slow: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self.name = name
        self._slow, self._changed = slow, changed
        self.listed: list[Tool] = []
        self.left_out: dict[str, str] = {}
        """Tools that it lists without what a call needs, with the reason."""
        self._trusted = "command" in connection or connection.get("trust") is True
        self.mode: Literal["auto", "legacy"] = "legacy" if connection.get("legacy") else "auto"
        """`legacy`: use only the protocol of before 2026-07-28."""
        own = ("trust", "legacy", "effects", "arguments")
        self._connection = {key: value for key, value in connection.items() if key not in own}
        self._effects: dict[str, str] = connection.get("effects", {})
        self._own_arguments: dict[str, dict[str, Any]] = connection.get("arguments", {})
        self._fixed: dict[str, dict[str, Any]] = {}
        """By tool, the arguments that no model fills."""
        self._starting = asyncio.Lock()
        self._seconds = 0.0
        self._lost = self._stopped = False
        self._refused: int | None = None
        """The HTTP status by which the server refused the credentials."""
        self._client: Client | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._stop = asyncio.Event()
        self._problem = ""
        self._fault: BaseException | None = None
        """The error that ended the session."""
        self._under_way: list[_ServerCall] = []
        self._one_by_one = False
        """True if calls take turns, because the server asked something without saying for which of several calls."""
        self._turn, self._left = asyncio.Lock(), asyncio.Event()

    async def start(self, seconds: float, *, again: bool = False) -> str:
        """Wait until the server answers; return what went wrong, or "". `again`: also if it was stopped for good."""
        self._seconds, self._stopped = seconds, self._stopped and not again
        self._ready, self._stop, self._problem, self._fault = asyncio.Event(), asyncio.Event(), "", None
        self._owner = asyncio.create_task(self._run_session(), name=f"mcp {self.name}")
        waiting = asyncio.create_task(self._ready.wait())
        either, patience = {waiting, self._owner}, min(SLOW_SECONDS, seconds)
        if not (await asyncio.wait(either, timeout=patience, return_when=asyncio.FIRST_COMPLETED))[0]:
            self._slow(self.name)
            await asyncio.wait(either, timeout=seconds - patience, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._client is not None:
            return ""
        if not self._owner.done():
            self._problem = f"no answer within {seconds:g} seconds"
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=STOP_SECONDS)
        return f"the MCP server {self.name!r} did not start: {self._problem}"

    async def _restart(self) -> str:
        """Restart the server after it was lost; return what went wrong, or ""."""
        await self._end_session()
        problem = await self.start(self._seconds)
        self._lost = bool(problem)
        return problem

    async def stop(self) -> None:
        """End the session and the process for good."""
        self._stopped = True
        await self._end_session()

    async def _end_session(self) -> None:
        if self._owner is None:
            return
        self._stop.set()
        await asyncio.wait({self._owner}, timeout=STOP_SECONDS)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=STOP_SECONDS)

    async def _run_session(self) -> None:
        """Hold a session until it ends. If the server ends at the newest protocol's first request, try the older one.

        At an error, the SDK itself falls back to the older protocol; `Line` turns silence into such an error.
        """
        await self._hold_session()
        if self.mode == "auto" and not self._ready.is_set() and self._fault is not None and _has_ended(self._fault):
            self.mode, self._problem, self._fault = "legacy", "", None
            await self._hold_session()
            if not self._ready.is_set():
                self.mode = "auto"

    async def _hold_session(self) -> None:
        import anyio

        self._tools_changed = asyncio.Event()
        with _Tail() as errors:
            try:
                async with _open_client(self._connection, errors.file, self) as client:
                    before, self.listed = self.listed, await _list_tools(client, self.name)
                    self._client = client
                    self._ready.set()
                    if client.session.initialize_result is not None:  # it need not be probed again
                        self.mode = "legacy"
                    if before and self.listed != before:  # it was started again
                        self._changed()
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(self._watch, client)
                        await self._stop.wait()
                        tasks.cancel_scope.cancel()
            except BaseException as error:  # kept, so that this task's end does not end the run
                why = self._problem or (ENDED if _has_ended(error) else describe_error(error, 500))
                given = any(self._connection.get(name) for name in ("headers", "auth"))
                why += (REJECTED if given else REFUSED).format(self._refused) if self._refused else ""
                self._problem, self._fault = redact(why + errors.describe_output()), error
            finally:
                self._client = None

    async def _watch(self, client: "Client") -> None:
        """List the tools again whenever the server says that they changed."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        offered = client.server_capabilities.tools
        if not (offered and offered.list_changed):
            return
        async with AsyncExitStack() as stack:
            with suppress(ListenNotSupportedError, SubscriptionLost, MCPError):  # older protocols need not support it
                await stack.enter_async_context(client.listen(tools_list_changed=True))
                self._tools_changed.set()  # changes from before this subscription
            while await self._tools_changed.wait():
                self._tools_changed.clear()
                try:
                    before, self.listed = self.listed, await _list_tools(client, self.name)
                except MCPError as error:
                    log.warning("the MCP server %r cannot list its changed tools: %s", self.name, error.message)
                else:
                    if self.listed != before:
                        self._changed()

    async def on_response(self, response: "httpx2.Response") -> None:
        """Note whether the server refuses the credentials, and which call the response is for."""
        self._refused = response.status_code if response.status_code in (401, 403) else None
        if exchange := current.get():
            exchange.reply = response

    async def on_message(self, message: Any) -> None:
        """Handle a notification of the server."""
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._tools_changed.set()

    def tool(self, about: "Tool", name: str) -> BaseTool:
        """Return the LangChain tool for one of the server's tools."""
        effect = next((self._effects[each] for each in self._effects if fits_any(each, (about.name,))), None)
        schema, fixed = dict(about.input_schema), self._fixed.get(about.name) or {}
        schema["properties"] = {name: each for name, each in _properties(about).items() if name not in fixed}
        if isinstance(required := schema.get("required"), list):
            schema["required"] = [name for name in required if name not in fixed]
        listed = about.model_dump(by_alias=True, exclude_none=True)
        described = {**listed, "inputSchema": schema if fixed else about.input_schema, "effect": effect}
        made = described_tool(about.name, described, self._call, name)
        made.response_format = "content_and_artifact"
        hints = dict(made.metadata or {})
        if not self._trusted:  # an untrusted hint may only add caution
            hints = {key: hints[key] for key in ("title", "openWorldHint", "effect", "output_schema") if hints.get(key)}
        made.metadata = {"server": self.name, **hints}
        return made

    def fix_arguments(self, fixed_arguments: Mapping[str, Mapping[str, Any]]) -> None:
        """Read which arguments of its tools are fixed. Raises ConfigError for one that a tool does not have."""
        self._fixed, names = {}, [tool.name for tool in self.listed]
        unknown = [each for each in (*self._effects, *self._own_arguments) if not fits_any(each, names)]
        if unknown and self._client:  # nobody knows the tools of a server that did not start
            log.warning("the configuration of the MCP server %r names %r, which fits no tool", self.name, unknown[0])
        for pattern, fixed in [*fixed_arguments.items(), *self._own_arguments.items()]:
            for tool in self.listed:
                if not fits_any(pattern, (tool.name,)):
                    continue
                here = {name: value for name, value in fixed.items() if name in _properties(tool)}
                if (unknown := [name for name in fixed if name not in here]) and pattern == tool.name:
                    properties = ", ".join(_properties(tool)) or "none"
                    raise ConfigError(f"arguments of {tool.name!r} names {unknown[0]!r}; it takes: {properties}")
                self._fixed[tool.name] = {**self._fixed.get(tool.name, {}), **here}

    async def _call(self, name: str, arguments: dict[str, Any]) -> tuple[Any, Any]:
        """Call the tool and ask the server's questions; without an answer, cancel the call, to repeat it later."""
        if fixed := self._fixed.get(name):
            arguments = {key: value for key, value in {**arguments, **fixed}.items() if fixed.get(key, ...) is not None}
        reads = bool(self._trusted and any(tool.name == name and _only_reads(tool) for tool in self.listed))
        call, number = _ServerCall(name, arguments, reads), itertools.count()
        try:
            while (question := await run_in_shared_loop(self._advance(call))) is not None:
                ask_again(next(number), question.value, question.schema)
                question.answer(interrupt(question.value, response_schema=question.schema))
            return call.result
        finally:
            if call.task and not call.task.done():
                await run_in_shared_loop(self._give_up(call))

    async def _advance(self, call: "_ServerCall") -> "_Question | None":
        """Return the server's next question; None if the call has its result.

        If the session ended while idle, for instance during a pause, the call is made in a new one. A call that only
        reads is repeated alone if it was not clear whether the server's question belonged to it.
        """
        for _ in range(3):
            try:
                return await self._advance_once(call)
            except _NotSent:
                self._lost = True
            except ToolException:
                if not (call.may_have_asked and call.reads):
                    raise
                call.may_have_asked = False
            call.task, call.sent, call.error, call.reply = None, False, None, None
        raise ToolException(self._describe_loss())

    async def _advance_once(self, call: "_ServerCall") -> "_Question | None":
        if call.task is None:
            async with self._starting:
                if self._lost and not self._stopped and (problem := await self._restart()):
                    raise ToolException(problem)
            if self._one_by_one:
                await self._take_turn(call)
            if self._client is None or self._owner is None or self._owner.done():
                self._unregister(call)
                raise ToolException(self._describe_loss())
            call.owner, call.task = self._owner, asyncio.create_task(_send(self._client, call))
            self._register(call)
        asks = asyncio.create_task(call.questions.get())
        try:
            await asyncio.wait({asks, call.task, call.owner}, return_when=asyncio.FIRST_COMPLETED)
            if call.task.done():
                call.result = _read_result(call.task.result())
                return None
            if asks.done():
                return asks.result()
        except ToolException:
            raise
        except Exception as error:
            if (meant := self._explain(error, call)) is not None:
                raise meant from None  # the error by its meaning, not the SDK's
        finally:
            asks.cancel()
            if call.task.done() or call.owner.done():
                self._unregister(call)
        if "command" not in self._connection:
            await asyncio.wait({call.owner}, timeout=END_SECONDS)
        if call.alone and self._fault is not None and was_never_sent(self._fault):
            raise ToolException(self._describe_loss())
        raise ServerLost(self._describe_loss())

    def _explain(self, error: Exception, call: "_ServerCall") -> Exception | None:
        """Return the exception that an error of the SDK means for a call; None if the session is lost."""
        import anyio
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED

        gone = isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError) or (
            isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and call.error is None
        )
        if not call.sent:
            return _NotSent() if gone else ToolException(f"it could not be sent: {describe_error(error)}")
        if call.has_lost_its_session:
            return _NotSent()
        message = _words_of(error) if isinstance(error, MCPError) else describe_error(error)
        if call.was_refused:
            self._lost |= call.may_have_lost_its_session  # the next call begins another one
            return ToolException(message)
        if isinstance(error, MCPError):
            return None if gone else Unanswered(f"{message or 'no message'} (error {error.code} of {self.name!r})")
        return None if gone else Unanswered(f"the answer of {self.name!r} cannot be read: {describe_error(error)}")

    async def _give_up(self, call: "_ServerCall") -> None:
        """Cancel a running call, also at the server, and close the questions that nobody answered."""
        if call.task and not call.task.done():
            call.task.cancel()
            await asyncio.wait({call.task}, timeout=END_SECONDS)
        call.close_questions()
        self._unregister(call)

    async def on_question(
        self, context: "ClientRequestContext", asked: "ElicitRequestParams"
    ) -> "ElicitResult | ErrorData":
        """Pass a question to the call that it belongs to, and return the person's answer."""
        from mcp.types import INVALID_REQUEST, ErrorData

        alone = self._under_way[0] if len(self._under_way) == 1 else None
        call = asked_in if isinstance(asked_in := current.get(), _ServerCall) else alone
        if call is None:  # older protocols do not say for which call they ask
            self._one_by_one = True
            for each in self._under_way:
                each.may_have_asked = True
            return ErrorData(code=INVALID_REQUEST, message="several calls are under way; ask when one is")
        form = getattr(asked, "requested_schema", None) or {}
        if form.get("properties") and not is_form(form):
            return ErrorData(code=INVALID_REQUEST, message="this form is too long for people, or no JSON Schema")
        return await call.ask(self.name, asked)

    def _register(self, call: "_ServerCall") -> None:
        """Register a call; with several calls in one session, an error may come from any of them."""
        for other in self._under_way:
            call.alone = other.alone = False
        self._under_way.append(call)

    async def _take_turn(self, call: "_ServerCall") -> None:
        """Wait until no other call is under way."""
        await self._turn.acquire()
        call.has_turn = True
        try:
            while self._under_way:
                self._left.clear()
                await self._left.wait()
        except BaseException:
            self._unregister(call)
            raise

    def _unregister(self, call: "_ServerCall") -> None:
        if call in self._under_way:
            self._under_way.remove(call)
            self._left.set()
        if call.has_turn:
            call.has_turn = False
            self._turn.release()

    def _describe_loss(self) -> str:
        self._lost = True
        why = f" ({self._problem})" if self._problem else ""
        return f"the MCP server {self.name!r} is not there any more{why}"


def _words_of(error: "MCPError") -> str:
    """Return the message of a server's error with what it says beside it, such as which value is wrong."""
    beside = json.dumps(error.data, ensure_ascii=False, default=str)[:MOST_BESIDE] if error.data else ""
    return f"{error.message}: {beside}" if beside and error.message else error.message or beside


def _check_extra() -> None:
    """Raise ConfigError if the extra is not installed, without importing it."""
    try:
        installed = find_spec("mcp")
    except ValueError:
        installed = None
    if installed is None:
        raise ConfigError("MCP servers need the extra: pip install 'donewhen[mcp]'")


def _has_ended(error: BaseException) -> bool:
    """Return whether an error only means that the other side is gone."""
    import anyio
    import httpx2
    from mcp import MCPError
    from mcp.types import CONNECTION_CLOSED

    if isinstance(error, BaseExceptionGroup):
        return all(map(_has_ended, error.exceptions))
    gone = isinstance(error, anyio.BrokenResourceError | anyio.ClosedResourceError | anyio.EndOfStream)
    gone = gone or isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError)
    return gone or (isinstance(error, MCPError) and error.code == CONNECTION_CLOSED)


@dataclass(eq=False)
class _Question:
    """A server's question to a person in the middle of a call."""

    value: dict[str, Any]
    """The value of the interrupt."""
    schema: dict[str, Any] | None
    """The JSON Schema of a form; None if the question takes a yes, or a link is to be opened."""
    reply: "asyncio.Future[ElicitResult]"

    def answer(self, answer: Any) -> None:
        """Give the person's answer to the server: a filled form or “yes” accepts, anything else declines."""
        from mcp.types import ElicitResult

        accepted = isinstance(answer, Mapping) if self.schema else answer == YES
        content = dict(answer) if accepted and self.schema else None
        result = ElicitResult(action="accept" if accepted else "decline", content=content)
        self.reply.get_loop().call_soon_threadsafe(_resolve, self.reply, result)


@dataclass(eq=False)
class _ServerCall(Exchange):
    """A call in progress."""

    name: str
    arguments: dict[str, Any]
    reads: bool
    """True if it changes nothing, so that it may be repeated."""
    task: "asyncio.Task[CallToolResult] | None" = None
    owner: Any = None
    """The task that owns the session in which it is made."""
    result: tuple[Any, Any] = ("", None)
    alone: bool = True
    """True if no other call was in progress at the same time."""
    may_have_asked: bool = False
    """True if an unanswered question of the server may have belonged to this call."""
    has_turn: bool = False
    questions: "asyncio.Queue[_Question]" = field(default_factory=asyncio.Queue)
    replies: "list[asyncio.Future[ElicitResult]]" = field(default_factory=list)

    async def ask(self, server: str, asked: "ElicitRequestParams") -> "ElicitResult":
        """Put the question and wait for its answer."""
        reply: asyncio.Future[ElicitResult] = asyncio.get_running_loop().create_future()
        self.replies.append(reply)
        schema, words = getattr(asked, "requested_schema", None), [f"{server} asks: {asked.message}"]
        if url := getattr(asked, "url", None):
            words.append(str(url))
        form = dict(schema) if schema and schema.get("properties") else None
        value: dict[str, Any] = {"question": "\n".join(words), "options": [] if form else [YES, "no"]}
        self.questions.put_nowait(_Question(value, form, reply))
        return await reply

    def close_questions(self) -> None:
        """Tell the server that its open questions get no answer now."""
        from mcp.types import ElicitResult

        for reply in self.replies:
            _resolve(reply, ElicitResult(action="cancel"))


def _properties(tool: "Tool") -> Mapping[str, Any]:
    properties = tool.input_schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _only_reads(tool: "Tool") -> bool:
    return bool(tool.annotations and tool.annotations.read_only_hint)


def _resolve(reply: "asyncio.Future[ElicitResult]", result: "ElicitResult") -> None:
    if not reply.done():
        reply.set_result(result)


async def _send(client: "Client", call: _ServerCall) -> "CallToolResult":
    current.set(call)
    return await client.call_tool(call.name, call.arguments)


@asynccontextmanager
async def _open_client(connection: McpServer, errors: TextIO, server: _Server) -> "AsyncIterator[Client]":
    """Yield an open client that calls `server` for questions and messages. A local server's stderr goes to `errors`."""
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.sse import sse_client
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    line = Line(server.name, server.left_out)
    async with AsyncExitStack() as stack:
        if "command" in connection:
            parameters: Any = {**connection, "encoding_error_handler": "replace"}
            transport = stdio_client(StdioServerParameters(**parameters), errlog=errors)
        elif connection["transport"] == "sse":
            transport = sse_client(connection["url"], headers=connection.get("headers"), auth=_choose_auth(connection))
        else:
            seconds = httpx2.Timeout(30, read=READ_SECONDS)
            options: Any = {"headers": connection.get("headers"), "auth": _choose_auth(connection)}
            hooks = [server.on_response, line.on_response]
            http = httpx2.AsyncClient(timeout=seconds, event_hooks={"response": hooks}, **options)
            await stack.enter_async_context(http)
            transport = streamable_http_client(connection["url"], http_client=http)
        callbacks: Any = {"elicitation_callback": server.on_question, "message_handler": server.on_message}
        client = Client(line.carry(transport), mode=server.mode, cache=None, **callbacks)
        async with client:
            # A result is used even if it does not fit the schema that the server declared for it.
            client.session.validate_tool_result = _accept_result  # type: ignore[method-assign]
            yield client


def _choose_auth(connection: McpServer) -> "httpx2.Auth | None":
    """Return how to log in to a remote server: the program's own `auth`, or a client's credentials."""
    credentials = connection.get("auth")
    if not isinstance(credentials, Mapping):
        return credentials
    from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

    return ClientCredentialsOAuthProvider(connection["url"], _Tokens(), **credentials)


class _Tokens:
    """The tokens of a session, in memory only."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def _accept_result(name: str, result: "CallToolResult") -> None:
    pass


async def _list_tools(client: "Client", server: str) -> "list[Tool]":
    """Return the server's tools, one of each name; a server that knows no tools, only prompts, has none."""
    from mcp import MCPError
    from mcp.types import METHOD_NOT_FOUND

    tools: dict[str, Tool] = {}
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        try:
            page = await client.list_tools(cursor=cursor)
        except MCPError as error:
            if error.code != METHOD_NOT_FOUND or tools:
                raise
            log.warning("the MCP server %r offers no tools", server)
            return []
        new = [tool for tool in page.tools if tool.name not in tools]
        for name, number in collections.Counter(tool.name for tool in new).items():
            if number > 1:
                log.warning("the MCP server %r lists %d tools called %r; the first is used", server, number, name)
        for tool in new:
            tools.setdefault(tool.name, tool)
        if not page.next_cursor:
            return [*tools.values()]
        if page.next_cursor == cursor or not new:
            break
        cursor = page.next_cursor
    log.warning("the MCP server %r lists its tools without end; the %d of them are used", server, len(tools))
    return [*tools.values()]


def _read_result(result: "CallToolResult") -> tuple[Any, Any]:
    """Return the content and artifact of a result. Raises ToolException for an error result."""
    content: Any = [_block(block) for block in result.content]
    if result.is_error:
        texts = [block["text"] for block in content if block["type"] == "text"]
        shown = json.dumps(result.structured_content, ensure_ascii=False) if result.structured_content else ""
        raise ToolException("\n".join(texts).strip() or shown or "the tool failed and did not say why")
    if result.structured_content is None:
        return content or "", None
    return content or result.structured_content, {"structured_content": result.structured_content}


def _block(block: "ContentBlock") -> dict[str, Any]:
    if block.type == "image" or block.type == "audio":
        return {"type": block.type, "base64": block.data, "mime_type": block.mime_type}
    if block.type != "resource":
        text = block.text if block.type == "text" else f"[resource {block.name}: {block.uri}]"
        return {"type": "text", "text": text}
    resource: Any = block.resource
    if hasattr(resource, "text"):
        return {"type": "text", "text": resource.text}
    return {"type": "file", "base64": resource.blob, "mime_type": resource.mime_type or ""}


class _Tail:
    """A file for a server's stderr, of any length; only its end is kept, in memory."""

    def __enter__(self) -> Self:
        self._pipe, write = os.pipe()
        os.set_blocking(self._pipe, False)
        self.file: TextIO = os.fdopen(write, "w", encoding="utf-8")
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._pipe, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        self.file.close()
        os.close(self._pipe)

    def _read(self) -> bool:
        try:
            more = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return False
        self._kept = (self._kept + more)[-2400:]
        return bool(more)

    def describe_output(self) -> str:
        """Return the end of the output as a clause; "" if there is none."""
        while self._read():
            continue
        text = self._kept.decode("utf-8", "replace")[-600:].strip()
        return f"; it said: {text}" if text else ""
