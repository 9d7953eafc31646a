"""Read how a reply ended: one list, for each package of LangChain, of the words that say that it is whole.

A reply counts as whole only if its end is in the list of its package (R13). Words that say that it reached a limit or
that a filter stopped it are listed too, because what follows differs; every other word, and a stream that ends without
one, says that the reply broke off. Words are compared without regard to case, since servers differ in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import AIMessage

Kind = Literal["whole", "limit", "window", "filtered", "broken"]

LIMIT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length", "max_length", "token_limit"})
"""The reply reached the most that it may write."""
WINDOW = frozenset({"model_context_window_exceeded", "context_window_exceeded"})
"""The request and the reply filled the context window."""
FILTERED = frozenset(
    {
        "content_filter",  # OpenAI, Azure, Mistral, Moonshot, OpenRouter; `content_filter: OTHER` of Google's
        "content_filtered",  # Bedrock
        "guardrail_intervened",  # Bedrock
        "refusal",  # Anthropic
        "sensitive",  # Z.ai, Hunyuan
        "safety",  # Google, with those that follow
        "blocklist",
        "prohibited_content",
        "spii",
        "image_safety",
        "model_armor",
    }
)
"""The provider refused to go on; asking again gets the same."""


@dataclass(frozen=True)
class _Package:
    """The words with which a package reports that a reply is whole."""

    whole: frozenset[str]
    always: bool = True
    """True if its streams always end with a word, so that one without a word broke off."""


_CHAT = frozenset(
    {
        "stop",
        "tool_calls",
        "function_call",
        "end_turn",  # xAI; servers that hand on Anthropic's word, as the two that follow
        "tool_use",
        "stop_sequence",  # and TGI
        "eos",  # Together
        "eos_token",  # TGI, Hugging Face
        "normal",  # Baidu
    }
)
"""The words of servers that speak OpenAI's chat completions."""
_PACKAGES = {
    "langchain_openai": _Package(_CHAT | {"completed"}),  # `completed` is a status of the Responses API
    "langchain_groq": _Package(_CHAT),
    "langchain_mistralai": _Package(_CHAT),
    "langchain_fireworks": _Package(_CHAT),
    "langchain_anthropic": _Package(frozenset({"end_turn", "tool_use", "stop_sequence"})),
    "langchain_google_genai": _Package(frozenset({"stop"})),
    "langchain_ollama": _Package(frozenset({"stop", "done"})),  # old versions say `done` and give no reason
    "langchain_aws": _Package(_CHAT, always=False),  # Converse raises by itself; others may say nothing
}
"""By package. Subclasses elsewhere (DeepSeek's, xAI's, Azure's of OpenAI's) report as the class that they extend."""
_ANY = _Package(
    _CHAT.union(*(package.whole for package in _PACKAGES.values()), {"complete", "tool_call"}), always=False
)
"""Any other class: those of users and of tests, which need not say how a reply ended, and Cohere's."""
_REASONS = ("finish_reason", "stop_reason", "stopReason", "done_reason")


@dataclass(frozen=True)
class ReplyEnding:
    """How a reply ended, and the provider's word for it; "" if it gave none."""

    kind: Kind
    word: str = ""


def ending_of(model: Any, message: AIMessage, *, streamed: bool = True) -> ReplyEnding:
    """Return how a reply of this model ended. One that was not streamed is whole unless it says otherwise."""
    feedback = message.response_metadata.get("prompt_feedback")
    if isinstance(feedback, Mapping) and (blocked := feedback.get("block_reason")):  # Google refused the prompt
        return ReplyEnding("filtered", _plain_word(blocked) or "blocked")
    package, word = _package_of(model), _word_of(message.response_metadata)
    if not word:
        return ReplyEnding("broken" if package.always and streamed else "whole")
    kinds: tuple[tuple[Kind, frozenset[str]], ...] = (
        ("whole", package.whole),
        ("limit", LIMIT),
        ("window", WINDOW),
        ("filtered", FILTERED),
    )
    return ReplyEnding(next((kind for kind, words in kinds if word.lower() in words), "broken"), word)


def reached_limit(message: AIMessage) -> bool:
    """Return True if the provider says that the reply reached the output limit."""
    return _word_of(message.response_metadata).lower() in LIMIT


def refusal_in(message: AIMessage) -> str:
    """Return the words in which a model refuses to answer, where its provider sets them apart; "" if there are none."""
    metadata, blocks = message.response_metadata, message.content if isinstance(message.content, list) else ()
    feedback, details = metadata.get("prompt_feedback"), metadata.get("stop_details")
    words = [block.get("refusal") for block in blocks if isinstance(block, Mapping) and block.get("type") == "refusal"]
    words += [message.additional_kwargs.get("refusal"), metadata.get("finish_message")]
    words += [feedback.get("block_reason_message") if isinstance(feedback, Mapping) else None]
    words += [details.get("explanation") if isinstance(details, Mapping) else None]
    return next((word.strip() for word in words if isinstance(word, str) and word.strip()), "")


def reports_parts(model: Any) -> bool:
    """Return True if the package reports the usage of each chunk, and not the usage so far."""
    return any(each.__module__.startswith("langchain_google_") for each in type(model).__mro__)


def _package_of(model: Any) -> _Package:
    names = (each.__module__.partition(".")[0] for each in type(model).__mro__)
    return next((_PACKAGES[name] for name in names if name in _PACKAGES), _ANY)


def _word_of(metadata: Mapping[str, Any]) -> str:
    """Return the word for the end in the metadata of a reply; "" if there is none."""
    details = metadata.get("incomplete_details")
    reasons = [details.get("reason")] if isinstance(details, Mapping) else []
    reasons += [metadata.get(name) for name in _REASONS]
    reasons += [
        metadata.get("status") if metadata.get("object") == "response" else None,
        "done" if metadata.get("done") else None,
    ]
    return next((word for word in map(_plain_word, reasons) if word), "")


def _plain_word(reason: Any) -> str:
    """Return a reason as one word: of an enumeration, or of `FinishReason.STOP`, or before `content_filter: OTHER`."""
    value = getattr(reason, "value", reason)
    word = value if isinstance(value, str) else str(getattr(reason, "name", None) or "")
    return word.rpartition("FinishReason.")[2].partition(":")[0].strip()
