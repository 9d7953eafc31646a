"""An agent in your editor (Zed, JetBrains …) over the Agent Client Protocol. Run: python -m examples.acp_agent

Needs deepagents-acp. The editor shows the plan and its progress; approve and reject are its own buttons. It has no
way to type an answer, so let settings answer questions.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from acp import run_agent
from deepagents_acp.server import AgentServerACP

from donewhen import Agent, Settings


class WithPlan:
    """The graph of an agent, whose checklist the editor sees as its plan."""

    def __init__(self, agent: Agent) -> None:
        self._graph = agent.graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    async def astream(self, given: Any, config: Any, *, stream_mode: list[str], **more: Any) -> AsyncIterator[Any]:
        """The parts that are asked for; a checklist becomes the update in which the editor looks for one."""
        async for part in self._graph.astream(given, config, stream_mode=[*stream_mode, "custom"], **more):
            if part[1] != "custom":
                yield part
            elif part[2]["type"] == "todos":
                yield (), "updates", {"tools": {"todos": part[2]["todos"]}}


def serve(agent: Agent) -> AgentServerACP:
    """The agent as an ACP server; each session of the editor is a thread."""
    return AgentServerACP(lambda session: WithPlan(agent))  # type: ignore[arg-type,return-value]


if __name__ == "__main__":
    asyncio.run(run_agent(serve(Agent("demo", settings=Settings(on_question="assume")))))
