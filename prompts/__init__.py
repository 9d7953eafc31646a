"""Words: one .md per prompt, strict substitution, tagged sections. A missing value is an error, not a blank."""

import re
from functools import cache
from importlib.resources import files
from string import Template

TAGS = (
    "goal", "conversation", "tools", "checks", "executors", "limits", "feedback", "proposal", "finished", "failure",
    "today", "language", "profile", "step", "done_when", "tools_approved", "results", "result", "receipt",
    "tool_output", "criterion", "evidence", "observation",
)  # fmt: skip
_GAP = "[\\s\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]*"
"""White space, and characters that nobody sees."""
_OWN_TAG = re.compile(rf"<(?={_GAP}/?{_GAP}(?:{'|'.join(TAGS)})\b)", re.IGNORECASE)


@cache
def _template(name: str) -> Template:
    return Template(files("donewhen.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8").strip())


def render(name: str, **values: str) -> str:
    """The prompt `name` with every `$placeholder` filled; KeyError names a missing one. No blank lines at its end."""
    return _template(name).substitute(values).rstrip()


def escape(text: str) -> str:
    """Text from outside as data: it can neither open nor close one of our sections."""
    return _OWN_TAG.sub("&lt;", text)


def section(tag: str, text: str, **attributes: str) -> str:
    """One section of a brief; the text is escaped. Empty text gives an empty section, which `brief` leaves out."""
    if not text.strip():
        return ""
    named = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return f"<{tag}{named}>\n{escape(text)}\n</{tag}>"


def brief(*sections: str) -> str:
    """The sections that say something, one below the other."""
    return "\n".join(part for part in sections if part)
