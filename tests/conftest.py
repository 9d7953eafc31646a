"""Shared by all tests: strict deserialisation, no tracing, no keys."""

import gc
import os
import shutil
import sys
import tempfile

from hypothesis import settings

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ["LANGSMITH_TRACING"] = "false"
for name in [n for n in os.environ if n.startswith(("OPENAI_", "DONEWHEN_"))]:
    del os.environ[name]

# What is compiled once is read by every process after it; tests start hundreds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Machines that run tests are shared: a slow example is no failure. The suite is the same everywhere and small;
# `make fuzz` is neither.
settings.register_profile("patient", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("patient")

# Tests kill processes, not machines: nothing they store has to reach a disk. Waiting for that took a third of the time.
MEMORY = "/dev/shm"
if (
    "TMPDIR" not in os.environ
    and os.access(MEMORY, os.W_OK)
    and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
    and shutil.disk_usage(MEMORY).free > 4 << 30
):
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

# The libraries fill the heap with what stays: looking through it again and again took a tenth of the time.
gc.set_threshold(50_000, 20, 50)
