"""An AG-UI endpoint, for CopilotKit and other AG-UI clients. Run: uvicorn examples.agui_server:app

Needs ag-ui-langgraph and fastapi. Pauses come as interrupts with everything to draw them; any shape of answer resumes.
"""

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI

from donewhen import Agent


def serve(agent: Agent) -> FastAPI:
    """The agent at `/agent`, on its own storage."""
    app = FastAPI()
    endpoint = LangGraphAgent(name="donewhen", graph=agent.graph, emit_interrupt_outcome=True)
    add_langgraph_fastapi_endpoint(app, endpoint, "/agent")
    return app


app = serve(Agent("demo"))
