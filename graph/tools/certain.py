"""Errors that prove that a call had no effect. After any other error the outcome is unknown (X24).

An error is judged by its class and by where it was raised, never by its text. These are proof: the tool's own
deliberate error, a refusal by the service, a connection that was never made, and a mistake in the tool's own code that
came before it called anything. An error while a reply is read is no proof: the effect came before the reply.
"""

import dis
import functools
import json
import opcode
import os
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any

from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError

MOST = 50
"""The most errors of one chain that are examined."""
OWN_MISTAKES = (ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError)
"""Wrong arguments and logic, if a `raise` of the tool's own code says so, or if it had called nothing before."""
REPLY_ERRORS = (json.JSONDecodeError, UnicodeDecodeError, ValidationError)
"""Kinds of ValueError that come from reading a reply, whoever raises them."""
NOT_THERE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)
"""Errors with which the operating system refuses to begin."""
NEVER_CONNECTED = (ConnectionRefusedError, socket.gaierror, ssl.SSLCertVerificationError)
NEVER_SENT = {
    "httpx2": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"},
    "httpx": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"},
    "httpcore2": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"},
    "httpcore": {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"},
    "urllib3": {"NewConnectionError", "ConnectTimeoutError", "NameResolutionError", "LocationParseError"},
    "requests": {"ConnectTimeout", "InvalidURL", "MissingSchema", "InvalidSchema"},
    "aiohttp": {"ClientConnectorError", "ConnectionTimeoutError", "InvalidURL"},
    "botocore": {"EndpointConnectionError", "ConnectTimeoutError", "NoCredentialsError", "ParamValidationError"},
    "psycopg_pool": {"PoolTimeout"},
    "smtplib": {"SMTPConnectError", "SMTPNotSupportedError"},
}
"""By library, the errors of requests that were never sent."""
SQL_REFUSALS = {"IntegrityError", "DataError", "ProgrammingError", "NotSupportedError"}
"""Errors of PEP 249 after which the database has not executed the statement."""
GRPC_REFUSALS = {
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION",
    "OUT_OF_RANGE", "UNIMPLEMENTED",
}  # fmt: skip
MCP_REFUSALS = (-32700, -32600, -32601, -32602, 32600)
"""JSON-RPC codes of a request that was not carried out; the last one is the SDK's for a closed session."""
NO_REFUSALS = (408, 499)
"""HTTP statuses among the 4xx that do not exclude an effect: somebody stopped waiting."""
OF_VALUES = {
    "uuid", "enum", "_strptime", "ipaddress", "fractions", "_pydecimal", "zoneinfo", "pathlib", "os", "shutil", "re",
    "string", "typing", "dataclasses", "functools", "collections", "inspect", "statistics", "random", "calendar",
}  # fmt: skip
"""Standard library modules that only compute; an error in them is a mistake of their caller."""
_RAISE = opcode.opmap["RAISE_VARARGS"]
_CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX", "BEFORE_WITH", "BEFORE_ASYNC_WITH", "SEND"}
"""Instructions that call other code; operators, subscripts and loops are not among them."""
_STANDARD = f"{Path(json.__file__).parent.parent}{os.sep}"
CLIENTS = ("langchain_mcp_adapters",)
"""Tool packages that are clients themselves: their errors may come from reading a reply."""


def nothing_happened(error: BaseException, tool: BaseTool) -> bool:
    """Return whether an exception of a tool proves that its call had no effect.

    `tool.metadata["certain_errors"]` lists further such exceptions: classes, or names with or without their module.
    """
    declared = (tool.metadata or {}).get("certain_errors") or ()
    return is_certain(error, (declared,) if isinstance(declared, str | type) else declared, _package(tool))


def is_certain(error: BaseException, declared: Iterable[type | str] = (), package: str = "") -> bool:
    """Return whether an error, and every error that led to it, proves that nothing happened.

    `declared` are errors that do so by agreement. Mistakes in `package` count as the tool's own, like the
    application's.
    """
    return _is_certain(error, _Tool(tuple(declared), package))


@dataclass(frozen=True)
class _Tool:
    """A tool's declared errors, and the package of its code."""

    declared: tuple[type | str, ...]
    package: str
    """The first part of the module's name; "" for a client."""


def _package(tool: BaseTool) -> str:
    body: Any = getattr(tool, "coroutine", None) or getattr(tool, "func", None) or type(tool)
    while isinstance(body, functools.partial):
        body = body.func
    name = _library(body if isinstance(getattr(body, "__module__", None), str) else type(body))
    return "" if name in CLIENTS else name


def _is_certain(error: BaseException, tool: _Tool) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_certain(each, tool) for each in error.exceptions)
    return all(_did_nothing(failure, tool) for failure in _failures(error))


def _failures(error: BaseException) -> Iterator[list[BaseException]]:
    """Yield each failure that led to the error, as the chain of errors that name it, the last first.

    An error raised `from` another, or replacing the one just caught, is another name for the same failure. An error
    raised while another is handled is a separate failure, and the earlier one still counts.
    """
    open_ends, seen = [error], set[int]()
    while open_ends and len(seen) < MOST:
        failure: list[BaseException] = []
        current: BaseException | None = open_ends.pop()
        while current is not None and id(current) not in seen and len(seen) < MOST:
            seen.add(id(current))
            failure.append(current)
            cause, context = current.__cause__, current.__context__
            if cause is None and current.__suppress_context__:  # `from None`: the author declares it irrelevant
                context = None
            elif cause is None and context is not None and _replaces(current, context):
                cause = context
            if context is not None and context is not cause:
                open_ends.append(context)
            current = cause
        if failure:
            yield failure


def _replaces(error: BaseException, caught: BaseException) -> bool:
    """Return whether the error was raised by a statement in the frame that caught the other one."""
    raised, handler = _innermost(error), caught.__traceback__
    if handler is None:
        return True  # never raised: it only describes this one
    return raised is not None and raised.tb_frame is handler.tb_frame and _opcode(raised) == _RAISE


def _did_nothing(failure: Collection[BaseException], tool: _Tool) -> bool:
    if any(_is_declared(error, tool) or _was_never_sent(error) for error in failure):
        return True
    words = [word for error in failure if (word := _refuses(error)) is not None]
    return all(words) if words else all(_is_own(error, tool) for error in failure)


def _is_declared(error: BaseException, tool: _Tool) -> bool:
    kinds = type(error).__mro__
    names = {name for kind in kinds for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")}
    return any(each in (names if isinstance(each, str) else kinds) for each in tool.declared)


def _was_never_sent(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_was_never_sent, error.exceptions))
    return isinstance(error, NEVER_CONNECTED) or any(
        kind.__name__ in NEVER_SENT.get(_library(kind), ()) for kind in type(error).__mro__
    )


def _library(kind: type | Callable[..., Any]) -> str:
    return kind.__module__.partition(".")[0]


def _refuses(error: BaseException) -> bool | None:
    """Return whether the error holds an answer that refuses the request; None if it holds no answer."""
    if (status := _http_status(error)) is not None:
        return 400 <= status < 500 and status not in NO_REFUSALS
    names, library = {kind.__name__ for kind in type(error).__mro__}, _library(type(error))
    if isinstance(code := getattr(error, "smtp_code", None), int):
        return code >= 400
    if library == "smtplib" and "SMTPRecipientsRefused" in names:
        return True
    if isinstance(code := getattr(getattr(error, "error", None), "code", None), int):
        return code in MCP_REFUSALS
    if "DatabaseError" in names:
        return True if names & SQL_REFUSALS else None
    if library == "grpc":
        with suppress(Exception):
            return error.code().name in GRPC_REFUSALS  # type: ignore[attr-defined]
    return None


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, from any of the usual places."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        about = response.get("ResponseMetadata")
        found = [about.get("HTTPStatusCode")] if isinstance(about, Mapping) else []
    else:
        found = [_attribute(response, name) for name in ("status_code", "status")]
    found += [_attribute(error, name) for name in ("status_code", "http_status", "status")]
    found.append(_attribute(_attribute(error, "resp"), "status"))  # googleapiclient
    if isinstance(code := _attribute(error, "code"), HTTPStatus):  # google.api_core
        found.append(code)
    statuses = (int(each) for each in found if isinstance(each, int) and not isinstance(each, bool))
    return next((status for status in statuses if 100 <= status < 600), None)


def _attribute(holder: Any, name: str) -> Any:
    with suppress(Exception):  # a property of somebody else's
        return getattr(holder, name, None)
    return None


def _is_own(error: BaseException, tool: _Tool) -> bool:
    """Return whether the tool itself reported the failure or made the mistake."""
    if isinstance(error, (ToolException, StopIteration, *NOT_THERE)):
        return True
    if not isinstance(error, OWN_MISTAKES) or isinstance(error, REPLY_ERRORS) or not (places := _places(error)):
        return False
    own = [place for place in places if _is_of_the_tool(place, tool)]
    module = str(places[-1].tb_frame.f_globals.get("__name__") or "")
    if own and own[-1] is places[-1] and _opcode(places[-1]) == _RAISE:
        return True
    return (own[-1:] == places[-1:] or module in OF_VALUES) and not any(map(_called_before, own))


def _is_of_the_tool(place: TracebackType, tool: _Tool) -> bool:
    """Return whether the code at a place is the tool's or the application's."""
    module = str(place.tb_frame.f_globals.get("__name__") or "")
    if module.startswith("donewhen.graph."):
        return False  # it called the tool
    known = module.partition(".")[0] in {"donewhen", tool.package}
    return known or _is_of_the_application(place.tb_frame.f_code.co_filename)


def _called_before(place: TracebackType) -> bool:
    """Return whether a frame may have called something before its instruction at this place."""
    at, instructions = place.tb_lasti, list(dis.get_instructions(place.tb_frame.f_code))
    loops = [
        each.offset for each in instructions if "JUMP_BACKWARD" in each.opname and each.argval <= at <= each.offset
    ]
    end = max((at, *loops))
    return any(each.opname in _CALLS and each.offset < end and each.offset != at for each in instructions)


@functools.lru_cache(maxsize=1_000)
def _is_of_the_application(file: str) -> bool:
    """Return whether a file belongs neither to an installed package nor to the standard library."""
    installed = {"site-packages", "dist-packages"} & {*Path(file).parts}
    return not installed and not file.startswith(("<frozen", _STANDARD))


def _opcode(place: TracebackType) -> int:
    return place.tb_frame.f_code.co_code[place.tb_lasti]


def _innermost(error: BaseException) -> TracebackType | None:
    """Return the place where the error was raised."""
    return places[-1] if (places := _places(error)) else None


def _places(error: BaseException) -> list[TracebackType]:
    """Return the places of an error's traceback, the outermost first."""
    found, place = list[TracebackType](), error.__traceback__
    while place is not None:
        found.append(place)
        place = place.tb_next
    return found
