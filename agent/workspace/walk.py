"""Going through the files of a folder tree: sorted, bounded, without links and without hidden folders."""

import difflib
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from langchain_core.tools import ToolException

from donewhen.agent.workspace.paths import TEMPORARY, Parts, shown

MAX_ENTRIES = 200_000
MAX_DEPTH = 60
NEAR_ENTRIES = 5_000
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
OpenFolder = Callable[[Parts], AbstractContextManager[int]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file: its names from the root on, and its size in bytes."""

    parts: Parts
    size: int

    @property
    def path(self) -> str:
        """The path as tools take it; a name that is no valid text shows replacement characters."""
        return os.fsencode(shown(self.parts)).decode(errors="replace")


@dataclass
class Walk:
    """Iterate for the entries; afterwards `links` and `stopped` say what was left out."""

    open_folder: OpenFolder
    start: Parts
    single: Entry | None = None
    """Set when `start` is a file: the only entry."""
    links: list[str] = field(default_factory=list)
    """Symbolic links, not followed."""
    stopped: bool = False
    """Whether the tree was too large or too deep to see all of it."""
    _seen: int = 0

    def __iter__(self) -> Iterator[Entry]:
        if self.single is not None:
            yield self.single
            return
        waiting = [self.start]
        while waiting:
            parts = waiting.pop()
            try:
                files, folders = self._read(parts)
            except (OSError, ToolException):
                if parts == self.start:
                    raise
                self.stopped = True
                continue
            yield from files
            waiting.extend(reversed(folders))

    def _read(self, parts: Parts) -> tuple[list[Entry], list[Parts]]:
        files: list[Entry] = []
        folders: list[Parts] = []
        with self.open_folder(parts) as descriptor, os.scandir(descriptor) as scan:
            room = MAX_ENTRIES - self._seen
            found = sorted(itertools.islice(scan, room + 1), key=lambda entry: entry.name)
            self.stopped |= len(found) > room
            self._seen += len(found)
            for entry in found[:room]:
                inner = (*parts, entry.name)
                if entry.is_symlink():
                    self.links.append(shown(inner))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(TEMPORARY):
                    files.extend(_entry(entry, inner))
        folders = [inner for inner in folders if not hidden(inner[-1])]
        if folders and len(parts) >= MAX_DEPTH:
            self.stopped, folders = True, []
        return files, folders


def hidden(name: str) -> bool:
    """Whether a folder is passed over unless a path names it."""
    return name.startswith(".") or name in SKIPPED_FOLDERS


def near_names(walk: Walk, parts: Parts) -> list[str]:
    """Up to three paths whose last name is the same or nearly the same as the last of `parts`."""
    wanted = parts[-1].casefold()
    names: dict[str, list[str]] = {}
    for entry in itertools.islice(walk, NEAR_ENTRIES):
        names.setdefault(entry.parts[-1].casefold(), []).append(entry.path)
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)
    return [path for name in close for path in names[name]][:3]


def _entry(entry: os.DirEntry[str], parts: Parts) -> list[Entry]:
    try:
        return [Entry(parts, entry.stat(follow_symlinks=False).st_size)]
    except FileNotFoundError:
        return []
