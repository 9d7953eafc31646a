"""Access to the server: users by token, pages by origin, settings within the operator's."""

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from langgraph.graph import END
from langgraph_sdk import Auth

from donewhen.agent.server.graphs import served, settings_for
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings

_log = logging.getLogger("donewhen.server")
_STUDIO = ".smith.langchain.com"
_SYSTEM = str(uuid5(UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8"), "agent"))
"""The server's own assistant of our graph, which everybody may use."""
auth: Auth = Auth()
AuthHandler = Callable[[Auth.types.AuthContext, dict[str, Any]], Awaitable[Any]]


def _on(action: Any) -> Callable[[AuthHandler], AuthHandler]:
    """Return a decorator of `auth.on`, whose types require a separate handler for every action."""
    return cast(Callable[[AuthHandler], AuthHandler], action)


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """Return the user of the request's bearer token (RFC 6750); without tokens everyone is `local`."""
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
    """Return why a request without a token is refused, if a page of another site made it; None otherwise.

    A host name may be anybody's (DNS rebinding), so the server must be called by address or `localhost`.
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
    """Let only its creator find and use a resource."""
    return _own_filter(ctx, value)


def _own_filter(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, str]:
    owner = {"owner": ctx.user.identity}
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    value["metadata"].update(owner)  # in place: the server goes on with its own
    return owner


@_on(auth.on.threads.create_run)
async def check_settings_of_run(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Refuse a run with invalid settings; its graph decides which of them it gets."""
    _check_settings(_check_run(value.get("kwargs") or {}))
    return _own_filter(ctx, value)


@_on(auth.on.threads.update)
async def written_by_runs(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Let only runs write a thread's state if an operator sets rules, because a writer could approve anything."""
    if (served.tokens or served.settings) and not set(value) - {"thread_id"}:
        raise Auth.exceptions.HTTPException(status_code=403, detail="the state of a thread is written by its runs")
    return _own_filter(ctx, value)


@_on(auth.on.crons.create)
@_on(auth.on.crons.update)
async def check_scheduled_settings(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Check scheduled runs likewise.

    Only their settings are stored, and in one place: the server would read the owner of the run there, and refuses a
    run with settings in two places.
    """
    payload = value.get("payload") or {}
    given = any(payload.get(place) for place in ("config", "context"))  # a change of the schedule alone has neither
    asked = _check_run(payload)
    if given:
        kept = _check_settings(asked).model_dump(mode="json", exclude_unset=True)
        payload.pop("context", None)  # in place, as below: the server goes on with its own
        payload["config"] = payload.get("config") or {}
        payload["config"]["configurable"] = {
            **{name: asked[name] for name in ("cron_id",) if name in asked},
            **{name: kept[name] for name in asked if name in kept},
        }
    return _own_filter(ctx, value)


def _check_run(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run from the two places where they may be; refuse a run that may not have them."""
    command = payload.get("command") or {}
    if command.get("update") or command.get("goto") not in (None, [], END, [END]):
        raise Auth.exceptions.HTTPException(status_code=403, detail="a command may only resume a run, or end it")
    config = payload.get("config") or {}
    config.pop("recursion_limit", None)  # pages send 100, the rounds of half a step; budgets are what ends our runs
    return {**(config.get("configurable") or {}), **(payload.get("context") or {})}


def _check_settings(asked: Mapping[str, Any]) -> Settings:
    """Return the settings granted to a user who asks for these; refuse invalid ones."""
    try:
        kept, refused = settings_for(asked)
    except ConfigError as error:
        raise Auth.exceptions.HTTPException(status_code=422, detail=str(error)) from None
    if refused:
        _log.warning("settings that a client asked for and does not get: %s", ", ".join(sorted(refused)))
    return kept


@_on(auth.on.assistants.create)
@_on(auth.on.assistants.update)
async def own_assistant(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Give an assistant to its creator; none can pose as the server's."""
    config = value.get("config") or {}
    _check_settings({**(config.get("configurable") or {}), **(value.get("context") or {})})
    owner = _own_filter(ctx, value)
    value["metadata"]["created_by"] = ctx.user.identity
    return owner


@_on(auth.on.assistants.read)
async def read_assistant(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType | None:
    """Let everybody use the server's assistant, and only its creator any other."""
    return None if str(value.get("assistant_id")) == _SYSTEM else {"owner": ctx.user.identity}


@_on(auth.on.assistants.search)
async def find_assistants(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Find the server's assistant; `metadata={"owner": …}` finds the caller's own."""
    asked = value.get("metadata") or {}
    return {"owner": ctx.user.identity} if "owner" in asked else {"created_by": "system"}


@_on(auth.on.store)
async def own_store(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> None:
    """Put a user's store entries under their name."""
    value["namespace"] = (ctx.user.identity, *(value.get("namespace") or ()))
