"""Executors that describe themselves: what the planner reads of a graph or a function that was given no description."""

from langgraph.graph import START, MessagesState, StateGraph

from donewhen import Executor
from donewhen.testing import ScriptedModel, answer
from tests.kit.flows import play


class Archive(MessagesState):
    """Finds old letters by year.

    It is slow.
    """


async def stock(brief: str) -> str:
    """Count what is in the shop."""
    return brief


async def test_a_docstring_describes_an_executor() -> None:
    """P08: the docstring of the graph's state or of the function; LangGraph's own says nothing; a description wins."""
    archive = StateGraph(Archive).add_node("find", lambda state: {}).add_edge(START, "find").compile()
    plain = StateGraph(MessagesState).add_node("find", lambda state: {}).add_edge(START, "find").compile(name="crew")
    named = Executor("the second shelf", work=stock)
    model = ScriptedModel(roles={"triage": [answer("Hello.")]})
    executors = {"archive": archive, "crew": plain, "stock": Executor(work=stock), "shelf": named}
    await play(model, executors=executors, goal="Hi")
    said = model.requests[0].text
    assert "- archive: Finds old letters by year.\n" in said
    assert "- crew: crew\n" in said
    assert "- stock: Count what is in the shop.\n" in said
    assert "- shelf: the second shelf\n" in said
