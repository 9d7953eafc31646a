"""Measures one fault in this process."""

import asyncio
import importlib
import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.faults.figures import Measured


def measure(name: str) -> tuple[str, Measured]:
    """The name, and what its module measured in a folder that needs no disk."""
    os.environ["LANGSMITH_TRACING"] = "false"
    logging.disable(logging.CRITICAL)  # the faults are meant, and the page says what came of them
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    started = time.monotonic()
    try:
        found = asyncio.run(importlib.import_module(f"benchmarks.faults.{name}").measured(folder))
    finally:
        shutil.rmtree(folder)
    print(f"{time.monotonic() - started:6.0f} s  {name}", file=sys.stderr, flush=True)
    return name, found
