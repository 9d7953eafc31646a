"""Somebody changes the database: nothing runs, and with a key nothing passes unnoticed."""

import contextlib
import json
import random
import re
from pathlib import Path
from typing import Any

import ormsgpack
import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2, JsonPlusSerializer

from donewhen import Agent, ConfigError, StorageError
from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.state.private_langgraph import DeltaSnapshot
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.storage.cases import DATABASES, JOURNAL, KEY, Storage, config, fresh_url, graph, open_storage
from tests.kit.storage.raw import cells, database, row, values

SECRET = "attack at dawn"


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh_url(request.param, tmp_path)


async def _fill(url: str, *thread_ids: str, key: bytes | None = KEY) -> None:
    for thread_id in thread_ids:
        async with open_storage(url, key=key).session(thread_id) as (saver, store):
            settings = {**config(thread_id), "metadata": {"tenant": SECRET}}
            compiled = graph().compile(checkpointer=saver)
            await compiled.ainvoke({"goal": SECRET}, settings, durability="sync")
            await store.aput(("donewhen", "observations", thread_id), "1:s1.1", {"text": SECRET})


async def _look(url: str, thread_id: str = "t", key: bytes | None = KEY) -> Any:
    """All that can be known of a thread."""
    async with open_storage(url, key=key).reader() as (saver, store):
        compiled = graph().compile(checkpointer=saver)
        newest = await compiled.aget_state(config(thread_id))
        history = [newest, *[found async for found in compiled.aget_state_history(config(thread_id))]]
        stored = [found async for found in saver.alist(config(thread_id))]  # subgraphs too
        items = await store.asearch(("donewhen", "observations", thread_id))
        return (
            [(repr(found.values), found.next, repr(found.tasks), found.metadata) for found in history],
            repr(stored),
            [item.value for item in items],
        )


async def _is_noticed(url: str, before: Any, thread_id: str = "t") -> bool:
    """Whether reading says that something is wrong; it must not give back anything else than before."""
    try:
        assert await _look(url, thread_id) == before
    except StorageError:
        return True
    return False


# Code ---------------------------------------------------------------------------------------------------------


def _gadgets(path: Path) -> list[tuple[str, bytes]]:
    """Payloads that would create the file `path` if anything ran: every msgpack extension, JSON and pickle."""
    command = f"touch {path}"
    tuples: list[tuple[int, Any]] = [
        (0, ("os", "system", command)),
        (1, ("os", "system", (command,))),
        (2, ("subprocess", "run", {"args": ["touch", str(path)]})),
        (3, ("os", "system", command, "__call__")),
        (4, ("subprocess", "run", {"args": ["touch", str(path)]}, None)),
        (5, ("subprocess", "run", {"args": ["touch", str(path)]}, None)),
    ]
    constructor = b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["' + command.encode() + b'"]}'
    return [
        *(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(body)))) for code, body in tuples),
        ("json", constructor),
        ("pickle", b"cposix\nsystem\n(V" + command.encode() + b"\ntR."),
    ]


def test_the_gadgets_would_run_in_a_lenient_serializer(tmp_path: Path) -> None:
    """F11: what the next test shows would otherwise be empty."""
    lenient = JsonPlusSerializer(pickle_fallback=True, allowed_json_modules=True, allowed_msgpack_modules=True)
    ran = 0
    for kind, payload in _gadgets(tmp_path / "ran"):
        lenient.loads_typed((kind, payload))
        ran += (tmp_path / "ran").exists()
        (tmp_path / "ran").unlink(missing_ok=True)
    assert ran >= 6


def test_messages_come_back_as_they_were() -> None:
    """T: they are not checked again; those that an older version stored with fewer fields are."""
    strict = StrictSerializer()
    call = {"name": "look", "args": {"what": ["a", {"b": None}]}, "id": "c1", "type": "tool_call"}
    said = AIMessage([{"type": "text", "text": "Hm."}], tool_calls=[call], id="1", response_metadata={"model": "m"})
    seen = ToolMessage("x", tool_call_id="c1", artifact={"files": {}}, status="error")
    stored = strict.dumps_typed(DeltaSnapshot([said, seen, HumanMessage("go"), SystemMessage("be")]))
    found = strict.loads_typed(stored).value
    assert found == [said, seen, HumanMessage("go"), SystemMessage("be")]
    assert [each.model_dump() for each in found[:2]] == [said.model_dump(), seen.model_dump()]
    named = (AIMessage.__module__, "AIMessage", {"content": "old"}, "model_validate_json")
    older = ormsgpack.packb(ormsgpack.Ext(EXT_PYDANTIC_V2, ormsgpack.packb(named)))
    assert strict.loads_typed(("msgpack", older)) == AIMessage("old")


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
async def test_gadgets_in_the_database_run_nothing(url: str, tmp_path: Path, key: bytes | None) -> None:
    """F11: in any place where a value is stored."""
    await _fill(url, "t", key=key)
    with database(url) as run:
        for table, column in values(url):
            for kind, payload in _gadgets(tmp_path / "ran"):
                run(f"UPDATE {table} SET type = ?, {column} = ?", (kind, payload))
                # Without a key a blocked object comes back as data, on which LangGraph stumbles in its own ways.
                with contextlib.suppress(StorageError, AttributeError, TypeError, LookupError, ValueError):
                    await _look(url, key=key)
                    assert key is None
                assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff"])
def test_damaged_values_are_storage_errors(payload: bytes) -> None:
    with pytest.raises(StorageError, match="damaged"):
        StrictSerializer().loads_typed(("msgpack", payload))


# A key --------------------------------------------------------------------------------------------------------


async def test_nothing_secret_is_readable(url: str, tmp_path: Path) -> None:
    """F11: also not the scalars that PostgreSQL's saver puts into plain JSON, nor the metadata of the caller."""
    await _fill(url, "t")
    for marker in (SECRET, JOURNAL[0], "go on?"):
        with database(url) as run:
            names = ["checkpoints", "store"]
            names += ["writes"] if url.startswith("sqlite") else ["checkpoint_blobs", "checkpoint_writes"]
            for name in names:
                assert marker not in repr(run(f"SELECT * FROM {name}", ()))
    assert SECRET in repr(await _look(url))


async def _do_marked_work(storage: Storage, owner: str, thread_id: str) -> None:
    """Let a run ask, plan, read and write, so that each text it gets or makes has a mark such as `-goal-`."""
    done: list[str] = []

    def use_tool(query: str) -> str:
        done.append(query)
        return "the -result-"

    tools = [
        StructuredTool.from_function(use_tool, name=f"-{effect}er-".strip("-"), description="-description-")
        for effect in ("read", "writ")
    ]
    step = {"content": "-step-", "done_when": ["-criterion-"], "tools": ["reader", "writer"]}
    model = ScriptedModel(
        roles={
            "triage": [ask_user("-question-?", ["-option-", "b"]), submit_plan([step], title="-title-")],
            "execute": [
                call("reader", query="-argument-"),
                call("writer", query="-change-"),
                finish_step("the -result-", "s1.1"),
            ],
        }
    )
    agent = Agent(
        model, tools, storage=storage, effects={"reader": "read", "writer": "write"}, settings={"approvals": "plan"}
    )
    run = await agent.start("-goal-", owner=owner, request_id=thread_id)
    run = await agent.resume(run, "-answer-")
    run = await agent.resume(run, "approve")
    assert (run.status, done) == ("completed", ["-argument-", "-change-"]), run
    await agent.templates.save(run, f"template-of-{owner}")


async def test_without_the_key_ids_owners_and_names_are_readable_and_no_texts(tmp_path: Path) -> None:
    """F11: of the work of two people, in all tables of a file; it is what the page on security says."""
    url = fresh_url("sqlite", tmp_path)
    for who in ("ann", "bob"):
        await _do_marked_work(open_storage(url, key=KEY), f"owner-{who}", f"request-{who}")
    with database(url) as run:
        tables = [name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'", ())]
        stored = repr([run(f"SELECT * FROM {name}", ()) for name in tables])
    for who in ("ann", "bob"):
        assert all(name in stored for name in (f"owner-{who}", f"request-{who}", f"template-of-owner-{who}"))
    assert all(name in stored for name in ("completed", "transcripts", "branch:to:deliver"))
    assert re.findall(r"reader|writer|-[a-z]{4,}-\W", stored) == []


async def test_another_key_begins_with_another_database(tmp_path: Path) -> None:
    """F11: as the page says: the first key still opens the first database, the new one only the new."""
    old, new = (open_storage(f"sqlite:///{tmp_path}/{key[0]}.db", key=key) for key in (KEY, b"x" * 32))
    await _do_marked_work(old, "ann", "first")
    await _do_marked_work(new, "ann", "second")
    assert (await Agent("demo", storage=old).get("first")).answer == "the -result-"
    assert (await Agent("demo", storage=new).get("second")).answer == "the -result-"
    with pytest.raises(StorageError, match="another storage key"):
        await Agent("demo", storage=open_storage(f"sqlite:///{tmp_path}/{KEY[0]}.db", key=b"x" * 32)).get("first")


async def test_the_key_has_to_fit(url: str) -> None:
    await _fill(url, "t")
    for key, words in ((None, "is encrypted"), (b"x" * 32, "another storage key"), (b"x" * 16, "another storage key")):
        with pytest.raises(StorageError, match=words):
            await open_storage(url, key=key).check_health()
    await open_storage(url, key=KEY).check_health()


async def test_a_key_for_unencrypted_runs_is_refused(url: str) -> None:
    await open_storage(url).check_health()
    await _fill(url, "t", key=None)
    with pytest.raises(StorageError, match="not encrypted"):
        await open_storage(url, key=KEY).check_health()


@pytest.mark.parametrize("key", [b"", b"x" * 31, "x" * 32])
def test_a_wrong_key_is_a_config_error(key: bytes) -> None:
    with pytest.raises(ConfigError, match="16, 24 or 32 bytes"):
        open_storage("memory:", key=key)


async def test_flipped_bits_are_noticed(url: str) -> None:
    """F11: without a key 134 of 400 changed state silently; with one, none does, and every value's is noticed."""
    await _fill(url, "t")
    before = await _look(url)
    randoms = random.Random(11)
    noticed = dict.fromkeys(cells(url), 0)
    with database(url) as run:
        for table, column, shown in [cell for cell in cells(url) for _ in range(5)]:
            place, value = randoms.choice(run(f"SELECT {row(url)}, {shown} FROM {table}", ()))
            update = f"UPDATE {table} SET {column} = ? WHERE {row(url)} = ? RETURNING {row(url)}"
            try:
                ((place,),) = run(update, (_flip(randoms, value), place))
            except psycopg.DataError:  # broken JSON: the database itself refuses it
                noticed[table, column, shown] += 1
                continue
            noticed[table, column, shown] += await _is_noticed(url, before)
            run(update, (value, place))
        assert await _look(url) == before
    assert all(count == 5 for (_, _, shown), count in noticed.items() if "::" not in shown)
    assert all(count >= 3 for count in noticed.values())


def _flip(randoms: random.Random, value: str | bytes) -> str | bytes:
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    place = randoms.randrange(len(raw))
    raw[place] ^= 1 << randoms.randrange(7 if isinstance(value, str) else 8)
    return raw.decode() if isinstance(value, str) else bytes(raw)


@pytest.mark.parametrize("across", ["checkpoints", "threads"])
async def test_moved_values_are_noticed(url: str, across: str) -> None:
    """F11: a sealed value is of no use in another row, be it of the same thread or of another."""
    await _fill(url, "t", "u")
    before = await _look(url)
    source = "t" if across == "checkpoints" else "u"
    randoms = random.Random(5)
    with database(url) as run:
        for table, column in [*values(url), ("checkpoints", "metadata")]:
            query = f"SELECT {row(url)}, {column} FROM {table} WHERE thread_id = ? ORDER BY {row(url)}"
            for _ in range(2):
                to, own = randoms.choice(run(query, ("t",)))
                other = randoms.choice([value for _, value in run(query, (source,)) if value != own])
                update = f"UPDATE {table} SET {column} = ? WHERE {row(url)} = ? RETURNING {row(url)}"
                ((place,),) = run(update, (_plain(other), to))
                assert await _is_noticed(url, before)
                run(update, (_plain(own), place))
        assert await _look(url) == before


def _plain(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict) else value


async def test_a_whole_thread_under_another_name_is_noticed(url: str) -> None:
    """F11: what was approved in one thread cannot be passed off as another's."""
    await _fill(url, "t")
    tables = ["checkpoints", *(table for table, _ in values(url) if table != "checkpoints")]
    with database(url) as run:
        for table in tables:
            run(f"UPDATE {table} SET thread_id = ?", ("u",))
        run("UPDATE store SET prefix = ?", ("donewhen.observations.u",))
    with pytest.raises(StorageError):
        await _look(url, "u")
    async with open_storage(url, key=KEY).reader() as (_, store):
        with pytest.raises(StorageError):
            await store.asearch(("donewhen", "observations", "u"))


async def test_missing_rows_are_noticed(url: str) -> None:
    """F11: each row but the newest is vouched for by a later one."""
    await _fill(url, "t")
    before = await _look(url)
    tables = ["checkpoints", *(table for table, _ in values(url) if table != "checkpoints")]
    with database(url) as run:
        ((newest,),) = run("SELECT max(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = ''", ())
        ids = {row[0] for row in run("SELECT checkpoint_id FROM checkpoints WHERE checkpoint_ns = ''", ())}
        assert len(ids) == 7
        for checkpoint_id in ids - {newest}:
            for table in [name for name in tables if name != "checkpoint_blobs"]:
                rows = run(f"SELECT {row(url)} FROM {table} WHERE checkpoint_id = ?", (checkpoint_id,))
                for (place,) in rows[:2]:
                    update = f"UPDATE {table} SET thread_id = ? WHERE {row(url)} = ? RETURNING {row(url)}"
                    ((place,),) = run(update, ("elsewhere", place))
                    assert await _is_noticed(url, before), table
                    run(update, ("t", place))
        assert await _look(url) == before


async def test_an_unreadable_thread_can_be_deleted(url: str) -> None:
    """Deleting asks for no key to fit."""
    await _fill(url, "t")
    with database(url) as run:
        for table, column in values(url):
            run(f"UPDATE {table} SET {column} = ?", (b"damaged",))
        run("UPDATE store SET value = ?", ("{}",))
    storage = open_storage(url, key=KEY)
    await storage.delete_thread("t")
    assert (await _look(url))[2] == []
