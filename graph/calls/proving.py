"""Prove a claim as far as code can: by evidence, and by the runtime's own read-only checks. Fails closed."""

from dataclasses import dataclass, field, replace
from functools import partial

from donewhen.graph.calls.invoking import Site, invoke
from donewhen.graph.calls.observing import keep, noted, seen_before, whole
from donewhen.graph.context import settings_of
from donewhen.graph.events import observed
from donewhen.graph.models.transcript import unshown
from donewhen.graph.models.window import shown_chars
from donewhen.graph.sync import read_aside
from donewhen.graph.tools.effects import CallOutcome
from donewhen.graph.tools.paths import path_problem
from donewhen.state.graph_state import Json
from donewhen.state.ledger import add, exhausted
from donewhen.state.proof.evidence import EvidenceScope, changed_something, ground, stale_readings
from donewhen.state.proof.expect import meets
from donewhen.state.proof.goal_check import Verdict, enough
from donewhen.state.proof.leaves import SourceText
from donewhen.state.records import FrozenCall, StepClaim, StepRecord
from donewhen.state.settings import Settings

MOST_AGAIN = 10
"""Readings that one goal_check makes again."""
FORM_CORRECTIONS = 2
"""How often a criterion goes back because only a quote is imprecise; then it stays unverified, and the work stands."""
SOURCE_CHARS = 2_000_000
"""Of observations that the values of a result are looked up in."""
UNDECIDED = ("refused", "interrupt", "command")
"""Errors of the call that say nothing about the criterion."""


@dataclass
class Proof:
    """One claim to be done, and what was found out about it so far."""

    site: Site
    claim: StepClaim
    criteria: list[Json]
    claims: dict[int, Json]
    scope: EvidenceScope
    verdicts: dict[int, Json] = field(default_factory=dict)
    audit: Json | None = None
    """What a judge said of the result, where that is the answer."""
    doubted: bool = False
    """Whether what a judge doubted goes back, or went back, to the model."""

    @property
    def settings(self) -> Settings:
        """Of the run."""
        return settings_of(self.site.runtime)

    @property
    def record(self) -> StepRecord:
        """Of the step."""
        return self.site.state["record"]

    def bad(self) -> list[Json]:
        """Return the verdicts that structure refuses: a judge is asked only where there is none."""
        level = "grounded" if self.settings.verification in ("audited", "judged") else self.settings.verification
        return [
            verdict
            for number, verdict in sorted(self.verdicts.items())
            if not verdict.get("stays") and not enough(verdict["verdict"], self._checked(number), level)
        ]

    def _checked(self, number: int) -> Json:
        return {"check": self.criteria[number - 1].get("check")}


@dataclass(frozen=True)
class CheckResult:
    """What a check came to: its observation if it could be run, the verdict, and why in words."""

    entry: Json | None
    verdict: Verdict
    said: str


async def evidence_scope(site: Site, claim: StepClaim, claims: dict[int, Json]) -> EvidenceScope:
    """Return what may be cited, with the whole text of everything that is cited."""
    state, step = site.state, site.state["step"]
    cited = str(list(claims.values()))
    read = _whole if claim.get("whole") else _cited
    entries = [await read(site, e) if e["id"] in cited else e for e in seen_before(state)]
    toolbox = site.deps.tools_for(step.get("executor"), settings_of(site.runtime))
    own = [e for e in entries if e["step"] == step["id"] and not e.get("outside")]
    granted = step.get("tools")
    writing = [name for name in granted or () if toolbox.effect(name) != "read"]
    used = any(e["source"] == "tool" and e["ok"] for e in own)
    return EvidenceScope(
        entries,
        step["id"],
        str(claim["arguments"].get("result", "")),
        writes_text=granted == [] or not toolbox.names or (granted is None and not used),
        unchanged=bool(writing) and not any(map(changed_something, own)),
        recalled=state["record"].get("recalled") or {},
    )


async def _cited(site: Site, entry: Json) -> Json:
    """With its whole text, and what of it the model was not shown."""
    entry = await _whole(site, entry)
    limit = shown_chars(site.deps, settings_of(site.runtime), "execute", site.state["step"].get("executor"))
    unread = unshown(entry["text"], limit, entry["id"])
    return {**entry, "unread": unread}


async def _whole(site: Site, entry: Json) -> Json:
    return await whole(site.runtime, site.state, entry)


async def refresh_stale_readings(proof: Proof) -> None:
    """Make cited readings again if what they describe changed since, as far as the budget goes."""
    site, scope = proof.site, proof.scope
    fresh: dict[str, Json] = {}
    for id in stale_readings(proof.claims, scope)[:MOST_AGAIN]:
        if exhausted(site.left(), ("tool_calls",)):
            break
        old = scope.entry(id)
        found = await run_check({"tool": old["tool"], "arguments": old["arguments"], "expect": "ok"}, site)
        if found.entry is not None:
            fresh[id] = await _whole(site, found.entry)
    if fresh:
        again = {id: entry["id"] for id, entry in fresh.items()}
        proof.scope = replace(scope, entries=[*scope.entries, *fresh.values()], again=again)


async def check_criteria(proof: Proof) -> str | None:
    """Give every criterion its verdict by check or evidence; the key of the budget that ended before, if one did."""
    for number, criterion in enumerate(proof.criteria, 1):
        if number in proof.verdicts:
            continue
        if proof.claims[number]["met"] and criterion.get("check"):
            if exhausted(proof.site.left(), ("tool_calls",)):
                return "tool_calls"
            proof.verdicts[number] = await _checked(proof, number, criterion)
        else:
            grounded = partial(_grounded, proof, number, criterion, proof.claims[number])
            proof.verdicts[number] = await read_aside(proof.scope.size, grounded)
    return None


def _verdict(number: int, criterion: Json, claimed: bool) -> Json:
    return {"criterion": number, "text": criterion["text"], "claimed": claimed, "evidence": [], "note": ""}


def _grounded(proof: Proof, number: int, criterion: Json, claim: Json) -> Json:
    """Return what the cited observations are worth."""
    verdict, level = _verdict(number, criterion, claim["met"]), proof.settings.verification
    if not claim["met"]:
        note = "it was said of it itself that it is not met"
        return {**verdict, "verdict": "failed", "note": note}
    found = ground(claim, proof.scope)
    verdict["evidence"] = found.evidence
    if level == "claimed":
        return {**verdict, "verdict": "cited" if found.evidence else "unverified"}
    if found.problems:
        return {**verdict, "evidence": [], "verdict": "unverified", "note": "; ".join(found.problems)}
    if found.imprecise:
        told = (proof.record.get("imprecise") or {}).get(str(number), 0)
        end = {"stays": True} if told >= FORM_CORRECTIONS and found.evidence else {"form": True}
        return {**verdict, "verdict": "unverified", "note": "; ".join(found.imprecise), **end}
    return {**verdict, "verdict": "cited"}


async def _checked(proof: Proof, number: int, criterion: Json) -> Json:
    """Return what the runtime's own check says; the model's word plays no part."""
    verdict, found = _verdict(number, criterion, True), await run_check(criterion["check"], proof.site)
    entry = found.entry
    evidence = [{"observation": entry["id"], "quote": entry["text"][:200]}] if entry else []
    return {**verdict, "verdict": found.verdict, "note": found.said, "evidence": evidence}


async def sources_of(site: Site, journal: list[Json]) -> list[SourceText]:
    """Return what may say a value: what was observed, with its whole text."""
    sources, room = list[SourceText](), SOURCE_CHARS
    for entry in journal:
        if room > 0 and not entry.get("outside"):
            text = (await _whole(site, entry))["text"][:room]
            sources.append(SourceText(entry["id"], text, firsthand=entry["source"] != "result"))
            room -= len(text)
    return sources


async def run_check(check: Json, site: Site) -> CheckResult:
    """Make a reading call of the runtime's own. The caller sees to it that the budget has a tool call."""
    settings, state = settings_of(site.runtime), site.state
    number = site.observed + len(site.noted) + 1
    name, arguments = check["tool"], check["arguments"]
    toolbox = site.deps.all_tools(settings)
    tool = toolbox.get(name)
    if tool is None or toolbox.effect(name) != "read":
        return CheckResult(None, "unverified", f"the check's tool {name} is not available as a read-only tool")
    if outside := path_problem(arguments, settings.profile.allowed_paths, tool):
        return CheckResult(None, "unverified", f"the check may not run: {outside}")
    call: FrozenCall = {"id": "", "name": name, "args": arguments}
    outcome = await invoke(site, tool, call, "read", f"{state['step']['id']}.{number}")
    site.meters.clear()
    assert isinstance(outcome, CallOutcome), "a read is never in doubt"
    result = outcome.result
    site.spent = add(add(site.spent, outcome.spent), {"tool_calls": 1, "active_seconds": result.seconds})
    entry = noted(state, number, call, result, "read", toolbox.targets(name, arguments), "check")
    entry = await keep(site.runtime, state, entry)
    observed(site.runtime, entry)
    site.noted.append(entry)
    if not result.ok and (result.unknown or result.error in UNDECIDED or check["expect"] != "ok"):
        return CheckResult(entry, "unverified", f"the check {name} itself failed: {result.text[:200]!r}")
    met, said = meets(check["expect"], result.ok, result.text)
    return CheckResult(entry, "proven" if met else "failed", f"the check {name} decided: {said}")
