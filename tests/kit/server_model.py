"""The one model behind LangGraph's server in tests: what it does is told by the goal."""

import threading
from typing import Any

from donewhen.testing import answer, ask_user, call, finish_step, submit_plan

LOOK = submit_plan(
    [
        {"content": "list the files", "done_when": ["the files are known"], "tools": ["list_files"]},
        {"content": "ask for the colour", "done_when": ["the colour is known"], "tools": ["list_files"]},
    ],
    title="Look around",
    speak="I will look at what there is, and ask you for the colour.",
)
NOTE = [
    {"content": "write the note", "done_when": ["it is written"], "tools": ["write_file"]},
    {"content": "ask for the colour", "done_when": ["it is known"], "tools": ["list_files"]},
]
WRITE = submit_plan([{"content": "write it", "done_when": ["it is written"], "tools": ["write_file"]}], title="Write")
FIND = submit_plan([{"content": "ask first", "executor": "lib", "done_when": ["papers are found"]}], reason="one thing")
COLOUR = ask_user("Which colour?", ["red", "green"])
go_on = threading.Event()
"""Set where the model may answer the second step of a note."""


def decide(messages: list[Any], tools: list[Any]) -> Any:
    """Decide by the goal, the role, the step and what was seen so far.

    “hello” is answered; “look around” lists files and asks; “note …” writes and asks; “write it” writes a file;
    “find papers” hands over to the executor `lib`.
    """
    role, text = messages[0].text.split("\n")[0], messages[-1].text
    goal = messages[1].text.partition("</goal>")[0]
    if role.startswith("You are the triage"):
        if "hello" in goal:
            return answer("Hello to you.")
        if "note " in goal:
            return submit_plan(NOTE, title="In blue" if "in blue" in text else "In any colour")
        return WRITE if "write it" in goal else FIND if "find papers" in goal else LOOK
    if role.startswith("You write the answer"):
        return "It is noted." if "note " in goal else "There is one file, and the colour is green."
    first = messages[1].text.rsplit('<step id="', 1)[1].startswith("s1")  # a goal may hold the brief of another run
    if "find papers" in goal:
        return finish_step("three papers on physics", ("s1.2", "physics"))
    if first:
        return decide_first(goal, seen="[s1.1]" in text)
    if "note " in goal:
        go_on.wait(20)
    return finish_step("green", evidence=("s2.1", "green")) if "[s2.1]" in text else COLOUR


def decide_first(goal: str, *, seen: bool) -> Any:
    """Decide in the first step: one call, then the end."""
    if "write it" in goal:
        return (
            finish_step("done", ("s1.1", "forged.txt")) if seen else call("write_file", path="forged.txt", content="x")
        )
    if "note " in goal:
        return finish_step("written", "s1.1") if seen else call("write_file", path="note", content="a")
    return finish_step("a.txt", evidence=("s1.1", "a.txt")) if seen else call("list_files")
