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
    )
    from donewhen.graph.llm.attachments import attachment_block, blocks_of, fitting_blocks
    from donewhen.graph.pauses.call import CallPause, ToolPause
    from donewhen.graph.pauses.pause import OpenPause, load_pause
    from donewhen.graph.pauses.plan import PlanPause
    from donewhen.graph.pauses.question import FormPause
    from donewhen.graph.receive import STEER
    from donewhen.graph.tools.effects import read_all
    from donewhen.state.channels import TASK
    from donewhen.state.language.short_replies import read_word
    from donewhen.state.language.texts import catalogue, known_language, primary_language, say, says_continue
    from donewhen.state.ledger import ESTIMATED, KEYS, UNPRICED, add
    from donewhen.state.people.amounts import format_amount
    from donewhen.state.people.answers import YES, Answer, decode_json
    from donewhen.state.people.edit import is_plan_text
    from donewhen.state.people.payload import arguments_text, shown_arguments, sources_text, text_changes
    from donewhen.state.plan.steps import SILENT_ROUNDS
    from donewhen.state.plan.text import (
        chosen_limits,
        may_change,
        moments_text,
        schedule_lines,
        schedule_text,
        step_numbers,
        tool_texts,
    )
    from donewhen.state.proof.journal import call_line, closing_lines, is_failure
    from donewhen.state.secrets import hide_known, redact, redact_json
    from donewhen.state.settings import ROLES, read_settings
    from donewhen.state.statuses import FINAL
    from donewhen.state.values import DEEPEST, Json, is_too_deep, storable, store_label

__all__ = [
    "ANSWER", "DEEPEST", "DEMO", "ESTIMATED", "FINAL", "KEYS", "ROLES", "SILENT_ROUNDS", "STEER", "TASK", "UNPRICED",
    "YES", "Answer", "CallPause", "FormField", "FormPause", "Json", "OpenPause", "PlanPause", "RunStatus", "Storage",
    "ToolPause", "add", "arguments_text", "attachment_block", "blocks_of", "call_line", "catalogue",
    "check_thread_id", "chosen_limits", "closing_lines", "coerce_typed", "decode_json", "field_problem",
    "filled_lines", "fitting_blocks", "form_fields", "format_amount", "hide_known", "installed_version", "is_failure",
    "is_plan_text", "is_too_deep", "known_language", "load_pause", "may_change", "moments_text", "primary_language",
    "read_all", "read_goal", "read_settings", "read_word", "redact", "redact_json", "say", "says_continue",
    "schedule_lines", "schedule_text", "shown_arguments", "sources_text", "step_numbers", "storable", "store_label",
    "text_changes", "tool_texts",
]  # fmt: skip
_HOME = {
    **dict.fromkeys(("DEMO", "installed_version"), "agent.config"),
    "read_goal": "agent.request",
    "RunStatus": "agent.run",
    **dict.fromkeys(("Storage", "check_thread_id"), "agent.storage.storage"),
    "ANSWER": "graph.events",
    **dict.fromkeys(("ROLES", "read_settings"), "state.settings"),
    **dict.fromkeys(
        ("FormField", "coerce_typed", "field_problem", "filled_lines", "form_fields"),
        "graph.executors.relay",
    ),
    **dict.fromkeys(("attachment_block", "blocks_of", "fitting_blocks"), "graph.llm.attachments"),
    **dict.fromkeys(("CallPause", "ToolPause"), "graph.pauses.call"),
    **dict.fromkeys(("OpenPause", "load_pause"), "graph.pauses.pause"),
    "PlanPause": "graph.pauses.plan",
    "FormPause": "graph.pauses.question",
    "STEER": "graph.receive",
    "read_all": "graph.tools.effects",
    "TASK": "state.channels",
    "read_word": "state.language.short_replies",
    **dict.fromkeys(
        ("catalogue", "known_language", "primary_language", "say", "says_continue"), "state.language.texts"
    ),
    **dict.fromkeys(("ESTIMATED", "KEYS", "UNPRICED", "add"), "state.ledger"),
    "format_amount": "state.people.amounts",
    **dict.fromkeys(("YES", "Answer", "decode_json"), "state.people.answers"),
    "is_plan_text": "state.people.edit",
    "SILENT_ROUNDS": "state.plan.steps",
    **dict.fromkeys(
        (
            "chosen_limits",
            "may_change",
            "moments_text",
            "schedule_lines",
            "schedule_text",
            "step_numbers",
            "tool_texts",
        ),
        "state.plan.text",
    ),
    **dict.fromkeys(("call_line", "closing_lines", "is_failure"), "state.proof.journal"),
    "FINAL": "state.statuses",
    **dict.fromkeys(("hide_known", "redact", "redact_json"), "state.secrets"),
    **dict.fromkeys(("DEEPEST", "Json", "is_too_deep", "storable", "store_label"), "state.values"),
}
"""By name: its module; those that are missing here are in `state.people.payload`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"donewhen.{_HOME.get(name, 'state.people.payload')}"), name)


def __dir__() -> list[str]:
    return list(__all__)
