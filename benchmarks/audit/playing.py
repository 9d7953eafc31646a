"""Play a case: its plan, calls, results and words through the whole graph, with a judge that answers from a record."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.tools import StructuredTool, ToolException

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, submit_plan

Case = Mapping[str, Any]
CASES = Path(__file__).parent / "cases"
REPLIES = Path(__file__).parent / "replies.jsonl"
_TODAY = re.compile(r"<today>.*?</today>\n?", re.DOTALL)


class Judge:
    """Answers with what a judge said of the very same request; what was never asked is kept, and not answered."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        self.replies = replies
        self.missing: dict[str, str] = {}
        self.characters = 0
        self.calls = 0

    def __call__(self, messages: list[BaseMessage], tools: list[Any]) -> Any:
        """Return the recorded calls for this request."""
        text = request_text(messages)
        key = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.calls += 1
        self.characters += sum(len(str(m.text)) for m in messages) + len(json.dumps(tools))
        if key not in self.replies:
            self.missing[key] = text
            raise RuntimeError(f"no judge was asked {key}")
        said = self.replies[key]
        return [call(one["name"], **one["args"]) for one in (said if isinstance(said, list) else [said])]


def request_text(messages: list[BaseMessage]) -> str:
    """Return a request as a judge reads it: the same for the same case, on any day and on any thread."""
    fence = re.search(r"<fence>\n(\w+)\n</fence>", str(messages[1].text))
    parts = []
    for message in messages[1:]:
        calls = "".join(
            f"\n(calls {c['name']} {json.dumps(c['args'], sort_keys=True)})" for c in getattr(message, "tool_calls", ())
        )
        parts.append(f"## {message.type}\n{message.text}{calls}")
    text = _TODAY.sub("", "\n\n".join(parts))
    return text.replace(fence[1], "F") if fence else text


@dataclass(frozen=True)
class Played:
    """The end of a case."""

    case: Case
    status: str
    code: str
    calls: int
    characters: int
    missing: Mapping[str, str]
    """Requests of the judge that nobody has answered yet."""
    doubts: list[str]

    @property
    def right(self) -> bool:
        """True if it ended as its author expects."""
        return (self.status == "completed") == (self.case["expect"] == "completed")


async def play(case: Case, level: str, replies: Mapping[str, Any]) -> Played:
    """Play a case at a level of verification."""
    judge, steps = Judge(replies), case["steps"]
    results = {}
    for step in steps:
        for one in step["calls"]:
            results.setdefault((one["tool"], json.dumps(one["arguments"], sort_keys=True)), []).append(one)

    def tool(about: Mapping[str, Any]) -> StructuredTool:
        async def run(**arguments: Any) -> str:
            waiting = results.get((about["name"], json.dumps(arguments, sort_keys=True))) or []
            if not waiting:
                raise ToolException("nothing more is known here")
            one = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if one["failed"]:
                raise ToolException(one["result"])
            return str(one["result"])

        properties = {name: {} for name in about["arguments"]}
        for step in steps:
            for one in step["calls"]:
                properties |= {name: {} for name in one["arguments"]} if one["tool"] == about["name"] else {}
        schema = {"type": "object", "properties": properties, "title": about["name"]}
        return StructuredTool(
            name=about["name"], description=about["description"], args_schema=schema, coroutine=run,
            metadata={"effect": about["effect"], "targets": []}, handle_tool_error=False,
        )  # fmt: skip

    model = ScriptedModel(
        roles={
            "triage": [_plan(case)],
            "execute": {f"s{n}": _rounds(case, n) for n in range(1, len(steps) + 1)},
            "deliver": lambda *_: _delivered(case),
            "judge": judge,
        },
        strict=False,
    )
    settings: dict[str, Any] = {"confirm": "never", "approvals": "plan", "verification": level, "model_retries": 0}
    async with Agent(model, [tool(about) for about in case["tools"]], storage="memory:", settings=settings) as agent:
        run = await agent.start(case["goal"])
    outcome = run.outcome or {}
    audit = (run.receipt or {}).get("audit") or {}
    doubts = [
        f"{row['shown']}: {row['text']} ({row['why']})" for row in audit.get("sentences", ()) if row["shown"] != "yes"
    ]
    doubts += [f"missing: {text}" for text in audit.get("missing", ())]
    asked = [request for request in model.requests if request.role != "judge"]
    characters = judge.characters + sum(len(r.text) + len(json.dumps(r.tools)) for r in asked)
    return Played(
        case, run.status, str(outcome.get("code")), len(asked) + judge.calls, characters, judge.missing, doubts
    )


def _plan(case: Case) -> Any:
    planned = [{key: step[key] for key in ("content", "done_when", "tools")} for step in case["steps"]]
    more = {"done_when": case["goal_done_when"]} if case["goal_done_when"] and len(planned) > 1 else {}
    return submit_plan(planned, **more)


def _rounds(case: Case, number: int) -> list[Any]:
    step = case["steps"][number - 1]
    said = {"result": case["answer"] if len(case["steps"]) == 1 else step["result"]}
    said |= {"unchanged": step["unchanged"]} if step.get("unchanged") else {}
    calls = [call(one["tool"], **one["arguments"]) for one in step["calls"]]
    return [*calls, call("finish_step", **said, goal_check=_check(step["goal_check"], number))]


def _check(goal_check: list[Any], number: int) -> list[dict[str, Any]]:
    def cited(one: Mapping[str, Any]) -> dict[str, Any]:
        quote = {"quote": one["quote"]} if one.get("quote") else {}
        return {"observation": f"s{one.get('step', number)}.{one['call']}", **quote}

    return [{**item, "evidence": [cited(one) for one in item["evidence"]]} for item in goal_check]


def _delivered(case: Case) -> Any:
    last = len(case["steps"])
    proof = [{"observation": f"s{n}.result"} for n in range(1, last + 1)]
    check = [{"criterion": n, "met": True, "evidence": proof} for n in range(1, len(case["goal_done_when"]) + 1)]
    return call("deliver", text=case["answer"], **({"goal_check": check} if check else {}))
