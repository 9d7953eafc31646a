"""Writing files: a report of what the steps before found, or the given words; read back, so that it is proven."""

from collections.abc import Sequence

from donewhen.agent.offline.desk import Desk, Stuck
from donewhen.agent.offline.findings import Finding, proofs, sentence
from donewhen.agent.offline.intents import Write
from donewhen.agent.offline.words import pick

READ_BACK = 5000


def write(desk: Desk, intent: Write, results: Sequence[str], goal: str) -> Finding:
    """Write the file, read it back, and say so."""
    chinese, path = desk.chinese, intent.path
    content = f"{intent.text}\n" if intent.what == "text" else report(intent, results, goal, chinese)
    if intent.append:
        done = desk.call("append_file", path=path, content=f"{content}" if intent.what == "text" else f"\n{content}")
    else:
        done = desk.call("write_file", path=path, content=content)
    if not done.ok:
        raise Stuck(done.text.strip())
    back = desk.call("read_file", path=path, limit=READ_BACK)
    if not back.ok:
        raise Stuck(back.text.strip())
    lines = [line for line in content.splitlines() if line.strip()]
    cited = proofs(back, [line for line in reversed(lines) if any(c.isalnum() for c in line)])
    written = _said(intent, len(content), chinese)
    return Finding(written, (*cited, *proofs(done, [done.text])))


def _said(intent: Write, length: int, chinese: bool) -> str:
    if intent.what == "text":
        verb = "Appended to" if intent.append else "Wrote"
        return sentence(
            chinese,
            f"{verb} {intent.path} ({length} characters).",
            f"已{'追加到' if intent.append else '写入'} {intent.path}（{length} 个字符）。",
        )
    what = pick(chinese, intent.what, "摘要" if intent.what == "summary" else "报告")
    lacking = (
        pick(chinese, f" It lacks: {', '.join(intent.missing)}.", f"其中缺少：{'、'.join(intent.missing)}。")
        if intent.missing
        else ""
    )
    return sentence(
        chinese,
        f"The {what} is in {intent.path} ({length} characters).{lacking}",
        f"{what}已写入 {intent.path}（{length} 个字符）。{lacking}",
    )


def report(intent: Write, results: Sequence[str], goal: str, chinese: bool) -> str:
    """A report in Markdown: the goal, then each result as it was found."""
    title = pick(chinese, intent.what.capitalize(), "摘要" if intent.what == "summary" else "报告")
    asked = " ".join(goal.split())
    parts = [f"# {title}", f"> {asked}" if asked else "", *map(_part, results)]
    if intent.missing:
        lacking = "\n".join(f"- {item}" for item in intent.missing)
        parts.append(pick(chinese, f"## Not found out\n\n{lacking}", f"## 未能得到\n\n{lacking}"))
    return "\n\n".join(part for part in parts if part) + "\n"


def _part(result: str) -> str:
    """A result with several lines gets its first line as heading."""
    head, _, rest = result.strip().partition("\n")
    if not rest.strip():
        return head
    return f"## {head.rstrip(':：')}\n\n{rest.strip()}"
