"""The few words that decide, and the sentences around them that do not."""

from typing import Any

import pytest

from donewhen.state.language.texts import LANGUAGES, option_texts
from donewhen.state.language.words import SAID, read_word
from donewhen.state.people.answers import Answer, read_answer
from tests.kit.pauses import pending

FAILED: dict[str, Any] = {"about": "failure", "options": option_texts("en", "failure")}
EARLY: dict[str, Any] = {"about": "early", "options": option_texts("en", "early")}


def kind(text: str, asked: str, **more: Any) -> str:
    """The kind of the answer, or "" where the pause is kept."""
    answer = read_answer(text, pending(asked, **more))
    return answer.kind if isinstance(answer, Answer) else ""


WORDS = {said: [each.replace("_", " ") for each in words.split()] for said, words in SAID.items()}


def test_a_word_means_the_same_at_every_pause_in_every_language() -> None:
    """C09, W3: consent, refusal, the end, later; no “no” starts any work, and a word has one meaning."""
    kinds = {
        said: {tuple(kind(text, asked) for asked in ("plan", "tool", "budget", "effect")) for text in words}
        for said, words in WORDS.items()
    }
    assert kinds["yes"] == {("approve", "approve", "extend", "happened")}
    assert kinds["no"] == {("reject", "reject", "stop", "")}
    assert {each[:2] + each[3:] for each in kinds["cancel"]} == {("cancel", "cancel", "cancel")}
    assert {each[2] for each in kinds["cancel"]} == {"cancel", "stop"}
    assert kinds["later"] == {("later", "later", "later", "later")}
    assert {kind(text, "question", **FAILED) for text in WORDS["no"]} == {"stop"}
    assert {kind(text, "question", **FAILED) for text in WORDS["yes"]} == {""}
    assert len({each for words in WORDS.values() for each in words}) == sum(map(len, WORDS.values()))
    assert all(len(words) <= 60 for words in WORDS.values())


@pytest.mark.parametrize("text", ["YES", " Yes! ", "“ok”", "ＯＫ", "Да.", "好。", "👍🏽", "/cancel", "Später"])
def test_a_word_is_folded(text: str) -> None:
    """C09: case, width, quotes and full stops do not matter."""
    assert read_word(text)


@pytest.mark.parametrize(
    "text",
    [
        "no changes needed", "approve all", "Yes please, and thank you", "no, it did not", "Yes, it went through",
        "yes but change step 2", "ok?", "no problem", "why not", "looks good to me", "go ahead", "I don't see why not",
        "no, that's fine, go ahead with the plan as it is", "as far as I am concerned the answer is yes",
        "stop, take the other one", "yes no", "I know", "thanks", "hm", "also write a summary", "shorter",
        "Ja, aber bitte ohne den dritten Schritt von gestern", "不要用旧的文件，请改用新的那一个文件", "看起来不错",
    ],
)  # fmt: skip
def test_what_may_be_consent_or_refusal_is_asked_back(text: str) -> None:
    """C11, N34, N79: no pause that decides anything takes it; “change” then says that it was meant as words."""
    for asked, more in (("plan", {}), ("tool", {}), ("budget", {}), ("effect", {}), ("question", FAILED)):
        assert kind(text, asked, **more) == "", asked
    for asked, more, taken in (("plan", {}, "reject"), ("tool", {}, "reject"), ("question", FAILED, "replan")):
        assert read_answer("change", pending(asked, said=text, **more)) == Answer(taken, text)  # type: ignore[arg-type]
        assert read_answer(f"change: {text}", pending(asked, **more)) == Answer(taken, text)  # type: ignore[arg-type]
        assert kind("change", asked, **more) == ""
    assert read_answer(text, pending("question")) == Answer("answer", text)


@pytest.mark.parametrize(
    "text",
    [
        "Please use the file b.txt instead of a.txt",
        "Nimm für den Bericht lieber die Datei aus dem März",
        "请把结果写到另一个文件里，并且附上一份摘要",
        "Utilise plutôt le fichier du mois de mars pour le rapport",
    ],
)
def test_a_sentence_that_cannot_be_consent_says_what_should_be_different(text: str) -> None:
    """C11, W3: it is planned with; a call runs for none of it."""
    assert read_answer(text, pending("plan")) == Answer("reject", text)
    assert read_answer(text, pending("question", **FAILED)) == Answer("replan", text)
    assert kind(text, "tool") == kind(text, "effect") == kind(text, "budget") == kind(text, "question", **EARLY) == ""


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
            kind(option, asked, **{**more, "options": option_texts(language, about)})
            for option in option_texts(language, about)
        ]
        assert kinds == [kind(option, asked, **more) for option in option_texts("en", about)]
        assert all(kinds)
