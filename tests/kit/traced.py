"""A run and its resume, traced by the tool named on the command line, as a user sets it up; prints its spans.

`both` is OpenInference beside our own spans.
"""

import asyncio
import json
import os
import sys
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from donewhen import Agent, AgentOptions, Executor
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.tracing import Tracing


def look() -> str:
    """Look."""
    return "one"


def traced_by(tool: str, exporter: InMemorySpanExporter) -> dict[str, Any]:
    """Set the tool up; the config that runs are given."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    if tool in ("openinference", "both"):
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument(tracer_provider=provider)
        trace.set_tracer_provider(provider)
    elif tool == "opentelemetry":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        LangchainInstrumentor().instrument(tracer_provider=provider)
    elif tool == "langsmith":
        os.environ |= {"LANGSMITH_TRACING": "true", "LANGSMITH_OTEL_ENABLED": "true", "LANGSMITH_OTEL_ONLY": "true"}
        os.environ |= {"LANGSMITH_API_KEY": "key", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"}
        trace.set_tracer_provider(provider)
    else:
        from langfuse import Langfuse
        from langfuse.langchain import CallbackHandler

        Langfuse(public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=exporter)
        return {"callbacks": [CallbackHandler(public_key="pk")]}
    return {}


async def run(config: Any, tracing: Tracing | bool = False) -> None:
    """A plan is approved, a step looks and finishes."""
    rounds = {"s1": [call("look"), finish_step("one", "s1.1")]}
    model = ScriptedModel(
        roles={"triage": [submit_plan([{"content": "look", "executor": "scout"}])], "execute": rounds}
    )
    scout = {"scout": Executor("It looks.")}
    agent = Agent(
        model, [look], executors=scout, storage="memory:", effects={"look": "read"}, options=AgentOptions(trace=tracing)
    )
    asked = await agent.start("go", thread_id="thread-1", config=config)
    await agent.resume(asked, "approve", config=config)


def main(tool: str) -> None:
    exporter = InMemorySpanExporter()
    config = traced_by(tool, exporter)
    asyncio.run(run(config, Tracing(tracer_provider=trace.get_tracer_provider()) if tool == "both" else False))
    if tool == "langfuse":
        from langfuse import get_client

        get_client(public_key="pk").flush()
    if tool == "langsmith":
        from langsmith.run_trees import get_cached_client

        get_cached_client().flush()
    spans = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in spans if span.context}
    rows = [
        {
            "name": span.name,
            "trace": span.context.trace_id if span.context else 0,
            "parent": names.get(span.parent.span_id, "") if span.parent else "",
            "attributes": {key: str(value) for key, value in (span.attributes or {}).items()},
        }
        for span in sorted(spans, key=lambda span: span.start_time or 0)
    ]
    print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1])
