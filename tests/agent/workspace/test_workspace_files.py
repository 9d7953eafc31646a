"""Reading, writing, appending and editing: bounded, whole or not at all, in any script."""

import subprocess
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, ToolException
from pydantic import ValidationError

from donewhen.agent.workspace.files import replaced_text
from donewhen.agent.workspace.root import Root
from tests.kit.workspace import Tools, by_name
from tests.kit.workspace import refusal as said


def artifact(tool: BaseTool, **arguments: Any) -> tuple[str, dict[str, str]]:
    message = tool.invoke({"type": "tool_call", "id": "1", "name": tool.name, "args": arguments})
    assert isinstance(message, ToolMessage)
    return str(message.content), message.artifact["files"]


@pytest.mark.parametrize(
    ("before", "added", "after"),
    [
        (b"a\r\nb\r\n", "c\nd\n", b"a\r\nb\r\nc\r\nd\r\n"),
        (b"a\r\n", "b\r\n", b"a\r\nb\r\n"),
        (b"a\n", "b\n", b"a\nb\n"),
        ("a\r\n".encode("utf-16"), "b\n", "a\r\nb\r\n".encode("utf-16")),
    ],
)
def test_what_is_appended_has_the_line_breaks_of_the_file(
    tools: Tools, tmp_path: Path, before: bytes, added: str, after: bytes
) -> None:
    """N32"""
    (tmp_path / "a.txt").write_bytes(before)
    tools["append_file"].invoke({"path": "a.txt", "content": added})
    assert (tmp_path / "a.txt").read_bytes() == after


def test_what_is_written_is_read_back(tools: Tools, tmp_path: Path) -> None:
    content = "第一行：你好\nzweite Zeile ä\n🎉"
    assert (
        tools["write_file"].invoke({"path": "报告/总结.md", "content": content})
        == "Wrote 23 characters to 报告/总结.md"
    )
    assert tools["read_file"].invoke({"path": "./报告//总结.md"}) == content
    assert (tmp_path / "报告" / "总结.md").read_text(encoding="utf-8") == content
    assert [path.name for path in (tmp_path / "报告").iterdir()] == ["总结.md"]


def test_clients_get_the_new_content(tools: Tools) -> None:
    """CLIENTS: the artifact of a write is `{"files": {path: content}}`."""
    assert artifact(tools["write_file"], path="a.txt", content="one\n") == (
        "Wrote 4 characters to a.txt",
        {"a.txt": "one\n"},
    )
    assert artifact(tools["append_file"], path="a.txt", content="two\n")[1] == {"a.txt": "one\ntwo\n"}
    told, files = artifact(tools["edit_file"], path="a.txt", old="two", new="three")
    assert (told, files) == ("Replaced 1 passage at line 2 of a.txt", {"a.txt": "one\nthree\n"})


def test_a_long_file_is_cut_for_clients_and_says_so(tools: Tools, tmp_path: Path) -> None:
    content = "中" * 150_000
    for name in ("write_file", "append_file"):
        _, files = artifact(tools[name], path="long.txt", content=content)
        assert len(files["long.txt"]) <= 100_000
        assert files["long.txt"].endswith("[cut here; the file on disk is longer]")
    assert (tmp_path / "long.txt").read_text(encoding="utf-8") == content * 2


def test_reading_on_from_an_offset_gives_the_whole(tools: Tools, tmp_path: Path) -> None:
    """X12: what is left out is said, and readable from there."""
    content = "".join(f"行 {number} 🎉\n" for number in range(500))
    (tmp_path / "long.txt").write_text(content, encoding="utf-8")
    first = tools["read_file"].invoke({"path": "long.txt", "limit": 1000})
    assert first.startswith("行 0 🎉\n")
    assert first.endswith("; shown are 0 to 1000, read on with offset=1000]")
    assert tools["read_file"].invoke({"path": "long.txt", "offset": 1000}) == content[1000:]
    assert tools["read_file"].invoke({"path": "long.txt", "offset": len(content)}) == "[end of the file]"
    assert f"has {len(content)} characters" in said(tools["read_file"], path="long.txt", offset=len(content) + 1)


def test_a_huge_file_is_not_read_into_memory(tools: Tools, tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        for _ in range(400):
            file.write(b"x" * 100_000)
    tracemalloc.start()
    try:
        assert tools["read_file"].invoke({"path": "huge.txt", "offset": 39_999_990}) == "x" * 10
        assert tools["read_file"].invoke({"path": "huge.txt", "limit": 10}).startswith("x" * 10 + "\n[more follows")
        assert "characters" not in said(tools["file_contains"], path="huge.txt", text="y")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()
    assert "too many to edit" in said(tools["edit_file"], path="huge.txt", old="x", new="y")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfname\n", "name\n"),
        ("名字\n".encode("utf-16"), "名字\n"),
        (
            "数据：一二三，共计四五六。\n".encode("gb18030"),
            "数据：一二三，共计四五六。\n[not UTF-8, read as gb18030, which is a guess]",
        ),
        ("Müller, Café, señor".encode("cp1252"), "Müller, Café, señor\n[not UTF-8, read as cp1252, which is a guess]"),
        (b"", "[the file is empty]"),
        (b"a\r\nb", "a\r\nb"),
    ],
    ids=["mark", "utf-16", "chinese", "western", "empty", "windows"],
)
def test_encodings(tools: Tools, tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    assert tools["read_file"].invoke({"path": "a.txt"}) == text


@pytest.mark.parametrize(
    "data",
    [b"\x89PNG\r\n\x1a\n\0\0\0", bytes(range(1, 256)) * 3, b"%PDF-1.3\n1 0 obj\n<< /Filter [ /ASCII85Decode ] >>\n"],
    ids=["nul", "control", "a PDF in ASCII"],
)
def test_binary_files_are_named_as_such(tools: Tools, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(data)
    for name, more in (
        ("read_file", {}),
        ("edit_file", {"old": "a", "new": "b"}),
        ("append_file", {"content": "x"}),
        ("find_text", {"query": "a"}),
        ("describe_data", {}),
        ("file_contains", {"text": "PNG"}),
    ):
        refused = said(tools[name], path="a.bin", **more)
        assert "a.bin is a binary file" in refused
        assert "only a tool for such files can read it" in refused
    assert (tmp_path / "a.bin").read_bytes() == data


def test_a_missing_file_names_the_near_ones(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "sales.csv").write_text("a\n")
    (tmp_path / "销售.csv").write_text("a\n")
    assert said(tools["read_file"], path="sale.csv") == "Not found: 'sale.csv'. Did you mean data/sales.csv?"
    assert "Did you mean data/sales.csv" in said(tools["edit_file"], path="wrong/SALES.csv", old="a", new="b")
    assert said(tools["file_exists"], path="销售表.csv") == "Not found: '销售表.csv'. Did you mean 销售.csv?"
    assert "list_files shows" in said(tools["read_file"], path="zzz")


def test_editing_needs_exactly_one_match(tools: Tools, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo  words\none\n")
    edit = tools["edit_file"]
    assert "more than once in a.txt (lines 1, 3)" in said(edit, path="a.txt", old="one", new="1")
    assert "line 2 differs in spacing, case, quotes or dashes" in said(edit, path="a.txt", old="Two words", new="2")
    assert "does not occur in a.txt" in said(edit, path="a.txt", old="three", new="3")
    assert "same text" in said(edit, path="a.txt", old="two", new="two")
    assert "more than once" in said(edit, path="a.txt", old="o", new="0")
    (tmp_path / "b.txt").write_text("aaa")
    assert "more than once" in said(edit, path="b.txt", old="aa", new="b")
    assert (tmp_path / "a.txt").read_text() == "one\ntwo  words\none\n"


def test_editing_keeps_encoding_line_ends_and_mode(tools: Tools, tmp_path: Path) -> None:
    for data, encoding in (
        ("数据一\r\n数据二\r\n", "gb18030"),
        ("a\r\n数据二\r\n", "utf-8-sig"),
        ("a\r\n数据二", "utf-16"),
    ):
        path = tmp_path / "a.txt"
        path.write_bytes(data.encode(encoding))
        path.chmod(0o640)
        first = data.split("\r\n")[0]
        tools["edit_file"].invoke({"path": "a.txt", "old": f"{first}\n数据", "new": "新\n行"})
        assert path.read_bytes() == data.replace(f"{first}\r\n数据", "新\r\n行").encode(encoding)
        tools["append_file"].invoke({"path": "a.txt", "content": "完"})
        assert path.read_bytes().decode(encoding).endswith("完")
        assert path.stat().st_mode & 0o777 == 0o640
    (tmp_path / "b.txt").write_bytes("Müller".encode("cp1252"))
    assert "cannot be written as cp1252" in said(tools["edit_file"], path="b.txt", old="M", new="数")


def test_text_that_is_no_text_is_refused(tools: Tools, tmp_path: Path) -> None:
    for name in ("write_file", "append_file"):
        with pytest.raises(ValidationError, match="unicode"):
            tools[name].invoke({"path": "a.txt", "content": "\ud800"})
    assert list(tmp_path.iterdir()) == []


def test_appending_at_once_loses_nothing(tools: Tools, tmp_path: Path) -> None:
    """Parallel steps may write the same file: every append and edit is in it afterwards."""
    (tmp_path / "a.txt").write_text("".join(f"<{number}>" for number in range(8)))

    def work(number: int) -> None:
        tools["edit_file"].invoke({"path": "a.txt", "old": f"<{number}>", "new": f"({number})"})
        tools["append_file"].invoke({"path": "b/c.txt", "content": f"{number}\n"})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "a.txt").read_text() == "".join(f"({number})" for number in range(8))
    assert sorted((tmp_path / "b" / "c.txt").read_text().split()) == [str(number) for number in range(8)]


def test_a_name_that_cannot_be_made_is_a_tool_error(tools: Tools, tmp_path: Path) -> None:
    deep = "/".join(["a" * 200] * 18)
    for path in ("a" * 300, "文" * 100, deep + "/" + "b" * 200 + "/" + "c" * 255):
        assert "too long" in said(tools["write_file"], path=path, content="x")
    assert "names no file" in said(tools["write_file"], path="./", content="x")
    assert "control character" in said(tools["write_file"], path="a\nb", content="x")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=20, deadline=None)
@given(
    content=st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60).filter(
        lambda text: "\0" not in text
    ),
    cut=st.integers(0, 60),
)
def test_any_text_survives(tmp_path_factory: pytest.TempPathFactory, content: str, cut: int) -> None:
    """S03: written in two pieces and read in two pieces, the text is the same, whatever is in it."""
    tools = by_name(tmp_path_factory.getbasetemp())
    text = "start " + content
    tools["write_file"].invoke({"path": "any.txt", "content": text[:cut]})
    tools["append_file"].invoke({"path": "any.txt", "content": text[cut:]})
    assert (tmp_path_factory.getbasetemp() / "any.txt").read_bytes().decode() == text
    assert tools["read_file"].invoke({"path": "any.txt"}) == text


def test_files_and_folders_move_and_nothing_is_replaced(tools: Tools, tmp_path: Path) -> None:
    """D2: also into folders that are not there yet."""
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "c.txt").write_text("c")
    move = tools["move_file"]
    assert move.invoke({"source": "a.txt", "destination": "new/deep/a.md"}) == "Moved a.txt to new/deep/a.md"
    assert (tmp_path / "new" / "deep" / "a.md").read_text() == "a"
    assert not (tmp_path / "a.txt").exists()
    move.invoke({"source": "old", "destination": "new/old"})
    assert (tmp_path / "new" / "old" / "c.txt").read_text() == "c"
    assert "b.txt exists already" in said(move, source="new/deep/a.md", destination="b.txt")
    assert "name the file too: new/b.txt" in said(move, source="b.txt", destination="new")
    assert "inside of it" in said(move, source="new", destination="new/x/new")
    assert "inside of it" in said(move, source="b.txt", destination="b.txt")
    assert "Not found: 'gone.txt'" in said(move, source="gone.txt", destination="x")
    assert (tmp_path / "b.txt").read_text() == "b"


def test_a_copy_is_the_same_bytes_under_a_free_name(tools: Tools, tmp_path: Path) -> None:
    """D2: “keep the old one as …” needs no model that writes it anew; nothing is replaced, nothing is left behind."""
    data = bytes(range(256)) * 5000
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "b.txt").write_text("b")
    copy = tools["copy_file"]
    assert (
        copy.invoke({"source": "a.bin", "destination": "new/deep/a (old).bin"})
        == "Copied a.bin to new/deep/a (old).bin"
    )
    assert (tmp_path / "new" / "deep" / "a (old).bin").read_bytes() == (tmp_path / "a.bin").read_bytes() == data
    assert "b.txt exists already, as a file; nothing was changed" in said(copy, source="a.bin", destination="b.txt")
    assert "name the file too: new/a.bin" in said(copy, source="a.bin", destination="new")
    assert "exists already" in said(copy, source="b.txt", destination="b.txt")
    assert "Not found: 'gone.txt'" in said(copy, source="gone.txt", destination="x/y")
    assert "is a folder, not a file" in said(copy, source="new", destination="x/y")
    assert (tmp_path / "b.txt").read_text() == "b"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a (old).bin", "a.bin", "b.txt", "deep", "new"]


def test_what_is_deleted_lies_in_the_trash(tools: Tools, tmp_path: Path) -> None:
    """D2: nothing there is written over, listings leave it out, and a move brings it back."""
    delete = tools["delete_file"]
    for text, kept in (("one", "a.txt"), ("two", "a (2).txt"), ("three", "a (3).txt")):
        (tmp_path / "sub").mkdir(exist_ok=True)
        (tmp_path / "sub" / "a.txt").write_text(text)
        assert delete.invoke({"path": "sub/a.txt"}) == f"Deleted sub/a.txt; it is kept as .trash/sub/{kept}"
        assert (tmp_path / ".trash" / "sub" / kept).read_text() == text
    assert delete.invoke({"path": "sub"}) == "Deleted sub; it is kept as .trash/sub (2)"
    assert '"count": 0' in tools["list_files"].invoke({})
    assert '"matches_total": 0' in tools["find_text"].invoke({"query": "one"})
    assert "deleted already" in said(delete, path=".trash/sub/a.txt")
    assert "deleted already" in said(delete, path=".trash")
    tools["move_file"].invoke({"source": ".trash/sub/a.txt", "destination": "back.txt"})
    assert (tmp_path / "back.txt").read_text() == "one"


def test_git_does_not_see_the_trash(tools: Tools, tmp_path: Path) -> None:
    """D2: `git add .` takes nothing that was deleted; a folder of that name that people made is left as it is."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in ("b.txt", "c.txt"):
        (tmp_path / name).write_text(name)
        tools["delete_file"].invoke({"path": name})
        subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    tracked = subprocess.run(["git", "ls-files"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert ".trash" not in tracked
    (tmp_path / ".trash" / ".gitignore").unlink()
    (tmp_path / "d.txt").touch()
    tools["delete_file"].invoke({"path": "d.txt"})
    assert not (tmp_path / ".trash" / ".gitignore").exists()


def test_moving_and_deleting_stay_inside(tools: Tools, tmp_path: Path) -> None:
    """F12: no links, no `..`, no history of version control."""
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "secret").write_text("s")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("c")
    (tmp_path / "link").symlink_to(outside)
    for path in ("link/secret", "../x", str(outside / "secret"), ".git/config", ".git", ".", "link"):
        said(tools["delete_file"], path=path)
        said(tools["move_file"], source=path, destination="b.txt")
        said(tools["move_file"], source="a.txt", destination=path)
        if path != ".git/config":  # which may be read
            said(tools["copy_file"], source=path, destination="b.txt")
        said(tools["copy_file"], source="a.txt", destination=path)
    assert (outside / "secret").read_text() == "s"
    assert (tmp_path / ".git" / "config").read_text() == "c"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "a"
    (tmp_path / ".trash").symlink_to(outside)
    said(tools["delete_file"], path="a.txt")
    assert [path.name for path in outside.iterdir()] == ["secret"]


OLD_FILES = {
    "German, Windows": ("cp1252", "Kunde;Ort\nMüller;Köln\nWeiß;Düsseldorf\n", "Jörg;Fürth\n"),
    "French, Windows": ("cp1252", "Prénom;Ville\nHélène;Orléans\nZoé;Nîmes\n", "Éric;Alès\n"),
    "Polish, Windows": ("cp1250", "Imię;Miasto\nŁukasz;Łódź\nŚwiętosława;Gdańsk\n", "Żaneta;Kraków\n"),
    "Russian, Windows": ("cp1251", "Имя;Город\nИван;Москва\nОльга;Казань\n", "Пётр;Омск\n"),
    "Russian, Unix": ("koi8-r", "Имя;Город\nИван;Москва\nОльга;Казань\n", "Пётр;Омск\n"),
    "Greek, Windows": ("cp1253", "Όνομα;Πόλη\nΓιώργος;Αθήνα\nΜαρία;Θεσσαλονίκη\n", "Νίκος;Πάτρα\n"),
    "German, DOS": ("cp850", "Name;Straße\nMüller;Hauptstraße\nJörg;Königsallee\nGünther;Bäckerweg\n", "Öhm;Weg\n"),
    "Japanese": ("cp932", "氏名,住所\n山田太郎,東京都千代田区\n佐藤花子,大阪府\n", "鈴木,京都府\n"),
    "Korean": ("cp949", "이름,도시\n김철수,서울\n이영희,부산\n", "박민수,대구\n"),
    "Chinese, Taiwan": ("big5", "姓名,地址\n王小明,臺北市中正區\n陳美麗,高雄市\n", "林,臺南\n"),
    "Chinese": ("gb18030", "姓名,地址\n王小明,北京市朝阳区\n李美丽,上海市\n", "张,天津\n"),
    "Excel's Unicode text": ("utf-16", "Name\tOrt\nMüller\tKöln\n", "Jörg\tFürth\n"),
    "UTF-16 without a mark": ("utf-16-le", "Name\tOrt\nMüller\tKöln\n", "Jörg\tFürth\n"),
}


@pytest.mark.parametrize("kind", OLD_FILES)
def test_files_of_older_programs_stay_in_one_encoding(tmp_path: Path, tools: Tools, kind: str) -> None:
    """Q50: read as what they are, which is said to be a guess; what is added, twice, is in the file's own encoding,
    or refused, and never in another one.
    """
    encoding, before, more = OLD_FILES[kind]
    path = tmp_path / "old.csv"
    path.write_bytes(before.encode(encoding))
    shown = tools["read_file"].invoke({"path": "old.csv"})
    assert shown.startswith(before)
    assert ("which is a guess" in shown) == (not encoding.startswith("utf"))
    for text in (more, "ok\n"):
        with suppress(ToolException):
            tools["append_file"].invoke({"path": "old.csv", "content": text})
            before += text
        assert path.read_bytes().decode(encoding) == before
    assert before.endswith("ok\n")


def test_what_only_a_guess_could_write_is_not_added(tmp_path: Path, tools: Tools) -> None:
    """Q50: one letter says too little of the encoding; ASCII can be added, and a change of another line is exact."""
    path = tmp_path / "old.txt"
    path.write_bytes(b"caf\xe9\nplain\n")
    for tool, more in (("append_file", {"content": "Łódź\n"}), ("edit_file", {"old": "plain", "new": "Łódź"})):
        with pytest.raises(ToolException, match=r"cannot be written as|may be .* which write this text differently"):
            tools[tool].invoke({"path": "old.txt", **more})
    tools["edit_file"].invoke({"path": "old.txt", "old": "plain", "new": "plainer"})
    assert path.read_bytes() == b"caf\xe9\nplainer\n"


def test_an_odd_byte_far_down_counts(tmp_path: Path, tools: Tools) -> None:
    """Q50: the whole file decides; what is no UTF-8 after megabytes is neither replaced nor lost by an edit."""
    path = tmp_path / "log.txt"
    path.write_bytes(b"line of text\n" * 100_000 + "Größe\n".encode("cp1252"))
    assert "Größe" in tools["read_file"].invoke({"path": "log.txt", "offset": 1_299_990})
    tools["append_file"].invoke({"path": "log.txt", "content": "Maß\n"})
    assert path.read_bytes().endswith("Größe\nMaß\n".encode("cp1252"))


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    """Q10: so people are not told that what is there could not be read."""
    assert replaced_text(Root(tmp_path), {"path": "new/a.md"}) == {}
