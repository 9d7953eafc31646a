"""The goal_check node: a step is done when its evidence says so. Complete, grounded, checked, judged — cheapest first."""

from collections.abc import Mapping
from datetime import UTC, datetime

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from graph.calling import call_tool
from graph.context import Deps, settings_of
from graph.events import emit
from graph.judging import judge
from graph.leaving import leave, left_of, seen_before
from graph.observing import keep, noted, thread_of, whole
from state.evidence import Seen, criteria_of, enough, ground, level_of, read_claims
from state.expect import meets
from state.journal import observation
from state.ledger import Amounts, add
from state.run import Json, Step
from state.settings import Settings


async def goal_check(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Hold the claims of `finish_step` or `finish_task` against the evidence; accept them or say what is missing."""
    settings, decision = settings_of(runtime), state["decision"] or {}
    criteria = criteria_of(state["step"])
    claims = read_claims(decision["arguments"].get("goal_check"), len(criteria), settings.verification)
    if isinstance(claims, list):
        return _refused(state, claims, [], runtime, {}, [])
    spent: Amounts = {}
    checks: list[Json] = []
    seen = await _seen(state, claims, runtime)
    verdicts = []
    for number, criterion in enumerate(criteria, 1):
        verdict = await _decide(number, criterion, claims[number], seen, state, runtime, config, deps, checks, spent)
        verdicts.append(verdict)
    bad = [
        v for v in verdicts if not enough(v["verdict"], level_of(criteria[v["criterion"] - 1], settings.verification))
    ]
    if bad:
        problems = [f"criterion {v['criterion']} ({v['text'][:120]}): {v['note']}" for v in bad]
        return _refused(state, problems, verdicts, runtime, spent, checks)
    return await _accepted(state, decision, verdicts, runtime, spent, checks)


async def _seen(state: Step, claims: Mapping[int, Json], runtime: Runtime[Settings]) -> Seen:
    """What may be cited, with the whole text of everything that is cited."""
    cited = str([claim.get("evidence") for claim in claims.values()])
    entries = seen_before(state)
    thread, turn = thread_of(runtime), state.get("turn", 1)
    full = [await whole(runtime.store, thread, turn, e) if e["id"] in cited else e for e in entries]
    id = state["step"]["id"]
    used = any(e["step"] == id and e["source"] == "tool" for e in entries)
    writes_text = not used and not state["step"].get("tools")
    result = str((state["decision"] or {})["arguments"].get("result", ""))
    return Seen(full, id, result, writes_text)


async def _decide(
    number: int,
    criterion: Json,
    claim: Json,
    seen: Seen,
    state: Step,
    runtime: Runtime[Settings],
    config: RunnableConfig,
    deps: Deps,
    checks: list[Json],
    spent: Amounts,
) -> Json:
    """One criterion's verdict. `checks` and `spent` collect what deciding it observed and cost."""
    settings = settings_of(runtime)
    level = level_of(criterion, settings.verification)
    verdict: Json = {"criterion": number, "text": criterion["text"], "claimed": claim["met"], "evidence": []}
    if not claim["met"]:
        return {
            **verdict,
            "verdict": "failed",
            "note": "you say yourself that it is not met; go on working, or give_up",
        }
    if check := criterion.get("check"):
        entry, met, said = await _run_check(check, len(checks), state, runtime, config, deps, spent)
        if entry is not None:
            checks.append(entry)
        found = "unverified" if met is None else "passed" if met else "failed"
        evidence = [{"observation": entry["id"], "quote": entry["text"][:200]}] if entry else []
        return {**verdict, "verdict": found, "note": said, "evidence": evidence}
    good, problems = ground(claim, seen)
    if settings.verification == "claimed":
        return {**verdict, "verdict": "supported" if good else "unverified", "note": "", "evidence": good}
    if problems:
        return {**verdict, "verdict": "unverified", "note": "; ".join(problems)}
    if level != "judged":
        return {**verdict, "verdict": "supported", "note": "", "evidence": good}
    cited = [seen.entries[seen.index[e["observation"]]] for e in good if e["observation"] in seen.index]
    own = observation(f"{seen.step}.result", seen.step, 0, "result", seen.result)
    found, why, cost = await judge(
        criterion["text"], cited or [own], deps, settings, left_of({**state, "spent": add(state.get("spent"), spent)})
    )
    spent.update(add(spent, cost))
    return {**verdict, "verdict": found, "note": why, "evidence": good}


async def _run_check(
    check: Json,
    position: int,
    state: Step,
    runtime: Runtime[Settings],
    config: RunnableConfig,
    deps: Deps,
    spent: Amounts,
) -> tuple[Json | None, bool | None, str]:
    """Run a read-only check: its observation, whether it holds (None: nobody knows), and why in words."""
    settings = settings_of(runtime)
    toolbox = deps.tools_for(None, settings)
    tool = toolbox.get(check["tool"])
    if tool is None or toolbox.effect(check["tool"]) != "read":
        return None, None, f"the check's tool {check['tool']} is not available as a read-only tool"
    if left_of(state).get("tool_calls", 1) - spent.get("tool_calls", 0) < 1:
        return None, None, "the check could not run: no tool calls are left"
    result = await call_tool(tool, check["arguments"], timeout=settings.tool_seconds, config=config)
    spent.update(add(spent, {"tool_calls": 1, "active_seconds": result.seconds}))
    number = state["record"]["observed"] + position + 1
    call = {"name": check["tool"], "args": check["arguments"]}
    entry = noted(state, number, call, result, "read", toolbox.targets(check["tool"], check["arguments"]), "check")
    entry = await keep(runtime.store, thread_of(runtime), state.get("turn", 1), entry)
    met, said = meets(check["expect"], result.ok, result.text)
    return entry, met, f"the check {check['tool']} decided: {said}"


def _answer(state: Step, text: str) -> AIMessage | HumanMessage | ToolMessage:
    """The result of the call that claimed to be done."""
    id = (state["decision"] or {}).get("id")
    return ToolMessage(text, tool_call_id=id) if id else HumanMessage(text)


def _refused(
    state: Step,
    problems: list[str],
    verdicts: list[Json],
    runtime: Runtime[Settings],
    spent: Amounts,
    checks: list[Json],
) -> Step:
    """The step does not advance; the model is told, per criterion, what is missing."""
    settings, record = settings_of(runtime), state["record"]
    refused, corrections = record["refused"] + 1, record["corrections"] + 1
    emit(runtime, "correction", step=state["step"]["id"], text="; ".join(problems)[:500])
    lines = "\n".join(f"- {problem}" for problem in problems)
    text = f"Correction: the step is not finished; its goal_check does not hold.\n{lines}\nWork on what is missing, then finish_step again, or give_up."
    message = _answer(state, text)
    change = {
        "refused": refused,
        "corrections": corrections,
        "observed": record["observed"] + len(checks),
        "verdicts": verdicts,
    }
    common: Step = {"journal": checks, "spent": spent}
    if refused >= settings.max_refusals:
        reason = f"{refused} goal_checks were refused; the last: {'; '.join(problems)[:600]}"
        left = leave(
            state, runtime, {**change, "status": "failed", "code": "unproven", "reason": reason}, [message], spent
        )
        return {**common, **left}
    return {**common, "record": {**record, **change}, "transcript": [message], "decision": None}


async def _accepted(
    state: Step, decision: Json, verdicts: list[Json], runtime: Runtime[Settings], spent: Amounts, checks: list[Json]
) -> Step:
    record, id, arguments = state["record"], state["step"]["id"], decision["arguments"]
    result = str(arguments["result"]).strip()
    at = datetime.now(UTC).isoformat(timespec="seconds")
    entry = observation(f"{id}.result", id, record["rounds"], "result", result, at=at)
    entry = await keep(runtime.store, thread_of(runtime), state.get("turn", 1), entry)
    change = {
        "status": "done",
        "code": "done",
        "result": result,
        "verdicts": verdicts,
        "observed": record["observed"] + len(checks),
        "corrections": 0,
        "finished_task": arguments.get("reason") if decision["kind"] == "finish_task" else None,
    }
    left = leave(state, runtime, change, [_answer(state, "Accepted.")], spent)
    return {"journal": [*checks, entry], "spent": spent, **left}
