"""Which question an answer is for: strict, by id. An answer that nothing waits for changes nothing."""

import re
from collections.abc import Mapping
from typing import Any

from langgraph.types import Command

from agent.run import Run
from state.errors import StaleAnswer

_ID = re.compile(r"[0-9a-f]{32}|(?:plan|confirm|budget|failure|s\d+)(?:@\d+)?\.[\w.@+-]+|[A-Za-z][\w-]*\.(?:q|call|effect)\d+\S*")


def resume_command(run: Run, answer: Any) -> Command[Any]:
    """The command that gives `answer` to what `run` waits for. Raises StaleAnswer if it waits for nothing like it.

    `answer` is an answer to the question asked now, or `{id: answer}` with ids of open questions.
    """
    ids = [pause["id"] for pause in run.pending]
    if not run.pending:
        raise StaleAnswer(f"thread {run.thread_id} waits for no answer: it is {run.status}")
    first = run.pending[0]
    if not _by_id(answer, {*ids, first["interrupt_id"]}):
        return Command(resume={first["interrupt_id"]: answer})
    unknown = [id for id in answer if id not in ids and id != first["interrupt_id"]]
    if unknown:
        raise StaleAnswer(f"nothing waits under {', '.join(unknown)}; open: {', '.join(ids)}", ids)
    named = {first["id"] if id == first["interrupt_id"] else id: value for id, value in answer.items()}
    return Command(resume={first["interrupt_id"]: {"answers": named}})


def _by_id(answer: Any, known: set[str]) -> bool:
    if not isinstance(answer, Mapping) or not answer:
        return False
    return all(isinstance(key, str) and (key in known or _ID.fullmatch(key)) for key in answer)
