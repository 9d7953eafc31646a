"""Thoughts and marks that models write into their text, in the forms of a dozen families, and the text without them.

Servers take them out if they know the model; others hand them on. Only exact tokens of these families count, and none
that stands in a quotation.
"""

import re

from donewhen.state.pattern import pattern

_TAG = r"(?:think|thinking|thought|reasoning|reflection|scratchpad|seed:think)"
# Openings with the ends that belong to them. A thought without its end is the rest of the text.
OPEN_THOUGHT = pattern(
    rf"""<{_TAG}>|\[THINK\]|◁think▷                                  # most; Magistral; Kimi
    |<\|(?:begin_of_thought|START_THINKING|inner_prefix|thinking)\|>  # Sky-T1; Command; Apertus
    |<unused94>                                                      # Gemma 3
    |<\|channel>thought\b                                            # Gemma 4
    |<\|(?:start\|>\w{{0,20}}<\|)?channel\|>analysis(?!\ to=)        # gpt-oss""",
    re.VERBOSE,
)
CLOSE_THOUGHT = pattern(
    rf"""</{_TAG}>|\[/THINK\]|◁/think▷
    |<\|(?:end_of_thought|END_THINKING|inner_suffix|/thinking)\|>
    |<unused95>
    |<channel\|>""",
    re.VERBOSE,
)
"""Marks that end a thought even if its opening is missing, because some templates write the opening themselves."""
_ANY_CLOSE = pattern(
    rf"{CLOSE_THOUGHT.pattern}|<\|end\|>|(?=<\|start\|>)|(?=<\|channel\|>(?!analysis))|(?=<\|call\|>)", re.VERBOSE
)
_NOT_QUOTED = r"(?<![`'\"“].)"
"""Stands behind the first character of a mark, because a pattern that begins with a literal is searched much faster."""
_TURN_END = pattern(
    rf"(?:<{_NOT_QUOTED}(?:\|(?:im_end|eot_id|eom_id|endoftext|end_of_text|return|END_OF_TURN_TOKEN|user|observation)\|>"
    rf"|｜(?:end▁of▁sentence|User)｜>|end_of_turn>|turn\|>|/s>)|\[{_NOT_QUOTED}e~\[)(?![`'\"”])"
)
"""The end of a reply; what a model writes behind it, it makes up."""
_MARK = pattern(
    rf"(?:<{_NOT_QUOTED}(?:\|(?:start\|>\w{{0,20}}|channel\|>\w{{0,20}}|(?:constrain|message|end|im_start|call)\|>(?:json\b)?"
    r"|(?:assistant|begin_of_solution|end_of_solution|START_RESPONSE|END_RESPONSE|START_TEXT|END_TEXT)\|>"
    r"|(?:begin_of_text|start_header_id\|>\w{0,20}<\|end_header_id|python_tag|python_start|python_end)\|>)"
    rf"|｜(?:Assistant|begin▁of▁sentence)｜>|start_of_turn>(?:model\b)?|s>)|\[{_NOT_QUOTED}/?INST\])(?![`'\"”])"
)
"""Marks within a reply that say nothing to a person."""


def without_thoughts(text: str) -> str:
    """Return the text without its thoughts."""
    if not any(sign in text for sign in ("<", "◁", "THINK]")):
        return text
    parts, position = [], 0
    while opening := OPEN_THOUGHT.search(text, position):
        parts.append(text[position : opening.start()])
        position = end_of_thought(text, opening.end())
    return CLOSE_THOUGHT.split("".join([*parts, text[position:]]))[-1]


def end_of_thought(text: str, start: int) -> int:
    """Return where the thought ends whose text begins at `start`."""
    close = _ANY_CLOSE.search(text, start)
    return close.end() if close else len(text)


def without_marks(text: str) -> str:
    """Return the text up to its end of turn, without marks."""
    if not any(sign in text for sign in ("<", "[e~[", "INST]")):
        return text
    end = _TURN_END.search(text)
    return _MARK.sub("", text[: end.start()] if end else text)
