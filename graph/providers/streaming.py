"""A model's stream: LangChain's `astream`, or, where no callback would hear of it, what the model itself streams.

For what callbacks are told LangChain looks at all messages of a conversation three times, in every request
(docs/decisions/0063).
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig, ensure_config

_TRANSLATED = ("input_audio", "file", "image", "audio")
"""Content blocks whose older forms LangChain translates."""


def streamed(
    model: Any, messages: Sequence[BaseMessage], config: RunnableConfig, options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    """The reply in pieces, all with one id, as `model.astream` gives them."""
    config = ensure_config(config)
    direct = isinstance(model, BaseChatModel) and _plain(model, messages, options) and not _heard(model, config)
    return _unheard(model, messages, options) if direct else model.astream(messages, config=config, **options)


def _plain(model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]) -> bool:
    """Whether LangChain would do no more with what comes and goes than to hand it on."""
    own = type(model).astream is BaseChatModel.astream and model.output_version != "v1"
    listed = (block for message in messages if isinstance(message.content, list) for block in message.content)
    translated = any(isinstance(block, dict) and block.get("type") in _TRANSLATED for block in listed)
    return own and not translated and model._should_stream(async_api=True, **{**options, "stream": True})


def _heard(model: BaseChatModel, config: RunnableConfig) -> bool:
    """Whether anybody is told of calls of the model: a callback of the run or the model, or a tracer of the process."""
    return bool(AsyncCallbackManager.configure(config.get("callbacks"), model.callbacks, model.verbose).handlers)


async def _unheard(
    model: BaseChatModel, messages: Sequence[BaseMessage], options: Mapping[str, Any]
) -> AsyncIterator[BaseMessage]:
    if model.rate_limiter:
        await model.rate_limiter.aacquire(blocking=True)
    id = f"lc_run--{uuid4()}"
    async for chunk in model._astream(list(messages), **options):
        message = chunk.message
        message.id = message.id or id
        message.response_metadata = {**(chunk.generation_info or {}), **message.response_metadata}
        yield message
