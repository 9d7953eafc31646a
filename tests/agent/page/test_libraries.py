"""The libraries of the page: what is committed is what npm gives, in the versions that are pinned."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.places import ROOT

BUILD = ROOT / "agent" / "page" / "libraries"
STATIC = ROOT / "agent" / "page" / "static"
npm = pytest.mark.skipif(shutil.which("npm") is None, reason="no npm found")


@pytest.mark.ui
@npm
def test_the_committed_libraries_are_built_from_npm(tmp_path: Path) -> None:
    """N37: built once more from the lock file, they come out byte by byte; their licences stand beside them."""
    shutil.copytree(BUILD, tmp_path / "build", ignore=shutil.ignore_patterns("node_modules"))
    options = {"cwd": tmp_path / "build", "check": True, "capture_output": True, "timeout": 110}
    subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], **options)  # type: ignore[call-overload]
    subprocess.run(["node", "build.mjs", str(tmp_path)], **options)  # type: ignore[call-overload]
    for name in ("libraries.js", "libraries.txt"):
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), f"run make page-libraries: {name}"


def test_every_library_has_its_licence() -> None:
    """N37: what stands in the bundle is named with version and licence."""
    licences = (STATIC / "libraries.txt").read_text("utf-8")
    for name in ("markdown-it", "lowlight", "highlight.js", "linkify-it", "entities"):
        assert f"\n{name} " in f"\n{licences}"
