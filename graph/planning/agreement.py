"""Approve a plan by a person's own words, if two readers find consent in them: the planner, and then the judge.

Code reads short replies; the planner reads all others. The planner may also have read what a stranger wrote, so it
cannot approve alone. The judge is shown only what the person was shown, and what they replied.
"""

from typing import cast

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from donewhen.graph.events import emit_charge, moment
from donewhen.graph.llm.ask import ModelRequest
from donewhen.graph.llm.reply import Decision
from donewhen.graph.pauses.pause import OpenPause, ResolvedAnswer, load_pause
from donewhen.graph.people.answers import missing_tools
from donewhen.graph.people.interjections import IN_PLANNING, heard_entries, new_interjections
from donewhen.graph.planning.outcomes import PlanningRound, keep_shown_plan, planning_cursor, send_correction
from donewhen.graph.round import Role, no_objections
from donewhen.graph.step.talk import Talk, refuse_text
from donewhen.prompts import brief, instructions, section
from donewhen.state.channels import Json, Planning
from donewhen.state.language.short_replies import has_question_mark
from donewhen.state.ledger import Amounts, add
from donewhen.state.people.answers import Answer, may_answer
from donewhen.state.plan.planning import shown_plan
from donewhen.state.reading.decisions import CONSENT, control_tools

NOT_SURE = (
    "accept_plan: a second reader does not find consent to exactly this plan in what the user says ({why}). Submit the "
    "plan as they want it, or `answer` them with one short question that a plain yes settles"
)
HOLDS_QUESTION = "there is a question in it"
MORE_WORDS = "the user said more meanwhile, which comes next"
NO_VERDICT = "the second reader gave no usable reply"


async def take_consent(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Approve the plan that the person was shown, if their words agree to it; else tell the planner why they do not.

    After that, the planner cannot accept the plan by the same words again.
    """
    state, feedback, shown = round.state, round.planning["feedback"], shown_plan(round.planning)
    assert feedback  # `accept_plan` is legal only while a person speaks about a plan that they were shown
    assert shown
    pause = load_pause(shown["pause"])
    cursor = round.run.get("interjection_cursor") or ""
    later = await heard_entries(round.runtime, IN_PLANNING, cursor, planning_cursor(state))
    asked = [entry for entry in later if may_answer(pause.answered_by, entry["arguments"].get("name") or "")]
    words = "\n".join([feedback["text"], *(entry["text"] for entry in asked)])
    spent = Amounts()
    if has_question_mark(words):
        why = HOLDS_QUESTION
    else:
        why, spent = await _ask_judge(round, pause, words)
    if not why and await new_interjections(round.runtime, planning_cursor(state), IN_PLANNING):
        why = MORE_WORDS
    if not why:
        why = missing_tools(round.run, [pause], "yes", round.deps.executors, round.settings)
    if why:
        if why != MORE_WORDS:  # the words that come next may be the consent, so the planner may try again with them
            round.note_correction("consent")
        update = send_correction(round, message, [NOT_SURE.format(why=why)])
        return {**update, "spent": add(spent, update.get("spent"))}
    said = next((row for row in reversed(round.run["approvals"]) if row["decision"] == "say"), Json())
    answer = ResolvedAnswer(Answer("approve", words), "user", moment(), said.get("name", ""))
    approved = cast("Planning", pause.apply({**round.run, "planning": round.planning}, answer))
    return {**keep_shown_plan(round, shown), **approved, "pending": None, "spent": spent}


async def _ask_judge(round: PlanningRound, pause: OpenPause, words: str) -> tuple[str, Amounts]:
    """Return why the judge finds no consent in these words ("" if it finds it), and what its reply cost."""
    fence = round.state["brief"]["fence"]
    request = brief(section("shown", pause.text(whole=True), fence), section("reply", words, fence))
    reader = _SecondReader(
        round.call_context(), messages=[SystemMessage(instructions("consent")), HumanMessage(request)]
    )
    why = await reader.run(READER)
    emit_charge(round.runtime, None, reader.context.spent)
    return why, reader.context.spent


class _SecondReader(Talk[str]):
    """A talk with the judge, whose result is why it finds no consent; "" if it finds it."""

    def end(self, problem: str) -> str:
        """Find no consent, because no reply was usable."""
        return NO_VERDICT

    async def question(self) -> ModelRequest:
        """Return the request: what the person was shown, and what they replied."""
        self.legal, caller = CONSENT, self.context.caller
        return ModelRequest(
            "judge",
            self.messages,
            control_tools(CONSENT),
            allowance=self.left(),
            fence=caller.fence,
            must_call=True,
            place={"step": "plan", "round": caller.rounds},
            thread=self.context.thread,
        )

    async def settle(self, message: AIMessage, decision: Decision) -> str:
        """Return why the judge finds no consent; "" if it finds it."""
        agrees, why = decision.arguments["agrees"], decision.arguments.get("why")
        return "" if agrees is True else str(why or "not exactly this")[:300]


READER: Role[_SecondReader, str | None] = Role(
    ask=_SecondReader.question,
    read_text=refuse_text,
    objections=no_objections,
    handlers={"consent": _SecondReader.settle},
    example='A good reply is one call of consent with {"agrees": true}, or with {"agrees": false, "why": "…"}.',
    inside=True,
)
