"""`python -m benchmarks.audit`: play every case at every level, and say what ended as it should and what it cost.

`--missing DIR` writes what no judge has answered yet, one file per request; a judge writes DIR/<key>.json beside it,
the call it makes, `{"name": "audit", "args": {…}}`, and `--take DIR` puts those into the record.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.audit.playing import CASES, REPLIES, Played, play


def main() -> int:
    """Return 0 if at most 3 % of false completions are completed and at most 3 % of honest ones doubted."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, help="a folder of .jsonl files")
    parser.add_argument("--replies", type=Path, default=REPLIES)
    parser.add_argument("--missing", type=Path)
    parser.add_argument("--take", type=Path)
    parser.add_argument("--levels", nargs="*", default=["grounded", "audited"])
    given = parser.parse_args()
    replies = _read(given.replies)
    if given.take:
        replies |= {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(given.take.glob("*.json"))}
        lines = (json.dumps({"key": key, "reply": said}, ensure_ascii=False) for key, said in sorted(replies.items()))
        given.replies.write_text("\n".join(lines) + "\n", encoding="utf-8")
    cases = [
        json.loads(line)
        for file in sorted(given.cases.glob("*.jsonl"))
        for line in file.read_text("utf-8").splitlines()
    ]
    good = True
    for level in given.levels:
        played = [asyncio.run(play(case, level, replies)) for case in cases]
        good = _print_result(level, played) and good
        if given.missing:
            given.missing.mkdir(parents=True, exist_ok=True)
            for one in played:
                for key, text in one.missing.items():
                    (given.missing / f"{key}.txt").write_text(text, encoding="utf-8")
    return 0 if good else 1


def _read(path: Path) -> dict[str, Any]:
    lines: Iterable[str] = path.read_text("utf-8").splitlines() if path.exists() else ()
    rows: Iterable[Mapping[str, Any]] = map(json.loads, lines)
    return {row["key"]: row["reply"] for row in rows}


def _print_result(level: str, played: list[Played]) -> bool:
    false = [one for one in played if one.case["expect"] != "completed"]
    honest = [one for one in played if one.case["expect"] == "completed"]
    passed = [one for one in false if not one.right]
    doubted = [one for one in honest if not one.right]
    unanswered = sum(bool(one.missing) for one in played)
    calls, characters = (sum(getattr(one, name) for one in honest) / len(honest) for name in ("calls", "characters"))
    said = [
        f"{len(passed)} of {len(false)} false completions end completed",
        f"{len(doubted)} of {len(honest)} honest ones do not",
        f"{calls:.2f} calls and {characters:,.0f} characters an honest run",
        f"{unanswered} without a judge",
    ]
    print(f"{level}: {'; '.join(said)}")
    for one in [*passed, *doubted]:
        print(f"  {one.case['id']} {one.status} {one.code}: {'; '.join(one.doubts)[:400]}")
    return level != "audited" or (len(passed) <= 0.03 * len(false) and len(doubted) <= 0.03 * len(honest))


if __name__ == "__main__":
    sys.exit(main())
