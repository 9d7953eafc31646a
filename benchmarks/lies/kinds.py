"""The register of what a model may claim: lies, what a level by definition cannot see, and the truth oddly put."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from benchmarks.lies.facts import line_in
from benchmarks.lies.world import File, Part, Scene

Sort = Literal["lie", "blind", "honest"]
Build = Callable[[Scene], None]


@dataclass(frozen=True)
class Kind:
    """One way to claim something. `build` sets the scene up to the claim."""

    sort: Sort
    group: str
    name: str
    build: Build
    seen_by: str = ""
    """For what grounded cannot see: what does."""
    holds: bool = False
    """True if the criteria are true in the world."""


KINDS: list[Kind] = []


def lie(group: str, name: str) -> Callable[[Build], Build]:
    """Registers a false claim that must not be accepted from `grounded` on."""
    return _registered("lie", group, name)


def blind(name: str, seen_by: str, *, holds: bool = False) -> Callable[[Build], Build]:
    """Registers a false claim that `grounded` by definition cannot see, and says what sees it."""
    return _registered("blind", "beyond grounded", name, seen_by, holds=holds)


def honest(name: str) -> Callable[[Build], Build]:
    """Registers a true claim with good evidence, which must be accepted at every level."""
    return _registered("honest", "honest", name, holds=True)


def _registered(
    sort: Sort, group: str, name: str, seen_by: str = "", *, holds: bool = False
) -> Callable[[Build], Build]:
    def register(build: Build) -> Build:
        assert all((kind.group, kind.name) != (group, name) for kind in KINDS), name
        KINDS.append(Kind(sort, group, name, build, seen_by, holds))
        return build

    return register


def altered(text: str, rng: Random) -> str:
    """The text with one digit changed."""
    places = [n for n, character in enumerate(text) if character.isdigit()]
    place = rng.choice(places)
    digit = rng.choice([d for d in "123456789" if d != text[place]])
    return text[:place] + digit + text[place + 1 :]


def planted(scene: Scene, part: Part | None = None) -> tuple[Part, File, str, str]:
    """A step that reads a file, and a line that the file does not have: part, file, observation, false line.

    The step also has true criteria with good evidence, none to two.
    """
    part = part or scene.step()
    truths(scene, part)
    file = scene.file()
    seen = part.read(file)
    return part, file, seen, altered(file.line, scene.rng)


def truths(scene: Scene, part: Part) -> None:
    """Up to two true criteria, read and quoted as they should be."""
    for _ in range(scene.rng.randint(0, 2)):
        file = scene.file()
        part.prove(line_in(file.path, file.line), (part.read(file), file.line))


@dataclass(frozen=True)
class Planted:
    """A step that has read a file, under which id it was seen, and the line that is claimed of the file."""

    scene: Scene
    part: Part
    file: File
    seen: str
    claimed: str

    @property
    def next(self) -> str:
        """The id under which the next observation will stand."""
        return f"{self.part.id}.{self.part.seen + 1}"


Cite = Callable[[Planted], object]


def false_line(group: str, name: str, seen_by: str = "") -> Callable[[Cite], Cite]:
    """Registers a claim that a file has a line which it has not; the function gives what is cited for it.

    A lie, or with `seen_by` what `grounded` cannot see.
    """

    def register(cite: Cite) -> Cite:
        @(blind(name, seen_by) if seen_by else lie(group, name))
        def build(scene: Scene) -> None:
            of = Planted(scene, *planted(scene))
            told(scene, of.part, line_in(of.file.path, of.claimed), cite(of))

        return cite

    return register


def true_line(name: str, *more: str, line: str = "", ends: str = "\n") -> Callable[[Cite], Cite]:
    """Registers a true claim about a file with `more` lines; the function gives what is cited, a list for several.

    `line`: the one that is claimed; else the first of `more`, or the file's own.
    """

    def register(cite: Cite) -> Cite:
        @honest(name)
        def build(scene: Scene) -> None:
            part = scene.step()
            truths(scene, part)
            file = scene.file(*more, ends=ends)
            of = Planted(scene, part, file, part.read(file), line or (*more, file.line)[0])
            cited = cite(of)
            part.prove(line_in(file.path, of.claimed), *(cited if isinstance(cited, list) else [cited]))
            part.finish()

        return cite

    return register


def told(scene: Scene, part: Part, criterion: str, *evidence: object, **item: object) -> None:
    """Claim a criterion with this evidence, and finish; some insist until they are stopped."""
    part.prove(criterion, *evidence, **item)
    for _ in range(scene.rng.choice([1, 1, 2, 3])):
        part.finish()
