"""What an answer changes, as plain functions: updates of a run, ids of pauses, several answers as one update."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from langgraph.types import Overwrite

from donewhen.graph.pauses.pause import OpenQuestion, is_pause_id
from donewhen.graph.people.pauses import with_id
from donewhen.state.channels import apply_update, combine_updates, with_migration

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

updates = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.integers())),
        "spent": st.dictionaries(st.sampled_from(["rounds", "replans"]), st.integers(0, 9)),
        "journal": st.lists(st.integers(), max_size=2),
        "approvals": st.lists(st.integers(), max_size=2),
        "plan": st.integers(),
        "todos": st.lists(st.fixed_dictionaries({"id": st.integers(0, 3)}), max_size=2),
    },
)


def replacing(update: dict[str, Any]) -> Any:
    """Any values of an update may replace what there is, and not be added to it."""
    keys = st.sets(st.sampled_from(sorted(update))) if update else st.just(set())
    return keys.map(lambda some: {key: Overwrite(value) if key in some else value for key, value in update.items()})


@given(updates, updates.flatmap(replacing), updates.flatmap(replacing))
def test_two_updates_are_one(values: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> None:
    """C07, Q54: several answers taken together change what they would change one after the other."""
    assert apply_update(values, combine_updates(first, second)) == apply_update(apply_update(values, first), second)


@given(updates, updates, updates)
def test_a_migration_is_stored_with_the_update(
    old: dict[str, Any], new: dict[str, Any], update: dict[str, Any]
) -> None:
    """R06: what the node saw and what it changed is what is stored, whatever was stored before."""
    new = {**old, **new}
    assert apply_update(old, with_migration(old, new, update)) == apply_update(new, update)
