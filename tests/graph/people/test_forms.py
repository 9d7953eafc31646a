"""The fields of a form, as the page and the command draw them."""

from enum import Enum
from typing import Any

from pydantic import BaseModel, Field

from donewhen.graph.executors.relay import field_problem, form_fields


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
    assert field_problem(schema, "size", "7") == ""
    assert "less than the minimum" in field_problem(schema, "size", 0)
    assert "required" in field_problem(schema, "colour", None)
    assert field_problem(schema, "size", None) == ""
