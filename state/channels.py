"""Reducers of the run's state, and the channel types whose histories grow linearly in storage."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from langchain_core.messages import AnyMessage
from langgraph.channels import DeltaChannel

from donewhen.state.private_langgraph import messages_delta_reducer
from donewhen.state.records import JournalEntry, StepRecord

Item = TypeVar("Item")
SNAPSHOT_EVERY = 250
"""The number of writes between two full copies; checkpoints in between store only what was appended."""
EARLIER = "earlier_rounds"
"""The id of the note that replaces rounds for which a prompt has no room."""


def append(state: Sequence[Item] | None, writes: Sequence[Any]) -> list[Item]:
    """Concatenate all writes; `Overwrite` starts over."""
    return [*(state or []), *(item for write in writes for item in write or [])]


def is_shortened(rounds: Sequence[Any]) -> bool:
    """Return whether rounds begin with the note about earlier ones. Servers that show a state read mappings."""
    first = rounds[0] if rounds else {}
    return (first.get("id") if isinstance(first, Mapping) else first.id) == EARLIER


def append_rounds(state: Sequence[AnyMessage] | None, writes: Sequence[Any]) -> list[AnyMessage]:
    """Append; rounds that begin with the note about earlier ones replace everything before."""
    result = list(state or ())
    for write in writes:
        rounds = write["add"] if isinstance(write, Mapping) else write
        if is_shortened(rounds):
            result.clear()
        result += rounds
    return result


def append_by_key(
    state: Mapping[str, Sequence[AnyMessage]] | None, writes: Sequence[Mapping[str, Sequence[AnyMessage]] | None]
) -> dict[str, list[AnyMessage]]:
    """Append to the rounds under each key."""
    result = {key: list(rounds) for key, rounds in (state or {}).items()}
    for write in writes:
        for key, rounds in (write or {}).items():
            result[key] = append_rounds(result.get(key), [rounds])
    return result


def merge(state: Mapping[str, Any] | None, writes: Sequence[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Merge shallowly, so that a writer names only the keys that it changes."""
    result = dict(state or {})
    for write in writes:
        result.update(write or {})
    return result


def merge_rows(state: Sequence[dict[str, Any]] | None, writes: Sequence[Sequence[dict[str, Any]]]) -> list[Any]:
    """Replace rows by their id, and append new ones."""
    rows = {row["id"]: row for write in (state or [], *writes) for row in write}
    return list(rows.values())


def merge_records(state: Mapping[str, Any] | None, *updates: Mapping[str, Any] | None) -> dict[str, Any]:
    """Merge step records field by field, so that a writer names only the fields that it changes."""
    result = dict(state or {})
    for update in updates:
        for key, record in (update or {}).items():
            result[key] = {**result.get(key, {}), **record}
    return result


def keep_last(state: Any, writes: Sequence[Any]) -> Any:
    """Return the last write."""
    return writes[-1]


_DELTA: Any = DeltaChannel
Entries = Annotated[list[dict[str, Any]], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
Journal = Annotated[list[JournalEntry], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
Messages = Annotated[list[AnyMessage], _DELTA(messages_delta_reducer, snapshot_frequency=SNAPSHOT_EVERY)]
"""The conversation. LangGraph assigns ids only for its own reducer, which cannot remove all messages at once."""
Rows = Annotated[list[dict[str, Any]], _DELTA(merge_rows, snapshot_frequency=SNAPSHOT_EVERY)]
FIELDS = _DELTA(merge, snapshot_frequency=SNAPSHOT_EVERY)
Files = Annotated[dict[str, str], FIELDS]
Transcript = Annotated[list[AnyMessage], _DELTA(append_rounds, snapshot_frequency=SNAPSHOT_EVERY)]
Transcripts = Annotated[dict[str, list[AnyMessage]], _DELTA(append_by_key, snapshot_frequency=SNAPSHOT_EVERY)]
Claims = Annotated[list[str], _DELTA(append, snapshot_frequency=SNAPSHOT_EVERY)]
StepRecords = Annotated[
    dict[str, StepRecord],
    _DELTA(lambda state, writes: merge_records(state, *writes), snapshot_frequency=SNAPSHOT_EVERY),
]
SELDOM = _DELTA(keep_last, snapshot_frequency=SNAPSHOT_EVERY)
"""For large values that are seldom written: stored where they were written, not in every later checkpoint."""
SeldomDict = Annotated[dict[str, Any], SELDOM]
SeldomList = Annotated[list[Any], SELDOM]
SeldomText = Annotated[str, SELDOM]
