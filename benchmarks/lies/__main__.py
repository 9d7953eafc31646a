"""`python -m benchmarks.lies`: play all, write docs/verification.md, fail if a lie got through or a truth did not.

It prints every kind of claim with its counts.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from benchmarks.honest.playing import play_all, table
from benchmarks.lies.counting import count_all, wrong
from benchmarks.lies.page import every_kind, page

PAGE = Path(__file__).parents[2] / "docs" / "verification.md"


def main() -> int:
    """The exit code: 0 if everything was as it should be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lies", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="cases of each kind (default: 5)")
    parser.add_argument("--jobs", type=int, help="processes (default: one per processor)")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write the page")
    given = parser.parse_args()
    rows = count_all(given.seeds, given.jobs)
    work = asyncio.run(play_all())
    given.page.write_text(page(rows, table(work)), encoding="utf-8")
    problems = [*wrong(rows), *(f"honest work: {count.case.name}" for count in work if not count.good)]
    print(every_kind(rows), *problems, sep="\n")
    print(f"{sum(row.played * len(row.accepted) for row in rows)} runs; {len(problems)} kinds wrong; see {given.page}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
