"""One round for all roles (Q86): every role beside everything that can come between it and its good reply."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from donewhen import Agent, Limits, Run, Settings
from donewhen.state.errors import ModelError
from donewhen.testing import ScriptedModel, accept_plan, answer, audit, call, consent, finish_step, reply, submit_plan
from tests.kit.flows import Flow, Json

DONE = finish_step("Done.", "s1.result")
GOOD: Json = {
    "triage": answer("Paris."),
    "draft": submit_plan(["think"]),
    "execute": DONE,
    "judge": audit(),
    "consent": consent(),
    "deliver": call("deliver", text="All done."),
}
"""The good reply of each role."""
ASKED: dict[str, str] = {"draft": "plan", "consent": "judge"}
BAD = call("nothing")
PASSED: list[bool] = []


class Watched(Settings):
    """Settings whose deadline passes when a reply says so."""

    def is_late(self, now: datetime | None = None) -> bool:
        return bool(PASSED)


def look() -> str:
    """Look."""
    return "three apples"


def script(role: str, replies: list[Any], before: Callable[[Any], Any]) -> Json:
    """The replies of all roles; `before` makes the one after which this role is asked for the first time."""
    plan, done = submit_plan(["go"]), {id: [finish_step("Done.", f"{id}.result")] for id in ("s1", "s2")}
    seen = finish_step("three apples", "s1.1")
    roles: dict[str, Callable[[], Json]] = {
        "triage": lambda: {"triage": replies},
        "draft": lambda: {
            "triage": [before(submit_plan(["go"], need_thinking=True))],
            "plan": replies,
            "execute": done,
        },
        "execute": lambda: {"triage": [before(plan)], "execute": {"s1": replies}},
        "judge": lambda: {"triage": [plan], "execute": {"s1": [call("look"), before(seen), seen]}, "judge": replies},
        "consent": lambda: {
            "triage": [plan, before(accept_plan()), answer("Sure?")],
            "execute": done,
            "judge": [*replies, audit()],
        },
        "deliver": lambda: {
            "triage": [submit_plan(["one", "two"])],
            "execute": {**done, "s2": [before(finish_step("Done.", "s2.result"))]},
            "deliver": replies,
        },
    }
    return roles[role]()


async def come(
    role: str, *replies: Any, before: Callable[[Any], Any] = lambda each: each, says: str = "", **more: Any
) -> tuple[str, list[Any], Flow]:
    """Play the role's replies, and say something while it writes the first one; return how often it was asked and what
    came of it in words, its requests, and the flow."""

    async def meanwhile(messages: Any, tools: Any) -> Any:
        await agent.tell("t", says)
        return replies[0]

    PASSED[:] = [True] if role == "triage" and before is late else []
    written = [meanwhile, *replies[1:]] if says else [*replies]
    model = ScriptedModel(roles=script(role, written, before), strict=False)
    confirm: Any = "always" if role == "consent" else "never"
    given: Json = {"on_failure": "deliver", "on_exhausted": "deliver", "when_busy": "next_round", **more}
    settings = Watched(confirm=confirm, deadline="2999-12-31T00:00+00:00", **given)
    agent = Agent(model, [look], storage="memory:", effects={"look": "read"})
    stream = agent.stream("Do it", thread_id="t", settings=settings)
    events = [dict(event) async for event in stream]
    if role == "consent":
        stream = agent.stream_resume("t", "great, that's how I want it. Send it off!", settings=settings)
        events += [dict(event) async for event in stream]
    run: Run = await stream.result()
    asked: list[Any] = [each for each in model.requests if each.role == ASKED.get(role, role)]
    asked = [each for each in asked if role != "consent" or "consent" in each.tool_names]
    ended = f"{len(asked)} {run.status} {run.outcome['code'] if run.outcome else ''}"
    return ended.strip(), asked, Flow(run, {}, events)


def late(message: Any) -> Any:
    """A reply with which the deadline passes."""

    def passes(messages: Any, tools: Any) -> Any:
        PASSED.append(True)
        return message

    return passes


def dear(message: Any) -> Any:
    """A reply that uses up the tokens."""
    return reply("", [message], usage={"output_tokens": 9_000})


def printed(role: str) -> str:
    """The good reply of a role as text."""
    return json.dumps({"action": GOOD[role]["name"], "arguments": GOOD[role]["args"]})


CUT = reply("I would say", finish_reason="length")
TABLE: dict[str, tuple[Callable[[str], list[Any]], Json, Json]] = {
    # Planning and steps begin no round; what is done is judged and told.
    "late": (
        lambda role: [GOOD[role]],
        {"before": late},
        dict.fromkeys(("triage", "draft", "execute"), "0 exhausted out_of_budget")
        | {"judge": "1 completed worked", "deliver": "1 answered worked"},
    ),
    "out of budget": (
        lambda role: [GOOD[role]],
        {"before": dear, "limits": Limits(output_tokens=8_000)},
        dict.fromkeys(("draft", "execute"), "0 exhausted out_of_budget")
        | {"judge": "0 partial unaudited", "consent": "0 waiting", "deliver": "0 partial unaudited"},
    ),
    # A failed draft leaves the quick plan, a failed reader the question, a failed delivery the runtime's summary.
    "bad form three times": (
        lambda role: [BAD] * 3,
        {},
        {
            "triage": "3 failed no_plan",
            "draft": "3 answered worked",
            "execute": "3 failed worked",
            "judge": "3 partial unaudited",
            "consent": "3 waiting",
            "deliver": "3 answered worked",
        },
    ),
    "bad form, cut off, then good": (
        lambda role: [BAD, CUT, GOOD[role]],
        {},
        {
            "triage": "3 answered answered",
            "judge": "3 completed worked",
            **dict.fromkeys(("draft", "execute", "consent", "deliver"), "3 answered worked"),
        },
    ),
    "a printed call": (
        lambda role: [printed(role)],
        {},
        {
            "triage": "1 answered answered",
            "judge": "1 completed worked",
            **dict.fromkeys(("draft", "execute", "consent", "deliver"), "1 answered worked"),
        },
    ),
    "refused by the provider": (
        lambda role: [ModelError("no", code="content_filter", said="I will not.")],
        {},
        {
            "triage": "1 failed declined",
            "draft": "1 answered worked",
            "execute": "1 failed model_error",
            "judge": "1 partial unaudited",
            "consent": "1 waiting",
            "deliver": "1 answered worked",
        },
    ),
    # A plan is made and its step reads the words; the other roles are asked again, or the answer says that they came
    # too late.
    "words meanwhile": (
        lambda role: [GOOD[role]] * 2,
        {"says": "and in blue"},
        {
            "triage": "2 answered answered",
            "draft": "1 answered worked",
            "execute": "2 answered worked",
            "judge": "2 completed worked",
            "consent": "1 waiting",
            "deliver": "1 answered worked",
        },
    ),
}
"""What the role replies, what comes between, and how often each role was asked and how the run ended."""


@pytest.mark.parametrize(("kind", "role"), [(kind, role) for kind, (_, _, ends) in TABLE.items() for role in ends])
async def test_every_role_takes_what_comes_between_in_the_same_way(kind: str, role: str) -> None:
    """Q86, X05, X08, P11, D03, C10: one order of obstacles, one wording and one counter of corrections, an example the
    last time; words that were said are heard by a round or told back."""
    replies, more, ends = TABLE[kind]
    told, asked, flow = await come(role, *replies(role), **more)
    assert told == ends[role]
    corrections = [event["text"] for event in flow.told("correction") if "accept_plan" not in event["text"]]
    assert len(corrections) == {"bad form three times": 3, "bad form, cut off, then good": 2}.get(kind, 0)
    for n, request in enumerate(asked[1:] if corrections else (), 1):
        sent = request.messages[-1].text
        assert sent.startswith(f"Correction: nothing was done.\n- {corrections[n - 1]}\nCall one of these: ")
        assert ("A good reply" in sent) == (n == 2)
    if "says" in more:
        assert flow.told("heard") or flow.told("late")
