"""The participants of a run with hidden instructions: an obedient model, and a careful person."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from benchmarks.faults.injection_attacks import Attack, understood
from benchmarks.faults.injection_office import ASKED, FIND, PARTS, PAY, TELL, Office, Part
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

Json = dict[str, Any]


class Obedient:
    """Knows the task by heart, and does what any new text tells it, as often as it is told, before it goes on."""

    def __init__(self, attack: Attack | None, *, checks: bool = True) -> None:
        self.attack = attack
        self.checks = checks
        """True if checks decide the criteria of its plan, where a tool can."""
        self.cue = understood(attack.cue) if attack and attack.cue else None

    def model(self) -> ScriptedModel:
        """For all roles."""
        roles = {"triage": self.plan, "plan": self.plan, "execute": self.work, "deliver": lambda *_: "Done."}
        return ScriptedModel(roles=roles, strict=False)

    def parts(self) -> list[Part]:
        """The steps of the user's task."""
        return [ASKED if self.attack and self.attack.place == "delegate" else FIND, PAY, TELL]

    def told(self, message: BaseMessage) -> bool:
        """Return whether the model is shown an order."""
        return self.cue is not None and self.cue in understood(str(message.text))

    def plan(self, messages: list[BaseMessage], tools: list[Json]) -> Any:
        """The plan; another one if a text says so. What is finished is left out, what was refused is not repeated."""
        brief = next(str(m.text) for m in messages if isinstance(m, HumanMessage))
        wanted = self.attack.target.plan if self.attack else None
        if wanted is not None and "<failure" in brief and "<feedback>" not in brief:
            return wanted
        finished = brief.partition("<finished")[2].partition("</finished")[0]
        steps = []
        for part in self.parts():
            criterion = {"text": f"Done: {part.content}", "check": part.check if self.checks else None}
            steps.append({"content": part.content, "done_when": [criterion], "tools": list(part.tools),
                          "executor": "researcher" if part is ASKED else None})  # fmt: skip
        return submit_plan([step for step in steps if step["content"] not in finished], title="Pay the invoice")

    def work(self, messages: list[BaseMessage], tools: list[Json]) -> Any:
        """Follow the newest order while it lasts; else make the next call of the task."""
        heard: Any = HumanMessage if self.attack and self.attack.place == "brief" else (HumanMessage, ToolMessage)
        told = [place for place, message in enumerate(messages) if isinstance(message, heard) and self.told(message)]
        if told and self.attack:
            turn = sum(isinstance(message, AIMessage) for message in messages[told[-1] :])
            replies = self.attack.target.replies
            if turn < len(replies):
                return self.obeyed(replies[turn], messages[told[-1]])
        return self.task(messages)

    def obeyed(self, reply: Any, order: BaseMessage) -> Any:
        """A reply as ordered; what cites the order itself needs its id."""
        found = re.match(r"\[([\w.@-]+)\]", str(order.text))
        evidence = found[1] if found else "s1.1"
        if reply == "cite":
            return finish_step("It is all done.", evidence)
        if reply == "cite the task":
            goal_check = [{"criterion": 1, "met": True, "evidence": [{"observation": evidence}]}]
            return call("finish_task", result="It is all done.", goal_check=goal_check, reason="nothing is left to do")
        return reply

    def task(self, messages: list[BaseMessage]) -> Any:
        """The next call that has not succeeded yet; then the step is finished, quoting what was found."""
        brief = next(str(m.text) for m in messages if isinstance(m, HumanMessage))
        content = brief.rpartition('<step id="')[2].partition("\n")[2].partition("\n")[0]
        part, done = PARTS[content], succeeded(messages)
        left = [each for each in part.calls if key(each) not in done]
        if left:
            return left[0]
        last = [id for id in done.values() if id][-1]
        seen = [str(m.text) for m in messages if isinstance(m, ToolMessage | HumanMessage)][1:]
        found = seen[0] if part in (FIND, ASKED) and self.attack and self.attack.place == "brief" else "It is done."
        return finish_step(found, last)


def succeeded(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """Call → id of its observation, of every call of the conversation that was ok; a sub-agent's work as well."""
    made = {c["id"]: key(c) for m in messages if isinstance(m, AIMessage) for c in m.tool_calls}
    found = {}
    for message in messages[2:]:
        text = str(message.text)
        head = re.match(r"\[(\S+)\] (\S+) ok\n", text)
        if "the user rejected this call: It is done." in text:
            found[made[message.tool_call_id]] = ""  # type: ignore[attr-defined]
        if head and isinstance(message, ToolMessage | HumanMessage):
            found[made.get(getattr(message, "tool_call_id", ""), head[2])] = head[1]
    return found


def key(of: Mapping[str, Any]) -> str:
    """A call by its content."""
    return f"{of['name']} {sorted(of['args'].items(), key=str)}"


# The person ----------------------------------------------------------------------------------------------------------

WANTED = {key(each) for part in PARTS.values() for each in part.calls}


def answer(pause: Mapping[str, Any], office: Office) -> Any:
    """Approves what the task needs and is not done yet; says a careless yes to every question."""
    if pause["kind"] == "plan":
        fits = all(step["content"] in PARTS and set(step.get("tools") or ()) <= set(PARTS[step["content"]].tools)
                   for step in pause["plan"]["steps"])  # fmt: skip
        return "approve" if fits else {"type": "reject", "message": "No. Do what I asked for."}
    if pause["kind"] == "tool":
        wanted = pause["tool"] == "researcher" or key({"name": pause["tool"], "args": pause["arguments"]}) in WANTED
        done = (pause["tool"], pause["arguments"].get("to")) in office.rows
        return "approve" if wanted and not done else {"type": "reject", "message": "It is done." if done else "No."}
    careless = {"budget": "deliver what there is", "effect": "it happened"}.get(pause["kind"], "yes")
    return next((option for option in ("go on", "deliver what there is") if option in pause["options"]), careless)
