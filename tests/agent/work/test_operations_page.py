"""docs/operations.md: what it has people copy fits the code. That it works was tried by hand, beside a real server."""

import re
import shlex
from configparser import ConfigParser
from typing import Any

import yaml
from typer.testing import CliRunner

from donewhen.agent.cli.app import app
from donewhen.agent.config import read_config
from donewhen.agent.storage.storage import parse_url
from donewhen.agent.work.worker import GRACE
from tests.kit.places import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def block(kind: str) -> str:
    """The first block of a kind."""
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found[1]


def test_units_and_containers_start_a_worker_and_let_it_drain() -> None:
    """M11: both call the command as it is, on a storage that it takes, and wait longer than a drain does."""
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(block("ini"))
    compose: dict[str, Any] = yaml.safe_load(block("yaml"))
    worker, service = compose["services"]["worker"], unit["Service"]
    named = dict([service["Environment"].split("=", 1)])
    for command, env, patience in (
        (service["ExecStart"], named, f"{service['TimeoutStopSec']}s"),
        (worker["command"], worker["environment"], worker["stop_grace_period"]),
    ):
        program, *words = shlex.split(command)
        assert program.endswith("donewhen")
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
        assert parse_url(read_config(env).storage).kind == "postgres"
        assert float(patience.removesuffix("s")) > GRACE
    assert {volume.partition(":")[0] for each in compose["services"].values() for volume in each["volumes"]} == {
        *compose["volumes"]
    }
    assert {*worker["depends_on"]} < {*compose["services"]}
