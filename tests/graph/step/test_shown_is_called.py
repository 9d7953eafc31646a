"""What is shown at a question is what is called: validated before, frozen, and compared when the call is made."""

import datetime
import itertools
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain_core.tools import InjectedToolCallId, StructuredTool
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    HttpUrl,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from donewhen import Agent, StorageError
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.hooks import Hooks, Refuse
from donewhen.testing import call, finish_step, give_up
from donewhen.workspace import workspace_tools
from tests.kit.flows import Flow, one_step, play, steps
from tests.kit.runs import last_seen, values

EACH = {"confirm": "never", "approvals": "each", "on_failure": "deliver"}
NUMBERS = itertools.count(1)


class Colour(Enum):
    """A choice."""

    RED = "red"


class Inner(BaseModel):
    """A part of an argument."""

    amount: Annotated[float, AfterValidator(lambda value: min(value, 50))]


class Capped(BaseModel):
    """Changes a value, and another one's spelling."""

    to: str
    amount: Annotated[float, AfterValidator(lambda value: min(value, 50))]

    @field_validator("to", mode="before")
    @classmethod
    def spell(cls, value: Any) -> str:
        return str(value).replace("ann@", "anna@")


class Whole(BaseModel):
    """Changes one argument because of another."""

    to: str
    cc: str = ""

    @model_validator(mode="after")
    def copy_to(self) -> "Whole":
        self.cc = self.cc or f"archive of {self.to}"
        return self


class Aliased(BaseModel):
    """Reads an argument by another name."""

    model_config = ConfigDict(validate_by_name=True)
    sender: Annotated[str, StringConstraints(to_lower=True)] = Field(alias="from_whom")


def args(**fields: Any) -> type[BaseModel]:
    """A model with these fields: a type, or a type and a default."""
    annotations = {name: each[0] if isinstance(each, tuple) else each for name, each in fields.items()}
    values = {name: each[1] for name, each in fields.items() if isinstance(each, tuple)}
    return type("Args", (BaseModel,), {"__annotations__": annotations, "__doc__": "Arguments.", **values})


KINDS: dict[str, tuple[type[BaseModel], dict[str, Any], dict[str, Any]]] = {
    "cap and spelling": (Capped, {"to": "ann@x.org", "amount": 100}, {"to": "anna@x.org", "amount": 50}),
    "one by another": (Whole, {"to": "ann"}, {"to": "ann", "cc": "archive of ann"}),
    "alias": (Aliased, {"sender": "ANN"}, {"sender": "ann"}),
    "nested": (args(parts=list[Inner]), {"parts": [{"amount": 70}]}, {"parts": [{"amount": 50}]}),
    "trimmed": (args(x=Annotated[str, StringConstraints(strip_whitespace=True)]), {"x": " a "}, {"x": "a"}),
    "normal form": (args(x=HttpUrl), {"x": "HTTP://Example.com"}, {"x": "http://example.com/"}),
    "date": (args(x=datetime.date), {"x": "2026-11-08T00:00:00"}, {"x": "2026-11-08"}),
    "decimal": (args(x=Decimal), {"x": "1.50"}, {"x": "1.50"}),
    "path": (args(x=Path), {"x": "a//b"}, {"x": "a/b"}),
    "choice": (args(x=Colour, y=(Colour, Colour.RED)), {"x": "red"}, {"x": "red", "y": "red"}),
    "defaults": (args(x=str, n=(int, 3), m=(str | None, None)), {"x": "a"}, {"x": "a", "n": 3}),
    "a new default each time": (args(x=str, id=(int, Field(default_factory=lambda: next(NUMBERS)))), {"x": "a"}, {}),
    "a secret": (args(x=SecretStr), {"x": "1234"}, {"x": "1234"}),
    "doubled each time": (args(x=Annotated[int, AfterValidator(lambda value: value * 2)]), {"x": 10}, {"x": 20}),
    "a whole number": (args(x=float), {"x": 7}, {"x": 7}),
}


def recording(schema: type[BaseModel], got: list[dict[str, Any]]) -> StructuredTool:
    """A tool that keeps what it is called with."""

    def pay(**given: Any) -> str:
        got.append(given)
        return "paid"

    return StructuredTool(name="pay", description="Pay.", args_schema=schema, func=pay, metadata={"effect": "write"})


def plain(schema: type[BaseModel], given: dict[str, Any]) -> dict[str, Any]:
    """What a tool got, in JSON."""
    secret = {name: each.get_secret_value() for name, each in given.items() if isinstance(each, SecretStr)}
    dumped = {**schema.model_construct(**given).model_dump(mode="json", warnings=False), **secret}
    return {name: value for name, value in dumped.items() if name in given and value is not None}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_arguments_that_are_shown_are_those_that_the_tool_gets(kind: str) -> None:
    """Q07, X29: validators, normal forms and defaults come before the question; the answer changes nothing more."""
    schema, given, expected = KINDS[kind]
    got: list[dict[str, Any]] = []
    model = one_step([call("pay", **given), finish_step("paid", "s1.1")], tools=["pay"])
    flow = await play(model, [recording(schema, got)], answers=["approve"], settings=EACH)
    shown = flow.pauses[0]["arguments"]
    assert [plain(schema, each) for each in got] == [shown]
    assert shown == expected or not expected
    assert flow.status == "completed"
    assert flow.journal[0]["arguments"] == shown


async def test_what_validation_changes_anew_is_not_called() -> None:
    """Q07, X29: a value that is another one each time was never shown, so it is refused, for certain."""
    got: list[dict[str, Any]] = []
    schema = args(x=Annotated[int, AfterValidator(lambda value: value + next(NUMBERS))])
    model = one_step([call("pay", x=1), give_up("refused")], tools=["pay"])
    flow = await play(model, [recording(schema, got)], answers=["approve"], settings=EACH)
    assert (got, len(flow.pauses)) == ([], 1)
    assert "changes x" in flow.journal[0]["text"]
    assert "unknown" not in flow.journal[0]


@pytest.mark.parametrize("bad", [{"to": "ann", "amount": "much"}, {"to": "nobody", "amount": 1}])
async def test_what_a_validator_refuses_is_corrected_and_asks_nobody(bad: dict[str, Any]) -> None:
    """Q07, X24: arguments that fail before the tool's body began are a correction; nothing happened, for certain."""
    got: list[dict[str, Any]] = []

    class Known(Capped):
        @field_validator("to")
        @classmethod
        def check(cls, value: str) -> str:
            if value == "nobody":
                raise ValueError("no such customer")
            return value

    model = one_step(
        [call("pay", **bad), call("pay", **bad), call("pay", to="ann", amount=1), finish_step("ok", "s1.1")]
    )
    flow = await play(model, [recording(Known, got)], settings={**EACH, "approvals": "never"})
    assert (flow.status, flow.pauses, got) == ("completed", [], [{"to": "ann", "amount": 1.0}])
    assert len(flow.told("correction")) == 2


async def test_what_the_runtime_fills_in_is_not_in_the_way() -> None:
    """Q07: a schema with a key and with the call's id validates without them, and the tool gets them."""
    got: list[Any] = []

    class Keyed(Capped):
        idempotency_key: str
        tool_call_id: Annotated[str, InjectedToolCallId]

    def pay(to: str, amount: float, idempotency_key: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Pay."""
        got.append((to, amount, bool(idempotency_key), bool(tool_call_id)))
        return "paid"

    tool = StructuredTool.from_function(pay, args_schema=Keyed, metadata={"effect": "write"})
    model = one_step([call("pay", to="ann@x.org", amount=100), finish_step("ok", "s1.1")], tools=["pay"])
    flow = await play(model, [tool], answers=["approve"], settings=EACH)
    assert flow.pauses[0]["arguments"] == {"to": "anna@x.org", "amount": 50}
    assert got == [("anna@x.org", 50.0, True, True)]


async def test_calls_of_a_plan_are_shown_as_they_are_made() -> None:
    """Q07, X29: the calls that a plan freezes are validated before it is shown."""
    got: list[dict[str, Any]] = []
    planned = {"content": "Pay", "calls": [{"tool": "pay", "arguments": {"to": "ann@x.org", "amount": 100}}]}
    model = steps([planned], {"s1": [finish_step("paid", "s1.1")]})
    flow = await play(model, [recording(Capped, got)], answers=["approve"], settings={"on_failure": "deliver"})
    assert flow.pauses[0]["plan"]["steps"][0]["calls"] == [
        {"tool": "pay", "arguments": {"to": "anna@x.org", "amount": 50}}
    ]
    assert flow.pauses[0]["plan"]["steps"][0]["content"] == 'Pay (pay with {"to": "anna@x.org", "amount": 50.0})'
    assert (flow.status, got) == ("completed", [{"to": "anna@x.org", "amount": 50.0}])


async def test_a_person_who_edits_is_told_what_would_be_called_instead() -> None:
    """Q07, X29: an edit that the schema changes is shown once more, in the form that is called."""
    got: list[dict[str, Any]] = []
    model = one_step([call("pay", to="ann", amount=1), finish_step("paid", "s1.1")], tools=["pay"])
    edits = [{"type": "edit", "arguments": {"amount": amount}} for amount in (80, 50)]
    flow = await play(model, [recording(Capped, got)], answers=edits, settings=EACH)
    assert '{"amount":50' in flow.pauses[1]["problem"]
    assert (flow.status, got) == ("completed", [{"to": "ann", "amount": 50.0}])


async def test_a_default_is_no_target_that_anybody_has_to_know() -> None:
    """X25, honest: what the tool's author chose asks nobody, although it is shown and stored with the call."""
    got: list[dict[str, Any]] = []
    schema = args(to=str, account=(str, "DE-77-4711"), copies=(int, 4000))
    model = one_step([call("pay", to="ann"), finish_step("paid", "s1.1")], tools=["pay"], content="Pay ann")
    flow = await play(model, [recording(schema, got)], answers=["approve"], settings={})
    assert [pause["kind"] for pause in flow.pauses] == ["plan"]
    assert got == [{"to": "ann", "account": "DE-77-4711", "copies": 4000}]


# The base of a difference ---------------------------------------------------------------------------------------------


def writing(*contents: str, path: str = "notes.md") -> list[Any]:
    return [*(call("write_file", path=path, content=content) for content in contents)]


async def changed_before(
    folder: Path, before: str | None, after: str | None, answer: Any = "approve"
) -> tuple[Flow, str]:
    """A write whose difference was shown; then the file changes, and somebody answers."""
    file = folder / "notes.md"
    if before is not None:
        file.write_text(before)

    def answered(pause: Any) -> Any:
        if after is not None:
            file.write_text(after)
        return answer

    rounds = [*writing("new\n"), lambda messages, _: finish_step("written", last_seen(messages))]
    flow = await play(
        one_step(rounds, tools=["write_file"]), workspace_tools(folder), answers=[answered], settings=EACH
    )
    return flow, file.read_text()


@pytest.mark.parametrize(
    ("before", "after"), [("old\n", "hours of work\n"), (None, "hours of work\n")], ids=["changed", "appeared"]
)
async def test_a_file_that_changed_since_its_difference_was_shown_is_not_overwritten(
    before: str | None, after: str, tmp_path: Path
) -> None:
    """Q07, X29: the difference's base is part of what was approved; the model is told to look again."""
    flow, held = await changed_before(tmp_path, before, after)
    assert held == after
    assert "changed since people saw the difference" in flow.journal[0]["text"]
    assert "unknown" not in flow.journal[0]


@pytest.mark.parametrize("before", ["old\n", None])
async def test_a_file_that_stayed_is_written(before: str | None, tmp_path: Path) -> None:
    """Q07, honest: nobody is asked twice where nothing changed."""
    flow, held = await changed_before(tmp_path, before, None)
    assert (flow.status, len(flow.pauses), held) == ("completed", 1, "new\n")


async def written_and_died(folder: Path, hooks: Hooks | None = None) -> Agent:
    """An agent whose process died after an approved write, before anybody wrote down that it happened."""
    crash = Crash(None, only=["store"])

    def dying(tool: Any) -> Any:
        def write(**arguments: Any) -> Any:
            written = tool.func(**arguments)
            crash.at = crash.at or len(crash.trace) + 1
            return written

        return tool.model_copy(update={"func": write}) if tool.name == "write_file" else tool

    (folder / "notes.md").write_text("old\n")
    end = lambda messages, _: finish_step("written", last_seen(messages))  # noqa: E731
    model = one_step([*writing("new\n"), end, give_up("not written")], tools=["write_file"])
    tools = [dying(tool) for tool in workspace_tools(folder)]
    agent = Agent(model, tools, storage=crashing("memory:", crash), settings=EACH, hooks=hooks)
    run = await agent.start("write it", thread_id="t")
    with pytest.raises(StorageError):
        await agent.resume(run, "approve")
    assert (folder / "notes.md").read_text() == "new\n"
    return agent


async def test_a_write_that_was_cut_off_is_not_outdated_by_itself(tmp_path: Path) -> None:
    """R03, X29: the file holds what was approved already, so the call is made again, unasked, and is done."""
    agent = await written_and_died(tmp_path)
    run = await agent.resume("t")
    assert (run.status, (tmp_path / "notes.md").read_text()) == ("completed", "new\n")
    assert [row["result"] for row in (run.receipt or {})["effects"]] == ["done"]


@pytest.mark.parametrize("refuses", ["a person changed it", "a hook"])
async def test_a_write_that_was_cut_off_and_is_refused_now_may_have_happened(refuses: str, tmp_path: Path) -> None:
    """R03, X24: also one that could be made twice without harm: its outcome is unknown, and nobody says otherwise."""
    closed = list[str]()
    agent = await written_and_died(tmp_path, Hooks(before_call=[lambda made: Refuse("closed") if closed else None]))
    if refuses == "a hook":
        closed.append("yes")
    else:
        (tmp_path / "notes.md").write_text("hours of work\n")
    run = await agent.resume("t")
    assert (tmp_path / "notes.md").read_text() == ("new\n" if closed else "hours of work\n")
    assert [row["result"] for row in (run.receipt or {})["effects"]] == ["unknown"]
    assert (run.outcome or {})["changed"] is True
    assert "It is unknown whether this took effect" in (await values(agent, "t"))["journal"][0]["text"]


async def test_an_edit_of_the_path_has_another_base(tmp_path: Path) -> None:
    """Q07, X29: the person wrote another path, whose difference nobody saw."""
    (tmp_path / "other.md").write_text("hours of work\n")
    await changed_before(tmp_path, "old\n", None, {"type": "edit", "arguments": {"path": "other.md"}})
    assert (tmp_path / "other.md").read_text() == "hours of work\n"


async def test_two_steps_that_write_one_file_do_not_overwrite_each_other(tmp_path: Path) -> None:
    """Q07, X29: both differences were shown before either was approved; the second is asked about as it is then."""
    file = tmp_path / "notes.md"
    file.write_text("old\n")
    both = [{"id": id, "content": id, "tools": ["write_file"], "depends_on": []} for id in ("s1", "s2")]
    said = lambda messages, _: finish_step("written", last_seen(messages))  # noqa: E731
    script = {"s1": [*writing("old\none\n"), said], "s2": [*writing("old\ntwo\n", "old\none\ntwo\n"), said]}
    flow = await play(
        steps(both, script), workspace_tools(tmp_path), answers=["approve"] * 3, settings={**EACH, "on_failure": "ask"}
    )
    assert (flow.status, file.read_text()) == ("completed", "old\none\ntwo\n")
    assert [pause["diffs"]["content"].splitlines()[-1] for pause in flow.pauses] == ["+one", "+two", "+two"]
