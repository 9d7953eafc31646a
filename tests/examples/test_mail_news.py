"""The example that mails news, at a mail server on loopback."""

import runpy
import socketserver
import threading
from email import message_from_bytes, policy
from typing import Any

import pytest

from tests.kit.places import ROOT


class Mailbox(socketserver.ThreadingTCPServer):
    """The few words of SMTP that a mail takes."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Conversation)
        self.mails: list[Any] = []


class _Conversation(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().strip().upper():
            if line == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                text = b"".join(iter(self.rfile.readline, b".\r\n"))
                self.server.mails.append(message_from_bytes(text, policy=policy.default))
            self.wfile.write(b"221 bye\r\n" if line == b"QUIT" else b"250 ok\r\n")


def test_a_question_and_the_end_are_mailed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """S01: mail_news.py: the question with a link, then the answer, each with an id of its own."""
    with Mailbox() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("SMTP_PORT", str(server.server_address[1]))
        runpy.run_path(str(ROOT / "examples" / "mail_news.py"), run_name="__main__")
        server.shutdown()
        thread.join()
    assert [mail["Subject"] for mail in server.mails] == [
        "waiting: Choose a colour for the shop", "finished: Choose a colour for the shop",
    ]  # fmt: skip
    assert "Which colour?" in server.mails[0].get_content()
    assert "https://desk.example.com/runs/" in server.mails[0].get_content()
    assert server.mails[0]["Message-ID"] != server.mails[1]["Message-ID"]
    assert "completed: It is blue." in capsys.readouterr().out
