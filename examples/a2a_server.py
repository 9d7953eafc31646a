"""An agent as an A2A endpoint, for agents of others. Run: uvicorn a2a_server:app --port 8000

Needs `pip install 'donewhen[a2a]' 'a2a-sdk[http-server]' uvicorn`. The card is at /.well-known/agent-card.json.
Clients may register an address that is told when their task waits for an answer, or ends. The demo model reads the goal
of a person, not the brief of another agent: give it a real model to be an executor of steps.
"""

from starlette.applications import Starlette

from donewhen import Agent
from donewhen.servers import PushNotifications, a2a_app
from donewhen.workspace import workspace_tools

URL = "http://127.0.0.1:8000/"


def serve(agent: Agent, push: PushNotifications) -> Starlette:
    """The agent at URL; `push` is what the agent notifies."""
    return a2a_app(agent, URL, push=push, name="Clerk", description="Counts and lists files, and writes reports.")


push = PushNotifications(inside=True)  # addresses on this machine too; leave it out where strangers may register them
app = serve(Agent("demo", workspace_tools("."), notify=push), push)
