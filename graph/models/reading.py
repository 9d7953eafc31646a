"""The one reader: turns any reply of a model into a decision, or into a correction it can act on.

Gates in this order: parse → schema → legality → tool known → arguments. What comes after (approval, evidence) needs
the run and is decided where the decision is acted on.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AIMessage

from donewhen.graph.models.forms import from_text
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.reading.decisions import LOOKUPS, NAMES, arguments_schema
from donewhen.state.reading.extraction import extract, prose
from donewhen.state.values import flaw, near, whole

if TYPE_CHECKING:
    from donewhen.graph.tools.arguments import Arguments

CALLS_CHARS = 200_000
"""Of all calls of one reply; a longer decision is refused, longer calls of tools are kept in short form."""
QUESTION = "I need your help to go on. What should I do?"

Kind = Literal[
    "speak", "calls", "answer", "ask_user", "submit_plan", "decline", "finish_step", "finish_task", "give_up",
    "deliver", "audit",
]  # fmt: skip
MOST_CALLS = 32
CUT_OFF = frozenset({"length", "max_tokens", "MAX_TOKENS", "max_output_tokens"})
"""How providers say that the reply was longer than they write."""
CLAIMS = ("finish_step", "finish_task")
LOOK_FIRST = "Look first: the results of the other calls came after this {name}. {name} again if they bear it out."
ALONE = "{name} must be the only call of a reply; act on results after you saw them"


@dataclass(frozen=True)
class Decision:
    """What the model decided: speech, calls of tools, or one control tool with its arguments."""

    kind: Kind
    arguments: dict[str, Any] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """`{id, name, args}`, arguments as they will run; `recall` counts as a call."""
    speech: str = ""
    id: str = ""
    """Id of the control tool's call, to be answered; "" when the decision stood in the text."""
    refused: dict[str, str] = field(default_factory=dict)
    """Calls of the same reply that are not made: id → what to answer them with."""
    claim: "Decision | None" = None
    """The claim to be done beside the changes that it rests on: it is weighed when they are made."""


@dataclass(frozen=True)
class Unusable:
    """Why a reply is no decision, in sentences for the model."""

    problems: list[str]
    speech: str = ""
    printed: bool = False
    """The reply made no tool call, so the model is told how a call can be printed."""
    hint: str = ""
    """How a good reply looks, for the last try."""
    by_call: dict[str, list[str]] = field(default_factory=dict)
    """Id of a call → what is wrong with this one; calls that are not in it are told everything."""

    def text(self, legal: Collection[str], id: str = "") -> str:
        """The message the model gets, or what this call of its reply is answered with."""
        tools = ", or calls of the tools you have" if "finish_step" in legal else ""
        how = ' Call it, or print {"action": "<name>", "arguments": {…}}.' if self.printed else ""
        said = _said(self.by_call.get(id) or self.problems)
        hint = f"\n{self.hint}" if self.hint else ""
        return f"Correction: nothing was done.\n{said}\nLegal now: {', '.join(legal)}{tools}.{how}{hint}"


@dataclass
class _Call:
    """One call of a reply on its way through the gates."""

    id: str
    name: str
    args: Any
    problems: list[str] = field(default_factory=list)
    spoken: str = ""
    """What is said beside a decision, as one of its arguments."""

    @property
    def decides(self) -> bool:
        """A control tool that ends the round by itself."""
        return self.name in NAMES and self.name not in LOOKUPS


def read(
    message: AIMessage, legal: Sequence[str], toolbox: Toolbox | None = None, *, printed: bool = True, result: str = ""
) -> Decision | Unusable:
    """Read a reply. `legal` are the control tools of this moment, `toolbox` the domain tools, if any may be called.

    `printed`: whether a decision may stand in the text, as it may with models that made no tool call so far.
    `result`: of a claim that was sent back; it stands where a claim names none.
    """
    text = whole(str(message.text))
    calls, speech, problems = _native(message), prose(text, None), []
    native = bool(calls)
    if not native and printed:
        found = from_text(text, legal, toolbox.names if toolbox else ())
        calls, speech, problems = [_Call(**call) for call in found.calls], found.speech, found.problems
        if found.goes_on:
            return Decision("speak", {"goes_on": True}, speech=speech)
    if (calls or problems) and cut_off(message):
        problems = ["the reply was cut off at the output limit, so its calls are not complete; say less"]
    elif len(calls) > MOST_CALLS:
        problems = [f"{len(calls)} calls in one reply; at most {MOST_CALLS}"]
    if problems:
        return Unusable(problems, speech, printed=not native)
    for call in calls:
        if result and call.name in CLAIMS and isinstance(call.args, Mapping) and not call.args.get("result"):
            call.args = {**call.args, "result": result}
        _check(call, legal, toolbox, speech)
    if calls:
        speech = "\n".join(filter(None, [speech, *(call.spoken for call in calls if call.spoken not in speech)]))
        return _chosen(calls, toolbox, speech, native)
    if not speech:
        return Unusable(["the reply is empty: no text and no tool call"], printed=printed)
    return Decision("speak", speech=speech)


def cut_off(message: AIMessage) -> bool:
    """Whether the provider says that the reply was longer than it writes."""
    said = message.response_metadata
    reasons = [said.get("finish_reason"), said.get("stop_reason"), said.get("done_reason")]
    details = said.get("incomplete_details")
    reasons += [details.get("reason")] if isinstance(details, Mapping) else []
    return any(str(reason).rpartition(".")[2] in CUT_OFF for reason in reasons if reason)


def _native(message: AIMessage) -> list[_Call]:
    """Tool calls, broken ones mended where only their syntax was wrong."""
    calls = [_Call(call["id"] or f"call_{n}", call["name"], call["args"]) for n, call in enumerate(message.tool_calls)]
    for number, broken in enumerate(message.invalid_tool_calls, len(calls)):
        name, raw = broken.get("name") or "", broken.get("args") or ""
        call = _Call(broken.get("id") or f"call_{number}", name, {})
        raw = _unpacked(raw)
        found = extract(raw, lambda value: isinstance(value, dict))
        if not name:
            call.problems = ["a call names no tool"]
        elif (
            found and found.value is not None and found.complete and not (raw[: found.start] + raw[found.end :]).strip()
        ):
            call.args = found.value
        else:
            why = "are cut off" if found and not found.complete else "are not valid JSON"
            call.problems = [f"the arguments of {name[:60]} {why}: {raw[:120]!r}"]
        calls.append(call)
    return calls


def _unpacked(raw: str) -> str:
    """JSON that was written into a string once more."""
    try:
        inner = json.loads(raw) if raw.lstrip().startswith('"') else raw
    except (ValueError, RecursionError):
        return raw
    return inner if isinstance(inner, str) else raw


def _check(call: _Call, legal: Sequence[str], toolbox: Toolbox | None, speech: str) -> None:
    """Put what is wrong with the call into it, its arguments read as the schema wants them where nothing is lost."""
    name, tools = call.name, toolbox.names if toolbox else ()
    if call.problems:
        return
    if name not in legal and name in NAMES:
        call.problems = [f"{name} is not legal here"]
    elif name not in legal and name not in tools:
        call.problems = [f"there is no tool {name[:60]!r}{near(name, [*legal, *tools])}"]
    elif problem := flaw(call.args):
        call.problems = [f"{name}: the value {problem}"]
    else:
        if name in legal:
            if name != "submit_plan" and isinstance(call.args, Mapping) and isinstance(call.args.get("speak"), str):
                call.spoken = call.args["speak"].strip()
                call.args = {key: item for key, item in call.args.items() if key != "speak"}
            call.args, problems = read_control(name, call.args, speech)
        else:
            assert toolbox is not None
            call.args, problems = toolbox.read(name, call.args)
        call.problems = [f"{name}: {problem}" for problem in problems]


def _chosen(calls: Sequence[_Call], toolbox: Toolbox | None, speech: str, native: bool) -> Decision | Unusable:
    """The decision in calls that passed their gates or did not: good calls run beside bad ones (X18).

    Calls beside a claim to be done run, beside any other control tool only the reads; what decides is answered with
    "look first" (X19), for it was written before the results were there; but a claim beside changes alone is weighed
    when they are made.
    """
    deciding = [call for call in calls if call.decides]
    if len(calls) == 1 and deciding and not calls[0].problems:
        return Decision(calls[0].name, calls[0].args, speech=speech, id=calls[0].id if native else "")  # type: ignore[arg-type]
    reads = any(call.name not in CLAIMS for call in deciding)
    run, refused = [], {}
    for call in calls:
        if call.problems:
            refused[call.id] = f"Correction: this call was not made.\n{_said(call.problems)}"
        elif call.decides:
            refused[call.id] = LOOK_FIRST.format(name=call.name)
        elif reads and call.name not in LOOKUPS and (toolbox is None or toolbox.effect(call.name) != "read"):
            refused[call.id] = f"Not made, because {deciding[0].name} stood beside it; decide one of them."
        else:
            run.append({"id": call.id, "name": call.name, "args": call.args})
    if run:
        claim = _claim(calls, deciding, toolbox) if native else None
        if claim:
            refused.pop(claim.id, None)
        return Decision("calls", calls=run, speech=speech, refused=refused, claim=claim)
    if deciding and not any(call.problems for call in calls):
        return Unusable([ALONE.format(name=deciding[0].name)], speech, printed=not native)
    by_call = {call.id: call.problems or [ALONE.format(name=call.name)] for call in calls}
    problems = [problem for call in calls for problem in call.problems]
    return Unusable(problems, speech, printed=not native, by_call=by_call)


def _claim(calls: Sequence[_Call], deciding: Sequence[_Call], toolbox: Toolbox | None) -> Decision | None:
    """Return the one claim of a reply whose other calls only change something: nothing of it waits for what is read."""
    others = [call for call in calls if not call.decides]
    writes = toolbox is not None and all(c.name not in LOOKUPS and toolbox.effect(c.name) != "read" for c in others)
    if len(deciding) != 1 or deciding[0].name not in CLAIMS or not writes or any(call.problems for call in calls):
        return None
    return Decision(deciding[0].name, deciding[0].args, id=deciding[0].id)  # type: ignore[arg-type]


def _said(problems: Sequence[str]) -> str:
    return "\n".join(f"- {problem}" for problem in problems[:20])


def read_control(name: str, args: Any, speech: str) -> tuple[Any, list[str]]:
    """The arguments as the tool wants them, where nothing is lost by that, and what is still wrong with them.

    Plans and goal_checks have readers of their own. `speech` is what was said beside the call.
    """
    args = _arguments(name).coerced(args)
    args = _asking(args, speech) if name == "ask_user" else args
    return args, _problems(name, args)


@lru_cache
def _arguments(name: str, *, whole: bool = True) -> "Arguments":
    """What reads a control tool's arguments; not `whole`, what checks those without a reader of their own."""
    from donewhen.graph.tools.arguments import Arguments  # with jsonschema, which only replies need

    schema = arguments_schema(name)
    if whole:
        return Arguments(schema)
    own = ("goal_check", "evidence", "sentences", "goal")  # with readers of their own
    asked = {key: rule for key, rule in schema["properties"].items() if key not in own}
    for key in (required := [key for key in schema["required"] if key in asked]):
        asked[key] = {**asked[key], **({"pattern": r"\S"} if asked[key]["type"] == "string" else {})}
    return Arguments({**schema, "properties": asked, "required": required}, closed=False)


def _asking(args: Any, speech: str) -> Any:
    """A question in no words of its own is what was said with it, else the reason, else a sentence of ours (X16)."""
    if not isinstance(args, Mapping) or str(args.get("question") or "").strip():
        return args
    return {**args, "question": speech or str(args.get("reason") or "").strip() or QUESTION}


def _problems(name: str, args: Any) -> list[str]:
    """What is wrong with the arguments of a control tool. Plans and goal_checks have readers of their own."""
    if not isinstance(args, Mapping):
        return ["the arguments must be an object"]
    if name == "submit_plan":
        return []
    if (size := len(json.dumps(args, ensure_ascii=False, default=str))) > CALLS_CHARS:
        return [f"the arguments have {size:,} characters; at most {CALLS_CHARS:,}"]
    carried = ["only submit_plan carries steps"] if args.get("steps") or args.get("plan_steps") else []
    return [*carried, *_arguments(name, whole=False).problems(dict(args))]
