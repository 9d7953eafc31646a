"""Walk the files of a folder tree, sorted and bounded, without links and hidden folders; match names with patterns.

`*.csv` means a name anywhere below, `data/**/*.csv` a path, `{a,b}` alternatives.
"""

import difflib
import fnmatch
import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field

from langchain_core.tools import ToolException

from donewhen.agent.workspace.root import TEMPORARY, MissingPath, Parts, Root, display_path

MAX_ENTRIES = 200_000
MAX_DEPTH = 60
NEAR_ENTRIES = 5_000
SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__"})
OpenFolder = Callable[[Parts], AbstractContextManager[int]]

MAX_PATTERN = 300
MAX_ALTERNATIVES = 64
BRACES = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file: the names of its path from the root, and its size in bytes."""

    parts: Parts
    size: int

    @property
    def path(self) -> str:
        """Return the path as tools take it, with replacement characters for bytes that are not valid text."""
        return display_path(self.parts)


@dataclass
class Walk:
    """The files below a folder: iterate over it; afterwards `links` and `stopped` say what was left out."""

    open_folder: OpenFolder
    start: Parts
    single: FileEntry | None = None
    """Set when `start` is a file: the only entry."""
    links: list[str] = field(default_factory=list)
    """Symbolic links, not followed."""
    stopped: bool = False
    """True if the tree was too large or too deep to be read completely."""
    _seen: int = 0

    def __iter__(self) -> Iterator[FileEntry]:
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

    def _read(self, parts: Parts) -> tuple[list[FileEntry], list[Parts]]:
        files: list[FileEntry] = []
        folders: list[Parts] = []
        with self.open_folder(parts) as descriptor, os.scandir(descriptor) as scan:
            room = MAX_ENTRIES - self._seen
            entries = sorted(itertools.islice(scan, room + 1), key=lambda entry: entry.name)
            self.stopped |= len(entries) > room
            self._seen += len(entries)
            for entry in entries[:room]:
                inner = (*parts, entry.name)
                if entry.is_symlink():
                    self.links.append(display_path(inner))
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(inner)
                elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(TEMPORARY):
                    with suppress(FileNotFoundError):  # it was deleted meanwhile
                        files.append(FileEntry(inner, entry.stat(follow_symlinks=False).st_size))
        folders = [inner for inner in folders if not is_hidden(inner[-1])]
        if folders and len(parts) >= MAX_DEPTH:
            self.stopped, folders = True, []
        return files, folders


def open_walk(root: Root, path: str) -> Walk:
    """Return the regular files below a folder, or the one file that `path` names."""
    parts = root.parts(path)
    kind = root.kind(parts)
    if kind is None:
        raise MissingPath(parts)
    if kind == "a folder":
        return Walk(root.folder, parts)
    with root.open(path) as file:
        return Walk(root.folder, parts, single=FileEntry(parts, os.fstat(file.fileno()).st_size))


def is_hidden(name: str) -> bool:
    """Return whether a folder is left out unless a path names it."""
    return name.startswith(".") or name in SKIPPED_FOLDERS


def near_names(root: Root, parts: Parts) -> list[str]:
    """Return up to three paths whose last name is similar to the last of `parts`."""
    wanted = parts[-1].casefold()
    names: dict[str, list[str]] = {}
    for entry in itertools.islice(Walk(root.folder, ()), NEAR_ENTRIES):
        names.setdefault(entry.parts[-1].casefold(), []).append(entry.path)
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.7)
    return [path for name in close for path in names[name]][:3]


def path_matcher(pattern: str) -> Callable[[Parts], bool]:
    """Return a test for paths relative to the start of a search; a pattern without `/` is for the last name only."""
    if not pattern.strip("/") or len(pattern) > MAX_PATTERN:
        raise ToolException(f"A pattern has 1 to {MAX_PATTERN} characters, such as '*.csv' or 'data/**/*.csv'.")
    alternatives = [_split_pattern(one) for one in _expand_braces(pattern)]
    return lambda parts: any(_match(wanted, parts) for wanted in alternatives)


def _expand_braces(pattern: str) -> list[str]:
    done: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise ToolException(f"The pattern has more than {MAX_ALTERNATIVES} alternatives.")
        one = waiting.pop()
        braces = BRACES.search(one)
        if braces is None:
            done.append(one)
            continue
        waiting.extend(one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(","))
    return done


def _split_pattern(pattern: str) -> list[str]:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if "/" not in pattern:
        names = ["**", *names]
    return [name for index, name in enumerate(names) if name != "**" or names[index - 1 : index] != ["**"]]


def _match(wanted: list[str], parts: Parts) -> bool:
    """Return whether the names fit the pattern's parts. Linear in names × pattern, whatever the pattern."""
    fits = {0}  # the numbers of leading parts of `wanted` that fit the names so far
    for name in parts:
        fits |= {at + 1 for at in fits if at < len(wanted) and wanted[at] == "**"}
        after = {at for at in fits if at < len(wanted) and wanted[at] == "**"}
        after |= {at + 1 for at in fits if at < len(wanted) and fnmatch.fnmatchcase(name, wanted[at])}
        fits = after
    return len(wanted) in fits or (wanted[-1:] == ["**"] and len(wanted) - 1 in fits)
