"""Read the claims of a goal_check, in every form that models write, and rank verdicts.

Verdict per criterion: `proven` (a check, or a judge that looked, decided it) | `cited` (what is cited was observed and
says what is quoted) | `unverified` | `failed`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from donewhen.state.pattern import pattern

Verdict = Literal["proven", "cited", "unverified", "failed"]
RANK = {"failed": 0, "unverified": 1, "cited": 2, "proven": 3}
DEMANDS: dict[str, Verdict] = {"claimed": "unverified", "grounded": "cited", "audited": "cited", "judged": "proven"}
_ID = r"(?:\d{1,9}:)?[A-Za-z][\w-]{0,99}\.(?:\d+|result)"
_CITED = pattern(rf"\A\s*\[?({_ID})\]?\s*(?:[:：]\s*(.+))?", re.DOTALL)
_IDS = pattern(rf"\A\s*\[?{_ID}\]?(?:[\s,;/+&、，]+\[?{_ID}\]?)+\s*")
_ONE_ID = pattern(_ID)


def criteria_of(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the step's criteria; without any, its content is the criterion."""
    return list(step.get("done_when") or []) or [{"text": f"Done: {step['content']}", "check": None, "judge": False}]


def read_goal_check(
    goal_check: Any, criteria: Sequence[Mapping[str, Any]], level: str, standing: Mapping[int, Any] | None = None
) -> dict[int, dict[str, Any]] | list[str]:
    """Return one claim per criterion number, or what is wrong with the goal_check, naming the missing criteria.

    A criterion may be named by number or text, `met` may be text, and numbers may count from 0 if that is unambiguous.
    Omitted criteria keep their accepted claims (`standing`), and a criterion with a check needs no claim. At level
    `claimed` any text suffices, as in the original protocol. Never raises.
    """
    count = len(criteria)
    if level == "claimed" and (words := _plain_words(goal_check)):
        return {n: {"criterion": n, "met": True, "evidence": [], "note": words} for n in range(1, count + 1)}
    claims: dict[int, dict[str, Any]] = {}
    problems = []
    items = goal_check if isinstance(goal_check, list) else [goal_check] if isinstance(goal_check, Mapping) else []
    numbers = [_number(item, criteria) for item in items]
    if _count_from_zero(numbers, count):
        numbers = [number + 1 if number is not None else None for number in numbers]
    for position, (item, number) in enumerate(zip(items, numbers, strict=True), 1):
        met = {"true": True, "false": False}.get(str(item.get("met", True)).strip().casefold()) if number else None
        if number is None:
            problems.append(f"item {position} needs criterion (its number), met and evidence")
        elif not 1 <= number <= count:
            problems.append(f"item {position} names criterion {number}; there are 1 to {count}")
        elif met is None:
            problems.append(f"criterion {number}: met must be true or false")
        elif number in claims:
            if claims[number]["met"] == met:
                claims[number]["evidence"] = [
                    *_as_list(claims[number].get("evidence")),
                    *_as_list(item.get("evidence")),
                ]
            else:
                problems.append(f"criterion {number} has two items that contradict each other")
        else:
            claims[number] = {**item, "met": met, "criterion": number}
    stands = {n: {"criterion": n, "met": True} for n, criterion in enumerate(criteria, 1) if criterion.get("check")}
    claims = {**stands, **(standing or {}), **claims}
    missing = [str(number) for number in range(1, count + 1) if number not in claims]
    if missing and not items:
        problems.append(f"goal_check must be a list with an item for criterion {', '.join(missing)}")
    elif missing:
        problems.append(f"goal_check leaves out criterion {', '.join(missing)}")
    return problems or claims


def _number(item: Any, criteria: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the number of the item's criterion, by number or text; with one criterion, always 1."""
    if not isinstance(item, Mapping):
        return None
    named = item.get("criterion", 1 if len(criteria) == 1 else None)
    if isinstance(named, bool) or named is None:
        return None
    if isinstance(named, int):
        return named
    if isinstance(named, float) and named.is_integer():
        return int(named)
    said = _fold_text(named) if isinstance(named, str) else ""
    if said.strip("#.").isdecimal():
        return int(said.strip("#."))
    same = [n for n, criterion in enumerate(criteria, 1) if said and said == _fold_text(criterion["text"])]
    return same[0] if len(same) == 1 else None


def _fold_text(text: str) -> str:
    return " ".join(text.split()).strip(" .\"'“”").casefold()


def _count_from_zero(numbers: Sequence[int | None], count: int) -> bool:
    """Return whether the numbers must count from 0: they include 0, and not the last number from 1."""
    known = [number for number in numbers if number is not None]
    return 0 in known and len(set(known)) == len(known) and max(known) < count


def _plain_words(goal_check: Any) -> str:
    items = goal_check if isinstance(goal_check, list) else [goal_check]
    return "; ".join(items).strip() if items and all(isinstance(item, str) for item in items) else ""


def _as_list(cited: Any) -> list[Any]:
    return cited if isinstance(cited, list) else [cited] if cited else []


def read_references(claim: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the references of a claim as `{observation, quote?, before?}`, ids without brackets; {} for an invalid one.

    Also reads `"s1.1"`, `"s1.1: quote"` and several ids in one text.
    """
    for item in _as_list(claim.get("evidence")):
        if isinstance(item, Mapping):
            id, quote = item.get("observation"), item.get("quote")
            if not isinstance(id, str):
                yield {}
            elif not quote and (found := _CITED.fullmatch(id)) and found[2]:
                yield {**item, "observation": found[1], "quote": found[2].strip().strip("\"'“”")}
            elif _IDS.fullmatch(id):
                yield from ({**item, "observation": one} for one in _ONE_ID.findall(id))
            else:
                yield {**item, "observation": id.strip().strip("[]")}
        elif isinstance(item, str) and _IDS.fullmatch(item):
            yield from ({"observation": id} for id in _ONE_ID.findall(item))
        elif isinstance(item, str) and (found := _CITED.fullmatch(item)):
            quote = (found[2] or "").strip().strip("\"'“”")
            yield {"observation": found[1], **({"quote": quote} if quote else {})}
        elif isinstance(item, str) and item.strip():
            yield {"observation": item.strip().strip("[]")}
        else:
            yield {}


def enough(verdict: str, criterion: Mapping[str, Any], level: str) -> bool:
    """Return whether a verdict satisfies the criterion at this level.

    A check decides its criterion at every level; a criterion may ask for a judge.
    """
    own = level != "claimed" and bool(criterion.get("judge"))
    return RANK[verdict] >= RANK["proven" if criterion.get("check") or own else DEMANDS[level]]
