"""Read an OpenAPI document: its operations with their parameters, and their schemas as JSON Schema."""

import copy
import json
import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import unquote, urljoin
from uuid import NAMESPACE_URL, uuid5

import yaml
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable

from donewhen.graph.tools.toolbox import legal_name
from donewhen.state.errors import ToolError
from donewhen.state.values import Json

log: logging.Logger = logging.getLogger("donewhen.openapi")
Place = Literal["path", "query", "header", "cookie", "body"]

PLACES = ("path", "query", "header", "cookie")
METHODS = ("get", "head", "put", "delete", "post", "patch", "options", "trace")
WITHOUT_TOOL = ("options", "trace")
KEY_HEADERS = ("idempotency-key", "x-idempotency-key")
KEY_ARGUMENT = "idempotency_key"
"""The argument that the runtime fills with the key of the call."""
NO_PARAMETERS = ("accept", "content-type", "authorization")
"""Headers that OpenAPI does not count as parameters."""
JSON_TYPE = re.compile(r"application/([\w.+-]+\+)?json\b", re.IGNORECASE)
FORM, MULTIPART, TEXT = "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"
_NOT_JSON_SCHEMA = ("xml", "externalDocs", "discriminator", "example", "examples", "deprecated", "nullable")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_.-]")
MOST_INLINED = 3
"""The most references, one in another, that are followed in the schema of a result."""
MOST_MERGED = 20
"""The most levels of `allOf` that are read as one object."""


@dataclass(frozen=True)
class Parameter:
    """One argument of an operation, and its place in the request."""

    argument: str
    name: str
    """The name in the request."""
    place: Place
    schema: Json
    required: bool
    style: str = "form"
    explode: bool = True
    as_json: bool = False
    """True if its value is sent as JSON text."""
    filled_in: bool = False
    """True if its value is added to each call, so that it is no argument of the tool."""


@dataclass(frozen=True)
class KeyHeader:
    """The header of an operation that has the key of a call, so that the API makes it once."""

    name: str
    is_uuid: bool
    longest: int | None

    def value(self, key: str) -> str:
        """Return the key as the header takes it: a UUID made of it, if it must be one or is too long."""
        if not self.is_uuid and (self.longest is None or len(key) <= self.longest):
            return key
        made = uuid5(NAMESPACE_URL, key)
        return str(made) if self.longest is None or self.longest >= len(str(made)) else made.hex[: self.longest]


@dataclass(frozen=True)
class Key:
    """A key that an operation needs, by its security scheme."""

    scheme: str
    place: str
    """Its place in the request; "" if no request has it, as with a certificate."""
    name: str


@dataclass(frozen=True)
class LeftOut:
    """A part of the document of which no tool can be made."""

    name: str
    """The name that its tool would have; "" if it is no operation."""
    why: str


@dataclass(frozen=True)
class Operation:
    """One operation, with everything that a request of it needs."""

    name: str
    method: str
    path: str
    """The path with its parameters in braces, as the document has it."""
    server: str | None
    """The address of its server; None if the document names none with a host."""
    description: str
    effect: str
    parameters: Sequence[Parameter]
    media: str
    """The type of the body; "" if it has none."""
    whole_body: bool
    """True if the argument `body` is the whole body; else the arguments of the place `body` are its fields."""
    needs_body: bool
    """True if `{}` is sent where no field is given."""
    key_header: "KeyHeader | None"
    """The header for the key of a call; None if the document declares none."""
    output: Json | None
    """The schema of a successful result, if that is an object."""
    together: Sequence[str] = ()
    """Arguments that must be given if any field of the body is, which as a whole may be left out."""
    definitions: Json = field(default_factory=dict)
    """The schemas to which those of the parameters refer, by name."""
    keys: Sequence[Sequence[Key]] = ()
    """The keys that it needs: all of one of these."""

    @property
    def path_arguments(self) -> list[str]:
        """Return the arguments that name the object of the operation."""
        return [each.argument for each in self.parameters if each.place == "path"]

    @property
    def version_argument(self) -> str:
        """Return the argument for the header If-Match, which takes the ETag of the object; "" if there is none."""
        headers = (each for each in self.parameters if each.place == "header")
        return next((each.argument for each in headers if each.name.lower() == "if-match"), "")

    def needs_only(self, *places: str) -> bool:
        """Return whether a call can leave out all arguments but those of these places."""
        return all(each.place in places or not each.required for each in self.parameters)

    def with_version_filled_in(self) -> "Operation":
        """Return the operation with an If-Match that is no argument of the tool."""
        name = self.version_argument
        filled = [
            replace(each, required=False, filled_in=True) if each.argument == name else each for each in self.parameters
        ]
        return replace(self, parameters=filled)

    def at_version(self, arguments: Json, version: str) -> Json:
        """Return the arguments with this ETag as If-Match, if the operation has one; without any if it is ""."""
        others = {name: value for name, value in arguments.items() if name != self.version_argument}
        return {**others, self.version_argument: version} if version and self.version_argument else others

    def place_of(self, arguments: Mapping[str, Any]) -> Json:
        """Return the values of the path in a call's arguments, by their names in the path."""
        return {each.name: arguments.get(each.argument) for each in self.parameters if each.place == "path"}

    def arguments_at(self, place: Mapping[str, Any]) -> Json:
        """Return the arguments that name the object at these values of the path."""
        return {each.argument: place.get(each.name) for each in self.parameters if each.place == "path"}

    def sent_as(self) -> Json:
        """Return what a request of it is, whatever its arguments are."""
        parameters = [
            [each.argument, each.name, each.place, each.style, each.explode, each.as_json] for each in self.parameters
        ]
        body = [self.media, self.whole_body, self.needs_body]
        header = self.key_header.name if self.key_header else ""
        return {"method": self.method, "path": self.path, "parameters": parameters, "body": body, "key": header}

    def arguments_schema(self) -> Json:
        """Return the JSON Schema of the arguments."""
        own = [each for each in self.parameters if not each.filled_in]
        properties = {each.argument: each.schema for each in own}
        if self.key_header:
            properties[KEY_ARGUMENT] = {"type": "string"}
        schema: Json = {"type": "object", "properties": properties, "additionalProperties": False}
        if required := [each.argument for each in own if each.required]:
            schema["required"] = required
        return {**schema, "$defs": self.definitions} if self.definitions else schema


class Document:
    """An OpenAPI document of version 3; relative servers are below the `address` that it was fetched from."""

    def __init__(self, document: Mapping[str, Any], address: str = "") -> None:
        version = str(document.get("openapi") or "")
        if not version.startswith("3."):
            version_text = (
                f"version {version or document.get('swagger')}" if version or document.get("swagger") else "no version"
            )
            raise ToolError(
                f"the document has {version_text}; OpenAPI 3.0 and 3.1 are read. Convert it, e.g. with swagger2openapi"
            )
        if not isinstance(document.get("paths"), Mapping):
            raise ToolError("the document has no `paths`, so there is nothing to call")
        self._document, self._address = document, address
        self._resolver = Registry().with_resource("", Resource.opaque(document)).resolver("")

    def operations(self, only: Collection[str] | None = None) -> Iterator[Operation | LeftOut]:
        """Yield each operation, or why it cannot be a tool; the log names those of `only` that get another name."""
        names = self._names(only)
        for path, path_item in self._document["paths"].items():
            item = self._follow(path_item)
            for name, value in item.items():
                if isinstance(value, Mapping) and name not in METHODS and not str(name).startswith("x-"):
                    yield LeftOut("", f"{name} {path}: there is no method {name!r}")
            for method in METHODS:
                if not isinstance(item.get(method), Mapping):
                    continue
                operation = self._follow(item[method])
                place = f"{method.upper()} {path}"
                if method in WITHOUT_TOOL:
                    yield LeftOut(str(operation.get("operationId") or ""), f"{place}: it only describes the server")
                    continue
                try:
                    yield self._read(names[str(path), method], method, str(path), item, operation)
                except _CannotBeTool as error:
                    yield LeftOut(names[str(path), method], f"{place}: {error}")
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise ToolError(f"the document is no valid OpenAPI at {place}: {error!r}"[:300]) from error

    def _names(self, only: Collection[str] | None) -> dict[tuple[str, str], str]:
        """Return operations' names by path and method; in that order, the second of two equal ones gets a number."""
        items = ((str(path), self._follow(item)) for path, item in self._document["paths"].items())
        found = [(path, method, self._follow(item[method])) for path, item in items for method in METHODS
                 if isinstance(item.get(method), Mapping) and method not in WITHOUT_TOOL]  # fmt: skip
        first, names = dict[str, str](), dict[tuple[str, str], str]()
        for path, method, operation in sorted(found, key=lambda each: each[:2]):
            own, place = str(operation.get("operationId") or _name_of(method, path)), f"{method.upper()} {path}"
            names[path, method] = name = _free_name(own, first)
            if name != own and (only is None or {own, name} & {*only}):
                other = first[legal_name(own)]
                same, new = legal_name(own), legal_name(name)
                log.warning("two operations have the name %s: %s keeps it, %s is %s", same, other, place, new)
            first[legal_name(name)] = place
        return names

    def _server(self, item: Json, operation: Json) -> str | None:
        """Return the address of an operation's first server that has a host, with its variables' defaults filled in."""
        root: list[Json] = [{"url": "/"}]  # as OpenAPI has it where a document names none
        for server in operation.get("servers") or item.get("servers") or self._document.get("servers") or root:
            url = str(server.get("url", ""))
            for name, variable in (server.get("variables") or {}).items():
                url = url.replace("{" + name + "}", str(variable.get("default", "")))
            url = urljoin(self._address, url)
            if url.startswith(("http://", "https://")):
                return url
        return None

    def _schemes(self) -> dict[str, Json]:
        schemes = self._follow(self._follow(self._document.get("components")).get("securitySchemes"))
        return {str(name): self._follow(each) for name, each in schemes.items()}

    def key_names(self) -> set[str]:
        """Return the names of headers and parameters that hold keys, in small letters."""
        return {str(each.get("name", "")).lower() for each in self._schemes().values()} - {""}

    def _keys(self, operation: Json) -> list[list[Key]]:
        """Return the keys that an operation needs: all of one of these. An empty one says that it needs none."""
        schemes, needs = self._schemes(), operation.get("security", self._document.get("security"))
        needs = [each for each in needs if isinstance(each, Mapping)] if isinstance(needs, list) else []
        return [[_key(str(name), schemes.get(str(name), {})) for name in each] for each in needs]

    def _read(self, name: str, method: str, path: str, item: Json, operation: Json) -> Operation:
        schemas = _Schemas(self)
        declared_parameters = [
            self._follow(each) for each in [*(item.get("parameters") or ()), *(operation.get("parameters") or ())]
        ]
        declared = {
            (each["name"], each["in"]): each for each in declared_parameters
        }  # those of the operation replace the path's
        parameters, key_header = list[Parameter](), cast("KeyHeader | None", None)
        for (own, place), each in declared.items():
            if place == "header" and (own.lower() in KEY_HEADERS or each.get("x-idempotency-key") is True):
                key_header = self._key_header(own, each)
            elif not (place == "header" and own.lower() in NO_PARAMETERS):
                parameters.append(self._parameter(each, schemas, parameters))
        media, whole, together = "", False, list[str]()
        if body := self._follow(operation.get("requestBody")):
            media, whole, fields = self._body(body, schemas, parameters)
            if body.get("required") is False and not whole:
                together = [each.argument for each in fields if each.required]
                fields = [replace(each, required=False) for each in fields]
            parameters += fields
        needs_body = bool(body.get("required") and JSON_TYPE.match(media) and not whole)
        missing = {*re.findall(r"\{([^{}]+)\}", path)} - {each.name for each in parameters if each.place == "path"}
        if missing:
            raise _CannotBeTool(f"its path has {', '.join(sorted(missing))}, which no parameter describes")
        description = _describe(operation, item, method, path)
        if together:
            description += f" A body with any field needs {', '.join(together)}."
        return Operation(
            name, method, path, self._server(item, operation), description, self._effect(operation, method), parameters,
            media, whole, needs_body, key_header, self._output(operation), together, schemas.definitions,
            self._keys(operation),
        )  # fmt: skip

    def _key_header(self, name: str, declared: Json) -> KeyHeader:
        schema = self._follow(declared.get("schema"))
        longest = schema.get("maxLength")
        return KeyHeader(name, schema.get("format") == "uuid", longest if isinstance(longest, int) else None)

    def _parameter(self, declared: Json, schemas: "_Schemas", others: Sequence[Parameter]) -> Parameter:
        place: Place = declared["in"]
        if place not in PLACES:
            raise ValueError(f"the parameter {declared['name']} is in {place!r}")
        contents = declared.get("content") or {}
        as_json = any(JSON_TYPE.match(each) for each in contents)
        content = self._follow(next(iter(contents.values()), {}))
        schema = schemas.read(declared.get("schema") or content.get("schema") or {})
        if text := declared.get("description"):
            schema = {**schema, "description": str(text)}
        style = str(declared.get("style") or ("form" if place in ("query", "cookie") else "simple"))
        argument = _free_argument(declared["name"], place, others)
        explode = bool(declared.get("explode", style == "form"))
        required = bool(declared.get("required")) or place == "path"
        return Parameter(argument, declared["name"], place, schema, required, style, explode, as_json)

    def _body(self, body: Json, schemas: "_Schemas", others: Sequence[Parameter]) -> tuple[str, bool, list[Parameter]]:
        contents = body.get("content") or {}
        media = next((each for each in contents if JSON_TYPE.match(each)), None)
        media = media or next((each for each in (FORM, MULTIPART, TEXT) if each in contents), None)
        if media is None and "*/*" in contents:
            contents, media = {"application/json": contents["*/*"]}, "application/json"
        required = bool(body.get("required"))
        if media is None:
            if required or contents:  # without its body, a PUT of a file would leave an empty one
                raise _CannotBeTool(f"its body is {', '.join(contents) or 'of no type'}")
            return "", False, []
        body_schema = self._follow(contents[media]).get("schema") or {}
        merged = self.merged(body_schema) if media != TEXT else None
        if media == MULTIPART and any(map(self._is_file, (merged or {}).get("properties", {}).values())):
            raise _CannotBeTool("its body has files")
        taken = {each.argument for each in others} | {KEY_ARGUMENT}
        names = (merged or {}).get("properties") or {}
        if not names or taken & {_NOT_IN_NAMES.sub("_", name) for name in names}:
            schema = {"type": "string"} if media == TEXT else schemas.read(body_schema)
            if media in (FORM, MULTIPART) and not names:
                raise _CannotBeTool(f"its body is {media} without fields")
            argument = "body" if "body" not in taken else "request_body"
            return media, True, [Parameter(argument, "", "body", schema, required)]
        wanted = {*(merged or {}).get("required", ())}
        fields = list[Parameter]()
        for name, each in names.items():
            if not self._follow(each).get("readOnly"):
                argument = _free_argument(name, "body", [*others, *fields])
                fields.append(Parameter(argument, name, "body", schemas.read(each), name in wanted))
        return media, False, fields

    def _is_file(self, node: Any) -> bool:
        schemas = [schema := self._follow(node), self._follow(schema.get("items"))]
        kinds = [str(each.get("contentMediaType") or TEXT) for each in schemas if not each.get("contentEncoding")]
        return any(each.get("format") == "binary" for each in schemas) or any(
            not (kind.startswith("text/") or JSON_TYPE.match(kind)) for kind in kinds
        )

    def merged(self, node: Json, depth: int = 0) -> Json | None:
        """Return a schema, with its `allOf`, as one object with all fields; None if it is no object."""
        schema = self._follow(node)
        if depth > MOST_MERGED or schema.get("oneOf") or schema.get("anyOf"):
            return None
        properties, required = Json(), list[str]()
        for part in schema.get("allOf") or ():
            if (inner := self.merged(part, depth + 1)) is None:
                return None
            properties, required = properties | inner["properties"], [*required, *inner["required"]]
        properties, required = (
            properties | (schema.get("properties") or {}),
            [*required, *(schema.get("required") or ())],
        )
        kind = schema.get("type")
        if kind not in (None, "object", ["object"]) or (not properties and kind is None and not schema.get("allOf")):
            return None
        return {"properties": properties, "required": required}

    def _effect(self, operation: Json, method: str) -> str:
        effect = operation.get("x-effect")
        if effect is not None and effect not in ("read", "idempotent", "write"):
            raise ToolError(
                f"x-effect of {operation.get('operationId')} is {effect!r}; it must be read, idempotent or write"
            )
        return str(
            effect or {"get": "read", "head": "read", "put": "idempotent", "delete": "idempotent"}.get(method, "write")
        )

    def _output(self, operation: Json) -> Json | None:
        for status, response in (operation.get("responses") or {}).items():
            if str(status).startswith("2"):
                contents = self._follow(response).get("content") or {}
                for media, each in contents.items():
                    if JSON_TYPE.match(media) and (schema := self._follow(each).get("schema")):
                        return _Schemas(self, in_place=True).read(schema)
        return None

    def _follow(self, node: Any) -> Json:
        for _ in range(MOST_MERGED):
            if not (isinstance(node, Mapping) and isinstance(ref := node.get("$ref"), str)):
                break
            node = self.look_up(ref)
        return dict(node) if isinstance(node, Mapping) else {}

    def look_up(self, ref: str) -> Any:
        """Return what a reference within the document leads to. Raises ToolError if it leads nowhere."""
        try:
            return self._resolver.lookup(ref).contents
        except (Unresolvable, ValueError, TypeError):  # the last two come from a name within a list, or in a number
            inside = ref.startswith("#")
            why = (
                "there is nothing of that name" if inside else "only references within the document are read: bundle it"
            )
            raise ToolError(f"the document refers to {ref[:200]!r}, and {why}") from None


class _CannotBeTool(Exception):
    """Says why an operation is left out."""


class _Schemas:
    """Turns schemas of a document into JSON Schema, and collects those to which they refer.

    With `in_place`, each of these replaces the reference to it; what is nested too deeply, or in itself, is left out.
    """

    def __init__(self, document: Document, *, in_place: bool = False) -> None:
        self._document = document
        self._in_place = in_place
        self._names = dict[str, str]()
        self.definitions: Json = {}

    def read(self, schema: Any) -> Json:
        """Return a schema as JSON Schema, with references into `$defs`."""
        converted = self._read(schema)
        return converted if isinstance(converted, dict) else {}

    def _read(self, node: Any, above: tuple[str, ...] = ()) -> Any:
        if isinstance(node, list):
            return [self._read(each, above) for each in node]
        if not isinstance(node, Mapping):
            return node
        if isinstance(ref := node.get("$ref"), str):
            if not self._in_place:
                return {"$ref": f"#/$defs/{self._define(ref)}"}
            is_deep = ref in above or len(above) > MOST_INLINED
            return {} if is_deep else self._read(self._document.look_up(ref), (*above, ref))
        read: Json = {}
        for key, value in node.items():
            if key in _NOT_JSON_SCHEMA or key.startswith("x-"):
                continue
            if key in ("properties", "patternProperties", "$defs", "definitions"):
                fields = value if isinstance(value, Mapping) else {}
                read[key] = {name: self._read(each, above) for name, each in fields.items()}
            elif key in ("enum", "const", "default", "required"):
                read[key] = copy.deepcopy(value)
            else:
                read[key] = self._read(value, above)
        for bound, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(read.get(bound), bool):  # of OpenAPI 3.0
                is_exclusive = read.pop(bound)
                if is_exclusive and inclusive in read:
                    read[bound] = read.pop(inclusive)
        if node.get("nullable") is True:
            read = _or_null(read)
        return read

    def _define(self, ref: str) -> str:
        if (name := self._names.get(ref)) is None:
            name = legal_name(_free_name(unquote(ref.rpartition("/")[2]), self.definitions))
            self._names[ref] = name
            self.definitions[name] = {}  # it may refer to itself
            self.definitions[name] = self._read(self._document.look_up(ref))
        return name


def _or_null(schema: Json) -> Json:
    if isinstance(schema.get("type"), str):
        with_null = {**schema, "type": [schema["type"], "null"]}
        return (
            {**with_null, "enum": [*schema["enum"], None]}
            if "enum" in schema and None not in schema["enum"]
            else with_null
        )
    return {"anyOf": [schema, {"type": "null"}]}


def _key(scheme: str, declared: Json) -> Key:
    if declared.get("type") == "mutualTLS":
        return Key(scheme, "", "")
    place, name = str(declared.get("in") or ""), str(declared.get("name") or "")
    return Key(scheme, place, name) if place and name else Key(scheme, "header", "Authorization")


def _describe(operation: Json, item: Json, method: str, path: str) -> str:
    texts = [
        str(each).strip()
        for each in (operation.get("summary"), operation.get("description") or item.get("description"))
        if each
    ]
    texts = [texts[0] if texts[0].endswith((".", "!", "?")) else f"{texts[0]}.", *texts[1:]] if texts else []
    deprecated = ["Deprecated."] if operation.get("deprecated") else []
    return " ".join([*dict.fromkeys(texts), *deprecated, f"({method.upper()} {path})"])


def _name_of(method: str, path: str) -> str:
    words = re.findall(r"\w+", path)
    return "_".join([method, *words]) or method


def _free_name(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number if its form for models is taken."""
    made, number = name, 2
    while legal_name(made) in taken:
        made, number = f"{name}_{number}", number + 1
    return made


def _free_argument(name: str, place: Place, others: Sequence[Parameter]) -> str:
    made, taken = _NOT_IN_NAMES.sub("_", name)[:64] or place, {each.argument for each in others} | {KEY_ARGUMENT}
    while made in taken:
        made = f"{made}_{place}"
    return made


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML as OpenAPI has it: dates are texts, and only `true` and `false` are booleans."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":bool"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|false|True|False|TRUE|FALSE"), [*"tTfF"])


def load_document(source: Mapping[str, Any] | str | Path) -> Json:
    """Return a document, given as a mapping, as text (JSON or YAML), as a path, or by its address.

    Raises ToolError if it cannot be found or read.
    """
    if isinstance(source, Mapping):
        return dict(source)
    try:
        if isinstance(source, Path) or ("\n" not in source and not source.lstrip().startswith("{")):
            text = (
                _fetch(str(source))
                if str(source).startswith(("http://", "https://"))
                else Path(source).read_text("utf-8")
            )
        else:
            text = source
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"the OpenAPI document {str(source)[:200]!r} cannot be read: {error}") from None
    try:
        read = json.loads(text) if text.lstrip().startswith("{") else yaml.load(text, _Loader)
    except (json.JSONDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ToolError(f"the OpenAPI document is neither JSON nor YAML: {str(error)[:300]}") from None
    if not isinstance(read, dict):
        raise ToolError(f"the OpenAPI document is {type(read).__name__}, not an object")
    return {str(key): _with_text_keys(each) for key, each in read.items()}


def _with_text_keys(node: Any) -> Any:
    if isinstance(node, dict):
        return {str(key): _with_text_keys(each) for key, each in node.items()}
    return [_with_text_keys(each) for each in node] if isinstance(node, list) else node


def _fetch(url: str) -> str:
    import httpx

    try:
        answer = httpx.get(url, follow_redirects=True, timeout=30)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise ToolError(f"the OpenAPI document {url} cannot be fetched: {error}") from None
    return answer.text
