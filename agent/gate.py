"""The gate for answers: it decides, strictly by id, which question an answer is for. A stale answer changes nothing."""

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.types import Command

from donewhen.agent.run import Run
from donewhen.graph.executors.executor import Executors
from donewhen.graph.pauses.pause import OpenPause, is_pause_id, load_pause, meanwhile_text, named_pauses
from donewhen.graph.people.answers import OVERDUE, is_overdue, missing_tools, words_in
from donewhen.graph.people.interjections import name_of_words
from donewhen.graph.people.pauses import current_pause, open_pauses, typed_reply, with_reply_last
from donewhen.graph.receive import STEER, was_cut_off
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, ResumeError, StaleAnswer, ToolMissing
from donewhen.state.language.texts import say, says_continue
from donewhen.state.people.answers import Answer, is_message, read_signed, sign
from donewhen.state.records import Pause
from donewhen.state.secrets import conceal, redact
from donewhen.state.settings import Settings
from donewhen.state.values import clean_text, json_problem, map_texts
from donewhen.state.versions import migrate

_log = logging.getLogger("donewhen")
ANSWER_LATER = "; `submit_answer` (`donewhen resume --detach`) leaves the answer for when that is done"
_INTERRUPT_ID = re.compile(r"[0-9a-f]{32}")


Seen = Mapping[str, Sequence[Mapping[str, Any]]]
"""What others had said when questions were shown, by the ids of these, as far as the caller knows."""


class NotAsked(ResumeError):
    """Somebody answers a question that is for somebody else. The text is for people, the notes are for programs."""

    def __init__(
        self, run: Run, asked: Sequence[OpenPause], values: Sequence[Any], by: str, unread: Mapping[str, str]
    ) -> None:
        """`values`: their answers to what others are asked; `unread`: what is wrong with their other ones."""
        words = "\n".join(filter(None, map(words_in, values)))
        ids = [pause.id for pause in asked]
        asks = _name_each({**unread, ids[0]: asked[0].for_others()})
        has_files = any(map(is_message, values))  # its images and files are no words, which alone are kept
        files = f" {say(asked[0].spoken, 'unclear', 'files_not_kept')}" if has_files else ""
        super().__init__(f"{asks}{files}", [*unread, *ids])
        self.words: str = words
        """What they say; "" if they pressed buttons."""
        self.said: str = name_of_words(run.request, ids, by, words)
        """A name of these words at these questions, by which they are kept once: bots deliver some twice."""
        self._is_whole: bool = not (unread or has_files)
        self._kept: str = f"{asks} {say(asked[0].spoken, 'unclear', 'message_kept')}{files}"
        self.add_note(
            f"answer with by={asked[0].answered_by!r}; tell({run.thread_id!r}, …, by=…) keeps the words of others"
        )

    def kept(self) -> ResumeError:
        """Return the error for words that are kept."""
        error = ResumeError(self._kept, self.pending)
        error.is_kept = self._is_whole
        return error


def question_for(shown: Run | str, question: str | Mapping[str, Any] | None = None) -> tuple[str, Seen]:
    """Return the id of the question that an answer is for, "" for the current one, and what was shown with it.

    The id is that of `question`, if it is not blank, or of the run's current question. For a run without one, it
    matches no question. Raises ConfigError if `question` is neither an id nor a question.
    """
    asked: Sequence[Mapping[str, Any]] = shown.pending if isinstance(shown, Run) else ()
    if isinstance(question, Mapping):
        asked, question = [question], question.get("id") or None
        if not isinstance(question, str):
            raise ConfigError("question is an id, or a question of `Run.pending` or `Agent.pending()`, which has one")
    seen = {str(pause["id"]): pause["meanwhile"] for pause in asked if "meanwhile" in pause}
    if question or not isinstance(shown, Run):
        return question or "", seen
    return str(shown.pending[0]["id"]) if shown.pending else f"the question of a {shown.status} run", seen


def admit(run: Run, row: Json, values: Mapping[str, Any], answer: Any, question: str = "", by: str = "") -> Json:
    """Return answers by question id: `answer`, and the answers already queued for a worker. Raises StaleAnswer.

    `answer` is for the question with the id `question`, by default the current one; or it is `{id: answer}`. `by` is
    who gives it. `values` are the run's state.
    """
    queued = queued_answers_to(run, row) if row.get("status") == "queued" else {}
    left = run.without(queued) if queued else run
    return {**queued, **address_answer(left, values, answer, question, by, queued)}


def queued_answers(row: Json) -> Json:
    """Return the answers queued for a worker in a thread's row, by id."""
    return (row.get("request") or {}).get("answers") or {}


def queued_answers_to(run: Run, row: Json) -> Json:
    """Return the queued answers to questions of the run that are still open."""
    open_ids = {pause["id"] for pause in run.pending}
    return {id: value for id, value in queued_answers(row).items() if id in open_ids}


def open_at_work(values: Mapping[str, Any]) -> list[OpenPause]:
    """Return the questions in the state of a run at work that an answer can reach: none once its end is decided, and
    not the one for which a typed answer is there.
    """
    pauses = [] if values.get("ending") else open_pauses(migrate(dict(values)))
    typed = current_pause(pauses).id if pauses and typed_reply(with_reply_last(values)) is not None else ""
    return [pause for pause in pauses if pause.id != typed]


def address_answer(
    run: Run,
    values: Mapping[str, Any],
    answer: Any,
    question: str = "",
    by: str | None = None,
    taken: Mapping[str, Any] | None = None,
) -> Json:
    """Return the answer as `{question id: answer}`, each signed by `by`; if that is None, they are signed already.

    `taken`: answers, by id, that a worker has and the run's state does not have yet. Raises StaleAnswer unless all
    these questions are open; it says what was decided on them, or who answered, as far as state and `taken` know it.
    """
    pauses = {pause["id"]: pause for pause in run.pending}
    if not pauses:
        still_open = [pause.id for pause in open_at_work(values)] if run.status == "running" else []
        hint = "; without an answer it goes on, and by `steer` in another way" if run.status == "running" else ""
        if still_open:
            hint += f"; {', '.join(still_open)} is open{ANSWER_LATER}"
        rows = find_decisions(values, taken, answer, question)
        decided = describe_decisions(rows) or _say_end(run, values) or describe_decisions(_decisions(values)[-1:])
        text = f"thread {run.thread_id} waits for no answer: it is {run.status}{hint}{decided}"
        raise StaleAnswer(text, still_open, decided=rows)
    first = run.pending[0]
    asked = first["id"] if question in ("", first["interrupt_id"]) else question
    answers = _with_pause_ids(run, answer) or {asked: answer}
    if unknown := [str(id) for id in answers if id not in pauses]:
        open_text = f"open: {', '.join(pauses)} ({str(first.get('question') or '')[:200]})"
        how = f"resume({run.thread_id!r}, answer, question={first['id']!r}), in the command --id {first['id']}"
        rows = find_decisions(values, taken, answers, unknown[0])
        text = f"nothing waits under {', '.join(unknown)}{describe_decisions(rows)}; {open_text}"
        raise StaleAnswer(f"{text}. To answer that: {how}", list(pauses), decided=rows)
    answers = {id: _storable(value) for id, value in answers.items()}
    for id, signed in answers.items():
        value = read_signed(signed)[0] if by is None else signed
        if value == OVERDUE:
            raise ResumeError(f"{value} is no answer to {id}: only the run itself writes that nobody answered in time")
        interrupt_id = value.get("interrupt_id") if isinstance(value, Mapping) else None
        if interrupt_id is not None and interrupt_id != pauses[id].get("interrupt_id"):
            text = f"the answer is for {interrupt_id}, which does not wait; open: {', '.join(pauses)}"
            raise StaleAnswer(text, [*pauses])
        if reason := load_pause(pauses[id]).stale_reason(value, list(pauses)):
            rows = find_decisions(values, None, value)
            raise StaleAnswer(f"{reason}{describe_decisions(rows)}", list(pauses), decided=rows)
    if by:
        _log.info("%s: %s answers %s", run.thread_id, by, ", ".join(answers))
    return {id: sign(value, by) for id, value in answers.items()}


def find_decisions(
    values: Mapping[str, Any], taken: Mapping[str, Any] | None, answer: Any, question: str = ""
) -> list[Json]:
    """Return what was decided on the questions that an answer names, when and by whom, as far as it is known.

    Of answers that were `taken` for a worker it is not known yet what they mean; if the answer names no question, all
    of them are meant. Others are known of the state's last request.
    """
    given, named = taken or {}, _named_by(answer, question)
    ids = [id for id in given if id in named] or ([] if question else [*given])
    rows = [_taken_row(id, *read_signed(given[id])) for id in ids]
    return rows or [row for row in _decisions(values) if row["id"] in named]


def _taken_row(id: str, answer: Any, name: str | None) -> Json:
    kind = answer.get("type") if isinstance(answer, Mapping) else None
    return {"id": id, "decision": kind or "", "text": redact(words_in(answer)), "name": name or "", "at": ""}


def describe_decisions(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return decisions in words, to stand behind a sentence."""
    return "".join(map(_describe_decision, rows))


def _decisions(values: Mapping[str, Any]) -> list[Json]:
    """Return the decisions of the state's last request, in order."""
    rows = [row for row in values.get("approvals") or () if row["decision"] != "say"]  # words decide nothing
    for entry in values.get("journal") or ():
        if asked := entry["arguments"].get("asked") if entry["source"] == "user" else None:
            decided = {"decision": "answer", "text": entry["text"]} if entry["ok"] else {"decision": "none", "text": ""}
            rows.append({**entry["arguments"], **decided, "id": asked, "at": entry["at"]})
    rows = [{**row, "text": redact(str(row.get("text") or ""))} for row in rows]
    return sorted(rows, key=lambda row: str(row["at"]))


def _named_by(answer: Any, question: str) -> set[str]:
    return {question, *(answer if isinstance(answer, Mapping) else ()), *named_pauses(answer)}


def _say_end(run: Run, values: Mapping[str, Any]) -> str:
    """Return why a run was cancelled, and by whom if that was an answer; "" if it was not."""
    if run.outcome is None or run.status != "cancelled":
        return ""
    by_answer = [row for row in (values.get("approvals") or ())[-1:] if row["decision"] == "cancel"]
    return f": {redact(str(run.outcome['reason']))[:200]}" + "".join(
        _describe_decision({**row, "text": ""}) for row in by_answer
    )


def _describe_decision(row: Mapping[str, Any]) -> str:
    """Return a decision as one line, without secrets."""
    if not row["at"]:
        return f"; {row['id']} was answered{f' by {name}' if (name := row['name']) else ''} already"
    text = f" {row['text'][:200]!r}" if row["text"] else ""
    name = row.get("name") or ("the settings" if row["by"] == "policy" else "")
    by = f", by {name}" if name else ""
    return f"; decided on {row['id']}: {row['decision']}{text}{by}, {row['at']}"


def read_understood(run: Run, answers: Json, seen: Seen) -> tuple[Json, ResumeError | None]:
    """Return the answers to store, and the error for those that count for nothing; None if all count.

    Those that put their question off are neither. The error is a NotAsked if a question is for somebody else, and a
    StaleAnswer if others have said more than was shown with it, unless the answer is a no.
    """
    understood: Json = {}
    unread, stale = dict[str, str](), dict[str, str]()
    others, values, name = list[OpenPause](), list[Any](), ""
    for pause in (each for each in run.pending if each["id"] in answers):
        asked, (value, by) = load_pause(pause), read_signed(answers[pause["id"]])
        meant = asked.read(value)
        if not asked.counts(meant, by or ""):
            others.append(asked)
            values.append(value)
            name = by or ""
        elif not _is_no(meant) and (words_since := _words_unseen(asked, seen.get(asked.id), by or "")):
            stale[asked.id] = (
                f"more was said since it was shown. {words_since} If your answer still holds, give it again"
            )
        elif isinstance(meant, str) and "schema" not in pause:
            unread[asked.id] = meant
        elif isinstance(meant, str) or meant.kind != "later":
            understood[asked.id] = answers[asked.id]
    if others:
        return understood, NotAsked(run, others, values, name, {**unread, **stale})
    if stale:
        each = [f"{id}: {problem}" for id, problem in {**stale, **unread}.items()]
        return understood, StaleAnswer("; ".join(each), [*stale, *unread])
    return understood, ResumeError(_name_each(unread), list(unread)) if unread else None


def _is_no(answer: Answer | str) -> bool:
    return not isinstance(answer, str) and answer.kind in ("reject", "cancel", "stop")


def _words_unseen(asked: OpenPause, shown: Sequence[Mapping[str, Any]] | None, by: str) -> str:
    """Return what others said to a question since it was `shown` with these words; "" if nobody knows these."""
    if shown is None:
        return ""
    known = {(row.get("by"), row.get("at")) for row in shown}
    rows = [row for row in asked.meanwhile if row["by"] != by and (row["by"], row["at"]) not in known]
    return meanwhile_text(map_texts(rows, conceal), asked.spoken)


def _name_each(problems: Mapping[str, str]) -> str:
    """Return what is wrong with answers; if they are several, each behind the id of its question."""
    if len(problems) == 1:
        return next(iter(problems.values()))
    return " ".join(f"{id}: {problem}" for id, problem in problems.items())


def _with_pause_ids(run: Run, answer: Any) -> Json | None:
    """Return answers by pause id, with LangGraph's interrupt id replaced by it; None if the answer is not by id."""
    if not isinstance(answer, Mapping) or not answer or not all(isinstance(key, str) for key in answer):
        return None
    first = run.pending[0]
    open_ids = {pause["id"] for pause in run.pending} | {first["interrupt_id"]}
    if not (open_ids & set(answer) or all(is_pause_id(key) or _INTERRUPT_ID.fullmatch(key) for key in answer)):
        return None
    return {first["id"] if id == first["interrupt_id"] else id: value for id, value in answer.items()}


def _storable(value: Any) -> Any:
    """Return the answer if it can be stored, else a marker that it is unreadable."""
    if isinstance(value, str):
        return clean_text(value)
    return {"unreadable": problem} if (problem := json_problem(value)) else value


def resume_command(
    run: Run, answers: Json, values: Mapping[str, Any], executors: Executors, settings: Settings, *, queued: bool
) -> Command[Any] | None:
    """Return the command that gives these answers to the current question; None if there are none.

    Raises ToolMissing if the `executors` lack a tool that the step of a question is about to call; of answers that are
    `queued`, it offers no other answer.
    """
    if not answers:
        return None
    first = run.pending[0]
    answer_given = answers[first["id"]] if list(answers) == [first["id"]] else {"answers": answers}
    if missing := missing_tools(
        values, [load_pause(pause) for pause in run.pending], answer_given, executors, settings, queued=queued
    ):
        raise ToolMissing(missing)
    return Command(resume={first["interrupt_id"]: answer_given})


def steer_input(run: Run, steer: str, values: Any) -> Json | None:
    """Return the input that plans a stopped run anew; None to continue it. `values` are the run's state.

    Raises StaleAnswer if it was not stopped, or where the words would be a new request.
    """
    if run.status != "running":
        open_ids = [pause["id"] for pause in run.pending]
        raise StaleAnswer(f"thread {run.thread_id} was not stopped: it is {run.status}", open_ids)
    if says_continue(steer):
        return None
    if not was_cut_off(values):  # its request has not begun, or has ended and its audit was stopped
        raise StaleAnswer(
            f"thread {run.thread_id} has no plan that could be changed; resume({run.thread_id!r}) goes on"
        )
    return to_stopped([HumanMessage(clean_text(steer))])


def to_stopped(messages: Sequence[AnyMessage]) -> Json:
    """Return the input of the graph with these messages, the last of which is marked as being for a stopped run."""
    *before, last = messages
    marked = last.model_copy(update={"additional_kwargs": {**last.additional_kwargs, STEER: True}})
    return {"messages": [*before, marked]}


def overdue_answers(run: Run, settings: Settings) -> Json:
    """Return, by id, the policy's answers to questions that were open too long."""
    return {pause["id"]: OVERDUE for pause in run.pending if is_overdue(load_pause(pause), settings)}


def left_to_policy(pending: Iterable[Pause]) -> dict[str, str]:
    """Return the questions that a policy may answer, and not only people: the time when each was asked, by id."""
    times = {pause["id"]: pause.get("asked_at") for pause in pending if not load_pause(pause).to_people}
    return {id: str(at) for id, at in times.items() if at}
