"""Check cited evidence against observations, by structure alone. Pure; `graph` runs checks.

A cited observation must be within reach of the step, must not have failed (unless its error is quoted), must be up
to date, and must contain the quote. Code cannot know whether it shows what the criterion means; that is the audit's
part.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.proof.goal_check import read_references
from donewhen.state.proof.journal import find_later_change, was_read_whole
from donewhen.state.proof.quotes import SearchedText

MOST_EVIDENCE = 50
"""The most items of evidence for one criterion; each may be searched in a megabyte of text."""
QUOTE_CHARS = 1000
"""The most characters of a quote in a verdict; the full quote was checked."""
WRITES = ("write", "idempotent")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class EvidenceScope:
    """The observations that a step may cite: its own, those of planning and of its dependencies, oldest first.

    Entries marked `outside` are changes by other steps; they cannot be cited, but they make reads stale.
    """

    entries: Sequence[Entry]
    """The observations with full texts."""
    step: str
    result: str = ""
    writes_text: bool = False
    """True if the step has no tools or used none that it was not granted: its product is its text, which
    may be cited.
    """
    unchanged: bool = False
    """True if the step was granted tools with effects, and none of their calls succeeded."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Reads that the runtime repeated because their subject changed: id → new id."""
    recalled: Mapping[str, Sequence[list[int]]] = field(default_factory=dict)
    """Ranges of long observations that the step recalled, by id."""
    index: dict[str, int] = field(init=False)
    texts: dict[str, SearchedText] = field(init=False, default_factory=dict)
    """Searched texts, read once."""

    def __post_init__(self) -> None:
        citable = {e["id"]: number for number, e in enumerate(self.entries) if not e.get("outside")}
        object.__setattr__(self, "index", citable)

    @property
    def size(self) -> int:
        """The number of characters to search."""
        return sum(len(entry["text"]) for entry in self.entries) + len(self.result)

    def entry(self, id: str) -> Entry:
        """Return the citable observation with this id."""
        return self.entries[self.index[id]]

    def text(self, id: str, text: str) -> SearchedText:
        """Return the searchable text of an observation."""
        if id not in self.texts:
            self.texts[id] = SearchedText(text)
        return self.texts[id]

    def says(self, id: str, quote: str) -> bool:
        """Return whether an observation, or the arguments of its successful call, contain a quote."""
        entry = self.entry(id)
        if self.text(id, entry["text"]).says(quote):
            return True
        return bool(entry["ok"]) and entry["source"] != "user" and self.sent(id, quote)

    def sent(self, id: str, quote: str) -> bool:
        """Return whether the call's arguments contain a quote; tools often repeat them."""
        sent = json.dumps(self.entry(id)["arguments"], ensure_ascii=False)
        return self.text(f"{id} sent", sent).says(quote)


@dataclass
class Grounding:
    """The assessment of the evidence for one criterion."""

    evidence: list[dict[str, Any]] = field(default_factory=list)
    """Valid evidence, `{observation, quote?, before?, part?}`; quotes that were not found are removed."""
    problems: list[str] = field(default_factory=list)
    """Missing or invalid evidence, in words."""
    imprecise: list[str] = field(default_factory=list)
    """Flaws of form only: the observation exists and does not contain the quote."""


def ground_claim(claim: Mapping[str, Any], scope: EvidenceScope) -> Grounding:
    """Check the evidence for a criterion against the observations."""
    found, cited = Grounding(), list(read_references(claim))
    if len(cited) > MOST_EVIDENCE:
        return Grounding(problems=[f"cites {len(cited)} observations; name the {MOST_EVIDENCE} that prove it at most"])
    for reference in cited:
        _weigh(reference, scope, found)
    if not cited:
        found.problems.append(f"cites no observation{_known_ids(scope)}")
    return found


def _weigh(reference: Mapping[str, Any], scope: EvidenceScope, found: Grounding) -> None:
    """Accept one item of evidence, or add its problem."""
    if not reference:
        found.imprecise.append("an evidence item is {observation: id, quote?}")
        return
    cited, quote, before = reference["observation"], reference.get("quote") or "", reference.get("before") is True
    if cited == f"{scope.step}.result":
        own = scope.text(cited, scope.result)
        if not scope.writes_text:
            found.problems.append(
                f"{cited} is this step's own claim; cite what a tool or the user said{_known_ids(scope)}"
            )
        says = isinstance(quote, str) and (not quote or own.says(quote))
    elif problem := _flaw(cited, quote, before, scope):
        if succeeded := _succeeded_later(cited, scope):
            _weigh({"observation": succeeded}, scope, found)
        else:
            found.problems.append(problem)
        return
    else:
        cited = cited if before else scope.again.get(cited, cited)
        own = scope.text(cited, scope.entry(cited)["text"])
        says = isinstance(quote, str) and (not quote or scope.says(cited, quote))
        if not says and not scope.entry(cited)["ok"]:
            found.problems.append(_failure(cited))
            return
    item: dict[str, Any] = {"observation": cited, **({"quote": quote[:QUOTE_CHARS]} if quote and says else {})}
    stale = before and cited in scope.index and find_later_change(scope.entries, scope.index[cited])
    part = cited in scope.index and not was_read_whole(scope.entry(cited), scope.recalled)
    found.evidence.append({**item, **({"before": True} if stale else {}), **({"part": True} if part else {})})
    if not isinstance(quote, str):
        found.imprecise.append(f"the quote of {cited} is not a text")
    elif not says:
        near = own.nearest(quote)
        hint = f"; nearest there is {near!r}" if near else ""
        found.imprecise.append(f"the quote {quote[:60]!r} does not occur in {cited}{hint}")


def _flaw(cited: str, quote: Any, before: bool, scope: EvidenceScope) -> str | None:
    """Return why an observation proves nothing, whatever its text."""
    if cited not in scope.index:
        return f"there is no observation {cited[:40]!r} in this step or in one it depends on{_known_ids(scope)}"
    entry = scope.entry(cited)
    if entry["source"] == "result" and not scope.writes_text:
        return f"{cited} is a result in the words of a model; cite the observation behind it"
    if not entry["ok"] and not (quote and entry["effect"] is not None and entry["source"] in ("tool", "check")):
        return _failure(cited)
    if not before and (later := find_later_change(scope.entries, scope.index[cited])):
        return _find_outdated(cited, quote, later, scope)
    return None


def _failure(cited: str) -> str:
    return f"{cited} failed, so it proves nothing; where its error is the answer, quote the error"


def _succeeded_later(id: str, scope: EvidenceScope) -> str | None:
    """Return the later observation of the same call that succeeded after this one failed."""
    if id not in scope.index or (failed := scope.entry(id))["ok"]:
        return None
    later = (e for e in scope.entries[scope.index[id] + 1 :] if e["id"] in scope.index and e["ok"])
    return next((e["id"] for e in later if all(e[key] == failed[key] for key in ("source", "tool", "arguments"))), None)


def is_change(entry: Entry) -> bool:
    """Return whether an observation is a successful write."""
    return entry["effect"] in WRITES and not entry.get("outside") and bool(entry["ok"])


def _find_outdated(cited: str, quote: Any, later: Entry, scope: EvidenceScope) -> str | None:
    """Return what is wrong with a read from before a change; None if a later read has the same result."""
    was = f"{cited} was read before {later['id']} ({later['tool']}) changed {', '.join(later['targets'])}"
    if (new := scope.again.get(cited)) is None:
        return f'{was}; look again, or, if it is meant as it was then, add "before": true to the evidence'
    now, same = scope.entry(new), scope.entry(new)["text"] == scope.entry(cited)["text"]
    if quote and isinstance(quote, str) and not scope.sent(cited, quote):
        same = same or scope.text(new, now["text"]).says(quote)
    if now["ok"] and same:
        return None
    return f'{was}; read again, as {new}, it says something else; "before": true says that it is meant as it was'


def stale_reads(claims: Mapping[int, Any], scope: EvidenceScope) -> list[str]:
    """Return the ids of cited reads whose subject changed since, except those cited as `before`."""
    ids = [
        str(reference.get("observation"))
        for claim in claims.values()
        for reference in read_references(claim)
        if reference.get("before") is not True
    ]
    known = [id for id in dict.fromkeys(ids) if id in scope.index]
    return [id for id in known if scope.entry(id)["ok"] and find_later_change(scope.entries, scope.index[id])]


def _known_ids(scope: EvidenceScope) -> str:
    usable = [id for id in scope.index if scope.entry(id)["ok"] and scope.entry(id)["source"] != "result"]
    more = f" (and {len(usable) - 15} before)" if len(usable) > 15 else ""
    return f"; there are: {', '.join(usable[-15:])}{more}" if usable else "; nothing was observed yet: look first"


def passage(text: str, quote: str, around: int) -> str:
    """Return the passage of a text with a quote, in any spelling, and this many characters around it.

    Without a quote, or if it is not found, return the beginning. Cuts are marked.
    """
    start, end = 0, len(text)
    least = len(quote) + 2 * around
    while quote and end - start > 2 * least:
        middle, more = (start + end) // 2, least
        halves = ((start, min(middle + more, end)), (max(middle - more, start), end))
        found = next(((a, b) for a, b in halves if b - a < end - start and SearchedText(text[a:b]).says(quote)), None)
        if found is None:
            break
        start, end = found
    end = min(end, start + 2 * least) if not quote else end
    head = f"[… {start:,} characters before] " if start else ""
    tail = f" [… {len(text) - end:,} characters after]" if end < len(text) else ""
    return f"{head}{text[start:end]}{tail}"
