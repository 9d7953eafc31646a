"""A profile's hard constraints are held by code, at planning and at work; users read their own language."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from donewhen import AgentOptions, ConfigError, Profile, Settings
from donewhen.agent.config import read_config, read_profile
from donewhen.state.settings import merge_settings
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.flows import one_step, play, requests, steps, unfenced

CHINESE = Settings(confirm="never", language="zh-CN")
OPENED: list[str] = []


def open_file(path: str) -> str:
    """Open a file."""
    OPENED.append(path)
    return f"opened {path}"


def remove(path: str) -> str:
    """Remove a file."""
    OPENED.append(f"removed {path}")
    return "removed"


TOOLS = [open_file, remove]
EFFECTS = {"open_file": "read", "remove": "write"}


@pytest.mark.parametrize(
    ("profile", "bad", "said", "seen"),
    [
        (Profile(forbidden_tools=["remove"]), call("remove", path="a"), "there is no tool 'remove'", "s1.1"),
        (Profile(allowed_paths=["data"]), call("open_file", path="data/../../etc/passwd"), "outside of data", "s1.2"),
    ],
    ids=["tool", "path"],
)
async def test_what_a_profile_forbids_is_not_called(profile: Profile, bad: Any, said: str, seen: str) -> None:
    """P14: a call of a forbidden tool, or outside of the allowed paths, does not run, and the model is told."""
    OPENED.clear()
    model = one_step([bad, call("open_file", path="data/a.csv"), finish_step("x", seen)])
    flow = await play(model, TOOLS, effects=EFFECTS, settings=Settings(confirm="never", profile=profile))
    model.assert_exhausted()
    assert said in requests(model, "s1")[1].text
    assert (OPENED, flow.status) == (["data/a.csv"], "completed")


ENGLISH = submit_plan(["Read the file and count its rows"], language="en")
CHINESE_PLAN = submit_plan(["读取文件并统计行数，写出结果"], language="zh")


@pytest.mark.parametrize(("second", "read"), [(CHINESE_PLAN, "读取文件并统计行数"), (ENGLISH, "Read the file")])
async def test_a_plan_declared_in_another_language_is_corrected_once(second: Any, read: str) -> None:
    """P14, P11: where a language is set, a plan that says it is written in another one goes back; not for ever."""
    model = steps([], {"s1": [finish_step("x", "s1.result")]}, triage=[ENGLISH, second])
    flow = await play(model, settings=CHINESE)
    model.assert_exhausted()
    assert "write what the user reads in this language: zh-CN" in model.requests[1].text
    assert flow.status == "answered"
    assert (flow.run.plan or {})["steps"][0]["content"].startswith(read)


@pytest.mark.parametrize("name", ["answer", "ask_user"])
async def test_all_that_the_user_reads_is_in_the_language(name: str) -> None:
    """P14: answers and questions are held to the language too."""
    said = call(name, text="I cannot.", question="Which file do you mean?", language="en-GB")
    said["args"].pop("question" if name == "answer" else "text")
    model = ScriptedModel(roles={"triage": [said, answer("好的，没问题。")]})
    flow = await play(model, settings=CHINESE)
    model.assert_exhausted()
    assert flow.run.answer == "好的，没问题。"


async def test_without_a_language_nothing_is_checked() -> None:
    """P14: by default the user's own language is for the model to see."""
    model = ScriptedModel(roles={"triage": [answer("It is done, as you wished.")]})
    flow = await play(model, settings=Settings(), goal="请用英文回答")
    model.assert_exhausted()
    assert flow.run.answer == "It is done, as you wished."
    assert "Write what the user reads in their language" in model.requests[0].text


PROFILE_FILE = """
name = "小明"
role = "你是一家小店的会计。"
backstory = "你在店里工作了十年。"
goals = ["一分钱都不能丢"]
tasks = ["对账", "写报告"]
tone = "友好而简短"
language = "zh"
forbidden_tools = ["remove"]
"""


def test_a_profile_in_a_file_is_read_or_refused(tmp_path: Path) -> None:
    """P14, M8: TOML, at the top or in [profile]; a field that there is not is named with a near match."""
    file = tmp_path / "profile.toml"
    file.write_text(PROFILE_FILE)
    assert read_profile(file)["tasks"] == ["对账", "写报告"]
    file.write_text('[profile]\nname = "Ann"')
    assert read_config({"DONEWHEN_PROFILE": str(file)}).profile == {"name": "Ann"}
    for text, said in (('nam = "Ann"', "did you mean name"), ("name = ", "cannot be read"), ("name = 7", "name")):
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            read_profile(file)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_profile(tmp_path / "none.toml")


async def test_every_prompt_is_told_who_the_agent_is() -> None:
    """P14, M8: name, backstory and tasks beside role, goals and tone, for planning and work alike."""
    profile = Profile(name="Ann", role="You keep books.", backstory="Ten years in the shop.", tasks=["count"])
    model = one_step([finish_step("x", "s1.result")], tools=[])
    await play(model, settings=Settings(confirm="never", profile=profile))
    for request in model.requests:
        told = request.messages[0].text
        assert "- Your name: Ann\n- You keep books.\n- Ten years in the shop.\n- Task: count" in told


def test_the_language_of_a_profile_stays() -> None:
    """M1, P14: whatever a caller sets beside it; a profile is immutable."""
    base = Settings(language="en", profile=Profile(language="zh"))
    assert merge_settings(base, {"profile": {"language": "en"}, "language": "de"}).speaks == "zh"
    with pytest.raises(ValidationError):
        base.profile.tone = "new"  # type: ignore[misc]


async def test_context_and_memory_are_handed_in() -> None:
    """P14, M8: a text, or a function of goal and thread, async or not; as data, in planning and at work;
    asked once a request; what fails is gone without and said; what is empty is not there."""
    asked: list[tuple[str, str]] = []

    async def remembers(goal: str, thread_id: str) -> str:
        asked.append((goal, thread_id))
        return "The user likes tables." + "x" * 9_000

    model = one_step([finish_step("x", "s1.result")], tools=[])
    flow = await play(model, goal="Count", options=AgentOptions(context="The shop is in Berlin.", memory=remembers))
    assert asked == [("Count", flow.run.thread_id)]
    for request in model.requests[:2]:
        prompt = unfenced(request.messages[1].text)
        assert "<context>\nThe shop is in Berlin.\n</context>" in prompt
        assert "<memory>\nThe user likes tables.xxx" in prompt
        assert prompt.index("</memory>") < 9_000
    model = one_step([finish_step("x", "s1.result")], tools=[])
    flow = await play(model, options=AgentOptions(context=lambda goal, thread: 1 / 0, memory=lambda goal, thread: " "))
    assert flow.status == "answered"
    assert "ZeroDivisionError" in " ".join(event["text"] for event in flow.told("note"))
    assert "<memory" not in model.requests[0].text
