"""F11: somebody changes the database of a run that waits. What `Agent.resume` then makes of it."""

import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import ormsgpack

from benchmarks.faults.figures import Measured, none
from benchmarks.faults.world import World, agent_for, carry, perfect, shop
from benchmarks.report import table
from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.state.errors import StorageError

KEY = bytes(range(32))
THREADS = ("one", "two")
CELLS = (("checkpoints", "checkpoint"), ("checkpoints", "metadata"), ("writes", "value"), ("donewhen_threads", "info"))
ENDS = ("noticed", "harmless", "undetected")
WORDS = {"flip": "one bit flipped", "swap": "two values swapped", "gadget": "an object planted that would run code"}
PLANTED = (("checkpoints", "checkpoint"), ("writes", "value"))
KINDS = (("checkpoints", "type"), ("writes", "type"))


class Target:
    """A database with two threads in which a plan waits for approval, copied anew for every attack."""

    def __init__(self, folder: Path, seed: int, key: bytes | None) -> None:
        self.folder, self.seed, self.key = folder, seed, key
        self._original = folder / f"original{seed}{'-sealed' if key else ''}.db"
        self.number = 0

    def agent(self, path: Path, thread: str) -> tuple[Agent, World]:
        """An agent on the file, and the world it works in."""
        world = shop(self.seed * 10 + THREADS.index(thread), 2)
        storage = open_storage(str(path), key=self.key)
        return agent_for(
            world, perfect(world), storage=storage, settings={"confirm": "always", "approvals": "plan"}
        ), world

    async def fill(self) -> None:
        """Both threads run to their first pause."""
        for thread in THREADS:
            agent, world = self.agent(self._original, thread)
            run = await agent.start(world.goal, thread_id=thread)
            assert run.status == "waiting"
        with closing(sqlite3.connect(self._original)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy(self) -> Path:
        """A fresh copy to attack."""
        self.number += 1
        path = self.folder / f"copy{self.number}.db"
        shutil.copy(self._original, path)
        return path

    async def ends(self, path: Path) -> Any:
        """Approve the first thread, and return its end: its state, its changes, its text."""
        agent, world = self.agent(path, THREADS[0])
        before = await agent.get(THREADS[0])
        run = await carry(agent, world, THREADS[0], resume=True)
        outcome = run.outcome or {}
        steps = [(row["id"], row["content"], row["status"]) for row in (run.receipt or {}).get("steps", ())]
        return before.goal, before.plan, before.spent, run.status, outcome.get("text"), steps, world.changes

    async def attack(self, change: Any) -> str:
        """`noticed` (a StorageError), `harmless` (the same end), `broken` (another error), `undetected`."""
        path = self.copy()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            change(connection)
        try:
            return "harmless" if await self.ends(path) == self.clean else "undetected"
        except StorageError:
            return "noticed"
        except Exception as error:
            return f"broken ({type(error).__name__})"
        finally:
            for file in self.folder.glob(f"{path.name}*"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    async def learn(self) -> None:
        """Record the end of an untouched copy."""
        self.clean = await self.ends(self.copy())


def flip(randoms: random.Random, cells: Sequence[tuple[str, str]] = CELLS) -> Any:
    """Flips one bit of one value."""

    def change(connection: sqlite3.Connection) -> None:
        table, column = randoms.choice(cells)
        of_thread = f"thread_id = '{THREADS[0]}' AND length({column}) > 0"
        rows = connection.execute(f"SELECT rowid, {column} FROM {table} WHERE {of_thread}")
        found = rows.fetchall()
        newer = max(randoms.random() for _ in range(3))  # what was written last is what a resume reads
        row, value = found[int(len(found) * newer)]
        raw = bytearray(value.encode() if isinstance(value, str) else value)
        place = randoms.randrange(len(raw))
        raw[place] ^= 1 << randoms.randrange(8 if isinstance(value, bytes) else 7)
        changed: Any = raw.decode(errors="replace") if isinstance(value, str) else bytes(raw)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))

    return change


def swap(randoms: random.Random) -> Any:
    """Two values change places."""

    def change(connection: sqlite3.Connection) -> None:
        table, column = randoms.choice(CELLS)
        rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()
        (one, first), (two, second) = randoms.sample(rows, 2)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (second, one))
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (first, two))

    return change


def gadgets(marker: Path) -> list[tuple[str, bytes]]:
    """Values that would create the file `marker` if anything in them ran."""
    command, argv = f"touch {marker}", {"args": ["touch", str(marker)]}
    tuples: list[tuple[int, Any]] = [
        (0, ("os", "system", command)),
        (1, ("os", "system", (command,))),
        (2, ("subprocess", "run", argv)),
        (3, ("os", "system", command, "__call__")),
        (4, ("subprocess", "run", argv, None)),
        (5, ("subprocess", "run", argv, None)),
    ]
    constructor = b'{"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["' + command.encode() + b'"]}'
    packed = [("msgpack", ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(body)))) for code, body in tuples]
    return [*packed, ("json", constructor), ("pickle", b"cposix\nsystem\n(V" + command.encode() + b"\ntR.")]


def plant(kind: str, payload: bytes, table: str, column: str) -> Any:
    """Puts the payload in the place of every value of the column."""

    def change(connection: sqlite3.Connection) -> None:
        connection.execute(f"UPDATE {table} SET type = ?, {column} = ?", (kind, payload))

    return change


async def tampering(
    folder: Path, seed: int, flips: int, swaps: int, key: bytes | None, planted: Sequence[tuple[str, str]] = PLANTED
) -> Counter[str]:
    """Return the results of flipped bits and swapped values; `ran` counts gadgets whose code ran."""
    target, randoms = Target(folder, seed, key), random.Random(f"tamper {seed}")
    await target.fill()
    await target.learn()
    found: Counter[str] = Counter()
    for number in range(flips):
        kinds = KINDS if number % 10 == 9 else CELLS
        found["flip " + await target.attack(flip(randoms, kinds))] += 1
    for _ in range(swaps):
        found["swap " + await target.attack(swap(randoms))] += 1
    marker = folder / f"ran-{bool(key)}"
    for place, column in planted:
        for kind, payload in gadgets(marker):
            found["gadget " + await target.attack(plant(kind, payload, place, column))] += 1
            found["gadget ran"] += marker.exists()
            marker.unlink(missing_ok=True)
    return found


async def collect(folder: Path) -> Measured:
    """F11."""
    found = {name: await tampering(folder, 0, 150, 60, key) for name, key in (("with a key", KEY), ("without", None))}
    sealed, plain = found.values()
    changes = _tried(sealed, "flip") + _tried(sealed, "swap")
    planted = sum(_tried(each, "gadget") for each in found.values())
    figures = [
        none("F11", "flipped bits and swapped rows that change a run unnoticed, with a key", changes, _changed(sealed)),
        none("F11", "planted objects whose code runs, with and without a key", planted,
             sealed["gadget ran"] + plain["gadget ran"]),
    ]  # fmt: skip
    cells = [
        (f"{WORDS[attack]}, {name}", *(each[f"{attack} {end}"] for end in ENDS), _broken(each, attack))
        for attack in WORDS
        for name, each in found.items()
    ]
    head = ["attack", "StorageError", "the same end", "another end, unnoticed", "another error"]
    return Measured(figures, table(head, cells))


def _tried(counts: Counter[str], attack: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(attack) and name != "gadget ran")


def _changed(counts: Counter[str]) -> int:
    return sum(count for name, count in counts.items() if name.endswith("undetected"))


def _broken(counts: Counter[str], attack: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(f"{attack} broken"))
