"""What a storage URL means, how it is shown without its password, and which thread ids can be stored."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from donewhen.state.errors import ConfigError

LONGEST_THREAD_ID = 255
"""Characters; database indexes hold no keys of any length."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_FORMS = "memory:, sqlite:///runs.db, a path such as runs.db, or postgresql://user@host/database"


@dataclass(frozen=True)
class Location:
    """A storage URL, understood."""

    kind: Literal["memory", "sqlite", "postgres"]
    url: str
    """As given; may hold a password."""
    display: str
    """Fit for logs and errors."""
    path: Path = Path()
    """The file of a SQLite database, absolute, symbolic links followed."""


def parse_url(url: str) -> Location:
    """The location that `url` names; raises ConfigError when it names none."""
    if not url.strip() or "\0" in url:
        raise ConfigError(f"storage {url!r} is not a storage URL: use {_FORMS}")
    match = _SCHEME.match(url)
    scheme = match.group(1).lower() if match else ""
    if scheme == "memory":
        if url.split(":", 1)[1].strip("/"):
            raise ConfigError(f"storage {url!r}: memory: takes nothing after it")
        return Location("memory", url, "memory:")
    if scheme in ("postgres", "postgresql"):
        return Location("postgres", url, without_password(url))
    if scheme == "sqlite":
        return _file(url, _sqlite_path(url))
    if scheme and (url[len(scheme) + 1 :].startswith("/") or not Path(url).exists()):
        raise ConfigError(f"storage {without_password(url)!r} is of an unknown kind: use {_FORMS}")
    return _file(url, url)


def _sqlite_path(url: str) -> str:
    rest = url.split(":", 1)[1]
    path = rest[3:] if rest.startswith("///") else rest
    if not path.strip("/") or path.startswith("//") or path.endswith(":memory:"):
        raise ConfigError(
            f"storage {url!r} names no file: use sqlite:///runs.db, sqlite:////absolute/runs.db or memory:"
        )
    return path


def _file(url: str, path: str) -> Location:
    try:
        resolved = Path(path).expanduser().resolve()
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"storage {url!r}: {error}") from error
    return Location("sqlite", url, f"sqlite:///{resolved}", resolved)


def without_password(url: str) -> str:
    """`url` with every password replaced by `***`."""
    url = re.sub(r"^([^:/?#]+://[^:@/?#]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"(?i)([?&][^=&]*password=)[^&]*", r"\1***", url)


def check_thread_id(thread_id: object) -> str:
    """`thread_id` unchanged. Any text will do; ConfigError when it is empty, too long, or no text at all."""
    if not isinstance(thread_id, str) or not thread_id:
        raise ConfigError(f"thread id {thread_id!r} must be a non-empty text")
    if len(thread_id) > LONGEST_THREAD_ID:
        raise ConfigError(
            f"thread id {thread_id[:40]!r}… has {len(thread_id)} characters; {LONGEST_THREAD_ID} are allowed"
        )
    if "\0" in thread_id or any("\ud800" <= character <= "\udfff" for character in thread_id):
        raise ConfigError(f"thread id {thread_id!r} holds a character that no database can store")
    return thread_id
