"""Done means proven: what counts as a complete goal_check, as evidence, and as good enough."""

import time
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from donewhen.state.proof.evidence import MOST_EVIDENCE, Seen, excerpt, ground
from donewhen.state.proof.goal_check import criteria_of, enough, level_of, read_claims
from donewhen.state.proof.journal import observation

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["criterion", "met", "evidence", "note", "x"]), inner, max_size=5)
    ),
    max_leaves=20,
)
ITEM = st.fixed_dictionaries({"criterion": st.integers(-1, 6) | JSON, "met": st.booleans() | JSON, "evidence": JSON})


def criteria(count: int) -> list[dict[str, Any]]:
    return [{"text": f"criterion {n}"} for n in range(count)]


LEVELS = st.sampled_from(["claimed", "grounded", "judged"])


@given(JSON | st.lists(ITEM, max_size=7), st.integers(1, 5), LEVELS)
@example([1], 1, "grounded")
@example([{"criterion": True, "met": True}], 1, "grounded")
@example("done", 2, "claimed")
def test_whatever_a_model_sends_only_a_complete_goal_check_is_taken(value: Any, count: int, level: str) -> None:
    """X03: never an exception, never a goal_check without a claim for every criterion."""
    read = read_claims(value, criteria(count), level)
    if isinstance(read, dict):
        assert sorted(read) == list(range(1, count + 1))
        assert all(isinstance(claim["met"], bool) for claim in read.values())
    else:
        assert read
        assert all(isinstance(problem, str) and problem for problem in read)


@given(st.integers(1, 6), st.data())
def test_a_goal_check_that_leaves_out_a_criterion_is_refused_and_told_which(count: int, data: st.DataObject) -> None:
    """X03: the missing ones are listed."""
    numbers = data.draw(st.sets(st.integers(1, count)))
    read = read_claims(
        [{"criterion": n, "met": True, "evidence": []} for n in sorted(numbers)], criteria(count), "grounded"
    )
    missing = sorted(set(range(1, count + 1)) - numbers)
    if missing:
        assert isinstance(read, list)
        assert not numbers or ", ".join(map(str, missing)) in read[-1]
    else:
        assert isinstance(read, dict)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "must be a list with an item for criterion 1"),
        ([], "must be a list"),
        ("it is done", "must be a list"),
        ([{"criterion": "1", "met": True}], "needs criterion"),
        ([{"criterion": 2, "met": True}], "there are 1 to 1"),
        ([{"criterion": 1, "met": "yes"}], "met must be true or false"),
        ([{"criterion": 1, "met": True}, {"criterion": 1, "met": True}], "two items"),
    ],
)
def test_what_is_wrong_with_a_goal_check_is_said(value: Any, said: str) -> None:
    """X03"""
    read = read_claims(value, criteria(1), "grounded")
    assert isinstance(read, list)
    assert said in "; ".join(read)


def test_what_was_accepted_stands_and_what_is_checked_needs_no_claim() -> None:
    """V02: only what failed is submitted again; the model's word plays no part in a check."""
    wanted = [{"text": "one"}, {"text": "two"}, {"text": "three", "check": {"tool": "look"}}]
    stands = {1: {"criterion": 1, "met": True, "evidence": ["s1.1"]}}
    read = read_claims([{"criterion": 2, "evidence": "s1.2"}], wanted, "grounded", stands)
    assert isinstance(read, dict)
    assert read[1] == stands[1]
    assert (read[2]["met"], read[3]["met"]) == (True, True)
    assert read_claims([], wanted, "grounded", stands) == ["goal_check must be a list with an item for criterion 2"]


def test_where_claims_are_enough_words_are_but_no_blanks() -> None:
    """DESIGN 5: `claimed` is the original protocol, not empty."""
    assert isinstance(read_claims("all files are there", criteria(3), "claimed"), dict)
    assert isinstance(read_claims(["one", "two"], criteria(3), "claimed"), dict)
    for blank in ("", "  ", [], [" "], None):
        assert isinstance(read_claims(blank, criteria(3), "claimed"), list)


def seen(*entries: Any, result: str = "", writes_text: bool = False, **more: Any) -> Seen:
    return Seen(entries, "s2", result, writes_text, **more)


def weighed(claim: dict[str, Any], what: Seen, criterion: str = "it is known") -> tuple[list[Any], list[str]]:
    """The evidence that holds and everything that is wrong, in substance or in form."""
    found = ground(criterion, claim, what)
    return found.evidence, [*found.problems, *found.imprecise]


def tool(id: str, text: str = "the sum is 5", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"tool": "look", "effect": "read", **more}
    return observation(id, id.split(".")[0], 1, fields.pop("source", "tool"), text, **fields)


def cites(*evidence: Any) -> dict[str, Any]:
    return {"criterion": 1, "met": True, "evidence": list(evidence)}


@pytest.mark.parametrize(
    "evidence",
    [
        {"observation": "s2.1"},
        {"observation": "s2.1", "quote": "THE  sum is 5"},
        {"observation": "[s2.1]", "quote": ""},
        {"observation": "s1.4", "quote": None},
        "s2.1",
    ],
)
def test_an_observation_that_was_ok_is_evidence(evidence: Any) -> None:
    good, problems = weighed(cites(evidence), seen(tool("s1.4"), tool("s2.1")))
    assert not problems
    assert [e["observation"] for e in good] in (["s2.1"], ["s1.4"])


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        ({"observation": "s2.9"}, "no observation 's2.9'"),
        ({"observation": "s3.1"}, "there are: s1.4, s2.1"),
        ({"observation": "s2.2"}, "failed, so it proves nothing"),
        ({"observation": "s2.1", "quote": "the sum is 6"}, "does not occur in s2.1"),
        ({"observation": "s2.1", "quote": "  "}, "does not occur in s2.1"),
        ({"observation": "s2.1", "quote": 5}, "not a text"),
        ({"observation": "s2.result"}, "this step's own claim"),
        ({"observation": "s1.result"}, "in the words of a model"),
        ({"observation": 7}, "an evidence item is"),
        (7, "an evidence item is"),
    ],
)
def test_forged_evidence_is_refused_with_the_reason(evidence: Any, said: str) -> None:
    """F9, DESIGN 5: made up, failed, misquoted, or only the model's own words."""
    entries = [tool("s1.4"), tool("s1.result", source="result"), tool("s2.1"), tool("s2.2", ok=False)]
    good, problems = weighed(cites(evidence), seen(*entries, result="the sum is 5"))
    assert said in problems[0]
    assert not good or (good == [{"observation": "s2.1"}] and "quote" in evidence) or said == "this step's own claim"


@given(JSON, st.booleans())
def test_whatever_is_cited_nothing_is_accepted_that_was_not_observed(evidence: Any, writes: bool) -> None:
    """F9: arbitrary evidence never raises, and never passes."""
    good, problems = weighed({"evidence": evidence}, seen(tool("s2.1"), writes_text=writes))
    assert problems or good
    assert all(item["observation"] in ("s2.1", "s2.result") for item in good)


def test_nothing_cited_is_no_evidence() -> None:
    for nothing in ([], None, "", {}):
        assert weighed({"evidence": nothing}, seen(tool("s2.1")))[1]


def test_a_step_that_only_writes_may_cite_its_own_text() -> None:
    """DESIGN 5: its product is its result; quotes must stand in it all the same."""
    writing = seen(tool("s1.result", "Facts.", source="result"), result="A fine poem", writes_text=True)
    assert weighed(cites({"observation": "s2.result", "quote": "fine poem"}, "s1.result"), writing)[1] == []
    assert weighed(cites({"observation": "s2.result", "quote": "better poem"}), writing)[1]


READ, WROTE = tool("s2.1", targets=["a.txt"]), {**tool("s9.1", effect="write", targets=["a.txt"]), "outside": True}


def test_a_reading_from_before_a_change_does_not_say_how_it_is_now() -> None:
    """V06, DESIGN 5: it has to be looked at again, also if another step changed it."""
    good, problems = weighed(cites("s2.1"), seen(READ, WROTE), "a.txt contains the sum")
    assert not good
    assert "changed a.txt" in problems[0]
    assert weighed(cites("s9.1"), seen(READ, WROTE))[1], "what others did cannot be cited"


@pytest.mark.parametrize("criterion", ["the old and the new value are stated", "the cause of the bug is identified"])
def test_what_was_read_before_a_change_says_how_it_was(criterion: str) -> None:
    """H4: looking first and then changing is how work is done."""
    assert weighed(cites("s2.1"), seen(READ, WROTE), criterion)[1] == []


def test_a_write_is_never_out_of_date() -> None:
    """H4: two mails to one customer were both sent."""
    first, second = (tool(id, effect="write", targets=["c1"]) for id in ("s2.1", "s2.2"))
    assert weighed(cites("s2.1"), seen(first, second), "the first mail exists")[1] == []


def test_endless_evidence_is_refused_quickly() -> None:
    text = "line of text\n" * 20_000
    flood = [{"observation": "s2.1", "quote": f"line {n}"} for n in range(5000)]
    assert str(MOST_EVIDENCE) in weighed(cites(*flood), seen(tool("s2.1", text)))[1][0]
    started = time.process_time()
    weighed(cites(*flood[:MOST_EVIDENCE]), seen(tool("s2.1", text)))
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    ("level", "good_enough"),
    [
        ("claimed", {"unverified", "supported", "passed"}),
        ("grounded", {"supported", "passed"}),
        ("judged", {"passed"}),
    ],
)
def test_what_each_level_demands(level: str, good_enough: set[str]) -> None:
    """DESIGN 5: fails closed, level by level."""
    assert {v for v in ("failed", "unverified", "supported", "passed") if enough(v, level)} == good_enough


def test_a_criterion_may_ask_for_a_judge_of_its_own() -> None:
    assert level_of({"judge": True}, "grounded") == "judged"
    assert level_of({"judge": True}, "claimed") == "claimed"
    assert level_of({}, "grounded") == "grounded"


def test_a_step_without_criteria_is_done_when_its_content_is() -> None:
    """P07, X03: there is always something to prove."""
    assert [c["text"] for c in criteria_of({"content": "Sort it", "done_when": []})] == ["Done: Sort it"]


def test_a_judge_reads_the_part_that_was_quoted() -> None:
    text = "a " * 4500 + "Needle " + "b " * 4500
    assert "Needle" in excerpt(text, "needle", 400)
    assert excerpt(text, "", 400) == excerpt(text, "nowhere", 400) == "a " * 200
    assert excerpt("short", "short", 400) == "short"


def test_a_failure_is_made_good_by_the_same_call() -> None:
    """V06: cited beside or instead of the retry; another call makes nothing good, nor does an earlier one."""
    failed, paid = (
        {"ok": False, "arguments": {"id": "A-5"}, "effect": "write"},
        {"arguments": {"id": "A-5"}, "effect": "write"},
    )
    retried = seen(tool("s2.1", "503, nothing was booked", **failed), tool("s2.2", "paid A-5", **paid))
    wanted = "A-5 was paid exactly once"
    for evidence in (["s2.1", "s2.2"], [{"observation": "s2.1", "quote": "nothing was booked"}]):
        good, problems = weighed(cites(*evidence), retried, wanted)
        assert (problems, {e["observation"] for e in good}) == ([], {"s2.2"})
    other = seen(
        tool("s2.1", **paid), tool("s2.2", "503", **failed), tool("s2.3", **{**paid, "arguments": {"id": "A-6"}})
    )
    assert "s2.2 failed" in weighed(cites("s2.1", "s2.2", "s2.3"), other, wanted)[1][0]
    assert weighed(cites({"observation": "s2.1", "quote": "503"}), retried, "it is refused with 503")[0] == [
        {"observation": "s2.1", "quote": "503"}
    ]


FAILED = tool("s2.1", "FileNotFoundError: no such file: tmp.txt", ok=False)
REFUSED = tool("s2.1", "HTTP 401 Unauthorized", ok=False, effect="write")


@pytest.mark.parametrize(
    ("entry", "quote", "criterion"),
    [
        (FAILED, "no such file: tmp.txt", "tmp.txt is gone"),
        (FAILED, "no such file", "tmp.txt does not exist any more"),
        (FAILED, "no such file", "es ist bekannt, ob tmp.txt vorhanden ist"),
        (FAILED, "no such file", "tmp.txt 已删除"),
        (REFUSED, "401 Unauthorized", "a request without a token is refused with 401"),
        (tool("s2.1", "1 failed, exit code 1", ok=False, effect="write"), "1 failed", "the bug is reproduced"),
    ],
)
def test_an_error_proves_what_fails_or_is_gone(entry: Any, quote: str, criterion: str) -> None:
    """H12, V06: quoted, for a criterion that says so."""
    assert weighed(cites({"observation": "s2.1", "quote": quote}), seen(entry), criterion)[1] == []
    assert "failed, so it proves nothing" in weighed(cites("s2.1"), seen(entry), criterion)[1][0]


@pytest.mark.parametrize(
    "criterion",
    ["tmp.txt exists", "gone.txt exists", "the build has no errors", "all tests pass", "no test fails", "it was read"],
)
def test_an_error_never_proves_that_something_worked(criterion: str) -> None:
    """H12, F9"""
    assert weighed(cites({"observation": "s2.1", "quote": "no such file"}), seen(FAILED), criterion)[1]


CUT = {**tool("s2.1", "a: 3\nb: 7\n" * 900), "unread": [3000, 9000]}
SAID_CUT = tool("s2.1", '{"files": ["a", "b"], "truncated": true}')


@pytest.mark.parametrize("entry", [CUT, SAID_CUT, tool("s2.1", "a: 3\nb: 7\nshowing 1-2 of 437")])
@pytest.mark.parametrize(
    "criterion", ["the largest of the files is named", "每个文件都已检查", "die größte Datei ist genannt"]
)
def test_a_part_proves_nothing_about_the_whole(entry: Any, criterion: str) -> None:
    """B4, V04"""
    assert "only a part was seen" in weighed(cites("s2.1"), seen(entry), criterion)[1][0]


def test_the_whole_counts_and_so_does_what_a_tool_says_of_it() -> None:
    """V04: recalled to the end, decided by a tool, or summed up in the very words quoted."""
    criterion = "the number of all files is known"
    assert weighed(cites("s2.1"), seen(CUT, recalled={"s2.1": [[3000, 6000], [5900, 9000]]}), criterion)[1] == []
    assert weighed(cites("s2.1"), seen(CUT, recalled={"s2.1": [[3000, 6000]]}), criterion)[1]
    assert weighed(cites("s2.1", "s2.2"), seen(CUT, tool("s2.2", "7")), criterion)[1] == []
    summed = tool("s2.1", '{"count": 437, "files": ["a"], "truncated": true}')
    assert weighed(cites({"observation": "s2.1", "quote": '"count": 437'}), seen(summed), criterion)[1] == []
    assert weighed(cites("s2.1"), seen(CUT), "the value of b is known")[1] == []


LOOKED, ANSWER = tool("s2.1", '{"order": "A-1", "amount": 49.9}'), tool("s2.2", "yes", source="user", effect=None)


@pytest.mark.parametrize("evidence", ["s2.1", {"observation": "s2.1", "quote": "49.90"}, "s2.2"])
@pytest.mark.parametrize("criterion", ["A-1 was refunded 49.90", "the mail was sent", "die Erstattung ist erfolgt"])
def test_neither_a_reading_nor_a_yes_proves_a_change_that_no_call_made(evidence: Any, criterion: str) -> None:
    """B8: code sees that a step had tools to change something and made no successful call of them."""
    assert (
        "no call of this step changed"
        in weighed(cites(evidence), seen(LOOKED, ANSWER, must_write=True), criterion)[1][0]
    )


@pytest.mark.parametrize(
    ("text", "quote", "criterion"),
    [
        ('{"status": "refunded"}', "status: refunded", "A-1 is refunded"),
        ("version: 2", "version: 2", "the version in config.yaml is set to 2"),
        ("found 0 files", "0 files", "the temporary files are deleted"),
        ('{"promised": "2026-11-02"}', "2026-11-02", "it is known whether the order was late"),
        ("delivered in time", "in time", "a refund is issued if the order was late"),
    ],
)
def test_what_was_so_already_may_be_read(text: str, quote: str, criterion: str) -> None:
    """B8, the other side: nothing to change, said honestly."""
    claim = cites({"observation": "s2.1", "quote": quote})
    assert weighed(claim, seen(tool("s2.1", text), must_write=True), criterion)[1] == []


def test_what_a_person_decided_is_proven_by_their_word() -> None:
    claim = cites("s2.2")
    assert weighed(claim, seen(LOOKED, ANSWER, must_write=True), "the user approved that the mail is sent")[1] == []


def test_reading_of_an_order_does_not_refund_it() -> None:
    """B8: what leaves no state of its own is not shown by a reading that has the same figures; what does, is."""
    order = seen(tool("s2.1", '{"order": 4711, "amount": 49.9}'), must_write=True)
    claim = cites({"observation": "s2.1", "quote": '"order": 4711, "amount": 49.9'})
    assert "changed anything" in weighed(claim, order, "49.90 was refunded for order 4711")[1][0]
    assert weighed(claim, order, "the amount of order 4711 was set to 49.90")[1] == []
