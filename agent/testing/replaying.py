"""A recorded request, and a model, tools, executors, hooks and a listener that do what was recorded.

Each finds its record by place: the step, the observation, the number of the reply in its step. So the order of
parallel work does not matter.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import unified_diff
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import ensure_config
from langchain_core.tools import BaseTool, ToolException
from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt

from donewhen.agent.config import Config
from donewhen.agent.models import Models
from donewhen.agent.options import AgentOptions
from donewhen.agent.request import Request, read_goal
from donewhen.agent.testing.script import Policy, read_request
from donewhen.agent.testing.scripted import ScriptedModel
from donewhen.agent.tools import described_tool
from donewhen.agent.work.recorder import decision_key, plain_message
from donewhen.agent.workspace.skills import Skills
from donewhen.graph.events import moment
from donewhen.graph.executors.executor import Card, Executor, Handoff, Report
from donewhen.graph.people.interjections import IN_PLANNING, RUN
from donewhen.graph.step.calls import OBSERVATION
from donewhen.graph.tools.certain import Unanswered
from donewhen.graph.tools.effects import without_advice
from donewhen.graph.tools.hooks import Ask, Hooks, Note, Refuse
from donewhen.graph.tools.toolbox import USERS_TEXT
from donewhen.state.channels import Json
from donewhen.state.errors import ModelError
from donewhen.state.proof.journal import call_key
from donewhen.state.settings import ROLES, Settings

MOST_LINES = 60
"""The most lines shown of a difference."""
CONTEXT_CHARS = 100
"""The most characters shown of a line that is the same on both sides."""
FREE = {"input": 0, "output": 0}
ACTS = ("start", "answer", "steer", "audit", "undone", "cancel")
DECISIONS = {each.__name__: each for each in (Refuse, Ask, Note)}


@dataclass
class RecordedRequest:
    """One request of a recording, while it is replayed."""

    rows: list[Json]
    """Its rows, from its start to its end."""
    differences: list[str]
    """The differences found so far; the model, the tools and the executors add to them."""
    stop: Callable[[], None] = lambda: None
    """Stops the run at its next clean point."""
    stop_after: int | None = None
    """The number of replies after which a run was stopped, to be steered or cancelled."""
    served: Counter[Any] = field(default_factory=Counter)
    """The number of replies so far, by role and step."""
    _said_at: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the rows by the call or hook that they belong to."""
        self.start = self.rows[0]
        self._results = self.of("result")
        self._used = [False] * len(self._results)
        self._asks: dict[str, list[list[Json]]] = {}
        for row in self.of("asks"):
            self._asks.setdefault(row["observation"], []).append(row["asks"])
        self._decisions: dict[str, list[Json | None]] = {}
        for row in self.of("decision"):
            self._decisions.setdefault(_key(row["hook"]), []).append(row["decision"])

    def of(self, kind: str) -> list[Json]:
        """Return the rows of a kind."""
        return [row for row in self.rows if row["kind"] == kind]

    @staticmethod
    def settings_of(row: Json) -> Settings:
        """Return the settings in a row, without models and deadline, which do not apply to a replay."""
        settings = {key: value for key, value in row["settings"].items() if key not in ("models", "deadline")}
        return Settings.model_validate(settings)

    def replies_before_stop(self, at: int) -> int | None:
        """Return the number of replies after which the run of this row was stopped; None if it was not."""
        after = next((n for n, row in enumerate(self.rows) if n > at and row["kind"] in ACTS), None)
        if after is None or self.rows[at]["kind"] not in ACTS:
            return self.stop_after
        stopped = self.rows[after]["kind"] == "steer" or self.rows[after].get("waiting") is False
        before = {id(row) for row in self.rows[:after]}
        places = {place.key for row, _, place in self._read_replies() if id(row) in before}
        return len(places) if stopped else None

    def request(self, settings: Settings) -> Request:
        """Return the recorded request, with these settings."""
        if "request" not in self.start:  # of version 1
            return Request(read_goal(self.start["goal"]), settings)
        return Request.from_row(self.start, settings)

    def options(self, chosen: AgentOptions) -> AgentOptions:
        """Return options with the recorded context and memory, and without the environment, where none are given."""
        texts = self._background()
        recorded: Json = {"config": Config(), "context": texts.get("context"), "memory": texts.get("memory")}
        return replace(chosen, **{name: value for name, value in recorded.items() if getattr(chosen, name) is None})

    def skills(self) -> Skills | None:
        """Return the recorded AGENTS.md."""
        texts = self._background()
        return _RecordedSkills(texts["agents_md"]) if "agents_md" in texts else None

    def _background(self) -> dict[str, str]:
        return {name: text for row in self.of("background") for name, text in row["texts"].items()}

    # Models ------------------------------------------------------------------------------------------------------

    def model(self, *, prompts: bool) -> ScriptedModel:
        """Return a model that replies as recorded, by role and step; `prompts=False` accepts any prompt."""
        roles: dict[str, dict[Any, dict[str, Policy]]] = {"judge": {}}
        for row, asked, place in self._read_replies():
            queue = roles.setdefault(place.role, {}).setdefault(place.step, {})
            number = [*queue, place.key].index(place.key) + 1
            queue[place.key] = self._reply(place, number, asked if prompts else None, row)
        scripts = {role: {step: [*of.values()] for step, of in by.items()} for role, by in roles.items()}
        model = ScriptedModel(roles={**scripts, "judge": scripts["judge"] or []})
        model.script.place = "the recording"
        return model

    def _read_replies(self) -> Iterable[tuple[Json, list[Json], "_RecordedPlace"]]:
        messages: dict[str, Json] = {}
        acts = 0
        for row in self.rows:
            acts += row["kind"] in ACTS
            if row["kind"] != "reply":
                continue
            messages |= row["new"]
            prompt = [messages[key] for key in row["asked"]]
            model_request = read_request([_message_to_read(each) for each in prompt], None, {})
            if model_request.role is not None:
                key = _key([acts, model_request.role, row["asked"]])
                yield row, prompt, _RecordedPlace(model_request.role, model_request.step, key)

    def _reply(self, place: "_RecordedPlace", number: int, asked: list[Json] | None, row: Json) -> Policy:
        def reply(messages: list[BaseMessage], tools: list[Json]) -> Any:
            now = [plain_message(each) for each in messages]
            if asked is not None and (difference := _prompt_difference(asked, now)):
                self.differences.append(f"reply {number} of {place.name}: the prompt is another one: {difference}")
            self.served.update((place.role, (place.role, place.step), RUN))
            if self.served[RUN] == self.stop_after:
                self.stop()
            if "error" in row:
                return ModelError(row["error"]["text"], code=row["error"]["code"])
            return _reply_message(row["reply"])

        return reply

    def models(self, model: ScriptedModel) -> Models:
        """Return the model of each role, with its recorded name, prices and limits."""
        described: Mapping[str, Json] = self.start.get("models") or {}
        named = {
            role: model.model_copy(
                update={
                    "model_name": about["name"],
                    "profile": about["profile"] or None,
                    "judges": about.get("judges", True),
                }
            )
            for role, about in described.items()
            if role in ROLES
        }
        priced = {about["name"]: about.get("rates") or FREE for about in described.values()}
        return Models(model, roles=named, prices={"scripted": FREE, **priced})

    # Interjections -----------------------------------------------------------------------------------------------

    async def hear(self, place: str, found: list[Json]) -> list[Json]:
        """Return the interjections that this place had heard after the current number of replies.

        They are as of now: the decisions before them, which the replay made again, are earlier. What was `found` are
        words that came with an answer, which are recorded, too.
        """
        said = self._heard_by_place().get(place, ())
        rows = {row["key"]: row for number, row in said if number <= self._count(self.served, place)}
        return [{**rows[key], "at": self._said_at.setdefault(key, moment())} for key in sorted(rows)]

    def say_until(self, at: str) -> None:
        """Say now what was said before this moment of the recording, at which somebody answered."""
        for row in (each for heard in self.of("heard") for each in heard["said"]):
            if row["at"] < at:
                self._said_at.setdefault(row["key"], moment())

    def _heard_by_place(self) -> dict[str, list[tuple[int, Json]]]:
        """Return the interjections by place, each with the number of replies before it."""
        counts: Counter[Any] = Counter()
        interjections: dict[str, list[tuple[int, Json]]] = {}
        replies = {id(row): place for row, _, place in self._read_replies()}
        seen: set[str] = set()
        for row in self.rows:
            if row["kind"] == "heard":
                counted = [(self._count(counts, row["place"]), each) for each in row["said"]]
                interjections.setdefault(row["place"], []).extend(counted)
            elif (place := replies.get(id(row))) and place.key not in seen:
                seen.add(place.key)
                counts.update((place.role, (place.role, place.step), RUN))
        return interjections

    @staticmethod
    def _count(counts: Counter[Any], place: str) -> int:
        if place == IN_PLANNING:
            return counts["triage"] + counts["plan"]
        return counts[RUN] if place == RUN else counts["execute", place]

    # Tools and executors -----------------------------------------------------------------------------------------

    def tools(self) -> dict[str, BaseTool]:
        """Return recorded tools by name; their calls return the recorded results."""
        tools: dict[str, BaseTool] = {}
        for about in self.start["tools"]:
            tool: BaseTool = described_tool(about["name"], about, self._call)
            own = {"users_text": USERS_TEXT} if about.get("users_text") else {}
            tool.metadata = {**(tool.metadata or {}), **about["metadata"], **own}
            tools[about["name"]] = tool
        return tools

    def common_tools(self, tools: Mapping[str, BaseTool]) -> list[BaseTool]:
        """Return the tools that are not private to an executor."""
        private = {about["name"] for about in self.start["tools"] if about.get("private")}
        return [tool for name, tool in tools.items() if name not in private]

    def executors(self, tools: Mapping[str, BaseTool]) -> dict[str, Executor]:
        """Return recorded executors, with these tools."""
        executors: dict[str, Executor] = {}
        for name, about in (self.start.get("executors") or {}).items():
            fields: Json = {key: about[key] for key in ("description", "profile", "passthrough")}
            recorded = _RecordedExecutor(Card(about["description"], tuple(about["skills"])), name, self)
            if about["kind"] == "remote":
                fields["remote"] = recorded
            elif about["kind"] == "alone":
                fields["graph"] = RunnableLambda(recorded.invoke)
            elif about["tools"] is not None:
                fields["tools"] = [tools[each] for each in about["tools"] if each in tools]
            executors[name] = Executor(**fields, skills=tuple(about["skills"]))
        return executors

    async def _call(self, name: str, arguments: Json) -> str:
        """Return the recorded result of a call, or raise its recorded questions."""
        id = str((ensure_config().get("metadata") or {}).get(OBSERVATION) or "")
        if asks := self.next_asks(id):
            raise GraphInterrupt(tuple(Interrupt(ask["value"], id=ask["id"]) for ask in asks))
        row = self.result(id, name, arguments)
        if row is None:
            self.differences.append(f"{name} is called with {json.dumps(arguments)[:500]}, which was not recorded")
            raise ToolException("not recorded")
        if not row["ok"]:
            raise _unanswered(row) if row.get("unknown") else ToolException(row["text"])
        return str(row["text"])

    def next_asks(self, observation: str) -> list[Json]:
        """Return the next questions of the call of this observation; [] if it has none."""
        asks = self._asks.get(observation)
        return asks.pop(0) if asks else []

    def result(self, observation: str, name: str, arguments: Json | None) -> Json | None:
        """Return the recorded result of a call: the one of its observation, else the next one of the same call."""
        wanted = None if arguments is None else call_key(name, arguments)
        same = [
            n
            for n, row in enumerate(self._results)
            if row["tool"] == name and wanted in (None, call_key(name, row["arguments"]))
        ]
        if not same:
            return None
        here = [n for n in same if self._results[n].get("id") == observation]
        fresh = [n for n in here or same if not self._used[n]]
        chosen = (fresh or here or same[-1:])[0]
        self._used[chosen] = True
        return self._results[chosen]

    # Hooks -------------------------------------------------------------------------------------------------------

    def hooks(self) -> Hooks:
        """Return hooks that make the recorded decisions."""
        numbers: dict[str, int] = {}
        for row in self.of("decision"):
            moment, number = row["hook"]["moment"], row["hook"]["number"]
            numbers[moment] = max(numbers.get(moment, 0), number + 1)
        each = {moment: [partial(self._decide, moment, n) for n in range(count)] for moment, count in numbers.items()}
        return Hooks(**each)

    async def _decide(self, moment: str, number: int, about: Any) -> Any:
        decisions = self._decisions.get(_key(json.loads(json.dumps(decision_key(moment, number, about), default=str))))
        decision = (decisions.pop(0) if len(decisions) > 1 else decisions[0]) if decisions else None
        if decision is None:
            return None
        return DECISIONS[decision["type"]](**{key: value for key, value in decision.items() if key != "type"})


@dataclass(frozen=True)
class _RecordedPlace:
    """The place of a reply in its request."""

    role: str
    step: str | None
    key: str
    """Equal for a repeated model request, made after a process died before it acted on the reply."""

    @property
    def name(self) -> str:
        return f"{self.role}{f' {self.step}' if self.step else ''}"


class _RecordedSkills(Skills):
    """The recorded AGENTS.md of a workspace; the tool that reads skills is among the recorded tools."""

    def __init__(self, text: str) -> None:
        super().__init__(user=None)
        self._text = text

    @property
    def agents_md(self) -> str:
        return self._text


@dataclass(frozen=True)
class _RecordedExecutor:
    """An executor that works on its own and returns the recorded reports."""

    about: Card
    name: str
    request: RecordedRequest

    async def card(self) -> Card:
        return self.about

    async def work(self, handoff: Handoff) -> Report:
        return self._report(handoff.config)

    async def invoke(self, graph_input: Json, config: RunnableConfig) -> Json:
        report = self._report(config)
        if report.failure:
            raise ToolException(report.failure)
        pauses = [Interrupt(value, id=id) for id, value in report.asks]
        return {"__interrupt__": pauses} if pauses else {"messages": [AIMessage(report.output)]}

    def _report(self, config: RunnableConfig) -> Report:
        id = str((config.get("metadata") or {}).get(OBSERVATION) or "")
        if asks := self.request.next_asks(id):
            return Report(asks=[(ask["id"], ask["value"]) for ask in asks])
        row = self.request.result(id, self.name, None)
        if row is None:
            self.request.differences.append(f"the executor {self.name} gets a step, which was not recorded")
            return Report(failure="not recorded")
        if row.get("unknown"):
            raise _unanswered(row)
        return Report(output=row["text"]) if row["ok"] else Report(failure=row["text"])

    async def lookup(self, handoff: Handoff) -> Report | None:
        return None


def _unanswered(row: Json) -> Unanswered:
    """Return the error of a recorded call whose effect is unknown; the run says again that it is."""
    return Unanswered(without_advice(row["text"]))


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _reply_message(recorded: Json) -> AIMessage:
    calls = recorded.get("calls") or ()
    return AIMessage(
        recorded["text"],
        id=recorded.get("id"),
        usage_metadata=recorded.get("usage"),
        response_metadata={"finish_reason": recorded["ended"]} if recorded.get("ended") else {},
        tool_calls=[{**_call(each), "type": "tool_call"} for each in calls if isinstance(each["args"], Mapping)],
        invalid_tool_calls=[
            {**_call(each), "error": each.get("error"), "type": "invalid_tool_call"}
            for each in calls
            if not isinstance(each["args"], Mapping)
        ],
    )


def _call(call: Json) -> Any:
    return {key: call.get(key) for key in ("name", "args", "id")}


def _message_to_read(plain: Json) -> BaseMessage:
    """Return a message from which the role and step of a model request can be read."""
    return (SystemMessage if plain["type"] == "system" else HumanMessage)(plain["text"])


# Differences -------------------------------------------------------------------------------------------------------


def _prompt_difference(recorded: Sequence[Json], now: Sequence[Json]) -> str:
    """Return the first message that differs; "" if only the day and the word of the fence do."""
    before, after = _message_texts(recorded), _message_texts(now)
    for number, (one, other) in enumerate(zip(before, after, strict=False), 1):
        if one != other:
            return f"message {number} of {len(before)}, {now[number - 1]['type']}\n{diff(one, other)}"
    if len(before) == len(after):
        return ""
    longer, what = (after, "new") if len(after) > len(before) else (before, "missing")
    first = longer[min(len(before), len(after))]
    return f"it has {len(after)} messages; recorded: {len(before)}. The first {what} one:\n{first[:500]}"


def _message_texts(messages: Iterable[Json]) -> list[str]:
    plain = [dict(message) for message in messages]
    calls_of = [
        json.dumps(each.get("calls"), sort_keys=True, ensure_ascii=False) if each.get("calls") else "" for each in plain
    ]
    whole = "\0".join(f"{each['type']}: {each['text']}\n{calls}" for each, calls in zip(plain, calls_of, strict=True))
    return mask_varying_parts(whole).split("\0")


def mask_varying_parts(text: str) -> str:
    """Return the text without what varies between runs: the word of its fences, and the day; also in JSON."""
    for tag in ("fence", "today"):
        for word in set(re.findall(rf"<{tag}>(?:\n|\\n)(.+?)(?:\n|\\n)</{tag}>", text)):
            text = text.replace(word, tag)
    return text


def diff(before: str, now: str) -> str:
    """Return the lines in which two texts differ."""
    lines = list(unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", n=1, lineterm=""))
    lines = [
        f"{line[:CONTEXT_CHARS]} …" if line.startswith(" ") and len(line) > CONTEXT_CHARS else line for line in lines
    ]
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join([*lines[:MOST_LINES], *more])
