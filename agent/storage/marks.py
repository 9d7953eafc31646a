"""What a database says about itself: its version, who set it up, and whether it is encrypted."""

import base64
from collections.abc import Mapping

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.serde import StrictSerializer
from donewhen.state.errors import StorageError

STORAGE_VERSION = 1
"""Raised whenever older versions of this project could no longer read what is written."""


def missing_marks(
    found: Mapping[str, str], *, library: str, cipher: Cipher | None, used: bool, name: str
) -> dict[str, str]:
    """The marks to write before the database can be used; empty when it is set up.

    `library` is the version of the saver that creates the tables, `used` whether any run is stored. Raises
    StorageError when the database is of a newer version, or when it and the key do not go together.
    """
    version = found.get("version", "0")
    if not version.isdecimal() or int(version) > STORAGE_VERSION:
        raise StorageError(
            f"{name} has storage version {version}, this DoneWhen knows {STORAGE_VERSION}: upgrade donewhen"
        )
    wanted = {"version": str(STORAGE_VERSION), "library": library}
    if token := found.get("key"):
        _check_key(token, cipher, name)
    elif cipher is not None:
        if used:
            raise StorageError(f"{name} holds runs that are not encrypted: leave out the key, or use a new database")
        wanted["key"] = base64.b64encode(cipher.seal(StrictSerializer(), "donewhen", "key")).decode()
    return {mark: value for mark, value in wanted.items() if found.get(mark) != value}


def _check_key(token: str, cipher: Cipher | None, name: str) -> None:
    if cipher is None:
        raise StorageError(f"{name} is encrypted: its storage key is needed")
    try:
        cipher.unseal(StrictSerializer(), base64.b64decode(token, validate=True), "key")
    except (StorageError, ValueError) as error:
        raise StorageError(f"{name} is encrypted with another storage key") from error
