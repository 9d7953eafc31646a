"""What the output of a tool dictates: calls and decisions that it names, with values that only it supplied. Pure.

A person who approved a plan agreed to what the plan says, not to what a tool's output says afterwards. This is no
proof: whoever wants to be asked about every call sets `approvals="each"`.
"""

import base64
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage

from donewhen.state.marking import INVISIBLE, imitates
from donewhen.state.run import Step

FEWEST_CHARS = 3
"""Of a value that can be told from others by where it comes from."""
MOST_VALUES = 1000
"""Of a call, that are looked up; of a larger one nobody can say that it was not dictated."""
ENDS = ("finish_task", "give_up")
"""Control tools after which the plan does not go on as it was approved."""
_OUTPUT = re.compile(r"\[([^\]\s]+)\][^\n]*\n<tool_output>\n(.*?)\n</tool_output>", re.DOTALL)
"""Nothing inside can look like the end of it, for it is marked; what the runtime says itself stands outside."""
_LOOK_ALIKE = str.maketrans("авсԁеһіјӏкмнорѕтухԝαεικνορτυχ", "abcdehijlkmhopstyxwaeikvoptux")
"""Cyrillic and Greek letters that look Latin in one of their cases."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_HIDDEN = re.compile(f"[{INVISIBLE}]")


@dataclass(frozen=True)
class Text:
    """Something the model was shown, or said itself."""

    id: str
    said: str
    """Folded: letters in one form and case, by their looks; nothing invisible."""
    own: bool = False
    suspect: bool = False
    """It imitates the runtime."""


def dictated_by(state: Step, name: str, arguments: Mapping[str, Any]) -> str | None:
    """The id of the output that named this tool, or spoke as the runtime, and was first to hold one of its values."""
    shown = list(_shown(state))
    orders = [n for n, text in enumerate(shown) if not text.own and (text.suspect or _names(text, name))]
    if not orders:
        return None
    agreed, values = _agreed(state), sorted({_folded(value) for value in _leaves(arguments)})
    if len(values) > MOST_VALUES:
        return shown[orders[0]].id
    for value in values:
        found = next((n for n in orders if value in shown[n].said), None) if len(value) >= FEWEST_CHARS else None
        if found is None or value in agreed or any(value in text.said for text in shown[:found]):
            continue
        return shown[found].id
    return None


def dictating(state: Step, name: str) -> list[str]:
    """Ids of all outputs so far that named this control tool, or spoke as the runtime."""
    word = re.compile(rf"(?<!\w){name}(?!\w)")
    return [text.id for text in _shown(state) if not text.own and (word.search(text.said) or text.suspect)]


def _names(text: Text, tool: str) -> bool:
    parts = [re.escape(part) for part in re.split(r"[\W_]+", _folded(tool)) if part]
    words = r"[\W_]{0,3}".join(parts)
    return re.search(rf"(?<!\w){words}(?!\w)", text.said) is not None


def _agreed(state: Step) -> str:
    """What a person wrote or approved: goal, step, criteria, answers."""
    answers = [str(entry["text"]) for entry in state.get("asked", ())]
    return _folded("\n".join([state["brief"].partition("<results>")[0], *answers]))


def _shown(state: Step) -> Iterator[Text]:
    """What came after that, oldest first, up to the last reply: results of earlier steps, outputs, own words."""
    yield _output("results of earlier steps", state["brief"].partition("<results>")[2])
    answers = {entry["id"] for entry in state.get("asked", ())}
    transcript = _before_last_reply(state.get("transcript", ()))
    for message in transcript:
        said = str(message.text)
        if isinstance(message, AIMessage):
            calls = [text for call in message.tool_calls for text in _leaves(call["args"])]
            yield Text("", _folded("\n".join([said, *calls])), own=True)
        else:
            yield from (_output(id, text) for id, text in _OUTPUT.findall(said) if id not in answers)


def _before_last_reply(transcript: Sequence[Any]) -> Sequence[Any]:
    """Without the reply that is acted on now, if it stands there already."""
    return transcript[:-1] if transcript and isinstance(transcript[-1], AIMessage) else transcript


def _output(id: str, said: str) -> Text:
    decoded = [_decoded(word) for word in _BASE64.findall(said)]
    return Text(id, _folded(" ".join([said, *decoded])), suspect=imitates(said))


def _decoded(word: str) -> str:
    try:
        return base64.b64decode(word, validate=True).decode()
    except ValueError:
        return ""


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", _HIDDEN.sub("", text)).casefold()
    return " ".join(plain.translate(_LOOK_ALIKE).split())
