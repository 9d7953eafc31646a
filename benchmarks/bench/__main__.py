"""`python -m benchmarks.bench`: every scenario of every peer, interleaved; the best of a few; docs/performance.md."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench.page import written

HERE = Path(__file__).parent
VENVS = HERE.parents[1] / ".bench"
TIMES = int(os.environ.get("TIMES", "3"))
PEERS = {
    "donewhen": ("ours", ""),
    "bare loop": ("bare", "langchain"),
    "LangGraph": ("langgraph_loop", "langchain"),
    "create_agent": ("create_agent", "langchain"),
    "deepagents": ("deep", "deepagents"),
    "openai-agents": ("openai_agents", "openai-agents"),
    "pydantic-ai": ("pydantic_loop", "pydantic-ai"),
}
"""Name → its script, and its environment; "" is ours."""
PACKAGES = {
    "langchain": ["langchain", "langgraph", "langgraph-checkpoint-sqlite", "openai", "httpx"],
    "deepagents": ["deepagents", "langgraph-checkpoint-sqlite"],
    "openai-agents": ["openai-agents"],
    "pydantic-ai": ["pydantic-ai-slim[openai]"],
}
SCENARIOS = [
    *((name, n) for name in ("rounds", "unsaved", "writes", "sqlite", "durable") for n in (10, 50, 200)),
    *(("durable_writes", n) for n in (10, 200)),
    ("talk", 300),
    *(("memory", n) for n in (50, 500)),
    *(("resumed", n) for n in (10, 1000)),
    ("steps", 200), ("prompts", 200), ("cold", 0), ("sides", 4), ("sides", 16), ("token", 0), ("help", 0),
]  # fmt: skip
Measured = dict[tuple[str, str, int], dict[str, float]]


def installed() -> None:
    """An environment for each peer, made once; delete `.bench` to have them anew."""
    for name, packages in PACKAGES.items():
        if not (VENVS / name / "ready").exists():
            print(f"installing {name}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", VENVS / name], check=True)
            subprocess.run(
                [VENVS / name / "bin" / "pip", "install", "-q", "--only-binary", ":all:", *packages], check=True
            )
            (VENVS / name / "ready").touch()


def measure(peer: str, scenario: str, n: int) -> dict[str, float]:
    """One run of one scenario in a process of its own; {} if the peer has no such scenario."""
    script, venv = PEERS[peer]
    python = VENVS / venv / "bin" / "python" if venv else Path(sys.executable)
    if scenario == "help":
        return _help() if peer == "donewhen" else {}
    # Everybody's modules are compiled once, as they are for those who use them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [python, HERE / "peers" / f"{script}.py", scenario, str(n)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        print(f"{peer} {scenario} {n} failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return {}
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _help() -> dict[str, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([Path(sys.executable).parent / "donewhen", "--help"], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"ms": 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)}


def runs(chosen: Sequence[str]) -> Iterator[tuple[tuple[str, str, int], dict[str, float]]]:
    """All peers take turns, so that what else the machine does falls on all of them alike."""
    for scenario, n in [each for each in SCENARIOS if not chosen or each[0] in chosen]:
        for _ in range(1 if scenario in ("prompts", "steps", "memory", "talk") else TIMES):
            for peer in PEERS:
                if found := measure(peer, scenario, n):
                    yield (peer, scenario, n), found


def main() -> None:
    """Measure all, or the scenarios that are named, and write the page; of the others it keeps what it has."""
    installed()
    kept, chosen = VENVS / "measured.json", sys.argv[1:]
    best: Measured = {}
    if kept.exists():
        best = {(peer, name, n): row for peer, name, n, row in json.loads(kept.read_text()) if name not in chosen}
    best = best if chosen else {}
    for key, found in runs(chosen):
        before: dict[str, Any] = best.get(key, {})
        best[key] = {name: min(value, before.get(name, value)) for name, value in found.items()}
        print(*key, {name: round(value, 3) for name, value in found.items()}, flush=True)
    kept.write_text(json.dumps([[*key, row] for key, row in best.items()]))
    written(best, list(PEERS), TIMES)


if __name__ == "__main__":
    main()
