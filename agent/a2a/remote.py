"""Remote agents as executors, over the A2A protocol. Needs the extra `a2a`: pip install 'donewhen[a2a]'.

Every message is recorded before it is sent. After a crash or a lost connection, the task is looked up by its id, or
by the message's id among the conversation's tasks; only a message that never arrived is sent again, with the same id.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from langchain_core.messages import AIMessage
from langgraph.store.base import BaseStore

from donewhen.agent.a2a.remote_tasks import (
    has_message,
    last_message,
    questions_in,
    state_of,
    task_of,
    tasks_of,
    text_of,
    update_task,
)
from donewhen.graph.executors.executor import Card, Executor, Handoff, Report, Unfinished
from donewhen.graph.tools.call import TIMED_OUT, RunError
from donewhen.graph.tools.certain import proves_no_effect
from donewhen.graph.tools.effects import read_all
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.values import store_label

if TYPE_CHECKING:
    import httpx
    from a2a.client import Client
    from a2a.types import AgentCard, Message, Task

NAMESPACE = ("donewhen", "remote")
"""Store namespace of sent messages, by the key of the handoff."""
SCHEME = "a2a:"
SILENCE = 300.0
"""Seconds of silence after which a connection is dropped and the task is polled."""
FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
"""Seconds between two attempts to reach an agent."""
STOPPING = 5.0
"""Seconds that an agent has to accept the cancellation of its task."""
DECLINED = {"type": "ignore"}
"""The answer to another DoneWhen agent's form that nobody fills in."""
CREDENTIALS_HINT = 'Give it credentials: RemoteAgent(url, headers={"Authorization": "Bearer …"})'
UNDER_WAY = ("SUBMITTED", "WORKING", "UNSPECIFIED")
LANGGRAPH = "https://langchain.com/a2a/"
"""The prefix of extensions of LangGraph servers."""


def connect_executor(address: str) -> Executor:
    """Return the executor at an address, `a2a:https://…`. Raises ConfigError for any other."""
    if not address.startswith(SCHEME):
        raise ConfigError(f"{address!r} is no address of an A2A agent: use a2a:https://host/path")
    return Executor(remote=RemoteAgent(address))


@dataclass
class RemoteAgent:
    """An A2A agent. No connection is opened before the first plan or step.

    `url`: the agent's address, with or without `a2a:`; its card is at `/.well-known/agent-card.json` below it.
    `headers`: sent with every request, for instance `{"Authorization": "Bearer …"}`, and only to the host of `url`.
    `refresh`: seconds after which the card is fetched again. `poll`: seconds between two requests for the status of a
    working task. `patience`: seconds for which an unreachable agent is retried if it may be working or needs an answer.
    Raises ConfigError for an invalid URL, or without the extra `a2a`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    refresh: float = 300.0
    poll: float = 1.0
    patience: float = 60.0
    _known: "AgentCard | None" = field(default=None, init=False, repr=False)
    _fetched: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.url = self.url.removeprefix(SCHEME).rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{self.url!r} is no address of an A2A agent: use a2a:https://host/path")
        try:
            import a2a  # noqa: F401
        except ImportError:
            raise ConfigError("remote agents need the extra a2a: pip install 'donewhen[a2a]'") from None

    async def card(self) -> Card | None:
        """Return the agent's card, cached for `refresh` seconds, and longer if no new one is available."""
        try:
            async with self._http() as http:
                card = await self._card(http)
        except _connection_errors():
            if self._known is None:
                return None
            card = self._known
        named, described = _escape_tags(card.name), _escape_tags(card.description)
        skills = tuple(_escape_tags(f"{skill.name}: {skill.description}".strip(": ")) for skill in card.skills)
        return Card(": ".join(filter(None, (named, described))), skills)

    async def work(self, handoff: Handoff) -> Report:
        """Send the brief or the answers, unless already sent, and follow the task until it ends or asks.

        If the run is cancelled or the step's time is over, the task is cancelled too; if only this process stops, the
        task continues. Raises Unfinished if the agent may be working and cannot be reached, or lost the task.
        """
        following = asyncio.create_task(self._follow(handoff))
        watching = asyncio.create_task(_wait_for_cancel(handoff, self.poll))
        try:
            await asyncio.wait({following, watching}, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                return following.result()
            await _stop(following)
            await self._cancel_started(handoff)
            raise Unfinished(f"The run was cancelled, and so was the task of the agent at {self.url} in the middle.")
        except asyncio.CancelledError as error:
            await _stop(following)
            if TIMED_OUT in error.args or handoff.is_cancelled:
                await self._cancel_started(handoff)
            raise
        finally:
            await _stop(watching)

    async def cancel(self, task_id: str) -> None:
        """Ask the agent to cancel a task; whether it does is up to the agent."""
        from a2a.types import CancelTaskRequest

        with suppress(*_connection_errors(), TimeoutError):
            async with asyncio.timeout(STOPPING), self._http() as http:
                await (await self._client(http)).cancel_task(CancelTaskRequest(id=task_id))

    async def _cancel_started(self, handoff: Handoff) -> None:
        """Cancel the task of a handoff that is being worked on, if there is one."""
        with suppress(*_connection_errors(), Unfinished, TimeoutError):
            async with asyncio.timeout(STOPPING), self._http() as http:
                task = await self._find_started_task(await self._client(http), handoff, _Connection(0))
            if task is not None and state_of(task) in (*UNDER_WAY, "INPUT_REQUIRED"):
                await self.cancel(task.id)

    async def _follow(self, handoff: Handoff) -> Report:
        messages: list[str] = []
        connection = _Connection(self.patience)
        while True:
            try:
                async with self._http() as http:
                    client = await self._client(http)
                    task = await self._find_started_task(client, handoff, connection) or await self._send(
                        client, handoff, connection, messages
                    )
                    if isinstance(task, str):
                        return Report(task, messages=[AIMessage(task)])
                    while state_of(task) in UNDER_WAY:
                        await asyncio.sleep(self.poll)
                        task = await self._poll_task(client, task.id)
                        connection.reset()
                    if self._is_langgraph and state_of(task) == "FAILED":
                        task = await task_of(client, task.id)
                    if state_of(task) == "INPUT_REQUIRED":
                        asking = {"task": task.id, "answered": True, "context": task.context_id, "asks": handoff.name}
                        await self._write_note(handoff, connection, asking)
                    return self._report(task, messages)
            except ConfigError as error:
                return Report(failure=str(error))
            except _connection_errors() as error:
                why, refused = self._refusal(error), isinstance(error, _refusals())
            sent = await self._read_note(handoff, connection) is not None
            if not sent and (refused or not handoff.answers):
                return Report(failure=why)
            if not await connection.wait_to_retry():
                if handoff.answers:
                    return Report(unreached=why)
                raise Unfinished(why)

    async def lookup(self, handoff: Handoff) -> Report | None:
        """Return the report of an earlier handoff; None if it never arrived or ended without success.

        Raises if that is unknown.
        """
        connection = _Connection(0)
        if await self._read_note(handoff, connection) is None:
            return None
        async with self._http() as http:
            task = await self._find_started_task(await self._client(http), handoff, connection)
        if task is None:
            return None
        if state_of(task) in (*UNDER_WAY, "INPUT_REQUIRED"):
            raise Unfinished(f"The agent at {self.url} is still at work on it.")
        if state_of(task) == "CANCELED":
            raise Unfinished(f"The task of the agent at {self.url} was cancelled in the middle.")
        report = self._report(task, ())
        return None if report.failure else report

    # The agent's card ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _http(self) -> AsyncIterator["httpx.AsyncClient"]:
        import httpx

        async with httpx.AsyncClient(headers=dict(self.headers), timeout=httpx.Timeout(30, read=SILENCE)) as http:
            yield http

    async def _card(self, http: "httpx.AsyncClient") -> "AgentCard":
        from a2a.client import A2ACardResolver

        now = time.monotonic()
        if self._known is None or now - self._fetched > self.refresh:
            self._known, self._fetched = await A2ACardResolver(http, self.url).get_agent_card(), now
        return self._known

    async def _client(self, http: "httpx.AsyncClient") -> "Client":
        from a2a.client import ClientConfig, ClientFactory

        card = await self._card(http)
        own = urlsplit(self.url)
        hosts = {urlsplit(each.url).netloc for each in card.supported_interfaces}
        if self.headers and hosts - {own.netloc}:
            foreign = ", ".join(sorted(hosts - {own.netloc}))
            raise ConfigError(f"the card of {self.url} names another host, {foreign}; credentials are not sent there")
        return ClientFactory(ClientConfig(httpx_client=http, streaming=not self._is_langgraph)).create(card)

    @property
    def _is_langgraph(self) -> bool:
        """Return whether the agent is a LangGraph server.

        Only the first event of its stream follows the protocol. A polled task has no artifacts, and may look completed
        for a moment before it asks. The reason of a failure is only in the history of a polled task.
        """
        extensions = self._known.capabilities.extensions if self._known else ()
        return any(each.uri.startswith(LANGGRAPH) for each in extensions)

    async def _poll_task(self, client: "Client", id: str) -> "Task":
        task = await task_of(client, id)
        if self._is_langgraph and state_of(task) == "COMPLETED":
            await asyncio.sleep(self.poll)
            return await task_of(client, id)
        return task

    # A handoff -------------------------------------------------------------------------------------------------------

    async def _find_started_task(self, client: "Client", handoff: Handoff, connection: "_Connection") -> "Task | None":
        """Return the task that already has this handoff's message; None if it was never sent or never arrived."""
        note = await self._read_note(handoff, connection)
        if note is None:
            return None
        task = await self._find_task(client, handoff, note)
        if task is None and connection.lost_at is not None:  # the message may still be on its way
            await asyncio.sleep(self.poll)
            task = await self._find_task(client, handoff, note)
        return task

    async def _find_task(self, client: "Client", handoff: Handoff, note: Json) -> "Task | None":
        """Return the task that has the message, if any. Raises Unfinished if the agent does not say."""
        from a2a.types import TaskNotFoundError

        try:
            if note["answered"]:
                return await self._poll_task(client, note["task"])
            if note["task"]:
                tasks = [await task_of(client, note["task"])]
            else:
                listed = await tasks_of(client, note.get("context") or self._context(handoff))
                if listed is None:
                    raise Unfinished(
                        f"The agent at {self.url} lists no tasks, so nobody knows whether it got this one."
                    )
                tasks = listed
        except TaskNotFoundError as error:
            raise Unfinished(f"The agent at {self.url} does not know the task any more: {error}") from None
        return next((task for task in tasks if has_message(task, _message_id(handoff.key))), None)

    async def _send(
        self, client: "Client", handoff: Handoff, connection: "_Connection", spoken: list[str]
    ) -> "Task | str":
        """Send the message and listen while the agent works; return the task, or a plain answer."""
        from a2a.types import SendMessageRequest, Task

        message = self._message(handoff)
        task, arrived = Task(id=message.task_id, context_id=message.context_id), False
        note = {"task": message.task_id, "answered": False, "context": message.context_id}
        await self._write_note(handoff, connection, note)
        try:
            async for event in client.send_message(SendMessageRequest(message=message)):
                connection.reset()
                if event.WhichOneof("payload") == "message":
                    return text_of(event.message.parts)
                update_task(task, event, handoff, spoken)
                if task.id and not arrived:
                    arrived = True
                    await self._write_note(handoff, connection, {**note, "task": task.id, "answered": True})
        except _connection_errors() as error:
            if not arrived and proves_no_effect(error, _refusals()):
                await self._write_note(handoff, connection, None)
            raise
        if not task.id:
            return "(the agent said nothing)"
        return task if state_of(task) not in UNDER_WAY else await task_of(client, task.id)

    def _message(self, handoff: Handoff) -> "Message":
        from a2a.helpers import new_data_part, new_text_part
        from a2a.types import Message, Role

        task, data = "", dict[str, Any]()
        content: Any = handoff.brief
        for id, answer in handoff.answers.items():
            task, _, interrupt = id.partition(" ")
            data |= {interrupt: answer} if interrupt else {}
            content = DECLINED if answer is None else answer
        resume = next(iter(data.values())) if len(data) == 1 else data
        content = {"resume": resume} if data else content
        part = new_text_part(content) if isinstance(content, str) else new_data_part(content)
        message_id, context = _message_id(handoff.key), self._context(handoff)
        return Message(role=Role.ROLE_USER, parts=[part], message_id=message_id, context_id=context, task_id=task)

    def _context(self, handoff: Handoff) -> str:
        """Return the conversation's id: the same for all steps that continue one another."""
        return str(uuid5(NAMESPACE_URL, "\n".join((self.url, handoff.thread_id, handoff.name, handoff.conversation))))

    async def _read_note(self, handoff: Handoff, connection: "_Connection") -> Json | None:
        if connection.note is None and handoff.store is not None:
            try:
                item = await handoff.store.aget((*NAMESPACE, store_label(handoff.thread_id)), handoff.key)
            except Exception as error:
                raise RunError(error) from error
            connection.note = dict(item.value) if item else None
        return connection.note

    async def _write_note(self, handoff: Handoff, connection: "_Connection", note: Json | None) -> None:
        """Store the note durably; None means that nothing was sent."""
        connection.note, place = note, (*NAMESPACE, store_label(handoff.thread_id))
        try:
            if handoff.store and note is None:
                await handoff.store.adelete(place, handoff.key)
            elif handoff.store and note is not None:
                await handoff.store.aput(place, handoff.key, note, index=False)
        except Exception as error:
            raise RunError(error) from error

    # The report -----------------------------------------------------------------------------------------------

    def _report(self, task: "Task", spoken: Sequence[str]) -> Report:
        state, status_text = state_of(task), text_of(task.status.message.parts)
        messages = [AIMessage(text) for text in spoken]
        if state == "COMPLETED":
            artifacts = "\n\n".join(filter(None, (text_of(artifact.parts) for artifact in task.artifacts)))
            texts = [last_message(task), status_text] if self._is_langgraph else [status_text, last_message(task)]
            text = next(filter(None, (artifacts, *texts)), "")
            return Report(text, messages=[*(one for one in messages if one.text != text), AIMessage(text)])
        if state == "INPUT_REQUIRED":
            return Report(asks=questions_in(task), messages=messages)
        if state == "AUTH_REQUIRED":
            why = status_text or "no reason given"
            return Report(failure=f"The agent at {self.url} requires authentication: {why}. {CREDENTIALS_HINT}")
        why = (last_message(task) if self._is_langgraph else "") or status_text or "no reason given"
        return Report(failure=f"The agent at {self.url} ended the task as {state.lower()}: {why}")

    def _refusal(self, error: Exception) -> str:
        problem = f"{type(error).__name__}: {error}"[:1000]
        if re.search(r"\b40[13]\b", problem):  # a port may hold these digits
            return f"The agent at {self.url} requires authentication ({problem}). {CREDENTIALS_HINT}"
        return f"The agent at {self.url} could not be reached, or did not answer as the protocol says: {problem}"


async def _wait_for_cancel(handoff: Handoff, poll: float) -> None:
    """Wait until the run is cancelled."""
    while not handoff.is_cancelled:  # noqa: ASYNC110 - a drain of LangGraph is a flag
        await asyncio.sleep(poll)


async def _stop(task: "asyncio.Task[Any]") -> None:
    """Cancel an asyncio task, and wait for its end."""
    task.cancel()
    await asyncio.wait({task})


async def cancel_asking(store: BaseStore, thread_id: str, executors: Mapping[str, Executor]) -> None:
    """Cancel the tasks of remote agents whose questions get no answer, because the run was cancelled."""
    for item in await read_all(store, (*NAMESPACE, store_label(thread_id))):
        executor = executors.get(str(item.value.get("asks") or ""))
        if executor is not None and isinstance(executor.remote, RemoteAgent):
            await executor.remote.cancel(str(item.value["task"]))


def _escape_tags(text: str) -> str:
    """Return a foreign text for a prompt, where it can neither close nor open a tag."""
    return " ".join(text.replace("<", "‹").replace(">", "›").split())


@dataclass
class _Connection:
    """The state of a connection to an agent: since when it is lost, and the stored note of the handoff."""

    patience: float
    lost_at: float | None = None
    """The time when it was lost."""
    wait: float = FIRST_WAIT
    note: Json | None = None

    def reset(self) -> None:
        """Note that the agent answers again."""
        self.lost_at, self.wait = None, FIRST_WAIT

    async def wait_to_retry(self) -> bool:
        """Wait before another attempt; return False after too long."""
        self.lost_at = time.monotonic() if self.lost_at is None else self.lost_at
        if time.monotonic() - self.lost_at >= self.patience:
            return False
        await asyncio.sleep(self.wait)
        self.wait = min(2 * self.wait, LONGEST_WAIT)
        return True


def _connection_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a network connection."""
    import httpx
    from a2a.utils.errors import A2AError
    from google.protobuf.json_format import ParseError

    return (httpx.HTTPError, A2AError, ParseError, ValueError)


def _refusals() -> tuple[type[Exception], ...]:
    """Return the exceptions with which an agent refuses a message."""
    from a2a.utils import errors

    return (
        errors.TaskNotFoundError,
        errors.UnsupportedOperationError,
        errors.ContentTypeNotSupportedError,
        errors.InvalidParamsError,
        errors.InvalidRequestError,
        errors.MethodNotFoundError,
        errors.JSONParseError,
        errors.ExtensionSupportRequiredError,
        errors.VersionNotSupportedError,
    )


def _message_id(key: str) -> str:
    """Return the id of a handoff's message, the same on every attempt."""
    return str(uuid5(NAMESPACE_URL, key))
