"""What a release stored is read by the next one; `python -m tests.kit.storage.release` writes a release's database."""

import gzip
from pathlib import Path

import pytest

from donewhen import Agent
from tests.kit.runs import Outbox
from tests.kit.storage.release import DATA, script

RELEASES = sorted(DATA.glob("stored-*.sqlite.gz"))


def unpack(release: Path, folder: Path) -> Path:
    """Return the path of a release's database, unpacked into `folder`."""
    path = folder / "donewhen.sqlite"
    path.write_bytes(gzip.decompress(release.read_bytes()))
    return path


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name.removesuffix(".sqlite.gz"))
async def test_threads_of_a_release_are_read_and_continue(release: Path, tmp_path: Path) -> None:
    """R06: a release's database is listed, its ended run is read, and its waiting and queued runs end as asked."""
    path = unpack(release, tmp_path)
    outbox = Outbox()
    async with Agent(script(), [outbox.tool()], storage=f"sqlite:///{path}") as agent:
        listed = {row.thread_id: row.status for row in await agent.threads()}
        assert listed == {"plan": "waiting", "call": "waiting", "ended": "completed", "queued": "queued"}
        ended = await agent.get("ended")
        assert (ended.status, ended.answer) == ("completed", "All done.")
        assert (await agent.receipt("ended")) is not None
    for thread in ("plan", "call", "queued"):
        async with Agent(script(), [outbox.tool()], storage=f"sqlite:///{path}") as agent:
            run = await (
                agent.run_submitted(thread) if thread == "queued" else agent.resume(await agent.get(thread), "approve")
            )
            while run.status == "waiting":
                run = await agent.resume(run, "approve")
            assert run.status == "completed", thread
    assert len(outbox.sent) == 3
