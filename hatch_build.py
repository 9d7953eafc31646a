"""What a build makes of this folder beyond `pyproject.toml`: the README and addresses of a package index, and the four
folders of the package, also in a copy of the repository without its symbolic links.
"""

import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

FOLDERS = ("agent", "graph", "prompts", "state")
NO_ADDRESS = (
    "The package page will not lead to the repository, and its README has neither links to files nor pictures: write "
    "the address under [tool.hatch.metadata.hooks.custom] in pyproject.toml."
)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


class IndexPage(MetadataHookInterface):
    """Sets `urls` and `readme`, which are dynamic in `pyproject.toml`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the addresses, and the README with absolute links: its links to files lead nowhere on a package index."""
        urls = urls_of(self.config.get("repository", ""), os.environ)
        if urls:
            metadata["urls"] = urls
        text = with_absolute_links(Path(self.root, "README.md").read_text("utf-8"), urls.get("Repository", ""))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class LinkedFolders(BuildHookInterface[Any]):
    """Packs the folders to which `donewhen/` links, where a zip or git left text files in place of the links."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files of each folder whose link is none, and leave the text out."""
        missing = [folder for folder in FOLDERS if not Path(self.root, "donewhen", folder).is_dir()]
        if version == "editable":
            self.make_importable(missing)
            return
        if not self.metadata.core.urls:
            self.app.display_warning(NO_ADDRESS)
        for folder in missing:
            place = f"donewhen/{folder}"
            self.build_config.build_reserved_paths.add(place)
            for path in sorted(Path(self.root, folder).rglob("*")):
                packed = f"{place}/{path.relative_to(Path(self.root, folder)).as_posix()}"
                if path.is_file() and "__pycache__" not in path.parts and self.build_config.include_path(packed):
                    build_data["force_include"][str(path)] = packed

    def make_importable(self, missing: list[str]) -> None:
        """Link `donewhen/` from a folder that holds nothing else, which an editable install puts on Python's path.

        This folder itself cannot be put there: it holds an `agent` and a `state`.
        """
        if missing:
            self.app.abort(
                f"donewhen/{missing[0]} is no folder: this copy was made without its symbolic links (a zip, or git "
                "with core.symlinks=false), which an editable install needs. Install it without --editable, or make "
                "the links: git config core.symlinks true && git checkout -- donewhen"
            )
        link = Path(self.root, *self.build_config.dev_mode_dirs, "donewhen")
        if not link.is_symlink():
            shutil.rmtree(link.parent, ignore_errors=True)  # what a program that copies no links made of it
            link.parent.mkdir(exist_ok=True)
            with suppress(FileExistsError):
                link.symlink_to(Path("..", "donewhen"), target_is_directory=True)


def urls_of(repository: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of this repository, or of that whose workflow builds; none without either."""
    server, name = environment.get("GITHUB_SERVER_URL"), environment.get("GITHUB_REPOSITORY")
    address = (repository or (f"{server}/{name}" if server and name else "")).rstrip("/").removesuffix(".git")
    if address and not re.fullmatch(r"https://[^/\s]+/\S+", address):
        raise ValueError(f"repository = {repository!r} in pyproject.toml has to be like https://github.com/us/donewhen")
    pages = {
        "Repository": "", "Documentation": "/blob/main/docs/index.md",
        "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues",
    }  # fmt: skip
    return {label: f"{address}{path}" for label, path in pages.items()} if address else {}


def with_absolute_links(text: str, repository: str) -> str:
    """Return a text whose links to files lead to the repository; without one, their words alone."""

    def replace(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if not repository:
            return "" if picture else words
        return f"{picture}[{words}]({repository}/{'raw' if picture else 'blob'}/main/{path})"

    return LINK.sub(replace, text)
