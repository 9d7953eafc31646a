"""Whether a reply is whole: what each provider says where one ends, and what follows if it says anything else."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage

from donewhen import Agent
from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.graph.llm.endings import ending_of
from donewhen.state.settings import Settings
from tests.kit.providers.forms import (
    CUT,
    FORMS,
    Said,
    chat_call,
    chat_chunk,
    chat_model,
    event,
    names_in,
    told,
    write_chat,
)
from tests.kit.providers.server import Answer, Handler, ProviderServer

HALF = "The capital of Australia is Canberra. Do not wire the deposit before the"
CHAT = {
    "whole": ["stop", "STOP", "tool_calls", "function_call", "end_turn", "eos", "eos_token", "stop_sequence", "normal"],
    "limit": ["length", "LENGTH", "model_length", "max_tokens"],
    "filtered": ["content_filter", "content_filter: SAFETY", "sensitive", "refusal"],
    "window": ["model_context_window_exceeded"],
    "broken": ["error", "abort", "network_error", "insufficient_system_resource", "whatever", CUT],
}
ENDS = {
    "OpenAI chat": CHAT,
    "OpenRouter": {"whole": ["stop", "tool_calls"], "limit": ["length"], "broken": ["error", "unknown", CUT]},
    "OpenAI Responses": {
        "whole": ["completed"], "limit": ["max_output_tokens"], "filtered": ["content_filter"], "broken": [CUT],
    },
    "Anthropic": {
        "whole": ["end_turn", "tool_use", "stop_sequence"], "limit": ["max_tokens"], "filtered": ["refusal"],
        "window": ["model_context_window_exceeded"], "broken": ["pause_turn", CUT],
    },
    "Google": {
        "whole": ["STOP"], "limit": ["MAX_TOKENS"],
        "filtered": ["SAFETY", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII"],
        "broken": ["RECITATION", "MALFORMED_FUNCTION_CALL", "LANGUAGE", "OTHER", CUT],
    },
    "Ollama": {"whole": ["stop"], "limit": ["length"], "broken": ["unload", CUT]},
}  # fmt: skip
CODES = {"filtered": "content_filter", "window": "context_too_long", "broken": "connection"}


async def asked(model: BaseChatModel, deps: Deps | None = None, **settings: Any) -> ModelReply:
    """The reply to one question, without the seconds between attempts."""
    deps = deps or Deps(lambda *_: model, adapter=Adapter(first_wait=0))
    given = Settings(**{"model_seconds": 5, "model_retries": 1, **settings})
    return await ask(deps, given, ModelRequest("triage", [HumanMessage("What is the capital of Australia?")]))


ROWS = [(name, kind, end) for name, kinds in ENDS.items() for kind, ends in kinds.items() for end in ends]


@pytest.mark.parametrize(("name", "kind", "end"), ROWS)
async def test_only_a_known_end_makes_a_reply_whole(name: str, kind: str, end: str) -> None:
    """R13 (Q09): of each provider, a reply counts as whole only if it ends as it does there; one that broke off is
    asked for again, and one that a filter stopped is not."""
    form = FORMS[name]
    with ProviderServer(lambda _: form.write(Said(HALF, end=end))) as server:
        got = await asked(form.model(server.url))
    if kind in ("whole", "limit"):
        assert got.message is not None
        assert got.message.text == HALF
        assert got.spent["model_calls"] <= (1 if kind == "whole" else 2)  # once more if the limit is the server's own
        return
    assert got.error is not None
    assert got.error.code == CODES[kind]
    assert len(server.bodies) == got.spent["model_calls"] == (2 if kind == "broken" else 1)


RECORDED = {
    "Bedrock Converse": ("langchain_aws", "ChatBedrockConverse", {
        "whole": [{"stopReason": "end_turn"}, {"stopReason": "tool_use"}, {"stopReason": "stop_sequence"}],
        "limit": [{"stopReason": "max_tokens"}],
        "filtered": [{"stopReason": "guardrail_intervened"}, {"stopReason": "content_filtered"}],
        "window": [{"stopReason": "model_context_window_exceeded"}],
        "broken": [{"stopReason": "malformed_model_output"}, {"stopReason": "malformed_tool_use"}],
    }),
    "Mistral": ("langchain_mistralai", "ChatMistralAI", {
        "whole": [{"finish_reason": "stop"}, {"finish_reason": "tool_calls"}],
        "limit": [{"finish_reason": "length"}, {"finish_reason": "model_length"}],
        "broken": [{"finish_reason": "error"}, {}],
    }),
    "Groq": ("langchain_groq", "ChatGroq", {
        "whole": [{"finish_reason": "stop"}, {"finish_reason": "tool_calls"}, {"finish_reason": "function_call"}],
        "limit": [{"finish_reason": "length"}],
        "broken": [{}],
    }),
    "Cohere": ("langchain_cohere", "ChatCohere", {
        "whole": [{"finish_reason": "COMPLETE"}, {"finish_reason": "TOOL_CALL"}, {}],
        "limit": [{"finish_reason": "MAX_TOKENS"}],
        "broken": [{"finish_reason": "ERROR"}, {"finish_reason": "TIMEOUT"}],
    }),
    "a class of the user's": ("mine", "Mine", {"whole": [{}, {"finish_reason": "stop"}]}),
    "an old Ollama": ("langchain_ollama", "ChatOllama", {"whole": [{"done": True}], "broken": [{}]}),
    "a blocked prompt": ("langchain_google_genai", "ChatGoogleGenerativeAI", {
        "filtered": [{"prompt_feedback": {"block_reason": "PROHIBITED_CONTENT"}}],
    }),
}  # fmt: skip
KINDS = [(name, kind, said) for name, (*_, kinds) in RECORDED.items() for kind, ends in kinds.items() for said in ends]


@pytest.mark.parametrize(("name", "kind", "said"), KINDS)
def test_ends_of_packages_that_are_not_installed(name: str, kind: str, said: dict[str, Any]) -> None:
    """R13 (Q09): the metadata that other packages of LangChain give a reply, as recorded from them."""
    module, title, _ = RECORDED[name]
    model = type(title, (), {"__module__": f"{module}.chat_models"})()
    assert ending_of(model, AIMessage(HALF, response_metadata=said)).kind == kind


def nameless(done: bool = True) -> Answer:
    """A reply of a server that gives no reason for the end."""
    said = [event(chat_chunk({"content": "It is Canberra."}))]
    return Answer([*said, event("[DONE]")] if done else said)


async def test_a_server_that_never_names_the_end_is_understood() -> None:
    """R13 (Q09): a stream that the server declares over, without a reason, counts once it is seen that it gives none;
    one that does give reasons broke off without one, and one that just stops always did."""
    answers: Handler = lambda _: nameless()  # noqa: E731
    with ProviderServer(lambda body: answers(body)) as server:
        model = chat_model(server.url)
        deps = Deps(lambda *_: model, adapter=Adapter(first_wait=0))
        assert [(await asked(model, deps)).spent["model_calls"] for _ in range(3)] == [2, 1, 1]
        answers = lambda _: nameless(done=False)  # noqa: E731
        assert (await asked(model, deps)).error
        answers = lambda _: write_chat(Said("It is Canberra."))  # noqa: E731
        assert (await asked(model, deps)).message
        answers = lambda _: nameless()  # noqa: E731
        assert (await asked(model, deps)).error


async def test_a_whole_answer_needs_no_reason() -> None:
    """R13 (Q09): a model that does not stream, and a server that answers with JSON as a whole, may give none."""
    message = {"role": "assistant", "content": "It is Canberra."}
    whole = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    body = {**whole, "choices": [{"index": 0, "message": message, "finish_reason": None}]}
    with ProviderServer(lambda _: Answer.of_json(body)) as server:
        for streams in (True, False):
            got = await asked(chat_model(server.url, disable_streaming=not streams))
            assert got.message is not None
            assert (got.message.text, got.spent["model_calls"]) == ("It is Canberra.", 1)


@pytest.mark.parametrize("end", ["length", "content_filter", CUT])
async def test_an_answer_that_was_cut_off_is_not_delivered(end: str) -> None:
    """R13, D06 (Q09): the delivery is asked for again, also where it reached its limit; what is whole is delivered."""
    ends = iter([end, "stop"])

    def think(body: Any) -> Said:
        names = names_in(body)
        if "submit_plan" in names:
            steps = [{"content": f"Count {what}", "done_when": [f"{what} counted"]} for what in ("lamps", "desks")]
            return Said(calls=[("submit_plan", {"title": "Count", "steps": steps})])
        if "finish_step" in names:
            return Said(calls=[("finish_step", {"result": "12", "goal_check": [
                {"criterion": 1, "met": True, "evidence": []}]})])  # fmt: skip
        reason = next(ends)
        return Said("There are 12 of each, but do not" if reason == end else "There are 12 of each.", end=reason)

    settings = {"verification": "claimed", "confirm": "never"}
    with ProviderServer(FORMS["OpenAI chat"].serve(think)) as server:
        model = chat_model(server.url)
        async with Agent(model, storage="memory:", settings=settings) as agent:  # type: ignore[arg-type]
            run = await agent.start("How many lamps and desks?")
    assert "do not" not in run.answer
    if end == "content_filter":  # it would get the same; the summary of the runtime is whole
        assert "Count lamps — 12" in run.answer
    else:
        assert run.answer.startswith("There are 12 of each.")


async def test_two_steps_whose_replies_break_off_or_repeat_themselves_pay_once_each() -> None:
    """Q09, Q06, X30: of two steps at once, what broke off is not acted on, and a call that the server sends twice under
    the id that both steps have is one call in each.
    """
    paid, requests = list[str](), Counter[str]()

    def pay(to: str) -> str:
        """Pay somebody."""
        paid.append(to)
        return f"paid {to}"

    def work(body: Any) -> Answer:
        to = next(name for name in ("ann", "bob") if f"Pay {name}." in told(body))
        requests[to] += 1
        if seen := re.findall(r"\[(s[12]\.\d+)\] pay ok", told(body)):
            cited = {"criterion": 1, "met": True, "evidence": [{"observation": seen[-1], "quote": f"paid {to}"}]}
            return write_chat(Said(calls=[("finish_step", {"result": "Paid.", "goal_check": [cited]})]))
        sent = [event(chat_chunk(chat_call(n, "pay", json.dumps({"to": to}), "call_0"))) for n in (0, 1)]
        end = [] if requests[to] == 1 else [event(chat_chunk({}, "tool_calls")), event("[DONE]")]
        return Answer([*sent, *end])

    def think(body: Any) -> Answer:
        names = names_in(body)
        if "submit_plan" in names:
            steps = [
                {"content": f"Pay {to}.", "done_when": [f"{to} is paid"], "tools": ["pay"]} for to in ("ann", "bob")
            ]
            return write_chat(Said(calls=[("submit_plan", {"title": "Pay", "steps": steps})]))
        return work(body) if "finish_step" in names else write_chat(Said("Both are paid."))

    settings = {"verification": "grounded", "confirm": "never", "approvals": "never"}
    with ProviderServer(think) as server:
        async with Agent(chat_model(server.url), [pay], storage="memory:", settings=settings) as agent:
            run = await agent.start("Pay ann and bob")
    assert run.status == "completed", run
    assert sorted(paid) == ["ann", "bob"]
    assert requests == {"ann": 3, "bob": 3}
