"""The ACP server of examples/acp_agent.py, driven through the protocol's own connection, as an editor does."""

from typing import Any

from acp.schema import AllowedOutcome, RequestPermissionResponse, TextContentBlock

from donewhen import Agent, Settings
from donewhen.testing import ScriptedModel, finish_step, submit_plan
from examples.acp_agent import serve


class Editor:
    """What an editor is told; it approves whatever it is asked."""

    def __init__(self) -> None:
        self.plans: list[list[tuple[str, str]]] = []
        self.text = ""
        self.asked: list[str] = []

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Remember the plan and what is said."""
        if update.session_update == "plan":
            self.plans.append([(entry.content, entry.status) for entry in update.entries])
        elif update.session_update == "agent_message_chunk":
            self.text += update.content.text

    async def request_permission(self, options: Any, session_id: str, tool_call: Any, **_: Any) -> Any:
        """Choose the first way to approve."""
        self.asked.append(tool_call.title)
        chosen = next(option.option_id for option in options if "approve" in option.option_id)
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))


async def test_an_editor_shows_the_plan_and_approves_it(tmp_path: Any) -> None:
    """U10: the checklist is its plan, from pending to completed; permission is asked once; the answer is said."""
    rounds = {"s1": [finish_step("seven", "s1.result")], "s2": [finish_step("noted", "s2.result")]}
    plan = submit_plan(["count", "note"])
    model = ScriptedModel(roles={"triage": [plan], "execute": rounds, "deliver": ["There are seven."]})
    server, editor = serve(Agent(model, storage="memory:", settings=Settings(on_question="assume"))), Editor()
    server.on_connect(editor)  # type: ignore[arg-type]
    session = await server.new_session(cwd=str(tmp_path), mcp_servers=[])
    prompt = [TextContentBlock(type="text", text="Count")]
    done = await server.prompt(prompt=prompt, session_id=session.session_id)
    assert done.stop_reason == "end_turn"
    assert len(editor.asked) == 1
    assert [content for content, _ in editor.plans[-1]] == ["count", "note", "Write the answer"]
    assert {status for _, status in editor.plans[-1]} == {"completed"}
    assert ("note", "pending") in editor.plans[0]
    assert editor.text.endswith("There are seven.")
