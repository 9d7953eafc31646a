"""Skills and AGENTS.md: a user's or project's instructions for work (agentskills.io, agents.md).

The model sees names and descriptions, in the description of the one tool that reads the rest. A project's own files are
followed once a person trusts them. The trust is for their content, so a person is asked again after a change.
"""

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from donewhen.agent.workspace.root import FILE_FLAGS
from donewhen.graph.tools.toolbox import USERS_TEXT
from donewhen.state.errors import ConfigError
from donewhen.state.pattern import pattern

FILE, FOLDER = "SKILL.md", ".agents/skills"
MOST_SKILLS, MOST_FILES, MOST_BYTES = 100, 2_000, 20_000_000
"""Limits of one folder; larger parts are left out, with a warning."""
DESCRIPTION_CHARS, CATALOGUE_CHARS, TEXT_CHARS = 300, 8_000, 200_000
TEXT_FIELDS = ("name", "description")
_NAME = pattern(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_log = logging.getLogger("donewhen.skills")


@dataclass(frozen=True)
class Skill:
    """One folder with a SKILL.md."""

    name: str
    description: str
    folder: Path
    files: Mapping[str, str]
    """Path in the folder → hash of its content."""
    done_when: Sequence[str] = ()
    """The criteria that it proposes."""


@dataclass
class Skills:
    """The skills of a workspace, of the user and of further paths, and the workspace's AGENTS.md.

    `workspace`: a project, whose `.agents/skills` and AGENTS.md are followed once they are trusted. `paths`: folders of
    your own skills. `user`: the folder of the user's skills, None for none. `trust`: True follows the project without
    asking, for automation; False follows it if `remember` recorded that a person trusts it. All files are read when the
    object is made, and later changes are ignored. If two skills share a name, the first wins. A skill that cannot be
    read is left out; `problems` and the logger `donewhen.skills` say why. Raises ConfigError if `workspace` or one of
    `paths` is not a folder.
    """

    workspace: str | Path | None = None
    paths: Sequence[str | Path] = ()
    user: str | Path | None = "~/.agents/skills"
    trust: bool = False
    _skills: dict[str, Skill] = field(default_factory=dict, init=False, repr=False)
    _project: str = field(default="", init=False, repr=False)
    _agents_md: str = field(default="", init=False, repr=False)
    _left_out: list[str] = field(default_factory=list, init=False, repr=False)
    _problems: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.paths, str | Path):
            raise ConfigError(f"skills: paths is a list of folders: write paths=[{str(self.paths)!r}]")
        for path in self.paths:
            self._add(self._find_skills(_check_folder(path), follow=True))
        if self.workspace is not None:
            self._read_project(_check_folder(self.workspace))
        if self.user is not None:
            self._add(self._find_skills(Path(self.user).expanduser(), follow=True))

    def _add(self, skills: Iterator[Skill]) -> None:
        for skill in skills:
            self._skills.setdefault(skill.name, skill)

    def _read_project(self, workspace: Path) -> None:
        skills, text = list(self._find_skills(workspace / FOLDER)), self._read_agents_md(workspace / "AGENTS.md")
        if not skills and not text.strip():
            return
        digest = hashlib.sha256(json.dumps([text, [dict(each.files) for each in skills]]).encode()).hexdigest()
        self._project = f"{workspace.resolve()}\n{digest}"
        if self.trust or digest in _read_trusted():
            self._add(iter(skills))
            self._agents_md = text
        else:
            self._left_out = ["AGENTS.md"] if text.strip() else []
            self._left_out += [f"{FOLDER}/{skill.name}" for skill in skills]

    @property
    def untrusted(self) -> list[str]:
        """Return the project's files that nobody trusts yet."""
        return list(self._left_out)

    def remember(self) -> None:
        """Record in the user's configuration that a person trusts the project in its current state, and follow it."""
        folder, _, digest = self._project.rpartition("\n")
        place = _trust_file()
        place.parent.mkdir(parents=True, exist_ok=True)
        trusted = {**_read_trusted(), digest: folder}
        beside = place.with_suffix(f".{os.getpid()}")
        beside.write_text(json.dumps(trusted, indent=1), "utf-8")
        beside.replace(place)
        self._left_out = []
        self._skills.clear()
        self.__post_init__()

    @property
    def problems(self) -> list[str]:
        """Return one line for each skill, folder or AGENTS.md that was left out because it cannot be read."""
        return list(self._problems)

    @property
    def names(self) -> list[str]:
        """Return the names of the active skills."""
        return list(self._skills)

    @property
    def agents_md(self) -> str:
        """Return the AGENTS.md of the workspace if it is trusted; else ""."""
        return self._agents_md

    def _leave_out(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)
            _log.warning("%s", problem)

    def _read_agents_md(self, path: Path) -> str:
        """Return the text; "" if the file is missing or cannot be read."""
        try:
            return _read_text(path) if os.path.lexists(path) else ""
        except ValueError as error:
            self._leave_out(f"{path} is left out: {error}")
            return ""

    def _find_skills(self, folder: Path, *, follow: bool = False) -> Iterator[Skill]:
        """Yield the skills of a folder, by name; the folder may also be a skill itself.

        `follow`: links to skills are followed, as in folders of the user; in a project they are named as problems.
        """
        try:
            places = sorted(folder.iterdir()) if folder.is_dir() else []
        except OSError as error:
            self._leave_out(f"The skills in {folder} are left out: {error}")
            return
        if len(places) > MOST_SKILLS:
            self._leave_out(f"The skills in {folder} after the first {MOST_SKILLS} are left out")
        for place in (folder, *places[:MOST_SKILLS]):
            try:
                if place.is_symlink() and not place.exists():
                    self._leave_out(f"The skill in {place} is left out: it is a link to nothing")
                elif (place / FILE).is_file() and place.is_symlink() and not (follow or place == folder):
                    self._leave_out(f"The skill in {place} is left out: links of a project are not followed")
                elif (place / FILE).is_file() and (follow or not place.is_symlink()):
                    yield _read_skill(place)
            except (ValueError, OSError) as error:
                self._leave_out(f"The skill in {place} is left out: {error}")

    def tools(self) -> list[BaseTool]:
        """Return the one tool that reads skills; none without skills."""
        if not self._skills:
            return []
        return [
            StructuredTool.from_function(
                self._read,
                name="read_skill",
                description=f"Read a skill of the user before work that it is for, and follow it: {self._catalogue()}",
                metadata={"effect": "read", "users_text": USERS_TEXT},
            )
        ]

    def _catalogue(self) -> str:
        lines, room = list[str](), CATALOGUE_CHARS
        for skill in self._skills.values():
            line = f"\n- {skill.name}: {skill.description[:DESCRIPTION_CHARS]}"
            if (room := room - len(line)) < 0:
                lines.append(f"\n- and {len(self._skills) - len(lines)} more; read any other name to see all names")
                break
            lines.append(line)
        return "".join(lines)

    def _read(self, name: str, file: str = FILE) -> str:
        if (skill := self._skills.get(name)) is None:
            raise ToolException(f"There is no skill {name!r}; there are: {', '.join(self._skills)}.")
        if file not in skill.files:
            raise ToolException(f"The skill has no file {file!r}; it has: {', '.join(skill.files)}.")
        data = _read_bytes(skill.folder / file)
        if data is None or _digest(data) != skill.files[file]:
            raise ToolException(f"{file} of the skill changed since it was read first; it is not followed any more.")
        text = data.decode("utf-8", "replace")[:TEXT_CHARS]
        if file != FILE:
            return text
        more = [each for each in skill.files if each != FILE]
        parts = [text.strip(), f"This skill is in {skill.folder}."]
        parts += [f"Its files, for `file`: {', '.join(more[:200])}."] if more else []
        if skill.done_when:
            parts.append("\n".join(["It proposes for `done_when`:", *(f"- {each}" for each in skill.done_when)]))
        return "\n\n".join(parts)


def _trust_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("donewhen", appauthor=False) / "trusted.json"


def _read_trusted() -> dict[str, str]:
    try:
        return dict(json.loads(_trust_file().read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}  # fails closed: nothing is trusted


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_bytes(path: Path) -> bytes | None:
    """Return the content of a regular file; None for anything else, such as a link, or a large file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | FILE_FLAGS)
    except OSError:
        return None
    with open(descriptor, "rb") as opened:
        about = os.fstat(opened.fileno())
        return opened.read() if stat.S_ISREG(about.st_mode) and about.st_size <= MOST_BYTES else None


def _read_text(path: Path) -> str:
    """Return a text with the line ends of Unix. Raises ValueError if it cannot be read."""
    if (data := _read_bytes(path)) is None:
        raise ValueError(f"{path.name} is not a readable file of at most {MOST_BYTES} bytes; links are not followed")
    return data.decode("utf-8-sig", "replace").replace("\r\n", "\n")


def _check_folder(path: str | Path) -> Path:
    """Return the path of a folder. Raises ConfigError if there is none."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"skills: there is no folder {str(folder)!r}")
    return folder


def _read_skill(place: Path) -> Skill:
    """Return the skill of a folder, or of a link to one. Raises ValueError if it breaks the specification."""
    folder = place.resolve() if place.is_symlink() else place
    text = _read_text(folder / FILE)
    _, begin, rest = text.partition("---\n")
    front, end, _ = rest.partition("\n---")
    if not begin or not end or text.partition("---\n")[0].strip():
        raise ValueError("SKILL.md does not begin with front matter between two lines of ---")
    fields = _read_front_matter(front)
    # YAML aliases can turn a small file into a huge value, so errors print texts only.
    named = (fields.get(key) for key in TEXT_FIELDS)
    name, description = (value if isinstance(value, str) else "" for value in named)
    description = " ".join(description.split())
    if name != place.name or not _NAME.fullmatch(name) or len(name) > 64:
        raise ValueError(f"its name is {name!r}; it must be that of its folder, of small letters, digits and hyphens")
    if not description:
        raise ValueError("it has no description")
    more = fields["metadata"] if isinstance(fields.get("metadata"), Mapping) else {}
    proposed = fields.get("done_when") or more.get("done_when") or []
    criteria = [each for each in (proposed if isinstance(proposed, list) else [proposed]) if isinstance(each, str)]
    return Skill(name, description, folder, _hash_files(folder), criteria)


def _read_front_matter(front: str) -> Mapping[str, Any]:
    """Return the fields. A name and a description that are no texts in YAML (`a: b`, `@x`, `[Beta] x`) are the rest of
    their lines, as other readers of skills take them. Raises ValueError for what is no YAML otherwise.
    """
    blocks: dict[str, list[str]] = {"": []}
    key = ""
    for line in front.splitlines():
        if line[:1] not in (" ", "\t"):
            begins, colon, _ = line.partition(":")
            key = begins if colon and begins in TEXT_FIELDS else ""
        blocks.setdefault(key, []).append(line)
    fields = _read_yaml("\n".join(blocks.pop("")))
    for name, lines in blocks.items():
        value: Any = None
        with suppress(ValueError):
            value = _read_yaml("\n".join(lines)).get(name)
        text = " ".join(line.strip() for line in lines).partition(":")[2].strip()
        fields[name] = value if isinstance(value, str) else text
    return fields


def _read_yaml(text: str) -> dict[Any, Any]:
    """Return a mapping. Raises ValueError for what is no YAML."""
    try:
        fields: Any = yaml.safe_load(text)
    except Exception as error:  # an untrusted file: the parser also raises RecursionError and IndexError
        raise ValueError(f"its front matter is not YAML: {type(error).__name__}: {error}") from None
    return dict(fields) if isinstance(fields, Mapping) else {}


def _hash_files(folder: Path) -> dict[str, str]:
    """Return path → hash of every regular file in a skill. Raises ValueError if it is too large."""
    files, size = dict[str, str](), 0
    for at, inside, names in os.walk(folder):
        inside.sort()
        for name in sorted(names):
            path = Path(at, name)
            if (data := _read_bytes(path)) is None:
                continue
            size += len(data)
            if len(files) >= MOST_FILES or size > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_FILES} files or {MOST_BYTES} bytes")
            files[str(path.relative_to(folder))] = _digest(data)
    return files
