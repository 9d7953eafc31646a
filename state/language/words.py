"""Fold texts, so that they can be compared with a word or an option whatever their case, width and outer marks."""

import unicodedata

from donewhen.state.pattern import pattern

_UNSEEN = pattern("[\u200b-\u200f\u202a-\u202e\u2060\ufe0e\ufe0f\ufeff\U0001f3fb-\U0001f3ff]")


def fold_words(text: str) -> str:
    """Fold a text for comparison with a word: width, case, outer white space, quotes and full stops; never "?"."""
    folded = " ".join(unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).replace("’", "'").casefold().split())
    return folded.strip(" .!,;:。、\"'`*_“”‘")
