"""The batch as a reader runs it: to its end, once more, and with a sum that stops it."""

from pathlib import Path

import pytest

from tests.examples.test_daily_report import loaded


async def test_a_batch_is_sorted_once_and_stops_at_its_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """M2: a wrong line is left out, questions are answered, what failed is tried again; a second start adds nothing."""
    monkeypatch.delenv("DONEWHEN_STORAGE", raising=False)
    example = loaded("batch", tmp_path)
    (tmp_path / "stopped").mkdir()
    monkeypatch.chdir(tmp_path / "stopped")
    await example.run_batch(most=0.01)
    stopped, *table = capsys.readouterr().out.splitlines()[-14:]
    assert stopped == "stopped: 0.01 dollars are spent"
    assert {"completed", "cancelled", "failed"} >= {line.split()[1] for line in table[:-1]} > {"completed"}

    monkeypatch.chdir(tmp_path)
    await example.run_batch()
    printed = capsys.readouterr().out
    assert "line 5 is wrong, and left out: 4,,Where is it?" in printed
    assert "letters-may/6 asks: Is this a refund, or another delivery?" in printed
    assert "letters-may/8 is tried again: The model call failed" in printed
    table = printed.splitlines()[-13:]
    assert [line.split()[1] for line in table] == ["completed"] * 12 + [table[-1].split()[1]]
    assert "refund A-1" in table[0]
    assert (tmp_path / table[0].split()[-1]).is_file()
    await example.run_batch()
    assert capsys.readouterr().out.splitlines()[-13:] == table
