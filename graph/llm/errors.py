"""Classify any exception of a model call as a ModelError: what happened, and whether and when to retry.

Pure functions with duck typing: the exceptions of openai, anthropic, google, botocore and httpx are recognized without
importing them. The status decides; the provider's words count only if the status is ambiguous.
"""

import json
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from itertools import product
from typing import Any, NamedTuple

from donewhen.graph.llm.provider_texts import NO_CREDIT, RATE_LIMITED, TOO_LONG, TOO_MANY_TOOLS, any_of
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.pattern import pattern
from donewhen.state.secrets import redact

TRANSIENT = frozenset({"rate_limited", "overloaded", "server_error", "timeout", "connection"})
"""The codes of a ModelError that are worth a retry."""

_ADVICE = {
    "rate_limited": "The model provider limits requests. Try later, run fewer steps at once, or ask it for more.",
    "overloaded": "The model provider is overloaded. Try again later, or use another model.",
    "server_error": "The model provider failed. Try again later, or use another model.",
    "timeout": "The model did not answer in time. Try again, or raise `model_seconds`.",
    "connection": "The connection to the model failed or broke off. Check the network and OPENAI_BASE_URL.",
    "auth": "The model provider refused the credentials. Set a valid key, as OPENAI_API_KEY or the provider's own.",
    "quota": "The account at the model provider has no credit left. Add credit there, or set another key.",
    "model_not_found": "The provider does not offer this model to this key. Set DONEWHEN_MODEL to one that it offers; "
    "with OPENAI_BASE_URL, what stands before a colon is a part of the name unless it is a known provider.",
    "wrong_path": "The server has nothing at this address. Check OPENAI_BASE_URL, or the address of the model: {url}.",
    "context_too_long": "The request is longer than the model accepts. Lower `observation_chars`, or change the model.",
    "too_many_tools": "The request has more tools than the model's server takes. Lower `tool_selection`.",
    "content_filter": "The provider's content filter refused the request. Rephrase the goal or the material.",
    "bad_request": "The model provider rejected the request. Check what is set for it (`thinking`, `max_tokens`).",
    "model_error": "The model call failed.",
}
"""By code: a sentence on what happened, then what to do."""
_TEXT_CHARS, _DEPTH, _NODES = 4000, 6, 200
"""The most that is read of a response body: characters of a text, levels, values."""


def classify(error: BaseException) -> ModelError:
    """Return the ModelError for an exception raised by a model call; a ModelError is returned unchanged.

    `code` is one of rate_limited, overloaded, server_error, timeout, connection (these are `retryable`), auth,
    quota, model_not_found, wrong_path, context_too_long, too_many_tools, content_filter, bad_request, model_error.
    `retry_after` is in seconds, only for retryable errors. The message says what happened and what to do; it holds no
    secrets.
    """
    for link in _causes(error):
        if isinstance(link, ModelError):
            return link
        if isinstance(link, DoneWhenError):
            return ModelError(redact(str(link)))
    all_facts = [_ErrorFacts(link) for link in _causes(error)]
    matches = ((rule.code, facts) for facts in all_facts for rule in _RULES if rule.fits(facts))
    code, facts = next(matches, ("model_error", all_facts[0]))
    broken = any(_HOPELESS & set(each.names) or "certificate verify failed" in each.said for each in all_facts)
    retryable = code in TRANSIENT and not broken and facts.headers.get("x-should-retry") != "false"
    happened, _, advice = _ADVICE[code].format(url=redact(facts.url) or "its path may be wrong").partition(".")
    status = f" (HTTP {facts.status})" if facts.status else ""
    text = redact(" ".join(facts.text.split()))
    quoted = f"It says: {text if len(text) <= 300 else text[:299] + '…'}" if text else f"({facts.names[0]})"
    wait = retry_after(facts.headers, facts.text) if retryable else None
    return ModelError(f"{happened}{status}.{advice} {quoted}", code=code, retryable=retryable, retry_after=wait)


def words_of(error: BaseException) -> str:
    """Return all that a server says in an error, in lower case, also what a router hands on."""
    return f"{error} {_ErrorFacts(error).said}".lower()


def text_in_refusal(error: BaseException) -> str:
    """Return what a model wrote if its server refuses it because it could not read a call in it, as Groq's does."""
    for link in _causes(error):
        body = _get_field(link, "body")
        for field in (body, _get_field(body, "error")):
            if isinstance(written := _get_field(field, "failed_generation"), str) and written.strip():
                return written
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, the members of a group and the explicit causes, outermost first, each once."""
    queue, seen = [error], set[int]()
    while queue and len(seen) < 20:
        link = queue.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        members = link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        queue += [*members, *([link.__cause__] if link.__cause__ else [])]


# Reading an exception


class _ErrorFacts:
    """The status, headers and texts of one exception. Raising attributes and endless bodies are tolerated."""

    messages = frozenset({"message", "msg", "detail", "description", "error", "error_description", "raw", "title", ""})
    codes = frozenset({"code", "type", "__type", "status", "reason", "error", "error_code", "httpstatuscode"})
    waits = frozenset({"retrydelay", "retry_after", "retryafter", "retry_after_seconds"})

    def __init__(self, error: BaseException) -> None:
        self.names = [cls.__name__ for cls in type(error).__mro__]
        self.headers: dict[str, str] = {}
        self._texts: list[str] = []
        self._words: set[str] = set()
        self._statuses: list[int] = []
        self._left = _NODES
        self.url = ""
        """The address that was asked, if the exception knows it."""
        response, body = _get_field(error, "response"), _get_field(error, "body")
        for source in (error, response):
            self.url = self.url or str(_get_field(_get_field(source, "request"), "url") or "")
        self._take_headers(_get_field(response, "headers") or _get_field(error, "headers"))
        for name, source in product(("status_code", "status"), (error, response)):
            self._take_word(_get_field(source, name))
        bodies = [body, _get_field(error, "details"), response, *(_get_field(error, "args") or ())]
        readable = [each for each in bodies if isinstance(each, Mapping | list)]
        texts = [
            each
            for each in (body, _get_field(response, "text"), _get_field(error, "doc"))
            if isinstance(each, str | bytes)
        ]
        self._walk(next((each for each in [*readable, *texts] if each), None))
        for name in ("code", "type"):
            value = _get_field(error, name)
            self._take_word(_get_field(value(), "name") if callable(value) else value)
        self.status = next(iter(self._statuses), None)
        """The HTTP status, if it is an error; None for a stream that breaks after a 200."""
        if not any(self._texts):
            with suppress(Exception):  # an exception that cannot be printed still has to be classified
                self._texts.append(str(error))
        self.text = "; ".join(dict.fromkeys(text.strip() for text in self._texts if text.strip()))[:_TEXT_CHARS]
        self.said = " ".join([self.text, *sorted(self._words)]).lower()
        """The text with the provider's codes and types, in lower case."""

    def _walk(self, value: Any, key: str = "", depth: int = 0) -> None:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return
        if isinstance(value, bytes):
            value = value[: 5 * _TEXT_CHARS].decode("utf-8", "replace")
        if isinstance(value, str) and value.lstrip()[:1] in {"{", "["}:
            value = _parse_json(value)
        if isinstance(value, Mapping) and key in {"headers", "httpheaders"}:
            self._take_headers(value)
        elif isinstance(value, Mapping):
            for name, item in value.items():
                self._walk(item, str(name).lower(), depth + 1)
        elif isinstance(value, list | tuple):
            for item in value:
                self._walk(item, key, depth + 1)
        elif key in self.waits and isinstance(value, str | int | float):
            self._texts.append(f"retry after: {value}")
        else:
            self._take_word(value if key in self.codes else None)
            self._texts += [value[:_TEXT_CHARS]] if isinstance(value, str) and key in self.messages else []

    def _take_word(self, value: Any) -> None:
        """Note a number, also one as text, as a status, and a single word as a code."""
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value < 600:
            self._statuses.append(int(value))
        elif isinstance(value, str) and 0 < len(value) <= 100 and " " not in value:
            self._words.add(value.lower())

    def _take_headers(self, headers: Any) -> None:
        for name, value in list(headers.items())[:_NODES] if hasattr(headers, "items") else ():
            first = value[0] if isinstance(value, list | tuple) and value else value
            self.headers.setdefault(str(name).lower(), str(first).strip()[:200])


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.lstrip("{[")


def _get_field(value: Any, name: str) -> Any:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # a response that was not read, or a property that raises
        return None


# Rules
_NEVER = r"\b\B"
_OPEN = (None, 400, 403, 422)
"""Ambiguous statuses, for which the words decide. None means no HTTP status, as for an error inside a stream."""


class _Rule(NamedTuple):
    """A code and when it applies: by status; by words if the status is in `among`; by class if there is no status."""

    code: str
    statuses: Collection[int] = ()
    said: str = _NEVER
    among: Collection[int | None] = (None,)
    names: str = _NEVER

    def fits(self, facts: _ErrorFacts) -> bool:
        named = facts.status is None and any(re.fullmatch(self.names, name) for name in facts.names)
        by_words = facts.status in self.among and re.search(self.said, facts.said)
        return facts.status in self.statuses or named or bool(by_words)


_RULES = (
    # A quota per minute is a rate limit, unless it is a quota of nothing.
    _Rule("rate_limited", said=r"\A(?![\s\S]*\blimit: 0\b)[\s\S]*\bretry (?:in|after:?) \d", among=(429,)),
    _Rule(
        "quota",
        (402,),
        any_of(*NO_CREDIT),
        (*_OPEN, 429),
    ),
    _Rule("auth", (401,)),
    # A template of a model that cannot be filled stays so; servers of local models call that an error of theirs.
    _Rule("bad_request", said=r"\bjinja\b|template_?error|roles? must alternate|role not supported", among=(500,)),
    # What the model wrote cannot be read, and its text is not there: the next reply may be better.
    _Rule("server_error", said=r"tool_use_failed|output_parse_failed|json_validate_failed", among=_OPEN),
    _Rule("too_many_tools", said=any_of(*TOO_MANY_TOOLS), among=_OPEN),
    _Rule(
        "context_too_long",
        (413,),
        any_of(*TOO_LONG),
        (*_OPEN, 429, 500),
        r".*Context(?:Overflow|WindowExceeded)Error",
    ),
    _Rule(
        "content_filter",
        said=r"content[ _](?:management )?(?:polic|filter|blocked)|\bflagged\b|inappropriate content|usage polic|"
        r"requires moderation|safety (?:system|filter|polic)|data_?inspection_?failed|prohibited_content",
        among=_OPEN,
        names=r"ContentFilter\w*Error",
    ),
    _Rule("bad_request", said=r"no endpoints found (?:that|matching)", among=(404,)),  # OpenRouter's
    _Rule("model_not_found", (410,), r"\bmodels?\b|deployment|no endpoints found for", (404,)),
    _Rule("wrong_path", (404,)),
    _Rule(
        "model_not_found",
        (),
        r"\bmodels?:? (?!is |was |has |does )[`'\"]?[\w./:@-]{1,100}[`'\"]? (?:is |was |has been |does )?"
        r"(?:not (?:found|supported|exist|available|a valid)|unknown|invalid|decommissioned|deprecated)|"
        r"model identifier is invalid|(?:unknown|invalid|no such)[ _]model\b|not a valid model|\bnot_?found|"
        r"model[ _]?not[ _]?(?:found|exist|available)|model_decommissioned|deploymentnotfound|resourcenotfound",
        _OPEN,
    ),
    _Rule(
        "auth",
        (403,),
        r"api[ _]key (?:not valid|is (?:not valid|invalid|missing)|expired)|did you forget to set|"
        r"(?:invalid|incorrect|missing|no)[ _]?api[ _]?key|(?:missing|locate) credentials|api_key_invalid|"
        r"api_key client|authentication_?error|unauth|permission_(?:denied|error)|accessdenied|expiredtoken",
        _OPEN,
        r"(?:No|Default)CredentialsError",
    ),
    _Rule("rate_limited", (429,), any_of(*RATE_LIMITED), (None, 400)),
    _Rule("overloaded", (503, 529), r"overloaded|unavailable|at capacity|slow_down|modelnotready"),
    _Rule(
        "timeout",
        (408, 504, 524, 598),
        r"deadline_exceeded|\b\w*timeout\b",
        names=r".*Time(?:d)?out(?:Error|Exception)?",
    ),
    _Rule(
        "server_error",
        {409, 425, *range(500, 600)} - {501, 505},
        r"while running the model|(?:server|api|internal)_?error|\binternal\b|internalserver|server had an error|"
        r"while processing|no generations? (?:chunks were returned|found in stream)|model(?:stream)?errorexception|"
        r"for 'choices'",
    ),
    _Rule("bad_request", (*range(400, 500), 501, 505), r"invalid_(?:request_error|argument|value)|validationexception"),
    _Rule(
        "connection",
        names=r"\w*Connect(?:ion)?\w*(?:Error|Exception)|IncompleteRead|EndOfStream|UnsupportedProtocol|InvalidURL|"
        r"(?:Transport|Network|\w*Protocol|\w*Decod(?:e|ing)|ChunkedEncoding|EOF|SSL|gai|ClientPayload|Server\w+|"
        r"(?:Broken|Closed)Resource|APIResponseValidation)[Ee]rror",
    ),
)
"""The most specific rule first."""


_HOPELESS = {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError", "SSLCertVerificationError"}
"""Connection failures that a retry meets again: a certificate, an address, a header."""


_PIECE = r"(\d+(?:\.\d+)?)\s{0,2}(ms|milli|h|m|s)[a-z]*"
_ASKED = pattern(
    r"(?:(?:try|retry)(?:ing)?(?: your request)?(?: again)? (?:in|after)|retry[_ -]?(?:delay|after)[\"']?\s?[:=]|"
    r"\bwait(?: for)?|(?:available|resets?) in)[\s\"':~]{0,4}(?:about |at least )?"
    rf"((?:{_PIECE}(?:,? and |, ?| )?){{1,4}}|\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_SECONDS = {"ms": 0.001, "milli": 0.001, "h": 3600.0, "m": 60.0, "s": 1.0}


def retry_after(headers: Mapping[str, str], text: str, now: float | None = None) -> float | None:
    """Return the seconds to wait, or None if the provider names none. Header names are lower case; `now` is Unix time.

    Understands `retry-after-ms`, `Retry-After` as seconds or as a date (against the response's own `date`), and
    "try again in 1m2.5s" or `retryDelay: "17s"` in what the provider says.
    """
    for name in ("retry-after-ms", "x-ms-retry-after-ms"):
        if (milliseconds := _number(headers.get(name, ""))) is not None:
            return milliseconds / 1000
    asked = headers.get("retry-after", "")
    if (seconds := _number(asked)) is not None:
        return seconds
    with suppress(ValueError, TypeError):  # no date either
        sent = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else now or time.time()
        return max(0.0, parsedate_to_datetime(asked).timestamp() - sent)
    if (match := _ASKED.search(text)) is None:
        return None
    pieces = re.findall(_PIECE, match[1], re.IGNORECASE)
    return math.fsum(float(n) * _SECONDS[unit.lower()] for n, unit in pieces) if pieces else _number(match[1])


def _number(value: str) -> float | None:
    with suppress(ValueError):
        return number if math.isfinite(number := float(value)) and number >= 0 else None
    return None
