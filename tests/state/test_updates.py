"""What of a node's update is written: what changes something."""

from typing import Any

from langgraph.types import Overwrite

from donewhen.state.updates import apply_update, reduce_update


def test_what_changes_nothing_is_not_written() -> None:
    """K7: a value that is there already, and nothing to be added to a list or a dict."""
    values: dict[str, Any] = {
        "decision": None,
        "journal": [{"id": "s1.1"}],
        "files": {"a": "1"},
        "spent": {"rounds": 1},
    }
    assert reduce_update(values, {"decision": None, "journal": [], "files": {"a": "1"}, "spent": {}})[0] == {}
    assert reduce_update(values, {"journal": Overwrite([])})[0] == {"journal": Overwrite([])}
    assert reduce_update({}, {"decision": None, "journal": []})[0] == {"decision": None, "journal": []}


def test_of_a_record_only_the_fields_that_changed_are_written() -> None:
    """K7: a round changes a few of thirty fields; what comes of it is the same."""
    values: dict[str, Any] = {"record": {"rounds": 1, "status": "running", "calls": []}}
    update = {"record": {"rounds": 2, "status": "running", "calls": [{"name": "look"}], "observed": 1}}
    written, _ = reduce_update(values, update)
    assert written == {"record": {"rounds": 2, "calls": [{"name": "look"}], "observed": 1}}
    assert apply_update(values, written)["record"] == update["record"]
    assert reduce_update({"record": {}}, update)[0] == update
