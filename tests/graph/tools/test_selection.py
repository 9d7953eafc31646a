"""Which tools a planner is shown: relevance by words, and by pairs of characters where a script writes no spaces."""

from collections import Counter
from collections.abc import Mapping
from time import process_time

import pytest

from donewhen.state.language.selection import scores, terms

TOOLS = {
    "read_file": "Read a text file.",
    "sum_column": "Add up the numbers of a column in a CSV table.",
    "sendMail": "Send an e-mail to somebody.",
    "tianqi": "查询城市的天气预报。",
    "youjian": "发送电子邮件。",
    "tenki": "都市の天気を調べます。",
    "nalssi": "도시의 날씨를 알려줍니다.",
    "pogoda": "Показывает прогноз погоды в городе.",
    "wetter": "Zeigt das Wetter für größere Städte.",
    "akas": "บอกสภาพอากาศของเมือง",
}


def most_relevant(query: str, texts: Mapping[str, str], top: int) -> list[str]:
    """The names of the `top` texts that fit the query best, in their given order; ties go to the earlier."""
    if len(texts) <= top:
        return list(texts)
    fit = scores(query, {name: Counter(terms(text)) for name, text in texts.items()})
    best = set(sorted(texts, key=lambda name: -fit[name])[:top])
    return [name for name in texts if name in best]


@pytest.mark.parametrize(
    ("goal", "tool"),
    [
        ("what is in the file notes.txt?", "read_file"),
        ("total the columns", "sum_column"),
        ("send Ann a mail", "sendMail"),
        ("明天北京的天气怎么样", "tianqi"),
        ("给小王发一封邮件", "youjian"),
        ("東京の天気を教えて", "tenki"),
        ("서울 날씨가 어때?", "nalssi"),
        ("какая погода в Москве", "pogoda"),
        ("GROSSE STADT WETTER", "wetter"),
        ("สภาพอากาศวันนี้", "akas"),
    ],
)
def test_goals_find_their_tool_in_every_script(goal: str, tool: str) -> None:
    """P13: scoring works for Chinese, Japanese, Korean, Thai and for words with endings, cases and accents."""
    described = {name: f"{name} {text}" for name, text in TOOLS.items()}
    assert most_relevant(goal, described, 1) == [tool]


def test_the_order_stays_and_ties_go_to_the_earlier() -> None:
    """P13: the selection keeps the given order, so that prompts stay the same; nothing is dropped below the top-k."""
    assert most_relevant("zzz", TOOLS, 3) == list(TOOLS)[:3]
    assert most_relevant("weather mail", TOOLS, 99) == list(TOOLS)
    both = most_relevant("send e-mail, read file", TOOLS, 2)
    assert both == ["read_file", "sendMail"]


def test_many_tools_are_chosen_among_quickly() -> None:
    """P13: five thousand tools take a moment."""
    many = {f"tool_{n}": f"Does thing {n} for 城市{n}." for n in range(5000)}
    began = process_time()
    assert "tool_4321" in most_relevant("thing 4321", many, 24)
    assert process_time() - began < 5
