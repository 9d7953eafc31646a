"""The decide node: one model call, one round, one checkpoint. It reads the reply; acting on it is the next node's job."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.runtime import Runtime

from graph.asking import Question, Reply, ask
from graph.briefs import profile_text
from graph.context import Deps, settings_of
from graph.decide import Correction, Decision, kept, read, respond
from graph.events import emit, retracter, sayer
from graph.leaving import leave, left_of
from graph.pauses import call_id
from graph.transcript import shown
from prompts import render
from state.decisions import EXECUTE, control_tools
from state.journal import answered_before
from state.ledger import add, exhausted
from state.run import Json, Step
from state.settings import Settings

GO_ON = "Go on with the step: call a tool, or finish_step once every criterion is proven, or give_up."
SILENT_ROUNDS = 3
"""Rounds without a new observation after which the model is told so."""


async def decide(state: Step, runtime: Runtime[Settings], *, deps: Deps) -> Step:
    """Ask the model what to do next in this step. Exhaustion is decided here, on entry to a round."""
    settings, step = settings_of(runtime), state["step"]
    left = left_of(state)
    if key := exhausted(left):
        return leave(state, runtime, {"status": "ready", "code": f"allowance:{key}"})
    toolbox = deps.tools_for(step.get("executor"), settings)
    named = deps.executors.get(step.get("executor") or "")
    prompt = render("execute", profile=profile_text(settings.profile, named.profile if named else ""))
    messages = [SystemMessage(prompt), HumanMessage(state["brief"]), *state.get("transcript", ())]
    question = Question(
        "execute",
        messages,
        [*control_tools(EXECUTE), *toolbox.openai(toolbox.names)],
        step.get("executor"),
        left,
        sayer(runtime, step["id"]),
        retracter(runtime, step["id"]),
    )
    reply = await ask(deps, settings, question)
    spent = add(reply.spent, {"rounds": 1})
    now: Step = {**state, "record": {**state["record"], "rounds": state["record"]["rounds"] + 1}}
    if reply.message is None:
        assert reply.error is not None
        return {
            **leave(now, runtime, {"status": "failed", "code": "model_error", "reason": str(reply.error)}, spent=spent),
            "spent": spent,
        }
    outcome = read(reply.message, EXECUTE, toolbox)
    if reply.speech:
        reply.speech.finish(outcome.speech)
    if isinstance(outcome, Correction):
        return {**corrected(now, reply.message, outcome, runtime, spent=spent), "spent": spent}
    return _decided(now, runtime, reply, outcome, spent)


def corrected(
    state: Step,
    message: AIMessage,
    correction: Correction,
    runtime: Runtime[Settings],
    spent: dict[str, float] | None = None,
) -> Step:
    """Tell the model what was wrong; too many unusable replies in a row fail the step."""
    settings, record = settings_of(runtime), state["record"]
    count = record["corrections"] + 1
    said = "; ".join(correction.problems)[:500]
    emit(runtime, "correction", step=state["step"]["id"], text=said)
    messages = [kept(message), *respond(kept(message), correction.text(EXECUTE))]
    if count >= settings.max_corrections:
        change = {
            "status": "failed",
            "code": "unusable",
            "reason": f"{count} unusable replies in a row; the last: {said}",
        }
        return leave({**state, "record": {**record, "corrections": count}}, runtime, change, messages, spent)
    return {"record": {**record, "corrections": count}, "transcript": messages, "decision": None}


def _decided(
    state: Step, runtime: Runtime[Settings], reply: Reply, decision: Decision, spent: dict[str, float]
) -> Step:
    assert reply.message is not None
    message, record = kept(reply.message), state["record"]
    if decision.kind == "speak":
        silent = record.get("silent", 0) + 1
        hint = f" Nothing new was observed in {silent} rounds." if silent >= SILENT_ROUNDS else ""
        return {
            "record": {**record, "silent": silent},
            "transcript": [message, HumanMessage(GO_ON + hint)],
            "decision": None,
            "spent": spent,
        }
    if decision.kind == "calls":
        calls = [{**call, "native": bool(message.tool_calls or message.invalid_tool_calls)} for call in decision.calls]
        return {"record": {**record, "calls": calls}, "transcript": [message], "decision": None, "spent": spent}
    if decision.kind == "ask_user":
        return _asks(state, runtime, message, decision, spent)
    if decision.kind == "give_up":
        kind = decision.arguments["kind"]
        change = {
            "status": "blocked" if kind == "blocked" else "failed",
            "code": f"gave_up:{kind}",
            "reason": decision.arguments["reason"],
        }
        return {**leave(state, runtime, change, [message], spent), "spent": spent}
    chosen: Json = {"kind": decision.kind, "arguments": decision.arguments, "id": decision.id}
    return {"record": record, "transcript": [message], "decision": chosen, "spent": spent}


def _asks(
    state: Step, runtime: Runtime[Settings], message: AIMessage, decision: Decision, spent: dict[str, float]
) -> Step:
    """Leave with a question; the answer will be the result of this very call."""
    record, id, arguments = state["record"], state["step"]["id"], decision.arguments
    if before := answered_before(state.get("asked", ()), arguments["question"]):
        said = f"You asked this before; the answer was:\n{shown(before, 20_000)}"
        return {"record": record, "transcript": [message, *respond(message, said)], "decision": None, "spent": spent}
    number = record.get("questions", 0) + 1
    waiting = {
        "id": f"{id}.q{number}" if record.get("attempt", 1) == 1 else f"{id}@{record['attempt']}.q{number}",
        "kind": "question",
        "name": "ask_user",
        "tool_call_id": call_id(),
        "question": arguments["question"],
        "options": arguments.get("options") or [],
        "step": id,
        "call": decision.id,
    }
    cost = add(spent, {"questions": 1})
    change = {"status": "waiting", "waiting": waiting, "questions": number, "corrections": 0}
    return {**leave(state, runtime, change, [message], cost), "spent": cost}
