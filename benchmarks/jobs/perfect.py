"""Replies that do the everyday jobs as they should be done, for a scripted model."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs.jobs import Job, net_revenue, notice_periods
from benchmarks.jobs.office import PAGES, mark_of, sum_until
from donewhen.agent.tools import as_tools
from donewhen.testing import answer, call, criterion, finish_step, submit_plan

Roles = dict[str, Any]

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


def work(done_when: list[str], looks: list[Any], rounds: list[Any], tools: list[str], *, beside: bool = False) -> Roles:
    """The script of a job: looks of the planner, a plan of one step, and what its executor does.

    `beside`: the plan does not depend on the last looks, and stands beside them.
    """
    plan = submit_plan([{"content": "Do it.", "done_when": done_when, "tools": tools}])
    if not beside:
        return {"triage": [*looks, plan], "execute": rounds}
    *before, last = looks
    return {"triage": [*before, [*(last if isinstance(last, list) else [last]), plan]], "execute": rounds}


def by_calls(looks: Sequence[Any], calls: Mapping[str, Any], **more: Any) -> Roles:
    """The script of a job whose calls are all known when it is planned, each with what its success shows.

    `more` are the criteria that a worker has to show, and what it does.
    """
    shown = [{"text": text, "call": n} for n, text in enumerate(calls, 1)]
    planned = [{"tool": each["name"], "arguments": each["args"]} for each in calls.values()]
    tools = sorted({each["name"] for each in calls.values()} | {*more.get("tools", ())})
    step = {"content": "Do it.", "done_when": [*shown, *more.get("done_when", ())], "tools": tools, "calls": planned}
    return {"triage": [*looks, submit_plan([step])], "execute": more.get("rounds", [])}


def finish_beside(calls: Sequence[Any], result: str, cites: Sequence[str]) -> list[Any]:
    """The last changes of a step, with the claim that it is done."""
    return [*calls, finish_step(result, cites)]


def _report(folder: Path) -> Roles:
    net = net_revenue(folder)
    rows = "\n".join(f"| {region} | {amount:.2f} |" for region, amount in sorted(net.items()))
    best = max(net, key=lambda region: net[region])
    sql = (
        "SELECT c.region, sum(o.amount) - sum(coalesce(r.refund, 0)) AS net FROM 'orders.csv' o JOIN 'customers.csv' c "
        "USING (customer_id) LEFT JOIN 'returns.csv' r USING (order_id) WHERE o.order_date BETWEEN '2025-07-01' AND "
        "'2025-09-30' GROUP BY ALL ORDER BY net DESC"
    )
    text = f"# Net revenue, Q3 2025\n\n| region | EUR |\n|---|--:|\n{rows}\n"
    data = [call("describe_data", path=f"{name}.csv") for name in ("orders", "customers", "returns")]
    return work(
        ["report.md has a table of net revenue per region"],
        [call("list_files"), data],
        [
            call("query_data", sql=sql),
            finish_beside([call("write_file", path="report.md", content=text)], f"{best}; see report.md.", ["s1.2"]),
        ],
        ["write_file"],
        beside=True,
    )


def _contracts(folder: Path) -> Roles:
    periods = notice_periods(folder)
    most = max(periods.values())
    longest = ", ".join(name for name, days in periods.items() if days == most)
    text = f"The longest notice is {most} days: {longest}."
    return {"triage": [call("list_files"), call("find_text", query="notice"), answer(text)]}


def _stock(folder: Path) -> Roles:
    stock = json.loads((folder / "stock.json").read_text())
    low = {sku: row["most"] - row["on_hand"] for sku, row in stock.items() if row["on_hand"] < row["least"]}
    orders = {f"{units} of {sku} are ordered": call("reorder", sku=sku, units=units) for sku, units in low.items()}
    return by_calls([call("list_skus"), [call("get_stock", sku=sku) for sku in stock]], orders)


DUE = ("A-101", "A-102", "A-104", "A-105", "A-106", "A-107", "A-108", "A-109", "A-111", "A-112")
PAID = {"A-101": 420.5, "A-105": 77.1, "A-106": 4999.99, "A-109": 31.4, "A-111": 999.0, "A-112": 1200.0}
SAID_PAID = ", ".join(f"{id} ({amount:.2f} EUR)" for id, amount in PAID.items())
STAYED = "Not paid: A-102 and A-107 are above 5,000.00 EUR, so the CFO signs; A-104 is disputed."
REFUNDS = {"A-101": 49.9, "A-103": 19.5}
MAIL = "We refunded 49.90 EUR for order A-101 (lamp) and 19.50 EUR for order A-103 (mat)."
RENAMED = {
    "prices.py": "def net_price(gross, rate=0.19):\n    return round(gross / (1 + rate), 2)\n",
    "bill.py": "from prices import net_price\n\n\ndef lines(items):\n    return [(name, net_price(gross)) "
    "for name, gross in items]\n",
    "test_bill.py": "from bill import lines\nfrom prices import net_price\n\n\ndef test_net():\n    assert "
    'net_price(119) == 100\n\n\ndef test_lines():\n    assert lines([("internet", 11.9)]) == [("internet", 10.0)]\n',
}
TEST = call("run_command", command=["python", "-m", "pytest", "-q"])
LEFT = "| customer | invoice | EUR |\n|---|---|--:|\n| Brand | R-202 | 89.90 |\n| Adler | R-203 | 450.00 |\n"
CLEAN = (
    "email,name,changed\nida@x.example,Ida Moe,2026-03-01\nbo@x.example,Bo Lund-Ek,2026-08-02\n"
    "cy@x.example,Cy Orr,2026-01-09\n"
)
TODO = {"Ida": "- T-301\n- T-306\n", "Tom": "- T-305\n", "Wei": "- T-304\n"}
WEEK = "# This week\n- open: 4\n- done: 2\n"


PERFECT: dict[str, Roles | Callable[[Path], Roles]] = {
    "party": {
        "triage": [
            call("list_files"),
            [*(call("read_file", path=path) for path in PAPERS), call("calculate", expression="3400 * 0.3")],
            answer(PARTY),
        ]
    },
    "table": by_calls(
        [call("find_bookings", guest="Okafor"), call("free_tables", day="2026-11-29", time="19:00")],
        {
            "booking B-31 is on 2026-11-29 at 19:00 at table T7": call(
                "move_booking", id="B-31", day="2026-11-29", time="19:00", table="T7"
            )
        },
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
                finish_step("Karte und Aushang sind geändert.", ["s1.2", "s1.3", "s1.4", "s1.1"]),
            ],
        ],
        ["write_file", "edit_file"],
        beside=True,
    ),
    "hours": by_calls(
        [call("market_days", month="2026-10"), [call("get_day", day=day) for day in DAYS]],
        {
            f"for 2026-10 {person} has {hours} hours": call("enter_hours", person=person, month="2026-10", hours=hours)
            for person, hours in (("Mia", 48), ("Jonas", 45.5), ("Petra", 41.5))
        },
    ),
    "tiny": by_calls(
        [[call("look_up", name="Ann"), call("look_up", name="Bo")], call("add", a=41.5, b=27.25)],
        {"Cleo was sent the total, 68.75 EUR": call("send", to="Cleo", text="Together 68.75 EUR.")},
    ),
    "report": _report,
    "refunds": by_calls(
        [
            call("list_orders", customer="mira@example.com"),
            [call("get_order", order_id=f"A-10{n}") for n in (1, 2, 3)],
        ],
        {
            f"{id} is refunded in full, {amount:.2f} EUR": call("refund_order", order_id=id, amount=amount)
            for id, amount in REFUNDS.items()
        },
        done_when=["mira@example.com got one mail that names both refunds"],
        tools=["send_mail"],
        rounds=[
            [
                call("send_mail", to="mira@example.com", subject="Your refunds", body=MAIL),
                finish_step(
                    "Refunded A-101 (49.90 EUR) and A-103 (19.50 EUR), and told Mira so in one mail.",
                    ["s1.1", "s1.2", "s1.3"],
                ),
            ],
        ],
    ),
    "contracts": _contracts,
    "clean up": by_calls(
        [call("list_files")],
        {f"{name} is gone": call("delete_file", path=name) for name in ("a.log", "b.log", "old.log")}
        | {
            f"{name} is in pictures/": call("move_file", source=name, destination=f"pictures/{name}")
            for name in ("cat.jpg", "dog.jpg")
        },
    ),
    "failing test": work(
        ["the tests pass"],
        [[call("read_file", path="stock.py"), call("read_file", path="test_stock.py")]],
        [
            [call("edit_file", path="stock.py", old="len(sold)", new="sum(sold)"), TEST],
            finish_step(
                "left() counted the sales instead of adding them up; the tests pass now.", ("s1.2", "2 passed")
            ),
        ],
        ["edit_file", "run_command"],
        beside=True,
    ),
    "pay": work(
        ["every open due invoice of at most 5,000.00 EUR is paid once"],
        [
            [call("read_rules"), call("list_invoices")],
            call("list_invoices", page=2),
            call("list_invoices", page=3),
            [call("get_invoice", id=id) for id in DUE],
        ],
        [
            [call("pay_invoice", id=id, amount=amount) for id, amount in PAID.items()],
            call("pay_invoice", id="A-105", amount=77.1),
            finish_step(
                f"Paid: {SAID_PAID}. {STAYED}",
                goal_check=[criterion(1, "s1.1", "s1.3", "s1.4", "s1.5", "s1.6", "s1.7")],
            ),
        ],
        ["pay_invoice"],
    ),
    "stock": _stock,
    "reminders": work(
        ["reminders.md has a line for each unpaid due invoice"],
        [call("list_files"), [call("read_file", path="invoices.csv"), call("read_file", path="payments.csv")]],
        [
            finish_beside(
                [call("write_file", path="reminders.md", content=LEFT)],
                "Not paid: R-202 (Brand, 89.90) and R-203 (Adler, 450.00).",
                ["s1.1"],
            )
        ],
        ["write_file"],
        beside=True,
    ),
    "contacts": work(
        ["contacts_clean.csv has the newest row of each e-mail"],
        [call("read_file", path="contacts.csv")],
        [
            finish_beside(
                [call("write_file", path="contacts_clean.csv", content=CLEAN)], "2 rows went; 3 are left.", ["s1.1"]
            )
        ],
        ["write_file"],
        beside=True,
    ),
    "release": work(
        ["the version is 1.4.0 in setup.cfg and tally.py", "CHANGELOG.md has the heading of 1.4.0"],
        [[call("read_file", path=name) for name in ("setup.cfg", "tally.py", "CHANGELOG.md")]],
        [
            [
                call("edit_file", path="setup.cfg", old="version = 1.3.2", new="version = 1.4.0"),
                call("edit_file", path="tally.py", old="1.3.2", new="1.4.0"),
                call(
                    "edit_file",
                    path="CHANGELOG.md",
                    old="## Unreleased",
                    new="## Unreleased\n\n## 1.4.0 - 2026-11-27",
                ),
                finish_step(
                    "setup.cfg and tally.py say 1.4.0, and CHANGELOG.md has its heading.",
                    goal_check=[criterion(1, "s1.1", "s1.2"), criterion(2, "s1.3")],
                ),
            ]
        ],
        ["edit_file"],
        beside=True,
    ),
    "rename": work(
        ["net is called net_price everywhere", "the tests pass"],
        [call("find_text", query="net"), [call("read_file", path=name) for name in RENAMED]],
        [
            [*(call("write_file", path=name, content=text) for name, text in RENAMED.items()), TEST],
            finish_step(
                "net is net_price in prices.py, bill.py and test_bill.py, and the tests pass.",
                goal_check=[criterion(1, "s1.1", "s1.2", "s1.3"), criterion(2, ("s1.4", "2 passed"))],
            ),
        ],
        ["write_file", "run_command"],
        beside=True,
    ),
    "meeting": by_calls(
        [
            [call("busy_hours", person=who, day="2026-12-03") for who in ("Ada", "Ben", "Cy")],
            call("free_rooms", day="2026-12-03", hour="14:00"),
        ],
        {
            "room Oder is booked on 2026-12-03 at 14:00 for Ada, Ben and Cy": call(
                "book_room", room="Oder", day="2026-12-03", hour="14:00", people=["Ada", "Ben", "Cy"]
            )
        },
    ),
    "thesis": {
        "triage": [
            [call("read_file", path="thesis.md"), call("read_file", path="papers.bib")],
            answer("Not cited are ito2020 and abbas2017."),
        ]
    },
    "tickets": {
        "triage": [
            [
                call("read_file", path="tickets.csv"),
                submit_plan(
                    [
                        {
                            "content": "Write week.md with how many tickets are open and done.",
                            "done_when": ["week.md has both numbers"],
                            "tools": ["write_file"],
                        },
                        {
                            "content": "Write the open tickets of each owner into todo/<owner>.md.",
                            "done_when": ["each owner has a list"],
                            "tools": ["write_file"],
                            "depends_on": [],
                        },
                    ],
                    done_when=["week.md and a list for each owner are there"],
                ),
            ]
        ],
        "execute": {
            "s1": [finish_beside([call("write_file", path="week.md", content=WEEK)], "4 open, 2 done.", ["s1.1"])],
            "s2": [
                [
                    *(call("write_file", path=f"todo/{who}.md", content=text) for who, text in TODO.items()),
                    finish_step(
                        "Ida has T-301 and T-306, Tom T-305, Wei T-304.",
                        goal_check=[criterion(1, "s2.1", "s2.2", "s2.3")],
                    ),
                ]
            ],
        },
        "deliver": [
            call(
                "deliver",
                text="week.md says 4 open and 2 done. Lists in todo/: Ida T-301, T-306; Tom T-305; Wei T-304.",
                goal_check=[criterion(1, "s1.result", "s2.result")],
            )
        ],
    },
    "book": {
        "triage": [submit_plan([{"content": "Read all pages.", "done_when": ["the total is stated"], "tools": None}])],
        "execute": [
            call("read_page"),
            *(call("read_page", mark=mark_of(page)) for page in range(2, PAGES + 1)),
            finish_step(f"The total is {sum_until(PAGES)} EUR.", (f"s1.{PAGES}", sum_until(PAGES))),
        ],
    },
}


def script_of(name: str, folder: Path) -> Roles:
    """Return the script of a job whose folder is made."""
    found = PERFECT[name]
    return found(folder) if callable(found) else found


def bare_replies(job: Job, script: Mapping[str, Any], answer: str) -> list[Any]:
    """Return the script of a job without what only the runtime has, and its answer at the end."""
    own = {tool.name for tool in as_tools(job.tools(Path()))}
    parts = [part for part in script.values() if isinstance(part, list)]
    parts += [part for steps in script.values() if isinstance(steps, Mapping) for part in steps.values()]
    replies = [reply if isinstance(reply, list) else [reply] for part in parts for reply in part]
    rounds = [made for reply in replies for made in (reply, *map(_planned_calls, reply))]
    return [*filter(None, ([call for call in reply if call["name"] in own] for reply in rounds)), answer]


def _planned_calls(reply: Any) -> list[Any]:
    """Return the calls that a plan lists."""
    steps = reply["args"].get("steps", ())
    return [call(each["tool"], **each["arguments"]) for step in steps for each in step.get("calls", ())]
