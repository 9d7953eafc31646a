"""Hooks: an organisation's policies refuse, ask and observe, wherever a call is made and a run ends."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from langchain_core.tools import ToolException
from langgraph.types import interrupt
from pydantic import BaseModel

from donewhen import Agent, ConfigError, Executor, StorageError, build_graph
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.hooks import Ask, Call, End, Hooks, Note, Question, Refuse
from donewhen.testing import ScriptedModel, answer, ask_user, call, deliver, finish_step, give_up, submit_plan
from tests.kit.flows import FREE, last_told, one_step, play, requests, steps

SENT: list[str] = []
EFFECTS: dict[str, Any] = {"look": "read", "send": "write"}


def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: card 4111"


def send(to: str) -> str:
    """Send a mail."""
    SENT.append(to)
    return f"sent to {to}"


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def only_ours(made: Call) -> Refuse | None:
    """Refuse mail to others."""
    return Refuse("mail stays in the house") if made.tool == "send" and "@ours" not in made.arguments["to"] else None


async def test_a_refused_call_is_not_made_and_the_model_reads_why() -> None:
    """X06, X13, X15: the reason is the call's result, and nobody is asked to consent to it; what is allowed is made."""
    replies = [call("send", to="a@other"), call("send", to="b@ours"), finish_step("Sent.", ("s1.2", "sent to b@ours"))]
    model, hooks = one_step(replies, tools=["send"]), Hooks(before_call=[only_ours])
    settings = {"confirm": "never", "approvals": "shown"}
    flow = await play(model, [send], effects=EFFECTS, hooks=hooks, settings=settings, goal="Write to b@ours")
    assert (flow.status, flow.pauses, SENT) == ("completed", [], ["b@ours"])
    assert "Not run: a policy refuses it: mail stays in the house" in requests(model, "s1")[1].messages[-1].text
    assert [entry["ok"] for entry in flow.journal[:2]] == [False, True]


async def test_a_hook_asks_a_person_about_the_call_as_it_will_run() -> None:
    """X15: the question of consent, in the hook's words; a yes makes the frozen call, and the hook is asked no more."""

    async def big(made: Call) -> Ask | None:
        return Ask("Mail leaves the house. Is legal informed?") if made.tool == "send" else None

    hooks = Hooks(before_call=[big])
    for said, sent in (("approve", ["a@other"]), ({"type": "reject", "message": "no"}, [])):
        SENT.clear()
        end = finish_step("Done.", ("s1.1", "a@other")) if sent else give_up("not allowed")
        model = one_step([call("send", to="a@other"), end], tools=["send"])
        flow = await play(model, [send], effects=EFFECTS, answers=[said], hooks=hooks)
        assert flow.pauses[0]["kind"] == "tool"
        assert "Is legal informed?" in flow.pauses[0]["question"]
        assert (flow.status, SENT) == ("completed" if sent else "failed", sent)


async def test_what_a_hook_asks_about_a_call_is_asked_though_it_was_approved_beside_another() -> None:
    """X15: a question about two calls has the hook's words for the first alone; those for the second are asked."""
    SENT.clear()

    def compliance(made: Call) -> Ask | None:
        return Ask("COMPLIANCE: may it go to zed?") if made.arguments["to"] == "zed@other" else None

    both = [call("send", to="amy@other"), call("send", to="zed@other")]
    model = one_step([both, finish_step("Done.", ("s1.2", "zed@other"))], tools=["send"])
    said = ["approve", "approve"]
    settings = {"confirm": "never", "approvals": "shown"}
    hooks = Hooks(before_call=[compliance])
    flow = await play(model, [send], effects=EFFECTS, answers=said, hooks=hooks, settings=settings)
    assert (flow.status, SENT) == ("completed", ["amy@other", "zed@other"])
    assert ["COMPLIANCE" in pause["question"] for pause in flow.pauses] == [False, True]


async def test_a_person_agrees_to_no_question_that_they_did_not_read() -> None:
    """X15: an edit meets the hooks anew: one of them asks about the call as it is now, and one refuses it. What
    was read and agreed to is asked no more, whatever else was edited, and each call is made once."""

    def compliance(made: Call) -> Ask | Refuse | None:
        to = made.arguments["to"]
        return Refuse("never to her") if "mallory" in to else Ask("Is legal informed?") if "@other" in to else None

    for first, edits, sent, asked in (
        ("amy@ours", ["zed@other"], ["zed@other"], [False, True]),
        ("amy@other", ["zed@other"], ["zed@other"], [True]),
        ("amy@ours", ["mallory"], [], [False]),
        ("amy@ours", ["bob@ours"], ["bob@ours"], [False]),
    ):
        SENT.clear()
        answers = [*({"type": "edit", "arguments": {"to": to}} for to in edits), *["approve"] * (len(asked) - 1)]
        model = one_step([call("send", to=first), give_up("no more")], tools=["send"])
        settings, hooks = {"confirm": "never", "approvals": "shown"}, Hooks(before_call=[compliance])
        flow = await play(model, [send], effects=EFFECTS, answers=answers, hooks=hooks, settings=settings)
        assert (SENT, [pause.get("hook") for pause in flow.pauses]) == (
            sent,
            ["Is legal informed?" if each else None for each in asked],
        )


@pytest.mark.parametrize("first", [[], [{"type": "edit", "arguments": {"to": "zed@other"}}]])
async def test_a_hook_that_asks_otherwise_each_time_asks_twice_and_then_refuses(first: list[Any]) -> None:
    """X15: nobody is asked for ever, and no call is made whose question nobody read; also about an edited call, with
    two questions of its own, and when the model makes the refused call again. One that asks
    otherwise once is answered at the second."""
    for most, sent in ((99, 0), (len(first) + 2, 1)):
        SENT.clear()
        asked = count(1)
        hooks = Hooks(before_call=[lambda made, n=asked, most=most: Ask(f"{min(next(n), most)} went out. One more?")])
        again = call("send", to="zed@other" if first else "a@other")
        rounds = [call("send", to="a@other"), *([again] * 3 if not sent else ()), give_up("no more")]
        answers = [*first, "approve", "approve"]
        settings = {"confirm": "never", "approvals": "plan"}
        model = one_step(rounds, tools=["send"])
        flow = await play(model, [send], effects=EFFECTS, answers=answers, hooks=hooks, settings=settings)
        assert (len(flow.pauses), len(SENT), flow.run.pending) == (len(answers), sent, ())
        assert ("asks something else" in last_told(model, "s1")) is not bool(sent)


@pytest.mark.parametrize(("effect", "fails"), [("write", 0), ("write", 1), ("read", 0), ("read", 1)])
async def test_a_call_about_which_a_hook_asked_twice_may_be_asked_about_again_once_it_was_made(
    effect: str, fails: int
) -> None:
    """X15: what another run sent meanwhile makes a hook that counts ask otherwise; the call is made, and each later
    equal call is asked about like the first one, also if the first one failed, or only read."""
    SENT.clear()

    def post(to: str) -> str:
        """Post it."""
        SENT.append(to)
        if len(SENT) <= fails:
            raise ToolException("mailbox busy")
        return f"{len(SENT)} posted"

    elsewhere = count(0)
    hooks = Hooks(before_call=[lambda made: Ask(f"{len(SENT) + min(next(elsewhere), 1)} went out. One more?")])
    model = one_step([*[call("post", to="a@other")] * 3, give_up("no more")], tools=["post"])
    settings = {"confirm": "never", "approvals": "plan"}
    flow = await play(model, [post], effects={"post": effect}, answers=["approve"] * 4, hooks=hooks, settings=settings)
    assert (len(flow.pauses), len(SENT), flow.run.pending) == (4, 3, ())


async def test_steps_are_not_asked_again_what_a_hook_asked_often_and_a_call_that_was_made_may_be_asked_about() -> None:
    """X15: a hook whose question never holds asks about a call twice in a request, whichever steps make it. One that
    counts what was sent asks once for each call that it allows, however often an equal one is made."""

    def ask(made: Call, number: int) -> Ask | None:
        return Ask(f"{number} went out. One more?") if made.tool == "send" else None

    for sent in (0, 4):
        SENT.clear()
        asked = count(1)
        hooks = Hooks(before_call=[lambda made, n=asked, s=sent: ask(made, len(SENT) if s else next(n))])
        tries = [call("look", where="desk"), *[call("send", to="a@other")] * 2]
        rounds = {id: [*tries, finish_step("Tried.", f"{id}.1", unchanged="not allowed")] for id in ("s1", "s2")}
        planned = [{"content": text, "tools": ["look", "send"]} for text in ("first", "second")]
        flow = await play(
            steps(planned, rounds),
            [look, send],
            effects=EFFECTS,
            answers=["approve"] * (sent or 2),
            hooks=hooks,
            settings={"confirm": "never", "approvals": "plan"},
        )
        assert (len(flow.pauses), len(SENT), flow.run.pending) == (sent or 2, sent, ())


@pytest.mark.parametrize("late", [Ask("Is legal informed?"), Ask("The boss?", answered_by="boss"), Refuse("frozen")])
@pytest.mark.parametrize("kind", ["tool", "effect"])
async def test_a_hook_that_is_new_since_the_question_is_asked_before_the_call(kind: str, late: Any) -> None:
    """X15, R02: two processes, the second with another hook, at a call that may be made and at one that is to be made
    again because it did not happen. The second one's question is asked too, and each call is made at most once more."""

    def pay(order: str) -> str:
        """Pay an order."""
        SENT.append(order)
        if kind == "effect" and len(SENT) == 1:
            raise TimeoutError("no answer")
        return "paid"

    calls = [call("pay", order="7")] * (2 if kind == "effect" else 1)
    model = one_step([*calls, give_up("no more")], tools=["pay"])
    early = Hooks(before_call=[lambda made: Ask("Is it checked?")] if kind == "tool" else [])
    settings = {"confirm": "never", "approvals": "plan", "on_failure": "deliver"}
    given: Any = {"storage": open_storage("memory:"), "effects": {"pay": "write"}, "settings": settings}
    run = await Agent(model, [pay], hooks=early, **given).start("do it", thread_id="t")
    assert run.pending[0]["kind"] == kind
    agent = Agent(model, [pay], hooks=Hooks(before_call=[lambda made: late]), **given)
    before = len(SENT)
    run = await agent.resume(run, "it did not" if kind == "effect" else "approve")
    if isinstance(late, Refuse):
        assert (run.status, len(SENT)) == ("failed", before)
        return
    assert (run.pending[0]["hook"], run.pending[0].get("answered_by") or "") == (late.question, late.answered_by)
    if late.answered_by:
        run = await agent.resume(run, "approve", by="customer:mira")
        assert (run.status, len(SENT)) == ("waiting", before)
    run = await agent.resume(run, "approve", by=late.answered_by)
    assert (run.status, len(SENT)) == ("failed", before + 1)


async def test_what_a_person_agreed_to_counts_still_when_they_say_that_it_did_not_happen() -> None:
    """X15, R02: the call is made again without the hook's question, which they answered about this very call."""

    def pay(order: str) -> str:
        """Pay an order."""
        SENT.append(order)
        if len(SENT) == 1:
            raise TimeoutError("no answer")
        return "paid"

    model = one_step([call("pay", order="7"), call("pay", order="7"), finish_step("Paid.", "s1.2")], tools=["pay"])
    answers, hooks = ["approve", "approve", "it did not"], Hooks(before_call=[lambda made: Ask("Is it checked?")])
    flow = await play(model, [pay], effects={"pay": "write"}, answers=answers, hooks=hooks, settings=FREE)
    assert [pause["kind"] for pause in flow.pauses] == ["tool", "tool", "effect"]
    assert (flow.status, SENT) == ("completed", ["7", "7"])


@pytest.mark.parametrize(
    ("hooked", "settings", "audience"),
    [
        (True, {}, "two"),
        (True, {"effect": "ops", "tool": "desk"}, "two"),
        (False, {"tool": "desk"}, "desk"),
        (False, {"effect": "ops", "tool": "desk"}, "ops"),
        (False, {}, ""),
    ],
)
@pytest.mark.parametrize("end", ["it did not", "happened", "skip"])
async def test_who_alone_approves_a_call_says_whether_it_happened(
    hooked: bool, settings: Any, audience: str, end: str
) -> None:
    """X15, H13: with that answer the call is made again. A hook's people come before those whom the settings name."""

    def pay(order: str) -> str:
        """Pay an order."""
        SENT.append(order)
        if len(SENT) == 1:
            crash.at = len(crash.trace) + 1
        return "paid"

    crash = Crash(None, only=["store"])
    hooks = Hooks(before_call=[lambda made: Ask("Are both here?", answered_by="two")] if hooked else [])
    model = one_step([call("pay", order="7"), give_up("no more")], tools=["pay"])
    more = {"confirm": "never", "approvals": "each", "on_failure": "deliver", "answered_by": settings}
    agent = Agent(
        model, [pay], hooks=hooks, storage=crashing("memory:", crash), effects={"pay": "write"}, settings=more
    )
    run = await agent.start("do it", thread_id="t")
    with pytest.raises(StorageError):
        await agent.resume(run, "approve", by=run.pending[0].get("answered_by", ""))
    run = await agent.resume("t")
    assert (run.pending[0]["kind"], run.pending[0].get("answered_by") or "") == ("effect", audience)
    if audience:
        run = await agent.resume(run, end, by="mallory")
        assert (run.status, SENT) == ("waiting", ["7"])
    run = await agent.resume(run, end, by=f"{audience}:anna" if audience else "")
    assert (run.status, SENT) == ("failed", ["7", "7"] if end == "it did not" else ["7"])


async def test_what_a_hook_says_of_reads_stands_in_their_order_and_can_be_cited() -> None:
    """X13, X15: the read that is asked about is frozen and waits alone, with what stood behind it; a note stands in the
    journal after the calls of its reply, and the model reads it beside the result."""

    def secret(made: Call) -> Ask | None:
        return Ask("The vault?") if made.arguments["where"] == "vault" else None

    def scanned(made: Call) -> Note:
        return Note(f"scanner: {made.arguments['where']} is clean")

    reads = [call("look", where=where) for where in ("north", "vault", "south")]
    model = one_step([reads, finish_step("Seen.", [("s1.2", "north is clean")])], tools=["look"])
    flow = await play(
        model, [look], effects=EFFECTS, answers=["approve"], hooks=Hooks(before_call=[secret], after_call=[scanned])
    )
    looked = [entry["arguments"]["where"] for entry in flow.journal if entry["source"] == "tool"]
    assert (flow.status, looked) == ("completed", ["north", "vault", "south"])
    assert [entry["source"] for entry in flow.journal[:4]] == ["tool", "check", "tool", "tool"]
    told = requests(model, "s1")[1].messages
    assert any("north: card 4111" in message.text and "[s1.2] policy ok" in message.text for message in told)


async def test_a_result_is_withheld_and_stands_nowhere() -> None:
    """X21: what after_call refuses reaches neither the model nor the journal; a change that was made stays made."""

    def no_cards(made: Call) -> Refuse | None:
        return Refuse("card numbers stay out") if "4111" in made.text or made.tool == "send" else None

    replies = [call("look", where="shop"), call("send", to="a"), finish_step("Sent.", ("s1.2", "The call was made"))]
    model = one_step(replies, tools=["look", "send"])
    flow = await play(model, [look, send], effects=EFFECTS, hooks=Hooks(after_call=[no_cards]))
    assert (flow.status, SENT) == ("completed", ["a"])
    assert [entry["ok"] for entry in flow.journal[:2]] == [False, True]
    assert "card 4111" not in str(flow.values)
    assert "its result is withheld" in requests(model, "s1")[1].messages[-1].text


async def test_a_function_and_an_executor_have_no_server() -> None:
    """X06: a hook that goes by the server of a tool tells servers' tools from those of the house, before and after."""
    seen = list[tuple[str, str]]()

    def note(made: Call) -> None:
        seen.append((made.tool, made.server + made.request))

    async def work(brief: str) -> str:
        return "done"

    model = one_step([call("look", where="here"), finish_step("Looked.", "s1.1")], tools=["look"])
    hooks = Hooks(before_call=[note], after_call=[note])
    await play(model, [look], effects=EFFECTS, hooks=hooks)
    executors, settings = {"agent": Executor(work=work, passthrough=True)}, {**FREE, "executor": "agent"}
    await play(ScriptedModel([]), executors=executors, settings=settings, hooks=hooks)
    assert seen == [("look", "")] * 2 + [("agent", "")] * 2


async def test_planning_passes_the_same_policies() -> None:
    """P20: a look of the planner is refused too, and one that would have to be asked about is, for nobody can be."""

    def never(made: Call) -> Refuse | Ask:
        assert made.step == "p"
        return Refuse("not there") if made.arguments["where"] == "vault" else Ask("May it?")

    model = ScriptedModel(
        roles={"triage": [[call("look", where="vault"), call("look", where="x")], answer("I could not look.")]}
    )
    flow = await play(model, [look], effects=EFFECTS, hooks=Hooks(before_call=[never]))
    told = "\n".join(str(message.text) for message in model.requests[1].messages)
    assert "a policy refuses it: not there" in told
    assert "a person would have to agree, in a step: May it?" in told
    assert flow.run.answer.startswith("I could not look.")


async def test_a_hook_that_fails_refuses_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """V10: fail closed: an error and a wrong answer are no yes; who watches and the log read which hook it was."""

    def broken(made: Call) -> Any:
        return {}["nothing"] if made.arguments["to"] == "a" else "yes"

    model = one_step([UNSENT[0], call("send", to="b"), UNSENT[1]], tools=["send"])
    flow = await play(model, [send], effects=EFFECTS, hooks=Hooks(before_call=[broken]))
    assert SENT == []
    notes = "\n".join(note["text"] for note in flow.told("note"))
    for words in ("The hook broken failed", "KeyError", "a hook returns Refuse, Ask, Note or None"):
        assert words in notes
    assert "The hook broken failed" in caplog.text
    with pytest.raises(ConfigError, match="before_call is a list of functions"):
        Hooks(before_call=["only_ours"])  # type: ignore[list-item]


async def hangs(made: Call) -> None:
    await asyncio.Event().wait()


def hangs_in_a_thread(made: Call) -> None:
    _NEVER.wait()


def exits(made: Call) -> None:
    sys.exit(1)


def tells_a_secret(made: Call) -> None:
    raise ValueError(SECRET)


SECRET = "password=Tr0ub4dor-3-horse"
_NEVER = threading.Event()


UNSENT = [call("send", to="a"), finish_step("No.", ("s1.1", "Not run"), unchanged="refused")]


"""The call is refused, and the step says so."""


@pytest.fixture
def _end_of_threads() -> Iterator[None]:
    yield
    _NEVER.set()
    _NEVER.clear()


@pytest.mark.parametrize(
    "hooks",
    [
        Hooks(before_call=[lambda made: Note(SECRET)]),
        Hooks(before_call=[lambda made: Ask(SECRET)]),
        Hooks(after_call=[lambda made: Refuse(SECRET)]),
        Hooks(before_end=[lambda end: Ask(SECRET)]),
    ],
)
async def test_no_credential_gets_out_by_what_a_hook_says(hooks: Hooks) -> None:
    """R02: a hook sees arguments with their credentials; its words go to models, people and the storage without."""
    model = one_step([UNSENT[0], finish_step("Sent.", "s1.1"), give_up("it is refused")], tools=["send"])
    flow = await play(model, [send], effects=EFFECTS, hooks=hooks)
    assert "Tr0ub4dor" not in str((flow.events, flow.values, flow.run.pending, model.requests))


@pytest.mark.usefixtures("_end_of_threads")
@pytest.mark.parametrize("hook", [hangs, hangs_in_a_thread, exits, tells_a_secret])
async def test_a_hook_that_never_returns_or_exits_only_refuses(hook: Any) -> None:
    """V10, X07: it has the time of a tool call; the process and its other runs go on, and no credential is shown."""
    hooks, settings = Hooks(before_call=[hook]), {**FREE, "tool_seconds": 0.05}
    flow = await play(one_step(UNSENT, tools=["send"]), [send], effects=EFFECTS, hooks=hooks, settings=settings)
    assert (flow.status, SENT) == ("answered", [])
    (note,) = flow.told("note")
    assert f"The hook {hook.__name__} failed" in note["text"]
    assert "Tr0ub4dor" not in str((flow.events, flow.values))


LOOKED = call("look", where="a")


def greeting(*texts: str) -> ScriptedModel:
    """One step that looks, and finishes with these texts in turn."""
    return one_step([LOOKED, *(finish_step(text, ("s1.1", "card")) for text in texts)], tools=["look"])


async def test_an_end_that_is_refused_goes_back_to_the_model_and_at_last_ends_the_run() -> None:
    """V03, P11: the mended answer of a step ends the run; at the third refusal of it, or of an answer without a plan,
    the run ends with a code of its own and without the answer, for no plan would satisfy the policy."""

    def polite(end: End) -> Refuse | None:
        wrong = end.status == "completed" and not end.text.startswith("Dear")
        return Refuse("begin with Dear") if wrong else None

    hooks = Hooks(before_end=[polite])
    flow = await play(model := greeting("Hi.", "Dear all."), [look], effects=EFFECTS, hooks=hooks)
    assert (flow.status, flow.run.answer.splitlines()[0]) == ("completed", "Dear all.")
    assert "a policy refuses it: begin with Dear" in last_told(model)
    for model in (greeting(*["Hi 42."] * 3), ScriptedModel(roles={"triage": [answer("Hi 42.")] * 3})):
        flow = await play(model, [look], effects=EFFECTS, hooks=hooks)
        assert (flow.status, flow.run.outcome["code"]) == ("failed", "refused")  # type: ignore[index]
        assert "A policy refuses to deliver the answer" in flow.run.answer
        assert "begin with Dear" in flow.run.answer
        assert "Hi 42" not in flow.run.answer
        model.assert_exhausted()


async def test_a_hook_knows_an_honest_failure_from_a_result() -> None:
    """D01: a policy that demands a proof refuses what claims to be done, and lets a run say why it stopped."""

    def proven(end: End) -> Refuse | None:
        return Refuse("the tests did not run") if end.status == "completed" else None

    flow = await play(one_step([give_up("it needs a currency")]), hooks=Hooks(before_end=[proven]))
    assert (flow.status, flow.run.outcome["code"] != "refused") == ("failed", True)  # type: ignore[index]
    assert "it needs a currency" in flow.run.answer


def two_steps(*deliver: str) -> ScriptedModel:
    """Two steps without tools; the answer is written by a model."""
    rounds = {id: [finish_step("x", evidence=f"{id}.result")] for id in ("s1", "s2")}
    return steps(["a", "b"], rounds, deliver=deliver)


GROUNDED = {**FREE, "verification": "grounded"}


async def test_the_written_answer_of_a_long_plan_is_sent_back_once_then_withheld() -> None:
    """D01, V03: the run is partial, and its text says which policy it was."""

    def no_names(end: End) -> Refuse | None:
        return Refuse("no names") if end.step == "goal" and "Ann" in end.text else None

    for written, status in ((["Ann", "Somebody."], "answered"), (["Ann"] * 2, "partial")):
        flow = await play(two_steps(*written), hooks=Hooks(before_end=[no_names]), settings=GROUNDED)
        assert (flow.status, "Ann" in flow.run.answer) == (status, False)
    assert flow.run.answer.startswith("A policy refuses to deliver the answer: no names")


async def test_what_a_hook_refuses_to_deliver_is_shown_to_no_judge_and_kept_nowhere() -> None:
    """V03, V07: neither the first answer nor the next one, which is not sent back again."""
    model = two_steps("Call Mallory.", "Call Mallory now.")
    hooks = Hooks(before_end=[lambda end: Refuse("no names") if "Mallory" in end.text else None])
    flow = await play(model, hooks=hooks, settings=FREE)
    assert (flow.run.outcome["code"], flow.run.receipt["audit"]) == ("refused", None)
    assert "Mallory" not in json.dumps([flow.run.outcome, *flow.told("audit")])
    assert not [request for request in model.requests if request.role == "judge"]


class Contact(BaseModel):
    """Whom to call."""

    name: str


@pytest.mark.parametrize("planned", [True, False])
async def test_data_that_a_hook_refuses_to_deliver_stand_in_no_receipt(planned: bool) -> None:
    """V03: of a plan and of an answer without one, neither their fields nor which of them stand in no observation."""
    replies = {"s1": [call("look", where="x"), finish_step("ok", "s1.1")], "s2": [finish_step("ok", "s2.result")]}
    deliveries, answers = (
        [deliver("Call her.", {"name": "Mallory"})] * 2,
        [answer("Call her.", {"name": "Mallory"})] * 3,
    )
    model = steps([{"content": "look", "tools": ["look"]}, "write"], replies, deliver=deliveries)
    model = model if planned else ScriptedModel(roles={"triage": answers})
    hooks = Hooks(before_end=[lambda end: Refuse("no names") if end.output else None])
    flow = await play(model, [look], effects=EFFECTS, settings=FREE, hooks=hooks, output_type=Contact)
    assert (flow.run.outcome["code"], flow.run.output) == ("refused", None)
    assert flow.run.receipt["output"] == {"problem": "nothing was delivered as data", "fields": [], "more": 0}


async def test_a_person_is_asked_before_the_end() -> None:
    """X16: approve lets the same claim through; anything else is a refusal in the person's words."""

    def careful(end: End) -> Ask:
        return Ask("May this go out?")

    for said, times, status in (("approve", 2, "completed"), ("reject", 4, "failed")):
        model = greeting(*["Ready."] * times)
        flow = await play(model, [look], effects=EFFECTS, answers=[said], hooks=Hooks(before_end=[careful]))
        assert (flow.pauses[0]["question"], flow.pauses[0]["options"]) == ("May this go out?", ["approve", "reject"])
        assert flow.status == status


async def test_an_embedded_graph_has_hooks_as_well() -> None:
    """X06: `build_graph(hooks=…)`, compiled and invoked as any graph."""
    model, ours = one_step(UNSENT, tools=["send"]), Hooks(before_call=[only_ours])
    graph = build_graph(model, [send], effects={"send": "write"}, hooks=ours, settings=FREE).compile()
    values = await graph.ainvoke({"messages": [{"role": "user", "content": "Send"}]})
    assert (SENT, values["outcome"]["status"]) == ([], "answered")


async def test_the_environment_names_hooks_of_every_agent(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """C01: DONEWHEN_HOOKS comes before those of the code, and what cannot be loaded starts nothing."""
    policy = tmp_path / "policy.py"
    policy.write_text(
        "from donewhen.hooks import Hooks, Refuse\n"
        "def none(call):\n    return Refuse('closed today')\n"
        "hooks = Hooks(before_call=[none])\n"
    )
    monkeypatch.setenv("DONEWHEN_HOOKS", f"{policy}:hooks")
    replies = [call("look", where="a"), finish_step("No.", ("s1.1", "closed today"))]
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "x", "tools": ["look"]}])], "execute": replies})
    flow = await play(model, [look], effects=EFFECTS)
    assert "closed today" in flow.journal[0]["text"]
    monkeypatch.setenv("DONEWHEN_HOOKS", f"{policy}:missing")
    with pytest.raises(ConfigError, match="cannot be loaded: AttributeError"):
        Agent(model)


async def test_what_was_made_before_a_crash_is_replayed_whatever_a_hook_says_now() -> None:
    """R02, R03: a hook that refuses after the crash makes no sent mail unsent, and nothing is sent twice."""
    crash, closed = Crash(None, only=["store.done"]), list[str]()

    def mail(to: str) -> str:
        """Send a mail."""
        crash.at = len(crash.trace) + 1
        return send(to)

    def today(made: Call) -> Refuse | None:
        return Refuse("closed") if closed else None

    model = one_step([call("mail", to="a"), finish_step("Sent.", ("s1.1", "sent to a"))], tools=["mail"])
    storage = crashing("memory:", crash)
    agent = Agent(model, [mail], storage=storage, settings=FREE, hooks=Hooks(before_call=[today]))
    with pytest.raises(StorageError):
        await agent.start("do it", thread_id="t")
    closed.append("yes")
    run = await agent.resume("t")
    assert (run.status, SENT) == ("completed", ["a"])


async def test_what_a_hook_refuses_costs_nothing_and_it_is_asked_about_the_same_call_again() -> None:
    """X13, Q69: two calls of one round, one refused: it does not begin, spends no call and leaves no effect. A hook
    that refuses twice and then agrees decides each time, because its refusals are not the service's.
    """
    asked = list[str]()

    def opens_late(made: Call) -> Refuse | None:
        asked.append(made.arguments["to"])
        return Refuse("not now") if made.arguments["to"] == "amy" and asked.count("amy") < 3 else None

    amy, zed = call("send", to="amy"), call("send", to="zed")
    model = one_step([[amy, zed], amy, amy, finish_step("Sent.", ("s1.4", "sent to amy"))], tools=["send"])
    async with Agent(model, [send], storage="memory:", settings=FREE, hooks=Hooks(before_call=[opens_late])) as agent:
        stream = agent.stream("do it", thread_id="t")
        begun = [event["id"] async for event in stream if event["type"] == "tool_started"]
        run = stream.run
        async with agent.storage.reader() as (_, store):
            effects = [item.value for item in await store.asearch(("donewhen", "effects", "t"), limit=20)]
    assert run is not None
    assert (run.status, SENT, asked.count("amy"), begun) == ("completed", ["zed", "amy"], 3, ["s1.2", "s1.4"])
    assert run.spent["tool_calls"] == 2
    assert sorted(each["arguments"]["to"] for each in effects if each.get("state") == "done") == ["amy", "zed"]
    assert [row["result"] for row in run.receipt["effects"]] == ["refused", "done", "refused", "done"]


def ask_and_take(question: str) -> str:
    """Ask a person, and say what they said."""
    return f"they said {interrupt(question)}"


class Answered(BaseModel):
    """A number with its unit."""

    amount: int
    unit: str


async def test_a_hook_reads_the_structured_result_before_the_end() -> None:
    """V03: of an answer without a plan, of the only step, and of a delivery that a model writes."""
    seen: list[Any] = []

    def in_euro(end: End) -> Refuse | None:
        seen.append(end.output)
        return Refuse("amounts are in EUR") if end.output and end.output["unit"] != "EUR" else None

    bad, good = '{"amount": 3, "unit": "USD"}', '{"amount": 3, "unit": "EUR"}'
    answered = ScriptedModel(roles={"triage": [answer(bad), answer(good)]})
    given: Any = {"effects": {"look": "read"}, "settings": GROUNDED, "hooks": Hooks(before_end=[in_euro])}
    for model, wanted in (
        (answered, "answered"),
        (greeting(bad, good), "completed"),
        (two_steps(bad, good), "answered"),
    ):
        seen.clear()
        run = await Agent(model, [look], storage="memory:", **given).start("How much?", output_type=Answered)
        assert (run.status, run.output) == (wanted, Answered(amount=3, unit="EUR"))
        assert [each["unit"] for each in seen if each][:2] == ["USD", "EUR"]


async def test_hooks_see_every_question_before_people_do() -> None:
    """X15: the plan, a model's question, a call to approve, a tool's own question, the budget: each in its place."""
    seen: list[Question] = []
    hooks = Hooks(before_question=[lambda asked: seen.append(asked)])
    replies = [
        ask_user("Which one?", options=["a", "b"]),
        call("send", to="a@other"),
        call("ask_and_take", question="Really?"),
        finish_step("Sent.", ("s1.2", "sent to a@other")),
    ]
    model = one_step(replies, tools=["send", "ask_and_take"])
    answers = ["approve", "a", "approve", "yes", "continue"]
    settings = {"approvals": "each", "limits": {"tool_calls": 2}, "verification": "grounded"}
    tools, effects = [send, ask_and_take], {**EFFECTS, "ask_and_take": "read"}
    flow = await play(model, tools, effects=effects, answers=answers, hooks=hooks, settings=settings)
    assert [(each.kind, each.step) for each in seen] == [(pause["kind"], pause["step"]) for pause in flow.pauses]
    assert [each.kind for each in seen] == ["plan", "question", "tool", "question", "budget"]
    assert [each.options for each in seen[:2]] == [flow.pauses[0]["options"], ["a", "b"]]
    assert (seen[0].details["plan"]["steps"][0]["content"], seen[2].details["tool"]) == ("do it", "send")


async def test_a_question_that_is_refused_goes_back_to_who_asked_it() -> None:
    """X15, X16: the planner, the step, and the model whose call or tool asks read the reason; nobody is asked."""

    def no_salaries(asked: Question) -> Refuse | None:
        return Refuse("never ask people that") if asked.kind in ("question", "tool") else None

    why = "a policy refuses it: never ask people that"
    replies = [
        ask_user("What do you earn?"),
        call("send", to="a@other"),
        call("ask_and_take", question="Your salary?"),
        finish_step("Nobody was asked.", ("s1.1", "Not run"), unchanged="a policy refused"),
    ]
    planned = [ask_user("Your salary?"), submit_plan([{"content": "x", "tools": ["send", "ask_and_take"]}])]
    model = ScriptedModel(roles={"triage": planned, "execute": replies})
    settings = {"confirm": "never", "approvals": "each", "verification": "claimed"}
    tools, effects = [send, ask_and_take], {**EFFECTS, "ask_and_take": "read"}
    flow = await play(model, tools, effects=effects, settings=settings, hooks=Hooks(before_question=[no_salaries]))
    assert (flow.status, flow.pauses, SENT) == ("completed", [], [])
    assert f"No question was asked: {why}" in model.requests[1].messages[-1].text
    told = [request.messages[-1].text for request in requests(model, "s1")[1:]]
    assert [why in text for text in told] == [True] * 3
    assert "Not run" in told[1]
    assert "It wanted to ask a person “Your salary?”" in told[2]
    retracted = [event["argument"] for event in flow.told("speech_restarted")]
    assert retracted == ["ask_user.question"] * 2


async def test_a_step_that_may_not_ask_goes_on_with_its_model() -> None:
    """Q58, C08: a failed step has answered its calls, so "retry" makes none of them again before its model decides, and
    a call has one result; also of two calls of which the second was not reached."""
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay."""
        paid.append(order)
        raise TimeoutError("the bank did not answer")

    def no_effects(asked: Question) -> Refuse | None:
        return Refuse("not about effects") if asked.kind == "effect" else None

    again = [call("pay", order="a"), call("pay", order="b")]
    replies = [call("pay", order="a"), again, call("pay", order="c"), give_up("The bank is away.")]
    settings = {"confirm": "never", "approvals": "plan", "on_failure": "ask"}
    model, hooks = one_step(replies, tools=["pay"]), Hooks(before_question=[no_effects])
    given: Any = {"effects": {"pay": "write"}, "settings": settings, "hooks": hooks}
    flow = await play(model, [pay], answers=["retry", "stop"], **given)
    assert (paid, len(flow.pauses)) == (["a", "c"], 2)
    assert len(requests(model, "s1")) == 4
    told = [each.tool_call_id for each in requests(model, "s1")[-1].messages if each.type == "tool"]
    assert len(told) == len({*told}) == 4


async def test_a_refused_answer_is_sent_back_as_such() -> None:
    """Q71, X15: the model reads the hook's reason under its own heading; of a schema only where one is not met."""

    def no_names(end: End) -> Refuse | None:
        return Refuse("do not name Mallory") if "Mallory" in str(end.text) + str(end.output) else None

    bad, good = '{"amount": 3, "unit": "Mallory"}', '{"amount": 3, "unit": "EUR"}'
    for texts, more in ((("Mallory owes.", "Nobody owes."), {}), ((bad, good), {"output_type": Answered})):
        model = two_steps(*texts)
        agent = Agent(
            model,
            [look],
            storage="memory:",
            effects={"look": "read"},
            settings=GROUNDED,
            hooks=Hooks(before_end=[no_names]),
        )
        run = await agent.start("Who?", **more)
        said = [str(request.messages[-1].text) for request in model.requests if request.role == "deliver"]
        assert (run.status, len(said)) == ("answered", 2)
        assert "without what was refused: a policy refuses" in said[1]
        assert "do not name Mallory" in said[1]
        assert "schema" not in said[1]


async def test_a_question_of_the_run_that_is_refused_ends_it() -> None:
    """D01: no model asked for the plan's approval or for more budget, so nobody else could go on."""

    def none(asked: Question) -> Refuse | None:
        return Refuse("this queue has no people")

    read = [call("look", where="a"), call("look", where="b")]
    for settings in ({"confirm": "always"}, {"confirm": "never", "limits": {"tool_calls": 1}}):
        model = one_step([*read, finish_step("x", ("s1.2", "card"))], tools=["look"])
        flow = await play(model, [look], effects=EFFECTS, settings=settings, hooks=Hooks(before_question=[none]))
        assert (flow.status, flow.run.outcome["code"]) == ("failed", "not_asked")  # type: ignore[index]
        assert "A policy refuses to ask a person" in flow.run.answer
        assert "this queue has no people" in flow.run.answer
        assert (flow.told("question"), flow.pauses) == ([], [])
