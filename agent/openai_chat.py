"""LangChain's model of OpenAI, at less work for each request."""

from typing import Any

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_openai import ChatOpenAI


class OpenAIChat(ChatOpenAI):
    """A ChatOpenAI whose messages and tools are sent as LangChain wrote them.

    OpenAI's client looks at every field of every message, and copies it, in each request; what is in `extra_body` it
    sends as it is. Requests of the Responses API, and those for structured output, go the ordinary way.

    Marks for a provider's cache, which LangChain takes off the results of tools, stay on them: OpenRouter reads them.
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
