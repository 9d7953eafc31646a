"""The workspace is one folder: no path, link, pipe or race leads out of it (F12)."""

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.tools import ToolException
from pydantic import ValidationError

from donewhen import ConfigError
from donewhen.workspace import workspace_tools
from tests.kit.workspace import Tools, by_name, refusal

CANARY = "canary-4711"
CALLS: dict[str, dict[str, str]] = {"read_file": {}, "append_file": {"content": "x"}, "write_file": {"content": "x"}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path, Tools]]:
    """A workspace full of ways out, the folder outside that nobody may touch, and the tools."""
    base = tmp_path_factory.mktemp("world")
    outside, root = base / "outside", base / "root"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.csv").write_text(f"name,amount\n{CANARY},1\n")
    (outside / "deep" / "secret.json").write_text(json.dumps({"secret": CANARY}))
    (root / "sub" / "inner").mkdir(parents=True)
    (root / "plain.txt").write_text("plain")
    (root / "sub" / "data.csv").write_text("name,amount\nInside,2\n")
    (root / "link").symlink_to(outside)
    (root / "sub" / "up").symlink_to("../../outside")
    (root / "secret.csv").symlink_to(outside / "secret.csv")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "loop").symlink_to("loop")
    (root / "alias").symlink_to("sub")
    os.mkfifo(root / "fifo")
    with contextlib.chdir(root), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        yield root, outside, by_name(root)


def snapshot(folder: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else None, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
    }


def everything(tools: Tools, path: str) -> str:
    """Every tool that takes a path, with this one; returns all that was said."""
    calls: dict[str, dict[str, Any]] = {
        "list_files": {"path": path},
        "find_text": {"path": path, "query": CANARY[:6]},
        "read_file": {"path": path},
        "describe_data": {"path": path},
        "file_exists": {"path": path},
        "file_contains": {"path": path, "text": "4711"},
        "matches_schema": {"path": path, "schema": {"const": 1}},
        "copy_file": {"source": path, "destination": f"{path}/copied"},
        "move_file": {"source": path, "destination": f"{path}/stolen"},
        "edit_file": {"path": path, "old": "canary", "new": "stolen"},
        "append_file": {"path": path, "content": "overwritten"},
        "write_file": {"path": path, "content": "overwritten"},
        "delete_file": {"path": path},
    }
    assert calls.keys() == {name for name, tool in tools.items() if (tool.metadata or {}).get("paths")}
    said = []
    for name, arguments in calls.items():
        try:
            said.append(str(tools[name].invoke(arguments)))
        except (ToolException, ValidationError) as error:
            said.append(str(error))
    if deleted := re.fullmatch(r"Deleted (.*); it is kept as (.*)", said[-1], re.DOTALL):
        tools["move_file"].invoke({"source": deleted[2], "destination": deleted[1]})
    return "\n".join(said)


NAMES = ["..", ".", "", "sub", "inner", "up", "link", "alias", "secret.csv", "deep", "secret.json", "dangling", "loop"]
NAMES += [
    "fifo",
    "socket",
    "data.csv",
    "new.txt",
    "文件",
    "…/…",
    "\0",
    "\\..",
    "..\\",
    "%2e%2e",
    "~",
    "outside",
    "root",
]
PATHS = st.one_of(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=6).map("/".join),
    st.lists(st.sampled_from(NAMES), max_size=5).map(lambda names: "/" + "/".join(names)),
    st.text(max_size=40),
    st.text(alphabet="./\\~\0ab", max_size=12),
)


@settings(max_examples=60, deadline=None)
@given(path=PATHS)
@example(path="link/secret.csv")
@example(path="sub/up/deep/secret.json")
@example(path="alias/up/secret.csv")
@example(path="dangling")
@example(path="../outside/secret.csv")
@example(path="sub/../../outside/secret.csv")
@example(path="a" * 256)
@example(path="文" * 86)
@example(path="a/" * 3000 + "b")
@example(path="\udc80")
@example(path="\ud800x")
def test_no_path_reads_or_writes_outside(world: tuple[Path, Path, Tools], path: str) -> None:
    """F12: whatever the path, the outside is neither seen nor changed."""
    root, outside, tools = world
    before = snapshot(outside)
    said = everything(tools, path)
    assert CANARY not in said
    assert snapshot(outside) == before
    assert sorted(entry.name for entry in root.parent.iterdir()) == ["outside", "root"]


def test_absolute_paths_to_the_outside_are_refused(world: tuple[Path, Path, Tools]) -> None:
    """F12: also with the real absolute path, and inside the root the relative form is suggested."""
    root, outside, tools = world
    before = snapshot(outside)
    assert CANARY not in everything(tools, str(outside / "deep" / "secret.json"))
    assert snapshot(outside) == before
    with pytest.raises(ToolException, match=r"Use 'sub/data\.csv'"):
        tools["read_file"].invoke({"path": str(root / "sub" / "data.csv")})
    with pytest.raises(ToolException, match=r"Use 'sub/data\.csv'"):
        tools["read_file"].invoke({"path": "sub/inner/../data.csv"})


SWAPPER = """
import contextlib, itertools, os, sys
os.chdir(sys.argv[1])
for turn in itertools.count():
    for name in sys.argv[2:]:
        with contextlib.suppress(OSError):
            os.rename("d", f"made by the tools {turn} {name}")
        with contextlib.suppress(OSError):
            os.rename(name, "d")
            os.rename("d", name)
"""


@pytest.mark.parametrize(
    ("names", "paths"),
    [(("real", "link"), ("d/note.txt", "d/new.txt")), (("real.txt", "link.txt", "pipe"), ("d", "d"))],
    ids=["folder", "file"],
)
def test_what_is_swapped_for_a_link_or_a_pipe_meanwhile_leads_nowhere(
    tmp_path: Path, names: tuple[str, ...], paths: tuple[str, str]
) -> None:
    """F12, F8: between check and use there is no moment in which a link is followed or a pipe waited for."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    outside.mkdir()
    (root / "real").mkdir(parents=True)
    (outside / "note.txt").write_text(CANARY)
    (root / "real" / "note.txt").write_text("inside")
    (root / "real.txt").write_text("inside")
    (root / "link").symlink_to(outside)
    (root / "link.txt").symlink_to(outside / "note.txt")
    os.mkfifo(root / "pipe")
    tools = by_name(root)
    seen = set()
    with subprocess.Popen([sys.executable, "-I", "-c", SWAPPER, str(root), *names]) as swapper:
        try:
            for turn in range(60):
                for name, more in CALLS.items():
                    with contextlib.suppress(ToolException):
                        seen.add(str(tools[name].invoke({"path": paths[turn % 2], **more})))
        finally:
            swapper.kill()
    assert not any(CANARY in text for text in seen)
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("note.txt", CANARY)]


def test_links_say_where_to_look_and_special_files_never_block(world: tuple[Path, Path, Tools]) -> None:
    """F8, F12: a pipe without a writer is refused at once; a link inside the root names its target."""
    _, _, tools = world
    for path, said in (
        ("alias/data.csv", "alias is a symbolic link; links are not followed. Use 'sub'"),
        ("link/secret.csv", "It leads out of the workspace"),
        ("fifo", "fifo is a pipe, not a file"),
        ("socket", "socket is a socket, not a file"),
        ("sub", "sub is a folder, not a file"),
        ("sub/data.csv/x", "sub/data.csv is a file, not a folder"),
    ):
        for name, more in CALLS.items():
            assert said in refusal(tools[name], path=path, **more)


def test_the_names_of_a_file_stay_one_file(tmp_path: Path) -> None:
    """F12, Q51: a hard link to a file outside is neither written through nor cut; deleting it makes way for another."""
    (tmp_path / "root").mkdir()
    outside = tmp_path / "outside.txt"
    outside.write_text("theirs")
    os.link(outside, tmp_path / "root" / "note.txt")
    tools = by_name(tmp_path / "root")
    for name, more in CALLS.items():
        if name in ("append_file", "edit_file", "write_file"):
            with pytest.raises(ToolException, match=r"one file with 2 names \(hard links\)"):
                tools[name].invoke({"path": "note.txt", **more})
    assert outside.samefile(tmp_path / "root" / "note.txt")
    assert outside.read_text() == "theirs"
    tools["delete_file"].invoke({"path": "note.txt"})
    tools["write_file"].invoke({"path": "note.txt", "content": "ours"})
    assert (outside.read_text(), (tmp_path / "root" / "note.txt").read_text()) == ("theirs", "ours")


def test_a_read_only_file_keeps_its_text(tmp_path: Path, tools: Tools) -> None:
    """Q51: two of them; whoever made them read-only is asked, also where the process might write all the same."""
    for number, mode in enumerate((0o444, 0o400)):
        (tmp_path / f"{number}.txt").write_text("theirs")
        (tmp_path / f"{number}.txt").chmod(mode)
        for name, more in CALLS.items():
            if name in ("append_file", "edit_file", "write_file"):
                with pytest.raises(ToolException, match=r"txt is read-only"):
                    tools[name].invoke({"path": f"{number}.txt", **more})
        assert (tmp_path / f"{number}.txt").read_text() == "theirs"


def test_a_name_that_is_not_utf8_is_taken_as_it_is_listed(tmp_path: Path, tools: Tools) -> None:
    """Q51: read, changed, moved and put back under the name that list_files shows; two that look alike are refused."""
    inside = os.path.join(os.fsencode(tmp_path), b"d\xe9p\xf4t")
    try:
        os.mkdir(inside)
        os.close(os.open(os.path.join(inside, b"caf\xe9.txt"), os.O_CREAT))
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    (path,) = [each["path"] for each in json.loads(tools["list_files"].invoke({}))["files"]]
    assert path == "d\ufffdp\ufffdt/caf\ufffd.txt"
    tools["append_file"].invoke({"path": path, "content": "one two"})
    tools["edit_file"].invoke({"path": path, "old": "one", "new": "1"})
    assert tools["read_file"].invoke({"path": path}) == "1 two"
    with open(os.path.join(inside, b"caf\xe9.txt")) as file:
        assert file.read() == "1 two"
    tools["move_file"].invoke({"source": path, "destination": "plain.txt"})
    assert tools["read_file"].invoke({"path": "plain.txt"}) == "1 two"
    for name in (b"\xe9.txt", b"\xe8.txt"):
        os.close(os.open(os.path.join(os.fsencode(tmp_path), name), os.O_CREAT))
    with pytest.raises(ToolException, match="Several names are shown as"):
        tools["read_file"].invoke({"path": "\ufffd.txt"})


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.GIT/config", ".git"])
def test_nothing_is_written_into_version_control(tmp_path: Path, tools: Tools, path: str) -> None:
    for name in ("write_file", "append_file"):
        with pytest.raises(ToolException, match="Nothing is written inside"):
            tools[name].invoke({"path": path, "content": "#!/bin/sh"})
    assert list(tmp_path.iterdir()) == []


def test_the_root_has_to_be_a_readable_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "missing", tmp_path / "file", "nul\0byte"):
        with pytest.raises(ConfigError, match="workspace root"):
            workspace_tools(folder)


def test_a_root_that_is_gone_is_a_tool_error(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    tools = by_name(tmp_path / "root")
    (tmp_path / "root").rmdir()
    for name, arguments in (
        ("list_files", {}),
        ("read_file", {"path": "a"}),
        ("write_file", {"path": "a", "content": ""}),
    ):
        with pytest.raises(ToolException):
            tools[name].invoke(arguments)
    assert list(tmp_path.iterdir()) == []
