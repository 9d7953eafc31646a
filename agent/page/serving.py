"""Serving the page from the command: a free port of this machine, a link with a token, until Ctrl-C."""

import secrets
import socket
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from donewhen.agent.agent import Agent
from donewhen.state.errors import ConfigError
from donewhen.state.graph_state import Json

HOST = "127.0.0.1"
LEAVE = 1
"""Seconds that pages have to hang up when the server ends."""


async def serve(
    open_agent: Callable[[AsyncExitStack], Awaitable[Agent]],
    metadata: Json,
    *,
    port: int,
    browser: bool,
    say: Callable[[str], None],
) -> None:
    """Serve pages of the agent; `say` is told the link. Port 0 takes a free one. Raises ConfigError."""
    try:
        import uvicorn

        from donewhen.agent.page.web import page
    except ImportError as error:
        raise ConfigError(f"the page needs {error.name}: pip install 'donewhen[ui]'") from None
    from donewhen.agent.page.conversations import Conversations

    async with AsyncExitStack() as stack:
        agent = await open_agent(stack)
        agent.models("triage")  # a missing key or a wrong name is said before a page is opened
        listening = listen(port)
        address, token = f"{HOST}:{listening.getsockname()[1]}", secrets.token_urlsafe(24)
        hosts = frozenset([address, address.replace(HOST, "localhost")])
        link = f"http://{address}/#token={token}"
        say(link)
        if browser:
            webbrowser.open(link)
        app = page(Conversations(agent, metadata), token, hosts)
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=LEAVE, ws="none")
        await uvicorn.Server(config).serve(sockets=[listening])


def listen(port: int) -> socket.socket:
    """A socket on this port of 127.0.0.1; 0 takes a free one. Raises ConfigError."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen()  # whoever comes before the server is ready waits
    except OSError as error:
        listening.close()
        raise ConfigError(f"port {port} cannot be used: {error.strerror}") from None
    return listening
