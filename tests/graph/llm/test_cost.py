"""What a whole run costs: the provider's own numbers, every request of every role, and a price for each of them."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI

from donewhen import Agent, AgentOptions, ConfigError, Executor, Models
from donewhen.agent.config import read_config
from donewhen.testing import ScriptedModel, answer, audit, call, finish_step, reply, submit_plan
from tests.kit.flows import FREE, one_step, play, steps
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

BUSY = fault(status=503, headers={"retry-after": "0"})


def look(what: str) -> str:
    """Look at something."""
    return f"{what} is green"


def used(given: int, cached: int, written: int, *calls: Any, text: str = "") -> Any:
    """A reply for which the provider reports so many tokens."""
    details = {"input_token_details": {"cache_read": cached}}
    return reply(text, calls, usage={"input_tokens": given, "output_tokens": written, **details})


async def test_a_run_over_the_wire_costs_what_the_provider_says() -> None:
    """R05: streamed, with the cached part at its own price, repeated requests among them, role by role, to the cent."""
    verdict = audit()
    model = ScriptedModel(
        roles={
            "triage": [BUSY, used(1000, 0, 100, submit_plan(["look"]))],
            "execute": [used(2000, 1000, 50, call("look", what="a")), used(3000, 2000, 60, finish_step("a", "s1.1"))],
            "judge": [used(400, 0, 10, verdict)],
        }
    )
    with WireServer(model) as server:
        flow = await play(
            Models(wired(server), prices={"scripted": {"input": 10.0, "cached": 1.0, "output": 100.0}}),
            [look],
            effects={"look": "read"},
            settings={**FREE, "verification": "judged", "limits": {"cost_usd": 1.0}},
        )
        requests = len(server.requests)
    model.assert_exhausted()
    spent = flow.run.spent
    assert flow.status == "completed"
    assert spent["model_calls"] == requests == 5
    assert (spent["input_tokens"], spent["cached_tokens"], spent["output_tokens"]) == (6400, 3000, 220)
    assert spent["cost_usd"] == pytest.approx((3400 * 10 + 3000 * 1 + 220 * 100) / 1e6)
    assert not {"estimated_calls", "unpriced_calls"} & set(spent)


@pytest.mark.parametrize("own", [{}, {"max_retries": 5}, {"max_retries": 0, "stream_usage": True}], ids=str)
async def test_a_model_of_ones_own_repeats_nothing_uncounted(own: dict[str, Any]) -> None:
    """R05, R01: what its client would have repeated silently is repeated and counted here; usage is asked for."""
    told = used(1234, 0, 56, answer("Hello."))
    with WireServer([BUSY, told]) as server:
        model = ChatOpenAI(model="scripted", base_url=server.base_url, api_key="sk-test", **own)
        run = await Agent(model, storage="memory:").start("hi")
        assert run.spent["model_calls"] == len(server.requests) == 2
    assert (run.answer, run.spent["input_tokens"], run.spent["output_tokens"]) == ("Hello.", 1234, 56)


ROLES = ("triage", "plan", "execute", "judge", "deliver")


@pytest.mark.parametrize("role", [*ROLES, "an executor"])
@pytest.mark.parametrize("limits", ["limits", "step_limits"])
async def test_a_limit_in_dollars_needs_the_price_of_every_model(role: str, limits: str) -> None:
    """DESIGN 6: whoever it belongs to, a model without a price is a clear error before the first call of any."""
    unknown, known = ScriptedModel([], model_name="nobody-knows"), ScriptedModel([], model_name="known")
    executors = {"expert": Executor("knows", model=unknown)} if role == "an executor" else None
    roles = {} if role == "an executor" else {role: unknown}
    flow = await play(
        Models(known, roles, prices={"known": RATES}),
        executors=executors,
        settings={**FREE, limits: {"cost_usd": 1.0}},
    )
    assert flow.status == "failed"
    assert "no price is known for the model 'nobody-knows'" in flow.run.answer
    assert not known.requests
    assert not unknown.requests


RATES = {"input": 1.0, "output": 2.0}


async def test_a_local_model_costs_nothing_if_its_user_says_so() -> None:
    """DESIGN 6: then it works under a limit of money, and nothing is called of unknown price."""
    script = [[submit_plan(["a"])], [finish_step("x", "s1.result")]]
    with WireServer(script, model="qwen3:8b") as server:
        environment = {
            "OPENAI_BASE_URL": server.base_url,
            "DONEWHEN_MODEL": "openai:qwen3:8b",
            "DONEWHEN_PRICES": "qwen3:8b=0/0, org/other=0.5/0.05/2",
        }
        agent = Agent(storage="memory:", options=AgentOptions(config=read_config(environment)))
        run = await agent.start("go", settings={**FREE, "limits": {"cost_usd": 0.01}})
    assert run.status == "answered"
    assert run.spent.get("cost_usd", 0) == 0
    assert "unpriced_calls" not in run.spent


@pytest.mark.parametrize("wrong", ["gpt", "gpt=1", "gpt=1/2/3/4", "gpt=a/b", "=1/2", "gpt=-1/2", "gpt=nan/1"])
def test_a_price_that_is_none_is_told(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"gpt|=1/2"):
        Agent(storage="memory:", options=AgentOptions(config=read_config({"DONEWHEN_PRICES": wrong})))


async def test_an_agents_own_price_comes_before_the_environments() -> None:
    options = AgentOptions(config=read_config({"DONEWHEN_PRICES": "scripted=1000/1000, other=1/1"}))
    for prices, cost in (({"scripted": {"input": 0, "output": 0}}, 0), ({}, 1100)):
        model = Models(ScriptedModel([used(1_000_000, 0, 100_000, answer("Hello."))]), prices=prices)
        run = await Agent(model, storage="memory:", options=options).start("hi")
        assert run.spent.get("cost_usd", 0) == cost


SUB = {"input_tokens": 1000, "output_tokens": 50}


@pytest.mark.parametrize(("limit", "status"), [(9, "completed"), (4, "exhausted")])
async def test_an_agent_inside_of_a_tool_spends_from_the_same_ledger(limit: int, status: str) -> None:
    """R05, X08: a sub-agent's calls are counted where it was called from, and stop where that one's limit is."""
    rounds = [call("look", what="a"), finish_step("green", "s1.1")]
    inner = steps(["look"], {"s1": rounds}, deliver=[reply("Green.", usage=SUB)])
    sub = Agent(inner, [look], effects={"look": "read"}, settings=FREE, storage="memory:")

    async def ask_expert(question: str) -> str:
        """Ask an expert."""
        run = await sub.start(question)
        return f"{run.status}: {run.answer}"

    model = one_step([call("ask_expert", question="Colour?"), finish_step("green", ("s1.1", "Green."))], deliver=["G."])
    settings = {**FREE, "on_exhausted": "deliver", "on_failure": "deliver", "limits": {"model_calls": limit}}
    flow = await play(model, [ask_expert], effects={"ask_expert": "read"}, settings=settings)
    assert flow.status == status
    assert (
        flow.run.spent["model_calls"]
        == len(model.requests) + len(model.audits) + len(inner.requests) + len(inner.audits)
        <= limit
    )
    if status == "completed":
        assert flow.run.spent["input_tokens"] > 1000


TOLD: dict[str, Any] = {
    "type": "ai",
    "content": "Three papers.",
    "usage_metadata": {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050},
    "response_metadata": {"model_name": "far-away"},
}


def as_a_remote_graph_answers(brief: Any) -> dict[str, Any]:
    """State as JSON, as LangGraph's servers send it."""
    first = {**TOLD, "content": "", "tool_calls": [{"name": "search", "args": {}, "id": "1", "type": "tool_call"}]}
    return {"messages": [{"type": "human", "content": "find"}, first, TOLD]}


async def as_a_client_answers(brief: str) -> AIMessage:
    """A message with what the other side says that it used."""
    return AIMessage.model_validate(TOLD)


@pytest.mark.parametrize(
    ("executor", "calls"),
    [
        (Executor("far", graph=RunnableLambda(as_a_remote_graph_answers)), 2),
        (Executor("far", work=as_a_client_answers), 1),
    ],
    ids=["graph", "work"],
)
async def test_a_remote_executor_costs_what_it_reports(executor: Executor, calls: int) -> None:
    """R05, X17: nobody here sees its models, so its own numbers are charged."""
    model = one_step([finish_step("three", ("s1.1", "Three papers."))], executor="far")
    prices = {"far-away": {"input": 1000.0, "output": 1000.0}, "scripted": {"input": 0, "output": 0}}
    flow = await play(Models(model, prices=prices), executors={"far": executor})
    assert flow.status == "completed"
    assert flow.run.spent["model_calls"] == 3 + calls
    assert flow.run.spent["cost_usd"] == pytest.approx(1.05 * calls)
    assert "unpriced_calls" not in flow.run.spent
