"""The example as a reader runs it, with a model that plays its part."""

from pathlib import Path

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.examples.test_daily_report import loaded


async def test_the_plan_is_made_once(tmp_path: Path) -> None:
    """Issue 12, templates: one planning, three answers."""
    example = loaded("template", tmp_path)
    work = []
    for region, total in (("North", "200"), ("South", "135"), ("West", "300")):
        work += [call("sales", region=region), call("add", amounts=[int(total)])]
        work += [finish_step(f"{region}: {total}", "s1.2")]
    plan = submit_plan(["add up the sales of region North"], title="Sales of North")
    model = ScriptedModel(roles={"triage": [plan], "execute": work})
    async with Agent(model, example.TOOLS, effects=example.EFFECTS, storage="memory:") as agent:
        totals = await example.totals(agent)
    assert totals == {"North": "North: 200", "South": "South: 135", "West": "West: 300"}
    model.assert_exhausted()
