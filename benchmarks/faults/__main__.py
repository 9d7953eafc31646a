"""`python -m benchmarks.faults`: measure all, write docs/faults.md, fail if a bar is missed. Under 10 minutes.

`python -m benchmarks.faults plans escapes` measures only what is named and prints its figures.
"""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.faults.figures import NAMES, figures, measure, page, problems

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if every bar was held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"only these, printed: {', '.join(PARTS)}")
    parser.add_argument("--page", type=Path, default=PAGE, help="where to write the page")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = dict(pool.map(measure, given.names or PARTS))
    rows = [each for name in NAMES if name in found for each in found[name].figures]
    if given.names:
        print(figures(rows), *(each.told for each in found.values()), sep="\n\n")
    else:
        given.page.write_text(page(found), encoding="utf-8")
    print(*problems(rows), sep="\n", file=sys.stderr)
    return 1 if problems(rows) else 0


PARTS = ("injection", "provider", "tamper", "storage", "models", "tools", "plans", "escapes", "recorded")
"""Each a module beside this one; those that take longest come first."""


if __name__ == "__main__":
    sys.exit(main())
