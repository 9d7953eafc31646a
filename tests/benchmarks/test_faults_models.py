"""Models that write nonsense and providers that fail: runs end right or say why not, and nothing wrong is called."""

import asyncio
from time import process_time

import pytest

from benchmarks.faults import models, provider, recorded, replies

READABLE = (
    replies.in_prose, replies.fenced, replies.after_thinking, replies.tagged, replies.original_form,
    replies.python_literal, replies.trailing, replies.made_up,
)  # fmt: skip


async def test_with_a_third_of_the_replies_spoiled_runs_end_right() -> None:
    """F6, P10, P11, X02: at least 98 % end right, none claims so falsely, no call is made that was not meant."""
    clean = await models.spoiled_shop(0.0, range(3))
    assert (clean.right, clean.runs) == (3, 3)
    tally = await models.spoiled_shop(0.3, range(18))
    assert tally.right >= 0.98 * tally.runs - 1, tally.ends
    assert (tally.false_done, tally.wrong_calls, tally.doubled) == (0, 0, 0)
    assert len(tally.spoiled) == len(replies.KINDS)


@pytest.mark.parametrize("kind", READABLE, ids=lambda kind: kind.__name__)
async def test_a_model_that_never_calls_tools_natively_works_all_the_same(kind: replies.Spoil) -> None:
    """F6, P10: every decision printed, and a made-up second one never carried out."""
    tally = await models.spoiled_shop(1.0, [4], (kind,))
    assert (tally.right, tally.wrong_calls, tally.doubled) == (1, 0, 0), tally.ends


@pytest.mark.parametrize("kind", [replies.empty, replies.placeholders, replies.wrong_type, replies.truncated_call])
async def test_a_model_that_only_writes_nonsense_ends_honestly(kind: replies.Spoil) -> None:
    """F6, P11: three unusable replies in a row end the run as failed; nothing was called."""
    tally = await models.spoiled_shop(1.0, [4], (kind,))
    assert tally.ends == {"failed no_plan": 1}
    assert (tally.false_done, tally.wrong_calls) == (0, 0)


def test_damaged_json_is_read_as_it_was_meant_or_not_at_all() -> None:
    """F6: up to three marks lost or doubled, a cut anywhere, a variable for a value; each read in under 50 ms."""
    began = process_time()
    number, taken, wrong = models.read_texts(range(120))
    assert process_time() - began < 0.05 * number
    assert taken > 20
    assert wrong == []


def test_recorded_decisions_are_read_as_recorded() -> None:
    """F14, P10: replies of real models through the one reader, beside tools of the recorded names."""
    right, wrong = recorded.as_recorded(recorded.recorded())
    assert len(right) >= 0.99 * (len(right) + len(wrong)), wrong


def test_no_reply_takes_long_to_read() -> None:
    """F6, P10: 100,000 brackets, quotes, fences and the like; ten times the bar, as others use the processor too."""
    times = {name: models.seconds_for(text) for name, text in models.endless().items()}
    assert max(times.values()) < 0.5, times


async def test_with_a_fifth_of_the_requests_failing_runs_end_right() -> None:
    """F7, R01: time-outs, 429, 5xx, resets, stalls, garbage, over HTTP; every request is charged."""
    tally = await provider.flaky_runs(0.2, range(7))
    assert tally.right == tally.runs == 7, tally.ends
    assert tally.faults >= 6
    assert (tally.wrong_calls, tally.doubled, tally.uncharged) == (0, 0, 0)


@pytest.mark.parametrize("first", [0, 2], ids=["planning", "in a step"])
async def test_lasting_errors_are_never_repeated_and_transient_ones_are(first: int) -> None:
    """F7, R01: 400, 401, 404 and their like are met once, and the user reads what happened and what to do."""
    statuses = (*provider.LASTING, *provider.TRANSIENT)[first // 2 :: 2]
    met = await asyncio.gather(*(provider.always(status, provider.SOON, None, first) for status in statuses))
    assert [status for status, each in zip(statuses, met, strict=True) if not provider.honest(each, status)] == []


async def test_recorded_provider_errors_end_honestly() -> None:
    """F7, R01: each as the answer to every request; every third one here, all of them by `make faults`."""
    if not (rows := provider.recorded()[::3]):
        pytest.skip("the recorded errors are not beside this repository; test_failures reads their shapes")
    met = await asyncio.gather(*(provider.replayed(row) for row in rows))
    unclear = [row["body"] for row, each in zip(rows, met, strict=True) if not provider.ends_rightly(each, row)]
    assert unclear == []


REFUSED = {
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.": ["system message"],
    "tools.0.input_schema: JSON schema is invalid": ["tools"],
    "Missing required parameter: 'seed'": [],
}


@pytest.mark.parametrize("words", REFUSED)
async def test_only_another_form_is_asked_for_after_a_refusal(words: str) -> None:
    """F7: the benchmark names what was another in the second request; without a part that is named there is none."""
    row = {"status": 400, "headers": {}, "body": {"error": {"message": words, "type": "invalid_request_error"}}}
    met = await provider.replayed(row)
    assert (met.again, provider.ends_rightly(met, row)) == (REFUSED[words], True)


@pytest.mark.parametrize(
    ("said", "heard"), [('{"name": "look_up", "arguments": {"q": 1}}', "look_up"), ("maybe", "maybe")]
)
async def test_a_reply_within_an_error_is_a_reply(said: str, heard: str) -> None:
    """F7, R13: a call that the server could not read is answered to the model, and words are the answer."""
    error = {"message": "Tool call validation failed", "code": "tool_use_failed", "failed_generation": said}
    row = {"status": 400, "headers": {}, "body": {"error": error}}
    met = await provider.replayed(row)
    assert provider.ends_rightly(met, row)
    assert heard in (met.run.outcome or {})["text"]
