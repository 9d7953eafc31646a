"""More tools than a provider takes in one request: what is not offered can be found, and no request is refused."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from donewhen import Agent, AgentOptions
from donewhen.graph.llm.provider_texts import TOO_MANY_TOOLS, Text
from tests.kit.providers.forms import FORMS, Form, Said, chat_model, names_in, told
from tests.kit.providers.server import Answer, Handler, ProviderServer

Json = dict[str, Any]
PLACES = [f"place_{number}" for number in range(300)]
SETTINGS = {"verification": "grounded", "confirm": "never", "model_retries": 0}
LIMITS = {"OpenAI chat": 128, "OpenAI Responses": 128, "Google": 128, "Ollama": 128, "OpenRouter": 128}
"""What the services take; Anthropic names no number."""


def places(effect: str) -> Json:
    text = {"type": "object", "properties": {"day": {"type": "string"}}}
    return {
        name: {"description": f"Look up the weather in {name}.", "input_schema": text, "effect": effect}
        for name in PLACES
    }


async def caller(name: str, _: Json) -> str:
    return f"{name} is sunny"


def serve(form: Form, most: int | None, say: Text, think: Any) -> Handler:
    """A provider that takes so many tools, and says so in its words."""

    def handle(body: Mapping[str, Any]) -> Answer:
        if most is not None and len(names_in(body)) > most:
            return form.refuse(re.sub(r"\b(?:128|200|512)\b", str(most), say.body))
        return form.serve(think)(body)

    return handle


def one_place(wanted: str) -> Any:
    """A model that plans a step with 200 tools, looks for one that it is not offered if need be, and calls it."""

    def think(body: Mapping[str, Any]) -> Said:
        names, said = names_in(body), told(body)
        if "submit_plan" in names:
            step = {"content": "Look up the weather.", "done_when": "it is known", "tools": PLACES[:200]}
            return Said(calls=[("submit_plan", {"title": "Weather", "complexity": "simple", "steps": [step]})])
        if f"{wanted} is sunny" in said:
            cited = [{"observation": "s1.1", "quote": f"{wanted} is sunny"}]
            claim = [{"criterion": 1, "met": True, "evidence": cited}]
            return Said(calls=[("finish_step", {"result": f"{wanted} is sunny", "goal_check": claim})])
        if wanted in names:
            return Said(calls=[(wanted, {"day": "today"})])
        return Said(calls=[("find_tools", {"query": f"weather in {wanted}"})])

    return think


@pytest.mark.parametrize("selection", [24, 300])
@pytest.mark.parametrize("name", FORMS)
async def test_no_request_has_more_tools_than_the_provider_takes(name: str, selection: int) -> None:
    """Q48, S08: a step that lists 200, two steps' worth of them beyond the limit, and an owner who shows all 300."""
    form, most, model = FORMS[name], LIMITS.get(name), None
    with ProviderServer(serve(form, most, TOO_MANY_TOOLS[0], one_place("place_199"))) as server:
        model = form.model(server.url)
        settings = {**SETTINGS, "tool_selection": selection}
        async with Agent(
            model, places("read"), options=AgentOptions(caller=caller), storage="memory:", settings=settings
        ) as agent:
            run = await agent.start("How is the weather at the 199th place?")
    assert (run.status, run.answer) == ("completed", "place_199 is sunny")
    sizes = [len(names_in(body)) for body in server.bodies]
    assert max(sizes) <= (most or 400)
    if most is None:
        assert max(sizes) > 200, "a provider without a limit gets what was asked for"


@pytest.mark.parametrize("say", TOO_MANY_TOOLS, ids=lambda say: say.provider)
async def test_a_limit_that_a_server_names_is_learnt_once(say: Text) -> None:
    """Q48: one that takes 40 refuses one request of planning; steps and the next run find no refusal at all."""
    form, refused = FORMS["OpenAI chat"], list[int]()

    def handle(body: Mapping[str, Any]) -> Answer:
        if (count := len(names_in(body))) > 40:
            refused.append(count)
        return serve(form, 40, say, one_place("place_150"))(body)

    with ProviderServer(handle) as server:
        settings = {**SETTINGS, "tool_selection": 300}
        model = chat_model(server.url)
        async with Agent(
            model, places("read"), options=AgentOptions(caller=caller), storage="memory:", settings=settings
        ) as agent:
            first = await agent.start("How is the weather at the 150th place?")
            once = len(refused)
            second = await agent.start("And once more?")
    assert [first.status, second.status] == ["completed"] * 2
    assert (once, len(refused)) == (1, 1)
    assert first.receipt["spent"]["model_calls"] == len(server.bodies) - second.receipt["spent"]["model_calls"]


async def test_what_was_found_is_offered_where_all_room_is_taken() -> None:
    """Q48: found tools take the place of others, twice, and one that had to go is found again."""
    asked = ["place_150", "place_180", "place_150"]
    seen = list[list[str]]()

    def think(body: Mapping[str, Any]) -> Said:
        names, said = names_in(body), told(body)
        if "submit_plan" in names:
            step = {"content": "Look up three.", "done_when": ["all are known"], "tools": PLACES}
            return Said(calls=[("submit_plan", {"title": "Weather", "complexity": "simple", "steps": [step]})])
        seen.append(names)
        finds = said.count("find_tools ok")
        if finds < len(asked) and (finds == 0 or asked[finds - 1] in names):
            return Said(calls=[("find_tools", {"query": f"weather in {asked[finds]}"})])
        if "place_150 is sunny" not in said:
            return Said(calls=[("place_150", {"day": "today"})])
        cited = [{"observation": "s1.1", "quote": "place_150 is sunny"}]
        return Said(
            calls=[
                ("finish_step", {"result": "sunny", "goal_check": [{"criterion": 1, "met": True, "evidence": cited}]})
            ]
        )

    form = FORMS["OpenAI chat"]
    with ProviderServer(serve(form, 18, TOO_MANY_TOOLS[1], think)) as server:
        model = chat_model(server.url)
        async with Agent(
            model, places("read"), options=AgentOptions(caller=caller), storage="memory:", settings=SETTINGS
        ) as agent:
            run = await agent.start("Three places, please.")
    assert run.status == "completed"
    assert ["place_150" in names for names in seen].count(True) >= 2
