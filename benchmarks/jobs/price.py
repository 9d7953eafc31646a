"""What everyday jobs send to a model, by origin: by the runtime and by a bare loop, both played by the same script.

The scripts do each job as it should be done (`perfect.py`), so the figures depend on prompts, tools and rounds alone.
Needs no key and no network. All characters are messages and tool schemas as OpenAI's protocol sends them.
"""

import asyncio
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import convert_to_openai_messages

from benchmarks.jobs.__main__ import JOBS, ours
from benchmarks.jobs.jobs import Job
from benchmarks.jobs.perfect import PERFECT, bare_replies, script_of
from benchmarks.report import table
from donewhen import Settings
from donewhen.agent.tools import as_tools
from donewhen.state.reading.decisions import NAMES
from donewhen.testing import Request, ScriptedModel

GROUPS: Mapping[str, Sequence[str]] = {
    "own small tools": ("refunds", "table", "hours", "tiny", "stock", "pay", "meeting"),
    "files, data and code": (
        "report", "contracts", "clean up", "failing test", "party", "karte", "reminders", "contacts", "release",
        "rename", "thesis", "tickets",
    ),
    "long": ("book",),
}  # fmt: skip
"""The twenty jobs."""
BARE = "bare loop"
SYSTEM = "You are a helpful agent. Use the tools to do what the user asks."
ORIGINS = ("instructions", "control tools", "own tools", "brief", "shown again", "rounds", "corrections")
_SEEN = re.compile(r"<seen[^>\n]*>\n.*?\n</seen[^>\n]*>", re.DOTALL)


@dataclass(frozen=True)
class Sent:
    """A request: whose it is, its characters by origin, and how many of them an earlier request began with."""

    role: str
    chars: Mapping[str, int]
    begun: int

    @property
    def total(self) -> int:
        """All characters of the request."""
        return sum(self.chars.values())


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _origins(request: Request) -> Mapping[str, int]:
    """Return the characters of a request by origin."""
    found = Counter[str]()
    for tool in request.tools:
        found["control tools" if tool["function"]["name"] in NAMES else "own tools"] += len(_as_json(tool))
    brief = next((m for m in request.messages if isinstance(m, HumanMessage)), None)
    for message in request.messages:
        size, text = len(_as_json(convert_to_openai_messages(message))), str(message.text)
        if isinstance(message, SystemMessage):
            found["instructions"] += size
        elif message is brief:
            again = sum(len(_as_json(part)) for part in _SEEN.findall(text))
            found["shown again"] += again
            found["brief"] += size - again
        else:
            found["corrections" if text.startswith("Correction:") else "rounds"] += size
    return found


def _prompt(request: Request) -> str:
    """Return a request as one text, in the order in which providers cache it: tools, instructions, messages."""
    return "".join(map(_as_json, [*request.tools, *(convert_to_openai_messages(m) for m in request.messages)]))


def sent_by(requests: Sequence[Request], role: str = "") -> list[Sent]:
    """Return what these requests of one job sent; `role` names requests of no role."""
    prompts = [_prompt(request) for request in requests]
    begun = [
        max((len(os.path.commonprefix([old, prompt])) for old in prompts[:place]), default=0)  # noqa: RUF071 (no paths)
        for place, prompt in enumerate(prompts)
    ]
    return [Sent(r.role or role, _origins(r), n) for r, n in zip(requests, begun, strict=True)]


async def play_bare(job: Job, folder: Path, replies: Sequence[Any]) -> list[Sent]:
    """Play a job by LangChain's own loop; raise RuntimeError if it was not done right."""
    turn = asyncio.Lock()

    @wrap_tool_call
    async def in_order(request: Any, handler: Any) -> Any:
        async with turn:  # calls of one reply may change the same file
            try:
                return await handler(request)
            except Exception as error:
                return ToolMessage(f"error: {error}", tool_call_id=request.tool_call["id"])

    model = ScriptedModel(replies)
    agent = create_agent(model, as_tools(job.tools(folder)), system_prompt=SYSTEM, middleware=[in_order])
    result = await agent.ainvoke({"messages": [HumanMessage(job.goal)]}, {"recursion_limit": 500})
    if wrong := job.right(folder, result["messages"][-1].text):
        raise RuntimeError(f"the bare loop: {job.goal}: {wrong}")
    model.assert_exhausted()
    return sent_by(model.requests, BARE)


async def play_both(name: str) -> tuple[list[Sent], list[Sent]]:
    """Play a job by the runtime and by the bare loop; return what each sent."""
    job = JOBS[name]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        job.make(Path(first))
        job.make(Path(second))
        script = script_of(name, Path(first))
        model = ScriptedModel(roles=script)
        row = await ours(job, Path(first), Settings(), model)
        if row["right"] or row["corrections"]:
            raise RuntimeError(f"{name}: {row['right']} {row['corrections']}")
        model.assert_exhausted()
        mine = sent_by([*model.requests, *model.audits])
        return mine, await play_bare(job, Path(second), bare_replies(job, script, row["answer"]))


Plays = Mapping[str, tuple[Sequence[Sent], Sequence[Sent]]]


def _thousands(number: int) -> str:
    return f"{number / 1000:.1f}"


def _price_row(name: str, plays: Sequence[tuple[Sequence[Sent], Sequence[Sent]]]) -> tuple[str, ...]:
    mine, bare = ([sent for play in plays for sent in play[side]] for side in (0, 1))
    ours_chars, bare_chars = sum(s.total for s in mine), sum(s.total for s in bare)
    judged = sum(sent.total for sent in mine if sent.role == "judge")
    return (
        name, str(len(mine)), str(len(bare)), f"{len(mine) / len(bare):.2f}", _thousands(ours_chars),
        _thousands(bare_chars), f"{ours_chars / bare_chars:.2f}", f"{judged / ours_chars:.0%}",
    )  # fmt: skip


def price_table(plays: Plays) -> str:
    """Return the table of requests and characters by job, of groups of jobs, and of all."""
    rows = [_price_row(name, [both]) for name, both in plays.items()]
    groups = {group: [plays[name] for name in names if name in plays] for group, names in GROUPS.items()}
    groups["all but long"] = [both for name, both in plays.items() if name not in GROUPS["long"]]
    rows += [_price_row(f"**{group}**", both) for group, both in groups.items() if both]
    head = ("job", "requests", "bare", "times", "characters, thousands", "bare", "times", "audit")
    return table(head, [*rows, _price_row("**all**", [*plays.values()])])


def _origin_row(name: str, sent: Sequence[Sent]) -> tuple[str, ...]:
    total, found = sum(each.total for each in sent), Counter[str]()
    for each in sent:
        found.update(each.chars)
    begun = sum(each.begun for each in sent) / total
    return name, str(len(sent)), *(_thousands(found[each]) for each in ORIGINS), _thousands(total), f"{begun:.0%}"


def origin_table(plays: Plays) -> str:
    """Return the table of characters by origin: a row for each role, for the runtime, and for the bare loop."""
    mine = [sent for play in plays.values() for sent in play[0]]
    bare = [sent for play in plays.values() for sent in play[1]]
    roles = dict.fromkeys(sent.role for sent in mine)
    rows = [_origin_row(role, [sent for sent in mine if sent.role == role]) for role in roles]
    head = ("role", "requests", *ORIGINS, "all", "begun before")
    return table(head, [*rows, _origin_row("**DoneWhen**", mine), _origin_row(f"**{BARE}**", bare)])


async def tables(names: Iterable[str] = ()) -> str:
    """Play the named jobs, or the twenty, and return the tables."""
    plays = {name: await play_both(name) for name in names or PERFECT}
    return f"{price_table(plays)}\n\nThousands of characters by origin:\n\n{origin_table(plays)}"
