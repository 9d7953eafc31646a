"""What the offline model makes of a sentence: the plan, a question, an answer or a refusal. English and Chinese."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import BaseMessage, ToolMessage

from donewhen.agent.config import DEFAULT_MODEL
from donewhen.agent.offline.goals import read_goal
from donewhen.agent.offline.words import content
from tests.offline_play import Play

PLANS = [
    ("count the Python files", ["Count the Python files (*.py)"]),
    ("How many .md files are in docs?", ["Count the Markdown files (*.md) in docs/"]),
    ("list all files", ["List the files"]),
    ("find files named config", ["List the files matching *config*"]),
    ("is there a README?", ["List the files matching README*"]),
    ("which file is the largest", ["Find the largest of the files"]),
    ("count the python and markdown files", ["Count the Python files (*.py)", "Count the Markdown files (*.md)"]),
    ("find TODO in the python files", ["Find “TODO” in the Python files (*.py)"]),
    ("how many times does TODO appear in src?", ["Count the lines with “TODO” in src/"]),
    ("which files mention alpha?", ["Find which files contain “alpha”"]),
    ("does notes.txt contain TODO?", ["Find “TODO” in notes.txt"]),
    ("find the largest csv file", ["Find the largest of the CSV files (*.csv)"]),
    ("count the lines in notes.txt", ["Count the lines of notes.txt"]),
    ("total of amount by region in sales.csv", ["Total amount by region in sales.csv"]),
    ("what's the average price in products.csv?", ["Average price in products.csv"]),
    ("In sales.csv, total amount where region is North", ["Total amount in sales.csv where region is North"]),
    ("min and max of price in p.csv", ["Find the lowest price in p.csv", "Find the highest price in p.csv"]),
    ("how many rows does sales.csv have?", ["Count the rows in sales.csv"]),
    (
        "which region has the highest total amount in sales.csv",
        ["Find which region has the highest total amount in sales.csv"],
    ),
    ("what columns does sales.csv have", ["Describe the columns of sales.csv"]),
    ("read notes.txt and write a summary to report.md", ["Summarise notes.txt", "Write the summary to report.md"]),
    ("create a report about sales.csv", ["Describe the columns of sales.csv", "Write the report to report.md"]),
    ("write the number of Python files to n.txt", ["Count the Python files (*.py)", "Write the report to n.txt"]),
    ('write "hello world" to hello.txt', ["Write “hello world” to hello.txt"]),
    ("what is 12*7+3", ["Calculate 12*7+3"]),
    ("what is 12 times 7 plus 3?", ["Calculate 12*7+3"]),
    ("what is 15% of 240", ["Calculate 15/100*240"]),
    (
        "1. count the python files\n2. total amount in sales.csv by region\n3. write a report to out.md",
        ["Count the Python files (*.py)", "Total amount by region in sales.csv", "Write the report to out.md"],
    ),
    (
        "统计 sales.csv 中按 region 的 amount 总和，然后把报告写到 report.md",
        ["统计 sales.csv 中按 region 分组的 amount 总和", "把报告写到 report.md"],
    ),
    ("列出所有 .py 文件", ["列出所有 Python 文件（*.py）"]),
    ("src 目录下有几个py文件？", ["统计 src/ 中 Python 文件（*.py）的数量"]),
    ("log.txt 里 ERROR 出现了几次", ["统计 log.txt 中的 “ERROR” 出现次数"]),
    ("统计销售.csv中每个地区的销售额总和", ["统计 “销售.csv” 中按地区分组的销售额总和"]),
    ("哪个地区的销售额最高？数据在 sales.csv", ["找出 sales.csv 中哪个地区的销售额总和最高"]),
    ("sales.csv 中 amount 最大的 region 是哪个", ["找出 sales.csv 中哪个 region 的 amount 总和最高"]),
    ("total 销售额 by 地区 in sales.csv", ["Total 销售额 by 地区 in sales.csv"]),
    ("读取 notes.txt 并写摘要到 summary.md", ["总结 notes.txt", "把摘要写到 summary.md"]),
    ("把“你好”写入 hello.txt", ["把 “你好” 写到 hello.txt"]),
    ("12*7+3 等于多少", ["计算 12*7+3"]),
    (
        "查找 src 里的 TODO 并统计 Python 文件数量，最后写一份报告",
        ["查找 src/ 中的 “TODO”", "统计 Python 文件（*.py）的数量", "把报告写到 report.md"],
    ),
]
DECLINED = [
    "translate notes.txt into French",
    "write a poem about spring",
    "what is the capital of France?",
    "count the Python files that import numpy",
    "list the best restaurants in Paris",
    "delete all python files",
    "read https://example.com and summarise it",
    "every day at 9 count the files",
    "翻译 notes.txt",
    "今天天气怎么样",
    "每天统计文件",
]


@pytest.mark.parametrize(("goal", "steps"), PLANS, ids=[goal for goal, _ in PLANS])
def test_a_goal_becomes_these_steps(tmp_path: Path, goal: str, steps: list[str]) -> None:
    plan = Play(tmp_path, files={}).plan(goal)

    assert [step["content"] for step in plan["steps"]] == steps
    assert not plan["need_thinking"]


@pytest.mark.parametrize("goal", [goal for goal, _ in PLANS])
@pytest.mark.parametrize("chinese", [False, True])
def test_the_words_of_a_plan_are_read_back_as_the_same_work(goal: str, chinese: bool) -> None:
    for intent in read_goal(goal).intents:
        again = read_goal(content(intent, chinese))

        assert again.intents == (intent,)
        assert not again.unread


def test_look_ups_are_independent_and_a_report_depends_on_all_it_reports(tmp_path: Path) -> None:
    plan = Play(tmp_path, files={}).plan(
        "count the py files, total amount in a.csv and write a.md; list files, write b.md"
    )

    assert [step["depends_on"] for step in plan["steps"]] == [[], [], ["s1", "s2"], [], ["s4"]]
    assert plan["steps"][2]["tools"] == ["write_file", "read_file"]
    assert plan["steps"][2]["done_when"][0]["check"]["tool"] == "file_exists"


def test_no_check_without_a_tool_for_it(tmp_path: Path) -> None:
    plan = Play(tmp_path, files={}).plan("list files and write a.md", tools=["list_files", "write_file", "read_file"])

    assert [criterion["check"] for criterion in plan["steps"][1]["done_when"]] == [None, None]


@pytest.mark.parametrize("goal", DECLINED)
def test_what_the_rules_do_not_cover_is_declined_with_what_to_set(tmp_path: Path, goal: str) -> None:
    """P15: the user sees why, what works instead, and what to set."""
    (call,) = Play(tmp_path, files={}).decide(goal).tool_calls

    assert call["name"] == "decline"
    assert goal.rstrip("?") in call["args"]["guidance"] or "https://example.com" in call["args"]["guidance"]
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DONEWHEN_MODEL", DEFAULT_MODEL, "Ollama", "vLLM", "llama.cpp"):
        assert name in call["args"]["guidance"]


def test_a_missing_tool_is_named(tmp_path: Path) -> None:
    (call,) = Play(tmp_path, files={}).decide("total amount in a.csv", tools=["list_files"]).tool_calls

    assert (call["name"], "aggregate_csv" in call["args"]["guidance"]) == ("decline", True)


@pytest.mark.parametrize("goal", ["hello", "What can you do?", "你好", "你能做什么？"])
def test_a_greeting_is_answered_in_one_call(tmp_path: Path, goal: str) -> None:
    """P02: no plan, no question; it says what works with the tools that are there."""
    (call,) = Play(tmp_path, files={}).decide(goal, tools=["calculate"]).tool_calls

    assert call["name"] == "answer"
    assert "12*7+3" in call["args"]["text"]
    assert "sales.csv" not in call["args"]["text"]


def test_what_it_can_do_of_a_goal_is_offered_not_assumed(tmp_path: Path) -> None:
    play = Play(tmp_path, files={})
    (call,) = play.decide("count the Python files and delete them").tool_calls

    assert call["name"] == "ask_user"
    assert "delete them" in call["args"]["question"]
    assert call["args"]["options"] == ["Yes", "No"]


ANSWERED = [
    ("count the Python files and delete them", "yes", ["Count the Python files (*.py)"]),
    ("count the Python files and delete them", "no", None),
    ("sales.csv", "2", ["Count the rows in sales.csv"]),
    ("notes.txt", "make it rhyme", None),
    ("write a report to x.md", "count the Python files", ["Count the Python files (*.py)", "Write the report to x.md"]),
    ("写一份报告到 x.md", "总结 notes.txt", ["总结 notes.txt", "把报告写到 x.md"]),
]


@pytest.mark.parametrize(("goal", "answer", "steps"), ANSWERED, ids=[" / ".join(row[:2]) for row in ANSWERED])
def test_an_answer_to_the_planners_question_goes_into_the_plan(
    tmp_path: Path, goal: str, answer: str, steps: list[str] | None
) -> None:
    """P02: triage may ask; it asks once."""
    play = Play(tmp_path, files={})
    question = play.decide(goal)
    assert question.tool_calls[0]["name"] == "ask_user"
    said = f"[plan1.1] user ok\n{answer}"
    rounds = [question, ToolMessage(said, tool_call_id=str(question.tool_calls[0]["id"]))]
    (call,) = play.decide(goal, rounds=rounds).tool_calls

    if steps is None:
        assert call["name"] == "decline"
    else:
        assert [step["content"] for step in call["args"]["steps"]] == steps


def test_a_refused_plan_is_sent_once_more_without_what_may_be_wrong_then_declined(tmp_path: Path) -> None:
    play, goal = Play(tmp_path, files={}), "list files and write a.md"
    rounds: list[BaseMessage] = []
    replies = []
    for _ in range(3):
        replies.append(play.decide(goal, rounds=rounds))
        refusal = (
            "Correction: nothing was done.\n- step s1 lists the tool 'list_files', which does not exist\nLegal now: x."
        )
        rounds += [replies[-1], ToolMessage(refusal, tool_call_id=str(replies[-1].tool_calls[0]["id"]))]

    names = [reply.tool_calls[0]["name"] for reply in replies]
    assert names == ["submit_plan", "submit_plan", "decline"]
    assert all("tools" not in step for step in replies[1].tool_calls[0]["args"]["steps"])
    assert "does not exist" in replies[2].tool_calls[0]["args"]["guidance"]


def test_too_many_steps_are_merged_and_still_read_back(tmp_path: Path) -> None:
    plan = Play(tmp_path, files={}).plan(
        "count the py files, list the md files, total amount in a.csv, write a.md", limits="at most 2 steps"
    )

    assert [step["id"] for step in plan["steps"]] == ["s1", "s4"]
    assert plan["steps"][1]["depends_on"] == ["s1"]
    assert len(read_goal(plan["steps"][0]["content"]).intents) == 3


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_error(text: str) -> None:
    assert read_goal(text) == read_goal(text)


WORDS = [
    "count",
    "the",
    "files",
    "total",
    "of",
    "by",
    "in",
    "sales.csv",
    "and",
    "，",
    "“x”",
    "*.py",
    "统计",
    "的",
    "1+1",
]


@given(st.lists(st.sampled_from(WORDS), max_size=60))
def test_any_mixture_of_its_words_is_read_without_an_error(pieces: list[str]) -> None:
    assert len(read_goal(" ".join(pieces)).intents) < 300
