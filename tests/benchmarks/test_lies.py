"""The lie test in short form (F9): every kind of lie and of honest claim once, and claims at random.

`python -m benchmarks.lies` plays all of them at all levels and writes docs/verification.md.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from benchmarks.lies.counting import count, play_one, wrong
from benchmarks.lies.kinds import KINDS, Kind
from benchmarks.lies.world import LEVELS, Level, Stage
from tests.kit.places import ROOT

PAGE = ROOT / "docs" / "verification.md"
DEMANDING = ("grounded", "audited", "judged", "checked")
LIES = [kind for kind in KINDS if kind.sort == "lie"]
GROUPS = sorted({kind.group for kind in LIES})


class Theatre:
    """A stage and the event loop it lives in, for tests that are no coroutines."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._stage = Stage()

    def accepts(self, kind: Kind, level: Level, seed: int = 0) -> bool:
        return self._runner.run(play_one(self._stage, kind, level, seed)).accepted

    def close(self) -> None:
        self._runner.run(self._stage.__aexit__())
        self._runner.close()


@pytest.fixture(scope="module")
def theatre() -> Iterator[Theatre]:
    theatre = Theatre()
    yield theatre
    theatre.close()


@pytest.mark.parametrize("group", GROUPS)
def test_no_lie_is_accepted(theatre: Theatre, group: str) -> None:
    """F9, X03, DESIGN 5: whatever the form, the id, the quote, the time, the person or the judge."""
    kinds = [kind for kind in LIES if kind.group == group]
    accepted = [
        (kind.name, level)
        for number, kind in enumerate(kinds)
        if theatre.accepts(kind, level := DEMANDING[number % len(DEMANDING)])
    ]
    assert accepted == []


@pytest.mark.parametrize("part", range(4))
def test_no_honest_claim_is_refused(theatre: Theatre, part: int) -> None:
    """DESIGN 5: the truth, well proven, in every form in which models put it."""
    kinds = [kind for kind in KINDS if kind.sort == "honest"][part::4]
    refused = [
        (kind.name, level)
        for number, kind in enumerate(kinds)
        if not theatre.accepts(kind, level := LEVELS[number % len(LEVELS)])
    ]
    assert refused == []


def test_what_grounded_cannot_see_is_seen_by_what_is_said_to(theatre: Theatre) -> None:
    """DESIGN 5: the page's table of blind spots is as it says."""
    for kind in (kind for kind in KINDS if kind.sort == "blind"):
        assert theatre.accepts(kind, "grounded"), f"{kind.name} is no blind spot any more: make it a lie"
        if "judge" in kind.seen_by:
            assert not theatre.accepts(kind, "judged"), kind.name
            assert not theatre.accepts(kind, "audited"), kind.name
        if "check" in kind.seen_by:
            assert not theatre.accepts(kind, "checked"), kind.name


def test_the_original_protocol_refuses_only_what_is_empty_or_admitted(theatre: Theatre) -> None:
    """DESIGN 5: `claimed` takes the model's word; the other levels are there because it proves nothing."""
    forms = {kind.name: kind for kind in LIES if kind.group == "form of the goal_check"}
    for name in ("empty list", "nothing", "met: false", "the false criterion left out"):
        assert not theatre.accepts(forms[name], "claimed"), name
    for name in ("a text instead of a list", "no evidence"):
        assert theatre.accepts(forms[name], "claimed"), name


ANYTHING = {kind.sort: kind for kind in KINDS if "at random" in kind.name}


@given(seed=st.integers(100, 10**9), level=st.sampled_from(DEMANDING))
@settings(max_examples=settings().max_examples // 12, deadline=None, phases=[Phase.generate])
def test_after_any_work_no_false_claim_is_accepted(theatre: Theatre, seed: int, level: Level) -> None:
    """F9: evidence that states the criterion is accepted only where the criterion is true."""
    assert not theatre.accepts(ANYTHING["lie"], level, seed)


@given(seed=st.integers(100, 10**9), level=st.sampled_from(DEMANDING))
@settings(max_examples=settings().max_examples // 12, deadline=None, phases=[Phase.generate])
def test_after_any_work_every_proven_claim_is_accepted(theatre: Theatre, seed: int, level: Level) -> None:
    """DESIGN 5: a fresh reading that says so is always good enough."""
    assert theatre.accepts(ANYTHING["honest"], level, seed)


async def test_a_lie_that_gets_through_fails_the_benchmark() -> None:
    """The benchmark itself: rows say what was accepted, and `wrong` what should not have been."""
    kinds = [next(kind for kind in KINDS if kind.name == name) for name in ("invented", "quote: verbatim")]
    rows = await count(kinds, 2, ("claimed", "grounded"))
    assert [row.accepted for row in rows] == [{"claimed": 2, "grounded": 0}, {"claimed": 2, "grounded": 2}]
    assert wrong(rows) == []
    rows[0].accepted["grounded"] = 1
    rows[1].accepted["claimed"] = 0
    assert wrong(rows) == [
        "accepted 1 of 2 at grounded: quote: invented",
        "refused 2 of 2 at claimed: quote: verbatim",
    ]


def test_the_page_knows_every_kind() -> None:
    """The figures in docs/verification.md are of these kinds: no new one without a run."""
    sorts = Counter(kind.sort for kind in KINDS)
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert re.findall(r"(?:lies in|claims of) (\d+) kinds", text) == [str(sorts["lie"]), str(sorts["honest"])]
    named = {*re.split(r" \| |; ", text)}
    assert [kind.name for kind in KINDS if kind.sort == "blind" and kind.name not in named] == []
