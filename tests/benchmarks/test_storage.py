"""docs/storage.md in short form: what a long plan leaves in storage grows with its rounds, not with their square."""

from benchmarks.storage import measure


async def test_storage_is_linear_over_steps() -> None:
    """K7, R09: 216 rounds in 54 steps take less than 4 MB, while at work too, and about twice what 27 steps take."""
    half, half_full, _ = await measure(27, 4)
    whole, whole_full, _ = await measure(54, 4)
    assert max(whole, whole_full) < 4
    assert whole < 2.2 * half
    assert whole_full < 2.2 * half_full
