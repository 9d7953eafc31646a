"""DoneWhen as a solver of Inspect (`inspect_ai`): any task of its collections runs with it.

Inspect's model answers, Inspect's tools are called and logged by Inspect, and its limits hold. To remove this room:
this file, `donewhen/inspect.py`, its tests and its page.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentImage,
    ContentText,
    GenerateConfig,
    Model,
    ModelOutput,
    execute_tools,
    get_model,
)  # fmt: skip
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolCall, ToolChoice, ToolDef, ToolInfo, ToolParams
from inspect_ai.util import LimitExceededError
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)  # fmt: skip
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict

from donewhen import Agent, AgentOptions, Models, Run, Settings

UNATTENDED = {"confirm": "never", "approvals": "never", "on_question": "assume", "on_exhausted": "deliver"}
"""The settings of a run in which there is nobody to ask."""


@dataclass
class _Failures:
    """The errors that end a sample: Inspect's limits, and the error of a model that failed until the run gave up."""

    errors: list[LimitExceededError] = field(default_factory=list)
    failure: Exception | None = None
    """The error of the last request to a model; None if it was answered."""


@solver
def donewhen_solver(
    settings: Settings | Mapping[str, Any] | None = None,
    *,
    tools: Sequence[Any] = (),
    effects: Mapping[str, Literal["read", "idempotent", "write"]] | None = None,
    roles: Mapping[str, str] | None = None,
) -> Solver:
    """Return a solver that gives a sample's request, with the tools of its task, to an Agent.

    `settings` are the agent's; by default nobody is asked. `tools` are added to the task's. `effects` says what the
    task's tools do; tools that it does not name count as writes. `roles` names, for each of our roles (triage, plan,
    execute, judge, deliver), a model role of the task or a model; without it, the evaluated model has all roles.

    The answer becomes the output of the sample. Its store has, under `donewhen`, the status, the receipt and what was
    spent.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        limits = _Failures()
        models = {role: InspectChatModel(model=_model(name), limits=limits) for role, name in (roles or {}).items()}
        own = settings.model_dump(exclude_unset=True) if isinstance(settings, Settings) else dict(settings or {})
        agent = Agent(
            Models(InspectChatModel(model=get_model(), limits=limits), models),
            [*_as_tools(state.tools, effects or {}, limits), *tools],
            storage="memory:",
            settings={**UNATTENDED, **own},
            options=AgentOptions(record=False),
        )
        async with agent:
            run = await agent.start([*_from_sample(state.messages)])
        if limits.errors:
            raise limits.errors[0]
        if limits.failure and run.status == "failed":  # an outage is no wrong answer
            raise limits.failure
        return _with_result(state, run)

    return solve


def _with_result(state: TaskState, run: Run) -> TaskState:
    text = run.answer or (run.pending[0]["question"] if run.pending else run.problem)
    state.output = ModelOutput.from_content(str(state.model), text)
    state.messages.append(state.output.message)
    state.store.set("donewhen", {"status": run.status, "receipt": run.receipt, "spent": dict(run.spent)})
    state.completed = True
    return state


def _model(name: str) -> Model:
    return get_model(name) if "/" in name else get_model(role=name)


# The model ---------------------------------------------------------------------------------------------------------


class InspectChatModel(BaseChatModel):
    """A chat model of LangChain that asks one of Inspect's."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    model: Model
    limits: _Failures

    @property
    def _llm_type(self) -> str:
        return "inspect"

    @property
    def model_name(self) -> str:
        """The name of Inspect's model, with its provider."""
        return str(self.model)

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **more: Any
    ) -> Runnable[Any, AIMessage]:
        """Return the model with tools, which may have to be called (`any`)."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **more)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        raise NotImplementedError("Inspect's models are asynchronous: use ainvoke")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **options: Any,
    ) -> ChatResult:
        choice: ToolChoice = "any" if options.get("tool_choice") in ("any", "required") else "auto"
        tools = [_as_tool_info(tool["function"]) for tool in options.get("tools") or ()]
        asked = [_to_inspect(message) for message in messages]
        try:
            output = await self.model.generate(asked, tools, choice if tools else None, GenerateConfig(stop_seqs=stop))
        except LimitExceededError as error:
            self.limits.errors.append(error)
            raise
        except Exception as error:
            self.limits.failure = error
            raise
        self.limits.failure = None
        return ChatResult(generations=[ChatGeneration(message=_from_inspect(output))])


def _as_tool_info(function: Mapping[str, Any]) -> ToolInfo:
    parameters = ToolParams.model_validate({"properties": {}, "required": [], **function.get("parameters", {})})
    return ToolInfo(name=function["name"], description=function.get("description", ""), parameters=parameters)


def _to_inspect(message: BaseMessage) -> ChatMessage:
    if isinstance(message, SystemMessage):
        return ChatMessageSystem(content=message.text)
    if isinstance(message, ToolMessage):
        return ChatMessageTool(content=_contents(message), tool_call_id=message.tool_call_id, function=message.name)
    if isinstance(message, AIMessage):
        calls = [
            ToolCall(id=str(call["id"]), function=call["name"], arguments=call["args"]) for call in message.tool_calls
        ]
        return ChatMessageAssistant(content=message.text, tool_calls=calls or None)
    return ChatMessageUser(content=_contents(message))


def _contents(message: BaseMessage) -> str | list[Content]:
    """Return a message's content; of blocks, texts and images."""
    if isinstance(message.content, str):
        return message.content
    contents: list[Content] = []
    for block in message.content_blocks:
        if block["type"] == "text":
            contents.append(ContentText(text=block["text"]))
        elif block["type"] == "image" and (data := block.get("base64")):
            contents.append(ContentImage(image=f"data:{block.get('mime_type', 'image/png')};base64,{data}"))
        elif block["type"] == "image" and (url := block.get("url")):
            contents.append(ContentImage(image=url))
    return contents


def _from_inspect(output: ModelOutput) -> AIMessage:
    message, usage = output.message, output.usage
    calls = [
        {"name": call.function, "args": call.arguments, "id": call.id, "type": "tool_call"}
        for call in message.tool_calls or ()
        if not call.parse_error
    ]
    broken = [
        {"name": call.function, "args": json.dumps(call.arguments), "id": call.id, "error": call.parse_error}
        for call in message.tool_calls or ()
        if call.parse_error
    ]
    spent = None
    if usage:
        read, written = usage.input_tokens_cache_read or 0, usage.input_tokens_cache_write or 0
        spent = UsageMetadata(
            input_tokens=usage.input_tokens + read + written,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_token_details={"cache_read": read, "cache_creation": written},
        )
    ended = {
        "max_tokens": "length",
        "model_length": "length",
        "tool_calls": "tool_calls",
        "content_filter": "content_filter",
    }
    return AIMessage(
        content=message.text,
        tool_calls=calls,
        invalid_tool_calls=[invalid_tool_call(**each) for each in broken],
        usage_metadata=spent,
        response_metadata={"finish_reason": ended.get(output.stop_reason, "stop"), "model_name": output.model},
    )


# The request and the tools -----------------------------------------------------------------------------------------


def _from_sample(messages: Iterable[ChatMessage]) -> Iterator[AnyMessage]:
    """Yield a sample's messages; the system message stays one, as an instruction of the user."""
    for message in messages:
        if isinstance(message, ChatMessageSystem):
            yield SystemMessage(message.text)
        elif isinstance(message, ChatMessageUser):
            yield HumanMessage(_blocks(message))
        elif isinstance(message, ChatMessageAssistant) and message.text:
            yield AIMessage(message.text)


def _blocks(message: ChatMessage) -> Any:
    if isinstance(message.content, str):
        return message.content
    images = (each for each in message.content if isinstance(each, ContentImage))
    return [
        {"type": "text", "text": message.text},
        *({"type": "image_url", "image_url": {"url": image.image}} for image in images),
    ]


def _as_tools(tools: Sequence[Tool], effects: Mapping[str, str], limits: _Failures) -> list[BaseTool]:
    """Return Inspect's tools as LangChain's; Inspect makes the calls, with its approvals, limits and log."""
    made: list[BaseTool] = []
    for tool in tools:
        about = ToolDef(tool)

        async def call(tool: Tool = tool, name: str = about.name, /, **arguments: Any) -> str:
            wanted = ToolCall(id=f"call_{name}", function=name, arguments=arguments)
            try:
                done = await execute_tools([ChatMessageAssistant(content="", tool_calls=[wanted])], [tool])
            except LimitExceededError as error:
                limits.errors.append(error)
                raise
            answer = next(each for each in done.messages if isinstance(each, ChatMessageTool))
            if answer.error:
                raise ToolException(answer.error.message)
            return answer.text

        schema = about.parameters.model_dump(exclude_none=True, by_alias=True)
        named: dict[str, Any] = {"name": about.name, "description": about.description, "args_schema": schema}
        if about.name in effects:
            named["metadata"] = {"effect": effects[about.name]}
        made.append(StructuredTool(**named, coroutine=call, handle_tool_error=True))
    return made
