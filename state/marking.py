"""Tool output is data: whatever imitates the runtime's own markers in it is made harmless, reversibly.

`<` before a tag of ours, or of a chat template as in `<|im_start|>`, becomes `&lt;`; at the start of a line `[s2.3]`
becomes `［s2.3］`, and the colon of `Correction:` becomes a wide one.
"""

import re

TAGS = (
    "conversation", "done_when", "executors", "failure", "feedback", "finished", "goal", "language", "limits",
    "proposal", "receipt", "result", "results", "step", "today", "tool_output", "tools", "tools_approved",
)  # fmt: skip
"""The tags of prompts and tool messages; a tool's output must not open or close any of them."""

INVISIBLE = "\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff"
"""Characters that show nothing, as the inside of a character class."""
_NEWLINE = r"\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
_GAP = rf"(?:[^\S{_NEWLINE}]|[{INVISIBLE}])*"  # white space within a line, or nothing to be seen
_LINE_START = rf"(?:^|(?<=[{_NEWLINE}]))(?P<lead>(?:[^\S{_NEWLINE}]|[{INVISIBLE}>*_#])*)"
_ID = r"[^\W_][\w-]{0,63}\.(?:q?\d{1,9}|result)"

_TEMPLATE = r"[|｜][^<>|｜\s]{1,40}[|｜]>"
_TAG = re.compile(
    rf"(?P<sign><|&(?P<more>(?:amp;)*)lt;)(?={_GAP}/?{_GAP}(?:{'|'.join(TAGS)})(?![\w-])|{_TEMPLATE})", re.IGNORECASE
)
_OBSERVATION = re.compile(rf"{_LINE_START}(?:\[(?P<id>{_ID})\]|(?P<run>［+)(?P<same>{_ID})(?P<end>[\]］]))")
_CORRECTION = re.compile(rf"{_LINE_START}(?P<word>correction{_GAP})(?P<colon>:|：+)", re.IGNORECASE)


def mark(text: str) -> str:
    """The text with all that looks like the runtime speaking made harmless; the rest of it stays as it is.

    `unmark` gives the text back exactly. The time is linear in the text's length.
    """
    text = _TAG.sub(lambda found: "&lt;" if found["sign"] == "<" else f"&amp;{found['more']}lt;", text)
    return _CORRECTION.sub(_mark_correction, _OBSERVATION.sub(_mark_observation, text))


def unmark(text: str) -> str:
    """The text as the tool gave it: `unmark(mark(text)) == text`. For what a model quotes from output."""
    text = _OBSERVATION.sub(_unmark_observation, _CORRECTION.sub(_unmark_correction, text))
    return _TAG.sub(_unmark_tag, text)


def inset(text: str) -> str:
    """A marked text to stand within lines of the runtime's own, so that no line of it looks like one of those."""
    return "\n    ".join(mark(text).splitlines())


def imitates(text: str) -> bool:
    """Whether something in a text that was marked had to be: it looked like the runtime speaking."""
    return unmark(text) != text


def _mark_observation(found: re.Match[str]) -> str:
    if found["id"]:
        return f"{found['lead']}［{found['id']}］"
    return f"{found['lead']}［{found['run']}{found['same']}{found['end']}"


def _unmark_observation(found: re.Match[str]) -> str:
    if found["id"]:
        return found[0]
    if len(found["run"]) > 1:
        return f"{found['lead']}{found['run'][1:]}{found['same']}{found['end']}"
    return f"{found['lead']}[{found['same']}]"


def _mark_correction(found: re.Match[str]) -> str:
    return found["lead"] + found["word"] + ("：" if found["colon"] == ":" else f"：{found['colon']}")


def _unmark_correction(found: re.Match[str]) -> str:
    return found["lead"] + found["word"] + (":" if found["colon"] in (":", "：") else found["colon"][1:])


def _unmark_tag(found: re.Match[str]) -> str:
    if found["more"] is None:
        return found[0]
    return f"&{found['more'][4:]}lt;" if found["more"] else "<"
