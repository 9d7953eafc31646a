"""One slip of a model, or one oddity of a server, and the next request: nothing that came in makes it invalid."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from donewhen import Agent
from donewhen.graph.llm.calls import meant_name, read_arguments
from donewhen.graph.llm.outgoing import MADE_BY, FitRounds, fit_history
from donewhen.state.values import clean_text
from tests.kit.providers.forms import (
    SIGNATURE,
    RefusedRequest,
    Said,
    chat_call,
    chat_chunk,
    check_chat,
    event,
    names_in,
    own_chat_model,
    refuse_chat,
    told,
    write_chat,
)
from tests.kit.providers.server import Answer, ProviderServer

STEP = {"content": "Look at the lamps", "done_when": ["the stock is known"], "tools": ["look"]}
SETTINGS = {"verification": "grounded", "confirm": "never", "model_retries": 0, "on_failure": "deliver"}


def look(item: str) -> str:
    """Return the stock of an item."""
    return f"{item}: 12 in stock"


def think(body: Mapping[str, Any]) -> Said:
    """Look once and finish."""
    names = names_in(body)
    if "submit_plan" in names:
        return Said(calls=[("submit_plan", {"title": "Look", "steps": [STEP]})])
    if "finish_step" in names and "12 in stock" not in told(body):
        return Said(calls=[("look", {"item": "lamp"})])
    proof = {"criterion": 1, "met": True, "evidence": [{"observation": "s1.1", "quote": "12 in stock"}]}
    return (
        Said(calls=[("finish_step", {"result": "12", "goal_check": [proof]})]) if "finish_step" in names else Said("12")
    )


async def play(handler: Any) -> tuple[Any, ProviderServer]:
    """A run at a server of OpenAI's protocol."""
    with ProviderServer(handler) as server:
        settings, effects = SETTINGS, {"look": "read"}
        async with Agent(
            own_chat_model(server.url), [look], effects=effects, storage="memory:", settings=settings
        ) as a:  # type: ignore[arg-type]
            return await a.start("How many lamps?"), server


ITEM = '{"item": "lamp"}'
SLIPS = {
    "functions.look": ("functions.look", ITEM, "read"),
    "a channel": ("look<|channel|>commentary", ITEM, "read"),
    "CamelCase": ("Look", ITEM, "read"),
    "parallel": (
        "multi_tool_use.parallel",
        json.dumps({"tool_uses": [{"recipient_name": "functions.look", "parameters": {"item": "lamp"}}]}),
        "read",
    ),
    "an empty wrapper": ("multi_tool_use.parallel", '{"tool_uses": []}', "corrected"),
    "a tool that is not there": ("files.read now", ITEM, "corrected"),
    "no name": ("", ITEM, "corrected"),
    "single quotes": ("look", "{'item': 'lamp'}", "read"),
    "a fence": ("look", f"```json\n{ITEM}\n```", "read"),
    "twice": ("look", ITEM + ITEM, "read"),
    "two objects": ("look", ITEM + '{"item": "desk"}', "corrected"),
    "a tag": ("look", f"{ITEM}\n</tool_call>", "read"),
    "a mark": ("look", f"{ITEM}<|call|>", "read"),
    "encoded twice": ("look", json.dumps(ITEM), "read"),
    "words behind it": ("look", f"{ITEM} is what I want", "corrected"),
    "half of it": ("look", '{"item": "la', "corrected"),
    "no object": ("look", '["lamp"]', "corrected"),
    "half a character": ("look", '{"item": "\\ud83d"}', "corrected"),
}


@pytest.mark.parametrize("slip", SLIPS)
async def test_a_slip_is_read_or_corrected_and_never_sent_back(slip: str) -> None:
    """R14 (Q38, Q39): what is certain is read as what was meant, the rest is corrected; to a server that checks the
    history as OpenAI does, the next request is valid either way."""
    name, arguments, outcome = SLIPS[slip]
    slipped = []

    def handle(body: Mapping[str, Any]) -> Answer:
        try:
            check_chat(body)
        except RefusedRequest as refused:
            return refuse_chat(str(refused))
        if "finish_step" not in names_in(body) or slipped:
            return write_chat(think(body))
        slipped.append(1)
        call = event(chat_chunk(chat_call(0, name, arguments, "x1")))
        return Answer([call, event(chat_chunk({}, "tool_calls")), event("[DONE]")])

    run, server = await play(handle)
    assert (run.status, run.answer) == ("completed", "12")
    corrected = "Correction:" in json.dumps(server.bodies)
    assert corrected == (outcome == "corrected")
    assert len(server.bodies) == 3 + corrected


NAMES = ["submit_plan", "look", "get_item", "getItem"]
MEANT = {
    "look": "look",
    " look": "look",
    "default_api:look": "look",
    "tools.look": "look",
    "functions.look:0": "look",
    "looklook": "look",
    "`look`": "look",
    "look()": "look",
    "SubmitPlan": "submit_plan",
    "getItem": "getItem",
    "GetItem": "GetItem",  # two can be meant
    "loo": "loo",
    "look_up": "look_up",
    "finish_step": "finish_step",  # a control tool that is not legal now
    "": "",
}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_means_a_tool_only_if_it_can_mean_no_other(name: str) -> None:
    """Q39: decorations are taken off; nothing is guessed."""
    assert meant_name(name, NAMES) == MEANT[name]


def test_reading_arguments_ends_soon() -> None:
    """Q38: a text that is too broken for its size is not read."""
    assert read_arguments('{"a": 1}' * 20_000).value == {"a": 1}
    assert read_arguments("{" * 100_000).value is None


IDS = st.sampled_from(["", "call_0", "x:1", "é", "c" * 60, "toolu_1"])
CALLS = st.lists(st.tuples(st.sampled_from(["look", "functions.look", "", "a b"]), IDS), max_size=3)
REPLIES = st.tuples(st.sampled_from(["", " ", "I look.", "so \ud83d"]), CALLS, CALLS, st.booleans(), st.booleans())


def _history(rows: list[Any]) -> list[BaseMessage]:
    messages: list[BaseMessage] = [HumanMessage("Look.")]
    for number, (text, calls, broken, own, answered) in enumerate(rows):
        made = [tool_call(name=name, args={"item": "x"}, id=id) for name, id in calls]
        unread = [invalid_tool_call(name=name, args="{", id=id, error=None) for name, id in broken]
        maker = {MADE_BY: "me"} if own else {}
        messages.append(
            AIMessage(text, id=f"m{number}", tool_calls=made, invalid_tool_calls=unread, response_metadata=maker)
        )
        if answered:
            messages += [ToolMessage("seen", tool_call_id=call["id"] or "") for call in (*made, *unread)]
        messages.append(HumanMessage("Go on."))
    return messages


@given(st.lists(REPLIES, max_size=4))
def test_every_history_is_made_fit(rows: list[Any]) -> None:
    """R14: whatever stands in it, each call that is sent has a legal name, an id of its own and one result directly
    behind the reply; no words are lost, none are empty, and the same history gives the same request, also
    if the last one began as it does."""
    messages = _history(rows)
    sent = fit_history(messages, "me").messages
    seen, waiting = set[str](), list[str]()
    for message in sent:
        if isinstance(message, ToolMessage):
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting
        assert clean_text(message.text) == message.text or message.response_metadata
        if isinstance(message, AIMessage):
            assert not message.invalid_tool_calls
            assert message.tool_calls or message.text.strip()
            waiting = [str(call["id"]) for call in message.tool_calls]
            assert all(call["name"] == "look" for call in message.tool_calls)
            assert seen.isdisjoint(waiting)
            seen |= {*waiting}
    assert not waiting
    assert all(id.isascii() and 0 < len(id) <= 40 for id in seen)
    assert [m.text for m in sent].count("Go on.") == len(rows)
    assert fit_history(messages, "me").messages == sent
    rounds = FitRounds()
    bounds = [0, *(place for place, each in enumerate(messages) if isinstance(each, AIMessage)), len(messages)]
    for maker, (start, end) in itertools.product(("me", "you"), itertools.combinations(bounds, 2)):
        asked = messages[start:end]
        assert fit_history(asked, maker, rounds) == fit_history(asked, maker)


def test_a_conversation_is_fit_as_if_it_had_no_last_request() -> None:
    """R14: what the last request had is the same message again; nothing of it is left once the middle changed, another
    model is asked, the beginning was left out, or other words stand at the end."""
    call = ("look", "toolu_1")
    one, other = (_history([("I look.", [call], [], own, True) for own in owns]) for owns in ((1, 0, 1), (0, 1, 0)))
    changed = [*one[:4], *other[4:7], *one[7:]]
    asked = [one[:7], one, [*one, HumanMessage("And?")], changed, one, [*one[:-1], HumanMessage("Now.")], one[4:], one]
    rounds = FitRounds()
    before = fit_history(one, "me", rounds)
    for maker, messages in itertools.product(("me", "you"), asked):
        assert fit_history(messages, maker, rounds) == fit_history(messages, maker)
    again = fit_history(one, "me", rounds)
    assert again == before
    assert all(
        new is old for new, old in zip(fit_history(one, "me", rounds).messages[:7], again.messages, strict=False)
    )


def test_thoughts_are_given_to_their_model_alone() -> None:
    """R14 (Q43): another model, also of the same provider, gets the text and the calls."""
    call = tool_call(name="look", args={"item": "x"}, id="call_1")
    blocks: list[Any] = [
        {"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE},
        {"type": "text", "text": "I look."},
    ]
    reply = AIMessage(blocks, tool_calls=[call], additional_kwargs={"reasoning_content": "Hm."})
    reply.response_metadata[MADE_BY] = "me"
    messages = [HumanMessage("Look."), reply, ToolMessage("seen", tool_call_id="call_1")]
    own, other = fit_history(messages, "me"), fit_history(messages, "you")
    assert (own.messages[1], own.packets[1], own.foreign) == (reply, {"reasoning_content": "Hm."}, False)
    assert (other.messages[1].content, other.packets[1], other.foreign) == ("I look.", None, True)
    renamed = reply.model_copy(update={"tool_calls": [call, {**call, "name": "no such name"}]})
    kept = fit_history([messages[0], renamed, messages[2]], "me").messages[1]
    assert isinstance(kept.content, list)
    assert [block["type"] for block in kept.content] == ["thinking", "text"]  # type: ignore[index]


def _wants(key: str, body: Mapping[str, Any]) -> bool:
    """Whether a request lacks what the server wants back with a reply that made calls."""
    made = [message for message in body["messages"] if message.get("tool_calls")]
    if key == "extra_content":
        return not all("google" in (message["tool_calls"][0].get(key) or {}) for message in made)
    return not all(message.get(key) for message in made)


BESIDE = {
    "reasoning_content": {"reasoning_content": "I think about it."},
    "reasoning_details": {"reasoning_details": [{"type": "reasoning.encrypted", "data": SIGNATURE, "index": 0}]},
    "extra_content": {"extra_content": {"google": {"thought_signature": SIGNATURE}}},
}


@pytest.mark.parametrize("key", BESIDE)
async def test_what_a_server_sent_beside_calls_goes_back(key: str) -> None:
    """R14 (Q43): DeepSeek's and Moonshot's thoughts, OpenRouter's details, Google's signature of a call."""

    def handle(body: Mapping[str, Any]) -> Answer:
        if _wants(key, body):
            return refuse_chat(f"{key} must be passed back")
        said = think(body)
        name, arguments = said.calls[0] if said.calls else ("", {})
        beside = BESIDE[key]
        call = chat_call(0, name, json.dumps(arguments), "c1", **(beside if key == "extra_content" else {}))
        first = chat_chunk({} if key == "extra_content" else beside)
        pieces = [first, chat_chunk(call if said.calls else {"content": said.text}), chat_chunk({}, "stop")]
        return Answer([*map(event, pieces), event("[DONE]")])

    run, server = await play(handle)
    assert (run.status, run.answer) == ("completed", "12")
    assert len(server.bodies) == 3


@pytest.mark.parametrize("key", ["reasoning_content", "extra_content"])
async def test_a_server_that_demands_thoughts_nobody_had_gets_a_placeholder(key: str) -> None:
    """R14 (Q43): a run that comes from another model, or from one that did not think, goes on."""

    def handle(body: Mapping[str, Any]) -> Answer:
        lacking = {
            "reasoning_content": "reasoning_content is missing",
            "extra_content": "a thought_signature is missing",
        }
        return refuse_chat(lacking[key]) if _wants(key, body) else write_chat(think(body))

    run, server = await play(handle)
    assert (run.status, run.answer) == ("completed", "12")
    assert len(server.bodies) == 4


async def test_a_server_that_refuses_its_thoughts_does_not_get_them() -> None:
    """R14 (Q43): what a server sends and does not take back is left out from then on."""

    def handle(body: Mapping[str, Any]) -> Answer:
        if any("reasoning_content" in message for message in body["messages"]):
            return refuse_chat("property 'reasoning_content' is unsupported")
        said = think(body)
        return write_chat(Said(said.text, said.calls, thoughts="I think about it."))

    run, server = await play(handle)
    assert (run.status, run.answer) == ("completed", "12")
    assert len(server.bodies) == 4
