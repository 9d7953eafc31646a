"""What people install, an sdist, a wheel or this folder in editable mode, used beside an `agent.py` of their own."""

import os
import re
import runpy
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Iterator, Mapping
from email import message_from_string
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest
from uv import find_uv_bin

import donewhen
from benchmarks.pythons import PROGRAM as TRIED
from benchmarks.pythons import found, version_of
from donewhen import clients, errors, executors, hooks, plans, servers, testing, tracing, types, workspace
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.places import ROOT
from tests.kit.storage.cases import fresh_url
from tests.kit.wire import WireServer

OWN = ("agent", "graph", "state", "prompts")
PROGRAM = """
import importlib.resources, sys
import agent, graph, prompts, state
assert [m.OWNER for m in (agent, graph, prompts, state)] == ["me"] * 4
from donewhen import Agent, wait
from donewhen.testing import ScriptedModel, answer
import donewhen
run = wait(Agent(ScriptedModel([answer("Hello.")]), storage="memory:").start("hi"))
assert run.answer == "Hello.", run
assert importlib.resources.files("donewhen.prompts").joinpath("plan_triage.md").is_file()
assert importlib.resources.files("donewhen.agent.page").joinpath("static", "page.html").is_file()
print(donewhen.__file__)
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of somebody who uses the very names of our four floors."""
    folder = tmp_path / "theirs"
    (folder / "prompts").mkdir(parents=True)
    for name in ("agent.py", "graph.py", "state.py", "prompts/__init__.py"):
        (folder / name).write_text('OWNER = "me"\n')
    (folder / "main.py").write_text(PROGRAM)
    return folder


def fresh_venv(folder: Path) -> Path:
    """A Python of its own that finds our dependencies where they are; .pth files over there are not read."""
    venv.create(folder, with_pip=False)
    places = [path for path in sys.path if path.endswith("site-packages")]
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text("\n".join(places))
    return folder / "bin" / "python"


def install(python: Path, *what: str) -> None:
    """By pip, without the network."""
    done = run_pip(python, *what)
    assert done.returncode == 0, done.stderr


def run_pip(python: Path, *what: str) -> subprocess.CompletedProcess[str]:
    """What pip says to an install without the network."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    return subprocess.run([*command, "--no-build-isolation", *what], capture_output=True, text=True)


def run_program(python: Path, program: Path, **variables: str) -> str:
    """What the program prints, run in its own folder without a PYTHONPATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    kept["XDG_STATE_HOME"] = str(program.parent / "state")
    command = [str(python), program.name]
    done = subprocess.run(command, cwd=program.parent, env=kept | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def build(source: Path, folder: Path, target: str) -> Path:
    """The sdist or wheel that hatchling, the build backend, makes of a source tree."""
    done = run_build(source, folder, target)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl" if target == "wheel" else "*.tar.gz"))


def run_build(source: Path, folder: Path, target: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A build, and what it says."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    return subprocess.run(command, cwd=source, capture_output=True, text=True, env=kept | variables)


def metadata_of(wheel: Path) -> Message:
    """What a wheel says of itself, with the README as its payload."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        return message_from_string(packed.read(name).decode())


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, the wheel made from it, and the wheel made from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    sdist = build(ROOT, folder / "sdist", "sdist")
    return {
        "sdist": sdist,
        "wheel of the sdist": build(unpack(sdist, folder / "unpacked"), folder / "from sdist", "wheel"),
        "wheel of the tree": build(ROOT, folder / "from tree", "wheel"),
    }


def test_sdist_and_wheels_hold_real_files_under_one_name(artifacts: dict[str, Path]) -> None:
    """N25, R10: the same files in all three, no links, nothing of ours at the top, no tests and no benchmarks.

    What the page's libraries are built from is in the sdist alone.
    """
    held = dict[str, set[str]]()
    with tarfile.open(artifacts["sdist"]) as packed:
        members = packed.getmembers()
    assert all(member.isfile() for member in members)
    inside = {member.name.partition("/")[2] for member in members}
    assert {name.split("/")[0] for name in inside} == {
        ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "docs", "donewhen", "examples",
        "hatch_build.py", "pyproject.toml",
    }  # fmt: skip
    held["sdist"] = {name for name in inside if name.startswith("donewhen/")}
    for kind in ("wheel of the sdist", "wheel of the tree"):
        with zipfile.ZipFile(artifacts[kind]) as packed_wheel:
            names = packed_wheel.namelist()
            assert not [i for i in packed_wheel.infolist() if (i.external_attr >> 16) & 0o170000 == 0o120000]
        assert {name.split("/")[0] for name in names if not name.startswith("donewhen-")} == {"donewhen"}
        held[kind] = {name for name in names if name.startswith("donewhen/")}
    tracked = subprocess.run(["git", "ls-files", *OWN], cwd=ROOT, capture_output=True, text=True, check=True)
    ours = {f"donewhen/{name}" for name in tracked.stdout.split()}
    front = (
        "__init__.py clients.py errors.py executors.py hooks.py inspect.py openapi.py plans.py "
        "py.typed pytest_plugin.py receipts.py servers.py temporal.py testing.py tracing.py types.py workspace.py"
    )
    front += " skills/donewhen/SKILL.md"
    ours |= {f"donewhen/{name}" for name in front.split()}
    assert held["sdist"] == ours
    sources_of_the_page = {name for name in ours if name.startswith("donewhen/agent/page/libraries/")}
    assert sources_of_the_page
    assert held["wheel of the sdist"] == held["wheel of the tree"] == ours - sources_of_the_page


def test_no_link_of_the_readme_is_dead_on_a_package_index(artifacts: dict[str, Path]) -> None:
    """R10: links to files lead to the repository; while it has no address, their words stay without them."""
    shown = str(metadata_of(artifacts["wheel of the sdist"]).get_payload())
    assert "## First run" in shown
    assert "[LangGraph](https://" in shown
    assert re.findall(r"\]\((?!https:)[^)]*\)", shown) == []
    text = "![A run](docs/a.svg) [Tutorial](docs/t.md) [x](https://x.example)"
    with_links = runpy.run_path(str(ROOT / "hatch_build.py"))["with_absolute_links"]
    assert with_links(text, "") == " Tutorial [x](https://x.example)"
    assert with_links(text, "https://git.example/us") == (
        "![A run](https://git.example/us/raw/main/docs/a.svg) [Tutorial](https://git.example/us/blob/main/docs/t.md) "
        "[x](https://x.example)"
    )


WORKFLOW = {"GITHUB_SERVER_URL": "https://git.example", "GITHUB_REPOSITORY": "us/donewhen"}


@pytest.mark.parametrize(
    ("line", "workflow", "address"),
    [
        ("", {}, ""),
        ("", WORKFLOW, "https://git.example/us/donewhen"),
        ("https://git.example/we/donewhen.git", {}, "https://git.example/we/donewhen"),
        ("https://git.example/we/donewhen/", WORKFLOW, "https://git.example/we/donewhen"),
    ],
)
def test_the_package_page_leads_to_the_repository(
    tmp_path: Path, artifacts: dict[str, Path], line: str, workflow: Mapping[str, str], address: str
) -> None:
    """Q62, R10: by one line that the owner fills, else by the workflow that builds; a build without either says so.

    What is made of the sdist elsewhere leads there too.
    """
    source = unpack(artifacts["sdist"], tmp_path / "tree")
    (source / "PKG-INFO").unlink()
    settings = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(settings.replace('\nrepository = ""', f'\nrepository = "{line}"'))
    done = run_build(source, tmp_path, "sdist", **workflow)
    assert done.returncode == 0, done.stderr
    assert ("[tool.hatch.metadata.hooks.custom]" in done.stderr) == (not address), done.stderr
    (sdist,) = tmp_path.glob("*.tar.gz")
    page = metadata_of(build(unpack(sdist, tmp_path / "unpacked"), tmp_path, "wheel"))
    if not address:
        assert "Project-URL" not in page
        return
    assert page.get_all("Project-URL") == [
        f"Repository, {address}",
        f"Documentation, {address}/blob/main/docs/index.md",
        f"Changelog, {address}/blob/main/CHANGELOG.md",
        f"Issues, {address}/issues",
    ]
    assert f"]({address}/blob/main/docs/tutorial.md)" in str(page.get_payload())
    assert f"]({address}/raw/main/docs/images/run.svg)" in str(page.get_payload())


def test_an_address_that_leads_nowhere_is_refused(tmp_path: Path, artifacts: dict[str, Path]) -> None:
    """Q62: the build names the line and what it should be like."""
    source = unpack(artifacts["sdist"], tmp_path)
    settings = (source / "pyproject.toml").read_text()
    (source / "pyproject.toml").write_text(settings.replace('\nrepository = ""', '\nrepository = "git.example/us"'))
    done = run_build(source, tmp_path, "wheel")
    assert done.returncode
    assert "repository = 'git.example/us' in pyproject.toml has to be like https://" in done.stderr


def unpack(sdist: Path, folder: Path) -> Path:
    """The source tree of an sdist."""
    with tarfile.open(sdist) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.glob("donewhen-*"))


def test_a_bare_install_brings_what_the_code_imports_and_nothing_else(artifacts: dict[str, Path]) -> None:
    """R10: no tool of builds or tests, and no library that is left over, comes along; the licence does."""
    page = metadata_of(artifacts["wheel of the sdist"])
    bare = [each for each in page.get_all("Requires-Dist") or () if "extra ==" not in each]
    code = "\n".join(path.read_text() for floor in OWN for path in (ROOT / floor).rglob("*.py"))
    imported = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", code, re.MULTILINE))
    idle = set()
    for name in (re.split(r"[^\w.-]", each)[0] for each in bare):
        files = metadata.distribution(name).files or ()
        modules = {
            ".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files if file.suffix == ".py"
        }
        if not modules & imported:
            idle.add(name)
    assert idle == {"openai", "tzdata"}, "which langchain-openai imports and zoneinfo reads"
    assert page.get_all("License-File") == ["LICENSE"]
    assert page["License-Expression"] == "MIT"
    told = set(re.findall(r"donewhen\[([a-z,0-9]+)\]", code))
    assert {extra for each in told for extra in each.split(",")} <= set(page.get_all("Provides-Extra") or ())


def test_what_is_installed_runs_the_readme_beside_modules_of_the_same_names(
    artifacts: dict[str, Path], tmp_path: Path, theirs: Path, provider: WireServer
) -> None:
    """N25, R10, L5: `import agent` is theirs, `from donewhen import Agent` is ours; the README's programs run."""
    python = fresh_venv(tmp_path / "venv")
    install(python, str(artifacts["wheel of the sdist"]))
    _, demo, offers = readme_code()
    (theirs / "main.py").write_text(PROGRAM + demo + offers.replace("input(", "str('approve' or "))
    said = run_program(python, theirs / "main.py", OPENAI_API_KEY="sk-test", OPENAI_BASE_URL=provider.base_url)
    assert said.startswith(str(tmp_path / "venv"))
    assert "completed" in said.partition("completed The three")[0]
    assert "completed The three cheapest offers are with Mira." in said


def readme_code() -> list[str]:
    """The programs in the README: five lines, for the demo model, and with tools of one's own."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.fixture
def provider() -> Iterator[WireServer]:
    """A provider whose model does what the README's goal asks for."""
    plan = submit_plan(
        [{"content": "find and mail the offers", "done_when": "mailed", "tools": ["search", "send_mail"]}]
    )
    work = [
        call("search", query="cheapest offers"),
        call("send_mail", to="mira@example.com", text="Ann 12.50, Bob 18.40, Cem 19.00"),
        finish_step("The three cheapest offers are with Mira.", "s1.2"),
    ]
    with WireServer(ScriptedModel(roles={"triage": [plan], "execute": work})) as server:
        yield server


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_an_editable_install_leaves_their_names_alone(tmp_path: Path, theirs: Path, installer: str) -> None:
    """L5, N25: the folder itself is on nobody's path; with uv as with pip."""
    python = fresh_venv(tmp_path / "venv")
    if installer == "uv":
        (dependencies,) = (tmp_path / "venv").glob("lib/python*/site-packages/dependencies.pth")
        hidden = dependencies.rename(tmp_path / "hidden")
        install_by_uv(python, ROOT, tmp_path / "stubs")
        subprocess.run([str(python), "-c", "import donewhen"], cwd=tmp_path, check=True)  # with what uv installed alone
        hidden.rename(dependencies)
    else:
        install(python, "--editable", str(ROOT))
    assert Path(run_program(python, theirs / "main.py")).resolve() == ROOT / "donewhen" / "__init__.py"
    (theirs / "main.py").write_text("import agent")
    (theirs / "agent.py").unlink()
    done = subprocess.run([str(python), "main.py"], cwd=theirs, capture_output=True, text=True)
    assert "No module named 'agent'" in done.stderr


def test_an_editable_install_of_a_copy_that_has_folders_for_links_uses_the_copy(
    tmp_path: Path, artifacts: dict[str, Path], theirs: Path
) -> None:
    """L5: an unpacked sdist, and a folder that was copied by a program that follows links, ours of before included."""
    source = unpack(artifacts["sdist"], tmp_path)
    stale = source / ".editable" / "donewhen"
    stale.mkdir(parents=True)
    (stale / "__init__.py").write_text("raise ImportError('a copy of before')")
    python = fresh_venv(tmp_path / "venv")
    install(python, "--editable", str(source))
    assert Path(run_program(python, theirs / "main.py")).resolve() == source / "donewhen" / "__init__.py"


def install_by_uv(python: Path, source: Path, stubs: Path) -> None:
    """In editable mode with its dependencies, which uv reads from pyproject.toml; empty packages stand for these."""
    stubs.mkdir()
    needed = tomllib.loads((source / "pyproject.toml").read_text())["project"]["dependencies"]
    for name in {re.split(r"[^\w.-]", each)[0] for each in (*needed, "hatchling")}:
        write_empty_wheel(name, stubs)
    command = [find_uv_bin(), "pip", "install", "-q", "--python", str(python), "--offline", "--no-index"]
    command += ["--find-links", str(stubs), "--no-build-isolation", "--editable", str(source)]
    backend = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=backend, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def write_empty_wheel(name: str, folder: Path) -> None:
    """A wheel that has the name and version of an installed distribution, and nothing inside."""
    version = metadata.distribution(name).version
    title = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    with zipfile.ZipFile(folder / f"{title}-py3-none-any.whl", "w") as packed:
        packed.writestr(f"{title}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        packed.writestr(f"{title}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{title}.dist-info/RECORD", "")


def unzip_without_links(folder: Path) -> Path:
    """The files of the repository as a zip of it holds them, unpacked by a program that writes text for links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    with zipfile.ZipFile(folder / "main.zip", "w") as packed:
        for name in listed.stdout.split("\0")[:-1]:
            path = ROOT / name
            if name.startswith(("tests/", "benchmarks/")) or not os.path.lexists(path):
                continue
            packed.writestr(f"main/{name}", os.readlink(path) if path.is_symlink() else path.read_bytes())
    with zipfile.ZipFile(folder / "main.zip") as packed:
        packed.extractall(folder)
    return folder / "main"


def test_a_zip_without_links_builds_the_whole(tmp_path: Path, artifacts: dict[str, Path]) -> None:
    """Q62, R10: an sdist and a wheel of a zip of the repository hold what those of a clone hold."""
    checkout = unzip_without_links(tmp_path)
    (checkout / "agent" / "node_modules").mkdir()
    (checkout / "agent" / "node_modules" / "left.js").write_text("what .gitignore names stays out")
    with (
        zipfile.ZipFile(build(checkout, tmp_path, "wheel")) as wheel,
        zipfile.ZipFile(artifacts["wheel of the tree"]) as whole,
    ):
        assert sorted(wheel.namelist()) == sorted(whole.namelist())
    with tarfile.open(build(checkout, tmp_path, "sdist")) as sdist, tarfile.open(artifacts["sdist"]) as whole_sdist:
        assert {*sdist.getnames()} == {*whole_sdist.getnames()}


def test_a_checkout_without_links_says_so(tmp_path: Path) -> None:
    """N25, R10: as a zip unpacked without links, or git with core.symlinks=false, leaves it: files for links.

    Used in its folder, its import says so; an editable install is refused.
    """
    checkout = unzip_without_links(tmp_path)
    python = fresh_venv(tmp_path / "venv")
    said = []
    for program in ("import donewhen", "from donewhen.agent.cli import main", "import donewhen.state.errors"):
        done = subprocess.run([str(python), "-c", program], cwd=checkout, capture_output=True, text=True)
        said.append(done.stderr.strip().splitlines()[-1])
        assert said[-1].startswith("ImportError: donewhen/"), done.stderr
    done = run_pip(python, "--editable", str(checkout))
    assert done.returncode
    said += [line for line in done.stderr.splitlines() if "donewhen/agent is no folder" in line]
    assert len(said) == 4, done.stderr
    for line in said:
        assert "without its symbolic links" in line
        assert "git config core.symlinks true" in line
        assert len(line) < 400


def test_the_public_names() -> None:
    """Q95: a new name is a decision, a lost one breaks somebody, and what tests DoneWhen itself is not public;
    `tests/typing/api.py` uses them under the type checkers.
    """
    assert donewhen.__all__ == [
        "Agent", "AgentOptions", "ConfigError", "DoneWhenError", "Executor", "GoalError", "Limits", "McpServers",
        "ModelError", "Models", "Profile", "ResumeError", "Run", "Settings", "StaleAnswer", "StorageError",
        "ThreadBusy", "ThreadWaiting", "ToolError", "UnknownThread", "Webhook", "build_graph", "wait",
    ]  # fmt: skip
    assert types.__all__ == [
        "BudgetRow", "Conversation", "Event", "JournalEntry", "Options", "Outcome", "Page", "Pause", "PlanJson",
        "PlanTemplate", "Receipt", "RunStatus", "RunStream", "ScheduleInfo", "StartOptions", "StepRecord",
        "StorageStatus", "ThreadInfo", "UndoReport", "UndoneChange", "Worker", "event_schema",
    ]  # fmt: skip
    assert {*errors.__all__} - {*donewhen.__all__} == {"PlanError", "ScheduleError", "ToolMissing"}
    assert executors.__all__ == ["Executor", "Executors", "RemoteAgent"]
    assert plans.__all__ == ["PlanStore", "plan_tools"]
    assert tracing.__all__ == ["Tracing"]
    assert testing.__all__ == [
        "Policy", "Recording", "ReplayDifference", "Reply", "Request", "ScriptError", "ScriptExhausted",
        "ScriptUnfinished", "ScriptedModel", "accept_plan", "answer", "ask_user", "audit", "broken_call", "call",
        "consent", "crash_points", "criterion", "decline", "deliver", "finish_step", "finish_task", "give_up",
        "observed", "playing", "recall", "reply", "submit_plan",
    ]  # fmt: skip
    assert workspace.__all__ == ["WORKSPACE_TOOLS", "Skills", "workspace_tools"]
    assert hooks.__all__ == ["Ask", "Call", "End", "Hooks", "Note", "Question", "Refuse"]
    assert servers.__all__ == ["PushNotifications", "a2a_app", "mcp_server", "serve_acp"]
    for module in (donewhen, clients, errors, executors, hooks, plans, servers, testing, tracing, types, workspace):
        assert dir(module) == sorted(module.__all__)
        assert all(getattr(module, name) for name in module.__all__)
        with pytest.raises(AttributeError, match="Agnet"):
            module.Agnet  # noqa: B018


WINDOWS = """
import os, signal, sys
for name in ("fcntl", "resource", "termios"):
    sys.modules[name] = None
missing = {os: ("O_NO", "O_DIRECTORY", "O_CLOEXEC", "fork", "killpg", "register_at"), signal: ("SIGKILL", "SIGSTOP")}
for module, beginnings in missing.items():
    for name in [name for name in vars(module) if name.startswith(beginnings)]:
        delattr(module, name)
os.supports_dir_fd = set()
from donewhen import Agent, ConfigError, wait
from donewhen.plans import PlanStore, plan_tools
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import Skills, workspace_tools

def look() -> str:
    "Look."
    return "three apples"

plan = submit_plan([{"content": "look", "tools": ["look"]}])
work = [call("look"), finish_step("three", ("s1.1", "three"))]

def model():
    return ScriptedModel(roles={"triage": [plan], "execute": work})

for url in sys.argv[1:]:
    agent = Agent(model(), [look], storage=url, effects={"look": "read"}, settings={"verification": "grounded"})
    run = wait(agent.resume(wait(agent.start("Look")), "approve"))
    print(run.status, run.answer)
for make in (lambda: Agent("demo", storage="runs.db"), lambda: workspace_tools(".")):
    try:
        make()
    except ConfigError as error:
        print(error)
sys.platform = "win32"
from donewhen.agent.cli import main
main()
"""


def test_on_windows_runs_with_own_tools_work_and_the_rest_says_what_it_needs() -> None:
    """L13: what does not exist there is imported by nobody who does not need it; simulated by taking it away."""
    urls = [fresh_url(kind, Path()) for kind in ("memory", "postgres")]
    done = subprocess.run([sys.executable, "-c", WINDOWS, *urls], capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["completed three"] * 2
    assert "needs POSIX locks" in said[2]
    assert "Linux, macOS" in said[3]
    assert "use WSL" in done.stderr
    assert "Traceback" not in done.stderr


def test_interpreters_are_found_or_named() -> None:
    """L5: `make pythons` tries the wheel on each Python that is here; what is not is skipped, not forgotten."""
    ours = "{}.{}".format(*sys.version_info[:2])
    assert found((ours, "3.99"))["3.99"] is None
    assert version_of(sys.executable) == ours
    assert version_of("/bin/false") == ""


def test_the_program_that_is_tried_on_each_python_works_on_this_one(tmp_path: Path) -> None:
    """L5: what `make pythons` runs in each fresh environment follows the names that it uses."""
    (tmp_path / "main.py").write_text(TRIED)
    assert run_program(Path(sys.executable), tmp_path / "main.py") == "works"
