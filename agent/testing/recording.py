"""A recorded run, replayed offline: models reply as they did, tools return what they did, people answer as they did.

The first difference fails the replay: a prompt, a call, or the end of the run.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from typing import Any, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.agent import Agent
from donewhen.agent.run import Run
from donewhen.agent.testing.script import Policy, ScriptError, ScriptUnfinished, read_request
from donewhen.agent.testing.scripted import ScriptedModel
from donewhen.agent.tools import described_tool
from donewhen.agent.work.recorder import VERSION, collect_rows, plain_message, save_rows
from donewhen.state.errors import ConfigError
from donewhen.state.proof.journal import call_key
from donewhen.state.run import Json
from donewhen.state.secrets import redact

MOST_LINES = 60
"""Of a difference, what is shown."""


class ReplayDifference(AssertionError):
    """Something is not as it was recorded; the message says what came first."""


@dataclass
class Recording:
    """One request of a thread: how it began, each reply with its prompt, each answer, each result, and its end."""

    rows: list[Json]
    differences: list[str] = field(default_factory=list, repr=False)
    """What was different in a replay, in its order."""

    @classmethod
    async def of(cls, agent: Agent, run: Run | str) -> Self:
        """Return what was recorded of a run that ended, by an agent with `record=True`. Raises ConfigError."""
        thread_id = str(run.thread_id if isinstance(run, Run) else run)
        snapshot = await agent.graph.aget_state({"configurable": {"thread_id": thread_id}})
        return cls(await collect_rows(agent.storage, thread_id, snapshot.values))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the recording of a file. Raises ConfigError for one that is none, or of a later version."""
        try:
            rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
            version = rows[0]["version"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{path} is no recording: {error}") from error
        if version != VERSION:
            raise ConfigError(f"{path} is a recording of version {version}; this reads {VERSION}: record it again")
        return cls(rows)

    def save(self, path: str | Path, redact: Callable[[str], str] = redact) -> None:
        """Write it, a row a line; `redact` goes over every text in it, and takes credentials out by default."""
        save_rows(self.rows, path, redact)

    def _of(self, kind: str) -> list[Json]:
        return [row for row in self.rows if row["kind"] == kind]

    def tools(self) -> list[BaseTool]:
        """Return tools in place of those there were: each call returns what it did return, in that order."""
        left: dict[str, list[Json]] = {}
        for row in self._of("result"):
            left.setdefault(call_key(row["tool"], row["arguments"]), []).append(row)

        def results(name: str, arguments: Json) -> Any:
            kept = left.get(call_key(name, arguments))
            if not kept:
                self.differences.append(f"{name} is called with {json.dumps(arguments)[:500]}, which was not recorded")
                raise ToolException("not recorded")
            row = kept.pop(0) if len(kept) > 1 else kept[0]
            if not row["ok"]:
                raise ToolException(row["text"])
            return row["text"]

        made = [described_tool(about["name"], about, results) for about in self._of("start")[0]["tools"]]
        for tool, about in zip(made, self._of("start")[0]["tools"], strict=True):
            tool.metadata = {**(tool.metadata or {}), **about["metadata"]}
        return list(made)

    def model(self, *, prompts: bool = True) -> ScriptedModel:
        """Return a model that replies as recorded, by role and step; `prompts=False` takes any prompt."""
        messages: dict[str, Json] = {}
        roles: dict[str, dict[Any, dict[str, Policy]]] = {}
        for row in self._of("reply"):
            messages |= row["new"]
            asked = [messages[key] for key in row["asked"]]
            request = read_request([_restore(each) for each in asked], None, {})
            if request.role is None:
                continue  # of a tool or an executor, which do not run in a replay
            queue = roles.setdefault(request.role, {}).setdefault(request.step, {})
            name = f"reply {len(queue) + 1} of {request.role}{f' {request.step}' if request.step else ''}"
            # The same request again is that of a process that died before it acted on the reply.
            queue[json.dumps(row["asked"])] = self._reply(name, asked, row["reply"], prompts)
        return ScriptedModel(
            roles={role: {step: [*of.values()] for step, of in by.items()} for role, by in roles.items()}
        )

    def _reply(self, name: str, asked: list[Json], said: Json, prompts: bool) -> Policy:
        def reply(messages: list[BaseMessage], tools: list[Json]) -> AIMessage:
            if prompts and (found := _difference(asked, [plain_message(each) for each in messages])):
                self.differences.append(f"{name}: the prompt is another one: {found}")
            return _message(said)

        return reply

    async def replay(self, *, prompts: bool = True, tools: Sequence[Any] | None = None, **options: Any) -> Run:
        """Run it again, offline, with an agent made with these options. Raises ReplayDifference for the first change.

        `tools`: yours, which are then really called, in place of those that return what was recorded.
        """
        start, end, self.differences = self._of("start")[0], self._of("end")[0], []
        model = self.model(prompts=prompts)
        given = {
            "storage": "memory:",
            "prices": {"scripted": {"input": 0, "output": 0}},
            **options,
            "settings": {**start["settings"], **dict(options.get("settings") or {})},
        }
        async with Agent(model, self.tools() if tools is None else tools, **given) as agent:
            run = await agent.start(start["goal"])
            for row in self._of("answer"):
                self._check(model, run, "waiting")
                run = await agent.resume(run, row["answer"])
        self._check(model, run, end["status"])
        code = run.outcome["code"] if run.outcome else ""
        if code != end["code"]:
            raise ReplayDifference(f"it ended with {code!r}; recorded: {end['code']!r}")
        if found := _diff(_masked(end["text"]), _masked(run.answer)):
            raise ReplayDifference(f"the answer is another one:\n{found}")
        try:
            model.assert_exhausted()
        except ScriptUnfinished as error:
            raise ReplayDifference(str(error)) from None
        return run

    def _check(self, model: ScriptedModel, run: Run, status: str) -> None:
        """Raise ReplayDifference for what was different first."""
        if said := [*self.differences, *(str(each) for each in model.failures if isinstance(each, ScriptError))]:
            raise ReplayDifference(said[0])
        if run.status != status:
            asked = f": {run.pending[0]['question']}" if run.pending else f" ({run.answer})" if run.answer else ""
            raise ReplayDifference(f"the run is {run.status}{asked}; recorded: {status}")


def _message(said: Json) -> AIMessage:
    calls = said.get("calls") or ()
    return AIMessage(
        said["text"],
        id=said.get("id"),
        usage_metadata=said.get("usage"),
        tool_calls=[{**_call(each), "type": "tool_call"} for each in calls if isinstance(each["args"], Mapping)],
        invalid_tool_calls=[
            {**_call(each), "error": each.get("error"), "type": "invalid_tool_call"}
            for each in calls
            if not isinstance(each["args"], Mapping)
        ],
    )


def _call(call: Json) -> Any:
    return {key: call.get(key) for key in ("name", "args", "id")}


def _restore(plain: Json) -> BaseMessage:
    """Return a message by which a request is told apart."""
    return (SystemMessage if plain["type"] == "system" else HumanMessage)(plain["text"])


def _difference(recorded: Sequence[Json], now: Sequence[Json]) -> str:
    """Return the first message that is another one; "" if all are the same but for the day and a thread's own word."""
    before, after = _texts(recorded), _texts(now)
    for number, (one, other) in enumerate(zip(before, after, strict=False), 1):
        if one != other:
            return f"message {number}\n{_diff(one, other)}"
    return "" if len(before) == len(after) else f"{len(after)} messages; recorded: {len(before)}"


def _texts(messages: Iterable[Json]) -> list[str]:
    plain = [dict(message) for message in messages]
    said = [
        json.dumps(each.get("calls"), sort_keys=True, ensure_ascii=False) if each.get("calls") else "" for each in plain
    ]
    whole = "\0".join(f"{each['type']}: {each['text']}\n{calls}" for each, calls in zip(plain, said, strict=True))
    return _masked(whole).split("\0")


def _masked(text: str) -> str:
    """Return the text without what no two runs have in common: the word of its frames, and the day."""
    for word in set(re.findall(r"<fence>\n(\w+)\n</fence>", text)):
        text = text.replace(word, "fence")
    return re.sub(r"<today>\n.*\n</today>", "<today>", text)


def _diff(before: str, now: str) -> str:
    lines = list(unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", n=1, lineterm=""))
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more])
