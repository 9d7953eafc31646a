"""The model as the runtime asks it: it reports what it used, and makes every request once. Pure."""

from collections.abc import Collection
from typing import Any

from langchain_core.language_models import BaseChatModel

from donewhen.graph.models.pricing import model_name


def as_asked(model: BaseChatModel, mute: Collection[str]) -> BaseChatModel:
    """A copy where something must change. `mute`: names of models whose servers refuse to report."""
    change = {**_reporting(model, mute), **_once(model)}
    return model.model_copy(update=change) if change else model


def _reporting(model: BaseChatModel, mute: Collection[str]) -> dict[str, Any]:
    """Asked to report what a streamed reply used, where LangChain leaves that open."""
    asked = getattr(model, "stream_usage", False)
    if model_name(model) in mute:
        return {"stream_usage": False} if asked else {}
    return {"stream_usage": True} if asked is None else {}


def _once(model: BaseChatModel) -> dict[str, Any]:
    """OpenAI's client repeats by itself, twice if nobody says otherwise; the runtime repeats and counts instead."""
    client = getattr(model, "root_async_client", None)
    if client is None or not hasattr(client, "with_options") or getattr(model, "max_retries", None) == 0:
        return {}
    single = client.with_options(max_retries=0)
    return {"max_retries": 0, "root_async_client": single, "async_client": single.chat.completions}
