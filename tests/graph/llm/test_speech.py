"""Speech as it streams: what is shown at once, what waits, what is never shown, and that the pieces give the text."""

import json
from itertools import groupby
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from donewhen.graph.llm.reply import read_reply
from donewhen.graph.llm.speech import SpeechStream
from donewhen.state.reading.decisions import EXECUTE
from donewhen.testing import ScriptedModel, answer, call, finish_step, reply
from tests.kit.flows import one_step, play, steps


class Heard:
    """Who listens: the pieces of prose since the last retraction, and all that was said and retracted."""

    def __init__(self, *, prints: bool = True) -> None:
        self.pieces: list[str] = []
        self.retracted: list[str] = []
        self.said: list[tuple[str, str]] = []
        self.void: list[str] = []
        self.speech = SpeechStream(self, prints=prints)

    def say(self, text: str, argument: str = "") -> None:
        self.said.append((argument, text))
        if not argument:
            self.pieces.append(text)

    def keep(self) -> None:
        """Nobody comes later."""

    def retract(self, argument: str = "") -> None:
        self.void.append(argument)
        self.retracted.append("".join(self.pieces))
        self.pieces.clear()

    def think(self, text: str) -> None:
        pass

    def stream(self, text: str, size: int) -> str:
        """Feed a reply in pieces; what was said before it was read."""
        for start in range(0, len(text), size):
            self.speech.feed(text[start : start + size])
        return "".join(self.pieces)

    def finish(self, text: str) -> str:
        """Read the reply; all that was said."""
        self.speech.finish(read_reply(AIMessage(text), EXECUTE).speech)
        return "".join(self.pieces)


PROSE = "Hello world, this is  fine.\n\nYes — [s1.2] says so: a < b, and `code` too. 日本語 👩‍👩‍👧 done"
CALL = '{"action": "finish_step", "result": "x", "goal_check": []}'


def test_the_first_word_is_said_when_it_arrives() -> None:
    """S02, issue 24.3: of a model that makes its calls, only what begins with a bracket, fence or tag is held."""
    for prints, said in ((True, ["", "", "Hello dear reader"]), (False, ["Hello", "Hello dear", "Hello dear reader"])):
        heard = Heard(prints=prints)
        assert [heard.stream(piece, 100) for piece in ("Hello", " dear", " reader of this")][:2] == said[:2]
        assert heard.stream(".", 1).startswith(said[2])
    for size in (1, 2, 5, 1000):
        heard = Heard(prints=False)
        assert PROSE.startswith(heard.stream(PROSE, size))
        assert (heard.finish(PROSE), heard.retracted) == (PROSE, [])
        heard = Heard(prints=False)
        assert heard.stream(f"<think>so</think>{CALL}", size) == ""
    heard = Heard(prints=False)
    heard.stream(f"Let me see it.\nAction:\n{CALL}", 2)
    assert heard.finish(f"Let me see it.\nAction:\n{CALL}") == "Let me see it."
    assert heard.retracted == []


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PROSE, PROSE),
        ("  \n Hi there you all.\n\n", "Hi there you all."),
        (f"Let me see it.\nAction:\n```json\n{CALL}\n```\nDone!", "Let me see it."),
        (f"Let me see.\n<tool_call>{CALL}</tool_call>", "Let me see."),
        (CALL, ""),
        ("<think>secret plan</think>The answer is near.", "The answer is near."),
        ("It is [1, 2] and {x} and more `{` text.", "It is [1, 2] and {x} and more `{` text."),
        ('Well. {"action": "add", "a": ', "Well."),
    ],
)
def test_the_pieces_are_the_text(text: str, said: str, size: int) -> None:
    """S02: pieces join back to the exact speech, wherever the stream is cut; JSON and thoughts are never in them."""
    heard = Heard()
    before = heard.stream(text, size)
    assert said.startswith(before)
    assert heard.finish(text) == said
    assert heard.retracted == []


def test_brackets_in_prose_do_not_end_the_stream() -> None:
    """K10: citations, values, code and tags wait until they are closed, and what comes after them streams on."""
    heard = Heard()
    text = "As [1] and [2, 3] say, {x} is <b>set</b> by `{y}` in\n```py\nd = {1: 2}\n```\nand so on, to the very end"
    before = heard.stream(text, 3)
    assert before == text
    assert heard.finish(text) == text
    assert heard.retracted == []


def test_a_thought_without_its_opening_tag_is_taken_back() -> None:
    """S04: where the tag was part of the prompt, a thought is known only at its end: it is retracted."""
    heard = Heard()
    text = "Maybe I should say five words.</think>Hello."
    assert heard.stream(text, 3)
    assert heard.finish(text) == "Hello."
    assert heard.retracted == ["Maybe I should say five words."]


PARTS = st.sampled_from(
    ["word ", " ", "\n", "[", "]", "{", "}", "<", ">", "`", "think", "/", ":", '"', "日", "😀", "s1.1"]
)


@given(st.lists(PARTS, max_size=30).map("".join), st.integers(1, 7))
def test_any_text_is_said_exactly_once(text: str, size: int) -> None:
    """S02: for every text and every cut the pieces since the last retraction are the speech, character by character."""
    heard = Heard()
    heard.stream(text, size)
    assert heard.finish(text) == read_reply(AIMessage(text), EXECUTE).speech


def test_a_long_reply_streams_in_linear_time() -> None:
    """S02: forty thousand pieces take a moment."""
    began = process_time()
    heard = Heard()
    heard.stream("word and " * 40_000, 9)
    heard.speech.feed("\n \n" * 100_000)
    assert process_time() - began < 2.0


@given(st.text(max_size=60), st.integers(1, 7), st.booleans(), st.booleans())
def test_a_text_inside_of_arguments_is_said_as_it_is_written(text: str, size: int, ascii: bool, first: bool) -> None:
    """S05: decoded to the very characters, wherever the JSON is cut, whatever stands before, after or deeper in it."""
    other = {"goal_check": [{"criterion": 1, "result": "not this", "note": '"result": "nor this'}], "met": True}
    given = {"result": text, **other} if first else {**other, "result": text}
    written = json.dumps(given, ensure_ascii=ascii)
    heard = Heard()
    for start in range(0, len(written), size):
        name = "finish_step" if start == 0 else None
        heard.speech.feed_call({"index": 0, "name": name, "args": written[start : start + size]})
    assert "".join(piece for _, piece in heard.said) == text
    assert {argument for argument, _ in heard.said} <= {"finish_step.result"}
    count = len(heard.said)
    heard.speech.finish("", "finish_step", given)
    assert len(heard.said) == count


def test_a_word_inside_of_an_argument_is_said_with_the_piece_that_carries_it() -> None:
    """T (first token): nothing is held back; while a piece is fed, all that it brings of the text is said."""
    heard = Heard()
    words = ["The", " file", " has", " seven", " li", "nes."]
    heard.speech.feed_call({"index": 0, "name": "finish_step", "args": '{"result": "'})
    for count, word in enumerate(words, 1):
        heard.speech.feed_call({"index": 0, "name": None, "args": word})
        assert [text for _, text in heard.said] == words[:count]


def test_what_was_said_of_a_call_that_was_not_taken_is_void() -> None:
    """S05: retracted as the argument it was; prose beside it stands."""
    heard = Heard()
    heard.speech.feed("I am done. ")
    heard.speech.feed_call({"index": 0, "name": "finish_step", "args": '{"result": "seven'})
    heard.speech.finish("I am done.")
    assert heard.said == [("", "I am done."), ("finish_step.result", "seven")]
    assert heard.void == ["finish_step.result"]


def test_a_long_argument_streams_in_linear_time() -> None:
    """S05: far less than two milliseconds of our own for each piece."""
    speech, pieces = Heard().speech, 5_000
    began = process_time()
    speech.feed_call({"index": 0, "name": "answer", "args": '{"text": "'})
    for _ in range(pieces):
        speech.feed_call({"index": 0, "name": None, "args": "word and\\n"})
    assert (process_time() - began) / pieces < 0.0005


async def test_answers_questions_and_results_stream() -> None:
    """S05: each reaches listeners in pieces, under its name, and is not said a second time."""
    question, result = "Which of the two files do you mean, please?", "The file has seven lines, all of them green."
    model = one_step([[call("ask_user", question=question)], finish_step(result, "s1.result")], deliver=["Done."])
    flow = await play(model, answers=["the first"])
    assert output_of(flow, "s1", "ask_user.question") == question
    assert output_of(flow, "s1", "finish_step.result") == result
    assert output_of(flow, "s1") == ""
    answered = "It is forty-two, as everybody knows since 1979."
    flow = await play(ScriptedModel([[answer(answered)]]))
    assert output_of(flow, None, "answer.text") == flow.run.answer == answered
    pieces = flow.told("speech")
    assert len(pieces) > 3
    assert all(event["answer"] for event in pieces)


def output_of(flow: Any, step: str | None, argument: str = "") -> str:
    """What listeners hold of a step's speech in the end, or of what it said inside of an argument."""
    heard: list[str] = []
    for event in (each for each in flow.events if each["type"] in ("speech", "speech_restarted")):
        if event["step"] != step or event.get("argument", "") != argument:
            continue
        if event["type"] == "speech_restarted":
            heard.clear()
        else:
            heard.append(event["text"])
    return "".join(heard)


async def test_a_run_speaks_as_it_works() -> None:
    """S02, S04: in a run, speech comes in many pieces that give the exact text; thinking is not in it."""
    text = "正在读取文件 👩‍👩‍👧 — it takes a while, please wait."
    done = reply("", [finish_step("x", "s1.result")], thinking="I could lie about it")
    model = one_step([reply(text, thinking="what do they want?"), done])
    flow = await play(model)
    model.assert_exhausted()
    assert output_of(flow, "s1") == text
    assert len([e for e in flow.told("speech") if e["step"] == "s1"]) > 3
    assert output_of(flow, None) == flow.run.answer == "x"
    assert not any("lie about" in str(e) or "do they want" in str(e) for e in flow.events if e["type"] != "outcome")


async def test_speech_of_steps_at_once_keeps_apart() -> None:
    """S02: parallel steps speak under their own names."""
    plan = [{"content": "a", "depends_on": []}, {"content": "b", "depends_on": []}]
    texts = {"s1": "First I count all of the apples here.", "s2": "第二步正在处理，请稍候片刻。" * 3}
    model = steps(plan, {id: [text, finish_step("x", f"{id}.result")] for id, text in texts.items()})
    flow = await play(model)
    model.assert_exhausted()
    assert {id: output_of(flow, id) for id in texts} == texts
    order = [step for step, _ in groupby(e["step"] for e in flow.told("speech") if e["step"])]
    assert len(order) > 2


async def test_nothing_of_a_decision_is_spoken() -> None:
    """S02: arguments of calls, printed or native, never reach the user as speech."""
    printed = 'Looking.\n```json\n{"action": "look", "args": {}}\n```'
    model = one_step([printed, [call("look")], finish_step("x", "s1.2")], tools=["look"])

    def look() -> str:
        """Look."""
        return "seen"

    flow = await play(model, [look], effects={"look": "read"})
    model.assert_exhausted()
    assert output_of(flow, "s1") == "Looking."
