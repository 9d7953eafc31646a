"""Which language the user is to be answered in: Chinese or English."""

import re

from donewhen.agent.offline.clauses import VERBS, ZH_VERBS
from donewhen.agent.offline.literals import protect
from donewhen.agent.offline.vocabulary import COMMON, ZH_COMMON, words

_KANA_OR_HANGUL = re.compile(r"[\u3040-\u30ff\uac00-\ud7af]")
_ENGLISH = words(f"{COMMON} {VERBS} how by")
_CHINESE = words("", f"{ZH_COMMON} {ZH_VERBS} 几 多少 什么 哪 好 能 有".replace("、 ， ,", ""))


def is_chinese(text: str) -> bool:
    """Whether a text is Chinese. Names of files and columns do not count: `total 销售额 by 地区` is English."""
    plain = protect(text).text
    if len(re.findall(r"[\u4e00-\u9fff]", text)) < 2 or _KANA_OR_HANGUL.search(text):
        return False
    return bool(_CHINESE.search(plain)) or not _ENGLISH.search(plain)


def answers_in_chinese(goal: str, language: str) -> bool:
    """Whether to answer in Chinese: as the settings say, else in the language of the goal."""
    if language.strip():
        return language.strip().lower().startswith(("zh", "chinese", "中"))
    return is_chinese(goal)
