"""Secrets: what must go from what models see, and from logs and records; what must stay, and how fast."""

import base64
import json
import random
import string
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import StructuredTool

from donewhen.agent.config import read_config
from donewhen.agent.workspace import workspace_tools
from donewhen.graph.tools.call import ToolCall, call_tool
from donewhen.state.secrets import REDACTED, conceal, conceal_json, known_secrets, redact, redact_json
from tests.state.harmless import HARMLESS

DRAWN = "q1W2e3R4t5y6U7i8"
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
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", "AIza", ""),
]
"""What logs and records leave out besides `CREDENTIALS`: also what only may be a secret."""


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


PIECES = st.sampled_from([
    "password", "=", ":", " ", "\"", "'", "\\", "[redacted]", "sk-", "Bearer ", "://", "@", "cookie: ", "(", ")",
])  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=6), max_size=14).map("".join))
def test_redacting_twice_changes_nothing(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize("level", [conceal, redact])
def test_a_long_text_is_quick(level: Any) -> None:
    """F8: linear in the length, also for text made to be slow."""
    units = (
        'a 0123456789abcdef :// ://a: password= token:" eyJaaaaaaaa.aaaa. a_) " "api_key":" API_KEY= A_ sk- eyJ ://a:b@'
    )
    for unit in [*units.split(), "password ", "bearer ", "-----BEGIN A"]:
        started = time.process_time()
        level(unit * (60_000 // len(unit)))
        assert time.process_time() - started < 2, unit


def test_arguments_are_redacted_by_name_and_by_content() -> None:
    arguments = {
        "apiKey": DRAWN,
        "nested": [{"DB_PASSWORD": "p", "token": 5, "password": 1234, "credentials": {"a": [1, DRAWN]}}],
        "text": "password=abc",
        "secret": "",
        "flag": True,
        "monkey": "banana",
    }
    cleaned = redact_json(arguments)
    assert cleaned == {
        "apiKey": REDACTED,
        "nested": [{"DB_PASSWORD": REDACTED, "token": 5, "password": REDACTED, "credentials": {"a": [1, REDACTED]}}],
        "text": f"password={REDACTED}",
        "secret": "",
        "flag": True,
        "monkey": "banana",
    }
    assert arguments["apiKey"] == DRAWN
    assert redact_json(cleaned) == cleaned


def test_endless_nesting_is_cut() -> None:
    deep: list[object] = []
    deep.append(deep)
    assert REDACTED in str(redact_json(deep))


# What models see ----------------------------------------------------------------------------------------------------

KEY = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8t"
CREDENTIALS = [
    (f"the key is {KEY}.", KEY),
    ("sk-ant-api03-AbCdEfGh1234567890_x-y", "AbCdEf"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
    ("AKIAIOSFODNN7EXAMPLE leaked to the end", "AKIA"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def to the end", "eyJ"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY----- to the end", "MIIabc"),
    ("postgresql://user:hunter2@host/db", "hunter2"),
    ("Authorization: Bearer abcdef1234567890", "abcdef"),
    ("authorization: Basic dXNlcjpwYXNzd29yZDE=", "dXNl"),
    ('{"user": "ann", "password": "hunter2"}', "hunter2"),
    (f'{{"result": "{{\\"api_key\\": \\"{DRAWN}\\"}}"}}', DRAWN),
    (f'{{"accessToken": "{DRAWN}", "dbPassword": "tr0ub4dor"}}', DRAWN),
    (f'{{"accessToken": "{DRAWN}", "dbPassword": "tr0ub4dor"}}', "tr0ub4dor"),
    ("in GitHub's form: 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", "zQWB"),
    ("drawn without a digit: 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", "ghp_a"),
    ("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", "hf_Q"),
    ("PATH=/bin\nDB_PASSWORD=hunter2\nHOME=/root", "hunter2"),
    ('export GITHUB_TOKEN="abc123def456"', "abc123"),
]
ORDINARY = [
    "commit d41d8cd98f00b204e9800998ecf8427e of run 0f8fad5b-d9cd-469f-a165-70867728950e",
    '{"next_page_token": "CAUQAA2", "nextPageToken": "CAUQAA2", "cursor": "eyJpZCI6MX0="}',
    '{"token_count": 512, "tokens": "512 of 4096", "password": "must have 8 characters", "secret": ""}',
    'password = getpass("Password 1: ")\ntoken = issue(user, 3600)\nif api_key == os.environ["API_KEY2"]: ...',
    "TOKEN=$TOKEN1 API_KEY=${API_KEY2} PASSWORD=<your password 1> MAX_TOKENS=4096",
    'url = f"postgresql://{user}:{password1}@{host}/db"; see https://a.b:8080/c@2x.png',
    '<div class="sk-toggleable__content sk-estimator-id-12">scikit-learn</div>',
    "bearer of 2024 bad news; basic 1 2 3",
    "word Zk8Qm3Tn5Rb7Wc2Xd9Vf4Lg6Hj1Ps0Ya",
    '{"authorization": "PA-2024-1188", "storage_key": "claims/2024/c-1.pdf", "account_key": "ACME-2024"}',
    '{"secret": "the vote of 2024", "access_key": "door-17", "auth_token": "INV2024001188AB", "cookie": "3 dozen"}',
    "pk_8f14e45fceea167a5a36dedd4bea2543 is the primary key",
    "jsonschema/_keywords.py,sha256=r8_DrqAfn6QLwQnmXEggveiSU-UaIL2p2nuPINelfFc,14949",
    "pk_rsaSSA_PSS_SHAKE128 = rfc4055.RSAPublicKey()",
    "id='pplx-decider-flash-v1.2',",
    "export OLLAMA_API_KEY=your_api_key\nexport GEMINI_API_KEY='your-api-key'\nexport LANGSMITH_API_KEY=ls_...",
]


@pytest.mark.parametrize("level", [conceal, redact])
@pytest.mark.parametrize(("text", "secret"), CREDENTIALS, ids=[text[:20] for text, _ in CREDENTIALS])
def test_credentials_are_concealed(text: str, secret: str, level: Any) -> None:
    """F8: what certainly is a credential goes, what stands after it stays, and concealing again changes nothing."""
    shown = level(text)
    assert secret not in shown
    assert REDACTED in shown
    assert not text.endswith(" to the end") or shown.endswith(" to the end")
    assert level(shown) == shown


@pytest.mark.parametrize("text", ORDINARY, ids=[text[:20] for text in ORDINARY])
def test_what_models_work_with_is_untouched(text: str) -> None:
    """F8, H8, H9: hashes, ids, cursors, code about passwords, templates and placeholders are results like any other."""
    assert conceal(text) == text


def test_secrets_of_the_environment_are_known() -> None:
    """F8: wherever their values stand; values that are plain words or numbers are not searched for."""
    variables = {
        "SERVICE_API_KEY": "f00-ba4-qux",
        "DB_PASSWORD": "postgres",
        "PIN_TOKEN": "12345678",
        "HOME": "/r00t-x",
    }
    assert known_secrets(variables, None, "to-ken-1", "short") == ("f00-ba4-qux", "to-ken-1")
    config = read_config({**variables, "OPENAI_API_KEY": "sk-local", "DONEWHEN_TOKENS": "ann:s3same-open"})
    assert config.secrets == ("f00-ba4-qux", "s3same-open", "sk-local")
    assert conceal("it is f00-ba4-qux, on postgres", config.secrets) == f"it is {REDACTED}, on postgres"


async def test_results_and_their_files_are_concealed_unless_the_tool_says_otherwise() -> None:
    """F8, X13: the text that the model sees is the one that is kept; a tool whose secrets models need says so."""

    def look() -> tuple[str, dict[str, object]]:
        """Look."""
        return f"{KEY} and my-own-1", {"files": {"a.txt": f"x {KEY}", "b.bin": None}}

    tool = StructuredTool.from_function(look, response_format="content_and_artifact")
    result = await call_tool(ToolCall(tool, {}, timeout=5, secrets=["my-own-1"]))
    assert result.text == f"{REDACTED} and {REDACTED}"
    assert result.artifact == {"files": {"a.txt": f"x {REDACTED}", "b.bin": "null"}}
    tool.metadata = {"secrets": True}
    assert (await call_tool(ToolCall(tool, {}, timeout=5, secrets=["my-own-1"]))).text == f"{KEY} and my-own-1"


async def test_the_marker_is_not_written_over_a_secret(tmp_path: Path) -> None:
    """F8: a model that writes back what it read would destroy the secret; editing other passages works."""
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    before = f"KEY={KEY}\nMODE=slow\n"
    (tmp_path / ".env").write_text(before)
    read = await call_tool(ToolCall(tools["read_file"], {"path": ".env"}, timeout=5))
    assert read.text == f"KEY={REDACTED}\nMODE=slow\n"
    again = await call_tool(ToolCall(tools["write_file"], {"path": ".env", "content": read.text}, timeout=5))
    assert not again.ok
    assert "edit_file" in again.text
    edited = await call_tool(ToolCall(tools["edit_file"], {"path": ".env", "old": "slow", "new": "fast"}, timeout=5))
    assert edited.ok
    assert (tmp_path / ".env").read_text() == before.replace("slow", "fast")
    assert KEY not in str(edited.artifact)
    new = await call_tool(
        ToolCall(tools["write_file"], {"path": "report.md", "content": f"The key is {REDACTED}."}, timeout=5)
    )
    assert new.ok


ENV = f"""# settings
DB_PASSWORD=correcthorsebattery
export SERVICE_API_KEY='abc def ghi'
aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzKEY
machine example.org login ann password sesame
{{"client_secret": "q1w2e3r4t5y6", "user": "ann"}}
password: Hunter2x9
-----BEGIN RSA PRIVATE KEY-----
{"MIIEowIBAAKCAQEA7bq" * 20}
-----END RSA PRIVATE KEY-----
MODE=slow
"""
PARTS = ("horse", "abc def", "wJalr", "RxfiC", "bPxRf", "zzzKEY", "sesame", "w2e3", "unter2", "AKCAQEA")


@pytest.mark.parametrize("size", [7, 64, 1000])
async def test_a_file_of_secrets_read_in_pages_leaks_nothing(size: int, tmp_path: Path) -> None:
    """S7: the file is judged, not the page, wherever the page begins and ends."""
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    (tmp_path / ".env").write_text(ENV)
    pieces: list[str] = []
    for offset in range(0, len(ENV), size):
        read = await call_tool(
            ToolCall(tools["read_file"], {"path": ".env", "offset": offset, "limit": size}, timeout=5)
        )
        pieces.append(read.text.partition("\n[")[0] if "read on with" in read.text or size > 1 else read.text[:1])
    whole = "".join(pieces).replace(REDACTED, "")
    assert [part for part in PARTS if part in whole] == []


@pytest.mark.parametrize("level", [conceal, redact])
def test_two_hundred_harmless_outputs_stay_as_they_are(level: Any) -> None:
    """H9: tool errors, git logs, lock files, minified code: no false alarm, of models' level and of the logs' one."""
    assert len(HARMLESS) >= 200
    assert [text for text in HARMLESS if level(text) != text] == []


def test_what_a_call_really_was_is_shown_but_for_credentials() -> None:
    """W5: whoever must say whether it happened can match the call."""
    arguments = {"to": "ann", "commit": "d41d8cd98f00b204e9800998ecf8427e", "token": "CAUQAA2", "api_key": DRAWN}
    assert conceal_json(arguments) == {**arguments, "api_key": REDACTED}


NAMED = {"authorization": "PA-2024-1188", "storage_key": "claims/2024/c-1.pdf", "account_key": "ACME-2024"}


@pytest.mark.parametrize("level", [conceal_json, redact_json])
def test_numbers_of_cases_and_names_of_files_are_no_credentials(level: Any) -> None:
    """N33: under whatever name they stand; who approves, checks and reads the receipt needs them."""
    assert level(NAMED) == NAMED


def drawn(kind: str, chance: random.Random) -> str:
    letters = string.ascii_letters + string.digits
    return {
        "hex": lambda: chance.randbytes(16).hex(),
        "base64": lambda: base64.b64encode(chance.randbytes(30)).decode(),
        "urlsafe": lambda: base64.urlsafe_b64encode(chance.randbytes(24)).decode(),
        "uuid": lambda: str(uuid.UUID(bytes=chance.randbytes(16), version=4)),
        "letters": lambda: "".join(chance.choice(letters) for _ in range(20)),
    }[kind]()


@pytest.mark.parametrize("kind", ["hex", "base64", "urlsafe", "uuid", "letters"])
def test_what_was_drawn_at_random_is_a_credential_under_a_secrets_name(kind: str) -> None:
    """N33, F8: of a thousand keys as services make them, one in fifty at most has the looks of a name."""
    chance = random.Random(kind)
    keys = [drawn(kind, chance) for _ in range(1000)]
    assert sum(conceal_json({"api_key": key})["api_key"] == key for key in keys) <= 20
    assert sum(key in conceal(json.dumps({"client_secret": key})) for key in keys) <= 20
