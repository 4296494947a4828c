"""``jupyter sky catalog``: what it prints, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyRefreshError, SkyUsageError
from jupyter_sky.clouds.prices.commands import RefreshReport
from jupyter_sky.clouds.prices.runner import OfferDiff, PriceChange, RefreshOutcome
from jupyter_sky.interfaces.magics.verbs import call_verb
from tests.catalog.refresh.test_aws import world


def outcomes() -> list[RefreshOutcome]:
    change = PriceChange("eastus", "Standard_D2s_v5", False, 0.1, 0.12)
    diff = OfferDiff(10, 11, 2, 1, 1, 4, 0, (change,))
    error = SkyRefreshError("gcp: no credentials were found", hint="gcloud auth login")
    return [
        RefreshOutcome("azure", "refreshed", diff, 11, {"no price": 3}, 7, ("sizes as they were",)),
        RefreshOutcome("gcp", "not refreshed", error=error),
    ]


def test_report_lists_changes_and_reasons_of_failures():
    text = str(RefreshReport(outcomes()))
    clouds, details = text.split("\n\n")
    assert clouds.splitlines()[3].split() == ["azure", "refreshed", *"11 2 1 1 4 3".split()]
    assert clouds.splitlines()[4].split() == ["gcp", "not", "refreshed"]
    for said in (
        "Standard_D2s_v5 in eastus: $0.1 → $0.12 (+20 %)",
        "3 × no price",
        "7 pages were there from an earlier run",
        "sizes as they were",
        "gcloud auth login",
    ):
        assert said in details


def test_a_report_is_a_table_in_a_notebook():
    html = RefreshReport(outcomes())._repr_html_()
    assert html.count("<table") == 2
    assert "3 × no price" in html


def test_an_option_that_does_not_exist_suggests_the_nearest():
    with pytest.raises(SkyUsageError, match="did you mean --dry-run"):
        call_verb(["catalog", "refresh", "aws", "--dryrun"])


def sky(*words: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "jupyter_sky.cli", *words]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, **env})


@pytest.mark.slow
def test_from_the_command_line(tmp_path: Path):
    # The addresses are boto3's own variables; a proxy that is not there stands for no network.
    aws = world()
    env = {
        "SKY_DATA_DIR": str(tmp_path / "data"),
        "AWS_ENDPOINT_URL": aws.url,
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "localhost",
    }
    try:
        small = sky("catalog", "refresh", "aws", env=env)
        assert small.returncode == 1
        assert "priced offers came back where there were" in small.stderr
        done = sky("catalog", "refresh", "aws", "--force", env=env)
        assert done.returncode == 0, done.stderr
        assert "refreshed" in done.stdout
        assert "interruption bands stay as they were" in done.stdout
        shown = sky("catalog", env=env).stdout
        (line,) = [line for line in shown.splitlines() if line.startswith("aws")]
        assert line.split() == ["aws", "10", "10", "3", "4", "0", "0", "refreshed"]
    finally:
        aws.close()
