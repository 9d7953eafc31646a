"""The everyday jobs can be done as they stand, and their checks tell right from wrong."""

from pathlib import Path

import pytest

from benchmarks.jobs.__main__ import JOBS, ours
from benchmarks.jobs.perfect import PERFECT, script_of
from benchmarks.jobs.price import GROUPS, ORIGINS, origin_table, play_both, price_table
from donewhen import Settings
from donewhen.testing import ScriptedModel


@pytest.mark.parametrize("name", [name for name in PERFECT if name not in ("failing test", "rename")])
async def test_perfect_work_is_right_and_nothing_is_in_its_way(name: str, tmp_path: Path) -> None:
    """V01, H1: the check finds honest work right; the runtime corrects nothing and asks for the plan only.
    Two jobs that run pytest take seconds; `make jobs` plays them."""
    job = JOBS[name]
    job.make(tmp_path)
    assert job.right(tmp_path, "") != ""
    with ScriptedModel(roles=script_of(name, tmp_path)) as model:
        row = await ours(job, tmp_path, Settings(), model)
    assert (row["right"], row["corrections"]) == ("", [])
    unsure = ["effect"] if name == "pay" else []  # a payment that fails with a 503 may have been made
    assert [asked.split(":")[0] for asked in row["asked"]] in ([], ["plan", *unsure])


async def test_every_character_that_is_sent_has_an_origin() -> None:
    """39.7: the price of a job, by role and origin, beside a bare loop that makes the same calls: nothing is left out,
    and both loops are played in the tables."""
    plays = {name: await play_both(name) for name in ("refunds", "thesis")}
    mine, bare = plays["refunds"]
    assert [sent.role for sent in mine] == ["triage", "triage", "triage", "execute", "judge"]
    assert [sent.chars["control tools"] > 0 for sent in (*mine, *bare)] == [True] * 5 + [False] * 5
    assert all({*sent.chars} <= {*ORIGINS} for sent in (*mine, *bare))
    assert mine[0].begun == 0 < mine[1].begun < mine[1].total
    shown = price_table(plays)
    assert [sum(f"| {name} |" in shown for name in (*plays, "**all**"))] == [3]
    assert "| **long** |" not in shown
    total = sum(sent.total for play in plays.values() for sent in play[0])
    assert f"| {total / 1000:.1f} |" in shown
    assert f"| {total / 1000:.1f} |" in origin_table(plays)
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(PERFECT)
