"""Import without the garbage collector, which would repeatedly scan modules that are never freed."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collection() -> Iterator[None]:
    """Import without looking for garbage meanwhile: there is none, and it would take a third longer."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what was imported counts as old at once: the next look is not at all of it
            gc.freeze()
            gc.unfreeze()
        gc.enable()
