"""All exceptions, as one tree below DoneWhenError; the frequent ones are in `donewhen` too."""

from donewhen.state.errors import (
    ConfigError,
    DoneWhenError,
    GoalError,
    ModelError,
    PlanError,
    ResumeError,
    ScheduleError,
    StaleAnswer,
    StorageError,
    ThreadBusy,
    ThreadWaiting,
    ToolError,
    ToolMissing,
    UnknownThread,
)

__all__ = [
    "ConfigError", "DoneWhenError", "GoalError", "ModelError", "PlanError", "ResumeError", "ScheduleError",
    "StaleAnswer", "StorageError", "ThreadBusy", "ThreadWaiting", "ToolError", "ToolMissing", "UnknownThread",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
