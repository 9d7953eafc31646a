"""The settings of a run: the graph's `context_schema`. Defaults for everything, no secrets, no live objects.

This module also reads and merges settings from people, clients and storage; merging keeps hard constraints.
"""

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import ZoneInfo

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    PositiveInt,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from donewhen.state.criteria import Criteria
from donewhen.state.errors import ConfigError
from donewhen.state.ledger import Limits
from donewhen.state.options import Options, option_problems
from donewhen.state.records import PauseKind
from donewhen.state.settings.studio import with_nodes, with_prompts, without_blanks
from donewhen.state.values import check_zone, clean_text, map_texts, name_hint, plain_json

LIMITS = Limits(rounds=200, replans=2, questions=20)
STEP_LIMITS = Limits(rounds=40)
SCHEMA_CHARS = 50_000
"""The most characters of an output schema, which is part of prompts."""
CONTEXT_CHARS = 50_000
"""The most characters of what tools get as their context, which is stored with every thread."""
WHOLE = ("output_schema", "tool_context", "approvers")
"""Settings in which "" is a value, if a wrong one, and not a blank of a form."""
PROMOTE_ROUNDS = 25
ROLES = ("triage", "plan", "execute", "judge", "deliver")
"""The roles of models."""
ConfirmPolicy = Literal["always", "writes", "complex", "never"]
AtLimit = Literal["ask", "deliver", "stop"]
Verification = Literal["claimed", "grounded", "audited", "judged"]


def check_role(role: str) -> str:
    """Return the role; raise ValueError, with a near match, if it is unknown."""
    if role not in ROLES:
        raise ValueError(f"There is no role {role!r}{name_hint(role, ROLES)}")
    return role


def parse_moment(text: str) -> datetime:
    """Return the moment of an ISO 8601 text, in UTC if it has no zone. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no ISO 8601 moment, such as 2026-12-01T18:00+01:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _names_moment(text: str) -> str:
    parse_moment(text)
    return text


def _names_day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise ValueError(f"{text!r} is no ISO 8601 date, such as 2026-12-01") from None


Day = Annotated[str, AfterValidator(_names_day)]
Moment = Annotated[str, AfterValidator(_names_moment)]
Role = Annotated[str, AfterValidator(check_role)]
Zone = Annotated[str, AfterValidator(check_zone)]


class Profile(Options):
    """The identity of the agent in a run; part of every prompt. Hard constraints are checked by code where possible."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", frozen=True, json_schema_extra=with_prompts)

    name: str = Field(default="", description="the name of the agent")
    role: str = Field(default="", description="one sentence: who the agent is")
    backstory: str = Field(default="", description="where it comes from and what it knows, in a few sentences")
    instructions: str = Field(default="", description="how to work, in your own words and of any length")
    goals: list[str] = Field(default=[], description="its aims in every request")
    tasks: list[str] = Field(default=[], description="its usual requests")
    tone: str = Field(default="", description="its tone, such as “brief and friendly”")
    language: str = Field(
        default="", description="hard: the language of plans and messages; overrides `Settings.language`"
    )
    soft: list[str] = Field(default=[], description="preferences, for the prompt only")
    forbidden_tools: list[str] = Field(
        default=[], description="hard: never offered, never accepted in a plan; exact names of tools"
    )
    allowed_paths: list[str] = Field(
        default=[],
        description="hard: path-like tool arguments must lie under one of these; paths inside other texts, "
        "such as run_command's arguments or query_data's SQL, are not checked; forbid those tools where it matters",
    )


class Settings(Options):
    """The permissions and the behaviour of one run. Every field has a default; None as a context means defaults."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, json_schema_extra=with_nodes
    )

    confirm: ConfirmPolicy = Field(
        default="always",
        description="which plans need a person's approval; writes: plans with a tool that may write",
    )
    approvals: Literal["plan", "shown", "each", "never"] = Field(
        default="shown",
        description="plan: an approved plan allows its steps' tools with any arguments; shown: also, "
        "a write needs approval if one of its arguments has no source: the approved plan, a person, or a field "
        "that names something in a result; each: every write needs approval, and so does skipping the rest of a plan",
    )
    verification: Verification = Field(
        default="audited",
        description="claimed: a goal_check is accepted as it is; grounded: its citations are checked; audited: also, "
        "a judge reviews the answer; judged: also, a judge reviews every step",
    )
    audit_calls: int = Field(default=5, ge=0, le=50, description="the most look-ups that a judge may make per audit")
    limits: Limits = Field(
        default=LIMITS, description="for the whole run; omitted limits keep their defaults, None means no limit"
    )
    step_limits: Limits = Field(default=STEP_LIMITS, description="for each step, with the same rules")
    mode: Literal["auto", "answer", "step", "plan"] = Field(
        default="auto",
        description="how a request is handled; auto: the planner decides",
    )
    promote_rounds: int | None = Field(
        default=None,
        ge=1,
        description="rounds after which more is planned behind a one-step run, which goes on; None: 25, or never "
        "if step_limits limit the rounds of a step",
    )
    plan_rounds: int = Field(default=12, ge=1, le=100, description="model decisions per planning, including reads")
    max_steps: int = Field(default=20, ge=1, le=400, description="the most steps of a plan")
    max_corrections: int = Field(
        default=3, ge=1, le=10, description="unusable replies in a row before a phase or step fails"
    )
    max_refusals: int = Field(default=3, ge=1, le=10, description="refused goal_checks before a step fails")
    max_parallel: int = Field(default=4, ge=1, le=64, description="the most parallel steps")
    on_failure: Literal["replan", "ask", "deliver"] = Field(
        default="replan",
        description="the action after a failed step; one that ends because of a person's words is planned again",
    )
    on_exhausted: AtLimit | None = Field(
        default=None, description="the action at a limit; by default ask, or deliver if `on_question` answers at once"
    )
    on_question: Literal["wait", "default", "assume", "abort"] = Field(
        default="wait",
        description="how a question is answered: by a person (wait), with `default_answer`, with an assumption, or "
        "not at all (abort: the run ends)",
    )
    default_answer: str = Field(default="", description="the answer to every question if `on_question` is default")
    question_seconds: float | None = Field(
        default=None,
        ge=0,
        description="seconds after which the policy, instead of a person, answers an open question or budget request; "
        "workers see to it in submitted and scheduled runs, and in others it does so when the run is resumed",
    )
    answered_by: dict[PauseKind, str] = Field(
        default={},
        description="kind of question (plan, question, tool, budget, effect) → who alone answers it, such as "
        "{tool: operator}: `by` is that name, or begins with it and a colon; set it at the start of a run",
    )
    approvers: dict[str, Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]] = Field(
        default={},
        description="tool that changes something → who alone approves it: the plan that lists it, or each call of it, "
        "under every policy; named as in answered_by",
    )
    when_busy: Literal["refuse", "next_round"] = Field(
        default="refuse", description="how a message (`Agent.tell`) to a run that works or waits is handled"
    )
    deadline: Moment | None = Field(default=None, description="ISO 8601 moment after which no new round starts")
    profile: Profile = Field(default=Profile(), description="the agent's identity, instructions and hard constraints")
    executor: str | None = Field(
        default=None,
        description="the executor of steps that name none; a passthrough executor gets the goal without planning",
    )
    language: str | None = Field(
        default=None, description="BCP 47 tag of the language of plans and messages; default: the user's"
    )
    done_when: Criteria = Field(
        default=[],
        description="criteria that the goal must meet, in addition to the plan's; texts, or {text, check, judge}",
    )
    output_schema: dict[str, Any] | None = Field(
        default=None, description="JSON Schema of the structured result; set it at the start of a run"
    )
    today: Day | None = Field(
        default=None, description="ISO 8601 date that models are told is today's; default: the date in `timezone`"
    )
    tool_context: dict[str, Any] | None = Field(
        default=None,
        description="what tools read as `ToolRuntime.context`, such as who the customer is: JSON, at most 50,000 "
        "characters, no secrets; no model and no client is shown it",
    )
    timezone: Zone | None = Field(default=None, description="the user's time zone, such as Europe/Berlin")
    models: dict[Role, str] = Field(default={}, description="role (triage, plan, execute, judge, deliver) → model name")
    model_seconds: float = Field(
        default=120,
        gt=0,
        description="the longest time a model may send nothing; a reply that streams for five times as long is cut off",
    )
    max_tokens: dict[Role, PositiveInt] = Field(
        default={}, description="role → the most tokens of a reply, including reasoning; by default the model's limit"
    )
    model_retries: int = Field(default=4, ge=0, le=10, description="retries after transient errors, at most 10")
    outage_seconds: float = Field(
        default=0,
        ge=0,
        le=86_400,
        description="how long a run waits for a model that is still away after its retries; it is asked once a minute",
    )
    tool_seconds: float = Field(default=60, gt=0, description="the time limit of one tool call")
    executor_seconds: float = Field(
        default=3600, gt=0, description="the time limit of an executor that works on its own and has none itself"
    )
    context_tokens: int | None = Field(
        default=None,
        ge=500,
        description="the most tokens of a request; by default the limit in the model's profile, if any",
    )
    observation_chars: int = Field(
        default=20_000, ge=200, description="the most characters of a tool result in the prompt; recall reads the rest"
    )
    transcript_chars: int = Field(
        default=200_000,
        ge=2_000,
        description="the most characters of a step's rounds in the prompt; the oldest rounds are dropped first",
    )
    programs: bool = Field(
        default=False,
        description="steps may run programs that call their tools (`run_program`); needs the extra `programs`",
    )
    tool_selection: int = Field(default=24, ge=1, description="tools shown to the planner, most relevant first")

    @model_validator(mode="before")
    @classmethod
    def _drop_blanks(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        whole_values = {key: given[key] for key in WHOLE if given.get(key)}
        shaped = map_texts({key: value for key, value in given.items() if key not in whole_values}, clean_text)
        return {**without_blanks(shaped), **whole_values}

    @field_validator("limits", "step_limits")
    @classmethod
    def _with_defaults(cls, given: Limits, info: Any) -> Limits:
        """Keep the default of each omitted limit: a limit of money should not allow endless replans."""
        default = LIMITS if info.field_name == "limits" else STEP_LIMITS
        whole = default.model_copy(update={key: getattr(given, key) for key in given.model_fields_set})
        whole.__pydantic_fields_set__.intersection_update(given.model_fields_set)  # `merge_settings` reads it
        return whole

    @field_validator("output_schema")
    @classmethod
    def _check_size(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is not None and (size := len(json.dumps(given))) > SCHEMA_CHARS:
            raise ValueError(f"the schema has {size:,} characters; at most {SCHEMA_CHARS:,}")
        return given or None

    @field_validator("tool_context")
    @classmethod
    def _check_context(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is None:
            return None
        try:
            plain: dict[str, Any] = plain_json(given)
        except ValueError as error:
            problem = "what tools are given (`context=`) cannot be stored as JSON"
            raise ValueError(f"{problem}: {error}; give the names of things, and let the tool open them") from None
        if (size := len(json.dumps(plain, ensure_ascii=False))) > CONTEXT_CHARS:
            raise ValueError(f"what tools are given has {size:,} characters as JSON; at most {CONTEXT_CHARS:,}")
        return plain

    @field_validator("done_when")
    @classmethod
    def _check_mode(cls, given: Criteria, info: Any) -> Criteria:
        if given and info.data.get("mode") == "answer":
            raise ValueError("mode 'answer' has no steps that could meet it; leave one of the two out")
        return given

    @property
    def wanted_mode(self) -> str:
        """The mode that triage must choose: `plan` if there are criteria, which only steps can meet."""
        return "plan" if self.done_when and self.mode == "auto" else self.mode

    @property
    def speaks(self) -> str | None:
        """The language of plans and messages; None means the user's."""
        return self.profile.language or self.language or None

    @property
    def unattended(self) -> bool:
        """True if the settings answer questions at once, and no person is asked."""
        return self.on_question != "wait" and self.question_seconds is None

    @property
    def at_limit(self) -> AtLimit:
        """The action at a limit: `on_exhausted`, or its default."""
        return self.on_exhausted or ("deliver" if self.unattended else "ask")

    @property
    def today_text(self) -> str:
        """The date for prompts: `today`, else in the user's time zone if it is set, otherwise in UTC."""
        zone = f" ({self.timezone})" if self.timezone else ""
        day = date.fromisoformat(self.today) if self.today else datetime.now(ZoneInfo(self.timezone or "UTC"))
        return f"{day:%A, %Y-%m-%d}{zone}"

    @property
    def promote_after(self) -> int | None:
        """The rounds after which more is planned behind a one-step run; None means never."""
        limited = "step_limits" in self.model_fields_set and "rounds" in self.step_limits.model_fields_set
        return self.promote_rounds if limited or self.promote_rounds is not None else PROMOTE_ROUNDS

    def is_late(self, now: datetime | None = None) -> bool:
        """Return whether the deadline has passed."""
        return self.deadline is not None and (now or datetime.now(UTC)) >= parse_moment(self.deadline)


SettingsLike = Settings | Mapping[str, Any] | None
"""Settings as an instance, a mapping, or None."""


def read_settings(given: SettingsLike) -> Settings:
    """Return the settings in `given`; None means defaults. Raises ConfigError for unknown names and invalid values."""
    if isinstance(given, Settings):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"settings are a Settings or a dict, not {type(given).__name__}")
    try:
        return Settings.model_validate(given or {})
    except ValidationError as error:
        raise ConfigError(f"settings: {'; '.join(option_problems(Settings, error))}") from None


def merge_settings(base: Settings, given: SettingsLike) -> Settings:
    """Return `base` updated with `given`, field by field; limits, profile, models and tool_context by their own fields.

    Hard constraints only grow: tools forbidden by `base` stay forbidden, paths stay within its allowed ones, and its
    profile's language is kept. Raises ConfigError like `read_settings`, and for paths outside the allowed ones.
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
        profile = Profile.model_validate(change["profile"])
        forbidden = dict.fromkeys([*base.profile.forbidden_tools, *profile.forbidden_tools])
        within = _common_paths(base.profile.allowed_paths, profile.allowed_paths)
        fixed_language = {"language": base.profile.language} if base.profile.language else {}
        whole["profile"] |= {"forbidden_tools": list(forbidden), "allowed_paths": within, **fixed_language}
    return read_settings(whole)


def keep_to(house: Settings, settings: Settings) -> Settings:
    """Return the settings within the hard constraints of `house`: the tools that it forbids and the paths it allows.

    Raises ConfigError if the allowed paths of both have nothing in common.
    """
    hard = {key: getattr(house.profile, key) for key in HARD if getattr(house.profile, key)}
    return merge_settings(read_settings({"profile": hard}), settings) if hard else settings


def _common_paths(base: list[str], given: list[str]) -> list[str]:
    """Return the paths that both allow; an empty list allows all."""
    if not base or not given:
        return base or given
    both = [path for path in given if any(PurePath(path).is_relative_to(each) for each in base)]
    both += [path for path in base if any(PurePath(path).is_relative_to(each) for each in given) and path not in both]
    if not both or any(".." in PurePath(path).parts for path in given):
        raise ConfigError(f"settings: profile.allowed_paths {given} lie outside of {base}, which this agent is kept to")
    return both


def _chain(*values: str) -> dict[str, frozenset[str]]:
    """Return the values from the least to the most careful, each with all that it covers."""
    return {value: frozenset(values[1 : place + 1]) for place, value in enumerate(values)}


CARE: dict[str, dict[str, frozenset[str]]] = {
    "confirm": {
        "never": frozenset(),
        "complex": frozenset({"complex plans"}),
        "writes": frozenset({"plans that write"}),
        "always": frozenset({"complex plans", "plans that write", "all other plans"}),
    },
    "approvals": _chain("never", "plan", "shown", "each"),
    "verification": _chain("claimed", "grounded", "audited", "judged"),
}
"""The values of a setting that each value covers; a value that covers more is more careful. Lower limits and earlier
deadlines are more careful.
"""
NEAR = 0.8
"""How much a name has to be like that of a setting to be taken for a misspelt one."""
HARD = ("forbidden_tools", "allowed_paths")
"""The fields of a profile that no run can loosen."""
NEVER_LOWERED = ("confirm", "approvals")
"""Settings that no client can lower, even if the operator pinned nothing."""


def more_careful(name: str, pinned: str, asked: str) -> str:
    """Return the least careful value that covers everything either value covers."""
    values, wanted = CARE[name], CARE[name][pinned] | CARE[name][asked]
    return min((value for value in values if values[value] >= wanted), key=lambda value: len(values[value]))


def confine_settings(pinned: Settings, asked: Mapping[str, Any], *, models: bool) -> tuple[Settings, list[str]]:
    """Return the settings for a run whose client asked for `asked`, and the names that were not adopted.

    Settings in `pinned` are kept, but a client may ask for more care (see `CARE`) and for fewer tools and paths.
    `models` says whether it may choose models; what tools are given is never its choice. Raises ConfigError for invalid
    values.
    """
    known, refused = known_settings(asked)
    wanted = read_settings({key: value for key, value in known.items() if value not in (None, "")})
    given = wanted.model_dump(exclude_unset=True)
    for key in list(given):
        least, value = getattr(pinned, key), getattr(wanted, key)
        bound = key in pinned.model_fields_set
        if key in CARE and (bound or key in NEVER_LOWERED):
            given[key] = more_careful(key, least, value)
            refused += [key] if CARE[key][value] < CARE[key][least] else []
        elif key in ("limits", "step_limits") and bound:
            most = least.model_dump(exclude_none=True)
            lower = {name: amount for name, amount in given[key].items() if _is_within(amount, most.get(name))}
            refused += [f"{key}.{name}" for name in given[key] if name not in lower]
            given[key] = lower
        elif key == "deadline" and bound and least and parse_moment(value) < parse_moment(least):
            continue
        elif key == "profile":
            given[key] = {name: field for name, field in given[key].items() if not bound or name in HARD}
        elif bound or key == "tool_context" or (key in ("models", "max_tokens") and not models):
            refused.append(key)
            del given[key]
    return merge_settings(pinned, given), refused


def _is_within(amount: float | None, most: float | None) -> bool:
    return most is None or (amount is not None and amount <= most)


def known_settings(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the known settings in `given`, and the unknown names; for data from elsewhere."""
    known = {key: value for key, value in given.items() if key in Settings.model_fields}
    return known, [str(key) for key in given if key not in Settings.model_fields]


def misspelt_settings(given: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with names that are almost those of settings: a person meant one, and no other program."""
    unknown = known_settings(given)[1]
    near = {name: get_close_matches(name[:100], list(Settings.model_fields), n=1, cutoff=NEAR) for name in unknown}
    return [f"there is no {name[:40]!r}; did you mean {close[0]!r}?" for name, close in near.items() if close]


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """Read stored settings, possibly of another version; unknown values become defaults."""
    known = known_settings(stored)[0]
    try:
        return Settings.model_validate(known)
    except ValidationError as error:
        unknown = {str(item["loc"][0]) for item in error.errors()}
        return Settings.model_validate({key: value for key, value in known.items() if key not in unknown})
