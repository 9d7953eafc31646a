"""Read the configuration: environment variables, which no other module reads, and the usual mcpServers file."""

import base64
import importlib
import json
import os
import re
import runpy
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from donewhen.state.errors import ConfigError
from donewhen.state.ledger import read_budgets
from donewhen.state.secrets import known_secrets
from donewhen.state.settings import Settings, keep_to, merge_settings, read_settings

if TYPE_CHECKING:
    from donewhen.graph.tools.hooks import Hooks

DEMO = "demo"
"""The demonstration model, which needs no key. Only the command and the server fall back to it."""
DEFAULT_MODEL = "openai:gpt-5.4-mini"
"""The model if there is a key and none is named."""
_KEY_BYTES = (16, 24, 32)
_HEX_LENGTHS = (32, 48, 64)
_USER = re.compile(r"\w[\w-]*")
LOCAL_USER = "local"
"""The name of every user of a server without tokens. Threads keep it when tokens are added, so no user may have it."""


@dataclass(frozen=True)
class Config:
    """What the environment configures. `repr` shows no secret."""

    model: str | None = None
    """DONEWHEN_MODEL as `provider:model`; else a small OpenAI model if there is a key; else None."""
    storage: str = "memory:"
    """DONEWHEN_STORAGE; else a SQLite file in `state`."""
    state: Path = field(default_factory=lambda: _state_folder(None))
    """The user's state folder (XDG_STATE_HOME), for data that the command keeps."""
    api_key: str | None = field(default=None, repr=False)
    """OPENAI_API_KEY."""
    base_url: str | None = None
    """OPENAI_BASE_URL: any server that speaks OpenAI's protocol."""
    log: str = ""
    """DONEWHEN_LOG: `json`, `text`, a level, or both as `json:debug`; by default nothing is logged."""
    key: bytes | None = field(default=None, repr=False)
    """DONEWHEN_KEY, 16, 24 or 32 bytes in hex (or 16 or 32 in base64): the key that encrypts the storage."""
    folder: str = "."
    """DONEWHEN_DIR: the folder that the server's tools may access."""
    commands: tuple[str, ...] = ()
    """DONEWHEN_COMMANDS, separated by commas: programs that the server's tools may start."""
    box: str = "auto"
    """DONEWHEN_BOX, `auto`, `required` or `off`: whether these programs run in a box, made by bubblewrap."""
    network: bool = False
    """DONEWHEN_ALLOW_NETWORK: programs in a box have the network."""
    prices: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """DONEWHEN_PRICES as `model=input/output,…` or `model=input/cached/output`: US dollars per million tokens."""
    budgets: Mapping[str, Any] = field(default_factory=dict)
    """DONEWHEN_BUDGETS, JSON: what owners and queues may spend in a day or a month, as `AgentOptions.budgets`."""
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    """DONEWHEN_TOKENS as `name:token,…`: who may use the server."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """DONEWHEN_SETTINGS, a JSON file: settings that no client of the server can widen; options of the command can."""
    notify: str = field(default="", repr=False)
    """DONEWHEN_NOTIFY: the URL that is notified when a run waits, finishes or fails."""
    notify_secret: str = field(default="", repr=False)
    """DONEWHEN_NOTIFY_SECRET: the key that signs notifications."""
    receipt_key: str = ""
    """DONEWHEN_RECEIPT_KEY: the PEM file of the Ed25519 key with which receipts are signed."""
    link: str = ""
    """DONEWHEN_LINK: the page on which a person continues a run, with `{thread_id}` in it; notifications contain it."""
    record: bool = False
    """DONEWHEN_RECORD: runs are recorded, so that `donewhen record` can make tests of them."""
    trace: str = ""
    """DONEWHEN_TRACE: `1`, runs are traced with OpenTelemetry; `content`, with texts, arguments and results."""
    hooks: str = ""
    """DONEWHEN_HOOKS as `file.py:name` or `package.module:name`: the `Hooks` that every agent has to pass."""
    profile: Mapping[str, Any] = field(default_factory=dict)
    """DONEWHEN_PROFILE, a TOML file: the profile of every agent; see `read_profile`."""
    executors: Mapping[str, str] = field(default_factory=dict)
    """DONEWHEN_EXECUTORS as `name=a2a:https://…,…`: remote agents that may work on steps."""
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    """All variables, for the `${NAME}` of an MCP configuration."""
    editor: str | None = None
    """VISUAL or EDITOR, a command line."""
    timezone: str | None = None
    """DONEWHEN_TIMEZONE: the user's time zone, for runs of the command and the times that it prints. Runs never use the
    machine's, in which times are printed without it."""
    plain: bool = False
    """No colours and no movement: NO_COLOR, or TERM=dumb."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the values that no tool result may contain: the keys above, and variables named like secrets."""
        return known_secrets(self.variables, self.api_key, self.notify_secret, *self.tokens.values())

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings with those of DONEWHEN_SETTINGS where they say nothing. Raises ConfigError."""
        merged = merge_settings(read_settings(self.settings or {}), settings)
        return merged.model_dump(mode="json", exclude_unset=True) if self.settings else dict(settings)

    def keep(self, settings: Mapping[str, Any]) -> Settings:
        """Return settings within what the profile of DONEWHEN_SETTINGS forbids, also if they are from before it.

        Raises ConfigError.
        """
        return keep_to(read_settings(self.settings or {}), read_settings(settings))


def read_config(environment: Mapping[str, str] | None = None) -> Config:
    """Read `environment`, by default the process's. Raises ConfigError for an unreadable key, price or token."""
    environment = os.environ if environment is None else environment
    get = environment.get
    api_key = (get("OPENAI_API_KEY") or "").strip() or None
    base_url = (get("OPENAI_BASE_URL") or "").strip() or None
    state = _state_folder(get("XDG_STATE_HOME"))
    return Config(
        model=(get("DONEWHEN_MODEL") or "").strip() or (DEFAULT_MODEL if api_key or base_url else None),
        storage=(get("DONEWHEN_STORAGE") or "").strip() or f"sqlite:///{state / 'runs.db'}",
        state=state,
        api_key=api_key,
        base_url=base_url,
        log=(get("DONEWHEN_LOG") or "").strip(),
        key=_read_key(get("DONEWHEN_KEY")),
        folder=get("DONEWHEN_DIR") or ".",
        commands=tuple(_split_list(get("DONEWHEN_COMMANDS"))),
        box=(get("DONEWHEN_BOX") or "").strip() or "auto",
        network=_is_on(get("DONEWHEN_ALLOW_NETWORK")),
        prices=dict(map(_read_price, _split_list(get("DONEWHEN_PRICES")))),
        budgets=_read_budgets(get("DONEWHEN_BUDGETS")),
        tokens=_read_tokens(get("DONEWHEN_TOKENS")),
        settings=_read_settings(get("DONEWHEN_SETTINGS")),
        notify=(get("DONEWHEN_NOTIFY") or "").strip(),
        notify_secret=(get("DONEWHEN_NOTIFY_SECRET") or "").strip(),
        receipt_key=(get("DONEWHEN_RECEIPT_KEY") or "").strip(),
        link=(get("DONEWHEN_LINK") or "").strip(),
        record=_is_on(get("DONEWHEN_RECORD")),
        trace=_read_trace(get("DONEWHEN_TRACE")),
        hooks=(get("DONEWHEN_HOOKS") or "").strip(),
        profile=read_profile(get("DONEWHEN_PROFILE") or ""),
        executors=dict(map(_read_executor, _split_list(get("DONEWHEN_EXECUTORS")))),
        variables=dict(environment),
        editor=get("VISUAL") or get("EDITOR") or None,
        timezone=(get("DONEWHEN_TIMEZONE") or "").strip() or None,
        plain=bool(get("NO_COLOR")) or get("TERM") == "dumb",
    )


def is_debugging() -> bool:
    """Return whether DONEWHEN_DEBUG asks for tracebacks, even if other variables are invalid."""
    return _is_on(os.environ.get("DONEWHEN_DEBUG"))


def _is_on(text: str | None) -> bool:
    return (text or "").strip().lower() not in ("", "0", "false")


def _read_trace(text: str | None) -> str:
    mode = (text or "").strip().lower()
    if mode not in ("", "0", "false", "1", "true", "content"):
        raise ConfigError(f"DONEWHEN_TRACE is {mode!r}: use 1, or content for texts, arguments and results too")
    return mode if _is_on(mode) else ""


def _state_folder(state_home: str | None) -> Path:
    if state_home and Path(state_home).is_absolute():
        return Path(state_home) / "donewhen"
    from platformdirs import user_state_path

    return user_state_path("donewhen", appauthor=False)


def read_profile(path: str | Path) -> dict[str, Any]:
    """Return the profile in a TOML file, from its top level or from `[profile]`; {} for an empty path.

    Raises ConfigError.
    """
    if not str(path):
        return {}
    import tomllib

    try:
        document = tomllib.loads(Path(path).expanduser().read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(
            f"the profile {str(path)!r} cannot be read: there is no such file; name a TOML file"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the profile {str(path)!r} cannot be read as TOML: {error}") from error
    profile = document.get("profile", document)
    return read_settings({"profile": profile}).profile.model_dump(exclude_unset=True)


def load_hooks(address: str) -> "Hooks":
    """Return the hooks at `file.py:name` or `package.module:name`, the value of DONEWHEN_HOOKS; no hooks for "".

    Raises ConfigError if they cannot be loaded, so that no agent runs without them.
    """
    from donewhen.graph.tools.hooks import Hooks

    if not address:
        return Hooks()
    place, colon, name = address.rpartition(":")
    if not colon:
        raise ConfigError(f"DONEWHEN_HOOKS={address} names no hooks: write file.py:name or package.module:name")
    try:
        if place.endswith(".py"):
            hooks = getattr(SimpleNamespace(**runpy.run_path(str(Path(place).expanduser()))), name)
        else:
            hooks = getattr(importlib.import_module(place), name)
    except Exception as error:
        raise ConfigError(f"DONEWHEN_HOOKS={address} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(hooks, Hooks):
        raise ConfigError(
            f"DONEWHEN_HOOKS={address} is of type {type(hooks).__name__}; it must be a donewhen.hooks.Hooks"
        )
    return hooks


def _read_executor(text: str) -> tuple[str, str]:
    name, _, address = text.partition("=")
    if not name.strip() or not address.strip():
        raise ConfigError(f"DONEWHEN_EXECUTORS must be name=a2a:https://… pairs separated by commas, not {text!r}")
    return name.strip(), address.strip()


def _split_list(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(",") if item.strip()]


def _read_price(text: str) -> tuple[str, dict[str, float]]:
    name, _, rates = text.rpartition("=")
    amounts = rates.split("/")
    names = {2: ("input", "output"), 3: ("input", "cached", "output")}.get(len(amounts), ())
    try:
        price = {rate: float(amount) for rate, amount in zip(names, amounts, strict=True)}
    except ValueError:
        price = {}
    if not name.strip() or not price:
        raise ConfigError(f"DONEWHEN_PRICES must be model=input/output pairs separated by commas, not {text!r}")
    return name.strip(), price


def _read_budgets(text: str | None) -> dict[str, Any]:
    try:
        given = json.loads(text) if text and text.strip() else {}
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ConfigError(f'DONEWHEN_BUDGETS must be JSON such as {{"owner": {{"cost_usd": 5}}}}, not {text!r}')
    read_budgets(given)
    return given


def _read_tokens(text: str | None) -> dict[str, str]:
    """Return tokens by user. Raises ConfigError for an invalid list, so that it admits nobody."""
    pairs = [item.partition(":") for item in _split_list(text)]
    tokens = {name.strip(): token.strip() for name, _, token in pairs}
    if not all(_USER.fullmatch(name) and token for name, token in tokens.items()) or len(tokens) != len(pairs):
        raise ConfigError(
            "DONEWHEN_TOKENS must be name:token pairs separated by commas, each name once, of letters, digits, _ and -"
        )
    folders = {LOCAL_USER: LOCAL_USER}
    for name in tokens:
        if (other := folders.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)) != name:
            raise ConfigError(f"DONEWHEN_TOKENS: {name!r} and {other!r} would share a folder: choose another name")
        if name == LOCAL_USER:
            raise ConfigError(f"DONEWHEN_TOKENS: {name!r} is everybody on a server without tokens: choose another name")
    return tokens


def _read_settings(path: str | None) -> dict[str, Any]:
    """Return the pinned settings. Raises ConfigError if they cannot be read, so that nothing starts without them."""
    if not path:
        return {}
    try:
        settings = json.loads(Path(path).expanduser().read_text("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"DONEWHEN_SETTINGS names {path}, which cannot be read as JSON: {error}") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"DONEWHEN_SETTINGS names {path}, which must hold a JSON object of settings")
    return settings


def _read_key(text: str | None) -> bytes | None:
    if not (text := (text or "").strip()):
        return None
    try:
        # Only the length tells hex from base64: a hex key with a typing error must not pass as base64.
        key = bytes.fromhex(text) if len(text) in _HEX_LENGTHS else base64.b64decode(text, validate=True)
    except ValueError:
        key = b""
    if len(key) not in _KEY_BYTES:
        raise ConfigError("DONEWHEN_KEY must be 16, 24 or 32 bytes in hex; make one with: openssl rand -hex 32")
    return key


McpServer = dict[str, Any]
"""Either `command`, `args`, `env`, `cwd` of a local server, or `transport`, `url`, `headers`, `trust`, `auth` of a
remote one. Both may have `legacy` (True for the protocol before 2026-07-28), and `effects` and `arguments` of their
tools.
"""

_VARIABLE = re.compile(r"\$\{(?:env:)?(\w+)(?::-([^}]*))?\}")
LOGIN = ("client_id", "client_secret", "issuer", "scope")
"""The fields of `auth` of a remote MCP server."""
_TRANSPORTS = {
    "http": "streamable_http", "streamable-http": "streamable_http", "streamable_http": "streamable_http",
    "sse": "sse",
}  # fmt: skip


def read_servers(
    config: Mapping[str, Any] | str | Path, environment: Mapping[str, str] | None = None
) -> dict[str, McpServer]:
    """Return the servers by name, with `${NAME}` replaced from `environment`, by default the process's.

    `disabled` ones are left out. Raises ConfigError that names the file or server, and what to do.
    """
    environment = os.environ if environment is None else environment
    raw = config if isinstance(config, Mapping) else _read_json(Path(config))
    servers = raw.get("mcpServers", raw.get("servers", raw))
    if not isinstance(servers, Mapping):
        raise ConfigError('MCP servers are given as {"mcpServers": {name: {"command": …} or {"url": …}}}')
    return {
        str(name): _read_connection(str(name), server, environment)
        for name, server in servers.items()
        if not (isinstance(server, Mapping) and server.get("disabled") is True)
    }


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        raw = json.loads(path.expanduser().read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"the MCP configuration {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"the MCP configuration {path} is not JSON: {error}") from error
    if not isinstance(raw, Mapping):
        raise ConfigError(f"the MCP configuration {path} must be a JSON object")
    return raw


def _read_connection(name: str, server: Any, environment: Mapping[str, str]) -> McpServer:
    if not isinstance(server, Mapping):
        raise ConfigError(f"the MCP server {name!r} must be an object with a command or a url")
    if isinstance(server.get("command"), str):
        connection = {
            "command": server["command"],
            "args": _read_texts(name, "args", server.get("args", [])),
            "env": _read_named_texts(name, "env", server.get("env") or {}),
        }
        if server.get("cwd") is not None:
            connection["cwd"] = str(server["cwd"])
    elif isinstance(server.get("url"), str):
        kind = server.get("type") or server.get("transport") or "http"
        if kind not in _TRANSPORTS:
            raise ConfigError(f"the MCP server {name!r} has the type {kind!r}; use http or sse")
        connection = {"transport": _TRANSPORTS[kind], "url": server["url"]}
        if _read_switch(name, server, "trust"):
            connection["trust"] = True
        if "auth" in server:
            connection["auth"] = _read_credentials(name, server["auth"])
        if server.get("headers"):
            connection["headers"] = _read_named_texts(name, "headers", server["headers"])
    else:
        raise ConfigError(f"the MCP server {name!r} needs a command (a local program) or a url (a remote server)")
    if _read_switch(name, server, "legacy"):
        connection["legacy"] = True
    if server.get("effects"):
        connection["effects"] = _read_named_texts(name, "effects", server["effects"])
    if (fixed := server.get("arguments")) is not None:
        if not isinstance(fixed, Mapping) or not all(isinstance(each, Mapping) for each in fixed.values()):
            raise ConfigError(f'arguments of the MCP server {name!r} are given as {{"tool": {{"argument": value}}}}')
        connection["arguments"] = {tool: dict(each) for tool, each in fixed.items()}
    return {key: _fill_variables(name, value, environment) for key, value in connection.items()}


def _read_switch(name: str, server: Mapping[str, Any], key: str) -> bool:
    value = server.get(key)
    if not (value is None or isinstance(value, bool)):
        raise ConfigError(f"{key} of the MCP server {name!r} is true or false, not {value!r}")
    return bool(value)


def _read_credentials(name: str, value: Any) -> dict[str, str]:
    """Return the credentials with which a program logs in (OAuth's client credentials)."""
    fields = _read_named_texts(name, "auth", value)
    if {"client_id", "client_secret", "issuer"} - fields.keys() or fields.keys() - {*LOGIN}:
        raise ConfigError(
            f"auth of the MCP server {name!r} has {', '.join(LOGIN[:3])} and perhaps {LOGIN[3]}; a fixed token goes "
            "into headers, and the login of a person is passed as McpServers(…, auth=…)"
        )
    return fields


def _read_texts(name: str, key: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ConfigError(f"{key} of the MCP server {name!r} must be a list of texts")
    return value


def _read_named_texts(name: str, key: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for each in value.values()):
        raise ConfigError(f"{key} of the MCP server {name!r} must map names to texts")
    return dict(value)


def _fill_variables(name: str, value: Any, environment: Mapping[str, str]) -> Any:
    """Return the value with its variables replaced."""
    if isinstance(value, list):
        return [_fill_variables(name, each, environment) for each in value]
    if isinstance(value, dict):
        return {key: _fill_variables(name, each, environment) for key, each in value.items()}
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        text = environment.get(match[1], match[2])
        if text is None:
            raise ConfigError(
                f"the MCP server {name!r} wants the variable {match[1]}, which is not set: set it, "
                f"or write ${{{match[1]}:-default}}"
            )
        return text

    return _VARIABLE.sub(variable, value)


def installed_version() -> str:
    """Return the version of the installed package; "0" if it runs from its source folder."""
    try:
        return version("donewhen")
    except PackageNotFoundError:
        return "0"
