"""The wheel on every Python we promise: built once, installed in a fresh venv of each interpreter found, and used.

`make pythons`. What is not on this machine is skipped and named. pip fetches the dependencies as a user's pip would.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROMISED = ("3.11", "3.12", "3.13", "3.14")
PLACES = {
    "~/.pyenv/versions": "{}.*/bin/python3",
    "~/.local/share/uv/python": "cpython-{}*/bin/python3",
    "/opt/python": "{}*/bin/python3",
}
PROGRAM = '''
import asyncio, subprocess, sys, warnings
warnings.simplefilter("error", DeprecationWarning)
from dataclasses import dataclass
from pathlib import Path
from donewhen import Agent, wait
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

@dataclass
class Count:
    files: int

def look() -> str:
    """List the files."""
    return "a.txt, b.txt, 23 more"

plan = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "say it"}])
work = {"s1": [call("look"), finish_step("25 files", "s1.1")], "s2": [finish_step("25", "s2.result")]}
said = call("deliver", text="There are 25 files.", output={"files": 25})
first = Agent(ScriptedModel(roles={"triage": [plan]}), [look], storage="sqlite:///runs.db", effects={"look": "read"})
run = wait(first.start("how many files?", output_type=Count))
assert run.status == "waiting", run

async def on() -> None:
    model = ScriptedModel(roles={"execute": work, "deliver": [said]})
    async with Agent(model, [look], storage="sqlite:///runs.db", effects={"look": "read"}) as second:
        async with second.stream_resume(run.thread_id, "approve", output_type=Count) as events:
            assert [event["type"] async for event in events][-1] == "outcome"
        assert events.run.status == "completed", events.run
        assert events.run.output == Count(25), events.run.output

asyncio.run(on())
command = [str(Path(sys.executable).with_name("donewhen")), "show", run.thread_id, "--storage", "runs.db"]
shown = subprocess.run(command, capture_output=True, text=True)
assert shown.returncode == 0 and "There are 25 files." in shown.stdout, shown
print("works")
'''


def version_of(python: str) -> str:
    """Such as 3.12; "" where it does not start, as the shims of version managers may not."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def found(versions: Iterable[str] = PROMISED) -> dict[str, str | None]:
    """The interpreter of each version on this machine; None where there is none."""
    homes = {version: [shutil.which(f"python{version}") or ""] for version in versions}
    for version, candidates in homes.items():
        for folder, pattern in PLACES.items():
            candidates += sorted(map(str, Path(folder).expanduser().glob(pattern.format(version))))
    return {v: next((c for c in candidates if c and version_of(c) == v), None) for v, candidates in homes.items()}


def works(python: str, wheel: Path, folder: Path) -> str:
    """Return the output of the wheel in a fresh venv of this interpreter, used from a foreign folder."""
    here = folder / "theirs"
    here.mkdir()
    (here / "main.py").write_text(PROGRAM)
    for command in (
        [python, "-m", "venv", str(folder / "venv")],
        [str(folder / "venv/bin/pip"), "install", "-q", "--disable-pip-version-check", str(wheel)],
        [str(folder / "venv/bin/python3"), "main.py"],
    ):
        done = subprocess.run(command, cwd=here, capture_output=True, text=True)
        if done.returncode:
            return f"FAILED at {Path(command[0]).name}: {done.stderr.strip()[-1500:]}"
    return done.stdout.strip()


def main() -> int:
    """One line for each version; 1 if one that is here does not work."""
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
        subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
        (wheel,) = Path(folder).glob("*.whl")
        for version, python in found().items():
            place = Path(folder, version)
            place.mkdir()
            said = works(python, wheel, place) if python else "skipped: there is no such interpreter on this machine"
            failed |= said.startswith("FAILED")
            print(f"Python {version}: {said}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
