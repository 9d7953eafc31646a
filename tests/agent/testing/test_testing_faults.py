"""What goes wrong on a connection, on demand: WireServer acts it out, a real client has to live with it."""

import time
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

from tests.kit.wire import WireServer
from tests.kit.wire_format import fault

SPOKEN = "One two three four five six"


def client(server: WireServer, **settings: Any) -> ChatOpenAI:
    given = {"api_key": "test", "max_retries": 0, "model": "scripted", "stream_usage": True, **settings}
    return ChatOpenAI(base_url=server.base_url, **given)


async def asked_either_way(model: ChatOpenAI, stream: bool) -> str:
    """What arrived, where an error in the middle leaves what came before it."""
    said: list[str] = []
    try:
        async for chunk in model.astream("x") if stream else once(model):
            said.append(chunk.text)
    except Exception as error:
        error.add_note("".join(said))
        raise
    return "".join(said)


async def once(model: ChatOpenAI) -> AsyncIterator[AIMessage]:
    yield await model.ainvoke("x")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
async def test_status_faults(status: int, error: type[openai.APIStatusError]) -> None:
    """R01"""
    with WireServer([fault(status=status, headers={"Retry-After": "1"})] * 2) as server:
        for ask in (client(server).ainvoke("x"), asked_either_way(client(server), True)):
            with pytest.raises(error) as caught:
                await ask
            assert caught.value.response.headers["retry-after"] == "1"


async def test_clients_retry_what_is_transient() -> None:
    """R01"""
    soon = {"Retry-After-Ms": "1"}
    with WireServer([fault(status=500, headers=soon), fault(status=429, headers=soon), "at last"]) as server:
        assert (await client(server, max_retries=2).ainvoke("x")).text == "at last"
    assert len(server.requests) == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("broken", [fault(reset=True), fault(reset_after=2, reply=SPOKEN), fault(hang=0.01)])
async def test_a_connection_that_breaks(broken: Any, stream: bool) -> None:
    """R01: before the answer, or in the middle of it."""
    with WireServer([broken]) as server, pytest.raises(openai.APIConnectionError) as caught:
        await asked_either_way(client(server), stream)
    assert SPOKEN.startswith(caught.value.__notes__[0])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_hangs_or_stalls_ends_when_the_test_does(stream: bool) -> None:
    """R01: the client's timeout decides; no thread of the server outlives it."""
    began = time.monotonic()
    with WireServer([fault(hang=60), fault(stall_after=2, reply=SPOKEN)]) as server:
        model = client(server, timeout=0.2)
        for arrived in ("", "One two three fo" if stream else ""):
            with pytest.raises(openai.APITimeoutError) as caught:
                await asked_either_way(model, stream)
            assert caught.value.__notes__ == [arrived]
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("garbage", [b"\xff\x00{", b"data: {nope\n\n"])
async def test_garbage_is_the_clients_problem(garbage: bytes, stream: bool) -> None:
    """R01: ChatOpenAI lets a bare ValueError through here, nothing of openai's own."""
    broken = (ValueError, openai.OpenAIError)
    with WireServer([fault(garbage=garbage)]) as server, pytest.raises(broken):
        await asked_either_way(client(server), stream)
    assert len(server.requests) == 1
