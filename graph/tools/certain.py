"""Errors that prove that a call had no effect. After any other error the outcome is unknown (X24).

An error is judged by its class and by what it says in numbers, such as an HTTP status: never by its text, and never by
the code that raised it, which may have acted before. These are proof: the tool's own deliberate refusal, a refusal by
the service, a connection that was never made, and what the tool declares. An error while a reply is read is no proof:
the effect came before the reply.
"""

import json
import socket
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError

MOST = 50
"""The most errors of one chain that are examined."""
REPLY_ERRORS = (json.JSONDecodeError, UnicodeDecodeError, ValidationError)
"""Kinds of ValueError that come from reading a reply, whoever raises them."""
REASONS = (
    ValueError, TypeError, LookupError, ArithmeticError, NotImplementedError, StopIteration,
    FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError,
)  # fmt: skip
"""Errors that a tool may catch before it refuses; alone they prove nothing, because it may have acted before."""
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
STOPPED_WAITING = {
    "httpx2": {"TimeoutException"},
    "httpx": {"TimeoutException"},
    "httpcore2": {"TimeoutException"},
    "httpcore": {"TimeoutException"},
    "urllib3": {"TimeoutError"},
    "requests": {"Timeout"},
    "botocore": {"ReadTimeoutError"},
    "subprocess": {"TimeoutExpired"},
}
"""By library, the errors of requests whose answer was not waited for any longer."""
STATUSES_OF_WAITING = (408, 499, 504, 524, 598)
"""HTTP statuses of a gateway or server that stopped waiting for another one."""
CODES_OF_WAITING = (-32001, 408, "DEADLINE_EXCEEDED", "CANCELLED")
"""Codes of MCP and gRPC with which a client, or a server between, stopped waiting."""
SQL_REFUSALS = {"IntegrityError", "DataError", "ProgrammingError", "NotSupportedError"}
"""Errors of PEP 249 after which the database has not executed the statement."""
GRPC_REFUSALS = {
    "INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "UNAUTHENTICATED", "FAILED_PRECONDITION",
    "OUT_OF_RANGE", "UNIMPLEMENTED",
}  # fmt: skip
JSON_RPC_REFUSALS = (-32700, -32600, -32601, -32602, -32020, -32021, -32022, -32042)
"""JSON-RPC's and MCP's codes of a request that was not carried out."""
NOT_THE_APPLICATIONS = {*range(-32768, -31999), 0}
"""The codes that JSON-RPC reserves, and 0, which the SDKs of MCP give to a handler that crashed. The others are an
application's own, with which it refuses deliberately."""
MCP_REFUSALS = (-32601, -32602, 32600)
"""Codes that no MCP client uses for a reply that it cannot read; the last one is the SDK's for a closed session."""
MAY_PASS = (423, 425, 429, 503)
"""HTTP statuses that only say “not now”."""
NO_REFUSALS = (408, 499)
"""HTTP statuses among the 4xx that do not exclude an effect."""


class Unanswered(Exception):
    """A request that was sent, and whose answer did not come or could not be read: nobody knows what it did.

    A tool raises it for everything that goes wrong after it sent something, except for an error that the other side
    reports in its protocol: that is a `ToolException`. No cause of it counts as proof that nothing happened.
    """


def refuses_request(code: int) -> bool:
    """Return whether a JSON-RPC error that the other side sent says that it did not carry out the request."""
    return code in JSON_RPC_REFUSALS or code not in NOT_THE_APPLICATIONS


def nothing_happened(error: BaseException, tool: BaseTool) -> bool:
    """Return whether an exception of a tool proves that its call had no effect.

    `tool.metadata["certain_errors"]` lists further such exceptions: classes, or names with or without their module.
    """
    declared = (tool.metadata or {}).get("certain_errors") or ()
    return proves_no_effect(error, (declared,) if isinstance(declared, str | type) else declared)


def proves_no_effect(error: BaseException, declared: Iterable[type | str] = ()) -> bool:
    """Return whether an error, and every error that led to it, proves that nothing happened.

    `declared` are errors that do so by agreement.
    """
    if isinstance(error, BaseExceptionGroup):
        return all(proves_no_effect(each, declared) for each in error.exceptions)
    agreed = tuple(declared)
    return all(_did_nothing(failure, agreed) for failure in _failures(error))


def _failures(error: BaseException) -> Iterator[list[BaseException]]:
    """Yield each failure that led to the error, as the chain of errors that stand for it, the last first.

    An error that was raised `from` another, or has it among its arguments, stands for the same failure. So does a
    tool's refusal that replaces an error. Any other error that was being handled is a failure of its own.
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
            elif cause is None and context is not None and _stands_for(current, context):
                cause = context
            if context is not None and context is not cause:
                open_ends.append(context)
            current = cause
        if failure:
            yield failure


def _stands_for(error: BaseException, caught: BaseException) -> bool:
    """Return whether the error stands for the same failure as the one that it replaced."""
    never_raised = caught.__traceback__ is None  # it only describes this one
    return never_raised or isinstance(error, ToolException) or any(each is caught for each in error.args)


def _did_nothing(failure: Collection[BaseException], declared: Collection[type | str]) -> bool:
    if any(isinstance(error, Unanswered) for error in failure):
        return False
    if any(_is_declared(error, declared) or was_never_sent(error) for error in failure):
        return True
    answers = [answer for error in failure if (answer := _refuses(error)) is not None]
    return all(answers) if answers else _is_deliberate(failure)


def _is_deliberate(failure: Collection[BaseException]) -> bool:
    """Return whether the tool itself refused, for a reason that is no lost answer."""
    others = [error for error in failure if not isinstance(error, ToolException)]
    reasons = (isinstance(error, REASONS) and not isinstance(error, REPLY_ERRORS) for error in others)
    return len(others) < len(failure) and all(reasons)


def _is_declared(error: BaseException, declared: Collection[type | str]) -> bool:
    kinds = type(error).__mro__
    names = {name for kind in kinds for name in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")}
    return any(each in (names if isinstance(each, str) else kinds) for each in declared)


def was_never_sent(error: BaseException) -> bool:
    """Return whether an error says that there was no connection by which the request could have been sent."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(was_never_sent, error.exceptions))
    return isinstance(error, NEVER_CONNECTED) or _is_kind(error, NEVER_SENT)


def may_pass(error: BaseException) -> bool:
    """Return whether an error only says that the same call may succeed later, as when there was no connection."""
    return any(
        was_never_sent(each) or _http_status(each) in MAY_PASS for failure in _failures(error) for each in failure
    )


def may_still_work(error: BaseException) -> bool:
    """Return whether what was called may still be at work, because somebody stopped waiting for it."""
    return any(_stopped_waiting(each) for failure in _failures(error) for each in failure)


def _stopped_waiting(error: BaseException) -> bool:
    if was_never_sent(error):
        return False
    is_late = isinstance(error, Unanswered | TimeoutError) or _is_kind(error, STOPPED_WAITING)
    return is_late or _http_status(error) in STATUSES_OF_WAITING or _rpc_code(error) in CODES_OF_WAITING


def _is_kind(error: BaseException, names: Mapping[str, Collection[str]]) -> bool:
    return any(kind.__name__ in names.get(_library(kind), ()) for kind in type(error).__mro__)


def _library(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _refuses(error: BaseException) -> bool | None:
    """Return whether the error holds an answer that refuses the request; None if it holds no answer."""
    if (status := _http_status(error)) is not None:
        return 400 <= status < 500 and status not in NO_REFUSALS
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(code := getattr(error, "smtp_code", None), int):
        return code >= 400
    if _library(type(error)) == "smtplib" and "SMTPRecipientsRefused" in names:
        return True
    if (rpc_code := _rpc_code(error)) is not None:
        return rpc_code in MCP_REFUSALS or rpc_code in GRPC_REFUSALS
    return True if "DatabaseError" in names and names & SQL_REFUSALS else None


def _rpc_code(error: BaseException) -> int | str | None:
    """Return the code of an error of MCP, or the name of that of gRPC."""
    if isinstance(code := _attribute(_attribute(error, "error"), "code"), int):
        return code
    if _library(type(error)) == "grpc":
        with suppress(Exception):
            return str(error.code().name)  # type: ignore[attr-defined]
    return None


def _http_status(error: BaseException) -> int | None:
    """Return the HTTP status of an error, from any of the usual places."""
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # botocore
        about = response.get("ResponseMetadata")
        values = [about.get("HTTPStatusCode")] if isinstance(about, Mapping) else []
    else:
        values = [_attribute(response, name) for name in ("status_code", "status")]
    values += [_attribute(error, name) for name in ("status_code", "http_status", "status")]
    values.append(_attribute(_attribute(error, "resp"), "status"))  # googleapiclient
    if isinstance(code := _attribute(error, "code"), HTTPStatus):  # google.api_core
        values.append(code)
    statuses = (int(each) for each in values if isinstance(each, int) and not isinstance(each, bool))
    return next((status for status in statuses if 100 <= status < 600), None)


def _attribute(holder: Any, name: str) -> Any:
    with suppress(Exception):  # a property of somebody else's
        return getattr(holder, name, None)
    return None
