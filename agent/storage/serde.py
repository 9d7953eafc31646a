"""Reading checkpoints back without running anything that somebody may have written into them."""

from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from donewhen.state.errors import StorageError

_KINDS = frozenset({"null", "bytes", "bytearray", "msgpack"})


class StrictSerializer(JsonPlusSerializer):
    """Revives LangChain messages, LangGraph's own records and plain values, whatever the environment says.

    Everything else comes back as the data it was stored with. Pickle and the old JSON constructors are
    refused. A value that cannot be read is a StorageError.
    """

    def __init__(self) -> None:
        # None is LangGraph's strict mode; its default lets any importable callable run (CVE-2026-28277).
        super().__init__(pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=None)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind = data[0]
        if kind not in _KINDS:
            raise StorageError(f"a stored value is of the kind {kind!r}, which is never written here: damaged?")
        try:
            return super().loads_typed(data)
        except Exception as error:
            raise StorageError(f"a stored value is damaged and cannot be read ({error})") from error
