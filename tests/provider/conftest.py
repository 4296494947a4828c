"""The package of a cloud, installed apart from the environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).with_name("toy_cloud")


@pytest.fixture(scope="session")
def toy_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the package installed by pip, to be put on the path of a process."""
    folder = tmp_path_factory.mktemp("toy")
    source, site = folder / "source", folder / "site"
    shutil.copytree(PACKAGE, source)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return site
