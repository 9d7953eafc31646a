"""Deletes threads with all that belongs to them, many at once, by the index of every table."""

from collections.abc import Iterator, Sequence

from donewhen.agent.storage.thread_store import escaped
from donewhen.graph.tools.effects import label

AT_ONCE = 100
"""Threads that are deleted in one transaction; others write after it."""
_KINDS = (
    "WITH RECURSIVE found(after) AS (SELECT 'donewhen.' UNION ALL SELECT (SELECT"
    " substr({kind}, 1, length({kind}) - 1) || '/' FROM store WHERE prefix {more} after AND prefix {less} 'donewhen/'"
    " ORDER BY prefix {order} LIMIT 1) FROM found WHERE after IS NOT NULL) SELECT after FROM found"
)
"""Jumps from kind to kind of `donewhen.kind.thread` in the index; "/" follows all that has a kind and its dot."""
_KIND = "rtrim(prefix, replace(prefix, '.', ''))"
SQLITE_KINDS = _KINDS.format(kind=_KIND, more=">", less="<", order="")
POSTGRES_KINDS = _KINDS.format(kind=_KIND, more="~>~", less="~<~", order="USING ~<~")


def forgetting(
    thread_ids: Sequence[str], tables: Sequence[str], kinds: Sequence[tuple[str | None]]
) -> Iterator[tuple[str, list[str]]]:
    """The statements that delete threads and their entries in `("donewhen", kind, label(thread_id))`."""
    if not thread_ids:
        return
    marks = ", ".join("?" * len(thread_ids))
    labels = [escaped((label(thread_id),))[0] for thread_id in thread_ids]
    for (after,) in kinds:
        if after and after.endswith("/"):
            prefixes = [f"{after[:-1]}.{each}" for each in labels]
            yield f"DELETE FROM store WHERE prefix IN ({marks})", prefixes
    for table in (*tables, "donewhen_threads"):
        yield f"DELETE FROM {table} WHERE thread_id IN ({marks})", [*thread_ids]
