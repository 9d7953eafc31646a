"""Known secrets in every spelling that programs make of them; what only looks like one; and how fast (Q103, R18)."""

import base64
import csv
import html
import io
import json
import shlex
import time
from collections.abc import Callable
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.secrets import REDACTED, SecretStream, conceal, hide_in_error, hide_known, known_secrets
from donewhen.state.spellings import find_known
from tests.state.harmless import HARMLESS

SECRETS = (
    "Zq8xW1nT7vLk93PsRb",
    'p@ss/w"ord\\x9&<k',
    "Geheimnis-ß-2026-ü9",
    "line-one-77\nline-two-88xx",
    'it\'s a "q" $x\\\\y',
    "😀abc!#defg€",
    '\\\\"\\"end1\\',
    "a b  c%d+e=&f",
    "-----BEGIN KEY-----\r\nMIIabc+/9\r\nzz==\r\n-----END KEY-----",
)


def _in_csv(secret: str) -> str:
    written = io.StringIO()
    csv.writer(written).writerow([1, secret, 2])
    return written.getvalue()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "JSON": lambda secret: json.dumps({"a": [secret]}, ensure_ascii=False),
    "ASCII JSON": lambda secret: json.dumps({secret: 1}),
    "JSON in JSON in JSON": lambda secret: json.dumps(json.dumps(json.dumps(secret))),
    "JSON for HTML": lambda secret: (
        json.dumps(secret).replace("&", "\\u0026").replace("<", "\\u003C").replace("/", "\\/")
    ),
    "a path of a URL": quote,
    "a part of a URL": lambda secret: f"postgres://u:{quote(secret, safe='')}@h/db",
    "a query": quote_plus,
    "a URL in a URL": lambda secret: quote(quote(secret, safe=""), safe=""),
    "JSON in a URL": lambda secret: quote(json.dumps(secret), safe=""),
    "HTML": html.escape,
    "HTML in HTML": lambda secret: html.escape(html.escape(secret)),
    "JSON in an attribute": lambda secret: html.escape(json.dumps(secret)),
    "XML in ASCII": lambda secret: secret.encode("ascii", "xmlcharrefreplace").decode(),
    "repr": lambda secret: repr({secret: [secret]}),
    "repr of bytes": lambda secret: repr(secret.encode()),
    "an escape of Python": lambda secret: secret.encode("unicode_escape").decode(),
    "a quoted word": shlex.quote,
    "escaped by a shell": lambda secret: "".join(
        each if each.isalnum() or each in "\r\n" else f"\\{each}" for each in secret
    ),
    "basic authentication": lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
    "base64, at another place": lambda secret: base64.b64encode(f"us:{secret}\n".encode()).decode(),
    "base64 of a URL": lambda secret: base64.urlsafe_b64encode(f":{secret}".encode()).decode(),
    "CSV": _in_csv,
    "SQL": lambda secret: "'{}'".format(secret.replace("'", "''")),
    "YAML": lambda secret: yaml.safe_dump({"k": secret}, width=10_000),
    "a block of YAML": lambda secret: yaml.safe_dump({"k": {"l": secret}}, default_style="|"),
    "other line ends": lambda secret: secret.replace("\r", "").replace("\n", "\r\n"),
    "one line": lambda secret: " ".join(secret.split()),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_known_secret_is_found_in_every_spelling(name: str) -> None:
    """R18, Q103: whatever a program makes of a secret, it goes; what stands around it stays."""
    for secret in SECRETS:
        shown = conceal(f"before {SPELLINGS[name](secret)} after", known_secrets({"SHOP_API_KEY": secret}))
        assert (REDACTED in shown, shown[:7], shown[-6:]) == (True, "before ", " after"), secret
        assert secret not in shown
        assert max(secret.split(), key=len)[1:-1] not in shown


def test_two_secrets_in_one_text_go_with_a_long_one() -> None:
    """R18: secrets that overlap, repeat, or are long leave nothing of themselves."""
    long = "".join(f"{number * 7919:x}/\n" for number in range(2_000))
    known = known_secrets({"A_TOKEN": "abcd-1234-efgh", "B_TOKEN": "1234-efgh-5678", "C_KEY_SECRET": long})
    shown = conceal(f"abcd-1234-efgh-5678 and {json.dumps(long.strip())} and abcd-1234-efgh", known)
    assert shown == f'{REDACTED} and "{REDACTED}" and {REDACTED}'


def test_what_only_looks_like_a_secret_is_never_touched() -> None:
    """R18: 200 outputs without credentials, and relatives of the secrets themselves, stay as they are."""
    alike = [secret[:-1] for secret in SECRETS] + [secret.swapcase() for secret in SECRETS]
    texts = [*map(str, HARMLESS), *alike, *("%2f%25 &amp; \\\\ \\n" * 50 for _ in SECRETS)]
    assert [text for text in texts if find_known(text, SECRETS[:4])] == []


def test_keys_and_values_at_any_depth_are_hidden() -> None:
    """R18: keys too; a value that mentions none is handed on as it is."""
    key, other = SECRETS[0], SECRETS[1]
    value = {"a": [{f"x{key}": 1}, (f"{other}!", 2.5, None, True)], "b": "fine"}
    assert hide_known(value, SECRETS) == {"a": [{f"x{REDACTED}": 1}, (f"{REDACTED}!", 2.5, None, True)], "b": "fine"}
    fine = {"a": [1, {"b": "c"}]}
    assert hide_known(fine, SECRETS) is fine


def test_the_words_of_exceptions_and_of_their_causes_are_hidden() -> None:
    """R18: also of one that another raised."""
    cause, error = ConnectionError(f"key {SECRETS[0]}", 5), ValueError(f"no: {SECRETS[1]!r}")
    error.__cause__ = cause
    hide_in_error(error, SECRETS)
    assert (error.args, cause.args) == ((f"no: '{REDACTED}'",), (f"key {REDACTED}", 5))


@given(
    st.lists(st.sampled_from([*SECRETS[:5], "Zq8x", "fine words", "line-one-77", " ", "p@ss"]), max_size=6).map(
        "".join
    ),
    st.lists(st.integers(0, 60), max_size=12),
)
def test_pieces_of_a_text_show_no_secret_that_they_split(text: str, cuts: list[int]) -> None:
    """R18: however a stream is cut, its pieces join to the text without the secrets, but for their beginnings."""
    stream, shown, places = SecretStream(SECRETS), "", sorted({0, *cuts, len(text)})
    for start, end in pairwise(places):
        shown += stream.add(text[start:end])
    shown += stream.rest()
    for secret in SECRETS:
        assert secret not in shown
        assert secret[4:] not in shown
    if not find_known(text, SECRETS):
        assert shown.replace(REDACTED, "") in text or shown == text
    assert len(shown) <= len(text) + len(REDACTED) * 8


def test_a_stream_without_secrets_is_handed_on_at_once() -> None:
    """E3: nothing is held that cannot become a secret."""
    stream = SecretStream(SECRETS)
    pieces = ["It ", "costs ", "Zq", " 12.50", " line", "-up", "\n"]
    assert [stream.add(piece) for piece in pieces] == ["It ", "costs ", "Zq", " 12.50", " ", "line-up", "\n"]
    assert stream.rest() == ""


@pytest.mark.parametrize(
    "unit", ["The quick brown fox costs 12.50 EUR. ", "\\", "%25", "&amp;", "p@ss/w", " ", "line-one-77\n", '"']
)
def test_a_long_text_takes_no_longer_than_its_length(unit: str) -> None:
    """R18: linear, also where a text is made to be slow: four times the length, less than eight times the time."""
    known = [*SECRETS, *(f"Key{number}-AbCd{number * 7919}x" for number in range(10))]
    find_known("", known)

    def measured(size: int) -> float:
        text, started = unit * (size // len(unit)), time.thread_time()
        find_known(text, known)
        return time.thread_time() - started

    small, large = min(measured(100_000) for _ in range(3)), min(measured(400_000) for _ in range(3))
    assert large < 8 * small + 0.02
