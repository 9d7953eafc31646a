"""Runs on many machines with Temporal (`pip install 'donewhen[temporal]'`)."""

try:
    from donewhen.agent.temporal import RunHandle, TemporalRuns, run_worker
except ImportError as _missing:
    raise ImportError(f"donewhen.temporal needs {_missing.name}: pip install 'donewhen[temporal]'") from None

__all__ = ["RunHandle", "TemporalRuns", "run_worker"]
