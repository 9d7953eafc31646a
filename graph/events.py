"""What a run tells while it works: typed events on the custom stream. Nothing depends on anybody listening."""

from collections.abc import Callable, Mapping
from typing import Any

from langgraph.runtime import Runtime

from donewhen.state.settings import Settings


def emit(runtime: Runtime[Settings], type: str, **fields: Any) -> None:
    """Send one event `{"type": …, …}` to whoever streams `custom`."""
    runtime.stream_writer({"type": type, **fields})


def sayer(runtime: Runtime[Settings], step: str | None) -> Callable[[str], None]:
    """Speech of the planner (`None`) or of a step, as it is produced."""
    return lambda text: emit(runtime, "speech", step=step, text=text)


def answerer(runtime: Runtime[Settings]) -> Callable[[str], None]:
    """The run's answer, as it is written; marked `answer`, for it comes whole with the outcome too."""
    return lambda text: emit(runtime, "speech", step=None, text=text, answer=True)


def retracter(runtime: Runtime[Settings], step: str | None) -> Callable[[], None]:
    """The speech of a reply that broke off is void; it comes again from the start."""
    return lambda: emit(runtime, "speech_restarted", step=step)


def observed(runtime: Runtime[Settings], entry: Mapping[str, Any]) -> None:
    """A tool answered."""
    fields = {key: entry[key] for key in ("id", "step", "tool", "ok", "seconds")}
    emit(runtime, "observation", **fields, text=entry["text"][:300])


def charged(runtime: Runtime[Settings], step: str | None, spent: Mapping[str, float]) -> None:
    """Something was spent, by planning (`None`) or by a step, since it was last said; `spent` events tell the sums."""
    if spent:
        emit(runtime, "charged", step=step, spent=dict(spent))
