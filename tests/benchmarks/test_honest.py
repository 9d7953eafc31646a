"""Everyday honest work passes; `python -m benchmarks.honest` plays all of it, this every fourth scenario."""

import pytest

from benchmarks.honest.cases import CASES, Case
from benchmarks.honest.playing import play


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: f"{case.kind}: {case.name}")
async def test_honest_work_is_neither_refused_nor_asked_about(case: Case) -> None:
    """V01 to V06, H1 to H4, H11, H12, H15: no round is lost, nothing is asked."""
    count = await play(case)
    assert count.good, (count.status, count.said)


async def test_an_imprecise_quote_never_costs_the_step() -> None:
    """V02, H3: two corrections, then the work stands, unverified, and the run is partial."""
    case = Case("x", "x", (("read", {"path": "a"}, "total: 42 pieces"),), (("it is known", ("s1.1", "41 pieces")),))
    count = await play(case)
    assert (count.status, count.refused) == ("partial", 2)


async def test_a_deed_that_was_not_done_is_not_proven() -> None:
    """B1, B8: neither by own words nor by a reading."""
    for cited in ("s1.result", ("s1.1", "49.9")):
        calls = (("get", {"id": "A"}, '{"amount": 49.9}'), ("refund", {"id": "A"}, "!declined"))
        count = await play(Case("x", "x", calls, (("the order was refunded", cited),)))
        assert count.status == "failed"
