"""Done means proven: what a goal_check claims, held against what was observed. Pure; running checks is graph's job.

complete → grounded → checked → judged. Verdict per criterion: passed | supported | unverified | failed.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from donewhen.state.proof.journal import made_stale
from donewhen.state.proof.quotes import Text

Verdict = Literal["passed", "supported", "unverified", "failed"]
RANK = {"failed": 0, "unverified": 1, "supported": 2, "passed": 3}
MOST_EVIDENCE = 50
"""Items of evidence for one criterion; each is looked up in a text of up to a megabyte."""
QUOTE_CHARS = 1000
"""Of a quote, kept in the verdict; the whole was looked up."""
DEMANDS: dict[str, Verdict] = {"claimed": "unverified", "grounded": "supported", "judged": "passed"}


@dataclass(frozen=True)
class Seen:
    """What may be cited: the observations of this step and of those it depends on, oldest first, whole texts.

    Entries marked `outside` are changes made by other steps; they cannot be cited, but they make evidence stale.
    """

    entries: Sequence[Mapping[str, Any]]
    step: str
    result: str = ""
    writes_text: bool = False
    """The step uses no tools: its product is its own text, which may be cited."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Readings the runtime made again, because something within what they describe changed since: id → new id."""
    index: dict[str, int] = field(init=False)
    texts: dict[str, Text] = field(init=False, default_factory=dict)
    """Texts that quotes were looked up in, read once."""

    def __post_init__(self) -> None:
        citable = {e["id"]: number for number, e in enumerate(self.entries) if not e.get("outside")}
        object.__setattr__(self, "index", citable)

    def says(self, id: str, text: str, quote: str) -> bool:
        """Whether a quote occurs in the text of this id."""
        if id not in self.texts:
            self.texts[id] = Text(text)
        return self.texts[id].says(quote)


def criteria_of(step: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The step's criteria; a step without any is done when its content is."""
    return list(step.get("done_when") or []) or [{"text": f"Done: {step['content']}", "check": None, "judge": False}]


def read_claims(goal_check: Any, count: int, level: str) -> dict[int, dict[str, Any]] | list[str]:
    """One claim per criterion number, or what is wrong with the goal_check, naming the missing criteria.

    At level `claimed` a text that is not blank will do, as in the original protocol. Never raises.
    """
    if level == "claimed" and (words := _plain_words(goal_check)):
        return {
            number: {"criterion": number, "met": True, "evidence": [], "note": words} for number in range(1, count + 1)
        }
    if not isinstance(goal_check, list) or not goal_check:
        return [f"goal_check must be a list with one item for each of the {count} criteria, not {_kind(goal_check)}"]
    claims: dict[int, dict[str, Any]] = {}
    problems = []
    for position, item in enumerate(goal_check, 1):
        number = item.get("criterion") if isinstance(item, Mapping) else None
        if not isinstance(item, Mapping) or not isinstance(number, int) or isinstance(number, bool):
            problems.append(f"item {position} needs criterion (its number), met and evidence")
        elif not 1 <= number <= count:
            problems.append(f"item {position} names criterion {number}; there are 1 to {count}")
        elif number in claims:
            problems.append(f"criterion {number} has two items")
        elif not isinstance(item.get("met"), bool):
            problems.append(f"criterion {number}: met must be true or false")
        else:
            claims[number] = dict(item)
    missing = [str(number) for number in range(1, count + 1) if number not in claims]
    if missing and not problems:
        problems.append(f"goal_check leaves out criterion {', '.join(missing)}")
    elif missing:
        problems.append(f"still without a usable item: criterion {', '.join(missing)}")
    return problems or claims


def _plain_words(goal_check: Any) -> str:
    items = goal_check if isinstance(goal_check, list) else [goal_check]
    return "; ".join(items).strip() if items and all(isinstance(item, str) for item in items) else ""


def _kind(value: Any) -> str:
    return {"list": "an empty list", "NoneType": "nothing", "str": "a text", "dict": "an object"}.get(
        type(value).__name__, type(value).__name__
    )


def ground(claim: Mapping[str, Any], seen: Seen) -> tuple[list[dict[str, Any]], list[str]]:
    """The evidence of a claim that holds, and everything that is wrong with the rest."""
    cited = claim.get("evidence")
    items = cited if isinstance(cited, list) else [cited] if cited else []
    if len(items) > MOST_EVIDENCE:
        return [], [f"cites {len(items)} observations; name the {MOST_EVIDENCE} that prove it at most"]
    good, problems = [], []
    for item in items:
        reference = {"observation": item} if isinstance(item, str) else item
        if not isinstance(reference, Mapping) or not isinstance(reference.get("observation"), str):
            problems.append("an evidence item is {observation: id, quote?}")
        elif problem := _flaw(reference, seen):
            problems.append(problem)
        else:
            cited, quote = _id(reference), reference.get("quote")
            newest = seen.again.get(cited, cited)
            good.append({"observation": newest, **({"quote": quote[:QUOTE_CHARS]} if quote else {})})
    if not items:
        problems.append("cites no observation")
    return good, problems


def _id(reference: Mapping[str, Any]) -> str:
    """The id as written in the journal, whether or not the model copied its brackets."""
    return str(reference["observation"]).strip().strip("[]")


def _flaw(reference: Mapping[str, Any], seen: Seen) -> str | None:
    cited, quote = _id(reference), reference.get("quote")
    if quote is not None and not isinstance(quote, str):
        return f"the quote of {cited} is not a text"
    if cited == f"{seen.step}.result":
        if not seen.writes_text:
            return f"{cited} is this step's own claim; cite what a tool or the user said"
        return None if not quote or seen.says(cited, seen.result, quote) else f"the quote does not occur in {cited}"
    if (position := seen.index.get(cited)) is None:
        return f"there is no observation {cited[:40]!r} in this step or in one it depends on{_known(seen)}"
    entry = seen.entries[position]
    if not entry["ok"]:
        return f"{cited} failed, so it proves nothing"
    if entry["source"] == "result" and not seen.writes_text:
        return f"{cited} is a result in the words of a model; cite the observation behind it"
    if later := made_stale(seen.entries, position):
        return (
            f"{cited} was read before {later['id']} ({later['tool']}) changed {', '.join(later['targets'])}; look again"
        )
    sent = json.dumps(entry["arguments"], ensure_ascii=False)
    if quote and not seen.says(cited, entry["text"], quote) and not Text(sent).says(quote):
        near = seen.texts[cited].nearest(quote)
        return f"the quote {quote[:60]!r} does not occur in {cited}" + (f"; nearest is {near!r}" if near else "")
    if later := changed_within(seen.entries, position):
        return _outdated(cited, entry, quote, later, seen)
    return None


def changed_within(journal: Sequence[Mapping[str, Any]], index: int) -> Mapping[str, Any] | None:
    """The later observation that changed something inside of the folder that entry `index` describes, or None."""
    entry = journal[index]
    for later in journal[index + 1 :] if entry.get("effect") == "read" else ():
        if later.get("effect") in ("write", "idempotent") and any(
            _within(inner, outer) for inner in later.get("targets") or () for outer in entry.get("targets") or ()
        ):
            return later
    return None


def _within(inner: str, outer: str) -> bool:
    if outer == ".":
        return not inner.startswith(("/", "../")) and "://" not in inner
    return inner.startswith(f"{outer}/") or outer.startswith(f"{inner}/")


def _outdated(
    cited: str, entry: Mapping[str, Any], quote: str | None, later: Mapping[str, Any], seen: Seen
) -> str | None:
    """What a reading from before a change within it is worth: what the same reading says now."""
    before = f"{cited} was read before {later['id']} ({later['tool']}) changed {', '.join(later['targets'])}"
    if (new := seen.again.get(cited)) is None:
        return f"{before}; look again"
    now = seen.entries[seen.index[new]]
    same = seen.says(new, now["text"], quote) if quote else now["text"] == entry["text"]
    return None if now["ok"] and same else f"{before}; read again, as {new}, it says something else"


def overtaken(claims: Mapping[int, Mapping[str, Any]], seen: Seen) -> list[str]:
    """Ids of cited readings of a folder in which something changed since: to be read again before they count."""
    found = []
    for claim in claims.values():
        cited = claim.get("evidence")
        for item in cited if isinstance(cited, list) else [cited]:
            reference = {"observation": item} if isinstance(item, str) else item
            if isinstance(reference, Mapping) and isinstance(reference.get("observation"), str):
                found.append(_id(reference))
    known = [id for id in dict.fromkeys(found) if id in seen.index]
    return [id for id in known if seen.entries[seen.index[id]]["ok"] and changed_within(seen.entries, seen.index[id])]


def _known(seen: Seen) -> str:
    usable = [id for id, n in seen.index.items() if seen.entries[n]["ok"] and seen.entries[n]["source"] != "result"]
    return f"; there are: {', '.join(usable[-15:])}" if usable else "; nothing was observed yet: call a tool first"


def excerpt(text: str, quote: str, limit: int = 4000) -> str:
    """The part of an observation that a judge reads: around the quote, however it is written, else the beginning."""
    start, end = 0, len(text)
    while quote and end - start > limit:
        middle, more = (start + end) // 2, limit // 4
        halves = ((start, middle + more), (middle - more, end))
        found = next(((a, b) for a, b in halves if Text(text[a:b]).says(quote)), None)
        if found is None:
            break
        start, end = found
    return text[start : start + limit]


def enough(verdict: str, level: str) -> bool:
    """Whether a verdict is as good as the level demands."""
    return RANK[verdict] >= RANK[DEMANDS[level]]


def level_of(criterion: Mapping[str, Any], level: str) -> str:
    """What a criterion demands: one with a check is decided by it at every level; one may ask for its own judge."""
    if criterion.get("check"):
        return "judged"
    return "judged" if criterion.get("judge") and level != "claimed" else level
