"""Images and files in a request: seen by the models that plan and work, stored once, or refused in words."""

import base64
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from donewhen import Agent, Executor, GoalError, Models, ResumeError, Settings, build_graph
from donewhen.graph.llm.attachments import attachment_problem, fitting_blocks
from donewhen.graph.llm.history import count_tokens
from donewhen.testing import Request, ScriptedModel, answer, ask_user, audit, call, finish_step, submit_plan
from tests.kit.flows import FREE

PIXELS = base64.b64encode(b"\x89PNG" + bytes(range(256)) * 40).decode()
IMAGE = {"type": "image", "base64": PIXELS, "mime_type": "image/png"}
OLD_FORM = {"type": "file", "source_type": "base64", "data": "QQ==", "mime_type": "application/pdf"}
BY_ADDRESS = {"type": "image_url", "image_url": {"url": "https://example.com/receipt.png"}}
OTHER = {**IMAGE, "base64": "QUJD"}
WORK = {"s1": [finish_step("a cat", "s1.result")], "s2": [finish_step("on a mat", "s2.result")]}
PLAN = submit_plan([{"content": "look at the picture"}, {"content": "say where it is"}])


def request(*blocks: Any, text: str = "What is this?") -> list[Any]:
    return [HumanMessage([{"type": "text", "text": text}, *blocks])]


def shown(asked: Request) -> list[Any]:
    """What the model got beside text."""
    parts = [part for message in asked.messages if isinstance(message.content, list) for part in message.content]
    return [part for part in parts if isinstance(part, dict) and part["type"] != "text"]


def working(**roles: Any) -> ScriptedModel:
    return ScriptedModel(roles={"triage": [PLAN], "execute": dict(WORK), "deliver": ["A cat on a mat."], **roles})


async def test_images_reach_planning_and_every_step(tmp_path: Path) -> None:
    """A1, U6: by data or by address; the answer is written from results; each checkpoint has the data once at most."""
    model, path = working(), tmp_path / "runs.db"
    async with Agent(model, storage=f"sqlite:///{path}", settings=FREE) as agent:
        run = await agent.start(request(IMAGE, BY_ADDRESS))
        assert run.status == "answered"
        asked = {each.role: shown(each) for each in model.requests}
        assert asked["triage"] == asked["execute"] == [IMAGE, BY_ADDRESS]
        assert asked["deliver"] == []
        config: Any = {"configurable": {"thread_id": run.thread_id}}
        states = [state async for state in agent.graph.aget_state_history(config)]
        assert all(str(state.values).count(PIXELS[:200]) <= 1 for state in states)
        assert not any(PIXELS[:200] in str(state.tasks) for state in states if state.next != ("__start__",))
        await agent.delete(run.thread_id)
    assert PIXELS[:200].encode() not in path.read_bytes()


async def test_the_judge_sees_what_the_work_was_about() -> None:
    """V09, A1: sentences about a picture are held against it; a judge that takes none is told that it was there."""
    for sees in (True, False):
        judge = ScriptedModel(roles={"judge": [audit()]})
        judge.profile = {"image_inputs": sees}
        models = Models(working(), {"judge": judge})
        async with Agent(models, storage="memory:", settings=FREE) as agent:
            await agent.start(request(IMAGE))
        (asked,) = judge.requests
        assert shown(asked) == [IMAGE][: int(sees)]
        assert ("not shown: this model does not take it" in asked.text) is not sees


async def test_without_a_store_they_go_along() -> None:
    """A1, P14: the compiled graph with `messages`, without a store, and again with one."""
    for store in (None, InMemoryStore()):
        model = working()
        graph = build_graph(model).compile(InMemorySaver(), store=store)
        config: Any = {"configurable": {"thread_id": "t"}}
        values = await graph.ainvoke({"messages": request(IMAGE)}, config, context=Settings(confirm="never"))
        assert values["outcome"]["status"] == "answered"
        assert [shown(each) for each in model.requests] == [[IMAGE], [IMAGE], [IMAGE], []]


async def test_old_forms_of_files_are_translated() -> None:
    """U6: as LangChain does for every model."""
    model = ScriptedModel(roles={"triage": [answer("A letter.")]})
    async with Agent(model, storage="memory:") as agent:
        await agent.start(request(OLD_FORM))
    (seen,) = shown(model.requests[0])
    assert (seen["type"], seen["base64"]) == ("file", "QQ==")


async def test_a_follow_up_still_sees_the_picture() -> None:
    """A1, D04: images of earlier messages, of this thread or given as its beginning, belong to the conversation."""
    model = ScriptedModel(roles={"triage": [answer("A cat."), answer("Grey.")]})
    async with Agent(model, storage="memory:") as agent:
        run = await agent.start([*request(IMAGE), AIMessage("A cat."), HumanMessage("Which colour?")])
        await agent.start("And its eyes?", thread_id=run.thread_id)
    assert [shown(each) for each in model.requests] == [[IMAGE], [IMAGE]]


async def test_a_picture_typed_as_an_answer_is_seen() -> None:
    """U6, C08: who sends a picture into the chat while a question waits has answered with it."""
    rounds = [ask_user("Which one is broken?"), finish_step("the left one", "s1.result")]
    model = ScriptedModel(roles={"triage": [submit_plan(["find the fault"])], "execute": {"s1": rounds}})
    graph = build_graph(model).compile(InMemorySaver(), store=InMemoryStore())
    config: Any = {"configurable": {"thread_id": "t"}}
    for message in (HumanMessage("Find the fault"), *request(IMAGE, text="This one")):
        values = await graph.ainvoke({"messages": [message]}, config, context=Settings(confirm="never"))
    assert values["outcome"]["status"] == "answered"
    assert [len(shown(each)) for each in model.requests] == [0, 0, 1]


@pytest.mark.parametrize("by_worker", [False, True])
async def test_a_message_with_a_picture_is_an_answer_at_every_pause(by_worker: bool) -> None:
    """A1, H13: the words of content blocks answer, or are said at the plan, or kept at a question for somebody else;
    their picture is seen from then on, by the next request too. Two in one answer are both seen."""

    def pay(amount: float) -> str:
        """Pay."""
        return f"paid {amount:g}"

    plans = [submit_plan([{"content": "pay 4", "done_when": "paid", "tools": ["pay"]}])] * 3
    asks = call("ask_user", question="What does it look like?")
    work = [asks, call("pay", amount=4.0), finish_step("paid 4", "s1.2")]
    model = ScriptedModel(roles={"triage": [*plans[:1], answer("A cat.")], "plan": plans, "execute": work})
    settings = {
        "confirm": "writes",
        "approvals": "each",
        "when_busy": "next_round",
        "answered_by": {"tool": "operator"},
    }
    agent = Agent(model, [pay], storage="memory:", settings=settings)

    async def said(words: Any, by: str = "mira") -> Any:
        if by_worker:
            await agent.submit_answer("t", words, by=by)
            return await agent.run_submitted("t")
        return await agent.resume("t", words, by=by)

    async with agent:
        await agent.start("pay 4", thread_id="t")
        run = await said([{"type": "text", "text": "what of this?"}, IMAGE])
        assert run.pending[0]["kind"] == "plan"
        assert shown(model.requests[-1]) == [IMAGE]
        run = await agent.resume(run, "yes", by="mira")
        run = await said([{"type": "text", "text": "like"}, {"type": "text", "text": "that"}, IMAGE, BY_ADDRESS])
        assert shown(model.requests[-1]) == [IMAGE, BY_ADDRESS]
        assert "like\nthat" in model.requests[-1].text
        if by_worker:
            with pytest.raises(ResumeError, match=r"is kept.*Pictures and files are not kept: send them with"):
                await agent.submit_answer("t", [{"type": "text", "text": "it is broken"}, OTHER], by="mira")
            with pytest.raises(ResumeError, match=r"from: operator\. Pictures and files are not kept: send them with"):
                await agent.submit_answer("t", [OTHER], by="mira")
        run = await agent.resume("t", [{"type": "text", "text": "see the scratch"}, OTHER], by="mira")
        assert (run.status, run.pending[0]["answered_by"]) == ("waiting", "operator")
        assert "mira wrote meanwhile: “see the scratch”" in run.pending[0]["text"]
        run = await agent.resume("t", [IMAGE], by="mira")
        assert run.problem.startswith("This waits for an answer from: operator. Your message is kept")
        run = await said("approve", by="operator")
        assert run.status == "completed"
        assert shown(next(each for each in reversed(model.requests) if each.role == "execute")) == [
            IMAGE,
            BY_ADDRESS,
            OTHER,
        ]
        await agent.start("what did I show?", thread_id="t")
        assert shown(model.requests[-1]) == [IMAGE, BY_ADDRESS, OTHER]
        with pytest.raises(GoalError, match="images and files come with an answer"):
            await agent.tell("t", [IMAGE])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("blocks", "said"),
    [
        ([IMAGE], "takes no image"),
        ([{"type": "image", "data": b"raw"}], "no plain JSON|not plain JSON"),
        ([{**BY_ADDRESS, "n": n} for n in range(21)], "at most 20"),
    ],
)
async def test_what_cannot_be_seen_is_refused_in_words(blocks: list[Any], said: str) -> None:
    """U6: by the model's profile, by its form, by its number; no model is asked."""
    model = ScriptedModel([])
    model.profile = {"image_inputs": said != "takes no image"}
    async with Agent(model, storage="memory:") as agent:
        run = await agent.start(request(*blocks))
    assert run.status == "failed"
    assert any(each in run.answer for each in said.split("|"))
    assert run.outcome is not None
    assert run.outcome["code"] == "bad_goal"


async def test_an_executor_that_cannot_see_is_told_so() -> None:
    """U6, X17: its model's profile says that it takes no images."""
    blind = ScriptedModel([finish_step("a cat, I am told", "s1.result")])
    blind.profile = {"image_inputs": False}
    model = ScriptedModel(roles={"triage": [submit_plan([{"content": "look", "executor": "writer"}])]})
    async with Agent(
        model, storage="memory:", settings=FREE, executors={"writer": Executor("writes", model=blind)}
    ) as agent:
        run = await agent.start(request(IMAGE))
    assert run.status == "answered"
    assert shown(blind.requests[0]) == []
    assert "not shown: this model does not take it" in blind.requests[0].text


def test_pictures_are_charged_where_nothing_is_reported() -> None:
    """R05: about a thousand tokens each, whatever their size."""
    few, more = (count_tokens(request(*blocks), ()) for blocks in ([], [IMAGE, IMAGE]))
    assert 2_000 <= more - few <= 2_010


def test_of_many_attachments_each_is_measured_once() -> None:
    """U6: those that fit beside the ones before them stay, in order; what is too large, or of a kind that a model does
    not take, is left out and takes no room."""
    measured = list[str]()

    class Block(dict[str, Any]):
        def items(self) -> Any:
            measured.append(self["name"])
            return super().items()

    def block(name: str, kind: str = "image", chars: int = 1) -> Block:
        return Block(type=kind, name=name, base64="x" * chars)

    model = ScriptedModel([])
    model.profile = {"audio_inputs": False}
    blocks = [block("a", chars=20_000_000), block("b", chars=20_000_000), block("c", "audio"), block("d")]
    blocks += [block(str(number)) for number in range(30)]
    fitting = fitting_blocks(blocks, lambda role: model)
    assert [each["name"] for each in fitting] == ["a", "d", *map(str, range(18))]
    assert attachment_problem(fitting, lambda role: model) is None
    assert measured.count("a") == 2  # once more for the request
