"""`make selection`: writes docs/tool_selection.md."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template

from langchain_core.tools import BaseTool, StructuredTool

from benchmarks.selection.catalogue import LANGUAGES, queries, tools
from benchmarks.selection.methods import METHODS, HashedPairs, Method
from donewhen.graph.tools.toolbox import Toolbox, ToolFinder
from donewhen.state.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "tool_selection.md"
TOP = Settings().tool_selection
NAMES = {"en": "English", "zh": "Chinese", "ja": "Japanese", "ko": "Korean"}


def recall(method: Method, catalogue: Mapping[str, str], language: str) -> str:
    """Return how many queries of a language have their tool among the first 24, and in first place."""
    search, asked = method(catalogue), queries(language)
    places = [search(query.text).index(query.tool) for query in asked]
    return f"{sum(place < TOP for place in places)} ({sum(place == 0 for place in places)})"


async def fused(catalogue: Mapping[str, str], language: str) -> str:
    """The same through `ToolFinder` with an embedding: only that the parts fit together."""
    finder, toolbox = ToolFinder(HashedPairs()), Toolbox([_tool(name, text) for name, text in catalogue.items()])
    places = [(await finder.best(query.text, toolbox)).index(query.tool) for query in queries(language)]
    return f"{sum(place < TOP for place in places)} ({sum(place == 0 for place in places)})"


def _tool(name: str, description: str) -> BaseTool:
    nothing = {"type": "object", "properties": {}}
    return StructuredTool.from_function(lambda: "", name=name, description=description, args_schema=nothing)


def table(foreign: bool) -> list[str]:
    """One row a method, one column a language."""
    rows = ["| | " + " | ".join(NAMES.values()) + " |", "|---|" + "---|" * len(NAMES)]
    for name, method in METHODS.items():
        cells = [recall(method, tools("en" if foreign else each), each) for each in LANGUAGES]
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    cells = [asyncio.run(fused(tools("en" if foreign else each), each)) for each in LANGUAGES]
    return [*rows, "| ours with the stand-in for embeddings | " + " | ".join(cells) + " |"]


def missed() -> list[str]:
    """The queries whose tool is not among the first 24."""
    found = []
    for language in LANGUAGES:
        search = METHODS["characters and pairs (ours)"](tools(language))
        for query in queries(language):
            if (place := search(query.text).index(query.tool)) >= TOP:
                found.append(f"- {NAMES[language]}: “{query.text}” → `{query.tool}`, place {place + 1}")
    return found or ["- none"]


def page() -> str:
    """The whole page."""
    catalogue, each = tools("en"), len(queries("en"))
    return Template(Path(__file__).with_name("page.md").read_text(encoding="utf-8")).substitute(
        tools=len(catalogue),
        characters=f"{len(json.dumps(catalogue)):,}",
        count=each * len(LANGUAGES),
        each=each,
        top=TOP,
        same="\n".join(table(foreign=False)),
        foreign="\n".join(table(foreign=True)),
        missed="\n".join(missed()),
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
