"""Encrypt values bound to their place."""

import base64
import json
import os
from typing import Any

from donewhen.agent.storage.serializer import StrictSerializer
from donewhen.state.errors import ConfigError, StorageError

_MARK = b"dw1"
_NONCE = 12
_TAG = 16


class Cipher:
    """Encrypts values under one key. A value opens only with the same key, unchanged, and at the same place.

    `place` is any sequence of plain JSON values; its first item says what kind of thing is stored there.
    """

    def __init__(self, key: object) -> None:
        if not isinstance(key, bytes) or len(key) not in (16, 24, 32):
            raise ConfigError("the storage key must be 16, 24 or 32 bytes")
        try:
            from Crypto.Cipher import AES
        except ImportError as error:
            raise ConfigError("a storage key needs the encryption extra: pip install 'donewhen[encryption]'") from error
        self._aes = AES
        self._key = key
        self._serde = StrictSerializer()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cipher) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def seal(self, value: Any, *place: Any) -> bytes:
        """Return `value` encrypted and authenticated."""
        kind, data = self._serde.dumps_typed(value)
        aes = self._aes.new(self._key, self._aes.MODE_GCM, nonce=os.urandom(_NONCE), mac_len=_TAG)
        aes.update(_name(place))
        sealed, tag = aes.encrypt_and_digest(kind.encode() + b"\0" + data)
        return _MARK + aes.nonce + tag + sealed

    def unseal(self, sealed: Any, *place: Any) -> Any:
        """Return the decrypted value. Raises StorageError if a bit, the key, or the place differs."""
        if not isinstance(sealed, bytes) or not sealed.startswith(_MARK):
            raise StorageError(f"the stored {place[0]} is not sealed with this key: changed, or never encrypted")
        body = sealed[len(_MARK) :]
        nonce, tag, hidden = body[:_NONCE], body[_NONCE : _NONCE + _TAG], body[_NONCE + _TAG :]
        try:
            aes = self._aes.new(self._key, self._aes.MODE_GCM, nonce=nonce, mac_len=_TAG)
            aes.update(_name(place))
            kind, _, data = aes.decrypt_and_verify(hidden, tag).partition(b"\0")
        except ValueError as error:
            raise StorageError(
                f"the stored {place[0]} was changed or moved since it was written, or the key is another one"
            ) from error
        return self._serde.loads_typed((kind.decode(), data))

    def seal_text(self, value: Any, *place: Any) -> str:
        """Do the same as `seal`, and return text."""
        return base64.b64encode(self.seal(value, *place)).decode()

    def unseal_text(self, sealed: Any, *place: Any) -> Any:
        """Return the value of `seal_text`."""
        try:
            return self.unseal(base64.b64decode(sealed, validate=True), *place)
        except (TypeError, ValueError) as error:
            raise StorageError(f"the stored {place[0]} is not sealed with this key ({error})") from error


def _name(place: tuple[Any, ...]) -> bytes:
    return json.dumps(place, sort_keys=True, separators=(",", ":")).encode()
