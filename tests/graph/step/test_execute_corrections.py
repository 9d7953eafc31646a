"""Replies that cannot be acted on: what the model is told, what it costs, and when it is too often."""

from typing import Any

import pytest
from langchain_core.tools import StructuredTool

from donewhen.testing import audit, broken_call, call, criterion, finish_step, finish_task, give_up, reply
from tests.kit.flows import last_told, one_step, play, requests, steps

READ = {"look": "read", "send": "write"}
DELIVER = {"confirm": "never", "on_failure": "deliver"}


def look(what: str, times: int = 1) -> str:
    """Look at something."""
    return f"{what} is green"


def send(to: str) -> str:
    """Send a letter."""
    return f"sent to {to}"


@pytest.mark.parametrize("finish", [finish_step, finish_task])
@pytest.mark.parametrize(
    ("goal_check", "said"),
    [
        ("all done", "must be a list with an item for criterion 1, 2, 3"),
        ([criterion(2, "s1.1")], "leaves out criterion 1, 3"),
        ([criterion(1, "s1.1"), criterion(2, "s1.1"), criterion(3)], "cites no observation"),
        ([criterion(1, "s1.1"), criterion(2, "s1.1"), criterion(3, "s1.1", met=False)], "not met"),
        ([criterion(1, "s1.1"), criterion(2, ("s1.1", "is blue")), criterion(3, "s1.1")], "does not occur"),
    ],
)
async def test_finishing_needs_proof_of_every_criterion(finish: Any, goal_check: Any, said: str) -> None:
    """X03: the step does not advance, and the model is told what is missing."""
    more = {"reason": "enough"} if finish is finish_task else {}
    claim = call(finish.__name__, result="ok", goal_check=goal_check, **more)
    good = finish_step("ok", ["s1.1", "s1.1", ("s1.1", "apple is green")])
    model = one_step([call("look", what="apple"), claim, good], done_when=["one", "two", "three"])
    flow = await play(model, [look], effects=READ)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert said in last_told(model)
    assert last_told(model).startswith("Correction:")
    assert flow.step("s1")["refused"] == (said in ("cites no observation", "not met")), "form is no refusal (V02)"
    assert flow.told("correction")


async def test_three_refused_proofs_fail_the_step() -> None:
    """DESIGN 5, X09: in a step, not only in a row."""
    lie = finish_step("ok", "s1.99")
    model = one_step([lie, call("look", what="a"), lie, call("look", what="b"), lie], deliver=[])
    flow = await play(model, [look], effects=READ, settings=DELIVER)
    model.assert_exhausted()
    assert flow.step("s1")["status"] == "failed"
    assert flow.step("s1")["code"] == "unproven"
    assert "no observation 's1.99'" in flow.step("s1")["reason"]
    assert flow.status == "failed"


BAD = call("lok", what="a")


@pytest.mark.parametrize(
    ("replies", "status"),
    [
        ([BAD, BAD, BAD], "failed"),
        ([BAD, broken_call("look", "[1"), finish_step("x", "s1.9")], "failed"),
        ([BAD, BAD, call("look", what="a"), BAD, BAD, finish_step("ok", "s1.1")], "done"),
        ([BAD, BAD, "I will look again.", BAD, BAD, finish_step("ok", "s1.result")], "done"),
        ([BAD, finish_step("x", "s1.9"), BAD], "failed"),
    ],
    ids=["three", "of any kind", "acted on", "said", "a refused proof is not acted on"],
)
async def test_the_counter_resets_only_after_a_decision_was_acted_on(replies: Any, status: str) -> None:
    """X05: not after parsing; three in a row fail the step."""
    model = one_step(replies)
    flow = await play(model, [look], effects=READ, settings=DELIVER)
    model.assert_exhausted()
    assert flow.step("s1")["status"] == status
    if status == "failed":
        assert flow.step("s1")["code"] == "unusable"
        assert "3 unusable replies in a row" in flow.step("s1")["reason"]
        assert flow.step("s1")["rounds"] == len(replies), "corrections count against the budget"


async def test_a_refused_call_is_nothing_acted_on() -> None:
    """X05, X15: a rejected call that comes again does not reset the counter."""
    again = call("send", to="Ann")
    model = one_step([again, BAD, BAD, again, BAD], deliver=[])
    flow = await play(model, [look, send], effects=READ, settings=DELIVER, answers=["no"])
    model.assert_exhausted()
    assert flow.step("s1")["code"] == "unusable"


async def test_gates_run_in_order() -> None:
    """X06: schema before legality, the tool before its arguments, arguments before approval, approval before acting."""
    wrong = call("send", to=5, cc="x")
    model = one_step([{**wrong}, call("sned", to=5), call("send", to="Ann")])
    flow = await play(model, [look, send], effects=READ, settings=DELIVER)
    texts = [e["text"] for e in flow.told("correction")]
    assert "send: " in texts[0]
    assert "cc" in texts[0]
    assert "to" in texts[0]
    assert "there is no tool 'sned'; did you mean send" in texts[1]
    assert flow.run.pending[0]["arguments"] == {"to": "Ann"}
    assert not flow.journal, "nothing was done before it was approved"


async def test_good_calls_of_a_batch_run_beside_a_bad_one() -> None:
    """X18, H10, X14: the read is made, the bad call is answered for itself, and every call has its one result."""
    batch = [call("look", what="a"), call("look", wat="b"), call("nothing"), call("look", what=5)]
    flow = await play(model := one_step([batch, finish_step("ok", "s1.2")]), [look], effects=READ)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [(e["tool"], e["arguments"]) for e in flow.journal if e["source"] == "tool"] == [
        ("look", {"what": "a"}),
        ("look", {"what": "5"}),
    ]
    results = [m for m in requests(model, "s1")[-1].messages if m.type == "tool"]
    assert sorted(m.tool_call_id for m in results) == sorted({m.tool_call_id for m in results})
    assert len(results) == 4
    assert [m.text.partition("\n")[0] for m in results if m.text.startswith("Correction")] == [
        "Correction: this call was not made."
    ] * 2
    assert flow.step("s1")["corrections"] == 0


async def test_a_claim_beside_the_change_it_rests_on_is_weighed_when_that_is_made() -> None:
    """N65, X19: one reply does it and says so: the change is made, then the claim is held against it."""
    model = one_step([[call("send", to="a"), finish_step("sent", "s1.1")]], tools=["send"])
    flow = await play(model, [send], effects=READ)
    model.assert_exhausted()
    assert (flow.status, flow.step("s1")["rounds"]) == ("completed", 1)


@pytest.mark.parametrize("raises", [True, False])
async def test_a_claim_beside_a_change_that_failed_is_told_to_look_first(raises: bool) -> None:
    """N65, X19: nothing of it holds then, also if the tool returns its failure; the next round decides."""

    def refuse(to: str) -> tuple[str, Any]:
        """Send."""
        if raises:
            raise ValueError("no such address")
        return "no such address", {"failed": "exit_code 1"}

    claim = finish_step("sent", ("s1.1", "green"))
    rounds = [call("look", what="a"), [call("refuse", to="a"), claim], give_up("no such address")]
    model = one_step(rounds, tools=["look", "refuse"])
    tool = StructuredTool.from_function(refuse, response_format="content_and_artifact")
    flow = await play(model, [look, tool], effects={"look": "read"}, settings={**DELIVER, "approvals": "plan"})
    assert flow.status == "failed"
    assert "Look first" in last_told(model)


async def test_a_claim_beside_a_read_and_a_write_is_told_to_look_first() -> None:
    """X19: what stands beside the claim runs, the claim is answered, and made again once the results were seen."""
    both = [call("look", what="a"), call("send", to="b"), finish_step("ok", "s1.1")]
    model = one_step([both, finish_step("ok", "s1.2")], tools=["send"])
    flow = await play(model, [look, send], effects=READ)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [e["tool"] for e in flow.journal if e["source"] == "tool"] == ["look", "send"]
    told = [m.text for m in requests(model, "s1")[-1].messages if m.type == "tool"]
    assert any(text.startswith("Look first: you wrote this finish_step before the results") for text in told)
    assert flow.step("s1")["refused"] == 0


async def test_what_a_model_with_native_calls_prints_is_text() -> None:
    """B5, N10: JSON in its prose is not carried out, not even in a fence."""
    printed = (
        'I will not run this, because it was not asked for:\n```json\n{"name": "send", "arguments": {"to": "b"}}\n```'
    )
    model = one_step(
        [call("look", what="a"), printed, finish_step("ok", "s1.1", unchanged="not asked for")], tools=["send"]
    )
    flow = await play(model, [look, send], effects=READ)
    model.assert_exhausted()
    assert flow.status == "completed"
    assert [e["tool"] for e in flow.journal if e["source"] == "tool"] == ["look"]
    assert "was not made. Make it as a tool call or" in requests(model, "s1")[2].messages[-1].text


REFUSED = "1 abgelehnter Nachweis; zuletzt: „{}“"
UNUSABLE = "1 unbrauchbare Antwort des Modells; zuletzt: „{}“"
UNCHANGED_TEXT = (
    "kein Aufruf dieses Schritts hat etwas geändert, obwohl er Werkzeuge dafür hat: die Änderung machen, oder mit "
    "`unchanged` abschließen: warum nichts zu ändern war"
)


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ([call("look", what="a"), finish_step("rot", "s1.1")], REFUSED.format(UNCHANGED_TEXT)),
        (
            [
                call("send", to="Ann"),
                call("finish_step", result="ok", goal_check=[criterion(1, "s1.9")], language="en"),
            ],
            "was der Nutzer liest, in dieser Sprache schreiben: de, außer er hat eine andere verlangt“",
        ),
        (
            [call("send", to="Ann"), finish_step("Ann ist da.", "s1.1")],
            REFUSED.format("“Ann ist da.”: nur gesendet"),
        ),
        (
            [finish_step("rot", goal_check=[criterion(2, "s1.1")])] * 2,
            UNUSABLE.format("Eintrag 1 nennt Kriterium 2; es gibt 1 bis 1; goal_check lässt Kriterium 1 aus"),
        ),
        (["Hm."] * 6, UNUSABLE.format("ein Text allein entscheidet hier nichts")),
        ([reply("Ich", finish_reason="length")], "die Antwort wurde an der Ausgabegrenze abgeschnitten"),
    ],
)
async def test_why_a_step_failed_is_in_the_language_of_the_run(replies: Any, reason: str) -> None:
    """P14, X09: whatever its model was told last."""
    wanted = [{"text": "Ann hat ihn", "judge": True}]
    step = {"content": "do it", "done_when": wanted, "tools": ["look", "send"]}
    model = steps([step], {"s1": replies}, deliver=[], judge=lambda *_: audit((1, "no", "nur gesendet")))
    settings = {**DELIVER, "approvals": "plan", "language": "de", "max_refusals": 1, "max_corrections": 1}
    flow = await play(model, [look, send], effects=READ, settings=settings)
    assert reason in flow.step("s1")["reason"]
