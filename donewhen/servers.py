"""Agents of your own behind MCP and ACP. `donewhen mcp` and `donewhen acp` are such servers without code."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.acp.server import serve as serve_acp
    from donewhen.agent.mcp.server import mcp_server

__all__ = ["mcp_server", "serve_acp"]


def __getattr__(name: str) -> Any:
    if name == "mcp_server":
        return import_module("donewhen.agent.mcp.server").mcp_server
    if name == "serve_acp":
        try:
            return import_module("donewhen.agent.acp.server").serve
        except ImportError as error:
            raise ImportError(f"serve_acp needs {error.name}: pip install 'donewhen[acp]'") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
