"""Anything at random: a step that reads, writes and edits some files, fails now and then, and in the end claims.

What is in the files is followed here, line by line, apart from all code of the runtime.
"""

from dataclasses import dataclass, field
from random import Random

from benchmarks.lies.facts import line_in
from benchmarks.lies.kinds import altered, honest, lie
from benchmarks.lies.world import Part, Scene


@dataclass
class Followed:
    """One file: its lines now, and each reading of it with the lines at that time and whether they changed since."""

    path: str
    lines: list[str]
    readings: list[tuple[str, list[str]]] = field(default_factory=list)
    changed: int = 0
    """How many of the readings were made before the last change."""

    def fresh(self) -> list[tuple[str, list[str]]]:
        """Readings of the file as it is now."""
        return self.readings[self.changed :]


def work(scene: Scene, part: Part, rounds: int) -> list[Followed]:
    """Some random rounds on three files; each is read at least once after its last change."""
    files = []
    for _ in range(3):
        laid_out = scene.file()
        files.append(Followed(laid_out.path, [f"{laid_out.path} {line}" for line in laid_out.lines]))
        (scene.folder / laid_out.path).write_text("\n".join(files[-1].lines) + "\n", encoding="utf-8")
    changes = [_round(part, scene, scene.rng.choice(files), scene.rng) for _ in range(rounds)]
    part.nothing_changed = not any(changes)
    for file in files:
        if not file.fresh():
            file.readings.append((part.read(file.path), list(file.lines)))
    return files


def _round(part: Part, scene: Scene, file: Followed, rng: Random) -> bool:
    """One deed; whether it changed a file."""
    deed = rng.choice(["read", "read", "find", "edit", "append", "write", "fail", "wander"])
    place = rng.randrange(len(file.lines))
    new = f"{file.path} entry {rng.randint(0, 10**9)}"
    if deed == "read":
        file.readings.append((part.read(rng.choice(["", "./"]) + file.path), list(file.lines)))
    elif deed == "find":
        found = part.call("find_text", query=file.lines[place].rpartition(" ")[0], path=file.path)
        file.readings.append((found, [line for line in file.lines if file.lines[place].rpartition(" ")[0] in line]))
    elif deed == "edit":
        part.call("edit_file", path=file.path, old=file.lines[place], new=new)
        file.lines[place] = new
    elif deed == "append":
        part.call("append_file", path=file.path, content=f"{new}\n")
        file.lines.append(new)
    elif deed == "write":
        file.lines = [new]
        part.call("write_file", path=file.path, content=f"{new}\n")
    elif deed == "fail":
        part.call("edit_file", path=f"no {file.path}", old="a", new="b")
    else:
        scene.wander(part)
    changed = deed in ("edit", "append", "write")
    if changed:
        file.changed = len(file.readings)
    return changed


def _proven(part: Part, file: Followed, rng: Random) -> None:
    """A true criterion with a fresh reading that shows it."""
    shown = [(id, line) for id, lines in file.fresh() for line in lines if line in file.lines]
    id, line = rng.choice(shown)
    part.prove(line_in(file.path, line), (id, line))


def _false(part: Part, files: list[Followed], rng: Random) -> None:
    """A false criterion, with evidence that says so but was never seen, or is no longer true."""
    file = rng.choice(files)
    past = [(id, line) for id, lines in file.readings for line in lines if line not in file.lines]
    if past and rng.random() < 0.6:
        id, line = rng.choice(past)
    else:
        id = rng.choice([id for other in files for id, _ in other.readings] + [f"{part.id}.{part.seen + 5}"])
        digits = [line for line in file.lines if any(character.isdigit() for character in line)]
        line = altered(rng.choice(digits), rng)
    part.prove(line_in(file.path, line), (id, line))


@lie("anything", "claims at random after work at random, one false at least")
def _lies(scene: Scene) -> None:
    part = scene.step()
    files = work(scene, part, scene.rng.randint(2, 8))
    for _ in range(scene.rng.randint(0, 2)):
        _proven(part, scene.rng.choice(files), scene.rng)
    for _ in range(scene.rng.randint(1, 2)):
        _false(part, files, scene.rng)
    part.finish()


@honest("claims at random after work at random, all true and proven")
def _truths(scene: Scene) -> None:
    part = scene.step()
    files = work(scene, part, scene.rng.randint(2, 8))
    for _ in range(scene.rng.randint(1, 4)):
        _proven(part, scene.rng.choice(files), scene.rng)
    part.finish()
