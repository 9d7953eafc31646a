"""Twelve letters of a CSV file, sorted by workers: a limit for each and for all, questions, second tries, a table.

Run: `python batch.py`. It needs no key; `make_agent` has the place of a real model. Run it again after a crash: nothing
is done twice, and what workers gave up on goes back to them. The batch is kept in `batch.db` here, or in
`DONEWHEN_STORAGE=postgresql://user@host/db`. With that, `python batch.py work` is one more worker, until SIGTERM: start
it three times, on any machines.
"""

import asyncio
import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel

from donewhen import Agent, AgentOptions, Models
from donewhen.testing import ScriptedModel, answer, ask_user, call
from donewhen.types import ThreadInfo, Worker

LETTERS = Path(__file__).with_name("letters.csv")
BATCH = "letters-may"
MOST = 0.50
"""Dollars for the batch: nothing in DoneWhen counts a batch, so this program does."""
ORDERS = {"ann": "A-1", "bob": "B-2", "cem": "C-3", "dana": "D-4", "eli": "E-5", "fay": "F-6", "gus": "G-7"}


class Sorted(BaseModel):
    """What becomes of a letter."""

    kind: Literal["refund", "delivery", "other"]
    order: str


@dataclass
class Customer:
    """Whose letter it is: for the tools, and not for the model."""

    name: str


def find_order(runtime: ToolRuntime[Customer]) -> str:
    """Find the last order of whoever wrote the letter."""
    return ORDERS.get(runtime.context.name, "none")


def make_agent() -> Agent:
    """The same agent for whoever submits and for every worker: a worker has its own model, tools and prices."""
    prices = {"scripted": {"input": 1, "output": 5}}  # dollars per million tokens; known models have theirs
    return Agent(
        Models(model(), prices=prices),  # or "openai:gpt-5.4-mini"
        [find_order],
        effects={"find_order": "read"},
        storage=os.environ.get("DONEWHEN_STORAGE", "sqlite:///batch.db"),
        output_type=Sorted,  # here and not at `submit`, so that workers have its validators too
        settings={"confirm": "never", "limits": {"cost_usd": 0.05}},  # of each letter
        options=AgentOptions(queue=BATCH),
    )


def read_letters(path: Path) -> dict[str, tuple[str, Customer]]:
    """The goal and the customer of each letter, by the id of its thread; a wrong line is named and left out."""
    letters = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines), 2):
            if all((row.get(name) or "").strip() for name in ("letter", "customer", "text")):
                letters[f"{BATCH}/{row['letter']}"] = (f"Sort this letter: {row['text']}", Customer(row["customer"]))
            else:
                print(f"line {number} is wrong, and left out: {','.join(map(str, row.values()))}")
    return letters


async def list_batch(agent: Agent, status: Iterable[str] = ()) -> list[ThreadInfo]:
    """All threads of the batch, in the order of their names."""
    page = await agent.threads(1000, prefix=f"{BATCH}/", status=tuple(status))
    rows = [*page]
    while page.cursor:
        rows += (page := await agent.threads(1000, prefix=f"{BATCH}/", status=tuple(status), cursor=page.cursor))
    return sorted(rows, key=lambda row: (len(row.thread_id), row.thread_id))


def cost_of(row: ThreadInfo) -> float:
    """What a letter has cost, its first try included: `spent` is of the last request."""
    return row.spent.get("cost_usd", 0) + row.metadata.get("cost_before", 0)


async def work_until_rest(agent: Agent, worker: Worker, most: float) -> bool:
    """Wait until every letter has ended or waits; False if the sum was spent before, and the batch was stopped."""
    while True:
        rows = await list_batch(agent)
        if sum(map(cost_of, rows)) > most:
            await worker.stop()  # and those elsewhere, by SIGTERM: else they go on meanwhile
            for row in await list_batch(agent, ("queued", "waiting", "running", "interrupted")):
                await agent.cancel(row.thread_id, f"the batch has spent its {most:g} dollars")
            return False
        if not any(row.status == "queued" or (row.status == "running" and not row.problem) for row in rows):
            return True  # a `running` one with a problem: workers gave up on it
        await asyncio.sleep(0.2)


def ask(questions: list[Mapping[str, Any]]) -> list[str]:
    """Answer the questions of all letters together; here somebody would read them on one page."""
    for question in questions:
        print(f"{question['thread_id']} asks: {question['question']}")
    return ["refund" for _ in questions]


async def run_batch(path: Path = LETTERS, most: float = MOST) -> None:
    """Submit what is not there yet, and work until all of it has ended."""
    letters = read_letters(path)
    async with make_agent() as agent:
        for id, (goal, customer) in letters.items():
            await agent.submit(goal, request_id=id, context=customer)
        async with agent.worker(concurrency=4) as worker:
            while going := await work_until_rest(agent, worker, most):
                questions = [each for each in await agent.pending() if each["thread_id"] in letters]
                for question, said in zip(questions, ask(questions), strict=True):
                    await agent.submit_answer(question["thread_id"], said, question=question, by="mira")
                again = [row for row in await list_batch(agent, ("failed", "partial")) if not row.metadata]
                for row in again:  # once: the second request has metadata
                    goal, customer = letters[row.thread_id]
                    more: Any = {"context": customer, "metadata": {"cost_before": cost_of(row)}}
                    await agent.submit(goal, thread_id=row.thread_id, request_id=f"{row.thread_id}/2", **more)
                    print(f"{row.thread_id} is tried again: {row.problem}")
                if not questions and not again:
                    break
        print("" if going else f"stopped: {most:g} dollars are spent")
        await show_table(agent)


async def show_table(agent: Agent) -> None:
    """Print the result, the cost and the receipt of each letter."""
    total = 0.0
    for row in await list_batch(agent):
        run, total = await agent.get(row.thread_id, output_type=Sorted), total + cost_of(row)
        found = f"{run.output.kind} {run.output.order}" if isinstance(run.output, Sorted) else row.problem
        file = save_receipt(row.thread_id, run.receipt) if run.outcome else ""
        print(f"{row.thread_id:15} {run.status:9} {found:15} {cost_of(row):.4f} {file}")
    print(f"{'all':42}{total:.4f}")


def save_receipt(thread_id: str, receipt: Any) -> Path:
    """Write a receipt to a file; `donewhen.receipts` would sign it."""
    file = Path("receipts", f"{thread_id.rpartition('/')[2]}.json")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(receipt, indent=1, ensure_ascii=False), encoding="utf-8")
    return file


def model() -> ScriptedModel:
    """A real model's place. It asks about unclear letters, and cannot be reached at the first try of one."""
    failed = []

    def sort(messages: list[Any], tools: list[Any]) -> Any:
        text = "\n".join(str(message.content) for message in messages)
        if "mirror" in text and not failed:
            failed.append(True)
            raise RuntimeError("the model is not there")
        found = [str(message.content) for message in messages if message.type == "tool"]
        if not found:
            return call("find_order")
        unclear = "does not work" in text or "what I ordered" in text
        if unclear and len(found) == 1:
            return ask_user("Is this a refund, or another delivery?", ["refund", "delivery"])
        refund = unclear or any(word in text for word in ("money back", "A refund", "pay me back"))
        kind = "refund" if refund else "delivery" if "Where" in text or "?" in text else "other"
        order = next((order for order in ORDERS.values() if order in text), "none")
        return answer(f"It is {kind}.", {"kind": kind, "order": order})

    return ScriptedModel(roles={"triage": sort}, strict=False)


async def work() -> None:
    """Be one more worker of the batch."""
    async with make_agent() as agent:
        await agent.worker(concurrency=8).run()


if __name__ == "__main__":
    asyncio.run(work() if sys.argv[1:] == ["work"] else run_batch())
