"""The one folder that the tools may access, and every way to open something in it.

Each path is opened name by name with `openat` and O_NOFOLLOW, so no symbolic link in it is ever followed, even if
another process changes the path meanwhile. A path does not show hard links: replacing a file under one name leaves its
other names alone, so a file with several is refused where its text is changed. A name that is not UTF-8 is shown, and
taken, with U+FFFD for each byte that does not fit.
"""

import contextlib
import errno
import os
import secrets
import shutil
import stat
import threading
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

from langchain_core.tools import ToolException

from donewhen.state.errors import ConfigError

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4000
TEMPORARY = ".donewhen-"
HISTORY_FOLDERS = frozenset({".git", ".hg", ".svn"})

Parts = tuple[str, ...]

FOLDER_FLAGS = FILE_FLAGS = 0
if hasattr(os, "O_NOFOLLOW"):  # a system without it makes no Root
    FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
FILE_KIND = "a file"
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class MissingPath(ToolException):
    """Raised if nothing has this name. A caller may add similar names."""

    def __init__(self, parts: Parts) -> None:
        super().__init__(f"Not found: {display_path(parts)!r}.")
        self.parts = parts


class Root:
    """A workspace folder. It keeps no files open between calls. Raises ConfigError if it cannot be read."""

    def __init__(self, folder: str | Path) -> None:
        self.writing: threading.Lock = threading.Lock()
        if os.open not in os.supports_dir_fd or os.rename not in os.supports_dir_fd:
            raise ConfigError("workspace tools need a system that opens files relative to a folder (Linux, macOS)")
        try:
            self.path: str = os.path.realpath(folder)
            with self.folder(()) as top:
                os.scandir(top).close()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"workspace root {str(folder)!r}: {reason}; create the folder or name another") from None

    def parts(self, path: str) -> Parts:
        """Return the checked names of a path that may be the root itself."""
        return self._as_named(split_path(path, self.path))

    def file_parts(self, path: str) -> Parts:
        """Return the checked names of a path that has to name a file."""
        return self._as_named(split_file_path(path, self.path))

    def _as_named(self, parts: Parts) -> Parts:
        """Return the names as they are on disk; a name that is not there may be how another one is displayed."""
        with contextlib.suppress(OSError):
            if self.kind(parts) is not None:
                return parts
            for index, name in enumerate(parts):
                if self.kind(parts[: index + 1]) is not None:
                    continue
                with self.folder(parts[:index]) as parent:
                    matches = [each for each in os.listdir(parent) if _alike(each) == _alike(name)]
                if len(matches) > 1:
                    raise ToolException(f"Several names are shown as {name!r}; rename them outside of here.")
                if not matches:
                    break
                parts = (*parts[:index], *matches, *parts[index + 1 :])
        return parts

    def check_writable(self, parts: Parts) -> None:
        """Raise ToolException if a file is read-only, or has other names that would keep its text."""
        try:
            with self.folder(parts[:-1]) as parent:
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
                allowed = status.st_mode & 0o222 and os.access(parts[-1], os.W_OK, dir_fd=parent)
        except FileNotFoundError:
            return
        if not stat.S_ISREG(status.st_mode):
            return  # what writes says it
        if not allowed:
            raise ToolException(f"{display_path(parts)} is read-only; nothing was changed. Ask the user to allow it.")
        if status.st_nlink > 1:
            raise ToolException(
                f"{display_path(parts)} is one file with {status.st_nlink} names (hard links), of which others may be "
                "elsewhere; nothing was changed. If only this name shall change, delete_file it first."
            )

    @contextlib.contextmanager
    def folder(self, parts: Parts, *, create: bool = False) -> Iterator[int]:
        """Yield a descriptor of a folder; missing ones are made when `create` is set."""
        current = os.open(self.path, FOLDER_FLAGS)
        try:
            for index, name in enumerate(parts):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=current)
                try:
                    inner = os.open(name, FOLDER_FLAGS, dir_fd=current)
                except OSError as error:
                    self._raise_readable(current, parts[: index + 1], error, wanted="a folder")
                os.close(current)
                current = inner
            yield current
        finally:
            os.close(current)

    def kind(self, parts: Parts) -> str | None:
        """Return `a file`, `a folder`, `a symbolic link`, … or None if nothing has this name."""
        if not parts:
            return KINDS[stat.S_IFDIR]
        try:
            with self.folder(parts[:-1]) as parent:
                status = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return _kind_of(status.st_mode)

    @contextlib.contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        """Yield a regular file for reading bytes. Raises ToolException for anything else, without touching it."""
        parts = self.file_parts(path)
        try:
            with self.folder(parts[:-1]) as parent:
                descriptor = self._open_file(parent, parts, os.O_RDONLY)
        except FileNotFoundError:
            raise MissingPath(parts) from None
        with os.fdopen(descriptor, "rb") as file:
            yield file

    def check_copy(self, source: Parts, destination: Parts) -> None:
        """Raise ToolException if a file cannot be copied there."""
        with self.open(display_path(source)):
            refuse_history(destination)
            self._refuse_taken(source, destination)

    def copy(self, source: Parts, destination: Parts) -> None:
        """Copy a file, all or nothing. Raises ToolException if the new name is taken; nothing is replaced."""
        written = (*destination[:-1], TEMPORARY + secrets.token_hex(8))
        self.check_copy(source, destination)
        with self.open(display_path(source)) as content:
            self.replace(written, content)
        try:
            self.move(written, destination)
        except BaseException:
            with self.folder(written[:-1]) as parent:
                os.unlink(written[-1], dir_fd=parent)
            raise

    def replace(self, parts: Parts, content: IO[bytes]) -> None:
        """Give a file new content, all or nothing, making missing folders. Never writes through a link."""
        refuse_history(parts)
        with self.folder(parts[:-1], create=True) as parent:
            try:
                old = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
            except FileNotFoundError:
                old = None
            if old is not None and not stat.S_ISREG(old.st_mode):
                self._refuse(parts, old.st_mode, "a file")
            temporary = TEMPORARY + secrets.token_hex(8)
            try:
                descriptor = os.open(temporary, FILE_FLAGS | os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent)
                with os.fdopen(descriptor, "wb") as file:
                    if old is not None:
                        os.fchmod(file.fileno(), old.st_mode & 0o777)
                    shutil.copyfileobj(content, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=parent)

    @contextlib.contextmanager
    def append(self, parts: Parts) -> Iterator[IO[bytes]]:
        """Yield a regular file for adding bytes at its end; made when missing, with its folders."""
        refuse_history(parts)
        with self.folder(parts[:-1], create=True) as parent:
            try:
                descriptor = self._open_file(parent, parts, os.O_RDWR | os.O_APPEND)
            except FileNotFoundError:
                descriptor = os.open(
                    parts[-1], FILE_FLAGS | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent
                )
        with os.fdopen(descriptor, "r+b") as file:
            if (names := os.fstat(file.fileno()).st_nlink) > 1:  # perhaps since it was checked
                raise ToolException(f"{display_path(parts)} is one file with {names} names (hard links).")
            yield file

    def check_move(self, source: Parts, destination: Parts) -> str:
        """Return the kind of what is moved. Raises ToolException if it cannot be moved there."""
        refuse_history(source)
        refuse_history(destination)
        kind = self.kind(source)
        if kind is None:
            raise MissingPath(source)
        if kind not in (KINDS[stat.S_IFDIR], FILE_KIND):
            raise ToolException(f"{display_path(source)} is {kind}, not a file or a folder.")
        if destination[: len(source)] == source:
            raise ToolException(
                f"{display_path(source)} cannot become {display_path(destination)}: that is itself, or inside of it."
            )
        self._refuse_taken(source, destination)
        return kind

    def move(self, source: Parts, destination: Parts) -> None:
        """Move a file or folder. Raises ToolException if the new name is taken; nothing is replaced."""
        kind = self.check_move(source, destination)
        with self.folder(source[:-1]) as before, self.folder(destination[:-1], create=True) as after:
            self._refuse_taken(source, destination)
            if kind == FILE_KIND and _link_file(before, source[-1], after, destination[-1]):
                os.unlink(source[-1], dir_fd=before)
            else:
                os.rename(source[-1], destination[-1], src_dir_fd=before, dst_dir_fd=after)

    def _refuse_taken(self, source: Parts, destination: Parts) -> None:
        if (taken := self.kind(destination)) is not None:
            hint = f"; name the file too: {display_path((*destination, source[-1]))}" if taken != FILE_KIND else ""
            raise ToolException(f"{display_path(destination)} exists already, as {taken}; nothing was changed{hint}.")

    def _open_file(self, parent: int, parts: Parts, access: int) -> int:
        before = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISREG(before.st_mode):
            self._refuse(parts, before.st_mode, "a file")
        try:
            return open_regular(parent, parts[-1], access)
        except OSError as error:
            self._raise_readable(parent, parts, error, wanted="a file")

    def _raise_readable(self, parent: int, parts: Parts, error: OSError, wanted: str) -> NoReturn:
        if error.errno in (errno.ENOTDIR, errno.ELOOP, errno.EINVAL):
            with contextlib.suppress(FileNotFoundError):
                self._refuse(parts, os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode, wanted)
        raise error

    def _refuse(self, parts: Parts, mode: int, wanted: str) -> NoReturn:
        if not stat.S_ISLNK(mode):
            raise ToolException(f"{display_path(parts)} is {_kind_of(mode)}, not {wanted}.")
        target = os.path.realpath(os.path.join(self.path, *parts))
        inside = target.startswith(self.path.rstrip("/") + "/")
        hint = f"Use {os.path.relpath(target, self.path)!r}." if inside else "It leads out of the workspace."
        raise ToolException(f"{display_path(parts)} is a symbolic link; links are not followed. {hint}")


def open_regular(parent: int, name: str, access: int) -> int:
    """Open a regular file, even if its name changes meanwhile: never through a link, never waiting at a pipe.

    Raises OSError (ELOOP for a link, EINVAL for anything else that is not a regular file).
    """
    descriptor = os.open(name, FILE_FLAGS | access, dir_fd=parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def _link_file(before: int, old: str, after: int, new: str) -> bool:
    """Give a file a second name, which replaces nothing; return False if the file system has no hard links."""
    try:
        os.link(old, new, src_dir_fd=before, dst_dir_fd=after, follow_symlinks=False)
    except FileExistsError:
        raise ToolException(f"{new} exists already; nothing was changed.") from None
    except (OSError, NotImplementedError):
        return False
    return True


def _kind_of(mode: int) -> str:
    return KINDS.get(stat.S_IFMT(mode), FILE_KIND)


def split_path(path: str, root: str) -> Parts:
    """Return the names of a relative path, none of them `.` or `..`; `()` is the root. Raises ToolException."""
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
    """Return the names as `split_path` does, for a path that must name something inside the root."""
    parts = split_path(path, root)
    if not parts:
        raise ToolException(f"The path {path!r} names no file; give one such as 'notes.md'.")
    return parts


def refuse_history(parts: Parts) -> None:
    """Refuse to write where a version control system keeps its hooks and objects."""
    for part in parts:
        if part.casefold() in HISTORY_FOLDERS:
            raise ToolException(f"Nothing is written inside {part}; choose another path.")


def display_path(parts: Parts) -> str:
    """Return the path as results show it, and as tools take it."""
    return _shown("/".join(parts)) or "."


def _shown(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")


def _alike(name: str) -> str:
    """Return the form of a name that looks the same: bytes that are not UTF-8 are U+FFFD, as macOS some letters are
    composed of several characters, and some spaces, such as those in its names of screenshots, are special.
    """
    return "".join(" " if char.isspace() else char for char in unicodedata.normalize("NFC", _shown(name)))


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
