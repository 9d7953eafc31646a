"""What of a node's update is written: what changes something."""

from typing import Any

from langgraph.types import Overwrite

from donewhen.state.updates import applied, effective


def test_what_changes_nothing_is_not_written() -> None:
    """K7: a value that is there already, and nothing to be added to a list or a dict."""
    values: dict[str, Any] = {
        "decision": None,
        "journal": [{"id": "s1.1"}],
        "files": {"a": "1"},
        "spent": {"rounds": 1},
    }
    assert effective(values, {"decision": None, "journal": [], "files": {"a": "1"}, "spent": {}}) == {}
    assert effective(values, {"journal": Overwrite([])}) == {"journal": Overwrite([])}
    assert effective({}, {"decision": None, "journal": []}) == {"decision": None, "journal": []}


def test_of_a_record_only_the_fields_that_changed_are_written() -> None:
    """K7: a round changes a few of thirty fields; what comes of it is the same."""
    values: dict[str, Any] = {"record": {"rounds": 1, "status": "running", "calls": []}}
    update = {"record": {"rounds": 2, "status": "running", "calls": [{"name": "look"}], "observed": 1}}
    written = effective(values, update)
    assert written == {"record": {"rounds": 2, "calls": [{"name": "look"}], "observed": 1}}
    assert applied(values, written)["record"] == update["record"]
    assert effective({"record": {}}, update) == update
