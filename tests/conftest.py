"""Shared by all tests: strict deserialisation, no tracing, no keys."""

import os

from hypothesis import settings

os.environ["LANGGRAPH_STRICT_MSGPACK"] = "true"
os.environ["LANGSMITH_TRACING"] = "false"
for name in [n for n in os.environ if n.startswith(("OPENAI_", "DONEWHEN_"))]:
    del os.environ[name]

# Machines that run tests are shared: a slow example is no failure.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
