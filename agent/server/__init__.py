"""The exports of `langgraph.json`: the graph without a checkpointer (the server brings its own), and access rules.

The graph works with the workspace tools on DONEWHEN_DIR (default: the current folder). With DONEWHEN_TOKENS
(`alice:token,bob:token`) every request needs a bearer token, sees what its user made, and works in the user's own
folder below DONEWHEN_DIR. Without, the server is for one person on one machine: it answers programs, and pages of this
machine and of LangGraph Studio. What DONEWHEN_SETTINGS names, a JSON file of settings, no client can widen; nor can one
lower `confirm` and `approvals`, nor get around them by writing the state. More care, and less to spend, anybody may ask
for. DONEWHEN_PROFILE and DONEWHEN_EXECUTORS are as for every agent.
"""

from donewhen.agent.server.access import auth
from donewhen.agent.server.graphs import graph

__all__ = ["auth", "graph"]
