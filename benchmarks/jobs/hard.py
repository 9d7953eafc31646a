"""Jobs with what goes wrong at work: a gateway that is down once, two people of one name, offers that do not fit,
decisions that are taken back. Written later than the held-out ones; who played them saw the requests only."""

from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import Job, Json, add_row, files, rows_of
from donewhen.agent.workspace import workspace_tools

# Invoices, of which one payment fails once ---------------------------------------------------------------------------

_INVOICES = {
    "A-101": ("Nordic Paper", 420.50, "2026-11-20", "open"), "A-102": ("Blue Freight", 5600.00, "2026-11-25", "open"),
    "A-103": ("Kern GmbH", 89.99, "2026-12-05", "open"), "A-104": ("Ostwind", 1310.00, "2026-11-30", "disputed"),
    "A-105": ("Nordic Paper", 77.10, "2026-11-30", "open"), "A-106": ("Lumen", 4999.99, "2026-11-28", "open"),
    "A-107": ("Lumen", 5000.01, "2026-11-29", "open"), "A-108": ("Kern GmbH", 250.00, "2026-11-15", "paid"),
    "A-109": ("Taxi Ruf", 31.40, "2026-11-22", "open"), "A-110": ("Blue Freight", 615.75, "2026-12-01", "open"),
    "A-111": ("Ostwind", 999.00, "2026-11-27", "open"), "A-112": ("Marble & Co", 1200.00, "2026-11-30", "open"),
}  # fmt: skip
_RULES = """Payment rules
- Pay open invoices only. Disputed ones wait.
- Above 5,000.00 EUR the CFO signs: do not pay, list them.
- Each invoice is paid in full, once.
"""


def _invoice_tools(folder: Path) -> list[Any]:
    bank, down = folder / "bank.json", ["A-105"]

    def read_rules() -> str:
        """The payment rules of the company."""
        return _RULES

    def list_invoices(page: int = 1) -> Json:
        """Invoices, five a page: id, supplier and due date; `next_page` is null on the last one."""
        part = list(_INVOICES.items())[(page - 1) * 5 : page * 5]
        rows = [{"id": id, "supplier": supplier, "due": due} for id, (supplier, _, due, _) in part]
        return {"invoices": rows, "next_page": page + 1 if page * 5 < len(_INVOICES) else None}

    def get_invoice(id: str) -> Json:
        """One invoice with its amount in EUR and its status."""
        supplier, amount, due, status = _INVOICES[id]
        paid = any(row[0] == id for row in rows_of(bank))
        return {"id": id, "supplier": supplier, "amount": amount, "due": due, "status": "paid" if paid else status}

    def pay_invoice(id: str, amount: float) -> str:
        """Transfer the amount for an invoice to its supplier."""
        if id in down:
            down.remove(id)
            raise RuntimeError("bank gateway: 503, nothing was booked, try again")
        return f"paid {amount:.2f} EUR for {id}, reference TX{add_row(bank, [id, amount]):04}"

    return [read_rules, list_invoices, get_invoice, pay_invoice]


def _invoices_right(folder: Path, answer: str) -> str:
    due = {id: row for id, row in _INVOICES.items() if row[2] <= "2026-11-30" and row[3] == "open"}
    wanted = sorted([id, row[1]] for id, row in due.items() if row[1] <= 5000)
    unnamed = [id for id, row in due.items() if row[1] > 5000 and id not in answer]
    paid = sorted(rows_of(folder / "bank.json"))
    return "" if paid == wanted and not unnamed else f"paid {paid}, should be {wanted}; not named: {unnamed}"


# Two people of one name ----------------------------------------------------------------------------------------------


def _agenda(folder: Path) -> None:
    points = "1. Numbers of October\n2. New warehouse: yes or no\n3. Who goes to Lyon\n"
    (folder / "agenda.md").write_text(f"# Friday, 27 November, 10:00, room Elbe\n{points}")
    (folder / "old_agenda.md").write_text("# Friday, 20 November, 10:00\n1. Budget\n")


def _agenda_tools(folder: Path) -> list[Any]:
    def find_contact(name: str) -> list[Json]:
        """People whose name contains this."""
        people = {"Anna Berg": "sales", "Anna Boll": "legal", "Jo Hannes": "sales"}
        found = [(who, team) for who, team in people.items() if name.casefold() in who.casefold()]
        return [{"name": who, "email": f"{who.lower().replace(' ', '.')}@firma.example", "team": t} for who, t in found]

    def send_mail(to: str, subject: str, body: str) -> str:
        """Send a mail."""
        return f"sent to {to}, message id m{add_row(folder / 'sent.json', [to, subject, body])}"

    reading = [tool for tool in workspace_tools(folder) if tool.name in ("list_files", "read_file", "find_text")]
    return [*reading, find_contact, send_mail]


def _agenda_right(folder: Path, answer: str) -> str:
    match rows_of(folder / "sent.json"):
        case [["anna.berg@firma.example", _, body]] if "Lyon" in body and "Elbe" in body:
            return ""
        case sent:
            return f"should be one mail to Anna Berg with place and points, is {sent}"


# Offers in other units and currencies --------------------------------------------------------------------------------


_OFFERS = {
    "order.csv": "article,pieces\nM8 bolt,2400\nHinge,150\nSeal 40 mm,600\nGlue 310 ml,48\n",
    "alpha.csv": "article;price_eur;per\nM8 bolt;4,20;100 pcs\nHinge;1,35;piece\nSeal 40 mm;0,22;piece\n"
    "Glue 310 ml;5,10;piece\nShipping;39,00;order\n",
    "beta.txt": "Beta Ltd. quote, prices in GBP without shipping\nM8 bolt 0.033 each\nHinge 13.20 per 12\n"
    "Seal 40 mm 17.50 per 100\nGlue 310 ml 4.05 each\nShipping 25 GBP, free above 450 GBP of goods\n",
    "gamma.csv": "article,usd_per_piece,min_pieces\nM8 bolt,0.041,1000\nHinge,1.62,200\nSeal 40 mm,0.21,500\n"
    "Glue 310 ml,5.60,24\nShipping,0,0\n",
    "rates.txt": "2026-11-20: 1 GBP = 1.15 EUR; 1 USD = 0.92 EUR\n2026-11-13: 1 GBP = 1.17 EUR; 1 USD = 0.95 EUR\n",
}
_TOTALS = ({719.10}, {625.14, 632.73}, {677.30, 751.82})
"""Of alpha, of beta (hinges by the piece, by the dozen), of gamma (150 hinges, and the 200 that it sells)."""


def _offers_right(folder: Path, answer: str) -> str:
    said = (folder / "quote.md").read_text().replace(",", "") if (folder / "quote.md").is_file() else ""
    right = all(any(f"{total:.2f}" in said for total in totals) for totals in _TOTALS)
    return "" if right else f"quote.md should have one of each of {_TOTALS}"


# Decisions, one of which is taken back -------------------------------------------------------------------------------

_MINUTES = {
    "2026-11-02 board.txt": "Minutes, 2 Nov. Present: Ida, Tom, Wei.\nTom suggests moving the launch to March. Open.\n"
    "DECIDED: the old site is switched off. Ida, by 15 December 2026.\nIda wonders about the budget; next time.\n",
    "2026-11-09 board.txt": "Minutes, 9 Nov.\nWe agreed that Wei writes the tender, due 1 Dec 2026. Tom offered to "
    "call the printers but it was not taken up.\nThe date of the party stays open.\n",
    "2026-11-16 会议.txt": "会议纪要 11月16日\n"
    "决定：由Tom负责更新价格表，截止2026年11月30日。\nWei提出招聘两人，下次讨论。\n"
    "撤销11月9日关于招标书的决定：改由Ida负责，截止2026年12月10日。\n",
    "notes.md": "Idea: decide on Lyon trip. Owner Wei? By 3 Dec 2026? (only an idea)\n",
}  # fmt: skip


def _minutes_right(folder: Path, answer: str) -> str:
    found = sorted((row["owner"], row["due"]) for row in rows_of(folder / "decisions.json"))
    wanted = [("Ida", "2026-12-10"), ("Ida", "2026-12-15"), ("Tom", "2026-11-30")]
    return "" if found == wanted else f"decisions.json should have {wanted}, has {found}"


HARD = {
    "pay": Job(
        "Pay what is due by 30 November 2026, by our payment rules, and tell me which due invoices you did not pay and "
        "why.",
        lambda folder: None, _invoices_right, _invoice_tools,
        {"read_rules": "read", "list_invoices": "read", "get_invoice": "read", "pay_invoice": "write"},
    ),
    "anna": Job(
        "Mail Anna the agenda of next Friday's meeting, all points of it with place and time.",
        _agenda, _agenda_right, _agenda_tools, {"find_contact": "read", "send_mail": "write"}, "Anna Berg, from sales.",
    ),
    "offers": Job(
        "Three suppliers quoted (alpha, beta, gamma). Work out what our order in order.csv costs at each of them in "
        "EUR, shipping included, at the newest rates, and write quote.md: a table of the totals and which is cheapest. "
        "Say what does not fit.",
        files(_OFFERS), _offers_right,
    ),
    "minutes": Job(
        "Collect the decisions that stand from these minutes into decisions.json: a list of objects with what, owner, "
        "due (YYYY-MM-DD). What a later decision took back is left out.",
        files(_MINUTES), _minutes_right,
    ),
}  # fmt: skip
