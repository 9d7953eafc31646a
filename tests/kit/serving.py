"""LangGraph's own server with our graph, on a free port of loopback; and clients of it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx
from langgraph_sdk import get_client
from langgraph_sdk.client import LangGraphClient

from tests.kit.forking import forks
from tests.kit.places import ROOT

KEY = "sk-verysecretkey1234567890abcd"
"""The key of the model of a shared server; nobody may read it."""


@dataclass
class Shared:
    """A server of several users, whose operator pins settings; each test has users of its own."""

    url: str
    folder: Path

    def wrote(self, user: str) -> bool:
        """Return whether the file of `write it` is in the user's folder."""
        return (self.folder / "work" / user / "forged.txt").exists()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reserve(port: int = 0) -> socket.socket:
    """Reserve a loopback port, by default a free one; nobody can connect to it before its socket listens."""
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", port))
    return door


def served_by(door: socket.socket, serve: Callable[..., None], *arguments: str) -> BaseProcess:
    """Start the process that answers at this door; who comes early waits, and nobody else can take the port."""
    door.listen(100)
    process = forks.Process(target=serve, args=(door, *arguments), daemon=True)
    process.start()
    door.close()
    return process


def started(folder: Path, base_url: str, **environment: str) -> tuple[subprocess.Popen[bytes], str]:
    """`langgraph dev` on a free port, ready to answer; its state goes to a copy of langgraph.json in `folder`."""
    port = free_port()
    settings = json.loads((ROOT / "langgraph.json").read_text())
    config = folder / "langgraph.json"
    config.write_text(json.dumps({**settings, "dependencies": [str(ROOT)]}))
    (folder / "work").mkdir()
    (folder / "work" / "a.txt").write_text("hello")
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--host", "127.0.0.1", "--port", str(port)]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [*command, "--no-browser", "--no-reload", "--n-jobs-per-worker", "4", "--config", str(config)],
        cwd=folder,
        env={
            **os.environ,
            "LANGGRAPH_CLI_NO_ANALYTICS": "1",
            "LANGSMITH_TRACING": "false",
            "OPENAI_BASE_URL": base_url,
            "DONEWHEN_MODEL": "openai:scripted",
            "DONEWHEN_DIR": str(folder / "work"),
            **environment,
        },
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    log.close()
    url = f"http://127.0.0.1:{port}"
    for _ in range(600):
        try:
            if httpx.get(f"{url}/ok", timeout=1).status_code == 200:
                return process, url
        except httpx.HTTPError:
            pass
        if process.poll() is not None:
            break
        time.sleep(0.1)
    stopped(process)
    raise AssertionError((folder / "log").read_text()[-3000:])


def stopped(process: subprocess.Popen[bytes]) -> None:
    """End the server we started, and only it."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def as_user(url: str, token: str) -> LangGraphClient:
    """A client of one user."""
    return get_client(url=url, headers={"Authorization": f"Bearer {token}"})
