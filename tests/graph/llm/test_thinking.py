"""A model's thinking is an event of its own channel, in whichever form a provider shows it."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage

from donewhen.testing import ScriptedModel
from tests.kit.flows import play

SHOWN: dict[str, Any] = {
    "beside": {"content": "", "additional_kwargs": {"reasoning_content": "they greet me"}},
    "block": {"content": [{"type": "reasoning", "reasoning": "they greet me"}]},
    "Claude's": {
        "content": [{"type": "thinking", "thinking": "they greet me"}],
        "response_metadata": {"model_provider": "anthropic"},
    },
}


@pytest.mark.parametrize("form", SHOWN)
async def test_thinking_is_an_event_and_never_speech(form: str) -> None:
    """S04: told as it comes, with whose it is; neither in the speech, nor in the answer, nor in a later prompt."""
    said = {"name": "answer", "args": {"text": "Hello."}, "id": "call_1", "type": "tool_call"}
    model = ScriptedModel(roles={"triage": [AIMessage(tool_calls=[said], **SHOWN[form])]})
    flow = await play(model, goal="Hi")
    assert "".join(event["text"] for event in flow.told("thinking")) == "they greet me"
    assert {event["step"] for event in flow.told("thinking")} == {None}
    assert "greet" not in "".join(event["text"] for event in flow.told("speech"))
    assert flow.run.answer == "Hello."
