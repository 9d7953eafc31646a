"""What the runtime says, in every language that it has texts of: nothing missing, and read back as it was written."""

from string import Formatter
from typing import Any

import pytest

from donewhen.graph.people.tasks import checklist
from donewhen.state.language.texts import LANGUAGES, catalogue, known_language, option_texts, say
from donewhen.state.people.amounts import example_amount, read_amounts
from donewhen.state.people.answers import Answer
from donewhen.state.proof.outcome import summary
from tests.kit.pauses import KINDS, PLAN, hitl, options, payload, pending, read_answer


def flat(texts: Any, path: str = "") -> dict[str, str]:
    if isinstance(texts, str):
        return {path: texts}
    return {key: text for name, part in texts.items() for key, text in flat(part, f"{path}.{name}").items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_text_and_place(language: str) -> None:
    """Q11, P14: a missing text or place is an error, not a blank."""
    english, own = flat(catalogue("en")), flat(catalogue(language))
    assert own.keys() == english.keys()
    for key, text in own.items():
        places = {name for _, name, _, _ in Formatter().parse(text) if name}
        assert places == {name for _, name, _, _ in Formatter().parse(english[key]) if name}, key
        assert text.strip()


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pause_is_shown_in_every_language(kind: str, language: str) -> None:
    """Q11: keys stay English, words do not; the options shown are understood."""
    question = "?" if kind == "question" else ""
    asked = pending(kind, language=language, question=question, problem="x", writes=["write_file"])
    asked = {**asked, "options": ["approve", "edit", "reject", "cancel"] if kind == "plan" else asked["options"]}
    value = payload(asked)
    assert value["kind"] == kind
    text = value["action_requests"][0]["description"]
    assert "> x\n" in text
    if kind != "question":
        assert value["message"] == catalogue(language)["ask"][kind].format(tool=asked.get("tool"))
    kinds = [read_answer(option, asked) for option in options(asked)]
    if kind == "plan":
        assert [getattr(answer, "kind", None) for answer in kinds] == ["approve", None, "reject", "cancel"]
    else:
        assert all(isinstance(answer, Answer) for answer in kinds)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_question_whether_to_do_it_once_more_is_answered_as_it_is_asked(language: str) -> None:
    """Q11, F08: of a write that was made, the options say what happens, and yes makes it a second time; of one that was
    cut off, yes says that it happened."""
    made = pending("effect", language=language, options=option_texts("en", "once_more"))
    assert options(made) == option_texts(language, "once_more") != option_texts(language, "effect")
    kinds = [read_answer(option, made).kind for option in options(made)]
    assert kinds == ["happened", "not_happened", "skip"]
    yes, no = (catalogue(language)["words"][word].split("|")[0].strip() for word in ("yes", "no"))
    assert [read_answer(word, made) for word in (yes, no)] == [Answer("not_happened"), Answer("happened")]
    assert read_answer(yes, pending("effect", language=language)) == Answer("happened")
    asked_back = read_answer("it rains", made)  # and not whether it happened, which a yes would then answer
    assert option_texts(language, "once_more")[1] in str(asked_back)


@pytest.mark.parametrize("language", LANGUAGES)
def test_not_once_more_does_not_say_that_a_write_in_doubt_happened(language: str) -> None:
    """F08, S21: whether it happened is asked back; words about it are understood where “once more” is asked."""
    no, _, _ = option_texts(language, "once_more")
    unsure = pending("effect", language=language, options=option_texts("en", "effect"))
    assert [type(read_answer(word, unsure)) for word in (no, no.upper())] == [str, str]
    made = pending("effect", language=language, options=option_texts("en", "once_more"))
    kinds = [read_answer(word, made).kind for word in (no, *option_texts(language, "effect"))]
    assert kinds == ["happened", "happened", "not_happened", "skip"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_checklist_has_no_word_of_another_language(language: str) -> None:
    """Q11: what became of a step stands behind its words in the language of the run."""
    plan, skipped = {"steps": [{"id": "s1", "content": "A"}]}, {"s1": {"status": "skipped"}}
    row, _ = checklist(plan, skipped, language, answered=True)  # type: ignore[arg-type]
    assert row["content"] == f"A ({catalogue(language)['summary']['skipped']})"


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_plan_is_read_back_in_every_language(language: str) -> None:
    """Q11, C03: unchanged it is an approval; a changed line changes just that; a schedule and limits are read too."""
    asked = pending("plan", language=language, writes=["write_file"])
    text = payload(asked)["action_requests"][0]["args"]["plan"]
    assert read_answer(hitl("plan", plan=text), asked) == Answer("approve")
    changed = read_answer(
        hitl("plan", plan=text.replace("There are three", "There are 3").replace("rounds: 40", "rounds: 4")), asked
    )
    assert isinstance(changed, Answer)
    assert changed.amounts == {"rounds": 4}
    assert changed.plan is not None
    assert changed.plan["steps"][0]["done_when"][1] == {**PLAN["steps"][0]["done_when"][1], "text": "There are 3"}
    assert changed.plan["steps"][1:] == PLAN["steps"][1:]


@pytest.mark.parametrize(
    ("tags", "language"),
    [
        (["de"], "de"), (["de-AT"], "de"), (["zh_Hans_CN"], "zh"), (["FR"], "fr"), ([None, "es"], "es"), ([], "en"),
        (["pt", "ja"], "ja"), (["German"], "en"), (["tlh"], "en"), ([7, ""], "en"), (["en", "de"], "en"),
    ],
)  # fmt: skip
def test_the_first_declared_language_that_there_are_texts_of(tags: Any, language: str) -> None:
    """P14: languages are declared as BCP 47 tags, and never told from words."""
    assert known_language(*tags) == language


def row(id: str, status: str) -> dict[str, Any]:
    return {"id": id, "content": f"work on {id}", "status": status, "reason": "", "result": ""}


def test_what_was_replaced_and_then_done_is_not_listed_as_left_over() -> None:
    """Q14: "Not done (blocked, then replaced by s3)" is noise where s3 is done."""
    replaced = {**row("s2", "blocked"), "by": "user", "instead": ["s3"]}
    rows = [{**row(id, "done"), "criteria": []} for id in ("s1", "s3")]
    done = {"steps": rows, "replaced": [replaced], "questions": [], "status": "completed", "verification": "grounded"}
    assert "s2" not in summary(done, "", "en")
    left = {**done, "steps": [row("s1", "done"), row("s3", "failed")], "status": "partial"}
    assert "- Nicht erledigt (blockiert, dann ersetzt durch s3): work on s2" in summary(left, "", "de")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_not_understood_is_said_in_the_language_of_the_pause(language: str) -> None:
    """Q11, U3, C09, C12: the reason, with the line of an edit."""
    asked = pending("plan", language=language)
    shown = payload(asked)["action_requests"][0]["args"]["plan"]
    problem = read_answer(hitl("plan", plan=f"{shown}notes: none\n"), asked)
    number = len(shown.splitlines()) + 1
    assert problem == catalogue(language)["unclear"]["edit"].format(
        reasons=f"line {number}: a plan has no field 'notes'"
    )


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_example_of_an_amount_is_one_in_its_language(language: str) -> None:
    """X24: who is told how to write an amount can write it so."""
    example = example_amount("rounds", 50, language)
    assert example in say(language, "unclear", "no_amount", said="?")
    assert read_amounts(example, {}, ["rounds"]) == {"rounds": 50}
