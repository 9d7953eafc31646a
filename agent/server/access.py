"""Who may do what on the server: users by token, pages by origin, settings within the operator's."""

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from langgraph.graph import END
from langgraph_sdk import Auth

from donewhen.agent.server.graphs import served
from donewhen.state.errors import ConfigError
from donewhen.state.settings.merging import confined, merged, read_settings

_pinned = merged(read_settings({"profile": served.profile} if served.profile else {}), served.settings)
_log = logging.getLogger("donewhen.server")
_STUDIO = ".smith.langchain.com"
_BESIDE = ("run_id", "graph_id", "assistant_id", "user_id", "__", "langgraph_", "x-", "cron_", "thread_", "checkpoint_")
"""How keys begin that the server itself puts beside settings."""
_SYSTEM = str(uuid5(UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8"), "agent"))
"""The assistant that the server makes of our graph; everybody's to use."""
auth = Auth()
AuthHandler = Callable[[Auth.types.AuthContext, dict[str, Any]], Awaitable[Any]]


def _on(action: Any) -> Callable[[AuthHandler], AuthHandler]:
    """A decorator of `auth.on`, whose types want a handler of its own for every action."""
    return cast(Callable[[AuthHandler], AuthHandler], action)


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """The user whose bearer token (RFC 6750) the request has; everyone is `local` where no tokens are set."""
    if not served.tokens:
        if problem := foreign(_text(headers, b"origin"), _text(headers, b"host")):
            raise Auth.exceptions.HTTPException(status_code=403, detail=problem)
        return {"identity": "local"}
    scheme, _, given = _text(headers, b"authorization").partition(" ")
    if scheme.lower() == "bearer":
        for name, token in served.tokens.items():
            if hmac.compare_digest(given.strip().encode(), token.encode()):
                return {"identity": name}
    raise Auth.exceptions.HTTPException(
        status_code=401, detail="a bearer token of this server is needed", headers={"WWW-Authenticate": "Bearer"}
    )


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return (headers.get(name) or b"").decode("latin-1").strip()


def foreign(origin: str, host: str) -> str | None:
    """Why a request without a token is not answered: a page of somewhere else made it; None if none did.

    A name that is looked up may be anybody's (DNS rebinding), so the server itself is called by address or `localhost`.
    """
    if host and not _ours(urlsplit(f"//{host}").hostname):
        return f"without DONEWHEN_TOKENS this server answers as localhost or by its address, not as {host}"
    page = urlsplit(origin)
    if not origin or _local(page.hostname) or origin.partition("://")[2] == host:
        return None
    if page.scheme == "https" and f".{page.hostname}".endswith(_STUDIO):
        return None
    return f"without DONEWHEN_TOKENS this server answers no page of {origin}"


def _local(name: str | None) -> bool:
    return name in ("localhost", "127.0.0.1", "::1") or str(name).endswith(".localhost")


def _ours(name: str | None) -> bool:
    try:
        return _local(name) or name == "api" or bool(ipaddress.ip_address(str(name)))  # "api": the server calls itself
    except ValueError:
        return False


@_on(auth.on)
async def own_only(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Everything belongs to who made it, and only they find it."""
    return _owned(ctx, value)


def _owned(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, str]:
    owner = {"owner": ctx.user.identity}
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    value["metadata"].update(owner)  # in place: the server goes on with its own
    return owner


@_on(auth.on.threads.create_run)
async def kept_to_settings(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """A run has the operator's settings, and of what its client asks for only what stays within them."""
    _confine(value.get("kwargs") or {})
    return _owned(ctx, value)


@_on(auth.on.threads.update)
async def written_by_runs(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Where an operator sets the rules, only runs write the state of a thread: who writes it could approve anything."""
    if (served.tokens or served.settings) and not set(value) - {"thread_id"}:
        raise Auth.exceptions.HTTPException(status_code=403, detail="the state of a thread is written by its runs")
    return _owned(ctx, value)


@_on(auth.on.crons.create)
async def kept_to_settings_later(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Likewise what runs by the clock."""
    _confine(value.get("payload") or {})
    return _owned(ctx, value)


def _confine(kwargs: dict[str, Any]) -> None:
    """Overwrite, in place, where settings can come from; an assistant's are put together with these, and give way."""
    command = kwargs.get("command") or {}
    if command.get("update") or command.get("goto") not in (None, [], END, [END]):
        raise Auth.exceptions.HTTPException(status_code=403, detail="a command may only resume a run, or end it")
    config = kwargs.setdefault("config", {})
    config.pop("recursion_limit", None)  # pages send 100, the rounds of half a step; budgets are what ends our runs
    configurable = config.setdefault("configurable", {})
    asked = {**configurable, **(kwargs.get("context") or {})}
    asked = {key: value for key, value in asked.items() if not key.startswith(_BESIDE)}
    try:
        kept, refused = confined(_pinned, asked, models=not (served.tokens or served.settings))
    except ConfigError as error:
        raise Auth.exceptions.HTTPException(status_code=422, detail=str(error)) from None
    if refused:
        _log.warning("settings that a client asked for and does not get: %s", ", ".join(sorted(refused)))
    kwargs["context"] = kept
    configurable.update(kept)


@_on(auth.on.assistants.create)
@_on(auth.on.assistants.update)
async def own_assistant(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """An assistant is its maker's; none can pass for the server's."""
    owner = _owned(ctx, value)
    value["metadata"]["created_by"] = ctx.user.identity
    return owner


@_on(auth.on.assistants.read)
async def read_assistant(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType | None:
    """The server's assistant is everybody's to use, any other its maker's."""
    return None if str(value.get("assistant_id")) == _SYSTEM else {"owner": ctx.user.identity}


@_on(auth.on.assistants.search)
async def find_assistants(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """The server's assistant; whoever asks for `metadata={"owner": …}` gets their own."""
    asked = value.get("metadata") or {}
    return {"owner": ctx.user.identity} if "owner" in asked else {"created_by": "system"}


@_on(auth.on.store)
async def own_store(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> None:
    """A user's entries in the store lie under their name."""
    value["namespace"] = (ctx.user.identity, *(value.get("namespace") or ()))
