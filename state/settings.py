"""Run-scoped settings: the graph's `context_schema`. Defaults for everything, no secrets, nothing live."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import PurePath
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from donewhen.state.errors import ConfigError, validation_problems
from donewhen.state.ledger import Limits
from donewhen.state.studio import with_nodes, with_prompts, without_blanks
from donewhen.state.values import check_zone

LIMITS = Limits(rounds=200, replans=2, questions=20)
STEP_LIMITS = Limits(rounds=40)
SCHEMA_CHARS = 50_000
"""Of an output schema; it stands in prompts."""
PROMOTE_ROUNDS = 25
ROLES = ("triage", "plan", "execute", "judge", "deliver")
"""What models are asked for."""
ConfirmPolicy = Literal["always", "writes", "complex", "never"]
AtLimit = Literal["ask", "deliver", "stop"]
Verification = Literal["claimed", "grounded", "judged"]


class Profile(BaseModel):
    """Who the agent is for this run; shapes every prompt. Hard constraints are checked by code where they can be."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=with_prompts)

    name: str = Field(default="", description="what the agent calls itself")
    role: str = Field(default="", description="one sentence: who the agent is")
    backstory: str = Field(default="", description="where it comes from and what it knows, in a few sentences")
    instructions: str = Field(default="", description="how to work, in your own words and of any length")
    goals: list[str] = Field(default=[], description="what it is after, in every request")
    tasks: list[str] = Field(default=[], description="what it is usually asked to do")
    tone: str = Field(default="", description="how it speaks, such as “brief and friendly”")
    language: str = Field(default="", description="hard: of plan and speech, whatever `Settings.language` says")
    soft: list[str] = Field(default=[], description="preferences, for the prompt only")
    forbidden_tools: list[str] = Field(default=[], description="hard: never offered, never accepted in a plan")
    allowed_paths: list[str] = Field(
        default=[],
        description="hard: path-like tool arguments must lie under one of these; what stands inside of other texts, "
        "such as run_command's arguments or query_data's SQL, is not seen, so forbid those tools where it matters",
    )


class Settings(BaseModel):
    """What one run may do and how it behaves. Every field has a default; `None` for a context means all defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=with_nodes)

    confirm: ConfirmPolicy = Field(
        default="always",
        description="which plans wait for a person; writes: those that list a tool which changes something",
    )
    approvals: Literal["plan", "outside", "each", "never"] = Field(
        default="outside",
        description="plan: approving a plan approves the tools its steps list; outside: likewise, but writes that "
        "leave the workspace ask; each: every write asks, and so does leaving out the rest of an approved plan",
    )
    verification: Verification = Field(default="grounded", description="what a finished step must prove")
    limits: Limits = Field(
        default=LIMITS, description="for the whole run; what is not named keeps its default, None is no limit"
    )
    step_limits: Limits = Field(default=STEP_LIMITS, description="for each step; likewise")
    mode: Literal["auto", "answer", "step", "plan"] = Field(
        default="auto",
        description="how much is made of a request; auto: what it takes, as the planner sees it",
    )
    promote_rounds: int | None = Field(
        default=None,
        ge=1,
        description="rounds after which a run of one step gets a plan of several; None: 25, or never where "
        "step_limits say how many rounds a step may take",
    )
    plan_rounds: int = Field(default=12, ge=1, le=100, description="model decisions per planning, looks included")
    max_steps: int = Field(default=20, ge=1, le=200, description="of a plan")
    max_corrections: int = Field(
        default=3, ge=1, le=10, description="unusable replies in a row before a phase or step fails"
    )
    max_refusals: int = Field(default=3, ge=1, le=10, description="refused goal_checks before a step fails")
    max_parallel: int = Field(default=4, ge=1, le=64, description="steps at once")
    on_failure: Literal["replan", "ask", "deliver"] = Field(default="replan", description="after a step failed")
    on_exhausted: AtLimit | None = Field(
        default=None, description="when a limit is reached; by default ask, and deliver where nobody answers questions"
    )
    on_question: Literal["wait", "default", "assume", "abort"] = Field(
        default="wait", description="what answers a question: a person, `default_answer`, an assumption, or nobody"
    )
    default_answer: str = Field(default="", description="to every question, where `on_question` is default")
    question_seconds: float | None = Field(
        default=None,
        ge=0,
        description="a question or a budget open longer than this is answered by policy when the run is resumed",
    )
    when_busy: Literal["refuse", "next_round"] = Field(
        default="refuse", description="what becomes of a message (`Agent.tell`) that comes while the run works"
    )
    deadline: str | None = Field(default=None, description="ISO 8601 moment after which no new round starts")
    profile: Profile = Field(default=Profile(), description="who the agent is, how it works, what it must not do")
    executor: str | None = Field(
        default=None,
        description="who works on steps that name nobody; a passthrough executor takes the goal, unplanned",
    )
    language: str | None = Field(default=None, description="language of plan and speech; default: the user's")
    output_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema of the result, where it is wanted as data; of the start of a run"
    )
    timezone: str | None = Field(default=None, description="the user's time zone, such as Europe/Berlin")
    models: dict[str, str] = Field(default={}, description="role (triage, plan, execute, judge, deliver) → model name")
    model_seconds: float = Field(
        default=120,
        gt=0,
        description="the longest silence of a model; a reply that streams five times as long is cut off",
    )
    max_tokens: dict[str, int] = Field(
        default={}, description="role → the most tokens a reply may have, thoughts included; else what its model allows"
    )
    model_retries: int = Field(default=4, ge=0, le=10, description="repetitions after transient errors")
    tool_seconds: float = Field(default=60, gt=0, description="one tool call")
    context_tokens: int | None = Field(
        default=None,
        ge=500,
        description="the most tokens of a request; by default what the model's profile says, if it says anything",
    )
    observation_chars: int = Field(
        default=20_000, ge=200, description="of a tool result in the prompt; the rest by recall"
    )
    transcript_chars: int = Field(
        default=200_000, ge=2_000, description="of a step's rounds in the prompt; beyond it the oldest whole rounds go"
    )
    tool_selection: int = Field(default=24, ge=1, description="tools shown to the planner, most relevant first")

    @model_validator(mode="before")
    @classmethod
    def _unset(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or not given.get("output_schema"):
            return without_blanks(given)
        return {**without_blanks(given), "output_schema": given["output_schema"]}  # in a schema "" is a value

    @field_validator("limits", "step_limits")
    @classmethod
    def _with_defaults(cls, given: Limits, info: Any) -> Limits:
        """Who limits the money has not said that a run may replan without end."""
        default = LIMITS if info.field_name == "limits" else STEP_LIMITS
        whole = default.model_copy(update={key: getattr(given, key) for key in given.model_fields_set})
        whole.__pydantic_fields_set__.intersection_update(given.model_fields_set)  # what `merged` goes by
        return whole

    @field_validator("models", "max_tokens")
    @classmethod
    def _of_roles(cls, given: dict[str, Any], info: Any) -> dict[str, Any]:
        for role in given:
            check_role(role)
        if wrong := [role for role, most in given.items() if info.field_name == "max_tokens" and most < 1]:
            raise ValueError(f"{wrong[0]} must be at least 1")
        return given

    @field_validator("output_schema")
    @classmethod
    def _of_a_size(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is not None and (size := len(json.dumps(given))) > SCHEMA_CHARS:
            raise ValueError(f"the schema has {size:,} characters; at most {SCHEMA_CHARS:,}")
        return given or None

    @field_validator("timezone")
    @classmethod
    def _a_zone(cls, given: str | None) -> str | None:
        return given if given is None else check_zone(given)

    @field_validator("deadline")
    @classmethod
    def _a_moment(cls, given: str | None) -> str | None:
        if given is not None:
            moment(given)
        return given

    @property
    def speaks(self) -> str | None:
        """The language of plan and speech; None: the user's."""
        return self.profile.language or self.language or None

    @property
    def alone(self) -> bool:
        """Whether nobody is there to be asked: the settings answer questions, and give nobody time to."""
        return self.on_question != "wait" and self.question_seconds is None

    @property
    def at_limit(self) -> AtLimit:
        """What happens when a limit is reached."""
        return self.on_exhausted or ("deliver" if self.alone else "ask")

    @property
    def today(self) -> str:
        """The date, for prompts: in the user's time zone, which it then names, else in UTC."""
        zone = f" ({self.timezone})" if self.timezone else ""
        return f"{datetime.now(ZoneInfo(self.timezone or 'UTC')):%Y-%m-%d}{zone}"

    @property
    def most_alone(self) -> int | None:
        """The rounds after which a run of one step gets a plan of several; None: never."""
        limited = "step_limits" in self.model_fields_set and "rounds" in self.step_limits.model_fields_set
        return self.promote_rounds if limited or self.promote_rounds is not None else PROMOTE_ROUNDS

    def late(self, now: datetime | None = None) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and (now or datetime.now(UTC)) >= moment(self.deadline)


def check_role(role: str) -> None:
    """ValueError, with a near match, for a role that no model is asked for."""
    if role not in ROLES:
        close = get_close_matches(role, ROLES, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(ROLES)}."
        raise ValueError(f"There is no role {role!r}; {hint}")


def moment(text: str) -> datetime:
    """The moment an ISO 8601 text names, in UTC where it names no zone. Raises ValueError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no ISO 8601 moment, such as 2026-12-01T18:00+01:00") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


SettingsLike = Settings | Mapping[str, Any] | None
"""Settings as people give them."""


def read_settings(given: SettingsLike) -> Settings:
    """The settings in `given`, None for all defaults. Raises ConfigError for names and values that cannot be."""
    if isinstance(given, Settings):
        return given
    try:
        return Settings.model_validate(given or {})
    except ValidationError as error:
        raise ConfigError(f"settings: {'; '.join(_complaints(error))}") from None


def merged(base: Settings, given: SettingsLike) -> Settings:
    """`base` with what `given` sets, field by field; limits, the profile and models by their own fields.

    Hard constraints only grow: tools that `base` forbids stay forbidden, paths stay within those it allows, and the
    language of its profile stays.
    Raises ConfigError as `read_settings`, and for paths outside.
    """
    if not given or not base.model_fields_set:
        return read_settings(given) if given else base
    change = read_settings(given).model_dump(exclude_unset=True)
    whole = base.model_dump(exclude_unset=True)
    for key, value in change.items():
        old = whole.get(key)
        joins = isinstance(old, dict) and isinstance(value, dict) and key != "output_schema"
        whole[key] = {**(old or {}), **value} if joins else value
    if "profile" in change:
        said = Profile.model_validate(change["profile"])
        forbidden = dict.fromkeys([*base.profile.forbidden_tools, *said.forbidden_tools])
        within = _within(base.profile.allowed_paths, said.allowed_paths)
        kept = {"language": base.profile.language} if base.profile.language else {}
        whole["profile"] |= {"forbidden_tools": list(forbidden), "allowed_paths": within, **kept}
    return read_settings(whole)


def _within(base: list[str], given: list[str]) -> list[str]:
    """The paths that both allow; an empty list allows all."""
    if not base or not given:
        return base or given
    both = [path for path in given if any(PurePath(path).is_relative_to(each) for each in base)]
    both += [path for path in base if any(PurePath(path).is_relative_to(each) for each in given) and path not in both]
    if not both or any(".." in PurePath(path).parts for path in given):
        raise ConfigError(f"settings: profile.allowed_paths {given} lie outside of {base}, which this agent is kept to")
    return both


_STRICT = {"confirm": ("never", "complex", "always"), "approvals": ("never", "plan", "outside", "each")}
"""From the least to the most that people are asked."""


def confined(pinned: Settings, asked: Mapping[str, Any], *, models: bool) -> tuple[dict[str, Any], list[str]]:
    """The settings of a run whose client asked for `asked`, as JSON, and the names that were not taken over.

    What `pinned` sets stays, but limits may be lower and tools and paths fewer; people are asked as often at least.
    `models`: whether a client may choose them.
    """
    given, refused = known_settings(asked)
    for key, order in _STRICT.items():
        least = getattr(pinned, key)
        if key in given and (given[key] not in order or order.index(given[key]) < order.index(least)):
            given[key] = least
            refused.append(key)
    free = {"confirm", "approvals", "limits", "step_limits", "profile"}
    fixed = (set(pinned.model_fields_set) | (set() if models else {"models", "max_tokens"})) - free
    refused += [key for key in given if key in fixed]
    given = {key: value for key, value in given.items() if key not in fixed and value not in (None, "")}
    for key in ("limits", "step_limits"):
        if key in pinned.model_fields_set and isinstance(given.get(key), Mapping):
            most = getattr(pinned, key).model_dump(exclude_none=True)
            rows = {name: value for name, value in given[key].items() if value is not None}
            lower = {name: value for name, value in rows.items() if name not in most or value < most[name]}
            refused += [f"{key}.{name}" for name in given[key] if name not in lower]
            given[key] = lower
    if "profile" in given and "profile" in pinned.model_fields_set:
        hard = {"forbidden_tools", "allowed_paths"}
        given["profile"] = {key: value for key, value in dict(given["profile"]).items() if key in hard}
    return merged(pinned, given).model_dump(mode="json"), refused


def known_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of `given` names settings, and the names that do not; for what comes from elsewhere."""
    known = {key: value for key, value in given.items() if key in Settings.model_fields}
    return known, [str(key) for key in given if key not in Settings.model_fields]


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """Settings as they were stored, perhaps by a version that had others."""
    return Settings.model_validate(known_settings(stored)[0])


def _complaints(error: ValidationError) -> Iterator[str]:
    for item, said in zip(error.errors(), validation_problems(error), strict=False):
        name = str(item["loc"][-1])
        if item["type"] == "extra_forbidden":
            parts: dict[str, type[BaseModel]] = {"limits": Limits, "step_limits": Limits, "profile": Profile}
            near = get_close_matches(name, parts.get(str(item["loc"][0]), Settings).model_fields, n=1)
            yield f"there is no {'.'.join(map(str, item['loc']))}" + (f"; did you mean {near[0]}?" if near else "")
        else:
            yield said
