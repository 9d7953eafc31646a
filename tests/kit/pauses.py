"""One pause of every kind, and what clients send back for an edit; shared by the tests about people."""

import copy
from typing import Any

from donewhen.graph.pauses.pause import load_pause
from donewhen.state.people.edit import plan_document

PLAN: dict[str, Any] = {
    "title": "Total the sales",
    "complexity": "moderate",
    "need_thinking": False,
    "done_when": [],
    "steps": [
        {
            "id": "s1",
            "content": "Read every CSV file.\nSkip\n\nthe drafts.",
            "done_when": [
                {"text": "Every file was read", "check": None, "judge": False},
                {
                    "text": "There are three",
                    "check": {"tool": "list_files", "arguments": {"path": "."}, "expect": {"contains": "3"}},
                    "judge": True,
                },
            ],
            "depends_on": [],
            "executor": "reader",
            "tools": ["list_files", "read_file"],
        },
        {
            "id": "s2",
            "content": "Write the total - to out.txt",
            "done_when": [{"text": "out.txt holds the total", "check": None, "judge": False}],
            "depends_on": ["s1"],
            "executor": None,
            "tools": ["write_file"],
        },
        {
            "id": "s3",
            "content": "Tell the user",
            "done_when": [],
            "depends_on": None,
            "executor": None,
            "tools": None,
        },
    ],
    "schedule": {"every_minutes": None, "at": "08:30", "timezone": "Europe/Berlin"},
    "speak": None,
    "revision": "abc123",
}
LIMITS = {"rounds": 40, "cost_usd": 0.5, "model_calls": None}


def pending(kind: str, **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "plan": {"id": "confirm.abc123", "plan": PLAN, "revision": "abc123", "limits": LIMITS},
        "question": {"id": "s2.q1", "question": "Which year?", "options": ["2022", "2023"], "step": "s2"},
        "tool": {
            "id": "s2.t1",
            "tool": "write_file",
            "arguments": {"path": "out.txt", "content": "7"},
            "step": "s2",
        },
        "budget": {"id": "run.b1", "exhausted": ["rounds"], "suggested": {"rounds": 20}},
        "effect": {"id": "s2.e1", "tool": "send_mail", "arguments": {"to": "a@b.c"}, "step": "s2"},
    }[kind]
    return {"kind": kind, "tool_call_id": "call_1", "options": [], "step": None, **own, **more}


def read_answer(value: Any, pause: Any) -> Any:
    return load_pause(pause).read(value)


def stale_reason(value: Any, pause: Any) -> str | None:
    return load_pause(pause).stale_reason(value, [pause["id"]])


def payload(pause: Any) -> dict[str, Any]:
    return load_pause(pause).payload()


def options(pause: Any) -> list[str]:
    return load_pause(pause).choices()


def question_text(pause: Any) -> str:
    return load_pause(pause).question_text()


def message_text(pause: Any) -> str:
    return load_pause(pause).message_text()


KINDS = ("plan", "question", "tool", "budget", "effect")


def hitl(kind: str, **args: Any) -> dict[str, Any]:
    name = payload(pending(kind))["action_requests"][0]["name"]
    return {"decisions": [{"type": "edit", "edited_action": {"name": name, "args": args}}]}


def edited_text(before: str, after: str) -> str:
    text = plan_document({"plan": PLAN, "limits": LIMITS})
    assert before in text
    return text.replace(before, after)


def with_step(index: int, **change: Any) -> dict[str, Any]:
    plan = copy.deepcopy(PLAN)
    plan["steps"][index].update(change)
    del plan["revision"]
    return plan
