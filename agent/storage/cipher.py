"""Serialize values without code and, with a key, encrypt them bound to their place."""

import base64
import json
import os
from collections.abc import Set
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_PYDANTIC_V2, JsonPlusSerializer

from donewhen.state.errors import ConfigError, StorageError
from donewhen.state.private_langgraph import DeltaSnapshot, revive

_KINDS = frozenset({"null", "bytes", "bytearray", "msgpack"})


_MESSAGES: dict[tuple[str, str], tuple[type[BaseMessage] | None, Set[str]]] = {
    (kind.__module__, kind.__name__): (kind, frozenset(kind.model_fields))
    for kind in (AIMessage, HumanMessage, SystemMessage, ToolMessage)
}
"""By module and name, the class and its fields."""
_set = object.__setattr__


def _revive(code: int, data: bytes) -> Any:
    """Revive like LangGraph's strict hook, without validating messages again that were validated when made."""
    if code == EXT_DELTA_SNAPSHOT:
        return DeltaSnapshot(_unpack(data))
    if code == EXT_PYDANTIC_V2:
        module, name, fields, *_ = _unpack(data)
        kind, names = _MESSAGES.get((module, name), (None, frozenset()))
        if kind and fields.keys() == names:
            message = kind.__new__(kind)
            _set(message, "__dict__", fields)
            _set(message, "__pydantic_fields_set__", {*names})
            _set(message, "__pydantic_extra__", {})
            _set(message, "__pydantic_private__", None)
            return message
    return revive(code, data)


def _unpack(data: bytes) -> Any:
    return ormsgpack.unpackb(data, ext_hook=_revive, option=ormsgpack.OPT_NON_STR_KEYS)


class StrictSerializer(JsonPlusSerializer):
    """Revives LangChain messages, LangGraph's own records and plain values, whatever the environment says.

    Everything else is returned as the stored data. Pickle and the old JSON constructors are refused. A value that
    cannot be read raises StorageError.
    """

    def __init__(self) -> None:
        # None is LangGraph's strict mode; its default lets any importable callable run (CVE-2026-28277).
        super().__init__(
            pickle_fallback=False,
            allowed_json_modules=None,
            allowed_msgpack_modules=None,
            __unpack_ext_hook__=_revive,
        )

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind = data[0]
        if kind not in _KINDS:
            raise StorageError(f"a stored value is of the kind {kind!r}, which is never written here: damaged?")
        try:
            return super().loads_typed(data)
        except Exception as error:
            raise StorageError(f"a stored value is damaged and cannot be read ({error})") from error


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
