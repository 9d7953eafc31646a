"""`donewhen doctor`: what is installed, configured and reachable, one line each; nothing is changed."""

import asyncio
import importlib.metadata
import importlib.util
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Literal

from donewhen.agent.cli.exits import Exit
from donewhen.agent.cli.result import SCHEMA_VERSION, print_json
from donewhen.agent.cli.running import configured
from donewhen.agent.cli.terminal import clean
from donewhen.agent.config import DEMO, Config
from donewhen.state.errors import DoneWhenError

PACKAGES = ("langgraph", "langchain-core", "langchain-openai", "pydantic")
EXTRAS = {
    "mcp": ("langchain_mcp_adapters", "MCP servers as tools"),
    "postgres": ("psycopg", "PostgreSQL storage"),
    "studio": ("langgraph_api", "LangGraph Studio and server"),
    "encryption": ("Crypto", "encrypted storage"),
}
SECONDS = 5.0
"""How long the model's server may take to answer."""


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `broken` must be mended before a run can work; `note` need not."""

    name: str
    state: Literal["ok", "note", "broken"]
    text: str


async def examine(config: Config) -> AsyncIterator[Finding]:
    """Look at everything, cheapest first."""
    version = ".".join(str(part) for part in sys.version_info[:3])
    yield Finding("python", "ok" if sys.version_info >= (3, 11) else "broken", version)
    for name in ("donewhen", *PACKAGES):
        yield _package(name)
    for extra, (module, purpose) in EXTRAS.items():
        found = importlib.util.find_spec(module) is not None
        hint = "installed" if found else f"not installed: pip install 'donewhen[{extra}]'"
        yield Finding(f"extra {extra}", "ok" if found else "note", f"{purpose}, {hint}")
    yield await _storage(config)
    yield await _model(config)


def _package(name: str) -> Finding:
    try:
        return Finding(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        if name == "donewhen":
            return Finding(name, "note", "runs from its source folder, not installed")
        return Finding(name, "broken", "not installed")


async def _storage(config: Config) -> Finding:
    from donewhen.agent.storage import open_storage

    try:
        async with open_storage(config.storage, key=config.key) as storage:
            await storage.healthy()
            return Finding("storage", "ok", storage.url_for_display + (", encrypted" if config.key else ""))
    except DoneWhenError as error:
        return Finding("storage", "broken", str(error))


async def _model(config: Config) -> Finding:
    if not config.model or config.model == DEMO:
        return Finding(
            "model", "note", "demo (follows simple rules); set OPENAI_API_KEY or DONEWHEN_MODEL for a real one"
        )
    provider = config.model.partition(":")[0] if ":" in config.model else "openai"
    if provider != "openai":
        return Finding("model", "note", f"{config.model}: configured, not tried")
    if not config.api_key and not config.base_url:
        return Finding("model", "broken", f"{config.model} needs OPENAI_API_KEY")
    return await _openai(config)


async def _openai(config: Config) -> Finding:
    """List the models: costs nothing and proves address and key."""
    import openai

    model, where = config.model or "", config.base_url or "api.openai.com"
    name = model.partition(":")[2] or model
    client = openai.AsyncOpenAI(
        api_key=config.api_key or "none", base_url=config.base_url, timeout=SECONDS, max_retries=0
    )
    try:
        known = [model.id async for model in client.models.list()]
    except openai.AuthenticationError:
        return Finding("model", "broken", f"{where} refuses the key in OPENAI_API_KEY")
    except openai.APIConnectionError:
        return Finding("model", "broken", f"{where} cannot be reached")
    except openai.APIStatusError as error:
        return Finding("model", "note", f"{where} answers, but lists no models ({error.status_code})")
    finally:
        await client.close()
    if name not in known:
        return Finding("model", "broken", f"{where} answers, but has no model {name!r}")
    return Finding("model", "ok", f"{config.model} at {where}")


def run_doctor(*, storage: str | None, json: bool) -> int:
    """Print the findings; FAILED if anything is broken."""
    config = configured(storage)

    async def look() -> list[Finding]:
        return [finding async for finding in examine(config)]

    findings = asyncio.run(look())
    broken = any(finding.state == "broken" for finding in findings)
    if json:
        print_json(
            {"schema_version": SCHEMA_VERSION, "ok": not broken, "findings": [asdict(each) for each in findings]}
        )
        return Exit.FAILED if broken else Exit.COMPLETED
    for finding in findings:
        print(f"{finding.state:6}  {finding.name:18}  {clean(finding.text)}")
    return Exit.FAILED if broken else Exit.COMPLETED
