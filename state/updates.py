"""Apply and combine state updates outside LangGraph exactly as its channels do, from one table of reducers."""

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from langgraph.channels import DeltaChannel
from langgraph.types import Overwrite

from donewhen.state.channels import FIELDS, is_shortened
from donewhen.state.run import Json, Planning, RunState, Step

Reducer = Callable[[Any, Any], Any]


def _reducer(annotation: Any) -> Reducer:
    if isinstance(annotation, DeltaChannel):
        return lambda value, write: annotation.reducer(value, [write])
    reducer: Reducer = annotation
    return reducer


REDUCERS: dict[str, Reducer] = {
    key: _reducer(hint.__metadata__[-1])
    for schema in (RunState, Planning, Step)
    for key, hint in get_type_hints(schema, include_extras=True).items()
    if getattr(hint, "__metadata__", None)
}
"""State key → its reducer; a key without one is replaced."""
MERGED = {
    key
    for key, hint in get_type_hints(Step, include_extras=True).items()
    if FIELDS in getattr(hint, "__metadata__", ())
}
"""Keys whose values are merged field by field."""


class Draft:
    """A state that a node changes in several parts, with the one combined update."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Start with the values of a state, which are not changed."""
        self.values: Json = dict(values)
        self.update: Json = {}

    def add(self, change: Mapping[str, Any]) -> None:
        """Apply an update to the values, and combine it with the earlier ones."""
        self.values = apply_update(self.values, change)
        self.update = combine_updates(self.update, change)


def apply_update(values: Mapping[str, Any], update: Mapping[str, Any]) -> Json:
    """Return the values after an update."""
    return {**values, **{key: _join(key, values.get(key), write) for key, write in update.items()}}


def combine_updates(first: Mapping[str, Any], second: Mapping[str, Any]) -> Json:
    """Return one update equal to two consecutive ones."""
    both = {key: _join(key, first[key], write) for key, write in second.items() if key in first}
    return {**first, **second, **both}


def reduce_update(
    seen: Mapping[str, Any], update: Mapping[str, Any] | None, stored: Mapping[str, Any] | None = None
) -> tuple[Json, Json]:
    """Return what an update writes, without what `stored` has already, and the state `seen` after it.

    `stored` is the content of the node's own checkpoints, if it sees more than that.
    """
    stored = seen if stored is None else stored
    written: Json = {}
    after = dict(seen)
    for key, write in (update or {}).items():
        before = stored.get(key)
        if key in MERGED and before and isinstance(write, Mapping):
            write = {name: item for name, item in write.items() if name not in before or before[name] != item}
        empty = not write and not isinstance(write, Overwrite)
        if key in stored and (key not in REDUCERS or empty) and _join(key, before, write) == before:
            continue
        written[key], after[key] = write, _join(key, seen.get(key), write)
    return written, after


def with_migration(old: Mapping[str, Any], new: Mapping[str, Any], update: Mapping[str, Any]) -> Json:
    """Return a node's update extended by the difference between the stored state and its migrated form."""
    changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
    whole = apply_update(new, {key: write for key, write in update.items() if key in changed})
    written = {key: Overwrite(whole[key]) if key in REDUCERS else whole[key] for key in changed}
    return {**update, **written}


def as_stored(update: Json) -> Json:
    """Return an update whose transcript LangGraph does not stream to chat clients as messages.

    A shortened transcript replaces the stored one, so that nothing before it is read again.
    """
    if not isinstance(rounds := update.get("transcript"), list):
        return update
    return {**update, "transcript": Overwrite(rounds) if is_shortened(rounds) else {"add": rounds}}


def _join(key: str, value: Any, write: Any) -> Any:
    if isinstance(write, Overwrite):
        return write.value
    return REDUCERS[key](value, write) if key in REDUCERS else write
