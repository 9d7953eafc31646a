"""What each role is told: the run's state, rendered into tagged sections. Pure; the same state gives the same text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from graph.context import Deps
from graph.toolbox import Toolbox
from prompts import brief, escape, section
from state.evidence import criteria_of
from state.plan import ancestors
from state.relevance import most_relevant
from state.settings import Profile, Settings

CONVERSATION_CHARS = 6000
RESULT_CHARS = 4000


def profile_text(profile: Profile, extra: str = "") -> str:
    """The profile as sentences for a system prompt."""
    parts = [extra, profile.role, *(f"Goal: {goal}." for goal in profile.goals)]
    parts += [f"Tone: {profile.tone}."] if profile.tone else []
    parts += list(profile.soft)
    parts += [f"Paths must lie under: {', '.join(profile.allowed_paths)}."] if profile.allowed_paths else []
    return "\n".join(part for part in parts if part)


def conversation(messages: Sequence[BaseMessage]) -> str:
    """What was said before the present request, bounded, newest kept. Control messages are left out."""
    lines = []
    for message in messages[:-1]:
        if isinstance(message, ToolMessage) or (isinstance(message, AIMessage) and message.tool_calls):
            continue
        if text := message.text.strip():
            lines.append(f"{'user' if isinstance(message, HumanMessage) else 'assistant'}: {text[:2000]}")
    return "\n".join(lines)[-CONVERSATION_CHARS:]


def planning_brief(deps: Deps, settings: Settings, facts: Mapping[str, Any], *, full: bool) -> str:
    """The planner's brief. Triage sees one line per tool; the draft sees arguments and checks too."""
    toolbox = deps.tools_for(None, settings)
    names = most_relevant(
        facts["goal"], {name: f"{name} {toolbox.one_line(name)}" for name in toolbox.names}, settings.tool_selection
    )
    checks = [name for name in names if toolbox.effect(name) == "read"]
    executors = [f"- {name}: {e.description}" for name, e in deps.executors.items()]
    return brief(
        section("goal", facts["goal"]),
        section("conversation", facts.get("conversation") or ""),
        section("tools", "\n".join(_tool_line(toolbox, name, full) for name in names) or "(none)"),
        section("checks", ", ".join(checks)),
        section("executors", "\n".join(executors)),
        section("limits", f"at most {settings.max_steps} steps"),
        section("finished", _json(facts.get("finished"))),
        section("failure", facts.get("failure") or ""),
        section("proposal", _json(facts.get("proposal"))),
        section("feedback", facts.get("feedback") or ""),
        section("language", settings.language or ""),
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""


def _tool_line(toolbox: Toolbox, name: str, full: bool) -> str:
    line = f"- {name} ({toolbox.effect(name)}): {toolbox.one_line(name)}"
    if not full:
        return line
    properties = toolbox.schema(name).get("properties", {})
    return f"{line} Arguments: {', '.join(properties) or 'none'}."


def step_brief(values: Mapping[str, Any], step: Mapping[str, Any]) -> str:
    """The executor's brief: its step, the goal, the results it builds on; not what other steps did."""
    plan, records = values["plan"], values.get("steps") or {}
    results = [
        section("result", str(records.get(id, {}).get("result", ""))[:RESULT_CHARS], step=id)
        for id in ancestors(plan, step["id"])
    ]
    criteria = [_criterion_line(number, criterion) for number, criterion in enumerate(criteria_of(step), 1)]
    gathered = "\n".join(part for part in results if part)
    return brief(
        section("goal", values["goal"]),
        section("step", step["content"], id=step["id"]),
        section("done_when", "\n".join(criteria)),
        section("tools_approved", ", ".join(step.get("tools") or ())),
        f"<results>\n{gathered}\n</results>" if gathered else "",
    )


def _criterion_line(number: int, criterion: Mapping[str, Any]) -> str:
    check = criterion.get("check")
    said = f" (checked by the runtime: {check['tool']} {_json(check['arguments'])})" if check else ""
    return f"{number}. {criterion['text']}{said}"


def delivery_brief(goal: str, receipt: Mapping[str, Any], settings: Settings, reason: str) -> str:
    """The delivery's brief: the receipt in words, nothing else."""
    lines = [f"status: {receipt['status']}" + (f" ({reason})" if reason else "")]
    for row in receipt["steps"]:
        lines.append(f"step {row['id']} {row['status']}: {row['content']}")
        lines += [f"  result: {row['result'][:RESULT_CHARS]}"] if row["result"] else []
        lines += [f"  reason: {row['reason']}"] if row["reason"] else []
        for item in row["criteria"]:
            quotes = "; ".join(str(e["quote"]) for e in item["evidence"] if e.get("quote"))
            lines.append(f"  criterion {item['text']}: {item['verdict']}" + (f" ({quotes[:300]})" if quotes else ""))
    return brief(
        section("goal", goal), section("receipt", "\n".join(lines)), section("language", settings.language or "")
    )


def judge_brief(criterion: str, evidence: Sequence[Mapping[str, Any]]) -> str:
    """The judge's brief: the criterion and what was observed; never what is claimed."""
    shown = "\n".join(
        f'<observation id="{entry["id"]}" tool="{entry["tool"] or entry["source"]}">\n{escape(entry["text"][:RESULT_CHARS])}\n</observation>'
        for entry in evidence
    )
    return brief(section("criterion", criterion), f"<evidence>\n{shown}\n</evidence>")
