"""The page that says what was tried with each provider."""

import re

from benchmarks import providers


def test_the_page_says_what_the_tests_try() -> None:
    """R14: `python -m benchmarks.providers` writes it from the tables of the tests."""
    assert providers.section().strip() in providers.DOCUMENT.read_text("utf-8")
    reports = re.search(r"(\d+) reports of other projects", providers.section())
    assert reports is not None
    assert int(reports[1]) > 40
