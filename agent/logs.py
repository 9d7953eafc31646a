"""Logging with the standard library: one logger per package, as lines or JSON; off by default.

`donewhen.graph` logs runs, `donewhen.server` refusals, `donewhen.tools` the search for tools, `donewhen.work` workers.
"""

import json
import logging
from datetime import UTC, datetime

from donewhen.state.errors import ConfigError

LEVELS = ("debug", "info", "warning", "error")


def set_up(asked: str) -> None:
    """Log to stderr as DONEWHEN_LOG says: `json`, `text`, a level, or both as `json:debug`; "" logs only warnings.

    Raises ConfigError for anything else.
    """
    # The MCP SDK logs a traceback for each line that is no message; `donewhen.tools` warns of it in one line.
    logging.getLogger("mcp.client").setLevel(logging.CRITICAL)
    if not asked:
        if logging.lastResort and not logging.getLogger().handlers:
            logging.getLogger("donewhen").addHandler(logging.lastResort)
        return
    words = asked.strip().lower().split(":")
    if unknown := [word for word in words if word not in ("json", "text", *LEVELS)]:
        raise ConfigError(f"DONEWHEN_LOG is {asked!r}; {unknown[0]!r} is none of json, text, {', '.join(LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if "json" in words else logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("donewhen")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(next((word for word in words if word in LEVELS), "info").upper())


class JsonLines(logging.Formatter):
    """Formats one object per line: `time`, `level`, `logger`, `message`, and the fields of an event."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        row = {"time": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        row |= getattr(record, "event", {})
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, ensure_ascii=False, default=str)
