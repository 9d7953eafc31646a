"""F6: what a perfect model writes, spoiled on purpose, and what is made of it."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage

from benchmarks.faults.figures import Figure, Measured, none, of, others
from benchmarks.faults.replies import KINDS, Spoil, Spoiler, broken, placeholders, truncated
from benchmarks.faults.world import TOOLS, World, agent_for, carry, perfect, shop, tau_worlds
from donewhen.agent.tools import as_tools
from donewhen.graph.llm.reply import Decision, read_reply
from donewhen.graph.tools.toolbox import Toolbox

SHOPS = {0.0: 20, 0.1: 100, 0.3: 200, 0.5: 100}
"""Share of spoiled replies → runs."""
RETAIL = {0.0: 1, 0.3: 10}
"""The same → seeds."""
LEGAL = ("ask_user", "finish_step", "finish_task", "give_up", "recall")


@dataclass
class Tally:
    """The results of the runs at one share of spoiled replies."""

    runs: int = 0
    right: int = 0
    false_done: int = 0
    """Runs that say they are completed and are not."""
    wrong_calls: int = 0
    doubled: int = 0
    spoiled: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)


async def spoiled_run(world: World, spoiler: Spoiler, tally: Tally) -> None:
    """One run of the perfect model whose replies are spoiled."""
    model = perfect(world, spoiler)
    run = await carry(agent_for(world, model), world)
    if model.failures:
        raise model.failures[0]
    done = run.status in ("completed", "answered")
    tally.runs += 1
    tally.right += done and world.right
    tally.false_done += done and not world.right
    tally.wrong_calls += world.wrong
    tally.doubled += world.doubled
    tally.spoiled.update(spoiler.counts)
    tally.ends[f"{run.status} {(run.outcome or {}).get('code')}"] += 1


async def spoiled_shop(rate: float, seeds: Iterable[int], kinds: tuple[Spoil, ...] = KINDS) -> Tally:
    """A run in the shop per seed."""
    tally = Tally()
    for seed in seeds:
        await spoiled_run(shop(seed), Spoiler(rate, seed, kinds), tally)
    return tally


async def spoiled_tau(rate: float, seeds: Iterable[int]) -> Tally:
    """Every recorded task once per seed."""
    tally = Tally()
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            for number, world in enumerate(tau_worlds(Path(folder))):
                await spoiled_run(world, Spoiler(rate, 1000 * seed + number), tally)
    return tally


def read_texts(seeds: Iterable[int]) -> tuple[int, int, list[str]]:
    """Texts read without a run: how many, of how many something was read, and those read as what was not meant."""
    toolbox = Toolbox(as_tools(TOOLS, caller=lambda name, arguments: ""))
    number, taken, wrong = 0, 0, []
    for seed in seeds:
        randoms = random.Random(f"texts {seed}")
        for name, arguments in shop(seed).actions:
            for spoil in (broken, truncated, placeholders):
                reply: Any = spoil(name, arguments, randoms)
                message = AIMessage(reply) if isinstance(reply, str) else reply
                found = read_reply(message, LEGAL, toolbox)
                number += 1
                if isinstance(found, Decision) and found.kind != "speak":
                    taken += 1
                    calls = [(each["name"], each["args"]) for each in found.calls]
                    wrong += [] if calls == [(name, arguments)] else [str(message.text)]
    return number, taken, wrong


async def collect(folder: Path) -> Measured:
    """F6."""
    shops = {rate: await spoiled_shop(rate, range(runs)) for rate, runs in SHOPS.items()}
    retail = {rate: await spoiled_tau(rate, range(seeds)) for rate, seeds in RETAIL.items()}
    number, taken, wrong = read_texts(range(300))
    times = {name: seconds_for(text) for name, text in endless().items()}
    figures = [
        *(_right(f"{rate:.0%} of the replies spoiled: runs that end right", shops[rate], rate) for rate in shops),
        *(_right(f"recorded retail tasks, {rate:.0%} spoiled: right", retail[rate], rate) for rate in retail),
        none("F6", "calls nobody meant, of all runs", *_total("wrong_calls", shops, retail)),
        none("F6", "runs that say they are completed and are not", *_total("false_done", shops, retail)),
        none("F6", "doubled changes", *_total("doubled", shops, retail)),
        none("F6", f"damaged texts read as something else ({taken} were read)", number, len(wrong)),
        _slowest(times),
    ]
    ends = {f"{rate:.0%}": tally.ends for rate, tally in shops.items()}
    ends |= {f"{rate:.0%}, retail": tally.ends for rate, tally in retail.items()}
    misread = "\n\n".join(f"Read as something else:\n\n```\n{text}\n```" for text in wrong[:3])
    return Measured(figures, f"{others(ends)}\n\n{misread}".rstrip())


def _right(what: str, tally: Tally, rate: float) -> Figure:
    return of("F6", what, tally.runs, tally.right, 0.98 if 0 < rate <= 0.3 else 0.9 if rate else 1.0)


def _total(name: str, *tallies: Mapping[float, Tally]) -> tuple[int, int]:
    every = [tally for each in tallies for tally in each.values()]
    return sum(tally.runs for tally in every), sum(getattr(tally, name) for tally in every)


def _slowest(times: Mapping[str, float]) -> Figure:
    name = max(times, key=lambda each: times[each])
    words = f"{times[name] * 1000:.0f} ms ({name})"
    return Figure(
        "F6", "the slowest reply of 100,000 characters to read", len(times), words, "< 50 ms", times[name] < 0.05
    )


def endless() -> dict[str, str]:
    """Replies that would keep a careless reader busy, each of 100,000 characters."""
    units = {
        "brackets": "[", "braces": '{"a":', "quotes": '"', "escapes": "\\", "fences": "```json\n", "commas": "[1,",
        "thoughts": "<think>", "ends": "</think>", "calls": "<tool_call>", "apostrophes": "{'",
        "actions": 'Action: {"action"', "comments": "/*", "spaces": " ",
        "lines": "\n", "letters": "a", "objects": '{"action": "x"} ',
    }  # fmt: skip
    return {name: (unit * 100_000)[:100_000] for name, unit in units.items()}


def seconds_for(text: str) -> float:
    """Processor time to read a reply; the least of three, as others use the processor too."""
    toolbox = Toolbox(as_tools(TOOLS, caller=lambda name, arguments: ""))

    def once() -> float:
        began = time.process_time()
        read_reply(AIMessage(text), LEGAL, toolbox)
        return time.process_time() - began

    return min(once() for _ in range(3))
