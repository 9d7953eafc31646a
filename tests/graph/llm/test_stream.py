"""A model's stream is the same whether or not anybody is told of it; only LangChain's accounts are left out."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from pydantic import Field

from donewhen.graph.llm.stream import join_chunks, stream_reply

ASKED = [HumanMessage("go")]


class Model(BaseChatModel):
    """Says a word and calls a tool, in pieces without ids; notes what it is sent."""

    sent: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "test"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("whole"))])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        self.sent.append((messages, options))
        yield ChatGenerationChunk(message=AIMessageChunk("Look"))
        for args in ('{"what"', ': "x"}'):
            call: Any = {"name": "look" if "{" in args else None, "args": args, "id": None, "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[call]))
        usage: Any = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        last = AIMessageChunk("", usage_metadata=usage, response_metadata={"model_name": "m"})
        yield ChatGenerationChunk(message=last, generation_info={"finish_reason": "tool_calls"})


async def reply(
    model: Any, messages: Sequence[BaseMessage] = ASKED, callbacks: Any = None, **options: Any
) -> AIMessage:
    chunks = [chunk async for chunk in stream_reply(model, messages, {"callbacks": callbacks}, options)]
    assert len({chunk.id for chunk in chunks}) == 1
    return join_chunks(chunks)


async def test_a_model_that_does_not_stream_is_asked_as_it_can() -> None:
    """By its class, or because its owner said so."""
    assert (await reply(Model(disable_streaming=True))).text == "whole"
    assert (await reply(Model(disable_streaming="tool_calling"), tools=[{}])).text == "whole"
    assert (await reply(Model(disable_streaming="tool_calling"))).text == "Look"


async def test_old_forms_of_files_are_translated() -> None:
    """As LangChain does for every model."""
    block = {"type": "file", "source_type": "base64", "data": "QQ==", "mime_type": "application/pdf"}
    model = Model()
    await reply(model, [HumanMessage([block])])
    assert model.sent[0][0][0].content[0]["base64"] == "QQ=="


async def test_a_rate_limiter_is_waited_for() -> None:
    """Once per request."""
    waits: list[bool] = []

    class Limiter(BaseRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            raise NotImplementedError

        async def aacquire(self, *, blocking: bool = True) -> bool:
            waits.append(blocking)
            return True

    await reply(Model(rate_limiter=Limiter()))
    assert waits == [True]
