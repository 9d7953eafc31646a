"""The page as a person uses it, in headless Chromium: `make test-ui`. Skipped, with the reason, without one.

With `SCREENSHOTS=folder` it leaves the pictures of docs/ there.
"""

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, Settings
from donewhen.testing import ScriptedModel, answer, ask_user, audit, call, finish_step, give_up, submit_plan
from donewhen.workspace import workspace_tools
from tests.agent.page.test_page import NOTE, READ, READING, agent, edit_note, read_note
from tests.kit.places import ROOT
from tests.kit.screens.browser import DESKTOP, MARKS, PHONE, axe, browser, picture, playwright, say
from tests.kit.screens.pages import TOKEN, Gate, served

pytestmark = MARKS
HOSTILE = "<img src=x onerror='window.pwned=1'><script>window.pwned=1</script> [x](javascript:window.pwned=1)"
GOAL = "count the Python files, then total the amount in sales.csv by region, then write a report to report.md"


@pytest.mark.parametrize(
    ("size", "scheme", "name"), [(DESKTOP, "light", "page"), (PHONE, "dark", "page-phone")], ids=["desktop", "phone"]
)
async def test_the_demo_from_goal_to_evidence(tmp_path: Path, size: dict[str, int], scheme: str, name: str) -> None:
    """The plan as a checklist that fills, calls folded, the receipt whose evidence opens with its words marked."""
    shutil.copytree(ROOT / "examples" / "shop", tmp_path / "shop")
    shop = Agent("demo", workspace_tools(tmp_path / "shop"), storage="memory:")
    async with (
        served(shop, dir=str(tmp_path / "shop"), model="demo") as page,
        browser(page, size=size, scheme=scheme) as tab,
    ):
        await picture(tab, f"{name}-empty")
        await say(tab, GOAL)
        await tab.wait_for_selector(".card.ask")
        assert await tab.locator(".edit .row").count() == 3
        await picture(tab, f"{name}-plan")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt")
        assert await tab.locator(".step.done").count() == 3
        assert "West: 939.00" in await tab.inner_text(".answer")
        assert "8/200 rounds" in await tab.inner_text("#meter")
        call_row = tab.locator(".call", has_text="write_file")
        assert await call_row.get_attribute("open") is None
        await tab.locator(".step", has_text="Write the results").locator("summary").first.click()
        await call_row.locator("summary").click()
        await tab.evaluate("document.querySelector('#main').scrollTop = 0")
        await picture(tab, f"{name}-run")
        await tab.click(".receipt > summary")
        await tab.locator(".receipt .evidence", has_text="West | 939.00").click()
        assert await tab.inner_text("dialog mark") == "West | 939.00"
        await picture(tab, f"{name}-evidence")
        await tab.click("dialog button")
        await tab.reload()
        await tab.wait_for_selector(".receipt")
        assert await tab.locator(".step.done").count() == 3
        assert await tab.locator(".user").count() == 1


async def test_a_line_of_the_text_that_is_wrong_is_named_and_mended() -> None:
    """U3, Q2: the text comes back as it was left, beside the reason; mended, it runs."""
    async with served(agent(triage=[submit_plan([READ])], execute=READING)) as page, browser(page) as tab:
        await say(tab, "read it")
        await tab.click("text=Edit as text")
        text = await tab.input_value(".plan-text")
        await tab.fill(".plan-text", wrong := text.replace("steps:", "steps: ["))
        await tab.click("text=Run it as edited")
        assert "line " in await tab.inner_text(".problem")
        assert await tab.input_value(".plan-text") == wrong
        await tab.fill(".plan-text", text.replace("Read the note", "Read it well"))
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".receipt")
        assert await tab.inner_text(".step .what") == "Read it well"


async def test_feedback_questions_and_calls_are_answered(tmp_path: Path) -> None:
    """C02, C07, Q10: changes asked for, options as buttons, a call with its difference refused with why."""
    edit = call("edit_note", path="a.txt", old_text="one\ntwo\nthree", new_text="one\n2\nthree")
    execute = [ask_user("Which **year**?", ["2022", "2023"]), edit, finish_step("left as it is", "s1.1")]
    triage = [submit_plan(["Look"]), submit_plan([{**READ, "tools": ["read_note"]}])]
    async with served(agent(triage=triage, execute=execute)) as page, browser(page) as tab:
        await say(tab, "change it")
        await tab.click("text=Ask for changes")
        await say(tab, "read it first")
        await playwright.expect(tab.locator(".edit .row > textarea")).to_have_value("Read the note")
        await tab.click("text=Run it")
        assert await tab.locator(".card.ask textarea").count() == 0, "there is one box to answer in"
        buttons = await tab.locator(".card.ask .buttons button").all_inner_texts()
        assert buttons == ["Go on without an answer", "End the run"]
        await tab.click("button:text('2023')")
        await tab.wait_for_selector(".diff .plus")
        assert await tab.inner_text(".card.ask .diff .minus") == "-two"
        await picture(tab, "page-call")
        await tab.click(".card.ask >> text=Don’t run it")
        await tab.fill("#text", "not this file")
        await tab.click("#send:text('Don’t run it')")
        await tab.wait_for_selector(".receipt")
        await playwright.expect(tab.locator(".asked strong")).to_have_text("year")
        await tab.click(".receipt > summary")
        receipt = await tab.inner_text(".receipt")
        assert await tab.locator(".user").all_inner_texts() == ["change it", "read it first", "2023", "not this file"]
        assert "not this file" in receipt
        assert "2023" in receipt
        assert await tab.inner_text(".receipt strong") == "year", "what was asked is read there as it was asked"


async def test_where_arguments_come_from_stands_beside_them() -> None:
    """X15: each argument of a call that asks has its source beside it; a result opens there, its value marked."""

    def read_invoice() -> str:
        """Read the invoice."""
        return '{"payee": {"iban": "DE89 3704 0044 0532 0130 00"}, "amount": 120.5}'

    def pay(iban: str, amount: float, reference: str) -> str:
        """Pay."""
        return "paid"

    made = call("pay", iban="DE89 3704 0044 0532 0130 00", amount=120.5, reference="RF-2291")
    plan = submit_plan([{"content": "Pay it", "tools": ["read_invoice", "pay"]}])
    execute = [call("read_invoice"), made, finish_step("paid", "s1.2")]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    paying = Agent(model, [read_invoice, pay], storage="memory:", effects={"read_invoice": "read"})
    async with served(paying) as page, browser(page, size=PHONE) as tab:
        await say(tab, "pay the invoice")
        assert await tab.inner_text(".may-change") == "What may be changed: pay (known targets)", "as in the text"
        await tab.fill(".edit .row > textarea", "Pay it twice")
        assert await tab.inner_text(".may-change") == "What may be changed: depends on your edit"
        await tab.fill(".edit .row > textarea", "Pay it")
        assert await tab.inner_text(".may-change") == "What may be changed: pay (known targets)"
        await tab.click("text=Run it")
        sources = tab.locator(".card.ask .args .source")
        await playwright.expect(sources).to_have_text(["← s1.1 payee.iban", "← s1.1 amount", "← no source: RF-2291"])
        assert not (found := await axe(tab)), found
        await sources.first.locator("button").click()
        assert await tab.inner_text("dialog mark") == "DE89 3704 0044 0532 0130 00"
        await tab.press("dialog", "Escape")
        await tab.click("text=Run this call")
        await tab.wait_for_selector(".receipt")
        await tab.click(".receipt > summary")
        await tab.locator(".receipt .evidence", has_text="pay").last.click()
        await playwright.expect(tab.locator("dialog .source")).to_have_text(["← a call that was approved"] * 3)


async def test_the_calls_of_a_program_are_approved_as_one_list() -> None:
    """Decision 0082: the buttons are in sight and say for how many calls they are; the receipt tells them apart."""
    pytest.importorskip("pydantic_monty")

    def refund(order: str, amount: float) -> str:
        """Refund an order."""
        return "refunded"

    code = "for n in range(60):\n    refund(f'A{n:02}', n + 0.5)\n"
    plan = submit_plan([{"content": "Refund them", "tools": ["refund"]}])
    execute = [call("run_program", code=code), finish_step("done", "s1.61")]
    settings = Settings(programs=True, approvals="each")
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    async with served(Agent(model, [refund], storage="memory:", settings=settings)) as page, browser(page) as tab:
        await say(tab, "refund them")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".calls li >> nth=58")
        run = tab.locator("button:text('Run all 60 calls')")
        await playwright.expect(run).to_be_in_viewport(ratio=1)
        await playwright.expect(tab.locator("button:text('Don’t run any of them')")).to_be_in_viewport(ratio=1)
        assert "A00" in await tab.inner_text(".card.ask .args"), "the first call stands above the others"
        assert not (found := await axe(tab)), found
        assert "for n in range(60):" in await tab.inner_text(".card.ask pre"), "its text is shown with what it does"
        assert await tab.locator(".card.ask .args .source").count() == 2, "also where each call asks"
        await picture(tab, "page-program")
        await tab.click("text=Edit the first call")
        await tab.get_by_label("amount").fill("7")
        await playwright.expect(tab.locator("button:text('Run only the first, as edited')")).to_be_visible()
        await tab.click("text=Edit the first call")
        await run.click()
        await tab.wait_for_selector(".receipt")
        await tab.click(".receipt > summary")
        assert "[s1.60] refund order: A59, amount: 59.5" in await tab.inner_text(".receipt")


async def test_open_questions_are_answered_in_any_order() -> None:
    """C07: two steps ask at once; the second is answered first, and a budget that runs out says what more would be."""
    steps = [
        {"content": f"Ask {name}", "done_when": ["told"], "tools": ["read_note"], "depends_on": []} for name in "ab"
    ]
    execute = {
        "s1": [ask_user("Which a?", ["a1", "a2"]), call("read_note", path="a"), finish_step("a", "s1.1")],
        "s2": [ask_user("Which b?", ["b1", "b2"]), call("read_note", path="b"), finish_step("b", "s2.1")],
    }
    asking = agent(triage=[submit_plan(steps)], execute=execute, deliver=["Both are told."])
    async with served(asking) as page, browser(page) as tab:
        await say(tab, "ask both")
        await tab.locator(".limits summary").click()
        await tab.locator(".limits input").first.fill("4")
        await tab.click("text=Run it as edited")
        assert "Which a?" in await tab.inner_text("#use-text")
        await tab.locator(".card.ask", has_text="Which b?").locator("text=Answer in words").click()
        assert "Which b?" in await tab.inner_text("#use-text")
        await say(tab, "b2")
        await playwright.expect(tab.locator(".card.ask")).to_have_count(1)
        await tab.locator("button:text('a1')").click()
        await tab.wait_for_selector("text=“extend” means")
        await tab.locator(".options button:text('extend')").click()
        await tab.wait_for_selector(".receipt")
        await playwright.expect(tab.locator(".answer .md")).to_have_text("Both are told.")


async def test_what_models_and_tools_write_is_never_html() -> None:
    """Content is data: in goals, plans, criteria, arguments, results, questions, answers and evidence."""

    def fetch(address: str) -> str:
        """Fetch a page."""
        return HOSTILE

    plan = submit_plan([{"content": HOSTILE, "done_when": [HOSTILE], "tools": ["fetch"]}], title=HOSTILE)
    execute = [call("fetch", address=HOSTILE), ask_user(HOSTILE, [HOSTILE]), finish_step(HOSTILE, ("s1.1", HOSTILE))]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    hostile = Agent(model, [fetch], storage="memory:", effects={"fetch": "read"})
    async with served(hostile) as page, browser(page) as tab:
        await say(tab, HOSTILE)
        await tab.click("text=Run it")
        await tab.wait_for_selector(".card.ask .options button")
        await tab.locator(".card.ask .options button").click()
        await tab.wait_for_selector(".receipt")
        await tab.click(".receipt > summary")
        await tab.locator(".evidence").last.click()
        await tab.wait_for_selector("dialog[open]")
        assert await tab.evaluate("window.pwned") is None
        assert await tab.locator("#log img, #log script, dialog img, nav img, [href^='javascript']").count() == 0
        assert HOSTILE in await tab.inner_text("dialog .observed")


async def test_threads_are_listed_and_opened_again() -> None:
    """C06, D04: a new one, the earlier one, and another request on it."""
    triage = [
        answer("Four."),
        answer("**Six**, see `b`.\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        answer("Eight."),
        answer("Fifteen."),
    ]
    async with served(agent(triage=triage)) as page, browser(page, language="de-DE") as tab:
        await say(tab, "two and two")
        await tab.wait_for_selector("text=Four.")
        await tab.click("#new")
        await say(tab, "three and three")
        await tab.wait_for_selector("strong:text('Six')")
        await tab.wait_for_selector(".answer td:text-is('2')")
        assert await tab.locator("#threads li").count() == 2
        assert "beantwortet" in await tab.inner_text("#threads")
        await tab.locator("#threads button", has_text="two and two").click()
        await tab.wait_for_selector("text=Four.")
        link = await tab.evaluate("location.hash")
        await tab.click("#new")
        await tab.evaluate(f"location.hash = '{link}'")
        await tab.wait_for_selector("text=Four.")
        assert "0 von höchstens 200" in str(await tab.get_attribute("#meter .rounds", "title"))
        await say(tab, "and twice that")
        await tab.wait_for_selector("text=Eight.")
        assert await tab.locator(".user").all_inner_texts() == ["two and two", "and twice that"]
        assert "Four." in await tab.inner_text("#log")
        await tab.focus(".edit-request")
        await tab.keyboard.press("Enter")
        assert await tab.input_value("#text") == "two and two", "Q29: an earlier request is changed and asked again"
        assert "Was danach kam" in await tab.inner_text("#use-text")
        assert not (found := await axe(tab)), found
        await picture(tab, "page-instead")
        await say(tab, "three and five")
        await tab.wait_for_selector("text=Fifteen.")
        for _ in range(2):
            await playwright.expect(tab.locator(".user")).to_have_text(["three and five"])
            assert "Eight." not in await tab.inner_text("#log"), "what came after it is gone, as is what was typed"
            assert await tab.input_value("#text") == ""
            await tab.reload()


async def test_a_failed_step_offers_no_skip() -> None:
    """It would end the run, which another button says; what there is is delivered by one press."""
    steps = [{**READ, "depends_on": []}, {"content": "Find the other", "depends_on": [], "tools": ["read_note"]}]
    work = {"s1": READING, "s2": [give_up("there is none", "blocked")]}
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work, "deliver": ["It says seven."]})
    limits: Any = {"limits": {"replans": 0}}
    failing = Agent(model, [read_note], storage="memory:", effects={"read_note": "read"}, settings=limits)
    async with served(failing) as page, browser(page, size=PHONE) as tab:
        await say(tab, "read both")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".card.ask .options button")
        buttons = await tab.locator(".card.ask button").all_inner_texts()
        assert buttons == ["replan", "retry", "deliver what there is", "stop", "End the run"]
        assert not (found := await axe(tab)), found
        await tab.click("text=deliver what there is")
        await tab.wait_for_selector(".outcome.partial")
        assert not (found := await axe(tab)), found


async def test_one_of_several_models_is_chosen() -> None:
    """The agent's own comes first; what was chosen stays chosen, and is for the requests that follow."""
    async with served(agent(triage=[answer("Mine.")]), model="a:model", also=["demo"]) as page, browser(page) as tab:
        models = tab.get_by_label("Model")
        assert await models.locator("option").all_inner_texts() == ["a:model", "demo"]
        await say(tab, "two and two")
        await tab.wait_for_selector("text=Mine.")
        await models.select_option("demo")
        await say(tab, "dance")
        await tab.wait_for_selector("text=demo model")
        await tab.reload()
        await playwright.expect(models).to_have_value("demo")
        assert not (found := await axe(tab)), found
        refused = await page.client.post("/api/threads", json={"goal": "x", "model": "b:other"})
        assert (refused.status_code, "b:other" in refused.text) == (400, True)


async def test_what_ends_a_run_is_asked_about_and_reads_well() -> None:
    """Q29: ending a run takes a second press, its red button can be read, and a plan is approved by three Tabs."""
    plan = [{**READ, "content": f"Read {n}"} for n in range(6)]
    async with served(agent(triage=[submit_plan(plan)])) as page, browser(page) as tab:
        await say(tab, "read it")
        await tab.wait_for_selector(".card.ask")
        reached = await tab.evaluate(
            "[...document.querySelectorAll('.card.ask :is(button, textarea, input, summary)')]"
            ".filter((each) => each.tabIndex >= 0 && each.checkVisibility()).map((each) => each.textContent)"
        )
        assert reached == ["Run it", "Ask for changes", "Edit", "Edit as text", "End the run"]
        await tab.click("text=End the run")
        assert await tab.locator(".receipt").count() == 0, "one press ends nothing"
        assert await contrast(tab, "dialog button.bad") >= 4.5
        await tab.click("dialog button.bad")
        await tab.wait_for_selector(".outcome.cancelled")


async def test_the_arguments_of_a_call_are_edited_one_by_one() -> None:
    """Q29: a text keeps its line breaks, a number is a number, and what is no value is said beside its field."""
    made: list[tuple[str, int, bool]] = []

    def keep(text: str, copies: int = 1, loud: bool = False) -> str:
        """Keep a text."""
        made.append((text, copies, loud))
        return "kept"

    plan = submit_plan([{"content": "Keep it", "done_when": ["kept"], "tools": ["keep"]}])
    execute = [call("keep", text="one\ntwo", copies=2, loud=False), finish_step("kept", ("s1.1", "kept"))]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    asking = Agent(model, [keep], storage="memory:", settings={"approvals": "each"})
    async with served(asking) as page, browser(page, size=PHONE) as tab:
        await say(tab, "keep it")
        await tab.click("text=Run it")
        await tab.click("text=Edit the arguments")
        assert await tab.input_value("#argument-text") == "one\ntwo"
        await tab.fill("#argument-text", "one\n“two”")
        await tab.fill("#argument-copies", "three")
        await tab.click("text=Run this call")
        await playwright.expect(tab.locator(".field .wrong:not([hidden])")).to_have_count(1)
        await tab.fill("#argument-copies", "3")
        await tab.locator(".field", has_text="loud").locator("input").check()
        await tab.click("text=Run this call")
        await tab.wait_for_selector(".receipt")
    assert made == [("one\n“two”", 3, True)]


@pytest.mark.parametrize(
    ("language", "typed", "asked", "wrong", "meant"),
    [
        ("de-DE", "184,30", "1.234", "„1.234“ kann zweierlei heißen: 1234 oder 1,234 schreiben.", 184.3),
        ("de-AT", "1 184,30", "1.234", "„1.234“ kann zweierlei heißen: 1234 oder 1,234 schreiben.", 1184.3),
        ("en-US", "1,184.30", "1,234", "“1,234” can be read in two ways: write 1234 or 1.234.", 1184.3),
        ("en-US", "0.123", "0,123", "This is no number.", 0.123),
        ("en-IN", "12,34,567", "12,34", "This is no number.", 1234567),
    ],
)
async def test_a_number_is_read_as_the_browser_writes_it(
    language: str, typed: str, asked: str, wrong: str, meant: float
) -> None:
    """Q29: the decimal comma counts; what may be thousands is asked back and never paid; other words are no number."""
    paid: list[float] = []

    def pay(amount: float) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    plan = submit_plan([{"content": "Pay it", "done_when": ["paid"], "tools": ["pay"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("pay", amount=900.5), finish_step("paid", "s1.1")]})
    paying = Agent(model, [pay], storage="memory:", settings={"approvals": "each"})
    async with served(paying) as page, browser(page, language=language) as tab:
        await say(tab, "pay it")
        await tab.get_by_role("button", name=re.compile("^(Run it|Ausführen)$")).click()
        await tab.wait_for_selector(".card.ask h2:text-is('pay')")
        buttons = tab.locator(".card.ask .buttons button")
        await buttons.nth(2).click()
        for text, why in ((asked, wrong), ("viel", "Zahl" if language[:2] == "de" else "number")):
            await tab.fill("#argument-amount", text)
            await buttons.first.click()
            await playwright.expect(tab.locator(".field .wrong")).to_contain_text(why)
        assert paid == []
        await tab.fill("#argument-amount", typed)
        await buttons.first.click()
        await tab.wait_for_selector(".receipt")
    assert paid == [meant]


async def test_long_options_fit_a_phone_and_a_request_is_made_once_more() -> None:
    """Q29: no button is cut off; an ended request is asked again, or put into the box to be changed."""
    options = ["Send it to the colleague who asked for it in the meeting last Thursday", "x" * 80]
    triage = [ask_user("Where to?", options), answer("**Sent**."), answer("Sent once more.")]
    async with served(agent(triage=triage)) as page, browser(page, size=PHONE) as tab:
        await say(tab, "send it")
        await tab.wait_for_selector(".card.ask .options button")
        cut = await tab.evaluate(
            "[...document.querySelectorAll('.card.ask button')].filter((each) => each.scrollWidth > each.clientWidth ||"
            " each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent)"
        )
        assert cut == []
        await tab.locator(".card.ask .options button").first.click()
        await tab.click("text=Change the request")
        assert await tab.input_value("#text") == "send it"
        await tab.click("text=Try again")
        await tab.wait_for_selector("text=Sent once more.")
        assert await tab.locator(".user", has_text="send it").count() == 1, "in place of the first"


@pytest.mark.parametrize("after_reload", [False, True])
async def test_asking_again_for_a_payment_pays_twice_only_if_the_person_says_so(after_reload: bool) -> None:
    """F08: the buttons below an answer go the way of the earlier message's ✎: it is said that what was done stays
    done, the payment stays on the page, and it is asked about before it is made again."""
    paid: list[str] = []

    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return f"paid {to}"

    plan = submit_plan([{"content": "Pay R-17", "done_when": ["R-17 is paid"], "tools": ["pay"]}])
    turn = [call("pay", to="R-17"), finish_step("Paid.", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan] * 3, "execute": [*turn, turn[0], turn[0]]})
    payer = Agent(model, [pay], storage="memory:", effects={"pay": "write"})
    async with served(payer) as page, browser(page) as tab:
        await say(tab, "pay R-17")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".outcome.completed")
        for change in (False, True):
            if after_reload:
                await tab.reload()
            if change:
                await tab.click("text=Change the request")
                assert "leaves the conversation" in await tab.inner_text("#use-text")
                await say(tab, "pay R-17, please")
            else:
                await tab.click("text=Try again")
                assert "it changed stays changed" in await tab.inner_text("dialog")
                await tab.locator("dialog").get_by_role("button", name="Try again").click()
            await tab.wait_for_selector(".card.ask")
            if after_reload:
                await tab.reload()
            await playwright.expect(tab.locator(".note", has_text="Done earlier")).to_contain_text('pay(to="R-17")')
            await tab.click("text=Run it")
            await tab.wait_for_selector(".card.ask b:text-is('pay')")
            assert (paid, await tab.locator(".user").count()) == (["R-17"], 1)
            options = await tab.locator(".card.ask .options button").all_inner_texts()
            assert options == ["not once more", "once more", "skip"], "they say what happens"
            await tab.click("text=End the run")
            await tab.locator("dialog").get_by_role("button", name="End the run").click()
            await tab.wait_for_selector(".outcome.cancelled")
            assert "Done earlier in this conversation" in await tab.inner_text(".answer")
            assert "pay to: R-17 → done" in await tab.text_content(".receipt")


@asynccontextmanager
async def steered(folder: Path, before: str, *after: str) -> AsyncIterator[tuple[Any, Agent]]:
    """A tab on the page of another process, after “wait” was stopped, told to only look, and answered with
    `before`; and its agent."""
    gate, storage = Gate(), f"sqlite:///{folder / 'runs.db'}"
    triage = [
        submit_plan([{"content": "Wait", "done_when": ["waited"], "tools": ["wait_here"]}]),
        answer(before),
    ]
    waiting, _ = gate.agent(storage, triage=triage, execute=[call("wait_here")])
    async with served(waiting) as page, browser(page) as tab:
        await say(tab, "wait")
        await tab.click("text=Run it")
        await gate.entered.wait()
        await tab.click("#stop")
        gate.go.set()
        await tab.wait_for_selector("text=Go on")
        await say(tab, "only look at it")
        await tab.wait_for_selector(f"text={before}")
    later, _ = gate.agent(storage, triage=[*map(answer, after)])
    async with served(later) as page, browser(page) as tab:
        await tab.locator("#threads button").first.click()
        await tab.wait_for_selector(".outcome")
        assert await tab.locator(".user").all_inner_texts() == ["wait", "only look at it"]
        yield tab, later


async def test_words_to_a_stopped_run_are_no_request(tmp_path: Path) -> None:
    """U4, Q29: they stay below their request when the next one is made, and cannot be asked by themselves."""
    async with steered(tmp_path, "Only looked.", "Once more.") as (tab, _):
        await say(tab, "what now?")
        await tab.wait_for_selector("text=Once more.")
        for _ in range(2):
            assert await tab.locator(".user").all_inner_texts() == ["wait", "only look at it", "what now?"]
            assert await tab.locator(".asked-before").all_inner_texts() == ["✎\nwait"]
            await tab.reload()
            await tab.wait_for_selector(".outcome.answered")


async def test_a_request_that_was_steered_is_asked_again_as_it_was_asked(tmp_path: Path) -> None:
    """U4, Q29: “Try again” asks the request and not the words that were said on it, whose place it takes, too."""
    async with steered(tmp_path, "Only looked.", "Once more.") as (tab, agent):
        await tab.click("text=Try again")
        await tab.wait_for_selector("text=Once more.")
        assert await tab.locator(".user").all_inner_texts() == ["wait"]
        assert [info.goal for info in await agent.threads()] == ["wait"]


async def test_a_request_is_made_again_as_it_was_worded() -> None:
    """Q29: the whole of a long one; one that failed before anything was done is shown and offered like any other."""
    goal = f"{'x' * 2500} the end"
    model = ScriptedModel(roles={"triage": [answer("Yes."), answer("Again.")]})
    async with served(Agent(model, storage="memory:")) as page, browser(page) as tab:
        await say(tab, goal)
        await tab.wait_for_selector("text=Yes.")
        await tab.click("text=Change the request")
        assert await tab.input_value("#text") == goal
        await tab.press("#text", "Escape")
        await tab.click("text=Try again")
        await tab.wait_for_selector("text=Again.")
    assert ["the end" in str(request.messages[-1].content) for request in model.requests] == [True] * 2
    limits: Any = {"limits": {"cost_usd": 1}}
    unpriced = Agent(ScriptedModel(roles={}), storage="memory:", settings=limits)
    async with served(unpriced) as page, browser(page) as tab:
        await say(tab, "two and two")
        await tab.wait_for_selector(".outcome.failed")
        await playwright.expect(tab.locator(".user")).to_have_text(["two and two"])
        await tab.click("text=Change the request")
        assert await tab.input_value("#text") == "two and two"


@pytest.mark.parametrize("goes_on", [False, True])
async def test_an_answer_stays_where_its_audit_was_cut_off(tmp_path: Path, goes_on: bool) -> None:
    """C06, U4: it is read, and what is typed is the next request: there is nothing that the words could steer."""
    begun, storage = asyncio.Event(), f"sqlite:///{tmp_path / 'runs.db'}"

    async def hang(*_: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    roles: Any = {"triage": [call("read_note", path="a"), answer("It says **seven**.")], "judge": [audit(), hang]}
    async with agent(storage, **roles) as reading:
        run = await reading.start("what does it say?")
        audited = asyncio.create_task(reading.audit(run))
        await begun.wait()
        audited.cancel()
        await asyncio.gather(audited, return_exceptions=True)
    later = agent(storage, triage=[answer("Eight.")], judge=[audit()] * 2)
    async with served(later) as page, browser(page, language="de-DE") as tab:
        await tab.locator("#threads button").first.click()
        await tab.wait_for_selector("strong:text('seven')")
        await tab.wait_for_selector("button:text('Weiter')")
        if goes_on:
            await tab.click("button:text('Weiter')")
            await tab.wait_for_selector(".receipt")
            for _ in range(2):
                await playwright.expect(tab.locator(".said strong:text('seven')")).to_have_count(1)  # once it is drawn
                await tab.reload()
                await tab.wait_for_selector(".receipt")
        await say(tab, "and the next?")
        await tab.wait_for_selector("text=Eight.")
        for _ in range(2):
            assert await tab.locator(".user").all_inner_texts() == ["what does it say?", "and the next?"]
            assert await tab.locator("strong:text('seven')").count() == 1
            assert await tab.locator("details.earlier .call").count() == 1, "what it did stays below it"
            await tab.reload()
            await tab.wait_for_selector("text=Eight.")


async def test_words_that_nothing_waits_for_are_kept_and_the_way_on_is_named() -> None:
    """U4: a request that was stopped before it began has no plan to change; “Go on” begins it."""
    begun = agent(triage=[answer("Four."), answer("Eight.")])
    async with served(begun) as page, browser(page) as tab:
        await say(tab, "two and two")
        await tab.wait_for_selector("text=Four.")
        thread = (await begun.threads())[0].thread_id
        stream = begun.stream("four and four", thread_id=thread)
        async for event in stream:
            if event["type"] == "started":
                stream.drain()
        await tab.wait_for_selector("button:text('Go on')")
        await say(tab, "quickly")
        await tab.wait_for_selector(".problem:has-text('press that first')")
        assert await tab.input_value("#text") == "quickly"
        await tab.click("text=Go on")
        await tab.wait_for_selector("text=Eight.")


async def test_a_printed_link_is_taken_in_an_open_tab() -> None:
    """N75: a token in the address is kept and taken out of it, and the tab works with it."""
    async with served(agent(triage=[answer("Four.")])) as page, browser(page) as tab:
        await tab.evaluate("localStorage.setItem('donewhen-token', 'of yesterday')")
        await tab.evaluate(f"location.hash = 'token={TOKEN}'")
        await tab.wait_for_url(lambda url: "#" not in url)
        await tab.wait_for_selector(".empty h2")
        await say(tab, "two and two")
        await tab.wait_for_selector("text=Four.")


async def test_a_conversation_of_another_folder_goes_on_there_alone(tmp_path: Path) -> None:
    """R18: its plan would write with the tools here. The page says which command opens it; the wire refuses it too."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    (here := tmp_path / "here").mkdir()
    plan = submit_plan([{"content": "Write a.md", "done_when": ["it is there"], "tools": ["write_file"]}])
    model = ScriptedModel(roles={"triage": [answer("Four."), plan]})
    async with Agent(model, workspace_tools(tmp_path), storage=storage) as other:
        done = await other.start("two and two", metadata={"dir": str(tmp_path)})
        waits = await other.start("write a.md", metadata={"dir": str(tmp_path)})
    idle = Agent(ScriptedModel(roles={}), workspace_tools(here), storage=storage)
    async with served(idle, dir=str(here)) as page, browser(page) as tab:
        for goal in ("two and two", "write a.md"):
            await tab.locator("#threads button", has_text=goal).click()
            await tab.wait_for_selector(f"#log .note:has-text('donewhen chat --dir {tmp_path}')")
            assert await tab.locator("#log button:text-is('Run it'), #log .again, #log .edit-request").count() == 0
            assert await tab.is_disabled("#text")
        (asked,) = waits.pending
        refused = [
            await page.client.post(f"/api/threads/{waits.thread_id}/answer", json={"id": asked["id"], "answer": "yes"}),
            await page.client.post(f"/api/threads/{waits.thread_id}/go-on", json={"steer": "write b.md"}),
            await page.client.post(f"/api/threads/{done.thread_id}/undo", json={}),
            await page.client.post("/api/threads", json={"goal": "write b.md", "thread": done.thread_id}),
        ]
        assert [(each.status_code, str(tmp_path) in each.json()["error"]["text"]) for each in refused] == [
            (409, True)
        ] * 4
        await tab.click("#new")
        assert await tab.is_enabled("#text")
    assert not [*here.iterdir()]


@pytest.mark.parametrize("kind", ["plan", "tool"])
async def test_a_question_for_somebody_else_is_shown_and_not_asked(kind: str) -> None:
    """R18: who sits here cannot answer it: there are no buttons for that, and it does not wait "for you"."""
    plan = submit_plan([{"content": "Change it", "done_when": ["it is changed"], "tools": []}])
    settings: Any = {"answered_by": {kind: "chef"}}
    made = call("edit_note", path="a.txt", old_text="one", new_text="two")
    model = ScriptedModel(roles={"triage": [plan], "execute": [made]})
    asking = Agent(model, [edit_note], storage="memory:", effects={"edit_note": "write"}, settings=settings)
    async with served(asking) as page, browser(page) as tab:
        await say(tab, "change it")
        if kind == "tool":
            await tab.click("text=Run it")
        await tab.wait_for_selector(".card.ask .problem:has-text('chef')")
        for _ in range(2):
            assert await tab.locator(".card.ask .buttons button").all_inner_texts() == ["End the run"]
            assert await tab.is_disabled("#text")
            await tab.wait_for_selector("#threads .status:has-text('waiting for chef')")
            assert "●" not in await tab.title()
            await tab.reload()
            await tab.wait_for_selector(".card.ask")
        await tab.click("text=End the run")
        await tab.locator("dialog").get_by_role("button", name="End the run").click()
        await tab.wait_for_selector(".outcome.cancelled")


async def test_what_an_earlier_request_did_stays_below_its_answer() -> None:
    """S01, C06: its calls, its evidence and what it cost, with whole results, after the next one and after a reload."""
    triage = [answer("Hello."), submit_plan([READ]), answer("Eight.")]
    async with served(agent(triage=triage, execute=READING)) as page, browser(page, size=PHONE) as tab:
        await say(tab, "hello")
        await tab.wait_for_selector(".outcome.answered")
        await say(tab, "read it")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".outcome.completed")
        await say(tab, "and one more?")
        await tab.wait_for_selector(".outcome.answered")
        for _ in range(2):
            assert "tokens" in await tab.inner_text("div.earlier")
            earlier = tab.locator("details.earlier")
            assert "2 rounds" in await earlier.inner_text()
            await earlier.locator("summary").first.click()
            await earlier.locator(".step > details > summary").click()
            assert "cited" in await earlier.inner_text()
            await earlier.locator(".call summary").click()
            await earlier.get_by_role("button", name="Show all of it").click()
            await tab.wait_for_selector("dialog[open] .observed")
            assert (await tab.text_content("dialog .observed")) == NOTE
            assert not (found := await axe(tab)), found
            await tab.locator("dialog button", has_text="Close").click()
            order = await tab.locator("#log > *").evaluate_all(
                "(all) => all.map((each) => each.className.split(' ')[0])"
            )
            assert order[:3] == ["asked-before", "card", "earlier"], order
            await picture(tab, "page-earlier")
            await tab.reload()
            await tab.wait_for_selector(".outcome.answered")


async def test_the_page_works_below_a_path() -> None:
    """N75: its addresses are relative, so a proxy may serve it below a path; Markdown is drawn there, too."""
    model = agent(triage=[answer("**Four**.")])
    async with served(model, below="/office") as page, browser(page) as tab:
        await say(tab, "two and two")
        await tab.wait_for_selector("strong:text('Four')")
        assert await tab.locator("#threads li").count() == 1


async def contrast(tab: Any, selector: str) -> float:
    """Return the contrast of an element's text to its background, as WCAG computes it."""
    return float(
        await tab.locator(selector).evaluate(
            """(node) => {
              const parts = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
              const light = (color) => {
                const [r, g, b] = parts(color).map((each) => each / 255)
                  .map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const { color, backgroundColor } = getComputedStyle(node);
              const [most, least] = [light(color), light(backgroundColor)].sort((a, b) => b - a);
              return (most + 0.05) / (least + 0.05);
            }"""
        )
    )
