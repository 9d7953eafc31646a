"""Build the site into .site: the pages of docs/, what is generated from the code, llms.txt. A warning is an error.

Generated are the reference of Python, of the command, of settings and of events, so that they say what the code says.
"""

import ast
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
import yaml

from donewhen import Limits, Settings
from donewhen.agent.cli.app import app
from donewhen.types import event_schema

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / ".site-src"
FLOORS = ("agent", "graph", "state", "prompts")
SHOWN = {
    "Pause": [
        *("id", "kind", "question", "options", "step", "asked_at", "problem", "plan", "revision", "limits", "writes"),
        *("changes", "next_runs", "tool", "arguments", "diffs", "batch", "new", "schema", "exhausted", "suggested"),
        *("done", "left", "meter", "about", "failed"),
    ],
    "StepRecord": [
        *("status", "started", "ended", "attempt", "rounds", "result", "reason", "code", "verdicts", "unchanged"),
        *("spent", "granted"),
    ],
}
"""Of classes that hold more than their users need, the fields to show."""
MODULES = {
    "donewhen": "Agents, their runs, settings and errors.",
    "donewhen.errors": "All exceptions.",
    "donewhen.executors": "Who works on steps.",
    "donewhen.hooks": "Policies that calls and ends have to pass.",
    "donewhen.openapi": "Any HTTP API as tools.",
    "donewhen.plans": "Plans that are kept beside runs.",
    "donewhen.servers": "Agents of your own behind MCP and ACP.",
    "donewhen.testing": "Test your own agents: scripted models, recordings, runs that fail wherever they can.",
    "donewhen.tracing": "Runs as OpenTelemetry spans.",
    "donewhen.types": "The types of what runs are given, return and emit.",
    "donewhen.workspace": "Tools for one folder.",
}


def main() -> int:
    """Write the pages, then build them; `--serve` shows them while you write."""
    write_pages()
    serve = "--serve" in sys.argv
    command = ["serve", "--livereload"] if serve else ["build", "--strict", "--quiet"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", *command, "-f", str(ROOT / "mkdocs.yml")]
    done = subprocess.run(words, env=quiet, check=False)
    if not serve:
        (SOURCE / "reference" / "api.md").write_text(docstrings())
        for page in SOURCE.rglob("*.md"):  # what llms.txt links to
            shutil.copy(page, ROOT / ".site" / page.relative_to(SOURCE))
        shutil.rmtree(SOURCE)
    return done.returncode


def write_pages() -> None:
    """Copy the pages and what they link to, and generate the rest."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE, ignore=shutil.ignore_patterns("ruff.toml"))
    for folder in ("examples", "deploy"):
        ignored = shutil.ignore_patterns("__pycache__", "*.db*")
        shutil.copytree(ROOT / folder, SOURCE / folder, ignore=ignored)
    shutil.make_archive(str(SOURCE / "examples"), "zip", SOURCE, "examples")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"):
        shutil.copy(ROOT / name, SOURCE / name)
    for page in SOURCE.rglob("*.md"):
        page.write_text(inside(page.read_text("utf-8")), "utf-8")
    for program in SOURCE.glob("examples/**/*.py"):
        program.with_suffix(".md").write_text(recipe(program.read_text("utf-8"), program.name), "utf-8")
    reference = SOURCE / "reference"
    reference.mkdir()
    (reference / "api.md").write_text(api())
    (reference / "command.md").write_text(commands())
    (reference / "settings.md").write_text(settings())
    (reference / "events.md").write_text(events())
    (SOURCE / "decisions" / "index.md").write_text(decisions())
    with (SOURCE / "architecture.md").open("a", encoding="utf-8") as page:
        page.write(files())
    write_llms()


def recipe(code: str, name: str) -> str:
    """Return the page of an example: what its docstring says, and the program."""
    said = ast.get_docstring(ast.parse(code)) or name
    title, _, more = said.partition(": ") if ": " in said.partition("\n")[0] else (name, "", said)
    body = code.partition('"""\n\n')[2] if code.startswith('"""') else code
    return f'# {title}\n\n{more[:1].upper()}{more[1:]}\n\n```python title="{name}"\n{body}```\n'


def files() -> str:
    """Return every file of the code with the first line of its docstring, by room."""
    page = "\n## Every file\n\nWhat each file says of itself in its first line.\n"
    rooms = sorted({path.parent for floor in FLOORS for path in (ROOT / floor).rglob("*.py")})
    for room in rooms:
        about = first_line(room / "__init__.py") if (room / "__init__.py").exists() else ""
        page += f"\n### `{room.relative_to(ROOT)}/`\n\n{about}\n\n"
        for path in sorted(room.glob("*.py")):
            if path.name != "__init__.py":
                page += f"- `{path.name}`: {first_line(path)}\n"
    return page


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]


def decisions() -> str:
    """Return the list of decisions."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = {page.name: page.read_text("utf-8").partition("\n")[0].lstrip("# ") for page in pages}
    about = "# Decided\n\nChoices that somebody may want to undo one day, a paragraph or two each.\n\n"
    return about + "".join(f"- [{name[:4]}]({name}) {title}\n" for name, title in titles.items())


def inside(text: str) -> str:
    """Return a page whose links to other folders of the repository lead to their copies beside it."""
    text = re.sub(r"\]\(((?:\.\./)*)\.\./(deploy/)", r"](\1\2", text)
    text = re.sub(r"\]\(((?:\.\./)*)\.\./(examples/[^)]+)\.py\)", r"](\1\2.md)", text)
    text = re.sub(r"\]\((?:docs/)?decisions\)", "](decisions/index.md)", text)
    return text.replace("](docs/", "](")


# Python ------------------------------------------------------------------------------------------------------


def api() -> str:
    """Return the page of the public names, for mkdocstrings to fill in."""
    return "# Python API\n\n" + "\n".join(
        f"## `{module}`\n\n{about}\n\n"
        + "\n".join(f"::: {path}\n    options:\n      heading_level: 3\n{members(path)}" for path in names(module))
        for module, about in MODULES.items()
    )


def members(path: str) -> str:
    """Return the option that shows only some members of a class."""
    shown = SHOWN.get(path.rpartition(".")[2])
    return f"      members: {json.dumps(shown)}\n" if shown else ""


def names(module: str) -> Iterator[str]:
    """Return the public path of each public name; of what `donewhen.testing` collects, the path of its definition."""
    public = import_module(module)
    for name in public.__all__:
        home = getattr(getattr(public, name), "__module__", "")
        collected = module == "donewhen.testing" and home.startswith("donewhen")
        yield f"{home if collected else module}.{name}"


# The command -------------------------------------------------------------------------------------------------


def commands() -> str:
    """Return the page of the command, from its own help."""
    root: Any = typer.main.get_command(app)
    return "# The command\n\nGenerated from `--help`. A tour is in [the command](../command.md).\n\n" + "".join(
        section(["donewhen", *path], command) for path, command in walk(root, [])
    )


def walk(command: Any, path: list[str]) -> Iterator[tuple[list[str], Any]]:
    """Return every command with its path."""
    if path:
        yield path, command
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        if not inner.hidden:
            yield from walk(inner, [*path, name])


def section(path: list[str], command: Any) -> str:
    """Return one command: what it does, and its options."""
    about = re.sub(r"[\b\f]", "", command.help or "").strip()
    rows = "".join(row(param) for param in command.params if not getattr(param, "hidden", False))
    table = f"\n| option | |\n|---|---|\n{rows}" if rows and not hasattr(command, "commands") else ""
    return f"## `{' '.join(path)}`\n\n{about}\n{table}\n"


def row(param: Any) -> str:
    """Return one option or argument as a row."""
    said = getattr(param, "help", None) or ""
    shown = (
        ", ".join(f"`{flag}`" for flag in param.opts)
        if param.param_type_name == "option"
        else f"`{(param.metavar or param.name)}`"
    )
    default = param.default if not callable(param.default) else None
    more = f" Default: `{default}`." if default not in (None, False, "", (), []) else ""
    return f"| {shown} | {cell(said)}{more} |\n"


# Settings and events -----------------------------------------------------------------------------------------


SETTINGS = """# Settings

Generated from the schema of `donewhen.Settings`. Give them as `settings=Settings(…)`, as a dict, or as JSON.

{settings}
## Limits

`donewhen.Limits`, for `limits` and `step_limits`. None is no limit.

{limits}
## Profile

`donewhen.Profile`, for `profile`.

{profile}"""
EVENTS = """# Events and payloads

Generated from `donewhen.event_schema()`, which `donewhen events` prints. Every event has `thread_id`, `turn`, `seq`,
`after` and `type`; see [clients](../clients.md#events).

## Events

{events}
## Payloads

The data in events. [`Pause`](api.md) in the Python API explains the fields of a question.

{payloads}"""
ALWAYS = {"thread_id", "turn", "seq", "after", "type"}


def settings() -> str:
    """Return the page of settings, from their schema."""
    schema = Settings.model_json_schema()
    limits, profile = fields(Limits.model_json_schema()), fields(schema["$defs"]["Profile"])
    return SETTINGS.format(settings=fields(schema), limits=limits, profile=profile)


def events() -> str:
    """Return the page of events, and of what else their schema defines."""
    schema = event_schema()
    kinds = {ref.rpartition("/")[2]: kind for kind, ref in schema["discriminator"]["mapping"].items()}
    told, others = "", ""
    for name, about in sorted(schema["$defs"].items(), key=lambda item: kinds.get(item[0], item[0])):
        if name in kinds:
            told += f"### `{kinds[name]}`\n\n{about.get('description', '')}\n\n{fields(about, ALWAYS)}\n"
        elif about.get("properties"):
            others += f"### `{name}`\n\n{about.get('description', '')}\n\n{fields(about)}\n"
    return EVENTS.format(events=told, payloads=others)


def fields(schema: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Return the fields of an object as a table."""
    shown = {name: about for name, about in schema["properties"].items() if name not in without}
    if not shown:
        return ""
    described = any("description" in about or "default" in about for about in shown.values())
    head = "| field | type | default | |\n|---|---|---|---|\n" if described else "| field | type |\n|---|---|\n"
    rows = []
    for name, about in shown.items():
        default = about.get("default")
        plain = "" if default is None else f"`{json.dumps(default, ensure_ascii=False)}`"
        plain = plain if len(plain) < 60 else ""
        more = f" {plain} | {cell(about.get('description', ''))} |" if described else ""
        rows.append(f"| `{name}` | {type_of(about)} |{more}")
    return head + "\n".join(rows) + "\n"


def type_of(about: Mapping[str, Any]) -> str:
    """Return the type of a field in a few words."""
    if "anyOf" in about or "oneOf" in about:
        return " or ".join(dict.fromkeys(type_of(each) for each in about.get("anyOf") or about["oneOf"]))
    if "$ref" in about:
        return f"`{about['$ref'].rpartition('/')[2]}`"
    if "enum" in about:
        return ", ".join(f"`{value}`" for value in about["enum"])
    if "const" in about:
        return f"`{about['const']}`"
    if about.get("type") == "array":
        return f"list of {type_of(about.get('items', {}))}"
    return {"string": "text", "object": "object", "null": "nothing"}.get(
        about.get("type", ""), about.get("type", "any")
    )


def cell(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    return " ".join(text.replace("|", "\\|").split())


# llms.txt ----------------------------------------------------------------------------------------------------


def write_llms() -> None:
    """Write llms.txt, an index for language models, and llms-full.txt, all pages in one."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2])
    index = [
        "# DoneWhen\n\n> " + about().replace("\n", " "),
        "\nEvery page in one file: [llms-full.txt](llms-full.txt)",
    ]
    full = []
    for heading, pages in listed(nav):
        index.append(f"\n## {heading}\n")
        for page in pages:
            text = (SOURCE / page).read_text("utf-8")
            title = re.sub("`", "", text.partition("\n")[0].lstrip("# "))
            index.append(f"- [{title}]({page})")
            if heading != "Measured" or page == "measured.md":
                full.append(f"<!-- {page} -->\n\n{docstrings() if page == 'reference/api.md' else text}")
    (SOURCE / "llms.txt").write_text("\n".join(index) + "\n", "utf-8")
    (SOURCE / "llms-full.txt").write_text("\n\n".join(full), "utf-8")


def docstrings() -> str:
    """Return the public names with their signatures, docstrings, attributes and methods, for language models."""
    lines = ["# Python API"]
    for module in MODULES:
        public = import_module(module)
        lines.append(f"\n## `{module}`\n")
        for name in public.__all__:
            thing = getattr(public, name)
            made = inspect.isclass(thing) or inspect.isroutine(thing)  # an alias of a type has no docstring of its own
            lines.append(f"\n### `{name}{signature(thing) * made}`\n\n{(inspect.getdoc(thing) or '') * made}\n")
            lines += attributes(thing) if inspect.isclass(thing) else []
            for method, value in vars(thing).items() if inspect.isclass(thing) else ():
                value = value.fget if isinstance(value, property) else value
                if inspect.isfunction(value) and not method.startswith("_") and value.__doc__:
                    lines.append(f"- `{method}{signature(value)}`: {' '.join(inspect.cleandoc(value.__doc__).split())}")
    return "\n".join(lines)


def attributes(thing: type) -> list[str]:
    """Return the fields of a class, as annotated in its source, each with the string below it."""
    try:
        (tree,) = ast.parse(inspect.cleandoc(f"\n{inspect.getsource(thing)}")).body
    except (OSError, TypeError):
        return []
    found, shown = [], SHOWN.get(thing.__name__)
    body = tree.body if isinstance(tree, ast.ClassDef) else []
    for field, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name, said = field.target.id, ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said = " ".join(str(after.value.value).split())
        if not name.startswith(("_", "model_config")) and (shown is None or name in shown):
            found.append(f"- `{name}: {ast.unparse(field.annotation)}`{': ' if said else ''}{said}")
    return found


def signature(thing: Any) -> str:
    """Return a signature without its types; nothing where there is none."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters if p.name != "self"]
    return re.sub("<function .*? at 0x[0-9a-f]+>", "…", str(inspect.Signature(bare)))


def about() -> str:
    """Return the first paragraph of the README."""
    return (ROOT / "README.md").read_text("utf-8").split("\n\n")[1]


def listed(nav: list[Any]) -> Iterator[tuple[str, list[str]]]:
    """Return each heading of the navigation with its pages."""
    for entry in nav:
        for heading, pages in entry.items() if isinstance(entry, Mapping) else [("Start", entry)]:
            yield heading, [*pages_in(pages)]


def pages_in(entry: Any) -> Iterator[str]:
    """Return the pages of a part of the navigation, with those of the parts inside it."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, Mapping) else entry:
            yield from pages_in(part)


if __name__ == "__main__":
    sys.exit(main())
