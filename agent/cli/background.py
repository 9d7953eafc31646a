"""The commands for background work: workers, schedules, kept plans, and open work on all threads."""

from typing import TYPE_CHECKING, Annotated

import typer

from donewhen.agent.cli.flags import AsJson, Lazy, StorageUrl, Thread, at

if TYPE_CHECKING:
    from donewhen.agent.cli import jobs
else:
    jobs = Lazy("jobs")

schedules: typer.Typer = typer.Typer(help="Schedules: list, show, pause, resume.", no_args_is_help=True)
plans: typer.Typer = typer.Typer(
    help="Plans that are kept and ticked off, and plans that worked, saved as templates.", no_args_is_help=True
)
PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Its id.")]
ScheduleId = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, as `schedules list` shows it.")]


def add_commands(app: typer.Typer) -> None:
    """Add these commands to the app."""
    app.add_typer(schedules, name="schedules")
    app.add_typer(plans, name="plans")
    for command in (worker, status, pending, watch, cancel, tell, prune):
        app.command()(command)


def worker(
    storage: StorageUrl = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="Runs at once, on PostgreSQL at most 16; for more, start more workers.")
    ] = 4,
) -> None:
    """Carry out schedules and detached runs on a storage, until it is stopped; several may share one storage."""
    at(storage, False, lambda archive: jobs.run_worker(archive, concurrency=concurrency))


def status(storage: StorageUrl = None, json: AsJson = False) -> None:
    """Say what waits, what runs, which workers there are, and what is oldest."""
    at(storage, json, jobs.show_status)


def pending(
    owner: Annotated[str | None, typer.Option(help="Of this owner's threads only.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many at once.")] = 1000,
    cursor: Annotated[str | None, typer.Option(help="Only what comes after it; given where there are more.")] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """List the open questions of all threads, asked longest ago first, page by page."""
    at(storage, json, lambda archive: jobs.show_pending(archive, owner, limit, cursor))


def watch(
    thread: Thread,
    cursor: Annotated[str | None, typer.Option(help="Only what came after it; --json gives them.")] = None,
    storage: StorageUrl = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line: event and cursor.")] = False,
) -> None:
    """Follow a run that a worker carries out, until it waits for you or ends."""
    at(storage, json, lambda archive: jobs.watch_thread(archive, thread, cursor))


def cancel(thread: Thread, storage: StorageUrl = None, json: AsJson = False) -> None:
    """End a run that waits, works or is queued, wherever it works; what was done stays done."""
    at(storage, json, lambda archive: jobs.cancel_thread(archive, thread))


def tell(
    thread: Thread,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the run is to follow from its next round on.")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Say something to a run while it works, if its settings let it: run it with --when-busy next_round."""
    at(storage, json, lambda archive: jobs.tell_thread(archive, thread, text))


def prune(
    older: Annotated[str, typer.Option(metavar="TIME", help="Ended and unchanged for so long: 30d, 12h, 45m.")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Delete ended threads with all that belongs to them: checkpoints, observations, intents."""
    at(storage, json, lambda archive: jobs.prune_threads(archive, older))


@schedules.command("list")
def list_schedules(storage: StorageUrl = None, json: AsJson = False) -> None:
    """List the schedules."""
    at(storage, json, lambda archive: jobs.on_schedule(archive, "list", ""))


def _on_schedule(verb: str, about: str) -> None:
    @schedules.command(verb, help=about)
    def command(schedule: ScheduleId, storage: StorageUrl = None, json: AsJson = False) -> None:
        at(storage, json, lambda archive: jobs.on_schedule(archive, verb, schedule))


_on_schedule("show", "Show a schedule: its times, its plan, its last run.")
_on_schedule("pause", "Run nothing of it until it is resumed.")
_on_schedule("resume", "Go on with it from now.")
_on_schedule("run", "Have a worker run it once now, beside its times.")
_on_schedule("delete", "Forget it; its runs stay.")


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
    """Show a plan and how far it is."""
    _of_plans("get", {"id": plan or None}, storage, json)


@plans.command("create")
def create_plan(
    plan: PlanId,
    title: Annotated[str, typer.Argument(metavar="TITLE")],
    steps: Annotated[list[str], typer.Argument(metavar="STEP…")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Keep a new plan."""
    _of_plans("create", {"id": plan, "title": title, "steps": steps}, storage, json)


@plans.command("update")
def update_plan(
    plan: PlanId,
    title: Annotated[str | None, typer.Option(help="Another title.")] = None,
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
    step: Annotated[str, typer.Argument(metavar="STEP", help="Its number, from 1, or its id.")],
    status: Annotated[
        str | None, typer.Argument(metavar="STATUS", help="not_started, in_progress, completed or blocked.")
    ] = None,
    notes: Annotated[str | None, typer.Option(help="What to remember of it.")] = None,
    plan: Annotated[str | None, typer.Option(help="Of another plan than the active one.")] = None,
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Set the status or the notes of a step."""
    _of_plans("mark_step", {"step": step, "status": status, "notes": notes, "id": plan}, storage, json)


@plans.command("delete")
def delete_plan(plan: PlanId, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Forget a plan."""
    _of_plans("delete", {"id": plan}, storage, json)


@plans.command("save")
def save_template(
    thread: Thread,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the template.")],
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
    at(storage, json, lambda archive: jobs.save_template(archive, thread, name, set or []))


@plans.command("forget")
def forget_template(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the template.")],
    storage: StorageUrl = None,
    json: AsJson = False,
) -> None:
    """Forget a template."""
    at(storage, json, lambda archive: jobs.forget_template(archive, name))


def _of_plans(verb: str, given: dict[str, object], storage: str | None, json: bool) -> None:
    at(storage, json, lambda archive: jobs.on_plan(archive, verb, given))
