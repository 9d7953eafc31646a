"""Read the claims of a goal_check, in every form that models write, and compare their evidence with the observations.

Verdicts per criterion: `proven` (decided by a check or a judge), `cited` (supported by its evidence), `unverified`,
`failed`. Evidence supports a criterion if its observation is within the step's reach, did not fail (or its error is
quoted), is not stale, and contains the quote. Code cannot know whether it shows what the criterion means; the audit
decides that. Pure: `graph` makes the checks.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Literal

from donewhen.state.language.texts import say
from donewhen.state.language.words import fold_words
from donewhen.state.pattern import pattern
from donewhen.state.proof.journal import find_later_change, is_failure, was_read_whole, words_of_entry
from donewhen.state.proof.quotes import SearchedText
from donewhen.state.records import JournalEntry
from donewhen.state.values import as_whole, split_kept

Verdict = Literal["proven", "cited", "unverified", "failed"]
RANK = {"failed": 0, "unverified": 1, "cited": 2, "proven": 3}
DEMANDS: dict[str, Verdict] = {"claimed": "unverified", "grounded": "cited", "audited": "cited", "judged": "proven"}
_ID = r"(?:\d{1,9}:)?[A-Za-z][\w-]{0,99}\.(?:\d+|result)"
_CITED = pattern(rf"\A\s*\[?({_ID})\]?\s*(?:[:：]\s*(.+)|[-–—]?\s*([\"“'„«].+[\"”'“»])\s*)?", re.DOTALL)
_IDS = pattern(rf"\A\s*\[?{_ID}\]?(?:[\s,;/+&、，]+\[?{_ID}\]?)+\s*")
_ONE_ID = pattern(_ID)
_NUMBERED = pattern(r"(?:[^\W\d_]{1,20}[ _]?)?[#(]?(\d{1,4})[.):]?")
"""A number as people write it: `2`, `#2`, `2.`, `c2`, `criterion 2`."""
_NUMBER_FIRST = pattern(r"\A\D{0,12}(\d{1,4})[.):]?\s+(.+)", re.DOTALL)
_MET = {"true": True, "yes": True, "met": True, "false": False, "no": False}
_OF_ITEM = ("criterion", "met", "evidence", "note")
MOST_EVIDENCE = 50
"""The most items of evidence for one criterion; each may be searched in a megabyte of text."""
QUOTE_CHARS = 1000
"""The most characters of a quote in a verdict; the full quote was checked."""


def read_goal_check(
    goal_check: Any,
    criteria: Sequence[Mapping[str, Any]],
    level: str,
    standing: Mapping[int, Any] | None = None,
    language: str = "en",
) -> dict[int, dict[str, Any]] | list[str]:
    """Return one claim per criterion number, or what is wrong with the goal_check, naming the missing criteria.

    A criterion may be named by number or text, `met` may be text, and numbers count from 0 if one of them is 0.
    The claims may be a list, an object by criterion, or texts that name the observations of each criterion in turn.
    Fields may have other names if only one thing can be meant by them. A claim that does not say `met` says so by what
    it cites; if it has words besides, it is marked `unsaid`. Omitted criteria keep their accepted claims
    (`standing`), and a criterion with a check needs no claim. At level `claimed` any text suffices, as in the original
    protocol. Never raises.
    """
    count = len(criteria)
    if level == "claimed" and (words := _plain_words(goal_check)):
        return {n: {"criterion": n, "met": True, "evidence": [], "note": words} for n in range(1, count + 1)}
    claims: dict[int, dict[str, Any]] = {}
    problems, tell = list[str](), partial(say, language, "proof")
    items = _items(goal_check, criteria)
    for position, (item, number) in enumerate(zip(items, _numbers(items, criteria), strict=True), 1):
        met = _MET.get(str(item.get("met", True)).strip().casefold()) if number else None
        if number is None:
            problems.append(tell("item_lacks", item=position))
        elif not 1 <= number <= count:
            problems.append(tell("item_beyond", item=position, number=number, count=count))
        elif met is None:
            problems.append(tell("met_form", number=number))
        elif number not in claims:
            unsaid = {"unsaid": True} if "met" not in item and _has_own_words(item) else {}
            claims[number] = {**item, "met": met, "criterion": number, **unsaid}
        elif claims[number]["met"] != met:
            problems.append(tell("twice", number=number))
        else:
            claims[number]["evidence"] = [*_as_list(claims[number].get("evidence")), *_as_list(item.get("evidence"))]
    stands = {n: {"criterion": n, "met": True} for n, criterion in enumerate(criteria, 1) if criterion.get("check")}
    claims = {**stands, **(standing or {}), **claims}
    missing = [str(number) for number in range(1, count + 1) if number not in claims]
    if missing and not items:
        problems.append(tell("no_list", numbers=", ".join(missing)))
    elif missing:
        problems.append(tell("left_out", numbers=", ".join(missing)))
    return problems or claims


def _items(goal_check: Any, criteria: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the claims as a list of objects, in whatever form they were given."""
    words = _plain_words(goal_check)
    if len(criteria) == 1 and _ONE_ID.search(words):
        return [_claim_in_words(1, _as_list(goal_check))]
    if words and isinstance(goal_check, list) and len(goal_check) == len(criteria):
        return [_claim_in_words(n, [text]) for n, text in enumerate(goal_check, 1)]
    items = list[Any]()
    for part in goal_check if isinstance(goal_check, list) else [goal_check] if isinstance(goal_check, Mapping) else ():
        if not isinstance(part, Mapping) or {*_OF_ITEM} & {*part} or not part:
            items.append(part)
        elif len(part) == 1 and _is_list_of_items(inside := next(iter(part.values()))):
            items += inside
        elif "evidence" in _with_known_fields(part, criteria) and not any(_names(key, criteria) for key in part):
            items.append(part)
        else:
            items += [_item_of(key, value) for key, value in part.items()]
    read = [_with_known_fields(item, criteria) for item in items]
    in_turn = len(read) == len(criteria) and all(isinstance(each, Mapping) and "criterion" not in each for each in read)
    return [{**item, "criterion": n} for n, item in enumerate(read, 1)] if in_turn else read


def _claim_in_words(number: int, texts: Sequence[str]) -> dict[str, Any]:
    """Return the claim of texts: those that name observations are its evidence."""
    rest = [text for text in texts if not _ONE_ID.search(text)]
    return {"criterion": number, "evidence": [each for each in texts if each not in rest], "note": " ".join(rest)}


def _has_own_words(claim: Mapping[str, Any]) -> bool:
    """Return whether a claim says more than ids and quotes, so that only `met` could say whether it is met."""
    items = [each for item in _as_list(claim.get("evidence")) for each in _unfold(item)]
    texts = [each.get("observation") if isinstance(each, Mapping) else each for each in items]
    named = [text.strip(" .,;()\n") for text in texts if isinstance(text, str) and _ONE_ID.search(text)]
    return bool(claim.get("note")) or not all(_CITED.fullmatch(text) or _IDS.fullmatch(text) for text in named)


def _names(name: Any, criteria: Sequence[Mapping[str, Any]]) -> bool:
    return _number({"criterion": name}, criteria) is not None


def _is_list_of_items(value: Any) -> bool:
    items = value if isinstance(value, list) else []
    return bool(items) and all(isinstance(each, Mapping) and "observation" not in each for each in items)


def _with_known_fields(item: Any, criteria: Sequence[Mapping[str, Any]]) -> Any:
    """Return an item with fields of other names under their own, as far as only one of them can be meant.

    A field with a criterion's number or text is the criterion; one that names observations is the evidence. A truth
    value says whether the criterion is met. If several fields could say that, the item needs `met`.
    """
    if not isinstance(item, Mapping):
        return item
    read, others = {**item}, {key: value for key, value in item.items() if key not in _OF_ITEM}
    if isinstance(named := read.get("criterion"), str) and _ONE_ID.fullmatch(named):
        read["evidence"] = [*_as_list(read.get("evidence")), read.pop("criterion")]
    if "evidence" not in read:
        refers = {key: value for key, value in others.items() if _ONE_ID.search(_as_json(value))}
        own = {
            key: others[key] for key in ("observation", "observations", "quote", "quotes", "before") if key in others
        }
        if refers:
            parts = [own] if {"observation", "observations"} & {*own} else [*refers.values()]
            read["evidence"] = [each for value in parts for each in _as_list(value)]
            others = {key: value for key, value in others.items() if key not in refers and key not in own}
    if "criterion" not in read:
        names = [key for key, value in others.items() if _names(value, criteria)]
        if len(names) == 1:
            read["criterion"] = others.pop(names[0])
    if "met" not in read and others:
        values = {_MET.get(str(value).strip().casefold()) for value in others.values() if isinstance(value, bool | str)}
        read |= {"met": values.pop()} if len(values) == 1 else {"met": ""} if values else {}
    return read


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _item_of(key: Any, value: Any) -> dict[str, Any]:
    """Return the claim of an object by criterion: its value is the claim, or only its evidence."""
    if isinstance(value, Mapping) and {"met", "evidence"} & {*value}:
        return {"criterion": key, **value}
    return (
        {"criterion": key, "met": value, "evidence": []}
        if isinstance(value, bool)
        else {"criterion": key, "evidence": value}
    )


def _numbers(items: Sequence[Any], criteria: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """Return the number of each item's criterion, from 1; None if it names none.

    Numbers count from 0 only if one of them is 0. That a criterion is left out otherwise says nothing: a model forgets.
    """
    numbers = [_number(item, criteria) for item in items]
    from_zero = [_number(item, criteria, first=0) for item in items]
    highest = max((number for number in from_zero if number is not None), default=0)
    return from_zero if 0 in numbers and highest <= len(criteria) else numbers


def _number(item: Any, criteria: Sequence[Mapping[str, Any]], first: int = 1) -> int | None:
    """Return the number of the item's criterion, from 1, by text or by a number that counts from `first`."""
    if not isinstance(item, Mapping):
        return None
    named = item.get("criterion", first if len(criteria) == 1 else None)
    if isinstance(named, bool) or named is None:
        return None
    if isinstance(named, int | float):
        return None if (number := as_whole(named)) is None else number + 1 - first
    words = fold_words(named) if isinstance(named, str) else ""
    if match := _NUMBERED.fullmatch(words):
        return int(match[1]) + 1 - first
    numbered = _NUMBER_FIRST.fullmatch(words)
    forms = {words} | ({numbered[2]} if numbered else set())
    same = [n for n, criterion in enumerate(criteria, 1) if words and fold_words(criterion["text"]) in forms]
    return same[0] if len(same) == 1 else None


def _plain_words(goal_check: Any) -> str:
    items = goal_check if isinstance(goal_check, list) else [goal_check]
    return "; ".join(items).strip() if items and all(isinstance(item, str) for item in items) else ""


def _as_list(cited: Any) -> list[Any]:
    return cited if isinstance(cited, list) else [cited] if cited else []


def read_references(claim: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the references of a claim as `{observation, quote?, before?}`, ids without brackets; {} for an invalid one.

    Also reads `"s1.1"`, `"s1.1: quote"`, pairs of both, texts that name observations, lists of ids or quotes, objects
    by number or by id, and the id under any name.
    """
    for item in (each for each_item in _as_list(claim.get("evidence")) for each in _unfold(each_item)):
        if isinstance(item, Mapping):
            for reference in _references_in(item):
                id, quote = reference.get("observation"), reference.get("quote")
                if not isinstance(id, str):
                    yield {}
                elif not quote and (match := _CITED.fullmatch(id)) and (match[2] or match[3]):
                    yield {**reference, "observation": match[1], "quote": _bare_quote(match)}
                else:
                    yield from ({**reference, "observation": one} for one in _ids_in(id))
        elif isinstance(item, str) and (match := _CITED.fullmatch(item)) and not _IDS.fullmatch(item):
            quote = _bare_quote(match)
            yield {"observation": match[1], **({"quote": quote} if quote else {})}
        elif isinstance(item, str) and item.strip():
            yield from ({"observation": id} for id in _ids_in(item))
        else:
            yield {}


def _bare_quote(match: re.Match[str]) -> str:
    return (match[2] or match[3] or "").strip().strip("\"'“”„«»")


def _ids_in(text: str) -> list[str]:
    """Return the ids that a text names, whatever else it says; else the text."""
    return _ONE_ID.findall(text) or [text.strip().strip("[]")]


def _references_in(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a reference for each id and quote of an item of evidence, with fields `observation` and `quote`."""
    read = {**item}
    others = {key: value for key, value in item.items() if key not in ("observation", "quote", "before", "note")}
    if "observation" not in read:
        ids = [key for key, value in others.items() if _ONE_ID.search(_as_json(value)) and _is_ids(value)]
        if len(ids) == 1:
            read["observation"] = others.pop(ids[0])
    if not read.get("quote"):
        texts = [key for key, value in others.items() if value and (isinstance(value, str) or _is_texts(value))]
        if len(texts) == 1:
            read["quote"] = others[texts[0]]
    ids, quotes = _as_list(read.get("observation")) or [None], _as_list(read.get("quote")) or [None]
    quotes = [str(each) if isinstance(each, int | float) and not isinstance(each, bool) else each for each in quotes]
    if not _is_texts(quotes):
        quotes = [read.get("quote")]
    return [{**read, "observation": id, **({"quote": quote} if quote else {})} for id in ids for quote in quotes]


def _is_ids(value: Any) -> bool:
    return all(isinstance(each, str) and len(_ONE_ID.findall(each)) == 1 for each in _as_list(value))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)


def _unfold(item: Any) -> list[Any]:
    """Return the items of evidence in an object by number or by id, or in a pair; any other item is one."""
    if _is_texts(item):
        first, *rest = item
        paired = rest and _ONE_ID.fullmatch(first.strip("[]")) and not any(map(_ONE_ID.search, rest))
        return [{"observation": first.strip("[]"), "quote": rest}] if paired else [item]
    if not isinstance(item, Mapping) or not item or "observation" in item:
        return [item]
    keyed = all(str(key).isdecimal() or _ONE_ID.fullmatch(str(key)) for key in item)
    return [_reference_of(key, value) for key, value in item.items()] if keyed else [item]


def _reference_of(key: Any, value: Any) -> Any:
    """Return an item of evidence that stands under a number, or under the id of its observation with the quote."""
    if not (isinstance(key, str) and _ONE_ID.fullmatch(key)):
        return value
    quote = value.get("quote") if isinstance(value, Mapping) else value
    return {"observation": key, **({"quote": quote} if isinstance(quote, str) and quote.strip() else {})}


def satisfies(verdict: str, criterion: Mapping[str, Any], level: str) -> bool:
    """Return whether a verdict satisfies the criterion at this level.

    A check decides its criterion at every level; a criterion may ask for a judge.
    """
    own = level != "claimed" and bool(criterion.get("judge"))
    return RANK[verdict] >= RANK["proven" if criterion.get("check") or own else DEMANDS[level]]


# --- what is cited


@dataclass(frozen=True)
class EvidenceScope:
    """The observations that a step may cite: its own, those of planning and of its dependencies, oldest first.

    Entries marked `outside` are changes by other steps; they cannot be cited, but they make reads stale.
    """

    entries: Sequence[JournalEntry]
    """The observations with full texts."""
    step: str
    result: str = ""
    writes_text: bool = False
    """True if the step's own text may be cited: it had no tools, or used none and its plan named none."""
    unchanged: bool = False
    """True if the step was granted tools with effects, and none of their calls succeeded."""
    again: Mapping[str, str] = field(default_factory=dict)
    """Reads that the runtime repeated because their subject changed: id → new id."""
    recalled: Mapping[str, Sequence[list[int]]] = field(default_factory=dict)
    """Ranges of long observations that the step recalled, by id."""
    language: str = "en"
    """The language in which problems are said, to people and to the model."""
    texts: dict[str, SearchedText] = field(init=False, default_factory=dict)
    """Searched texts, read once."""

    def say(self, key: str, **values: Any) -> str:
        """Return a text of the section `proof`."""
        return say(self.language, "proof", key, **values)

    @cached_property
    def index(self) -> dict[str, int]:
        """The places of the citable observations among the entries, by id."""
        return {entry["id"]: place for place, entry in enumerate(self.entries) if not entry.get("outside")}

    @cached_property
    def size(self) -> int:
        """The number of characters to search."""
        return sum(len(entry["text"]) for entry in self.entries) + len(self.result)

    def entry(self, id: str) -> JournalEntry:
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
        if self.text(id, words_of_entry(entry)).says(quote):
            return True
        return not is_failure(entry) and entry["source"] != "user" and self.is_in_arguments(id, quote)

    def is_in_arguments(self, id: str, quote: str) -> bool:
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
    grounding, cited = Grounding(), list(read_references(claim))
    if len(cited) > MOST_EVIDENCE:
        return Grounding(problems=[scope.say("too_many", count=len(cited), most=MOST_EVIDENCE)])
    admitted = {reference["observation"] for reference in cited if reference and _admits_failure(reference, scope)}
    for reference in cited:
        _weigh(reference, scope, grounding, admitted)
    if not cited:
        grounding.problems.append(scope.say("cites_none", known=_known_ids(scope)))
    if claim.get("unsaid"):
        grounding.imprecise.append(scope.say("unsaid"))
    return grounding


def _admits_failure(reference: Mapping[str, Any], scope: EvidenceScope) -> bool:
    """Return whether evidence quotes the words by which its observation says that it is a failure."""
    cited, quote = reference["observation"], reference.get("quote")
    failed = scope.entry(cited).get("failed") if cited in scope.index else None
    return isinstance(failed, str) and isinstance(quote, str) and SearchedText(quote).says(failed)


def _weigh(reference: Mapping[str, Any], scope: EvidenceScope, grounding: Grounding, admitted: Collection[str]) -> None:
    """Accept one item of evidence, or add its problem; the claim says of those `admitted` that they are failures."""
    if not reference:
        grounding.imprecise.append(scope.say("item_form"))
        return
    cited, quote, before = reference["observation"], reference.get("quote") or "", reference.get("before") is True
    if isinstance(quote, str) and cited in scope.index:
        by = re.escape(scope.entry(cited)["tool"] or scope.entry(cited)["source"])
        heading = rf"\A\[{re.escape(cited)}\]\s*(?:{by} ok|the user said)?[:\s]*"
        quote = re.sub(heading, "", quote) or quote  # that of the message, which quotes nothing by itself
    if cited == f"{scope.step}.result":
        own = scope.text(cited, scope.result)
        if not scope.writes_text:
            grounding.problems.append(scope.say("own_claim", id=cited, known=_known_ids(scope)))
        says = isinstance(quote, str) and (not quote or own.says(quote))
    else:
        if problem := _why_unusable(cited, quote, before, scope, admitted):
            succeeded = _succeeded_later(cited, scope)
            if not succeeded or _why_unusable(succeeded, quote, False, scope, admitted):
                grounding.problems.append(problem)
                return
            cited = _made_good(cited, succeeded, quote, before, scope)
        elif not before:
            cited = scope.again.get(cited, cited)
        own = scope.text(cited, words_of_entry(scope.entry(cited)))
        says = isinstance(quote, str) and (not quote or scope.says(cited, quote))
        if not says and not scope.entry(cited)["ok"]:
            grounding.problems.append(scope.say("error", id=cited))
            return
    item: dict[str, Any] = {"observation": cited, **({"quote": quote[:QUOTE_CHARS]} if quote and says else {})}
    is_old = before or (cited in scope.index and "reads" in scope.entry(cited))
    stale = is_old and cited in scope.index and find_later_change(scope.entries, scope.index[cited])
    part = cited in scope.index and not was_read_whole(scope.entry(cited), scope.recalled)
    grounding.evidence.append({**item, **({"before": True} if stale else {}), **({"part": True} if part else {})})
    if not isinstance(quote, str):
        grounding.imprecise.append(scope.say("quote_no_text", id=cited))
    elif not says:
        near = own.nearest(quote)
        problem = scope.say(
            "quote_near" if near else "quote_missing", quote=repr(quote[:60]), id=cited, near=repr(near)
        )
        kept, rest = split_kept(scope.entry(cited)["text"] if cited in scope.index else "")
        problem += f"; {scope.say('cut', read=f'{len(kept):,}', said=rest)}" if rest else ""
        grounding.imprecise.append(problem)


def _why_unusable(cited: str, quote: Any, before: bool, scope: EvidenceScope, admitted: Collection[str]) -> str | None:
    """Return why an observation proves nothing, whatever its text."""
    if cited not in scope.index:
        return scope.say("no_observation", id=repr(cited[:40]), known=_known_ids(scope))
    entry = scope.entry(cited)
    if entry["source"] == "result" and not scope.writes_text:
        return scope.say("model_result", id=cited)
    if not entry["ok"] and not (quote and entry["effect"] is not None and entry["source"] in ("tool", "check")):
        return scope.say("error", id=cited)
    if (failed := entry.get("failed")) and cited not in admitted:
        return scope.say("failed_words" if isinstance(failed, str) else "failed", id=cited, words=failed)
    if before or not (later := find_later_change(scope.entries, scope.index[cited])):
        return None
    if "reads" not in entry:
        return _why_outdated(cited, quote, later, scope)
    # A later step cannot make the call again; its evidence is marked as that of before a change.
    return _say_before("made_before", cited, later, scope) if later["step"] == entry["step"] else None


def _say_before(key: str, cited: str, later: JournalEntry, scope: EvidenceScope, new: str = "") -> str:
    targets = ", ".join(later["targets"])
    return scope.say(key, id=cited, later=later["id"], tool=later["tool"], targets=targets, new=new)


def _succeeded_later(id: str, scope: EvidenceScope) -> str | None:
    """Return the later observation of the same call that succeeded after this one failed."""
    if id not in scope.index or not is_failure(failed := scope.entry(id)):
        return None
    later = (e for e in scope.entries[scope.index[id] + 1 :] if e["id"] in scope.index and not is_failure(e))
    return next((e["id"] for e in later if all(e[key] == failed[key] for key in ("source", "tool", "arguments"))), None)


def _made_good(failed: str, succeeded: str, quote: Any, before: bool, scope: EvidenceScope) -> str:
    """Return which of two equal calls evidence is of, which cites the failed one: the one that has its quote.

    If both have it, or there is no quote, that is the one that succeeded, unless the evidence is of `before`.
    """
    if not quote:
        return succeeded
    order = (failed, succeeded) if before else (succeeded, failed)
    return next((id for id in order if isinstance(quote, str) and scope.says(id, quote)), failed)


def _why_outdated(cited: str, quote: Any, later: JournalEntry, scope: EvidenceScope) -> str | None:
    """Return why a read from before a change proves nothing; None if a later read has the same result."""
    if (new := scope.again.get(cited)) is None:
        return _say_before("read_before", cited, later, scope)
    now, same = scope.entry(new), scope.entry(new)["text"] == scope.entry(cited)["text"]
    if quote and isinstance(quote, str) and not scope.is_in_arguments(cited, quote):
        same = same or scope.text(new, now["text"]).says(quote)
    if now["ok"] and same:
        return None
    return _say_before("read_again", cited, later, scope, new)


def stale_reads(claims: Mapping[int, Any], scope: EvidenceScope) -> list[str]:
    """Return the ids of cited reads whose subject changed since, except those cited as `before`."""
    ids = [
        str(reference.get("observation"))
        for claim in claims.values()
        for reference in read_references(claim)
        if reference.get("before") is not True
    ]
    cited_ids = [id for id in dict.fromkeys(ids) if id in scope.index]
    reads = [id for id in cited_ids if scope.entry(id)["ok"] and scope.entry(id)["effect"] == "read"]
    return [id for id in reads if find_later_change(scope.entries, scope.index[id])]


def _known_ids(scope: EvidenceScope) -> str:
    usable = [id for id in scope.index if scope.entry(id)["ok"] and scope.entry(id)["source"] != "result"]
    key = "nothing_yet" if not usable else "known_more" if len(usable) > 15 else "known_ids"
    return scope.say(key, ids=", ".join(usable[-15:]), count=len(usable) - 15)


def passages(text: str, quotes: Sequence[str], around: int) -> str:
    """Return the passages of a text with these quotes, in any spelling, and this many characters around each.

    Passages that overlap are one. Cuts are marked.
    """
    spans: list[tuple[int, int]] = []
    for start, end in sorted(_find_passage(text, quote, around) for quote in quotes):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], end)
        else:
            spans.append((start, end))
    shown, at = list[str](), 0
    for start, end in spans:
        gap = f"[… {start - at:,} characters {'between' if at else 'before'}] " if start > at else ""
        shown.append(f"{gap}{text[start:end]}")
        at = end
    return " ".join(shown) + (f" [… {len(text) - at:,} characters after]" if at < len(text) else "")


def _find_passage(text: str, quote: str, around: int) -> tuple[int, int]:
    """Return where the passage with a quote begins and ends; without a quote, or if it is not found, the beginning."""
    start, end = 0, len(text)
    least = len(quote) + 2 * around
    while quote and end - start > 2 * least:
        middle, more = (start + end) // 2, least
        halves = ((start, min(middle + more, end)), (max(middle - more, start), end))
        half = next(((a, b) for a, b in halves if b - a < end - start and SearchedText(text[a:b]).says(quote)), None)
        if half is None:
            break
        start, end = half
    if start or end < len(text):  # the quote may stand at the very edge
        start, end = max(start - around, 0), min(end + around, len(text))
    return start, min(end, start + 2 * least) if not quote else end
