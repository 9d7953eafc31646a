"""The demo model on real files, through Agent and through the command: what it does is right, the rest it declines."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Run
from donewhen.agent.cli.result import Exit
from donewhen.agent.demo import DemoModel
from donewhen.agent.demo.goals import content, read_goal, read_task
from donewhen.agent.workspace import workspace_tools
from tests.kit.screens.shell import user_in
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
    assert len(said["answer"].splitlines()) == 2
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
    assert len(run.answer.splitlines()) == 2
    assert "DONEWHEN_MODEL" in run.answer
    assert listing(folder) == before


@pytest.mark.parametrize("goal", [GOAL, GOAL_ZH, 'find "my word" in notes.txt', 'sum the "unit price" in a b.csv by x'])
def test_a_step_reads_as_it_was_meant(goal: str) -> None:
    """C03: the text of every step, in both languages, is a sentence that is read back as the same task."""
    for task in read_goal(goal)[0]:
        assert [read_task(content(task, chinese)) for chinese in (False, True)] == [task, task]


# --- honest where there is more than it shows


async def test_a_long_listing_says_so(folder: Path) -> None:
    """B4: the count is of all; the list says that it is a part."""
    for number in range(120):
        (folder / f"n{number:03}.log").touch()
    (found,) = results(await played(folder, "list the log files"))
    assert found.startswith("120 *.log files, the first 50 of 120:\n- n000.log\n")
    assert found.endswith("- n049.log")


async def test_a_long_file_is_shown_in_part_and_says_so(folder: Path) -> None:
    """B4, and a later report holds the same words."""
    (folder / "long.txt").write_text("one line of many\n" * 1000)
    run = await played(folder, "read long.txt, then write a report")
    assert results(run)[0].endswith("(the beginning of 17000 bytes)")
    assert "(the beginning of 17000 bytes)" in (folder / "report.md").read_text()


async def test_empty_cells_are_told_and_numbers_in_doubt_are_not_summed(folder: Path) -> None:
    """D1: nothing is guessed about a column."""
    (folder / "gaps.csv").write_text("region,amount,price\nNorth,1.50,$5\nSouth,,$7\nNorth,2.25,$9\n")
    run = await played(folder, "total the amount in gaps.csv by region, then total the price in gaps.csv")
    assert results(run)[0] == "Total amount in gaps.csv by region, without empty cells:\n- North: 3.75\n- South: NULL"
    assert run.status == "partial"
    assert run.receipt is not None
    assert "looks like numbers, kept as text" in run.receipt["steps"][1]["reason"]


async def test_what_fails_is_said(folder: Path) -> None:
    """P17: a missing file ends its step; what does not need it is done, and the report is not written."""
    run = await played(folder, "count the Python files, read gone.xyz, then write a report")
    assert run.status == "partial"
    assert run.receipt is not None
    assert [step["status"] for step in run.receipt["steps"]] == ["done", "failed", "blocked"]
    assert not (folder / "report.md").exists()


# --- people


async def test_a_column_that_is_not_there_is_asked_for(folder: Path) -> None:
    run = await played(folder, "total the turnover in sales.csv", "approve", "amount")
    assert (run.status, results(run)) == ("completed", ["Total amount in sales.csv: 2358.10"])


async def test_the_plan_can_be_edited(folder: Path) -> None:
    """C03: another text of a step is another task; a criterion of the person's own it cannot prove."""
    step = {"content": "Count the *.txt files", "done_when": ["The number of these files is stated"]}
    done = await played(folder, "count the Python files", {"type": "edit", "plan": {"steps": [step]}})
    assert (done.status, results(done)) == ("completed", ["1 *.txt file:\n- notes.txt"])
    step["done_when"] = ["The files are beautiful"]
    other = await played(folder, "count the Python files", {"type": "edit", "plan": {"steps": [step]}})
    assert other.status == "failed"
    assert "can only prove its own criteria" in other.answer


async def test_feedback_changes_the_plan(folder: Path) -> None:
    """C02: a sentence that begins with `also` adds to the plan."""
    async with Agent(DemoModel(), workspace_tools(folder), storage="memory:") as agent:
        run = await agent.start("count the Python files")
        run = await agent.resume(run, "also write a report to x.md")
        assert run.plan is not None
        assert [step["content"] for step in run.plan["steps"]][1] == "Write the results to x.md"
        run = await agent.resume(run, "approve")
    assert run.status == "completed"
    assert (folder / "x.md").exists()


@pytest.mark.parametrize("written", ["the totals", "the result", "a short list", "the numbers"])
def test_what_was_found_is_written_under_any_of_its_names(written: str) -> None:
    """N46"""
    tasks, _ = read_goal(f"Total the amount per region in orders.csv, then write {written} to report.md")
    assert [(task.kind, task.path) for task in tasks] == [("value", "orders.csv"), ("report", "report.md")]
