"""Save files dropped on the page in the tools' folder, without replacing other files, and read pictures there."""

import contextlib
import mimetypes
import os
import secrets
from pathlib import PurePath
from typing import IO

from langchain_core.tools import ToolException

from donewhen import DoneWhenError
from donewhen.agent.workspace.root import TEMPORARY, Root
from donewhen.clients import Json, attachment_block

MOST_NAMES = 1000
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
"""The types of pictures that models see."""


def picture_type(name: str) -> str:
    """Return the type of a file that is a picture by its name; "" for any other."""
    found = mimetypes.guess_type(name)[0] or ""
    return found if found in PICTURES else ""


def read_picture(folder: str, name: str) -> Json | None:
    """Return a picture of the folder as a content block; None if it cannot be read."""
    try:
        with Root(folder).open(name) as file:
            return attachment_block(name, file.read())
    except (ToolException, OSError, ValueError):
        return None


def keep_file(folder: str, name: str, content: IO[bytes]) -> str:
    """Save the content as a new file of the folder; return its name, numbered if the wanted one is taken.

    Raises DoneWhenError for an invalid name, and if nothing can be written.
    """
    wanted = PurePath(name.replace("\\", "/"))
    names = [wanted.name, *(f"{wanted.stem} ({number}){wanted.suffix}" for number in range(2, MOST_NAMES))]
    try:
        root = Root(folder)
        free = next((each for each in names if root.kind(root.file_parts(each)) is None), None)
        if free is None:
            raise DoneWhenError(f"there are {MOST_NAMES} files of the name {wanted.name!r}")
        written = (TEMPORARY + secrets.token_hex(8),)
        root.replace(written, content)
        try:
            root.move(written, root.file_parts(free))  # it never replaces a file, even one made meanwhile
        finally:
            with contextlib.suppress(OSError), root.folder(()) as top:
                os.unlink(written[0], dir_fd=top)
    except (ToolException, OSError, ValueError) as error:
        raise DoneWhenError(f"the file cannot be kept: {error}") from None
    return free
