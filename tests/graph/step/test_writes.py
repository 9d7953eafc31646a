"""The one rule for writes: what nobody can account for goes to its key, its probe or a person before it is repeated."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolCallId, StructuredTool, ToolException

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, one_step, play, say_done, steps
from tests.kit.runs import Outbox, last_seen, step
from tests.kit.storage.cases import DATABASES, fresh_url

HELLO = call("send", to="ann", text="hello")
PAY = call("pay", order="A1")
SHORT = {**FREE, "tool_seconds": 0.05}


def as_write(work: Any, name: str) -> StructuredTool:
    """As a write of this name."""
    return StructuredTool.from_function(work, name=name, metadata={"effect": "write"})


def done(messages: Any, tools: Any) -> Any:
    return finish_step("sent", last_seen(messages))


class Bank:
    """Pays, and does not answer the first time; `fails` is the number of a call with a key that does not reach it."""

    def __init__(self, *, fails: int = 0, **metadata: Any) -> None:
        self.paid: list[str] = []
        self.keys: list[str] = []
        self.fails = fails
        self.metadata = metadata

    async def pay(self, order: str) -> str:
        """Pay an order."""
        self.paid.append(order)
        if len(self.paid) == 1:
            await asyncio.Event().wait()
        return f"paid {order}"

    async def pay_once(self, order: str, idempotency_key: str) -> str:
        """Pay an order, once per key."""
        self.keys.append(idempotency_key)
        if len(self.keys) == self.fails:
            raise ConnectionError("503 Service Unavailable")
        return await self.pay(order) if idempotency_key not in self.keys[:-1] else f"paid {order}"

    def tool(self, *, keyed: bool = False) -> StructuredTool:
        """As a write."""
        work = self.pay_once if keyed else self.pay
        return StructuredTool.from_function(coroutine=work, name="pay", metadata={"effect": "write", **self.metadata})


@pytest.mark.parametrize(
    ("said", "paid"),
    [
        *[("it happened", 1), ("it did not", 2), ("skip", 1), ("run it again", 2), ("again", 2), ("Noch einmal.", 2)],
        *[("2", 2), ("もう一度", 2), ("otra vez", 2), ("再做一次", 2), ("Refaire", 2)],
    ],
)
async def test_a_write_that_timed_out_is_not_repeated_unasked(said: str, paid: int) -> None:
    """W1, X20, R03: nobody knows what it did; the next round has another key, and still it is the same payment."""
    bank = Bank()
    last = give_up("not paid") if said == "skip" else done
    model = one_step([PAY, PAY, last], tools=["pay"], deliver=() if said == "skip" else ("Done.",))
    flow = await play(model, [bank.tool()], answers=[said], settings={**SHORT, "on_failure": "deliver"})
    assert [pause["kind"] for pause in flow.pauses] == ["effect"]
    assert "it may have taken effect" in flow.pauses[0]["question"]
    assert "it did not, or only in part: do it again" in flow.pauses[0]["options"]
    assert len(bank.paid) == paid


@pytest.mark.parametrize(("fails", "tries"), [(0, 2), (2, 3)])
async def test_a_tool_that_takes_the_key_gets_the_same_key_again(fails: int, tries: int) -> None:
    """W1, X20, R03: paid once, and nobody is asked, also if the service is down when it is asked again with the key."""
    bank = Bank(fails=fails)
    flow = await play(one_step([*[PAY] * tries, done], tools=["pay"]), [bank.tool(keyed=True)], settings=SHORT)
    assert (flow.status, flow.pauses, bank.paid) == ("completed", [], ["A1"])
    assert (len(bank.keys), len(set(bank.keys))) == (tries, 1)


AGAIN = submit_plan([{"content": "do it again", "tools": ["send"]}])
SAME_ID = submit_plan([{"id": "s1", "content": "do it", "tools": ["send"]}, {"id": "s2", "content": "tell"}])


@pytest.mark.parametrize("step_ends", [False, True], ids=["its step fails", "another step fails"])
@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without"])
@pytest.mark.parametrize(("said", "paid"), [("it happened", 1), ("do it again", 2), ("skip", 1)])
async def test_a_payment_of_an_earlier_request_is_not_taken_for_this_ones(
    said: str, paid: int, keyed: bool, step_ends: bool
) -> None:
    """W1, X27: that did not end well, so a person says whether the same is paid again, and then it truly is."""
    keys: list[str] = []

    def pay_once(order: str, idempotency_key: str) -> str:
        """Pay an order, once per key."""
        keys.append(idempotency_key)
        return f"paid {order}"

    def pay(order: str) -> str:
        """Pay an order."""
        return pay_once(order, str(len(keys)))

    tool = as_write(pay_once if keyed else pay, "pay")
    end = give_up("left out") if said == "skip" else done
    first_end = done if step_ends else give_up("it is not confirmed")
    steps = [{"content": "pay", "tools": ["pay"]}, {"content": "tell", "tools": None, "after": ["s1"]}]
    plans = [submit_plan(steps[: 1 + step_ends]), submit_plan(steps[:1])]
    rounds = {"s1": [PAY, first_end, PAY, end], "s2": [give_up("nobody is there")]}
    model = ScriptedModel(roles={"triage": plans, "execute": rounds, "deliver": say_done})
    async with Agent(model, [tool], storage="memory:", settings={**FREE, "on_failure": "deliver"}) as agent:
        first = await agent.start("Pay A1")
        assert len(keys) == 1
        second = await agent.start("Pay A1", thread_id=first.thread_id)
        (pause,) = second.pending
        assert pause["kind"] == "effect"
        assert "was done before" in pause["question"]
        second = await agent.resume(second, said)
    assert second.status == ("failed" if said == "skip" else "completed")
    assert len(set(keys)) == paid


@pytest.mark.parametrize(("plan", "id"), [(AGAIN, "s2"), (SAME_ID, "s1")], ids=["another id", "the same id"])
@pytest.mark.parametrize(("said", "times"), [("approve", 2), ({"type": "respond", "message": "it is sent"}, 1)])
async def test_what_an_unfinished_attempt_did_is_not_repeated_unasked(
    plan: Any, id: str, said: Any, times: int
) -> None:
    """W2, X20, Q70: what a step did is known as done after a replan; the same once more asks, under any policy."""
    outbox, end = Outbox(), done if times > 1 else finish_step("sent", "s1.1", unchanged="it was sent before")
    script = {"s1": [HELLO, give_up("it failed")], id: [HELLO, end]}
    if id == "s1":
        script = {"s1": [HELLO, give_up("it failed"), HELLO, end], "s2": [finish_step("told", "s2.result")]}
    model = steps([{"content": "do it", "tools": ["send"]}], script, plan=[plan])
    flow = await play(model, [outbox.tool()], answers=[said])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == ["tool"]
    assert "already made and succeeded" in flow.pauses[0]["question"]
    assert (flow.status, len(outbox.sent)) == ("completed", times)


TAKEN_OVER = submit_plan([{"id": "s2", "content": "go on", "tools": ["count"], "replaces": ["s1"]}])
WAYS: list[tuple[str, list[Any], dict[str, Any], str, list[str]]] = [
    ("a replan", [give_up("no")], {"plan": [TAKEN_OVER]}, "s2", []),
    ("a promotion", [], {"plan": [TAKEN_OVER]}, "s2", []),
    ("a promotion that goes on", [], {"plan": [submit_plan([{"id": "s1"}])]}, "s1", []),
    ("a fresh attempt", [give_up("no")], {}, "s1", ["retry"]),
]


@pytest.mark.parametrize("again", [0, 1, 2], ids=["cited", "one again", "both again"])
@pytest.mark.parametrize(("way", "ends", "roles", "id", "first"), WAYS, ids=[row[0] for row in WAYS])
async def test_what_a_step_did_is_known(
    way: str, ends: list[Any], roles: dict[str, Any], id: str, first: list[str], again: int
) -> None:
    """X28, Q70: of two writes, after a replan, a promotion and a fresh attempt: they prove the step, nobody is asked
    what became of them; one made again asks as in any step, and what is observed then is new, not what was before."""
    made: list[str] = []

    def count(what: str) -> str:
        """Count."""
        made.append(what)
        return f"{what} makes {len(made)}"

    both = (call("count", what="a"), call("count", what="b"))
    known = finish_step("counted", ("s1.2", "b makes 2"), unchanged="both were counted")
    rest = [*both[:again], done if again else known]
    work = {"s1": [both, *ends, *rest]} if id == "s1" else {"s1": [both, *ends], id: rest}
    model = steps([{"content": "do it", "tools": ["count"]}], work, **roles)
    settings: Any = {"confirm": "never", "on_failure": "ask" if first else "replan"}
    settings |= {"promote_rounds": 1} if "promotion" in way else {}
    effects = {"count": "write"}
    flow = await play(model, [count], effects=effects, settings=settings, answers=[*first, *["approve"] * again])
    model.assert_exhausted()
    assert [pause["kind"] for pause in flow.pauses] == [*["question"] * len(first), *["tool"] * again]
    assert (flow.status, made) == ("completed", ["a", "b", *"ab"[:again]])
    seen = [entry["text"] for entry in flow.journal if entry["source"] == "tool" and entry["ok"]]
    assert seen == [f"{what} makes {number}" for number, what in enumerate(made, 1)]


@pytest.mark.parametrize("kind", ["memory", *DATABASES])
async def test_a_payment_beside_an_equal_one_asks_like_one_alone(kind: str, tmp_path: Path) -> None:
    """Q02, X20: parallel steps pay, and the bank does not answer one of them; when it is told to try again, it asks."""

    def work(messages: Any, tools: Any) -> Any:
        told = messages[-1].text
        return done(messages, tools) if "] pay ok" in told else give_up("no answer") if "] pay error" in told else PAY

    bank, ids = Bank(), ("s1", "s2")
    both = [{"id": id, "content": f"pay for {id}", "tools": ["pay"], "depends_on": []} for id in ids]
    flow = await play(
        steps(both, dict.fromkeys(ids, work)),
        [bank.tool()],
        answers=["retry", "it did not"],
        settings={**SHORT, "on_failure": "ask"},
        storage=fresh_url(kind, tmp_path),
    )
    assert [pause["kind"] for pause in flow.pauses] == ["question", "effect"]
    assert (flow.status, len(bank.paid)) == ("completed", 3)


@pytest.mark.parametrize(
    "output", ['{"error": null, "id": 7}', "Errors: 0", "Failure: fixed", "失败0条，成功5条", '{"success": false}']
)
async def test_a_write_failed_by_its_status_and_never_by_its_words(output: str) -> None:
    """N19, V10: what the tool returned is what it returned, in any language; a judge may doubt it."""

    def send(to: str, text: str) -> str:
        """Send."""
        return output

    model = one_step([HELLO, done], tools=["send"], done_when=["the message was sent"])
    flow = await play(model, [send], effects={"send": "write"})
    assert (flow.status, flow.pauses, len(flow.run.receipt["effects"])) == ("completed", [], 1)


@pytest.mark.parametrize("how", ["message", "raised"])
async def test_a_write_whose_status_is_an_error_proves_no_change(how: str) -> None:
    """N19, X07: a message with `status="error"`, or what the tool raised; the text says nothing of it."""

    def send(to: str, text: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Send."""
        if how == "raised":
            raise ToolException("all went well")
        return ToolMessage("all went well", tool_call_id=tool_call_id, status="error")

    model = one_step([HELLO, done, give_up("not sent")], tools=["send"], done_when=["the message was sent"])
    flow = await play(model, [send], effects={"send": "write"}, settings={**FREE, "on_failure": "deliver"})
    assert flow.status == "failed"
    assert not flow.journal[0]["ok"]


async def test_a_call_like_one_of_unknown_outcome_asks() -> None:
    """Q03, X24: in two steps at once, a model that is not told whether it paid pays again with a remark; another amount
    for somebody else is nobody's question.
    """
    paid: list[tuple[str, int, str]] = []

    def pay(to: str, amount: int, remark: str = "") -> str:
        """Pay somebody."""
        paid.append((to, amount, remark))
        if len([one for one in paid if one[0] == to]) == 1 and to != "cid":
            raise TimeoutError
        return f"paid {to}"

    def work(to: str) -> list[Any]:
        first, again = call("pay", to=to, amount=10), call("pay", to=to, amount=10, remark="corrected")
        return [first, call("pay", to="cid", amount=len(to)), again, done]

    model = steps([step(id, f"Pay {id} and cid", tools=["pay"], depends_on=[]) for id in ("ann", "bobby")], {
        id: work(id) for id in ("ann", "bobby")
    })  # fmt: skip
    settings = {**FREE, "approvals": "shown"}
    goal = "Pay ann 10, bobby 10, and cid 3 and 5"
    flow = await play(
        model, [pay], answers=["approve", {"type": "reject", "message": "no"}], settings=settings, goal=goal
    )
    assert [pause["kind"] for pause in flow.pauses] == ["tool", "tool"]
    assert all("unknown whether it took effect" in pause["question"] for pause in flow.pauses)
    assert sorted(one for one in paid if one[2]) == [("ann", 10, "corrected")]
    assert len(paid) == 5
