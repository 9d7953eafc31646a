"""What lists, workers and pruning ask goes by indexes, so that it stays flat however many threads there are."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from donewhen.agent.storage.store import (
    POSTGRES_KINDS,
    POSTGRES_ORDER,
    SQLITE_KINDS,
    SQLITE_ORDER,
    deletion_statements,
)
from donewhen.agent.storage.table import ThreadTable
from tests.kit.storage.cases import DATABASES, fresh_url, open_storage


@pytest.mark.parametrize("kind", DATABASES)
async def test_nothing_reads_all_threads(kind: str, tmp_path: Path) -> None:
    """R09: no statement reads a whole table, and a worker's look sorts nothing."""
    plans: dict[str, str] = {}
    async with open_storage(fresh_url(kind, tmp_path)).writer() as (_, store):
        if kind == "postgres":  # of a table so small it would read all
            await store.threads.store.put_row("SET enable_seqscan = off", [])

        async def explain(sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
            word = "EXPLAIN QUERY PLAN" if kind == "sqlite" else "EXPLAIN (COSTS OFF)"
            plans[sql] = "\n".join(row[-1] for row in await store.threads.store.read_rows(f"{word} {sql}", values))
            return []

        explaining: Any = SimpleNamespace(read_rows=explain)
        table = ThreadTable(explaining)
        await table.find_due("agents", "2026", 256)
        await table.find_unsettled(100)
        for owner in (None, "ann"):
            await table.find_waiting(100, owner=owner, after=("2026", "t"))
        assert not [plan for plan in plans.values() if "TEMP B-TREE" in plan or "Sort Key" in plan]
        await table.find(100)
        for owner in (None, "ann"):
            await table.find(100, owner=owner, status=["waiting"], before="2026")
        await table.find(100, owner="ann")
        await table.find_running("agents", "2026", 100)
        await table.counts()
        await table.oldest(["queued", "running"])
        kinds, order = (SQLITE_KINDS, SQLITE_ORDER) if kind == "sqlite" else (POSTGRES_KINDS, POSTGRES_ORDER)
        await explain(kinds, [])
        for sql, values in deletion_statements(["a", "b"], ["checkpoints"], [("donewhen.effects/",)], order):
            await explain(sql, values)
    for sql, plan in plans.items():
        lines = [line for line in plan.splitlines() if "SCAN" in line.upper() and "SCAN owners" not in line]
        read = [line for line in lines if "Seq Scan" in line or ("SCAN donewhen" in line and "INDEX" not in line)]
        assert not read, (sql, plan)
        assert "SCAN store" not in plan
        assert "SCAN checkpoints" not in plan
