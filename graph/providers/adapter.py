"""One adapter for all providers: a model as the runtime asks it.

It repeats nothing by itself, keeps its connections for as long as the event loop lasts, reports what it used, and has
its tools bound once. What a server refuses or ignores is remembered, and the next request is made without.
Knows the classes of LangChain's packages by their attributes, without importing them.
"""

import copy
import inspect
import json
import re
from asyncio import AbstractEventLoop, get_running_loop
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableBinding

from donewhen.graph.providers.printed import decision_schema
from donewhen.prompts import render

MOST_TOKENS = {"triage": 16_384, "plan": 32_768, "execute": 32_768, "judge": 8_192, "deliver": 16_384}
"""The most a role may write, thoughts included, where neither the settings nor the model say anything."""
TOKENS = ("max_tokens", "max_output_tokens", "num_predict")
"""What LangChain's packages call it."""
_REBUILT = ("langchain_ollama", "langchain_google_genai")
"""Packages whose models make their client when they are made."""
_MADE = ("client", "profile")
"""Fields that such a model fills by itself."""
_ADDRESS = ("openai_api_base", "azure_endpoint", "anthropic_api_url", "base_url", "endpoint", "groq_api_base")
"""What LangChain's packages call the server's address."""
_SIZE = 128
"""How many models with their tools are kept ready."""
_REFUSALS = {
    "tools": r"not support (?:the )?(?:tool|function)|support tool use|tools? (?:is|are) not support|enable-auto-tool",
    "tool_choice": r"tool[ _]?choice|forces? tool",
    "response_format": r"response_format|json_schema|grammar|structured output",
    "stream_options": r"stream_options|include_usage",
    "max_tokens": r"max_(?:completion_|output_)?tokens|completion tokens|in the completion",
}
"""Parameters that a server may not know or take, and by which words its refusal is known; most telling first."""


@dataclass
class Habits:
    """What was learnt about a model at its server, for all conversations: nothing that it says takes anything away."""

    name: str
    """Under which the model has its price."""
    refused: set[str] = field(default_factory=set)
    """Parameters that its server does not take."""
    called: bool = False
    """Whether it ever called a tool, so that it need never be told to print its calls."""
    window: int | None = None
    """Tokens of a request that it takes, where it refused a longer one."""

    def learn(self, message: AIMessage) -> None:
        """Note that a reply to a request that offered tools made a call."""
        self.called = self.called or bool(message.tool_calls or message.invalid_tool_calls)


class Prepared(NamedTuple):
    """A model ready to be asked."""

    model: Any
    """A Runnable from messages to a message."""
    options: Mapping[str, Any]
    """What is given to its verbs: its tools."""
    sent: frozenset[str]
    """Which of the parameters a server may refuse are sent: `tool_choice`, …"""
    printing: str = ""
    """To be appended to the instructions: how calls are printed."""


def model_name(model: BaseChatModel) -> str:
    """The name under which a model has its price."""
    named = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
    return str(next((name for name in named if name), type(model).__name__))


class Adapter:
    """All models of one graph, as they are asked.

    `first_wait`: seconds before the second attempt, doubled for each further one, where the provider names no time.
    `longest_reply`: characters; a model that runs on is stopped there, and its reply counts as cut off.
    """

    def __init__(self, *, first_wait: float = 0.5, longest_reply: int = 1_000_000) -> None:
        self.first_wait, self.longest_reply = first_wait, longest_reply
        self._habits: dict[tuple[str, ...], Habits] = {}
        self._linked: WeakKeyDictionary[AbstractEventLoop, dict[int, tuple[BaseChatModel, BaseChatModel]]] = (
            WeakKeyDictionary()
        )
        self._prepared: WeakKeyDictionary[AbstractEventLoop, OrderedDict[Any, tuple[Any, Prepared]]] = (
            WeakKeyDictionary()
        )

    def habits(self, model: BaseChatModel) -> Habits:
        """What is known about this model; the same object for every model of its name at the same server."""
        name = model_name(model)
        address = (str(getattr(model, field, None) or "") for field in _ADDRESS)
        return self._habits.setdefault((name, *address), Habits(name))

    async def prepare(
        self,
        model: BaseChatModel,
        habits: Habits,
        tools: Sequence[Mapping[str, Any]],
        *,
        must_call: bool,
        most: int | None,
        printing: bool = False,
    ) -> Prepared:
        """The model with its tools. `must_call`: a text alone would decide nothing. `most`: tokens it may write.
        `printing`: it is told to print its calls, as is a model whose server refuses tools.

        What is prepared is kept by the identity of model and tools, which nobody may change afterwards.
        """
        kept = self._prepared.setdefault(get_running_loop(), OrderedDict())
        printing = printing or "tools" in habits.refused
        key = (id(model), must_call, most, printing, *sorted(habits.refused), *map(id, tools))
        if key not in kept:
            link = await self._link(model)
            made = _prepared(link, tools, habits, must_call=must_call, most=most, printing=printing)
            kept[key] = ((model, tools), made)
            while len(kept) > _SIZE:
                kept.popitem(last=False)
        kept.move_to_end(key)
        return kept[key][1]

    def refused(self, habits: Habits, prepared: Prepared, error: BaseException) -> str | None:
        """The parameter that was refused and that the model can do without, if any; the next request leaves it out."""
        said = str(error).lower()
        for name, words in _REFUSALS.items():
            if name in prepared.sent - habits.refused and re.search(words, said):
                habits.refused.add(name)
                return name
        return None

    async def _link(self, model: BaseChatModel) -> BaseChatModel:
        """The model with a client of this event loop's own: a connection belongs to the loop that opened it."""
        linked = self._linked.setdefault(get_running_loop(), {})
        if id(model) not in linked:
            linked[id(model)] = (model, await _linked(model))
        return linked[id(model)][1]


# A client per event loop -----------------------------------------------------------------------------------------


async def _linked(model: BaseChatModel) -> BaseChatModel:
    """A copy with a new client that repeats nothing; the model itself if its class is none of those known here."""
    if (client := _stainless(getattr(model, "root_async_client", None))) is not None:  # OpenAI's
        single = await _once(client, None if getattr(model, "http_async_client", None) else {})
        own = {"max_retries": 0, "root_async_client": single, "async_client": single.chat.completions}
        return model.model_copy(update={**own, "stream_chunk_timeout": None})
    if (client := _stainless(getattr(model, "_async_client", None))) is not None:  # Anthropic's
        proxy = getattr(model, "anthropic_proxy", None)
        single = await _once(client, {"proxy": proxy} if proxy else {})
        return model.model_copy(update={"max_retries": 0, "_async_client": single})
    inner = _stainless(getattr(getattr(model, "async_client", None), "_client", None))
    if inner is not None:  # of others whose library is made as those are, such as Groq's
        own = await _once(inner, {})
        return model.model_copy(update={"max_retries": 0, "async_client": own.chat.completions})
    if any(type(model).__module__.startswith(package) for package in _REBUILT):
        given = {name: getattr(model, name) for name in model.model_fields_set if name not in _MADE}
        once = {"max_retries": 1} if "max_retries" in type(model).model_fields else {}  # Google's counts the first try
        fresh = type(model)(**{**given, **once})
        client = getattr(fresh, "_async_client", fresh)
        await _closed_with_loop(getattr(client, "aclose", None) or getattr(client, "_client", client).aclose)
        return fresh
    return model.model_copy(update={"max_retries": 0}) if getattr(model, "max_retries", 0) else model


def _stainless(client: Any) -> Any:
    """The client, if it is one of those that OpenAI and Anthropic have in common."""
    return client if hasattr(client, "with_options") and hasattr(client, "max_retries") else None


async def _once(client: Any, http: dict[str, Any] | None) -> Any:
    """The same client without retries, over a new pool of connections; `http` None: over its owner's."""
    if http is None:
        return client.with_options(max_retries=0)
    library = import_module(type(client).__module__.partition(".")[0])
    pool = library.DefaultAsyncHttpxClient(**http)
    await _closed_with_loop(pool.aclose)
    return client.with_options(max_retries=0, http_client=pool)


_open: WeakKeyDictionary[AbstractEventLoop, list[AsyncIterator[None]]] = WeakKeyDictionary()


async def _closed_with_loop(close: Callable[[], Any]) -> None:
    """Have it closed when the event loop ends: `asyncio.run` closes every generator that was begun and not ended."""

    async def held() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await close()

    holder = held()
    await anext(holder)
    _open.setdefault(get_running_loop(), []).append(holder)


# Parameters and tools --------------------------------------------------------------------------------------------


def _prepared(
    model: BaseChatModel,
    tools: Sequence[Mapping[str, Any]],
    habits: Habits,
    *,
    must_call: bool,
    most: int | None,
    printing: bool,
) -> Prepared:
    change: dict[str, Any] = {}
    sent = set()
    if getattr(model, "stream_usage", False) is None:
        change["stream_usage"] = True
    if change.get("stream_usage", getattr(model, "stream_usage", False)):
        change |= {"stream_usage": False} if "stream_options" in habits.refused else {}
        sent |= {"stream_options"} - habits.refused
    name = next((name for name in TOKENS if name in type(model).model_fields), None)
    if name and most and "max_tokens" not in habits.refused:
        change[name] = most
        sent.add("max_tokens")
    definitions = copy.deepcopy([dict(tool) for tool in tools])
    if not definitions:
        return Prepared(_changed(model, change), {}, frozenset(sent))
    if not printing:
        try:
            bound, choice = _bound(_changed(model, change), definitions, habits, must_call=must_call)
            return Prepared(*_unbound(bound), frozenset({"tools", *choice, *sent}))
        except NotImplementedError:  # of a class that has no tools
            pass
    if "response_format" not in habits.refused and (constraint := _constraint(model, decision_schema(definitions))):
        change |= constraint
        sent.add("response_format")
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in definitions)
    return Prepared(_changed(model, change), {}, frozenset(sent), render("print_calls", functions=functions))


def _changed(model: BaseChatModel, change: Mapping[str, Any]) -> BaseChatModel:
    return model.model_copy(update=dict(change)) if change else model


def _bound(
    model: BaseChatModel, definitions: Sequence[dict[str, Any]], habits: Habits, *, must_call: bool
) -> tuple[Any, dict[str, str]]:
    """The model with the tools, and how it was told that one must be called, if its class takes that."""
    thinks = str((getattr(model, "thinking", None) or {}).get("type")) in ("enabled", "adaptive")  # Anthropic's forbids
    takes = must_call and not thinks and "tool_choice" not in habits.refused
    if takes and "tool_choice" in inspect.signature(model.bind_tools).parameters:
        try:
            return model.bind_tools(definitions, tool_choice="any"), {"tool_choice": "any"}
        except ValueError:  # of a model of its class that does not
            habits.refused.add("tool_choice")
    return model.bind_tools(definitions), {}


def _unbound(bound: Any) -> tuple[Any, Mapping[str, Any]]:
    """A model and what is bound to it, apart: a binding merges its configuration anew in every request."""
    if getattr(type(bound), "astream", None) is not RunnableBinding.astream or bound.config or bound.config_factories:
        return bound, {}
    return bound.bound, bound.kwargs


def _constraint(model: BaseChatModel, schema: dict[str, Any]) -> dict[str, Any]:
    """The fields that hold a reply to a JSON Schema; none for classes that have no such field of their own."""
    if _stainless(getattr(model, "root_async_client", None)) is not None:
        # As a field of the body: LangChain's own way reads the reply again, and fails where it was cut off.
        wanted = {"type": "json_schema", "json_schema": {"name": "decision", "schema": schema}}
        return {"extra_body": {**(getattr(model, "extra_body", None) or {}), "response_format": wanted}}
    return {"format": schema} if "num_predict" in type(model).model_fields else {}
