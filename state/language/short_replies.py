"""Short replies that can only mean yes, no, cancel or later: every word of them is in a short list of one language.

The lists are in the section `words` of the catalogues; a word of `beside` (please, thanks) means nothing alone. Every
other text means nothing here and goes to a model, because code does not guess the meaning of longer texts.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from donewhen.state.language.texts import LANGUAGES, catalogue
from donewhen.state.language.words import fold_words
from donewhen.state.pattern import pattern

Meaning = Literal["yes", "no", "cancel", "later"]
MEANINGS: tuple[Meaning, ...] = ("yes", "no", "cancel", "later")
MOST_CHARS = 80
"""Longer texts are no short replies."""
EVERYWHERE: Mapping[str, str] = {
    "yes": "ok | okay | true | 👍 | 👌 | ✅",
    "beside": "🙏 | 😊 | 🙂 | ❤",
    "no": "false | 👎 | ❌",
    "cancel": "🛑",
    "later": "",
}
"""Words that are added to the lists of every language."""
ELSEWHERE: Mapping[str, str] = {
    "yes": "sim | aprovado | sì | approvato | akkoord | да | ano | áno | igen | evet | ναι | نعم | بله | כן | "
    "हाँ | हां | 네 | 예 | ใช่ | "
    "có | kyllä | jah | da | oké | ja hoor | doe maar | давай | давайте | хорошо | tamam",
    "beside": "alsjeblieft | graag | dank je | пожалуйста | спасибо | lütfen | teşekkürler | proszę | dziękuję",
    "no": "não | nao | nej | nei | нет | ні | nie | hayır | όχι | لا | خیر | לא | नहीं | 아니요 | 아니오 | ไม่ | không | "
    "tidak | ei | nu",
    "cancel": "annulla | annulleren | отмена | стоп | anuluj | zrušit | iptal | إلغاء | ביטול | रद्द | 취소 | ยกเลิก | "
    "hủy | batal",
    "later": "mais tarde | più tardi | straks | позже | потом | później | sonra | لاحقا | מאוחר יותר | बाद में | "
    "나중에 | ภายหลัง | để sau | nanti | myöhemmin",
}
"""Common words of languages without a catalogue."""
_ASKS = pattern("[?？¿؟]")
_DROPPED = pattern("['’‘´`]")
_PAUSES = pattern(r"[.,!;:…。、，！；：¡\"“”„«»()*_\-–—・「」]+")
_SIGNS = pattern("[👍👌✅🙏😊🙂❤👎❌🛑]")
_NAMES: Mapping[str, str] = {
    ":+1:": "👍", ":thumbsup:": "👍", ":ok_hand:": "👌", ":white_check_mark:": "✅", ":pray:": "🙏", ":heart:": "❤",
    ":-1:": "👎", ":thumbsdown:": "👎", ":x:": "❌", ":octagonal_sign:": "🛑",
}  # fmt: skip
"""The names that chats such as Slack write for these signs."""
_NAMED = pattern(r"(:[a-z0-9_+-]{1,20}:)(?::skin-tone-[2-6]:)?")
_SPACELESS = pattern(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")


@dataclass(frozen=True)
class Phrases:
    """The phrases of one language for one meaning, folded."""

    meaning: Meaning
    main: Sequence[str]
    beside: Sequence[str]

    def cover(self, text: str) -> bool:
        """Return whether the folded text consists of these phrases alone, with at least one of `main`."""
        reached: dict[int, bool] = {0: False}
        for start in range(len(text)):
            if start not in reached:
                continue
            for phrase in (*self.main, *self.beside):
                if text.startswith(phrase, start) and (end := _end_of(text, start, len(phrase))):
                    reached[end] = reached.get(end, False) or reached[start] or phrase in self.main
        return reached.get(len(text), False)


def read_word(text: str) -> Meaning | None:
    """Return what a short reply can only mean; a leading slash is ignored. A question means nothing."""
    if len(text) > MOST_CHARS or _ASKS.search(text):
        return None
    shown = _NAMED.sub(lambda named: _NAMES.get(named[1], named[0]), text)
    folded = _fold(fold_words(shown).removeprefix("/"))
    if not folded:
        return None
    meanings = {each.meaning for each in _phrases() if folded in each.main}
    meanings = meanings or {each.meaning for each in _phrases() if each.cover(folded)}
    return meanings.pop() if len(meanings) == 1 else None


def has_question_mark(text: str) -> bool:
    """Return whether a text has a question mark."""
    return bool(_ASKS.search(text))


def says_plain_yes(text: str) -> bool:
    """Return whether a text is the word “yes” of a language and nothing else, which answers any question of fact."""
    words = (catalogue(language)["words"]["yes"].split("|")[0] for language in LANGUAGES)
    folded = _fold(fold_words(text))
    return not _ASKS.search(text) and folded in map(_fold, (*map(fold_words, words), *ELSEWHERE["yes"].split(" | ")))


def ending_words(text: str) -> list[str]:
    """Return the single words of a text that mean the end of a run, such as “cancel” and “stop”, folded."""
    ends = {word for each in _phrases() if each.meaning == "cancel" for word in each.main}
    return [word for word in _fold(fold_words(text)).split() if word in ends]


def _end_of(text: str, start: int, length: int) -> int | None:
    """Return where the text goes on after a phrase; None if the phrase is only a part of a word there.

    Scripts without spaces have none between phrases, but a single character may then be a part of another word.
    """
    end = start + length
    if end == len(text) or text[end] == " ":
        alone = length > 1 or start == 0 or text[start - 1] == " "
        return min(end + 1, len(text)) if alone else None
    return end if length > 1 and _SPACELESS.match(text[end - 1]) and _SPACELESS.match(text[end]) else None


def _fold(text: str) -> str:
    """Return a text without punctuation, and without the accents of Latin letters, which people leave out."""
    plain = _PAUSES.sub(" ", _SIGNS.sub(r" \g<0> ", _DROPPED.sub("", text)))
    apart = unicodedata.normalize("NFD", plain)
    letters = (
        sign
        for at, sign in enumerate(apart)
        if not (unicodedata.combining(sign) and at and "LATIN" in unicodedata.name(apart[at - 1], ""))
    )
    return " ".join(unicodedata.normalize("NFC", "".join(letters)).split())


@cache
def _phrases() -> list[Phrases]:
    phrases = []
    for words in (*(catalogue(language)["words"] for language in LANGUAGES), ELSEWHERE):
        both = {key: f"{words.get(key, '')} | {more}".split("|") for key, more in EVERYWHERE.items()}
        folded = {key: [_fold(fold_words(each)) for each in listed if each.strip()] for key, listed in both.items()}
        phrases += [Phrases(meaning, folded[meaning], folded["beside"]) for meaning in MEANINGS]
    return phrases
