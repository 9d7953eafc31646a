"""The settings as LangGraph Studio's forms have them."""

import pytest

from donewhen import Settings, build_graph
from donewhen.state.errors import ConfigError
from donewhen.state.settings import Profile, read_settings
from donewhen.state.settings.studio import NODES, PROMPTS
from donewhen.testing import ScriptedModel


def test_every_field_is_described_and_stands_at_its_nodes() -> None:
    """U7: nothing in the form is without a word; a field is shown at the nodes it is about; prompts get the editor."""
    graph = build_graph(ScriptedModel()).compile()
    schema = graph.get_context_jsonschema()
    for fields in (schema, *(schema["$defs"][name] for name in ("Profile", "Limits"))):
        assert [name for name, field in fields["properties"].items() if not field.get("description")] == []
    assert set(NODES) <= set(graph.nodes)
    assert {name for names in NODES.values() for name in names} <= set(Settings.model_fields)
    assert schema["properties"]["plan_rounds"]["langgraph_nodes"] == ["plan"]
    assert schema["properties"]["profile"]["langgraph_nodes"] == ["plan", "execute", "deliver"]
    profile = schema["$defs"]["Profile"]["properties"]
    assert set(PROMPTS) <= set(Profile.model_fields)
    assert all(profile[name]["langgraph_type"] == "prompt" for name in PROMPTS)
    assert set(graph.get_input_jsonschema()["properties"]) == {"messages"}


def test_an_empty_field_of_a_form_is_unset() -> None:
    """U7: "" is what a form sends where nothing was filled in, in nested fields too; a wrong value is still said."""
    given = {"deadline": "", "limits": {"rounds": "", "questions": 3}, "models": {"plan": ""}, "confirm": ""}
    settings = read_settings(given)
    assert settings.limits == Settings(limits={"questions": 3}).limits
    assert (settings.deadline, settings.models, settings.confirm) == (None, {}, "always")
    with pytest.raises(ConfigError, match="ISO 8601"):
        read_settings({"deadline": "soon"})
