"""Help providers cache the beginning of a prompt, by marks on messages and a key for the thread.

Anthropic and other providers of its models (Bedrock, Vertex, OpenRouter) cache a prompt up to its marked messages, and
nothing without marks. OpenAI and others cache without marks; a key per conversation routes its requests to the server
that holds its cache.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from donewhen.prompts import closing

CACHE_CONTROL, CACHE_POINT, ON_RESULTS = "cache_control", "cachePoint", "cache_control on results"
"""Forms of marks: on a block of text; a block of its own; on a text, and on a tool's result as a whole."""
_MARKS = {
    "ChatAnthropic": CACHE_CONTROL,
    "ChatAnthropicVertex": CACHE_CONTROL,
    "ChatBedrock": ON_RESULTS,
    "ChatBedrockConverse": CACHE_POINT,
}
"""By LangChain class, subclasses included: the form of a mark."""
SHARED_END = f"{closing('goal')}\n"
"""The end of what the briefs of all steps of a run begin with."""
_KEYED_HOSTS = ("openai.com", "azure.com", "x.ai", "mistral.ai", "fireworks.ai", "openrouter.ai")
"""Servers that take `prompt_cache_key`; others might refuse a request with it."""
_AFFINITY_HEADERS = {"x.ai": "x-grok-conv-id", "fireworks.ai": "x-session-affinity"}
"""Servers that route by a header, and its name."""


def mark_kind(model: BaseChatModel) -> str:
    """Return the form of the marks that a model's provider expects; "" if it expects none."""
    kind = next((_MARKS[each.__name__] for each in type(model).__mro__ if each.__name__ in _MARKS), "")
    if getattr(model, "beta_use_converse_api", False):
        kind = CACHE_POINT
    if kind in (CACHE_POINT, ON_RESULTS):
        # Bedrock refuses marks for models that do not cache; Amazon's own cache by themselves.
        names = (getattr(model, name, None) for name in ("provider", "base_model_id", "model_id"))
        return kind if any("anthropic" in str(name) for name in names) else ""
    if not kind and "anthropic/" in str(getattr(model, "model_name", "")) and _host_in(model, ("openrouter.ai",)):
        return CACHE_CONTROL
    return kind


def mark_messages(messages: Sequence[BaseMessage], kind: str, *, lasting: int, goes_on: bool) -> list[BaseMessage]:
    """Mark where the provider should cache: behind the tools and instructions, behind the part that the briefs of all
    steps share, and at the end of the conversation.

    `lasting`: how many of the first messages the next request has, too. `goes_on`: a next request is likely; without
    one, caching more than the instructions only costs. The end of the previous request is marked as well, because
    Anthropic looks back only 20 blocks for it. Every text becomes a block, marked or not, because a provider may cache
    the two forms separately.
    """
    places = {0} if isinstance(messages[0], SystemMessage) else set()
    if goes_on:
        replies = [place for place, message in enumerate(messages) if isinstance(message, AIMessage)]
        places |= {lasting - 1, *(place - 1 for place in replies[-1:])}
    prepared = [_prepare(message, kind, mark=place in places) for place, message in enumerate(messages)]
    brief = next((place for place, message in enumerate(messages) if isinstance(message, HumanMessage)), None)
    if goes_on and brief is not None:
        prepared[brief] = _split_brief(prepared[brief], kind)
    return prepared


def _prepare(message: BaseMessage, kind: str, *, mark: bool) -> BaseMessage:
    """Return a message in the form that can have a mark, and has one if `mark`."""
    if isinstance(message, AIMessage):
        return message
    if kind == ON_RESULTS and isinstance(message, ToolMessage):
        return _mark_result(message) if mark else message
    return _in_blocks(message, kind if mark else "")


def _in_blocks(message: BaseMessage, mark: str) -> BaseMessage:
    """Return a message whose text is a block, with a mark unless it is empty."""
    text = isinstance(message.content, str)
    content: list[Any] = [{"type": "text", "text": message.content}] if text else [*message.content]
    last = content[-1] if content else ""
    if not isinstance(last, dict) or not str(last.get("text", "…")).strip():
        return message
    if mark == CACHE_POINT:
        content.append({"cachePoint": {"type": "default"}})
    elif mark:
        content[-1] = {**last, "cache_control": {"type": "ephemeral"}}
    return message.model_copy(update={"content": content})


def _split_brief(message: BaseMessage, kind: str) -> BaseMessage:
    """Return a brief whose beginning, that other steps' briefs have too, is a block of its own, with a mark."""
    blocks: list[Any] = message.content if isinstance(message.content, list) else []
    first = blocks[0] if blocks and isinstance(blocks[0], dict) else {}
    shared, end, own = str(first.get("text", "")).partition(SHARED_END)
    if not own.strip():
        return message
    marked = _in_blocks(HumanMessage(shared + end), kind).content
    return message.model_copy(update={"content": [*marked, {**first, "text": own}, *blocks[1:]]})


def _mark_result(message: ToolMessage) -> BaseMessage:
    """Return a result in the form that Anthropic takes, with a mark; one with images as it is.

    langchain-aws sends such a block as it stands. Marks inside of a result count for nothing.
    """
    if not isinstance(message.content, str):
        return message
    result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}
    return message.model_copy(update={"content": [{**result, "cache_control": {"type": "ephemeral"}}]})


def takes_key(model: BaseChatModel) -> bool:
    """Return True if the model's server routes by a key, and its owner set none."""
    own = {**(getattr(model, "model_kwargs", None) or {}), **(getattr(model, "extra_body", None) or {})}
    return _host_in(model, _KEYED_HOSTS) is not None and "prompt_cache_key" not in own


def key_options(model: BaseChatModel, thread: str) -> dict[str, Any]:
    """Return the options of a request that carry the key of a thread, which is a hash of its id."""
    key = sha256(f"donewhen {thread}".encode()).hexdigest()[:32]
    options: dict[str, Any] = {"prompt_cache_key": key}
    if host := _host_in(model, tuple(_AFFINITY_HEADERS)):
        own = (getattr(model, "model_kwargs", None) or {}).get("extra_headers") or {}
        options["extra_headers"] = {_AFFINITY_HEADERS[host]: key, **own}
    return options


def _host_in(model: BaseChatModel, hosts: Sequence[str]) -> str | None:
    """Return the one of these hosts at which an OpenAI client has its server, or None."""
    address = getattr(getattr(model, "root_async_client", None), "base_url", None)
    named = str(getattr(address, "host", ""))
    return next((host for host in hosts if named == host or named.endswith(f".{host}")), None)
