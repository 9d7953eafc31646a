"""The commands and their options. Their modules are loaded when a command runs, so that `--help` is fast."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from donewhen.agent.cli import doctor as _doctor
    from donewhen.agent.cli import exits as _exits
    from donewhen.agent.cli import options, runs
    from donewhen.agent.cli import plans as _plans
    from donewhen.agent.cli import standalone as _standalone
    from donewhen.agent.cli import storage_view as _storage_view
    from donewhen.agent.cli import threads as _threads
    from donewhen.agent.cli import worker as _worker
    from donewhen.agent.cli.storage_view import StorageView

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
StorageUrl = Annotated[
    str | None,
    typer.Option(
        "--storage", metavar="URL", help="sqlite:///runs.db, a path, or postgresql://… [default: DONEWHEN_STORAGE]"
    ),
]
Thread = Annotated[str, typer.Argument(metavar="THREAD", help="The thread id, or its beginning.")]
LatestThread = Annotated[
    str | None, typer.Argument(metavar="THREAD", help="The thread id, or its beginning; without it, the latest run.")
]
Detach = Annotated[
    bool,
    typer.Option(
        "--detach", help="Leave it to a worker of its queue, such as `donewhen worker`; print the thread's id."
    ),
]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Approve plans, except schedules: what they list runs unasked, mail and payments too, with values from "
        "your goal or from results. Other calls only if they cannot leave the folder; questions stay open.",
    ),
]
Events = Annotated[
    bool,
    typer.Option("--stream-json", help="One JSON object a line on stdout for every event; the last is the result."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only the answer, and what you are asked.")]
Once = Annotated[
    bool,
    typer.Option(
        "--non-interactive",
        "-n",
        "--print",
        "-p",
        help="Ask nothing: print the answer, or stop where a person is needed.",
    ),
]
TrustSkills = Annotated[
    bool,
    typer.Option("--trust-skills", help="Follow the folder's own .agents/skills and AGENTS.md without asking you."),
]
Confirm = Literal["always", "writes", "complex", "never"]
Approvals = Literal["plan", "shown", "each", "never"]
Exhausted = Literal["ask", "deliver", "stop"]
Unanswered = Literal["wait", "default", "assume", "abort"]
Missed = Literal["skip", "once", "all"]
WhenBusy = Literal["refuse", "next_round"]
ModeOption = Literal["auto", "answer", "step", "plan"]
Proof = Literal["claimed", "grounded", "audited", "judged"]
Folder = Annotated[Path, typer.Option("--dir", "-d", help="The folder the tools may touch.")]
ModelName = Annotated[str | None, typer.Option(help="provider:model, or demo. [default: DONEWHEN_MODEL]")]
McpFile = Annotated[Path | None, typer.Option(help="A JSON file with mcpServers.")]
PlansThatWait = Annotated[Confirm | None, typer.Option(help="Which plans wait for you. [default: always]")]
CallsThatAsk = Annotated[Approvals | None, typer.Option(help="Which calls ask you, besides the plan. [default: shown]")]
Spending = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=AMOUNT", help="What a run may spend, such as cost_usd=0.50; repeat for more."),
]
Programs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COMMAND",
        help="A program it may start, asking each time; “make test” runs unasked. * at the end: with any options.",
    ),
]
ProfileFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A TOML file with the agent's profile. [+ DONEWHEN_PROFILE]")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any setting, such as max_parallel=2 or profile.role=clerk; with --template, its parameter.",
    ),
]
Box = Annotated[
    Literal["auto", "required", "off"],
    typer.Option(help="Whether these programs run in a box, by bubblewrap: auto, where there can be one."),
]
AllowNetwork = Annotated[bool, typer.Option("--allow-network", help="These programs have the network in their box.")]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="A variable that these programs have of your environment, such as PATH; repeat for more. Without it, PATH "
        "is the system's, and HOME a temporary folder.",
    ),
]


class Lazy:
    """A module of the command, loaded on first use, so that `--help` is fast."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(f"donewhen.agent.cli.{self._name}"), name)


if not TYPE_CHECKING:
    options, runs, _exits, _storage_view = Lazy("options"), Lazy("runs"), Lazy("exits"), Lazy("storage_view")
    _standalone = Lazy("standalone")
    _doctor, _plans, _threads, _worker = Lazy("doctor"), Lazy("plans"), Lazy("threads"), Lazy("worker")


def end(command: Callable[[], int], json: bool = False) -> None:
    """Leave with the code of a command."""
    raise typer.Exit(_exits.run_guarded(command, json=json))


def at(storage: str | None, json: bool, command: Callable[["StorageView"], int]) -> None:
    """Leave with the code of a command that reads a storage."""
    end(lambda: command(_storage_view.StorageView(storage, json)), json)


app: typer.Typer = typer.Typer(
    name="donewhen",
    help="Plan, confirm, execute: a step is done when its evidence says so. "
    "The answer goes to stdout, everything else to stderr.",
    epilog="Exit codes: 0 completed or answered, 1 failed or cancelled, 2 usage, 3 waiting for a person, "
    "4 partial or out of budget, 130 interrupted, 143 terminated (state kept).",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        end(lambda: _standalone.print_version())


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="Print it and exit.")] = False,
) -> None:
    """Serve options that belong to no command."""


@app.command()
def run(
    goal: Annotated[
        str, typer.Argument(metavar="GOAL", help="What you want done; “-” or nothing: read it from stdin.")
    ] = "",
    dir: Folder = Path("."),
    model: ModelName = None,
    storage: StorageUrl = None,
    yes: Yes = False,
    json: AsJson = False,
    stdin: Annotated[bool, typer.Option("--stdin", help="Add the text on stdin to the goal.")] = False,
    events: Events = False,
    quiet: Quiet = False,
    once: Once = False,
    thread: Annotated[str | None, typer.Option(help="Continue this conversation, or name the new one.")] = None,
    latest: Annotated[bool, typer.Option("--resume", "-r", help="Continue the latest conversation.")] = False,
    confirm: PlansThatWait = None,
    mode: Annotated[
        ModeOption | None, typer.Option(help="Answer, one step or a plan. [default: the planner decides]")
    ] = None,
    approvals: CallsThatAsk = None,
    when_busy: Annotated[
        WhenBusy | None,
        typer.Option(help="Handling of a `tell` while it works. [default: next_round at a terminal, else refuse]"),
    ] = None,
    verification: Annotated[Proof | None, typer.Option(help="Level of proof. [default: audited]")] = None,
    max_rounds: Annotated[int | None, typer.Option(min=1, help="Model decisions for the whole run.")] = None,
    limit: Spending = None,
    on_exhausted: Annotated[
        Exhausted | None,
        typer.Option(
            help="Action at a limit. [default: ask; deliver with --yes or --confirm never if nobody can be asked]"
        ),
    ] = None,
    on_question: Annotated[
        Unanswered | None, typer.Option(help="Action if nobody answers a question. [default: wait]")
    ] = None,
    question_seconds: Annotated[
        float | None,
        typer.Option(
            min=0, help="How long a question waits for you; then `donewhen resume` lets --on-question answer."
        ),
    ] = None,
    default_answer: Annotated[str | None, typer.Option(metavar="TEXT", help="The answer if nobody answers.")] = None,
    deadline: Annotated[
        str | None, typer.Option(metavar="TIME", help="ISO 8601 moment after which no new round starts.")
    ] = None,
    allow_command: Programs = None,
    box: Box = "auto",
    allow_network: AllowNetwork = False,
    env: Variables = None,
    mcp: McpFile = None,
    profile: ProfileFile = None,
    output_schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A JSON Schema for a structured result, `output` of --json."),
    ] = None,
    image: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="An image or PDF that belongs to the goal; repeat for more."),
    ] = None,
    timezone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Yours, such as Europe/Berlin. [default: DONEWHEN_TIMEZONE]")
    ] = None,
    done_when: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="What must hold at the end, or JSON with a check; repeat for more."),
    ] = None,
    detach: Detach = False,
    trust_skills: TrustSkills = False,
    template: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A plan saved by `donewhen plans save`: no planning."),
    ] = None,
    set: Assignments = None,
) -> None:
    """Work on a goal: plan it, let you confirm, carry it out, prove it."""
    settings = {
        "confirm": confirm,
        "approvals": approvals,
        "mode": mode,
        "when_busy": when_busy,
        "verification": verification,
        "limits": [*(limit or []), *([f"rounds={max_rounds}"] if max_rounds else [])],
        "on_exhausted": on_exhausted,
        "on_question": on_question,
        "question_seconds": question_seconds,
        "default_answer": default_answer,
        "deadline": deadline,
        "timezone": timezone,
        "done_when": done_when,
    }

    def command(view: "StorageView") -> int:
        request = options.RunOptions(
            goal,
            folder=dir,
            model=model,
            thread=thread,
            commands=allow_command or (),
            box=box,
            network=allow_network,
            env=env or (),
            stdin=stdin,
            settings=settings,
            latest=latest,
            mcp=mcp,
            output_schema=output_schema,
            images=image or (),
            profile=profile,
            detach=detach,
            template=template,
            parameters=options.read_values(set or []),
            trust_skills=trust_skills,
        )
        return runs.run_goal(request, options.OutputOptions(view, yes, events, quiet, once))

    at(storage, json or events, command)


@app.command()
def resume(
    thread: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD",
            help="The thread id, or its beginning; without it, the latest waiting or interrupted run. "
            "An answer needs it, or asks you.",
        ),
    ] = None,
    answer: Annotated[str | None, typer.Option("--answer", "-a", help="The answer, in words or as JSON.")] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve the plan or the call.")] = False,
    reject: Annotated[str | None, typer.Option(metavar="TEXT", help="Reject, and say what to change.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the run.")] = False,
    answer_file: Annotated[Path | None, typer.Option(help="A file with the answer; “-” is stdin.")] = None,
    id: Annotated[str | None, typer.Option(metavar="ID", help="The question to answer; default: the first.")] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who answers, for the receipt: a name, or role:name.")] = "",
    steer: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Plan a stopped run again by this instruction; finished steps are kept."),
    ] = "",
    model: Annotated[str | None, typer.Option(help="Another provider:model than it was started with.")] = None,
    dir: Annotated[Path | None, typer.Option("--dir", "-d", help="Another folder, if it was moved.")] = None,
    storage: StorageUrl = None,
    yes: Yes = False,
    json: AsJson = False,
    events: Events = False,
    quiet: Quiet = False,
    once: Once = False,
    detach: Detach = False,
) -> None:
    """Answer what a run waits for, or go on with one that was interrupted."""

    def command(view: "StorageView") -> int:
        reply = options.AnswerOptions(answer, approve, reject, cancel, answer_file, id, by, steer)
        output = options.OutputOptions(view, yes, events, quiet, once)
        return runs.resume_thread(thread, reply, output, model=model, dir=dir, detach=detach)

    at(storage, json or events, command)


@app.command()
def chat(
    dir: Folder = Path("."),
    model: ModelName = None,
    also: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another model to choose on the page; repeat for more.")
    ] = None,
    storage: StorageUrl = None,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65535,
            show_default=False,
            help="Port on 127.0.0.1. [default: the folder's last, or a free one]",
        ),
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    limit: Spending = None,
    allow_command: Programs = None,
    box: Box = "auto",
    allow_network: AllowNetwork = False,
    env: Variables = None,
    mcp: McpFile = None,
    confirm: PlansThatWait = None,
    approvals: CallsThatAsk = None,
    profile: ProfileFile = None,
    trust_skills: TrustSkills = False,
    set: Assignments = None,
) -> None:
    """Work in the browser: open a page on this machine. Ctrl-C ends it and keeps what was done."""

    def command(view: "StorageView") -> int:
        settings = {"limits": limit or [], "confirm": confirm, "approvals": approvals}
        request = options.RunOptions(
            folder=dir,
            model=model,
            commands=allow_command or (),
            box=box,
            network=allow_network,
            env=env or (),
            settings=settings,
            mcp=mcp,
            profile=profile,
            parameters=options.read_values(set or []),
            trust_skills=trust_skills,
        )
        return runs.serve_page(view, request, port=port or 0, browser=browser, also=also or ())

    at(storage, False, command)


@app.command("mcp")
def serve_as_mcp(
    dir: Folder = Path("."),
    model: ModelName = None,
    storage: StorageUrl = None,
    trust_skills: TrustSkills = False,
) -> None:
    """Serve an agent over MCP on stdin and stdout: run, resume with the user's answer, show."""

    def command(view: "StorageView") -> int:
        request = options.RunOptions(folder=dir, model=model, trust_skills=trust_skills)
        return runs.serve_mcp(view, request)

    at(storage, False, command)


@app.command("acp")
def serve_as_acp(
    model: ModelName = None,
    storage: StorageUrl = None,
    trust_skills: TrustSkills = False,
) -> None:
    """Serve an agent to an editor over ACP, on stdin and stdout, in the folder that the editor has open."""

    def command(view: "StorageView") -> int:
        return runs.serve_acp(view, options.RunOptions(model=model, trust_skills=trust_skills))

    at(storage, False, command)


@app.command()
def threads(
    owner: Annotated[str | None, typer.Option(help="Only of this owner.")] = None,
    status: Annotated[
        list[str] | None, typer.Option(help="Only with this status, such as waiting; repeat for more.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only ids that begin so, such as those of a batch.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 100,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """List the runs, the latest first."""
    at(storage, json, lambda view: _threads.list_runs(view, owner, status or (), prefix, limit))


@app.command()
def show(
    thread: LatestThread = None,
    observation: Annotated[
        str | None, typer.Option(metavar="ID", help="Print the whole result of this call, such as s1.1.")
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Show a run: its steps, what proves them, what it waits for, what it cost."""
    at(storage, json, lambda view: _threads.show_thread(view, thread, observation))


@app.command()
def audit(
    thread: Thread,
    judge: Annotated[
        str | None, typer.Option(metavar="MODEL", help="provider:model of the judge. [default: the run's]")
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Audit the answer of a finished run, for the first time or again."""
    at(storage, json, lambda view: runs.audit_thread(thread, options.OutputOptions(view, once=True), judge))


@app.command()
def record(
    thread: Thread,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="The recording, such as tests/mail.jsonl.")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Make a test of a run that was recorded (DONEWHEN_RECORD=1): it replays offline, with the fixture `replay`."""
    at(storage, json, lambda view: _threads.save_recording(view, thread, out))


@app.command()
def receipt(
    thread: Thread,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Else it is printed.")] = None,
    key: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Sign it with this Ed25519 key, a PEM file. [default: DONEWHEN_RECEIPT_KEY]"),
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Write the receipt of a finished run as a file that `donewhen verify` checks anywhere, without a database.

    Signed or not, it needs `pip install 'donewhen[receipts]'`, and so does `donewhen verify`.
    """
    at(storage, json, lambda view: _threads.write_receipt(view, thread, out, key))


@app.command()
def verify(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="The receipt, or several.")],
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The public key that must have signed it: base64, or a PEM file."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout; a list of several files.")] = False,
) -> None:
    """Check receipts: name the first line that was changed, dropped or moved, and the key that signed it.

    Of several files each has a line, with its name; the exit code is 1 if one does not hold.
    """
    end(lambda: _standalone.verify_receipt_files(files, key, json=json), json)


@app.command()
def graph() -> None:
    """Print the graph as Mermaid."""
    end(lambda: _doctor.print_graph())


@app.command()
def events() -> None:
    """Print the JSON schema of the events that a run emits."""
    end(lambda: _doctor.print_events())


@app.command()
def skill() -> None:
    """Print the SKILL.md that teaches coding agents to use DoneWhen."""
    end(lambda: _standalone.print_skill())


@app.command()
def doctor(
    storage: StorageUrl = None,
    json: AsJson = False,
    mcp: Annotated[Path | None, typer.Option(help="A JSON file with mcpServers, to start and list them.")] = None,
) -> None:
    """Show what is installed, configured and reachable; exit with 1 if something is broken."""
    at(storage, json, lambda view: _doctor.run_doctor(view, mcp))


# Background work: workers, schedules, kept plans, and open work on all threads ---------------------------------------

schedules: typer.Typer = typer.Typer(
    help="List, show, change, pause, resume, run and delete schedules.", no_args_is_help=True
)
plans: typer.Typer = typer.Typer(
    help="Kept plans, whose steps are ticked off, and templates, saved from plans that worked.", no_args_is_help=True
)
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Its id.")]
ScheduleId = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, as `schedules list` shows it.")]
app.add_typer(schedules, name="schedules")
app.add_typer(plans, name="plans")


@app.command()
def worker(
    storage: StorageUrl = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Runs at once, on PostgreSQL at most 16; for more, start more workers.")
    ] = 4,
) -> None:
    """Carry out schedules and detached runs on a storage, until it is stopped; several may share one storage."""
    at(storage, False, lambda view: _worker.run_worker(view, concurrency=concurrency))


@app.command()
def budgets(
    day: Annotated[str | None, typer.Option(metavar="DATE", help="2030-12-01, or 2030-12. [default: now]")] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Show what owners and queues spent in a day or month, of the budgets in DONEWHEN_BUDGETS."""
    at(storage, json, lambda view: _threads.show_budgets(view, day))


@app.command()
def status(storage: StorageUrl = None, json: AsJson = False) -> None:
    """Show how many threads wait and run, which workers are alive, and the oldest of each."""
    at(storage, json, _threads.show_status)


@app.command()
def pending(
    owner: Annotated[str | None, typer.Option(help="Only threads of this owner.")] = None,
    prefix: Annotated[str, typer.Option(help="Only threads whose ids begin so, such as those of a batch.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="The most questions to list.")] = 1000,
    cursor: Annotated[str | None, typer.Option(help="Where to continue; printed if there are more.")] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """List the open questions of all threads, the oldest first."""
    at(storage, json, lambda view: _threads.show_pending(view, owner, prefix, limit, cursor))


@app.command()
def watch(
    thread: Thread,
    cursor: Annotated[str | None, typer.Option(help="Show only later events; --json prints the cursors.")] = None,
    storage: StorageUrl = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line: event and cursor.")] = False,
) -> None:
    """Follow a run that a worker carries out, until it waits for you or ends."""
    at(storage, json, lambda view: _threads.watch_thread(view, thread, cursor))


@app.command()
def cancel(
    thread: Thread,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who cancels it, for the receipt.")] = "",
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """End a run that waits, works or is queued, wherever it works; what was done stays done."""
    at(storage, json, lambda view: _threads.cancel_thread(view, thread, by))


@app.command()
def undo(
    thread: Annotated[
        str | None,
        typer.Argument(
            metavar="THREAD", help="The thread id, or its beginning; else you are asked if the latest is meant."
        ),
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="STEP", help="Only what this step or call changed, such as s3 or s3.2.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; say what would be put back.")] = False,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Put back the files that a finished run changed with its file tools, unless one of them changed since."""
    at(storage, json, lambda view: _threads.undo_thread(view, thread, step, dry_run=dry_run))


@app.command()
def tell(
    thread: Thread,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the run is to follow from its next round on.")],
    by: Annotated[str, typer.Option(metavar="NAME", help="Who says it: a name, or role:name.")] = "",
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Say something to a run while it works, if its settings let it: run it with --when-busy next_round."""
    at(storage, json, lambda view: _threads.tell_thread(view, thread, text, by))


@app.command()
def delete(
    thread: Thread,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; THREAD is the whole id.")] = False,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Delete a thread with all that belongs to it, even one that waits, but none that works: cancel that first."""
    at(storage, json, lambda view: _threads.delete_thread(view, thread, yes=yes))


@app.command()
def prune(
    older: Annotated[
        str,
        typer.Option(metavar="TIME", help="Unchanged for at least this long: 30d, 12h, 45m."),
    ],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Delete ended threads with all that belongs to them: checkpoints, observations, intents."""
    at(storage, json, lambda view: _threads.prune_threads(view, older))


@schedules.command("list")
def list_schedules(storage: StorageUrl = None, json: AsJson = False) -> None:
    """List the schedules."""
    at(storage, json, lambda view: _plans.on_schedule(view, "list", ""))


def _on_schedule(verb: str, about: str) -> None:
    @schedules.command(verb, help=about)
    def command(schedule: ScheduleId, storage: StorageUrl = None, json: AsJson = False) -> None:
        at(storage, json, lambda view: _plans.on_schedule(view, verb, schedule))


_on_schedule("show", "Show a schedule: its times, its plan, its last run.")
_on_schedule("pause", "Pause a schedule; its times pass without a run.")
_on_schedule("resume", "Resume a schedule from now on.")


@schedules.command("run")
def run_schedule(
    schedule: ScheduleId,
    moment: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="Its run for this time, ISO 8601, was missed or failed: make it."),
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Let a worker run a schedule once now, in addition, or for a time that was missed or failed."""
    at(storage, json, lambda view: _plans.on_schedule(view, "run", schedule, moment=moment))


@schedules.command("change")
def change_schedule(
    schedule: ScheduleId,
    time: Annotated[str | None, typer.Option("--at", metavar="HH:MM", help="A time of day.")] = None,
    weekdays: Annotated[
        str | None, typer.Option(metavar="DAYS", help="Its days: mon-fri, “mon,thu”, or daily.")
    ] = None,
    cron: Annotated[str | None, typer.Option(metavar="FIELDS", help="Five fields, “30 8 1 * *”.")] = None,
    every: Annotated[int | None, typer.Option(metavar="MINUTES", help="Every so many minutes.")] = None,
    timezone: Annotated[str | None, typer.Option(metavar="ZONE", help="Such as Europe/Berlin.")] = None,
    missed: Annotated[Missed | None, typer.Option(help="What becomes of missed times.")] = None,
    owner: Annotated[str | None, typer.Option(help="Whose its later runs are.")] = None,
    model: Annotated[str | None, typer.Option(help="provider:model of its later runs.")] = None,
    limit: Spending = None,
    set: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Another setting; repeat for more.")
    ] = None,
    by: Annotated[str, typer.Option(metavar="NAME", help="Who changes it, for the record.")] = "",
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Change times, owner, model, limits or other settings of a schedule. Its goal and steps need a new plan."""
    times = {"at": time, "weekdays": weekdays, "cron": cron, "every_minutes": every, "timezone": timezone}
    change = {"times": {**times, "missed": missed}, "owner": owner, "model": model, "limits": limit or []}
    at(storage, json, lambda view: _plans.change_schedule(view, schedule, change, set or (), by))


@schedules.command("delete")
def delete_schedule(
    schedule: ScheduleId,
    with_runs: Annotated[bool, typer.Option("--runs", help="Delete the threads of its runs, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; SCHEDULE is the whole id.")] = False,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Delete a schedule; a queued run is cancelled, the threads of its runs are kept."""
    if with_runs:
        at(storage, json, lambda view: _plans.delete_with_runs(view, schedule, yes=yes))
    else:
        at(storage, json, lambda view: _plans.on_schedule(view, "delete", schedule))


@plans.command("list")
def list_plans(storage: StorageUrl = None, json: AsJson = False) -> None:
    """List the plans that are kept, and the templates."""
    _of_plans("list", {}, storage, json)


@plans.command("get")
def get_plan(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Its id; without it, the active one.")] = "",
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Show a plan and its progress."""
    _of_plans("get", {"id": plan or None}, storage, json)


@plans.command("create")
def create_plan(
    plan: PlanId,
    title: Annotated[str, typer.Argument(metavar="TITLE")],
    steps: Annotated[list[str], typer.Argument(metavar="STEP…")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Create a plan."""
    _of_plans("create", {"id": plan, "title": title, "steps": steps}, storage, json)


@plans.command("update")
def update_plan(
    plan: PlanId,
    title: Annotated[str | None, typer.Option(help="The new title.")] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="A step, one option each; known ones keep their status."),
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Change a plan's title or steps."""
    _of_plans("update", {"id": plan, "title": title, "steps": step}, storage, json)


@plans.command("activate")
def activate_plan(plan: PlanId, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Make a plan the active one."""
    _of_plans("set_active", {"id": plan}, storage, json)


@plans.command("mark")
def mark_step(
    step: Annotated[str, typer.Argument(metavar="STEP", help="The number of the step, from 1, or its id.")],
    status: Annotated[
        str | None, typer.Argument(metavar="STATUS", help="not_started, in_progress, completed (or done) or blocked.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help="Notes to keep with the step.")] = None,
    plan: Annotated[str | None, typer.Option(help="The plan. [default: the active one]")] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Set the status or the notes of a step."""
    _of_plans("mark_step", {"step": step, "status": status, "notes": notes, "id": plan}, storage, json)


@plans.command("delete")
def delete_plan(plan: PlanId, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Delete a plan."""
    _of_plans("delete", {"id": plan}, storage, json)


@plans.command("save")
def save_template(
    thread: Thread,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the template.")],
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A value of that run that becomes a parameter; repeat for more."
        ),
    ] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Save the plan of a completed run as a template: `donewhen run --template NAME --set KEY=VALUE`."""
    at(storage, json, lambda view: _plans.save_template(view, thread, name, set or []))


@plans.command("forget")
def forget_template(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the template.")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Delete a template."""
    at(storage, json, lambda view: _plans.forget_template(view, name))


def _of_plans(verb: str, values: dict[str, object], storage: str | None, json: bool) -> None:
    at(storage, json, lambda view: _plans.on_plan(view, verb, values))
