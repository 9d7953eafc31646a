"""Texts that are compared with a file of the same name: a change of wording is a diff people read.

`UPDATE_GOLDENS=1 python -m pytest tests/graph/test_prompts.py` writes them anew.
"""

import json
import os
import re
from pathlib import Path

from langchain_core.messages import AIMessage

from donewhen.testing import Request

FOLDER = Path(__file__).parents[1] / "goldens"


def matches(name: str, text: str) -> None:
    """Assert that `text` is what stands in the golden file."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"there is no golden {name}; write it with UPDATE_GOLDENS=1"
    assert text == path.read_text(encoding="utf-8"), (
        f"{name} has changed; if that is meant, write it with UPDATE_GOLDENS=1"
    )


def as_markdown(request: Request) -> str:
    """A request as a page: the tools offered, and every message under its kind."""
    parts = [f"# {request.role}", f"Tools: {', '.join(request.tool_names) or 'none'}"]
    for message in request.messages:
        parts += [f"## {message.type}", str(message.text)]
        if isinstance(message, AIMessage):
            parts += [f"→ {call['name']} {json.dumps(call['args'], ensure_ascii=False)}" for call in message.tool_calls]
    text = "\n\n".join(part for part in parts if part)
    if fence := re.search(r"^<fence>\n(\w+)\n</fence>$", text, re.MULTILINE):
        text = text.replace(fence[1], "4f2a91")
    return re.sub(r"<today>\n.*\n</today>", "<today>\n2026-11-21\n</today>", text) + "\n"
