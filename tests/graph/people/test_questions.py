"""Where nobody answers a question: at once or after its time the policy does, in whichever process; it is said."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command

from donewhen import Agent, Settings, build_graph
from donewhen.agent.cli.exits import Exit
from donewhen.state.errors import ResumeError
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, submit_plan
from tests.kit.flows import last_told, one_step, play, steps
from tests.kit.runs import asking, config, paused, said, scripted, step
from tests.kit.screens.shell import scripted as provided
from tests.kit.screens.shell import user_in

ALONE = Settings(confirm="never")


@pytest.mark.parametrize(
    ("settings", "status", "said_to_model"),
    [
        ({"on_question": "default", "default_answer": "blue"}, "answered", "blue"),
        ({"on_question": "default"}, "answered", "assume"),
        ({"on_question": "assume"}, "answered", "assume"),
        ({"on_question": "abort"}, "cancelled", None),
    ],
)
@pytest.mark.parametrize("later", [False, True])
async def test_where_nobody_answers_the_policy_does(
    settings: dict[str, Any], status: str, said_to_model: str | None, later: bool
) -> None:
    """X16: at once without a time given, else when the run is resumed after it; the receipt says who answered."""
    rounds = [ask_user("Which colour?"), *([said("s1")] if said_to_model else [])]
    model = scripted(submit_plan([step("s1")]), {"s1": rounds})
    extra = {"question_seconds": 0} if later else {}
    agent = Agent(model, storage="memory:", settings={"confirm": "never", **settings, **extra})
    run = await agent.start("do it")
    if later:
        assert run.status == "waiting"
        run = await agent.resume(run.thread_id)
    assert run.status == status
    if said_to_model:
        assert said_to_model in model.requests[2].messages[-1].text
        assert (run.receipt or {})["questions"][0]["by"] == "policy"
    else:
        assert (run.outcome or {})["code"] == "unanswered"
        assert (run.receipt or {})["approvals"][-1]["by"] == "policy"
    model.assert_exhausted()


async def test_on_the_graph_itself_a_client_says_that_it_is_overdue() -> None:
    """X16: a server's cron job resumes with a word of its own; who answered is recorded all the same."""
    model = scripted(submit_plan([step("s1")]), {"s1": [ask_user("Which?"), said("s1", "the first")]})
    settings = Settings(confirm="never", on_question="assume", question_seconds=0)
    graph = build_graph(model).compile(checkpointer=InMemorySaver())
    await graph.ainvoke({"messages": [HumanMessage("do it")]}, config("t"), context=settings)
    ended = await graph.ainvoke(Command(resume={"overdue": True}), config("t"), context=settings)
    assert ended["messages"][-1].text.endswith("- Assumed, since nobody answered: Which? — the first")
    assert ended["outcome"]["receipt"]["questions"][0]["by"] == "policy"


@pytest.mark.parametrize("at", ["question", "plan"])
async def test_on_the_graph_itself_overdue_changes_nothing_before_its_time(at: str) -> None:
    """X16: at a question and at a plan, however often it is said; then a person's answer counts."""
    first = ask_user("Which?") if at == "question" else submit_plan([step("s1")])
    replies = [first, answer("so")] if at == "question" else [first]
    roles: Any = {"triage": replies, "execute": {"s1": [said("s1", "done")]}}
    graph = build_graph(ScriptedModel(roles=roles)).compile(checkpointer=InMemorySaver())
    settings = Settings(on_question="assume", question_seconds=3600, verification="claimed")
    asked = await graph.ainvoke({"messages": [HumanMessage("do it")]}, config("t"), context=settings)
    for _ in range(2):
        state = await graph.ainvoke(Command(resume={"overdue": True}), config("t"), context=settings)
        (shown,) = state["__interrupt__"]
        assert shown.value == asked["__interrupt__"][0].value
    ended = await graph.ainvoke(Command(resume="approve"), config("t"), context=settings)
    rows = ended["outcome"]["receipt"]["questions" if at == "question" else "approvals"]
    assert [row["by"] for row in rows] == ["user"]


@pytest.mark.parametrize("inside", [False, True])
async def test_a_late_answer_counts_though_overdue_was_said_too_early(inside: bool) -> None:
    """X16, C02: LangGraph gives the early word again before the answer, when it would be due; by ids, too."""
    graph: Any = build_graph(ScriptedModel(roles={"triage": [ask_user("Which?"), answer("so")]}))
    if inside:
        graph = StateGraph(MessagesState, context_schema=Settings).add_node("agent", graph.compile())
        graph = graph.add_edge(START, "agent")
    graph = graph.compile(checkpointer=InMemorySaver())
    patient, due = (Settings(on_question="assume", question_seconds=seconds) for seconds in (3600, 0))
    await graph.ainvoke({"messages": [HumanMessage("do it")]}, config("t"), context=patient)
    for word in ({"overdue": True}, {"plan.q1": {"overdue": True}}, {"answers": {"plan.q1": {"overdue": True}}}):
        state = await graph.ainvoke(Command(resume=word), config("t"), context=patient)
        assert state["__interrupt__"][0].value["question"] == "Which?"
    ended = await graph.ainvoke(Command(resume="the red one"), config("t"), context=due)
    assert ended["messages"][-1].text == "so"
    assert "the red one" in str(ended["messages"])


async def test_words_that_answered_a_question_are_no_new_request() -> None:
    """P01, C02: an input that says nothing, after a run that typed words had answered, begins nothing with these."""
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), answer("so"), answer("again")]}, strict=False)
    graph = build_graph(model).compile(checkpointer=InMemorySaver())
    for words in ("do it", "the red one"):
        await graph.ainvoke({"messages": [HumanMessage(words)]}, config("t"))
    for given in ([], [AIMessage("Hm.")], [SystemMessage("Facts.")]):
        ended = await graph.ainvoke({"messages": given}, config("t"))
        assert ended["outcome"]["code"] == "bad_goal"
        assert ended["outcome"]["text"].startswith("There is no new message")
    ended = await graph.ainvoke({"messages": [HumanMessage("once more")]}, config("t"))
    assert ended["messages"][-1].text == "again"


@pytest.mark.parametrize("given", [{"messages": []}, {"overdue": True}, {"messages": [AIMessage("Hm.", id="hm")]}])
async def test_an_input_that_says_nothing_leaves_a_question_open(given: dict[str, Any]) -> None:
    """C02: as a server's cron job sends it; also after an answer that was typed, which is not taken for a new one."""
    model = ScriptedModel(roles={"triage": [ask_user("Which?"), ask_user("When?"), answer("so")]})
    graph = build_graph(model).compile(checkpointer=InMemorySaver())
    for words, question in (("do it", "Which?"), ("the red one", "When?")):
        await graph.ainvoke({"messages": [HumanMessage(words)]}, config("t"))
        state = await graph.ainvoke(given, config("t"))
        (shown,) = state["__interrupt__"]
        assert (shown.value["question"], shown.value["problem"]) == (question, None)
    ended = await graph.ainvoke(Command(resume="today"), config("t"))
    assert [row["answer"] for row in ended["outcome"]["receipt"]["questions"]] == ["the red one", "today"]


@pytest.mark.parametrize("seconds", [3600, 1e12, 1e308])
async def test_a_question_that_is_not_overdue_waits(seconds: float) -> None:
    """X16: before its time, though no calendar has it, resuming changes nothing; a person's answer counts always."""
    agent = Agent(
        asking(), storage="memory:", settings={"confirm": "never", "on_question": "abort", "question_seconds": seconds}
    )
    run = await paused(agent)
    assert run.pending[0]["asked_at"]
    assert await agent.resume(run.thread_id) == run
    hurried = Settings(confirm="never", on_question="abort", question_seconds=0)
    ended = await agent.resume(run.thread_id, "blue", settings=hurried)
    assert ended.status == "answered"
    assert (ended.receipt or {})["questions"][0]["by"] == "user"


@pytest.mark.parametrize("by_planner", [True, False])
async def test_the_time_of_a_question_goes_on_while_it_stays_open(by_planner: bool) -> None:
    """X16: “later”, what is not understood and the words of others begin nothing anew, whoever asks."""
    asks = ask_user("Which?", ["2 rooms", "3 rooms"])
    model = scripted(asks, {}) if by_planner else scripted(submit_plan([step("s1")]), {"s1": [asks]})
    agent = Agent(model, storage="memory:", settings={"confirm": "never", "answered_by": {"question": "operator"}})
    asked = await agent.start("do it", thread_id="t")
    for words, by in (("later", "operator"), ("2", "operator"), ("hello?", "mira")):
        run = await agent.resume("t", words, by=by)
        assert (run.status, run.pending[0]["asked_at"]) == ("waiting", asked.pending[0]["asked_at"])


@pytest.mark.parametrize("settings", [{}, {"on_question": "default", "default_answer": "x", "question_seconds": 86400}])
async def test_nobody_but_the_policy_says_overdue(settings: dict[str, Any]) -> None:
    """C02: a client's own word for it is refused, at a plan as at a question; both stay open."""
    plan = scripted(submit_plan([step("s1")]), deliver=())
    for model, confirm in ((plan, "always"), (asking(), "never")):
        agent = Agent(model, storage="memory:", settings={**settings, "confirm": confirm})
        run = await agent.start("do it")
        assert (await agent.resume(run.thread_id)).pending == run.pending
        for word in ({"overdue": True}, {run.pending[0]["id"]: {"overdue": True}}):
            with pytest.raises(ResumeError, match="only the run itself"):
                await agent.resume(run.thread_id, word)
        assert (await agent.get(run.thread_id)).pending == run.pending


ASSUMING = {"confirm": "never", "on_question": "assume"}
NOBODY = "Nobody answers; assume what is most likely"


async def test_what_was_assumed_stands_in_answer_and_receipt() -> None:
    """X16, D03: with the words in which the step says it; the user reads it whatever the model writes."""
    model = one_step([ask_user("Which colour?"), finish_step("Painted blue, as nobody said.", "s1.result")])
    flow = await play(model, settings=ASSUMING)
    model.assert_exhausted()
    assert f"{NOBODY}, and say in the result what was assumed." in last_told(model)
    assert flow.run.receipt is not None
    (row,) = flow.run.receipt["questions"]
    assert (row["by"], row["assumed"], row["assumption"]) == ("policy", True, "Painted blue, as nobody said.")
    assert flow.run.answer.splitlines() == [
        "Painted blue, as nobody said.",
        "",
        "- Assumed, since nobody answered: Which colour? — Painted blue, as nobody said.",
    ]


async def test_what_the_planner_assumed_is_said_too() -> None:
    """X16: in the words with which it gave the plan."""
    plan = submit_plan(["total it"], speak="I take the year 2023.")
    model = ScriptedModel(
        roles={
            "triage": [ask_user("Which year?"), plan],
            "execute": [finish_step("7", "s1.result")],
            "deliver": lambda *_: "It is 7.",
        }
    )
    flow = await play(model, settings=ASSUMING)
    model.assert_exhausted()
    assert f"{NOBODY}, and say in `speak` what was assumed." in model.requests[1].messages[-1].text
    assert flow.run.answer.endswith("- Assumed, since nobody answered: Which year? — I take the year 2023.")


async def test_a_default_answer_is_told_from_a_persons() -> None:
    """X16: in answer and receipt; also where the answer is written by code."""
    model = one_step([ask_user("Which colour?"), finish_step("blue", "s1.1")], deliver=[ValueError("down")])
    settings = {"confirm": "never", "on_question": "default", "default_answer": "blue"}
    flow = await play(model, settings=settings)
    assert flow.run.receipt is not None
    (row,) = flow.run.receipt["questions"]
    assert (row["by"], row["assumed"], row["assumption"], row["answer"]) == ("policy", False, "", "blue")
    assert "- Answered by default, not by you: Which colour? — blue" in flow.run.answer


IDLE = {**ASSUMING, "limits": {"rounds": 1}}


async def test_an_overdue_budget_delivers_what_there_is() -> None:
    """D03: when the run is resumed after its time; before, it waits for a person."""
    model = steps(["one", "two"], {"s1": [finish_step("ONE", "s1.result")]}, deliver=["One."])
    agent = Agent(model, storage="memory:", settings={**IDLE, "question_seconds": 3600})
    run = await agent.start("do it")
    assert (run.status, run.pending[0]["kind"]) == ("waiting", "budget")
    assert (await agent.resume(run.thread_id)).status == "waiting"
    run = await agent.resume(run.thread_id, settings={**IDLE, "question_seconds": 0})
    model.assert_exhausted()
    assert (run.status, (run.outcome or {})["code"]) == ("exhausted", "out_of_budget")
    (row,) = [row for row in (run.receipt or {})["approvals"] if row["kind"] == "budget"]
    assert (row["by"], row["decision"]) == ("policy", "deliver")


COUNTED = {"content": "Count the files", "done_when": ["there is a count"], "tools": ["list_files"]}
KIND = {"triage": [submit_plan([COUNTED])], "execute": [ask_user("Which kind?")]}


def counting(result: str) -> dict[str, Any]:
    """A run of the command with one question."""
    rounds = [*KIND["execute"], call("list_files"), finish_step(result, "s1.2")]
    return {**KIND, "execute": rounds}


def test_days_later_the_command_goes_on_without_an_answer(tmp_path: Path) -> None:
    """X16, C06: in another process, as a cron job resumes it; what was assumed is shown."""
    shell = user_in(tmp_path)
    with provided(shell, **counting("3 files, assuming all kinds")):
        words = ("--yes", "--on-question", "assume", "--question-seconds", "0", "--thread", "mine")
        assert shell.run(*words).exit_code == Exit.WAITING
        resumed = shell("resume", "mine")
    assert resumed.exit_code == Exit.COMPLETED
    line = "- Assumed, since nobody answered: Which kind? — 3 files, assuming all kinds"
    assert resumed.stdout == f"3 files, assuming all kinds\n\n{line}\n"
    shown = shell("show", "mine").stdout
    assert "? Assumed, since nobody answered: Which kind? – 3 files, assuming all kinds" in shown
