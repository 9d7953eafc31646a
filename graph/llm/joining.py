"""Join the chunks of a streamed reply into one message, in time that grows with their number and not with its square.

LangChain's own addition looks through all calls and blocks so far for each piece, and adds what servers repeat: the
reason of the end, and the usage so far.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, InvalidToolCall, ToolCall
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.messages.tool import invalid_tool_call, tool_call

from donewhen.state.proof.journal import call_key

Item = TypeVar("Item", ToolCall, InvalidToolCall)
_ONCE = frozenset({"type", "id", "index", "name", "output_version", "model_provider"})
"""Fields of a block that a later piece of it repeats, or leaves out."""
_LOOKS = 64
"""How often the arguments of one call are tried for being whole, where a server repeats its name."""


def join_chunks(chunks: Sequence[BaseMessage], *, adds_usage: bool = False) -> AIMessage:
    """Join chunks into the whole message. Calls get unique ids; arguments that are no JSON object become invalid calls.

    LangChain parses truncated arguments as if they were complete, which would turn half a call into a wrong one.
    The largest usage counts, as servers report it so far; with `adds_usage`, each report is of its own chunk.
    """
    first = chunks[0]
    parts = [chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)]
    if not isinstance(first, AIMessageChunk) or not parts:
        return _with_call_ids(first if isinstance(first, AIMessage) else AIMessage(first.text))
    calls, broken = _join_calls(part for chunk in parts for part in chunk.tool_call_chunks)
    message = AIMessage(
        content=_without_pieces(_join_contents([chunk.content for chunk in parts]), calls),
        additional_kwargs=_join_fields([chunk.additional_kwargs for chunk in parts]),
        response_metadata=_last_of_each(chunk.response_metadata for chunk in parts),
        usage_metadata=_join_usage([chunk.usage_metadata for chunk in parts], adds=adds_usage),
        id=_best_id(chunk.id for chunk in parts),
        tool_calls=calls,
        invalid_tool_calls=broken,
    )
    return _with_call_ids(message)


def _best_id(ids: Iterable[str | None]) -> str | None:
    """Return the provider's id if there is one, else the first of LangChain's own."""
    own_ids = [id for id in ids if id]
    return next((id for id in own_ids if not id.startswith("lc_")), own_ids[0] if own_ids else None)


def _last_of_each(mappings: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for each in mappings:
        joined |= {key: value for key, value in each.items() if value is not None or key not in joined}
    return joined


def _join_usage(reports: Sequence[UsageMetadata | None], *, adds: bool) -> UsageMetadata | None:
    present = [report for report in reports if report]
    if adds or len(present) < 2:
        total: UsageMetadata | None = None
        for report in present:
            total = add_usage(total, report)
        return total
    return cast(UsageMetadata, _largest(present))


def _largest(reports: Sequence[Any]) -> Any:
    """Return the largest number of each field, level by level."""
    present = [report for report in reports if report is not None]
    if not all(isinstance(report, Mapping) for report in present):
        return max((report for report in present if isinstance(report, int)), default=None)
    keys = dict.fromkeys(key for report in present for key in report)
    return {key: _largest([report.get(key) for report in present]) for key in keys}


# Contents --------------------------------------------------------------------------------------------------------


def _join_contents(contents: Sequence[str | list[Any]]) -> Any:
    if all(isinstance(content, str) for content in contents):
        return "".join(contents)  # type: ignore[arg-type]
    return _join_lists([[content] if isinstance(content, str) else content for content in contents if content])


def _without_pieces(content: Any, calls: Sequence[ToolCall]) -> Any:
    """Return the content with whole calls in place of their pieces, as LangChain's form `v1` has them."""
    if isinstance(content, str):
        return content
    whole = {call["id"]: {"type": "tool_call", **call} for call in calls if call["id"]}
    pieces = [isinstance(block, Mapping) and block.get("type") == "tool_call_chunk" for block in content]
    named = [whole.get(block.get("id")) if piece else block for block, piece in zip(content, pieces, strict=True)]
    return [block for block in named if block is not None]


def _join_lists(lists: Iterable[Sequence[Any]]) -> list[Any]:
    """Join lists; items of one index and one id are pieces of one item, and texts that follow each other one text."""
    rows: list[list[Any]] = []
    open: dict[Any, list[Any]] = {}
    for item in (item for items in lists for item in items):
        index = item.get("index") if isinstance(item, Mapping) else None
        numbered = isinstance(index, int) or (isinstance(index, str) and index.startswith("lc_"))
        row = open.get(index) if numbered else None
        if row is not None and item.get("id") and (id := _id_of(row)) and id != item["id"]:
            row = None
        if isinstance(item, str) and rows and isinstance(rows[-1][0], str):
            row = rows[-1]
        if row is None:
            rows.append(row := [])
            if numbered:
                open[index] = row
        row.append(item)
    return [_join_values(row) for row in rows]


def _id_of(row: Sequence[Mapping[str, Any]]) -> Any:
    return row[0].get("id") or next((item["id"] for item in row[1:9] if item.get("id")), None)


def _join_values(values: Sequence[Any]) -> Any:
    """Join the pieces of one value; where their types differ, the last one counts."""
    if len(values) == 1:
        return values[0]
    if all(isinstance(value, str) for value in values):
        return "".join(values)
    if all(isinstance(value, Mapping) for value in values):
        return _join_fields(values)
    return _join_lists(values) if all(isinstance(value, list) for value in values) else values[-1]


def _join_fields(pieces: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values_by_field: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            row = values_by_field.setdefault(key, [])
            if value is not None and not (key in _ONCE and row):
                row.append(value)
    return {key: _join_values(row) if row else None for key, row in values_by_field.items()}


# Calls -----------------------------------------------------------------------------------------------------------


@dataclass
class _Written:
    """A call while its pieces arrive."""

    id: str | None = None
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    _looks: int = 0

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def is_whole(self) -> bool:
        """Return True if the arguments so far are a JSON object."""
        last = next((piece for piece in reversed(self.pieces) if piece.strip()), "")
        if not last.rstrip().endswith("}") or self._looks >= _LOOKS:
            return False
        self._looks += 1
        return isinstance(_as_json(self.arguments), dict)

    def goes_on_with(self, id: str | None, name: str) -> bool:
        """Return True if a piece at the same place belongs to this call, and does not begin the next one.

        Some servers give all calls one index, and some repeat the name in each piece.
        """
        if id and self.id and id != self.id:
            return False
        return not name or bool(id and id == self.id) or not self.is_whole()

    def add(self, name: str, arguments: str) -> None:
        if name and name != self.name and not self.pieces:
            self.name += name
        if not arguments:
            return
        if len(self.pieces) == 1 and self.pieces[0].strip() == "{}" and arguments.lstrip().startswith("{"):
            self.pieces.clear()  # empty arguments before the real ones, as some servers begin a call
        self.pieces.append(arguments)


def _join_calls(parts: Iterable[Mapping[str, Any]]) -> tuple[list[ToolCall], list[InvalidToolCall]]:
    written: list[_Written] = []
    open: dict[Any, _Written] = {}
    for part in parts:
        index, id, name = part.get("index"), part.get("id") or None, part.get("name") or ""
        place = index if index is not None else ("id", id) if id and ("id", id) in open else None
        call = open.get(place) or (None if name else open.get(("id", id)))
        if call is None and written and not (name or id):
            call = written[-1]  # a piece that says nothing of where it belongs
        if call is None or not call.goes_on_with(id, name):
            written.append(call := _Written(id))
            open[place] = call
        call.id = call.id or id
        if call.id:
            open[("id", call.id)] = call
        call.add(name, part.get("args") or "")
    calls, broken = [], []
    for call in written:
        raw = _join_halves(call.arguments)
        arguments = _as_json(raw) if raw.strip() else {}
        if isinstance(arguments, dict) and call.name:
            calls.append(tool_call(name=call.name, args=arguments, id=call.id))
        else:
            broken.append(invalid_tool_call(name=call.name, args=raw, id=call.id, error="not a JSON object"))
    return calls, broken


def _join_halves(text: str) -> str:
    """Return the text with characters whole that arrived in halves, as from servers that cut in units of UTF-16."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _as_json(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


def _with_call_ids(message: AIMessage) -> AIMessage:
    """Give every call a unique id, which its result refers to; some servers send none, or the same for all.

    A call that was sent again with its id and its arguments is one call (X30).
    """
    message = _without_repeated_calls(message)
    call_ids = [call["id"] for call in (*message.tool_calls, *message.invalid_tool_calls)]
    ids: dict[str, None] = {}  # in order
    numbers: dict[str, int] = {}
    for id in call_ids:
        chosen = base = id or f"call_{message.id or 'reply'}"
        while chosen in ids:
            numbers[base] = number = numbers.get(base, 1) + 1
            chosen = f"{id or message.id or 'call'}_{number}"
        ids[chosen] = None
    if [*ids] == call_ids:
        return message
    unique = iter(ids)
    calls: list[ToolCall] = [{**call, "id": next(unique)} for call in message.tool_calls]
    broken: list[InvalidToolCall] = [{**call, "id": next(unique)} for call in message.invalid_tool_calls]
    return message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": broken})


def _without_repeated_calls(message: AIMessage) -> AIMessage:
    """Return the message with each call once that came twice with the same id, name and arguments."""
    calls = _once(message.tool_calls, lambda call: call_key(call["name"], call["args"]))
    broken = _once(message.invalid_tool_calls, lambda call: (call.get("name"), call.get("args")))
    if (len(calls), len(broken)) == (len(message.tool_calls), len(message.invalid_tool_calls)):
        return message
    change: dict[str, Any] = {"tool_calls": calls, "invalid_tool_calls": broken}
    if isinstance(message.content, list):  # some providers send calls as blocks, and get them back so
        left = Counter(call["id"] for call in (*calls, *broken))
        change["content"] = []
        for block in message.content:
            if id := _call_of(block):
                left[id] -= 1
            if not id or left[id] >= 0:
                change["content"].append(block)
    return message.model_copy(update=change)


def _call_of(block: Any) -> str | None:
    """Return the id of the call that a block is; None for any other block."""
    calls = isinstance(block, Mapping) and block.get("type") in ("tool_use", "function_call", "tool_call")
    return (block.get("call_id") or block.get("id")) if calls else None


def _once(items: Sequence[Item], content: Callable[[Item], Any]) -> list[Item]:
    """Return the items without those that have the id and the content of an earlier one."""
    counts = Counter(item["id"] for item in items)
    seen: set[tuple[Any, ...]] = set()
    distinct: list[Item] = []
    for item in items:
        if (id := item["id"]) and counts[id] > 1:
            if (key := (id, content(item))) in seen:
                continue
            seen.add(key)
        distinct.append(item)
    return distinct
