"""The replies of a scripted model: tool calls, a builder for each control tool, and a reply cut into chunks."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import regex
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    InvalidToolCall,
    ToolMessage,
    UsageMetadata,
)
from langchain_core.messages.tool import ToolCall, invalid_tool_call, tool_call, tool_call_chunk

Call: TypeAlias = ToolCall | InvalidToolCall
Citation: TypeAlias = str | tuple[str, str]
"""An observation id, or an observation id and a quote from it."""
Citations: TypeAlias = Citation | Sequence[Citation]
"""One for criterion 1, or a list with one per criterion."""


def call(name: str, /, **args: Any) -> ToolCall:
    """Return a call of tool `name` with these arguments; the scripted model gives it its id."""
    return tool_call(name=name, args=args, id=None)


def broken_call(name: str, arguments: str) -> InvalidToolCall:
    """Return a tool call whose arguments are the text `arguments`, which is no JSON object.

    Streamed, LangChain completes JSON that merely ends early, as it does with real models.
    """
    return invalid_tool_call(name=name, args=arguments, id=None, error="not a JSON object")


def reply(
    text: str = "",
    calls: Sequence[Call] = (),
    *,
    thinking: str | None = None,
    usage: Mapping[str, Any] | None = None,
    finish_reason: str | None = None,
) -> AIMessage:
    """Return a whole reply: speech, tool calls, thinking (as `reasoning_content`), and tokens.

    `usage` takes the keys of LangChain's `UsageMetadata`, missing counts are 0 and the total is their sum;
    without it the model estimates from lengths. `finish_reason` defaults to `stop` or `tool_calls`.
    """
    return AIMessage(
        content=text,
        tool_calls=[c for c in calls if not is_broken(c)],
        invalid_tool_calls=[c for c in calls if is_broken(c)],
        additional_kwargs={"reasoning_content": thinking} if thinking else {},
        usage_metadata=None if usage is None else _usage(usage),
        response_metadata={"finish_reason": finish_reason} if finish_reason else {},
    )


def is_broken(item: Mapping[str, Any]) -> bool:
    """Return whether a call's arguments are text instead of an object."""
    return item.get("type") == "invalid_tool_call"


def _usage(usage: Mapping[str, Any]) -> UsageMetadata:
    counts: dict[str, Any] = {"input_tokens": 0, "output_tokens": 0, **usage}
    counts.setdefault("total_tokens", counts["input_tokens"] + counts["output_tokens"])
    return cast(UsageMetadata, counts)


def answer(text: str, output: Any = None) -> ToolCall:
    """Answer without a plan, as the planner; `output` is the result as data, if an `output_type` is wanted."""
    return _sparse("answer", text=text, output=output)


def deliver(text: str, output: Any) -> ToolCall:
    """Deliver the answer, and the result as data; without an `output_type` the answer is mere text."""
    return call("deliver", text=text, output=output)


def ask_user(question: str, options: Sequence[str] | None = None, reason: str | None = None) -> ToolCall:
    """Ask a person, as the planner or an executor."""
    return _sparse("ask_user", question=question, options=options and list(options), reason=reason)


def submit_plan(
    steps: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
    title: str = "Plan",
    complexity: str | None = "moderate",
    need_thinking: bool = False,
    **kw: Any,
) -> ToolCall:
    """Submit steps, or one, as the planner; a string is a step's `content`, `kw` takes `schedule`, `speak`, others.

    A step that does not list its `tools` has none, so that its text may prove it; `tools=None` leaves them out.
    """
    listed = [steps] if isinstance(steps, str | Mapping) else steps
    written = [{"content": step} if isinstance(step, str) else dict(step) for step in listed]
    written = [step if "tools" in step else {**step, "tools": []} for step in written]
    return _sparse("submit_plan", title=title, complexity=complexity, need_thinking=need_thinking, steps=written, **kw)


def accept_plan() -> ToolCall:
    """Say, as the planner, that the user's words agree to exactly the plan that they were shown."""
    return call("accept_plan")


def consent(agrees: bool = True, why: str = "") -> ToolCall:
    """Say, as the judge, whether a person's words agree to exactly the plan that they were shown."""
    return call("consent", agrees=agrees, why=why)


def decline(reason: str, guidance: str) -> ToolCall:
    """Say, as the planner, that no adequate plan is possible, and what it would need."""
    return call("decline", reason=reason, guidance=guidance)


def criterion(number: int, *evidence: Citation, met: bool = True, note: str | None = None) -> dict[str, Any]:
    """Return one item of a goal_check: criterion `number`, from 1, shown by `"s1.1"` or `("s1.1", "quote")`."""
    item: dict[str, Any] = {"criterion": number, "met": met, "evidence": [_evidence(one) for one in evidence]}
    return item if note is None else {**item, "note": note}


def finish_step(
    result: str,
    evidence: Citations | None = None,
    *,
    goal_check: Sequence[Mapping[str, Any]] | None = None,
    unchanged: str | None = None,
) -> ToolCall:
    """Finish the step, as the executor; `unchanged` says why nothing had to be changed if it was granted writes.

    `evidence` is short for a goal_check that meets every criterion: one citation, `"s1.1"` or `("s1.1", "quote")`, for
    criterion 1, or a list, one per criterion. `goal_check` says it in full, see `criterion`. Without both, nothing is
    claimed.
    """
    return _sparse("finish_step", result=result, goal_check=_goal_check(evidence, goal_check), unchanged=unchanged)


def finish_task(
    result: str,
    evidence: Citations | None = None,
    *,
    goal_check: Sequence[Mapping[str, Any]] | None = None,
    reason: str = "",
    unchanged: str | None = None,
) -> ToolCall:
    """Finish the whole task early, as the executor, and say why; the evidence is given as in `finish_step`."""
    claim = {"result": result, "goal_check": _goal_check(evidence, goal_check), "reason": reason}
    return _sparse("finish_task", **claim, unchanged=unchanged)


def give_up(reason: str, kind: Literal["blocked", "failed", "replan"] = "failed") -> ToolCall:
    """Give up the step, as the executor."""
    return call("give_up", reason=reason, kind=kind)


def recall(observation: str, offset: int | None = None) -> ToolCall:
    """Read the whole of an earlier observation, as the executor, from character `offset` on."""
    return _sparse("recall", observation=observation, offset=offset)


def audit(
    *doubts: tuple[int, Literal["no", "contradicted"], str],
    count: int = 100,
    met: Literal["yes", "part", "no", "declined"] | None = None,
    missing: Sequence[str] = (),
) -> ToolCall:
    """Find, as the judge, each of `count` sentences shown except the doubted ones, `(number, "no", why)`.

    `met` says whether the goal is; without it, "part" where anything is missing.
    """
    doubted = {number: (shown, why) for number, shown, why in doubts}
    rows = [
        {"n": n, "shown": doubted.get(n, ("yes", ""))[0], "why": doubted.get(n, ("", ""))[1]}
        for n in range(1, count + 1)
    ]
    goal = {"met": met or ("part" if missing else "yes"), "missing": list(missing)}
    return call("audit", sentences=rows, goal=goal)


def observed(messages: Sequence[BaseMessage]) -> list[str]:
    """Return the ids of the successful observations in `messages`, in order: a policy can cite them.

    What an executor returned is one, too, in the message that shows it.
    """
    ends = {ToolMessage: "", HumanMessage: r"\n<tool_output "}
    found = [(str(each.text), ends[type(each)]) for each in messages if type(each) in ends]
    matches = (re.match(rf"\[([^\]\s]+)\] \S+ ok\b{end}", text) for text, end in found)
    return [match[1] for match in matches if match]


def _evidence(citation: Citation) -> dict[str, str]:
    match citation:
        case str():
            return {"observation": citation}
        case (str(id), str(quote)):
            return {"observation": id, "quote": quote}
    raise ValueError(
        f'a citation is "s1.1" or ("s1.1", "quote"), not {citation!r}; several for a criterion: criterion()'
    )


def _goal_check(evidence: Citations | None, goal_check: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
    if evidence is not None and goal_check is not None:
        raise ValueError("give evidence or goal_check, not both")
    if goal_check is not None:
        return [dict(item) for item in goal_check]
    if evidence is None:
        return []
    listed = evidence if isinstance(evidence, list) else [cast(Citation, evidence)]
    return [criterion(number, one) for number, one in enumerate(listed, 1)]


def _sparse(name: str, /, **args: Any) -> ToolCall:
    return call(name, **{key: value for key, value in args.items() if value is not None})


CHUNK = 8


def message_chunks(message: AIMessage) -> Iterator[AIMessageChunk]:
    """Yield thinking, text and tool calls in pieces of about eight characters; the last has tokens and metadata."""
    extra = dict(message.additional_kwargs)
    thinking = extra.pop("reasoning_content", None)
    whole = message.content if isinstance(message.content, list) else None
    empty: str | list[str | dict[str, object]] = "" if whole is None else []
    for piece in pieces(thinking or "", CHUNK):
        yield AIMessageChunk(content=empty, additional_kwargs={"reasoning_content": piece}, id=message.id)
    if whole is not None:
        yield AIMessageChunk(content=whole, id=message.id)
    for piece in pieces(str(message.text) if whole is None else "", CHUNK):
        yield AIMessageChunk(content=piece, id=message.id)
    for index, (name, arguments, id) in enumerate(written_calls(message)):
        head = tool_call_chunk(name=name, args="", id=id, index=index)
        yield AIMessageChunk(content=empty, tool_call_chunks=[head], id=message.id)
        for piece in pieces(arguments, CHUNK):
            tail = tool_call_chunk(args=piece, index=index)
            yield AIMessageChunk(content=empty, tool_call_chunks=[tail], id=message.id)
    yield AIMessageChunk(
        content=empty,
        additional_kwargs=extra,
        response_metadata=message.response_metadata,
        usage_metadata=message.usage_metadata,
        id=message.id,
        chunk_position="last",
    )


def written_calls(message: AIMessage) -> list[tuple[str | None, str, str | None]]:
    """Return name, arguments as written, and id of every tool call, broken ones last."""
    good = [(c["name"], json.dumps(c["args"], ensure_ascii=False), c["id"]) for c in message.tool_calls]
    return good + [(c["name"], c["args"] or "", c["id"]) for c in message.invalid_tool_calls]


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut `text` after about `size` characters, never within a visible character."""
    piece = ""
    for seen in regex.findall(r"\X", text):
        piece += seen
        if len(piece) >= size:
            yield piece
            piece = ""
    if piece:
        yield piece
