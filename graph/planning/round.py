"""The two phases of planning: a quick triage without thinking and, where it pays, a careful draft."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import thread_of
from donewhen.graph.llm.ask import ModelRequest
from donewhen.graph.llm.attachments import brief_message, with_images
from donewhen.graph.llm.briefs import offer_for_planning, planning_brief, profile_text
from donewhen.graph.llm.history import rounds_of
from donewhen.graph.llm.output import form_of
from donewhen.graph.llm.printed import holds_calls
from donewhen.graph.llm.reply import Decision, UnusableReply, aside
from donewhen.graph.llm.speech import Voice
from donewhen.graph.pauses.plan import plan_rules
from donewhen.graph.people.interjections import hear
from donewhen.graph.planning.agreement import take_consent
from donewhen.graph.planning.outcomes import (
    EXAMPLE,
    ROLE_OF_PHASE,
    PlanningRound,
    ask_question,
    decline,
    planning_cursor,
    rounds_left,
    settle_by_answer,
    start_looking,
    take_plan,
)
from donewhen.graph.round import Role, act_on, make_round
from donewhen.prompts import instructions
from donewhen.state.channels import Json, Planning
from donewhen.state.language.texts import known_language, other_language, primary_language
from donewhen.state.ledger import add
from donewhen.state.pattern import pattern
from donewhen.state.plan.elsewhere import in_our_form, lines_of_steps
from donewhen.state.plan.plan import read_plan
from donewhen.state.plan.planning import shown_plan, starting_plan
from donewhen.state.reading.decisions import control_tools, plan_tool
from donewhen.state.records import Correction, PlanningRecord, SentPlan
from donewhen.state.settings import Settings

ONLY_TEXT = "a text alone decides nothing: make one of the calls"
OR_ANSWER = ", `answer` if it is your answer"
NAME_EACH = "name each in its words, in the `done_when` of the plan or of a step that reaches it, or in `drop` and why"
_KEYS = pattern(
    r"[\"'](?:action|plan_steps|tool_calls?|done_when)[\"']\s*:|\bsubmit_plan\b|\bask_user\b"
    r"|[\"'](?:steps|tasks|todos?)[\"']\s*:\s*\[\s*[^\]\s]|^[ \t]*(?:steps|plan_steps|tasks|todos?)[ \t]*:[ \t]*$",
    re.MULTILINE,
)
"""Only a printed decision or plan contains these, however broken it is."""
LOOKS_LIKE_PLAN = "this reads like the steps of a plan: submit_plan if it is one"
ECHO = "this repeats what you were given; decide by one call"
LAST_ROUNDS = 2
"""The number of last rounds in which the planner is told how many are left."""
NOT_TAKEN = "The plan was not taken: the user said something meanwhile, which comes next. Follow it, and decide again."
FOLLOW_IN_PLANNING = "The user says this while you plan. Follow it."
GO_ON = "Go on: look, or decide."


async def triage(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Phase 1: quick, without thinking. It reads, answers, asks, declines or plans (P01, P02, P20)."""
    return await _plan_round(state, runtime, config, deps)


async def draft(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Phase 2: with thinking; if triage asks for it, after a failure, or if a plan is to grow (P03)."""
    return await _plan_round(state, runtime, config, deps)


async def _plan_round(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Planning:
    """Run a round with what the user said since the last one. A plan that was sent before they said it is not taken."""
    messages = list[AnyMessage]()
    if words := await hear(runtime, planning_cursor(state), None, FOLLOW_IN_PLANNING):
        work = state["planning"]["work"]
        if plan := work["sent_plan"]:
            messages = [ToolMessage(NOT_TAKEN, tool_call_id=plan["id"])]
        messages.append(words.message)
        planning: PlanningRecord = {
            **state["planning"],
            "work": {**work, "sent_plan": None, "interjection_cursor": words.cursor},
        }
        state = {**state, "planning": planning, "transcript": [*state.get("transcript", ()), *messages]}
    update = await _ask_and_act(state, runtime, config, deps)
    return {**update, "transcript": [*messages, *update.get("transcript", ())]} if messages else update


async def _ask_and_act(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Planning:
    """Take the plan that was sent with looks; without one, ask the model of the phase and act on its reply."""
    about_plan = bool(shown_plan(state["planning"]))  # an answer to words about a plan is not the result
    voice = Voice(runtime, language=state["language"], inside=True, ends=not about_plan)
    form = None if about_plan else form_of(state["brief"].get("output_schema"))
    round = PlanningRound(state, runtime, deps, voice=voice, form=form, config=config)
    round.replies = about_plan and not round.record["corrections"]
    if plan := round.record["sent_plan"]:
        update = await _take_sent_plan(round.note(sent_plan=None), plan)
    else:
        update = await make_round(round, PLANNER)
    spent, messages = add(round.spent, update.get("spent")), [*voice.messages(), *update.get("messages", ())]
    changes: Planning = {"planning": round.planning, "language": round.language}
    return {**changes, **update, "messages": messages, "spent": spent}


async def _request(round: PlanningRound) -> ModelRequest:
    """Return the request: instructions and tools, the brief, the rounds. What an earlier request had never changes."""
    state, deps, settings, form = round.state, round.deps, round.settings, round.form
    phase, cards = round.planning["phase"], await deps.executors.cards()
    round.offer = await offer_for_planning(deps, settings, state["brief"]["goal"], round.planning)
    round.legal = round.offered
    round.tools = deps.reads(settings, state["approval"])
    role = ROLE_OF_PHASE[phase]
    facts = {**state["brief"], "proposal": starting_plan(round.planning), "today": settings.today_text}
    facts["cards"] = cards
    profile = profile_text(settings.profile, language=settings.speaks)
    brief = planning_brief(deps, settings, facts, round.offer, full=role == "plan")
    asked_role = "plan" if round.record["by_planner"] else role
    model = partial(deps.model, asked_role, settings)
    left = rounds_left(round.record, settings)
    ending = list[HumanMessage]()  # it comes last and is not kept, so that earlier messages never change
    if left <= LAST_ROUNDS < settings.plan_rounds:
        ending = [HumanMessage(f"(Rounds left to decide, this one included: {left}.)")]
    first = await brief_message(brief, round.run.get("attachments") or (), round.runtime, model)
    entries = [*state["brief"]["before"], *state["known"], *state.get("journal", ())]
    messages = [
        SystemMessage(instructions(f"plan_{phase}", profile)),
        *await with_images([first, *rounds_of(state)], entries, facts.get("fence", ""), round.runtime, model),
        *ending,
    ]
    quick = role == "triage"
    revises = not quick or facts.get("approved_plan")
    fields = {"executor": cards, "id": revises, "replaces": revises, "drop": revises, "need_thinking": quick}
    fields |= {"reason": False, "schedule": deps.repeats, "complexity": settings.confirm == "complex"}
    fitted = {"submit_plan": plan_tool(*(name for name, is_used in fields.items() if not is_used))}
    tools = [
        *control_tools(round.legal, fitted | (form.tools if form else {})),
        *deps.executors.toolbox.definitions(round.offer.bound),
    ]
    return ModelRequest(
        asked_role,
        messages,
        tools,
        allowance=round.left(),
        passing=len(ending),
        thread=thread_of(round.runtime),
        fence=state["brief"]["fence"],
        voice=round.voice,
        place={"step": "plan", "round": round.record["rounds"] + 1},
        must_call=True,
    )


async def _read_text(round: PlanningRound, message: AIMessage, decision: Decision) -> Decision | UnusableReply:
    """Return the decision in a reply without a call, which is an answer, or why the reply decides nothing.

    If the model has tools, the first text in a row is sent back, because a call was meant to come with it.
    """
    speech, legal, tools = decision.speech, round.legal, round.deps.all_tools(round.settings)
    # A model's own text never has the word that frames foreign text.
    echo = (round.state["brief"]["fence"] or "\0") in speech
    # A printed decision is no answer either, if the model can call tools.
    printed = _is_decision(str(message.text), speech, legal, tools)
    listed = not round.entries and bool(tools) and any(lines_of_steps(speech))
    may_answer = not (echo or printed or listed) and "answer" in legal and any(map(str.isalnum, speech))
    if may_answer and (round.record["texts"] or not tools):
        return Decision("answer", {"text": speech})
    round.note(texts=1)
    problem = ECHO if echo else (LOOKS_LIKE_PLAN if listed else ONLY_TEXT) + (OR_ANSWER if "answer" in legal else "")
    return UnusableReply([problem], printed=printed or round.prints)


async def _take_sent_plan(round: PlanningRound, plan: SentPlan) -> Planning:
    """Take the plan that was sent with looks, none of which failed. Its call is answered, whatever comes of it."""
    call: ToolCall = {"name": "submit_plan", "args": {}, "id": plan["id"], "type": "tool_call"}
    message = AIMessage("", tool_calls=[call])  # stands for the reply, which the rounds have already
    update = await act_on(round, PLANNER, message, Decision("submit_plan", plan["arguments"], id=plan["id"]))
    replies: list[AnyMessage] = [each for each in update.get("transcript", ()) if each is not message]
    rounds_kept = {
        key: [m for m in rounds if m is not message] for key, rounds in update.get("transcripts", {}).items()
    }
    waits = update.get("pending") and rounds_kept  # then the person's answer becomes the call's
    return {
        "planning": round.planning,
        **update,
        "transcript": replies if waits or replies else [ToolMessage("Taken.", tool_call_id=plan["id"])],
        "transcripts": rounds_kept,
    }


async def _objections(round: PlanningRound, decision: Decision) -> list[str]:
    """Return what is wrong with a decision. If nothing is, keep the plan and the language that it declares."""
    arguments, settings = decision.arguments, round.settings
    if decision.kind == "submit_plan":
        plan = await aside(arguments, partial(_read_plan, round, arguments))
        if isinstance(plan, list):
            return plan
        if lost := _lost_criteria(round, plan):
            round.note_correction("lost")
            return lost
        round.plan = plan
    if other_language(arguments.get("language"), settings.speaks) and _may_correct(round, "language"):  # P14
        round.note_correction("language")
        return [f"write what the user reads in this language: {settings.speaks}"]
    if declared := primary_language(arguments.get("language")):
        round.planning = {**round.planning, "language": declared}
        round.state = {**round.state, "language": known_language(declared)}
    return []


async def _go_on(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Ask the model to look or to decide, after a reply that only speaks."""
    return round.go_on([message, HumanMessage(GO_ON)])


async def _answer(round: PlanningRound, message: AIMessage, decision: Decision) -> Planning:
    """Settle the run by the answer. If it is sent back, take back its streamed text, because another one comes."""
    update = await settle_by_answer(round, message, decision)
    if round.speech and "ending" not in update:
        round.speech.restart()
    return update


PLANNER: Role[PlanningRound, Planning] = Role(
    ask=_request,
    read_text=_read_text,
    objections=_objections,
    handlers={
        "speak": _go_on,
        "calls": start_looking,
        "answer": _answer,
        "ask_user": ask_question,
        "submit_plan": take_plan,
        "accept_plan": take_consent,
        "decline": decline,
    },
    example=EXAMPLE,
)


def _is_decision(text: str, speech: str, legal: Sequence[str], tools: Collection[str]) -> bool:
    """Return whether a text contains a printed decision or call, even one that cannot be read (N11)."""
    return holds_calls(text, legal, tools) or _KEYS.search(speech) is not None


def _read_plan(round: PlanningRound, written: Json) -> Json | list[str]:
    """Return the plan, on a replan merged into the approved one, or everything that is wrong with it."""
    state, settings, planning = round.state, round.settings, round.planning
    approved = (state["approval"] or {}).get("plan")
    rules = plan_rules(round.deps, settings, planning["finished"], approved, round.run)
    binding = settings.confirm == "never" and not planning["feedback"]
    rules = replace(rules, approved=approved, failed=planning["failed"], binding=binding)
    ours, problems = in_our_form(written, rules.executors)
    return problems or read_plan(ours, replace(rules, max_steps=1) if settings.mode == "step" else rules)


def _lost_criteria(round: PlanningRound, plan: Json) -> list[str]:
    """Return a correction for criteria of the goal that a new plan leaves out; [] after the planner was told once."""
    texts = plan["change"]["unmentioned"] if "change" in plan else []
    named = ", ".join(f"“{text[:200]}”" for text in texts)
    return [f"to be reached were {named}: {NAME_EACH}"] if texts and _may_correct(round, "lost") else []


def _may_correct(round: PlanningRound, what: Correction) -> bool:
    """Return whether this correction can be made: it was not made yet, and would not be the one that ends planning."""
    return not round.was_corrected(what) and round.record["corrections"] + 1 < round.settings.max_corrections
