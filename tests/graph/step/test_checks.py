"""Checks from plan to proof: validated with the plan, shown and edited at the pause, run by the runtime alone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import ToolException, tool

from donewhen import Agent
from donewhen.agent.workspace import workspace_tools
from donewhen.testing import ScriptedModel, call, criterion, finish_step, give_up, submit_plan
from tests.kit.flows import Flow, one_step, play

Json = dict[str, Any]
DONE = finish_step("done", goal_check=[criterion(1)])


def check(tool: str, expect: Any = "ok", /, **arguments: Any) -> Json:
    return {"text": "it is so", "check": {"tool": tool, "arguments": arguments, "expect": expect}}


async def decided(
    folder: Path, done_when: Json, *tools: Any, level: str = "grounded", effects: Any = None, **settings: Any
) -> Flow:
    """A step whose one criterion has a check, and which claims it without any evidence."""
    model = one_step([DONE, give_up("no")], done_when=[done_when], deliver=["Done."])
    model.script.strict = False
    chosen = {"confirm": "never", "on_failure": "deliver", "verification": level, **settings}
    return await play(model, [*workspace_tools(folder), *tools], settings=chosen, effects=effects or {})


def verdict(flow: Flow) -> Json:
    return dict(flow.step("s1")["verdicts"][0])


async def test_a_users_own_predicate_checks(tmp_path: Path) -> None:
    """DESIGN 5: any read-only tool; it holds by returning and says by raising what it found instead."""
    stock = {"apples": 3}

    @tool
    def in_stock(name: str, least: int) -> str:
        """Succeeds when there are at least so many."""
        if (there := stock.get(name, 0)) < least:
            raise ToolException(f"only {there} {name}")
        return f"{there} {name}"

    in_stock.metadata = {"effect": "read"}
    held = await decided(tmp_path, check("in_stock", name="apples", least=3), in_stock)
    assert verdict(held)["verdict"] == "proven"
    missing = await decided(tmp_path, check("in_stock", name="pears", least=1), in_stock)
    assert verdict(missing)["verdict"] == "failed"
    assert "only 0 pears" in verdict(missing)["note"]


@pytest.mark.parametrize("expect", [{"matches": r"^(?![\s\S]*sku-99)"}, {"path": "$.sku", "op": "exists"}])
async def test_a_check_of_a_result_that_was_cut_decides_nothing(tmp_path: Path, expect: Json) -> None:
    """What was not kept may hold what the check says is absent: it proves nothing, and says why."""

    def catalog() -> str:
        """List all."""
        return "x" * 1_500_000 + "sku-99"

    flow = await decided(tmp_path, check("catalog", expect), catalog, effects={"catalog": "read"})
    row = verdict(flow)
    assert row["verdict"] == "unverified"
    assert "catalog decides nothing: only the first 999," in row["note"]
    assert "had 1,500,006 characters" in row["note"]


async def test_a_claim_that_it_is_not_met_plays_no_part_either(tmp_path: Path) -> None:
    """X08: of two criteria that a model claims not to be met, the checks show one, and later the other."""
    colours = {"door": "grey", "wall": "grey"}

    def colour(of: str) -> str:
        """Say a colour."""
        seen = colours[of]
        colours["wall"] = "blue"
        return seen

    done_when = [check("colour", {"contains": "blue"}, of="wall"), check("colour", {"contains": "grey"}, of="door")]
    claim = finish_step("painted", goal_check=[criterion(1, met=False), criterion(2, met=False)])
    model = one_step([claim, claim], done_when=done_when)
    flow = await play(
        model, [colour], effects={"colour": "read"}, settings={"confirm": "never", "verification": "grounded"}
    )
    told = [[row["verdict"] for row in event["verdicts"]] for event in flow.told("verdicts")]
    assert (told, flow.step("s1")["status"]) == ([["failed", "proven"], ["proven", "proven"]], "done")


async def test_a_tool_that_became_a_write_after_approval_is_not_called(tmp_path: Path) -> None:
    """C04: the check runs with what the tool does now; in doubt it does not run."""
    called = []

    def look() -> str:
        """Look."""
        called.append(1)
        return "ok"

    model = one_step([DONE, DONE, DONE], done_when=[check("look")], deliver=[])
    settings = {"on_failure": "deliver"}
    async with Agent(model, [look], storage="memory:", effects={"look": "read"}) as agent:
        run = await agent.start("look", settings=settings)
        other = Agent(model, [look], storage=agent.storage, effects={"look": "write"})
        run = await other.resume(run.thread_id, "approve", settings=settings)
    if run.status != "waiting":  # it may also ask again, for the plan is not what was shown
        assert run.steps["s1"]["verdicts"][0]["verdict"] == "unverified"
    assert called == []


async def test_a_check_needs_budget_like_any_call(tmp_path: Path) -> None:
    """X08, R05: no call left, no proof; the run ends honestly."""
    flow = await decided(
        tmp_path, check("file_exists", path="a"), on_exhausted="deliver", limits={"tool_calls": 0, "rounds": 5}
    )
    assert flow.status == "exhausted"
    assert flow.journal == []


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (check("write_file", path="a", content="b"), "'write_file' is not read-only, so it cannot check"),
        (check("list_files", path="a.csv", limit="many"), "the check's arguments"),
        (check("read_file", {"contains": ""}, path="a"), "contains"),
        (check("read_file", {"matches": "("}, path="a"), "is not a regular expression"),
        (check("read_file", {"path": "$["}, path="a"), "is not a JSON path"),
        (check("read_file", {"path": "$.a", "op": "~", "value": 1}, path="a"), "op"),
        (check("read_file", {"contains": "a", "number": 1}, path="a"), "exactly one of"),
        (check("read_file", "fine", path="a"), "expect"),
        (check("read_file", {"number": 1, "tolerance": -1}, path="a"), "tolerance"),
    ],
)
async def test_a_check_that_cannot_decide_is_a_correction_of_the_plan(tmp_path: Path, wrong: Json, said: str) -> None:
    """P08, DESIGN 5: at plan time, naming what is wrong; the next plan is taken."""
    good = submit_plan([{"content": "do it", "done_when": [check("file_exists", path="a")]}])
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "do it", "done_when": [wrong]}]), good]})
    flow = await play(model, workspace_tools(tmp_path), settings={})
    assert flow.status == "waiting"
    correction = str(model.requests[1].messages[-1].text)
    assert correction.startswith("Correction:")
    assert said in correction


async def test_a_person_can_add_a_check(tmp_path: Path) -> None:
    """C02, C03: the added one decides too."""
    report = check("file_contains", path="report.md", text="42")
    write, sign = (call("write_file", path=name, content="42") for name in ("report.md", "signed.md"))
    both = finish_step("done", goal_check=[criterion(1), criterion(2)])
    model = one_step([write, both, sign, both], done_when=[report], tools=["write_file"])

    def edit(pause: Any) -> Any:
        (step,) = pause["plan"]["steps"]
        criteria = [report, check("file_exists", path="signed.md")]
        return {**pause["plan"], "steps": [{**step, "done_when": criteria}]}

    flow = await play(model, workspace_tools(tmp_path), settings={"approvals": "plan"}, answers=[edit])
    assert (flow.status, flow.step("s1")["refused"]) == ("completed", 1)
    assert [v["verdict"] for v in flow.step("s1")["verdicts"]] == ["proven", "proven"]


@pytest.mark.parametrize(
    ("done_when", "holds"),
    [
        (check("file_exists", path="table.csv"), True),
        (check("file_exists", path="tabel.csv"), False),
        (check("calculate", {"equals": 42}, expression="40+2"), True),
        (check("read_file", {"path": "$.rows[*]", "op": ">=", "value": 2}, path="data.json"), False),
        (check("query_data", {"matches": r"(?m)^42$"}, sql="SELECT sum(amount) FROM 'table.csv'"), True),
        (check("query_data", {"contains": "true"}, sql="SELECT count(amount) = 3 FROM 'table.csv'"), False),
        (check("matches_schema", path="data.json", schema={"required": ["rows"]}), True),
        (check("find_text", {"path": "$.matches_total", "op": "<", "value": 1}, query="carol"), True),
    ],
    ids=lambda value: f"{value['check']['tool']} {value['check']['expect']}"[:60] if isinstance(value, dict) else "",
)
async def test_every_expectation_decides_a_real_step(tmp_path: Path, done_when: Json, holds: bool) -> None:
    """DESIGN 5: with the workspace's own tools; the model's claim plays no part."""
    (tmp_path / "table.csv").write_text("name,amount\nann,40\nbob,2\n")
    (tmp_path / "data.json").write_text('{"rows": [1, 2], "ok": true}')
    flow = await decided(tmp_path, done_when)
    assert verdict(flow)["verdict"] == ("proven" if holds else "failed")
    assert flow.status == ("completed" if holds else "failed")
    (observed,) = [entry for entry in flow.journal if entry["source"] == "check"]
    assert (observed["effect"], observed["tool"]) == ("read", done_when["check"]["tool"])
    assert verdict(flow)["evidence"][0]["observation"] == observed["id"]


@pytest.mark.parametrize(("level", "trouble"), [("claimed", "hangs"), ("grounded", "exits"), ("judged", "hangs")])
async def test_a_check_that_goes_wrong_proves_nothing_at_any_level(tmp_path: Path, level: str, trouble: str) -> None:
    """DESIGN 5: error or timeout gives unverified, and where a check was agreed on the model's word is not enough."""

    @tool
    async def look() -> str:
        """Look."""
        if trouble == "hangs":
            await asyncio.Event().wait()
        raise asyncio.CancelledError

    look.metadata = {"effect": "read"}
    flow = await decided(tmp_path, check("look"), look, level=level, tool_seconds=0.05)
    assert (verdict(flow)["verdict"], flow.status) == ("unverified", "failed")
