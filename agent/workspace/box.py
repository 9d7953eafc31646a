"""Run a program in a box, by bubblewrap: one folder can be changed, the rest only read, and there is no network.

What lets a program out of its box is not there: the other processes, the sockets of services in `/run` and `/tmp`, and
the terminal. What the user of this process may read, it can read.
"""

import functools
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from donewhen.state.errors import ConfigError
from donewhen.state.language.texts import say

BoxChoice = Literal["auto", "required", "off"]
"""`auto`: programs run in a box where one can be made; `required`: only in a box; `off`: without one."""
ALONE = ("--unshare-all", "--new-session", "--die-with-parent", "--cap-drop", "ALL")
OWNERS = ("CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_CHOWN")
"""What root needs to work on files of other users."""
WITH_SOCKETS = ("/run", "/tmp")
"""Folders in which services listen. In the box they are empty, but for what the program needs."""
SECONDS = 10.0


@dataclass(frozen=True)
class Box:
    """The way to run a program in a box."""

    bwrap: str
    """The absolute path of bubblewrap."""
    network: bool = False
    programs: Sequence[str] = ()
    """The absolute paths of the programs that may run."""

    def wrap(self, command: Sequence[str], folder: str, home: str) -> list[str]:
        """Return the command line that runs a command in a box, in which these two folders can be changed."""
        line = [self.bwrap, *ALONE]
        if os.geteuid() == 0:
            line += [part for each in OWNERS for part in ("--cap-add", each)]
        if self.network:
            line.append("--share-net")
        line += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        line += [part for each in WITH_SOCKETS if os.path.isdir(each) for part in ("--tmpfs", each)]
        line += [part for each in self._needed() for part in ("--ro-bind", each, each)]
        line += [part for each in (folder, home) for part in ("--bind", each, each)]
        return [*line, "--chdir", folder, "--", *command]

    def _needed(self) -> Iterator[str]:
        """Yield what programs need of the emptied folders: themselves, their libraries, and the names of hosts."""
        for program in self.programs:
            for each in dict.fromkeys((program, os.path.realpath(program))):
                if _is_hidden(each):
                    folder = os.path.dirname(each)
                    around = os.path.dirname(folder)
                    yield around if os.path.basename(folder) == "bin" and _is_hidden(around) else each
        names = os.path.realpath("/etc/resolv.conf")
        if self.network and _is_hidden(names) and os.path.exists(names):
            yield names


def find_box(choice: str, programs: Mapping[str, str], *, network: bool) -> Box | None:
    """Return the box for these programs, None if there is none or none is wanted.

    Raises ConfigError if it is required and there is none, and for another choice.
    """
    if choice not in ("auto", "required", "off"):
        raise ConfigError(f"box is {choice!r}; it must be 'auto', 'required' or 'off'")
    if choice == "off":
        return None
    bwrap, problem = look_for_box()
    if problem and choice == "required":
        raise ConfigError(f"box is 'required', and there is none: {problem}")
    return None if problem else Box(bwrap, network, [*programs.values()])


@functools.cache
def look_for_box() -> tuple[str, str]:
    """Return the path of bubblewrap and "", or "" and why programs cannot run in a box here."""
    if (bwrap := shutil.which("bwrap")) is None:
        return "", "bubblewrap is not installed (the package `bubblewrap`)"
    try:
        command = Box(bwrap).wrap(["true"], "/usr", "/usr")
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"bubblewrap does not run ({error})"
    message = tried.stderr.decode(errors="replace").strip()[-300:]
    return (
        (bwrap, "") if tried.returncode == 0 else ("", f"bubblewrap may not make one ({message or tried.returncode})")
    )


def describe_box(box: Box | None, variables: Collection[str], language: str = "en") -> str:
    """Return, for people and models, what a program can reach, and what it has of our environment."""
    reach = say(language, "box", "none" if box is None else "network" if box.network else "alone")
    return say(language, "box", "passed" if variables else "own", reach=reach, names=", ".join(variables))


def _is_hidden(path: str) -> bool:
    return any(path.startswith(f"{each}/") for each in WITH_SOCKETS)
