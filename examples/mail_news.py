"""Notifications by mail: a run that waits, ends or fails writes a mail, with the question and a link.

Runs with a scripted model and any mail server: SMTP_PORT=1025 python mail_news.py
"""

import asyncio
import os
import smtplib
from email.message import EmailMessage
from typing import Any

from donewhen import Agent
from donewhen.testing import ScriptedModel, answer, ask_user

HOST, PORT = os.environ.get("SMTP_HOST", "127.0.0.1"), int(os.environ.get("SMTP_PORT", "25"))
LINK = "https://desk.example.com/runs/"


def mail(event: dict[str, Any]) -> None:
    """Send one mail for a notification; if this raises, it is tried again, with the same id."""
    data, kind = event["data"], event["type"].rpartition(".")[2]
    said = [question["text"] for question in data.get("questions", ())] or [data.get("answer", "")]
    letter = EmailMessage()
    letter["From"], letter["To"] = "donewhen@example.com", "mira@example.com"
    letter["Subject"] = f"{kind}: {' '.join(data['goal'].split())[:60]}"
    letter["Message-ID"] = f"<{event['id']}@example.com>"  # a second delivery is the same mail
    letter.set_content("\n\n".join([*said, LINK + data["thread_id"]]))
    with smtplib.SMTP(HOST, PORT, timeout=10) as server:
        server.send_message(letter)


async def main() -> None:
    """Ask, and go on when the answer came."""
    model = ScriptedModel(roles={"triage": [ask_user("Which colour?"), answer("It is blue.")]})
    async with Agent(model, storage="memory:", notify=mail) as agent:
        run = await agent.start("Choose a colour for the shop")
        run = await agent.resume(run, "blue")
    print(f"{run.status}: {run.answer}")


if __name__ == "__main__":
    asyncio.run(main())
