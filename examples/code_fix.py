"""A bug is fixed in a folder, and the tests decide whether it is: the criterion has a check that runs them.

Runs without a key, from a script, in a temporary folder.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from donewhen import Agent, wait
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools

CODE = "def total(prices):\n    return sum(prices[1:])\n"
TEST = "from shop import total\n\nassert total([1, 2, 3]) == 6, total([1, 2, 3])\nprint('all tests pass')\n"


def tests_of(folder: str) -> Callable[[], str]:
    """Make a tool that runs the tests of a folder."""

    def run_tests() -> str:
        """Run the tests, and return what they print."""
        command = [sys.executable, "-B", "test_shop.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    return run_tests


def model() -> ScriptedModel:
    """Claim that it is fixed first, which the check refutes; then fix it."""
    passes = {"tool": "run_tests", "arguments": {}, "expect": {"contains": "all tests pass"}}
    plan = submit_plan(
        [
            {
                "content": "Fix total() in shop.py",
                "done_when": [{"text": "The tests pass", "check": passes}],
                "tools": ["read_file", "edit_file", "run_tests"],
            }
        ],
        title="Fix the total",
    )
    work = [
        call("read_file", path="shop.py"),
        call("edit_file", path="shop.py", old="prices[1:]", new="prices[:-1]"),
        finish_step("Fixed", "s1.2"),  # the check runs the tests, and they fail
        call("edit_file", path="shop.py", old="prices[:-1]", new="prices"),
        finish_step("total() adds all prices; the tests pass.", "s1.4"),
    ]
    return ScriptedModel(roles={"triage": [plan], "execute": work})


def main() -> None:
    """Work in a folder with a broken program."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "shop.py").write_text(CODE)
        Path(folder, "test_shop.py").write_text(TEST)
        tools = [*workspace_tools(folder), tests_of(folder)]
        agent = Agent(model(), tools, effects={"run_tests": "read"}, storage="memory:")
        run = wait(agent.start("The total of a cart is too low: fix it"))
        run = wait(agent.resume(run, "approve"))
        print(f"{run.status}: {run.answer}")
        assert run.receipt is not None
        (criterion,) = run.receipt["steps"][0]["criteria"]
        print(f"{criterion['verdict']}: {criterion['text']}")
        print(Path(folder, "shop.py").read_text())


if __name__ == "__main__":
    main()
