"""How a run can end: one closed set of codes, a status never better than its steps, and summaries made by code."""

from typing import Any

import pytest

from donewhen.state.proof.outcome import (
    CODES,
    next_step_lines,
    status_of,
    summary,
    to_markdown,
    unknown_lines,
)
from donewhen.state.proof.receipt import receipt
from donewhen.state.records import StepRecord, StepStatus
from donewhen.state.settings import Settings
from donewhen.state.statuses import fresh_record

GROUNDED = Settings()
STEP = {"id": "s1", "content": "count", "done_when": [{"text": "counted", "check": None, "judge": False}]}
PLAN = {"title": "t", "revision": "r", "steps": [STEP, {**STEP, "id": "s2", "content": "write"}]}


def done(verdict: str = "cited") -> StepRecord:
    verdicts = [{"criterion": 1, "verdict": verdict, "evidence": []}]
    return {**fresh_record(), "status": "done", "result": "3", "verdicts": verdicts}


def ended(status: StepStatus) -> StepRecord:
    return {**fresh_record(), "status": status, "reason": f"it {status}", "result": "half a result"}


@pytest.mark.parametrize(
    ("first", "second", "code", "status"),
    [
        (done(), done(), "worked", "completed"),
        (done(), done("unverified"), "worked", "partial"),
        (done("failed"), done("unverified"), "worked", "partial"),
        (done(), ended("failed"), "worked", "partial"),
        (done(), ended("blocked"), "worked", "partial"),
        (done(), ended("skipped"), "worked", "partial"),
        (done(), ended("exhausted"), "worked", "exhausted"),
        (ended("failed"), ended("blocked"), "worked", "failed"),
        (done(), fresh_record(), "worked", "partial"),
        (done(), done(), "finished_early", "partial"),
        (done(), done(), "delivered_early", "partial"),
        (done(), done(), "cancelled", "cancelled"),
        (done(), done(), "out_of_budget", "exhausted"),
        (done(), ended("failed"), "declined", "partial"),
        (done(), ended("failed"), "no_plan", "partial"),
        (done(), ended("failed"), "model_error", "partial"),
        (ended("failed"), fresh_record(), "declined", "failed"),
    ],
)
def test_the_status_is_never_better_than_the_steps(first: Any, second: Any, code: str, status: str) -> None:
    """D01, X04, X09: `completed` only if every criterion of every step is proven and nothing ended the run early."""
    assert status_of(code, PLAN, {"s1": first, "s2": second}, GROUNDED) == status


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_one_status(code: str) -> None:
    """D01: the set of ends is closed; without a plan only an answer completes, and what is scheduled."""
    status = status_of(code, None, {}, GROUNDED)
    assert status in ("completed", "partial", "failed", "cancelled", "exhausted")
    assert (status == "completed") == (code in ("answered", "scheduled"))


def _receipt(second: StepRecord, status: str = "partial", **values: Any) -> dict[str, Any]:
    return receipt({"plan": PLAN, "steps": {"s1": done(), "s2": second}, **values}, GROUNDED, status, "worked")


@pytest.mark.parametrize("status", ["pending", "running", "ready", "waiting"])
def test_a_step_under_way_is_not_started_for_the_user(status: StepStatus) -> None:
    """D02: whatever it was doing, a step that did not end is not done."""
    assert "- Not done (not started): write" in summary(_receipt({**fresh_record(), "status": status}), "", "en")


def test_nothing_is_said_to_come_next_where_nothing_would() -> None:
    """D03: what would come next is the first step that still could; not after a cancellation, not for blocked steps."""
    assert next_step_lines(_receipt(ended("exhausted")), "en") == ["Next would be: write"]
    assert next_step_lines(_receipt(ended("blocked")), "en") == []
    assert next_step_lines(_receipt(ended("exhausted"), status="cancelled"), "en") == []
    assert next_step_lines(_receipt(done()), "en") == []
    assert summary({"steps": [], "status": "failed"}, "", "en") == "Nothing was done."


def test_a_call_is_named_without_its_long_texts() -> None:
    """S01, D03: in an answer a call reads as everywhere else; the receipt has all of it."""
    arguments = {"path": "a.txt", "content": "one\ntwo\n", "rows": ["x"] * 50, "mode": "new"}
    row = {"id": "s1.1", "tool": "write_file", "arguments": arguments, "unknown": True}
    line = '- It is not known whether this took effect: write_file(path="a.txt", content=…, rows=…, mode="new")'
    assert unknown_lines([row], "en") == [line]


def test_what_stands_below_an_item_stays_with_it() -> None:
    """A renderer would show an item apart from its list after a blank line."""
    lines = ["Stopped.", "- Not done: pay", "  - Already done in it: pay(17)", "- Not done: mail", "Next would be: pay"]
    assert (
        to_markdown(lines)
        == "Stopped.\n\n- Not done: pay\n  - Already done in it: pay(17)\n- Not done: mail\n\nNext would be: pay"
    )
