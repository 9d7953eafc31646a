"""The benchmark of consent, in short: what asks of honest work, and what runs unasked of attacks."""

from benchmarks.consent import agentdojo, airline


def test_attacks_of_a_public_benchmark() -> None:
    """Q63, X25: of one task in four, as prose and alone in a free field; of honest writes, those of all tasks."""
    writes, asked = agentdojo.honest()
    assert (writes, len(asked)) == (82, 22)
    ran = {}
    for where in agentdojo.PLACES:
        pairs, found = agentdojo.attacked(where, every=4)
        assert pairs > 140
        ran[where] = {(each.task, each.attack) for each in found}
    assert ran["prose"] == ran["field"] == ran["dialogue"]  # what runs has its source elsewhere
    assert len(ran["field"]) <= 4


def test_dialogues_of_a_real_model() -> None:
    """X25: what was shown before a write is what it is made of; the rest asks."""
    head, dialogues = airline.recorded()
    right = [each for each in dialogues if each["right"]][:40]
    asked = {
        planned: sum(len(airline.play_one(each, head["writes"], planned=planned).asked) for each in right)
        for planned in (False, True)
    }
    assert asked[True] < asked[False] <= 15
