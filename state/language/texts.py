"""The runtime's texts for people: one catalogue per language in `catalogues/`, with strict keys and placeholders.

An option is understood in every language with a catalogue, whatever language it was shown in.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from donewhen.state.language.words import fold_words
from donewhen.state.pattern import pattern

LANGUAGES = ("en", "zh", "de", "fr", "es", "ja")
_TAG = pattern(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]+)*")


def primary_language(tag: str | None) -> str:
    """Return the primary language of a BCP 47 tag in lower case; "" for an invalid tag."""
    match = _TAG.fullmatch(str(tag or "").strip())
    return match[1].lower() if match else ""


def other_language(declared: str | None, *wanted: str | None) -> str:
    """Return the wanted language if a text was declared to be in another one; "" otherwise.

    The first valid one of the `wanted` tags counts. The language of a text is never guessed.
    """
    language = next((tag for tag in map(primary_language, wanted) if tag), "")
    return language if primary_language(declared) not in ("", language) else ""


def known_language(*tags: str | None) -> str:
    """Return the first of these BCP 47 tags that has a catalogue; English if none has."""
    return next((tag for tag in map(primary_language, tags) if tag in LANGUAGES), "en")


@cache
def catalogue(language: str) -> Mapping[str, Any]:
    """Return the texts of one language: sections of key → text. If an option has several words, the first is shown."""
    import tomllib

    file = files("donewhen.state.language") / "catalogues" / f"{language}.toml"
    return tomllib.loads(file.read_text("utf-8"))


def say(language: str, section: str, key: str, **values: Any) -> str:
    """Return a text in a language, with its placeholders filled. Raises KeyError for a missing text or value."""
    return str(catalogue(language)[section][key]).format_map(values)


def say_why(language: str, name: str, count: int | None = None, /, **values: Any) -> str:
    """Return a text of the section `reason`, in the form for one thing or for several (`count`)."""
    one, _, more = str(catalogue(language)["reason"][name]).partition("|")
    return (more if more and count != 1 else one).format_map({"count": count, **values})


def amount_name(language: str, key: str) -> str:
    """Return the name of an amount of the ledger: “model calls”, “money”."""
    return str(catalogue(language)["meter"][key]).rpartition("|")[2]


@dataclass(frozen=True)
class Unclear:
    """Why an answer was not accepted: a text of the section `unclear`, formatted when it is shown."""

    key: str
    values: Mapping[str, Any]
    """The values of the placeholders."""

    def text(self, language: str) -> str:
        """Return the reason in a language."""
        return say(language, "unclear", self.key, **self.values)


def unclear(key: str, words: str = "", **values: Any) -> Unclear:
    """Return a reason. `words` are what the person wrote; they are cut to 80 characters."""
    return Unclear(key, {"said": words[:80], **values})


def translate_option(option: str, about: str, language: str) -> str:
    """Return one of the runtime's options, given in any language, in this language."""
    key, rest = match_option(option, about)
    return option if key is None or rest else _words(catalogue(language)["options"][about][key])[0]


def option_texts(language: str, about: str) -> list[str]:
    """Return the options of a pause as shown, in their order."""
    return [_words(words)[0] for words in catalogue(language)["options"][about].values()]


def match_option(text: str, about: str) -> tuple[Any, str]:
    """Return the key of the option that a text names, and the text after a colon; `(None, "")` if it names none."""
    head, *rest = re.split("[:：]", text, maxsplit=1)
    whole, key = options_of(about).get(fold_words(text)), options_of(about).get(fold_words(head))
    return (whole, "") if whole else (key, "".join(rest).strip()) if key else (None, "")


def says_continue(text: str) -> bool:
    """Return whether a text means only “continue”."""
    return match_option(text, "early") == ("go_on", "")


def option_key(text: str) -> str | None:
    """Return the key of an option by its words, for any pause."""
    keys = (options_of(about).get(fold_words(text)) for about in catalogue("en")["options"])
    return next((key for key in keys if key), None)


@cache
def options_of(about: str) -> dict[str, str]:
    """Return the keys of a pause's options by their words in every language."""
    return {
        fold_words(words): key
        for language in LANGUAGES
        for key, shown in catalogue(language)["options"][about].items()
        for words in _words(shown)
    }


def _words(words: str) -> list[str]:
    return [words.strip() for words in words.split("|")]
