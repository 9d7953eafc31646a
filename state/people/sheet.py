"""The text of a plan as a person left it, taken apart line by line: title, steps and their lines, notes, prose."""

import re
from dataclasses import dataclass, field
from functools import cache

from donewhen.state.language.texts import LANGUAGES, Unclear, catalogue, unclear
from donewhen.state.language.words import plain
from donewhen.state.pattern import pattern
from donewhen.state.people.shapes import FENCE

STEP_LINE = pattern(
    r"^ {0,2}(?:\*\*)?\d+\\?[.)](?:\*\*)?\s+(?:\*\*)?(?:\\?\[(?P<id>[^\]\s\\]+)\\?\](?:\*\*)?\s*)?(?P<text>.*)$"
)
COUNT_LINE = pattern(r"^(?P<mark>[_*])[^_*]*\d[^_*]*(?P=mark)\s*$")
STRUCK = pattern(r"^\s*(?:(?:[-*•]|\d+[.)])\s+)?~~.*~~\s*$")
"""A line that is crossed out, and so is not there; nor are the lines of a step below it."""
RULER = pattern(r"^\s*(?:[-*_=~]\s*){2,}$")
HEADING = pattern(r"^#{1,6}\s+(?P<text>.*)$")
BULLETS = ("-", "*", "•")
FIELDS = ("done_when", "check", "judge", "executor", "tools", "after")
SHOWN = ("upcoming", "covers")
"""Lines at the foot that only tell, and are not read."""


@dataclass
class StepText:
    """One step as it stands in the text; `fields` are (name, text) in their order, `lines` where each begins."""

    id: str | None
    content: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)


@dataclass
class PlanSheet:
    """The text of a plan, line by line."""

    title: str | None = None
    goal: StepText = field(default_factory=lambda: StepText(None, ""))
    """Criteria of the goal itself, which stand above the steps."""
    steps: list[StepText] = field(default_factory=list)
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Schedule and limits: where, and what is said."""
    beside: list[tuple[int, str]] = field(default_factory=list)
    problems: list[Unclear] = field(default_factory=list)


@cache
def _labels() -> tuple[re.Pattern[str], re.Pattern[str], dict[str, str]]:
    """How the lines of a step and of the foot begin in any language, and what each label stands for."""
    names = {
        plain(catalogue(language)["plan"][key]): key
        for language in LANGUAGES
        for key in (*FIELDS, "schedule", "limits", *SHOWN)
    }
    inside, below = (
        "|".join(re.escape(name) for name, key in names.items() if (key in FIELDS) is lines) for lines in (True, False)
    )
    done_when = "|".join(re.escape(name) for name, key in names.items() if key == FIELDS[0])
    field_line = re.compile(
        rf"^ {{0,4}}[-*•]\s+\**(?:(?P<name>{inside})\s*[:：]\**\s*|(?P<first>{done_when})\s+(?=\S))(?P<text>.*)$",
        re.IGNORECASE,
    )
    return field_line, re.compile(rf"^\**(?P<name>{below})\s*[:：]\**\s*(?P<text>.*)$", re.IGNORECASE), names


def read_sheet(text: str) -> PlanSheet:
    """The lines of the text, each as what it is. Prose between steps belongs to nothing, and is a problem."""
    sheet, after, crossed_out = PlanSheet(), list[tuple[int, str]](), False
    field_line, note_line, names = _labels()
    for number, line in enumerate(unfenced(text).replace("\t", "    ").splitlines(), 1):
        step, entry, note, heading = (kind.match(line) for kind in (STEP_LINE, field_line, note_line, HEADING))
        name = names[plain(entry["name"] or entry["first"])] if entry else ""
        if STRUCK.match(line):
            crossed_out = crossed_out or bool(STEP_LINE.match(line.replace("~~", "")))
            continue
        crossed_out = crossed_out and line.startswith("   ")
        if crossed_out or not line.strip() or RULER.match(line) or COUNT_LINE.match(line):
            continue
        if note:
            sheet.notes[names[plain(note["name"])]] = (number, note["text"].strip())
        elif heading and not sheet.steps and sheet.title is None:
            sheet.title = heading["text"].strip()
        elif entry and not sheet.steps and name in FIELDS[:3]:
            sheet.goal.fields.append((name, entry["text"].strip()))
            sheet.goal.lines.append(number)
        elif step or (entry and sheet.steps):
            sheet.problems += [_unread(*each) for each in after]
            after = []
            if step:
                sheet.steps.append(StepText(step["id"], step["text"].strip()))
            elif entry:
                sheet.steps[-1].fields.append((name, entry["text"].strip()))
                sheet.steps[-1].lines.append(number)
        elif sheet.steps and not after and not sheet.notes and _continues(line):
            _continue(sheet.steps[-1], line.strip())
        elif sheet.steps:
            after.append((number, line))
        elif entry:
            sheet.problems.append(_unread(number, line))
        else:
            sheet.beside.append((number, line.strip()))
    for number, line in after:
        if line.lstrip().startswith(BULLETS):
            sheet.problems.append(_unread(number, line))
        else:
            sheet.beside.append((number, line.strip()))
    return sheet


def unfenced(text: str) -> str:
    """The text out of the one fence that it stands in, each line where it was."""
    fenced = FENCE.match(text)
    return f"\n{fenced['body']}" if fenced else text


def _continues(line: str) -> bool:
    """Whether it goes on with what stands above it: indented, a bullet more deeply than the lines of a step."""
    return line.startswith("     ") or (line.startswith("   ") and not line.lstrip().startswith(BULLETS))


def _unread(number: int, line: str) -> Unclear:
    return unclear("line", line.strip(), line=number)


def _continue(step: StepText, line: str) -> None:
    if step.fields:
        name, text = step.fields[-1]
        step.fields[-1] = (name, f"{text}\n{line}")
    else:
        step.content = f"{step.content}\n{line}"
