"""The example that mails news, at a mail server on loopback."""

import runpy
from email import message_from_bytes, policy
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from tests.kit.places import ROOT
from tests.kit.serving import free_port


class Mailbox:
    """What a mail server was sent."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it
        """Take a mail."""
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return "250 ok"


def test_a_question_and_the_end_are_mailed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """S01: mail_news.py: the question with a link, then the answer, each with an id of its own."""
    box = Mailbox()
    server = Controller(box, hostname="127.0.0.1", port=free_port())
    server.start()
    try:
        monkeypatch.setenv("SMTP_PORT", str(server.port))
        runpy.run_path(str(ROOT / "examples" / "mail_news.py"), run_name="__main__")
    finally:
        server.stop()
    assert [mail["Subject"] for mail in box.mails] == [
        "waiting: Choose a colour for the shop", "finished: Choose a colour for the shop",
    ]  # fmt: skip
    assert "Which colour?" in box.mails[0].get_content()
    assert "https://desk.example.com/runs/" in box.mails[0].get_content()
    assert box.mails[0]["Message-ID"] != box.mails[1]["Message-ID"]
    assert "answered: It is blue." in capsys.readouterr().out
