"""Odd schemas of tools, as MCP servers and OpenAPI give them, in requests as each provider gets and checks them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, AgentOptions
from donewhen.graph.llm.schemas import CLAUDE, GEMINI, OPENAI, dialect_of, fit_tools
from donewhen.graph.tools.toolbox import Toolbox
from donewhen.state.reading.decisions import NAMES, control_tools
from donewhen.testing import ScriptedModel, answer
from donewhen.workspace import workspace_tools
from tests.kit.providers.forms import FORMS, Form, RefusedRequest, Said, names_in, own_chat_model, told
from tests.kit.providers.server import Answer, ProviderServer

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
SETTINGS = {"verification": "grounded", "confirm": "never", "model_retries": 0}


def of(**properties: Any) -> Json:
    return {"type": "object", "properties": properties}


NODE = of(value=TEXT, below={"type": "array", "items": {"$ref": "#/$defs/Node"}})
TUPLE = [{"type": "number"}, {"type": "string"}]
ODD: dict[str, Json] = {
    "array_without_items": of(q={"type": "array"}, deep={"anyOf": [of(q={"type": "array"}), {"type": "null"}]}),
    "enum_of_numbers": of(q={"type": "integer", "enum": [1, 2]}, mixed={"enum": ["a", 1, None]}),
    "empty_word": of(q={"type": "string", "enum": ["", "a"]}, none={"type": "string", "const": ""}),
    "one_of_at_the_top": {"type": "object", "oneOf": [{**of(a=TEXT), "required": ["a"]}, of(b=TEXT)]},
    "all_of_at_the_top": {"type": "object", "allOf": [{**of(a=TEXT), "required": ["a"]}, of(a={"type": "number"})]},
    "reference_at_the_top": {"type": "object", "allOf": [{"$ref": "#/$defs/Node"}], "$defs": {"Node": NODE}},
    "odd_keys": of(**{"$filter": TEXT, "filter[name]": TEXT, "größe": TEXT, "k" * 80: TEXT, "in": of(**{"a b": TEXT})}),
    "equal_when_cleaned": of(**{"a b": TEXT, "a/b": TEXT, "a_b": TEXT}),
    "ghost": {**of(q=TEXT), "required": ["q", "ghost"]},
    "booleans": of(q=True, never=False, items={"type": "array", "items": True}),
    "lists_of_types": of(q={"type": ["string", "null"]}, many={"type": ["array", "string"], "items": TEXT}),
    "tuples": of(q={"type": "array", "prefixItems": TUPLE}, same={"type": "array", "prefixItems": [TEXT, TEXT]}),
    "old_tuple": {"$schema": "http://json-schema.org/draft-07/schema#", **of(q={"type": "array", "items": TUPLE})},
    "old_bound": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        **of(q={"type": "number", "minimum": 0, "exclusiveMinimum": True}),
    },
    "no_properties": {"type": "object"},
    "any_object": of(q={"type": "object"}, none={**of(), "additionalProperties": False}),
    "pattern_keys": of(q={"type": "object", "patternProperties": {"^x": {"type": "array"}}}),
    "conditions": {
        **of(a=TEXT, b=TEXT),
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "not": {"required": ["c"]},
    },
    "3d_search": of(q=TEXT),
}  # fmt: skip


def described(schemas: Mapping[str, Json]) -> Json:
    return {
        name: {"description": "Look.", "input_schema": schema, "effect": "read"} for name, schema in schemas.items()
    }


async def run(form: Form, server: ProviderServer, schemas: Mapping[str, Json], called: list[tuple[str, Json]]) -> Any:
    async def caller(name: str, arguments: Json) -> str:
        called.append((name, arguments))
        return "seen"

    model = form.model(server.url)
    async with Agent(
        model, described(schemas), options=AgentOptions(caller=caller), storage="memory:", settings=SETTINGS
    ) as agent:
        first = await agent.start("hi")
        return first, await agent.start("hi again")


@pytest.mark.parametrize("name", FORMS)
async def test_no_odd_schema_is_refused(name: str) -> None:
    """Q48: all at once, in the first request; calls get the tools' own names, and are checked by the own schemas."""
    form = FORMS[name]
    calls = [
        ("odd_keys", {"$filter": "a", "größe": "b", "k" * 80: "c", "in": {"a b": "d"}}),
        ("equal_when_cleaned", {"a b": "1", "a/b": "2", "a_b": "3"}),
        ("3d_search", {"q": "cube"}),
        ("enum_of_numbers", {"q": 3}),
    ]

    def think(body: Mapping[str, Any]) -> Said:
        if "seen" in told(body):
            return Said(calls=[("answer", {"text": "ok"})])
        shown = names_in(body)
        return Said(calls=[_as_shown(body, shown, tool, arguments) for tool, arguments in calls])

    called: list[tuple[str, Json]] = []
    with ProviderServer(form.serve(think)) as server:
        runs = await run(form, server, ODD, called)
    assert [(each.status, each.answer) for each in runs] == [("completed", "ok")] * 2
    assert sorted(called, key=str) == sorted(calls[:3] * 2, key=str)
    assert len(server.bodies) == 4, "nothing was refused"
    assert "must be" in told(server.bodies[1]) or "not one of" in told(server.bodies[1])


def _as_shown(body: Mapping[str, Any], shown: list[str], tool: str, arguments: Json) -> tuple[str, Json]:
    """The call as a model makes it that only knows the request."""
    name = tool if tool in shown else next(each for each in shown if tool in each)
    written = json.dumps(body)

    def key(own: str) -> str:
        said = f"(its name is {json.dumps(own, ensure_ascii=False)})"
        text = json.dumps(said)[1:-1]
        if text not in written:
            return own
        before = written[: written.index(text)]
        return str(before.rpartition('": {"')[0].rpartition('"')[2])

    def renamed(value: Any) -> Any:
        return {key(k): renamed(v) for k, v in value.items()} if isinstance(value, dict) else value

    return name, renamed(arguments)


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by place"])
@pytest.mark.parametrize("name", FORMS)
async def test_a_tool_that_is_refused_in_every_form_is_left_out_alone(
    name: str, named: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Q48: two of them, each named by the server; a line names them; the next run does not try them again."""
    form = FORMS[name]

    def serve(body: Mapping[str, Any]) -> Answer:
        for place, each in enumerate(names_in(body)):
            if each.startswith("bad"):
                said = (
                    f"Invalid schema for function '{each}'" if named else f"tools.{place}.input_schema: it is invalid"
                )
                return form.refuse(said)
        return form.write(Said(calls=[("answer", {"text": "ok"})]))

    with ProviderServer(serve) as server:
        runs = await run(form, server, {"bad_one": of(q=TEXT), "good": of(q=TEXT), "bad_two": of(q=TEXT)}, [])
    assert [each.status for each in runs] == ["answered"] * 2
    assert (
        len(server.bodies) == 1 + 1 + 2 + 1
    )  # as it is, in the simplest form, without one, without both; the next run
    assert {"good", "answer"} <= {*names_in(server.bodies[-1])}
    told_of = [record.getMessage() for record in caplog.records if "is not offered the tool" in record.getMessage()]
    assert {each for each in ("bad_one", "bad_two", "good") if any(f"'{each}'" in text for text in told_of)} == {
        "bad_one",
        "bad_two",
    }


class Picky(ScriptedModel):
    """A model whose package cannot write some tools."""

    def bind_tools(self, tools: Any, *, tool_choice: Any = None, **more: Any) -> Any:
        for tool in tools:
            if tool["function"]["name"].startswith("bad"):
                raise ValueError(f"no form for {tool['function']['parameters']['properties']}")
        return super().bind_tools(tools, tool_choice=tool_choice, **more)


async def test_a_tool_that_the_package_cannot_write_is_left_out_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Q48: two of them; `bind_tools` of LangChain raises for them before there is any request."""
    model = Picky([answer("ok")])
    tools = described({"bad_one": of(q=TEXT), "good": of(q=TEXT), "bad_two": of(q=TEXT)})
    async with Agent(
        model, tools, options=AgentOptions(caller=lambda *_: "seen"), storage="memory:", settings=SETTINGS
    ) as agent:
        first = await agent.start("hi")
    assert first.status == "answered"
    assert {"good"} == {name for name in model.requests[0].tool_names if name in tools}
    assert model.requests[0].kwargs.get("tool_choice") == "any", "that was not at fault"
    told_of = [record.getMessage() for record in caplog.records if "is not offered the tool" in record.getMessage()]
    assert ["bad_one" in "".join(told_of), "bad_two" in "".join(told_of)] == [True, True]


@pytest.mark.parametrize(
    ("name", "dialect"), [("anthropic/claude-opus-4-6", CLAUDE), ("google/gemini-3-pro", GEMINI), ("gpt-5", OPENAI)]
)
def test_a_gateway_hands_schemas_on(name: str, dialect: Any) -> None:
    """Q48: what counts is the provider behind it."""
    assert dialect_of(own_chat_model("http://127.0.0.1:9"), name) is dialect


def test_what_providers_take_is_sent_as_it_is(tmp_path: Path) -> None:
    """Q48: neither the workspace's tools nor the control tools change for OpenAI and Anthropic."""
    tools = [*Toolbox(workspace_tools(tmp_path)).definitions(), *control_tools(NAMES)]
    for dialect in (OPENAI, CLAUDE):
        fitted, renamed = fit_tools(tools, dialect)
        assert (fitted, renamed.tools, renamed.keys) == (tools, {}, {})


def test_the_checks_of_the_wires_refuse_the_odd_schemas_as_they_are() -> None:
    """The fake servers above do refuse: most of these schemas, sent unchanged."""
    refused = set()
    for name, form in FORMS.items():
        for tool, schema in ODD.items():
            function = {"name": tool, "description": "Look.", "parameters": schema}
            tools: list[Json] = [{"type": "function", "function": function}]
            tools = [{**function, "input_schema": schema}] if name == "Anthropic" else tools
            tools = [{"functionDeclarations": [function]}] if name == "Google" else tools
            try:
                form.check({"tools": tools, "messages": [], "contents": [], "input": []})
            except (RefusedRequest, KeyError, IndexError) as error:
                refused |= {(name, tool)} if isinstance(error, RefusedRequest) else set()
    assert len({tool for _, tool in refused}) > 12
