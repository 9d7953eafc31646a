"""What the offline model says of itself: what it can do with the tools there are, and how to set a model."""

from collections.abc import Collection

from donewhen.agent.config import DEFAULT_MODEL
from donewhen.agent.offline.vocabulary import either, words
from donewhen.agent.offline.words import pick

_HELLO = words(
    """
    hi hello hey(?:_there)? hi_there hello_there good_(?:morning|afternoon|evening) thanks(?:_a_lot)? thank_you thx
    bye goodbye
    """,
    "你好 您好 嗨 哈喽 早上好 下午好 晚上好 谢谢你? 多谢 再见",
).pattern
_GREETING = either(rf"\W*(?:{_HELLO})(?:\s+(?:there|donewhen|you))?\W*")
_ABOUT = words(
    """
        help(?:_me)? what_(?:can|could)_(?:you|i|it|this)_do(?:_here|_for_me)? what_do_you_do who_are_you
        what_are_you what_is_this how_do(?:es)?_(?:this|it|you)_work how_can_you_help(?:_me)?
        what_are_you_able_to_do
    """,
    "你能做什么 你会什么 你会做什么 能做什么 你能干什么 你可以做什么 帮助 你是谁 怎么用",
).pattern
_ABOUT_ITSELF = either(rf"\W*(?:(?:{_HELLO})\W+)?(?:{_ABOUT})(?:\s*呢)?\W*")
_ABILITIES = (
    (
        "list_files",
        "find, count and list files: “count the Python files”",
        "查找、统计、列出文件：“统计 Python 文件的数量”",
    ),
    ("find_text", "find text in files: “find TODO in src/”", "在文件中查找文本：“查找 src/ 中的 TODO”"),
    (
        "aggregate_csv",
        "total, average, count or compare CSV columns: “total amount by region in sales.csv”",
        "统计 CSV 的总和、平均值、最大最小值和行数：“统计 sales.csv 中按 region 分组的 amount 总和”",
    ),
    ("read_file", "read and summarise text files: “summarise notes.txt”", "读取和摘录文本文件：“总结 notes.txt”"),
    (
        "write_file",
        "write what was found to a file: “… then write a report to report.md”",
        "把结果写成文件：“……然后把报告写到 report.md”",
    ),
    ("calculate", "do arithmetic: “what is 12*7+3”", "做算术：“12*7+3 等于多少”"),
)


def is_greeting(goal: str) -> bool:
    """Whether the goal is a greeting or thanks, and nothing else."""
    return bool(_GREETING.fullmatch(goal))


def is_about_itself(goal: str) -> bool:
    """Whether the goal asks what can be done here."""
    return bool(_ABOUT_ITSELF.fullmatch(goal))


def abilities(tools: Collection[str], chinese: bool) -> str:
    """What works without a model, with the tools that are there, as a list."""
    lines = [f"- {pick(chinese, english, zh)}" for tool, english, zh in _ABILITIES if tool in tools]
    return "\n".join(lines) or pick(chinese, "- nothing: no tools are connected", "- 无：没有连接任何工具")


def introduction(tools: Collection[str], chinese: bool) -> str:
    """An answer to a greeting or to the question what can be done here."""
    hello = pick(
        chinese,
        "Hello. No AI model is set, so you are talking to the offline model, which works by fixed rules. It can:",
        "你好。目前没有设置 AI 模型，回答你的是按固定规则工作的离线模型。它可以：",
    )
    several = pick(chinese, "Several of these fit into one sentence.", "可以在一句话里组合多项。")
    return f"{hello}\n{abilities(tools, chinese)}\n{several}\n\n{how_to_set_a_model(chinese)}"


def how_to_set_a_model(chinese: bool) -> str:
    """What to set so that everything else works."""
    return pick(
        chinese,
        "For anything else, set a model:\n"
        f"- OpenAI: OPENAI_API_KEY, and if you like DONEWHEN_MODEL (default: {DEFAULT_MODEL})\n"
        "- any OpenAI-compatible server (Ollama, vLLM, llama.cpp): OPENAI_BASE_URL, such as "
        "http://localhost:11434/v1, and DONEWHEN_MODEL with the name it serves",
        "要做其他事情，请设置一个模型：\n"
        f"- OpenAI：设置 OPENAI_API_KEY，也可以用 DONEWHEN_MODEL 选择模型（默认：{DEFAULT_MODEL}）\n"
        "- 任何兼容 OpenAI 接口的服务（Ollama、vLLM、llama.cpp）：设置 OPENAI_BASE_URL，例如 "
        "http://localhost:11434/v1，并用 DONEWHEN_MODEL 指定模型名",
    )


def refusal(what: str, tools: Collection[str], chinese: bool) -> str:
    """Why a goal is declined, what works, and what to do, for the user."""
    return pick(
        chinese,
        f"{what}\n\nWithout a model I can:\n{abilities(tools, False)}\n\n{how_to_set_a_model(False)}",
        f"{what}\n\n没有模型时我可以：\n{abilities(tools, True)}\n\n{how_to_set_a_model(True)}",
    )
