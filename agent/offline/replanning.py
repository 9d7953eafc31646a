"""After a failed step: what is left of the goal without it, saying what will be missing; or an honest end."""

import json
import re
from collections.abc import Callable, Sequence

from donewhen.agent.offline.answers import how_to_set_a_model
from donewhen.agent.offline.decision import Decision, call
from donewhen.agent.offline.goals import lookups, read_goal
from donewhen.agent.offline.intents import Intent, Write
from donewhen.agent.offline.reading import Request
from donewhen.agent.offline.words import content, pick

_FAILED = re.compile(
    r"^Step (?P<id>\S+) \((?P<content>.*?)\) (?:failed|exhausted|blocked): (?P<reason>.*)$", re.MULTILINE
)
Submit = Callable[[Sequence[Intent], str], Decision]


def replan(request: Request, chinese: bool, submit: Submit) -> Decision:
    """The steps that are left and do not hang on what failed; a decline where none of them is worth running."""
    failed = {m["content"]: m["reason"].strip() for m in _FAILED.finditer(request.text("failure"))}
    finished = _finished(request)
    left = [i for i in read_goal(request.text("goal")).intents if not _among(i, [*finished, *failed])]
    writes_failed = any(isinstance(i, Write) for text in failed for i in read_goal(text).intents)
    if not failed or writes_failed or not left or not (finished or lookups(left)):
        return _end(failed, finished, request, chinese)
    lacking = tuple(failed)
    intents: list[Intent] = []
    for intent in left:
        if isinstance(intent, Write) and intent.what != "text":
            intent = Write(intent.path, intent.what, intent.text, intent.append, lacking)
        intents.append(intent)
    return submit(intents, _speech(failed, chinese))


def failed_ids(request: Request) -> list[str]:
    """Ids of the steps that failed; a new step is not called like one of them."""
    return [found["id"] for found in _FAILED.finditer(request.text("failure"))]


def _finished(request: Request) -> dict[str, str]:
    """Contents of the finished steps, with their results."""
    try:
        steps = json.loads(request.text("finished") or "{}")
    except ValueError:
        return {}
    return (
        {str(step.get("content", "")): str(step.get("result", "")) for step in steps.values()}
        if isinstance(steps, dict)
        else {}
    )


def _among(intent: Intent, contents: Sequence[str]) -> bool:
    """Whether one of the steps did this, or was cut in the middle of its words doing it."""
    texts = (content(intent, True), content(intent, False))
    return any(text in step or step in text for text in texts for step in contents if step)


def _speech(failed: dict[str, str], chinese: bool) -> str:
    lines = "\n".join(f"- {what}: {why}" for what, why in failed.items())
    return pick(
        chinese,
        f"This could not be found out, so I go on without it:\n{lines}",
        f"以下内容未能得到，其余继续：\n{lines}",
    )


def _end(failed: dict[str, str], finished: dict[str, str], request: Request, chinese: bool) -> Decision:
    why = "; ".join(f"{what}: {reason}" for what, reason in failed.items()) or request.text("failure")[:500]
    parts = [pick(chinese, f"I know no other way. What failed: {why}", f"我没有别的办法。失败的部分：{why}")]
    if results := "\n\n".join(result for result in finished.values() if result):
        parts.append(pick(chinese, f"What was found:\n{results}", f"已得到的结果：\n{results}"))
    parts.append(how_to_set_a_model(chinese))
    return call("decline", reason=why, guidance="\n\n".join(parts))
