"""``jupyter sky check``: without credentials, with wrong ones, with right ones; without an SDK."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.loopback import CLOUDS
from tests.emulators.multi_cloud import EmulatedClouds, emulate_clouds

pytestmark = pytest.mark.slow
MINE = ("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")


@pytest.fixture(scope="module")
def world() -> Iterator[EmulatedClouds]:
    """All three clouds."""
    with emulate_clouds(*CLOUDS) as opened:
        yield opened


def check(data: Path, env: dict[str, str]) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
    done = subprocess.run(
        [sys.executable, "-m", "jupyter_sky.cli", "check"],
        env={**kept, "HOME": str(data), "SKY_DATA_DIR": str(data), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    return done.stdout


def line(table: str, cloud: str) -> str:
    return next(row for row in table.splitlines() if row.startswith(f"{cloud} "))


def test_without_credentials_each_cloud_says_how_to_get_some(tmp_path: Path) -> None:
    table = check(tmp_path, {})
    assert line(table, "local").split()[1] == "yes"
    for cloud, way in (("aws", "aws configure"), ("gcp", "gcloud auth"), ("azure", "az login")):
        assert line(table, cloud).split()[1] == "no"
        assert "no credentials" in line(table, cloud) and way in line(table, cloud)


def test_with_right_ones_it_says_who_we_are(tmp_path: Path, world: EmulatedClouds) -> None:
    table = check(tmp_path, world.env)
    for cloud in CLOUDS:
        assert line(table, cloud).split()[1] == "yes", line(table, cloud)


@pytest.mark.parametrize("kind", ["wrong", "expired"])
def test_with_wrong_ones_it_says_so(tmp_path: Path, world: EmulatedClouds, kind: str) -> None:
    env = dict(world.env)
    for cloud in CLOUDS:
        env |= world.tell(cloud, "wrong_env", kind=kind)
    table = check(tmp_path, env)
    for cloud in CLOUDS:
        row = line(table, cloud)
        assert row.split()[1] == "no" and "no credentials" not in row, row
        assert len(row.split("  ")[-1].strip()) > 10, "it says what to do"


def test_without_an_sdk_it_says_how_to_install_one(tmp_path: Path, world: EmulatedClouds) -> None:
    hide = (
        "import runpy, sys\n"
        "for name in ('boto3', 'botocore', 'azure', 'google.cloud', 'google.auth'):\n"
        "    sys.modules[name] = None\n"
        "sys.argv = ['jupyter-sky', 'check']\n"
        "from jupyter_sky.cli import main\n"
        "sys.exit(main(['check']))\n"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
    done = subprocess.run(
        [sys.executable, "-c", hide],
        env={**kept, **world.env, "SKY_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    for cloud in CLOUDS:
        assert f"pip install 'jupyter_sky[{cloud}]'" in line(done.stdout, cloud)
