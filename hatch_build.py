"""The README as a package index shows it, where links to files of the repository lead nowhere.

They become links to `Repository` of `[project.urls]`; while there is none, their words stay and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets `readme`, which is dynamic in `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README with absolute links."""
        text = Path(self.root, "README.md").read_text("utf-8")
        repository = (metadata.get("urls") or {}).get("Repository", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, repository)}


def with_absolute_links(text: str, repository: str) -> str:
    """Return a text whose links to files lead to the repository; without one, their words alone."""

    def replace(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository.rstrip('/')}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(replace, text)
