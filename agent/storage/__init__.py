"""The storage of runs: checkpointer and store behind one URL, and one worker per thread."""

from donewhen.agent.storage.engines import open_storage, parse_url
from donewhen.agent.storage.storage import Storage
from donewhen.agent.storage.table import CUT_OFF

__all__ = ["CUT_OFF", "Storage", "open_storage", "parse_url"]
