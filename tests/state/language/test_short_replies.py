"""What people reply in their own words: what can only mean yes, no, cancel or later, and everything else."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from donewhen.state.language.short_replies import ELSEWHERE, EVERYWHERE, MEANINGS, has_question_mark, read_word
from donewhen.state.language.texts import LANGUAGES, catalogue, option_texts
from donewhen.state.people.answers import Answer
from tests.kit.pauses import pending, read_answer

REPLIES = Path(__file__).parents[2] / "data" / "replies.tsv"
"""What people say to a plan, with what it means, written before the lists; half of it only looks like consent."""
CONSENTS = REPLIES.with_name("consents.tsv")
"""What people say to three plans that they were shown, written by somebody who did not know the rule, and what a
language model found in it that was given `prompts/consent.md` and nothing else."""
FAILED: dict[str, Any] = {"about": "failure", "options": option_texts("en", "failure")}
EARLY: dict[str, Any] = {"about": "early", "options": option_texts("en", "early")}


def kind(text: str, asked: str, **more: Any) -> str:
    """The kind of the answer, or "" where the person is asked back."""
    answer = read_answer(text, pending(asked, **more))
    return answer.kind if isinstance(answer, Answer) else ""


def words_of(meaning: str) -> list[str]:
    tables = [*(catalogue(language)["words"] for language in LANGUAGES), EVERYWHERE, ELSEWHERE]
    return [word.strip() for table in tables for word in table.get(meaning, "").split("|") if word.strip()]


def test_replies_written_before_the_lists_do_what_they_mean() -> None:
    """Q15, C11: in six languages none approves, cancels or postpones what it does not mean, and 97 % do at once what
    they mean: approve, end, postpone; a “no” is asked back or said to the planner, and all else is said to it."""
    lines = REPLIES.read_text("utf-8").splitlines()[1:]
    replies = [tuple(line.split("\t")) for line in lines]
    does = {"yes": {"approve"}, "cancel": {"cancel"}, "later": {"later"}, "no": {"", "say"}, "other": {"say"}}
    decides = {kind for means in ("yes", "cancel", "later") for kind in does[means]}
    taken = [(means, kind(reply, "plan"), reply) for _, means, reply in replies]
    assert [row for row in taken if row[1] in decides - does[row[0]]] == []
    assert len([row for row in taken if row[1] not in does[row[0]]]) <= 0.03 * len(taken)
    assert min(Counter(language for language, _, _ in replies).values()) > 50


def test_what_code_leaves_open_a_judge_can_read() -> None:
    """Q15, C11: of consent in people's own words code finds little, and none where there is none; the judge
    that has the last word finds all of it, and none where there is none. No consent has a question mark."""
    rows = [line.split("\t") for line in CONSENTS.read_text("utf-8").splitlines()[1:]]
    alike = {(means, judge) for _, _, means, judge, _ in rows}
    assert alike == {("yes", "yes"), ("other", "no")}
    assert {means for _, _, means, _, reply in rows if kind(reply, "plan") == "approve"} == {"yes"}
    assert not [reply for _, _, means, _, reply in rows if means == "yes" and has_question_mark(reply)]


def test_a_short_reply_means_the_same_at_every_pause_in_every_language() -> None:
    """C09, W3: consent, refusal, the end, later; no “no” starts any work, and no word has two meanings."""
    words = {meaning: words_of(meaning) for meaning in MEANINGS}
    kinds = {
        said: {tuple(kind(text, at) for at in ("plan", "tool", "budget")) for text in words[said]} for said in words
    }
    assert kinds["yes"] == {("approve", "approve", "extend")}
    assert {each[1:] for each in kinds["no"]} == {("reject", "stop")}
    assert {each[0] for each in kinds["no"]} == {"", "reject"}, "an option of the plan is a button"
    assert {each[:2] for each in kinds["cancel"]} == {("cancel", "cancel")}
    assert {each[2] for each in kinds["cancel"]} == {"cancel", "stop"}
    assert kinds["later"] == {("later", "later", "later")}
    assert {kind(text, "question", **FAILED) for text in words["no"]} == {"stop"}
    assert {kind(text, "question", **FAILED) for text in words["yes"]} == {""}
    assert {kind(text, "effect") for text in words["no"]} == {""}
    assert {kind(text, "effect") for text in words["yes"]} == {"", "happened"}, "only a plain yes says that it happened"
    assert {read_word(text) for text in words_of("beside")} == {None}


def test_signs_that_a_chat_spells_out_mean_what_they_show() -> None:
    """C11: Slack writes 👍 as `:+1:`; a bare `+1` may be an amount, and other names mean nothing."""
    spelled = {":+1:": "yes", "Yes :thumbsup::skin-tone-3:": "yes", ":x:": "no", ":+1: :pray:": "yes"}
    assert {text: read_word(text) for text in spelled} == spelled
    assert [read_word(text) for text in ("+1", "-1", ":tada:", ":+1: but :x:", ":skin-tone-3:")] == [None] * 5


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_lists_stay_short(language: str) -> None:
    """C11: they are lists of words, and no attempt to understand people."""
    lists = catalogue(language)["words"]
    assert all(len(lists[key].split("|")) <= 26 for key in lists)


@pytest.mark.parametrize(
    "text", ["YES", " Yes! ", "“ok”", "ＯＫ", "Да.", "好。", "👍🏽", "/cancel", "Später", "Si, gracias", ":-1:"]
)
def test_a_short_reply_is_folded(text: str) -> None:
    """C09: case, width, quotes, full stops and accents of Latin letters do not matter."""
    assert read_word(text)


@pytest.mark.parametrize(
    "text",
    [
        "Please use the file b.txt instead of a.txt", "ok?", "yes but change step 2", "hm", "12", "no, it did not",
        "不要用旧的文件，请改用新的那一个文件", "Yes, it went through", "approve " * 30,
    ],
)  # fmt: skip
def test_all_other_words_are_said_and_cost_nothing_where_money_is_asked_about(text: str) -> None:
    """C11: to the planner at a plan and after a failure, to the model at its call and its question; a limit and an
    unknown effect ask one question back, in one sentence."""
    said = text.strip()
    assert read_answer(text, pending("plan")) == Answer("say", said)
    assert read_answer(text, pending("tool")) == Answer("reject", said)
    assert read_answer(text, pending("question", **FAILED)) == Answer("replan", said)
    assert read_answer(text, pending("question", options=[])) == Answer("answer", said)
    for asked, more in (("budget", {"exhausted": ["rounds", "cost_usd"]}), ("effect", {}), ("question", EARLY)):
        problem = read_answer(text, pending(asked, **more))
        assert isinstance(problem, str)
        assert "\n" not in problem


@pytest.mark.parametrize("text", ["no", "Nein, danke.", "不", "edit"])
def test_a_no_to_a_plan_asks_what_should_be_different(text: str) -> None:
    """Q15: it ends nothing and plans nothing."""
    assert read_answer(text, pending("plan")) == "What should be different?"


@pytest.mark.parametrize(("text", "question"), [("cancel", "Cancel the order?"), ("later", "Now or later?")])
def test_a_word_that_may_be_the_answer_is_not_guessed(text: str, question: str) -> None:
    """C09: it may mean the run; as an option, or with a slash, it is clear; in more words it is the answer."""
    assert kind(text, "question", question=question, options=[]) == ""
    assert kind(f"/{text}", "question", question=question, options=[]) == text
    assert read_answer(text, pending("question", question=question, options=["Keep", text])) == Answer("answer", text)
    assert read_answer(f"{text} please", pending("question", options=[])) == Answer("answer", f"{text} please")


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
