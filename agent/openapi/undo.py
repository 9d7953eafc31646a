"""Put back what a change of an object replaced, by another request of the API.

What is kept of a change, in the thread's store, is `place` (the values of its path), `fields` (what to put back; None:
remove the object), and `now` (what they were afterwards; None: the object was removed).
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import ToolException

from donewhen.agent.openapi.document import Operation
from donewhen.graph.tools.changes import HOLDS_CREDENTIAL, Keeper, Result, keeper
from donewhen.graph.tools.rendering import describe_error
from donewhen.state.secrets import REDACTED
from donewhen.state.values import Json, same_json

GONE: Any = object()
"""Stands for an object that is not there."""
NO_WAY_BACK = "the API has no operation that takes it back"
UNKNOWN = "what was there is not known"


@dataclass(frozen=True)
class ApiUndo:
    """Undoes the changes of one operation, by the operation `back`. It is the `undo` in the metadata of a tool."""

    operation: Operation
    back: Operation
    """The operation itself; PUT for an object that was deleted; DELETE for one that was made."""
    look: Callable[[Mapping[str, Any]], Awaitable[Any]]
    """Returns the object with these values of its path: GONE if there is none, or an error."""
    send: Callable[[Operation, Json], Awaitable[Any]]

    async def keep(self, arguments: Json, before: Any) -> "KeptChange | None":
        """Keep what a change is about to replace; None if nothing is kept here. `before` is what `look` returned."""
        if (keeping := keeper.get()) is None:
            return None
        entry = self._entry(self.operation.place_of(arguments))
        fields, lost = self._fields_of(arguments, before)
        if fields is not None and REDACTED.encode() in _written(fields):
            lost = "a key in it is hidden"
        elif fields is not None and not keeping.may_hold(written := _written(fields), 0, len(written)):
            lost = HOLDS_CREDENTIAL
        entry |= {"lost": lost} if lost else {"fields": fields, "now": self._sent(arguments, fields)}
        return KeptChange(keeping, entry, await keeping.keep_async(entry))

    async def keep_made(self, arguments: Json, answer: Any) -> None:
        """Keep that an object was made, if the answer says which; if it cannot be kept, undo does not see it."""
        if (keeping := keeper.get()) is None or not isinstance(answer, dict):
            return
        place = self.operation.place_of(arguments)
        (name,) = (each.name for each in self.back.parameters if each.place == "path" and each.name not in place)
        id = answer.get(name, answer.get("id"))
        if isinstance(id, str | int) and not isinstance(id, bool) and REDACTED not in str(id):
            now = _written(answer)
            object_made = answer if keeping.may_hold(now, 0, len(now)) else {}
            with suppress(ToolException):
                await keeping.keep_async(self._entry({**place, name: id}) | {"fields": None, "now": object_made})

    def _entry(self, place: Json) -> Json:
        path = self.back.path
        for name, value in place.items():
            path = path.replace("{" + name + "}", str(value))
        return {"path": path, "to": "", "by_tool": True, "place": place}

    def _fields_of(self, arguments: Json, before: Any) -> tuple[Json | None, str]:
        """Return what to put back, or why that is not possible."""
        if not isinstance(before, dict):
            return None, UNKNOWN
        body = [each for each in self.back.parameters if each.place == "body"]
        if self.back.method == "patch" and not self.back.whole_body:
            body = [each for each in body if each.argument in arguments]
            missing = [each.name for each in body if each.name not in before]
        elif self.back.whole_body:
            return before, ""
        else:
            missing = [each.name for each in body if each.required and each.name not in before]
        if missing:
            return None, f"{UNKNOWN}: {', '.join(missing)}"
        return {each.name: before[each.name] for each in body if each.name in before}, ""

    def _sent(self, arguments: Json, fields: Json | None) -> Json | None:
        """Return the values of these fields after the change, as far as the request says them."""
        if self.operation.method == "delete":
            return None
        sent = {each.name: arguments[each.argument] for each in self.operation.parameters if each.argument in arguments}
        return {name: value for name, value in sent.items() if name in (fields or {})}

    async def read(self, entry: Json) -> Any:
        """Return the object of a change as it is now."""
        return await self.look(entry["place"])

    def check(self, entry: Json, current: Any) -> tuple[Result, str, Any]:
        """Return whether a change can be undone while its object is `current`, why not, and the object after that."""
        path, fields, now = entry["path"], entry["fields"], entry["now"]
        if isinstance(current, Exception):
            return "refused", f"{path} cannot be read: {describe_error(current)[:200]}", current
        if current is GONE:
            if now is None:
                return "restored", "", fields
            return (
                ("unchanged", "it is not there any more", current)
                if fields is None
                else _refuse(path, "is gone", current)
            )
        if not isinstance(current, dict):
            return _refuse(path, "is no object", current)
        if fields is not None and not _differing(fields, current):
            return "unchanged", "it is as it was before", current
        if now is None:
            return _refuse(path, "exists again", current)
        shown = {name: each for name, each in now.items() if name in current}
        if changed := _differing(shown if fields is None else now, current):
            return _refuse(path, f"changed since: {', '.join(changed)}", current)
        return "restored", "", GONE if fields is None else {**current, **fields}

    async def undo(self, entry: Json) -> tuple[Result, str]:
        """Undo a change, if its object is still as the change left it."""
        result, why, _ = self.check(entry, await self.read(entry))
        if result != "restored":
            return result, why
        place, fields = entry["place"], entry["fields"] or {}
        arguments = self.back.arguments_at(place)
        body = [each for each in self.back.parameters if each.place == "body"]
        if self.back.whole_body and entry["fields"] is not None:
            arguments |= {each.argument: fields for each in body}
        else:
            arguments |= {each.argument: fields[each.name] for each in body if each.name in fields}
        try:
            await self.send(self.back, arguments)
        except Exception as error:
            return "refused", f"{entry['path']}: {describe_error(error)[:300]}"
        current = await self.read(entry)
        if (
            current is GONE
            if entry["fields"] is None
            else isinstance(current, dict) and not _differing(fields, current)
        ):
            return "restored", ""
        return "refused", f"{entry['path']} does not show what was put back"


@dataclass(frozen=True)
class KeptChange:
    """A change that is kept; what its object became is added once that is known."""

    keeping: Keeper
    entry: Json
    key: str
    """The key of the entry in the store."""

    async def note_result(self, after: Any) -> None:
        """Keep what the object was after the change."""
        if self.entry.get("fields") is None or not isinstance(after, dict):
            return
        now = {name: after[name] for name in self.entry["fields"] if name in after}
        written = _written(now)
        if self.keeping.may_hold(written, 0, len(written)):
            with suppress(ToolException):
                await self.keeping.keep_async({**self.entry, "now": now}, self.key)

    async def forget(self) -> None:
        """Delete what was kept, because nothing was changed; if that fails, it stays."""
        with suppress(ToolException):
            await self.keeping.forget(self.key)


def _written(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _differing(wanted: Mapping[str, Any], current: Mapping[str, Any]) -> list[str]:
    return [name for name, value in wanted.items() if not same_json(value, current.get(name))]


def _refuse(path: str, how: str, current: Any) -> tuple[Result, str, Any]:
    return "refused", f"{path} {how}", current


def find_way_back(operation: Operation, operations: Mapping[tuple[str, str], Operation]) -> Operation | None:
    """Return the operation that puts back what another one replaced, removed or made; None if there is none.

    `operations` are found by method and path.
    """
    if operation.method in ("put", "patch", "delete"):
        back = operations.get(("put", operation.path)) if operation.method == "delete" else operation
        return back if back and back.needs_only("path", "body") else None
    if operation.method != "post":
        return None
    below = f"{operation.path.rstrip('/')}/{{"
    candidates = [
        each
        for (method, path), each in operations.items()
        if method == "delete" and path.startswith(below) and path.endswith("}") and "/" not in path[len(below) :]
        if ("get", path) in operations and each.needs_only("path")
    ]
    return candidates[0] if len(candidates) == 1 else None
