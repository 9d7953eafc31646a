"""Evidence has to be of now: what was read before a change does not count, a folder is read again by the runtime."""

from pathlib import Path
from typing import Any

import pytest

from donewhen.agent.workspace import workspace_tools
from donewhen.state.proof.journal import find_later_change, observation
from donewhen.testing import call, finish_step
from tests.kit.flows import Flow, one_step, play

WRITE = call("write_file", path="in/new.txt", content="new")


async def listed(folder: Path, *evidence: Any, between: Any = WRITE, limits: Any = None, **arguments: Any) -> Flow:
    """A step that lists a folder of one file, changes something, and then cites the listing."""
    (folder / "in").mkdir()
    (folder / "in" / "old.txt").write_text("old")
    claim = finish_step("listed", list(evidence))
    model = one_step(
        [call("list_files", **arguments), between, *[claim] * 3],
        done_when=["in holds the files listed"],
        tools=["list_files", "write_file"],
    )
    model.script.strict = False
    settings = {"confirm": "never", "on_failure": "deliver", "on_exhausted": "deliver", "limits": limits or {}}
    return await play(model, workspace_tools(folder), settings=settings)


@pytest.mark.parametrize(
    ("evidence", "arguments", "proven"),
    [
        (("s1.1", '"count": 1'), {"path": "in"}, False),
        (("s1.1", '"count": 1'), {"path": "."}, False),
        (("s1.1", '"count": 1'), {}, False),
        ("s1.1", {"path": "in"}, False),
        ("s1.1", {"path": "in", "pattern": "*.csv"}, True),
        ("s1.1", {"path": "in", "pattern": "old.*"}, True),
    ],
)
async def test_a_listing_is_read_again_after_a_change(
    tmp_path: Path, evidence: Any, arguments: Any, proven: bool
) -> None:
    """F9: it proves nothing where it says something else now, quoted or whole; where it is the same, it does."""
    flow = await listed(tmp_path, evidence, **arguments)
    if proven:
        assert flow.status == "completed"
        return
    assert flow.step("s1")["code"] == "unproven"
    assert "read again, as s1.5, it says something else" in flow.step("s1")["verdicts"][0]["note"]
    assert flow.step("s1")["verdicts"][0]["evidence"] == []


async def test_what_still_stands_there_counts_as_it_is_read_now(tmp_path: Path) -> None:
    """Nobody has to look again for what did not change; the receipt names the new reading."""
    flow = await listed(tmp_path, ("s1.1", "in/old.txt"), path="in")
    assert flow.status == "completed"
    assert flow.step("s1")["verdicts"][0]["evidence"] == [{"observation": "s1.3", "quote": "in/old.txt"}]
    again = next(entry for entry in flow.journal if entry["id"] == "s1.3")
    assert (again["source"], again["effect"]) == ("check", "read")
    assert '"count": 2' in again["text"]


async def test_other_folders_are_not_read_again(tmp_path: Path) -> None:
    elsewhere = call("write_file", path="inn/new.txt", content="new")
    flow = await listed(tmp_path, ("s1.1", '"count": 1'), path="in", between=elsewhere)
    assert flow.status == "completed"
    assert [entry["source"] for entry in flow.journal] == ["tool", "tool", "result"]


async def test_without_budget_for_it_the_listing_does_not_count(tmp_path: Path) -> None:
    """Fails closed: not read again is not proven."""
    flow = await listed(tmp_path, ("s1.1", '"count": 1'), path="in", limits={"tool_calls": 2})
    assert "look again" in flow.step("s1")["verdicts"][0]["note"]


def entry(id: str, effect: str, *targets: str) -> dict[str, Any]:
    return observation(id, "s1", 1, "tool", "text", tool="t", effect=effect, targets=targets)


@pytest.mark.parametrize(
    ("read", "changed", "stale"),
    [
        (".", "a.txt", True),
        (".", "a/b/c.txt", True),
        ("a", "a/b.txt", True),
        ("a/b.txt", "a", True),
        ("a", "ab.txt", False),
        ("a", "b/a", False),
        (".", "../a.txt", False),
        (".", "https://a.example/b", False),
        ("https://a.example/b", "https://a.example/b/c", True),
        ("7", "71", False),
    ],
)
def test_what_lies_within_what(read: str, changed: str, stale: bool) -> None:
    journal = [entry("s1.1", "read", read), entry("s1.2", "write", changed)]
    assert bool(find_later_change(journal, 0)) == stale
    assert find_later_change([journal[1], journal[0]], 1) is None
    assert find_later_change([journal[0], {**journal[1], "effect": None}], 0) is None
