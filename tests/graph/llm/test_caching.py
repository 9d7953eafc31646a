"""Prompts are marked for the caches of providers in each package's own request, and reads and writes are priced."""

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any

import boto3
import httpx
import pytest
from botocore.awsrequest import AWSResponse
from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrock, ChatBedrockConverse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from urllib3 import HTTPResponse

from benchmarks import caching
from donewhen import Agent, AgentOptions
from donewhen.agent.openai_chat import OpenAIChat
from donewhen.agent.prices import Prices
from donewhen.graph.context import Deps
from donewhen.graph.llm.adapter import Adapter
from donewhen.graph.llm.ask import ModelReply, ModelRequest, ask
from donewhen.state.ledger import CACHE_WRITES
from donewhen.state.reading.decisions import EXECUTE, TRIAGE, control_tools
from donewhen.state.settings import Settings
from tests.kit.anthropic_server import AnthropicServer, marks_of, tool_use

THREAD = "somebody@example.org/mail-7"


def call(number: int) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look", "args": {"n": number}, "id": f"c{number}"}])


ROUNDS: list[BaseMessage] = [
    SystemMessage("You carry out one step."),
    HumanMessage("Look at all pages."),
    call(1),
    ToolMessage("page 1", tool_call_id="c1"),
    call(2),
    ToolMessage("page 2", tool_call_id="c2"),
]
ENDING = HumanMessage("(Rounds left in this step, this one included: 3.)")


def claude(server: AnthropicServer) -> ChatAnthropic:
    return ChatAnthropic(model="claude-sonnet-4-6", base_url=server.base_url, api_key="test", max_tokens=100)  # type: ignore[call-arg,arg-type]


async def ask_in_step(model: BaseChatModel, messages: Sequence[BaseMessage], **more: Any) -> ModelReply:
    deps = Deps(lambda *_: model, prices=Prices().cost, adapter=Adapter(first_wait=0))
    question = ModelRequest("execute", messages, control_tools(EXECUTE), thread=THREAD, **more)
    return await ask(deps, Settings(model_seconds=5, model_retries=0), question)


def finish(body: Mapping[str, Any]) -> dict[str, Any]:
    return tool_use("t1", "give_up", {"reason": "no pages", "kind": "failed"})


def unmarked(value: Any) -> Any:
    """The same without marks."""
    if isinstance(value, list):
        return [unmarked(item) for item in value if item != {"cachePoint": {"type": "default"}}]
    if not isinstance(value, dict):
        return value
    return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}


async def test_a_claude_request_is_marked_where_the_next_one_begins_alike() -> None:
    """N43: behind tools and instructions, at the end of the request before, and at the end of what lasts."""
    with AnthropicServer(finish) as server:
        reply = await ask_in_step(claude(server), [*ROUNDS, ENDING], passing=1)
        await ask_in_step(claude(server), ROUNDS[:4])
    assert reply.error is None
    body, before = server.bodies
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    results = [block for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results if "cache_control" in block] == ["c1", "c2"]
    assert len(marks_of(body)) == 3
    assert "cache_control" not in body["messages"][-1]["content"][-1]
    assert unmarked(body["messages"])[: len(before["messages"])] == unmarked(before["messages"])


async def test_a_request_that_stands_alone_caches_its_instructions_only() -> None:
    """N43: writing to a cache costs more than not caching, so what nothing reads again is not written."""
    with AnthropicServer(finish) as server:
        deps = Deps(lambda *_: claude(server), adapter=Adapter(first_wait=0))
        await ask(deps, Settings(), ModelRequest("triage", ROUNDS[:2], control_tools(TRIAGE)))
        await ask(deps, Settings(), ModelRequest("triage", ROUNDS, control_tools(TRIAGE)))
    assert [len(marks_of(body)) for body in server.bodies] == [1, 3]


async def test_marks_that_a_server_refuses_are_left_out() -> None:
    """N43, R01: the request is repeated without them at once, and later ones have none."""
    with AnthropicServer(finish, refuses="cache_control: extra inputs are not permitted") as server:
        model, adapter = claude(server), Adapter(first_wait=0)
        for _ in range(2):
            question = ModelRequest("execute", ROUNDS, control_tools(EXECUTE))
            reply = await ask(Deps(lambda *_: model, adapter=adapter), Settings(), question)
            assert reply.error is None
    assert [len(marks_of(body)) for body in server.bodies] == [0, 0]


async def test_cache_reads_and_writes_are_priced() -> None:
    """N43: a write costs a quarter more than other input, a read a tenth of it."""
    long = [SystemMessage("instructions " * 1_000), *ROUNDS[1:]]
    with AnthropicServer(finish) as server:
        written, read = [(await ask_in_step(claude(server), long)).spent for _ in range(2)]
    stored = written[CACHE_WRITES]
    assert stored > 3_000
    assert (written["cached_tokens"], read["cached_tokens"]) == (0, stored)
    assert CACHE_WRITES not in read
    fresh = written["input_tokens"] - stored
    for spent, rate in ((written, 3.75), (read, 0.3)):
        expected = (fresh * 3 + stored * rate + spent["output_tokens"] * 15) / 1_000_000
        assert spent["cost_usd"] == pytest.approx(expected)


def test_own_prices_have_a_price_of_writes() -> None:
    """N43: without one, a quarter more than input, as providers that charge for writes do."""
    used = {"input_tokens": 1_000_000, "cached_tokens": 500_000, CACHE_WRITES: 400_000, "output_tokens": 0}
    assert Prices({"m": {"input": 2, "output": 0, "cached": 0.2}}).cost("m", used) == pytest.approx(0.2 + 0.1 + 1.0)
    rates = {"input": 2, "output": 0, "cached": 0.2, "cache_write": 4}
    assert Prices({"m": rates}).cost("m", used) == pytest.approx(0.2 + 0.1 + 1.6)
    assert Prices({"m": {"input": 2, "output": 0}}).cost("m", {**used, CACHE_WRITES: 9e9}) == pytest.approx(2.25)


async def test_twenty_rounds_are_read_from_the_cache() -> None:
    """N43: a run on a server that counts as Anthropic does reads at least 85 % of its input from the cache."""
    with AnthropicServer(caching.play) as server:
        spent = await caching.run(server)
    assert sum(map(caching.is_step, server.bodies)) == caching.ROUNDS
    assert server.share_read(of=caching.is_step) >= 0.9
    assert server.share_read() >= 0.85
    assert spent["cached_tokens"] / spent["input_tokens"] >= 0.85


def event_stream(*events: tuple[str, Mapping[str, Any]]) -> bytes:
    """Encode events as AWS streams them: lengths, headers and payload, each with a checksum."""

    def frame(kind: str, payload: Mapping[str, Any]) -> bytes:
        names = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
        headers = b"".join(
            struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
            for name, value in names.items()
        )
        body = json.dumps(payload).encode()
        head = struct.pack(">II", len(headers) + len(body) + 16, len(headers))
        framed = head + struct.pack(">I", zlib.crc32(head)) + headers + body
        return framed + struct.pack(">I", zlib.crc32(framed))

    return b"".join(frame(*event) for event in events)


class Bedrock:
    """Answers the requests of a boto3 client in its place on the wire; `bodies` are what would have been sent."""

    def __init__(self, *events: tuple[str, Mapping[str, Any]]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._stream = event_stream(*events)
        keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        client = boto3.client("bedrock-runtime", **keys)  # type: ignore[call-overload]
        client.meta.events.register("before-send.bedrock-runtime", self._answer)
        self.given: dict[str, Any] = {**keys, "client": client, "bedrock_client": client}

    def _answer(self, request: Any, **_: Any) -> AWSResponse:
        self.bodies.append(json.loads(request.body))
        raw = HTTPResponse(BytesIO(self._stream), preload_content=False)
        return AWSResponse(request.url, 200, {"content-type": "application/vnd.amazon.eventstream"}, raw)


CLAUDE = "us.anthropic.claude-sonnet-4-6"
INVOKED = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 10, "outputTokenCount": 5}}
INVOKED["amazon-bedrock-invocationMetrics"] |= {"cacheReadInputTokenCount": 2_000, "cacheWriteInputTokenCount": 100}


def invoked(event: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return "chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()}


async def test_claude_by_invoke_model_of_bedrock_is_marked() -> None:
    """N43: the mark stands on the result as a whole, and a result has the same form without one."""
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}}
    aws = Bedrock(invoked(delta), invoked({"type": "message_stop", **INVOKED}))
    model = ChatBedrock(model=CLAUDE, **aws.given)
    reply = await ask_in_step(model, [*ROUNDS, ENDING], passing=1)
    assert reply.error is None
    assert (reply.spent["cached_tokens"], reply.spent[CACHE_WRITES]) == (2_000, 100)
    await ask_in_step(model, ROUNDS[:4])
    body, before = aws.bodies
    assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
    results = [block for message in body["messages"] for block in message["content"] if block["type"] == "tool_result"]
    assert [block["tool_use_id"] for block in results if "cache_control" in block] == ["c1", "c2"]
    assert len(marks_of(body)) == 3
    assert unmarked(body["messages"])[: len(before["messages"])] == unmarked(before["messages"])


@pytest.mark.parametrize("make", [ChatBedrockConverse, partial(ChatBedrock, beta_use_converse_api=True)])
async def test_claude_by_converse_of_bedrock_is_marked(make: Any) -> None:
    """N43: a mark is a block of its own, behind the instructions and in the results of the last two rounds."""
    usage = {"inputTokens": 10, "outputTokens": 5, "totalTokens": 15}
    said = {"contentBlockIndex": 0, "delta": {"text": "Hello."}}
    ends = [("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})]
    aws = Bedrock(("messageStart", {"role": "assistant"}), ("contentBlockDelta", said), *ends)
    model = make(model=CLAUDE, **aws.given)
    assert (await ask_in_step(model, [*ROUNDS, ENDING], passing=1)).error is None
    (body,) = aws.bodies
    point = {"cachePoint": {"type": "default"}}
    assert body["system"][-1] == point
    marked = [message for message in body["messages"] if point in message["content"]]
    assert [message["content"][0]["toolResult"]["toolUseId"] for message in marked] == ["c1", "c2"]


@pytest.mark.parametrize("make", [ChatBedrock, ChatBedrockConverse])
async def test_models_of_bedrock_that_cache_by_themselves_get_no_marks(make: Any) -> None:
    """N43: Bedrock refuses them for others."""
    aws = Bedrock()
    await ask_in_step(make(model="us.amazon.nova-pro-v1:0", **aws.given), ROUNDS)
    assert "cache" not in json.dumps(aws.bodies[0])


def play_three_steps(body: Mapping[str, Any]) -> dict[str, Any]:
    """Reply as a model that plans three steps, each of which looks once."""
    offered = {tool["name"] for tool in body["tools"]}
    if "submit_plan" in offered:
        steps = [{"content": f"Look at page {n}", "done_when": [f"page {n} was seen"]} for n in (1, 2, 3)]
        return tool_use("p1", "submit_plan", {"title": "Look", "steps": steps})
    if "deliver" in offered:
        return tool_use("d1", "deliver", {"text": "All pages were seen.", "goal_check": []})
    step = next(n for n in (1, 2, 3) if f'<step id="s{n}"' in json.dumps(body["messages"][0]).replace("\\", ""))
    if len(body["messages"]) == 1:
        return tool_use(f"c{step}", "look", {"page": str(step)})
    proof = {"criterion": 1, "met": True, "evidence": [{"observation": f"s{step}.1"}]}
    return tool_use(f"f{step}", "finish_step", {"result": f"page {step} was seen", "goal_check": [proof]})


async def test_a_step_reads_what_the_step_before_it_was_told_as_well() -> None:
    """N43: instructions, background and goal are cached once for all steps of a run."""
    context = "Prices are in euro, and holidays are those of Hamburg. " * 140
    settings = Settings(confirm="never", verification="grounded", mode="plan")
    with AnthropicServer(play_three_steps) as server:
        agent = Agent(
            claude(server),
            [caching.look],
            effects={"look": "read"},
            storage="memory:",
            options=AgentOptions(context=context),
        )
        assert (await agent.start("Look at all pages", settings=settings)).status == "completed"
    firsts = [n for n, body in enumerate(server.bodies) if caching.is_step(body) and len(body["messages"]) == 1]
    first, second, _ = (server.usages[n] for n in firsts)  # the last step has one tool less
    assert first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > len(context) / 4
    assert second["cache_creation_input_tokens"] < len(context) / 20
    assert max(len(marks_of(body)) for body in server.bodies) == 4


class Recorder(httpx.AsyncBaseTransport):
    """Records requests, and answers the first `refusals` of them with an error of OpenAI."""

    def __init__(self, refusals: int = 0) -> None:
        self.requests: list[httpx.Request] = []
        self._refusals = refusals

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if len(self.requests) <= self._refusals:
            error = {"message": "Unrecognized request argument supplied: prompt_cache_key"}
            return httpx.Response(400, json={"error": error})
        chunk = {"id": "r", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}
        text = f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\ndata: [DONE]\n\n"
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, text=text)


async def send(base_url: str | None, transport: Recorder, *, kind: type[ChatOpenAI] = ChatOpenAI, **more: Any) -> None:
    async with httpx.AsyncClient(transport=transport) as client:
        model = kind(
            base_url=base_url,
            api_key="test",  # type: ignore[arg-type]
            http_async_client=client,
            use_responses_api=False,
            **{"model": "m", **more},
        )
        for _ in range(2):
            assert (await ask_in_step(model, ROUNDS)).error is None


@pytest.mark.parametrize(
    ("base_url", "header"),
    [
        (None, None),
        ("https://mine.openai.azure.com/openai/v1", None),
        ("https://api.x.ai/v1", "x-grok-conv-id"),
        ("https://api.fireworks.ai/inference/v1", "x-session-affinity"),
    ],
)
async def test_requests_of_a_thread_share_a_key(base_url: str | None, header: str | None) -> None:
    """N43: OpenAI, and servers that route as it does, get one key per thread, in which nothing of its id is read."""
    transport = Recorder()
    await send(base_url, transport)
    first, second = (json.loads(request.content) for request in transport.requests)
    assert first["prompt_cache_key"] == second["prompt_cache_key"]
    assert 20 <= len(key := first["prompt_cache_key"]) <= 64
    assert not any(part in transport.requests[0].content.decode() for part in ("somebody", "mail-7"))
    assert [name for name in ("x-grok-conv-id", "x-session-affinity") if name in transport.requests[0].headers] == (
        [header] if header else []
    )
    assert header is None or transport.requests[0].headers[header] == key


async def test_a_key_is_neither_forced_on_a_server_nor_on_its_owner() -> None:
    """N43, R01: unknown servers get none, an owner's own key stays, and a server that refuses it is asked without."""
    transport = Recorder()
    await send("http://localhost:8000/v1", transport)
    assert not any(b"prompt_cache_key" in request.content for request in transport.requests)
    transport = Recorder()
    await send(None, transport, model_kwargs={"prompt_cache_key": "mine"})
    assert {json.loads(request.content)["prompt_cache_key"] for request in transport.requests} == {"mine"}
    transport = Recorder(refusals=1)
    await send(None, transport)
    assert ["prompt_cache_key" in json.loads(request.content) for request in transport.requests][:2] == [True, False]


@pytest.mark.parametrize(("kind", "places"), [(OpenAIChat, ["system", "tool", "tool"]), (ChatOpenAI, ["system"])])
async def test_claude_at_openrouter_is_marked(kind: type[ChatOpenAI], places: list[str]) -> None:
    """N43: on texts of OpenAI's protocol; other models there cache by themselves, and other servers get no marks.

    LangChain's own class takes them off the results of tools.
    """
    transport = Recorder()
    await send("https://openrouter.ai/api/v1", transport, kind=kind, model="anthropic/claude-sonnet-4.6")
    await send("https://openrouter.ai/api/v1", transport, kind=kind, model="openai/gpt-5")
    await send("https://example.org/v1", transport, kind=kind, model="anthropic/claude-sonnet-4.6")
    bodies = [json.loads(request.content)["messages"] for request in transport.requests[::2]]
    marked = [[one["role"] for one in messages if "cache_control" in json.dumps(one)] for messages in bodies]
    assert marked == [places, [], []]
    block = {"type": "text", "text": "page 2"}
    assert bodies[0][-1]["content"] in ([{**block, "cache_control": {"type": "ephemeral"}}], [block])
    assert all("prompt_cache_key" in json.loads(request.content) for request in transport.requests[:2])
