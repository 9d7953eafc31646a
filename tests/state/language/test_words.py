"""What people say at each pause, in the languages they write: consent, refusal, the end, and what is not guessed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from donewhen.state.language.texts import LANGUAGES, shown_options
from donewhen.state.language.words import _data, word
from donewhen.state.people.answers import Answer, read_answer
from tests.kit.pauses import pending

SAID = tomllib.loads(Path(__file__).with_name("utterances.toml").read_text("utf-8"))


def kind(text: str, asked: str, **more: Any) -> str:
    """The kind of the answer, or "" where the pause is kept."""
    answer = read_answer(text, pending(asked, **more))
    return answer.kind if isinstance(answer, Answer) else ""


FAILED: dict[str, Any] = {"about": "failure", "options": shown_options("en", "failure")}
EARLY: dict[str, Any] = {"about": "early", "options": shown_options("en", "early")}
CLOSED: list[tuple[str, dict[str, Any]]] = [("budget", {}), ("effect", {}), ("question", FAILED), ("question", EARLY)]
APPROVALS: list[tuple[str, dict[str, Any]]] = [("plan", {}), ("tool", {})]


@pytest.mark.parametrize("text", SAID["yes"])
def test_yes(text: str) -> None:
    """C09, Q1: consents to plan, call and suggested budget; says that it happened; is no choice after a failure."""
    assert [kind(text, asked) for asked in ("plan", "tool", "budget", "effect")] == [
        "approve", "approve", "extend", "happened"
    ]  # fmt: skip
    assert kind(text, "question") == "answer"
    assert kind(text, "question", **FAILED) == ""
    assert read_answer(text, pending("question", options=["Yes, all", "No, none"])) == Answer("answer", "Yes, all")


@pytest.mark.parametrize("text", SAID["no"])
def test_no_starts_nothing(text: str) -> None:
    """C09, W3: rejects plan and call, ends an exhausted or failed run; nowhere does it start work."""
    assert [kind(text, asked) for asked in ("plan", "tool", "budget", "effect")] == ["reject", "reject", "stop", ""]
    assert kind(text, "question") == "answer"
    assert kind(text, "question", **FAILED) == "stop"
    assert kind(text, "question", **EARLY) == ""


@pytest.mark.parametrize("text", SAID["cancel"])
def test_cancel_ends_the_run_everywhere(text: str) -> None:
    """C09, Q3, W3: also after a failure; where “stop” is an option, it is that option, which ends the run as well."""
    for asked, more in (
        ("plan", {}),
        ("tool", {}),
        ("effect", {}),
        ("budget", {}),
        ("question", FAILED),
        ("question", EARLY),
    ):
        assert kind(text, asked, **more) in ("cancel", "stop"), asked
    assert kind(text, "question") == "cancel" or word(text) == "enough"


@pytest.mark.parametrize("text", SAID["later"])
def test_later_leaves_the_pause_open(text: str) -> None:
    """C09: everywhere."""
    for asked, more in (
        ("plan", {}),
        ("tool", {}),
        ("effect", {}),
        ("budget", {}),
        ("question", {}),
        ("question", FAILED),
    ):
        assert kind(text, asked, **more) == "later", asked


@pytest.mark.parametrize("text", SAID["unclear"])
def test_what_is_not_clear_is_not_guessed(text: str) -> None:
    """C09, C02: the pause is kept, at every kind, and a sentence says why."""
    for asked, more in (*APPROVALS, *CLOSED[1:]):
        assert kind(text, asked, **more) == "", asked
    assert kind(text, "budget") in ("", "extend" if text == "5" else "")


@pytest.mark.parametrize("text", SAID["feedback"])
def test_sentences_are_feedback_to_a_plan_and_no_consent(text: str) -> None:
    """C09, Q1: “Yes, but …” approves nothing; a call runs for none of it; it answers a question as it is."""
    assert read_answer(text, pending("plan")) == Answer("reject", text)
    assert kind(text, "tool") in ("", "reject")
    assert kind(text, "effect") == kind(text, "budget") == kind(text, "question", **EARLY) == ""
    assert read_answer(text, pending("question")) == Answer("answer", text)


@pytest.mark.parametrize(
    "text", ["use a fax", "try b.txt this time", "ask Ann, then go on", "Nimm das Fax", "用传真试试"]
)
def test_words_at_a_failure_are_what_should_be_done(text: str) -> None:
    """W3: words with substance that refuse nothing are planned with."""
    assert read_answer(text, pending("question", **FAILED)) == Answer("replan", text)


@pytest.mark.parametrize("text", SAID["refusing"])
def test_refusals_at_a_failure_start_no_work(text: str) -> None:
    """W3: whatever refuses anything plans nothing; it ends the run or is asked about."""
    assert kind(text, "question", **FAILED) in ("", "stop", "cancel")


@pytest.mark.parametrize(("text", "question"), [("cancel", "Cancel the order?"), ("later", "Now or later?")])
def test_a_word_that_may_be_the_answer_is_not_guessed(text: str, question: str) -> None:
    """C09: it may mean the run; as an option, or with a slash, it is clear."""
    assert kind(text, "question", question=question, options=[]) == ""
    assert kind(f"/{text}", "question", question=question, options=[]) == text
    assert read_answer(text, pending("question", question=question, options=["Keep", text])) == Answer("answer", text)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_options_of_every_language_are_understood(language: str) -> None:
    """C09, Q11: by their words, at the pauses that have options of their own."""
    for about, asked, more in (
        ("budget", "budget", {}),
        ("effect", "effect", {}),
        ("failure", "question", FAILED),
        ("early", "question", EARLY),
    ):
        kinds = [
            kind(option, asked, **{**more, "options": shown_options(language, about)})
            for option in shown_options(language, about)
        ]
        assert kinds == [kind(option, asked, **more) for option in shown_options("en", about)]
        assert all(kinds)


def test_no_phrase_says_yes_in_one_language_and_no_in_another() -> None:
    """C09: consent is consent whatever language it is in."""
    phrases: dict[str, set[str]] = {}
    for language, groups in _data().items():
        for group, said in groups.items() if language != "refusing" else ():
            for phrase in said:
                phrases.setdefault(phrase, set()).add(group)
    assert len(_data().keys() - {"any", "refusing"}) >= 20
    assert sum(map(len, SAID.values())) >= 150
    assert {
        phrase: groups for phrase, groups in phrases.items() if "yes" in groups and groups - {"yes", "polite"}
    } == {}
