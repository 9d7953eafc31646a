"""Steps that need a person: they wait without stopping others, and go on where they were."""

from typing import Any

import pytest

from donewhen.testing import ask_user, call, finish_step, finish_task, give_up
from tests.kit.flows import one_step, play, requests, steps
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


async def test_the_same_question_is_asked_once_and_another_one_is_asked() -> None:
    """X11, X16: the recorded answer is given and costs no question; a declined one is no evidence and is not repeated;
    similar words about something else are another question."""
    asks = [
        "Delete report_2022.csv?",
        "Delete  report_2022.csv ?!",
        "Delete report_2023.csv?",
        "Delete report_2023.csv?",
    ]
    model = one_step([*map(ask_user, asks), finish_step("ok", "s1.1")])
    flow = await play(model, answers=["yes", {"decisions": [{"type": "ignore"}]}])
    model.assert_exhausted()
    assert (flow.status, len(flow.pauses)) == ("answered", 2)
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert "You asked this before; the answer was:\n[s1.1] user ok" in told[1]
    assert told[2].startswith("[s1.2] user error")
    assert "no answer was given" in told[3]


AMOUNT = ask_user("What amount should the invoice have?")


class Bills:
    """A tool that bills the amount which a person named."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def tool(self) -> Any:
        def bill(customer: str, amount: str) -> str:
            """Bill a customer."""
            self.made.append((customer, amount))
            return f"billed {customer} {amount}"

        return bill


def billing(customer: str) -> list[Any]:
    """Ask for the amount, and bill what was answered."""

    def pay(messages: Any, _: Any) -> Any:
        amount = next(word for word in ("100", "900") if word in messages[-1].text)
        return call("bill", customer=customer, amount=amount)

    return [AMOUNT, pay]


def finished(messages: Any, _: Any) -> Any:
    return finish_step("billed", last_seen(messages))


@pytest.mark.parametrize("depends_on", [[], ["s1"]], ids=["side by side", "one after the other"])
async def test_the_same_words_from_another_step_are_another_question(depends_on: list[str]) -> None:
    """N17, X26: both customers were billed the first one's amount, and nobody was asked; people see who asks."""
    bills = Bills()
    first = {"id": "s1", "content": "Bill ACME", "tools": ["bill"], "depends_on": []}
    plan = [first, {"id": "s2", "content": "Bill Globex", "tools": ["bill"], "depends_on": depends_on}]
    model = steps(plan, {"s1": [*billing("ACME"), finished], "s2": [*billing("Globex"), finished]})

    def answer(pause: Any) -> str:
        return "100" if pause["step"] == "s1" else "900"

    flow = await play(model, [bills.tool()], effects={"bill": "write"}, answers=[answer])
    assert (flow.status, sorted(bills.made)) == ("completed", [("ACME", "100"), ("Globex", "900")])
    shown = "Bill Globex (s2): What amount should the invoice have?"
    assert any(shown in message.text for message in flow.values["messages"])


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


async def test_the_same_words_after_a_change_are_about_the_next_thing() -> None:
    """N17, X11: a step that bills two customers in turn asks for each; without a change in between it is told again."""
    bills = Bills()
    model = one_step([AMOUNT, *billing("ACME"), *billing("Globex"), finished], tools=["bill"])
    flow = await play(model, [bills.tool()], effects={"bill": "write"}, answers=["100", "900"])
    assert (flow.status, len(flow.pauses)) == ("completed", 2)
    assert bills.made == [("ACME", "100"), ("Globex", "900")]
