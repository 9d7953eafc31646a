"""LangChain's OpenAI model with less work for each request."""

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_openai import ChatOpenAI


class OpenAIChat(ChatOpenAI):
    """A ChatOpenAI that sends messages and tools as LangChain wrote them.

    OpenAI's client validates and copies every field of every message in each request, but sends `extra_body` as it is.
    So messages and tools go there, except in requests of the Responses API and for structured output.

    Cache marks (`cache_control`), which LangChain removes from tool results, are kept: OpenRouter reads them.
    """

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "messages" not in payload or "response_format" in payload:
            return payload
        for message, sent in zip(self._convert_input(input_).to_messages(), payload["messages"], strict=True):
            if isinstance(message, ToolMessage) and _is_marked(message):
                sent["content"] = message.content
        ready = {key: payload[key] for key in ("messages", "tools") if key in payload}
        extra = {**ready, **(payload.get("extra_body") or {})}
        return {**payload, **dict.fromkeys(ready, ()), "extra_body": extra}


def _is_marked(message: BaseMessage) -> bool:
    return any(isinstance(block, dict) and "cache_control" in block for block in message.content)
