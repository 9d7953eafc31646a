"""Read any reply of a model as a decision, or as a correction that the model can act on.

The gates, in order: parse → schema → legality → tool known → arguments. Approval and evidence need the run, and are
decided where the decision is carried out.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import invalid_tool_call

from donewhen.graph.llm.calls import read_arguments
from donewhen.graph.llm.endings import reached_limit
from donewhen.graph.llm.printed import read_printed
from donewhen.graph.sync import LARGE, run_in_thread
from donewhen.graph.tools.rendering import is_large
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.reading.decisions import CLAIMS, LOOKUPS, NAMES, PROGRAM, arguments_schema
from donewhen.state.reading.extraction import prose
from donewhen.state.records import Call
from donewhen.state.values import clean_text, json_problem, name_hint, texts_in

if TYPE_CHECKING:
    from donewhen.graph.tools.arguments import Arguments

Result = TypeVar("Result")
BEGINNING = 10_000
"""The characters that are kept of a reply that is too long to be read."""
CALLS_CHARS = 200_000
"""The most for all calls of one reply. A longer decision is refused; longer calls of tools are stored shortened."""
QUESTION = "I need your help to go on. What should I do?"

Kind = Literal[
    "speak", "calls", "answer", "ask_user", "submit_plan", "decline", "finish_step", "finish_task", "give_up",
    "deliver", "audit", "accept_plan", "consent",
]  # fmt: skip
MOST_CALLS = 32
"""The most calls of one reply; with more, none is made, and the model is told so."""
DECIDING = frozenset(NAMES) - frozenset(LOOKUPS) - {PROGRAM}
"""Control tools that end the round."""
LOOK_FIRST = "Look first: you wrote this {name} before the results of the other calls. Call it again if they agree."
ALONE = "{name} must be the only call of a reply; act on results after you saw them"


@dataclass(frozen=True)
class Decision:
    """A decision of the model: speech, calls of tools, or one control tool with its arguments."""

    kind: Kind
    arguments: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    """The calls to make, with the arguments as they will run; `recall` counts as one."""
    speech: str = ""
    id: str = ""
    """The id of the control tool's call, which has to be answered; "" if the decision was printed."""
    refused: dict[str, str] = field(default_factory=dict)
    """Calls of the same reply that are not made: id → their answer."""
    claim: "Decision | None" = None
    """A decision sent together with calls, which is carried out if all of them succeed: a claim beside the changes that
    it rests on, or a plan beside looks.
    """


@dataclass(frozen=True)
class UnusableReply:
    """A reply that is no decision, with the reasons in sentences for the model."""

    problems: list[str]
    speech: str = ""
    printed: bool = False
    """True if the reply made no tool call, so that the correction says how a call is printed."""
    hint: str = ""
    """An example of a good reply, added to the last correction."""
    by_call: dict[str, list[str]] = field(default_factory=dict)
    """Problems by the id of a call; calls that are not in it are told all problems."""

    def text(self, legal: Collection[str], id: str = "") -> str:
        """Return the correction for the model, or the answer to this call of its reply."""
        tools = ", or the tools you have" if {"finish_step", "decline"} & {*legal} else ""
        how = ' If you cannot call, print {"action": "<name>", "arguments": {…}}.' if self.printed else ""
        listed = _as_list(self.by_call.get(id) or self.problems)
        hint = f"\n{self.hint}" if self.hint else ""
        return f"Correction: nothing was done.\n{listed}\nCall one of these: {', '.join(legal)}{tools}.{how}{hint}"


@dataclass
class _ReplyCall:
    """One call of a reply on its way through the gates."""

    id: str
    name: str
    args: Any
    problems: list[str] = field(default_factory=list)
    spoken: str = ""
    """Speech in one of the arguments of a decision."""
    as_written: dict[str, Any] | None = None
    """The arguments as they were written, if the call is made with these; see `graph/tools/validation.py`."""


def read_reply(
    message: AIMessage,
    legal: Sequence[str],
    toolbox: Toolbox | None = None,
    *,
    printed: bool = True,
    result: str = "",
    replies: bool = False,
) -> Decision | UnusableReply:
    """Read a reply. `legal` are the control tools of this moment, `toolbox` the domain tools, if any may be called.

    `printed`: accept a decision in the text, as for models that made no tool call so far.
    `result`: the result of a claim that was sent back, for a claim that names none.
    `replies`: the speech beside a plan replies to what a person said, so it is the plan's `speak` if that has none.
    """
    text = clean_text(str(message.text))
    calls, speech, problems = _native_calls(message), prose(text, None), []
    native = bool(calls)
    if not native and printed:
        printed_decision = read_printed(text, legal, toolbox if toolbox is not None else ())
        calls, speech, problems = (
            [_ReplyCall(**call) for call in printed_decision.calls],
            printed_decision.speech,
            printed_decision.problems,
        )
        if printed_decision.goes_on:
            return Decision("speak", {"goes_on": True}, speech=speech)
    if len(calls) > MOST_CALLS:
        problems = [f"{len(calls)} calls in one reply; at most {MOST_CALLS}"]
    elif (calls or problems) and reached_limit(message):
        problems = ["the reply was cut off at the output limit, so its calls are not complete; say less"]
    if problems:
        return UnusableReply(problems, speech, printed=not native)
    for call in calls:
        if result and call.name in CLAIMS and isinstance(call.args, Mapping) and not call.args.get("result"):
            call.args = {**call.args, "result": result}
        _check_call(call, legal, toolbox, speech)
    if replies and speech and [call.name for call in calls] == ["submit_plan"] and not calls[0].problems:
        said = str(calls[0].args.get("speak") or "").strip()
        calls[0].args, speech = {**calls[0].args, "speak": said or speech}, speech if said else ""
    if calls:
        speech = "\n".join(filter(None, [speech, *(call.spoken for call in calls if call.spoken not in speech)]))
        return _choose(calls, toolbox, speech, native)
    if not speech:
        return UnusableReply(["the reply is empty: no text and no tool call"], printed=printed)
    return Decision("speak", speech=speech)


async def aside(about: AIMessage | Mapping[str, Any], work: Callable[[], Result]) -> Result:
    """Do work on a reply or on arguments: in a thread if these are long."""
    if isinstance(about, AIMessage):
        large = len(about.content) > LARGE or is_large([*about.tool_calls, *about.invalid_tool_calls])
    else:
        large = is_large(about)
    return cast("Result", await run_in_thread(work)) if large else work()


def without_excess(message: AIMessage, most: int) -> AIMessage:
    """Return a reply of at most `most` characters; of a longer one only the beginning of its text, as one cut off."""
    room = most - len(message.text)
    for text in texts_in([call["args"] for call in (*message.tool_calls, *message.invalid_tool_calls)]):
        room -= len(text) + 2
        if room < 0:
            break
    if room >= 0:
        return message
    about = {**message.response_metadata, "finish_reason": "length"}
    begun = [*message.tool_calls, *message.invalid_tool_calls][:1]
    cut = [invalid_tool_call(name=call["name"], args="{", id=call["id"], error="cut off") for call in begun]
    return AIMessage(message.text[:BEGINNING], id=message.id, invalid_tool_calls=cut, response_metadata=about)


def _native_calls(message: AIMessage) -> list[_ReplyCall]:
    """Return the tool calls; those with broken syntax are repaired if that is unambiguous."""
    calls = [
        _ReplyCall(call["id"] or f"call_{n}", call["name"], call["args"]) for n, call in enumerate(message.tool_calls)
    ]
    for number, broken in enumerate(message.invalid_tool_calls, len(calls)):
        name, raw = broken.get("name") or "", broken.get("args") or ""
        call, read = _ReplyCall(broken.get("id") or f"call_{number}", name, {}), read_arguments(raw)
        if not name:
            call.problems = ["a call names no tool"]
        elif read.value is not None:
            call.args = read.value
        else:
            why = "are cut off" if read.cut_off else "are not valid JSON"
            call.problems = [f"the arguments of {name[:60]} {why}: {raw[:120]!r}"]
        calls.append(call)
    return calls


def _check_call(call: _ReplyCall, legal: Sequence[str], toolbox: Toolbox | None, speech: str) -> None:
    """Check a call: note its problems in it, and coerce its arguments to the schema if nothing is lost by that."""
    name, tools = call.name, toolbox if toolbox is not None else ()
    if call.problems:
        return
    if name not in legal and name in NAMES:
        call.problems = [f"{name} is not legal here"]
    elif name not in legal and name not in tools:
        call.problems = [f"there is no tool {name[:60]!r}{name_hint(name, [*legal, *tools])}"]
    elif problem := json_problem(call.args):
        call.problems = [f"{name}: the value {problem}"]
    else:
        if name in legal:
            if name != "submit_plan" and isinstance(call.args, Mapping) and isinstance(call.args.get("speak"), str):
                call.spoken = call.args["speak"].strip()
                call.args = {key: item for key, item in call.args.items() if key != "speak"}
            call.args, problems = _read_control(name, call.args, speech)
        else:
            assert toolbox is not None
            call.args, problems, call.as_written = toolbox[name].read(call.args)
        call.problems = [f"{name}: {problem}" for problem in problems]


def _choose(
    calls: Sequence[_ReplyCall], toolbox: Toolbox | None, speech: str, native: bool
) -> Decision | UnusableReply:
    """Return the decision in checked calls. Valid calls run beside invalid ones (X18).

    All calls beside a claim to be done run; beside any other control tool only reads do. The control tool is answered
    with "look first" (X19), because it was written before the results were known. A claim beside nothing but changes
    is checked after they are made, and a plan beside looks is taken if none of them fails: it needed none.
    """
    deciding = [call for call in calls if call.name in DECIDING]
    if len(calls) == 1 and deciding and not calls[0].problems:
        return Decision(calls[0].name, calls[0].args, speech=speech, id=calls[0].id if native else "")  # type: ignore[arg-type]
    reads = any(call.name not in CLAIMS for call in deciding)
    run, refused = list[Call](), dict[str, str]()
    for call in calls:
        if call.problems:
            refused[call.id] = f"Correction: this call was not made.\n{_as_list(call.problems)}"
        elif call.name in DECIDING:
            refused[call.id] = LOOK_FIRST.format(name=call.name)
        elif reads and call.name not in LOOKUPS and (toolbox is None or toolbox.effect(call.name) != "read"):
            refused[call.id] = f"Not made, because {deciding[0].name} stood beside it; decide one of them."
        else:
            made: Call = {"id": call.id, "name": call.name, "args": call.args, "native": native, "position": len(run)}
            run.append(made if call.as_written is None else {**made, "given": call.as_written})
    if run:
        others = [call.name for call in calls if call.name not in DECIDING]
        changes = toolbox is not None and all(
            n not in (*LOOKUPS, PROGRAM) and toolbox.effect(n) != "read" for n in others
        )
        plans = [call.name for call in deciding] == ["submit_plan"]
        claim, good = None, not any(call.problems for call in calls)
        if native and good and len(deciding) == 1 and (plans or (changes and not reads)):
            claim = Decision(deciding[0].name, deciding[0].args, id=deciding[0].id)  # type: ignore[arg-type]
            del refused[claim.id]
        return Decision("calls", calls=run, speech=speech, refused=refused, claim=claim)
    if deciding and not any(call.problems for call in calls):
        return UnusableReply([ALONE.format(name=deciding[0].name)], speech, printed=not native)
    by_call = {call.id: call.problems or [ALONE.format(name=call.name)] for call in calls}
    problems = [problem for call in calls for problem in call.problems]
    return UnusableReply(problems, speech, printed=not native, by_call=by_call)


def answer_refused(decision: Decision) -> tuple[list[AnyMessage], list[str]]:
    """Return the answers to a decision's refused calls: messages, or texts.

    Printed calls have no id to answer, so the model is sent these texts with the results of the others.
    """
    if not decision.calls[0]["native"]:
        return [], list(decision.refused.values())
    return [ToolMessage(text, tool_call_id=id) for id, text in decision.refused.items()], []


def _as_list(problems: Sequence[str]) -> str:
    return "\n".join(f"- {problem}" for problem in problems[:20])


@lru_cache
def _argument_reader(name: str, *, whole: bool = True) -> "Arguments":
    """Return the reader of a control tool's arguments; without `whole`, of those that have no reader of their own."""
    from donewhen.graph.tools.arguments import Arguments  # with jsonschema, which only replies need

    schema = arguments_schema(name)
    if whole:
        return Arguments(schema)
    own = ("goal_check", "evidence", "sentences", "goal")  # with readers of their own
    asked = {key: rule for key, rule in schema["properties"].items() if key not in own}
    for key in (required := [key for key in schema["required"] if key in asked]):
        asked[key] = {**asked[key], **({"pattern": r"\S"} if asked[key]["type"] == "string" else {})}
    return Arguments({**schema, "properties": asked, "required": required}, closed=False)


def _with_known_names(name: str, args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments of a claim with its result and its goal_check under those names.

    An argument of another name is taken for one of them if no other can be meant: `summary` is the result if it is the
    only other text. A result that is data becomes its JSON.
    """
    properties, read = arguments_schema(name)["properties"], {**args}
    for key, form in (("result", str), ("goal_check", list | dict)):
        others = [each for each, item in args.items() if each not in properties and isinstance(item, form) and item]
        if not read.get(key) and len(others) == 1:
            read[key] = read.pop(others[0])
    if isinstance(read.get("result"), list | dict):
        read["result"] = json.dumps(read["result"], ensure_ascii=False)
    return read


def _unwrap(name: str, args: Any) -> Any:
    """Return the arguments that stand in an object of their own, such as `{"arguments": {…}}`."""
    properties = arguments_schema(name)["properties"]
    if isinstance(args, Mapping) and len(args) == 1 and not properties.keys() & args.keys():
        (inside,) = args.values()
        return inside if isinstance(inside, Mapping) and properties.keys() & inside.keys() else args
    return args


def _read_control(name: str, args: Any, speech: str) -> tuple[Any, list[str]]:
    """Coerce the arguments of a control tool if nothing is lost by that; return them with the remaining problems.

    Plans and goal_checks have readers of their own. A missing question is filled in: the speech beside the call, else
    its reason, else a default (X16).
    """
    size = len(json.dumps(args, ensure_ascii=False, default=str))
    if size > CALLS_CHARS and name != "submit_plan":
        return args, [f"the arguments have {size:,} characters; at most {CALLS_CHARS:,}"]
    args = _unwrap(name, args)
    args = _with_known_names(name, args) if name in CLAIMS and isinstance(args, Mapping) else args
    args = _argument_reader(name).coerce_all(args)
    if not isinstance(args, Mapping):
        return args, ["the arguments must be an object"]
    if name == "ask_user" and not str(args.get("question") or "").strip():
        args = {**args, "question": speech or str(args.get("reason") or "").strip() or QUESTION}
    if name == "submit_plan":
        return args, []
    carried = ["only submit_plan carries steps"] if args.get("steps") or args.get("plan_steps") else []
    return args, [*carried, *_argument_reader(name, whole=False).problems(dict(args))]
