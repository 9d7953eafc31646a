"""The pauses about one tool call: its approval, and what became of an interrupted write."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from donewhen.graph.context import Deps
from donewhen.graph.executors.relay import relayed_answer, review_decision
from donewhen.graph.pauses.pause import STEP_ID, OpenPause, PermissionPause, ResolvedAnswer, all_options
from donewhen.state.channels import Json
from donewhen.state.language.short_replies import read_word, says_plain_yes
from donewhen.state.language.texts import Unclear, match_option, say, say_why, unclear
from donewhen.state.people.answers import (
    Answer,
    AnswerKind,
    AnswerShape,
    decode_json,
    read_broken_json,
    read_ending,
)
from donewhen.state.people.payload import arguments_text, call_text
from donewhen.state.proof.journal import call_key, canonical_json
from donewhen.state.records import Agreed, Call, Decided, Known, StepChange, decision_on
from donewhen.state.secrets import redact_json
from donewhen.state.settings import Settings
from donewhen.state.values import json_problem, same_json

MOST_AGREED = 2
"""To how many questions of hooks about one call people agree before another one refuses it, and equal calls."""
CALL_ID = STEP_ID + r"\.{}\d+\.[0-9a-f]{{8}}(?:\.\d+)?"


class CallPause(OpenPause):
    """A pause about a call, exactly as it will run."""

    of_run: ClassVar[bool] = False

    tool: str = ""
    arguments: Any = None

    def wording(self) -> str:
        """Return the question alone: what was asked, or the usual words about the tool."""
        return self.question.strip() or say(self.spoken, "ask", self.kind, tool=self.tool or self.name)

    def details(self) -> list[str]:
        """Return the arguments of the call."""
        return [] if self.arguments is None else [call_text(self.call(), self.spoken)]

    def call(self) -> Json:
        """Return the call as it is drawn."""
        return {"tool": self.tool, "arguments": self.arguments}

    def row(self, decided: ResolvedAnswer) -> Json:
        """Return the receipt's row, with the call."""
        return {**super().row(decided), "step": self.step, "tool": self.tool, "arguments": redact_json(self.arguments)}

    def cancel_reason(self, language: str) -> str:
        """Return that the run was cancelled at this call."""
        return say_why(language, "at_call", tool=self.tool)


class ToolPause(PermissionPause, CallPause):
    """The pause that asks to approve a call, or several calls of one reply."""

    topic: ClassVar[str] = "tool"
    action: ClassVar[str] = "approve_tool"
    decisions: ClassVar[tuple[str, ...]] = ("approve", "edit", "reject", "respond")
    shown: ClassVar[tuple[str, ...]] = ("draft", "tool", "arguments", "new", "sources", "diffs", "code", "hook")
    ids: ClassVar[str] = CALL_ID.format("call")
    words_are: ClassVar[AnswerKind] = "reject"
    edit_has_words: ClassVar[bool] = True
    edit_shape: ClassVar[str] = '{"type": "edit", "arguments": {…}}'

    kind: str = "tool"
    batch: list[Json] = []
    new: list[str] = []
    sources: list[Json] = []
    diffs: dict[str, str] = {}
    code: str = ""
    hook: str = ""
    """What a hook asks about the call."""
    relayed: bool = False
    """True if an executor asks."""

    @property
    def legend(self) -> str:
        """The text of the terminal about the keys that answer it."""
        return "keys_tools" if self.batch else super().legend

    def call(self) -> Json:
        """Return the call as it is drawn, with the diffs to what it replaces, and the program that makes it."""
        return {**super().call(), "diffs": self.diffs, "code": self.code}

    def action_arguments(self) -> dict[str, str]:
        """Return the tool and its arguments as JSON."""
        tool, arguments = self.tool or self.name, self.draft or arguments_text(self.arguments or {})
        return {"tool": tool, "arguments": arguments}

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return a decision, an edit, an answer in place of the result, or words, which are the reason of a “no”."""
        if decided := self.read_button(shape):
            return decided
        if shape.verb == "respond":
            return Answer("respond", shape.text) if shape.text else unclear("empty_response")
        return self.read_text(shape.text) if shape.verb == "text" else None

    def planned_words(self) -> Sequence[str]:
        """Return the name of the tool."""
        return [self.tool]

    def read_edit(self, shape: AnswerShape) -> Answer | Unclear:
        """Return the call with the edited arguments; arguments that are not named are kept."""
        tool, before = self.tool or self.name, self.arguments or {}
        if shape.action == tool and tool != self.action:
            arguments: Any = shape.fields
        elif str(shape.fields.get("tool", tool)) != tool:
            return unclear("other_tool", tool=tool)
        elif shape.action is None and "arguments" not in shape.fields and set(before) & set(shape.fields):
            arguments = shape.fields
        else:
            arguments = decode_json(shape.fields.get("arguments"))
        if not isinstance(arguments, Mapping):
            return (read_broken_json(arguments) if isinstance(arguments, str) else None) or unclear("no_arguments")
        edited = {**before, **arguments}
        return Answer("approve") if same_json(edited, before) else Answer("edit", arguments=edited)

    def check(self, values: Mapping[str, Any], answer: Answer, deps: Deps, settings: Settings) -> Answer | str:
        """Return the answer, or what is wrong with edited arguments."""
        if answer.kind == "edit":
            # No model would read words with it.
            unheard = answer.text and (self.relayed or self.tool not in deps.executors.toolbox)
            problem = say(self.spoken, "unclear", "yes_but", said=answer.text, shape=self.edit_shape) if unheard else ""
            return problem or self._find_problem(answer.arguments or {}, deps) or answer
        return super().check(values, answer, deps, settings)

    def _find_problem(self, arguments: Json, deps: Deps) -> str:
        """Return what is wrong with edited arguments, of a tool or of an executor's brief."""
        if unfit := json_problem(arguments):
            return f"the edited arguments cannot be stored: something {unfit}"
        if self.relayed:
            return ""
        if self.tool not in deps.executors.toolbox:
            fits = set(arguments) == {"brief"} and isinstance(arguments["brief"], str)
            return "" if fits else say(self.spoken, "unclear", "one_brief", tool=self.tool)
        tool = deps.executors.toolbox[self.tool]
        if problems := tool.arguments.problems(arguments):
            return "; ".join(problems)
        read = tool.read(arguments)
        changed = {
            key: read.arguments[key] for key, value in arguments.items() if not same_json(read.arguments[key], value)
        }
        if changed and not read.problems:
            shown = canonical_json(changed)[:500]
            return say(self.spoken, "unclear", "edited_call", tool=self.tool, arguments=shown)
        return "; ".join(read.problems)

    def row(self, decided: ResolvedAnswer) -> Json:
        """Return the receipt's row, with the calls beside it, where its arguments come from, and edited arguments."""
        answer = decided.answer
        beside: Json = redact_json({"sources": self.sources or (), "batch": self.batch or ()})
        traced = [*beside["sources"], *(row for each in beside["batch"] for row in each.get("sources") or ())]
        beside["new"] = [*dict.fromkeys(row["value"] for row in traced if row["source"] is None)]
        edited = {"edited": redact_json(answer.arguments or {})} if answer.kind == "edit" else {}
        return {**super().row(decided), **{key: each for key, each in beside.items() if each}, **edited}

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Decide the call and those that are approved with it, or give an executor its answer."""
        answer, record = decided.answer, self.record(values)
        if self.relayed:
            reply = review_decision(answer.kind, answer.text, self.tool, answer.arguments)
            return self.continue_step(values, {"calls": relayed_answer(record["calls"], reply)})
        why, change = answer.text or "no reason given", StepChange()
        first, *rest = record["calls"]
        batch = [row["position"] for row in self.batch]
        ruling: Decided = {"kind": "refused", "why": why, "who": self.answered_by}
        if answer.kind in ("approve", "edit"):
            ruling = {"kind": "approved", "by": decided.by, "name": decided.name}
            before = first.get("agreed", {}).get("times", 0)
            times = before + bool(self.hook) if answer.kind == "approve" else 0
            agreed: Agreed = {"question": self.hook, "name": decided.name, "times": times}
            if self.hook or answer.kind == "edit" or "agreed" not in first:  # a hook's question stays answered
                first = {**first, "agreed": {**agreed, "answered_by": self.answered_by if self.hook else ""}}
            if times >= MOST_AGREED:
                change["asked_often"] = {**record["asked_often"], call_key(first["name"], first["args"]): self.hook}
        if answer.kind == "edit":
            edit: Call = {"edited": True, "edited_by": self.answered_by, "edit_words": answer.text}
            batch, first = [], {**first, "args": answer.arguments or {}, **edit}
            first.pop("given", None)  # they were the model's
        elif answer.kind == "respond":
            batch, ruling = [], {"kind": "answered", "text": answer.text, "who": self.answered_by}
        is_known = answer.kind == "approve" and decision_on(first) == "known"  # that it did not happen counts still
        calls: list[Call] = [first if is_known else {**first, "decided": ruling}]
        calls += [{**call, "decided": ruling} if call.get("position") in batch else call for call in rest]
        gone = {call_key(call["name"], call["args"]): why for call in calls if decision_on(call) == "refused"}
        change["calls"] = calls
        if gone:
            change["rejected"] = {**record["rejected"], **gone}
        return self.continue_step(values, change)


class EffectPause(CallPause):
    """The pause that asks whether an interrupted write took effect."""

    topic: ClassVar[str] = "effect"
    action: ClassVar[str] = "resolve_effect"
    shown: ClassVar[tuple[str, ...]] = ("draft", "tool", "arguments")
    ids: ClassVar[str] = CALL_ID.format("effect")
    refusal: ClassVar[AnswerKind | None] = "skip"

    kind: str = "effect"
    attempt: str = ""
    """The attempt with the unknown outcome."""

    def choices(self) -> list[str]:
        """Return all options, if not only some were given."""
        return all_options(self.options, "once_more" if self.asks_again else self.topic, self.spoken)

    @property
    def asks_again(self) -> bool:
        """True if the call was made, and the question is whether to make it once more."""
        return bool(self.options) and match_option(self.options[0], "once_more")[0] is not None

    def named_option(self, shape: AnswerShape) -> tuple[str, Any, str]:
        """Return what words name; the words for “once more” count only if that is asked."""
        text, key, rest = super().named_option(shape)
        return (text, *match_option(text, "once_more")) if self.asks_again and not key else (text, key, rest)

    def row(self, decided: ResolvedAnswer) -> Json:
        """Return the receipt's row; `again` marks an answer to whether a call that was made is made once more."""
        is_again = self.asks_again and decided.answer.kind in ("happened", "not_happened")
        return {**super().row(decided), **({"again": True} if is_again else {})}

    def understand(self, shape: AnswerShape) -> Answer | Unclear | None:
        """Return an option; ask back for all words that do not say whether it happened, or happens once more."""
        text, key, rest = self.named_option(shape)
        if key and not rest:
            return Answer(key)
        if self.asks_again:
            word = read_word(text)
            if word in ("yes", "no"):
                return Answer("not_happened" if word == "yes" else "happened")
            return read_ending(text) or (self.choose_one(text) if text else None)
        if says_plain_yes(text):  # “go ahead” is a yes too, but not to whether it happened
            return Answer("happened")
        if read_word(text) == "no":
            return unclear("which_no", text)
        return read_ending(text) or (unclear("happened", text) if text else None)

    def change(self, values: Mapping[str, Any], decided: ResolvedAnswer) -> Json:
        """Tell the call what the person knows."""
        first, *rest = self.record(values)["calls"]
        knowledge: Known = {"kind": "known", "effect": decided.answer.kind, "attempt": self.attempt}
        return self.continue_step(values, {"calls": [{**first, "decided": knowledge}, *rest]})
