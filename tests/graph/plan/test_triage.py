"""Phase 1 of planning: one quick call that answers, asks, declines or plans; and what becomes of unusable replies."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from donewhen import Executor, Limits, Models, Settings
from donewhen.graph.build import build_graph
from donewhen.graph.executors.executor import Executors
from donewhen.hooks import Call, Hooks, Refuse
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, answer, ask_user, call, decline, finish_step, observed, reply, submit_plan
from tests.kit.flows import Flow, play, requests, steps


def add(a: int, b: int) -> int:
    """Add two numbers. A long explanation follows that the triage never sees: carry the one."""
    return a + b


async def test_an_unknown_complexity_is_corrected() -> None:
    """P05: an unknown complexity is a correction and a missing one is moderate."""
    wrong, missing = submit_plan(["a"], complexity="giant"), submit_plan(["a"], complexity=None)
    flow = await play(steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[wrong, missing]))
    assert "complexity" in flow.told("correction")[0]["text"]
    assert flow.run.plan is not None
    assert flow.run.plan["complexity"] == "moderate"


def planning(*triage: Any, **roles: Any) -> ScriptedModel:
    return ScriptedModel(roles={"triage": list(triage), **roles})


async def test_a_question_costs_one_call() -> None:
    """P02: a trivial question costs one model call: no plan, no pause, and the answer is the run's."""
    model = planning(answer("Paris."))
    flow = await play(model, [add], settings=Settings(), goal="What is the capital of France?")
    model.assert_exhausted()
    assert (flow.status, flow.run.answer, flow.run.plan, flow.pauses) == ("answered", "Paris.", None, [])
    assert flow.run.spent["model_calls"] == 1
    assert flow.values["messages"][-1].text == "Paris."


async def test_triage_does_not_think_and_the_draft_does() -> None:
    """P01, P03: each phase asks for its own model, which is how thinking is off in one and on in the other."""
    asked: list[str] = []
    model = ScriptedModel(roles={"triage": [submit_plan(["a"], need_thinking=True)], "plan": [decline("no", "Sorry.")]})

    def source(role: str, name: str | None) -> ScriptedModel:
        asked.append(role)
        return model

    from donewhen import build_graph

    await build_graph(source).compile().ainvoke({"messages": [HumanMessage("go")]})
    assert asked == ["triage", "plan"]


async def test_triage_asks_and_goes_on() -> None:
    """P02: triage may ask; the answer is the result of that very call, and the next round extends the last."""
    model = planning(ask_user("Which year?", ["2022", "2023"]), answer("Then it is 2023."))
    flow = await play(model, settings=Settings(), answers=["2023"])
    model.assert_exhausted()
    assert flow.pauses[0]["question"] == "Which year?"
    assert flow.pauses[0]["options"] == ["2022", "2023"]
    first, second = model.requests
    assert second.messages[: len(first.messages)] == first.messages
    assert second.messages[-1].text.startswith("[p.1] user ok\n2023")
    assert flow.run.receipt is not None
    assert flow.run.receipt["questions"][0]["answer"] == "2023"


async def test_without_questions_left_the_planner_goes_on() -> None:
    """P12: a limit of questions holds for planning too."""
    model = planning(ask_user("Which year?"), answer("The latest."))
    flow = await play(model, settings=Settings(limits=Limits(questions=0), on_exhausted="deliver"))
    model.assert_exhausted()
    assert flow.pauses == []
    assert "the limit of questions is reached" in model.requests[1].text


async def test_a_goal_that_cannot_be_planned_says_what_it_needs() -> None:
    """P15: a refusal has two fields: the user reads the guidance, the log the reason."""
    model = planning(decline("no tool can send mail", "I would need a tool that sends mail."))
    flow = await play(model, settings=Settings())
    assert flow.run.outcome is not None
    assert (flow.status, flow.run.outcome["code"]) == ("failed", "declined")
    assert flow.run.answer == "I would need a tool that sends mail."
    assert flow.run.outcome["reason"] == "no tool can send mail"
    assert "".join(e["text"] for e in flow.told("speech")) == flow.run.answer


def heard(flow: Flow) -> str:
    """What the user was told as it came, without what was taken back."""
    said: list[str] = []
    for event in flow.events:
        if event["type"] == "speech_restarted":
            said.clear()
        if event["type"] == "speech":
            said.append(event["text"])
    return "".join(said)


@pytest.mark.parametrize(
    "text",
    [
        "1. Boil water.\n2. Add tea.\n\n[1] any cookbook",
        "见面时说“你好”。",
        f"Let me explain it in full. {'So. ' * 60}Let me know if you need more.",
    ],
)
async def test_a_text_alone_is_the_answer(text: str) -> None:
    """P02, M4, M13, P10: a reply without a call is the answer of the triage, said once; prose is never made a plan."""
    model = planning(text)
    flow = await play(model, settings=Settings())
    model.assert_exhausted()
    assert (flow.status, flow.run.answer, flow.run.plan, heard(flow)) == ("answered", text, None, text)


@pytest.mark.parametrize(
    "announced",
    [
        "Let me see…",
        reply("It was", finish_reason="length"),
        "Sure, I’ll rename the file.",
        "好的，我会发送邮件。",
        "\u200b",
        "[1, 2, 3]",
        "I now call submit_plan.",
    ],
)
async def test_what_only_announces_an_answer_is_none(announced: Any) -> None:
    """P02, S02, F6, N11: a text that breaks off or is none decides nothing, and is taken back later."""
    model = planning(announced, answer("Paris."))
    flow = await play(model, [look], settings=Settings())
    model.assert_exhausted()
    assert heard(flow) == flow.run.answer == "Paris."


@pytest.mark.parametrize("text", ["I will be there.", '{"colours": ["red", "blue"]}'])
async def test_who_says_it_again_means_it_as_the_answer(text: str) -> None:
    """P02, M4: it is asked for once more, not for ever: a model that cannot call must not fail for its words."""
    model = planning(text, text)
    flow = await play(model, [look], settings=Settings())
    model.assert_exhausted()
    assert (flow.status, flow.run.answer) == ("answered", text)


async def test_a_printed_decision_is_no_answer_either() -> None:
    """P02, F6, N11: of a model that has called a tool; asked to print, it prints a plan (Q44)."""
    printed = '<think>hm</think>{"action": "submit_plan", "title": "T", "steps": ["write it"]}'
    model = planning(call("submit_plans", title="T"), printed, printed)
    flow = await play(model, settings=Settings(confirm="always"))
    assert (flow.status, flow.run.pending and flow.run.pending[0]["kind"]) == ("waiting", "plan")


async def test_the_prompt_repeated_is_no_answer() -> None:
    """K11: what very small models say; only the prompt has the word of its frames."""
    model = planning(*[lambda messages, _: str(messages[1].text)] * 3)
    flow = await play(model, settings=Settings())
    assert flow.status == "failed"
    assert "repeats what you were given" in flow.told("correction")[0]["text"]


async def test_a_printed_call_that_is_not_made_is_answered_with_the_others() -> None:
    """X18: of two printed reads one is unusable; the model is told so beside the result of the other."""
    both = '[{"action": "look", "arguments": {"at": "a"}}, {"action": "look", "arguments": {"where": "b"}}]'
    model = planning(both, answer("Seen."))
    tool = StructuredTool.from_function(look, metadata={"effect": "read"})
    flow = await play(model, [tool], settings=Settings())
    told = str(model.requests[1].messages[-1].text)
    assert "seen a" in told
    assert "this call was not made" in told
    assert "where" in told
    assert flow.run.answer == "Seen."


@pytest.mark.parametrize("goes_on", ['{"action": "continue", "speak": "Thinking about it."}', '{"action": "speak"}'])
async def test_a_planner_may_say_something_and_go_on(goes_on: str) -> None:
    """M13, P12: `continue` is a round like any other: no answer, no correction, and not free."""
    model = planning(goes_on, answer("Paris."))
    flow = await play(model, settings=Settings())
    model.assert_exhausted()
    assert flow.run.answer == "Paris."
    assert flow.told("correction") == []
    assert flow.run.spent["model_calls"] == 2


@pytest.mark.parametrize(
    "decision",
    [
        call("decline", reason="r", guidance="Paris.", speak="Easy."),
        '{"action": "answer", "arguments": {"text": "Paris.", "speak": "Easy."}}',
    ],
)
async def test_something_may_be_said_with_every_decision(decision: Any) -> None:
    """M13: `speak` is an argument of every decision, said to the user beside it."""
    flow = await play(planning(decision), settings=Settings())
    assert flow.run.answer.startswith("Paris.")
    assert "Easy." in heard(flow)


WRITTEN = {
    "a bare array": '[{"content": "look at it", "tools": ["look"]}]',
    "steps as texts": '{"title": "Look", "steps": ["look at it"]}',
    "within a plan": '{"plan": {"title": "Look", "steps": [{"description": "look at it"}]}}',
    "a call with plan_steps": call("submit_plan", title="Look", plan_steps=[{"content": "look at it"}]),
    "a call with a plan": call("submit_plan", plan={"title": "Look", "steps": [{"task": "look at it"}]}),
}


@pytest.mark.parametrize("written", WRITTEN)
async def test_plans_are_read_as_models_write_them(written: str) -> None:
    """M4, P10: the plan as it is meant, in whatever it is wrapped."""
    work = [call("look"), lambda m, _: finish_step("seen", observed(m)[-1])]
    model = steps([], {"s1": work}, triage=[WRITTEN[written]])
    flow = await play(model, [look], effects={"look": "read"})
    model.assert_exhausted()
    assert flow.run.plan is not None
    assert [step["content"] for step in flow.run.plan["steps"]] == ["look at it"]
    assert flow.status == "completed"


def look(at: str = "here") -> str:
    """Look at something."""
    return f"seen {at}"


@pytest.mark.parametrize(
    "value", ["[1, 2, 3]", '["a", "b"]', '{"steps": []}', '{"title": "Report", "rows": [{"a": 1}]}']
)
async def test_data_is_never_a_plan(value: str) -> None:
    """P10: lists and objects that stand apart in a text are part of the answer, however much they look like steps."""
    text = f"The numbers are:\n\n{value}\n\nThat is all."
    flow = await play(planning(text, text), [look], settings=Settings())
    assert (flow.status, flow.run.plan) == ("answered", None)


CALLS = [{"tool": "look", "args": {"at": "a"}}, {"name": "count", "arguments": {"to": "3"}}]


@pytest.mark.parametrize("written", [json.dumps(CALLS), submit_plan(CALLS)], ids=["printed", "called"])
async def test_concrete_calls_are_a_steps_first_calls(written: Any) -> None:
    """M4: an array of calls is a plan whose steps begin with them, as they stand, before any model is asked."""

    def count(to: int) -> str:
        """Count."""
        return f"counted to {to + 0}"

    work = {id: [lambda m, _, id=id: finish_step(m[-1].text, f"{id}.1")] for id in ("s1", "s2")}
    model = steps([], work, triage=[written])
    flow = await play(model, [look, count], effects={"look": "read", "count": "write"}, settings=Settings(
        approvals="plan"), answers=["approve"])  # fmt: skip
    model.assert_exhausted()
    assert 'count with {"to": 3}' in str(flow.pauses[0]["plan"]["steps"][1]) or "count" in flow.pauses[0]["writes"]
    assert [(e["tool"], e["arguments"]) for e in flow.journal if e["source"] == "tool"] == [
        ("look", {"at": "a"}),
        ("count", {"to": 3}),
    ]
    assert flow.run.spent["rounds"] == 2
    assert flow.status == "completed"


async def test_a_step_may_list_the_calls_it_begins_with() -> None:
    """M4: beside what to do; a person who rewrites the step has them dropped, wrong ones are a correction."""
    step = {"content": "look around", "tools": [], "calls": [{"tool": "look", "args": {"at": "a"}}]}
    wrong = submit_plan([{**step, "calls": [{"tool": "look", "args": {"where": "a"}}]}])
    work = [lambda m, _: finish_step("seen", observed_in(m))]
    model = steps([], {"s1": work}, triage=[wrong, submit_plan([step])])
    flow = await play(model, [look], effects={"look": "read"})
    model.assert_exhausted()
    assert "its call of look" in flow.told("correction")[0]["text"]
    assert flow.status == "completed"
    work = [call("look", at="bed"), finish_step("rested", "s1.1")]
    other = steps([], {"s1": work}, triage=[submit_plan([step])])
    flow = await play(
        other,
        [look],
        effects={"look": "read"},
        settings=Settings(),
        answers=["title: Rest\nsteps:\n- id: s1\n  content: rest a little\n  tools: [look]"],
    )
    assert flow.run.plan is not None
    assert "calls" not in flow.run.plan["steps"][0]


def observed_in(messages: Any) -> str:
    return next(m.text.split("]")[0][1:] for m in reversed(messages) if m.text.startswith("["))


async def test_the_last_try_shows_how_a_good_reply_looks() -> None:
    """M13, P11: after unusable replies a correction that helps: an example."""
    model = planning(reply(""), reply(""), answer("ok"))
    await play(model, settings=Settings())
    model.assert_exhausted()
    first, last = (request.messages[-1].text for request in model.requests[1:])
    assert "A good reply" not in first
    assert "A good reply is one call" in last


@pytest.mark.parametrize(
    "wrong",
    [
        call("ask_user", question="Which?", steps=[{"content": "a"}]),
        '{"action": "answer", "speak": "Done", "plan_steps": [{"content": "a"}]}',
    ],
)
async def test_only_a_plan_carries_steps(wrong: Any) -> None:
    """P06: a question or an answer that carries steps is a correction."""
    model = planning(wrong, answer("Yes."))
    flow = await play(model, settings=Settings())
    model.assert_exhausted()
    assert flow.run.answer == "Yes."
    assert "only submit_plan carries steps" in model.requests[1].text


UNREADABLE = {
    "nothing": reply(""),
    "broken": '{"action": "submit_plan", "steps": [{"content": "a',
    "two": [answer("a"), answer("b")],
}


@pytest.mark.parametrize("wrong", UNREADABLE)
async def test_three_unusable_replies_end_honestly(wrong: str) -> None:
    """P11: nothing usable three times in a row ends the run as failed with the reason; no plan is made up."""
    model = planning(*[UNREADABLE[wrong]] * 3)
    flow = await play(model, [add], settings=Settings())
    model.assert_exhausted()
    assert flow.run.outcome is not None
    assert (flow.status, flow.run.outcome["code"], flow.run.plan) == ("failed", "no_plan", None)
    assert "3 unusable replies in a row" in flow.run.outcome["reason"]
    assert "No usable plan came out of planning: " in flow.run.answer
    assert len(flow.told("correction")) == 3


async def test_a_good_reply_starts_the_count_anew() -> None:
    """P11: three in a row; a question in between was a decision."""
    bad = reply("")
    model = planning(bad, bad, ask_user("Which?"), bad, bad, answer("ok"))
    flow = await play(model, settings=Settings(), answers=["this"])
    model.assert_exhausted()
    assert flow.run.answer == "ok"


async def test_planning_has_its_own_rounds_and_all_are_charged() -> None:
    """P12: planning ends when its rounds are used, if nobody may be asked; each of its calls stands in the ledger."""
    model = planning(call("add", a=1, b=1), call("add", a=1, b=2))
    settings = Settings(plan_rounds=2, on_exhausted="deliver", limits=Limits(rounds=0))
    flow = await play(model, [add], effects={"add": "read"}, settings=settings)
    model.assert_exhausted()
    assert flow.run.outcome is not None
    assert flow.run.outcome["reason"] == "planning used all its 2 rounds"
    assert flow.run.spent["model_calls"] == 2
    assert flow.run.spent.get("rounds", 0) == 0
    assert flow.run.spent["input_tokens"] > 0


async def test_questions_do_not_use_up_the_rounds_of_planning() -> None:
    """Q23: a person who is asked sees what goes on, so planning has all its rounds again; the last one can ask."""
    looks = [call("add", a=1, b=n) for n in range(2)]
    model = planning(ask_user("A?"), *looks, ask_user("B?"), *looks, ask_user("C?"), answer("ok"))
    flow = await play(model, [add], effects={"add": "read"}, settings=Settings(plan_rounds=3), answers=["a", "b", "c"])
    model.assert_exhausted()
    assert flow.run.answer == "ok"


@pytest.mark.parametrize(("said", "status"), [("extend", "completed"), ("2", "completed"), ("stop", "exhausted")])
async def test_at_the_limit_of_planning_a_person_is_asked(said: str, status: str) -> None:
    """Q23: like at any other limit, with what was seen kept; the extension is of planning alone, and not of the run."""
    looks = [call("add", a=1, b=n) for n in range(2)]
    model = planning(*looks, *([answer("ok")] if status == "completed" else []))
    settings = Settings(plan_rounds=2, limits=Limits(rounds=7))
    flow = await play(model, [add], effects={"add": "read"}, settings=settings, answers=[said])
    (pause,) = flow.pauses
    assert (pause["kind"], pause["exhausted"], pause["suggested"]) == ("budget", "rounds", {"rounds": 1})
    assert "Planning has used 2 of 2 rounds" in pause["text"]
    assert (flow.status, flow.values["granted"]) == (status, {})
    model.assert_exhausted()


async def test_a_passthrough_executor_gets_the_goal_unchanged() -> None:
    """P16, P21: one step, the goal word for word however long, no call of the planner, and no plan made of it later."""
    goal = "Translate this:\n\n  " + "字 and words. " * 800
    model = ScriptedModel(roles={"execute": ["Hm.", finish_step("done", "s1.result")]})
    executors = {"translator": Executor(description="translates", passthrough=True)}
    settings = Settings(executor="translator", promote_rounds=1)
    flow = await play(model, settings=settings, executors=executors, goal=goal, answers=["approve"])
    model.assert_exhausted()
    assert flow.run.plan is not None
    (step,) = flow.run.plan["steps"]
    assert (step["content"], step["executor"]) == (goal.strip(), "translator")
    assert f'<step id="s1">\n{goal.strip()}\n</step>' in requests(model, "s1")[0].text
    (mode,) = (flow.run.receipt or {})["modes"]
    assert mode == {"mode": "step", "by": "executor", "reason": "translator takes the goal whole"}


async def test_out_of_budget_while_planning_asks_for_more() -> None:
    """D03, P12: a limit reached in planning is a question like any other; extended, planning goes on where it was."""
    model = planning(reply(""), answer("ok"))
    settings = Settings(limits=Limits(model_calls=1))
    flow = await play(model, settings=settings, answers=["extend 1"])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["budget"]
    assert model.requests[1].messages[: len(model.requests[0].messages)] == model.requests[0].messages
    assert "Correction:" in model.requests[1].messages[-1].text
    assert flow.run.answer == "ok"


async def test_planning_looks_and_answers_with_what_it_saw() -> None:
    """P20, K5: a goal that reading settles is answered by the triage, with citations and without a plan."""
    reads = [call("stock", item="lamp"), call("stock", item="desk")]
    proof = [{"observation": "p.1", "quote": "3"}, {"observation": "p.2"}]
    model = planning(reads, call("answer", text="3 lamps, no desk.", evidence=proof))
    flow = await play(
        model, [stock, add], effects={"stock": "read"}, settings=Settings(), goal="How many lamps, desks?"
    )
    model.assert_exhausted()
    assert (flow.status, flow.run.answer, flow.pauses) == ("completed", "3 lamps, no desk.", [])
    assert [(e["id"], e["text"]) for e in flow.journal] == [("p.1", "3"), ("p.2", "0")]
    assert flow.run.spent["tool_calls"] == 2
    assert "add" not in model.requests[0].tool_names, "planning only reads"


def stock(item: str) -> int:
    """How many of an item are in stock."""
    return {"lamp": 3}.get(item, 0)


async def test_a_look_that_is_refused_is_answered_with_its_own_reason() -> None:
    """P20, X13, X14: of three looks a hook refuses one, one is made, and the limit ends the last; each says why."""

    def shut(made: Call) -> Refuse | None:
        return Refuse("shut") if made.arguments["item"] == "desk" else None

    reads = [call("stock", item="desk"), call("stock", item="lamp"), call("stock", item="chair")]
    model = planning(reads, answer("3 lamps."))
    flow = await play(
        model,
        [stock],
        effects={"stock": "read"},
        settings={"limits": {"tool_calls": 1}},
        hooks=Hooks(before_call=[shut]),
    )
    shown = "\n".join(message.text for message in model.requests[1].messages)
    assert [text in shown for text in ("Not run: a policy refuses it: shut", "3", "limit of tool calls")] == [True] * 3
    assert [entry["ok"] for entry in flow.journal] == [False, True, False]
    assert flow.run.spent["tool_calls"] == 1


async def test_what_planning_wanted_to_see_is_seen_once_there_is_budget() -> None:
    """P20, X14: a look that the budget cut off is made when a person extends it, and the planner is not asked again."""

    def look(path: str) -> str:
        """Look into a file."""
        return f"{path} holds seven apples"

    seen = StructuredTool.from_function(look, metadata={"effect": "read"})
    model = planning(call("look", path="a.txt"), lambda messages, _: answer(f"Seven. {messages[-1].text[:20]}"))
    flow = await play(model, [seen], settings={"limits": {"tool_calls": 0}}, answers=["extend tool calls 2"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "look ok" in str(flow.run.answer)


async def test_the_model_of_the_planner_stands_in_for_triage() -> None:
    """Q37: a triage whose own model cannot be used is done by the planner's, with the instructions of triage; if that
    is down as well, or is the same, the run fails once."""
    down = ScriptedModel([ModelError("down", code="auth")])
    plans = ScriptedModel(roles={"triage": [answer("Paris.")]})
    flow = await play(Models(plans, {"triage": down}), settings=Settings())
    assert flow.run.answer == "Paris."
    assert any("takes over triage: down" in note["text"] for note in flow.told("note"))
    both = ScriptedModel(roles={"triage": [ModelError("down as well", code="auth")]})
    flow = await play(Models(both, {"triage": ScriptedModel([ModelError("down", code="auth")])}), settings=Settings())
    assert (flow.status, "down as well" in flow.run.answer) == ("failed", True)
    one = ScriptedModel([ModelError("down", code="auth")])
    assert (await play(one, settings=Settings())).status == "failed"
    one.assert_exhausted()


class ListChanges(InMemorySaver):
    """Takes a tool away once the reply that calls it is stored, as a server does that changes its list."""

    def __init__(self, executors: Executors) -> None:
        super().__init__()
        self.executors = executors

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if "mail_of" in str(checkpoint["channel_values"].get("planning")):
            self.executors.set_tools([], by_owner=False)
        return await super().aput(config, checkpoint, metadata, new_versions)


async def test_a_tool_that_went_away_before_the_look_is_an_observation() -> None:
    """Q58, X06, C08: the planner is told, of each of two calls, and goes on; nothing raises, then or on a resume."""

    def mail_of(day: str) -> str:
        """Read mail."""
        return "mail"

    executors = Executors(tools=[StructuredTool.from_function(mail_of)], effects={"mail_of": "read"})
    model = ScriptedModel(roles={"triage": [[call("mail_of", day="1"), call("mail_of", day="2")], "None."]})
    graph = build_graph(model, executors=executors).compile(checkpointer=ListChanges(executors), store=InMemoryStore())
    config: Any = {"configurable": {"thread_id": "t"}}
    run = await graph.ainvoke({"messages": [("user", "go")]}, config, durability="sync")
    assert (run["outcome"]["status"], run["outcome"]["text"]) == ("answered", "None.")
    assert model.requests[-1].text.count("there is no tool mail_of to look with any more") == 2


async def test_what_a_look_spent_is_counted_once() -> None:
    """Q83, E01: of two reads of planning that ask a model, one is still at work when the other has counted its call."""
    inner, first_asked = ScriptedModel(["x"] * 2), asyncio.Event()

    async def first(q: str, config: RunnableConfig) -> str:
        """Ask."""
        found = (await inner.ainvoke(q, config)).text
        first_asked.set()
        return str(found)

    async def second(q: str, config: RunnableConfig) -> str:
        """Ask later."""
        await first_asked.wait()
        for _ in range(20):  # until the first call was counted
            await asyncio.sleep(0)
        return str((await inner.ainvoke(q, config)).text)

    model = ScriptedModel(roles={"triage": [[call("first", q="a"), call("second", q="b")]]})
    settings = {"limits": {"model_calls": 3}, "verification": "grounded", "on_exhausted": "stop"}
    flow = await play(model, [first, second], effects={"first": "read", "second": "read"}, settings=settings)
    assert [(event["tool"], event["ok"]) for event in flow.told("observation")] == [("first", True), ("second", True)]
    assert flow.run.spent["model_calls"] == 3
