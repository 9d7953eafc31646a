"""What stands on a terminal, as one draws it: nothing raw, nothing broken in the middle, in narrow ones and in CJK."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.text import Text

from donewhen.agent.cli.screen.drawing import AnswerText, draw_pause
from donewhen.agent.cli.screen.views import Progress, View
from donewhen.graph.pauses.pause import load_pause
from donewhen.testing import ask_user, call, finish_step, submit_plan
from tests.agent.cli.test_cli_terminal import COUNT, COUNTED, Hanging, scripted
from tests.kit.pauses import LIMITS, pending
from tests.kit.screens.shell import Shell
from tests.kit.screens.shell import scripted as in_shell
from tests.kit.screens.terminal import ESCAPES, Session, drawn, environment, piped, screen, written

WORDS = "Sum the amounts of every region of the sales file and compare them"
LONG_CHINESE = "统计每个地区的销售额并写入报告文件，然后检查报告"
MARKDOWN = "# Found\n\n- **3** files\n- none empty\n\nThat is all."


@pytest.mark.parametrize("width", [80, 50])
def test_no_word_is_broken_and_nothing_is_raw(width: int) -> None:
    """U13: the plan, the limits and the keys fit their columns, in words."""
    where = screen(width=width, live=True)
    check = {"text": "It is there", "check": {"tool": "file_exists", "arguments": {"path": "report.md"}}}
    step = {"id": "s1", "content": WORDS, "done_when": [check], "tools": ["write_file"], "depends_on": []}
    plan = {"title": WORDS, "steps": [step]}
    asked = {"kind": "plan", "plan": plan, "limits": LIMITS, "effects": {"write_file": "write"}}
    where.show(draw_pause(load_pause(asked), where))
    where.legend(where.say("keys_plan"))
    lines = drawn(written(where), width)
    words = " ".join(lines).split()
    assert all(word in words for word in WORDS.split())
    assert "report.md)" in words
    assert "What may be changed write_file (each call asks first)" in " ".join(words), "as in the text of the plan"
    raw = ("**", "_", "{", "nothing")
    assert not [word for word in words for mark in raw if mark in word and word not in ("file_exists", "write_file")]
    starts = [line.strip()[:1] for line in lines if "[" in line]
    assert set(starts) == {"["}, "a key was parted from its words"


@pytest.mark.parametrize("form", ["{}", "# {}", "- {}", "{} and {}", "| a | b |\n|---|---|\n| c | {} |"])
def test_lines_of_wide_characters_are_filled(form: str) -> None:
    """U13: Chinese text is broken between its characters, so that lines are full, and nothing of it is lost."""
    where = screen(width=50, live=True, language="zh")
    text = f"结果 result: {LONG_CHINESE}，再写入 sales.csv（精确到分）。{LONG_CHINESE}。"
    where.show(AnswerText(form.format(text, text)))
    lines = drawn(written(where), 50)
    assert "".join(text.split()) in "".join("".join(lines).split())
    full = [cell_len(line.strip()) for line in lines if LONG_CHINESE[:4] in line]
    assert all(columns >= 40 for columns in full), lines
    assert not [line for line in lines if line.strip()[0] in "，。）"]


def test_a_chinese_run_is_chinese_at_the_terminal_and_when_it_is_shown(shell: Shell) -> None:
    """U13, S03, P14: the runtime's own words, at work and afterwards, are in the language that was declared."""
    plan = submit_plan([COUNT], language="zh-CN")
    with in_shell(shell, triage=[plan], execute=[[call("list_files")], COUNTED]):
        done = shell("run", LONG_CHINESE, "--yes", "--thread", "mine")
        shown = shell("show", "mine").stdout
    assert "已完成 · 完成 1/1 步" in done.stderr
    for part in (
        f"目标：{LONG_CHINESE}",
        "状态：已完成",
        "方式：一步（规划）",
        "有依据: there is a count",
        "花费",
        "模型调用",
    ):
        assert part in shown, shown
    assert not [word for word in ("Mode", "Status", "Goal", "Spent", "cited", "audited", "rounds") if word in shown]


def test_every_event_as_a_line_of_json(shell: Shell) -> None:
    """S01: `--stream-json`: the events as they are, the result last."""
    with in_shell(shell, triage=[submit_plan([COUNT])], execute=[[call("list_files")], COUNTED]):
        done = shell.run("--yes", "--stream-json")
    *events, result = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "started"
    assert {"plan", "tool_started", "observation", "step_finished", "waiting", "outcome"} <= set(kinds)
    assert (result["status"], result["answer"], result["schema_version"]) == ("completed", "3 files", 1)
    assert done.stderr == ""


def test_what_a_call_changes_stays_in_the_scrollback_and_is_folded() -> None:
    """U13: an edit that ran is shown as a difference; of a long text the beginning, and how much more there is."""
    where, progress = screen(), Progress()
    content = "\n".join(f"line {number}" for number in range(40))
    made: dict[str, Any] = {"type": "tool_started", "id": "s1.1", "step": "s1", "tool": "write_file"}
    made["arguments"] = {"path": "a", "content": content}
    answered = {"type": "observation", "id": "s1.1", "step": "s1", "tool": "write_file", "ok": True, "text": "Wrote it"}
    with View(where, progress) as view:
        view.show({"type": "plan", "plan": {"title": "P", "steps": [{"id": "s1", "content": "Write"}]}})
        view.show(made)
        view.show(answered)
    text = written(where)
    assert 's1.1 write_file(path="a", content=…) → Wrote it' in text
    assert "│ line 0" in text
    assert "line 39" not in text
    assert "… 28 more lines" in text


def test_a_file_that_is_written_over_is_shown_as_a_difference(tmp_path: Path) -> None:
    """U13: asked about and in the scrollback, a write is what it changes on disk; a new file is what it holds."""
    (tmp_path / "a.txt").write_text("".join(f"line {number}\n" for number in range(9)))
    content = "".join(f"line {number}\n".replace("line 4", "LINE FOUR") for number in range(9))
    writes = [
        call("write_file", path="a.txt", content=content),
        call("write_file", path="b.txt", content="new\ntext\n"),
    ]
    step = {"content": "Write", "done_when": ["written"], "tools": ["read_file"]}
    with scripted(
        tmp_path, triage=[submit_plan([step])], execute=[[each] for each in writes] + [finish_step("Done.", "s1.1")]
    ) as env:
        session = Session.start("run", "write", env=env, cwd=tmp_path)
        session.reply("y")
        shown = session.reply("y").split("May step")[-1]
        shown_new = session.reply("y").split("May step")[-1]
        assert session.end() == (0, "Done.\n")
    assert "│ -line 4" in shown
    assert "│ +LINE FOUR" in shown
    assert "line 0" not in shown
    assert "│ new" in shown_new
    assert ESCAPES.sub("", session.raw).count("│ -line 4") == 2, "not in the scrollback"


def test_what_is_said_beside_a_plan_is_shown_and_stop_is_said_on_lines_of_its_own(tmp_path: Path) -> None:
    """U1, U13: the planner's words; at 50 columns what Ctrl-C says is broken between words, the command not at all."""
    plan, hanging = submit_plan([COUNT], speak="I will count them."), Hanging()
    with scripted(tmp_path, triage=[plan], execute=[hanging]) as env:
        session = Session.start("run", "count", "--thread", "mine", env=env, cwd=tmp_path, columns=50)
        assert "I will count them." in session.reply("y")
        session.expect("◐ s1 Count")
        hanging.asked()
        session.interrupt()
        session.expect("Stopping at")
        session.interrupt()
        assert session.end() == (130, "")
    lines = drawn(session.raw, 50)
    assert [line for line in lines if line.startswith("Stopping at the next clean point; Ctrl-C once")]
    said = " ".join(line.strip() for line in lines)
    assert re.search(r"Go on with: \S*donewhen resume mine", said), "by its path, where PATH has no donewhen"


def test_the_answer_is_drawn_while_it_is_written() -> None:
    """U13, S02: a whole paragraph stands there before the next one is; what was taken back is not."""
    where, progress = replace(screen(live=True), answers_here=True), Progress()
    with View(where, progress) as view:
        view.show({"type": "speech", "step": None, "text": "**One** is\n\nTwo", "answer": True})
        assert "One is" in ESCAPES.sub("", written(where))
        tail = [row.plain for row in view.__rich__().renderables if isinstance(row, Text)]
        assert "Two" in tail
        view.show({"type": "speech", "step": None, "text": " is next.", "answer": True})
    assert "Two is next." in written(where)
    assert progress.answer.whole == "**One** is\n\nTwo is next."


def test_a_question_is_drawn_and_not_typed_out() -> None:
    """U13: no raw Markdown in what is asked; the options by number, below each other."""
    where = screen(width=50, live=True)
    options = ["2022", "the year " * 8]
    where.show(
        draw_pause(load_pause(pending("question", question="Which **year** of `sales.csv`?", options=options)), where)
    )
    lines = drawn(written(where), 50)
    assert lines[:2] == ["Which year of sales.csv?", "1. 2022"]
    assert lines[3].startswith("   the year")


def test_a_call_is_shown_as_it_will_run() -> None:
    """U13, Q10, X15: why it asks, short arguments by name, an edit as a difference, whole."""
    where = screen()
    arguments = {"path": "a.txt", "old_text": "one\ntwo\nthree", "new_text": "one\n2\nthree"}
    asked_for = pending("tool", tool="edit_file", arguments=arguments, question="Run it? It is not in the plan.")
    where.show(draw_pause(load_pause(asked_for), where))
    lines = [line.strip() for line in written(where).splitlines()]
    assert lines[0] == "Run it? It is not in the plan."
    assert {"path  a.txt", "│ -two", "│ +2"} <= set(lines)
    assert "\\n" not in written(where)


def test_a_conversation_at_a_terminal(tmp_path: Path) -> None:
    """U13, C02, C06, D04: Tab with feedback, the answer drawn once where it is read, another request on the same
    thread, and Ctrl-D, which leaves its question open.
    """
    two = [COUNT, {"content": "Tell it", "done_when": ["it is told"], "tools": []}]
    execute = {"s1": [[call("list_files")], COUNTED], "s2": [finish_step(MARKDOWN, "s2.result")]}
    triage = [submit_plan(["Look"]), submit_plan(two), submit_plan([COUNT])]
    with scripted(tmp_path, triage=triage, execute={**execute}) as env:
        session = Session.start("run", "count", env=env, cwd=tmp_path, columns=50, answers_here=True)
        session.asked()
        session.press(b"\t")
        assert "What should be different?" in session.reply("count them, then tell me")
        session.reply("y")
        assert "What next?" in session.reply("again")
        session.asked()
        session.press(b"\x04")
        assert session.end() == (3, "")
    assert "donewhen resume" in session.seen
    lines = drawn(session.raw, 50)
    assert (lines.count("Found"), lines.count(" • 3 files")) == (1, 1)
    assert not [line for line in lines if "**" in line or "# Found" in line]
    assert [line for line in lines if line.startswith("  s1.1 list_files()")]


def test_another_request_follows_in_the_latest_conversation(tmp_path: Path) -> None:
    """U13: `-r` goes on in the latest thread; `-n` asks nothing; `-q` says nothing but the answer."""
    with scripted(
        tmp_path, triage=[submit_plan([COUNT]), ask_user("Which?")], execute=[[call("list_files")], COUNTED]
    ) as env:
        first = piped("run", "count", "--yes", "-q", env=env, cwd=tmp_path)
        assert (first.returncode, first.stdout, first.stderr) == (0, "3 files\n", "")
        session = Session.start("run", "-r", "-n", "and now?", env=env, cwd=tmp_path)
        assert session.end() == (3, "")
        assert "Which?" in session.seen
        listed = piped("threads", "--json", env=env, cwd=tmp_path)
    assert len(json.loads(listed.stdout)["threads"]) == 1


def test_the_command_speaks_the_language_of_the_goal(tmp_path: Path) -> None:
    """U13, Q11: keys, labels and the last line, from the demo model in Chinese."""
    env = environment(tmp_path)
    (tmp_path / "a.py").write_text("")
    session = Session.start("run", "统计 Python 文件的数量", env=env, cwd=tmp_path, answers_here=True)
    assert "[y] 执行" in session.reply("y")
    assert "接下来做什么" in session.reply("")
    assert session.end()[0] == 0
    assert "已完成 · 完成 1/1 步" in session.raw


def test_calls_that_are_approved_together_are_one_list_with_keys_for_all() -> None:
    """Decision 0082: the first call stands above the others, and the keys say that they answer for all."""
    where = screen(width=60, live=True)
    question = "May step s1 call refund? Approving it is for all of them:\n- refund A01\n- refund A02"
    others = [{"tool": "refund", "arguments": {"order": order}} for order in ("A01", "A02")]
    alone = pending("tool", question=question, tool="refund", arguments={"order": "A00"})
    together = load_pause({**alone, "batch": others})
    where.show(draw_pause(together, where))
    where.legend(where.say(together.legend))
    shown = "\n".join(drawn(written(where), 60))
    assert shown.index("A00") < shown.index("May step s1") < shown.index("A02") < shown.index("[y] run all of them")
    assert load_pause(alone).legend == "keys_tool"
