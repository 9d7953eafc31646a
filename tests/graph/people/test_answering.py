"""What an answer changes, as plain functions: updates of a run, ids of pauses, several answers as one update."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Overwrite

from donewhen.graph.people.answers import ResolvedAnswer, apply_answer
from donewhen.graph.people.pauses import (
    PAUSE_ID,
    ask_again,
    close_for_new_request,
    close_pause,
    current_pause,
    open_pauses,
    pause_message,
    with_fresh_call,
    with_id,
)
from donewhen.state.people.answers import Answer, AnswerKind
from donewhen.state.updates import REDUCERS, apply_update, combine_updates, with_migration
from tests.kit.pauses import KINDS, pending

PLAN = {"steps": [{"id": "s1", "content": "one"}, {"id": "s2", "content": "two"}], "revision": "abc"}
CALLS = [{"id": "c1", "name": "write_file", "args": {"path": "a"}}, {"id": "c2", "name": "look", "args": {}}]


def run(**more: Any) -> dict[str, Any]:
    """A run in which s1 failed and s2 waits with two frozen calls."""
    records = {
        "s1": {"status": "failed", "attempt": 1},
        "s2": {"status": "waiting", "attempt": 1, "observed": 2, "rounds": 3, "calls": CALLS},
    }
    planning = {"number": 1, "transcript": "plan", "observed": 0, "rounds": 1, "open": False}
    return {"plan": PLAN, "approval": {"plan": PLAN}, "steps": records, "planning": planning, "turn": 1, **more}


def change(kind: str, answer: Answer, **more: Any) -> dict[str, Any]:
    return apply_answer(run(), ResolvedAnswer(pending(kind, **{"step": "s2", **more}), answer, at="now"))


def test_an_answer_is_the_result_of_the_call_that_asked() -> None:
    """X16, X13: an observation of the user, numbered on, and a message for the model; the step is ready."""
    update = change("question", Answer("answer", "2022"), call="c9")
    (entry,) = update["journal"]
    assert (entry["id"], entry["source"], entry["ok"], entry["text"]) == ("s2.3", "user", True, "2022")
    assert entry["arguments"].items() >= {"question": "Which year?", "by": "user", "asked": "s2.q1"}.items()
    (message,) = update["transcripts"]["s2"]
    assert (message.tool_call_id, message.text.split("\n")[0]) == ("c9", "[s2.3] user ok")
    assert update["steps"]["s2"] == {"status": "ready", "waiting": None, "observed": 3, "silent": 0}
    assert "approvals" not in update


def test_a_question_printed_as_text_is_answered_in_text() -> None:
    """P10: there is no call to answer."""
    (message,) = change("question", Answer("answer", "2022"), call="")["transcripts"]["s2"]
    assert isinstance(message, HumanMessage)


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        (Answer("approve"), {"approved": "user"}),
        (Answer("edit", arguments={"path": "b"}), {"approved": "user", "edited": True, "args": {"path": "b"}}),
        (Answer("respond", "done by hand"), {"response": "done by hand"}),
        (Answer("reject", "no"), {"refused": "no"}),
    ],
)
def test_a_decision_about_a_call_is_frozen_into_it(answer: Answer, first: dict[str, Any]) -> None:
    """X15: only the first call is decided on; the rest stays as it was; the receipt has the call."""
    update = change("tool", answer, arguments={"path": "a"})
    one, two = update["steps"]["s2"]["calls"]
    assert one == {**CALLS[0], **first}
    assert two == CALLS[1]
    (row,) = update["approvals"]
    assert (row["decision"], row["tool"], row["arguments"], row["at"]) == (
        answer.kind, "write_file", {"path": "a"}, "now"
    )  # fmt: skip
    assert ("rejected" in update["steps"]["s2"]) == (answer.kind == "reject")


@pytest.mark.parametrize("said", ["happened", "not_happened", "skip"])
def test_what_is_known_of_an_effect_goes_with_the_call(said: Any) -> None:
    """R03: the call is made, replayed or left out by whoever makes it."""
    assert change("effect", Answer(said), arguments={})["steps"]["s2"]["calls"][0]["known"] == said


def test_budgets() -> None:
    """DESIGN §6: extend the run or the step, deliver, replan cheaper, stop."""
    more = Answer("extend", amounts={"rounds": 5})
    assert change("budget", more, step=None)["granted"] == {"rounds": 5}
    assert change("budget", more)["steps"]["s2"] == {"status": "ready", "granted": {"rounds": 5}}
    assert change("budget", Answer("deliver"))["ending"]["code"] == "out_of_budget"
    assert change("budget", Answer("stop"))["ending"]["code"] == "stopped"
    replan = change("budget", Answer("replan"))
    assert (replan["planning"]["open"], replan["spent"]) == (True, {"replans": 1})


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("retry", "retry", "pending"),
        ("stop", "no", "cancelled"),
        ("deliver", "deliver what there is", "delivered_early"),
        ("replan", "use a fax", "fax"),
    ],
)
def test_after_a_failure(kind: AnswerKind, text: str, expected: str) -> None:
    """X10: again, stop, deliver, or another plan with what the person says."""
    about = {"about": "failure", "failed": ["s1"], "failure": "s1 failed", "step": None}
    update = change("question", Answer(kind, text), **about)
    found = update.get("ending", {}).get("code") or update["steps"]["s1"].get("status")
    assert (found or update["planning"]["feedback"]).endswith(expected)
    assert update["approvals"][0]["text"] == text


@pytest.mark.parametrize("kind", KINDS[1:])
def test_cancel_and_nobody(kind: str) -> None:
    """C02: cancelling ends the run from every pause, and so does a policy that gives up; by whom is said."""
    assert change(kind, Answer("cancel"), arguments={})["ending"]["code"] == "cancelled"
    update = apply_answer(
        run(), ResolvedAnswer(pending(kind, step="s2", question="Which?"), Answer("cancel"), by="policy")
    )
    assert (update["ending"]["code"], update["approvals"][0]["by"]) == ("unanswered", "policy")


# --- ids


@given(st.integers(1, 3), st.integers(0, 3), st.sampled_from(["s2.q1", "plan@2.q1", f"confirm.{'0' * 16}"]))
def test_no_two_questions_of_a_thread_have_one_id(turn: int, times: int, id: str) -> None:
    """C04: asked again, or asked in a later request, it is another question; naming it twice changes nothing."""
    decided = [{"id": with_id({"turn": turn, "approvals": [{"id": id}] * n}, {"id": id})["id"]} for n in range(times)]
    values = {"turn": turn, "approvals": decided}
    pause = with_id(values, {"id": id})
    assert PAUSE_ID.fullmatch(pause["id"])
    assert pause["id"] not in [row["id"] for row in decided]
    assert with_id(values, pause) == pause
    assert with_id({**values, "turn": turn + 1, "approvals": []}, {"id": id})["id"] != pause["id"]


@pytest.mark.parametrize("text", ["approve", "type", "answers", "0.5", "a.b", "s1", "plan.revision", "q1.s2"])
def test_other_keys_are_no_ids(text: str) -> None:
    """C02: an answer that is a dict of its own is not taken for answers by id."""
    assert not PAUSE_ID.fullmatch(text)


def test_open_pauses_are_those_of_the_plan() -> None:
    """C07: the one asked now first, then what steps of the plan wait for; a step that is gone asks nothing."""
    asks = {"status": "waiting", "waiting": {"id": "s2.q1", "kind": "question", "question": "?", "step": "s2"}}
    gone = {"status": "waiting", "waiting": {"id": "s9.q1", "kind": "question", "question": "?", "step": "s9"}}
    values = run(steps={"s2": asks, "s9": gone})
    assert [pause["id"] for pause in open_pauses(values)] == ["s2.q1"]
    first = pending("budget", step=None)
    now = current_pause({**values, "pending": first})
    assert (now["id"], [other["id"] for other in now["others"]]) == ("run.b1", ["s2.q1"])
    assert [pause["id"] for pause in open_pauses({**values, "pending": asks["waiting"]})] == ["s2.q1"]


# --- messages


@pytest.mark.parametrize("kind", KINDS)
def test_what_opens_a_pause_is_closed_once(kind: str) -> None:
    """C01: a message with text and a call; its answer is the result of that call, whoever writes it."""
    pause = pending(kind)
    opened = pause_message(pause)
    assert opened.text
    (closed,) = close_pause([opened], pause, "Answered.")
    assert isinstance(closed, ToolMessage)
    assert closed.tool_call_id == opened.tool_calls[0]["id"] == "call_1"
    assert close_pause([opened, closed], pause, "Answered.") == []
    assert with_fresh_call([], pause) == pause
    assert with_fresh_call([opened], pause)["tool_call_id"] != "call_1"
    assert close_for_new_request({"pending": pause, "messages": [opened]})["messages"] != []
    assert close_for_new_request({"messages": [opened]}) == {"pending": None, "messages": [], "steps": {}, "goal": ""}


def test_asked_again_after_typing_opens_anew() -> None:
    """C08, U3: the old call is closed, and the pause, with the reason, stands under what was said."""
    pause = pending("question")
    values = {"messages": [pause_message(pause), HumanMessage("?")]}
    update = ask_again(values, pause, "too short")
    closed, opened = update["messages"]
    assert closed.text == "Not understood."
    assert isinstance(opened, AIMessage)
    assert opened.tool_calls[0]["id"] == (update["pending"] or {})["tool_call_id"] != "call_1"
    by_button = ask_again({"messages": [pause_message(pause)]}, pause, "too short")
    assert "too short" in by_button["messages"][-1].text, (
        "U3: pages fold the panel that says why; the conversation does"
    )
    assert "messages" not in ask_again({"messages": [pause_message(pause)]}, pause, "")


# --- updates

updates = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.dictionaries(st.sampled_from("ab"), st.dictionaries(st.sampled_from("xy"), st.integers())),
        "spent": st.dictionaries(st.sampled_from(["rounds", "replans"]), st.integers(0, 9)),
        "journal": st.lists(st.integers(), max_size=2),
        "approvals": st.lists(st.integers(), max_size=2),
        "plan": st.integers(),
    },
)


@given(updates, updates, updates)
def test_two_updates_are_one(values: dict[str, Any], first: dict[str, Any], second: dict[str, Any]) -> None:
    """C07: several answers taken together change what they would change one after the other."""
    assert apply_update(values, combine_updates(first, second)) == apply_update(apply_update(values, first), second)


@given(updates, updates, updates)
def test_a_migration_is_stored_with_the_update(
    old: dict[str, Any], new: dict[str, Any], update: dict[str, Any]
) -> None:
    """R06: what the node saw and what it changed is what is stored, whatever was stored before."""
    new = {**old, **new}
    assert apply_update(old, with_migration(old, new, update)) == apply_update(new, update)


def test_every_channel_with_a_reducer_is_known() -> None:
    """R06: a new key of the state joins updates here as LangGraph joins them."""
    assert {"messages", "steps", "journal", "transcripts", "spent", "granted", "approvals", "files"} <= set(REDUCERS)
    assert apply_update({"journal": [1]}, {"journal": Overwrite([2])}) == {"journal": [2]}
