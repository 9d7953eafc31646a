"""What a goal_check claims, and what each verdict on a claim is worth.

Verdict per criterion: `passed` (a check or a judge said so) | `supported` (grounded in what was observed) |
`unverified` | `failed`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

Verdict = Literal["passed", "supported", "unverified", "failed"]
RANK = {"failed": 0, "unverified": 1, "supported": 2, "passed": 3}
DEMANDS: dict[str, Verdict] = {"claimed": "unverified", "grounded": "supported", "judged": "passed"}


def criteria_of(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The step's criteria; a step without any is done when its content is."""
    return list(step.get("done_when") or []) or [{"text": f"Done: {step['content']}", "check": None, "judge": False}]


def read_claims(
    goal_check: Any, criteria: Sequence[Mapping[str, Any]], level: str, standing: Mapping[int, Any] | None = None
) -> dict[int, dict[str, Any]] | list[str]:
    """One claim per criterion number, or what is wrong with the goal_check, naming the missing criteria.

    What is left out stands as it was accepted before (`standing`), and a criterion with a check needs no claim. At
    level `claimed` a text that is not blank will do, as in the original protocol. Never raises.
    """
    count = len(criteria)
    if level == "claimed" and (words := _plain_words(goal_check)):
        return {n: {"criterion": n, "met": True, "evidence": [], "note": words} for n in range(1, count + 1)}
    claims: dict[int, dict[str, Any]] = {}
    problems = []
    items = goal_check if isinstance(goal_check, list) else [goal_check] if isinstance(goal_check, Mapping) else []
    for position, item in enumerate(items, 1):
        number = item.get("criterion", 1 if count == 1 else None) if isinstance(item, Mapping) else None
        if not isinstance(number, int) or isinstance(number, bool):
            problems.append(f"item {position} needs criterion (its number), met and evidence")
        elif not 1 <= number <= count:
            problems.append(f"item {position} names criterion {number}; there are 1 to {count}")
        elif number in claims:
            problems.append(f"criterion {number} has two items")
        elif not isinstance(item.get("met", True), bool):
            problems.append(f"criterion {number}: met must be true or false")
        else:
            claims[number] = {"met": True, **item}
    stands = {n: {"criterion": n, "met": True} for n, criterion in enumerate(criteria, 1) if criterion.get("check")}
    claims = {**stands, **(standing or {}), **claims}
    missing = [str(number) for number in range(1, count + 1) if number not in claims]
    if missing and not items:
        problems.append(f"goal_check must be a list with an item for criterion {', '.join(missing)}")
    elif missing:
        problems.append(f"goal_check leaves out criterion {', '.join(missing)}")
    return problems or claims


def _plain_words(goal_check: Any) -> str:
    items = goal_check if isinstance(goal_check, list) else [goal_check]
    return "; ".join(items).strip() if items and all(isinstance(item, str) for item in items) else ""


def references(claim: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a claim cites, `{observation, quote?}`, in every form in which models write it; ids without brackets."""
    cited = claim.get("evidence")
    for item in cited if isinstance(cited, list) else [cited] if cited else []:
        reference = {"observation": item} if isinstance(item, str) else item
        if isinstance(reference, Mapping) and isinstance(reference.get("observation"), str):
            yield {**reference, "observation": reference["observation"].strip().strip("[]")}
        else:
            yield {}


def enough(verdict: str, level: str) -> bool:
    """Whether a verdict is as good as the level demands."""
    return RANK[verdict] >= RANK[DEMANDS[level]]


def level_of(criterion: Mapping[str, Any], level: str) -> str:
    """What a criterion demands: one with a check is decided by it at every level; one may ask for its own judge."""
    if criterion.get("check"):
        return "judged"
    return "judged" if criterion.get("judge") and level != "claimed" else level
