"""Whether a text is plainly not in the language that was asked for: told by its script, never by its words."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

LEAST_LETTERS = 12
"""A text with fewer letters says nothing about its language."""
LEAST_SHARE = 0.1
"""Names, paths and commands are Latin in every language; a tenth of the letters in its own script is enough."""
LATIN = (
    "af", "ca", "cs", "cy", "da", "de", "en", "eo", "es", "et", "eu", "fi", "fr", "ga", "gl", "hr", "hu", "id", "is",
    "it", "lt", "lv", "ms", "mt", "nl", "no", "nb", "nn", "pl", "pt", "ro", "sk", "sl", "sq", "sv", "sw", "tl", "tr",
    "vi",
)  # fmt: skip
OWN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(LATIN, ("LATIN",)),
    "zh": ("CJK",), "yue": ("CJK",), "ja": ("HIRAGANA", "KATAKANA", "CJK"), "ko": ("HANGUL",),
    "ru": ("CYRILLIC",), "uk": ("CYRILLIC",), "be": ("CYRILLIC",), "bg": ("CYRILLIC",), "mk": ("CYRILLIC",),
    "el": ("GREEK",), "he": ("HEBREW",), "ar": ("ARABIC",), "fa": ("ARABIC",), "ur": ("ARABIC",),
    "hi": ("DEVANAGARI",), "mr": ("DEVANAGARI",), "ne": ("DEVANAGARI",), "bn": ("BENGALI",), "ta": ("TAMIL",),
    "te": ("TELUGU",), "th": ("THAI",), "lo": ("LAO",), "km": ("KHMER",), "my": ("MYANMAR",), "ka": ("GEORGIAN",),
    "hy": ("ARMENIAN",), "am": ("ETHIOPIC",),
}  # fmt: skip
NAMES = {
    "chinese": "zh", "mandarin": "zh", "中文": "zh", "汉语": "zh", "简体中文": "zh", "繁體中文": "zh", "japanese": "ja",
    "日本語": "ja", "korean": "ko", "한국어": "ko", "russian": "ru", "русский": "ru", "ukrainian": "uk", "greek": "el",
    "hebrew": "he", "arabic": "ar", "العربية": "ar", "persian": "fa", "hindi": "hi", "thai": "th", "english": "en",
    "german": "de", "deutsch": "de", "french": "fr", "français": "fr", "spanish": "es", "español": "es",
    "italian": "it", "italiano": "it", "portuguese": "pt", "português": "pt", "dutch": "nl", "polish": "pl",
    "turkish": "tr", "vietnamese": "vi", "swedish": "sv",
}  # fmt: skip


def other_script(text: str, language: str | None) -> bool:
    """Whether `text` is plainly in another script than `language` (`zh`, `zh-CN`, `Chinese`, `中文`) is written in.

    False wherever that is not certain: short texts, languages that are not known here, two of the same script.
    """
    named = (language or "").strip().casefold()
    own = OWN.get(NAMES.get(named) or re.split(r"[-_]", named)[0])
    if own is None:
        return False
    scripts = Counter(_script(character) for character in unicodedata.normalize("NFKC", text) if character.isalpha())
    letters = sum(scripts.values())
    return letters >= LEAST_LETTERS and sum(scripts[name] for name in own) < LEAST_SHARE * letters


@cache
def _script(character: str) -> str:
    """The first word of the character's name in Unicode, which is its script for letters."""
    return unicodedata.name(character, "").partition(" ")[0]


COMMON: Mapping[str, str] = {
    "en": "the a an and of to in is are for with from that this it on all please what how into by which my",
    "de": "der die das und in ist ein eine einer eines einen einem dem den des mit für von vom im auf nicht zu "
    "wie was bitte aus alle mir ich wird werden über zum zur welche kannst könntest",
    "fr": "le la les des et à par est un une du de dans pour avec sur que qui en ce cette au aux je vous mes "
    "tous quels quelle",
    "es": "el la los las es un una de del en para con por que qué cuál cuáles se mi mis todos todas al lo como cómo",
}
"""Words that hardly a sentence of the language is without; before a name it may be part of it (Los Angeles)."""


def spoken(text: str, named: str | None = None) -> str:
    """The language to speak to the author of `text` in, of those that there are texts of: as named, else as written."""
    if named:
        code = NAMES.get(named.strip().casefold()) or re.split(r"[-_]", named.strip().casefold())[0]
        return code if code in ("en", "zh", "de", "fr", "es", "ja") else "en"
    scripts = Counter(_script(character) for character in text[:4000] if character.isalpha())
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0.1 * (scripts.total() or 1):
        return "ja"
    if scripts["CJK"] > 0.2 * (scripts.total() or 1):
        return "zh"
    words = [word for each in text[:4000].split() if (word := each.strip(".,;:!?¿¡()\"'«»„“”")).isalpha()]
    if len(words) < 2:
        return "en"
    said = [word.casefold() for word, after in pairwise([*words, ""]) if not (word.istitle() and after.istitle())]
    votes = {code: sum(word in common.split() for word in said) for code, common in COMMON.items()}
    most = [code for code in votes if votes[code] == max(votes.values())]
    return most[0] if len(most) == 1 else "en"
