"""The table of docs/tool_selection.md: its figures are those of this code."""

import pytest

from benchmarks.selection.catalogue import LANGUAGES, queries, tools
from benchmarks.selection.methods import ours
from tests.kit.places import ROOT

PAGE = (ROOT / "docs" / "tool_selection.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_asked_for_is_among_the_first(language: str) -> None:
    """P13, M6: 500 tools, 52 queries a language; at least 51 have their tool among the first 24, as the page says."""
    catalogue, asked = tools(language), queries(language)
    assert (len(catalogue), len(asked)) == (500, 52)
    search = ours(catalogue)
    places = [search(query.text).index(query.tool) for query in asked]
    found = sum(place < 24 for place in places)
    assert found >= 51
    row = next(line for line in PAGE.splitlines() if line.startswith("| characters and pairs (ours)"))
    first = sum(place == 0 for place in places)
    assert row.split("|")[2 + LANGUAGES.index(language)].strip() == f"{found} ({first})"
