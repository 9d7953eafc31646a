"""A desk: tools that look, send and check, and remember every call; shared by the tests of steps."""

from langchain_core.tools import StructuredTool


class Desk:
    """What was really called, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def tools(self) -> list[StructuredTool]:
        """Two tools that read, and one that writes."""

        def look(what: str) -> str:
            """Look at something."""
            self.calls.append(f"look {what}")
            return f"{what} is green"

        def send(to: str) -> str:
            """Send a letter."""
            self.calls.append(f"send {to}")
            return f"sent to {to}"

        def holds(what: str) -> str:
            """Say whether it holds."""
            self.calls.append(f"holds {what}")
            return "yes"

        effects = {look: "read", send: "write", holds: "read"}
        return [StructuredTool.from_function(tool, metadata={"effect": effects[tool]}) for tool in effects]
