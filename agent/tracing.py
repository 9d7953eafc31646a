"""Trace runs as spans, by OpenTelemetry's conventions for generative AI: https://github.com/open-telemetry/semantic-conventions-genai

Model calls get no span here: OpenInference and other instrumentations make one for each, in the same trace.
Needs the extra `otel`: pip install 'donewhen[otel]'.

A room: it listens to LangChain's callbacks. Without it, `trace` of `AgentOptions` and of the server, and DONEWHEN_TRACE
go.
"""

from __future__ import annotations

import functools
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp

from donewhen.agent.config import Config
from donewhen.state.channels import Json
from donewhen.state.errors import ConfigError
from donewhen.state.secrets import conceal, hide_known, redact_json
from donewhen.state.values import map_texts

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry._logs import LoggerProvider, SeverityNumber, get_logger
    from opentelemetry.trace import Link, Span, Status, StatusCode, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    IS_MISSING = False
except ImportError:
    IS_MISSING = True

EXTRA = "tracing needs the extra otel: pip install 'donewhen[otel]'"
NAME = "donewhen"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
TIMEOUTS = ("OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_LOGS_TIMEOUT")
EXPORT_SECONDS = 2.0
"""Seconds for which a collector that is not there may delay the end of a process, unless TIMEOUTS are set."""
COLLECTOR = "OTEL_EXPORTER_OTLP_ENDPOINT to your collector (such as http://localhost:4318)"
NO_PROVIDER = (
    f"tracing is asked for, and nothing takes the traces: set DONEWHEN_TRACE=1 and {COLLECTOR}, or OpenTelemetry's "
    "TracerProvider in your program"
)
NO_COLLECTOR = (
    f"DONEWHEN_TRACE is set, and nothing takes the traces: set {COLLECTOR} as well; other exporters are set in your "
    "own program, and OTEL_TRACES_EXPORTER is not read"
)
EVALUATION = "gen_ai.evaluation.result"
HOLDS = ("proven", "cited")
"""The verdicts of a criterion that holds."""
SCORES = {"yes": 1.0, "part": 0.5, "no": 0.0}
"""The score of a judge's verdict on the goal."""


@dataclass
class _Invocation:
    """One call of the graph: the work to the next pause or end."""

    span: Span
    thread: str
    ids: set[UUID] = field(default_factory=set)
    tokens: Counter[str] = field(default_factory=Counter)
    ends_with_graph: bool = True
    """False if `Tracing.invocation` ends the span."""


@dataclass
class _Scope:
    """The span that is the parent of what happens inside: of a graph, its planning, a step or a call."""

    invocation: _Invocation
    span: Span
    kind: str = ""
    step: str = ""
    started: int = 0
    """The time at which the step started, in nanoseconds."""
    executor: str = ""
    """The executor of the step, which has a span of its own."""


@dataclass(frozen=True)
class _Place:
    """The place of a LangChain run among the spans."""

    scope: _Scope
    name: str = ""
    own: bool = False
    """True if the scope ends with this run."""


_prepared: ContextVar[_Invocation | None] = ContextVar("prepared", default=None)
"""The invocation for the graph that is called next in this context."""


class Tracing(BaseCallbackHandler):
    """Traces runs with OpenTelemetry: for `AgentOptions(trace=…)`, or among the callbacks of a graph of your own.

    `name`: the agent's name in spans. `content`: spans carry texts, arguments and results too, without credentials,
    `secrets`, and the secrets that an agent knows; without it they carry none. Without providers the global ones are
    used. Raises ConfigError without the extra `otel`.
    """

    run_inline = True

    def __init__(
        self,
        name: str = NAME,
        *,
        content: bool = False,
        secrets: Sequence[str] = (),
        tracer_provider: TracerProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        if IS_MISSING:
            raise ConfigError(EXTRA)
        self.name = name
        self.content = content
        self._secrets = tuple(secrets)
        self._tracers, self._loggers = tracer_provider, logger_provider
        self._places: dict[UUID, _Place] = {}

    def add_secrets(self, secrets: Sequence[str]) -> None:
        """Leave these values out of spans as well: those that the agent knows."""
        self._secrets = tuple(dict.fromkeys((*self._secrets, *secrets)))

    # An invocation -----------------------------------------------------------------------------------------------

    @contextmanager
    def invocation(self, thread_id: str, stored: str, place: Context) -> Iterator[str]:
        """Make a span for a call of the graph; yield its `traceparent`, or "" if nothing is sampled.

        The graph is called in the context `place`. There the span is the current one, so that other instrumentations
        make theirs below it. `stored` is the traceparent of the request's first invocation, in any process; this one
        continues that trace.
        """
        if self._tracers is None and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _warn_once(NO_PROVIDER)
        invocation = self._begin(thread_id, stored)
        invocation.ends_with_graph = False
        context, carrier = trace.set_span_in_context(invocation.span), dict[str, str]()
        TraceContextTextMapPropagator().inject(carrier, context)
        place.run(contexts.attach, context)
        place.run(_prepared.set, invocation)
        try:
            yield carrier.get("traceparent", "")
        finally:
            invocation.span.end()

    def _begin(self, thread: str, stored: str = "") -> _Invocation:
        parent = TraceContextTextMapPropagator().extract({"traceparent": stored}) if stored else None
        current = trace.get_current_span().get_span_context()
        links = [Link(current)] if stored and current.is_valid else []
        attributes = {"gen_ai.agent.name": self.name, "gen_ai.conversation.id": thread}
        return _Invocation(self._span("invoke_agent", self.name, attributes, context=parent, links=links), thread)

    def _span_below(
        self, scope: _Scope, operation: str, name: str, attributes: Json | None = None, **options: Any
    ) -> Span:
        key = "gen_ai.tool.name" if operation == "execute_tool" else "gen_ai.agent.name"
        common = {key: name, "gen_ai.conversation.id": scope.invocation.thread, "donewhen.step": scope.step}
        context = trace.set_span_in_context(scope.span)
        return self._span(operation, name, {**common, **(attributes or {})}, context=context, **options)

    def _span(self, operation: str, name: str, attributes: Json, **options: Any) -> Span:
        present = {"gen_ai.operation.name": operation, **{key: value for key, value in attributes.items() if value}}
        tracer = trace.get_tracer(NAME, tracer_provider=self._tracers)
        return tracer.start_span(f"{operation} {name}", attributes=present, **options)

    # Nodes ---------------------------------------------------------------------------------------------------------

    def on_chain_start(
        self,
        serialized: Any,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Begin the span of a graph, of its planning, or of a step of an executor."""
        above = self._places.get(parent_run_id) if parent_run_id else None
        if above is None:
            invocation = _prepared.get()
            if invocation is None or invocation.ids:
                invocation = self._begin(str((metadata or {}).get("thread_id") or ""))
            self._keep(run_id, _Place(_Scope(invocation, invocation.span), own=True))
            return
        name, scope = str(more.get("name") or ""), above.scope
        is_node = not scope.kind and isinstance(inputs, Mapping) and list(inputs) == ["id"]
        if is_node and name == "plan":
            scope = _Scope(scope.invocation, self._span_below(scope, "plan", self.name), "plan")
        elif is_node and name == "execute":
            scope = _Scope(scope.invocation, scope.span, "step", str(inputs["id"]), time.time_ns())
        self._keep(run_id, _Place(scope, name, scope is not above.scope))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        """End the span, a graph's with its outcome."""
        place = self._places.pop(run_id, None)
        if place is None:
            return
        values = outputs if isinstance(outputs, Mapping) else {}
        outcome = values.get("outcome")
        if place.name == "deliver" and outcome:
            self._evaluate(place.scope.invocation, outcome["receipt"])
        if place.own and not place.scope.kind:
            self._finish(place.scope.invocation, values, outcome)
        elif place.own:
            _end(place.scope)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """End the span. A pause and a stop are not errors."""
        place = self._places.pop(run_id, None)
        if place and place.own:
            _note_error(place.scope.span, error)
            _end(place.scope) if place.scope.kind else self._close(place.scope.invocation)

    def _finish(self, invocation: _Invocation, values: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> None:
        span = invocation.span
        span.set_attribute("donewhen.status", outcome["status"] if outcome else "waiting")
        if outcome:
            span.set_attribute("donewhen.code", outcome["code"])
            if outcome["status"] == "failed":
                span.set_attribute("error.type", outcome["code"])
                span.set_status(Status(StatusCode.ERROR))
        if self.content:
            sides = {"input": ("user", values.get("goal")), "output": ("assistant", outcome and outcome["text"])}
            for side, (role, text) in sides.items():
                message = {"role": role, "parts": [{"type": "text", "content": text or ""}]}
                span.set_attribute(f"gen_ai.{side}.messages", self._text([message]))
        self._close(invocation)

    def _close(self, invocation: _Invocation) -> None:
        for key, value in invocation.tokens.items():
            invocation.span.set_attribute(f"gen_ai.usage.{key}", value)
        for id in invocation.ids:  # runs that were cut off
            if (place := self._places.pop(id, None)) and place.own:
                _end(place.scope)
        if invocation.ends_with_graph:
            invocation.span.end()

    def _keep(self, run_id: UUID, place: _Place) -> None:
        self._places[run_id] = place
        place.scope.invocation.ids.add(run_id)

    # Tools ---------------------------------------------------------------------------------------------------------

    def on_tool_start(
        self,
        serialized: Mapping[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Begin the span of a call, and make it the current one of the call's own context."""
        above = self._places.get(parent_run_id) if parent_run_id else None
        if above is None:
            return
        about = serialized or {}
        attributes = {
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": more.get("tool_call_id"),
            "gen_ai.tool.description": about.get("description"),
            "gen_ai.tool.call.arguments": self._text(inputs) if self.content else None,
        }
        span = self._span_below(above.scope, "execute_tool", str(more.get("name") or about.get("name")), attributes)
        contexts.attach(trace.set_span_in_context(span))  # a call has a task or a thread of its own, which ends with it
        self._keep(run_id, _Place(_Scope(above.scope.invocation, span, "tool", above.scope.step), own=True))

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """End the span of a call."""
        if place := self._places.pop(run_id, None):
            if getattr(output, "status", "") == "error":
                place.scope.span.set_attribute("error.type", "tool_error")
                place.scope.span.set_status(Status(StatusCode.ERROR))
            if self.content:
                text = str(output.text) if isinstance(output, BaseMessage) else output
                place.scope.span.set_attribute("gen_ai.tool.call.result", self._text(text))
            place.scope.span.end()

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """End the span of a call that raised."""
        if place := self._places.pop(run_id, None):
            _note_error(place.scope.span, error)
            place.scope.span.end()

    # Models --------------------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Set the provider and the model of the last call on the graph's span."""
        if above := self._places.get(parent_run_id) if parent_run_id else None:
            about, scope = metadata or {}, above.scope
            for key, name in (("ls_provider", "gen_ai.provider.name"), ("ls_model_name", "gen_ai.request.model")):
                if about.get(key):
                    scope.invocation.span.set_attribute(name, str(about[key]))
            self._note_executor(scope, str(about.get("donewhen_executor") or ""))
            self._keep(run_id, _Place(scope))

    def _note_executor(self, scope: _Scope, name: str) -> None:
        """Give the step of an executor a span of its own; its first model call names the executor."""
        if name and scope.kind == "step" and not scope.executor:
            scope.span = self._span_below(scope, "invoke_agent", name, start_time=scope.started)
            scope.executor = name

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Count the tokens of a reply."""
        place = self._places.pop(run_id, None)
        first = response.generations[0][0] if response.generations and response.generations[0] else None
        usage: Any = getattr(first.message, "usage_metadata", None) if isinstance(first, ChatGeneration) else None
        if place is None or not usage:
            return
        tokens, details = place.scope.invocation.tokens, usage.get("input_token_details") or {}
        tokens["input_tokens"] += usage.get("input_tokens") or 0
        tokens["output_tokens"] += usage.get("output_tokens") or 0
        tokens["cache_read.input_tokens"] += details.get("cache_read") or 0
        tokens["cache_creation.input_tokens"] += details.get("cache_creation") or 0

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Forget a model call without a reply."""
        self._places.pop(run_id, None)

    # Verdicts ------------------------------------------------------------------------------------------------------

    def _evaluate(self, invocation: _Invocation, receipt: Mapping[str, Any]) -> None:
        """Send an event for each criterion and audit of a receipt."""
        steps = [{"id": "goal", "criteria": receipt["criteria"], "audit": receipt["audit"]}, *receipt["steps"]]
        for step in steps:
            for row in step["criteria"]:
                note = f"{row['text']}: {row['note'] or row['verdict']}"
                score = 1.0 if row["verdict"] in HOLDS else 0.0
                about: Json = {"donewhen.step": step["id"], "donewhen.criterion": row["criterion"]}
                self._send_evaluation(invocation, "criterion", row["verdict"], score, note, about)
            if audit := step.get("audit"):
                doubted = [each for each in audit["sentences"] if each["shown"] != "yes"]
                note = "; ".join((*audit["missing"], *(f"{each['text']}: {each['why']}" for each in doubted)))
                about = {"donewhen.step": step["id"], "donewhen.sentences": len(audit["sentences"])}
                about |= {"donewhen.doubted": len(doubted), **({"error.type": "no_audit"} if audit["problem"] else {})}
                self._send_evaluation(
                    invocation, "audit", audit["met"], SCORES.get(audit["met"]), note or audit["problem"], about
                )

    def _send_evaluation(
        self, invocation: _Invocation, name: str, label: str, score: float | None, note: str, more: Json
    ) -> None:
        evaluation: Json = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": label or None}
        evaluation |= {"gen_ai.evaluation.score.value": score, "gen_ai.conversation.id": invocation.thread}
        evaluation |= {"gen_ai.evaluation.explanation": self._text(note) if self.content else None}
        get_logger(NAME, logger_provider=self._loggers).emit(
            context=trace.set_span_in_context(invocation.span),
            severity_number=SeverityNumber.INFO,
            event_name=EVALUATION,
            attributes={key: value for key, value in {**evaluation, **more}.items() if value is not None},
        )

    def _text(self, value: Any) -> str:
        """Return a text as it is and anything else as JSON, without secrets."""
        plain = value if isinstance(value, str) else json.loads(json.dumps(value, default=str))
        shown = hide_known(map_texts(redact_json(plain), lambda text: conceal(text, self._secrets)), self._secrets)
        return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, UserWarning, stacklevel=1)


def _end(scope: _Scope) -> None:
    """End the scope's span, if it has one of its own."""
    if scope.kind != "step" or scope.executor:
        scope.span.end()


def _note_error(span: Span, error: BaseException) -> None:
    if isinstance(error, GraphBubbleUp):
        return
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))


def make_tracing(asked: Tracing | bool, config: Config) -> Tracing | None:
    """Return the tracing of an agent's runs; None without it.

    With DONEWHEN_TRACE, a process without providers sends to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names.
    """
    if isinstance(asked, Tracing):
        asked.add_secrets(config.secrets)
        return asked
    if config.trace:
        try:
            _export(config.variables)
        except ImportError:
            raise ConfigError(EXTRA) from None
    wanted = asked or bool(config.trace)
    return Tracing(content=config.trace == "content", secrets=config.secrets) if wanted else None


def _export(variables: Mapping[str, str]) -> None:
    """Send spans and events to an OTLP collector, unless the process sends them somewhere already.

    Raises ConfigError if no variable names the collector.
    """
    from opentelemetry._logs import get_logger_provider, set_logger_provider
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk import trace as traces
    from opentelemetry.sdk._logs import LoggerProvider as Loggers
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({} if variables.get("OTEL_SERVICE_NAME") else {"service.name": NAME})
    seconds = None if any(variables.get(name) for name in TIMEOUTS) else EXPORT_SECONDS
    if not isinstance(trace.get_tracer_provider(), traces.TracerProvider):
        if not any(variables.get(name) for name in ENDPOINTS):
            raise ConfigError(NO_COLLECTOR)
        tracers = traces.TracerProvider(resource=resource)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=seconds)))
        trace.set_tracer_provider(tracers)
    if not isinstance(get_logger_provider(), Loggers):
        loggers = Loggers(resource=resource)
        loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(timeout=seconds)))
        set_logger_provider(loggers)
