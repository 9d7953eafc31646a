"""Our A2A endpoint, a process of its own, driven by the official client of the protocol."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_data_parts, get_message_text, new_text_part
from a2a.types import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError

from donewhen import Agent, Executor
from donewhen.agent.a2a.server import PushNotifications
from donewhen.executors import RemoteAgent
from donewhen.testing import ScriptedModel
from examples import a2a_server as example
from tests.kit.a2a_endpoint import SIZES, decide, serve
from tests.kit.flows import FREE
from tests.kit.serving import free_port, reserve, served_by

WAITS, DONE = TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_COMPLETED


class Endpoint:
    """The server process, with its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._door = folder, reserve()
        self.port = self._door.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: BaseProcess | None = None

    def start(self) -> None:
        """Who connects from now on is answered."""
        self.process = served_by(reserve(self.port) if self.process else self._door, serve, str(self.folder))

    def kill(self) -> None:
        """End it at once, and only it."""
        assert self.process
        self.process.kill()
        self.process.join(30)

    async def begun(self, times: int = 1) -> None:
        """Wait until the tool was called."""
        path = self.folder / "begun"
        while not path.exists() or len(path.read_text().split()) < times:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    made = Endpoint(tmp_path_factory.mktemp("endpoint"))
    made.start()
    yield made
    made.kill()


@asynccontextmanager
async def client_of(endpoint: Endpoint, user: str = "", *, streaming: bool = True) -> AsyncIterator[Client]:
    """The official client, with a user's token."""
    headers = {"Authorization": f"Bearer {user}"} if user else {}
    async with httpx.AsyncClient(timeout=30, headers=headers) as http:
        yield await create_client(endpoint.url, ClientConfig(streaming=streaming, httpx_client=http))


def request_of(text: str, task: Task | None = None, **more: Any) -> SendMessageRequest:
    """A message, in a task's conversation if there is one."""
    place = {"context_id": task.context_id, "task_id": task.id} if task else {}
    message = Message(role=Role.ROLE_USER, message_id=uuid4().hex, parts=[new_text_part(text)], **place)
    return SendMessageRequest(message=message, **more)


async def sent(client: Client, request: SendMessageRequest) -> Task:
    """The task as the last event leaves it."""
    task = Task()
    async for event in client.send_message(request):
        if event.HasField("task"):
            task.CopyFrom(event.task)
        elif event.HasField("status_update"):
            task.status.CopyFrom(event.status_update.status)
            task.id, task.context_id = event.status_update.task_id, event.status_update.context_id
        elif event.HasField("artifact_update"):
            task.artifacts.append(event.artifact_update.artifact)
    return task


@contextmanager
def hook() -> Iterator[tuple[str, Queue[tuple[Any, Any]]]]:
    """Where push notifications arrive: the address, and what came, with its headers. The first is refused."""
    arrived: Queue[tuple[Any, Any]] = Queue()
    refused: list[bool] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if refused:
                arrived.put((body, dict(self.headers)))
            self.send_response(200 if refused else 503)
            refused.append(True)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/hook", arrived
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("streaming", [True, False])
async def test_tasks_end_as_their_runs_do(endpoint: Endpoint, streaming: bool) -> None:
    """N40, U10: completed with the answer as an artifact, input-required with the question, failed with the reason."""
    async with client_of(endpoint, streaming=streaming) as client:
        hello = await sent(client, request_of("hello"))
        assert (hello.status.state, [get_artifact_text(each) for each in hello.artifacts]) == (DONE, ["Hello to you."])
        refused = await sent(client, request_of("refuse it"))
        assert refused.status.state == TaskState.TASK_STATE_FAILED
        assert get_message_text(refused.status.message)
        asked = await sent(client, request_of("paint it"))
        assert asked.status.state == WAITS
        assert "Which colour?" in get_message_text(asked.status.message)
        (handle,) = get_data_parts(asked.status.message.parts)
        assert (handle["kind"], handle["options"]) == ("question", ["red", "green"])
        done = await sent(client, request_of("green", asked))
        assert (done.id, done.status.state) == (asked.id, DONE)
        assert "It is green now." in [get_artifact_text(each) for each in done.artifacts]
        with pytest.raises(A2AError, match="is over: send a new request, without its taskId"):
            await sent(client, request_of("hello", asked))
        another = request_of("hello")
        another.message.context_id = asked.context_id
        again = await sent(client, another)
        assert (again.status.state, again.context_id, again.id != asked.id) == (DONE, asked.context_id, True)


async def test_cancelling_a_task_cancels_its_run(endpoint: Endpoint) -> None:
    """M5: a task that works in the middle of a call, and one that waits; what is over cannot be cancelled."""
    async with client_of(endpoint, streaming=False) as client:
        started = await sent(
            client, request_of("work", configuration=SendMessageConfiguration(return_immediately=True))
        )
        await asyncio.wait_for(endpoint.begun(), 20)
        asked = await sent(client, request_of("paint it"))
        for task in (started, asked):
            gone = await client.cancel_task(CancelTaskRequest(id=task.id))
            assert gone.status.state == TaskState.TASK_STATE_CANCELED
            assert (await client.get_task(GetTaskRequest(id=task.id))).status.state == TaskState.TASK_STATE_CANCELED
            with pytest.raises(A2AError):
                await client.cancel_task(CancelTaskRequest(id=task.id))
    async with Agent(ScriptedModel([]), storage=f"sqlite:///{endpoint.folder}/runs.db") as agent:
        runs = [(await agent.get(task.context_id)).status for task in (started, asked)]
    assert runs == ["cancelled", "cancelled"]


async def test_push_notifications_rest_on_the_news(endpoint: Endpoint) -> None:
    """S01, M5: an address given with the message, or later, is told what the run waits for and how it ended; at least
    once, also when it refused; with the client's token; until it is deleted."""
    with hook() as (url, arrived):
        async with client_of(endpoint, streaming=False) as client:
            auth = AuthenticationInfo(scheme="Bearer", credentials="k3y")
            wanted = TaskPushNotificationConfig(url=url, token="t0ken", authentication=auth)
            given = SendMessageConfiguration(task_push_notification_config=wanted)
            asked = await sent(client, request_of("paint it", configuration=given))
            body, headers = await asyncio.to_thread(arrived.get, timeout=20)
            assert (body["task"]["id"], body["task"]["status"]["state"]) == (asked.id, "TASK_STATE_INPUT_REQUIRED")
            assert body["task"]["status"]["message"]["parts"][0]["text"] == "Which colour?\n\n1. red\n2. green"
            assert (headers["X-A2A-Notification-Token"], headers["Authorization"]) == ("t0ken", "Bearer k3y")
            await sent(client, request_of("green", asked))
            body, _ = await asyncio.to_thread(arrived.get, timeout=20)
            assert body["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
            assert body["task"]["status"]["message"]["parts"][0]["text"] == "It is green now."
            hello = await sent(client, request_of("paint it"))
            made = await client.create_task_push_notification_config(
                TaskPushNotificationConfig(task_id=hello.id, id="mine", url=url)
            )
            place = {"task_id": hello.id, "id": made.id}
            assert (
                await client.get_task_push_notification_config(GetTaskPushNotificationConfigRequest(**place))
            ).url == url
            listed = await client.list_task_push_notification_configs(
                ListTaskPushNotificationConfigsRequest(task_id=hello.id)
            )
            assert [each.id for each in listed.configs] == ["mine"]
            await client.delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest(**place))
            await sent(client, request_of("green", hello))
            late = await asyncio.to_thread(later, arrived)
            assert set(late) <= {"TASK_STATE_INPUT_REQUIRED"}


async def test_an_address_that_is_not_there_keeps_nothing_from_the_others(endpoint: Endpoint) -> None:
    """S01: the second address is told, and only once, while the first is tried again."""
    with hook() as (url, arrived):
        async with client_of(endpoint, streaming=False) as client:
            asked = await sent(client, request_of("paint it"))
            for id, address in (("a", f"http://127.0.0.1:{free_port()}/"), ("b", url)):
                await client.create_task_push_notification_config(
                    TaskPushNotificationConfig(task_id=asked.id, id=id, url=address)
                )
            await sent(client, request_of("green", asked))
            states: list[str] = []
            while "TASK_STATE_COMPLETED" not in states:  # the question may be on its way while its task ends
                body, _ = await asyncio.to_thread(arrived.get, timeout=60)
                states.append(body["task"]["status"]["state"])
            states += await asyncio.to_thread(later, arrived)
            assert len(states) == len(set(states))


def later(arrived: Queue[tuple[Any, Any]]) -> list[str]:
    """The states that arrive until nothing has for a second: a question may be on its way while its task ends."""
    states: list[str] = []
    with suppress(Empty):
        while True:
            states.append(arrived.get(timeout=1)[0]["task"]["status"]["state"])
    return states


async def test_tasks_belong_to_their_users(endpoint: Endpoint) -> None:
    """S1, M5: another user's task is not found, listed, answered or cancelled, and their context not joined."""
    async with client_of(endpoint, "ann") as ann, client_of(endpoint, "bob", streaming=False) as bob:
        asked = await sent(ann, request_of("paint it"))
        for attempt in (
            bob.get_task(GetTaskRequest(id=asked.id)),
            bob.cancel_task(CancelTaskRequest(id=asked.id)),
            bob.create_task_push_notification_config(TaskPushNotificationConfig(task_id=asked.id, url="http://a.test")),
            sent(bob, request_of("green", asked)),
        ):
            with pytest.raises(TaskNotFoundError):
                await attempt
        assert list((await bob.list_tasks(ListTasksRequest(context_id=asked.context_id))).tasks) == []
        joined = request_of("hello")
        joined.message.context_id = asked.context_id
        with pytest.raises(A2AError):
            await sent(bob, joined)
        assert [task.id for task in (await ann.list_tasks(ListTasksRequest())).tasks] == [asked.id]
        assert (await ann.get_task(GetTaskRequest(id=asked.id))).status.state == WAITS


async def test_an_answer_that_comes_twice_is_taken_once(endpoint: Endpoint) -> None:
    """U9: two answers at once: both callers are told what came of it, and the task stays completed."""
    async with client_of(endpoint, streaming=False) as client:
        waiting = await sent(client, request_of("paint it"))
        assert waiting.status.state == WAITS
        both = await asyncio.gather(*(sent(client, request_of("green", waiting)) for _ in range(2)))
        assert [get_artifact_text(task.artifacts[0]) for task in both] == ["It is green now."] * 2
        assert (await client.get_task(GetTaskRequest(id=waiting.id))).status.state == DONE


async def test_each_question_of_a_task_is_a_message_of_its_own(endpoint: Endpoint) -> None:
    """Two questions of one task have two message ids, and each is in the history once."""
    async with client_of(endpoint, streaming=False) as client:
        first = await sent(client, request_of("paint it in a shade"))
        second = await sent(client, request_of("green", first))
        done = await sent(client, request_of("dark", second))
        assert (first.status.state, second.status.state, done.status.state) == (WAITS, WAITS, DONE)
        history = (await client.get_task(GetTaskRequest(id=first.id))).history
    ids = [message.message_id for message in history if message.role == Role.ROLE_AGENT]
    assert ids == [first.status.message.message_id, second.status.message.message_id]
    assert len(set(ids)) == 2


async def test_a_question_that_another_client_answered_waits_no_more(endpoint: Endpoint) -> None:
    """N40, C11: the task ends as its run does; one that still waits keeps what was said of a wrong answer."""
    async with client_of(endpoint, streaming=False) as client:
        asked = await sent(client, request_of("paint it"))
        again = await sent(client, request_of(" ", asked))
        assert (await client.get_task(GetTaskRequest(id=asked.id))).status == again.status
        async with Agent(ScriptedModel(decide), storage=f"sqlite:///{endpoint.folder}/runs.db") as agent:
            await agent.resume(asked.context_id, "green")
        got = await client.get_task(GetTaskRequest(id=asked.id))
        assert (got.status.state, get_artifact_text(got.artifacts[0])) == (DONE, "It is green now.")
        (listed,) = (await client.list_tasks(ListTasksRequest(context_id=asked.context_id))).tasks
        assert listed.status.state == DONE


async def test_a_question_beside_which_the_run_works_waits_when_it_takes_an_answer(endpoint: Endpoint) -> None:
    """N40, C11: another client answered the other question; until that is worked on, an answer would be refused."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(messages: list[Any], tools: list[Any]) -> Any:
        begun.set()
        await go_on.wait()
        return decide(messages, tools)

    async with client_of(endpoint, streaming=False) as client:
        asked = await sent(client, request_of("hang it"))
        assert asked.status.state == WAITS
        async with Agent(ScriptedModel(slow), storage=f"sqlite:///{endpoint.folder}/runs.db") as agent:
            leg = asyncio.create_task(agent.resume(asked.context_id, {"s2.q1": "green"}))
            await begun.wait()
            got = await client.get_task(GetTaskRequest(id=asked.id))
            assert got.status.state == TaskState.TASK_STATE_WORKING
            go_on.set()
            await leg
        ended = await sent(client, request_of("green", asked))
        assert ended.status.state == DONE


async def test_what_cannot_become_a_run_is_refused_before_there_is_a_task(endpoint: Endpoint) -> None:
    """U9: each refusal says what to do, and the question that waits still waits."""
    async with client_of(endpoint, "carl", streaming=False) as client:
        waiting = await sent(client, request_of("paint it"))
        picture, elsewhere, long = request_of("look"), request_of("hello"), request_of("hello")
        picture.message.parts.add(raw=b"png", media_type="image/png")
        elsewhere.message.context_id = waiting.context_id
        long.message.context_id = "x" * 300
        from_agent = request_of("hello")
        from_agent.message.role = Role.ROLE_AGENT
        wrong = [(request_of(" "), "goal is empty"), (picture, "send what matters as text"), (long, "255 are allowed")]
        wrong.append((from_agent, "has the role ROLE_USER"))
        for request, said in [*wrong, (elsewhere, f"its task {waiting.id}: send it with this taskId")]:
            with pytest.raises(A2AError, match=said):
                await sent(client, request)
        assert [task.id for task in (await client.list_tasks(ListTasksRequest())).tasks] == [waiting.id]
        assert (await sent(client, request_of("green", waiting))).status.state == DONE


async def test_a_killed_server_goes_on(tmp_path: Path) -> None:
    """R02, M5: SIGKILL in the middle of a call: the next process goes on, tells the address, and knows the tasks."""
    endpoint = Endpoint(tmp_path)
    endpoint.start()
    with hook() as (url, arrived):
        async with client_of(endpoint, streaming=False) as client:
            asked = await sent(client, request_of("paint it"))
            wanted = TaskPushNotificationConfig(url=url)
            given = SendMessageConfiguration(task_push_notification_config=wanted, return_immediately=True)
            working = await sent(client, request_of("work", configuration=given))
            await asyncio.wait_for(endpoint.begun(), 20)
            endpoint.kill()
            endpoint.start()
            await asyncio.wait_for(endpoint.begun(2), 20)
            seen = await client.get_task(GetTaskRequest(id=working.id))
            assert seen.status.state == TaskState.TASK_STATE_WORKING
            (tmp_path / "go").touch()
            body, _ = await asyncio.to_thread(arrived.get, timeout=30)
            assert (body["task"]["id"], body["task"]["status"]["state"]) == (working.id, "TASK_STATE_COMPLETED")
            ended = await client.get_task(GetTaskRequest(id=working.id))
            assert (ended.status.state, get_artifact_text(ended.artifacts[0])) == (DONE, "worked")
            done = await sent(client, request_of("green", asked))
            assert done.status.state == DONE
    endpoint.kill()


async def test_our_remote_agents_work_with_it(endpoint: Endpoint) -> None:
    """M5: one agent of ours hands over to another: its question is asked in the run, and its answer is the result."""
    executors = {"far": Executor(remote=RemoteAgent(endpoint.url, poll=0.05), passthrough=True)}
    settings = {**FREE, "executor": "far"}
    async with Agent(ScriptedModel([]), storage="memory:", executors=executors, settings=settings) as agent:
        asked = await agent.start("paint it")
        assert [asked.pending[0][key] for key in ("question", "options")] == ["Which colour?", ["red", "green"]]
        run = await agent.resume(asked, "2")
    assert (run.status, run.answer) == ("completed", "It is green now.")


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({"size": "L", "count": 2}, {"size": "L", "count": 2}),
        ("size: S", {"size": "S", "count": 1}),
        ({"type": "ignore"}, None),
    ],
    ids=["object", "lines", "declined"],
)
async def test_a_form_of_a_remote_agent_of_ours_is_a_form_of_the_run(
    endpoint: Endpoint, given: Any, filled: Any
) -> None:
    """M5, N42: with its schema, also for other clients, in which a wrong answer says once what does not fit."""
    executors = {"far": Executor(remote=RemoteAgent(endpoint.url, poll=0.05), passthrough=True)}
    settings = {**FREE, "executor": "far"}
    async with Agent(ScriptedModel([]), storage="memory:", executors=executors, settings=settings) as agent:
        run = await agent.start("order a shirt")
        assert [run.pending[0][key] for key in ("question", "schema")] == ["Which size?", SIZES]
        run = await agent.resume(run, {"size": "XXL"})
        assert run.problem.startswith("size: 'XXL' is not one of")
        run = await agent.resume(run, given)
        assert (run.status, run.answer) == ("completed", "Ordered.")
        assert json.loads((endpoint.folder / "ordered").read_text()) == filled
        (step,) = run.receipt["steps"]
        assert "transcript" not in step  # nothing was said beside the result
    async with client_of(endpoint, streaming=False) as client:
        asked = await sent(client, request_of("order a shirt"))
        (handle,) = get_data_parts(asked.status.message.parts)
        assert (handle["question"], handle["schema"]) == ("Which size?", SIZES)
        asked = await sent(client, request_of("size: XXL", asked))
        assert get_message_text(asked.status.message).count("'XXL' is not one of") == 1


async def test_the_example_serves_an_agent() -> None:
    """M5: `examples/a2a_server.py`: its card, and the demo model's answer to a greeting."""
    push = PushNotifications()
    app = example.serve(Agent("demo", storage="memory:", notify=push), push)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=example.URL) as http:
        client = await create_client(example.URL, ClientConfig(streaming=False, httpx_client=http))
        assert (await http.get("/.well-known/agent-card.json")).json()["name"] == "Clerk"
        task = await sent(client, request_of("count the files"))
    assert task.status.state in (WAITS, DONE, TaskState.TASK_STATE_FAILED)
    assert get_message_text(task.status.message)
