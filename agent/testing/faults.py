"""What a WireServer can do instead of answering; a fault is an item of its script like any reply."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from donewhen.agent.testing.script import Reply


@dataclass(eq=False)
class Fault(Exception):
    """An answer that goes wrong; scripts raise it, the server acts it out. Build it with `fault`."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    reset: bool = False
    hang: float = 0.0
    stall_after: int | None = None
    reset_after: int | None = None
    garbage: bytes | None = None
    reply: Reply | None = None

    def __post_init__(self) -> None:
        super().__init__(self.status)


def fault(
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
    body: Any = None,
    reset: bool = False,
    hang: float = 0.0,
    stall_after: int | None = None,
    reset_after: int | None = None,
    garbage: bytes | None = None,
    reply: Reply | None = None,
) -> Fault:
    """A fault on demand; give one kind, `hang` goes with all.

    - `status`, with `headers` and `body` (JSON, text, or None for OpenAI's error of that status);
    - `reset`: the connection is reset without an answer;
    - `hang`: nothing for so many seconds; afterwards the other kind, or the connection is closed;
    - `stall_after`, `reset_after`: that many chunks of `reply`, then silence until the server
      ends, or a reset. Unstreamed, half of the answer comes through, whatever the number (0: none of it);
    - `garbage`: a 200 whose body, or whose stream, is these bytes;
    - `reply`: what is answered after `hang`, or in part by `stall_after` and `reset_after`.
    """
    kinds = [status, reset or None, stall_after, reset_after, garbage]
    if sum(kind is not None for kind in kinds) > 1:
        raise ValueError("a fault has one of status, reset, stall_after, reset_after, garbage")
    if not any(kind is not None for kind in (*kinds, reply)) and not hang:
        raise ValueError("a fault needs one of status, reset, hang, stall_after, reset_after, garbage")
    if reply is None and (stall_after is not None or reset_after is not None):
        reply = "This answer does not come to its end."
    return Fault(status, dict(headers or {}), body, reset, hang, stall_after, reset_after, garbage, reply)
