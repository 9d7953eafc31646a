"""For what shows runs to people and reads their answers: the command, the page, editors, clients of your own.

It has the words in which a pause asks, the grammar in which people answer, forms, amounts and schedules as text, and
the checks that everything from outside passes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from donewhen.agent.config import DEMO, installed_version
    from donewhen.agent.request import read_goal
    from donewhen.agent.run import RunStatus
    from donewhen.agent.storage.storage import Storage, check_thread_id
    from donewhen.graph.events import ANSWER
    from donewhen.graph.executors.relay import (
        FormField,
        coerce_typed,
        field_problem,
        filled_lines,
        form_fields,
        read_form,
    )
    from donewhen.graph.step.texts import Texts
    from donewhen.graph.tools.effects import read_all
    from donewhen.state.channels import TASK, Json
    from donewhen.state.language.short_replies import read_word
    from donewhen.state.language.texts import catalogue, known_language, say, says_continue
    from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED, add
    from donewhen.state.people.amounts import format_amount
    from donewhen.state.people.answers import Answer, decode_json, fills_form, may_replan, read_answer
    from donewhen.state.people.edit import is_plan_text
    from donewhen.state.people.payload import (
        arguments_text,
        closing_question,
        editable_plan,
        message_text,
        options,
        question_of,
        question_text,
        shown_arguments,
        sources_text,
        text_changes,
    )
    from donewhen.state.plan.steps import SILENT_ROUNDS
    from donewhen.state.plan.text import chosen_limits, moments_text, schedule_lines, schedule_text, step_numbers
    from donewhen.state.secrets import redact
    from donewhen.state.statuses import FINAL
    from donewhen.state.values import DEEPEST, is_too_deep, storable, store_label

__all__ = [
    "ANSWER", "DEEPEST", "DEMO", "ESTIMATED", "FINAL", "KEYS", "SILENT_ROUNDS", "TASK", "UNPRICED", "Answer",
    "FormField", "Json", "RunStatus", "Storage", "Texts", "add", "arguments_text", "catalogue", "check_thread_id",
    "chosen_limits",
    "closing_question", "coerce_typed", "decode_json", "editable_plan", "field_problem", "filled_lines", "fills_form",
    "form_fields", "format_amount", "installed_version", "is_plan_text", "is_too_deep", "known_language", "may_replan",
    "message_text", "moments_text", "options", "question_of", "question_text", "read_all", "read_answer", "read_form",
    "read_goal", "read_word", "redact", "say", "says_continue", "schedule_lines", "schedule_text", "shown_arguments",
    "sources_text", "step_numbers", "storable", "store_label", "text_changes",
]  # fmt: skip
_HOME = {
    **dict.fromkeys(("DEMO", "installed_version"), "agent.config"),
    "read_goal": "agent.request",
    "RunStatus": "agent.run",
    **dict.fromkeys(("Storage", "check_thread_id"), "agent.storage.storage"),
    "ANSWER": "graph.events",
    **dict.fromkeys(
        ("FormField", "coerce_typed", "field_problem", "filled_lines", "form_fields", "read_form"),
        "graph.executors.relay",
    ),
    "Texts": "graph.step.texts",
    "read_all": "graph.tools.effects",
    **dict.fromkeys(("TASK", "Json"), "state.channels"),
    "read_word": "state.language.short_replies",
    **dict.fromkeys(("catalogue", "known_language", "say", "says_continue"), "state.language.texts"),
    **dict.fromkeys(("ESTIMATED", "KEYS", "UNPRICED", "add"), "state.ledger"),
    "format_amount": "state.people.amounts",
    **dict.fromkeys(("Answer", "decode_json", "fills_form", "may_replan", "read_answer"), "state.people.answers"),
    "is_plan_text": "state.people.edit",
    "SILENT_ROUNDS": "state.plan.steps",
    **dict.fromkeys(
        ("chosen_limits", "moments_text", "schedule_lines", "schedule_text", "step_numbers"), "state.plan.text"
    ),
    "FINAL": "state.statuses",
    "redact": "state.secrets",
    **dict.fromkeys(("DEEPEST", "is_too_deep", "storable", "store_label"), "state.values"),
}
"""By name: its module; those that are missing here are in `state.people.payload`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"donewhen.{_HOME.get(name, 'state.people.payload')}"), name)


def __dir__() -> list[str]:
    return list(__all__)
