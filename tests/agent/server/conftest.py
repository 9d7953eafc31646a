"""LangGraph's own server with our graph, started once for all of these tests: as Studio has it, and with users."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from donewhen.testing import ScriptedModel
from tests.kit.library import Library
from tests.kit.server_model import decide
from tests.kit.serving import KEY, Shared, started, stopped
from tests.kit.wire import WireServer

USERS = ("ann", "bob", "cem", "dora", "eve", "fay", "gus", "hal", "ida", "donewhen", "system", "users")


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server without tokens, which knows a remote agent, `lib`; return its URL."""
    folder = tmp_path_factory.mktemp("server")
    library = Library(tmp_path_factory.mktemp("library"))
    library.start()
    with WireServer(ScriptedModel(decide)) as wire:
        process, url = started(folder, wire.base_url, DONEWHEN_EXECUTORS=f"lib=a2a:{library.url}")
        yield url
        stopped(process)
    library.stop()


@pytest.fixture
async def client(server: str) -> AsyncIterator[LangGraphClient]:
    async with get_client(url=server) as connected:
        yield connected


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    folder = tmp_path_factory.mktemp("shared")
    (folder / "settings.json").write_text(json.dumps({"limits": {"rounds": 7}, "verification": "grounded"}))
    more = {"DONEWHEN_TOKENS": ",".join(f"{user}:token-of-{user}" for user in USERS), "OPENAI_API_KEY": KEY}
    more |= {"DONEWHEN_SETTINGS": str(folder / "settings.json"), "CRON_SCHEDULER_SLEEP_TIME": "1"}
    with WireServer(ScriptedModel(decide)) as wire:
        process, url = started(folder, wire.base_url, **more)
        yield Shared(url, folder)
        stopped(process)
    log = (folder / "log").read_text()
    assert KEY not in log
    assert "token-of" not in log
