"""The exports of `langgraph.json`: the graph without a checkpointer (the server brings its own), and access rules.

The graph works with the workspace tools on DONEWHEN_DIR (default: the current folder). With DONEWHEN_TOKENS
(`alice:token,bob:token`) every request needs a bearer token, sees what its user made, and works in the user's own
folder below DONEWHEN_DIR. Without it, the server is for one person on one machine and answers programs, local pages and
LangGraph Studio. DONEWHEN_SETTINGS names a JSON file of settings. Clients may make these stricter and lower the limits,
but they can neither widen them, nor lower `confirm` and `approvals`, nor bypass them by writing the state.
DONEWHEN_PROFILE and DONEWHEN_EXECUTORS work as for every agent.

A room beside the face: it builds the graph without an `Agent`, from the same parts. Without it, `langgraph.json` and
the extra `studio` go.
"""

from donewhen.agent.server.access import auth
from donewhen.agent.server.graphs import graph

__all__ = ["auth", "graph"]
