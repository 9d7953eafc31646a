"""One step that is a program, for processes that are killed on the way."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.tools import StructuredTool

from donewhen import Agent
from donewhen.agent.storage import open_storage
from donewhen.agent.testing.crash import Crash, crashing, crashing_tool
from donewhen.testing import ScriptedModel, call, finish_step, playing, submit_plan
from tests.kit.comparing import EffectLedger, drive, ending
from tests.kit.everywhere import DIARY

PROGRAM = """
rows = orders()
for row in rows:
    if not status(row["order_id"]):
        refund(row["order_id"], row["amount"])
print(len(rows), "rows,", len([row for row in rows if status(row["order_id"])]), "refunded")
"""
SECOND = 'print(len(rows), "rows still")'


async def refunding(folder: Path, crash: Crash, storage: str = "", approvals: str = "each") -> dict[str, Any]:
    """Bring the run to its end from wherever it is; its list is approved, and what was cut off is told as it is."""
    world, thread = EffectLedger(folder / "world.jsonl"), f"{folder.parent.name}-{folder.name}"

    def orders() -> list[dict[str, Any]]:
        """List the orders."""
        return [{"order_id": f"o{n}", "amount": 30 + n / 4} for n in range(3)]

    def status(order_id: str) -> list[str]:
        """Look what was refunded."""
        return [row["result"] for row in world.rows if row["arguments"]["order_id"] == order_id]

    def refund(order_id: str, amount: float) -> str:
        """Refund an order."""
        return str(world.do("refund", {"order_id": order_id, "amount": amount}, f"r-{order_id}"))

    def answer(pause: Mapping[str, Any]) -> str:
        if pause["kind"] == "effect":
            return "it happened" if world.happened(pause["tool"], pause["arguments"]) else "it did not"
        return "approve"

    plan = submit_plan([{"content": "Refund them", "tools": ["refund"]}])
    work = [call("run_program", code=PROGRAM), call("run_program", code=SECOND), finish_step("Refunded.", "s1.2")]
    effects: Any = {"orders": "read", "status": "read", "refund": "write"}
    agent = Agent(
        ScriptedModel(roles={"triage": playing([plan]), "execute": {"s1": playing(work)}}),
        [crashing_tool(StructuredTool.from_function(tool), crash) for tool in (orders, status, refund)],
        effects=effects,
        storage=crashing(open_storage(storage or f"sqlite:///{folder}/runs.db"), crash),
        settings={"programs": True, "confirm": "never", "approvals": approvals, "verification": "claimed"},
    )
    await drive(agent, "Refund", thread, answer, diary=folder / DIARY, crash=crash)
    return {"ending": await ending(agent, thread), "effects": world.rows}
