"""Any HTTP API as tools, from its OpenAPI document."""

from donewhen.agent.openapi.tools import ApiError, openapi_tools

__all__ = ["ApiError", "openapi_tools"]
