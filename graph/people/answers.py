"""The nodes that wait for a person, `confirm` and `ask_user`: they read and check the answer and apply it to the run.

Neither changes anything before its only interrupt, because it runs again from its beginning when the answer comes. Of
several answers each is applied whole or not at all; `advance` continues from the new state. What an answer means and
changes is said by the class of the pause, in `graph/pauses`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphInterrupt
from langgraph.runtime import Runtime

from donewhen.graph.clock import SECOND, current_clock, moment_of
from donewhen.graph.context import Deps
from donewhen.graph.early_answers import drop_early_answer, forget_answer, is_in_outer_graph
from donewhen.graph.events import moment, thread_of
from donewhen.graph.executors.executor import Executors
from donewhen.graph.llm.attachments import with_typed_attachments
from donewhen.graph.pauses.pause import NEED_TOOLS, OpenPause, OpenQuestion, ResolvedAnswer
from donewhen.graph.people.interjections import name_of_words, new_interjection, read_interjections
from donewhen.graph.people.pauses import (
    PURPOSE_CHARS,
    close_pause,
    current_pause,
    keep_open,
    may_answer_another,
    note_problem,
    open_pauses,
    show_again,
    typed_reply,
    wait_for_answer,
    with_reply_last,
    with_words,
)
from donewhen.graph.sync import finish_batch
from donewhen.state.channels import Json, RunState, apply_update, difference
from donewhen.state.language.texts import say
from donewhen.state.people.answers import (
    YES,
    Answer,
    AnswerShape,
    is_message,
    read_shape,
    read_signed,
    sign,
    words_of,
)
from donewhen.state.plan.revise import ShownTool, moved_line
from donewhen.state.records import Pause
from donewhen.state.settings import Settings

AUTHENTICATED = "langgraph_auth_user_id"
"""The key of `configurable` in which LangGraph's server has the user whom it authenticated."""
OVERDUE = {"overdue": True}
"""Stands for the answer to a question that was open longer than `Settings.question_seconds`; the policy answers it."""


async def confirm(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> RunState:
    """Show the plan and apply the answer: approve, edit, cancel, or words, which the planner answers or plans with."""
    return await ask_user(state, runtime, config, deps=deps)


async def ask_user(state: RunState, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> RunState:
    """Apply the answer to the pending question, and any answers to other open questions sent with it."""
    may_be_for_another = may_answer_another(state)
    state = {**state, "messages": with_reply_last(state)}
    settings, pauses = runtime.context, open_pauses(state)
    pauses = with_words(pauses, await _read_interjections(pauses, runtime))
    pending = pauses[0] = current_pause(pauses)
    user = str((config.get("configurable") or {}).get(AUTHENTICATED) or "")
    typed = typed_reply(state["messages"])
    if typed is not None and may_be_for_another and pending.to_people and _lets_happen(pending.read(typed)):
        problem = say(pending.spoken, "unclear", "elsewhere", said=typed[:PURPOSE_CHARS])
        return show_again(state["messages"], pending.but(problem=problem), "Left open.")
    if typed is not None:
        taken = await _take(state, pauses, typed, deps, runtime, user)
        return await with_typed_attachments(state, taken, runtime)
    answered_at_once = isinstance(pending, OpenQuestion) and settings.unattended
    if not answered_at_once and (early := await drop_early_answer(config)) is not None:
        text = early if isinstance(early, str) else json.dumps(early, ensure_ascii=False, default=str)
        pending = pending.but(problem=say(pending.spoken, "unclear", "early", said=text[:PURPOSE_CHARS]))
    value = OVERDUE if answered_at_once else await _wait_for_answer(pending, settings, config)
    if not (sent := _messages_in(pauses, value)):
        return await _take(state, pauses, value, deps, runtime, user)
    state = {**state, "messages": [*state["messages"], *sent]}  # as if they had been typed
    taken = await _take(state, pauses, value, deps, runtime, user)
    return await with_typed_attachments(state, {**taken, "messages": [*sent, *taken.get("messages", ())]}, runtime)


async def _wait_for_answer(pending: OpenPause, settings: Settings, config: RunnableConfig) -> Any:
    """Return what the run is resumed with; pause it if there is no answer yet.

    `OVERDUE` is ignored before its time, and if an answer came after it: LangGraph gives all values again, in order.
    """
    said_overdue = False
    while True:
        try:
            value = wait_for_answer(pending)
        except GraphInterrupt:
            if said_overdue and _policy_answers(pending, settings):
                return OVERDUE
            raise
        if is_in_outer_graph(config):
            await forget_answer(config)
        if value != OVERDUE:
            return value
        said_overdue = True


def _lets_happen(answer: Answer | str) -> bool:
    return isinstance(answer, Answer) and answer.kind in (*NEED_TOOLS, "retry")


def policy_seconds(settings: Settings | None) -> float | None:
    """Return after how many seconds the policy of the settings answers a question; None if it never does."""
    return None if settings is None or settings.on_question == "wait" else settings.question_seconds


def is_overdue(pause: OpenPause, settings: Settings) -> bool:
    """Return whether a question was open so long that the policy of the settings answers it."""
    seconds, asked = policy_seconds(settings), None if pause.to_people else pause.asked_at
    return bool(asked and seconds is not None and moment_of(asked) <= current_clock().now() - seconds * SECOND)


def _policy_answers(pause: OpenPause, settings: Settings) -> bool:
    """Return whether the settings answer a question of which `OVERDUE` is said; without a time, that is believed."""
    if pause.to_people or settings.on_question == "wait":
        return False
    return settings.unattended or not pause.asked_at or is_overdue(pause, settings)


def _messages_in(pauses: Sequence[OpenPause], value: Any) -> list[AnyMessage]:
    """Return the answers that are messages with images or files; to an own interrupt they are values like any other."""
    answers, by_id = _split_answers(value, pauses), {pause.id: pause for pause in pauses}
    each = [(by_id[id], read_signed(answer)[0]) for id, answer in answers.items()] if isinstance(answers, dict) else []
    return [HumanMessage(given) for pause, given in each if is_message(given) and not pause.takes_as_is(given)]


async def _take(
    state: RunState, pauses: Sequence[OpenPause], value: Any, deps: Deps, runtime: Runtime[Settings], user: str
) -> RunState:
    """Take the answer; what somebody else says than who is asked is kept like a message to a run at work."""
    if user and value != OVERDUE:
        value = sign(read_signed(value)[0], user)
    store = runtime.store if runtime.context.when_busy == "next_round" else None
    if store is not None:
        for by, words in _words_of_others(pauses, value).items():
            text = "\n".join(words.values())
            name = name_of_words(str(state.get("request") or ""), words, by, text)
            if new := await new_interjection(store, thread_of(runtime), text, name, repeats=True, by=by):
                await finish_batch(store, [new[1]])
    interjections = await _read_interjections(pauses, runtime)
    return take_answer(state, pauses, value, deps, runtime.context, interjections, hears=store is not None)


async def _read_interjections(pauses: Sequence[OpenPause], runtime: Runtime[Settings]) -> list[Json]:
    """Return what was said to the run if a question is for somebody named; else []."""
    if runtime.store is None or not any(pause.answered_by for pause in pauses):
        return []
    return await read_interjections(runtime.store, thread_of(runtime), "")


def _words_of_others(pauses: Sequence[OpenPause], value: Any) -> dict[str, dict[str, str]]:
    """Return what people say at questions that are not for them: for each of them, by question."""
    answers, by_id, words = _split_answers(value, pauses), {pause.id: pause for pause in pauses}, Json()
    for id, answer in answers.items() if isinstance(answers, dict) else ():
        given, by = read_signed(answer)
        if not by_id[id].counts(by_id[id].read(given), by or "") and (text := words_in(given)):
            words.setdefault(by or "", {})[id] = text
    return words


def words_in(value: Any) -> str:
    """Return the words of an answer; "" if it is a button."""
    shape = read_shape(value)
    return words_of(shape) if isinstance(shape, AnswerShape) else ""


def take_answer(
    state: RunState,
    pauses: Sequence[OpenPause],
    value: Any,
    deps: Deps,
    settings: Settings,
    interjections: Sequence[Json] = (),
    *,
    hears: bool = False,
) -> RunState:
    """Return the update for an answer to the first of the open pauses, or for answers by id to any of them.

    Each is applied by itself, because each may be another person's. A question stays open if it is not answered, or if
    its answer is not understood; then it has what is missing. `interjections`: all that was said to the run.
    `hears`: what those said who are not asked was kept.
    """
    pending, at = pauses[0], moment()
    by_id = {pause.id: pause for pause in pauses}
    answers = _split_answers(value, pauses)
    taken: list[tuple[OpenPause, ResolvedAnswer]] = []
    problems = {pending.id: answers} if isinstance(answers, str) else {}
    for id, value_of_pause in answers.items() if isinstance(answers, dict) else ():
        pause = by_id[id]
        answer, by = _read_answer(pause, value_of_pause, settings, hears=hears)
        if isinstance(answer, Answer):
            answer = missing_for(state, pause, answer, deps.executors, by=by, language=pause.spoken) or answer
        if isinstance(answer, Answer) and value_of_pause != OVERDUE:
            answer = pause.check(state, answer, deps, settings)
        if isinstance(answer, str) or answer.kind == "later":
            problems[id] = answer if isinstance(answer, str) else ""
        else:
            taken.append((pause, ResolvedAnswer(answer, by, at, read_signed(value_of_pause)[1] or "")))
    values: Json = dict(state)
    taken.sort(key=lambda each: each[0].of_run)  # the answer to the run itself comes last: it may end steps that wait
    for pause, decided in taken:  # each on the state after the previous ones
        values = apply_update(values, pause.apply(values, decided))
    for id, problem in problems.items():
        given = answers[id] if isinstance(answers, dict) else value
        values = apply_update(values, note_problem(values, by_id[id], problem, read_signed(given)[0]))
    left = current_pause(with_words(open_pauses(values), interjections))
    if not taken:
        shown = keep_open(values["messages"], left, asks_back=any(problems.values()))
    else:
        decided_now = next((decided for pause, decided in taken if pause.id == pending.id), None)
        shown = _close_asked_pause(values, left, decided_now)
    return {**difference(state, values), **shown}


def missing_tools(
    values: Mapping[str, Any],
    pauses: Sequence[OpenPause],
    value: Any,
    executors: Executors,
    settings: Settings,
    *,
    queued: bool = False,
) -> str:
    """Return which tools an answer to the first of these open questions, or answers by id, need and are not here.

    Such an answer would be used up, and the calls refused. To reject or to cancel needs no tool.
    """
    by_id, answers, lacking = {pause.id: pause for pause in pauses}, _split_answers(value, pauses), list[str]()
    for id, answer_value in answers.items() if isinstance(answers, dict) else ():
        answer, by = _read_answer(by_id[id], answer_value, settings)
        if isinstance(answer, Answer):
            lacking.append(missing_for(values, by_id[id], answer, executors, by=by, queued=queued))
    return "; ".join(filter(None, lacking))


def missing_for(
    values: Mapping[str, Any],
    pause: OpenPause,
    answer: Answer,
    executors: Executors,
    *,
    by: str,
    language: str = "en",
    queued: bool = False,
) -> str:
    """Return which tools the answer needs and are not here, as a sentence in this language, and what to do.

    Where the answer is `queued`, no other one is offered.
    """
    if answer.kind not in ((*NEED_TOOLS, "declined") if by == "policy" else NEED_TOOLS):
        return ""
    steps = pause.tools_after(values, answer)
    if not (missing := dict.fromkeys(name for each in steps for name in executors.missing(*each))):
        return ""
    shown = {executor or "": ShownTool() for executor, _ in steps}
    shown |= {name: one for _, tools in steps for name, one in tools.items()}
    now = {name: executors.tool_now(name) for name in missing}
    moved = [
        moved_line(name, shown[name], now[name], language) for name in missing if not shown[name].covers(now[name])
    ]
    key = "other_tools" if len(moved) == len(missing) else "lacks_tools"
    texts = ["; ".join([*moved, say(language, "unclear", key, id=pause.id, names=", ".join(missing))])]
    for name in missing:
        if others := executors.names_at_servers(name):
            texts.append(say(language, "unclear", "renamed_tool", name=name, others=", ".join(others)))
    if not queued:  # else this answer is the only one, until it is given
        texts.append(say(language, "unclear", "answer_again"))
    return ". ".join(texts)


def _split_answers(value: Any, pauses: Sequence[OpenPause]) -> Json | str:
    """Return the answers in a value by the ids of their questions; one without ids is for the first."""
    if value == OVERDUE:
        return {pauses[0].id: value}
    given, by = read_signed(value)
    answers = pauses[0].split(given, [pause.id for pause in pauses])
    if isinstance(answers, str) or by is None:
        return answers
    return {id: sign(each, by) for id, each in answers.items()}


def _read_answer(
    pause: OpenPause, value: Any, settings: Settings, *, hears: bool = False
) -> tuple[Answer | str, Literal["user", "policy"]]:
    """Return what an answer means, or why it is not taken, and whether a person or the policy gave it.

    If the question was open for too long, or nobody answers questions at all, the settings answer it.
    """
    if value == OVERDUE and _policy_answers(pause, settings):
        return pause.by_policy(settings), "policy"
    given, by = read_signed(value)
    answer = pause.read(given)
    if not pause.counts(answer, by or ""):
        is_kept = hears and (words_in(given) or (is_message(given) and not pause.takes_as_is(given)))
        kept = f" {say(pause.spoken, 'unclear', 'message_kept')}" if is_kept else ""
        return f"{pause.for_others()}{kept}", "user"
    return answer, "policy" if by == YES else "user"


def _close_asked_pause(values: Mapping[str, Any], pending: OpenPause, decided: ResolvedAnswer | None) -> RunState:
    """Close the current question; without an answer it stays open, or is asked again later."""
    messages = values["messages"]
    if decided is not None or values.get("ending"):
        text = pending.closing(decided.answer) if decided else "Ended."
        by_person = decided is not None and decided.by == "user"
        by = decided.name if decided and pending.answered_by else ""
        return {"pending": None, "messages": close_pause(messages, pending, text, answered=by_person, by=by)}
    if pending.comes_back:
        # Answered steps continue first; this question is asked again afterwards.
        lacks: Pause | None = None
        if pending.problem:
            lacks = {"id": pending.id, "problem": pending.problem, "draft": pending.draft}
        shown = close_pause(messages, pending, "Asked again later.")
        return {"pending": None, "put_off": lacks, "messages": shown}
    return show_again(messages, pending, "Asked again.")
