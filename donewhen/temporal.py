"""Runs on many machines with Temporal (`pip install 'donewhen[temporal]'`)."""

try:
    from donewhen.agent.temporal import RunHandle, TemporalRuns, run_worker
except ImportError as error:
    raise ImportError(f"donewhen.temporal needs {error.name}: pip install 'donewhen[temporal]'") from None

__all__ = ["RunHandle", "TemporalRuns", "run_worker"]
