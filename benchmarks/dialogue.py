"""Dialogue tasks as τ-bench has them: a simulated user talks, tools of an MCP server change a database, and it decides.

A task is JSON: `user` (who they are and what they want, for the model that plays them), `policy` (the agent's rules),
`server` (an entry of `mcpServers`, with `{database}` for the file that its tools work on), `database` (what is in that
file at first, JSON) and `actions` (the right calls, `{"name", "arguments"}`). It is solved if the file is, after the
dialogue, what it is after the right calls, and the user was told all of `outputs`.

    python -m benchmarks.dialogue TASKS.jsonl --model openai:gpt-5 --user openai:gpt-5-mini --turns 30
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from donewhen import Agent, McpServers
from donewhen.agent.config import read_config
from donewhen.agent.models import ModelSource
from donewhen.state.values import same_json

Json = dict[str, Any]
STOP = "###STOP###"
GREETING = "Hi! How can I help you today?"
MOST_TURNS = 30
PLAY = f"""You play a customer who writes to a service. Say one short message at a time, only what the customer would
say. Tell what you know when you are asked for it, and make nothing up. When all that you want is done, or cannot be
done, write {STOP}.

{{user}}"""


@dataclass(frozen=True)
class Dialogue:
    """How a dialogue went."""

    solved: bool
    same_database: bool
    told: bool
    """All outputs of the task were said to the user."""
    turns: int
    status: str
    """Of the last run; `waiting` if the user left while something was open."""
    said: Sequence[tuple[str, str]]
    """`agent` or `user`, and the words."""
    spent: Json


class SimulatedUser:
    """A customer, played by a model."""

    def __init__(self, model: BaseChatModel, task: Mapping[str, Any]) -> None:
        self._model = model
        self._messages: list[BaseMessage] = [SystemMessage(PLAY.format(user=task["user"]))]
        self.said: list[tuple[str, str]] = []

    async def hear(self, words: str) -> str:
        """Return what the user says to this."""
        self._messages.append(HumanMessage(words))
        reply = (await self._model.ainvoke(self._messages)).text.strip()
        self._messages.append(AIMessage(reply))
        self.said += [("agent", words), ("user", reply)]
        return reply


@asynccontextmanager
async def serving(task: Mapping[str, Any], database: Path) -> AsyncIterator[McpServers]:
    """Serve the task's tools on a fresh database in this file."""
    _write(database, task["database"])
    given = json.loads(json.dumps(task["server"]).replace("{database}", json.dumps(str(database))[1:-1]))
    async with McpServers({"mcpServers": {"world": given}}) as servers:
        yield servers


async def right_database(task: Mapping[str, Any], folder: Path) -> Any:
    """Return the database after the right calls."""
    async with serving(task, folder / "right.json") as servers:
        tools = {tool.name: tool for tool in servers.tools}
        for action in task["actions"]:
            await tools[action["name"]].ainvoke(action.get("arguments") or {})
    return _read(folder / "right.json")


def _write(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value), "utf-8")


def _read(file: Path) -> Any:
    return json.loads(file.read_text("utf-8"))


async def talk(
    task: Mapping[str, Any],
    model: BaseChatModel,
    user_model: BaseChatModel,
    folder: Path,
    settings: Json | None = None,
    most_turns: int = MOST_TURNS,
) -> Dialogue:
    """Let a simulated user talk to an agent until they stop, and compare the databases.

    Whatever the agent asks, plans and calls with effects included, is said to the user, and answered in their words.
    """
    user, turns = SimulatedUser(user_model, task), 0
    async with (
        serving(task, folder / "world.json") as servers,
        Agent(model, [servers], storage="memory:", settings=settings, instructions=task.get("policy", "")) as agent,
    ):
        run, said = None, await user.hear(GREETING)
        while STOP not in said and turns < most_turns:
            turns += 1
            waits = run is not None and run.status == "waiting"
            run = await (agent.resume(run, said) if run and waits else agent.start(said, thread_id="dialogue"))
            said = await user.hear(_words_of(run))
    found, right = _read(folder / "world.json"), await right_database(task, folder)
    heard = "\n".join(words for who, words in user.said if who == "agent")
    told, same = all(output in heard for output in task.get("outputs") or ()), same_json(found, right)
    spent, status = (dict(run.spent), run.status) if run else ({}, "none")
    return Dialogue(same and told, same, told, turns, status, tuple(user.said), spent)


def _words_of(run: Any) -> str:
    """Return what a run says to its user: its question, with what was wrong with the last answer, or its answer."""
    if not run.pending:
        return str(run.answer)
    return "\n\n".join(filter(None, (run.problem, str(run.pending[0]["question"]))))


async def main(tasks: Sequence[Json], model: str | None, user: str | None, most_turns: int = MOST_TURNS) -> None:
    """Play all tasks, and print how each went."""
    solved, source = list[bool](), ModelSource(model, config=read_config())
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            models = source("execute", model), source("triage", user)
            found = await talk(task, *models, Path(folder), most_turns=most_turns)
        solved.append(found.solved)
        print(json.dumps(asdict(found), ensure_ascii=False))
    print(f"{sum(solved)} of {len(solved)} solved")


if __name__ == "__main__":
    asking = argparse.ArgumentParser(description=__doc__)
    asking.add_argument("tasks", type=Path)
    asking.add_argument("--model")
    asking.add_argument("--user")
    asking.add_argument("--turns", type=int, default=MOST_TURNS)
    given = asking.parse_args()
    played = [json.loads(line) for line in given.tasks.read_text("utf-8").splitlines()]
    asyncio.run(main(played, given.model, given.user, given.turns))
