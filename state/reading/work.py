"""A bound on how long a text may be read, counted in steps and not by a clock: the same text, the same answer."""

from dataclasses import dataclass


class WorkExhausted(Exception):
    """The text would take too long to read; whoever wrote it can write it again, shorter or valid."""


@dataclass(slots=True)
class Work:
    """How much more may be spent on one text, in steps of one to two microseconds."""

    left: int = 16_000

    def charge(self, steps: int) -> None:
        """Takes steps off. Raises WorkExhausted when none are left."""
        self.left -= steps
        if self.left < 0:
            raise WorkExhausted
