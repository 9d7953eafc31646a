"""What a new plan takes back of finished work: exactly what is replaced, and what was built on it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.plan.order import built_on, circle_of, needs_of
from donewhen.state.plan.reopening import joined, work_of
from donewhen.state.plan.steps import fresh_records


@st.composite
def plans(draw: Any) -> dict[str, Any]:
    """A plan of up to twelve steps, each of which depends on some before it, on all of them, or on none."""
    steps: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        earlier = [step["id"] for step in steps]
        needs = draw(st.none() | st.lists(st.sampled_from(earlier), unique=True) if earlier else st.none())
        steps.append({"id": f"s{number}", "content": f"do {number}", "depends_on": needs})
    return {"steps": steps}


def reaches(plan: dict[str, Any], start: str, end: str) -> bool:
    """Whether a step needs another, directly or not: the definition, step by step."""
    return any(need == end or reaches(plan, need, end) for need in needs_of(plan)[start])


@given(plans(), st.data())
def test_exactly_what_was_built_on_it_is_done_again(plan: dict[str, Any], data: Any) -> None:
    """M3, P17: of finished steps, those replaced go, those built on them are reopened, all others stay as they are."""
    ids = [step["id"] for step in plan["steps"]]
    done = set(data.draw(st.sets(st.sampled_from(ids), min_size=1)))
    for id in ids:  # what is done has what it needs done
        done -= {id} if any(need not in done for need in needs_of(plan)[id]) else set()
    redone = data.draw(st.sets(st.sampled_from(sorted(done)))) if done else set()
    finished = {step["id"]: step for step in plan["steps"] if step["id"] in done}
    new = [{"id": f"{id}b", "content": f"redo {id}", "depends_on": []} for id in sorted(redone)]
    new.append({"id": "t1", "content": "the rest", "depends_on": sorted(done)})
    replaces = {f"{id}b": [id] for id in redone}
    found = joined({"steps": new, "replaces": replaces}, plan, finished)
    assert isinstance(found, tuple)
    whole, stale = found
    built = {id for id in done - redone if any(reaches(plan, id, old) for old in redone)}
    assert set(stale) & done == redone | built
    after = {step["id"]: step for step in whole["steps"]}
    assert set(after) == (done - redone) | set(replaces) | {"t1"}
    assert all(after[id] == finished[id] for id in done - redone - built)
    assert not circle_of(whole["steps"])
    named = {need for step in whole["steps"] for need in step["depends_on"] or ()}
    assert named <= set(after)
    records = {id: {"status": "done", "attempt": 1, "observed": 3, "result": id} for id in done}
    fresh = fresh_records(whole, records, plan, stale)
    assert set(fresh) == built | set(replaces) | {"t1"}
    assert all(fresh[id]["attempt"] == 2 and fresh[id]["observed"] == 3 for id in built)


def test_what_is_done_again_waits_for_what_takes_its_place() -> None:
    """P17: a replacing step that needs what was built on the old one would be a circle: it is said, not guessed."""
    plan = {
        "steps": [{"id": "s1", "content": "a", "depends_on": []}, {"id": "s2", "content": "b", "depends_on": ["s1"]}]
    }
    finished = {step["id"]: step for step in plan["steps"]}
    new = {"steps": [{"id": "s1b", "content": "a again", "depends_on": ["s2"]}], "replaces": {"s1b": ["s1"]}}
    found = joined(new, plan, finished)
    assert isinstance(found, list)
    assert "s1b → s2 → s1b" in found[0] or "s2 → s1b → s2" in found[0]


def test_the_same_work_has_the_same_name_whatever_its_ids() -> None:
    """M7: ids, spacing and the order of names do not make another plan; content, tools and dependencies do."""
    last: dict[str, Any] = {"id": "s2", "content": "c", "tools": ["x", "y"], "depends_on": ["s1"]}
    one: dict[str, Any] = {"steps": [{"id": "s1", "content": "a  B"}, last]}
    other = {**last, "id": "t9", "tools": ["y", "x"], "depends_on": ["t8"]}
    two = {"steps": [{"id": "t8", "content": "A b"}, other]}
    assert work_of(one, ()) == work_of(two, ())
    assert work_of(one, ()) != work_of({"steps": [one["steps"][0], {**last, "depends_on": []}]}, ())
    assert work_of(one, {"s1"}) != work_of(one, ())


def test_built_on_knows_plans_that_declare_nothing() -> None:
    """P08: a step that declares nothing is built on all before it."""
    plan = {"steps": [{"id": "s1"}, {"id": "s2", "depends_on": []}, {"id": "s3"}]}
    assert built_on(plan, ["s1"]) == ["s3"]
    assert built_on(plan, ["s2"]) == ["s3"]
    assert built_on(plan, ["s3"]) == []
