"""The fields of a form, as the page and the command draw them."""

from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel, Field

from donewhen.graph.executors.relay import field_problem, form_fields
from tests.kit.pauses import read_answer


class Colour(Enum):
    """A class of its own, which a schema refers to."""

    RED = "red"
    BLUE = "blue"


class Choice(BaseModel):
    """References, alternatives and nothing that a field can be drawn of."""

    colour: Colour
    colours: list[Colour] = []
    size: int | None = Field(None, ge=1)
    place: dict[str, int] = {}
    mixed: int | str = 1


def test_fields_are_read_from_references_and_alternatives() -> None:
    """N42: what Pydantic writes for an enum, an optional number and a list of choices is drawn as what it is."""
    fields = {field["name"]: field for field in form_fields(Choice.model_json_schema())}
    kinds = {name: field["kind"] for name, field in fields.items()}
    assert kinds == {"colour": "choice", "colours": "choices", "size": "integer", "place": "json", "mixed": "json"}
    assert [option["value"] for option in fields["colours"]["options"]] == ["red", "blue"]
    assert fields["size"]["limits"] == {"minimum": 1}
    assert (fields["colour"]["required"], fields["size"]["required"]) == (True, False)


def test_names_of_choices_and_references_to_nowhere() -> None:
    """N42: titles in both forms of the protocol; a schema that refers to itself, or to nothing, is no endless loop."""
    schema: dict[str, Any] = {
        "properties": {
            "old": {"enum": [1, 2], "enumNames": ["one", "two"]},
            "new": {"oneOf": [{"const": 1, "title": "one"}, {"const": 2}]},
            "loop": {"$ref": "#/properties/loop"},
            "lost": {"$ref": "#/nowhere"},
        }
    }
    fields = form_fields(schema)
    labels = [[option["label"] for option in field["options"]] for field in fields[:2]]
    assert labels == [["one", "two"], ["one", "2"]]
    assert [field["kind"] for field in fields[2:]] == ["json", "json"]


def test_a_field_is_checked_alone() -> None:
    """N42: one field is right or wrong whatever the others hold."""
    schema = Choice.model_json_schema()
    assert field_problem(schema, "size", 7) == ""
    assert "less than the minimum" in field_problem(schema, "size", 0)
    assert "required" in field_problem(schema, "colour", None)
    assert field_problem(schema, "size", None) == ""


SHIRT: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "string", "enum": ["S", "M", "L", "5"]},
        "count": {"type": "integer", "default": 1},
        "gift": {"type": "boolean", "default": False},
    },
}
L = {"size": "L", "count": 1, "gift": False}


@pytest.mark.parametrize(
    ("value", "filled"),
    [
        ({"size": "L"}, L),
        ({"resume": {"size": "L"}}, L),
        ({"size": "L", "count": 2.0, "gift": True}, {"size": "L", "count": 2, "gift": True}),
        ('{"size": "L"}', L),
        ("size: L\ngift: yes", {**L, "gift": True}),
        ("size: 5\ncount: 2\ngift: N", {"size": "5", "count": 2, "gift": False}),
        ({"size": 5}, "size: 5 is not of type 'string'"),
        ({"size": "L", "count": "2"}, "count: '2' is not of type 'integer'"),
        ({"size": "L", "gift": "yes"}, "gift: 'yes' is not of type 'boolean'"),
        ("size: L\ngift: perhaps", "gift: 'perhaps' is not of type 'boolean'"),
        ({"size": "L", "colour": "red"}, "unknown field colour; the fields are size, count, gift"),
        ("size: XXL\ncolour: red", "unknown field colour; the fields are size, count, gift; size: 'XXL' is not one of"),
        ("L", "write a line for each field, such as size: …; the fields are size, count, gift"),
        ({"type": "approve"}, "'size' is a required property"),
    ],
    ids=str,
)
def test_an_answer_that_does_not_fit_says_what_does_not(value: Any, filled: dict[str, Any] | str) -> None:
    """N42: values of a program are taken as they are, only typed texts are read as numbers and as yes or no."""
    pause: Any = {"id": "s1.q1", "kind": "question", "question": "Which size?", "options": [], "schema": SHIRT}
    read = read_answer(value, pause)
    if isinstance(filled, str):
        assert isinstance(read, str)
        assert read.startswith(filled)
    else:
        assert not isinstance(read, str)
        assert read.arguments == filled
