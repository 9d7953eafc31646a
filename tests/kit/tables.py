"""The process that reads data files, forked rather than started: a table of files asks it dozens of times."""

import json
import os
import shutil
import sys
from io import StringIO
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from langchain_core.tools import ToolException

from tests.kit.forking import forks


class Reader:
    """What `describe_data` and `query_data` say of a folder, and what is remembered of its files in between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Any] = {}

    def describe(self, path: str) -> str:
        """Return what is said of a file; raise ToolException with the refusal."""
        return self._ask("describe", path)

    def query(self, sql: str) -> str:
        """Return what comes of one SELECT; raise ToolException with the refusal."""
        return self._ask("query", sql)

    def _ask(self, do: str, of: str) -> str:
        own = self.folder.parent / f"{self.folder.name}-process"
        own.mkdir()
        (own / "request.json").write_text(json.dumps({"do": do, "of": of, "remembered": self._known}))
        ours, theirs = forks.Pipe(duplex=False)
        process = forks.Process(target=_serve, args=(str(self.folder), str(own), theirs))
        process.start()
        theirs.close()
        answer = json.loads(ours.recv().splitlines()[-1])
        process.join()
        if (own / "learned.json").exists():
            self._known |= json.loads((own / "learned.json").read_text())
        shutil.rmtree(own)
        if "error" in answer:
            raise ToolException(answer["error"])
        return str(answer["text"])


def _serve(root: str, own: str, pipe: Connection) -> None:
    """Be that process, with its arguments and without an environment; send what it prints."""
    from donewhen.agent.workspace.data.child import main

    os.environ.clear()
    sys.argv = ["-c", json.dumps({"root": root}), own]
    sys.stdout = printed = StringIO()
    main()
    pipe.send(printed.getvalue())
