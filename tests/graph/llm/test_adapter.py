"""Every provider as the runtime asks it: its own wire form, our retries only, connections kept, refusals remembered."""

import asyncio
import gc
import importlib
import json
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage
from langchain_core.outputs import ChatGenerationChunk

from donewhen import Agent
from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.state.reading.decisions import TRIAGE, control_tools
from donewhen.state.settings import Settings
from donewhen.testing import ScriptedModel, answer, call, finish_step, reply, submit_plan
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

PROMPT = [SystemMessage("You decide."), HumanMessage("What is 6 times 7?")]


def deps_of(model: BaseChatModel) -> Deps:
    return Deps(lambda *_: model, adapter=Adapter(first_wait=0))


async def asked(deps: Deps, role: str = "triage", said: Sequence[str] = (), **settings: Any) -> ModelReply:
    """Ask once more in a conversation in which the model has `said` this before."""
    given = Settings(**{"model_seconds": 5, **settings})
    rounds = [message for text in said for message in (AIMessage(text), HumanMessage("Decide by a call."))]
    return await ask(deps, given, ModelRequest(role, [*PROMPT, *rounds], control_tools(TRIAGE), must_call=True))


# Every provider's own wire form ----------------------------------------------------------------------------------

_ANTHROPIC: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant", "content": [],
     "model": "c", "stop_reason": None, "usage": {"input_tokens": 3, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0,
     "content_block": {"type": "tool_use", "id": "t1", "name": "answer", "input": {}}},
    {"type": "content_block_delta", "index": 0,
     "delta": {"type": "input_json_delta", "partial_json": '{"text": "42"}'}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"input_tokens": 3, "output_tokens": 5}},
    {"type": "message_stop"},
]  # fmt: skip
_OLLAMA = {
    "model": "m",
    "created_at": "2026-01-01T00:00:00Z",
    "message": {"role": "assistant", "tool_calls": [{"function": {"name": "answer", "arguments": {"text": "42"}}}]},
    "done": True,
    "prompt_eval_count": 3,
    "eval_count": 5,
}
_GOOGLE = {
    "candidates": [
        {
            "content": {"parts": [{"functionCall": {"name": "answer", "args": {"text": "42"}}}], "role": "model"},
            "finishReason": "STOP",
        }
    ],
    "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 5, "totalTokenCount": 8},
}
_CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "answer", "arguments": '{"text": "42"}'}}
_OPENAI = {
    "id": "x",
    "object": "chat.completion.chunk",
    "created": 0,
    "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [_CALL]}, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
}


def _written(path: str) -> tuple[str, str]:
    if "/v1/messages" in path:
        return "text/event-stream", "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in _ANTHROPIC)
    if "/api/chat" in path:
        return "application/x-ndjson", json.dumps(_OLLAMA) + "\n"
    google = "streamGenerateContent" in path
    return "text/event-stream", f"data: {json.dumps(_GOOGLE if google else _OPENAI)}\n\n" + (
        "" if google else "data: [DONE]\n\n"
    )


class Providers(ThreadingHTTPServer):
    """All four wire forms on one port; connections stay open, and are counted."""

    daemon_threads = True

    def __init__(self) -> None:
        self.connections = 0
        self.bodies: list[Any] = []
        self.busy = 0
        """How many requests are refused first."""
        super().__init__(("127.0.0.1", 0), Exchange)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Providers

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        kind, text = _written(self.path)
        status = 200
        if self.server.busy:
            self.server.busy -= 1
            status, kind, text = 503, "application/json", '{"error": {"code": 503, "message": "busy"}}'
        payload = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(payload)), "Retry-After": "0"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def providers() -> Iterator[Providers]:
    with Providers() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


CLASSES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "langchain_openai": ("ChatOpenAI", "m", "/v1", ("max_completion_tokens",)),
    "langchain_anthropic": ("ChatAnthropic", "claude-opus-4-6", "", ("max_tokens",)),
    "langchain_google_genai": (
        "ChatGoogleGenerativeAI", "gemini-2.5-pro", "", ("generationConfig", "maxOutputTokens"),
    ),
    "langchain_ollama": ("ChatOllama", "m", "", ("options", "num_predict")),
}  # fmt: skip
"""Package → class, model, the path below the server, and where a request says how long the reply may be."""


def provider(package: str, url: str) -> BaseChatModel:
    pytest.importorskip(package)
    kind, model, path, _ = CLASSES[package]
    given = {"model": model, "base_url": f"{url}{path}", **({"api_key": "k"} if kind != "ChatOllama" else {})}
    made: BaseChatModel = getattr(importlib.import_module(package), kind)(**given)
    return made


@pytest.mark.parametrize("package", CLASSES)
def test_a_second_call_needs_no_handshake_and_a_second_loop_no_first(providers: Providers, package: str) -> None:
    """L11: connections are kept between calls; another `asyncio.run` opens its own and meets none of the last one's."""
    deps = deps_of(provider(package, providers.url))

    async def three_calls() -> None:
        for _ in range(3):
            got = await asked(deps)
            assert got.error is None
            assert got.message is not None
            assert got.message.tool_calls[0]["args"] == {"text": "42"}
            assert (got.spent["input_tokens"], got.spent["output_tokens"]) == (3, 5)

    asyncio.run(three_calls())
    assert providers.connections == 1
    asyncio.run(three_calls())
    assert (providers.connections, len(providers.bodies)) == (2, 6)


@pytest.mark.parametrize("package", CLASSES)
def test_nobody_repeats_beside_us(providers: Providers, package: str) -> None:
    """L10, R01: what a provider's library would have repeated by itself is repeated and counted here."""
    deps, providers.busy = deps_of(provider(package, providers.url)), 2
    got = asyncio.run(asked(deps))
    assert got.error is None
    assert got.spent["model_calls"] == len(providers.bodies) == 3
    providers.busy = 9
    got = asyncio.run(asked(deps, model_retries=0))
    assert got.error is not None
    assert got.error.code == "overloaded"
    assert len(providers.bodies) == 4


@pytest.mark.parametrize("package", CLASSES)
def test_every_reply_has_an_end(providers: Providers, package: str) -> None:
    """K11: a role writes so many tokens at most, by default or as set; what a model's owner set stays.

    Q10: a server whose model nobody knows is sent no default, which might not fit its window."""
    model = provider(package, providers.url)
    asyncio.run(asked(deps_of(model)))
    asyncio.run(asked(deps_of(model), max_tokens={"triage": 77}))
    name = next(name for name in ("max_tokens", "max_output_tokens", "num_predict") if hasattr(model, name))
    asyncio.run(asked(deps_of(model.model_copy(update={name: 99}))))
    found = []
    for body in providers.bodies:
        for key in CLASSES[package][3]:
            body = body.get(key)
        found.append(body)
    assert found == [None if package == "langchain_openai" else 16_384, 77, 99]


# What a server does not take, and what a model does not do -------------------------------------------------------

REFUSALS = {
    "tool_choice": "tool_choice 'required' is not supported",
    "max_completion_tokens": "max_tokens is too large: 16384. This model supports at most 4096 completion tokens",
    "stream_options": "unknown field stream_options",
    "tools": "registry.local/x does not support tools",
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_what_a_server_refuses_is_left_out_from_then_on(name: str) -> None:
    """K5, K11: asked again at once without, charged as a call, not as a failure, and remembered."""
    refused = fault(status=400, body={"error": {"message": REFUSALS[name]}})
    with WireServer([refused, [answer("42")], [answer("43")]]) as server:
        deps = deps_of(wired(server))
        for text in ("42", "43"):
            got = await asked(deps, model_retries=0, max_tokens={"triage": 16_384})
            assert got.error is None
            assert got.message is not None
            assert got.message.tool_calls[0]["args"] == {"text": text}
        first, *others = [request.body for request in server.requests]
    assert name in first
    assert [name in body for body in others] == [False, False]


async def test_a_model_that_ignores_tools_is_held_to_the_printed_form() -> None:
    """K11: after two replies of a conversation without a call, calls are printed, and the server holds the reply to
    their schema; if it knows no schemas, the printed form alone."""
    printed = '{"action": "answer", "arguments": {"text": "42"}}'
    refused = fault(status=400, body={"error": {"message": "unknown field response_format"}})
    with WireServer(["It is 42.", "It is 42!", printed, refused, printed]) as server:
        deps, said = deps_of(wired(server)), list[str]()
        for _ in range(4):
            got = await asked(deps, said=said)
            assert got.message is not None
            said.append(str(got.message.text))
        bodies = [request.body for request in server.requests]
    assert [sorted({"tools", "tool_choice", "response_format"} & set(body)) for body in bodies] == [
        ["tool_choice", "tools"],
        ["tool_choice", "tools"],
        ["response_format"],
        ["response_format"],
        [],
    ]
    schema = bodies[2]["response_format"]["json_schema"]["schema"]
    assert [form["properties"]["action"]["const"] for form in schema["anyOf"]] == list(TRIAGE)
    assert "You cannot call tools here" in bodies[2]["messages"][0]["content"]
    assert bodies[2]["messages"][0]["content"] == bodies[4]["messages"][0]["content"]


async def test_what_a_model_says_in_one_conversation_takes_its_tools_from_no_other() -> None:
    """N31: however many greetings were answered in words before the first call."""
    with WireServer(["Hello!", "Hi!", "Good morning!", [answer("42")]]) as server:
        agent = Agent(wired(server))
        greeted = [await agent.start(goal) for goal in ("hi", "hi there", "good morning")]
        assert [run.answer for run in greeted] == ["Hello!", "Hi!", "Good morning!"]
        assert (await agent.start("What is 6 times 7?")).answer == "42"
        assert all("tools" in request.body for request in server.requests)


async def test_a_refusal_that_leaving_out_does_not_mend_was_another_one() -> None:
    """N31: an error that only quotes such words does not take the tools away from everybody who asks later."""
    quoted = fault(status=400, body={"error": {"message": "message 3, 'it does not support tools', is malformed"}})
    with WireServer([quoted, quoted, [answer("42")]]) as server:
        deps = deps_of(wired(server))
        assert (await asked(deps, model_retries=0)).error is not None
        assert (await asked(deps, model_retries=0)).error is None
        assert ["tools" in request.body for request in server.requests] == [True, False, True]


async def test_two_servers_of_a_model_are_two() -> None:
    """N31: what the server of one refuses, the other of the same name is still sent."""
    refused = fault(status=400, body={"error": {"message": REFUSALS["tools"]}})
    printed = '{"action": "answer", "arguments": {"text": "42"}}'
    with WireServer([refused, printed]) as one, WireServer([[answer("42")]]) as other:
        models = [wired(one), wired(other)]
        deps = Deps(lambda role, *_: models[role == "plan"], adapter=Adapter(first_wait=0))
        await asked(deps)
        await asked(deps, role="plan")
        assert ["tools" in request.body for request in one.requests] == [True, False]
        assert ["tools" in request.body for request in other.requests] == [True]


class Endless(ScriptedModel):
    """A model that never ends its reply, and is never silent."""

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        while True:
            yield ChatGenerationChunk(message=AIMessageChunk("on and "))
            await asyncio.sleep(0.01)


async def test_a_stream_without_end_is_cut_off() -> None:
    """K11: after five times the longest silence, however lively it is; it counts as cut off."""
    began = time.monotonic()
    got = await asked(deps_of(Endless([])), model_seconds=0.05)
    assert 0.2 <= time.monotonic() - began < 20
    assert got.error is None
    assert got.message is not None
    assert got.message.response_metadata["finish_reason"] == "length"
    assert got.spent["model_calls"] == 1


async def test_an_error_of_any_kind_is_a_reply() -> None:
    """L4: `ask` never raises for what a model does, not even for chunks that cannot be joined."""

    class Odd(Endless):
        async def _astream(self, *args: Any, **kwargs: Any) -> Any:
            yield ChatGenerationChunk(message=AIMessageChunk("a", response_metadata={"x": 1}))
            yield ChatGenerationChunk(message=AIMessageChunk("b", response_metadata={"x": "y"}))
            raise KeyError("odd")

    got = await asked(deps_of(Odd([reply("x")])))
    assert got.message is None
    assert got.error is not None


class Binding(ScriptedModel):
    """Counts how often its tools are bound."""

    bound: int = 0

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        self.bound += 1
        return super().bind_tools(tools, **options)


async def test_a_model_is_prepared_once_for_the_rounds_of_a_step() -> None:
    """N54: also where a step is shown lines of tools that it may find."""

    def look(page: str) -> str:
        """Look at a page."""
        return f"page {page}"

    def put(page: str) -> str:
        """Write a page."""
        return "written"

    plan = submit_plan([{"content": "look at all pages", "done_when": ["they were seen"], "tools": None}])
    rounds = [call("look", page=str(n)) for n in range(6)]
    model = Binding([plan, *rounds, finish_step("seen", ("s1.1", "page 0"))])
    settings = Settings(confirm="never", verification="grounded")
    async with Agent(model, [look, put], effects={"look": "read", "put": "write"}, storage="memory:") as agent:
        assert (await agent.start("look", settings=settings)).status == "completed"
    assert model.bound == 2  # for the planning and for the step


@pytest.mark.parametrize("form", ["OpenAI's", "Groq's"])
async def test_a_client_of_the_owners_own_carries_all_requests(form: str) -> None:
    """Q47: it has the proxy, the certificates and the headers; two models, each with one of its own."""
    import httpx2

    carried: dict[str, int] = {}

    def model_of(name: str) -> BaseChatModel:
        async def count(request: Any) -> None:
            carried[name] = carried.get(name, 0) + 1

        made = wired(server, http_async_client=httpx2.AsyncClient(event_hooks={"request": [count]}))
        # Groq's class has the completions of a client like OpenAI's, and no other field with it.
        return made if form == "OpenAI's" else made.model_copy(update={"root_async_client": None})

    with WireServer([reply("ok")] * 4) as server:
        for name in ("a", "b"):
            deps = deps_of(model_of(name))
            assert [(await asked(deps)).error for _ in range(2)] == [None, None]
    assert carried == {"a": 2, "b": 2}


async def test_models_made_for_each_request_share_a_pool() -> None:
    """Q61: a model may be a function that makes one for each request; two at once open no pool of their own either."""

    import httpx2

    def open_pools() -> int:
        return sum(isinstance(each, httpx2.AsyncClient) and not each.is_closed for each in gc.get_objects())

    with WireServer([reply("ok")] * 12) as server:
        deps = Deps(lambda *_: wired(server), adapter=Adapter(first_wait=0))
        await asyncio.gather(asked(deps), asked(deps))
        before = open_pools()
        assert [(await asked(deps)).error for _ in range(10)] == [None] * 10
        assert open_pools() <= before


async def test_a_page_of_a_gateway_is_asked_past() -> None:
    """R01: HTML with the status 200 in place of a reply, to two requests at once; if it stays, its words are shown."""
    page = fault(garbage=b"<html>Bad gateway</html>")
    with WireServer([page, page, reply("ok"), reply("ok")]) as server:
        deps = deps_of(wired(server))
        assert [each.error for each in await asyncio.gather(asked(deps), asked(deps))] == [None, None]
    with WireServer([page] * 3) as server:
        got = await asked(deps_of(wired(server)), model_retries=2)
        assert got.error is not None
        assert "<html>Bad gateway</html>" in str(got.error)
        assert len(server.requests) == 3
