"""Draw for the terminal, with rich: a plan, a call to approve, a changed text, an answer."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement, Paragraph, TableDataElement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table

from donewhen.agent.cli.screen.terminal import ShownText, Terminal, clean
from donewhen.clients import (
    CallPause,
    FormPause,
    OpenPause,
    PlanPause,
    ToolPause,
    chosen_limits,
    format_amount,
    may_change,
    schedule_lines,
    schedule_text,
    shown_arguments,
    step_numbers,
    text_changes,
    tool_texts,
)
from donewhen.types import Pause

DIFF = {"+": "green", "-": "red", "@": "cyan"}
FOLDED = 12
"""The lines shown of a text that needs no decision."""


def draw_pause(pause: OpenPause, terminal: Terminal, *, seen: bool = False, fields: bool = True) -> RenderableType:
    """Draw a pause: a plan or a call, and the numbered options.

    A plan that was `seen` is not drawn again, only what was said about it. Without `fields`, the fields of a form are
    left out, because they are asked one by one.
    """
    if isinstance(pause, PlanPause):
        told = seen and (pause.reply or pause.problem)  # what was said to the plan was read with it
        texts = [each for each in (pause.reply, "" if told else pause.plan.get("speak")) if each]
        speech: list[RenderableType] = [part for each in texts for part in (AnswerText(str(each)), ShownText(""))]
        question = pause.wording()
        if seen:
            return Group(*speech, ShownText(clean(f"{terminal.texts('plan')['unchanged']} {question}")))
        return Group(*speech, ShownText(clean(question)), draw_plan(pause.dump(), terminal))
    if isinstance(pause, CallPause):
        lines_of_ways = [ShownText(clean(line)) for ways in pause.ways_to_answer() for line in ways.split("\n")]
        parts = [AnswerText(pause.wording()), draw_call(pause.call(), terminal)]
        if isinstance(pause, ToolPause) and pause.batch:
            first = ShownText(clean(pause.tool), style="bold")
            parts = [first, parts[1], ShownText(""), parts[0]]  # the list of the question goes on from the first call
        return Group(*parts, *([ShownText("")] if lines_of_ways else []), *lines_of_ways)
    rest = pause.question_text(choices=fields or not isinstance(pause, FormPause))[len(pause.wording()) :]
    lines = clean(rest).split("\n")[1:]
    return Group(AnswerText(pause.wording()), *(part for line in lines for part in terminal.wrap_line(line)))


def _grid(gap: int) -> Table:
    """Return columns that omit nothing; a very long word continues on the next line."""
    grid = Table.grid(padding=(0, gap, 0, 0))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    return grid


def draw_plan(pending: Pause, terminal: Terminal) -> RenderableType:
    """Return the drawing of a complete plan with what its approval covers."""
    plan, say, words = pending.get("plan") or {}, terminal.say, terminal.texts("plan")
    rows: list[RenderableType] = [ShownText(""), ShownText(clean(str(plan.get("title") or say("plan"))), style="bold")]
    numbers = step_numbers(plan)
    for number, step in enumerate(plan.get("steps") or [], 1):
        grid = _grid(1)
        grid.add_row(ShownText(f"{number}.", style="cyan"), ShownText(_without_blank_lines(step["content"])))
        grid.add_row("", _draw_details(step, pending, numbers, terminal))
        rows += [ShownText(""), grid]
    ends = _grid(2)
    for number, criterion in enumerate(plan.get("done_when") or []):
        ends.add_row(
            ShownText("" if number else say("in_the_end"), style="dim"), ShownText(criterion_text(criterion, terminal))
        )
    if changes := may_change(pending, words):
        ends.add_row(ShownText(words["changes"], style="dim"), ShownText(clean(changes)))
    if plan.get("schedule"):
        ends.add_row(ShownText(say("repeated"), style="dim"), ShownText(schedule_text(plan["schedule"], words)))
    for line in schedule_lines({**pending, "language": terminal.language}):
        name, _, text = line.partition(":** ")
        ends.add_row(ShownText(name.lstrip("*"), style="dim"), ShownText(text))
    amounts = [format_amount(key, amount, terminal.language) for key, amount in chosen_limits(pending).items()]
    if amounts:
        ends.add_row(ShownText(say("at_most"), style="dim"), ShownText(", ".join(amounts), style="dim"))
    if ends.rows:
        rows += [ShownText(""), ends]
    return Group(*rows)


def _draw_details(step: Mapping[str, Any], pending: Pause, numbers: Mapping[str, str], terminal: Terminal) -> Table:
    grid, say = _grid(2), terminal.texts("plan")
    for number, criterion in enumerate(step.get("done_when") or []):
        grid.add_row(
            ShownText("" if number else say["done_when"], style="dim"), ShownText(criterion_text(criterion, terminal))
        )
    tools = tool_texts(step, pending, say)
    by = [str(step["executor"])] if step.get("executor") else []
    after = [numbers.get(str(each), str(each)) for each in step.get("depends_on") or []]
    for name, values in (("tools", tools), ("after", after), ("executor", by)):
        if values:
            grid.add_row(ShownText(say[name], style="dim"), ShownText(", ".join(map(str, values)), style="dim"))
    return grid


def _without_blank_lines(text: Any) -> str:
    return "\n".join(line.strip() for line in clean(str(text)).splitlines() if line.strip())


def criterion_text(criterion: Any, terminal: Terminal) -> str:
    """Return a criterion in words, with its check and the expectation."""
    entry = criterion if isinstance(criterion, Mapping) else {"text": criterion}
    text, check = _without_blank_lines(entry.get("text")), entry.get("check")
    if check:
        pairs = [f"{key} {value}" for key, value in (check.get("arguments") or {}).items()]
        words = ", ".join([*([" ".join([str(check.get("tool")), *pairs[:1]])]), *pairs[1:]])
        text += f" ({terminal.say('checked_by', call=words)}{_expectation(check.get('expect') or 'ok', terminal)})"
    return clean(text + (f" ({terminal.texts('plan')['second_model']})" if entry.get("judge") else ""))


def _expectation(expect: Any, terminal: Terminal) -> str:
    if isinstance(expect, Mapping):
        expect = ", ".join(f"{key} {value}" for key, value in expect.items())
    return "" if expect == "ok" else f"; {terminal.say('expected', what=expect)}"


def draw_call(call: Mapping[str, Any], terminal: Terminal) -> RenderableType:
    """Return a call as it will run: short arguments by name, long texts as text, replaced ones as a diff."""
    arguments: Any = call.get("arguments")
    if not isinstance(arguments, Mapping):
        return ShownText("" if arguments is None else clean(str(arguments)))
    grid = _grid(2)
    for name, value in shown_arguments(call).items():
        grid.add_row(ShownText(clean(name), style="dim"), ShownText(clean(value)))
    return Group(ShownText(""), Padding(grid, (0, 0, 0, 2)), *draw_changes(call, terminal))


def draw_changes(call: Mapping[str, Any], terminal: Terminal, *, most: int | None = None) -> Iterator[RenderableType]:
    """Yield the long texts in a call's arguments, diffs in colour; at most `most` lines of each."""
    for change in text_changes(call):
        if most is None:
            yield Padding(ShownText(f"{clean(change.name)}:", style="dim"), (1, 0, 0, 2))
        lines = clean(change.text).removesuffix("\n").split("\n")
        shown = lines if most is None or len(lines) <= most + 1 else lines[:most]
        styles = DIFF if change.is_diff else {}
        yield _Barred(
            [ShownText(line, style=styles.get(line[:1], "")) for line in shown], f"    {terminal.marks['bar']} "
        )
        if len(shown) < len(lines):
            more = terminal.say("more_lines", number=len(lines) - len(shown))
            yield ShownText(f"      {terminal.marks['dots']} {more}", style="dim")


@dataclass(frozen=True)
class _Barred:
    """Lines behind a bar, including wrapped ones."""

    lines: list[ShownText]
    bar: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.update(width=max(1, options.max_width - cell_len(self.bar)))
        for line in console.render_lines(Group(*self.lines), room, pad=False):
            yield ShownText(self.bar, style="dim", end="")
            yield from line
            yield Segment.line()


class _PlainHeading(Heading):
    """A heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield ShownText(style="bold").append_text(self.text)


class _Paragraph(Paragraph):
    """A paragraph that wraps wide characters."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield ShownText(justify="left").append_text(self.text)


class _Cell(TableDataElement):
    """A table cell that omits nothing."""

    def __init__(self, justify: JustifyMethod) -> None:
        super().__init__(justify)
        self.content = ShownText(justify=justify, overflow="fold")


class AnswerText(Markdown):
    """An answer's Markdown, with single line breaks kept and addresses written out."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _PlainHeading,
        "paragraph_open": _Paragraph,
        "td_open": _Cell,
        "th_open": _Cell,
    }

    def __init__(self, text: str) -> None:
        super().__init__(clean(text), hyperlinks=False, code_theme="ansi_dark")
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


class Blocks:
    """Splits a text that arrives in pieces into blocks: up to the last empty line outside a fence."""

    def __init__(self) -> None:
        self.whole: str = ""
        self.tail: str = ""

    def feed(self, piece: str) -> str:
        """Return the blocks that are now complete; "" while one is open."""
        self.whole += piece
        self.tail += piece
        end, fenced, at = 0, False, 0
        for line in self.tail.splitlines(keepends=True):
            at += len(line)
            if line.lstrip().startswith(("```", "~~~")):
                fenced = not fenced
            if not fenced and line.endswith("\n") and not line.strip():
                end = at
        done, self.tail = self.tail[:end], self.tail[end:]
        return done

    def finish(self) -> str:
        """Return the rest."""
        left, self.tail = self.tail, ""
        return left
