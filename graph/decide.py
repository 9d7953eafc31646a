"""The one reader: turns any reply of a model into a decision, or into a correction it can act on.

Gates in this order: parse → schema → legality → tool known → arguments. What comes after (approval, evidence) needs
the run and is decided where the decision is acted on.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from graph.forms import from_text
from graph.toolbox import Toolbox
from state.decisions import NAMES, arguments_schema
from state.extraction import extract_json
from state.plan import near

Kind = Literal[
    "speak", "calls", "answer", "ask_user", "submit_plan", "decline", "finish_step", "finish_task", "give_up"
]
TEXT_CHARS = 50_000
"""Of one reply, kept in the transcript; what is longer was not read as a decision anyway."""
ARGUMENT_CHARS = 200_000
MOST_CALLS = 32


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

    def text(self, legal: Collection[str]) -> str:
        """The message the model gets."""
        lines = "\n".join(f"- {problem}" for problem in self.problems[:20])
        return f"Correction: nothing was done.\n{lines}\nLegal now: {', '.join(legal)}."


def read(message: AIMessage, legal: Sequence[str], toolbox: Toolbox | None = None) -> Decision | Correction:
    """Read a reply. `legal` are the control tools of this moment, `toolbox` the domain tools, if any may be called."""
    calls, broken = _native(message)
    speech, native = str(message.text), True
    if not calls and not broken:
        native = False
        calls, speech, broken = from_text(message.text, [*legal, *(toolbox.names if toolbox else ())])
    if (calls or broken) and message.response_metadata.get("finish_reason") == "length":
        return Correction(
            ["the reply was cut off at the output limit, so its calls are not complete; say less"], speech
        )
    if broken:
        return Correction(broken, speech)
    if not calls:
        if not speech.strip():
            return Correction(["the reply is empty: no text and no tool call"])
        return Decision("speak", speech=speech)
    if len(calls) > MOST_CALLS:
        return Correction([f"{len(calls)} calls in one reply; at most {MOST_CALLS}"], speech)
    if problems := _problems(calls, legal, toolbox):
        return Correction(problems, speech)
    control = [call for call in calls if call["name"] in NAMES and call["name"] != "recall"]
    if not control:
        return Decision("calls", calls=calls, speech=speech)
    if len(calls) > 1:
        return Correction(
            [f"{control[0]['name']} must be the only call of a reply; act on results after you saw them"], speech
        )
    chosen = control[0]
    return Decision(chosen["name"], chosen["args"], speech=speech, id=chosen["id"] if native else "")


def _native(message: AIMessage) -> tuple[list[dict[str, Any]], list[str]]:
    calls = [
        {"id": call["id"] or f"call_{n}", "name": call["name"], "args": call["args"]}
        for n, call in enumerate(message.tool_calls)
    ]
    broken = []
    for call in message.invalid_tool_calls:
        found = extract_json(call.get("args") or "{}", {"type": "object"})
        if found is None or (found.repaired and not call.get("name")):
            broken.append(
                f"the arguments of {call.get('name') or 'a call'} are not valid JSON: {(call.get('args') or '')[:120]!r}"
            )
        else:
            calls.append({"id": call.get("id") or "call_x", "name": call.get("name") or "", "args": found.value})
    return calls, broken


def _problems(calls: Sequence[Mapping[str, Any]], legal: Sequence[str], toolbox: Toolbox | None) -> list[str]:
    problems: list[str] = []
    tools = toolbox.names if toolbox else ()
    for call in calls:
        name, args = call["name"], call["args"]
        if name in legal:
            problems += [f"{name}: {problem}" for problem in control_problems(name, args)]
        elif name in NAMES:
            problems.append(f"{name} is not legal here")
        elif toolbox is None or name not in tools:
            problems.append(f"there is no tool {name[:60]!r}{near(name, [*legal, *tools])}")
        else:
            problems += [f"{name}: {problem}" for problem in toolbox.problems(name, args)]
    return problems


def control_problems(name: str, args: Any) -> list[str]:
    """What is wrong with the arguments of a control tool. Plans and goal_checks have readers of their own."""
    if not isinstance(args, Mapping):
        return ["the arguments must be an object"]
    problems = []
    if name != "submit_plan" and (args.get("steps") or args.get("plan_steps")):
        problems.append("only submit_plan carries steps")
    schema = arguments_schema(name)
    for key, rule in schema["properties"].items():
        required, value = key in schema["required"] and name != "submit_plan", args.get(key)
        if rule.get("type") == "string" and (required or value is not None):
            if not isinstance(value, str) or (required and not value.strip()):
                problems.append(f"{key} must be a text that is not blank")
            elif (allowed := rule.get("enum")) and value not in allowed and name != "submit_plan":
                problems.append(f"{key} must be one of {', '.join(allowed)}, not {value[:40]!r}")
    if (options := args.get("options")) is not None and not _texts(options):
        problems.append("options must be a list of texts")
    offset = args.get("offset", 0)
    if name == "recall" and (isinstance(offset, bool) or not isinstance(offset, int) or offset < 0):
        problems.append("offset must be a whole number from 0")
    return problems


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def kept(message: AIMessage) -> AIMessage:
    """The reply as the transcript keeps it: bounded, so that one runaway reply does not fill storage and prompt."""
    size = sum(len(json.dumps(call["args"], default=str)) for call in message.tool_calls)
    size += sum(len(call.get("args") or "") for call in message.invalid_tool_calls)
    if size > ARGUMENT_CHARS:
        return AIMessage(f"(a reply with {size} characters of arguments, left out)", id=message.id)
    if len(message.text) <= TEXT_CHARS:
        return message
    half = TEXT_CHARS // 2
    text = f"{message.text[:half]}\n… {len(message.text) - TEXT_CHARS} characters left out …\n{message.text[-half:]}"
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
