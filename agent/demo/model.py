"""The demonstration model as a LangChain chat model: planning and delivering by rules."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import Field

from donewhen.agent.config import DEMO
from donewhen.agent.demo.goals import TOOLS, is_chinese, pick, plan_arguments, read_goal
from donewhen.agent.demo.work import call, results, section, work

CHARS_PER_TOKEN = 4
_GREETING = re.compile(r"(?:hi|hello|hey|help|what can you do|你好|您好|帮助|你能做什么)[\s.!?。！？]*", re.IGNORECASE)
SENSES = ("image_inputs", "pdf_inputs", "audio_inputs", "video_inputs", "attachment")
"""Inputs that the model does not support, as model profiles name them."""


class DemoModel(BaseChatModel):
    """Plans and works by fixed rules, through the same prompts and control tools as any chat model.

    It counts, lists, reads and searches files, totals columns of data files and writes a report, in English and
    Chinese; everything else it declines. The same messages give the same reply. Token counts are estimates, marked so.
    """

    model_name: str = DEMO
    profile: Any = Field(default_factory=lambda: dict.fromkeys(SENSES, False))

    judges: bool = False
    """Its rules cannot review work, so its runs are not audited."""

    @property
    def _llm_type(self) -> str:
        return DEMO

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with these tools to call; its rules choose among them, whatever `tool_choice` says."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_reply(messages, list(kwargs.get("tools") or [])))])


def _reply(messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> AIMessage:
    names = {str(tool.get("function", tool).get("name", "")) for tool in tools}
    rows = [[m.type, m.content, getattr(m, "tool_calls", [])] for m in messages]
    prompt = json.dumps(rows, ensure_ascii=False, default=str)
    reply = _decide([m for m in messages if not isinstance(m, SystemMessage)], names)
    calls = [[each["name"], each["args"]] for each in reply.tool_calls]
    decision = json.dumps([reply.text, calls], ensure_ascii=False)
    id = f"call_{hashlib.sha256((prompt + decision).encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"
    sent = (len(prompt) + len(json.dumps(list(tools)))) // CHARS_PER_TOKEN
    generated = len(decision) // CHARS_PER_TOKEN
    usage = UsageMetadata(input_tokens=sent, output_tokens=generated, total_tokens=sent + generated)
    update = {"usage_metadata": usage, "response_metadata": {"model_name": DEMO, "estimated": True}}
    return reply.model_copy(update={**update, "tool_calls": [{**each, "id": id} for each in reply.tool_calls]})


def _decide(messages: Sequence[BaseMessage], tools: set[str]) -> AIMessage:
    """Return the reply; the offered control tools tell in which role the model is called."""
    brief = str(messages[0].text) if messages else ""
    if "submit_plan" in tools:
        return _plan(brief, tools, corrected=len(messages) > 1)
    if "finish_step" in tools:
        return work(brief, messages[1:], tools)
    if receipt := section(brief, "receipt"):
        return _deliver(receipt, brief, tools)
    return AIMessage(f"The demo model cannot judge. {_SETUP[0]}")


_SETUP = (
    "Set OPENAI_API_KEY, or DONEWHEN_MODEL or --model, for a real one.",
    "要用真正的模型，请设置 OPENAI_API_KEY、DONEWHEN_MODEL 或 --model。",
)
_ABILITIES = (
    "The demo model counts, lists, reads and searches files, totals columns and writes reports",
    "演示模型会统计、列出、读取和搜索文件，汇总数据列，并写报告",
)


def _plan(brief: str, tools: set[str], *, corrected: bool) -> AIMessage:
    """Return the plan for a goal that is fully understood, changed by the person's feedback; else a refusal."""
    goal, feedback = section(brief, "goal"), section(brief, "feedback")
    chinese = is_chinese(goal)
    language = pick(chinese, "en", "zh")
    if _GREETING.fullmatch(goal):
        return call(
            "answer", text=f"{_ABILITIES[chinese]}{pick(chinese, '.', '。')}\n{_SETUP[chinese]}", language=language
        )
    if corrected or section(brief, "failure"):
        why = pick(chinese, "The demo model knows no other way.", "演示模型没有别的办法。")
        return call("decline", reason=why, guidance=f"{why}\n{_SETUP[chinese]}")
    tasks, unread = read_goal(goal)
    if feedback and not unread:
        more, unread = read_goal(feedback)
        tasks = [*tasks, *more] if re.match(r"\W*(?:also|and|还|再|另外|并)", feedback, re.IGNORECASE) else more
    if tasks and tasks[0].kind == "report":
        unread = unread or goal  # there is nothing to report
    offered = set(re.findall(r"^- (\w+)", section(brief, "tools"), re.MULTILINE)) | tools
    missing = next((name for task in tasks for name in TOOLS[task.kind] if name not in offered), "")
    if unread or missing:
        why = pick(chinese, "; it cannot do this: ", "；它不会：") + f"“{unread[:200] or missing}”"
        example = pick(chinese, "Try “find the word amount in the files”.", "试试“统计 Python 文件的数量”。")
        return call("decline", reason=why[2:], guidance=f"{_ABILITIES[chinese]}{why}\n{example}\n{_SETUP[chinese]}")
    plan = plan_arguments(" ".join(goal.split())[:200], tasks, chinese, checks="file_exists" in offered)
    return call("submit_plan", **plan, language=language)


def _deliver(receipt: str, brief: str, tools: set[str]) -> AIMessage:
    """Return the results of the finished steps, unchanged, with a note if steps are missing."""
    chinese = is_chinese(section(brief, "goal"))
    done = re.findall(r"^step (\S+) done: ", receipt, re.MULTILINE)
    steps = [(id, text.strip()) for id, text in results(brief) if id in done]
    parts = [text for _, text in steps]
    if not receipt.startswith("status: completed"):
        parts.append(pick(chinese, "Not everything was done.", "并非全部完成。"))
    text = "\n\n".join(parts)
    if "deliver" not in tools:
        return AIMessage(text)
    wanted = re.findall(r"^(\d+)\. ", section(brief, "done_when"), re.MULTILINE)
    proof = [{"observation": f"{id}.result"} for id, _ in steps]
    return call(
        "deliver", text=text, goal_check=[{"criterion": int(n), "met": bool(proof), "evidence": proof} for n in wanted]
    )
