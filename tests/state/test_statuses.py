"""What may follow what in the life of a step."""

from typing import Any

import pytest

from donewhen.state.statuses import FINAL, FOLLOWS, change_status, fresh_record

PAUSE: Any = {"id": "s1.q1", "kind": "question", "question": "Which?"}


@pytest.mark.parametrize("before", FOLLOWS)
@pytest.mark.parametrize("after", FOLLOWS)
def test_a_status_follows_only_another_that_allows_it(before: Any, after: Any) -> None:
    """Q87: one table says it; what does not belong to the next status goes."""
    record = {**fresh_record(), "status": before, "ended": "then" if before in FINAL else ""}
    record |= {"waiting": PAUSE} if before == "waiting" else {}
    change: Any = {"status": after, **({"waiting": PAUSE} if after == "waiting" else {})}
    if after not in FOLLOWS[before]:
        with pytest.raises(ValueError, match=f"a step that is {before} cannot become {after}"):
            change_status(record, change, "now")  # type: ignore[arg-type]
        return
    moved = {**record, **change_status(record, change, "now")}  # type: ignore[arg-type]
    assert (moved["waiting"] is not None) == (after == "waiting")
    assert moved["ended"] == ("now" if after in FINAL else "then" if after == "stale" else "")
