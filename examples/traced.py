"""Traces of a run: what it did, call by call, and the verdicts on it, as OpenTelemetry spans and events.

Runs with a scripted model, and prints what a collector would get; with DONEWHEN_TRACE=1 in place of all this, it goes
to the collector of OTEL_EXPORTER_OTLP_ENDPOINT. Needs the extra otel: pip install 'donewhen[otel]'
"""

import asyncio

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from donewhen import Agent, AgentOptions
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.tracing import Tracing


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city}: rain"


async def main() -> None:
    """Run in two invocations, with a person in between, and print the one trace of both."""
    spans, verdicts = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(verdicts))

    plan = submit_plan([{"content": "Look it up", "done_when": "The weather is known", "tools": ["weather"]}])
    work = [call("weather", city="Bergen"), finish_step("It rains", ("s1.1", "rain"))]
    model = ScriptedModel(roles={"triage": [plan], "execute": work})
    trace = Tracing(tracer_provider=tracers, logger_provider=loggers)
    async with Agent(
        model, [weather], effects={"weather": "read"}, storage="memory:", options=AgentOptions(trace=trace)
    ) as agent:
        run = await agent.resume(await agent.start("What is the weather in Bergen?"), "approve")

    print(f"{run.status}: {run.answer}")
    for span in sorted(spans.get_finished_spans(), key=lambda span: span.start_time or 0):
        print(f"{f'{span.context.trace_id:032x}'[:6]} {span.name}" if span.context else span.name)
    for each in verdicts.get_finished_logs():
        about = each.log_record.attributes or {}
        print(f"{about['donewhen.step']} {about['gen_ai.evaluation.name']}: {about['gen_ai.evaluation.score.label']}")


if __name__ == "__main__":
    asyncio.run(main())
