"""Plays honest scenarios through the real Agent with a scripted model, and counts what was in their way."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from benchmarks.honest.cases import CASES, READS, Case
from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

GOAL = "Do the work of run 4711."
ANY = {"type": "object", "properties": {}, "additionalProperties": True}


@dataclass(frozen=True)
class Count:
    """The obstacles in one scenario."""

    case: Case
    refused: int
    asked: int
    status: str
    said: str
    """The first correction."""

    @property
    def good(self) -> bool:
        """True if there were none."""
        return (self.refused, self.asked, self.status) == (0, 0, "completed")


async def play(case: Case, level: str = "audited") -> Count:
    """Run it to its end; a model that is refused says the same again, and then gives up."""
    names = list(dict.fromkeys(name for name, _, _ in case.calls))
    step = {"content": "Do it.", "done_when": [text for text, _ in case.proofs], "tools": names}
    rounds: list[Any] = [call(name, **arguments) for name, arguments, _ in case.calls]
    claim = finish_step(case.result, goal_check=[_item(n, cited) for n, (_, cited) in enumerate(case.proofs, 1)])
    roles = {"triage": [submit_plan([step])], "execute": {"s1": [*rounds, *[claim] * 4]}, "deliver": [case.result]}
    model = ScriptedModel(roles=roles, strict=False)
    answers = iter(output for _, _, output in case.calls)
    effects = {name: "read" if name in READS else "write" for name in names}
    settings = {"confirm": "never", "approvals": "plan", "on_failure": "deliver", "verification": level}
    settings["on_exhausted"] = "deliver"
    async with Agent(model, [_tool(name, answers) for name in names], storage="memory:", effects=effects) as agent:
        events = [event async for event in agent.stream(GOAL, settings=settings)]
    told = [event["text"] for event in events if event["type"] == "correction"]
    run = events[-1]["run"]
    return Count(case, len(told), int(run["status"] == "waiting"), run["status"], told[0] if told else "")


async def play_all() -> list[Count]:
    """Every scenario, one after the other."""
    return [await play(case) for case in CASES]


def table(counts: list[Count]) -> str:
    """A Markdown table, with a row for each kind of work that met an obstacle; the other kinds below."""
    rows = [
        "| work | scenarios | refused | asked without need | not completed |",
        "|---|---|---|---|---|",
    ]
    kinds, smooth = Counter(count.case.kind for count in counts), []
    for kind, number in [*kinds.items(), ("all", len(counts))]:
        some = [count for count in counts if kind in ("all", count.case.kind)]
        figures = [sum(c.refused for c in some), sum(c.asked for c in some), sum(c.status != "completed" for c in some)]
        if any(figures) or kind == "all":
            rows.append(f"| {kind} | {number} | {' | '.join(map(str, figures))} |")
        else:
            smooth.append(f"{kind} {number}")
    return "\n".join([*rows, "", f"Scenarios without an obstacle: {', '.join(smooth) or 'none'}."])


def _item(number: int, cited: Any) -> dict[str, Any]:
    items = cited if isinstance(cited, list) else [cited]
    evidence = [{"observation": e[0], "quote": e[1]} if isinstance(e, tuple) else e for e in items]
    return {"criterion": number, "met": True, "evidence": evidence if isinstance(cited, list) else evidence[0]}


def _tool(name: str, answers: Any) -> BaseTool:
    async def answer(**_: Any) -> str:
        said = str(next(answers))
        if said.startswith("!!"):
            raise ValueError(said[2:])
        if said.startswith("!"):
            raise ToolException(said[1:])
        return said

    return StructuredTool(name=name, description=f"Does {name}.", args_schema=ANY, coroutine=answer)
