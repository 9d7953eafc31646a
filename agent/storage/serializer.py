"""Serialize values without code, whether there is a key or not."""

from collections.abc import Iterable, Set
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_PYDANTIC_V2, JsonPlusSerializer

from donewhen.state.errors import StorageError
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

    Everything else is returned as the stored data, but for the types in `named`, each by module and name. Pickle and
    the old JSON constructors are refused. A value that cannot be read raises StorageError.
    """

    def __init__(self, named: Set[tuple[str, ...]] = frozenset()) -> None:
        # None is LangGraph's strict mode; its default lets any importable callable run (CVE-2026-28277).
        super().__init__(
            pickle_fallback=False,
            allowed_json_modules=None,
            allowed_msgpack_modules=[*named] or None,
            __unpack_ext_hook__=None if named else _revive,
        )
        self._named = named

    def with_msgpack_allowlist(self, extra_allowlist: Iterable[tuple[str, ...] | type]) -> "StrictSerializer":
        """Return a serializer that revives these types as well; itself if there is none."""
        more = {(each.__module__, each.__name__) if isinstance(each, type) else each for each in extra_allowlist}
        return StrictSerializer(self._named | more) if more - self._named else self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind = data[0]
        if kind not in _KINDS:
            raise StorageError(f"a stored value is of the kind {kind!r}, which is never written here: damaged?")
        try:
            return super().loads_typed(data)
        except Exception as error:
            raise StorageError(f"a stored value is damaged and cannot be read ({error})") from error
