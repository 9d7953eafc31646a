"""DoneWhen as a solver of Inspect (`pip install 'donewhen[inspect]'`)."""

try:
    from donewhen.agent.inspect_solver import InspectChatModel, donewhen_solver
except ImportError as _missing:
    raise ImportError(f"donewhen.inspect needs {_missing.name}: pip install 'donewhen[inspect]'") from None

__all__ = ["InspectChatModel", "donewhen_solver"]
