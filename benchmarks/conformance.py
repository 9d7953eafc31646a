"""Run MCP's own conformance suite against our client and our server: `make conformance` (Node 22; fetched from npm).

The client under test is an agent with `McpServers`: a scripted model calls what the suite names, and questions are
answered by their defaults. The server under test is that of `donewhen mcp`, over HTTP because the suite knows no other
way. What fails, and why, is in `conformance.yml`; any other failure, and a listed one that passes, is an error.

Left out are the scenarios of logging in (`auth/…`: we do not log in, a token is given in `headers`), and those that
want the tools, resources and prompts of the suite's own example server.
"""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from donewhen import Agent, McpServers
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
EXPECTED = Path(__file__).with_suffix(".yml")
CLIENT = {
    "2025-11-25": ["initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"],
    "2026-07-28": [
        "tools_call", "request-metadata", "sep-2322-client-request-state", "http-standard-headers",
        "http-custom-headers", "http-invalid-tool-headers", "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ],
}  # fmt: skip
SERVER = {
    "2025-11-25": [
        "server-initialize", "server-session-lifecycle", "ping", "tools-list", "dns-rebinding-protection",
        "server-sse-multiple-streams", "resources-list", "prompts-list",
    ],
    "2026-07-28": [
        "server-stateless", "tools-list", "dns-rebinding-protection", "caching", "http-header-validation",
        "server-sse-multiple-streams", "input-required-result-unsupported-methods", "sep-2164-resource-not-found",
    ],
}  # fmt: skip
SETTINGS = {"confirm": "never", "approvals": "never", "on_exhausted": "stop", "limits": {"model_calls": 5}}
ARGUMENTS = {"integer": 3, "number": 3.5, "string": "text", "boolean": True, "object": {}, "array": []}
COLOURS = re.compile(r"\x1b\[\d+m")


async def play_client(url: str) -> None:
    """Call what the suite wants called, or every tool once, each in a run of its own."""
    wanted = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls")
    async with McpServers({"mcpServers": {"suite": {"url": url}}}) as servers:
        schemas: dict[str, Any] = {tool.name: tool.args_schema for tool in servers.tools}
        for each in wanted or [{"name": name, "arguments": _arguments(name, schemas)} for name in schemas]:
            await _run(servers, each["name"], each["arguments"])


def _arguments(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if name == "json_schema_echo":
        return {"schema": schemas["json_schema_2020_12_tool"]}
    fields = schemas[name].get("properties", {})
    return {field: ARGUMENTS[about["type"]] for field, about in fields.items() if about.get("type") in ARGUMENTS}


async def _run(servers: McpServers, tool: str, arguments: dict[str, Any]) -> None:
    work = [call(tool, **arguments), finish_step("called", "s1.result")]
    plan = submit_plan([{"content": "call it", "tools": [tool]}])
    model = ScriptedModel(roles={"triage": [plan], "execute": {"s1": lambda *_: work.pop(0) if work else "done"}})
    async with Agent(model, servers.tools, storage="memory:") as agent:
        run = await agent.start("Call it", settings=SETTINGS)
        while run.status == "waiting":
            run = await agent.resume(run, {} if run.pending[0].get("schema") else "yes")


def serve(port: int) -> None:
    """Serve the tools of `donewhen mcp` on this port."""
    from donewhen.agent.mcp.server import mcp_server

    mcp_server(Agent("demo", storage="memory:")).run("streamable-http", port=port)


def main() -> int:
    """Run all scenarios; return 1 if one came otherwise than expected."""
    if not (npx := shutil.which("npx")):
        print("the suite needs Node 22 or newer, with npx", file=sys.stderr)
        return 2
    me, good = [sys.executable, "-m", "benchmarks.conformance"], True
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as results, subprocess.Popen([*me, "server", str(port)]) as server:
        _wait_for(port)
        for kind, table, target in (
            ("client", CLIENT, ["--command", " ".join([*me, "client"])]),
            ("server", SERVER, ["--url", f"http://127.0.0.1:{port}/mcp"]),
        ):
            for revision, scenarios in table.items():
                for scenario in scenarios:
                    rest = ["--scenario", scenario, "--spec-version", revision, "-o", results]
                    command = [npx, "--yes", SUITE, kind, *target, *rest, "--expected-failures", str(EXPECTED)]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    good = _tell(f"{revision}  {kind}  {scenario}", done) and good
        server.terminate()
    return 0 if good else 1


def _wait_for(port: int) -> None:
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return


def _tell(name: str, done: "subprocess.CompletedProcess[str]") -> bool:
    said = COLOURS.sub("", done.stdout + done.stderr)
    passed = next(iter(re.findall(r"Passed: (\d+/\d+)", said)), "0/0")
    print(f"{'ok    ' if done.returncode == 0 else 'BROKEN'}  {passed:>6}  {name}", flush=True)
    if done.returncode:
        print(said[-3000:])
    return done.returncode == 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        asyncio.run(play_client(sys.argv[2]))
    elif sys.argv[1:2] == ["server"]:
        serve(int(sys.argv[2]))
    else:
        sys.exit(main())
