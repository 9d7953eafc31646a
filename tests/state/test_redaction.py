"""Secrets never reach a message or a record: what must go, what must stay, and how fast."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.redaction import REDACTED, redact, redact_json, secret_name

SECRETS = [
    ("Incorrect API key provided: sk-proj-abc***xyz9. You can", "sk-proj", "Incorrect API key provided:"),
    ("key sk-ant-api03-AbCdEf_1234 was refused", "AbCdEf", "was refused"),
    ("Authorization: Bearer abc", "abc", "Authorization:"),
    ("Authorization: Basic dXNlcjpwYXNz", "dXNl", "Authorization:"),
    ("{'Authorization': 'Bearer foo bar'}", "foo", "{'Authorization': '"),
    ("got Bearer abcdef1234 back", "abcdef", "back"),
    ('{"password": "hunter 2", "x": 1}', "hunter", '"x": 1}'),
    ('{\\"password\\": \\"hunter2\\", \\"x\\": 1}', "hunter2", '\\"x\\": 1}'),
    ('{"a": 1, "password": 12345}', "12345", '"a": 1'),
    ("(password=hunter2)", "hunter2", "(password="),
    ("PGPASSWORD=hunter2 psql", "hunter2", " psql"),
    ("userPassword=hunter2;", "hunter2", "userPassword="),
    ("api_key=SecretStr('abcdef')", "abcdef", "')"),
    ("API_KEY=foo DB_PASSWORD='b c' next", "b c", " next"),
    ("accessToken: xyz9", "xyz9", "accessToken: "),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr", "aws_secret"),
    ("密码：秘密123", "秘密123", "密码："),
    ("Set-Cookie: sid=abc123; Path=/", "abc123", "Set-Cookie:"),
    ("postgresql://user:p@ss@host/db?x=1", "p@ss", "@host/db?x=1"),
    ("https://a.b/c?api_key=abcdef&page=2", "abcdef", "&page=2"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def end", "eyJ", " end"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY----- tail", "MIIabc", " tail"),
    ("AKIAIOSFODNN7EXAMPLE leaked", "AKIA", " leaked"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "AIza", ""),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_", ""),
    ("digest d41d8cd98f00b204e9800998ecf8427e.", "d41d8", "digest "),
    ("word Zk8Qm3Tn5Rb7Wc2Xd9Vf4Lg6Hj1Ps0Ya", "Zk8Q", "word "),
]


@pytest.mark.parametrize(("text", "secret", "kept"), SECRETS, ids=[case[0][:24] for case in SECRETS])
def test_secrets_go_and_the_rest_stays(text: str, secret: str, kept: str) -> None:
    """F8: a secret in an error or an argument is not stored."""
    cleaned = redact(text)
    assert secret not in cleaned
    assert REDACTED in cleaned
    assert kept in cleaned
    assert redact(cleaned) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 100, tokens=5, token budget exceeded",
        "the bearer token is missing; Bearer authentication failed",
        "password: required",
        "password = None",
        "compass: north, bypass=yes, monkey: banana",
        "call_2e5baf1ac3b8436fb0cc959397f68f04 for s2.3 of run 0f8fad5b-d9cd-469f-a165-70867728950e",
        "/usr/lib/python3.11/site-packages/Some/VeryLong/Path/here1/other.py",
        "https://user@host/path and http://localhost:8000/v1",
        "this-is-a-long-slug-of-2024-with-many-words-in-it-and-more",
        "sk-learn, the city of 東京 and an emoji 🙂",
    ],
)
def test_ordinary_text_is_untouched(text: str) -> None:
    assert redact(text) == text


PIECES = st.sampled_from(
    [
        "password",
        "=",
        ":",
        " ",
        '"',
        "'",
        "\\",
        "[redacted]",
        "sk-",
        "Bearer ",
        "://",
        "@",
        "cookie: ",
        "(",
        ")",
    ]
)


@given(st.lists(PIECES | st.text(max_size=6), max_size=14).map("".join))
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "0123456789abcdef",
        "://",
        "://a:",
        "password=",
        "password ",
        'token:"',
        "eyJaaaaaaaa.aaaa.",
        "a_)",
    ],
)
def test_a_megabyte_is_quick(unit: str) -> None:
    """F8: linear in the length, also for text made to be slow."""
    text = unit * (1_000_000 // len(unit))
    started = time.process_time()
    redact(text)
    assert time.process_time() - started < 4


def test_arguments_are_redacted_by_name_and_by_content() -> None:
    arguments = {
        "apiKey": "x",
        "nested": [{"DB_PASSWORD": "p", "token": 5, "password": 1234, "credentials": {"a": 1}}],
        "text": "password=abc",
        "secret": "",
        "flag": True,
        "monkey": "banana",
    }
    cleaned = redact_json(arguments)
    assert cleaned == {
        "apiKey": REDACTED,
        "nested": [{"DB_PASSWORD": REDACTED, "token": 5, "password": REDACTED, "credentials": REDACTED}],
        "text": f"password={REDACTED}",
        "secret": "",
        "flag": True,
        "monkey": "banana",
    }
    assert arguments["apiKey"] == "x"
    assert redact_json(cleaned) == cleaned


def test_endless_nesting_is_cut() -> None:
    deep: list[object] = []
    deep.append(deep)
    assert REDACTED in str(redact_json(deep))


def test_names_of_secrets() -> None:
    assert all(secret_name(name) for name in ("api_key", "X-Api-Key", "clientSecret", "PGPASSWORD", "Set-Cookie"))
    assert not any(secret_name(name) for name in ("key", "tokens", "monkey", "path", "passage", "x" * 5000))
