"""Read any exception of a model call as one ModelError: what happened, whether and when to try again.

Pure, by duck typing: knows the shapes of openai, anthropic, google, botocore and httpx without importing them.
"""

from donewhen.graph.models.failure_rules import code_of, hopeless
from donewhen.graph.models.refusal import Refusal, links, read_refusal
from donewhen.graph.models.retry_after import retry_after
from donewhen.state.errors import DoneWhenError, ModelError
from donewhen.state.redaction import redact

TRANSIENT = frozenset({"rate_limited", "overloaded", "server_error", "timeout", "connection"})
"""The codes of a ModelError that are worth another try."""

_ADVICE = {
    "rate_limited": (
        "The model provider limits requests",
        "Try later, run fewer steps at once, or ask it for more.",
    ),
    "overloaded": ("The model provider is overloaded", "Try again later, or use another model."),
    "server_error": ("The model provider failed", "Try again later, or use another model."),
    "timeout": ("The model did not answer in time", "Try again, or raise `model_seconds`."),
    "connection": (
        "The connection to the model failed or broke off",
        "Check the network and the base URL (OPENAI_BASE_URL).",
    ),
    "auth": (
        "The model provider refused the credentials",
        "Set a valid key: OPENAI_API_KEY for OpenAI and compatible servers, else the provider's own.",
    ),
    "quota": (
        "The account at the model provider has no credit left",
        "Add credit there, or set another key.",
    ),
    "model_not_found": (
        "The provider does not offer this model to this key",
        "Set DONEWHEN_MODEL, or the model of the role, to one that it offers, and check the base URL.",
    ),
    "context_too_long": (
        "The request is longer than the model accepts",
        "Use a model with a larger context, or lower `observation_chars`.",
    ),
    "content_filter": (
        "The provider's content filter refused the request",
        "Rephrase the goal or the material.",
    ),
    "bad_request": (
        "The model provider rejected the request",
        "Check that the model can call tools, and the parameters set for it (`thinking`, `max_tokens`).",
    ),
    "model_error": ("The model call failed", ""),
}


def classify(error: BaseException) -> ModelError:
    """The ModelError for an exception raised by a model call; a ModelError is returned as it is.

    `code` is one of rate_limited, overloaded, server_error, timeout, connection (these are `retryable`), auth,
    quota, model_not_found, context_too_long, content_filter, bad_request, model_error. `retry_after` is in
    seconds, only for retryable errors. The message says what happened and what to do, quotes the provider, and
    holds no secrets.
    """
    for link in links(error):
        if isinstance(link, ModelError):
            return link
        if isinstance(link, DoneWhenError):
            return ModelError(redact(str(link)))
    refusals = [read_refusal(link) for link in links(error)]
    code, refusal = next(((code, r) for r in refusals if (code := code_of(r))), ("model_error", refusals[0]))
    lasting = refusal.headers.get("x-should-retry") == "false" or any(map(hopeless, refusals))
    return _model_error(code, refusal, retryable=code in TRANSIENT and not lasting)


def _model_error(code: str, refusal: Refusal, *, retryable: bool) -> ModelError:
    happened, advice = _ADVICE[code]
    status = f" (HTTP {refusal.status})" if refusal.status else ""
    said = redact(" ".join(refusal.text.split()))
    said = said if len(said) <= 300 else said[:299] + "…"
    quoted = f"It says: {said}" if said else f"({refusal.names[0]})"
    return ModelError(
        " ".join(part for part in (f"{happened}{status}.", advice, quoted) if part),
        code=code,
        retryable=retryable,
        retry_after=retry_after(refusal.headers, refusal.hints) if retryable else None,
    )
