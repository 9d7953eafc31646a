"""Translate the blocks of prompts into goals, and messages, calls and changes into what the editor draws."""

import os
import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Any
from urllib.parse import unquote, urlsplit

import acp
from acp.schema import ToolCallLocation
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from donewhen import Agent
from donewhen.clients import TASK, Json
from donewhen.prompts import framed


def goal_block(block: Any, folder: str) -> Json:
    """Return a block of a prompt as one of a goal; linked and embedded files are named by their path in the folder."""
    if block.type == "text":
        return {"type": "text", "text": block.text}
    if block.type in ("image", "audio"):
        return {"type": block.type, "base64": block.data, "mime_type": block.mime_type}
    if block.type == "resource_link":
        return {"type": "text", "text": f"[{block.name}]({_place(block.uri, folder)})"}
    resource = block.resource
    place = _place(resource.uri, folder)
    if hasattr(resource, "text"):
        # Framed, because the text of a file or page is not what the user said.
        name = " ".join(place.replace('"', "'").split())
        return {"type": "text", "text": framed("embedded", resource.text, token_hex(3), name=name)}
    return {"type": "file", "base64": resource.blob, "mime_type": resource.mime_type or "", "filename": place}


def _place(uri: Any, folder: str) -> str:
    """Return the path in the folder that a `file:` address means; any other address as it is."""
    parts = urlsplit(str(uri))
    if parts.scheme != "file":
        return str(uri)
    path = unquote(parts.path)
    return os.path.relpath(path, folder) if path.startswith(os.path.join(folder, "")) else path


def message_updates(message: AnyMessage) -> Iterator[Any]:
    """Yield the updates that show a message of the conversation."""
    if isinstance(message, HumanMessage):
        yield acp.update_user_message_text(message.text)
    elif isinstance(message, ToolMessage) and message.name == TASK:
        content = [acp.tool_content(acp.text_block(message.text))]
        yield acp.update_tool_call(message.tool_call_id, status="completed", content=content)
    elif isinstance(message, ToolMessage):
        yield acp.update_user_message_text(message.text)
    elif isinstance(message, AIMessage):
        if message.text:
            yield acp.update_agent_message_text(f"{message.text}\n\n")
        for call in message.tool_calls:
            if call["name"] == TASK:
                title = f"{call['args'].get('subagent_type')}: {call['args'].get('description')}"
                yield acp.start_tool_call(str(call["id"]), title, kind="other", status="in_progress")


def locations(call: Any, folder: str) -> list[ToolCallLocation]:
    """Return the file in a call's arguments, so that the editor can open it."""
    path = (call.get("arguments") or {}).get("path")
    return [ToolCallLocation(path=os.path.join(folder, path))] if isinstance(path, str) and path else []


def title(call: Any) -> str:
    """Return a title for a call: its tool and the path or first text among its arguments."""
    texts = [value for value in call["arguments"].values() if isinstance(value, str)]
    about = call["arguments"].get("path") or next(iter(texts), "")
    return f"{call['tool']} {' '.join(str(about).split())[:60]}".strip()


def kind_of(call: Any, agent: Agent) -> Any:
    """Return the kind of a call, by which the editor draws it and may apply policies of its own."""
    if any(edits(call, "")):
        return "edit"
    return "read" if agent.executors.toolbox.effect(str(call.get("tool"))) == "read" else "other"


def edits(call: Any, folder: str) -> Iterator[Any]:
    """Yield what a call changes in a file: the passages that differ, the replaced one, or all of a new file."""
    arguments = call.get("arguments") or {}
    path = os.path.join(folder, str(arguments.get("path")))
    hunks = [hunk for diff in (call.get("diffs") or {}).values() for hunk in re.split(r"(?m)^@@.*@@\n", diff)[1:]]
    for hunk in hunks:
        lines = hunk.rstrip("\n").split("\n")
        old, new = ("\n".join(line[1:] for line in lines if line[:1] in marks) for marks in (" -", " +"))
        yield acp.tool_diff_content(path, new, old)
    if hunks or "path" not in arguments:
        return
    if "old" in arguments and "new" in arguments:
        yield acp.tool_diff_content(path, str(arguments["new"]), str(arguments["old"]))
    elif "content" in arguments:
        yield acp.tool_diff_content(path, str(arguments["content"]))
