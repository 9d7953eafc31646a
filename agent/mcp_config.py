"""The usual `mcpServers` configuration, read and checked, before any server is started."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from donewhen.state.errors import ConfigError

Connection = dict[str, Any]
"""Either `command`, `args`, `env`, `cwd` of a local server, or `transport`, `url`, `headers`, `trust` of another."""

_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
_TRANSPORTS = {
    "http": "streamable_http", "streamable-http": "streamable_http", "streamable_http": "streamable_http",
    "sse": "sse", "websocket": "websocket", "ws": "websocket",
}  # fmt: skip


def read_servers(config: Mapping[str, Any] | str | Path, environment: Mapping[str, str]) -> dict[str, Connection]:
    """The servers by name, `${NAME}` replaced from `environment`; those marked `disabled` are left out.

    Raises ConfigError that names the file or the server and says what to do.
    """
    raw = config if isinstance(config, Mapping) else _read_file(Path(config))
    servers = raw.get("mcpServers", raw.get("servers", raw))
    if not isinstance(servers, Mapping):
        raise ConfigError('MCP servers are given as {"mcpServers": {name: {"command": …} or {"url": …}}}')
    return {
        str(name): _connection(str(name), server, environment)
        for name, server in servers.items()
        if not (isinstance(server, Mapping) and server.get("disabled") is True)
    }


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        raw = json.loads(path.expanduser().read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"the MCP configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the MCP configuration {path} is not JSON: {error}") from error
    if not isinstance(raw, Mapping):
        raise ConfigError(f"the MCP configuration {path} must be a JSON object")
    return raw


def _connection(name: str, server: Any, environment: Mapping[str, str]) -> Connection:
    if not isinstance(server, Mapping):
        raise ConfigError(f"the MCP server {name!r} must be an object with a command or a url")
    if isinstance(server.get("command"), str):
        connection = {
            "command": server["command"],
            "args": _texts(name, "args", server.get("args", [])),
            "env": _named_texts(name, "env", server.get("env") or {}),
        }
        if server.get("cwd") is not None:
            connection["cwd"] = str(server["cwd"])
    elif isinstance(server.get("url"), str):
        kind = server.get("type") or server.get("transport") or "http"
        if kind not in _TRANSPORTS:
            raise ConfigError(f"the MCP server {name!r} has the type {kind!r}; use http, sse or websocket")
        connection = {"transport": _TRANSPORTS[kind], "url": server["url"]}
        if server.get("trust") is True:
            connection["trust"] = True
        if server.get("headers"):
            connection["headers"] = _named_texts(name, "headers", server["headers"])
    else:
        raise ConfigError(f"the MCP server {name!r} needs a command (a local program) or a url (a remote server)")
    return {key: _filled(name, value, environment) for key, value in connection.items()}


def _texts(name: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} of the MCP server {name!r} must be a list of texts")
    return value


def _named_texts(name: str, key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ConfigError(f"{key} of the MCP server {name!r} must map names to texts")
    return dict(value)


def _filled(name: str, value: Any, environment: Mapping[str, str]) -> Any:
    """The value with its variables replaced."""
    if isinstance(value, list):
        return [_filled(name, each, environment) for each in value]
    if isinstance(value, dict):
        return {key: _filled(name, each, environment) for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def variable(found: re.Match[str]) -> str:
        known = environment.get(found[1], found[2])
        if known is None:
            raise ConfigError(f"the MCP server {name!r} wants the variable {found[1]}, which is not set")
        return known

    return _VARIABLE.sub(variable, value)
