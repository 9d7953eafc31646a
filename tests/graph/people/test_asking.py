"""Who is asked, and when: limits of questions, steps that are blocked, plans that only read, and what is shown."""

from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Agent, GoalError, Limits, Settings
from donewhen.state.people.payload import call_text
from donewhen.testing import ScriptedModel, answer, ask_user, call, finish_step, finish_task, give_up, submit_plan
from tests.kit.flows import FREE, play, steps
from tests.kit.pauses import message_text, payload, pending, question_text
from tests.kit.runs import Outbox, said, scripted, sending, step

TWO = [step("s1", depends_on=[]), step("s2", depends_on=[])]


@pytest.mark.parametrize("limit", ["limits", "step_limits"])
async def test_the_question_beyond_the_limit_offers_an_extension(limit: str) -> None:
    """H13: the model is not told to guess while somebody is there to be asked, nor asked again for its question."""
    model = steps([step("s1")], {"s1": [ask_user("One?"), ask_user("Two?"), said("s1")]})
    settings = {**FREE, limit: {"questions": 1}}
    flow = await play(model, settings=settings, answers=["1", "extend", "2"])
    assert [pause["kind"] for pause in flow.pauses] == ["question", "budget", "question"]
    assert "Step s1 wants to ask: Two?" in flow.pauses[1]["question"]
    assert (flow.status, flow.run.spent["questions"]) == ("answered", 2)
    model.assert_exhausted()


async def test_parallel_steps_share_the_questions_they_ask() -> None:
    """Q7: one question left is not denied to a step because another one might ask."""
    model = steps(TWO, {"s1": [said("s1")], "s2": [ask_user("Which?"), said("s2")]})
    flow = await play(model, settings={**FREE, "limits": {"questions": 1}}, answers=["this"])
    assert (flow.status, [pause["kind"] for pause in flow.pauses]) == ("answered", ["question"])
    both = steps(TWO, {id: [ask_user(f"Which {id}?"), said(id)] for id in ("s1", "s2")})
    flow = await play(both, settings={**FREE, "limits": {"questions": 1}}, answers=["this", "extend 1", "that"])
    assert [pause["kind"] for pause in flow.pauses] == ["question", "budget", "question"]
    assert (flow.status, flow.run.spent["questions"]) == ("answered", 2)


async def test_a_blocked_step_asks_whoever_is_there() -> None:
    """Q8: what is outside of its reach, a person may change; retried, it goes on."""
    model = steps([step("s1")], {"s1": [give_up("the disk is full", "blocked"), said("s1")]})
    flow = await play(model, settings=FREE, answers=["retry"])
    assert "the disk is full" in flow.pauses[0]["question"]
    assert flow.status == "answered"
    model.assert_exhausted()


async def test_a_blocked_step_that_is_tried_again_starts_afresh() -> None:
    """Q8, Q87: refusals from before do not count, also if another step waits for it, which is tried with it."""
    bad, stuck = finish_step("it is there", "s1.7"), give_up("the disk is full", "blocked")
    plan = [step("s1", depends_on=[]), step("s2", depends_on=["s1"])]
    model = steps(plan, {"s1": [bad, stuck, bad, said("s1")], "s2": [said("s2")]})
    flow = await play(model, settings={**FREE, "max_refusals": 2}, answers=["retry"])
    assert (flow.status, flow.values["steps"]["s2"]["status"]) == ("answered", "done")
    model.assert_exhausted()


async def test_a_step_that_waits_when_another_one_makes_it_needless_has_no_open_question() -> None:
    """Q87: of two parallel steps one ends the run while the other waits; only who waits has a question."""
    model = steps(TWO, {"s1": [ask_user("Which?")], "s2": [finish_task("s2", "s2.result", reason="it is all there")]})
    flow = await play(model, settings=FREE)
    waited = flow.values["steps"]["s1"]
    assert (waited["status"], waited["waiting"], bool(waited["ended"])) == ("skipped", None, True)


@pytest.mark.parametrize(("tools", "asks"), [([], False), (["look"], False), (["look", "send"], True)])
async def test_plans_that_only_read_start_at_once(tools: list[str], asks: bool) -> None:
    """Q13, C01: with `confirm="writes"`; they are shown all the same, and a write that no plan listed asks itself."""

    def look() -> str:
        """Look around."""
        return "all is well"

    model = scripted(
        submit_plan([step("s1", tools=tools)]), None if asks else {"s1": [said("s1")]}, () if asks else ("Done.",)
    )
    flow = await play(
        model, [look, Outbox().tool()], effects={"look": "read", "send": "write"}, settings={"confirm": "writes"}
    )
    assert (flow.status == "waiting") is asks
    assert len(flow.told("plan")) == 1
    assert await one_write() == "tool"


SHOWN = {"confirm": "writes", "mode": "step"}


async def one_write() -> str:
    flow = await play(sending(call("send", to="ann", text="hi")), [Outbox().tool()], settings=SHOWN)
    return str(flow.run.pending[0]["kind"])


async def test_a_granted_write_says_that_any_arguments_are_approved() -> None:
    """Q12, C01: whoever approves the plan reads what that means; sent back as it is, the text is still an approval."""
    plan = submit_plan([step("s1", tools=["look", "send"])])

    def look() -> str:
        """Look around."""
        return "all is well"

    model = scripted(plan, {"s1": [said("s1")]})
    back = lambda pause: {"plan": payload(pause)["action_requests"][0]["args"]["plan"]}  # noqa: E731
    flow = await play(
        model,
        [look, Outbox().tool()],
        effects={"look": "read", "send": "write"},
        settings={"approvals": "plan"},
        answers=[back],
    )
    assert "tools: look, send (any arguments)" in message_text(flow.pauses[0])
    assert flow.values["approvals"][0]["decision"] == "approve"


def test_long_texts_of_a_call_are_shown_as_text() -> None:
    """Q10: not as one escaped line of JSON; what replaces something is shown as a difference."""
    shown = call_text({"arguments": {"path": "a.txt", "content": "one\ntwo\u202ethree"}})
    assert '"path": "a.txt"' in shown
    assert "content:\n\n```\none\ntwo\\u202ethree\n```" in shown
    shown = call_text({"arguments": {"path": "a.txt", "old": "one\ntwo\nthree", "new": "one\n2\nthree"}})
    assert "```diff" in shown
    assert "-two\n+2" in shown
    assert '"path": "out.txt",\n  "content": "7"' in payload(pending("tool"))["action_requests"][0]["description"]


async def test_what_a_call_writes_over_is_shown_as_a_difference() -> None:
    """Q10, U13: by what its tool says it replaces, for people and in events; if that fails, people read why."""

    def page(name: str, text: str) -> str:
        """Put a page."""
        return "put"

    def replaced(arguments: dict[str, Any]) -> dict[str, str]:
        return {"text": {"home": "one\ntwo\nthree", "key": "api_key=sk-1234567890abcdef1234567890"}[arguments["name"]]}

    put = StructuredTool.from_function(page, metadata={"effect": "write", "replaces": replaced})
    calls = [call("page", name=name, text="one\n2\nthree") for name in ("home", "key", "new")]
    model = scripted(submit_plan([step("s1")]), {"s1": [*([each] for each in calls), said("s1")]})
    flow = await play(model, [put], settings={}, answers=["approve"] * 4)
    home, key, new = (payload(pause) for pause in flow.pauses[1:])
    assert home["diffs"] == {"text": "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three"}
    assert "```diff" in home["action_requests"][0]["description"]
    assert "sk-1234567890abcdef" not in str(key)
    assert "diffs" not in new
    line = "What is there now could not be read, so no difference is shown: “KeyError: 'new'”"
    assert line in message_text(flow.pauses[3])
    assert "could not be read" not in message_text(flow.pauses[1])
    assert [bool(event.get("diffs")) for event in flow.told("tool_started")] == [True, True, False]


async def test_the_runtime_speaks_the_language_that_the_plan_declares() -> None:
    """Q11, P14, N34: plan, question, options and summary; answered in that language, whatever the goal looks like."""
    plan = submit_plan([step("s1")], language="de-AT")
    model = steps([], {"s1": [give_up("die Platte ist voll")]}, triage=[plan], deliver=[])
    goal = "Translate '你好' and the differences between der, die and das"
    flow = await play(model, settings={"on_failure": "ask"}, goal=goal, answers=["genehmigen", "aufhören"])
    plan, failure = (message_text(pause) for pause in flow.pauses)
    assert plan.endswith("Soll ich nach diesem Plan vorgehen?")
    assert "- fertig wenn: " in plan
    assert "Wie soll es weitergehen?\n\n1. neu planen\n2. noch einmal versuchen" in failure
    assert flow.status == "cancelled"
    assert "0 von 1 Schritten erledigt." in flow.run.answer


async def test_a_question_about_failures_has_no_english_note_in_it() -> None:
    """Q11, Q27: of two steps that failed at once; only what models and tools said is in their own words."""

    def look(what: str) -> str:
        """Look."""
        return f"{what} ist leer"

    plan = submit_plan([step("s1", tools=["look"], depends_on=[]), step("s2", depends_on=[])], language="de")
    idle = ["Hm.", "Tja.", "Nun.", "Ach.", "Oh."]
    scripts = {"s1": [call("look", what="Regal"), give_up("keins da")], "s2": [*idle, give_up("keine Idee")]}
    flow = await play(
        steps([], scripts, triage=[plan], deliver=[]),
        [look],
        effects={"look": "read"},
        settings={"confirm": "never", "on_failure": "ask"},
    )
    assert flow.run.pending[0]["question"] == (
        "Schritt 1 (work on s1) gescheitert: keins da\n- gesehen: look: Regal ist leer\n"
        "Schritt 2 (work on s2) gescheitert: keine Idee; nichts Neues in den letzten 5 Runden\n\n"
        "Wie soll es weitergehen?"
    )


def test_forms_and_long_arguments_are_explained_in_the_persons_language() -> None:
    """Q11, Q27: what is required, what is the default, how much of a text is below."""
    schema = {"properties": {"size": {"type": "string", "default": "M"}}, "required": ["size"]}
    form = question_text({**pending("question", language="de"), "schema": schema})
    assert '- size (string, nötig, voreingestellt "M")' in form
    shown = question_text(pending("tool", arguments={"text": "eins\nzwei"}, language="de"))
    assert "(9 Zeichen, siehe unten)" in shown


async def test_each_question_is_asked_in_the_language_that_it_declares() -> None:
    """P14: of the planner and of a step; without a declaration that of the settings."""
    asks = [call("ask_user", question="Welches Jahr?", language="de"), submit_plan([step("s1")], language="fr")]
    model = steps([], {"s1": [call("ask_user", question="Which year?", language="en"), said("s1")]}, triage=asks)
    flow = await play(model, settings={}, answers=["1", "oui", "2"])
    assert [pause.get("language", "en") for pause in flow.pauses] == ["de", "fr", "en"]
    assert flow.run.language == "fr"
    plain = await play(steps([step("s1")], {"s1": [said("s1")]}), settings={"language": "ja"}, answers=["はい"])
    assert [pause["language"] for pause in plain.pauses] == ["ja"]


async def test_an_answer_given_in_planning_can_be_cited() -> None:
    """N12: under the id that it is shown with, beside what planning saw itself; by a step and by an answer."""

    def shelf() -> str:
        """Look at the shelf."""
        return "three lamps"

    done = finish_step("red", [("p.1", "red"), ("p.2", "three lamps"), ("p.3", "two")])
    asks = [
        ask_user("Which colour?"),
        call("shelf"),
        ask_user("How many?"),
        submit_plan([step("s1", done_when=["chosen", "seen", "counted"])]),
    ]
    model = steps([], {"s1": [done]}, triage=asks)
    flow = await play(model, [shelf], effects={"shelf": "read"}, answers=["red", "two", "yes"])
    model.assert_exhausted()
    assert [entry["id"] for entry in flow.journal][:3] == ["p.1", "p.2", "p.3"]
    assert all(f"[{id}]" in model.requests[3].text for id in ("p.1", "p.2", "p.3"))
    assert flow.status == "completed"
    assert [row["id"] for row in (flow.run.receipt or {})["questions"]] == ["p.1", "p.3"]


async def test_the_planner_is_offered_one_as_well() -> None:
    """H13: it asks again once more may be asked."""
    model = scripted([ask_user("Which year?"), ask_user("Which year?"), answer("2024.")], deliver=())
    flow = await play(model, settings=Settings(limits=Limits(questions=0)), answers=["extend", "2024"])
    assert [pause["kind"] for pause in flow.pauses] == ["budget", "question"]
    assert flow.status == "answered"
    model.assert_exhausted()


async def test_steps_that_get_their_first_budget_from_a_person_are_told_to_begin() -> None:
    """Q87: two steps without budget of their own; more of it does not change what they are, so both begin."""
    model = steps(TWO, {id: [said(id)] for id in ("s1", "s2")})
    flow = await play(model, settings={**FREE, "step_limits": {"rounds": 0}}, answers=["extend 1", "extend 1"])
    assert (flow.status, [pause["kind"] for pause in flow.pauses]) == ("answered", ["budget", "budget"])
    assert [event["step"] for event in flow.told("step_started")] == ["s1", "s2"]


@pytest.mark.parametrize("first", ["budget", "question"])
@pytest.mark.parametrize("wrapped", [True, False], ids=["answers", "by id"])
async def test_a_limit_and_a_question_are_answered_at_once_in_any_order(first: str, wrapped: bool) -> None:
    """C05, Q87: the run plans anew, and the thread goes on, whichever of the two answers stands first."""

    def look() -> str:
        """Look."""
        return "seen"

    again = submit_plan([step("s2", "ask nobody")])
    rounds = [ask_user("A?"), ask_user("B?", options=["1", "2"])]
    model = ScriptedModel(
        roles={"triage": [submit_plan([step("s1", "ask", tools=["look"])])], "plan": [again], "execute": rounds},
        strict=False,
    )
    settings = {"step_limits": {"questions": 1}}
    async with Agent(model, [look], effects={"look": "read"}, storage="memory:", settings=settings) as agent:
        run = await agent.start("ask", thread_id="t")
        while len(run.pending) == 1:
            run = await agent.resume(run, "approve" if run.pending[0]["kind"] == "plan" else "fine")
        budget, question = (pause["id"] for pause in run.pending)
        given = {budget: "replan", question: "2"}
        given = given if first == "budget" else dict(reversed(given.items()))
        run = await agent.resume(run, {"answers": given} if wrapped else given)
        assert (run.pending[0]["kind"], run.steps["s1"]["status"]) == ("plan", "exhausted")


PICTURE: list[dict[str, str]] = [{"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}]


async def test_a_picture_without_words_says_what_to_do() -> None:
    """C02: as a goal, at a plan and at a question; nobody reads its data."""
    model = ScriptedModel(roles={"triage": [submit_plan(["ask"])], "execute": {"s1": [ask_user("Which order?")]}})
    async with Agent(model, storage="memory:", settings={"confirm": "always"}) as agent:
        with pytest.raises(GoalError, match="alone is no goal"):
            await agent.start(PICTURE)
        run = await agent.start("My lamp broke")
        for kind in ("plan", "question"):
            assert run.pending[0]["kind"] == kind
            refused = await agent.resume(run, PICTURE)
            assert refused.problem.startswith("a picture or file alone is no answer: say in words")
            run = await agent.resume(run, "approve") if kind == "plan" else refused
