"""Pages hold what they say: their code runs, their commands exist, their data is well-formed, their tests are there."""

import asyncio
import inspect
import json
import os
import re
import shlex
import sys
import tomllib
from ast import PyCF_ALLOW_TOP_LEVEL_AWAIT
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import packages_distributions, requires
from io import StringIO
from pathlib import Path
from types import CodeType
from typing import Any

import click
import pytest
import typer
import yaml

from benchmarks.bench.page import GOALS, QUESTIONS, TABLES
from benchmarks.pythons import PROMISED
from donewhen import Limits, Settings
from donewhen.state.proof.outcome import CODES
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.types import event_schema
from scripts import site
from tests.kit.places import ROOT
from tests.kit.screens.shell import app
from tests.kit.wire import WireServer

PUBLIC = tuple(map(import_module, site.MODULES))

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "AGENTS.md")),
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/concepts/*.md")),
]
LANGUAGES = {"python", "sh", "json", "yaml", "toml", "ini", "text", "mermaid"}


def name_of(page: Path) -> str:
    """Return the page's path in the repository."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of each block of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def offers() -> ScriptedModel:
    """A model that does what the README's programs ask for."""
    plans = [
        submit_plan([{"content": "describe the files", "done_when": "notes.md is there", "tools": ["write_file"]}]),
        submit_plan([{"content": "mail the offers", "done_when": "mailed", "tools": ["search", "send_mail"]}]),
    ]
    work = [
        call("write_file", path="notes.md", content="There are no files."),
        finish_step("The notes are in notes.md.", "s1.1"),
        call("search", query="cheapest offers"),
        call("send_mail", to="mira@example.com", text="Ann 12.50, Bob 18.40, Cem 19.00"),
        finish_step("The three cheapest offers are with Mira.", "s1.2"),
    ]
    return ScriptedModel(roles={"triage": plans, "execute": work})


PROVIDERS: dict[str, Callable[[], ScriptedModel]] = {"README.md": offers}
"""Who answers for `openai:…` on a page."""


@contextmanager
def provider(page: str) -> Iterator[dict[str, str]]:
    """The environment of somebody with a key, whose provider does what the page asks for."""
    if page not in PROVIDERS:
        yield {}
        return
    with WireServer(PROVIDERS[page]()) as server:
        yield {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.base_url}


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=name_of)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """N25, N47, R10: every block of Python, also the README's, in order, as a reader from the top runs them."""
    if page.name == "temporal.md":
        pytest.importorskip("temporalio", reason="an environment of its own has it: make temporal")
    if page.name == "programs.md":
        pytest.importorskip("pydantic_monty", reason="an extra that not every platform has")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "stdin", StringIO("approve\n" * 9))
    names: dict[str, Any] = {"__name__": "__main__"}
    with provider(name_of(page)) as env:
        for name in env:
            monkeypatch.setenv(name, env[name])
        saved = dict(os.environ)
        for language, text in blocks(page):
            if language == "python":
                run_block(compile(text, name_of(page), "exec", PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        os.environ.clear()
        os.environ.update(saved)


def run_block(code: CodeType, names: dict[str, Any]) -> None:
    """Run a block; one that awaits, in an event loop."""
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_fits_beside_the_navigation(page: Path) -> None:
    """Lines of Python have at most 88 characters; `docs/ruff.toml` formats all but the comments."""
    lines = [line for language, text in blocks(page) if language == "python" for line in text.splitlines()]
    assert [line for line in lines if len(line) > 88] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_data_and_commands_of_a_page_are_read(page: Path) -> None:
    """Blocks are of a kind that is checked; data is read by its library, and each command knows its options."""
    for language, text in blocks(page):
        assert language in LANGUAGES, f"{name_of(page)} has a block of {language or 'no language'}"
        if language == "json":
            json.loads(text)
        elif language == "yaml":
            yaml.safe_load(text)
        elif language == "toml":
            tomllib.loads(text)
        elif language == "sh":
            for line in text.splitlines():
                check_commands(line)
    for line in re.findall(r"`(donewhen [a-z][^`]*)`", page.read_text("utf-8")):
        check_commands(line.replace("\n", " "))


def check_commands(line: str) -> None:
    """Read a line as a shell and the command would, without running anything."""
    for words in split_commands(line):
        if words[:1] == ["donewhen"] and len(words) > 1 and words[1].isalpha():
            command: Any = typer.main.get_command(app)
            name, *rest = words[1:]
            while isinstance(command, click.Group) or hasattr(command, "commands"):
                assert name in command.commands, f"there is no `donewhen {name}`: {line}"
                command = command.commands[name]
                if hasattr(command, "commands") and rest:
                    name, *rest = rest
                elif hasattr(command, "commands"):
                    return
            options = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
            used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
            assert used <= options, f"{line}: no such option: {used - options}"


def split_commands(line: str) -> Iterator[list[str]]:
    """Return the words of each command of a line."""
    words: list[str] = []
    for word in shlex.split(line, comments=True):
        if word in ("|", "&&", ";"):
            yield words
            words = []
        elif word.endswith(";"):
            yield [*words, word[:-1]]
            words = []
        else:
            words.append(word)
    yield words


def test_targets_extras_and_files_that_pages_name_are_there() -> None:
    """`make X` is a target, `donewhen[X]` an extra, and a link leads to a file of the repository."""
    makefile, project = (ROOT / "Makefile").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = {*re.findall(r"^([\w./-]+):", makefile, re.MULTILINE)}
    for page in PAGES:
        text = page.read_text("utf-8")
        for command in re.findall(r"(?:`|^    )make ([a-z][a-z -]*)", text, re.MULTILINE):
            assert {*command.split()} <= targets, f"{name_of(page)}: make {command}"
        for extra in re.findall(r"donewhen\[(\w+)\]", text):
            assert extra in project["optional-dependencies"], f"{name_of(page)}: donewhen[{extra}]"
        for path in re.findall(
            r"`((?:agent|graph|state|tests|examples|deploy|prompts|scripts|benchmarks|docs)/[\w./]+)`", text
        ):
            assert (ROOT / path).exists(), f"{name_of(page)}: {path}"
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
            made = ("reference/", "llms.txt", "llms-full.txt", "examples.zip")  # by scripts/site.py
            generated = (page.parent == ROOT / "docs" and link.startswith(made)) or "../reference/" in link
            assert generated or (page.parent / link).exists(), f"{name_of(page)}: {link}"


def test_what_the_page_of_the_architecture_names_is_in_the_code() -> None:
    """Issue 40: a reader who follows a path finds each function, class, field and value that the page names."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8").partition("## Paths through the code")[2]
    files = [path for floor in ("agent", "graph", "state") for path in (ROOT / floor).rglob("*.py")]
    code = "\n".join(path.read_text("utf-8") for path in files if "testing" not in path.parts)
    names = {name.rpartition(".")[2] for name in re.findall(r"`([A-Za-z_][\w.]*)(?![\w./])", page)} - {"py"}
    defined = re.findall(r"^ *(?:async def|def|class) (\w+)|^ *(\w+)(?::| =)|\"(\w+)\"", code, re.MULTILINE)
    assert len(names) > 50
    of_others = {"Command", "TypedDict", "URLS"}  # of LangGraph, of Python, of the tests
    assert names - {name for each in defined for name in each} == of_others


def test_the_reference_says_what_the_code_says() -> None:
    """Each public name, command, option, setting and event is on a page that is made from the code."""
    api, commands, settings, events = site.api(), site.commands(), site.settings(), site.events()
    assert all(f".{name}\n" in api for module in PUBLIC for name in module.__all__)
    assert "## `donewhen run`" in commands
    assert "`--max-rounds`" in commands
    assert all(f"| `{name}` |" in settings for model in (Settings, Limits) for name in model.model_fields)
    kinds = event_schema()["discriminator"]["mapping"]
    assert all(f"### `{kind}`" in events for kind in kinds)


def test_every_page_is_in_the_navigation() -> None:
    """A page that nobody finds is none, and the index for language models is made from the same list."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])
    there = {page for _, pages in site.listed(nav) for page in pages}
    assert {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")} <= there


def test_the_readme_is_read_in_two_minutes() -> None:
    """Q97: at most 150 lines and 700 words."""
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 700


def test_all_pages_are_read_in_an_afternoon() -> None:
    """Q97: the pages of the site have at most 35,000 words, tables of figures included, and its decisions 8,000."""
    decisions = ROOT.glob("docs/decisions/*.md")
    assert count_words(page for page in PAGES if page.is_relative_to(ROOT / "docs")) <= 35_000
    assert count_words(decisions) <= 8_000


def count_words(pages: Iterable[Path]) -> int:
    """Count the words of pages as `wc` does."""
    return sum(len(page.read_text("utf-8").split()) for page in pages)


def test_every_attack_that_the_security_page_names_is_a_test() -> None:
    """Issue 11: each row of the table has the command that shows it."""
    page = (ROOT / "docs" / "security.md").read_text()
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {path.stem for path in files} | {
        name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row.rpartition(" | ")[2])
        assert named, row
        assert set(named) <= there, set(named) - there


def test_what_make_brings_along_is_installed_by_it() -> None:
    """L14: an extra of which the command's page says that `make install` brings it along; no other is promised."""
    page, makefile = ((ROOT / name).read_text() for name in ("docs/command.md", "Makefile"))
    promised = re.findall(r"pip install 'donewhen\[(\w+)\]'`; `make install` brings it along", page)
    installed = re.search(r"-e '\.\[([\w,]+)\]'", makefile)
    assert installed is not None
    assert sorted(promised) == sorted(installed[1].split(",")) == ["mcp", "ui"]


def test_workflows_call_targets_and_try_every_python_that_is_promised() -> None:
    """What runs elsewhere can be run here: each step is a target of make, save for what only that machine has."""
    makefile, project = (ROOT / "Makefile").read_text(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    targets = {*re.findall(r"^([\w./-]+):", makefile, re.MULTILINE)}
    workflows = [yaml.safe_load(path.read_text()) for path in sorted(ROOT.glob(".github/workflows/*.yml"))]
    steps = [step for workflow in workflows for job in workflow["jobs"].values() for step in job["steps"]]
    commands = [shlex.split(step["run"]) for step in steps if "run" in step]
    elsewhere = [words for words in commands if words[0] != "make"]
    assert [words[0] for words in elsewhere] == ["sudo", "test"], elsewhere  # PostgreSQL's packages; the tag's version
    for words in commands:
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets
    pythons = workflows[0]["jobs"]["test"]["strategy"]["matrix"]["python"]
    promised = [kind.rpartition(" ")[2] for kind in project["classifiers"] if "Python :: 3." in kind]
    assert pythons == promised == [*PROMISED]


@pytest.mark.parametrize(
    ("template", "page"),
    [
        ("bench/notes.md", "performance.md"),
        ("faults/page.md", "faults.md"),
        ("lies/page.md", "verification.md"),
        ("reliability.md", "reliability.md"),
        ("scale/page.md", "scale.md"),
        ("selection/page.md", "tool_selection.md"),
    ],
)
def test_what_is_written_on_a_generated_page_is_in_its_template(template: str, page: str) -> None:
    """A page of figures that was changed by hand, and not in its template, would lose that change with the next run."""
    written = " ".join((ROOT / "docs" / page).read_text("utf-8").split())
    pieces = re.split(r"\$\w+", " ".join((ROOT / "benchmarks" / template).read_text("utf-8").split()))
    assert [piece for piece in pieces if piece.strip() not in written] == []


def test_the_page_of_figures_has_a_row_of_everything_that_is_measured() -> None:
    """N56: conversations, writes, data and peers without a saver too, and the noise of the ratios."""
    page = (ROOT / "docs" / "performance.md").read_text("utf-8")
    rows = [row.label for table in TABLES for row in table.rows] + [goal.text for goal in GOALS]
    rows += [f"{question}, {mb} MB" for question in QUESTIONS for mb in (200, 1000)]
    assert [row for row in rows if not re.search(rf"^\| {re.escape(row)} \| .*\d", page, re.MULTILINE)] == []
    assert all(
        re.search(r"× \([\d.]+–[\d.]+\)", line) for line in page.splitlines() if line.startswith("| 200 rounds ")
    )


def test_every_kind_of_event_is_on_the_page_of_clients() -> None:
    """S01: a new event is named where clients are told what they hear."""
    page = (ROOT / "docs" / "clients.md").read_text("utf-8")
    kinds = [
        one["properties"]["type"]["const"] for one in event_schema()["$defs"].values() if "type" in one["properties"]
    ]
    assert len(kinds) > 20
    assert [kind for kind in kinds if f"`{kind}`" not in page] == []


def test_every_code_of_an_ending_is_on_the_page_of_proofs() -> None:
    """Q97: the table has the codes of the program, no others, and the status that goes with each."""
    page = (ROOT / "docs" / "concepts" / "criteria.md").read_text("utf-8").partition("## How a run ended")[2]
    rows = [line.split("|")[1:3] for line in page.splitlines() if line.startswith("| ")][1:]
    status = {code: cells[0] for cells in rows for code in re.findall(r"`([a-z_]+)`", cells[1])}
    assert status.keys() == CODES.keys()
    assert [code for code, fixed in CODES.items() if (fixed or "as its steps") not in status[code]] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_imports_only_what_the_package_declares(page: Path) -> None:
    """A program on a page imports no package that only the developers of DoneWhen have installed."""
    declared = {re.split(r"[^\w.-]", line)[0].lower() for line in requires("donewhen") or []} | {"donewhen", "pytest"}
    imported = {
        name
        for language, text in blocks(page)
        if language == "python"
        for name in re.findall(r"^\s*(?:from|import) (\w+)", text, re.MULTILINE)
    }
    owners = packages_distributions()
    assert not [name for name in imported if name in owners and not declared & {o.lower() for o in owners[name]}]
