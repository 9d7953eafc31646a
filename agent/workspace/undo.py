"""Keep what the file tools change, and put it back.

An entry describes the change of one file or folder: `root` and `path`; `was` and `now`, its fingerprints before and
after, None if it did not exist; `made`, the folders created for it. A change of content has `at`, `added`, `removed`:
`added` bytes at the position `at` replaced the bytes `removed`. A move has `to`. `lost` says why a change cannot be
undone.
"""

import base64
import bisect
import hashlib
import io
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import ToolException

from donewhen.agent.workspace.root import FILE_KIND, KINDS, MissingPath, Parts, Root, display_path
from donewhen.graph.tools.changes import HOLDS_CREDENTIAL, Keeper, Result, keeper
from donewhen.state.errors import ConfigError
from donewhen.state.values import Json

MOST_KEPT = 5_000_000
"""The most bytes that one change may replace and keep."""
MOST_READ = 50_000_000
"""The most bytes of a file that are read to compare it; a larger one is known by its size."""
LARGE = "it is too large to keep"
WAITS = "nothing is undone while another change cannot be"
TRASH = ".trash"
"""The folder of deleted files."""
IGNORE = (TRASH, ".gitignore")
IGNORE_ALL = b"*\n"
"""The content of `IGNORE`, made with the folder: git sees nothing in it."""
_BYTES = " bytes"


# Keeping -----------------------------------------------------------------------------------------------------------


def keep_content(root: Root, parts: Parts, after: bytes, before: bytes | None = None) -> None:
    """Keep what a file is about to lose; `before` is its content, if the caller has read it."""
    if (keeping := keeper.get()) is None:
        return
    change: Json = {"was": None, "now": _hash(after)}
    if root.kind(parts) is not None:
        before = _read(root, parts) if before is None else before
        if before == after:
            return
        change = {"lost": LARGE} if before is None else _describe_change(keeping, before, after)
    keeping.keep({**_entry(root, parts), **change})


def _describe_change(keeping: Keeper, before: bytes, after: bytes) -> Json:
    """Return the entry that turns the later content back into the earlier one."""
    at = _common_length(before, after)
    same = _common_length(before[at:][::-1], after[at:][::-1])
    end = len(before) - same
    if end - at > MOST_KEPT:
        return {"lost": LARGE}
    if not keeping.may_hold(before, at, end):
        return {"lost": HOLDS_CREDENTIAL}
    removed = base64.b64encode(zlib.compress(before[at:end])).decode() if end > at else ""
    return {"was": _hash(before), "now": _hash(after), "at": at, "added": len(after) - same - at, "removed": removed}


def keep_append(root: Root, parts: Parts, added: bytes) -> None:
    """Keep that bytes are about to be appended to a file."""
    if (keeping := keeper.get()) is not None:
        if (before := _read(root, parts)) is None:
            keeping.keep({**_entry(root, parts), "lost": LARGE})
        else:
            keep_content(root, parts, before + added, before)


def keep_copy(root: Root, source: Parts, destination: Parts) -> None:
    """Keep that a copy of a file is about to be made."""
    if (keeping := keeper.get()) is not None:
        now = fingerprint(root, source)
        large = {"lost": LARGE} if now and now.endswith(_BYTES) else {}
        keeping.keep({**_entry(root, destination), "was": None, "now": now, **large})


def keep_move(root: Root, source: Parts, destination: Parts) -> None:
    """Keep that a file or folder is about to be moved."""
    if (keeping := keeper.get()) is not None and (was := fingerprint(root, source)):
        made = _missing_folders(root, destination)
        keeping.keep({**_entry(root, source), "to": display_path(destination), "was": was, "now": None, "made": made})


def _entry(root: Root, parts: Parts) -> Json:
    return {"root": root.path, "path": display_path(parts), "made": _missing_folders(root, parts)}


def _missing_folders(root: Root, parts: Parts) -> list[str]:
    """Return the folders that have to be made for a path, outermost first."""
    return [display_path(parts[:n]) for n in range(1, len(parts)) if root.kind(parts[:n]) is None]


def _read(root: Root, parts: Parts) -> bytes | None:
    with root.open(display_path(parts)) as file:
        content = file.read(MOST_READ + 1)
    return content if len(content) <= MOST_READ else None


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fingerprint(root: Root, parts: Parts) -> str | None:
    """Return the hash of a file, the size of a large one, or the kind of anything else; None for nothing."""
    parts = root.parts(display_path(parts)) if parts else parts
    kind = root.kind(parts)
    if kind != FILE_KIND:
        return kind
    try:
        if (content := _read(root, parts)) is not None:
            return _hash(content)
        with root.open(display_path(parts)) as file:
            return f"{os.fstat(file.fileno()).st_size}{_BYTES}"
    except MissingPath:
        return None


def _common_length(one: bytes, other: bytes) -> int:
    """Return the number of equal bytes at the beginning."""
    sizes = range(1, min(len(one), len(other)) + 1)
    return bisect.bisect_left(sizes, True, key=lambda size: one[:size] != other[:size])


# Putting back ------------------------------------------------------------------------------------------------------


@dataclass
class _FolderState:
    """The fingerprints of a folder's files as they would be after some undos."""

    root: Root
    marks: dict[Parts, str | None] = field(default_factory=dict)
    moved: list[tuple[Parts, Parts]] = field(default_factory=list)
    """The paths of a moved file or folder, on disk now and after the undo."""

    def fingerprint_of(self, parts: Parts) -> str | None:
        """Return the fingerprint that a path would have. Raises ToolException if a link leads elsewhere."""
        if parts in self.marks:
            return self.marks[parts]
        place = self._on_disk(parts)
        return None if place is None else fingerprint(self.root, place)

    def _on_disk(self, parts: Parts) -> Parts | None:
        """Return the path on disk of what a path would hold; None if it would hold nothing."""
        for here, there in reversed(self.moved):
            if _is_within(parts, there):
                parts = (*here, *parts[len(there) :])
            elif _is_within(parts, here):
                return None
        return parts

    def undo(self, entry: Mapping[str, Any], path: Parts, to: Parts) -> None:
        """Apply the undo of a change to this state, and remove the folders that it made if they would be empty."""
        if to:
            inside = {(*path, *each[len(to) :]): mark for each, mark in self.marks.items() if _is_within(each, to)}
            others = {
                each: mark for each, mark in self.marks.items() if not (_is_within(each, to) or _is_within(each, path))
            }
            self.marks = {**others, **inside}
            self.moved.append((to, path))
            self.marks[to] = None
        self.marks[path] = entry["was"]
        for made in reversed(entry["made"]):
            folder = tuple(made.split("/"))
            if self._is_empty(folder):
                self.marks[folder] = None

    def _is_empty(self, folder: Parts) -> bool:
        if any(
            len(each) > len(folder) and not _counts_as_nothing(each, mark)
            for each, mark in self.marks.items()
            if _is_within(each, folder)
        ):
            return False
        if self.fingerprint_of(folder) is None or (place := self._on_disk(folder)) is None:
            return True
        with self.root.folder(place) as opened, os.scandir(opened) as entries:
            inside = [(*folder, each.name) for each in entries]
        return all(_counts_as_nothing(each, self.fingerprint_of(each)) for each in inside)


def _counts_as_nothing(parts: Parts, mark: str | None) -> bool:
    """Return whether a folder with only this in it is empty: nothing, or what hides the trash from git."""
    return mark is None or (parts == IGNORE and mark == _hash(IGNORE_ALL))


def _is_within(parts: Parts, folder: Parts) -> bool:
    return parts[: len(folder)] == folder


def check_changes(entries: Sequence[Mapping[str, Any]]) -> list[tuple[Result, str]]:
    """Return the result of undoing all these changes, latest first, and the reason for each."""
    state: dict[str, _FolderState] = {}
    blocked: dict[tuple[str, Parts], Result] = {}
    results: list[tuple[Result, str]] = []
    for entry in entries:
        path, to = (tuple(str(entry.get(key) or "").split("/")) if entry.get(key) else () for key in ("path", "to"))
        paths = [(entry["root"], parts) for parts in (path, to) if parts]
        later = [result for key, result in blocked.items() if any(_overlap(key, each) for each in paths)]
        if entry.get("undone"):
            results.append(("unchanged", f"undone already, {entry['undone']}"))
            continue
        if entry.get("lost"):
            result: tuple[Result, str] = ("lost", str(entry["lost"]))
        elif later:
            result = ("lost" if "lost" in later else "left", "a later change of it stays")
        else:
            try:
                if entry["root"] not in state:
                    state[entry["root"]] = _FolderState(_root_of(entry))
                result = _check_change(state[entry["root"]], entry, path, to)
            except (ToolException, ConfigError, OSError) as error:
                result = ("refused", str(error))
        if result[0] == "restored":
            state[entry["root"]].undo(entry, path, to)
        elif result[0] != "unchanged":
            blocked |= dict.fromkeys(paths, result[0])
        results.append(result)
    if any(result == "refused" for result, _ in results):
        return [("left", WAITS) if result == "restored" else (result, why) for result, why in results]
    return results


def _root_of(entry: Mapping[str, Any]) -> Root:
    """Return the folder in which a change was made. Raises ToolException if its path leads elsewhere by now."""
    root = Root(entry["root"])
    if root.path != entry["root"]:
        raise ToolException(f"{entry['root']} leads to {root.path} now, where nothing was changed")
    return root


def _overlap(one: tuple[str, Parts], other: tuple[str, Parts]) -> bool:
    return one[0] == other[0] and (_is_within(one[1], other[1]) or _is_within(other[1], one[1]))


def _check_change(state: _FolderState, entry: Mapping[str, Any], path: Parts, to: Parts) -> tuple[Result, str]:
    sides = {path: (entry["was"], entry["now"]), **({to: (None, entry["was"])} if to else {})}
    marks = {parts: state.fingerprint_of(parts) for parts in sides}
    if all(marks[parts] == now for parts, (_, now) in sides.items()):
        return "restored", ""
    if all(marks[parts] == was for parts, (was, _) in sides.items()):
        return "unchanged", "it is as it was before"
    parts = next(parts for parts, (_, now) in sides.items() if marks[parts] != now)
    how = "is not there any more" if marks[parts] is None else "changed since"
    if sides[parts][1] is None:
        how = "exists again"
    elif marks[parts] in (*KINDS.values(), None) and marks[parts]:
        how = f"is {marks[parts]} now"
    return "refused", f"{display_path(parts)} {how}"


def undo_change(entry: Mapping[str, Any]) -> tuple[Result, str]:
    """Undo one change, if the file is still as the change left it."""
    try:
        root = _root_of(entry)
        parts = root.file_parts(entry["path"])
        to = root.file_parts(entry["to"]) if entry.get("to") else ()
        result = _check_change(_FolderState(root), entry, parts, to)
        if result[0] == "restored":
            _restore(root, entry, parts, to)
    except (ToolException, ConfigError, OSError) as error:
        return "refused", str(error)
    return result


def _restore(root: Root, entry: Mapping[str, Any], parts: Parts, to: Parts) -> None:
    if to:
        root.move(to, parts)
    elif entry["was"] is None:
        with root.folder(parts[:-1]) as parent:
            os.unlink(parts[-1], dir_fd=parent)
    else:
        content, at = _read(root, parts) or b"", entry["at"]
        removed = zlib.decompress(base64.b64decode(entry["removed"])) if entry["removed"] else b""
        before = content[:at] + removed + content[at + entry["added"] :]
        if _hash(before) != entry["was"]:
            raise ToolException(f"{entry['path']} changed while it was put back")
        root.replace(parts, io.BytesIO(before))
    for made in reversed(entry["made"]):
        *around, name = made.split("/")
        with suppress(OSError, ToolException), root.folder(tuple(around)) as parent:
            if made == TRASH:
                _remove_ignore(root)
            os.rmdir(name, dir_fd=parent)  # refused while something is in it


def _remove_ignore(root: Root) -> None:
    """Remove what hides the trash from git, if nothing else is in the trash."""
    with root.folder((TRASH,)) as trash:
        if os.listdir(trash) == [IGNORE[-1]] and _counts_as_nothing(IGNORE, fingerprint(root, IGNORE)):
            os.unlink(IGNORE[-1], dir_fd=trash)
