"""A server on loopback that speaks Anthropic's messages API, and caches and counts as Anthropic does.

Source of the rules: https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MOST_MARKS, LOOK_BACK, LEAST_TOKENS = 4, 20, 1024
"""Marks of a request; blocks before a mark in which an entry is found; tokens of the shortest entry."""

Reply = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Makes the content block of a reply from the body of a request."""


class BadRequest(Exception):
    """A request that Anthropic refuses."""


def tool_use(id: str, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block of a call."""
    return {"type": "tool_use", "id": id, "name": name, "input": dict(arguments)}


def blocks_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all blocks of a request in the order in which they are cached: tools, system, messages."""
    system = body.get("system") or []
    found = [*body.get("tools", ()), *([{"type": "text", "text": system}] if isinstance(system, str) else system)]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        found += [{**block, "role": message["role"]} for block in blocks]
    return found


def marks_of(body: Mapping[str, Any]) -> list[int]:
    """Return the places of the marked blocks. Raises BadRequest for marks that Anthropic refuses."""
    blocks = blocks_of(body)
    last = len(blocks) - 1 if "cache_control" in body else -1  # a mark of the whole request moves to its last block
    marks = [place for place, block in enumerate(blocks) if "cache_control" in block or place == last]
    if len(marks) > MOST_MARKS:
        raise BadRequest(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    if any(blocks[place].get("type") == "text" and not blocks[place]["text"].strip() for place in marks):
        raise BadRequest("cache_control cannot be set for empty text blocks")
    return marks


@dataclass
class AnthropicServer:
    """Serves replies until it is closed; `bodies` are the requests, `usages` what each was charged for."""

    reply: Reply
    bodies: list[dict[str, Any]] = field(default_factory=list)
    usages: list[dict[str, int]] = field(default_factory=list)
    refuses: str = ""
    """The error for requests with marks; "" if they are taken."""
    _entries: set[str] = field(default_factory=set, init=False)

    def __enter__(self) -> "AnthropicServer":
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def base_url(self) -> str:
        """The address for `ChatAnthropic(base_url=…)`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def share_read(self, *, of: Callable[[Mapping[str, Any]], bool] = lambda body: True) -> float:
        """Return the part of the input tokens of these requests that was read from the cache."""
        used = [usage for body, usage in zip(self.bodies, self.usages, strict=True) if of(body)]
        read = sum(usage["cache_read_input_tokens"] for usage in used)
        keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        return read / sum(usage[key] for usage in used for key in keys)

    def count(self, body: Mapping[str, Any]) -> dict[str, int]:
        """Return the usage of a request, and keep what it caches."""
        marks = marks_of(body)
        if marks and self.refuses:
            raise BadRequest(self.refuses)
        totals, hashes, running, digest = [], [], 0, sha256()
        for block in blocks_of(body):
            text = json.dumps({key: value for key, value in block.items() if key != "cache_control"})
            running += -(-len(text) // 4)
            digest.update(text.encode())
            totals.append(running)
            hashes.append(digest.hexdigest())
        ends = [place for mark in marks for place in range(max(mark - LOOK_BACK, 0), mark + 1)]
        read = max((totals[place] for place in ends if hashes[place] in self._entries), default=0)
        kept = [mark for mark in marks if totals[mark] >= LEAST_TOKENS]
        self._entries |= {hashes[mark] for mark in kept}
        cached = max([read, *(totals[mark] for mark in kept)])
        return {
            "input_tokens": running - cached,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": cached - read,
        }

    def _handler(server) -> type[BaseHTTPRequestHandler]:  # noqa: N805 (self is the handler's)
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    usage = server.count(body)
                except BadRequest as error:
                    refusal = {"type": "error", "error": {"type": "invalid_request_error", "message": str(error)}}
                    self._send(400, "application/json", json.dumps(refusal))
                    return
                server.bodies.append(body)
                server.usages.append(usage)
                events = _events(len(server.bodies), body["model"], server.reply(body), usage)
                text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
                self._send(200, "text/event-stream", text)

            def _send(self, status: int, kind: str, text: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        return Handler


def _events(number: int, model: str, block: Mapping[str, Any], usage: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Yield the events of a streamed reply of one block."""
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    begun = {**head, "stop_reason": None, "stop_sequence": None, "usage": {**usage, "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    if block["type"] == "text":
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": block["text"]}}
    else:
        yield {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}}
        piece = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_delta", "index": 0, "delta": piece}
    yield {"type": "content_block_stop", "index": 0}
    reason = "end_turn" if block["type"] == "text" else "tool_use"
    ended = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {**usage, "output_tokens": 50}}
    yield {"type": "message_stop"}
