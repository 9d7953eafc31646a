"""Known secrets leave a run nowhere: events, logs, receipts, answers, recordings, spans, errors (R18, Q103, Q56)."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from donewhen import Agent, AgentOptions, ModelError
from donewhen.agent.config import read_config
from donewhen.receipts import export_receipt
from donewhen.testing import Recording, ScriptedModel, audit, call, finish_step, submit_plan
from donewhen.tracing import Tracing
from tests.kit.runs import config

SECRET = 'Zq8"xW/1nT7vLk93Ps'
SPELLED: dict[str, Callable[[str], str]] = {"plain": str, "JSON": lambda text: json.dumps({"a": text, text: 1})}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", SECRET)


def secrets_in(value: Any) -> bool:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return "xW/1nT7vLk93Ps" in text


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("where", ["result", "failure", "arguments", "goal", "words"])
async def test_a_known_secret_leaves_a_run_nowhere(
    where: str, spelled: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """R18, Q103: wherever it comes in, nothing that is handed on contains it; results are stored without it."""
    text = f"the key is {SPELLED[spelled](SECRET)}."
    at = {key: text if key == where else "fine" for key in ("result", "failure", "arguments", "goal", "words")}

    def use(x: str) -> str:
        """Use something."""
        if where == "failure":
            raise ConnectionError(at["failure"])
        return at["result"]

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    plan = submit_plan([{"content": at["words"], "done_when": "d", "tools": ["use"]}])
    work = [call("use", x=at["arguments"]), finish_step(at["words"], "s1.1")]
    roles = {"triage": [plan], "execute": work, "deliver": [at["words"]] * 3, "judge": [audit()] * 2}
    model = ScriptedModel(roles=roles, strict=False, stream=True)
    tracing = Tracing(tracer_provider=provider, content=True)
    settings = {"confirm": "never", "approvals": "never"}
    options = AgentOptions(record=True, trace=tracing)
    agent = Agent(model, [use], effects={"use": "idempotent"}, settings=settings, storage="memory:", options=options)
    with caplog.at_level(logging.DEBUG, "donewhen"):
        stream = agent.stream(at["goal"], thread_id="t")
        events = [event async for event in stream]
        run = await stream.result()
    watched = [event async for event, _ in agent.watch("t")]
    (await Recording.of(agent, run)).save(tmp_path / "a.jsonl")
    state = (await agent.graph.aget_state(config("t"))).values
    spans = [(span.name, dict(span.attributes or {})) for span in exporter.get_finished_spans()]
    logs = [(record.getMessage(), getattr(record, "event", {})) for record in caplog.records]
    out: dict[str, Any] = {"events": events, "watched": watched, "receipt": run.receipt, "answer": run.answer}
    out["file"] = await export_receipt(agent, "t")
    out |= {"spans": spans, "logs": logs, "recording": (tmp_path / "a.jsonl").read_text("utf-8")}
    assert [name for name, value in out.items() if secrets_in(value)] == []
    assert spans
    if where in ("result", "failure"):
        assert not secrets_in(state)
        assert not any(secrets_in(request.text) for request in model.requests)
    await agent.aclose()


async def test_a_password_in_a_sentence_stays_in_a_receipt_unless_a_variable_has_it() -> None:
    """R18: of two passwords, the one that a variable with a secret's name has; no other sentence tells of one."""
    known, unknown = "Tr0ub4dor&3", "c0rrect#horse"

    def look(about: str) -> str:
        """Look something up."""
        return f"The password of the router is {known}, that of the door is {unknown}, says the porter."

    plan = submit_plan([{"content": "work", "done_when": "d", "tools": ["look"]}])
    work = [call("look", about="doors"), finish_step(f"They are {known} and {unknown}.", "s1.1")]
    options = AgentOptions(config=read_config({"ROUTER_PASSWORD": known}))
    settings = {"confirm": "never"}
    model = ScriptedModel(roles={"triage": [plan], "execute": work})
    agent = Agent(model, [look], effects={"look": "read"}, settings=settings, storage="memory:", options=options)
    run = await agent.start("the passwords")
    receipt = await export_receipt(agent, run.thread_id)
    assert (known in receipt, unknown in receipt) == (False, True)


async def test_a_secret_that_is_split_over_the_pieces_of_a_stream_is_hidden() -> None:
    """R18: live speech joins to the answer without the secret, for people and for clients of `messages`."""
    said = f"First. The key is {SECRET}, and so on. Done."
    model = ScriptedModel(roles={"triage": [said]}, strict=False, stream=True)
    async with Agent(model, storage="memory:", settings={"verification": "claimed"}) as agent:
        pieces, chunks = [], []
        async for event in agent.stream("hi"):
            pieces += [event["text"]] if event["type"] == "speech" and not event.get("answer") else []
        options: Any = {"stream_mode": "messages"}
        async for part, _ in agent.graph.astream({"messages": [("user", "hi")]}, config("m"), **options):
            chunks.append(str(part.text))
    assert len(pieces) > 3
    assert "".join(pieces) == said.replace(SECRET, "[redacted]")
    assert "The key is [redacted], and" in "".join(chunks)
    assert not secrets_in("".join(chunks))


async def test_what_a_run_raises_contains_no_secret() -> None:
    """R18: neither the exception nor the event of it, also where a provider quotes the key."""

    def refuse(*_: Any) -> Any:
        raise ConnectionError(f"401: the key {json.dumps(SECRET)} is wrong")

    async with Agent(ScriptedModel(roles={"triage": refuse}, strict=False), storage="memory:") as agent:
        stream = agent.stream("hi", settings={"on_failure": "deliver"})
        try:
            events = [event async for event in stream]
        except ModelError as error:
            events = [{"type": "error", "text": str(error)}]
    assert events
    assert not secrets_in(events)


@pytest.mark.parametrize("source", ["memory", "context"])
async def test_a_note_about_a_failed_source_hides_passwords(source: str) -> None:
    """Q56: also one that nobody declared, in the URL that an exception quotes."""

    def fail(goal: str, thread: str) -> str:
        raise ConnectionError(f"postgresql://app:Tr0ub4dor9xk2@db/memory refused {SECRET}")

    model = ScriptedModel(roles={"triage": ["hello"]}, strict=False)
    async with Agent(model, storage="memory:", options=AgentOptions(**{source: fail})) as agent:
        notes = [event["text"] async for event in agent.stream("hi") if event["type"] == "note"]
    assert len(notes) == 1
    assert "postgresql://app:[redacted]@db/memory refused [redacted]" in notes[0]


async def test_a_call_is_approved_as_it_will_run() -> None:
    """C08: the open question shows the exact arguments, in events too, and the call is made with them."""
    made = []

    def pay(key: str) -> str:
        """Pay."""
        made.append(key)
        return "paid"

    plan = submit_plan([{"content": "pay", "done_when": "d", "tools": ["pay"]}])
    roles = {"triage": [plan], "execute": [call("pay", key=SECRET), finish_step("paid", "s1.1")], "judge": [audit()]}
    settings = {"confirm": "never", "approvals": "each"}
    model = ScriptedModel(roles={**roles, "deliver": ["paid"]}, strict=False)
    async with Agent(model, [pay], storage="memory:", settings=settings) as agent:
        *_, asked = [event async for event in agent.stream("pay", thread_id="t")]
        run = await agent.get("t")
        assert asked["type"] == "waiting"
        assert asked["pending"][0]["arguments"] == run.pending[0]["arguments"] == {"key": SECRET}
        await agent.resume(run, "approve")
    assert made == [SECRET]
