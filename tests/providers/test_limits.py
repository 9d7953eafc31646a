"""What a request and its reply may have: windows and limits as servers refuse them, and what is made smaller first."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.state.settings import Settings
from tests.kit.providers.forms import (
    Said,
    chat_model,
    claude_model,
    ollama_model,
    write_anthropic,
    write_chat,
    write_ollama,
)
from tests.kit.providers.server import Answer, ProviderServer

WINDOW = 32_768
HEAD = [SystemMessage("You work."), HumanMessage("Read the files.")]
Refusal = Callable[[int, int], tuple[int, Any]]


def _openai(prompt: int, most: int) -> tuple[int, Any]:
    told = f"This model's maximum context length is {WINDOW} tokens. However, you requested {prompt + most} tokens "
    told += f"({prompt} in the messages, {most} in the completion)."
    return 400, {"error": {"message": told, "type": "invalid_request_error", "code": "context_length_exceeded"}}


def _vllm(prompt: int, most: int) -> tuple[int, Any]:
    told = f"'max_tokens' or 'max_completion_tokens' is too large: {most}. This model's maximum context length is "
    told += f"{WINDOW} tokens and your request has {prompt} input tokens ({most} > {WINDOW} - {prompt})."
    return 400, {"object": "error", "message": told, "type": "BadRequestError", "code": 400}


def _nim(prompt: int, most: int) -> tuple[int, Any]:
    told = f"This model's maximum context length is {WINDOW} tokens. However, you requested {prompt + most} tokens"
    return 400, {"object": "error", "message": told, "type": "BadRequestError", "param": None, "code": 400}


def _sglang(prompt: int, most: int) -> tuple[int, Any]:
    told = (
        f"Requested token count exceeds the model's maximum context length of {WINDOW} tokens. You requested a total "
    )
    told += f"of {prompt + most} tokens: {prompt} tokens from the input messages and {most} tokens for the completion."
    return 400, {"object": "error", "message": told, "type": "BadRequestError", "code": 400}


def _openrouter(prompt: int, most: int) -> tuple[int, Any]:
    told = f"This endpoint's maximum context length is {WINDOW} tokens. However, you requested about {prompt + most} "
    told += f"tokens ({prompt} of text input, {most} in the output). Please reduce the length of either one."
    return 400, {"error": {"message": told, "code": 400, "metadata": {"provider_name": None}}}


def _cerebras(prompt: int, most: int) -> tuple[int, Any]:
    told = "Please reduce the length of the messages or completion. "
    told += f"Current length is {prompt + most} while limit is {WINDOW}"
    return 400, {"message": told, "param": "messages", "code": "context_length_exceeded"}


def _mistral(prompt: int, most: int) -> tuple[int, Any]:
    told = f"Prompt contains {prompt} tokens and max_tokens {most}, too large for model with {WINDOW} maximum context"
    return 400, {"object": "error", "message": f"{told} length", "type": "invalid_request_prompt", "code": "3051"}


def _tgi(prompt: int, most: int) -> tuple[int, Any]:
    told = f"Input validation error: `inputs` tokens + `max_new_tokens` must be <= {WINDOW}. "
    told += f"Given: {prompt} `inputs` tokens and {most} `max_new_tokens`"
    return 422, {"error": told, "error_type": "validation"}


SERVERS = {
    "OpenAI": _openai,
    "vLLM": _vllm,
    "NIM": _nim,
    "SGLang": _sglang,
    "OpenRouter": _openrouter,
    "Cerebras": _cerebras,
    "Mistral": _mistral,
    "TGI": _tgi,
}


def serve(refusal: Refusal) -> Callable[[Any], Answer]:
    """A server whose window holds the prompt and what the reply may have."""

    def handle(body: Any) -> Answer:
        prompt, most = (
            len(json.dumps(body["messages"])) // 4,
            body.get("max_tokens") or body.get("max_completion_tokens"),
        )
        if prompt + (most or 0) > WINDOW:
            status, said = refusal(prompt, most or 0)
            return Answer.of_json(said, status)
        return write_chat(Said("It is done."))

    return handle


def rounds(count: int) -> list[BaseMessage]:
    """Rounds of about 1,000 tokens each."""
    made = list[BaseMessage]()
    for number in range(count):
        made.append(AIMessage("", tool_calls=[{"name": "read", "args": {}, "id": f"c{number}"}]))
        made.append(ToolMessage(f"[s1.{number}] read ok\n{'word ' * 800}", tool_call_id=f"c{number}"))
    return made


async def asked(deps: Deps, messages: list[BaseMessage], thread: str = "t", **settings: Any) -> ModelReply:
    """The reply in a conversation."""
    given = Settings(**{"model_seconds": 5, "model_retries": 0, **settings})
    return await ask(deps, given, ModelRequest("execute", [*HEAD, *messages], thread=thread))


def deps_of(model: BaseChatModel) -> Deps:
    return Deps(lambda *_: model, adapter=Adapter(first_wait=0))


@pytest.mark.parametrize("name", SERVERS)
async def test_what_does_not_fit_is_made_smaller(name: str) -> None:
    """Q10, M10: nothing of ours is sent that would not fit; a limit that somebody set goes first, and history only
    where the messages alone are too long. The next request of the thread need not find it out again."""
    with ProviderServer(serve(SERVERS[name])) as server:
        deps = deps_of(chat_model(server.url))
        assert (await asked(deps, rounds(2))).message
        limits = dict.fromkeys(("execute",), WINDOW)
        assert (await asked(deps, rounds(2), max_tokens=limits)).message
        assert (await asked(deps, rounds(3), max_tokens=limits)).message
        first, refused, without, later = server.bodies
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, WINDOW, None, None]
        assert refused["messages"] == without["messages"] == first["messages"]
        assert len(later["messages"]) == len(first["messages"]) + 2
        assert (await asked(deps, rounds(45), "long")).message
        assert [len(body["messages"]) for body in server.bodies[4:5]] == [92]
        assert len(server.bodies[5]["messages"]) < 60


@pytest.mark.parametrize("name", SERVERS)
async def test_a_window_is_learnt_for_the_thread_alone(name: str) -> None:
    """Q46: a thread that was too long keeps its shorter requests; another thread loses nothing of its history."""
    with ProviderServer(serve(SERVERS[name])) as server:
        deps = deps_of(chat_model(server.url))
        for _ in range(2):
            assert (await asked(deps, rounds(45), "long")).message
        assert len(server.bodies) == 3
        assert (await asked(deps, rounds(25), "other")).message
        assert len(server.bodies[-1]["messages"]) == 52


async def test_a_limit_that_a_provider_demands_is_lowered() -> None:
    """Q10: Anthropic takes no request without a limit, so it is halved until the request fits."""

    def handle(body: Any) -> Answer:
        if body["max_tokens"] + 10_000 > 20_000:
            told = f"input length and `max_tokens` exceed context limit: 10000 + {body['max_tokens']} > 20000, decrease"
            told = f"{told} input length or `max_tokens` and try again"
            return Answer.of_json({"type": "error", "error": {"type": "invalid_request_error", "message": told}}, 400)
        return write_anthropic(Said("It is done."))

    with ProviderServer(handle) as server:
        deps = deps_of(claude_model(server.url))
        assert (await asked(deps, rounds(1))).message
        assert (await asked(deps, rounds(1))).message
        assert [body["max_tokens"] for body in server.bodies] == [32_768, 16_384, 8_192, 8_192]


async def test_a_server_whose_own_limit_is_too_small_gets_ours() -> None:
    """Q10: a reply that the server cut off early is asked for again with the role's limit, which is then needed; where
    that does not fit, the reply counts as it is, and no more requests are lost on it."""
    fits = True

    def handle(body: Any) -> Answer:
        most = body.get("max_completion_tokens")
        if most and not fits:
            return Answer.of_json(_vllm(1_000, most)[1], 400)
        return write_chat(Said("It is done.") if most else Said("It is", end="length"))

    with ProviderServer(handle) as server:
        deps = deps_of(chat_model(server.url))
        for text in ("It is done.", "It is done."):
            got = await asked(deps, rounds(1))
            assert got.message is not None
            assert got.message.text == text
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, WINDOW, WINDOW]
        fits, deps = False, deps_of(chat_model(server.url))
        server.bodies.clear()
        for _ in range(2):
            got = await asked(deps, rounds(1))
            assert got.message is not None
            assert got.message.text == "It is"
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, WINDOW, None]


async def test_what_the_credit_still_pays_for_is_asked_for() -> None:
    """Q10: OpenRouter reserves credit for the longest reply; the limit is what it says can be paid."""

    def handle(body: Any) -> Answer:
        if body.get("max_completion_tokens", 64_000) > 9_000:
            told = "This request requires more credits, or fewer max_tokens. You requested up to 64000 tokens, but can"
            return Answer.of_json({"error": {"message": f"{told} only afford 9000.", "code": 402}}, 402)
        return write_chat(Said("It is done."))

    with ProviderServer(handle) as server:
        deps = deps_of(chat_model(server.url))
        assert (await asked(deps, rounds(1))).message
        assert (await asked(deps, rounds(1))).message
        assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 9_000, 9_000]


async def test_a_model_that_would_write_without_end_is_stopped() -> None:
    """Q10, K11: Ollama is sent the limit; a server that is sent none is stopped here after as much."""
    with ProviderServer(lambda _: write_ollama(Said("It is done."))) as server:
        assert (await asked(deps_of(ollama_model(server.url)), rounds(1))).message
        assert server.bodies[0]["options"]["num_predict"] == WINDOW
    with ProviderServer(lambda _: write_chat(Said("word " * 80_000))) as server:
        got = await asked(deps_of(chat_model(server.url)), rounds(1))
        assert got.message is not None
        assert got.message.response_metadata["finish_reason"] == "length"


async def test_ollama_is_asked_for_a_window_in_which_the_request_fits() -> None:
    """Q47: it drops the beginning of the rest without a word. The window grows with the request and never shrinks."""
    with ProviderServer(lambda body: write_ollama(Said("ok"))) as server:
        deps = deps_of(ollama_model(server.url))
        for messages in (HEAD, [*HEAD, *rounds(20)], HEAD):
            assert (await asked(deps, messages)).message is not None
        many = await asyncio.gather(*(asked(deps, HEAD, f"t{n}") for n in range(2)))
        assert all(reply.message is not None for reply in many)
        windows = [body["options"]["num_ctx"] for body in server.bodies]
        sizes = [len(json.dumps(body["messages"])) / 4 for body in server.bodies]
        assert windows[0] == 16_384
        assert windows[1:] == [windows[1]] * 4, "another one would load the model again"
        assert sizes[1] < windows[1] < 4 * sizes[1]
        assert (await asked(deps_of(ollama_model(server.url)), [*HEAD, *rounds(20)], context_tokens=20_000)).message
        assert server.bodies[-1]["options"]["num_ctx"] <= 20_000


async def test_a_window_of_the_owners_own_stays_and_requests_are_shortened_to_it() -> None:
    """Q47: also for two models of one name with different windows."""
    with ProviderServer(lambda body: write_ollama(Said("ok"))) as server:
        for own in (8_192, 12_000):
            deps = deps_of(ollama_model(server.url, num_ctx=own))
            assert (await asked(deps, [*HEAD, *rounds(20)])).message is not None
            assert server.bodies[-1]["options"]["num_ctx"] == own
            assert len(json.dumps(server.bodies[-1]["messages"])) / 4 < own
