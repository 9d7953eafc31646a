"""Observations on their way into a prompt: numbered, bounded, marked as data."""

from collections.abc import Mapping
from typing import Any

from graph.calling import bounded
from state.marking import mark


def shown(entry: Mapping[str, Any], limit: int, hint: str = "") -> str:
    """The text in which a model sees an observation: `[s2.3] tool ok`, then the output as data."""
    status = "ok" if entry["ok"] else "error"
    head = f"[{entry['id']}] {entry['tool'] or entry['source']} {status}"
    body = mark(bounded(entry["text"], limit, entry["id"]))
    return "\n".join(part for part in (head, f"<tool_output>\n{body}\n</tool_output>", hint) if part)
