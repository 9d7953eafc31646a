"""How often a database commits, counted by itself."""

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from donewhen import Agent
from donewhen.agent.storage import rounds
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.storage.cases import DATABASES, fresh_url, key_of, open_storage

PAGE_HEADER, HEADER = 24, 32


@contextmanager
def counted(url: str) -> Iterator[list[int]]:
    """Append the number of commits until the end that changed something."""
    found = list[int]()
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///")
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM donewhen_meta").fetchall()  # for as long as it reads, the log grows
        first = _in_log(path)
        yield found
        found.append(_in_log(path) - first)
        reader.close()
        return
    with psycopg.connect(url, autocommit=True) as asking:
        first = _transactions(asking)
        yield found
        found.append(_transactions(asking) - first - 1)


def _in_log(path: str) -> int:
    """The commits in SQLite's write-ahead log: the frames that name the size of the file after them."""
    log = Path(f"{path}-wal")
    data = log.read_bytes() if log.exists() else b""
    if len(data) < HEADER:
        return 0
    page, salt = struct.unpack(">I", data[8:12])[0], data[16:24]
    frames = range(HEADER, len(data) - PAGE_HEADER - page + 1, PAGE_HEADER + page)
    return sum(data[at + 8 : at + 16] == salt and data[at + 4 : at + 8] != bytes(4) for at in frames)


def _transactions(asking: psycopg.Connection[Any]) -> int:
    """The number of the next transaction that changes something."""
    return int((asking.execute("SELECT pg_current_xact_id()::text").fetchone() or (0,))[0])


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits does so until the next commit, also on a slow machine."""
    monkeypatch.setattr(rounds, "SOON", 60.0)


@pytest.mark.parametrize("kind", [*DATABASES, "sqlite-sealed"])
async def test_a_request_that_is_answered_is_three_commits(kind: str, tmp_path: Path) -> None:
    """Q91, R05: it began, what the model said, it ended. Ten requests are thirty, sealed or not."""
    url = fresh_url(kind, tmp_path)
    storage = open_storage(url, key=key_of(kind))
    async with Agent(ScriptedModel([answer(f"{n}") for n in range(11)]), storage=storage) as agent:
        await agent.start("first", thread_id="t")
        with counted(url) as commits:
            for n in range(10):
                assert (await agent.start(f"again {n}", thread_id="t")).status == "answered"
    assert commits == [30]


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_round_is_two_commits(kind: str, tmp_path: Path) -> None:
    """Q91, R05: the reply before its calls are made, and what came of them."""
    url, looks = fresh_url(kind, tmp_path), 4

    def look(x: str) -> str:
        """Look something up."""
        return f"seen {x}"

    def work(messages: list[Any], _: list[Any]) -> Any:
        made = sum(message.type == "tool" for message in messages)
        return call("look", x=str(made)) if made < looks else finish_step("seen", evidence=("s1.1", "seen 0"))

    plan = submit_plan([{"content": "look", "done_when": ["it is seen"], "tools": ["look"]}])
    model = ScriptedModel(roles={"triage": [answer("Hello."), plan], "execute": work, "deliver": lambda *_: "Done."})
    settings = {"confirm": "never", "verification": "grounded"}
    async with Agent(model, [look], storage=url, effects={"look": "read"}, settings=settings) as agent:
        await agent.start("first", thread_id="t")
        with counted(url) as commits:
            assert (await agent.start("look", thread_id="t")).status == "completed"
    assert commits == [2 * looks + 4]  # it began, the plan, the claim, it ended
