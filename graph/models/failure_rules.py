"""Which code a refusal gets: an ordered table, most telling rule first. Data; `failures` applies it."""

import re
from typing import NamedTuple

from donewhen.graph.models.refusal import Refusal

# Statuses whose cause only the words tell. None: no HTTP status, as for an error inside a stream.
_REFUSED: frozenset[int | None] = frozenset({None, 400, 403, 422})
_NONE: frozenset[int | None] = frozenset({None})


class Rule(NamedTuple):
    """A code and when it applies: by status; by class name; by words or prose, where the status leaves it open."""

    code: str
    statuses: frozenset[int] = frozenset()
    among: frozenset[int | None] = frozenset()
    words: frozenset[str] = frozenset()
    prose: re.Pattern[str] | None = None
    names: re.Pattern[str] | None = None

    def fits(self, refusal: Refusal) -> bool:
        if refusal.status in self.statuses:
            return True
        if refusal.status is None and self.names and any(map(self.names.fullmatch, refusal.names)):
            return True
        if refusal.status not in self.among:
            return False
        return bool(self.words & refusal.words or (self.prose and self.prose.search(refusal.hints)))


def code_of(refusal: Refusal) -> str | None:
    """The code of the first rule that fits, or None when nothing is recognised."""
    return next((rule.code for rule in _RULES if rule.fits(refusal)), None)


def hopeless(refusal: Refusal) -> bool:
    """A failure to connect that the same request meets again: a certificate, an address, a header."""
    broken = {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError", "SSLCertVerificationError"}
    return bool(broken & set(refusal.names)) or "certificate verify failed" in refusal.text.lower()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _prose(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_RULES = (
    Rule(  # a quota per minute is a rate limit, unless it is a quota of nothing
        "rate_limited",
        among=frozenset({429}),
        prose=_prose(r"\A(?![\s\S]*\blimit: 0\b)[\s\S]*\bretry (?:in|after:?) \d"),
    ),
    Rule(
        "quota",
        statuses=frozenset({402}),
        among=_REFUSED | {429},
        words=_words(
            "insufficient_quota insufficient_balance insufficient_credits billing_hard_limit_reached "
            "arrearage billing_not_active payment_required credits_exhausted billing_error"
        ),
        prose=_prose(
            r"insufficient[ _](?:quota|balance|credits?|funds)",
            r"credit balance is too low|out of credits?|no (?:remaining )?credits?\b|prepayment credits",
            r"billing hard limit|billing (?:is )?not active|(?:used|spent) all (?:available|your) credits",
            r"check your plan and billing|monthly (?:spending|spend|usage) limit|余额不足|欠费",
        ),
    ),
    Rule("auth", statuses=frozenset({401})),
    Rule(
        "context_too_long",
        statuses=frozenset({413}),
        among=_REFUSED | {429, 500},
        words=_words(
            "context_length_exceeded context_window_exceeded exceed_context_size_error request_too_large "
            "model_max_prompt_tokens_exceeded contextwindowexceedederror string_above_max_length"
        ),
        prose=_prose(
            r"(?:maximum|model'?s?|available) context|context (?:window|length)|context_length|context size",
            r"(?:prompt|input|request|message)s?(?: \w+)? (?:is|are|was) too (?:long|large)",
            r"request too large|too long for (?:this|the) model",
            r"input token(?:s| count).{0,60}exceed|exceeds? the (?:maximum|max|limit)[^.]{0,40} tokens?",
            r"reduce the length of|range of input length|maximum (?:prompt|input) length",
        ),
        names=_prose(r".*ContextOverflowError|.*ContextWindowExceededError"),
    ),
    Rule(
        "content_filter",
        among=_REFUSED,
        words=_words(
            "content_filter content_policy_violation responsibleaipolicyviolation data_inspection_failed "
            "datainspectionfailed prohibited_content content_filtered content_blocked moderation_blocked "
            "cyber_policy_violation policy_violation"
        ),
        prose=_prose(
            r"content (?:management )?(?:policy|policies)|content[ _]filter|\bflagged\b|content exists risk",
            r"inappropriate content|safety (?:system|filter|polic)|usage polic|requires moderation",
        ),
        names=_prose(r"ContentFilter\w*Error"),
    ),
    Rule(
        "model_not_found",
        statuses=frozenset({404, 410}),
        among=_REFUSED,
        words=_words(
            "model_not_found modelnotfound model_not_available invalid_model unknown_model "
            "model_decommissioned deploymentnotfound not_found_error resourcenotfoundexception not_found notfounderror"
        ),
        prose=_prose(
            r"\bmodels?:? (?!is |was |has |does )[`'\"]?[\w./:@-]{1,100}[`'\"]? (?:is |was |has been |does )?"
            r"(?:not (?:found|supported|exist|available|a valid)|unknown|invalid|decommissioned|deprecated)",
            r"model identifier is invalid|(?:unknown|invalid|no such) model\b",
            r"not a valid model|model not (?:found|exist)",
        ),
    ),
    Rule(
        "auth",
        statuses=frozenset({403}),
        among=_REFUSED,
        words=_words(
            "invalid_api_key authentication_error api_key_invalid unauthenticated accessdeniedexception "
            "unrecognizedclientexception expiredtokenexception invalidsignatureexception permission_denied "
            "permission_error authenticationerror invalidapikey unauthorized"
        ),
        prose=_prose(
            r"api[ _]key (?:not valid|is (?:not valid|invalid|missing)|expired)",
            r"(?:invalid|incorrect|missing|no) api[ _]key|api_key client option must be set",
            r"did you forget to set|unable to locate credentials|missing credentials",
        ),
        names=_prose(r"NoCredentialsError|DefaultCredentialsError"),
    ),
    Rule(
        "rate_limited",
        statuses=frozenset({429}),
        among=frozenset({None, 400}),
        words=_words(
            "rate_limit_exceeded rate_limit_error rate_limited too_many_requests toomanyrequests "
            "throttlingexception throttling throttling.ratequota resource_exhausted ratelimiterror "
            "toomanyrequestsexception"
        ),
    ),
    Rule(
        "overloaded",
        statuses=frozenset({503, 529}),
        among=_NONE,
        words=_words(
            "overloaded_error overloaded engine_overloaded server_overloaded unavailable service_unavailable "
            "serviceunavailableexception slow_down modelnotreadyexception"
        ),
        prose=_prose(r"\boverloaded\b|temporarily unavailable|at capacity"),
    ),
    Rule(
        "timeout",
        statuses=frozenset({408, 504, 524, 598}),
        among=_NONE,
        words=_words("deadline_exceeded timeout timeout_error request_timeout modeltimeoutexception"),
        names=_prose(r".*Time(?:d)?out(?:Error|Exception)?"),
    ),
    Rule(
        "server_error",
        statuses=frozenset({409, 425, *range(500, 600)}) - {501, 505},
        among=_NONE,
        words=_words(
            "server_error api_error internal internal_error internal_server_error internalservererror "
            "internalserverexception modelstreamerrorexception modelerrorexception"
        ),
        prose=_prose(
            r"server had an error|internal (?:server )?error|error (?:occurred )?while processing",
            r"no generations? (?:chunks were returned|found in stream)",
            r"missing 'choices'|null value for 'choices'",
        ),
    ),
    Rule("bad_request", statuses=frozenset({*range(400, 500), 501, 505})),
    Rule(
        "bad_request",
        among=_NONE,
        words=_words("invalid_request_error validationexception invalid_argument badrequesterror invalid_value"),
    ),
    Rule(
        "connection",
        names=_prose(
            r"\w*Connect(?:ion)?\w*(?:Error|Exception)|(?:Transport|Network|Protocol|RemoteProtocol|Decoding)Error",
            r"IncompleteRead|ChunkedEncodingError|gaierror|Server\w+Error|ClientPayloadError|ContentDecodingError",
            r"(?:Broken|Closed)ResourceError|EndOfStream|EOFError|SSLError|JSONDecodeError|APIResponseValidationError",
            r"UnicodeDecodeError|UnsupportedProtocol|InvalidURL",
        ),
    ),
)
