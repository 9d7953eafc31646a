"""Calls of tools: what comes of them, what is asked first, and what is not repeated."""

import asyncio
from typing import Any

import pytest
from langchain_core.tools import ToolException

from donewhen.testing import call, finish_step
from tests.kit.desk import Desk
from tests.kit.flows import one_step, play, requests


async def test_every_call_leaves_an_observation() -> None:
    """X13: id, step, round, tool, arguments, ok, text, duration."""
    flow = await play(one_step([call("look", what="a"), finish_step("ok", "s1.1")]), Desk().tools())
    entry = flow.journal[0]
    assert (entry["id"], entry["step"], entry["round"], entry["source"]) == ("s1.1", "s1", 1, "tool")
    assert (entry["tool"], entry["arguments"], entry["effect"]) == ("look", {"what": "a"}, "read")
    assert (entry["ok"], entry["text"], entry["seconds"] >= 0, entry["at"][:2]) == (True, "a is green", True, "20")
    assert flow.told("observation")[0]["id"] == "s1.1"
    assert flow.told("tool_started")[0]["arguments"] == {"what": "a"}


async def raises() -> str:
    """Raise."""
    raise RuntimeError("the disk is on fire")


async def hangs() -> str:
    """Hang."""
    await asyncio.Event().wait()
    return "never"


async def says_no() -> str:
    """Say that it failed."""
    raise ToolException("no such account")


@pytest.mark.parametrize(
    ("broken", "said"),
    [(raises, "the disk is on fire"), (hangs, "no result after 0.05 seconds"), (says_no, "no such account")],
)
async def test_a_tool_that_fails_is_an_observation_and_the_step_goes_on(broken: Any, said: str) -> None:
    """X07: recorded as not ok; it proves nothing."""
    name = broken.__name__
    model = one_step([call(name), finish_step("x", "s1.1"), call("look", what="a"), finish_step("ok", "s1.2")])
    settings = {"confirm": "never", "tool_seconds": 0.05}
    flow = await play(model, [*Desk().tools(), broken], effects={name: "read"}, settings=settings)
    model.assert_exhausted()
    assert (flow.status, flow.journal[0]["ok"]) == ("completed", False)
    assert said in flow.journal[0]["text"]
    assert f"[s1.1] {name} error" in requests(model, "s1")[1].messages[-1].text
    assert "failed, so it proves nothing" in requests(model, "s1")[2].messages[-1].text


async def test_the_same_result_is_pointed_out_and_comes_back_as_one_line() -> None:
    """X11, H5: at the 2nd time it is said, from then on it is one line; it is recorded and citable, never refused."""

    def look(what: str) -> str:
        """Look."""
        return f"{what} is green. " * 30

    same = call("look", what="a")
    model = one_step([*[same] * 4, call("look", what="b"), finish_step("ok", ("s1.4", "a is green"))])
    flow = await play(model, [look], effects={"look": "read"})
    model.assert_exhausted()
    assert flow.status == "completed"
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert ["As s1.1, unchanged." in text for text in told] == [False, True, True, True, False]
    assert ["is green" in text for text in told] == [True, True, False, False, True]
    assert told[2] == "[s1.3] look ok\nAs s1.1, unchanged."
    assert [e["ok"] for e in flow.journal if e["source"] == "tool"] == [True] * 5


async def test_testing_after_edits_polling_and_undoing_are_work() -> None:
    """X23, H5: the same long result after a change is shown anew, `running` as it is; the same write is made again."""
    made: list[str] = []

    def edit(text: str) -> str:
        """Edit."""
        return "edited"

    def test() -> str:
        """Run the tests."""
        return f"1 failed: {'x' * 300}"

    def job() -> str:
        """Ask for the state of the job."""
        return "running"

    def undo() -> str:
        """Undo the last change."""
        made.append("undo")
        return "undone"

    tested = [part for n in range(4) for part in (call("edit", text=f"v{n}"), call("test"))]
    rounds = [*tested, *[call("job")] * 4, *[call("undo")] * 4, finish_step("ok", ("s1.12", "running"))]
    model = one_step(rounds, tools=["edit", "undo"])
    effects = {"edit": "write", "test": "read", "job": "read", "undo": "write"}
    flow = await play(model, [edit, test, job, undo], effects=effects)
    model.assert_exhausted()
    assert (flow.status, len(made), flow.pauses) == ("completed", 4, [])
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert all("running" in text for text in told[8:12])
    assert not any(", unchanged." in text or "Nothing new" in text for text in [*told[:8], *told[12:]])


async def test_the_others_of_a_reply_wait_with_a_call_that_asks() -> None:
    """X15, X14: what came before stays, the rest runs after the answer, in order, once."""
    desk = Desk()
    calls = [call("look", what="a"), call("send", to="Ann"), call("look", what="b"), call("send", to="Bob")]
    model = one_step([calls, finish_step("ok", "s1.4")])
    flow = await play(model, desk.tools(), answers=["approve", "yes"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert desk.calls == ["look a", "send Ann", "look b", "send Bob"]
    assert len({pause["id"] for pause in flow.pauses}) == 2
    messages = requests(model, "s1")[-1].messages
    assert [m.type for m in messages] == ["system", "human", "ai", "tool", "tool", "tool", "tool"]
    assert [m.tool_call_id for m in messages[3:]] == [c["id"] for c in messages[2].tool_calls]


async def test_what_a_person_approves_is_done_even_if_it_was_rejected_before() -> None:
    """X15: the later word counts."""
    desk = Desk()
    model = one_step([call("send", to="Ann"), call("send", to="Bob"), finish_step("ok", "s1.2")])
    edit = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "Ann"}}}
    answers = [{"type": "reject", "message": "not yet"}, {"decisions": [edit]}]
    flow = await play(model, desk.tools(), answers=answers)
    assert (flow.status, desk.calls) == ("completed", ["send Ann"])
