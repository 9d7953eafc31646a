"""Speech as it streams: what is shown at once, what waits, what is never shown, and that the pieces give the text."""

from itertools import groupby
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from donewhen.graph.models.reading import read
from donewhen.graph.models.speech import Speech
from donewhen.state.reading.decisions import EXECUTE
from donewhen.testing import WireServer, call, fault, finish_step, reply, submit_plan
from tests.flows import one_step, play, steps
from tests.wired import wired


class Heard:
    """Who listens: the pieces since the last retraction, and all of them."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.retracted: list[str] = []
        self.speech = Speech(self.pieces.append, self._retract)

    def _retract(self) -> None:
        self.retracted.append("".join(self.pieces))
        self.pieces.clear()

    def stream(self, text: str, size: int) -> str:
        """Feed a reply in pieces; what was said before it was read."""
        for start in range(0, len(text), size):
            self.speech.feed(text[start : start + size])
        return "".join(self.pieces)

    def finish(self, text: str) -> str:
        """Read the reply; all that was said."""
        self.speech.finish(read(AIMessage(text), EXECUTE).speech)
        return "".join(self.pieces)


PROSE = "Hello world, this is  fine.\n\nYes — [s1.2] says so: a < b, and `code` too. 日本語 👩‍👩‍👧 done"
CALL = '{"action": "finish_step", "result": "x", "goal_check": []}'


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


def test_prose_is_said_as_it_comes() -> None:
    """S02: speech reaches the user while the model still writes, word by word, not at the end."""
    heard = Heard()
    heard.stream("I am reading the file now. ", 4)
    assert len(heard.pieces) > 3
    assert "".join(heard.pieces) == "I am reading the file now."


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


@examples(deadline=None)
@given(st.lists(PARTS, max_size=30).map("".join), st.integers(1, 7))
def test_any_text_is_said_exactly_once(text: str, size: int) -> None:
    """S02: for every text and every cut the pieces since the last retraction are the speech, character by character."""
    heard = Heard()
    heard.stream(text, size)
    assert heard.finish(text) == read(AIMessage(text), EXECUTE).speech


def test_a_long_reply_streams_in_linear_time() -> None:
    """S02: two hundred thousand pieces take a moment."""
    began = process_time()
    heard = Heard()
    heard.stream("word and " * 200_000, 9)
    heard.speech.feed("\n \n" * 500_000)
    assert process_time() - began < 3.0


def said_by(flow: Any, step: str | None) -> str:
    """What listeners hold of a step's speech in the end."""
    heard: list[str] = []
    for event in flow.events:
        if event["type"] == "speech_restarted" and event["step"] == step:
            heard.clear()
        if event["type"] == "speech" and event["step"] == step:
            heard.append(event["text"])
    return "".join(heard)


async def test_a_run_speaks_as_it_works() -> None:
    """S02, S04: in a run, speech comes in many pieces that give the exact text; thinking is not in it."""
    text = "正在读取文件 👩‍👩‍👧 — it takes a while, please wait."
    done = reply("", [finish_step("x", "s1.result")], thinking="I could lie about it")
    model = one_step(
        [reply(text, thinking="what do they want?"), done], deliver=["All of it is done now, as you wished."]
    )
    flow = await play(model)
    model.assert_exhausted()
    assert said_by(flow, "s1") == text
    assert len([e for e in flow.told("speech") if e["step"] == "s1"]) > 3
    assert said_by(flow, None) == flow.run.answer == "All of it is done now, as you wished."
    assert not any("lie about" in str(e) or "do they want" in str(e) for e in flow.events if e["type"] != "outcome")


async def test_speech_of_steps_at_once_keeps_apart() -> None:
    """S02: parallel steps speak under their own names."""
    plan = [{"content": "a", "depends_on": []}, {"content": "b", "depends_on": []}]
    texts = {"s1": "First I count all of the apples here.", "s2": "第二步正在处理，请稍候片刻。" * 3}
    model = steps(plan, {id: [text, finish_step("x", f"{id}.result")] for id, text in texts.items()})
    flow = await play(model)
    model.assert_exhausted()
    assert {id: said_by(flow, id) for id in texts} == texts
    order = [step for step, _ in groupby(e["step"] for e in flow.told("speech") if e["step"])]
    assert len(order) > 2


async def test_a_reply_that_breaks_off_is_said_again() -> None:
    """S02, R01: what was said of a reply that breaks off is retracted; the repeated reply is said from its start."""
    text = "I am reading the file now, it has many lines in it."
    script = [
        submit_plan(["read"]),
        fault(reset_after=4, reply=text),
        reply(text),
        finish_step("x", "s1.result"),
        "Done.",
    ]
    with WireServer(script) as server:
        flow = await play(wired(server))
    assert [e["type"] for e in flow.events if e["type"] == "speech_restarted"] == ["speech_restarted"]
    assert said_by(flow, "s1") == text
    kinds = [e["type"] for e in flow.events]
    before = [e["text"] for e in flow.events[: kinds.index("speech_restarted")] if e["type"] == "speech"]
    assert text.startswith("".join(before))
    assert flow.status == "completed"


async def test_nothing_of_a_decision_is_spoken() -> None:
    """S02: arguments of calls, printed or native, never reach the user as speech."""
    printed = 'Looking.\n```json\n{"action": "look", "args": {}}\n```'
    model = one_step([printed, [call("look")], finish_step("x", "s1.2")], tools=["look"])

    def look() -> str:
        """Look."""
        return "seen"

    flow = await play(model, [look], effects={"look": "read"})
    model.assert_exhausted()
    assert said_by(flow, "s1") == "Looking."
