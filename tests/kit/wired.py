"""Models that talk over the wire to a scripted server, as they talk to a provider."""

from typing import Any

from langchain_openai import ChatOpenAI

from tests.kit.wire import WireServer


def wired(server: WireServer, name: str = "scripted", key: str = "sk-test", **more: Any) -> ChatOpenAI:
    """A chat model of OpenAI's protocol at this server, streaming, with no retries of its own."""
    return ChatOpenAI(
        model=name,
        base_url=server.base_url,
        api_key=key,
        max_retries=0,
        stream_usage=True,
        **more,  # type: ignore[arg-type]
    )
