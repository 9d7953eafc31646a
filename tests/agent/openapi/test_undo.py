"""What the tools of an HTTP API changed is put back, where the API has a way. Contract: X21, X28."""

import json
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent
from donewhen.agent.openapi.undo import NO_WAY_BACK
from donewhen.openapi import openapi_tools
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.openapi import ApiServer

THING = "/things/7"


def parts(*names: str) -> dict[str, Any]:
    body = {"type": "object", "properties": {name: {} for name in names}}
    return {"requestBody": {"content": {"application/json": {"schema": body}}}}


PLACE = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
ONE = {
    "parameters": PLACE,
    "get": {"operationId": "thing"},
    "patch": {"operationId": "change", **parts("title", "state")},
    "put": {"operationId": "replace", **parts("title", "state")},
    "delete": {"operationId": "remove"},
}
DOCUMENT = {
    "openapi": "3.1.0",
    "paths": {"/things/{id}": ONE, "/things": {"post": {"operationId": "make", **parts("title")}}},
}


async def after(server: ApiServer, *calls: Any, without: str = "") -> tuple[Agent, Any]:
    """Return an agent, and its run that made these calls."""
    paths = {**DOCUMENT["paths"], "/things/{id}": {key: each for key, each in ONE.items() if key != without}}
    tools = openapi_tools({**DOCUMENT, "paths": paths}, base_url=server.url)
    names = [tool.name for tool in tools]
    plan = submit_plan([{"content": "change", "tools": names, "done_when": ["done"]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [*calls, finish_step("done", "s1.1")]})
    settings = {"confirm": "never", "approvals": "never", "verification": "grounded"}
    agent = Agent(model, tools, storage="memory:", settings=settings)
    run = await agent.start("Change thing 7")
    assert run.outcome, run.pending
    return agent, run


@pytest.mark.parametrize(
    "calls",
    [
        [call("change", id="7", state="closed")],
        [call("change", id="7", state="closed"), call("change", id="7", title="Old", state="odd")],
        [call("replace", id="7", title="New")],
        [call("remove", id="7")],
        [call("change", id="7", state="closed"), call("remove", id="7")],
    ],
    ids=["patch", "twice", "put", "delete", "patched and deleted"],
)
async def test_a_change_is_put_back(calls: list[Any]) -> None:
    """41.2: undo sends what was read before the change, the latest first, and says what the API shows then."""
    before = {"title": "Crash", "state": "open"}
    with ApiServer(objects={THING: dict(before)}) as server:
        agent, run = await after(server, *calls)
        assert server.objects.get(THING) != before
        count = len(server.changes)
        checked = await agent.undo(run, dry_run=True)
        assert (checked.status, len(server.changes)) == ("undone", count)
        report = await agent.undo(run)
        assert (report.status, {change.path for change in report.changes}, report.beyond) == ("undone", {THING}, ())
        assert server.objects[THING] == before
        assert (await agent.undo(run)).status == "nothing"
        await agent.aclose()


async def test_what_was_made_is_removed_if_the_answer_names_it() -> None:
    """41.2: DELETE undoes a POST; without one undo says that the API has no way back, without an id in the answer that
    it does not see what changed."""
    for answer, without, status, why in (
        ({"id": "n1", "title": "x"}, "", "undone", []),
        ({"ok": True}, "", "nothing", ["undo saw no change that it can take back"]),
        ({"id": "n1"}, "delete", "nothing", ["the API has no operation that takes it back"]),
    ):
        with ApiServer() as server:

            def made(sent: Any, server: ApiServer = server, answer: Any = answer) -> Any:
                if sent.line.startswith("POST"):
                    server.objects["/things/n1"] = dict(answer)
                    return 201, answer
                return None

            server.answer = made
            agent, run = await after(server, call("make", title="x"), without=without)
            report = await agent.undo(run)
            assert (report.status, [row["why"] for row in report.beyond]) == (status, why)
            assert ("/things/n1" in server.objects) is (status != "undone")
            await agent.aclose()


@pytest.mark.parametrize(
    ("made", "now", "why"),
    [
        (call("change", id="7", state="closed"), {"title": "Crash", "state": "lost"}, f"{THING} changed since: state"),
        (call("change", id="7", state="closed"), None, f"{THING} is gone"),
        (call("remove", id="7"), {"title": "Other"}, f"{THING} exists again"),
    ],
)
async def test_what_changed_since_is_left_alone(made: Any, now: Any, why: str) -> None:
    """41.2: undo refuses where the object is not as the change left it, says what differs, and sends nothing."""
    with ApiServer(objects={THING: {"title": "Crash", "state": "open"}}) as server:
        agent, run = await after(server, made)
        server.objects = {} if now is None else {THING: now}
        count = len(server.changes)
        report = await agent.undo(run)
        assert (report.status, [change.why for change in report.changes]) == ("refused", [why])
        assert len(server.changes) == count
        await agent.aclose()


async def test_what_the_api_does_not_take_back_is_said() -> None:
    """41.2: an API that refuses, or does not show it then, makes no undone change of it."""
    with ApiServer(objects={THING: {"title": "Crash", "state": "open"}}) as server:
        agent, run = await after(server, call("change", id="7", state="closed"))
        server.answer = lambda sent: (409, {"message": "locked"}) if sent.line.startswith("PATCH") else None
        refused = await agent.undo(run)
        assert refused.status == "refused"
        assert "locked" in refused.changes[0].why
        server.answer = lambda sent: (200, {}) if sent.line.startswith("PATCH") else None
        assert "does not show what was put back" in (await agent.undo(run)).changes[0].why
        server.answer = lambda _: None
        assert (await agent.undo(run)).status == "undone"
        await agent.aclose()


async def test_a_refused_change_is_not_undone() -> None:
    """41.2: what the API refused was not changed by the run, so nobody's later change of it stops the undo."""
    with ApiServer(objects={THING: {"title": "Crash", "state": "open"}}) as server:
        server.answer = lambda sent: (403, {"message": "no"}) if sent.line.startswith("DELETE") else None
        agent, run = await after(server, call("change", id="7", state="closed"), call("remove", id="7"))
        server.objects[THING]["title"] = "Someone else's"
        report = await agent.undo(run)
        assert (report.status, [change.id for change in report.changes], report.beyond) == ("undone", ["s1.1"], ())
        assert server.objects[THING] == {"title": "Someone else's", "state": "open"}
        await agent.aclose()


async def test_without_the_tool_the_files_come_back_and_the_rest_is_named(tmp_path: Path) -> None:
    """41.2: a process without the API's tools, such as the terminal, undoes the files; one that has them, all else."""
    storage = f"sqlite:///{tmp_path}/runs.db"
    (file := tmp_path / "a.txt").write_text("mine")
    with ApiServer(objects={THING: {"title": "Crash", "state": "open"}}) as server:
        tools = openapi_tools(DOCUMENT, base_url=server.url)
        plan = submit_plan([{"content": "change", "tools": ["change", "write_file"], "done_when": ["done"]}])
        calls = [call("change", id="7", state="closed"), call("write_file", path="a.txt", content="theirs")]
        model = ScriptedModel(roles={"triage": [plan], "execute": [*calls, finish_step("done", "s1.1")]})
        settings = {"confirm": "never", "approvals": "never", "verification": "grounded"}
        async with Agent(model, [*tools, *workspace_tools(tmp_path)], storage=storage, settings=settings) as agent:
            run = await agent.start("Change thing 7, and the file")
            assert run.outcome, run.pending
            async with Agent(ScriptedModel(), storage=storage) as other:
                report = await other.undo(run)
            assert (report.status, [change.id for change in report.changes]) == ("undone", ["s1.2"])
            assert [(row["id"], row["why"]) for row in report.beyond] == [
                ("s1.1", "the tool that made the change is not here")
            ]
            assert (file.read_text(), server.objects[THING]["state"]) == ("mine", "closed")
            assert (await agent.undo(run)).status == "undone"
            assert server.objects[THING]["state"] == "open"
        async with Agent(ScriptedModel(), storage=storage) as other:
            assert (await other.undo(run)).beyond == ()


@pytest.mark.parametrize("made", [call("change", id="7", title="New"), call("remove", id="7")])
async def test_a_condition_on_the_version_is_filled_in(made: Any) -> None:
    """X21, X28: `If-Match` has the version that was read before the change, also where it is put back; a dry run says
    what the undo does.
    """
    versions = dict[str, str]()
    condition = {"name": "If-Match", "in": "header", "required": True, "schema": {"type": "string"}}
    one: dict[str, Any] = {**ONE, **{key: {**ONE[key], "parameters": [condition]} for key in ("patch", "put")}}
    one["delete"] = {**ONE["delete"], "parameters": [{**condition, "name": "if-match"}]}

    def answer(sent: Any) -> Any:
        now = json.dumps(server.objects.get(THING))
        if sent.line.startswith("GET"):
            return (200, server.objects[THING], {"ETag": f'"{now}"'}) if now != "null" else None
        versions[sent.line] = sent.headers.get("if-match", "")
        return None if versions[sent.line] == f'"{now}"' or now == "null" else (428, {"message": "If-Match"})

    with ApiServer(objects={THING: {"title": "Old", "state": "open"}}, answer=answer) as server:
        tools = openapi_tools({"openapi": "3.1.0", "paths": {"/things/{id}": one}}, base_url=server.url)
        assert all("If-Match" not in (tool.args_schema.get("required") or ()) for tool in tools)  # type: ignore[union-attr]
        plan = submit_plan([{"content": "change", "tools": [tool.name for tool in tools], "done_when": ["done"]}])
        model = ScriptedModel(roles={"triage": [plan], "execute": [made, finish_step("done", "s1.1")]})
        settings = {"confirm": "never", "approvals": "never", "verification": "grounded"}
        agent = Agent(model, tools, storage="memory:", settings=settings)
        run = await agent.start("Change thing 7")
        assert server.objects.get(THING) == ({"title": "New", "state": "open"} if made["name"] == "change" else None)
        assert [each.result for each in (await agent.undo(run, dry_run=True)).changes] == ["restored"]
        assert [each.result for each in (await agent.undo(run)).changes] == ["restored"]
        assert server.objects[THING] == {"title": "Old", "state": "open"}


async def test_what_needs_more_than_is_known_is_not_undone() -> None:
    """X28: where the way back has a required header that nobody can fill in, there is none, and the report says so."""
    reason = {"name": "X-Reason", "in": "header", "required": True, "schema": {"type": "string"}}
    one = {**ONE, "patch": {**ONE["patch"], "parameters": [reason]}}
    tools = openapi_tools({"openapi": "3.1.0", "paths": {"/things/{id}": one}}, base_url="http://127.0.0.1")
    undo = {tool.name: (tool.metadata or {}).get("undo") for tool in tools}
    assert undo["change"] == NO_WAY_BACK
    assert undo["replace"] not in (None, NO_WAY_BACK)
