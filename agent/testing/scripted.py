"""ScriptedModel: a chat model that answers from a script, and fails when the script does not fit."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from donewhen.agent.testing.chunks import message_chunks
from donewhen.agent.testing.request import Request, read_request
from donewhen.agent.testing.script import Replies, Roles, Script, ScriptUnfinished, build_script
from donewhen.agent.testing.settle import asettle, finished, settle


class ScriptedModel(BaseChatModel):
    """Answers from a script, remembers every request, and fails when called too often or too seldom.

    `replies` is a list, or one policy `(messages, tools) -> reply` (or a coroutine function) used for every
    call, `times` times if given. A reply is: a string (speech), an `AIMessage` or `reply(…)`, a `call(…)`, a
    list of calls, an exception (raised), or a policy. `roles` gives `triage`, `plan` (or `draft`), `execute`,
    `deliver` and `judge` a script each; a role may map step ids to scripts of their own, so that parallel
    steps stay deterministic. Roles and steps without one use `replies`.

    Use it as a context manager, or call `assert_exhausted()`: both fail if replies are left, and also if the
    model was called too often or an assertion failed in a policy, for a runtime turns these into mere
    outcomes. `strict=False` lifts both counts: the last reply repeats and replies may be left.

    Copies, `bind_tools` and `with_structured_output` share the script. Message ids and tool call ids are
    unique and deterministic; tokens are estimated, four characters each, unless the reply gives them.
    """

    model_name: str = "scripted"
    """Reported in `response_metadata`; name a real model to have its price."""
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
        """Every call so far, in order."""
        return self.script.requests

    @property
    def failures(self) -> list[AssertionError]:
        """Assertions that failed inside the model: called too often, or a policy's own."""
        return self.script.failures

    def assert_exhausted(self) -> None:
        """Raises the first of `failures`, or ScriptUnfinished if replies are left."""
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
        """The same model, same script, with these tools offered."""
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
            await asyncio.sleep(0)  # as over a network: others get their turn, and a cancel its chance

    def _answer(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        with self.script.remembering():
            turn = self.script.take(read_request(messages, stop, kwargs))
            settled = settle(turn)
            if not isinstance(settled, BaseException):
                return finished(settled, turn, self.script, self.model_name)
        raise settled

    async def _aanswer(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> AIMessage:
        with self.script.remembering():
            turn = self.script.take(read_request(messages, stop, kwargs))
            settled = await asettle(turn)
            if not isinstance(settled, BaseException):
                return finished(settled, turn, self.script, self.model_name)
        raise settled
