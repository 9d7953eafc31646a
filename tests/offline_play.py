"""Plays a run with the offline model and the real workspace tools, without the graph: plan → steps → answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.offline import OfflineModel
from donewhen.agent.workspace import workspace_tools
from donewhen.prompts import brief, framed, render, section
from donewhen.state.plan.plan import Rules, read_plan
from donewhen.state.proof.evidence import Seen, ground, read_claims
from donewhen.state.proof.journal import observation
from donewhen.state.reading.decisions import EXECUTE, TRIAGE, control_tools

MOST_ROUNDS = 30
CHECKS = ("file_exists", "file_contains", "csv_shape")
SALES = """date,region,product,amount
2026-10-01,North,Lamp,120.50
2026-10-01,South,Chair,89.90
2026-10-02,North,Desk,349.00
2026-10-03,West,Lamp,241.00
2026-10-05,East,Chair,
"""
FILES = {
    "sales.csv": SALES,
    "data/products.csv": "product,unit price,category\nPen,1.5,office\nMug,7,kitchen\nPot,20,kitchen\n",
    "销售.csv": "地区,销售额\n北京,120\n上海,80\n北京,30\n",
    "notes.txt": "Meeting on 12 October.\nTODO: call the supplier.\nThe desk sells best in the West.\nTODO: mail it.\n",
    "README.md": "# Shop\n\nA small shop.\n",
    "src/main.py": "print('hello')  # TODO: greet\n",
    "src/deep/tool.py": "x = 1\n",
    "docs/guide.md": "# Guide\n\nHow to sell.\n",
}

FENCE = "4f2a91"


@dataclass
class Outcome:
    """How a step ended: the last call, its result, the observations and the questions asked."""

    name: str
    arguments: dict[str, Any]
    seen: list[dict[str, Any]]
    asked: list[dict[str, Any]]
    replies: list[AIMessage]

    @property
    def result(self) -> str:
        """What the step found, or why it was given up."""
        return str(self.arguments.get("result") or self.arguments.get("reason") or "")


@dataclass
class Play:
    """One folder, one model, and the answers a person would give."""

    folder: Path
    files: Mapping[str, str] = field(default_factory=lambda: FILES)
    model: OfflineModel = field(default_factory=OfflineModel)
    tools: dict[str, BaseTool] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    """Ids of all calls of the run."""

    def __post_init__(self) -> None:
        for name, content in self.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(content, encoding="utf-8")
        self.tools = {tool.name: tool for tool in workspace_tools(self.folder)}

    def ask(self, prompt: str, text: str, tools: Sequence[Any], rounds: Sequence[BaseMessage] = ()) -> AIMessage:
        """One reply of the model."""
        messages = [SystemMessage(render(prompt, profile="")), HumanMessage(text), *rounds]
        bound = self.model.bind_tools(list(tools)) if tools else self.model
        reply = bound.invoke(messages)
        self.ids += [str(call["id"]) for call in reply.tool_calls]
        return reply

    def decide(
        self, goal: str, *, tools: Sequence[str] | None = None, rounds: Sequence[BaseMessage] = (), **sections: str
    ) -> AIMessage:
        """The planner's reply to a goal."""
        names = list(self.tools) if tools is None else list(tools)
        lines = "\n".join(f"- {name} (read): what it does" for name in names) or "(none)"
        limits = sections.pop("limits", "at most 20 steps")
        more = [section(tag, value) for tag, value in sections.items()]
        checks = section("checks", ", ".join(name for name in names if name in CHECKS))
        text = brief(section("goal", goal), section("tools", lines), checks, section("limits", limits), *more)
        return self.ask("plan_triage", text, control_tools(TRIAGE), rounds)

    def plan(self, goal: str, **sections: Any) -> dict[str, Any]:
        """The plan for a goal, which has to pass the rules for plans."""
        (call,) = self.decide(goal, **sections).tool_calls
        assert call["name"] == "submit_plan", call
        checks = {name: (lambda arguments: []) for name in CHECKS}
        finished = json.loads(sections.get("finished", "{}"))
        plan = read_plan(call["args"], Rules(tools=list(self.tools), checks=checks, finished=finished))
        assert isinstance(plan, dict), plan
        return plan

    def step(
        self,
        step: Mapping[str, Any],
        results: Mapping[str, str] | None = None,
        goal: str = "",
        answers: Sequence[str] = (),
    ) -> Outcome:
        """Work on one step to its end; a finish has to hold against the evidence."""
        text = step_brief(step, results or {}, goal)
        offered = [*control_tools(EXECUTE), *self.tools.values()]
        rounds: list[BaseMessage] = []
        outcome = Outcome("", {}, [], [], [])
        waiting = list(answers)
        for number in range(MOST_ROUNDS):
            reply = self.ask("execute", text, offered, rounds)
            outcome.replies.append(reply)
            rounds.append(reply)
            for call in reply.tool_calls:
                if call["name"] in ("finish_step", "give_up"):
                    outcome.name, outcome.arguments = call["name"], call["args"]
                    if call["name"] == "finish_step":
                        prove(step, call["args"], outcome.seen)
                    return outcome
                entry = self._observe(step["id"], number, call, outcome, waiting)
                rounds.append(ToolMessage(shown(entry), tool_call_id=call["id"]))
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds: {rounds[-2:]}")

    def _observe(self, id: str, number: int, call: Any, outcome: Outcome, answers: list[str]) -> dict[str, Any]:
        name = f"{id}.{len(outcome.seen) + 1}"
        if call["name"] == "ask_user":
            outcome.asked.append(call["args"])
            assert answers, call["args"]
            entry = observation(name, id, number, "user", answers.pop(0), arguments=call["args"])
        else:
            ok, text = True, ""
            try:
                text = str(self.tools[call["name"]].invoke(call["args"]))
            except ToolException as error:
                ok, text = False, str(error)
            entry = observation(name, id, number, "tool", text, ok=ok, tool=call["name"], arguments=call["args"])
        outcome.seen.append(entry)
        return entry

    def run(self, goal: str, answers: Sequence[str] = ()) -> str:
        """The answer to a goal: plan, all steps in order, delivery."""
        plan, results = self.plan(goal), {}
        lines = ["status: completed"]
        for step in plan["steps"]:
            outcome = self.step(step, {id: results[id] for id in step["depends_on"]}, goal, answers)
            assert outcome.name == "finish_step", outcome.arguments
            results[step["id"]] = outcome.result
            lines += [
                f"step {step['id']} done: {step['content']}",
                framed("result", outcome.result, FENCE, step=step["id"]),
            ]
            lines += [f"  criterion {criterion['text']}: supported" for criterion in step["done_when"]]
        return str(self.ask("deliver", brief(section("goal", goal), section("receipt", "\n".join(lines))), []).text)


def step_brief(step: Mapping[str, Any], results: Mapping[str, str], goal: str) -> str:
    """The executor's brief as the graph writes it."""
    criteria = step.get("done_when") or [{"text": f"Done: {step['content']}"}]
    lines = [
        f"{n}. {c['text']}" + (" (checked by the runtime: file_exists {})" if c.get("check") else "")
        for n, c in enumerate(criteria, 1)
    ]
    gathered = "\n".join(section("result", result, FENCE, step=id) for id, result in results.items())
    return brief(
        section("goal", goal or step["content"]),
        section("step", step["content"], id=step["id"]),
        section("done_when", "\n".join(lines)),
        section("tools_approved", ", ".join(step.get("tools") or ())),
        f"<results>\n{gathered}\n</results>" if gathered else "",
    )


def shown(entry: Mapping[str, Any]) -> str:
    """An observation as a model sees it."""
    head = f"[{entry['id']}] {entry['tool'] or entry['source']} {'ok' if entry['ok'] else 'error'}"
    return f"{head}\n{entry['text'] if entry['source'] == 'user' else framed('tool_output', entry['text'], FENCE)}"


def prove(step: Mapping[str, Any], arguments: Mapping[str, Any], seen: Sequence[dict[str, Any]]) -> None:
    """Every criterion has an item, every citation is of an observation that was ok, every quote stands in it (X03)."""
    criteria = step.get("done_when") or [{"text": ""}]
    claims = read_claims(arguments["goal_check"], len(criteria), "grounded")
    assert isinstance(claims, dict), claims
    for claim in claims.values():
        good, problems = ground(claim, Seen(seen, step["id"], str(arguments["result"])))
        assert claim["met"] is True
        assert good, claim
        assert not problems, problems
