"""A plan as a customer reads it, in a whole dialogue about it; the goldens are what stands on their screen."""

import pytest

from donewhen import Agent
from donewhen.testing import ScriptedModel, answer, give_up, submit_plan
from tests.kit import golden
from tests.kit.runs import Outbox, drawn, said, step

TEXTS = {
    "en": {
        "title": "Refund order 17",
        "look": "Look up order 17",
        "known": "the order is known",
        "pay": "Pay 40 EUR back",
        "paid": "40 EUR were paid back",
        "gift": "Send a voucher over 40 EUR",
        "sent": "the voucher was sent",
        "speak": "I would refund order 17. Shall I do that?",
        "other": "Then a voucher. All right?",
        "anew": "The voucher can only be sent by mail.",
        "fee": "No, nothing.",
        "more": "It takes a day. Anything else?",
    },
    "de": {
        "title": "Bestellung 17 erstatten",
        "look": "Bestellung 17 nachsehen",
        "known": "die Bestellung ist bekannt",
        "pay": "40 EUR erstatten",
        "paid": "40 EUR sind erstattet",
        "gift": "Einen Gutschein über 40 EUR schicken",
        "sent": "der Gutschein ist verschickt",
        "speak": "Ich würde Bestellung 17 erstatten. Soll ich das tun?",
        "other": "Dann einen Gutschein. Ist das recht?",
        "anew": "Der Gutschein lässt sich nur per Post schicken.",
        "fee": "Nein, nichts.",
        "more": "Es dauert einen Tag. Noch etwas?",
    },
}


@pytest.mark.parametrize("language", TEXTS)
async def test_a_dialogue_about_a_plan_reads_like_one(language: str) -> None:
    """Issue 36, C13: steps have numbers, checks words, defaults of limits are not shown, and the run's own question
    comes last; to words about the plan there is the answer, or what changed, and all of it is in the language of the
    run. Ids, calls and limits are in the data."""
    word = TEXTS[language]
    check = {"tool": "balance", "arguments": {"order": 17}, "expect": "ok"}
    look = step("s1", word["look"], done_when=[word["known"]])
    pay = step(
        "pay", word["pay"], depends_on=["s1"], tools=["send"], done_when=[{"text": word["paid"], "check": check}]
    )
    gift = step("gift", word["gift"], depends_on=["s1"], tools=["send"], done_when=[word["sent"]])
    post = step(
        "post", word["gift"], depends_on=["s1"], tools=["send", "balance"], done_when=[word["sent"]], replaces=["gift"]
    )

    def plan(*steps: object, speak: str) -> object:
        return submit_plan([*steps], title=word["title"], speak=speak, language=language)

    def balance(order: int) -> str:
        """Say what is still to be paid for an order."""
        return f"order {order}: nothing"

    triage = [
        plan(look, pay, speak=word["speak"]),
        answer(word["fee"]),
        answer(word["more"]),
        plan(look, gift, speak=word["other"]),
    ]
    execute = {"s1": [said("s1")], "gift": [give_up("by mail", kind="replan")]}
    model = ScriptedModel(roles={"triage": triage, "plan": [plan(post, speak=word["anew"])], "execute": execute})
    agent = Agent(model, [Outbox().tool(), balance], storage="memory:", effects={"balance": "read"})
    texts = []
    run = await agent.start("?", settings={"limits": {"rounds": 30}})
    ids = [each["id"] for each in run.pending[0]["plan"]["steps"]]
    assert (ids, run.pending[0]["limits"]["questions"]) == (["s1", "pay"], 20)
    for reply in ("1?", "2?", "3!", "approve"):
        await drawn(agent, run)
        texts += [str(run), f"---- {reply}"]
        run = await agent.resume(run, reply)
    texts.append(str(run))
    model.assert_exhausted()
    golden.matches(f"plan_{language}.md", "\n\n".join(texts) + "\n")
