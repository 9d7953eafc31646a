"""Decisions printed as JSON in the text, by models without tool calling: both forms of the protocol, as calls.

1. `{"action": "finish_step", …arguments}` — also with the arguments under arguments, args, action_input or input, and
   `{"name": …, "arguments": …}` or `{"tool": …, "args": …}`, one or a list.
2. `{"speak", "action", "reason", "complexity", "need_thinking", "plan_steps", "goal_check", "tool_call"}`, the original.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from state.extraction import extract, prose

INNER = ("arguments", "args", "action_input", "input", "parameters", "tool_input")
NAME = ("action", "name", "tool", "tool_name", "function")
CALL = ("tool_call", "tool_calls")
WORDS = {
    "plan": "submit_plan",
    "make_plan": "submit_plan",
    "create_plan": "submit_plan",
    "reply": "answer",
    "final_answer": "answer",
    "final answer": "answer",
    "ask": "ask_user",
    "question": "ask_user",
    "refuse": "decline",
    "finish": "finish_step",
    "step_done": "finish_step",
    "complete_step": "finish_step",
    "next_step": "finish_step",
    "done": "finish_task",
    "task_done": "finish_task",
    "complete_task": "finish_task",
    "fail": "give_up",
}
TOOL_WORDS = frozenset({"tool_call", "call_tool", "use_tool", "tool", "tools"})
SPEAK_WORDS = frozenset({"continue", "speak", "say", "think", "none", ""})
RENAMED = {"plan_steps": "steps", "speak": "speak"}


def from_text(text: str, names: Sequence[str]) -> tuple[list[dict[str, Any]], str, list[str]]:
    """The calls that a text decides on, the speech around them, and problems if it is a decision gone wrong."""
    found = extract(text, lambda value: _is_decision(value, names))
    if found is None:
        return [], _visible(text), []
    values = found.value if isinstance(found.value, list) else [found.value]
    speech, calls, problems = _visible(prose(text, found)), [], []
    for value in values:
        if isinstance(said := value.get("speak"), str) and _word(value) not in ("submit_plan",):
            speech = said
        made, problem = _calls(value, names)
        calls += made
        problems += problem
    numbered = [{"id": f"text_{n}", **call} for n, call in enumerate(calls)]
    return numbered, speech, problems


def _visible(text: str) -> str:
    """Prose without the thoughts some models print before it."""
    while (start := text.find("<think>")) >= 0:
        end = text.find("</think>", start)
        text = text[:start] + (text[end + len("</think>") :] if end >= 0 else "")
    return text.rpartition("</think>")[2].strip()


def _name(value: Mapping[str, Any]) -> Any:
    return next((value[key] for key in NAME if isinstance(value.get(key), str)), None)


def _word(value: Mapping[str, Any]) -> str:
    name = _name(value)
    return WORDS.get(name.strip().lower(), name.strip()) if isinstance(name, str) else ""


def _is_decision(value: Any, names: Sequence[str]) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(item, Mapping) and _is_decision(item, names) for item in value)
    if not isinstance(value, Mapping):
        return False
    if any(isinstance(value.get(key), (Mapping, list)) and value[key] for key in CALL):
        return True
    name = _name(value)
    if not isinstance(name, str):
        return False
    word = _word(value)
    known = word in names or word.lower() in TOOL_WORDS | SPEAK_WORDS or word in WORDS.values()
    shaped = "action" in value or any(isinstance(value.get(key), Mapping) for key in INNER)
    return known or (shaped and len(name) <= 64 and not any(c.isspace() for c in name.strip()))


def _calls(value: Mapping[str, Any], names: Sequence[str]) -> tuple[list[dict[str, Any]], list[str]]:
    word = _word(value)
    nested = [value[key] for key in CALL if value.get(key)]
    if word.lower() in TOOL_WORDS or (nested and (not word or word in SPEAK_WORDS)):
        flat = [item for entry in nested for item in (entry if isinstance(entry, list) else [entry])]
        made = [_call(item) for item in flat if isinstance(item, Mapping)]
        return [call for call in made if call], [] if made and all(made) else ["tool_call needs name and arguments"]
    if word.lower() in SPEAK_WORDS:
        return [], []
    inner = next((value[key] for key in INNER if isinstance(value.get(key), Mapping)), None)
    if inner is not None:
        return [{"name": word, "args": dict(inner)}], []
    own = {RENAMED.get(k, k): v for k, v in value.items() if k not in (*NAME, *CALL, *INNER)}
    plain = next((value[key] for key in INNER if isinstance(value.get(key), str)), None)
    if plain is not None and word in ("answer", "ask_user", "finish_step"):
        own.setdefault({"answer": "text", "ask_user": "question", "finish_step": "result"}[word], plain)
    return [{"name": word, "args": _original(word, own)}], []


def _original(word: str, own: dict[str, Any]) -> dict[str, Any]:
    """The original protocol says the words of an answer or a question in `speak`, else in `reason`."""
    said = own.get("speak") or own.get("reason") or ""
    filled = {
        "answer": {"text": said},
        "ask_user": {"question": said},
        "decline": {"guidance": said, "reason": own.get("reason") or said},
        "finish_step": {"result": said},
        "finish_task": {"result": said, "reason": own.get("reason") or said},
        "give_up": {"reason": own.get("reason") or said, "kind": "failed"},
        "submit_plan": {"title": said[:80] or "Plan"},
    }.get(word, {})
    merged = {**filled, **{k: v for k, v in own.items() if v is not None}}
    return (
        merged
        if word == "submit_plan"
        else {k: v for k, v in merged.items() if k not in ("speak", "need_thinking", "complexity")}
    )


def _call(value: Mapping[str, Any]) -> dict[str, Any] | None:
    inner = value.get("function") if isinstance(value.get("function"), Mapping) else value
    assert isinstance(inner, Mapping)
    name = _name(inner)
    args: Any = next((inner[key] for key in INNER if key in inner), {})
    if isinstance(args, str) and (found := extract(args, lambda item: isinstance(item, dict))):
        args = found.value
    return {"name": name.strip(), "args": dict(args)} if isinstance(name, str) and isinstance(args, Mapping) else None
