"""Receipts that another program can check without a database: written by `export_receipt`, checked by `verify_receipt`.

Needs the extra `receipts`: pip install 'donewhen[receipts]'.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.receipts import Verification, export_receipt, verify_receipt

__all__ = ["Verification", "export_receipt", "verify_receipt"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("donewhen.agent.receipts"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__) if find_spec("rfc8785") and find_spec("cryptography") else []  # `help` asks for every one
