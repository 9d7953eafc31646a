"""The demo model on real files, through Agent and through the command: what it does is right, the rest it declines."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Run
from donewhen.agent.demo import DemoModel
from donewhen.agent.demo.goals import read_goal
from donewhen.workspace import workspace_tools
from tests.kit.screens.shell import Exit, user_in
from tests.kit.screens.terminal import ROOT

GOAL = "count the Python files, then total the amount in sales.csv by region, then write a report to report.md"
GOAL_ZH = "统计 Python 文件的数量，然后按地区汇总 sales.csv 的金额，然后把报告写到 report.md"
BY_REGION = "- West: 939.00\n- South: 619.65\n- North: 559.40\n- East: 240.05"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples/shop", tmp_path / "shop")
    return tmp_path / "shop"


async def played(folder: Path, goal: str, *answers: Any) -> Run:
    """The run, its plan approved and its questions answered."""
    waiting = list(answers)
    async with Agent(DemoModel(), workspace_tools(folder), storage="memory:") as agent:
        run = await agent.start(goal)
        while run.status == "waiting":
            kind = run.pending[0]["kind"]
            run = await agent.resume(run, "approve" if kind == "plan" and not waiting else waiting.pop(0))
        return run


def listing(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def results(run: Run) -> list[str]:
    assert run.receipt is not None
    return [str(step["result"]) for step in run.receipt["steps"]]


# --- the README's goal


@pytest.mark.parametrize(
    ("goal", "first", "second"),
    [
        (GOAL, "2 *.py files:", "Total amount in sales.csv by region:"),
        (GOAL_ZH, "2 个 *.py 文件：", "amount的总和（sales.csv），按 region："),
    ],
)
async def test_the_goal_of_the_readme(folder: Path, goal: str, first: str, second: str) -> None:
    """X03, P02: three steps, every criterion proven by what tools returned, the report in the file."""
    run = await played(folder, goal)
    assert run.status == "completed", run.answer
    found = [f"{first}\n- scripts/labels.py\n- scripts/restock.py", f"{second}\n{BY_REGION}"]
    assert results(run)[:2] == found
    assert all(text in run.answer and text in (folder / "report.md").read_text() for text in found)
    assert run.receipt is not None
    verdicts = [item["verdict"] for step in run.receipt["steps"] for item in step["criteria"]]
    assert verdicts == ["cited", "cited", "proven", "cited"]
    assert not run.spent.get("questions")


def test_the_command_chooses_it_where_nothing_is_set(tmp_path: Path) -> None:
    """A2, P19: the first command a newcomer runs shows the whole loop, and says which model that was."""
    shell = user_in(tmp_path)
    done = shell("run", "how many files are there?", "--dir", str(shell.work), "--yes")
    assert done.exit_code == Exit.COMPLETED, done.stderr
    assert done.stdout == "3 files:\n- a.txt\n- b.txt\n- c.txt\n"
    assert "demo model" in done.stderr
    refused = shell("run", "translate a.txt into French", "--json")
    said = json.loads(refused.stdout)
    assert (refused.exit_code, said["status"]) == (Exit.FAILED, "failed")
    assert len(said["answer"].splitlines()) == 3
    assert "OPENAI_API_KEY, or DONEWHEN_MODEL or --model" in said["answer"]


# --- what it says it can do


@pytest.mark.parametrize(
    ("goal", "found"),
    [
        ("How many Python files are in scripts?", "2 *.py files:\n- scripts/labels.py\n- scripts/restock.py"),
        ("Please list the .csv files.", "1 *.csv file:\n- sales.csv"),
        ("What's the average amount per product in sales.csv?", "Average amount in sales.csv by product:\n- Desk: 465"),
        ("find the highest amount in sales.csv", "Highest amount in sales.csv: 698.00"),
        ("count the rows in sales.csv by region", "Rows in sales.csv by region:\n- North: 3\n- South: 3"),
        ('Search notes.txt for "supplier"', "1 line with “supplier”:\n- notes.txt:2: - The desk sells best"),
        ("show me the contents of notes.txt, please", "notes.txt:\nMeeting on 12 October\n- The desk"),
        ("计算 sales.csv 中各地区的金额平均值", "amount的平均值（sales.csv），按 region：\n- West: 469.5"),
        ("统计 sales.csv 的行数，并把结果写入 rows.md", "数据行数（sales.csv）: 10"),
        ("sales.csv 中每个地区的金额合计是多少？", "amount的总和（sales.csv），按 region：\n- West: 939.00"),
        ("查看 notes.txt 的内容", "notes.txt：\nMeeting on 12 October"),
        ("在文件中搜索 TODO", "3 行包含“TODO”："),
        ("有多少个 Markdown 文件？", "0 个 *.md 文件"),
    ],
)
async def test_a_handful_of_goals(folder: Path, goal: str, found: str) -> None:
    run = await played(folder, goal)
    assert run.status == "completed", run.answer
    assert results(run)[0].startswith(found)


@pytest.mark.parametrize(
    "goal",
    [
        "total the amount in sales.csv for West",
        "sum amount in sales.csv where region is North",
        "total the amount in sales.csv by region and product",
        "count the big files",
        "count the lines of code in scripts",
        "list all files and delete the biggest one",
        "which region sold the most?",
        "read notes.txt and summarise it",
        "read notes.txt, then write a summary to s.md",
        "write the results to report.md",
        "count the files, then write a report to report.pdf",
        "search for cheap flights to Rome",
        "按地区汇总 sales.csv 十月的金额",
        "统计 sales.csv 里北方的金额总和",
        "把 sales.csv 按金额排序",
        "把 notes.txt 翻译成法语",
        "每天早上九点统计文件数量",
        "show sales.csv but only the first row",
        "count the files and the folders",
    ],
)
async def test_the_rest_is_declined_and_nothing_is_done(folder: Path, goal: str) -> None:
    """B4: a goal of which a word is not understood is not done in part, or as something like it."""
    before = listing(folder)
    run = await played(folder, goal)
    assert (run.status, run.spent["model_calls"]) == ("failed", 1)
    assert len(run.answer.splitlines()) == 3
    assert "DONEWHEN_MODEL" in run.answer
    assert listing(folder) == before


# --- honest where there is more than it shows


async def test_what_fails_is_said(folder: Path) -> None:
    """P17: a missing file ends its step; what does not need it is done, and the report is not written."""
    run = await played(folder, "count the Python files, read gone.xyz, then write a report")
    assert run.status == "partial"
    assert run.receipt is not None
    assert [step["status"] for step in run.receipt["steps"]] == ["done", "failed", "blocked"]
    assert not (folder / "report.md").exists()


# --- people


@pytest.mark.parametrize("written", ["the totals", "the result", "a short list", "the numbers"])
def test_what_was_found_is_written_under_any_of_its_names(written: str) -> None:
    """N46"""
    tasks, _ = read_goal(f"Total the amount per region in orders.csv, then write {written} to report.md")
    assert [(task.kind, task.path) for task in tasks] == [("value", "orders.csv"), ("report", "report.md")]
