"""Put questions of a run to the editor as permissions, choices and forms, and read the answers."""

from collections.abc import Mapping
from typing import Any

import acp
from acp.schema import (
    ElicitationSchema,
    ElicitationStringPropertySchema,
    PermissionOption,
    ToolCallUpdate,
)
from pydantic import ValidationError

from donewhen import Agent
from donewhen.agent.acp.content import edits, kind_of, locations
from donewhen.clients import decode_json, is_plan_text, load_pause, says_continue
from donewhen.types import Pause

APPROVE = PermissionOption(option_id="approve", name="Approve", kind="allow_once")
AUTO = PermissionOption(option_id="auto", name="Approve, and do not ask again here", kind="allow_always")
REJECT = PermissionOption(option_id="reject", name="Reject", kind="reject_once")
CHANGE = PermissionOption(option_id="reject", name="Reject, or change it", kind="reject_once")
TYPE = PermissionOption(option_id="type", name="I type the answer", kind="allow_once")
LATER = PermissionOption(option_id="type", name="Not now, or I type the answer", kind="allow_once")
"""`TYPE` or `LATER` comes first: an editor that permits everything by itself picks the first option, and must not
answer for a person."""
HOW_TO_CHANGE = "To change it, choose “Reject, or change it”: the plan is then shown as text that you can edit."
HOW_TO_TYPE = "To change it, type the changed plan, or what should be different, as your next message."


def permission_options(pause: Pause, *, opened: bool) -> list[PermissionOption]:
    """Return the choices at a pause. `opened` says that the session was only opened, and nobody has prompted yet."""
    if not load_pause(pause).approves:
        named = _options_by_id(pause).items()
        return [TYPE, *(PermissionOption(option_id=id, name=name, kind="allow_once") for id, name in named)]
    if opened:
        return [LATER, APPROVE]
    if pause.get("hook"):  # it asks again here, whatever is chosen
        return [LATER, APPROVE, REJECT]
    return [APPROVE, AUTO, CHANGE if pause["kind"] == "plan" else REJECT]


def chosen_answer(pause: Pause, option_id: str) -> str | None:
    """Return the option of a question that was chosen; None if another answer will be typed."""
    return _options_by_id(pause).get(option_id)


def _options_by_id(pause: Pause) -> dict[str, str]:
    return {f"option {at}": name for at, name in enumerate(load_pause(pause).choices(), 1)}


def permission_call(pause: Pause, agent: Agent, folder: str, *, opened: bool) -> ToolCallUpdate:
    """Return the plan or call that needs permission, as the editor draws it."""
    content = list(edits(pause, folder))
    if pause["kind"] == "plan":
        content.append(acp.tool_content(acp.text_block(HOW_TO_TYPE if opened else HOW_TO_CHANGE)))
    return ToolCallUpdate(
        tool_call_id=pause["tool_call_id"],
        title=load_pause(pause).wording(),
        kind=kind_of(pause, agent),
        content=content,
        locations=locations(pause, folder),
        raw_input=pause.get("arguments"),
    )


def change_question(pause: Pause) -> str:
    """Return the question for what should be different in a plan, with the plan as text to edit."""
    plan = load_pause(pause).action_arguments()["plan"].strip()
    return f"What should be different? Say it in words, or send this plan as you want it:\n\n```yaml\n{plan}\n```"


def read_change(text: str) -> Any:
    """Return the answer that a reply to `change_question` gives: an edited plan, or a rejection with these words."""
    is_edit = is_plan_text(text) or decode_json(text) is not text
    return text if is_edit else {"type": "reject", "message": text}


def only_says_continue(text: str, pause: Pause) -> bool:
    """Return whether the text only says “continue”, and the question has no such option."""
    return says_continue(text) and not any(says_continue(option) for option in load_pause(pause).choices())


def answer_form(pause: Pause) -> ElicitationSchema | None:
    """Return the form of a question; None if the protocol does not support it."""
    if pause.get("schema"):
        try:
            return ElicitationSchema.model_validate(dict(pause["schema"]))
        except ValidationError:
            return None
    if not (choices := list(dict.fromkeys(load_pause(pause).choices()))):
        return TEXT_FORM
    answer = ElicitationStringPropertySchema(type="string", title="Answer", enum=choices)
    other = ElicitationStringPropertySchema(type="string", title="Another answer")
    return ElicitationSchema(type="object", properties={"answer": answer, "other": other})


TEXT_FORM = ElicitationSchema(
    type="object",
    properties={"answer": ElicitationStringPropertySchema(type="string", title="Answer")},
    required=["answer"],
)
"""A form for an answer as text."""


def answer_in(filled: Mapping[str, Any] | None) -> str:
    """Return the answer in a filled form; a typed one counts before a choice."""
    fields = filled or {}
    return str(fields.get("other") or fields.get("answer") or "").strip()
