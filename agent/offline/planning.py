"""The planner: a goal, read by rules, becomes a plan; what is unclear is asked, what no rule knows is declined."""

import json
from collections.abc import Sequence

from donewhen.agent.offline.answers import introduction, is_about_itself, is_greeting, refusal
from donewhen.agent.offline.decision import Decision, call
from donewhen.agent.offline.desk import YES, chosen, first_problem
from donewhen.agent.offline.feedback import revised
from donewhen.agent.offline.goals import Reading, lookups, read_goal
from donewhen.agent.offline.intents import Column, Describe, Intent, Read, Write
from donewhen.agent.offline.language import answers_in_chinese
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.replanning import replan
from donewhen.agent.offline.steps import needed, steps_of
from donewhen.agent.offline.table_words import is_table
from donewhen.agent.offline.words import content, pick, title

SHORT = 200


def plan(request: Request) -> Decision:
    """The planner's decision: an answer, a question, a plan, or a refusal."""
    goal = request.text("goal")
    chinese = answers_in_chinese(goal, request.text("language"))
    if len(request.corrections("submit_plan")) > 1:
        return _decline(request, first_problem(request.corrections("submit_plan")[-1]), chinese)
    if request.text("failure"):
        return replan(request, chinese, lambda intents, speak: submit(request, intents, chinese, speak))
    if "answer" in request.tools and (is_greeting(goal) or is_about_itself(goal)):
        return call("answer", text=introduction(tools_of(request), chinese))
    if request.role == "plan" and request.text("proposal") and not request.text("feedback"):
        return _again(request, chinese)
    if request.text("feedback"):
        return _with_feedback(request, chinese)
    return _decided(request, _with_answers(request, read_goal(goal)), chinese)


def tools_of(request: Request) -> list[str]:
    """Names of the tools in the brief."""
    lines = [line.removeprefix("- ").split() for line in request.text("tools").splitlines() if line.startswith("- ")]
    return [words[0].rstrip(":") for words in lines if words]


def _answers(request: Request) -> list[tuple[str, str]]:
    """Questions that were asked and answered: question and answer."""
    asked = [c for c in request.calls if c.name == "ask_user" and c.reply]
    return [
        (
            str(c.arguments.get("question", "")),
            chosen(c.reply.text, c.arguments.get("options") or []) if c.reply and c.reply.ok else "",
        )
        for c in asked
    ]


def _with_answers(request: Request, reading: Reading) -> Reading:
    """What the goal was read as, after the answers to questions about it."""
    for question, answer in _answers(request):
        if answer.casefold().rstrip(".!。！") in YES:
            reading = Reading(reading.intents, reading.mentions)
        elif answer:
            more = read_goal(f"{' '.join(reading.mentions)} {answer}" if reading.mentions else answer)
            unread = more.unread if not reading.unread or not more.intents else ()
            writes = [i for i in reading.intents if isinstance(i, Write)] if more.intents else []
            others = [i for i in reading.intents if i not in writes]
            reading = Reading((*others, *more.intents, *writes), more.mentions, unread)
        else:
            reading = Reading((), unread=(question,))
    return reading


def _decided(request: Request, reading: Reading, chinese: bool) -> Decision:
    """A plan, if the reading is whole; else a question, once, or a refusal."""
    asked = _answers(request)
    if reading.unread and reading.intents and not asked:
        return _ask_without(reading, chinese)
    if reading.unread or not (reading.intents or reading.mentions):
        left = pick(chinese, "; ", "；").join(reading.unread) or request.text("goal")
        return _decline(request, _cannot(left, chinese), chinese)
    if reading.mentions:
        return (
            _ask_about(request, reading.mentions, chinese)
            if not asked
            else _decline(request, _cannot(request.text("goal"), chinese), chinese)
        )
    if not lookups(reading.intents) and any(_is_report(i) for i in reading.intents):
        return (
            _ask_report(request, chinese)
            if not asked
            else _decline(request, _cannot(request.text("goal"), chinese), chinese)
        )
    return submit(request, reading.intents, chinese)


def _is_report(intent: Intent) -> bool:
    return isinstance(intent, Write) and intent.what != "text"


def _cannot(what: str, chinese: bool) -> str:
    what = what if len(what) <= SHORT else f"{what[: SHORT - 1]}…"
    return pick(
        chinese,
        f"No AI model is set, and the offline model's rules do not cover this: {what}",
        f"没有设置 AI 模型，离线模型的规则不支持：{what}",
    )


def _decline(request: Request, why: str, chinese: bool) -> Decision:
    return call("decline", reason=why, guidance=refusal(why, tools_of(request), chinese))


def _ask_without(reading: Reading, chinese: bool) -> Decision:
    able = "\n".join(f"- {content(intent, chinese)}" for intent in reading.intents)
    left = pick(chinese, "; ", "；").join(reading.unread)
    question = pick(
        chinese,
        f"Without an AI model I can do this part:\n{able}\nbut not this: {left}\nShould I do the part I can?",
        f"没有 AI 模型，我可以完成这部分：\n{able}\n但无法完成：{left}\n只做我能做的部分吗？",
    )
    return call("ask_user", question=question, options=[pick(chinese, "Yes", "是"), pick(chinese, "No", "否")])


def _ask_about(request: Request, mentions: Sequence[str], chinese: bool) -> Decision:
    path = mentions[0]
    options: list[Intent] = (
        [Describe(path), Column("count", path=path)] if is_table(path) else [Read(path, True), Read(path)]
    )
    question = pick(chinese, f"What should I do with {path}?", f"要对 {path} 做什么？")
    return call("ask_user", question=question, options=[content(option, chinese) for option in options])


def _ask_report(request: Request, chinese: bool) -> Decision:
    question = pick(
        chinese,
        "What should it report? For example: count the Python files; total amount by region in sales.csv; "
        "summarise notes.txt.",
        "报告里要写什么？例如：统计 Python 文件的数量；统计 sales.csv 中按 region 分组的 amount 总和；总结 notes.txt。",
    )
    return call("ask_user", question=question)


def _again(request: Request, chinese: bool) -> Decision:
    """The proposal once more: these rules know no better plan than the one that is there."""
    try:
        proposal = json.loads(request.text("proposal"))
    except ValueError:
        proposal = None
    if not isinstance(proposal, dict) or not proposal.get("steps"):
        return _decided(request, read_goal(request.text("goal")), chinese)
    known = ("title", "complexity", "steps", "schedule", "speak")
    return call(
        "submit_plan", need_thinking=False, **{key: proposal[key] for key in known if proposal.get(key) is not None}
    )


def _with_feedback(request: Request, chinese: bool) -> Decision:
    """The plan that was refused, changed as the user asked."""
    before = _refused_plan(request)
    feedback = request.text("feedback")
    for _, answer in _answers(request):
        feedback = answer or feedback
    changed = revised(before, feedback)
    if changed is None and not _answers(request):
        question = pick(
            chinese,
            f"My rules cannot read this feedback: {feedback}\nPlease say what to add, to leave out or to use instead, "
            "such as: also count the Markdown files; without the report; use orders.csv instead.",
            f"我的规则读不懂这条反馈：{feedback}\n请说明要增加、去掉或替换什么，"
            "例如：再统计 Markdown 文件；不要报告；改用 orders.csv。",
        )
        return call("ask_user", question=question)
    if not changed:
        return _decline(request, _cannot(feedback, chinese), chinese)
    return submit(request, changed, chinese)


def _refused_plan(request: Request) -> list[Intent]:
    """The intents of the refused plan if its steps read back whole, else those of the goal."""
    try:
        steps = json.loads(request.text("proposal"))["steps"]
        readings = [read_goal(step["content"]) for step in steps]
    except (ValueError, KeyError, TypeError):
        readings = []
    if readings and all(reading.intents and not reading.unread for reading in readings):
        return [intent for reading in readings for intent in reading.intents]
    return list(read_goal(request.text("goal")).intents)


def submit(request: Request, intents: Sequence[Intent], chinese: bool, speak: str = "") -> Decision:
    """A plan of these intents, or a refusal where a tool that they need is missing."""
    have = tools_of(request)
    if lacking := [tool for intent in intents for tool in needed(intent)[:1] if tool not in have]:
        names = ", ".join(dict.fromkeys(lacking))
        why = pick(
            chinese,
            f"This needs a tool that is not connected here: {names}.",
            f"这需要一个这里没有连接的工具：{names}。",
        )
        return _decline(request, why, chinese)
    steps = steps_of(request, intents, have, chinese)
    return call(
        "submit_plan",
        title=title(intents, chinese),
        complexity="simple" if len(steps) == 1 else "moderate" if len(steps) < 5 else "complex",
        need_thinking=False,
        steps=steps,
        speak=speak
        or pick(chinese, "No AI model is set: this plan is made by rules.", "没有设置 AI 模型：这个计划由规则生成。"),
    )
