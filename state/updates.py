"""Updates of state, put together outside of LangGraph exactly as its channels would: one table of reducers."""

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from langgraph.channels import DeltaChannel
from langgraph.types import Overwrite

from donewhen.state.channels import FIELDS, shortened
from donewhen.state.graph_state import Json, Planning, RunState, Step

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
"""State key → how a write joins the value; a key without one is replaced."""
MERGED = {
    key
    for key, hint in get_type_hints(Step, include_extras=True).items()
    if FIELDS in getattr(hint, "__metadata__", ())
}
"""Keys whose values are merged field by field."""


def applied(values: Mapping[str, Any], update: Mapping[str, Any]) -> Json:
    """The values after an update."""
    return {**values, **{key: _joined(key, values.get(key), write) for key, write in update.items()}}


def together(first: Mapping[str, Any], second: Mapping[str, Any]) -> Json:
    """One update that does what two, one after the other, would do."""
    both = {key: _joined(key, first[key], write) for key, write in second.items() if key in first}
    return {**first, **second, **both}


def persisting(old: Mapping[str, Any], new: Mapping[str, Any], update: Mapping[str, Any] | None) -> Json:
    """The update of a node that was given `new` while `old` is stored: what differs is written with it."""
    changed = {key: value for key, value in new.items() if key not in old or old[key] != value}
    whole = applied(new, {key: write for key, write in (update or {}).items() if key in changed})
    written = {key: Overwrite(whole[key]) if key in REDUCERS else whole[key] for key in changed}
    return {**(update or {}), **written}


def effective(values: Mapping[str, Any], update: Mapping[str, Any] | None) -> Json:
    """The update without what changes nothing: values that are there already, and nothing to be added to them."""
    changed = {key: _changed(key, values.get(key), write) for key, write in (update or {}).items()}
    return {key: write for key, write in changed.items() if key not in values or not _idle(key, values, write)}


def as_stored(update: Json) -> Json:
    """An update whose transcript LangGraph does not take for messages to be streamed to chat clients.

    One that was shortened is stored whole, so that nothing before it is read again.
    """
    if not isinstance(rounds := update.get("transcript"), list):
        return update
    return {**update, "transcript": Overwrite(rounds) if shortened(rounds) else {"add": rounds}}


def _changed(key: str, value: Any, write: Any) -> Any:
    """Of fields that are merged, those that are not as they were."""
    if key not in MERGED or not value or not isinstance(write, Mapping):
        return write
    return {name: item for name, item in write.items() if name not in value or value[name] != item}


def _idle(key: str, values: Mapping[str, Any], write: Any) -> bool:
    if key not in REDUCERS:
        return bool(write == values[key])
    return not write and not isinstance(write, Overwrite) and bool(_joined(key, values[key], write) == values[key])


def _joined(key: str, value: Any, write: Any) -> Any:
    if isinstance(write, Overwrite):
        return write.value
    return REDUCERS[key](value, write) if key in REDUCERS else write
