"""Agents of your own behind MCP, ACP and A2A. `donewhen mcp` and `donewhen acp` are such servers without code.

`mcp_server` needs the extra `mcp` (pip install 'donewhen[mcp]'), `serve_acp` the extra `acp`, `a2a_app` and
`PushNotifications` the extra `a2a`. Only those that are installed are listed.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.a2a.server import PushNotifications, a2a_app
    from donewhen.agent.acp.server import serve as serve_acp
    from donewhen.agent.mcp.server import mcp_server

__all__ = ["PushNotifications", "a2a_app", "mcp_server", "serve_acp"]
_HOME = {
    "PushNotifications": ("a2a", "PushNotifications"),
    "a2a_app": ("a2a", "a2a_app"),
    "mcp_server": ("mcp", "mcp_server"),
    "serve_acp": ("acp", "serve"),
}
"""By public name: the protocol, which is also the extra that it needs, and the name there."""


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    protocol, own = _HOME[name]
    try:
        return getattr(import_module(f"donewhen.agent.{protocol}.server"), own)
    except ImportError as error:
        needed = error.name or f"the extra {protocol}"
        raise ImportError(f"{name} needs {needed}: pip install 'donewhen[{protocol}]'") from None


def __dir__() -> list[str]:
    return [name for name in __all__ if find_spec(_HOME[name][0])]  # `help` asks for every one
