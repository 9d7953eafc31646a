"""The environment, read in one place."""

from pathlib import Path

import pytest

from donewhen import Agent, AgentOptions, ConfigError
from donewhen.agent.config import DEFAULT_MODEL, DEMO, read_config


def test_without_anything_no_model_and_a_file_in_the_users_state_folder() -> None:
    """P19: nothing has to be set."""
    config = read_config({})
    assert config.model is None
    assert config.storage.startswith("sqlite:///")
    assert config.storage.endswith("donewhen/runs.db")
    assert config.folder == "."
    assert not config.plain


def test_the_state_folder_is_the_users_choice(tmp_path: Path) -> None:
    assert read_config({"XDG_STATE_HOME": str(tmp_path)}).storage == f"sqlite:///{tmp_path}/donewhen/runs.db"
    assert read_config({"XDG_STATE_HOME": "relative"}).storage == read_config({}).storage
    assert read_config({"DONEWHEN_STORAGE": "memory:", "XDG_STATE_HOME": str(tmp_path)}).storage == "memory:"


@pytest.mark.parametrize(
    ("environment", "model"),
    [
        ({"OPENAI_API_KEY": "sk-x"}, DEFAULT_MODEL),
        ({"OPENAI_API_KEY": " "}, None),
        ({"DONEWHEN_MODEL": "openai:m"}, "openai:m"),
        ({"DONEWHEN_MODEL": "demo", "OPENAI_API_KEY": "sk-x"}, DEMO),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, DEFAULT_MODEL),
    ],
)
def test_the_model(environment: dict[str, str], model: str | None) -> None:
    assert read_config(environment).model == model


@pytest.mark.parametrize(
    ("text", "record"), [("", False), ("0", False), ("False", False), (" false ", False), ("1", True), ("yes", True)]
)
def test_a_switch_is_off_however_false_is_written(text: str, record: bool) -> None:
    assert read_config({"DONEWHEN_RECORD": text}).record is record


@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("hooks.py", "write file.py:name or package.module:name"),
        ("math:pi", "is of type float; it must be a donewhen.hooks.Hooks"),
    ],
)
def test_hooks_that_cannot_be_loaded_keep_an_agent_from_starting(address: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Agent(
            "demo", options=AgentOptions(config=read_config({"DONEWHEN_STORAGE": "memory:", "DONEWHEN_HOOKS": address}))
        )


def test_an_agent_needs_a_model() -> None:
    """A2: without a model and without a key there is a clear error at once; only the command chooses the demo."""
    with pytest.raises(ConfigError, match=r"OPENAI_API_KEY or DONEWHEN_MODEL.*'demo'"):
        Agent(options=AgentOptions(config=read_config({"DONEWHEN_STORAGE": "memory:"})))


def test_no_secret_is_shown() -> None:
    config = read_config({"OPENAI_API_KEY": "sk-secret", "DONEWHEN_KEY": "ab" * 16, "DONEWHEN_TOKENS": "ann:hush"})
    assert config.api_key == "sk-secret"
    assert config.tokens == {"ann": "hush"}
    assert not any(secret in repr(config) for secret in ("sk-secret", "abab", "\\xab", "hush"))


@pytest.mark.parametrize("text", ["00" * 16, "ff" * 24, "0f" * 32, "AAAAAAAAAAAAAAAAAAAAAA=="])
def test_a_key_is_hex_or_base64(text: str) -> None:
    key = read_config({"DONEWHEN_KEY": text}).key
    assert key is not None
    assert len(key) in (16, 24, 32)


@pytest.mark.parametrize("text", ["secret", "00" * 15, "zz" * 16, "=" * 24])
def test_anything_else_is_no_key(text: str) -> None:
    """Fails closed: nothing is ever stored under a key that was guessed from a typing error."""
    with pytest.raises(ConfigError, match="openssl rand -hex 32"):
        read_config({"DONEWHEN_KEY": text})


@pytest.mark.parametrize("text", ["ann", "ann:", ":hush", "ann:a,ann:b"])
def test_tokens_that_cannot_be_read_open_nothing(text: str) -> None:
    with pytest.raises(ConfigError, match="name:token"):
        read_config({"DONEWHEN_TOKENS": text})


@pytest.mark.parametrize("text", ["Ann:a,ann:b", "local:a", "LOCAL:a"])
def test_two_people_never_have_one_name(text: str) -> None:
    """Q111: nor one folder, where file names know no case, nor the name of everybody on a server without tokens."""
    with pytest.raises(ConfigError, match="choose another name"):
        read_config({"DONEWHEN_TOKENS": text})


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_plain_output(environment: dict[str, str]) -> None:
    assert read_config(environment).plain
    assert not read_config({"NO_COLOR": "", "TERM": "xterm"}).plain


def test_commands_are_a_list() -> None:
    assert read_config({"DONEWHEN_COMMANDS": "git, make,"}).commands == ("git", "make")


def test_budgets_are_json() -> None:
    """41.5: also those of names, and what cannot be meant is refused at the start."""
    given = '{"owner": {"cost_usd": 5}, "owners": {"it": {"cost_usd": 20}}, "queues": {"nightly": {"cost_usd": 50}}}'
    assert read_config({"DONEWHEN_BUDGETS": given}).budgets["owners"] == {"it": {"cost_usd": 20}}
    for wrong, said in (("{", "must be JSON"), ('{"owners": {"it": {"cost": 1}}}', "no owners.it.cost; .*cost_usd")):
        with pytest.raises(ConfigError, match=said):
            read_config({"DONEWHEN_BUDGETS": wrong})
