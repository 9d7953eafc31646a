"""Every exception of a model call becomes one ModelError: its code, whether and when to retry, a message for people."""

import json
import ssl
from collections.abc import Mapping
from typing import Any

import httpx2
import openai
import pytest
from langchain_core.exceptions import ContextOverflowError

from donewhen.graph.llm.errors import TRANSIENT, classify, retry_after
from donewhen.state.errors import ConfigError, ModelError

REQUEST = httpx2.Request("POST", "https://api.openai.com/v1/chat/completions")


def openai_error(status: int, body: Any = None, headers: Mapping[str, str] | None = None) -> openai.APIStatusError:
    """What the openai client raises for this answer."""
    content = body if isinstance(body, str) else json.dumps(body)
    response = httpx2.Response(status, headers=dict(headers or {}), content=content, request=REQUEST)
    return openai.OpenAI(api_key="test")._make_status_error_from_response(response)


def said(message: str, code: str | None = None, type: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "code": code, "type": type}}


REFUSED: list[tuple[int, Any, str]] = [
    (400, said("Unsupported value: 'temperature'", "unsupported_value", "invalid_request_error"), "bad_request"),
    (400, said("This model's maximum context length is 8192 tokens.", "context_length_exceeded"), "context_too_long"),
    (400, said("prompt is too long: 250000 tokens > 200000 maximum"), "context_too_long"),
    (400, said("The input token count (1200000) exceeds the maximum number of tokens"), "context_too_long"),
    (400, said("the request exceeds the available context size", type="exceed_context_size_error"), "context_too_long"),
    (413, "<html>Request Entity Too Large</html>", "context_too_long"),
    (429, said("Request too large for gpt-4o on tokens per min (TPM): Limit 1, Requested 2"), "context_too_long"),
    (400, said("filtered by Azure's content management policy", "content_filter"), "content_filter"),
    (403, said("Your chosen model requires moderation and your input was flagged"), "content_filter"),
    (401, said("Incorrect API key provided", "invalid_api_key"), "auth"),
    (401, "", "auth"),
    (403, said("Country not supported", "unsupported_country_region_territory"), "auth"),
    (400, {"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}, "auth"),
    (402, said("Insufficient Balance"), "quota"),
    (429, said("You exceeded your current quota", "insufficient_quota"), "quota"),
    (400, said("Your credit balance is too low to access the API"), "quota"),
    (429, said("Quota exceeded, limit: 0, model: x. check your plan and billing. Please retry in 3s."), "quota"),
    (404, said("The model `x` does not exist", "model_not_found"), "model_not_found"),
    (404, "404 page not found", "wrong_path"),
    (404, {"detail": "Not Found"}, "wrong_path"),
    (404, "", "wrong_path"),
    (404, said("No endpoints found that support tool use."), "bad_request"),
    (404, said("model 'x' not found, try pulling it first"), "model_not_found"),
    (404, said("The API deployment for this resource does not exist", "DeploymentNotFound"), "model_not_found"),
    (422, {"detail": [{"loc": ["body"], "msg": "extra fields not permitted"}]}, "bad_request"),
    (405, "", "bad_request"),
    (501, "", "bad_request"),
]


@pytest.mark.parametrize(("status", "body", "code"), REFUSED)
def test_what_a_retry_cannot_change_is_not_retried(status: int, body: Any, code: str) -> None:
    """R01, F7: auth, bad requests, unknown models, spent credit and too long contexts are told, not repeated."""
    error = classify(openai_error(status, body, {"retry-after": "1"}))
    assert (error.code, error.retryable, error.retry_after) == (code, False, None)
    assert f"HTTP {status}" in str(error)
    if code == "model_not_found":  # a mistyped provider is one, where names of models may have a colon
        assert "is a part of the name unless it is a known provider" in str(error)


PASSING: list[tuple[int, Any, str]] = [
    (408, "", "timeout"),
    (409, "", "server_error"),
    (425, "", "server_error"),
    (429, said("Rate limit reached", "rate_limit_exceeded", "requests"), "rate_limited"),
    (429, said("You exceeded your current quota, check your plan and billing. Please retry in 17.5s."), "rate_limited"),
    (400, {"__type": "ThrottlingException", "message": "Too many tokens, please wait"}, "rate_limited"),
    (500, said("The server had an error", type="server_error"), "server_error"),
    (502, "<html>Bad Gateway</html>", "server_error"),
    (503, said("The engine is overloaded"), "overloaded"),
    (504, "", "timeout"),
    (520, "", "server_error"),
    (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded"),
]


@pytest.mark.parametrize(("status", "body", "code"), PASSING)
def test_what_passes_is_retried(status: int, body: Any, code: str) -> None:
    """R01, F7"""
    error = classify(openai_error(status, body))
    assert (error.code, error.retryable) == (code, True)
    assert error.code in TRANSIENT


def test_a_provider_that_forbids_the_retry_is_obeyed() -> None:
    """R01"""
    assert not classify(openai_error(500, "", {"x-should-retry": "false"})).retryable


def chained(outer: Exception, cause: BaseException) -> Exception:
    outer.__cause__ = cause
    return outer


class GoogleError(Exception):
    """The shape of google.genai.errors.APIError."""

    def __init__(self, code: int, details: Any) -> None:
        super().__init__(f"{code}. {details}")
        self.code, self.details = code, details


class BotoError(Exception):
    """The shape of botocore.exceptions.ClientError."""

    def __init__(self, code: str, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"An error occurred ({code})")
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        self.response = {"Error": {"Code": code, "Message": "Too many requests"}, "ResponseMetadata": metadata}


class AnthropicError(Exception):
    """The shape of anthropic.APIStatusError for an error inside a stream: the status is the stream's 200."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.status_code = 200
        self.body = {"type": "error", "error": {"type": kind, "message": "It broke"}}
        self.response = httpx2.Response(200, request=REQUEST)


class Unprintable(Exception):
    @property
    def response(self) -> Any:
        raise RuntimeError("no")

    def __str__(self) -> str:
        raise RuntimeError("no")


QUOTA = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": [{"retryDelay": "17s"}]}}
OTHERS: list[tuple[BaseException, str]] = [
    (TimeoutError(), "timeout"),
    (ConnectionResetError(104, "reset"), "connection"),
    (httpx2.ReadTimeout("slow"), "timeout"),
    (httpx2.RemoteProtocolError("peer closed connection without sending complete message body"), "connection"),
    (openai.APITimeoutError(request=REQUEST), "timeout"),
    (openai.APIConnectionError(request=REQUEST), "connection"),
    (openai.APIError("The server had an error", REQUEST, body={"type": "server_error"}), "server_error"),
    (openai.APIError("slow down", REQUEST, body={"code": "rate_limit_exceeded"}), "rate_limited"),
    (ValueError({"message": "Provider returned error", "code": 502}), "server_error"),
    (ValueError("No generations found in stream."), "server_error"),
    (json.JSONDecodeError("Expecting value", "", 0), "connection"),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "connection"),
    (GoogleError(429, QUOTA), "rate_limited"),
    (GoogleError(503, [{"error": {"code": 503, "status": "UNAVAILABLE"}}]), "overloaded"),
    (BotoError("ThrottlingException", 429, {}), "rate_limited"),
    (AnthropicError("overloaded_error"), "overloaded"),
    (AnthropicError("api_error"), "server_error"),
    (AnthropicError("invalid_request_error"), "bad_request"),
    (chained(RuntimeError("call failed"), openai_error(503)), "overloaded"),
    (chained(RuntimeError("call failed"), openai_error(400)), "bad_request"),
    (ExceptionGroup("both", [KeyError("x"), TimeoutError()]), "timeout"),
    (ContextOverflowError("too much"), "context_too_long"),
    (openai.OpenAIError("The api_key client option must be set either by passing api_key"), "auth"),
    (KeyError("choices"), "model_error"),
    (TypeError("a fault of ours"), "model_error"),
    (Unprintable(), "model_error"),
]


@pytest.mark.parametrize(("error", "code"), OTHERS, ids=[f"{type(e).__name__}-{c}" for e, c in OTHERS])
def test_every_library_s_exceptions(error: BaseException, code: str) -> None:
    """R01"""
    result = classify(error)
    assert (result.code, result.retryable) == (code, code in TRANSIENT)
    assert str(result)


def test_a_connection_that_can_never_work_is_not_retried() -> None:
    """R01: a wrong address or certificate is the same after a wait."""
    for cause in (httpx2.UnsupportedProtocol("no http://"), ssl.SSLCertVerificationError("certificate verify failed")):
        error = classify(chained(openai.APIConnectionError(request=REQUEST), cause))
        assert (error.code, error.retryable) == ("connection", False)


def test_own_errors_pass() -> None:
    """P19: a missing key is told in its own words."""
    own = ModelError("told", code="timeout", retryable=True)
    assert classify(own) is own
    assert classify(chained(RuntimeError("x"), own)) is own
    missing = classify(ConfigError("Set OPENAI_API_KEY."))
    assert (str(missing), missing.retryable) == ("Set OPENAI_API_KEY.", False)


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
def test_messages_say_what_to_do_and_hold_no_key(status: int) -> None:
    """R01, P19"""
    key = "sk-proj-Zk8Qm3Tn5Rb7Wc2Xd9Vf4"
    error = openai_error(status, said(f"Bad key {key}; Authorization: Bearer {key} " + "x" * 5000))
    message = str(classify(error))
    assert key not in message
    assert len(message) < 600
    assert message.startswith("The ")
    if status == 401:
        assert "OPENAI_API_KEY" in message


NOW = 1_800_000_000.0
WAITS: list[tuple[dict[str, str], str, float | None]] = [
    ({"retry-after": "5"}, "", 5),
    ({"retry-after": "1.5"}, "", 1.5),
    ({"retry-after": "0"}, "", 0),
    ({"retry-after-ms": "150", "retry-after": "9"}, "", 0.15),
    ({"retry-after": "Fri, 15 Jan 2027 08:00:10 GMT"}, "", 10),
    ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, "", 0),
    ({"retry-after": "Fri, 15 Jan 2027 08:00:10 GMT", "date": "Fri, 15 Jan 2027 07:59:00 GMT"}, "", 70),
    ({"retry-after": "-3"}, "", None),
    ({"retry-after": "nan"}, "", None),
    ({"retry-after": "soon"}, "Please try again in 2s", 2),
    ({}, "Please try again in 7.66s. Visit x", 7.66),
    ({}, "Please try again in 20ms. Then wait 9s", 0.02),
    ({}, "Please try again in 6h12m43.2s.", 22_363.2),
    ({}, "Try again in 1 hour and 5 minutes, 3 people", 3900),
    ({}, "Please retry after 26 seconds.", 26),
    ({}, "please wait before trying again", None),
    ({}, "", None),
]


@pytest.mark.parametrize(("headers", "text", "seconds"), WAITS)
def test_how_long_to_wait(headers: dict[str, str], text: str, seconds: float | None) -> None:
    """R01: Retry-After in its forms, reset headers, and what messages say."""
    assert retry_after(headers, text, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_waits_are_found_wherever_a_provider_puts_them() -> None:
    """R01"""
    limited = said("Rate limit reached. Please try again in 2s.")
    assert classify(openai_error(429, limited)).retry_after == 2
    assert classify(openai_error(429, limited, {"Retry-After": "7"})).retry_after == 7
    assert classify(GoogleError(429, QUOTA)).retry_after == 17
    assert classify(BotoError("ThrottlingException", 400, {"Retry-After": "4"})).retry_after == 4
    nested = {"error": {"code": 429, "metadata": {"headers": {"Retry-After": "3"}}}}
    assert classify(openai_error(429, nested)).retry_after == 3


def test_hostile_bodies_are_read_in_bounds() -> None:
    """F6, F7: depth, size and nonsense in an error body."""
    deep: Any = "x"
    for _ in range(3000):
        deep = {"error": deep}
    error = openai_error(400)
    for body in (deep, {"error": "[" * 100_000}, [{"message": "x" * 10**6}] * 1000, b"\xff\xfe", 7, {"code": 10**30}):
        error.body = body
        assert classify(error).code == "bad_request"
