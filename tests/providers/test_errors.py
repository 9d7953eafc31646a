"""The words of providers: every recorded body is read as what its provider means."""

import json
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.graph.llm.provider_texts import NO_CREDIT, RATE_LIMITED, TOO_LONG, TOO_MANY_TOOLS, Text
from donewhen.state.settings import Settings
from tests.kit.providers.forms import FORMS, chat_chunk, chat_model, event
from tests.kit.providers.server import Answer, ProviderServer

TABLES = {
    "context_too_long": TOO_LONG,
    "quota": NO_CREDIT,
    "rate_limited": RATE_LIMITED,
    "too_many_tools": TOO_MANY_TOOLS,
}
ROWS = [(code, text) for code, texts in TABLES.items() for text in texts]
FORM = ("openai", "openrouter", "plain")


async def asked(url: str, **fields: Any) -> ModelReply:
    """The reply of a server to one question, asked once."""
    model = chat_model(url, **fields)
    deps = Deps(lambda *_: model, adapter=Adapter(first_wait=0))
    settings = Settings(model_seconds=5, model_retries=0)
    return await ask(deps, settings, ModelRequest("triage", [HumanMessage("What is in stock?")]))


def body_of(text: Text, form: str) -> Any:
    """The body of an error, as OpenAI frames it, as a router hands it on, or as it stands."""
    said = json.loads(text.body) if text.body.startswith("{") else {"message": text.body}
    if form == "openrouter":
        raw = json.dumps({"error": said})
        return {"error": {"message": "Provider returned error", "code": text.status, "metadata": {"raw": raw}}}
    return {"error": said} if form == "openai" else said


@pytest.mark.parametrize("form", FORM)
@pytest.mark.parametrize(("code", "text"), ROWS, ids=[f"{code}-{text.provider}" for code, text in ROWS])
async def test_every_recorded_body_means_what_its_provider_means(code: str, text: Text, form: str) -> None:
    """R01 (Q46): too long is made shorter, no credit is told at once, a limit of requests is waited for."""
    with ProviderServer(lambda _: Answer.of_json(body_of(text, form), text.status)) as server:
        got = await asked(server.url)
    assert got.error is not None
    assert (got.error.code, got.error.retryable) == (code, code == "rate_limited")


@pytest.mark.parametrize("text", [t for t in TOO_LONG if t.status == 400], ids=lambda text: text.provider)
async def test_a_stream_may_begin_with_the_error(text: Text) -> None:
    """R01 (Q46): the same words inside a stream, with HTTP 200."""
    chunk = f"data: {json.dumps(body_of(text, 'openai'))}\n\n".encode()
    with ProviderServer(lambda _: Answer([chunk, b"data: [DONE]\n\n"])) as server:
        got = await asked(server.url)
    assert got.error is not None
    assert got.error.code == "context_too_long"


PATHS = {
    "FastAPI": Answer.of_json({"detail": "Not Found"}, 404),
    "Ollama": Answer([b"404 page not found"], "text/plain", 404),
    "nginx": Answer([b"<html><h1>404 Not Found</h1></html>"], "text/html", 404),
    "LM Studio": Answer.of_json({"error": "Unexpected endpoint or method. (POST /chat/completions)"}, 404),
    "LM Studio, with 200": Answer.of_json({"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
    "a page to sign in": Answer([b"<html><body>Please sign in</body></html>"], "text/html"),
    "words": Answer([b"upstream connect error"], "text/plain"),
}


@pytest.mark.parametrize("server_of", PATHS)
async def test_a_wrong_address_is_named(server_of: str) -> None:
    """Q46, Q47: what answers at a wrong path is no unknown model; the error names the address, after one request."""
    with ProviderServer(lambda _: PATHS[server_of]) as server:
        got = await asked(server.url)
        assert got.error is not None
        assert f"{server.url}/v1/chat/completions" in str(got.error)
        assert "DONEWHEN_MODEL" not in str(got.error)
        assert len(server.bodies) == 1


async def test_an_error_in_the_middle_of_a_stream_is_the_error() -> None:
    """R01 (Q45): a server that fails while it writes says so with HTTP 200."""
    failed = {"error": {"message": "Provider returned error: rate limited upstream", "code": 429}}
    pieces = [event(chat_chunk({"content": "Half"})), event(failed)]
    for answer in (Answer(pieces), Answer.of_json(failed)):
        with ProviderServer(lambda _, answer=answer: answer) as server:  # type: ignore[misc]
            got = await asked(server.url)
        assert got.error is not None
        assert (got.error.code, got.error.retryable) == ("rate_limited", True)
        assert "rate limited upstream" in str(got.error)


async def test_ollamas_error_in_a_stream_is_tried_again() -> None:
    """R01 (Q47): its runner dies in the middle of a reply; the next request gets a new one."""
    form = FORMS["Ollama"]
    broken = Answer([json.dumps({"error": "an error was encountered while running the model: CUDA error"}).encode()])
    with ProviderServer(lambda _: broken) as server:
        model = form.model(server.url)
        deps = Deps(lambda *_: model, adapter=Adapter(first_wait=0))
        got = await ask(deps, Settings(model_seconds=5, model_retries=1), ModelRequest("triage", [HumanMessage("Hi")]))
    assert got.error is not None
    assert (got.error.code, got.spent["model_calls"]) == ("server_error", 2)
