"""Settings: what is refused, how a call's go over the agent's, and what a client of the server may change."""

import pytest
from langchain_core.messages import HumanMessage

from donewhen import Agent, ConfigError, GoalError, Limits, Profile, Settings
from donewhen.state.settings.merging import confined, merged, read_settings
from donewhen.testing import ScriptedModel, answer, call
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
    both = merged(base, {"limits": {"cost_usd": 1}, "profile": {"tone": "dry", "forbidden_tools": ["mv"]}})
    assert (both.limits.rounds, both.limits.cost_usd, both.limits.replans) == (7, 1, 2)
    assert (both.profile.role, both.profile.tone) == ("clerk", "dry")
    assert both.profile.forbidden_tools == ["rm", "mv"]
    assert merged(base, {"profile": {"allowed_paths": ["work/out"]}}).profile.allowed_paths == ["work/out"]
    for outside in (["/etc"], ["work/../etc"]):
        with pytest.raises(ConfigError, match="allowed_paths"):
            merged(base, {"profile": {"allowed_paths": outside}})
    assert merged(base, Settings(limits=Limits(rounds=9))).limits.rounds == 9
    assert merged(base, None) is base


def test_what_a_client_may_change() -> None:
    """U8, S5: less, never more; what is no setting is said."""
    pinned = Settings(limits=Limits(rounds=7), verification="judged")
    asked = {"limits": {"rounds": 99, "tool_calls": 3}, "verification": "claimed", "confirm": "never", "colour": "red"}
    kept, refused = confined(pinned, {**asked, "approvals": "each", "language": "de"}, models=False)
    assert (kept["limits"]["rounds"], kept["limits"]["tool_calls"]) == (7, 3)
    assert (kept["confirm"], kept["approvals"], kept["verification"], kept["language"]) == (
        "always",
        "each",
        "judged",
        "de",
    )
    assert set(refused) == {"limits.rounds", "verification", "confirm", "colour"}
    kept, _ = confined(Settings(confirm="never"), {"confirm": "complex", "approvals": []}, models=True)
    assert (kept["confirm"], kept["approvals"]) == ("complex", Settings().approvals)


async def test_instructions_reach_every_model() -> None:
    """A1: `instructions=` stands in the prompts of planner and executor, as it was written."""
    model = one_step()
    said = "Work as an auditor does:\n\n1. count twice\n2. say what is missing"
    agent = Agent(model, storage="memory:", settings={"profile": {"role": "clerk"}}, instructions=said)
    assert (await agent.resume(await agent.start("do it"), "approve")).status == "completed"
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
