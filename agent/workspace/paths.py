"""Paths as a model writes them: checked and split into names, before anything touches the disk."""

import os

from langchain_core.tools import ToolException

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4000
TEMPORARY = ".donewhen-"
HISTORY_FOLDERS = frozenset({".git", ".hg", ".svn"})

Parts = tuple[str, ...]


def split_path(path: str, root: str) -> Parts:
    """The names of a relative path, none of them `.` or `..`; `()` is the root. Raises ToolException."""
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise ToolException(f"The path {path[:80]!r} holds a control character; write it without.")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ToolException(f"The path {path[:80]!a} is not valid text.") from None
    if os.path.isabs(path):
        raise ToolException(f"Absolute paths are refused: {path[:200]!r}. {_relative_form(path, root)}")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ToolException(f"`..` is refused in {path[:200]!r}. {_without_dots(parts)}")
    if size > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise ToolException(f"The path {path[:80]!r}… is too long: a name holds at most {MAX_NAME_BYTES} bytes.")
    return parts


def split_file_path(path: str, root: str) -> Parts:
    """As `split_path`, for a path that has to name something inside the root."""
    parts = split_path(path, root)
    if not parts:
        raise ToolException(f"The path {path!r} names no file; give one such as 'notes.md'.")
    return parts


def refuse_history(parts: Parts) -> None:
    """Nothing is written where a version control system keeps its hooks and objects."""
    for part in parts:
        if part.casefold() in HISTORY_FOLDERS:
            raise ToolException(f"Nothing is written inside {part}; choose another path.")


def shown(parts: Parts) -> str:
    """The path as results show it."""
    return "/".join(parts) or "."


def _relative_form(path: str, root: str) -> str:
    clean = os.path.normpath(path)
    if clean == root:
        return "Use '.' for the workspace."
    if clean.startswith(root.rstrip("/") + "/"):
        return f"Use {os.path.relpath(clean, root)!r}."
    return "Paths are relative to the workspace, e.g. 'notes.md'."


def _without_dots(parts: Parts) -> str:
    clean = os.path.normpath("/".join(parts))
    if clean.startswith(".."):
        return "The workspace is all there is; list_files shows it."
    return f"Use {clean!r}."
