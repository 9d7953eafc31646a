"""A LangChain chat model that follows a script at once, or as slowly as it is told; it notes what it is sent."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from common import USAGE, Prompts
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult


class FakeChat(BaseChatModel):
    """Replies are `(tool, arguments)`, or `(None, text)`; `pieces` streams each in so many pieces."""

    replies: list[Any]
    prompts: Any = None
    pieces: int = 1
    seconds: float = 0.0
    moments: Any = None
    """Filled with the moments at which pieces were handed out."""
    first: Any = None
    """Called once, at the first request."""
    at: int = 0

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        from langchain_core.utils.function_calling import convert_to_openai_tool

        return self.bind(tools=[t if isinstance(t, dict) else convert_to_openai_tool(t) for t in tools])

    def _next(self, messages: Any, options: Any) -> tuple[str | None, Any]:
        if self.first:
            self.first()
        if isinstance(self.prompts, Prompts):
            sent = [[m.type, m.content, getattr(m, "tool_calls", None)] for m in messages]
            self.prompts.sent([options.get("tools"), sent])
        reply = self.replies[self.at](messages) if callable(self.replies[self.at]) else self.replies[self.at]
        self.at += 1
        return reply  # type: ignore[no-any-return]

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        time.sleep(self.seconds)
        return self._result(*self._next(messages, options))

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        await asyncio.sleep(self.seconds)
        return self._result(*self._next(messages, options))

    def _result(self, name: str | None, said: Any) -> ChatResult:
        calls = [{"name": name, "args": said, "id": f"c{self.at}"}] if name else []
        message = AIMessage("" if name else said, tool_calls=calls, usage_metadata=dict(USAGE))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        await asyncio.sleep(self.seconds)
        name, said = self._next(messages, options)
        text = json.dumps(said) if name else said
        size = -(-len(text) // self.pieces)
        for place in range(0, len(text), size):
            part = text[place : place + size]
            last = place + size >= len(text)
            if self.pieces > 1:
                await asyncio.sleep(0.005)
            if self.moments is not None:
                self.moments.append((part, time.perf_counter()))
            call = {"name": name if not place else None, "args": part, "id": f"c{self.at}" if not place else None}
            calls = [{**call, "index": 0}] if name else []
            usage = dict(USAGE) if last else None
            chunk = AIMessageChunk("" if name else part, tool_call_chunks=calls, usage_metadata=usage)
            chunk = ChatGenerationChunk(message=chunk)
            if run_manager and not name:
                await run_manager.on_llm_new_token(part, chunk=chunk)
            yield chunk


def loop(n: int, tool: str) -> list[Any]:
    """N replies of a plain loop: calls, and then the answer."""
    return [*((tool, {"what": f"item {k}"}) for k in range(n - 1)), (None, "The value is 12345.")]
