"""The plan before it runs: shown whole, approved, edited, rejected, cancelled; nothing happens without consent."""

import json
from typing import Any

import pytest

from donewhen import Agent, Executor, Models, StaleAnswer
from donewhen.agent.run import Run
from donewhen.graph.pauses.pause import load_pause
from donewhen.hooks import Hooks, Question, Refuse
from donewhen.testing import ScriptedModel, call, submit_plan
from tests.kit.runs import Outbox, config, drawn, one_step, said, say_done, scripted, sending, step, values


async def paused(agent: Agent, goal: str = "do it") -> Run:
    run = await agent.start(goal)
    assert run.status == "waiting"
    assert run.pending[0]["kind"] == "plan"
    return run


async def test_the_plan_is_shown_whole() -> None:
    """C01: steps, criteria, executors, tools granted, schedule and limits, as text and in what clients edit; what calls
    the checks make, and limits that nobody chose, are only in the latter."""
    check = {"text": "it is there", "check": {"tool": "look", "arguments": {"at": "box"}, "expect": {"contains": "x"}}}
    plan = submit_plan(
        [step("s1", "Look into the box", tools=["send"], executor="clerk", done_when=["seen", check])],
        title="Look",
        schedule={"at": "08:30", "timezone": "Europe/Berlin"},
    )

    def look(at: str) -> str:
        """Look somewhere."""
        return at

    tools, executors = [look, Outbox().tool()], {"clerk": Executor("looks")}
    settings = {"limits": {"cost_usd": 0.5}}
    agent = Agent(
        Models(scripted(plan, deliver=[]), prices={"scripted": {"input": 0, "output": 0}}),
        tools,
        storage="memory:",
        effects={"look": "read"},
        executors=executors,
        settings=settings,
    )
    run = await paused(agent)
    snapshot = await agent.graph.aget_state(config(run.thread_id))
    (interrupt,) = snapshot.interrupts
    shown = interrupt.value["action_requests"][0]["args"]["plan"]
    parts = ("Look into the box", "seen", "it is there", "executor: clerk", "send", "08:30", "Europe/Berlin", "0.5")
    data, text = ("look", "contains", "rounds: 200"), snapshot.values["messages"][-1].text
    assert [part for part in (*parts, *data) if part not in shown] == []
    assert [part for part in (*parts, "checked automatically") if part not in text] == []
    assert not [part for part in data if part in text]
    assert interrupt.value["plan"] == run.plan == run.pending[0]["plan"]
    await drawn(agent, run)


@pytest.mark.parametrize(
    ("language", "words"),
    [
        ("en", ["1. Look", "done when: it is", "executor: clerk", "Schedule", "send (known"]),
        ("de", ["1. Look", "fertig wenn: it is", "Ausführender: clerk", "Zeitplan"]),
        ("ja", ["1. Look", "完了条件: it is", "実行者: clerk", "スケジュール"]),
    ],
)
async def test_the_plan_speaks(language: str, words: list[str]) -> None:
    """Q21, C13: `text` and `str(run)` are the whole question in the person's language, in this order: what the planner
    says, the plan with its criteria, what may be changed, schedule, limits; and the same is in what clients get."""
    plan = submit_plan(
        [step("s1", "Look into the box", tools=["send"], executor="clerk", done_when=["it is there"])],
        title="Look",
        done_when=["seen"],
        speak="I would look into it.",
        schedule={"at": "08:30", "timezone": "Europe/Berlin"},
        language=language,
    )
    executors = {"clerk": Executor("looks")}
    agent = Agent(scripted(plan, deliver=[]), [Outbox().tool()], storage="memory:", executors=executors)
    run = await paused(agent)
    text = run.pending[0]["text"]
    places = [text.find(word) for word in ["I would", "# Look", *words]]
    assert places == sorted(places)
    assert -1 not in places
    assert text.endswith(run.pending[0]["question"])
    assert str(run) == text == (await agent.graph.aget_state(config(run.thread_id))).interrupts[0].value["text"]


async def test_what_may_be_changed_is_said() -> None:
    """Q21: by which tools, for what; a plan that changes nothing says so."""
    changes, none = submit_plan([step("s1", tools=["send"])]), submit_plan([step("s1")])
    agent = Agent(scripted([changes, none], deliver=[]), [Outbox().tool()], storage="memory:")
    assert "**What may be changed:** send (known targets)" in str(await paused(agent))
    assert "**What may be changed:** nothing" in str(await paused(agent))


async def test_what_asks_before_each_call_is_no_nothing() -> None:
    """Q21: a tool whose calls all ask may change something all the same, and the plan says so."""
    plan = submit_plan([step("s1", tools=["send"])])
    agent = Agent(scripted(plan, deliver=[]), [Outbox().tool()], storage="memory:", settings={"approvals": "each"})
    assert "**What may be changed:** send (each call asks first)" in str(await paused(agent))


@pytest.mark.parametrize(
    ("policy", "complexity", "asks"),
    [
        ("always", "simple", True),
        ("complex", "complex", True),
        ("complex", "moderate", False),
        ("never", "complex", False),
    ],
)
async def test_the_policy_says_which_plans_wait(policy: Any, complexity: str, asks: bool) -> None:
    """C01: what is approved by policy is shown all the same, and the receipt says who approved it."""
    plan = submit_plan([step("s1")], complexity=complexity)
    model = scripted(plan, None if asks else {"s1": [said("s1")]}, () if asks else say_done)
    agent = Agent(model, storage="memory:", settings={"confirm": policy})
    events = [event async for event in agent.stream("do it", thread_id="t")]
    assert [event["plan"]["steps"][0]["id"] for event in events if event["type"] == "plan"] == ["s1"]
    assert events[-1]["type"] == ("waiting" if asks else "outcome")
    if not asks:
        (row,) = (await agent.receipt("t") or {})["approvals"]
        assert (row["kind"], row["decision"], row["by"]) == ("plan", "approve", "policy")
    model.assert_exhausted()


@pytest.mark.parametrize(
    "value",
    [
        "Yes!", True, '{"decisions": [{"type": "approve"}]}', [{"type": "accept", "args": None}],
    ],
    ids=repr,
)  # fmt: skip
async def test_consent_in_every_shape(value: Any) -> None:
    """C02: strings, booleans, dicts and JSON strings of all clients approve, and the receipt has who and what."""
    model = one_step()
    agent = Agent(model, storage="memory:")
    waiting = await paused(agent)
    run = await agent.resume(waiting.thread_id, value)
    assert (run.status, run.answer) == ("answered", "done")
    (row,) = (run.receipt or {})["approvals"]
    assert (row["decision"], row["by"]) == ("approve", "user")
    assert row["revision"] == row["approved_revision"] == waiting.pending[0]["revision"]
    assert row["at"]
    model.assert_exhausted()


@pytest.mark.parametrize("value", ["cancel", {"type": "reject"}, {"__agui_cancelled__": True}], ids=repr)
async def test_cancel_executes_nothing(value: Any) -> None:
    """C02: cancelling, or rejecting without a word of what should be different, delivers `cancelled`."""
    model = scripted(submit_plan([step("s1")]), deliver=())
    agent = Agent(model, storage="memory:")
    run = await agent.resume((await paused(agent)).thread_id, value)
    assert run.status == "cancelled"
    assert [row["status"] for row in (run.receipt or {})["steps"]] == ["skipped"]
    assert run.spent.get("rounds", 0) == 0
    assert (run.receipt or {})["approvals"][0]["by"] == "user"
    model.assert_exhausted()


async def test_reject_with_words_plans_again() -> None:
    """C02: the feedback and the rejected plan go into planning; the new plan waits under another id."""
    plans = [submit_plan([step("s1", "Send it by mail")]), submit_plan([step("s1", "Send it by fax")])]
    model = scripted(plans, {"s1": [said("s1")]})
    agent = Agent(model, storage="memory:")
    first = await paused(agent)
    second = await agent.resume(first.thread_id, "use the fax in the hall for it")
    assert second.status == "waiting"
    assert second.pending[0]["id"] != first.pending[0]["id"]
    assert "use the fax in the hall for it" in model.requests[1].text
    assert "Send it by mail" in model.requests[1].text
    await drawn(agent, second)
    run = await agent.resume(first.thread_id, "yes")
    assert [row["decision"] for row in (run.receipt or {})["approvals"]] == ["say", "approve"]
    assert (run.receipt or {})["steps"][0]["content"] == "Send it by fax"
    model.assert_exhausted()


@pytest.mark.parametrize(
    "value",
    ["", pytest.param({"a": object()}, id="an-object"), "\ud83d", b"yes", {"approved": True, "rejected": True}],
    ids=repr,
)  # fmt: skip
async def test_what_is_not_understood_keeps_the_pause(value: Any) -> None:
    """C02: fail closed; the pause stays under its id, says why, costs no model call, and can be answered."""
    model = one_step()
    agent = Agent(model, storage="memory:")
    waiting = await paused(agent)
    run = await agent.resume(waiting.thread_id, value)
    assert run.status == "waiting"
    assert run.problem
    assert run.pending[0]["id"] == waiting.pending[0]["id"]
    assert (run.plan, run.steps) == (waiting.plan, {})
    assert len(model.requests) == 1
    await drawn(agent, run)
    interrupt = (await agent.graph.aget_state(config(run.thread_id))).interrupts[0]
    assert run.problem in interrupt.value["action_requests"][0]["description"]
    assert (await agent.resume(run.thread_id, "approve")).status == "answered"
    model.assert_exhausted()


def edited(plan: dict[str, Any], **step: Any) -> dict[str, Any]:
    changed = json.loads(json.dumps(plan))
    changed["steps"][0] |= step
    del changed["revision"]
    return changed


async def test_an_edited_plan_is_what_runs() -> None:
    """C02, C03: the person's plan is approved as edited, with its own revision and its own grants."""
    outbox = Outbox()
    model = sending(call("send", to="ann", text="hi"))
    agent = Agent(model, [outbox.tool()], storage="memory:")
    waiting = await paused(agent)
    plan = edited(waiting.pending[0]["plan"], content="Write to Ann", tools=["send"])
    run = await agent.resume(waiting.thread_id, {"type": "edit", "plan": plan})
    assert run.status == "completed"
    assert "Write to Ann" in next(r for r in model.requests if r.role == "execute").text
    assert [sent["to"] for sent in outbox.sent] == ["ann"]  # the edit granted the tool: nobody was asked again
    (row,) = (run.receipt or {})["approvals"]
    assert row["decision"] == "edit"
    assert row["approved_revision"] == (run.plan or {})["revision"] != row["revision"]
    model.assert_exhausted()


@pytest.mark.parametrize(
    ("change", "said_why"),
    [
        ({"content": "  "}, "blank"),
        ({"depends_on": ["s1"]}, "itself"),
        ({"tools": ["sned"]}, "did you mean send"),
        ({"done_when": [{"text": "x", "check": {"tool": "send", "arguments": {}}}]}, "not read-only"),
    ],
    ids=repr,
)
async def test_an_invalid_edit_keeps_plan_and_pause(change: dict[str, Any], said_why: str) -> None:
    """C03: the rules of P07–P09 hold for people too; the reason is said, and the plan stays as it was."""
    model = scripted(submit_plan([step("s1")]), deliver=())
    agent = Agent(model, [Outbox().tool()], storage="memory:")
    waiting = await paused(agent)
    run = await agent.resume(waiting.thread_id, {"type": "edit", "plan": edited(waiting.plan or {}, **change)})
    assert run.status == "waiting"
    assert said_why in run.problem
    assert run.plan == waiting.plan
    assert run.pending[0]["plan"] == waiting.pending[0]["plan"]
    assert (await values(agent, run.thread_id)).get("approval") is None
    model.assert_exhausted()


async def test_what_an_edit_leaves_out_never_runs_sooner_or_unasked() -> None:
    """C14, Q08, Q100: of a scheduled plan with a call only what is said is taken away; nothing is sent by a slip."""
    outbox, told = Outbox(), {"tool": "send", "arguments": {"to": "ann", "text": "hi"}}
    first = step("s1", "Write to Ann", tools=["send"], calls=[told])
    plan = submit_plan([first], schedule={"at": "08:30", "weekdays": ["mon"], "timezone": "UTC"})
    agent = Agent(scripted(plan, {"s1": [said("s1")]}), [outbox.tool()], storage="memory:")
    run = await paused(agent)
    document = load_pause(run.pending[0]).action_arguments()["plan"]
    without_calls = edited(run.plan or {})
    del without_calls["steps"][0]["calls"]
    refused: list[tuple[Any, str]] = [
        ({"schedule": {}}, "gives no time"),
        ({"schedule": {"every_minutes": None}}, "gives no time"),
        (document.replace("  tools:\n  - send\n", ""), "leaves out `tools`"),
        (without_calls, "leaves out `calls`"),
    ]
    for edit, why in refused:
        run = await agent.resume(run.thread_id, {"type": "edit", "plan": edit})
        assert (run.status, why in run.problem, outbox.sent) == ("waiting", True, []), run.problem
    taken = {"schedule": "none", "steps": [{"id": "s1", "tools": "none"}]}
    run = await agent.resume(run.thread_id, {"type": "edit", "plan": taken})
    assert (run.status, outbox.sent) == ("answered", [])
    assert (run.plan or {})["steps"][0]["content"] == "Write to Ann"


@pytest.mark.parametrize("where", ["revision", "id", "interrupt", "agui"])
async def test_a_stale_answer_changes_nothing(where: str) -> None:
    """C04: an answer for another revision, question or interrupt is reported, and not one checkpoint is written."""
    model = scripted(submit_plan([step("s1")]), deliver=())
    agent = Agent(model, storage="memory:")
    waiting = await paused(agent)
    late: dict[str, Any] = {
        "revision": {"type": "approve", "revision": "0123456789abcdef"},
        "id": {"confirm.0123456789abcdef": "approve"},
        "interrupt": {"0" * 32: "approve"},
        "agui": {"approved": True, "interrupt_id": "0" * 32},
    }[where]
    before = await agent.graph.aget_state(config(waiting.thread_id))
    with pytest.raises(StaleAnswer) as caught:
        await agent.resume(waiting.thread_id, late)
    assert caught.value.pending == [waiting.pending[0]["id"]]
    assert (await agent.graph.aget_state(config(waiting.thread_id))).config == before.config
    assert await agent.get(waiting.thread_id) == waiting


TIMES = {"every_minutes": 60}
OFTEN = "steps:\n- content: add the numbers\nschedule:\n  every_minutes: 1\n"


@pytest.mark.parametrize("proposed", [None, TIMES])
@pytest.mark.parametrize("forbidden", [True, False])
async def test_a_schedule_of_an_edit_is_shown_with_its_times_before_it_is_confirmed(
    proposed: Any, forbidden: bool
) -> None:
    """P18: one that a person types too, so that hooks see every schedule; an edit that keeps it is approved at once."""

    def rare(question: Question) -> Any:
        times = (question.details["plan"].get("schedule") or {}).get("every_minutes")
        return Refuse("not so often") if forbidden and times == 1 else None

    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "add"}], schedule=proposed)]})
    agent = Agent(model, storage="memory:", hooks=Hooks(before_question=[rare]))
    run = await agent.resume(await agent.start("Add the numbers", owner="mira"), OFTEN)
    if forbidden:
        assert (run.status, (run.outcome or {})["code"], await agent.schedules.list()) == ("failed", "not_asked", [])
        return
    assert (run.pending[0]["kind"], len(run.pending[0]["next_runs"])) == ("plan", 3)
    assert await agent.schedules.list() == []
    run = await agent.resume(run, "steps:\n- content: add all the numbers\n")
    assert (run.outcome or {})["code"] == "scheduled"
    (kept,) = await agent.schedules.list()
    assert (kept.owner, kept.schedule["every_minutes"]) == ("mira", 1)
    assert [row["decision"] for row in (run.receipt or {})["approvals"]] == ["edit", "edit"]
