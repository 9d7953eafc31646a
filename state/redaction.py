"""Keep secrets out of messages, logs and stored state: keys, tokens and passwords become `[redacted]`."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"
_DEEPEST = 64

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?"
)
# Prefixes that the issuers themselves give their keys, so that nothing has to be guessed.
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?:[A-Za-z0-9_*-]|\.(?=[A-Za-z0-9.*])){6,}"
    r"|(?:sk|rk|pk|whsec|gsk|hf|npm|r8|ghp|gho|ghu|ghs|ghr|github_pat|dop_v1|lsv2_pt|lsv2_sk|glsa|pcsk)_"
    r"[A-Za-z0-9_*]{16,}"
    r"|(?:xai|tvly|pplx|nvapi|glpat|pypi|csk|xox[abeoprs]|xapp)-[A-Za-z0-9_*-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9._-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]+)*"
    r")"
)
_USERINFO = re.compile(r"(?<=://)[^\s/?#@\"'<>]*:[^\s/?#\"'<>]*@")
_BEARER = re.compile(r"\b(bearer)\s+(?=[^\s\d]{0,64}\d|\S{24})[A-Za-z0-9._~+/=*-]{6,}", re.IGNORECASE)
_COOKIE = re.compile(
    r"\b((?:set-)?cookie[\"']?\s{0,8}:)(?!\s{0,8}[\"']?\[redacted\])(\s{0,8}[\"']?)[^\"'\n]+", re.IGNORECASE
)
_NAMES = (
    r"secret(?:[_-]?(?:access[_-]?)?key)?|(?:client|app|shared|consumer)[_-]?secret|pwd|pass(?:phrase|code)"
    r"|(?:x-)?api[_-]?(?:key|token|secret)"
    r"|(?:access|account|auth|encryption|master|private|signing|storage)[_-]?key"
    r"|(?:(?:access|refresh|auth|bearer|bot|csrf|id|oauth|session|security|user)[_-]?)?token|credentials?"
    r"|(?:proxy-)?authorization|connection[_-]?string|密码|口令|密钥|令牌"
)
_ASSIGNED = re.compile(
    # A name starts a word, follows `_` or starts a camelCase part; `password` counts at the end of any name.
    rf"(pass(?:word|wd)|(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))(?:{_NAMES}))"
    r"(\\?[\"']?\s{0,8}(?::|=>?|：)\s{0,8}(?:[A-Za-z_]\w{0,40}\((?=[\"']))?)"
    r"(?:(?:bearer|basic|digest|token|apikey)\s+)?"
    r"(?:(\\\")[^\"\\\n]+|(\")(?:[^\"\\\n]|\\.)+|(')(?:[^'\\\n]|\\.)+|[^\s\"'\\,;&]*[^\s\"'\\,;&)}\]])",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    rf"(?:[a-z0-9]+[ ._-])*(?:[a-z0-9]*pass(?:word|wd)|cookie|set-cookie|{_NAMES})", re.IGNORECASE
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDLESS = frozenset(
    {"none", "null", "true", "false", "required", "missing", "unset", "optional", "undefined", "redacted"}
)
_HEXADECIMAL = re.compile(r"(?<![A-Za-z0-9_])[0-9a-fA-F]{32,512}(?![A-Za-z0-9_])")
_DENSE = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{32,}={0,2}")


def redact(text: str) -> str:
    """Replace everything that looks like a credential by `[redacted]`; other text stays as it is.

    Covers keys with a known prefix, bearer tokens, Authorization and Cookie headers, `password=…`-like
    pairs in text, query strings, JSON and Python literals, passwords in URLs, private keys, and long random
    hexadecimal or base64 words. Idempotent, and linear in the length of the text.
    """
    for _ in range(4):  # a replacement can bring two halves of a pattern together, so until nothing changes
        cleaned = _pass(text)
        if cleaned == text:
            break
        text = cleaned
    return text


def _pass(text: str) -> str:
    if "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub(REDACTED, text)
    if "://" in text:
        text = _USERINFO.sub(REDACTED + "@", text)
    text = _ISSUED.sub(REDACTED, text)
    if ":" in text:
        text = _COOKIE.sub(rf"\1\2{REDACTED}", text)
    if ":" in text or "=" in text or "：" in text:
        text = _ASSIGNED.sub(_assigned, text)
    text = _BEARER.sub(rf"\1 {REDACTED}", text)
    text = _HEXADECIMAL.sub(_hexadecimal, text)
    return _DENSE.sub(_dense, text)


def redact_json(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON-like value: strings redacted, what stands under a secret's name replaced whole.

    The copy is for records and for people, never for running a call. Nesting deeper than 64 becomes
    `[redacted]`.
    """
    if isinstance(value, str):
        return redact(value)
    if depth > _DEEPEST:
        return REDACTED
    if isinstance(value, Mapping):
        return {key: _entry(str(key), item, depth) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(item, depth + 1) for item in value]
    return value


def secret_name(name: str) -> bool:
    """Whether a field of this name usually holds a secret: `api_key`, `DB_PASSWORD`, `X-Auth-Token`."""
    return len(name) <= 100 and _SECRET_NAME.fullmatch(_CAMEL.sub("_", name)) is not None


def _entry(name: str, value: Any, depth: int) -> Any:
    """Numbers stay, since `token: 5` counts tokens, unless the name says password."""
    hidden = isinstance(value, str | Mapping | list | tuple) or "pass" in name.lower()
    if value and hidden and not isinstance(value, bool) and secret_name(name):
        return REDACTED
    return redact_json(value, depth + 1)


def _assigned(match: re.Match[str]) -> str:
    name, separator, *quotes = match.groups()
    value = match.group()[len(name) + len(separator) :]
    quote = next((q for q in quotes if q), "")
    if value.strip("\\\"'[]").lower() in _WORDLESS:
        return match.group()
    return f"{name}{separator}{quote}{REDACTED}"


def _hexadecimal(match: re.Match[str]) -> str:
    word = match.group()
    return REDACTED if word.isalnum() and not word.isdecimal() and not word.isalpha() else word


def _dense(match: re.Match[str]) -> str:
    """Only words that look random: long, of mixed case, with digits. Paths, slugs, data and ids stay."""
    word = match.group()
    if len(word) > 512:
        return word
    chunk = max(re.split(r"[+/_=-]", word), key=len)
    digits = sum(c.isdigit() for c in chunk)
    mixed = any(c.isupper() for c in chunk) and any(c.islower() for c in chunk)
    return REDACTED if len(chunk) >= 20 and digits >= 3 and mixed else word
