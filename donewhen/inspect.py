"""DoneWhen as a solver of Inspect (`pip install 'donewhen[inspect]'`)."""

try:
    from donewhen.agent.inspect_solver import InspectChatModel, donewhen_solver
except ImportError as error:
    raise ImportError(f"donewhen.inspect needs {error.name}: pip install 'donewhen[inspect]'") from None

__all__ = ["InspectChatModel", "donewhen_solver"]
