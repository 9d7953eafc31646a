"""The example as a reader runs it, with a model that plays its part."""

import importlib.util
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.places import ROOT

PLAN = submit_plan(
    [{"content": "count the open tickets and write the report", "tools": ["write_report"]}],
    schedule={"at": "08:30", "weekdays": ["mon", "tue", "wed", "thu", "fri"], "timezone": "Europe/Berlin"},
)


def loaded(name: str, folder: Path) -> Any:
    """A copy of an example's module, in a folder of its own."""
    shutil.copytree(ROOT / "examples" / name, folder, dirs_exist_ok=True)
    spec = importlib.util.spec_from_file_location(f"example_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_report_is_confirmed_once_and_written_at_its_times(tmp_path: Path) -> None:
    """P18, M2: confirming shows the next three times; at each of them a worker writes the report, unasked."""
    example = loaded("daily_report", tmp_path)
    work = [call("open_tickets", path="tickets.csv"), call("write_report", text="2 open tickets")]
    model = ScriptedModel(roles={"triage": [PLAN], "execute": [*work, finish_step("2 open tickets", "s1.2")]})
    async with Agent(model, example.TOOLS, effects=example.EFFECTS, storage=f"{tmp_path}/runs.db") as agent:
        id = await example.schedule(agent)
        assert not (tmp_path / "report.md").exists()
        schedule = await agent.schedules.show(id)
        assert schedule.when == "Mon, Tue, Wed, Thu, Fri at 08:30 (Europe/Berlin)"
        (thread,) = await agent.schedules.start_due("agents", datetime.now(UTC) + timedelta(days=7))
        async with agent.worker():
            async for event, _ in agent.watch(thread):
                print(event["type"])
        assert (await agent.get(thread)).status == "completed"
    assert (tmp_path / "report.md").read_text() == "2 open tickets"
    model.assert_exhausted()
