"""What a build makes of this folder beyond `pyproject.toml`: the README and addresses of a package index, and the four
folders of the package, also in a copy of the repository without its symbolic links.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDERS = ("agent", "graph", "prompts", "state")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class IndexPage(MetadataHookInterface):
    """Sets `urls` and `readme`, which are dynamic in `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the addresses, and the README with absolute links: its links to files lead nowhere on a package index."""
        urls = urls_of(os.environ)
        if urls:
            metadata["urls"] = urls
        text = with_absolute_links(Path(self.root, "README.md").read_text("utf-8"), urls.get("Repository", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class LinkedFolders(BuildHookInterface[Any]):
    """Packs the folders to which `donewhen/` links, where a zip or git left text files in place of the links."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files of each folder whose link is none, and leave the text out.

        An editable install needs the links themselves.
        """
        for folder in FOLDERS:
            place = f"donewhen/{folder}"
            if version == "editable" or Path(self.root, place).is_dir():
                continue
            self.build_config.build_reserved_paths.add(place)
            for path in sorted(Path(self.root, folder).rglob("*")):
                packed = f"{place}/{path.relative_to(Path(self.root, folder)).as_posix()}"
                if path.is_file() and "__pycache__" not in path.parts and self.build_config.include_path(packed):
                    build_data["force_include"][str(path)] = packed


def urls_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the repository whose workflow builds; none anywhere else, where nobody knows them."""
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    if not (server and name):
        return {}
    repository = f"{server}/{name}"
    return {
        "Repository": repository,
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


def with_absolute_links(text: str, repository: str) -> str:
    """Return a text whose links to files lead to the repository; without one, their words alone."""

    def replace(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository.rstrip('/')}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(replace, text)
