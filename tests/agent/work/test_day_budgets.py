"""Budgets of a day or a month: what all runs of an owner, or of a queue, spend together, in all processes."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from donewhen import Agent, AgentOptions, ConfigError, Limits, Run
from donewhen.agent.storage.spending import SpendingTable
from donewhen.agent.work.day_budgets import RunBudget
from donewhen.state.ledger import Budgets, DayAccount
from donewhen.testing import ScriptedModel, answer, call, finish_step, submit_plan
from tests.kit.forking import forks
from tests.kit.storage.cases import fresh_url, key_of, open_storage

KINDS = ["memory", "sqlite", "sqlite-sealed", "postgres", "postgres-pooled"]


def look(text: str) -> str:
    """Look at a text."""
    return f"seen {text}"


def working(rounds: int = 3, **more: Any) -> ScriptedModel:
    """Plans a step of so many looks: two requests more than looks, and none for the answer."""
    looks = [call("look", text=f"{n}") for n in range(rounds)]
    plan = submit_plan([{"content": "look", "tools": ["look"], "done_when": ["seen"]}])
    return ScriptedModel(roles={"triage": [plan], "execute": [*looks, finish_step("seen", "s1.1")]}, **more)


def agent_of(storage: Any, model: ScriptedModel, budgets: Any, **settings: Any) -> Agent:
    free = {"confirm": "never", "verification": "grounded", **settings}
    options = AgentOptions(budgets=budgets)
    return Agent(model, [look], effects={"look": "read"}, storage=storage, settings=free, options=options)


async def spent(agent: Agent, scope: str, name: str) -> dict[str, float]:
    rows = [row for row in await agent.budgets() if (row["scope"], row["name"]) == (scope, name)]
    return {each["key"]: each["spent"] for row in rows for each in row["meter"]}


async def test_runs_without_an_owner_share_one_budget_in_all_queues(tmp_path: Path) -> None:
    """41.5: so `owner` alone is one budget over two queues; an owner has another one."""
    url, budgets = fresh_url("sqlite", tmp_path), {"owner": Limits(model_calls=2)}

    def agent_in(queue: str) -> Agent:
        model = ScriptedModel(roles={"triage": [answer("ok")] * 4}, strict=False)
        options = AgentOptions(queue=queue, budgets=budgets)
        return Agent(model, storage=url, settings={"on_exhausted": "stop"}, options=options)

    async with agent_in("one") as one, agent_in("two") as two:
        runs = [await agent.start("say ok") for agent in (one, two, one, two)]
        assert [run.status for run in runs] == ["answered", "answered", "exhausted", "exhausted"]
        assert (await two.start("say ok", owner="ann")).status == "answered"
        assert (await spent(one, "owner", ""))["model_calls"] == 2


@pytest.mark.parametrize("kind", KINDS)
async def test_runs_of_an_owner_share_the_day_and_a_person_extends_it(kind: str, tmp_path: Path) -> None:
    """41.5: the second run of an owner finds the day used up, asks, and goes on with more; others have their own."""
    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    budgets = {"owner": Limits(model_calls=7), "zone": "Asia/Tokyo"}
    async with agent_of(storage, working(), budgets) as agent:
        first = await agent.start("look", owner="ann")
        assert (first.status, first.spent["model_calls"]) == ("completed", 5)
        assert (await spent(agent, "owner", "ann"))["model_calls"] == 5
    async with agent_of(storage, working(), budgets) as agent:
        second = await agent.start("look", owner="ann")
        (pause,) = second.pending
        assert (second.status, pause["kind"], pause["exhausted"]) == ("waiting", "budget", "model_calls")
        assert pause["of_day"].startswith("owner:20")
        assert "the owner ann" in pause["question"]
        assert second.spent["model_calls"] == 1  # one is kept for the answer
        assert {each["key"]: each for each in pause["meter"]}["model_calls"]["spent"] == 6
        done = await agent.resume(second, "extend 5 model calls")
        assert (done.status, done.spent["model_calls"], done.limits) == ("completed", 5, second.limits)
        (row,) = [row for row in await agent.budgets() if row["scope"] == "owner"]
        assert {each["key"]: (each["spent"], each["limit"]) for each in row["meter"]}["model_calls"] == (10, 12)
    async with agent_of(storage, working(), budgets) as agent:
        assert (await agent.start("look", owner="bob")).status == "completed"
    await storage.aclose()


async def store_spent(storage: Any, *rows: tuple[str, str, int]) -> None:
    """Store model calls of earlier days, of owners in the queue `crm`."""
    async with storage.writer() as (_, store):
        for day, owner, calls in rows:
            store.spending.put(day, owner, "crm", f"earlier {day}", {"model_calls": calls})
        await store.spending.withdraw("", "")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_month_is_the_sum_of_its_days(kind: str, tmp_path: Path) -> None:
    """41.5: what a queue spent since the first counts, and no more; a person extends the month; pruning leaves it."""
    storage = open_storage(fresh_url(kind, tmp_path), key=key_of(kind))
    options = AgentOptions(queue="crm", budgets={"queue": {"model_calls": 4}, "period": "month"})
    model = ScriptedModel(roles={"triage": [answer("ok")] * 9}, strict=False)
    async with Agent(model, storage=storage, options=options) as agent:
        assert (await agent.start("say ok", owner="bob")).status == "answered"
        (row,) = [row for row in await agent.budgets() if row["scope"] == "queue"]
        month = row["day"]
        assert len(month) == len("2030-12")
        await store_spent(storage, (f"{month}-01", "ann", 3), ("2020-12-31", "ann", 100))
        assert (await spent(agent, "queue", "crm"))["model_calls"] == 4
        waits = await agent.start("say ok", owner="bob")
        assert waits.pending[0]["question"].startswith(f"Out of budget. For {month} the queue crm has used 4 of 4")
        assert (await agent.resume(waits, "extend 2 model calls")).status == "answered"
        async with Agent(ScriptedModel(), storage=storage) as without_budgets:
            assert await without_budgets.prune(timedelta(0), owner="ann") == []
            assert len(await without_budgets.prune(timedelta(0))) == 2
        (row,) = [row for row in await agent.budgets() if row["scope"] == "queue"]
        assert {each["key"]: (each["spent"], each["limit"]) for each in row["meter"]}["model_calls"] == (5, 6)
        assert {row["name"]: row["meter"][0]["limit"] for row in await agent.budgets(f"{month}-01")}["crm"] is None
        assert await agent.budgets("2020-12-31") == []
    await storage.aclose()


async def test_who_is_deleted_is_named_in_no_budget(storage: Any) -> None:
    """41.5: pruning an owner's threads takes their name from what they spent before today, which the queue keeps."""
    await store_spent(storage, ("2020-12-31", "ann", 3), ("2020-12-31", "bob", 4))
    async with agent_of(storage, working(), {"owner": {"model_calls": 9}}) as agent:
        await agent.prune(timedelta(0), owner="ann")
        rows = {(row["scope"], row["name"]): row["meter"][0]["spent"] for row in await agent.budgets("2020-12")}
        for wrong in ("2020-1", "2020-13", "yesterday"):
            with pytest.raises(ConfigError, match="neither a day, such as 2030-12-01, nor a month"):
                await agent.budgets(wrong)
    assert rows == {("owner", "(deleted)"): 3, ("owner", "bob"): 4, ("queue", "crm"): 7}


async def test_planning_asks_and_a_queue_has_its_day_too(storage: Any) -> None:
    """41.5: the budget of a queue holds for all owners; where nothing is planned yet, planning asks."""
    async with agent_of(storage, ScriptedModel([answer("1"), answer("2")]), {"queue": {"model_calls": 1}}) as agent:
        assert (await agent.start("first", owner="ann")).status == "answered"
        waits = await agent.start("second", owner="bob")
        assert waits.pending[0]["of_day"].startswith("queue:")
        assert waits.spent.get("model_calls", 0) == 0
        assert "replan" not in str(waits.pending[0]["options"])
        assert (await agent.resume(waits, "extend")).answer == "2"


async def test_a_named_owner_or_queue_has_its_own_day(tmp_path: Path) -> None:
    """41.5: a named budget replaces the general one; where there is none, only the named ones are limited, and all
    count."""
    url, stop = fresh_url("sqlite", tmp_path), {"on_exhausted": "stop"}
    owners = {"it": Limits(model_calls=2), "audit": None}
    budgets = {"owner": Limits(model_calls=1), "owners": owners, "queues": {"nightly": {"model_calls": 3}}}

    def agent_in(queue: str) -> Agent:
        model = ScriptedModel(roles={"triage": [answer("ok")] * 9}, strict=False)
        return Agent(model, storage=url, settings=stop, options=AgentOptions(queue=queue, budgets=budgets))

    async with agent_in("day") as day, agent_in("nightly") as nightly:
        for agent, owner, said in (
            (day, "hr", "answered"),
            (day, "hr", "exhausted"),
            (day, "it", "answered"),
            (day, "it", "answered"),
            (day, "it", "exhausted"),
            (nightly, "audit", "answered"),
            (nightly, "audit", "answered"),
            (nightly, "audit", "answered"),
            (nightly, "audit", "exhausted"),
            (day, "audit", "answered"),
        ):
            assert (await agent.start("say ok", owner=owner)).status == said, (owner, said)
        shown = {
            (row["scope"], row["name"]): (each["spent"], each["limit"])
            for row in await day.budgets()
            for each in row["meter"]
            if each["key"] == "model_calls"
        }
        assert shown == {
            ("owner", "audit"): (4, None),
            ("owner", "hr"): (1, 1),
            ("owner", "it"): (2, 2),
            ("queue", "day"): (4, None),
            ("queue", "nightly"): (3, 3),
        }


@pytest.mark.parametrize("policy", ["deliver", "stop"])
async def test_where_nobody_is_asked_the_policy_decides(policy: str, storage: Any) -> None:
    """41.5, H13: at the budget of a day the run ends like at any limit, and makes no further request."""
    budgets = {"owner": {"model_calls": 3}}
    async with agent_of(storage, working(), budgets, on_exhausted=policy) as agent:
        run = await agent.start("look", owner="ann")
        assert (run.status, run.pending) == ("exhausted", ())
        assert (await spent(agent, "owner", "ann"))["model_calls"] == run.spent["model_calls"] == 2


async def test_two_steps_at_once_share_the_day(storage: Any) -> None:
    """41.5, Q98: steps of one run do not wait for each other's announcements for ever, and stay within the day."""
    plan = submit_plan([{"content": f"look {n}", "tools": ["look"], "depends_on": []} for n in range(2)])
    steps = {f"s{n}": [call("look", text="a"), call("look", text="b"), finish_step("", f"s{n}.1")] for n in (1, 2)}
    model = ScriptedModel(roles={"triage": [plan], "execute": steps}, strict=False)
    async with agent_of(storage, model, {"owner": {"model_calls": 5}}, on_exhausted="deliver") as agent:
        run = await agent.start("look", owner="ann")
        assert run.outcome
        assert run.spent["model_calls"] <= 5
        assert (await spent(agent, "owner", "ann"))["model_calls"] == run.spent["model_calls"]


class Meanwhile(SpendingTable):
    """A table at whose operations another run works: before an announcement, and after the first look that follows."""

    def __init__(self, table: SpendingTable, *work: Callable[[], Awaitable[None]]) -> None:
        super().__init__(table._store)
        self._work, self._announced = [*work], False

    async def announce(self, *given: Any) -> None:
        if self._work:
            await self._work.pop(0)()
        await super().announce(*given)
        self._announced = True

    async def spent(self, *given: Any) -> Any:
        return await self._after(await super().spent(*given))

    async def announced(self, *given: Any) -> Any:
        return await self._after(await super().announced(*given))

    async def _after(self, found: Any) -> Any:
        if self._announced and self._work:
            await self._work.pop(0)()
        return found


@pytest.mark.parametrize("at", ["an announcement", "two reads"])
async def test_what_another_run_spends_between_two_looks_counts(storage: Any, at: str) -> None:
    """41.5: a request of another run takes its place of the day, if it is announced and charged while one is announced,
    or charged between the two reads of a look."""
    budgets, requests = Budgets(owner=Limits(model_calls=1)), list[str]()

    async def ask() -> None:
        request = await other.announce()
        assert isinstance(request, str)
        requests.append(request)

    async def pay() -> None:
        other.charge(requests, {"model_calls": 1}, {})
        await table.withdraw("b", requests[0])  # commits the charge

    async def ask_and_pay() -> None:
        await ask()
        await pay()

    async with storage.writer() as (_, store):
        table = store.spending
        other = RunBudget(budgets, storage, store, "b", owner="ann", queue="q")
        store.spending = Meanwhile(table, *([ask_and_pay] if at == "an announcement" else [ask, pay]))
        mine = RunBudget(budgets, storage, store, "a", owner="ann", queue="q")
        reached = await mine.announce()
        assert isinstance(reached, DayAccount)
        assert reached.spent["model_calls"] == 1
        assert requests


async def test_a_retry_does_not_wait_for_its_own_failed_attempt(storage: Any) -> None:
    """41.5: while a request fails, another run takes the last of the day: the retry finds the day used up, and asks."""
    budgets = {"owner": {"model_calls": 3}}

    async def fail_late(messages: Any, tools: Any) -> Any:
        async with agent_of(storage, ScriptedModel([answer("1"), answer("2")]), budgets) as other:
            for _ in range(2):
                assert (await other.start("other", owner="ann")).status == "answered"
        raise ConnectionError("busy")

    async with agent_of(storage, ScriptedModel([fail_late, answer("3")]), budgets) as agent:
        waits = await asyncio.wait_for(agent.start("look", owner="ann"), 20)
        assert waits.pending[0]["of_day"].startswith("owner:")
        assert (await spent(agent, "owner", "ann"))["model_calls"] == 3
        assert (await agent.resume(waits, "extend")).answer == "3"


async def test_two_retries_do_not_wait_for_each_other(storage: Any) -> None:
    """41.5, Q98: two runs use up the day with requests that fail at once: both find it used up, and ask."""
    budgets, both = {"owner": {"model_calls": 2}}, asyncio.Barrier(2)

    async def fail_together(messages: Any, tools: Any) -> Any:
        await both.wait()
        raise ConnectionError("busy")

    async def ask() -> Run:
        async with agent_of(storage, ScriptedModel([fail_together, answer("late")]), budgets) as agent:
            return await agent.start("look", owner="ann")

    for run in await asyncio.wait_for(asyncio.gather(ask(), ask()), 30):
        assert run.pending[0]["of_day"].startswith("owner:")


async def test_who_has_no_limit_announces_nothing(storage: Any) -> None:
    """41.5: what such runs spend is counted all the same."""

    async def announce_nothing() -> None:
        raise AssertionError("announced")

    budgets = Budgets(owners={"it": Limits(model_calls=5)})
    async with storage.writer() as (_, store):
        store.spending = Meanwhile(store.spending, announce_nothing)
        assert await RunBudget(budgets, storage, store, "a", owner="ann", queue="q").announce() == ""
    async with agent_of(storage, ScriptedModel([answer("1"), answer("2")]), budgets) as agent:
        for _ in range(2):
            assert (await agent.start("look", owner="ann")).status == "answered"
        assert (await spent(agent, "owner", "ann"))["model_calls"] == 2


LIMITS: dict[str, dict[str, float]] = {"ann": {"model_calls": 9}, "bob": {"input_tokens": 9_000}}


def _work(url: str, pipe: Connection, budgets: dict[str, Any]) -> None:
    async def work(owner: str) -> None:
        model = working(6, strict=False)
        async with agent_of(url, model, budgets[owner], on_exhausted="stop") as agent:
            pipe.send("ready")
            pipe.recv()
            run = await agent.start("look", owner=owner)
            pipe.send((len(model.requests), dict(run.spent)))

    for owner in LIMITS:
        asyncio.run(work(owner))


GENERAL = {owner: {"owner": limits} for owner, limits in LIMITS.items()}
NAMED = {owner: {"owner": {"model_calls": 1}, "owners": LIMITS} for owner in LIMITS}


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
@pytest.mark.parametrize("budgets", [GENERAL, NAMED], ids=["general", "named"])
async def test_processes_at_once_stay_within_the_day(kind: str, budgets: dict[str, Any], tmp_path: Path) -> None:
    """41.5, Q98: three processes at once make no request too many, and exceed what is known afterwards by one; also of
    an owner who is named."""
    url = fresh_url(kind, tmp_path)
    async with agent_of(url, working(0), {"owner": {"model_calls": 1}}) as agent:
        await agent.threads()
        workers = []
        for _ in range(3):
            ours, theirs = forks.Pipe()
            process = forks.Process(target=_work, args=(url, theirs, budgets), daemon=True)
            process.start()
            workers.append((process, ours))
        for owner, limit in LIMITS.items():
            for _, pipe in workers:
                assert await asyncio.to_thread(pipe.recv) == "ready"
            for _, pipe in workers:
                pipe.send("go")
            results = [await asyncio.to_thread(pipe.recv) for _, pipe in workers]
            total = await spent(agent, "owner", owner)
            ((key, most),) = limit.items()
            dearest = max(run[key] / made for made, run in results if made)
            assert total["model_calls"] == sum(requests for requests, _ in results)
            assert total[key] == sum(run.get(key, 0) for _, run in results)
            assert most * 0.6 < total[key] <= (most if key == "model_calls" else most + 2 * dearest)
        for process, _ in workers:
            process.join()


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_charge_counts_once_although_the_process_dies(kind: str, tmp_path: Path) -> None:
    """41.5: what a process announced that died counts as one request, and what it charged counts once."""
    url = fresh_url(kind, tmp_path)
    pipe, theirs = forks.Pipe()
    process = forks.Process(target=_die, args=(url, theirs), daemon=True)
    process.start()
    thread = await asyncio.to_thread(pipe.recv)
    process.kill()
    process.join()
    async with agent_of(url, working(3, strict=False), {"owner": {"model_calls": 4}}) as agent:
        other = await agent.start("look", owner="ann", settings={"on_exhausted": "stop"})
        before = await spent(agent, "owner", "ann")
        assert before["model_calls"] == 2 + other.spent["model_calls"] == 3
        resumed = await agent.resume(thread)
        assert resumed.pending[0]["of_day"]
        assert (await spent(agent, "owner", "ann"))["model_calls"] == 4 == 2 + resumed.spent["model_calls"]


@pytest.mark.parametrize("how", ["cancelled", "cut off"])
async def test_requests_that_are_cut_off_count(how: str, storage: Any) -> None:
    """41.5: two runs are cut off while the model answers; the provider counts their requests, and so does the day."""
    begun = asyncio.Event()

    async def stay(messages: Any, tools: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    model, budgets = ScriptedModel(roles={"triage": stay}), {"owner": {"model_calls": 2}}
    async with agent_of(storage, model, budgets, on_exhausted="stop") as agent:
        for thread in ("one", "two"):
            begun.clear()
            work = asyncio.create_task(agent.start("look", owner="ann", thread_id=thread))
            await asyncio.wait_for(begun.wait(), 10)
            if how == "cancelled":
                await agent.cancel(thread)
            else:
                work.cancel()
            await asyncio.wait([work], timeout=10)
        assert (await agent.start("look", owner="ann")).status == "exhausted"
        assert (await spent(agent, "owner", "ann"))["model_calls"] == 2 == len(model.requests)


def _die(url: str, pipe: Connection) -> None:
    async def stay(messages: Any, tools: Any) -> Any:
        pipe.send("t")
        await asyncio.Event().wait()

    async def work() -> None:
        plan = submit_plan([{"content": "look", "tools": ["look"], "done_when": ["seen"]}])
        model = ScriptedModel(roles={"triage": [plan], "execute": [call("look", text="0"), stay]})
        async with agent_of(url, model, {"owner": {"model_calls": 4}}) as agent:
            await agent.start("look", owner="ann", thread_id="t")

    asyncio.run(work())


def test_wrong_budgets_are_refused() -> None:
    """A budget of a day says what it cannot limit, and which zones there are."""
    for given, said in (
        ({"owner": {"rounds": 1}}, "rounds: a budget of a day limits model_calls"),
        ({"owner": Limits(rounds=3)}, r'others are of a run \(given: {"rounds": 3}\)'),
        ({"ownrs": {}}, "there is no ownrs; did you mean owner"),
        ({"owner": {"it": Limits(cost_usd=5)}}, "owner: limits by name, as of 'it', go into owners or queues"),
        ({"queue": {"nightly": {"cost_usd": 5}}}, "queue: limits by name"),
        ({"owners": {"it": {"rounds": 1}}}, "rounds: a budget of a day limits model_calls"),
        ({"owners": {"it": {"cost_us": 1}}}, "there is no owners.it.cost_us; did you mean cost_usd"),
        ({"owner": {"cost_us": 1}}, "there is no owner.cost_us; did you mean cost_usd"),
        ({"owners": {"cost_usd": 5}}, "owners.cost_usd: Input should be a valid dictionary or instance of Limits"),
        ({"owners": Limits(cost_usd=5)}, "owners: Input should be a valid dictionary"),
        ({"owners": {" it ": {"cost_usd": 5}}}, r'the name begins or ends with a blank \(given: " it "\)'),
        ({"queues": {"nightly\n": None}}, "queues.nightly\n: the name begins or ends with a blank"),
        ({"zone": "Mars"}, "is not a time zone"),
    ):
        with pytest.raises(ConfigError, match=said):
            Agent(ScriptedModel(), storage="memory:", options=AgentOptions(budgets=given))
