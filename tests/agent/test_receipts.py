"""Receipts that travel: every byte and every line that is changed, dropped or moved is found, without a database."""

import ast
import asyncio
import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.tools import ToolException

from donewhen import Agent, ConfigError, DoneWhenError, UnknownThread
from donewhen.agent.receipts import canonical, private_key
from donewhen.hooks import Call, Hooks, Refuse
from donewhen.receipts import export_receipt, verify_receipt
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.agent.cli.conftest import shell as shell
from tests.kit.places import ROOT
from tests.kit.screens.shell import Shell

KEY = (
    Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)
SIGNED = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg="


async def receipt(key: str | None = KEY, storage: str = "memory:", thread: str | None = None) -> str:
    """Run a job with a change and a quote, and return its receipt."""

    def pay(account: str, amount: float) -> str:
        """Pay an amount."""
        return f"paid {amount} to {account}"

    plan = submit_plan([{"content": "Pay the bill", "done_when": ["it is paid"], "tools": ["pay"]}])
    work = [call("pay", account="DE1 ü\u2028", amount=12.5), finish_step("Paid.", ("s1.1", "paid 12.5"))]
    model = ScriptedModel(roles={"triage": [plan], "execute": work})
    async with Agent(model, [pay], storage=storage, settings={"approvals": "plan"}) as agent:
        run = await agent.start("pay the bill", thread_id=thread)
        with pytest.raises(DoneWhenError, match="no receipt: it is waiting"):
            await export_receipt(agent, run.thread_id)
        run = await agent.resume(run, "approve")
        return await export_receipt(agent, run.thread_id, key)


async def pay_four(answer: str, storage: str = "memory:") -> tuple[list[dict[str, Any]], list[str]]:
    """Return the lines of a receipt of four payments, and what was paid.

    One works, one is declined, of one the outcome is lost and then said by `answer`, and one is refused by a hook.
    """
    paid: list[str] = []

    def pay(order: str) -> str:
        """Pay an order."""
        if order == "2":
            raise ToolException("declined: use api_key=sk-live-4f9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c")
        paid.append(order)
        if paid == ["1", "3"]:
            raise RuntimeError("line dropped")
        return f"paid {order}"

    def refuse(made: Call) -> Refuse | None:
        return Refuse("order 4 is blocked") if made.arguments["order"] == "4" else None

    plan = submit_plan([{"content": "Pay orders 1, 2, 3 and 4", "done_when": ["done"], "tools": ["pay"]}])
    work = [*(call("pay", order=order) for order in "12334"), finish_step("done", "s1.1")]
    model = ScriptedModel(roles={"triage": [plan], "execute": work})
    async with Agent(model, [pay], storage=storage, hooks=Hooks(before_call=[refuse])) as agent:
        run = await agent.start("Pay orders 1, 2, 3 and 4", thread_id="four")
        run = await agent.resume(run, "approve")
        run = await agent.resume(run, answer)
        assert run.status == "completed"
        return json.loads(await export_receipt(agent, "four"))["lines"], paid


@pytest.mark.parametrize(
    ("answer", "third"),
    [
        ("it happened", ['[s1.3] pay(order="3") → done, as a person said [s1.4]']),
        ("it did not", ['[s1.3] pay(order="3") → failed, as a person said', '[s1.4] pay(order="3") → done']),
        (
            "skip",
            [
                '[s1.3] pay(order="3") → not known whether it took effect',
                '[s1.4] pay(order="3") → refused: Skipped: a person decided not to make this call again.',
            ],
        ),
    ],
)
def test_show_says_of_every_write_what_became_of_it(
    shell: Shell, tmp_path: Path, answer: str, third: list[str]
) -> None:
    """R: one that worked, one that its service declined, one of which a person said it, and one that a hook refused."""
    storage = f"sqlite:///{tmp_path / 'four.db'}"
    asyncio.run(pay_four(answer, storage))
    shown = shell("show", "four", "--storage", storage).stdout
    rows = [
        row.partition("  ")[0]
        for row in map(str.strip, shown.splitlines())
        if row[:1] == "[" and "pay(" in row and " → " in row
    ]
    assert rows[0] == '[s1.1] pay(order="1") → done'
    assert rows[1].startswith('[s1.2] pay(order="2") → failed: declined')
    assert "sk-live" not in shown
    assert rows[2:-1] == third
    assert rows[-1] == '[s1.5] pay(order="4") → refused: Not run: a policy refuses it: order 4 is blocked'


@pytest.mark.parametrize(("answer", "times"), [("it happened", 1), ("it did not", 2), ("skip", 1)])
async def test_each_change_counts_once_and_what_was_never_made_is_none(answer: str, times: int) -> None:
    """X24: a person's word is theirs and no second change; what was refused has its reason; no secret leaves."""
    lines, paid = await pay_four(answer)
    assert paid.count("3") == times
    changes = [line["body"] for line in lines if line["kind"] == "change"]
    refusals = [line["body"] for line in lines if line["kind"] == "refusal"]
    happened = {"it happened": "s1.3", "it did not": "s1.4"}.get(answer)
    assert [body["id"] for body in changes if body["ok"]] == ["s1.1", *([happened] if happened else [])]
    assert [body["id"] for body in changes if body.get("unknown")] == ([] if happened else ["s1.3"])
    assert all(body["length"] and body["at"] for body in changes)
    sources = {body["id"]: body["source"] for body in changes}
    assert sources["s1.1"] == "tool"
    assert sources["s1.3"] == ("tool" if answer == "skip" else "user")
    assert changes[1]["why"].startswith("declined")
    assert "sk-live" not in json.dumps(lines)
    assert refusals[-1]["why"] == "Not run: a policy refuses it: order 4 is blocked"
    said = [line["body"]["source"] for line in lines if line["kind"] == "observation" and line["body"]["id"] == "s1.4"]
    assert said == (["user"] if answer == "it happened" else [])


async def test_a_receipt_has_what_was_approved_done_quoted_and_found() -> None:
    """The plan as approved, the decision, the change with its arguments and digest, the quote, the outcome."""
    text = await receipt()
    found = verify_receipt(text, SIGNED)
    assert (found.ok, found.problem, found.key) == (True, "", SIGNED)
    lines = {line["kind"]: line["body"] for line in json.loads(text)["lines"]}
    assert lines["plan"]["steps"][0]["content"] == "Pay the bill"
    assert lines["decision"]["decision"] == "approve"
    change = lines["change"]
    assert change["arguments"] == {"account": "DE1 ü\u2028", "amount": 12.5}
    assert change["digest"]
    assert lines["step"]["criteria"][0]["evidence"][0]["quote"] == "paid 12.5"
    assert lines["outcome"]["text"] == "Paid."


async def test_a_receipt_has_no_password_in_any_line() -> None:
    """R18: not in the plan, a call that a person approved, the sources of its values, a read that is cited, a step."""
    password = "hunter2-Xy9!kk"

    def login(user: str, password: str) -> str:
        """Log in."""
        return f"{user} is logged in"

    def balance(user: str, password: str) -> str:
        """Read the balance."""
        return "balance 77"

    who = {"user": "ann", "password": password}
    planned = {"content": "Log in", "done_when": ["in"], "calls": [{"tool": "login", "arguments": who}]}
    steps = [planned, {"content": "Read", "done_when": ["known"], "tools": ["balance", "login"], "depends_on": [1]}]
    calls = [call("balance", **who), call("login", user="bob", password=password)]
    work = {"s1": [finish_step("in", "s1.1")], "s2": [*calls, finish_step("77", ("s2.1", "77"))]}
    model = ScriptedModel(roles={"triage": [submit_plan(steps)], "execute": work}, strict=False)
    async with Agent(model, [login, balance], effects={"balance": "read"}, storage="memory:") as agent:
        run = await agent.resume(await agent.start("What is the balance?"), "approve")
        assert run.pending[0]["new"]
        run = await agent.resume(run, "approve")
        text = await export_receipt(agent, run.thread_id)
    receipt: Any = run.receipt
    assert [row["new"] for row in receipt["approvals"] if "new" in row]
    assert [row["kind"] for row in receipt["approvals"] if password in json.dumps(row)] == []
    assert [row["id"] for row in receipt["effects"] if password in json.dumps(row)] == []
    assert [line["kind"] for line in json.loads(text)["lines"] if password in json.dumps(line)] == []
    assert [line["body"]["user"] for line in json.loads(text)["lines"] if "user" in line["body"]] == []
    assert verify_receipt(text).ok


async def test_a_receipt_has_the_level_of_proof_late_words_and_the_sources_of_each_value() -> None:
    """R: of a run whose steps nobody proved one sees that; what came too late is told; each value has its source."""

    async def deliver(*_: Any) -> Any:
        await agent.tell("late", "only the blue ones")
        return call("deliver", text="1250 lamps", output={"lamps": 1250})

    plan = [{"content": f"Count {each}", "done_when": ["counted"], "tools": ["stock"]} for each in ("lamps", "chairs")]
    work = {"s1": [call("stock", item="lamp"), finish_step("1250", "s1.1")], "s2": [finish_step("none", "s2.result")]}
    roles = {"triage": [submit_plan(plan)], "execute": work, "deliver": [deliver]}
    model = ScriptedModel(roles=roles, strict=False)
    output = {"type": "object", "properties": {"lamps": {"type": "integer"}}, "required": ["lamps"]}
    limits = {"confirm": "never", "when_busy": "next_round", "verification": "claimed"}
    async with Agent(model, [stock], effects={"stock": "read"}, storage="memory:") as agent:
        run = await agent.start("Count", thread_id="late", settings=limits, output_type=output)
        lines = json.loads(await export_receipt(agent, "late"))["lines"]
    bodies = {line["kind"]: line["body"] for line in lines}
    assert bodies["run"]["verification"] == "claimed"
    assert bodies["late"]["text"] == "only the blue ones"
    assert bodies["output"] == (run.receipt or {})["output"]
    assert [(row["path"], row["evidence"][0]["observation"]) for row in bodies["output"]["fields"]] == [
        ("lamps", "s1.1")
    ]
    assert bodies["observation"]["digest"]
    written = {*bodies} | {name for body in bodies.values() for name in body}
    plural = {"approvals": "decision", "steps": "step", "effects": "change", "plan": "plan"}
    rows = {name for name, value in (run.receipt or {}).items() if value and plural.get(name, name) not in written}
    assert rows == set()


def stock(item: str) -> str:
    """Return the stock of an item."""
    return f"{item}: 1250 in stock"


async def test_the_receipt_of_an_answer_has_what_it_cites() -> None:
    """R: an answer without a plan rests on what planning read: the quote, and the digest of the observation."""
    said = answer("There are 1250 lamps.")
    said["args"]["evidence"] = [{"observation": "p.1", "quote": "1250 in stock"}]
    model = ScriptedModel(roles={"triage": [call("stock", item="lamp"), said]})
    async with Agent(model, [stock], effects={"stock": "read"}, storage="memory:") as agent:
        run = await agent.start("How many lamps?", settings={"verification": "grounded"})
        bodies = {
            line["kind"]: line["body"] for line in json.loads(await export_receipt(agent, run.thread_id))["lines"]
        }
    assert (run.receipt or {})["evidence"] == [bodies["evidence"]] == [{"observation": "p.1", "quote": "1250 in stock"}]
    assert (bodies["observation"]["id"], bodies["observation"]["tool"]) == ("p.1", "stock")


@pytest.mark.parametrize("key", [KEY, None], ids=["signed", "unsigned"])
async def test_every_changed_byte_is_found(key: str | None) -> None:
    """Each byte in turn becomes another one (a seventh of them without EVERY); within a line that line is named."""
    whole = (await receipt(key)).encode()
    starts = [at for at in range(len(whole)) if whole.startswith(b'{"body"', at)]
    for at in range(0, len(whole), 1 if os.environ.get("EVERY") else 7):
        changed = bytearray(whole)
        changed[at] = changed[at] ^ 1
        found = verify_receipt(bytes(changed))
        assert not found.ok, (at, whole[max(0, at - 20) : at + 20])
        row = sum(start <= at for start in starts)
        if found.line is not None and 0 < row < len(starts):
            assert found.line == row, at
        if found.line == row and found.problem.startswith("Line "):
            assert found.problem.startswith(f"Line {row} (line {whole[:at].count(10) + 1} of the file) "), at


async def test_every_line_that_is_dropped_moved_or_doubled_is_named() -> None:
    """Also the last lines, which nothing follows."""
    text = await receipt()
    head, *rows, tail, empty = text.split("\n")
    first, rows = rows[0], [row.rstrip(",") for row in rows[1:-1]]
    end = text.split("\n")[-3:-1]

    def joined(lines: list[str]) -> str:
        return "\n".join([head, first, ",\n".join(lines), *end, empty])

    assert joined(rows) == text
    assert tail == end[-1]
    for n in range(len(rows)):
        assert verify_receipt(joined(rows[:n] + rows[n + 1 :])).line == n + 1, "dropped"
        assert verify_receipt(joined([*rows[: n + 1], *rows[n:]])).line == n + 2, "doubled"
        if n:
            moved = [*rows[: n - 1], rows[n], rows[n - 1], *rows[n + 1 :]]
            assert verify_receipt(joined(moved)).line == n, "moved"
            assert not verify_receipt(joined(rows[:n])).ok, "cut off"


async def test_who_computes_the_hashes_again_is_found_by_the_signature(tmp_path: Path) -> None:
    """A forger without the key can make neither a signed line nor the receipt of another key."""
    other = Ed25519PrivateKey.from_private_bytes(bytes(32)).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    text, forged = await receipt(), await receipt(other.decode())
    assert verify_receipt(forged).ok, "it is whole"
    assert verify_receipt(forged, SIGNED).problem.startswith("It is signed with another key")
    assert verify_receipt(await receipt(None), SIGNED).problem == "It is not signed."
    head, end = text.split('"end":')
    (tmp_path / "key.pem").write_text(KEY)
    for key, more in ((SIGNED, {"approved_by": "the board"}), (None, {"key": str(tmp_path / "key.pem")})):
        added = canonical({**json.loads(end.rstrip()[:-1]), **more}).decode()
        assert not verify_receipt(f'{head}"end":{added}}}\n', key).ok, "what stands beside the signature is not signed"
    document: dict[str, Any] = json.loads(text)
    unsigned = json.loads(await receipt(None))
    document["lines"][3] = {**unsigned["lines"][3], "signature": document["lines"][3]["signature"]}
    assert not verify_receipt(json.dumps(document)).ok


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps)))
def test_nothing_that_is_given_to_verify_raises(given: str | bytes) -> None:
    """R: what is no receipt is said to be none."""
    assert not verify_receipt(given).ok


async def test_a_receipt_says_when_its_request_ended() -> None:
    """Of an answer without any call, too, in UTC."""
    model = ScriptedModel(roles={"triage": [answer("Four.")]})
    async with Agent(model, storage="memory:") as agent:
        before = datetime.now(UTC).replace(microsecond=0)
        first = await agent.start("two and two?", thread_id="t")
        assert first.receipt
        ended = datetime.fromisoformat(first.receipt["ended"])
        assert before <= ended <= datetime.now(UTC)
        assert ended.utcoffset() == timedelta(0)
        *_, outcome = json.loads(await export_receipt(agent, "t"))["lines"]
        assert (outcome["kind"], outcome["body"]["ended"]) == ("outcome", first.receipt["ended"])


async def test_all_receipts_of_a_thread_come_oldest_first_by_the_page() -> None:
    """The program of docs/receipts.md, with as many requests as leave no order to chance."""
    page = (ROOT / "docs" / "receipts.md").read_text(encoding="utf-8")
    program = page.partition("All of a thread")[2].partition("```python\n")[2].partition("```")[0]
    model = ScriptedModel(roles={"triage": [answer("Four.")] * 6})
    async with Agent(model, storage="memory:") as agent:
        for n in range(6):
            run = await agent.start(f"question {n}", thread_id="t")
        names: dict[str, Any] = {"agent": agent, "run": run, "export_receipt": export_receipt}
        await eval(compile(program, "receipts.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
    bodies = [line["body"] for text in names["texts"] for line in json.loads(text)["lines"]]
    assert [body["goal"] for body in bodies if "goal" in body] == [f"question {n}" for n in range(6)]


def test_another_program_checks_it_by_the_page(shell: Shell, tmp_path: Path) -> None:
    """The commands of docs/receipts.md, and the example that checks a receipt without DoneWhen."""
    (tmp_path / "key.pem").write_text(KEY)
    storage, file = f"sqlite:///{tmp_path / 'bills.db'}", str(tmp_path / "receipt.json")
    asyncio.run(receipt(storage=storage, thread="bill"))
    made = shell("receipt", "bill", "--key", str(tmp_path / "key.pem"), "-o", file, "--storage", storage)
    assert made.exit_code == 0, made.stderr
    checked = shell("verify", file, "--key", SIGNED)
    assert checked.exit_code == 0, checked.stderr
    assert f"signed with {SIGNED}" in checked.stdout
    text = (tmp_path / "receipt.json").read_text(encoding="utf-8")
    example = [sys.executable, str(ROOT / "examples" / "check_receipt.py"), file]
    assert "as they were written" in subprocess.run(example, capture_output=True, text=True, check=True).stdout
    (tmp_path / "receipt.json").write_text(text.replace("12.5", "92.5"), encoding="utf-8")
    checked = shell("verify", file)
    assert (checked.exit_code, checked.stderr) == (1, "")
    assert "was changed" in checked.stdout
    assert "was changed" in subprocess.run(example, capture_output=True, text=True, check=False).stderr


def test_several_receipts_are_checked_at_once(shell: Shell, tmp_path: Path) -> None:
    """Each has a line with its name, or is one of a list; one that does not hold makes the command fail."""
    whole, changed, missing = (tmp_path / name for name in ("whole.json", "changed.json", "missing.json"))
    text = asyncio.run(receipt(KEY))
    whole.write_text(text, encoding="utf-8")
    changed.write_text(text.replace("12.5", "92.5"), encoding="utf-8")
    for files, code in (((whole, whole), 0), ((whole, changed), 1), ((changed, whole), 1)):
        checked = shell("verify", *map(str, files), "--key", SIGNED)
        assert (checked.exit_code, checked.stderr) == (code, "")
        for file, line in zip(files, checked.stdout.splitlines(), strict=True):
            assert line.startswith(f"{file}: ")
            assert ("was changed" if file is changed else "as they were written") in line
        rows = json.loads(shell("verify", *map(str, files), "--json").stdout)
        assert [(row["file"], row["ok"]) for row in rows] == [(str(file), file is whole) for file in files]
        assert all(row["schema_version"] for row in rows)
    alone = shell("verify", str(whole))
    assert str(whole) not in alone.stdout
    assert "file" not in json.loads(shell("verify", str(whole), "--json").stdout)
    unread = shell("verify", str(whole), str(missing))
    assert (unread.exit_code, unread.stdout) == (2, "")
    assert str(missing) in unread.stderr


@pytest.mark.parametrize("number", [5.055e-06, 1.5e-07, 0.5, 40.0, 1e22])
@pytest.mark.parametrize("indent", [None, 1])
def test_the_example_prints_numbers_as_receipts_do(number: float, indent: int | None, tmp_path: Path) -> None:
    """A cost of 0.000005 dollars is no change of the receipt, in any layout."""
    body = {"spent": {"cost_usd": number}, "names": ["ü\u2028", None, True, -3]}
    line: dict[str, Any] = {"n": 1, "kind": "run", "body": body}
    first = hashlib.sha256(b"donewhen-receipt/1").hexdigest()
    line["hash"] = hashlib.sha256(f"{first}\n".encode() + canonical(line)).hexdigest()
    whole = {"lines": [line], "end": {"lines": 1, "hash": line["hash"]}}
    text = canonical(whole).decode()
    text = json.dumps(json.loads(text), indent=indent) if indent else text
    (tmp_path / "receipt.json").write_text(text, encoding="utf-8")
    example = [sys.executable, str(ROOT / "examples" / "check_receipt.py"), str(tmp_path / "receipt.json")]
    assert "as they were written" in subprocess.run(example, capture_output=True, text=True, check=False).stdout


def test_a_key_that_is_none_is_said(tmp_path: Path) -> None:
    """A wrong key is an error of who gives it, and not a doubt about the receipt."""
    with pytest.raises(ConfigError, match="openssl genpkey"):
        private_key(tmp_path / "missing.pem")
    with pytest.raises(ConfigError, match="public key"):
        verify_receipt("{}", "no key")


@pytest.mark.parametrize(
    ("said", "drafts", "decision"),
    [
        ({"steps": [{"id": "s1", "content": "Say B"}]}, 0, "edit"),
        ({"type": "reject", "message": "say B instead"}, 1, "reject"),
        ("cancel", 0, "cancel"),
    ],
)
async def test_what_a_person_was_shown_stays_when_they_wanted_another_plan(
    said: Any, drafts: int, decision: str
) -> None:
    """Q08, C02: edited, replaced or cancelled; what was approved as it was is the plan itself."""

    def plan(content: str) -> Any:
        return submit_plan([{"content": content, "done_when": ["said"]}])

    end = finish_step("B", "s1.result")
    roles = {"triage": [plan("Say A")], "plan": [plan("Say B")] * drafts, "execute": [end]}
    async with Agent(ScriptedModel(roles=roles, strict=False), storage="memory:") as agent:
        run = await agent.resume(await agent.start("Say it"), said)
        run = await agent.resume(run, "approve") if run.status == "waiting" else run
        row, *later = (run.receipt or {})["approvals"]
    assert (row["decision"], row["shown"]) == (decision, ["Say A"])
    assert all("shown" not in each for each in later)


async def test_the_key_of_the_environment_signs_in_a_program_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R17: unless a key is given; what names no key is an error, not a receipt that is not signed."""
    (tmp_path / "receipt.pem").write_text(KEY)
    monkeypatch.setenv("DONEWHEN_RECEIPT_KEY", str(tmp_path / "receipt.pem"))
    assert verify_receipt(await receipt(None)).key == SIGNED
    monkeypatch.setenv("DONEWHEN_RECEIPT_KEY", str(tmp_path / "gone.pem"))
    assert verify_receipt(await receipt(KEY)).key == SIGNED
    with pytest.raises(ConfigError, match="the receipt key cannot be read"):
        await receipt(None)


async def test_a_notification_names_the_request_whose_receipt_it_announces(tmp_path: Path) -> None:
    """R17: told late, after the thread's next request has ended or while that works, it exports its own receipt."""

    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    told: list[dict[str, Any]] = []
    plan = submit_plan([{"content": "Pay", "done_when": ["it is paid"], "tools": ["pay"]}])
    work = [each for amount in (40, 50) for each in (call("pay", amount=amount), finish_step("Paid.", "s1.1"))]
    model = ScriptedModel(roles={"triage": [plan, plan, answer("Hello.")], "execute": work})
    settings = {"confirm": "never"}

    async def changes_of(**which: str) -> tuple[int, list[int]]:
        lines = json.loads(await export_receipt(agent, "t", KEY, **which))["lines"]
        changes = [line["body"]["arguments"]["amount"] for line in lines if line["kind"] == "change"]
        return lines[0]["body"]["request"], changes

    async with Agent(model, [pay], storage="memory:", settings=settings, notify=told.append) as agent:
        runs = [await agent.start(f"Pay {amount}", thread_id="t") for amount in (40, 50)]
    first, second = (event["data"]["request"] for event in told)
    assert [first, second] == [run.request for run in runs]
    assert await changes_of(request=first) == (1, [40])
    assert await changes_of(request=second) == await changes_of() == (2, [50])
    with pytest.raises(UnknownThread, match="no request 'third' on thread 't'"):
        await changes_of(request="third")
    await agent.submit("Hello", thread_id="t")
    with pytest.raises(DoneWhenError, match="no receipt: it is queued"):
        await changes_of()
    assert await changes_of(request=second) == (2, [50])


async def test_a_receipt_stays_as_it_was_when_a_later_request_takes_the_place_of_others() -> None:
    """R17: byte for byte, with the number of its request; also after another one took the place of that one."""
    replies = [answer(f"answer {number}") for number in range(5)]
    async with Agent(ScriptedModel(roles={"triage": replies}), storage="memory:") as agent:
        runs = [await agent.start(f"say {number}", thread_id="t") for number in range(3)]
        before = [await export_receipt(agent, "t", request=run.request) for run in runs]
        for place in (1, 3):
            runs.append(await agent.start("again", thread_id="t", instead_of=runs[place].request))
            before.append(await export_receipt(agent, "t"))
            assert [await export_receipt(agent, "t", request=run.request) for run in runs] == before
            assert (await agent.conversation("t", request=runs[0].request)).request == 1
