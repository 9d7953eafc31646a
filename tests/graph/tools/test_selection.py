"""Which tools a planner is shown: relevance by words, and by pairs of characters where a script writes no spaces."""

import pytest
from langchain_core.tools import StructuredTool

from donewhen import Settings
from donewhen.testing import ScriptedModel, answer
from tests.kit.flows import play

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


async def shown(goal: str, most: int) -> list[str]:
    """The tools that planning is offered or told of, of all of them."""
    made = [
        StructuredTool.from_function(str, name=name, description=text, args_schema={"type": "object", "properties": {}})
        for name, text in TOOLS.items()
    ]
    model = ScriptedModel(roles={"triage": [answer("no")]})
    await play(model, made, effects=dict.fromkeys(TOOLS, "read"), settings=Settings(tool_selection=most), goal=goal)
    (request,) = model.requests
    return [name for name in TOOLS if name in request.tool_names or f"\n- {name}" in request.text]


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
async def test_goals_find_their_tool_in_every_script(goal: str, tool: str) -> None:
    """P13: scoring works for Chinese, Japanese, Korean, Thai and for words with endings, cases and accents."""
    assert await shown(goal, 1) == [tool]


async def test_the_order_stays_and_ties_go_to_the_earlier() -> None:
    """P13: the selection keeps the given order, so that prompts stay the same; nothing is dropped below the top-k."""
    assert await shown("zzz", 5) == list(TOOLS)[:3]
    assert await shown("weather mail", 99) == list(TOOLS)
    assert await shown("send e-mail, read file", 4) == ["read_file", "sendMail"]
