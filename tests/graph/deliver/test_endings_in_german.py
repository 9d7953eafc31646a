"""How a German run ends, with what the runtime itself says about it; the golden is what people read."""

from collections.abc import Sequence
from typing import Any

from donewhen import Agent
from donewhen.testing import ScriptedModel, call, decline, finish_step, give_up, submit_plan
from tests.kit import golden
from tests.kit.runs import step

LOOKS = [call("look", at=place) for place in "abcdefgh"]
FAILS = [give_up("kein Papier", kind="failed")]
DONE = [call("look", at="a"), finish_step("getan", "s1.1")]
UNASKED: dict[str, Any] = {"confirm": "never", "on_failure": "deliver", "on_exhausted": "deliver"}
FAILURE: dict[str, Any] = {"confirm": "never", "on_failure": "ask"}


def look(at: str) -> str:
    """Look somewhere."""
    return f"{at}: leer"


async def ended(
    execute: Sequence[Any], settings: dict[str, Any], *replies: str, triage: Sequence[Any] | None = None
) -> str:
    steps = [step("s1", "Drucken"), step("s2", "Schicken", depends_on=["s1"])]
    roles = {"triage": triage or [submit_plan(steps, title="Plan", language="de")], "execute": {"s1": execute}}
    settings = {"profile": {"name": "Amt", "language": "de"}, **settings}
    async with Agent(
        ScriptedModel(roles=roles, strict=False), [look], storage="memory:", effects={"look": "read"}
    ) as agent:
        run = await agent.start("Tu es", settings=settings)
        for reply in replies:
            run = await agent.resume(run, reply)
        run = run if run.outcome else await agent.cancel(run)
        assert run.outcome is not None
        return str(run) + (f"\n({run.outcome['reason']})" if run.outcome["reason"] not in str(run) else "")


async def test_a_german_run_ends_in_german() -> None:
    """Q27: at a limit of the run, of a step, of planning; late; cancelled each way; failed; without a plan or reply."""
    nope = [call("nope")] * 5
    texts = {
        "Grenze des Laufs": await ended(LOOKS, {**UNASKED, "limits": {"rounds": 2}}),
        "Grenze eines Schritts": await ended(LOOKS, {**UNASKED, "step_limits": {"rounds": 2}}),
        "Grenze, geliefert": await ended(LOOKS, {"limits": {"rounds": 2}}, "ja", "liefern, was da ist"),
        "Grenze, beendet": await ended(LOOKS, {"limits": {"rounds": 2}}, "ja", "abbrechen"),
        "Grenze beim Planen": await ended([], {**UNASKED, "limits": {"model_calls": 2}}, triage=LOOKS),
        "Runden der Planung": await ended([], {**UNASKED, "plan_rounds": 2}, triage=LOOKS),
        "Eine Runde der Planung": await ended([], {**UNASKED, "plan_rounds": 1}, triage=LOOKS),
        "Frist": await ended(LOOKS, {**UNASKED, "deadline": "2020-01-01T00:00:00Z"}),
        "Am Plan beendet": await ended([], {}, "abbrechen"),
        "Von außen beendet": await ended([], {}),
        "Gescheitert": await ended(FAILS, UNASKED),
        "Gescheitert, geliefert": await ended(FAILS, FAILURE, "liefern, was da ist"),
        "Gescheitert, angehalten": await ended(FAILS, FAILURE, "aufhören"),
        "Kein brauchbarer Plan": await ended([], UNASKED, triage=nope),
        "Keine brauchbare Antwort": await ended(nope, UNASKED),
        "Abgelehnt": await ended([], UNASKED, triage=[decline("nicht erlaubt", "Das darf ich nicht.")]),
    }
    golden.matches("endings_de.md", "".join(f"# {name}\n\n{text.strip()}\n\n" for name, text in texts.items()))
