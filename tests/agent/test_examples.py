"""The examples run, as their readers would run them, and show what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "diamond.py": ["Both sources say 42."],
    "replanned.py": ["new step s3", "s1 done: 49.90 EUR", "s2 failed: sold out; instead: s3"],
}


def test_every_example_is_run() -> None:
    """A script in examples/ that nobody runs would rot."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M3, M12: each example runs to its end without a key and prints what it is about."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for text in SHOWN[name]:
        assert text in printed
