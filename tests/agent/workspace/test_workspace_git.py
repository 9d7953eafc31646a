"""Git in a folder that came from somebody else: its repository starts nothing unasked; a usual one just works."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.flows import play

pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def git(folder: Path, *words: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True)


def tool_of(folder: Path, *commands: str) -> BaseTool:
    return workspace_tools(folder, commands=commands or ("git",))[-1]


def ran(tool: BaseTool, *command: str, **more: Any) -> Any:
    return json.loads(tool.invoke({"command": ["git", *command], **more}))


def a_repository(folder: Path, attributes: str = "", settings: str = "") -> Path:
    """Make a repository with one commit and a changed file; MARK in its settings starts a program that leaves `RAN`."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("one\n")
    (folder / ".gitattributes").write_text(attributes)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    (folder / "a.txt").write_text("two\n")
    os.utime(folder / "b.txt", (1, 1))
    script = folder / ".git" / "evil"
    script.write_text(f"#!/bin/sh\ntouch {folder / 'RAN'}\ncat\n")
    script.chmod(0o755)
    with (folder / ".git" / "config").open("a") as file:
        file.write(settings.replace("MARK", str(script)))
    return folder


PROGRAMS: dict[str, tuple[str, str, list[str]]] = {
    "clean": ("*.txt filter=x", '[filter "x"]\nclean = MARK', ["status"]),
    "process": ("*.txt filter=x", '[filter "x"]\nprocess = MARK', ["status"]),
    "smudge": ("*.txt filter=x", '[filter "x"]\nsmudge = MARK', ["checkout", "--", "."]),
    "diff driver": ("*.txt diff=x", '[diff "x"]\ncommand = MARK', ["diff"]),
    "text conversion": ("*.txt diff=x", '[diff "x"]\ntextconv = MARK', ["log", "-p"]),
    "diff": ("", "[diff]\nexternal = MARK", ["diff"]),
    "alias": ("", "[alias]\nst = !MARK", ["st"]),
    "upload pack": ("", '[remote "origin"]\nurl = .\nuploadpack = MARK', ["fetch", "origin"]),
    "proxy": ("", '[remote "origin"]\nurl = git://localhost:1/x\n[core]\ngitProxy = MARK', ["fetch", "origin"]),
    "signature": ("", '[log]\nshowSignature = true\n[gpg "ssh"]\nprogram = MARK', ["log"]),
    "pager": ("", "[pager]\nlog = MARK", ["-p", "log"]),
    "trailer": ("", '[trailer "x"]\ncmd = MARK', ["interpret-trailers", "--trailer", "x=1", "a.txt"]),
    "refs of alternates": ("", "[core]\nalternateRefsCommand = MARK", ["fetch", "."]),
    "included": ("*.txt filter=x", "[include]\npath = more", ["status"]),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_repository_starts_no_program_of_its_own(kind: str, tmp_path: Path) -> None:
    """Q107, S2: neither in the repository of the folder nor in one below it; the refusal names the setting."""
    attributes, settings, command = PROGRAMS[kind]
    for folder, options in ((tmp_path, []), (tmp_path / "inner", ["-C", "inner"])):
        a_repository(folder, attributes, settings)
        (folder / ".git" / "more").write_text(f'[filter "x"]\n clean = {folder / ".git" / "evil"}\n')
        with pytest.raises(ToolException, match="may start programs that it names itself") as caught:
            ran(tool_of(tmp_path, " ".join(["git", *options, *command])), *options, *command)
        assert str(folder / ".git" / "evil") in str(caught.value)
        assert not (folder / "RAN").exists()


HELD: dict[str, tuple[str, list[str]]] = {
    "hooks": ("[core]\nhooksPath = .git/hooks", ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "x"]),
    "monitor": ("[core]\nfsmonitor = MARK", ["status"]),
    "editor": ("[core]\neditor = MARK\n[sequence]\neditor = MARK", ["rebase", "-i", "--root", "--autostash"]),
    "pager": ("[core]\npager = MARK", ["-p", "log"]),
    "credentials": ('[credential "http://127.0.0.1:1"]\nusername = x\n[credential]\nhelper = MARK', ["fetch", "--all"]),
    "ext": ('[remote "origin"]\nurl = ext::MARK\n[protocol "ext"]\nallow = always', ["fetch", "origin"]),
    "ssh": ('[remote "origin"]\nurl = ssh://127.0.0.1:1/x\n[core]\nsshCommand = MARK', ["fetch", "origin"]),
    "other programs' settings": ('[gitflow "branch"]\nmaster = main\n[review]\ntool = MARK', ["status"]),
}


@pytest.mark.parametrize("kind", HELD)
def test_what_is_replaced_by_ours_is_no_reason_to_refuse(kind: str, tmp_path: Path) -> None:
    """Q107: hooks, editors, credentials and other tools' settings, as usual repositories have them, start nothing."""
    settings, command = HELD[kind]
    a_repository(tmp_path, settings=settings)
    for hook in ("pre-commit", "post-commit", "post-checkout"):
        (tmp_path / ".git" / "hooks" / hook).symlink_to(tmp_path / ".git" / "evil")
    ran(tool_of(tmp_path), *command)
    assert not (tmp_path / "RAN").exists()


def in_submodule(top: Path, settings: str) -> None:
    with (top / ".git" / "modules" / "sub" / "config").open("a") as file:
        file.write(settings)


def hooks_of_submodule(top: Path, evil: str) -> None:
    (top / ".git" / "modules" / "sub" / "hooks" / "post-checkout").symlink_to(evil)


SUBMODULES: dict[str, tuple[Callable[[Path, str], None], bool]] = {
    "clean": (lambda top, evil: in_submodule(top, f'[filter "x"]\nclean = {evil}\n'), True),
    "monitor": (lambda top, evil: in_submodule(top, f"[core]\nfsmonitor = {evil}\n"), True),
    "hook": (hooks_of_submodule, False),
    "nothing": (lambda top, evil: None, False),
}


@pytest.mark.parametrize("kind", SUBMODULES)
def test_submodules_are_looked_at_as_well(kind: str, tmp_path: Path) -> None:
    """Q107: git starts itself in each of them, without our settings; a usual one is no reason to refuse."""
    top, library = a_repository(tmp_path / "top"), a_repository(tmp_path / "library", "*.txt filter=x")
    git(top, "submodule", "--quiet", "add", str(library), "sub")
    git(top, "commit", "-qam", "with a library")
    os.utime(top / "sub" / "a.txt", (1, 1))
    change, refused = SUBMODULES[kind]
    change(top, str(library / ".git" / "evil"))
    tool, command = tool_of(top), ["submodule", "update", "--force"]
    if refused:
        for words in (["status"], command):
            with pytest.raises(ToolException, match="evil"):
                ran(tool, *words)
    else:
        assert [ran(tool, *words)["exit_code"] for words in (["status"], command)] == [0, 0]
    assert not (library / "RAN").exists()


def test_a_work_tree_elsewhere_is_refused(tmp_path: Path) -> None:
    """Q107: a checkout would write into another folder; worktrees and their own settings are read as git reads them."""
    (other := tmp_path / "other").mkdir()
    folder = a_repository(tmp_path / "here", settings=f"[core]\nworktree = {other}\n")
    with pytest.raises(ToolException, match=r"core\.worktree="):
        ran(tool_of(folder), "checkout", "-f")
    assert [*other.iterdir()] == []
    plain = a_repository(tmp_path / "plain", "*.txt filter=x")
    git(plain, "worktree", "add", "-q", "side")
    assert ran(tool_of(plain), "-C", "side", "status")["exit_code"] == 0
    git(plain, "config", "extensions.worktreeConfig", "true")
    git(plain / "side", "config", "--worktree", "filter.x.clean", str(plain / ".git" / "evil"))
    with pytest.raises(ToolException, match=r"filter\.x\.clean="):
        ran(tool_of(plain), "-C", "side", "status")
    assert ran(tool_of(plain), "status")["exit_code"] == 0


def test_git_diff_shows_the_difference(tmp_path: Path) -> None:
    """Q107: no setting of ours makes it fail."""
    tool = tool_of(a_repository(tmp_path))
    shown = ran(tool, "diff")
    assert shown["exit_code"] == 0
    assert "-one\n+two\n" in shown["stdout"]
    assert ran(tool, "show", "--stat")["exit_code"] == 0


async def test_a_person_may_let_the_programs_run(tmp_path: Path) -> None:
    """Q107, X29: asked, although the line is allowed; the question shows the settings, and only these are used."""
    a_repository(tmp_path, "*.txt filter=x", '[filter "x"]\nclean = MARK\n')
    own = [f"filter.x.clean={tmp_path / '.git' / 'evil'}"]
    programs: list[Any] = [{}, {"repository_programs": ["filter.x.clean=other"]}, {"repository_programs": own}]
    model = ScriptedModel(
        roles={
            "triage": [submit_plan([{"content": "look", "done_when": ["looked"], "tools": ["run_command"]}])],
            "execute": [
                *(call("run_command", command=["git", "status"], **more) for more in programs),
                finish_step("looked", "s1.3"),
            ],
        }
    )
    flow = await play(
        model,
        workspace_tools(tmp_path, commands=["git status"]),
        answers=["approve"] * 3,
        settings={"verification": "grounded"},
    )
    asked = [pause["arguments"].get("repository_programs") for pause in flow.pauses if pause["kind"] == "tool"]
    assert asked == [each["repository_programs"] for each in programs[1:]]
    assert [entry["ok"] for entry in flow.journal if entry["source"] == "tool"] == [False, False, True]
    assert (tmp_path / "RAN").exists()
