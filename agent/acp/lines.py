"""The connection to an editor: JSON-RPC, a message a line. A line that is no message is answered, and does no harm."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from donewhen.state.channels import Json

UNREADABLE, NO_MESSAGE, NO_METHOD, INVALID = -32700, -32600, -32601, -32602
"""JSON-RPC's codes."""
NOTIFICATIONS = ("session/cancel",)
"""Those that are listened to; a notification has no answer, so all others are dropped."""


class EditorLines:
    """A transport of the protocol's library that outlives what an editor sends wrongly."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> Json | None:
        """Return the next message; None at the end. What cannot be one is answered with an error."""
        while line := await self._read_line():
            if not line.strip():
                continue
            try:
                message = json.loads(line)
            except (ValueError, RecursionError) as error:
                await self._refuse(None, UNREADABLE, f"this line is no JSON: {error}")
                continue
            problem = _problem_of(message)
            is_notification = isinstance(message, dict) and "id" not in message
            if problem is None and (not is_notification or message["method"] in NOTIFICATIONS):
                return _as_expected(message)
            if problem and not (is_notification and "method" in message):
                await self._refuse(message, *problem)
        return None

    async def send(self, message: Json) -> None:
        """Write a message. Raises ConnectionError if the editor is gone; nobody misses a reply then."""
        if isinstance(error := message.get("error"), dict):
            message = {**message, "error": _in_one_line(error)}
        try:
            if self._writer.is_closing():
                raise ConnectionError("the editor has closed the connection")
            self._writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
            await self._writer.drain()
        except ConnectionError:
            if "method" in message:
                raise

    async def close(self) -> None:
        """Write no more."""
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
        await self.send({"jsonrpc": "2.0", "id": _usable(id), "error": {"code": code, "message": text}})


def _problem_of(message: Any) -> tuple[int, str] | None:
    """Return the code and the words of what is wrong with a message, if that can be said without its method."""
    if not isinstance(message, dict):
        return NO_MESSAGE, "a message is a JSON object; send one on each line"
    if not ("method" in message or ("id" in message and ("result" in message or "error" in message))):
        return NO_MESSAGE, "a message has a method, or is the result or error of a request"
    if not isinstance(message.get("method", ""), str):
        return NO_METHOD, f"the method is {message['method']!r}; it must be a text"
    if "id" in message and _usable(message["id"]) != message["id"]:
        return NO_MESSAGE, "the id of a message is a number or a text"
    if not isinstance(message.get("params") or {}, dict):
        return INVALID, "params must be an object"
    if message.get("method") in NOTIFICATIONS and not isinstance((message.get("params") or {}).get("sessionId"), str):
        return INVALID, f"{message['method']} needs a sessionId"
    return None


def _usable(id: Any) -> Any:
    return id if isinstance(id, str | int | float) else None


def _as_expected(message: Json) -> Json:
    """Return a message as the library reads it: with params and without `_meta`, of which nothing is used here."""
    if "method" in message:
        params = {key: value for key, value in (message.get("params") or {}).items() if key != "_meta"}
        return {**message, "params": params}
    error = message.get("error")
    if error is not None and not (isinstance(error, dict) and isinstance(error.get("code"), int)):
        return {**message, "error": {"code": NO_MESSAGE, "message": str(error)}}
    return message


def _in_one_line(error: Json) -> Json:
    """Return an error whose message says all; the details of parameters repeat everything that was sent."""
    data = error.get("data")
    if not isinstance(data, Mapping):
        return {key: value for key, value in error.items() if value is not None}
    if wrong := data.get("errors"):
        said = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'params'}: {each['msg']}" for each in wrong[:5])
        return {"code": error["code"], "message": f"{error['message']}: {said}"}
    if error["code"] == NO_METHOD:
        return {"code": NO_METHOD, "message": f"there is no method {data.get('method')!r} here"}
    return {"code": error["code"], "message": f"{error['message']}: {data.get('details', data)}"}
