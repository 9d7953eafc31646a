"""Shared by all tests: strict deserialisation, no tracing, no keys."""

import gc
import os

from hypothesis import settings

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ["LANGSMITH_TRACING"] = "false"
for name in [n for n in os.environ if n.startswith(("OPENAI_", "DONEWHEN_"))]:
    del os.environ[name]

# Machines that run tests are shared: a slow example is no failure. The suite is the same everywhere and small;
# `make fuzz` is neither.
settings.register_profile("patient", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("patient")

# The libraries fill the heap with what stays: looking through it again and again took a tenth of the time.
gc.set_threshold(20_000, 20, 50)
