"""The events of a run on their way to the caller: the last one says how it stands, and failures are events too."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from donewhen.agent.run import Json, Run
from donewhen.state.errors import DoneWhenError


def terminal(run: Run) -> Json:
    """The event that ends a stream: what is waited for, or the outcome. `run` is the whole of it."""
    if run.status == "waiting":
        return {"type": "waiting", "pending": list(run.pending), "problem": run.problem, "run": run}
    outcome = run.outcome or {"status": run.status, "code": "interrupted", "text": "Stopped; resume goes on from here."}
    kept = {key: outcome[key] for key in ("status", "code", "text")}
    return {"type": "outcome", **kept, "run": run}


async def told(events: AsyncGenerator[Json, None]) -> AsyncGenerator[Json, None]:
    """The events; an exception after the first becomes the last. Before it nothing has happened, and it is raised."""
    started = False
    async with aclosing(events):
        try:
            async for event in events:
                started = True
                yield event
        except Exception as error:
            if not started:
                raise
            failure: Exception = error
        else:
            return
    yield {"type": "error", "kind": type(failure).__name__, "text": str(failure), "error": failure}


async def last(events: AsyncIterator[Json]) -> Run:
    """The run as the last event has it. Raises what went wrong instead of telling it."""
    end: Json = {}
    async for event in events:
        end = event
    if error := end.get("error"):
        raise error
    run = end.get("run")
    if not isinstance(run, Run):
        raise DoneWhenError("the run ended without an outcome")
    return run
