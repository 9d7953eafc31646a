"""Check a receipt without DoneWhen: python check_receipt.py receipt.json. It does not check signatures."""

import hashlib
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any


def plain(value: Any) -> str:
    """Return JSON as RFC 8785 writes it; Python itself writes 0.000005 otherwise."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{plain(name)}:{plain(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(plain, value)) + "]"
    return str(value).lower() if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


receipt = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"), parse_float=Decimal)
before = hashlib.sha256(b"donewhen-receipt/1").hexdigest()
for line in receipt["lines"]:
    body = {name: line[name] for name in ("n", "kind", "body")}
    before = hashlib.sha256(f"{before}\n{plain(body)}".encode()).hexdigest()
    if before != line["hash"]:
        sys.exit(f"line {line['n']} was changed")
if (receipt["end"]["lines"], receipt["end"]["hash"]) != (len(receipt["lines"]), before):
    sys.exit("the end was changed")
print(f"{len(receipt['lines'])} lines, as they were written")
