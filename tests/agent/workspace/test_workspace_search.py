"""Finding files and text: counts that are right, results that are bounded, patterns that cannot hang anything."""

import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, ToolException

from tests.kit.workspace import Tools, by_name, refusal

TREE = {
    "README.md": "# Project\nTODO: write\n",
    "src/main.py": "# todo later\nprint('hello')\n",
    "src/deep/er/utils.py": "x = 1  # TODO twice TODO\n",
    "data/销售.csv": "地区,金额\n北京,10\n",
    "data/old.CSV": "a\n",
    ".github/workflows/ci.yml": "todo: ci\n",
    ".git/config": "todo\n",
    "node_modules/a/index.js": "// todo\n",
    ".env": "KEY=todo\n",
}


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    for name, content in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0todo")
    (tmp_path / "link").symlink_to("src")
    return by_name(tmp_path)


def found(tool: BaseTool, **arguments: Any) -> Any:
    return json.loads(tool.invoke(arguments))


def paths(result: dict[str, Any]) -> list[str]:
    return [file["path"] for file in result["files"]]


def test_listing_counts_every_file_and_skips_hidden_folders(tools: Tools) -> None:
    result = found(tools["list_files"])
    assert paths(result) == [
        ".env", "README.md", "picture.png", "data/old.CSV", "data/销售.csv", "src/main.py", "src/deep/er/utils.py",
    ]  # fmt: skip
    assert (result["path"], result["count"], result["truncated"]) == (".", 7, False)
    assert result["files"][1] == {"path": "README.md", "bytes": 22}
    assert result["links_not_followed"] == ["link"]


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        (".", "*.py", ["src/main.py", "src/deep/er/utils.py"]),
        (".", "**/*.py", ["src/main.py", "src/deep/er/utils.py"]),
        (".", "*/*.py", ["src/main.py"]),
        (".", "src/**", ["src/main.py", "src/deep/er/utils.py"]),
        (".", "src/**/utils.py", ["src/deep/er/utils.py"]),
        ("src", "*/*/*.py", ["src/deep/er/utils.py"]),
        ("src/main.py", "*", ["src/main.py"]),
        (".", "*.{csv,CSV}", ["data/old.CSV", "data/销售.csv"]),
        (".", "销*", ["data/销售.csv"]),
        (".", "/README.md", ["README.md"]),
        (".", "nothing*", []),
        (".github", "*", [".github/workflows/ci.yml"]),
        ("node_modules/", "**/*.js", ["node_modules/a/index.js"]),
    ],
)
def test_patterns(tools: Tools, path: str, pattern: str, expected: list[str]) -> None:
    result = found(tools["list_files"], path=path, pattern=pattern)
    assert (paths(result), result["count"]) == (expected, len(expected))


def test_a_bounded_list_still_counts_all(tools: Tools, tmp_path: Path) -> None:
    """X12: what is left out is said."""
    (tmp_path / "many").mkdir()
    for number in range(700):
        (tmp_path / "many" / f"{number:03}.txt").touch()
    result = found(tools["list_files"], path="many")
    assert (len(result["files"]), result["count"], result["truncated"]) == (500, 700, True)
    assert found(tools["list_files"], path="many", limit=5)["files"][4]["path"] == "many/004.txt"


def test_finding_text(tools: Tools) -> None:
    result = found(tools["find_text"], query="todo")
    assert (result["query"], result["files"], result["matches_total"], result["truncated"]) == ("todo", 4, 4, False)
    assert {"path": "src/deep/er/utils.py", "line": 1, "text": "x = 1  # TODO twice TODO"} in result["matches"]
    assert found(tools["find_text"], query="TODO", ignore_case=False)["matches_total"] == 2
    assert found(tools["find_text"], query=r"^#\s*todo", regex=True)["matches"][0]["path"] == "src/main.py"
    assert found(tools["find_text"], query=r"^#\s*TODO", regex=True, ignore_case=False)["matches_total"] == 0
    assert found(tools["find_text"], query="北京", pattern="*.csv")["matches"][0]["line"] == 2
    assert found(tools["find_text"], query="todo", path="src", pattern="*.py", limit=1)["truncated"] is True
    assert found(tools["find_text"], query="print", path="src/main.py")["files"] == 1


def test_what_cannot_be_searched_is_named(tools: Tools, tmp_path: Path) -> None:
    """X12: a PDF may have the words; that none were found in the text files is not all that there is."""
    for number in range(30):
        (tmp_path / f"{number:02}.pdf").write_bytes(b"%PDF-1.7\0\0\0")
    result = found(tools["find_text"], query="reminder", pattern="*.{pdf,md}")
    assert (result["matches_total"], result["not_searched_total"], len(result["not_searched"])) == (0, 30, 20)
    assert "not text: only a tool for such files" in result["why"]
    assert found(tools["find_text"], query="reminder", pattern="07.*")["not_searched"] == ["07.pdf"]
    assert "not_searched" not in found(tools["find_text"], query="reminder", pattern="*.md")


def test_wrong_questions_are_explained(tools: Tools) -> None:
    for name, arguments, said in (
        ("find_text", {"query": "(", "regex": True}, "'(' is not a regular expression: missing )"),
        ("find_text", {"query": "a", "path": "srk"}, "Not found: 'srk'"),
        ("list_files", {"path": "READNE.md"}, "Did you mean README.md?"),
        ("list_files", {"pattern": ""}, "A pattern has 1 to 300 characters"),
        ("list_files", {"pattern": "{a,b}" * 10}, "more than 64 alternatives"),
        ("list_files", {"path": "link"}, "link is a symbolic link"),
    ):
        assert said in refusal(tools[name], **arguments)


@pytest.mark.timeout(60)
def test_a_pattern_that_never_ends_is_stopped(tools: Tools, tmp_path: Path) -> None:
    """F8: catastrophic patterns cost seconds and never hold up the rest of the process."""
    (tmp_path / "a.txt").write_text("a" * 5000 + "!\n")
    began = time.monotonic()
    with pytest.raises(ToolException, match="takes too long; write a simpler one"):
        tools["find_text"].invoke({"query": "(a|aa)+$", "regex": True})
    assert time.monotonic() - began < 50
    with pytest.raises(ToolException, match="repeats too much"):
        tools["find_text"].invoke({"query": "((((a{99}){99}){99}){99}){99}", "regex": True})
    fields = r"(\d+)-(\d+)-(\d+) (\d+):(\d+):(\d+) (\w+)"
    assert found(tools["find_text"], query=fields, regex=True)["matches_total"] == 0


def test_an_endless_line_is_searched_in_pieces(tools: Tools, tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("w") as file:
        for _ in range(200):
            file.write("x" * 99_999 + " ")
        file.write("needle\nsecond needle\n")
    tracemalloc.start()
    try:
        matches = found(tools["find_text"], query="needle", path="huge.txt")["matches"]
        assert tracemalloc.get_traced_memory()[1] < 15_000_000
    finally:
        tracemalloc.stop()
    assert [match["line"] for match in matches] == [1, 2]
    assert all(len(match["text"]) <= 300 and "needle" in match["text"] for match in matches)


def test_a_deep_tree_ends(tools: Tools, tmp_path: Path) -> None:
    deep = tmp_path.joinpath("deep", *["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "bottom.txt").touch()
    (tmp_path / "deep" / "top.txt").touch()
    result = found(tools["list_files"], path="deep")
    assert (paths(result), result["truncated"]) == (["deep/top.txt"], True)
    assert "smaller folder" in result["note"]


def test_names_that_are_no_text_are_shown_not_crashed_on(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    open(bytes(tmp_path / "bad") + b"/\xff.txt", "w").close()
    result = tools["list_files"].invoke({"path": "bad"})
    assert paths(json.loads(result)) == ["bad/\ufffd.txt"]
    assert result.encode()


def test_a_line_keeps_its_indentation(tmp_path: Path, tools: Tools) -> None:
    """H8: who edits a line that was found needs its blanks."""
    (tmp_path / "a.py").write_text("def f():\n    return 1  \n")
    assert found(tools["find_text"], query="return")["matches"][0]["text"] == "    return 1"
