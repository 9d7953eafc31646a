"""The connection to an editor: JSON-RPC, one message a line. An invalid line gets an error and does no harm."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from donewhen.clients import DEEPEST, Json, is_too_deep

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
"""JSON-RPC's codes."""
NOTIFICATIONS = ("session/cancel",)
"""The notifications that are handled; others are dropped, because a notification has no answer."""


class EditorLines:
    """A transport for the protocol's library that survives invalid messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Json | None:
        """Return the next message; None at the end. Invalid lines are answered with an error."""
        while line := await self._read_line():
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                await self._refuse(None, PARSE_ERROR, f"this line is no JSON: {error}")
                continue
            problem = _problem_of(message)
            is_notification = isinstance(message, dict) and "id" not in message
            if problem is None and (not is_notification or message["method"] in NOTIFICATIONS):
                return _normalize(message)
            if problem and not (is_notification and "method" in message):
                await self._refuse(message, *problem)
        return None

    async def send(self, message: Json) -> None:
        """Write a message. Raises ConnectionError for a request if the editor is gone; a reply is dropped."""
        if isinstance(error := message.get("error"), dict):
            message = {**message, "error": _shorten_error(error)}
        try:
            if self._writer.is_closing():
                raise ConnectionError("the editor has closed the connection")
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            if "method" in message:
                raise

    async def close(self) -> None:
        """Close the connection for writing."""
        self._writer.close()

    async def _read_line(self) -> bytes:
        parts: list[bytes] = []
        while True:
            try:
                return b"".join([*parts, await self._reader.readuntil()])
            except asyncio.LimitOverrunError as error:
                parts.append(await self._reader.readexactly(error.consumed))
            except asyncio.IncompleteReadError as error:
                return b"".join([*parts, error.partial])

    async def _refuse(self, message: Any, code: int, text: str) -> None:
        id = message.get("id") if isinstance(message, Mapping) else None
        await self.send({"jsonrpc": "2.0", "id": _valid_id(id), "error": {"code": code, "message": text}})


def _problem_of(message: Any) -> tuple[int, str] | None:
    """Return code and text of what is wrong with a message; None if nothing is, as far as its method need not say."""
    if not isinstance(message, dict):
        return INVALID_REQUEST, "a message is a JSON object; send one on each line"
    if is_too_deep(message):
        return INVALID_REQUEST, f"a message is nested at most {DEEPEST} times"
    if not ("method" in message or ("id" in message and ("result" in message or "error" in message))):
        return INVALID_REQUEST, "a message has a method, or is the result or error of a request"
    if not isinstance(message.get("method", ""), str):
        return METHOD_NOT_FOUND, f"the method is {message['method']!r}; it must be a text"
    if "id" in message and _valid_id(message["id"]) != message["id"]:
        return INVALID_REQUEST, "the id of a message is a number or a text"
    if not isinstance(message.get("params") or {}, dict):
        return INVALID_PARAMS, "params must be an object"
    if message.get("method") in NOTIFICATIONS and not isinstance((message.get("params") or {}).get("sessionId"), str):
        return INVALID_PARAMS, f"{message['method']} needs a sessionId"
    return None


def _valid_id(id: Any) -> Any:
    return id if isinstance(id, str | int | float) else None


def _normalize(message: Json) -> Json:
    """Return a message as the library expects it: with params, and without `_meta`, which is not used here."""
    if "method" in message:
        params = {key: value for key, value in (message.get("params") or {}).items() if key != "_meta"}
        return {**message, "params": params}
    error = message.get("error")
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("code"), int)):
        return {**message, "error": {"code": INVALID_REQUEST, "message": str(error)}}
    return message


def _shorten_error(error: Json) -> Json:
    """Return an error with all that matters in its message; the library's details repeat the whole request."""
    data = error.get("data")
    if not isinstance(data, Mapping):
        return {key: value for key, value in error.items() if value is not None}
    if errors := data.get("errors"):
        problems = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}" for each in errors[:5])
        return {"code": error["code"], "message": f"{error['message']}: {problems}"}
    if error["code"] == METHOD_NOT_FOUND:
        return {"code": METHOD_NOT_FOUND, "message": f"there is no method {data.get('method')!r} here"}
    return {"code": error["code"], "message": f"{error['message']}: {data.get('details', data)}"}
