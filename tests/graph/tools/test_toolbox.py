"""The toolbox: schemas, effects, targets, and the full check of a call's arguments (X06, X07)."""

import functools
import json
import math
import time
from typing import Annotated, Any, Literal

import pytest
from langchain_core.tools import BaseTool, InjectedToolArg, InjectedToolCallId, StructuredTool, tool
from langgraph.prebuilt import InjectedState, InjectedStore
from pydantic import BaseModel, Field

from donewhen.graph.tools.call import ToolCall, call_tool
from donewhen.graph.tools.toolbox import KnownTool, Toolbox, from_function
from donewhen.state.errors import ToolError
from donewhen.state.values import similar


def described(name: str, schema: Any, description: str = "", **metadata: Any) -> BaseTool:
    return StructuredTool(
        name=name, description=description, args_schema=schema, func=lambda **_: "", metadata=metadata or None
    )


def problems(schema: dict[str, Any], arguments: Any) -> list[str]:
    return Toolbox([described("t", schema)])["t"].arguments.problems(arguments)


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


class Item(BaseModel):
    sku: str
    amount: int = Field(gt=0)


class Node(BaseModel):
    name: str
    children: list["Node"] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    breed: str


@tool
def order(
    items: list[Item],
    unit: Literal["C", "F"] = "C",
    note: str | None = None,
    tree: Node | None = None,
    pet: Cat | Dog | None = None,
    extra: dict[str, Any] | None = None,
) -> str:
    """Order things. They come by post."""
    return "ordered"


ORDER = Toolbox([order])
GOOD = {"items": [{"sku": "a", "amount": 1}]}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, ["'items' is a required property"]),
        ({"items": [], "item": 1}, ["unknown argument 'item'; allowed: items, unit, note, tree, pet, extra"]),
        ({"items": [], "nots": ""}, ["unknown argument 'nots'; did you mean 'note'?"]),
        ({"items": "a"}, ["items: 'a' is not of type 'array'"]),
        ({"items": [{"sku": "a", "amount": "x"}]}, ["items[0].amount: 'x' is not of type 'integer'"]),
        ({"items": [{"sku": "a", "amount": 0}]}, ["items[0].amount: 0 is less than or equal to the minimum of 0"]),
        ({"items": [{"amount": 1, "skew": 2}]}, ["items[0]: 'sku' is a required property",
                                                 "items[0]: unknown argument 'skew'; allowed: sku, amount"]),
        ({"items": [], "unit": "K"}, ["unit: 'K' is not one of ['C', 'F']"]),
        ({"items": [], "note": 3}, ["note: 3 is not of type 'string'; or 3 is not of type 'null'"]),
        ({"items": [], "tree": {"name": "a", "children": [{"name": "b", "childs": []}]}},
         ["tree.children[0]: unknown argument 'childs'; did you mean 'children'?"]),
        ({"items": [], "pet": {"kind": "dog", "lives": 3}},
         ["pet: 'breed' is a required property"]),
        ({"items": True}, ["items: True is not of type 'array'"]),
        ([1], ["the arguments must be a JSON object, not a list"]),
        ("{}", ["the arguments must be a JSON object, not a str"]),
    ],
)  # fmt: skip
def test_problems_say_where_what_was_given_and_what_is_expected(arguments: Any, said: list[str]) -> None:
    """X06: required, types, unknown keys, enums, also nested, in words a model can act on."""
    assert ORDER["order"].arguments.problems(arguments) == said


def test_arguments_that_fit_have_no_problems() -> None:
    """X06: what the schema allows passes: free objects, recursion, unions, null."""
    tree = {"name": "a", "children": [{"name": "b"}]}
    whole = {"unit": "F", "note": None, "tree": tree, "pet": {"kind": "cat", "lives": 9}, "extra": {"any": ["thing"]}}
    assert ORDER["order"].arguments.problems(GOOD) == []
    assert ORDER["order"].arguments.problems({**GOOD, **whole}) == []


DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}


@pytest.mark.parametrize(
    ("schema", "unknown"),
    [
        ({**an_object(a={}), "additionalProperties": True}, False),
        ({**an_object(a={}), "additionalProperties": {"type": "integer"}}, False),
        ({**an_object(a={}), "patternProperties": {"^x": {}}}, False),
        ({**an_object(a={}), "unevaluatedProperties": {}}, False),
        ({"allOf": [an_object(a={}), an_object(xtra={})]}, False),
        ({**an_object(a={}), "anyOf": [{"required": ["a"]}, {"properties": {"xtra": {}}}]}, False),
        ({"$ref": "#/$defs/P", "$defs": {"P": an_object(a={}, xtra={})}}, False),
        ({**DRAFT_7, "allOf": [{"$ref": "#/definitions/P"}], "definitions": {"P": an_object(a={}, xtra={})}}, False),
        ({}, True),
        (an_object(a={}), True),
        ({"allOf": [an_object(a={}), an_object(b={})]}, True),
        ({"$ref": "#/$defs/P", "$defs": {"P": an_object(a={})}}, True),
        ({**DRAFT_7, "$ref": "#/definitions/P", "definitions": {"P": an_object(a={})}}, True),
    ],
)
def test_a_key_is_unknown_where_no_part_of_the_schema_allows_it(schema: dict[str, Any], unknown: bool) -> None:
    """X06: however the schema is composed, also where it says nothing about additional keys."""
    lines = problems({"type": "object", **schema}, {"a": 1, "xtra": 1})
    assert any("unknown argument 'xtra'" in line for line in lines) == unknown
    assert unknown or lines == []


def test_many_problems_are_counted_not_listed() -> None:
    """X06: a correction stays short."""
    lines = problems(an_object(a={"type": "array", "items": {"type": "integer"}}), {"a": ["x"] * 50})
    assert len(lines) == 11
    assert lines[-1] == "and 40 more problems"


def test_numbers_must_be_finite_and_booleans_are_no_integers() -> None:
    """X06: what JSON cannot say is refused where a number is wanted."""
    schema = an_object(n={"type": "number"}, i={"type": "integer"})
    assert problems(schema, {"n": math.nan})
    assert problems(schema, {"n": math.inf})
    assert problems(schema, {"i": True})
    assert problems(schema, {"n": 1.5, "i": 3}) == []


DEEP: list[Any] = []
for _ in range(20_000):
    DEEP = [DEEP]
DOUBLING = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "arguments", "fine"),
    [
        (an_object(a={"type": "string", "pattern": "^(a+)+$"}), {"a": "a" * 40 + "!"}, False),
        ({**an_object(), "patternProperties": {"^(a|aa)+$": {}}}, {"a" * 60 + "!": 1}, False),
        (an_object(a={"uniqueItems": True}), {"a": [{"n": n} for n in range(20_000)]}, True),
        (an_object(a={"type": "string"}), {"a": "x" * 3_000_000}, True),
        (an_object(a={"type": "integer"}), {"a": "x" * 3_000_000}, False),
        (an_object(a={"type": "array", "items": {"type": "integer"}}), {"a": list(range(20_000))}, True),
        (an_object(a={"$ref": "#/$defs/L"}) | {"$defs": {"L": {"items": {"$ref": "#/$defs/L"}}}}, {"a": DEEP}, False),
        (an_object(a={"$ref": "#/$defs/d0"}) | {"$defs": DOUBLING}, {"a": 1}, False),
        (an_object(a={"multipleOf": 0.1}), {"a": 1e308}, None),
        (an_object(a={"type": "string", "pattern": "[^]"}), {"a": "x"}, True),
    ],
)  # fmt: skip
def test_hostile_schemas_and_arguments_are_decided_quickly(schema: Any, arguments: Any, fine: bool | None) -> None:
    """X06, F8: slow patterns, huge and deep values, schemas that double: an answer in seconds, never an exception."""
    box = Toolbox([described("t", schema)])
    started = time.thread_time()
    lines = box["t"].arguments.problems(arguments)
    assert time.thread_time() - started < 5
    assert fine is None or (lines == []) == fine
    assert all(len(line) < 1_000 for line in lines)


def test_unknown_names_have_near_matches() -> None:
    """X07: a misspelt or prefixed name leads to those that may have been meant."""
    names = ["read_file", "write_file", "list_files", "calculate"]
    assert similar("readfile", names)[0] == "read_file"
    assert similar("functions.read_file", names)[0] == "read_file"
    assert similar("Calculate", names)[0] == "calculate"
    assert similar("file", names)[:1] != []
    assert similar("zzzzzz", names) == []
    assert similar("x" * 1_000_000, names) == []


def test_what_a_tool_does_comes_from_the_mapping_its_metadata_or_its_annotations() -> None:
    """Effects: the caller's word first, then the tool's own, then MCP's hints; unknown means write."""
    box = Toolbox(
        [
            described("mapped", {}, effect="write", readOnlyHint=True),
            described("own", {}, effect="idempotent", readOnlyHint=True),
            described("reads", {}, readOnlyHint=True),
            described("repeats", {}, readOnlyHint=False, idempotentHint=True),
            described("silent", {}, readOnlyHint=None),
        ],
        {"mapped": "read"},
    )
    assert [box.effect(name) for name in box] == ["read", "idempotent", "read", "idempotent", "write"]
    assert box.effect("unknown") == "write"


def test_targets_are_the_things_a_call_is_about() -> None:
    """H4: paths, normalised, or what the tool declares; never ids, for two mails to one customer are two things."""
    declared = described("send", an_object(), targets=["recipient", "folder", "order_id"])
    box = Toolbox([described("t", an_object()), declared])
    assert box["t"].targets({"path": "./a/../b//c.txt", "content": "x", "order_id": "#W1", "id": 7}) == {"b/c.txt"}
    assert box["t"].targets({"file": ["a", "./a"], "path": None}) == {"a"}
    given = {"recipient": "kim", "folder": "./in", "path": "x", "order_id": 7}
    assert box["send"].targets(given) == {"kim", "in", "7"}


@pytest.mark.parametrize(
    ("declared", "kept"),
    [(None, {}), ([], {"identity": []}), ("iban", {"identity": ["iban"]}), (["a", "b"], {"identity": ["a", "b"]})],
)
def test_a_function_says_which_fields_name_something_as_a_value_does(declared: Any, kept: Any) -> None:
    """X25: None stands for all that their names say, an empty list for none."""
    values = [declared, lambda _: declared]
    found = [Toolbox([described("pay", an_object(), identity=each)])["pay"].origin({}) for each in values]
    assert found == [kept, kept]


def test_a_function_of_a_tool_that_raises_says_nothing() -> None:
    """X06: what is known of its result, and what people should know about its calls; a run does not end by it."""

    def wrong(_: Any) -> Any:
        raise KeyError("to_account")

    known = Toolbox([described("pay", an_object(), identity=wrong, conditions=wrong)])["pay"]
    assert (known.origin({}), known.conditions("en", {})) == ({"identity": []}, "")


def test_what_the_runtime_fills_is_hidden_from_the_model() -> None:
    """Injected arguments and the idempotency key are neither shown nor asked for."""

    @tool
    def pay(amount: int, idempotency_key: str, store: Annotated[Any, InjectedStore()],
            call: Annotated[str, InjectedToolCallId]) -> str:  # fmt: skip
        """Pay."""
        return ""

    box = Toolbox([pay, described("raw", an_object(idempotency_key={}, x={}) | {"required": ["idempotency_key"]})])
    for name, shown in (("pay", ["amount"]), ("raw", ["x"])):
        assert list(box[name].schema["properties"]) == shown
        assert list(box.definitions([name])[0]["function"]["parameters"]["properties"]) == shown
    assert box["pay"].arguments.problems({"amount": 1}) == []
    assert box["raw"].arguments.problems({}) == []
    assert box["pay"].arguments.problems({"amount": 1, "idempotency_key": "mine"}) != []


@pytest.mark.parametrize("mark", [InjectedState, InjectedState("messages"), InjectedToolArg])
def test_a_tool_that_wants_what_no_run_has_is_refused_at_once(mark: Any) -> None:
    """X07: it failed at every call, in a loop that only the budget ended; with a default it is fine."""

    def pay(amount: int, inside: Annotated[Any, mark]) -> str:
        return ""

    def free(amount: int, inside: Annotated[Any, mark] = None) -> str:
        return ""

    assert list(Toolbox([StructuredTool.from_function(free, description="d")])["free"].schema["properties"]) == [
        "amount"
    ]
    with pytest.raises(ToolError, match=r"'pay' cannot be used: it wants .* in 'inside', which tools are not given"):
        Toolbox([StructuredTool.from_function(pay, description="d")])


def plain(q: str, n: int = 2) -> Any:
    """Take it."""
    return q, n


async def by_place(q: str, n: int = 2, /) -> Any:
    """Take it."""
    return q, n


def in_a_row(q: str, *rest: int, k: bool = True) -> Any:
    """Take it."""
    return q, rest, k


async def with_more(q: str, **more: Any) -> Any:
    """Take it."""
    return q, more


def traced(function: Any) -> Any:
    @functools.wraps(function)
    def around(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return around


@pytest.mark.parametrize(
    ("function", "arguments", "got"),
    [
        (plain, {"q": "x"}, ["x", 2]),
        (by_place, {"q": "x"}, ["x", 2]),
        (by_place, {"q": "x", "n": 3}, ["x", 3]),
        (in_a_row, {"q": "x"}, ["x", [], True]),
        (in_a_row, {"q": "x", "rest": [1, 2], "k": False}, ["x", [1, 2], False]),
        (with_more, {"q": "x"}, ["x", {}]),
        (traced(plain), {"q": "x"}, ["x", 2]),
        (traced(by_place), {"q": "x", "n": 3}, ["x", 3]),
        (traced(traced(with_more)), {"q": "x"}, ["x", {}]),
    ],
)
async def test_functions_are_called_as_python_calls_them(function: Any, arguments: Any, got: Any) -> None:
    """Q54, X07: however the parameters are written, and whether the function or one around it is asynchronous."""
    known = Toolbox([from_function(function)])[function.__name__]
    assert known.arguments.problems(arguments) == []
    result = await call_tool(ToolCall(known.tool, arguments, timeout=5))
    assert (result.ok, json.loads(result.text)) == (True, got)


@pytest.mark.parametrize("function", [by_place, in_a_row])
def test_a_described_tool_that_no_call_can_fill_is_refused(function: Any) -> None:
    """Q54, X07: LangChain describes such parameters and calls them by name: each call would fail."""
    with pytest.raises(ToolError, match=rf"{function.__name__}.* by place, and calls name their arguments"):
        Toolbox([tool(function)])
    assert Toolbox([from_function(function)])

    def hidden(_q: str) -> str:
        """Take it."""
        return _q

    with pytest.raises(ToolError, match="'_q' begins with an underscore"):
        from_function(hidden)


NULL, TEXT = {"type": "null"}, {"type": "string"}
TEXT_OR_NULL = {"anyOf": [TEXT, NULL]}


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ({**TEXT_OR_NULL, "default": None, "description": "a mark"}, {**TEXT, "description": "a mark"}),
        ({"type": ["string", "null"], "default": None}, TEXT),
        ({"anyOf": [{"type": "array", "items": TEXT}, NULL], "default": None}, {"type": "array", "items": TEXT}),
        ({"anyOf": [TEXT, {"type": "integer"}, NULL], "default": None}, {"anyOf": [TEXT, {"type": "integer"}, NULL]}),
        (TEXT_OR_NULL, TEXT_OR_NULL),  # left out may mean something else than null
        ({**TEXT_OR_NULL, "default": "x"}, {**TEXT_OR_NULL, "default": "x"}),
    ],
)
def test_an_optional_argument_is_shown_as_what_it_may_be(argument: Any, shown: Any) -> None:
    """39.3: models leave out what they do not need, so null as the default is not sent; calls with null are fine."""
    box = Toolbox([described("look", {"type": "object", "properties": {"mark": argument, "n": argument}})])
    assert box.definitions()[0]["function"]["parameters"]["properties"] == {"mark": shown, "n": shown}
    assert box["look"].read({"mark": None})[1] == box["look"].read({"n": "x"})[1] == []
    needed = {"type": "object", "properties": {"mark": argument}, "required": ["mark"]}
    assert Toolbox([described("look", needed)])["look"].parameters == needed


def test_definitions_are_self_contained_unless_they_recurse() -> None:
    """Models get schemas without references; a recursive one keeps them."""
    flat = Toolbox([StructuredTool.from_function(lambda items: "", name="f", description="d", args_schema=Basket)])
    parameters = flat.definitions()[0]["function"]["parameters"]
    assert "$ref" not in json.dumps(parameters)
    assert "title" not in parameters["properties"]["items"]
    assert parameters["properties"]["title"]["type"] == "string"
    assert "$defs" in ORDER.definitions()[0]["function"]["parameters"]
    assert ORDER.definitions() == ORDER.definitions(["order"])


class Basket(BaseModel):
    items: list[Item]
    title: str


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("Find a file. Then more.", "Find a file."),
        ("Find v1.2 of\n a file\n\nArgs: x", "Find v1.2 of a file"),
        ("查找文件。然后更多。", "查找文件。"),
        ("", ""),
        ("word " * 60, ("word " * 60)[:119].rstrip() + "…"),
    ],
)
def test_one_line_is_the_first_sentence(description: str, line: str) -> None:
    box = Toolbox([described("t", {}, description)])
    assert box["t"].one_line == line
    assert len(box["t"].one_line) <= 120


CYCLE: dict[str, Any] = an_object()
CYCLE["properties"]["self"] = CYCLE


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([described("a", {}), described("a", {})], "two tools are called 'a'"),
        ([described("finish_step", {})], "belongs to the runtime"),
        ([described("a b", {})], "is no name for a tool"),
        ([described("", {})], "is no name for a tool"),
        ([described("ä", {})], "is no name for a tool"),
        ([described("a", {"type": "string"})], "must describe an object"),
        ([described("a", an_object(x={"type": "text"}))], "no JSON Schema: at properties/x/type"),
        ([described("a", an_object(x={"$ref": "https://example.org/s.json"}))], "not inside it"),
        ([described("a", an_object(x={"$ref": "#/$defs/gone"}))], "not inside it"),
        ([described("a", an_object(x={"default": {1, 2}}))], "not plain JSON"),
        ([described("a", CYCLE)], "not plain JSON"),
        ([described("a", an_object(x={"description": "x" * 300_000}))], "characters"),
        ([described("a", {}, effect="sometimes")], "effect of 'a'"),
        ([described("a", {}, target=3)], "target of 'a'"),
        ([print], "pass a LangChain tool or a function"),
    ],
)  # fmt: skip
def test_a_tool_that_cannot_be_offered_is_a_clear_error(tools: Any, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        Toolbox(tools, reserved={"finish_step"})


SHAPE: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string", "description": "A title."}, "at": {"default": {"title": "a"}}},
}


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"properties": {**SHAPE["properties"], "title": {"type": "string", "description": "Other words."}}}, True),
        ({"description": "A tool."}, True),
        ({"properties": {**SHAPE["properties"], "title": {"type": "integer", "description": "A title."}}}, False),
        ({"properties": {"at": SHAPE["properties"]["at"]}}, False),
        ({"properties": {**SHAPE["properties"], "at": {"default": {"title": "b"}}}}, False),
        ({"required": ["title"]}, False),
    ],
    ids=["words of an argument", "words", "type", "an argument less", "default", "required"],
)
def test_who_provides_a_tool_is_its_server_and_what_it_takes(changed: dict[str, Any], same: bool) -> None:
    """X15: an approval is for the arguments, also for one that is called `title`, and for the values of defaults."""

    def provider(schema: dict[str, Any], server: str = "shop") -> str:
        made = StructuredTool(
            name="t", description="d", args_schema=schema, func=lambda: "", metadata={"server": server}
        )
        return KnownTool(made).provider

    assert (provider({**SHAPE, **changed}) == provider(SHAPE)) == same
    assert provider(SHAPE, "market") != provider(SHAPE)
    assert provider(SHAPE, "") == ""
