"""A store that takes any text as a label and as a value, and seals values if there is a key."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    NamespacePath,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
)
from langgraph.store.memory import InMemoryStore

from donewhen.agent.storage.cipher import Cipher
from donewhen.agent.storage.events import EventTable
from donewhen.agent.storage.spending import SpendingTable
from donewhen.agent.storage.table import RowStore, ThreadTable
from donewhen.graph.events import EventLog
from donewhen.state.errors import StorageError
from donewhen.state.values import storable, store_label

DELETE_AT_ONCE = 100
"""Threads deleted per transaction, so that others can write in between."""
_KINDS = (
    "WITH RECURSIVE found(after) AS (SELECT 'donewhen.' UNION ALL SELECT (SELECT"
    " substr({kind}, 1, length({kind}) - 1) || '/' FROM store WHERE prefix {more} after AND prefix {less} 'donewhen/'"
    " ORDER BY prefix {order} LIMIT 1) FROM found WHERE after IS NOT NULL) SELECT after FROM found"
)
"""Jumps from kind to kind of `donewhen.kind.thread` in the index; "/" follows all that has a kind and its dot."""
SQLITE_ORDER, POSTGRES_ORDER = (">", "<"), ("~>~", "~<~")
_KIND = "rtrim(prefix, replace(prefix, '.', ''))"
SQLITE_KINDS = _KINDS.format(kind=_KIND, more=SQLITE_ORDER[0], less=SQLITE_ORDER[1], order="")
POSTGRES_KINDS = _KINDS.format(kind=_KIND, more=POSTGRES_ORDER[0], less=POSTGRES_ORDER[1], order="USING ~<~")

NEWS = "news"
SHARED_KINDS = ("a2a", NEWS)
"""Kinds whose third label names something other than a thread."""
_NEWS_ID = 32
"""The characters of a notification's id."""

Namespace = tuple[str, ...]
AnyItem = TypeVar("AnyItem", bound=Item)

_SEALED = "sealed"
_ALL = 1_000_000_000


class ThreadStore(BaseStore):
    """Stores refuse dots in labels, and thread ids are labels here: labels are escaped on the way in and out.

    With a cipher, values are encrypted and bound to namespace and key; namespaces, keys and times stay
    readable, and filters are applied after decryption. Text that a database cannot hold (NUL, lone
    surrogates) is replaced by U+FFFD, a float that is no number by None. Reading extends no time to live:
    a read would be a write.
    """

    def __init__(self, inner: RowStore, cipher: Cipher | None = None) -> None:
        self._inner = inner
        self._cipher = cipher
        self.threads: ThreadTable = ThreadTable(inner, cipher)
        """The thread table."""
        self.events: EventTable = EventTable(inner, cipher)
        """The events of threads."""
        self.spending: SpendingTable = SpendingTable(inner)
        """What runs spend in a day."""
        self.log: EventLog | None = None
        """That of the thread that is held through this store."""
        self.sealed: bool = cipher is not None
        """True if values are encrypted."""
        self.supports_ttl: bool = inner.supports_ttl
        self.ttl_config: TTLConfig | None = inner.ttl_config

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        with _raise_for_damaged_items(ops):
            results = self._inner.batch([self._outgoing(op) for op in ops])
        return [self._incoming(op, result) for op, result in zip(ops, results, strict=True)]

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        ops = list(ops)
        with _raise_for_damaged_items(ops):
            results = await self._inner.abatch([self._outgoing(op) for op in ops])
        return [self._incoming(op, result) for op, result in zip(ops, results, strict=True)]

    # The inherited methods refuse dots before `abatch` sees them, so labels are escaped here; `abatch` knows `Escaped`.
    def get(self, namespace: Namespace, key: str, **options: Any) -> Item | None:
        return super().get(escape_namespace(namespace), key, **options)

    async def aget(self, namespace: Namespace, key: str, **options: Any) -> Item | None:
        return await super().aget(escape_namespace(namespace), key, **options)

    def put(self, namespace: Namespace, key: str, value: Mapping[str, Any], *args: Any, **options: Any) -> None:
        super().put(escape_namespace(namespace), key, dict(value), *args, **options)

    async def aput(self, namespace: Namespace, key: str, value: Mapping[str, Any], *args: Any, **options: Any) -> None:
        await super().aput(escape_namespace(namespace), key, dict(value), *args, **options)

    async def put_new(self, namespace: Namespace, key: str, value: Mapping[str, Any]) -> None:
        """Store an entry unless there is one under this key: of two at once, in any processes, the first stays."""
        op: Any = self._outgoing(PutOp(namespace, key, dict(value)))
        await self._inner.put_new(op.namespace, op.key, op.value)

    def delete(self, namespace: Namespace, key: str) -> None:
        super().delete(escape_namespace(namespace), key)

    async def adelete(self, namespace: Namespace, key: str) -> None:
        await super().adelete(escape_namespace(namespace), key)

    def search(self, namespace_prefix: Namespace, /, **options: Any) -> list[SearchItem]:
        return super().search(escape_namespace(namespace_prefix), **options)

    async def asearch(self, namespace_prefix: Namespace, /, **options: Any) -> list[SearchItem]:
        return await super().asearch(escape_namespace(namespace_prefix), **options)

    def list_namespaces(
        self, *, prefix: NamespacePath | None = None, suffix: NamespacePath | None = None, **options: Any
    ) -> list[Namespace]:
        return super().list_namespaces(prefix=_pattern(prefix), suffix=_pattern(suffix), **options)

    async def alist_namespaces(
        self, *, prefix: NamespacePath | None = None, suffix: NamespacePath | None = None, **options: Any
    ) -> list[Namespace]:
        return await super().alist_namespaces(prefix=_pattern(prefix), suffix=_pattern(suffix), **options)

    async def read_each(self, namespace: Namespace) -> tuple[list[SearchItem | Item], dict[str, str]]:
        """Return the entries of a namespace, and by key why others cannot be read.

        For lists: one damaged entry hides no other. What runs base decisions on is read strictly instead.
        """
        try:
            return [*await self.asearch(namespace, limit=_ALL)], {}
        except StorageError:
            stored = ".".join(escape_namespace(namespace))
            keys = await self._inner.read_rows(
                "SELECT prefix, key FROM store WHERE prefix = ? OR substr(prefix, 1, ?) = ?",
                [stored, len(stored) + 1, f"{stored}."],
            )
        entries, damaged = list[SearchItem | Item](), dict[str, str]()
        for prefix, key in keys:
            try:
                item = await self.aget(Escaped(prefix.split(".")), key)
            except StorageError as error:
                damaged[key] = str(error)
            else:
                entries += [item] if item else []
        return entries, damaged

    def _outgoing(self, op: Op) -> Op:
        if isinstance(op, GetOp | PutOp):
            op = op._replace(namespace=escape_namespace(op.namespace), key=storable(op.key))
        elif isinstance(op, SearchOp):
            op = op._replace(namespace_prefix=escape_namespace(op.namespace_prefix))
        if isinstance(op, PutOp) and op.value is not None:
            value = storable(op.value)
            if self._cipher is not None:
                value = {_SEALED: self._cipher.seal_text(value, "item", op.namespace, op.key)}
            return op._replace(value=value)
        if isinstance(op, GetOp):
            return op._replace(refresh_ttl=False)
        if isinstance(op, SearchOp):
            op = op._replace(refresh_ttl=False)
            if op.filter and self._cipher is not None:
                return op._replace(filter=None, limit=_ALL, offset=0)
        return op

    def _incoming(self, op: Op, result: Result) -> Result:
        if isinstance(op, ListNamespacesOp) and isinstance(result, list):
            return [_unescape(namespace) for namespace in result if isinstance(namespace, tuple)]
        if isinstance(result, Item):
            return self._open_item(result)
        if isinstance(op, SearchOp) and isinstance(result, list):
            items = [self._open_item(item) for item in result if isinstance(item, SearchItem)]
            if op.filter and self._cipher is not None:
                return _filter_items(items, op)
            return items
        return result

    def _open_item(self, item: AnyItem) -> AnyItem:
        value = item.value
        if self._cipher is not None:
            value = self._cipher.unseal_text(value.get(_SEALED), "item", item.namespace, item.key)
        fields: dict[str, Any] = {"score": item.score} if isinstance(item, SearchItem) else {}
        return type(item)(
            value=value,
            key=item.key,
            namespace=_unescape(item.namespace),
            created_at=item.created_at,
            updated_at=item.updated_at,
            **fields,
        )


class Escaped(tuple[str, ...]):
    """A namespace in its stored form."""


_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in "%.*"})


def escape_namespace(namespace: Namespace) -> Escaped:
    """Return a namespace in its stored form, with labels without dots and stars."""
    if isinstance(namespace, Escaped):
        return namespace
    return Escaped(label.translate(_ESCAPES) for label in namespace)


def _pattern(path: NamespacePath | None) -> NamespacePath | None:
    """Return an escaped namespace in which "*" still means any label."""
    return path and tuple("*" if label == "*" else escape_namespace((label,))[0] for label in path)


def _unescape(namespace: Namespace) -> Namespace:
    return tuple(re.sub("%(25|2E|2A)", _character, label) if "%" in label else label for label in namespace)


def _character(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


@contextmanager
def _raise_for_damaged_items(ops: Sequence[Op]) -> Iterator[None]:
    """Raise StorageError for stored JSON or times that do not parse, but not for wrong arguments of the caller."""
    try:
        yield
    except InvalidNamespaceError:
        raise
    except ValueError as error:
        if all(isinstance(op, GetOp) or (isinstance(op, SearchOp) and not op.filter) for op in ops):
            raise StorageError(f"a stored item is damaged and cannot be read ({error})") from error
        raise


def _filter_items(items: Sequence[SearchItem], op: SearchOp) -> list[SearchItem]:
    """Filter decrypted values with LangGraph's own filter, since the database cannot read them."""
    readable = InMemoryStore()
    readable.batch([PutOp(("items",), str(place), item.value) for place, item in enumerate(items)])
    passing = readable.search(("items",), filter=op.filter, limit=op.limit, offset=op.offset)
    return [items[int(each.key)] for each in passing]


def news_key(id: str, thread_id: str) -> str:
    """Return the key of a notification, which names its thread, so that both are deleted together."""
    return f"{id} {store_label(thread_id)}"


def is_of_threads(kind: Namespace) -> bool:
    """Return whether the label that follows `kind` names a thread, and not, say, a queue of the same name."""
    return len(kind) == 2 and kind[1] not in SHARED_KINDS


def deletion_statements(
    thread_ids: Sequence[str], tables: Sequence[str], kinds: Sequence[tuple[str | None]], order: tuple[str, str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the statements that delete threads, their entries in `("donewhen", kind, label(thread_id))` and below, and
    their notifications that were not delivered yet.

    `order` are the operators for more and less by which the index of the prefixes is ordered.
    """
    if not thread_ids:
        return
    marks = ", ".join("?" * len(thread_ids))
    labels = [escape_namespace((store_label(thread_id),))[0] for thread_id in thread_ids]
    more, less = order
    yield (
        f"DELETE FROM store WHERE prefix {more} ? AND prefix {less} ? AND substr(key, {_NEWS_ID + 2}) IN ({marks})",
        [f"donewhen.{NEWS}.", f"donewhen.{NEWS}/", *(storable(store_label(thread_id)) for thread_id in thread_ids)],
    )
    for (after,) in kinds:
        if after and after.endswith("/") and is_of_threads(tuple(after[:-1].split("."))):
            prefixes = [f"{after[:-1]}.{each}" for each in labels]
            yield f"DELETE FROM store WHERE prefix IN ({marks})", prefixes
            below = " OR ".join([f"(prefix {more} ? AND prefix {less} ?)"] * len(prefixes))
            yield f"DELETE FROM store WHERE {below}", [f"{prefix}{end}" for prefix in prefixes for end in "./"]
    for table in (*tables, "donewhen_threads", "donewhen_events", "donewhen_announced"):
        yield f"DELETE FROM {table} WHERE thread_id IN ({marks})", [*thread_ids]
