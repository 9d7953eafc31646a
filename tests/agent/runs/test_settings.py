"""Settings: what is refused, how a call's go over the agent's, and what a client of the server may change."""

import math
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from langchain_core.messages import HumanMessage

from donewhen import Agent, AgentOptions, ConfigError, GoalError, Limits, Profile, Settings, build_graph
from donewhen.agent.config import Config
from donewhen.agent.workspace import WORKSPACE_TOOLS
from donewhen.state.settings import CARE, confine_settings, merge_settings, read_settings, stored_settings
from donewhen.testing import ScriptedModel, answer, ask_user, call, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.runs import Outbox, one_step, sending


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": {"rounds": 3}}, "there is no limit; did you mean limits"),
        ({"aprovals": "each"}, "did you mean approvals"),
        ({"limits": {"round": 3}}, "did you mean rounds"),
        ({"profile": {"forbiden_tools": ["x"]}}, "did you mean forbidden_tools"),
        ({"models": {"planner": "openai:x"}}, "planner"),
        ({"confirm": "sometimes"}, "confirm"),
        ({"on_question": "assume", "question_seconds": math.inf}, "question_seconds: Input should be a finite number"),
        ({"tool_seconds": math.inf}, "tool_seconds: Input should be a finite number"),  # JSON has neither
    ],
)
def test_unknown_names_are_refused(given: dict[str, object], said: str) -> None:
    """S5: with what was probably meant; by the agent at once, and by a call."""
    with pytest.raises(ConfigError) as refused:
        read_settings(given)
    assert said in str(refused.value)
    with pytest.raises(ConfigError):
        Agent(ScriptedModel(), storage="memory:", settings=given)


async def test_a_call_cannot_drop_what_is_forbidden() -> None:
    """M1: `start(settings=…)` adds to the agent's settings; its forbidden tools stay so."""
    for given in ({}, {"profile": {"role": "clerk", "forbidden_tools": []}}):
        outbox = Outbox()
        kept = {"profile": {"forbidden_tools": ["send"]}, "on_failure": "deliver"}
        agent = Agent(sending(call("send", to="ann", text="hi")), [outbox.tool()], storage="memory:", settings=kept)
        run = await agent.start("do it", settings={**given, "confirm": "never", "approvals": "never"})
        assert (run.status, outbox.sent) == ("failed", [])


def test_settings_merge_field_by_field() -> None:
    """M1: limits by their own keys, the profile by its own, and paths stay within those allowed."""
    base = Settings(
        limits=Limits(rounds=7), profile=Profile(role="clerk", forbidden_tools=["rm"], allowed_paths=["work"])
    )
    both = merge_settings(base, {"limits": {"cost_usd": 1}, "profile": {"tone": "dry", "forbidden_tools": ["mv"]}})
    assert (both.limits.rounds, both.limits.cost_usd, both.limits.replans) == (7, 1, 2)
    assert (both.profile.role, both.profile.tone) == ("clerk", "dry")
    assert both.profile.forbidden_tools == ["rm", "mv"]
    assert merge_settings(base, {"profile": {"allowed_paths": ["work/out"]}}).profile.allowed_paths == ["work/out"]
    for outside in (["/etc"], ["work/../etc"]):
        with pytest.raises(ConfigError, match="allowed_paths"):
            merge_settings(base, {"profile": {"allowed_paths": outside}})
    assert merge_settings(base, Settings(limits=Limits(rounds=9))).limits.rounds == 9
    assert merge_settings(base, None) is base


async def test_the_day_of_a_run_can_be_set() -> None:
    """Q33: planner, worker and judge are told the given date, also after a pause; a text that is no date is refused."""
    model = one_step()
    async with Agent(model, storage="memory:", settings={"today": "2024-05-15", "timezone": "Asia/Tokyo"}) as agent:
        run = await agent.resume(await agent.start("do it"), "approve")
        assert run.status == "answered"
        asked = [request for request in model.requests if "<today>" in request.text]
        assert {request.role for request in asked} >= {"triage", "execute"}
        assert all("Wednesday, 2024-05-15 (Asia/Tokyo)" in request.text for request in asked)
        with pytest.raises(ConfigError, match="'2024-05-35' is no ISO 8601 date"):
            await agent.start("do it", settings={"today": "2024-05-35"})


def test_what_a_client_may_change() -> None:
    """U8, S5: less, never more; what is no setting is said."""
    pinned = Settings(limits=Limits(rounds=7), verification="judged")
    asked = {"limits": {"rounds": 99, "tool_calls": 3}, "verification": "claimed", "confirm": "never", "colour": "red"}
    kept, refused = confine_settings(pinned, {**asked, "approvals": "each", "language": "de"}, models=False)
    assert (kept.limits.rounds, kept.limits.tool_calls) == (7, 3)
    assert (kept.confirm, kept.approvals, kept.verification, kept.language) == ("always", "each", "judged", "de")
    assert set(refused) == {"limits.rounds", "verification", "confirm", "colour"}


@pytest.mark.parametrize("name", ["confirm", "approvals", "verification"])
def test_a_client_may_ask_for_more_care_and_for_no_less(name: str) -> None:
    """N30, S5: whatever the operator pinned and a client asks, the run takes the care of both; no pair is an error."""
    values = get_args(Settings.model_fields[name].annotation)
    assert set(CARE[name]) == set(values)
    for least in values:
        for asked in values:
            kept, refused = confine_settings(Settings.model_validate({name: least}), {name: asked}, models=True)
            care = CARE[name][getattr(kept, name)]
            assert care >= CARE[name][least] | CARE[name][asked]
            assert bool(refused) == (CARE[name][asked] < CARE[name][least])
    for least, asked, gets in (("never", "each", "each"), ("each", "never", "each")):
        assert confine_settings(Settings(approvals=least), {"approvals": asked}, models=True)[0].approvals == gets  # type: ignore[arg-type]
    assert confine_settings(Settings(confirm="writes"), {"confirm": "complex"}, models=True)[0].confirm == "always"


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        ({"forbidden_tools": ["sent"]}, "did you mean send?"),
        ({"forbidden_tools": ["send*"]}, "did you mean send?"),
        ({"forbidden_tools": ["send", "ask_user"]}, "there is no tool 'ask_user'"),
        ({"allowed_paths": ["reports/*"]}, "not patterns"),
    ],
)
async def test_a_hard_constraint_that_names_nothing_is_refused(profile: dict[str, object], said: str) -> None:
    """N30, P14: by a start and a resume at once, and by a graph of one's own as its outcome; no tool is called."""
    outbox = Outbox()
    model = sending(call("send", to="ann", text="hi"))
    settings = {"profile": profile, "confirm": "never", "approvals": "never"}
    agent = Agent(model, [outbox.tool()], storage="memory:")
    with pytest.raises(ConfigError, match=re.escape(said)):
        await agent.start("do it", settings=settings)
    graph = build_graph(model, [outbox.tool()], settings=settings).compile()
    ended = await graph.ainvoke({"messages": [("user", "do it")]})
    assert (ended["outcome"]["status"], ended["outcome"]["code"]) == ("failed", "bad_goal")
    assert said in ended["outcome"]["text"]
    run = await agent.start("do it")
    with pytest.raises(ConfigError, match=re.escape(said)):
        await agent.resume(run, "approve", settings={"profile": profile})
    assert outbox.sent == []


async def test_a_profile_for_every_agent_may_forbid_what_only_some_have(tmp_path: Path) -> None:
    """N30, honest: our own tools by name, and those of other agents in DONEWHEN_PROFILE; not what may be a slip."""
    assert {tool.name for tool in workspace_tools(tmp_path, commands=["ls"])} == set(WORKSPACE_TOOLS)
    for forbidden, fails in ((["run_command", "wire_money"], False), (["sennd"], True)):
        config = Config(profile={"forbidden_tools": forbidden})
        model = ScriptedModel(roles={"triage": [answer("Hello.")]}, strict=False)
        agent = Agent(model, [Outbox().tool()], storage="memory:", options=AgentOptions(config=config))
        if fails:
            with pytest.raises(ConfigError, match="did you mean send"):
                await agent.start("do it")
        else:
            assert (await agent.start("do it")).status == "answered"
    kept = {"profile": {"forbidden_tools": ["delete_file"], "allowed_paths": ["reports", "data/2026 (new)"]}}
    agent = Agent(ScriptedModel(roles={"triage": [answer("Hello.")]}), storage="memory:", settings=kept)
    assert (await agent.start("do it")).status == "answered"


async def test_a_pause_does_not_make_settings_of_defaults() -> None:
    """N24, P21: what nobody set is unset in storage, too; a run of one step gets a plan after a pause as before one."""

    def work(messages: list[Any], tools: list[Any]) -> Any:
        asked = "Where?" in str(messages)
        return call("look", what=str(len(messages))) if asked else ask_user("Where?")

    def look(what: str) -> str:
        """Look."""
        return f"saw {what}"

    then = [ask_user("Which of these?")]
    for limits, left in (({}, "Which of these?"), ({"step_limits": {"rounds": 30}}, None)):
        model = ScriptedModel(
            roles={"triage": [submit_plan(["find it"])], "plan": then, "execute": {"s1": work}}, strict=False
        )
        agent = Agent(
            model, [look], effects={"look": "read"}, storage="memory:", settings={"confirm": "never", **limits}
        )
        run = await agent.start("find it")
        run = await Agent(model, [look], effects={"look": "read"}, storage=agent.storage).resume(run, "there")
        assert [pause["question"] == left for pause in run.pending] == [left is not None]
        assert run.steps["s1"]["rounds"] == (25 if left else 30)


async def test_instructions_reach_every_model() -> None:
    """A1: `instructions=` stands in the prompts of planner and executor, as it was written."""
    model = one_step()
    said = "Work as an auditor does:\n\n1. count twice\n2. say what is missing"
    agent = Agent(model, storage="memory:", settings={"profile": {"role": "clerk"}}, instructions=said)
    assert (await agent.resume(await agent.start("do it"), "approve")).status == "answered"
    asked = [request for request in model.requests if request.role in ("triage", "execute")]
    assert len(asked) == 2
    assert all(said in request.messages[0].text and "- clerk" in request.messages[0].text for request in asked)


async def test_what_a_goal_may_be() -> None:
    """A1, U6: a text, content blocks, or messages; anything else is a GoalError and not ignored."""
    model = ScriptedModel(roles={"triage": lambda *_: answer("Hello.")})
    agent = Agent(model, storage="memory:")
    blocks = [{"type": "text", "text": "look at it"}]
    for goal in ("look at it", blocks, [{"role": "user", "content": "look at it"}], [HumanMessage("look at it")]):
        assert (await agent.start(goal)).goal == "look at it"
    talk = [("user", "Hi."), ("assistant", "Hello."), ("user", "look at it")]
    assert (await agent.start(talk)).goal == "look at it"
    assert "Hi." in model.requests[-1].messages[1].text
    for none in (
        "",
        [],
        [("assistant", "Hello.")],
        [{"what": 1}],
    ):
        with pytest.raises(GoalError):
            await agent.start(none)


def test_a_stored_value_that_is_none_any_more_is_its_default() -> None:
    """X25: threads and schedules of older versions are read; what people give is checked."""
    stored = {"approvals": "outside", "confirm": "never", "limits": {"rounds": 3}, "gone": 1}
    kept = stored_settings(stored)
    assert (kept.approvals, kept.confirm, kept.limits.rounds) == ("shown", "never", 3)


async def test_every_verb_knows_its_options() -> None:
    """Q31, Q90: options are declared once; one that does not exist is named with what was meant, and nothing begins;
    live tools cannot be left to another process."""
    async with Agent(ScriptedModel([]), storage="memory:") as agent:
        wrong: Any = {"setings": {"confirm": "never"}}
        for verb in (agent.start, agent.submit, agent.resume):
            with pytest.raises(TypeError, match="unexpected keyword argument 'setings'; did you mean settings"):
                await verb("t", **wrong)
        for stream in (agent.stream, agent.stream_resume):
            with pytest.raises(TypeError, match="did you mean settings"):
                stream("t", **wrong)
        with pytest.raises(ConfigError, match="submit takes no tools"):
            await agent.submit("go", tools=[len])
        with pytest.raises(TypeError, match="owner"):
            await agent.resume("t", "yes", **{"owner": "ann"})  # type: ignore[arg-type]
        assert await agent.threads() == []
