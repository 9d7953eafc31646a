"""A question with a form at the terminal: asked field by field, and with piped input in one piece as before."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from donewhen.testing import call, finish_step, submit_plan
from tests.agent.cli.test_cli_terminal import scripted
from tests.agent.mcp.test_mcp_asking import BEFORE
from tests.kit.screens.shell import Exit
from tests.kit.screens.terminal import Session, piped

pytestmark = pytest.mark.timeout(120)
FORM = """{"type": "object", "required": ["size", "extras"], "properties": {
    "size": {"type": "string", "enum": ["S", "M", "L"], "description": "as on the label"},
    "count": {"type": "integer", "default": 1, "minimum": 1, "maximum": 9},
    "gift": {"type": "boolean"},
    "note": {"type": "string", "maxLength": 5},
    "extras": {"type": "array", "minItems": 1, "items": {"anyOf": [
        {"const": "wrap", "title": "Wrapping"}, {"const": "card", "title": "A card"}]}}}}"""
PLAN = {"content": "Order a shirt", "done_when": ["it is ordered"], "tools": ["order"]}
WORK = [call("order", what="shirt"), finish_step("Ordered.", "s1.2")]


def shop(folder: Path) -> Path:
    """Return the configuration of a server that asks with a form, and writes down what it is told."""
    start = BEFORE.index("FORM = ")
    end = BEFORE.index("    TOOL = ")
    code = textwrap.dedent(BEFORE[:start] + "FORM = json.loads('''" + FORM + "''')\n" + BEFORE[end:])
    code = code.replace("log.write(what", "log.write(json.dumps(said['content'])")
    (folder / "shop.py").write_text(code)
    config = folder / "mcp.json"
    arguments = [str(folder / "shop.py"), str(folder / "sold.txt")]
    config.write_text(json.dumps({"mcpServers": {"shop": {"command": sys.executable, "args": arguments}}}))
    return config


def test_a_form_is_asked_field_by_field(tmp_path: Path) -> None:
    """N42: what is wrong is said at its field; Enter takes the default or nothing; choices go by number or name."""
    config = shop(tmp_path)
    with scripted(tmp_path, triage=[submit_plan([PLAN])], execute=WORK) as env:
        session = Session.start("run", "order a shirt", "--yes", "--mcp", str(config), env=env, cwd=tmp_path)
        shown = session.reply("XL")
        assert all(part in shown for part in ("Which shirt?", "size (required) – as on the label", "3. L"))
        for said, typed in (
            ("'XL' is not one of ['S', 'M', 'L']", "3"),
            ("count [1]", "12"),
            ("12 is greater than the maximum of 9", "2"),
            ("[y] yes  [n] no", "perhaps"),
            ("'perhaps' is not of type 'boolean'", "yes"),
            ("note", ""),
            ("2. A card", ""),
            ("'extras' is a required property", "Wrapping, 2"),
        ):
            assert said in session.reply(typed)
        assert session.end() == (0, "Ordered.\n")
    sold = json.loads((tmp_path / "sold.txt").read_text())
    assert sold == {"size": "L", "count": 2, "gift": True, "extras": ["wrap", "card"]}


def test_a_form_is_declined_at_a_field(tmp_path: Path) -> None:
    """N42: /skip at any field declines the whole question."""
    config = shop(tmp_path)
    with scripted(tmp_path, triage=[submit_plan([PLAN])], execute=WORK) as env:
        session = Session.start("run", "order a shirt", "--yes", "--mcp", str(config), env=env, cwd=tmp_path)
        for typed in ("S", "/skip"):
            session.reply(typed)
        session.end()
    assert not (tmp_path / "sold.txt").exists()


def test_a_form_is_answered_through_a_pipe_in_one_piece(tmp_path: Path) -> None:
    """N42: without a terminal nothing is asked field by field; `resume` takes JSON or lines."""
    config = shop(tmp_path)
    with scripted(tmp_path, triage=[submit_plan([PLAN])], execute=WORK) as env:
        first = piped("run", "order a shirt", "--yes", "--mcp", str(config), "--thread", "t", env=env, cwd=tmp_path)
        assert first.returncode == Exit.WAITING, first.stderr
        said = "size: M\nextras: [card]\n"
        last = piped("resume", "t", "--answer-file", "-", env=env, cwd=tmp_path, stdin=said)
        assert (last.returncode, last.stdout) == (0, "Ordered.\n"), last.stderr
    sold = json.loads((tmp_path / "sold.txt").read_text())
    assert sold == {"count": 1, "size": "M", "extras": ["card"]}
