"""Everyday work of an office, with data and with code: lists to compare, a release, a rename, a meeting, books to add
up. Written last, with the measurement of requests by origin in mind; a script plays them (`perfect.py`)."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import Job, Json, add_row, files, rows_in, rows_of, with_commands

# Invoices that nobody paid -------------------------------------------------------------------------------------------

_UNPAID = {
    "invoices.csv": "invoice,customer,due,amount\nR-201,Adler,2026-09-30,1200.00\nR-202,Brand,2026-10-15,89.90\n"
    "R-203,Adler,2026-10-31,450.00\nR-204,Cohen,2026-11-15,77.00\nR-205,Dietz,2026-10-20,310.50\n",
    "payments.csv": "day,invoice,amount\n2026-10-02,R-201,1200.00\n2026-10-28,R-205,310.50\n2026-11-03,R-204,77.00\n",
}


def _reminders_right(folder: Path, answer: str) -> str:
    path = folder / "reminders.md"
    said = path.read_text() if path.is_file() else ""
    wanted, others = {"R-202": "89.90", "R-203": "450.00"}, ("R-201", "R-204", "R-205")
    missing = [id for id, amount in wanted.items() if not any(id in s and amount in s for s in said.splitlines())]
    return f"missing: {missing}" if missing else "too many" if any(id in said for id in others) else ""


# Contacts that stand there twice -------------------------------------------------------------------------------------

_CONTACTS = (
    "email,name,changed\nida@x.example,Ida Moe,2026-03-01\nBO@x.example,Bo Lund,2025-11-20\n"
    "bo@x.example,Bo Lund-Ek,2026-08-02\ncy@x.example,Cy Orr,2026-01-09\nIda@x.example,Ida M.,2024-05-05\n"
)


def _contacts_right(folder: Path, answer: str) -> str:
    path = folder / "contacts_clean.csv"
    rows = rows_in(path) if path.is_file() else []
    found = sorted((row["email"].lower(), row["name"]) for row in rows)
    wanted = [("bo@x.example", "Bo Lund-Ek"), ("cy@x.example", "Cy Orr"), ("ida@x.example", "Ida Moe")]
    return f"found {found}" if found != wanted else "" if re.search(r"\b(?:2|two)\b", answer) else "it does not say two"


# A release -----------------------------------------------------------------------------------------------------------

_RELEASE = {
    "setup.cfg": "[metadata]\nname = tally\nversion = 1.3.2\n\n[options]\ninstall_requires =\n    click==1.3.2\n",
    "tally.py": '"""Tally."""\n\n__version__ = "1.3.2"\n\n\ndef total(rows):\n    return sum(rows)\n',
    "CHANGELOG.md": "# Changes\n\n## Unreleased\n\n- Totals of empty lists are 0.\n- Faster.\n\n## 1.3.2 - 2026-09-01"
    "\n\n- A fix.\n",
}
_RELEASED = {
    "setup.cfg": _RELEASE["setup.cfg"].replace("version = 1.3.2", "version = 1.4.0"),
    "tally.py": _RELEASE["tally.py"].replace("1.3.2", "1.4.0"),
    "CHANGELOG.md": _RELEASE["CHANGELOG.md"].replace("## Unreleased", "## Unreleased\n\n## 1.4.0 - 2026-11-27"),
}


def _release_right(folder: Path, answer: str) -> str:
    wrong = [name for name, text in _RELEASED.items() if (folder / name).read_text().split() != text.split()]
    return f"wrong: {wrong}" if wrong else ""


# A rename that the tests confirm -------------------------------------------------------------------------------------

_SHOP = {
    "prices.py": "def net(gross, rate=0.19):\n    return round(gross / (1 + rate), 2)\n",
    "bill.py": "from prices import net\n\n\ndef lines(items):\n    return [(name, net(gross)) for name, gross in "
    "items]\n",
    "test_bill.py": "from bill import lines\nfrom prices import net\n\n\ndef test_net():\n    assert net(119) == 100\n"
    '\n\ndef test_lines():\n    assert lines([("internet", 11.9)]) == [("internet", 10.0)]\n',
}


def _rename_right(folder: Path, answer: str) -> str:
    wanted = {name: re.sub(r"\bnet\b", "net_price", text) for name, text in _SHOP.items()}
    wrong = [name for name, text in wanted.items() if (folder / name).read_text() != text]
    return f"wrong: {wrong}" if wrong else ""


# A meeting, by three small tools -------------------------------------------------------------------------------------

_BUSY = {"Ada": ["09:00", "10:00", "13:00"], "Ben": ["09:00", "11:00"], "Cy": ["10:00", "12:00", "15:00"]}
_ROOMS = {"Elbe": ["14:00"], "Oder": []}


def _meeting_tools(folder: Path) -> list[Any]:
    def busy_hours(person: str, day: str) -> list[str]:
        """The full hours (HH:MM) of a day (YYYY-MM-DD) at which a person is busy."""
        return _BUSY[person]

    def free_rooms(day: str, hour: str) -> list[str]:
        """Rooms that are free for an hour."""
        return [room for room, taken in _ROOMS.items() if hour not in taken]

    def book_room(room: str, day: str, hour: str, people: list[str]) -> str:
        """Book a room for an hour and invite people. Invitations cannot be taken back."""
        number = add_row(folder / "booked.json", [room, day, hour, sorted(people)])
        return f"booking {number}: {room} on {day} at {hour} for {', '.join(people)}"

    return [busy_hours, free_rooms, book_room]


def _meeting_right(folder: Path, answer: str) -> str:
    booked = rows_of(folder / "booked.json")
    wanted = [["Oder", "2026-12-03", "14:00", ["Ada", "Ben", "Cy"]]]
    return "" if booked == wanted and "14" in answer and "Oder" in answer else f"booked {booked}"


# A question to a folder ----------------------------------------------------------------------------------------------

_THESIS = {
    "thesis.md": "# Tides\nThe model follows [@lee2019]; its limits are known [@mora2021; @kim2018].\n"
    + "Nothing is cited in this paragraph, which only fills the page with what is well known.\n" * 30,
    "papers.bib": "".join(
        f"@article{{{key},\n  title = {{On tides, part {n}}},\n  year = {{{key[-4:]}}}\n}}\n"
        for n, key in enumerate(("lee2019", "ito2020", "kim2018", "mora2021", "abbas2017"), 1)
    ),
}


def _thesis_right(folder: Path, answer: str) -> str:
    missing = [key for key in ("ito2020", "abbas2017") if key not in answer]
    return f"not named: {missing}" if missing else "a cited one is named" if "lee2019" in answer else ""


# Two lists of one file, told in the end ------------------------------------------------------------------------------

_TICKETS = "ticket,owner,status\n" + "".join(
    f"T-{n},{owner},{status}\n"
    for n, (owner, status) in enumerate(
        [("Ida", "open"), ("Tom", "done"), ("Ida", "done"), ("Wei", "open"), ("Tom", "open"), ("Ida", "open")], 301
    )
)


def _tickets_right(folder: Path, answer: str) -> str:
    lists = {name: folder / "todo" / f"{name}.md" for name in ("Ida", "Tom", "Wei")}
    said = {
        name: sorted(re.findall(r"T-\d+", path.read_text())) if path.is_file() else [] for name, path in lists.items()
    }
    if said != {"Ida": ["T-301", "T-306"], "Tom": ["T-305"], "Wei": ["T-304"]}:
        return f"todo: {said}"
    week = (folder / "week.md").read_text() if (folder / "week.md").is_file() else ""
    return "" if re.search(r"open\D*4", week) and re.search(r"done\D*2", week) else "week.md is wrong"


# Long books that are read page by page -------------------------------------------------------------------------------

PAGES, _ROWS = 22, 120


def _page(number: int) -> list[Json]:
    return [
        {
            "n": number * 1000 + n,
            "text": f"sale at counter {n % 7}, paid in cash, no remarks",
            "eur": f"{n * number % 90}.50",
        }
        for n in range(_ROWS)
    ]


def sum_until(page: int) -> str:
    """Return the sum of the cash book from its first page to this one."""
    rows = [row for number in range(1, page + 1) for row in _page(number)]
    return f"{sum(Decimal(row['eur']) for row in rows):.2f}"


def mark_of(page: int) -> str:
    """Return the mark of a page after the first."""
    return f"m{page * 977:x}"


def _book_tools(folder: Path) -> list[Any]:
    def read_page(mark: str = "first") -> Json:
        """A page of the cash book: its rows, the sum so far, and the mark of the next page (null on the last)."""
        number = 1 if mark == "first" else int(mark.removeprefix("m"), 16) // 977
        after = mark_of(number + 1) if number < PAGES else None
        return {"rows": _page(number), "sum_so_far": sum_until(number), "next": after}

    return [read_page]


def _book_right(folder: Path, answer: str) -> str:
    total = sum_until(PAGES)
    return "" if total in answer.replace(",", "") else f"the total is {total}"


OFFICE: dict[str, Job] = {
    "reminders": Job(
        "Which invoices that were due by 31 October 2026 are not paid? Write a line for each into reminders.md, with "
        "customer, invoice and amount.",
        files(_UNPAID), _reminders_right,
    ),
    "contacts": Job(
        "contacts.csv has some people twice: the same e-mail in other capitals. Write contacts_clean.csv with the "
        "newest row of each e-mail, all columns, and tell me how many rows went.",
        files({"contacts.csv": _CONTACTS}), _contacts_right,
    ),
    "release": Job(
        "Make release 1.4.0 of tally: its version in setup.cfg and tally.py, and in CHANGELOG.md a heading "
        "“1.4.0 - 2026-11-27” for what stands under Unreleased, which stays as an empty heading.",
        files(_RELEASE), _release_right,
    ),
    "rename": Job(
        "Rename the function net to net_price everywhere, and run the tests (`python -m pytest -q`).",
        files(_SHOP), _rename_right, with_commands,
    ),
    "meeting": Job(
        "Book a room for Ada, Ben and Cy on 3 December 2026, at the first full hour from 09:00 on at which all three "
        "are free, and tell me which and when.",
        files({}), _meeting_right, _meeting_tools,
        {"busy_hours": "read", "free_rooms": "read", "book_room": "write"},
    ),
    "thesis": Job(
        "Which entries of papers.bib does thesis.md not cite?",
        files(_THESIS), _thesis_right,
    ),
    "tickets": Job(
        "From tickets.csv: write week.md with how many tickets are open and how many done, and for each owner "
        "todo/<owner>.md with their open tickets.",
        files({"tickets.csv": _TICKETS}), _tickets_right,
    ),
    "book": Job(
        "Read the cash book to its last page, and tell me the total.",
        files({}), _book_right, _book_tools, {"read_page": "read"},
    ),
}  # fmt: skip
