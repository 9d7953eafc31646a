"""Images that tools return: seen by whoever sees the observation, kept once, and told of where they cannot be seen."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from donewhen import Agent, Settings, StorageError, build_graph
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.graph.tools.images import IMAGE_CHARS, images_in
from donewhen.hooks import Hooks, Refuse
from donewhen.testing import Request, ScriptedModel, answer, audit, call, finish_step, recall, submit_plan
from tests.kit.flows import FREE
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault
from tests.kit.wired import wired

BEGINNING = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff\xe0", "gif": b"GIF89a", "webp": b"RIFF\0\0\0\0WEBP"}


def pixels(seed: str, kind: str = "png") -> str:
    """Return an image in base64, of one size for all."""
    return base64.b64encode(BEGINNING[kind] + seed.encode().ljust(8) * 300).decode()


def image(seed: str) -> dict[str, Any]:
    return {"type": "image", "base64": pixels(seed), "mime_type": "image/png"}


def chart(of: str) -> list[dict[str, Any]]:
    """Draw a chart."""
    return [{"type": "text", "text": f"chart of {of}"}, image(of)]


def shown(asked: Request) -> list[str]:
    """Return the images in a request, in their order."""
    parts = [part for message in asked.messages if isinstance(message.content, list) for part in message.content]
    return [part["base64"] for part in parts if isinstance(part, dict) and part["type"] == "image"]


def drawing(*calls: Any, tools: Sequence[str] = ("chart",), **roles: Any) -> ScriptedModel:
    """Return a model for one step that makes these calls, a round each, and is done."""
    plan = submit_plan([{"content": "Draw", "done_when": "drawn", "tools": [*tools]}])
    work = {"triage": [plan], "execute": [*calls, finish_step("Drawn.", "s1.1")], **roles}
    return ScriptedModel(roles=work, strict=False)


async def test_whoever_sees_the_observation_sees_the_image(tmp_path: Path) -> None:
    """Q25: planner, two steps, the judge, also in another process after a pause; the checkpoint has none of it.

    Two calls of one round are two images; the writer of the answer gets words. With the thread the data are deleted.
    """
    steps = [
        {"id": "s1", "content": "Draw two", "done_when": "drawn", "tools": ["chart"]},
        {"id": "s2", "content": "Compare", "done_when": "compared", "tools": ["chart"], "depends_on": ["s1"]},
    ]
    work = {
        "s1": [[call("chart", of="a"), call("chart", of="b")], finish_step("Drawn.", "s1.1")],
        "s2": [call("chart", of="c"), finish_step("a is higher.", "s2.1")],
    }
    model = ScriptedModel(
        roles={"triage": [call("chart", of="p"), submit_plan(steps)], "execute": work, "judge": [audit(count=9)]},
        strict=False,
    )
    path = tmp_path / "runs.db"

    def agent() -> Agent:
        return Agent(model, [chart], storage=f"sqlite:///{path}", effects={"chart": "read"})

    async with agent() as first:
        run = await first.start("Compare")
    async with agent() as second:
        run = await second.resume(run.thread_id, "approve")
        seen = [(each.role, each.step, shown(each)) for each in model.requests]
        p, a, b, c = map(pixels, "pabc")
        assert seen[:6] == [
            ("triage", None, []),
            ("triage", None, [p]),
            ("execute", "s1", [p]),
            ("execute", "s1", [p, a, b]),
            ("execute", "s2", [p, a, b]),
            ("execute", "s2", [p, a, b, c]),
        ]
        assert {tuple(images) for role, _, images in seen if role == "judge"} == {(p, a, b, c)}
        assert {tuple(images) for role, _, images in seen if role == "deliver"} <= {()}
        config: Any = {"configurable": {"thread_id": run.thread_id}}
        states = [state async for state in second.graph.aget_state_history(config)]
        assert not any(a[:200] in str((state.values, state.tasks)) for state in states)
        assert a[:200] not in json.dumps([run.receipt, run.outcome, run.steps], default=str)
        await second.delete(run.thread_id)
    assert a[:200].encode() not in path.read_bytes()


PNG, RAW = pixels("x"), base64.b64decode(pixels("x"))


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ({"type": "image", "base64": PNG, "mime_type": "image/png"}, "png"),
        ({"type": "image", "base64": PNG, "mime_type": "image/tiff"}, "png"),
        ({"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"}, "png"),
        ({"type": "image", "data": PNG, "mimeType": "image/png"}, "png"),
        ({"type": "image", "data": RAW}, "png"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}, "png"),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}, "png"),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}, "png"),
        ({"type": "file", "base64": PNG, "mime_type": "image/png"}, "png"),
        ({"type": "image", "base64": f"{PNG[:76]}\r\n{PNG[76:]}"}, "png"),
        *[({"type": "image", "base64": pixels("x", kind)}, kind) for kind in ("jpeg", "gif", "webp")],
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, None),
        ({"type": "image", "file_id": "file_7"}, None),
        ({"type": "image", "base64": base64.b64encode(b"II*\0" * 20).decode()}, None),
        ({"type": "image", "base64": f"{PNG[:-3]}é"}, None),
        ({"type": "image", "base64": 7}, None),
        ({"type": "image", "base64": PNG + "A" * IMAGE_CHARS}, None),
    ],
)
async def test_every_form_is_read_and_what_cannot_be_shown_is_told(block: Any, kind: str | None) -> None:
    """Q25: by its data, whatever it is called; an address is not followed. Beside a good one, in a message too."""
    wanted = [
        image("good"),
        *([{"type": "image", "base64": pixels("x", kind), "mime_type": f"image/{kind}"}] if kind else []),
    ]

    def both() -> Any:
        """Draw two."""
        return [image("good"), block]

    def message() -> Any:
        """Draw two, in a message."""
        return ToolMessage([image("good"), block], tool_call_id="1")

    def artifact() -> Any:
        """Draw two, as tools of MCP servers do."""
        return both(), {"structured_content": {}}

    assert images_in([image("good"), block])[0] == wanted
    of_mcp = StructuredTool.from_function(artifact, response_format="content_and_artifact")
    for name, tool in {"both": both, "message": message, "artifact": of_mcp}.items():
        model = drawing(call(name), tools=[name])
        async with Agent(model, [tool], storage="memory:", effects={name: "read"}, settings=FREE) as agent:
            await agent.start("Draw")
        asked = model.requests[2]
        assert shown(asked) == [each["base64"] for each in wanted]
        assert ("cannot be shown" in asked.text) == (kind is None and "file_id" not in block)


async def test_providers_get_results_first_and_images_behind() -> None:
    """Q25, X14: in OpenAI's protocol, where a result cannot have an image; parallel calls stay pairs."""
    model = drawing([call("chart", of="a"), call("chart", of="b")])
    with WireServer(model) as server:
        async with Agent(wired(server), [chart], storage="memory:", effects={"chart": "read"}, settings=FREE) as agent:
            await agent.start("Draw")
        bodies = [each.body for each in server.requests if each.body and "messages" in each.body]
    last = bodies[2]["messages"]
    assert [message["role"] for message in last[2:]] == ["assistant", "tool", "tool", "user", "user"]
    assert all(isinstance(message["content"], str) for message in last if message["role"] == "tool")
    urls = [part["image_url"]["url"] for message in last[-2:] for part in message["content"] if "image_url" in part]
    assert urls == [f"data:image/png;base64,{pixels(each)}" for each in "ab"]


REFUSALS = [
    "Failed to deserialize the JSON body: messages[3]: unknown variant `image_url`, expected `text`",
    "image input is not supported - hint: you may need to provide the mmproj",
    "messages[5].content must be a string",
    "This model is not multimodal.",
]


@pytest.mark.parametrize("said", [*REFUSALS, None])
async def test_a_model_that_does_not_see_is_told(said: str | None) -> None:
    """Q25, X17: by its profile, or once its server has refused an image; the run goes on, the next rounds have none."""
    calls = [call("chart", of="a"), call("chart", of="b")]
    model = drawing(*calls)
    if said is None:
        model.profile = {"image_inputs": False}
        async with Agent(model, [chart], storage="memory:", effects={"chart": "read"}, settings=FREE) as agent:
            run = await agent.start("Draw")
        asked = [each.text for each in model.requests]
        images = [len(shown(each)) for each in model.requests[:4]]
        why = "this model does not take it"
    else:
        execute = [
            calls[0],
            fault(status=400, body={"error": {"message": said}}),
            *calls[1:],
            finish_step("Drawn.", "s1.1"),
        ]
        triage = submit_plan([{"content": "Draw", "done_when": "drawn", "tools": ["chart"]}])
        with WireServer([triage, *execute]) as server:
            async with Agent(
                wired(server), [chart], storage="memory:", effects={"chart": "read"}, settings=FREE
            ) as agent:
                run = await agent.start("Draw")
            bodies = [json.dumps(each.body) for each in server.requests if each.body and "messages" in each.body]
        images = [body.count('"image_url"') // 2 for body in bodies[:5]]
        del bodies[2], images[2]
        asked, why = bodies, "server refused it"
    assert run.status in ("completed", "partial")
    assert images == [0, 0, 0, 0]
    assert why not in asked[1]
    assert [text.count(why) for text in asked[2:4]] == [1, 2]


async def test_another_refusal_is_no_refusal_of_images() -> None:
    """Q25: what the server says of something else is said to the user, after one request."""
    triage = submit_plan([{"content": "Draw", "done_when": "drawn", "tools": ["chart"]}])
    refusal = fault(status=401, body={"error": {"message": "Incorrect API key provided"}})
    with WireServer([triage, call("chart", of="a"), refusal]) as server:
        async with Agent(
            wired(server),
            [chart],
            storage="memory:",
            effects={"chart": "read"},
            settings={**FREE, "on_failure": "deliver"},
        ) as agent:
            run = await agent.start("Draw")
        assert sum('"image_url"' in json.dumps(each.body) for each in server.requests) <= 2
    assert run.status == "failed"


async def test_many_images_are_bounded_in_steps() -> None:
    """Q25, K1: the latest twenty at most; the beginning stays the same for rounds; a recall shows one again."""
    names = [f"n{n}" for n in range(26)]
    rounds = [*(call("chart", of=name) for name in names), recall("s1.1")]
    model = drawing(*rounds)
    settings = {**FREE, "step_limits": {"rounds": 60}, "promote_rounds": 60}
    async with Agent(model, [chart], storage="memory:", effects={"chart": "read"}, settings=settings) as agent:
        await agent.start("Draw")
    work = [each for each in model.requests if each.role == "execute"]
    counts = [len(shown(each)) for each in work]
    assert counts[:27] == [*range(21), *range(11, 17)]
    assert shown(work[26]) == [pixels(name) for name in names[10:]]
    assert "[s1.1] image: not shown, it is an early one" in work[26].text
    assert shown(work[27])[-1] == pixels("n0")
    same = [len({str(each.messages[:20]) for each in work[n : n + 2]}) for n in (15, 22)]
    assert same == [1, 1]


async def test_images_of_one_size_are_not_one() -> None:
    """Q25, X11: a call with the same text as before and another image has a new result."""
    frames = iter("aabb")

    def look() -> Any:
        """Look at the screen."""
        return [image(next(frames))]

    model = drawing(*[call("look")] * 4, tools=["look"])
    async with Agent(model, [look], storage="memory:", effects={"look": "read"}, settings=FREE) as agent:
        run = await agent.start("Draw")
        journal = (await agent.graph.aget_state({"configurable": {"thread_id": run.thread_id}})).values["journal"]
    assert [entry.get("same_as") for entry in journal if entry["tool"]] == [None, "s1.1", None, "s1.3"]
    assert shown(model.requests[5]) == [pixels("a"), pixels("b")]


async def test_a_write_that_was_made_before_a_crash_still_has_its_image() -> None:
    """Q25, R03: the outcome is replayed with it, and the call is made once."""
    crash, made = Crash(None, only=["put"]), list[str]()

    def paint(of: str) -> Any:
        """Paint."""
        made.append(of)
        if crash.at is None:
            crash.at = len(crash.trace) + 1
        return [image(of)]

    model = drawing(call("paint", of="a"), tools=["paint"])
    async with Agent(model, [paint], storage=crashing("memory:", crash), settings=FREE) as agent:
        with pytest.raises(StorageError):
            await agent.start("Paint", thread_id="t")
        await agent.resume("t")
    assert made == ["a"]
    assert shown(model.requests[2]) == [pixels("a")]


async def test_a_withheld_result_has_no_image() -> None:
    """Q25, S2: what a hook withholds is stored nowhere."""
    model, storage = drawing(call("chart", of="a")), open_storage("memory:")
    hooks = Hooks(after_call=[lambda call: Refuse("it is private")])
    async with Agent(model, [chart], storage=storage, effects={"chart": "read"}, settings=FREE, hooks=hooks) as agent:
        await agent.start("Draw", thread_id="t")
        async with storage.reader() as (_, store):
            assert await store.asearch(("donewhen", "attachments")) == []
    assert shown(model.requests[2]) == []


async def test_a_small_window_comes_before_images() -> None:
    """Q25, D03: if the request does not fit with them, the run goes on without, and the model is told."""
    model = drawing([call("chart", of=str(n)) for n in range(12)])
    settings = {**FREE, "context_tokens": 9_000}
    async with Agent(model, [chart], storage="memory:", effects={"chart": "read"}, settings=settings) as agent:
        run = await agent.start("Draw")
    assert run.status in ("completed", "partial"), run.outcome
    assert shown(model.requests[2]) == []
    assert "not shown: the context window is full" in model.requests[2].text


async def test_without_a_store_the_text_says_so() -> None:
    """Q25, P14: a graph that was compiled without a store keeps no image in its checkpoints."""
    model = drawing(call("chart", of="a"))
    graph = build_graph(model, [chart], effects={"chart": "read"}).compile(InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    out = await graph.ainvoke({"messages": [HumanMessage("Draw")]}, config, context=Settings(confirm="never"))
    assert pixels("a")[:200] not in str(out)
    assert "not shown: this graph was compiled without a store" in model.requests[2].text


async def test_a_later_request_recalls_it() -> None:
    """Q25, D04: an observation of an earlier request is a line; its image comes with the recall."""
    again = [recall("1:s1.1"), answer("It shows a.")]
    plan = submit_plan([{"content": "Draw", "done_when": "drawn", "tools": ["chart"]}])
    model = drawing(call("chart", of="a"), triage=[plan, *again])
    async with Agent(model, [chart], storage="memory:", effects={"chart": "read"}, settings=FREE) as agent:
        run = await agent.start("Draw")
        await agent.start("What does it show?", thread_id=run.thread_id)
    later = [each for each in model.requests if "What does it show?" in each.text and each.role == "triage"]
    assert [shown(each) for each in later] == [[], [pixels("a")]]
