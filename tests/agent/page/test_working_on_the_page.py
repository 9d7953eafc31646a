"""The page as a place where one works, in headless Chromium: nothing typed is lost, everything is within reach."""

import base64
import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from langchain_core.tools import tool
from langgraph.types import interrupt
from pydantic import BaseModel, Field

from donewhen import Agent
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.agent.page.test_page import NOTE, READ, READING, agent
from tests.kit.screens.browser import DESKTOP, MARKS, PHONE, axe, browser, picture, playwright, say, timed
from tests.kit.screens.pages import Gate, served

pytestmark = MARKS
TWO = [{**READ, "content": name, "depends_on": []} for name in ("First", "Second")]


async def asked(tab: Any, goal: str = "read it") -> None:
    """Send the goal, and wait for what is asked."""
    await say(tab, goal)
    await tab.wait_for_selector(".card.ask")


async def focused(tab: Any) -> str:
    return str(await tab.evaluate("document.activeElement.id || document.activeElement.tagName"))


async def test_the_checklist_has_the_order_of_the_plan_that_runs() -> None:
    """N38: steps moved before they run stand, and are done, in their new order."""
    execute = {
        "s1": [call("read_note", path="a"), finish_step("one", "s1.1")],
        "s2": [call("read_note", path="b"), finish_step("two", "s2.1")],
    }
    reading = agent(triage=[submit_plan(TWO)], execute=execute, deliver=["Both are read."])
    async with served(reading) as page, browser(page) as tab:
        await asked(tab)
        await tab.locator("[aria-label=Down]").first.click()
        first = tab.locator(".edit .row > textarea").first
        await playwright.expect(first).to_have_value("Second")
        assert await tab.evaluate("document.activeElement.getAttribute('aria-label')") in ("Down", None)
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".receipt")
        assert await tab.locator(".step .what").all_inner_texts() == ["Second", "First"]


async def test_a_refused_edit_keeps_what_was_edited() -> None:
    """N38, C02, C03, U3: the reason stands above the form, which is as it was left; mended, it runs as edited."""
    execute = [call("read_note", path="a.txt"), finish_step("seven", ["s1.1", "s1.1"])]
    async with served(agent(triage=[submit_plan([READ])], execute=execute)) as page, browser(page) as tab:
        await asked(tab)
        await tab.click("text=Add a criterion")
        await tab.locator(".edit .crit textarea").nth(1).fill("the number is named")
        await tab.fill(".edit .row > textarea", "")
        await tab.click(".limits summary")
        await tab.locator(".limits input").first.fill("7")
        await tab.click("text=Add a step")
        await tab.locator(".edit .row").nth(1).locator("[aria-label=Remove]").click()
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".card.ask .problem")
        assert await tab.input_value(".edit .crit:nth-child(2) textarea") == "the number is named"
        assert await tab.input_value(".limits input >> nth=0") == "7"
        await tab.fill(".edit .row > textarea", "Read it all")
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".receipt")
        assert await tab.inner_text(".step .what") == "Read it all"
        assert "2/7 rounds" in await tab.inner_text("#meter")
        await tab.click(".receipt > summary")
        assert "the number is named" in await tab.inner_text(".receipt")


async def test_the_text_of_a_plan_follows_its_list() -> None:
    """N38: what was edited in the list stands in the text; neither is lost when one turns to the other."""
    execute = [call("read_note", path="a.txt"), finish_step("seven", "s1.1")]
    async with served(agent(triage=[submit_plan([READ])], execute=execute)) as page, browser(page) as tab:
        await asked(tab)
        await tab.fill(".edit .row > textarea", "Read it twice")
        await tab.click("text=Edit as text")
        await playwright.expect(tab.locator(".plan-text")).to_have_value(re.compile("Read it twice"))
        await tab.click("text=Edit as a list")
        assert await tab.input_value(".edit .row > textarea") == "Read it twice"
        await tab.click("text=Edit as text")
        await tab.fill(".plan-text", (await tab.input_value(".plan-text")).replace("twice", "three times"))
        await tab.reload()
        await tab.wait_for_selector(".card.ask")
        assert "three times" in await tab.input_value(".plan-text")
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".receipt")
        assert await tab.inner_text(".step .what") == "Read it three times"


async def test_what_is_half_typed_survives_a_reload_and_another_thread() -> None:
    """N38: words in the box, an edited plan, and which question the words are for, each with its thread."""
    triage = [submit_plan([READ]), answer("Hello.")]
    async with served(agent(triage=triage, execute=READING)) as page, browser(page) as tab:
        await asked(tab)
        await tab.fill(".edit .row > textarea", "Read it twice")
        await tab.click("text=Ask for changes")
        await tab.fill("#text", "half a sentence")
        await tab.reload()
        await tab.wait_for_selector(".card.ask")
        assert await tab.input_value(".edit .row > textarea") == "Read it twice"
        assert await tab.input_value("#text") == "half a sentence"
        assert "What should be different?" in await tab.inner_text("#use-text")
        await tab.click("#new")
        assert await tab.input_value("#text") == ""
        await tab.fill("#text", "another")
        await tab.locator("#threads .open", has_text="read it").click()
        await tab.wait_for_selector(".card.ask")
        assert await tab.input_value("#text") == "half a sentence"
        assert await tab.input_value(".edit .row > textarea") == "Read it twice"
        await tab.click("#new")
        assert await tab.input_value("#text") == "another"
        await say(tab, "hello")
        await tab.wait_for_selector("text=Hello.")
        await tab.click("#new")
        assert await tab.input_value("#text") == ""


async def test_the_focus_is_where_one_types() -> None:
    """N38: in the box while it works and when it asks; a form that is being filled in keeps it."""
    gate = Gate()
    waiting, _ = gate.agent()
    async with served(waiting) as page, browser(page) as tab:
        assert await focused(tab) == "text"
        await asked(tab, "wait")
        assert await focused(tab) == "text"
        await tab.click("text=Run it")
        await gate.entered.wait()
        assert await focused(tab) == "text"
        assert await tab.is_enabled("#text")
        gate.go.set()
        await tab.wait_for_selector(".receipt")
        assert await focused(tab) == "text"


async def test_one_talks_to_it_while_it_works() -> None:
    """N76: what is typed at work is heard at the next round, and stands in the conversation."""
    gate = Gate()
    waiting, model = gate.agent()
    async with served(waiting) as page, browser(page) as tab:
        await asked(tab, "wait")
        await playwright.expect(tab.locator("#threads")).to_contain_text("waiting for you")
        await tab.click("text=Run it")
        await gate.entered.wait()
        await playwright.expect(tab.locator("#threads")).to_contain_text("at work")
        assert "waiting for you" not in await tab.inner_text("#threads"), "N48: only where it waits"
        await tab.wait_for_selector("#busy:not([hidden])")
        await say(tab, "in blue, please")
        await tab.wait_for_selector(".user:text('in blue, please')")
        await playwright.expect(tab.locator("#text")).to_have_value("")
        await picture(tab, "page-working")
        gate.go.set()
        await tab.wait_for_selector(".receipt")
        assert "in blue, please" in str([message.content for message in model.requests[-1].messages])
        assert await tab.locator("#busy").is_hidden()


async def test_stop_is_heard_at_once() -> None:
    """U4: that it stops is said while the call is under way, in every tab; the button is not offered twice."""
    gate = Gate()
    waiting, _ = gate.agent()
    async with served(waiting) as page, browser(page) as tab:
        await asked(tab, "wait")
        await tab.click("text=Run it")
        await gate.entered.wait()
        await tab.click("#stop")
        for _ in range(2):
            await tab.wait_for_selector("#busy:has-text('stops after the call')")
            assert await tab.is_disabled("#stop")
            await tab.reload()
        gate.go.set()
        for _ in ("as it stops", "as it is read again"):
            await tab.wait_for_selector("text=Go on")
            assert await tab.get_attribute("#text", "placeholder") == "What should be different?", "nothing is asked"
            assert "at work:" not in await tab.inner_text(".step summary")
            assert "◐" not in await tab.inner_text(".step summary")
            await tab.reload()
        await tab.click("text=Go on")
        await tab.wait_for_selector(".outcome.completed")


async def test_the_tools_of_a_step_are_chosen(tmp_path: Path) -> None:
    """N76: what a step may use is ticked; what was approved is what was ticked."""
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "Look", "tools": ["list_files"]}])]})
    async with (
        served(Agent(model, workspace_tools(tmp_path), storage="memory:"), dir=str(tmp_path)) as page,
        browser(page) as tab,
    ):
        await asked(tab)
        await tab.locator(".edit .tools summary").click()
        await tab.fill(".edit .tools > input", "write")
        await tab.locator(".choice label:visible", has_text="write_file").locator("input").check()
        assert "list_files, write_file" in await tab.inner_text(".edit .tools summary")
        await picture(tab, "page-tools")
        await tab.click("text=Run it as edited")
        await tab.wait_for_selector(".problem, .step")
        thread = (await page.client.get("/api/threads")).json()["threads"][0]["thread_id"]
        (plan,) = [event["plan"] for event in await page.told(thread, ends=2) if event["type"] == "revision"]
        assert plan["steps"][0]["tools"] == ["list_files", "write_file"]


async def test_where_it_works_and_with_what_is_said(tmp_path: Path) -> None:
    """N38, N76: folder and model in the head, on the empty page, and in the list where a thread is of elsewhere."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(agent(storage, triage=[answer("Four.")]), dir="/elsewhere", model="a:b") as page:
        await page.told(await page.start("two and two"))
    async with served(agent(storage), dir=str(tmp_path), model="some:model") as page, browser(page) as tab:
        assert await tab.inner_text("#place") == f"{tmp_path.name} · some:model"
        assert str(tmp_path) in await tab.inner_text(".empty")
        await playwright.expect(tab.locator("#threads")).to_contain_text("Begun in /elsewhere")
        await tab.locator(".example").first.click()
        assert await tab.input_value("#text") == "What is in this folder?"
        assert await focused(tab) == "text"


async def test_a_file_is_dropped_in(tmp_path: Path) -> None:
    """N76: it is put into the folder, beside what is there, and named in the box; chosen by hand likewise."""
    (tmp_path / "data.csv").write_text("old")
    async with served(agent(), dir=str(tmp_path)) as page, browser(page) as tab:
        drop = """() => { const data = new DataTransfer();
            data.items.add(new File(["a,b"], "data.csv", {type: "text/csv"}));
            for (const type of ["dragenter", "dragover", "drop"])
              document.body.dispatchEvent(new DragEvent(type, {dataTransfer: data, bubbles: true})); }"""
        await tab.evaluate(drop)
        await tab.wait_for_selector("text=data (2).csv is in the folder now.")
        assert await tab.input_value("#text") == "data (2).csv "
        assert await tab.locator("#drop").is_hidden()
        files = [{"name": "../b.txt", "mimeType": "text/plain", "buffer": b"b"}]
        await tab.set_input_files("#files", files)
        await tab.wait_for_selector("text=b.txt is in the folder now.")
    kept = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert kept == {"data.csv": "old", "data (2).csv": "a,b", "b.txt": "b"}


@pytest.mark.parametrize("sees", [True, False])
async def test_a_picture_goes_with_the_request(tmp_path: Path, sees: bool) -> None:
    """N76: the model sees it, also when the request is made again; if the model takes none, the page says so."""
    model = ScriptedModel(roles={"triage": [answer("A receipt."), answer("Still one.")]})
    model.profile = {"image_inputs": sees}
    async with served(Agent(model, storage="memory:"), dir=str(tmp_path)) as page, browser(page) as tab:
        await tab.set_input_files("#files", [{"name": "beleg.png", "mimeType": "image/png", "buffer": b"picture"}])
        await tab.wait_for_selector("text=goes with your request as a picture")
        await tab.reload()
        await playwright.expect(tab.locator("#text")).to_have_value("beleg.png ")
        await say(tab, "beleg.png what is it?")
        await tab.wait_for_selector(".outcome.answered")
        assert await tab.locator("text=Pictures that the model does not see: 1 of 1").count() == (0 if sees else 1)
        await tab.click("text=Try again")
        await tab.wait_for_selector("text=Still one.")
    shown = [json.dumps([message.content for message in request.messages]) for request in model.requests]
    assert [base64.b64encode(b"picture").decode() in each for each in shown] == [sees] * 2


async def test_the_colours_are_chosen_and_kept() -> None:
    """N76: those of the system, or what was chosen in this browser, also by keyboard; axe finds nothing in either."""
    async with served(agent()) as page, browser(page, size=PHONE, scheme="dark") as tab:
        dark = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
        await tab.focus("#theme")
        await tab.keyboard.press("Enter")
        assert await tab.get_attribute("#theme", "aria-label") == "Theme: light"
        await tab.reload()
        await tab.wait_for_selector(".empty")
        assert await tab.get_attribute("#theme", "aria-label") == "Theme: light"
        assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") != dark
        assert not (found := await axe(tab)), found
        await tab.click("#theme")
        await tab.emulate_media(color_scheme="light")
        assert await tab.evaluate("getComputedStyle(document.body).backgroundColor") == dark
        assert not (found := await axe(tab)), found


async def test_a_receipt_is_saved_and_checked(tmp_path: Path) -> None:
    """It is signed with the user's key; a saved file is checked, and the line that was changed is named."""
    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    async with served(agent(triage=[answer("Four.")]), receipt_key=pem) as page, browser(page, size=PHONE) as tab:
        await say(tab, "two and two")
        await tab.click(".receipt > summary")
        async with tab.expect_download() as coming:
            await tab.click("text=Save as a file")
        download = await coming.value
        await download.save_as(file := tmp_path / "receipt.json")
        found = tab.locator(".receipt [role=status]")
        await playwright.expect(found).to_contain_text("as they were written; signed with ")
        file.write_text(file.read_text("utf-8").replace("Four.", "Five."), "utf-8")
        await tab.set_input_files(".receipt input[type=file]", file)
        await playwright.expect(found).to_have_text(
            re.compile(r"receipt\.json: from line \d+ on, it is not as it was written")
        )
        assert not (complaints := await axe(tab)), complaints
        (tmp_path / "note.json").write_text("{}")
        await tab.set_input_files(".receipt input[type=file]", tmp_path / "note.json")
        await playwright.expect(found).to_contain_text("this is no receipt")


async def saved(tab: Any, tmp_path: Path) -> str:
    """Return the conversation as the page saves it, and load the page again."""
    await tab.click(".receipt > summary")
    async with tab.expect_download() as coming:
        await tab.click("text=Save conversation")
    await (await coming.value).save_as(file := tmp_path / "talk.md")
    await tab.reload()
    await tab.wait_for_selector(".receipt")
    return file.read_text("utf-8")


async def test_a_conversation_is_saved(tmp_path: Path) -> None:
    """All of it as Markdown, what the person said as quotes; what tools returned is no part of it."""
    reading = agent(triage=[submit_plan([READ]), answer("It is *six*.")], execute=READING)
    async with served(reading) as page, browser(page) as tab:
        await asked(tab, "read it\nfor me")
        await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt")
        await say(tab, "three and three")
        await tab.wait_for_selector("em:text('six')")
        text = await saved(tab, tmp_path)
        parts = text.split("\n\n")
        assert parts == ["> read it\n> for me", *parts[1:-2], "> three and three", "It is *six*.\n"]
        assert parts[1].startswith("It says seven")
        assert NOTE not in text
        assert await saved(tab, tmp_path) == text, "as it is read again"


async def test_a_conversation_is_saved_with_what_was_asked_and_answered(tmp_path: Path) -> None:
    """A question stands before its answer."""
    execute = [ask_user("Which **year**?", ["2022", "2023"]), *READING]
    async with served(agent(triage=[submit_plan([READ])], execute=execute)) as page, browser(page, size=PHONE) as tab:
        await asked(tab, "read it")
        await tab.click("text=Run it")
        await tab.click("button:text('2023')")
        await tab.wait_for_selector(".receipt")
        text = await saved(tab, tmp_path)
        assert text.startswith("> read it\n\nWhich **year**?\n\n> 2023\n\nIt says seven")
        assert await saved(tab, tmp_path) == text, "as it is read again"
        await tab.click(".receipt > summary")
        assert not (complaints := await axe(tab)), complaints


async def test_conversations_are_found_renamed_and_deleted() -> None:
    """N76."""
    triage = [answer("Four."), answer("Six.")]
    async with served(agent(triage=triage)) as page, browser(page) as tab:
        for goal, said in (("two and two", "Four."), ("three and three", "Six.")):
            await tab.click("#new")
            await say(tab, goal)
            await tab.wait_for_selector(f"text={said}")
        titles = tab.locator("#threads .goal")
        await tab.fill("#search", "TWO")
        await playwright.expect(titles).to_have_text(["two and two"])
        await tab.hover("#threads li")
        await tab.click("#threads [aria-label=Rename]")
        await tab.fill("#threads input", "Sums <b>1</b>")
        await tab.press("#threads input", "Enter")
        await tab.fill("#search", "sums")
        await playwright.expect(titles).to_have_text(["Sums <b>1</b>"])
        await tab.fill("#search", "nothing of this kind")
        await tab.wait_for_selector("text=Nothing found")
        await tab.fill("#search", "")
        await playwright.expect(titles).to_have_text(["three and three", "Sums <b>1</b>"])
        await tab.hover("#threads li >> nth=0")
        await tab.click("#threads [aria-label=Delete] >> nth=0")
        await tab.click("dialog >> button.bad")
        await playwright.expect(titles).to_have_text(["Sums <b>1</b>"])
        await tab.wait_for_selector(".empty")
        assert len((await page.client.get("/api/threads")).json()["threads"]) == 1


async def test_a_table_can_be_read_on_a_phone() -> None:
    """N38: columns are as wide as their words; the table scrolls, the page does not."""
    table = (
        "| Region | Manager | Comment | Total |\n|---|---|---|--:|\n| West | Wile E. Coyote | buys often | 4,200.75 |"
    )
    async with served(agent(triage=[answer(table)])) as page, browser(page, size=PHONE) as tab:
        await say(tab, "tell")
        await tab.wait_for_selector("td >> text=4,200.75")
        widths = await tab.locator("td").evaluate_all("all => all.map((each) => each.clientWidth)")
        assert min(widths) > 40, widths
        await picture(tab, "page-phone-table")


async def test_the_answer_and_results_are_copied() -> None:
    """N76: as they were written."""
    async with served(agent(triage=[answer("It is **four**.")])) as page, browser(page) as tab:
        await say(tab, "two and two")
        await tab.wait_for_selector("strong:text('four')")
        await tab.click(".answer .copy")
        await tab.wait_for_selector("text=Copied")
        assert await tab.evaluate("navigator.clipboard.readText()") == "It is **four**."


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_axe_finds_nothing(tmp_path: Path, size: dict[str, int], scheme: str) -> None:
    """N76: empty, with a plan, a question and a call to answer, at its end, with evidence open, with the menu."""
    edit = call("edit_note", path="a.txt", old_text="one\ntwo\nthree", new_text="one\n2\nthree")
    reading = call("read_note", path="a.txt")
    execute = [ask_user("Which **year**?", ["2022", "2023"]), edit, reading, finish_step("# It is\n\n- [x] 7", "s1.1")]
    steps = [{**READ, "tools": ["read_note"]}]
    asking = agent(triage=[submit_plan(steps)], execute=execute)

    async def check(state: str) -> None:
        assert not (found := await axe(tab)), (state, found)

    async with (
        served(asking, dir=str(tmp_path), model="a:model") as page,
        browser(page, size=size, scheme=scheme) as tab,
    ):
        await check("empty")
        await asked(tab, "change it")
        await tab.locator(".edit .tools summary").click()
        await check("plan")
        await tab.click("text=Ask for changes")
        await check("changes")
        await tab.press("#text", "Escape")
        await tab.click("text=Run it")
        await tab.wait_for_selector("button:text('2023')")
        await check("question")
        await tab.click("button:text('2023')")
        await tab.wait_for_selector(".diff .plus")
        await check("call")
        await tab.click("text=Run this call")
        await tab.wait_for_selector(".receipt")
        for summary in await tab.locator(".step > details > summary, .call > summary, .receipt > summary").all():
            await summary.click()
        await check("end")
        await tab.locator(".receipt .evidence").first.click()
        await check("evidence")
        await tab.press("dialog", "Escape")
        if size is PHONE:
            await tab.click("#menu")
            await check("menu")


async def test_large_results_and_changes_do_not_hold_the_page_up() -> None:
    """N37: a result of a megabyte, in one line and in many, and a change of 20,000 lines, opened."""
    lines = "\n".join(f"line {at} of what was read" for at in range(20_000))

    def read_note(path: str) -> str:
        """Read a note."""
        return lines if path == "lines" else "x" * 1_000_000

    def edit_note(path: str, old_text: str, new_text: str) -> str:
        """Change a note."""
        return "changed"

    old = "\n".join(f"line {at}" for at in range(10_000))
    edit = call("edit_note", path="a", old_text=old, new_text=old.replace("line", "row"))
    quoted = [("s1.2", "line 19999 of what was read")]
    execute = [call("read_note", path="one"), call("read_note", path="lines"), edit, finish_step("read", *quoted)]
    steps = [{**READ, "tools": ["read_note", "edit_note"]}]
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": execute})
    effects: Any = {"read_note": "read", "edit_note": "write"}
    reading = Agent(model, [read_note, edit_note], storage="memory:", effects=effects, settings={"approvals": "plan"})
    async with served(reading) as page, browser(page) as tab, timed(tab) as tasks:
        await asked(tab)
        await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt", timeout=60_000)
        await tab.click(".step > details > summary")
        for row in await tab.locator(".call > summary").all():
            await row.click()
        await tab.locator(".call >> text=Show all of it").first.click()
        await tab.wait_for_selector("dialog[open] pre")
        assert await tab.locator("dialog .observed").evaluate("each => each.textContent.length") == 1_000_000
        await tab.press("dialog", "Escape")
        await tab.click(".receipt > summary")
        await tab.locator(".receipt .evidence").first.click()
        assert await tab.inner_text("dialog mark") == "line 19999 of what was read"
    assert max(tasks, default=0) <= 200, tasks


async def test_a_restart_leaves_open_tabs_alone(tmp_path: Path) -> None:
    """N75: the page comes back at its address; what was half-typed is there, and what is sent is taken."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(agent(storage, triage=[submit_plan([READ])])) as page:
        port = int(page.address.rpartition(":")[2])
        async with browser(page, away=True) as tab:
            await asked(tab)
            await tab.fill("#text", "half a sentence")
            await tab.focus(".edit .row > textarea")
            await page.stop()
            await tab.wait_for_selector("text=The connection is lost; trying again.")
            async with served(agent(storage, execute=READING), port=port):
                await tab.wait_for_selector(".problem", state="detached")
                assert await tab.input_value("#text") == "half a sentence"
                assert await tab.evaluate("document.activeElement.matches('.edit .row > textarea')")
                await tab.click("text=Run it")
                await tab.wait_for_selector(".receipt")


@pytest.mark.parametrize("begun", [False, True])
async def test_what_is_sent_without_a_connection_says_so(begun: bool) -> None:
    """N75: it stays in the box with a notice that goes when the server is reached again; sent again, it is taken."""
    async with served(agent(triage=[answer("Two."), answer("Four.")])) as page, browser(page, away=True) as tab:
        if begun:
            await say(tab, "one and one")
            await tab.wait_for_selector("text=Two.")
        await tab.context.set_offline(True)
        await say(tab, "two and two")
        await tab.wait_for_selector("text=this did not arrive")
        await tab.context.set_offline(False)
        await tab.wait_for_selector(".problem", state="detached")
        assert await tab.input_value("#text") == "two and two"
        await tab.press("#text", "Enter")
        await tab.wait_for_selector("text=Four." if begun else "text=Two.")


async def test_what_was_changed_is_shown_when_another_window_answers() -> None:
    """R14: the edits of a plan that were not sent, in the window where they were made alone."""
    async with served(agent(triage=[submit_plan([READ])], execute=READING)) as page, browser(page) as tab:
        await asked(tab)
        other = await tab.context.new_page()
        await other.goto(tab.url)
        await other.locator(".edit .row > textarea").fill("Only look at it")
        await tab.click("text=Run it")
        await playwright.expect(other.locator(".unsent")).to_contain_text("1. Only look at it")
        await other.wait_for_selector(".receipt")
        await playwright.expect(other.locator(".unsent")).to_have_count(1)
        assert await tab.locator(".unsent").count() == 0


async def edited_call(tab: Any, amount: str) -> None:
    """Approve the plan, and edit the call that asks."""
    await asked(tab, "pay it")
    await tab.click("text=Run it")
    await tab.wait_for_selector(".card.ask h2:text-is('pay')")
    await tab.locator(".card.ask").first.get_by_role("button", name="Edit the arguments").click()
    await tab.locator("#argument-amount").first.fill(amount)


def payer(storage: str = "memory:", *steps: str) -> Agent:
    """An agent with a step for each of these, which pays."""
    planned = [
        {"content": each, "done_when": ["paid"], "tools": ["pay"], "depends_on": []} for each in steps or ["Pay it"]
    ]

    def pay(amount: float) -> str:
        """Pay."""
        return "paid"

    execute = {
        f"s{n + 1}": [call("pay", amount=900.5 + n), finish_step("paid", f"s{n + 1}.1")] for n in range(len(planned))
    }
    model = ScriptedModel(roles={"triage": [submit_plan(planned)], "execute": execute, "deliver": ["All is paid."]})
    return Agent(model, [pay], storage=storage, settings={"approvals": "each"})


async def test_the_edit_of_a_second_question_stays() -> None:
    """N38, R14: through a reload, too; another window that answers then does not take it unsaid."""
    async with served(payer()) as page, browser(page) as tab:
        await edited_call(tab, "12.5")
        await tab.reload()
        await playwright.expect(tab.locator("#argument-amount")).to_have_value("12.5")
        thread = await tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')")
        (pending,) = (await page.told(thread, ends=2))[-1]["pending"]
        await page.answer(thread, pending["id"], {"type": "approve"})
        await tab.wait_for_selector(".receipt")
        await playwright.expect(tab.locator(".unsent")).to_contain_text("12.5")


async def test_only_the_edit_of_what_was_answered_elsewhere_is_not_sent() -> None:
    """N38, R14: of two calls that ask, the one that waits on keeps its edit; what is sent from here is."""
    async with served(payer("memory:", "Pay one", "Pay two")) as page, browser(page) as tab:
        await edited_call(tab, "12.5")
        thread = await tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')")
        _, other = (await page.told(thread, ends=2))[-1]["pending"]
        await page.answer(thread, other["id"], {"type": "approve"})
        await playwright.expect(tab.locator(".card.ask")).to_have_count(1)
        for _ in range(2):
            await playwright.expect(tab.locator("#argument-amount")).to_have_value("12.5")
            assert await tab.locator(".unsent").count() == 0
            await tab.reload()
            await tab.wait_for_selector(".card.ask")
        await tab.get_by_role("button", name="Run this call").click()
        await tab.wait_for_selector(".receipt")
        assert await tab.locator(".unsent").count() == 0


async def test_what_was_not_sent_is_named_as_in_its_form() -> None:
    """R14: the fields of a form by their titles and labels, the tools and limits of a plan."""
    shown: list[str] = []

    class Shirt(BaseModel):
        colour: Literal["red", "blue", "green"] = Field(title="Which colour")
        sizes: list[Literal["S", "M", "L"]]

    @tool
    def order(what: str) -> str:
        """Order something."""
        return str(interrupt("Which one?", response_schema=Shirt))

    plan = submit_plan([{"content": "Order it", "done_when": ["ordered"], "tools": ["order"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("order", what="it"), finish_step("Done.", "s1.2")]})
    asking = Agent(model, [order], storage="memory:", effects={"order": "read"}, settings={"confirm": "always"})
    async with served(asking) as page, browser(page) as tab:
        await asked(tab, "order it")
        thread = await tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')")
        for answered, value in enumerate([{"type": "approve"}, {"type": "reject"}]):
            (pending,) = (await page.told(thread, ends=answered + 1))[-1]["pending"]
            if answered:
                await tab.get_by_label("Which colour").select_option("green")
                await tab.get_by_label("L", exact=True).check()
            else:
                await tab.locator(".limits summary").click()
                await tab.locator(".limits input").first.fill("7")
            await page.answer(thread, pending["id"], value)
            await playwright.expect(tab.locator(".unsent")).to_have_count(answered + 1)
            shown.append(await tab.locator(".unsent pre").last.inner_text())
            await tab.wait_for_selector(".receipt" if answered else ".fields")
    assert shown[0].splitlines() == ["1. Order it", "   done when: ordered", "   tools: order", "Limits: 7 rounds"]
    assert shown[1].splitlines() == ["Which colour: green", "Sizes: L"]


async def test_another_process_that_answers_takes_no_edit_unsaid(tmp_path: Path) -> None:
    """R14: `donewhen resume` beside the page."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    async with served(payer(storage)) as page, browser(page) as tab:
        await asked(tab, "pay it")
        await tab.fill(".edit .row > textarea", "Only look at it")
        thread = await tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')")
        async with payer(storage) as other:
            await other.cancel(thread)
        await playwright.expect(tab.locator(".unsent")).to_contain_text("1. Only look at it")
        await tab.reload()
        await tab.wait_for_selector(".outcome.cancelled")
        assert await tab.locator(".unsent").count() == 0


async def test_a_window_that_was_away_says_which_edit_came_too_late(tmp_path: Path) -> None:
    """R14: of a conversation with an earlier request, which another window opened meanwhile."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"

    def reader() -> Agent:
        return agent(storage, triage=[submit_plan([READ]), submit_plan([READ])], execute=READING)

    async with served(reader()) as page, browser(page, away=True) as tab:
        await asked(tab)
        await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt")
        await asked(tab, "read it again")
        await tab.fill(".edit .row > textarea", "Only look at it")
        thread = await tab.evaluate("new URLSearchParams(location.hash.slice(1)).get('thread')")
        await tab.context.set_offline(True)
        await page.stop()
        async with reader() as elsewhere:
            await elsewhere.cancel(thread)
        async with served(reader(), port=int(page.address.rpartition(":")[2])) as again:
            assert (await again.told(thread, kinds={"earlier"}))[0]["run"]["status"] == "cancelled"
            await tab.context.set_offline(False)
            await playwright.expect(tab.locator(".unsent")).to_contain_text("1. Only look at it")


async def test_changes_are_undone_where_they_stand(tmp_path: Path) -> None:
    """0071: “Put back” beside a change says what comes back; one that changed since is named; another tab sees it."""
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "b.txt").write_text("two\n")
    plan = submit_plan([{"content": "Rewrite them", "done_when": ["rewritten"], "tools": ["write_file"]}])
    execute = [
        call("write_file", path="a.txt", content="ONE\n"),
        call("write_file", path="b.txt", content="TWO\n"),
        call("write_file", path="c.txt", content="THREE\n"),
        finish_step("Both are rewritten.", "s1.1"),
    ]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    worker = Agent(model, workspace_tools(tmp_path), storage="memory:", settings={"approvals": "plan"})
    async with served(worker, dir=str(tmp_path)) as page, browser(page) as tab:
        await asked(tab)
        await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt")
        other = await tab.context.new_page()
        await other.goto(tab.url)
        await other.wait_for_selector(".receipt")
        await tab.locator(".step summary").first.click()
        rows = tab.locator(".call")
        await rows.nth(0).locator("summary").click()
        await rows.nth(0).get_by_role("button", name="Put back", exact=True).click()
        await playwright.expect(tab.locator("dialog .criterion")).to_have_text("can be put backa.txt")
        await picture(tab, "undo-dialog")
        await tab.locator("dialog").get_by_role("button", name="Put back", exact=True).click()
        await playwright.expect(rows.nth(0).get_by_text("Was put back")).to_be_visible()
        assert (tmp_path / "a.txt").read_text() == "one\n"
        await playwright.expect(tab.locator(".answer")).to_contain_text("Put back after the run: a.txt")
        await playwright.expect(other.locator(".answer")).to_contain_text("Put back after the run: a.txt")
        await tab.click(".receipt > summary")
        effects = tab.locator(".receipt .effect")  # it stays open when a change is put back
        await playwright.expect(effects.nth(0)).to_contain_text("Was put back")
        await tab.set_viewport_size(PHONE)
        await picture(tab, "undo-receipt-phone")
        assert await axe(tab) == []
        await tab.set_viewport_size(DESKTOP)
        await effects.nth(2).get_by_role("button", name="Put back", exact=True).click()
        await playwright.expect(tab.locator("dialog .criterion")).to_have_text("will be deletedc.txt")
        await tab.locator("dialog").get_by_role("button", name="Put back", exact=True).click()
        await rows.nth(2).locator("summary").click()
        await playwright.expect(rows.nth(2).get_by_text("Was put back")).to_be_visible()
        assert not (tmp_path / "c.txt").exists()
        (tmp_path / "b.txt").write_text("mine\n")
        await picture(tab, "undo-receipt")
        await tab.get_by_role("button", name="Put back all changes").click()
        await playwright.expect(tab.locator("dialog .refused")).to_have_text("changed sinceb.txt")
        assert "Nothing was put back" in await tab.inner_text("dialog [role=alert]")
        assert await tab.locator("dialog .buttons button").count() == 0
        assert await axe(tab) == []
        assert (tmp_path / "b.txt").read_text() == "mine\n"


async def test_a_look_for_changes_that_does_not_arrive_is_not_said(tmp_path: Path) -> None:
    """0071: the page looks by itself for what can be put back; nobody has typed anything that could be lost."""
    plan = submit_plan([{"content": "Write it", "done_when": ["written"], "tools": ["write_file"]}])
    execute = [call("write_file", path="a.txt", content="ONE\n"), finish_step("Written.", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    worker = Agent(model, workspace_tools(tmp_path), storage="memory:", settings={"approvals": "plan"})
    async with served(worker, dir=str(tmp_path)) as page, browser(page, away=True) as tab:
        await asked(tab)
        await tab.route("**/undo", lambda route: route.abort())
        async with tab.expect_event("requestfailed"):
            await tab.click("text=Run it")
        await tab.wait_for_selector(".receipt")
        assert await tab.locator(".problem").count() == 0


class Delivery(BaseModel):
    """A form of every kind of field."""

    size: Literal["S", "M", "L"] = Field(description="As on the label")
    count: int = Field(1, ge=1, le=9)
    price: float | None = None
    gift: bool = False
    code: str = Field("", pattern="^[A-Z]{2}$", max_length=4)
    mail: str = Field(json_schema_extra={"format": "email"})
    extras: list[Literal["wrap", "card", "ribbon"]] = Field(min_length=1, max_length=2)


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
async def test_a_form_is_filled_in(size: dict[str, int], scheme: str) -> None:
    """N42, N38: fields with defaults, what is wrong beside them, a draft that survives a reload, the answer."""
    seen: list[Any] = []

    @tool
    def order(what: str) -> str:
        """Order something."""
        said = interrupt(f"How shall the {what} be delivered?", response_schema=Delivery)
        seen.append(said)
        return f"ordered {said.size}" if isinstance(said, Delivery) else "not ordered"

    plan = submit_plan([{"content": "Order it", "done_when": ["ordered"], "tools": ["order"]}])
    execute = [call("order", what="shirt"), finish_step("Ordered.", "s1.2")]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    asking = Agent(model, [order], storage="memory:", effects={"order": "read"}, settings={"confirm": "never"})
    async with served(asking) as page, browser(page, size=size, scheme=scheme) as tab:
        await asked(tab)
        assert await tab.locator(".fields .field").count() == 7
        await picture(tab, f"form-{scheme}")
        await tab.click("text=Submit")
        wrong = tab.locator(".field .wrong:visible")
        await playwright.expect(wrong).to_have_count(3)  # size, mail, extras
        assert await tab.evaluate("document.activeElement.tagName") == "SELECT"
        await tab.get_by_label("size").select_option("M")
        await tab.get_by_label("count").fill("12")
        await tab.get_by_label("code").fill("ab")
        await tab.get_by_label("mail").fill("nobody")
        await tab.get_by_label("wrap").check()
        await tab.click("text=Submit")
        await playwright.expect(wrong).to_have_count(3)  # count, code, mail
        await playwright.expect(tab.locator(".field", has_text="count").locator(".wrong")).to_contain_text("9")
        await picture(tab, f"form-wrong-{scheme}")
        assert await axe(tab) == []
        await tab.reload()
        await tab.wait_for_selector(".fields")
        assert await tab.get_by_label("mail").input_value() == "nobody"
        assert await tab.get_by_label("wrap").is_checked()
        await tab.get_by_label("count").fill("2")
        await tab.get_by_label("code").fill("AB")
        await tab.get_by_label("mail").fill("ann@example.com")
        await tab.get_by_label("gift").check()
        await tab.click("text=Submit")
        await tab.wait_for_selector(".receipt")
        filled = {"size": "M", "count": 2, "gift": True, "code": "AB", "mail": "ann@example.com", "extras": ["wrap"]}
        assert seen[-1].model_dump(exclude_none=True) == filled
        assert "size: M" in await tab.locator(".user").last.inner_text()
        await tab.reload()
        await tab.wait_for_selector(".receipt")
        assert "mail: ann@example.com" in await tab.inner_text("#log")
        assert "{" not in await tab.locator(".user").last.inner_text()


async def test_a_number_of_a_form_is_read_as_the_browser_writes_it() -> None:
    """Q29, N42: as in an edited call, what may be thousands is asked back; a default is taken as it was given."""
    seen: list[Any] = []

    class Transfer(BaseModel):
        amount: float = Field(le=5000)
        rate: float = 1.125

    @tool
    def send(what: str) -> str:
        """Send something."""
        seen.append(interrupt("How much?", response_schema=Transfer))
        return "sent"

    plan = submit_plan([{"content": "Send it", "done_when": ["sent"], "tools": ["send"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("send", what="it"), finish_step("Sent.", "s1.2")]})
    asking = Agent(model, [send], storage="memory:", effects={"send": "read"}, settings={"confirm": "never"})
    async with served(asking) as page, browser(page, language="de-DE") as tab:
        await asked(tab, "send it")
        for typed, why in (("1.234", "kann zweierlei heißen"), ("viel", "keine Zahl"), ("6.000,50", "5000")):
            await tab.get_by_label("amount").fill(typed)
            await tab.locator(".fields .buttons button").first.click()
            await playwright.expect(tab.locator(".field .wrong:visible")).to_contain_text(why)
        await tab.get_by_label("amount").fill("1.234,50")
        await tab.locator(".fields .buttons button").first.click()
        await tab.wait_for_selector(".receipt")
    assert [each.model_dump() for each in seen if each] == [{"amount": 1234.5, "rate": 1.125}]


async def test_a_form_is_declined_and_a_refused_one_keeps_what_was_filled_in() -> None:
    """N42, N38: what only the schema knows stands above the form, which stays as it was; “Decline” ends nothing."""
    seen: list[Any] = []

    @tool
    def book(what: str) -> str:
        """Book something."""
        schema = {"type": "object", "properties": {"days": {"type": "integer", "multipleOf": 7}}, "required": ["days"]}
        seen.append(interrupt({"question": f"How long is the {what}?", "schema": schema}))
        return f"booked: {seen[-1]}"

    plan = submit_plan([{"content": "Book it", "done_when": ["booked"], "tools": ["book"]}])
    execute = [call("book", what="room"), finish_step("Done.", "s1.2")]
    model = ScriptedModel(roles={"triage": [plan], "execute": execute})
    asking = Agent(model, [book], storage="memory:", effects={"book": "read"}, settings={"confirm": "never"})
    async with served(asking) as page, browser(page) as tab:
        await asked(tab)
        await tab.get_by_label("days").fill("8")
        await tab.click("text=Submit")
        await playwright.expect(tab.locator(".card.ask .problem")).to_contain_text("8 is not a multiple of 7")
        assert await tab.get_by_label("days").input_value() == "8"
        await tab.click("text=Decline")
        await tab.wait_for_selector(".receipt")
        assert not isinstance(seen[-1], dict)


async def test_what_was_asked_and_answered_is_read_as_such() -> None:
    """N38, N76: a question keeps its form and its answer, also after a reload; nothing is ticked before it ran; one box
    takes the answer; text from right to left stands so.
    """
    execute = [ask_user("أي **سنة**؟", ["2022", "2023"]), call("read_note", path="a.txt"), finish_step("seven", "s1.2")]
    plan = submit_plan([{**READ, "content": "اقرأ الملاحظة"}], title="Reading")
    async with served(agent(triage=[plan], execute=execute)) as page, browser(page, size=PHONE) as tab:
        await asked(tab)
        ticks = tab.get_by_text(re.compile("[✓✔☑]"))
        assert await ticks.count() == 0
        await tab.click("text=Run it")
        await tab.wait_for_selector("button:text('2023')")
        assert await ticks.count() == 0
        boxes = tab.locator("textarea:visible, input[type=text]:visible")
        assert [await each.get_attribute("id") for each in await boxes.all()] == ["text"]
        turned = "all => all.map((each) => getComputedStyle(each).direction)"
        await tab.wait_for_selector(".ask p")  # its Markdown is read aside
        assert await tab.locator(".ask p").evaluate_all(turned) == ["rtl"]
        assert await tab.locator(".step .what").evaluate_all(turned) == ["rtl"]
        await tab.click("button:text('2023')")
        await tab.wait_for_selector(".receipt")
        for _ in range(2):
            assert await tab.locator(".asked strong").inner_text() == "سنة"
            assert await tab.locator(".asked").evaluate_all(turned) == ["rtl"]
            assert await tab.locator(".asked + .user").inner_text() == "2023"
            assert await tab.locator(".step.done .mark").inner_text() == "☑"
            await tab.reload()
            await tab.wait_for_selector(".receipt")
