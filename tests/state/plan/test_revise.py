"""A new plan in place of an approved one: what is not named stays; exactly what is replaced is done again."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.plan.order import find_circle, needs_of
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.plan.steps import fresh_records
from donewhen.state.statuses import fresh_record


@st.composite
def plans(draw: Any) -> dict[str, Any]:
    """A plan of up to twelve steps, each of which depends on some before it, on all of them, or on none."""
    steps: list[dict[str, Any]] = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        earlier = [step["id"] for step in steps]
        needs = draw(st.none() | st.lists(st.sampled_from(earlier), unique=True) if earlier else st.none())
        steps.append({"id": f"s{number}", "content": f"do {number}", "depends_on": needs, "done_when": [f"{number}!"]})
    plan = read_plan({"title": "t", "steps": steps, "done_when": ["all of it"]}, Rules())
    assert isinstance(plan, dict)
    return plan


def reaches(plan: dict[str, Any], start: str, end: str) -> bool:
    """Whether a step needs another, directly or not: the definition, step by step."""
    return any(need == end or reaches(plan, need, end) for need in needs_of(plan)[start])


@given(plans(), st.data())
def test_exactly_what_was_built_on_it_is_done_again(plan: dict[str, Any], data: Any) -> None:
    """M3, P17, P22: of finished steps, those replaced go, those built on them are reopened; all others stay."""
    ids = [step["id"] for step in plan["steps"]]
    done = set(data.draw(st.sets(st.sampled_from(ids), min_size=1)))
    for id in ids:  # what is done has what it needs done
        done -= {id} if any(need not in done for need in needs_of(plan)[id]) else set()
    redone = data.draw(st.sets(st.sampled_from(sorted(done)))) if done else set()
    new = [{"id": f"{id}b", "content": f"redo {id}", "depends_on": [], "replaces": [id]} for id in sorted(redone)]
    new.append({"id": "t1", "content": "the rest", "depends_on": sorted(done)})
    finished = {step["id"]: step for step in plan["steps"] if step["id"] in done}
    whole = read_plan({"steps": new}, Rules(approved=plan, finished=finished, used=ids))
    assert isinstance(whole, dict), whole
    built = {id for id in done - redone if any(reaches(plan, id, old) for old in redone)}
    assert set(whole["change"]["stale"]) == redone | built
    before, after = ({step["id"]: step for step in each["steps"]} for each in (plan, whole))
    assert set(after) == (set(ids) - redone) | {f"{id}b" for id in redone} | {"t1"}
    assert all(after[id] == before[id] for id in done - redone - built)
    assert all(after[id]["done_when"] == before[id]["done_when"] for id in set(ids) - redone)
    goal = ["all of it"] if len(ids) > 1 else ["1!", "all of it"] if redone else []
    assert [criterion["text"] for criterion in whole["done_when"]] == goal
    assert not find_circle(whole["steps"])
    assert {need for step in whole["steps"] for need in step["depends_on"] or ()} <= set(after)
    records: Any = {id: {**fresh_record(), "status": "done", "observed": 3, "rounds": 1, "result": id} for id in done}
    fresh = fresh_records(whole, records, plan, whole["change"]["stale"])
    assert set(fresh) == set(after) - (done - redone - built)
    assert all(fresh[id]["attempt"] == 2 and fresh[id]["observed"] == 3 for id in built)


@given(plans(), st.data())
def test_open_steps_keep_their_order_and_needs(plan: dict[str, Any], data: Any) -> None:
    """P22: new steps take the place of a failed one; what was built on it is built on them, and all else stays."""
    ids = [step["id"] for step in plan["steps"]]
    failed = data.draw(st.sampled_from(ids))
    whole = read_plan({"steps": [{"content": "another way"}]}, Rules(approved=plan, failed=[failed], used=ids))
    assert isinstance(whole, dict), whole
    (new,) = {step["id"] for step in whole["steps"]} - set(ids)
    assert [step["id"] for step in whole["steps"]] == [new if id == failed else id for id in ids]
    for step, before in zip(whole["steps"], plan["steps"], strict=True):
        if step["id"] != new and before["depends_on"] is not None:
            assert step["depends_on"] == [new if id == failed else id for id in before["depends_on"]]


OLD = {
    "title": "Weather",
    "done_when": ["report.md holds both"],
    "steps": [
        {"id": "s1", "content": "sales", "depends_on": []},
        {"id": "s2", "content": "weather", "depends_on": ["s1"], "done_when": ["known"]},
        {"id": "s3", "content": "write", "depends_on": ["s2"], "done_when": ["written"], "tools": ["write"]},
    ],
}


def revised(steps: list[Any], *, failed: tuple[str, ...] = ("s2",), binding: bool = False, **plan: Any) -> Any:
    rules = Rules(tools=["write"])
    approved = read_plan(OLD, rules)
    assert isinstance(approved, dict)
    finished = {"s1": {"content": "sales"}}
    ids = ["s1", "s2", "s3"]
    more = {"approved": approved, "finished": finished, "failed": failed, "unfinished": {"s2": "weather"}, "used": ids}
    return read_plan({"steps": steps, **plan}, Rules(tools=["write"], binding=binding, **more))


def outline(plan: Any) -> list[tuple[str, str, Any]]:
    return [(step["id"], step["content"], step["depends_on"]) for step in plan["steps"]]


WRITE = ("s3", "write", ["s4"])


def test_a_change_is_read_as_what_it_names() -> None:
    """P22: by ids, in the place where it belongs; what differs in more than case and space is other work, as 10² is."""
    table: list[tuple[Any, Any]] = [
        ([{"content": "ask the airport"}], [("s4", "ask the airport", None), WRITE]),
        ([{"id": "s2b", "content": "ask the airport"}], [("s2b", "ask the airport", None), ("s3", "write", ["s2b"])]),
        ([{"id": "s2", "content": "Weather"}], [("s2", "Weather", ["s1"]), ("s3", "write", ["s2"])]),
        ([{"id": "s2", "content": "call them"}], [("s2b", "call them", None), ("s3", "write", ["s2b"])]),
        ([{"id": "s2", "content": "\uff37eather"}], [("s2b", "\uff37eather", None), ("s3", "write", ["s2b"])]),
        ([{"content": "tell", "replaces": ["s2", "s3"]}], [("s4", "tell", None)]),
        (
            [{"content": "a"}, {"content": "b"}],
            [("s4", "a", None), ("s5", "b", None), ("s3", "write", ["s4", "s5"])],
        ),
        (
            [{"content": "a", "replaces": ["s2"]}, {"id": "s3", "content": "write it big"}, {"content": "mail"}],
            [("s4", "a", None), ("s3", "write it big", ["s4"]), ("s5", "mail", None)],
        ),
    ]
    for steps, expected in table:
        plan = revised(steps)
        assert isinstance(plan, dict), plan
        assert outline(plan) == [("s1", "sales", []), *expected]
        assert [criterion["text"] for criterion in plan["done_when"]] == ["report.md holds both"]
    big = revised([{"id": "s3", "content": "write it big"}, {"content": "a", "replaces": ["s2"]}])
    kept = next(step for step in big["steps"] if step["id"] == "s3")
    assert (kept["content"], kept["tools"], kept["done_when"][0]["text"]) == ("write it big", ["write"], "written")


def test_what_cannot_be_meant_is_said() -> None:
    """P22, P08: nothing that was approved goes without a word."""
    why = {"why": "no use"}
    table: list[tuple[Any, Any, str]] = [
        ([{"id": "s3", "content": "write less"}], {}, "say what becomes of s2, which failed"),
        ([], {"drop": [{"what": "s2", **why}]}, "step s3 needs s2, which `drop` names"),
        ([{"content": "a"}], {"drop": [{"what": "s1", **why}]}, "s1 is finished and stays"),
        ([{"content": "a"}], {"drop": [{"what": "s9", **why}]}, "'s9' is no open step"),
        ([{"content": "a"}], {"drop": [{"what": "s3"}]}, "why"),
        ([{"id": "s3b", "content": "a"}], {}, "add `replaces: ['s3']`"),
        ([{"content": "a", "replaces": ["s8"]}], {}, "no step of the approved plan"),
        (
            [{"content": "a"}],
            {"drop": [{"what": "Report.md  holds both", **why}], "binding": True},
            "only the user can",
        ),
    ]
    for steps, more, said in table:
        found = revised(steps, **more)
        assert isinstance(found, list), found
        assert said in "; ".join(found)
    gone = revised([{"content": "a"}], drop=[{"what": "s3", **why}, {"what": "report.md HOLDS both", **why}])
    assert (outline(gone), gone["done_when"]) == ([("s1", "sales", []), ("s4", "a", None)], [])
    assert gone["change"]["dropped"] == {"s3": "no use", "report.md holds both": "no use"}


def test_what_is_done_again_waits_for_what_takes_its_place() -> None:
    """P17: a replacing step that needs what was built on the old one would be a circle: it is said, not guessed."""
    again = {"id": "s1b", "content": "sales again", "depends_on": ["s3"], "replaces": ["s1"]}
    found = revised([again], failed=())
    assert isinstance(found, list)
    assert "depend on each other" in found[0]
