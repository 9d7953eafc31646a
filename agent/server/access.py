"""Control access to the server: users by token, pages by origin, settings within the operator's."""

import hmac
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from langgraph.graph import END
from langgraph_sdk import Auth

from donewhen.agent.config import LOCAL_USER
from donewhen.agent.server.graphs import served, settings_for
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Settings

_log = logging.getLogger("donewhen.server")
_STUDIO = ".smith.langchain.com"
_SYSTEM = str(uuid5(UUID("6ba7b821-9dad-11d1-80b4-00c04fd430c8"), "agent"))
"""The id of the assistant that the server makes of our graph, which everybody may use."""
USERS = "users"
"""The first label of the namespaces of users' store entries; those of runs begin with `donewhen`."""
auth: Auth = Auth()
AuthHandler = Callable[[Auth.types.AuthContext, dict[str, Any]], Awaitable[Any]]


def _on(action: Any) -> Callable[[AuthHandler], AuthHandler]:
    """Return a decorator of `auth.on` as one that takes any handler; its own type has another one for each action."""
    return cast(Callable[[AuthHandler], AuthHandler], action)


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """Return the user of the request's bearer token (RFC 6750); without tokens everyone is `local`."""
    if not served.tokens:
        if problem := foreign_page_problem(_header(headers, b"origin"), _header(headers, b"host")):
            raise Auth.exceptions.HTTPException(status_code=403, detail=problem)
        return {"identity": LOCAL_USER}
    scheme, _, bearer = _header(headers, b"authorization").partition(" ")
    if scheme.lower() == "bearer":
        for name, token in served.tokens.items():
            if hmac.compare_digest(bearer.strip().encode(), token.encode()):
                return {"identity": name}
    raise Auth.exceptions.HTTPException(
        status_code=401, detail="a bearer token of this server is needed", headers={"WWW-Authenticate": "Bearer"}
    )


def _header(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return (headers.get(name) or b"").decode("latin-1").strip()


def foreign_page_problem(origin: str, host: str) -> str | None:
    """Return why to refuse a request without a token that a page of another site made; None for any other.

    Anybody can point a host name here (DNS rebinding), so the server must be called by address or as `localhost`.
    """
    if host and not _is_own_host(urlsplit(f"//{host}").hostname):
        return f"without DONEWHEN_TOKENS this server answers as localhost or by its address, not as {host}"
    page = urlsplit(origin)
    if not origin or _is_local_name(page.hostname) or origin.partition("://")[2] == host:
        return None
    if page.scheme == "https" and f".{page.hostname}".endswith(_STUDIO):
        return None
    return f"without DONEWHEN_TOKENS this server answers no page of {origin}"


def _is_local_name(name: str | None) -> bool:
    return name in ("localhost", "127.0.0.1", "::1") or str(name).endswith(".localhost")


def _is_own_host(name: str | None) -> bool:
    try:
        # The server calls itself as "api".
        return _is_local_name(name) or name == "api" or bool(ipaddress.ip_address(str(name)))
    except ValueError:
        return False


@_on(auth.on)
async def restrict_to_owner(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Let only its creator find and use a resource."""
    return _filter_by_owner(ctx, value)


def _filter_by_owner(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, str]:
    owner = {"owner": ctx.user.identity}
    if not isinstance(value.get("metadata"), dict):
        value["metadata"] = {}
    value["metadata"].update(owner)  # in place, because the server keeps using its own object
    return owner


@_on(auth.on.threads.create_run)
async def check_settings_of_run(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Refuse a run with invalid settings; its graph decides which settings apply."""
    _check_settings(*_check_run(value.get("kwargs") or {}))
    return _filter_by_owner(ctx, value)


@_on(auth.on.threads.update)
async def refuse_state_update(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Refuse to write a thread's state if an operator sets rules, because a writer could approve anything."""
    if (served.tokens or served.settings) and not set(value) - {"thread_id"}:
        raise Auth.exceptions.HTTPException(status_code=403, detail="the state of a thread is written by its runs")
    return _filter_by_owner(ctx, value)


@_on(auth.on.crons.create)
@_on(auth.on.crons.update)
async def check_scheduled_settings(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Refuse a scheduled run with invalid settings; store its settings in one place, and nothing beside them.

    From what stands beside them, the server would read the owner of the run. It refuses a run with settings in two
    places.
    """
    payload = value.get("payload") or {}
    has_settings = bool(payload.get("config") or payload.get("context"))  # an update of the schedule alone has neither
    configurable, context = _check_run(payload)
    wanted = {**configurable, **context}
    if has_settings:
        granted = _check_settings(configurable, context).model_dump(mode="json", exclude_unset=True)
        payload.pop("context", None)  # in place, because the server keeps using its own object
        payload["config"] = payload.get("config") or {}
        payload["config"]["configurable"] = {
            **{name: wanted[name] for name in ("cron_id",) if name in wanted},
            **{name: granted[name] for name in wanted if name in granted},
        }
    return _filter_by_owner(ctx, value)


def _check_run(payload: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a run, in both places where they may be; refuse its command if it changes the state."""
    command = payload.get("command") or {}
    if command.get("update") or command.get("goto") not in (None, [], END, [END]):
        raise Auth.exceptions.HTTPException(status_code=403, detail="a command may only resume a run, or end it")
    config = payload.get("config") or {}
    config.pop("recursion_limit", None)  # pages send 100, too few for a step; budgets limit runs here
    return config.get("configurable") or {}, payload.get("context") or {}


def _check_settings(configurable: Mapping[str, Any], context: Mapping[str, Any]) -> Settings:
    """Return the settings granted to a user who asks for these; refuse invalid ones."""
    try:
        granted, refused = settings_for(configurable, context)
    except ConfigError as error:
        raise Auth.exceptions.HTTPException(status_code=422, detail=str(error)) from None
    if refused:
        _log.warning("settings that a client asked for and was not granted: %s", ", ".join(sorted(refused)))
    return granted


@_on(auth.on.assistants.create)
@_on(auth.on.assistants.update)
async def create_assistant(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Give an assistant to its creator, so that none can pose as the server's."""
    config = value.get("config") or {}
    _check_settings(config.get("configurable") or {}, value.get("context") or {})
    owner = _filter_by_owner(ctx, value)
    value["metadata"]["created_by"] = f"user {ctx.user.identity}"  # the server's own are created by "system"
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
async def separate_stores(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> None:
    """Put each user's store entries under their own name, in a namespace where no run writes."""
    value["namespace"] = (USERS, ctx.user.identity, *(value.get("namespace") or ()))
