"""ScriptedModel: a chat model that answers from a script, and fails when the script does not fit."""

import asyncio
import copy
import inspect
import json
import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from donewhen.agent.testing.replies import Call, message_chunks, reply, written_calls
from donewhen.agent.testing.script import (
    Replies,
    Request,
    Roles,
    Script,
    ScriptError,
    ScriptUnfinished,
    Turn,
    build_script,
    is_reply,
    kind,
    read_request,
)


class ScriptedModel(BaseChatModel):
    """Answers from a script, remembers every request, and fails when called too often or too seldom.

    `replies` is a list, or one policy `(messages, tools) -> reply` (or a coroutine function) used for every
    call, `times` times if given. A reply is: a string (speech), an `AIMessage` or `reply(…)`, a `call(…)`, a
    list of calls, an exception (raised), or a policy. `roles` gives `triage`, `plan` (or `draft`), `execute`,
    `deliver` and `judge` a script each; a role may map step ids to scripts of their own, so that parallel
    steps stay deterministic. Roles and steps without one use `replies`; a judge without one finds everything shown
    (`audits`), so that scripts need not say so.

    Use it as a context manager, or call `assert_exhausted()`: both fail if replies are left, and also if the
    model was called too often or an assertion failed in a policy, because a runtime may turn these into
    outcomes. `strict=False` lifts both counts: the last reply repeats, and replies may be left.

    Copies, `bind_tools` and `with_structured_output` share the script. Message ids and tool call ids are
    unique and deterministic; tokens are estimated, four characters each, unless the reply gives them.
    """

    model_name: str = "scripted"
    """Reported in `response_metadata`; name a real model to have its price."""
    judges: bool = True
    """False for a model that cannot judge; nobody audits its runs."""
    script: Script = Field(repr=False)
    cache: Any = False
    # A global cache would answer instead of the script.

    def __init__(
        self,
        replies: Replies = (),
        *,
        roles: Roles | None = None,
        strict: bool = True,
        times: int | None = None,
        **fields: Any,
    ) -> None:
        fields.setdefault("script", None)
        fields["script"] = fields["script"] or build_script(replies, roles, strict, times)
        super().__init__(**fields)

    @property
    def requests(self) -> list[Request]:
        """Return all calls so far, in order."""
        return self.script.requests

    @property
    def audits(self) -> list[Request]:
        """Return all audits so far without a scripted reply; the reply found everything shown."""
        return self.script.audits

    @property
    def failures(self) -> list[AssertionError]:
        """Return the assertions that failed inside the model: too many calls, or a policy's own."""
        return self.script.failures

    def assert_exhausted(self) -> None:
        """Raise the first of `failures`, or ScriptUnfinished if replies are left."""
        if self.failures:
            raise self.failures[0]
        if self.script.strict and (left := self.script.left_over()):
            raise ScriptUnfinished("the model was called too seldom: " + "; ".join(left))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.assert_exhausted()
        elif self.failures and error not in self.failures:
            error.add_note(f"The scripted model had failed before: {self.failures[0]}")

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the same model, same script, with these tools offered."""
        if tool_choice is not None:
            kwargs["tool_choice"] = tool_choice
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer(messages, stop, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=await self._aanswer(messages, stop, kwargs))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in message_chunks(self._answer(messages, stop, kwargs)):
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in message_chunks(await self._aanswer(messages, stop, kwargs)):
            yield ChatGenerationChunk(message=chunk)
            await asyncio.sleep(0)  # as over a network, so that other tasks run and a cancellation can arrive

    def _answer(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        coroutine = self._aanswer(messages, stop, kwargs)
        try:
            coroutine.send(None)
        except StopIteration as end:
            return cast(AIMessage, end.value)
        coroutine.close()
        with self.script.keep_failures():
            raise ScriptError("a coroutine policy needs ainvoke or astream; the model was called synchronously")

    async def _aanswer(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        with self.script.keep_failures():
            turn = self.script.take(read_request(messages, stop, kwargs))
            answer = await resolve_reply(turn)
            if not isinstance(answer, BaseException):
                return complete_message(answer, turn, self.script, self.model_name)
        raise answer


async def resolve_reply(turn: Turn) -> AIMessage | BaseException:
    """Call policies until there is a message, or an exception to raise; return it."""
    item: Any = turn.reply
    try:
        while is_policy(item):
            item = item(turn.request.messages, turn.request.tools)
            if inspect.isawaitable(item):
                item = await item
    except Exception as error:
        error.add_note(f"This was {turn.place}.")
        raise
    return _to_message(item, turn.place)


def is_policy(item: object) -> bool:
    """Return whether `item` is a policy; exception classes are callable too, but are raised."""
    return callable(item) and not isinstance(item, type)


def complete_message(message: AIMessage, turn: Turn, script: Script, model_name: str) -> AIMessage:
    """Return a copy of `message` with a provider's additions; its own ids and tokens are kept."""
    unnamed = sum(not c["id"] for c in (*message.tool_calls, *message.invalid_tool_calls))
    ids = iter(script.number_calls(turn, unnamed))
    calls = message.tool_calls or message.invalid_tool_calls
    message = copy.deepcopy(message)
    whole = AIMessage(
        content=message.content,
        additional_kwargs=message.additional_kwargs,
        tool_calls=[{**c, "id": c["id"] or next(ids)} for c in message.tool_calls],
        invalid_tool_calls=[{**c, "id": c["id"] or next(ids)} for c in message.invalid_tool_calls],
        response_metadata={
            "finish_reason": "tool_calls" if calls else "stop",
            "model_name": model_name,
            **message.response_metadata,
        },
        id=script.message_id(turn, message.id),
        name=message.name,
    )
    whole.usage_metadata = message.usage_metadata or _estimate(turn.request, whole)
    return whole


def _to_message(item: object, place: str) -> AIMessage | BaseException:
    if isinstance(item, type) and issubclass(item, BaseException):
        return item()
    if isinstance(item, BaseException | AIMessage):
        return item
    if isinstance(item, str):
        return reply(item)
    if isinstance(item, list | tuple | Mapping) and is_reply(item):
        return reply(calls=cast(list[Call], [item] if isinstance(item, Mapping) else item))
    raise ScriptError(f"a policy returned no reply but {kind(item)}, in {place}; see ScriptedModel")


def _estimate(request: Request, message: AIMessage) -> UsageMetadata:
    sent = _count_characters(request.messages) + len(json.dumps(request.tools, default=str))
    input_tokens, output_tokens = math.ceil(sent / 4), math.ceil(_count_characters([message]) / 4)
    return UsageMetadata(
        input_tokens=input_tokens, output_tokens=output_tokens, total_tokens=input_tokens + output_tokens
    )


def _count_characters(messages: Sequence[BaseMessage]) -> int:
    calls = (written_calls(message) for message in messages if isinstance(message, AIMessage))
    return sum(len(str(message.text)) for message in messages) + sum(
        len(name or "") + len(arguments) for written in calls for name, arguments, _ in written
    )
