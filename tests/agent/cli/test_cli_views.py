"""What a person sees while a run works and how they are asked, without a run: events in, text out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from donewhen.agent.cli.result import receipt_lines
from donewhen.agent.cli.screen.asking import Later, Person
from donewhen.agent.cli.screen.terminal import TAB, clean, shorten
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.clients import load_pause
from donewhen.state.people.answers import Answer
from tests.kit.pauses import pending, read_answer
from tests.kit.screens.terminal import screen, written

STEPS = [{"id": "s1", "content": "Read [red]all[/red]"}, {"id": "s2", "content": "Write \x1b[2Jit"}]
METER = [{"key": "rounds", "spent": 2, "limit": 10}, {"key": "cost_usd", "spent": 0.01, "limit": None}]
EVENTS: list[dict[str, Any]] = [
    {"type": "started", "thread_id": "t1", "goal": "g"},
    {"type": "plan", "plan": {"title": "Do it", "steps": STEPS}},
    {"type": "step_started", "step": "s1", "content": STEPS[0]["content"]},
    {"type": "speech", "step": "s1", "text": "Let me "},
    {"type": "speech", "step": "s1", "text": "look.\nAt [bold]it"},
    {"type": "tool_started", "id": "s1.1", "step": "s1", "tool": "read_file", "arguments": {"path": "a.txt"}},
    {"type": "observation", "id": "s1.1", "step": "s1", "tool": "read_file", "ok": False, "text": "no such\nfile"},
    {"type": "correction", "step": "s1", "text": "criterion 1 is missing"},
    {"type": "step_finished", "step": "s1", "status": "done", "result": "read", "reason": ""},
    {"type": "step_finished", "step": "s2", "status": "blocked", "result": "", "reason": "needs s1"},
    {"type": "spent", "meter": METER},
    {"type": "something_new", "step": "s1"},
    {"type": "speech", "step": None, "text": "This is the answer.", "answer": True},
    {"type": "outcome", "status": "partial", "code": "worked", "text": "This is the answer."},
]  # fmt: skip


def test_lines() -> None:
    """S01: one line per event; text of models is never markup and never moves the cursor."""
    where, progress = screen(), Progress()
    with View(where, progress) as view:
        for event in EVENTS:
            view.show(event)
    text = written(where)
    assert text.splitlines() == [
        "Plan: Do it",
        "  ☐ s1 Read [red]all[/red]",
        "  ☐ s2 Write [2Jit",
        "◐ s1 Read [red]all[/red]",
        "s1: Let me look.",
        "s1: At [bold]it",
        '  s1.1 read_file(path="a.txt") → no such file',
        "☑ s1 Read [red]all[/red]",
        "✗ s2 Write [2Jit: blocked, needs s1",
    ]
    assert progress.thread_id == "t1"
    assert progress.end is not None
    assert progress.end["type"] == "outcome"
    assert progress.limits == {"rounds": 10}


def test_speech_that_broke_off_is_not_shown() -> None:
    """S02: what is said again from the start is not said twice."""
    where = screen()
    with View(where, Progress()) as view:
        view.show({"type": "speech", "step": None, "text": "I thi"})
        view.show({"type": "speech_restarted", "step": None})
        view.show({"type": "speech", "step": None, "text": "I think so."})
    assert written(where).splitlines() == ["I think so."]


def test_what_people_said_about_calls_in_doubt_is_shown() -> None:
    """S01: whether a call that was cut off took effect, and who said so; decisions about plans are shown elsewhere."""
    about = {"tool": "pay", "arguments": {"n": 7}, "text": ""}
    approvals = [
        {"kind": "plan", "decision": "approve", "by": "user", "text": ""},
        {"kind": "effect", "decision": "not_happened", "by": "user", "name": "mira", **about},
        {"kind": "effect", "decision": "happened", "by": "user", **about, "text": "in the ledger"},
        {"kind": "effect", "decision": "skip", "by": "policy", **about},
        {"kind": "effect", "decision": "not_happened", "by": "user", "again": True, **about},
        {"kind": "effect", "decision": "happened", "by": "user", "again": True, **about},
    ]
    shown = [text.strip() for text, _ in receipt_lines({"approvals": approvals}, screen(), details=True)]
    assert shown == [
        "Unknown change: pay(n=7) → it did not happen (mira)",
        "Unknown change: pay(n=7) → it happened – in the ledger (you)",
        "Unknown change: pay(n=7) → leave out (by the settings)",
        "Unknown change: pay(n=7) → once more (you)",
        "Unknown change: pay(n=7) → not once more (you)",
    ]
    assert [*receipt_lines({"approvals": approvals}, screen(), details=False)] == []


def test_what_happened_stays_and_what_goes_on_is_drawn_below() -> None:
    """U13: calls and ended steps scroll by; the step at work, its call and the spending are redrawn."""
    where, progress = screen(live=True), Progress()
    with View(where, progress) as view:
        for event in EVENTS[:6]:
            view.show(event)
        drawn = [line.plain for line in view.__rich__().renderables]
        assert drawn == ["◐ s1 Read [red]all[/red]", '    read_file(path="a.txt")', ""]
        for event in EVENTS[6:]:
            view.show(event)
    lines = [line for line in written(where).splitlines() if "s1.1" in line or "☑" in line]
    assert "→ no such file" in lines[0]
    assert "☑ s1 Read [red]all[/red]" in lines[-1]


def test_text_is_made_safe_and_keeps_every_letter() -> None:
    """S03: control characters and reversed reading order go; emoji and CJK stay."""
    assert clean("a\x1b[31mb\x07\x9bc\u202ed\r\ne\tf 三 👩‍👧") == "a[31mbcd\ne\tf 三 👩‍👧"
    assert shorten("one\n two", 20) == "one two"
    assert shorten("三" * 30, 10) == "三" * 4 + "…"  # two columns each


# --- asking


def typing(*lines: str) -> Callable[[str], str]:
    """Somebody who types these lines and then leaves with Ctrl-D."""
    left = list(lines)

    def read(prompt: str) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    return read


def asked(kind: str, *lines: str, editor: str | None = None, **more: Any) -> tuple[Any, str]:
    where = screen()
    waiting = pending(kind, **more)
    value = Person(where, typing(*lines), editor).ask(waiting)
    return read_answer(value, waiting), written(where)


@pytest.mark.parametrize(
    ("kind", "lines", "answer"),
    [
        ("plan", ["a"], Answer("approve")),
        ("plan", ["", "x", "?", "y"], Answer("approve")),
        ("plan", ["c"], Answer("cancel")),
        ("plan", ["/cancel"], Answer("cancel")),
        ("plan", ["no", "", "r", "shorter"], Answer("reject", "shorter")),
        ("plan", ["make it shorter"], Answer("say", "make it shorter")),
        ("plan", ["yes, go ahead"], Answer("approve")),
        ("tool", ["not that file"], Answer("reject", "not that file")),
        ("plan", [TAB, "shorter"], Answer("reject", "shorter")),
        ("plan", [f"{TAB}shorter please"], Answer("reject", "shorter please")),
        ("tool", [f"{TAB}the other file"], Answer("reject", "the other file")),
        ("plan", [TAB, "", "y"], Answer("approve")),
        ("plan", ["同意"], Answer("approve")),
        ("tool", ["y"], Answer("approve")),
        ("tool", ["r", ""], Answer("reject")),
        ("tool", ["n", "wrong file"], Answer("reject", "wrong file")),
        ("tool", ["c"], Answer("cancel")),
        ("question", ["", "2"], Answer("answer", "2023")),
        ("question", ["l"], Answer("answer", "l")),
        ("question", ["/skip"], Answer("declined")),
        ("budget", ["e"], Answer("extend", amounts={"rounds": 20})),
        ("budget", ["lots", "7"], Answer("extend", amounts={"rounds": 7})),
        ("budget", ["d"], Answer("deliver")),
        ("budget", ["r"], Answer("replan")),
        ("budget", ["s"], Answer("stop")),
        ("effect", ["dunno", "2"], Answer("not_happened")),
    ],
)  # fmt: skip
def test_what_is_typed_becomes_an_answer(kind: str, lines: list[str], answer: Answer) -> None:
    """C02, C11, U13: keys and words; where words cost money, what is missing is asked."""
    assert asked(kind, *lines)[0] == answer


@pytest.mark.parametrize("about", ["failure", "early"])
def test_what_the_run_itself_asks_is_not_skipped(about: str) -> None:
    """At a failed step a “/skip” ended the run."""
    pause = load_pause({"kind": "question", "about": about, "options": ["replan", "stop"]})
    assert (pause.keys, pause.legend) == ({}, "keys_effect")


@pytest.mark.parametrize(("kind", "line"), [("plan", "l"), ("tool", "/later"), ("question", "/later"), ("budget", "l")])
def test_later(kind: str, line: str) -> None:
    with pytest.raises(Later):
        asked(kind, line)
    with pytest.raises(Later):
        asked(kind)


def test_what_is_asked_is_shown_whole_and_safe() -> None:
    """C01: the frozen call, the options, why the last answer was not taken."""
    assert "  path     out.txt" in asked("tool", "y")[1]
    shown = asked("question", "1", problem="too long", question="Which \x1b[1myear?")[1]
    for part in ("Which [1myear?", "1. 2022", "too long"):
        assert part in shown


def test_a_plan_is_drawn_once_in_a_conversation() -> None:
    """Issue 36: two questions about a plan are answered without the plan; another plan is drawn whole."""
    where, first = screen(), pending("plan")
    person, said = Person(where, typing("y", "y", "y", "y")), list[str]()
    for shown in (first, {**first, "reply": "A day."}, {**first, "reply": "Free."}, {**first, "id": "confirm.2"}):
        at = len(written(where))
        person.ask(shown)
        said.append(written(where)[at:])
    title = first["plan"]["title"]
    assert [title in text for text in said] == [True, False, False, True]
    assert ["The plan is unchanged." in text for text in said] == [False, True, True, False]
    assert "A day." in said[1]


def test_what_is_said_to_the_same_plan_again_is_drawn() -> None:
    """Q15: a planner that submits the plan again, with words to it, is read; the plan itself is not drawn again."""
    where, first = screen(), pending("plan")
    person, said = Person(where, typing("y", "y", "y")), list[str]()
    again = {**first, "plan": {**first["plan"], "speak": "It is free."}}
    for shown in (first, again, {**again, "problem": "What should be different?"}):
        at = len(written(where))
        person.ask(shown)
        said.append(written(where)[at:])
    assert ["It is free." in text for text in said] == [False, True, False]
    assert [first["plan"]["title"] in text for text in said] == [True, False, False]


def test_what_is_not_possible_is_not_offered() -> None:
    """D03: while nothing is planned, no key plans anew."""
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "s" if len(prompts) > 1 else "r"

    where, unplanned = screen(), pending("budget", options=["extend", "deliver what there is", "stop"])
    assert Person(where, read).ask(unplanned) == "stop"
    assert len(prompts) == 2
    assert "replan" not in prompts[0]
    assert "nothing is planned yet" in written(where)


def script(folder: Path, body: str) -> str:
    editor = folder / "editor.sh"
    editor.write_text(f"#!/bin/sh\n{body}\n")
    editor.chmod(0o755)
    return str(editor)


def test_the_editor(tmp_path: Path) -> None:
    """C02, C12, U3: an edit is shown before it is sent, and kept where it is not; nothing changed, or no plan any
    more, is said.
    """
    changed = script(tmp_path, 'grep -q everybody "$1" || sed -i "s/Tell the user/Tell everybody/" "$1"')
    answer, shown = asked("plan", "e", "n", "e", "y", editor=changed)
    assert isinstance(answer, Answer)
    assert answer.plan is not None
    assert answer.plan["steps"][2]["content"] == "Tell everybody"
    assert "3. Tell everybody" in shown.partition("Your edit is kept")[0]
    assert "Your edit is kept" in shown
    assert asked("plan", "e", "n", "a", editor=changed)[0] == Answer("approve")
    assert "Nothing was changed" in asked("plan", "e", "a", editor=script(tmp_path, "true"))[1]
    destroyed = script(tmp_path, 'echo "shorter please" > "$1"')
    assert "cannot be a text" in asked("plan", "e", "n", "a", editor=destroyed)[1]
    assert "code 3" in asked("plan", "e", "a", editor=script(tmp_path, "exit 3"))[1]
    assert "did not start" in asked("plan", "e", "a", editor="/nowhere/editor")[1]


def test_the_arguments_of_a_call_in_the_editor(tmp_path: Path) -> None:
    """X15: edited arguments are JSON; anything else is asked again."""
    changed = script(tmp_path, 'sed -i "s/out.txt/in.txt/" "$1"')
    assert asked("tool", "e", editor=changed)[0] == Answer("edit", arguments={"path": "in.txt", "content": "7"})
    assert asked("tool", "e", "r", "no", editor=script(tmp_path, 'echo "{" > "$1"'))[0] == Answer("reject")
