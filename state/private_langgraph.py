"""Every private name of LangGraph that this project uses. No other file imports one, and pyproject.toml allows only the
versions of LangGraph that it was tested with."""

from langgraph.checkpoint.serde.jsonplus import _msgpack_ext_hook as revive
from langgraph.checkpoint.serde.types import _DeltaSnapshot as DeltaSnapshot
from langgraph.graph.message import _messages_delta_reducer as messages_delta_reducer
from langgraph.pregel._messages import StreamMessagesHandler, StreamMessagesHandlerV2, graph_namespace

__all__ = [
    "DeltaSnapshot",
    "StreamMessagesHandler",
    "StreamMessagesHandlerV2",
    "graph_namespace",
    "messages_delta_reducer",
    "revive",
]

READ_KEY = "__pregel_read"
"""Key of a task's configuration: reads the state of the task's graph. Nested graphs see it too."""
CHECKPOINTER_KEY = "__pregel_checkpointer"
"""Key of a task's configuration: the checkpointer of the task's graph."""
STRICT_RESUME_KEY = "__pregel_strict_resume"
"""Key of a call's configuration: answering an interrupt that is not open is an error."""
OVERRIDDEN: dict[str, tuple[str, ...]] = {
    "langgraph.checkpoint.postgres.aio:AsyncPostgresSaver": ("_cursor", "_dump_blobs", "_dump_writes"),
    "langgraph.store.postgres.aio:AsyncPostgresStore": (
        "_cursor",
        "_execute_batch",
        "_batch_get_ops",
        "_batch_put_ops",
        "_get_batch_GET_ops_queries",
    ),
    "langgraph.store.memory:InMemoryStore": ("_data",),
    "langgraph.store.base.batch:AsyncBatchedBaseStore": ("_task",),
}
"""Private attributes that `agent/storage` uses or overrides, by class."""
