"""Replay a recorded thread offline: models, tools and people do what was recorded.

The first difference fails the replay: a prompt, a call, or the end of a request.
"""

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from langchain_core.tools import BaseTool

from donewhen.agent.agent import Agent
from donewhen.agent.options import AgentOptions
from donewhen.agent.run import Run, id_of
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.testing.replaying import RecordedRequest, diff, mask_varying_parts
from donewhen.agent.testing.script import ScriptError, ScriptUnfinished
from donewhen.agent.testing.scripted import ScriptedModel
from donewhen.agent.work.recorder import VERSION, collect_rows, describe_tool, save_rows, without_moments
from donewhen.agent.work.thread_rows import QUEUE, enqueue
from donewhen.graph.deliver import note_undone
from donewhen.graph.executors.executor import Executor
from donewhen.graph.people.interjections import hearing
from donewhen.graph.tools.toolbox import from_function
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.people.answers import read_signed
from donewhen.state.settings import merge_settings

QUESTION_CHARS = 300
"""The most characters shown of a question or an answer."""


class ReplayDifference(AssertionError):
    """The replay differs from the recording; the message has the first difference."""


@dataclass
class Recording:
    """A thread: how each request began, each reply with its prompt, each answer, each result, and each end."""

    rows: list[Json]
    differences: list[str] = field(default_factory=list, repr=False)
    """The differences found by a replay."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values that a saved file does not contain; `of` takes those that the agent knows."""

    @classmethod
    async def of(cls, agent: Agent, run: Run | str) -> Self:
        """Return the recording of an ended run of an agent that records. Raises ConfigError if there is none."""
        thread_id = id_of(run)
        snapshot = await agent.graph.aget_state({"configurable": {"thread_id": thread_id}})
        return cls(await collect_rows(agent.storage, thread_id, snapshot), secrets=agent.secrets)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the recording in a file. Raises ConfigError if it is cut off, of a later version, or none."""
        try:
            rows = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line.strip()]
            version = rows[0]["version"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(f"{path} is no recording: {error}") from error
        if not 1 <= version <= VERSION:
            raise ConfigError(f"{path} is a recording of version {version}; this reads {VERSION}: record it again")
        recording = cls(rows)
        if not recording._requests()[-1].of("end"):
            raise ConfigError(f"{path} is cut off: the end of its last request is missing")
        return recording

    def save(self, path: str | Path, redact: Callable[[str], str] | None = None) -> None:
        """Write the recording as JSON Lines, without credentials; `redact` is then applied to every text."""
        save_rows(self.rows, path, redact, self.secrets)

    def _requests(self) -> list[RecordedRequest]:
        starts = [n for n, row in enumerate(self.rows) if row["kind"] == "start"]
        ends = [*starts[1:], len(self.rows)]
        return [RecordedRequest(self.rows[a:b], self.differences) for a, b in zip(starts, ends, strict=True)]

    async def replay(self, *, prompts: bool = True, tools: Sequence[Any] | None = None, **options: Any) -> Run:
        """Run it again offline, with an agent of these options. Raises ReplayDifference for the first difference.

        `tools`, and `executors` and `hooks` among the options, are really called; without them, recorded results are
        returned. `prompts=False` accepts any prompt.
        """
        self.differences = []
        storage_option, thread_id, run = options.pop("storage", "memory:"), str(uuid4()), None
        storage = storage_option if isinstance(storage_option, Storage) else open_storage(storage_option)
        try:
            for request in self._requests():
                run = await _Replay(request, storage, thread_id, options, tools, prompts).carry_out()
        finally:
            if storage is not storage_option:
                await storage.aclose()
        assert run is not None, "a recording has a request"
        return run


@dataclass
class _Replay:
    """One request that is replayed on a thread."""

    request: RecordedRequest
    storage: Storage
    thread_id: str
    options: Mapping[str, Any]
    tools: Sequence[Any] | None
    prompts: bool

    async def carry_out(self) -> Run:
        """Begin the request, do what people did, and return the run as it ended."""
        request, run = self.request, None
        model = request.model(prompts=self.prompts)
        token = hearing.set(request.hear)
        try:
            async with self._agent(model) as agent:
                request.stop = agent.drain
                if self.prompts and (self.tools is not None or self.options.get("executors")):
                    self._check_tools(agent)
                for at, row in enumerate(request.rows):
                    request.stop_after = request.replies_before_stop(at)
                    run = await self._replay_row(agent, model, row, run)
        finally:
            hearing.reset(token)
        assert run is not None, "a request has a start"
        try:
            model.assert_exhausted()
        except ScriptUnfinished as error:
            raise ReplayDifference(str(error)) from None
        return run

    def _agent(self, model: ScriptedModel) -> Agent:
        """Return the agent that does what was recorded, except where the options replace it."""
        recorded = self.request.tools()
        executors: dict[str, Any] = {**self.request.executors(recorded)}
        for name, executor in (self.options.get("executors") or {}).items():
            executors[name] = _with_recorded(executor, recorded) if self.tools is None else executor
        tools = self.request.common_tools(recorded) if self.tools is None else self.tools
        request, options = self.request, self.request.options(self.options.get("options") or AgentOptions())
        arguments = {"hooks": request.hooks(), "skills": request.skills(), **self.options, "options": options}
        arguments |= {"storage": self.storage, "executors": executors}
        return Agent(request.models(model), tools, **arguments)

    def _check_tools(self, agent: Agent) -> None:
        """Raise ReplayDifference for the first tool that is missing, new, or described differently."""
        before = {about["name"]: about for about in self.request.start["tools"]}
        toolbox = agent.executors.toolbox
        now = {name: describe_tool(toolbox, name) for name in toolbox}
        for name in [*before, *now]:
            if name not in now or name not in before:
                raise ReplayDifference(f"the tool {name} is {'missing' if name in before else 'new'}")
            for key in ("description", "effect", "input_schema"):
                if (one := _as_lines(before[name][key])) != (other := _as_lines(now[name][key])):
                    raise ReplayDifference(f"the tool {name} has another {key}:\n{diff(one, other)}")

    async def _replay_row(self, agent: Agent, model: ScriptedModel, row: Json, run: Run | None) -> Run | None:
        """Do what a row recorded, and return the run; rows that models, tools and hooks read are skipped."""
        match row["kind"]:
            case "start":
                settings = merge_settings(self.request.settings_of(row), agent.settings)
                async with self.storage.session(self.thread_id) as (_, store):
                    await enqueue(store, self.thread_id, QUEUE, self.request.request(settings))
                return await agent.run_submitted(self.thread_id)
            case "answer":
                run = self._check(model, run, "waiting")
                _check_question(row.get("asked"), run.pending[0])
                self.request.say_until(row.get("at") or "")
                changed = merge_settings(self.request.settings_of(row), agent.settings) if "settings" in row else None
                first, answer = run.pending[0], row["answer"]
                answers = answer["answers"] if isinstance(answer, dict) and set(answer) == {"answers"} else {}
                answers = answers or {first["id"]: answer}
                if all(read_signed(each)[1] is None for each in answers.values()):
                    return await agent.resume(run, answer, settings=changed)
                work = {"answers": answers, "asks": first["interrupt_id"]}  # perhaps of several people
                async with self.storage.session(self.thread_id) as (_, store):
                    await enqueue(store, self.thread_id, QUEUE, work, settings=changed)
                return await agent.run_submitted(self.thread_id)
            case "steer":
                run = self._check(model, run, "running")
                return await agent.resume(run, steer=row["text"])
            case "cancel":
                self._check(model, run, "waiting" if row["waiting"] else "running")
                return await agent.cancel(self.thread_id, row["reason"], by=row.get("by", ""))
            case "audit":
                return await agent.audit(self.thread_id, self.request.settings_of(row))
            case "undone":
                config: Any = {"configurable": {"thread_id": self.thread_id}}
                values = (await agent.graph.aget_state(config)).values
                await agent.graph.aupdate_state(config, note_undone(values, row["rows"]), as_node="deliver")
                return await agent.get(self.thread_id)
            case "end":
                return self._check_end(model, run, row)
            case _:
                return run

    def _check(self, model: ScriptedModel, run: Run | None, status: str) -> Run:
        """Return the run if nothing differs so far. Raises ReplayDifference for the first difference."""
        assert run is not None, "a request has a start"
        failed = [str(each) for each in model.failures if isinstance(each, ScriptError)]
        if differences := [*self.request.differences, *failed]:
            raise ReplayDifference(differences[0])
        if run.status != status and (run.status, status) != ("queued", "running"):  # a replay is stopped in a queue
            shown = _shorten(run.pending[0]["question"] if run.pending else run.answer)
            raise ReplayDifference(f"the run is {run.status} ({shown}); recorded: {status}")
        return run

    def _check_end(self, model: ScriptedModel, run: Run | None, end: Json) -> Run:
        run = self._check(model, run, end["status"])
        assert run.outcome is not None, "it has ended"
        if (code := run.outcome["code"]) != end["code"]:
            raise ReplayDifference(f"it ended with {code!r}; recorded: {end['code']!r}")
        text = without_moments(run.answer, run.outcome, run.plan)
        if difference := diff(mask_varying_parts(end["text"]), mask_varying_parts(text)):
            raise ReplayDifference(f"the answer is another one:\n{difference}")
        return run


def _shorten(text: str) -> str:
    return textwrap.shorten(text, QUESTION_CHARS, placeholder=" …")


def _as_lines(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True)


def _check_question(recorded: Mapping[str, Any] | None, pending: Mapping[str, Any]) -> None:
    """Raise ReplayDifference if the question has another kind or step than the recorded one."""
    if recorded and any(recorded[key] != pending.get(key) for key in ("kind", "step")):
        before, now = (
            f"{each['kind']} of {each.get('step') or 'the run'}: {_shorten(each['question'])}"
            for each in (recorded, pending)
        )
        raise ReplayDifference(f"another question is asked ({now}); recorded: {before}")


def _with_recorded(executor: Any, recorded: Mapping[str, BaseTool]) -> Any:
    """Return an executor whose tools are replaced by their recorded versions, where there are some."""
    if not isinstance(executor, Executor) or executor.tools is None:
        return executor
    own = [tool if isinstance(tool, BaseTool) else from_function(tool) for tool in executor.tools]
    return replace(executor, tools=[recorded.get(tool.name, tool) for tool in own])
