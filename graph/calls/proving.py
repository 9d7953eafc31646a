"""What proving a claim finds out: by evidence, by the runtime's own read-only checks, by a judge. Fails closed."""

from dataclasses import dataclass, field, replace
from itertools import chain

from donewhen.graph.calls.invoking import Site, invoke
from donewhen.graph.calls.judging import judge
from donewhen.graph.calls.observing import keep, noted, seen_before, whole
from donewhen.graph.context import settings_of
from donewhen.graph.events import observed
from donewhen.graph.models.transcript import index_of, unshown
from donewhen.graph.models.window import shown_chars
from donewhen.graph.tools.effects import CallOutcome
from donewhen.graph.tools.paths import path_problem
from donewhen.state.graph_state import Json
from donewhen.state.ledger import add, exhausted
from donewhen.state.proof.claims import Verdict, enough, level_of
from donewhen.state.proof.evidence import WRITES, Seen, excerpt, ground, to_read_again, wrote
from donewhen.state.proof.expect import meets
from donewhen.state.proof.facts import unconfirmed
from donewhen.state.proof.journal import canonical, digest, observation
from donewhen.state.proof.leaves import SourceText
from donewhen.state.records import FrozenCall, StepClaim, StepRecord
from donewhen.state.settings import Settings

MOST_AGAIN = 10
"""Readings that one goal_check makes again."""
FORM_CORRECTIONS = 2
"""How often a criterion goes back because only a quote is imprecise; then it stays unverified, and the work stands."""
SOURCE_CHARS = 2_000_000
"""Of observations that the facts of a result are looked up in."""
UNJUDGED = "not judged, because something else is missing"
UNDECIDED = ("refused", "interrupt", "command")
"""Errors of the call that say nothing about the criterion."""


@dataclass
class Inquiry:
    """One claim to be done, and what was found out about it so far."""

    site: Site
    claim: StepClaim
    criteria: list[Json]
    claims: dict[int, Json]
    seen: Seen
    verdicts: dict[int, Json] = field(default_factory=dict)
    checks: list[Json] = field(default_factory=list)
    """Observations of the checks."""
    judged: dict[str, list[str]] = field(default_factory=dict)
    """Verdicts of the judge by criterion and evidence: `[verdict, why]`."""

    @property
    def settings(self) -> Settings:
        """Of the run."""
        return settings_of(self.site.runtime)

    @property
    def record(self) -> StepRecord:
        """Of the step."""
        return self.site.state["record"]

    def bad(self) -> list[Json]:
        """Verdicts that are not as good as their criterion demands, but for those that stay unverified."""
        level = self.settings.verification
        return [
            verdict
            for number, verdict in sorted(self.verdicts.items())
            if not verdict.get("stays") and not enough(verdict["verdict"], level_of(self.criteria[number - 1], level))
        ]


@dataclass(frozen=True)
class CheckResult:
    """What a check came to: its observation if it could be run, the verdict, and why in words."""

    entry: Json | None
    verdict: Verdict
    said: str


async def seen_by(site: Site, claim: StepClaim, claims: dict[int, Json]) -> Seen:
    """What may be cited, with the whole text of everything that is cited."""
    state, step = site.state, site.state["step"]
    cited = str(list(claims.values()))
    read = _whole if claim.get("whole") else _cited
    entries = [await read(site, e) if e["id"] in cited else e for e in seen_before(state)]
    toolbox = site.deps.tools_for(step.get("executor"), settings_of(site.runtime))
    own = [e for e in entries if e["step"] == step["id"] and not e.get("outside")]
    granted, tools = step.get("tools"), toolbox.names
    changing = [name for name in (tools if granted is None else granted) if toolbox.effect(name) != "read"]
    return Seen(
        entries,
        step["id"],
        str(claim["arguments"].get("result", "")),
        writes_text=granted == [] or not tools,
        undeclared=granted is None and not any(e["source"] == "tool" and e["ok"] for e in own),
        must_write=bool(changing) and not any(map(wrote, entries if granted is None else own)),
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


async def look_again(inquiry: Inquiry) -> None:
    """Make cited readings again if what they describe changed since, as far as the budget goes."""
    site, seen = inquiry.site, inquiry.seen
    fresh: dict[str, Json] = {}
    for id in to_read_again(inquiry.criteria, inquiry.claims, seen)[:MOST_AGAIN]:
        if exhausted(site.left(), ("tool_calls",)):
            break
        old = seen.entry(id)
        found = await _run({"tool": old["tool"], "arguments": old["arguments"], "expect": "ok"}, inquiry)
        if found.entry is not None:
            fresh[id] = await _whole(site, found.entry)
    if fresh:
        again = {id: entry["id"] for id, entry in fresh.items()}
        inquiry.seen = replace(seen, entries=[*seen.entries, *fresh.values()], again=again)


async def _run(check: Json, inquiry: Inquiry) -> CheckResult:
    found = await run_check(check, inquiry.site, inquiry.record["observed"] + len(inquiry.checks) + 1)
    inquiry.checks += [found.entry] if found.entry is not None else []
    return found


async def decide(inquiry: Inquiry) -> str | None:
    """Give every criterion its verdict by check or evidence; the key of the budget that ended before, if one did."""
    for number, criterion in enumerate(inquiry.criteria, 1):
        if number in inquiry.verdicts:
            continue
        if inquiry.claims[number]["met"] and criterion.get("check"):
            if exhausted(inquiry.site.left(), ("tool_calls",)):
                return "tool_calls"
            inquiry.verdicts[number] = await _checked(inquiry, number, criterion)
        else:
            inquiry.verdicts[number] = _grounded(inquiry, number, criterion, inquiry.claims[number])
    return None


def _verdict(number: int, criterion: Json, claimed: bool) -> Json:
    return {"criterion": number, "text": criterion["text"], "claimed": claimed, "evidence": [], "note": ""}


def _grounded(inquiry: Inquiry, number: int, criterion: Json, claim: Json) -> Json:
    """What the cited observations are worth."""
    verdict, level = _verdict(number, criterion, claim["met"]), inquiry.settings.verification
    if not claim["met"]:
        note = "you say yourself that it is not met; go on working, or give_up"
        return {**verdict, "verdict": "failed", "note": note}
    found = ground(criterion["text"], claim, inquiry.seen)
    verdict["evidence"] = found.evidence
    if level == "claimed":
        return {**verdict, "verdict": "supported" if found.evidence else "unverified"}
    if found.problems:
        return {**verdict, "evidence": [], "verdict": "unverified", "note": "; ".join(found.problems)}
    if found.imprecise:
        told = (inquiry.record.get("imprecise") or {}).get(str(number), 0)
        end = {"stays": True} if told >= FORM_CORRECTIONS and found.evidence else {"form": True}
        return {**verdict, "verdict": "unverified", "note": "; ".join(found.imprecise), **end}
    return {**verdict, "verdict": "supported"}


async def _checked(inquiry: Inquiry, number: int, criterion: Json) -> Json:
    """What the runtime's own check says; the model's word plays no part."""
    verdict, found = _verdict(number, criterion, True), await _run(criterion["check"], inquiry)
    entry = found.entry
    evidence = [{"observation": entry["id"], "quote": entry["text"][:200]}] if entry else []
    return {**verdict, "verdict": found.verdict, "note": found.said, "evidence": evidence}


async def have_judged(inquiry: Inquiry) -> str | None:
    """Have a second model decide what it has to, all in one call and nothing twice; the budget it lacks, if it does."""
    waiting = [
        verdict
        for number, verdict in inquiry.verdicts.items()
        if (verdict["verdict"] == "supported" or verdict.get("stays") or verdict["note"] == UNJUDGED)
        and level_of(inquiry.criteria[number - 1], inquiry.settings.verification) == "judged"
        and not inquiry.criteria[number - 1].get("check")
    ]
    unjudged = {v["criterion"]: {**v, "verdict": "unverified", "note": UNJUDGED, "stays": False} for v in waiting}
    inquiry.verdicts |= unjudged
    if not waiting or any(v["criterion"] not in unjudged for v in inquiry.bad()):
        return None
    asked = {v["criterion"]: (v["text"], _shown(v, inquiry.seen)) for v in waiting}
    tried = [entry for entry in inquiry.seen.entries if entry["effect"] in WRITES and not entry.get("outside")]
    fence = inquiry.site.state.get("fence", "")
    changes = index_of(tried, {inquiry.seen.step}, fence)
    keys = {number: digest(canonical([text, shown, changes])) for number, (text, shown) in asked.items()}
    site, unknown = inquiry.site, {n: item for n, item in asked.items() if keys[n] not in inquiry.judged}
    if unknown:
        if exhausted(site.left(), ("model_calls",)):
            for number in unjudged:
                inquiry.verdicts.pop(number)
            return "model_calls"
        found, cost = await judge(unknown, changes, site.deps, inquiry.settings, site.left(), fence)
        site.spent = add(site.spent, cost)
        inquiry.judged |= {keys[number]: list(said) for number, said in found.items()}
    for number in asked:
        verdict, why = inquiry.judged[keys[number]]
        inquiry.verdicts[number] |= {"verdict": verdict, "note": why}
    inquiry.judged = {key: said for key, said in inquiry.judged.items() if said[0] != "unverified"}
    return None


def _shown(verdict: Json, seen: Seen) -> list[Json]:
    """What the judge reads of the evidence for a criterion: each observation once, with all that is quoted of it."""
    own = observation(f"{seen.step}.result", seen.step, 0, "result", seen.result)
    cited = [(seen.entry(e["observation"]) if e["observation"] in seen.index else own, e) for e in verdict["evidence"]]
    shown: dict[str, Json] = {}
    for entry, item in cited:
        row = shown.setdefault(entry["id"], {k: entry[k] for k in ("id", "source", "tool", "arguments")})
        parts = row.setdefault("parts", [])
        if (part := excerpt(entry["text"], item.get("quote", ""))) not in parts:
            parts.append(part)
    return [{**row, "text": "\n…\n".join(row.pop("parts"))} for row in shown.values()]


async def unsupported(inquiry: Inquiry) -> list[str]:
    """What the result states though nothing the step saw or was told says so."""
    site, state, result = inquiry.site, inquiry.site.state, inquiry.seen.result
    entries = [e for e in [*inquiry.seen.entries, *state.get("asked", ())] if not e.get("outside")]
    told = [state["goal"], canonical(state["step"])]
    # Latest first: what a result states was mostly seen last, and what is found is not looked for further back.
    seen = (part for e in reversed(entries) for part in (e["text"], canonical(e["arguments"])))
    loose = unconfirmed(result, chain(told, seen, [state.get("brief", "")]))
    if not loose or not any(entry.get("stored") for entry in entries):
        return loose
    kept, room = [*told, state.get("brief", "")], SOURCE_CHARS
    for entry in reversed(entries):
        for text in (canonical(entry["arguments"]), (await _whole(site, entry))["text"]):
            kept.append(text[: max(room, 0)])
            room -= len(text)
    return unconfirmed(result, kept)


async def origins(site: Site, journal: list[Json]) -> tuple[list[str], list[SourceText]]:
    """What may support a value: the goal and the arguments of calls; and what was observed, with its whole text."""
    told, sources, room = [site.state["goal"]], [], SOURCE_CHARS
    for entry in journal:
        if room > 0 and not entry.get("outside"):
            text = (await _whole(site, entry))["text"][:room]
            told.append(canonical(entry["arguments"]))
            sources.append(SourceText(entry["id"], text, firsthand=entry["source"] != "result"))
            room -= len(text)
    return told, sources


async def run_check(check: Json, site: Site, number: int) -> CheckResult:
    """Run a check as observation `number` of the step. The caller sees to it that the budget has a tool call."""
    settings, state = settings_of(site.runtime), site.state
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
    if not result.ok and (result.unknown or result.error in UNDECIDED or check["expect"] != "ok"):
        return CheckResult(entry, "unverified", f"the check {name} itself failed: {result.text[:200]!r}")
    met, said = meets(check["expect"], result.ok, result.text)
    return CheckResult(entry, "passed" if met else "failed", f"the check {name} decided: {said}")
