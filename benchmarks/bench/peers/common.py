"""Shared code of all peers' scenarios; needs nothing but Python. A peer is a script: SCENARIO N → JSON."""

import gc
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

TEXT = "value 12345 of item " * 25
"""What the tool returns in every round: 500 characters."""
USAGE = {"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}
ASKED = "what is seven times this number? " + "Some words of a question. " * 5
SAID = "The answer is seven times that. " + "Some more words of an answer. " * 10
GOAL = "Look at every item and say what the value is."


def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {TEXT}"


def put(what: str) -> str:
    """Put something somewhere."""
    return f"put {what}: {TEXT}"


class Prompts:
    """Counts what is sent to a model: bytes in all, and how much of a request begins as the one before it did."""

    def __init__(self) -> None:
        self.bytes = self.same = 0
        self._before = b""

    def sent(self, request: Any) -> None:
        """Note one request."""
        data = json.dumps(request, default=str).encode()
        self.bytes += len(data)
        self.same += len(os.path.commonprefix([self._before, data]))  # noqa: RUF071
        self._before = data


def cpu(work: Callable[[], None]) -> float:
    """CPU milliseconds of this process."""
    gc.collect()
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def settled() -> None:
    """Let what came before end: garbage, and threads that are closing files."""
    gc.collect()
    time.sleep(1)


def stored(folder: str) -> float:
    """Megabytes in a folder."""
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()) / 1e6


def in_folder(work: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """With a new folder that goes away."""
    with tempfile.TemporaryDirectory() as folder:
        return work(folder)


def per_round(work: Callable[[str], None], n: int) -> dict[str, Any]:
    """CPU milliseconds a round and megabytes stored: the best of as many runs of N rounds as make a hundred.

    `work` takes a new folder. One run of ten rounds takes too short a time to be measured once.
    """
    runs = [
        in_folder(lambda folder: {"ms": cpu(lambda: work(folder)) / n, "mb": stored(folder)})
        for _ in range(max(100 // n, 1))
    ]
    return min(runs, key=lambda each: each["ms"])


def rounds(run: Callable[..., None], *, stores: bool = True) -> dict[str, Callable[[int], dict[str, Any]]]:
    """The scenarios that are a loop of N model calls: `run(n, tool, file or None)`; imports and warming up not counted.

    `run` takes `prompts`, to which it tells what is sent. `stores`: whether the peer can keep what it does in a file.
    """

    def timed(n: int, tool: str, *, on_disk: bool = False) -> dict[str, Any]:
        def work(folder: str, n: int = n) -> None:
            run(n, tool, f"{folder}/x.db" if on_disk else None)

        with tempfile.TemporaryDirectory() as folder:
            work(folder, 3)
        return per_round(work, n)

    def memory(n: int) -> dict[str, Any]:
        run(10, "look", None)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(n, "look", None)
        return {"mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024}

    def prompts(n: int) -> dict[str, Any]:
        counted = Prompts()
        run(n, "look", None, prompts=counted)
        return {"mb": counted.bytes / 1e6, "same": counted.same / counted.bytes}

    return {
        "rounds": lambda n: timed(n, "look"),
        "writes": lambda n: timed(n, "put"),
        "memory": memory,
        "prompts": prompts,
        **({"sqlite": lambda n: timed(n, "look", on_disk=True)} if stores else {}),
    }


TURNS = 20
"""Over so many turns of a conversation their cost is averaged: its stored state goes up and down within them."""


def of_turns(costs: list[float], folder: str) -> dict[str, Any]:
    """Summarise a conversation: milliseconds of its first turns but ten, those of its last, and kilobytes a turn."""
    first, last = costs[10 : 10 + TURNS], costs[-TURNS:]
    return {
        "first": sum(first) / len(first),
        "last": sum(last) / len(last),
        "kb": 1000 * stored(folder) / len(costs),
    }


class Reached(BaseException):
    """The first request of a model."""


def cold(run: Callable[..., None]) -> Callable[[int], dict[str, Any]]:
    """CPU from nothing to the first request; `run` takes what is called there as `first`."""

    def measured(_: int) -> dict[str, Any]:
        found: list[float] = []

        def first() -> None:
            found.append(1000 * time.process_time())
            raise Reached

        with suppress(BaseException):
            run(2, "look", None, first=first)
        return {"ms": found[0]}

    return measured


def main(scenarios: dict[str, Callable[[int], dict[str, Any]]]) -> None:
    """Run the scenario that is named, with N, and print what was measured; {} if this peer has none of that name."""
    name, n = sys.argv[1], int(sys.argv[2])
    print(json.dumps(scenarios[name](n) if name in scenarios else {}))
