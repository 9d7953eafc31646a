"""The one reader: turns any reply of a model into a decision, or into a correction it can act on.

Gates in this order: parse → schema → legality → tool known → arguments. What comes after (approval, evidence) needs
the run and is decided where the decision is acted on.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from donewhen.graph.models.forms import from_text
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.marking import mark
from donewhen.state.plan.plan import near
from donewhen.state.reading.decisions import NAMES, arguments_schema
from donewhen.state.reading.extraction import extract, prose
from donewhen.state.values import flaw, whole

Kind = Literal[
    "speak", "calls", "answer", "ask_user", "submit_plan", "decline", "finish_step", "finish_task", "give_up"
]
TEXT_CHARS = 50_000
"""Of one reply, kept in the transcript; what is longer was not read as a decision anyway."""
ARGUMENT_CHARS = 200_000
"""Of all calls of one reply; a longer decision is refused, longer calls of tools are kept in short form."""
MOST_CALLS = 32
CUT_OFF = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens"})
"""How providers say that the reply was longer than they write."""
QUESTION = "I need your help to go on. What should I do?"


@dataclass(frozen=True)
class Decision:
    """What the model decided: speech, calls of tools, or one control tool with its arguments."""

    kind: Kind
    arguments: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """`{id, name, args}`; `recall` counts as a call."""
    speech: str = ""
    id: str = ""
    """Id of the control tool's call, to be answered; "" when the decision stood in the text."""


@dataclass(frozen=True)
class Correction:
    """Why a reply is no decision, in sentences for the model."""

    problems: list[str]
    speech: str = ""
    printed: bool = False
    """The reply made no tool call, so the model is told how a call can be printed."""

    def text(self, legal: Collection[str]) -> str:
        """The message the model gets."""
        lines = mark("\n".join(f"- {problem}" for problem in self.problems[:20]))
        tools = ", or calls of the tools you have" if "finish_step" in legal else ""
        how = ' Call it, or print {"action": "<name>", "arguments": {…}}.' if self.printed else ""
        return f"Correction: nothing was done.\n{lines}\nLegal now: {', '.join(legal)}{tools}.{how}"


def read(message: AIMessage, legal: Sequence[str], toolbox: Toolbox | None = None) -> Decision | Correction:
    """Read a reply. `legal` are the control tools of this moment, `toolbox` the domain tools, if any may be called."""
    text = whole(str(message.text))
    calls, problems = _native(message)
    native = bool(calls or problems)
    speech = prose(text, None)
    if not native:
        printed = from_text(text, [*legal, *(toolbox.names if toolbox else ())])
        calls, speech, problems = printed.calls, printed.speech, printed.problems
    if (calls or problems) and _cut_off(message):
        problems = ["the reply was cut off at the output limit, so its calls are not complete; say less"]
    problems = problems or _problems(calls, legal, toolbox, speech)
    if problems:
        return Correction(problems, speech, printed=not native)
    if not calls:
        if not speech:
            return Correction(["the reply is empty: no text and no tool call"], printed=True)
        return Decision("speak", speech=speech)
    control = [call for call in calls if call["name"] in NAMES and call["name"] != "recall"]
    if not control:
        return Decision("calls", calls=calls, speech=speech)
    chosen = control[0]
    return Decision(chosen["name"], chosen["args"], speech=speech, id=chosen["id"] if native else "")


def _cut_off(message: AIMessage) -> bool:
    said = message.response_metadata
    reasons = [said.get("finish_reason"), said.get("stop_reason"), said.get("done_reason")]
    details = said.get("incomplete_details")
    reasons += [details.get("reason")] if isinstance(details, Mapping) else []
    return any(str(reason).rpartition(".")[2] in CUT_OFF for reason in reasons if reason)


def _native(message: AIMessage) -> tuple[list[dict[str, Any]], list[str]]:
    """Tool calls, broken ones mended where only their syntax was wrong, and what is wrong with the rest."""
    calls = [
        {"id": call["id"] or f"call_{number}", "name": call["name"], "args": call["args"]}
        for number, call in enumerate(message.tool_calls)
    ]
    problems = []
    for number, broken in enumerate(message.invalid_tool_calls, len(calls)):
        name, raw = broken.get("name") or "", broken.get("args") or ""
        found = extract(raw, lambda value: isinstance(value, dict))
        if not name:
            problems.append("a call names no tool")
        elif found and found.complete and not (raw[: found.start] + raw[found.end :]).strip():
            calls.append({"id": broken.get("id") or f"call_{number}", "name": name, "args": found.value})
        else:
            why = "are cut off" if found and not found.complete else "are not valid JSON"
            problems.append(f"the arguments of {name[:60]} {why}: {raw[:120]!r}")
    return calls, problems


def _problems(calls: Sequence[dict[str, Any]], legal: Sequence[str], toolbox: Toolbox | None, speech: str) -> list[str]:
    if len(calls) > MOST_CALLS:
        return [f"{len(calls)} calls in one reply; at most {MOST_CALLS}"]
    problems: list[str] = []
    for call in calls:
        if call["name"] == "ask_user":
            call["args"] = _asking(call["args"], speech)
        problems += _call_problems(call["name"], call["args"], legal, toolbox)
    control = [call["name"] for call in calls if call["name"] in NAMES and call["name"] != "recall"]
    if not problems and control and len(calls) > 1:
        problems.append(f"{control[0]} must be the only call of a reply; act on results after you saw them")
    return problems


def _asking(args: Any, speech: str) -> Any:
    """A question in no words of its own is what was said with it, else the reason, else a sentence of ours (X16)."""
    if not isinstance(args, Mapping) or str(args.get("question") or "").strip():
        return args
    return {**args, "question": speech or str(args.get("reason") or "").strip() or QUESTION}


def _call_problems(name: str, args: Any, legal: Sequence[str], toolbox: Toolbox | None) -> list[str]:
    tools = toolbox.names if toolbox else ()
    if name not in legal and name in NAMES:
        return [f"{name} is not legal here"]
    if name not in legal and (toolbox is None or name not in tools):
        return [f"there is no tool {name[:60]!r}{near(name, [*legal, *tools])}"]
    if problem := flaw(args):
        return [f"{name}: the value {problem}"]
    if name in legal:
        return [f"{name}: {problem}" for problem in control_problems(name, args)]
    assert toolbox is not None
    return [f"{name}: {problem}" for problem in toolbox.problems(name, args)]


def control_problems(name: str, args: Any) -> list[str]:
    """What is wrong with the arguments of a control tool. Plans and goal_checks have readers of their own."""
    if not isinstance(args, Mapping):
        return ["the arguments must be an object"]
    if name != "submit_plan" and (size := _size(args)) > ARGUMENT_CHARS:
        return [f"the arguments have {size:,} characters; at most {ARGUMENT_CHARS:,}"]
    problems = []
    if name != "submit_plan" and (args.get("steps") or args.get("plan_steps")):
        problems.append("only submit_plan carries steps")
    schema = arguments_schema(name)
    for key, rule in schema["properties"].items():
        required = key in schema["required"]
        if name != "submit_plan" and rule.get("type") == "string" and (required or args.get(key) is not None):
            problems += _text_problems(key, args.get(key), required, rule.get("enum"))
    if (options := args.get("options")) is not None and not _texts(options):
        problems.append("options must be a list of texts")
    offset = args.get("offset") or 0
    if name == "recall" and (isinstance(offset, bool) or not isinstance(offset, int) or offset < 0):
        problems.append("offset must be a whole number from 0")
    return problems


def _text_problems(key: str, value: Any, required: bool, allowed: Sequence[str] | None) -> list[str]:
    if not isinstance(value, str) or (required and not value.strip()):
        return [f"{key} must be a text that is not blank"]
    if allowed and value not in allowed:
        return [f"{key} must be one of {', '.join(allowed)}, not {value[:40]!r}"]
    return []


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _size(args: Any) -> int:
    return len(json.dumps(args, ensure_ascii=False, default=str))


def kept(message: AIMessage) -> AIMessage:
    """The reply as the transcript keeps it: bounded, so that one runaway reply does not fill storage and prompt."""
    text = whole(str(message.text))
    raw = "".join(call.get("args") or "" for call in message.invalid_tool_calls)
    flawed = any(flaw(call["args"]) for call in message.tool_calls) or whole(raw) != raw
    size = len(raw) + sum(0 if flawed else _size(call["args"]) for call in message.tool_calls)
    if flawed or size > ARGUMENT_CHARS:
        why = "that cannot be stored" if flawed else f"of {size:,} characters"
        return AIMessage(f"(a reply with arguments {why}, left out)", id=message.id)
    if len(text) <= TEXT_CHARS and text == message.text:
        return message
    half = TEXT_CHARS // 2
    if len(text) > TEXT_CHARS:
        text = f"{text[:half]}\n… {len(text) - TEXT_CHARS} characters left out …\n{text[-half:]}"
    return message.model_copy(update={"content": text})


def respond(message: AIMessage, text: str | Callable[[str], str]) -> list[AnyMessage]:
    """What the model is told: one message per call of its reply, or one plain message if it made none.

    `text` may be a function of the call's id. Calls and their results stay atomic pairs (X14).
    """
    said = text if callable(text) else lambda _: text
    ids = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls) if call.get("id")]
    if not ids:
        return [HumanMessage(said(""))]
    return [ToolMessage(said(id), tool_call_id=id) for id in ids if id]
