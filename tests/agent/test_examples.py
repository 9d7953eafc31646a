"""The examples run, as their readers would run them, and show what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SHOWN = {
    "two_executors.py": ["the librarian asks: Papers on which topic?", "One paper more on tides"],
    "a2a_agent.py": ["the archive asks: Of which year?", "completed: There were 12 storms in 1987."],
    "profile_zh.py": ["退回：write what the user reads in this language: zh", "the profile forbids", "十月 1280.50"],
    "many_tools.py": ["500 tools", "triage    15 tools", "completed: 7 parcels and 7 shifts."],
    "diamond.py": ["Both sources say 42."],
    "support_desk.py": ["asked: May step s2", "completed: The broken lamp", "paid: [('A-17', 40.0)]"],
    "desk_dialogue.py": ["I would refund 45.00 EUR", "three to five days", "paid: [('A-17', 40.0)]"],
    "chat_bot.py": ["  (approve)", "on their way", "answered already", "it worked: Please tell me how long"],
    "fail_anywhere.py": ["points, and sent one letter each time"],
    "code_fix.py": ["completed: total() adds all prices", "proven: The tests pass", "return sum(prices)\n"],
    "research.py": ["[energy.1] closed in 2019", "audited: 2 of 2 sentences shown"],
    "data_analysis.py": ["completed:\nTotal amount in sales.csv by region:", "West | 939.00"],
    "form_over_mcp.py": ["Which size? → M", "completed: The form has name Mira and size M."],
    "mcp_tools.py": ["shop asks: Which size of shirt? ['S', 'M', 'L']", "completed The shirt is ordered."],
    "ci_job.py": ['{"status": "completed", "rounds": 6, "proven": ["proven"]}'],
    "with_skills.py": ["skills: house-style", "read: - the letter ends", "completed: Your lamp is mended."],
    "replay_a_run.py": ["completed, without the files: True", "the prompt is another one: message 1"],
    "openapi_desk.py": [
        "call refund? Its tool says that such a call asks",
        "completed: A-3 is returned, and 30.00 EUR",
        "'status': 'returned', 'total': 30.0} [{'id': 'R-1', 'amount': 30.0}] ['A-3']\n"
        "GET /search 200\nGET /graphql 200\nPOST /v1/orders/search 200\nPOST /v1/orders/search 200\n",
        "POST /v1/orders/A-3/photos 201\nPOST /v1/orders/A-3/refunds 429\nPOST /v1/orders/A-3/refunds 201\n",
    ],
    "policies.py": ["asked: May step s1", "is the invoice checked?", "cited: 1200 EUR booked", "— the office"],
    "traced.py": ["completed: It rains", " execute_tool weather", "goal audit: yes", "s1 criterion: cited"],
    "replanned.py": ["new step 2", "s1 done: 49.90 EUR", "s2 failed: sold out; instead: s3"],
}


def test_every_example_is_run() -> None:
    """A script in examples/ that nobody runs would rot."""
    tests = "".join(path.read_text(encoding="utf-8") for path in EXAMPLES.parent.glob("tests/**/*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tests] == []


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """M3, M5, M6, M8, M12: each example runs to its end without a key and prints what it is about."""
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    printed = capsys.readouterr().out
    for text in SHOWN[name]:
        assert text in printed
