"""The types of what runs are given, return and emit, for annotations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.conversation import Conversation
    from donewhen.agent.options import Options, StartOptions
    from donewhen.agent.plans.templates import PlanTemplate
    from donewhen.agent.run import RunStatus
    from donewhen.agent.stream import RunStream
    from donewhen.agent.undo import UndoneChange, UndoReport
    from donewhen.agent.work.day_budgets import BudgetRow
    from donewhen.agent.work.schedules import ScheduleInfo
    from donewhen.agent.work.thread_rows import Page, ThreadInfo
    from donewhen.agent.work.worker import StorageStatus, Worker
    from donewhen.state.events import Event, event_schema
    from donewhen.state.plan.plan import PlanJson
    from donewhen.state.proof.receipt import Outcome, Receipt
    from donewhen.state.records import JournalEntry, Pause, StepRecord

__all__ = [
    "BudgetRow", "Conversation", "Event", "JournalEntry", "Options", "Outcome", "Page", "Pause", "PlanJson",
    "PlanTemplate", "Receipt", "RunStatus", "RunStream", "ScheduleInfo", "StartOptions", "StepRecord",
    "StorageStatus", "ThreadInfo", "UndoReport", "UndoneChange", "Worker", "event_schema",
]  # fmt: skip
_HOME = {
    "Conversation": "agent.conversation",
    **dict.fromkeys(("Options", "StartOptions"), "agent.options"),
    "PlanTemplate": "agent.plans.templates",
    "RunStatus": "agent.run",
    "RunStream": "agent.stream",
    **dict.fromkeys(("UndoReport", "UndoneChange"), "agent.undo"),
    "BudgetRow": "agent.work.day_budgets",
    "ScheduleInfo": "agent.work.schedules",
    **dict.fromkeys(("Page", "ThreadInfo"), "agent.work.thread_rows"),
    **dict.fromkeys(("StorageStatus", "Worker"), "agent.work.worker"),
    **dict.fromkeys(("Event", "event_schema"), "state.events"),
    "PlanJson": "state.plan.plan",
    **dict.fromkeys(("Outcome", "Receipt"), "state.proof.receipt"),
    **dict.fromkeys(("JournalEntry", "Pause", "StepRecord"), "state.records"),
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"donewhen.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
