"""Looking things up in a folder with list_files, find_text, read_file and calculate, and saying what was found."""

import re
from collections.abc import Sequence
from typing import Any

from donewhen.agent.offline.desk import Desk, Stuck
from donewhen.agent.offline.extract import key_sentences
from donewhen.agent.offline.findings import Finding, figure, listing, objects, pair, proofs, sentence, value
from donewhen.agent.offline.intents import Calculate, Files, Lines, Read, Text
from donewhen.agent.offline.locating import folder, open_file
from donewhen.agent.offline.reading import Reply
from donewhen.agent.offline.words import files_name, pick, quoted

FEW, MANY, ALL = 10, 60, 2000
PAGE, PAGES = 5000, 6
SHOWN_CHARS = 3000
_NOTE = re.compile(
    r"\n?\[(?:(?P<empty>the file is empty)|more follows, [^\]\n]*offset=(?P<offset>\d+)|not UTF-8)[^\]\n]*\]\s*\Z"
)


def find_files(desk: Desk, intent: Files) -> Finding:
    """How many files there are, which, or the largest."""
    chinese, limit = desk.chinese, ALL if intent.want == "largest" else MANY
    path, reply = folder(
        desk,
        intent.path,
        lambda path: desk.call("list_files", path=path, pattern=intent.pattern, limit=limit),
    )
    text, complete = desk.whole(reply) if intent.want == "largest" else (reply.text, True)
    files = [(entry, raw) for entry, raw in objects(text, "path") if "bytes" in entry]
    count = int(value(text, "count") or 0)
    place, named = _place(path, chinese), files_name(intent.pattern, chinese, count)
    cited = [pair(text, "count"), *(raw for _, raw in files)]
    if not count:
        none = f"There are no {files_name(intent.pattern, False)}{place or ' here'}."
        return Finding(sentence(chinese, none, f"{place or '这里'}没有{named}。"), tuple(proofs(reply, cited)))
    if intent.want == "largest":
        return _largest(files, count, named, place, complete, reply, chinese)
    head = sentence(chinese, f"{count} {named}{place}", f"{place}共有 {count} 个{named}")
    if intent.want == "count" and count > FEW:
        return Finding(f"{head}{pick(chinese, '.', '。')}", tuple(proofs(reply, cited[:1])))
    names = listing([str(entry["path"]) for entry, _ in files], MANY, chinese, count)
    return Finding(f"{head}{pick(chinese, ':', '：')}\n{names}", tuple(proofs(reply, cited)))


def _place(path: str, chinese: bool) -> str:
    return "" if path == "." else pick(chinese, f" in {path}", f"{path} 中")


def _largest(
    files: Sequence[tuple[dict[str, Any], str]],
    count: int,
    named: str,
    place: str,
    complete: bool,
    reply: Reply,
    chinese: bool,
) -> Finding:
    entry, raw = max(files, key=lambda file: int(file[0]["bytes"]))
    partly = not complete or count > len(files)
    of = pick(chinese, f" (of the first {len(files)})", f"（仅前 {len(files)} 个）") if partly else ""
    said = sentence(
        chinese,
        f"The largest of the {count} {named}{place} is {entry['path']}, with {entry['bytes']} bytes{of}.",
        f"{place}{count} 个{named}中最大的是 {entry['path']}，{entry['bytes']} 字节{of}。",
    )
    return Finding(said, tuple(proofs(reply, [raw, pair(reply.text, "count")])))


def find_text(desk: Desk, intent: Text) -> Finding:
    """Where a text stands, how often, or in which files."""
    chinese = desk.chinese

    def search(path: str) -> Reply:
        return desk.call("find_text", query=intent.query, path=path, pattern=intent.pattern, limit=MANY)

    single = "." in intent.path.rpartition("/")[2] and intent.path != "."
    path, reply = open_file(desk, intent.path, search) if single else folder(desk, intent.path, search)
    matches = [(entry, raw) for entry, raw in objects(reply.text, "path") if "line" in entry]
    cited = [pair(reply.text, "matches_total"), pair(reply.text, "files"), *(raw for _, raw in matches)]
    total, files = (int(value(reply.text, key) or 0) for key in ("matches_total", "files"))
    place, query = _place(path, chinese), quoted(intent.query)
    if not total:
        none = sentence(
            chinese, f"No line{place or ' here'} contains {query}.", f"{place or '这里'}没有包含 {query} 的行。"
        )
        return Finding(none, tuple(proofs(reply, cited)))
    if intent.want == "files":
        names = list(dict.fromkeys(str(entry["path"]) for entry, _ in matches))
        english = f"{_counted(files, 'file')}{place} {'contains' if files == 1 else 'contain'} {query}"
        head = sentence(chinese, english, f"{place}有 {files} 个文件包含 {query}")
        shown = listing(names, MANY, chinese, files)
    else:
        where = f" of {path}" if single else f" of {_counted(files, 'file')}{place}"
        zh_where = f"{path} 的" if single else f"{place}{files} 个文件的"
        head = sentence(
            chinese, f"{query} is in {_counted(total, 'line')}{where}", f"{query} 出现在{zh_where} {total} 行中"
        )
        lines = [f"{entry['path']}:{entry['line']}: {entry['text']}" for entry, _ in matches]
        shown = listing(lines, FEW if intent.want == "count" else MANY, chinese, total)
    return Finding(f"{head}{pick(chinese, ':', '：')}\n{shown}", tuple(proofs(reply, cited)))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def count_lines(desk: Desk, intent: Lines) -> Finding:
    """How many lines a file has: each of them matches the start of a line."""
    path, reply = open_file(
        desk, intent.path, lambda path: desk.call("find_text", query="^", path=path, pattern="*", regex=True, limit=1)
    )
    total = int(value(reply.text, "matches_total") or 0)
    said = sentence(desk.chinese, f"{path} has {_counted(total, 'line')}.", f"{path} 有 {total} 行。")
    return Finding(said, tuple(proofs(reply, [pair(reply.text, "matches_total")])))


def read(desk: Desk, intent: Read) -> Finding:
    """A file's text, or its key sentences."""
    path, pages, complete = _pages(desk, intent.path)
    text, chinese = "".join(page for page, _ in pages), desk.chinese
    if not text.strip():
        return Finding(
            sentence(chinese, f"{path} is empty.", f"{path} 是空的。"), tuple(proofs(pages[0][1], [pages[0][1].text]))
        )
    if intent.summarise:
        sentences = key_sentences(text)
        partly = "" if complete else pick(chinese, f" (its first {len(text)} characters)", f"（前 {len(text)} 个字符）")
        cited = [
            proof
            for page, reply in pages
            for proof in proofs(reply, [s for s in sentences if s in page])
            if "quote" in proof
        ]
        head = sentence(chinese, f"Key sentences of {path}{partly}:", f"{path} 的关键句{partly}：")
        return Finding(
            f"{head}\n{listing([' '.join(s.split()) for s in sentences], MANY, chinese)}",
            tuple(cited or proofs(pages[0][1], [])),
        )
    shown = (
        text.strip()
        if len(text) <= SHOWN_CHARS and complete
        else text[:SHOWN_CHARS].rpartition("\n")[0] or text[:SHOWN_CHARS]
    )
    cut = (
        ""
        if shown == text.strip()
        else pick(chinese, f"\n… (the first {len(shown)} characters)", f"\n…（前 {len(shown)} 个字符）")
    )
    lines = [line for line in shown.splitlines() if line.strip()]
    return Finding(
        f"{path}{pick(chinese, ':', '：')}\n\n{shown}{cut}", tuple(proofs(pages[0][1], [lines[0], lines[-1]]))
    )


def _pages(desk: Desk, path: str) -> tuple[str, list[tuple[str, Reply]], bool]:
    """The text page by page, each with its observation, and whether that is all of it."""
    path, reply = open_file(desk, path, lambda path: desk.call("read_file", path=path, limit=PAGE))
    pages: list[tuple[str, Reply]] = []
    while True:
        text, whole = desk.whole(reply)
        note = _NOTE.search(text)
        pages.append((text[: note.start()] if note else text, reply))
        offset = note["offset"] if note else None
        if offset is None or len(pages) == PAGES or not whole:
            return path, pages, whole and offset is None
        reply = desk.call("read_file", path=path, offset=int(offset), limit=PAGE)
        if not reply.ok:
            raise Stuck(reply.text.strip())


def calculate(desk: Desk, intent: Calculate) -> Finding:
    """The value of an expression."""
    reply = desk.call("calculate", expression=intent.expression)
    if not reply.ok:
        raise Stuck(reply.text.strip())
    result = reply.text.strip()
    return Finding(f"{intent.expression} = {figure(result, exact=True)}", tuple(proofs(reply, [result])))
