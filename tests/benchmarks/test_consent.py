"""What `approvals="shown"` asks in recorded work: seldom, and mostly where the work went wrong."""

from benchmarks.consent.__main__ import measure, section


def test_recorded_work_is_seldom_interrupted() -> None:
    """X25, Q20: without a plan that names what the customer says in sentences, three in ten of a real model's writes
    ask; in dialogues that went right a question in four."""
    results = measure()
    right = [result for result in results if result.right]
    assert sum(result.writes for result in results) == 250
    assert sum(len(result.asked) for result in results) <= 70
    assert sum(len(result.asked) for result in right) <= len(right) / 4
    assert "credit_card_7334" in section(results)  # no such card; the model made up its id
