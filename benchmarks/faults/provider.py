"""F7: what goes wrong between a runtime and a model provider, acted out over HTTP and met by a real client."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.faults.figures import Measured, none, of, others
from benchmarks.faults.world import World, agent_for, carry, perfect, shop
from benchmarks.report import table
from benchmarks.retail_world import EVALS
from donewhen import Agent, Run
from donewhen.agent.config import Config
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault

RECORDED = EVALS / "data" / "provider_errors.jsonl"
RUNS = {0.1: 50, 0.2: 200, 0.4: 50}
"""Share of requests that fail → runs."""
SETTINGS = {"model_seconds": 2.0}
SOON = {"retry-after-ms": "20"}
"""Spares the tests the back-off; every third fault comes without it."""
TRANSIENT = (408, 409, 429, 500, 502, 503, 504, 529)
LASTING = (400, 401, 402, 403, 404, 405, 413, 415, 422, 501)


class Flaky:
    """Turns a share of the answers into faults, each of a random kind; counts them."""

    def __init__(self, rate: float, seed: int) -> None:
        self._rate, self._randoms = rate, random.Random(f"provider {seed}")
        self.counts: dict[str, int] = {}

    def __call__(self, said: Any) -> Any:
        if self._randoms.random() >= self._rate:
            return said
        kind = self._randoms.choice(["status", "status", "429", "reset", "cut", "stall", "hang", "garbage"])
        self.counts[kind] = self.counts.get(kind, 0) + 1
        headers = SOON if self._randoms.random() < 0.7 else {}
        match kind:
            case "status":
                return fault(status=self._randoms.choice(TRANSIENT), headers=headers)
            case "429":
                return fault(status=429, headers={"Retry-After": "0"})
            case "reset":
                return fault(reset=True)
            case "cut":
                return fault(reset_after=self._randoms.randrange(4), reply=said)
            case "stall":
                return fault(stall_after=self._randoms.randrange(4), reply=said)
            case "hang":
                return fault(hang=10.0)
        return fault(garbage=self._randoms.choice([b"", b"<html>Bad gateway</html>", b"data: {\n\n", b"\xff\xfe"]))


@dataclass
class Tally:
    """The results of the runs at one share of faults."""

    runs: int = 0
    right: int = 0
    wrong_calls: int = 0
    doubled: int = 0
    faults: int = 0
    requests: int = 0
    uncharged: int = 0
    """Requests that reached the server and are not in the ledger."""
    ends: Counter[str] = field(default_factory=Counter)


def client(server: WireServer, world: World, **settings: Any) -> Agent:
    """An agent that speaks to the server as it would to OpenAI."""
    config = Config(model="openai:scripted", storage="memory:", api_key="sk-test", base_url=server.base_url)
    return agent_for(world, None, config=config, settings={**SETTINGS, **settings})


async def flaky_run(rate: float, seed: int, tally: Tally) -> None:
    """One run through a provider that fails for a share of the requests."""
    world, flaky = shop(seed, 2), Flaky(rate, seed)
    with WireServer(perfect(world, flaky)) as server:
        run = await carry(client(server, world), world)
        requests = len(server.requests)
    tally.runs += 1
    tally.right += run.status == "completed" and world.right
    tally.wrong_calls += world.wrong
    tally.doubled += world.doubled
    tally.faults += sum(flaky.counts.values())
    tally.requests += requests
    tally.uncharged += max(0, requests - int(run.spent["model_calls"]))
    tally.ends[f"{run.status} {(run.outcome or {}).get('code')}"] += 1


async def flaky_runs(rate: float, seeds: Sequence[int], at_once: int = 10) -> Tally:
    """So many runs, several at once, since most of their time is waiting."""
    import langchain_openai  # noqa: F401 - takes a second, which would count as the first model's silence

    tally, gate = Tally(), asyncio.Semaphore(at_once)

    async def one(seed: int) -> None:
        async with gate:
            await flaky_run(rate, seed, tally)

    await asyncio.gather(*(one(seed) for seed in seeds))
    return tally


@dataclass(frozen=True)
class Met:
    """The end of a run whose requests, from the `first` on, all met the same error."""

    requests: int
    """With the error."""
    again: Sequence[str]
    """For each of them after the first, what of it is not as in the one before; empty if it is the same request."""
    charged: bool
    run: Run


def _difference(before: Any, after: Any) -> str:
    """Name the parts in which two requests differ, in the words of the protocol."""
    keys = [key for key in {**before, **after} if key != "messages" and before.get(key) != after.get(key)]
    roles = [{each["role"] for each in body["messages"]} for body in (before, after)]
    gone = [f"{role} message" for role in sorted(roles[0] - roles[1])]
    changed = ["messages"] if not gone and before["messages"] != after["messages"] else []
    return ", ".join((*gone, *changed, *keys))


async def always(status: int, headers: dict[str, str], body: Any, first: int = 0, retries: int = 1) -> Met:
    """A run in which every model call from number `first` on gets this answer."""
    world, asked = shop(1, 1), 0

    def answer(said: Any) -> Any:
        nonlocal asked
        asked += 1
        return said if asked <= first else fault(status=status, headers=headers, body=body)

    with WireServer(perfect(world, answer)) as server:
        run = await carry(client(server, world, model_retries=retries, model_seconds=60), world)
        bodies = [request.body for request in server.requests]
    again = [_difference(*each) for each in pairwise(bodies[first:])]
    return Met(len(bodies) - first, again, len(bodies) == int(run.spent["model_calls"]), run)


def recorded() -> list[dict[str, Any]]:
    """Errors of real providers; empty where the recordings are not beside this repository."""
    if not RECORDED.exists():
        return []
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


def reply_in(row: dict[str, Any]) -> str:
    """Return what the model said, if an error holds it, such as a call that the server cannot read; that is a reply."""
    error = row["body"].get("error") if isinstance(row["body"], dict) else None
    return str(error.get("failed_generation") or "") if isinstance(error, dict) else ""


async def replayed(row: dict[str, Any], first: int = 0) -> Met:
    """A recorded error as the answer to every request."""
    body = row["body"]
    headers = {name: values[0] for name, values in row["headers"].items() if name.lower() != "content-length"}
    headers.pop("content-type", None)
    return await always(row["status"], headers, body, first)


def honest(met: Met, status: int) -> bool:
    """Ended as failed, with words that say what happened and what to do, everything charged, lasting errors once."""
    outcome = met.run.outcome or {}
    told = outcome.get("text", "")
    clear = f"HTTP {status}" in told and "It says:" in told and "sk-test" not in told
    # Only a request in another form, without what the server names, is sent after an error that lasts; once.
    often = met.requests == 2 if status in TRANSIENT else met.requests == 1 or (met.requests == 2 and all(met.again))
    return met.run.status == "failed" and clear and met.charged and often


def heard(met: Met, said: str) -> bool:
    """Ended by what the model said in the error: its words are the answer, or the tool that it wants is named."""
    try:
        wanted = json.loads(said)["name"]
    except (ValueError, TypeError, KeyError):
        wanted = said
    told = (met.run.outcome or {}).get("text", "")
    return wanted in told and "HTTP" not in told and met.charged and all(met.again)


def ends_rightly(met: Met, row: dict[str, Any]) -> bool:
    """Ended by what a recorded error means."""
    return heard(met, said) if (said := reply_in(row)) else honest(met, row["status"])


async def collect(folder: Path) -> Measured:
    """F7."""
    clean = await flaky_runs(0.0, range(10))
    flaky = {rate: await flaky_runs(rate, range(runs)) for rate, runs in RUNS.items()}
    lasting, transient = await _outcomes(LASTING), await _outcomes(TRANSIENT)
    rows = recorded()
    met = await asyncio.gather(*(replayed(row) for row in rows))
    replies = [(each, said) for row, each in zip(rows, met, strict=True) if (said := reply_in(row))]
    errors = [(row["status"], each) for row, each in zip(rows, met, strict=True) if not reply_in(row)]
    permanent = [(status, each) for status, each in (*lasting, *errors) if status not in TRANSIENT]
    tallies = [clean, *flaky.values()]
    runs = sum(tally.runs for tally in tallies)
    figures = [
        of("F7", "no request fails: runs that end right", clean.runs, clean.right),
        *(of("F7", f"{rate:.0%} of the requests fail: right", tally.runs, tally.right, 0.99 if rate <= 0.2 else 0.9)
          for rate, tally in flaky.items()),
        none("F7", "calls nobody meant, or twice", runs, sum(tally.wrong_calls + tally.doubled for tally in tallies)),
        none("F7", "requests the ledger does not know", sum(tally.requests for tally in tallies),
             sum(tally.uncharged for tally in tallies)),
        none("F7", f"requests sent again as they were after {', '.join(map(str, LASTING))}", *_repeated(permanent)),
        of("F7", "lasting and transient errors that never stop: failed, in clear words", len(lasting) + len(transient),
           sum(honest(each, status) for status, each in (*lasting, *transient))),
    ]  # fmt: skip
    if rows:
        known = sum(honest(each, status) for status, each in errors)
        figures.append(of("F7", "recorded provider errors: failed, in clear words", len(errors), known))
        read = sum(heard(each, said) for each, said in replies)
        figures.append(of("F7", "recorded errors that hold the model's reply: read as its reply", len(replies), read))
    shown = others({f"{rate:.0%}": tally.ends for rate, tally in {0.0: clean, **flaky}.items()})
    again = [
        (_words(row), row["status"], *each.again) for row, each in zip(rows, met, strict=True) if _is_changed(row, each)
    ]
    if again:
        shown += "\n\nAsked again once, in another form, because the server names what it refuses:\n\n"
        shown += table(["recorded refusal", "status", "what is another then"], again)
    return Measured(figures, shown)


def _is_changed(row: dict[str, Any], met: Met) -> bool:
    return row["status"] not in TRANSIENT and not reply_in(row) and met.requests > 1


def _words(row: dict[str, Any]) -> str:
    """Return what a recorded error says, shortened."""
    body = row["body"]
    said = body.get("error", body) if isinstance(body, dict) else body
    said = said.get("message", said) if isinstance(said, dict) else said
    return " ".join(str(said).replace("|", "/").split())[:90]


async def _outcomes(statuses: Sequence[int]) -> list[tuple[int, Met]]:
    """Each status as the answer to everything from the first request on, and from the third, in a step."""
    asked = [(status, first) for first in (0, 2) for status in statuses]
    met = await asyncio.gather(*(always(status, SOON, None, first) for status, first in asked))
    return [(status, each) for (status, _), each in zip(asked, met, strict=True)]


def _repeated(met: Sequence[tuple[int, Met]]) -> tuple[int, int]:
    return len(met), sum(not changed for _, each in met for changed in each.again)
