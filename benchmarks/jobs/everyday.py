"""Jobs as strangers give them: papers that leave one question open, three tiny tools, a menu in German, a long list
of days of which the last corrects an earlier one. Written last; who plays them sees the requests only."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import Job, Json, add_row, files, rows_of

# Papers that leave one question open ---------------------------------------------------------------------------------

_PAPERS = {
    "offer.txt": "Lindenhof, offer 2291 of 9 October 2026, for Saturday, 12 June 2027\nBarn hall: 120 seats at tables, "
    "or 90 with the dance floor.\nRent 3,400.00 EUR, final cleaning 250.00 EUR.\nDeposit: 30 % of the rent, by "
    "15 January 2027. The rest two weeks before the day.\n",
    "house_rules.md": "# House rules\n- Music: in the garden until 22:00, in the hall until 00:30.\n- No fireworks, "
    "no sky lanterns.\n- The kitchen closes at 23:00.\n- Dogs on a lead.\n",
    "directions.txt": "By car: leave the B2 at Altheim, then 3 km. 25 parking spaces for cars behind the barn.\n"
    "By train: Altheim station, 12 minutes on foot. Taxi: 09142 5511.\n",
    "mail_2026-10-20.txt": "Dear Ms Okoro,\nthank you for your visit. The offer holds until 30 November. Your own "
    "caterer may use the kitchen, for 180 EUR. On your other questions Mr Haas will write to you when he is back.\n"
    "Kind regards, R. Lind\n",
    "our_ideas.md": "- chili, two kinds of salad\n- Tomas books the coach (52 seats) and the band\n- lanterns?\n",
}
_NOT_SAID = re.compile(
    r"(?:n't|\bnot|\bno|\bnone|\bnothing|\bnowhere|\bneither|\bnor|\bnever)\b\W+(?:\w+\W+){0,6}?(?:say|said|stat|mention"
    r"|specif|address|cover|tell|told|information|info|word|answer|document|indicat|confirm|clear|find|found|know)"
    r"|unclear|unknown|silent|unanswered|say nothing|says nothing",
    re.IGNORECASE,
)


def _papers_right(folder: Path, answer: str) -> str:
    answer = answer.replace("’", "'")
    wanted = {
        "90 with dancing": r"\b90\b", "00:30": r"\b(?:00?|12)[:.]30|half past (?:midnight|twelve)",
        "1,020 EUR": r"\b1[,. ]?020\b", "15 January": r"\b15(?:th)?(?: of)? Jan|\bJan\w* 15|\b15\.0?1\.|01-15",
    }  # fmt: skip
    missing = [fact for fact, pattern in wanted.items() if not re.search(pattern, answer, re.IGNORECASE)]
    near = [answer[max(0, at.start() - 200) : at.end() + 250] for at in re.finditer("coach", answer, re.IGNORECASE)]
    open_ = any(_NOT_SAID.search(text) for text in near)
    return f"missing: {missing}" if missing else "" if open_ else "it should say that the papers leave the coach open"


# A booking, by three tiny tools --------------------------------------------------------------------------------------

_TABLES = {"T1": ("window", 6), "T2": ("window", 2), "T3": ("hall", 6), "T4": ("hall", 8), "T7": ("window", 6)}
_BOOKINGS = {
    "B-18": {"guest": "Okafor", "people": 2, "day": "2026-12-11", "time": "20:00", "table": "T2"},
    "B-31": {"guest": "Okafor", "people": 6, "day": "2026-11-28", "time": "19:00", "table": "T3"},
    "B-32": {"guest": "Lindqvist", "people": 5, "day": "2026-11-29", "time": "19:00", "table": "T1"},
    "B-35": {"guest": "Abe", "people": 6, "day": "2026-11-28", "time": "19:00", "table": "T7"},
}


def _booked(folder: Path) -> dict[str, Json]:
    return dict(json.loads((folder / "bookings.json").read_text()))


def _booking_tools(folder: Path) -> list[Any]:
    def find_bookings(guest: str) -> list[Json]:
        """Bookings of a guest, by name."""
        name = guest.casefold()
        return [{"id": id, **row} for id, row in _booked(folder).items() if row["guest"].casefold() in name]

    def free_tables(day: str, time: str) -> list[Json]:
        """Tables that are free on a day (YYYY-MM-DD) at a time (HH:MM)."""
        taken = [row["table"] for row in _booked(folder).values() if (row["day"], row["time"]) == (day, time)]
        return [{"table": t, "place": at, "seats": n} for t, (at, n) in _TABLES.items() if t not in taken]

    def move_booking(id: str, day: str, time: str, table: str) -> str:
        """Move a booking to another day, time and table."""
        if table not in [row["table"] for row in free_tables(day, time)]:
            raise ValueError(f"{table} is not free on {day} at {time}")
        bookings = _booked(folder)
        bookings[id] |= {"day": day, "time": time, "table": table}
        (folder / "bookings.json").write_text(json.dumps(bookings))
        return f"{id} is now on {day} at {time}, table {table}"

    return [find_bookings, free_tables, move_booking]


def _booking_right(folder: Path, answer: str) -> str:
    wanted = _BOOKINGS | {"B-31": _BOOKINGS["B-31"] | {"day": "2026-11-29", "table": "T7"}}
    booked = _booked(folder)
    if booked != wanted:
        return f"B-31 should be on Sunday at T7 and all else as it was, is {booked}"
    return "" if re.search(r"\b(?:T|table )7\b", answer, re.IGNORECASE) else "the answer does not name table T7"


# A menu in German ----------------------------------------------------------------------------------------------------

_MENU = {
    "karte.md": "# Café Morgenrot\n\n## Heißes\n- Kaffee, Tasse: 2,60 €\n- Kaffee, Kännchen: 4,80 €\n- Milchkaffee: "
    "3,40 €\n- Tee: 2,60 €\n\n## Kuchen\n- Apfelkuchen: 3,20 €\n- Käsekuchen: 3,50 €\n\n## Kaltes\n- Eiskaffee: "
    "4,90 €\n- Apfelschorle: 2,80 €\n",
    "aushang.txt": "Heute bei uns\nTasse Kaffee 2,60\nApfelkuchen 3,20\nKäsekuchen 3,50\nTäglich ab 9 Uhr\n",
    "karte_2025.md": "# Café Morgenrot 2025\n- Kaffee, Tasse: 2,40 €\n- Apfelkuchen: 3,00 €\n",
    "rezepte.txt": "Apfelkuchen: 1 kg Äpfel, 250 g Mehl\nKäsekuchen: 750 g Quark\n",
}
_CHANGED = {
    "karte.md": _MENU["karte.md"].replace("Tasse: 2,60", "Tasse: 2,80").replace("- Apfelkuchen: 3,20 €\n", ""),
    "aushang.txt": _MENU["aushang.txt"].replace("2,60", "2,80").replace("Apfelkuchen 3,20\n", ""),
}


def _menu_right(folder: Path, answer: str) -> str:
    wanted = _MENU | _CHANGED | {"karte_alt.md": _MENU["karte.md"]}
    there = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
    wrong = [name for name, text in wanted.items() if there.get(name, "").split() != text.split()]
    wrong += there.keys() - wanted.keys()
    return f"wrong: {wrong}" if wrong else ""


# Hours of a month, the last day of which corrects an earlier one -----------------------------------------------------

_HOURS: dict[str, dict[str, float]] = {
    "2026-10-02": {"Mia": 5, "Jonas": 6.5}, "2026-10-03": {"Mia": 7, "Petra": 7.5},
    "2026-10-07": {"Jonas": 4, "Petra": 8}, "2026-10-10": {"Mia": 7.5, "Jonas": 7},
    "2026-10-14": {"Petra": 5.5}, "2026-10-16": {"Mia": 3, "Petra": 6},
    "2026-10-17": {"Jonas": 8, "Petra": 7.5}, "2026-10-21": {"Mia": 4.5},
    "2026-10-24": {"Mia": 8, "Jonas": 7.5}, "2026-10-28": {"Jonas": 5, "Petra": 4},
    "2026-10-30": {"Mia": 6, "Petra": 6.5}, "2026-10-31": {"Mia": 7, "Jonas": 7.5},
}  # fmt: skip
_REMARKS = {
    "2026-10-10": "Rain until noon, good afternoon.",
    "2026-10-21": "Jonas was ill.",
    "2026-10-31": "Petra's 7 October is wrong in here: she left early and worked 4.5 hours, not 8.",
}
_TOTALS = [["Jonas", 45.5], ["Mia", 48.0], ["Petra", 41.5]]


def _stall_tools(folder: Path) -> list[Any]:
    def market_days(month: str) -> list[str]:
        """The days of a month (YYYY-MM) on which the stall was open."""
        return [day for day in _HOURS if day.startswith(month)]

    def get_day(day: str) -> Json:
        """Who worked on a day, how many hours, and the remark of that day."""
        return {"day": day, "hours": _HOURS[day], "remark": _REMARKS.get(day, "")}

    def enter_hours(person: str, month: str, hours: float) -> str:
        """Enter the hours of a person for a month in the payroll."""
        return f"entry {add_row(folder / 'payroll.json', [person, hours])}: {person}, {month}, {hours:g} hours"

    return [market_days, get_day, enter_hours]


def _stall_right(folder: Path, answer: str) -> str:
    entered = sorted(rows_of(folder / "payroll.json"))
    unnamed = [n for _, n in _TOTALS if not re.search(rf"\b{n:g}\b".replace(r".", "[.,]"), answer)]
    return "" if entered == _TOTALS and not unnamed else f"entered {entered}, should be {_TOTALS}; not named: {unnamed}"


_OWED = {"Ann": 41.5, "Bo": 27.25, "Cleo": 0.0}


def _tiny_tools(folder: Path) -> list[Any]:
    def look_up(name: str) -> str:
        """What somebody owes."""
        return f"{name} owes {_OWED[name]:.2f} EUR"

    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    def send(to: str, text: str) -> str:
        """Send a message."""
        return f"message {add_row(folder / 'sent.json', [to, text])} sent to {to}"

    return [look_up, add, send]


def _tiny_right(folder: Path, answer: str) -> str:
    sent = rows_of(folder / "sent.json")
    good = len(sent) == 1 and sent[0][0] == "Cleo" and re.search(r"68[.,]75", sent[0][1])
    return "" if good else f"sent {sent}, should be one message to Cleo with 68.75"


EVERYDAY = {
    "party": Job(
        "Everything the Lindenhof sent us for the party is in this folder. We are 85 and want to dance: do we fit, "
        "until when may the band play in the hall, how much is the deposit and by when, and can our coach park there?",
        files(_PAPERS), _papers_right,
    ),
    "table": Job(
        "The Okafors have a table for Saturday, 28 November 2026. They would rather come on the Sunday right after, at "
        "the same time, and sit by the window if one there has room for all of them. Please move it and tell me the "
        "table.",
        files({"bookings.json": json.dumps(_BOOKINGS)}), _booking_right, _booking_tools,
        {"find_bookings": "read", "free_tables": "read", "move_booking": "write"},
    ),
    "karte": Job(
        "Der Kaffee kostet jetzt 2,80 € und Apfelkuchen gibt es nicht mehr. Bring bitte Karte und Aushang auf den "
        "neuen Stand, und heb die bisherige Karte als karte_alt.md auf, falls ich zurück will.",
        files(_MENU), _menu_right, reply="Die Tasse.",
    ),
    "hours": Job(
        "Add up the hours that Mia, Jonas and Petra worked at our market stall in October 2026, enter each one's total "
        "in the payroll, and tell me the three totals.",
        files({}), _stall_right, _stall_tools, {"market_days": "read", "get_day": "read", "enter_hours": "write"},
    ),
    "tiny": Job(
        "Add up what Ann and Bo owe, and send Cleo the total.",
        files({}), _tiny_right, _tiny_tools, {"look_up": "read", "add": "read", "send": "write"},
    ),
}  # fmt: skip
