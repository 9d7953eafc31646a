"""No value of the outside ends a run: results, arguments, structured content, answers of people, checks."""

import json
import math
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.types import interrupt

from donewhen import Agent
from donewhen.graph.tools.rendering import MOST_ITEMS, render_value
from donewhen.state.language.quantities import amounts_of
from donewhen.state.values import split_kept
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.flows import FREE, one_step, play

DEEP: Any = []
for _ in range(10_000):
    DEEP = [DEEP]
HOSTILE: list[Any] = [
    math.nan, math.inf, 10**10_000, DEEP, "1e9999999999999999999", "-1e-9999999999999999999", "1e99999999",
    "9" * 10_000, "a\ud83db", {"\ud83d": "\0"}, '{"amount": 1e99999999, "n": NaN, "i": -Infinity}',
    f'{{"amount": {"9" * 10_000}}}', "[" * 10_000 + "]" * 10_000,
    '{"a":' * 3_000 + "1" + "}" * 3_000, "²³¹", b"\xff\xfe",
    '[1e9999999999999999999, "1e9999999999999999999", 123456789012345678901234567890]', "1,000e999999999999%",
    [{"to": "1e9999999999999999999"}], "٣" * 5_000,
]  # fmt: skip
"""What a mail, a server or a person may contain; what is no usable number is a text."""


def reading(*, structured: bool = False) -> StructuredTool:
    """A tool that returns hostile values by their number."""

    def read_it(n: int) -> Any:
        """Read it."""
        found = HOSTILE[n]
        return ("seen", {"files": {"a": found, str(n): found}, "structured_content": found}) if structured else found

    form: Any = {"response_format": "content_and_artifact"} if structured else {}
    return StructuredTool.from_function(read_it, metadata={"effect": "read"}, **form)


def send(to: str, amount: Any = 5) -> str:
    """Send."""
    return "sent"


@pytest.mark.parametrize("structured", [False, True], ids=["text", "structured"])
async def test_results_are_texts_and_the_run_goes_on(structured: bool) -> None:
    """Q11, X07: a number that nobody can compare is a text, also where the targets of a write are looked for in it."""
    rounds = [call("read_it", n=n) for n in range(len(HOSTILE))]
    script = [*rounds, call("send", to="mira@example.com"), finish_step("sent", f"s1.{len(rounds) + 1}")]
    tools = [reading(structured=structured), send]
    flow = await play(one_step(script), tools, effects={"send": "write"}, answers=["approve"] * 2, settings={})
    assert (flow.status, [pause["kind"] for pause in flow.pauses]) == ("completed", ["plan", "tool"])
    assert sum(len(text) for text in flow.values["files"].values()) < 3_000_000


def raw_call(id: str, value: Any) -> Any:
    return {"name": "raw", "args": {"x": value}, "id": id, "type": "tool_call"}


async def test_arguments_are_texts_or_corrected() -> None:
    """Q11, X07: what can be stored is passed on and asked about; what cannot is a correction."""
    got: list[Any] = []
    schema = {"type": "object", "properties": {"x": {}}, "required": ["x"]}
    raw = StructuredTool(name="raw", description="Raw.", args_schema=schema, func=lambda x: got.append(x) or "ok")
    values = [each for each in HOSTILE if not isinstance(each, bytes) and each is not DEEP and each != 10**10_000]
    calls = [
        AIMessage("", tool_calls=[raw_call(f"good{n}", n), raw_call(f"hostile{n}", value)])
        for n, value in enumerate(values)
    ]
    model, settings = one_step([*calls, finish_step("done", "s1.1")]), {"confirm": "never", "approvals": "never"}
    flow = await play(model, [raw], effects={"raw": "write"}, settings=settings)
    assert flow.status == "completed"
    assert len(got) > len(values) + 8


@pytest.mark.parametrize("number", [1e308, -1e308, 1e20, 2.0**63, 2.0**53, 10**30, 1.5, "9" * 40], ids=str)
async def test_a_number_that_is_no_certain_whole_one_is_sent_back_where_one_is_meant(number: Any) -> None:
    """X19: a claim's criterion, the place to read on from, an argument; 7.0 is the whole number 7."""
    seen: list[int] = []

    def read_line(n: int) -> str:
        """Read a line."""
        seen.append(n)
        return f"line {n}"

    proof = {"met": True, "evidence": [{"observation": "s1.1", "quote": "line 7"}]}
    look = call("recall", observation="s1.1", offset=2.0)
    work = [
        *(call("read_line", n=7.0), call("read_line", n=number), look),
        *(call("recall", observation="s1.1", offset=number), look),
        call("finish_step", result="line 7", goal_check=[{"criterion": number, **proof}, {"criterion": 2, **proof}]),
        call("finish_step", result="line 7", goal_check=[{"criterion": 1.0, **proof}, {"criterion": "2", **proof}]),
    ]
    plan = submit_plan([{"content": "read", "done_when": ["line 7 is read", "it is known"], "tools": ["read_line"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": work}, strict=False)
    settings = {"confirm": "never", "verification": "grounded", "on_question": "assume"}
    async with Agent(model, [read_line], effects={"read_line": "read"}, storage="memory:", settings=settings) as agent:
        run = await agent.start("Read line 7")
    assert (run.status, run.answer, seen) == ("completed", "line 7", [7])


async def test_answers_are_taken_or_asked_for_again() -> None:
    """Q11, Q05: each is handed over or refused with a reason; the question stays, and the run never raises."""
    got: list[Any] = []

    def ask() -> str:
        """Ask."""
        got.append(interrupt("What?"))
        return "asked"

    def settings_of(level: str) -> dict[str, Any]:
        return {"confirm": "never", "approvals": level}

    async with Agent(
        one_step([call("ask"), call("send", to="x-1"), finish_step("ok", "s1.2")]),
        [ask, send],
        effects={"ask": "write", "send": "write"},
        storage="memory:",
        settings=settings_of("shown"),
    ) as agent:
        run = await agent.start("Ask")
        for value in HOSTILE:
            if run.pending[0]["kind"] == "question" and not isinstance(value, str):
                run = await agent.resume(run, value)
                run = await agent.resume(run, {"n": value})
        for value in HOSTILE:
            if run.status == "waiting" and run.pending[0]["kind"] == "tool":
                run = await agent.resume(run, {"type": "edit", "arguments": {"amount": value}})
                assert run.status == "waiting" or run.outcome
            elif run.status == "waiting":
                run = await agent.resume(run, value)
        while run.status == "waiting":
            run = await agent.resume(run, "approve")
    assert run.status == "completed"


async def test_forms_and_checks_read_what_they_can() -> None:
    """Q11, C05: a check on such a result holds or does not; a form asks again."""

    def fill() -> str:
        """Fill."""
        form = interrupt("How many?", response_schema={"type": "object", "properties": {"n": {"type": "number"}}})
        return f"filled {form}"

    expects: list[Any] = [
        {"contains": "zz"},
        {"path": "$..amount", "op": ">", "value": 5},
        {"number": 5},
        {"matches": "5"},
    ]
    checks = [
        {"text": f"it is {n} {expect}", "check": {"tool": "read_it", "arguments": {"n": n}, "expect": expect}}
        for n in range(len(HOSTILE))
        for expect in (expects[n % len(expects)],)
    ]
    claims = [{"criterion": n + 1, "met": True, "evidence": []} for n in range(len(checks))]
    model = one_step([call("fill"), *[finish_step("ok", goal_check=claims)] * 4], done_when=checks, tools=["fill"])
    settings = {**FREE, "on_failure": "deliver"}
    async with Agent(
        model, [fill, reading()], effects={"fill": "write"}, storage="memory:", settings=settings
    ) as agent:
        run = await agent.start("Fill it in")
        for value in (*HOSTILE, "n: 1e9999999999999999999", "[" * 10_000, "n: " + "9" * 5_000):
            for answer in ({"n": value}, value):
                run = await agent.resume(run, answer)
                assert run.problem
        run = await agent.resume(run, {"n": 5})
    assert run.status == "failed"  # most of these checks do not hold, and the run has an end


@pytest.mark.parametrize("text", ["1e9999999999999999999", "-1e-99999", "1e99999999", "9" * 500, "1e101", "nan", "0x5"])
def test_what_is_no_usable_number_is_no_amount(text: str) -> None:
    """Q11: there is one place that says which numbers can be compared."""
    assert amounts_of(text) == set()
    assert amounts_of("1e3") == amounts_of("1,000") & amounts_of("1000")


@pytest.mark.parametrize(("count", "whole"), [(5_000, True), (MOST_ITEMS, True), (MOST_ITEMS + 1, False)])
def test_a_generator_is_read_whole_or_says_that_it_was_cut(count: int, whole: bool) -> None:
    """Q54: as many items as an array; beyond that, the note stands at the end, also of a text that is cut itself."""
    text = render_value((n % 10 for n in range(count)), 1_000_000)
    assert ("more than 200,000 items" in text) == (not whole)
    assert not whole or len(json.loads(text)) == count
    cut = render_value((str(n) for n in range(count)), 500)
    assert cut.endswith("more than 200,000 items; the rest was not kept") == (not whole)
    assert split_kept(cut)[0].startswith('["0", ')
