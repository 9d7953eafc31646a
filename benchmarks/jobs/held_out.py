"""Jobs written after the prompts had been mended by the others; who played them saw the requests only."""

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import Job, add_row, files, rows_of

_PATHS = ["/", "/login", "/cart", "/checkout", "/api/orders", "/api/stock", "/static/app.js"]


def _log(folder: Path) -> None:
    draw, lines = random.Random(11), []
    for n in range(900):
        minutes = n * 240 // 900
        hour, path = 13 + minutes // 60, draw.choices(_PATHS, [5, 3, 4, 2, 4, 2, 6])[0]
        bad = 0.9 if path == "/api/stock" and hour == 14 else 0.08 if hour == 14 else 0.03
        status = draw.choice([500, 502, 503]) if draw.random() < bad else draw.choice([200, 200, 200, 304, 404])
        at = f"03/Mar/2026:{hour}:{minutes % 60:02}:{draw.randrange(60):02} +0000"
        lines.append(f'10.0.0.{draw.randrange(250)} - - [{at}] "GET {path} HTTP/1.1" {status} {draw.randrange(9000)}')
    (folder / "access.log").write_text("\n".join(lines) + "\n")


def _log_right(folder: Path, answer: str) -> str:
    found = re.findall(r":14:\d\d:\d\d \S+ \"GET (\S+) HTTP/1.1\" 5", (folder / "access.log").read_text())
    (best, most), *_ = Counter(found).most_common(1)
    said = (folder / "incident.md").read_text() if (folder / "incident.md").is_file() else ""
    wanted = (best, str(most), str(len(found)))
    return "" if all(one in said for one in wanted) else f"incident.md should say {wanted}"


def _stock(folder: Path) -> None:
    draw, stock = random.Random(5), {}
    for n in range(11, 19):
        least = draw.randrange(10, 40)
        stock[f"SKU-{n}"] = {"on_hand": draw.randrange(80), "least": least, "most": least * 3}
    (folder / "stock.json").write_text(json.dumps(stock))


def _stock_tools(folder: Path) -> list[Any]:
    def stock() -> dict[str, dict[str, int]]:
        return dict(json.loads((folder / "stock.json").read_text()))

    def list_skus() -> list[str]:
        """All article numbers in stock."""
        return sorted(stock())

    def get_stock(sku: str) -> dict[str, int]:
        """Units on hand of an article, with the least and most that should be there."""
        return stock()[sku]

    def reorder(sku: str, units: int) -> str:
        """Order units of an article at the supplier."""
        return f"ordered {units} of {sku}, order PO-{1000 + add_row(folder / 'orders.json', [sku, units])}"

    return [list_skus, get_stock, reorder]


def _stock_right(folder: Path, answer: str) -> str:
    stock = json.loads((folder / "stock.json").read_text())
    wanted = [[sku, one["most"] - one["on_hand"]] for sku, one in stock.items() if one["on_hand"] < one["least"]]
    ordered = sorted(rows_of(folder / "orders.json"))
    return "" if ordered == sorted(wanted) else f"ordered {ordered} instead of {wanted}"


_PORTS = {
    "config.yaml": "# service settings, do not reorder\nname: orders\nport: 8080   # public\nadmin_port: 8081\n"
    "upstreams:\n  - http://localhost:8080/health\n  - http://stock:9090\n",
    "compose.yml": 'services:\n  orders:\n    image: orders:1.10.0\n    ports:\n      - "8080:8080"\n  legacy:\n'
    '    image: legacy:0.9\n    ports:\n      - "18080:80"\n',
    "nginx.conf": "upstream orders { server orders:8080; }\nserver { listen 80; }\n",
    "README.txt": "Open http://localhost:8080 . Ticket 8080 is unrelated.\n",
}


def _ports_right(folder: Path, answer: str) -> str:
    wanted = {name: re.sub(r"(?<!\d)(?<!Ticket )8080\b", "8090", text) for name, text in _PORTS.items()}
    wrong = [name for name, text in wanted.items() if (folder / name).read_text().strip() != text.strip()]
    return f"wrong: {wrong}" if wrong else ""


_NOTES = {
    "anna.txt": "Termin mit Frau Krüger am 12.05.2026 um 14:30 Uhr, Raum 2.04. Budget 12.500,00 €.",
    "ben.txt": "Die Lieferung kommt nun erst am 3. Juni 2026, nicht am 28. Mai. Kosten: 1.980,50 EUR.",
    "carla.txt": "Schulung: 17.06.2026, 9 bis 16 Uhr, maximal 15 Teilnehmende. Preis pro Kopf 249 €.",
    "dora.txt": "Bitte an die Milch denken.",
}


def _notes_right(folder: Path, answer: str) -> str:
    rows = (folder / "dates.csv").read_text() if (folder / "dates.csv").is_file() else ""
    wanted = ("anna,2026-05-12", "ben,2026-06-03", "carla,2026-06-17")
    missing = [row for row in wanted if row not in rows]
    return f"missing: {missing}" if missing else "dora has no date" if "dora" in rows else ""


HELD_OUT: dict[str, Job] = {
    "log": Job(
        "In access.log, between 14:00 and 14:59: which path had the most server errors (5xx), how many, and how many "
        "server errors were there in all in that hour? Write it to incident.md in three lines.",
        _log, _log_right,
    ),
    "stock": Job(
        "Reorder every article that has fewer units on hand than its least, up to its most.",
        _stock, _stock_right, _stock_tools, {"list_skus": "read", "get_stock": "read", "reorder": "write"},
    ),
    "port": Job(
        "The orders service moves from port 8080 to 8090. Change it everywhere it is meant in this folder, and nothing "
        "else.",
        files(_PORTS), _ports_right,
    ),
    "termine": Job(
        "Trage aus den Notizen in diesem Ordner die Termine in dates.csv ein: Spalten name (Dateiname ohne Endung), "
        "datum (JJJJ-MM-TT), betrag in Euro als Zahl. Notizen ohne Termin lässt du weg.",
        files(_NOTES), _notes_right,
    ),
}  # fmt: skip
