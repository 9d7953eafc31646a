"""The script behind a ScriptedModel: its requests, its replies, and its failures."""

import hashlib
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from donewhen.agent.testing.replies import Call, audit, consent

ROLES = ("triage", "plan", "execute", "deliver", "judge")
_FIRST_WORDS = {
    "you are the triage": "triage",
    "you are the planner": "plan",
    "you are the executor": "execute",
    "you write the answer": "deliver",
    "you are the auditor": "judge",
    "you are the second reader": "judge",
}


@dataclass(frozen=True)
class Request:
    """One call of the model, as the model saw it."""

    role: str | None
    """`triage`, `plan`, `execute`, `deliver`, `judge`, or None if the system message names none of them."""
    step: str | None
    """The id of the brief's step."""
    messages: list[BaseMessage]
    tools: list[dict[str, Any]]
    """The tools offered, in OpenAI's format."""
    kwargs: dict[str, Any]
    """All other arguments of the call: `tool_choice`, `stop`, `reasoning_effort`, …"""

    @property
    def tool_names(self) -> list[str]:
        """Return the names of the offered tools, in order."""
        return [tool.get("function", tool).get("name", "") for tool in self.tools]

    @property
    def text(self) -> str:
        """Return the text of all messages, one after the other: for `in`."""
        return "\n".join(str(message.text) for message in self.messages)


def read_request(messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> Request:
    """Record a call, with the role and step found in the prompts."""
    rest = dict(kwargs) if stop is None else {**kwargs, "stop": stop}
    tools = list(rest.pop("tools", None) or [])
    role = step = None
    if messages and isinstance(messages[0], SystemMessage):
        first_line = str(messages[0].text).lstrip().partition("\n")[0].lower()
        role = next((role for words, role in _FIRST_WORDS.items() if first_line.startswith(words)), None)
    if role in ("execute", "judge"):
        brief = next((str(m.text) for m in messages if isinstance(m, HumanMessage)), "")
        match = re.search(r'^<step id="([^"\n]*)">', brief, re.MULTILINE)
        step = match[1] if match else None
    return Request(role, step, list(messages), tools, rest)


Policy: TypeAlias = Callable[[list[BaseMessage], list[dict[str, Any]]], Any]
"""`(messages, tools) -> reply`, or a coroutine function of that shape."""
Reply: TypeAlias = str | AIMessage | Call | Sequence[Call] | BaseException | type[BaseException] | Policy
Replies: TypeAlias = Sequence[Reply] | Policy
Roles: TypeAlias = Mapping[str, Replies | Mapping[str, Replies]]


class ScriptError(AssertionError):
    """The script and the run do not fit; it fails the test even if the runtime turned it into an outcome."""


class ScriptExhausted(ScriptError):
    """The model was called more often than the script has replies."""


class ScriptUnfinished(ScriptError):
    """The model was called less often than the script has replies."""


@dataclass
class Queue:
    """The replies of one role, or of one step of it."""

    name: str
    replies: Replies
    times: int | None = None
    """The number of calls that a policy must get; None means any number."""
    used: int = 0

    @property
    def size(self) -> int | None:
        """Return how many replies there are; None if there is no end."""
        return self.times if callable(self.replies) else len(self.replies)

    def take(self, strict: bool) -> Reply:
        """Return the next reply; raises IndexError if there is none."""
        if strict and self.size is not None and self.used >= self.size:
            raise IndexError
        self.used += 1
        if callable(self.replies):
            return self.replies
        return self.replies[min(self.used, len(self.replies)) - 1]


def passing_verdict(request: Request) -> Call:
    """Return a judge's reply without a doubt: all sentences are shown and the goal is met, or it is consent."""
    if [tool["function"]["name"] for tool in request.tools] == ["consent"]:
        return consent()
    return audit(count=len(re.findall(r"^\d+\. ", claims_of(request.text), re.MULTILINE)))


def claims_of(text: str) -> str:
    """Return the numbered sentences of a judge's request."""
    match = re.search(r"<claims[^>\n]*>\n(.*)\n</claims", text, re.DOTALL)
    return match[1] if match else ""


@dataclass(frozen=True)
class Turn:
    """A reply taken from the script, with the request that it answers and the ids that it gets."""

    request: Request
    reply: Reply
    message_id: str
    call_prefix: str
    first_call: int
    place: str = ""
    """The place of the reply in its script, and what it answers; for errors."""


class Script:
    """The state of a script, which all copies of a model share; safe to use from several threads."""

    def __init__(self, queues: dict[tuple[str | None, str | None], Queue], strict: bool, place: str = "") -> None:
        self.queues = queues
        self.place = place
        """The file and line of the script: `test_mail.py:12`."""
        self.strict = strict
        self.requests: list[Request] = []
        self.audits: list[Request] = []
        """A judge's requests without a scripted reply; the reply finds everything shown."""
        self.failures: list[AssertionError] = []
        self._calls: dict[str, int] = {}
        self._ids: set[str] = set()
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Script":
        return self

    @contextmanager
    def keep_failures(self) -> Iterator[None]:
        """Store assertions that fail inside, because the runtime may catch them."""
        try:
            yield
        except AssertionError as error:
            self.failures.append(error)
            raise

    def take(self, request: Request) -> Turn:
        """Return the reply to `request`; raises ScriptExhausted if there is none left."""
        with self._lock:
            if request.role == "judge" and not self._has_judge(request):
                self.audits.append(request)
                number = len(self.audits)
                return Turn(request, passing_verdict(request), f"audit_{number}", f"call_audit_{number}_", 1)
            self.requests.append(request)
            key, queue = self._queue(request)
            try:
                reply = queue.take(self.strict)
            except IndexError:
                raise ScriptExhausted(_too_often(queue, request, self.place)) from None
            last = request.messages[-1].type if request.messages else "none"
            place = f"reply {queue.used} of {queue.name} ({self.place}), to a message of type {last}"
            return Turn(request, reply, _message_id(queue, request), *self._next_call(key[1], request), place)

    def number_calls(self, turn: Turn, count: int) -> list[str]:
        """Return ids for `count` tool calls: `call_1`, …, or `call_s1_1`, … if the step has its own script."""
        with self._lock:
            first = max(turn.first_call, self._calls.get(turn.call_prefix, 0) + 1)
            self._calls[turn.call_prefix] = first + count - 1
        return [f"{turn.call_prefix}{number}" for number in range(first, first + count)]

    def message_id(self, turn: Turn, own_id: str | None) -> str:
        """Return the reply's own id, unless it was used before, because add_messages would overwrite."""
        with self._lock:
            id = turn.message_id if own_id is None or own_id in self._ids else own_id
            self._ids.add(id)
        return id

    def left_over(self) -> list[str]:
        """Return one line for each unused part of the script."""
        unused = [q for q in self.queues.values() if q.size is not None and q.used < q.size]
        return [f"{q.name}: {q.used} of {_count(q.size or 0, 'reply', 'replies')} used" for q in unused]

    def _has_judge(self, request: Request) -> bool:
        return ("judge", request.step) in self.queues or ("judge", None) in self.queues

    def _queue(self, request: Request) -> tuple[tuple[str | None, str | None], Queue]:
        for key in ((request.role, request.step), (request.role, None), (None, None)):
            if key in self.queues:
                return key, self.queues[key]
        return (None, None), Queue(_queue_name(request.role, request.step), ())

    def _next_call(self, step: str | None, request: Request) -> tuple[str, int]:
        # In a conversation that another model began, call_1 may be taken.
        prefix = f"call_{step}_" if step else "call_"
        ids = [c["id"] or "" for m in request.messages if isinstance(m, AIMessage) for c in m.tool_calls]
        taken = [int(id[len(prefix) :]) for id in ids if re.fullmatch(re.escape(prefix) + r"\d{1,9}", id)]
        return prefix, max(taken, default=0) + 1


def build_script(replies: Replies, roles: Roles | None, strict: bool, times: int | None) -> Script:
    """Sort replies into queues; raises ValueError or TypeError for replies that can never be used."""
    if times is not None and not callable(replies):
        raise ValueError("times counts the calls of a policy; a list of replies counts itself")
    queues: dict[tuple[str | None, str | None], Queue] = {}
    if callable(replies) or replies or not roles:
        queues[None, None] = Queue("the script", replies, times)
    for named_role, of_role in (roles or {}).items():
        role = "plan" if named_role == "draft" else named_role
        if role not in ROLES or (role, None) in queues:
            raise ValueError(
                f"unknown or repeated role {named_role!r}; roles are {', '.join(ROLES)} (draft means plan)"
            )
        is_table = isinstance(of_role, Mapping) and not is_reply(of_role)
        steps: dict[str | None, Any] = {**of_role} if is_table else {None: of_role}  # type: ignore[dict-item]
        for step, of_step in steps.items():
            queues[role, step] = Queue(_queue_name(role, step), of_step)
    for queue in queues.values():
        _check_kinds(queue)
    return Script(queues, strict, place_of_caller())


def place_of_caller() -> str:
    """Return file and line of the code that called into this package."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__", "")).startswith("donewhen.agent.testing."):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def playing(replies: Sequence[Any]) -> Policy:
    """Return a policy that plays a list of replies according to the progress of the conversation.

    A list in a ScriptedModel starts over in every process; this policy finds its place by the replies it sees, so
    that any process can continue.
    """

    caller = place_of_caller()

    def reply(messages: list[BaseMessage], tools: list[dict[str, Any]]) -> Any:
        place, last = sum(isinstance(message, AIMessage) for message in messages), messages[-1]
        problem = f"playing(…) of {caller} was asked for reply {place + 1} of {len(replies)}"
        assert place < len(replies), f"{problem}.{_describe_last(last)}"
        return replies[place]

    return reply


def _check_kinds(queue: Queue) -> None:
    if callable(queue.replies):
        return
    if isinstance(queue.replies, str | Mapping | AIMessage):
        what = "reply: put it in a list" if is_reply(queue.replies) else kind(queue.replies)
        raise TypeError(f"{queue.name}: expected a list of replies or a policy, got one {what}")
    for number, reply in enumerate(queue.replies, 1):
        if not is_reply(reply):
            raise TypeError(f"{queue.name}: reply {number} is no reply but {kind(reply)}; see ScriptedModel")


def is_reply(item: object) -> bool:
    """Return whether a script may hold `item`."""
    if isinstance(item, list | tuple):
        return all(is_call(part) for part in item)
    if isinstance(item, type):
        return issubclass(item, BaseException)
    return callable(item) or isinstance(item, str | AIMessage | BaseException) or is_call(item)


def is_call(item: object) -> bool:
    """Return whether `item` is a tool call as `call` and `broken_call` build them."""
    return isinstance(item, Mapping) and "name" in item and "args" in item


def kind(item: object) -> str:
    """Return the type of `item`, for messages; its value may be large."""
    return type(item).__name__


def _queue_name(role: str | None, step: str | None) -> str:
    return f"{role or 'the script'}{f' {step}' if step else ''}"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _too_often(queue: Queue, request: Request, place: str) -> str:
    shown = _describe_last(request.messages[-1]) if request.messages else ""
    caller = _queue_name(request.role, request.step)
    source = place if queue.name == caller else f"{queue.name}, {place}"
    count = _count(queue.size or 0, "reply", "replies")
    return f"{caller} was called again, but its script ({source}) has {count}.{shown}"


def _describe_last(last: BaseMessage) -> str:
    return f" The last message ({last.type}) was: {str(last.text)[:200]!r}"


def _message_id(queue: Queue, request: Request) -> str:
    # With the content, a second model on the same thread does not repeat an id; add_messages would overwrite.
    last = str(request.messages[-1].text) if request.messages else ""
    seed = f"{queue.name}\n{queue.used}\n{len(request.messages)}\n{last}"
    return f"msg_{queue.used}_{hashlib.sha256(seed.encode(errors='surrogatepass')).hexdigest()[:10]}"
