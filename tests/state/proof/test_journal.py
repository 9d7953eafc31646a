"""Observations: how they are named, shortened, compared, quoted, and when they are out of date."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from donewhen.state.proof.journal import (
    INLINE_CHARS,
    CallHistory,
    citable_entries,
    digest,
    observation,
    shorten_entry,
)


def seen(id: str, text: str = "x", *, step: str = "s1", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": "look", "effect": "read", **more}
    return observation(id, step, 1, fields.pop("source", "tool"), text, **fields)


@given(st.text(min_size=30, max_size=400), st.integers(2, 200))
def test_a_shortened_text_keeps_head_and_tail_and_says_how_much_is_missing(text: str, limit: int) -> None:
    """X12: characters, never bytes; the digest is still that of the whole."""
    short = shorten_entry(seen("s1.1", text), limit)
    assert short["digest"] == digest(text)
    assert short["length"] == len(text)
    assert short["stored"] == (len(text) > limit)
    if short["stored"]:
        half = limit // 2
        assert short["text"].startswith(text[:half])
        assert short["text"].endswith(text[-half:])
        assert f"{len(text) - 2 * half} characters left out" in short["text"]
    else:
        assert short["text"] == text


def test_long_results_are_compared_whole() -> None:
    """X11: also when one of them is at hand only in part."""
    text = "a" * 5000
    one, two = seen("s1.1", text + "b" + text), seen("s1.2", text + "c" + text)
    assert CallHistory().last_equal(two, [shorten_entry(one, 1000)])[0] is None
    assert CallHistory().last_equal(shorten_entry(one, INLINE_CHARS), [shorten_entry(one, 1000)])[0] is not None


def test_a_step_sees_what_it_builds_on_and_of_others_only_that_they_changed_something() -> None:
    """X01, K7: the texts of other steps stay with them; what may be cited is no copy."""
    journal = [
        seen("s1.1", "long " * 1000, step="s1"),
        seen("s2.1", "secret", step="s2"),
        seen("s2.2", "wrote secret", step="s2", effect="write", targets=["a.txt"], arguments={"content": "secret"}),
    ]
    known = citable_entries(journal, {"s1", "s3"})
    assert [e["id"] for e in known] == ["s1.1", "s2.2"]
    assert known[0] is journal[0]
    assert known[1]["outside"]
    assert "secret" not in str(known[1])
