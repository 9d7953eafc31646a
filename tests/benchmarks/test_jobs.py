"""The everyday jobs can be done as they stand, and their checks tell right from wrong."""

from pathlib import Path

import pytest

from benchmarks.jobs.__main__ import ours
from benchmarks.jobs.everyday import EVERYDAY
from benchmarks.jobs.perfect import PERFECT
from donewhen import Settings
from donewhen.testing import ScriptedModel


@pytest.mark.parametrize("name", EVERYDAY)
async def test_perfect_work_is_right_and_nothing_is_in_its_way(name: str, tmp_path: Path) -> None:
    """V01, H1: the check finds honest work right; the runtime corrects nothing and asks for the plan only."""
    job = EVERYDAY[name]
    job.make(tmp_path)
    assert job.right(tmp_path, "") != ""
    with ScriptedModel(roles=PERFECT[name]) as model:
        row = await ours(job, tmp_path, Settings(), model)
    assert (row["right"], row["corrections"]) == ("", [])
    assert [asked.split(":")[0] for asked in row["asked"]] in ([], ["plan"])
