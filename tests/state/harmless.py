"""Two hundred outputs as tools give them, none of which holds a credential: errors, git logs, lock files, code."""

import base64
import hashlib
import json
import random
import uuid

_rng = random.Random(7)


def _sha(size: int = 40) -> str:
    return hashlib.sha512(str(_rng.random()).encode()).hexdigest()[:size]


def _integrity() -> str:
    return "sha512-" + base64.b64encode(bytes(_rng.randrange(256) for _ in range(64))).decode()


ERRORS = (
    "SyntaxError: Unexpected token: ')'",
    "SyntaxError: Unexpected token '<', \"<!DOCTYPE \"... is not valid JSON",
    "SyntaxError: Unexpected token export at /tmp/tmp{h8}/index.js:12",
    "JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
    "ParseError: unexpected token: identifier (line {n})",
    "FileNotFoundError: [Errno 2] No such file or directory: '/tmp/pytest-of-root/pytest-{n}/test_{h8}/out.txt'",
    "PermissionError: [Errno 13] Permission denied: '/var/folders/zz/{h32}/T/tmp{h8}'",
    "KeyError: '{uuid}'",
    "HTTPError: 404 Not Found: https://api.example.org/v1/items/{uuid}?page_token=CAUQAA{n}",
    "HTTPError: 401 Unauthorized: token expired at 2026-11-02T10:{m}:00Z",
    "AuthError: password: must have at least 8 characters",
    "ValidationError: 2 validation errors for User\npassword: Field required\ntoken: String should have 1 character",
    "error: authentication token is missing; Bearer authentication failed",
    "fatal: could not read Password for 'https://github.com': terminal prompts disabled",
    "fatal: bad object {sha}",
    "error: pathspec '{h8}' did not match any file(s) known to git",
    'OperationalError: connection to server at "127.0.0.1", port 54{m} failed: Connection refused',
    "sqlite3.IntegrityError: UNIQUE constraint failed: users.api_key",
    "TypeError: connect() got an unexpected keyword argument 'password'",
    "NameError: name 'secret_key' is not defined",
    'Secret "db-{h8}" not found in namespace "shop-{n}"',
    'kubectl: secrets "tls-{n}" is forbidden: User "ann" cannot get resource "secrets"',
    "docker: Error response from daemon: manifest for app@sha256:{h64} not found",
    "max_tokens: {n} is above the limit, tokens=4096, token budget exceeded",
    "npm ERR! code EINTEGRITY: {integrity} integrity checksum failed",
    "AssertionError: assert '{h32}' == '{h32b}'",
)
GIT = "commit {sha}\nMerge: {h8} {h7}\nAuthor: Ann <ann@example.org>\nDate:   Mon Nov 2 10:{m}:00 2026\n\n    {said}\n"
SAID = ("Rotate the API key of the shop", "Read the token from the environment", "password: say why it is refused",
        "Fix token: count once", "Secrets stay out of logs")  # fmt: skip
CODE = (
    'const a=t=>{{let e=t.token;return e===")"?n(e):r(e)}},secret=s.get("{h8}"),password=u.value;export{{a as b}}',
    "def login(user, password):\n    token = issue(user, {n})\n    return {{'token': token, 'password': password}}\n",
    "api_key = os.environ['API_KEY']\nclient = Client(api_key=api_key, timeout={n})\n",
    "if (!password) throw new Error('password is empty');\nconst token = await getToken({{ scope: 's{n}' }});",
    'resource "aws_iam_access_key" "ci" {{\n  user = aws_iam_user.ci{n}.name\n}}\n',
    'url = f"postgresql://{{user}}:{{password}}@{{host}}:{n}/db"',
)


def _fill(text: str) -> str:
    return text.format(
        n=_rng.randrange(1, 9000), m=_rng.randrange(10, 59), sha=_sha(), h7=_sha(7), h8=_sha(8), h32=_sha(32),
        h32b=_sha(32), h64=_sha(64), uuid=uuid.UUID(int=_rng.getrandbits(128)), integrity=_integrity(),
        said=_rng.choice(SAID),
    )  # fmt: skip


def _npm() -> str:
    name = _rng.choice(("js-tokens", "keyv", "@babel/core", "tokenizr", "get-secret"))
    url = f"https://registry.example.org/{name}/-/{name.split('/')[-1]}-4.0.{_rng.randrange(9)}.tgz"
    return json.dumps({f"node_modules/{name}": {"resolved": url, "integrity": _integrity()}}, indent=2)


def _poetry() -> str:
    return f'[[package]]\nname = "tokenize-rt"\nfiles = [{{file = "x.whl", hash = "sha256:{_sha(64)}"}}]\n'


def _go() -> str:
    word = base64.b64encode(bytes(_rng.randrange(256) for _ in range(32))).decode()
    return f"github.com/golang-jwt/jwt/v5 v5.2.1 h1:{word}\n"


HARMLESS = [
    *(_fill(text) for text in ERRORS for _ in range(3)),
    *(_fill(GIT) for _ in range(40)),
    *(_fill(text) for text in CODE for _ in range(5)),
    *(make() for make in (_npm, _poetry, _go) for _ in range(20)),
]
