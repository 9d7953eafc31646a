"""The jobs: a folder of files, tools, a goal, and what must be true in the end."""

import csv
import datetime
import json
import random
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from donewhen.agent.workspace import workspace_tools

Json = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One job. `make` fills its folder; `right` says whether the answer and the folder are right, "" if they are."""

    goal: str
    make: Callable[[Path], None]
    right: Callable[[Path, str], str]
    tools: Callable[[Path], list[Any]] = workspace_tools
    effects: dict[str, Any] = field(default_factory=dict)
    reply: str = "Do what is most likely meant."
    """What the user says to a question."""


def files(given: dict[str, str]) -> Callable[[Path], None]:
    """A `make` that writes these files."""

    def make(folder: Path) -> None:
        for name, text in given.items():
            (folder / name).write_text(text, encoding="utf-8")

    return make


def rows_of(path: Path) -> list[Any]:
    """The list in a JSON file; empty without the file."""
    return list(json.loads(path.read_text())) if path.is_file() else []


def add_row(path: Path, row: Any) -> int:
    """Adds to the list in a JSON file, and says how many there are."""
    rows = [*rows_of(path), row]
    path.write_text(json.dumps(rows))
    return len(rows)


def rows_in(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    return list(csv.DictReader(path.read_text("utf-8").splitlines()))


def _rows(path: Path, head: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([head, *rows])


def _sales(folder: Path) -> None:
    """300 orders of 2025 in four regions, returns of some of them, customers with their region."""
    draw = random.Random(7)
    regions = ("North", "South", "East", "West")
    customers = [[f"C{n:03}", f"Customer {n}", regions[n % 4]] for n in range(1, 81)]
    orders, returns = [], []
    for n in range(1, 301):
        day = datetime.date(2025, 1, 1) + datetime.timedelta(days=draw.randrange(365))
        amount = draw.randrange(500, 90_000) / 100
        orders.append([f"O{n:05}", f"C{draw.randrange(1, 81):03}", day.isoformat(), f"{amount:.2f}"])
        if draw.random() < 0.2:
            returns.append([f"R{n:04}", f"O{n:05}", f"{amount / 2:.2f}"])
    _rows(folder / "customers.csv", ["customer_id", "name", "region"], customers)
    _rows(folder / "orders.csv", ["order_id", "customer_id", "order_date", "amount"], orders)
    _rows(folder / "returns.csv", ["return_id", "order_id", "refund"], returns)


def net_revenue(folder: Path) -> dict[str, float]:
    """Net revenue of the third quarter by region, worked out here."""
    read = {name: rows_in(folder / f"{name}.csv") for name in ("customers", "orders", "returns")}
    region = {row["customer_id"]: row["region"] for row in read["customers"]}
    refund: dict[str, float] = {}
    for row in read["returns"]:
        refund[row["order_id"]] = refund.get(row["order_id"], 0) + float(row["refund"])
    net: dict[str, float] = {}
    for row in read["orders"]:
        if "2025-07-01" <= row["order_date"] <= "2025-09-30":
            place = region[row["customer_id"]]
            net[place] = net.get(place, 0) + float(row["amount"]) - refund.get(row["order_id"], 0)
    return net


def _report_right(folder: Path, answer: str) -> str:
    net = net_revenue(folder)
    best = max(net, key=lambda each: net[each])
    if not (folder / "report.md").is_file():
        return "no report.md"
    said = (folder / "report.md").read_text().replace(",", "")
    missing = [place for place, amount in net.items() if place not in said or f"{amount:.2f}" not in said]
    return f"wrong or missing: {missing}" if missing else "" if best in answer else f"the answer does not name {best}"


def _bug(folder: Path) -> None:
    (folder / "stock.py").write_text(
        "def left(total, sold):\n    return total - len(sold)\n\n\ndef is_low(total, sold, limit=5):\n"
        "    return left(total, sold) < limit\n"
    )
    (folder / "test_stock.py").write_text(
        "from stock import is_low, left\n\n\ndef test_left():\n    assert left(10, [3, 2]) == 5\n\n\n"
        "def test_low():\n    assert is_low(10, [6]) and not is_low(10, [5])\n"
    )


def _bug_right(folder: Path, answer: str) -> str:
    space: dict[str, Any] = {}
    exec((folder / "stock.py").read_text(), space)
    good = space["left"](10, [3, 2]) == 5 and space["is_low"](10, [6]) and not space["is_low"](10, [5])
    return "" if good else "the tests still fail"


def _documents(folder: Path) -> None:
    draw = random.Random(3)
    for n in range(1, 13):
        days = draw.choice((14, 30, 30, 60, 90))
        filler = "\n".join(
            f"{n}.{k} The parties act in good faith and keep records of what they agree." for k in range(40)
        )
        clause = f"Section 7. This contract may be ended by either party with {days} days' notice in writing."
        (folder / f"contract_{n:02}.txt").write_text(f"Contract {n}\n{filler}\n{clause}\n{filler}\n")


def notice_periods(folder: Path) -> dict[str, int]:
    """Days of notice by the contract's file."""
    return {
        path.name: int(path.read_text().split("with ", 1)[1].split(" days", 1)[0])
        for path in sorted(folder.glob("contract_*.txt"))
    }


def _documents_right(folder: Path, answer: str) -> str:
    periods = notice_periods(folder)
    longest = [name for name, days in periods.items() if days == max(periods.values())]
    named = {int(number) for number in re.findall(r"\b(?:contract_)?(\d{1,2})\b", answer)}
    missing = [name for name in longest if int(name[9:11]) not in named]
    return f"not named: {missing}" if missing else ""


ORDERS: dict[str, dict[str, Any]] = {
    "A-101": {"item": "lamp", "price": 49.9, "promised": "2026-11-02", "delivered": "2026-11-09", "refunded": 0},
    "A-102": {"item": "rug", "price": 120.0, "promised": "2026-11-04", "delivered": "2026-11-04", "refunded": 0},
    "A-103": {"item": "mat", "price": 19.5, "promised": "2026-11-06", "delivered": "2026-11-12", "refunded": 0},
}


def _shop(folder: Path) -> list[Any]:
    orders = {id: dict(order) for id, order in ORDERS.items()}
    book = folder / "book.txt"

    def list_orders(customer: str) -> list[str]:
        """The ids of a customer's orders, by e-mail address."""
        return list(orders)

    def get_order(order_id: str) -> dict[str, Any]:
        """One order: item, price in EUR, promised and delivered dates, refunded amount."""
        return {"order_id": order_id, **orders[order_id]}

    def refund_order(order_id: str, amount: float) -> dict[str, Any]:
        """Refund an amount in EUR for an order."""
        orders[order_id]["refunded"] += amount
        with book.open("a") as out:
            out.write(f"refund {order_id} {amount:.2f}\n")
        return {"refund_id": f"RF-{order_id}", "amount": amount, "status": "done"}

    def send_mail(to: str, subject: str, body: str) -> str:
        """Send a mail."""
        with book.open("a") as out:
            out.write(f"mail {to} {' '.join(body.split())}\n")
        return f"sent to {to}"

    return [list_orders, get_order, refund_order, send_mail]


def _shop_right(folder: Path, answer: str) -> str:
    lines = (folder / "book.txt").read_text().splitlines() if (folder / "book.txt").exists() else []
    refunds = sorted(line for line in lines if line.startswith("refund"))
    mails = [line for line in lines if line.startswith("mail")]
    if refunds != ["refund A-101 49.90", "refund A-103 19.50"]:
        return f"refunds: {refunds}"
    return "" if len(mails) == 1 and "mira@example.com" in mails[0] else f"mails: {len(mails)}"


def _clutter(folder: Path) -> None:
    for name in ("notes.txt", "todo.txt", "a.log", "b.log", "old.log", "cat.jpg", "dog.jpg", "plan.md"):
        (folder / name).write_text(f"{name}\n")


def _clutter_right(folder: Path, answer: str) -> str:
    logs, pictures = list(folder.glob("*.log")), sorted(path.name for path in (folder / "pictures").glob("*.jpg"))
    if logs or pictures != ["cat.jpg", "dog.jpg"]:
        return f"left: {[path.name for path in logs]}, pictures: {pictures}"
    return "" if (folder / "notes.txt").exists() and (folder / "plan.md").exists() else "too much is gone"


def with_commands(folder: Path) -> list[Any]:
    """The workspace, with Python and pytest as commands."""
    return workspace_tools(folder, commands=(sys.executable, str(Path(sys.executable).with_name("pytest"))))


SHOP_EFFECTS = {"list_orders": "read", "get_order": "read"}
JOBS = {
    "report": Job(
        "Which region had the highest net revenue in Q3 2025 after returns? Write a one-page report to report.md with "
        "a table of net revenue per region.",
        _sales,
        _report_right,
    ),
    "largest order": Job(
        "What is the largest single order, and which customer (by name) placed it?",
        _sales,
        lambda folder, answer: "" if _largest(folder) in answer else f"it was {_largest(folder)}",
    ),
    "failing test": Job(
        "test_stock.py fails (run it with `python -m pytest -q`). Find the bug in stock.py and fix it.",
        _bug, _bug_right, with_commands,
    ),
    "refunds": Job(
        "mira@example.com complains about late deliveries. Refund all of her orders that came later than promised, in "
        "full, and send her one mail that names each refund.",
        lambda folder: None, _shop_right, _shop, SHOP_EFFECTS,
    ),
    "erstattung": Job(
        "mira@example.com beschwert sich über verspätete Lieferungen. Erstatte alle Bestellungen, die später als "
        "zugesagt kamen, in voller Höhe, und schick ihr eine einzige Mail, die jede Erstattung nennt.",
        lambda folder: None, _shop_right, _shop, SHOP_EFFECTS,
    ),
    "contracts": Job(
        "Compare the notice periods of all contracts in this folder: which have the longest, and how long is it?",
        _documents, _documents_right,
    ),
    "clean up": Job(
        "Clean up this folder: delete the log files and put the pictures into a folder called pictures.",
        _clutter, _clutter_right,
    ),
    "how many": Job(
        "How many text files are there, and what does notes.txt say?",
        _clutter,
        lambda folder, answer: "" if "2" in answer and "notes.txt" in answer else "not the count",
    ),
}  # fmt: skip


def _largest(folder: Path) -> str:
    orders = rows_in(folder / "orders.csv")
    names = {row["customer_id"]: row["name"] for row in rows_in(folder / "customers.csv")}
    best = max(orders, key=lambda row: float(row["amount"]))
    return names[best["customer_id"]]
