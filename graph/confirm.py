"""The confirm node: the plan is shown whole and waits for a person. It does nothing before its one interrupt."""

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from graph.context import Deps, settings_of
from graph.pauses import asked_again, closing, typed_reply
from graph.planning import fresh_planning
from graph.proposal import consent, plan_rules
from state.human import Answer, Bundle, payload, read_answer
from state.plan import read_plan
from state.run import Json, Run
from state.settings import Settings
from state.steps import fresh_records


async def confirm(state: Run, runtime: Runtime[Settings], *, deps: Deps) -> Run:
    """Read the person's answer: approve, edit, reject with feedback, or cancel. Anything else keeps the pause."""
    pending = state["pending"] or {}
    typed = typed_reply(state["messages"])
    value = interrupt(payload(pending)) if typed is None else typed
    answer = read_answer(value, pending)
    if isinstance(answer, Bundle):
        answer = read_answer(answer.answers.get(pending["id"]), pending)
    if not isinstance(answer, Answer):
        return asked_again(state, str(answer))
    if answer.kind == "edit":
        finished = (state.get("planning") or {}).get("finished") or {}
        plan = read_plan(answer.plan, plan_rules(deps, settings_of(runtime)))
        if isinstance(plan, list):
            return asked_again(state, "the edited plan cannot be taken: " + "; ".join(plan))
        if missing := [id for id in finished if id not in {step["id"] for step in plan["steps"]}]:
            return asked_again(state, f"finished steps cannot be taken out of the plan: {', '.join(missing)}")
        return _approved(state, plan, "edit")
    if answer.kind == "approve":
        return _approved(state, pending["plan"], "approve")
    return _refused(state, answer)


def _decision(state: Run, decision: str, text: str = "") -> Run:
    pending = state["pending"] or {}
    said = {"approve": "Approved.", "edit": "Approved with changes.", "cancel": "Cancelled."}.get(
        decision, f"Rejected: {text}"
    )
    row = {"kind": "plan", "id": pending["id"], "revision": pending["revision"], "decision": decision, "text": text}
    return {"pending": None, "approvals": [row], "messages": closing(state["messages"], pending, said)}


def _approved(state: Run, plan: Json, decision: str) -> Run:
    update = _decision(state, decision)
    row = {**update["approvals"][0], "approved_revision": plan["revision"]}
    records = fresh_records(plan, state.get("steps") or {}, (state.get("approval") or {}).get("plan"))
    return {**update, "approvals": [row], "plan": plan, "approval": consent(plan, "user"), "steps": records}


def _refused(state: Run, answer: Answer) -> Run:
    update = _decision(state, "cancel" if answer.kind == "cancel" else "reject", answer.text)
    if (approval := state.get("approval")) is not None:
        # A refused difference leaves the approved plan in force; what failed in it stays failed.
        return {**update, "plan": approval["plan"], "planning": {**state["planning"], "open": False, "refused": True}}
    if answer.kind == "cancel":
        return {**update, "ending": {"code": "cancelled", "reason": "the plan was not approved"}}
    planning = fresh_planning(
        state["planning"]["number"] + 1, feedback=answer.text, proposal=(state["pending"] or {})["plan"]
    )
    return {**update, "planning": planning, "plan": None, "feedback": answer.text}
