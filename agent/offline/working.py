"""The executor: works through what a step's content asks for, then finishes with proof, or gives the step up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from donewhen.agent.offline.decision import Decision, call
from donewhen.agent.offline.desk import YES, Desk, Pending, Stuck, first_problem
from donewhen.agent.offline.findings import Finding, Proof
from donewhen.agent.offline.goals import read_goal
from donewhen.agent.offline.intents import Calculate, Column, Describe, Files, Intent, Lines, LookUp, Read, Text, Write
from donewhen.agent.offline.judging import supports
from donewhen.agent.offline.language import is_chinese
from donewhen.agent.offline.reading import Request, criteria_of
from donewhen.agent.offline.words import criteria, pick
from donewhen.agent.offline.work_files import calculate, count_lines, find_files, find_text, read
from donewhen.agent.offline.work_tables import describe, work_out
from donewhen.agent.offline.writing import write

MOST_REFUSED = 2


@dataclass(frozen=True)
class Worked:
    """An intent and what came of it."""

    intent: Intent
    finding: Finding


def work(request: Request) -> Decision:
    """The next decision in a step."""
    content = request.text("step")
    desk = Desk(request, is_chinese(content))
    try:
        done = _work(desk, content)
        if isinstance(done, Decision):
            return done
        return _finish(desk, done)
    except Pending as pending:
        return call(pending.name, **pending.arguments)
    except Stuck as stuck:
        return call("give_up", reason=stuck.reason, kind=stuck.kind)


def _work(desk: Desk, content: str) -> list[Worked] | Decision:
    """All that the content asks for: look-ups side by side, then what is written from them."""
    reading = read_goal(content)
    if not reading.intents:
        why = f"The offline model cannot do this step: {content}"
        raise Stuck(pick(desk.chinese, why, f"离线模型无法完成这一步：{content}"))
    if reading.unread:
        _ask_without(desk, reading.intents, reading.unread)
    pending: list[Pending] = []
    done: list[Worked] = []
    for intent in reading.intents:
        if isinstance(intent, Write) and pending:
            break
        try:
            done.append(Worked(intent, _one(desk, intent, done)))
        except Pending as needed:
            pending.append(needed)
    tools = [p for p in pending if p.name != "ask_user"]
    if tools:
        return Decision(tuple((p.name, p.arguments) for p in _distinct(tools)))
    if pending:
        raise pending[0]
    return done


def _distinct(pending: Sequence[Pending]) -> list[Pending]:
    kept: list[Pending] = []
    for one in pending:
        if all((one.name, one.arguments) != (other.name, other.arguments) for other in kept):
            kept.append(one)
    return kept


def _ask_without(desk: Desk, intents: Sequence[Intent], unread: Sequence[str]) -> None:
    left = pick(desk.chinese, "; ", "；").join(unread)
    question = pick(
        desk.chinese,
        f"Without an AI model I cannot do this part of the step: {left}. Should I do the rest?",
        f"没有 AI 模型，我无法完成这一步的这部分：{left}。要只做其余部分吗？",
    )
    _yes_or_stuck(desk, question, left)


def _yes_or_stuck(desk: Desk, question: str, what: str) -> None:
    answer = desk.ask(question, [pick(desk.chinese, "Yes", "是"), pick(desk.chinese, "No", "否")])
    if answer.casefold().rstrip(".!。！") not in YES:
        raise Stuck(pick(desk.chinese, f"Not done: {what}", f"未完成：{what}"), "blocked")


def _one(desk: Desk, intent: Intent, done: Sequence[Worked]) -> Finding:
    if isinstance(intent, Write):
        found = [worked.finding.text for worked in done if not isinstance(worked.intent, Write)]
        earlier = [section.text for section in desk.request.all("result")]
        return write(desk, intent, [*earlier, *found], desk.request.text("goal"))
    return _look_up(desk, intent)


def _look_up(desk: Desk, intent: LookUp) -> Finding:
    match intent:
        case Files():
            return find_files(desk, intent)
        case Text():
            return find_text(desk, intent)
        case Lines():
            return count_lines(desk, intent)
        case Column():
            return work_out(desk, intent)
        case Describe():
            return describe(desk, intent)
        case Read():
            return read(desk, intent)
        case Calculate():
            return calculate(desk, intent)


def _finish(desk: Desk, done: Sequence[Worked]) -> Decision:
    """finish_step with one item per criterion; after refusals with bare citations, then not again."""
    refused = desk.request.corrections("finish_step")
    if len(refused) > MOST_REFUSED - 1:
        raise Stuck(first_problem(refused[-1]))
    result = "\n\n".join(worked.finding.text for worked in done)
    items = [
        _item(desk, number, text, checked, done, bare=bool(refused))
        for number, (text, checked) in enumerate(criteria_of(desk.request.text("done_when")), 1)
    ]
    return call("finish_step", result=result, goal_check=items)


def _item(desk: Desk, number: int, text: str, checked: bool, done: Sequence[Worked], *, bare: bool) -> dict[str, Any]:
    mine = [w for w in done if text in criteria(w.intent, True) or text in criteria(w.intent, False)]
    evidence = [proof for worked in mine or done for proof in worked.finding.proofs]
    if not mine and not checked and text != _default_criterion(desk):
        evidence = _foreign(desk, text, done)
    evidence += [{"observation": reply.id} for reply in desk.answers]
    unique: list[Proof] = []
    for proof in evidence:
        cited = {"observation": proof["observation"]} if bare else proof
        if cited not in unique:
            unique.append(cited)
    return {"criterion": number, "met": True, "evidence": unique}


def _default_criterion(desk: Desk) -> str:
    return f"Done: {desk.request.text('step')}"


def _foreign(desk: Desk, text: str, done: Sequence[Worked]) -> list[Proof]:
    """Evidence for a criterion that somebody else wrote: observations that hold its words, else the user's word."""
    proofs = [proof for worked in done for proof in worked.finding.proofs]
    cited = {proof["observation"] for proof in proofs}
    seen = "\n".join(reply.text for reply in desk.used if reply.id in cited)
    if supports(text, f"{seen}\n" + "\n".join(worked.finding.text for worked in done)):
        return proofs
    found = "\n".join(worked.finding.text for worked in done)[:600]
    question = pick(
        desk.chinese,
        f"The step is to show: {text}\nI found:\n{found}\nDoes that meet it?",
        f"这一步要求：{text}\n我得到：\n{found}\n这样算满足吗？",
    )
    _yes_or_stuck(desk, question, text)
    return [*proofs, {"observation": desk.answers[-1].id}]
