"""The few words that can only mean yes, no, cancel or later. They count only as a whole answer.

A sentence that might mean one of them is asked back, because code does not guess the meaning of longer texts.
"""

import unicodedata
from collections.abc import Mapping
from typing import Literal

from donewhen.state.pattern import pattern

Word = Literal["yes", "no", "cancel", "later"]

FEW = 5
"""A text of at most this many words may mean consent or refusal; in unspaced scripts two characters are a word."""
SAID: Mapping[Word, str] = {
    "yes": "y yes yep yeah ok okay true approve approved accept accepted agreed lgtm 👍 👌 ✅ "
    "ja jawohl genehmigt einverstanden oui approuvé sí si aprobado sim aprovado sì approvato akkoord "
    "да так tak ano áno igen evet ναι نعم بله כן हाँ हां 是 是的 好 好的 可以 同意 批准 はい 承認 네 예 ใช่ "
    "có ya kyllä jah da",
    "no": "n no nope false reject rejected 👎 ❌ nein abgelehnt non refusé não nao nee nej nei "
    "нет ні nie hayır όχι لا خیر לא नहीं 不 不是 不行 不同意 拒绝 いいえ 却下 아니요 아니오 ไม่ không tidak ei nu",
    "cancel": "cancel stop abort 🛑 abbrechen stopp annuler annule cancelar cancela annulla annulleren "
    "отмена стоп anuluj zrušit iptal إلغاء ביטול रद्द 取消 停止 中止 キャンセル 취소 ยกเลิก hủy batal",
    "later": "later später plus_tard más_tarde luego mais_tarde più_tardi straks позже потом później později sonra "
    "لاحقا מאוחר_יותר बाद_में 稍后 以后 後で あとで 나중에 ภายหลัง để_sau nanti myöhemmin",
}
"""The words for each meaning, in all languages; `_` stands for a space."""
_WORDS: dict[str, Word] = {each.replace("_", " "): said for said, words in SAID.items() for each in words.split()}
_SPACELESS = pattern(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_TOKEN = pattern(rf"(?:{_SPACELESS.pattern})+|(?:(?!{_SPACELESS.pattern})[\w'])+|[👍👌✅👎❌🛑]")
_UNSEEN = pattern("[\u200b-\u200f\u202a-\u202e\u2060\ufe0e\ufe0f\ufeff\U0001f3fb-\U0001f3ff]")


def fold_words(text: str) -> str:
    """Fold a text for comparison with a word: width, case, outer white space, quotes and full stops; never "?"."""
    folded = " ".join(unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).replace("’", "'").casefold().split())
    return folded.strip(" .!,;:。、\"'`*_“”‘")


def read_word(text: str) -> Word | None:
    """Return the meaning of a text that is exactly one of the words; a leading slash is ignored."""
    return _WORDS.get(fold_words(text).removeprefix("/"))


def may_decide(text: str, few: int = FEW) -> bool:
    """Return whether a text might mean one of the words: it begins or ends with one, or has few words."""
    tokens = _TOKEN.findall(fold_words(text))
    length = sum(len(token) / 2 if _SPACELESS.match(token) else 1 for token in tokens)
    first, last = "".join(tokens[:1]), "".join(tokens[-1:])
    return length <= few or any(_begins(first, each) or _ends(last, each) for each in _WORDS)


def _begins(token: str, each: str) -> bool:
    return token.startswith(each) if _SPACELESS.match(each) else token == each


def _ends(token: str, each: str) -> bool:
    return token.endswith(each) if _SPACELESS.match(each) else token == each
