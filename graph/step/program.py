"""Make the calls of a step, also those that its programs make: each is a call like any other, with gates and a journal.

The call `run_program` stays in the step's record, behind the one that its program makes next. Nothing of the program
itself is stored: when the step goes on, it runs again from its beginning, and the journal answers what was made. So a
node ends before each change that comes after something new: what the change depends on is in a checkpoint then.

Before a change that a person has to approve, the program is rehearsed: its reads are made, its changes are not, and
what it would change stands in one question. The list only predicts. After the answer the program runs for real, and a
change that is not the next one of the list asks again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.runtime import Runtime

from donewhen.graph.context import Deps
from donewhen.graph.events import emit_observation, now
from donewhen.graph.step.calls import StepCalls
from donewhen.graph.step.gates import Wait
from donewhen.graph.sync import run_in_thread
from donewhen.graph.tools.effects import UnknownEffect
from donewhen.graph.tools.program import LATER, MOST_CALLS, AwaitedCall, Sandbox, calls_index
from donewhen.state.channels import Json, Step
from donewhen.state.ledger import add
from donewhen.state.proof.journal import call_key, canonical_json, observation
from donewhen.state.reading.decisions import PROGRAM
from donewhen.state.records import Call, JournalEntry, StepChange
from donewhen.state.secrets import conceal
from donewhen.state.settings import Settings
from donewhen.state.values import json_problem

MOST_UNSAVED = 32
"""The most observations that a crash may lose of a program that only reads; they are made again."""
MOST_LISTED = 500
"""The most changes of a program about which a person decides at once."""


async def act(state: Step, runtime: Runtime[Settings], config: RunnableConfig, *, deps: Deps) -> Step:
    """Make the calls in the step's record; stop at the first that needs a person or more budget."""
    tools = deps.step_tools(runtime.context, state)
    return await ProgramCalls.of(state, runtime, config, deps, tools).run()


@dataclass
class ProgramCalls(StepCalls):
    """The calls of a step and of its programs."""

    ended_programs: Sequence[Json] | None = None
    """The programs of the attempt that have ended; None until one ends in this node: the record has the others."""

    @property
    def box(self) -> Sandbox:
        """The interpreter of the step's programs."""
        box: Sandbox = self.state["sandbox"]
        return box

    def _lookup_changes(self) -> StepChange:
        change = super()._lookup_changes()
        return change if self.ended_programs is None else {**change, "programs": [*self.ended_programs]}

    async def run(self) -> Step:
        """Make the calls; the interpreter of a program that goes on in the next node is kept."""
        goes_on = False
        try:
            update = await super().run()
            goes_on = bool(self.calls) and update["record"]["status"] == "running"
            return update
        finally:
            if not goes_on:
                self.box.drop()

    async def _unfold(self, first: Call) -> bool:
        if "rehearsed" in first:  # people decided about these; the program says which of them it makes
            listed, (program, *rest) = _split_rehearsed(self.calls)
            self.calls = [{**program, "listed": listed}, *rest]
            return True
        if first["name"] != PROGRAM:
            return False
        program, *rest = self.calls
        if (call := await self._run_on(program)) is None:
            await self._end_program(program)
            self.calls = rest
            return True
        listed = program.get("listed") or []
        if self._is_change(call) and listed and listed[0]["program"]["key"] == call["program"]["key"]:
            call = {**listed[0], "program": call["program"], "position": call["position"]}
            program = {**program, "listed": listed[1:]}
        elif self._is_change(call) and (listed or program.get("whole")):  # people did not see it in the list
            call, program = {**call, "differs": True}, {**program, "listed": [], "whole": False}
        self.calls = [call, program, *rest]
        return True

    def _update_before(self, first: Call) -> Step | None:
        """Return what a program saw and did, to be stored before a change, which depends on it, or once it is much."""
        unsaved = len(self.new_entries)
        if "program" not in first or not (unsaved >= MOST_UNSAVED or (unsaved and self._is_change(first))):
            return None
        progress: StepChange = {"calls": list(self.calls), "held": self.held, "observed": self.observed}
        return {**self._update(), "record": {**self.state["record"], **progress, **self._lookup_changes()}}

    def _is_change(self, call: Call) -> bool:
        return (tool := self.tools.get(call["name"])) is not None and tool.effect != "read"

    async def _run_on(self, program: Call) -> Call | None:
        """Run the program up to its first call that was not made; return that call, or None if the program ended."""
        box, id = self.box, self._program_id(program)
        if box.id != id:
            for earlier in self._earlier_programs():  # for their variables
                if earlier["id"] not in box.finished:
                    await box.begin(earlier["id"], earlier["code"], self.tools)
                    if await self._replay(program) is not None:
                        box.drop()
            await box.begin(id, program["args"]["code"], self.tools)
        return await self._replay(program)

    async def _replay(self, program: Call) -> Call | None:
        """Answer the program from the journal; return its first call that is not in there, or None if it ended."""
        box = self.box
        while awaited := box.awaited:
            if (call := await self._read_call(awaited, program)) is None:
                continue
            results = (e for e in reversed(self.entries) if e["source"] == "tool" and _is_from(e, box.id, box.count))
            if (entry := next(results, None)) is None:
                if box.count < MOST_CALLS:
                    return call
                box.stop(f"A program makes at most {MOST_CALLS:,} calls.")
            elif entry["program"]["key"] != call["program"]["key"]:
                before = f"line {entry['program']['line']}: {entry['tool']} {canonical_json(entry['arguments'])[:500]}"
                now_called = f"line {call['program']['line']}: {call['name']} {canonical_json(call['args'])[:500]}"
                box.stop(f"It was run again and made another call than before. Before, {before}; now, {now_called}.")
            else:
                entry = await self.caller.texts.load(entry)
                await box.answer(entry["text"], ok=entry["ok"])
        return None

    async def _read_call(self, awaited: AwaitedCall, program: Call) -> Call | None:
        """Return the call that the program waits for; if it cannot be made, refuse it in the program: None."""
        box = self.box
        if awaited.problem:
            await box.refuse(awaited.problem)
            return None
        reading = self.tools[awaited.tool].read(awaited.arguments)
        problems = [f"{awaited.tool}: {each}" for each in reading.problems]
        if not problems and (problem := json_problem(reading.arguments)):
            problems = [f"{awaited.tool}: the value {problem}"]
        if problems:
            await box.refuse("; ".join(problems))
            return None
        about: Json = {"id": box.id, "n": box.count, "line": awaited.line}
        call: Call = {
            "id": "",
            "name": awaited.tool,
            "args": reading.arguments,
            "native": False,
            "position": (program.get("position", 0) + 1) * 10 * MOST_CALLS + box.count,
            "program": {**about, "key": call_key(awaited.tool, reading.arguments)},
        }
        return call if reading.as_written is None else {**call, "given": reading.as_written}

    async def _rehearse(self) -> bool:
        if "program" not in self.calls[0]:
            return False
        first, program, *rest = self.calls
        call, box = await self._run_on(program), self.box
        if call is None or call["program"] != first["program"]:
            return False
        following, listed = list[Call](), [*(program.get("listed") or ())]
        await box.answer(LATER)
        while (awaited := box.awaited) and not awaited.early and len(following) < MOST_LISTED:
            if (call := await self._read_call(awaited, program)) is None:
                continue
            if self._is_change(call):
                if listed and listed[0]["program"]["key"] == call["program"]["key"]:
                    call = listed.pop(0)  # of those that were listed before, some are decided
                following.append({**call, "rehearsed": True})
                await box.answer(LATER)
            elif entry := await self._look_ahead(call):
                await box.answer(entry["text"], ok=entry["ok"])
            else:
                break
        whole = not (box.awaited or box.error)
        box.drop()  # it was answered with results that do not exist
        self.calls = [first, *following, {**program, "whole": whole}, *rest]
        return True

    async def _look_ahead(self, call: Call) -> JournalEntry | None:
        """Make a read of a program that is rehearsed; return its whole observation, or None if it cannot be made."""
        call, number = {**call, "program": {**call["program"], "ahead": True}}, self.observed + 1
        ruling = await self._rule(call)
        outcomes = None if isinstance(ruling, Wait) else await self._make({number: (call, ruling)})
        if outcomes is None or isinstance(outcomes, UnknownEffect):
            return None
        self.spent = add(self.spent, {"active_seconds": outcomes[number].seconds})
        if await self._record(call, number, outcomes[number]) is not None:
            return None
        entry = self.new_entries[-1]
        await self._record_notes(call, outcomes[number].notes)
        return await self.caller.texts.load(entry)

    async def _end_program(self, program: Call) -> None:
        """Make an observation of what the program printed; show it to the model with an index of the calls."""
        box, id = self.box, self._program_id(program)
        calls = [entry for entry in self.entries if _is_from(entry, id)]
        text = "\n".join(part for part in (box.printed.rstrip(), box.error) if part) or "(It printed nothing.)"
        self.observed += 1
        entry = observation(
            self._id_of(self.observed),
            self.caller.id,
            self.caller.rounds,
            "tool",
            await run_in_thread(partial(conceal, text, self.deps.secrets)),
            tool=PROGRAM,
            arguments=program["args"],
            ok=not box.error,
            effect="read",
            at=now(),
        )
        entry["identity"] = []  # what a program prints may be the model's own words, and is no source of anything
        notes = [self._render(each, "") for each in calls if each["source"] == "check"]
        index = calls_index([each for each in calls if each["source"] == "tool"])
        self._show(program, "\n".join([self._render(entry, index), *notes]))
        self.learned = self.acted = True
        entry = await self.caller.texts.put_entry(entry)
        self.new_entries.append(entry)
        emit_observation(self.runtime, entry)
        self.ended_programs = [*self._earlier_programs(), {"id": id, "code": program["args"]["code"]}] if box.id else []

    def _earlier_programs(self) -> Sequence[Json]:
        """Return the programs of this attempt whose variables the next one sees."""
        programs = self.state["record"]["programs"] if self.ended_programs is None else self.ended_programs
        return [each for each in programs if each["id"].startswith(f"{self.caller.attempt}.")]

    def _program_id(self, program: Call) -> str:
        return f"{self.caller.attempt}.{self.caller.rounds}.{program.get('position', 0)}"


def _split_rehearsed(calls: Sequence[Call]) -> tuple[list[Call], list[Call]]:
    """Return the rehearsed calls that come first, without that mark, and the others."""
    rehearsed = [*takewhile(lambda call: "rehearsed" in call, calls)]
    listed = [cast("Call", {key: value for key, value in call.items() if key != "rehearsed"}) for call in rehearsed]
    return listed, [*calls[len(rehearsed) :]]


def _is_from(entry: JournalEntry, program: str, number: int | None = None) -> bool:
    """Return whether an observation is of this program; with a number, of this call of it, not made in a rehearsal."""
    about = entry.get("program")
    if about is None or about["id"] != program:
        return False
    return number is None or (about["n"] == number and not about.get("ahead"))
