"""Credentials in what tools return: shown to no model, stored nowhere.

Narrower than `redact`, which guards messages: a result is what a model works on, so hashes, ids, cursors and code
about passwords stay. What goes is what certainly is a credential.
"""

import re
from collections.abc import Mapping, Sequence

from donewhen.state.redaction import REDACTED, secret_name

_SHORTEST = 8
"""Characters of a known secret; shorter ones would be found by chance."""
_NAME = (
    r"pass(?:word|wd|phrase)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|client[_-]?secret"
    r"|api[_-]?(?:key|token|secret)|(?:access|account|auth|encryption|master|private|signing|storage)[_-]?key"
    r"|(?:access|refresh|auth|bearer|bot|session|id)[_-]?token|authorization"
)
_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?"
)
# Prefixes that the issuers themselves give their keys, and JSON web tokens.
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?:[a-z]{2,8}[0-9]{0,2}-){0,2}[A-Za-z0-9_]{16,}[A-Za-z0-9_-]*"
    r"|(?:sk|rk|pk|whsec|gsk|hf|npm|r8|ghp|gho|ghu|ghs|ghr|github_pat|dop_v1|lsv2_pt|lsv2_sk|glsa|pcsk)_"
    r"[A-Za-z0-9_]{16,}"
    r"|(?:xai|tvly|pplx|nvapi|glpat|pypi|csk|xox[abeoprs]|xapp)-[A-Za-z0-9_-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9._-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]+)*"
    r")"
)
_IN_URL = re.compile(r"(?<=://)([^\s/?#@:\"'<>{}$]{0,200}:)([^\s/?#@\"'<>{}$*]{1,200})(?=@)")
_HEADER = re.compile(r"\b(bearer|basic)(\s{1,8})([A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE)
_IN_JSON = re.compile(
    rf"((\\?\")[A-Za-z0-9_. -]{{0,40}}(?<![A-Za-z])(?:[a-z]{{1,20}}(?=[A-Z]))?(?:{_NAME})\2\s{{0,8}}:\s{{0,8}}\2)"
    r"([^\"\\\s]{6,512})(?=\2)",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    rf"(?<![\w$])([A-Z0-9_]{{0,60}}?(?:{_NAME.upper().replace('[_-]?', '_?')}|TOKEN)=[\"']?)([^\s\"'$<{{%]{{6,512}})"
)


def conceal(text: str, known: Sequence[str] = ()) -> str:
    """The text with credentials replaced by `[redacted]`; everything else stays as it is.

    Credentials are the `known` ones, wherever they stand; keys with an issuer's prefix, JSON web tokens and private
    keys; passwords in URLs; bearer and basic headers; and what looks random under a secret's name in JSON
    (`"api_key": "…"`) or as a variable (`API_KEY=…`). Linear in the length of the text.
    """
    for secret in known:
        text = text.replace(secret, REDACTED)
    if "PRIVATE KEY" in text:
        text = _KEY.sub(REDACTED, text)
    text = _ISSUED.sub(lambda found: REDACTED if _is_random(found.group()) else found.group(), text)
    if "://" in text:
        text = _IN_URL.sub(rf"\1{REDACTED}", text)
    text = _HEADER.sub(lambda found: _without(found, found[1] + found[2], found[3]), text)
    text = _IN_JSON.sub(lambda found: _without(found, found[1], found[3]), text)
    return _VARIABLE.sub(lambda found: _without(found, found[1], found[2]), text)


def known_secrets(variables: Mapping[str, str], *more: str | None) -> tuple[str, ...]:
    """The values of variables whose names say that they are secret, and `more`; longest first, no plain words."""
    named = [value.strip() for name, value in variables.items() if secret_name(name)]
    found = {value for value in (*named, *(each or "" for each in more)) if _is_secret(value)}
    return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))


def _is_secret(value: str) -> bool:
    """Long enough, and no word, number or path that a text might hold by chance."""
    return (
        len(value) >= _SHORTEST and not value.isalpha() and not value.isdecimal() and not value.startswith(("/", "~"))
    )


def _without(found: re.Match[str], before: str, value: str) -> str:
    return before + REDACTED if _is_random(value) else found.group()


def _is_random(value: str) -> bool:
    return any(each.isdigit() for each in value) and any(each.isalpha() for each in value)
