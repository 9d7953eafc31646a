"""Steps that depend on each other: what runs beside what, who waits for whom, and plans of the largest size."""

import os
from typing import Any

from donewhen import Settings
from donewhen.testing import ScriptedModel, ask_user, call, finish_step, submit_plan
from tests.kit.flows import FREE, Flow, play, say_done, steps


def look(x: str = "") -> str:
    """Look at something."""
    return f"seen {x}"


def send(x: str = "") -> str:
    """Send something."""
    return f"sent {x}"


EFFECTS = {"look": "read", "send": "write"}


def order(flow: Flow) -> list[str]:
    """When steps began (+) and ended (-)."""
    kinds = {"step_started": "+", "step_finished": "-"}
    return [f"{kinds[e['type']]}{e['step']}" for e in flow.events if e["type"] in kinds]


def at_once(flow: Flow) -> int:
    """The most steps that were under way at the same time."""
    under_way = most = 0
    for moved in order(flow):
        under_way += 1 if moved.startswith("+") else -1
        most = max(most, under_way)
    return most


async def test_a_diamond_runs_its_branches_side_by_side() -> None:
    """M12, P08: both branches start together after what they need, and what needs both starts after both."""
    plan = [{"content": id, "id": id, "depends_on": needs, "tools": []} for id, needs in DIAMOND.items()]
    flow = await play(steps(plan, {id: [finish_step(id, f"{id}.result")] for id in DIAMOND}))
    assert flow.status == "answered"
    moved = order(flow)
    assert moved[:4] == ["+a", "-a", "+b", "+c"]
    assert moved[-2:] == ["+d", "-d"]


DIAMOND: dict[str, list[str]] = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}


async def test_writers_run_alone_unless_declared_independent() -> None:
    """DESIGN 2: steps that may write run one after the other; declared free, together."""
    work = {id: [call("send", x=id), finish_step("sent", f"{id}.1")] for id in ("s1", "s2")}
    for declared, most in ((None, 1), ([], 2)):
        plan = [{"content": f"send {n}", "tools": ["send"], "depends_on": declared} for n in (1, 2)]
        flow = await play(steps(plan, work), [send], effects=EFFECTS, settings={**FREE, "approvals": "plan"})
        assert (flow.status, at_once(flow)) == ("completed", most)


async def test_a_step_that_waits_for_a_person_stops_nobody() -> None:
    """DESIGN 2, P08: while one branch asks, the other runs to its end, with all that builds on it."""
    needs: dict[str, list[str]] = {"s1": [], "s2": [], "s3": ["s2"], "s4": ["s1", "s3"]}
    plan = [{"content": id, "depends_on": of, "tools": []} for id, of in needs.items()]
    work: dict[str, Any] = {id: [finish_step(id, f"{id}.result")] for id in needs}
    work["s1"] = [ask_user("Which colour?"), *work["s1"]]
    flow = await play(steps(plan, work), answers=[])
    assert flow.status == "waiting"
    statuses = {id: flow.step(id)["status"] for id in needs}
    assert statuses == {"s1": "waiting", "s2": "done", "s3": "done", "s4": "pending"}
    assert (await play(steps(plan, work), answers=["red"])).status == "answered"


def large(needs: dict[str, list[str]]) -> ScriptedModel:
    """A plan of steps that each say their own name."""
    plan = submit_plan([{"id": id, "content": f"say {id}", "depends_on": of} for id, of in needs.items()])
    finish = lambda messages, _: finish_step(*[f"{_step(messages)}{end}" for end in ("", ".result")])  # noqa: E731
    return ScriptedModel(roles={"triage": [plan], "execute": finish, "deliver": say_done})


def _step(messages: Any) -> str:
    return str(messages[1].text.split('<step id="')[1].split('"')[0])


async def test_long_chains_and_sixty_four_steps_at_once() -> None:
    """P09, R09: a long chain and a wide fan come to their ends."""
    length = 400 if "EVERY" in os.environ else 200  # make fuzz plays the longest plan that is allowed
    settings = Settings(confirm="never", max_steps=length, max_parallel=64, limits={"rounds": length + 50})
    chain = {f"s{n}": [f"s{n - 1}"] if n > 1 else [] for n in range(1, length + 1)}
    fan: dict[str, list[str]] = {"s1": [], **{f"s{n}": ["s1"] for n in range(2, 80)}}
    fan["s80"] = list(fan)
    for needs, most in ((chain, 1), (fan, 64)):
        flow = await play(large(needs), settings=settings)
        assert (flow.status, len(flow.run.steps), at_once(flow)) == ("answered", len(needs), most)
