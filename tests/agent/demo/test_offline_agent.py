"""The offline model through the Agent: the whole loop as a newcomer meets it, with nobody's key."""

from pathlib import Path

import pytest

from donewhen import Agent
from donewhen.agent.offline import OfflineModel
from donewhen.agent.workspace import workspace_tools
from tests.offline_play import FILES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    return tmp_path


def offline(folder: Path) -> Agent:
    return Agent(OfflineModel(), workspace_tools(folder), storage="memory:")


async def test_plan_approve_execute_prove_deliver(folder: Path) -> None:
    """X03, P02: three steps, every criterion proven, the report in the file, and no approval but the plan's."""
    async with offline(folder) as agent:
        run = await agent.start(
            "count the Python files, then total amount in sales.csv by region, then write a report to report.md"
        )
        assert (run.status, run.pending[0]["kind"]) == ("waiting", "plan")
        run = await agent.resume(run.thread_id, "approve")

    assert run.status == "completed"
    assert "- North: 469.5" in run.answer
    assert "## 2 Python files (*.py)" in (folder / "report.md").read_text()
    verdicts = [item["verdict"] for step in run.receipt["steps"] for item in step["criteria"]]
    assert verdicts == ["supported", "supported", "passed", "supported"]
    assert not run.spent.get("questions")


async def test_a_question_and_its_answer(folder: Path) -> None:
    async with offline(folder) as agent:
        run = await agent.start("统计 sales.csv 中按 region 的利润总和", settings={"confirm": "never"})
        assert "利润" in run.pending[0]["question"]
        run = await agent.resume(run.thread_id, "amount")

    assert run.status == "completed"
    assert run.answer.startswith("sales.csv 按 region 分组的 amount 总和：\n- North: 469.5")


async def test_rejecting_with_words_changes_the_plan(folder: Path) -> None:
    async with offline(folder) as agent:
        run = await agent.start("count the Python files")
        run = await agent.resume(run.thread_id, "also write a report to x.md")
        assert [step["content"] for step in run.plan["steps"]][1] == "Write the report to x.md"
        run = await agent.resume(run.thread_id, "approve")

    assert run.status == "completed"
    assert (folder / "x.md").exists()


async def test_what_fails_is_left_out_and_named(folder: Path) -> None:
    """P17: after a failed step the rest goes on, with consent to the difference."""
    async with offline(folder) as agent:
        run = await agent.start(
            "count the py files, read gone.xyz, then write a report", settings={"confirm": "always"}
        )
        run = await agent.resume(run.thread_id, "approve")
        assert run.pending[0]["kind"] == "plan"
        assert "gone.xyz" in run.pending[0]["plan"]["steps"][-1]["content"]
        run = await agent.resume(run.thread_id, "approve")

    assert "Read gone.xyz" in (folder / "report.md").read_text()


async def test_what_it_cannot_do_it_says_at_once(folder: Path) -> None:
    """P15, P02: one call, an honest outcome, and what to set."""
    async with offline(folder) as agent:
        run = await agent.start("translate notes.txt into French")

    assert (run.status, run.spent["model_calls"]) == ("failed", 1)
    assert "OPENAI_BASE_URL" in run.answer
