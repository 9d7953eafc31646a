"""Serve the page from the command, on this machine only, at a link with a token, until Ctrl-C.

Port and token of a folder are stored, readable only by this user, so open tabs keep working after a restart.
"""

import contextlib
import json
import os
import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from donewhen import Agent, ConfigError
from donewhen.clients import Json

if TYPE_CHECKING:
    from donewhen.agent.page.conversations import Receipts

HOST = "127.0.0.1"
CLOSE_SECONDS = 1
"""Seconds that pages have to disconnect when the server ends."""
TOKEN_BYTES = 24


async def serve(
    open_agent: Callable[[AsyncExitStack], Awaitable[Agent]],
    metadata: Json,
    stored: "Address",
    *,
    port: int,
    browser: bool,
    say: Callable[[str], None],
    receipts: "Receipts | None" = None,
    also: Sequence[str] = (),
    opener: Callable[[str], str],
) -> None:
    """Serve pages of the agent; port 0 uses the stored one. `say` receives the link. Raises ConfigError.

    `receipts` writes and checks the receipts that are saved there. `also` are models that may be chosen besides.
    `opener` returns the command that opens the page of another folder.
    """
    try:
        import uvicorn

        from donewhen.agent.page.web import page
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name}: pip install 'donewhen[ui]'") from None
    from donewhen.agent.page.conversations import Conversations

    async with AsyncExitStack() as stack:
        agent = await open_agent(stack)
        for name in (None, *also):  # a missing key or a wrong name raises before a page is opened
            agent.models("triage", name)
        listener = listen(port or stored.port, or_free=not port)
        address = f"{HOST}:{listener.getsockname()[1]}"
        hosts = frozenset([address, address.replace(HOST, "localhost")])
        if port or not stored.port:  # another page of this folder may use the stored port
            stored.write(listener.getsockname()[1])
        link = f"http://{address}/#token={stored.token}"
        say(link)
        if browser:
            webbrowser.open(link)
        app = page(Conversations(agent, metadata, receipts, also, opener), stored.token, hosts)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=CLOSE_SECONDS, ws="none")
        await uvicorn.Server(config).serve(sockets=[listener])


@dataclass(frozen=True)
class Address:
    """The address of a folder's page: its port, 0 if unknown, and its token."""

    path: Path
    port: int
    token: str

    @classmethod
    def read(cls, state_folder: Path, folder: str) -> "Address":
        """Return the stored address; one with a new token if none is stored or if other users could have read it."""
        path = state_folder / f"{sha256(folder.encode()).hexdigest()[:24]}.json"
        stored: Any = {}
        with contextlib.suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno())
            if mode.st_uid == os.getuid() and not mode.st_mode & 0o077:
                stored = json.load(file)
        port, token = (stored.get("port"), stored.get("token")) if isinstance(stored, dict) else (0, "")
        if not isinstance(port, int) or not isinstance(token, str) or len(token) < TOKEN_BYTES:
            port, token = 0, secrets.token_urlsafe(TOKEN_BYTES)
        return cls(path, port, token)

    def write(self, port: int) -> None:
        """Store the token and this port. If that fails, tabs must be reopened after a restart."""
        text = json.dumps({"port": port, "token": self.token})
        written = self.path.with_suffix(f".{secrets.token_hex(4)}")
        with contextlib.suppress(OSError):
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(written, self.path)


def listen(port: int, *, or_free: bool = False) -> socket.socket:
    """Return a socket on this port of 127.0.0.1; on a free one for port 0, and with `or_free` if the port is taken.

    Raises ConfigError if the port cannot be used.
    """
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # connections wait until the server is ready
    except OSError as error:
        listener.close()
        if or_free and port:
            return listen(0)
        raise ConfigError(f"port {port} cannot be used ({error.strerror}): name another one with --port") from None
    return listener
