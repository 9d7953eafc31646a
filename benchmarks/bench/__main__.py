"""`python -m benchmarks.bench`: every scenario of every peer, in turns, a few times; docs/performance.md.

`python -m benchmarks.bench talk data` measures these scenarios anew and keeps the others; `page` writes the page of
what is kept.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.bench.page import write_page

HERE = Path(__file__).parent
VENVS = HERE.parents[1] / ".bench"
TIMES = int(os.environ.get("TIMES", "3"))
ROOT = HERE.parents[1]
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
    *((name, n) for name in ("rounds", "sqlite", "durable") for n in (10, 50, 200)),
    *((name, n) for name in ("unsaved", "writes", "durable_writes") for n in (10, 200)),
    *((name, 300) for name in ("talk", "talk_memory")),
    *((name, 200) for name in ("data", "steps", "prompts")), ("data", 1000),
    *(("memory", n) for n in (50, 500)), *(("resumed", n) for n in (10, 1000)),
    ("cold", 0), ("sides", 4), ("sides", 16), ("token", 0), ("help", 0),
]  # fmt: skip
ONLY = {
    "durable": ("donewhen", "LangGraph", "create_agent"),
    **dict.fromkeys(
        ("unsaved", "durable_writes", "talk", "talk_memory", "resumed", "token"), ("donewhen", "create_agent")
    ),
    **dict.fromkeys(("cold", "sides"), ("donewhen", "LangGraph")),
    **dict.fromkeys(("data", "steps", "help"), ("donewhen",)),
}
"""The peers of scenarios that not all have."""
ONCE = ("data", "memory", "prompts", "steps")
"""Scenarios that take the best of many by themselves, or count and do not time."""


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
    here = not venv or (scenario, peer) == ("cold", "LangGraph")  # how much there is to import counts there
    python = Path(sys.executable) if here else VENVS / venv / "bin" / "python"
    if scenario == "help":
        return _help()
    # Everybody's modules are compiled once, as they are for those who use them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [python, HERE / "peers" / f"{script}.py", scenario, str(n)]
    if scenario == "data":
        command = [python, "-m", "benchmarks.data", str(n), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
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
    """All peers take turns, so that what else the machine does falls on all of them alike.

    Those of the ratio follow each other, because the speed of a machine changes within a minute; every other turn
    goes backwards.
    """
    for scenario, n in [each for each in SCENARIOS if not chosen or each[0] in chosen]:
        started = time.monotonic()
        having = sorted(ONLY.get(scenario, PEERS), key=lambda peer: peer not in ("donewhen", "create_agent"))
        for _ in range(1 if scenario in ONCE else TIMES):
            found = {peer: measure(peer, scenario, n) for peer in having}
            having = [peer for peer in having if found[peer]][::-1]
            yield from (((peer, scenario, n), found[peer]) for peer in having)
        print(f"{scenario} {n} took {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    """Measure all, or the scenarios that are named, and write the page; of the others it keeps what it has."""
    installed()
    kept, chosen = VENVS / "measured.json", sys.argv[1:]
    measured: dict[tuple[str, str, int], list[dict[str, float]]] = {}
    if chosen and kept.exists():
        measured = {
            (peer, name, n): turns for peer, name, n, turns in json.loads(kept.read_text()) if name not in chosen
        }
    for key, found in runs(chosen):
        measured.setdefault(key, []).append(found)
        print(*key, {name: round(value, 3) for name, value in found.items()}, flush=True)
    kept.write_text(json.dumps([[*key, turns] for key, turns in measured.items()]))
    write_page(measured, [*PEERS], TIMES)


if __name__ == "__main__":
    main()
