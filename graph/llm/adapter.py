"""Prepare the models of all providers for the runtime.

A prepared model retries nothing by itself, keeps its connections as long as the event loop, reports its usage, and has
its tools bound once. Parameters that a server refuses are remembered, and later requests leave them out. LangChain's
packages are recognized by attributes, without importing them.
"""

import copy
import inspect
import json
import re
from asyncio import AbstractEventLoop, get_running_loop
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding

from donewhen.graph.llm.caching import mark_kind, takes_key
from donewhen.graph.llm.errors import words_of
from donewhen.graph.llm.openai_wire import wire_of
from donewhen.graph.llm.printed import decision_schema
from donewhen.graph.llm.provider_texts import TOO_MANY_TOOLS, any_of
from donewhen.graph.llm.schemas import OPENAI, STRICTEST, Dialect, Renamed, dialect_of, fit_tools
from donewhen.prompts import render
from donewhen.state.reading.decisions import NAMES

MOST_TOKENS = {"triage": 16_384, "plan": 32_768, "execute": 32_768, "judge": 8_192, "deliver": 16_384}
"""The most tokens a role may write, thoughts included, if neither the settings nor the model set a limit."""
LEAST_TOKENS = 1_024
"""The least to which a limit is lowered for a provider that demands one."""
TOKEN_FIELDS = ("max_tokens", "max_output_tokens", "num_predict")
"""The names of that limit in LangChain's packages."""
_LEAST_CONTEXT, _REPLY_ROOM = 16_384, 4_096
"""Tokens of the smallest window that Ollama is asked for, and of the part of it that is for the reply."""
_REMAKE_PACKAGES = ("langchain_ollama", "langchain_google_genai")
"""Packages whose models create their client in the constructor."""
_CLIENT_FIELDS = ("client", "profile")
"""Fields that such a model fills by itself."""
_ADDRESS_FIELDS = ("openai_api_base", "azure_endpoint", "anthropic_api_url", "base_url", "endpoint", "groq_api_base")
"""The names of the server's address in LangChain's packages."""
_MOST_THREADS = 1_000
"""The most threads that a model's quirks remember."""
_MOST_PREPARED = 128
"""The most prepared models in the cache."""
_REFUSALS = {
    "streaming": r"to stream\b|streaming mode|stream(?:ing)? (?:is |are )?(?:not |un)(?:supported|available|allowed)"
    r"|not support stream(?:ing)?\b(?!_)|'stream'",
    "free_turns": r"unexpected role|expected last role|roles? must alternate|should alternate"
    r"|successive (?:user|assistant)|immediately after a user turn",
    "system": r"(?:system|developer) (?:role|message|prompt|instruction)s? (?:is |are )?not (?:support|allow|enabl)ed"
    r"|does not support '(?:system|developer)'|only user(?: and|,) (?:assistant|model)|roles? must alternate",
    "prompt_cache_key": r"prompt_cache_key",
    "cache_marks": r"cache_?control|cache_?point|prompt caching",
    "tools": r"not support (?:the )?(?:tool|function)|support tool use|tools? (?:is|are) not support|enable-auto-tool"
    r"|only user(?: and|,) (?:assistant|model)|roles? must alternate",
    "tool_choice": r"tool[ _]?choice|forces? tool",
    "response_format": r"response_format|json_schema|grammar|structured output",
    "stream_options": r"stream_options|include_usage",
    "thoughts": r"reasoning_(?:content|details)|extra_content",
    "max_tokens": r"max_(?:new_|completion_|output_)?tokens|completion tokens|in the completion",
}
"""Parameters that a server may refuse, and the words of such a refusal; the most specific first."""
FORMS_OF_HISTORY = ("system", "free_turns")
"""Refusable forms of a history: instructions as a system message, and turns in any order."""
_ABOUT_SCHEMA = re.compile(
    r"input_?schema|invalid schema|json schema|schema for function|tool (?:schema|param)|function_?declarations"
    r"|\btools[.\[]\d",
    re.IGNORECASE,
)
"""Words of a refusal of a tool."""
_PLACE_OF_TOOL = re.compile(r"(?:\btools|function_?declarations)[.\[](\d{1,4})", re.IGNORECASE)


@dataclass
class ModelQuirks:
    """Facts learnt about a model at its server, for all conversations. No reply of the model removes a feature."""

    name: str
    """The name under which the model has its price."""
    maker: str = ""
    """A hash of the name and the address, by which its replies are known."""
    unsupported: set[str] = field(default_factory=set)
    """Parameters that the server does not take."""
    strict: bool = False
    """True once it refused a tool's schema in its provider's form: from then on, schemas have the simplest form."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Tools that it refuses in every form, with the reason."""
    most_tools: int | None = None
    """The most tools of one request, once it refused more."""
    calls_tools: bool = False
    """True once the model called a tool; it is never told to print calls then."""
    names_end: bool = False
    """True once it named the reason why a reply ended."""
    fills_thoughts: bool = False
    """True once it demanded thoughts for a reply of another model: such replies get a placeholder."""
    nameless_ends: int = 0
    """Replies so far that the server ended without a reason."""
    context: int = 0
    """The window that Ollama was asked for. It never shrinks: for another one the model is loaded again."""
    needs_limit: bool = False
    """True once a reply was cut off by the server's own limit, which is lower than the role's."""
    threads: "OrderedDict[str, ThreadFacts]" = field(default_factory=OrderedDict)
    """What was learnt about its window, by thread: characters per token differ between conversations."""

    def in_thread(self, thread: str) -> "ThreadFacts":
        """Return the facts of a thread; those learnt without a thread are not kept."""
        if not thread:
            return ThreadFacts()
        facts = self.threads.setdefault(thread, ThreadFacts())
        self.threads.move_to_end(thread)
        while len(self.threads) > _MOST_THREADS:
            self.threads.popitem(last=False)
        return facts


@dataclass
class ThreadFacts:
    """What a server's refusals told about the requests of a thread."""

    window: int | None = None
    """The context window in tokens, estimated after a longer request was refused."""
    limit: int | None = None
    """The limit of a reply that fits beside the requests; 0 for none."""
    blind: bool = False
    """True once a request with images of tools was refused; they are left out then."""


class PreparedModel(NamedTuple):
    """A model that is ready to be asked."""

    model: Any
    """A Runnable from messages to a message."""
    options: Mapping[str, Any]
    """Arguments of its methods: the tools."""
    sent: frozenset[str]
    """The refusable parts of a request that are sent: `tool_choice`, `cache_marks`, …"""
    printing: str = ""
    """Appended to the instructions if calls are to be printed: the form of a printed call."""
    renamed: Renamed = Renamed()
    """The names under which the provider knows tools and arguments."""
    shown: tuple[str, ...] = ()
    """The tools' own names, in the order of the request."""


def model_name(model: BaseChatModel) -> str:
    """Return the name under which a model has its price."""
    named = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
    return str(next((name for name in named if name), type(model).__name__))


class ReplyLimit(NamedTuple):
    """How much a reply may have."""

    tokens: int | None
    """None: as the model's owner set it, or its class has no such field."""
    sent: bool
    """True if the request names it. Servers add it to the length of the request, so it is only sent where it fits."""


def reply_limit(model: BaseChatModel, role: str, asked: int | None, quirks: ModelQuirks) -> ReplyLimit:
    """Return the limit of a role's reply: `asked` by the settings, else a default if the model's owner set none."""
    name = _token_field(model)
    if name is None or asked:
        return ReplyLimit(asked, bool(asked))
    default_limit = (getattr(model, "profile", None) or {}).get("max_output_tokens")
    if (getattr(model, name) or default_limit) != default_limit:
        return ReplyLimit(None, sent=False)
    most = MOST_TOKENS.get(role, max(MOST_TOKENS.values()))
    # Ollama's models write without end otherwise, and some servers have a default that is too small.
    needed = name == "num_predict" or quirks.needs_limit
    return ReplyLimit(min(most, default_limit or most), sent=needed or default_limit is not None)


def lower_limit(model: BaseChatModel, sent: int | None) -> int | None:
    """Return a lower limit than the one that was sent, 0 for none; None if there is nothing to lower.

    `sent` is None if the request had the limit of the model's owner, if any.
    """
    name = _token_field(model)
    current = sent if sent is not None or name is None else getattr(model, name)
    if not current or not _demands_limit(model):
        return 0 if current else None
    return current // 2 if current >= 2 * LEAST_TOKENS else None


def asked_context(model: BaseChatModel, quirks: ModelQuirks, tokens: Callable[[], int], most: int | None) -> int | None:
    """Return the window to ask Ollama for, in which the request and its reply fit; None for other models.

    By default, it takes 4,096 tokens on most machines, and silently drops the beginning of longer requests. `most`: the
    known window.
    """
    if "num_ctx" not in type(model).model_fields or model.num_ctx:  # type: ignore[attr-defined]
        return None
    needed = max(_LEAST_CONTEXT, 1 << (tokens() + _REPLY_ROOM - 1).bit_length())
    quirks.context = max(quirks.context, min(needed, most or needed))
    return quirks.context


def _token_field(model: BaseChatModel) -> str | None:
    return next((name for name in TOKEN_FIELDS if name in type(model).model_fields), None)


def _demands_limit(model: BaseChatModel) -> bool:
    return any(each.__name__ == "ChatAnthropic" for each in type(model).__mro__)


class Adapter:
    """Prepares all models of one graph, and remembers their quirks.

    `first_wait`: seconds before the second attempt if the provider names no time; doubled for each further attempt.
    `longest_reply`: characters after which a reply is stopped and counts as cut off.
    """

    def __init__(self, *, first_wait: float = 0.5, longest_reply: int = 1_000_000) -> None:
        self.first_wait: float = first_wait
        self.longest_reply: int = longest_reply
        self.fewest_tools: int = OPENAI.most or 0
        """No model is known to take fewer tools in one request."""
        self._quirks: dict[tuple[str, ...], ModelQuirks] = {}
        self._with_clients: WeakKeyDictionary[
            AbstractEventLoop, OrderedDict[int, tuple[BaseChatModel, BaseChatModel]]
        ] = WeakKeyDictionary()
        self._prepared: WeakKeyDictionary[AbstractEventLoop, OrderedDict[Any, tuple[Any, PreparedModel]]] = (
            WeakKeyDictionary()
        )

    def quirks_of(self, model: BaseChatModel) -> ModelQuirks:
        """Return what is known about a model: one object for all models of that name at the same server."""
        name = model_name(model)
        address = (str(getattr(model, field, None) or "") for field in _ADDRESS_FIELDS)
        key = (name, *address)
        if key not in self._quirks:
            self._quirks[key] = ModelQuirks(name, sha256(repr(key).encode()).hexdigest()[:12])
        return self._quirks[key]

    def most_tools(self, model: BaseChatModel) -> int | None:
        """Return the most tools of one request to a model; None: any number."""
        quirks = self.quirks_of(model)
        limits = (dialect_of(model, quirks.name).most, quirks.most_tools)
        return min((each for each in limits if each is not None), default=None)

    async def prepare(
        self,
        model: BaseChatModel,
        quirks: ModelQuirks,
        tools: Sequence[Mapping[str, Any]],
        *,
        must_call: bool,
        max_tokens: int | None,
        printing: bool = False,
        thinking: bool = True,
        context: int | None = None,
    ) -> PreparedModel:
        """Return the model with its tools, cached by the identity of the model and the tools.

        `must_call`: the reply has to call a tool. `max_tokens`: the most it may write; None: as the model has it; 0:
        the request does not say. `printing`: tell the model to print its calls, as is done for a server that refuses
        tools. `thinking`: a model that wants its thoughts back may think. `context`: the window to ask for.
        """
        cache = self._prepared.setdefault(get_running_loop(), OrderedDict())
        printing = printing or "tools" in quirks.unsupported
        thinking = thinking or _thinking_of(model) != "enabled"
        form = (
            must_call,
            max_tokens,
            printing,
            thinking,
            context,
            quirks.strict,
            *sorted((*quirks.unsupported, *quirks.left_out)),
        )
        key = (id(model), form, *map(id, tools))
        if key not in cache:
            own = await self._with_client_of_loop(model)
            own = own if thinking else own.model_copy(update={"thinking": None})
            own = own if context is None else own.model_copy(update={"num_ctx": context})
            prepared = _prepare(own, tools, quirks, must_call=must_call, max_tokens=max_tokens, printing=printing)
            cache[key] = ((model, tools), prepared)
            while len(cache) > _MOST_PREPARED:
                cache.popitem(last=False)
        cache.move_to_end(key)
        return cache[key][1]

    def note_refusal(self, quirks: ModelQuirks, prepared: PreparedModel, error: BaseException) -> str | None:
        """Remember and return the optional parameter that the server refused, or None if the error is about none."""
        refusal = words_of(error)
        for name, words in _REFUSALS.items():
            if name in prepared.sent - quirks.unsupported and re.search(words, refusal):
                quirks.unsupported.add(name)
                return name
        return None

    def note_too_many_tools(self, quirks: ModelQuirks, prepared: PreparedModel, error: BaseException) -> bool:
        """Remember how many tools a server takes if it refused more; return False if the error is about something else.

        The caller then makes a request with fewer, because it knows which to leave out.
        """
        match = re.search(any_of(*TOO_MANY_TOOLS), words_of(error))
        most = int(next(filter(None, match.groups()))) if match else 0
        if not most or not most < min(len(prepared.shown), quirks.most_tools or len(prepared.shown)):
            return False
        quirks.most_tools, self.fewest_tools = most, min(most, self.fewest_tools)
        return True

    def note_refused_schema(self, quirks: ModelQuirks, prepared: PreparedModel, error: BaseException) -> bool:
        """Remember what a server refused about the tools; return False if that is unknown.

        First, all tools are sent again in the simplest form. A tool that is refused then is left out, if the server
        names it; control tools never are.
        """
        text = str(error)
        if not prepared.shown or not _ABOUT_SCHEMA.search(text):
            return False
        if not quirks.strict:
            quirks.strict = True
            return True
        places = [int(place) for place in _PLACE_OF_TOOL.findall(text)]
        named = {prepared.shown[place] for place in places if place < len(prepared.shown)}
        named |= {name for name in prepared.shown if re.search(rf"(['\"`]){re.escape(name)}\1", text)}
        named = named or {n for n in prepared.shown if re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", text)}
        refused = dict.fromkeys(named - NAMES, text[:300])
        quirks.left_out |= refused
        return bool(refused)

    async def _with_client_of_loop(self, model: BaseChatModel) -> BaseChatModel:
        """Return the model with a client for this event loop; a connection belongs to the loop that opened it."""
        cache = self._with_clients.setdefault(get_running_loop(), OrderedDict())
        if id(model) not in cache:
            cache[id(model)] = (model, await _with_own_client(model))
            while len(cache) > _MOST_PREPARED:
                cache.popitem(last=False)
        cache.move_to_end(id(model))
        return cache[id(model)][1]


# A client per event loop -----------------------------------------------------------------------------------------


async def _with_own_client(model: BaseChatModel) -> BaseChatModel:
    """Return a copy with a new client that does not retry, or the model itself if its class is unknown here."""
    pool: dict[str, Any] | None = (
        None if getattr(model, "http_async_client", None) else {}
    )  # its owner's has a proxy or certificates
    if (client := _stainless_client(getattr(model, "root_async_client", None))) is not None:  # OpenAI's
        single = await _without_retries(client, pool)
        own = {"max_retries": 0, "root_async_client": single, "async_client": single.chat.completions}
        return model.model_copy(update={**own, "stream_chunk_timeout": None})
    if (client := _stainless_client(getattr(model, "_async_client", None))) is not None:  # Anthropic's
        proxy = getattr(model, "anthropic_proxy", None)
        single = await _without_retries(client, {"proxy": proxy} if proxy else {})
        return model.model_copy(update={"max_retries": 0, "_async_client": single})
    inner = _stainless_client(getattr(getattr(model, "async_client", None), "_client", None))
    if inner is not None:  # of others whose library is made as those are, such as Groq's
        own = await _without_retries(inner, pool)
        return model.model_copy(update={"max_retries": 0, "async_client": own.chat.completions})
    if any(type(model).__module__.startswith(package) for package in _REMAKE_PACKAGES):
        own_fields = {name: getattr(model, name) for name in model.model_fields_set if name not in _CLIENT_FIELDS}
        once = {"max_retries": 1} if "max_retries" in type(model).model_fields else {}  # Google's counts the first try
        fresh = type(model)(**{**own_fields, **once})
        client = getattr(fresh, "_async_client", fresh)
        await _close_with_loop(getattr(client, "aclose", None) or getattr(client, "_client", client).aclose)
        return fresh
    return model.model_copy(update={"max_retries": 0}) if getattr(model, "max_retries", 0) else model


def _stainless_client(client: Any) -> Any:
    """Return the client if it is one that Stainless generates, as for OpenAI and Anthropic; else None."""
    return client if hasattr(client, "with_options") and hasattr(client, "max_retries") else None


async def _without_retries(client: Any, http: dict[str, Any] | None) -> Any:
    """Return the client without retries, over this loop's pool for its address; if `http` is None, over its own."""
    if http is None:
        return client.with_options(max_retries=0)
    library = import_module(type(client).__module__.partition(".")[0])
    shared = _shared_pools.setdefault(get_running_loop(), {})
    key = (library.__name__, str(client.base_url), getattr(client, "api_key", None), *sorted(http.items()))
    if key not in shared:
        shared[key] = library.DefaultAsyncHttpxClient(**http)
        await _close_with_loop(shared[key].aclose)
    return client.with_options(max_retries=0, http_client=shared[key])


_shared_pools: WeakKeyDictionary[AbstractEventLoop, dict[tuple[Any, ...], Any]] = WeakKeyDictionary()
"""The pools of connections, by library, address, key and options: a pool keeps cookies, which are of one owner."""
_open_pools: WeakKeyDictionary[AbstractEventLoop, list[AsyncIterator[None]]] = WeakKeyDictionary()


async def _close_with_loop(close: Callable[[], Any]) -> None:
    """Have `close` called when the event loop ends: `asyncio.run` closes every generator that is still open."""

    async def wait_for_end() -> AsyncIterator[None]:
        try:
            yield
        finally:
            await close()

    holder = wait_for_end()
    await anext(holder)
    _open_pools.setdefault(get_running_loop(), []).append(holder)


# Parameters and tools --------------------------------------------------------------------------------------------


def _prepare(
    model: BaseChatModel,
    tools: Sequence[Mapping[str, Any]],
    quirks: ModelQuirks,
    *,
    must_call: bool,
    max_tokens: int | None,
    printing: bool,
) -> PreparedModel:
    change: dict[str, Any] = {}
    sent = {"streaming", *FORMS_OF_HISTORY} - quirks.unsupported
    if "streaming" in quirks.unsupported:
        change["disable_streaming"] = True
    if getattr(model, "stream_usage", False) is None:
        change["stream_usage"] = True
    if change.get("stream_usage", getattr(model, "stream_usage", False)):
        change |= {"stream_usage": False} if "stream_options" in quirks.unsupported else {}
        sent |= {"stream_options"} - quirks.unsupported
    sent |= {"cache_marks"} - quirks.unsupported if mark_kind(model) else set()
    sent |= {"thoughts"} - quirks.unsupported if wire_of(model) else set()
    sent |= {"prompt_cache_key"} - quirks.unsupported if takes_key(model) else set()
    if name := _token_field(model):
        if max_tokens == 0 or ("max_tokens" in quirks.unsupported and not _demands_limit(model)):
            change[name] = None
        elif max_tokens and "max_tokens" not in quirks.unsupported:
            change[name] = max_tokens
        sent |= {"max_tokens"} - quirks.unsupported if change.get(name, getattr(model, name)) else set()
    if not tools:
        return PreparedModel(_with_fields(model, change), {}, frozenset(sent))
    if not printing:
        try:
            return _with_tools(_with_fields(model, change), tools, quirks, sent, must_call=must_call)
        except NotImplementedError:  # the class has no tools
            pass
    definitions = copy.deepcopy([dict(tool) for tool in tools])
    if "response_format" not in quirks.unsupported and (
        constraint := _format_fields(model, decision_schema(definitions))
    ):
        change |= constraint
        sent.add("response_format")
    functions = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in definitions)
    return PreparedModel(_with_fields(model, change), {}, frozenset(sent), render("print_calls", functions=functions))


def _with_fields(model: BaseChatModel, change: Mapping[str, Any]) -> BaseChatModel:
    return model.model_copy(update=dict(change)) if change else model


def _with_tools(
    model: BaseChatModel, tools: Sequence[Mapping[str, Any]], quirks: ModelQuirks, sent: set[str], *, must_call: bool
) -> PreparedModel:
    """Return the model with its tools in the form that its provider takes, without those that have none."""
    dialect = STRICTEST if quirks.strict else dialect_of(model, quirks.name)
    while True:
        taken = [tool for tool in tools if tool["function"]["name"] not in quirks.left_out]
        definitions, renamed = fit_tools(taken, dialect)
        try:
            bound, choice = _bind_tools(model, definitions, quirks, must_call=must_call)
        except NotImplementedError:
            raise
        except Exception:  # the provider's package cannot write one of them
            refused = _unbindable(model, taken, dialect)
            if not refused:
                raise
            quirks.left_out |= refused
            continue
        names = tuple(tool["function"]["name"] for tool in taken)
        parts = frozenset({"tools", *choice, *sent})
        return PreparedModel(*_split_binding(bound), parts, renamed=renamed, shown=names)


def _unbindable(model: BaseChatModel, tools: Sequence[Mapping[str, Any]], dialect: Dialect) -> dict[str, str]:
    """Return the tools of people that cannot be bound to the model even alone, with the reason."""
    refused = {}
    for tool in tools:
        if (name := tool["function"]["name"]) in NAMES:
            continue
        try:
            model.bind_tools(fit_tools([tool], dialect)[0])
        except Exception as error:
            refused[name] = " ".join(str(error).split())[:300]
    return refused


def _bind_tools(
    model: BaseChatModel, definitions: Sequence[dict[str, Any]], quirks: ModelQuirks, *, must_call: bool
) -> tuple[Any, dict[str, str]]:
    """Return the model with its tools, and the `tool_choice` that was set, if its class takes one."""
    # Anthropic forbids it to a model that thinks.
    takes = must_call and _thinking_of(model) not in ("enabled", "adaptive") and "tool_choice" not in quirks.unsupported
    if takes and "tool_choice" in inspect.signature(model.bind_tools).parameters:
        try:
            return model.bind_tools(definitions, tool_choice="any"), {"tool_choice": "any"}
        except ValueError:
            bound = model.bind_tools(definitions)  # if this raises as well, a tool is at fault
            quirks.unsupported.add("tool_choice")  # this model of the class takes none
            return bound, {}
    return model.bind_tools(definitions), {}


def _thinking_of(model: BaseChatModel) -> str:
    """Return how Anthropic's model thinks; with `enabled`, it takes no history whose calls lack its thoughts."""
    return str((getattr(model, "thinking", None) or {}).get("type"))


def _split_binding(bound: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the model and its bound arguments separately; a RunnableBinding merges configurations in every request."""
    if getattr(type(bound), "astream", None) is not RunnableBinding.astream or bound.config or bound.config_factories:
        return bound, {}
    return bound.bound, bound.kwargs


def _format_fields(model: BaseChatModel, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that constrain a reply to a JSON Schema; empty for classes without such a field."""
    if _stainless_client(getattr(model, "root_async_client", None)) is not None:
        # Set in the body: LangChain's own parameter parses the reply again, and fails if it was cut off.
        wanted = {"type": "json_schema", "json_schema": {"name": "decision", "schema": schema}}
        return {"extra_body": {**(getattr(model, "extra_body", None) or {}), "response_format": wanted}}
    return {"format": schema} if "num_predict" in type(model).model_fields else {}
