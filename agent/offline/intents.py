"""What the offline model can be asked to do: one small record per kind of work. No words of any language here."""

from dataclasses import dataclass
from typing import Literal

Operation = Literal["sum", "average", "count", "min", "max"]


@dataclass(frozen=True)
class Files:
    """Find files by pattern."""

    pattern: str = "*"
    path: str = "."
    want: Literal["count", "list", "largest"] = "list"


@dataclass(frozen=True)
class Text:
    """Find text in files."""

    query: str
    pattern: str = "*"
    path: str = "."
    want: Literal["count", "list", "files"] = "list"


@dataclass(frozen=True)
class Lines:
    """Count the lines of a text file."""

    path: str


@dataclass(frozen=True)
class Column:
    """Work out one number of a CSV, or one per group. None: not said; it is found out, or asked, at work."""

    operation: Operation
    column: str | None = None
    path: str | None = None
    group_by: str | None = None
    rank: Literal["", "highest", "lowest"] = ""
    where: tuple[tuple[str, str], ...] = ()
    """Only rows whose column equals the value."""


@dataclass(frozen=True)
class Describe:
    """Say which columns and how many rows a CSV has."""

    path: str


@dataclass(frozen=True)
class Read:
    """Read a text file, whole or as an extract."""

    path: str
    summarise: bool = False


@dataclass(frozen=True)
class Calculate:
    """Arithmetic."""

    expression: str


@dataclass(frozen=True)
class Write:
    """Write what was found, or the given text, to a file."""

    path: str
    what: Literal["report", "summary", "text"] = "report"
    text: str = ""
    append: bool = False
    missing: tuple[str, ...] = ()
    """What could not be found out, to be said in the report."""


@dataclass(frozen=True)
class Mention:
    """A file that was named without saying what to do with it: context for the intents around it."""

    path: str


Intent = Files | Text | Lines | Column | Describe | Read | Calculate | Write
LookUp = Files | Text | Lines | Column | Describe | Read | Calculate
