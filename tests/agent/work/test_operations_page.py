"""deploy/: the unit, the container and the composition fit the code. No Docker is needed to see that."""

import json
import re
import shlex
import tomllib
from configparser import ConfigParser
from typing import Any

import yaml
from typer.testing import CliRunner

from donewhen.agent.config import read_config
from donewhen.agent.storage import parse_url
from donewhen.agent.work.worker import GRACE
from tests.kit.places import ROOT
from tests.kit.screens.shell import app

DEPLOY = ROOT / "deploy"


def test_units_and_containers_start_a_worker_and_let_it_drain() -> None:
    """M11: both call the command as it is, on a storage that it takes, and wait longer than a drain does."""
    unit = ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DEPLOY / "donewhen.service").read_text())
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    worker, service = compose["services"]["worker"], unit["Service"]
    named = dict([service["Environment"].split("=", 1)])
    for command, env, patience in (
        (service["ExecStart"], named, f"{service['TimeoutStopSec']}s"),
        (worker["command"], worker["environment"], worker["stop_grace_period"]),
    ):
        words = shlex.split(command.removeprefix("/opt/donewhen/bin/donewhen "))
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0
        assert parse_url(read_config(env).storage).kind == "postgres"
        assert float(patience.removesuffix("s")) > GRACE
    assert {volume.partition(":")[0] for each in compose["services"].values() for volume in each["volumes"]} == {
        *compose["volumes"]
    }
    assert {*worker["depends_on"]} < {*compose["services"]}


def test_the_image_holds_the_command_and_starts_a_worker() -> None:
    """M11: what it copies is there, the extras that it installs exist, and what it starts is the command as it is."""
    lines = (DEPLOY / "Dockerfile").read_text().replace("\\\n", "").splitlines()
    said = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert [words for kind, words in said if kind == "COPY"] == [". /src", "--from=build /wheels /wheels"]
    extras = re.search(r"\.whl\)\[([\w,]+)\]", "\n".join(lines))
    assert extras
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {*extras[1].split(",")} <= {*project["optional-dependencies"]}
    command = {kind: json.loads(words) for kind, words in said if kind in ("ENTRYPOINT", "CMD")}
    assert command["ENTRYPOINT"] == [*project["scripts"]]
    assert CliRunner().invoke(app, [*command["CMD"], "--help"]).exit_code == 0
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert not {"donewhen", "agent", "graph", "state", "prompts", "README.md", "LICENSE"} & {*ignored}
