"""The public face: an Agent starts, resumes, streams and reads runs."""

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Never, Self, Unpack
from uuid import uuid4
from weakref import WeakSet

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool

from donewhen.agent.a2a.remote import connect_executor
from donewhen.agent.config import load_hooks, read_config
from donewhen.agent.conversation import Conversation, read_conversation, read_observation
from donewhen.agent.gate import question_for
from donewhen.agent.models import Models, ModelSource
from donewhen.agent.options import AgentOptions, Options, StartOptions, check_options
from donewhen.agent.plans.store import PlanStore
from donewhen.agent.plans.templates import Templates
from donewhen.agent.prices import Prices
from donewhen.agent.request import (
    MISSING,
    Continuation,
    GoalInput,
    Request,
    read_goal,
    with_context,
)
from donewhen.agent.run import Run, id_of
from donewhen.agent.runner import Runner
from donewhen.agent.storage import Storage, open_storage
from donewhen.agent.storage.spending import days_of
from donewhen.agent.storage.storage import check_name
from donewhen.agent.storage.store import DELETE_AT_ONCE
from donewhen.agent.stream import STOP_PATIENCE, LiveRun, OnLeave, RunStream, Work
from donewhen.agent.thread_graph import ThreadGraph
from donewhen.agent.tools import AgentTools, Tools, as_tools, split_sources
from donewhen.agent.undo import UndoReport
from donewhen.agent.work.day_budgets import BudgetRow, list_budgets, today
from donewhen.agent.work.news import Notifier, Notify, notify_of
from donewhen.agent.work.recorder import describe_models, record_hooks
from donewhen.agent.work.schedules import Schedules
from donewhen.agent.work.thread_rows import (
    ENDED,
    QUEUE,
    Cancellation,
    Page,
    ThreadInfo,
    list_pending,
    list_threads,
    request_cancel,
    time_text,
)
from donewhen.agent.work.watch import watch_run
from donewhen.agent.work.worker import OpenAgent, StorageStatus, Worker, status_of
from donewhen.agent.workspace import WORKSPACE_TOOLS
from donewhen.agent.workspace.skills import Skills
from donewhen.graph.build import build_graph
from donewhen.graph.executors.executor import ExecutorInput, Executors, unknown_names
from donewhen.graph.llm.output import OutputForm
from donewhen.graph.tools.hooks import Hooks
from donewhen.graph.tools.toolbox import EffectKind
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError, GoalError, ScheduleError, StorageError, ThreadBusy
from donewhen.state.ledger import read_budgets
from donewhen.state.proof.receipt import Receipt
from donewhen.state.records import JournalEntry
from donewhen.state.settings import Settings, SettingsLike, merge_settings
from donewhen.state.values import name_hint

_log = logging.getLogger("donewhen")
_NEW_NAMES = {
    "models": "Agent(Models(model, roles={…}))",
    **{name: f"Agent(Models(model, {name}={{…}}))" for name in ("thinking", "prices")},
    **{option.name: f"Agent(…, options=AgentOptions({option.name}=…))" for option in fields(AgentOptions)},
}
"""By the name of an argument that an Agent once had: what is written now."""
CANCEL_PATIENCE = 90.0
"""Seconds that `cancel` waits for the process of a working run to end it."""


class Agent:
    """An agent that plans, confirms, executes and proves. Every run is a thread that any process can resume.

    Nothing is opened or called before the first run. The environment may add a profile, hooks and executors.

    Args:
        model: A LangChain chat model or `"provider:model"`; `Models` for several, their thinking and prices; None takes
            it from the environment.
        tools: LangChain tools, functions, `McpServers`, or MCP-style dicts with a `caller` among the `options`.
        storage: `sqlite:///file`, `memory:`, `postgresql://…` or a Storage; None is the user's default file, which the
            log `donewhen` names (INFO).
        settings: The settings of all runs; a run may override them field by field.
        instructions: How to work, in every prompt; the same as `settings.profile.instructions`.
        output_type: The type of every result, see `start`.
        executors: Name → Executor, compiled graph, or `"a2a:https://…"`.
        effects: Tool name, or a pattern such as `get_*`, → `read`, `idempotent` or `write`. What fits no tool is an
            error, at the latest when the MCP servers among `tools` are open.
        hooks: Policies that calls and answers have to pass.
        skills: The skills to follow, and AGENTS.md.
        notify: Who is told that a run waits, finished or failed: an address, a `Webhook` or a function.
        options: What few agents need, see `AgentOptions`.

    Raises ConfigError if neither `model` nor the environment names a model.
    """

    def __init__(
        self,
        model: Models | str | BaseChatModel | None = None,
        tools: Tools = (),
        *,
        storage: str | os.PathLike[str] | Storage | None = None,
        settings: SettingsLike = None,
        instructions: str = "",
        output_type: Any = None,
        executors: Mapping[str, ExecutorInput] | None = None,
        effects: Mapping[str, EffectKind] | None = None,
        hooks: Hooks | None = None,
        skills: Skills | None = None,
        notify: Notify | None = None,
        options: AgentOptions | None = None,
        **moved: Never,
    ) -> None:
        _check_names(moved)
        _check_kinds(executors, hooks, skills, options)
        options = options or AgentOptions()
        config = options.config or read_config()
        self.models: ModelSource = ModelSource(model, config)
        """The models by role."""
        self.settings: Settings = merge_settings(
            merge_settings(Settings(), {"profile": config.profile} if config.profile else None), settings
        )
        """The settings of all runs."""
        if instructions:
            self.settings = merge_settings(self.settings, {"profile": {"instructions": instructions}})
        form = None if output_type is None else OutputForm.for_type(output_type)
        if form:
            self.settings = merge_settings(self.settings, {"output_schema": form.schema})
        self.models.check(self.settings.models.values())
        self._owns_storage = not isinstance(storage, Storage)
        self.storage: Storage = (
            storage if isinstance(storage, Storage) else open_storage(storage or config.storage, key=config.key)
        )
        """Where the runs are kept."""
        if storage is None:
            _log.info("runs are kept in %s; Agent(storage=…) names another place", self.storage.url_for_display)
        fixed, sources = split_sources(tools)
        own = [*as_tools(fixed, caller=options.caller), *(skills.tools() if skills else ())]
        every_tool = [*own, *as_tools(sources)]
        named = {**config.executors, **(executors or {})}
        elsewhere = [*WORKSPACE_TOOLS, *unknown_names(config.profile.get("forbidden_tools") or (), every_tool)]
        self.executors: Executors = Executors(
            named,
            tools=every_tool,
            effects=effects,
            connect=connect_executor,
            elsewhere=elsewhere,
            complete=all(source.tools for source in sources),
        )
        """The executors by name; add, replace, disable and remove them at any time."""
        self.tools: AgentTools = AgentTools(self.executors, own, sources, effects)
        """The tools; add and remove them at any time."""
        self.models.check(each.model for each in self.executors.values() if isinstance(each.model, str))
        self.secrets: Sequence[str] = config.secrets
        """The values that no event, recording or receipt contains."""
        self.receipt_key: str = config.receipt_key
        """The PEM file of the key with which its receipts are signed, unless `export_receipt` is given another."""
        record = config.record if options.record is None else options.record
        every_hook = load_hooks(config.hooks) + (hooks or Hooks())
        cost = Prices({**config.prices, **(model.prices if isinstance(model, Models) else {})}).cost
        graph = build_graph(
            self.models,
            prices=cost,
            secrets=self.secrets,
            repeats=True,
            context=options.context,
            memory=options.memory,
            embeddings=options.embeddings,
            agents_md=skills.agents_md if skills else None,
            hooks=record_hooks(every_hook) if record else every_hook,
            executors=self.executors,
        )
        self._tools_by_thread: dict[str, tuple[Sequence[BaseTool], str]] = {}
        """By thread: the tools that its request was given, until it ends, another one begins or it is deleted; and the
        id of its message, "" for tools that came later.
        """
        self._live_runs: set[LiveRun] = set()
        self.queue: str = options.queue or QUEUE
        """Whose workers carry out submitted and scheduled runs."""
        notify = notify or notify_of(config)
        self._notifier = Notifier(self.storage, self.queue, notify, config.secrets) if notify else None
        tracing = None
        if options.trace or (options.trace is None and config.trace):
            from donewhen.agent.tracing import make_tracing

            tracing = make_tracing(options.trace or False, config)
        self._runner = Runner(
            graph.compile(name="donewhen"),
            self.storage,
            self.settings,
            form,
            self.queue,
            self.executors,
            notifier=self._notifier,
            record=partial(describe_models, self.models, cost) if record else None,
            tracing=tracing,
            budgets=read_budgets(config.budgets if options.budgets is None else options.budgets),
            prepare=lambda settings: self.models.prepare(("triage", "execute"), settings.models),
        )
        self._workers = WeakSet[Worker]()

    async def __aenter__(self) -> Self:
        if self._notifier:
            self._notifier.wake(left=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self, patience: float = STOP_PATIENCE) -> None:
        """Stop every run at its next clean point and wait; cut off calls that take longer than `patience` seconds.

        A call with effects gets 5 more seconds, so that its outcome is known.
        """
        await asyncio.gather(*(worker.stop() for worker in list(self._workers)))
        await asyncio.gather(*(live.stop(patience) for live in list(self._live_runs)))
        if self._notifier:
            await self._notifier.aclose(patience)
        if self._owns_storage:
            await self.storage.aclose()

    def drain(self) -> None:
        """Ask all runs of this agent to stop at a clean point; `resume` continues them."""
        for live in list(self._live_runs):
            live.drain()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            use = {"invoke": "wait(agent.start(…))", "ainvoke": "agent.start(…)", "astream": "agent.stream(…)"}.get(
                name
            )
            hint = f": use {use}, or agent.graph.{name}(…)" if use else ": use wait(agent.start(…))" * (name == "run")
            raise AttributeError(f"an Agent has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def graph(self) -> ThreadGraph:
        """Return the compiled graph on this storage; every LangGraph verb works on it, `ainvoke` and `invoke` alike.

        Settings in `context=` override those of the run or of this agent, as in `start`. It is as strict as `resume`,
        and None continues a thread.
        """
        return ThreadGraph(self._runner)

    # Runs ------------------------------------------------------------------------------------------------------

    async def start(self, goal: GoalInput | None = None, **options: Unpack[StartOptions]) -> Run:
        """Work on a goal until it ends or waits for a person.

        An existing thread continues its conversation with a fresh plan and budget.

        Args:
            goal: A text, content blocks, or messages; the last message is the request.
            options: What the run is given, see `donewhen.types.StartOptions`: `settings` over the agent's,
                `output_type` of the result, `tools` of this run alone, added to the agent's, which must have none of
                these names (`Agent(model, [])`), `config` of LangGraph (callbacks, tags); `thread_id`, and
                `request_id` against sending twice; `owner` and `metadata`, your own data, which `info` and `threads`
                return; `context`, which only tools read; `template`, a saved plan, with its `parameters`;
                `restart=True`, to close the thread's open request and begin this one; `instead_of`, to go back in the
                conversation.

        Raises GoalError for a blank or huge goal, ConfigError, ThreadWaiting if the thread is not finished, ThreadBusy.
        """
        check_options(StartOptions, options)
        return await self.stream(goal, **options).result()

    async def resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        question: str | Mapping[str, Any] | None = None,
        by: str = "",
        steer: str = "",
        **options: Unpack[Options],
    ) -> Run:
        """Answer a thread's question, or continue it after a crash.

        Without an answer, an interrupted run continues; a waiting or finished run is returned unchanged. If an answer
        lacks something, the run keeps waiting, and `Run.problem` asks for it.

        Args:
            thread_id: The thread, or a Run of it. With a Run, the answer applies only to that run's questions; with an
                id, a plain answer applies to the current question, whatever that is.
            answer: The answer in any form that clients send, or `{id: answer}` for several open questions.
            question: The question that the answer is for, as in `pending`, or its id. Give it, or a Run, where an
                answer may arrive twice or late: then it never answers another question. Once others said more than was
                shown with the question or the Run (`meanwhile`), an answer that lets something happen is stale. An id
                alone does not say what was shown.
            by: Who answers, as your program knows them: a name, or `role:name`. The receipt has it. A question for
                somebody else (`Settings.answered_by`, `Ask`) stays open, and `Run.problem` says who is asked.
            steer: Words to a run that was stopped. It plans anew with them, for the same goal, and keeps finished
                steps; they answer no question. “continue” alone keeps the plan.
            options: What the rest of the run is given, see `donewhen.types.Options`.

        Raises ConfigError for another `output_type`, `donewhen.errors.ToolMissing` (a ConfigError) where the answer
        leads to a call whose tool is not here, or is another one now, GoalError for a blank `steer`, UnknownThread,
        StaleAnswer, ThreadBusy; nothing changes then, and the question stays open.
        """
        check_options(Options, options)
        return await self.stream_resume(thread_id, answer, question=question, by=by, steer=steer, **options).result()

    def stream(
        self, goal: GoalInput | None = None, *, on_leave: OnLeave = "stop", **options: Unpack[StartOptions]
    ) -> RunStream:
        """Do the same as `start`, and yield events as they happen. `on_leave`: stop or continue when you leave it."""
        id, runner, request = self._request(goal, options)
        tools = as_tools(options.get("tools") or ())
        runner = self._with_tools(runner, tools)
        return self._stream(id, lambda live: runner.start(live, request), options.get("config"), on_leave, tools)

    def stream_resume(
        self,
        thread_id: str | Run,
        answer: Any = MISSING,
        *,
        question: str | Mapping[str, Any] | None = None,
        by: str = "",
        steer: str = "",
        on_leave: OnLeave = "stop",
        **options: Unpack[Options],
    ) -> RunStream:
        """Do the same as `resume`, and yield events as they happen."""
        check_options(Options, options)
        id, output_type = id_of(thread_id), options.get("output_type")
        tools = as_tools(options.get("tools") or ())
        runner = self._runner_for(id, tools, output_type)
        form = runner.form if output_type is not None else None
        (asked, seen), by = question_for(thread_id, question), check_name("by", by)
        if steer and not steer.strip():
            raise GoalError("there is nothing to steer by: the text is blank")
        if steer and answer is not MISSING:
            raise ConfigError(
                "resume takes an answer to a run that waits, or steer= for one that was stopped, not both"
            )
        continuation = Continuation(answer, asked, seen, by, steer, options.get("settings"), form)
        return self._stream(id, lambda live: runner.resume(live, continuation), options.get("config"), on_leave, tools)

    async def run_submitted(self, thread_id: str | Run) -> Run:
        """Carry out now what was submitted for a thread; for workers. Raises UnknownThread, ThreadBusy."""
        return await self.resume(id_of(thread_id))

    # Work that nobody waits for ----------------------------------------------------------------------------------

    async def submit(
        self, goal: GoalInput | None = None, *, at: datetime | None = None, **options: Unpack[StartOptions]
    ) -> str:
        """Queue a goal for a worker and return the thread's id at once; follow it with `get` and `watch`.

        A `worker` of any agent with this storage and `queue`, in any process, carries it out once; `donewhen worker`
        serves `queue="command"` with the tools of the command.

        `at`: the earliest time to start; None means now, and a time without a zone is local. Everything else is as in
        `start`, except that `tools` and `config` are refused: they cannot be passed to another process. A worker goes
        by the settings with which the run was submitted (these, completed by this agent's, with the limits), and has
        its own agent's models, prices, tools, hooks and budgets of a day. Of an `output_type`, it has the JSON Schema;
        validators of your class run there if its own agent has the same `output_type`.

        Submitting the same `request_id` again begins nothing, so it is safe to repeat after a StorageError. A run that
        workers gave up on goes back to them by it, to be tried as often as at first.

        Raises StorageError while the database is away, and the errors of `start`, except what only the worker finds: a
        missing key, which leaves the run to a person, with its `problem`; and, if this agent has no tools or its
        servers are not open, settings that name no tool of the worker, by which the run fails.
        """
        if local_options := [name for name in ("tools", "config") if options.get(name)]:
            raise ConfigError(
                f"submit takes no {local_options[0]}: a worker carries the run out, with those of its own agent"
            )
        id, runner, request = self._request(goal, options)
        await runner.submit(id, request, at, checks_tools=self.tools.is_complete)
        self._wake_workers()
        return id

    async def submit_answer(
        self, thread_id: str | Run, answer: Any, *, question: str | Mapping[str, Any] | None = None, by: str = ""
    ) -> str:
        """Check an answer like `resume`, but leave the work to a worker.

        Raises ResumeError if it cannot be understood, or if somebody else is asked; words are kept then, as by `tell`,
        if the run takes messages. Its text is for people, in the language of the run. Of several answers in one
        mapping, the others are stored; the error's `pending` names the questions of these.

        Raises StorageError while the database is away; with the same `question` it is safe to repeat, and raises
        StaleAnswer, which says what was decided, once a worker has taken an answer.

        An edit that breaks a rule is found by the worker: the run waits again, and its `problem` says why.
        If the thread is being worked on, an answer to another of its questions waits until that is done. Tools that are
        missing are no error here: the answer waits for a worker that has them, see `donewhen.types.Worker`.
        """
        id, (asked, seen), by = id_of(thread_id), question_for(thread_id, question), check_name("by", by)
        try:
            await self._runner.submit_answer(id, answer, asked, seen, by)
        finally:
            self._wake_workers()
        return id

    def _wake_workers(self) -> None:
        for worker in list(self._workers):
            worker.wake()

    def worker(self, *, concurrency: int = 4, open_agent: OpenAgent | None = None) -> Worker:
        """Return a worker for the submitted and scheduled runs of all agents with this storage and `queue`.

        `async with agent.worker():` works beside the block, `await agent.worker().run()` until it is drained, as by
        SIGTERM. `concurrency`: the most runs at once; a process works on at most 16 on PostgreSQL, so start several for
        more. `open_agent` opens, as an async context, the agent that carries out the run of a `ThreadInfo`; None is
        this agent. Raises ConfigError for a `concurrency` below 1.
        """
        if concurrency < 1:
            raise ConfigError(f"a worker carries on at least one run at once, not {concurrency}")

        worker = Worker(
            self.storage,
            self._runner.queue,
            open_agent or (lambda _: nullcontext(self)),
            concurrency=concurrency,
            notifier=self._notifier,
            settle=self._runner.settle,
        )
        self._workers.add(worker)
        return worker

    async def cancel(self, thread_id: str | Run, reason: str = "", *, by: str = "") -> Run:
        """End a run that waits, works or is queued, in any process; finished work is kept.

        A working run stops at its next clean point. What takes longer than two seconds is cut off, whoever drives the
        run; a call with effects gets 5 more, so that its outcome is known. The receipt lists a write whose outcome is
        unknown. A finished run is returned unchanged, and a request that begins meanwhile is left alone. `by`: who
        cancels it, as in `resume`; the receipt has the name with the reason.
        Raises UnknownThread, and ThreadBusy if the run's process does not react for 90 seconds.
        """
        why = Cancellation(reason, check_name("by", by))
        given, deadline = thread_id, asyncio.get_running_loop().time() + CANCEL_PATIENCE
        thread_id, request, goal = await self._find_request(given)
        if isinstance(given, Run) and request is None:  # another one followed it
            return given if given.outcome else await self._runner.read_request(thread_id, given.request, given.goal)
        while True:
            try:
                run = await self._runner.cancel(thread_id, why, request or "", goal)
                self._tools_by_thread.pop(thread_id, None)
                return run
            except ThreadBusy:
                if request and await self._runner.was_followed(thread_id, request):
                    return await self._runner.read_request(thread_id, request, goal)  # it ended, and another one works
                if asyncio.get_running_loop().time() > deadline:
                    raise
            async with self.storage.writer() as (_, store):
                await request_cancel(store, thread_id, why, request or "")
            await asyncio.sleep(0.2)

    async def _find_request(self, given: str | Run) -> tuple[str, str | None, str]:
        """Return the thread, the id of its last request, None if a run of another one is given, and its goal."""
        request, goal = await self._runner.find_request(id_of(given))
        is_other = isinstance(given, Run) and given.request not in ("", request)
        return id_of(given), None if is_other else request, goal

    async def audit(self, thread_id: str | Run, settings: SettingsLike = None) -> Run:
        """Let a judge audit the answer of a finished run, for the first time or again.

        Its findings replace earlier ones in the outcome, the receipt and below the answer. `settings` override those of
        the run for this audit, such as `{"models": {"judge": "anthropic:claude-…"}}`. Its cost is added to the run's;
        `audit_calls` limits it, the run's limits do not. An audit never makes a run better than its steps. If no audit
        is possible, nothing changes and `Run.problem` says why.
        Raises ThreadWaiting for a run that is not finished, ConfigError, UnknownThread, ThreadBusy.
        """
        id = id_of(thread_id)
        runner = self._runner_for(id)
        self.models.check(merge_settings(self.settings, settings).models.values())
        return await self._stream(id, lambda live: runner.audit(live, settings)).result()

    async def undo(self, thread_id: str | Run, step: str | None = None, *, dry_run: bool = False) -> UndoReport:
        """Put back what the workspace tools changed in the last request of a thread: all of it, or nothing.

        `step`: only what this step, or this call, changed: `s3` or `s3.2`, of an earlier request `1:s3`. A file that
        changed since is refused, and then nothing is touched. What commands, other tools and agents elsewhere did is
        named in `beyond`. The receipt and the answer say what was undone; what was undone stays so if this is called
        again. With `dry_run`, nothing is changed, and the report says what would be.
        Raises ThreadWaiting for a run that is not finished, ThreadBusy, UnknownThread, ConfigError for an unknown step,
        and for a Run that a later request followed, unless `step` names the request.
        """
        id, request, _ = await self._find_request(thread_id)
        if request is None and ":" not in (step or ""):
            hint = "give the thread's id to undo its last one, or a step with the number of its request, such as '1:s3'"
            raise ConfigError(f"undo: another request followed this run on thread {id!r}; {hint}")
        return await self._runner.undo(id, step, dry_run=dry_run)

    async def tell(self, thread_id: str | Run, text: str, *, by: str = "", request_id: str = "") -> None:
        """Say something to a run; planning and the working steps follow it from their next round on.

        What is said to a run that waits, is queued or was interrupted is kept, and followed when the run goes on; it
        answers no question, and a question for somebody named shows it. Like an answer it is visible to all later work
        and in the receipt. Messages that come too late are in the run's `problem`.

        Args:
            thread_id: The thread, or a Run of it.
            text: What is said.
            by: Who says it, as in `resume`. Models read the name before the words.
            request_id: Your id of the message, for clients that send twice: under it the request is told once.

        Where the run's settings refuse messages (`when_busy`, as by default), this raises ThreadBusy if the run works,
        else ResumeError. That is raised for a run that has ended, too; it says what the thread does and how it goes on.
        Raises UnknownThread.
        """
        thread_id = id_of(thread_id)
        words: Any = text
        if not isinstance(words, str):
            hint = "images and files come with an answer (`resume`) or a request (`start`)"
            raise GoalError(f"there is nothing to tell: it is a {type(words).__name__}, and no text; {hint}")
        if not words.strip():
            raise GoalError("there is nothing to tell: the text is blank")
        await self._runner.tell(thread_id, text.strip(), check_name("by", by), check_name("request_id", request_id))

    @property
    def schedules(self) -> Schedules:
        """Return the schedules: list, show, change, pause, resume, run, delete."""
        return Schedules(self.storage, self._runner)

    @property
    def templates(self) -> Templates:
        """Return the saved plan templates: save, get, list, delete."""
        return Templates(self.storage)

    @property
    def plans(self) -> PlanStore:
        """Return the kept plans, which people and agents tick off, independent of threads."""
        return PlanStore(self.storage)

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, thread_id: str | Run, *, output_type: Any = None) -> Run:
        """Return the run of a thread. Raises UnknownThread.

        `output_type`: the type of `Run.output`, also where the run was started with another one, such as that of an
        earlier version of your program. Raises ConfigError if the output does not fit.
        """
        if output_type is None:
            return (await self._runner.read(id_of(thread_id)))[0]
        form = OutputForm.for_type(output_type)
        run, _ = await replace(self._runner, form=None).read(id_of(thread_id))
        if run.output is None:
            return run
        data, problems = form.read({"output": run.output})
        if problems:
            text = f"output_type: the output of thread {run.thread_id!r} does not fit it: {'; '.join(problems)}"
            raise ConfigError(f"{text}. Without output_type, get returns it as JSON")
        return replace(run, output=form.to_python(data))

    async def conversation(self, thread_id: str | Run, *, request: str = "") -> Conversation:
        """Return the run of a thread with all that was said and observed on it. Raises UnknownThread.

        `request`: the id of an earlier request, as in `Run.request`: its run, and what was there at its end.
        """
        return read_conversation(*await self._runner.read(id_of(thread_id), request), self.secrets)

    async def observation(self, thread_id: str | Run, id: str) -> JournalEntry:
        """Return an observation, such as `s1.2`, with its full text. Raises UnknownThread if there is none."""
        run, snapshot = await self._runner.read(id_of(thread_id))
        async with self.storage.reader() as (_, store):
            return await read_observation(read_conversation(run, snapshot), id, snapshot, store)

    async def receipt(self, thread_id: str | Run) -> Receipt | None:
        """Return the receipt of a finished run (planned, executed, cited, proven, spent), else None."""
        return (await self.get(thread_id)).receipt

    async def watch(
        self, thread_id: str | Run, cursor: str | None = None, *, after: int | None = None
    ) -> AsyncIterator[tuple[Json, str]]:
        """Follow a run from any process: yield `(event, cursor)` until its outcome. Each cursor continues after its
        event: after that of the outcome comes nothing until the next request.

        Begins with the current request, or after the event of `cursor`, or after the event whose `seq` is `after`.
        Events are read from the storage twice a second, with the same numbers as in every stream, so none is missed
        when workers die or restart. Speech comes complete, as one `speech` event per message; what is not stored
        (pieces of speech, thinking, `todos`, `custom`) is only in the run's own stream. A run that nobody works on
        ends with the status `running` and the reason. Raises UnknownThread, ConfigError for an invalid cursor, and
        StorageError if the database is away at the first read, or for a minute: the last cursor then misses nothing.
        """
        runner = self._runner
        async for pair in watch_run(runner, id_of(thread_id), cursor, after, secrets=self.secrets):
            yield pair

    async def threads(
        self,
        limit: int = 100,
        *,
        owner: str | None = None,
        status: str | Collection[str] = (),
        before: datetime | None = None,
        prefix: str = "",
        cursor: str | None = None,
    ) -> Page[ThreadInfo]:
        """Return the threads of this storage, latest first, filtered by owner, status, or unchanged since `before`.

        `status`: `running` finds what somebody works on, `interrupted` the others whose status is `running`.
        `prefix`: only those whose ids begin with it, such as the goals of a batch. At most `limit` come at once; pass
        the list's `cursor` to get the next ones. It is None at the end.
        """
        raw_status: Any = status
        if not isinstance(raw_status, str | Collection):
            raise ConfigError(f"threads: status is a text or several, not {type(raw_status).__name__}")
        states = [status] if isinstance(status, str) else status
        until = None if before is None else time_text(before)
        await self._runner.settle_all()
        filters: Json = {"owner": owner, "status": states, "before": until, "prefix": prefix}
        return await list_threads(self.storage, limit, **filters, cursor=cursor, show=self._runner.show_row)

    async def pending(
        self, *, owner: str | None = None, prefix: str = "", limit: int = 1000, cursor: str | None = None
    ) -> Page[Json]:
        """Return at most `limit` open questions of all threads, or of an owner's, the oldest first.

        `prefix`: only those of threads whose ids begin with it, such as the goals of a batch.

        Each has `thread_id`, `goal`, `owner` and the pause's `id`, `kind`, `question`, `options`, `step`, `asked_at`,
        and its `text`: all that a person reads, as the stream and the page show it; of a form also its `schema`; of a
        call also `tool` and `arguments`; of a failed step `about: "failure"`; `answered_by`, if only somebody named may
        answer, and `meanwhile`, what others have said since. Texts and arguments come without credentials, and cut if
        they are long. Pass the list's `cursor` to get the next ones; it is None at the end. All questions of a thread
        come together. Raises ConfigError for an invalid cursor.
        """
        await self._runner.settle_all()
        show = self._runner.show_row
        return await list_pending(self.storage, limit, show, owner=owner, prefix=prefix, cursor=cursor)

    async def status(self) -> StorageStatus:
        """Return the number of `threads` by status, the number waiting in each of the `queues`, the living `workers`
        with their queues, and since when the `oldest` thread of each open status is unchanged.
        """
        undone = await self._runner.settle_all()
        return await status_of(self.storage, await self.storage.find_free(undone))

    async def budgets(self, day: str | None = None) -> list[BudgetRow]:
        """Return what owners and queues spent in a day (`2030-12-01`) or a month (`2030-12`), the closest to a limit
        first.

        By default it is the current day, or the current month if the agent's budgets are for months. Only what agents
        with budgets spent is counted. Raises ConfigError if `day` is neither a day nor a month.
        """
        async with self.storage.reader() as (_, store):
            return await list_budgets(store, self._runner.budgets, day)

    async def info(self, thread_id: str | Run) -> ThreadInfo:
        """Return the row of a thread. Raises UnknownThread."""
        return await self._runner.info(id_of(thread_id))

    async def delete(self, thread_id: str | Run) -> list[str]:
        """Delete a thread: checkpoints, observations, effects, and the schedules that were confirmed in it.

        Returns the ids of these schedules. Raises ThreadBusy while it works, UnknownThread.
        """
        id, schedules = id_of(thread_id), self.schedules
        with suppress(StorageError):  # what is damaged can be deleted
            await self._runner.info(id)
        ids = (await schedules.ids_by_thread()).get(id, [])
        if await self.storage.find_free([id]):  # else nothing is deleted
            for each in ids:
                with suppress(ScheduleError):  # somebody else deletes it
                    await schedules.delete(each)
        await self.storage.delete_thread(id)
        self._tools_by_thread.pop(id, None)
        return ids

    async def prune(self, older: timedelta, *, owner: str | None = None) -> list[str]:
        """Delete ended threads that have not changed for this long, with all their data; return their ids.

        Threads that work, wait or are queued stay, as do those in which a schedule was confirmed: `delete` deletes
        them. What was spent earlier than that is deleted too, but nothing of this month; with an `owner` it only loses
        their name.
        """
        deleted: list[str] = []
        if owner is not None:
            check_name("owner", owner)
        try:
            before = datetime.now(UTC) - older
            until = time_text(before)
        except (OverflowError, TypeError):
            raise ConfigError(f"prune: {older!r} is no age that threads can have: give a timedelta") from None
        approvals = await self.schedules.ids_by_thread()
        for status in ENDED:  # one at a time: by the index, however many others are as old
            filters: Json = {"status": status, "owner": owner, "before": before}
            page = await self.threads(DELETE_AT_ONCE, **filters)
            while page:
                ids = [info.thread_id for info in page if info.thread_id not in approvals]
                stay = await self.storage.delete_threads(ids, (status, until))  # somebody went on with them just now
                deleted += [id for id in ids if id not in stay]
                page = await self.threads(DELETE_AT_ONCE, **filters, cursor=page.cursor) if page.cursor else Page()
        for id in deleted:
            self._tools_by_thread.pop(id, None)
        async with self.storage.writer() as (_, store):
            month = today(store, self._runner.budgets.zone)[: len("2030-12")]  # others may have budgets for months
            day = min(before.date().isoformat(), days_of(month)[0])
            await (store.spending.delete_before(day) if owner is None else store.spending.forget_owner(owner, day))
        return deleted

    # Inside ------------------------------------------------------------------------------------------------------

    def _runner_for(self, thread_id: str, tools: Sequence[BaseTool] = (), output_type: Any = None) -> Runner:
        """Return a runner for a thread, with these tools or with those that its request got earlier in this process."""
        runner, earlier = self._with_output(output_type), self._tools_by_thread.get(thread_id)
        if tools or earlier is None:
            return self._with_tools(runner, tools)
        return replace(self._with_tools(runner, earlier[0]), tools_of_request=earlier[1])

    def _with_tools(self, runner: Runner, tools: Sequence[BaseTool]) -> Runner:
        if not tools:
            return runner
        return replace(runner, executors=self.executors.with_tools(tools), graphs_executors=self.executors)

    def _request(self, goal: GoalInput | None, options: StartOptions) -> tuple[str, Runner, Request]:
        """Return the id of a request's thread, the runner with its output type, and the request."""
        check_options(StartOptions, options)
        if (request_id := options.get("request_id")) == "":  # such as a blank cell
            raise ConfigError("request_id is empty: name the request, or leave it out")
        runner = self._with_output(options.get("output_type"))
        context = options.get("context")
        settings = with_context(runner.merge(options.get("settings")), context)
        request = Request(
            read_goal(goal),
            settings,
            options.get("metadata"),
            options.get("owner", ""),
            template=options.get("template"),
            parameters=options.get("parameters"),
            restart=options.get("restart", False),
            id=request_id or "",
            instead_of=options.get("instead_of") or "",
            context=None if context is None else settings.tool_context,
        )
        return id_of(options.get("thread_id") or request_id or uuid4()), runner, request

    def _with_output(self, output_type: Any) -> Runner:
        """Return the runner, with this type of the result if one is wanted."""
        return self._runner if output_type is None else replace(self._runner, form=OutputForm.for_type(output_type))

    def _stream(
        self,
        thread_id: str,
        work: Work,
        config: RunnableConfig | None = None,
        on_leave: OnLeave = "stop",
        tools: Sequence[BaseTool] = (),
    ) -> RunStream:
        def keep_tools(request: str) -> None:
            before, of = self._tools_by_thread.get(thread_id, ((), ""))
            if tools:
                self._tools_by_thread[thread_id] = (tools, request)
            elif before and request not in ("", of):
                del self._tools_by_thread[thread_id]

        async def begin() -> LiveRun:
            for other in [live for live in self._live_runs if live.thread_id == thread_id]:
                await other.give_way()
            live = LiveRun(thread_id, work, config, on_leave, keep_tools, self._on_end, self.secrets)
            self._live_runs.add(live)
            return live

        return RunStream(thread_id, begin)

    def _on_end(self, live: LiveRun) -> None:
        self._live_runs.discard(live)
        if live.run and live.run.outcome:
            self._tools_by_thread.pop(live.thread_id, None)
        if self._notifier:
            self._notifier.wake()


def _check_names(unknown: Mapping[str, Any]) -> None:
    """Raise TypeError, as Python does, for an argument that an Agent does not have."""
    known = inspect.signature(Agent).parameters.keys() - {"moved"} | _NEW_NAMES.keys()
    for name in unknown:
        hint = f": use {_NEW_NAMES[name]}" if name in _NEW_NAMES else name_hint(name, known)
        raise TypeError(f"Agent has no argument {name!r}{hint}")


def _check_kinds(executors: object, hooks: object, skills: object, options: object) -> None:
    """Raise ConfigError for arguments of a wrong type; it says what to write."""
    if not isinstance(executors, Mapping | None):
        raise ConfigError(f"executors is a dict of name → Executor, not a {type(executors).__name__}")
    if not isinstance(hooks, Hooks | None):
        kind = type(hooks).__name__
        raise ConfigError(
            f"hooks is not a {kind}: write Hooks(before_call=[…], after_call=[…], before_question=[…], before_end=[…])"
        )
    if not isinstance(skills, Skills | None):
        raise ConfigError(f"skills is not a {type(skills).__name__}: write Skills({str(skills)!r})")
    if not isinstance(options, AgentOptions | None):
        raise ConfigError(f"options is not a {type(options).__name__}: write AgentOptions(queue=…)")
