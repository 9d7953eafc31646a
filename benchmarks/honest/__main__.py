"""`python -m benchmarks.honest`: play all, print what was in the way of any; fails if something was."""

import asyncio
import sys

from benchmarks.honest.playing import play_all, table


def main() -> int:
    """The exit code: 0 if nothing was in the way of honest work."""
    counts = asyncio.run(play_all())
    for count in counts:
        if not count.good:
            print(f"{count.case.kind}: {count.case.name}: {count.status}, {count.refused} refused; {count.said}")
    print(table(counts))
    return 0 if all(count.good for count in counts) else 1


if __name__ == "__main__":
    sys.exit(main())
