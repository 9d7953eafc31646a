"""Run-scoped settings: the graph's `context_schema`. Defaults for everything, no secrets, nothing live."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from state.ledger import Limits

ConfirmPolicy = Literal["always", "complex", "never"]
Verification = Literal["claimed", "grounded", "judged"]


class Profile(BaseModel):
    """Who the agent is for this run; shapes every prompt. Hard constraints are checked by code where they can be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str = Field(default="", description="one sentence: who the agent is")
    goals: list[str] = []
    tone: str = ""
    soft: list[str] = Field(default=[], description="preferences, for the prompt only")
    forbidden_tools: list[str] = Field(default=[], description="hard: never offered, never accepted in a plan")
    allowed_paths: list[str] = Field(
        default=[], description="hard: path-like tool arguments must lie under one of these"
    )


class Settings(BaseModel):
    """What one run may do and how it behaves. Every field has a default; `None` for a context means all defaults."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    confirm: ConfirmPolicy = Field(default="always", description="which plans wait for a person")
    approvals: Literal["plan", "each", "never"] = Field(
        default="plan", description="plan: approving a plan approves the tools its steps list; each: every write asks"
    )
    verification: Verification = Field(default="grounded", description="what a finished step must prove")
    limits: Limits = Field(default=Limits(rounds=100, replans=2, questions=20), description="for the whole run")
    step_limits: Limits = Field(default=Limits(rounds=15), description="for each step")
    plan_rounds: int = Field(default=6, ge=1, le=100, description="model decisions per planning")
    max_steps: int = Field(default=20, ge=1, le=200)
    max_corrections: int = Field(
        default=3, ge=1, le=10, description="unusable replies in a row before a phase or step fails"
    )
    max_refusals: int = Field(default=3, ge=1, le=10, description="refused goal_checks before a step fails")
    max_parallel: int = Field(default=4, ge=1, le=64, description="steps at once")
    on_failure: Literal["replan", "ask", "deliver"] = Field(default="replan", description="after a step failed")
    on_exhausted: Literal["ask", "deliver", "stop"] = Field(default="ask", description="when a limit is reached")
    on_question: Literal["wait", "default", "assume", "abort"] = Field(
        default="wait", description="what answers a question: a person, `default_answer`, an assumption, or nobody"
    )
    default_answer: str = ""
    question_seconds: float | None = Field(
        default=None, ge=0, description="a question open longer than this is answered by policy when the run is resumed"
    )
    deadline: str | None = Field(default=None, description="ISO 8601 moment after which no new round starts")
    profile: Profile = Profile()
    executor: str | None = Field(default=None, description="an executor that takes the whole goal, without planning")
    language: str | None = Field(default=None, description="language of plan and speech; default: the user's")
    models: dict[str, str] = Field(default={}, description="role (triage, plan, execute, judge, deliver) → model name")
    model_seconds: float = Field(default=120, gt=0, description="one model call, and the longest silence in a stream")
    model_retries: int = Field(default=3, ge=0, le=10, description="repetitions after transient errors")
    tool_seconds: float = Field(default=60, gt=0, description="one tool call")
    observation_chars: int = Field(
        default=6000, ge=200, description="of a tool result in the prompt; the rest by recall"
    )
    transcript_chars: int = Field(
        default=200_000, ge=2_000, description="of a step's rounds in the prompt; beyond it the oldest whole rounds go"
    )
    tool_selection: int = Field(default=24, ge=1, description="tools shown to the planner, most relevant first")
