"""The act node: runs the calls that the model decided on, behind the gates of approval, repetition and effects."""

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps, settings_of
from donewhen.graph.execute.carrying import carry_out
from donewhen.graph.execute.invoking import Site
from donewhen.state.run import Step
from donewhen.state.settings import Settings


async def act(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Run the calls; stop at the first that needs a person or that the budget does not allow."""
    settings = settings_of(runtime)
    tools = deps.tools_for(state["step"].get("executor"), settings)
    return await carry_out(Site(state, runtime, config, deps, settings.tool_seconds), tools)
