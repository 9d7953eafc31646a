"""Pages that name tests: what they name is there."""

import re

from tests.kit.places import ROOT


def test_every_attack_that_the_security_page_names_is_a_test() -> None:
    """Issue 11: each row of the table has the command that shows it."""
    page = (ROOT / "docs" / "security.md").read_text()
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.stem for path in files} | {
        name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.rpartition(" | ")[2])
        assert named, row
        assert set(named) <= there, set(named) - there


def test_what_make_brings_along_is_installed_by_it() -> None:
    """L14: an extra of which the README says that `make install` brings it along; no other is promised."""
    readme, makefile = ((ROOT / name).read_text() for name in ("README.md", "Makefile"))
    promised = re.findall(r"pip install 'donewhen\[(\w+)\]'`; `make install` brings it along", readme)
    installed = re.search(r"-e '\.\[([\w,]+)\]'", makefile)
    assert installed is not None
    assert sorted(promised) == sorted(installed[1].split(",")) == ["mcp", "ui"]
