"""Try dist/ as its users will: install the sdist and the wheel, each in a fresh environment, and use them elsewhere.

`make try-dist`; ARGS=--offline takes the dependencies from this environment, in place of a package index.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GOAL = "total the amount in sales.csv by region, then write a report to report.md"
SALES = "region,amount\nNorth,120.50\nSouth,90\nNorth,80\n"
TYPES_KNOWN = 99.0
"""Per cent of the public names whose types have to be known, as `pyright --verifytypes` counts."""


def main() -> int:
    """Try each file of dist/; 1 if one of them does not work."""
    files = sorted([*ROOT.glob("dist/*.whl"), *ROOT.glob("dist/*.tar.gz")])
    if len(files) != 2:
        print("dist/ does not hold one wheel and one sdist: run `make dist` first")
        return 1
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            python = install(file, Path(folder), offline="--offline" in sys.argv)
            print(f"{file.name}: {try_installed(python, Path(folder))}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(f"{files[0].name}: {check_types(files[0], Path(folder))}", flush=True)
    return 0


def install(file: Path, folder: Path, *, offline: bool) -> Path:
    """Install a distribution in a fresh environment, and return its Python."""
    venv.create(folder / "venv", with_pip=not offline)
    python = folder / "venv" / "bin" / "python"
    if offline:
        (site,) = (folder / "venv").glob("lib/python*/site-packages")
        (site / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
        run([*pip, "--no-build-isolation", "-q", str(file)], folder)
    else:
        run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", str(file)], folder)
    return python


def try_installed(python: Path, folder: Path) -> str:
    """Import it, run the command with the demo model, and run the README's first block, in a folder of a user's own."""
    home = folder / "home"
    home.mkdir()
    (home / "sales.csv").write_text(SALES)
    (home / "agent.py").write_text("OWNER = 'me'\n")
    command = str(python.with_name("donewhen"))
    run([str(python), "-c", "import donewhen, donewhen.testing, donewhen.workspace, agent; agent.OWNER"], home)
    version = run([command, "--version"], home).strip()
    said = run([command, "run", GOAL, "--model", "demo", "--yes", "--storage", "runs.db"], home)
    assert "North" in said, said
    assert "200.50" in (home / "report.md").read_text()
    (home / "readme.py").write_text(first_run())
    said = run([str(python), "readme.py"], home)
    assert "completed" in said, said
    return f"{version} is imported, runs, and runs the README's first run"


def first_run() -> str:
    """Return the README's program that needs no key."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return str(next(block for block in blocks if '"demo"' in block))


def check_types(file: Path, folder: Path) -> str:
    """Say how many of the names have a known type, in an environment with all extras; exits if too few."""
    python = install(file, folder, offline=True)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    found = find_spec("langgraph")
    assert found
    assert found.submodule_search_locations
    # pyright overlooks that LangGraph is typed, because it is a namespace package; a copy that is none shows its types.
    shutil.copytree(found.submodule_search_locations[0], site / "langgraph")
    (site / "langgraph" / "__init__.py").touch()
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-m", "pyright", "--ignoreexternal", "--verifytypes", "donewhen"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    score = re.search(r"Type completeness score: ([\d.]+)%", done.stdout)
    if not score or float(score[1]) < TYPES_KNOWN:
        sys.exit(f"FAILED: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return f"{score[1]} % of its types are known"


def run(command: list[str], folder: Path) -> str:
    """Run a command in a folder and return what it prints; its errors are shown if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"FAILED: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
