"""Ask for more budget: what is done, what is left, and what continuing would take."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from donewhen.graph.pauses.budget import BudgetPause
from donewhen.state.channels import Json
from donewhen.state.language.texts import option_key, option_texts, say, translate_option
from donewhen.state.ledger import Amounts, DayAccount, Limits, exhausted_keys, meter, remaining, subtract
from donewhen.state.people.amounts import format_amount, format_number
from donewhen.state.plan.next import RESERVE
from donewhen.state.plan.steps import standstill_notice
from donewhen.state.proof.outcome import done_in_it_lines, unknown_lines
from donewhen.state.proof.receipt import EffectRow, effect_rows
from donewhen.state.records import StepRecord
from donewhen.state.settings import Settings
from donewhen.state.statuses import record_of

CONTENT_CHARS = 100
SELDOM = ("questions", "replans", "cached_tokens")
"""Amounts that steps do not use as a matter of course."""


@dataclass(frozen=True)
class Account:
    """The limits of a run, a step, planning or a day, and what was spent of them."""

    limits: Limits
    granted: Mapping[str, float]
    spent: Mapping[str, float]
    step: str | None = None
    """The step; None for the whole run, which reserves a model call for its delivery."""
    done: Sequence[Json] = ()
    """Finished steps: `{id, content, spent, standstill}`."""
    left: Sequence[Json] = ()
    """The other steps."""
    unplanned: bool = False
    """True if the remaining work has no plan yet."""
    planning: bool = False
    """True for the rounds of planning itself."""
    language: str = "en"
    """The language of the question."""
    needs: tuple[str, ...] = field(default=("rounds", "model_calls"))
    """The amounts of which the next action takes at least one."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The state of the run."""
    at_end: Amounts | None = None
    """If all steps are done, what is kept of each amount while one more is taken to prove the answer; else None."""
    to_prove: Amounts = field(default_factory=Amounts)
    """What it will take to write, check and audit the answer; an extension by what is suggested lasts for it."""
    day: DayAccount | None = None
    """The account of the day whose limits these are; None for the limits of a run or step."""

    def of_day(self, day: DayAccount | None) -> "Account":
        """Return the account with the limits of the day, which the run shares with others; unchanged without a day."""
        if day is None:
            return self
        return replace(self, limits=day.limits, granted=day.granted, spent=day.spent, day=day)

    @property
    def reserve(self) -> Amounts:
        """The reserve for the delivery; none before there is a plan or a finished step."""
        if self.at_end is not None:
            return self.at_end
        return {} if self.step or (self.unplanned and not self.done) else RESERVE

    @property
    def to_end(self) -> Amounts:
        """What the run takes after its last step: the reserve, or more."""
        keys = {*self.reserve, *self.to_prove}
        return {key: max(self.reserve.get(key, 0), self.to_prove.get(key, 0)) for key in keys}

    @property
    def may_replan(self) -> bool:
        """True if steps are left that can be planned anew, and not for want of a request today."""
        return not (self.unplanned or self.day or self.at_end is not None)

    @property
    def keys(self) -> tuple[str, ...]:
        """All limits that are reached, not only the first."""
        return exhausted_keys(subtract(remaining(self.limits, self.granted, self.spent), self.reserve), self.needs)

    def total(self, key: str) -> float:
        """Return the limit plus what was granted."""
        return float(getattr(self.limits, key) or 0) + self.granted.get(key, 0)


def run_account(values: Mapping[str, Any], settings: Settings, **more: Any) -> Account:
    """Return the account of the whole run."""
    steps, records = (values.get("plan") or {}).get("steps", ()), values.get("steps") or {}
    rows = [(step, record_of(records, step["id"])) for step in steps]
    language = values.get("language", "en")
    done = [_row(step, record, language) for step, record in rows if record["status"] == "done"]
    left = [_row(step, record, language) for step, record in rows if record["status"] != "done"]
    granted, spent = values.get("granted") or {}, values.get("spent") or {}
    return Account(settings.limits, granted, spent, done=done, left=left, language=language, values=values, **more)


def step_account(values: Mapping[str, Any], settings: Settings, id: str, needs: tuple[str, ...]) -> Account:
    """Return the account of one step."""
    run, record = run_account(values, settings), values["steps"][id]
    granted, spent = record["granted"], record["spent"]
    return replace(run, limits=settings.step_limits, granted=granted, spent=spent, step=id, needs=needs)


def _row(step: Mapping[str, Any], record: StepRecord, language: str) -> Json:
    stands = standstill_notice(record, language) if record["status"] != "done" else ""
    return {"id": step["id"], "content": step["content"], "spent": record["spent"], "standstill": stands}


def budget_pause(account: Account, key: str, id: str, *, replans_left: bool = True) -> BudgetPause:
    """Return the pause that asks how to continue. `key` is the limit that was reached, `id` the pause's id."""
    keys = account.keys or (key,)
    suggested = {each: _suggest(account, each) for each in (*keys, *_short_soon(account, keys))}
    free = suggested if account.may_replan and not account.step else {}
    granted_with_replan = {**free, **({} if replans_left else {"replans": 1})}
    return BudgetPause.ask(
        id,
        _write_question(account, keys, granted_with_replan),
        options=[each for each in option_texts("en", "budget") if option_key(each) != "replan" or account.may_replan],
        step=account.step,
        exhausted=keys[0] if len(keys) == 1 else list(keys),
        suggested=suggested,
        with_replan=granted_with_replan,
        done=[row["id"] for row in account.done],
        left=[row["id"] for row in account.left],
        meter=meter(account.spent, account.limits, account.granted),
        language=account.language,
        **({"reserve": dict(reserve)} if (reserve := account.reserve) else {}),
        **({"of_planning": True} if account.planning else {}),
        **({"at_end": True} if account.at_end is not None else {}),
        **({"of_day": f"{account.day.scope}:{account.day.day}"} if account.day else {}),
    )


def _short_soon(account: Account, keys: Sequence[str]) -> list[str]:
    """Return other limits that would not last for the remaining work, so that the next question is not about them."""
    left = remaining(account.limits, account.granted, account.spent)
    others = {key: amount - account.to_end.get(key, 0) for key, amount in left.items() if key not in (*keys, *SELDOM)}
    return [key for key, free in others.items() if (need := _estimate_need(account, key)) is not None and free < need]


def _estimate_need(account: Account, key: str) -> float | None:
    """Return what the remaining steps will take at the average of the finished ones; None if none is finished."""
    each = [row["spent"].get(key, 0) for row in account.done]
    steps = 1 if account.step or account.unplanned else max(len(account.left), 1)
    return steps * sum(each) / len(each) if any(each) else None


def _suggest(account: Account, key: str) -> float:
    """Return the suggested extension: the overdraft plus the need of the remaining steps, or half the limit."""
    limit, needed = account.total(key), _estimate_need(account, key)
    over = account.spent.get(key, 0) + account.to_end.get(key, 0) - limit
    need = limit / 2 if needed is None else needed
    if key == "cost_usd":
        return math.ceil(max(over + need, 0.01) * 100) / 100
    return math.ceil(max(over + need, over + 1, 1))


def _write_question(account: Account, keys: Sequence[str], with_replan: Amounts) -> str:
    speak = partial(say, account.language, "budget")
    if account.day:
        whose = speak(account.day.scope, name=account.day.name, day=account.day.day)
    else:
        whose = speak("step", step=account.step) if account.step else speak("planning" if account.planning else "run")
    used = speak("both").join(_describe_use(account, key) for key in keys)
    reserved = speak("kept") if account.reserve and "model_calls" in keys else ""
    effects = effect_rows(account.values)
    parts = [speak("out", whose=whose, used=used, kept=reserved), _list_steps(speak("done"), account.done)]
    parts.append(_list_steps(speak("not_done"), account.left, effects, account.language))
    parts.append("\n".join(unknown_lines(effects, account.language)))
    if account.unplanned:
        parts.append(speak("unplanned"))
    if account.at_end is not None:
        parts.append(speak("at_end"))
    if with_replan:
        added = ", ".join(format_amount(key, amount, account.language) for key, amount in with_replan.items())
        option = translate_option("replan", "budget", account.language)
        parts.append(speak("replan", option=option, added=added))
    return "\n\n".join(part for part in parts if part)


def _describe_use(account: Account, key: str) -> str:
    total = format_amount(key, account.total(key), account.language)
    sign = "$" if key == "cost_usd" else ""
    return say(account.language, "budget", "of", spent=f"{sign}{format_number(account.spent.get(key, 0))}", total=total)


def _list_steps(title: str, rows: Sequence[Json], effects: Sequence[EffectRow] = (), language: str = "en") -> str:
    """Return the steps under a title, with what `effects` have of each."""
    lines: list[str] = []
    for row in rows:
        standstill = f" ({row['standstill']})" if row.get("standstill") else ""
        lines.append(f"- {row['id']}: {' '.join(row['content'].split())[:CONTENT_CHARS]}{standstill}")
        lines += done_in_it_lines(effects, row["id"], language)
    return "\n".join([f"{title}:", *lines]) if lines else ""


def has_left(values: Mapping[str, Any], settings: Settings, key: str) -> bool:
    """Return whether the run may use one more of `key`, such as `replans`, without a new grant."""
    return remaining(settings.limits, values.get("granted"), values.get("spent")).get(key, 1) >= 1


def step_remaining(values: Mapping[str, Any], settings: Settings, id: str) -> Amounts:
    """Return what a step may still spend under its own limits."""
    record = values["steps"][id]
    return remaining(settings.step_limits, record["granted"], record["spent"])


def excess_questions(values: Mapping[str, Any], settings: Settings, asking: Sequence[str]) -> list[str]:
    """Return the newly asking steps, in plan order, whose questions exceed the limit."""
    left = remaining(settings.limits, values.get("granted"), values.get("spent")).get("questions", len(asking))
    able = [id for id in asking if step_remaining(values, settings, id).get("questions", 1) >= 1]
    return [id for id in asking if id not in able[: int(left)]]
