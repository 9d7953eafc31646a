"""What an answer changes, as plain functions: updates of a run, ids of pauses, several changes as one update."""

from functools import reduce
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.types import Overwrite

from donewhen.graph.pauses.pause import OpenQuestion, is_pause_id
from donewhen.graph.people.pauses import with_id
from donewhen.state.channels import apply_update, difference

# --- ids


@given(st.integers(1, 3), st.integers(0, 3), st.sampled_from(["s2.q1", "plan@2.q1", f"confirm.{'0' * 16}"]))
def test_no_two_questions_of_a_thread_have_one_id(turn: int, times: int, id: str) -> None:
    """C04: asked again, or asked in a later request, it is another question; naming it twice changes nothing."""
    asked = OpenQuestion(id=id)
    decided = [
        {
            "id": with_id({"turn": turn, "approvals": [{"id": id, "decision": "x"}] * n}, asked).id,
            "decision": "x",
        }
        for n in range(times)
    ]
    values = {"turn": turn, "approvals": decided}
    pause = with_id(values, asked)
    assert is_pause_id(pause.id)
    assert pause.id not in [row["id"] for row in decided]
    assert with_id(values, pause) == pause
    assert with_id({**values, "turn": turn + 1, "approvals": []}, asked).id != pause.id


# --- updates

entries = st.lists(st.fixed_dictionaries({"text": st.integers()}), max_size=2)
updates = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.integers())),
        "spent": st.dictionaries(st.sampled_from(["rounds", "replans"]), st.integers(0, 9)),
        "journal": entries,
        "approvals": entries,
        "plan": st.integers(),
        "todos": st.lists(st.fixed_dictionaries({"id": st.integers(0, 3)}), max_size=2),
    },
)


def replacing(update: dict[str, Any]) -> Any:
    """Any values of an update may replace what there is, and not be added to it."""
    keys = st.sets(st.sampled_from(sorted(update))) if update else st.just(set())
    return keys.map(lambda some: {key: Overwrite(value) if key in some else value for key, value in update.items()})


values = st.lists(updates.flatmap(replacing), max_size=3).map(lambda parts: reduce(apply_update, parts, {}))


@given(values, updates.flatmap(replacing), updates.flatmap(replacing))
def test_the_difference_is_all_that_a_node_changed(
    values: dict[str, Any], first: dict[str, Any], second: dict[str, Any]
) -> None:
    """C07, Q54, Q89, R06: changes made one after the other, by several answers or by a migration, are stored as one
    update of LangGraph's channels, and nothing is stored of what is the same."""
    after = apply_update(apply_update(values, first), second)
    written = difference(values, after)
    stored = apply_update(values, written)
    assert _without_empty(stored) == _without_empty(after)
    assert difference(stored, after) == {}


def _without_empty(values: dict[str, Any]) -> dict[str, Any]:
    """Channels begin empty."""
    return {key: value for key, value in values.items() if value not in ([], {})}
