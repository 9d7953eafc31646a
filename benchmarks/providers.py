"""`python -m benchmarks.providers`: writes what was tried for each provider into docs/client_tests.md, from tests.

`make providers` runs the tests themselves, over servers on loopback that send and refuse what providers do.
"""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from donewhen.graph.llm.provider_texts import NO_CREDIT, RATE_LIMITED, TOO_LONG, TOO_MANY_TOOLS
from tests.kit.providers.dialects import DIALECTS
from tests.kit.providers.forms import FORMS, STRICTER
from tests.providers import test_endings, test_incoming, test_limits, test_schemas, test_slips
from tests.reports import test_data_files, test_files, test_mcp_servers, test_models

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "client_tests.md"
HEADING = "## Providers of models\n"
REPORT = re.compile(r"[\w.-]+/[\w.-]+#\d+")
ONE = {"OpenAI chat": "OpenAI", "OpenAI Responses": "OpenAI", "Bedrock Converse": "Bedrock"}
COLUMNS = (
    "provider",
    "a run goes on with it",
    "ends of replies",
    "window",
    "errors",
)
NOT_NAMED = ("a class of the user's", "an old Ollama", "a blocked prompt")


def section() -> str:
    """Return the section of the page, with its heading."""
    rows = sorted(_rows().items(), key=lambda row: row[0].lower())
    whole = (f"| {name} | {' | '.join(cells)} |" for name, cells in rows if any(cells[:-1]))
    errors = ", ".join(f"{name} {cells[-1]}" for name, cells in rows if not any(cells[:-1]))
    many = len(FORMS)
    tables = {
        "of adapters of models": test_models.REPORTS,
        "of clients of MCP": {**test_mcp_servers.REPORTS, **test_mcp_servers.SESSIONS},
        "of files": {**test_files.NAMES, **test_files.EDITS, test_files.TWO_FILES: None},
        "of data": test_data_files.REPORTS,
    }
    reports = {name: sorted(filter(REPORT.fullmatch, of), key=str.lower) for name, of in tables.items()}
    listed = ", ".join(f"{len(of)} {name}" for name, of in reports.items())
    return "\n".join(
        (
            HEADING,
            "`make providers` plays it without a network: "
            f"{many * many} changes of the model in the middle of a step, each of {many} wire forms to each; "
            f"{len(test_incoming.FORMS_OF_STREAMS)} forms of streams; {len(test_slips.SLIPS)} slips of models; "
            f"{len(DIALECTS)} dialects of printed calls; {len(test_schemas.ODD)} odd schemas of tools.",
            "",
            f"| {' | '.join(COLUMNS)} |",
            f"|{'---|' * len(COLUMNS)}",
            *whole,
            "",
            f"Of others, only errors were tried: {errors}.",
            "",
            f"{sum(map(len, reports.values()))} reports of other projects are tests (`tests/reports`): {listed}.",
            "",
        )
    )


def _rows() -> dict[str, list[str]]:
    texts = (
        name for text in (*TOO_LONG, *NO_CREDIT, *RATE_LIMITED, *TOO_MANY_TOOLS) for name in text.provider.split(", ")
    )
    ends = {**test_endings.ENDS, **{name: of[-1] for name, of in test_endings.RECORDED.items()}}
    goes_on, refused, said = _count((*FORMS, *STRICTER)), _count(test_limits.SERVERS), _count(texts)
    ended = Counter[str]()
    for name, kinds in ends.items():
        ended[ONE.get(name, name)] += sum(map(len, kinds.values()))
    names = {*goes_on, *refused, *said, *ended} - {*NOT_NAMED}
    return {
        name: ["yes" if goes_on[name] else "", *(str(each[name] or "") for each in (ended, refused, said))]
        for name in names
    }


def _count(names: Iterable[str]) -> Counter[str]:
    return Counter(ONE.get(name, name) for name in names)


def main() -> None:
    """Replace the section of the page."""
    text = DOCUMENT.read_text("utf-8")
    before, _, after = text.partition(HEADING)
    later = after[at:] if (at := after.find("\n## ")) >= 0 else ""
    DOCUMENT.write_text(f"{before.rstrip()}\n\n{section().rstrip()}\n{later}", "utf-8")


if __name__ == "__main__":
    main()
