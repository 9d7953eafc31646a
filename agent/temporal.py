"""Runs on many machines: Temporal decides where and when they go on, and the storage keeps what is said and done.

A run is a workflow with the thread's id. Its activity `carry` carries the thread on to its next pause or end, on any
worker; the thread's lock decides who may work on it. To remove this room: this file, `donewhen/temporal.py`, its tests
and its page.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false

import asyncio
import hashlib
import json
import logging
import pkgutil
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Never, TypedDict, Unpack
from uuid import uuid4

from pydantic import TypeAdapter
from temporalio import activity, workflow
from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleHandle,
    ScheduleSpec,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)  # fmt: skip
from temporalio.common import (
    RetryPolicy,
    VersioningBehavior,
    WorkerDeploymentVersion,
    WorkflowIDConflictPolicy,
)  # fmt: skip
from temporalio.exceptions import (
    ApplicationError,
    ApplicationErrorCategory,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)  # fmt: skip
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from donewhen import (
    Agent,
    ConfigError,
    DoneWhenError,
    GoalError,
    ResumeError,
    Run,
    Settings,
    StaleAnswer,
    ThreadBusy,
    ThreadWaiting,
    UnknownThread,
    errors,
)  # fmt: skip
from donewhen.types import StartOptions, ThreadInfo

TASK_QUEUE = "donewhen"
DEAD_AFTER = 15.0
"""Seconds without a sign of life after which a worker counts as dead."""
GRACE = timedelta(seconds=15)
"""The time that running work has to stop when its worker is to end, before it is cut off."""
POLL = 2.0
"""Seconds between two looks for what was submitted in the storage."""
ASK_AGAIN = 10.0
"""Seconds after which Temporal is asked whether it still has the workflow of a thread that was handed over."""
_FOREVER = timedelta(days=3650)
_RETRIES = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=10))
_FINAL = (ConfigError, GoalError, ResumeError, errors.PlanError)
_OF_THIS_WORKER = (ThreadBusy, errors.ToolMissing)
_EXPECTED = ApplicationErrorCategory.BENIGN
_log = logging.getLogger("donewhen.work")


@dataclass
class Order:
    """The request for a run; all of it is in Temporal's history."""

    goal: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    begins: bool = False
    """False if the thread has its request already."""
    request_id: str = ""
    dead_after: float = DEAD_AFTER


@dataclass
class ThreadStatus:
    """The status of a thread and its open questions, without anybody's words: these stay in the storage."""

    thread_id: str
    status: str
    code: str = ""
    pending: list[dict[str, Any]] = field(default_factory=list)
    due: str = ""
    """When the policy answers the open questions; "" if only people do."""


class WorkflowOutcome(TypedDict):
    """How a run ended; `Agent.get` has its answer and receipt."""

    thread_id: str
    status: str
    code: str


# The activities ------------------------------------------------------------------------------------------------------


class _Activities:
    """The activities of a worker, which it carries out with its agent."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.draining = False

    @activity.defn(name="donewhen.carry")
    async def carry(self, thread_id: str, order: Order) -> ThreadStatus:
        """Carry a thread on to its next pause or end. Any number of workers may try: one of them holds the thread."""
        beating = asyncio.create_task(_beat(order.dead_after / 3))
        try:
            with _errors_for_temporal():
                return await self._carry(thread_id, order)
        except asyncio.CancelledError:
            details = activity.cancellation_details()
            if details and (details.not_found or details.timed_out or details.worker_shutdown):
                _log.warning("thread %s was cut off here: another attempt goes on, here or elsewhere", thread_id)
                raise _end_of_attempt() from None
            raise
        finally:
            beating.cancel()

    async def _carry(self, thread_id: str, order: Order) -> ThreadStatus:
        agent, run = self._agent, None
        if order.begins:
            run = await agent.start(order.goal, **_request_options(thread_id, order))
        if (run is None or run.status in ("running", "queued")) and not self.draining:
            run = await agent.resume(thread_id)
        if run is None or run.status == "running":
            raise _end_of_attempt()
        return await self._status_of(run)

    async def _status_of(self, run: Run) -> ThreadStatus:
        always = ("id", "kind", "step", "asked_at")
        questions: list[dict[str, Any]] = [
            {key: pause.get(key) for key in (*always, "answered_by") if key in always or key in pause}
            for pause in run.pending
        ]
        due = (await self._agent.info(run)).due if run.status == "waiting" else ""
        return ThreadStatus(run.thread_id, run.status, run.outcome["code"] if run.outcome else "", questions, due)

    @activity.defn(name="donewhen.answer")
    async def answer(self, thread_id: str, answer: Any, question: str | None, by: str = "") -> None:
        """Check an answer and store it; the next `carry` takes it."""
        with _errors_for_temporal():
            await self._agent.submit_answer(thread_id, answer, question=question, by=by)

    @activity.defn(name="donewhen.tell")
    async def tell(self, thread_id: str, text: str, by: str = "", request_id: str = "") -> None:
        """Say something to a run, once for each `request_id`."""
        with _errors_for_temporal():
            await self._agent.tell(thread_id, text, by=by, request_id=request_id)

    @activity.defn(name="donewhen.cancel")
    async def cancel(self, thread_id: str, order: Order, reason: str, by: str = "") -> ThreadStatus:
        """End a run, whoever works on it, and also if it has not begun yet: then nobody begins it any more."""
        with _errors_for_temporal():
            if order.begins:
                await self._agent.submit(order.goal, **_request_options(thread_id, order))
            return await self._status_of(await self._agent.cancel(thread_id, reason, by=by))


def _end_of_attempt() -> ApplicationError:
    """Return the error with which Temporal tries again, without a traceback in the log."""
    return ApplicationError("this attempt ends; another one goes on", type="Drained", category=_EXPECTED)


def _request_options(thread_id: str, order: Order) -> Any:
    return {**order.options, "thread_id": thread_id, "request_id": order.request_id}


async def _beat(seconds: float) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(seconds)


@contextmanager
def _errors_for_temporal() -> Iterator[None]:
    """Raise DoneWhen's errors as Temporal's, which tries again elsewhere unless the error would be the same there."""
    try:
        yield
    except DoneWhenError as error:
        final = isinstance(error, _FINAL) and not isinstance(error, _OF_THIS_WORKER)
        details: dict[str, Any] = {"type": type(error).__name__, "non_retryable": final}
        if isinstance(error, _FINAL):
            details["category"] = _EXPECTED
        raise ApplicationError(str(error), **details) from None


# The workflow --------------------------------------------------------------------------------------------------------


@workflow.defn(name="DoneWhen")
class ThreadWorkflow:
    """One run: it is carried on whenever there is something new, until it ends."""

    def __init__(self) -> None:
        self._news = False
        self._answering = asyncio.Lock()
        self._pending: list[dict[str, Any]] = []
        self._carrying: asyncio.Task[ThreadStatus] | None = None
        self._reason: str | None = None
        self._cancelled_by = ""

    @workflow.run
    async def run(self, order: Order) -> WorkflowOutcome:
        """Carry the thread on until it ends. If it is cancelled, here or in Temporal, end it in DoneWhen's way."""
        order.request_id = order.request_id or workflow.info().workflow_id
        self._carrying = asyncio.create_task(self._carry_on(order))
        if self._reason is not None:
            self._carrying.cancel()
        try:
            ended = await self._carrying
        except (asyncio.CancelledError, Exception) as error:
            if not is_cancelled_exception(error):
                raise
            ended = await workflow.execute_local_activity_method(
                _Activities.cancel,
                args=[workflow.info().workflow_id, order, self._reason or "", self._cancelled_by],
                start_to_close_timeout=timedelta(minutes=2),
                retry_policy=_RETRIES,
            )
        self._pending = []
        await workflow.wait_condition(workflow.all_handlers_finished)
        return {"thread_id": ended.thread_id, "status": ended.status, "code": ended.code}

    async def _carry_on(self, order: Order) -> ThreadStatus:
        while True:
            self._news = False
            status = await workflow.execute_activity_method(
                _Activities.carry,
                args=[workflow.info().workflow_id, order],
                heartbeat_timeout=timedelta(seconds=order.dead_after),
                start_to_close_timeout=_FOREVER,
                retry_policy=_RETRIES,
            )
            order = replace(order, goal=None, options={}, begins=False)
            if status.status == "waiting":
                await self._wait(status)
            elif status.status != "queued":
                return status
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(order)

    async def _wait(self, status: ThreadStatus) -> None:
        self._pending = status.pending
        seconds = _seconds_until(status.due) if status.due else None
        with suppress(asyncio.TimeoutError):
            await workflow.wait_condition(lambda: self._news, timeout=seconds)
        self._pending = []

    @workflow.update
    async def answer(self, answer: Any, question: str | None, by: str = "") -> None:
        """Take an answer, or refuse it."""
        async with self._answering:
            try:
                await self._at_once(_Activities.answer, answer, question, by)
            finally:
                self._news = True  # a refused one too: somebody else may have answered

    @workflow.update
    async def tell(self, text: str, by: str = "", request_id: str = "") -> None:
        """Say something to the run, once though the activity is tried again."""
        update = workflow.current_update_info()
        await self._at_once(_Activities.tell, text, by, request_id or (update.id if update else ""))

    async def _at_once(self, method: Callable[..., Any], *arguments: Any) -> None:
        """Call an activity beside the run, on the worker that has the workflow. It does not count among its runs."""
        await workflow.execute_local_activity_method(
            method,
            args=[workflow.info().workflow_id, *arguments],
            schedule_to_close_timeout=timedelta(minutes=1),
            retry_policy=replace(_RETRIES, maximum_attempts=3),
        )

    @workflow.signal
    def cancel(self, reason: str, by: str = "") -> None:
        """End the run."""
        self._reason, self._cancelled_by = reason, by
        if self._carrying:
            self._carrying.cancel()

    @workflow.signal
    def look(self) -> None:
        """Carry the thread on: something was stored for it."""
        self._news = True

    @workflow.query
    def pending(self) -> list[dict[str, Any]]:
        """Return the open questions of the waiting run: `id`, `kind`, `step`, `asked_at`, `answered_by`."""
        return self._pending


def _seconds_until(due: str) -> float:
    return max((datetime.fromisoformat(due) - workflow.now()).total_seconds(), 0.1)


# For callers ---------------------------------------------------------------------------------------------------------


class TemporalRuns:
    """Starts runs as workflows, and finds them again.

    Args:
        client: A client of Temporal. What its data converter encrypts is encrypted in Temporal's history.
        task_queue: Whose workers carry the runs out.
        dead_after: Seconds without a sign of life after which a worker counts as dead, and another one goes on.
    """

    def __init__(self, client: Client, task_queue: str = TASK_QUEUE, *, dead_after: float = DEAD_AFTER) -> None:
        self._client, self._task_queue, self._dead_after = client, task_queue, dead_after

    async def start(self, goal: Any = None, **options: Unpack[StartOptions]) -> "RunHandle":
        """Begin a run; the workflow has the id of its thread. The goal and options are those of `Agent.submit`.

        With a `request_id`, sending it again returns the same run. Raises ThreadWaiting if the thread's run has not
        ended, and ConfigError, also for another goal under the `request_id` of that run. What the agent refuses, such
        as a blank goal, is raised by `outcome`.
        """
        thread_id, request_id, order = self._order(goal, options)
        order.request_id, goal_id = request_id or uuid4().hex, _goal_id(goal)
        replaces = bool(options.get("restart"))
        policy = WorkflowIDConflictPolicy.TERMINATE_EXISTING if replaces else WorkflowIDConflictPolicy.FAIL
        try:
            await self._client.start_workflow(
                ThreadWorkflow.run,
                order,
                id=thread_id,
                task_queue=self._task_queue,
                memo={"request_id": request_id, "goal": goal_id},
                id_conflict_policy=policy,
            )
        except WorkflowAlreadyStartedError:
            description = await self._client.get_workflow_handle(thread_id).describe()
            if not request_id or await description.memo_value("request_id", "") != request_id:
                problem = f"the run of thread {thread_id!r} has not ended: answer it, cancel it, or use restart=True"
                raise ThreadWaiting(problem) from None
            if await description.memo_value("goal", goal_id) != goal_id:
                problem = f"request_id {request_id!r} was given before: another goal needs an id of its own"
                raise ConfigError(problem) from None
        return self.get(thread_id)

    async def look(self, thread_id: str) -> None:
        """Carry a thread on for which something was stored, such as by `Agent.submit`; start its workflow if needed.

        So a run goes on that was terminated in Temporal, or an open one of `Agent.worker`, once such workers are
        stopped. The other way, terminate the workflow: then `Agent.resume` continues what worked, here and now, and an
        answer by `Agent.submit_answer` queues a waiting run for workers of the agent's `queue`.
        """
        await self._client.start_workflow(
            ThreadWorkflow.run,
            Order(dead_after=self._dead_after),
            id=thread_id,
            task_queue=self._task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="look",
        )

    def get(self, thread_id: str) -> "RunHandle":
        """Return the run of a thread."""
        return RunHandle(self._client, thread_id)

    async def schedule(
        self, id: str, goal: Any = None, *, spec: ScheduleSpec, **options: Unpack[StartOptions]
    ) -> ScheduleHandle:
        """Begin a run at each time of a schedule of Temporal, in threads named after `id` and the time.

        A time at which the run before has not ended is left out. The handle pauses, triggers and deletes it.
        """
        fixed = [name for name in ("thread_id", "request_id", "restart") if options.get(name)]
        if fixed:
            raise ConfigError(f"a schedule takes no {fixed[0]}: each of its runs has a thread of its own")
        order = self._order(goal, options)[-1]
        action = ScheduleActionStartWorkflow(ThreadWorkflow.run, order, id=id, task_queue=self._task_queue)
        return await self._client.create_schedule(id, Schedule(action, spec))

    def _order(self, goal: Any, options: Mapping[str, Any]) -> tuple[str, str, Order]:
        """Return the ids of a thread and a request, and the request as Temporal stores it. Raises ConfigError."""
        order_options = {key: value for key, value in options.items() if value is not None}
        for name in order_options:
            if name not in StartOptions.__annotations__:
                raise TypeError(f"unexpected keyword argument {name!r}")
        if live := [name for name in ("tools", "config") if order_options.pop(name, None)]:
            raise ConfigError(
                f"a workflow takes no {live[0]}: a worker carries the run out, with those of its own agent"
            )
        if isinstance(settings := order_options.get("settings"), Settings):
            order_options["settings"] = settings.model_dump(mode="json", exclude_unset=True)
        if not isinstance(wanted := order_options.get("output_type", {}), Mapping):
            order_options["output_type"] = _schema_of(wanted)
        if not isinstance(goal, str | Sequence | None) or any(
            not isinstance(each, str | Mapping) for each in goal or ()
        ):
            raise ConfigError("the goal of a workflow is a text, or content blocks as JSON")
        if (request_id := order_options.pop("request_id", None)) == "":
            raise ConfigError("request_id is empty: name the request, or leave it out")
        request_id = request_id or ""
        thread_id = str(order_options.pop("thread_id", "") or request_id or uuid4())
        return thread_id, request_id, Order(goal, order_options, True, dead_after=self._dead_after)


def _schema_of(wanted: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type. `Agent.get(…, output_type=…)` reads the output as that. Raises ConfigError."""
    try:
        return TypeAdapter(wanted).json_schema()
    except Exception as error:  # Pydantic raises many errors for a type without a schema
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"output_type: there is no JSON Schema of {wanted!r} ({reason})") from None


def _goal_id(goal: Any) -> str:
    """Return a hash of a goal, by which another goal is told apart without keeping it."""
    text = goal.strip() if isinstance(goal, str) else json.dumps(goal, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


class RunHandle:
    """A run that workers carry out. It knows ids and statuses; `Agent.get(thread_id)` reads what was said and done."""

    def __init__(self, client: Client, thread_id: str) -> None:
        self.thread_id: str = thread_id
        self._workflow: WorkflowHandle[Any, Any] = client.get_workflow_handle(thread_id)

    async def pending(self) -> list[dict[str, Any]]:
        """Return `id`, `kind`, `step`, `asked_at` and `answered_by` of open questions; [] while it works, and later."""
        async with self._errors():
            questions: list[dict[str, Any]] = await self._workflow.query(ThreadWorkflow.pending)
        return questions

    async def answer(self, answer: Any, *, question: str | None = None, by: str = "") -> None:
        """Answer an open question, as `Agent.submit_answer` does. Raises StaleAnswer, ResumeError."""
        async with self._errors(StaleAnswer):
            await self._workflow.execute_update(ThreadWorkflow.answer, args=[answer, question, by])

    async def tell(self, text: str, *, by: str = "", request_id: str = "") -> None:
        """Say something to the run, as `Agent.tell` does. Raises ThreadBusy, ResumeError."""
        async with self._errors(ResumeError):
            await self._workflow.execute_update(ThreadWorkflow.tell, args=[text, by, request_id])

    async def cancel(self, reason: str = "", *, by: str = "") -> None:
        """End the run, as `Agent.cancel` does; `outcome` tells when it has ended. A finished run stays as it is."""
        with suppress(ResumeError):
            async with self._errors(ResumeError):
                await self._workflow.signal(ThreadWorkflow.cancel, args=[reason, by])

    async def outcome(self) -> WorkflowOutcome:
        """Wait until the run has ended. Raises what the agent raised where it refused the request.

        In an activity this may take days: give that a `start_to_close_timeout` as long, call `activity.heartbeat()`
        beside it, and set a `heartbeat_timeout`, so that another worker waits if this one dies. Nothing but `cancel`
        ends the run: an activity that is cancelled has to call it. Of a workflow that was terminated in Temporal, this
        raises Temporal's `WorkflowFailureError`; the thread stays as it is, and `TemporalRuns.look` goes on with it.
        """
        async with self._errors():
            ended: WorkflowOutcome = await self._workflow.result()
        return ended

    @asynccontextmanager
    async def _errors(self, ended: type[ResumeError] | None = None) -> AsyncIterator[None]:
        """Raise DoneWhen's errors in place of Temporal's; `ended` is the error for a workflow that has ended."""
        try:
            yield
        except (WorkflowUpdateFailedError, WorkflowFailureError) as error:
            _raise_original(error)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            if ended and await _read_status(self._workflow):
                hint = "TemporalRuns.start with this thread_id goes on with its conversation"
                raise ended(f"the run of thread {self.thread_id!r} has ended: {hint}") from None
            raise UnknownThread(f"Temporal knows no run of a thread {self.thread_id!r}") from None


async def _read_status(workflow: WorkflowHandle[Any, Any]) -> WorkflowExecutionStatus | None:
    """Return the status of a workflow; None if Temporal does not know it, or cannot be asked."""
    try:
        return (await workflow.describe()).status
    except RPCError:
        return None


def _raise_original(error: BaseException) -> Never:
    """Raise the error of DoneWhen that a worker reported to Temporal, or this error if there is none."""
    cause: Any = error
    while cause is not None:
        kind = getattr(errors, cause.type or "", None) if isinstance(cause, ApplicationError) else None
        if isinstance(kind, type) and issubclass(kind, DoneWhenError):
            raise kind(cause.message) from None
        cause = cause.__cause__
    raise error


# The worker ----------------------------------------------------------------------------------------------------------


async def run_worker(
    agent: Agent | Callable[[], Agent] | str,
    client: Client,
    task_queue: str = TASK_QUEUE,
    *,
    concurrency: int = 4,
    version: str = "",
    dead_after: float = DEAD_AFTER,
) -> None:
    """Carry out the runs of a task queue until SIGTERM or until the task is cancelled.

    What is submitted in the agent's storage under its `queue` (`Agent.submit`, `submit_answer`, schedules in plans)
    becomes work of this task queue too, so no worker of the table should serve that queue.

    Args:
        agent: The agent, a function that makes it, or where that is: `"package.module:name"`.
        client: A client of Temporal.
        task_queue: Whose runs it carries out.
        concurrency: The most runs at once.
        version: The version of your program. Runs stay with workers of the version that they began with; Temporal
            begins runs with the one that you make current (`temporal worker deployment set-current-version`).
        dead_after: As of `TemporalRuns`, for what was submitted in the storage.
    """
    source = pkgutil.resolve_name(agent) if isinstance(agent, str) else agent
    own_agent: Agent = source if isinstance(source, Agent) else source()
    activities, runs = _Activities(own_agent), TemporalRuns(client, task_queue, dead_after=dead_after)
    restrictions = SandboxRestrictions.default.with_passthrough_modules("donewhen")
    pinned = WorkerDeploymentConfig(
        WorkerDeploymentVersion(task_queue, version),
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.PINNED,
    )
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[ThreadWorkflow],
        activities=[activities.carry, activities.answer, activities.tell, activities.cancel],
        workflow_runner=SandboxedWorkflowRunner(restrictions=restrictions),
        max_concurrent_activities=concurrency,
        graceful_shutdown_timeout=GRACE,
        deployment_config=pinned if version else None,
    )
    async with own_agent:
        ends = asyncio.Event()
        working, handing = asyncio.create_task(worker.run()), asyncio.create_task(_hand_over(own_agent, client, runs))
        for task in (working, handing):
            task.add_done_callback(lambda _: ends.set())
        try:
            with _on_sigterm(ends.set):
                await ends.wait()
        finally:
            handing.cancel()
            activities.draining = True
            own_agent.drain()
            await worker.shutdown()
            await asyncio.wait({working, handing})
        for task in (working, handing):
            if not task.cancelled():
                task.result()


async def _hand_over(agent: Agent, client: Client, runs: TemporalRuns) -> None:
    """Hand what is submitted in the storage, and what its schedules have due, to the task queue as work.

    It is handed over once more if its workflow has ended and left it: that was carrying out an earlier request.
    """
    handed_over: dict[str, tuple[str, float]] = {}
    problem = ""
    while True:
        try:
            await agent.schedules.start_due(agent.queue)
            queued = [info async for info in _queued(agent)]
            handed_over = {info.thread_id: handed_over.get(info.thread_id, ("", 0.0)) for info in queued}
            for info in queued:
                (updated, ask_at), status = handed_over[info.thread_id], None
                if updated == info.updated:
                    if time.monotonic() < ask_at:
                        continue
                    status = await _read_status(client.get_workflow_handle(info.thread_id))
                if status is not WorkflowExecutionStatus.RUNNING:
                    await runs.look(info.thread_id)
                handed_over[info.thread_id] = info.updated, time.monotonic() + ASK_AGAIN
            problem = ""
        except (DoneWhenError, RPCError) as error:
            if str(error) != problem:
                problem = str(error)
                _log.warning("what was submitted cannot be handed to Temporal: %s. Trying again.", problem)
        await asyncio.sleep(POLL)


async def _queued(agent: Agent) -> AsyncIterator[ThreadInfo]:
    """Yield the threads that are queued for this agent, and due."""
    cursor, now = None, datetime.now(UTC)
    while True:
        page = await agent.threads(1000, status="queued", cursor=cursor)
        for info in page:
            if info.queue == agent.queue and not (info.due and datetime.fromisoformat(info.due) > now):
                yield info
        if (cursor := page.cursor) is None:
            return


@contextmanager
def _on_sigterm(end: Callable[[], None]) -> Iterator[None]:
    """End the worker on SIGTERM, unless the program handles that signal itself."""
    main = threading.current_thread() is threading.main_thread()
    if not main or sys.platform == "win32" or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
