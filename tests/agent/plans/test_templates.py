"""A plan that worked, started from again with other values: no planner is asked, and it is confirmed as any plan."""

from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest

from donewhen import Agent
from donewhen.agent.plans.templates import SPACE, PlanTemplate
from donewhen.errors import PlanError, StorageError
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from tests.kit.screens.shell import user_in
from tests.kit.storage.cases import DATABASES, fresh_url

STEP = {
    "content": "write the total of region North to total.txt",
    "done_when": [
        {"text": "the total of North is written", "check": {"tool": "total", "arguments": {"region": "North"}}},
    ],
    "tools": ["write"],
}


ASKED = {"approvals": "plan"}


def total(region: str) -> str:
    """The total of a region."""
    return f"{region}: 7"


def write(text: str) -> str:
    """Write a text, costing $5."""
    return f"wrote {text}"


def working(plans: int, *regions: str) -> ScriptedModel:
    work: list[Any] = []
    for region in regions:
        work += [call("write", text=f"{region} 7"), finish_step(f"{region} 7", "s1.1")]
    planned = submit_plan([STEP], title="The total of North, for $5")
    return ScriptedModel(roles={"triage": [planned] * plans, "execute": work})


@pytest.mark.parametrize("kind", DATABASES)
async def test_a_template_is_a_plan_without_a_planner(tmp_path: Path, kind: str) -> None:
    """Issue 12, templates: saved from a completed run, started with parameters; half the calls of the first time."""
    model = working(1, "North", "South")
    async with Agent(
        model,
        [total, write],
        effects={"total": "read"},
        storage=fresh_url(kind, tmp_path),
        settings={"approvals": "plan"},
    ) as agent:
        run = await agent.start("What is the total of North in Northern Europe?")
        with pytest.raises(PlanError, match="is waiting"):
            await agent.templates.save(run, "total")
        run = await agent.resume(run, "approve")
        assert run.status == "completed"
        saved = await agent.templates.save(run, "total", {"region": "North"})
        assert saved.goal == "What is the total of ${region} in Northern Europe?"
        again = await agent.start(template="total", parameters={"region": "South"})
        assert (again.status, again.goal) == ("waiting", "What is the total of South in Northern Europe?")
        (step,) = again.pending[0]["plan"]["steps"]
        assert step["content"] == "write the total of region South to total.txt"
        assert step["done_when"][0]["check"]["arguments"] == {"region": "South"}
        assert again.pending[0]["plan"]["title"] == "The total of South, for $5"
        again = await agent.resume(again, "approve")
        assert (again.status, again.answer) == ("completed", "South 7")
        assert again.spent["model_calls"] < run.spent["model_calls"]
        assert {request.role for request in model.requests[-2:]} == {"execute"}
        for name, values, said in (
            ("totel", {}, "there are: total"),
            ("total", {"year": 1}, "it has: region"),
        ):
            with pytest.raises(PlanError, match=said):
                await agent.start(template=name, parameters=values)
        with pytest.raises(PlanError, match="stands nowhere"):
            await agent.templates.save(run, "total", {"region": "West"})
        await agent.templates.delete("total")
        assert await agent.templates.list() == []
    model.assert_exhausted()


@pytest.mark.parametrize("key", ["größe", "gro\u0308ße", "地区"])
async def test_a_parameter_is_named_in_any_script(key: str) -> None:
    """N32: a key of letters; one that looks the same is the same."""
    async with Agent(
        working(1, "North", "South"), [total, write], effects={"total": "read"}, storage="memory:",
        settings={"confirm": "never", "approvals": "never"},
    ) as agent:  # fmt: skip
        run = await agent.start("the total of North")
        await agent.templates.save(run, "total", {key: "North"})
        again = await agent.start(template="total", parameters={normalize("NFC", key): "South"})
        assert (again.status, again.goal) == ("completed", "the total of South")


async def test_a_worker_takes_a_template_too(tmp_path: Path) -> None:
    """Issue 12, templates: submitted with other settings, without asking."""
    async with Agent(
        working(1, "North", "South"), [total, write], effects={"total": "read"}, storage=f"{tmp_path}/runs.db",
        settings={"confirm": "never", "approvals": "never"},
    ) as agent, agent.worker():  # fmt: skip
        run = await agent.start("the total of North")
        await agent.templates.save(run, "total", {"region": "North"})
        thread = await agent.submit(template="total", parameters={"region": "South"}, owner="ann")
        async for _ in agent.watch(thread):
            pass
        assert ((await agent.get(thread)).answer, (await agent.info(thread)).owner) == ("South 7", "ann")


OF_A_MONTH = [
    {
        "content": "Total 2026-10, and compare with 2026-09",
        "done_when": [{"text": "known", "check": {"tool": "total", "arguments": {"region": "report_2026-10.md"}}}],
        "tools": ["write"],
        "calls": [{"tool": "write", "arguments": {"text": "invoices_2026-10.csv, 2026-09_old.csv, 202610.csv"}}],
    },
]


async def test_a_value_in_a_files_name_is_replaced_and_one_spelled_otherwise_is_named() -> None:
    """Issue 12, templates: beside `_` too. What stays is said as it is saved and as the plan is shown, as are the
    values that nobody gave; the language stays. Without another value nothing old is left."""
    model = ScriptedModel(roles={"triage": [submit_plan(OF_A_MONTH, language="de")], "execute": [give_up("no")]})
    async with Agent(model, [total, write], effects={"total": "read"}, storage="memory:") as agent:
        run = await agent.resume(await agent.start("Summe 2026-10", settings=ASKED), "ja")
        assert run.status == "completed"
        saved = await agent.templates.save(run, "month", {"month": "2026-10", "before": "2026-09"})
        assert saved.problem == "2026-10 still stands in: s1 content, s1 call 1"
        assert [saved] == await agent.templates.list()
        again = await agent.start(template="month", parameters={"month": "2026-11"}, settings=ASKED)
        (step,) = again.pending[0]["plan"]["steps"]
        assert step["calls"][0]["arguments"]["text"] == "invoices_2026-11.csv, 2026-09_old.csv, 202610.csv"
        assert step["done_when"][0]["check"]["arguments"]["region"] == "report_2026-11.md"
        assert again.language == "de"
        shown = again.pending[0]["text"]
        assert "Vorlage month: month = 2026-11, before = 2026-09 (wie im gespeicherten Lauf)" in shown
        assert "2026-10 aus dem gespeicherten Lauf steht noch in: s1 content, s1 call 1" in shown
        same = await agent.start(template="month", settings={**ASKED, "language": "en"})
        assert "Template month: month = 2026-10 (as in the saved run), before = 2026-09" in str(same)
        assert "still stands" not in str(same)
        assert same._repr_markdown_() == str(same)  # a notebook shows what a person reads


@pytest.mark.parametrize(
    "damage",
    [
        {"plan": {"steps": [{}]}},
        {"plan": {"done_when": [{"check": "total"}]}},
        {"plan": {"steps": [{"id": "s1", "calls": [{}]}]}},
        {"plan": None},
        {"parameters": {"region": None}},
    ],
)
async def test_a_damaged_template_hides_no_other_one(damage: dict[str, Any]) -> None:
    """Issue 12, templates: those that cannot be read are listed as such, whatever is wrong with them."""
    async with Agent(
        working(1, "North"), [total, write], effects={"total": "read"}, storage="memory:",
        settings={"confirm": "never", "approvals": "never"},
    ) as agent:  # fmt: skip
        saved = await agent.templates.save(await agent.start("the total of North"), "good", {"region": "North"})
        async with agent.storage.writer() as (_, store):
            for name in ("bad", "worse"):
                await store.aput(SPACE, name, {**saved.to_dict(), **damage}, index=False)
        bad, good, worse = await agent.templates.list()
        assert good == saved
        assert all(f"template '{each.name}' is damaged" in each.problem for each in (bad, worse))
        with pytest.raises(StorageError, match="'bad' is damaged"):
            await agent.templates.get("bad")


@pytest.mark.parametrize(
    ("value", "text", "is_left"),
    [
        ("May", "maybe", False),
        ("May", "mayor dismay", False),
        ("May", "ReportMay.md", True),
        ("May", "MAY-2026", True),
        ("May", "may2026", True),
        ("ACME", "ACMEReport.md", True),
        ("acme", "acmeReport.md", True),
        ("IBM", "IBMs figures", False),
        ("paypal", "the PayPal invoices", True),
        ("PayPal", "paypal.csv", True),
        ("ebay", "eBay-Verkäufe", True),
        ("userid", "by userId", True),
        ("userId", "by USERID", True),
        ("user id", "by userId", True),
        ("pay", "PayPal", True),
        ("ypa", "PayPal", False),
        ("cd", "abcd", False),
        ("a b", "b\na", False),
        ("ba", "a b", False),
        ("2026", "120265", False),
        ("2026", "r2026.md", True),
        ("三月份", "在三月份的报告", True),
        ("北京 上海", "在北京 上海的报告", True),
    ],
)
def test_only_a_whole_part_of_a_word_is_a_value_that_still_stands(value: str, text: str, is_left: bool) -> None:
    """Issue 12, templates: beside a digit, a sign or a change of case; never within a longer word or number."""
    template = PlanTemplate("t", text, {}, {"other": "x", "key": value}, "")
    assert template.find_left() == ({"key": ["goal"]} if is_left else {})


@pytest.mark.parametrize(
    ("value", "text", "is_left"),
    [
        ("2026-10", "Sum of October 2026", True),
        ("2026-10", "Sum of 10/2026", True),
        ("2026-10", "Sum of 10.2026", True),
        ("2026-10", "Summe im Oktober", True),
        ("2026-10", "Sum of Oct. 2026", True),
        ("2026-10", "until 31 October 2026", True),
        ("2026-10", "until 31.10.2026", True),
        ("2026-10", "２０２６年１０月の合計", True),
        ("2026-10", "10月の合計", True),
        ("2026-10", "OCTOBER_2026.csv", True),
        ("October 2026", "sales_2026-10.csv", True),
        ("Oktober", "Sum of October", True),
        ("10/2026", "Sum of October 2026", True),
        ("2026-10-01", "Sum of 1 October 2026", True),
        ("2026-10-01", "Sum of October 1st, 2026", True),
        ("2026-10-01", "am 1.10.2026", True),
        ("2026-10-01", "am 1.10.26", True),
        ("1.10.26", "Nr.1.10.2026", True),
        ("2026-10-01", "version 1.10.260", False),
        ("2026-10-01", "am 1. Oktober", True),
        ("1 October 2026", "until 2026-10-01", True),
        ("2026-10", "Sum of October 2025", False),
        ("2026-10", "Sum of September 2026", False),
        ("2026-10", "Summe im November", False),
        ("2026-05", "the file may be missing", False),
        ("2026-03", "check the mar files", False),
        ("2026-10-01", "Sum of 2 October 2026", False),
        ("2026-10-01", "Sum of October 2026", False),
        ("10", "Sum of October 2026", False),
        ("2026", "Sum of Oct", False),
        ("sales_2026-10.csv", "Sum of October 2026", False),
    ],
)
def test_a_date_that_is_spelled_otherwise_still_stands(value: str, text: str, is_left: bool) -> None:
    """Issue 12, templates: in numbers or words of any of the six languages; one without a year may be any year's."""
    template = PlanTemplate("t", text, {}, {"other": "x", "key": value}, "")
    assert template.find_left() == ({"key": ["goal"]} if is_left else {})


async def test_a_month_in_words_is_named_as_it_is_saved_and_shown() -> None:
    """Issue 12, templates: the goal says 2026-10 and the step October 2026, which no start replaces."""
    steps = [
        {"content": "Sum of October 2026", "tools": ["total"]},
        {"content": "Sum of 1 November", "tools": ["total"]},
    ]
    rounds = (
        [call("total", region="North"), finish_step("7", "s1.1")],
        [call("total", region="South"), finish_step("7", "s2.1")],
    )
    roles: Any = {
        "triage": [submit_plan(steps)],
        "execute": dict(zip(("s1", "s2"), rounds, strict=True)),
        "deliver": ["7"],
    }
    async with Agent(ScriptedModel(roles=roles), [total], effects={"total": "read"}, storage="memory:") as agent:
        run = await agent.resume(await agent.start("Sums of 2026-10, 2026-11-01", settings=ASKED), "yes")
        saved = await agent.templates.save(run, "sums", {"month": "2026-10", "day": "2026-11-01"})
        assert saved.problem == "2026-10 still stands in: s1 content; 2026-11-01 still stands in: s2 content"
        again = await agent.start(template="sums", parameters={"month": "2026-09"}, settings=ASKED)
        assert "2026-10 of the saved run still stands in: s1 content" in again.pending[0]["text"]


async def test_who_is_not_asked_reads_the_values_in_a_note() -> None:
    """Issue 12, templates: the values that a template was started with are told where no plan is confirmed."""
    async with Agent(
        working(1, "North", "South"), [total, write], effects={"total": "read"}, storage="memory:",
        settings={"confirm": "never", "approvals": "never"},
    ) as agent:  # fmt: skip
        run = await agent.start("the total of North")
        saved = await agent.templates.save(run, "total", {"region": "North", "price": "$5"})
        assert saved.problem == ""
        events = [event async for event in agent.stream(template="total", parameters={"region": "South"})]
        told = [event["text"] for event in events if event["type"] == "note"]
        assert "Template total: region = South, price = $5 (as in the saved run)" in told


def test_the_command_saves_and_starts_templates(tmp_path: Path) -> None:
    """Issue 12, templates: `donewhen plans save`, `donewhen run --template NAME --set key=value`."""
    shell = user_in(tmp_path)
    (shell.work / "a.txt").touch()
    (shell.work / "b.md").touch()
    goal = "count the *.txt files"
    assert shell("run", "--yes", goal, "--dir", str(shell.work), "--thread", "first").exit_code == 0
    saved = shell("plans", "save", "first", "count", "--set", "kind=txt")
    assert saved.stdout == "donewhen run --template count --set kind=…\n", saved.stderr
    again = shell("run", "--yes", "--template", "count", "--set", "kind=md", "--dir", str(shell.work), "--json")
    assert again.exit_code == 0, again.stderr
    assert "count the *.md files" in again.stdout
    assert "template count  kind=txt" in shell("plans", "list").stdout
    assert shell("plans", "forget", "count").exit_code == 0
    assert shell("run", "--template", "count").exit_code == 2
