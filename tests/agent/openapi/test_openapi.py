"""The operations of an HTTP API as tools, against a server on loopback. Contract: X21, X24, X28."""

import asyncio
import json
import re
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from langchain_core.tools import BaseTool

from donewhen import Agent, StorageError, ToolError
from donewhen.agent.openapi.tools import MOST_BYTES
from donewhen.agent.testing.crash import Crash, crashing
from donewhen.errors import ToolMissing
from donewhen.graph.tools.call import seconds_for
from donewhen.hooks import Ask, Hooks
from donewhen.openapi import ApiError, openapi_tools
from donewhen.testing import ScriptedModel, call, finish_step, give_up, submit_plan
from tests.kit.flows import one_step
from tests.kit.openapi import CALENDAR, ISSUES, PAYMENTS, ApiServer
from tests.kit.runs import last_seen

ISSUE = "/repos/ann/app/issues/7"
EVENT = "/calendars/work/events/e1"


def tools_of(document: Any, server: ApiServer, **options: Any) -> dict[str, BaseTool]:
    """Return the tools of a document by name, for this server."""
    return {tool.name: tool for tool in openapi_tools(document, base_url=server.url, **options)}


def things(body: Any = None, **more: Any) -> dict[str, Any]:
    """A document of one kind of thing, which PATCH changes with a body of this schema."""
    change: dict[str, Any] = {"operationId": "change"}
    if body is not None:
        change["requestBody"] = {"content": {"application/json": {"schema": body}}, **more}
    place = [{"name": "id", "in": "path", "schema": {"type": "string"}}]
    path = {"parameters": place, "get": {"operationId": "thing"}, "patch": change, "delete": {"operationId": "remove"}}
    return {"openapi": "3.1.0", "paths": {"/things/{id}": path}}


def fields(*names: str) -> dict[str, Any]:
    """The schema of an object with these fields."""
    return {"type": "object", "properties": {name: {} for name in names}}


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
        (things(fields("a"), required=True), "change", {"id": "1"}, "PATCH /things/1", "{}"),
        (things(fields("a")), "change", {"id": "1"}, "PATCH /things/1", ""),
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
        await tools_of(document, server, read_back=False)[name].ainvoke(arguments)
        sent = server.sent[0]
        method, _, query = sent.line.partition("?")
        wanted, _, parts = line.partition("?")
        assert (method, sorted(query.split("&")), sent.body) == (wanted, sorted(parts.split("&")), body)
        if "session" in arguments:
            assert sent.headers["cookie"] == "session=s%201"


@pytest.mark.parametrize("value", ["..", ".", "", None, "a/../b", "..\\b", "a/."])
async def test_a_path_parameter_leads_nowhere_else(value: str | None) -> None:
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


SECRET, TOKEN = "s3cret-k3y", "t0ken-456"


@pytest.mark.parametrize("shown", [TOKEN, f"{TOKEN} {TOKEN}"])
async def test_a_key_is_hidden_where_an_answer_is_cut(shown: str) -> None:
    """X20, 41.4e: of a key in which a long answer is cut, nothing is shown either."""
    with ApiServer(answer=lambda _: (200, "x" * (MOST_BYTES - 5) + shown, {"content-type": "text/plain"})) as server:
        tools = tools_of(CALENDAR, server, headers={"Authorization": f"Bearer {TOKEN}"})
        found = await tools["events_get"].ainvoke({"calendarId": "work", "eventId": "e1"})
    assert "cut after" in str(found)
    assert {*str(found).partition("\n")[0]} <= {*"x[redacted]"}
    assert "t0k" not in str(found)
    assert len(str(found)) > MOST_BYTES - 1000


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            (429, {"message": f"slow down, {TOKEN}"}, {"Retry-After": "17"}),
            '429 Too Many Requests (retry after 17): {"message": "slow down, [redacted]"}',
        ),
        ((400, "x" * 1_995 + SECRET), "400 Bad Request: " + "x" * 1_995 + "[reda"),
        (
            (302, None, {"Location": f"/login/{TOKEN}?next=%2F&sid=hidden#part"}),
            "302 Found, leading to /login/[redacted]",
        ),
        ((500, b"\0\1", {"Content-Type": "image/png"}), "500 Internal Server Error"),
    ],
)  # fmt: skip
async def test_errors_say_what_the_api_said(answer: Any, told: str) -> None:
    """X24: the text of an error names operation, status, when to come back and what the API says of it, not the key,
    not even a part of it, and no query of an address.
    """
    with ApiServer(answer=lambda _: answer) as server:
        keys: Any = {"headers": {"Authorization": f"Bearer {TOKEN}\n"}, "params": {"key": SECRET}}
        tool = tools_of(PAYMENTS, server, **keys)["GetCharge"]
        assert await tool.ainvoke({"charge": "ch_1"}) == f"GET /charges/{{charge}} answered {told}"
        assert server.sent[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        ({"you": [f"Bearer {TOKEN}"], SECRET: 1}, "application/json", {"you": ["[redacted]"], "[redacted]": 1}),
        (f"key={SECRET} true", "text/plain", "key=[redacted] true"),
        ("Gr\xfc\xdfe", "text/plain; charset=x-unknown", "Gr\xfc\xdfe"),
        ("aGk=", "text/plain; charset=base64", "aGk="),
        ("[" * 100_000, "application/json", "[" * 100_000),
        ("[" * 200 + "]" * 200, "application/json", "[" * 200 + "]" * 200),
        (b"\1" * 2_000, "image/png", "200 OK: 2,000 bytes of image/png"),
        ("y" * 5_000_001, "text/plain", "y" * 5_000_000 + "\n(cut after 5,000,000 bytes)"),
    ],
    ids=["keys", "key", "charset", "codec", "broken", "deep", "picture", "long"],
)  # fmt: skip
async def test_an_answer_of_any_kind_is_a_result(body: Any, kind: str, found: Any) -> None:
    """X20, X24: what comes back is the result, without the owner's keys; text that cannot be read is text as it is."""
    with ApiServer(answer=lambda _: (200, body, {"Content-Type": kind})) as server:
        keys: Any = {"headers": {"Authorization": f"Bearer {TOKEN}", "X-Trace": "true"}, "params": {"key": SECRET}}
        tool = tools_of(ISSUES, server, **keys)["post_search"]
        assert await tool.ainvoke({"body": ["a"]}) == found
        assert TOKEN not in repr(tool)
        change = tools_of(ISSUES, server, **keys)["issues_update"]
        assert not [each for each in (TOKEN, SECRET) if each in repr(change.metadata)]


async def test_what_goes_with_every_request_and_is_no_key_may_stand_in_answers() -> None:
    """X20: a version or a media type of the owner's is not hidden in the data; a key of a declared scheme is."""
    plain = {"Accept": "application/json", "Api-Version": "2026-10-01", "X-Trace": "true"}
    seen = {"type": "application/json", "since": "2026-10-01", "key": "abcdefgh"}
    with ApiServer(answer=lambda _: (200, seen)) as server:
        tool = tools_of(CALENDAR, server, headers=plain, params={"key": "abcdefgh"})["freebusy_query"]
        assert await tool.ainvoke({"who": ["a"]}) == {**seen, "key": "[redacted]"}


BASIC = b64encode(f"ann@x.io:{SECRET}".encode()).decode()


@pytest.mark.parametrize(
    ("headers", "answered", "told"),
    [
        ({"Cookie": f"lang=de-DE; sid={SECRET}; b={TOKEN}"}, f"{SECRET} de-DE {TOKEN}", "[redacted] de-DE [redacted]"),
        ({"Cookie": f'sid="{SECRET}"'}, SECRET, "[redacted]"),
        ({"Authorization": f"Basic {BASIC}"}, f"ann@x.io {SECRET} {BASIC}", "ann@x.io [redacted] [redacted]"),
        ({"Authorization": "Basic " + b64encode(f"{SECRET}:".encode()).decode()}, SECRET, "[redacted]"),
        ({"Authorization": "Basic " + b64encode(b"ann:s3cr-t7").decode()}, "s3cr-t7", "s3cr-t7"),
        ({"Authorization": "Basic s3cret-k3y\u20ac"}, SECRET, None),
    ],
)
async def test_a_part_of_a_key_is_hidden_where_the_api_repeats_it(headers: Any, answered: str, told: str) -> None:
    """X20: a cookie's value and a password, from 8 characters on, in results and errors."""
    with ApiServer() as server:
        tool = tools_of(PAYMENTS, server, headers=headers)["GetCharge"]
        for status in (200, 401):
            server.answer = lambda _, status=status: (status, {"error": answered})
            found = str(await tool.ainvoke({"charge": "ch_1"}))
            assert f"'{told}'" in found.replace('"', "'") if told else found.startswith("Not called: the header")


@pytest.mark.parametrize("value", ["s3cret-\xe4", "s3cret-\n1", "s3cret-\0"])
async def test_a_header_that_cannot_be_sent_is_not_shown(value: str) -> None:
    """X20: the refusal of a key with an odd character does not contain it, and nothing is sent."""
    with ApiServer() as server:
        told = await tools_of(PAYMENTS, server, headers={"X-Key": value})["GetCharge"].ainvoke({"charge": "ch_1"})
        assert told == "Not called: the header X-Key has a character that no header can have."
        assert server.lines == []


LOGIN = httpx.Response(503, request=httpx.Request("POST", "http://login.test/token"))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (httpx.HTTPStatusError(SECRET, request=LOGIN.request, response=LOGIN), "raised HTTPStatusError (503)"),
        (httpx.ReadTimeout(SECRET), "raised ReadTimeout"),
        (KeyError(SECRET), "raised KeyError"),
        (RuntimeError(SECRET), "raised RuntimeError"),
        (SECRET, "returned something that is of type str, not a mapping"),
        (None, "returned something that is None, not a mapping"),
    ],
)
@pytest.mark.parametrize("name", ["issues_create", "issues_update"])
async def test_a_function_of_headers_that_fails_proves_that_nothing_was_sent(given: Any, told: str, name: str) -> None:
    """X24, X20: whatever it raises or returns, nobody is asked what a write did, and the same call may be made again;
    the error shows nothing of its words.
    """

    async def headers() -> Any:
        if isinstance(given, Exception):
            raise given
        return given

    goes = {"fails": True}
    with ApiServer(objects={ISSUE: {"title": "Crash"}}) as server:
        tools = tools_of(ISSUES, server, headers=lambda: headers() if goes["fails"] else {"X-Key": TOKEN})
        place = {"owner": "ann", "repo": "app"} | ({"number": 7} if name == "issues_update" else {})
        change = call(name, **place, title="Slow")

        def once_more(*_: Any) -> Any:
            goes["fails"] = False
            return change

        model = one_step([change, once_more, finish_step("Done.", ("s1.2", "Slow"))], tools=[name])
        settings = {"verification": "grounded", "confirm": "never", "approvals": "never"}
        async with Agent(model, [tools[name]], storage="memory:", settings=settings) as agent:
            run = await agent.start("Name it Slow")
            first = (await agent.conversation(run)).observations[0]["text"]
        assert (run.status, run.pending, len(server.changes)) == ("completed", (), 1)
        assert first == f"Not called, nothing was sent: the function for headers= {told}."
        assert not any(SECRET in request.text for request in model.requests)


async def test_a_model_does_not_choose_the_version_that_it_changes() -> None:
    """X21, X28: `If-Match` is filled in and no argument where the object is read before; also for a second change, and
    nothing is sent where the object has no version. Without such a read, or beside it at a POST, it stays an argument.
    """
    document = things(fields("a"))
    operations = document["paths"]["/things/{id}"]
    operations["post"] = {"operationId": "act"}
    for method in ("patch", "delete", "post"):
        operations[method]["parameters"] = [{"name": "If-Match", "in": "header", "required": method != "patch"}]
    versions = iter(['"1"', '"2"', '"2"', '"3"', "", ""])

    def respond(sent: Any) -> Any:
        return (200, {"a": 0}, {"ETag": next(versions)}) if sent.line.startswith("GET") else (200, {})

    with ApiServer(answer=respond) as server:
        tools = tools_of(document, server)
        assert {name for name, tool in tools.items() if "If-Match" in tool.args} == {"act"}
        for value in ("*", '"0"', "*"):
            await tools["change"].ainvoke({"id": "1", "a": 1, "If-Match": value})
        sent = [each.headers.get("if-match") for each in server.sent if each.line.startswith("PATCH")]
        assert sent == ['"1"', '"2"', None]
        alone = tools_of(document, server, read_back=False)
        assert {name for name, tool in alone.items() if "If-Match" in tool.args} == {"act", "change", "remove"}
        await alone["change"].ainvoke({"id": "1", "a": 1, "If-Match": "*"})
        assert server.sent[-1].headers["if-match"] == "*"


@pytest.mark.parametrize("owners", [{"authorization": f"Bearer {TOKEN}"}, lambda: {"Authorization": f"Bearer {TOKEN}"}])
async def test_the_owners_authorization_comes_before_those_of_client_and_address(owners: Any) -> None:
    """X20: `headers=` is sent whatever `auth` of the client, or the user in the address, would send; where it has no
    Authorization, theirs is, which others of the owner's headers do not change.
    """
    with ApiServer(answer=lambda _: (200, {})) as server:
        address = server.url.replace("//", "//ann:pw@")
        kept = httpx.AsyncClient(auth=("bob", "pw"))
        for client, url in ((kept, server.url), (None, address), (kept, address)):
            for headers in (owners, {"X-Trace": "1"}):
                (tool, *_) = openapi_tools(PAYMENTS, base_url=url, client=client, headers=headers)
                await tool.ainvoke({})
        sent = [each.headers["authorization"] for each in server.sent]
        assert sent[::2] == [f"Bearer {TOKEN}"] * 3
        assert [b64decode(each.removeprefix("Basic ")) for each in sent[1::2]] == [b"bob:pw", b"ann:pw", b"bob:pw"]
        await kept.aclose()


async def test_the_owners_headers_come_last() -> None:
    """X20: a header of the owner replaces the same one of the document, however it is spelled."""
    with ApiServer(answer=lambda _: (200, {})) as server:
        tools = tools_of(CALENDAR, server, headers=lambda: {"x-TRACE": "owner", "content-type": "application/x+json"})
        change = {"calendarId": "work", "eventId": "e1", "X-Trace": True, "summary": "Talk"}
        await tools["events_update"].ainvoke(change)
        assert [sent.headers["x-trace"] for sent in server.sent] == ["owner"] * 3
        assert server.sent[1].headers["content-type"] == "application/x+json"


async def test_an_api_that_cannot_be_reached_is_named_with_the_operation() -> None:
    """X24: neither host nor operation is left to be guessed where nobody answers."""
    with ApiServer() as server:
        tool = tools_of(PAYMENTS, server)["GetCharge"]
    with pytest.raises(httpx.ConnectError) as refused:
        await tool.ainvoke({"charge": "ch_1"})
    assert str(refused.value).startswith(f"GET /charges/{{charge}} at {httpx.URL(server.url).netloc.decode()}: ")


async def test_seconds_are_those_of_the_whole_request() -> None:
    """X24: an answer that comes byte by byte does not last longer than a request may."""
    gone = threading.Event()

    def pieces() -> Iterator[bytes]:
        while not gone.wait(0.01):
            yield b"."

    with ApiServer(answer=lambda _: (200, pieces())) as server:
        tool = tools_of(PAYMENTS, server, seconds=0.2)["GetCharge"]
        with pytest.raises(httpx.ReadTimeout, match=r"no whole answer within 0\.2 seconds"):
            await asyncio.wait_for(tool.ainvoke({"charge": "ch_1"}), 20)
        gone.set()


async def test_seconds_that_are_given_hold_with_a_client_and_longer_than_a_call_usually_may() -> None:
    """X24: whoever says `seconds=300` waits so long: neither the client's own limit nor that of all calls is shorter.
    Without it, both hold. A change that is read back makes three requests."""
    waits = list[Any]()

    def respond(request: httpx.Request) -> httpx.Response:
        waits.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json={})

    async def limits(**options: Any) -> list[float | None]:
        client = httpx.AsyncClient(transport=httpx.MockTransport(respond), timeout=7)
        tools = {
            tool.name: tool for tool in openapi_tools(CALENDAR, base_url="http://a.test", client=client, **options)
        }
        await tools["events_get"].ainvoke({"calendarId": "work", "eventId": "e1"})
        changing = ("events_get", "events_update", "events_get_shows")
        return [waits[-1], *(seconds_for(tools[name], {}, 60) for name in changing)]

    assert await limits() == [7, 60, 60, 60]
    assert await limits(seconds=300) == [300, 305, 905, 305]
    assert (await limits(seconds=10))[:2] == [10, 60]


@pytest.mark.parametrize(
    ("body", "sent", "answer", "as_asked"),
    [
        ({"type": "array"}, {"body": [{"op": "remove", "path": "/a"}]}, (200, {"a": 1}), None),
        (None, {}, (200, {"a": 1}), None),
        (None, {}, (404, {}), None),
        (fields("a", "secret"), {"a": 1, "secret": "x"}, (200, {"a": 1}), None),
        (fields("a", "secret"), {"a": 1, "secret": "x"}, (200, {"a": 2}), False),
        (fields("a"), {"a": 1}, (200, {"a": 1.0, "b": 2}), True),
        (fields("a"), {"a": 1}, (200, {"a": True}), None),
        (fields("a"), {"a": "ann"}, (200, {"a": {"login": "ann"}}), None),
        (fields("a"), {"a": ["x"]}, (200, {"a": [{"name": "x"}]}), None),
        (fields("a"), {"a": [{"name": "x"}]}, (200, {"a": [{"name": "x", "id": 3}]}), True),
        (fields("a"), {"a": ["x"]}, (200, {"a": ["x", "y"]}), False),
        (fields("a"), {"a": {"b": {"c": 1}}}, (200, {"a": {"b": {"c": 2}}}), False),
        (fields("a"), {"a": 1}, (200, "as text"), None),
        (fields("a"), {"a": 1}, (404, {}), False),
        (fields("a"), {"a": 1}, (403, {}), None),
        (fields("a"), {"a": 1}, (0, None), None),
    ],
)  # fmt: skip
async def test_a_read_back_says_no_more_than_it_shows(body: Any, sent: Any, answer: Any, as_asked: bool | None) -> None:
    """X24, X28: where what was sent cannot be compared with what is shown, nobody says that it is so, or that it is
    not; and a read that fails makes no error of a change that was made.
    """
    with ApiServer(answer=lambda sent: answer if sent.line.startswith("GET") else (200, {})) as server:
        tool = tools_of(things(body), server)["change"]
        found = await tool.ainvoke({"id": "1", **sent})
        assert found["status"] == 200
        assert found["read_back"]["as_asked"] is as_asked
        probed = await (tool.metadata or {})["probe"]({"id": "1", **sent})
        assert (bool(probed) if probed is not None else None) is as_asked
        assert server.changes == ["PATCH /things/1"]


async def test_a_first_look_that_fails_leaves_the_change_to_be_made() -> None:
    """X28: whoever may write and not read at first changes all the same, and is told what was the matter."""
    looks = iter([(0, None), (200, {"a": 1})])
    with ApiServer(answer=lambda sent: next(looks) if sent.line.startswith("GET") else (200, {})) as server:
        found = (await tools_of(things(fields("a")), server)["change"].ainvoke({"id": "1", "a": 1}))["read_back"]
        assert (found["as_asked"], "changed" in found) == (True, False)
        assert "RemoteProtocolError" in found["problem"]


async def test_a_check_proves_that_something_is_gone() -> None:
    """X28: `gone` succeeds where there is nothing any more, and fails where there is, or where nobody can say."""
    with ApiServer(objects={"/things/1": {}}, answer=lambda sent: (403, {}) if "/9" in sent.line else None) as server:
        tools = tools_of(things(), server)
        check = tools["thing_shows"]
        assert check.description.startswith("Succeeds when `GET /things/{id}` shows these values")
        assert await check.ainvoke({"id": "1", "gone": True}) == "It is still there."
        assert (await tools["remove"].ainvoke({"id": "1"}))["read_back"] == {"as_asked": True, "found": False}
        assert (await check.ainvoke({"id": "1", "gone": True})).startswith("it is gone: GET /things/{id} answered 404")
        assert (await check.ainvoke({"id": "9", "gone": True})).startswith("GET /things/{id} answered 403")


async def test_a_list_is_compared_as_a_whole() -> None:
    """X24, X28: of what a PUT sets and what its check names, in their order; of two lists, also one that is empty. What
    a PATCH sends may be steps to take, so nobody says that they are not shown.
    """
    shown: dict[str, Any] = {"/things/4": [{"id": 1}]}
    body = {"content": {"application/json": {"schema": {"type": "array"}}}, "required": True}
    document = things({"type": "array"})
    document["paths"]["/things/{id}"]["put"] = {"operationId": "set", "requestBody": body}

    def answer(sent: Any) -> Any:
        method, path = sent.line.split()
        if method == "PUT" and path < "/things/3":
            shown[path] = json.loads(sent.body)
        return 200, shown.get(path, ["z"])

    with ApiServer(answer=answer) as server:
        tools = tools_of(document, server)
        for id, sent, as_asked in (
            ("1", ["x", "y"], True),
            ("2", [], True),
            ("3", ["x"], False),
            ("3", ["y", "z"], None),
            ("4", [{"id": 1, "secret": "a"}, {"id": 2, "secret": "b"}], None),
            ("4", [{"id": 2, "secret": "b"}], False),
        ):
            found = (await tools["set"].ainvoke({"id": id, "body": sent}))["read_back"]
            now = sent if as_asked else [{"id": 1}] if id == "4" else ["z"]
            assert found == {"as_asked": as_asked, "now": now}
            probed = await (tools["set"].metadata or {})["probe"]({"id": id, "body": sent})
            assert (bool(probed) if probed is not None else None) is as_asked
            if as_asked is None:  # it may show the other one on another page
                continue
            told = await tools["thing_shows"].ainvoke({"id": id, "fields": sent})
            assert told == (
                f"it shows {json.dumps(sent)}" if as_asked else f"It is {json.dumps(now)}, not {json.dumps(sent)}."
            )
        assert (await tools["thing_shows"].ainvoke({"id": "1", "fields": {"a": 1}})).startswith("It has no fields")
        assert (await tools["change"].ainvoke({"id": "1", "body": ["w"]}))["read_back"]["as_asked"] is None


async def test_a_read_back_finds_the_object_by_the_names_of_its_path() -> None:
    """X28: the GET may call its arguments otherwise than the change, which has a body with a field `id`, say."""
    document = things()
    path = document["paths"]["/things/{id}"]
    del path["delete"]
    place = path.pop("parameters")
    path["get"]["parameters"] = [{"name": "id", "in": "query", "schema": {"type": "string"}}, *place]
    path["patch"]["parameters"] = place
    with ApiServer(objects={"/things/1": {}}) as server:
        read = tools_of(document, server)["thing"]
        assert sorted(read.args) == ["id", "id_path"]
        await tools_of(document, server)["change"].ainvoke({"id": "1"})
        assert server.lines == ["GET /things/1", "PATCH /things/1", "GET /things/1"]


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


@pytest.mark.parametrize(
    ("answer", "answered", "error"),
    [
        ((500, {"error": "oops"}), 500, '500 Internal Server Error: {"error": "oops"}'),
        ((0, None), None, "Server disconn"),
    ],
)
async def test_a_change_that_took_effect_says_that_its_answer_was_another(
    answer: Any, answered: Any, error: str
) -> None:
    """X24, X28: where the API answered 500, or nothing, and the change can be read, the model reads both: of two
    changes for each. One that cannot be read is the error, and one that a crash cut off says that no answer came.
    """

    def respond(sent: Any) -> Any:
        if sent.line.startswith("PATCH"):
            server.objects[sent.line.split()[1]] |= json.loads(sent.body) if "/9" not in sent.line else {}
            return answer
        return None

    with ApiServer(objects={f"/things/{id}": {"a": 0} for id in (1, 2, 9)}, answer=respond) as server:
        change = tools_of(things(fields("a")), server)["change"]
        for id in ("1", "2"):
            found = await change.ainvoke({"id": id, "a": 1})
            assert (found["answered"], error in found["error"]) == (answered, True), found
            assert found["read_back"] == {"as_asked": True, "changed": {"a": {"from": 0, "to": 1}}}
            probed = await (change.metadata or {})["probe"]({"id": id, "a": 1})
            assert (probed["answered"], probed["read_back"]) == (None, {"as_asked": True})
            assert "cut off" in probed["error"]
        if answered:
            assert str(await change.ainvoke({"id": "9", "a": 1})).startswith("PATCH /things/{id} answered 500")
        else:
            with pytest.raises(httpx.RemoteProtocolError):
                await change.ainvoke({"id": "9", "a": 1})


@pytest.mark.parametrize("method", ["put", "delete"])
@pytest.mark.parametrize("then", ["looked up", "unknown", "made again"])
async def test_an_idempotent_change_whose_answer_is_lost_is_unknown_as_a_write_is(method: str, then: str) -> None:
    """X24: the GET beside it settles it; else the receipt says that nobody knows, and it is made again unasked."""
    operations: dict[str, Any] = things()["paths"]["/things/{id}"]
    body = {"content": {"application/json": {"schema": fields("size")}}}
    change = {"operationId": "change", **({"requestBody": body} if method == "put" else {})}
    path = {"parameters": operations["parameters"], method: change}
    path |= {"get": operations["get"]} if then == "looked up" else {}

    def cut(sent: Any) -> Any:
        if sent.line.startswith("GET"):
            return None
        if len(server.changes) == 1:
            server.objects.pop("/things/7") if method == "delete" else server.objects.update({"/things/7": {"size": 3}})
            return 0, None
        return 200, {"id": "made_again"}

    with ApiServer(objects={"/things/7": {"size": 1}}, answer=cut) as server:
        made = call("change", id="7", **({"size": 3} if method == "put" else {}))
        ends = {
            "looked up": [finish_step("Done.", ("s1.1", "as_asked"))],
            "unknown": [give_up("nobody knows")],
            "made again": [made, finish_step("Done.", ("s1.2", "made_again"))],
        }
        model = one_step([made, *ends[then]], content="Change 7 to size 3", tools=["change"])
        tools = openapi_tools({"openapi": "3.1.0", "paths": {"/things/{id}": path}}, base_url=server.url)
        settings: Any = {"confirm": "never", "verification": "grounded", "on_exhausted": "stop"}
        settings |= {"limits": {"model_calls": 3}} if then == "unknown" else {}
        async with Agent(model, tools, storage="memory:", settings=settings) as agent:
            run = await agent.start("Change 7 to size 3")
            told = (await agent.conversation(run)).observations[0]["text"]
        assert run.pending == ()
        result = {"looked up": "done", "unknown": "unknown", "made again": "repeated"}[then]
        assert run.receipt is not None
        assert (run.receipt["effects"][0]["result"], run.receipt["changed"]) == (result, True)
        assert len(server.changes) == (2 if then == "made again" else 1)
        if then == "unknown":
            assert "unknown whether this took effect" in told
            assert "does no harm" in told


@pytest.mark.parametrize("approvals", ["each", "plan"])
@pytest.mark.parametrize("found", ["gone", "as it was", "another"])
async def test_a_deletion_that_a_crash_cut_off_is_looked_up(found: str, approvals: str) -> None:
    """X24, R03: what is gone was deleted, and nothing is sent; what is there as it was is deleted now. Another object
    that took the id meanwhile stays: after a question, or as a difference that nobody saw. Of two deletions, each."""
    crash = Crash(None, only=["store"])

    def cut(sent: Any) -> Any:
        if sent.line == "DELETE /things/2" and not crash.at:
            crash.at = len(crash.trace) + 1
            return (204, None) if found == "as it was" else None
        return None

    with ApiServer(objects={f"/things/{id}": {"a": id} for id in (1, 2)}, answer=cut) as server:
        work = [call("remove", id="1"), call("remove", id="2")]
        ends = [lambda messages, _: finish_step("Removed.", last_seen(messages)), give_up("nobody knows")]
        model = one_step([*work, *ends], content="Remove 1 and 2", tools=["remove"])
        settings: Any = {"approvals": approvals, "confirm": "never", "on_exhausted": "stop"}
        tools = openapi_tools(things(), base_url=server.url)
        agent = Agent(model, tools, storage=crashing("memory:", crash), settings=settings)

        async def approve_all() -> None:
            run = await agent.start("Remove 1 and 2", thread_id="t")
            while run.pending:
                run = await agent.resume(run, "approve")

        with pytest.raises(StorageError):
            await approve_all()
        if found == "another":
            server.objects["/things/2"] = {"a": "another"}
        run = await agent.resume("t")
        results = [each["result"] for each in (run.receipt or {"effects": []})["effects"]]
        sent_again = found == "as it was"
        assert server.changes == ["DELETE /things/1", *["DELETE /things/2"] * (1 + sent_again)]
        if found != "another":
            told = (await agent.conversation(run)).observations[1]["text"]
            assert (run.status, results) == ("completed", ["done", "done"])
            assert json.loads(told)["read_back"] == {"as_asked": True, "found": False}
        elif approvals == "plan":
            assert "it may have taken effect. Did it happen?" in run.pending[0]["text"]
            run = await agent.resume(run, "it happened")
            assert (run.status, [*server.objects]) == ("completed", ["/things/2"])
        else:
            assert (results, [*server.objects]) == (["done", "unknown"], ["/things/2"])


@pytest.mark.parametrize("approvals", ["each", "plan"])
async def test_a_list_that_a_crash_left_unset_is_not_set_over_another_one(approvals: str) -> None:
    """V12, X24, R03: people see what the list replaces. If somebody else set another one since, nothing is sent again
    without a question, or not at all where the difference is another one than was shown."""
    crash = Crash(None, only=["store"])

    def cut(sent: Any) -> Any:
        if sent.line == "PUT /things/1" and not crash.at:
            crash.at = len(crash.trace) + 1
            return 200, {}  # which it does not do
        return None

    document = things()
    body = {"content": {"application/json": {"schema": {"type": "array"}}}, "required": True}
    document["paths"]["/things/{id}"]["put"] = {"operationId": "set", "requestBody": body}
    with ApiServer(objects={"/things/1": ["a"]}, answer=cut) as server:
        model = one_step([call("set", id="1", body=["b"]), give_up("nobody knows")], content="Set 1", tools=["set"])
        settings: Any = {"approvals": approvals, "confirm": "never", "on_exhausted": "stop"}
        tools = openapi_tools(document, base_url=server.url)
        agent = Agent(model, tools, storage=crashing("memory:", crash), settings=settings)

        async def approve_all() -> None:
            run = await agent.start("Set 1", thread_id="t")
            while run.pending:
                if approvals == "each" and run.pending[0]["kind"] == "tool":
                    assert '- "a"\n+ "b"\n' in run.pending[0]["text"]
                run = await agent.resume(run, "approve")

        with pytest.raises(StorageError):
            await approve_all()
        server.objects["/things/1"] = ["somebody's"]
        run = await agent.resume("t")
        assert server.changes == ["PUT /things/1"]
        assert server.objects["/things/1"] == ["somebody's"]
        if approvals == "plan":
            assert "Did it happen?" in run.pending[0]["text"]


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
        shown = f"`PATCH {server.url}{ISSUE}` (body: title). It is a tool of the server {server.url}."
        assert shown in run.pending[0]["question"]


@pytest.mark.parametrize("method", ["update", "delete"])
async def test_people_read_that_what_a_change_replaces_could_not_be_read(method: str) -> None:
    """V12: no difference and no word would look like nothing that is lost. What can be read once they agreed, they
    see first; what is still away does not stop what they agreed to."""
    away = True

    class Flaky(httpx.AsyncHTTPTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if away and request.method == "GET":
                return httpx.Response(503, json={"title": "away"}, request=request)
            return await super().handle_async_request(request)

    name = f"issues_{method}"
    more = {"title": "Crash at start"} if method == "update" else {}
    change = call(name, owner="ann", repo="app", number=7, **more)
    for later in (True, False):
        away = True
        with ApiServer(objects={ISSUE: {"title": "Crash", "state": "open"}}) as server:
            tools = openapi_tools(ISSUES, base_url=server.url, client=httpx.AsyncClient(transport=Flaky()))
            execute = [change, give_up("away")] if later else [change, change, give_up("no")]
            model = ScriptedModel(
                roles={"triage": [submit_plan([{"content": "Change 7", "tools": [name]}])], "execute": execute}
            )
            model.script.strict = False
            settings = {"approvals": "each", "confirm": "never", "on_failure": "deliver"}
            async with Agent(model, tools, storage="memory:", settings=settings) as agent:
                run = await agent.start("Change 7")
                line = "What is there now could not be read, so no difference is shown: “GET "
                assert line in run.pending[0]["text"]
                assert "503" in run.pending[0]["text"]
                away = later
                run = await agent.resume(run, "approve")
                if later:
                    assert run.status != "waiting"
                    assert len(server.changes) == 1
                else:
                    assert line not in run.pending[0]["text"]
                    assert "Crash" in str(run.pending[0]["diffs"])


async def test_people_see_what_numbers_and_objects_replace() -> None:
    """V12: the difference is shown for a number and for a nested object too, not only for texts. What is short stands
    in its place among the arguments, too."""
    home = {"street": "A 1", "zip": "1"}
    fields: dict[str, Any] = {
        "amount": {"type": "number"},
        "home": {"type": "object"},
        "tags": {"type": "array", "items": {}},
    }
    fields |= {"status": {"type": "string"}, "note": {"type": "string"}}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": fields}}}}
    id = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    path = {
        "parameters": [id],
        "get": {"operationId": "get_it", "responses": {}},
        "put": {"operationId": "put_it", "requestBody": body, "responses": {}},
    }
    document = {"openapi": "3.1.0", "paths": {"/things/{id}": path}}
    with ApiServer(
        objects={"/things/1": {"amount": 4.0, "home": home, "tags": [1], "status": "open", "note": "a"}}
    ) as server:
        more = {"tags": [1], "status": "waiting", "note": "b" * 300}
        change = call("put_it", id="1", amount=40, home={**home, "street": "B 2"}, **more)
        step = {"content": "Change thing 1", "tools": ["put_it"]}
        model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": [change]})
        tools = openapi_tools(document, base_url=server.url)
        agent = Agent(model, tools, storage="memory:", settings={"approvals": "each", "confirm": "never"})
        run = await agent.start("Change thing 1")
        text = run.pending[0]["text"]
        assert "-4.0\n+40\n" in text
        assert '- "street": "A 1",\n+ "street": "B 2",\n' in text
        assert "tags:" not in text
        assert '"status": "waiting"' in text
        assert "-open\n+waiting\n" in text
        assert '"note": "(300 characters, below)"' in text


@pytest.mark.parametrize("names", [("id", "name"), ("name",)], ids=["whole", "fields"])
@pytest.mark.parametrize("changed", ["views", "name"])
async def test_a_change_is_made_although_the_object_changes_elsewhere(names: Any, changed: str) -> None:
    """V12: of an object, people see what the call sends, and only that counts as another difference than was shown."""
    document, views = things(), count(1)
    body = {"required": True, "content": {"application/json": {"schema": fields(*names)}}}
    document["paths"]["/things/{id}"]["put"] = {"operationId": "set", "requestBody": body}
    object: dict[str, Any] = {"id": "1", "name": "old", "made": "in May"}

    def answer(sent: Any) -> Any:
        return (200, {**object, "views": next(views)}) if sent.line.startswith("GET") else None

    with ApiServer(answer=answer) as server:
        sent = {"id": "1", "name": "new"}
        work = [call("set", **({"id": "1", "body": sent} if "id" in names else sent)), give_up("no")]
        settings: Any = {"approvals": "each", "confirm": "never", "on_exhausted": "stop"}
        tools = openapi_tools(document, base_url=server.url)
        agent = Agent(one_step(work, content="Set 1", tools=["set"]), tools, storage="memory:", settings=settings)
        run = await agent.start("Set 1")
        text = run.pending[0]["text"]
        assert "made" not in text
        assert "views" not in text
        assert re.search(r"^-.*old", text, re.MULTILINE)
        if changed == "name":
            object["name"] = "somebody's"
        await agent.resume(run, "approve")
        assert server.changes == ["PUT /things/1"] * (changed == "views")


async def test_people_see_what_a_deletion_takes_away() -> None:
    """V12, X29: whoever is asked about a deletion sees its request and the object that goes, also of the second.
    If the object changes before the answer, the call is asked about anew. Without a reader, its request is shown."""
    other = ISSUE.replace("7", "8")
    objects = {ISSUE: {"title": "Crash", "state": "open"}, other: {"title": "Slow", "state": "open"}}
    with ApiServer(objects=objects) as server:
        work = [call("issues_delete", owner="ann", repo="app", number=number) for number in (7, 8, 8)]
        step = {"content": "Delete 7 and 8 of ann/app", "tools": ["issues_delete"]}
        model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": work})
        settings = {"approvals": "each", "confirm": "never"}
        agent = Agent(model, openapi_tools(ISSUES, base_url=server.url), storage="memory:", settings=settings)
        run = await agent.start("Delete issues 7 and 8 of ann/app")
        text = run.pending[0]["text"]
        assert f"`DELETE {server.url}{ISSUE}`" in text
        assert '- "title": "Crash"\n' in text
        run = await agent.resume(run, "approve")
        assert '- "title": "Slow"\n' in run.pending[0]["text"]
        objects[other]["title"] = "Not slow"
        run = await agent.resume(run, "approve")
        assert '- "title": "Not slow"\n' in run.pending[0]["text"]
        assert [*server.objects] == [other]


@pytest.mark.parametrize("name", ["set", "edit", "remove"])
async def test_what_goes_away_is_cut_for_people_and_known_as_a_whole(name: str) -> None:
    """V12: of a large list or text, people see the beginning, and its length; a change behind that asks anew, too. One
    entry of many is still shown as a difference."""
    document, many = things(), [f"entry {number}" for number in range(9_000)]
    path = document["paths"]["/things/{id}"]
    for method, tool, schema in (("put", "set", {"type": "array"}), ("patch", "edit", fields("rows"))):
        body = {"required": True, "content": {"application/json": {"schema": schema}}}
        path[method] = {"operationId": tool, "requestBody": body}
    rows: dict[str, Any] = {"/things/1": [*many] if name == "set" else {"rows": [*many]}}
    argument = {"set": "body", "edit": "rows"}.get(name)

    async def ask(*new: str) -> tuple[Any, Agent]:
        arguments = {"id": "1", **({argument: [*new]} if argument else {})}
        model = one_step([call(name, **arguments), give_up("no")], content="Change 1", tools=[name])
        settings: Any = {"approvals": "each", "confirm": "never", "on_exhausted": "stop"}
        agent = Agent(model, openapi_tools(document, base_url=server.url), storage="memory:", settings=settings)
        return await agent.start("Change 1"), agent

    with ApiServer(objects=rows) as server:
        if argument:
            run, _ = await ask("first", *many[1:])
            assert run.pending[0]["diffs"][argument].splitlines()[2:4] == ['- "entry 0",', '+ "first",']
        run, agent = await ask("first")
        assert '"entry 9",' in run.pending[0]["text"]
        assert "characters in all" in run.pending[0]["text"]
        assert len(run.pending[0]["text"]) < 5_000
        (rows["/things/1"] if name == "set" else rows["/things/1"]["rows"])[-1] = "somebody's"
        await agent.resume(run, "approve")
        assert server.changes == []


async def test_a_question_fills_in_the_request_and_ends_the_words_of_a_hook() -> None:
    """V12: each call asked about shows its own request, on a line that does not run on what a hook asks."""
    with ApiServer(objects={ISSUE: {"title": "Crash"}}) as server:
        delete = call("issues_delete", owner="ann", repo="app", number=7)
        model = one_step([delete, give_up("no")], content="Delete 7 of ann/app", tools=["issues_delete"])
        hooks = Hooks(before_call=[lambda _: Ask("Is it gone")])
        agent = Agent(model, openapi_tools(ISSUES, base_url=server.url), storage="memory:", hooks=hooks)
        run = await agent.start("Delete issue 7 of ann/app", settings={"confirm": "never"})
        assert f"\nIs it gone\n`DELETE {server.url}{ISSUE}`. It is a tool" in run.pending[0]["text"]


async def test_a_hook_knows_the_server_of_an_operation() -> None:
    """X06: before and after, with method and path, whatever it is called."""
    seen = list[Any]()

    def note(made: Any) -> None:
        seen.append((made.server, made.request))

    hooks = Hooks(before_call=[note], after_call=[note])
    with ApiServer(objects={ISSUE: {"title": "Crash"}}) as server:
        for name in ("issues_get", "issues_fetch"):
            document = json.loads(ISSUES.read_text().replace('"issues/get"', f'"{name}"'))
            read = call(name, owner="ann", repo="app", number=7)
            model = one_step([read, give_up("no")], content="Read 7 of ann/app", tools=[name])
            agent = Agent(model, openapi_tools(document, base_url=server.url), storage="memory:", hooks=hooks)
            await agent.start("Read issue 7 of ann/app", settings={"confirm": "never"})
    assert seen == [(server.url, "GET /repos/{owner}/{repo}/issues/{number}")] * 4


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (
            {"id": "B 1", "notify": True, "tags": ["b`"], "amount": 5.0, "book": "main"},
            "`POST https://gw.test/live/orders/B%201/refunds?notify=true&tags=b%60` (header: book; body: amount).",
        ),
        ({"id": "a/b"}, "`POST https://gw.test/live/orders/a%2Fb/refunds`."),
        ({"id": ".."}, "`POST https://gw.test/live/orders/{id}/refunds`."),
        (None, "`POST https://gw.test/live/orders/{id}/refunds`."),
        ({"id": "1", "token": "sk-" + "a1B2" * 12}, "`POST https://gw.test/live/orders/1/refunds?token=%5Bredacted%5D`."),
        ({"id": "1" * 600}, f"`POST https://gw.test/live/orders/{'1' * 472}…`."),
    ],
    ids=["places", "quoted", "refused", "no arguments", "secret", "long"],
)  # fmt: skip
def test_a_question_has_the_request_itself(arguments: Any, shown: str) -> None:
    """V12: method and whole address, with what the call fills in, and what goes elsewhere; no secret is in it."""
    places = {"id": "path", "notify": "query", "tags": "query", "token": "query", "book": "header"}
    parameters = [{"name": name, "in": place, "schema": {}} for name, place in places.items()]
    refund = refunds("https://ann:pw@gw.test/live/", "/orders/{id}/refunds")
    refund["paths"]["/orders/{id}/refunds"]["post"]["parameters"] = parameters
    (tool,) = openapi_tools(refund, params={"key": "secret-1"})
    conditions = (tool.metadata or {})["conditions"]
    assert (conditions("en") if arguments is None else conditions("en", arguments)) == shown


async def test_what_an_api_does_later_names_its_status() -> None:
    """X21, Q21: an answer 202 says where to look and when, with a body or without; the address shows no query and no
    key, and what the body says of itself stays."""
    place = {"Location": "/jobs/7?sig=abc", "Retry-After": "5"}
    follow = {"location": "/jobs/7", "retry_after": "5"}
    bodies: Any = [
        (None, {"status": "202 Accepted"}),
        ({"id": "j", "location": "here"}, {"id": "j", "location": "here"}),
    ]
    bodies += [([1], {"items": [1]}), ("Accepted", {"text": "Accepted"})]
    with ApiServer() as server:
        tool = tools_of(ISSUES, server)["issues_create"]
        for body, wanted in bodies:
            server.answer = lambda _, body=body: (202, body, place)
            assert await tool.ainvoke({"owner": "ann", "repo": "app", "title": "Crash"}) == {**follow, **wanted}
        server.answer = lambda _: (201, None, place)
        assert await tool.ainvoke({"owner": "ann", "repo": "app", "title": "Crash"}) == "201 Created"


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


async def test_a_call_with_a_key_whose_answer_is_lost_may_be_made_again() -> None:
    """X24: the model reads that the same call is safe; of two lost answers each is made again, unasked, with the key
    that it had."""
    answers = iter([(0, None), (0, None), (201, {"id": "re_1"}), (201, {"id": "re_2"})])
    with ApiServer(answer=lambda _: next(answers)) as server:
        step = {"content": "Refund 500 and 600 of ch_1", "done_when": "Refunded", "tools": ["PostRefunds"]}
        made = [call("PostRefunds", charge="ch_1", amount=amount) for amount in (500, 600, 500, 600)]
        work = [*made, finish_step("Refunded.", ("s1.3", "re_1"))]
        model = ScriptedModel(roles={"triage": [submit_plan([step])], "execute": work})
        tools = openapi_tools(PAYMENTS, base_url=server.url)
        async with Agent(
            model, tools, storage="memory:", settings={"verification": "grounded", "confirm": "never"}
        ) as agent:
            run = await agent.start("Refund 500 and 600 of ch_1")
            texts = [each["text"] for each in (await agent.conversation(run)).observations]
        assert (run.status, run.pending) == ("completed", ())
        for text in texts[:2]:
            assert "unknown whether this took effect" in text
            assert "The same call once more is safe: it is made with the same key" in text
        keys = [each.headers["idempotency-key"] for each in server.sent]
        assert (keys[:2], len({*keys})) == (keys[2:], 2)


def refunds(
    server: str = "http://shop.test/v1", path: str = "/refunds", method: str = "post", place: str = "body", **more: Any
) -> dict[str, Any]:
    """A document of one operation, `refund`, with the argument `amount`."""
    amount = {"type": "number"}
    operation: dict[str, Any] = {"operationId": "refund", "x-effect": "write"}
    if place == "body":
        schema = {"type": "object", "properties": {"amount": amount}, **more}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    else:
        operation["parameters"] = [{"name": "amount", "in": place, "schema": amount}]
    return {"openapi": "3.1.0", "servers": [{"url": server}], "paths": {path: {method: operation}}}


OTHER = "refund of the server http://shop.test/v1 does something else now, or takes other arguments"


def moved(server: str) -> str:
    return f"refund is now a tool of the server {server}, before of http://shop.test/v1"


@pytest.mark.parametrize("waits", ["a call", "a plan"])
@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (refunds(path="/payouts"), OTHER),
        (refunds(method="put"), OTHER),
        (refunds(server="http://shop.test/v2"), moved("http://shop.test/v2")),
        (refunds(server="https://shop.test/v1"), moved("https://shop.test/v1")),
        (refunds(place="query"), OTHER),
        (refunds(required=["amount"]), OTHER),
        (refunds(server="http://other.test/v1"), moved("http://other.test/v1")),
        (refunds(server="http://ann:pw@shop.test/v1", description="Other words"), ""),
    ],
    ids=["path", "method", "version", "scheme", "place", "required", "server", "words"],
)  # fmt: skip
async def test_an_approval_is_for_the_request_that_was_shown(
    changed: Any, why: str, waits: str, tmp_path: Path
) -> None:
    """X15, X21: where the document says otherwise now, nothing is sent; the answer is good with the one of before."""
    sent, storage = list[str](), f"sqlite:///{tmp_path}/runs.db"

    def respond(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.method} {request.url.copy_with(username=None, password=None)}")
        return httpx.Response(201, json={"id": "R1"})

    async def answer(document: Any, run: Any = None) -> Any:
        """Begin a run, or approve everything of one."""
        plan = submit_plan([{"content": "Refund 33", "tools": ["refund"]}])
        work = [call("refund", amount=33), finish_step("Refunded.", ("s1.1", "R1"))]
        work = work[1:] if run and waits == "a call" else work
        model = ScriptedModel(roles={"triage": [plan], "execute": work}, strict=False)
        settings: Any = {"verification": "grounded", "approvals": "each" if waits == "a call" else "plan"}
        tools = openapi_tools(document, client=httpx.AsyncClient(transport=httpx.MockTransport(respond)))
        async with Agent(model, tools, storage=storage, settings=settings) as agent:
            if run is None:
                return await agent.start("Refund 33", settings={"confirm": "never" if waits == "a call" else "always"})
            return await agent.resume(run, "approve")

    run = await answer(refunds())
    assert ("`POST http://shop.test/v1/refunds`" if waits == "a call" else "refund (http://shop.test/v1") in str(run)
    assert "ann:pw" not in str(run)
    if why:
        with pytest.raises(ToolMissing, match=why) as refused:
            await answer(changed, run)
        assert str(refused.value).startswith(why)
        assert "needs refund as before: take the former tool (of an HTTP API: the former document)" in str(
            refused.value
        )
        assert sent == []
        changed = refunds()
    assert (await answer(changed, run)).status == "completed"
    assert sent == ["POST http://shop.test/v1/refunds"]


@pytest.mark.parametrize(
    ("document", "options", "told"),
    [
        ({"swagger": "2.0", "paths": {}}, {}, "version 2.0"),
        ({"openapi": "3.0.0"}, {}, "no `paths`"),
        (
            {"openapi": "3.0.0", "paths": {"/a": {"get": {}}}, "servers": [{"url": "/v1"}]},
            {"base_url": None}, "names no server",
        ),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {}}}, "servers": "https://x.io"}, {}, "no valid OpenAPI at GET"),
        ({"openapi": "3.0.0", "paths": {"/a": {"$ref": "#/tags/b/c"}}, "tags": [1]}, {}, "#/tags/b"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"in": "query"}]}}}}, {}, "at GET /a"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"name": "b", "in": "body"}]}}}}, {}, "b is in"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"$ref": "#/nowhere"}]}}}}, {}, "#/nowhere"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": [{"$ref": "a.yaml#/b"}]}}}}, {}, "bundle it"),
        ({"openapi": "3.0.0", "paths": {"/a": {"get": {"x-effect": "harmless"}}}}, {}, "read, idempotent or write"),
        ("nowhere.yaml", {}, "cannot be read"),
        ("- a\n- b\n", {}, "is list"),
        ("a: [\n", {}, "neither JSON nor YAML"),
        (ISSUES, {"only": ["issues/none"]}, "issues/get"),
    ],
)  # fmt: skip
def test_a_document_that_cannot_be_used_is_refused_with_what_to_do(document: Any, options: Any, told: str) -> None:
    """X21: the error names what is wrong with the document and what helps."""
    with pytest.raises(ToolError, match=told.replace(".", r"\.")):
        openapi_tools(document, **{"base_url": "http://127.0.0.1", **options})


def test_names_of_a_document_that_models_would_see_as_one_are_told_apart() -> None:
    """X21: two operations and two schemas whose names differ in what models do not accept keep apart; an example is
    no schema, whatever it refers to.
    """
    schemas = {name: {"properties": {"a": {"$ref": f"#/components/{name}/n/thing"}}} for name in ("x", "y")}
    example: Any = {"schema": {"type": "object", "properties": [], "example": {"$ref": "nowhere.yaml"}}}
    paths = {
        "/a": {
            "get": {"operationId": "a.b", "responses": {"200": {"content": {"application/json": example}}}},
            "post": {"operationId": "a/b", "requestBody": {"content": {"application/json": None}}},
            "put": {
                "operationId": "both",
                "parameters": [{"name": name, "in": "query", "schema": schemas[name]} for name in schemas],
            },
        }
    }
    components = {"x": {"n": {"thing": {"type": "string"}}}, "y": {"n": {"thing": {"type": "integer"}}}}
    document = {"openapi": "3.1.0", "paths": paths, "components": components}
    tools = {tool.name: tool for tool in openapi_tools(document, base_url="http://127.0.0.1")}
    assert {"a_b", "a_b_2", "both"} <= {*tools}
    schema: Any = tools["both"].args_schema
    kinds = [schema["$defs"][schema["properties"][name]["properties"]["a"]["$ref"].rpartition("/")[2]] for name in "xy"]
    assert kinds == [{"type": "string"}, {"type": "integer"}]


async def test_forms_of_several_parts_are_sent_and_files_are_left_out() -> None:
    """X21: fields of a multipart form are its parts; an operation that takes files, one or several, is no tool."""
    file = {"type": "string", "format": "binary"}
    kinds = {"note": {"type": "string"}, "picture": file, "pictures": {"type": "array", "items": file}}
    paths = {
        f"/{name}": {
            "post": {
                "operationId": name,
                "requestBody": {
                    "content": {"multipart/form-data": {"schema": {"type": "object", "properties": {name: kind}}}}
                },
            }
        }
        for name, kind in kinds.items()
    }
    with ApiServer() as server:
        tools = tools_of({"openapi": "3.1.0", "paths": paths}, server)
        assert [*tools] == ["note"]
        await tools["note"].ainvoke({"note": "Größe"})
        assert server.sent[0].headers["content-type"].startswith("multipart/form-data; boundary=")
        assert 'name="note"\r\n\r\nGröße\r\n' in server.sent[0].body


def test_an_operation_whose_body_no_tool_can_give_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """X21: a PUT of a file would replace it by nothing. A file is also what only `contentMediaType` names, and a list
    of such; a part that is text or JSON is none.
    """
    types = ["application/octet-stream", "application/xml", "image/png"]
    bodies: dict[str, Any] = {each.replace("/", "_"): {"content": {each: {}}} for each in types}
    file = {"type": "string", "contentMediaType": "application/octet-stream"}
    kinds: dict[str, Any] = {
        "part": file,
        "parts": {"type": "array", "items": file},
        "text": {"type": "string", "contentMediaType": "text/markdown"},
        "base64": {**file, "contentEncoding": "base64"},
    }
    for name, kind in kinds.items():
        bodies[name] = {"content": {"multipart/form-data": {"schema": {"type": "object", "properties": {"a": kind}}}}}
    bodies["none"] = {}
    paths = {f"/{name}": {"put": {"operationId": name, "requestBody": body}} for name, body in bodies.items()}
    tools = openapi_tools({"openapi": "3.1.0", "paths": paths}, base_url="http://127.0.0.1")
    assert [tool.name for tool in tools] == ["text", "base64", "none"]
    assert "no tool for PUT /application_octet-stream: its body is application/octet-stream" in caplog.text
    assert "no tool for PUT /parts: its body has files" in caplog.text


@pytest.mark.parametrize(
    ("needed", "arguments", "told"),
    [
        (None, {}, "'amount' is a required property"),
        (None, {"ticket": "T-1"}, "'amount' is a required property"),
        (True, {"ticket": "T-1"}, "'amount' is a required property"),
        (False, {"ticket": "T-1"}, "Not called: amount is missing, which the body needs beside ticket"),
        (False, {}, ""),
    ],
)
async def test_fields_that_a_body_needs_are_sent(needed: bool | None, arguments: Any, told: str) -> None:
    """X21: a body with required fields is needed, unless the document says that it is not; even then it is whole."""
    schema = {**fields("ticket", "amount"), "required": ["ticket", "amount"]}
    body = {"content": {"application/json": {"schema": schema}}, **({} if needed is None else {"required": needed})}
    paths = {"/refunds": {"post": {"operationId": "refund", "requestBody": body}}}
    with ApiServer() as server:
        tool = tools_of({"openapi": "3.1.0", "paths": paths}, server)["refund"]
        assert (tool.args_schema.get("required") == ["ticket", "amount"]) == (needed is not False)  # type: ignore[union-attr]
        assert ("needs ticket, amount" in tool.description) == (needed is False)
        if needed is False:
            assert str(await tool.ainvoke(arguments)).startswith(told)
            assert len(server.sent) == (not told)
        await tool.ainvoke({"ticket": "T-1", "amount": 3})
        assert json.loads(server.sent[-1].body) == {"ticket": "T-1", "amount": 3}


@pytest.mark.parametrize(
    ("value", "headers", "found"),
    [
        (
            [{"id": 1}],
            {"Link": '</list?page=2&key=secret-1>; rel="next"', "X-Total-Count": "57"},
            {"items": [{"id": 1}], "next": {"page": "2"}, "total": 57},
        ),
        (
            {"data": [1]},
            {"Link": '</list?cursor=abc&key=secret-1>; rel="next"'},
            {"data": [1], "next": "/list?cursor=abc"},
        ),
        ({"next": "mine"}, {"Link": '</list?page=2>; rel="next"'}, {"next": "mine"}),
        ([], {"X-Total-Count": "many", "Link": '</list?page=1>; rel="prev"'}, []),
        ([1], {"X-Total-Count": "1"}, {"items": [1], "total": 1}),
    ],
)  # fmt: skip
async def test_a_page_says_that_there_are_more(value: Any, headers: dict[str, str], found: Any) -> None:
    """X21: what the headers `Link` and `X-Total-Count` say about further pages is in the result, without keys."""
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    paths = {"/list": {"get": {"operationId": "list", "parameters": [page]}}}
    with ApiServer(answer=lambda _: (200, value, headers)) as server:
        tool = tools_of({"openapi": "3.1.0", "paths": paths}, server, params={"key": "secret-1"})["list"]
        result = await tool.ainvoke({})
        assert (json.loads(result) if isinstance(result, str) else result) == found


@pytest.mark.parametrize(("said", "cursor"), [("next_cursor", "b-17"), ("nextPageToken", "CAoQAA+x/9==")])
async def test_a_cursor_in_the_body_is_read_and_given_back(said: str, cursor: str) -> None:
    """X21: a model reads it in the result, whatever it is called, and sends it as the argument."""
    pages = {None: {"items": [1], said: cursor}, cursor: {"items": [2]}}
    parameter = {"name": "cursor", "in": "query", "schema": {"type": "string"}}
    paths = {"/list": {"get": {"operationId": "list", "parameters": [parameter]}}}

    def next_page(*messages: Any) -> Any:
        return call("list", cursor=re.findall(rf'"{said}": ?"([^"]*)"', str(messages))[-1])

    def answer_page(sent: Any) -> Any:
        return 200, pages[httpx.URL(sent.line.partition(" ")[2]).params.get("cursor")]

    with ApiServer(answer=answer_page) as server:
        tools = tools_of({"openapi": "3.1.0", "paths": paths}, server)
        model = one_step([call("list"), next_page, finish_step("Both are read.", "s1.2")], tools=["list"])
        async with Agent(model, [*tools.values()], storage="memory:", settings={"confirm": "never"}) as agent:
            run = await agent.start("Read all")
    assert run.status == "completed", run.answer
    assert [httpx.URL(line.partition(" ")[2]).params.get("cursor") for line in server.lines] == [None, cursor]


LIST = {"type": "array", "items": {"type": "string"}}
RANGE = {"type": "object", "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ({"schema": LIST}, ["open", "pending"]),
        ({"schema": {"$ref": "#/components/schemas/Two"}}, ["open"]),
        ({"schema": {"anyOf": [LIST, {"type": "null"}]}, "explode": False}, ["open", "pending"]),
        ({"schema": LIST, "explode": False, "style": "pipeDelimited"}, ["open,", "pending"]),
        ({"schema": LIST, "style": "spaceDelimited"}, ["open", "pending"]),
        ({"content": {"application/json": {"schema": LIST}}}, ["open", "a b"]),
        ({"schema": RANGE, "style": "deepObject"}, {"min": "1", "max": "2"}),
        ({"schema": {"type": "object", "additionalProperties": True}, "style": "deepObject"}, {"state": "open"}),
        ({"schema": {"allOf": [RANGE]}, "style": "deepObject"}, {"min": "1"}),
        ({"schema": RANGE}, {"min": "1", "max": "2"}),
        ({"schema": RANGE, "explode": False}, {"min": "1", "max": "2"}),
        ({"schema": {"type": "string"}}, "open,pending"),
    ],
)
async def test_the_arguments_of_the_next_page_have_the_form_of_arguments(declared: Any, value: Any) -> None:
    """X21: lists and objects of a query come back in `next` as a call takes them, whole, by style and explode."""
    page = {"name": "page", "in": "query", "schema": {"type": "integer"}}
    filter = {"name": "filter", "in": "query", **declared}
    document = {
        "openapi": "3.1.0",
        "paths": {"/list": {"get": {"operationId": "list", "parameters": [filter, page]}}},
        "components": {"schemas": {"Two": LIST}},
    }
    with ApiServer() as server:
        tool = tools_of(document, server)["list"]
        server.answer = lambda sent: (200, [], {"Link": f'<{sent.line.split()[1]}&page=2>; rel="next"'})
        found = await tool.ainvoke({"filter": value})
        assert found["next"] == {"filter": value, "page": "2"}
        await tool.ainvoke({"filter": found["next"]["filter"]})
        assert server.lines[0] == server.lines[1]


@pytest.mark.parametrize("header", ["Idempotency-Key", "X-Idempotency-Key", "Pay-Request-Id"])
@pytest.mark.parametrize(
    ("schema", "length"), [({}, 64), ({"format": "uuid"}, 36), ({"maxLength": 36}, 36), ({"maxLength": 20}, 20)]
)
async def test_the_key_of_a_call_has_the_form_that_is_declared(header: str, schema: Any, length: int) -> None:
    """X24: a UUID where the schema says so, or where the key is too long; one for one key, another for another. Any
    other header counts, too, where the document marks it."""
    parameter = {"name": header, "in": "header", "required": True, "schema": {"$ref": "#/components/schemas/Key"}}
    if header == "Pay-Request-Id":
        parameter["x-idempotency-key"] = True
    paths = {"/pay": {"post": {"operationId": "pay", "parameters": [parameter]}}}
    components = {"schemas": {"Key": {"type": "string", **schema}}}
    with ApiServer() as server:
        tool = tools_of({"openapi": "3.1.0", "paths": paths, "components": components}, server)["pay"]
        assert [*tool.args] == ["idempotency_key"]
        for key in ("a" * 64, "a" * 64, "b" * 64):
            await tool.ainvoke({"idempotency_key": key})
        sent = [each.headers[header.lower()] for each in server.sent]
        assert ([len(each) for each in sent], len({*sent})) == ([length] * 3, 2)
        assert sent[0] == sent[1]
        if length == 36:
            assert str(UUID(sent[0])) == sent[0]


def test_names_do_not_go_by_the_order_of_the_document() -> None:
    """X21: of two operations that models would see as one, the same has the number, in whatever order they stand."""
    paths = {"/a": {"get": {"operationId": "do it"}}, "/b": {"delete": {"operationId": "do_it"}}}
    orders = [paths, dict(reversed(paths.items()))]
    found = [openapi_tools({"openapi": "3.1.0", "paths": each}, base_url="http://127.0.0.1") for each in orders]
    assert [{tool.name: tool.description for tool in tools} for tools in found] == [
        {"do_it": "(GET /a)", "do_it_2": "(DELETE /b)"}
    ] * 2


ANY: dict[str, Any] = {"type": "object", "additionalProperties": True}


@pytest.mark.parametrize(
    ("declared", "query"),
    [
        ({"schema": ANY}, "state=open"),
        ({"schema": {"type": "string"}}, "state=open"),
        ({"schema": {"type": "string"}}, "filter=1&filter=2"),
        ({"schema": LIST, "explode": False}, "filter=1&filter=2"),
        ({"schema": ANY, "explode": False}, "filter=a%2C1&filter=b%2C2"),
        ({"schema": ANY, "style": "deepObject"}, "filter%5Ba%5D=1&filter%5Ba%5D=2"),
        ({"schema": RANGE}, "min=1&min=2"),
        ({"content": {"application/json": {"schema": LIST}}}, "filter=%5B1%5D&filter=%5B2%5D"),
    ],
)
async def test_a_next_page_of_which_an_argument_is_not_known_is_an_address(declared: Any, query: str) -> None:
    """X21: arguments that left a filter out, or one of its values, would lead to the next page of another list."""
    fields = [{"name": "filter", "in": "query", **declared}, {"name": "page", "in": "query"}]
    document = {"openapi": "3.1.0", "paths": {"/list": {"get": {"operationId": "list", "parameters": fields}}}}
    with ApiServer(answer=lambda _: (200, [], {"Link": f'</list?{query}&page=2>; rel="next"'})) as server:
        found = await tools_of(document, server)["list"].ainvoke({})
    assert found["next"] == f"/list?{query}&page=2"


def test_operations_with_one_name_are_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """V12: whoever makes the tools is told which operation has which name, of two and of three, once each."""
    operation = {"operationId": "dog/s"}
    pet = {"parameters": [{"name": "id", "in": "path"}], "delete": operation}
    paths = {"/pets/{id}": pet, "/dogs": {"put": operation, "post": operation, "get": {}}}
    document: Any = {"openapi": "3.1.0", "paths": paths}
    tools = openapi_tools(document, base_url="http://127.0.0.1")
    assert {*(tool.name for tool in tools)} >= {"dog_s", "dog_s_2", "dog_s_3", "get_dogs"}
    assert [record.message for record in caplog.records] == [
        "two operations have the name dog_s: POST /dogs keeps it, PUT /dogs is dog_s_2",
        "two operations have the name dog_s: POST /dogs keeps it, DELETE /pets/{id} is dog_s_3",
    ]


async def test_options_of_the_wrong_type_are_refused() -> None:
    """X21: a key that is not set, and a name that is no list of names; a function's are refused at the call."""
    with pytest.raises(ToolError, match="the header Authorization is None"):
        openapi_tools(PAYMENTS, base_url="http://127.0.0.1", headers={"Authorization": None})  # type: ignore[dict-item]
    with pytest.raises(ToolError, match="only='GetCharge' is a text: pass a list"):
        openapi_tools(PAYMENTS, base_url="http://127.0.0.1", only="GetCharge")
    with ApiServer() as server:
        tool = tools_of(PAYMENTS, server, headers=lambda: {"Authorization": None})["GetCharge"]
        assert "Not called: the header Authorization is None" in await tool.ainvoke({"charge": "ch_1"})
        assert server.sent == []


async def test_an_operation_is_sent_to_its_own_server() -> None:
    """X21: servers of a path replace those of the document, and those of an operation both; `base_url` replaces all."""
    with ApiServer(answer=lambda _: (200, {})) as one, ApiServer(answer=lambda _: (200, {})) as two:
        own, other = [{"url": f"{two.url}/own/"}], [{"url": f"{two.url}/path"}]
        paths = {
            "/a": {"get": {"operationId": "a"}},
            "/b": {"servers": other, "get": {"operationId": "b"}, "put": {"operationId": "c", "servers": own}},
        }
        document = {"openapi": "3.1.0", "servers": [{"url": one.url}], "paths": paths}
        for tool in openapi_tools(document, read_back=False):
            await tool.ainvoke({})
        assert (one.lines, two.lines) == (["GET /a"], ["GET /path/b", "PUT /own/b"])
        for tool in tools_of(document, one, read_back=False).values():
            await tool.ainvoke({})
        assert one.lines[1:] == ["GET /a", "GET /b", "PUT /b"]


@pytest.mark.parametrize(("servers", "line"), [({}, "GET /a"), ({"servers": [{"url": "../v1"}]}, "GET /v1/a")])
async def test_a_fetched_document_may_name_its_servers_from_where_it_is(servers: Any, line: str) -> None:
    """X21: as OpenAPI has it, also without any; `base_url` still replaces them, and a text has no place of its own."""
    document = {"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a"}}}, **servers}
    with ApiServer(answer=lambda sent: (200, document if "openapi" in sent.line else {})) as server:
        (tool,) = openapi_tools(f"{server.url}/docs/openapi.json")
        await tool.ainvoke({})
        assert server.lines[1:] == [line]
    with pytest.raises(ToolError, match="names no server"):
        openapi_tools(json.dumps(document))


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
    from donewhen.graph.tools.certain import proves_no_effect

    operation: Any = type("Operation", (), {"method": "post", "path": "/a"})
    assert [proves_no_effect(ApiError(operation, status, "")) for status in (400, 404, 429, 408, 500, 503)] == [
        True, True, True, False, False, False,
    ]  # fmt: skip


async def test_a_key_that_a_model_would_have_to_know_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """X20: whoever makes the tools is told of each key among their arguments, once, and how to give it: by the
    document's security schemes, wherever the key stands, and by its name in a header. One that is given is no argument,
    be it by a function too; a cursor of the query is no key."""
    schemes = {
        "one": {"type": "apiKey", "in": "header", "name": "X-Shop"},
        "two": {"name": "sid"},
        "three": {"name": "k"},
    }
    places = [("header", "x-shop"), ("cookie", "sid"), ("query", "k"), ("query", "pageToken"), ("header", "X-Api-Key")]
    parameters = [{"in": place, "name": name, "schema": {"type": "string"}} for place, name in places]
    document = {
        "openapi": "3.1.0",
        "components": {"securitySchemes": schemes},
        "paths": {f"/{n}": {"get": {"operationId": f"get_{n}", "parameters": parameters}} for n in (1, 2)},
    }

    def warned(**options: Any) -> list[str]:
        caplog.clear()
        tools = openapi_tools(document, base_url="http://127.0.0.1:9", **options)
        assert [tool.name for tool in tools if "pageToken" in tool.args] == [f"get_{n}" for n in (1, 2)][: len(tools)]
        return [record.message.partition("get_1 asks the model for the ")[2] for record in caplog.records]

    say, known = ("{}, a key that it cannot know: pass {}".format), []
    known.append(say("header x-shop", "headers={'x-shop': …}"))
    known.append(say("cookie sid", "headers={'Cookie': 'sid=…'}"))
    known.append(say("query k", "params={'k': …}"))
    known.append(say("header X-Api-Key", "headers={'X-Api-Key': …}"))
    assert warned() == warned(only=["get_1"]) == known
    assert warned(headers={"X-SHOP": "a", "x-api-key": "b"}, params={"k": "c"}) == known[1:2]
    assert warned(headers={"Cookie": "sid=d"}) == [known[0], *known[2:]]
    assert warned(headers=lambda: {"X-Shop": "a"}) == known[2:]


def test_a_misspelt_method_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """V12: what the document says under a name that is no method is left out, and not in silence."""
    operation = {"operationId": "find", "responses": {}}
    document = {"openapi": "3.1.0", "paths": {"/things": {"gte": operation, "x-internal": {}, "post": operation}}}
    assert [tool.name for tool in openapi_tools(document, base_url="https://api.example.com")] == ["find"]
    assert [record.message for record in caplog.records] == ["no tool for gte /things: there is no method 'gte'"]


BEARER = {"type": "http", "scheme": "bearer"}
SHOP = {"type": "apiKey", "in": "header", "name": "X-Shop"}
IN_QUERY = {"type": "apiKey", "in": "query", "name": "token"}
SESSION = {"type": "apiKey", "in": "cookie", "name": "sid"}
WITH_BEARER = "bearer (headers={'Authorization': …})"
WITH_SHOP = "shop (headers={'X-Shop': …})"


@pytest.mark.parametrize(
    ("security", "options", "missing"),
    [
        ([{"bearer": []}], {}, WITH_BEARER),
        ([{"bearer": []}], {"headers": {"X-Shop": "a"}}, WITH_BEARER),
        ([{"bearer": []}], {"headers": {"authorization": "Bearer a"}}, ""),
        ([{"bearer": []}], {"headers": lambda: {"Authorization": "Bearer a"}}, ""),
        ([{"bearer": []}], {"client": httpx.AsyncClient()}, ""),
        ([{"bearer": []}], {"base_url": "http://ann:pw@127.0.0.1:9"}, ""),
        ([{"bearer": []}, {"shop": []}], {}, f"{WITH_BEARER} or {WITH_SHOP}"),
        ([{"bearer": []}, {"shop": []}], {"headers": {"x-shop": "a"}}, ""),
        ([{"bearer": [], "shop": []}], {"headers": {"Authorization": "Bearer a"}}, WITH_SHOP),
        ([{"bearer": []}, {}], {}, ""),
        ([{"token": []}], {}, "token (params={'token': …})"),
        ([{"token": []}], {"params": {"token": "a"}}, ""),
        ([{"session": []}], {"headers": {"Cookie": "sid=a"}}, ""),
        ([{"session": []}], {}, "session (headers={'Cookie': 'sid=…'})"),
        ([{"tls": []}], {}, "tls (client=…)"),
        ([], {}, ""),
        (None, {}, ""),
    ],
)
def test_a_key_that_nobody_gives_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture, security: Any, options: Any, missing: str
) -> None:
    """X20: once for all operations, of all of them or of one; not for one that says that it needs none."""
    schemes = {"bearer": BEARER, "shop": SHOP, "token": IN_QUERY, "session": SESSION, "tls": {"type": "mutualTLS"}}
    document = {
        "openapi": "3.1.0",
        "components": {"securitySchemes": schemes},
        "security": security,
        "paths": {
            "/open": {"get": {"operationId": "see", "security": []}},
            "/a": {"get": {"operationId": "get_a"}, "post": {"operationId": "add"}},
        },
    }
    said = f"get_a needs a key that is not given, by its security scheme: pass {missing}"
    for only in (None, ["get_a"], ["see"]):
        caplog.clear()
        openapi_tools(document, only=only, **{"base_url": "http://127.0.0.1:9", **options})
        assert [record.message for record in caplog.records] == ([said] if missing and only != ["see"] else [])


def test_an_operation_that_is_left_out_and_wanted_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """X20: it is in the document; and the log is silent about what nobody asked for."""
    schema = {"type": "object", "properties": {"file": {"type": "string", "format": "binary"}}}
    body = {"content": {"multipart/form-data": {"schema": schema}}}
    paths = {
        "/files": {"post": {"operationId": "upload", "requestBody": body}, "get": {"operationId": "files"}},
        "/a": {"get": {"operationId": "files"}, "options": {"operationId": "about"}},
    }
    document = {"openapi": "3.1.0", "paths": paths}
    with pytest.raises(ToolError, match="no tool can be made of the operation 'upload', POST /files: its body has fil"):
        openapi_tools(document, base_url="http://127.0.0.1:9", only=["upload"])
    with pytest.raises(ToolError, match="of the operation 'about', OPTIONS /a: it only describes the server"):
        openapi_tools(document, base_url="http://127.0.0.1:9", only=["about"])
    with pytest.raises(ToolError, match="the document has no operation 'uplode'; it has"):
        openapi_tools(document, base_url="http://127.0.0.1:9", only=["uplode"])
    assert not caplog.records
    openapi_tools(document, base_url="http://127.0.0.1:9", only=["files"])
    assert [record.message for record in caplog.records] == [
        "two operations have the name files: GET /a keeps it, GET /files is files_2"
    ]
