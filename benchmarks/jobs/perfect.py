"""Replies that do the everyday jobs as they should be done, for a scripted model."""

from typing import Any

from donewhen.testing import answer, call, finish_step, submit_plan

PAPERS = ("offer.txt", "house_rules.md", "directions.txt", "mail_2026-10-20.txt", "our_ideas.md")
DAYS = [f"2026-10-{day:02}" for day in (2, 3, 7, 10, 14, 16, 17, 21, 24, 28, 30, 31)]
PARTY = (
    "Yes, with the dance floor the hall seats 90. The band may play until 00:30. The deposit is 1,020.00 EUR, by "
    "15 January 2027. The papers do not say whether a coach can park there; they only speak of 25 cars."
)
MENU = (
    "# Café Morgenrot\n\n## Heißes\n- Kaffee, Tasse: 2,60 €\n- Kaffee, Kännchen: 4,80 €\n- Milchkaffee: 3,40 €\n"
    "- Tee: 2,60 €\n\n## Kuchen\n- Apfelkuchen: 3,20 €\n- Käsekuchen: 3,50 €\n\n## Kaltes\n- Eiskaffee: 4,90 €\n"
    "- Apfelschorle: 2,80 €\n"
)


def work(done_when: list[str], looks: list[Any], rounds: list[Any], tools: list[str]) -> dict[str, Any]:
    """The script of a job: looks of the planner, a plan of one step, and what its executor does."""
    step = {"content": "Do it.", "done_when": done_when, "tools": tools}
    return {"triage": [*looks, submit_plan([step])], "execute": rounds}


PERFECT: dict[str, dict[str, Any]] = {
    "party": {
        "triage": [
            call("list_files"),
            [*(call("read_file", path=path) for path in PAPERS), call("calculate", expression="3400 * 0.3")],
            answer(PARTY),
        ]
    },
    "table": work(
        ["booking B-31 is on 2026-11-29 at 19:00"],
        [call("find_bookings", guest="Okafor"), call("free_tables", day="2026-11-29", time="19:00")],
        [
            call("move_booking", id="B-31", day="2026-11-29", time="19:00", table="T7"),
            finish_step("Moved to 2026-11-29 at 19:00, table T7.", ("s1.1", "B-31 is now on 2026-11-29 at 19:00")),
        ],
        ["move_booking"],
    ),
    "karte": work(
        ["karte.md hat den neuen Preis", "karte.md nennt keinen Apfelkuchen", "der Aushang auch", "karte_alt.md da"],
        [call("list_files"), [call("read_file", path="karte.md"), call("read_file", path="aushang.txt")]],
        [
            [
                call("write_file", path="karte_alt.md", content=MENU),
                call("edit_file", path="karte.md", old="Tasse: 2,60", new="Tasse: 2,80"),
                call("edit_file", path="karte.md", old="- Apfelkuchen: 3,20 €\n", new=""),
                call("edit_file", path="aushang.txt", old="Kaffee 2,60\nApfelkuchen 3,20", new="Kaffee 2,80"),
            ],
            finish_step("Karte und Aushang sind geändert.", ["s1.2", "s1.3", "s1.4", "s1.1"]),
        ],
        ["write_file", "edit_file"],
    ),
    "hours": work(
        ["for 2026-10 Mia has 48 hours", "for 2026-10 Jonas has 45.5 hours", "for 2026-10 Petra has 41.5 hours"],
        [call("market_days", month="2026-10"), [call("get_day", day=day) for day in DAYS]],
        [
            [
                call("enter_hours", person=person, month="2026-10", hours=hours)
                for person, hours in (("Mia", 48), ("Jonas", 45.5), ("Petra", 41.5))
            ],
            finish_step("Entered: Mia 48, Jonas 45.5, Petra 41.5 hours.", ["s1.1", "s1.2", "s1.3"]),
        ],
        ["enter_hours"],
    ),
    "tiny": work(
        ["Cleo was sent the total"],
        [[call("look_up", name="Ann"), call("look_up", name="Bo")], call("add", a=41.5, b=27.25)],
        [
            [
                call("send", to="Cleo", text="Together 68.75 EUR."),
                finish_step("Cleo was sent the total, 68.75 EUR.", "s1.1"),
            ]
        ],
        ["send"],
    ),
}
