"""The model that is there when no other is set: deterministic, rule-based, and honest about it."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from donewhen.agent.offline.answers import introduction
from donewhen.agent.offline.decision import Decision
from donewhen.agent.offline.delivering import deliver
from donewhen.agent.offline.judging import judge
from donewhen.agent.offline.language import is_chinese
from donewhen.agent.offline.planning import plan
from donewhen.agent.offline.reading import Request, read_request
from donewhen.agent.offline.working import work

NAME = "demo"
CHARS_PER_TOKEN = 4


class OfflineModel(BaseChatModel):
    """Plans and works by fixed rules, through the same prompts and control tools as any chat model.

    It reads what a goal says in English or Chinese about files, text, CSV columns, documents and arithmetic, calls the
    workspace tools for it, and declines everything else. The same messages give the same reply. Token counts are
    estimates, and marked so. Needs no key and no network.
    """

    model_name: str = NAME

    @property
    def _llm_type(self) -> str:
        return NAME

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self.model_name}

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with these tools to call; its rules choose among them, whatever `tool_choice` says."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tools = list(kwargs.get("tools") or [])
        message = _message(decide(read_request(messages, tools)), messages, tools)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._generate(messages, stop, run_manager, **kwargs).generations[0].message
        assert isinstance(reply, AIMessage)
        for word in re.findall(r"\s*\S+\s*$|\s*\S+", str(reply.text)):
            chunk = ChatGenerationChunk(message=AIMessageChunk(content=word))
            if run_manager:
                run_manager.on_llm_new_token(word, chunk=chunk)
            yield chunk
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                tool_call_chunks=[
                    {
                        "name": c["name"],
                        "args": json.dumps(c["args"], ensure_ascii=False),
                        "id": c["id"],
                        "index": n,
                        "type": "tool_call_chunk",
                    }
                    for n, c in enumerate(reply.tool_calls)
                ],
                usage_metadata=reply.usage_metadata,
                response_metadata=reply.response_metadata,
                chunk_position="last",
            )
        )


def decide(request: Request) -> Decision:
    """What the model does when asked this; a pure function."""
    match request.role:
        case "triage" | "plan":
            return plan(request)
        case "execute":
            return work(request)
        case "deliver":
            return deliver(request)
        case "judge":
            return judge(request)
    return Decision(text=introduction(request.tools, is_chinese(request.plain)))


def _message(decision: Decision, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    said = [[m.type, m.content, getattr(m, "tool_calls", [])] for m in messages]
    seen = json.dumps(said, ensure_ascii=False, sort_keys=True, default=str)
    calls = [
        {"name": name, "args": args, "id": _id(seen, n, name, args)} for n, (name, args) in enumerate(decision.calls)
    ]
    sent = sum(len(str(m.text)) for m in messages) + len(json.dumps(list(tools), default=str))
    made = len(decision.text) + len(json.dumps(calls, ensure_ascii=False))
    read_tokens, made_tokens = -(-sent // CHARS_PER_TOKEN), -(-made // CHARS_PER_TOKEN)
    return AIMessage(
        content=decision.text,
        tool_calls=[{"type": "tool_call", **call} for call in calls],
        usage_metadata=UsageMetadata(
            input_tokens=read_tokens, output_tokens=made_tokens, total_tokens=read_tokens + made_tokens
        ),
        response_metadata={"model_name": NAME, "estimated": True},
    )


def _id(seen: str, position: int, name: str, args: dict[str, Any]) -> str:
    """The same for the same messages, and different for every call of a run."""
    text = json.dumps([seen, position, name, args], ensure_ascii=False, sort_keys=True, default=str)
    return f"call_{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
