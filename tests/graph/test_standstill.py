"""A step that gets nowhere is noticed, and said: to the model, to the person who pays for it, and in the receipt."""

from typing import Any

from rich.console import Console

from donewhen.agent.cli.result import receipt_lines
from donewhen.agent.cli.screen.terminal import UNICODE_MARKS, Terminal
from donewhen.testing import ask_user, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, one_step, play, requests, steps

READ: Any = {"look": "read"}
SAME = call("look", what="a")


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


async def test_rounds_without_anything_new_are_noticed() -> None:
    """X11: speech and repeated results alike: said to the model, once to the user, and in the receipt, which has the
    longest row of such rounds and the calls that were repeated; `show` has both."""
    replies: list[Any] = [SAME, "Hm.", SAME, "Well.", "So.", SAME, "Oh.", call("look", what="b")]
    model = one_step([*replies, finish_step("ok", "s1.1")])
    flow = await play(model, [look], effects=READ)
    told = [m.messages[-1].text for m in requests(model, "s1")]
    assert ["Nothing new was observed" in text for text in told] == [*[False] * 6, True, True, False]
    assert "in 5 rounds" in told[6]
    assert "in 6 rounds" in told[7]
    assert [e["text"] for e in flow.told("note")] == ["Step s1: nothing new in 5 rounds."]
    assert flow.run.receipt is not None
    (row,) = flow.run.receipt["steps"]
    assert row["silent_rounds"] == 6
    assert row["repeated"] == [{"tool": "look", "arguments": {"what": "a"}, "times": 3}]
    terminal = Terminal(Console(), live=False, interactive=False, marks=UNICODE_MARKS)
    shown = [text.strip() for text, _ in receipt_lines(flow.run.receipt, terminal, details=True)]
    assert "nothing new in 6 rounds" in shown
    assert 'look(what="a") 3 times, with the same result' in shown


IDLE = ["Hm.", "Well.", "So.", "Er.", "Oh."]


async def test_who_is_asked_for_more_learns_that_it_led_nowhere() -> None:
    """X11, X08: before anybody pays for more of the same; of the step's budget and of the run's."""
    for limits in ({"step_limits": {"rounds": 5}}, {"limits": {"rounds": 5}}):
        flow = await play(one_step(IDLE, deliver=[]), settings={**FREE, **limits})
        assert "- s1: do it (nothing new in its last 5 rounds)" in flow.run.pending[0]["question"]


async def test_a_step_that_only_talks_ends() -> None:
    """X05, X11: once nothing new came in five rounds, a third text without a call in a row fails the step; a call lets
    it go on. Of two such steps each counts its own.
    """
    talks = ["Hm."] * 20
    planned = [{"content": each, "depends_on": []} for each in ("talk", "look")]
    model = steps(planned, {"s1": talks, "s2": [*talks[:7], SAME, *talks]})
    flow = await play(model, [look], effects=READ, settings={**FREE, "on_failure": "deliver"})
    assert [flow.step(id)["rounds"] for id in ("s1", "s2")] == [8, 16]
    for id in ("s1", "s2"):
        assert flow.step(id)["status"] == "failed"
        assert "a text alone decides nothing here" in flow.step(id)["reason"]


async def test_the_planner_learns_that_it_led_nowhere() -> None:
    """X11, X10: so that it plans another way."""
    model = steps(
        ["do it"],
        {"s1": [*IDLE, give_up("no idea")], "s2": [finish_step("ok", "s2.result")]},
        plan=[submit_plan([{"content": "another way", "id": "s2"}])],
    )
    flow = await play(model)
    model.assert_exhausted()
    assert flow.step("s2")["status"] == "done"
    (asked,) = [request for request in model.requests if request.role == "plan"]
    assert "nothing new in its last 5 rounds" in asked.messages[1].text


async def test_what_a_person_says_is_something_new() -> None:
    """X11: rounds are counted from the answer on."""
    model = one_step(["Hm.", "Well.", ask_user("Which?"), "So.", finish_step("ok", "s1.1")])
    flow = await play(model, answers=["this"])
    model.assert_exhausted()
    assert flow.told("note") == []
    assert not any("Nothing new" in request.messages[-1].text for request in requests(model, "s1"))
