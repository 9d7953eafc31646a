"""`python -m benchmarks.jobs [NAME …]`: the jobs with the model of the environment, by the runtime and by a bare loop.

OPENAI_BASE_URL, OPENAI_API_KEY and DONEWHEN_MODEL say which model. `--only ours` or `--only bare` plays one side;
`--level` proves at another level than the default; `--seconds` is the longest silence of the model. Prints, per job:
right or not, calls of the model, corrections, questions, characters sent.

`--scripted` plays twenty jobs on both sides by a script in place of a model, and prints what is sent, by job, role and
origin (`price.py`); so does the command where the environment names no model. That needs no key and no network.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage

from benchmarks.jobs.everyday import EVERYDAY
from benchmarks.jobs.hard import HARD
from benchmarks.jobs.held_out import HELD_OUT
from benchmarks.jobs.jobs import JOBS as FIRST
from benchmarks.jobs.jobs import Job
from benchmarks.jobs.office import OFFICE
from donewhen import Agent, Settings
from donewhen.agent.config import read_config
from donewhen.agent.models import ModelSource
from donewhen.agent.tools import as_tools

JOBS = FIRST | HELD_OUT | HARD | EVERYDAY | OFFICE
MOST_CALLS = 60
NOT_DONE = "it did not"
"""The answer about an unknown outcome; the only one in these jobs had no effect."""


class Counting:
    """Counts what is sent to a model: requests and characters of messages and tools."""

    def __init__(self) -> None:
        self.calls = self.characters = 0

    def sent(self, body: bytes) -> None:
        given = json.loads(body)
        self.calls += 1
        for part in ("messages", "tools", "response_format"):
            self.characters += len(json.dumps(given[part], ensure_ascii=False)) if given.get(part) else 0


def watched(source: ModelSource, role: str, counting: Counting) -> Any:
    """The model of a role, every request of which is counted."""
    import httpx

    async def note(request: httpx.Request) -> None:
        counting.sent(request.content)

    model: Any = source(role)
    client = httpx.AsyncClient(event_hooks={"request": [note]}, timeout=3600)
    return type(model)(
        model=model.model_name, api_key=model.openai_api_key, base_url=model.openai_api_base, http_async_client=client,
        stream_usage=True, max_retries=0,
    )  # fmt: skip


async def ours(job: Job, folder: Path, settings: Settings, model: Any = None) -> dict[str, Any]:
    """By the runtime; the plan is approved, calls that ask are too, and questions get the plainest answer.

    `model` plays instead of the one of the environment; its requests are not counted.
    """
    counting = Counting()
    model = model or watched(ModelSource(config=read_config()), "execute", counting)
    agent = Agent(model, job.tools(folder), effects=job.effects, storage="memory:", settings=settings)
    corrections: list[str] = []
    asked: list[str] = []
    run, answer = None, None
    for _ in range(20):
        events = agent.stream(job.goal, thread_id="job") if run is None else agent.stream_resume(run, answer)
        async with events:
            async for event in events:
                if event["type"] == "correction":
                    corrections.append(event["text"])
        run = await agent.get("job")
        if run.status != "waiting":
            break
        asked.append(f"{run.pending[0]['kind']}: {str(run.pending[0]['question'])[:100]}")
        kind = run.pending[0]["kind"]
        answer = {"plan": "approve", "tool": "approve", "effect": NOT_DONE}.get(kind, job.reply)
    assert run is not None
    steps = len((run.plan or {}).get("steps", ()))
    return {
        "right": job.right(folder, run.answer) or ("" if run.status == "completed" else run.status),
        "calls": counting.calls, "corrections": corrections, "asked": asked, "characters": counting.characters,
        "steps": steps, "answer": run.answer,
    }  # fmt: skip


async def bare(job: Job, folder: Path, settings: Settings) -> dict[str, Any]:
    """By a loop that calls whatever the model calls until it says no more; a question at the end is answered once."""
    counting = Counting()
    tools = {tool.name: tool for tool in as_tools(job.tools(folder))}
    model = watched(ModelSource(config=read_config()), "execute", counting).bind_tools(list(tools.values()))
    messages: list[Any] = [SystemMessage("You are a helpful agent. Use the tools to do what the user asks.")]
    messages.append(HumanMessage(job.goal))
    said, asked = "", list[str]()
    for _ in range(MOST_CALLS):
        reply = await model.ainvoke(messages)
        messages.append(reply)
        said = reply.text
        if not reply.tool_calls and said.rstrip("*_ \n").endswith("?") and not asked:
            asked.append(said)
            messages.append(HumanMessage(job.reply))
        elif not reply.tool_calls:
            break
        for call in reply.tool_calls:
            try:
                text = str(await tools[call["name"]].ainvoke(call["args"]))
            except Exception as error:
                text = f"error: {error}"
            messages.append(ToolMessage(text, tool_call_id=call["id"]))
    told = "\n".join([*asked, said])
    return {
        "right": job.right(folder, told), "calls": counting.calls, "corrections": [], "asked": asked,
        "characters": counting.characters, "steps": 0, "answer": told,
    }  # fmt: skip


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(JOBS)}; all if none is named")
    parser.add_argument("--only", choices=("ours", "bare"))
    parser.add_argument("--level", choices=("claimed", "grounded", "audited", "judged"), default="audited")
    parser.add_argument("--seconds", type=float, default=120, help="the longest silence of the model")
    parser.add_argument("--json", type=Path, help="also write what came of it into this file")
    parser.add_argument("--scripted", action="store_true", help="play by a script, and print the table of the price")
    given = parser.parse_args()
    if given.scripted or read_config().model is None:
        from benchmarks.jobs.price import tables  # which imports this file

        print(await tables(given.names))
        return
    settings = Settings(verification=given.level, model_seconds=given.seconds)
    rows = []
    for name in given.names or JOBS:
        for side, play in (("ours", ours), ("bare", bare)):
            if given.only not in (None, side):
                continue
            folder = Path(tempfile.mkdtemp())
            JOBS[name].make(folder)
            started = time.monotonic()
            row = {"job": name, "side": side, **await play(JOBS[name], folder, settings)}
            row["seconds"] = round(time.monotonic() - started)
            rows.append(row)
            shown = {
                key: len(row[key]) if key in ("corrections", "asked") else row[key] for key in row if key != "answer"
            }
            print(json.dumps(shown, ensure_ascii=False), flush=True)
            for line in (*row["corrections"], *row["asked"]):
                print("   ", line, flush=True)
            if given.json:
                given.json.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
            shutil.rmtree(folder)


if __name__ == "__main__":
    asyncio.run(main())
