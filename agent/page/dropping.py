"""Save files dropped on the page in the tools' folder, without replacing other files."""

import contextlib
import os
import secrets
from pathlib import PurePath
from typing import IO

from langchain_core.tools import ToolException

from donewhen import DoneWhenError
from donewhen.agent.workspace.root import TEMPORARY, Root

MOST_NAMES = 1000


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
