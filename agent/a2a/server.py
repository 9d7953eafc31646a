"""An agent as an A2A endpoint, for other agents. Needs the extra `a2a`, and `a2a-sdk[http-server]` for its routes.

A context of the protocol is a thread, and each of its tasks a request on it: the command, the page and other clients
see the same thread, and may answer its questions. Tasks are kept in the agent's storage, so they outlive the process.
"""

import asyncio
import copy
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

try:
    import httpx
    from a2a.helpers import get_data_parts, get_message_text, new_data_part, new_task_from_user_message, new_text_part
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.context import ServerCallContext
    from a2a.server.events import Event, EventQueue
    from a2a.server.owner_resolver import resolve_user_scope
    from a2a.server.request_handlers import DefaultRequestHandler
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.server.tasks import InMemoryTaskStore, PushNotificationConfigStore, TaskStore, TaskUpdater
    from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
    from a2a.types import (
        AgentCapabilities,
        AgentCard,
        AgentInterface,
        AgentSkill,
        Artifact,
        InvalidParamsError,
        ListTasksRequest,
        ListTasksResponse,
        Message,
        Part,
        Role,
        SendMessageRequest,
        Task,
        TaskPushNotificationConfig,
        TaskState,
    )
    from a2a.utils.errors import ContentTypeNotSupportedError, UnsupportedOperationError
    from a2a.utils.proto_utils import to_stream_response
    from google.protobuf.json_format import MessageToDict, ParseDict
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as _missing:
    raise ImportError(
        f"an A2A endpoint needs {_missing.name}: pip install 'donewhen[a2a]' 'a2a-sdk[http-server]'"
    ) from None

from donewhen import DoneWhenError, Run, UnknownThread
from donewhen.agent.a2a.addresses import post_to, public_addresses
from donewhen.clients import Json, Storage, check_thread_id, is_too_deep, load_pause, read_all, read_goal, store_label
from donewhen.types import Pause, RunStream

if TYPE_CHECKING:
    from donewhen import Agent

TASKS, PUSHES = ("donewhen", "a2a", "tasks"), ("donewhen", "a2a", "pushes")
"""Store namespaces of tasks, by owner, and of URLs to notify, by task."""
MARK = "a2a_task"
"""The key of a thread's metadata with the task of its last request; threads without it are not served."""
CANCEL_SECONDS = 3.0
"""Seconds that a running call has to end when its task is cancelled."""
NOTIFY_SECONDS = 10.0
"""Seconds that a notified URL has to answer."""
STATES = {
    "waiting": TaskState.TASK_STATE_INPUT_REQUIRED,
    "failed": TaskState.TASK_STATE_FAILED,
    "exhausted": TaskState.TASK_STATE_FAILED,
    "cancelled": TaskState.TASK_STATE_CANCELED,
    "completed": TaskState.TASK_STATE_COMPLETED,
    "answered": TaskState.TASK_STATE_COMPLETED,
    "partial": TaskState.TASK_STATE_COMPLETED,
}
OPEN = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
ENDED = {state for state in STATES.values() if state != TaskState.TASK_STATE_INPUT_REQUIRED}
MOST_PARTIAL = 1000
"""The most notifications, accepted by some URLs and not by others, of which it is remembered who accepted them."""
MOST_NESTED = 100
"""The most nested lists and objects of a body, as in protobuf."""
INVALID_REQUEST = -32600
SHOWN = "donewhen.shown"
"""The key in the state of a request with an answer: the run as it waited when the answer arrived."""


class PushNotifications:
    """Notifies the URLs that A2A clients registered: pass it as `Agent(notify=…)` and as `a2a_app(push=…)`.

    Each notification is delivered at least once. `inside`: URLs of this machine and private networks are allowed too.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self.inside = inside
        self._storage: Storage | None = None
        self._accepted: dict[str, set[str]] = {}
        """The ids of the pushes that accepted a notification, while others did not, by notification."""

    def bind(self, storage: Storage) -> None:
        """Use the URLs in this storage. `a2a_app` calls this; in a process without one, call it yourself."""
        self._storage = storage

    async def allows(self, url: str) -> bool:
        """Return whether a URL may be notified."""
        return self.inside or bool(await public_addresses(url))

    async def __call__(self, event: Json) -> None:
        """Post the task of a run to each URL. Raises if one does not accept it; a retry skips those that did."""
        assert self._storage is not None, "PushNotifications: give it to a2a_app too, or call bind(agent.storage)"
        async with self._storage.reader() as (_, store):
            row = await store.threads.get(event["subject"]) or {}
            id = str((row.get("metadata") or {}).get(MARK) or "")
            item = await store.aget((*TASKS, store_label(str(row.get("owner") or ""))), id) if id else None
            pushes = (
                [_read_push(item.value) for item in await read_all(store, (*PUSHES, store_label(id)))] if id else []
            )
        if item is None or not pushes:
            self._accepted.pop(event["id"], None)
            return
        task = with_notification(_read_task(item.value), event)
        body, problem = MessageToDict(to_stream_response(task)), ""
        accepted = self._accepted.setdefault(event["id"], set())
        if len(self._accepted) > MOST_PARTIAL:  # the oldest were given up
            del self._accepted[next(iter(self._accepted))]
        async with httpx.AsyncClient(timeout=NOTIFY_SECONDS) as http:
            for push in pushes:
                if push.id not in accepted and (failure := await self._post(http, push, body)):
                    problem = f"{push.url}: {failure}"
                else:
                    accepted.add(push.id)
        if problem:
            raise ConnectionError(problem)
        del self._accepted[event["id"]]

    async def _post(self, http: httpx.AsyncClient, push: TaskPushNotificationConfig, body: Json) -> str:
        """Post to one URL; return why it did not accept, or ""."""
        addresses = [] if self.inside else await public_addresses(push.url)
        if not (self.inside or addresses):
            return "it is not found, or in a private network"
        try:
            reply = await self._post_to_first(http, push, addresses, body)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # also a token that no header can hold
            return f"{type(error).__name__}: {error}"
        return "" if reply.is_success or reply.status_code == httpx.codes.GONE else f"it answers {reply.status_code}"

    async def _post_to_first(
        self, http: httpx.AsyncClient, push: TaskPushNotificationConfig, addresses: Sequence[str], body: Json
    ) -> httpx.Response:
        """Post to the first of the checked addresses to which there is a connection."""
        if self.inside:
            return await http.post(push.url, json=body, headers=_headers(push))
        for address in addresses[:-1]:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return await post_to(http, push.url, address, _headers(push), body)
        return await post_to(http, push.url, addresses[-1], _headers(push), body)


def _headers(push: TaskPushNotificationConfig) -> dict[str, str]:
    headers = {"X-A2A-Notification-Token": push.token} if push.token else {}
    authentication = push.authentication
    return {
        **headers,
        **(
            {"Authorization": f"{authentication.scheme} {authentication.credentials}"}
            if authentication.credentials
            else {}
        ),
    }


# What is kept ------------------------------------------------------------------------------------------------------


class _Tasks(TaskStore):
    """The tasks of an agent, in its storage; each is read in the state of its run, whoever continued that."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    async def read_unfinished(self) -> list[Task]:
        """Return the tasks that have neither ended nor wait for an answer."""
        async with self._agent.storage.reader() as (_, store):
            tasks = [_read_task(row.value) for row in await read_all(store, TASKS)]
        current = [await self._current(task) for task in tasks if task.status.state in OPEN]
        return [task for task in current if task.status.state in OPEN]

    async def save(self, task: Task, context: ServerCallContext) -> None:
        async with self._agent.storage.writer() as (_, store):
            await store.aput(
                (*TASKS, store_label(resolve_user_scope(context))), task.id, _write_task(task), index=False
            )

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        async with self._agent.storage.reader() as (_, store):
            item = await store.aget((*TASKS, store_label(resolve_user_scope(context))), task_id)
        return await self._current(_read_task(item.value)) if item else None

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        async with self._agent.storage.reader() as (_, store):
            rows = await read_all(store, (*TASKS, store_label(resolve_user_scope(context))))
        page = InMemoryTaskStore()
        for row in rows:
            await page.save(await self._current(_read_task(row.value)), context)
        return await page.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        async with self._agent.storage.writer() as (_, store):
            await store.adelete((*TASKS, store_label(resolve_user_scope(context))), task_id)

    async def _current(self, task: Task) -> Task:
        if task.status.state in ENDED:
            return task
        with suppress(UnknownThread):
            info = await self._agent.info(task.context_id)
            if info.metadata.get(MARK) == task.id:
                run = await self._agent.get(task.context_id)
                if run.takes_answer and _shows_question(task, run.pending[0]):
                    return task
                if run.status not in STATES and task.status.state not in OPEN:  # another client answered it
                    _set_status(task, TaskState.TASK_STATE_WORKING, [])
                return with_run(task, run)
        return task


class _Pushes(PushNotificationConfigStore):
    """The URLs to notify, in the agent's storage. Only the owner of a task can read them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        config = normalize_push_notification_config(task_id, notification_config)
        row = {**MessageToDict(config), "owner": resolve_user_scope(context)}
        async with self._storage.writer() as (_, store):
            await store.aput((*PUSHES, store_label(task_id)), config.id, row, index=False)
        return config

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        async with self._storage.reader() as (_, store):
            rows = await read_all(store, (*PUSHES, store_label(task_id)))
        return [_read_push(row.value) for row in rows if row.value["owner"] == resolve_user_scope(context)]

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        for push in await self.get_info(task_id, context):
            if config_id in (None, push.id):
                async with self._storage.writer() as (_, store):
                    await store.adelete((*PUSHES, store_label(task_id)), push.id)


def _write_task(task: Task) -> Json:
    return dict(MessageToDict(task))


def _read_task(row: Mapping[str, Any]) -> Task:
    task = Task()
    ParseDict(dict(row), task, ignore_unknown_fields=True)
    return task


def _read_push(row: Mapping[str, Any]) -> TaskPushNotificationConfig:
    push = TaskPushNotificationConfig()
    ParseDict(dict(row), push, ignore_unknown_fields=True)
    return push


# What a task says --------------------------------------------------------------------------------------------------


def with_run(task: Task, run: Run) -> Task:
    """Return a copy of the task in the state of its run, with its question or its outcome."""
    task = copy.deepcopy(task)  # the endpoint's own moves its message into the history when the next one comes
    if run.status in STATES:
        parts = [new_text_part(run.answer)]
        if run.pending:
            parts = [new_text_part(_question_text(run)), new_data_part(_question_data(run.pending[0]))]
        _set_status(task, STATES[run.status], parts)
        if STATES[run.status] == TaskState.TASK_STATE_COMPLETED:
            del task.artifacts[:]
            task.artifacts.append(_artifact(task.id, run.answer))
    return task


def with_notification(task: Task, event: Json) -> Task:
    """Return the task in the state that a notification of its run has."""
    data = event["data"]
    state = STATES.get(data["status"], TaskState.TASK_STATE_FAILED)
    questions = data.get("questions")
    text = questions[0]["text"] if questions else data.get("answer") or data.get("problem") or ""
    _set_status(task, state, [new_text_part(str(text))])
    return task


def _set_status(task: Task, state: Any, parts: list[Part]) -> None:
    task.status.Clear()
    task.status.state = state
    task.status.timestamp.GetCurrentTime()
    message = Message(role=Role.ROLE_AGENT, task_id=task.id, context_id=task.context_id)
    message.parts.extend(parts)
    digest = hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest()[:16]
    message.message_id = f"{task.id}.{state}.{digest}"  # two questions have two ids, one that is read twice has one
    task.status.message.CopyFrom(message)


def _artifact(task_id: str, answer: str) -> Artifact:
    return Artifact(artifact_id=f"{task_id}.answer", name="answer", parts=[new_text_part(answer)])


def _question_text(run: Run) -> str:
    question = run.pending[0]["text"]
    return question if run.problem in ("", run.pending[0].get("problem")) else f"{run.problem}\n\n{question}"


def _shows_question(task: Task, pause: Mapping[str, Any]) -> bool:
    """Return whether the task already shows this question."""
    return any(part.get("id") == pause["id"] for part in get_data_parts(task.status.message.parts))


def _question_data(pause: Pause) -> Json:
    """Return a question for programs that ask it in their own way: its text, and its options or form."""
    form = {"schema": pause["schema"]} if "schema" in pause else {}
    question = {"question": load_pause(pause).message_text(choices=False), "options": list(pause.get("options") or ())}
    return {"id": pause["id"], "kind": pause["kind"], **question, **form}


# The endpoint ------------------------------------------------------------------------------------------------------


class _Runs(AgentExecutor):
    """Carries out tasks as runs of an agent."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._working: dict[str, asyncio.Task[Run]] = {}
        """By task."""
        self._cancelled: set[str] = set()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Start the run of a new task, or give a waiting one the answer; the task ends as the run does."""
        message, task = context.message, context.current_task
        assert message is not None
        assert context.context_id is not None
        thread, owner = context.context_id, resolve_user_scope(context.call_context)
        if task is None:
            task = new_task_from_user_message(message)
            await check_owner(self._agent, thread, owner)
            await event_queue.enqueue_event(task)
            goal = context.get_user_input()
            stream = self._agent.stream(goal, thread_id=thread, owner=owner, metadata={MARK: task.id})
        elif task.status.state in ENDED:  # another answer came first; the task shows the outcome
            return
        else:
            data, shown = [*get_data_parts(message.parts)], context.call_context.state.get(SHOWN, thread)
            reply: Any = data[0] if data else context.get_user_input()
            reply = reply["resume"] if isinstance(reply, dict) and set(reply) == {"resume"} else reply
            if reply is None and isinstance(shown, Run) and shown.pending:  # alone, None would be no answer at all
                reply = {shown.pending[0]["id"]: None}
            stream = self._agent.stream_resume(shown, reply, by=owner)
        updater = TaskUpdater(event_queue, task.id, thread)
        await updater.start_work()
        working = self._working[task.id] = asyncio.create_task(self._follow(stream, updater))
        try:
            run = await working
        except DoneWhenError as error:
            await self._send_refusal(updater, context.current_task, str(error))
        except asyncio.CancelledError:
            if task.id not in self._cancelled:
                raise
        else:
            if task.id not in self._cancelled:
                await self._send_outcome(updater, with_run(task, run))
        finally:
            del self._working[task.id]
            working.cancel()

    async def _follow(self, stream: RunStream, updater: TaskUpdater) -> Run:
        """Send the steps of a run as status updates while it works; return the run."""
        async with stream:
            async for event in stream:
                if event["type"] == "step_started":
                    await updater.start_work(updater.new_agent_message([new_text_part(event["content"])]))
        if stream.run is None:
            raise stream.error or DoneWhenError("the run was cut off; resume it")
        return stream.run

    async def _send_outcome(self, updater: TaskUpdater, task: Task) -> None:
        """Send the status and the artifacts of a task."""
        for artifact in task.artifacts:
            await updater.add_artifact(list(artifact.parts), artifact_id=artifact.artifact_id, name=artifact.name)
        await updater.update_status(task.status.state, task.status.message)

    async def _send_refusal(self, updater: TaskUpdater, answered: Task | None, text: str) -> None:
        """Send why a message was refused: a new task fails, and an answered one gets the state of its run."""
        message = updater.new_agent_message([new_text_part(text)])
        if answered is None:
            return await updater.failed(message)
        run = await self._agent.get(answered.context_id)
        if run.status in STATES:
            return await self._send_outcome(updater, with_run(answered, replace(run, problem=text)))
        return await updater.start_work(message)

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the run of a task; a call that does not end in time is cancelled too."""
        assert context.current_task is not None
        task = context.current_task
        self._cancelled.add(task.id)
        cancelling = asyncio.create_task(self._agent.cancel(task.context_id, "cancelled over A2A"))
        if not (await asyncio.wait({cancelling}, timeout=CANCEL_SECONDS))[0] and task.id in self._working:
            self._working[task.id].cancel()
        await self._send_outcome(TaskUpdater(event_queue, task.id, task.context_id), with_run(task, await cancelling))


class _Requests(DefaultRequestHandler):
    """Refuses messages that cannot become a run, before a task is made of them."""

    def __init__(self, agent: "Agent", tasks: _Tasks, card: AgentCard, **options: Any) -> None:
        super().__init__(_Runs(agent), tasks, card, **options)
        self._agent, self._tasks = agent, tasks

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        await self._check(params.message, context)
        reply: Message | Task = await super().on_message_send(params, context)
        return reply

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        await self._check(params.message, context)
        async for event in super().on_message_send_stream(params, context):
            yield event

    async def _check(self, message: Message, context: ServerCallContext) -> None:
        if message.role != Role.ROLE_USER:
            raise InvalidParamsError(message="a message to an agent has the role ROLE_USER")
        if any(part.HasField("raw") or part.HasField("url") for part in message.parts):
            raise ContentTypeNotSupportedError(message="files and links are not read here: send what matters as text")
        try:
            if message.task_id:
                await self._check_answer(message, context)
            elif message.parts:  # else the protocol's own error says so
                read_goal(get_message_text(message))
                await check_owner(self._agent, message.context_id, resolve_user_scope(context))
        except DoneWhenError as error:
            raise InvalidParamsError(message=str(error)) from None

    async def _check_answer(self, message: Message, context: ServerCallContext) -> None:
        """Remember the question that is open when an answer arrives: the answer is for that one."""
        if (task := await self._tasks.get(message.task_id, context)) is None:
            return
        if task.status.state in OPEN:
            raise UnsupportedOperationError(
                message=f"task {task.id} is at work and asks nothing: wait until it does, or cancel it"
            )
        if task.status.state in ENDED:  # the library refuses it, too, but without closing the queue that it opened
            raise UnsupportedOperationError(
                message=f"task {task.id} is over: send a new request, without its taskId, in the same context"
            )
        context.state[SHOWN] = await self._agent.get(task.context_id)


async def check_owner(agent: "Agent", thread: str, owner: str) -> None:
    """Raise InvalidParamsError for a conversation of another owner, of another client, or that waits for an answer."""
    if not thread:
        return
    with suppress(UnknownThread):
        info = await agent.info(check_thread_id(thread))
        if info.owner != owner or MARK not in info.metadata:
            raise InvalidParamsError(message=f"there is no context {thread}")
        if info.status == "waiting":
            task = info.metadata[MARK]
            raise InvalidParamsError(
                message=f"context {thread} waits for the answer to its task {task}: send it with this taskId"
            )


def a2a_app(
    agent: "Agent",
    url: str,
    *,
    push: PushNotifications | None = None,
    name: str = "DoneWhen",
    description: str = "Plans a request, works on it with its tools and proves each step.",
    skills: Mapping[str, str] | None = None,
) -> Starlette:
    """Return a web application that serves an agent at `url` over A2A 1.0 (JSON-RPC, with streaming).

    Its card is at `/.well-known/agent-card.json`. `skills`: what the agent can do, name → description. `push`: the same
    object as the agent's `notify`; with it clients may register URLs to be notified. The application takes users from
    the middleware that you add, and separates their tasks. When it starts, it continues unfinished tasks.
    """
    offered = skills or {"work": description}
    card = AgentCard(
        name=name,
        description=description,
        version="1.0",
        supported_interfaces=[AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")],
        capabilities=AgentCapabilities(streaming=True, push_notifications=push is not None),
        default_input_modes=["text/plain", "application/json"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id=key, name=key, description=about, tags=[key]) for key, about in offered.items()],
    )
    tasks = _Tasks(agent)
    if push:
        push.bind(agent.storage)
    handler = _Requests(
        agent,
        tasks,
        card,
        push_config_store=_Pushes(agent.storage) if push else None,
        push_url_validator=push.allows if push else None,
    )

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        resuming = [asyncio.create_task(_resume_task(agent, task)) for task in await tasks.read_unfinished()]
        yield
        await agent.aclose()
        await asyncio.gather(*resuming, return_exceptions=True)

    path = httpx.URL(url).path or "/"
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, path)]
    return Starlette(routes=routes, middleware=[Middleware(_DepthLimit)], lifespan=lifespan)


class _DepthLimit:
    """Refuses bodies that are nested too deeply for the libraries behind it to read."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
        except ClientDisconnect:
            return
        if await asyncio.to_thread(_is_deep, body):
            error = {"code": INVALID_REQUEST, "message": f"the body must be nested at most {MOST_NESTED} times"}
            refusal = JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, status_code=400)
            await refusal(scope, receive, send)
            return
        whole = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_again() -> Any:
            return whole.pop() if whole else await receive()

        await self._app(scope, receive_again, send)


def _is_deep(body: bytes) -> bool:
    try:
        return is_too_deep(json.loads(body), MOST_NESTED)
    except RecursionError:
        return True
    except ValueError:  # no JSON: the library says so
        return False


async def _resume_task(agent: "Agent", task: Task) -> None:
    with suppress(DoneWhenError):
        await agent.resume(task.context_id)
