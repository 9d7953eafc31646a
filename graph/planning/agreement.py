"""Take consent to a plan from a person's own words, where two readers find it: the planner, and then the judge.

Short replies are read by code. All others are said to the planner, which may have read what a stranger wrote; so its
word alone approves nothing. The judge is shown only what the person was shown, and what they replied.
"""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

from donewhen.graph.events import emit_charge, now
from donewhen.graph.llm.ask import Question
from donewhen.graph.llm.reply import Decision
from donewhen.graph.pauses.pause import OpenPause, ResolvedAnswer, load_pause
from donewhen.graph.people.answers import missing_tools
from donewhen.graph.people.interjections import PLANNING as IN_PLANNING
from donewhen.graph.people.interjections import heard_entries, new_interjections
from donewhen.graph.planning.outcomes import PlanningRound, keep_shown_plan, planning_cursor, send_correction
from donewhen.graph.round import Role, no_objections
from donewhen.graph.step.talk import Talk, decides_nothing
from donewhen.prompts import brief, instructions, section
from donewhen.state.channels import Json, Planning
from donewhen.state.language.short_replies import asks_something
from donewhen.state.ledger import Amounts, add
from donewhen.state.people.answers import Answer
from donewhen.state.plan.planning import shown_plan
from donewhen.state.reading.decisions import CONSENT, control_tools

NOT_SURE = (
    "accept_plan: a second reader does not find consent to exactly this plan in what the user says ({why}). Submit the "
    "plan as they want it, or `answer` them with one short question that a plain yes settles"
)
ASKED = "there is a question in it"
SAID_MORE = "the user said more meanwhile, which comes next"
NOBODY = "the second reader gave no usable reply"


async def take_consent(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Approve the plan that was shown with the person's words, or tell the planner why not, once for these words."""
    state, feedback, about = round.state, round.planning["feedback"], shown_plan(round.planning)
    assert feedback
    assert about  # else nothing could be accepted
    shown = load_pause(about["pause"])
    cursor = round.run.get("interjection_cursor") or ""
    later = await heard_entries(round.runtime, IN_PLANNING, cursor, planning_cursor(state))
    words = "\n".join([feedback["text"], *(entry["text"] for entry in later)])
    spent = Amounts()
    if asks_something(words):
        why = ASKED
    else:
        why, spent = await _doubt(round, shown, words)
    if not why and await new_interjections(round.runtime, planning_cursor(state), IN_PLANNING):
        why = SAID_MORE
    if not why:
        why = missing_tools(round.run, [shown], "yes", round.deps.executors, round.settings)
    if why:
        if why != SAID_MORE:  # later words may be the consent, so it can be taken with them
            round.correct_once("consent")
        update = send_correction(round, message, [NOT_SURE.format(why=why)])
        return {**update, "spent": add(spent, update.get("spent"))}
    taken = ResolvedAnswer(Answer("approve", words), "user", now("milliseconds"))
    change = shown.apply({**round.run, "planning": round.planning}, taken)
    approved: Json = {key: change[key] for key in ("approvals", "plan", "approval", "ending") if key in change}
    return {**keep_shown_plan(round, about), **approved, "pending": None, "spent": spent}  # type: ignore[typeddict-item]


async def _doubt(round: PlanningRound, shown: OpenPause, words: str) -> tuple[str, Amounts]:
    """Return why the judge finds no consent in these words, "" if it does; and what asking it cost."""
    fence = round.state["brief"]["fence"]
    asked = brief(section("shown", shown.text(whole=True), fence), section("reply", words, fence))
    reader = _Reader(round.calls(), messages=[SystemMessage(instructions("consent")), HumanMessage(asked)])
    why = await reader.have(READER)
    emit_charge(round.runtime, None, reader.context.spent)
    return why, reader.context.spent


class _Reader(Talk[str]):
    """A judge that says why it finds no consent; "" if it does."""

    def end(self, problem: str) -> str:
        """Find no consent without a usable reply."""
        return NOBODY

    async def question(self) -> Question:
        """Return the request: what the person was shown, and what they replied."""
        self.legal, caller = CONSENT, self.context.caller
        return Question(
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
        """Return why it does not agree."""
        agrees, why = decision.arguments["agrees"], decision.arguments.get("why")
        return "" if agrees is True else str(why or "not exactly this")[:300]


READER: Role[_Reader, str | None] = Role(
    ask=_Reader.question,
    read_text=decides_nothing,
    objections=no_objections,
    handlers={"consent": _Reader.settle},
    example='A good reply is one call of consent with {"agrees": true}, or with {"agrees": false, "why": "…"}.',
    inside=True,
)
