"""Write a run's receipt as lines with chained hashes, signed if there is a key, and check one without a database.

A room of its own: it reads a finished run through the agent and writes a text. To remove it, delete this file,
`donewhen/receipts.py`, and the commands `receipt` and `verify`.

The text is one JSON object in a fixed layout, each line of the receipt on a line of its own. The hash of a line is
SHA-256 of the hash before it, a newline, and the line without hash and signature in the canonical form of RFC 8785.
"""

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from donewhen import ConfigError, DoneWhenError
from donewhen.clients import Json, hide_known, redact_json

if TYPE_CHECKING:
    from donewhen import Agent
    from donewhen.types import Conversation

try:
    import rfc8785
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
except ImportError as _missing:
    raise ConfigError(f"receipts need {_missing.name}: pip install 'donewhen[receipts]'") from None

FORMAT = "donewhen-receipt/1"
FIRST = hashlib.sha256(FORMAT.encode()).hexdigest()
"""The hash before the first line."""
HEADING_LINES = 2
"""The lines of the file before the first line of the receipt."""
LARGEST = 2**53 - 1
"""The largest integer that RFC 8785 can write."""
MOST_LINES, MOST_CHARS = 200_000, 200_000_000
FIELDS = ("id", "source", "tool", "arguments", "ok", "effect", "at", "length", "digest")
"""The fields of an observation that a line has."""


@dataclass(frozen=True)
class Verification:
    """The outcome of checking a receipt."""

    ok: bool
    """True if no line was changed, dropped or moved, and each signature fits."""
    problem: str
    """What is wrong, in a sentence; "" if nothing is."""
    line: int | None
    """The number of the first line of the receipt that was changed, dropped or moved; None if that is not known."""
    lines: int
    """The number of lines."""
    key: str | None
    """The public key of the signatures, in base64; None if it is not signed: anybody can make an unsigned one."""

    def to_dict(self) -> Json:
        """Return the fields as JSON."""
        return asdict(self)


async def export_receipt(agent: "Agent", thread_id: str, key: str | Path | None = None, *, request: str = "") -> str:
    """Return the receipt of the thread's finished run as a text that `verify_receipt` checks.

    `key` is an Ed25519 private key: PEM, or the path of a PEM file; by default DONEWHEN_RECEIPT_KEY, if set when the
    agent was made. `request` is the id of the request, as in
    `Run.request` and notifications; without one, it is the last. Raises ConfigError for another key, UnknownThread,
    and DoneWhenError if the run has not ended.
    """
    conversation = await agent.conversation(thread_id, request=request)
    run = conversation.run
    if run.outcome is None:
        is_replaced = run.status == "cancelled"
        why = run.problem if is_replaced else f"it is {run.status}, and a receipt comes with the end"
        raise DoneWhenError(f"thread {run.thread_id} has no receipt: {why}")
    lines = ((kind, redact_json(hide_known(body, agent.secrets))) for kind, body in receipt_lines(conversation))
    key = key or agent.receipt_key
    return render_receipt(lines, private_key(key) if key else None)


def receipt_lines(conversation: "Conversation") -> Iterator[tuple[str, Json]]:
    """Yield the lines of a run's receipt: kind and body.

    First the run and its plan, then decisions, questions and words of people, changes and calls that were refused, the
    other observations that are quoted, with their digests, the steps with their evidence, the audit, and last the
    outcome. Each field of a receipt is in one of them.
    """
    run = conversation.run
    receipt: Mapping[str, Any] = run.receipt or {}
    about = {name: receipt[name] for name in ("goal", "verification", "background") if name in receipt}
    yield "run", {"thread": run.thread_id, "request": conversation.request, **about}
    if plan := conversation.approved or run.plan:
        yield "plan", {**plan}
    for name, kind in (("approvals", "decision"), ("questions", "question"), ("heard", "words"), ("late", "late")):
        for row in receipt.get(name) or ():
            yield kind, row
    output, audit = receipt.get("output") or {}, receipt.get("audit") or {}
    cited = {item["observation"] for row in [receipt, *receipt["steps"], output] for item in _evidence(row)}
    cited |= {id for sentence in audit.get("sentences") or () for id in sentence["by"]}
    observed = {entry["id"]: _observation_line(entry) for entry in conversation.observations}
    for change in receipt["effects"]:
        said = {"source": change["by"]} if change.get("by") else {}
        body = {**observed.pop(change["id"], {}), **change, **said}
        yield "refusal" if change.get("result") == "refused" else "change", body
        cited.update(change.get("settled") or ())
    for row in receipt.get("earlier") or ():
        yield "earlier", row
    for id, body in observed.items():
        if id in cited:
            yield "observation", body
    for row in receipt["steps"]:
        yield "step", row
    for name in ("criteria", "evidence", "replaced", "undone", "modes"):
        for row in receipt.get(name) or ():
            yield name, row
    for name, found in (("output", output), ("audit", audit)):
        if found:
            yield name, found
    yield "spent", {"spent": receipt["spent"], "meter": receipt["meter"]}
    outcome = {name: value for name, value in (run.outcome or {}).items() if name != "receipt"}
    yield "outcome", {**outcome, **({"ended": receipt["ended"]} if "ended" in receipt else {})}


def _observation_line(entry: Mapping[str, Any]) -> Json:
    """Return the line of an observation; its source is the person if nothing but a person's word is in it."""
    line = {name: entry[name] for name in FIELDS if name in entry}
    return {**line, "source": "user"} if entry.get("confirmed") else line


def _evidence(row: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield what a row of a receipt, its criteria or the values of its data cite."""
    for each in (row, *(row.get("criteria") or ()), *(row.get("fields") or ())):
        yield from each.get("evidence") or ()


def render_receipt(lines: Iterator[tuple[str, Json]], key: Ed25519PrivateKey | None = None) -> str:
    """Return lines as the text of a receipt; with an Ed25519 private key, each line and the end are signed."""
    before, rows = FIRST, list[str]()
    for n, (kind, body) in enumerate(lines, 1):
        line: Json = {"n": n, "kind": kind, "body": _writable(body)}
        before = _hash_line(before, line)
        rows.append(canonical({**line, "hash": before, **_signature(key, before)}).decode())
    end: Json = {"lines": len(rows), "hash": before}
    if key:
        end |= {"key": _public_text(key.public_key()), **_signature(key, canonical([FORMAT, len(rows), before]).hex())}
    return _layout(rows, canonical(end).decode())


def _layout(rows: Sequence[str], end: str) -> str:
    return f'{{"format":"{FORMAT}",\n"lines":[\n' + ",\n".join(rows) + f'\n],\n"end":{end}}}\n'


def verify_receipt(text: str | bytes, key: str | Path | None = None) -> Verification:
    """Return whether a receipt is as it was written, and else the first line that was changed, dropped or moved.

    `key` is the Ed25519 public key that must have signed it: base64, PEM, or the path of a PEM file; without one, a
    signature only shows that all lines come from the owner of the key that the receipt names. Raises ConfigError for
    another key. Nothing in the text raises.
    """
    expected = _public_text(public_key(key)) if key else None
    try:
        content = text.decode() if isinstance(text, bytes) else text
        if len(content) > MOST_CHARS:
            raise ValueError("too long")
        document = json.loads(content)
        lines, end = document["lines"], document["end"]
        if document["format"] != FORMAT or not isinstance(lines, list) or len(lines) > MOST_LINES:
            raise ValueError("another format")
        signed_by = end.get("key")
        signer = None if signed_by is None else Ed25519PublicKey.from_public_bytes(_from_base64(signed_by))
        if end.keys() != {"lines", "hash", *(("key", "signature") if signer else ())}:
            raise ValueError("another end")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ConfigError):
        return Verification(False, f"This is no receipt in the format {FORMAT}, or it was damaged.", None, 0, None)
    count = len(lines)

    def wrong(problem: str, line: int | None = None) -> Verification:
        return Verification(False, problem, line, count, signed_by)

    if expected and signed_by != expected:
        return wrong("It is not signed." if signed_by is None else f"It is signed with another key: {signed_by}.")
    before = FIRST
    for n, line in enumerate(lines, 1):
        if problem := _line_problem(n, line, before):
            return wrong(f"Line {n}{_in_file(n)} {problem}.", n)
        before = line["hash"]
    for n, line in enumerate(lines, 1):  # after all hashes, which are found wrong in a hundredth of the time
        if not _is_signed(line, signer):
            return wrong(f"Line {n}{_in_file(n)} was changed, or is not signed.", n)
    try:
        if end["lines"] != count or end["hash"] != before:
            return wrong(f"After line {count} something was dropped or added.", count + 1)
        if signer and not _fits(signer, end["signature"], canonical([FORMAT, count, before]).hex()):
            return wrong(f"The signature of the end does not fit: after line {count} something was dropped.", count + 1)
        rows = [canonical(line).decode() for line in lines]
        if _layout(rows, canonical(end).decode()) != content:
            return wrong("The text is not laid out as it was written.", _first_difference(content, rows))
    except (ValueError, KeyError, TypeError, RecursionError):
        return wrong("The end of the receipt was changed.")
    return Verification(True, "", None, count, signed_by)


def _in_file(n: int) -> str:
    """Return where in the file a line of the receipt stands, as it was written."""
    return f" (line {n + HEADING_LINES} of the file)"


def _line_problem(n: int, line: Any, before: str) -> str:
    try:
        if line["n"] != n:
            return (
                f"was dropped or moved: here stands line {line['n']}" if isinstance(line["n"], int) else "was changed"
            )
        if _hash_line(before, {name: line[name] for name in ("n", "kind", "body")}) != line["hash"]:
            return "was changed"
        return ""
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "was changed"


def _is_signed(line: Mapping[str, Any], signer: Ed25519PublicKey | None) -> bool:
    """Return whether a line has the signature that it needs; an unsigned receipt has none."""
    if signer is None:
        return line.keys() == {"n", "kind", "body", "hash"}
    try:
        return len(line) == 5 and _fits(signer, line["signature"], line["hash"])
    except (ValueError, KeyError, TypeError):
        return False


def _first_difference(text: str, rows: Sequence[str]) -> int | None:
    """Return the number of the first line that is not written in its canonical form."""
    lines = text.split("\n")[HEADING_LINES:]
    return next(
        (n for n, (row, there) in enumerate(zip(rows, lines, strict=False), 1) if there.rstrip(",") != row), None
    )


def _hash_line(before: str, line: Mapping[str, Any]) -> str:
    return hashlib.sha256(before.encode() + b"\n" + canonical(line)).hexdigest()


def canonical(value: Any) -> bytes:
    """Return JSON in the canonical form of RFC 8785. Raises ValueError for what JSON cannot hold."""
    return rfc8785.dumps(value)


def _writable(value: Any) -> Any:
    """Return a value with numbers that RFC 8785 cannot write as text."""
    if isinstance(value, Mapping):
        return {str(name): _writable(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_writable(each) for each in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits = not number or (math.isfinite(value) if isinstance(value, float) else abs(value) <= LARGEST)
    return value if fits else str(value)


# Keys


def private_key(source: str | Path) -> Ed25519PrivateKey:
    """Return an Ed25519 private key from PEM, or from a PEM file. Raises ConfigError if it is none."""
    try:
        key = load_pem_private_key(_pem(source), password=None)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"the receipt key cannot be read ({error}): {HOW_TO_MAKE_KEY}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigError(f"the receipt key is no Ed25519 private key: {HOW_TO_MAKE_KEY}")
    return key


HOW_TO_MAKE_KEY = "make one with `openssl genpkey -algorithm ed25519 -out receipt.pem`"


def public_key(source: str | Path) -> Ed25519PublicKey:
    """Return an Ed25519 public key from base64, PEM or a PEM file, or that of a private key. Raises ConfigError."""
    try:
        if isinstance(source, str) and len(raw := _from_base64(source)) == 32:
            return Ed25519PublicKey.from_public_bytes(raw)
        pem = _pem(source)
        if b"PRIVATE KEY" in pem:
            return private_key(source).public_key()
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(f"the public key of the receipt cannot be read ({error})") from None
    if not isinstance(key, Ed25519PublicKey):
        raise ConfigError("the public key of the receipt is no Ed25519 key")
    return key


def _pem(source: str | Path) -> bytes:
    text = str(source)
    return text.encode() if "-----BEGIN" in text else Path(text).expanduser().read_bytes()


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _public_text(key: Ed25519PublicKey) -> str:
    return base64.b64encode(key.public_bytes_raw()).decode()


def _signature(key: Ed25519PrivateKey | None, text: str) -> Json:
    return {"signature": base64.b64encode(key.sign(text.encode())).decode()} if key else {}


def _fits(signer: Ed25519PublicKey, signature: str, text: str) -> bool:
    try:
        signer.verify(base64.b64decode(signature, validate=True), text.encode())
    except InvalidSignature:
        return False
    return True
