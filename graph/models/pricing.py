"""What a model call cost: its tokens and its price, each marked where it is not really known. Pure."""

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage

from donewhen.graph.context import Deps, Pricing
from donewhen.graph.models.usage import usage_of
from donewhen.state.errors import DoneWhenError
from donewhen.state.ledger import ESTIMATED, UNPRICED, Amounts
from donewhen.state.settings import Settings

ROLES = ("triage", "plan", "execute", "judge", "deliver")


def model_name(model: BaseChatModel) -> str:
    """The name under which a model has its price."""
    named = (getattr(model, field, None) for field in ("model_name", "model", "model_id"))
    return str(next((name for name in named if name), type(model).__name__))


def is_priced(name: str, pricing: Pricing | None) -> bool:
    """Whether anybody knows what the model costs."""
    return pricing is not None and pricing(name, {"input_tokens": 1}) is not None


def cost_of(message: AIMessage, prompt: int | str, name: str, pricing: Pricing | None) -> Amounts:
    """Tokens of a reply and what they cost; `prompt` is what was sent, or its length, for an estimate.

    The price is that of `name`, which is what the user set; where it has none, that of the model that answered.
    """
    used: Amounts = dict(usage_of(message, prompt))
    if used.pop("estimated", False):
        used[ESTIMATED] = 1
    answered_by = str(message.response_metadata.get("model_name") or "")
    known = (pricing(each, used) for each in (name, answered_by) if pricing and each)
    cost = next((price for price in known if price is not None), None)
    if cost is None:
        return {**used, UNPRICED: 1}
    return {**used, "cost_usd": cost} if cost else used


def no_price(name: str) -> str:
    """What is wrong with a model without a price under a limit of money, and what to do about it."""
    return (
        f"There is a limit of cost_usd, but no price is known for the model {name!r}. "
        f"Give its price, in prices= or as DONEWHEN_PRICES='{name}=0/0' if it costs nothing, or limit tokens instead."
    )


def unpriced(deps: Deps, settings: Settings) -> str | None:
    """Why a run under a limit of money may not start: a model it will ask has no known price. None if it may."""
    if settings.limits.cost_usd is None and settings.step_limits.cost_usd is None:
        return None
    names = [executor.model for executor in deps.executors.values() if executor.model is not None]
    for role in ROLES:  # the judge too: a single criterion may ask for it
        try:
            names.append(deps.model(role, settings))
        except DoneWhenError:
            continue  # a model that cannot be made is an error of its own, where it is asked
    for name in map(model_name, names):
        if not is_priced(name, deps.pricing):
            return no_price(name)
    return None
