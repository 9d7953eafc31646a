"""Check a receipt without DoneWhen: python check_receipt.py receipt.json

For receipts without numbers that languages print differently. It does not check signatures.
"""

import hashlib
import json
import sys
from pathlib import Path

receipt = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
before = hashlib.sha256(b"donewhen-receipt/1").hexdigest()
for line in receipt["lines"]:
    body = {name: line[name] for name in ("n", "kind", "body")}
    plain = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    before = hashlib.sha256(f"{before}\n{plain}".encode()).hexdigest()
    if before != line["hash"]:
        sys.exit(f"line {line['n']} was changed")
if (receipt["end"]["lines"], receipt["end"]["hash"]) != (len(receipt["lines"]), before):
    sys.exit("the end was changed")
print(f"{len(receipt['lines'])} lines, as they were written")
