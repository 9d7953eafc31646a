"""What `langgraph.json` exports: the graph without a checkpointer (the server brings its own), and who may see what.

The graph works with the workspace tools on DONEWHEN_DIR (default: the current folder). With DONEWHEN_TOKENS
(`alice:token,bob:token`) every request needs a bearer token and sees its own threads only; without, the server is for
one person on one machine.
"""

import hmac
from typing import Any

from langgraph_sdk import Auth

from donewhen.agent.config import DEMO, read_config
from donewhen.agent.models import ModelSource
from donewhen.agent.prices import Prices
from donewhen.agent.workspace import workspace_tools
from donewhen.graph.build import build_graph

_config = read_config()
graph = build_graph(
    ModelSource(_config.model or DEMO, config=_config),
    workspace_tools(_config.folder, commands=_config.commands),
    prices=Prices(_config.prices).cost,
    secrets=_config.secrets,
).compile()

auth = Auth()


@auth.authenticate
async def authenticate(headers: dict[bytes, bytes]) -> Auth.types.MinimalUserDict:
    """The user whose token the request bears; everyone is `local` where no tokens are set."""
    if not _config.tokens:
        return {"identity": "local"}
    given = (headers.get(b"authorization") or b"").decode("latin-1").removeprefix("Bearer ").strip()
    for name, token in _config.tokens.items():
        if hmac.compare_digest(given.encode(), token.encode()):
            return {"identity": name}
    raise Auth.exceptions.HTTPException(status_code=401, detail="a bearer token of this server is needed")


@auth.on
async def own_only(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> Auth.types.FilterType:
    """Everything belongs to who made it, and only they find it."""
    owner = {"owner": ctx.user.identity}
    value.setdefault("metadata", {}).update(owner)
    return owner


@auth.on.assistants.read
async def read_shared(ctx: Auth.types.AuthContext, value: Auth.types.AssistantsRead) -> bool:
    """The assistants of this server are everybody's to use."""
    return True


@auth.on.assistants.search
async def find_shared(ctx: Auth.types.AuthContext, value: Auth.types.AssistantsSearch) -> bool:
    """And to find."""
    return True


@auth.on.store
async def own_store(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> None:
    """A user's entries in the store lie under their name."""
    value["namespace"] = (ctx.user.identity, *(value.get("namespace") or ()))
