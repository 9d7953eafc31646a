"""Read the options of a command as plain data. Files that they name are read here, and only here."""

import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from json import loads
from pathlib import Path
from typing import Any

from donewhen import ConfigError, Limits, Settings
from donewhen.agent.cli.result import NOT_OURS
from donewhen.agent.cli.storage_view import StorageView
from donewhen.agent.config import Config, read_profile
from donewhen.agent.request import MISSING
from donewhen.agent.workspace.data.encoding import encoding_of
from donewhen.clients import DEMO, KEYS, attachment_block, read_settings
from donewhen.graph.llm.output import OutputForm


@dataclass(frozen=True)
class Choices:
    """The options of `donewhen run` that a later `resume` must know. JSON."""

    dir: str
    """The absolute path of the folder that the tools may access."""
    model: str = DEMO
    allow_commands: list[str] = field(default_factory=list)
    mcp: str | None = None
    """Absolute path of a file with `mcpServers`."""
    settings: dict[str, Any] = field(default_factory=dict)
    trust_skills: bool = False
    """Follow the folder's own skills and AGENTS.md without asking."""
    box: str = "auto"
    network: bool = False
    """True if programs in a box have the network."""
    env: list[str] = field(default_factory=list)
    """The names of the variables that allowed programs have of our environment."""

    @classmethod
    def read(cls, stored: Mapping[str, Any], thread: str = "this thread") -> "Choices":
        """Read the choices that a thread keeps; raises ConfigError, naming it, if the command did not start it."""
        if not isinstance(stored.get("dir"), str):
            raise ConfigError(f"{thread} {NOT_OURS}")
        return cls(**{key: stored[key] for key in cls.__dataclass_fields__ if key in stored})


@dataclass(frozen=True)
class RunOptions:
    """The options of `run`; the commands that serve an agent have some of them."""

    goal: str = ""
    folder: Path = Path(".")
    model: str | None = None
    thread: str | None = None
    commands: Sequence[str] = ()
    stdin: bool = False
    """Add the text on stdin to the goal."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that have options of their own, by name; None for an option that was left out."""
    latest: bool = False
    """Continue the latest conversation."""
    mcp: Path | None = None
    output_schema: Path | None = None
    images: Sequence[Path] = ()
    profile: Path | None = None
    detach: bool = False
    """Leave it to a worker."""
    template: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    trust_skills: bool = False
    box: str = "auto"
    network: bool = False
    env: Sequence[str] = ()

    def with_assignments(self) -> "RunOptions":
        """Return the options with those of `--set` as settings; those of a template are its parameters.

        Raises ConfigError for a name that no setting has.
        """
        if self.template:
            return self
        return replace(self, settings=add_assignments(self.settings, self.parameters), parameters={})


@dataclass(frozen=True)
class AnswerOptions:
    """The options of `resume` that answer; at most one of the first five."""

    answer: str | None = None
    approve: bool = False
    reject: str | None = None
    cancel: bool = False
    file: Path | None = None
    id: str | None = None
    by: str = ""
    """Who answers."""
    steer: str = ""
    """Not an answer: the instruction by which a stopped run is planned again."""

    def value(self) -> Any:
        """Return the answer to send, or MISSING. Raises ConfigError if there are several."""
        values = [
            *([self.answer] if self.answer is not None else []),
            *([{"type": "approve"}] if self.approve else []),
            *([{"type": "reject", "message": self.reject}] if self.reject is not None else []),
            *([{"type": "cancel"}] if self.cancel else []),
            *([_file_text(self.file)] if self.file is not None else []),
        ]
        if len(values) + bool(self.steer) > 1:
            raise ConfigError("give one: --answer, --approve, --reject, --cancel, --answer-file or --steer")
        if not values and (self.id is not None or self.by):
            option = "--id says which question is answered" if self.id is not None else "--by says who answers"
            raise ConfigError(f"{option}; give the answer too")
        return values[0] if values else MISSING


@dataclass(frozen=True)
class OutputOptions:
    """What a command prints, and whether it may ask."""

    view: StorageView
    yes: bool = False
    events: bool = False
    """Print one JSON object per line for every event, the result last."""
    quiet: bool = False
    """Print only the answer and questions."""
    once: bool = False
    """Ask nothing, and stop after one request."""


def resolve_folder(path: Path) -> str:
    """Return the absolute path of a folder. Raises ConfigError if it does not exist."""
    if not path.is_dir():
        raise ConfigError(f"--dir {str(path)!r} is not a folder")
    return str(path.resolve())


def read_choices(request: RunOptions, config: Config) -> Choices:
    """Return the choices that the options express, for this run and a later `resume`. Raises ConfigError.

    The settings of DONEWHEN_SETTINGS hold where no option says something else.
    """
    if request.mcp is not None and not request.mcp.is_file():
        raise ConfigError(f"--mcp {str(request.mcp)!r} is not a file")
    options = {key: value for key, value in request.settings.items() if value is not None}
    options["limits"] = read_limits(options.get("limits") or ())
    if "default_answer" in options:  # it implies the policy `default`
        options.setdefault("on_question", "default")
    if request.output_schema is not None:
        options["output_schema"] = _schema(request.output_schema)
    if request.profile is not None:
        options["profile"] = {**read_profile(request.profile), **(options.get("profile") or {})}
    if "done_when" in options:
        given = options["done_when"]
        options["done_when"] = [*map(_criterion, [given] if isinstance(given, str | Mapping) else given)]
    if config.timezone:  # it is for this one setting, and what the command prints follows it
        options.setdefault("timezone", config.timezone)
    settings = config.complete(options)
    if options.get("on_question") == "default" and "default_answer" not in settings:
        raise ConfigError("--on-question default needs --default-answer")
    if "question_seconds" in options and settings.get("on_question", "wait") == "wait":
        raise ConfigError("--question-seconds needs --on-question: say what answers after that time")
    mcp = str(request.mcp.resolve()) if request.mcp else None
    model = request.model or config.model or DEMO
    return Choices(
        resolve_folder(request.folder), model, [*request.commands], mcp, settings, request.trust_skills, request.box,
        request.network, [*request.env],
    )  # fmt: skip


def _criterion(text: Any) -> Any:
    """Return a criterion as settings have it: a text, or an object, also if the text is one in JSON."""
    if not isinstance(text, str) or not text.lstrip().startswith("{"):
        return text
    try:
        return loads(text)
    except ValueError as error:
        raise ConfigError(f"--done-when {text!r} is no JSON: {error}") from None


def read_values(assignments: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE options. Raises ConfigError."""
    pairs = [text.partition("=") for text in assignments]
    if wrong := [
        text for text, (key, equals, _) in zip(assignments, pairs, strict=True) if not key.strip() or not equals
    ]:
        raise ConfigError(f"--set {wrong[0]!r} is no parameter; write KEY=VALUE")
    return {key.strip(): value for key, _, value in pairs}


def add_assignments(options: Mapping[str, Any], assignments: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of options with those of `--set NAME=VALUE` added; values are JSON, or else texts.

    `NAME` may be a field of a setting, such as `profile.role`. Raises ConfigError for a name that no setting has.
    """
    settings = dict(options)
    for name, text in assignments.items():
        first, _, inner = name.partition(".")
        if first not in Settings.model_fields:
            meant = "".join(f"; did you mean {each}?" for each in get_close_matches(first, Settings.model_fields, n=1))
            raise ConfigError(f"--set {name!r} is no setting{meant or '; a template is named with --template'}")
        try:
            value = loads(text)
        except ValueError:
            value = text
        try:
            read_settings({} if inner else {first: value})
        except ConfigError as error:
            raise ConfigError(f"--set {name}={text}: {error}") from None
        old = settings.get(first) or {}
        if first == "limits":
            amounts = {inner: text} if inner else value or {}
            settings[first] = [*old, *(f"{key}={amount}" for key, amount in amounts.items())]
        elif inner and not isinstance(old, Mapping):
            raise ConfigError(f"--set {name}={text}: {first} has no fields")
        else:
            settings[first] = {**old, inner: value} if inner else value
    return settings


def _schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in a file. Raises ConfigError if it is invalid."""
    try:
        return OutputForm.for_type(loads(path.read_text(encoding="utf-8-sig"))).schema
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"--output-schema {str(path)!r} cannot be read: {reason}") from None
    except ConfigError as error:
        raise ConfigError(f"--output-schema {str(path)!r}: {error}") from None


def read_attachment(path: Path) -> dict[str, Any]:
    """Return an image or another file as a content block. Raises ConfigError if it cannot be read or is too large."""
    try:
        return attachment_block(path.name, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"--image {str(path)!r} cannot be read: {error.strerror}") from None


def read_limits(texts: Sequence[str]) -> dict[str, float]:
    """Read limits from the command line, by name. Raises ConfigError."""
    return dict(_limits(texts))


def _limits(texts: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Read limits from the command line: `cost_usd=0.5`. Raises ConfigError."""
    for text in texts:
        key, _, amount = text.partition("=")
        try:
            limit = {key.strip(): float(amount.strip().lstrip("$"))}
            Limits.model_validate(limit)
        except ValueError:  # pydantic's errors are ValueErrors
            raise ConfigError(f"--limit {text!r} is no limit; write KEY=AMOUNT, KEY one of {', '.join(KEYS)}") from None
        yield from limit.items()


def _file_text(path: Path) -> str:
    if str(path) == "-":
        return read_stdin()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--answer-file {str(path)!r} cannot be read: {error}") from None
    return _decode(data, f"--answer-file {str(path)!r}")


def read_stdin() -> str:
    """Return the text on stdin, regardless of the locale. Raises ConfigError if it is no text."""
    return _decode(sys.stdin.buffer.read(), "the text on stdin")


def _decode(data: bytes, name: str) -> str:
    if (encoding := encoding_of(io.BytesIO(data))) is None:
        raise ConfigError(f"{name} is not text")
    return data.decode(encoding.codec, "replace").replace("\r\n", "\n")
