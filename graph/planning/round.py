"""The two phases of planning: a quick triage without thinking and, where it pays, a careful draft."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit, emit_charge, thread_of
from donewhen.graph.executors.executor import Card
from donewhen.graph.llm.ask import ModelReply, Question, ask
from donewhen.graph.llm.attachments import brief_message, with_images
from donewhen.graph.llm.briefs import offer_for_planning, planning_brief, profile_text
from donewhen.graph.llm.endings import reached_limit
from donewhen.graph.llm.history import calls_natively, rounds_of, storable_reply
from donewhen.graph.llm.output import form_of
from donewhen.graph.llm.printed import holds_calls
from donewhen.graph.llm.reply import Decision, UnusableReply, aside, read_reply
from donewhen.graph.llm.speech import SpeechStream, Voice
from donewhen.graph.people.consent import plan_rules
from donewhen.graph.people.interjections import with_interjections
from donewhen.graph.planning.agreement import take_consent
from donewhen.graph.planning.outcomes import (
    PlanningRound,
    ask_question,
    decline,
    fail_planning,
    out_of_budget,
    out_of_rounds,
    planning_cursor,
    refuse,
    rounds_left,
    send_correction,
    settle_by_answer,
    start_looking,
    take_plan,
)
from donewhen.prompts import instructions
from donewhen.state.channels import Json, Planning
from donewhen.state.language.texts import known_language, other_language, primary_language, say_why
from donewhen.state.ledger import add, allowance_left, first_exhausted
from donewhen.state.pattern import pattern
from donewhen.state.plan.elsewhere import in_our_form, lines_of_steps
from donewhen.state.plan.plan import read_plan
from donewhen.state.reading.decisions import control_tools, plan_tool
from donewhen.state.records import PlanningRecord
from donewhen.state.settings import Settings

ALONE = "a text alone decides nothing: make one of the calls"
ANSWER = ", `answer` if it is your answer"
KEEP = "name each in its words, in the `done_when` of the plan or of a step that reaches it, or in `drop` and why"
_KEYS = pattern(
    r"[\"'](?:action|plan_steps|tool_calls?|done_when)[\"']\s*:|\bsubmit_plan\b|\bask_user\b"
    r"|[\"'](?:steps|tasks|todos?)[\"']\s*:\s*\[\s*[^\]\s]|^[ \t]*(?:steps|plan_steps|tasks|todos?)[ \t]*:[ \t]*$",
    re.MULTILINE,
)
"""Only a printed decision or plan contains these, however broken it is."""
STEPS = "this reads like the steps of a plan: submit_plan if it is one"
ECHO = "this repeats what you were given; decide by one call"


ROLE = {"triage": "triage", "draft": "plan"}
"""The role of the model by phase; the prompts are named after the phase."""
LAST_ROUNDS = 2
NOT_TAKEN = "The plan was not taken: the user said something meanwhile, which comes next. Follow it, and decide again."
GO_ON = "Go on: look, or decide."


async def triage(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Phase 1: quick, without thinking. It reads, answers, asks, declines or plans (P01, P02, P20)."""
    return await _plan_round(state, runtime, config, deps)


async def draft(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Planning:
    """Phase 2: with thinking; only when triage asks for it, or when a plan failed (P03)."""
    return await _plan_round(state, runtime, config, deps)


async def _plan_round(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Planning:
    """Run a round, including what the user said since the last one."""
    then = "The user says this while you plan. Follow it."
    cursor = planning_cursor(state)
    now, said = await with_interjections(state, "planning", cursor, runtime, then)
    if said and (plan := now["planning"].get("then")):
        said = [ToolMessage(NOT_TAKEN, tool_call_id=plan["id"]), *said]
        planning = cast(PlanningRecord, {**now["planning"], "then": None})
        now = {**now, "planning": planning, "transcript": [*state.get("transcript", ()), *said]}
    update = await _ask_and_act(now, runtime, config, deps)
    return {**update, "transcript": [*said, *update.get("transcript", ())]} if said else update


async def _ask_and_act(state: Planning, runtime: Runtime[Settings], config: RunnableConfig, deps: Deps) -> Planning:
    """Make one model call of the phase, and act on the reply."""
    about_plan = bool(state["planning"].get("shown"))  # what is answered then is not the result
    voice = Voice(runtime, inside=True, ends=not about_plan)
    form = None if about_plan else form_of(state["brief"].get("output_schema"))
    round = PlanningRound(state, runtime, deps, voice=voice, form=form, config=config)
    settings, planning = round.settings, round.planning
    if then := planning.get("then"):
        update = await _take_then(round.with_record(then=None), then)
        return {**update, **_spoken(update)}
    if rounds_left(planning, settings) < 1:
        return out_of_rounds(round)
    if settings.is_late():
        return fail_planning(round, "out_of_budget", say_why(round.language, "deadline", deadline=settings.deadline))
    if key := first_exhausted(allowance_left(state), ("model_calls",)):
        return out_of_budget(round, key)
    round, reply = await _ask_with_tools(round, voice)
    emit_charge(runtime, None, reply.spent)
    after: PlanningRecord = {**planning, "rounds": planning["rounds"] + 1}
    round = replace(round, state={**state, "planning": after, "spent": add(state.get("spent"), reply.spent)})
    if reply.error and reply.error.retryable:  # more budget or time would allow a retry
        if key := first_exhausted(allowance_left(round.state), ("model_calls",)):
            return {"planning": after, **out_of_budget(round, key), "spent": reply.spent}
        if settings.is_late():
            return {"planning": after, "spent": reply.spent}
    update = await _act_on(round, reply)
    messages = [*voice.messages(), *update.get("messages", ())]
    return {
        "planning": after,
        **update,
        **_spoken(update),
        "messages": messages,
        "spent": add(reply.spent, update.get("spent")),
    }


async def _ask_with_tools(round: PlanningRound, voice: Voice) -> tuple[PlanningRound, ModelReply]:
    """Ask with an offer of tools, and again with fewer if the server says how many it takes."""
    state, deps, settings = round.state, round.deps, round.settings
    offer = await offer_for_planning(deps, settings, state["brief"]["goal"], round.planning)
    offered = replace(round, offer=offer)
    reply = await ask(deps, settings, await _question(offered, await deps.executors.cards(), voice))
    if not reply.needs_fewer_tools:
        return offered, reply
    paid = {**state, "spent": add(state.get("spent"), reply.spent)}
    last, again = await _ask_with_tools(replace(round, state=cast(Planning, paid)), voice)
    return last, replace(again, spent=add(reply.spent, again.spent))


def _spoken(update: Planning) -> Planning:
    """Return the language of the run's texts, as the last decision declares it."""
    said = (update.get("planning") or {}).get("language")
    return {"language": said} if said else {}


async def _question(round: PlanningRound, cards: Mapping[str, Card], voice: Voice) -> Question:
    """Return the request: instructions and tools, the brief, the rounds. Earlier parts never change."""
    state, deps, settings, form = round.state, round.deps, round.settings, round.form
    phase = round.planning["phase"]
    role = ROLE[phase]
    facts = {**state["brief"], "proposal": round.planning.get("proposal"), "today": settings.today_text}
    facts["cards"] = cards
    profile = profile_text(settings.profile, language=settings.speaks)
    brief = planning_brief(deps, settings, facts, round.offer, full=role == "plan")
    by = "plan" if round.planning.get("stand_in") else role
    model = partial(deps.model, by, settings)
    left = rounds_left(state["planning"], settings)
    ending = list[HumanMessage]()  # it comes last and is not kept, so that earlier messages never change
    if left <= LAST_ROUNDS < settings.plan_rounds:
        ending = [HumanMessage(f"(Rounds left to decide, this one included: {left}.)")]
    first = await brief_message(brief, state.get("attachments", ()), round.runtime, model)
    entries = [*state["brief"].get("before", ()), *state.get("known", ()), *state.get("journal", ())]
    messages = [
        SystemMessage(instructions(f"plan_{phase}", profile)),
        *await with_images([first, *rounds_of(state)], entries, facts.get("fence", ""), round.runtime, model),
        *ending,
    ]
    quick = role == "triage"
    again = not quick or facts.get("approved_plan")
    used = {"executor": cards, "id": again, "replaces": again, "drop": again, "need_thinking": quick, "reason": False}
    used |= {"schedule": deps.repeats}
    own = {"submit_plan": plan_tool(*(name for name, use in used.items() if not use))}
    tools = [
        *control_tools(round.legal, own | (form.tools if form else {})),
        *deps.executors.toolbox.definitions(round.offer.bound),
    ]
    return Question(
        by,
        messages,
        tools,
        allowance=allowance_left(state),
        passing=len(ending),
        thread=thread_of(round.runtime),
        fence=state["brief"].get("fence", ""),
        voice=voice,
        place={"step": "plan", "round": state["planning"]["rounds"] + 1},
        must_call=True,
    )


async def _act_on(round: PlanningRound, reply: ModelReply) -> Planning:
    """Return the changes that the reply makes; `round` is counted already."""
    settings, planning, legal = round.settings, round.planning, round.legal
    if reply.message is None:
        assert reply.error is not None
        if reply.error.code == "content_filter" and not planning.get("sketched"):
            return refuse(round, reply.error)
        if _another_plans(round):
            emit(round.runtime, "note", text=f"The model of the planner takes over triage: {reply.error}"[:500])
            return {"planning": {**planning, "stand_in": True}}
        return fail_planning(round, "model_error", str(reply.error))
    message = await aside(reply.message, partial(storable_reply, reply.message))
    native = calls_natively(rounds_of(round.state))
    read = partial(
        read_reply, reply.message, legal, round.deps.reads(settings, round.state.get("approval")), printed=not native
    )
    outcome = await aside(reply.message, read)
    alone = isinstance(outcome, Decision) and outcome.kind == "speak"
    if alone and outcome.arguments:  # type: ignore[union-attr]  # it says something and goes on, which is a round
        if reply.speech:
            reply.speech.finish(outcome.speech)
        return {"transcript": [message, HumanMessage(GO_ON)]}
    # A model's own text never has the word that frames foreign text.
    echo = alone and (round.state["brief"].get("fence") or "\0") in outcome.speech
    # A printed decision is no answer either, if the model can call tools.
    printed = alone and _is_decision(str(reply.message.text), outcome.speech, legal, round.deps.all_tools(settings))
    no_answer = echo or not alone or reached_limit(message) or printed
    listed = not round.entries and bool(round.deps.all_tools(settings)) and any(lines_of_steps(outcome.speech))
    may_answer = not no_answer and not listed and "answer" in legal and any(map(str.isalnum, outcome.speech))
    if may_answer and (planning.get("texts") or not round.deps.all_tools(settings)):
        outcome, alone = Decision("answer", {"text": outcome.speech}), False
    # A text alone decides nothing and is repeated with the decision, so it is not shown twice.
    said = "" if alone else outcome.speech
    if alone:
        no_call = ECHO if echo else (STEPS if listed else ALONE) + (ANSWER if "answer" in legal else "")
        round, outcome = round.with_record(texts=1), UnusableReply([no_call], printed=printed or not native)
    return await _carry_out(round, message, outcome, said, reply.speech)


async def _take_then(round: PlanningRound, then: Json) -> Planning:
    """Carry out a plan that was sent with looks, now that none of them failed; its call is answered in any case."""
    called: ToolCall = {"name": "submit_plan", "args": {}, "id": then["id"], "type": "tool_call"}
    message = AIMessage("", tool_calls=[called])  # stands for the reply, which the rounds have already
    update = await _carry_out(round, message, Decision("submit_plan", then["arguments"], id=then["id"]))
    told: list[AnyMessage] = [each for each in update.get("transcript", ()) if each is not message]
    kept = {key: [m for m in rounds if m is not message] for key, rounds in update.get("transcripts", {}).items()}
    answered = told or [ToolMessage("Taken.", tool_call_id=then["id"])]
    waits = update.get("pending") and kept
    return {"planning": round.planning, **update, "transcript": told if waits else answered, "transcripts": kept}


async def _carry_out(
    round: PlanningRound,
    message: AIMessage,
    outcome: Decision | UnusableReply,
    said: str = "",
    speech: SpeechStream | None = None,
) -> Planning:
    """Return the changes that a decision makes, or the correction of a reply that is none."""
    settings, planning = round.settings, round.planning
    plan: Json = {}
    if isinstance(outcome, Decision) and outcome.kind == "submit_plan":
        found = await aside(outcome.arguments, partial(_read_plan, round, outcome.arguments))
        if lost := _lost_criteria(round, found):
            found, round = lost, round.with_record(lost_told=True)
        round = round.with_record(reason=str(outcome.arguments.get("reason") or planning.get("reason") or ""))
        outcome, plan = (UnusableReply(found), plan) if isinstance(found, list) else (outcome, found)
    if isinstance(outcome, Decision) and _wrong_language(round, outcome.arguments):
        outcome = UnusableReply([f"write what the user reads in this language: {settings.speaks}"])
        round = round.with_record(language_told=True)
    if isinstance(outcome, Decision) and primary_language(outcome.arguments.get("language")):
        declared = outcome.arguments["language"]
        round = round.with_record(language=known_language(declared), declared=primary_language(declared))
    taken = outcome if isinstance(outcome, Decision) else Decision("speak")
    if speech:
        speech.finish(said, taken.kind, taken.arguments)
    if isinstance(outcome, UnusableReply):
        return send_correction(round, message, outcome)
    emit(round.runtime, "decision", step=None, kind=outcome.kind, tools=[call["name"] for call in outcome.calls])
    if plan:
        return await take_plan(round, message, outcome, plan)
    if outcome.kind == "answer":
        update = await settle_by_answer(round, message, outcome)
    elif outcome.kind == "ask_user":
        update = await ask_question(round, message, outcome)
    elif outcome.kind == "accept_plan":
        update = await take_consent(round, message)
    else:
        update = {"calls": start_looking, "decline": decline}[outcome.kind](round, message, outcome)
    if speech and outcome.kind == "answer" and "ending" not in update:
        speech.restart()  # it was sent back, and its text comes again
    return update


def _another_plans(round: PlanningRound) -> bool:
    """Return whether triage has a model of its own, for which that of the planner can stand in."""
    if round.planning["phase"] != "triage" or round.planning.get("stand_in"):
        return False
    return round.deps.chosen("triage", round.settings) != round.deps.chosen("plan", round.settings)


def _is_decision(text: str, speech: str, legal: Sequence[str], tools: Collection[str]) -> bool:
    """Return whether a text contains a printed decision or call, even an unreadable one (N11)."""
    return holds_calls(text, legal, tools) or _KEYS.search(speech) is not None


def _read_plan(round: PlanningRound, written: Json) -> Json | list[str]:
    """Return the plan, on a replan merged into the approved one, or everything that is wrong with it."""
    state, settings, planning = round.state, round.settings, round.planning
    before = (state.get("approval") or {}).get("plan")
    rules = plan_rules(round.deps, settings, planning.get("finished"), before, state.get("unfinished"))
    binding = settings.confirm == "never" and not planning.get("feedback")
    rules = replace(rules, approved=before, failed=planning.get("failed") or (), binding=binding)
    ours, problems = in_our_form(written, rules.executors)
    return problems or read_plan(ours, replace(rules, max_steps=1) if settings.mode == "step" else rules)


def _lost_criteria(round: PlanningRound, plan: Json | list[str]) -> list[str]:
    """Return corrections for criteria of the goal that a new plan leaves out; the planner is told once."""
    texts = plan.get("change", {}).get("came_back", []) if isinstance(plan, dict) else []
    told = round.planning.get("lost_told") or round.planning["corrections"] + 1 >= round.settings.max_corrections
    named = ", ".join(f"“{text[:200]}”" for text in texts)
    return [f"to be reached were {named}: {KEEP}"] if texts and not told else []


def _wrong_language(round: PlanningRound, said: Json) -> bool:
    """Return whether a decision declares another language than the configured one; corrected once (P14)."""
    planning, settings = round.planning, round.settings
    if planning.get("language_told") or planning["corrections"] + 1 >= settings.max_corrections:
        return False
    return bool(other_language(said.get("language"), settings.speaks))
