"""Word lists as patterns, so that rules can be read as the words they know."""

import re

COMMON = """
    please also just now first then the a an all any every each of in to for is are was were and with that this it its
    i we you me us my our can could would want need like do does have has there what which
"""
ZH_COMMON = "请 先 再 帮我 给我 我 你 想 一下 的 把 将 并 在 中 里面 里 是 和 与 了 呢 吗 、 ， ,"


def words(english: str = "", chinese: str = "") -> re.Pattern[str]:
    """A pattern for any of the words: English ones whole, Chinese ones anywhere, longer before shorter.

    A word may be a regular expression without blanks; `_` stands for a blank.
    """
    whole, anywhere = (sorted(dict.fromkeys(text.split()), key=lambda word: -len(word)) for text in (english, chinese))
    parts = [rf"\b(?:{'|'.join(whole).replace('_', ' ')})\b"] if whole else []
    return re.compile("|".join([*parts, *anywhere]), re.IGNORECASE)


def either(*patterns: str) -> re.Pattern[str]:
    """A pattern for any of these."""
    return re.compile("|".join(patterns), re.IGNORECASE)
