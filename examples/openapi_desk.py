"""A desk that works with two HTTP APIs: a shop's, and that of its customers (CRM), each from its OpenAPI document.

Runs without a key: the services are in this file (`Service`), behind the transport that httpx has for tests. For real
ones, take their documents and `Patient()` as the transport; for real work, the name of a model instead of `model()`.
"""

import asyncio
import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import httpx

from donewhen import Agent
from donewhen.openapi import openapi_tools
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

SHOP = """
openapi: 3.1.0
servers: [{url: https://shop.example/v1}]
components:
  securitySchemes: {token: {type: http, scheme: bearer}}
paths:
  /orders/search:
    post:
      operationId: search
      x-effect: read    # a POST, but it changes nothing: it may be called while planning, and asks nobody
      parameters: [{name: page, in: query, schema: {type: integer}}]
      requestBody:
        content: {application/json: {schema: {type: object, properties: {customer: {type: string}}}}}
  /orders/{order}:
    parameters: [{name: order, in: path, required: true, schema: {type: string}}]
    get: {operationId: get_order}
    patch:    # is compared with the GET beside it: people see the difference
      operationId: change_order
      parameters: [{name: If-Match, in: header, schema: {type: string}}]
      requestBody:
        content: {application/json: {schema: {type: object, properties: {status: {type: string}}}}}
  /orders/{order}/refunds:
    post:
      operationId: refund
      parameters:
        - {name: order, in: path, required: true, schema: {type: string}}
        - {name: Shop-Request-Id, in: header, x-idempotency-key: true, schema: {type: string, format: uuid}}
      requestBody:
        content: {application/json: {schema: {type: object, properties: {amount: {type: number}}}}}
"""
CRM: dict[str, Any] = {
    "openapi": "3.0.3",
    "servers": [{"url": "https://crm.example"}],
    "paths": {
        "/search": {
            "get": {
                "operationId": "search",  # as in the shop
                "parameters": [
                    {"name": "name", "in": "query", "schema": {"type": "string"}},
                    {"name": "tenant", "in": "query", "required": True, "schema": {"type": "string"}},
                ],
            }
        },
        # GraphQL has one address. By GET it must not change anything, so `ask` is a read, and `mutate` a write.
        "/graphql": {
            "get": {
                "operationId": "ask",
                "parameters": [{"name": "query", "in": "query", "required": True, "schema": {"type": "string"}}],
            },
            "post": {
                "operationId": "mutate",
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"query": {"type": "string"}}}}
                    }
                },
            },
        },
    },
}


class Service(httpx.AsyncBaseTransport):
    """Both services: what they hold, and what was asked of them."""

    def __init__(self) -> None:
        self.orders = {f"A-{n}": {"customer": "c7", "status": "sent", "total": 10.0 * n} for n in (1, 2, 3)}
        self.refunds: dict[str, Any] = {}
        """The refunds by the key of their request, so that none is made twice."""
        self.photos: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.is_busy = True

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        await request.aread()
        answer = self.respond(request, f"{request.method} {request.url.path}")
        self.requests.append(f"{request.method} {request.url.path} {answer.status_code}")
        return answer

    def respond(self, request: httpx.Request, place: str) -> httpx.Response:
        """Return what the service that a request is for says."""
        body = request.content
        if request.url.host == "crm.example":
            if request.url.params["tenant"] != "lamps":
                return httpx.Response(403)
            if request.url.path == "/graphql":
                return httpx.Response(200, json={"data": {"customer": {"id": "c7", "tier": "gold"}}})
            return httpx.Response(200, json=[{"id": "c7", "name": request.url.params["name"]}])
        if request.headers.get("authorization") != "Bearer token-1":
            return httpx.Response(401)
        if place == "POST /v1/orders/search":
            page = int(request.url.params.get("page", 1))
            found = [{"order": id, **order} for id, order in self.orders.items()][2 * page - 2 : 2 * page]
            link = '<https://shop.example/v1/orders/search?page=2>; rel="next"'
            return httpx.Response(200, json=found, headers={"Link": link} if page == 1 else {})
        id = request.url.path.split("/")[3]
        if place.endswith("/refunds"):
            if self.is_busy:
                self.is_busy = False
                return httpx.Response(429, headers={"Retry-After": "1"})
            made = {"id": f"R-{len(self.refunds) + 1}", **json.loads(body)}
            return httpx.Response(201, json=self.refunds.setdefault(request.headers["shop-request-id"], made))
        if place.endswith("/photos"):
            self.photos[id] = body
            return httpx.Response(201, json={"bytes": len(body)})
        if request.method == "PATCH":
            self.orders[id] |= json.loads(body)
        return httpx.Response(200, json=self.orders[id], headers={"ETag": f'"{self.orders[id]["status"]}"'})


class Patient(httpx.AsyncBaseTransport):
    """Waits as long as a 429 says, and sends the request again: it was refused, so this does nothing twice."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None, most: float = 30) -> None:
        self.transport, self.most = transport or httpx.AsyncHTTPTransport(), most

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, at most three times."""
        for _ in range(2):
            answer = await self.transport.handle_async_request(request)
            later = answer.headers.get("retry-after", "")
            if answer.status_code != 429 or not later.isdecimal() or int(later) > self.most:
                return answer
            await answer.aclose()
            await asyncio.sleep(int(later))
        return await self.transport.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.transport.aclose()


async def shop_key() -> dict[str, str]:
    """Return the headers with a token; a real one is kept until it expires, and then got anew."""
    return {"Authorization": "Bearer token-1"}


def tools_for(client: httpx.AsyncClient) -> list[Any]:
    """Make the tools of both APIs, and one of our own."""
    # A time of its own, so that a wait for a 429 counts neither for httpx (5 s) nor for `tool_seconds` (60 s).
    shop = openapi_tools(SHOP, headers=shop_key, client=client, seconds=100)
    crm = openapi_tools(CRM, params={"tenant": "lamps"}, client=client)  # no model chooses another tenant
    for tool in crm:
        tool.name = f"crm_{tool.name}"
    for tool in shop:
        if tool.name == "refund":  # each of them, also in an approved plan
            tool.metadata = {**(tool.metadata or {}), "asks": True}
        if tool.name == "change_order":  # never, once the plan is approved
            tool.metadata = {**(tool.metadata or {}), "asks": False}

    async def attach_photo(order: str, file: str) -> str:
        """Attach a photo to an order. Files are no arguments of a model: it names the file, and this reads it."""
        content = await asyncio.to_thread(Path(file).read_bytes)
        files = {"photo": (Path(file).name, content)}
        address = f"https://shop.example/v1/orders/{order}/photos"
        answer = await client.post(address, files=files, headers=await shop_key())
        answer.raise_for_status()  # a 4xx proves that nothing happened; after anything else, DoneWhen asks
        return f"{order} has {Path(file).name}"

    return [*shop, *crm, attach_photo]


def model(photo: str) -> ScriptedModel:
    """Look at both APIs, plan, and do it."""
    planning = [
        call("crm_search", name="Mira"),
        call("crm_ask", query='{ customer(id: "c7") { tier } }'),
        call("search", customer="c7"),
        call("search", customer="c7", page=2),  # `next` of the first page
        submit_plan(
            [
                {
                    "content": f"Return A-3: status, photo {photo}, 30.0 back",
                    "done_when": [
                        {
                            "text": "A-3 is returned",
                            "check": {
                                "tool": "get_order_shows",
                                "arguments": {"order": "A-3", "fields": {"status": "returned"}},
                            },
                        }
                    ],
                    "tools": ["change_order", "attach_photo", "refund"],
                }
            ]
        ),
    ]
    work = [
        call("change_order", order="A-3", status="returned"),
        call("attach_photo", order="A-3", file=photo),
        call("refund", order="A-3", amount=30.0),
        finish_step("A-3 is returned, and 30.00 EUR are paid back.", ("s1.1", '"as_asked": true')),
    ]
    return ScriptedModel(roles={"triage": planning, "execute": work})


async def main() -> None:
    """Take a lamp back: approve the plan, then the refund."""
    service, photo = Service(), Path(mkdtemp()) / "lamp.jpg"
    photo.write_bytes(b"\xff\xd8 a broken lamp")
    async with (
        httpx.AsyncClient(transport=Patient(service)) as client,
        Agent(model(str(photo)), tools_for(client), storage="memory:") as agent,
    ):
        run = await agent.start("Mira returns her third order, A-3: take it back")
        while run.status == "waiting":
            print(f"{run.pending[0]['kind']}: {run.pending[0]['question']}")
            run = await agent.resume(run, "approve")
        print(f"{run.status}: {run.answer}")
    print("the shop has", service.orders["A-3"], [*service.refunds.values()], [*service.photos])
    for line in service.requests:
        print(line)


if __name__ == "__main__":
    asyncio.run(main())
