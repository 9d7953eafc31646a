"""Remove credentials from texts, at two levels. `conceal` is for texts that models work on: it removes only certain
credentials. `redact` is for logs, providers' errors and records: it also removes values under a secret's name.

These are certain credentials: values known to be secret; keys in an issuer's form or with its checksum, web tokens and
private keys; passwords in URLs and netrc files; bearer and basic headers; random values under a secret's name
(`"api_key": "…"`); values that are not words under a password's name; and the whole value of such a variable on its own
line (`DB_PASSWORD=…`). A number under `authorization` or a path under `storage_key` is not one.
Both levels take time linear in the length of the text.

Known values are found in every spelling that a program makes of them (`state.spellings`). They are removed at two
borders: from what tools return, before it is stored; and from all that leaves a run, which is events, logs, receipts,
recordings, spans and news.
"""

import json
import re
import string
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from donewhen.state.pattern import pattern
from donewhen.state.spellings import PIECE, beginnings, find_known, scan
from donewhen.state.spellings import places as _places

REDACTED = "[redacted]"
SHORTEST = 8
"""The least characters of a known secret; shorter ones would match by chance."""
SHOWN = 3
"""The most characters of a secret in a stream that are shown before it is recognized."""
CONTEXT = 8_192
"""Characters around a part of a text that are read to recognize credentials in it."""
_DEEPEST = 64
_CAUSES = 16
Span = tuple[int, int]

_LOWER = {upper: upper + 32 for upper in range(65, 91)}
_PEM = pattern(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*(?:-----END [A-Z ]{0,32}PRIVATE KEY-----)?")
# Prefixes that the issuers themselves give their keys, so that nothing has to be guessed.
_PREFIXES = (
    "sk-", "sk_", "rk_", "pk_live_", "pk_test_", "whsec_", "gsk_", "hf_", "npm_", "r8_", "ghp_", "gho_", "ghu_",
    "ghs_", "ghr_", "github_pat_", "dop_v1_", "lsv2_pt_", "lsv2_sk_", "glsa_", "pcsk_", "xai-", "tvly-", "pplx-",
    "nvapi-", "glpat-", "pypi-", "csk-", "xoxa-", "xoxb-", "xoxe-", "xoxo-", "xoxp-", "xoxr-", "xoxs-", "xapp-",
    "AKIA", "ASIA", "AIza", "ya29.", "SG.", "eyJ",
)  # fmt: skip
_ISSUED = pattern(
    r"(?<![A-Za-z0-9_-])(?<!sha256=)(?<!sha384=)(?<!sha512=)(?:sk-(?:[a-z]{2,8}[0-9]{0,2}-){0,2}[A-Za-z0-9_]{16,}[A-Za-z0-9_-]*"
    r"|(?![prs]k_)[a-z][a-z0-9_]{1,11}_[A-Za-z0-9_]{16,}|[prs]k_(?:live|test)_[A-Za-z0-9]{16,}|sk_[0-9a-f]{40,}|[a-z]{3,5}-[A-Za-z0-9_-]{16,}"
    r"|A(?:KI|SI)A[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9._-]{16,}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]+)*)"
)
_WORDS = pattern(r"[A-Za-z]{0,15}\d{0,4}(?:[-_.][A-Za-z]{0,15}\d{0,4})*")
"""Names that begin like a key: `pk_rsaSSA_PSS_SHAKE128`, `pplx-decider-flash-v1`."""
_CHECKED = pattern(r"(?:gh[oprsu]|npm)_([A-Za-z0-9]{30})([A-Za-z0-9]{6})")
"""Keys of GitHub and npm: a random part and its CRC-32 in base 62."""
_BASE62 = string.digits + string.ascii_uppercase + string.ascii_lowercase
_DIGIT, _LETTER = pattern(r"\d"), pattern(r"[^\W\d_]")
_PARTS = pattern(r"[^A-Za-z0-9]+")
_CHANGES = pattern(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
"""Changes between small letters, capitals and digits: rare in names, dates and numbers, frequent in random text."""
_UNBROKEN = pattern(r"[A-Za-z0-9_-]{16,}")
_PLACEHOLDER = pattern(
    r"\A(?:your[-_][a-z_-]+|[\w-]*(?:\.{3}|…)|x{3,}|[a-z_-]*(?:placeholder|example)[a-z_-]*)", re.IGNORECASE
)
_MASKED = pattern(r"(?<![A-Za-z0-9])(?<!sha256=)(?<!sha384=)(?<!sha512=)sk-(?:[A-Za-z0-9_*-]|\.(?=[A-Za-z0-9.*])){6,}")
_IN_URL = pattern(r"(?<=://)[^\s/?#@:\"'<>{}$]{0,200}:([^\s/?#\"'<>{}$*]{1,200})(?=@)")
_NETRC = pattern(r"\b(?:login|machine|account)\s{1,8}\S{1,200}\s{1,8}password\s{1,8}(\S{1,200})")
_HEADER = pattern(r"(?:bearer|basic)\s{1,8}([A-Za-z0-9._~+/=*-]{6,})", re.IGNORECASE)
_STEM = pattern(
    r"pass(?:word|wd|phrase|code)|pwd|secret|token|(?:api|access|account|auth|encryption|master|private|signing|storage"
    r"|secret)[_-]?(?:access[_-]?)?key|authorization|credentials?|cookie|connection[_-]?string|密码|口令|密钥|令牌"
)
_STEMS = (
    *("pass", "pwd", "secret", "token", "key", "authorization", "credential", "cookie", "connection"),
    *("密码", "口令", "密钥", "令牌"),
)
"""Every stem contains one of these; searching for them is fifty times as fast."""
_NAME = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_SETS = pattern(
    r"(?:_(?:\d{1,3}|base|prod|dev|live|test))?(\\?[\"'])?(\s{0,8})(:|=>?|：)(\s{0,8})"
    r"(?:[A-Za-z_]\w{0,40}\((?=[\"']))?(\\?[\"'])?",
    re.IGNORECASE,
)
_LEAD = pattern(r"(?:export |set |ENV )?[ \t]*\Z")
_CAMEL = pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_KEYS = ("api", "access", "account", "auth", "encryption", "master", "private", "signing", "storage", "secret")
_PASSWORDS = frozenset(("password", "passwd", "passphrase", "pwd"))
_CERTAIN = _PASSWORDS | frozenset(
    ["secret", "authorization", "apitoken", "secretaccesskey"]
    + [f"{word}key" for word in _KEYS]
    + [f"{word}token" for word in ("access", "refresh", "auth", "bearer", "bot", "session", "id")]
)
_WIDE = _CERTAIN | {"passcode", "token", "credential", "credentials", "cookie", "connectionstring", "密码", "口令"}
_WIDE = _WIDE | {"密钥", "令牌"}
_WORDLESS = frozenset(("none", "null", "true", "false", "required", "missing", "unset", "redacted", "changeme"))


def conceal(text: str, values: Sequence[str] = ()) -> str:
    """Return the text with recognized credentials replaced by `[redacted]`; everything else is unchanged."""
    return _remove_spans(text, _find_credentials(text, values))


def conceal_part(text: str, start: int, end: int) -> str:
    """Return a part of a text with the credentials of the full text replaced, including those cut by the part."""
    within = [(max(a, start), min(b, end)) for a, b in _find_credentials(text, ()) if a < end and b > start]
    return _remove_spans(text[start:end], [(a - start, b - start) for a, b in within])


def hide_known(value: Any, secrets: Sequence[str]) -> Any:
    """Return a JSON-like copy without the known secrets, also in keys; everything else is unchanged."""
    if isinstance(value, str):
        return _remove_spans(value, find_known(value, secrets))
    if not secrets or not _mentions(value, secrets):
        return value
    return _hide(value, secrets, 0)


def _mentions(value: Any, secrets: Sequence[str]) -> bool:
    """Return whether a value may contain one of the secrets; nearly always it contains none."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, TypeError, RecursionError):
        return True
    return bool(find_known(text, secrets))


def _hide(value: Any, secrets: Sequence[str], depth: int) -> Any:
    if isinstance(value, str):
        return _remove_spans(value, find_known(value, secrets))
    if depth > _DEEPEST:
        return REDACTED
    if isinstance(value, Mapping):
        return {_hide(key, secrets, depth): _hide(item, secrets, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return (
            type(value)([_hide(item, secrets, depth + 1) for item in value]) if type(value) in (list, tuple) else value
        )
    return value


def hide_in_error(error: BaseException | None, secrets: Sequence[str]) -> None:
    """Hide known secrets in the words of an exception, and of those that caused it."""
    for _ in range(_CAUSES):
        if error is None or not secrets:
            return
        if (args := hide_known(error.args, secrets)) != error.args:
            error.args = args
        error = error.__cause__ or error.__context__


class SecretStream:
    """Hides known secrets in a text that comes in pieces: what may be the beginning of one is held back.

    The first characters of a secret may be shown; they say nothing.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._shown = ""
        self._pending = ""

    def add(self, piece: str) -> str:
        """Return what can be shown now."""
        text = self._shown + self._pending + piece
        spans, start = find_known(text, self._secrets), len(self._shown)
        end = max(start, len(text) - self._open(text))
        end = min([end, *(max(start, a) for a, b in spans if a < end < b)])  # it may go on as a longer one
        shown = _remove_spans(text[start:end], [(max(0, a - start), b - start) for a, b in spans if b > start])
        self._shown, self._pending = text[max(0, end - SHOWN) : end], text[end:]
        return shown

    def rest(self) -> str:
        """Return what is still held back, at the end of the text."""
        pending, self._pending = self._pending, ""
        shown = _remove_spans(pending, find_known(pending, self._secrets))
        return REDACTED if shown == pending and len(pending) >= SHORTEST else shown

    def _open(self, text: str) -> int:
        """Return the length of the end of a text that may be the beginning of a secret."""
        for secret in beginnings(tuple(self._secrets)):
            at = text.find(secret[: SHOWN + 1], max(0, len(text) - len(secret) + 1))
            while at >= 0:
                if secret.startswith(text[at:]):
                    return len(text) - at
                at = text.find(secret[: SHOWN + 1], at + 1)
        return 0


def redact(text: str) -> str:
    """Do as `conceal`, and also remove everything under a secret's name or in a cookie header. Idempotent."""
    for _ in range(4):  # a replacement can bring two halves of a pattern together, so until nothing changes
        cleaned = _remove_spans(text, _find_credentials(text, (), wide=True))
        if cleaned == text:
            break
        text = cleaned
    return text


def redact_json(value: Any) -> Any:
    """Return a JSON-like copy for records: texts redacted, values under a secret's name replaced as a whole."""
    return _json(value, redact, _WIDE)


def conceal_json(value: Any) -> Any:
    """Return a JSON-like copy for readers who need the actual call: only recognized credentials are removed."""
    return _json(value, conceal, _CERTAIN)


def is_secret_name(name: str) -> bool:
    """Return whether a field of this name usually has a secret: `api_key`, `DB_PASSWORD`, `X-Auth-Token`."""
    return _names_secret(name, _WIDE)


def known_secrets(variables: Mapping[str, str], *more: str | None) -> tuple[str, ...]:
    """Return the values of variables with secret names, and `more`; longest first, without common words."""
    named = [value.strip() for name, value in variables.items() if is_secret_name(name)]
    secrets = {value for value in (*named, *(each or "" for each in more)) if _is_secret(value)}
    return tuple(sorted(secrets, key=lambda secret: (-len(secret), secret)))


def _is_secret(value: str) -> bool:
    """Return whether a value is long enough, and not a word, number or path that a text may contain by chance."""
    plain = value.isalpha() or value.isdecimal() or value.startswith(("/", "~"))
    return len(value) >= SHORTEST and not plain


def _remove_spans(text: str, spans: Sequence[Span]) -> str:
    if not spans:
        return text
    parts, position = list[str](), 0
    for start, end in sorted(span for span in spans if span[0] < span[1]):
        if end <= position:
            continue
        if start > position or (start == position and not parts):
            parts += [text[position:start], REDACTED]
        position = end
    return "".join([*parts, text[position:]]) if parts else text


def _find_credentials(text: str, secrets: Sequence[str], *, wide: bool = False) -> list[Span]:
    lower = _lower(text)
    spans = find_known(text, secrets)
    if "PRIVATE KEY" in text:
        spans += [match.span() for match in _PEM.finditer(text)]
    for prefix in (each for each in _PREFIXES if each in text):
        ended = 0
        for start, _ in _places(text, prefix):
            if start >= ended and (match := _ISSUED.match(text, start)):
                ended = match.end()
                spans += [match.span()] if _is_issued(match[0]) else []
    if "://" in text:
        spans += [match.span(1) for match in scan(_IN_URL, text, 500) if match[1] != REDACTED]
    if "password" in text:
        spans += [match.span(1) for match in scan(_NETRC, text, 500) if match[1] != REDACTED]
    if "bearer" in lower or "basic" in lower:
        spans += _headers(text, lower, 6 if wide else 12)
    if any(stem in lower for stem in _STEMS):
        spans += [
            span for level in ((False, True) if wide else (False,)) for span in _find_assigned(text, lower, wide=level)
        ]
    if wide and "sk-" in text:
        spans += [match.span() for match in _MASKED.finditer(text)]
    return spans


def _lower(text: str) -> str:
    """Return the text with small letters in the same places."""
    if len(lower := text.lower()) == len(text):
        return lower
    return "".join(text[at : at + PIECE].translate(_LOWER) for at in range(0, len(text), PIECE))


def _headers(text: str, lower: str, shortest: int) -> Iterator[Span]:
    for word in ("bearer", "basic"):
        for start, _ in _places(lower, word):
            match = None if text[start - 1 : start].isalnum() else _HEADER.match(text, start)
            if match and len(match[1]) >= shortest and (_is_random(match[1]) or len(match[1]) >= 24):
                yield match.span(1)


def _find_assigned(text: str, lower: str, *, wide: bool) -> Iterator[Span]:
    """Yield values assigned to a secret's name."""
    ended = 0
    for stem in scan(_STEM, lower, 100):
        if stem.start() < ended:
            continue
        sets = _SETS.match(text, stem.end())
        if sets is None:
            continue
        before = text[max(0, stem.start() - 60) : stem.start()]
        before = before[len(before.rstrip(_NAME)) :]
        name = before + text[stem.start() : stem.end()]
        span = (_wide_value if wide else _certain_value)(text, sets, name, stem.start() - len(before))
        if span and text[span[0] : span[1]].strip("\\\"'[]").lower() not in _WORDLESS:
            ended = span[1]
            yield span


_ENDS = {
    '"': re.compile(r'(?:[^"\\\n]|\\.){1,4096}'),
    "'": re.compile(r"(?:[^'\\\n]|\\.){1,4096}"),
    '\\"': re.compile(r'[^"\\\n]{1,4096}'),
    "\\'": re.compile(r"[^'\\\n]{1,4096}"),
}
_BARE = pattern(r"(?:(?:bearer|basic|digest|token|apikey)\s{1,8})?[^\s\"'\\,;&]{0,512}[^\s\"'\\,;&)}\]]", re.IGNORECASE)
_LINE = pattern(r"[^\n\"']{1,4096}")
_WORD = pattern(r"[^\s\"']{1,4096}")
_PLAIN = pattern(r"[^\s\"'$<{%(),;&]{6,512}(?![^\s\"',;&])")


def _wide_value(text: str, sets: re.Match[str], name: str, start: int) -> Span | None:
    """Return the value under a secret's name, unless it is a plain word, which there is prose or code."""
    if not _names_secret(name, _WIDE):
        return None
    quote, sign, called = sets[5] or "", sets[3], name.lower()
    match = (_LINE if "cookie" in called else _ENDS[quote] if quote else _BARE).match(text, sets.end())
    if match is None or not any(map(str.isalnum, match[0])):
        return None
    if quote or _is_random(match[0]) or called.endswith(("authorization", "cookie")):
        return match.span()
    word = match[0]
    password = "pass" in called and (word.isalnum() and word.lower() != called if sign == "=" else word.isdecimal())
    set_to = sign == "=" and (name.isupper() or text[start - 1 : start] in ("?", "&"))  # of a variable, of a query
    return match.span() if password or set_to else None


def _certain_value(text: str, sets: re.Match[str], name: str, start: int) -> Span | None:
    """Return the value under a secret's name if it certainly is a credential."""
    quote, sign = sets[5] or "", sets[3]
    variable = name.isupper() and sign == "=" and not (sets[2] or sets[4] or sets[1])
    if not _names_secret(name, _CERTAIN) and not (variable and name.endswith("TOKEN")):
        return None
    line = text.rfind("\n", max(0, start - 100), start)
    alone = (line >= 0 or start <= 100) and _LEAD.match(text, line + 1, start) is not None
    if variable and alone:
        match = (_ENDS[quote] if quote else _WORD).match(text, sets.end())
        whole = match[0].strip() if match else ""
        plain = not whole or whole[0] in "$<{%/~" or (name.endswith("TOKEN") and whole.isdecimal())
        return None if match is None or plain or "(" in whole or _PLACEHOLDER.fullmatch(whole) else match.span()
    match = (_ENDS[quote] if quote else _PLAIN).match(text, sets.end())
    drawn = _is_random if _names_secret(name, _PASSWORDS) else _is_random_value
    if match is None or not drawn(match[0]) or not 6 <= len(match[0]) <= 512 or " " in match[0]:
        return None
    certain = (
        sign == "=" or (bool(sets[1]) and bool(quote)) or (alone and not text[match.end() : match.end() + 1].strip())
    )
    path = match[0][0] in "/~" and not _is_random_value(match[0])
    return match.span() if certain and not path else None


@lru_cache(maxsize=256)
def _names_secret(name: str, names: frozenset[str]) -> bool:
    if not 0 < len(name) <= 100:
        return False
    words = [word for word in re.split(r"[\W_]+", _CAMEL.sub("_", name).lower()) if word]
    if words[-2:-1] and words[-1] == "token" and words[-2] in ("page", "next", "continuation", "sync"):
        return False
    ends = {"".join(words[-count:]) for count in (1, 2, 3)}
    return bool(ends & names) or (bool(words) and words[-1].endswith(("password", "passwd")))


def _is_random(value: str) -> bool:
    return _DIGIT.search(value) is not None and _LETTER.search(value) is not None


def _is_random_value(value: str) -> bool:
    """Return whether a text has the entropy of a credential, unlike numbers, dates, names and most paths."""
    parts = [(len(part), len(_CHANGES.findall(part))) for part in _PARTS.split(value)]
    size, mixed = sum(size for size, _ in parts), sum(size for size, changes in parts if changes >= max(2, 0.15 * size))
    if mixed >= 12 and 2 * mixed >= size:
        return True
    return sum(changes for _, changes in parts) >= 0.25 * size and _UNBROKEN.fullmatch(value) is not None


def _is_issued(key: str) -> bool:
    """Return whether a text in an issuer's form is a key: its checksum is right, or it is not a known name."""
    return (_is_random(key) and not _WORDS.fullmatch(key)) or _is_random_value(key) or _has_checksum(key)


def _has_checksum(key: str) -> bool:
    if (match := _CHECKED.fullmatch(key)) is None:
        return False
    left, digits = zlib.crc32(match[1].encode()), ""
    for _ in match[2]:
        left, digit = divmod(left, len(_BASE62))
        digits = _BASE62[digit] + digits
    return digits == match[2]


def _json(
    value: Any, clean: Callable[[str], str], names: frozenset[str], *, secret: bool = False, depth: int = 0
) -> Any:
    """Return the value without credentials; with `secret` it is the value of a secret's name."""
    if isinstance(value, str):
        return REDACTED if secret and _is_random_value(value) else clean(value)
    if depth > _DEEPEST:
        return REDACTED
    below = partial(_json, clean=clean, names=names, depth=depth + 1)
    if isinstance(value, Mapping):
        named = {"value": str(value.get("argument", "value"))}  # a row on the value of an argument
        return {
            key: REDACTED
            if item and not isinstance(item, bool) and _names_secret(named.get(key, str(key)), _PASSWORDS)
            else below(item, secret=secret or _names_secret(named.get(key, str(key)), names))
            for key, item in value.items()
        }
    return [below(item, secret=secret) for item in value] if isinstance(value, list | tuple) else value
