"""List files by pattern and find text in them. Both walk the tree once and report what they left out."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from langchain_core.tools import ToolException
from pydantic import Field

from donewhen.agent.workspace.data.encoding import OTHER_TOOL
from donewhen.agent.workspace.files import open_text
from donewhen.agent.workspace.root import Root, display_path
from donewhen.agent.workspace.walk import FileEntry, Walk, open_walk, path_matcher
from donewhen.state.criteria import PATTERN_CHARS, pattern_problem

SECONDS = 20.0
LINE_CHARS = 10_000
SHOWN_CHARS = 300
PATTERN_SECONDS = 2.0
PATTERN_GROUPS = 50
MAX_LINKS = 20
MAX_UNREAD = 20
UNREAD = f"not text: {OTHER_TOOL}"

Where = Annotated[str, Field(description="folder (or one file) to look in, relative to the workspace")]
PathPattern = Annotated[str, Field(description="which files: '*.csv' by name at any depth, 'data/**/*.csv' by path")]
Line = tuple[int, str]
Search = Callable[[str], bool]


def list_files(
    root: Root,
    path: Where = ".",
    pattern: PathPattern = "**/*",
    limit: Annotated[int, Field(ge=1, le=5000, description="files listed at most; count counts all")] = 500,
) -> str:
    """List the files below a folder with their sizes, at any depth; `count` is how many match in all.

    Hidden folders (not files), node_modules, __pycache__ are left out unless `path` names them. Links are not followed.
    """
    walk = open_walk(root, path)
    files: list[dict[str, Any]] = []
    count = 0
    for entry in _matching_files(walk, pattern):
        count += 1
        if len(files) < limit:
            files.append({"path": entry.path, "bytes": entry.size})
    result = {"path": display_path(walk.start), "count": count, "files": files}
    return _format_result(result, walk, truncated=count > len(files))


def find_text(
    root: Root,
    query: Annotated[str, Field(min_length=1, max_length=PATTERN_CHARS, description="the text to look for")],
    path: Where = ".",
    pattern: PathPattern = "*",
    regex: Annotated[bool, Field(description="whether query is a regular expression")] = False,
    ignore_case: Annotated[bool, Field(description="whether capitals and small letters are the same")] = True,
    limit: Annotated[int, Field(ge=1, le=1000, description="matches listed at most; matches_total counts all")] = 200,
) -> str:
    """Find the lines that contain a text. `matches_total` counts lines, `files` the files that have one.

    Binary files, such as PDF, are not searched but named, as far as they match `pattern`; what list_files leaves out is
    left out.
    """
    walk = open_walk(root, path)
    matches: list[dict[str, Any]] = []
    paths: set[str] = set()
    unread: list[str] = []
    total = 0
    until = time.monotonic() + SECONDS
    search = _line_test(query, regex, ignore_case)
    for entry in _matching_files(walk, pattern):
        for number, line in _read_lines(root, entry, walk, unread):
            if time.monotonic() > until:
                break
            if search(line):
                total += 1
                paths.add(entry.path)
                if len(matches) < limit:
                    matches.append({"path": entry.path, "line": number, "text": _cut(line, query)})
        if time.monotonic() > until:
            walk.stopped = True
            break
    result = {"query": query, "files": len(paths), "matches_total": total, "matches": matches}
    if unread:
        result |= {"not_searched_total": len(unread), "not_searched": unread[:MAX_UNREAD], "why": UNREAD}
    return _format_result(result, walk, truncated=total > len(matches))


def _matching_files(walk: Walk, pattern: str) -> Iterator[FileEntry]:
    wanted = path_matcher(pattern)
    depth = len(walk.start) if walk.single is None else len(walk.start) - 1
    return (entry for entry in walk if wanted(entry.parts[depth:]))


def _line_test(query: str, is_regex: bool, ignore_case: bool) -> Search:
    """Return a test of whether a line has the text or pattern; it raises ToolException if a line takes too long."""
    if not is_regex:
        wanted = query.casefold() if ignore_case else query
        return lambda line: wanted in (line.casefold() if ignore_case else line)
    if problem := pattern_problem(query, groups=PATTERN_GROUPS):
        raise ToolException(problem)
    import regex as regular  # imported here: it is slow, and most runs search for no pattern

    compiled = regular.compile(query, regular.IGNORECASE if ignore_case else 0)

    def fits(line: str) -> bool:
        try:
            return compiled.search(line, timeout=PATTERN_SECONDS) is not None
        except (TimeoutError, MemoryError):
            raise ToolException(f"The pattern {query[:80]!r} takes too long; write a simpler one.") from None

    return fits


def _read_lines(root: Root, entry: FileEntry, walk: Walk, unread: list[str]) -> Iterator[Line]:
    """Yield numbered lines; a very long line comes in pieces with one number.

    Binary and missing files have none; what cannot be read as text is added to `unread`.
    """
    try:
        with root.open(display_path(entry.parts)) as file, open_text(file, entry.path, newline=None) as text:
            number = 1
            while piece := text.readline(LINE_CHARS):
                yield number, piece.rstrip("\n")
                number += piece.endswith("\n")
    except (ToolException, OSError) as error:
        if walk.single is not None:
            raise
        if isinstance(error, ToolException):
            unread.append(entry.path)


def _cut(line: str, query: str) -> str:
    start = max(0, line.casefold().find(query.casefold()) - SHOWN_CHARS // 2) if len(line) > SHOWN_CHARS else 0
    return line[start : start + SHOWN_CHARS].rstrip()


def _format_result(result: dict[str, Any], walk: Walk, *, truncated: bool) -> str:
    result["truncated"] = truncated or walk.stopped
    if walk.stopped:
        result["note"] = "not everything was seen; look in a smaller folder"
    if walk.links:
        result["links_not_followed"] = walk.links[:MAX_LINKS]
    return json.dumps(result, ensure_ascii=False)
