"""The wire forms of six providers: how each writes a reply, and what each refuses in a request.

The checks are those of the services, as their documentation and error messages state them; where a service only warns,
nothing is checked. `tests/providers` plays whole runs over them, with the classes of LangChain that users have.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jsonschema import Draft202012Validator
from langchain_core.language_models import BaseChatModel

from tests.kit.providers.server import Answer, Handler

SIGNATURE = base64.b64encode(b"SIGNATURE" * 4).decode()
"""What a provider signs its thoughts with."""
CUT = "(cut)"
"""The end of a stream that just ends."""


@dataclass(frozen=True)
class Said:
    """A reply: text, calls `(name, arguments)`, thoughts, and the provider's word for the end if not the usual one."""

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    thoughts: str = ""
    end: str = ""
    refusal: str = ""


class RefusedRequest(Exception):
    """A request that the service would refuse."""


@dataclass(frozen=True)
class Form:
    """One provider: its model in LangChain, its replies, what it refuses, and how it says so."""

    model: Callable[..., BaseChatModel]
    write: Callable[[Said], Answer]
    check: Callable[[Mapping[str, Any]], None]
    refuse: Callable[[str], Answer]

    def serve(self, think: Callable[[Mapping[str, Any]], Said]) -> Handler:
        """Return a handler that checks each request and answers as `think` says."""

        def handle(body: Mapping[str, Any]) -> Answer:
            try:
                self.check(body)
            except RefusedRequest as refused:
                return self.refuse(str(refused))
            return self.write(think(body))

        return handle


def names_in(body: Mapping[str, Any]) -> list[str]:
    """Return the names of the tools that a request offers, in any form; without any, those of its text."""
    found = []
    for tool in body.get("tools") or ():
        functions = tool.get("functionDeclarations") or [tool.get("function") or tool]
        found += [str(function["name"]) for function in functions if function.get("name")]
    return found or re.findall(r'\{"name": "(\w+)", "description"', "\n".join(_texts_in(body)))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(each)


def told(body: Mapping[str, Any]) -> str:
    """Return everything that a request says but its instructions and tools."""
    messages = body.get("messages") or body.get("input") or body.get("contents") or ()
    return json.dumps([m for m in messages if m.get("role") not in ("system", "developer")], ensure_ascii=False)


def event(data: Any, name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


def halves(text: str) -> tuple[str, str]:
    """Return a text in two pieces."""
    return text[: len(text) // 2], text[len(text) // 2 :]


_count = iter(range(10**9))
USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _demand(holds: Any, problem: str) -> None:
    if not holds:
        raise RefusedRequest(problem)


def _is_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, TypeError):
        return False


# OpenAI's chat completions -----------------------------------------------------------------------------------------


def chat_chunk(delta: Mapping[str, Any] | None = None, end: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk of OpenAI's chat completions."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": end}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        **more,
    }


def chat_call(index: int, name: str | None, arguments: Any, id: str | None = None, **more: Any) -> dict[str, Any]:
    """Return the delta of a call."""
    function = {**({} if name is None else {"name": name}), "arguments": arguments}
    return {
        "tool_calls": [{"index": index, **({"id": id, "type": "function"} if id else {}), "function": function, **more}]
    }


def write_chat(said: Said) -> Answer:
    """Write a reply as OpenAI's chat completions stream it."""
    pieces = [event(chat_chunk({"role": "assistant", "content": ""}))]
    if said.thoughts:
        pieces.append(event(chat_chunk({"reasoning_content": said.thoughts})))
    if said.refusal:
        pieces.append(event(chat_chunk({"refusal": said.refusal})))
    pieces += [event(chat_chunk({"content": piece})) for piece in halves(said.text) if piece]
    for index, (name, arguments) in enumerate(said.calls):
        pieces.append(event(chat_chunk(chat_call(index, name, "", f"call_{next(_count)}"))))
        pieces += [event(chat_chunk(chat_call(index, None, piece))) for piece in halves(json.dumps(arguments))]
    if said.end == CUT:
        return Answer(pieces)
    pieces.append(event(chat_chunk({}, said.end or ("tool_calls" if said.calls else "stop"))))
    return Answer([*pieces, event({**chat_chunk(), "choices": [], "usage": USAGE}), event("[DONE]")])


def write_openrouter(said: Said) -> Answer:
    """Write a reply as OpenRouter does for a model whose thoughts are encrypted."""
    answer = write_chat(said)
    detail = {"type": "reasoning.encrypted", "data": SIGNATURE, "id": "t1", "format": "google-gemini-v1", "index": 0}
    thought = event(chat_chunk({"role": "assistant", "content": "", "reasoning": None, "reasoning_details": [detail]}))
    return Answer([b": OPENROUTER PROCESSING\n\n", answer.pieces[0], thought, *answer.pieces[1:]])


def check_chat(body: Mapping[str, Any]) -> None:
    """Refuse what OpenAI's chat completions refuse: schemas, names, arguments, and calls without results."""
    for tool in body.get("tools") or ():
        _check_openai_schema(tool["function"])
    waiting: set[str] = set()
    for place, message in enumerate(body["messages"]):
        if message["role"] == "tool":
            _demand(message["tool_call_id"] in waiting, f"messages[{place}]: 'tool' must follow 'tool_calls'")
            waiting.discard(message["tool_call_id"])
            continue
        _demand(not waiting, f"messages[{place}]: tool_call_ids without a response: {sorted(waiting)}")
        calls = message.get("tool_calls") or ()
        for call in calls:
            _demand(
                _NAME.fullmatch(call["function"]["name"]), f"messages[{place}].tool_calls[0].function.name: no match"
            )
            _demand(_is_object(call["function"]["arguments"]), f"messages[{place}].tool_calls: arguments are no JSON")
        waiting = {call["id"] for call in calls}
        _demand(len(waiting) == len(calls), f"messages[{place}]: Duplicate value for 'tool_call_id'")
        _demand(calls or message.get("content") is not None, f"messages[{place}]: no content")
        json.dumps(message, ensure_ascii=False).encode()
    _demand(not waiting, f"tool_call_ids without a response: {sorted(waiting)}")


def _check_openai_schema(function: Mapping[str, Any]) -> None:
    """Refuse what OpenAI refuses in the definition of a tool."""
    schema, said = function.get("parameters") or {}, f"Invalid schema for function {function['name']!r}"
    _demand(_NAME.fullmatch(function["name"]), f"Invalid 'tools.function.name': {function['name']!r}")
    odd = {"oneOf", "anyOf", "allOf", "enum", "not"} & {*schema}
    _demand(not odd and schema.get("type") == "object", f"{said}: schema must have type 'object' and not have {odd}")
    for node in _nodes(schema):
        _demand(isinstance(node, Mapping), f"{said}: {node!r} is not of type 'object'")
        kinds = node.get("type") if isinstance(node.get("type"), list) else [node.get("type")]
        _demand("array" not in kinds or isinstance(node.get("items"), Mapping), f"{said}: array schema missing items.")
        _demand(node.get("enum") != [], f"{said}: [] should be non-empty")


def _nodes(schema: Any) -> Iterator[Any]:
    """Yield a schema and those within it."""
    yield schema
    if isinstance(schema, Mapping):
        named = [schema.get(key) or {} for key in ("properties", "$defs")]
        listed = [schema.get(key) or () for key in ("anyOf", "allOf", "oneOf")]
        below = [*(each for names in named for each in names.values()), *(each for items in listed for each in items)]
        for each in [*below, *([schema["items"]] if "items" in schema else [])]:
            yield from _nodes(each)


def _check_openrouter(body: Mapping[str, Any]) -> None:
    """Refuse as OpenRouter does for Gemini: of the replies that it made, each call needs its signature."""
    check_chat(body)
    for message in body["messages"]:
        for detail in message.get("reasoning_details") or ():
            _demand(detail.get("data") == SIGNATURE, "Corrupted thought signature.")
    made = [m for m in body["messages"] if any("call_" in c["id"] for c in m.get("tool_calls") or ())]
    _demand(not made or made[-1].get("reasoning_details"), "Function call is missing a thought_signature")


def refuse_chat(problem: str) -> Answer:
    """Refuse as OpenAI does."""
    return Answer.of_json({"error": {"message": problem, "type": "invalid_request_error", "code": None}}, 400)


def chat_model(url: str, **more: Any) -> BaseChatModel:
    """Return LangChain's model of OpenAI."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(**{"model": "m", "base_url": f"{url}/v1", "api_key": "k", **more})


def own_chat_model(url: str, **more: Any) -> BaseChatModel:
    """Return the model that the name `openai:m` gives."""
    from donewhen.agent.openai_chat import OpenAIChat

    return OpenAIChat(**{"model": "m", "base_url": f"{url}/v1", "api_key": "k", **more})


# OpenAI's Responses --------------------------------------------------------------------------------------------


def write_responses(said: Said) -> Answer:
    """Write a reply as OpenAI's Responses API streams it."""
    number, pieces, items = next(_count), list[bytes](), list[Any]()
    head = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5.4-mini",
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }

    def emit(kind: str, **facts: Any) -> None:
        pieces.append(event({"type": kind, "sequence_number": len(pieces), **facts}, kind))

    def item(begun: Mapping[str, Any], whole: Mapping[str, Any], *between: tuple[str, Mapping[str, Any]]) -> None:
        place = len(items)
        emit("response.output_item.added", output_index=place, item=begun)
        for kind, facts in between:
            emit(kind, item_id=begun["id"], output_index=place, **facts)
        emit("response.output_item.done", output_index=place, item=whole)
        items.append(whole)

    emit("response.created", response=head)
    thought = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": SIGNATURE}
    item(thought, thought)
    if said.text or said.refusal:
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
        deltas: list[tuple[str, Mapping[str, Any]]] = [
            ("response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []})
            for piece in halves(said.text)
            if piece
        ]
        part = {"type": "output_text", "text": said.text, "annotations": []}
        if said.refusal:
            part = {"type": "refusal", "refusal": said.refusal}
            deltas = [("response.refusal.done", {"content_index": 0, "refusal": said.refusal})]
        begun = {**message, "status": "in_progress", "content": []}
        if said.end == CUT:
            emit("response.output_item.added", output_index=1, item=begun)
            emit("response.output_text.delta", item_id=begun["id"], output_index=1, **deltas[0][1])
            return Answer(pieces)
        item(begun, {**message, "status": "completed", "content": [part]}, *deltas)
    for name, arguments in said.calls:
        call = {"id": f"fc_{next(_count)}", "type": "function_call", "call_id": f"call_{next(_count)}", "name": name}
        written = json.dumps(arguments)
        begun = {**call, "status": "in_progress", "arguments": ""}
        parts = [("response.function_call_arguments.delta", {"delta": piece}) for piece in halves(written)]
        item(begun, {**call, "status": "completed", "arguments": written}, *parts)
    tokens = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 5}}
    whole = {**head, "status": "completed", "output": items, "usage": {**tokens, **details}}
    if said.end in ("", "completed"):
        emit("response.completed", response=whole)
    else:
        emit(
            "response.incomplete",
            response={**whole, "status": "incomplete", "incomplete_details": {"reason": said.end}},
        )
    return Answer(pieces)


def _check_responses(body: Mapping[str, Any]) -> None:
    """Refuse what the Responses API refuses: calls and results that do not pair, foreign reasoning."""
    made, answered = list[str](), list[str]()
    for item in body["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            _demand(_NAME.fullmatch(item["name"]), f"Invalid 'input.name': {item['name']!r}")
            _demand(_is_object(item["arguments"]), "Invalid 'input.arguments': no JSON")
            _demand(str(item.get("id", "fc_")).startswith("fc_"), f"Invalid 'input.id': {item.get('id')!r}")
            made.append(item["call_id"])
        elif kind == "function_call_output":
            _demand(item["call_id"] in made, f"No tool call found for function call output {item['call_id']}")
            answered.append(item["call_id"])
        elif kind == "reasoning":
            _demand(
                item.get("encrypted_content", SIGNATURE) == SIGNATURE, "The encrypted content could not be verified"
            )
            _demand(str(item.get("id", "rs_")).startswith("rs_"), f"Invalid 'input.id': {item.get('id')!r}")
        else:
            _demand(kind == "message", f"Invalid value: {kind!r}")
            for part in item["content"] if isinstance(item["content"], list) else ():
                known = ("input_text", "output_text", "refusal", "input_image", "input_file")
                _demand(part["type"] in known, f"Invalid value: {part['type']!r}")
    _demand(len(set(made)) == len(made), "Duplicate call_id")
    _demand(sorted(made) == sorted(answered), f"No tool output found for {sorted({*made} - {*answered})}")


def _responses_model(url: str, **more: Any) -> BaseChatModel:
    return chat_model(url, **{"model": "gpt-5.4-mini", "use_responses_api": True, "store": False, **more})


# Anthropic -----------------------------------------------------------------------------------------------------


def write_anthropic(said: Said) -> Answer:
    """Write a reply as Anthropic's messages API streams it."""
    pieces, usage = list[bytes](), {"input_tokens": 100, "output_tokens": 1}
    head = {"id": f"msg_{next(_count)}", "type": "message", "role": "assistant", "model": "claude-x", "content": []}

    def emit(kind: str, **facts: Any) -> None:
        pieces.append(event({"type": kind, **facts}, kind))

    places = iter(range(10**9))

    def block(start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> None:
        place = next(places)
        emit("content_block_start", index=place, content_block=start)
        for delta in deltas:
            emit("content_block_delta", index=place, delta=delta)
        emit("content_block_stop", index=place)

    emit("message_start", message={**head, "stop_reason": None, "stop_sequence": None, "usage": usage})
    emit("ping")
    if said.thoughts:
        signed = {"type": "signature_delta", "signature": SIGNATURE}
        block({"type": "thinking", "thinking": "", "signature": ""},
              {"type": "thinking_delta", "thinking": said.thoughts}, signed)  # fmt: skip
    if said.text:
        block({"type": "text", "text": ""}, *({"type": "text_delta", "text": p} for p in halves(said.text) if p))
    if said.end == CUT:
        return Answer(pieces)
    for name, arguments in said.calls:
        written = ({"type": "input_json_delta", "partial_json": p} for p in ("", *halves(json.dumps(arguments))))
        block({"type": "tool_use", "id": f"toolu_{next(_count)}", "name": name, "input": {}}, *written)
    reason = said.end or ("tool_use" if said.calls else "end_turn")
    emit("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 20})
    emit("message_stop")
    return Answer(pieces)


def _check_anthropic(body: Mapping[str, Any]) -> None:
    """Refuse what Anthropic refuses: ids, pairs, thoughts that it did not sign or that are missing."""
    thinks = (body.get("thinking") or {}).get("type") == "enabled"
    forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    _demand(not (thinks and forced), "Thinking may not be enabled when tool_choice forces tool use.")
    _demand(not thinks or body["thinking"]["budget_tokens"] < body["max_tokens"], "`max_tokens` must be greater")
    for tool in body.get("tools") or ():
        check_anthropic_schema(tool)
    seen, waiting, before = set[str](), list[str](), ""
    for place, message in enumerate(body["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        _demand(blocks or place == len(body["messages"]) - 1, f"messages.{place}: content is empty")
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        _demand(
            answered == waiting or sorted(answered) == sorted(waiting),
            f"messages.{place}: `tool_use` without `tool_result`",
        )
        waiting = []
        for block in blocks:
            _demand(
                block["type"] != "text" or block["text"].strip(), "text content blocks must contain non-whitespace text"
            )
            if block["type"] == "tool_use":
                _demand(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), f"tool_use.id: no match: {block['id']!r}")
                _demand(block["id"] not in seen, "`tool_use` ids must be unique")
                _demand(isinstance(block["input"], dict), "tool_use.input: Input should be a valid dictionary")
                _demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"]), f"tool_use.name: {block['name']!r}")
                seen.add(block["id"])
                waiting.append(block["id"])
            if block["type"] == "thinking":
                _demand(block.get("signature") == SIGNATURE, "Invalid `signature` in `thinking` block")
            _demand(block["type"] in _BLOCKS, f"messages.{place}.content: unknown type {block['type']!r}")
        if thinks and waiting and message["role"] == "assistant":
            _demand(blocks[0]["type"] in ("thinking", "redacted_thinking"), "Expected `thinking`, but found `tool_use`")
        before = message["role"]
    _demand(not waiting and before == "user", "`tool_use` without `tool_result`")


_BLOCKS = ("text", "tool_use", "tool_result", "thinking", "redacted_thinking", "image", "document")


def check_anthropic_schema(tool: Mapping[str, Any]) -> None:
    """Refuse what Anthropic refuses in the definition of a tool."""
    schema = tool.get("input_schema") or {}
    _demand(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]), f"tools.name: {tool['name']!r}")
    _demand(schema.get("type") == "object", "tools.input_schema.type: Field required")
    _demand(
        not {"oneOf", "allOf", "anyOf"} & {*schema}, "input_schema does not support oneOf, allOf, or anyOf at the top"
    )
    for key in (key for node in _nodes(schema) if isinstance(node, Mapping) for key in node.get("properties") or ()):
        _demand(re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", key), f"input_schema.properties: keys should match: {key!r}")
    problems = Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)
    _demand(not [*problems], "input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12")


def refuse_anthropic(problem: str) -> Answer:
    """Refuse as Anthropic does."""
    return Answer.of_json({"type": "error", "error": {"type": "invalid_request_error", "message": problem}}, 400)


def claude_model(url: str, **more: Any) -> BaseChatModel:
    """Return LangChain's model of Anthropic."""
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(**{"model": "claude-sonnet-4-6", "base_url": url, "api_key": "k", **more})


def thinking_claude_model(url: str, **more: Any) -> BaseChatModel:
    """Return LangChain's model of Anthropic, with thinking."""
    return claude_model(url, thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=8000, **more)


def write_thinking_claude(said: Said) -> Answer:
    """Write a reply of a model that thinks."""
    return write_anthropic(Said(said.text, said.calls, "I think.", said.end))


# Google ---------------------------------------------------------------------------------------------------------


def write_google(said: Said) -> Answer:
    """Write a reply as Gemini 3 streams it: the first call of a reply is signed."""
    parts: list[dict[str, Any]] = [{"text": said.text}] if said.text else []
    for place, (name, arguments) in enumerate(said.calls):
        signed = {} if place else {"thoughtSignature": SIGNATURE}
        parts.append({"functionCall": {"name": name, "args": arguments}, **signed})
    candidate: dict[str, Any] = {"index": 0, **({"content": {"role": "model", "parts": parts}} if parts else {})}
    end = {} if said.end == CUT else {"finishReason": said.end or "STOP"}
    usage = {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
    return Answer([event({"candidates": [candidate | end], "usageMetadata": usage, "modelVersion": "gemini-3-pro"})])


_SCHEMA_KEYS = {
    *("type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties"),
    *("required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "example", "anyOf"),
    *("propertyOrdering", "default", "minimum", "maximum"),
}


def check_google_schema(schema: Any, at: str) -> None:
    """Refuse what Google refuses in the schema of a function's parameters."""
    if not isinstance(schema, Mapping):
        return
    # Both forms of a name are taken, as everywhere in Google's JSON.
    schema = {re.sub("_(.)", lambda found: found[1].upper(), key): value for key, value in schema.items()}
    _demand({*schema} <= _SCHEMA_KEYS, f"Unknown name {sorted({*schema} - _SCHEMA_KEYS)} at '{at}'")
    kind = str(schema.get("type")).upper()
    _demand(not isinstance(schema.get("type"), list), f"{at}.type: Proto field is not repeating")
    _demand(kind != "ARRAY" or schema.get("items"), f"{at}.items: missing field")
    _demand(kind != "OBJECT" or schema.get("properties", "-"), f"{at}.properties: should be non-empty for OBJECT type")
    for word in schema.get("enum") or ():
        _demand(isinstance(word, str), f"{at}.enum: Invalid value (TYPE_STRING), {word!r}")
        _demand(word, f"{at}.enum: cannot be empty")
    for key in schema.get("required") or ():
        _demand(key in (schema.get("properties") or ()), f"{at}.required: property is not defined: {key}")
    formats = ("enum", "date-time")
    _demand(kind != "STRING" or schema.get("format", "enum") in formats, f"{at}.format: only {formats} are supported")
    for key, inner in (schema.get("properties") or {}).items():
        check_google_schema(inner, f"{at}.properties[{key}]")
    check_google_schema(schema.get("items"), f"{at}.items")
    for place, inner in enumerate(schema.get("anyOf") or ()):
        check_google_schema(inner, f"{at}.any_of[{place}]")


def _check_google(body: Mapping[str, Any]) -> None:
    """Refuse what Gemini 3 refuses: calls without signature or answer, empty parts, schemas outside its subset."""
    for tool in body.get("tools") or ():
        for function in tool.get("functionDeclarations") or ():
            _demand(
                re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}", function["name"]),
                f"Invalid function name {function['name']!r}",
            )
            check_google_schema(function.get("parameters") or {}, "parameters")
    contents = body["contents"]
    placeholder = "skip_thought_signature_validator"  # documented for calls that Gemini did not make
    known = (SIGNATURE, placeholder, base64.b64encode(placeholder.encode()).decode())
    asked = [
        n for n, each in enumerate(contents) if each["role"] == "user" and "functionResponse" not in each["parts"][0]
    ]
    for place, content in enumerate(contents):
        calls = [part for part in content["parts"] if "functionCall" in part]
        if calls:
            signed = calls[0].get("thoughtSignature", "" if place > asked[-1] else SIGNATURE)  # of this turn alone
            _demand(signed, f"Function call is missing a thought_signature in position {place}")
            _demand({signed, signed.replace("-", "+").replace("_", "/")} & {*known}, "Corrupted thought signature.")
            after = contents[place + 1]["parts"] if place + 1 < len(contents) else ()
            answered = [part for part in after if "functionResponse" in part]
            _demand(len(answered) == len(calls), "the number of function response parts is not that of the calls")
        _demand(all(part for part in content["parts"]), "contents.parts must not be empty")


def refuse_google(problem: str) -> Answer:
    """Refuse as Google does."""
    return Answer.of_json({"error": {"code": 400, "message": problem, "status": "INVALID_ARGUMENT"}}, 400)


def gemini_model(url: str, **more: Any) -> BaseChatModel:
    """Return LangChain's model of Google."""
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(**{"model": "gemini-3-pro-preview", "google_api_key": "k", "base_url": url, **more})


# Ollama ---------------------------------------------------------------------------------------------------------


def write_ollama(said: Said) -> Answer:
    """Write a reply as Ollama streams it."""
    head = {"model": "m", "created_at": "2026-01-01T00:00:00Z"}
    calls = [{"function": {"name": name, "arguments": dict(arguments)}} for name, arguments in said.calls]
    message = {"role": "assistant", "content": said.text, **({"tool_calls": calls} if calls else {})}
    lines: list[dict[str, Any]] = [{**head, "message": message, "done": False}]
    if said.end != CUT:
        counted = {"done": True, "done_reason": said.end or "stop", "prompt_eval_count": 100, "eval_count": 10}
        lines.append({**head, "message": {"role": "assistant", "content": ""}, **counted})
    return Answer([f"{json.dumps(line)}\n".encode() for line in lines], "application/x-ndjson")


def _check_ollama(body: Mapping[str, Any]) -> None:
    for node in (node for tool in body.get("tools") or () for node in _nodes(tool["function"]["parameters"])):
        _demand(isinstance(node, Mapping), "json: cannot unmarshal bool into Go struct field of type api.ToolProperty")
    for place, message in enumerate(body["messages"]):
        _demand(isinstance(message.get("content", ""), str), f"messages[{place}].content: cannot unmarshal")
        for call in message.get("tool_calls") or ():
            _demand(isinstance(call["function"]["arguments"], dict), "tool_calls.function.arguments: cannot unmarshal")


def ollama_model(url: str, **more: Any) -> BaseChatModel:
    """Return LangChain's model of Ollama."""
    from langchain_ollama import ChatOllama

    return ChatOllama(**{"model": "m", "base_url": url, **more})


def _refuse_ollama(problem: str) -> Answer:
    return Answer.of_json({"error": problem}, 400)


FORMS = {
    "OpenAI chat": Form(own_chat_model, write_chat, check_chat, refuse_chat),
    "OpenAI Responses": Form(_responses_model, write_responses, _check_responses, refuse_chat),
    "Anthropic": Form(thinking_claude_model, write_thinking_claude, _check_anthropic, refuse_anthropic),
    "Google": Form(gemini_model, write_google, _check_google, refuse_google),
    "Ollama": Form(ollama_model, write_ollama, _check_ollama, _refuse_ollama),
    "OpenRouter": Form(own_chat_model, write_openrouter, _check_openrouter, refuse_chat),
}
"""By name. Anthropic's model thinks, Google's and OpenRouter's sign their calls."""


# Others that speak as OpenAI does, and refuse more ----------------------------------------------------------------


def write_mistral(said: Said) -> Answer:
    """Write a reply as Mistral does: ids are nine letters and digits."""
    answer = write_chat(said)
    numbered = (re.sub(rb'"call_(\d+)"', lambda found: b'"%09d"' % int(found[1]), piece) for piece in answer.pieces)
    return Answer([*numbered])


def check_mistral(body: Mapping[str, Any]) -> None:
    """Refuse as Mistral does: other ids, a user behind results, an assistant at the end."""
    check_chat(body)
    roles = [message["role"] for message in body["messages"]]
    for before, after in pairwise(roles):
        _demand((before, after) != ("tool", "user"), "Unexpected role 'user' after role 'tool'")
    _demand(roles[-1] in ("user", "tool"), "Expected last role User or Tool for serving but got assistant")
    for call in (call for message in body["messages"] for call in message.get("tool_calls") or ()):
        said = f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9."
        _demand(re.fullmatch("[a-zA-Z0-9]{9}", call["id"]), said)


def check_groq(body: Mapping[str, Any]) -> None:
    """Refuse as Groq does: results that are no text, and fields that it does not know."""
    check_chat(body)
    for place, message in enumerate(body["messages"]):
        text = message["role"] != "tool" or isinstance(message["content"], str)
        _demand(text, f"'messages.{place}.content' : value must be a string")
        odd = {*message} - {"role", "content", "name", "tool_calls", "tool_call_id"}
        _demand(not odd, f"'messages.{place}' : for 'role:{message['role']}' property {sorted(odd)} is unsupported")


STRICTER = {
    "Mistral": Form(own_chat_model, write_mistral, check_mistral, refuse_chat),
    "Groq": Form(own_chat_model, write_chat, check_groq, refuse_chat),
}
"""By name."""
