"""Errors that somebody makes in the first hour: each is one line that names the value and says what to do."""

import json
import pydoc
import socket
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import donewhen.receipts
import donewhen.servers
from donewhen import (
    Agent,
    ConfigError,
    DoneWhenError,
    Executor,
    Limits,
    Models,
    Profile,
    Run,
    RunStream,
    Settings,
    StaleAnswer,
    ToolError,
    build_graph,
    wait,
)
from donewhen.agent.config import read_profile
from donewhen.agent.page.serving import listen
from donewhen.hooks import Hooks, Refuse
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan
from donewhen.workspace import workspace_tools
from tests.kit.screens.shell import app
from tests.kit.wire import WireServer
from tests.kit.wire_format import fault


def undescribed(x: str) -> str:
    return x


def unwritable(stream: StringIO) -> str:
    """Write to a stream."""
    return stream.getvalue()


def taken_port() -> None:
    """Listen where somebody listens already."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listen(other.getsockname()[1])


def submit_unreadable(answer: Any) -> None:
    """Leave something to a worker that answers no plan."""
    plan = submit_plan([{"content": "Look", "tools": []}])
    agent = Agent(ScriptedModel(roles={"triage": [plan]}), storage="memory:")
    run = wait(agent.start("look"))
    wait(agent.submit_answer(run, answer))


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "no model": (lambda: Agent(), "Give one, as in Agent('openai:"),
    "a provider misspelt": (lambda: Agent("opnai:gpt-5"), "Did you mean 'openai'?"),
    "a model without provider": (lambda: Agent("gpt-5"), "write 'openai:gpt-5'"),
    "a model with a slash": (lambda: Agent("openai/gpt-5"), "write 'openai:gpt-5'"),
    "the demo misspelt": (lambda: Agent("Demo"), "did you mean 'demo'?"),
    "a tool without docstring": (lambda: Agent("demo", [undescribed]), "'undescribed' needs a docstring"),
    "a tool that is none": (lambda: Agent("demo", [3]), "'3' cannot be used as a tool: pass a LangChain tool"),
    "a setting misspelt": (lambda: Agent("demo", settings={"limit": 1}), "there is no limit; did you mean limits"),
    "a storage of another kind": (
        lambda: wait(Agent("demo", storage="mysql://host/db").start("hi")),
        "use memory:, sqlite:///runs.db, a path",
    ),
    "a folder that is not there": (lambda: workspace_tools("nowhere"), "create the folder or name another"),
    "a thread that is not there": (lambda: wait(Agent("demo", storage="memory:").get("x")), "there is no thread 'x'"),
    "Settings misspelt": (lambda: Settings(limit=1), "Settings: there is no limit; did you mean limits"),  # type: ignore[call-arg]
    "Limits misspelt": (lambda: Settings(limits=Limits(usd=1)), "Limits: there is no usd; did you mean cost_usd?"),  # type: ignore[call-arg]
    "a limit within Settings": (lambda: Settings(limits={"usd": 1}), "there is no limits.usd; did you mean cost_usd?"),  # type: ignore[arg-type]
    "Profile misspelt": (lambda: Profile(instruction="x"), "did you mean instructions?"),  # type: ignore[call-arg]
    "a limit that is no number": (lambda: Limits(rounds="x"), "Limits: rounds: Input should be a valid integer"),  # type: ignore[arg-type]
    "a role misspelt": (
        lambda: Agent("demo", settings={"models": {"planner": "demo"}}),
        "settings: models.planner: There is no role 'planner'; did you mean plan?",
    ),
    "executors as a list": (lambda: Agent("demo", executors=[1]), "executors is a dict of name → Executor"),  # type: ignore[arg-type]
    "an executor that is no address": (
        lambda: Agent("demo", executors={"far": "somewhere"}),
        "no address of an A2A agent",
    ),
    "hooks as a list": (lambda: Agent("demo", hooks=[print]), "write Hooks(before_call=[…]"),  # type: ignore[arg-type]
    "skills as a path": (lambda: Agent("demo", skills="work"), "write Skills('work')"),  # type: ignore[arg-type]
    "a profile that is not there": (
        lambda: read_profile("nobody.toml"),
        "'nobody.toml' cannot be read: there is no such file",
    ),
    "a hook without a list": (lambda: Hooks(before_call=print), "write before_call=[…]"),  # type: ignore[arg-type]
    "a price that is a number": (
        lambda: Agent(Models("demo", prices={"mine": 3})),  # type: ignore[dict-item]
        'write {"input": …, "output": …}',
    ),
    "a storage that is no text": (lambda: Agent("demo", storage=5), "it must be a URL such as sqlite:///runs.db"),  # type: ignore[arg-type]
    "a storage in no folder": (
        lambda: wait(Agent("demo", storage="sqlite:///nowhere/runs.db").start("hi")),
        "does not exist; create it or name another",
    ),
    "a result of no type": (
        lambda: wait(Agent("demo", storage="memory:").start("hi", output_type=5)),
        "output_type: there is no JSON Schema of 5",
    ),
    "a tool whose arguments no model can write": (
        lambda: wait(Agent("demo", [unwritable], storage="memory:").start("hi")),
        "the tool 'unwritable' cannot be used: its arguments have no JSON Schema",
    ),
    "a template that is not there": (
        lambda: wait(Agent("demo", storage="memory:").start(template="totals")),
        "there is no template 'totals'; there are none",
    ),
    "an answer that is none": (
        lambda: submit_unreadable({"later_on": "make it 30"}),
        'this is no answer to what was asked: {"later_on": "make it 30"}. Answer in words, or with a `type`: approve',
    ),
    "a decision misspelt": (
        lambda: submit_unreadable({"type": "aprove"}),
        'asked: {"type": "aprove"}. Answer in words, or with a `type`: approve, edit, reject, cancel, later',
    ),
    "a list for an answer": (lambda: submit_unreadable(["approve"]), 'asked: ["approve"]. Answer in words'),
    "an empty answer": (lambda: submit_unreadable(""), 'asked: "". Answer in words, or'),
    "an answer of any length": (lambda: submit_unreadable(["x" * 999]), "x…. Answer in words"),
    "an answer that cannot be stored": (lambda: submit_unreadable(object()), "The answer cannot be stored: it "),
    "decisions misspelt": (
        lambda: submit_unreadable({"decisions": [{"type": "aprove"}]}),
        "no known `type`: [{'type': 'aprove'}]; known: approve, edit, reject",
    ),
    "a graph of a model's name": (
        lambda: build_graph("demo", []),  # type: ignore[arg-type]
        "build_graph: model is a LangChain chat model, not the name 'demo'; LangChain's init_chat_model(",
    ),
    "a graph of a model's class": (lambda: build_graph(ScriptedModel, []), "not <class "),
    "a graph of no model": (lambda: build_graph(None, []), "not None"),  # type: ignore[arg-type]
    "a graph's judge by name": (
        lambda: build_graph(ScriptedModel(), models={"judge": "openai:gpt-5"}),  # type: ignore[dict-item]
        "build_graph: models['judge'] is a LangChain chat model, not the name 'openai:gpt-5'",
    ),
    "no goal": (lambda: wait(Agent("demo", storage="memory:").start("  ")), "The goal is empty"),
    "a port in use": (taken_port, "name another one with --port"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(mistake: str) -> None:
    """L14: what was wrong, and what to do instead."""
    make, said = MISTAKES[mistake]
    with pytest.raises(DoneWhenError) as raised:
        make()
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("module", "make", "extra"),
    [
        ("mcp.server.mcpserver", ["mcp"], "mcp"),
        ("mcp", ["run", "hello", "-n", "--mcp", "servers.json"], "mcp"),
        ("acp", ["acp"], "acp"),
        ("uvicorn", ["chat", "--no-browser"], "ui"),
        ("psycopg", ["threads", "--storage", "postgresql://localhost/db"], "postgres"),
        ("langchain_anthropic", [], "anthropic"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    module: str, make: list[str], extra: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """L14, P19: the command says which extra it needs, in one line; so does an agent when it is made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    Path("servers.json").write_text('{"mcpServers": {"shop": {"command": "true"}}}')
    ours = (f"donewhen.agent.storage.{extra}", f"donewhen.agent.{extra}.server")
    for name in [name for name in sys.modules if name == module or name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    if not make:
        with pytest.raises(ConfigError, match=rf"pip install 'donewhen\[{extra}\]'"):
            Agent("anthropic:claude-sonnet-4-5", storage="memory:")
        return
    done = CliRunner().invoke(app, make)
    assert done.exit_code in (1, 2), done.output
    assert f"pip install 'donewhen[{extra}]'" in done.output.replace("\n", " ")


def test_help_says_what_a_module_has_where_extras_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """P19: of two servers without their extras and one with its own, and where a module needs them as a whole; a name
    that is asked for says what it needs."""
    needed = {"a2a": "agent.a2a.server", "acp": "agent.acp.server", "cryptography": "agent.receipts"}
    for module, ours in needed.items():
        for name in [name for name in sys.modules if name == f"donewhen.{ours}" or name.startswith(f"{module}.")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, module, None)
    text = pydoc.render_doc(donewhen.servers, renderer=pydoc.plaintext)
    assert ("mcp_server(" in text, "a2a_app(" in text) == (True, False)
    assert "`a2a_app` and\n    `PushNotifications` the extra `a2a`" in text
    assert "Receipts that another program can check" in pydoc.render_doc(donewhen.receipts)
    with pytest.raises(ImportError, match=r"pip install 'donewhen\[acp\]'"):
        _ = donewhen.servers.serve_acp


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "Set a valid key, as OPENAI_API_KEY"), (404, "Check OPENAI_BASE_URL")],
    ids=["a wrong key", "a wrong address"],
)
def test_what_a_provider_refuses_is_said_in_the_answer(status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """L14: the run has failed and says what to set."""
    with WireServer(ScriptedModel([fault(status=status)])) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong")
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        run = wait(Agent("openai:gpt-5.4-mini", storage="memory:").start("hi"))
    assert run.status == "failed"
    assert said in run.answer


def test_a_run_without_its_key_is_not_started(tmp_path: Path) -> None:
    """L14: nothing is written, and a run that waits goes on waiting; the key of a role counts as well."""
    storage = str(tmp_path / "runs.db")
    agent = Agent("openai:gpt-5.4-mini", storage=storage)
    for start in (agent.start, agent.stream):
        with pytest.raises(ConfigError, match="Set OPENAI_API_KEY"):
            wait(anext(aiter(started)) if isinstance(started := start("hi"), RunStream) else started)
    assert wait(agent.threads()) == []
    with pytest.raises(ConfigError, match="Set OPENAI_API_KEY"):
        wait(Agent("demo", storage="memory:").start("hi", settings={"models": {"execute": "openai:gpt-5"}}))
    model = ScriptedModel(roles={"triage": [PLAN]})
    run = wait(Agent(model, storage=storage).start("do it"))
    with pytest.raises(ConfigError, match="Set OPENAI_API_KEY"):
        wait(agent.resume(run, "approve"))
    assert wait(agent.resume(run)).status == "waiting"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda agent: wait(agent), "such as agent.start(…), not a Agent"),
        (lambda agent: wait(agent.stream("hi")), "such as agent.start(…), not a RunStream"),
        (lambda agent: list(agent.stream("hi")), "iterate it with async for"),
    ],
)
def test_a_stream_without_async_says_how_to_use_it(make: Callable[[Agent], object], said: str) -> None:
    """L14: nothing hangs, and the error says what to write."""
    with pytest.raises(TypeError) as raised:
        make(Agent("demo", storage="memory:"))
    assert said in str(raised.value)


def test_an_answer_after_one_by_id_is_no_second_delivery() -> None:
    """W4: what --yes answered, by its id, is not taken for the answer that a person gives to the next question."""
    plan = submit_plan([{"content": "Send it", "tools": []}])
    model = ScriptedModel(roles={"triage": [plan], "execute": [call("send"), finish_step("sent", "s1.1")]})

    def send() -> str:
        """Send it."""
        return "sent"

    agent = Agent(model, [send], storage="memory:")
    run = wait(agent.start("send it", thread_id="t"))
    run = wait(agent.resume("t", {run.pending[0]["id"]: {"type": "approve"}}))
    assert run.pending[0]["kind"] == "tool"
    assert wait(agent.resume("t", {"type": "approve"})).status == "completed"


def test_an_open_call_is_listed_with_its_arguments() -> None:
    """N45: `pending()` shows what is to be approved, without credentials, and cut where it is long."""
    plan = submit_plan([{"content": "Send it", "tools": []}])
    key = "sk-proj-" + "a1B2c3D4" * 5
    asked = call("post", text="word " * 1000, key=key, to=["ann", "bob"])
    model = ScriptedModel(roles={"triage": [plan], "execute": [asked]})

    def post(text: str, key: str, to: list[str]) -> str:
        """Post it."""
        return "posted"

    agent = Agent(model, [post], storage="memory:")
    run = wait(agent.resume(wait(agent.start("post it")), "approve"))
    (row,) = wait(agent.pending())
    assert (row["kind"], row["id"], row["tool"]) == ("tool", run.pending[0]["id"], "post")
    assert row["arguments"]["to"] == ["ann", "bob"]
    assert row["arguments"]["text"].endswith("…")
    assert len(json.dumps(row | {"text": ""})) < 2_000
    assert "post" in row["text"]
    assert len(row["text"]) <= 10_000
    assert key not in json.dumps(row)
    (info,) = wait(agent.threads())
    assert info.pending[0]["arguments"] == row["arguments"]


def test_an_executor_takes_functions_and_a_model_by_name() -> None:
    """X18, L14: as the agent does; a function that both have is one tool."""

    def look(where: str) -> str:
        """Look somewhere."""
        return where

    def write(where: str) -> str:
        """Write somewhere."""
        return where

    own = {"reader": Executor(tools=[look], model="demo"), "writer": Executor(tools=[look, write])}
    agent = Agent("demo", [look], storage="memory:", executors=own)
    assert sorted(agent.executors.toolbox) == ["look", "write"]
    with pytest.raises(ConfigError, match="write 'openai:gpt-5'"):
        Agent("demo", executors={"reader": Executor(model="gpt-5")})
    with pytest.raises(ToolError, match="pass a LangChain tool or a function"):
        agent.executors["broken"] = Executor(tools=[3])  # type: ignore[list-item]


def test_an_agent_is_no_graph_and_says_what_to_use() -> None:
    """L14: who knows LangGraph writes `invoke`."""
    agent = Agent("demo", storage="memory:")
    with pytest.raises(AttributeError, match=r"'invoke': use wait\(agent\.start\(…\)\), or agent\.graph\.invoke"):
        agent.invoke({"messages": "hi"})  # type: ignore[attr-defined]
    assert not hasattr(agent, "nothing")


def test_a_library_is_silent_and_the_command_warns(tmp_path: Path) -> None:
    """A correction of the model is no line on the user's stderr, unless logging is set up."""
    code = (
        "from donewhen import Agent, wait\n"
        "from donewhen.testing import ScriptedModel, answer\n"
        "print(wait(Agent(ScriptedModel(['', answer('Hello.')]), storage='memory:').start('hi')).answer)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("Hello.\n", "")


def test_an_edited_call_may_come_in_any_shape() -> None:
    """C09, L14: `arguments`, `args`, LangChain's edited action; a bare “edit” is told the shape."""
    plan = submit_plan([{"content": "Send it", "tools": []}])
    sent: list[str] = []

    def send(to: str, text: str = "hi") -> str:
        """Send it."""
        sent.append(to)
        return "sent"

    shapes: list[Any] = [
        {"type": "edit", "arguments": {"to": "bob"}},
        {"type": "edit", "args": {"to": "bob"}},
        {"type": "edit", "args": {"tool": "send", "arguments": '{"to": "bob"}'}},
        {"type": "edit", "args": {"action": "send", "args": {"to": "bob"}}},
        {"decisions": [{"type": "edit", "edited_action": {"name": "send", "args": {"to": "bob"}}}]},
    ]
    for answer in shapes:
        work = [call("send", to="ann"), finish_step("sent", "s1.1")]
        agent = Agent(ScriptedModel(roles={"triage": [plan], "execute": work}), [send], storage="memory:")
        run = wait(agent.start("send it"))
        said = wait(agent.resume(run, {"type": "edit"})).problem
        assert said.startswith('“edit” comes with what is edited: {"type": "edit", "plan": '), said
        run = wait(agent.resume(run, "approve"))
        assert wait(agent.resume(run, "edit")).problem == "What should be different?"
        run = wait(agent.resume(run, {"type": "edit"}))
        assert '“edit” comes with what is edited: {"type": "edit", "arguments": {…}}' in run.problem
        assert wait(agent.resume(run, answer)).status == "completed", answer
    assert sent == ["bob"] * len(shapes)


def test_no_hook_is_asked_about_a_confirmed_schedule() -> None:
    """C11: nothing ran, so a policy on results has nothing to check; the approved schedule is kept."""
    plan = submit_plan([{"content": "Look", "tools": []}], schedule={"every_minutes": 60})
    hooks = Hooks(before_end=[lambda end: Refuse("no result without a number")])
    agent = Agent(ScriptedModel(roles={"triage": [plan]}), storage="memory:", hooks=hooks)
    run = wait(agent.resume(wait(agent.start("look every hour")), "approve"))
    assert (run.status, (run.outcome or {})["code"]) == ("completed", "scheduled")
    assert len(wait(agent.schedules.list())) == 1


def test_a_second_delivery_is_told_how_to_answer_anew() -> None:
    """W4: in code and in the command."""
    agent, run = waiting_plan()
    wait(agent.resume(run.thread_id, "change: do it in another way"))
    with pytest.raises(StaleAnswer, match=r"answer, question='confirm\.[0-9a-f~]+'\), in the command --id confirm\."):
        wait(agent.resume(run, "change: do it in another way"))


# --- edited plans


PLAN = submit_plan(
    [
        {"id": "a", "content": "Read", "depends_on": [], "done_when": "it is read"},
        {"id": "b", "content": "Write", "depends_on": ["a"], "tools": []},
    ]
)


OTHER = submit_plan([{"id": "a", "content": "Read", "depends_on": [], "done_when": "it is read in another way"}])


def waiting_plan() -> tuple[Agent, Run]:
    model = ScriptedModel(roles={"triage": [PLAN, OTHER], "execute": lambda _, tools: finish_step("ok", "s.result")})
    agent = Agent(model, storage="memory:")
    return agent, wait(agent.start("do it"))


@pytest.mark.parametrize("as_text", [False, True])
def test_a_misspelt_key_of_an_edited_plan_is_a_problem(as_text: bool) -> None:
    """H14: nothing that a person wrote into a plan is dropped, neither in data nor in text; nothing is approved."""
    agent, run = waiting_plan()
    edited: dict[str, Any] = deepcopy(dict(run.plan or {}))
    edited["steps"][0] |= {"done_wen": ["it is read twice"], "depnds_on": ["b"]}
    edited["limts"] = {"rounds": 3}
    run = wait(agent.resume(run, {"type": "edit", "plan": json.dumps(edited)} if as_text else edited))
    assert run.status == "waiting"
    for said in (
        "a plan has no field 'limts' (did you mean limits?)",
        "step a has no field 'done_wen' (did you mean done_when?)",
        "step a has no field 'depnds_on' (did you mean depends_on?)",
    ):
        assert said in run.problem


def test_a_plan_may_come_back_as_any_client_sends_it() -> None:
    """C09: bare, under `plan`, as an edited action; with all that the pause shows, and with synonyms of keys."""
    _, shown = waiting_plan()
    plan = deepcopy(dict(shown.plan or {}))
    plan["steps"][1]["content"] = "Write twice"
    del plan["steps"][1]["done_when"]
    plan["steps"][1]["criteria"] = ["it is written"]
    plan["done_when"] = ["both are done"]
    sent: list[Any] = [
        plan,
        {**plan, "limits": shown.pending[0]["limits"]},
        {"type": "edit", **plan},
        {"type": "edit", "plan": plan, "message": ""},
        {"type": "edit", "args": {"plan": plan}},
        {"decisions": [{"type": "edit", "edited_action": {"name": "confirm_plan", "args": {"plan": plan}}}]},
    ]
    for answer in sent:
        agent, run = waiting_plan()
        taken = wait(agent.resume(run, answer, settings={"limits": {"rounds": 1}})).plan or {}
        assert [criterion["text"] for criterion in taken["done_when"]] == ["both are done"], answer
        assert taken["steps"][1]["content"] == "Write twice"
        assert [criterion["text"] for criterion in taken["steps"][1]["done_when"]] == ["it is written"]
