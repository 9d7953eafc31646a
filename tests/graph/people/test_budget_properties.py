"""The ledger against the books of the world: any plan, any limits, any answers, cut off anywhere."""

import asyncio
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from donewhen import Run
from donewhen.agent.storage import open_storage
from tests.kit.living import ENDS, Cuts, People, live
from tests.kit.worlds import BOUGHT, Json, World, planned

MOVES = ["look", "look", "send", "consult", "mixed", "broken", "refused", "ask", "speak", "flaky", "give_up"]
SCRIPT = st.lists(st.tuples(st.sampled_from(MOVES), st.integers(1, 4)), min_size=1, max_size=5)
PLANNER = st.sampled_from([[], [], [], ["broken"], ["ask"], ["think"], ["ask", "think"], ["broken", "broken"]])
BUDGETS = ["suggested", "suggested", "little", "little", "little", "plenty", "replan", "deliver", "stop"]
AMOUNTS = {
    "rounds": st.integers(1, 12),
    "model_calls": st.integers(0, 14),
    "tool_calls": st.integers(0, 8),
    "input_tokens": st.integers(0, 2000),
    "cached_tokens": st.integers(0, 400),
    "output_tokens": st.integers(0, 200),
    "cost_usd": st.integers(0, 200).map(lambda cents: cents / 100),
    "questions": st.integers(0, 3),
    "replans": st.integers(0, 1),
}
LIMITS = st.lists(st.sampled_from(sorted(AMOUNTS)), unique=True, max_size=2).flatmap(
    lambda keys: st.fixed_dictionaries({key: AMOUNTS[key] for key in keys})
)


@st.composite
def steps(draw: st.DrawFn) -> list[Json]:
    """One to six steps with any dependencies, whose criteria are claimed, checked or judged."""
    plan = []
    for n in range(1, draw(st.integers(1, 6)) + 1):
        earlier = [f"s{m}" for m in range(1, n)]
        needs = (
            draw(st.sampled_from([None, []]) | st.lists(st.sampled_from(earlier), unique=True, max_size=2))
            if earlier
            else []
        )
        proof = draw(st.sampled_from(["seen", {"check": {}}, {"text": "judged", "judge": True}]))
        executor = draw(st.sampled_from([None, None, None, "scout", "worker", "crew"]))
        tools = (
            ["look"]
            if executor == "scout"
            else draw(st.sampled_from([["look", "consult"], ["look", "send", "consult"]]))
        )
        step = {"content": f"step {n}", "done_when": [proof], "tools": tools, "depends_on": needs}
        plan.append(planned(f"s{n}", step, **({"executor": executor} if executor else {})))
    return plan


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Any world."""
    sizes = draw(st.sampled_from([(1,), (1,), (1, 2, 3), (3, 1)]))
    return World(draw(steps()), draw(st.lists(SCRIPT, min_size=1, max_size=4)), draw(PLANNER), sizes)


@st.composite
def people(draw: st.DrawFn) -> People:
    """Anybody."""
    garbage = st.integers(0, 6).map("garbage{}".format)
    budgets = draw(st.lists(st.sampled_from(BUDGETS) | st.sampled_from(BUDGETS) | garbage, min_size=2, max_size=12))
    return People(
        budgets, draw(st.booleans()), draw(st.sampled_from(["stop", "replan", "retry", "deliver what there is"]))
    )


SETTINGS = st.fixed_dictionaries(
    {
        "limits": LIMITS.map(lambda drawn: {"rounds": 60, **drawn}),
        "step_limits": LIMITS.map(lambda drawn: {"rounds": 15, **drawn}),
        "confirm": st.sampled_from(["never", "never", "always"]),
        "on_exhausted": st.sampled_from(["ask", "ask", "ask", "deliver", "stop"]),
        "on_failure": st.sampled_from(["replan", "ask", "deliver"]),
        "on_question": st.sampled_from(["wait", "wait", "assume"]),
        "verification": st.sampled_from(["grounded", "grounded", "judged"]),
        "max_parallel": st.integers(1, 4),
    }
)


def check_books(world: World, crowd: People, run: Run, settings: Json) -> None:
    """Whatever happened: the limits held, and the ledger says what was really spent."""
    assert run.status in ENDS
    assert run.receipt is not None
    assert run.receipt["spent"] == run.spent
    for pause in crowd.pauses:
        check_question(pause, settings, exact=not world.process)
    lost, really = world.uncertain(), world.spent()
    limits = {"replans": 2, "questions": 20, **settings["limits"]}
    really["replans"] = run.spent.get("replans", 0)
    check_limits(world, really, limits, crowd.granted(), lost)
    for key in ("model_calls", "tool_calls", *BOUGHT):
        least = really.get(key, 0) - lost.get(key, 0)
        assert least - 1e-6 <= run.spent.get(key, 0) <= really.get(key, 0) + 1e-6, key
    assert len(crowd.questions) <= limits["questions"] + crowd.granted().get("questions", 0)
    for id, record in run.steps.items():
        check_limits(world, world.spent(id), settings["step_limits"], crowd.granted(id), lost)
        if not world.process:
            for key in ("model_calls", "tool_calls", *BOUGHT):
                assert record["spent"].get(key, 0) == pytest.approx(world.spent(id).get(key, 0)), (id, key)
    writes = [made for made in world.done if made.split()[0] in ("send", "worker", "crew")]
    assert all(world.done[made] == 1 for made in writes)
    if not world.process:
        assert all(n == 1 for made, n in world.done.items() if not made.startswith("holds")), world.done


def check_question(pause: Json, settings: Json, *, exact: bool) -> None:
    """A budget question tells the truth: limits with all that was granted, and what was really spent until then."""
    limits = settings["step_limits" if pause["step"] else "limits"]
    for row in pause.get("meter") or ():
        if row["key"] in limits:
            granted = pause["granted"].get(row["key"], 0)
            assert row["limit"] == pytest.approx(limits[row["key"]] + granted), row
        if exact and row["key"] in ("model_calls", "tool_calls", *BOUGHT):
            assert row["spent"] == pytest.approx(pause["really"].get(row["key"], 0)), row


def check_limits(world: World, really: Json, limits: Json, granted: Json, lost: Json) -> None:
    """Counted limits hold exactly; what is bought, but for the call in flight when the limit was reached.

    Calls of models side by side that nobody could expect to be so large may be more than one.
    """
    aside = 4 if any(move == "consult" for script in world.scripts for move, _ in script) else 1
    for key, limit in limits.items():
        most = limit + granted.get(key, 0) + lost.get(key, 0)
        if key in BOUGHT:
            expected = len(set(world.sizes)) == 1 and (aside == 1 or key in ("input_tokens", "cost_usd"))
            most += (1 if expected else aside * 4) * world.largest(key)
            most += 0.1 * aside if key == "cost_usd" else 0  # what they write cannot be told from the prompt
        if key != "questions":
            assert really.get(key, 0) <= most + 1e-6, (key, really.get(key, 0), most)


def some(share: float) -> Any:
    """A share of the profile's examples: whole runs take long, too long to look for a smaller one that fails too."""
    return examples(max_examples=int(examples().max_examples * share), phases=(Phase.reuse, Phase.generate))


@some(0.1)
@given(worlds(), people(), SETTINGS)
def test_any_run_keeps_its_limits_and_its_books(world: World, crowd: People, settings: Json) -> None:
    """X08, D03, R05: what was really spent stands in the ledger and stays within the limits and what was granted."""
    run = asyncio.run(live(world, crowd, open_storage("memory:"), settings))
    check_books(world, crowd, run, settings)


CUTS = st.builds(Cuts, st.lists(st.integers(1, 120), max_size=2), st.lists(st.integers(1, 25), max_size=2))


@some(0.1)
@given(worlds(), people(), SETTINGS, CUTS)
def test_cut_off_anywhere_it_keeps_its_limits_and_its_books(
    world: World, crowd: People, settings: Json, cuts: Cuts
) -> None:
    """R02, R05: a new agent on the same storage goes on; at most what was in flight is not in the ledger."""
    run = asyncio.run(live(world, crowd, open_storage("memory:"), settings, cuts))
    check_books(world, crowd, run, settings)


@pytest.mark.parametrize("calls", [4, 9.5])
@pytest.mark.parametrize(("key", "each"), [("input_tokens", 100), ("output_tokens", 10), ("cost_usd", 0.11)])
async def test_side_by_side_they_exceed_a_limit_by_one_call_together(key: str, each: float, calls: float) -> None:
    """X08, DESIGN 6: four steps at once may not each take the call that only one may."""
    plan = [planned(f"s{n}", {"content": "look", "done_when": ["seen"], "depends_on": []}) for n in range(1, 5)]
    world = World(plan, [[("look", 1)] * 9])
    limit = int(each * calls) if each >= 1 else each * calls
    settings = {"limits": {key: limit}, "step_limits": {}, "confirm": "never", "on_exhausted": "deliver"}
    run = await live(world, People([]), open_storage("memory:"), {**settings, "max_parallel": 4})
    assert run.status == "exhausted"
    assert limit <= world.spent()[key] + 1e-6
    assert world.spent()[key] <= limit + each + 1e-6
