"""Check a profile's path constraints on calls, by the paths among their arguments. Pure."""

import mimetypes
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from langchain_core.tools import BaseTool

from donewhen.graph.tools.schema import parameters_of, schema_for_model
from donewhen.state.pattern import pattern

_FILE = ("path", "file", "filename", "filepath", "dir", "directory", "folder")
PATH = frozenset((*_FILE, *(f"{word}s" for word in _FILE), "directories", "cwd"))
"""Last words of argument names that always mean a path."""
MAYBE = frozenset(("source", "src", "destination", "dest", "dst", "root", "from", "to", "target", "output"))
"""Last words of argument names that mean a path if the value looks like one, or the tool is about files."""
LINK = frozenset(("uri", "uris", "url", "urls", "href", "link", "links"))
"""Last words of argument names that mean a path if the value is a `file:` URI."""
OTHER_PATHS = frozenset(
    ("json", "x", "xml", "key", "css", "class", "object", "property", "url", "http", "api", "route")
)
"""Words that make a following `path` another kind of path."""
FORMATS = frozenset(("path", "file-path", "directory-path"))
_WORD = pattern(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SCHEME = pattern(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]{1,60}://")
_ENDINGS = {*mimetypes.MimeTypes().types_map[True], ".md", ".yaml", ".yml", ".toml", ".log", ".ini", ".jsonl", ".env"}
_MOST_NESTED = 30


def paths_of(arguments: Mapping[str, Any], tool: BaseTool | None = None, schema: Any = None) -> Iterator[str]:
    """Yield the paths among a call's arguments, at any depth, as written; for `file:` URIs, their path.

    Tools declare them in `metadata["paths"]` as names of arguments, nested ones as `edits.path`; an empty list means
    there are none. Otherwise the schema's `format` decides (`path`, `file-path`, `uri`), else the name (`out_dir`,
    `filePath`, `source`). `schema` is the schema of the arguments, if at hand.
    """
    declared = (tool.metadata or {}).get("paths") if tool else None
    if declared is not None:
        for name in [declared] if isinstance(declared, str) else declared:
            yield from map(_without_scheme, _texts(_values_under(arguments, name.replace("[]", "").split("."))))
        return
    about_files = tool is not None and any(word in PATH for word in _words(tool.name))
    yield from _find_paths(arguments, _schema(tool) if schema is None else schema, about_files, 0)


def path_problem(
    arguments: Mapping[str, Any], allowed: Sequence[str], tool: BaseTool | None = None, schema: Any = None
) -> str | None:
    """Return why a call with these arguments breaks `Profile.allowed_paths`; None if it does not.

    The paths are compared as written, with `..` resolved; the tool must confine where they really lead.
    """
    if not allowed:
        return None
    roots = [posixpath.normpath(path) for path in allowed]
    outside = [path for path in paths_of(arguments, tool, schema) if not any(_is_under(path, root) for root in roots)]
    return f"{', '.join(outside)[:200]} lies outside of {', '.join(allowed)}" if outside else None


def _find_paths(value: Any, schema: Any, about_files: bool, depth: int) -> Iterator[str]:
    """Yield the paths in the properties of an object, or of the objects in a list."""
    if depth > _MOST_NESTED:
        return
    if isinstance(value, list):
        for each in value:
            yield from _find_paths(each, _part(schema, "items"), about_files, depth + 1)
    if not isinstance(value, Mapping):
        return
    for name, inner in value.items():
        part = _part(_part(schema, "properties"), str(name))
        is_path = _kind(str(name), part, about_files)
        yield from (_without_scheme(text) for text in _texts(inner) if is_path(text))
        if isinstance(inner, Mapping) and str(name).lower() in ("files", "paths"):
            yield from (str(key) for key in inner if _looks_like(str(key)))
        if isinstance(inner, Mapping) and str(name).lower() == "paths":  # by some name; under "files" it is a content
            yield from (
                _without_scheme(text) for below in inner.values() for text in _texts(below) if _looks_like(text)
            )
        yield from _find_paths(inner, part, about_files, depth + 1)


def _kind(name: str, schema: Any, about_files: bool) -> Any:
    """Return a predicate for whether a text under this name is a path."""
    words = _words(name)
    last, before = (words or [""])[-1], (words or [""])[:-1][-1:]
    form = _part(schema, "format") or _part(_part(schema, "items"), "format")
    if form in FORMATS:
        return lambda text: True
    if last in LINK or form in ("uri", "uri-reference"):
        return lambda text: text.lower().startswith("file:")
    if last in PATH and not (last in ("path", "paths") and OTHER_PATHS.intersection(before)):
        return lambda text: not text.startswith(("$.", "$["))
    if last in MAYBE:
        return lambda text: about_files or (_looks_like(text) and not _SCHEME.match(text))
    return lambda text: False


def _looks_like(text: str) -> bool:
    return "/" in text or "\\" in text or text.startswith((".", "~")) or posixpath.splitext(text)[1] in _ENDINGS


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def _texts(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield the text, or the texts in a list, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and depth < _MOST_NESTED:
        for each in value:
            yield from _texts(each, depth + 1)


def _values_under(value: Any, names: Sequence[str]) -> Any:
    """Return the value at a path of names; lists on the way are expanded."""
    if isinstance(value, list):
        found = [_values_under(each, names) for each in value]
        return [one for each in found for one in (each if isinstance(each, list) else [each])]
    if not names:
        return value
    return _values_under(value[names[0]], names[1:]) if isinstance(value, Mapping) and names[0] in value else None


def _schema(tool: BaseTool | None) -> Any:
    try:
        return schema_for_model(parameters_of(tool)) if tool else None
    except ValueError:
        return None


def _part(schema: Any, name: str) -> Any:
    """Return a part of a schema, also from the alternatives of an optional argument, or None."""
    if not isinstance(schema, Mapping):
        return None
    if name in schema:
        return schema[name]
    kinds = [each for key in ("anyOf", "oneOf", "allOf") for each in schema.get(key, ())]
    return next((found for each in kinds if (found := _part(each, name)) is not None), None)


def _without_scheme(path: str) -> str:
    """Return the path of a `file:` URI; any other text unchanged."""
    return unquote(urlsplit(path).path) if path.lower().startswith("file:") else path


def _is_under(path: str, root: str) -> bool:
    """Return whether a path is under the root, even if the tool reads `\\` as `/`."""
    return "\0" not in path and all(_is_under_exactly(form, root) for form in {path, path.replace("\\", "/")})


def _is_under_exactly(path: str, root: str) -> bool:
    plain = posixpath.normpath(path)
    if root == ".":
        return not plain.startswith(("/", "..", "~"))
    return plain == root or plain.startswith(root.rstrip("/") + "/")
