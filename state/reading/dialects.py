"""Find the calls in a text in the dialects that models are trained on, where no server has parsed them.

Only exact tokens count: a tag, a mark or a line that says nothing else than that a call follows. Forms without such a
token, such as `[look(item="lamp")]`, count only where they are the whole text and name known tools. JSON of its own
form is read by `extraction`.
"""

import ast
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from donewhen.state.pattern import pattern
from donewhen.state.reading.almost_json import read_candidate
from donewhen.state.reading.json_strings import Effort, EffortExhausted

LONGEST, MOST = 200_000, 64
"""The most characters of a text that are searched, and calls that are found: more than one reply may make."""
_SIGNS = ("<", "[", "to=", "Action:", "```tool_code", "✿")
"""A text without any of these has no call in a dialect."""
_NAME = r"[\w.:/-]{1,128}"
_BAR = r"[|｜]"


@dataclass(frozen=True, slots=True)
class Printed:
    """A call or a JSON value behind a mark, and its place with the marks around it."""

    name: str
    """"" for a JSON value that names its call itself."""
    value: Any
    """The arguments, or the JSON value; None if they cannot be read for certain."""
    start: int
    end: int


# Marks behind which JSON follows. The name is before the JSON, or inside of it.
_BEFORE_JSON = pattern(
    rf"""<function=(?P<llama>{_NAME})>
    |<{_BAR}tool[▁_]call[▁_]begin{_BAR}>(?:function<{_BAR}tool[▁_]sep{_BAR}>)?(?P<deepseek>{_NAME})(?:\s*```(?:json)?|<{_BAR}tool[▁_]sep{_BAR}>(?!\s*<))
    |<\|tool_call_begin\|>\s*(?P<kimi>{_NAME})\s*<\|tool_call_argument_begin\|>
    |\[TOOL_CALLS\]\s*(?P<mistral>{_NAME})(?:\[CALL_ID\]\w{{1,40}})?(?:\[ARGS\])?
    |<(?:\|tool_call|start_function_call)>call:(?P<gemma>{_NAME})
    |<\|recipient\|>(?P<functionary>{_NAME})\s*<\|content\|>
    |✿FUNCTION✿:\s*(?P<qwen2>{_NAME})\s*✿ARGS✿:
    |(?:<(?:tool_calls?|TOOLCALL|function_?call|longcat_tool_call)>|\[TOOL_CALLS\]|f(?<!\wf)unctools
        |<\|(?:tool_call(?:_start)?|python_tag|START_ACTION|plugin|tools_prefix)\|>)(?=\s*[\[{{])""",
    re.VERBOSE,
)
# The same, where the mark may begin with anything: looked for only behind the word that it has.
_HARMONY = pattern(
    rf"""(?:<\|start\|>\w{{0,20}})?(?:<\|channel\|>)?(?:\b(?:commentary|analysis)\s)?\s?\bto=(?P<harmony>{_NAME})
        (?:\s|<\|(?:channel|constrain|message)\|>|\b(?:commentary|analysis|json)\b){{0,9}}(?=\s*\{{)""",
    re.VERBOSE,
)
_REACT = pattern(
    rf"""(?:\A|\n)[ ]*+(?:Thought:[^\n]*+\n++[ ]*+)?Action:[ ]*(?P<react>{_NAME})[ ]*\n+[ ]*Action[ ]Input:""",
    re.VERBOSE,
)
_PREFIX = rf"(?:[a-z]{{1,12}}:|{_BAR}\w{{1,12}}{_BAR})?"
# Marks behind which the arguments are tags of their own.
_BEFORE_TAGS = pattern(
    rf"""<function=(?P<qwen>{_NAME})>
    |<{_PREFIX}invoke\ name="(?P<invoke>{_NAME})">
    |<tool_call>\s*(?P<glm>{_NAME})\s*(?=<arg_key>|</tool_call>)""",
    re.VERBOSE,
)
_TAGS = {
    "qwen": (pattern(r"<parameter=([^<>\n]{1,128})>\n?"), pattern(r"\n?</parameter>"), pattern(r"</function>")),
    "invoke": (
        pattern(rf"<{_PREFIX}parameter name=\"([^\"\n]{{1,128}})\"[^<>\n]{{0,40}}>"),
        pattern(rf"</{_PREFIX}parameter>"),
        pattern(rf"</{_PREFIX}invoke>"),
    ),
    "glm": (
        pattern(r"<arg_key>([^<>]{1,128})</arg_key>\s*+<arg_value>"),
        pattern(r"</arg_value>"),
        pattern(r"</tool_call>"),
    ),
}
"""Of each dialect: the beginning and the end of an argument, and the end of the call."""
_WRAPPER = rf"""(?:\s++|```(?:json|tool_code)?|[,;]
    |</?(?:tool_calls?|TOOLCALL|function(?:_?calls?)?|longcat_tool_call|{_PREFIX}(?:tool_calls?|function_calls|invoke))/?>
    |function<{_BAR}tool[▁_]sep{_BAR}>|<{_BAR}/?[\w▁ ]{{1,40}}{_BAR}?>|<(?:tool_call\||end_function_call)>
    |\[/?TOOL_CALLS\])"""
WRAPPING = pattern(rf"{_WRAPPER}*+", re.VERBOSE)
"""What stands around and between calls and says nothing."""
_WRAPPING_END = pattern(rf"{_WRAPPER}\Z", re.VERBOSE)
_LANGUAGE = pattern(r"\w{0,20}")
_NAMED = pattern(r"([A-Za-z]\w{0,40})\s*[:(]?\s*")
_JSON_NAMES = {"true": True, "false": False, "null": None}
_DIRECT = pattern(r"(?:\A|\n)[ ]*<([\w-]{1,128})>[ ]*\n")
_CHILD = pattern(r"<([\w-]{1,128})>")


def find_printed(text: str, is_tool: Callable[[str], bool], claims: Collection[str] = ()) -> list[Printed]:
    """Return the calls of a text that follow each other; of what stands behind other words, nothing.

    `claims` name calls that are read without any mark if they are the whole text.
    """
    if len(text) > LONGEST:
        return []
    if claim := _read_claim(text, claims):
        return [claim]
    if not any(sign in text for sign in _SIGNS):
        return []
    if code := _read_code(text, is_tool):
        return code
    calls, position = list[Printed](), 0
    effort = Effort()
    try:
        while len(calls) <= MOST and (printed := _next_printed(text, position, is_tool, effort)) is not None:
            if calls and not WRAPPING.fullmatch(text, position, printed.start):
                break
            calls.append(printed)
            position = printed.end
            if printed.value is None:
                break
    except EffortExhausted:
        return calls
    return calls


def _read_claim(text: str, claims: Collection[str]) -> Printed | None:
    """Read a text that is one call and nothing else: in Python, or a name and JSON."""
    code = text.strip()
    language, line_end, inside = code.removeprefix("```").removesuffix("```").partition("\n")
    if line_end and code.startswith("```") and code.endswith("```") and _LANGUAGE.fullmatch(language):
        code = inside
    named = _NAMED.match(code)
    if not named or named[1] not in claims:
        return None
    arguments = None
    if code[named.end() : named.end() + 1] == "{":
        with suppress(EffortExhausted):
            read = read_candidate(code, named.end(), Effort())
            arguments = read.value if read.complete and not code[read.end :].strip(" \n)") else None
    elif len(body := _parse(code)) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Call):
        arguments = _arguments_of(body[0].value)
    return Printed(named[1], arguments, 0, len(text)) if isinstance(arguments, dict) else None


def before_wrapping(text: str) -> str:
    """Return a text without the marks at its end that open what follows."""
    while match := _WRAPPING_END.search(text, max(0, len(text) - 100)):
        text = text[: match.start()]
    return text


def _next_printed(text: str, position: int, is_tool: Callable[[str], bool], effort: Effort) -> Printed | None:
    tags, before = _BEFORE_TAGS.search(text, position), _search_before_json(text, position)
    direct = next((match for match in _DIRECT.finditer(text, position) if is_tool(match[1])), None)
    starts = [match.start() for match in (tags, before, direct) if match]
    if tags and tags.start() == min(starts):
        kind, name = next((kind, name) for kind, name in tags.groupdict().items() if name)
        printed = _read_tags(text, tags, name, *_TAGS[kind])
        if printed.value is not None or before is None or before.start() != tags.start():
            return printed
    if before and before.start() == min(starts):  # Llama's has JSON behind the tag of Qwen's
        return _read_json(text, before, next((name for name in before.groups() if name), ""), effort)
    if direct:
        return _read_tags(text, direct, direct[1], _CHILD, None, re.compile(rf"</{re.escape(direct[1])}>"))
    return None


def _search_before_json(text: str, position: int) -> re.Match[str] | None:
    """Return the first mark behind which JSON follows."""
    matches = [_BEFORE_JSON.search(text, position)]
    matches += [_HARMONY.search(text, position)] if text.find("to=", position) >= 0 else []
    matches += [_REACT.search(text, position)] if text.find("Action:", position) >= 0 else []
    return min(filter(None, matches), key=lambda each: each.start(), default=None)


def _read_tags(
    text: str,
    opening: re.Match[str],
    name: str,
    argument: re.Pattern[str],
    argument_end: re.Pattern[str] | None,
    end: re.Pattern[str],
) -> Printed:
    """Read arguments that are tags; without a pattern for their ends, each ends with its own name."""
    arguments, position = dict[str, str](), _after_space(text, opening.end())
    while one := argument.match(text, position):
        closing = argument_end or re.compile(rf"</{re.escape(one[1])}>")
        if (last := closing.search(text, one.end())) is None:
            break
        arguments[one[1].strip()] = text[one.end() : last.start()]
        position = _after_space(text, last.end())
    closed = end.match(text, position)
    return Printed(name, arguments if closed else None, opening.start(), closed.end() if closed else position)


def _after_space(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def _read_json(text: str, opening: re.Match[str], name: str, effort: Effort) -> Printed:
    start = _after_space(text, opening.end())
    if text[start : start + 1] not in ("{", "["):
        return Printed(name, None, opening.start(), start)
    read = read_candidate(text, start, effort)
    return Printed(name, read.value if read.complete else None, opening.start(), read.end)


def _read_code(text: str, is_tool: Callable[[str], bool]) -> list[Printed]:
    """Read a text that is Python calls of known tools and nothing else: a list, or a line for each."""
    opening = WRAPPING.match(text)
    start = opening.end() if opening else 0
    code = before_wrapping(text[start:])
    if not text[:start].strip() and not code.startswith("["):
        return []
    body = _parse(code)
    calls = list[ast.Call]()
    for line in body:
        value = line.value if isinstance(line, ast.Expr) else None
        inner = value.elts if isinstance(value, ast.List) else [value]
        calls += [each for each in inner if isinstance(each, ast.Call)]
        if len(inner) != sum(isinstance(each, ast.Call) for each in inner):
            return []
    try:
        names = [ast.unparse(call.func) for call in calls]
    except RecursionError:
        return []
    if not calls or not all(map(is_tool, names)):
        return []
    return [
        Printed(name, _arguments_of(call), len(text) if number else 0, len(text))
        for number, (name, call) in enumerate(zip(names, calls, strict=True))
    ]


def _parse(code: str) -> list[ast.stmt]:
    """Return the statements of Python code; none if it is no code. Names of JSON for values are read as such."""
    try:
        return _JsonNames().visit(ast.parse(code)).body  # type: ignore[no-any-return]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


class _JsonNames(ast.NodeTransformer):
    """Puts the values of true, false and null in their places."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the value of a name."""
        return ast.Constant(_JSON_NAMES[node.id]) if node.id in _JSON_NAMES else node


def _arguments_of(call: ast.Call) -> dict[str, Any] | None:
    """Return the arguments of a call, if all are named and literal."""
    if call.args or not all(keyword.arg for keyword in call.keywords):
        return None
    try:
        return {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError):
        return None
