"""Render prompts, one Markdown file each: strict substitution, tagged sections. A missing value is an error."""

import re
from functools import cache, lru_cache
from importlib.resources import files
from string import Template


@cache
def _template(name: str) -> Template:
    return Template(files("donewhen.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8").strip())


def render(name: str, **values: str) -> str:
    """Return the prompt `name` with every `$placeholder` filled. Raises KeyError for a missing value."""
    return _template(name).substitute(values).rstrip()


@lru_cache(maxsize=64)
def instructions(name: str, profile: str = "") -> str:
    """Return the system text of a role, the same in every round: its own prompt, with what several roles share."""
    return render(name, profile=profile, plan=render("plan_good"), rules=render("rules"))


def section(tag: str, text: str, fence: str = "", **attributes: str) -> str:
    """Return a section of a brief, as `framed`; "" if the text is blank, which `brief` leaves out."""
    return framed(tag, text, fence, **attributes) if text.strip() else ""


def frames(tag: str, text: str, fence: str) -> str:
    """Return a section of parts that are framed already; "" if the text is blank."""
    return _between_tags(tag, text, fence) if text.strip() else ""


def framed(tag: str, text: str, fence: str, **attributes: str) -> str:
    """Return the text between tags.

    `fence` marks foreign text: a word that only this request knows (`RunState.fence`), so that the text cannot
    close its frame or open another. The text is unchanged, unless it has a tag with that word.
    """
    return _between_tags(tag, without_word(text, fence), fence, **attributes)


def without_word(text: str, fence: str) -> str:
    """Return the text with the word of the frames struck out in its tags; a model may have told it to its author."""
    if not fence or fence not in text.lower():
        return text
    return re.sub(rf"(<[^<>\n]{{0,100}}?)\b{fence}\b", rf"\g<1>{'-' * len(fence)}", text, flags=re.IGNORECASE)


def _between_tags(tag: str, text: str, fence: str, **attributes: str) -> str:
    named = "".join(f' {key}="{value}"' for key, value in attributes.items())
    word = f" {fence}" if fence else ""
    return f"<{tag}{word}{named}>\n{text}\n{closing(tag, fence)}"


def closing(tag: str, fence: str = "") -> str:
    """Return what a section ends with."""
    return f"</{tag} {fence}>" if fence else f"</{tag}>"


def brief(*sections: str) -> str:
    """Join the sections that are not empty."""
    return "\n".join(part for part in sections if part)
