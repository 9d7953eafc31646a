"""The runner holds a thread, lets the gate read an answer, drives the graph to its next pause or end, and writes the
result.

`running` is written into the row before checkpoints change, and the final status after all consequences are complete;
a request, or an answer for a worker, stands in the row until the checkpoints have it. So a row that nobody holds
matches its checkpoints unless it says `running`: then a worker died or was cancelled. The next holder of the thread,
whoever reads or lists it, or the sweep of a worker first completes that worker's bookkeeping (`settle`). What a thread
does now is read from both (`run_now`).
"""

import asyncio
import logging
import math
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext, suppress
from contextvars import Context, copy_context
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import RunControl
from langgraph.store.base import BaseStore, PutOp
from langgraph.types import Command, StateSnapshot

from donewhen.agent.a2a.remote import cancel_asking
from donewhen.agent.gate import (
    ANSWER_LATER,
    NotAsked,
    Seen,
    address_answer,
    admit,
    describe_decisions,
    find_decisions,
    open_at_work,
    overdue_answers,
    queued_answers,
    queued_answers_to,
    read_understood,
    resume_command,
    steer_input,
)
from donewhen.agent.plans.templates import Templates
from donewhen.agent.request import (
    MISSING,
    Continuation,
    Request,
    check_begun,
    goal_in_row,
    is_not_begun,
    is_unread,
    known_ids,
    read_goal,
    request_in_row,
    request_of,
)
from donewhen.agent.run import (
    Run,
    idle_error,
    interrupted_tasks,
    read_left_behind,
    read_run,
    read_words_to_named,
    require_thread,
    show_words,
    unknown_thread,
    with_words_of_others,
)
from donewhen.agent.storage import Storage
from donewhen.agent.storage.storage import LOCK_PATIENCE
from donewhen.agent.storage.store import ThreadStore
from donewhen.agent.stream import LiveRun
from donewhen.agent.undo import ToolUndo, UndoReport, read_undoing
from donewhen.agent.work.day_budgets import RunBudget
from donewhen.agent.work.news import Notifier, queue_of_news, store_notification
from donewhen.agent.work.recorder import Recorder, recording
from donewhen.agent.work.schedules import keep_schedule
from donewhen.agent.work.thread_rows import (
    ENDED,
    QUEUE,
    READ_AT_ONCE,
    Cancellation,
    CancelListener,
    ThreadInfo,
    check_free,
    enqueue,
    enqueue_left_answers,
    fields_at_work,
    forget_cancel,
    has_work,
    is_unsettled,
    last_turn,
    leave_answers,
    queue_of,
    read_info,
    read_left_answers,
    read_spent,
    read_standing,
    read_still_open,
    requeue_given_up,
    requeue_untaken,
    run_now,
    settings_in,
    show_asked,
    time_text,
    untaken_answers,
    update_row,
    withdraw_answers,
    write_crash,
    write_status,
)
from donewhen.graph.clock import moment_of, using
from donewhen.graph.context import use_executors
from donewhen.graph.day_budget import use_budget
from donewhen.graph.deliver import cancel_without_receipt, note_undone
from donewhen.graph.events import log_of, moment, open_log, to_event
from donewhen.graph.executors.executor import CANCEL, Executors, constraint_problem
from donewhen.graph.llm.output import OutputForm, present_form
from donewhen.graph.pauses.pause import ResolvedAnswer
from donewhen.graph.pauses.plan import criteria_problem
from donewhen.graph.people.interjections import (
    delete_interjection,
    hearing,
    interjection_lock,
    new_interjection,
    read_interjections,
    was_told,
)
from donewhen.graph.people.pauses import close_for_new_request
from donewhen.graph.receive import end_at_once, plan_key, take_place
from donewhen.graph.step.round import spent_by
from donewhen.graph.sync import finish
from donewhen.graph.tools.program import programs_problem
from donewhen.state.channels import Json
from donewhen.state.errors import (
    ConfigError,
    DoneWhenError,
    GoalError,
    ResumeError,
    StaleAnswer,
    StorageError,
    ThreadBusy,
    UnknownThread,
)
from donewhen.state.language.texts import say, say_why
from donewhen.state.ledger import Budgets, add
from donewhen.state.people.answers import Answer, is_message, read_signed
from donewhen.state.private_langgraph import STRICT_RESUME_KEY
from donewhen.state.settings import Settings, SettingsLike, keep_to, merge_settings, read_settings
from donewhen.state.values import storable, with_name
from donewhen.state.versions import migrate

if TYPE_CHECKING:
    from donewhen.agent.tracing import Tracing

CUT_OFF = 2.0
"""Seconds that a cancelled run has to reach a clean point; then its calls are cut off, each in its own way."""
Compiled = CompiledStateGraph[Any, Settings, Any, Any]
MOST_CALLS = 3
"""How often the graph is called at most until the route after its last node is stored, see `route_if_stopped`."""
STATES_READ = 5
"""How many states of a thread are read at once, the latest first, because LangGraph reads all that it is asked for."""
SUBMIT_PATIENCE = 2.0
"""Seconds to wait for another process that is starting or finishing work on the thread."""
LATE_CHARS = 1000
"""The most characters of late messages that a run's problem quotes."""
READS = 3
"""How often a thread is read until it was not changed meanwhile."""
WAIT_FOR_IT = "; `watch` follows it, `tell` redirects it, `cancel` ends it"
OR_RESTART = "; restart=True begins anew"
OR_UNDO = ". Nothing can be undone before it ends: `donewhen cancel`, agent.cancel"
WITH_EVENTS: Json = {"stream_mode": ["values", "custom"], "version": "v2", "subgraphs": True}
QUIETLY: Json = {"stream_mode": ["values"], "version": "v2", "subgraphs": False}
_PLACES = ("checkpoint_id", "checkpoint_ns", "checkpoint_map")
_log = logging.getLogger("donewhen")


class RunCancelled(Exception):
    """Somebody cancels the run that is being driven."""

    def __init__(self, why: Cancellation) -> None:
        super().__init__(why.reason)
        self.why = why


@dataclass
class GraphCall:
    """A call of the graph on a thread, as its caller wants it."""

    thread_id: str
    config: RunnableConfig | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of `astream`, such as its modes."""
    control: RunControl = field(default_factory=RunControl)
    on_begin: Callable[[str], Awaitable[None]] = lambda goal: asyncio.sleep(0)
    """Called with the goal before the graph is called, which waits for it."""
    on_cancel: Callable[[], None] = lambda: None
    """Called when the run is cancelled."""
    advice: str = ""
    """What to do about a thread that another worker holds; ends the error."""
    request: str = ""
    """The id of the message of the request that begins; "" if none does."""
    last_state: Json | None = None
    """The last `values` part of the thread's own graph that was streamed."""
    run: Run | None = None
    """The run at the end of the call."""

    def cancel(self) -> None:
        """Let the run stop at its next clean point, because it is cancelled."""
        self.control.request_drain(CANCEL)
        self.on_cancel()


async def _nothing(thread: "HeldThread", recorder: Recorder | None) -> None:
    """Do nothing before the graph is called."""


@dataclass(frozen=True)
class Act:
    """What to do with a held thread: the graph's input, and what is written before the graph is called."""

    input: Any
    """The input of the graph; None continues."""
    settings: Settings
    goal: str = ""
    change: Json = field(default_factory=dict)
    """The fields of the thread's row that change."""
    fresh: bool = False
    """A new request begins."""
    request: str = ""
    """The id of the request's message, if it begins as a request of the agent."""
    before: Callable[["HeldThread", Recorder | None], Awaitable[None]] = _nothing
    """Called between writing the row and calling the graph: it records the act and writes checkpoints."""
    from_checkpoint: bool = False
    """True if the graph continues from the checkpoint of the call's configuration, not from the thread's latest one."""


Decide = Callable[["HeldThread"], Awaitable[Act | Run]]
"""Reads a held thread and returns what to do with it; the thread's Run if there is nothing to do."""


# Holding a thread ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldThread:
    """A thread held by one worker."""

    thread_id: str
    saver: BaseCheckpointSaver[Any]
    store: ThreadStore
    graph: Compiled
    """The graph with saver and store."""
    row: Json
    """The row when the thread was taken; {} if there was none."""

    async def read(self) -> StateSnapshot:
        """Read the thread's state."""
        return await self.graph.aget_state(make_config(self.thread_id))


def make_config(thread_id: str, config: RunnableConfig | None = None) -> RunnableConfig:
    """Return the caller's callbacks, tags and metadata for our thread's latest checkpoint, with strict resume."""
    base: RunnableConfig = config or {}
    configurable = {key: value for key, value in (base.get("configurable") or {}).items() if key not in _PLACES}
    own = {"thread_id": thread_id, STRICT_RESUME_KEY: True}
    metadata = {"session_id": thread_id, "langfuse_session_id": thread_id, **(base.get("metadata") or {})}
    return {**base, "configurable": {**configurable, **own}, "metadata": metadata}


def with_callback(config: RunnableConfig, handler: BaseCallbackHandler) -> RunnableConfig:
    """Return the configuration with a handler among its callbacks."""
    callbacks: Any = config.get("callbacks")
    if callbacks is None or isinstance(callbacks, list):
        return {**config, "callbacks": [*(callbacks or ()), handler]}
    callbacks = callbacks.copy()
    callbacks.add_handler(handler, inherit=True)
    return {**config, "callbacks": callbacks}


async def _read_back(
    graph: Compiled, thread_id: str, before: RunnableConfig | None = None, **filter: str
) -> AsyncGenerator[StateSnapshot]:
    """Yield the states of a thread, those before this one, the latest first."""
    read = partial(graph.aget_state_history, make_config(thread_id), filter=filter or None, limit=STATES_READ)
    while page := [each async for each in read(before=before)]:
        for each in page:
            yield each
        before = page[-1].config


async def _find_input(
    graph: Compiled, thread_id: str, request: str
) -> tuple[StateSnapshot | None, RunnableConfig | None]:
    """Return the state with the last input of a request, and the next request's.

    A request that was cancelled before it began has no input: then it is that of the request before it; None if there
    is none, or the thread never had the request. A request that took the place of others goes on from the state before
    them; what they left was stored just before its input.
    """
    known, later = known_ids((await graph.aget_state(make_config(thread_id))).values), None
    async for each in _read_back(graph, thread_id, source="input"):
        before = known_ids(each.values)
        follows = each.values.get("request") == request  # such as an answer as a message
        if follows or request in _given_in(each) or request in known - before:
            return each, later
        known, later = before, each.config
    return None, later


async def _last_state_of(
    graph: Compiled, thread_id: str, snapshot: StateSnapshot, request: str
) -> StateSnapshot | None:
    """Return the last state of an earlier request; None if it is not kept. `snapshot` is the thread's last state."""
    if _is_state_of(snapshot, request):
        return snapshot
    begin, later = await _find_input(graph, thread_id, request)
    async for each in _read_back(graph, thread_id, later):
        if _is_state_of(each, request):
            return each
        if begin and each.config == begin.config and each.values.get("request") != request:
            return None
    return None


async def _find_before(graph: Compiled, thread_id: str, request: str) -> RunnableConfig:
    """Return the checkpoint before a request; its first one, if it was the thread's first request and never began.

    Raises ConfigError if no request began with this message.
    """
    begin, later = await _find_input(graph, thread_id, request)
    if begin and request in _given_in(begin):
        return begin.parent_config or begin.config
    is_there, first = False, None
    async for each in _read_back(graph, thread_id, later):
        is_begin = begin is not None and each.config == begin.config
        if is_there and request not in known_ids(each.values):
            is_input = is_begin or request in _given_in(each)
            return (each.parent_config or each.config) if is_input else each.config
        is_its = each.values.get("request") == request
        is_there, first = is_there or is_its, each.config
        if is_begin and not is_its:
            break
    if is_there and first:
        return first
    raise ConfigError(f"instead_of: no request of thread {thread_id!r} began with the message {request!r}")


def _is_state_of(snapshot: StateSnapshot, request: str) -> bool:
    """Return whether a state is of this request, and has not been given the next one."""
    return snapshot.values.get("request") == request and not {"__start__", "receive"} & {*snapshot.next}


def _given_in(snapshot: StateSnapshot) -> list[str]:
    """Return the ids of the messages in the input with which this state begins."""
    given = [each for task in snapshot.tasks for each in (task.result or {}).get("messages") or ()]
    return [str(each.id) for each in given if isinstance(each, BaseMessage)]  # others have none yet, such as pairs


def on_saver(graph: Compiled, saver: BaseCheckpointSaver[Any], store: BaseStore) -> Compiled:
    """Return the graph with this checkpointer and store, like `compile`."""
    return graph.copy({"checkpointer": saver, "store": store})


async def _queue_left_answers(graph: Compiled, store: ThreadStore, thread_id: str, row: Json) -> Json:
    """Queue the answers left to a held thread that waits, and return its row."""
    queued = queued_answers(row)
    asked = [pause["id"] for pause in row.get("pending") or ()] if row.get("status") == "waiting" else []
    if not await read_left_answers(store, thread_id, asked) and not (queued and row.get("status") == "queued"):
        return row
    snapshot = await graph.aget_state(make_config(thread_id))
    await enqueue_left_answers(store, read_run(thread_id, snapshot), queued)
    return await store.threads.get(thread_id) or {}


def _goal_for(row: Json, run: Run) -> str | None:
    """Return the goal of a run, for its thread's row; None if the run is still of the request before the row's."""
    return run.goal or None if request_in_row(row) in ("", run.request) else None


async def _complete_rest(store: ThreadStore, run: Run, values: Json, **change: Any) -> Run:
    """Carry out the consequences of a run's pause or end, then write it into the row; return the run.

    This may be repeated, so if a worker is interrupted here the next one completes it.
    """
    await keep_schedule(store, run, values)
    interjections = await read_words_to_named(store, run)
    run, row = show_words(run, interjections), await store.threads.get(run.thread_id) or {}
    untaken = untaken_answers(row, run)
    continued = await enqueue_left_answers(store, run, untaken, queue_of(row, QUEUE) if untaken else "")
    if continued is not run:
        return continued
    untold = (each["key"] for each in interjections if each["at"] >= row.get("updated", ""))
    change["news"] = await store_notification(store, run, row, values, " ".join(untold))
    change["goal"] = _goal_for(row, run)
    change |= {"turn": values.get("turn", 0), "version": values.get("version", 0)}
    await write_status(store, run, row, **change)
    if run.outcome and (row.get("settings") or {}).get("when_busy") == "next_round":
        left = await read_interjections(store, run.thread_id, str(values.get("interjection_cursor") or ""))
        if text := "\n".join(with_name(one.get("by"), str(one["text"])) for one in left if not one.get("heard")):
            run = replace(run, problem=f"{say(run.language, 'summary', 'late')}: {text[:LATE_CHARS]}")
            await write_status(store, run, row, **{**change, "problem": run.problem})
    return await enqueue_left_answers(store, run)


async def route_if_stopped(graph: Compiled, config: RunnableConfig) -> StateSnapshot | None:
    """Route a run that stopped between two nodes, and return None; return the state of any other run.

    Ctrl-C can stop a run there: the update of a node is stored, but not the route that follows.
    """
    snapshot = await graph.aget_state(config, subgraphs=True)
    values = snapshot.values
    if snapshot.tasks or values.get("outcome") or not (values.get("planning") and values.get("goal")):
        return snapshot
    await graph.aupdate_state(config, {}, as_node="advance")
    return None


async def read_consistent(
    graph: Compiled, store: ThreadStore, thread_id: str, row: Json | None = None
) -> tuple[Json, StateSnapshot]:
    """Read the row and the state, with working steps, of a thread that others may be working on, at one moment.

    `row` is the row if it was read already. They are read again if the row has changed meanwhile, or the next
    checkpoint has removed the rounds of finished steps: then steps are read in part. If that happens each time, the
    state is read without working steps.
    """
    config, again = make_config(thread_id), row or await store.threads.get(thread_id) or {}
    for _ in range(READS):
        row = again
        with suppress(StorageError):  # a sealed round was deleted while it was read
            snapshot = await graph.aget_state(config, subgraphs=True)
            inside = any(isinstance(task.state, StateSnapshot) for task in snapshot.tasks)
            is_same = not inside or (await graph.aget_state(config)).config == snapshot.config
            again = await store.threads.get(thread_id) or {}
            if is_same and again == row:
                return row, snapshot
    return again, await graph.aget_state(config)


def request_in(graph_input: Any, *, strict: bool = False) -> list[AnyMessage]:
    """Return the messages of a graph's input, if it has nothing else and they are a request; else [].

    `strict`: raise GoalError for messages that are no request.
    """
    if isinstance(graph_input, Mapping) and set(graph_input) == {"messages"}:
        with nullcontext() if strict else suppress(GoalError):
            return read_goal(
                graph_input["messages"] if isinstance(graph_input["messages"], list) else [graph_input["messages"]]
            )
    return []


def _end_state(last: Json | None, config: RunnableConfig) -> StateSnapshot | None:
    """Return the state of an ended run from the last part of its stream; None if the run did not end."""
    if last is None or last["interrupts"] or not last["data"].get("outcome"):
        return None
    return StateSnapshot(last["data"], (), config, None, None, None, (), ())


def _has_input(graph_input: Command[Any] | Json | None, run: Run, snapshot: StateSnapshot) -> bool:
    """Return whether the thread's state has the graph's input, although the graph was drained."""
    if isinstance(graph_input, Command):
        return run.status != "waiting"
    return not graph_input or graph_input["messages"][-1].id in known_ids(snapshot.values)


@dataclass(frozen=True)
class Runner:
    """Starts and resumes runs of one graph on one storage."""

    graph: Compiled
    storage: Storage
    settings: Settings
    """The agent's settings, which those of a call override."""
    form: OutputForm | None = None
    """The form of the structured result, if one is requested."""
    queue: str = QUEUE
    """The queue whose workers carry out submitted and scheduled runs."""
    executors: Executors = field(default_factory=Executors)
    """The executors of the runs that are driven here."""
    graphs_executors: Executors | None = None
    """The executors with which the graph was built, if `executors` replaces them."""
    tools_of_request: str | None = None
    """The message of the request to which an earlier call gave the tools that `executors` adds: another request begins
    without them. "" if that one had begun before the call; None if there are no such tools.
    """
    cancels: CancelListener = field(default_factory=CancelListener)
    record: Callable[[Settings], Json] | None = None
    """Describes the models of a run with these settings, for its recording; None if runs are not recorded."""
    notifier: Notifier | None = None
    """Delivers notifications of these runs; None if nobody is notified."""
    tracing: "Tracing | None" = None
    """Traces these runs; None if they are not traced."""
    budgets: Budgets = field(default_factory=Budgets)
    """What owners and queues may spend in a day."""
    prepare: Callable[[Settings], None] = lambda _: None
    """Makes the models of a run; raises ConfigError where a key is missing."""

    def merge(self, settings: SettingsLike) -> Settings:
        """Return these settings, completed by the agent's and by the schema of its output type."""
        wanted = {"output_schema": self.form.schema} if self.form else {}
        return merge_settings(merge_settings(self.settings, wanted), settings)

    def settings_now(self, row: Json) -> Settings:
        """Return the settings of a thread's request, within what this agent allows now."""
        stored = settings_in(row)
        return self.settings if stored is None else keep_to(self.settings, stored)

    def _check_enforceable(self, settings: Settings) -> None:
        """Raise ConfigError for hard constraints that cannot be enforced, and programs without their interpreter."""
        if problem := constraint_problem(settings, self.executors) or programs_problem(settings):
            raise ConfigError(f"settings: {problem}")

    # Holding a thread ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def hold(self, thread_id: str, *, working: bool = False, patience: float = 0.0) -> AsyncIterator[HeldThread]:
        """Hold a thread; settle it and queue the answers left to it first; settle it again if the block is cancelled.

        `working`: a run works on it, for long. Raises ThreadBusy.
        """
        async with self.storage.session(thread_id, working=working, patience=patience) as (saver, store):
            with using(store.threads.clock()) as clock:
                own = on_saver(self.graph, saver, store)
                row = await _queue_left_answers(own, store, thread_id, await self._settle(own, store, thread_id) or {})
                if written := row.get("updated"):
                    clock.follow(moment_of(written))
                standing = await read_standing(store, thread_id, row)
                with open_log(thread_id, standing, partial(store.events.append, thread_id)) as store.log:
                    try:
                        yield HeldThread(thread_id, saver, store, own, row)
                    except (asyncio.CancelledError, GeneratorExit):
                        with suppress(StorageError):
                            await finish(asyncio.ensure_future(self._settle(own, store, thread_id, by_itself=True)))
                        raise

    async def _settle(
        self, graph: Compiled, store: ThreadStore, thread_id: str, *, by_itself: bool = False
    ) -> Json | None:
        """Complete unfinished bookkeeping of a held thread, and return its row; None if there is no such thread.

        `by_itself` as in `write_crash`.
        """
        row = await store.threads.get(thread_id)
        if row is None or not is_unsettled(row):
            return row
        snapshot = await graph.aget_state(make_config(thread_id))
        left = [(task.name, task.result is None) for task in snapshot.tasks]
        if left == [("deliver", False)]:  # only its end is missing
            await graph.ainvoke(None, make_config(thread_id), durability="sync")
            snapshot = await graph.aget_state(make_config(thread_id))
        run = read_run(thread_id, snapshot)
        change: Json = {}
        if not snapshot.created_at and not row.get("request"):  # what was given to its graph could not be stored
            await store.threads.delete(thread_id)
            return None
        if snapshot.created_at:  # on the clock of a worker that died, which may be another
            last = time_text(datetime.fromisoformat(snapshot.created_at))
            change["updated"] = min(max(row["updated"], last), await store.threads.next_update())
        if untaken := untaken_answers(row, run):
            change["answered"] = {}
        if run.status == "running" or is_not_begun(row, snapshot.values) or untaken:
            goal = _goal_for(row, run)
            change |= {"goal": goal, "spent": read_spent(row, run)}
            await write_crash(store, thread_id, row, self.notifier, by_itself=by_itself, **change)
        else:
            await self.write_rest(store, run, snapshot.values, **change)
        return await store.threads.get(thread_id)

    # Beginning ---------------------------------------------------------------------------------------------------

    async def start(self, live: LiveRun, request: Request) -> Run:
        """Begin a request on the thread of `live`, unless it has it already. Raises ThreadWaiting, ConfigError."""
        request = await self.prepare_request(request)
        try:
            return await self.work(live, lambda thread: self._start(thread, request))
        except ThreadBusy:
            if request.id and (run := await self._read_delivered(live.thread_id, request)):
                return run
            raise

    async def _start(self, thread: HeldThread, request: Request) -> Act | Run:
        request.check_owner(thread.thread_id, thread.row)
        snapshot = None if last_turn(thread.row) and not request.id else await thread.read()
        if snapshot and request.is_delivered(thread.thread_id, thread.row, snapshot.values):
            return await self._run_of(thread.graph, thread.thread_id, thread.row, snapshot, request.id, request.goal)
        if snapshot and not request.restart:
            check_free(thread.thread_id, thread.row, snapshot, OR_RESTART)
        return await self.begin(thread, request, snapshot, queue="")

    async def prepare_request(self, request: Request) -> Request:
        """Return a request that can begin here, with the plan of its template. Raises ConfigError."""
        await self._check_tools(request.settings)
        self.prepare(request.settings)
        return await self._fill(request)

    async def _check_tools(self, settings: Settings) -> None:
        """Raise ConfigError for settings that cannot be met here: constraints, programs, required criteria."""
        self._check_enforceable(settings)
        if problem := await criteria_problem(settings, self.executors):
            raise ConfigError(f"settings: {problem}")

    async def submit(self, thread_id: str, request: Request, at: datetime | None, *, checks_tools: bool) -> None:
        """Store a request for a worker. If the thread has it already, it goes back to workers that gave up on it.

        Raises ThreadWaiting, ConfigError. `checks_tools`: the tools here are those of the worker.
        """
        if checks_tools:
            await self._check_tools(request.settings)
        request = await self._fill(request)
        try:
            async with self.hold(thread_id) as thread:
                snapshot = await thread.read()
                if request.is_delivered(thread_id, thread.row, snapshot.values):
                    if request.id == request_of(thread.row, snapshot.values):
                        await requeue_given_up(thread.store, thread_id, thread.row, self.queue)
                else:
                    if not request.restart:
                        check_free(thread_id, thread.row, snapshot, OR_RESTART)
                    if request.instead_of:
                        await _find_before(thread.graph, thread_id, request.instead_of)
                    put_out = request.goals_put_out(thread.row, snapshot.values)
                    await enqueue(thread.store, thread_id, self.queue, request, at, put_out=put_out)
        except ThreadBusy:
            if not request.id or await self._read_delivered(thread_id, request) is None:
                raise

    async def _read_delivered(self, thread_id: str, request: Request) -> Run | None:
        """Return the run of a busy thread if it has the request, by its id, or gets it soon; else None.

        A thread that is at work at two looks has another request. At the first, its row may be of a worker that died.
        """
        deadline, before = time.monotonic() + SUBMIT_PATIENCE, None
        while True:
            async with self.storage.reader() as (saver, store):
                graph = on_saver(self.graph, saver, store)
                row, snapshot = await read_consistent(graph, store, thread_id)
                if request.is_delivered(thread_id, row, snapshot.values):
                    return await self._run_of(graph, thread_id, row, snapshot, request.id, request.goal)
            at_work = row.get("updated") if row.get("status") == "running" else None
            if time.monotonic() >= deadline or (at_work and at_work == before):
                return None
            before = at_work
            await asyncio.sleep(0.05)

    async def _fill(self, request: Request) -> Request:
        """Return the request with the plan of its template, and with the template's goal if it has none."""
        if request.template is None:
            return request if request.messages else replace(request, messages=read_goal(""))
        template, values = await Templates(self.storage).get(request.template), request.parameters or {}
        goal, plan = template.fill(values)
        given, settings = {"plan": plan, "template": template.origin(values)}, request.settings
        if template.language and not settings.speaks:
            settings = merge_settings(settings, {"language": template.language})
        return replace(request, messages=request.messages or read_goal(goal), plan=given, settings=settings)

    async def begin(
        self, thread: HeldThread, request: Request, snapshot: StateSnapshot | None, queue: str | None = None
    ) -> Act:
        """Return the act that begins a request. The request is stored first: if the worker dies, the next begins it.

        `snapshot`: the thread's state; None if its row says that the previous request has ended.
        """
        thread_id, messages = thread.thread_id, list(request.messages)
        message = str(messages[-1].id)
        turn = (snapshot.values.get("turn", 0) if snapshot else last_turn(thread.row)) + 1
        log_of(thread_id).turn = turn
        place, base, gone, values = None, dict[str, Any](), list[RemoveMessage](), snapshot.values if snapshot else {}
        if request.instead_of:
            place = await _find_before(thread.graph, thread_id, request.instead_of)
        if place:
            found, values = (await thread.graph.aget_state(place)).values, (await thread.read()).values
            said = found.get("messages") or []
            stays = [*takewhile(lambda each: each.id != request.instead_of, said)]
            base, gone = {**found, "messages": stays}, [RemoveMessage(id=each.id) for each in said[len(stays) :]]
        if request.plan:
            await thread.store.aput(plan_key(thread_id), message, request.plan, index=False)

        async def put_away(thread: HeldThread, recorder: Recorder | None) -> None:
            if recorder and self.record:
                if snapshot:
                    await recorder.end(snapshot)
                await recorder.begin(turn, request, self._executors_for(message), self.record(request.settings))
            if snapshot:
                await self._put_away(thread, snapshot)
            if place:
                await thread.read()  # ids written from now on sort after the thread's latest state
                taken = await take_place(base, thread.store, thread_id, turn)
                update = {**taken, "turn": turn - 1, "goal": "", "request": "", "messages": gone}  # it is of no request
                await thread.graph.aupdate_state(place, update, as_node="deliver")

        change: Json = {"request": request.to_json(), "settings": request.settings, "answered": {}, "queue": queue}
        change |= {"goal": request.goal, "metadata": request.metadata, "owner": request.owner or None}
        change |= {"home": self.queue, "put_out": request.goals_put_out(thread.row, values, base if place else None)}
        if place:  # what comes after it leaves the conversation
            change["goals"] = [each.text for each in base.get("messages") or () if isinstance(each, HumanMessage)]
        graph_input: Json = {"messages": messages}
        return Act(graph_input, request.settings, request.goal, change, fresh=True, request=message, before=put_away)

    async def _put_away(self, thread: HeldThread, snapshot: StateSnapshot) -> None:
        """Close the previous request, if it is open, because a new one takes its place."""
        if snapshot.created_at and read_run(thread.thread_id, snapshot).status in ("waiting", "running"):
            await self._take_in(thread)
            values: Any = migrate(snapshot.values)
            taken = await take_place(values, thread.store, thread.thread_id, values.get("turn", 0) + 1)
            update = {**close_for_new_request(values), **taken}
            await thread.graph.aupdate_state(make_config(thread.thread_id), update, as_node="deliver")

    async def _take_in(self, thread: HeldThread) -> None:
        """Take into the run what interrupted planning and steps hold, and the ends of steps beside them.

        Whatever gives the graph another input or ending must do this first, because the graph drops them then. If
        nothing follows, the run goes on from here.
        """
        config = make_config(thread.thread_id)
        snapshot = await thread.graph.aget_state(config, subgraphs=True)
        update = read_left_behind(snapshot)
        if spent := await spent_by(thread.store, thread.thread_id, interrupted_tasks(snapshot)):
            update["spent"] = add(update.get("spent"), spent)
        if update:
            node = snapshot.tasks[0].name
            await thread.graph.aupdate_state(config, update, as_node="advance" if node == "deliver" else node)

    def before_input(
        self, graph_input: Any, run: Run, settings: Settings | None = None
    ) -> Callable[[HeldThread, Recorder | None], Awaitable[None]]:
        """Return a function, for `Act.before`, that prepares for the graph's input with which a run continues."""

        async def prepare(thread: HeldThread, recorder: Recorder | None) -> None:
            if run.status == "running" and graph_input is not None:
                await self._take_in(thread)
            if recorder:
                await recorder.go_on(graph_input, run.pending, settings)

        return prepare

    # Going on ----------------------------------------------------------------------------------------------------

    async def resume(self, live: LiveRun, continuation: Continuation) -> Run:
        """Answer or continue the thread of `live`, first with what was submitted for it."""
        advice = WAIT_FOR_IT if continuation.answer is MISSING else ANSWER_LATER
        return await self.work(live, lambda thread: self.go_on(thread, continuation), advice)

    async def go_on(self, thread: HeldThread, continuation: Continuation) -> Act | Run:
        """Return the act that continues a thread: with an answer, in another direction (`steer`), or else with what
        was submitted for it, or unchanged.

        Raises ConfigError before anything is taken if a model cannot be made, as without a key: the run would fail.
        """
        row, snapshot, new_settings = thread.row, await thread.read(), continuation.settings
        is_unchanged = continuation.answer is MISSING and not continuation.steer
        if is_unchanged and is_not_begun(row, snapshot.values):
            settings = merge_settings(self.settings_now(row), new_settings)
            self.prepare(settings)
            return await self.begin(thread, Request.from_row(row, settings), snapshot)
        check_begun(thread.thread_id, row, snapshot.values, steered=bool(continuation.steer))
        if (
            continuation.form
            and snapshot.values
            and continuation.form.schema != (snapshot.values.get("output_schema") or {})
        ):
            raise ConfigError("output_type: the run was started with another one, or with none")
        run, settings = self._read_to_continue(thread, snapshot, new_settings)
        run = await with_words_of_others(thread.store, run)
        answers: Json = {}
        if continuation.steer:
            command: Any = steer_input(run, continuation.steer, migrate(snapshot.values))
        else:
            answers = self._answers_to(run, row, snapshot.values, settings, continuation)
            seen = {id: words for id, words in continuation.seen.items() if id not in queued_answers(row)}
            if continuation.answer is not MISSING and (
                waiting := await self._keep_for_others(thread, run, answers, seen)
            ):
                return waiting
            command = resume_command(
                run, answers, snapshot.values, self.executors, settings, queued=bool(queued_answers(row))
            )
        if command is None and run.status != "running":
            # What was submitted is for questions that are closed: its thread leaves the queue.
            if is_unchanged and has_work(row):
                return await self.write_rest(thread.store, run, snapshot.values)
            return run
        self.prepare(settings)
        change: Json = {"goal": _goal_for(row, run), "settings": settings if new_settings else None}
        if answers:
            change |= fields_at_work(thread.store, run, answers)
        return Act(command, settings, run.goal, change, before=self.before_input(command, run, change["settings"]))

    def _answers_to(
        self, run: Run, row: Json, values: Mapping[str, Any], settings: Settings, continuation: Continuation
    ) -> Json:
        """Return the answers to open questions by id: the one given, else those submitted, else the policy's."""
        if continuation.answer is not MISSING:
            return admit(run, row, values, continuation.answer, continuation.question, continuation.by)
        queued = queued_answers_to(run, row)
        return address_answer(run, values, queued) if queued else overdue_answers(run, settings)

    def _read_to_continue(
        self, thread: HeldThread, snapshot: StateSnapshot, new_settings: SettingsLike
    ) -> tuple[Run, Settings]:
        """Return the run of a thread that is to continue, and its settings with the new ones merged in."""
        settings = merge_settings(self.settings_now(thread.row), new_settings)
        if new_settings:
            self._check_enforceable(settings)
        log_of(thread.thread_id).turn = snapshot.values.get("turn", 1)
        return read_run(thread.thread_id, require_thread(thread.thread_id, snapshot), settings, self.form), settings

    async def _keep_for_others(self, thread: HeldThread, run: Run, answers: Json, seen: Seen) -> Run | None:
        """Keep the words of answers by somebody who is not asked; return the run, which waits on and says so.

        None if the graph takes the answers: one of them counts, or is a message, which may have images and files.
        Raises StaleAnswer, as `read_understood` returns it.
        """
        _, error = read_understood(run, answers, seen)
        if isinstance(error, StaleAnswer):
            raise error
        given = [read_signed(answer) for answer in answers.values()]
        if (
            not isinstance(error, NotAsked)
            or len(error.pending) < len(given)
            or any(is_message(each) for each, _ in given)
        ):
            return None
        problem = await self.keep_words(thread.thread_id, error, given[0][1] or "")
        return replace(await with_words_of_others(thread.store, run), problem=str(problem))

    async def keep_words(self, thread_id: str, error: NotAsked, by: str) -> ResumeError:
        """Keep the words of somebody who is not asked, as by `tell`; return the error, which says if they are kept."""
        if error.words:
            with suppress(ResumeError):  # it takes no messages
                await self.tell(thread_id, error.words, by, error.said, repeats=True)
                return error.kept()
        return error

    async def tell(self, thread_id: str, text: str, by: str, name: str, *, repeats: bool = False) -> None:
        """Store what is said to a thread, and the news of a question that shows it from now on.

        `name` and `repeats` say, as in `new_interjection`, whether the words are there already.

        The thread is not held: whoever works on it, or reads its question, finds the words. Raises as `Agent.tell`.
        """
        async with self.storage.reader() as (_, store):
            row = await store.threads.get(thread_id)
            free = bool(await self.storage.find_free([thread_id]))
            if name and not repeats and await was_told(store, thread_id, name):
                return
        if row is None:
            raise unknown_thread(thread_id)
        settings = settings_in(row)
        refuses = settings is None or settings.when_busy == "refuse"
        if row.get("status") in ENDED or (free and refuses):
            raise idle_error(thread_id, row)
        if refuses:
            hint = 'it takes no messages while it works; Settings(when_busy="next_round") lets it'
            raise ThreadBusy(f"thread {thread_id!r} is being worked on, and {hint}")
        async with self.storage.session(interjection_lock(thread_id), patience=LOCK_PATIENCE) as (saver, store):
            with using(store.threads.clock()) as clock:
                row = await store.threads.get(thread_id) or {}
                if written := row.get("updated"):
                    clock.follow(moment_of(written))
                more = {"by": by, "request": request_in_row(row)}
                new = await new_interjection(store, thread_id, text, name, repeats=repeats, **more)
                if new is None:
                    return
                words, put = new
                if not await self._announce_words(saver, store, thread_id, row, words, put):
                    await store.abatch([put])
            row = await store.threads.get(thread_id) or {}
            if row.get("status") in ENDED:  # meanwhile
                await delete_interjection(store, thread_id, words["key"])
                raise idle_error(thread_id, row)

    async def _announce_words(
        self, saver: BaseCheckpointSaver[Any], store: ThreadStore, thread_id: str, row: Json, words: Json, put: PutOp
    ) -> bool:
        """Store words with the news of the question that shows them; return False if there is none to tell of."""
        asked = any(pause.get("answered_by") for pause in row.get("pending") or ())
        if row.get("status") != "waiting" or not asked or not row.get("notify"):
            return False
        snapshot = await on_saver(self.graph, saver, store).aget_state(make_config(thread_id))
        interjections = [*await read_interjections(store, thread_id, ""), words]
        run = show_words(run_now(thread_id, row, snapshot), interjections)
        if run.status != "waiting":  # somebody answers it right now
            return False
        news = await store_notification(store, run, row, snapshot.values, words["key"], put)
        if news and self.notifier:
            self.notifier.wake()
        return news is not None

    async def audit(self, live: LiveRun, settings: SettingsLike) -> Run:
        """Let a judge audit the thread of `live`. Raises ThreadWaiting while its request is not finished."""
        return await self.work(live, lambda thread: self._audit(thread, settings))

    async def _audit(self, thread: HeldThread, new_settings: SettingsLike) -> Act:
        thread_id, snapshot = thread.thread_id, await thread.read()
        check_free(thread_id, thread.row, snapshot)
        values = require_thread(thread_id, snapshot).values
        ending = {**(values.get("ending") or {"code": "worked", "reason": ""}), "again": True}
        log_of(thread_id).turn = values.get("turn", 1)

        async def open_again(thread: HeldThread, recorder: Recorder | None) -> None:
            await thread.graph.aupdate_state(make_config(thread_id), {"ending": ending}, as_node="advance")
            if recorder:
                changed = read_settings(new_settings).model_dump(mode="json", exclude_unset=True)
                await recorder.write("audit", settings=changed)

        settings = merge_settings(self.settings_now(thread.row), new_settings)
        return Act(None, settings, values.get("goal", ""), before=open_again)

    async def undo(self, thread_id: str, step: str | None, *, dry_run: bool) -> UndoReport:
        """Put back what a finished request changed, and note that in its outcome; `dry_run`: only say what would be."""
        if dry_run:
            _, snapshot = await self.read(thread_id)
            async with self.storage.reader() as (_, store):
                report = await (await read_undoing(store, thread_id, snapshot.values, step, self._undo_of)).check()
                return replace(report, dry_run=True)
        async with self.hold(thread_id) as thread:
            snapshot = await thread.read()
            check_free(thread_id, thread.row, snapshot, OR_UNDO)
            values = migrate(require_thread(thread_id, snapshot).values)
            undoing = await read_undoing(thread.store, thread_id, values, step, self._undo_of)
            report = await undoing.carry_out(thread.store)
            listed = {row["id"] for row in (values["outcome"] or {}).get("receipt", {}).get("undone") or ()}
            if rows := undoing.rows(report, listed):
                await update_row(thread.store, thread_id, thread.row)
                if self.record:
                    await Recorder(thread.store, thread_id).write("undone", rows=rows)
                update = note_undone(values, rows)
                await thread.graph.aupdate_state(make_config(thread_id), update, as_node="deliver")
                snapshot = await thread.read()
                await self.write_rest(thread.store, read_run(thread_id, snapshot), snapshot.values)
            return report

    def _undo_of(self, tool: str) -> ToolUndo | str | None:
        """Return the undo of a tool, or why it has none, if it is here and says so."""
        toolbox = self.executors.toolbox
        return (toolbox[tool].tool.metadata or {}).get("undo") if tool in toolbox else None

    # Driving the graph -----------------------------------------------------------------------------------------------

    async def carry_out(self, call: GraphCall, decide: Decide) -> AsyncGenerator[Any]:
        """Hold a thread, let `decide` choose the act, and carry it out until the run pauses, ends or is cancelled.
        Yield what the graph streams; `call.run` is the run then.

        For every caller, the thread's row is written before the work, the run is recorded and traced, and the
        consequences of its end are carried out. Raises GraphDrained, after all is written, if `call.control` stopped
        the run.
        """
        async with self._hold_for(call) as thread:
            act = await decide(thread)
            call.request = act.request if isinstance(act, Act) else ""
            if isinstance(act, Run):
                call.run = act
                async with self._listen_for_cancel(thread, call):
                    await call.on_begin(act.goal)
                return
            await forget_cancel(thread.store, thread.thread_id)  # of earlier work; who still wants it repeats it
            recorder = Recorder(thread.store, thread.thread_id) if self.record and not act.from_checkpoint else None
            with self._record_and_trace(thread, call, act, recorder) as (config, trace, context):
                notify = self.notifier.queue if self.notifier else None
                change = {"notify": notify, "trace": trace or None, **act.change}
                await update_row(thread.store, thread.thread_id, thread.row, **change)
                await act.before(thread, recorder)
                async with (
                    self._sharing_day(thread, act, context),
                    self._listen_for_cancel(thread, call) as cancellation,
                    aclosing(self._call_graph(thread, call, act, config, context, cancellation)) as parts,
                ):
                    async for part in parts:
                        yield part

    @asynccontextmanager
    async def _hold_for(self, call: GraphCall) -> AsyncIterator[HeldThread]:
        """Hold the thread of a call. The error for a thread that another worker holds ends with the call's advice."""
        advice = call.advice
        try:
            async with self.hold(call.thread_id, working=True) as thread:
                advice = ""
                yield thread
        except ThreadBusy as error:
            raise ThreadBusy(f"{error}{advice}") from None

    @asynccontextmanager
    async def _listen_for_cancel(
        self, thread: HeldThread, call: GraphCall
    ) -> AsyncIterator[asyncio.Task[Cancellation]]:
        """Listen for a cancellation during the block; yield the task that ends with it."""
        cancellation = asyncio.create_task(self.cancels.wait(thread.store, thread.thread_id, call.cancel, call.request))
        try:
            yield cancellation
        finally:
            cancellation.cancel()
            await asyncio.wait([cancellation])

    @asynccontextmanager
    async def _sharing_day(self, thread: HeldThread, act: Act, context: Context) -> AsyncIterator[None]:
        """Let what is called in this context spend from the budgets of its owner and its queue."""
        budget = None
        if self.budgets.are_set:
            owner = str(act.change.get("owner") or thread.row.get("owner") or "")
            queue = str(act.change.get("home") or queue_of(thread.row, self.queue))
            budget = RunBudget(self.budgets, self.storage, thread.store, thread.thread_id, owner=owner, queue=queue)
            await budget.open()
        context.run(use_budget, budget)
        try:
            yield
        finally:
            if budget:
                with suppress(Exception):  # who waits for it finds that nobody works here
                    await budget.close()

    @contextmanager
    def _record_and_trace(
        self, thread: HeldThread, call: GraphCall, act: Act, recorder: Recorder | None
    ) -> Iterator[tuple[RunnableConfig, str, Context]]:
        """Record and trace the graph calls of the block, which are made in a context of their own.

        Yield their configuration, the traceparent of a new trace, which the row has to keep, and the context.
        """
        config = (call.config or {}) if act.from_checkpoint else make_config(thread.thread_id, call.config)
        config, context = self._make_context(recorder, config, act.request)
        if self.tracing is None:
            yield config, "", context
            return
        stored = "" if act.fresh else str(thread.row.get("trace") or "")
        with self.tracing.invocation(thread.thread_id, stored, context) as made:
            yield with_callback(config, self.tracing), "" if stored else made, context

    def _make_context(
        self, recorder: Recorder | None, config: RunnableConfig, request: str = ""
    ) -> tuple[RunnableConfig, Context]:
        """Return the configuration and the context for calls of the graph, with the recorder if there is one.

        `request` is the message of the request that begins, if any.
        """
        context = copy_context()
        context.run(present_form.set, self.form)
        context.run(use_executors, self._executors_of_graph, self._executors_for(request))
        if recorder:
            context.run(recording.set, recorder)
            context.run(hearing.set, recorder.hear)
            config = with_callback(config, recorder)
        return config, context

    def _executors_for(self, request: str) -> Executors:
        """Return the executors for a call of the graph; a request that begins has no tools that another one was given.

        `request` is its message; "" if none begins.
        """
        is_other = request and self.tools_of_request not in (None, request)
        return self._executors_of_graph if is_other else self.executors

    @property
    def _executors_of_graph(self) -> Executors:
        """Return those with which the graph was built."""
        return self.executors if self.graphs_executors is None else self.graphs_executors

    def use_settings(self) -> None:
        """Let the agent's settings hold in this context, in which its graph works as a node of another one."""
        use_executors(self._executors_of_graph, self.executors, self.settings)

    async def _call_graph(
        self,
        thread: HeldThread,
        call: GraphCall,
        act: Act,
        config: RunnableConfig,
        context: Context,
        cancellation: asyncio.Task[Cancellation],
    ) -> AsyncGenerator[Any]:
        """Call the graph until it pauses or ends; call it again without input if its last route was not stored.

        A cancellation that arrives meanwhile ends the run. If it is drained before its input was stored, submitted
        work returns to the queue.
        """
        graph, thread_id = thread.graph, thread.thread_id
        snapshot, drained = None, None
        await call.on_begin(act.goal)
        options: Any = {"durability": "sync", **call.options, "context": act.settings, "control": call.control}
        try:
            try:
                for graph_input in [act.input, *[None] * (MOST_CALLS - 1)]:
                    stream: Any = graph.astream(graph_input, config, **options)
                    async with aclosing(until_cancelled(stream, cancellation, context)) as parts:
                        async for part in parts:
                            yield part
                    config = make_config(thread_id, config)
                    if snapshot := _end_state(call.last_state, config) or await route_if_stopped(graph, config):
                        break
            except GraphDrained as error:
                drained = error
            snapshot = snapshot or await graph.aget_state(make_config(thread_id), subgraphs=True)
            if drained and _is_answered(snapshot):  # what is left is to give the answer that is there
                stream = graph.astream(None, make_config(thread_id, config), **{**options, "control": None})
                async with aclosing(until_cancelled(stream, cancellation, context)) as parts:
                    async for part in parts:
                        yield part
                drained, snapshot = None, await graph.aget_state(make_config(thread_id), subgraphs=True)
        except RunCancelled as cancelled:
            call.run = await self.end_cancelled(thread, cancelled.why)
            stream = graph.astream(None, make_config(thread_id, config), **options)  # how it ended
            async with aclosing(stream) as parts:
                async for part in parts:
                    yield part
            return
        run = read_run(thread_id, snapshot, act.settings, self.form)
        has_input = not drained or _has_input(act.input, run, snapshot)
        if has_input or not await requeue_untaken(thread.store, thread_id):
            call.run = await self.record_rest(thread, run, snapshot)
        if drained and (row := await thread.store.threads.get(thread_id)):
            call.run = run_now(thread_id, row, snapshot, self.form)
        if drained:
            raise drained

    async def record_rest(self, thread: HeldThread, run: Run, snapshot: StateSnapshot) -> Run:
        """Record a pause or an end that the graph has reached, and write it; return the run."""
        if self.record:
            await Recorder(thread.store, thread.thread_id).end(snapshot)
        return await self.write_rest(thread.store, run, snapshot.values)

    async def write_rest(self, store: ThreadStore, run: Run, values: Json, **change: Any) -> Run:
        """Write a pause or an end and all that follows from it, and wake the notifier; return the run."""
        run = await _complete_rest(store, run, values, **change)
        if self.notifier:
            self.notifier.wake()
        return run

    async def work(self, live: LiveRun, decide: Decide, advice: str = "") -> Run:
        """Carry out the act of `decide` on the thread of `live`, and send it the events."""
        thread_id = live.thread_id

        async def announce(goal: str) -> None:
            await live.begin(goal, call.request)
            if live.muted:
                call.options = QUIETLY

        call = GraphCall(thread_id, live.config, WITH_EVENTS, live.control, announce, live.run_ahead, advice)
        with suppress(GraphDrained):
            async with aclosing(self.carry_out(call, decide)) as parts:
                async for part in parts:
                    if part["type"] == "values":
                        call.last_state = call.last_state if part["ns"] else part
                    elif (event := to_event(thread_id, part["data"]))["type"] != "outcome":  # `live` sends that itself
                        await live.send(event)
        assert call.run is not None
        return call.run

    # Answers for a worker ----------------------------------------------------------------------------------------

    async def submit_answer(self, thread_id: str, answer: Any, question: str, seen: Seen, by: str) -> str:
        """Check an answer, and store it for a worker; return the thread's id.

        If a worker is working on the thread, the answer is left to that worker. Raises the errors of `resume`; of
        several answers, those that count are stored first, and before them what somebody says who is not asked.
        """
        await self._read_settled(thread_id)
        async with self.storage.writer() as (saver, store):
            run, row, values = await self._read_open(saver, store, thread_id)
            taken = queued_answers(row)
            if run.status == "running":
                left = await read_left_answers(store, thread_id, [pause["id"] for pause in run.pending])
                taken = {**taken, **{id: entry["answer"] for id, entry in left.items()}}
                run = run.without(left, "running")
            run = await with_words_of_others(store, run)
            answers = _address_open(run, values, answer, question, by, taken)
            understood, refusal = read_understood(run, answers, seen)
        if isinstance(refusal, NotAsked):
            refusal = await self.keep_words(thread_id, refusal, by)
        if not understood:
            if refusal:
                raise refusal
            return thread_id
        answers = storable(understood)
        async with self.storage.writer() as (_, store):
            lost = await leave_answers(store, thread_id, queue_of(row, self.queue), answers)
            at_work = await _is_at_work(store, thread_id, answers)
        if not at_work:  # nobody holds the thread, or who does just begins, or ends without having seen the answers
            await self._ensure_queued(thread_id, [] if lost else answers)
        if lost:
            text = f"thread {thread_id}: somebody else answered {''.join(lost)} at the same time"
            raise StaleAnswer(text, decided=find_decisions({}, lost, lost))
        if refusal:
            raise refusal
        return thread_id

    async def _ensure_queued(self, thread_id: str, ids: Collection[str]) -> None:
        """Hold the thread, which queues answers left to it; raise StaleAnswer if one of these questions is closed."""
        try:
            async with self.hold(thread_id, patience=SUBMIT_PATIENCE) as thread:
                if left := await read_left_answers(thread.store, thread_id, ids):
                    run, *_ = await self._read_open(thread.saver, thread.store, thread_id)
                    if run.status != "running" or left.keys() - {pause["id"] for pause in run.pending}:
                        await _refuse_left(thread.store, thread_id, left)
        except ThreadBusy:
            async with self.storage.writer() as (_, store):
                if not await _is_at_work(store, thread_id, ids):
                    await withdraw_answers(store, thread_id, ids)
                    raise

    async def _read_open(
        self, saver: BaseCheckpointSaver[Any], store: ThreadStore, thread_id: str
    ) -> tuple[Run, Json, Mapping[str, Any]]:
        """Return the run with its unanswered questions, its row, and its state.

        The run is `running` if it is worked on or was cut off, and `queued` if an answer to it waits for a worker.
        """
        row, snapshot = await read_consistent(on_saver(self.graph, saver, store), store, thread_id)
        check_begun(thread_id, row, snapshot.values)
        run = read_run(thread_id, snapshot)
        queued = queued_answers(row)
        at_work = bool(snapshot.created_at) and run.status == "running"
        if at_work:
            run = replace(run, pending=tuple(pause.dump() for pause in open_at_work(snapshot.values)))
        if at_work or row.get("status") == "running":
            return run.without({**queued, **(row.get("answered") or {})}, "running"), row, snapshot.values
        if row.get("status") == "queued":
            return run.without(queued), row, snapshot.values
        require_thread(thread_id, snapshot)
        return run, row, snapshot.values

    # Ending ------------------------------------------------------------------------------------------------------

    async def find_request(self, thread_id: str) -> tuple[str, str]:
        """Return the id and the goal of a thread's last request, begun or not."""
        async with self.storage.reader() as (saver, store):
            row, snapshot = await read_consistent(on_saver(self.graph, saver, store), store, thread_id)
        is_read = not is_unread(row, snapshot.values)
        return request_of(row, snapshot.values), str((is_read and snapshot.values.get("goal")) or goal_in_row(row))

    async def was_followed(self, thread_id: str, request: str) -> bool:
        """Return whether another request came after this one. None did while its own first node is at work."""
        async with self.storage.reader() as (saver, store):
            row, snapshot = await read_consistent(on_saver(self.graph, saver, store), store, thread_id)
        said = (each.id for each in reversed(snapshot.values.get("messages") or ()) if isinstance(each, HumanMessage))
        return request not in (request_of(row, snapshot.values), next(said, ""))

    async def read_request(self, thread_id: str, request: str, goal: str) -> Run:
        """Return the run of a request that a thread has or had."""
        async with self.storage.reader() as (saver, store):
            graph = on_saver(self.graph, saver, store)
            row, snapshot = await read_consistent(graph, store, thread_id)
            return await self._run_of(graph, thread_id, row, snapshot, request, goal)

    async def cancel(self, thread_id: str, why: Cancellation, request: str, goal: str) -> Run:
        """End the run of this request if it waits, is queued or was interrupted. Raises UnknownThread, ThreadBusy.

        A thread that has another request by now is left alone; then the run of this one is returned as it ended.
        """
        async with self.hold(thread_id) as thread:
            snapshot = await thread.read()
            if request and request_of(thread.row, snapshot.values) != request:
                return await self._run_of(thread.graph, thread_id, thread.row, snapshot, request, goal)
            return await self.end_cancelled(thread, why)

    async def _run_of(
        self, graph: Compiled, thread_id: str, row: Json, snapshot: StateSnapshot, request: str, goal: str
    ) -> Run:
        """Return the run of a request that a thread has or had; of an earlier one, as it was when the next one began.

        One whose place another took before its end, or whose state is not kept, is `cancelled`.
        """
        if request_of(row, snapshot.values) in (request, ""):
            assert graph.store is not None  # `on_saver` gave it one
            return await with_words_of_others(graph.store, run_now(thread_id, row, snapshot, self.form))
        last = await _last_state_of(graph, thread_id, snapshot, request)
        return self._earlier_run(thread_id, row, last, request, goal)

    def _earlier_run(self, thread_id: str, row: Json, last: StateSnapshot | None, request: str, goal: str = "") -> Run:
        run = read_run(thread_id, last, settings_in(row), self.form) if last else None
        if run and run.outcome:
            return run
        why = "another request took its place on the thread"
        return Run(thread_id, "cancelled", goal=goal, request=request, problem=why)

    async def withdraw(self, thread_id: str, reason: str) -> None:
        """End a queued run that has not begun, as cancelled; one that has begun stays as it is."""
        with suppress(ThreadBusy):  # somebody begins it right now
            async with self.hold(thread_id) as thread:
                if is_not_begun(thread.row, (await thread.read()).values):
                    await self.end_cancelled(thread, Cancellation(reason))

    async def end_cancelled(self, thread: HeldThread, why: Cancellation) -> Run:
        """End a held run with the outcome `cancelled`, unless it has ended; finished work is kept."""
        thread_id, store, graph = thread.thread_id, thread.store, thread.graph
        row, snapshot = await store.threads.get(thread_id) or {}, await thread.read()
        settings = settings_in(row) or self.settings
        run, unbegun = read_run(thread_id, snapshot, settings, self.form), is_not_begun(row, snapshot.values)
        reason = why.reason or say_why(snapshot.values.get("language", "en"), "outside")
        decided = ResolvedAnswer(Answer("cancel", why.reason), at=moment(), name=why.by).row("run", "run")
        approvals = [decided] if why.by else []
        if unbegun or (snapshot.created_at and run.status in ("waiting", "running")):
            await update_row(store, thread_id, row, notify=queue_of_news(row, self.notifier))
            if self.record and not unbegun:
                await Recorder(store, thread_id).write(
                    "cancel", reason=reason, by=why.by, waiting=run.status == "waiting"
                )
            if unbegun:
                await self._put_away(thread, snapshot)
                snapshot = await thread.read()
            if unbegun or "receive" in snapshot.next:  # queued, or stopped in its first node
                values: Any = migrate(snapshot.values)
                messages = Request.from_row(row, settings).messages if unbegun else ()
                update = end_at_once(values, settings, messages, approvals, reason)
                await graph.aupdate_state(make_config(thread_id), update, as_node="receive")
            else:
                await self._take_in(thread)
                if snapshot.values.get("outcome"):  # the run had ended, and a later audit of it was cut off
                    update = {"ending": {**(snapshot.values["ending"] or {}), "again": False}}
                else:
                    update = {"ending": {"code": "cancelled", "reason": reason}, "approvals": approvals}
                await graph.aupdate_state(make_config(thread_id), update, as_node="advance")
            await cancel_asking(store, thread_id, self.executors)
            snapshot = await self._deliver(thread, settings, reason)
            if self.record:
                await Recorder(store, thread_id).end(snapshot)
            run = read_run(thread_id, snapshot, settings, self.form)
        else:
            require_thread(thread_id, snapshot)
        if row.get("status") != run.status:  # else it had ended before, and its row says since when
            run = await self.write_rest(store, run, snapshot.values)
        await forget_cancel(store, thread_id)
        return run

    async def _deliver(self, thread: HeldThread, settings: Settings, reason: str) -> StateSnapshot:
        """Deliver a run whose ending is decided; without a full receipt if none can be made."""
        recorder = Recorder(thread.store, thread.thread_id) if self.record else None
        config, context = self._make_context(recorder, make_config(thread.thread_id))
        try:
            ending = thread.graph.ainvoke(None, config, context=settings, durability="sync")
            await asyncio.get_running_loop().create_task(ending, context=context)
        except DoneWhenError:
            raise
        except Exception:
            _log.exception("%s: ended without a whole receipt", thread.thread_id)
            values: Any = (await thread.read()).values
            await thread.graph.aupdate_state(
                config, cancel_without_receipt(values, settings, reason), as_node="deliver"
            )
        return await thread.read()

    # Reading -----------------------------------------------------------------------------------------------------

    async def read(self, thread_id: str, request: str = "", *, row: Json | None = None) -> tuple[Run, StateSnapshot]:
        """Return the run of a thread, or that of an earlier request, and its state. Raises UnknownThread.

        `row` is the thread's row if it was read already.
        """
        row = row or await self._read_settled(thread_id)
        async with self.storage.reader() as (saver, store):
            graph = on_saver(self.graph, saver, store)
            row, snapshot = await read_consistent(graph, store, thread_id, row)
            if request not in ("", request_of(row, snapshot.values)):
                if last := await _last_state_of(graph, thread_id, snapshot, request):
                    return self._earlier_run(thread_id, row, last, request), last
                raise UnknownThread(f"there is no request {request!r} on thread {thread_id!r}")
            run = run_now(thread_id, row, snapshot, self.form)
            if not run.pending:
                still_open = await read_still_open(store, thread_id, row, snapshot.values)
                run = replace(run, pending=tuple({**pause.dump(), "text": pause.text()} for pause in still_open))
            return await with_words_of_others(store, run), snapshot

    async def info(self, thread_id: str) -> ThreadInfo:
        """Return the row of a thread. Raises UnknownThread."""
        row = await self.read_row(thread_id)
        async with self.storage.reader() as (saver, store):
            return read_info(thread_id, await self.show_row(saver, store, thread_id, row))

    async def show_row(self, saver: BaseCheckpointSaver[Any], store: ThreadStore, thread_id: str, row: Json) -> Json:
        """Return a thread's row with the questions that are open now, and what others have said since."""
        if row["status"] in ("running", "queued") and row.get("pending"):  # few threads
            still_open = list[str]()
            with suppress(StorageError):  # a state that cannot be read hides no other thread
                snapshot = await on_saver(self.graph, saver, store).aget_state(make_config(thread_id))
                still_open = [pause.id for pause in await read_still_open(store, thread_id, row, snapshot.values)]
            row = {**row, "pending": [pause for pause in row["pending"] if pause["id"] in still_open]}
        return await show_asked(store, thread_id, row)

    async def read_events(self, thread_id: str, after: int, turn: int = 0) -> list[Json]:
        """Return the events of a thread after a number and from a request on."""
        async with self.storage.reader() as (_, store):
            return await store.events.read(thread_id, after=after, turn=turn)

    async def read_row(self, thread_id: str) -> Json:
        """Return the row of a thread. Raises UnknownThread."""
        if (row := await self._read_settled(thread_id)) is None:
            raise unknown_thread(thread_id)
        return row

    async def _read_settled(self, thread_id: str) -> Json | None:
        """Complete what a dead or cancelled worker left undone on a thread; return its row, None if it has none."""
        async with self.storage.reader() as (_, store):
            row = await store.threads.get(thread_id)
        if row is None or not is_unsettled(row) or not await self.settle([thread_id]):
            return row
        async with self.storage.reader() as (_, store):
            return await store.threads.get(thread_id)

    async def settle(self, thread_ids: Sequence[str], report: Callable[[str, Exception], None] | None = None) -> bool:
        """Complete what dead or cancelled workers left undone on these threads; skip those that others work on. Return
        whether nobody works on one of them.

        `report` is called with each one that cannot be completed, and why; without it, the first of them raises.
        """
        left = await self.storage.find_left(thread_ids)
        for thread_id in left:
            try:
                async with self.hold(thread_id):
                    pass
            except ThreadBusy:
                continue
            except Exception as error:
                if report is None:
                    raise
                report(thread_id, error)
        return bool(left)

    async def settle_all(self) -> list[str]:
        """Complete what dead or cancelled workers left undone on any thread; skip unreadable ones. Return the threads
        that were found undone last.
        """
        before = set[str]()
        while True:
            async with self.storage.reader() as (_, store):
                undone = await store.threads.find_unsettled(READ_AT_ONCE)
            if set(undone) == before:
                return undone
            await self.settle(undone, lambda *_: None)
            if len(undone) < READ_AT_ONCE:
                return undone
            before = set(undone)


def _is_answered(snapshot: StateSnapshot) -> bool:
    """Return whether a request was answered in words, and nothing is left but to deliver them."""
    return snapshot.next == ("deliver",) and (snapshot.values.get("ending") or {}).get("code") == "answered"


_END = object()


async def until_cancelled(
    stream: AsyncGenerator[Any], cancellation: asyncio.Task[Cancellation], context: Context
) -> AsyncGenerator[Any]:
    """Yield what the graph streams; each part is made in `context`.

    When `cancellation` ends, the run has `CUT_OFF` seconds to reach a clean point; what takes longer is cut off. Then
    RunCancelled is raised, also if the run has ended meanwhile.
    """
    loop, deadline = asyncio.get_running_loop(), math.inf
    coming: asyncio.Task[Any] | None = None
    try:
        while loop.time() < deadline:
            coming = loop.create_task(_next_part(stream), context=context)
            if not cancellation.done():
                await asyncio.wait({coming, cancellation}, return_when=asyncio.FIRST_COMPLETED)
            if cancellation.done():
                deadline = min(deadline, loop.time() + CUT_OFF)
                await asyncio.wait({coming}, timeout=max(deadline - loop.time(), 0))
                await _cut_off(coming)
                if coming.cancelled() or coming.exception():
                    break
            if (part := coming.result()) is _END:
                break
            yield part
    finally:
        try:
            if coming is not None:
                await _cut_off(coming)
        finally:
            await finish(loop.create_task(_close(stream), context=context))
    if cancellation.done():
        raise RunCancelled(cancellation.result())


async def _next_part(stream: AsyncGenerator[Any]) -> Any:
    """Return the next part of a stream, or _END. A task cannot raise StopAsyncIteration."""
    return await anext(stream, _END)


async def _close(stream: AsyncGenerator[Any]) -> None:
    await stream.aclose()


async def _cut_off(task: asyncio.Task[Any]) -> None:
    """Cancel a task that has not ended, and wait for its end; cancel it again as often as the caller is cancelled."""
    is_cancelled = False
    while not task.done():
        task.cancel()
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            is_cancelled = True
    if not task.cancelled():
        task.exception()  # so that asyncio does not miss it
    if is_cancelled:
        raise asyncio.CancelledError


async def _is_at_work(store: ThreadStore, thread_id: str, ids: Collection[str]) -> bool:
    """Return whether somebody works on a thread, who queues the answers left to these questions.

    Raises StaleAnswer if the worker has other answers to them.
    """
    row = await store.threads.get(thread_id) or {}
    if row.get("status") != "running":
        return False
    if answered := await read_left_answers(store, thread_id, [id for id in ids if id in row.get("answered", {})]):
        await _refuse_left(store, thread_id, answered)
    return True


async def _refuse_left(store: ThreadStore, thread_id: str, ids: Collection[str]) -> None:
    await withdraw_answers(store, thread_id, ids)
    raise StaleAnswer(f"thread {thread_id} waits no longer for an answer to {', '.join(ids)}")


def _address_open(
    run: Run, values: Mapping[str, Any], answer: Any, question: str, by: str, taken: Mapping[str, Any]
) -> Json:
    """Return the answers by id, signed. `taken` as in `address_answer`.

    Raises StaleAnswer if nothing else is open on a thread that is worked on, and ResumeError.
    """
    if run.status == "running" and not run.pending:
        rows = find_decisions(values, taken, answer, question)
        text = f"thread {run.thread_id} waits for no other answer: {run.problem or 'it is being worked on'}"
        raise StaleAnswer(f"{text}{describe_decisions(rows)}", decided=rows)
    return address_answer(run, values, answer, question, by, taken)
