"""A profile in Chinese, from a TOML file: who the agent is, and what it may not do. Runs without a key.

The script first plans in English and with a forbidden tool; both are sent back.
"""

import asyncio
import tomllib
from pathlib import Path

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, finish_step, submit_plan

PROFILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def read_file(path: str) -> str:
    """Read a text file."""
    return "十月 1280.50\n十一月 990.00"


def delete_file(path: str) -> str:
    """Delete a file."""
    raise AssertionError("nobody may")


def model() -> ScriptedModel:
    """As a model might, at first not as it was told."""
    plans = [
        submit_plan(
            [{"content": "Read the ledger and add up the two months", "tools": []}], title="Add it up", language="en"
        ),
        submit_plan([{"content": "读取账本，然后删除它", "tools": ["delete_file"]}], title="对账"),
        submit_plan([{"content": "读取账本，说明两个月的金额", "tools": ["read_file"]}], title="对账"),
    ]
    work = [call("read_file", path="账本.txt"), finish_step("十月 1280.50，十一月 990.00。", ("s1.1", "1280.50"))]
    return ScriptedModel(roles={"triage": plans, "execute": work})


async def main() -> None:
    """Run it, and print what was sent back."""
    effects = {"read_file": "read"}
    async with Agent(
        model(), [read_file, delete_file], effects=effects, storage="memory:", settings={"profile": PROFILE}
    ) as agent:
        # A call may add to what is forbidden, and take nothing back.
        loose = {"confirm": "never", "profile": {"forbidden_tools": [], "language": "en"}}
        async for event in agent.stream("这两个月的账是多少？", settings=loose):
            if event["type"] == "correction":
                print(f"退回：{event['text']}")
            elif event["type"] == "outcome":
                print(event["text"])


if __name__ == "__main__":
    asyncio.run(main())
