"""Dates that are written with numbers alone."""

import pytest

from donewhen.state.language.quantities import dates_in, without_dates


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("server 10.12.10.15", []),
        ("v2.11.30 is out, V2.11.30 too (v2.11.30), app_v2.11.30", []),
        ("INV2026-10-23 and rev23.10.2026", [(2026, 10, 23), (2026, 10, 23)]),
        ("from 2026-10-03/2026-10-05", [(2026, 10, 3), (2026, 10, 5)]),
        ("reports/1/23/10/2026", [(2026, 10, 23)]),
        ("reports/2026/10/23/1.txt", [(2026, 10, 23)]),
        ("due 23.10.2026.", [(2026, 10, 23)]),
    ],
)
def test_an_address_and_a_version_are_no_dates_and_a_date_behind_a_number_is_one(
    text: str, dates: list[object]
) -> None:
    """X25: what is no date stays in what is compared; a date is found whatever stands before and behind it."""
    assert [*dates_in(text)] == dates
    assert (without_dates(text) == text) == (not dates)
