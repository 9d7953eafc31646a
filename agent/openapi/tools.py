"""Make tools of an HTTP API's operations.

A change is read back where the API has a GET for the same path: people see what a value was, the result says what
became of it, and a check can prove it.
"""

import asyncio
import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from langchain_core.tools import BaseTool, ToolException

from donewhen.agent.openapi.document import (
    FORM,
    JSON_TYPE,
    KEY_ARGUMENT,
    MULTIPART,
    TEXT,
    Document,
    Key,
    LeftOut,
    Operation,
    Parameter,
    load_document,
    log,
)  # fmt: skip
from donewhen.agent.openapi.undo import GONE, NO_WAY_BACK, ApiUndo, find_way_back
from donewhen.agent.tools import described_tool
from donewhen.graph.tools.arguments import kinds_of
from donewhen.graph.tools.certain import proves_no_effect
from donewhen.graph.tools.rendering import describe_error
from donewhen.graph.tools.toolbox import legal_name
from donewhen.state.errors import ToolError
from donewhen.state.identity import schema_fields
from donewhen.state.people.payload import comparable_text, text_difference
from donewhen.state.proof.journal import digest
from donewhen.state.secrets import conceal_json, hide_in_error, hide_known, is_secret_name
from donewhen.state.values import Json, is_too_deep, same_json

if TYPE_CHECKING:
    import httpx

Headers = Mapping[str, str] | Callable[[], Mapping[str, str] | Awaitable[Mapping[str, str]]]
"""Headers, or a function that returns the current ones, for a token that is renewed. They are stored nowhere."""
MOST_BYTES = 5_000_000
"""The most of an answer that is read."""
SECONDS = 60.0
"""The time of a request without a `client`, unless `seconds` says otherwise."""
SPARE = 5.0
"""Seconds that a call may take besides its requests."""
PLAIN = re.compile(r"[A-Za-z ]{0,200}|[0-9.:TZ+-]{0,40}|(?:application|text)/[A-Za-z0-9.+-]{1,100}")
CHARS_OF_ESCAPED = 6
"""The most characters of one character of a key where it is escaped, as in JSON."""
SHORTEST_HIDDEN = 6
"""The fewest characters of a key that is hidden in answers; a shorter one would also be found by chance."""
SHORTEST_PART = 8
"""The fewest characters of a part of a key, such as a cookie's value, that is hidden too."""
SCHEME = re.compile(r"(?:bearer|basic)\s+", re.IGNORECASE)
LOST_ANSWER = "the call was cut off before an answer came"
MOST_TOLD = 2_000
"""The most characters that are shown of an error's body, and of a long text that goes."""
MOST_COMPARED = 20_000
"""The most characters of a difference; in place of a longer one, the beginning of what goes is shown."""
GONE_STATUSES = (404, 410)
CHANGING = ("put", "patch", "delete")
"""The methods that change the object at their path, so that its GET reads the change back."""
TOTALS = ("x-total-count", "x-total")
"""Headers by which APIs say how many there are on all pages."""
MOST_OF_LINK, MOST_DIGITS = 500, 16
OPTIONS_FOR = {
    "header": "headers={{'{name}': …}}",
    "query": "params={{'{name}': …}}",
    "cookie": "headers={{'Cookie': '{name}=…'}}",
}
"""By the place of a key in a request, the option that gives it."""
DELIMITERS = {"spaceDelimited": " ", "pipeDelimited": "|"}


class ApiError(ToolException):
    """The API answered with an error, or led elsewhere. `status_code` is the status.

    A status of 4xx, except 408 and 499, proves that nothing was done; any other leaves that open. The model reads the
    message: method, path, status, where it led (without its query), `Retry-After`, and 2,000 characters of a text.
    Nothing is called again by itself, not after a 429 either: the model may do so, or `client=` of `openapi_tools`.
    """

    def __init__(self, operation: Operation, status_code: int, text: str) -> None:
        super().__init__(f"{operation.method.upper()} {operation.path} answered {text}")
        self.status_code = status_code


def openapi_tools(
    document: Mapping[str, Any] | str | Path,
    *,
    base_url: str | None = None,
    headers: Headers | None = None,
    params: Mapping[str, str] | None = None,
    only: Collection[str] | None = None,
    client: "httpx.AsyncClient | None" = None,
    seconds: float | None = None,
    read_back: bool = True,
) -> list[BaseTool]:
    """Return the operations of an HTTP API as tools, as an OpenAPI document (3.0, 3.1) describes them.

    Args:
        document: A mapping, JSON or YAML as text, a path, or an address, which is fetched without keys: else pass
            `httpx.get(url, headers=…).text`. It is read now, and never again. References lead to places within it:
            bundle those to other files first. What it does not say, add to the mapping.
        base_url: The address to use in place of its `servers`. Without it an operation has the first server with a
            host, of its own, else of its path, else of the document, with the variables' defaults. A relative one, or
            none, is below the address from which the document was fetched.
        headers: What goes with every request, for keys and tokens: no model sees it. The value here is sent, whatever
            `client` or the document says; an `Authorization` in place of `client`'s `auth`, which is not asked then,
            and of a user in the address. What is named here is no argument any more, so a model cannot choose it. A
            function, also async, is called before each request, so its names are not known now: it counts as giving
            every key of the document's security schemes, and cookies that are keys. Another header of it is sent too,
            but stays an argument, whose value is overwritten. If it raises anything, nothing was sent, and the model
            reads the type of the error and its HTTP status, not its words. Keys are hidden in what the API answers if
            they have 6 characters, and from 8 on the value of each cookie of a `Cookie` and the password of `Basic`.
        params: The same for the query. A value in a path or body cannot be fixed so: write it into the document.
        only: The names of operations to take.
        client: It makes the requests, with its transport, hooks, proxies and `auth`. It is never closed here. Its
            `follow_redirects` does not count: a redirect is an ApiError, of a GET too, so that keys go nowhere else.
        seconds: The time of each request, from beginning to end. It also counts with `client`, whose hooks and
            transport wait within it; and a call may then take longer than `Settings.tool_seconds`: one that is read
            back makes three requests, GET, the change, and GET. (The API sees more GETs before, for the difference: one
            when the call begins, and two if people are asked, before and after.) Without it there are 60 seconds, or
            the limits of `client` (httpx's own are 5 seconds for each wait), and `Settings.tool_seconds` cuts the call.
        read_back: Whether changes are compared with what a GET of the same path says.

    **Names and arguments.** Without an `operationId` the name is made of method and path, `get_orders_order`. Of two
    operations with one name, the second, by path and method, gets a number, `get_order_2`; the log says which is which.
    Arguments are the parameters of path, query, headers and cookies, lists and objects as `style` and `explode` say
    (`deepObject`, `spaceDelimited` and `pipeDelimited` too), and the fields of a JSON or form body without those that
    are `readOnly`; `body` is the whole, if that is no object, or if a field has the name of a parameter. Path
    parameters are the targets. The logger `donewhen.openapi` warns of an operation that is left out, with the reason (a
    body that no model can write, a form with files; in `only`, that is an error), of a key that a model would have to
    know, and of one that a security scheme demands and nothing here can give.

    **Results.** JSON, or text; of anything else size and type. A read that leads to further pages (`Link`,
    `X-Total-Count`) has `next`, the arguments for another call, or an address where none of them is declared, and
    `total`. The result of a 202 with a `Location` has `location` and `retry_after`: nobody waits or asks again by
    itself. In both, a list becomes `items`, and a text of a 202 `text`. Where the document describes the result,
    fields with a `format`, an `id`, and those with the name of a path parameter name something for later calls. A
    redirect is an error, except a 303, which counts as done. A change that is read back has `status`, `result` and
    `read_back`. If an error came, or nothing, and the read shows the change all the same, it has in place of the
    first two `answered`, the status (null: no answer came), and `error`, what was said.

    **Effects.** GET and HEAD read, PUT and DELETE are idempotent, others write, unless the operation says it by
    `x-effect`: a `POST /search` with `x-effect: read` is a read, which asks nobody, may be called while planning, and
    has the `next` page. `Agent(effects={"search": "read"})` changes the effect too, but not the result. What is no read
    asks as any other tool does: by `Settings.approvals`, or `tool.metadata["asks"]`, a function of the arguments that
    returns True, or None where the arguments decide as usual (False: they do not even ask if they have no source).
    GraphQL can be described as a GET with the argument `query`, which must not change anything there, and a POST.

    **Keys of calls.** A header parameter `Idempotency-Key` or `X-Idempotency-Key`, or one with
    `x-idempotency-key: true`, has the key of the call, which is the same when the call is made again: after a crash, or
    by the model after a lost answer. One that the document does not declare is not sent: add it to the operation's
    `parameters`.

    **Changes.** With `read_back`, PUT, PATCH and DELETE beside a GET of the same path, which needs nothing else, say
    how they changed the object, show people what they replace, answer whether an interrupted call took effect, and have
    a check, `<get>_shows`, with `fields` (of a list, the whole), or with `gone: true` for an object that must not
    exist. Where a call asked and what it replaces changed since people saw the difference, it is not made, and asks
    anew if the model calls again: a field that the call sends, or, at a DELETE, any of the object. An approved plan
    whose calls do not ask holds for whatever is there. `If-Match` has the ETag of the read just before the change, is
    not sent where that has none, and is no argument; without such a GET it is one. A 412 is an ApiError that the model
    reads; if it calls again and that asks, people see the difference to what is there then.

    **Answers later.** The document is a part of the approval as far as the request goes: if an operation's server,
    method, path or arguments differ when a question is answered, `resume` raises `donewhen.errors.ToolMissing`, a
    ConfigError. Other operations and other words do not matter.

    Raises ToolError for a document that cannot be used, for one without an address, and for an unknown name in `only`.
    """
    if isinstance(only, str):
        raise ToolError(f"only={only!r} is a text: pass a list of names, only=[{only!r}]")
    for name, value in ({} if headers is None or callable(headers) else headers).items():
        if not isinstance(value, str):
            raise ToolError(f"the header {name} is {_kind(value)}, not a text: is its key set?")
    is_fetched = isinstance(document, str) and document.startswith(("http://", "https://"))
    read = Document(load_document(document), str(document) if is_fetched else "")
    api = _Api(base_url, headers, dict(params or {}), client, seconds, read.key_names())
    operations, left_out = list[Operation](), dict[str, str]()
    for each in read.operations(only):
        if isinstance(each, LeftOut):
            left_out[each.name] = each.why
            if only is None:
                log.warning("no tool for %s", each.why)
        else:
            operations.append(_without_fixed(each, headers, params, api.key_names))
    if unknown := {*(only or ())} - {each.name for each in operations}:
        if why := left_out.get(name := min(unknown)):
            raise ToolError(f"no tool can be made of the operation {name!r}, {why}")
        names = ", ".join(each.name for each in operations)
        raise ToolError(f"the document has no operation {name!r}; it has {names[:1000]}")
    wanted = [each for each in operations if only is None or each.name in only]
    _warn_of_keys(wanted, api.key_names)
    if client is None and not callable(headers):
        _warn_of_missing_keys(wanted, base_url, headers or {}, params or {})
    readers = {each.path: each for each in operations if read_back and each.method == "get" and each.needs_only("path")}
    reader_of = {
        each.name: readers[each.path] for each in operations if each.method in CHANGING and each.path in readers
    }
    operations = [each.with_version_filled_in() if each.name in reader_of else each for each in operations]
    by_method_and_path = {(each.method, each.path): each for each in operations}
    named = {each.name for operation in operations for each in operation.parameters if each.place == "path"}
    made, checked = list[BaseTool](), dict[str, Operation]()
    for operation in operations:
        if only is None or operation.name in only:
            if not (base_url or operation.server):
                raise ToolError(
                    f"the document names no server with a host for {operation.name}: pass base_url='https://…'"
                )
            reader = reader_of.get(operation.name)
            back = find_way_back(operation, by_method_and_path) if read_back else None
            back_reader = readers.get(back.path) if back else None
            undo = (
                ApiUndo(operation, back, partial(_object, api, back_reader), partial(_send_back, api, back_reader))
                if back and back_reader
                else None
            )
            made.append(_tool(api, operation, reader, named, undo))
            if read_back and undo is None:
                made[-1].metadata = {**(made[-1].metadata or {}), "undo": NO_WAY_BACK}
            if reader:
                checked[reader.name] = reader
    return [*made, *(_check(api, reader) for reader in checked.values())]


@dataclass(frozen=True)
class _Api:
    """Makes requests, with what goes with each of them."""

    address: str | None
    headers: Headers | None = field(repr=False)
    params: Mapping[str, str] = field(repr=False)
    client: "httpx.AsyncClient | None"
    seconds: float | None
    """The time of a request that the owner gave."""
    key_names: Collection[str] = ()
    """The names of keys in the document, in small letters."""

    async def send(
        self, operation: Operation, arguments: Mapping[str, Any], *, pages: bool = False
    ) -> tuple[int, Any, str]:
        """Return the status of the answer, what it holds, and the ETag. Raises ApiError for 3xx, 4xx and 5xx.

        `pages`: what the headers say about further pages is in it, too.
        """
        import httpx

        url, options = self._request(operation, arguments)
        owners = await self._owners()
        options["headers"] = _merged(options["headers"], owners)
        options["params"] += [*self.params.items()]
        if "authorization" in options["headers"]:  # the owner's: no document declares it
            options["auth"] = httpx.Auth()  # which sends the request as it is; with None, a user in the address counts
        secrets = _secrets([*owners.items(), *self.params.items()], self.key_names)
        seconds = self.seconds or (None if self.client else SECONDS)
        if seconds:
            # A failed connection must be reported before the deadline, because it proves that nothing was sent.
            options["timeout"] = httpx.Timeout(seconds, connect=seconds / 2)
        client = self.client or httpx.AsyncClient()
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream(operation.method.upper(), url, follow_redirects=False, **options) as answer,
            ):
                status, value = await self._read(operation, answer, secrets, pages)
                return status, hide_known(value, secrets), answer.headers.get("etag", "")
        except TimeoutError:
            limit = f" within {seconds:g} seconds" if seconds else ", in the client's own time"
            raise httpx.ReadTimeout(f"no whole answer{limit}") from None
        except httpx.TransportError as error:  # of the same type, which tells whether something was sent
            where = f"{operation.method.upper()} {operation.path} at {httpx.URL(url).netloc.decode()}"
            error.args = (f"{where}: {str(error) or type(error).__name__}",)
            hide_in_error(error, secrets)
            raise
        except Exception as error:
            hide_in_error(error, secrets)
            raise
        finally:
            if self.client is None:
                await client.aclose()

    async def _owners(self) -> Mapping[str, str]:
        """Return the owner's headers. Raises ToolException, without the words of an error, if their function fails."""
        if not callable(self.headers):
            return self.headers or {}
        try:
            owners = self.headers()
            owners = await owners if isawaitable(owners) else owners
        except Exception as error:  # not raised from it: it says nothing of this request, and may have a key in it
            status = getattr(getattr(error, "response", None), "status_code", None)
            failed = f"raised {type(error).__name__}{f' ({status})' if isinstance(status, int) else ''}"
        else:
            if isinstance(owners, Mapping):
                return owners
            failed = f"returned something that is {_kind(owners)}, not a mapping"
        raise ToolException(f"Not called, nothing was sent: the function for headers= {failed}.")

    async def _read(
        self, operation: Operation, answer: "httpx.Response", secrets: Sequence[str], pages: bool
    ) -> tuple[int, Any]:
        status, content, kind = answer.status_code, bytearray(), answer.headers.get("content-type", "")
        longest = max(map(len, secrets), default=0) * CHARS_OF_ESCAPED  # read too: a key that is cut is not found
        async for piece in answer.aiter_bytes():
            content += piece
            if len(content) > MOST_BYTES + longest:
                break
        is_cut = len(content) > MOST_BYTES
        text = _decoded(bytes(content[: MOST_BYTES + longest]), answer.charset_encoding or "utf-8")
        if is_cut:
            text = hide_known(text, secrets)
            unread = longest if len(content) > MOST_BYTES + longest else 0
            text = text[: min(MOST_BYTES, len(text) - unread)]
        status_line = f"{status} {answer.reason_phrase}".strip()
        said = {name: hide_known(answer.headers.get(name, ""), secrets) for name in ("location", "retry-after")}
        where, later = re.split("[?#]", said["location"])[0][:200], said["retry-after"][:40]
        if answer.is_error or (answer.has_redirect_location and status != 303):
            where = f", leading to {where}" if answer.has_redirect_location else ""
            later = f" (retry after {later})" if later else ""
            shown = hide_known(text, secrets)[:MOST_TOLD].strip() if _is_text(kind) else ""
            raise ApiError(operation, status, f"{status_line}{where}{later}{f': {shown}' if shown else ''}")
        follow = {"location": where, **({"retry_after": later} if later else {})} if where and status == 202 else {}
        if not content:
            return status, {"status": status_line, **follow} if follow else status_line
        if not _is_text(kind):
            return status, f"{status_line}: {len(content):,} bytes of {kind}"
        if is_cut:
            return status, f"{text}\n(cut after {MOST_BYTES:,} bytes)"
        if JSON_TYPE.match(kind):
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                return status, text
            if is_too_deep(value):
                return status, text
            follow |= self._more_pages(operation, answer, secrets) if pages else {}
            if isinstance(value, dict):
                return status, {**follow, **value}
            return status, {"items": value, **follow} if follow and isinstance(value, list) else value
        return status, {"text": text, **follow} if follow else text

    def _more_pages(self, operation: Operation, answer: "httpx.Response", secrets: Sequence[str]) -> Json:
        """Return what the headers of an answer say about further pages: what leads to the next, and how many there are.

        `next` has the arguments of the operation, or the address without its host if something in it is none of them.
        """
        more: Json = {}
        if url := str(answer.links.get("next", {}).get("url", "")):
            hidden = {*map(str.lower, self.params), *self.key_names}
            pairs = [(name, each) for name, each in parse_qsl(urlsplit(url).query) if name.lower() not in hidden]
            read = {
                each.argument: _query_value(each, pairs, operation.definitions)
                for each in operation.parameters
                if each.place == "query"
            }
            arguments = {name: value for name, value in read.items() if value is not None}
            given = [each for each in operation.parameters if each.argument in arguments]
            sent = Counter(name for each in given for name, _ in _query_parts(each, arguments[each.argument]))
            address = f"{urlsplit(url).path}?{urlencode(pairs)}".rstrip("?")
            is_whole = arguments and sent >= Counter(name for name, _ in pairs)
            more["next"] = arguments if is_whole else hide_known(address, secrets)[:MOST_OF_LINK]
        totals = (answer.headers.get(name, "").strip() for name in TOTALS)
        if total := next((each for each in totals if each.isdecimal() and len(each) < MOST_DIGITS), ""):
            more["total"] = int(total)
        return more

    def _request(self, operation: Operation, arguments: Mapping[str, Any]) -> tuple[str, Json]:
        path, query, headers = operation.path, list[tuple[str, str]](), dict[str, str]()
        cookies, body = dict[str, str](), dict[str, Any]()
        if operation.key_header and (key := arguments.get(KEY_ARGUMENT)) is not None:
            headers[operation.key_header.name] = operation.key_header.value(str(key))
        for each in operation.parameters:
            value = arguments.get(each.argument)
            if each.place == "path":
                path = path.replace("{" + each.name + "}", _path_part(each, value))
            elif each.place == "body":
                body |= {each.name: value} if each.argument in arguments else {}
            elif value is None:
                continue
            elif each.place == "query":
                query += _query_parts(each, value)
            elif each.place == "header":
                headers[each.name] = _plain(each, value)
            else:
                cookies[each.name] = quote(_plain(each, value))
        given = [each.argument for each in operation.parameters if each.place == "body" and each.argument in arguments]
        if given and (missing := [name for name in operation.together if name not in given]):
            names = f"{', '.join(missing)} is missing, which the body needs beside {', '.join(given)}"
            raise ToolException(f"Not called: {names}.")
        if cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        options: Json = {"params": query, "headers": headers}
        if body or operation.needs_body:
            content = next(iter(body.values())) if operation.whole_body else body
            options |= _body_options(operation.media, content, headers)
        return f"{self.address_of(operation)}{path}", options

    def address_of(self, operation: Operation) -> str:
        """Return the address to which the path of an operation is added."""
        return (self.address or operation.server or "").rstrip("/")

    def shown_address_of(self, operation: Operation) -> str:
        """Return the address of an operation's server without what may be secret in it."""
        parts = urlsplit(self.address_of(operation))
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def provided(self, operation: Operation) -> Json:
        """Return the metadata that say whose tool an operation is, and what a call is: approvals are for that."""
        return {"server": self.shown_address_of(operation), "sent_as": operation.sent_as()}

    def describe(self, operation: Operation, arguments: Json | None = None) -> str:
        """Return the request of a call for people: method, address, and which arguments are not in that.

        Without arguments, or if they make no request, the address has the names of the path.
        """
        address, places = f"{self.shown_address_of(operation)}{operation.path}", dict[str, list[str]]()
        with suppress(ToolException):
            if arguments is not None:
                shown = replace(self, address=self.shown_address_of(operation))
                path, options = shown._request(operation, conceal_json(arguments))
                address = f"{path}?{urlencode(options['params'])}".rstrip("?")
                for each in operation.parameters:
                    if each.place not in ("path", "query") and each.argument in arguments:
                        places.setdefault(each.place, []).append(each.argument)
        if len(address) > MOST_OF_LINK:
            address = f"{address[:MOST_OF_LINK]}…"
        elsewhere = "; ".join(f"{place}: {', '.join(names)}" for place, names in places.items())
        return f"`{operation.method.upper()} {address}`{f' ({elsewhere})' if elsewhere else ''}."


def _merged(declared: Mapping[str, str], owners: Mapping[str, str]) -> "httpx.Headers":
    """Return the headers of a request. Raises ToolException, without the value, for one that cannot be sent."""
    import httpx

    merged = httpx.Headers()
    for name, value in [*declared.items(), *owners.items()]:
        if not isinstance(value, str):
            raise ToolException(f"Not called: the header {name} is {_kind(value)}, not a text.")
        text = value.strip()  # a token that was read from a file ends in a newline
        if not (text.isascii() and text.isprintable()):
            raise ToolException(f"Not called: the header {name} has a character that no header can have.")
        merged[name] = text
    return merged


def _kind(value: Any) -> str:
    """Return what a value is, without the value, which may be a key."""
    return "None" if value is None else f"of type {type(value).__name__}"


def _secrets(owners: Iterable[tuple[str, Any]], key_names: Collection[str]) -> list[str]:
    """Return the values of the owner's headers and parameters that no answer may show: keys and tokens, unless short.

    A value is a key if its name says so: by the document's security schemes, or by custom. Any other value counts as
    one, too, unless it is words, a number, a date or a media type, which may be in answers by chance.
    """
    found = list[str]()
    for name, value in ((name, str(value).strip()) for name, value in owners):
        if name.lower() in key_names or is_secret_name(name) or not PLAIN.fullmatch(value):
            found += [each for each in (value, SCHEME.sub("", value, count=1)) if len(each) >= SHORTEST_HIDDEN]
            found += [each for each in _parts_of_key(name, value) if len(each) >= SHORTEST_PART]
    return [*dict.fromkeys(found)]


def _parts_of_key(name: str, value: str) -> list[str]:
    """Return the values of a Cookie header, or the password of basic authentication: the user, if that has none."""
    if name.lower() == "cookie":
        return [each.partition("=")[2].strip().strip('"') for each in value.split(";")]
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            user, _, password = b64decode(encoded).decode().partition(":")
            return [password or user]
    return []


def _decoded(content: bytes, charset: str) -> str:
    try:
        return content.decode(charset, errors="replace")
    except (LookupError, ValueError):  # no charset of text that Python knows
        return content.decode(errors="replace")


def _body_options(media: str, content: Any, headers: dict[str, str]) -> Json:
    if media == FORM:
        return {"data": {name: _form_value(value) for name, value in content.items() if value is not None}}
    if media == MULTIPART:
        return {"files": [(name, (None, _text(value))) for name, value in content.items() if value is not None]}
    headers["Content-Type"] = media if media != TEXT else f"{TEXT}; charset=utf-8"
    text = content if media == TEXT else json.dumps(content, ensure_ascii=False)
    return {"content": str(text).encode()}


def _path_part(parameter: Parameter, value: Any) -> str:
    text = "" if value is None else _plain(parameter, value)
    if not text or {".", ".."} & {*re.split(r"[/\\]", text)}:
        raise ToolException(f"Not called: {parameter.argument} is {value!r}, which cannot be a part of the path.")
    return quote(text, safe=",")


def _query_parts(parameter: Parameter, value: Any) -> list[tuple[str, str]]:
    name = parameter.name
    if parameter.as_json:
        return [(name, json.dumps(value, ensure_ascii=False))]
    if isinstance(value, list):
        if parameter.explode and parameter.style not in DELIMITERS:
            return [(name, _text(each)) for each in value]
        return [(name, DELIMITERS.get(parameter.style, ",").join(map(_text, value)))]
    if isinstance(value, dict):
        if parameter.style == "deepObject":
            return [(f"{name}[{key}]", _text(each)) for key, each in value.items()]
        if parameter.explode:
            return [(key, _text(each)) for key, each in value.items()]
        return [(name, ",".join(f"{key},{_text(each)}" for key, each in value.items()))]
    return [(name, _text(value))]


def _query_value(parameter: Parameter, pairs: Sequence[tuple[str, str]], definitions: Json) -> Any:
    """Return the value of an argument that a query has in the form of `_query_parts`; None if it is not there."""
    name, style, schema = parameter.name, parameter.style, parameter.schema
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    kinds, texts = {*kinds_of(schema, {"$defs": definitions})}, [text for own, text in pairs if own == name]
    if "object" in kinds and not parameter.as_json and (style == "deepObject" or parameter.explode):
        if style == "deepObject":
            start = f"{name}["
            return {own[len(start) : -1]: text for own, text in pairs if own.startswith(start)} or None
        return {own: text for own, text in pairs if own in schema.get("properties", ())} or None
    if not texts:
        return None
    if parameter.as_json:
        with suppress(ValueError, RecursionError):
            return json.loads(texts[-1])
    elif "array" in kinds and parameter.explode and style not in DELIMITERS:
        return texts
    elif "array" in kinds:
        return [part for text in texts for part in text.split(DELIMITERS.get(style, ","))]
    elif "object" in kinds:
        parts = texts[-1].split(",")
        return dict(zip(parts[::2], parts[1::2], strict=False))
    return texts[-1]


def _plain(parameter: Parameter, value: Any) -> str:
    if parameter.as_json:
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return ",".join(map(_text, value))
    if isinstance(value, dict):
        mark = "=" if parameter.explode else ","
        return ",".join(f"{key}{mark}{_text(each)}" for key, each in value.items())
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else json.dumps(value, ensure_ascii=False)


def _form_value(value: Any) -> Any:
    return [*map(_text, value)] if isinstance(value, list) else _text(value)


def _is_text(kind: str) -> bool:
    return not kind or bool(
        re.match(r"text/|application/([\w.+-]*\+)?(json|xml|yaml|x-ndjson|x-www-form-urlencoded)\b", kind, re.I)
    )


def _without_fixed(
    operation: Operation, headers: Headers | None, params: Mapping[str, str] | None, key_names: Collection[str]
) -> Operation:
    """Return the operation without the parameters that go with every request. A function of headers gives the keys."""
    fixed = {("query", name) for name in params or ()}
    names = {*key_names, "cookie"} if callable(headers) else {name.lower() for name in headers or ()}
    fixed |= {("header", name) for name in names} | {("cookie", name) for name in key_names if "cookie" in names}
    left = [
        each
        for each in operation.parameters
        if (each.place, each.name if each.place == "query" else each.name.lower()) not in fixed
    ]
    return replace(operation, parameters=left)


def _warn_of_keys(operations: Iterable[Operation], key_names: Collection[str]) -> None:
    """Log each key among the arguments, which a model would have to know, with how to give it."""
    told = set[tuple[str, str]]()
    for name, each in ((operation.name, each) for operation in operations for each in operation.parameters):
        is_key = each.name.lower() in key_names or (each.place == "header" and is_secret_name(each.name))
        if is_key and each.place in OPTIONS_FOR and (each.place, each.name) not in told:
            told.add((each.place, each.name))
            wanted, hint = f"the {each.place} {each.name}", OPTIONS_FOR[each.place].format(name=each.name)
            log.warning("%s asks the model for %s, a key that it cannot know: pass %s", name, wanted, hint)


def _warn_of_missing_keys(
    operations: Iterable[Operation], base_url: str | None, headers: Mapping[str, str], params: Mapping[str, str]
) -> None:
    """Log, once for each set of security schemes, that nothing gives the keys of one of them, with how to give it.

    What an operation has as an argument is not missing: `_warn_of_keys` tells of that.
    """
    given = {("query", name.lower()) for name in params} | {("header", name.lower()) for name in headers}
    given |= {("cookie", "")} if ("header", "cookie") in given else set()
    told = set[str]()
    for operation in operations:
        has = given | {(each.place, each.name.lower()) for each in operation.parameters}
        if urlsplit(base_url or operation.server or "").username:
            has.add(("header", "authorization"))
        missing = [[key for key in keys if not {(key.place, key.name.lower()), (key.place, "")} & has]
                   for keys in operation.keys]  # fmt: skip
        if not all(missing) or not missing:
            continue
        hints = (", ".join(f"{key.scheme} ({_how_to_give(key)})" for key in keys) for keys in missing)
        if (needs := " or ".join(dict.fromkeys(hints))) not in told:
            told.add(needs)
            log.warning("%s needs a key that is not given, by its security scheme: pass %s", operation.name, needs)


def _how_to_give(key: Key) -> str:
    return OPTIONS_FOR[key.place].format(name=key.name) if key.place in OPTIONS_FOR else "client=…"


# Tools -------------------------------------------------------------------------------------------------------------


def _tool(
    api: _Api, operation: Operation, reader: Operation | None, named: Collection[str], undo: ApiUndo | None
) -> BaseTool:
    async def call(_: str, arguments: Json) -> Any:
        if reader:
            return await _change(api, operation, reader, arguments, undo)
        answer = (await api.send(operation, arguments, pages=operation.effect == "read"))[1]
        if undo:
            await undo.keep_made(arguments, answer)
        return answer

    about: Json = {
        "description": operation.description,
        "input_schema": operation.arguments_schema(),
        "effect": operation.effect,
    }
    if operation.output and not reader:
        about["output_schema"] = operation.output
    tool = described_tool(operation.name, about, call, legal_name(operation.name))
    metadata = {**(tool.metadata or {}), **api.provided(operation), "targets": operation.path_arguments, "paths": []}
    fields = [*schema_fields(operation.output)] if operation.output else []
    if fields:
        metadata["identity"] = [*dict.fromkeys(["id", *fields, *sorted(named)])]
    if operation.effect != "read":
        metadata["conditions"] = lambda _, arguments=None: api.describe(operation, arguments)
    if api.seconds:
        metadata["seconds"] = api.seconds * (3 if reader else 1) + SPARE
    if reader:
        metadata["probe"] = partial(_took_effect, api, operation, reader)
        metadata["replaces"] = partial(_replaced, api, operation, reader)
    if undo:
        metadata["undo"] = undo
    tool.metadata = metadata
    return tool


async def _change(api: _Api, operation: Operation, reader: Operation, arguments: Json, undo: ApiUndo | None) -> Json:
    """Read an object, change it, and read it again; return the result, and how each field changed.

    An error that leaves open what was done is a part of the result if the object shows the change, else it is raised.
    """
    place = operation.place_of(arguments)
    before, version = await _look_at(api, reader, place)
    kept_change = await undo.keep(arguments, before) if undo else None
    failure: Exception | None = None
    try:
        status, result, _ = await api.send(operation, operation.at_version(arguments, version))
        report: Json = {"status": status, "result": result}
    except Exception as error:
        if proves_no_effect(error):
            if kept_change:
                await kept_change.forget()
            raise
        failure, answered = error, error.status_code if isinstance(error, ApiError) else None
        report = {"answered": answered, "error": describe_error(error)[:MOST_TOLD]}
    after = await _look(api, reader, place)
    shown = _compare(operation, arguments, before, after)
    if failure and not shown["as_asked"]:
        raise failure
    if kept_change:
        await kept_change.note_result(after)
    return {**report, "read_back": shown}


def _compare(operation: Operation, arguments: Json, before: Any, after: Any) -> Json:
    """Return whether the change is visible when its object is read again, and all that is different now."""
    wanted = _wanted(operation, arguments)
    if _is_gone(after):
        return {"as_asked": operation.method == "delete" or (False if wanted else None), "found": False}
    if isinstance(after, Exception):
        return {"as_asked": None, "problem": describe_error(after)[:300]}
    if operation.method == "delete":
        return {"as_asked": False, "found": True}
    if isinstance(after, list) and isinstance(wanted, list):
        shows = _shows(after, wanted)
        return {"as_asked": None if shows is False and _are_among(after, wanted) else shows, "now": after}
    if not isinstance(after, dict):  # a text may be another form of what was sent
        is_comparable = not isinstance(wanted, dict) and not isinstance(after, str)
        return {"as_asked": _shows(after, wanted) if is_comparable else None, "now": after}
    if isinstance(before, Exception) and not _is_gone(before):
        report: Json = {"problem": describe_error(before)[:300]}
    else:
        was = before if isinstance(before, dict) else {}
        report = {
            "changed": {
                name: {"from": was.get(name), "to": after.get(name)}
                for name in {**was, **after}
                if not same_json(was.get(name), after.get(name))
            }
        }
    fields = wanted if isinstance(wanted, dict) else {}
    shown = {name: _shows(after[name], value) if name in after else None for name, value in fields.items()}
    if differs := {name: after[name] for name, is_shown in shown.items() if is_shown is False}:
        report["still"] = differs
    if unseen := [name for name, is_shown in shown.items() if is_shown is None]:
        report["not_shown"] = unseen
    return {"as_asked": _all(shown.values()) if shown else None, **report}


def _wanted(operation: Operation, arguments: Json) -> Any:
    """Return the fields that a change is to have, by name; the whole of what a PUT replaces, if that is no object."""
    sent = {
        each.name: arguments[each.argument]
        for each in operation.parameters
        if each.place == "body" and each.argument in arguments
    }
    if operation.whole_body:
        body = next(iter(sent.values()), None)
        return body if isinstance(body, dict) or (body is not None and operation.method == "put") else {}
    return sent


def _shows(shown: Any, wanted: Any) -> bool | None:
    """Return whether a value is as wanted; None if that is unknown. An object may have more fields than wanted."""
    if isinstance(shown, dict) and isinstance(wanted, dict):
        return _all(_shows(shown[name], each) if name in shown else None for name, each in wanted.items())
    if isinstance(shown, list) and isinstance(wanted, list):
        return len(shown) == len(wanted) and _all(map(_shows, shown, wanted))
    return same_json(shown, wanted) if _json_type(shown) is _json_type(wanted) else None


def _are_among(shown: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Return whether all that a list shows may have been sent: then it may be one page of that, or in another order."""
    return bool(shown) and all(any(_shows(each, one) is not False for one in wanted) for each in shown)


def _all(shown: Iterable[bool | None]) -> bool | None:
    results = {*shown}
    return False if False in results else None if None in results else True


def _json_type(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _is_gone(value: Any) -> bool:
    return isinstance(value, ApiError) and value.status_code in GONE_STATUSES


async def _look(api: _Api, reader: Operation, place: Mapping[str, Any]) -> Any:
    """Return what the object with these values of its path is now, or the error, such as that there is none."""
    return (await _look_at(api, reader, place))[0]


async def _look_at(api: _Api, reader: Operation, place: Mapping[str, Any]) -> tuple[Any, str]:
    """Return what `_look` does, and the object's ETag; "" if it has none."""
    try:
        _, value, version = await api.send(reader, reader.arguments_at(place))
        return value, version
    except Exception as error:  # even of the owner's `headers`: reading back never turns a change into an error
        return error, ""


async def _send_back(api: _Api, reader: Operation, operation: Operation, arguments: Json) -> None:
    """Send what puts an object back, at the version that it has now."""
    version = (await _look_at(api, reader, operation.place_of(arguments)))[1] if operation.version_argument else ""
    await api.send(operation, operation.at_version(arguments, version))


async def _object(api: _Api, reader: Operation, place: Mapping[str, Any]) -> Any:
    """Return the object with these values of its path: GONE if there is none, or the error of looking."""
    current = await _look(api, reader, place)
    return GONE if _is_gone(current) else current


async def _took_effect(api: _Api, operation: Operation, reader: Operation, arguments: Json) -> Json | bool | None:
    """Return the object if an interrupted change is visible in it, False if it is not, None if that is unknown."""
    seen = _compare(operation, arguments, None, await _look(api, reader, operation.place_of(arguments)))
    if seen["as_asked"]:
        seen.pop("changed", None)  # what was there before is not known
        return {"answered": None, "error": LOST_ANSWER, "read_back": seen}
    return False if seen["as_asked"] is False else None


async def _replaced(api: _Api, operation: Operation, reader: Operation, arguments: Json) -> dict[str, str]:
    """Return, by argument, what a change would replace; of a deletion the object, by the request that reads it.

    Raises the error if the object cannot be read.
    """
    now = await _object(api, reader, operation.place_of(arguments))
    if now is GONE:
        return {}
    if isinstance(now, Exception):
        raise now
    if operation.method == "delete":
        return {f"GET {operation.path}": _beginning(comparable_text(now))}
    body = [each for each in operation.parameters if each.place == "body" and each.argument in arguments]
    if operation.whole_body:  # a PATCH may be steps to take
        old = {each.argument: _sent_part(now, arguments[each.argument]) for each in body if operation.method == "put"}
    else:
        shown = now if isinstance(now, dict) else {}
        old = {each.argument: shown[each.name] for each in body if shown.get(each.name) is not None}
    texts = dict[str, str]()
    for name, was in old.items():
        text, new = comparable_text(was), comparable_text(arguments[name])
        if len(text_difference(text, new)) > MOST_COMPARED:
            texts[f"GET {operation.path}, {name}"] = _beginning(text)
        elif not same_json(was, arguments[name]):
            texts[name] = text
    return texts


def _sent_part(now: Any, body: Any) -> Any:
    """Return the fields of an object that a body sends too: others, such as a time, may change by themselves."""
    if not (isinstance(now, dict) and isinstance(body, dict)):
        return now
    return {name: now[name] for name in body if name in now}


def _beginning(text: str) -> str:
    """Return what people see of a text that goes: if it is long, with a digest, so that a change of the rest counts."""
    if len(text) <= MOST_TOLD:
        return text
    return f"{text[:MOST_TOLD]}\n… ({len(text):,} characters in all, {digest(text)})"


def _excerpt(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)[:300]


def _check(api: _Api, reader: Operation) -> BaseTool:
    """Return the check that an object of the API shows some values, or that there is none."""

    async def check(_: str, arguments: Json) -> str:
        current, gone = await _look(api, reader, reader.place_of(arguments)), bool(arguments.get("gone"))
        if gone and _is_gone(current):
            return f"it is gone: {current}"
        if isinstance(current, Exception):
            raise current
        wanted = {} if arguments.get("fields") is None else arguments["fields"]
        if gone:
            raise ToolException("It is still there.")
        if not isinstance(wanted, dict):
            if _shows(current, wanted):
                return f"it shows {_excerpt(wanted)}"
            raise ToolException(f"It is {_excerpt(current)}, not {_excerpt(wanted)}.")
        if not isinstance(current, dict):
            raise ToolException(f"It has no fields: {_excerpt(current)}.")
        wrong = [name for name, value in wanted.items() if not (name in current and _shows(current[name], value))]
        if wrong:
            differences = (f"{name} is {_excerpt(current.get(name))}, not {_excerpt(wanted[name])}" for name in wrong)
            raise ToolException(f"{'; '.join(differences)}.")
        return f"it shows {_excerpt(wanted)}"

    of_path = [each for each in reader.parameters if each.place == "path"]
    schema: Json = {
        "type": "object",
        "properties": {
            **{each.argument: each.schema for each in of_path},
            "fields": {
                "type": ["object", "array"],
                "items": {},
                "description": "fields with the values that they should have; of a list, the whole",
            },
            "gone": {"type": "boolean", "description": "true: it should not exist any more"},
        },
        "required": reader.path_arguments,
        "additionalProperties": False,
    }  # fmt: skip
    if reader.definitions:
        schema["$defs"] = reader.definitions
    shows = f"`GET {reader.path}` shows these values (nothing, if `gone`)"  # the owner may rename the tool of the GET
    about = {
        "description": f"Succeeds when {shows}, else fails. For checks.",
        "input_schema": schema,
        "effect": "read",
    }
    tool = described_tool(f"{reader.name}_shows", about, check, legal_name(f"{reader.name}_shows"))
    tool.metadata = {
        **(tool.metadata or {}),
        **api.provided(reader),
        "check": True,
        "targets": reader.path_arguments,
        "paths": [],
        **({"seconds": api.seconds + SPARE} if api.seconds else {}),
    }
    return tool
