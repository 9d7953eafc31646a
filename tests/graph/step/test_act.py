"""Calls of tools: what comes of them, what is asked first, and what is not repeated."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from langchain_core.tools import tool

from donewhen.testing import call, finish_step
from tests.kit.flows import one_step, play, requests

EFFECTS: dict[str, Any] = {"look": "read", "clock": "read", "send": "write", "ask": "read", "gather": "read"}


class Desk:
    """Tools that remember how often they were really called."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.beats = 0

    def tools(self) -> list[Any]:
        def look(what: str) -> str:
            """Look at something."""
            self.calls[f"look {what}"] += 1
            return f"{what} is green"

        def clock() -> int:
            """What time is it?"""
            self.beats += 1
            return self.beats

        def send(to: str) -> str:
            """Send a letter."""
            self.calls[f"send {to}"] += 1
            return f"sent to {to}"

        return [look, clock, send]


async def test_every_call_leaves_an_observation() -> None:
    """X13: id, step, round, tool, arguments, ok, text, duration."""
    model = one_step([call("look", what="a"), finish_step("ok", "s1.1")])
    flow = await play(model, Desk().tools(), effects=EFFECTS)
    entry = flow.journal[0]
    assert {k: entry[k] for k in ("id", "step", "round", "source", "tool", "arguments", "ok", "text", "effect")} == {
        "id": "s1.1",
        "step": "s1",
        "round": 1,
        "source": "tool",
        "tool": "look",
        "arguments": {"what": "a"},
        "ok": True,
        "text": "a is green",
        "effect": "read",
    }
    assert entry["seconds"] >= 0
    assert entry["at"].startswith("20")
    assert flow.told("observation")[0]["id"] == "s1.1"
    assert flow.told("tool_started")[0]["arguments"] == {"what": "a"}


async def raises() -> str:
    """Raise."""
    raise RuntimeError("the disk is on fire")


async def hangs() -> str:
    """Hang."""
    await asyncio.Event().wait()
    return "never"


@tool
def says_no() -> str:
    """Say that it failed."""
    from langchain_core.tools import ToolException

    raise ToolException("no such account")


@pytest.mark.parametrize(
    ("broken", "name", "args", "said"),
    [
        (raises, "raises", {}, "the disk is on fire"),
        (hangs, "hangs", {}, "no result after 0.05 seconds"),
        (says_no, "says_no", {}, "no such account"),
    ],
)
async def test_a_tool_that_fails_is_an_observation_and_the_step_goes_on(
    broken: Any, name: str, args: Any, said: str
) -> None:
    """X07: recorded as not ok; it proves nothing."""
    model = one_step([call(name, **args), finish_step("x", "s1.1"), call("look", what="a"), finish_step("ok", "s1.2")])
    effects = {**EFFECTS, "raises": "read", "hangs": "read", "says_no": "read"}
    settings = {"confirm": "never", "tool_seconds": 0.05}
    flow = await play(model, [*Desk().tools(), broken], effects=effects, settings=settings)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert not flow.journal[0]["ok"]
    assert said in flow.journal[0]["text"]
    assert f"[s1.1] {name} error" in requests(model, "s1")[1].messages[-1].text
    assert "failed, so it proves nothing" in requests(model, "s1")[2].messages[-1].text


async def test_the_same_result_is_pointed_out_and_comes_back_as_one_line() -> None:
    """X11, H5: at the 2nd time it is said, from then on it is one line; it is recorded and citable, never refused."""
    looked: list[str] = []

    def look(what: str) -> str:
        """Look."""
        looked.append(what)
        return f"{what} is green. " * 30

    same = call("look", what="a")
    model = one_step([*[same] * 6, call("look", what="b"), finish_step("ok", ("s1.6", "a is green"))])
    flow = await play(model, [look], effects=EFFECTS)
    model.assert_exhausted()
    assert (flow.status, looked) == ("completed", [*"aaaaaa", "b"])
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert ["As s1.1, unchanged." in text for text in told] == [False, True, True, True, True, True, False]
    assert ["is green" in text for text in told] == [True, True, False, False, False, False, True]
    assert told[2] == "[s1.3] look ok\nAs s1.1, unchanged."
    assert [e["ok"] for e in flow.journal if e["source"] == "tool"] == [True] * 7


async def test_edit_and_test_over_and_over_is_work() -> None:
    """X23, H5: the same test with the same result, after something was changed, is looked at anew; so is polling."""
    tests: list[str] = []

    def edit(text: str) -> str:
        """Edit."""
        return "edited"

    def test() -> str:
        """Run the tests."""
        tests.append("run")
        return f"1 failed: {'x' * 300}"

    rounds = [part for n in range(6) for part in (call("edit", text=f"v{n}"), call("test"))]
    model = one_step([*rounds, finish_step("no", "s1.12")], tools=["edit"])
    flow = await play(model, [edit, test], effects={"edit": "write", "test": "read"})
    model.assert_exhausted()
    assert (flow.status, len(tests)) == ("completed", 6)
    assert not any(", unchanged." in request.text or "Nothing new" in request.text for request in requests(model, "s1"))


async def test_polling_and_undoing_are_work() -> None:
    """X23, H5: `running` again and again is shown as it is; the same write with the same result is made."""
    undone: list[int] = []

    def job() -> str:
        """Ask for the state of the job."""
        return "running"

    def undo() -> str:
        """Undo the last change."""
        undone.append(1)
        return "undone"

    model = one_step([*[call("job")] * 4, *[call("undo")] * 4, finish_step("ok", ("s1.4", "running"))], tools=["undo"])
    flow = await play(model, [job, undo], effects={"job": "read", "undo": "write"})
    model.assert_exhausted()
    assert (flow.status, len(undone), flow.pauses) == ("completed", 4, [])
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert all("running" in text for text in told[:4])
    assert all("unchanged" not in text for text in told[4:])


async def test_the_others_of_a_reply_wait_with_a_call_that_asks() -> None:
    """X15, X14: what came before stays, the rest runs after the answer, in order, once."""
    desk = Desk()
    calls = [call("look", what="a"), call("send", to="Ann"), call("look", what="b"), call("send", to="Bob")]
    model = one_step([calls, finish_step("ok", "s1.4")])
    flow = await play(model, desk.tools(), effects=EFFECTS, answers=["approve", "yes"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert desk.calls == {"look a": 1, "send Ann": 1, "look b": 1, "send Bob": 1}
    assert len({pause["id"] for pause in flow.pauses}) == 2
    messages = requests(model, "s1")[-1].messages
    assert [m.type for m in messages] == ["system", "human", "ai", "tool", "tool", "tool", "tool"]
    assert [m.tool_call_id for m in messages[3:]] == [c["id"] for c in messages[2].tool_calls]


async def test_what_a_person_approves_is_done_even_if_it_was_rejected_before() -> None:
    """X15: the later word counts."""
    desk = Desk()
    model = one_step([call("send", to="Ann"), call("send", to="Bob"), finish_step("ok", "s1.2")])
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "Ann"}}}
    flow = await play(
        model, desk.tools(), effects=EFFECTS, answers=[{"type": "reject", "message": "not yet"}, {"decisions": [edit]}]
    )
    assert flow.status == "completed"
    assert desk.calls == {"send Ann": 1}
