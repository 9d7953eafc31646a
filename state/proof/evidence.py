"""Done means proven: what is cited for a criterion, held against what was observed. Pure; checks are graph's job."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from donewhen.state.proof import wording
from donewhen.state.proof.claims import references
from donewhen.state.proof.journal import outdated_by, whole_was_read
from donewhen.state.proof.quotes import SearchedText, tokens

MOST_EVIDENCE = 50
"""Items of evidence for one criterion; each is looked up in a text of up to a megabyte."""
QUOTE_CHARS = 1000
"""Of a quote, kept in the verdict; the whole was looked up."""
WRITES = ("write", "idempotent")

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Seen:
    """What may be cited: the observations of this step and of those it depends on, oldest first, whole texts.

    Entries marked `outside` are changes made by other steps; they cannot be cited, but they make readings stale.
    """

    entries: Sequence[Entry]
    step: str
    result: str = ""
    writes_text: bool = False
    """The step has no tools: its product is its own text, which may be cited."""
    undeclared: bool = False
    """The plan does not say which tools the step has, and it used none: its text may be its product."""
    must_write: bool = False
    """The step was granted tools that change something, and no call of them succeeded."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Readings the runtime made again, because what they describe changed since: id → new id."""
    recalled: Mapping[str, Sequence[list[int]]] = field(default_factory=dict)
    """What the step read on of observations that were shown in part: id → spans of characters."""
    index: dict[str, int] = field(init=False)
    texts: dict[str, SearchedText] = field(init=False, default_factory=dict)
    """Texts that quotes were looked up in, read once."""

    def __post_init__(self) -> None:
        citable = {e["id"]: number for number, e in enumerate(self.entries) if not e.get("outside")}
        object.__setattr__(self, "index", citable)

    def entry(self, id: str) -> Entry:
        """The observation of this id, which is citable."""
        return self.entries[self.index[id]]

    def text(self, id: str, text: str) -> SearchedText:
        """A text by its id, to look quotes up in."""
        if id not in self.texts:
            self.texts[id] = SearchedText(text)
        return self.texts[id]

    def says(self, id: str, quote: str) -> bool:
        """Whether a quote stands in an observation, or in the arguments of its call if that succeeded."""
        entry = self.entry(id)
        if self.text(id, entry["text"]).says(quote):
            return True
        return bool(entry["ok"]) and entry["source"] != "user" and self.asked_for(id, quote)

    def asked_for(self, id: str, quote: str) -> bool:
        """Whether a quote stands in the arguments of the call, which tools often repeat."""
        sent = json.dumps(self.entry(id)["arguments"], ensure_ascii=False)
        return self.text(f"{id} sent", sent).says(quote)


@dataclass
class Ground:
    """What the evidence cited for one criterion is worth."""

    evidence: list[dict[str, Any]] = field(default_factory=list)
    """What holds, `{observation, quote?}`; a quote that does not stand there is left out."""
    problems: list[str] = field(default_factory=list)
    """What is missing or wrong."""
    imprecise: list[str] = field(default_factory=list)
    """What is wrong with the form alone: the observation is there, its quote does not stand in it."""


def ground(criterion: str, claim: Mapping[str, Any], seen: Seen) -> Ground:
    """What is cited for a criterion, held against what was seen."""
    found, cited = Ground(), list(references(claim))
    if len(cited) > MOST_EVIDENCE:
        return Ground(problems=[f"cites {len(cited)} observations; name the {MOST_EVIDENCE} that prove it at most"])
    for reference in cited:
        _weigh(criterion, reference, seen, found)
    if not cited:
        found.problems.append(f"cites no observation{_known(seen)}")
    if not found.problems:
        found.problems += [
            flaw for flaw in (_in_part(criterion, found, seen), _not_done(criterion, found, seen)) if flaw
        ]
    return found


def _weigh(criterion: str, reference: Mapping[str, Any], seen: Seen, found: Ground) -> None:
    """One item of evidence: it holds, or it adds to what is wrong."""
    if not reference:
        found.imprecise.append("an evidence item is {observation: id, quote?}")
        return
    cited, quote = reference["observation"], reference.get("quote") or ""
    if cited == f"{seen.step}.result":
        own = seen.text(cited, seen.result)
        if not seen.writes_text:
            kind = found.imprecise if seen.undeclared and not wording.about_change(criterion) else found.problems
            kind.append(f"{cited} is this step's own claim; cite what a tool or the user said{_known(seen)}")
        says = isinstance(quote, str) and (not quote or own.says(quote))
    elif problem := _flaw(criterion, cited, quote, seen):
        if made_good := _made_good(cited, seen):
            _weigh(criterion, {"observation": made_good}, seen, found)
        else:
            found.problems.append(problem)
        return
    else:
        cited = seen.again.get(cited, cited)
        own = seen.text(cited, seen.entry(cited)["text"])
        says = isinstance(quote, str) and (not quote or seen.says(cited, quote))
    found.evidence.append({"observation": cited, **({"quote": quote[:QUOTE_CHARS]} if quote and says else {})})
    if not isinstance(quote, str):
        found.imprecise.append(f"the quote of {cited} is not a text")
    elif not says:
        near = own.nearest(quote)
        hint = f"; nearest there is {near!r}" if near else ""
        found.imprecise.append(f"the quote {quote[:60]!r} does not occur in {cited}{hint}")


def _flaw(criterion: str, cited: str, quote: Any, seen: Seen) -> str | None:
    """Why an observation proves nothing of a criterion, whatever it says."""
    if cited not in seen.index:
        return f"there is no observation {cited[:40]!r} in this step or in one it depends on{_known(seen)}"
    entry = seen.entry(cited)
    if entry["source"] == "result" and not seen.writes_text:
        return f"{cited} is a result in the words of a model; cite the observation behind it"
    if not entry["ok"] and not _shows_failure(criterion, entry, quote, seen):
        return f"{cited} failed, so it proves nothing"
    if (later := outdated_by(seen.entries, seen.index[cited])) and wording.about_now(criterion):
        return _outdated(cited, quote, later, seen)
    return None


def _made_good(id: str, seen: Seen) -> str | None:
    """The later observation in which the very call succeeded that had failed in this one."""
    if id not in seen.index or (failed := seen.entry(id))["ok"]:
        return None
    later = (e for e in seen.entries[seen.index[id] + 1 :] if e["id"] in seen.index and e["ok"])
    return next((e["id"] for e in later if all(e[key] == failed[key] for key in ("source", "tool", "arguments"))), None)


def wrote(entry: Entry) -> bool:
    """Whether an observation is of a change that was made."""
    return entry["effect"] in WRITES and not entry.get("outside") and bool(entry["ok"])


def _shows_failure(criterion: str, entry: Entry, quote: Any, seen: Seen) -> bool:
    """Whether a failed call may prove it: its error is quoted, and the criterion says that something fails or is gone.

    A change that failed proves no change.
    """
    made = entry["source"] in ("tool", "check") and entry["effect"] is not None
    if not (made and isinstance(quote, str) and wording.about_failure(criterion)):
        return False
    return not (entry["effect"] in WRITES and wording.about_change(criterion)) and bool(quote)


def _outdated(cited: str, quote: Any, later: Entry, seen: Seen) -> str | None:
    """What a reading from before a change is worth: what the same reading says now."""
    before = f"{cited} was read before {later['id']} ({later['tool']}) changed {', '.join(later['targets'])}"
    if (new := seen.again.get(cited)) is None:
        return f"{before}; look again"
    now, same = seen.entry(new), seen.entry(new)["text"] == seen.entry(cited)["text"]
    if quote and isinstance(quote, str) and not seen.asked_for(cited, quote):
        same = same or seen.text(new, now["text"]).says(quote)
    return None if now["ok"] and same else f"{before}; read again, as {new}, it says something else"


def to_read_again(criteria: Sequence[Mapping[str, Any]], claims: Mapping[int, Any], seen: Seen) -> list[str]:
    """Ids of cited readings of what changed since, for criteria about how it is now."""
    ids = [
        str(reference.get("observation"))
        for number, claim in claims.items()
        if wording.about_now(criteria[number - 1]["text"])
        for reference in references(claim)
    ]
    known = [id for id in dict.fromkeys(ids) if id in seen.index]
    return [id for id in known if seen.entry(id)["ok"] and outdated_by(seen.entries, seen.index[id])]


def _in_part(criterion: str, found: Ground, seen: Seen) -> str | None:
    """Why nothing that is cited can decide a criterion about all of something: only parts of it were seen."""
    if not wording.about_all(criterion) or not found.evidence:
        return None
    parts = []
    for item in found.evidence:
        if item["observation"] not in seen.index or wording.sums_up(item.get("quote", "")):
            return None
        entry = seen.entry(item["observation"])
        if not (wording.says_cut(entry["text"]) and entry["source"] != "user") and whole_was_read(entry, seen.recalled):
            return None
        parts.append(entry["id"])
    if not parts:
        return None
    seen_in_part = ", ".join(parts)
    return f"it speaks of all there is, and of {seen_in_part} only a part was seen; read the rest or let a tool decide"


def _not_done(criterion: str, found: Ground, seen: Seen) -> str | None:
    """Why what is cited does not show a change: no call made one, and nothing quoted says that it was there already."""
    if not seen.must_write or not wording.about_change(criterion):
        return None
    for item in found.evidence:
        if item["observation"] not in seen.index:
            continue
        entry, quote = seen.entry(item["observation"]), item.get("quote", "")
        if wrote(entry):
            return None
        if entry["source"] == "user" and wording.about_people(criterion):
            return None
        if entry["source"] != "user" and quote and _stood_already(criterion, quote):
            return None
    return (
        "no call of this step changed anything, so this was not done; do it, or, if it was so already, quote where a "
        "reading says so"
    )


def _stood_already(criterion: str, quote: str) -> bool:
    """Whether a quote from a reading shows what a change would have brought about."""
    said = tokens(quote)
    if wording.same_change(criterion, quote) or (
        wording.about_failure(criterion) and (wording.denies(said) or "0" in said)
    ):
        return True
    values = {token for token in tokens(criterion) if any(map(str.isdigit, token))}
    return bool(values) and values <= set(said) and not wording.about_deed(criterion)


def _known(seen: Seen) -> str:
    usable = [id for id in seen.index if seen.entry(id)["ok"] and seen.entry(id)["source"] != "result"]
    return f"; there are: {', '.join(usable[-15:])}" if usable else "; nothing was observed yet: call a tool first"


def excerpt(text: str, quote: str, limit: int = 4000) -> str:
    """The part of an observation that a judge reads: around the quote, however it is written, else the beginning."""
    start, end = 0, len(text)
    while quote and end - start > limit:
        middle, more = (start + end) // 2, limit // 4
        halves = ((start, middle + more), (middle - more, end))
        found = next(((a, b) for a, b in halves if SearchedText(text[a:b]).says(quote)), None)
        if found is None:
            break
        start, end = found
    return text[start : start + limit]
