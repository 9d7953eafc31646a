"""Steps that need a person: they wait without stopping others, and go on where they were."""

from typing import Any

import pytest

from donewhen.testing import ask_user, call, finish_step, finish_task, give_up
from tests.kit.flows import last_told, one_step, play, requests, steps
from tests.kit.runs import last_seen

EFFECTS: dict[str, Any] = {"look": "read"}


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


PARALLEL = [
    {"content": "ask first", "depends_on": [], "tools": ["look"]},
    {"content": "just work", "depends_on": [], "tools": ["look"]},
    {"content": "put together", "depends_on": ["s1", "s2"]},
]


async def test_a_question_goes_on_where_it_was_asked() -> None:
    """X16, X13: in the same conversation; the answer is the result of the very call, and evidence."""
    replies = [call("look", what="a"), ask_user("Which year?", ["2022", "2023"]), finish_step("2023", ("s1.2", "2023"))]
    model = one_step(replies, tools=["look"])
    flow = await play(model, [look], effects=EFFECTS, answers=["2"])
    model.assert_exhausted()
    assert flow.status == "completed"
    pause = flow.pauses[0]
    assert (pause["id"], pause["question"], pause["options"]) == ("s1.q1", "Which year?", ["2022", "2023"])
    messages = requests(model, "s1")[-1].messages
    assert [m.type for m in messages] == ["system", "human", "ai", "tool", "ai", "tool"]
    assert messages[-1].tool_call_id == messages[-2].tool_calls[0]["id"]
    assert messages[-1].text == "[s1.2] user ok\n2023"
    assert [(e["id"], e["source"]) for e in flow.journal] == [
        ("s1.1", "tool"),
        ("s1.2", "user"),
        ("s1.result", "result"),
    ]
    assert flow.run.spent["questions"] == 1
    assert flow.run.spent["rounds"] == 3


async def test_a_waiting_step_stops_nobody_and_nobody_runs_again() -> None:
    """X16, C07: the sibling runs to its end first, and the answer continues the same step."""
    replies = {
        "s1": [ask_user("Which?"), call("look", what="a"), finish_step("one", "s1.2")],
        "s2": [call("look", what="b"), call("look", what="c"), finish_step("two", "s2.2")],
        "s3": [finish_step("both", "s3.result")],
    }
    model = steps(PARALLEL, replies)
    flow = await play(model, [look], effects=EFFECTS, answers=["this one"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [e["id"] for e in flow.journal if e["source"] == "tool"] == ["s2.1", "s2.2", "s1.2"]
    assert [e["step"] for e in flow.told("step_started")] == ["s1", "s2", "s3"]


async def test_the_same_question_is_not_asked_twice() -> None:
    """X11: the recorded answer is given and costs no question."""
    asks = [ask_user("Which year?"), ask_user("Ｗhich  YEAR ?!"), finish_step("2023", ("s1.1", "2023"))]
    flow = await play(model := one_step(asks), answers=["2023"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert flow.run.spent["questions"] == 1
    assert "You asked this before; the answer was:\n[s1.1] user ok" in last_told(model, "s1")


AMOUNT = ask_user("What amount should the invoice have?")


@pytest.mark.parametrize("depends_on", [[], ["s1"]], ids=["side by side", "one after the other"])
async def test_the_same_words_from_another_step_are_another_question(depends_on: list[str]) -> None:
    """N17, X26: both customers were billed the first one's amount, and nobody was asked; people see who asks."""
    billed: dict[str, str] = {}

    def bill(customer: str, amount: str) -> str:
        """Bill a customer."""
        billed[customer] = amount
        return f"billed {customer} {amount}"

    def billing(customer: str) -> list[Any]:
        def pay(messages: Any, _: Any) -> Any:
            amount = next(word for word in ("100", "900") if word in messages[-1].text)
            return call("bill", customer=customer, amount=amount)

        return [AMOUNT, pay, lambda messages, _: finish_step("billed", last_seen(messages))]

    first = {"id": "s1", "content": "Bill ACME", "tools": ["bill"], "depends_on": []}
    plan = [first, {"id": "s2", "content": "Bill Globex", "tools": ["bill"], "depends_on": depends_on}]
    model = steps(plan, {"s1": billing("ACME"), "s2": billing("Globex")})

    def answer(pause: Any) -> str:
        return "100" if pause["step"] == "s1" else "900"

    flow = await play(model, [bill], effects={"bill": "write"}, answers=[answer])
    assert (flow.status, billed) == ("completed", {"ACME": "100", "Globex": "900"})
    shown = "Bill Globex (s2): What amount should the invoice have?"
    assert any(shown in message.text for message in flow.values["messages"])


async def test_the_same_words_after_a_change_are_about_the_next_thing() -> None:
    """N17, X11: a step that bills two customers in turn asks for each; a reading in between changes nothing."""
    billed: list[str] = []

    def bill(amount: str) -> str:
        """Bill the next customer."""
        billed.append(amount)
        return f"billed {amount}"

    first, second = call("bill", amount="100"), call("bill", amount="900")
    model = one_step([AMOUNT, AMOUNT, first, AMOUNT, second, finish_step("billed", "s1.4")], tools=["bill"])
    flow = await play(model, [bill], effects={"bill": "write"}, answers=["100", "900"])
    assert (flow.status, billed, len(flow.pauses)) == ("completed", ["100", "900"], 2)


async def test_a_failed_step_that_is_tried_again_goes_on_where_it_was() -> None:
    """X10, R02: with its conversation; what it did is not done again."""
    sent = []

    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return f"sent to {to}"

    replies = [call("send", to="Ann"), give_up("no receipt"), finish_step("sent", ("s1.1", "sent to Ann"))]
    model = one_step(replies, tools=["send"])
    flow = await play(model, [send], settings={"confirm": "never", "on_failure": "ask"}, answers=["retry"])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert "no receipt" in flow.pauses[0]["question"]
    assert [m.type for m in requests(model, "s1")[-1].messages] == ["system", "human", "ai", "tool", "ai", "tool"]
    assert sent == ["Ann"]


async def test_a_declined_question_is_not_asked_again_either() -> None:
    """X11, X16: it comes back as an error, which is no evidence; the step goes on without."""
    model = one_step([ask_user("Which?"), ask_user("Which?"), finish_step("any", "s1.result")])
    flow = await play(model, answers=[{"decisions": [{"type": "ignore"}]}])
    model.assert_exhausted()
    assert flow.status == "completed"
    assert requests(model, "s1")[1].messages[-1].text.startswith("[s1.1] user error")
    assert "no answer was given" in last_told(model)


async def test_a_similar_question_about_something_else_is_asked() -> None:
    """X11: an answer is never taken for another question."""
    replies = [ask_user("Delete report_2022.csv in the archive?"), ask_user("Delete report_2023.csv in the archive?")]
    model = one_step([*replies, finish_step("ok", ["s1.1"])])
    flow = await play(model, answers=["yes", "no"])
    assert len(flow.pauses) == 2


async def test_no_more_questions_than_allowed() -> None:
    """R05: beyond the limit the model decides itself; nobody is asked."""
    model = one_step([ask_user("One?"), ask_user("Two?"), finish_step("ok", "s1.1")])
    limits = {"limits": {"rounds": 9, "questions": 1}, "on_exhausted": "deliver"}
    flow = await play(model, answers=["1"], settings={"confirm": "never", **limits})
    model.assert_exhausted()
    assert flow.status == "completed"
    assert flow.run.spent["questions"] == 1
    assert "limit of questions is reached" in last_told(model)


async def test_finishing_the_task_does_not_wait_for_open_questions() -> None:
    """X04: a step that waits is skipped, with the reason."""
    model = steps(
        PARALLEL,
        {
            "s1": [ask_user("Which?")],
            "s2": [call("look", what="b"), finish_task("found", "s2.1", reason="b was enough")],
        },
    )
    flow = await play(model, [look], effects=EFFECTS)
    model.assert_exhausted()
    assert flow.status == "partial"
    assert [flow.step(id)["status"] for id in ("s1", "s2", "s3")] == ["skipped", "done", "skipped"]


async def test_a_failed_step_leaves_a_waiting_sibling_its_chance() -> None:
    """X09, X10: the question comes first; then the failure is dealt with."""
    model = steps(
        PARALLEL,
        {
            "s1": [ask_user("Which?"), finish_step("one", ("s1.1", "this"))],
            "s2": [give_up("broken")],
        },
    )
    settings = {"confirm": "never", "on_failure": "deliver"}
    flow = await play(model, [look], effects=EFFECTS, settings=settings, answers=["this one"])
    model.assert_exhausted()
    assert flow.status == "partial"
    assert [flow.step(id)["status"] for id in ("s1", "s2", "s3")] == ["done", "failed", "blocked"]


async def test_a_printed_question_is_answered_in_plain_text() -> None:
    """X16, X02: models without tool calling; the question may stand in `speak`."""
    model = one_step(['{"action": "ask_user", "speak": "Which year?"}', finish_step("2023", ["s1.1"])])
    flow = await play(model, answers=["2023"])
    model.assert_exhausted()
    assert flow.pauses[0]["question"] == "Which year?"
    assert requests(model, "s1")[-1].messages[-1].type == "human"
    assert last_told(model).startswith("[s1.1] user ok")
