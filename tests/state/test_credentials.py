"""What tools return holds no credentials when it is shown and stored, and is otherwise as it was."""

import time
from pathlib import Path

import pytest
from langchain_core.tools import StructuredTool

from donewhen.agent.config import read_config
from donewhen.agent.workspace import workspace_tools
from donewhen.graph.tools.call import call_tool
from donewhen.state.credentials import conceal, known_secrets
from donewhen.state.redaction import REDACTED

KEY = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8t"
CREDENTIALS = [
    (f"the key is {KEY}.", KEY),
    ("sk-ant-api03-AbCdEfGh1234567890_x-y", "AbCdEf"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIA"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_def end", "eyJ"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
    ("postgresql://user:hunter2@host/db", "hunter2"),
    ("Authorization: Bearer abcdef1234567890", "abcdef"),
    ("authorization: Basic dXNlcjpwYXNzd29yZDE=", "dXNl"),
    ('{"user": "ann", "password": "hunter2"}', "hunter2"),
    ('{"result": "{\\"api_key\\": \\"abc123def\\"}"}', "abc123def"),
    ('{"accessToken": "a1b2c3d4", "dbPassword": "q1w2e3r4"}', "a1b2c3d4"),
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
]


@pytest.mark.parametrize(("text", "secret"), CREDENTIALS, ids=[text[:20] for text, _ in CREDENTIALS])
def test_credentials_are_concealed(text: str, secret: str) -> None:
    """F8: what certainly is a credential goes, and concealing again changes nothing."""
    shown = conceal(text)
    assert secret not in shown
    assert REDACTED in shown
    assert conceal(shown) == shown


@pytest.mark.parametrize("text", ORDINARY, ids=[text[:20] for text in ORDINARY])
def test_what_models_work_with_is_untouched(text: str) -> None:
    """F8: hashes, ids, cursors, code about passwords and templates are results like any other."""
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


@pytest.mark.parametrize(
    "unit", ['"', '"api_key": "', "API_KEY=", "A_", "sk-", "eyJ", "://a:b@", "bearer ", "-----BEGIN A"]
)
def test_a_megabyte_is_quick(unit: str) -> None:
    """F8: linear, whatever a tool returns."""
    began = time.process_time()
    conceal(unit * (1_000_000 // len(unit)))
    assert time.process_time() - began < 2


async def test_results_and_their_files_are_concealed_unless_the_tool_says_otherwise() -> None:
    """F8, X13: the text that the model sees is the one that is kept; a tool whose secrets models need says so."""

    def look() -> tuple[str, dict[str, object]]:
        """Look."""
        return f"{KEY} and my-own-1", {"files": {"a.txt": f"x {KEY}", "b.bin": None}}

    tool = StructuredTool.from_function(look, response_format="content_and_artifact")
    result = await call_tool(tool, {}, timeout=5, secrets=["my-own-1"])
    assert result.text == f"{REDACTED} and {REDACTED}"
    assert result.artifact == {"files": {"a.txt": f"x {REDACTED}", "b.bin": None}}
    tool.metadata = {"secrets": True}
    assert (await call_tool(tool, {}, timeout=5, secrets=["my-own-1"])).text == f"{KEY} and my-own-1"


async def test_the_marker_is_not_written_over_a_secret(tmp_path: Path) -> None:
    """F8: a model that writes back what it read would destroy the secret; editing other passages works."""
    tools = {tool.name: tool for tool in workspace_tools(tmp_path)}
    before = f"KEY={KEY}\nMODE=slow\n"
    (tmp_path / ".env").write_text(before)
    read = await call_tool(tools["read_file"], {"path": ".env"}, timeout=5)
    assert read.text == f"KEY={REDACTED}\nMODE=slow\n"
    again = await call_tool(tools["write_file"], {"path": ".env", "content": read.text}, timeout=5)
    assert not again.ok
    assert "edit_file" in again.text
    edited = await call_tool(tools["edit_file"], {"path": ".env", "old": "slow", "new": "fast"}, timeout=5)
    assert edited.ok
    assert (tmp_path / ".env").read_text() == before.replace("slow", "fast")
    assert KEY not in str(edited.artifact)
    new = await call_tool(tools["write_file"], {"path": "report.md", "content": f"The key is {REDACTED}."}, timeout=5)
    assert new.ok
