"""Record a run of the command, with the demo model, in a real terminal: writes docs/images/run.svg and run.txt."""

import io
import re
import shutil
import tempfile
from pathlib import Path

import pyte
from rich.color import ANSI_COLOR_NAMES
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.kit.screens.terminal import ROWS, Session, environment

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
GOAL = "total the amount in sales.csv by region, then write a report to report.md"
COLUMNS = 80


def record() -> pyte.Screen:
    """Run the goal in a copy of examples/shop, approve the plan, and return the screen as it is at the end."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Path(folder, "shop")
        shutil.copytree(ROOT / "examples" / "shop", shop)
        words = ["run", GOAL, "--model", "demo", "--dir", str(shop), "--storage", str(Path(folder, "runs.db"))]
        run = Session.start(*words, env=environment(Path(folder)), cwd=shop, columns=COLUMNS, answers_here=True)
        for line in ("y", ""):  # approve the plan; then no other request
            run.asked()
            run.type(line)
        code, _ = run.end()
    assert code == 0, run.raw
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.Stream(screen).feed(re.sub("\r?\n", "\r\n", run.raw))
    return screen


def as_text(screen: pyte.Screen) -> Text:
    """Return what the screen shows, with its colours, under the command that was typed."""
    lines = [Text.assemble(("$ ", "bold green"), (f"donewhen run {GOAL!r}".replace("'", '"'), "bold"))]
    for row, shown in enumerate(screen.display):
        if shown.strip() or any(text.strip() for text in screen.display[row:]):
            cells = [screen.buffer[row][column] for column in range(len(shown.rstrip()))]
            lines.append(Text.assemble(*((cell.data, style(cell)) for cell in cells)))
    while lines[-1].plain.strip() in ("", ">") or lines[-1].plain.startswith("What next?"):
        lines.pop()
    return Text("\n").join(lines)


def style(cell: pyte.screens.Char) -> Style:
    """Return rich's style of a cell."""
    name = {"brown": "yellow", "default": ""}.get(cell.fg, cell.fg)
    name = name.replace("bright", "bright_") if name.startswith("bright") else name
    colour = name if name in ANSI_COLOR_NAMES else f"#{name}" if re.fullmatch("[0-9a-f]{6}", name) else None
    return Style(color=colour, bold=cell.bold or None, italic=cell.italics or None, reverse=cell.reverse or None)


def main() -> None:
    """Write the picture and the text."""
    text = as_text(record())
    console = Console(record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", file=io.StringIO())
    console.print(text, soft_wrap=False)
    svg = console.export_svg(title="donewhen run", theme=MONOKAI, unique_id="run")
    svg = re.sub(r"\s*@font-face \{.*?\}\n", "\n", svg, flags=re.DOTALL)  # fonts from elsewhere; monospace will do
    (IMAGES / "run.svg").write_text(svg)
    (IMAGES / "run.txt").write_text(text.plain + "\n")


if __name__ == "__main__":
    main()
