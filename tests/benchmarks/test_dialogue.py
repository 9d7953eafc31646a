"""The runner of dialogue tasks: a simulated user, tools over MCP, and the database that decides."""

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from benchmarks import dialogue
from benchmarks.dialogue import STOP, talk
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan

SERVER = """
import json, sys
from pathlib import Path
from mcp.server import MCPServer
from mcp.types import ToolAnnotations

file, server = Path(sys.argv[1]), MCPServer("orders")

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def get_order(order: str) -> str:
    "Look an order up."
    return json.dumps(json.loads(file.read_text())[order])

@server.tool()
def cancel_order(order: str, reason: str) -> str:
    "Cancel an order that was not sent yet."
    orders = json.loads(file.read_text())
    orders[order] |= {"status": "cancelled", "reason": reason}
    file.write_text(json.dumps(orders))
    return f"{order} is cancelled, 12.50 come back"

server.run()
"""


def task_in(folder: Path) -> dict[str, Any]:
    script = folder / "orders.py"
    script.write_text(textwrap.dedent(SERVER))
    return {
        "user": "You are Ann, and want order W1 cancelled because you do not need it any more.",
        "policy": "Cancel only orders that are pending, after the customer said why.",
        "server": {"command": sys.executable, "args": [str(script), "{database}"]},
        "database": {"W1": {"status": "pending"}, "W2": {"status": "pending"}},
        "actions": [{"name": "cancel_order", "arguments": {"order": "W1", "reason": "no longer needed"}}],
        "outputs": ["12.50"],
    }


@pytest.mark.parametrize(("order", "solved"), [("W1", True), ("W2", False)])
async def test_the_database_decides(order: str, solved: bool, tmp_path: Path) -> None:
    """41.7: the user is asked, consents in words, and hears the answer; another order cancelled is not right."""
    plan = submit_plan([{"content": f"Cancel {order}", "tools": ["cancel_order"], "done_when": ["it is cancelled"]}])
    work = [
        call("cancel_order", order=order, reason="no longer needed"),
        finish_step(f"{order} is cancelled, 12.50 come back", ("s1.1", "is cancelled")),
    ]
    with ScriptedModel(
        roles={"triage": [ask_user("Why?"), plan, answer("You are welcome.")], "execute": work}
    ) as model:
        user = ScriptedModel([f"Please cancel order {order}", "no longer needed", "yes", "Thanks!", f"Bye {STOP}"])
        found = await talk(task_in(tmp_path), model, user, tmp_path, {"verification": "grounded"})
    assert (found.solved, found.same_database, found.told, found.status) == (solved, solved, True, "answered")
    assert [who for who, _ in found.said] == ["agent", "user"] * 5
    assert found.turns == 4


async def test_a_user_who_leaves_changes_nothing(tmp_path: Path) -> None:
    """41.7: what nobody consented to is not done, so the task is not solved; the run waits."""
    plan = submit_plan([{"content": "Cancel W1", "tools": ["cancel_order"], "done_when": ["it is cancelled"]}])
    user = ScriptedModel(["Please cancel order W1, no longer needed", STOP])
    found = await talk(task_in(tmp_path), ScriptedModel(roles={"triage": [plan]}), user, tmp_path)
    assert (found.solved, found.status, found.turns) == (False, "waiting", 1)


async def test_the_command_line_names_the_models(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """41.7: `--model` and `--user` are enough; no model has to be set elsewhere."""
    monkeypatch.delenv("DONEWHEN_MODEL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    await dialogue.main([task_in(tmp_path)], "demo", "demo", most_turns=1)
    assert capsys.readouterr().out.endswith("0 of 1 solved\n")
