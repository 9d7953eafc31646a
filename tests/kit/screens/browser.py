"""A tab of headless Chromium with the page open, for tests that `make test-ui` runs."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.kit.places import ROOT
from tests.kit.screens.pages import Page

playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed: make test-ui installs it")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MARKS = [
    pytest.mark.ui,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium found (Debian: apt-get install chromium)"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
AXE = ROOT / "agent" / "page" / "libraries" / "node_modules" / "axe-core" / "axe.min.js"
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


@asynccontextmanager
async def browser(
    page: Page, *, size: dict[str, int] = DESKTOP, scheme: str = "light", language: str = "en-US", away: bool = False
) -> AsyncIterator[Any]:
    """A tab with the page open. What its console complains of, throws or asks of elsewhere fails the test.

    `away`: the server may be gone for a while.
    """
    complaints: list[str] = []
    async with playwright.async_playwright() as started:
        chromium = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await chromium.new_context(viewport=size, color_scheme=scheme, locale=language)
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        tab = await context.new_page()
        tab.set_default_timeout(20_000)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        local = (f"http://{page.address}/", "data:", "blob:")
        tab.on("request", lambda sent: None if sent.url.startswith(local) else complaints.append(sent.url))
        await tab.goto(page.link)
        await tab.wait_for_selector(".empty")
        yield tab
        wide = await tab.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        await chromium.close()
    assert wide <= 0, "the page scrolls sideways"
    complaints = [said for said in complaints if not (away and "net::ERR_" in said)]
    assert not (left := [said for said in complaints if "409" not in said and "400" not in said]), left


@asynccontextmanager
async def timed(tab: Any) -> AsyncIterator[list[float]]:
    """The milliseconds that each task of the page's thread has worked, when the block is left; without those below 20.

    Time that other processes take does not count, so a busy machine fails no test.
    """
    tasks: list[float] = []
    events: list[dict[str, Any]] = []
    over = asyncio.Event()
    traced = await tab.context.new_cdp_session(tab)
    traced.on("Tracing.dataCollected", lambda told: events.extend(told["value"]))
    traced.on("Tracing.tracingComplete", lambda _: over.set())
    await traced.send("Tracing.start", {"categories": "toplevel", "transferMode": "ReportEvents"})
    yield tasks
    await traced.send("Tracing.end")
    await over.wait()
    names = {(each["pid"], each["tid"]): each["args"].get("name") for each in events if each["name"] == "thread_name"}
    mains = {thread for thread, name in names.items() if name == "CrRendererMain"}
    assert mains, "the trace names no thread of a page"
    worked = [each.get("tdur", 0) / 1000 for each in events if (each["pid"], each["tid"]) in mains]
    tasks += sorted(each for each in worked if each >= 20)


async def axe(tab: Any) -> list[str]:
    """What axe-core finds wrong with the page as it stands, best practices included: rule, and where."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make test-ui installs it")
    direct = await tab.context.new_cdp_session(tab)  # past the content security policy, which lets no other script in
    await direct.send("Runtime.evaluate", {"expression": AXE.read_text("utf-8")})
    run = "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations)"
    given = {"expression": run, "awaitPromise": True, "returnByValue": True}
    found = (await direct.send("Runtime.evaluate", given))["result"]["value"]
    return [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in found for node in each["nodes"]]


async def say(tab: Any, text: str) -> None:
    """Type into the box at the bottom."""
    await tab.fill("#text", text)
    await tab.press("#text", "Enter")


async def picture(tab: Any, name: str) -> None:
    """Leave a picture in the folder that SCREENSHOTS names; nothing without."""
    if folder := os.environ.get("SCREENSHOTS"):
        await tab.wait_for_timeout(300)
        await tab.screenshot(path=f"{folder}/{name}.png")
