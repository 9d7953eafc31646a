"""Pauses: which are open, their ids, and the messages that show them in the conversation."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt

from donewhen.graph.events import moment
from donewhen.graph.llm.speech import push_rest
from donewhen.graph.pauses.pause import OpenPause, language_field, load_pause, new_call_id
from donewhen.graph.pauses.question import QuestionPause
from donewhen.graph.people.tasks import close_tasks
from donewhen.state.channels import ANSWERED_BY, OWN_WORDS, SPEECH_PREFIX, TASK, Json, RunState
from donewhen.state.language.short_replies import read_word
from donewhen.state.pattern import pattern
from donewhen.state.people.answers import read_draft
from donewhen.state.proof.journal import same_question
from donewhen.state.records import ACTIONS, Meanwhile
from donewhen.state.statuses import record_of

_NAME = pattern(r"\A(?:\d+:)?(.*?)(?:~\d+)?", re.DOTALL)
PURPOSE_CHARS = 200
PUT_AWAY = "Put away for another request."


def pause_message(pending: OpenPause) -> AIMessage:
    """Return the message that shows a pause: its text, and a tool call named like the action for clients to draw."""
    call: Any = {"name": pending.action, "args": pending.short_arguments(), "id": pending.tool_call_id}
    return AIMessage(pending.message_text(), id=pending.message_id, tool_calls=[{**call, "type": "tool_call"}])


def close_pause(
    messages: Sequence[BaseMessage], pending: OpenPause, text: str, *, answered: bool = False, by: str = ""
) -> list[AnyMessage]:
    """Return the result of the pause's tool call, unless a client has written one already.

    `answered`: a person said the text, `by` somebody named. Otherwise it is the runtime's own, and is marked so.
    """
    call = pending.tool_call_id
    is_closed = any(isinstance(message, ToolMessage) and message.tool_call_id == call for message in messages)
    author: Json = {ANSWERED_BY: by} if by else {}
    marks = author if answered else {OWN_WORDS: True}
    return [] if is_closed else [ToolMessage(text, tool_call_id=call, name=pending.action, additional_kwargs=marks)]


def with_fresh_call(messages: Sequence[BaseMessage], pending: OpenPause) -> OpenPause:
    """Return the pause with a new tool call, if the conversation has its current one already."""
    used = any(
        call["id"] == pending.tool_call_id
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    )
    return _with_new_call(pending) if used else pending


def _with_new_call(pending: OpenPause) -> OpenPause:
    """Return the pause as a new message shows it."""
    return pending.but(tool_call_id=new_call_id(), message_id=None)


def typed_reply(messages: Sequence[BaseMessage]) -> str | None:
    """Return what the user typed into the chat instead of answering the pause; None if nothing."""
    last = messages[-1] if messages else None
    return last.text if isinstance(last, HumanMessage) else None


def with_reply_last(values: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the conversation with what was typed last since the open question at its end, as one message.

    In an outer graph others may have spoken since, such as a router or another agent. Of messages in a row, an end
    counts alone.
    """
    words = _last_words(values)
    others = [each for each in values.get("messages") or () if not any(each is word for word in words)]
    return [*others, _join(words)] if words else others


def may_answer_another(values: Mapping[str, Any]) -> bool:
    """Return whether another agent said something between the open question and what was typed last."""
    since, words = _since_question(values), _last_words(values)
    return any(map(_says_something, takewhile(lambda each: not words or each is not words[0], since)))


def _last_words(values: Mapping[str, Any]) -> list[HumanMessage]:
    """Return the last messages in a row that were typed since the open question."""
    words, goes_on = list[HumanMessage](), False
    for each in _since_question(values):
        if isinstance(each, HumanMessage):
            words, goes_on = [*(words if goes_on else ()), each], True
        else:
            goes_on = False
    return words


def _says_something(message: AnyMessage) -> bool:
    """Return whether a message is what an agent says, and not one of this run's own questions, steps and speech."""
    if not isinstance(message, AIMessage) or not message.text.strip() or str(message.id).startswith(SPEECH_PREFIX):
        return False
    return not any(call["name"] in (TASK, *ACTIONS) for call in message.tool_calls)


def _since_question(values: Mapping[str, Any]) -> list[AnyMessage]:
    """Return the messages behind the one that shows the open question; none if it was not shown."""
    messages, call = list(values.get("messages") or ()), (values.get("pending") or {}).get("tool_call_id")
    for at in reversed(range(len(messages) if call else 0)):
        if any(call == each["id"] for each in getattr(messages[at], "tool_calls", ())):
            return messages[at + 1 :]
    return []


def _join(words: Sequence[HumanMessage]) -> HumanMessage:
    """Return one message with the words and attachments of all, and their name if they have the same."""
    *before, last = words
    if not before or read_word(last.text) == "cancel":
        return last
    blocks = list[Any]()
    for each in words:
        blocks += [{"type": "text", "text": each.content}] if isinstance(each.content, str) else each.content
        blocks.append({"type": "text", "text": "\n"})
    name = last.name if {each.name for each in words} == {last.name} else None
    return last.model_copy(update={"content": blocks[:-1], "name": name})


def wait_for_answer(pending: OpenPause) -> Any:
    """Return what the run is resumed with; pause it if there is no answer yet.

    LangGraph runs the node again when an answer comes, so the question is rendered only if there is none yet.
    """
    try:
        return interrupt(None)
    except GraphInterrupt as unanswered:
        shown = pending.payload()
        raise GraphInterrupt([replace(each, value=shown) for each in unanswered.args[0]]) from None


def note_problem(values: Mapping[str, Any], pause: OpenPause, problem: str, value: Any) -> Json:
    """Return the update that writes into an open pause what its answer lacks; "" if the person answers later.

    The pause keeps the text of an edit, so that the person can correct it.
    """
    pending, waiting, note = values.get("pending"), pause.record(values)["waiting"], {"problem": problem}
    if draft := read_draft(value):
        note["draft"] = draft
    update: Json = {}
    if pending and with_id(values, load_pause(pending)).id == pause.id:
        update["pending"] = {**pending, **note}
    if waiting and with_id(values, load_pause(waiting)).id == pause.id:
        update["steps"] = {pause.step: {"waiting": {**waiting, **note}}}
    return update


def keep_open(messages: Sequence[AnyMessage], pending: OpenPause, *, asks_back: bool) -> RunState:
    """Return the update that keeps the pause open, and shows it again if an answer lacks something or was typed."""
    if typed_reply(messages) is None and not asks_back:
        return {"pending": pending.dump()}
    return show_again(messages, pending, "Asked back." if asks_back else "Left open.")


def show_again(messages: Sequence[AnyMessage], pending: OpenPause, text: str) -> RunState:
    """Return the update that closes the message of a pause that stays open, with this text, and shows it anew."""
    again = _with_new_call(pending)
    return {"pending": again.dump(), "messages": [*close_pause(messages, pending, text), pause_message(again)]}


def open_pauses(values: Mapping[str, Any]) -> list[OpenPause]:
    """Return all open questions: the current one first, then those of waiting steps in plan order."""
    stored = [values["pending"]] if values.get("pending") else []
    records = values.get("steps") or {}
    for step in ((values.get("approval") or {}).get("plan") or {}).get("steps", ()):
        if waiting := record_of(records, step["id"])["waiting"]:
            stored.append(waiting)
    pauses: dict[str, OpenPause] = {}
    for pause in stored:
        each = with_id(values, load_pause(pause))
        pauses.setdefault(each.id, each)
    return [*pauses.values()]


def current_pause(pauses: Sequence[OpenPause]) -> OpenPause:
    """Return the first of the open pauses, with short forms of the others."""
    first, *rest = pauses
    return first.but(others=[pause.short_form() for pause in rest])


def with_id(values: Mapping[str, Any], pause: OpenPause) -> OpenPause:
    """Return the pause with an id that is unique in the thread, its language, and who alone answers it.

    The node's id says what is asked; the same may be asked again in this request or a later one. A late answer cannot
    reach another pause.
    """
    name, number = _bare_id(pause.id), values.get("request_mark") or values.get("turn", 1)
    decided = [row["id"] for row in values.get("approvals") or () if row["decision"] != "say"]  # words decide nothing
    decided += [entry["arguments"].get("asked") for entry in values.get("journal") or () if entry["source"] == "user"]
    times = sum(_bare_id(id or "") == name for id in decided)
    id = (f"{number}:" if number > 1 else "") + name + (f"~{times + 1}" if times else "")
    spoken = {} if pause.language else language_field(values.get("language", "en"))
    audience = (values.get("answered_by") or {}).get(pause.kind)
    asked: Json = {"answered_by": audience} if audience and not pause.answered_by else {}
    return pause.but(id=id, **_purpose(values, pause), **spoken, **asked)


def words_to_show(pause: Mapping[str, Any], interjections: Sequence[Mapping[str, Any]]) -> list[Meanwhile]:
    """Return what to show with a question for somebody named: what was said since, and what no model has read."""
    if not pause.get("answered_by"):
        return []
    since = [row for row in interjections if not row.get("heard") or row["at"] >= (pause.get("asked_at") or "")]
    return [{"by": str(row.get("by") or ""), "text": row["text"], "at": row["at"]} for row in since]


def with_words(pauses: Sequence[OpenPause], interjections: Sequence[Mapping[str, Any]]) -> list[OpenPause]:
    """Return the open pauses, each with what others have said that who is asked should read."""
    since = [words_to_show(pause.dump(), interjections) for pause in pauses]
    return [pause.but(meanwhile=rows) if rows else pause for pause, rows in zip(pauses, since, strict=True)]


def _purpose(values: Mapping[str, Any], pause: OpenPause) -> dict[str, str]:
    """Return the step's content as `purpose` if another step asks the same, so that people see which one asks (X26)."""
    if not isinstance(pause, QuestionPause) or not pause.step:
        return {}
    waiting = [row["waiting"] for row in (values.get("steps") or {}).values() if row["waiting"]]
    asked = [(each.get("step"), each.get("question")) for each in waiting]
    answers = [entry for entry in values.get("journal") or () if entry["source"] == "user"]
    asked += [(entry["step"], entry["arguments"].get("question")) for entry in answers]
    if not any(id != pause.step and same_question(str(other or ""), pause.question) for id, other in asked):
        return {}
    steps = ((values.get("approval") or {}).get("plan") or {}).get("steps", ())
    content = next((" ".join(str(step["content"]).split()) for step in steps if step["id"] == pause.step), "")
    return {"purpose": content[:PURPOSE_CHARS]}


def _bare_id(id: str) -> str:
    match = _NAME.fullmatch(id)
    return match[1] if match else id


def close_for_new_request(values: Mapping[str, Any]) -> RunState:
    """Return the update that closes the open question because a new request takes its place."""
    pending, messages = values.get("pending"), values.get("messages") or ()
    results, shut = close_tasks(values.get("steps") or {}, str(values.get("language") or "en"), PUT_AWAY)
    shown = close_pause(messages, load_pause(pending), PUT_AWAY) if pending else []
    return {"pending": None, "messages": [*results, *shown], "steps": shut, "goal": ""}


def ask_person(values: Json, pending: OpenPause) -> Json:
    """Return the update that makes the run wait for this answer, and stream the question.

    If it was asked before other answers were taken, it says what its own answer lacked.
    """
    asked_at = {} if pending.asked_at else {"asked_at": moment()}
    pending = with_id(values, pending).but(**asked_at)
    before = values.get("put_off") or {}
    if pending.problem is None and before.get("id") == pending.id:
        pending = pending.but(**before)
    pending = with_fresh_call(values["messages"], pending)
    asked = pause_message(pending)
    push_rest(asked, pending.question, inside=False)
    return {"pending": pending.dump(), "messages": [asked]}
