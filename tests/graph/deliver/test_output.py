"""Results as data: `output_type` delivered by the call that delivers anyway, validated, each value with its source."""

import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel, Field, field_validator

from donewhen import Agent, ConfigError, Run, Settings, build_graph
from donewhen.testing import ScriptedModel, answer, audit, call, deliver, finish_step, recall, submit_plan
from tests.kit.flows import FREE

LISTING = "vendor,price,until\nAcme,18.40,2026-11-30\nBolt,20.15,2026-12-24"


def look() -> str:
    """Look at the offers."""
    return LISTING


class Offer(BaseModel):
    """An offer."""

    vendor: str
    price: float
    until: date | None = None


class Choice(BaseModel):
    best: Offer
    others: list[Offer] = []
    verdict: str = Field(default="", description="in a word")

    @field_validator("verdict")
    @classmethod
    def _short(cls, given: str) -> str:
        if len(given.split()) > 1:
            raise ValueError("one word")
        return given


ACME, BOLT = {"vendor": "Acme", "price": 18.4, "until": "2026-11-30"}, {"vendor": "Bolt", "price": 20.15}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
GOOD: dict[str, Any] = {"best": ACME, "others": [BOLT], "verdict": "cheap"}
SEEN = [call("look"), finish_step("Acme 18.40, Bolt 20.15", "s1.1")]


def two_steps(*deliver: Any, **roles: Any) -> ScriptedModel:
    """A plan of two steps, so that a model delivers."""
    plan = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "compare"}])
    return ScriptedModel(
        roles={
            "triage": [plan],
            "execute": {"s1": SEEN, "s2": [finish_step("Acme is cheaper", "s2.result")]},
            "deliver": list(deliver),
            **roles,
        }
    )


def one_step(result: str, *deliver: Any) -> ScriptedModel:
    """A plan of one step, whose result is the answer."""
    plan = submit_plan([{"content": "look", "done_when": ["the offers are known"], "tools": ["look"]}])
    rounds = [call("look"), finish_step(result, "s1.1")]
    return ScriptedModel(roles={"triage": [plan], "execute": {"s1": rounds}, "deliver": list(deliver)})


def agent(model: ScriptedModel, storage: str = "memory:", **more: Any) -> Agent:
    return Agent(model, [look], storage=storage, settings=FREE, effects={"look": "read"}, **more)


def delivered(output: Any, text: str = "Acme is the cheapest.") -> Any:
    return deliver(text, output)


async def test_a_model_is_delivered_with_the_source_of_each_value() -> None:
    """A1: an instance in code, plain JSON in state; no call beyond the one that writes the answer; rows per value."""
    model = two_steps(delivered(GOOD))
    async with agent(model, output_type=Choice) as ours:
        run = await ours.start("Which offer is the best?")
        assert (await ours.get(run.thread_id)).output == run.output == Choice.model_validate(GOOD)
    assert (run.status, run.answer) == ("completed", "Acme is the cheapest.")
    assert run.outcome is not None
    assert run.receipt is not None
    assert run.outcome["output"] == json.loads(json.dumps(run.to_dict()))["output"] == GOOD
    row = run.receipt["output"]
    assert row is not None
    fields = {each["path"]: each["evidence"] for each in row["fields"]}
    assert fields["best.price"] == [{"observation": "s1.1", "quote": "18.4"}]
    assert fields["best.until"] == [{"observation": "s1.1", "quote": "2026-11-30"}]
    assert fields["others[0].vendor"] == [{"observation": "s1.1", "quote": "Bolt"}]
    assert fields["verdict"] == []
    model.assert_exhausted()


async def test_figures_without_a_source_are_named() -> None:
    """N07: the judge, the answer and the receipt name numbers that stand in no observation, also if nobody doubts."""
    model = two_steps(delivered({**GOOD, "best": {**ACME, "price": 17.95}}), judge=lambda *_: audit())
    run = await offered(model)
    assert run.status == "completed"
    assert run.receipt is not None
    assert run.receipt["output"] is not None
    assert run.receipt["output"].get("unsourced") == ["best.price"]
    assert run.answer.endswith("- Stands in no observation, so computed or concluded at best: best.price")
    assert "best.price = 17.95 (in no observation)" in model.requests[-1].text
    assert "2026-11-30 (in no" not in model.requests[-1].text


def read_statement() -> str:
    """Read the statement of an account."""
    return "Offen CHF: 1.234,56, Oktober 2026; Saldo 30,00- EUR"


@pytest.mark.parametrize(
    ("figure", "unsourced"), [(1234.56, []), (-30, []), (1.234, ["output"]), (56, ["output"]), (30, ["output"])]
)
async def test_a_part_of_a_figure_is_no_source(figure: float, unsourced: list[str]) -> None:
    """N07, F9: 1.234 is a thousandth of 1.234,56, and 30,00- is negative."""
    plan = submit_plan([{"content": "read", "done_when": ["it is read"], "tools": ["read_statement"]}])
    rounds = [call("read_statement"), finish_step("See the data.", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "execute": {"s1": rounds}, "deliver": [deliver("Done.", figure)]})
    async with Agent(model, [read_statement], settings=FREE, effects={"read_statement": "read"}) as own:
        run = await own.start("What is open?", output_type=float)
    assert run.receipt is not None
    assert (run.receipt["output"] or {}).get("unsourced") == unsourced


async def test_a_figure_that_the_person_said_earlier_is_not_named() -> None:
    """N07: two requests of a thread: what they said in the first one is no invention in the second one's data."""
    plan = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "compare"}])
    data = delivered({**GOOD, "best": {**ACME, "price": 750}})
    work = {"s1": SEEN, "s2": [finish_step("Acme is cheaper", "s2.result")]}
    roles: Any = {"triage": [answer("Noted."), plan], "execute": work, "deliver": [data], "judge": lambda *_: audit()}
    async with agent(ScriptedModel(roles=roles)) as own:
        await own.start("My budget is 750 EUR", thread_id="t")
        run = await own.start("Compare the offers", thread_id="t", output_type=Choice)
    assert run.receipt is not None
    assert (run.receipt["output"] or {}).get("unsourced") == []
    assert "in no observation" not in run.answer


def photograph(n: int) -> list[Any]:
    """Photograph the offers."""
    return [{"type": "text", "text": "a photo"}, {"type": "image", "base64": PIXEL, "mime_type": "image/png"}]


def dump(n: int) -> str:
    """Dump a year."""
    return f"all offers of year {n}\n" * 40_000


@pytest.mark.parametrize(
    ("first", "planner", "looks", "unsourced"),
    [
        (photograph, [], [], ["best.price"]),
        (photograph, [recall("1:s1.1")], [], []),
        (photograph, [], [recall("1:s1.1")], []),
        (dump, [], [], ["best.price"]),
    ],
)
async def test_what_an_earlier_request_saw_hides_no_figure_of_a_later_one(
    first: Any, planner: list[Any], looks: list[Any], unsourced: list[str]
) -> None:
    """N07: two requests of a thread; an image or megabytes of the first one count only where they are recalled."""
    before, plan = (submit_plan([{"content": "look", "tools": [name]}, "compare"]) for name in (first.__name__, "look"))
    data = delivered({**GOOD, "best": {**ACME, "price": 17.95}})
    work = {
        "s1": [[call(first.__name__, n=n) for n in (1, 2, 3)], finish_step("seen", "s1.1"), *looks, *SEEN],
        "s2": [finish_step("Acme is cheaper", "s2.result")] * 2,
    }
    roles: Any = {"triage": [before, *planner, plan], "execute": work, "deliver": [data]}
    tools, effects = [look, first], {"look": "read", first.__name__: "read"}
    async with Agent(
        ScriptedModel(roles={**roles, "judge": lambda *_: audit()}),
        tools,
        storage="memory:",
        settings=FREE,
        effects=effects,
    ) as own:
        await own.start("Look at them", thread_id="t")
        run = await own.start("Compare the offers", thread_id="t", output_type=Choice)
    assert run.receipt is not None
    assert (run.receipt["output"] or {}).get("unsourced") == unsourced


async def test_what_nothing_supports_is_marked() -> None:
    """A1, V07: values of data are claims as well; one that nothing shows goes back once, then is marked."""
    data = {"best": {**ACME, "price": 17.95}, "others": [{**BOLT, "until": "2026-12-24"}], "verdict": "cheap"}
    model = two_steps(delivered(data), delivered(data), judge=lambda *_: audit((3, "no", "18.40 was offered")))
    run = await offered(model)
    assert run.receipt is not None
    assert run.outcome is not None
    assert (run.status, run.outcome["code"]) == ("partial", "not_shown")
    assert "best.price = 17.95 (in no observation)" in model.requests[-1].text
    assert "17.95 (in no observation)” — 18.40 was offered" in run.answer
    assert run.receipt["audit"]["sentences"][2]["shown"] == "no"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"best": {"vendor": "Acme"}}, "output.best: 'price' is a required property"),
        ({**GOOD, "verdict": "very cheap"}, "output.verdict: one word"),
        ({**GOOD, "best": {**ACME, "until": "30.11."}}, "output.best.until: Input should be a valid date"),
    ],
)
async def test_what_does_not_fit_is_mended_once(wrong: Any, said: str) -> None:
    """A1: the model is told what is wrong, by the schema or by the type's own validators; it is said once."""
    model = two_steps(delivered(wrong), delivered(json.dumps(GOOD)))
    async with agent(model) as ours:
        stream = ours.stream("Which offer is the best?", output_type=Choice)
        events = [event async for event in stream]
    assert stream.run is not None
    assert (stream.run.status, stream.run.output) == ("completed", Choice.model_validate(GOOD))
    again = max(n for n, event in enumerate(events) if event["type"] == "speech_restarted")
    spoken = [event["text"] for event in events[again:] if event["type"] == "speech" and event["step"] is None]
    assert "".join(spoken) == stream.run.answer
    assert said in model.requests[-1].messages[-1].text
    model.assert_exhausted()


async def test_data_that_never_fits_is_an_honest_partial() -> None:
    """A1: the work and the answer stand; the run is partial, and answer, reason and receipt say what is missing."""
    model = two_steps(delivered({"best": 1}), delivered({"best": 2}))
    run = await offered(model)
    model.assert_exhausted()
    assert (run.status, run.output) == ("partial", None)
    assert run.outcome is not None
    assert ("output" in run.outcome, run.outcome["code"]) == (False, "worked")
    assert "output.best: 2 is not of type 'object'" in run.outcome["reason"]
    problem = "- The result could not be given as the data asked for: output.best"
    assert run.answer.startswith(f"Acme is the cheapest.\n\n{problem}")
    assert "output.best" in str(run.receipt and run.receipt["output"])


async def test_an_only_step_may_give_the_data_itself() -> None:
    """A1, D05: its result is the answer if it is JSON that fits, without another call; else one call delivers."""
    model = one_step(f"```json\n{json.dumps(GOOD)}\n```")
    run = await offered(model)
    assert (run.status, run.output.best.price) == ("completed", 18.4)
    model.assert_exhausted()
    assert '"vendor"' in model.requests[1].messages[1].text
    model = one_step("Acme is the cheapest.", delivered(GOOD))
    run = await offered(model)
    assert (run.status, run.output.verdict) == ("completed", "cheap")
    model.assert_exhausted()


async def test_triage_answers_with_the_data() -> None:
    """A1, P02: one call settles it; without fitting data it is corrected once, then partial."""
    model = ScriptedModel(roles={"triage": [answer("Acme.", output=GOOD)]})
    run = await offered(model)
    assert (run.status, run.answer, run.output) == ("answered", "Acme.", Choice.model_validate(GOOD))
    assert "output" in model.requests[0].tools[0]["function"]["parameters"]["required"]
    run = await offered(ScriptedModel(roles={"triage": [call("answer", text="Acme."), call("answer", text="Acme!")]}))
    assert run.status == "partial"
    assert run.answer == "Acme!\n\n- The result could not be given as the data asked for: output is missing"
    unfit = answer("Acme.", output={**GOOD, "best": {**ACME, "price": "cheap"}})
    run = await offered(ScriptedModel(roles={"triage": [unfit, unfit]}))
    assert run.status == "partial"
    assert "output.best.price: 'cheap' is not of type 'number'" in run.answer


async def test_models_that_print_their_calls_print_the_data() -> None:
    """A1, P10: the printed form carries it beside its text, and JSON alone is taken for the data."""
    printed = json.dumps({"action": "deliver", "arguments": {"text": "Acme.", "output": GOOD}})
    for reply, text in ((printed, "Acme."), (json.dumps(GOOD), json.dumps(GOOD))):
        run = await offered(two_steps(reply))
        assert (run.status, run.output) == ("completed", Choice.model_validate(GOOD))
        assert run.answer.startswith(text)


async def test_another_process_goes_on_with_the_schema(tmp_path: Path) -> None:
    """A1, R05: the schema is in the run; without the type plain JSON comes, with it an instance."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    plan = submit_plan([{"content": "look", "tools": ["look"]}, {"content": "compare"}])
    async with agent(ScriptedModel(roles={"triage": [plan]}), storage) as first:
        run = await first.start("Which offer is the best?", settings={"confirm": "always"}, output_type=Choice)
        assert (run.status, run.output) == ("waiting", None)
    work = {"s1": SEEN, "s2": [finish_step("Acme", "s2.result")]}
    second = ScriptedModel(roles={"execute": work, "deliver": [delivered(GOOD)]})
    async with agent(second, storage) as other:
        with pytest.raises(ConfigError, match="another one"):
            await other.resume(run, "approve", output_type=Offer)
        run = await other.resume(run, "approve")
        assert run.output == GOOD
        assert (await other.get(run.thread_id, output_type=Choice)).output == Choice.model_validate(GOOD)
        assert (await other.resume(run.thread_id, output_type=Choice)).output == Choice.model_validate(GOOD)


class Choice2(Choice):
    """The same after a deployment, with one field more."""

    cost_center: str = "none"


async def test_a_later_version_of_the_type_reads_the_output(tmp_path: Path) -> None:
    """A1: an instance of any type it fits; of another, what does not fit is said, and the JSON is still there."""
    storage = f"sqlite:///{tmp_path / 'runs.db'}"
    model = ScriptedModel(roles={"triage": [call("answer", text="Acme.", output=GOOD), answer("No data.")]})
    async with agent(model, storage) as first:
        run = await first.start("Which offer is the best?", output_type=Choice)
        plain = await first.start("And now?")
    async with agent(ScriptedModel(roles={}), storage) as later:
        assert (await later.get(run, output_type=Choice2)).output == Choice2.model_validate(GOOD)
        schema = Choice2.model_json_schema()
        assert (await later.get(run, output_type=schema)).output == GOOD
        with pytest.raises(ConfigError, match=r"does not fit it: output: 'vendor' is a required property.* as JSON"):
            await later.get(run, output_type=Offer)
        assert (await later.get(run)).output == GOOD
        assert (await later.get(plain, output_type=Offer)).output is None
        with pytest.raises(ConfigError, match="another one"):
            await later.resume(run, output_type=Choice2)


@dataclass
class Count:
    number: int


async def test_any_type_with_a_schema_will_do() -> None:
    """A1: JSON Schemas, also recursive, dataclasses, lists, plain numbers; a call's type goes before the agent's."""
    tree = {"$defs": {"n": {"type": "object", "properties": {"k": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}}}
    for wanted, data, output in (
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": 3}, {"n": 3}),
        ({**tree, "$ref": "#/$defs/n"}, {"k": [{"k": []}]}, {"k": [{"k": []}]}),
        (Count, {"number": 3}, Count(3)),
        (list[Offer], [BOLT], [Offer.model_validate(BOLT)]),
        (int, 42, 42),
    ):
        model = ScriptedModel(roles={"triage": [call("answer", text="So.", output=data)]})
        async with agent(model, output_type=Choice) as ours:
            assert (await ours.start("Tell me", output_type=wanted)).output == output


async def test_what_is_no_schema_is_said_at_once() -> None:
    """A1, S5: ConfigError when the agent is made or the run is started, before anything is called."""
    for wrong in (
        {"type": "objekt"},
        {"$ref": "https://elsewhere.example/x.json"},
        {"$ref": "#/$defs/no"},
        {},
        Any,
        object(),
    ):
        with pytest.raises(ConfigError, match="output_type"):
            agent(ScriptedModel([]), output_type=wrong)
    async with agent(ScriptedModel([])) as ours:
        with pytest.raises(ConfigError, match="output_type"):
            await ours.start("x", output_type={"type": 5})
    with pytest.raises(ConfigError, match="characters"):
        agent(ScriptedModel([]), output_type={"type": "string", "description": "x" * 60_000})


async def test_the_compiled_graph_takes_the_schema_as_a_setting() -> None:
    """A1: without Agent, `Settings.output_schema`; a schema that cannot be used ends the run in words."""
    model = ScriptedModel(roles={"triage": [call("answer", text="So.", output={"n": 3})]})
    graph = build_graph(model, [look], effects={"look": "read"}).compile(InMemorySaver(), store=InMemoryStore())
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    for wanted, status in ((schema, "answered"), ({"type": "objekt"}, "failed")):
        config: Any = {"configurable": {"thread_id": status}}
        settings = Settings(confirm="never", output_schema=wanted)
        values = await graph.ainvoke({"messages": ["How many?"]}, config, context=settings)  # type: ignore[arg-type]
        assert values["outcome"]["status"] == status
        assert values["outcome"].get("output") == ({"n": 3} if status == "answered" else None)
    assert "objekt" in values["outcome"]["text"]


async def test_a_worker_delivers_the_data_too() -> None:
    """A1: what is submitted for a worker keeps its schema and its images; `get` with the type gives an instance."""
    model = ScriptedModel(roles={"triage": [call("answer", text="Acme.", output=GOOD)]})
    picture = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
    async with agent(model) as ours:
        thread = await ours.submit([{"type": "text", "text": "Which is the best?"}, picture], output_type=Choice)
        assert (await ours.run_submitted(thread)).output == GOOD
        assert (await ours.get(thread, output_type=Choice)).output == Choice.model_validate(GOOD)
    assert picture in model.requests[0].messages[1].content


async def offered(model: ScriptedModel, **more: Any) -> Run:
    """The run of an agent that is asked for the best offer, and for a choice as data."""
    async with agent(model, output_type=Choice) as ours:
        return await ours.start("Which offer is the best?", **more)
