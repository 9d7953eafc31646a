"""What a person says about a plan that waits for them: answered, planned with, or the end; nothing of it approves."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.types import Command

from donewhen import Agent
from donewhen.hooks import Hooks, Refuse
from donewhen.state.errors import ModelError
from donewhen.testing import (
    ScriptedModel,
    accept_plan,
    answer,
    ask_user,
    audit,
    consent,
    decline,
    give_up,
    reply,
    submit_plan,
)
from tests.kit.runs import Outbox, config, drawn, said, step
from tests.kit.storage.cases import fresh_url

SEND = submit_plan([step("s1", "Send it by mail")], speak="I would mail it.")


def planner(*replies: Any, **roles: Any) -> ScriptedModel:
    return ScriptedModel(roles={"triage": [SEND, *replies], "execute": {"s1": [said("s1")]}, **roles})


@pytest.mark.parametrize("storage", ["memory", "sqlite", "postgres"])
async def test_a_question_about_the_plan_is_answered_and_the_plan_waits(storage: str, tmp_path: Path) -> None:
    """Q15, C11: the person reads the answer before the plan, under the pause's own id; the planner knows at the second
    question what it said to the first; then a yes runs the plan that was shown all the time."""
    model = planner(answer("It takes a day."), answer("No, it is free."))
    async with Agent(model, storage=fresh_url(storage, tmp_path)) as agent:
        first = await agent.start("Send it", thread_id="t")
        run = await agent.resume(first, "Yes, do it. Also, how long does it take?")
        assert (run.status, run.pending[0]["id"], run.plan) == ("waiting", first.pending[0]["id"], first.plan)
        assert (run.pending[0]["reply"], run.problem) == ("It takes a day.", "")
        await drawn(agent, run)
        last = (await agent.graph.aget_state(config("t"))).values["messages"][-1]
        assert isinstance(last, AIMessage)
        assert last.text == "It takes a day.\n\nThe plan is unchanged. Shall I go ahead with this plan?"
        run = await agent.resume(run, "Does it cost anything?")
        assert run.pending[0]["reply"] == "No, it is free."
        assert "Does it cost anything?" in model.requests[2].text
        assert "It takes a day." in model.requests[2].text
        run = await agent.resume(run, "ok, thanks")
        assert run.status == "answered"
        decisions = [row["decision"] for row in (run.receipt or {})["approvals"]]
        assert decisions == ["say", "say", "approve"]
    model.assert_exhausted()


async def test_a_yes_answers_the_question_that_was_read_last() -> None:
    """C11, Q15: whatever the planner asks in its own words, beside the plan or in an answer, the text and the message
    end with the question of the payload, to which “yes” starts the plan that is shown."""
    asks = submit_plan([step("s1", "Cancel order 17")], speak="Is that all?")
    model = ScriptedModel(
        roles={
            "triage": [asks, answer("It has left. Shall I take order 18 instead?"), answer("Really?")],
            "execute": {"s1": [said("s1")]},
        }
    )
    agent = Agent(model, storage="memory:")
    run = await agent.start("Cancel my order", thread_id="t")
    for words in ("Is that still possible?", "And now?", "yes"):
        last = (await agent.graph.aget_state(config("t"))).values["messages"][-1].text
        question = run.pending[0]["question"]
        assert question == "Shall I go ahead with this plan?"
        assert str(run).endswith(question)
        assert last.endswith(question)
        run = await agent.resume(run, words)
    assert run.status == "answered"


async def test_typed_into_the_chat_it_is_the_same() -> None:
    """C08: a question typed as a new message starts no request."""
    agent = Agent(planner(answer("It takes a day.")), storage="memory:")
    await agent.graph.ainvoke({"messages": "go"}, config("t"))
    out = await agent.graph.ainvoke({"messages": [HumanMessage("How long does it take?")]}, config("t"))
    assert out["messages"][-1].text.startswith("It takes a day.")
    assert [message.type for message in out["messages"]].count("human") == 2
    out = await agent.graph.ainvoke({"messages": [HumanMessage("Great, go ahead!")]}, config("t"))
    assert out["outcome"]["status"] == "answered"


async def test_what_should_be_different_is_planned_and_shown() -> None:
    """C11: a change, and a plain no that is asked back first; each new plan waits for its own consent."""
    model = planner(submit_plan([step("s1", "Send it by fax")]))
    agent = Agent(model, storage="memory:")
    run = await agent.resume(await agent.start("Send it"), "no")
    assert (run.status, run.problem, len(model.requests)) == ("waiting", "What should be different?", 1)
    run = await agent.resume(run, "use the fax")
    assert (run.status, (run.plan or {})["steps"][0]["content"]) == ("waiting", "Send it by fax")
    assert "reply" not in run.pending[0]
    assert (await agent.resume(run, "yes please")).status == "answered"
    model.assert_exhausted()


async def test_the_planner_may_ask_back_and_cannot_end_it() -> None:
    """C11: what is unclear is asked; what a planner declines is only said, and the plan stays until the person ends
    it."""
    model = planner(ask_user("By fax or by pigeon?"), decline("no pigeons", "There are no pigeons here."))
    agent = Agent(model, storage="memory:")
    first = await agent.start("Send it")
    run = await agent.resume(first, "not by mail, please")
    assert (run.pending[0]["kind"], run.pending[0]["question"]) == ("question", "By fax or by pigeon?")
    run = await agent.resume(run, "by pigeon")
    assert (run.plan, run.pending[0]["reply"]) == (first.plan, "There are no pigeons here.")
    run = await agent.resume(run, "never mind")
    assert run.status == "cancelled"


async def test_a_planner_that_cannot_answer_leaves_the_plan() -> None:
    """C11: a model that is down, or talks nonsense, loses nothing: the plan is shown again, and says so."""
    down = ModelError("down", code="auth")
    model = planner(down)
    agent = Agent(model, storage="memory:")
    first = await agent.start("Send it")
    run = await agent.resume(first, "Why by mail?")
    assert (run.status, run.plan, run.pending[0]["id"]) == ("waiting", first.plan, first.pending[0]["id"])
    assert run.problem.startswith("The plan is as it was")
    assert (await agent.resume(run, "fine, go ahead")).status == "answered"
    model.assert_exhausted()


async def test_a_question_about_a_changed_plan_is_answered_too() -> None:
    """C11, C04: careful planning after a failure answers as well, and what the new plan replaces is kept with it."""
    new = submit_plan(
        [{**step("s2", "write it elsewhere"), "done_when": ["Send it by mail: done"], "replaces": ["s1"]}]
    )
    model = ScriptedModel(
        roles={
            "triage": [SEND],
            "plan": [new, answer("Because the disk is full.")],
            "execute": {"s1": [give_up("the disk is full", "replan")], "s2": [said("s2")]},
        }
    )
    agent = Agent(model, storage="memory:")
    run = await agent.resume(await agent.start("Send it"), "ok")
    assert run.pending[0]["changes"]
    asked = await agent.resume(run, "Why elsewhere?")
    assert (asked.pending[0]["reply"], asked.pending[0]["changes"]) == (
        "Because the disk is full.",
        run.pending[0]["changes"],
    )
    run = await agent.resume(asked, "ok")
    assert run.status == "answered"
    assert [row["instead"] for row in (run.receipt or {})["replaced"]] == [["s2"]]
    model.assert_exhausted()


@pytest.mark.parametrize("settings", [{"mode": "plan"}, {"output_schema": {"type": "object", "properties": {}}}])
async def test_neither_a_forced_mode_nor_a_form_of_the_result_is_in_the_way(settings: dict[str, Any]) -> None:
    """C11: what is answered about a plan is not the result of the run."""
    model = planner(answer("It takes a day."), deliver=["{}"])
    agent = Agent(model, storage="memory:", settings=settings)
    run = await agent.resume(await agent.start("Send it"), "how long?")
    assert (run.status, run.pending[0]["reply"]) == ("waiting", "It takes a day.")


async def test_hooks_read_the_answer_first() -> None:
    """A policy on what people are asked sees the answer, and the planner says it otherwise."""

    def no_prices(question: Any) -> Refuse | None:
        return Refuse("no prices") if "EUR" in question.question else None

    model = planner(answer("It costs 5 EUR."), answer("I may not say."))
    agent = Agent(model, storage="memory:", hooks=Hooks(before_question=[no_prices]))
    run = await agent.resume(await agent.start("Send it"), "how much?")
    assert run.pending[0]["reply"] == "I may not say."
    assert "no prices" in model.requests[-1].text


async def test_the_words_reach_the_steps_and_stream() -> None:
    """C10: a worker reads what was said about the plan as the user's words; the answer is streamed once."""
    model = planner(answer("I will."))
    agent = Agent(model, [Outbox().tool()], storage="memory:")
    run = await agent.start("Send it")
    events = [event async for event in agent.stream_resume(run, "mind that Ann is on leave, will you?")]
    spoken = [event for event in events if event["type"] == "speech"]
    assert "".join(event["text"] for event in spoken) == "I will."
    assert not any(event.get("answer") for event in spoken)
    await agent.resume(events[-1]["pending"] and run.thread_id, "yes")
    work = next(request for request in model.requests if request.role == "execute")
    assert "mind that Ann is on leave" in work.text


NATURAL = "great, that's how I want it. Send it off!"


@pytest.mark.parametrize("storage", ["memory", "sqlite", "postgres"])
async def test_consent_in_own_words_counts_where_two_readers_find_it(storage: str, tmp_path: Path) -> None:
    """Q15, C11, X25: the planner and a judge that sees only the plan and the words. The plan is approved as it was
    shown, by the user, with their words in the receipt; nobody is asked again."""
    model = planner(answer("It takes a day."), accept_plan())
    async with Agent(model, storage=fresh_url(storage, tmp_path)) as agent:
        first = await agent.start("Send it", thread_id="t")
        run = await agent.resume(first, "How long does it take?")
        run = await agent.resume(run, NATURAL)
        assert (run.status, run.plan) == ("answered", first.plan)
        (said, row) = (run.receipt or {})["approvals"][-2:]
        assert (said["decision"], row["decision"], row["by"], row["text"]) == ("say", "approve", "user", NATURAL)
        judged = model.audits[0].text
        assert NATURAL in judged
        assert "Send it by mail" in judged
        assert "It takes a day." in judged
    model.assert_exhausted()


async def test_no_reader_alone_approves() -> None:
    """Q15, C11, X25: what the planner takes for consent and the judge does not is sent back once; a question mark is
    never consent, and asks no judge."""
    model = planner(
        *(accept_plan(), accept_plan(), answer("Shall I send it as it stands?")),
        *(accept_plan(), answer("Tomorrow.")),
        judge=[consent(False, "only the first page")],
        execute=[],
    )
    agent = Agent(model, storage="memory:")
    first = await agent.start("Send it")
    run = await agent.resume(first, "fine with the first page, go for that")
    assert (run.status, run.plan, run.pending[0]["reply"]) == ("waiting", first.plan, "Shall I send it as it stands?")
    assert "only the first page" in model.requests[-2].text
    assert "accept_plan is not legal here" in model.requests[-1].text
    run = await agent.resume(run, "I agree with all of it, but when does it arrive?")
    assert (run.status, run.plan, run.pending[0]["reply"]) == ("waiting", first.plan, "Tomorrow.")
    assert [request.role for request in model.requests].count("judge") == 1
    model.assert_exhausted()


async def test_a_model_that_cannot_judge_accepts_no_plan() -> None:
    """C11: without a second reader a plain yes is asked for, as `accept_plan` is not offered."""
    model = planner(answer("Say yes to begin."))
    model.judges = False
    agent = Agent(model, storage="memory:")
    run = await agent.resume(await agent.start("Send it"), NATURAL)
    assert run.pending[0]["reply"] == "Say yes to begin."
    assert "accept_plan" not in [tool["function"]["name"] for tool in model.requests[-1].tools]


@pytest.mark.parametrize("said", ["cancel", "Stop, please", "never mind"])
async def test_a_word_that_ends_and_is_planned_is_asked_about(said: str) -> None:
    """Q15, C09: “cancel” at a plan that cancels an order may mean either, so neither is done before the person says
    which; words that the plan does not have end it, and “/cancel” always does."""
    plan = submit_plan([step("s1", "Cancel order 17 and stop its delivery")], title="Order 17")
    agent = Agent(ScriptedModel(roles={"triage": [plan], "execute": []}), storage="memory:")
    run = await agent.resume(await agent.start("Cancel order 17"), said)
    if said == "never mind":
        assert run.status == "cancelled"
        return
    assert (run.status, said in (run.problem or "")) == ("waiting", True)
    assert (await agent.resume(run, "/cancel")).status == "cancelled"


@pytest.mark.parametrize("said", ["false", {"agrees": "no"}, None])
async def test_a_judge_that_is_not_understood_approves_nothing(said: Any) -> None:
    """Q15, C11: only a plain true is consent, neither a text nor a missing word."""
    unclear = {"name": "consent", "args": {} if said is None else {"agrees": said}, "id": "j", "type": "tool_call"}
    judge = AIMessage("", tool_calls=[unclear])
    model = planner(accept_plan(), answer("Shall I?"), judge=[judge], execute=[])
    agent = Agent(model, storage="memory:")
    first = await agent.start("Send it")
    run = await agent.resume(first, NATURAL)
    assert (run.status, run.plan, run.pending[0]["reply"]) == ("waiting", first.plan, "Shall I?")


@pytest.mark.parametrize("more", ["and use the blue paper", "go on, then"])
async def test_what_is_said_while_consent_is_read_counts(more: str) -> None:
    """Q15, C10, P22: of two messages neither is left out. The one that comes while the judge reads goes to the planner,
    which may still find consent in both, and the judge reads both."""
    agent: Agent

    async def meanwhile(messages: Any, tools: Any) -> Any:
        await agent.tell("t", more)
        return consent()

    model = planner(accept_plan(), accept_plan(), judge=[meanwhile, consent(), audit(met="yes")])
    agent = Agent(model, storage="memory:", settings={"when_busy": "next_round"})
    run = await agent.resume(await agent.start("Send it", thread_id="t"), NATURAL)
    assert run.status == "answered"
    asked = [request.text for request in model.requests if request.role == "judge"]
    assert (more in asked[0], more in asked[1]) == (False, True)
    assert more in (run.receipt or {})["approvals"][-1]["text"]


async def test_what_others_say_while_consent_is_read_is_no_consent() -> None:
    """R05, C11: where somebody named is asked, the judge reads their words alone; the planner reads both, by name."""
    agent: Agent

    async def meanwhile(messages: Any, tools: Any) -> Any:
        await agent.tell("t", "yes, all of it", by="bob")
        await agent.tell("t", "in blue", by="boss:eve")
        return consent()

    model = planner(accept_plan(), accept_plan(), judge=[meanwhile, consent(), audit(met="yes")])
    settings: Any = {"when_busy": "next_round", "answered_by": {"plan": "boss"}}
    agent = Agent(model, storage="memory:", settings=settings)
    run = await agent.resume(await agent.start("Send it", thread_id="t"), NATURAL, by="boss")
    assert run.status == "answered"
    judge = [request.text for request in model.requests if request.role == "judge"][1]
    assert ("in blue" in judge, "all of it" in judge) == (True, False)
    read = [request.text for request in model.requests if request.role == "triage"][-1]
    assert "bob: yes, all of it\n[said.2] boss:eve: in blue" in read
    assert (run.receipt or {})["approvals"][-1]["text"] == f"{NATURAL}\nin blue"


async def test_consent_in_own_words_starts_a_schedule() -> None:
    """Q15, P18, H13: as a plain yes does; nothing runs now, and the receipt and the schedule name who approved."""
    plan = submit_plan([step("s1", "Send it by mail")], schedule={"every_minutes": 60})
    model = ScriptedModel(roles={"triage": [plan, answer("By mail."), accept_plan()]})
    async with Agent(model, storage="memory:", settings={"answered_by": {"plan": "boss"}}) as agent:
        run = await agent.resume(await agent.start("Send it every hour"), "How would it go?", by="boss:bo")
        run = await agent.resume(run, NATURAL, by="boss:ann")
        assert (run.outcome or {})["code"] == "scheduled"
        names = [(row["decision"], row["name"], row["answered_by"]) for row in (run.receipt or {})["approvals"]]
        assert names == [("say", "boss:bo", "boss"), ("say", "boss:ann", "boss"), ("approve", "boss:ann", "boss")]
        assert [schedule.approved_by for schedule in await agent.schedules.list()] == ["boss:ann"]


@pytest.mark.parametrize("other", [False, True])
async def test_prose_beside_the_plan_after_words_counts_as_its_speak(other: bool) -> None:
    """C11, S02: a planner that answers in prose and submits the plan, the same or another, is read above the plan; its
    words are streamed in the end as `speak` is, so no client shows them twice. A `speak` of its own goes before them.
    """
    new = submit_plan([step("s1", "Send it by fax" if other else "Send it by mail")])
    again = submit_plan([step("s1", "Send it by post")], speak="As you like.")
    model = planner(reply("A fax is free.", [new]), reply("Hm.", [again]))
    agent = Agent(model, storage="memory:")
    await agent.start("Send it", thread_id="t")
    ask: Any = Command(resume="What does it cost?")
    stream = agent.graph.astream(ask, config("t"), stream_mode="custom", subgraphs=True)
    events = [event async for _, event in stream]
    run = await agent.get("t")
    assert run.pending[0]["text"].startswith("A fax is free.\n\n# Plan")
    assert "A fax is free." in str(run)
    heard = {e["id"]: e.get("argument") for e in events if e["type"] == "speech"}
    for event in events:
        if event["type"] == "speech_restarted":
            heard.pop(event["id"])
    assert [*heard.values()] == ["submit_plan.speak"]
    messages = (await agent.graph.aget_state(config("t"))).values["messages"]
    assert [message.text for message in messages].count("A fax is free.") == 1
    run = await agent.resume(run, "By post")
    assert run.pending[0]["text"].startswith("As you like.\n\n")
    assert "Hm." not in run.pending[0]["text"]
    assert (await agent.resume(run, "approve")).status == "answered"
    model.assert_exhausted()


async def test_prose_beside_the_first_plan_is_not_in_its_question() -> None:
    """U1: what a planner says before it plans is streamed, and is no part of the question."""
    model = ScriptedModel(roles={"triage": [reply("Let me plan.", [submit_plan([step("s1")])])]})
    run = await Agent(model, storage="memory:").start("Send it")
    assert "Let me plan." not in run.pending[0]["text"]


async def test_prose_beside_a_corrected_plan_is_for_the_runtime() -> None:
    """C11: what a planner says after its plan was sent back is no answer to the person."""
    wrong = submit_plan([step("s1", "Send it by fax", tools=["fax"])])
    new = submit_plan([step("s1", "Send it by fax")])
    model = planner(reply("A fax is free.", [wrong]), reply("I left the tool out.", [new]))
    agent = Agent(model, storage="memory:")
    await agent.start("Send it", thread_id="t")
    run = await agent.resume("t", "What does it cost?")
    assert run.pending[0]["text"].startswith("# Plan")
    assert "I left" not in str(run)
