"""Reports about the file tools of agents, each tried with a file as reported."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.kit.workspace import by_name, refusal

SCREENSHOT = "Screenshot 2026-04-15 at 1.01.11\N{NARROW NO-BREAK SPACE}AM.txt"
CZECH = "Snímek obrazovky 2026-05-15 v\N{NO-BREAK SPACE}13.05.05.txt"
COMPOSED, DECOMPOSED = "Gr\u00f6\u00dfe.txt", "Gro\u0308\u00dfe.txt"
NAMES: dict[str, tuple[str, str]] = {
    "anomalyco/opencode#22574": (SCREENSHOT, SCREENSHOT.replace("\N{NARROW NO-BREAK SPACE}", " ")),
    "anthropics/claude-code#59381": (CZECH, CZECH.replace("\N{NO-BREAK SPACE}", " ")),
    "earendil-works/pi#8877": (SCREENSHOT, SCREENSHOT),
    "a name from macOS": (DECOMPOSED, COMPOSED),
    "a name of a page in Next.js": ("[id]*.tsx", "[id]*.tsx"),
}


TWO_FILES = "mpfaffenberger/code_puppy#911"


@pytest.mark.parametrize("folder", ["", "Größe des Lagers/"])
@pytest.mark.parametrize("report", NAMES)
def test_a_file_is_found_by_its_name_as_people_read_it(report: str, folder: str, tmp_path: Path) -> None:
    """R17: read, edited, moved; also in a folder with such a name. A name that is there is never taken for another."""
    there, written = NAMES[report]
    path = tmp_path / folder.replace("ö", "o\u0308").rstrip("/") / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("seen 12")
    tools = by_name(tmp_path)
    assert tools["read_file"].invoke({"path": folder + written}) == "seen 12"
    tools["edit_file"].invoke({"path": folder + written, "old": "12", "new": "13"})
    assert path.read_text() == "seen 13"
    tools["move_file"].invoke({"source": folder + written, "destination": "moved.txt"})
    assert (tmp_path / "moved.txt").read_text() == "seen 13"


def test_a_name_that_could_be_two_files_is_told(tmp_path: Path) -> None:
    """R17 (mpfaffenberger/code_puppy#911): nothing is guessed; the exact name of one of them is taken."""
    for space in ("\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}"):
        (tmp_path / f"a{space}b.txt").write_text(space)
    tools = by_name(tmp_path)
    assert "Several names are shown as 'a b.txt'" in refusal(tools["read_file"], path="a b.txt")
    assert tools["read_file"].invoke({"path": "a\N{NO-BREAK SPACE}b.txt"}) == "\N{NO-BREAK SPACE}"


EDITS: dict[str, tuple[bytes, Mapping[str, str], bytes]] = {
    "Gitlawb/zero#376": (b"a\r\nb\r\nc\r\n", {"old": "a\nb", "new": "x\ny"}, b"x\r\ny\r\nc\r\n"),
    "QwenLM/qwen-code#2474": (b"a\nb\nc\n", {"old": "a\r\nb", "new": "x\r\ny"}, b"x\ny\nc\n"),
    "earendil-works/pi#394": (b"\xef\xbb\xbfa\r\nb\r\n", {"old": "a\n", "new": "x\n"}, b"\xef\xbb\xbfx\r\nb\r\n"),
    "github/copilot-cli#3389": (b"a\r\nb\r\n", {"old": "a", "new": "x"}, b"x\r\nb\r\n"),
    "esengine/DeepSeek-Reasonix#2918": (
        "第一行，这是一个文件\r\n第二行，用于测试\r\n".encode("gb18030"),
        {"old": "文件\n第二行", "new": "文件夹\n第二行"},
        "第一行，这是一个文件夹\r\n第二行，用于测试\r\n".encode("gb18030"),
    ),
    "signs of patterns": (b"price\n", {"old": "price", "new": "$& \\1 $$"}, b"$& \\1 $$\n"),
}


@pytest.mark.parametrize("report", EDITS)
def test_an_edit_changes_the_passage_and_nothing_else(report: str, tmp_path: Path) -> None:
    """R17: however the lines end that a model writes, those of the file stay, and so does its encoding."""
    before, change, after = EDITS[report]
    (tmp_path / "a.txt").write_bytes(before)
    (tmp_path / "a.txt").chmod(0o755)
    by_name(tmp_path)["edit_file"].invoke({"path": "a.txt", **change})
    assert (tmp_path / "a.txt").read_bytes() == after
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("there", "old"), [("it’s “fine”", 'it\'s "fine"'), ("2019–2021", "2019-2021"), ("a\N{NO-BREAK SPACE}b", "a b")]
)
def test_a_passage_in_other_signs_is_told_with_its_line(there: str, old: str, tmp_path: Path) -> None:
    """R17: however the lines end that a model writes, those of the file stay, and so do its encoding and mode."""
    (tmp_path / "a.txt").write_text(f"first\n{there}\n", "utf-8")
    edit: Any = by_name(tmp_path)["edit_file"]
    assert "line 2 differs in spacing, case, quotes or dashes" in refusal(edit, path="a.txt", old=old, new="x")
