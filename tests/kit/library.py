"""A remote agent over A2A: `a2a_server` as a process, and what arrived there."""

from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from donewhen import Executor
from donewhen.executors import RemoteAgent
from tests.kit.a2a_server import serve
from tests.kit.serving import reserve, served_by


class Library:
    """The server process, and what arrived there."""

    def __init__(self, folder: Path) -> None:
        self._door, self.log = reserve(), folder / "messages"
        self.port = self._door.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: BaseProcess | None = None

    def start(self, *more: str) -> None:
        """Ready to answer; `more` as for the server."""
        self.log.write_text("")
        door = reserve(self.port) if self._process else self._door
        self._process = served_by(door, serve, str(self.log), *more)

    def stop(self) -> None:
        """End it, and only it."""
        if self._process:
            self._process.terminate()
            self._process.join(30)

    @property
    def messages(self) -> list[str]:
        """Ids of the messages that arrived since the last look."""
        found = self.log.read_text().split()
        self.log.write_text("")
        return found

    @property
    def text(self) -> str:
        """The text of the last message."""
        return self.log.with_suffix(".text").read_text()

    @property
    def cancelled(self) -> list[str]:
        """Ids of the tasks that were cancelled since the last look."""
        path = self.log.with_suffix(".cancelled")
        found = path.read_text().split() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    def executor(self, **more: Any) -> Executor:
        """The librarian."""
        return Executor(remote=RemoteAgent(self.url, poll=0.05), **more)
