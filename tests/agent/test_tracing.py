"""Spans of our own by OpenTelemetry's conventions for generative AI: in memory, and at a collector on loopback."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from opentelemetry import trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from donewhen import Agent, AgentOptions, ConfigError, Executor, build_graph
from donewhen.agent.config import read_config
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from donewhen.tracing import Tracing
from tests.kit.flows import FREE, one_step
from tests.kit.places import ROOT
from tests.kit.screens.shell import scripted, user_in
from tests.kit.screens.terminal import environment, piped
from tests.kit.serving import free_port

KEY = "sk-verysecretkey1234567890abcd"
Json = dict[str, Any]


@dataclass
class Seen:
    """A tracer that keeps its spans and events in memory."""

    tracing: Tracing
    exporter: InMemorySpanExporter
    logs: InMemoryLogRecordExporter
    provider: TracerProvider

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return the ended spans, by their beginning."""
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    @property
    def tree(self) -> list[tuple[str, str]]:
        """Return the name of each span, and of the one above it."""
        names = {span.context.span_id: span.name for span in self.spans if span.context}
        return [(span.name, names.get(span.parent.span_id, "?") if span.parent else "") for span in self.spans]

    @property
    def events(self) -> list[Json]:
        """Return the attributes of the evaluation events."""
        records = [each.log_record for each in self.logs.get_finished_logs()]
        assert {record.event_name for record in records} <= {"gen_ai.evaluation.result"}
        return [dict(record.attributes or {}) for record in records]

    def named(self, name: str) -> Json:
        """Return the attributes of the only span of this name."""
        (found,) = [span for span in self.spans if span.name == name]
        return dict(found.attributes or {})

    @property
    def text(self) -> str:
        """Return all that is told, as one text."""
        return json.dumps([[span.name, dict(span.attributes or {})] for span in self.spans] + [self.events])


def seen(**options: Any) -> Seen:
    """Return a tracer in memory."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    logs, loggers = InMemoryLogRecordExporter(), LoggerProvider()
    loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
    return Seen(Tracing(tracer_provider=provider, logger_provider=loggers, **options), exporter, logs, provider)


def look(where: str) -> str:
    """Look."""
    span: Any = trace.get_current_span()
    return f"one thing at {where}, says {span.name if span.is_recording() else 'nobody'}; the key is {KEY}"


def model() -> ScriptedModel:
    """Return a plan of one step for an executor, which looks and finishes."""
    plan = [{"content": "look", "executor": "scout", "done_when": ["it is seen"]}]
    work = {"s1": [call("look", where="Bergen"), finish_step("one thing", ("s1.1", "one thing"))]}
    return ScriptedModel(roles={"triage": [submit_plan(plan)], "execute": work})


def agent(tracing: Tracing | bool, storage: str = "memory:") -> Agent:
    """Return an agent with an executor, traced."""
    scout = {"scout": Executor("It looks.")}
    return Agent(
        model(), [look], executors=scout, storage=storage, effects={"look": "read"}, options=AgentOptions(trace=tracing)
    )


TREE = [
    ("invoke_agent donewhen", ""),
    ("plan donewhen", "invoke_agent donewhen"),
    ("invoke_agent donewhen", "invoke_agent donewhen"),
    ("invoke_agent scout", "invoke_agent donewhen"),
    ("execute_tool look", "invoke_agent scout"),
]
"""The spans of a run that pauses for its plan: what goes on later is below the first one, in the same trace."""


async def test_a_run_is_one_trace_by_the_conventions() -> None:
    """U11: invoke_agent, plan, execute_tool, an evaluation event a criterion and audit; a tool's own spans go below."""
    told = seen()
    async with agent(told.tracing) as traced:
        asked = await traced.start("Look around Bergen", thread_id="t-1")
        run = await traced.resume(asked, "approve")
        values = (await traced.graph.aget_state({"configurable": {"thread_id": "t-1"}})).values
    assert run.status == "completed"
    assert told.tree == TREE
    assert len({span.context.trace_id for span in told.spans if span.context}) == 1
    first, last = [dict(span.attributes or {}) for span in told.spans if span.name == "invoke_agent donewhen"]
    assert [each["donewhen.status"] for each in (first, last)] == ["waiting", "completed"]
    for direction in ("input_tokens", "output_tokens"):
        assert sum(each[f"gen_ai.usage.{direction}"] for each in (first, last)) == run.spent[direction]
    assert {span.attributes["gen_ai.conversation.id"] for span in told.spans if span.attributes} == {"t-1"}
    tool = told.named("execute_tool look")
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "look")
    assert (tool["gen_ai.tool.type"], tool["donewhen.step"]) == ("function", "s1")
    audit, criterion = told.events
    assert (audit["gen_ai.evaluation.name"], audit["gen_ai.evaluation.score.label"]) == ("audit", "yes")
    assert (criterion["gen_ai.evaluation.name"], criterion["gen_ai.evaluation.score.value"]) == ("criterion", 1.0)
    assert (criterion["donewhen.step"], criterion["gen_ai.evaluation.score.label"]) == ("s1", "cited")
    assert "says execute_tool look" in values["journal"][0]["text"]


async def test_attributes_have_the_names_of_the_conventions_or_ours() -> None:
    """Q94: one standard: names are in the list of OpenTelemetry's conventions for generative AI; what only DoneWhen
    knows begins with `donewhen.`.
    """
    told = seen(content=True)
    async with agent(told.tracing) as traced:
        await traced.resume(await traced.start("Look around"), "approve")
    spans = [dict(span.attributes or {}) for span in told.spans]
    names = {name for attributes in (*spans, *told.events) for name in attributes}
    assert len(names) > 15
    standard = {value for value in vars(gen_ai_attributes).values() if isinstance(value, str)}
    assert {name for name in names if not name.startswith("donewhen.")} <= standard | {"error.type"}


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_told_only_if_asked_for_and_secrets_never(content: bool) -> None:
    """U11, S1: without `content` no text of the run, of a call or of a verdict; with it, none that is a credential."""
    told = seen(content=content, secrets=["Bergen"])
    async with agent(told.tracing) as traced:
        await traced.resume(await traced.start(f"Look around, my key is {KEY}"), "approve")
    assert KEY not in told.text
    for words in ("Look around", "one thing", "it is seen"):
        assert (words in told.text) is content, words
    assert "Bergen" not in told.text
    assert ("gen_ai.tool.call.arguments" in told.named("execute_tool look")) is content


async def test_a_graph_of_your_own_is_traced_by_a_callback() -> None:
    """U11: without an Agent, among the callbacks; every invocation is a trace of its own, of the same conversation."""
    told = seen()
    scout = {"scout": Executor("It looks.")}
    graph = build_graph(model(), [look], executors=scout, effects={"look": "read"}).compile(
        checkpointer=InMemorySaver()
    )
    config: Any = {"configurable": {"thread_id": "t-2"}, "callbacks": [told.tracing]}
    await graph.ainvoke({"messages": [("user", "go")]}, config)
    values = await graph.ainvoke(Command(resume="approve"), config)
    assert values["outcome"]["status"] == "completed"
    assert told.tree == [(name, "" if name == TREE[0][0] else above) for name, above in TREE]
    assert {span.attributes["gen_ai.conversation.id"] for span in told.spans if span.attributes} == {"t-2"}
    assert len(told.events) == 2


async def test_the_graph_of_an_agent_goes_on_in_the_trace(tmp_path: Path) -> None:
    """U11: `agent.graph` with another agent on the same storage: one trace; whoever calls is linked."""
    told, storage = seen(), f"sqlite:///{tmp_path}/runs.db"
    config: Any = {"configurable": {"thread_id": "t-3"}}
    async with agent(told.tracing, storage) as one:
        await one.graph.ainvoke({"messages": [("user", "go")]}, config)
    async with agent(told.tracing, storage) as other:
        with told.provider.get_tracer("web").start_as_current_span("POST /answer") as request:
            await other.graph.ainvoke(Command(resume="approve"), config)
    ours = [span for span in told.spans if span.name != "POST /answer"]
    assert [(name, above) for name, above in told.tree if name != "POST /answer"] == TREE
    assert len({span.context.trace_id for span in ours if span.context}) == 1
    assert [link.context for link in ours[2].links] == [request.get_span_context()]


async def test_what_a_tool_says_about_its_calls_is_no_call() -> None:
    """U11: what a change replaces is looked up before it, and whether it happened after an error; neither is a span."""

    def pay(order: str) -> str:
        """Pay."""
        raise TimeoutError

    told, asked = seen(), list[str]()
    metadata = {name: lambda _, name=name: asked.append(name) for name in ("probe", "replaces")}
    tool = StructuredTool.from_function(pay, metadata={"effect": "write", **metadata})
    script = one_step([call("pay", order="17"), give_up("nobody knows")], tools=["pay"], deliver=[])
    settings = {**FREE, "on_failure": "deliver"}
    async with Agent(script, [tool], storage="memory:", options=AgentOptions(trace=told.tracing)) as traced:
        assert (await traced.start("go", settings=settings)).status == "failed"
    assert {*asked} == {"probe", "replaces"}
    assert [name for name, _ in told.tree if name.startswith("execute_tool")] == ["execute_tool pay"]


async def test_what_fails_is_an_error() -> None:
    """U11: a tool that raises, a step that is given up and a run that failed; a refused plan is no error."""

    def broken() -> str:
        """Break."""
        raise RuntimeError(f"no; {KEY}")

    told = seen()
    script = one_step([call("broken"), give_up("it is broken")], tools=["broken"], deliver=[])
    settings = {**FREE, "on_failure": "deliver"}
    async with Agent(
        script, [broken], effects={"broken": "read"}, storage="memory:", options=AgentOptions(trace=told.tracing)
    ) as traced:
        assert (await traced.start("go", settings=settings)).status == "failed"
    assert told.named("execute_tool broken")["error.type"]
    assert told.named("invoke_agent donewhen")["donewhen.status"] == "failed"
    states = {span.name: span.status.status_code.name for span in told.spans}
    assert states == {"invoke_agent donewhen": "ERROR", "plan donewhen": "UNSET", "execute_tool broken": "ERROR"}
    assert KEY not in told.text
    told = seen()
    async with agent(told.tracing) as traced:
        run = await traced.resume(await traced.start("go"), "cancel")
    assert run.status == "cancelled"
    assert {span.status.status_code.name for span in told.spans} == {"UNSET"}


def test_other_instrumentations_tell_the_models_in_the_same_trace() -> None:
    """U11: OpenInference beside us: its spans of model calls are below our invocation, before and after the pause."""
    command = [sys.executable, "-m", "tests.kit.traced", "both"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    spans = json.loads(done.stdout.splitlines()[-1])
    assert len({span["trace"] for span in spans}) == 1
    assert [span["name"] for span in spans].count("ScriptedModel") == 4
    assert [span["parent"] for span in spans if span["name"] == "donewhen"] == ["invoke_agent donewhen"] * 2
    assert [span["name"] for span in spans].count("execute_tool look") == 1


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """An OTLP receiver on loopback: its address, and the bodies that it was sent for traces and logs."""
    bodies: dict[str, list[bytes]] = {"/v1/traces": [], "/v1/logs": []}

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies[self.path].append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", bodies["/v1/traces"], bodies["/v1/logs"]
        finally:
            server.shutdown()
            thread.join()


def test_two_processes_tell_a_collector_one_trace(tmp_path: Path) -> None:
    """U11, R02: DONEWHEN_TRACE=1 and the collector's address; a second process answers in the same trace."""
    shell = user_in(tmp_path)
    plan = submit_plan([{"content": "count", "done_when": ["they are counted"], "tools": ["list_files"]}])
    work = [call("list_files", path="."), finish_step("three files", ("s1.1", "a.txt"))]
    with scripted(shell, triage=[plan], execute=[*work]), collector() as (url, traces, logs):
        env = environment(tmp_path, **shell.model, DONEWHEN_TRACE="1", OTEL_EXPORTER_OTLP_ENDPOINT=url)
        asked = piped("run", "count the files", "--dir", str(shell.work), env=env, cwd=tmp_path)
        assert asked.returncode == 3, asked.stderr
        done = piped("resume", shell.waiting(), "--answer", "approve", "--dir", str(shell.work), env=env, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    found = [
        span
        for body in traces
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    names = sorted(span.name for span in found)
    assert names == ["execute_tool list_files", *["invoke_agent donewhen"] * 2, "plan donewhen"]
    assert len({span.trace_id for span in found}) == 1
    assert [span.name for span in found if not span.parent_span_id] == ["invoke_agent donewhen"]
    told = b"".join(logs)
    assert all(ExportLogsServiceRequest.FromString(body).resource_logs for body in logs)
    assert b"gen_ai.evaluation.result" in told
    assert b"donewhen" in told
    for words in (b"count the files", b"a.txt", b"they are counted", b"sk-test"):
        assert words not in b"".join(traces) + told


def test_without_the_extra_it_is_said_what_to_install() -> None:
    """U11: one line; an agent that is not traced needs nothing of it. A wrong DONEWHEN_TRACE is named."""
    # A new interpreter: a forked one has imported the library already.
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from donewhen import *\n"
        "Agent('demo', storage='memory:')\n"
        "Agent('demo', storage='memory:', options=AgentOptions(trace=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = "donewhen.state.errors.ConfigError: tracing needs the extra otel: pip install 'donewhen[otel]'"
    assert done.stderr.splitlines()[-1] == said
    with pytest.raises(ConfigError, match="DONEWHEN_TRACE is 'loud': use 1, or content"):
        read_config({"DONEWHEN_TRACE": "loud"})


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "UserWarning: tracing is asked for, and nothing takes the traces: set DONEWHEN_TRACE=1 and OTEL_EXPORTER"),
        (
            {"DONEWHEN_TRACE": "1"},
            "ConfigError: DONEWHEN_TRACE is set, and nothing takes the traces: set OTEL_EXPORTER_OTLP_ENDPOINT",
        ),
    ],
)
def test_traces_that_go_nowhere_are_named(variables: dict[str, str], said: str, tmp_path: Path) -> None:
    """U11: nothing is sent silently to nobody; what to set is said once."""
    code = (
        "from donewhen import Agent, AgentOptions, wait\n"
        "agent = Agent('demo', storage='memory:', options=AgentOptions(trace=True))\n"
        "for _ in range(2): wait(agent.start('hello'))"
    )
    done = piped(program=code, env=environment(tmp_path, **variables), cwd=tmp_path)
    assert done.stderr.count(said) == 1, done.stderr


def test_a_missing_collector_holds_up_nobody(tmp_path: Path) -> None:
    """U11, A02: the process ends soon after its run, although nobody takes the spans."""
    code = (
        "import time\n"
        "from donewhen import Agent, wait\n"
        "wait(Agent('demo', storage='memory:').start('hello'))\n"
        "print(time.time())"
    )
    nowhere = {"DONEWHEN_TRACE": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    done = piped(program=code, env=environment(tmp_path, **nowhere), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert time.time() - float(done.stdout) < 15  # by the defaults of OpenTelemetry it would be 20
