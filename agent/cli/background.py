"""Commands for work that nobody waits for: workers, schedules, plans kept, and what there is to do over all threads."""

from typing import Annotated

import typer

from donewhen.agent.cli.flags import AsJson, StorageUrl, end

schedules = typer.Typer(help="What is repeated: look at it, stop it, go on with it.", no_args_is_help=True)
Schedule = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its id, as `schedules list` shows it.")]


def add_commands(app: typer.Typer) -> None:
    """Make these commands of the app."""
    app.add_typer(schedules, name="schedules")
    for command in (worker, status):
        app.command()(command)


def worker(
    storage: StorageUrl = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="Runs at once.")] = 4,
) -> None:
    """Carry out schedules and detached runs on a storage, until it is stopped; several may share one storage."""

    def command() -> int:
        from donewhen.agent.cli.jobs import run_worker

        return run_worker(storage=storage, concurrency=concurrency)

    end(command, json=False)


def status(storage: StorageUrl = None, json: AsJson = False) -> None:
    """Say what waits, what runs, which workers there are, and what is oldest."""

    def command() -> int:
        from donewhen.agent.cli.jobs import show_status

        return show_status(storage=storage, json=json)

    end(command, json)


@schedules.command("list")
def list_schedules(storage: StorageUrl = None, json: AsJson = False) -> None:
    """List the schedules."""
    _of_schedules("list", "", storage, json)


@schedules.command("show")
def show_schedule(schedule: Schedule, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Show a schedule: its times, its plan, its last run."""
    _of_schedules("show", schedule, storage, json)


@schedules.command("pause")
def pause_schedule(schedule: Schedule, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Run nothing of it until it is resumed."""
    _of_schedules("pause", schedule, storage, json)


@schedules.command("resume")
def resume_schedule(schedule: Schedule, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Go on with it from now."""
    _of_schedules("resume", schedule, storage, json)


@schedules.command("run")
def run_schedule(schedule: Schedule, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Have a worker run it once now, beside its times."""
    _of_schedules("run", schedule, storage, json)


@schedules.command("delete")
def delete_schedule(schedule: Schedule, storage: StorageUrl = None, json: AsJson = False) -> None:
    """Forget it; its runs stay."""
    _of_schedules("delete", schedule, storage, json)


def _of_schedules(verb: str, id: str, storage: str | None, json: bool) -> None:
    def command() -> int:
        from donewhen.agent.cli.jobs import on_schedule

        return on_schedule(verb, id, storage=storage, json=json)

    end(command, json)
