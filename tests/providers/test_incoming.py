"""Replies as servers of OpenAI's protocol really send them, and refusals of all providers."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from donewhen import Agent
from tests.kit.providers.forms import (
    FORMS,
    USAGE,
    Said,
    chat_call,
    chat_chunk,
    event,
    names_in,
    own_chat_model,
    told,
    write_chat,
)
from tests.kit.providers.server import Answer, ProviderServer

STEP = {"content": "Order lamps if there are enough", "done_when": ["they are ordered"], "tools": ["look", "order"]}
SHOWN = {"sentences": [{"n": 1, "shown": "yes", "by": ["s1.result"]}], "goal": {"met": "yes", "missing": []}}
SETTINGS = {"model_retries": 0}
ORDERS: list[tuple[str, int]] = []


def look(item: str) -> str:
    """Return the stock of an item."""
    return f"{item}: 12 in stock"


def order(item: str, count: int) -> str:
    """Order an item."""
    ORDERS.append((item, count))
    return f"ordered {count} {item}, order A-17"


def think(body: Mapping[str, Any]) -> Said:
    """Look twice at once, order, and finish."""
    names, seen = names_in(body), told(body)
    if "audit" in names:
        return Said(calls=[("audit", SHOWN)])
    if "submit_plan" in names:
        return Said(calls=[("submit_plan", {"title": "Order", "steps": [{**STEP, "content": "Order 3 lamp"}]})])
    if "finish_step" not in names:
        return Said("3 lamps were ordered.")
    if "[s1.3] order ok" in seen:
        proof = {"criterion": 1, "met": True, "evidence": [{"observation": "s1.3", "quote": "ordered 3 lamp"}]}
        return Said(calls=[("finish_step", {"result": "3 lamps were ordered. 😀", "goal_check": [proof]})])
    if "[s1.2] look ok" in seen:
        return Said(calls=[("order", {"item": "lamp", "count": 3})])
    return Said("I look.", [("look", {"item": "lamp"}), ("look", {"item": "desk"})])


def units(text: str) -> list[str]:
    """A text in single units of UTF-16, so that an emoji is halved."""
    written = text.encode("utf-16-le")
    return [written[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(written), 2)]


def _whole(said: Said, **message: Any) -> dict[str, Any]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(said.calls)
    ]
    spoken = {"role": "assistant", "content": said.text or None, **({"tool_calls": calls} if calls else {}), **message}
    choice = {"index": 0, "message": spoken, "finish_reason": "tool_calls" if calls else "stop"}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": USAGE}


def _without_index(delta: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": [{k: v for k, v in delta["tool_calls"][0].items() if k != "index"}]}


def _pieces(form: str, said: Said, turn: int) -> Iterable[Mapping[str, Any]]:
    """The deltas of a reply in one of the odd forms."""
    if said.text:
        yield {"content": [{"type": "text", "text": said.text}] if form == "content in parts" else said.text}
    for n, (name, arguments) in enumerate(said.calls):
        raw, id = json.dumps(arguments, ensure_ascii=False), f"c{turn}_{n}"
        if form == "pieces without index":
            yield from map(
                _without_index, (chat_call(n, name, "", id), chat_call(n, None, raw[:9]), chat_call(n, None, raw[9:]))
            )
        elif form == "arguments as an object":
            yield chat_call(n, name, arguments, id)
        elif form == "{} first, then the arguments":
            yield from (chat_call(n, name, "{}", id), chat_call(n, None, raw))
        elif form == "the name in each piece":
            yield from (chat_call(n, name, raw[:9], id), chat_call(n, name, raw[9:], id))
        elif form == "index 0 and no id for each call":
            yield chat_call(0, name, raw)
        elif form == "one id for all calls":
            yield chat_call(n, name, raw, "call_0")
        elif form == "a call twice":
            yield from (chat_call(2 * n, name, raw, id), chat_call(2 * n + 1, name, raw, id))
        elif form == "halved characters":
            yield chat_call(n, name, "", id)
            yield from (chat_call(n, None, unit) for unit in units(raw))
        elif form == "the old function_call" and len(said.calls) == 1:
            yield {"function_call": {"name": name, "arguments": raw}}
        elif form == "no type, a number as id":
            call: dict[str, Any] = chat_call(n, name, raw)["tool_calls"][0]
            yield {"tool_calls": [{**call, "id": 100 * turn + n}]}
        else:
            yield chat_call(n, name, raw, id)


FORMS_OF_STREAMS = [
    "plain",
    "pieces without index",
    "arguments as an object",
    "{} first, then the arguments",
    "the name in each piece",
    "index 0 and no id for each call",
    "one id for all calls",
    "a call twice",
    "halved characters",
    "the old function_call",
    "no type, a number as id",
    "content in parts",
    "no role, empty reason",
    "JSON instead of a stream",
    "a chunk on each line",
    "lines with CRLF, comments and names",
]


@pytest.mark.parametrize("form", FORMS_OF_STREAMS)
async def test_a_reply_is_read_in_every_form(form: str) -> None:
    """R14 (Q40, Q42, Q45): whatever the form, exactly the calls that were meant are made, each once."""
    turns = iter(range(100))

    def handle(body: Mapping[str, Any]) -> Answer:
        said, turn = think(body), next(turns)
        if form == "JSON instead of a stream":
            return Answer.of_json(_whole(said))
        end, reason = ("tool_calls" if said.calls else "stop"), "" if form == "no role, empty reason" else None
        chunks = [*(chat_chunk(piece, reason) for piece in _pieces(form, said, turn)), chat_chunk({}, end)]
        if form == "a chunk on each line":
            return Answer([f"{json.dumps(chunk)}\n".encode() for chunk in chunks], "application/x-ndjson")
        if form == "lines with CRLF, comments and names":
            lines = [
                f": ping\r\nevent: chunk\r\nid: 1\r\ndata:{json.dumps(chunk)}\r\n\r\n".encode() for chunk in chunks
            ]
            return Answer([b"".join(lines)[at : at + 7] for at in range(0, sum(map(len, lines)), 7)])
        return Answer([*map(event, chunks), event({**chat_chunk(), "choices": [], "usage": USAGE}), event("[DONE]")])

    ORDERS.clear()
    with ProviderServer(handle) as server:
        more: Any = {"effects": {"look": "read", "order": "write"}, "settings": SETTINGS, "storage": "memory:"}
        async with Agent(own_chat_model(server.url), [look, order], **more) as agent:
            run = await agent.start("Order 3 lamps if there are enough")
            while run.status == "waiting":
                run = await agent.resume(run, "approve")
    assert (run.status, run.answer, ORDERS) == ("completed", "3 lamps were ordered. 😀", [("lamp", 3)])
    assert len(server.bodies) == 5


REPORTS = {
    "after the end": [None, None, 4],
    "in every chunk, rising": [1, 2, 4],
    "on the last choice and after it": [None, 4, 4],
    "in the choice": [None, "choice", None],
    "falling": [4, 2, 1],
}


@pytest.mark.parametrize("kind", REPORTS)
async def test_the_largest_report_of_usage_counts(kind: str) -> None:
    """Q41: usage so far is not added up; what a reply cost is what its largest report says."""
    first, second, third = REPORTS[kind]

    def report(chunk: dict[str, Any], written: Any) -> bytes:
        usage = {"prompt_tokens": 100, "completion_tokens": 4 if written == "choice" else written}
        if written == "choice":  # Moonshot's place
            chunk["choices"][0]["usage"] = usage
        return event({**chunk, **({"usage": usage} if isinstance(written, int) else {})})

    last = {**chat_chunk(), "choices": []}
    pieces = [report(chat_chunk({"content": "Hello."}), first), report(chat_chunk({}, "stop"), second)]
    answer = Answer([*pieces, report(last, third), event("[DONE]")])
    with ProviderServer(lambda _: answer) as server:
        async with Agent(own_chat_model(server.url), storage="memory:", settings=SETTINGS) as agent:  # type: ignore[arg-type]
            run = await agent.start("Hi")
    assert (run.spent["input_tokens"], run.spent["output_tokens"]) == (100, 4)


BLOCKED = event(
    {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
    }
)
NO = "I can't help with that."
REFUSALS = {
    "OpenAI chat": (FORMS["OpenAI chat"].write(Said(refusal=NO)), NO),
    "OpenAI chat, filter": (FORMS["OpenAI chat"].write(Said(end="content_filter")), "content_filter"),
    "OpenAI Responses": (FORMS["OpenAI Responses"].write(Said(refusal=NO)), NO),
    "Anthropic": (FORMS["Anthropic"].write(Said("I will", end="refusal")), "refusal"),
    "Google, reply": (FORMS["Google"].write(Said(end="SAFETY")), "SAFETY"),
    "Google, prompt": (Answer([BLOCKED]), "PROHIBITED_CONTENT"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refusal_is_the_answer_after_one_request(case: str) -> None:
    """Q45: the words of the refusal are shown, or that the provider's filter stopped it, and nothing is paid twice."""
    answer, words = REFUSALS[case]
    form = FORMS[case.partition(",")[0]]
    with ProviderServer(lambda _: answer) as server:
        async with Agent(form.model(server.url), storage="memory:", settings=SETTINGS) as agent:  # type: ignore[arg-type]
            run = await agent.start("Tell me how")
    assert len(server.bodies) == 1
    assert run.outcome is not None
    assert (run.status, run.outcome["code"]) == ("failed", "declined")
    assert (run.answer == NO) if words == NO else (words in run.answer)


async def test_a_refusal_in_a_step_is_the_reason_why_it_failed() -> None:
    """Q45: the person reads the words of the model, and no correction is paid for."""

    def handle(body: Mapping[str, Any]) -> Answer:
        return write_chat(think(body) if "submit_plan" in names_in(body) else Said(refusal=NO))

    settings: Any = {**SETTINGS, "confirm": "never", "on_failure": "deliver"}
    with ProviderServer(handle) as server:
        more: Any = {"effects": {"look": "read", "order": "write"}, "settings": settings, "storage": "memory:"}
        async with Agent(own_chat_model(server.url), [look, order], **more) as agent:
            run = await agent.start("Order lamps")
    assert NO in run.answer
    assert len(server.bodies) == 2
