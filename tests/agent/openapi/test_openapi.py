"""The operations of an HTTP API as tools, against a server on loopback. Contract: X21, X24, X28."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.tools import BaseTool

from donewhen import Agent, ToolError
from donewhen.openapi import ApiError, openapi_tools
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from tests.kit.openapi import CALENDAR, ISSUES, PAYMENTS, ApiServer

ISSUE = "/repos/ann/app/issues/7"
EVENT = "/calendars/work/events/e1"


def tools_of(document: Any, server: ApiServer, **options: Any) -> dict[str, BaseTool]:
    """Return the tools of a document by name, for this server."""
    return {tool.name: tool for tool in openapi_tools(document, base_url=server.url, **options)}


@pytest.mark.parametrize(
    ("document", "effects"),
    [
        (PAYMENTS, {"ListCharges": "read", "GetCharge": "read", "PostRefunds": "write"}),
        (
            ISSUES,
            {
                "issues_list": "read", "issues_create": "write", "issues_get": "read", "issues_update": "write",
                "issues_delete": "idempotent", "post_search": "read", "issues_get_shows": "read",
            },
        ),
        (
            CALENDAR,
            {
                "events_get": "read", "events_update": "idempotent", "events_delete": "idempotent",
                "freebusy_query": "read", "events_get_shows": "read",
            },
        ),
    ],
    ids=["payments", "issues", "calendar"],
)  # fmt: skip
def test_every_operation_is_a_tool_with_the_effect_of_its_method(document: Any, effects: dict[str, str]) -> None:
    """X21: GET reads, PUT and DELETE are idempotent, others write, unless `x-effect` says it. A body that is a picture
    is left out.
    """
    tools = openapi_tools(document, base_url="http://127.0.0.1")
    assert {tool.name: (tool.metadata or {})["effect"] for tool in tools} == effects


@pytest.mark.parametrize(
    ("document", "name", "arguments", "line", "body"),
    [
        (PAYMENTS, "ListCharges", {"limit": 3, "expand": {"a": "b"}}, "GET /charges?expand%5Ba%5D=b&limit=3", ""),
        (PAYMENTS, "GetCharge", {"charge": "a/b c"}, "GET /charges/a%2Fb%20c", ""),
        (
            PAYMENTS, "PostRefunds", {"charge": "ch_1", "amount": 5, "reason": None, "tags": ["x", "y z"]},
            "POST /refunds", "charge=ch_1&amount=5&tags=x&tags=y+z",
        ),
        (
            ISSUES, "issues_list", {"owner": "ann", "repo": "app", "labels": ["bug", "ui"]},
            "GET /repos/ann/app/issues?labels=bug%2Cui", "",
        ),
        (
            ISSUES, "issues_create", {"owner": "ann", "repo": "app", "title": "Größe", "assignees": []},
            "POST /repos/ann/app/issues", '{"title": "Größe", "assignees": []}',
        ),
        (ISSUES, "post_search", {"body": ["a"]}, "POST /search", '["a"]'),
        (
            CALENDAR, "freebusy_query", {"who": ["a@x.io", "b@x.io"], "window": {"days": 2}, "session": "s 1"},
            "POST /freeBusy?who=a%40x.io&who=b%40x.io&window=%7B%22days%22%3A+2%7D", "",
        ),
    ],
)  # fmt: skip
async def test_arguments_are_sent_where_the_document_says(
    document: Any, name: str, arguments: dict[str, Any], line: str, body: str
) -> None:
    """X21: path, query, header, cookie, forms and JSON have the styles of the document; a path takes no other path."""
    with ApiServer(answer=lambda _: (200, {})) as server:
        await tools_of(document, server)[name].ainvoke(arguments)
        sent = server.sent[0]
        method, _, query = sent.line.partition("?")
        wanted, _, parts = line.partition("?")
        assert (method, sorted(query.split("&")), sent.body) == (wanted, sorted(parts.split("&")), body)
        if "session" in arguments:
            assert sent.headers["cookie"] == "session=s%201"


@pytest.mark.parametrize("value", ["..", ".", ""])
async def test_a_path_parameter_leads_nowhere_else(value: str) -> None:
    """X21: what would change the path is refused before anything is sent."""
    with ApiServer() as server:
        told = await tools_of(PAYMENTS, server)["GetCharge"].ainvoke({"charge": value})
        assert told.startswith("Not called: charge is")
        assert server.lines == []


async def test_keys_go_with_every_request_and_nowhere_else() -> None:
    """X20: headers and parameters of the owner reach the API, also renewed ones, of two agents at once. No model sees
    them, and no tool has them as an argument.
    """
    with ApiServer(objects={EVENT: {"summary": "Talk"}}) as server:
        tokens = iter("ab")

        async def renewed() -> dict[str, str]:
            return {"Authorization": f"Bearer {next(tokens)}"}

        one = tools_of(CALENDAR, server, headers=renewed, params={"key": "secret-1"})
        two = tools_of(CALENDAR, server, headers={"X-Trace": "true"}, params={"key": "secret-2"})
        place = {"calendarId": "work", "eventId": "e1"}
        for tools in (one, one, two):
            await tools["events_get"].ainvoke(place)
        assert [line.partition("?")[2] for line in server.lines] == ["key=secret-1", "key=secret-1", "key=secret-2"]
        assert [sent.headers.get("authorization") for sent in server.sent] == ["Bearer a", "Bearer b", None]
        assert "key" not in one["events_get"].args
        assert {"key", "X-Trace"}.isdisjoint(two["events_get"].args)


async def test_errors_say_what_the_api_said() -> None:
    """X24: the text of an error names operation, status, when to come back and what the API says of it, not the key."""
    with ApiServer(answer=lambda _: (429, {"message": "slow down"})) as server:
        tool = tools_of(PAYMENTS, server, params={"token": "t0ken"})["GetCharge"]
        told = await tool.ainvoke({"charge": "ch_1"})
        assert told == 'GET /charges/{charge} answered 429 Too Many Requests: {"message": "slow down"}'


def changing(server: ApiServer, *then: Any) -> Agent:
    """An agent that closes issue 7, at work on a plan."""
    criterion = {"text": "It is closed", "check": closed()}
    step = {"content": "Close 7 of ann/app", "done_when": [criterion], "tools": ["issues_update"]}
    update = call("issues_update", owner="ann", repo="app", number=7, state="closed")
    model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": [update, *then]})
    return Agent(
        model, openapi_tools(ISSUES, base_url=server.url), storage="memory:", settings={"verification": "grounded"}
    )


def closed() -> dict[str, Any]:
    """The check that issue 7 is closed."""
    where = {"owner": "ann", "repo": "app", "number": 7}
    return {"tool": "issues_get_shows", "arguments": {**where, "fields": {"state": "closed"}}}


async def test_a_change_is_read_back_and_proven_by_a_check() -> None:
    """X28: the result says from what to what each field changed, and the check of the criterion reads the API."""
    with ApiServer(objects={ISSUE: {"title": "Crash", "state": "open"}}) as server:
        agent = changing(server, finish_step("Closed.", ("s1.1", '"as_asked": true')))
        run = await agent.start("Close issue 7 of ann/app", thread_id="t")
        run = await agent.resume(run, "approve")
        assert run.status == "completed", run.answer
        assert server.changes == [f"PATCH {ISSUE}"]
        state = await agent.graph.aget_state({"configurable": {"thread_id": "t"}})
        seen = json.loads(state.values["journal"][0]["text"])["read_back"]
        assert seen == {"as_asked": True, "changed": {"state": {"from": "open", "to": "closed"}}}
        assert run.receipt is not None
        assert [row["verdict"] for row in run.receipt["steps"][0]["criteria"]] == ["proven"]


async def test_an_api_that_only_says_so_proves_nothing() -> None:
    """X28: “200” from an API that kept the old value: the read-back says so, and the check fails."""
    issue = {"title": "Crash", "state": "open"}
    with ApiServer(
        objects={ISSUE: issue},
        answer=lambda sent: (200, {"state": "closed"}) if sent.line.startswith("PATCH") else None,
    ) as server:
        tools = tools_of(ISSUES, server)
        where = {"owner": "ann", "repo": "app", "number": 7}
        found = await tools["issues_update"].ainvoke({**where, "state": "closed"})
        assert found["read_back"] == {"as_asked": False, "changed": {}, "still": {"state": "open"}}
        told = await tools["issues_get_shows"].ainvoke({**where, "fields": {"state": "closed"}})
        assert told == 'state is "open", not "closed".'


@pytest.mark.parametrize("kept", [True, False])
async def test_a_change_whose_answer_is_lost_is_looked_up(kept: bool) -> None:
    """X24: after a cut line the API is asked whether the change took effect: done it is not made again, else it is."""
    lost: list[str] = []

    def cut(sent: Any) -> Any:
        if sent.line.startswith("PATCH") and not lost:
            lost.append(sent.line)
            if kept:
                server.objects[ISSUE] |= {"state": "closed"}
            return 0, None
        return None

    with ApiServer(objects={ISSUE: {"title": "Crash", "state": "open"}}, answer=cut) as server:
        again = call("issues_update", owner="ann", repo="app", number=7, state="closed")
        then = (
            [finish_step("Closed.", ("s1.1", "closed"))]
            if kept
            else [again, finish_step("Closed.", ("s1.2", "closed"))]
        )
        agent = changing(server, *then)
        run = await agent.start("Close issue 7 of ann/app", thread_id="t")
        run = await agent.resume(run, "approve")
        assert (run.status, run.pending) == ("completed", ())
        assert server.objects[ISSUE]["state"] == "closed"
        assert len(server.changes) == (1 if kept else 2)


async def test_two_objects_change_in_one_reply() -> None:
    """X28: each of two changes is read back for itself."""
    objects = {f"/repos/ann/app/issues/{n}": {"state": "open"} for n in (7, 8)}
    with ApiServer(objects=objects) as server:
        tool = tools_of(ISSUES, server)["issues_update"]
        found = await asyncio.gather(
            *(tool.ainvoke({"owner": "ann", "repo": "app", "number": n, "state": "closed"}) for n in (7, 8))
        )
        assert all(each["read_back"]["as_asked"] for each in found)
        deleted = await tools_of(ISSUES, server)["issues_delete"].ainvoke({"owner": "ann", "repo": "app", "number": 8})
        assert deleted["read_back"] == {"as_asked": True, "found": False}


async def test_people_see_what_a_change_replaces() -> None:
    """V12: whoever is asked about a change sees the difference to what the API holds now."""
    with ApiServer(objects={ISSUE: {"title": "Crash", "state": "open"}}) as server:
        update = call("issues_update", owner="ann", repo="app", number=7, title="Crash at start")
        step = {"content": "Rename 7 of ann/app", "done_when": "Renamed", "tools": ["issues_update"]}
        model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": [update]})
        settings = {"approvals": "each"}
        agent = Agent(model, openapi_tools(ISSUES, base_url=server.url), storage="memory:", settings=settings)
        run = await agent.start("Rename issue 7 of ann/app", thread_id="t")
        run = await agent.resume(run, "approve")
        assert "-Crash" in run.pending[0]["diffs"]["title"]
        assert "+Crash at start" in run.pending[0]["diffs"]["title"]


async def test_the_key_of_a_call_is_sent_where_it_is_declared() -> None:
    """X24: an API with `Idempotency-Key` gets the run's own key, which no model writes."""
    with ApiServer() as server:
        step = {"content": "Refund ch_1", "done_when": "Refunded", "tools": ["PostRefunds"]}
        refund = call("PostRefunds", charge="ch_1", amount=500)
        work = [refund, finish_step("Refunded.", ("s1.1", "new_1"))]
        model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": work})
        tools = openapi_tools(PAYMENTS, base_url=server.url)
        agent = Agent(model, tools, storage="memory:", settings={"verification": "grounded", "confirm": "never"})
        await agent.start("Refund 500 of ch_1", thread_id="t")
        assert len(server.sent[0].headers["idempotency-key"]) > 20
        assert server.sent[0].body == "charge=ch_1&amount=500"


@pytest.mark.parametrize(
    ("document", "options", "told"),
    [
        ({"swagger": "2.0", "paths": {}}, {}, "version 2.0"),
        ({"openapi": "3.0.0"}, {}, "no `paths`"),
        ({"openapi": "3.0.0", "paths": {}, "servers": [{"url": "/v1"}]}, {"base_url": None}, "names no server"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"$ref": "#/nowhere"}]}}}}, {}, "#/nowhere"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"$ref": "a.yaml#/b"}]}}}}, {}, "bundle it"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"x-effect": "harmless"}}}}, {}, "read, idempotent or write"),
        ("nowhere.yaml", {}, "cannot be read"),
        ("- a\n- b\n", {}, "is list"),
        ("a: [\n", {}, "neither JSON nor YAML"),
        (ISSUES, {"only": ["issues/none"]}, "issues/get"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_what_to_do(document: Any, options: Any, told: str) -> None:
    """X21: the error names what is wrong with the document and what helps."""
    with pytest.raises(ToolError, match=told.replace(".", r"\.")):
        openapi_tools(document, **{"base_url": "http://127.0.0.1", **options})


async def test_a_large_api_is_searched() -> None:
    """S04: of 60 operations a request offers the model a part; `find_tools` finds the others."""
    paths = {
        f"/things{n}": {"get": {"operationId": f"list_things_{n}", "summary": f"List things of kind {n}"}}
        for n in range(60)
    }
    model = ScriptedModel(roles={"triage": ["Nothing to do."]})
    document = {"openapi": "3.1.0", "paths": paths, "servers": [{"url": "http://127.0.0.1"}]}
    agent = Agent(model, openapi_tools(document), storage="memory:", settings={"verification": "grounded"})
    await agent.start("Say hello", thread_id="t")
    offered = [tool["function"]["name"] for tool in model.requests[0].tools]
    assert "find_tools" in offered
    assert len(offered) < 40


def test_an_error_of_the_api_is_a_refusal_or_open() -> None:
    """X24: 4xx is certain, 5xx is not."""
    from donewhen.graph.tools.certain import is_certain

    operation: Any = type("Operation", (), {"method": "post", "path": "/a"})
    assert [is_certain(ApiError(operation, status, "")) for status in (400, 404, 429, 408, 500, 503)] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
