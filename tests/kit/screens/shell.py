"""The command run in this process, as a script runs it: a user with folders of their own, and a scripted provider."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from donewhen.agent.cli.app import app as app  # tests take both from here, so that they can move
from donewhen.agent.cli.exits import Exit as Exit
from donewhen.testing import ScriptedModel
from tests.kit.wire import WireServer


@dataclass
class Shell:
    """A user with a folder, a state folder and a model."""

    home: Path
    work: Path
    model: dict[str, str]

    def __call__(self, *words: str, stdin: str | bytes = "", **more: str) -> Result:
        env: dict[str, str | None] = dict.fromkeys(k for k in os.environ if k.startswith(("DONEWHEN_", "OPENAI_")))
        env |= {"XDG_STATE_HOME": str(self.home / "state"), "HOME": str(self.home), "XDG_CONFIG_HOME": ""}
        env |= {**self.model, **more}
        return CliRunner().invoke(app, list(words), input=stdin, env=env)

    def run(self, *words: str, **more: str) -> Result:
        return self("run", "count the files", "--dir", str(self.work), *words, **more)

    def waiting(self) -> str:
        """The thread that waits."""
        (thread,) = [t for t in json.loads(self("threads", "--json").stdout)["threads"] if t["status"] == "waiting"]
        return str(thread["thread_id"])


def user_in(home: Path) -> Shell:
    """A user who works in a folder with three files, and has nothing configured."""
    work = home / "work"
    work.mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (work / name).write_text(name)
    return Shell(home, work, {})


@contextmanager
def scripted(shell: Shell, *, strict: bool = True, **roles: Any) -> Iterator[ScriptedModel]:
    """The shell talks to this script, over HTTP as to any provider."""
    model = ScriptedModel(roles=roles, strict=strict)
    with WireServer(model) as server:
        shell.model = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}
        yield model
    model.assert_exhausted()


def one_object(result: Result) -> dict[str, Any]:
    """The one JSON object on stdout."""
    assert result.stdout.count("\n") == 1, result.stdout
    value = json.loads(result.stdout)
    assert value["schema_version"] == 1
    return dict(value)
