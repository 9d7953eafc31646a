"""Addresses that a client gave: only public ones are posted to, and the very one that was checked."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from a2a.types import TaskPushNotificationConfig

from donewhen.agent.a2a import addresses
from donewhen.agent.a2a.addresses import is_public, post_to, public_addresses
from donewhen.servers import PushNotifications

PUBLIC = ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
INSIDE = """
    127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 240.0.0.1
    255.255.255.255 ::1 :: fe80::1 fe80::1%eth0 2606:4700::1111%eth0 fec0::1 fc00::1 fd00::1 ff02::1
    ::ffff:127.0.0.1 ::127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 2002:7f00:1::
    2002:808:808:: 2001:0:808:808:: 2001:db8::1 2001:10::1 100::1 host.example
""".split()  # noqa: SIM905 - readable as a text


def test_only_addresses_of_the_public_internet_are_posted_to() -> None:
    """Q105: also where an IPv6 address carries one of IPv4 (mapped, NAT64), never through a tunnel (6to4, Teredo)."""
    assert [each for each in PUBLIC if not is_public(each)] == []
    assert [each for each in INSIDE if is_public(each)] == []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.arrived.append(str(self.headers["Host"]))  # type: ignore[attr-defined]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def inner(context: ssl.SSLContext | None = None) -> Iterator[tuple[int, list[str]]]:
    """A service on this machine, and the Host headers of what arrives."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        server.arrived = arrived = list[str]()  # type: ignore[attr-defined]
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1], arrived
        finally:
            server.shutdown()
            thread.join()


Resolver = Callable[..., None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Give `hook.example` the addresses of a list, one after the other; the last one stays."""
    real = socket.getaddrinfo

    def set_up(*answers: list[str]) -> None:
        left = [*answers]

        def answer(host: Any, port: Any, *more: Any, **options: Any) -> Any:
            if host not in ("hook.example", b"hook.example"):
                return real(host, port, *more, **options)
            found = left.pop(0) if len(left) > 1 else left[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, int(port or 0))) for each in found]

        monkeypatch.setattr(socket, "getaddrinfo", answer)

    return set_up


async def test_a_name_that_changes_meanwhile_reaches_nothing_inside(
    resolve: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q105: it leads to a public address while it is checked, and inside later; two pushes at once."""
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "::1")  # here no other can be reached
    with inner() as (port, arrived):
        push = TaskPushNotificationConfig(url=f"http://hook.example:{port}/", id="x")
        resolve(["::1"], ["::1"], ["127.0.0.1"])
        async with httpx.AsyncClient(timeout=5) as http:
            told = await asyncio.gather(*(PushNotifications()._post(http, push, {}) for _ in range(2)))
        assert ["ConnectError" in each for each in told] == [True, True]
        resolve(["::1", "127.0.0.1"])
        assert await public_addresses(push.url) == []
        assert arrived == []


async def test_the_server_sees_the_name_that_was_given(
    resolve: Resolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q105: the Host header, the name in the TLS handshake, and the certificate are those of the name."""
    monkeypatch.setattr(addresses, "is_public", lambda address: True)
    resolve(["127.0.0.1"])
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate]
    names = ["-days", "2", "-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"]
    await asyncio.to_thread(subprocess.run, [*made, *names], check=True, capture_output=True)
    secure, seen = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str | None]()
    secure.load_cert_chain(certificate, key)
    secure.sni_callback = lambda _, name, __: seen.append(name)
    trusting = ssl.create_default_context(cafile=str(certificate))
    for scheme, context in (("http", None), ("https", secure)):
        with inner(context) as (port, arrived):
            url = f"{scheme}://hook.example:{port}/news"
            (address,) = await public_addresses(url)
            async with httpx.AsyncClient(verify=trusting, timeout=5) as http:
                assert (await post_to(http, url, address, {"X-Token": "t"}, {})).status_code == 200
        assert arrived == [f"hook.example:{port}"]
    assert seen == ["hook.example"]


@pytest.mark.parametrize(
    "url",
    [
        "ftp://8.8.8.8/",
        "http:///x",
        "http://[::1]/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://localhost/",
        "x",
        "http://[/",
    ],
)
async def test_other_addresses_are_not_allowed(url: str) -> None:
    """Q105: other schemes, no host, this machine in other spellings."""
    assert not await PushNotifications().allows(url)
    assert await PushNotifications(inside=True).allows(url)
